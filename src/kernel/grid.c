#include "kernel/ceilings_int.h"
#include "base/mem.h"
#include "cost/cost.h"
#include "pass/pass.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the grid ---- */

/* The largest region of operands: 32000 x 768 in f32 fits, 128256 x 4096 does not. For a run: AdamW's four operands of
 * the former fit. */
#define REGION_MOST ((size_t)256 << 20)
#define RUN_REGION_MOST ((size_t)1 << 30)

static struct fo_grid_item *item_add(struct fo_grid *g, const char *kind, const char *variant, const char *dtype,
				     int threads)
{
	fo_array_room(&g->item, &g->cap, g->n, sizeof *g->item);
	struct fo_grid_item *it = &g->item[g->n++];
	*it = (struct fo_grid_item){
		.units = 1, .docs = 1, .at = (int)g->n, .row = { .threads = threads, .cold = NAN }
	};
	snprintf(it->row.kind, sizeof it->row.kind, "%s", kind);
	snprintf(it->row.variant, sizeof it->row.variant, "%s", variant);
	snprintf(it->row.dtype, sizeof it->row.dtype, "%s", dtype);
	return it;
}

/* A guess of the item's time, only to see what fits into the time given: 0.7 of the peak (plain loops: a fiftieth,
 * about 2 of 100 GFLOP/s on Zen 3, November 2026), 8 GB/s from memory. */
static void guess(const struct fo_grid *g, struct fo_grid_item *it)
{
	double peak = g->peak[it->dtype == FO_BF16] * it->row.threads;
	it->guess_s = fmax(it->row.flop / ((g->o->isa == FO_ISA_REF ? 0.02 : 0.7) * peak), it->row.bytes / 8e9);
}

static void take_work(struct fo_grid *g, struct fo_grid_item *it, int dtype, const int64_t *dim, int dims)
{
	it->dtype = dtype;
	it->row.flop = it->work.flop;
	it->row.bytes = it->work.bytes;
	for (int i = 0; i < dims; i++)
		it->row.dim[i] = dim[i];
	snprintf(it->row.set, sizeof it->row.set, "%s", it->work.set->name);
	guess(g, it);
	if (fo_work_bytes(&it->work) > (g->o->program ? RUN_REGION_MOST : REGION_MOST)) {
		g->n--;
		g->left_out++;
	}
}

/* Widths of the Llama presets (heads x dimension, feed-forward, vocabulary), tokens of a micro-batch. */
static void add_matmuls(struct fo_grid *g, int dtype, int threads)
{
	static const struct {
		int64_t out, in;
		bool quick;
	} layer[] = { { 256, 256, false },   { 768, 768, true },    { 2048, 768, true },  { 768, 2048, true },
		      { 2048, 2048, false }, { 4096, 4096, false }, { 32000, 768, false } };
	static const struct {
		int64_t tokens;
		bool quick;
	} size[] = { { 128, false }, { 512, true }, { 2048, true }, { 4096, false } };
	for (size_t l = 0; l < sizeof layer / sizeof *layer; l++)
		for (size_t s = 0; s < sizeof size / sizeof *size; s++)
			for (int p = 0; p < FO_WORK_PASSES; p++) {
				int64_t t = size[s].tokens, out = layer[l].out, in = layer[l].in;
				/* (m, n, k) of y = x w', dx = dy w, dw = dy' x */
				const int64_t shape[FO_WORK_PASSES][3] = { { t, out, in },
									   { t, in, out },
									   { out, in, t } };
				const int64_t *dim = shape[p];
				if (g->o->quick && !(layer[l].quick && size[s].quick))
					continue;
				struct fo_grid_item *it = item_add(g, "matmul", fo_work_pass_name[p],
								   fo_dtype_name[dtype], threads);
				fo_work_linear(&it->work, g->o->isa, p, t, out, in, dtype, threads);
				take_work(g, it, dtype, dim, 3);
			}
}

static void add_attention(struct fo_grid *g, int dtype, int threads)
{
	static const int64_t heads[][2] = { { 12, 64 }, { 6, 128 } }, tokens[] = { 512, 2048, 4096 };
	for (size_t h = 0; h < 2; h++)
		for (size_t s = 0; s < (g->o->quick ? 2 : 3); s++)
			for (int backward = 0; backward < 2; backward++) {
				int64_t dim[] = { tokens[s], heads[h][0], heads[h][0], heads[h][1] };
				struct fo_grid_item *it = item_add(g, backward ? "attention_bwd" : "attention",
								   "causal", fo_dtype_name[dtype], threads);
				fo_work_attention(&it->work, g->o->isa, backward, dim[0], 1, dim[1], dim[2], dim[3],
						  dtype, threads);
				take_work(g, it, dtype, dim, 4);
			}
}

