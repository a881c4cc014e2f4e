/* Private to calibration: what is measured (grid.c) and how (ceilings.c). */
#ifndef FO_KERNEL_CEILINGS_INT_H
#define FO_KERNEL_CEILINGS_INT_H

#include "kernel/ceilings.h"
#include "kernel/measure.h"
#include "kernel/memory.h"
#include "kernel/work.h"

enum { FO_GRID_GROUPS_MAX = 20 };
struct fo_grid_item {
	struct fo_limits_row row;
	struct fo_work work;
	bool spare;    /* left out before all others where time is short */
	bool arranged; /* before each span the operands of `cold` are put out of the caches, the others fetched */
	uint32_t cold;
	int64_t docs;
	struct fo_traffic traffic;
	void (*fn)(void *arg);
	void *arg; /* NULL: its own work or traffic */
	double units, guess_s;
	int dtype, at; /* at: in the order in which a program comes to it */
	struct fo_quiet_span *span;
	size_t n, cap;
};
struct fo_grid {
	const struct fo_ceilings_options *o;
	const struct fo_limits *have; /* the profile before */
	struct fo_grid_item *item;
	size_t n, cap;
	double peak[2]; /* one thread: f32, bf16 */
	struct fo_traffic_data traffic;
	struct fo_work_data data;
	int64_t cache_bytes;
	int group[FO_GRID_GROUPS_MAX], groups; /* numbers of threads */
	struct fo_meter meter[FO_GRID_GROUPS_MAX][2];
	int64_t begin;
	double seconds; /* to measure in all */
	int left_out;
};

/* Fills groups and items: the operations of o->program, or shapes of models in general. o, peak and cache_bytes are
 * set. */
FO_CHECKED fo_status fo_grid_make(struct fo_grid *g);

#endif
