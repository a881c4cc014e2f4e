/* A plan as JSON: the record that 'flatout plan --json' writes and other commands read. */
#ifndef FO_PLAN_FILE_H
#define FO_PLAN_FILE_H

#include "base/range.h"
#include "base/schema.h"
#include "predict/division.h"

enum { FO_PLAN_FILE_POINTS = 64 }; /* the most that are read */
struct fo_plan_file_point {
	double dp, tp, cp, pp, ep, chunks;
	int64_t schedule;
	double zero, shard;
	bool sp, tp_overlap, stages_near, keeps_weights;
	double micro_batch, micro_batches, again_stages; /* again_stages: that recompute alone; 0: all alike */
	const char *recompute, *type, *state;            /* type, state: of products, of the optimizer's states */
	double seconds, seconds_low, seconds_high;       /* of a step; the 80 % interval */
	double tokens_s;                                 /* of one device */
	double mfu, mfu_causal;
	double device_hours; /* of a million tokens */
	double bytes, exposed, bubble;
	bool planned; /* bytes are a program's plan, but for the reserve */
};
struct fo_plan_file {
	const char *of; /* "plan": what tells it from other JSON */
	const char *model, *device, *framework, *type;
	/* What tells models apart, whatever they are called; NAN in a file that does not say. */
	double model_layers, model_hidden, model_weights, model_active;
	double devices, peak_flop_s; /* of one device, dense, of the type */
	double global_batch, seq;
	int64_t legal, timed, too_large;
	double search_seconds;
	int64_t ties, named;
	const char *doubt;    /* why to distrust the named division's figures; "" and NULL: nothing */
	const char *size;     /* why figures of so large a cluster are not known, marked "?"; "" and NULL: they are */
	double fewer_devices; /* on which `fewer` is faster; 0: no part of the devices is */
	struct fo_plan_file_point best[1], fewer[1], *point;
	int64_t bests, fewers, points;
};
/* The members of the record, into the open object. */
void fo_plan_file_write(const struct fo_plan_file *f, struct fo_json *j);
/* Reads the file. FO_EFORMAT: not a plan, half of one, one of another version, or one that contradicts itself;
 * FO_ENOMEM: one of a job that fits in no division; FO_EIO. Text lives in the arena. */
FO_CHECKED fo_status fo_plan_file_read(struct fo_plan_file *f, const char *path, struct fo_arena *arena);
/* Is the text's begin that of a plan? Looks no further: the rest may be damaged. */
bool fo_plan_file_is(const char *text, size_t len);
/* The same of a regular file; one that cannot be read is none. */
bool fo_plan_file_here(const char *path);
/* The job fits in no division: what tells such a file from other JSON, into the open object. */
void fo_plan_file_write_none(struct fo_json *j);
/* The model's name for a sentence; of one without a name its layers, too. */
const char *fo_plan_file_model(const struct fo_plan_file *f, struct fo_arena *arena);
/* Do both train one model? By layers, hidden size and weights where both files say them, else by name. */
bool fo_plan_file_same_model(const struct fo_plan_file *a, const struct fo_plan_file *b);
void fo_plan_file_division(const struct fo_plan_file_point *p, struct fo_division *out);
/* Tokens/s of all devices of the best division, its interval. */
struct fo_range fo_plan_file_tokens_s(const struct fo_plan_file *f);
/* mfu_causal over the interval of step times, at most 1. */
struct fo_range fo_plan_file_mfu(const struct fo_plan_file *f);

#endif
