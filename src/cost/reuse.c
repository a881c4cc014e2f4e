#include "cost/cost.h"
#include "base/mem.h"

#include <stdlib.h>

/* Memory is looked at in pieces, at least this large: an activation of a small model is ten of them. */
#define PIECE_LEAST ((int64_t)64 << 10)
/* A bound on the pieces, so that the walk stays short for large models too. */
enum { PIECES_MOST = 1 << 18 };

struct memory {
	int64_t piece, pieces;
	double *touched;   /* per piece: bytes that the step(s) had touched when it was touched last */
	double *touched_s; /* per piece, or NULL: seconds when that was */
	double now;
	double cache;
};

/* The embedding's table or its gradient: rows of the vocabulary, of which an operation touches those of its tokens. */
static bool is_table(const struct fo_op *o, int i)
{
	const struct fo_op_info *f = fo_op_info(o->kind);
	return f->family == FO_OPS_EMBEDDING && f->operand[i].rows == FO_DIM_V;
}

double fo_reuse_touched(const struct fo_program *p, const struct fo_op *o, int i)
{
	const struct fo_operand *a = &o->arg[i];
	double rows = a->nr;
	if (is_table(o, i) && (double)o->arg[FO_EMBED_TOKEN].nr < rows)
		rows = o->arg[FO_EMBED_TOKEN].nr;
	return rows * a->nc * (double)fo_dtype_bytes(p->buf[a->buf].dtype);
}

double fo_reuse_share(const struct fo_program *p, const struct fo_op *o, uint32_t cold)
{
	double all = 0, some = 0;
	for (int i = 0; i < o->n; i++) {
		double bytes = fo_reuse_touched(p, o, i);
		all += bytes;
		some += cold >> i & 1 ? bytes : 0;
	}
	return all > 0 ? some / all : 0;
}

/* First and last piece that an operand of an instance lies in. Persistent buffers lie after the arena, those in host
 * memory after both. */
static void pieces_of(const struct fo_program *p, const struct fo_unrolled *u, const struct memory *m, int instance,
		      int i, int64_t *first, int64_t *last)
{
	const struct fo_operand *a = &fo_instance_op(p, u, instance)->arg[i];
	const struct fo_life *l = &u->life[u->life_of[u->arg_begin[instance] + i]];
	int64_t size = (int64_t)fo_dtype_bytes(p->buf[a->buf].dtype), ld = p->buf[a->buf].cols;
	int64_t base = l->offset;
	if (l->persists)
		base += u->arena_bytes;
	else if (p->buf[l->buf].home == FO_HOME_HOST)
		base += u->arena_bytes + u->persistent_bytes;
	*first = (base + (a->r0 * ld + a->c0) * size) / m->piece;
	*last = (base + ((a->r0 + a->nr - 1) * ld + a->c0 + a->nc) * size - 1) / m->piece;
	if (*last >= m->pieces)
		*last = m->pieces - 1;
}

static bool is_cold(const struct fo_program *p, const struct fo_unrolled *u, const struct memory *m, int instance,
		    int i)
{
	const struct fo_op *o = fo_instance_op(p, u, instance);
	int64_t first, last, old = 0;
	/* The operand is larger than the cache: its end evicts its beginning. */
	if (fo_reuse_touched(p, o, i) > m->cache)
		return true;
	pieces_of(p, u, m, instance, i, &first, &last);
	for (int64_t k = first; k <= last; k++)
		old += m->now - m->touched[k] > m->cache;
	return 2 * old > last - first + 1;
}

/* The share, 0 to 1, that others pushed out of an operand that is not cold. */
static double lost_of(const struct fo_program *p, const struct fo_unrolled *u, const struct memory *m,
		      const struct fo_caches *c, int instance, int i, double now_s)
{
	int64_t first, last;
	double lost = 0;
	pieces_of(p, u, m, instance, i, &first, &last);
	for (int64_t k = first; k <= last; k++)
		if (m->now - m->touched[k] > c->second)
			lost += fo_caches_lost(c, now_s - m->touched_s[k]);
	return lost / (double)(last - first + 1);
}

static void touch(const struct fo_program *p, const struct fo_unrolled *u, struct memory *m, int instance, double end_s)
{
	const struct fo_op *o = fo_instance_op(p, u, instance);
	for (int i = 0; i < o->n; i++)
		m->now += fo_reuse_touched(p, o, i);
	for (int i = 0; i < o->n; i++) {
		int64_t first, last;
		pieces_of(p, u, m, instance, i, &first, &last);
		for (int64_t k = first; k <= last && !is_table(o, i); k++) {
			m->touched[k] = m->now;
			if (m->touched_s)
				m->touched_s[k] = end_s;
		}
	}
}

static void open_memory(struct memory *m, const struct fo_unrolled *u, double cache)
{
	int64_t bytes = u->arena_bytes + u->persistent_bytes + u->host_arena_bytes;
	*m = (struct memory){ .piece = PIECE_LEAST, .cache = cache };
	while (bytes / m->piece >= PIECES_MOST)
		m->piece *= 2;
	m->pieces = bytes / m->piece + 1;
	m->touched = fo_xmalloc((size_t)m->pieces * sizeof *m->touched);
	for (int64_t k = 0; k < m->pieces; k++)
		m->touched[k] = -m->cache - 1;
}

uint32_t *fo_reuse_cold(const struct fo_program *p, const struct fo_unrolled *u, int64_t cache_bytes)
{
	uint32_t *cold = fo_xmalloc((size_t)(u->n + 1) * sizeof *cold);
	struct memory m;
	open_memory(&m, u, (double)cache_bytes);
	for (int step = 0; step < 2; step++)
		for (int i = 0; i < u->n; i++) {
			const struct fo_op *o = fo_instance_op(p, u, i);
			cold[i] = 0;
			for (int k = 0; k < o->n; k++)
				cold[i] |= (uint32_t)is_cold(p, u, &m, i, k) << k;
			touch(p, u, &m, i, 0);
		}
	free(m.touched);
	return cold;
}

double *fo_reuse_lost(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_caches *c,
		      const struct fo_step_when *when)
{
	double *lost = fo_xmalloc((size_t)(u->n + 1) * sizeof *lost);
	struct memory m;
	open_memory(&m, u, c->last);
	m.touched_s = fo_xmalloc((size_t)m.pieces * sizeof *m.touched_s);
	for (int step = 0; step < 2; step++)
		for (int i = 0; i < u->n; i++) {
			const struct fo_op *o = fo_instance_op(p, u, i);
			const double since_s = step * when->step_s;
			double all = 0, some = 0;
			for (int k = 0; k < o->n; k++) {
				const double bytes = fo_reuse_touched(p, o, k);
				all += bytes;
				if (bytes > 0 && !is_cold(p, u, &m, i, k))
					some += bytes * lost_of(p, u, &m, c, i, k, since_s + when->begin_s[i]);
			}
			lost[i] = all > 0 ? some / all : 0;
			touch(p, u, &m, i, since_s + when->end_s[i]);
		}
	free(m.touched_s);
	free(m.touched);
	return lost;
}
