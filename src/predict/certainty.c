/* How sure a prediction is, and why: each constant's spread through the step's derivative by it. */
#include "predict/predict_int.h"

#include <string.h>

/* Of log seconds. Between publishers of one stack runs differ by this much where nothing else does (flatout score,
 * publishers' factors), and two runs of one configuration by 2 %. */
#define BETWEEN_PUBLISHERS 0.11
#define BETWEEN_RUNS 0.03
/* No published run stands behind a stack: what leaving each publisher out with neutral habits gives beyond the rest. */
#define NEUTRAL 0.10
#define EXPERTS 0.25
/* No run on such a device is fitted: Instinct, H20. Three of MLPerf 5.1 on MI350X and MI355X came out within 8 %. */
#define NO_RUNS 0.12
/* V100, older than the devices of all fitted runs: an A100's constants give 58 to 64 % MFU, and Megatron-LM's paper has
 * 38 % (2B) and 31 % (8B) on it. */
#define OLDER 0.7
struct effect {
	int constant;
	double moves; /* of log seconds, one standard deviation */
};

/* part: the variance of each part's seconds. */
static void effects(const struct fo_predict_base *b, const struct fo_predict_work *w, double seconds, struct effect *e,
		    double *sum, double *part)
{
	double x[FO_PREDICT_CONSTANTS];
	struct fo_predict_step s, t;
	memcpy(x, b->x, sizeof x);
	*sum = 0;
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++) {
		const struct fo_predict_constant_row *r = &fo_predict_constant_row[i];
		e[i] = (struct effect){ i, 0 };
		if (!fo_predict_reads(w, i))
			continue;
		double spread = fo_predict_spread_of(r), keep = x[i];
		x[i] = fmin(fmax(keep * exp(spread), r->low), r->high);
		fo_predict_time(w, x, &s);
		x[i] = fmin(fmax(keep * exp(-spread), r->low), r->high);
		fo_predict_time(w, x, &t);
		x[i] = keep;
		e[i].moves = (fabs(log(s.seconds / seconds)) + fabs(log(t.seconds / seconds))) / 2;
		for (int k = 0; k < FO_PREDICT_PARTS; k++)
			part[k] += (s.part[k] - t.part[k]) * (s.part[k] - t.part[k]) / 4;
		*sum += e[i].moves * e[i].moves;
	}
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++) /* the largest first; a handful are looked at */
		for (int k = i + 1; k < FO_PREDICT_CONSTANTS; k++)
			if (e[k].moves > e[i].moves) {
				struct effect t = e[i];
				e[i] = e[k], e[k] = t;
			}
}

/* common: of log seconds, what moves all parts alike. */
static void ranges(const struct fo_predict_step *s, const double *variance, double common,
		   struct fo_predict_certainty *out)
{
	for (int i = 0; i < FO_PREDICT_PARTS; i++) {
		double mid = s->part[i], own = mid > 0 ? sqrt(variance[i]) / mid : 0,
		       f = exp(FO_PREDICT_Z80 * sqrt(own * own + common));
		out->part[i] = (struct fo_range){ mid / f, mid * f };
	}
	out->bytes = s->bytes_range;
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		out->memory[i] = s->memory_range[i];
}

static void rest(struct fo_predict_certainty *out, enum fo_predict_ground ground, const char *what, double value,
		 const char *origin)
{
	if (out->rests >= FO_PREDICT_RESTS)
		return;
	out->rest[out->rests].ground = ground;
	out->rest[out->rests].what = what;
	out->rest[out->rests].value = value;
	out->rest[out->rests++].origin = origin;
}

/* Above the best published MFU: a prediction of that very run is off by this much in the mean (docs/accuracy.md). */
#define ROOM 1.05
/* No run on Instinct is known here, nor one in fp4 that is over the same peak: guesses. */
#define MOST_UNKNOWN 0.45
#define MOST_FP4 0.36

