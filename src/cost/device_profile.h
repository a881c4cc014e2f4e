/* Times that were measured for the operations of a step on a device: the JSON lines that bench_gpu prints
 * (docs/formats.md, written by `bench/gpu/run ceilings`). */
#ifndef FO_COST_DEVICE_PROFILE_H
#define FO_COST_DEVICE_PROFILE_H

#include "base/schema.h"
#include "cost/device.h"

enum { FO_DEVICE_PROFILE_MAX_ROWS = 65536 };
#define FO_DEVICE_PROFILE_MAX_BYTES ((size_t)16 << 20)

/* A line for each operation, and the line before the first; texts "" and numbers NaN where a line lacks them. */
struct fo_device_operation {
	const char *operation, *key, *category, *operands;
	double count, us_median, us_best, us_block, times, tflop_s, gb_s, tflop_s_block, gb_s_block, of_ceiling,
		ms_per_step;
};
struct fo_device_header {
	const char *device, *compute_capability, *model;
	const char *choice; /* written only: JSON */
	int64_t seq, distinct_operations;
};
extern const struct fo_schema fo_device_operation_schema, fo_device_header_schema;

struct fo_device_row {
	uint64_t key;               /* fo_op_signature */
	struct fo_interval seconds; /* below */
};
struct fo_device_profile {
	char device[80]; /* as its driver calls it */
	char model[64];
	int64_t seq; /* of the newest operations */
	struct fo_device_row *row;
	size_t rows, cap;
	int expected; /* operations to be measured; fewer rows: the measurement was ended early */
	struct {
		double work;
		struct fo_interval seconds;
	} class_sum[FO_DEVICE_CLASSES]; /* FLOP or bytes of all operations of a step, their times */
};

/* FO_EIO when it cannot be read; FO_EFORMAT, naming the place, when it is not such a file, holds no operation, or ends
 * within a line. *f needs no fini then. Lines of other objects are ignored. */
FO_CHECKED fo_status fo_device_profile_read(const char *path, struct fo_device_profile *f);
FO_CHECKED fo_status fo_device_profile_parse(const char *text, size_t len, const char *where,
					     struct fo_device_profile *f);
void fo_device_profile_fini(struct fo_device_profile *f);

/* The newest row of an operation; false: there is none. The device rests between single calls, so its clock is higher
 * than in a step. Operations that heat it (matmuls, attention) take the time of calls without a pause; where only
 * single ones were measured, their median, with a slow end of 6 % more (744 TFLOP/s where bursts reach 790, device.c).
 * Others take the median of single calls, whose operands come from memory as in a step. */
bool fo_device_profile_find(const struct fo_device_profile *f, uint64_t key, struct fo_interval *seconds);

/* Rates of measured classes replace the catalogue's. FO_EARG when the profile is of another device than r, FO_EFORMAT
 * when it claims more than the device can do. f outlives r. */
FO_CHECKED fo_status fo_device_rates_measured(struct fo_device_rates *r, const struct fo_catalogue *c,
					      const struct fo_device_profile *f);

#endif
