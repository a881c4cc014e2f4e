/* Leaves models and publishers out, predicts them, and sums up. */
#include "score/score_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct scoring {
	struct fo_score_table *t;
	struct fo_score_case *c; /* rows of t in scope, then facts */
	struct fo_score_row **row;
	int own, all;
	const char *group[FO_SCORE_GROUPS], **family;
	int groups, families;
	double x[FO_SCORE_PARAMETERS];
	const struct fo_score_options *o;
	double *error, *strange; /* log(predicted / measured seconds), with its model out, with its publisher out */
};

static int index_of(const char **list, int *n, int cap, const char *name)
{
	for (int i = 0; i < *n; i++)
		if (!strcmp(list[i], name))
			return i;
	if (*n >= cap)
		return cap - 1; /* the rest share one */
	list[*n] = name;
	return (*n)++;
}

static bool same_run(const struct fo_score_row *a, const struct fo_score_row *b)
{
	const struct fo_predict_layout *l = &a->layout, *k = &b->layout;
	return !strcmp(a->group, b->group) && !strcmp(a->family, b->family) && !strcmp(a->gpu, b->gpu) &&
	       l->devices == k->devices && l->tp == k->tp && l->pp == k->pp && l->cp == k->cp &&
	       l->micro_batch == k->micro_batch && l->global_batch == k->global_batch && a->job.seq == b->job.seq &&
	       fabs(a->tokens_s / b->tokens_s - 1) < 1e-3;
}

static bool add(struct scoring *s, struct fo_score_row *r, struct fo_predict_base *b)
{
	if (!r->scope || r->refused)
		return false;
	if (fo_predict_prepare(&r->job, b))
		return false;
	struct fo_score_case *c = &s->c[s->all];
	*c = (struct fo_score_case){ 0 };
	fo_predict_work_of(b, &r->layout, &c->work);
	if (c->work.wrong)
		return false;
	double tokens = c->work.micro_batches * c->work.micro_batch * c->work.dp * r->job.seq;
	c->log_seconds = log(tokens / (r->tokens_s * c->work.devices));
	c->group = index_of(s->group, &s->groups, FO_SCORE_GROUPS, r->group);
	c->family = index_of(s->family, &s->families, 1 << 20, r->family);
	s->row[s->all++] = r;
	return true;
}

/* Shapes of experts are known by their names alone, and their software changes from month to month; the layers of
 * hybrids that keep a state are guesses, and must not move their publisher's factor. */
#define MOE_WEIGHT 0.8
#define HYBRID_WEIGHT 0.2
/* Large tables must not outvote small ones. */
static void weigh(struct scoring *s)
{
	int of[FO_SCORE_GROUPS] = { 0 };
	for (int i = 0; i < s->all; i++)
		of[s->c[i].group]++;
	for (int i = 0; i < s->all; i++) {
		struct fo_score_case *c = &s->c[i];
		c->weight = sqrt(fmin(fmax(60. / of[c->group], .4), 2));
		if (c->work.moe)
			c->weight *= MOE_WEIGHT;
		if (s->row[i]->job.model.score_share > 0)
			c->weight *= HYBRID_WEIGHT;
	}
}

static void gather(struct scoring *s, struct fo_score_table *facts)
{
	struct fo_predict_base *b = fo_xmalloc(sizeof *b);
	for (int i = 0; i < s->t->rows; i++)
		s->t->row[i].covered = add(s, &s->t->row[i], b);
	s->own = s->all;
	for (int i = 0; facts && i < facts->rows; i++) {
		bool twice = false;
		for (int k = 0; k < s->own && !twice; k++)
			twice = same_run(s->row[k], &facts->row[i]);
		if (!twice)
			add(s, &facts->row[i], b);
	}
	weigh(s);
	free(b);
}

/* ---- fits without ---- */

