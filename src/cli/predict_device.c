/* flatout predict --device: the step of a run on an accelerator, by parts and as an interval, without one. */
#include "cli/predict.h"

#include "base/mem.h"
#include "cost/device_profile.h"
#include "pass/pass.h"
#include "sim/sim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct report {
	const struct predict *in;
	struct fo_catalogue catalogue;
	const struct fo_device *device; /* its row */
	struct fo_device_profile profile;
	struct fo_device_rates rates;
	struct fo_model model;
	struct fo_program program;
	struct fo_unrolled u;
	struct fo_device_step step;
	struct fo_mfu mfu[3]; /* low, mid, high */
	double pairs;         /* of a micro-batch; < 0: unbroken rows */
	int64_t room;         /* bytes of the device that a program can have; 0: not known */
	struct fo_str would;  /* what would fit where the plan does not; empty: it fits */
};

/* ---- what is predicted ---- */

static fo_status check(const struct predict *in, const struct fo_opt_set *options)
{
	if (!*in->device)
		return fo_hint(fo_fail(FO_EARG, "--budget is of a device, and none is named"),
			       "--device=h200, or another that 'flatout devices' lists");
	if (*in->compare)
		return fo_cli_contradict("--device and --compare contradict: what a run measured is set beside "
					 "the machine that it ran on");
	if (in->budget && in->json)
		return fo_hint(fo_fail(FO_EARG, "--budget and --json both say what is printed"),
			       "leave one of them out: --json has the budget's parts");
	for (int i = 0; fo_run_options[i].key; i++)
		if (!strcmp(fo_run_options[i].key, "train.device") && options->origin[i].from == FO_ORIGIN_FLAG &&
		    !strcmp(in->run.device, "cpu"))
			return fo_cli_contradict("--device=%s and train.device=cpu contradict: one is an accelerator, "
						 "one this machine's processor",
						 fo_cli_seen(in->device));
	return FO_OK;
}

static fo_status load_rates(struct report *r)
{
	FO_TRY(fo_catalogue_load(&r->catalogue, NULL));
	FO_TRY(fo_catalogue_find(&r->catalogue, r->in->device, &r->device));
	FO_TRY(fo_device_rates_init(&r->rates, r->device));
	const int64_t total = r->rates.memory_bytes;
	r->room = total ? total - FO_DEVICE_CONTEXT_BYTES - fo_device_reserve(total) : 0;
	if (!*r->in->profile)
		return FO_OK;
	fo_status st = fo_device_profile_read(r->in->profile, &r->profile);
	if (st == FO_EFORMAT)
		return fo_hint(st, "a profile of 'flatout calibrate' is of a processor; without --profile the device's "
				   "published figures count");
	FO_TRY(st);
	return fo_device_rates_measured(&r->rates, &r->catalogue, &r->profile);
}

static int64_t budget_of(const struct report *r)
{
	const struct fo_run *run = &r->in->run;
	int64_t asked = run->memory_budget ? run->memory_budget : run->memory_limit;
	return asked && (asked < r->room || !r->room) ? asked : r->room;
}

static int64_t planned(const struct report *r) { return r->u.arena_bytes + r->u.persistent_bytes; }

/* Finds a change of the run that makes it fit, and says it in r->would. Tries the smallest change first. */
static void find_what_fits(struct report *r)
{
	struct fo_run run = r->in->run;
	struct fo_choice c;
	const struct fo_choose_rates rates = fo_choose_device(r->device, fo_run_precision(&run));
	static const char *const change[] = { "pass.recompute=auto", "optim.state=auto",
					      "pass.optimizer-in-backward=yes, a micro-batch a step" };
	const int state = run.state;
	if (*run.program_file) {
		fo_str_printf(&r->would, "the program of program.file is fixed: a run file leaves more open");
		return;
	}
	run.recompute = FO_RUN_RECOMPUTE_AUTO;
	run.recompute_layers = 0;
	for (int i = 0; i < 3; i++) {
		run.state = i ? FO_RUN_STATE_AUTO : state;
		if (i == 2) {
			run.optimizer_in_backward = true;
			run.clip_norm = FO_RUN_CLIP_PREVIOUS;
			run.micro_batches = 1;
			run.batch_rows = 0;
		}
		fo_status st = fo_pass_choose_run(&run, &r->model, budget_of(r), 0, &rates, &c);
		fo_err_clear();
		if (st != FO_OK)
			continue;
		const bool named[] = { r->in->run.recompute != FO_RUN_RECOMPUTE_AUTO,
				       i >= 1 && state != FO_RUN_STATE_AUTO, i == 2 };
		for (int k = 0; k < 3; k++)
			if (named[k])
				fo_str_printf(&r->would, "%s%s", r->would.len ? ", " : "", change[k]);
		struct fo_str what = { 0 };
		fo_recompute_text(&c.run, r->model.layers, &what);
		fo_str_printf(&r->would, " would fit, with %s master weights and %s moments; computed again: %s",
			      c.run.pass.master == FO_MASTER_NONE ? "no" : fo_master_name[c.run.pass.master],
			      fo_moments_name[c.run.pass.moments], what.data);
		fo_str_fini(&what);
		return;
	}
	fo_str_printf(&r->would,
		      "a smaller model, shorter rows, or a device with more memory ('flatout devices') would");
}

