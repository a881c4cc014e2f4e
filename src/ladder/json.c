/* ladder.json: its table, and writing it. */
#include "ladder/plan_int.h"

/* A rung as ladder.json has it: names in place of indices, and how long its lists are. */
struct result {
	struct fo_ladder_rung g;
	const char *from, *reference;
	int64_t rounds, steps;
};
#define RESULT(m, ...) FO_FIELD(struct result, m, __VA_ARGS__)
#define SPREAD(m, key, means) FO_FIELD_RECORD(struct result, m, &fo_spread_schema, key, means)

static const struct fo_schema_field quiet_field[] = {
	RESULT(g.metered_steps, "metered_steps", "", "steps timed operation by operation"),
	RESULT(g.quiet_s, "step_seconds", "s", "step time composed from quiet spans"),
	RESULT(g.quiet_spans_share, "spans_share", "share", "spans that were quiet"),
	RESULT(g.quiet_share, "time_with_a_quiet_span_share", "share", "time of operations with a quiet span"),
	RESULT(g.enough_share, "time_with_enough_quiet_spans_share", "share", "time of those with enough of them"),
	RESULT(g.quiet_mfu[FO_LADDER_MFU], "mfu", "share", "at that step time, as the next four"),
	RESULT(g.quiet_mfu[FO_LADDER_MFU_CAUSAL], "mfu_causal", "share", ""),
	RESULT(g.quiet_mfu[FO_LADDER_MFU_DOCUMENT], "mfu_document", "share", ""),
	RESULT(g.quiet_mfu[FO_LADDER_MFU_6N], "mfu_6n", "share", ""),
	RESULT(g.quiet_mfu[FO_LADDER_HFU], "hfu", "share", ""),
};
static const struct fo_schema quiet_schema = { "", "quiet", FO_FIELDS(struct result, quiet_field) };

static const struct fo_schema_field gain_field[] = {
	RESULT(g.gain, "estimate", "ratio", "useful tokens per second over those of `from`; null before all rounds"),
	RESULT(g.gain_low, "low", "ratio", "lower end of its interval"),
	RESULT(g.gain_high, "high", "ratio", "upper end"),
	RESULT(g.gain_level, "level", "share", "confidence level of the interval"),
	RESULT(g.predicted_gain, "predicted", "ratio", "from the machine profile"),
};
static const struct fo_schema gain_schema = { "", "gain", FO_FIELDS(struct result, gain_field) };

static const struct fo_schema_field losses_field[] = {
	FO_FIELD_AS(CHOICE, struct result, g.check, "check", "", "", .names = fo_ladder_check_name,
		    .elements = FO_LADDER_CHECK_COUNT),
	RESULT(reference, "reference", "", "the rung compared with"),
	RESULT(g.deviation, "deviation", "ratio", "how far the losses are from that rung's ([metrics](metrics.md))"),
	RESULT(g.tolerance, "tolerance", "ratio", "how far they may be"),
	RESULT(g.val_loss, "held_out", "nats per token", "held-out loss after the last step"),
	FO_FIELD_REALS(struct result, g.loss, steps, "training", "nats per token", "loss of each step",
		       .flags = FO_POINTER),
};
static const struct fo_schema losses_schema = { "", "losses", FO_FIELDS(struct result, losses_field) };

static const struct fo_schema_field result_field[] = {
	RESULT(g.name, "name", "", "as planned"),
	RESULT(g.what, "what", "", "as planned"),
	RESULT(from, "from", "", "name of the rung that it starts from; null: baseline"),
	FO_FIELD_LIST(struct result, g.change, g.changes, &fo_ladder_change_schema, "change", "as planned",
		      .flags = FO_POINTER),
	RESULT(g.options, "options", "", "as planned"),
	RESULT(g.dir, "dir", "", "its [run directory](#run-directory)"),
	RESULT(g.numerics_only, "numerics_only", "", "as planned"),
	FO_FIELD_AS(CHOICE, struct result, g.verdict, "verdict", "", "", .names = fo_ladder_verdict_name,
		    .elements = FO_LADDER_VERDICT_COUNT),
	RESULT(g.reason, "reason", "", "why it failed, or null"),
	RESULT(g.steps_done, "steps_done", "", "steps done"),
	RESULT(g.rounds_done, "rounds_done", "", "rounds done"),
	RESULT(g.timed_steps, "timed_steps", "", "steps that count for time"),
	SPREAD(g.step_s, "step_seconds", "time of a timed step, s"),
	SPREAD(g.tokens_s, "tokens_per_second", "useful tokens per second"),
	SPREAD(g.mfu[FO_LADDER_MFU], "mfu", "share of the peak, as the next four ([metrics](metrics.md))"),
	SPREAD(g.mfu[FO_LADDER_MFU_CAUSAL], "mfu_causal", ""),
	SPREAD(g.mfu[FO_LADDER_MFU_DOCUMENT], "mfu_document", ""),
	SPREAD(g.mfu[FO_LADDER_MFU_6N], "mfu_6n", ""),
	SPREAD(g.mfu[FO_LADDER_HFU], "hfu", ""),
	RESULT(g.peak_flop_s, "peak_flop_s", "FLOP/s", "peak that MFU divides by"),
	RESULT(g.peak_dtype, "peak_dtype", "", "its data type"),
	RESULT(g.peak_source, "peak_source", "", "where it is from"),
	RESULT(g.step_tokens, "useful_tokens_per_step", "", "mean over the timed steps"),
	RESULT(g.padding, "padding", "share", "processed tokens without loss"),
	RESULT(g.text_seen, "text_seen", "share", "of the text, in all planned steps: came at least once"),
	RESULT(g.text_passes, "text_passes", "ratio", "tokens in all over those of the text; 2: everything came twice"),
	RESULT(g.text_reached, "text_reached", "share", "of the text: comes at some time; 1: nothing is cut off"),
	FO_FIELD_REALS(struct result, g.round_step_s, rounds, "round_step_seconds", "s", "one per round",
		       .flags = FO_POINTER),
	FO_FIELD_REALS(struct result, g.round_tokens_s, rounds, "round_tokens_per_second", "1/s", "one per round",
		       .flags = FO_POINTER),
	FO_FIELD_GROUP(&quiet_schema, "quiet", "from quiet spans alone ([metrics](metrics.md#quiet-step-time))"),
	FO_FIELD_AS(BY_NAME, struct result, g.part_s, "parts", "s",
		    "a mean step by [part](metrics.md#where-the-step-time-goes)", .names = fo_part_name,
		    .elements = FO_PART_COUNT),
	FO_FIELD_GROUP(&gain_schema, "gain", "[metrics](metrics.md#gains)"),
	RESULT(g.predicted_step_s, "predicted_step_seconds", "s", "from the machine profile"),
	FO_FIELD_AS(BY_NAME, struct result, g.sure, "predicted_from", "share",
		    "of the predicted time, by how it is known", .names = fo_sure_name, .elements = FO_SURE_COUNT),
	RESULT(g.planned_bytes, "planned_bytes", "B", "memory as planned, largest of the turns"),
	RESULT(g.measured_bytes, "measured_bytes", "B", "memory as measured, largest of the turns"),
	FO_FIELD_GROUP(&losses_schema, "losses", "whether the numbers hold"),
};
static const struct fo_schema result_schema = { "", "rung", FO_FIELDS(struct result, result_field) };

