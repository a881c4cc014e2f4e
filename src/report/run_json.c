#include "report/run_int.h"

#include <math.h>

enum { RULES = FO_STEP_HFU - FO_STEP_MFU + 1 };

static void time_json(const struct fo_report *o, struct fo_json *j)
{
	fo_json_array(j, "slow_phases");
	for (int i = 0; i < o->phases; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "first", o->phase[i].first);
		fo_json_int(j, "last", o->phase[i].last);
		fo_json_real(j, "times", o->phase[i].times);
		fo_json_real(j, "lost_seconds", o->phase[i].lost_s);
		fo_json_text(j, "cause", *o->phase[i].cause ? o->phase[i].cause : NULL);
		fo_json_text(j, "beside", *o->phase[i].beside ? o->phase[i].beside : NULL);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_real(j, "slow_seconds", o->slow_s);
	fo_json_real(j, "wall_seconds", o->wall_s);
	fo_json_real(j, "step_seconds_sum", o->step_time_s);
	fo_json_int(j, "clock_set", o->clock_set);
	fo_json_object(j, "between_steps");
	for (int k = 0; k < FO_GAP_COUNT; k++) {
		static const char *const name[FO_GAP_COUNT] = { "evaluation", "checkpoint", "stopped", "other" };
		fo_json_object(j, name[k]);
		fo_json_int(j, "times", o->gaps[k]);
		fo_json_real(j, "seconds", isfinite(o->wall_s) ? o->gap_s[k] : NAN);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_int(j, "undone_steps", o->r->undone_steps);
	fo_json_real(j, "undone_seconds", o->r->undone_seconds);
	if (!o->has_profile) {
		fo_json_text(j, "profile", NULL);
		return;
	}
	fo_json_object(j, "profile");
	for (int k = 0; k < FO_PART_COUNT; k++)
		fo_json_real(j, fo_part_name[k], o->profile.part_ns[k] / o->profile.total_ns);
	fo_json_close(j);
}

static void memory_json(const struct fo_report *o, struct fo_json *j)
{
	static const char *const name[FO_LIFE_COUNT] = { "weights", "optimizer_state", "gradients",
							 "kept",    "passed",          "block" };
	const struct fo_record_end *e = fo_record_last_end(o->r);
	fo_json_object(j, "memory");
	for (int k = 0; k < FO_LIFE_COUNT; k++)
		fo_json_real(j, name[k], o->memory.points ? o->memory.peak_bytes[k] : NAN);
	fo_json_real(j, "arena_bytes", o->memory.arena_bytes);
	fo_json_array(j, "stages");
	for (int k = 0; k < o->memory.stages; k++) {
		const struct fo_report_stage *s = &o->memory.stage[k];
		fo_json_record(j, NULL, FO_INT("ranks", s->ranks), FO_INT("layers", s->layers),
			       FO_TEXT("recompute", s->recompute), FO_REAL("arena_bytes", s->arena_bytes),
			       FO_REAL("persistent_bytes", s->persistent_bytes));
	}
	fo_json_close(j);
	fo_json_real(j, "planned_bytes", e ? e->planned_bytes : NAN);
	fo_json_real(j, "measured_bytes", e ? e->measured_bytes : NAN);
	fo_json_close(j);
}

/* Null where the processor computed. */
static void device_json(const struct fo_record *r, struct fo_json *j)
{
	const struct fo_record_end *e = fo_record_last_end(r);
	const char *name = r->starts ? r->start[r->starts - 1].device : "";
	const struct fo_record_device none = fo_record_no_device();
	if (!*name) {
		fo_json_raw(j, "device", "null");
		return;
	}
	fo_json_object(j, "device");
	fo_json_text(j, "name", name);
	fo_schema_write_fields(&fo_record_device_schema, e ? &e->device : &none, j);
	fo_json_close(j);
}

void fo_report_json(const struct fo_report *o, struct fo_json *j)
{
	const struct fo_record *r = o->r;
	char text[FO_REPORT_MISSING];
	const char *line;
	fo_json_text(j, "run", r->dir);
	fo_json_bool(j, "paced", fo_record_paced(r));
	fo_json_int(j, "steps", r->step.n);
	fo_json_real(j, "loss_tokens", o->tokens);
	fo_json_real(j, "first_loss", o->first_loss);
	fo_json_real(j, "last_loss", o->last_loss);
	fo_json_real(j, "val_loss", o->last_eval);
	fo_json_real(j, "best_val_loss", o->best_eval);
	fo_schema_write(&fo_spread_schema, &o->step_s, "step_seconds", j);
	fo_schema_write(&fo_spread_schema, &o->tokens_s, "tokens_per_second", j);
	for (int k = 0; k < RULES; k++)
		fo_schema_write(&fo_spread_schema, &o->mfu[k], fo_step_field_name[FO_STEP_MFU + k], j);
	fo_json_real(j, "peak_flop_s", r->peak_flop_s);
	fo_json_text(j, "peak_source", *r->peak_source ? r->peak_source : NULL);
	fo_json_real(j, "quiet_step_seconds", o->quiet_s);
	fo_json_real(j, "quiet_share", o->quiet_share);
	fo_json_real(j, "quiet_mfu", o->quiet_mfu);
	time_json(o, j);
	fo_report_ranks_json(o, j);
	fo_report_pipeline_json(o, j);
	memory_json(o, j);
	fo_schema_write(&fo_state_use_schema, &o->machine, "machine", j);
	device_json(r, j);
	fo_json_int(j, "guard_events", r->guards);
	fo_json_text(j, "command", o->command);
	fo_json_array(j, "missing");
	for (int i = 0; (line = fo_report_missing(o, i, text)); i++)
		fo_json_text(j, NULL, line);
	fo_json_close(j);
}