/* Builds the program with the choices that `flatout train` on the device would make. */
static fo_status load_program(struct report *r)
{
	struct fo_run run = r->in->run;
	run.device = "cuda";
	run.memory_budget = budget_of(r);
	FO_TRY(fo_run_model(&run, &r->model));
	fo_status st;
	if (*run.program_file) {
		st = fo_pass_build_run(&r->program, &run);
	} else {
		const struct fo_choose_rates rates = fo_choose_device(r->device, fo_run_precision(&run));
		struct fo_choice choice;
		st = fo_pass_choose_run(&run, &r->model, run.memory_budget, 0, &rates, &choice);
		if (st == FO_OK)
			st = fo_pass_build(&r->program, &r->model, &choice.run);
	}
	if (st == FO_ENOMEM) {
		struct fo_str why = { 0 };
		fo_str_printf(&why, "%s", fo_err_text());
		find_what_fits(r);
		st = fo_hint(fo_fail(FO_ENOMEM, "%s does not fit on %s: %s", r->model.name, r->rates.name, why.data),
			     "%s", r->would.data);
		fo_str_fini(&why);
		return st;
	}
	FO_TRY(st);
	if (r->program.ranks > 1)
		return fo_fail(
			FO_EUNSUPPORTED,
			"predict --device knows the steps of one rank, and this run has %d: leave mesh.ranks out",
			r->program.ranks);
	FO_TRY(fo_unroll(&r->program, &r->u));
	fo_plan(&r->program, &r->u);
	fo_prune_waits(&r->program, &r->u);
	r->pairs = r->in->documents > 0
			   ? (double)r->program.run.rows * fo_sim_pairs(r->program.run.seq, r->in->documents)
			   : -1;
	return FO_OK;
}

static double tokens(const struct report *r)
{
	return (double)r->program.tokens * (double)r->program.run.micro_batches;
}

static void find_mfu(struct report *r)
{
	const struct fo_program *p = &r->program;
	double s = (double)p->run.seq, pairs = r->pairs >= 0 ? r->pairs : (double)p->run.rows * s * (s + 1) / 2;
	const double seconds[3] = { r->step.step_s.high, r->step.step_s.mid, r->step.step_s.low };
	for (int i = 0; i < 3; i++)
		r->mfu[i] = fo_mfu_of_step(p, tokens(r), pairs * (double)p->run.micro_batches, seconds[i],
					   r->rates.peak_flop_s);
}

/* ---- output ---- */

static double per_batch(const struct report *r) { return (double)r->program.run.micro_batches; }

