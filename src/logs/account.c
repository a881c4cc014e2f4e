#include "logs/account.h"

#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_log_mfu_name[FO_LOG_MFU_RULES] = { "mfu", "mfu_causal", "mfu_6n", "mfu_lora" };
const char *const fo_log_mfu_counts[FO_LOG_MFU_RULES] = {
	"weights, full attention",
	"weights, causal attention",
	"weights only",
	"weights without gradients of frozen ones, full attention",
};

/* "FILE:12", where a fact stands. */
static const char *place(struct fo_log_account *a, enum fo_log_fact f)
{
	const struct fo_log_told *t = &a->log->told[f];
	return fo_arena_printf(&a->arena, "%s:%lld", fo_text_file_name(t->file), (long long)t->line);
}

static void missing(struct fo_log_account *a, const char *text)
{
	if (a->missings < FO_LOG_MISSING)
		a->missing[a->missings++] = text;
}

static void note(struct fo_log_account *a, const char *text)
{
	if (a->notes < FO_LOG_NOTES)
		a->note[a->notes++] = text;
}

static double fact(const struct fo_log_account *a, enum fo_log_fact f) { return a->log->told[f].number; }
static double known(double v, double otherwise) { return isnan(v) ? otherwise : v; }
static bool knows(const struct fo_log_account *a, enum fo_log_fact f) { return fo_log_knows(a->log, f); }

/* ---- the model ---- */

/* GPT-2's tokenizer has 50,257 tokens, and Megatron rounds them up to a multiple of its unit on each tensor rank. */
static double vocabulary(const struct fo_log_account *a)
{
	const char *tokenizer = a->log->told[FO_LOG_TOKENIZER].text;
	if (knows(a, FO_LOG_VOCAB))
		return fact(a, FO_LOG_VOCAB);
	if (!tokenizer || strcmp(tokenizer, "GPT2BPETokenizer") != 0)
		return NAN;
	double unit = known(fact(a, FO_LOG_VOCAB_UNIT), 1) * known(fact(a, FO_LOG_TP), 1);
	return (double)fo_round_up(50257, (int64_t)fmin(fmax(unit, 1), 1e6));
}

static bool fits(double v) { return v >= 1 && v <= 1e9; }

/* What the log says that no dense transformer has; NULL. Multi-token-prediction modules can be counted. */
static const char *why_not_dense(const struct fo_log_account *a, bool mtp)
{
	if (fact(a, FO_LOG_EXPERTS) > 1)
		return "num_experts: experts, of which a token uses some";
	if (fact(a, FO_LOG_LATENT) > 0)
		return "multi_latent_attention: projections of other sizes";
	if (fact(a, FO_LOG_HYBRID) > 0 || knows(a, FO_LOG_PATTERN))
		return "hybrid layers: not each layer has attention";
	return !mtp && fact(a, FO_LOG_AHEAD) > 0 ? "mtp_num_layers: further layers that predict later tokens" : NULL;
}

