/* Does efficiency per device fall beyond 8? By two logs of one model at different numbers of devices. */
#include "health/health_int.h"

#include "base/text.h"

#include <math.h>

/* Figures of logs are rounded to three digits or more. */
static const double EQUAL = 0.01;

static bool differ(double a, double b) { return !isnan(a) && !isnan(b) && fabs(a / b - 1) > EQUAL; }

static double flop(const struct fo_log_account *a) { return a->flop[FO_LOG_MFU_6N]; }

/* Why two logs cannot be compared per device; NULL: they can. */
static const char *unlike(struct fo_health *h, const struct fo_health_log *x, const struct fo_health_log *y)
{
	const struct fo_log_account *a = &x->account, *b = &y->account;
	const char *fx = fo_text_file_name(x->path), *fy = fo_text_file_name(y->path);
	const char *silent = isnan(flop(a)) ? fx : fy;
	if (isnan(flop(a)) || isnan(flop(b)))
		return fo_health_text(h, "%s does not tell its model, so nobody knows whether %s is of the same one",
				      silent, silent == fx ? fy : fx);
	if (differ(flop(a), flop(b)))
		return fo_health_text(h, "%s and %s are of different models (%.3g and %.3g GFLOP per token)", fx, fy,
				      flop(a) * 1e-9, flop(b) * 1e-9);
	if (differ(a->seq, b->seq))
		return fo_health_text(h, "%s and %s have sequences of %.0f and %.0f tokens", fx, fy, a->seq, b->seq);
	if (a->device && b->device && a->peak != b->peak)
		return fo_health_text(h, "%s and %s are of different devices, %s and %s", fx, fy, a->device->name,
				      b->device->name);
	return NULL;
}

struct pair {
	const struct fo_health_log *few, *many;
};

/* The pair with the fewest devices against the most that can be compared. */
static bool find_pair(struct fo_health *h, struct pair *p, const char **why)
{
	*p = (struct pair){ NULL, NULL };
	double best = 1;
	for (size_t i = 0; i < h->logs; i++)
		for (size_t k = 0; k < h->logs; k++) {
			double n = h->log[i]->account.devices, m = h->log[k]->account.devices;
			if (!(m > n) || isnan(h->log[i]->rate.median) || isnan(h->log[k]->rate.median))
				continue;
			const char *not = unlike(h, h->log[i], h->log[k]);
			if (not ) {
				*why = *why ? *why : not ;
				continue;
			}
			if (m / n > best) {
				best = m / n;
				*p = (struct pair){ h->log[i], h->log[k] };
			}
		}
	return p->few != NULL;
}

static const char *why_no_pair(struct fo_health *h)
{
	if (!h->logs)
		return "no training log is given";
	if (h->logs == 1)
		return "one log tells one number of devices";
	for (size_t i = 0; i < h->logs; i++) {
		const char *name = fo_text_file_name(h->log[i]->path);
		if (isnan(h->log[i]->account.devices))
			return fo_health_text(h, "%s does not tell its number of devices", name);
		if (isnan(h->log[i]->rate.median))
			return fo_health_text(h, "%s does not tell its tokens per second", name);
	}
	return "the logs are of the same number of devices";
}

static void rate_evidence(struct fo_health *h, struct fo_health_question *q, const struct fo_health_log *l)
{
	fo_health_evidence(h, q, "%s: %.0f tokens/s per device on %.0f device%s (quartiles %.0f to %.0f)",
			   fo_text_file_name(l->path), l->rate.median, l->account.devices,
			   fo_plural(l->account.devices), l->rate.low, l->rate.high);
}

/* Weak scaling keeps the work of a device; strong scaling divides one step's work by more of them. */
static const char *work_words(struct fo_health *h, const struct pair *p)
{
	double few = p->few->account.tokens / p->few->account.devices;
	double many = p->many->account.tokens / p->many->account.devices;
	if (isnan(few) || isnan(many))
		return " How much work each device has is not told.";
	if (!differ(few, many))
		return " Each device has the same work in both.";
	return fo_health_text(
		h,
		" A device has %.0f tokens of a step on %.0f devices and %.0f on %.0f, so part of it is the "
		"smaller work.",
		few, p->few->account.devices, many, p->many->account.devices);
}

static void judge(struct fo_health *h, struct fo_health_question *q, const struct pair *p)
{
	const struct fo_log_spread few = p->few->rate, many = p->many->rate;
	double n = p->few->account.devices, m = p->many->account.devices;
	struct fo_range r = { many.low / few.high, many.high / few.low };
	bool falls = r.high<1 - FO_HEALTH_NOISE, holds = r.low> 1 - FO_HEALTH_NOISE;
	q->figure = r;
	q->figure_of = fo_health_text(h, "of the tokens/s per device on %.0f that a device reaches on %.0f", n, m);
	const char *figures = fo_health_text(h, "A device on %.0f reaches %s of its speed on %.0f.%s", m,
					     fo_health_num(h, many.median / few.median, FO_DRAW_SHARE), n,
					     work_words(h, p));
	rate_evidence(h, q, p->few);
	rate_evidence(h, q, p->many);
	q->because = figures;
	if (m <= 8) {
		q->because = fo_health_text(h, "%s Both are within 8 devices.", figures);
		q->record = "the same run on 16 devices or more";
	} else if (falls) {
		q->answer = FO_HEALTH_YES;
		q->bad = true;
	} else if (n > 8) {
		q->because = fo_health_text(h, "%s What was lost up to %.0f is not told.", figures, n);
		q->record = "the same run on 8 devices, with the same work for each";
	} else if (holds) {
		q->answer = FO_HEALTH_NO;
	} else {
		q->answer = FO_HEALTH_UNDECIDED;
		q->record = "longer logs of both: their steps differ too much";
	}
}

void fo_health_ask_scaling(struct fo_health *h, struct fo_health_question *q)
{
	struct pair p;
	const char *why = NULL;
	if (find_pair(h, &p, &why)) {
		judge(h, q, &p);
		return;
	}
	q->because = fo_health_sentence(h, why ? why : why_no_pair(h));
	fo_health_estimate_scaling(h, q);
	q->record =
		"a log of the same model with the same tokens per device on 8 devices, 50 steps of it, and one of the "
		"whole job";
	if (h->devices <= 8)
		q->record = "logs of 50 steps on 8 devices and on 16 or more, with the same tokens per device";
}