static void leave(struct scoring *s, bool publisher)
{
	int sets = publisher ? s->groups : s->families;
	for (int set = 0; set < sets; set++) {
		bool any = false;
		for (int i = 0; i < s->all; i++) {
			struct fo_score_case *c = &s->c[i];
			c->out = (publisher ? c->group : c->family) == set;
			any = any || c->out;
		}
		if (!any)
			continue;
		double x[FO_SCORE_PARAMETERS];
		memcpy(x, s->x, sizeof x);
		if (s->o->fit)
			fo_score_fit(s->c, s->all, s->groups, 4, x);
		for (int i = 0; i < s->all; i++)
			if (s->c[i].out)
				(publisher ? s->strange : s->error)[i] = fo_score_seconds(&s->c[i], x, publisher) -
									 s->c[i].log_seconds;
	}
	for (int i = 0; i < s->all; i++)
		s->c[i].out = false;
}

/* Other models of the row's publisher. */
static int mate_models(const struct scoring *s, int i)
{
	int models = 0;
	for (int k = 0; k < s->all; k++) {
		bool first = s->c[k].group == s->c[i].group && s->c[k].family != s->c[i].family;
		for (int j = 0; j < k && first; j++)
			first = s->c[j].group != s->c[k].group || s->c[j].family != s->c[k].family;
		models += first;
	}
	return models;
}

/* The square of the number of models of a publisher that say as much of it as all publishers do. */
#define MODELS_TO_TRUST .5
/* One model says little of its publisher: what was fitted without the publisher counts, too. */
static void blend(struct scoring *s)
{
	for (int i = 0; i < s->all; i++) {
		double models = mate_models(s, i);
		double trust = models * models / (models * models + MODELS_TO_TRUST);
		s->error[i] = trust * s->error[i] + (1 - trust) * s->strange[i];
	}
}

/* ---- intervals ---- */

struct weighted {
	double value, weight;
};
static int by_value(const void *a, const void *b)
{
	double x = ((const struct weighted *)a)->value, y = ((const struct weighted *)b)->value;
	return (x > y) - (x < y);
}
static double quantile(struct weighted *w, int n, double share)
{
	double all = 0, sum = 0;
	qsort(w, (size_t)n, sizeof *w, by_value);
	for (int i = 0; i < n; i++)
		all += w[i].weight;
	for (int i = 0; i < n; i++) {
		sum += w[i].weight;
		if (sum >= share * all)
			return w[i].value;
	}
	return n ? w[n - 1].value : NAN;
}

/* A publisher's runs are no better known without it than with it: where few others are there to tell, so much wider. */
#define STRANGER_AT_LEAST 1.25
/* Runs on the same kind of device, and of the same kind of framework, tell more. */
#define SAME_DEVICES 3
#define SAME_HABITS 2
/* No other publisher ran such a framework, or such a kind of device: its constants are a guess. */
#define ALONE 1.3

/* Mixtures of experts and hybrids are no measure of dense models, nor those of them. */
static bool apart(const struct scoring *s, int i) { return s->c[i].work.moe || s->row[i]->job.model.score_share > 0; }
static double alike(const struct scoring *s, int k, int i)
{
	double times = s->row[k]->job.machine.family == s->row[i]->job.machine.family ? SAME_DEVICES : 1;
	return s->c[k].work.habits == s->c[i].work.habits ? times * SAME_HABITS : times;
}

/* The width that 80 % of rows of other models kept to, those of the same publisher first, and that of strangers: the
 * fewer models of a publisher are known, the more of the latter. */
