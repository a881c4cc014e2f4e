/* Attention by cuDNN: which plan serves the documents of a micro-batch, the workspace around it, and the calls.
 *
 * Documents of equal length that is a multiple of 128 take a fixed plan. All others take a ragged one, with room for a
 * number of documents and a length that are rounded up, so that a few plans serve all micro-batches. A plan's blocks
 * that find nothing to do still cost time (there are documents x heads x longest / 64 of them), so both numbers are
 * kept close to the data. Documents of one token are our own (attention_docs.cu): padding comes as thousands of such.
 */
#include "kernel/cuda/cudnn.h"

#include <math.h>
#include <string.h>

/* A fixed plan needs documents of whole multiples of 128 tokens: with S % 128 = 64 and no padding mask, Hopper's
 * backward gave NaN (pytorch issue 196678). */
enum {
	SEQ_UNIT = 128,    /* length unit of a fixed plan (below) */
	DOCS_LEAST = 16,   /* documents of the smallest ragged plan; the next have 4 times as many */
	DOCS_MOST = 16384, /* documents of the largest: a grid's third dimension ends at 65,535 */
	DIM_UNIT = 16,     /* of head sizes; ragged plans have a known fault for others (cuDNN's front end) */
	DIM_MOST = 256,
	AMPERE = 8,       /* and ragged plans on this generation */
	ROW_MARGIN = 256, /* rows after a scratch of tokens, for whole tiles */
	PIECE = 256,      /* alignment of workspace pieces in bytes */
};

/* ---- variants ---- 0: our own kernels. Else bit 0 says that the plan is fixed. Fixed: the bits above are the number
 * of documents. Ragged: bits 1 to 7 are log2 of the documents, the bits from 8 on log2 of the longest. */

static int log2_up(int64_t n)
{
	int k = 0;
	while ((int64_t)1 << k < n)
		k++;
	return k;
}
static int64_t ragged_variant(int64_t documents, int64_t longest)
{
	int64_t room = DOCS_LEAST;
	while (room < documents)
		room *= 4;
	if (room > DOCS_MOST)
		return FO_CUDA_DOCS_OWN;
	return (int64_t)log2_up(fo_max(longest, SEQ_UNIT)) << 8 | (int64_t)log2_up(room) << 1;
}
static int64_t tokens_of(const struct fo_call *s) { return s->arg[FO_ATTENTION_Q].rows; }

void fo_cuda_docs_of(const struct fo_call *s, int64_t variant, int64_t *documents, int64_t *longest, bool *ragged)
{
	const int64_t tokens = tokens_of(s), all = fo_round_up(tokens, SEQ_UNIT);
	*ragged = !(variant & 1);
	if (!*ragged) {
		*documents = variant >> 1;
		*longest = tokens / *documents;
		return;
	}
	*documents = (int64_t)1 << (variant >> 1 & 0x7f);
	*longest = fo_min((int64_t)1 << (variant >> 8), all);
}

int64_t fo_cuda_docs_variant(const struct fo_call *s, const int32_t *doc_start)
{
	const int64_t tokens = tokens_of(s), ld = fo_cuda_doc_of(s)->ld;
	int64_t documents = 0, several = 0, longest = 0, first = 0;
	bool equal = true;
	if (tokens < 2)
		return FO_CUDA_DOCS_OWN;
	if (!doc_start)
		return ragged_variant(fo_min(tokens / 2, DOCS_MOST), tokens);
	for (int64_t i = 0, start = 0; i < tokens; i++) {
		if (i + 1 < tokens && doc_start[(i + 1) * ld] <= i)
			continue;
		int64_t length = i + 1 - start;
		first = documents ? first : length;
		equal &= length == first;
		longest = fo_max(length, longest);
		several += length > 1;
		documents++;
		start = i + 1;
	}
	return equal && first % SEQ_UNIT == 0 ? documents << 1 | 1 : ragged_variant(several, longest);
}

