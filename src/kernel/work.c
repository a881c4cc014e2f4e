#include "kernel/work.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/count.h"
#include "kernel/memory.h"

#include <math.h>
#include <string.h>

const char *const fo_work_pass_name[FO_WORK_PASSES] = { "forward", "dgrad", "wgrad" };

/* The access of each operand by the operations table: what is written is stored here. */
static void take_access(struct fo_work *w)
{
	const struct fo_op_info *op = fo_op_info(w->call.kind);
	for (int i = 0; i < w->call.n; i++)
		w->access[i] = op->operand[i].modes >> FO_DEF & 1 ? FO_DEF : FO_READ;
}

/* Derives from the operands which are stored, how many bytes move and which kernel runs. */
static void finish(struct fo_work *w, enum fo_isa isa, uint32_t first, int threads)
{
	struct fo_call *c = &w->call;
	c->threads = threads;
	w->bytes = 0;
	for (int i = 0; i < c->n; i++) {
		int a = w->access[i];
		double size = (double)(c->arg[i].rows * c->arg[i].cols) * (double)fo_dtype_bytes(c->arg[i].dtype);
		w->bytes += size * (a == FO_UPDATE ? 2 : 1);
		if (a == FO_DEF || a == FO_PART || (a == FO_ACC && first >> i & 1))
			c->first |= 1u << i;
	}
	w->kernel = fo_kernel_pick(isa, c, &w->set);
	c->ws_bytes = w->kernel->ws ? w->kernel->ws(c) : 0;
}

