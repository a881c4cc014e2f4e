/* The record of a plan: one table that writes and reads it. */
#include "plan/file.h"

#include "base/fs.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

enum { BYTES_MOST = 4 << 20, VERSION = 1, BEGIN = 256 };
#define WORD "plan"

#define POINT(m, key, unit, means, ...) FO_FIELD(struct fo_plan_file_point, m, key, unit, means, __VA_ARGS__)
#define POSITIVE .flags = FO_NEEDED, .low = 1e-12, .high = 1e20
#define COUNT .flags = FO_NEEDED, .low = 1, .high = 1e9
static const struct fo_schema_field point_field[] = {
	POINT(dp, "dp", "", "data parallel ranks", COUNT),
	POINT(tp, "tp", "", "tensor parallel", COUNT),
	POINT(cp, "cp", "", "context parallel", COUNT),
	POINT(pp, "pp", "", "pipeline stages", COUNT),
	POINT(ep, "ep", "", "expert parallel", COUNT),
	POINT(chunks, "chunks", "", "of a stage"),
	POINT(schedule, "schedule", "", "of the pipeline"),
	POINT(zero, "zero", "", "ZeRO stage"),
	POINT(shard, "shard", "", "ranks that share states"),
	POINT(sp, "sequence_parallel", "", "beside tp"),
	POINT(tp_overlap, "tp_overlap", "", "tensor parallel communication beside products"),
	POINT(stages_near, "stages_near", "", "stages of a pipeline in one node"),
	POINT(keeps_weights, "keeps_weights", "", "gathered weights stay until backward"),
	POINT(micro_batch, "micro_batch", "sequences", ""),
	POINT(micro_batches, "micro_batches", "", "of a step"),
	POINT(recompute, "recompute", "", "layers that are computed again"),
	POINT(again_stages, "recompute_stages", "", "first stages that do so alone; 0: all alike"),
	POINT(type, "precision", "", "number type of the linear layers", .flags = FO_NULLS),
	POINT(state, "state", "", "format of the optimizer's states", .flags = FO_NULLS),
	POINT(seconds, "step_seconds", "s", "", POSITIVE),
	POINT(seconds_low, "step_seconds_low", "s", "80 %", POSITIVE),
	POINT(seconds_high, "step_seconds_high", "s", "80 %", POSITIVE),
	POINT(tokens_s, "tokens_per_second_per_device", "tokens/s", "", POSITIVE),
	POINT(mfu, "mfu", "", "share of the dense peak", POSITIVE),
	POINT(mfu_causal, "mfu_causal", "", "the same without masked scores", .flags = FO_NEEDED, .low = 1e-12,
	      .high = 1, .expected = "a share above 0, at most 1"),
	POINT(device_hours, "device_hours_per_million_tokens", "h", ""),
	POINT(bytes, "memory_bytes", "bytes", "of the fullest device"),
	POINT(planned, "memory_planned", "", "of Flatout's own: its program was planned, exact but for the reserve"),
	POINT(exposed, "exposed_seconds", "s", "communication that nothing hides"),
	POINT(bubble, "bubble_seconds", "s", "the pipeline's"),
};
static const struct fo_schema point_schema = { "", "division", FO_FIELDS(struct fo_plan_file_point, point_field) };