/* A model of the dimensions that the log prints; false where one of them is missing. */
static bool model_of_dimensions(struct fo_log_account *a, bool mtp)
{
	if (why_not_dense(a, mtp))
		return false;
	double layers = fact(a, FO_LOG_LAYERS), hidden = fact(a, FO_LOG_HIDDEN), heads = fact(a, FO_LOG_HEADS);
	double vocab = vocabulary(a);
	bool gated = fact(a, FO_LOG_GATED) == 1, titan = !strcmp(a->log->kind.id, "torchtitan");
	bool grouped = titan || knows(a, FO_LOG_GROUPED) || !strcmp(a->log->kind.id, "dllogger");
	double kv = grouped ? known(fact(a, FO_LOG_KV_HEADS), heads) : heads;
	double size = known(fact(a, FO_LOG_HEAD_DIM), hidden / heads);
	double ffn = known(fact(a, FO_LOG_FFN), titan ? NAN : 4 * hidden);
	if (!fits(layers) || !fits(hidden) || !fits(heads) || !fits(vocab) || !fits(kv) || !fits(size) || !fits(ffn))
		return false;
	bool gpt = !gated && !titan;
	a->model = (struct fo_model){ .family = gpt ? FO_FAMILY_GPT : FO_FAMILY_LLAMA,
				      .layers = (int64_t)layers,
				      .hidden = (int64_t)hidden,
				      .heads = (int64_t)heads,
				      .kv_heads = (int64_t)kv,
				      .head_dim = (int64_t)size,
				      .ffn = (int64_t)ffn,
				      .vocab = (int64_t)vocab,
				      .max_position = fits(fact(a, FO_LOG_SEQ)) ? (int64_t)fact(a, FO_LOG_SEQ) : 0,
				      .tied = gpt,
				      .gated = gated || titan,
				      .attention_bias = gpt,
				      .mlp_bias = gpt,
				      .output_bias = gpt,
				      .norm_bias = gpt,
				      .learned_position = gpt,
				      .norm_eps = 1e-5,
				      .rope = { .theta = 1e4, .factor = 1 } };
	snprintf(a->model.name, sizeof a->model.name, "%lld layers of %lld", (long long)layers, (long long)hidden);
	if (fo_model_check(&a->model) != FO_OK) {
		fo_err_clear();
		return false;
	}
	a->model_from = place(a, FO_LOG_LAYERS);
	return true;
}

/* The preset that has exactly as many parameters as the log prints. */
static bool model_of_count(struct fo_log_account *a)
{
	for (int i = 0; i < fo_model_preset_count() && fact(a, FO_LOG_PARAMS) >= 1; i++)
		if (fo_model_params(fo_model_preset(i)).total == fact(a, FO_LOG_PARAMS)) {
			a->model = *fo_model_preset(i);
			a->model_from = fo_arena_printf(&a->arena, "%s, by its number of parameters",
							place(a, FO_LOG_PARAMS));
			return true;
		}
	return false;
}

static bool model_of_name(struct fo_log_account *a)
{
	const char *name = a->log->told[FO_LOG_MODEL].text;
	const struct fo_model *m = name ? fo_model_preset_named(name) : NULL;
	if (!m)
		return false;
	a->model = *m;
	if (fits(fact(a, FO_LOG_VOCAB)))
		a->model.vocab = (int64_t)fact(a, FO_LOG_VOCAB);
	a->model_from = place(a, FO_LOG_MODEL);
	return true;
}

static fo_status find_model(struct fo_log_account *a, const struct fo_log_given *given)
{
	if (given->model) {
		FO_TRY(fo_model_load(given->model, &a->model));
		a->has_model = true;
		a->model_from = "the option";
	} else if (!(given->params > 0) && a->log->kind.id) {
		a->has_model = model_of_name(a) || model_of_count(a) || model_of_dimensions(a, given->mtp);
	}
	a->model_name = a->has_model ? a->model.name : NULL;
	if (a->has_model && fact(a, FO_LOG_AHEAD) >= 1 && fact(a, FO_LOG_AHEAD) <= 1000)
		a->model.mtp_modules = (int64_t)fact(a, FO_LOG_AHEAD);
	return a->has_model && given->mtp ? fo_model_count_mtp(&a->model) : FO_OK;
}

/* ---- devices and lengths ---- */