int64_t fo_cuda_docs_merge(const struct fo_call *s, int64_t a, int64_t b)
{
	int64_t documents[2], longest[2];
	bool ragged;
	if (a == b)
		return a;
	if (a == FO_CUDA_DOCS_OWN || b == FO_CUDA_DOCS_OWN)
		return FO_CUDA_DOCS_OWN;
	fo_cuda_docs_of(s, a, &documents[0], &longest[0], &ragged);
	fo_cuda_docs_of(s, b, &documents[1], &longest[1], &ragged);
	return ragged_variant(fo_max(documents[0], documents[1]), fo_max(longest[0], longest[1]));
}

/* ---- what cuDNN takes ---- */

/* The operands that cuDNN knows, in the order of enum fo_dnn_id. */
enum { FORWARD_OPERANDS = 5, BACKWARD_OPERANDS = 9 };
static const int8_t forward_operand[FORWARD_OPERANDS] = { FO_ATTENTION_Q, FO_ATTENTION_K, FO_ATTENTION_V,
							  FO_ATTENTION_O, FO_ATTENTION_LSE };
static const int8_t backward_operand[BACKWARD_OPERANDS] = {
	FO_ATTENTION_BWD_Q,  FO_ATTENTION_BWD_K,  FO_ATTENTION_BWD_V,  FO_ATTENTION_BWD_O, FO_ATTENTION_BWD_LSE,
	FO_ATTENTION_BWD_DO, FO_ATTENTION_BWD_DQ, FO_ATTENTION_BWD_DK, FO_ATTENTION_BWD_DV
};
/* Operand i of these; NULL after the last. */
static const struct fo_tensor *dnn_operand(const struct fo_call *s, int i)
{
	if (fo_cuda_is_backward(s))
		return i < BACKWARD_OPERANDS ? &s->arg[backward_operand[i]] : NULL;
	return i < FORWARD_OPERANDS ? &s->arg[forward_operand[i]] : NULL;
}
static bool is_dense(const struct fo_tensor *t) { return t->ld == t->cols; }

/* Whether k, v, dk and dv pass through rows without gaps. Ragged, the gradient of each query head has rows heads / kv
 * times as long as those of dk: in a row that q, k and v share they would take four times the memory (Llama-3.1-8B,
 * 32,768 tokens: 3.2 GB instead of 0.5). Copies take 1 % of attention's time. */
static bool passes_dense(const struct fo_call *s, const struct fo_dnn_shape *d)
{
	const struct fo_tensor *a = s->arg;
	return d->ragged && d->backward && d->heads != d->kv &&
	       !(is_dense(&a[FO_ATTENTION_BWD_K]) && is_dense(&a[FO_ATTENTION_BWD_V]) &&
		 is_dense(&a[FO_ATTENTION_BWD_DK]) && is_dense(&a[FO_ATTENTION_BWD_DV]));
}

static bool layouts_fit(const struct fo_call *s)
{
	const struct fo_tensor *a = s->arg, *t;
	const bool backward = fo_cuda_is_backward(s);
	const struct fo_tensor *lse = &a[backward ? FO_ATTENTION_BWD_LSE : FO_ATTENTION_LSE];
	for (int i = 0; (t = dnn_operand(s, i)); i++)
		if (t != lse && (t->dtype != FO_BF16 || t->ld % 8))
			return false;
	if (lse->dtype != FO_F32)
		return false;
	/* In ragged plans one offset serves a value and its gradient. */
	return !backward || (a[FO_ATTENTION_BWD_Q].ld == a[FO_ATTENTION_BWD_DQ].ld &&
			     a[FO_ATTENTION_BWD_O].ld == a[FO_ATTENTION_BWD_DO].ld &&
			     a[FO_ATTENTION_BWD_K].ld == a[FO_ATTENTION_BWD_DK].ld &&
			     a[FO_ATTENTION_BWD_V].ld == a[FO_ATTENTION_BWD_DV].ld);
}

