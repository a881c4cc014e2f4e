/* Primus: config.json and one file per stage with the begins and ends of each microbatch's passes, by iteration. */
#include "trace/schedule_int.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const size_t MAX_FILE = (size_t)256 << 20; /* 20 iterations of 32 passes are 50 KB */
static const size_t MAX_SPANS = (size_t)1 << 24;  /* a stage's iterations */
static const double MAX_MS = 9e12;                /* int64 nanoseconds */

static const struct pass {
	const char *name;
	enum fo_schedule_kind kind;
} pass[] = { { "fwd", FO_SCHED_FORWARD }, { "bwd", FO_SCHED_BACKWARD }, { "wgrad", FO_SCHED_WEIGHT } };

static fo_status load(const char *folder, const char *name, json_t **out, char **path)
{
	struct fo_arena a = { 0 };
	struct fo_str full = { 0 };
	fo_str_printf(&full, "%s/%s", folder, name);
	char *text;
	size_t len;
	fo_status st = fo_fs_read_regular(&a, full.data, MAX_FILE, &text, &len);
	json_error_t e;
	char why[4 * JSON_ERROR_TEXT_LENGTH + 8]; /* it quotes the file */
	if (st == FO_OK && !(*out = json_loadb(text, len, 0, &e)))
		st = fo_fail(FO_EFORMAT, "'%s' is no JSON: line %d: %s", full.data, e.line,
			     fo_str_visible(why, sizeof why, e.text));
	fo_arena_fini(&a);
	*path = full.data;
	return st;
}

/* vp_size is vpp_size, num_mbs micro_batches in logs of Primus's simulator. */
static int config_number(const json_t *config, const char *key, const char *other, int most)
{
	json_t *v = json_object_get(config, key);
	v = v ? v : json_object_get(config, other);
	json_int_t n = json_integer_value(v);
	return n >= 1 && n <= most ? (int)n : -1;
}

/* The place of the i-th pass in Megatron-LM's interleaved schedule: p microbatches through one chunk, then through the
 * next. */
static void interleave(struct fo_schedule_op *o, int64_t i, int stages, int chunks, bool backward)
{
	int64_t round = (int64_t)stages * chunks;
	int chunk = chunks > 1 ? (int)(i / stages % chunks) : 0;
	o->chunk = backward ? chunks - 1 - chunk : chunk;
	o->microbatch = (int32_t)(chunks > 1 ? i / round * stages + i % stages : i);
}

struct stage_log {
	struct fo_schedule_log *s;
	const char *path;
	size_t *cap;
	int stage, chunks;
	int32_t step;
};

static bool milliseconds(const json_t *list, size_t i, int64_t *ns)
{
	double ms = json_number_value(json_array_get(list, i));
	*ns = fabs(ms) < MAX_MS ? llround(ms * 1e6) : 0;
	return json_is_number(json_array_get(list, i)) && fabs(ms) < MAX_MS;
}

static fo_status read_pass(struct stage_log *l, const json_t *iteration, const struct pass *p)
{
	char key[4][32];
	const json_t *list[4];
	static const char *const part[4] = { "start", "end", "minibatch", "chunk" };
	for (int k = 0; k < 4; k++) {
		snprintf(key[k], sizeof key[k], "%s_%s", p->name, part[k]);
		list[k] = json_object_get(iteration, key[k]);
	}
	size_t n = json_array_size(list[0]);
	if (json_array_size(list[1]) != n)
		return fo_fail(FO_EFORMAT, "'%s', iteration %lld: %zu of '%s' and %zu of '%s'", l->path,
			       (long long)l->s->step[l->step].number, n, key[0], json_array_size(list[1]), key[1]);
	bool placed = n && json_array_size(list[2]) == n && json_array_size(list[3]) == n;
	for (size_t i = 0; i < n; i++) {
		fo_array_room(&l->s->op, l->cap, (size_t)l->s->ops, sizeof *l->s->op);
		struct fo_schedule_op *o = &l->s->op[l->s->ops++];
		*o = (struct fo_schedule_op){
			.kind = (uint8_t)p->kind, .stage = l->stage, .step = l->step, .sequence = (int32_t)i
		};
		if (!milliseconds(list[0], i, &o->begin_ns) || !milliseconds(list[1], i, &o->end_ns) ||
		    o->end_ns < o->begin_ns)
			return fo_fail(FO_EFORMAT, "'%s', iteration %lld: entry %zu of '%s' and '%s' is no interval",
				       l->path, (long long)l->s->step[l->step].number, i, key[0], key[1]);
		interleave(o, (int64_t)i, l->s->stages, l->chunks, p->kind != FO_SCHED_FORWARD);
		int64_t mb = json_integer_value(json_array_get(list[2], i)),
			chunk = json_integer_value(json_array_get(list[3], i));
		if (placed && mb >= 0 && mb < INT32_MAX && chunk >= 0 && chunk < l->chunks) {
			o->microbatch = (int32_t)mb;
			o->chunk = (int32_t)chunk;
		}
	}
	return FO_OK;
}

