/* Lowering: a Llama-family model and a run become the plain step program. Passes make it fast; nothing here is clever.
 *
 * Naming: x[l] is the residual stream before layer l, xm[l] the one between attention and feed-forward; n1, n2, nf are
 * norm outputs, r1, r2, rf their reciprocal standard deviations; qp, kp are queries and keys before their own norms,
 * where the model has these; d.X is the gradient of X. */
#include "program/mesh_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct weight {
	int w, master, m, v, grad;
};

struct lowering {
	struct fo_program *p;
	const struct fo_model *m;
	bool train, decode;
	int act, stat, weight, state; /* data types: activations, lse and rstd, weights, fp32 things */
	int token, target, position, doc, span, hyper, rope, loss, acc, scale;
	int x, n1, r1, q, k, v, o, lse, ao, xm, n2, r2, gate, up, s, down, nf, rf, logits;
	int lmax, lsums;              /* where ranks divide the vocabulary: of each row of logits */
	int cache_k, cache_v, xl;     /* decode: keys and values so far; the residual stream of the last token */
	int qp, kp, rq, rk, dqp, dkp; /* with query and key norms */
	int dx, dxm, dn1, dq, dk, dv, dout, dn2, ds, dgate, dup, dnf;
	struct weight wte, g1, wq, wk, wv, wo, g2, wg, wu, wd, gf, wh;
	struct weight bq, bk, bv, bo, bg, bu, bd, gq, gk; /* biases and head norms; w 0 where there is none */
};

static int act(struct lowering *c, const char *name, int dtype, int axes, int64_t cols, int col_axis)
{
	return fo_buffer_add(c->p, name, dtype, FO_HOME_ACT, axes, c->p->tokens, FO_AXIS_TOKENS, cols, col_axis);
}

static struct weight add_weight(struct lowering *c, const char *name, const char *hf, bool per_layer, int64_t rows,
				int row_axis, int64_t cols, int col_axis, double std)
{
	struct fo_program *p = c->p;
	int axes = per_layer ? FO_PER_LAYER : 0;
	char n[24];
	struct weight w = { .master = -1, .m = -1, .v = -1, .grad = -1 };
	w.w = fo_buffer_add(p, name, c->weight, FO_HOME_PARAM, axes, rows, row_axis, cols, col_axis);
	static const char *const prefix[] = { "w32.", "m.", "v.", "d." };
	int *const buf[] = { &w.master, &w.m, &w.v, &w.grad };
	for (int i = c->weight == c->state; c->train && i < 4; i++) { /* fp32 weights are the master */
		snprintf(n, sizeof n, "%s%s", prefix[i], name);
		*buf[i] = fo_buffer_add(p, n, c->state, i < 3 ? FO_HOME_STATE : FO_HOME_GRAD, axes, rows, row_axis,
					cols, col_axis);
	}
	fo_array_room(&p->param, &p->param_cap, (size_t)p->nparam, sizeof *p->param);
	struct fo_param *q = &p->param[p->nparam++];
	*q = (struct fo_param){ .rows = rows,
				.cols = cols,
				.per_layer = per_layer,
				.decay = rows > 1,
				.init_std = std,
				.weight = (int16_t)w.w,
				.master = (int16_t)w.master,
				.m = (int16_t)w.m,
				.v = (int16_t)w.v,
				.grad = (int16_t)w.grad,
				.nr = (int32_t)rows,
				.nc = (int32_t)cols };
	snprintf(q->name, sizeof q->name, "%s", hf);
	return w;
}

static struct weight add_bias(struct lowering *c, const char *name, const char *hf, int64_t cols, int col_axis)
{
	return add_weight(c, name, hf, true, 1, FO_AXIS_ONE, cols, col_axis, FO_INIT_ZEROS);
}

static void add_biases(struct lowering *c)
{
	const struct fo_model *m = c->m;
	int64_t d = m->hidden, hq = m->heads * m->head_dim, kq = m->kv_heads * m->head_dim, f = m->ffn;
	if (m->attention_bias) {
		c->bq = add_bias(c, "bq", "model.layers.{}.self_attn.q_proj.bias", hq, FO_AXIS_Q);
		c->bk = add_bias(c, "bk", "model.layers.{}.self_attn.k_proj.bias", kq, FO_AXIS_KV);
		c->bv = add_bias(c, "bv", "model.layers.{}.self_attn.v_proj.bias", kq, FO_AXIS_KV);
	}
	if (m->output_bias)
		c->bo = add_bias(c, "bo", "model.layers.{}.self_attn.o_proj.bias", d, FO_AXIS_HIDDEN);
	if (m->mlp_bias) {
		c->bg = add_bias(c, "bg", "model.layers.{}.mlp.gate_proj.bias", f, FO_AXIS_FFN);
		c->bu = add_bias(c, "bu", "model.layers.{}.mlp.up_proj.bias", f, FO_AXIS_FFN);
		c->bd = add_bias(c, "bd", "model.layers.{}.mlp.down_proj.bias", d, FO_AXIS_HIDDEN);
	}
}