bool fo_cuda_dnn_may(const struct fo_cuda *c, const struct fo_call *s, int64_t variant)
{
	if (!c->dnn_handle || variant == FO_CUDA_DOCS_OWN || (!(variant & 1) && c->info.cc_major == AMPERE))
		return false;
	return s->attr.head_dim % DIM_UNIT == 0 && s->attr.head_dim <= DIM_MOST && layouts_fit(s);
}

static struct fo_dnn_shape shape_of(const struct fo_call *s, int64_t variant, bool unfinished)
{
	const struct fo_tensor *t;
	const int64_t dim = s->attr.head_dim;
	struct fo_dnn_shape d = { .tokens = tokens_of(s),
				  .heads = s->arg[FO_ATTENTION_Q].cols / dim,
				  .kv = s->arg[FO_ATTENTION_K].cols / dim,
				  .dim = dim,
				  .backward = fo_cuda_is_backward(s),
				  .unfinished = unfinished };
	bool ragged;
	fo_cuda_docs_of(s, variant, &d.batch, &d.seq, &ragged);
	d.ragged = ragged;
	d.window = s->attr.window < d.seq ? s->attr.window : 0;
	for (int i = 0; (t = dnn_operand(s, i)); i++)
		d.ld[FO_DNN_Q + i] = t->ld;
	if (passes_dense(s, &d))
		d.ld[FO_DNN_K] = d.ld[FO_DNN_V] = d.ld[FO_DNN_DK] = d.ld[FO_DNN_DV] = d.kv * dim;
	return d;
}

/* ---- workspace ---- */

struct pieces {
	size_t plan, length, offset[FO_CUDA_DOCS_OFFSETS], unfit, rowsum, dq_sum, dk_full, dv_full, dense[4], bytes;
};
static size_t piece(size_t *end, int64_t bytes)
{
	size_t at = *end;
	*end += fo_round_up_bytes((size_t)bytes, PIECE);
	return at;
}
static struct pieces pieces_of(const struct fo_call *s, const struct fo_dnn_shape *d, int64_t plan_bytes)
{
	struct pieces w = { 0 };
	const int64_t rows = d->ragged ? d->tokens + ROW_MARGIN : d->tokens, row = d->heads * d->dim;
	w.plan = piece(&w.bytes, plan_bytes);
	if (d->ragged) {
		w.length = piece(&w.bytes, d->batch * 4);
		for (int i = 0; i < FO_CUDA_DOCS_OFFSETS; i++)
			w.offset[i] = piece(&w.bytes, (d->batch + 1) * 8);
		w.unfit = piece(&w.bytes, 4);
	}
	if (!d->backward)
		return w;
	w.rowsum = piece(&w.bytes, rows * (d->ragged ? d->ld[FO_DNN_LSE] : d->heads) * 4);
	w.dq_sum = piece(&w.bytes, rows * (d->ragged ? d->ld[FO_DNN_DQ] : row) * 4);
	if ((d->ragged || d->unfinished) && d->heads != d->kv) {
		w.dk_full = piece(&w.bytes, rows * row * 2);
		w.dv_full = piece(&w.bytes, rows * row * 2);
	}
	for (int i = 0; passes_dense(s, d) && i < 4; i++)
		w.dense[i] = piece(&w.bytes, rows * d->kv * d->dim * 2);
	return w;
}

/* ---- running ---- */

enum { WIDTH = 8 };
static int64_t finish_items(const struct fo_call *s)
{
	const struct fo_tensor *q = &s->arg[FO_ATTENTION_Q], *k = &s->arg[FO_ATTENTION_K];
	return q->rows * ((q->cols + 2 * k->cols) / s->attr.head_dim) * (s->attr.head_dim / 2 / WIDTH);
}