static fo_status find_device(struct fo_log_account *a, const struct fo_log_given *given)
{
	const char *text = a->log->told[FO_LOG_DEVICE].text;
	FO_TRY(fo_precision_parse(given->dtype ? given->dtype : "bf16", &a->precision));
	FO_TRY(fo_shares_parse(given->share, &a->shares));
	if (given->dtype && a->shares.given)
		return fo_fail(FO_EARG, "'--share' and '--dtype' both say in which types the run computes: give one");
	a->type = a->shares.given ? "weighted" : fo_precision_name[a->precision];
	if (given->device) {
		FO_TRY(fo_catalogue_find(&a->catalogue, given->device, &a->device));
		a->device_from = "the option";
	} else if (text) {
		a->device = fo_device_match(&a->catalogue, text, 0, 0);
		if (!a->device && fo_catalogue_find(&a->catalogue, text, &a->device) != FO_OK)
			fo_err_clear();
		a->device_from = a->device ? place(a, FO_LOG_DEVICE) : NULL;
	}
	if (!a->device)
		return FO_OK;
	if (!given->dtype && isnan(a->device->dense[FO_PREC_BF16]))
		a->precision = FO_PREC_FP16;
	if (a->shares.given)
		return fo_device_weighted_peak(a->device, &a->shares, &a->peak);
	a->type = fo_precision_name[a->precision];
	fo_status st = fo_device_peak(a->device, a->precision, &a->peak);
	if (st == FO_OK || given->device || given->dtype)
		return st;
	fo_err_clear(); /* the log names the device, the caller asked for no peak: all but MFU can still be had */
	return FO_OK;
}

/* Devices that the printed figures imply: tokens of a step over its time and the rate of one device. Printed figures
 * are rounded, so beyond 64 one number of devices is not told from the next. */
static double implied_devices(const struct fo_log *log)
{
	double tokens = fo_log_median(log, FO_LOG_TOKENS), rate = fo_log_median(log, FO_LOG_RATE);
	double n = tokens / (rate * fo_log_median(log, FO_LOG_SECONDS));
	return n <= 64.05 && n >= 0.95 && fabs(n - round(n)) < 0.05 ? round(n) : NAN;
}

static void find_devices(struct fo_log_account *a, const struct fo_log_given *given)
{
	const struct fo_log *log = a->log;
	a->devices = fo_log_devices(log, log->steps ? log->steps - 1 : 0);
	for (size_t i = 0; i < log->steps && log->sizes > 1 && !a->sizes && !(given->devices > 0); i++)
		a->sizes = fo_log_devices(log, i) != a->devices && !isnan(a->devices);
	a->devices = given->devices > 0 ? given->devices : a->devices;
	a->devices_from = given->devices > 0 ? "the option" : "the log";
	if (isnan(a->devices) && a->log->steps) {
		a->devices = implied_devices(a->log);
		a->devices_from = "tokens per step, step time and rate per device in the log";
	}
	a->seq = given->seq > 0 ? given->seq : fact(a, FO_LOG_SEQ);
	if (!(given->seq > 0) && !fits(a->seq))
		a->seq = NAN;
	a->seq_from = given->seq > 0                           ? "the option"
		      : !isnan(a->seq) && knows(a, FO_LOG_SEQ) ? place(a, FO_LOG_SEQ)
							       : NULL;
}

/* ---- speed ---- */

static double given_tokens(const struct fo_log_given *g, double seq)
{
	if (g->tokens_per_step > 0)
		return g->tokens_per_step;
	return g->batch > 0 ? g->batch * seq : NAN;
}

double fo_log_tokens_at(const struct fo_log_account *a, size_t line)
{
	if (!isnan(a->fixed_tokens))
		return a->fixed_tokens;
	double tokens = fo_log_tokens(a->log, line), samples = fo_log_at(a->log, line, FO_LOG_SAMPLES);
	return known(tokens, known(samples, fact(a, FO_LOG_BATCH)) * a->seq);
}

static double devices_at(const struct fo_log_account *a, size_t line)
{
	return a->sizes ? fo_log_devices(a->log, line) : a->devices;
}

double fo_log_rate_at(const struct fo_log_account *a, size_t line)
{
	double devices = devices_at(a, line);
	double by_time = fo_log_tokens_at(a, line) / (a->log->seconds[line] * devices);
	double printed = known(fo_log_at(a->log, line, FO_LOG_RATE),
			       fo_log_at(a->log, line, FO_LOG_RATE_ALL) / devices);
	return a->log->stamped ? known(printed, by_time) : known(by_time, printed);
}

double fo_log_mfu_at(const struct fo_log_account *a, size_t line, enum fo_log_mfu rule)
{
	return fo_log_rate_at(a, line) * a->flop[rule] / (a->peak * 1e12);
}