static void widths(struct scoring *s)
{
	struct weighted *w = fo_xmalloc(2 * (size_t)(s->all + 1) * sizeof *w);
	int of[FO_SCORE_GROUPS] = { 0 };
	for (int i = 0; i < s->all; i++)
		of[s->c[i].group]++;
	for (int i = 0; i < s->own; i++) {
		int n = 0, k;
		for (k = 0; k < s->all; k++) {
			if (s->c[k].family == s->c[i].family || apart(s, k) != apart(s, i))
				continue;
			double weight = s->c[k].group == s->c[i].group ? 1 : 3. / of[s->c[k].group] * alike(s, k, i);
			w[n++] = (struct weighted){ fabs(s->error[k]), weight };
		}
		double known = quantile(w, n, .8);
		for (n = 0, k = 0; k < s->all; k++)
			if (s->c[k].group != s->c[i].group && apart(s, k) == apart(s, i))
				w[n++] = (struct weighted){ fabs(s->strange[k]), alike(s, k, i) / of[s->c[k].group] };
		double wide = quantile(w, n, .8);
		for (n = 0, k = 0; k < s->all; k++)
			if (apart(s, k) == apart(s, i))
				w[n++] = (struct weighted){ fabs(s->error[k]), 1 };
		double least = STRANGER_AT_LEAST * quantile(w, n, .8);
		wide = wide >= least ? wide : least;
		bool habits = true, devices = true;
		for (k = 0; k < s->all; k++) {
			bool own = s->c[k].group == s->c[i].group;
			habits = habits && (own || s->c[k].work.habits != s->c[i].work.habits);
			devices = devices && (own || s->row[k]->job.machine.family != s->row[i]->job.machine.family);
		}
		wide *= pow(ALONE, habits + devices);
		int models = mate_models(s, i);
		double mixed = models ? hypot(known, wide / pow(models, 1.5)) : wide;
		s->row[i]->half_width = mixed < wide ? mixed : wide;
		s->row[i]->stranger_width = wide;
	}
	free(w);
}

/* A constant MFU for each GPU and type, of rows of other models. */
static void guesses(struct scoring *s)
{
	struct weighted *w = fo_xmalloc((size_t)(s->all + 1) * sizeof *w);
	struct fo_predict_base *b = fo_xmalloc(sizeof *b);
	double *flops = fo_xmalloc((size_t)(s->all + 1) * sizeof *flops);
	for (int i = 0; i < s->all; i++)
		flops[i] = fo_predict_prepare(&s->row[i]->job, b) ? NAN : b->flops_causal;
	for (int i = 0; i < s->own; i++) {
		int n = 0;
		for (int pass = 0; pass < 2 && n == 0; pass++) /* this GPU and type, else all */
			for (int k = 0; k < s->all; k++) {
				const struct fo_score_row *y = s->row[k], *x = s->row[i];
				bool alike = !strcmp(y->gpu, x->gpu) && y->job.type == x->job.type;
				if (s->c[k].family != s->c[i].family && y->moe == x->moe && (alike || pass))
					w[n++] = (struct weighted){
						y->tokens_s * flops[k] / y->job.machine.peak[y->job.type], 1
					};
			}
		const struct fo_score_row *x = s->row[i];
		s->row[i]->guess = n ? quantile(w, n, .5) * x->job.machine.peak[x->job.type] / flops[i] : NAN;
	}
	free(flops);
	free(b);
	free(w);
}

/* The part of a device's memory that a framework's log has: tensors alone (Megatron-LM's "max allocated"), all that the
 * allocator reserved (torchtitan), else the process, as nvidia-smi shows it. */
#define RESERVED 1.05 /* times tensors: torchtitan's reserved figures */
static double as_logged(const struct fo_score_row *r, const struct fo_predict_step *m)
{
	const enum fo_predict_style_id style = r->job.style;
	const double tensors = m->bytes - m->memory[FO_PREDICT_OVERHEAD];
	if (style == FO_PREDICT_STYLE_MLM)
		return tensors;
	const bool titan = style == FO_PREDICT_STYLE_TITAN || style == FO_PREDICT_STYLE_TITAN_EAGER;
	return titan ? RESERVED * tensors : m->bytes;
}

static void memories(struct scoring *s)
{
	struct fo_predict_base *b = fo_xmalloc(sizeof *b);
	for (int i = 0; i < s->own; i++) {
		struct fo_score_row *r = s->row[i];
		struct fo_predict_step m;
		r->memory = NAN;
		if (isnan(r->bytes) || fo_predict_prepare(&r->job, b))
			continue;
		fo_predict_memory_of(b, &r->layout, &m);
		r->memory = as_logged(r, &m);
	}
	free(b);
}

