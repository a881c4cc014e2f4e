/* Private to the software driver: its memory and its queues. All functions but those of the driver itself want the lock
 * held. */
#ifndef FO_TESTS_CUDA_SOFT_INT_H
#define FO_TESTS_CUDA_SOFT_INT_H

#include "cuda/simt_int.h"
#include "cuda/soft.h"

#include <cuda.h>
#include <pthread.h>

#define SOFT_EXPORT __attribute__((visibility("default")))

extern pthread_mutex_t soft_lock;
extern struct fo_soft_counters soft_count;
extern bool soft_trace, soft_check;
uint32_t soft_draw(uint32_t below);
void soft_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

enum { SOFT_DEVICES_MOST = 16 };
int soft_device(void); /* of the calling thread's context */

/* ---- memory (soft_memory.c) ---- */

enum soft_where { SOFT_NOWHERE, SOFT_DEVICE, SOFT_HOST };
CUresult soft_alloc(CUdeviceptr *out, size_t bytes);
CUresult soft_free(CUdeviceptr p);
CUresult soft_host_alloc(void **out, size_t bytes);
CUresult soft_host_free(void *p);
CUresult soft_host_register(void *p, size_t bytes, bool add);
size_t soft_total(void); /* bytes of a device */
size_t soft_taken(void); /* of the calling thread's device */
/* In whose memory all of p[0 .. bytes) lies. */
enum soft_where soft_where(const void *p, size_t bytes);
/* What a word among a kernel's arguments is the address of, where it cannot be meant; NULL: nothing is known against
 * it. */
const char *soft_not_a_device_address(uint64_t word);
/* Ends the process where somebody wrote behind an allocation. */
void soft_check_guards(const char *after);

/* ---- work (soft_queue.c) ---- */

enum soft_kind { SOFT_LAUNCH, SOFT_CALL, SOFT_COPY, SOFT_FILL, SOFT_RECORD, SOFT_WAIT, SOFT_GRAPH, SOFT_NOTHING };
/* A point in the life of a stream: it has been passed, or not yet. */
struct soft_ticket {
	int refs;
	bool done;
	double ms;
};
struct soft_event {
	uint32_t magic;
	bool timed;
	struct soft_ticket *ticket; /* of the last record; NULL: never recorded */
	struct soft_capture
		*capture; /* not NULL: the last record was captured, and these were the stream's last nodes */
	int *front, fronts;
};
struct soft_work {
	enum soft_kind kind;
	const char *name;
	/* launch */
	const struct fo_simt_kernel *kernel;
	uint32_t grid[3], threads, shared_bytes;
	/* call */
	void (*begun)(void *args); /* when the host puts it into its stream, or launches its graph; NULL: nothing */
	void (*run)(void *args);
	bool (*met)(void *args); /* may it run now? NULL: yes. Asked again and again, with the lock held */
	void *args;              /* own; 64-byte aligned */
	/* copy, fill */
	void *to;
	const void *from;
	size_t bytes;
	unsigned char byte;
	/* record, wait */
	struct soft_ticket *ticket;
	struct soft_event *event; /* record as a node */
};
struct soft_node {
	struct soft_work work;
	int *after, afters; /* indices of nodes that must have run */
};
struct soft_graph {
	uint32_t magic;
	int refs; /* handle, launches under way */
	struct soft_node *node;
	int nodes;
	bool running;
	int launched; /* and not over */
};
struct soft_capture {
	struct soft_graph *graph;
	struct soft_stream *origin;
	pthread_t thread;
	CUstreamCaptureMode mode;
	bool invalid, ended;
};
struct soft_entry {
	struct soft_work work;
	struct soft_graph *graph; /* SOFT_GRAPH: its nodes' state: */
	int *left, ran;
	bool started;
	struct soft_ticket **tickets; /* of nodes that record */
	struct soft_entry *next;
};
struct soft_stream {
	uint32_t magic;
	int device;
	struct soft_entry *head, **tail;
	struct soft_capture *capture;
	int *front, fronts;
	struct soft_stream *next;
};
struct soft_stream *soft_stream_new(void);
void soft_stream_drop(struct soft_stream *s); /* an idle one */
/* Takes over what `w` owns. */
CUresult soft_put(struct soft_stream *s, struct soft_work w);
CUresult soft_put_graph(struct soft_stream *s, struct soft_graph *g);
void soft_drain(struct soft_stream *s);
void soft_drain_device(int device); /* all of its streams */
void soft_drain_until(const struct soft_ticket *t);
void soft_some(void); /* a few steps, or none, as the order wants */
void soft_look(void); /* the same, for somebody who looks again and again until it is done */
struct soft_ticket *soft_ticket_new(void);
void soft_ticket_drop(struct soft_ticket *t);
void soft_graph_drop(struct soft_graph *g);
void soft_set_front(int **front, int *fronts, const int *from, int n);
double soft_now_ms(void);

#endif