static void find_flop(struct fo_log_account *a, const struct fo_log_given *given)
{
	if (!a->has_model) {
		a->flop[FO_LOG_MFU_6N] = given->params > 0 ? 6 * given->params : NAN;
		return;
	}
	double n = fo_model_params(&a->model).matmul;
	a->flop[FO_LOG_MFU_6N] = 6 * n;
	if (!(a->seq >= 1 && a->seq <= 1e9))
		return;
	struct fo_flop f = fo_model_flop_per_token(&a->model, (int64_t)a->seq);
	a->flop[FO_LOG_MFU_FULL] = f.mfu;
	a->flop[FO_LOG_MFU_CAUSAL] = f.mfu_causal;
	a->flop_layers = f.layers;
	if (knows(a, FO_LOG_LORA))
		a->flop[FO_LOG_MFU_LORA] = f.mfu - 2 * n;
}

static void find_speed(struct fo_log_account *a)
{
	size_t *line = fo_xmalloc((a->log->steps + 1) * sizeof *line), n = fo_log_counted(a->log, line), k = 0;
	double *rate = fo_xmalloc((n + 1) * sizeof *rate), *tokens = fo_xmalloc((n + 1) * sizeof *tokens);
	size_t t = 0;
	for (size_t i = 0; i < n; i++) {
		double v = fo_log_rate_at(a, line[i]), w = fo_log_tokens_at(a, line[i]);
		if (isfinite(v) && v > 0)
			rate[k++] = v;
		if (isfinite(w) && w > 0)
			tokens[t++] = w;
	}
	struct fo_log_spread s = fo_log_spread_of(rate, k);
	a->rate = s.median;
	a->tokens = fo_log_spread_of(tokens, t).median;
	for (int r = 0; r < FO_LOG_MFU_RULES; r++) {
		double per = a->flop[r] / (a->peak * 1e12);
		a->mfu[r] = (struct fo_log_spread){ s.low * per, s.median * per, s.high * per };
	}
	free(tokens);
	free(rate);
	free(line);
}

static void choose_first(struct fo_log_account *a)
{
	static const enum fo_log_mfu order[] = { FO_LOG_MFU_LORA, FO_LOG_MFU_FULL, FO_LOG_MFU_CAUSAL, FO_LOG_MFU_6N };
	a->first = -1;
	for (size_t i = sizeof order / sizeof *order; i-- > 0;)
		if (!isnan(a->mfu[order[i]].median))
			a->first = (int)order[i];
	if (a->first == FO_LOG_MFU_FULL && a->mfu[FO_LOG_MFU_FULL].median > 1 && a->mfu[FO_LOG_MFU_CAUSAL].median <= 1)
		a->first = FO_LOG_MFU_CAUSAL;
}

/* Of a log that says fp8 the fp8 peak is one that fits, whatever the figures are over. */
static void find_denominators(struct fo_log_account *a, const struct fo_log_given *given)
{
	bool fp8 = fact(a, FO_LOG_FP8) == 1 && !given->dtype;
	a->tflops = a->first < 0 ? a->printed_tflops : a->mfu[a->first].median * a->peak;
	if (!a->device || isnan(a->tflops))
		return;
	a->denominators = fo_device_denominators(a->device, fp8 ? FO_PREC_FP8 : a->precision, &a->shares,
						 a->denominator);
}

/* ---- the printed figure ---- */

struct count {
	enum fo_log_rule rule; /* NONE: no framework's */
	double flop;
	const char *text;
};

