/* Order: does the prediction rank configurations as measurement does, and what does its pick cost? */
#include "score/score_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct pair {
	double value;
	int at;
};
static int by_value(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	return x->value != y->value ? (x->value > y->value) - (x->value < y->value) : x->at - y->at;
}

/* Ranks from 1, equal values share their mean. */
static void ranks(struct pair *p, int n, double *out)
{
	qsort(p, (size_t)n, sizeof *p, by_value);
	for (int i = 0; i < n;) {
		int k = i;
		while (k < n && p[k].value == p[i].value)
			k++;
		for (int j = i; j < k; j++)
			out[p[j].at] = (i + k + 1) / 2.;
		i = k;
	}
}

static double correlation(const double *a, const double *b, int n)
{
	double sa = 0, sb = 0, ab = 0, aa = 0, bb = 0;
	for (int i = 0; i < n; i++)
		sa += a[i] / n, sb += b[i] / n;
	for (int i = 0; i < n; i++)
		ab += (a[i] - sa) * (b[i] - sb), aa += (a[i] - sa) * (a[i] - sa), bb += (b[i] - sb) * (b[i] - sb);
	return n > 2 && aa > 0 && bb > 0 ? ab / sqrt(aa * bb) : NAN;
}

/* Configurations of the same work: any of them could have been run instead of the others. */
static bool same_work(const struct fo_score_row *a, const struct fo_score_row *b)
{
	return !strcmp(a->family, b->family) && a->job.model.layers == b->job.model.layers && !strcmp(a->gpu, b->gpu) &&
	       a->layout.devices == b->layout.devices && a->job.seq == b->job.seq && a->job.type == b->job.type &&
	       a->job.lora == b->job.lora && a->layout.global_batch == b->layout.global_batch &&
	       !strcmp(a->group, b->group);
}
static bool same_layout(const struct fo_score_row *a, const struct fo_score_row *b)
{
	const struct fo_predict_layout *l = &a->layout, *k = &b->layout;
	return l->tp == k->tp && l->pp == k->pp && l->cp == k->cp && l->ep == k->ep && l->chunks == k->chunks &&
	       l->micro_batch == k->micro_batch && l->zero == k->zero && l->recompute == k->recompute;
}

static void regret(struct fo_score_row **row, int n, struct fo_score_sum *o)
{
	bool *done = fo_xmalloc((size_t)n + 1);
	double sum = 0, random = 0;
	for (int i = 0; i < n; i++) {
		if (done[i])
			continue;
		double best = 0, picked = 0, top = 0, all = 0;
		int rows = 0, layouts = 0;
		for (int k = i; k < n; k++) {
			if (done[k] || !same_work(row[i], row[k]))
				continue;
			done[k] = true;
			rows++;
			layouts += !same_layout(row[i], row[k]);
			best = fmax(best, row[k]->tokens_s);
			all += 1 / row[k]->tokens_s;
			if (row[k]->predicted > top)
				top = row[k]->predicted, picked = row[k]->tokens_s;
		}
		if (rows < 3 || layouts < 2)
			continue;
		sum += best / picked - 1;
		random += best * all / rows - 1;
		o->sets++;
	}
	o->regret = o->sets ? sum / o->sets : NAN;
	o->regret_random = o->sets ? random / o->sets : NAN;
	free(done);
}

void fo_score_rank(struct fo_score_row **row, int rows, const char *group, bool moe, struct fo_score_sum *o)
{
	struct fo_score_row **mine = fo_xmalloc((size_t)(rows + 1) * sizeof *mine);
	struct pair *p = fo_xmalloc((size_t)(rows + 1) * sizeof *p);
	double *a = fo_xmalloc((size_t)(rows + 1) * 2 * sizeof *a), *b = a + rows;
	int n = 0;
	for (int i = 0; i < rows; i++)
		if (row[i]->moe == moe && (!group || !strcmp(row[i]->group, group)))
			mine[n++] = row[i];
	for (int i = 0; i < n; i++)
		p[i] = (struct pair){ mine[i]->predicted, i };
	ranks(p, n, a);
	for (int i = 0; i < n; i++)
		p[i] = (struct pair){ mine[i]->tokens_s, i };
	ranks(p, n, b);
	o->rank = correlation(a, b, n);
	regret(mine, n, o);
	free(a), free(p), free(mine);
}
