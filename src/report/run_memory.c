/* Memory by lifetime: what the plan has alive at each operation of a step; what waits in host memory is not among it.
 */
#include "report/run_int.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 1 << 22 }; /* six numbers of 8 bytes each: 200 MB */
enum { BUFFERS_SHOWN = 10 };
enum { ALIGN = 64 }; /* as fo_plan counts: whole cache lines */

const char *const fo_report_life_name[FO_LIFE_COUNT] = {
	"weights",
	"optimizer state",
	"gradients of weights",
	"kept from forward to backward",
	"passed between blocks",
	"within a block",
};

static int role_of(const struct fo_program *p, const struct fo_unrolled *u, int32_t instance)
{
	return p->block[p->slot[u->slot[instance]].block].role;
}

static enum fo_report_life life_of(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_life *l)
{
	const struct fo_buffer *b = &p->buf[l->buf];
	if (l->persists)
		return b->home == FO_HOME_PARAM ? FO_LIFE_WEIGHTS : FO_LIFE_STATE;
	for (int i = 0; i < p->nparam; i++)
		if (p->param[i].grad == l->buf)
			return FO_LIFE_GRADIENT;
	if (u->slot[l->first] == u->slot[l->last])
		return FO_LIFE_BLOCK;
	int from = role_of(p, u, l->first), to = role_of(p, u, l->last);
	return from == FO_ROLE_FORWARD && to != FO_ROLE_FORWARD ? FO_LIFE_KEPT : FO_LIFE_PASSED;
}

/* The last operation at which its bytes are its own: bytes that were handed on in place belong to the output from there
 * on. */
static int32_t end_of(const struct fo_life *l) { return l->moved ? l->last - 1 : l->until; }

static int by_bytes(const void *a, const void *b)
{
	const struct fo_report_buffer *x = a, *y = b;
	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? 1 : -1;
	return strcmp(x->name, y->name);
}

static void list_buffers(struct fo_report *o, const struct fo_program *p, const struct fo_unrolled *u)
{
	struct fo_report_memory *m = &o->memory;
	struct fo_report_buffer *all = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *all);
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		if ((!l->persists && (l->first > m->peak || end_of(l) < m->peak)) ||
		    p->buf[l->buf].home == FO_HOME_HOST)
			continue;
		struct fo_report_buffer *b = &all[l->buf];
		b->name = p->buf[l->buf].name;
		b->life = life_of(p, u, l);
		b->copies++;
		b->bytes += l->bytes;
	}
	int n = 0;
	for (int i = 0; i < p->nbuf; i++)
		if (all[i].copies)
			all[n++] = all[i];
	qsort(all, (size_t)n, sizeof *all, by_bytes);
	m->buffers = n < BUFFERS_SHOWN ? n : BUFFERS_SHOWN;
	m->buffer = fo_arena_alloc(&o->arena, (size_t)(m->buffers + 1) * sizeof *m->buffer);
	memcpy(m->buffer, all, (size_t)m->buffers * sizeof *all);
	free(all);
}

void fo_report_look_at_memory(struct fo_report *o)
{
	const struct fo_program *p = &o->r->program;
	const struct fo_unrolled *u = &o->r->unrolled;
	struct fo_report_memory *m = &o->memory;
	m->arena_bytes = NAN;
	if (o->r->file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE || u->n <= 0)
		return;
	m->arena_bytes = (double)u->arena_bytes;
	if (u->n > POINTS_MAX)
		return;
	m->points = u->n;
	for (int k = 0; k < FO_LIFE_COUNT; k++)
		m->live[k] = fo_arena_alloc(&o->arena, (size_t)(u->n + 1) * sizeof **m->live);
	/* First the changes at each operation, then their sums. */
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		double *live = m->live[life_of(p, u, l)],
		       bytes = (double)((l->bytes + ALIGN - 1) / ALIGN * ALIGN) * p->ranks; /* of all ranks */
		if (l->persists) {
			live[0] += bytes;
		} else if (end_of(l) >= l->first && p->buf[l->buf].home != FO_HOME_HOST) {
			live[l->first] += bytes;
			live[end_of(l) + 1] -= bytes;
		}
	}
	double most = -1;
	for (int32_t i = 0; i < u->n; i++) {
		double sum = 0;
		for (int k = 0; k < FO_LIFE_COUNT; k++) {
			m->live[k][i] += i ? m->live[k][i - 1] : 0;
			sum += m->live[k][i];
		}
		if (sum > most) {
			most = sum;
			m->peak = i;
		}
	}
	for (int k = 0; k < FO_LIFE_COUNT; k++)
		m->peak_bytes[k] = m->live[k][m->peak];
	list_buffers(o, p, u);
}