#define PLAN(m, key, unit, means, ...) FO_FIELD(struct fo_plan_file, m, key, unit, means, __VA_ARGS__)
static const struct fo_schema_field field[] = {
	PLAN(of, "of", "", "\"plan\"", .flags = FO_NEEDED),
	PLAN(model, "model", "", "what is trained", .flags = FO_NEEDED),
	PLAN(model_layers, "model_layers", "", ""),
	PLAN(model_hidden, "model_hidden", "", "elements of a token's vector"),
	PLAN(model_weights, "model_weights", "", "all that are trained"),
	PLAN(model_active, "model_active", "", "of them those that one token uses"),
	PLAN(device, "device", "", "of the catalogue", .flags = FO_NEEDED),
	PLAN(devices, "devices", "", "how many train", COUNT),
	PLAN(framework, "framework", "", "whose divisions"),
	PLAN(type, "type", "", "number type of the linear layers", .flags = FO_NEEDED),
	PLAN(peak_flop_s, "peak_flop_s", "FLOP/s", "dense, of one device and this type", POSITIVE),
	PLAN(global_batch, "global_batch", "sequences", "of a step", POSITIVE),
	PLAN(seq, "seq", "tokens", "of a sequence", POSITIVE),
	PLAN(legal, "legal", "", "divisions"),
	PLAN(timed, "timed", "", "of them"),
	PLAN(too_large, "too_large", "", "of them"),
	PLAN(search_seconds, "search_seconds", "s", ""),
	PLAN(ties, "ties", "", "divisions that tie with the fastest"),
	PLAN(named, "named", "", "place of `best` in `points`"),
	PLAN(doubt, "doubt", "", "why to distrust the figures of `best`", .flags = FO_NULLS),
	PLAN(size, "size_doubt", "", "why figures of so large a cluster are not known", .flags = FO_NULLS),
	FO_FIELD_LIST(struct fo_plan_file, best, bests, &point_schema, "best", "the division to take",
		      .flags = FO_NEEDED, .elements = 1),
	PLAN(fewer_devices, "fewer_devices", "", "a part of the devices that is faster than all of them; 0: none"),
	FO_FIELD_LIST(struct fo_plan_file, fewer, fewers, &point_schema, "fewer", "the division to take on them",
		      .elements = 1),
	FO_FIELD_LIST(struct fo_plan_file, point, points, &point_schema, "points", "the best of each way to divide",
		      .flags = FO_POINTER, .elements = FO_PLAN_FILE_POINTS),
};

static void check(const void *record, struct fo_schema_reader *r)
{
	const struct fo_plan_file *f = record;
	const struct fo_plan_file_point *b = f->best;
	if (strcmp(f->of, WORD))
		fo_schema_refuse(r, "of", "\"plan\", as 'flatout plan --json' writes");
	else if (f->bests != 1)
		fo_schema_refuse(r, "best", "one division");
	else if (!(b->seconds_low <= b->seconds && b->seconds <= b->seconds_high))
		fo_schema_refuse(r, "best[0].step_seconds", "a number between its low and its high one");
	else if (b->mfu_causal > b->mfu * (1 + 1e-6))
		fo_schema_refuse(r, "best[0].mfu_causal", "at most best[0].mfu, which counts masked scores, too");
	/* All of one step: the tokens trained in it, over its time. */
	else if (fabs(f->global_batch * f->seq / (b->seconds * f->devices) / b->tokens_s - 1) > 1e-3)
		fo_schema_refuse(r, "best[0].tokens_per_second_per_device",
				 "global_batch x seq / (step_seconds x devices)");
}

/* Written, the record stands in an object that has its version already. */
static const struct fo_schema written = { "", "plan", FO_FIELDS(struct fo_plan_file, field) },
			      plan_schema = { "", "plan of 'flatout plan --json'", .version = VERSION,
					      FO_FIELDS(struct fo_plan_file, field), .check = check };

void fo_plan_file_write(const struct fo_plan_file *f, struct fo_json *j)
{
	struct fo_plan_file plan = *f;
	plan.of = WORD;
	fo_schema_write_fields(&written, &plan, j);
}

/* ---- a job that fits in no division ---- */

#define NONE "does not fit"
struct verdict {
	const char *of, *fit;
};
static const struct fo_schema_field verdict_field[] = {
	FO_FIELD(struct verdict, of, "of", "", "\"plan\""),
	FO_FIELD(struct verdict, fit, "fit", "", "\"" NONE "\""),
};
static const struct fo_schema verdict_schema = { "", "plan of 'flatout plan --json'",
						 FO_FIELDS(struct verdict, verdict_field) };

void fo_plan_file_write_none(struct fo_json *j)
{
	const struct verdict none = { WORD, NONE };
	fo_schema_write_fields(&verdict_schema, &none, j);
}

