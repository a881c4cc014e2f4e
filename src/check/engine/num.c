#include "check/engine/num.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "kernel/round.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD_ROWS = 1, PAD_LEFT = 2, PAD_RIGHT = 3, SENTINEL = 0xa5, THREADS_MAX = 3 };

/* 64-byte aligned, not zeroed; freed with free(). Cases are small: bookkeeping memory in the sense of mem.h. */
static unsigned char *block_new(size_t bytes)
{
	unsigned char *p = aligned_alloc(64, fo_round_up_bytes(bytes, 64));
	return p ? p : fo_xmalloc(SIZE_MAX); /* says that memory is out, and ends */
}

void fo_num_case_init(struct fo_num_case *c, int kind)
{
	memset(c, 0, sizeof *c);
	c->call.kind = (uint8_t)kind;
	snprintf(c->name, sizeof c->name, "%s", fo_op_info(kind)->name);
}

void fo_num_case_arg(struct fo_num_case *c, int dtype, int64_t rows, int64_t cols, int access, int fill, double scale,
		     int64_t limit)
{
	int i = c->call.n++;
	size_t len = strlen(c->name);
	c->call.arg[i] = (struct fo_tensor){ .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
	c->spec[i].access = (uint8_t)access;
	c->spec[i].fill = (uint8_t)fill;
	c->spec[i].scale = scale;
	c->spec[i].limit = limit;
	snprintf(c->name + len, sizeof c->name - len, " %lldx%lld:%s", (long long)rows, (long long)cols,
		 fo_dtype_name[dtype]);
}

void fo_num_case_sum(struct fo_num_case *c, int arg, bool first)
{
	size_t len = strlen(c->name);
	c->spec[arg].access = FO_ACC;
	c->spec[arg].fill = first ? FO_NUM_NAN : FO_NUM_NORMAL;
	c->call.first = (uint32_t)first << arg;
	snprintf(c->name + len, sizeof c->name - len, "%s", first ? " store" : " add");
}

void fo_num_case_factor(struct fo_num_case *c, int dtype, int64_t rows, int64_t cols, bool turned, double scale)
{
	if (turned)
		fo_num_case_arg(c, dtype, cols, rows, FO_READ, FO_NUM_NORMAL, scale, 0);
	else
		fo_num_case_arg(c, dtype, rows, cols, FO_READ, FO_NUM_NORMAL, scale, 0);
}

void fo_num_case_matmul(struct fo_num_case *c, int64_t m, int64_t n, int64_t k, int ta, int tb, int ab, int cc,
			int access, bool first)
{
	fo_num_case_init(c, FO_OP_matmul);
	fo_num_case_factor(c, ab, m, k, ta, 1);
	fo_num_case_factor(c, ab, k, n, tb, 1 / sqrt((double)k));
	fo_num_case_arg(c, cc, m, n, FO_DEF, FO_NUM_NAN, 1, 0);
	c->call.attr.ta = (uint8_t)ta;
	c->call.attr.tb = (uint8_t)tb;
	size_t len = strlen(c->name);
	snprintf(c->name + len, sizeof c->name - len, " ta=%d tb=%d", ta, tb);
	c->call.first = 1u << 2;
	if (access == FO_ACC)
		fo_num_case_sum(c, 2, first);
}

/* ---- data ---- */

double fo_num_get(const struct fo_tensor *t, int64_t r, int64_t c)
{
	size_t i = (size_t)(r * t->ld + c);
	switch (t->dtype) {
	case FO_BF16: return fo_bf16_to_f32(((const uint16_t *)t->data)[i]);
	case FO_F32: return ((const float *)t->data)[i];
	case FO_F64: return ((const double *)t->data)[i];
	case FO_I16: return ((const int16_t *)t->data)[i];
	case FO_E4M3: return fo_e4m3_to_f32(((const uint8_t *)t->data)[i]);
	case FO_E5M2: return fo_e5m2_to_f32(((const uint8_t *)t->data)[i]);
	default: return ((const int32_t *)t->data)[i];
	}
}

void fo_num_set(const struct fo_tensor *t, int64_t r, int64_t c, double x)
{
	size_t i = (size_t)(r * t->ld + c);
	switch (t->dtype) {
	case FO_BF16: ((uint16_t *)t->data)[i] = fo_bf16_from_f32((float)x); break;
	case FO_F32: ((float *)t->data)[i] = (float)x; break;
	case FO_F64: ((double *)t->data)[i] = x; break;
	case FO_I16: ((int16_t *)t->data)[i] = (int16_t)x; break;
	case FO_E4M3: ((uint8_t *)t->data)[i] = fo_e4m3_from_f32((float)x); break;
	case FO_E5M2: ((uint8_t *)t->data)[i] = fo_e5m2_from_f32((float)x); break;
	default: ((int32_t *)t->data)[i] = (int32_t)x; break;
	}
}

/* The number at (r, c) of operand i: low halves are completed by the weight in front of them. */
static double number(const struct fo_call *call, int i, int64_t r, int64_t c)
{
	const struct fo_tensor *t = &call->arg[i];
	if (t->dtype != FO_I16)
		return fo_num_get(t, r, c);
	return fo_split_join(fo_bf16_from_f32((float)fo_num_get(t - 1, r, c)), (int16_t)fo_num_get(t, r, c));
}

/* Bytes of a block in front of the operand's first element: a row of sentinels, at least, and as much as keeps its
 * alignment. */
static size_t front(const struct fo_tensor *t)
{
	size_t item = fo_dtype_bytes(t->dtype);
	return fo_round_up_bytes((size_t)t->ld * item * GUARD_ROWS, 64) + (t->ld == t->cols ? 0 : PAD_LEFT * item);
}

static size_t block_bytes(const struct fo_tensor *t)
{
	size_t row = (size_t)t->ld * fo_dtype_bytes(t->dtype);
	return fo_round_up_bytes(row * (size_t)(t->rows + GUARD_ROWS) + fo_round_up_bytes(row * GUARD_ROWS, 64), 64);
}

void fo_num_block(const struct fo_tensor *t, unsigned char **block, size_t *bytes)
{
	*block = (unsigned char *)t->data - front(t);
	*bytes = block_bytes(t);
}

static void place(struct fo_num_data *d, int i, bool tight)
{
	struct fo_tensor *t = &d->call.arg[i];
	t->ld = t->cols + (tight ? 0 : PAD_LEFT + PAD_RIGHT);
	d->bytes[i] = block_bytes(t);
	d->block[i] = block_new(d->bytes[i]);
	memset(d->block[i], SENTINEL, d->bytes[i]);
	t->data = d->block[i] + front(t);
}

static double hyper_value(int64_t col)
{
	static const double value[FO_HYPER_COUNT] = {
		[FO_HYPER_LR] = 1e-3,
		[FO_HYPER_BETA1] = 0.9,
		[FO_HYPER_BETA2] = 0.95,
		[FO_HYPER_EPS] = 1e-8,
		[FO_HYPER_DECAY] = 0.1,
		[FO_HYPER_CORR1] = 1 - 0.9 * 0.9 * 0.9,
		[FO_HYPER_CORR2] = 1 - 0.95 * 0.95 * 0.95,
		[FO_HYPER_CLIP] = 1,
		[FO_HYPER_INV_TOKENS] = 1.0 / 37,
		[FO_HYPER_SEED] = 5,
		[FO_HYPER_STEP] = 2,
		[FO_HYPER_LAST_NORM] = 3,
	};
	return value[col];
}

static double value_at(const struct fo_num_case *c, int i, uint64_t seed, int64_t r, int64_t col)
{
	const struct fo_tensor *t = &c->call.arg[i];
	uint64_t stream = seed * 16 + (uint64_t)i, index = (uint64_t)(r * t->cols + col);
	double u = fo_rng_uniform(stream, index), angle;
	switch (c->spec[i].fill) {
	case FO_NUM_POSITIVE: return (0.1 + 0.9 * u) * c->spec[i].scale;
	case FO_NUM_INDEX: return floor(u * (double)c->spec[i].limit);
	case FO_NUM_TARGET: return fo_rng_u64(stream + 8, index) % 8 ? floor(u * (double)c->spec[i].limit) : -1;
	case FO_NUM_HYPER: return hyper_value(col);
	case FO_NUM_SPAN: return col ? c->spec[i].scale : (double)c->spec[i].limit;
	case FO_NUM_NAN:
	case FO_NUM_FORWARD: return NAN;
	case FO_NUM_ROTATION:
		angle = 6.28 * fo_rng_uniform(stream, (uint64_t)(r * t->cols + col % (t->cols / 2)));
		return col < t->cols / 2 ? cos(angle) : sin(angle);
	default: return c->spec[i].scale * fo_rng_normal(stream, index);
	}
}

static void fill_doc_start(const struct fo_tensor *t, uint64_t stream)
{
	int64_t start = 0;
	for (int64_t r = 0; r < t->rows; r++) {
		if (r && fo_rng_u64(stream, (uint64_t)r) % 11 == 0)
			start = r;
		fo_num_set(t, r, 0, (double)start);
	}
}

static void copy_values(const struct fo_tensor *to, const struct fo_tensor *from)
{
	for (int64_t r = 0; r < to->rows; r++)
		for (int64_t c = 0; c < to->cols; c++)
			fo_num_set(to, r, c, fo_num_get(from, r, c));
}

/* Fills operands of a backward call with what the forward operation `kind` gives in double precision for the same
 * inputs, rounded to their type. from[i]: the backward operand that is operand i of forward, or has its shape; -1:
 * none, the documents are random. Operands of forward from `results` on are copied back. */
static void fill_from(struct fo_num_data *d, int kind, const int *from, int results)
{
	struct fo_num_case c;
	struct fo_num_data f, wide;
	int n = fo_op_info(kind)->max_operands;
	fo_num_case_init(&c, kind);
	for (int i = 0; i < n; i++) {
		const struct fo_tensor *t = &d->call.arg[from[i] < 0 ? FO_ATTENTION_Q : from[i]];
		if (from[i] < 0)
			fo_num_case_arg(&c, FO_I32, t->rows, 1, FO_READ, FO_NUM_DOC_START, 0, 0);
		else
			fo_num_case_arg(&c, t->dtype, t->rows, t->cols, FO_READ, FO_NUM_NAN, 0, 0);
	}
	c.call.attr = d->call.attr;
	fo_num_data_new(&f, &c, 0, true);
	for (int i = 0; i < FO_ATTENTION_O; i++)
		if (from[i] >= 0)
			copy_values(&f.call.arg[i], &d->call.arg[from[i]]);
	fo_num_data_f64(&wide, &f);
	fo_num_run(&fo_kernels_ref.kernel[kind], &wide, 1);
	for (int i = results; i < n; i++)
		copy_values(&d->call.arg[from[i]], &wide.call.arg[i]);
	fo_num_data_free(&f);
	fo_num_data_free(&wide);
}

/* attention_bwd and attention_bwd_rope read o and lse of attention. */
static const int of_forward[] = {
	[FO_ATTENTION_Q] = FO_ATTENTION_BWD_Q, [FO_ATTENTION_K] = FO_ATTENTION_BWD_K,
	[FO_ATTENTION_V] = FO_ATTENTION_BWD_V, [FO_ATTENTION_DOC_START] = FO_ATTENTION_BWD_DOC_START,
	[FO_ATTENTION_O] = FO_ATTENTION_BWD_O, [FO_ATTENTION_LSE] = FO_ATTENTION_BWD_LSE
};
/* attention_eager_bwd reads prob of attention_eager, and neither its documents nor its o. */
static const int of_forward_eager[] = {
	[FO_ATTENTION_EAGER_Q] = FO_ATTENTION_EAGER_BWD_Q,  [FO_ATTENTION_EAGER_K] = FO_ATTENTION_EAGER_BWD_K,
	[FO_ATTENTION_EAGER_V] = FO_ATTENTION_EAGER_BWD_V,  [FO_ATTENTION_EAGER_DOC_START] = -1,
	[FO_ATTENTION_EAGER_O] = FO_ATTENTION_EAGER_BWD_DO, [FO_ATTENTION_EAGER_PROB] = FO_ATTENTION_EAGER_BWD_PROB
};

void fo_num_data_new(struct fo_num_data *d, const struct fo_num_case *c, uint64_t seed, bool tight)
{
	enum fo_op_family family = fo_op_family(c->call.kind);
	memset(d, 0, sizeof *d);
	d->call = c->call;
	tight |= family == FO_OPS_TRANSFER; /* whole rows, end to end (program/op_check.c) */
	for (int i = 0; i < c->call.n; i++) {
		struct fo_tensor *t = &d->call.arg[i];
		place(d, i, tight);
		if (c->spec[i].fill == FO_NUM_DOC_START) {
			fill_doc_start(t, seed * 16 + (uint64_t)i);
			continue;
		}
		for (int64_t r = 0; r < t->rows; r++)
			for (int64_t j = 0; j < t->cols; j++)
				fo_num_set(t, r, j, value_at(c, i, seed, r, j));
	}
	if (family == FO_OPS_ATTENTION_BWD)
		fill_from(d, FO_OP_attention, of_forward, FO_ATTENTION_O);
	else if (family == FO_OPS_EAGER_BWD)
		fill_from(d, FO_OP_attention_eager, of_forward_eager, FO_ATTENTION_EAGER_PROB);
}

void fo_num_data_copy(struct fo_num_data *to, const struct fo_num_data *from)
{
	*to = *from;
	for (int i = 0; i < from->call.n; i++) {
		to->block[i] = block_new(from->bytes[i]);
		memcpy(to->block[i], from->block[i], from->bytes[i]);
		to->call.arg[i].data = to->block[i] + ((const unsigned char *)from->call.arg[i].data - from->block[i]);
	}
}

void fo_num_data_f64(struct fo_num_data *to, const struct fo_num_data *from)
{
	memset(to, 0, sizeof *to);
	to->call = from->call;
	for (int i = 0; i < from->call.n; i++) {
		struct fo_tensor *t = &to->call.arg[i];
		if (t->dtype != FO_I32)
			t->dtype = FO_F64;
		place(to, i, true);
		for (int64_t r = 0; r < t->rows; r++)
			for (int64_t j = 0; j < t->cols; j++)
				fo_num_set(t, r, j, number(&from->call, i, r, j));
	}
}

void fo_num_data_free(struct fo_num_data *d)
{
	for (int i = 0; i < d->call.n; i++)
		free(d->block[i]);
	memset(d, 0, sizeof *d);
}

bool fo_num_run(const struct fo_kernel *k, struct fo_num_data *d, int threads)
{
	struct fo_call *c = &d->call;
	bool kept = true;
	c->threads = threads;
	size_t bytes = k->ws ? fo_round_up_bytes(k->ws(c), 64) : 0;
	unsigned char *ws = block_new(bytes + 64);
	memset(ws, 0xff, bytes);
	memset(ws + bytes, SENTINEL, 64);
	c->ws = ws;
	c->ws_bytes = bytes;
	k->run(c);
	for (int i = 0; i < 64; i++)
		kept &= ws[bytes + (size_t)i] == SENTINEL;
	free(ws);
	c->ws = NULL;
	return kept;
}

/* ---- checks ---- */

/* Bytes outside the rectangles, and whole operands that are only read, are as before. */
static bool untouched(const struct fo_num_case *c, const struct fo_num_data *before, const struct fo_num_data *after,
		      char *why, size_t size)
{
	for (int i = 0; i < c->call.n; i++) {
		const struct fo_tensor *t = &after->call.arg[i];
		size_t item = fo_dtype_bytes(t->dtype), start = (size_t)((unsigned char *)t->data - after->block[i]);
		bool writes = fo_access_writes(c->spec[i].access);
		for (size_t b = 0; b < after->bytes[i]; b++) {
			if (after->block[i][b] == before->block[i][b])
				continue;
			size_t at = b - start, row = at / ((size_t)t->ld * item),
			       col = at % ((size_t)t->ld * item) / item;
			if (writes && b >= start && row < (size_t)t->rows && col < (size_t)t->cols)
				continue;
			snprintf(why, size, "%s: operand %d: byte %lld from its first element was changed", c->name, i,
				 (long long)b - (long long)start);
			return false;
		}
	}
	return true;
}

struct fo_num_error {
	double l2, worst;
	int64_t row, col;
};

/* Relative errors of operand o of `got` against that of `want`; a value that is not finite where want's is counts as
 * infinite. */
static struct fo_num_error error_of(const struct fo_call *got, const struct fo_call *want, int o)
{
	const struct fo_tensor *r = &want->arg[o];
	struct fo_num_error e = { 0 };
	double norm = 0, sum = 0, top = 0;
	for (int64_t i = 0; i < r->rows; i++)
		for (int64_t j = 0; j < r->cols; j++) {
			double x = fo_num_get(r, i, j), off = fabs(number(got, o, i, j) - x);
			if (!(off <= 1e300))
				off = INFINITY;
			norm += x * x;
			sum += off * off;
			top = fmax(top, fabs(x));
			if (off > e.worst) {
				e.worst = off;
				e.row = i;
				e.col = j;
			}
		}
	e.l2 = sum ? sqrt(sum / norm) : 0;
	e.worst = e.worst ? e.worst / top : 0;
	return e;
}

static void keep_nearest(struct fo_num_margin *m, double error, double bound)
{
	/* A NaN must not pass for small. */
	if (!m->bound || !(error * m->bound <= m->error * bound))
		*m = (struct fo_num_margin){ error, bound };
}

static bool precise(const struct fo_num_case *c, const struct fo_num_data *got, const struct fo_num_data *naive,
		    const struct fo_num_data *exact, struct fo_num_margin *margin, char *why, size_t size)
{
	for (int i = 0; i < c->call.n; i++) {
		if (!fo_access_writes(c->spec[i].access))
			continue;
		struct fo_num_error e = error_of(&got->call, &exact->call, i),
				    n = error_of(&naive->call, &exact->call, i);
		if (!(n.worst <= 1e300)) { /* else anything would be within it */
			snprintf(why, size, "%s: operand %d: the naive implementation's element %lld,%lld is %.9g",
				 c->name, i, (long long)n.row, (long long)n.col, number(&naive->call, i, n.row, n.col));
			return false;
		}
		if (margin) {
			keep_nearest(margin, e.l2, 2 * n.l2 + FO_NUM_FLOOR);
			keep_nearest(margin, e.worst, 2 * n.worst + FO_NUM_FLOOR);
		}
		if (e.l2 <= 2 * n.l2 + FO_NUM_FLOOR && e.worst <= 2 * n.worst + FO_NUM_FLOOR)
			continue;
		snprintf(why, size,
			 "%s: operand %d: relative error %.3g (naive %.3g), worst element %.3g (naive %.3g) at "
			 "%lld,%lld: got %.9g, expected %.9g",
			 c->name, i, e.l2, n.l2, e.worst, n.worst, (long long)e.row, (long long)e.col,
			 number(&got->call, i, e.row, e.col), fo_num_get(&exact->call.arg[i], e.row, e.col));
		return false;
	}
	return true;
}

static bool same_bits(const struct fo_num_case *c, const struct fo_num_data *a, const struct fo_num_data *b)
{
	for (int i = 0; i < c->call.n; i++)
		if (memcmp(a->block[i], b->block[i], a->bytes[i]))
			return false;
	return true;
}

/* Another run with as many threads as gave *before gives the same bits. */
static bool repeatable(const struct fo_num_case *c, const struct fo_kernel *k, const struct fo_num_data *in,
		       const struct fo_num_data *before, int threads, char *why, size_t size)
{
	struct fo_num_data again;
	fo_num_data_copy(&again, in);
	fo_num_run(k, &again, threads);
	bool same = same_bits(c, before, &again);
	if (!same)
		snprintf(why, size, "%s: two runs with %d threads give different bits", c->name, threads);
	fo_num_data_free(&again);
	return same;
}

/* Outputs that ops.def allows over their inputs give the same bits there. `only` >= 0 takes that pair alone, -1 all
 * pairs whose operands are still free. */
static bool in_place(const struct fo_num_case *c, const struct fo_kernel *k, const struct fo_num_data *in,
		     const struct fo_num_data *want, int only, char *why, size_t size)
{
	int o, i;
	bool moved[FO_MAX_OPERANDS] = { false }, ok = true;
	struct fo_num_data d;
	fo_num_data_copy(&d, in);
	for (int p = 0; fo_op_in_place(c->call.kind, p, &o, &i); p++) {
		if (moved[o] || (only >= 0 && p != only) || c->call.arg[o].dtype != c->call.arg[i].dtype)
			continue;
		moved[o] = true;
		d.call.arg[o] = d.call.arg[i];
	}
	fo_num_run(k, &d, 2);
	for (o = 0; o < c->call.n; o++)
		for (int64_t r = 0; moved[o] && r < c->call.arg[o].rows; r++)
			for (int64_t j = 0; j < c->call.arg[o].cols; j++)
				ok &= fo_num_get(&d.call.arg[o], r, j) == fo_num_get(&want->call.arg[o], r, j);
	if (!ok)
		snprintf(why, size, "%s: outputs in the place of inputs (pair %d) give other numbers", c->name, only);
	fo_num_data_free(&d);
	return ok;
}

/* The measure of a kernel: inputs, results in double precision and of the naive implementation. */
struct trial {
	struct fo_num_data in, exact, naive;
};

static void trial_init(struct trial *t, const struct fo_num_case *c, bool tight)
{
	const struct fo_kernel *ref = &fo_kernels_ref.kernel[c->call.kind];
	fo_num_data_new(&t->in, c, 7 + (uint64_t)tight, tight);
	fo_num_data_f64(&t->exact, &t->in);
	fo_num_run(ref, &t->exact, 1);
	fo_num_data_copy(&t->naive, &t->in);
	fo_num_run(ref, &t->naive, 1);
}

static void trial_fini(struct trial *t)
{
	fo_num_data_free(&t->in);
	fo_num_data_free(&t->exact);
	fo_num_data_free(&t->naive);
}

/* Leaves the results in *got for the caller to free. */
static bool trial_run(const struct trial *t, const struct fo_num_case *c, const struct fo_kernel *k, int threads,
		      struct fo_num_data *got, struct fo_num_margin *margin, char *why, size_t size)
{
	fo_num_data_copy(got, &t->in);
	if (!fo_num_run(k, got, threads)) {
		snprintf(why, size, "%s: wrote past its workspace", c->name);
		return false;
	}
	return untouched(c, &t->in, got, why, size) && precise(c, got, &t->naive, &t->exact, margin, why, size);
}

bool fo_num_check_once(const struct fo_num_case *c, const struct fo_kernel *k, int threads,
		       struct fo_num_margin *margin, char *why, size_t size)
{
	struct trial t;
	struct fo_num_data got;
	trial_init(&t, c, false);
	bool ok = trial_run(&t, c, k, threads, &got, margin, why, size);
	fo_num_data_free(&got);
	trial_fini(&t);
	return ok;
}

/* from .. to: numbers of threads. bits: NULL, or asked after a run whether another one must give the same. */
static bool check(const struct fo_num_case *c, const struct fo_kernel *k, int from, int to, bool (*bits)(void),
		  struct fo_num_margin *margin, char *why, size_t size)
{
	int pairs = 0, out, in;
	bool ok = true;
	while (fo_op_in_place(c->call.kind, pairs, &out, &in))
		pairs++;
	for (int tight = 0; tight < 2 && ok; tight++) {
		struct trial t;
		trial_init(&t, c, tight);
		for (int threads = from; threads <= to && ok; threads++) {
			struct fo_num_data got;
			ok = trial_run(&t, c, k, threads, &got, margin, why, size);
			ok = ok && ((bits && !bits()) || repeatable(c, k, &t.in, &got, threads, why, size));
			for (int pair = -1; pair < pairs && threads == 2; pair++)
				ok = ok && in_place(c, k, &t.in, &got, pair, why, size);
			fo_num_data_free(&got);
		}
		trial_fini(&t);
	}
	return ok;
}

bool fo_num_check(const struct fo_num_case *c, const struct fo_kernel *k, struct fo_num_margin *margin, char *why,
		  size_t size)
{
	return check(c, k, 1, THREADS_MAX, NULL, margin, why, size);
}

bool fo_num_check_device(const struct fo_num_case *c, const struct fo_kernel *k, bool (*same_bits)(void),
			 struct fo_num_margin *margin, char *why, size_t size)
{
	return check(c, k, 2, 2, same_bits, margin, why, size);
}

/* Half a unit in the last place of 1. */
static double rounding_of(int dtype)
{
	switch (dtype) {
	case FO_E5M2: return 0x1p-3;
	case FO_E4M3: return 0x1p-4;
	case FO_BF16: return 0x1p-9;
	case FO_F64: return 0x1p-53;
	default: return 0x1p-24;
	}
}

bool fo_num_check_naive(const struct fo_num_case *c, struct fo_num_margin *margin, char *why, size_t size)
{
	struct trial t;
	double depth = 1;
	bool ok = true;
	trial_init(&t, c, true);
	for (int i = 0; i < c->call.n; i++)
		depth = fmax(depth, (double)fo_max(t.in.call.arg[i].rows, t.in.call.arg[i].cols));
	for (int i = 0; i < c->call.n && ok; i++) {
		const struct fo_tensor *out = &t.naive.call.arg[i];
		double bound = 4 * rounding_of(out->dtype) + 4 * 0x1p-24 * sqrt(depth);
		if (!fo_access_writes(c->spec[i].access))
			continue;
		struct fo_num_error e = error_of(&t.naive.call, &t.exact.call, i);
		/* The norm is of the sum as it was stored: summands that are off by 2^-9 move it by as much at most. */
		if (fo_op_family(c->call.kind) == FO_OPS_NORM && i > FO_ADD_RMSNORM_C &&
		    fo_access_writes(c->spec[FO_ADD_RMSNORM_C].access) &&
		    t.in.call.arg[FO_ADD_RMSNORM_C].dtype == FO_BF16)
			bound += 0x1p-9;
		keep_nearest(margin, fmax(e.l2, e.worst), bound);
		ok = e.l2 <= bound && e.worst <= bound;
		if (!ok)
			snprintf(why, size,
				 "%s: operand %d: relative error %.3g, worst element %.3g, at most %.3g is allowed",
				 c->name, i, e.l2, e.worst, bound);
	}
	trial_fini(&t);
	return ok;
}
