/* flatout mfu: Model FLOPs Utilisation from anyone's numbers. */
#include "cli/mfu.h"

#include "hw/catalogue.h"
#include "hw/profile.h"
#include "hw/shares.h"
#include "model/model.h"
#include "report/log_doc.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct fo_cli_mfu, model, "mfu.model", "M", NULL,
		    "preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_LENGTH(struct fo_cli_mfu, seq, "mfu.seq", "S", NULL, 1, 1 << 30, "sequence length (with --model)"),
	FO_OPT_REAL(struct fo_cli_mfu, params, "mfu.params", "N", NULL, 1, 1e16, "weights",
		    "instead of --model: weights that multiply a token"),
	FO_OPT_TEXT(struct fo_cli_mfu, device, "mfu.device", "D", NULL,
		    "accelerator: 'flatout devices' lists them; this: the machine itself, calibrated"),
	FO_OPT_INT(struct fo_cli_mfu, devices, "mfu.devices", "N", NULL, 1, 1 << 30, "devices", "how many of them"),
	FO_OPT_REAL(struct fo_cli_mfu, total, "mfu.tokens-per-second", "T", NULL, 1e-9, 1e18, "tokens/s",
		    "throughput of all devices together"),
	FO_OPT_REAL(struct fo_cli_mfu, per_device, "mfu.tokens-per-second-per-device", "T", NULL, 1e-9, 1e18,
		    "tokens/s", "or of one device"),
	FO_OPT_REAL(struct fo_cli_mfu, step_seconds, "mfu.step-seconds", "T", NULL, 1e-9, 1e9, "s",
		    "or: time of one step"),
	FO_OPT_LENGTH_REAL(struct fo_cli_mfu, tokens_per_step, "mfu.tokens-per-step", "K", NULL, 1, 1e18,
			   "with the tokens of all devices in it"),
	FO_OPT_TEXT(struct fo_cli_mfu, dtype, "mfu.dtype", "TYPE", "bf16",
		    "precision of the dense peak: fp32, tf32, fp16, bf16, fp8, fp4"),
	FO_OPT_TEXT(struct fo_cli_mfu, share, "mfu.share", "TYPE=SHARE,...", NULL,
		    "in place of --dtype: shares of the FLOP by type, as fp8=0.7; the rest is bf16"),
	FO_OPT_BOOL(struct fo_cli_mfu, mtp, "mfu.mtp", "false", "count the model's multi-token-prediction modules too"),
	FO_OPT_PATH(struct fo_cli_mfu, devices_file, "mfu.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_INT(struct fo_cli_mfu, batch, "mfu.batch", "B", NULL, 1, 1 << 30, "sequences",
		   "of a log: sequences of one step, all devices, in place of --tokens-per-step"),
	FO_OPT_LENGTH_REAL(struct fo_cli_mfu, tokens, "mfu.tokens", "K", NULL, 1, 1e18,
			   "of a log: tokens of the whole run, for the time to its end"),
	FO_OPT_REAL(struct fo_cli_mfu, rent, "mfu.rent", "R", NULL, 1e-6, 1e6, "USD",
		    "of a log: rent per device and hour; else the catalogue's range"),
	FO_OPT_OUTPUT(struct fo_cli_mfu, html, "mfu.html", "FILE", NULL, "of a log: a page", FO_OUTPUT_PAGE),
	FO_OPT_OUTPUT(struct fo_cli_mfu, csv, "mfu.csv", "FILE", NULL, "of a log: a line per line of progress",
		      FO_OUTPUT_STEPS),
	FO_CLI_OUTPUT_ROWS(struct fo_cli_mfu, "mfu", "JSON on standard output")
};

enum { MAX_NOTES = 8 };

struct result {
	struct fo_cli_mfu in;
	const struct fo_device *device;
	struct fo_device here; /* --device this */
	enum fo_precision precision;
	struct fo_shares shares;
	char type[96];            /* "bf16", or the shares in words */
	double peak;              /* TFLOP/s of one device, dense; weighted by shares where they are given */
	double tokens_per_second; /* all devices */
	struct fo_flop flop;      /* per token; NaN where the inputs do not tell */
	struct fo_model model;    /* zeros with --params */
	struct fo_arena arena;
	char *note[MAX_NOTES];
	int notes;
};

static fo_status usage(const char *problem)
{
	return fo_hint(fo_fail(FO_EARG, "%s", problem), "'flatout mfu --help' shows what goes together");
}