/* ---- operations as programs have them ---- */

/* Whether the cost of an operation depends on how many tokens see each other. */
static bool counts_pairs(const struct fo_program *p, const struct fo_op *o)
{
	return fo_op_cost(p, o, 1).exec != fo_op_cost(p, o, 2).exec;
}

/* The number of documents of equal length that a micro-batch is divided into so that about `pairs` pairs see each
 * other: N of them in a row of S tokens leave S (S / N + 1) / 2. Rows are separate in any case. */
static int64_t documents_of(const struct fo_program *p, double pairs)
{
	double s = (double)p->run.seq, rows = (double)p->run.rows, each = 2 * pairs / rows - s,
	       n = each > 0 ? s * s / each : s;
	return p->run.rows * (int64_t)fmax(1, fmin(s, floor(n + 0.5)));
}
static double pairs_of(const struct fo_program *p, int64_t docs)
{
	double pairs = 0, tokens = (double)p->tokens;
	for (int64_t d = 0; d < docs; d++) { /* as fo_work_bind divides them */
		double n = ceil((double)(d + 1) * tokens / (double)docs) - ceil((double)d * tokens / (double)docs);
		pairs += n * (n + 1) / 2;
	}
	return pairs;
}

static void add_call(struct fo_grid *g, const struct fo_program *p, const struct fo_op *o, uint32_t first,
		     uint32_t cold, int64_t docs, int threads)
{
	struct fo_limits_row row;
	int dtype = p->run.precision == FO_PRECISION_BF16 ? FO_BF16 : FO_F32;
	if (fo_op_row(p, o, first, counts_pairs(p, o) ? pairs_of(p, docs) : -1, &row) != FO_OK) {
		fo_err_clear();
		return;
	}
	row.threads = threads;
	row.cold = fo_reuse_share(p, o, cold);
	for (size_t i = 0; i < g->n; i++) {
		const struct fo_limits_row *have = &g->item[i].row;
		if (have->key == row.key && have->threads == threads && fabs(have->cold - row.cold) < 0.01 &&
		    have->flop == row.flop)
			return;
	}
	struct fo_grid_item *it = item_add(g, row.kind, row.variant, row.dtype, threads);
	fo_work_of_op(&it->work, g->o->isa, p, o, first, threads);
	it->work.flop = row.flop;
	it->row.key = row.key;
	it->row.cold = row.cold;
	it->arranged = true;
	it->cold = cold;
	it->docs = docs;
	take_work(g, it, dtype, row.dim, FO_LIMITS_DIMS);
	it->row.bytes = row.bytes; /* of the operation's cost: what predictions multiply rates with */
}

/* How a program's operations are measured: with the caches as each operation finds them (exact), and again with what is
 * in no cache of the core's own in none, as others who use the last level may leave it; or with none and with all of
 * their operands cold, for other programs to interpolate between. */
enum { AS_THEY_COME = 1, MATMULS = 2 };
static fo_status add_program(struct fo_grid *g, const struct fo_program *p, double pairs, int how, int threads)
{
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	fo_plan(p, &u);
	uint32_t *cold = fo_reuse_cold(p, &u, g->cache_bytes), *left = NULL;
	if (how & AS_THEY_COME && fo_cache_second_bytes())
		left = fo_reuse_cold(p, &u, fo_cache_second_bytes());
	for (int i = 0; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &u, i);
		bool tensor = fo_op_info(o->kind)->cls == FO_CLASS_TENSOR;
		if (tensor && !(how & MATMULS))
			continue;
		add_call(g, p, o, u.first[i], how & AS_THEY_COME ? cold[i] : 0, p->run.rows, threads);
		if (!(how & AS_THEY_COME) && !tensor)
			add_call(g, p, o, u.first[i], UINT32_MAX, p->run.rows, threads);
		if (counts_pairs(p, o) && pairs >= 0)
			add_call(g, p, o, u.first[i], how & AS_THEY_COME ? cold[i] : 0, documents_of(p, pairs),
				 threads);
	}
	/* These come last: where time is short the others are measured. Attention's rows are told apart by their pairs;
	 * most of what it reads was written just before. */
	const size_t others = g->n;
	for (int i = 0; left && i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &u, i);
		if (!counts_pairs(p, o))
			add_call(g, p, o, u.first[i], cold[i] | left[i], p->run.rows, threads);
	}
	for (size_t k = others; k < g->n; k++)
		g->item[k].spare = true;
	free(cold);
	free(left);
	fo_unrolled_fini(&u);
	return FO_OK;
}

