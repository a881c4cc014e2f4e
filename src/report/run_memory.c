/* Memory by lifetime: what the plan has alive at each operation of a step; what waits in host memory is not among it.
 */
#include "pass/pass.h"
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

static void list_buffers(struct fo_report_memory *m, struct fo_arena *arena, const struct fo_program *p,
			 const struct fo_unrolled *u)
{
	struct fo_report_buffer *all = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *all);
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		if ((!l->persists && (l->first > m->peak || end_of(l) < m->peak)) ||
		    p->buf[l->buf].home == FO_HOME_HOST)
			continue;
		struct fo_report_buffer *b = &all[l->buf];
		b->name = fo_arena_strdup(arena, p->buf[l->buf].name);
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
	m->buffer = fo_arena_alloc(arena, (size_t)(m->buffers + 1) * sizeof *m->buffer);
	memcpy(m->buffer, all, (size_t)m->buffers * sizeof *all);
	free(all);
}

/* The bytes that `ranks` of them hold that run this program. */
static void look_at(struct fo_report_memory *m, struct fo_arena *arena, const struct fo_program *p,
		    const struct fo_unrolled *u, int ranks)
{
	m->arena_bytes = (double)u->arena_bytes;
	if (u->n > POINTS_MAX)
		return;
	m->points = u->n;
	for (int k = 0; k < FO_LIFE_COUNT; k++)
		m->live[k] = fo_arena_alloc(arena, (size_t)(u->n + 1) * sizeof **m->live);
	/* First the changes at each operation, then their sums. */
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		double *live = m->live[life_of(p, u, l)],
		       bytes = (double)((l->bytes + ALIGN - 1) / ALIGN * ALIGN) * ranks;
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
	list_buffers(m, arena, p, u);
}

static double peak_of(const struct fo_report_memory *m)
{
	double sum = 0;
	for (int k = 0; k < FO_LIFE_COUNT; k++)
		sum += m->peak_bytes[k];
	return sum;
}

static fo_status look_at_stage(struct fo_report_memory *m, struct fo_arena *arena, const struct fo_program *first,
			       int32_t k, struct fo_report_stage *stage)
{
	struct fo_program p;
	struct fo_unrolled u;
	struct fo_str repeat = { 0 };
	FO_TRY(fo_pass_build_stage(&p, first, k));
	fo_status st = fo_unroll(&p, &u);
	if (st == FO_OK) {
		fo_plan(&p, &u);
		fo_recompute_stage_text(&p.run, p.model.layers, k, &repeat);
		*stage = (struct fo_report_stage){ .ranks = fo_mesh_stage_ranks(&p.run.mesh),
						   .layers = fo_program_layers(&p),
						   .recompute = fo_arena_strdup(arena, repeat.data),
						   .arena_bytes = (double)u.arena_bytes,
						   .persistent_bytes = (double)u.persistent_bytes };
		look_at(m, arena, &p, &u, stage->ranks);
		fo_unrolled_fini(&u);
	}
	fo_str_fini(&repeat);
	fo_program_fini(&p);
	return st;
}

/* The record has the first stage's program, from which this version makes all others, if it makes the first one the
 * same. */
static bool can_make(const struct fo_program *first)
{
	struct fo_program p;
	if (fo_pass_build_stage(&p, first, 0) != FO_OK) {
		fo_err_clear();
		return false;
	}
	const bool same = fo_program_hash(&p) == fo_program_hash(first);
	fo_program_fini(&p);
	return same;
}

static void look_at_stages(struct fo_report *o, const struct fo_program *first)
{
	const int32_t stages = fo_mesh_pp(&first->run.mesh);
	struct fo_report_memory *m = &o->memory;
	double sum[FO_LIFE_COUNT] = { 0 };
	struct fo_report_stage *stage = fo_arena_alloc(&o->arena, (size_t)stages * sizeof *stage);
	int32_t known = 0;
	for (int32_t k = 0; k < stages; k++) {
		struct fo_report_memory one = { 0 };
		if (look_at_stage(&one, &o->arena, first, k, &stage[k]) != FO_OK) {
			fo_err_clear();
			break;
		}
		for (int i = 0; i < FO_LIFE_COUNT; i++)
			sum[i] += one.peak_bytes[i];
		if (!k || peak_of(&one) > peak_of(m)) {
			*m = one;
			m->shown = k;
		}
		known++;
	}
	m->others_unknown = known < stages;
	if (known < stages)
		return;
	m->stages = stages;
	m->stage = stage;
	memcpy(m->peak_bytes, sum, sizeof sum);
}

void fo_report_look_at_memory(struct fo_report *o)
{
	const struct fo_program *p = &o->r->program;
	const struct fo_unrolled *u = &o->r->unrolled;
	struct fo_report_memory *m = &o->memory;
	m->arena_bytes = NAN;
	if (o->r->file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE || u->n <= 0)
		return;
	if (p->staged && p->rank == 0 && can_make(p)) {
		look_at_stages(o, p);
		return;
	}
	m->others_unknown = p->staged;
	look_at(m, &o->arena, p, u, p->staged ? fo_mesh_stage_ranks(&p->run.mesh) : p->ranks);
}