/* N(0, 2 / (5 D)): "SmallInit" (Nguyen and Salazar 2019), 0.023 at the width of GPT-2 where the usual 0.02 comes from,
 * larger for the narrow models that a CPU trains. Outputs into the residual stream are divided by sqrt(2 L) (GPT-2). */
static void add_weights(struct lowering *c)
{
	const struct fo_model *m = c->m;
	int64_t d = m->hidden, hq = m->heads * m->head_dim, kq = m->kv_heads * m->head_dim, f = m->ffn;
	double std = sqrt(2.0 / (5.0 * (double)m->hidden)), out = std / sqrt(2.0 * (double)m->layers);
	int H = FO_AXIS_HIDDEN, Q = FO_AXIS_Q, K = FO_AXIS_KV, F = FO_AXIS_FFN, V = FO_AXIS_VOCAB, I = FO_AXIS_ONE;
	c->wte = add_weight(c, "wte", "model.embed_tokens.weight", false, m->vocab, V, d, H, std);
	c->g1 = add_weight(c, "g1", "model.layers.{}.input_layernorm.weight", true, 1, I, d, H, 0);
	c->wq = add_weight(c, "wq", "model.layers.{}.self_attn.q_proj.weight", true, hq, Q, d, H, std);
	c->wk = add_weight(c, "wk", "model.layers.{}.self_attn.k_proj.weight", true, kq, K, d, H, std);
	c->wv = add_weight(c, "wv", "model.layers.{}.self_attn.v_proj.weight", true, kq, K, d, H, std);
	c->wo = add_weight(c, "wo", "model.layers.{}.self_attn.o_proj.weight", true, d, H, hq, Q, out);
	c->g2 = add_weight(c, "g2", "model.layers.{}.post_attention_layernorm.weight", true, 1, I, d, H, 0);
	c->wg = add_weight(c, "wg", "model.layers.{}.mlp.gate_proj.weight", true, f, F, d, H, std);
	c->wu = add_weight(c, "wu", "model.layers.{}.mlp.up_proj.weight", true, f, F, d, H, std);
	c->wd = add_weight(c, "wd", "model.layers.{}.mlp.down_proj.weight", true, d, H, f, F, out);
	add_biases(c);
	if (m->qk_norm) {
		c->gq = add_weight(c, "gq", "model.layers.{}.self_attn.q_norm.weight", true, 1, I, m->head_dim, I, 0);
		c->gk = add_weight(c, "gk", "model.layers.{}.self_attn.k_norm.weight", true, 1, I, m->head_dim, I, 0);
	}
	c->gf = add_weight(c, "gf", "model.norm.weight", false, 1, I, d, H, 0);
	c->wh = m->tied ? c->wte : add_weight(c, "wh", "lm_head.weight", false, m->vocab, V, d, H, std);
}

/* The cache persists from step to step; after the last layer only one token is left. */
static void add_decode_buffers(struct lowering *c)
{
	struct fo_program *p = c->p;
	const struct fo_model *m = c->m;
	int64_t kq = m->kv_heads * m->head_dim;
	int M = FO_PER_MICRO_BATCH, one = FO_AXIS_ONE;
	c->cache_k = fo_buffer_add(p, "cache.k", c->act, FO_HOME_STATE, FO_PER_LAYER, p->run.context, FO_AXIS_TOKENS,
				   kq, FO_AXIS_KV);
	c->cache_v = fo_buffer_add(p, "cache.v", c->act, FO_HOME_STATE, FO_PER_LAYER, p->run.context, FO_AXIS_TOKENS,
				   kq, FO_AXIS_KV);
	c->span = fo_buffer_add(p, "span", FO_I32, FO_HOME_ACT, M, 1, one, 2, one);
	c->xl = fo_buffer_add(p, "xl", c->act, FO_HOME_ACT, M, 1, one, m->hidden, FO_AXIS_HIDDEN);
	c->nf = fo_buffer_add(p, "nf", c->act, FO_HOME_ACT, M, 1, one, m->hidden, FO_AXIS_HIDDEN);
	c->rf = fo_buffer_add(p, "rf", c->stat, FO_HOME_ACT, M, 1, one, 1, one);
	c->logits = fo_buffer_add(p, "logits", c->act, FO_HOME_ACT, M, 1, one, m->vocab, FO_AXIS_VOCAB);
}

/* Whether pass tp will divide the columns of the logits: the loss then comes in steps, between which ranks join what
 * they found of their own columns. */
static bool divides_vocabulary(const struct lowering *c)
{
	return c->p->run.pass.tp && fo_mesh_tp(&c->p->run.mesh) > 1 && c->p->run.mode != FO_MODE_LOGITS && !c->decode;
}