/* A Llama of a few layers, so that caches hold what they hold in a large one, as lowered and with passes. */
static fo_status add_model(struct fo_grid *g, int64_t hidden, int64_t ffn, int64_t tokens, int dtype,
			   const struct fo_passes *pass, int how, int threads)
{
	struct fo_program p;
	struct fo_model m;
	struct fo_lowering low = { .seq = tokens,
				   .rows = 1,
				   .micro_batches = 2,
				   .pass = *pass,
				   .precision = dtype == FO_BF16 ? FO_PRECISION_BF16 : FO_PRECISION_F32 };
	FO_TRY(fo_model_load("flatout-134m", &m));
	m.layers = 4;
	m.hidden = hidden;
	m.ffn = ffn;
	m.heads = m.kv_heads = hidden / m.head_dim;
	FO_TRY(fo_pass_build(&p, &m, &low));
	fo_status st = add_program(g, &p, -1, how, threads);
	fo_program_fini(&p);
	return st;
}

/* Some sizes of each operation that passes may leave or make. */
static fo_status add_models(struct fo_grid *g, int dtype, int threads)
{
	static const struct fo_passes plain = { .previous_norm = 0 },
				      usual = { .merge_qkv = 1,
						.merge_gate_up = 1,
						.fuse_loss = 512,
						.fuse_elementwise = 1,
						.fused_optimizer = 1 },
				      small = { .master = FO_MASTER_SPLIT,
						.moments = FO_MOMENTS_BF16,
						.rounding = FO_ROUND_STOCHASTIC,
						.fused_optimizer = 1 };
	static const struct {
		int64_t hidden, ffn, tokens;
		const struct fo_passes *pass;
		int how;
		bool quick, one_thread, f32;
	} want[] = {
		{ 768, 2048, 512, &usual, 0, true, false, true },
		{ 768, 2048, 2048, &usual, MATMULS, false, true, true },
		{ 768, 2048, 2048, &plain, 0, false, true, false },
		{ 768, 2048, 2048, &small, 0, false, false, false },
		{ 2048, 8192, 2048, &usual, 0, false, false, false },
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++)
		if ((want[i].quick || !g->o->quick) && (want[i].one_thread || threads == g->o->threads) &&
		    (want[i].f32 || dtype == FO_BF16))
			FO_TRY(add_model(g, want[i].hidden, want[i].ffn, want[i].tokens, dtype, want[i].pass,
					 want[i].how, threads));
	return FO_OK;
}

/* A run's calibration measures that run's operations. Of what serves every run it only fills in what the profile lacks.
 */
static void drop_had(struct fo_grid *g)
{
	if (g->o->program && fo_limits_row_find(g->have, &g->item[g->n - 1].row))
		g->n--;
}

static void add_traffic(struct fo_grid *g, int threads)
{
	for (int k = 0; k < FO_MEMORY_KINDS; k++)
		for (int past = 0; past < 2; past++) {
			struct fo_traffic t = {
				.data = &g->traffic, .kind = k, .past_caches = past, .threads = threads
			};
			if (!fo_traffic_can(&t))
				continue;
			struct fo_grid_item *it = item_add(g, fo_memory_kind_name[k], past ? "nt" : "plain", "-",
							   threads);
			it->traffic = t;
			it->fn = fo_traffic_run;
			it->row.bytes = fo_traffic_bytes(&t);
			it->row.dim[0] = (int64_t)it->row.bytes;
			snprintf(it->row.set, sizeof it->row.set, "-");
			guess(g, it);
			drop_had(g);
		}
}

static void add_extras(struct fo_grid *g)
{
	for (int i = 0; i < g->o->extras; i++) {
		const struct fo_ceilings_extra *e = &g->o->extra[i];
		struct fo_grid_item *it = item_add(g, "", "", "", 1);
		it->row = e->row;
		it->row.cold = NAN;
		it->fn = e->fn;
		it->arg = e->arg;
		it->units = e->units;
		drop_had(g);
	}
}

fo_status fo_grid_make(struct fo_grid *g)
{
	int most = g->o->threads;
	const struct fo_program *p = g->o->program;
	for (int t = 1; t < most && g->groups + 1 < FO_GRID_GROUPS_MAX; t *= p ? most : 2)
		g->group[g->groups++] = t;
	g->group[g->groups++] = most;
	add_extras(g);
	if (p) {
		add_traffic(g, most);
		return add_program(g, p, g->o->pairs, AS_THEY_COME | MATMULS, most);
	}
	for (int i = 0; i < g->groups; i++) {
		int t = g->group[i];
		add_traffic(g, t);
		for (int d = 0; (t == 1 || t == most) && d < 2; d++) {
			add_matmuls(g, d ? FO_BF16 : FO_F32, t);
			add_attention(g, d ? FO_BF16 : FO_F32, t);
			FO_TRY(add_models(g, d ? FO_BF16 : FO_F32, t));
		}
	}
	return FO_OK;
}