/* One sentence for the first thing that is missing or contradicts another. */
static fo_status check_inputs(const struct fo_cli_mfu *in)
{
	if (in->html || in->csv || in->batch || in->tokens > 0 || in->rent > 0)
		return usage("'--html', '--csv', '--batch', '--tokens' and '--rent' go with a LOG, and none is given");
	bool step = in->step_seconds > 0 || in->tokens_per_step > 0;
	int ways = (in->total > 0) + (in->per_device > 0) + step;
	if (in->model && in->params > 0)
		return usage("'--model' and '--params' both say what was trained: give one");
	if (!in->model && in->params == 0)
		return usage("neither '--model' nor '--params' says what was trained");
	if (in->model && in->seq == 0)
		return usage("'--seq' is missing: the attention of a model depends on the sequence length");
	if (!in->model && in->mtp)
		return usage("'--mtp' goes with '--model': a weight count says nothing about modules");
	if (!in->model && in->seq > 0)
		return usage("'--seq' goes with '--model': 6N with '--params' knows no attention");
	if (!in->device)
		return usage("'--device' is missing");
	if (in->devices == 0)
		return usage("'--devices' is missing: the number of devices");
	if (ways == 0)
		return usage("no throughput: give '--tokens-per-second', '--tokens-per-second-per-device', or "
			     "'--step-seconds' with '--tokens-per-step'");
	if (ways > 1)
		return usage("more than one throughput: give one of '--tokens-per-second', "
			     "'--tokens-per-second-per-device' and '--step-seconds' with '--tokens-per-step'");
	if (step && in->step_seconds == 0)
		return usage("'--tokens-per-step' needs '--step-seconds'");
	if (step && in->tokens_per_step == 0)
		return usage("'--step-seconds' needs '--tokens-per-step'");
	return FO_OK;
}

static void add_note(struct result *r, char *text)
{
	if (r->notes < MAX_NOTES)
		r->note[r->notes++] = text;
}

/* TFLOP/s of one device under a rule's FLOP per token. */
static double rate(const struct result *r, double flop)
{
	return r->tokens_per_second * flop / (double)r->in.devices / 1e12;
}

/* The rule whose figure stands first: the full one; the causal one where the full one counts more than the devices can
 * do, which long sequences make possible; 6N when only a weight count is known. */
static const char *headline_rule(const struct result *r)
{
	if (isnan(r->flop.mfu))
		return "mfu_6n";
	return rate(r, r->flop.mfu) > r->peak ? "mfu_causal" : "mfu";
}

static double headline(const struct result *r)
{
	const char *rule = headline_rule(r);
	if (!strcmp(rule, "mfu_6n"))
		return r->flop.mfu_6n;
	return strcmp(rule, "mfu") ? r->flop.mfu_causal : r->flop.mfu;
}

/* ---- more than the devices can do ---- */

static const char *plain(struct result *r, double v)
{
	double shown = v >= 100 ? floor(v) : v;
	return fo_arena_printf(&r->arena, v >= 100 && v < 1e9 ? "%.0f" : "%.4g", shown);
}

/* The precisions whose peak would allow it, as "fp8" or "fp8 or fp4"; "" where none does. */
static const char *wider(struct result *r, double rate_each)
{
	const char *all = "";
	for (int p = 0; p < FO_PREC_COUNT; p++)
		if (r->device->dense[p] > r->peak && rate_each <= r->device->dense[p])
			all = fo_arena_printf(&r->arena, "%s%s%s", all, *all ? " or " : "", fo_precision_name[p]);
	return all;
}