static void add_forward_buffers(struct lowering *c)
{
	const struct fo_model *m = c->m;
	int64_t d = m->hidden, hq = m->heads * m->head_dim, kq = m->kv_heads * m->head_dim, f = m->ffn;
	int LM = FO_PER_LAYER | FO_PER_MICRO_BATCH, M = FO_PER_MICRO_BATCH;
	c->token = act(c, "token", FO_I32, M, 1, FO_AXIS_ONE);
	if (!c->decode)
		c->target = act(c, "target", FO_I32, M, 1, FO_AXIS_ONE);
	c->position = act(c, "position", FO_I32, M, 1, FO_AXIS_ONE);
	if (!c->decode) {
		c->doc = act(c, "doc_start", FO_I32, M, 1, FO_AXIS_ONE);
		c->hyper = fo_buffer_add(c->p, "hyper", FO_F64, FO_HOME_ACT, 0, 1, FO_AXIS_ONE, FO_HYPER_COUNT,
					 FO_AXIS_ONE);
	}
	c->rope = fo_buffer_add(c->p, "rope", c->state, FO_HOME_CONST, 0, c->decode ? c->p->run.context : c->p->run.seq,
				FO_AXIS_ONE, m->head_dim, FO_AXIS_ONE);
	c->x = act(c, "x", c->act, LM, d, FO_AXIS_HIDDEN);
	c->n1 = act(c, "n1", c->act, LM, d, FO_AXIS_HIDDEN);
	c->r1 = act(c, "r1", c->stat, LM, 1, FO_AXIS_ONE);
	c->q = act(c, "q", c->act, LM, hq, FO_AXIS_Q);
	c->k = act(c, "k", c->act, LM, kq, FO_AXIS_KV);
	c->v = act(c, "v", c->act, LM, kq, FO_AXIS_KV);
	if (m->qk_norm) {
		c->qp = act(c, "qp", c->act, LM, hq, FO_AXIS_Q);
		c->kp = act(c, "kp", c->act, LM, kq, FO_AXIS_KV);
		c->rq = act(c, "rq", c->stat, LM, m->heads, FO_AXIS_HEADS);
		c->rk = act(c, "rk", c->stat, LM, m->kv_heads, FO_AXIS_HEADS);
	}
	c->o = act(c, "o", c->act, LM, hq, FO_AXIS_Q);
	if (!c->decode)
		c->lse = act(c, "lse", c->stat, LM, m->heads, FO_AXIS_HEADS);
	c->ao = act(c, "ao", c->act, LM, d, FO_AXIS_HIDDEN);
	c->xm = act(c, "xm", c->act, LM, d, FO_AXIS_HIDDEN);
	c->n2 = act(c, "n2", c->act, LM, d, FO_AXIS_HIDDEN);
	c->r2 = act(c, "r2", c->stat, LM, 1, FO_AXIS_ONE);
	c->gate = act(c, "gate", c->act, LM, f, FO_AXIS_FFN);
	c->up = act(c, "up", c->act, LM, f, FO_AXIS_FFN);
	c->s = act(c, "s", c->act, LM, f, FO_AXIS_FFN);
	c->down = act(c, "down", c->act, LM, d, FO_AXIS_HIDDEN);
	if (c->decode) {
		add_decode_buffers(c);
		return;
	}
	c->nf = act(c, "nf", c->act, M, d, FO_AXIS_HIDDEN);
	c->rf = act(c, "rf", c->stat, M, 1, FO_AXIS_ONE);
	c->logits = act(c, "logits", c->act, M, m->vocab, FO_AXIS_VOCAB);
	if (divides_vocabulary(c)) {
		c->lmax = act(c, "logits.max", FO_F32, M, 1, FO_AXIS_ONE);
		c->lsums = act(c, "logits.sums", c->stat, M, 2, FO_AXIS_ONE);
	}
	c->loss = fo_buffer_add(c->p, "loss", FO_F64, FO_HOME_ACT, 0, 1, FO_AXIS_ONE, c->train ? 1 : 2, FO_AXIS_ONE);
}