/* The ways in which frameworks count, for this model; how many. */
static int counts(const struct fo_log_account *a, struct count c[8])
{
	struct fo_params p = fo_model_params(&a->model);
	double attention = a->flop[FO_LOG_MFU_FULL] - 6 * p.matmul;
	double embedded = p.matmul + p.embedding;
	int n = 0;
	c[n++] = (struct count){ FO_LOG_RULE_FULL, a->flop[FO_LOG_MFU_FULL], "6 N + 12 L H Q S (rule mfu)" };
	c[n++] = (struct count){ FO_LOG_RULE_CAUSAL, a->flop[FO_LOG_MFU_CAUSAL], "6 N + 6 L H Q S (rule mfu_causal)" };
	c[n++] = (struct count){ FO_LOG_RULE_NONE, 6 * p.matmul, "6 N without attention (rule mfu_6n)" };
	c[n++] = (struct count){ FO_LOG_RULE_NONE, 6 * p.total, "6 times all parameters, without attention" };
	c[n++] = (struct count){ FO_LOG_RULE_LLMC, 6 * p.total + attention / 2,
				 "6 times all parameters, and causal attention" };
	c[n++] = (struct count){ FO_LOG_RULE_EMBED, 6 * embedded + attention,
				 "the input embedding counted too, and full attention" };
	c[n++] = (struct count){ FO_LOG_RULE_HFU, a->flop[FO_LOG_MFU_FULL] * 4 / 3,
				 "recomputation counted too (HFU), full attention" };
	c[n++] = (struct count){ FO_LOG_RULE_HFU, a->flop[FO_LOG_MFU_CAUSAL] * 4 / 3,
				 "recomputation counted too (HFU), causal attention" };
	return n;
}

/* The count that gives `flop` per token, within what rounding of printed figures explains; NULL: none.
 * own: only counts of the kind's own rule. */
static const char *count_of(const struct fo_log_account *a, double flop, bool own)
{
	enum { MOST = 8 };
	static const double within = 0.006; /* a figure of three digits is rounded by up to 0.5 % */
	struct count c[MOST];
	const char *best = NULL;
	double least = within;
	for (int i = 0, n = a->has_model ? counts(a, c) : 0; i < n; i++)
		if ((!own || (c[i].rule && c[i].rule == a->log->kind.rule)) && fabs(flop / c[i].flop - 1) < least) {
			least = fabs(flop / c[i].flop - 1);
			best = c[i].text;
		}
	return best;
}

/* Peaks that a log may divide by. */
static int peaks(const struct fo_log_account *a, double p[8], const char *text[8])
{
	const struct fo_device *d = a->device;
	int n = 0;
	if (fact(a, FO_LOG_PEAK) > 0) {
		p[n] = fact(a, FO_LOG_PEAK);
		text[n++] = "the peak that the log names";
	}
	if (!isnan(a->peak)) {
		p[n] = a->peak;
		text[n++] = "the same peak";
	}
	if (d && d->sparse[FO_PREC_BF16] > 0) {
		p[n] = d->sparse[FO_PREC_BF16];
		text[n++] = "the peak with structured sparsity";
	}
	if (d && d->dense[FO_PREC_FP8] > 0) {
		p[n] = d->dense[FO_PREC_FP8];
		text[n++] = "the fp8 peak";
	}
	p[n] = 312;
	text[n++] = "an A100's peak";
	return n;
}

/* What the kind is known to count is stated; another count that gives the same is only one that fits. */
static const char *stated(bool own) { return own ? "the log counts" : "fits:"; }

static void match_mfu(struct fo_log_account *a, bool own)
{
	double p[8];
	const char *text[8];
	int n = peaks(a, p, text);
	for (int i = 0; i < n && !a->convention; i++) {
		if (!isnan(a->printed_peak) && fabs(a->printed_peak / p[i] - 1) > 0.02)
			continue;
		double flop = isnan(a->printed_flop) ? a->printed_mfu * p[i] * 1e12 / a->rate : a->printed_flop;
		const char *count = count_of(a, flop, own);
		if (count)
			a->convention = fo_arena_printf(&a->arena, "%s %s, over %s, %g TFLOP/s", stated(own), count,
							text[i], p[i]);
	}
}

static void explain_mfu(struct fo_log_account *a)
{
	double ours = a->first >= 0 ? a->mfu[a->first].median : NAN;
	match_mfu(a, true);
	match_mfu(a, false);
	if (!a->convention && !isnan(a->printed_peak))
		a->convention = fo_arena_printf(&a->arena,
						"the log counts %.4g GFLOP per token and divides by %.4g TFLOP/s%s",
						a->printed_flop / 1e9, a->printed_peak,
						isnan(ours) ? "" : ", which no convention known here gives");
	if (!a->convention && !isnan(ours))
		a->convention = "no convention known here gives the figure that the log prints";
}