/* Says which inputs to doubt, each with the value that it would have to have. */
static const char *doubts(struct result *r, double share)
{
	const struct fo_cli_mfu *in = &r->in;
	double most = r->tokens_per_second / share;
	struct fo_str s = { 0 };
	if (in->per_device > 0 && in->devices > 1 && share <= (double)in->devices)
		fo_str_printf(&s, "is %s the throughput of all %lld devices? then it is --tokens-per-second; else ",
			      plain(r, in->per_device), (long long)in->devices);
	fo_str_puts(&s, "doubt ");
	if (in->step_seconds > 0)
		fo_str_printf(&s, "--step-seconds (at least %.3g s) or --tokens-per-step (at most %s)",
			      in->step_seconds * share, plain(r, in->tokens_per_step / share));
	else if (in->total > 0)
		fo_str_printf(&s, "--tokens-per-second (at most %s)", plain(r, most));
	else
		fo_str_printf(&s, "--tokens-per-second-per-device (at most %s)", plain(r, most / (double)in->devices));
	if (in->total > 0 || in->step_seconds > 0)
		fo_str_printf(&s, ", --devices (at least %.0f)", ceil(share * (double)in->devices));
	fo_str_puts(&s, in->model ? ", --model" : ", --params");
	const char *other = wider(r, rate(r, headline(r)));
	if (r->device == &r->here)
		fo_str_puts(&s, ", or the measured peak ('flatout calibrate' on a quiet machine)");
	else if (r->shares.given)
		fo_str_puts(&s, ", or --share");
	else if (*other)
		fo_str_printf(&s, ", or --dtype (%s has such a peak)", other);
	const char *text = fo_arena_strdup(&r->arena, s.data);
	fo_str_fini(&s);
	return text;
}

static fo_status check_share(struct result *r)
{
	double share = rate(r, headline(r)) / r->peak;
	if (share <= 1)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "an MFU of %.2f %% (rule %s) cannot be: %lld x %s in %s %s at most %s tokens/s of this "
			       "model, not %s",
			       100 * share, headline_rule(r), (long long)r->in.devices, r->device->name, r->type,
			       fo_word(r->in.devices, "does", "do"), plain(r, r->tokens_per_second / share),
			       plain(r, r->tokens_per_second)),
		       "%s", doubts(r, share));
}

/* Narrow types run only part of a model's FLOP: what their MFU says depends on which. */
static void add_narrow_note(struct result *r)
{
	const char *name = fo_precision_name[r->precision];
	if (r->shares.given || r->device == &r->here || (r->precision != FO_PREC_FP8 && r->precision != FO_PREC_FP4))
		return;
	if (r->in.model)
		add_note(r, fo_arena_printf(&r->arena,
					    "if the matmuls of the layers are in %s, attention and the head in bf16: "
					    "--share %s=%.3f in place of --dtype",
					    name, name, r->flop.layers / headline(r)));
	else
		add_note(r,
			 fo_arena_printf(&r->arena,
					 "not all FLOP are in %s: --share %s=S in place of --dtype weights the peaks",
					 name, name));
}

static void add_notes(struct result *r)
{
	double sparse = r->shares.given ? NAN : r->device->sparse[r->precision];
	char mtp[48];
	if (!r->in.model)
		add_note(r,
			 fo_arena_printf(&r->arena,
					 "mfu and mfu_causal need --model and --seq: a weight count says nothing about "
					 "attention"));
	if (r->model.mtp_modules > r->model.mtp_counted)
		add_note(r, fo_arena_printf(&r->arena, "the model's %s %s not counted: --mtp counts %s",
					    fo_model_mtp_text(mtp, r->model.mtp_modules),
					    fo_word(r->model.mtp_modules, "is", "are"),
					    fo_word(r->model.mtp_modules, "it", "them")));
	if (rate(r, r->flop.mfu) > r->peak)
		add_note(r, fo_arena_printf(&r->arena,
					    "rule mfu counts attention over all pairs of tokens, causal kernels do "
					    "half of them: at this length its %.2f %% says nothing",
					    100 * rate(r, r->flop.mfu) / r->peak));
	if (!isnan(sparse))
		add_note(r,
			 fo_arena_printf(&r->arena,
					 "the vendor's %g TFLOP/s for this precision is with structured sparsity and "
					 "is not the denominator",
					 sparse));
	if (r->shares.given)
		add_note(r, fo_arena_printf(
				    &r->arena,
				    "the shares are taken as those of rule %s's FLOP; other rules are over the same "
				    "weighted peak",
				    headline_rule(r)));
	add_narrow_note(r);
	add_note(r, fo_arena_printf(&r->arena, "count only tokens that carry loss: padding is not useful work"));
}

static void given_real(struct fo_json *j, const char *key, double v) { fo_json_real(j, key, v > 0 ? v : NAN); }