static fo_status read_stage(struct stage_log *l, const json_t *log)
{
	struct fo_schedule_log *s = l->s;
	for (int64_t k = 0; k < s->steps; k++) {
		char number[24];
		snprintf(number, sizeof number, "%lld", (long long)s->step[k].number);
		const json_t *iteration = json_object_get(log, number);
		if (!iteration)
			return fo_fail(FO_EFORMAT, "'%s' has no iteration %s, stage 0 has", l->path, number);
		double total = json_number_value(json_object_get(iteration, "total"));
		if (!(total > 0 && total < MAX_MS))
			return fo_fail(FO_EFORMAT, "'%s', iteration %s: \"total\" is no time", l->path, number);
		int64_t ns = llround(total * 1e6);
		s->span_ns[k * s->stages + l->stage] = ns;
		s->step[k].length_ns = fo_max(ns, s->step[k].length_ns);
		l->step = (int32_t)k;
		for (size_t i = 0; i < sizeof pass / sizeof *pass; i++)
			FO_TRY(read_pass(l, iteration, &pass[i]));
	}
	return FO_OK;
}

static int by_number(const void *a, const void *b)
{
	const struct fo_schedule_step *x = a, *y = b;
	return fo_order(x->number, y->number);
}

static fo_status list_steps(struct fo_schedule_log *s, const json_t *log, const char *path)
{
	size_t n = json_object_size(log);
	if (!n)
		return fo_fail(FO_EFORMAT, "'%s' has no iterations", path);
	if (n > MAX_SPANS / (size_t)s->stages)
		return fo_fail(FO_EFORMAT, "'%s' has %zu iterations of %d stages, at most %zu spans are read", path, n,
			       s->stages, MAX_SPANS);
	s->step = fo_xmalloc(n * sizeof *s->step);
	const char *key;
	json_t *value;
	json_object_foreach((json_t *)log, key, value)
	{
		char *end, shown[64];
		long long number = strtoll(key, &end, 10);
		if (*end || end == key)
			return fo_fail(FO_EFORMAT, "'%s': \"%s\" is no iteration", path,
				       fo_str_visible(shown, sizeof shown, key));
		s->step[s->steps++].number = number;
	}
	qsort(s->step, (size_t)s->steps, sizeof *s->step, by_number);
	s->span_ns = fo_xmalloc((size_t)(s->steps * s->stages) * sizeof *s->span_ns);
	return FO_OK;
}

fo_status fo_schedule_read_primus(struct fo_schedule_log *s, const char *folder)
{
	json_t *config = NULL;
	char *path = NULL;
	size_t cap = 0;
	s->format = FO_SCHEDULE_PRIMUS;
	s->replicas = 1;
	fo_status st = load(folder, "config.json", &config, &path);
	int chunks = config_number(config, "vp_size", "vpp_size", FO_SCHEDULE_MAX_CHUNKS);
	s->stages = config_number(config, "pp_size", "pp_size", FO_SCHEDULE_MAX_STAGES);
	if (st == FO_OK && s->stages < 1)
		st = fo_fail(FO_EFORMAT, "'%s' has no \"pp_size\" between 1 and %d", path, FO_SCHEDULE_MAX_STAGES);
	json_decref(config);
	free(path);
	for (int i = 0; st == FO_OK && i < s->stages; i++) {
		char name[40];
		json_t *log = NULL;
		snprintf(name, sizeof name, "pp_rank_%d.json", i);
		st = load(folder, name, &log, &path);
		if (st == FO_OK && i == 0)
			st = list_steps(s, log, path);
		struct stage_log l = {
			.s = s, .path = path, .cap = &cap, .stage = i, .chunks = chunks > 0 ? chunks : 1
		};
		if (st == FO_OK)
			st = read_stage(&l, log);
		json_decref(log);
		free(path);
	}
	return st;
}