static void explain(struct fo_log_account *a)
{
	const struct fo_log *log = a->log;
	a->printed_mfu = fo_log_median(log, FO_LOG_MFU);
	a->printed_tflops = fo_log_median(log, FO_LOG_TFLOPS);
	for (size_t i = 1; i < log->kinds && isnan(a->printed_tflops); i++)
		if (log->lines[i].count)
			a->printed_tflops = fo_log_get(&log->lines[i], log->lines[i].count / 2, FO_LOG_TFLOPS);
	if (a->printed_mfu <= 0)
		a->printed_mfu = NAN; /* "-100 %": the program does not know the device */
	double rate = known(fo_log_median(log, FO_LOG_RATE), a->rate);
	/* Where FLOP/s are those of the hardware, an MFU beside them is of others: they give no peak. */
	bool apart = log->kind.rule == FO_LOG_RULE_HFU && !isnan(a->printed_mfu);
	a->printed_flop = apart ? NAN : a->printed_tflops * 1e12 / rate;
	a->printed_peak = known(fact(a, FO_LOG_PEAK), apart ? NAN : a->printed_tflops / a->printed_mfu);
	if (isnan(a->printed_flop))
		a->printed_flop = a->printed_mfu * a->printed_peak * 1e12 / rate;
	if (!isnan(a->printed_mfu)) {
		explain_mfu(a);
	} else if (!isnan(a->printed_flop)) {
		const char *known = count_of(a, a->printed_flop, true);
		const char *count = known ? known : count_of(a, a->printed_flop, false);
		a->convention = count          ? fo_arena_printf(&a->arena, "%s %s", stated(known), count)
				: a->has_model ? "no convention known here gives the TFLOP/s that the log prints"
					       : NULL;
	}
}

/* ---- time and money ---- */

static void find_time(struct fo_log_account *a, const struct fo_log_given *given)
{
	const struct fo_log *log = a->log;
	double training = 0, tokens = 0;
	for (size_t i = 0; i < log->steps; i++) {
		double steps = fo_log_steps_at(log, i);
		training += known(fo_log_time_at(log, i), 0);
		tokens += steps * fo_log_tokens_at(a, i);
	}
	double last = log->numbered ? fo_log_at(log, log->steps - 1, FO_LOG_STEP) : NAN;
	a->training = isnan(log->time.median) ? NAN : training;
	double first = fo_log_steps_at(log, 0) * known(log->seconds[0], log->time.median);
	if (log->one_step)
		first = fo_log_time_at(log, 0);
	a->wall = log->part[log->parts - 1].end - log->part[0].begin + first;
	a->lost = 0;
	for (size_t p = 1; p < log->parts; p++)
		a->lost += log->part[p].lost;
	a->other = a->wall - a->training - a->lost;
	if (a->other < -(2 + 0.01 * a->wall)) {
		a->other = NAN;
		note(a, "the time stamps span less than the steps take: time between steps is not known");
	} else if (a->other < 1e-6) {
		a->other = 0; /* stamps are rounded, and so are differences */
	}
	a->seen_tokens = known(
		known(fo_log_last(log, FO_LOG_SEEN_TOKENS), fo_log_last(log, FO_LOG_SEEN_SAMPLES) * a->seq), tokens);
	double begun = fo_log_at(log, 0, FO_LOG_STEP) - fo_log_steps_at(log, 0);
	a->seen_here = isnan(fo_log_last(log, FO_LOG_SEEN_TOKENS)) &&
		       isnan(fo_log_last(log, FO_LOG_SEEN_SAMPLES) * a->seq) && begun > 1;
	double planned = known(fo_log_last(log, FO_LOG_STEPS), fact(a, FO_LOG_PLANNED));
	a->left_steps = given->planned > 0 ? known(given->planned / a->tokens - last,
						   (given->planned - a->seen_tokens) / a->tokens)
					   : planned - last;
	if (a->left_steps < 0)
		a->left_steps = 0;
	double pace = a->wall > a->training && a->training > 0 ? a->wall / a->training : 1;
	a->left_seconds = a->left_steps * log->time.median * pace;
}