static void add_backward_buffers(struct lowering *c)
{
	const struct fo_model *m = c->m;
	int64_t d = m->hidden, hq = m->heads * m->head_dim, kq = m->kv_heads * m->head_dim, f = m->ffn;
	int LM = FO_PER_LAYER | FO_PER_MICRO_BATCH;
	c->dx = act(c, "d.x", c->act, LM, d, FO_AXIS_HIDDEN);
	c->dxm = act(c, "d.xm", c->act, LM, d, FO_AXIS_HIDDEN);
	c->dn1 = act(c, "d.n1", c->act, LM, d, FO_AXIS_HIDDEN);
	c->dq = act(c, "d.q", c->act, LM, hq, FO_AXIS_Q);
	c->dk = act(c, "d.k", c->act, LM, kq, FO_AXIS_KV);
	c->dv = act(c, "d.v", c->act, LM, kq, FO_AXIS_KV);
	if (m->qk_norm) {
		c->dqp = act(c, "d.qp", c->act, LM, hq, FO_AXIS_Q);
		c->dkp = act(c, "d.kp", c->act, LM, kq, FO_AXIS_KV);
	}
	c->dout = act(c, "d.o", c->act, LM, hq, FO_AXIS_Q);
	c->dn2 = act(c, "d.n2", c->act, LM, d, FO_AXIS_HIDDEN);
	c->ds = act(c, "d.s", c->act, LM, f, FO_AXIS_FFN);
	c->dgate = act(c, "d.gate", c->act, LM, f, FO_AXIS_FFN);
	c->dup = act(c, "d.up", c->act, LM, f, FO_AXIS_FFN);
	c->dnf = act(c, "d.nf", c->act, FO_PER_MICRO_BATCH, d, FO_AXIS_HIDDEN);
	c->acc = fo_buffer_add(c->p, "sumsq", FO_F64, FO_HOME_ACT, 0, 1, FO_AXIS_ONE, 1, FO_AXIS_ONE);
	c->scale = fo_buffer_add(c->p, "scale", FO_F64, FO_HOME_ACT, 0, 1, FO_AXIS_ONE, 2, FO_AXIS_ONE);
}

/* Appends an operation to a block on the compute lane; A() adds its operands. */
static struct fo_op *put(struct lowering *c, int block, int kind, int phase)
{
	return fo_op_insert(c->p, block, c->p->block[block].n, kind, phase, FO_LANE_COMPUTE);
}
#define A(buf, access) fo_op_arg(c->p, o, buf, 0, access)

/* y = x W' [+ b]: y (T,n), x (T,k), W (n,k), b (1,n); b 0: none (buffer 0 is the embedding) */
static void put_linear(struct lowering *c, int block, int x, int w, int b, int y)
{
	struct fo_op *o = put(c, block, FO_OP_matmul, FO_FORWARD);
	o->attr.tb = 1;
	A(x, FO_READ), A(w, FO_READ), A(y, FO_DEF);
	if (!b)
		return;
	o = put(c, block, FO_OP_add_bias, FO_FORWARD);
	A(y, FO_UPDATE), A(b, FO_READ);
}
/* dx = dy W, the second and later contributions added; dy's instance is dlayer layers on. */
static void put_dgrad(struct lowering *c, int block, int dy, int dlayer, int w, int dx, bool more)
{
	struct fo_op *o = put(c, block, FO_OP_matmul, FO_BACKWARD);
	fo_op_arg(c->p, o, dy, dlayer, FO_READ);
	A(w, FO_READ), A(dx, more ? FO_ACC : FO_DEF);
}
/* dW += dy' x [; db += sum of dy over tokens] */
static void put_wgrad(struct lowering *c, int block, int dy, int dlayer, int x, int dw, const struct weight *b)
{
	struct fo_op *o = put(c, block, FO_OP_matmul, FO_WGRAD);
	o->attr.ta = 1;
	fo_op_arg(c->p, o, dy, dlayer, FO_READ);
	A(x, FO_READ), A(dw, FO_ACC);
	if (!b || !b->w)
		return;
	o = put(c, block, FO_OP_bias_grad, FO_WGRAD);
	fo_op_arg(c->p, o, dy, dlayer, FO_READ);
	A(b->grad, FO_ACC);
}
/* head_dim 0: whole rows */
static void put_norm(struct lowering *c, int block, int x, int g, int y, int r, int64_t head_dim)
{
	struct fo_op *o = put(c, block, FO_OP_rmsnorm, FO_FORWARD);
	o->attr.value = c->m->norm_eps;
	o->attr.head_dim = (int32_t)head_dim;
	A(x, FO_READ), A(g, FO_READ), A(y, FO_DEF), A(r, FO_DEF);
}
/* The weight's columns say whether rows or heads are normed. dres < 0: no residual passes by; its instance is dlayer
 * layers on. */