/* A part's name and its work in a micro-batch: "linear matmuls, 343 TFLOP". */
static const char *part_text(struct fo_doc *d, const struct report *r, enum fo_device_part part)
{
	static const char *const text[FO_DEVICE_PARTS] = {
		[FO_DEVICE_PART_LINEAR] = "linear matmuls",
		[FO_DEVICE_PART_WGRAD] = "weight gradients' sums",
		[FO_DEVICE_PART_HEAD] = "head",
		[FO_DEVICE_PART_ATTENTION] = "attention",
		[FO_DEVICE_PART_FUSED] = "norm, rope, SwiGLU",
		[FO_DEVICE_PART_FP8] = "fp8 casts, scales",
		[FO_DEVICE_PART_LOSS] = "cross-entropy",
		[FO_DEVICE_PART_OPTIMIZER] = "optimizer and norm",
		[FO_DEVICE_PART_REPEATED] = "computed again",
		[FO_DEVICE_PART_TRANSFER] = "waiting for copies",
		[FO_DEVICE_PART_GAPS] = "gaps",
	};
	const struct fo_device_step *s = &r->step;
	double n = per_batch(r);
	if (part == FO_DEVICE_PART_GAPS)
		return fo_doc_printf(d, "%s, %.0f operations", text[part], s->nodes / n);
	bool matmuls = part == FO_DEVICE_PART_LINEAR || part == FO_DEVICE_PART_HEAD ||
		       part == FO_DEVICE_PART_ATTENTION || part == FO_DEVICE_PART_REPEATED;
	return fo_doc_printf(d, "%s, %s", text[part],
			     matmuls ? fo_doc_si(d, s->flop[part] / n, "FLOP") : fo_doc_si(d, s->bytes[part] / n, "B"));
}

static bool shown(const struct report *r, int part)
{
	return r->step.part_s[part].high > 0 && r->step.part_s[part].mid >= 0.0005 * r->step.step_s.mid;
}

/* A table's times are in ms, those of a model whose micro-batch takes less than ten in us. */
static bool in_us(const struct report *r) { return r->step.step_s.mid / per_batch(r) < 0.01; }

static const char *time_of(struct fo_doc *d, const struct report *r, double s)
{
	return fo_doc_printf(d, "%.1f", (in_us(r) ? 1e6 : 1e3) * s / per_batch(r));
}

static const char *share_of_step(struct fo_doc *d, const struct report *r, int part)
{
	return fo_doc_printf(d, "%.1f %%", 100 * r->step.part_s[part].mid / r->step.step_s.mid);
}

static void say_parts(const struct report *r, struct fo_doc *d)
{
	const struct fo_device_step *s = &r->step;
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrr", "of a micro-batch", in_us(r) ? "fast, us" : "fast, ms", "middle",
		     "slow", "share");
	for (int i = 0; i < FO_DEVICE_PARTS; i++)
		if (r->in->all ? s->part_s[i].high > 0 : shown(r, i))
			fo_doc_row(d, part_text(d, r, (enum fo_device_part)i), time_of(d, r, s->part_s[i].low),
				   time_of(d, r, s->part_s[i].mid), time_of(d, r, s->part_s[i].high),
				   share_of_step(d, r, i));
	fo_doc_row(d, "sum", time_of(d, r, s->step_s.low), time_of(d, r, s->step_s.mid), time_of(d, r, s->step_s.high),
		   "");
}

/* Lists operations at the middle rates, the longest first. Operations of one name (the chunks of a loss) share a
 * row. */
static void say_operations(const struct report *r, struct fo_doc *d)
{
	struct fo_sim_table x;
	fo_sim_table_init(&x, &r->step.sim, &r->program, &r->u);
	const char **name = fo_doc_alloc(d, (size_t)(x.lines + 1) * sizeof *name);
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrl", "operations of a step", "times",
		     in_us(r) ? "middle, us" : "middle, ms", "measured");
	for (int i = 0; i < x.lines; i++) {
		name[i] = fo_cli_predict_operation(d, &r->program, &x, &x.line[i]);
		for (int k = 0; k < i; k++)
			if (x.line[i].times && x.line[k].times && !strcmp(name[i], name[k])) {
				x.line[k].times += x.line[i].times;
				x.line[k].predicted_s += x.line[i].predicted_s;
				x.line[i].times = 0;
				x.line[i].predicted_s = 0;
			}
	}
	fo_sim_table_sort(&x);
	for (int i = 0; i < x.lines; i++)
		if (x.line[i].predicted_s > 0)
			fo_doc_row(d, fo_cli_predict_operation(d, &r->program, &x, &x.line[i]),
				   fo_doc_count(d, x.line[i].times),
				   fo_doc_printf(d, "%.2f", (in_us(r) ? 1e6 : 1e3) * x.line[i].predicted_s),
				   x.line[i].sure == FO_SURE_EXACT ? "yes" : "no");
	fo_sim_table_fini(&x);
}