static double most_credible(const struct fo_predict_machine *d, enum fo_predict_type type)
{
	/* Devices whose run stands for their class where a device has none of its own. */
	static const char *const class_of[FO_PREDICT_FAMILIES] = { [FO_PREDICT_AMPERE] = "A100",
								   [FO_PREDICT_HOPPER] = "H100",
								   [FO_PREDICT_BLACKWELL] = "GB300",
								   [FO_PREDICT_RTX] = "RTX-5090" };
	const char *names[] = { d->name, class_of[d->family] };
	const enum fo_predict_type types[] = { type, FO_PREDICT_BF16 };
	if (type == FO_PREDICT_FP4 && d->family == FO_PREDICT_BLACKWELL)
		return MOST_FP4;
	for (size_t t = 0; t < sizeof types / sizeof *types; t++)
		for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
			const struct fo_predict_best *b = names[i] ? fo_predict_best_of(names[i], types[t]) : NULL;
			if (b)
				return ROOM * b->causal;
		}
	return MOST_UNKNOWN;
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define PUBLISHED TEXT(FO_PREDICT_PUBLISHED_DEVICES)
const char *fo_predict_size_doubt(const struct fo_predict_machine *m, double devices)
{
	if (devices <= m->per_node || devices <= FO_PREDICT_PUBLISHED_DEVICES || m->net_share > 0)
		return NULL;
	return "no published run behind the prediction has more than " PUBLISHED
	       " devices, and what the network of a larger cluster carries is a guess: the figures hold if "
	       "collectives reach there what they reach on smaller ones, which a measured bandwidth tells";
}

const char fo_predict_too_large[] = "more memory than the device has";

void fo_predict_certainty_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			     const struct fo_predict_step *s, struct fo_predict_certainty *out)
{
	struct fo_predict_work w;
	struct effect e[FO_PREDICT_CONSTANTS];
	const struct fo_predict_style *style = &fo_predict_style[b->job.style];
	const struct fo_predict_machine *d = &b->job.machine;
	double sum, part[FO_PREDICT_PARTS] = { 0 };
	*out = (struct fo_predict_certainty){ .sd = NAN };
	fo_predict_work_of(b, l, &w);
	if (w.wrong || s->wrong)
		return;
	effects(b, &w, s->seconds, e, &sum, part);
	double known = b->job.habit > 0 ? 0 : BETWEEN_PUBLISHERS;
	bool unseen = d->family == FO_PREDICT_AMD || w.part == FO_X_PART_H20 || d->older;
	double no_runs = d->older ? OLDER : NO_RUNS;
	double common = known * known + unseen * no_runs * no_runs + BETWEEN_RUNS * BETWEEN_RUNS +
			style->neutral * NEUTRAL * NEUTRAL + w.moe * EXPERTS * EXPERTS;
	out->sd = sqrt(sum + common);
	double f = exp(FO_PREDICT_Z80 * out->sd);
	out->seconds = (struct fo_range){ s->seconds / f, s->seconds * f };
	out->tokens_s = (struct fo_range){ s->tokens_s / f, s->tokens_s * f };
	double fastest = s->mfu_causal * s->seconds; /* every useful FLOP at the dense peak */
	if (!b->job.lora && out->seconds.low < fastest && fastest < s->seconds) {
		out->seconds.low = fastest;
		out->tokens_s.high = s->tokens_s * s->seconds / fastest;
		out->bounded = true;
	}
	ranges(s, part, common, out);
	rest(out, d->sustained > 0 ? FO_PREDICT_MEASURED : FO_PREDICT_CATALOGUE, "the device's peaks and memory rate",
	     d->peak[w.type], d->name);
	if (w.shard * w.replicate > w.shard_node || !w.tp_inside || !w.cp_inside || !w.pp_inside)
		rest(out, d->net_share > 0 ? FO_PREDICT_MEASURED : FO_PREDICT_CATALOGUE,
		     "the network adapters' rate of a device, bytes/s", d->net_byte_s, "the cluster");
	if (unseen)
		rest(out, FO_PREDICT_GUESS, "how much of its peaks this kind of device sustains", 0,
		     "no run on one is fitted");
	rest(out, style->neutral ? FO_PREDICT_GUESS : FO_PREDICT_FITTED, "the framework's habits", 0, style->origin);
	for (int i = 0; i < FO_PREDICT_CONSTANTS && e[i].moves > .002; i++) {
		const struct fo_predict_constant_row *r = &fo_predict_constant_row[e[i].constant];
		rest(out, fo_predict_ground_of(r), r->meaning, r->value, r->origin);
		if (out->terms < FO_PREDICT_TERMS) {
			out->term[out->terms].what = r->meaning;
			out->term[out->terms++].seconds = s->seconds * (exp(FO_PREDICT_Z80 * e[i].moves) - 1);
		}
	}
	if (d->older)
		out->flag =
			"no run on a V100 is fitted: an A100's constants stand in, and Megatron-LM's paper has 38 % "
			"mfu_causal of 2B parameters on V100, 31 % of 8B";
	else if (!b->job.lora && s->mfu_causal > most_credible(d, w.type))
		out->flag = "above the best MFU that anyone published on a device of its class in this number type";
	else if (out->bytes.low > fo_predict_most_bytes(d))
		out->flag = fo_predict_too_large;
	out->size = fo_predict_size_doubt(d, l->devices);
}