/* The ladder as ladder.json has it. */
struct file {
	struct fo_ladder l;
	const char *device, *text, *not_quiet;
	int64_t seed;
	struct result *rung;
};
#define LADDER(m, ...) FO_FIELD(struct file, m, __VA_ARGS__)
static const struct fo_schema_field ladder_field[] = {
	LADDER(l.dir, "dir", "", "its folder"),
	LADDER(l.started, "started", "", "UTC"),
	LADDER(l.version, "version", "", "of the program"),
	LADDER(l.run_file, "run_file", "", "as given on the command line"),
	LADDER(l.model, "model", "", "its name, or `custom`"),
	LADDER(l.params, "params", "", "parameters"),
	LADDER(l.flop_per_token, "flop_per_token", "FLOP", "by rule `mfu`"),
	LADDER(l.seq, "seq", "", "tokens of a row"),
	LADDER(l.tokens_per_step, "tokens_per_step", "", "padding included"),
	LADDER(l.text_tokens, "text_tokens", "", "of the text that is trained on; null: not known", .flags = FO_NULLS),
	LADDER(text, "text", "", "the sentence above the table; null: not known"),
	LADDER(l.cpu, "cpu", "", "name of the processor"),
	LADDER(device, "device", "", "that the rungs were trained on; null: the processor"),
	LADDER(l.isa, "isa", "", "kernel set"),
	LADDER(l.threads, "threads", "", "threads that compute"),
	LADDER(l.load, "load", "", "highest load average that a turn recorded"),
	LADDER(l.processors, "processors", "", "hardware threads of the machine", .flags = FO_NULLS, .absent = -1),
	LADDER(not_quiet, "not_quiet", "", "the sentence that the machine was not quiet, or null"),
	LADDER(l.steps, "steps", "", "of each rung"),
	LADDER(l.rounds, "rounds", "", "rounds"),
	LADDER(seed, "seed", "", "of the order of turns"),
	LADDER(l.predict_hint, "no_prediction", "", "why no gain is predicted, or null"),
	FO_FIELD_LIST(struct file, rung, l.rungs, &result_schema, "rungs", "in the plan's order", .flags = FO_POINTER),
};
const struct fo_schema fo_ladder_schema = { "ladder", "ladder", 1, FO_FIELDS(struct file, ladder_field) };

void fo_ladder_json(const struct fo_ladder *l, struct fo_str *out)
{
	struct fo_arena a = { 0 };
	struct file f = { .l = *l,
			  .device = l->device && *l->device ? l->device : NULL,
			  .text = fo_ladder_text_title(l, &a),
			  .not_quiet = fo_ladder_not_quiet(l, &a),
			  .seed = (int64_t)l->seed,
			  .rung = fo_arena_alloc(&a, (size_t)(l->rungs + 1) * sizeof *f.rung) };
	for (int i = 0; i < l->rungs; i++) {
		const struct fo_ladder_rung *g = &l->rung[i];
		f.rung[i] = (struct result){ .g = *g,
					     .from = g->from < 0 ? NULL : l->rung[g->from].name,
					     .reference = l->rung[g->reference].name,
					     .rounds = l->rounds,
					     .steps = l->steps };
	}
	fo_schema_text(&fo_ladder_schema, &f, true, out);
	fo_arena_fini(&a);
}
