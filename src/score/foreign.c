/* The tables that vTrain and SimuMax publish. */
#include "score/score_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double field(const struct fo_csv *csv, const struct fo_csv_row *at, const char *name)
{
	for (int i = 0; i < csv->columns; i++)
		if (!strcmp(csv->head.field[i], name))
			return *at->field[i] ? strtod(at->field[i], NULL) : NAN;
	return NAN;
}

static void device(const struct fo_catalogue *c, struct fo_score_table *t, struct fo_score_row *x)
{
	const struct fo_device *d;
	if (fo_catalogue_find(c, x->gpu, &d) == FO_OK && fo_predict_machine_of(d, &x->job.machine) == FO_OK)
		return;
	x->refused = fo_arena_strdup(&t->arena, fo_err_text());
	fo_err_clear();
}

/* GPT of one node of A100s: gelu, learned positions, tied head, everything recomputed, no sequence parallelism; the
 * vocabulary is not stated. */
static void vtrain(struct fo_score_table *t, const struct fo_csv *csv, const struct fo_csv_row *at,
		   const struct fo_catalogue *c, struct fo_score_row *x)
{
	double h = field(csv, at, "hidden size"), layers = field(csv, at, "# layers"),
	       s = field(csv, at, "sequence length");
	x->group = "vtrain", x->framework = "Megatron-LM", x->precision = "fp16", x->gpu = "A100-80GB";
	x->model = fo_arena_printf(&t->arena, "gpt h%g x %g", h, layers);
	x->family = fo_score_family(&t->arena, x->model);
	x->inferred = "vocabulary 51200, recompute: full, A100-80GB";
	x->job = (struct fo_predict_job){
		.style = FO_PREDICT_STYLE_MEG22, .type = FO_PREDICT_BF16, .seq = s, .year = 2024
	};
	double a = field(csv, at, "attention heads");
	x->job.model = (struct fo_predict_model){ .layers = layers,
						  .hidden = h,
						  .heads = a,
						  .kv_heads = a,
						  .head_dim = h / a,
						  .ffn = 4 * h,
						  .vocab = 51200,
						  .matrices = 2,
						  .tied = true };
	device(c, t, x);
	x->layout = (struct fo_predict_layout){ .devices = field(csv, at, "GPUs"),
						.tp = field(csv, at, "tensor parallelism"),
						.pp = field(csv, at, "pipeline parallelism"),
						.micro_batch = field(csv, at, "micro batch"),
						.global_batch = field(csv, at, "global batch"),
						.recompute = 1 };
	x->recompute_stated = true;
	x->bytes = NAN;
	x->tokens_s = x->layout.global_batch * s / (field(csv, at, "iteration time (ms)") * 1e-3) / x->layout.devices;
}

/* "llama3_70b_l12_tp1_pp2_dp4_mbc4_cef": layers, divisions, micro-batches of one sequence. */
static double after(const char *text, const char *key, double otherwise)
{
	const char *at = strstr(text, key);
	return at ? strtod(at + strlen(key), NULL) : otherwise;
}

static void simumax(struct fo_score_table *t, const struct fo_csv *csv, const struct fo_csv_row *at,
		    const struct fo_catalogue *c, struct fo_score_row *x)
{
	const char *name = at->field[0];
	double layers = after(name, "_l", NAN), tp = after(name, "_tp", 1), pp = after(name, "_pp", 1),
	       cp = after(name, "_cp", 1), dp = after(name, "_dp", 1);
	x->group = "simumax", x->framework = "Megatron-LM + TE", x->precision = "bf16", x->gpu = "B200";
	x->inferred = "8 x B200";
	x->job = (struct fo_predict_job){
		.style = FO_PREDICT_STYLE_MLM, .type = FO_PREDICT_BF16, .seq = after(name, "_seq", 4096), .year = 2026.4
	};
	static const char *const known[][2] = { { "llama3_405b", "llama3-405b" },
						{ "llama3_70b", "llama3-70b" },
						{ "deepseekv3", "deepseekv3" },
						{ "deepseekv2", "deepseekv2" } };
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (strstr(name, known[i][0]))
			x->model = known[i][1];
	if (!fo_score_shape(x->model, &x->job.model, layers)) {
		x->out = "a model that is not known";
		return;
	}
	if (strstr(name, "llama3_405b")) /* SimuMax's configuration of it; Meta's has 8 */
		x->job.model.kv_heads = 16;
	x->family = fo_score_family(&t->arena, x->model);
	x->moe = x->job.model.experts > 0;
	device(c, t, x);
	double count = after(name, "_mbc", 1), devices = tp * pp * cp * dp;
	x->layout = (struct fo_predict_layout){ .devices = devices,
						.tp = tp,
						.pp = pp,
						.cp = cp,
						.ep = after(name, "_ep", 1),
						.zero = 1,
						.sp = true,
						.micro_batch = 1,
						.global_batch = count * dp };
	x->recompute_stated = true;
	x->bytes = field(csv, at, "real_alloc_gib") * 1073741824.;
	x->tokens_s = x->layout.global_batch * x->job.seq / (field(csv, at, "real_ms") * 1e-3) / devices;
}

void fo_score_foreign(struct fo_score_table *t, const struct fo_csv *csv, const struct fo_csv_row *at,
		      const struct fo_catalogue *c, struct fo_score_row *x)
{
	x->inferred = x->model = x->family = x->gpu = x->group = x->framework = x->precision = "";
	if (!strcmp(t->layout, "vtrain"))
		vtrain(t, csv, at, c, x);
	else
		simumax(t, csv, at, c, x);
	if (!x->out && (!(x->tokens_s > 0) || !isfinite(x->tokens_s)))
		x->out = "no step time";
	x->scope = !x->out;
}
