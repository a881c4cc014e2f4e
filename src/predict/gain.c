/* The worth of a change, and the share of each part: both sides move with the same constants, so that what is not
 * known of the machine does not blur what the change does. */
#include "predict/predict_int.h"

#include <string.h>

/* Standard deviations of log gains. Two runs of neighbouring settings differ by this much beside their prediction,
 * however little was changed, and a change is off by this share of itself: pairs of published runs of one publisher,
 * model, device, batch and date (79 % of 101 pairs are inside with these two alone, docs/accuracy.md). */
#define PAIR 0.02
#define OF_CHANGE 0.35
/* The same of stacks that no fit has seen, and of experts: Lambda's torchtitan, 70B on B200, gained 2.11 where 1.6 are
 * predicted. */
#define OF_CHANGE_NEUTRAL 0.5
/* The error no longer grows with a change beyond a doubling: pairs of the same kind, vTrain's up to tenfold. */
#define LARGE_CHANGE 0.7

/* Constant i, one standard deviation up (1) or down (-1), within its bounds. */
static double moved(const double *x, int i, double way)
{
	const struct fo_predict_constant_row *r = &fo_predict_constant_row[i];
	return fmin(fmax(x[i] * exp(way * fo_predict_spread_of(r)), r->low), r->high);
}

/* Tokens/s of one device. */
static double speed(const struct fo_predict_base *b, const struct fo_predict_work *w, const double *x)
{
	struct fo_predict_step s;
	fo_predict_time(w, x, &s);
	fo_predict_finish(b, w, &s);
	return s.tokens_s;
}

static bool unfitted(const struct fo_predict_base *b)
{
	enum fo_predict_style_id style = b->job.style;
	const struct fo_predict_constant_row *r =
		&fo_predict_constant_row[FO_X_U_MCORE + (int)fo_predict_habits_of(style)];
	return fo_predict_style[style].neutral || fo_predict_ground_of(r) != FO_PREDICT_FITTED;
}

void fo_predict_gain_of(const struct fo_predict_base *a, const struct fo_predict_layout *before,
			const struct fo_predict_base *b, const struct fo_predict_layout *after,
			struct fo_predict_gain *out)
{
	struct fo_predict_work from, to;
	double x[FO_PREDICT_CONSTANTS], known = 0, guessed = 0, most = 0;
	*out = (struct fo_predict_gain){ .times = NAN, .range = fo_range(NAN) };
	fo_predict_work_of(a, before, &from);
	fo_predict_work_of(b, after, &to);
	out->wrong = from.wrong ? from.wrong : to.wrong;
	if (out->wrong)
		return;
	memcpy(x, a->x, sizeof x);
	out->times = speed(b, &to, x) / speed(a, &from, x);
	double size = log(out->times);
	if (size == 0) { /* nothing that is counted here has changed */
		out->range = fo_range(1);
		return;
	}
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++) {
		if (!fo_predict_reads(&from, i) && !fo_predict_reads(&to, i))
			continue;
		double keep = x[i], way[2];
		for (int up = 0; up < 2; up++) {
			x[i] = keep;
			x[i] = moved(x, i, up ? 1 : -1);
			way[up] = log(speed(b, &to, x) / speed(a, &from, x));
		}
		x[i] = keep;
		double moves = (way[1] - way[0]) / 2;
		const struct fo_predict_constant_row *r = &fo_predict_constant_row[i];
		bool guess = fo_predict_ground_of(r) == FO_PREDICT_GUESS;
		*(guess ? &guessed : &known) += moves * moves;
		if (guess && fabs(moves) > most) {
			most = fabs(moves);
			out->guess = r->meaning;
		}
	}
	bool wide = unfitted(a) || unfitted(b) || to.moe;
	double own = (wide ? OF_CHANGE_NEUTRAL : OF_CHANGE) * fmin(fabs(size), LARGE_CHANGE);
	double sd = sqrt(known + guessed + PAIR * PAIR + own * own), f = exp(FO_PREDICT_Z80 * sd);
	out->range = (struct fo_range){ out->times / f, out->times * f };
	out->guessed = sqrt(guessed);
	/* Habits of a stack that nobody measured are guesses, too, unless both sides have them. */
	bool habits = a->job.style != b->job.style &&
		      (fo_predict_style[a->job.style].neutral || fo_predict_style[b->job.style].neutral);
	if (habits)
		out->guess = "the habits of a framework that nobody measured";
	out->rests_on_guess = habits || 2 * guessed > known + guessed + PAIR * PAIR;
}

void fo_predict_shares_of(const struct fo_predict_base *b, const struct fo_predict_layout *l,
			  struct fo_range share[FO_PREDICT_PARTS])
{
	struct fo_predict_work w;
	struct fo_predict_step s, t[2];
	double x[FO_PREDICT_CONSTANTS], variance[FO_PREDICT_PARTS] = { 0 };
	for (int k = 0; k < FO_PREDICT_PARTS; k++)
		share[k] = fo_range(NAN);
	fo_predict_work_of(b, l, &w);
	if (w.wrong)
		return;
	memcpy(x, b->x, sizeof x);
	fo_predict_time(&w, x, &s);
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++) {
		if (!fo_predict_reads(&w, i))
			continue;
		double keep = x[i];
		for (int up = 0; up < 2; up++) {
			x[i] = keep;
			x[i] = moved(x, i, up ? 1 : -1);
			fo_predict_time(&w, x, &t[up]);
		}
		x[i] = keep;
		for (int k = 0; k < FO_PREDICT_PARTS; k++) {
			double moves = (t[1].part[k] / t[1].seconds - t[0].part[k] / t[0].seconds) / 2;
			variance[k] += moves * moves;
		}
	}
	for (int k = 0; k < FO_PREDICT_PARTS; k++) {
		double mid = s.part[k] / s.seconds, off = FO_PREDICT_Z80 * sqrt(variance[k]);
		share[k] = (struct fo_range){ fmax(0, mid - off), fmin(1, mid + off) };
	}
}
