/* fp8-transposed: every fp8 matmul sums along the rows of both factors.
 *
 * Hopper's fp8 matmuls take a (m,k) and b (n,k) and nothing else. Forward matmuls lie so; the input's gradient wants
 * the weight transposed, a weight gradient both of its factors. Where the scale is one for the whole tensor, a
 * transposed copy has the same numbers: the cast writes it from the one read (fp8_cast_t), and the matmul takes it.
 * Weights are cast once per step (fp8-scale-precompute), both forms. docs/passes/fp8-transposed.md. */
#include "pass/pass.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The buffer of the transpose of q; of[q]: -1, or that buffer. */
static int transposed_of(struct fo_program *p, int *of, int q)
{
	if (of[q] >= 0)
		return of[q];
	const struct fo_buffer b = p->buf[q];
	char name[sizeof b.name];
	snprintf(name, sizeof name, "%.21s.t", b.name);
	if (fo_buffer_find(p, name) >= 0)
		snprintf(name, sizeof name, "t.%d", q);
	static const uint8_t turned[FO_TP_PARTS] = { [FO_TP_ROWS] = FO_TP_COLS,
						     [FO_TP_COLS] = FO_TP_ROWS,
						     [FO_TP_KV_ROWS] = FO_TP_KV_COLS,
						     [FO_TP_KV_COLS] = FO_TP_KV_ROWS };
	of[q] = fo_buffer_add(p, name, b.dtype, b.home, b.axes, b.cols, b.col_axis, b.rows, b.row_axis);
	p->buf[of[q]].tp = turned[b.tp];
	return of[q];
}

/* Casts that make q make its transpose too. */
static void cast_both(struct fo_program *p, int q, int t)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if ((o->kind != FO_OP_fp8_cast && o->kind != FO_OP_fp8_cast_step) ||
			    o->arg[FO_FP8_CAST_Y].buf != q)
				continue;
			if (o->kind == FO_OP_fp8_cast)
				o->kind = FO_OP_fp8_cast_t;
			fo_op_arg(p, o, t, o->arg[FO_FP8_CAST_Y].dlayer, FO_DEF);
		}
}

fo_status fo_pass_fp8_transposed_legal(const struct fo_program *p)
{
	const struct fo_passes *c = &p->run.pass;
	if (c->fp8 != FO_FP8_CURRENT && c->fp8 != FO_FP8_DELAYED)
		return fo_fail(FO_EARG, "transposed copies have the same numbers where scales are per tensor: fp8 is "
					"not current or delayed");
	return c->fp8_precompute ? FO_OK
				 : fo_fail(FO_EARG, "without fp8-scale-precompute each matmul would have a cast of "
						    "the weight in one form alone");
}

void fo_pass_fp8_transposed(struct fo_program *p)
{
	int most = p->nbuf;
	int *of = fo_xmalloc((size_t)(most + 1) * sizeof *of);
	memset(of, -1, (size_t)most * sizeof *of);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			struct fo_op *o = &p->block[b].op[i];
			if (fo_op_family(o->kind) != FO_OPS_MATMUL || o->n <= FO_MATMUL_SB)
				continue;
			for (int k = 0; k < 2; k++) {
				int q = o->arg[k].buf;
				if (!(k ? !o->attr.tb : o->attr.ta))
					continue;
				bool fresh = of[q] < 0;
				int t = transposed_of(p, of, q);
				if (fresh)
					cast_both(p, q, t);
				const struct fo_operand x = o->arg[k];
				o->arg[k] = (struct fo_operand){ .buf = (int16_t)t,
								 .dlayer = x.dlayer,
								 .access = x.access,
								 .r0 = x.c0,
								 .nr = x.nc,
								 .c0 = x.r0,
								 .nc = x.nr };
				if (k)
					o->attr.tb = 1;
				else
					o->attr.ta = 0;
			}
		}
	free(of);
}