static void inputs_json(struct fo_json *j, const struct fo_cli_mfu *in)
{
	fo_json_object(j, "inputs");
	fo_json_text(j, "model", in->model);
	given_real(j, "seq", (double)in->seq);
	given_real(j, "params", in->params);
	fo_json_put(j, FO_TEXT("device", in->device), FO_INT("devices", in->devices));
	given_real(j, "tokens_per_second", in->total);
	given_real(j, "tokens_per_second_per_device", in->per_device);
	given_real(j, "step_seconds", in->step_seconds);
	given_real(j, "tokens_per_step", in->tokens_per_step);
	fo_json_put(j, FO_TEXT("dtype", in->share ? NULL : in->dtype), FO_TEXT("share", in->share),
		    FO_BOOL("mtp", in->mtp), FO_TEXT("devices_file", in->devices_file));
	fo_json_close(j);
}

static void denominators_json(struct fo_json *j, const struct result *r)
{
	struct fo_denominator of[FO_DENOMINATORS];
	int n = fo_device_denominators(r->device, r->precision, &r->shares, of);
	fo_json_object(j, "shares");
	for (int p = 0; p < FO_PREC_COUNT; p++)
		if (r->shares.of[p] > 0)
			fo_json_real(j, fo_precision_name[p], r->shares.of[p]);
	fo_json_close(j);
	fo_json_array(j, "denominators");
	for (int i = 0; i < n; i++)
		fo_json_record(j, NULL, FO_TEXT("type", of[i].type), FO_REAL("peak_tflops", of[i].tflops),
			       FO_REAL("mfu", rate(r, headline(r)) / of[i].tflops));
	fo_json_close(j);
}

static const char *peak_kind(const struct result *r)
{
	if (r->shares.given)
		return "weighted";
	return r->device == &r->here ? "measured" : "dense";
}

static void write_json(const struct result *r, struct fo_json *j)
{
	double bf16 = r->device->dense[FO_PREC_BF16];
	inputs_json(j, &r->in);
	fo_json_put(j, FO_REAL("mfu", rate(r, r->flop.mfu) / r->peak),
		    FO_REAL("mfu_causal", rate(r, r->flop.mfu_causal) / r->peak),
		    FO_REAL("mfu_6n", rate(r, r->flop.mfu_6n) / r->peak), FO_TEXT("tflops_rule", headline_rule(r)),
		    FO_REAL("tflops_per_device", rate(r, headline(r))),
		    FO_REAL("mfu_of_bf16_peak", rate(r, headline(r)) / bf16),
		    FO_REAL("tokens_per_second", r->tokens_per_second));
	fo_json_record(j, "flop_per_token", FO_REAL("mfu", r->flop.mfu), FO_REAL("mfu_causal", r->flop.mfu_causal),
		       FO_REAL("mfu_6n", r->flop.mfu_6n));
	fo_json_put(j, FO_INT("mtp_modules", r->model.mtp_modules), FO_INT("mtp_counted", r->model.mtp_counted));
	fo_json_put(j, FO_TEXT("device", r->device->name), FO_TEXT("dtype", r->shares.given ? "mixed" : r->type),
		    FO_REAL("peak_tflops", r->peak), FO_TEXT("peak_kind", peak_kind(r)),
		    FO_TEXT("peak_source", r->device->source), FO_TEXT("peak_date", r->device->date));
	denominators_json(j, r);
	fo_json_texts(j, "notes", (const char *const *)r->note, r->notes);
}

static void rule_row(struct fo_doc *d, const struct result *r, const char *name, double flop, const char *formula)
{
	if (isnan(flop))
		return;
	fo_doc_row(d, name, fo_doc_printf(d, "%.2f %%", 100 * rate(r, flop) / r->peak),
		   fo_doc_printf(d, "%.1f", rate(r, flop)), fo_doc_printf(d, "%.3f", flop / 1e9),
		   fo_doc_printf(d, "%s%s", formula, r->model.mtp_counted ? ", MTP" : ""));
}

/* The inputs in words, each once. */
static void say_inputs(struct fo_doc *d, const struct result *r)
{
	const struct fo_cli_mfu *in = &r->in;
	char mtp[64];
	if (in->model)
		fo_doc_line(d, "model", "%s%s, sequence %lld", in->model, fo_model_mtp_with(mtp, &r->model),
			    (long long)in->seq);
	else
		fo_doc_line(d, "model", "%.6g weights", in->params);
	fo_doc_line(d, "devices", "%lld x %s", (long long)in->devices, r->device->name);
	if (in->step_seconds > 0)
		fo_doc_line(d, "step", "%.6g s for %.10g tokens", in->step_seconds, in->tokens_per_step);
	fo_doc_line(d, "tokens/s", "%.1f in all, %.1f per device", r->tokens_per_second,
		    r->tokens_per_second / (double)in->devices);
	fo_doc_line(d, "peak", "%.6g TFLOP/s per device, %s, %s", r->peak, r->type, peak_kind(r));
	fo_doc_line(d, "peak from", "%s (%s)", r->device->source, r->device->date);
	for (int i = 0; i < r->notes; i++)
		fo_doc_line(d, "note", "%s", r->note[i]);
}