static void put_norm_bwd(struct lowering *c, int block, int x, int r, struct weight g, int dy, int dx, int dres,
			 int dlayer)
{
	int64_t width = c->p->buf[g.w].cols;
	int32_t head_dim = (int32_t)(width < c->p->buf[x].cols ? width : 0);
	struct fo_op *o = put(c, block, FO_OP_rmsnorm_dg, FO_WGRAD);
	o->attr.head_dim = head_dim;
	A(x, FO_READ), A(r, FO_READ), A(dy, FO_READ), A(g.grad, FO_ACC);
	o = put(c, block, FO_OP_rmsnorm_dx, FO_BACKWARD);
	o->attr.head_dim = head_dim;
	A(x, FO_READ), A(r, FO_READ), A(g.w, FO_READ), A(dy, FO_READ), A(dx, FO_DEF);
	if (dres >= 0)
		fo_op_arg(c->p, o, dres, dlayer, FO_READ);
}
static void put_rope(struct lowering *c, int block, int x, int sign)
{
	struct fo_op *o = put(c, block, FO_OP_rope, sign > 0 ? FO_FORWARD : FO_BACKWARD);
	o->attr.sign = (int8_t)sign;
	o->attr.head_dim = (int32_t)c->m->head_dim;
	A(x, FO_UPDATE), A(c->position, FO_READ), A(c->rope, FO_READ);
}
/* An attention operation without its operands. */
static struct fo_op *attention(struct lowering *c, int block, int kind, int phase)
{
	struct fo_op *o = put(c, block, kind, phase);
	o->attr.head_dim = (int32_t)c->m->head_dim;
	o->attr.value = 1 / sqrt((double)c->m->head_dim);
	if (c->decode || c->m->sliding_window < c->p->run.seq) /* a wider one hides nothing */
		o->attr.window = (int32_t)c->m->sliding_window;
	return o;
}
static void put_attention(struct lowering *c, int block, bool bwd)
{
	struct fo_op *o = bwd ? attention(c, block, FO_OP_attention_bwd, FO_BACKWARD)
			      : attention(c, block, FO_OP_attention, FO_FORWARD);
	A(c->q, FO_READ), A(c->k, FO_READ), A(c->v, FO_READ);
	if (bwd) {
		A(c->o, FO_READ), A(c->lse, FO_READ), A(c->dout, FO_READ), A(c->doc, FO_READ);
		A(c->dq, FO_DEF), A(c->dk, FO_DEF), A(c->dv, FO_DEF);
	} else {
		A(c->doc, FO_READ), A(c->o, FO_DEF), A(c->lse, FO_DEF);
	}
}
/* The chunk's keys and values join the cache, then its queries look at all of it. */
static void put_attention_cached(struct lowering *c, int block)
{
	const int from[] = { c->k, c->v }, to[] = { c->cache_k, c->cache_v };
	for (int i = 0; i < 2; i++) {
		struct fo_op *o = put(c, block, FO_OP_cache_put, FO_FORWARD);
		A(from[i], FO_READ), A(c->span, FO_READ), A(to[i], FO_UPDATE);
	}
	struct fo_op *o = attention(c, block, FO_OP_attention_cached, FO_FORWARD);
	A(c->q, FO_READ), A(c->cache_k, FO_READ), A(c->cache_v, FO_READ), A(c->span, FO_READ), A(c->o, FO_DEF);
}
static void put_add(struct lowering *c, int block, int a, int b, int y, int dlayer)
{
	struct fo_op *o = put(c, block, FO_OP_add, FO_FORWARD);
	A(a, FO_READ), A(b, FO_READ);
	fo_op_arg(c->p, o, y, dlayer, FO_DEF);
}
static int host_block(struct lowering *c, const char *name, int kind, int port, const int *bufs, int n)
{
	int b = fo_block_add(c->p, name, FO_ROLE_HOST, FO_UNIT_STEP);
	struct fo_op *o = fo_op_insert(c->p, b, 0, kind, FO_TRANSFER, FO_LANE_HOST);
	o->attr.port = (uint8_t)port;
	for (int i = 0; i < n; i++)
		A(bufs[i], kind == FO_OP_host_in ? FO_DEF : FO_READ);
	return b;
}

static int embed_forward(struct lowering *c)
{
	int b = fo_block_add(c->p, "embed.f", FO_ROLE_FORWARD, FO_UNIT_EMBED);
	struct fo_op *o = put(c, b, FO_OP_embed, FO_FORWARD);
	A(c->token, FO_READ), A(c->wte.w, FO_READ), A(c->x, FO_DEF);
	return b;
}

static int layer_forward(struct lowering *c)
{
	int b = fo_block_add(c->p, "layer.f", FO_ROLE_FORWARD, FO_UNIT_LAYER);
	bool heads = c->m->qk_norm;
	put_norm(c, b, c->x, c->g1.w, c->n1, c->r1, 0);
	put_linear(c, b, c->n1, c->wq.w, c->bq.w, heads ? c->qp : c->q);
	put_linear(c, b, c->n1, c->wk.w, c->bk.w, heads ? c->kp : c->k);
	put_linear(c, b, c->n1, c->wv.w, c->bv.w, c->v);
	if (heads) {
		put_norm(c, b, c->qp, c->gq.w, c->q, c->rq, c->m->head_dim);
		put_norm(c, b, c->kp, c->gk.w, c->k, c->rk, c->m->head_dim);
	}
	put_rope(c, b, c->q, +1);
	put_rope(c, b, c->k, +1);
	if (c->decode)
		put_attention_cached(c, b);
	else
		put_attention(c, b, false);
	put_linear(c, b, c->o, c->wo.w, c->bo.w, c->ao);
	put_add(c, b, c->x, c->ao, c->xm, 0);
	put_norm(c, b, c->xm, c->g2.w, c->n2, c->r2, 0);
	put_linear(c, b, c->n2, c->wg.w, c->bg.w, c->gate);
	put_linear(c, b, c->n2, c->wu.w, c->bu.w, c->up);
	struct fo_op *o = put(c, b, FO_OP_swiglu, FO_FORWARD);
	A(c->gate, FO_READ), A(c->up, FO_READ), A(c->s, FO_DEF);
	put_linear(c, b, c->s, c->wd.w, c->bd.w, c->down);
	put_add(c, b, c->xm, c->down, c->x, 1);
	return b;
}