/* ---- sums ---- */

/* group -1: all. */
static void summarise(const struct scoring *s, int group, bool moe, struct fo_score_sum *o)
{
	struct weighted *w = fo_xmalloc((size_t)(s->own + 1) * sizeof *w);
	double inside = 0, strange_inside = 0, guess = 0, guesses = 0, memory = 0;
	int n = 0;
	*o = (struct fo_score_sum){ .name = moe ? "experts, hybrids" : "overall" };
	if (group >= 0)
		o->name = s->group[group];
	for (int i = 0; i < s->t->rows; i++) {
		const struct fo_score_row *r = &s->t->row[i];
		if (r->scope && r->moe == moe && (group < 0 || !strcmp(r->group, o->name)))
			o->rows++;
	}
	for (int i = 0; i < s->own; i++) {
		const struct fo_score_row *r = s->row[i];
		if (r->moe != moe || (group >= 0 && s->c[i].group != group))
			continue;
		double e = r->predicted / r->tokens_s - 1, f = r->stranger / r->tokens_s - 1;
		w[n++] = (struct weighted){ fabs(e), 1 };
		o->mean += fabs(e), o->bias += e, o->stranger_mean += fabs(f);
		inside += fabs(log(r->predicted / r->tokens_s)) <= r->half_width;
		strange_inside += fabs(log(r->stranger / r->tokens_s)) <= r->stranger_width;
		if (!isnan(r->guess))
			guess += fabs(r->guess / r->tokens_s - 1), guesses++;
		if (!isnan(r->memory)) {
			memory += fabs(r->memory / r->bytes - 1);
			o->memory_rows++;
		}
	}
	o->covered = n;
	if (n) {
		o->mean /= n, o->bias /= n, o->stranger_mean /= n;
		o->median = quantile(w, n, .5), o->p90 = quantile(w, n, .9);
		o->inside = inside / n, o->stranger_inside = strange_inside / n;
	}
	o->guess = guesses > 0 ? guess / guesses : NAN;
	o->memory = o->memory_rows ? memory / o->memory_rows : NAN;
	for (int what = 0; what < 4; what++) {
		n = 0;
		for (int i = 0; i < s->own; i++) {
			const struct fo_score_row *r = s->row[i];
			double v[4] = { r->half_width, r->stranger_width, fabs(r->stranger / r->tokens_s - 1),
					fabs(r->memory / r->bytes - 1) };
			if (r->moe == moe && (group < 0 || s->c[i].group == group) && !isnan(v[what]))
				w[n++] = (struct weighted){ v[what], 1 };
		}
		double *const to[4] = { &o->width, &o->stranger_width, &o->stranger_median, &o->memory_median };
		*to[what] = quantile(w, n, .5);
	}
	fo_score_rank(s->row, s->own, group < 0 ? NULL : o->name, moe, o);
	free(w);
}

static int by_rows(const void *a, const void *b)
{
	const struct fo_score_sum *x = a, *y = b;
	return y->rows != x->rows ? y->rows - x->rows : strcmp(x->name, y->name);
}

static fo_status none_left(const struct fo_score_table *t)
{
	if (!t->rows)
		return fo_fail(FO_EARG, "the table has a header, but no row of a run");
	for (int i = 0; i < t->rows; i++) {
		const char *why = t->row[i].out ? t->row[i].out : t->row[i].refused;
		if (why)
			return fo_fail(FO_EARG, "no row of the table can be predicted; line %d: %s", t->row[i].line,
				       why);
	}
	return fo_fail(FO_EARG, "no row of the table can be predicted");
}