/* Whether an unfinished plan may serve: then a kernel of ours turns its gradients while it rounds them. */
static bool may_be_unfinished(const struct fo_call *s)
{
	const struct fo_tensor *table = &s->arg[FO_ATTENTION_BWD_ROPE_TABLE];
	return fo_cuda_is_turned(s) && table->dtype == FO_F32 && table->ld % 4 == 0 && finish_items(s) <= INT_MAX;
}
static const struct fo_cuda_plan *plan_of(const struct fo_cuda *c, const struct fo_call *s, int64_t variant)
{
	if (!fo_cuda_dnn_may(c, s, variant))
		return NULL;
	for (int unfinished = may_be_unfinished(s); unfinished >= 0; unfinished--) {
		const struct fo_dnn_shape d = shape_of(s, variant, unfinished);
		const struct fo_cuda_plan *p = fo_cuda_plan_find(c, &d);
		if (p && !*p->why)
			return p;
	}
	return NULL;
}

struct scalars {
	float scale, minus_inf, one, window;
};
static void point(void **at, const struct fo_call *s, const struct fo_dnn_shape *d, const struct pieces *w, char *ws,
		  struct scalars *x)
{
	const struct fo_tensor *t;
	for (int i = 0; (t = dnn_operand(s, i)); i++)
		at[FO_DNN_Q + i] = t->data;
	*x = (struct scalars){ (float)s->attr.value, -INFINITY, 1, (float)d->window };
	at[FO_DNN_SCALE] = &x->scale;
	at[FO_DNN_MINUS_INF] = &x->minus_inf;
	at[FO_DNN_ONE] = &x->one;
	at[FO_DNN_WINDOW] = &x->window;
	at[FO_DNN_LENGTH] = ws + w->length;
	for (int i = 0; i < FO_CUDA_DOCS_OFFSETS; i++)
		at[FO_DNN_OFFSET_Q + i] = ws + w->offset[i];
	at[FO_DNN_ROWSUM] = ws + w->rowsum;
	at[FO_DNN_DQ_SUM] = ws + w->dq_sum;
	at[FO_DNN_DK_FULL] = ws + w->dk_full;
	at[FO_DNN_DV_FULL] = ws + w->dv_full;
	if (passes_dense(s, d)) {
		at[FO_DNN_K] = ws + w->dense[0];
		at[FO_DNN_V] = ws + w->dense[1];
		at[FO_DNN_DK] = ws + w->dense[2];
		at[FO_DNN_DV] = ws + w->dense[3];
	}
}

/* Copies two operands from (in) or to the rows without gaps at d0 and d1. */
static fo_status copy_two(struct fo_cuda_queue *q, const struct fo_tensor *a, const struct fo_tensor *b, void *d0,
			  void *d1, bool in)
{
	struct fo_cuda_view op[2] = { fo_cuda_view_of(a), fo_cuda_view_of(b) }, dense[2] = { op[0], op[1] };
	for (int i = 0; i < 2; i++) {
		dense[i].data = i ? d1 : d0;
		dense[i].ld = dense[i].cols;
	}
	struct fo_cuda_attention_copy_args args;
	memcpy(args.from, in ? op : dense, sizeof op);
	memcpy(args.to, in ? dense : op, sizeof op);
	return fo_cuda_launch_each(q, FO_CUDA_FN_attention_copy, a->rows * a->cols / WIDTH, &args);
}

static fo_status run_docs(struct fo_cuda_queue *q, const struct fo_call *s, const struct fo_dnn_shape *d,
			  const struct pieces *w)
{
	char *ws = q->ws;
	struct fo_cuda_attention_docs_args args = {
		.doc = fo_cuda_view_of(fo_cuda_doc_of(s)),
		.length = (int32_t *)(void *)(ws + w->length),
		.unfit = (int32_t *)(void *)(ws + w->unfit),
		.documents = (int32_t)d->batch,
		.longest = (int32_t)d->seq,
	};
	for (int i = 0; i < FO_CUDA_DOCS_OFFSETS; i++) {
		args.offset[i] = (int64_t *)(void *)(ws + w->offset[i]);
		args.ld[i] = d->ld[FO_DNN_Q + i];
	}
	return fo_cuda_launch(q, FO_CUDA_FN_attention_docs, (struct fo_cuda_grid){ 1, 1, 1, FO_CUDA_DOCS_THREADS, 0 },
			      &args);
}