static void put_divided_loss(struct lowering *c, int b)
{
	struct fo_op *o = put(c, b, FO_OP_xent_max, FO_FORWARD);
	A(c->logits, FO_READ), A(c->lmax, FO_DEF);
	o = put(c, b, FO_OP_xent_sums, FO_FORWARD);
	A(c->logits, FO_READ), A(c->target, FO_READ), A(c->lmax, FO_READ), A(c->lsums, FO_DEF);
	o = put(c, b, FO_OP_xent_loss, FO_FORWARD);
	A(c->lsums, FO_READ), A(c->target, FO_READ), A(c->loss, FO_ACC);
	if (!c->train)
		return;
	A(c->hyper, FO_READ);
	o = put(c, b, FO_OP_xent_grad, FO_FORWARD);
	A(c->logits, FO_UPDATE), A(c->target, FO_READ), A(c->lmax, FO_READ), A(c->lsums, FO_READ), A(c->hyper, FO_READ);
}

static int head_forward(struct lowering *c)
{
	int b = fo_block_add(c->p, "head.f", FO_ROLE_FORWARD, FO_UNIT_HEAD);
	struct fo_op *o;
	if (c->decode) {
		o = put(c, b, FO_OP_last_row, FO_FORWARD);
		A(c->x, FO_READ), A(c->span, FO_READ), A(c->xl, FO_DEF);
	}
	put_norm(c, b, c->decode ? c->xl : c->x, c->gf.w, c->nf, c->rf, 0);
	put_linear(c, b, c->nf, c->wh.w, 0, c->logits);
	if (c->decode || c->p->run.mode == FO_MODE_LOGITS)
		return b;
	if (divides_vocabulary(c)) {
		put_divided_loss(c, b);
		return b;
	}
	o = put(c, b, c->train ? FO_OP_xent : FO_OP_xent_fwd, FO_FORWARD);
	A(c->logits, c->train ? FO_UPDATE : FO_READ), A(c->target, FO_READ);
	if (c->train)
		A(c->hyper, FO_READ);
	A(c->loss, FO_ACC);
	return b;
}

static int head_backward(struct lowering *c)
{
	int b = fo_block_add(c->p, "head.b", FO_ROLE_BACKWARD, FO_UNIT_HEAD);
	put_dgrad(c, b, c->logits, 0, c->wh.w, c->dnf, false);
	put_wgrad(c, b, c->logits, 0, c->nf, c->wh.grad, NULL);
	put_norm_bwd(c, b, c->x, c->rf, c->gf, c->dnf, c->dx, -1, 0);
	return b;
}

static int layer_backward(struct lowering *c)
{
	int b = fo_block_add(c->p, "layer.b", FO_ROLE_BACKWARD, FO_UNIT_LAYER);
	put_dgrad(c, b, c->dx, 1, c->wd.w, c->ds, false);
	put_wgrad(c, b, c->dx, 1, c->s, c->wd.grad, &c->bd);
	struct fo_op *o = put(c, b, FO_OP_swiglu_bwd, FO_BACKWARD);
	A(c->gate, FO_READ), A(c->up, FO_READ), A(c->ds, FO_READ), A(c->dgate, FO_DEF), A(c->dup, FO_DEF);
	put_dgrad(c, b, c->dgate, 0, c->wg.w, c->dn2, false);
	put_dgrad(c, b, c->dup, 0, c->wu.w, c->dn2, true);
	put_wgrad(c, b, c->dgate, 0, c->n2, c->wg.grad, &c->bg);
	put_wgrad(c, b, c->dup, 0, c->n2, c->wu.grad, &c->bu);
	put_norm_bwd(c, b, c->xm, c->r2, c->g2, c->dn2, c->dxm, c->dx, 1);
	put_dgrad(c, b, c->dxm, 0, c->wo.w, c->dout, false);
	put_wgrad(c, b, c->dxm, 0, c->o, c->wo.grad, &c->bo);
	put_attention(c, b, true);
	put_rope(c, b, c->dq, -1);
	put_rope(c, b, c->dk, -1);
	int dq = c->dq, dk = c->dk;
	if (c->m->qk_norm) {
		put_norm_bwd(c, b, c->qp, c->rq, c->gq, dq, c->dqp, -1, 0);
		put_norm_bwd(c, b, c->kp, c->rk, c->gk, dk, c->dkp, -1, 0);
		dq = c->dqp, dk = c->dkp;
	}
	put_dgrad(c, b, dq, 0, c->wq.w, c->dn1, false);
	put_dgrad(c, b, dk, 0, c->wk.w, c->dn1, true);
	put_dgrad(c, b, c->dv, 0, c->wv.w, c->dn1, true);
	put_wgrad(c, b, dq, 0, c->n1, c->wq.grad, &c->bq);
	put_wgrad(c, b, dk, 0, c->n1, c->wk.grad, &c->bk);
	put_wgrad(c, b, c->dv, 0, c->n1, c->wv.grad, &c->bv);
	put_norm_bwd(c, b, c->x, c->r1, c->g1, c->dn1, c->dx, c->dxm, 0);
	return b;
}

