/* Private to the store: its blocks, and their copy on a device (mirror.c), which executors there work on. */
#ifndef FO_TRAIN_STORE_INT_H
#define FO_TRAIN_STORE_INT_H

#include "ckpt/ckpt.h"
#include "train/exec.h"

struct fo_store_entry {
	struct fo_buffer buf;
	int layers;
	unsigned char *memory; /* of the block that it lies in */
	int64_t offset, stride;
};
/* Memory comes in blocks: of the first program, and of each that was added later. */
struct fo_store {
	struct fo_store_entry *entry;
	int n;
	size_t entry_cap;
	struct fo_store_block {
		void *memory;
		int64_t bytes;
		/* The same bytes at the same offsets; NULL: there is no device. Where neither side is newer they agree.
		 */
		unsigned char *device;
		bool host_newer, device_newer;
		bool taken; /* resident: the host's addresses have memory */
	} * block;
	size_t blocks, block_cap;
	struct fo_cuda *cuda;
	/* The device holds it: of the host's blocks only tables have memory, until fo_store_take. Their addresses stand
	 * for the device's. */
	bool resident;
	struct fo_st_memory access; /* resident: by those addresses */
	/* Host memory is not page-locked: copies go through these pieces, each with a stream of its own. */
	fo_cuda_stream stream[2];
	void *piece[2];
};

/* What cuMemAlloc takes of the device for so many bytes: whole 2 MiB pages. The executor asks for these, so that its
 * plan is exact. */
static inline size_t fo_device_size(size_t bytes) { return (bytes + ((size_t)2 << 20) - 1) & ~(((size_t)2 << 20) - 1); }

/* Of a parameter's layer: random numbers. */
static inline uint64_t fo_store_stream(uint64_t seed, int param, int layer)
{
	return seed * 0x9e3779b97f4a7c15u + (uint64_t)param * 65536 + (uint64_t)layer;
}

/* Device memory for the blocks that have none; their first fo_store_send fills it. Of a resident store they become
 * zeros and tables here. FO_EBUG where the store is on another device already. */
FO_CHECKED fo_status fo_store_mirror(struct fo_store *s, struct fo_cuda *c);
void fo_store_unmirror(struct fo_store *s);
/* Where the bytes at `host` lie on the device. */
void *fo_store_on_device(const struct fo_store *s, const void *host);
/* Makes the device's copy what the host changed. */
FO_CHECKED fo_status fo_store_send(struct fo_store *s);
/* Makes the host's copy what the device changed; without a device nothing. */
FO_CHECKED fo_status fo_store_fetch(struct fo_store *s);
/* Resident: memory for the host's copy, which fo_store_fetch fills; FO_ENOMEM. Else nothing. */
FO_CHECKED fo_status fo_store_take(struct fo_store *s);
/* By the host: what the device has is void. Of a resident store the host changes nothing but through `access`. */
void fo_store_changed(struct fo_store *s);
void fo_store_device_changed(struct fo_store *s); /* by the device: what the host has is void */
/* How tensors of the store are reached: NULL, or of a resident store through pieces, in the thread that calls; device
 * memory is taken. */
FO_CHECKED fo_status fo_store_access(struct fo_store *s, const struct fo_st_memory **out);
int64_t fo_store_device_bytes(const struct fo_store *s); /* that its blocks take there, or will */
int64_t fo_store_host_bytes(
	const struct fo_store *s);   /* of the host; of a resident store its tables, not the copy that a fetch takes */
int64_t fo_store_pinned_bytes(void); /* page-locked, for copies to and from a device */

#endif