static fo_status run_lone(struct fo_cuda_queue *q, const struct fo_call *s, const struct fo_dnn_shape *d,
			  const struct pieces *w)
{
	struct fo_cuda_attention_lone_args args = {
		.doc = fo_cuda_view_of(fo_cuda_doc_of(s)),
		.unfit = (const int32_t *)(void *)((char *)q->ws + w->unfit),
		.scale = (float)s->attr.value,
		.dim = (int32_t)d->dim,
		.heads = (int32_t)d->heads,
		.group = (int32_t)(d->heads / d->kv),
	};
	if (d->backward) /* do, dq, dk, dv */
		fo_cuda_views(&args.dout, s, backward_operand + FORWARD_OPERANDS, BACKWARD_OPERANDS - FORWARD_OPERANDS);
	else
		fo_cuda_views(&args.q, s, forward_operand, FORWARD_OPERANDS);
	return fo_cuda_launch_blocks(q, d->backward ? FO_CUDA_FN_attention_lone_bwd : FO_CUDA_FN_attention_lone,
				     fo_cuda_blocks(q->cuda, d->tokens, FO_CUDA_THREADS / 32), &args);
}

static fo_status turn(struct fo_cuda_queue *q, const struct fo_call *s, int operand)
{
	struct fo_call c = { .n = FO_ROPE_TABLE + 1, .attr = s->attr };
	c.arg[FO_ROPE_X] = s->arg[operand];
	c.arg[FO_ROPE_POSITION] = s->arg[FO_ATTENTION_BWD_ROPE_POSITION];
	c.arg[FO_ROPE_TABLE] = s->arg[FO_ATTENTION_BWD_ROPE_TABLE];
	return fo_cuda_rope.run(q, &c, 0);
}
fo_status fo_cuda_attention_turn(struct fo_cuda_queue *q, const struct fo_call *s)
{
	FO_TRY(turn(q, s, FO_ATTENTION_BWD_DQ));
	return turn(q, s, FO_ATTENTION_BWD_DK);
}

static fo_status run_finish(struct fo_cuda_queue *q, const struct fo_call *s, const struct fo_dnn_shape *d,
			    const struct pieces *w)
{
	static const int8_t operand[] = { FO_ATTENTION_BWD_DQ,
					  FO_ATTENTION_BWD_DK,
					  FO_ATTENTION_BWD_DV,
					  FO_ATTENTION_BWD_DOC_START,
					  FO_ATTENTION_BWD_ROPE_POSITION,
					  FO_ATTENTION_BWD_ROPE_TABLE };
	const int64_t half = d->dim / 2, items = finish_items(s);
	char *ws = q->ws;
	struct fo_cuda_attention_finish_args args = {
		.sum = (const float *)(const void *)(ws + w->dq_sum),
		.dk_full = (const uint16_t *)(const void *)(ws + w->dk_full),
		.dv_full = (const uint16_t *)(const void *)(ws + w->dv_full),
		/* as a fixed graph has it: the heads of a document one after another */
		.sum_doc = d->heads * d->seq * d->dim,
		.sum_head = d->seq * d->dim,
		.sum_row = d->dim,
		.per_row = fo_cuda_divisor_of((uint32_t)(items / d->tokens)),
		.per_head = fo_cuda_divisor_of((uint32_t)(half / WIDTH)),
		.rows_per_doc = fo_cuda_divisor_of((uint32_t)d->seq),
		.items = (uint32_t)items,
		.heads = (int32_t)d->heads,
		.kv = (int32_t)d->kv,
		.group = (int32_t)(d->heads / d->kv),
		.half = (int32_t)half,
		.leave_lone = d->ragged != 0,
		.sign = s->attr.sign,
	};
	fo_cuda_views(&args.dq, s, operand, sizeof operand);
	if (d->ragged) { /* rows of tokens */
		args.sum_doc = 0, args.sum_head = d->dim, args.sum_row = d->ld[FO_DNN_DQ];
		args.rows_per_doc = fo_cuda_divisor_of((uint32_t)d->tokens);
	}
	return fo_cuda_launch_blocks(q, FO_CUDA_FN_attention_finish, fo_ceil_div(items, FO_CUDA_THREADS), &args);
}