static int embed_backward(struct lowering *c)
{
	int b = fo_block_add(c->p, "embed.b", FO_ROLE_BACKWARD, FO_UNIT_EMBED);
	struct fo_op *o = put(c, b, FO_OP_embed_bwd, FO_WGRAD);
	A(c->token, FO_READ), A(c->dx, FO_READ), A(c->wte.grad, FO_ACC);
	return b;
}

static int norm_block(struct lowering *c, const char *name, int unit, const struct weight *w, int n)
{
	int b = fo_block_add(c->p, name, FO_ROLE_OPTIMIZER, unit);
	for (int i = 0; i < n; i++) {
		struct fo_op *o = put(c, b, FO_OP_sumsq, FO_OPTIMIZER);
		A(w[i].grad, FO_READ), A(c->acc, FO_ACC);
	}
	return b;
}

static int adamw_block(struct lowering *c, const char *name, int unit, const struct weight *w, int n)
{
	int b = fo_block_add(c->p, name, FO_ROLE_OPTIMIZER, unit);
	for (int i = 0; i < n; i++) {
		struct fo_op *o = put(c, b, FO_OP_adamw, FO_OPTIMIZER);
		o->attr.value = c->p->buf[w[i].w].rows > 1; /* matrices decay, norm weights do not */
		A(w[i].m, FO_UPDATE), A(w[i].v, FO_UPDATE), A(w[i].grad, FO_TAKE), A(c->hyper, FO_READ),
			A(c->scale, FO_READ);
		A(w[i].w, w[i].master >= 0 ? FO_DEF : FO_UPDATE);
		if (w[i].master >= 0)
			A(w[i].master, FO_UPDATE);
	}
	return b;
}

static void optimizer(struct lowering *c, int loss_out)
{
	struct fo_program *p = c->p;
	int L = (int)c->m->layers, nh = c->m->tied ? 1 : 2;
	const struct weight all[] = { c->g1, c->wq, c->wk, c->wv, c->wo, c->g2, c->wg, c->wu, c->wd,
				      c->bq, c->bk, c->bv, c->bo, c->bg, c->bu, c->bd, c->gq, c->gk },
			    head[] = { c->gf, c->wh };
	struct weight layer[sizeof all / sizeof *all];
	int n = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].w)
			layer[n++] = all[i];
	int ne = norm_block(c, "embed.n", FO_UNIT_EMBED, &c->wte, 1),
	    nl = norm_block(c, "layer.n", FO_UNIT_LAYER, layer, n),
	    nhd = norm_block(c, "head.n", FO_UNIT_HEAD, head, nh);
	int clip = fo_block_add(p, "step.clip", FO_ROLE_OPTIMIZER, FO_UNIT_STEP);
	struct fo_op *o = put(c, clip, FO_OP_clip, FO_OPTIMIZER);
	o->attr.value = (double)(p->run.pass.previous_norm != 0);
	A(c->acc, FO_READ), A(c->hyper, FO_READ), A(c->scale, FO_DEF), A(c->loss, FO_READ);
	int oe = adamw_block(c, "embed.o", FO_UNIT_EMBED, &c->wte, 1),
	    ol = adamw_block(c, "layer.o", FO_UNIT_LAYER, layer, n),
	    oh = adamw_block(c, "head.o", FO_UNIT_HEAD, head, nh);
	fo_slot_add(p, ne, 0, 0);
	for (int l = 0; l < L; l++)
		fo_slot_add(p, nl, l, 0);
	fo_slot_add(p, nhd, L, 0);
	fo_slot_add(p, clip, 0, 0);
	fo_slot_add(p, loss_out, 0, 0);
	fo_slot_add(p, oe, 0, 0);
	for (int l = 0; l < L; l++)
		fo_slot_add(p, ol, l, 0);
	fo_slot_add(p, oh, L, 0);
}

