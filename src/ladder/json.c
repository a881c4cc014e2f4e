/* ladder.json. */
#include "ladder/plan_int.h"

static void spread_json(struct fo_json *j, const char *key, const struct fo_spread *s)
{
	fo_json_object(j, key);
	fo_json_real(j, "median", s->median);
	fo_json_real(j, "low", s->low);
	fo_json_real(j, "high", s->high);
	fo_json_close(j);
}

static void reals_json(struct fo_json *j, const char *key, const double *v, int64_t n)
{
	fo_json_array(j, key);
	for (int64_t i = 0; i < n; i++)
		fo_json_real(j, NULL, v[i]);
	fo_json_close(j);
}

static void time_json(struct fo_json *j, const struct fo_ladder *l, const struct fo_ladder_rung *g)
{
	fo_json_int(j, "timed_steps", g->timed_steps);
	spread_json(j, "step_seconds", &g->step_s);
	spread_json(j, "tokens_per_second", &g->tokens_s);
	for (int k = 0; k < FO_LADDER_RULES; k++)
		spread_json(j, fo_ladder_rule_name[k], &g->mfu[k]);
	fo_json_real(j, "peak_flop_s", g->peak_flop_s);
	fo_json_text(j, "peak_dtype", g->peak_dtype);
	fo_json_text(j, "peak_source", g->peak_source);
	fo_json_real(j, "useful_tokens_per_step", g->step_tokens);
	fo_json_real(j, "padding", g->padding);
	fo_json_real(j, "text_seen", g->text_seen);
	fo_json_real(j, "text_passes", g->text_passes);
	fo_json_real(j, "text_reached", g->text_reached);
	reals_json(j, "round_step_seconds", g->round_step_s, l->rounds);
	reals_json(j, "round_tokens_per_second", g->round_tokens_s, l->rounds);
	fo_json_object(j, "quiet");
	fo_json_int(j, "metered_steps", g->metered_steps);
	fo_json_real(j, "step_seconds", g->quiet_s);
	fo_json_real(j, "spans_share", g->quiet_spans_share);
	fo_json_real(j, "time_with_a_quiet_span_share", g->quiet_share);
	fo_json_real(j, "time_with_enough_quiet_spans_share", g->enough_share);
	for (int k = 0; k < FO_LADDER_RULES; k++)
		fo_json_real(j, fo_ladder_rule_name[k], g->quiet_mfu[k]);
	fo_json_close(j);
	fo_json_object(j, "parts");
	for (int k = 0; k < FO_PART_COUNT; k++)
		fo_json_real(j, fo_part_name[k], g->part_s[k]);
	fo_json_close(j);
}

static void gain_json(struct fo_json *j, const struct fo_ladder_rung *g)
{
	fo_json_object(j, "gain");
	fo_json_real(j, "estimate", g->gain);
	fo_json_real(j, "low", g->gain_low);
	fo_json_real(j, "high", g->gain_high);
	fo_json_real(j, "level", g->gain_level);
	fo_json_real(j, "predicted", g->predicted_gain);
	fo_json_close(j);
	fo_json_real(j, "predicted_step_seconds", g->predicted_step_s);
	fo_json_object(j, "predicted_from");
	for (int k = 0; k < FO_SURE_COUNT; k++)
		fo_json_real(j, fo_sure_name[k], g->sure[k]);
	fo_json_close(j);
}

static void losses_json(struct fo_json *j, const struct fo_ladder *l, const struct fo_ladder_rung *g)
{
	fo_json_object(j, "losses");
	fo_json_text(j, "check", fo_ladder_check_name[g->check]);
	fo_json_text(j, "reference", l->rung[g->reference].name);
	fo_json_real(j, "deviation", g->deviation);
	fo_json_real(j, "tolerance", g->tolerance);
	fo_json_real(j, "held_out", g->val_loss);
	reals_json(j, "training", g->loss, l->steps);
	fo_json_close(j);
}

void fo_ladder_changes_json(struct fo_json *j, const struct fo_ladder_rung *g)
{
	fo_json_array(j, "change");
	for (int k = 0; k < g->changes; k++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "key", g->change[k].key);
		fo_json_text(j, "value", g->change[k].value);
		fo_json_text(j, "was", g->change[k].was);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void rung_json(struct fo_json *j, const struct fo_ladder *l, const struct fo_ladder_rung *g)
{
	fo_json_object(j, NULL);
	fo_json_text(j, "name", g->name);
	fo_json_text(j, "what", g->what);
	fo_json_text(j, "from", g->from < 0 ? NULL : l->rung[g->from].name);
	fo_ladder_changes_json(j, g);
	fo_json_text(j, "options", g->options);
	fo_json_text(j, "dir", g->dir);
	fo_json_bool(j, "numerics_only", g->numerics_only);
	fo_json_text(j, "verdict", fo_ladder_verdict_name[g->verdict]);
	fo_json_text(j, "reason", g->reason);
	fo_json_int(j, "steps_done", g->steps_done);
	fo_json_int(j, "rounds_done", g->rounds_done);
	time_json(j, l, g);
	gain_json(j, g);
	fo_json_int(j, "planned_bytes", g->planned_bytes);
	fo_json_int(j, "measured_bytes", g->measured_bytes);
	losses_json(j, l, g);
	fo_json_close(j);
}

void fo_ladder_json(const struct fo_ladder *l, struct fo_str *out)
{
	struct fo_json j;
	struct fo_arena a = { 0 };
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_text(&j, "dir", l->dir);
	fo_json_text(&j, "started", l->started);
	fo_json_text(&j, "version", l->version);
	fo_json_text(&j, "run_file", l->run_file);
	fo_json_text(&j, "model", l->model);
	fo_json_real(&j, "params", l->params);
	fo_json_real(&j, "flop_per_token", l->flop_per_token);
	fo_json_int(&j, "seq", l->seq);
	fo_json_int(&j, "tokens_per_step", l->tokens_per_step);
	fo_json_real(&j, "text_tokens", l->text_tokens ? (double)l->text_tokens : NAN);
	const char *title = fo_ladder_text_title(l, &a);
	fo_json_text(&j, "text", title);
	fo_json_text(&j, "cpu", l->cpu);
	fo_json_text(&j, "device", l->device && *l->device ? l->device : NULL);
	fo_json_text(&j, "isa", l->isa);
	fo_json_int(&j, "threads", l->threads);
	fo_json_real(&j, "load", l->load);
	fo_json_real(&j, "processors", l->processors > 0 ? (double)l->processors : NAN);
	fo_json_text(&j, "not_quiet", fo_ladder_not_quiet(l, &a));
	fo_json_int(&j, "steps", l->steps);
	fo_json_int(&j, "rounds", l->rounds);
	fo_json_int(&j, "seed", (int64_t)l->seed);
	fo_json_text(&j, "no_prediction", l->predict_hint);
	fo_json_array(&j, "rungs");
	for (int i = 0; i < l->rungs; i++)
		rung_json(&j, l, &l->rung[i]);
	fo_json_close(&j);
	fo_json_close(&j);
	fo_arena_fini(&a);
}