static fo_status run_plan(struct fo_cuda_queue *q, const struct fo_call *s, const struct fo_cuda_plan *p)
{
	const struct fo_dnn_shape *d = &p->shape;
	const struct pieces w = pieces_of(s, d, p->made.workspace);
	const bool dense = passes_dense(s, d);
	char *ws = q->ws;
	void *at[FO_DNN_IDS] = { NULL };
	struct scalars x;
	point(at, s, d, &w, ws, &x);
	if (d->ragged)
		FO_TRY(run_docs(q, s, d, &w));
	if (dense)
		FO_TRY(copy_two(q, &s->arg[FO_ATTENTION_BWD_K], &s->arg[FO_ATTENTION_BWD_V], at[FO_DNN_K], at[FO_DNN_V],
				true));
	FO_TRY(fo_cuda_plan_run(q, p, at, ws + w.plan));
	if (d->unfinished)
		FO_TRY(run_finish(q, s, d, &w));
	else if (dense)
		FO_TRY(copy_two(q, &s->arg[FO_ATTENTION_BWD_DK], &s->arg[FO_ATTENTION_BWD_DV], at[FO_DNN_DK],
				at[FO_DNN_DV], false));
	if (d->ragged)
		FO_TRY(run_lone(q, s, d, &w)); /* writes zeros, which need no turning */
	return fo_cuda_is_turned(s) && !d->unfinished ? fo_cuda_attention_turn(q, s) : FO_OK;
}

fo_status fo_cuda_dnn_run(struct fo_cuda_queue *q, const struct fo_call *s, int64_t variant, bool *taken)
{
	const struct fo_cuda_plan *p = plan_of(q->cuda, s, variant);
	*taken = p;
	for (int i = 0; p && i < s->n; i++)
		if ((uintptr_t)s->arg[i].data % 16 && s->arg[i].dtype != FO_I32)
			*taken =
				false; /* cuDNN reads 16 bytes at a time; our own kernels find room in this workspace */
	return *taken ? run_plan(q, s, p) : FO_OK;
}

/* Checks that an unfinished plan sets its sum of dq to zero first, as cuDNN does for a finished plan; its documentation
 * does not say that it does. The plan has run on operands that are all zero and on workspace that holds NaN: the sum is
 * finite only if cuDNN cleared it. The sum itself is looked at, because dq may share its memory with other operands
 * here. In a ragged plan only the rows of the one document count (lay_out). */
