/* Constants from runs: least squares of log seconds with Gaussian priors in log, bounds, and a loss that lets
 * single rows be wrong. Gauss-Newton with damping; the same numbers whenever it is run. */
#include "score/score_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A row that is further off than this (log) counts in proportion, not squared. */
#define SOFT 0.08
/* Standard deviation in log of publishers' factors. */
#define HABIT_SPREAD 0.08
enum { N = FO_SCORE_PARAMETERS };

void fo_score_start(double x[N], bool fitted)
{
	double value[FO_PREDICT_CONSTANTS];
	fo_predict_constants(fitted, value);
	for (int i = 0; i < N; i++)
		x[i] = i < FO_PREDICT_CONSTANTS ? log(value[i]) : 0;
}

static double seconds(const struct fo_score_case *c, const double *e, double habit)
{
	struct fo_predict_step s;
	fo_predict_time(&c->work, e, &s);
	return log(s.seconds) - habit;
}

double fo_score_seconds(const struct fo_score_case *c, const double x[N], bool strange)
{
	double e[FO_PREDICT_CONSTANTS];
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
		e[i] = exp(x[i]);
	return seconds(c, e, strange ? 0 : x[FO_PREDICT_CONSTANTS + c->group]);
}

static double prior(int i, double *spread)
{
	if (i >= FO_PREDICT_CONSTANTS) {
		*spread = HABIT_SPREAD;
		return 0;
	}
	*spread = fo_predict_constant_row[i].spread;
	return log(fo_predict_constant_row[i].start);
}
static void bound(double *x, int i)
{
	double low = log(.7), high = log(1.4);
	if (i < FO_PREDICT_CONSTANTS)
		low = log(fo_predict_constant_row[i].low), high = log(fo_predict_constant_row[i].high);
	*x = fmin(fmax(*x, low), high);
}

/* Half the sum of squares, soft, with priors. */
static double cost(const struct fo_score_case *c, int cases, int n, const double *x)
{
	double e[FO_PREDICT_CONSTANTS], sum = 0, spread;
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
		e[i] = exp(x[i]);
	for (int k = 0; k < cases; k++) {
		if (c[k].out)
			continue;
		double r = (seconds(&c[k], e, x[FO_PREDICT_CONSTANTS + c[k].group]) - c[k].log_seconds) / SOFT;
		sum += c[k].weight * c[k].weight * (sqrt(1 + r * r) - 1);
	}
	for (int i = 0; i < n; i++) {
		double p = (x[i] - prior(i, &spread)) / spread;
		sum += p * p / 2;
	}
	return sum;
}

struct normal {
	double a[N][N], g[N];
};

/* Adds a case: its derivatives by finite differences, of the constants it reads alone. */
static void add(const struct fo_score_case *c, double *e, const double *x, struct normal *m)
{
	double base = seconds(c, e, x[FO_PREDICT_CONSTANTS + c->group]), r = base - c->log_seconds;
	double soft = c->weight * c->weight / (SOFT * SOFT) / sqrt(1 + r * r / (SOFT * SOFT));
	int used[N], count = 0;
	double d[N];
	const double step = 1e-4;
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++) {
		if (!fo_predict_reads(&c->work, i))
			continue;
		double keep = e[i];
		e[i] = keep * exp(step);
		double v = (seconds(c, e, x[FO_PREDICT_CONSTANTS + c->group]) - base) / step;
		e[i] = keep;
		if (v != 0)
			used[count] = i, d[count++] = v;
	}
	used[count] = FO_PREDICT_CONSTANTS + c->group, d[count++] = -1;
	for (int i = 0; i < count; i++) {
		m->g[used[i]] += soft * d[i] * r;
		for (int k = 0; k <= i; k++)
			m->a[used[i]][used[k]] += soft * d[i] * d[k]; /* used[] rises */
	}
}

/* Solves a x = b, a symmetric and positive, by Cholesky, in place; false: it is not. */
static bool solve(int n, double a[N][N], double *b)
{
	for (int j = 0; j < n; j++) {
		double d = a[j][j];
		for (int k = 0; k < j; k++)
			d -= a[j][k] * a[j][k];
		if (!(d > 0))
			return false;
		a[j][j] = sqrt(d);
		for (int i = j + 1; i < n; i++) {
			double s = a[i][j];
			for (int k = 0; k < j; k++)
				s -= a[i][k] * a[j][k];
			a[i][j] = s / a[j][j];
		}
	}
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < i; k++)
			b[i] -= a[i][k] * b[k];
		b[i] /= a[i][i];
	}
	for (int i = n - 1; i >= 0; i--) {
		for (int k = i + 1; k < n; k++)
			b[i] -= a[k][i] * b[k];
		b[i] /= a[i][i];
	}
	return true;
}

void fo_score_fit(const struct fo_score_case *c, int cases, int groups, int rounds, double x[N])
{
	int n = FO_PREDICT_CONSTANTS + groups;
	struct normal *m = fo_xmalloc(2 * sizeof *m), *copy = m + 1;
	double damp = 1e-3, now = cost(c, cases, n, x);
	for (int round = 0; round < rounds; round++) {
		double e[FO_PREDICT_CONSTANTS], spread;
		memset(m, 0, sizeof *m);
		for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
			e[i] = exp(x[i]);
		for (int k = 0; k < cases; k++)
			if (!c[k].out)
				add(&c[k], e, x, m);
		for (int i = 0; i < n; i++) {
			double p = prior(i, &spread);
			m->a[i][i] += 1 / (spread * spread);
			m->g[i] += (x[i] - p) / (spread * spread);
		}
		double better = now, next[N];
		for (int try = 0; try < 5 && better >= now; try++, damp *= 10) {
			*copy = *m;
			for (int i = 0; i < n; i++)
				copy->a[i][i] *= 1 + damp;
			if (!solve(n, copy->a, copy->g))
				continue;
			for (int i = 0; i < n; i++) {
				next[i] = x[i] - fmin(fmax(copy->g[i], -.5), .5);
				bound(&next[i], i);
			}
			better = cost(c, cases, n, next);
		}
		damp = fmax(damp / 100, 1e-6);
		if (!(better < now))
			break;
		memcpy(x, next, (size_t)n * sizeof *x);
		bool still = now - better < 1e-4 * now;
		now = better;
		if (still)
			break;
	}
	free(m);
}
