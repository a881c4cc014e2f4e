/* flatout compare: two runs row by row, and what explains the difference; what is no run is compared as traces. */
#include "cli/cli.h"
#include "cli/compare.h"

#include "report/versus.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>

struct compare {
	bool all, force;
	const char *json;
	const char *model, *device;
	int64_t seq, tokens_per_step;
};
static const struct fo_opt rows[] = {
	FO_OPT_BOOL(struct compare, all, "compare.all", "false", "every operation and every option that differs"),
	FO_OPT_JSON(struct compare, json, "compare.json", "print JSON"),
	FO_OPT_FORCE(struct compare, force, "compare.force"),
	FO_OPT_PATH(struct compare, model, "compare.model", "M", NULL,
		    "of traces, for MFU: preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_LENGTH(struct compare, seq, "compare.seq", "S", NULL, 1, 1 << 30, "of traces, for MFU: sequence length"),
	FO_OPT_LENGTH(struct compare, tokens_per_step, "compare.tokens-per-step", "N", NULL, 1, 1e15,
		      "of traces, for MFU: tokens of a step of the whole job"),
	FO_OPT_TEXT(struct compare, device, "compare.device", "D", NULL,
		    "of traces, for MFU: the device, where the trace does not name it"),
	FO_OPT_END
};

enum { OPERATIONS = 10, OPTIONS = 12 }; /* that a screen shows */
#define UNRESOLVED "not resolved"

/* One folder, under one name or two. */
static bool is_same_run(const struct fo_versus *v)
{
	struct stat a, b;
	return !stat(v->side[0].record->dir, &a) && !stat(v->side[1].record->dir, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* ---- text ---- */

static char *ms(struct fo_arena *a, double seconds)
{
	return isnan(seconds) ? fo_arena_strdup(a, "-") : fo_arena_printf(a, "%.3f ms", seconds * 1e3);
}

static char *percent(struct fo_arena *a, double share)
{
	return isnan(share) ? fo_arena_strdup(a, "-") : fo_arena_printf(a, "%.2f %%", 100 * share);
}

static char *count(struct fo_arena *a, double x)
{
	char buf[32];
	return isnan(x) ? fo_arena_strdup(a, "-") : fo_arena_strdup(a, fo_str_si(buf, x, ""));
}

static char *bytes(struct fo_arena *a, double x)
{
	char buf[32];
	return isnan(x) ? fo_arena_strdup(a, "-") : fo_arena_strdup(a, fo_str_bytes(buf, x));
}

/* "+3.1 %", or that it cannot be told. */
static char *change(struct fo_arena *a, double x, double y, bool apart)
{
	if (isnan(x) || isnan(y) || x == 0)
		return fo_arena_strdup(a, "");
	if (x == y)
		return fo_arena_strdup(a, "the same");
	return fo_arena_printf(a, "%+.1f %%%s", 100 * (y / x - 1), apart ? "" : ", " UNRESOLVED);
}

static bool step_resolved(const struct fo_versus *v)
{
	return fo_spread_apart(&v->side[0].figure[FO_VERSUS_STEP_SECONDS], &v->side[1].figure[FO_VERSUS_STEP_SECONDS]);
}

/* Parts and operations are of the newest steps only, which may differ where all steps do not: of a difference that the
 * whole run does not show, none explains any. Where the step times are not known the parts stand for themselves. */
static bool parts_resolved(const struct fo_versus *v)
{
	bool known = v->side[0].figure[FO_VERSUS_STEP_SECONDS].n && v->side[1].figure[FO_VERSUS_STEP_SECONDS].n;
	return !known || step_resolved(v);
}

/* What only one run does is there or not, whatever the step. */
static bool op_resolved(const struct fo_versus *v, const struct fo_versus_op *o)
{
	return o->apart && (parts_resolved(v) || !o->in[0] || !o->in[1]);
}

static const char *mark(double difference, bool resolved)
{
	return difference == 0 ? "the same" : resolved ? "" : UNRESOLVED;
}

static void figure_row(struct fo_versus *v, struct fo_table *t, const char *name, enum fo_versus_figure_id id,
		       char *(*text)(struct fo_arena *, double), bool quartiles)
{
	struct fo_arena *a = &v->arena;
	const struct fo_spread *x = &v->side[0].figure[id], *y = &v->side[1].figure[id];
	if (!x->n && !y->n)
		return;
	fo_table_row(t, name, text(a, x->median), text(a, y->median),
		     change(a, x->median, y->median, fo_spread_apart(x, y)));
	if (quartiles) {
		fo_table_row(t, "  lower quartile", text(a, x->low), text(a, y->low), "");
		fo_table_row(t, "  upper quartile", text(a, x->high), text(a, y->high), "");
	}
}

static void pair(struct fo_table *t, const char *name, const char *a, const char *b, const char *same)
{
	if (*a || *b)
		fo_table_row(t, name, a, b, strcmp(a, b) ? "" : same);
}

static void print_figures(struct fo_versus *v)
{
	struct fo_arena *a = &v->arena;
	struct fo_versus_side *s = v->side;
	const struct fo_record *x = s[0].record, *y = s[1].record;
	struct fo_table t;
	fo_table_init(&t, "lrrl");
	fo_table_row(&t, "", "A", "B", "B against A");
	figure_row(v, &t, "step time, median", FO_VERSUS_STEP_SECONDS, ms, true);
	if (!isnan(s[0].quiet_s) || !isnan(s[1].quiet_s))
		fo_table_row(&t, "quiet step time", ms(a, s[0].quiet_s), ms(a, s[1].quiet_s),
			     change(a, s[0].quiet_s, s[1].quiet_s, true));
	figure_row(v, &t, "waiting for data", FO_VERSUS_DATA_SECONDS, ms, false);
	figure_row(v, &t, "tokens/s", FO_VERSUS_TOKENS_PER_SECOND, count, false);
	figure_row(v, &t, "MFU, rule mfu", FO_VERSUS_MFU, percent, false);
	figure_row(v, &t, "  mfu_causal", FO_VERSUS_MFU_CAUSAL, percent, false);
	figure_row(v, &t, "  mfu_document", FO_VERSUS_MFU_DOCUMENT, percent, false);
	figure_row(v, &t, "  mfu_6n", FO_VERSUS_MFU_6N, percent, false);
	figure_row(v, &t, "HFU", FO_VERSUS_HFU, percent, false);
	fo_table_row(&t, "tokens in a step", count(a, s[0].tokens), count(a, s[1].tokens), "with loss, median");
	fo_table_row(&t, "memory planned", bytes(a, s[0].planned_bytes), bytes(a, s[1].planned_bytes),
		     change(a, s[0].planned_bytes, s[1].planned_bytes, true));
	fo_table_row(&t, "memory measured", bytes(a, s[0].measured_bytes), bytes(a, s[1].measured_bytes),
		     change(a, s[0].measured_bytes, s[1].measured_bytes, true));
	fo_table_row(&t, "steps", fo_arena_printf(a, "%lld", (long long)x->step.n),
		     fo_arena_printf(a, "%lld", (long long)y->step.n), "");
	fo_table_row(&t, "clock", isnan(s[0].clock_hz) ? "-" : fo_arena_printf(a, "%.2f GHz", s[0].clock_hz * 1e-9),
		     isnan(s[1].clock_hz) ? "-" : fo_arena_printf(a, "%.2f GHz", s[1].clock_hz * 1e-9), "");
	fo_table_row(&t, "steal", percent(a, s[0].steal), percent(a, s[1].steal), "");
	pair(&t, "program", x->program_hash, y->program_hash, "the same");
	pair(&t, "training data", x->train_checksum, y->train_checksum, "the same");
	pair(&t, "held-out data", x->val_checksum, y->val_checksum, "the same");
	fo_table_print(&t, stdout, "", true);
	fo_table_fini(&t);
}

/* Parts of the step, from the timelines, else as the log has their means. */
static void print_parts(struct fo_versus *v)
{
	struct fo_arena *a = &v->arena;
	struct fo_versus_side *s = v->side;
	bool spans = v->operations && s[0].covered.n && s[1].covered.n;
	double total = 0;
	struct fo_table t;
	if (!spans && (isnan(s[0].mean_part[0]) || isnan(s[1].mean_part[0]))) {
		printf("\nWhere the time went is not known of both runs.\n");
		return;
	}
	if (spans)
		printf("\nWhere a step's time goes: each operation's median of the newest %lld and %lld\nsteps\n\n",
		       (long long)s[0].covered.n, (long long)s[1].covered.n);
	else
		printf("\nWhere a step's time goes: means (no timeline of both runs, so no spread)\n\n");
	bool resolved = parts_resolved(v), same = is_same_run(v);
	if (!resolved && !same) {
		fo_cli_put(stdout, "", "",
			   "The step times are not resolved, so no difference of parts or operations is.");
		printf("\n");
	}
	fo_table_init(&t, "lrrrl");
	fo_table_row(&t, "part", "A", "B", "B - A", "");
	for (int p = 0; p < FO_PART_COUNT; p++) {
		double x = spans ? s[0].part[p].median : s[0].mean_part[p],
		       y = spans ? s[1].part[p].median : s[1].mean_part[p];
		if (x == 0 && y == 0)
			continue;
		total += y - x;
		fo_table_row(&t, fo_part_name[p], ms(a, x), ms(a, y), fo_arena_printf(a, "%+.3f ms", (y - x) * 1e3),
			     mark(y - x, resolved && (!spans || fo_spread_apart(&s[0].part[p], &s[1].part[p]))));
	}
	if (spans)
		fo_table_row(&t, "beyond medians", ms(a, s[0].beyond_s), ms(a, s[1].beyond_s),
			     fo_arena_printf(a, "%+.3f ms", (s[1].beyond_s - s[0].beyond_s) * 1e3), "stalls and gaps");
	if (spans)
		fo_table_row(&t, "whole step", ms(a, s[0].covered.median), ms(a, s[1].covered.median),
			     fo_arena_printf(a, "%+.3f ms", (s[1].covered.median - s[0].covered.median) * 1e3),
			     mark(s[1].covered.median - s[0].covered.median,
				  resolved && fo_spread_apart(&s[0].covered, &s[1].covered)));
	else
		fo_table_row(&t, "sum", "", "", fo_arena_printf(a, "%+.3f ms", total * 1e3), "");
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_operations(struct fo_versus *v, bool all)
{
	struct fo_arena *a = &v->arena;
	struct fo_table t;
	double rest = 0;
	int64_t left = 0;
	if (!v->operations || !v->ops)
		return;
	printf("\nOperations, ms in a step (all layers, micro-batches), largest difference first\n\n");
	fo_table_init(&t, "lllrrrl");
	fo_table_row(&t, "block", "operation", "phase", "A", "B", "B - A ms", "");
	for (int64_t i = 0; i < v->ops; i++) {
		const struct fo_versus_op *o = &v->op[i];
		if (!all && i >= OPERATIONS) {
			rest += o->difference;
			left++;
			continue;
		}
		fo_table_row(&t, o->block, fo_op_info((enum fo_op_kind)o->kind)->name, fo_phase_name[o->phase],
			     o->in[0] ? fo_arena_printf(a, "%.3f", o->time[0].median * 1e3) : "none",
			     o->in[1] ? fo_arena_printf(a, "%.3f", o->time[1].median * 1e3) : "none",
			     fo_arena_printf(a, "%+.3f", o->difference * 1e3), mark(o->difference, op_resolved(v, o)));
	}
	if (left)
		fo_table_row(&t, fo_arena_printf(a, "%lld more", (long long)left), "", "", "", "",
			     fo_arena_printf(a, "%+.3f", rest * 1e3), "--all");
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
}

static void print_options(struct fo_versus *v, bool all)
{
	struct fo_table t;
	if (!v->options) {
		printf("\n%s\n", v->side[0].record->options && v->side[1].record->options
					 ? "No option differs."
					 : "The options of both runs are not known.");
		return;
	}
	printf("\nOptions that differ\n\n");
	fo_table_init(&t, "lll");
	fo_table_row(&t, "option", "A", "B");
	for (int64_t i = 0; i < v->options && (all || i < OPTIONS); i++) {
		const struct fo_versus_option *o = &v->option[i];
		fo_table_row(&t, o->key, fo_arena_printf(&v->arena, "%.24s", *o->value[0] ? o->value[0] : "-"),
			     *o->value[1] ? o->value[1] : "-");
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	if (!all && v->options > OPTIONS)
		printf("  and %lld more (--all)\n", (long long)(v->options - OPTIONS));
}

static void print_losses(struct fo_versus *v)
{
	struct fo_str s = { 0 };
	if (!v->common_steps) {
		fo_str_puts(&s, "the runs have no step in common");
	} else if (v->identical_steps == v->common_steps) {
		fo_str_printf(&s, "the same bits in all %lld common steps", (long long)v->common_steps);
	} else {
		fo_str_printf(&s,
			      "%lld common steps, the first %lld with the same bits; largest difference %.3g at step "
			      "%lld; at step %lld %.4f and %.4f",
			      (long long)v->common_steps, (long long)v->identical_steps, v->largest_loss_difference,
			      (long long)v->largest_at, (long long)v->last_common, v->last_loss[0], v->last_loss[1]);
	}
	if (v->eval_step >= 0)
		fo_str_printf(&s, "; held-out at step %lld %.4f and %.4f", (long long)v->eval_step, v->eval_loss[0],
			      v->eval_loss[1]);
	if (v->common_steps && !v->same_data)
		fo_str_puts(&s, "; not of the same data");
	printf("\n");
	fo_cli_put(stdout, "Losses: ", "        ", "%s", s.data);
	fo_str_fini(&s);
}

static void print_verdict(struct fo_versus *v)
{
	const struct fo_spread *x = &v->side[0].figure[FO_VERSUS_STEP_SECONDS],
			       *y = &v->side[1].figure[FO_VERSUS_STEP_SECONDS];
	if (is_same_run(v))
		fo_cli_put(stdout, "", "", "A and B are the same run: nothing differs.");
	else if (!x->n || !y->n)
		fo_cli_put(stdout, "", "", "Step times are not known of both runs.");
	else if (!fo_spread_apart(x, y))
		fo_cli_put(
			stdout, "", "",
			"Step time: not resolved. The quartiles of both runs overlap: the machine varied by as much as "
			"they differ.");
	else
		fo_cli_put(stdout, "", "", "B's step takes %.3f times as long as A's; the quartiles of both are apart.",
			   y->median / x->median);
	for (int64_t i = 0; i < v->causes && !is_same_run(v); i++) {
		fo_cli_put(stdout, "- ", "  ", "%s", fo_cli_seen(v->cause[i]));
	}
	printf("\n");
}

static void print_head(const struct fo_versus *v)
{
	for (int i = 0; i < 2; i++) {
		const struct fo_record *r = v->side[i].record;
		const char *model = fo_record_model(r);
		fo_cli_put(stdout, i ? "B  " : "A  ", "   ", "%s: %s, begun %s", fo_cli_seen(r->dir),
			   fo_cli_seen(*model ? model : "model not known"),
			   *r->started ? r->started : "at a time that is not known");
	}
	printf("\n");
	bool damaged = false;
	for (int i = 0; i < 2; i++)
		for (int f = 0; f < FO_RECORD_FILES; f++)
			if (v->side[i].record->file[f].state == FO_RECORD_DAMAGED) {
				damaged = true;
				fo_cli_put(stdout, "left out: ", "          ", "%s",
					   fo_cli_seen(v->side[i].record->file[f].why));
			}
	if (damaged)
		printf("\n");
}

/* ---- JSON ---- */

static void json_spread(struct fo_json *j, const char *key, const struct fo_spread *s)
{
	fo_json_object(j, key);
	fo_json_real(j, "median", s->n ? s->median : NAN);
	fo_json_real(j, "lower_quartile", s->n ? s->low : NAN);
	fo_json_real(j, "upper_quartile", s->n ? s->high : NAN);
	fo_json_int(j, "steps", s->n);
	fo_json_close(j);
}

static void json_side(struct fo_json *j, const char *key, const struct fo_versus_side *s)
{
	const struct fo_record *r = s->record;
	fo_json_object(j, key);
	fo_json_text(j, "run", r->dir);
	fo_json_text(j, "started", *r->started ? r->started : NULL);
	fo_json_text(j, "program_hash", *r->program_hash ? r->program_hash : NULL);
	fo_json_text(j, "train_shard_checksum", *r->train_checksum ? r->train_checksum : NULL);
	fo_json_text(j, "val_shard_checksum", *r->val_checksum ? r->val_checksum : NULL);
	fo_json_int(j, "steps", r->step.n);
	for (int f = 0; f < FO_VERSUS_FIGURES; f++)
		json_spread(j, fo_versus_figure_name[f], &s->figure[f]);
	fo_json_object(j, "parts_seconds");
	for (int p = 0; p < FO_PART_COUNT; p++)
		json_spread(j, fo_part_name[p], &s->part[p]);
	fo_json_close(j);
	json_spread(j, "covered_seconds", &s->covered);
	fo_json_real(j, "beyond_medians_seconds", s->beyond_s);
	fo_json_object(j, "mean_parts_seconds");
	for (int p = 0; p < FO_PART_COUNT; p++)
		fo_json_real(j, fo_part_name[p], s->mean_part[p]);
	fo_json_close(j);
	fo_json_real(j, "recompute_seconds", s->phase[FO_RECOMPUTE].n ? s->phase[FO_RECOMPUTE].median : NAN);
	fo_json_real(j, "quiet_step_seconds", s->quiet_s);
	fo_json_real(j, "planned_bytes", s->planned_bytes);
	fo_json_real(j, "measured_bytes", s->measured_bytes);
	fo_json_real(j, "clock_hz", s->clock_hz);
	fo_json_real(j, "steal", s->steal);
	fo_json_real(j, "limited_seconds", s->limited_s);
	fo_json_real(j, "load", s->load);
	fo_json_array(j, "damaged");
	for (int f = 0; f < FO_RECORD_FILES; f++)
		if (r->file[f].state == FO_RECORD_DAMAGED)
			fo_json_text(j, NULL, r->file[f].why);
	fo_json_close(j);
	fo_json_close(j);
}

static void json_operations(const struct fo_versus *v, struct fo_json *j)
{
	fo_json_array(j, "operations");
	for (int64_t i = 0; i < v->ops; i++) {
		const struct fo_versus_op *o = &v->op[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "block", o->block);
		fo_json_text(j, "operation", fo_op_info((enum fo_op_kind)o->kind)->name);
		fo_json_text(j, "phase", fo_phase_name[o->phase]);
		fo_json_real(j, "a_seconds", o->in[0] ? o->time[0].median : NAN);
		fo_json_real(j, "b_seconds", o->in[1] ? o->time[1].median : NAN);
		fo_json_real(j, "difference_seconds", o->difference);
		fo_json_bool(j, "resolved", op_resolved(v, o));
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void print_json(const struct fo_versus *v)
{
	struct fo_json *j = fo_cli_json_begin();
	json_side(j, "a", &v->side[0]);
	json_side(j, "b", &v->side[1]);
	fo_json_bool(j, "step_time_resolved", step_resolved(v));
	fo_json_bool(j, "same_run", is_same_run(v));
	fo_json_bool(j, "same_program", v->same_program);
	fo_json_bool(j, "same_data", v->same_data);
	fo_json_array(j, "options");
	for (int64_t i = 0; i < v->options; i++) {
		fo_json_object(j, NULL);
		fo_json_text(j, "key", v->option[i].key);
		fo_json_text(j, "a", v->option[i].value[0]);
		fo_json_text(j, "b", v->option[i].value[1]);
		fo_json_close(j);
	}
	fo_json_close(j);
	json_operations(v, j);
	fo_json_object(j, "losses");
	fo_json_int(j, "common_steps", v->common_steps);
	fo_json_int(j, "identical_steps", v->identical_steps);
	fo_json_real(j, "largest_difference", v->largest_loss_difference);
	fo_json_int(j, "largest_at", v->largest_at);
	fo_json_int(j, "last_common_step", v->last_common);
	fo_json_real(j, "a", v->last_loss[0]);
	fo_json_real(j, "b", v->last_loss[1]);
	fo_json_int(j, "held_out_step", v->eval_step);
	fo_json_real(j, "a_held_out", v->eval_loss[0]);
	fo_json_real(j, "b_held_out", v->eval_loss[1]);
	fo_json_close(j);
	fo_json_array(j, "causes");
	for (int64_t i = 0; i < v->causes; i++)
		fo_json_text(j, NULL, v->cause[i]);
	fo_json_close(j);
	fo_cli_json_end(j);
}

/* A run directory has one of these (fo_record_open). */
static bool is_run(const char *path)
{
	static const char *const file[] = { "run.json", "log.jsonl" };
	bool found = false;
	for (size_t i = 0; i < sizeof file / sizeof *file && !found; i++) {
		struct fo_str name = { 0 };
		struct stat s;
		fo_str_printf(&name, "%s/%s", path, file[i]);
		found = !stat(name.data, &s);
		fo_str_fini(&name);
	}
	return found;
}

static fo_status run_traces(const struct compare *in, char **argv)
{
	const struct fo_diagnose_options o = { .model = in->model,
					       .device = in->device,
					       .seq = in->seq,
					       .tokens_per_step = in->tokens_per_step,
					       .price_per_hour = NAN };
	return fo_cli_compare_traces(argv[1], argv[2], &o, in->all, in->json);
}

static fo_status run(int argc, char **argv)
{
	enum { WITH = FO_RECORD_WITH_PROGRAM | FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_METERED };
	struct compare in;
	struct fo_opt_set s;
	struct fo_record a, b;
	struct fo_versus v;
	fo_status st;
	FO_TRY_OR(st, fo_cli_options(&fo_cmd_compare, &s, &in, &argc, argv), done);
	FO_TRY_OR(st, fo_cli_no_more_args(&fo_cmd_compare, argc, argv, 2), done);
	if (argc < 3) {
		st = fo_hint(
			fo_fail(FO_EARG, "'flatout compare' takes two run directories or two traces, got %d", argc - 1),
			"usage: flatout compare A B");
		goto done;
	}
	if (!is_run(argv[1]) && !is_run(argv[2])) {
		st = run_traces(&in, argv);
		goto done;
	}
	if (in.model || in.device || in.seq || in.tokens_per_step) {
		st = fo_hint(fo_fail(FO_EARG, "--model, --seq, --tokens-per-step and --device are for traces; a run "
					      "says itself what it trained"),
			     "leave them out");
		goto done;
	}
	FO_TRY_OR(st, fo_record_open(&a, argv[1], WITH), done);
	FO_TRY_OR(st, fo_record_open(&b, argv[2], WITH), done_a);
	fo_versus_make(&v, &a, &b);
	if (in.json) {
		print_json(&v);
	} else {
		print_head(&v);
		print_verdict(&v);
		print_figures(&v);
		print_parts(&v);
		print_operations(&v, in.all);
		print_options(&v, in.all);
		print_losses(&v);
	}
	fo_versus_fini(&v);
	fo_record_fini(&b);
done_a:
	fo_record_fini(&a);
done:
	fo_opt_fini(&s);
	return st;
}

const struct fo_command fo_cmd_compare = {
	.name = "compare",
	.group = "diagnose",
	.usage = "flatout compare A B [--all] [--json]\n"
		 "       flatout compare A B [--model M --seq S --tokens-per-step N [--device D]]",
	.summary = "two runs or traces row by row, and what explains the difference",
	.text = "A and B are run directories (run.dir). Step time, MFU, tokens/s, memory, the parts of\n"
		"a step and its operations stand beside each other, with the options, machine and\n"
		"losses that differ. A difference inside both runs' own spread is \"not resolved\".\n"
		"\n"
		"Or both are traces of anyone's training: a file, a folder or a pattern in quotes,\n"
		"as 'flatout diagnose' reads them. Then the ledger of a step stands row by row: kernels\n"
		"by class, communication, copies, idle by cause; what the difference consists of; kernels\n"
		"that appeared or went. With the model, sequence and tokens of a step also MFU.\n"
		"\n"
		"  flatout compare run-before run-after\n"
		"  flatout compare run-before run-after --json\n"
		"  flatout compare before.pt.trace.json.gz after.pt.trace.json.gz\n"
		"  flatout compare 'before/rank*.json' 'after/rank*.json' --all",
	.opts = rows,
	.run = run,
};