/* Over the time in steps. */
static double mean_devices(const struct fo_log_account *a)
{
	double sum = 0, seconds = 0;
	for (size_t i = 0; i < a->log->steps && a->sizes; i++) {
		double s = known(fo_log_time_at(a->log, i), 0);
		sum += s * devices_at(a, i);
		seconds += s;
	}
	return seconds > 0 ? sum / seconds : a->devices;
}

static void find_cost(struct fo_log_account *a, const struct fo_log_given *given)
{
	a->hour_low = a->hour_high = given->rent > 0 ? given->rent : NAN;
	a->rent_from = "the option";
	if (!(given->rent > 0) && a->device) {
		a->hour_low = a->device->rent_low;
		a->hour_high = a->device->rent_high;
		a->rent_from = a->device->rent_note;
	}
	double hours = known(a->wall, a->training) * mean_devices(a) / 3600;
	a->cost_low = hours * a->hour_low;
	a->cost_high = hours * a->hour_high;
}

/* ---- what to ask for, what to doubt ---- */

static void ask(struct fo_log_account *a)
{
	if (!a->log->timed_by && isnan(a->rate))
		return; /* no option helps where the log has no times */
	if (!a->device)
		missing(a, "--device D: the accelerator ('flatout devices' lists them)");
	else if (isnan(a->peak))
		missing(a,
			"--devices-file PATH: a row with a peak of this device, which publishes none in bf16 or fp16");
	if (!a->has_model && isnan(a->flop[FO_LOG_MFU_6N]))
		missing(a, "--model M: what is trained (or --params N)");
	if (isnan(a->rate)) {
		if (isnan(a->devices))
			missing(a, "--devices N: the number of devices");
		if (isnan(a->tokens))
			missing(a, "--tokens-per-step K: the tokens of one optimizer step, all devices");
	}
	if (a->has_model && isnan(a->seq))
		missing(a, "--seq S: the sequence length");
}

static const char *percent(struct fo_log_account *a, double share)
{
	return fo_arena_printf(&a->arena, "%.1f %%", 100 * share);
}

static void doubt_facts(struct fo_log_account *a)
{
	static const struct {
		enum fo_log_fact fact;
		const char *what;
	} of[] = { { FO_LOG_DEVICES, "devices" }, { FO_LOG_BATCH, "sequences per step" } };
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!isnan(a->log->told[of[i].fact].later) && !(a->sizes && of[i].fact == FO_LOG_DEVICES))
			note(a, fo_arena_printf(&a->arena, "the log names %g and %g %s: figures use %g",
						fact(a, of[i].fact), a->log->told[of[i].fact].later, of[i].what,
						of[i].fact == FO_LOG_DEVICES ? a->devices : fact(a, of[i].fact)));
	if (a->sizes)
		note(a, fo_arena_printf(&a->arena,
					"the number of devices changes, %g at the end: each step counts with its own",
					a->devices));
	const char *why = why_not_dense(a, false), *rest = why_not_dense(a, true);
	if (why && !a->has_model)
		note(a, fo_arena_printf(&a->arena, "the log's model is not dense (%s): give --model%s", why,
					rest ? "" : ", or --mtp, which counts them"));
	char mtp[48];
	if (a->has_model && a->model.mtp_modules > a->model.mtp_counted)
		note(a, fo_arena_printf(&a->arena, "%s not counted: --mtp counts all that the model has",
					fo_model_mtp_text(mtp, a->model.mtp_modules)));
}

/* How the peaks of a log that says fp8 can be weighted. */
static const char *which_share(struct fo_log_account *a)
{
	double layers = a->flop_layers / a->flop[a->first];
	if (isnan(layers))
		return "--share fp8=S weights the peaks by the share of FLOP in fp8";
	return fo_arena_printf(
		&a->arena,
		"if the matmuls of the layers are in fp8, attention and the head in bf16, --share fp8=%.3f "
		"weights the peaks",
		layers);
}