static void say(struct fo_doc *d, const struct result *r)
{
	fo_doc_verdict(d, FO_DOC_PLAIN, NULL, "MFU %.2f %% (rule %s, %s%s)", 100 * rate(r, headline(r)) / r->peak,
		       headline_rule(r), r->type, r->model.mtp_counted ? ", MTP counted" : "");
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrl", "rule", "MFU", "TFLOP/s each", "GFLOP/token", "counts");
	rule_row(d, r, "mfu", r->flop.mfu, "weights, full attention");
	rule_row(d, r, "mfu_causal", r->flop.mfu_causal, "weights, causal attention");
	rule_row(d, r, "mfu_6n", r->flop.mfu_6n, "weights only");
	struct fo_denominator of[FO_DENOMINATORS];
	int n = fo_device_denominators(r->device, r->precision, &r->shares, of);
	fo_mfu_denominators(d, of, n, headline_rule(r), rate(r, headline(r)));
	say_inputs(d, r);
}

/* Describes this machine as a device by the peaks that calibration measured with all its threads. */
static fo_status find_here(struct result *r)
{
	static const struct {
		const char *dtype;
		int precision;
	} known[] = { { "f32", FO_PREC_FP32 }, { "bf16", FO_PREC_BF16 } };
	struct fo_limits m;
	const struct fo_limits_peak *at = NULL;
	char *cpu = fo_arena_alloc(&r->arena, sizeof m.cpu);
	fo_cpu_name(cpu, sizeof m.cpu);
	fo_status st = fo_limits_read(fo_limits_path(&r->arena, cpu), &m);
	if (st != FO_OK)
		return fo_hint(st, "'flatout calibrate' measures this machine and writes that file");
	r->here = (struct fo_device){ .name = cpu, .aliases = "", .kind = "cpu" };
	for (int p = 0; p < FO_PREC_COUNT; p++)
		r->here.dense[p] = r->here.sparse[p] = FO_UNKNOWN;
	int threads = 0;
	for (size_t i = 0; i < m.peaks; i++)
		threads = m.peak[i].threads > threads ? m.peak[i].threads : threads;
	for (size_t k = 0; k < sizeof known / sizeof *known; k++) {
		const struct fo_limits_peak *p = fo_limits_peak(&m, known[k].dtype, threads);
		r->here.dense[known[k].precision] = p ? p->best_flop_s / 1e12 : FO_UNKNOWN;
		at = p && (!at || known[k].precision == (int)r->precision) ? p : at;
	}
	if (at) {
		r->here.source = fo_arena_printf(&r->arena,
						 "measured on this machine: %s loop, %d %s, best of %d bursts%s",
						 at->set, threads, fo_word(threads, "thread", "threads"), at->bursts,
						 fo_limits_peak_sure(at) ? "" : " (machine too busy: may be low)");
		r->here.date = fo_arena_printf(&r->arena, "%.10s", at->date);
		r->device = &r->here;
	} else {
		st = fo_hint(fo_fail(FO_EARG, "the profile of this machine has no peak"),
			     "'flatout calibrate' measures it");
	}
	fo_limits_fini(&m);
	return st;
}

static fo_status find_device(struct result *r, const struct fo_catalogue *c)
{
	return strcmp(r->in.device, "this") ? fo_catalogue_find(c, r->in.device, &r->device) : find_here(r);
}

/* The device, its peak and the name of what that is the peak of. */
static fo_status find_peak(struct result *r, const struct fo_catalogue *c)
{
	FO_TRY(find_device(r, c));
	if (r->shares.given)
		return fo_device_weighted_peak(r->device, &r->shares, &r->peak);
	return fo_device_peak(r->device, r->precision, &r->peak);
}

static fo_status read_types(struct result *r, const struct fo_cli_call *call)
{
	FO_TRY(fo_precision_parse(r->in.dtype, &r->precision));
	FO_TRY(fo_shares_parse(r->in.share, &r->shares));
	snprintf(r->type, sizeof r->type, "%s", fo_precision_name[r->precision]);
	if (!r->shares.given)
		return FO_OK;
	if (fo_opt_given(call->options, "mfu.dtype"))
		return usage("'--share' and '--dtype' both say in which types the run computes: give one");
	fo_shares_text(r->type, sizeof r->type, &r->shares);
	return FO_OK;
}

