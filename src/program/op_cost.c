/* The costs of operations: FLOP that the model needs, FLOP run, bytes moved, bytes on the wire. ops.def names the rule
 * of each operation; a rule may serve several whose first operands are the same. */
#include "program/ring.h"

/* pairs: visible (query, key) pairs of the micro-batch, < 0: of unbroken rows. */
typedef struct fo_cost cost_fn(const struct fo_program *p, const struct fo_op *o, double pairs);

static double operand_bytes(const struct fo_program *p, const struct fo_operand *a)
{
	double once = (double)a->nr * a->nc * (double)fo_dtype_bytes(p->buf[a->buf].dtype);
	return a->access == FO_UPDATE || a->access == FO_ACC ? 2 * once : once;
}

static struct fo_cost cost_none(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)p, (void)o, (void)pairs;
	return (struct fo_cost){ 0 };
}

static struct fo_cost cost_bytes(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	struct fo_cost c = { 0 };
	for (int i = 0; i < o->n; i++)
		c.bytes += operand_bytes(p, &o->arg[i]);
	return c;
}

/* The rows are read on one side of the link, sent, and written on the other. */
static struct fo_cost cost_transfer(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.wire = operand_bytes(p, &o->arg[FO_OFFLOAD_X]);
	return c;
}

/* What this rank receives, with the algorithm that moves least (comm/comm.h, fo_comm_wire_bytes, which a test holds to
 * these figures): an all-reduce gets the others' share of its own part, then their parts. The bytes moved are those of
 * its own memory. */
static double wire_elements(const struct fo_op *o, double rows, double cols, int32_t place, int32_t ranks)
{
	int64_t begin, all = (int64_t)(rows * cols);
	double others = ranks - 1, own = (double)fo_mesh_part((int64_t)rows, place, ranks, &begin) * cols;
	switch (fo_op_info(o->kind)->wire) {
	case FO_WIRE_ALL_REDUCE: /* its parts are of elements, not of rows */
		own = (double)fo_mesh_part(all, place, ranks, &begin);
		return own * others + (double)all - own;
	case FO_WIRE_REDUCE_SCATTER: return own * others;
	case FO_WIRE_ALL_GATHER:
	case FO_WIRE_ALL_TO_ALL: return (double)all - own;
	case FO_WIRE_BROADCAST: return place == o->attr.peer ? 0 : (double)all;
	case FO_WIRE_SHIFT:
	case FO_WIRE_RECEIVE: return (double)all;
	case FO_WIRE_SEND:
	case FO_WIRE_NONE: break;
	}
	return 0;
}
static struct fo_cost cost_comm(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	int32_t place, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &place, NULL);
	int whole = fo_op_info(o->kind)->wire == FO_WIRE_ALL_GATHER ? FO_ALL_GATHER_Y : FO_ALL_REDUCE_X;
	for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
		const struct fo_operand *a = &o->arg[whole + k];
		int dtype = o->attr.narrow ? FO_BF16 : p->buf[a->buf].dtype;
		c.wire += wire_elements(o, a->nr, a->nc, place, ranks) * (double)fo_dtype_bytes(dtype);
	}
	return c;
}

/* A look-up touches one table row per token, not the table; of a part of the vocabulary as many of them as it is a part
 * of all, on average. */
static struct fo_cost look_up(const struct fo_program *p, const struct fo_operand *token,
			      const struct fo_operand *table, const struct fo_operand *x)
{
	double part = p->buf[table->buf].tp ? (double)table->nr / (double)p->model.vocab : 1;
	double rows = part * x->nr * x->nc * (double)fo_dtype_bytes(p->buf[table->buf].dtype);
	return (struct fo_cost){ .bytes = operand_bytes(p, token) + operand_bytes(p, x) +
					  (table->access == FO_ACC ? 2 : 1) * rows };
}
static struct fo_cost cost_embed(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return look_up(p, &o->arg[FO_EMBED_TOKEN], &o->arg[FO_EMBED_TABLE], &o->arg[FO_EMBED_X]);
}
static struct fo_cost cost_embed_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return look_up(p, &o->arg[FO_EMBED_BWD_TOKEN], &o->arg[FO_EMBED_BWD_DTABLE], &o->arg[FO_EMBED_BWD_DX]);
}

static struct fo_cost cost_matmul(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	int64_t m, n, k;
	fo_matmul_dims(o, &m, &n, &k);
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = c.model_causal = c.exec = 2.0 * (double)m * (double)n * (double)k;
	return c;
}

/* A norm's weight counts, by convention, like any weight: 2 FLOP per parameter and token forward, 4 backward, so that
 * the program's sum equals 6 N_mm + 12 L H Q S. It is also what runs, when only sums are counted: one multiply-add per
 * element in each of the three reductions. */