static void doubt(struct fo_log_account *a)
{
	doubt_facts(a);
	double share = a->first >= 0 ? a->mfu[a->first].median : NAN,
	       fp8 = a->device ? a->device->dense[FO_PREC_FP8] : NAN;
	if (fact(a, FO_LOG_FP8) == 1 && !isnan(fp8) && a->first >= 0 && !a->shares.given)
		note(a, fo_arena_printf(&a->arena, "the log says fp8: of the fp8 peak of %g TFLOP/s it is %s; %s", fp8,
					percent(a, share * a->peak / fp8), which_share(a)));
	else if (share > 0.75)
		note(a, fo_arena_printf(
				&a->arena,
				"%s of the %s peak is more than training in %s reaches: a narrower type (fp8, int8), "
				"other devices than the log says, or another model",
				percent(a, share), a->type, a->shares.given ? "these types" : a->type));
	if (share > 1)
		note(a, "more than the peak: this is no MFU");
	if (knows(a, FO_LOG_LORA) && !isnan(a->mfu[FO_LOG_MFU_FULL].median))
		note(a,
		     fo_arena_printf(&a->arena,
				     "LoRA leaves out the gradients of frozen weights: rule mfu's %s counts work that "
				     "is not done",
				     percent(a, a->mfu[FO_LOG_MFU_FULL].median)));
	if (!strcmp(a->log->kind.id, "axolotl") || !strcmp(a->log->kind.id, "torchtune"))
		note(a, "the printed rate counts tokens that carry loss only: what the devices do is more");
	if (!strcmp(a->log->kind.id, "mlperf"))
		note(a, "times are means of blocks of steps; where no evaluation is marked, a block holds it");
	if (!strcmp(a->log->kind.id, "verl"))
		note(a, "a step of reinforcement learning generates text, too: the figures count it as training");
	if (a->log->one_step && !isnan(a->training))
		note(a, fo_arena_printf(
				&a->arena,
				"the log times one step of each %g: time in steps is an estimate, the others taken "
				"to last the median",
				a->log->interval));
	double skipped = fo_log_last(a->log, FO_LOG_SKIPPED);
	if (skipped > 0)
		note(a, "skipped iterations cost full time and count as steps");
}

fo_status fo_log_account(const struct fo_log *log, const struct fo_log_given *given, struct fo_log_account *a)
{
	*a = (struct fo_log_account){ .log = log, .first = -1, .devices = NAN, .seq = NAN, .peak = NAN };
	for (int r = 0; r < FO_LOG_MFU_RULES; r++) {
		a->flop[r] = NAN;
		a->mfu[r] = (struct fo_log_spread){ NAN, NAN, NAN };
	}
	a->printed_mfu = a->printed_tflops = a->printed_flop = a->printed_peak = NAN;
	a->wall = a->training = a->lost = a->other = a->seen_tokens = a->left_seconds = a->left_steps = NAN;
	a->tflops = a->flop_layers = NAN;
	a->cost_low = a->cost_high = a->hour_low = a->hour_high = a->rate = a->tokens = a->fixed_tokens = NAN;
	FO_TRY(fo_catalogue_load(&a->catalogue, given->devices_file));
	FO_TRY(find_model(a, given));
	FO_TRY(find_device(a, given));
	find_devices(a, given);
	a->fixed_tokens = given_tokens(given, a->seq);
	find_flop(a, given);
	if (!log->steps)
		return FO_OK;
	find_speed(a);
	choose_first(a);
	explain(a);
	find_denominators(a, given);
	find_time(a, given);
	find_cost(a, given);
	ask(a);
	doubt(a);
	return FO_OK;
}

void fo_log_account_fini(struct fo_log_account *a)
{
	fo_catalogue_fini(&a->catalogue);
	fo_arena_fini(&a->arena);
}