static fo_status adds_to_nothing(struct fo_cuda_queue *q, const struct fo_call *s, const struct fo_cuda_plan *p)
{
	struct fo_cuda *c = q->cuda;
	const struct fo_dnn_shape *d = &p->shape;
	const struct pieces w = pieces_of(s, d, p->made.workspace);
	const int64_t first = fo_min(d->seq, d->tokens);
	struct fo_tensor sum = { .data = (char *)q->ws + w.dq_sum,
				 .rows = d->tokens * d->heads,
				 .cols = d->dim,
				 .ld = d->dim,
				 .dtype = FO_F32 };
	if (d->ragged)
		sum.rows = first, sum.cols = d->heads * d->dim, sum.ld = d->ld[FO_DNN_DQ];
	int64_t *found = NULL;
	void *at = NULL;
	fo_status st;
	FO_TRY_OR(st, fo_cuda_alloc(c, sizeof *found, &at), done);
	FO_TRY_OR(st, fo_cuda_host_alloc(c, sizeof *found, (void **)&found), done);
	FO_TRY_OR(st, fo_cuda_find_nonfinite(q, &sum, at), done);
	FO_TRY_OR(st, fo_cuda_copy_out(c, found, at, sizeof *found, q->stream), done);
	FO_TRY_OR(st, fo_cuda_stream_wait(c, q->stream), done);
	if (*found >= 0)
		fo_cuda_plan_refuse(c, p, "cuDNN adds gradients of queries to what memory held before");
done:
	fo_cuda_host_free(c, found);
	fo_cuda_free(c, at);
	return st;
}

/* Lays out operands for a trial run: all share one zeroed piece of memory except indices and the table, which no output
 * may touch. There is one document as long as the plan has them, then lone tokens: so many fit every plan. */
static fo_status lay_out(struct fo_cuda_queue *q, struct fo_call *c, const struct fo_dnn_shape *d, void **scratch)
{
	const int doc = d->backward ? FO_ATTENTION_BWD_DOC_START : FO_ATTENTION_DOC_START;
	enum { POSITION = FO_ATTENTION_BWD_ROPE_POSITION, TABLE = FO_ATTENTION_BWD_ROPE_TABLE };
	const bool turned = fo_cuda_is_turned(c);
	const int64_t tokens = tokens_of(c);
	size_t shared = 0, bytes = 0;
	int32_t *start = NULL;
	for (int i = 0; i < c->n; i++) {
		size_t n = (size_t)(c->arg[i].rows * c->arg[i].ld) * fo_dtype_bytes(c->arg[i].dtype);
		shared = n > shared ? n : shared;
	}
	(void)piece(&bytes, (int64_t)shared);
	size_t docs = piece(&bytes, tokens * 4), positions = piece(&bytes, tokens * 4);
	size_t table = piece(&bytes, turned ? c->arg[TABLE].rows * c->arg[TABLE].ld * 4 : 0);
	FO_TRY(fo_cuda_alloc(q->cuda, bytes, scratch));
	for (int i = 0; i < c->n; i++)
		c->arg[i].data = *scratch;
	c->arg[doc].data = (char *)*scratch + docs;
	c->arg[doc].ld = 1;
	if (turned) {
		c->arg[POSITION].data = (char *)*scratch + positions;
		c->arg[POSITION].ld = 1;
		c->arg[TABLE].data = (char *)*scratch + table;
	}
	FO_TRY(fo_cuda_host_alloc(q->cuda, (size_t)tokens * sizeof *start, (void **)&start));
	for (int64_t i = 0; i < tokens; i++)
		start[i] = (int32_t)(i < d->seq ? 0 : i);
	fo_status st = fo_cuda_fill(q->cuda, *scratch, 0, bytes, q->stream);
	if (st == FO_OK)
		st = fo_cuda_copy_in(q->cuda, (char *)*scratch + docs, start, (size_t)tokens * sizeof *start,
				     q->stream);
	if (st == FO_OK)
		st = fo_cuda_stream_wait(q->cuda, q->stream);
	fo_cuda_host_free(q->cuda, start);
	return st;
}

/* Runs a plan once on memory that holds nothing of worth: this loads what is loaded at first use, which a capture would
 * not allow. It runs twice where the sum is looked at, because a step runs a plan again and again on the same memory.
 */