static struct fo_cost cost_norm(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	const struct fo_operand *x = &o->arg[FO_RMSNORM_X];
	c.exec = 2.0 * x->nr * x->nc;
	/* The weight of q/k norms is used once per head and counts once. */
	c.model = c.model_causal = 2.0 * x->nr * (o->attr.head_dim ? o->attr.head_dim : x->nc);
	return c;
}

/* Both backward reductions of a norm. */
static struct fo_cost cost_norm_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_norm(p, o, pairs);
	c.exec *= 2;
	c.model *= 2;
	c.model_causal *= 2;
	return c;
}

/* A bias counts as a weight of its matrix: 2 FLOP per element and token forward, 4 backward. What runs is one addition
 * into a sum each way. */
static struct fo_cost cost_bias(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = c.model_causal = c.exec = 2.0 * o->arg[FO_ADD_BIAS_Y].nr * o->arg[FO_ADD_BIAS_Y].nc;
	return c;
}
static struct fo_cost cost_bias_grad(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_bias(p, o, pairs);
	c.model = c.model_causal = 2 * c.exec;
	return c;
}

/* S: keys of an unbroken row, or of the cache. */
static double row_keys(const struct fo_program *p)
{
	return (double)(p->run.mode == FO_MODE_DECODE ? p->run.context : p->run.seq);
}

/* Keys that a query sees: all S, or the window; under the causal rule their mean over a row (model.h). */
static double keys_seen(const struct fo_program *p, const struct fo_op *o, bool causal)
{
	double s = row_keys(p), w = (double)o->attr.window;
	if (w <= 0 || w >= s)
		return causal ? s / 2 : s;
	return causal ? w - w * w / (2 * s) : w;
}

/* Visible pairs of the first n queries of a row: query i, counted from 0, sees i + 1 keys, or the window. */
static double pairs_before(double n, double window)
{
	double hidden = window > 0 && window < n ? n - window : 0;
	return n * (n + 1) / 2 - hidden * (hidden + 1) / 2;
}

static double visible_pairs(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	double s = row_keys(p), w = (double)o->attr.window;
	return pairs >= 0 ? pairs
			  : (double)p->run.rows * (pairs_before(s, w) - pairs_before(s - (double)p->run.seq, w));
}

/* Matmuls of T x keys x HQ: so many that the model needs, and that run over `pairs`, the true number of visible pairs.
 */
static struct fo_cost attention(const struct fo_program *p, const struct fo_op *o, double needed, double run,
				double pairs)
{
	const struct fo_operand *q = &o->arg[FO_ATTENTION_Q];
	struct fo_cost c = cost_bytes(p, o, pairs);
	c.model = 2 * needed * q->nr * keys_seen(p, o, false) * q->nc;
	c.model_causal = 2 * needed * q->nr * keys_seen(p, o, true) * q->nc;
	c.exec = 2 * run * pairs * q->nc;
	return c;
}
static struct fo_cost cost_attention(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	return attention(p, o, 2, 2, visible_pairs(p, o, pairs));
}
/* The model needs four matmuls backward; the fifth computes the scores again and is recomputation. */
static struct fo_cost cost_attention_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	return attention(p, o, 4, 5, visible_pairs(p, o, pairs));
}

/* Visible pairs of this rank's queries and the keys of one rank of its ring. In unbroken rows without a window every
 * rank has the same number: of its own keys a chunk's square and two triangles, of another's two squares. With
 * documents the mean over all ranks and blocks stands for each. */
static double block_pairs(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_attr *a = &o->attr;
	double chunk = a->chunk, sum = 0;
	if (pairs >= 0)
		return pairs / a->cp / a->cp;
	if (!a->window)
		return (double)p->run.rows * (chunk * chunk + (a->peer ? chunk * chunk : chunk * (chunk + 1)));
	for (int64_t i = 0; i < 2 * a->chunk; i++) {
		const struct fo_ring_keys see = fo_ring_keys(a, i, 0);
		sum += (double)(see.end - see.first);
	}
	return (double)p->run.rows * sum;
}
/* Of what the model needs each of the cp blocks counts for one part. */
static struct fo_cost one_block(struct fo_cost c, const struct fo_op *o)
{
	c.model /= o->attr.cp;
	c.model_causal /= o->attr.cp;
	return c;
}
static struct fo_cost cost_attention_block(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	return one_block(attention(p, o, 2, 2, block_pairs(p, o, pairs)), o);
}
static struct fo_cost cost_attention_block_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	return one_block(attention(p, o, 4, 5, block_pairs(p, o, pairs)), o);
}

/* Attention over the cache reads only the rows that a query sees. Without a window the last of T queries sees pairs / T
 * + (T - 1) / 2 keys; with one and T > 1 a few more rows are read than that. */