static void budget_mfu(const char *rule, const double v[3])
{
	printf("| `%s` | %.1f %% | %.1f %% | %.1f %% | |\n", rule, 100 * v[2], 100 * v[1], 100 * v[0]);
}

/* Markdown, as docs/performance.md has it. */
static void print_budget(const struct report *r)
{
	const struct fo_device_step *s = &r->step;
	const struct fo_mfu *f = r->mfu;
	struct fo_doc d = { 0 };
	printf("| of a micro-batch | fast, %s | middle | slow | share |\n|---|---|---|---|---|\n",
	       in_us(r) ? "us" : "ms");
	for (int i = 0; i < FO_DEVICE_PARTS; i++)
		if (shown(r, i))
			printf("| %s | %s | %s | %s | %s |\n", part_text(&d, r, (enum fo_device_part)i),
			       time_of(&d, r, s->part_s[i].low), time_of(&d, r, s->part_s[i].mid),
			       time_of(&d, r, s->part_s[i].high), share_of_step(&d, r, i));
	printf("| **sum** | **%s** | **%s** | **%s** | |\n", time_of(&d, r, s->step_s.low),
	       time_of(&d, r, s->step_s.mid), time_of(&d, r, s->step_s.high));
	printf("| tokens/s | %s | %s | %s | |\n", fo_doc_si(&d, tokens(r) / s->step_s.low, ""),
	       fo_doc_si(&d, tokens(r) / s->step_s.mid, ""), fo_doc_si(&d, tokens(r) / s->step_s.high, ""));
	budget_mfu("mfu", (double[]){ f[0].mfu, f[1].mfu, f[2].mfu });
	budget_mfu("mfu_causal", (double[]){ f[0].mfu_causal, f[1].mfu_causal, f[2].mfu_causal });
	if (r->pairs >= 0)
		budget_mfu("mfu_document", (double[]){ f[0].mfu_document, f[1].mfu_document, f[2].mfu_document });
	if (r->would.len)
		printf("\nDoes not fit on %s: %s.\n", r->rates.name, r->would.data);
	fo_doc_fini(&d);
}

static void say_memory(const struct report *r, struct fo_doc *d)
{
	fo_doc_line(d, "memory", "%s planned: activations and gradients %s, weights and optimizer state %s",
		    fo_doc_bytes(d, planned(r)), fo_doc_bytes(d, r->u.arena_bytes),
		    fo_doc_bytes(d, r->u.persistent_bytes));
	if (r->room)
		fo_doc_line(
			d, "room",
			"a plan can have %s of the %s that the device shows; workspace of the libraries comes on top",
			fo_doc_bytes(d, r->room), fo_doc_bytes(d, r->rates.memory_bytes));
	else
		fo_doc_line(d, "room", "not known: the catalogue does not have this device's memory");
	if (r->u.host_arena_bytes)
		fo_doc_line(d, "beside that", "%s wait in host memory", fo_doc_bytes(d, r->u.host_arena_bytes));
}

/* Says what the figures rest on. */
static void say_worth(const struct report *r, struct fo_doc *d)
{
	const struct fo_device_profile *f = &r->profile;
	const char *rest = r->step.measured_share < 0.995 ? ", the rest follows from rates" : "";
	if (f->rows)
		fo_doc_line(
			d, "rests on",
			"%s: %.0f %% of the time is of operations that were measured alone on %s%s; no whole step was "
			"measured",
			r->in->profile, 100 * r->step.measured_share, f->device, rest);
	else if (r->rates.published)
		fo_doc_line(d, "rests on",
			    "published rates of single kernels on such a device, not on a step that was measured; "
			    "unproven on hardware");
	else
		fo_doc_line(d, "rests on",
			    "the device's published peaks and shares of them that others reached elsewhere: little is "
			    "published of these kernels on this device, so the interval is wide; unproven on hardware");
	if (f->rows && f->rows < (size_t)f->expected)
		fo_doc_line(d, "cut short", "the file holds %zu of %d operations: the measurement was ended early",
			    f->rows, f->expected);
}