fo_status fo_score_of(struct fo_score_table *t, struct fo_score_table *facts, const struct fo_score_options *o,
		      struct fo_score *out)
{
	size_t n = (size_t)(t->rows + (facts ? facts->rows : 0) + 1);
	struct scoring *s = fo_xmalloc(sizeof *s);
	s->t = t, s->o = o;
	s->c = fo_xmalloc(n * sizeof *s->c);
	s->row = fo_xmalloc(n * sizeof *s->row);
	s->family = fo_xmalloc(n * sizeof *s->family);
	s->error = fo_xmalloc(n * sizeof *s->error);
	s->strange = fo_xmalloc(n * sizeof *s->strange);
	*out = (struct fo_score){ 0 };
	gather(s, facts);
	fo_score_start(s->x, false);
	if (o->fit)
		fo_score_fit(s->c, s->all, s->groups, 30, s->x);
	leave(s, false);
	leave(s, true);
	blend(s);
	widths(s);
	guesses(s);
	for (int i = 0; i < s->own; i++) {
		struct fo_score_row *r = s->row[i];
		r->predicted = r->tokens_s * exp(-s->error[i]);
		r->stranger = r->tokens_s * exp(-s->strange[i]);
	}
	memories(s);
	summarise(s, -1, false, &out->overall);
	summarise(s, -1, true, &out->moe);
	for (int i = 0; i < s->groups; i++) {
		summarise(s, i, false, &out->group[out->groups]);
		out->groups += out->group[out->groups].rows > 0;
	}
	/* Order within groups: across them any prediction ranks a small model before a large one. */
	double ranked = 0, of = 0;
	for (int i = 0; i < out->groups; i++)
		if (!isnan(out->group[i].rank))
			ranked += out->group[i].covered * out->group[i].rank, of += out->group[i].covered;
	out->overall.rank = of > 0 ? ranked / of : NAN;
	qsort(out->group, (size_t)out->groups, sizeof *out->group, by_rows);
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
		out->x[i] = exp(s->x[i]);
	out->habits = s->groups;
	for (int i = 0; i < s->groups; i++) {
		out->habit[i] = exp(s->x[FO_PREDICT_CONSTANTS + i]);
		out->habit_of[i] = s->group[i];
	}
	bool none = s->own == 0;
	free(s->strange), free(s->error), free(s->family), free(s->row), free(s->c), free(s);
	return none ? none_left(t) : FO_OK;
}

/* ---- this machine's runs ---- */

static void sum_own(const struct fo_score_table *t, const char *group, struct fo_score_sum *o)
{
	struct weighted *w = fo_xmalloc((size_t)(t->rows + 1) * sizeof *w);
	int n = 0;
	*o = (struct fo_score_sum){ .name = group ? group : "overall",
				    .guess = NAN,
				    .inside = NAN,
				    .width = NAN,
				    .rank = NAN,
				    .regret = NAN,
				    .regret_random = NAN,
				    .stranger_mean = NAN,
				    .stranger_median = NAN,
				    .stranger_inside = NAN,
				    .stranger_width = NAN,
				    .memory = NAN,
				    .memory_median = NAN };
	for (int i = 0; i < t->rows; i++) {
		const struct fo_score_row *r = &t->row[i];
		if (!r->scope || (group && strcmp(group, r->group)))
			continue;
		o->rows++;
		if (!r->covered)
			continue;
		double e = r->tokens_s / r->predicted - 1; /* of seconds */
		w[n++] = (struct weighted){ fabs(e), 1 };
		o->mean += fabs(e), o->bias += e;
	}
	o->covered = n;
	o->mean /= n, o->bias /= n;
	o->median = quantile(w, n, .5), o->p90 = quantile(w, n, .9);
	free(w);
}

fo_status fo_score_machine(struct fo_score_table *t, struct fo_score *out)
{
	const char *group[FO_SCORE_GROUPS];
	*out = (struct fo_score){ 0 };
	for (int i = 0; i < t->rows; i++)
		if (t->row[i].scope)
			index_of(group, &out->groups, FO_SCORE_GROUPS, t->row[i].group);
	sum_own(t, NULL, &out->overall);
	for (int i = 0; i < out->groups; i++)
		sum_own(t, group[i], &out->group[i]);
	return out->overall.covered ? FO_OK : none_left(t);
}