static struct fo_cost cost_attention_cached(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	const struct fo_operand *q = &o->arg[FO_ATTENTION_CACHED_Q], *k = &o->arg[FO_ATTENTION_CACHED_K];
	double seen = visible_pairs(p, o, pairs), keys = seen / q->nr + (q->nr - 1) / 2.0;
	double row = (double)k->nc * (double)fo_dtype_bytes(p->buf[k->buf].dtype);
	struct fo_cost c = attention(p, o, 2, 2, seen);
	c.bytes = operand_bytes(p, q) + 2 * keys * row + operand_bytes(p, &o->arg[FO_ATTENTION_CACHED_O]);
	return c;
}

/* Eager attention runs whole squares of S x S per row and head, whether a query may see a key or not: two matmuls
 * forward, four backward, where the scores are not made again. */
static double squares(const struct fo_program *p, const struct fo_op *o)
{
	return (double)o->arg[FO_ATTENTION_EAGER_Q].nr * (double)p->run.seq;
}
static struct fo_cost cost_eager(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return attention(p, o, 2, 2, squares(p, o));
}
static struct fo_cost cost_eager_bwd(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return attention(p, o, 4, 4, squares(p, o));
}

/* Rows are copied: read once, written once, whatever the size of the cache. */
static struct fo_cost cost_cache_put(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return (struct fo_cost){ .bytes = 2 * operand_bytes(p, &o->arg[FO_CACHE_PUT_X]) };
}
static struct fo_cost cost_last_row(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	(void)pairs;
	return (struct fo_cost){ .bytes = 2 * operand_bytes(p, &o->arg[FO_LAST_ROW_Y]) };
}

static cost_fn *const cost_of[FO_OP_COUNT] = {
#define FO_OP(id, ID, cls, family, cost, ...) cost,
#include "program/ops.def"
};

/* What ranks of a tp group all do alike the model needs once: operations on nothing that is divided, and the weight of
 * norms over heads, which counts once however many heads there are; of norms only these meet divided columns. */
static double share_of_model(const struct fo_program *p, const struct fo_op *o)
{
	const int32_t tp = fo_mesh_tp(&p->run.mesh);
	bool divided = false, heads = false, kv = false;
	uint8_t rows, cols;
	if (tp < 2 || !p->run.pass.tp)
		return 1;
	for (int i = 0; i < o->n; i++) {
		divided |= fo_operand_divided(p, &o->arg[i], &rows, &cols);
		heads |= cols != 0;
		kv |= fo_tp_is_kv(p->buf[o->arg[i].buf].tp);
	}
	if (kv) /* the same on each rank of the kv group */
		return 1.0 / fo_mesh_kv(&p->run.mesh);
	if (heads && fo_op_family(o->kind) == FO_OPS_NORM)
		divided = false;
	return divided ? 1 : 1.0 / tp;
}

struct fo_cost fo_op_cost(const struct fo_program *p, const struct fo_op *o, double pairs)
{
	struct fo_cost c = cost_of[o->kind](p, o, pairs);
	const double share = share_of_model(p, o);
	c.model *= share;
	c.model_causal *= share;
	if (o->phase == FO_RECOMPUTE)
		c.model = c.model_causal = 0; /* executed work, never model work */
	return c;
}

int64_t fo_block_slots(const struct fo_program *p, int block)
{
	int64_t n = 0;
	for (int s = 0; s < p->nslot; s++)
		n += p->slot[s].block == block;
	return n;
}

/* Ranks that share rows, as those of a cp or tp group do, have their tokens together. */
int64_t fo_program_step_tokens(const struct fo_program *p)
{
	const struct fo_lowering *run = &p->run;
	return run->rows * run->seq * run->micro_batches * fo_mesh_data(&run->mesh);
}

/* category < 0: all */
static struct fo_cost sum_cost(const struct fo_program *p, int category, double pairs)
{
	struct fo_cost sum = { 0 };
	for (int b = 0; b < p->nblock; b++) {
		const int64_t slots = fo_block_slots(p, b);
		for (int i = 0; slots && i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (category >= 0 && (int)fo_op_info(o->kind)->category != category)
				continue;
			struct fo_cost c = fo_op_cost(p, o, pairs);
			sum.model += (double)slots * c.model;
			sum.model_causal += (double)slots * c.model_causal;
			sum.exec += (double)slots * c.exec;
			sum.bytes += (double)slots * c.bytes;
			sum.wire += (double)slots * c.wire;
		}
	}
	return sum;
}

struct fo_cost fo_program_cost(const struct fo_program *p, double pairs) { return sum_cost(p, -1, pairs); }
struct fo_cost fo_program_category_cost(const struct fo_program *p, enum fo_category c, double pairs)
{
	return sum_cost(p, (int)c, pairs);
}

double fo_program_wire(const struct fo_program *p)
{
	double bytes = 0;
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		for (int i = 0; i < b->n; i++)
			if (fo_op_info(b->op[i].kind)->cls == FO_CLASS_COMM)
				bytes += fo_op_cost(p, &b->op[i], -1).wire;
	}
	return bytes;
}
