/* A simulated step in the Trace Event Format. */
#include "sim/fleet_int.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

static void put_us(struct fo_json *j, const char *key, double seconds)
{
	char text[40];
	const int64_t ns = llround(seconds * 1e9);
	snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, ns / 1000, ns % 1000);
	fo_json_raw(j, key, text);
}

static void begin(struct fo_json *j, const char *ph, const char *name, int32_t rank, int lane)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "ph", ph);
	fo_json_text(j, "name", name);
	fo_json_int(j, "pid", rank);
	fo_json_int(j, "tid", lane + 1);
}

static void slice(struct fo_json *j, const char *name, const char *category, int32_t rank, int lane, double begin_s,
		  double end_s)
{
	begin(j, "X", name, rank, lane);
	fo_json_text(j, "cat", category);
	put_us(j, "ts", begin_s);
	put_us(j, "dur", fmax(end_s - begin_s, 0));
	fo_json_close(j);
}

static void metadata(struct fo_json *j, const char *what, int32_t rank, int lane, const char *name)
{
	begin(j, "M", what, rank, lane);
	fo_json_object(j, "args");
	fo_json_text(j, "name", name);
	fo_json_close(j);
	fo_json_close(j);
}

static void put_rank(struct fo_json *j, const struct fo_fleet_run *run, int32_t rank)
{
	const struct fo_fleet_class *c = &run->class[run->class_of[rank]];
	const struct fo_fleet_role *r = &run->fleet->role[c->role];
	bool used[FO_LANE_COUNT] = { false };
	char text[160];
	snprintf(text, sizeof text, "simulated: rank %d of %d, %s, as %d of them", rank, fo_fleet_ranks(run->fleet),
		 r->name, c->ranks);
	metadata(j, "process_name", rank, -1, text);
	for (int32_t i = 0; i < r->ops; i++)
		used[r->op[i].lane] = true;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (used[l])
			metadata(j, "thread_name", rank, l, fo_lane_name[l]);
	for (int32_t i = 0; i < r->ops; i++) {
		const struct fo_fleet_op *o = &r->op[i];
		const char *name = run->fleet->name[o->name];
		const double end = c->end_s[i] - r->after_s;
		if (o->does == FO_FLEET_WORKS) {
			slice(j, name, fo_lane_computes(o->lane) ? "compute" : "other", rank, o->lane, c->begin_s[i],
			      end);
			continue;
		}
		const double met = c->met_s[run->call[c->role][i]];
		snprintf(text, sizeof text, "late rank: %s", name);
		if (met > c->begin_s[i])
			slice(j, text, "wait", rank, o->lane, c->begin_s[i], met);
		slice(j, name, "communication", rank, o->lane, met, end);
	}
}

void fo_fleet_trace(const struct fo_fleet_run *run, const int32_t *rank, int32_t ranks, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, false);
	fo_json_object(&j, NULL);
	/* Begins as record/trace_events.c's files do, so that a file of ours may be written anew. */
	fo_json_text(&j, "displayTimeUnit", "ns");
	fo_json_record(&j, "otherData", FO_TEXT("program", "flatout"));
	fo_json_array(&j, "traceEvents");
	for (int32_t i = 0; i < ranks; i++)
		put_rank(&j, run, rank[i]);
	fo_json_close(&j);
	fo_json_close(&j);
}
