/* Private to the store: its memory blocks and their copy on a device (mirror.c), which executors there work on. */
#ifndef FO_TRAIN_STORE_INT_H
#define FO_TRAIN_STORE_INT_H

#include "base/count.h"
#include "ckpt/ckpt.h"
#include "train/exec.h"

struct fo_store_entry {
	struct fo_buffer buf;
	int layers;            /* instances that are here */
	unsigned char *memory; /* of the block that it lies in */
	int64_t offset, stride;
};
/* Memory comes in blocks: one for the first program, and one for each that was added later. */
struct fo_store {
	struct fo_store_entry *entry;
	int n;
	size_t entry_cap;
	struct fo_store_block {
		void *memory;
		int64_t bytes;
		/* The same bytes at the same offsets; NULL: no device. The two sides agree unless one is newer. */
		unsigned char *device;
		bool host_newer, device_newer;
		bool taken; /* of a resident store: the host's addresses have memory */
	} * block;
	size_t blocks, block_cap;
	int *instance; /* by layer of the model: its instance of buffers that have layers; -1: another rank has it */
	int model_layers;
	struct fo_cuda *cuda;
	/* The device holds the only copy: until fo_store_take only tables have memory on the host, whose other
	 * addresses merely stand for the device's. */
	bool resident;
	struct fo_st_memory access; /* of a resident store: reads and writes by the host's addresses */
	/* Host memory is not page-locked: copies go through these pieces, each with a stream of its own. */
	fo_cuda_stream stream[2];
	void *piece[2];
};

/* Bytes that cuMemAlloc takes for `bytes`: whole 2 MiB pages. The executor allocates these, so that its plan is exact.
 */
static inline size_t fo_device_size(size_t bytes) { return fo_round_up_bytes(bytes, (size_t)2 << 20); }

/* Instances of something that each layer has, or the model once. */
static inline int fo_store_layers(const struct fo_program *p, bool per_layer)
{
	return per_layer ? (int)p->model.layers : 1;
}
static inline int fo_buffer_layers(const struct fo_program *p, const struct fo_buffer *b)
{
	return fo_store_layers(p, b->axes & FO_PER_LAYER);
}
/* Of these, those that this rank has memory for. */
static inline int fo_buffer_own_layers(const struct fo_program *p, const struct fo_buffer *b)
{
	if (b->stage == FO_STAGE_ABSENT)
		return 0;
	return b->axes & FO_PER_LAYER ? (int)fo_program_layers(p) : 1;
}

/* The stream of random numbers that a parameter of a layer is drawn from. */
static inline uint64_t fo_store_stream(uint64_t seed, int param, int layer)
{
	return seed * 0x9e3779b97f4a7c15u + (uint64_t)param * 65536 + (uint64_t)layer;
}

/* Takes device memory for the blocks that have none; fo_store_send fills it, and in a resident store zeros and tables
 * do at once. FO_EBUG where the store is on another device already. */
FO_CHECKED fo_status fo_store_mirror(struct fo_store *s, struct fo_cuda *c);
void fo_store_unmirror(struct fo_store *s);
/* Fills a block's device memory with zeros, and with the tables, which the host has. */
FO_CHECKED fo_status fo_store_clear(struct fo_store *s, struct fo_store_block *b);
/* The device's address of the bytes at `host`. */
void *fo_store_on_device(const struct fo_store *s, const void *host);
/* Copies to the device what the host changed. */
FO_CHECKED fo_status fo_store_send(struct fo_store *s);
/* Copies to the host what the device changed; without a device nothing. */
FO_CHECKED fo_status fo_store_fetch(struct fo_store *s);
/* Takes memory for the host's copy of a resident store, which fo_store_fetch fills; FO_ENOMEM. */
FO_CHECKED fo_status fo_store_take(struct fo_store *s);
/* The host changed the store (a resident one only through `access`): the device's copy is void. */
void fo_store_changed(struct fo_store *s);
/* The device changed the store: the host's copy is void. */
void fo_store_device_changed(struct fo_store *s);
/* The way to the store's tensors: directly (*out NULL), or in a resident store through pieces, by the calling
 * thread; takes device memory. */
FO_CHECKED fo_status fo_store_access(struct fo_store *s, const struct fo_st_memory **out);
/* Device memory that the blocks take, or will take. */
int64_t fo_store_device_bytes(const struct fo_store *s);
/* Host memory; of a resident store its tables, without the copy that a fetch takes. */
int64_t fo_store_host_bytes(const struct fo_store *s);
int64_t fo_store_pinned_bytes(void); /* page-locked, for copies to and from a device */

#endif