static void say_head(const struct report *r, struct fo_doc *d)
{
	const struct fo_program *p = &r->program;
	const struct fo_interval s = r->step.step_s;
	const struct fo_mfu *f = r->mfu;
	if (r->would.len)
		fo_doc_line(d, "too large", "does not fit: %s planned, %s of the device's %s can be; %s",
			    fo_doc_bytes(d, planned(r)), fo_doc_bytes(d, r->room),
			    fo_doc_bytes(d, r->rates.memory_bytes), r->would.data);
	fo_doc_line(d, "predict", "%s: %s", p->model.name, fo_cli_run_text(d, &p->run));
	struct fo_str passes = { 0 };
	fo_passes_text(&p->run.pass, &passes);
	fo_doc_line(d, "passes", "%s", passes.data);
	fo_str_fini(&passes);
	fo_doc_line(d, "device", "%s: %s/s dense bf16, memory %s/s", r->rates.name,
		    fo_doc_si(d, r->rates.peak_flop_s, "FLOP"), fo_doc_si(d, r->rates.memory_byte_s, "B"));
	say_worth(r, d);
	fo_doc_line(d, "step", "%s (%s to %s), %s (%s to %s)", fo_doc_num(d, s.mid, FO_DRAW_SECONDS),
		    fo_doc_num(d, s.low, FO_DRAW_SECONDS), fo_doc_num(d, s.high, FO_DRAW_SECONDS),
		    fo_doc_si(d, tokens(r) / s.mid, "tok/s"), fo_doc_si(d, tokens(r) / s.high, "tok/s"),
		    fo_doc_si(d, tokens(r) / s.low, "tok/s"));
	fo_doc_line(d, "MFU",
		    "%.1f %% mfu (%.1f to %.1f), %.1f %% mfu_causal (%.1f to %.1f), HFU %.1f %% (%.1f to %.1f)",
		    100 * f[1].mfu, 100 * f[0].mfu, 100 * f[2].mfu, 100 * f[1].mfu_causal, 100 * f[0].mfu_causal,
		    100 * f[2].mfu_causal, 100 * f[1].hfu, 100 * f[0].hfu, 100 * f[2].hfu);
	if (r->pairs >= 0) /* the other rules count rows without bounds, which are not computed */
		fo_doc_line(
			d, "documents", "%.1f %% mfu_document (%.1f to %.1f): attention within documents of %g tokens",
			100 * f[1].mfu_document, 100 * f[0].mfu_document, 100 * f[2].mfu_document, r->in->documents);
	say_memory(r, d);
}

static bool class_used(const struct report *r, int c)
{
	const struct fo_device_step *s = &r->step;
	if (c == FO_DEVICE_PRODUCT_FP8)
		return r->program.run.pass.fp8 != FO_FP8_OFF;
	return c < FO_DEVICE_FUSED ||
	       s->part_s[c == FO_DEVICE_FUSED ? FO_DEVICE_PART_FUSED : FO_DEVICE_PART_OPTIMIZER].high > 0;
}

static void say_rates(const struct report *r, struct fo_doc *d)
{
	fo_doc_heading(d, "Rates: low, middle, high");
	for (int c = 0; c < FO_DEVICE_CLASSES; c++) {
		const struct fo_interval x = r->rates.rate[c];
		bool flop = c < FO_DEVICE_FUSED, rows = c == FO_DEVICE_ATTENTION || c == FO_DEVICE_ATTENTION_BACKWARD;
		if (!class_used(r, c) || isnan(x.mid))
			continue;
		const char *form = flop ? "%.0f, %.0f, %.0f TFLOP/s%s" : "%.2f, %.2f, %.2f TB/s%s";
		const char *rate = fo_doc_printf(d, form, x.low * 1e-12, x.mid * 1e-12, x.high * 1e-12,
						 rows ? " on endless rows" : "");
		fo_doc_line(d, fo_device_class_name[c], "%s: %s", rate, r->rates.origin[c]);
	}
}

static void json_interval(struct fo_json *j, const char *key, double low, double mid, double high)
{
	fo_json_record(j, key, FO_REAL("low", low), FO_REAL("mid", mid), FO_REAL("high", high));
}