static fo_status of_numbers(const struct fo_cli_call *call)
{
	const struct fo_cli_mfu *in = call->in;
	struct result r = { .in = *in, .flop = { .mfu = NAN, .mfu_causal = NAN, .mfu_6n = 6 * in->params } };
	struct fo_catalogue c;
	FO_TRY(check_inputs(in));
	FO_TRY(read_types(&r, call));
	if (in->model) {
		fo_status loaded = fo_model_load(in->model, &r.model);
		if (loaded != FO_OK && !*fo_err_hint())
			fo_hint(loaded, "of a model that is not counted here, '--params N' in place of '--model' and "
					"'--seq' tells mfu_6n");
		FO_TRY(loaded);
		if (in->mtp)
			FO_TRY(fo_model_count_mtp(&r.model));
		r.flop = fo_model_flop_per_token(&r.model, in->seq);
	}
	r.tokens_per_second = in->total;
	if (in->per_device > 0)
		r.tokens_per_second = in->per_device * (double)in->devices;
	else if (in->step_seconds > 0)
		r.tokens_per_second = in->tokens_per_step / in->step_seconds;
	fo_status st;
	FO_TRY(fo_catalogue_load(&c, in->devices_file));
	FO_TRY_OR(st, find_peak(&r, &c), done);
	FO_TRY_OR(st, check_share(&r), done);
	add_notes(&r);
	if (call->json)
		write_json(&r, call->json);
	else
		say(call->doc, &r);
done:
	fo_arena_fini(&r.arena);
	fo_catalogue_fini(&c);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	return call->argc > 1 ? fo_cli_mfu_log(call) : of_numbers(call);
}

const struct fo_command fo_cmd_mfu = {
	.name = "mfu",
	.group = "measure",
	.usage = "flatout mfu LOG... [--model M] [--seq S] [--device D] [--devices N] [--tokens-per-step K] "
		 "[--html FILE] [--csv FILE] [--json]\n"
		 "flatout mfu (--model M --seq S | --params N) --device D --devices N (--tokens-per-second T | "
		 "--tokens-per-second-per-device T | --step-seconds T --tokens-per-step K) "
		 "[--dtype TYPE | --share TYPE=SHARE,...] [--json]",
	.summary = "MFU from a training log or from anyone's throughput",
	.text = "A LOG, or several of one run, tells MFU over time, slow stretches, restarts, time to the end, "
		"cost, and why the figure that the log prints differs. Logs of torchtitan, Megatron-LM, "
		"Megatron-Bridge, NeMo, DeepSpeed, Hugging Face, LLaMA-Factory, axolotl, litgpt, Lightning "
		"(CSV), Composer, OLMo, MaxText, nanoGPT, llm.c, MLPerf and others are told by their lines; "
		"options say what a log does not.\n\n"
		"  flatout mfu train.log --device h100\n"
		"  flatout mfu train.log --model llama-3.1-8b --seq 8192 --html mfu.html\n\n"
		"MFU is the FLOPs that a model needs per second over the dense peak of the devices. The rule "
		"decides what it needs; 'flatout flops' shows the parts. With --params only 6N can be had. "
		"docs/metrics.md defines every figure.\n\n"
		"Of a run in fp8 or fp4 the MFU over each peak that fits stands in a table; with --share, the shares "
		"of FLOP by type, also over the peak that is weighted by them.\n\n"
		"What was trained: --model with --seq, or --params. How fast: --tokens-per-second, or "
		"--tokens-per-second-per-device, or --step-seconds with --tokens-per-step.\n\n"
		"  flatout mfu --model llama-3.1-8b --seq 8192 --device b200 --devices 1 \\\n"
		"      --tokens-per-second 21111\n"
		"  flatout mfu --model flatout-134m --seq 512 --device this --devices 1 \\\n"
		"      --tokens-per-second 250\n"
		"  flatout mfu --params 7B --device h100 --devices 8 --step-seconds 1.2 \\\n"
		"      --tokens-per-step 32k   (32,768)",
	.opts = rows,
	.act = run,
	.size = sizeof(struct fo_cli_mfu),
	.most = FO_CLI_ANY,
};