static fo_status try_out(struct fo_cuda *c, const struct fo_call *s, const struct fo_cuda_plan *p, size_t ws_bytes)
{
	struct fo_cuda_queue q = { .cuda = c, .ws_bytes = ws_bytes };
	struct fo_call call = *s;
	void *scratch = NULL;
	fo_status st = fo_cuda_stream_new(c, &q.stream);
	if (st == FO_OK)
		st = lay_out(&q, &call, &p->shape, &scratch);
	if (st == FO_OK)
		st = fo_cuda_alloc(c, ws_bytes, &q.ws);
	const bool room = st == FO_OK;
	if (st == FO_ENOMEM) { /* the step needs all memory: the first launch loads; what was not tried is not run */
		fo_err_clear();
		st = FO_OK;
		if (p->shape.unfinished)
			fo_cuda_plan_refuse(c, p, "there is no memory to try it in");
	}
	for (int turn = 0; room && st == FO_OK && !*p->why && turn <= (int)p->shape.unfinished; turn++) {
		st = fo_cuda_fill(c, q.ws, 0xff, ws_bytes, q.stream);
		if (st == FO_OK)
			st = run_plan(&q, &call, p);
		if (st == FO_OK && p->shape.unfinished)
			st = adds_to_nothing(&q, &call, p);
		if (st == FO_OK)
			st = fo_cuda_stream_wait(c, q.stream);
	}
	fo_cuda_stream_free(c, q.stream);
	fo_cuda_free(c, q.ws);
	fo_cuda_free(c, scratch);
	return st;
}

fo_status fo_cuda_dnn_prepare(struct fo_cuda *c, const struct fo_call *s, int64_t variant, size_t *ws_bytes,
			      bool *taken)
{
	const struct fo_cuda_plan *p = NULL;
	bool is_new = false;
	*taken = false;
	if (!fo_cuda_dnn_may(c, s, variant))
		return FO_OK;
	for (int unfinished = may_be_unfinished(s); unfinished >= 0 && !*taken; unfinished--) {
		const struct fo_dnn_shape d = shape_of(s, variant, unfinished);
		FO_TRY(fo_cuda_plan_get(c, &d, &p, &is_new));
		if (*p->why)
			continue;
		*ws_bytes = pieces_of(s, &d, p->made.workspace).bytes;
		if (is_new)
			FO_TRY(try_out(c, s, p, *ws_bytes));
		*taken = !*p->why;
	}
	return FO_OK;
}

size_t fo_cuda_dnn_ws_most(const struct fo_call *s)
{
	const int64_t ragged = fo_cuda_docs_variant(s, NULL), variant[2] = { 1 << 1 | 1, ragged };
	size_t most = 0;
	for (int i = 0; i < 2; i++)
		for (int unfinished = may_be_unfinished(s); variant[i] != FO_CUDA_DOCS_OWN && unfinished >= 0;
		     unfinished--) {
			const struct fo_dnn_shape d = shape_of(s, variant[i], unfinished);
			/* cuDNN 9.19's plans of backward: dk and dv of every query head in bf16; where these are ours,
			 * 8 to 30 KB. */
			const bool own = d.ragged || d.unfinished || !d.backward;
			const int64_t plan = own ? 1 << 20 : 2 * d.tokens * d.heads * d.dim * 2;
			const size_t bytes = pieces_of(s, &d, plan).bytes;
			most = bytes > most ? bytes : most;
		}
	return most;
}

const char *fo_cuda_dnn_why(const struct fo_cuda *c, const struct fo_call *s)
{
	const struct fo_cuda_plan *p = NULL;
	for (int i = 0; (p = fo_cuda_plan_at(c, i)); i++)
		if (*p->why && !p->shape.unfinished && p->shape.tokens == s->arg[FO_ATTENTION_Q].rows &&
		    p->shape.dim == s->attr.head_dim && p->shape.heads * p->shape.dim == s->arg[FO_ATTENTION_Q].cols &&
		    p->shape.backward == fo_cuda_is_backward(s))
			return p->why;
	return NULL;
}
