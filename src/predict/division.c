#include "predict/division.h"

#include <math.h>

static const char *const format_short[FO_PREDICT_FORMATS] = {
	[FO_PREDICT_FORMAT_FP32] = " m32", [FO_PREDICT_FORMAT_SPLIT] = " split",  [FO_PREDICT_FORMAT_BF16] = " m16",
	[FO_PREDICT_FORMAT_8BIT] = " m8",  [FO_PREDICT_FORMAT_ALL_BF16] = " w16",
};

const char fo_division_legend[] =
	"tp 4-: without sequence parallelism, 4a: async; cp 4h: by heads; pp 8x5: five chunks of a stage, 8n: all "
	"stages in a node; no schedule named: 1F1B, with chunks interleaved; Z1: ZeRO 1, Z3/8 over 8 ranks, Z3k: "
	"gathered weights stay until backward, Z3K: for a step";

enum fo_pp_kind fo_predict_pp_kind(const struct fo_predict_layout *l)
{
	static const enum fo_pp_kind kind[FO_PREDICT_SCHEDULES] = { [FO_PREDICT_1F1B] = FO_PP_1F1B,
								    [FO_PREDICT_INTERLEAVED] = FO_PP_INTERLEAVED,
								    [FO_PREDICT_ZERO_BUBBLE] = FO_PP_ZB_H1,
								    [FO_PREDICT_GPIPE] = FO_PP_GPIPE,
								    [FO_PREDICT_ZB_H2] = FO_PP_ZB_H2 };
	if (l->pp <= 1 || (l->schedule == FO_PREDICT_INTERLEAVED && l->chunks <= 1))
		return FO_PP_1F1B;
	return l->schedule == FO_PREDICT_1F1B && l->chunks > 1 ? FO_PP_INTERLEAVED : kind[l->schedule];
}

void fo_division_of(const struct fo_predict_layout *l, double dp, struct fo_division *o)
{
	const double ranks = dp * fmax(1, l->cp);
	*o = (struct fo_division){ .dp = dp,
				   .tp = l->tp,
				   .cp = l->cp,
				   .pp = l->pp,
				   .ep = l->ep,
				   .chunks = l->chunks,
				   .zero = l->zero,
				   .shard = l->shard < ranks ? l->shard : 0,
				   .no_sp = !l->sp,
				   .tp_async = l->tp_overlap > 0,
				   .stages_near = l->stages_near,
				   .schedule = fo_predict_pp_kind(l),
				   .uneven = l->uneven,
				   .keeps = l->keeps_weights,
				   .format = l->format };
}

static void axis(struct fo_str *out, const char *name, double n)
{
	if (n > 1)
		fo_str_printf(out, " %s %.15g", name, n);
}

static void say_pipeline(const struct fo_division *x, bool narrow, struct fo_str *out)
{
	const bool plain = x->schedule == FO_PP_1F1B || x->schedule == FO_PP_INTERLEAVED;
	if (!(x->pp > 1))
		return;
	axis(out, "pp", x->pp);
	if (x->chunks > 1)
		fo_str_printf(out, narrow ? "x%.15g" : " x %.15g chunks", x->chunks);
	if (!narrow && fo_predict_is_uneven(&x->uneven))
		fo_str_printf(out, " of %.15g, %.15g and %.15g layers", x->uneven.first, x->uneven.middle,
			      x->uneven.last);
	if (x->stages_near)
		fo_str_puts(out, narrow ? "n" : " in a node");
	if (!plain)
		fo_str_printf(out, " %s", fo_pp_name[x->schedule]);
}

static void say_states(const struct fo_division *x, bool narrow, struct fo_str *out)
{
	static const char *const keeps[2][3] = { { "", " keeping weights", " keeping weights for a step" },
						 { "", "k", "K" } };
	if (!(x->dp * fmax(1, x->cp) > 1 && x->zero >= 0))
		return;
	fo_str_printf(out, narrow ? " Z%.0f" : " ZeRO %.0f", x->zero);
	if (x->zero > 0 && x->shard > 0)
		fo_str_printf(out, narrow ? "/%.15g" : " over %.15g", x->shard);
	fo_str_puts(out, keeps[narrow][x->keeps]);
}

void fo_division_text(const struct fo_division *x, bool narrow, struct fo_str *out)
{
	fo_str_printf(out, "dp %.15g", x->dp);
	axis(out, "tp", x->tp);
	if (x->tp > 1 && x->no_sp)
		fo_str_puts(out, narrow ? "-" : " (no sp)");
	if (x->tp > 1 && x->tp_async)
		fo_str_puts(out, narrow ? "a" : " async");
	axis(out, "cp", x->cp);
	if (x->cp > 1 && x->cp_by_heads)
		fo_str_puts(out, narrow ? "h" : " by heads");
	say_pipeline(x, narrow, out);
	axis(out, "ep", x->ep);
	say_states(x, narrow, out);
	if (x->type)
		fo_str_printf(out, " %s", x->type);
	if (x->format != FO_PREDICT_FORMAT_JOB && narrow)
		fo_str_puts(out, format_short[x->format]);
	else if (x->format != FO_PREDICT_FORMAT_JOB)
		fo_str_printf(out, ", %s", fo_predict_format_row[x->format].says);
}