static struct fo_tensor shape(int64_t rows, int64_t cols, int dtype)
{
	return (struct fo_tensor){ .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
}

void fo_work_linear(struct fo_work *w, enum fo_isa isa, enum fo_work_pass pass, int64_t tokens, int64_t out, int64_t in,
		    int dtype, int threads)
{
	const struct fo_tensor x = shape(tokens, in, dtype), y = shape(tokens, out, dtype),
			       weights = shape(out, in, dtype), gradient = shape(out, in, FO_F32);
	*w = (struct fo_work){ .flop = 2.0 * (double)tokens * (double)out * (double)in };
	if (pass == FO_WORK_FORWARD)
		w->call = fo_call_matmul(x, false, weights, true, y, true);
	else if (pass == FO_WORK_DGRAD)
		w->call = fo_call_matmul(y, false, weights, false, x, true);
	else
		w->call = fo_call_matmul(y, true, x, false, gradient, true);
	take_access(w);
	if (pass == FO_WORK_WGRAD)
		w->access[FO_MATMUL_C] = FO_ACC;
	finish(w, isa, UINT32_MAX, threads);
}

/* First row of the document that row i lies in, with rows dealt out evenly. */
static int64_t document_start(int64_t i, int64_t rows, int64_t docs)
{
	return (i * docs / rows * rows + docs - 1) / docs;
}

void fo_work_attention(struct fo_work *w, enum fo_isa isa, bool backward, int64_t tokens, int64_t docs, int64_t heads,
		       int64_t kv_heads, int64_t head_dim, int dtype, int threads)
{
	enum fo_attention_form form = backward ? FO_ATTENTION_BACKWARD : FO_ATTENTION_FORWARD;
	double pairs = 0;
	for (int64_t i = 0; i < tokens; i++)
		pairs += (double)(i - document_start(i, tokens, docs) + 1);
	*w = (struct fo_work){ .call = fo_call_attention(form, tokens, 0, heads, kv_heads, head_dim, dtype),
			       .flop = (backward ? 10.0 : 4.0) * (double)(heads * head_dim) * pairs };
	take_access(w);
	finish(w, isa, UINT32_MAX, threads);
}

void fo_work_attention_eager(struct fo_work *w, enum fo_isa isa, bool backward, int64_t tokens, int64_t seq,
			     int64_t heads, int64_t kv_heads, int64_t head_dim, int dtype, int threads)
{
	enum fo_attention_form form = backward ? FO_ATTENTION_BACKWARD_EAGER : FO_ATTENTION_FORWARD_EAGER;
	double pairs = (double)tokens * (double)seq;
	*w = (struct fo_work){ .call = fo_call_attention(form, tokens, seq, heads, kv_heads, head_dim, dtype),
			       .flop = (backward ? 8.0 : 4.0) * (double)(heads * head_dim) * pairs };
	take_access(w);
	finish(w, isa, UINT32_MAX, threads);
}

static const char *name_of(const struct fo_work *w, int i)
{
	return fo_op_info(w->call.kind)->operand[fo_op_operand_row(w->call.kind, i)].name;
}
static bool is_named(const struct fo_work *w, int i, const char *name) { return !strcmp(name_of(w, i), name); }

void fo_work_of_op(struct fo_work *w, enum fo_isa isa, const struct fo_program *p, const struct fo_op *o,
		   uint32_t first, int threads)
{
	struct fo_cost cost = fo_op_cost(p, o, -1);
	*w = (struct fo_work){ .call = { .kind = o->kind, .n = o->n, .attr = o->attr } };
	for (int i = 0; i < o->n; i++) {
		w->call.arg[i] = shape(o->arg[i].nr, o->arg[i].nc, p->buf[o->arg[i].buf].dtype);
		w->call.arg[i].ld = p->buf[o->arg[i].buf].cols;
		w->access[i] = o->arg[i].access;
	}
	finish(w, isa, first, threads);
	w->flop = cost.exec;
	w->bytes = cost.bytes;
	/* Rows of the embedding's gradient are added to in every micro-batch; the first one clears the whole table. */
	for (int i = 0; i < o->n; i++)
		if (is_named(w, i, "dtable") && fo_call_stores(&w->call, i))
			w->bytes += (double)w->call.arg[i].rows * (double)w->call.arg[i].cols *
				    (double)fo_dtype_bytes(w->call.arg[i].dtype);
}

/* ---- memory ---- */

/* The least size of a region of numbers that are copied again and again. */
#define NUMBERS_LEAST ((size_t)1 << 20)
/* Places in the f64 region: the hyper buffer, a norm's scale, room to be written. */
enum { HYPER_AT = 0, SCALE_AT = 16, SCRATCH_AT = 32, F64_COUNT = 64 };

static int region_of(const struct fo_work *w, int i)
{
	bool writes = fo_access_writes(w->access[i]);
	switch (w->call.arg[i].dtype) {
	case FO_F32: return writes ? FO_WORK_WRITE_F32 : FO_WORK_READ_F32;
	case FO_I16:  /* any bits are a low half */
	case FO_E4M3: /* or a small number, seldom NaN, which takes no longer */
	case FO_E5M2:
	case FO_BF16: return writes ? FO_WORK_WRITE_BF16 : FO_WORK_READ_BF16;
	case FO_I32: return is_named(w, i, "doc_start") ? FO_WORK_DOCS : FO_WORK_INDEX;
	default: return FO_WORK_F64;
	}
}

static size_t operand_bytes(const struct fo_tensor *t)
{
	return fo_round_up_bytes((size_t)(t->rows * t->ld) * fo_dtype_bytes(t->dtype), 64);
}

static void needs(const struct fo_work *w, size_t need[FO_WORK_REGIONS])
{
	memset(need, 0, FO_WORK_REGIONS * sizeof *need);
	for (int i = 0; i < w->call.n; i++) {
		int r = region_of(w, i);
		size_t bytes = operand_bytes(&w->call.arg[i]);
		if (r == FO_WORK_INDEX || r == FO_WORK_DOCS)
			need[r] = bytes > need[r] ? bytes : need[r]; /* all indices are the same numbers */
		else
			need[r] += bytes;
	}
	need[FO_WORK_F64] = F64_COUNT * sizeof(double);
	need[FO_WORK_SPACE] = w->call.ws_bytes;
}

size_t fo_work_bytes(const struct fo_work *w)
{
	size_t need[FO_WORK_REGIONS], most = 0;
	needs(w, need);
	for (int r = 0; r < FO_WORK_REGIONS; r++)
		most = need[r] > most ? need[r] : most;
	return most;
}

void fo_work_data_need(struct fo_work_data *d, const struct fo_work *w)
{
	size_t need[FO_WORK_REGIONS];
	needs(w, need);
	for (int r = 0; r < FO_WORK_REGIONS; r++)
		d->bytes[r] = need[r] > d->bytes[r] ? need[r] : d->bytes[r];
	/* Operands that are updated in place are copied from the numbers to read, some of them many times. */
	for (int r = FO_WORK_WRITE_F32; r <= FO_WORK_WRITE_BF16; r++)
		if (d->bytes[r] && d->bytes[r - 2] < NUMBERS_LEAST)
			d->bytes[r - 2] = NUMBERS_LEAST;
}

fo_status fo_work_data_new(struct fo_work_data *d)
{
	for (int r = 0; r < FO_WORK_REGIONS; r++) {
		void *p = NULL;
		fo_status st = d->bytes[r] ? fo_pages_new(d->bytes[r], &p) : FO_OK;
		if (st != FO_OK) {
			fo_work_data_free(d);
			return st;
		}
		d->at[r] = p;
	}
	/* The regions to write are touched as well, so that no kernel's first run finds new pages. */
	int64_t singles = (int64_t)(d->bytes[FO_WORK_READ_F32] / 4),
		halves = (int64_t)(d->bytes[FO_WORK_READ_BF16] / 2);
#pragma omp parallel
	{
#pragma omp for nowait
		for (int64_t i = 0; i < singles; i++)
			((float *)d->at[FO_WORK_READ_F32])[i] = (float)(fo_rng_uniform(1, (uint64_t)i) - 0.5);
#pragma omp for nowait
		for (int64_t i = 0; i < halves; i++)
			((uint16_t *)d->at[FO_WORK_READ_BF16])[i] = fo_bf16_from_f32(
				(float)(fo_rng_uniform(2, (uint64_t)i) - 0.5));
	}
	for (int r = FO_WORK_WRITE_F32; r <= FO_WORK_WRITE_BF16; r++)
		if (d->bytes[r])
			memset(d->at[r], 0, d->bytes[r]);
	static const double hyper[FO_HYPER_COUNT] = {
		[FO_HYPER_LR] = 1e-6,  [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95,
		[FO_HYPER_EPS] = 1e-8, [FO_HYPER_DECAY] = .1,  [FO_HYPER_CORR1] = 1,
		[FO_HYPER_CORR2] = 1,  [FO_HYPER_CLIP] = 1,    [FO_HYPER_INV_TOKENS] = 1e-3,
	};
	double *f64 = (double *)d->at[FO_WORK_F64];
	if (f64) {
		memcpy(f64 + HYPER_AT, hyper, sizeof hyper);
		f64[SCALE_AT] = f64[SCALE_AT + 1] = 1;
	}
	return FO_OK;
}

void fo_work_data_free(struct fo_work_data *d)
{
	for (int r = 0; r < FO_WORK_REGIONS; r++)
		if (d->at[r])
			fo_pages_free(d->at[r], d->bytes[r]);
	*d = (struct fo_work_data){ 0 };
}

static void *f64_place(const struct fo_work *w, int i, double *f64)
{
	if (is_named(w, i, "hyper"))
		return f64 + HYPER_AT;
	return f64 + (is_named(w, i, "scale") && !fo_access_writes(w->access[i]) ? SCALE_AT : SCRATCH_AT);
}

/* Fills `bytes` bytes with copies of the first `have` bytes of `from`. */
static void copy_numbers(void *to, size_t bytes, const void *from, size_t have)
{
	for (size_t at = 0; at < bytes; at += have)
		memcpy((unsigned char *)to + at, from, bytes - at < have ? bytes - at : have);
}

/* Indices lie below the rows of a table, or the columns of the logits. */
static int64_t index_limit(const struct fo_work *w)
{
	for (int i = 0; i < w->call.n; i++) {
		if (is_named(w, i, "table") || is_named(w, i, "dtable"))
			return w->call.arg[i].rows;
		if (is_named(w, i, "logits"))
			return w->call.arg[i].cols;
	}
	return 1;
}

/* Positions count up, tokens and targets come in any order. */
static void fill_indices(const struct fo_work *w, int i, int32_t *to)
{
	const uint64_t limit = (uint64_t)index_limit(w);
	bool positions = is_named(w, i, "position");
	for (int64_t k = 0; k < w->call.arg[i].rows; k++)
		to[k] = (int32_t)((positions ? (uint64_t)k : fo_rng_u64(4, (uint64_t)k)) % limit);
}

/* Second moments are not negative. */
static void make_positive(struct fo_tensor *t)
{
	for (int64_t i = 0; i < t->rows * t->ld; i++) {
		if (t->dtype == FO_BF16)
			((uint16_t *)t->data)[i] &= 0x7fff;
		else
			((float *)t->data)[i] = fabsf(((float *)t->data)[i]);
	}
}

void fo_work_bind(struct fo_work *w, const struct fo_work_data *d, int64_t docs)
{
	size_t used[FO_WORK_REGIONS] = { 0 };
	for (int i = 0; i < w->call.n; i++) {
		struct fo_tensor *t = &w->call.arg[i];
		int r = region_of(w, i);
		if (r == FO_WORK_F64) {
			t->data = f64_place(w, i, (double *)d->at[r]);
			continue;
		}
		t->data = d->at[r] + used[r];
		if (r == FO_WORK_INDEX)
			fill_indices(w, i, t->data);
		if (r == FO_WORK_DOCS)
			for (int64_t k = 0; k < t->rows; k++)
				((int32_t *)t->data)[k] = (int32_t)document_start(k, t->rows, docs);
		if (w->access[i] == FO_UPDATE && (r == FO_WORK_WRITE_F32 || r == FO_WORK_WRITE_BF16)) {
			copy_numbers(t->data, operand_bytes(t), d->at[r - 2], d->bytes[r - 2]);
			if (is_named(w, i, "v")) /* of adamw */
				make_positive(t);
		}
		used[r] += r == FO_WORK_INDEX || r == FO_WORK_DOCS ? 0 : operand_bytes(t);
	}
	w->call.ws = d->at[FO_WORK_SPACE];
}

bool fo_work_arrange(const struct fo_work *w, uint32_t cold, int64_t cache_bytes)
{
	for (int evict = 0; evict < 2; evict++)
		for (int i = 0; i < w->call.n; i++) {
			const struct fo_tensor *t = &w->call.arg[i];
			size_t row = (size_t)t->cols * fo_dtype_bytes(t->dtype),
			       stride = (size_t)t->ld * fo_dtype_bytes(t->dtype);
			bool is_cold = cold >> i & 1;
			if (is_cold != evict || row * (size_t)t->rows > 2 * (size_t)cache_bytes)
				continue;
			if (!evict)
				fo_cache_fetch(t->data, (size_t)t->rows, row, stride, w->call.threads);
			else if (!fo_cache_evict(t->data, (size_t)t->rows, row, stride, w->call.threads))
				return false;
		}
	return true;
}

void fo_work_run(void *work)
{
	const struct fo_work *w = work;
	w->kernel->run(&w->call);
}