static void emit(struct lowering *c)
{
	struct fo_program *p = c->p;
	int L = (int)c->m->layers, M = (int)p->run.micro_batches;
	bool train = c->train, logits = c->decode || p->run.mode == FO_MODE_LOGITS;
	const int batch[] = { c->token, c->target, c->position, c->doc }, chunk[] = { c->token, c->position, c->span };
	const int loss[] = { c->loss, c->scale }; /* evaluation has no scale */
	int hyper = train ? host_block(c, "step.in", FO_OP_host_in, FO_PORT_HYPER, &c->hyper, 1) : -1;
	int in = c->decode ? host_block(c, "chunk.in", FO_OP_host_in, FO_PORT_CHUNK, chunk, 3)
			   : host_block(c, "batch.in", FO_OP_host_in, FO_PORT_BATCH, batch, 4);
	int ef = embed_forward(c), lf = layer_forward(c), hf = head_forward(c), hb = 0, lb = 0, eb = 0;
	int out = logits ? host_block(c, "logits.out", FO_OP_host_out, FO_PORT_LOGITS, &c->logits, 1)
			 : host_block(c, "loss.out", FO_OP_host_out, FO_PORT_LOSS, loss, c->train + 1);
	if (train) {
		hb = head_backward(c), lb = layer_backward(c), eb = embed_backward(c);
		fo_slot_add(p, hyper, 0, 0);
	}
	fo_slot_add(p, in, 0, 0);
	for (int mb = 0; mb < M; mb++) {
		if (mb + 1 < M)
			fo_slot_add(p, in, 0, mb + 1); /* ahead: the host lane copies while this one computes */
		fo_slot_add(p, ef, 0, mb);
		for (int l = 0; l < L; l++)
			fo_slot_add(p, lf, l, mb);
		fo_slot_add(p, hf, L, mb);
		if (logits)
			fo_slot_add(p, out, L, mb);
		if (!train)
			continue;
		fo_slot_add(p, hb, L, mb);
		for (int l = L - 1; l >= 0; l--)
			fo_slot_add(p, lb, l, mb);
		fo_slot_add(p, eb, 0, mb);
	}
	if (train)
		optimizer(c, out);
	else if (!logits)
		fo_slot_add(p, out, 0, 0);
}

fo_status fo_program_lower(struct fo_program *p, const struct fo_model *m, const struct fo_lowering *run)
{
	FO_TRY(fo_model_check(m));
	FO_TRY(fo_model_trainable(m));
	if (run->seq < 1 || run->rows < 1 || run->micro_batches < 1 || run->seq > (1 << 24) || run->rows > (1 << 20) ||
	    run->micro_batches > (1 << 16) || run->seq * run->rows > (1 << 28))
		return fo_fail(FO_EARG,
			       "cannot lower a batch of %lld micro-batches x %lld rows x %lld tokens: each must be at "
			       "least 1 and a micro-batch at most 2^28 tokens",
			       (long long)run->micro_batches, (long long)run->rows, (long long)run->seq);
	if (run->mode == FO_MODE_DECODE &&
	    (run->rows != 1 || run->micro_batches != 1 || run->context < run->seq || run->context > 1 << 24))
		return fo_fail(
			FO_EARG,
			"cannot lower a chunk of %lld rows x %lld tokens with a cache of %lld: one row, and a cache of "
			"at least its tokens and at most 2^24",
			(long long)run->rows, (long long)run->seq, (long long)run->context);
	if ((double)(m->layers + 1) * (double)run->micro_batches > 1 << 20)
		return fo_fail(FO_EARG,
			       "cannot lower %lld layers x %lld micro-batches: a step has at most 2^20 of them",
			       (long long)m->layers, (long long)run->micro_batches);
	FO_TRY(fo_mesh_check(&run->mesh));
	FO_TRY(fo_mesh_tokens_legal(m, run));
	FO_TRY(fo_lowering_check_pipeline(run, m->layers));
	*p = (struct fo_program){
		.model = *m,
		.run = *run,
		.tokens = run->seq * run->rows / fo_mesh_cp(&run->mesh),
		.rank = run->mesh.rank,
		.ranks = fo_mesh_ranks(&run->mesh),
		.layer_end = (int32_t)m->layers,
	};
	fo_lowering_repeat(&p->run, m->layers);
	p->run.mesh.kv = run->pass.tp ? fo_mesh_kv_of(m, fo_mesh_tp(&run->mesh)) : 1;
	struct lowering c = {
		.p = p, .m = m, .train = run->mode == FO_MODE_TRAIN, .decode = run->mode == FO_MODE_DECODE
	};
	c.stat = c.state = run->precision == FO_PRECISION_F64 ? FO_F64 : FO_F32;
	c.act = c.weight = run->precision == FO_PRECISION_BF16 ? FO_BF16 : c.state;
	add_weights(&c);
	add_forward_buffers(&c);
	if (c.train)
		add_backward_buffers(&c);
	emit(&c);
	fo_status st = fo_program_verify(p, "lowering");
	if (st != FO_OK)
		fo_program_fini(p);
	return st;
}