fo_status fo_plan_file_read(struct fo_plan_file *f, const char *path, struct fo_arena *arena)
{
	struct fo_schema_reader r = { .arena = arena, .where = path }, first = { .arena = arena, .lenient = true };
	struct verdict v;
	fo_schema_blank(&verdict_schema, &v);
	FO_TRY(fo_schema_read_file(&verdict_schema, path, BYTES_MOST, &v, &first));
	if (!strcmp(v.of, WORD) && !strcmp(v.fit, NONE))
		return fo_hint(fo_fail(FO_ENOMEM,
				       "'%s' is the plan of a job that fits in no division: it predicts "
				       "nothing",
				       path),
			       "its `devices_that_hold_it` says on how many devices it would");
	fo_schema_blank(&plan_schema, f);
	return fo_schema_read_file(&plan_schema, path, BYTES_MOST, f, &r);
}

/* ---- which model ---- */

static bool states_model(const struct fo_plan_file *f)
{
	return f->model_layers > 0 && f->model_hidden > 0 && f->model_weights > 0 && f->model_active > 0;
}

const char *fo_plan_file_model(const struct fo_plan_file *f, struct fo_arena *arena)
{
	return states_model(f) ? fo_arena_printf(arena, "%s (%.15g layers of %.15g)", f->model, f->model_layers,
						 f->model_hidden)
			       : f->model;
}

bool fo_plan_file_same_model(const struct fo_plan_file *a, const struct fo_plan_file *b)
{
	if (!states_model(a) || !states_model(b))
		return !strcmp(a->model, b->model);
	return a->model_layers == b->model_layers && a->model_hidden == b->model_hidden &&
	       a->model_weights == b->model_weights && a->model_active == b->model_active;
}

void fo_plan_file_division(const struct fo_plan_file_point *p, struct fo_division *o)
{
	struct fo_predict_layout l = { .tp = p->tp,
				       .cp = p->cp,
				       .pp = p->pp,
				       .ep = p->ep,
				       .chunks = p->chunks,
				       .zero = p->zero,
				       .shard = p->shard,
				       .sp = p->sp,
				       .tp_overlap = p->tp_overlap,
				       .stages_near = p->stages_near,
				       .keeps_weights = p->keeps_weights };
	if (p->schedule > 0 && p->schedule < FO_PREDICT_SCHEDULES)
		l.schedule = (enum fo_predict_schedule)p->schedule;
	fo_division_of(&l, p->dp, o);
}

bool fo_plan_file_is(const char *text, size_t len)
{
	static const char key[] = "\"of\"";
	const char *at = text, *end = text + (len < BEGIN ? len : BEGIN);
	while (at < end && strchr(" \t\r\n", *at))
		at++;
	if (at == end || *at != '{')
		return false;
	for (; at + sizeof key - 1 < end; at++) {
		if (memcmp(at, key, sizeof key - 1))
			continue;
		for (at += sizeof key - 1; at < end && strchr(" \t\r\n:", *at);)
			at++;
		return (size_t)(end - at) >= strlen("\"" WORD "\"") &&
		       !memcmp(at, "\"" WORD "\"", strlen("\"" WORD "\""));
	}
	return false;
}

bool fo_plan_file_here(const char *path)
{
	char text[BEGIN];
	int fd;
	if (fo_fs_open_regular(path, &fd) != FO_OK) {
		fo_err_clear();
		return false;
	}
	ssize_t n = read(fd, text, sizeof text);
	close(fd);
	return n > 0 && fo_plan_file_is(text, (size_t)n);
}

struct fo_range fo_plan_file_tokens_s(const struct fo_plan_file *f)
{
	double work = f->global_batch * f->seq;
	return (struct fo_range){ work / f->best[0].seconds_high, work / f->best[0].seconds_low };
}

struct fo_range fo_plan_file_mfu(const struct fo_plan_file *f)
{
	double work = f->best[0].mfu_causal * f->best[0].seconds;
	return (struct fo_range){ fmin(1, work / f->best[0].seconds_high), fmin(1, work / f->best[0].seconds_low) };
}