static void json_of_step(struct fo_json *j, const struct report *r)
{
	const struct fo_interval s = r->step.step_s;
	const struct fo_mfu *f = r->mfu;
	json_interval(j, "step_seconds", s.low, s.mid, s.high);
	json_interval(j, "tokens_per_second", tokens(r) / s.high, tokens(r) / s.mid, tokens(r) / s.low);
	json_interval(j, "mfu", f[0].mfu, f[1].mfu, f[2].mfu);
	json_interval(j, "mfu_causal", f[0].mfu_causal, f[1].mfu_causal, f[2].mfu_causal);
	json_interval(j, "mfu_document", f[0].mfu_document, f[1].mfu_document, f[2].mfu_document);
	json_interval(j, "mfu_6n", f[0].mfu_6n, f[1].mfu_6n, f[2].mfu_6n);
	json_interval(j, "hfu", f[0].hfu, f[1].hfu, f[2].hfu);
	fo_json_object(j, "parts");
	for (int i = 0; i < FO_DEVICE_PARTS; i++) {
		const struct fo_interval x = r->step.part_s[i];
		fo_json_object(j, fo_device_part_name[i]);
		json_interval(j, "seconds", x.low, x.mid, x.high);
		fo_json_put(j, FO_REAL("flop", r->step.flop[i]), FO_REAL("bytes", r->step.bytes[i]));
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void write_json(const struct report *r, struct fo_json *j)
{
	const struct fo_program *p = &r->program;
	fo_json_put(j, FO_TEXT("model", p->model.name), FO_TEXT("device", r->rates.name),
		    FO_BOOL("published", r->rates.published),
		    FO_TEXT("profile", r->profile.rows ? r->in->profile : NULL),
		    FO_REAL("measured_share", r->step.measured_share), FO_REAL("peak_flop_s", r->rates.peak_flop_s),
		    FO_INT("micro_batches", p->run.micro_batches), FO_INT("tokens", (int64_t)tokens(r)),
		    FO_REAL("attention_pairs", fo_json_when(r->pairs >= 0, r->pairs)));
	if (r->room)
		fo_json_bool(j, "fits", planned(r) <= r->room);
	else
		fo_json_raw(j, "fits", "null");
	fo_json_put(j, FO_TEXT("would_fit", r->would.data),
		    FO_REAL("memory_bytes", fo_json_when(r->rates.memory_bytes, (double)r->rates.memory_bytes)),
		    FO_REAL("plan_bytes_most", fo_json_when(r->room, (double)r->room)),
		    FO_INT("arena_bytes", r->u.arena_bytes), FO_INT("host_arena_bytes", r->u.host_arena_bytes),
		    FO_INT("persistent_bytes", r->u.persistent_bytes));
	json_of_step(j, r);
	fo_json_object(j, "rates");
	for (int c = 0; c < FO_DEVICE_CLASSES; c++) {
		fo_json_object(j, fo_device_class_name[c]);
		json_interval(j, "per_second", r->rates.rate[c].low, r->rates.rate[c].mid, r->rates.rate[c].high);
		fo_json_text(j, "origin", r->rates.origin[c]);
		fo_json_close(j);
	}
	fo_json_close(j);
}

/* ---- the command ---- */

static fo_status report(struct report *r, const struct fo_cli_call *call)
{
	const struct fo_opt_set *options = call->options;
	FO_TRY(check(r->in, options));
	FO_TRY(load_rates(r));
	FO_TRY(load_program(r));
	if (*r->in->run.program_file)
		FO_TRY(fo_cli_same_program(&r->program, options, &r->in->run));
	FO_TRY(fo_device_step(&r->step, &r->program, &r->u, &r->rates, r->pairs));
	find_mfu(r);
	if (r->room && planned(r) > r->room)
		find_what_fits(r);
	if (*r->in->timeline)
		FO_TRY(fo_cli_predict_timeline(&r->step.sim, &r->program, &r->u, r->in->timeline));
	if (call->json) {
		write_json(r, call->json);
	} else if (r->in->budget) {
		print_budget(r);
	} else {
		say_head(r, call->doc);
		say_parts(r, call->doc);
		if (r->in->all)
			say_operations(r, call->doc);
		say_rates(r, call->doc);
	}
	return FO_OK;
}

fo_status fo_cli_predict_device(const struct fo_cli_call *call)
{
	struct report r = { .in = call->in };
	fo_status st = report(&r, call);
	fo_str_fini(&r.would);
	fo_device_step_fini(&r.step);
	fo_unrolled_fini(&r.u);
	fo_program_fini(&r.program);
	fo_device_profile_fini(&r.profile);
	fo_catalogue_fini(&r.catalogue);
	return st;
}
