#include "pass/planned.h"

#include "base/count.h"
#include "base/mem.h"
#include "base/thread.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGN = 64 /* of the plan (plan.c) */ };

/* ---- where a plan repeats itself ---- */

/* The planner's knowledge when a micro-batch begins: `state` is the same where all that lives lies in the same places,
 * with micro-batches counted from this one. Free ranges follow from it. */
struct begin {
	int32_t slot; /* its first one */
	uint64_t state;
	int64_t top, host_top;
};

/* A different odd number for each micro-batch: the sum of what lives, each times its micro-batch's number, shifts with
 * them. */
#define STEP UINT64_C(0x9e3779b97f4a7c15)

static uint64_t mixed(uint64_t x)
{
	x ^= x >> 31;
	x *= UINT64_C(0xbf58476d1ce4e5b9);
	x ^= x >> 27;
	x *= UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint64_t place_of(const struct fo_life *l)
{
	return mixed(mixed((uint64_t)l->offset + 1) ^ (uint64_t)l->buf << 32 ^ (uint64_t)(uint32_t)l->layer);
}

/* power[i]: STEP to the power of i - n. */
static uint64_t *powers_of(int64_t n)
{
	uint64_t inverse = STEP, *power = fo_xmalloc((size_t)(2 * n + 1) * sizeof *power);
	for (int i = 0; i < 5; i++) /* Newton: bits that are right double, from 3 */
		inverse *= 2 - STEP * inverse;
	power[n] = 1;
	for (int64_t i = 1; i <= n; i++) {
		power[n + i] = power[n + i - 1] * STEP;
		power[n - i] = power[n - i + 1] * inverse;
	}
	return power;
}

static void add_life(const struct fo_program *p, const struct fo_unrolled *u, const struct fo_life *l,
		     const uint64_t *power, struct begin *b)
{
	const int64_t n = p->run.micro_batches, end = l->offset + fo_round_up(l->bytes, ALIGN);
	const bool host = p->buf[l->buf].home == FO_HOME_HOST, shifts = p->buf[l->buf].axes & FO_PER_MICRO_BATCH;
	const uint64_t place = place_of(l);
	/* Micro-batches begin one after the other: the first that begins behind this life's first instance. */
	int64_t k = FO_FIRST(i, n, u->slot_begin[b[i].slot] > l->first);
	if (k < n && host)
		b[k].host_top = fo_max(b[k].host_top, end);
	else if (k < n)
		b[k].top = fo_max(b[k].top, end);
	for (; k < n && u->slot_begin[b[k].slot] <= l->until - l->moved; k++)
		b[k].state += place * (shifts ? power[n + l->mb - k] : 1);
}

/* False: micro-batches do not begin in their order. */
static bool find_begins(const struct fo_program *p, struct begin *b)
{
	const int64_t n = p->run.micro_batches;
	int64_t seen = 0;
	for (int32_t s = 0; s < p->nslot; s++) {
		if (p->slot[s].mb > seen)
			return false;
		if (p->slot[s].mb == seen)
			b[seen++] = (struct begin){ .slot = s };
	}
	return seen == n;
}

static void find_states(const struct fo_program *p, const struct fo_unrolled *u, struct begin *b)
{
	const int64_t n = p->run.micro_batches;
	uint64_t *power = powers_of(n);
	for (int i = 0; i < u->nlife; i++)
		if (!u->life[i].persists)
			add_life(p, u, &u->life[i], power, b);
	for (int64_t k = 1; k < n; k++) {
		b[k].top = fo_max(b[k].top, b[k - 1].top);
		b[k].host_top = fo_max(b[k].host_top, b[k - 1].host_top);
	}
	free(power);
}

/* Have the slots from `begin` to `end` as much work of layers as `period` micro-batches of the program? Those of a
 * pipeline that fills or empties have not. */
static bool full(const struct fo_program *p, int32_t begin, int32_t end, int64_t period)
{
	int64_t here[FO_ROLE_COUNT] = { 0 }, all[FO_ROLE_COUNT] = { 0 };
	for (int32_t s = 0; s < p->nslot; s++) {
		const struct fo_block *b = &p->block[p->slot[s].block];
		all[b->role] += b->unit == FO_UNIT_LAYER;
		here[b->role] += b->unit == FO_UNIT_LAYER && s >= begin && s < end;
	}
	bool as_much = true;
	for (int r = FO_ROLE_FORWARD; r <= FO_ROLE_WGRAD; r++)
		as_much = as_much && here[r] * p->run.micro_batches == all[r] * period;
	return as_much;
}

/* Are the slots of `period` micro-batches from k on like those before, and those of a full pipeline? */
static bool like_before(const struct fo_program *p, const struct begin *b, int64_t k, int64_t period)
{
	const int32_t n = b[k + period].slot - b[k].slot;
	if (b[k].slot - b[k - period].slot != n)
		return false;
	for (int32_t i = b[k].slot; i < b[k + period].slot; i++) {
		const struct fo_slot *x = &p->slot[i], *y = &p->slot[i - n];
		if (x->block != y->block || x->layer != y->layer || x->mb != y->mb + period)
			return false;
	}
	return full(p, b[k].slot, b[k + period].slot, period);
}

static bool same_slot(struct fo_pp_slot a, struct fo_pp_slot b, int64_t later)
{
	return a.mb == b.mb + later && a.chunk == b.chunk && a.work == b.work;
}

static int64_t first_of(const struct fo_pp_slot *slot, int64_t n, int64_t mb)
{
	int64_t i = 0;
	while (i < n && slot[i].mb != mb)
		i++;
	return i;
}

/* Is the schedule of n micro-batches that of p's with copies of the slots from micro-batch k to k + period put in? */
static bool schedule_repeats(const struct fo_program *p, int64_t n, int64_t k, int64_t period)
{
	struct fo_pp_shape few = fo_lowering_pipeline(&p->run), all = few;
	if (few.stages < 2)
		return true;
	all.micro_batches = (int32_t)n;
	const int32_t stage = fo_mesh_stage(&p->run.mesh);
	struct fo_pp_slot *x = fo_xmalloc((size_t)fo_pp_slots_most(&few) * sizeof *x),
			  *y = fo_xmalloc((size_t)fo_pp_slots_most(&all) * sizeof *y);
	const int64_t nx = fo_pp_order(&few, stage, x), ny = fo_pp_order(&all, stage, y), begin = first_of(x, nx, k),
		      end = first_of(x, nx, k + period), times = (n - few.micro_batches) / period;
	bool same = ny == nx + times * (end - begin);
	for (int64_t i = 0; i < end && same; i++)
		same = same_slot(y[i], x[i], 0);
	for (int64_t t = 0; t < times; t++)
		for (int64_t i = begin; i < end && same; i++)
			same = same_slot(y[end + t * (end - begin) + i - begin], x[i], (t + 1) * period);
	for (int64_t i = end; i < nx && same; i++)
		same = same_slot(y[times * (end - begin) + i], x[i], times * period);
	free(x);
	free(y);
	return same;
}

/* Can the slots from micro-batch k to k + period be put in again until there are n micro-batches? */
static bool can_stretch(const struct fo_program *p, const struct begin *b, int64_t n, int64_t k, int64_t period)
{
	return (n - p->run.micro_batches) % period == 0 && like_before(p, b, k, period) &&
	       schedule_repeats(p, n, k, period);
}

/* Is the plan of the program that of n micro-batches? */
static bool plan_repeats(const struct fo_program *p, const struct fo_unrolled *u, int64_t n)
{
	const int64_t few = p->run.micro_batches;
	struct begin *b = fo_xmalloc((size_t)few * sizeof *b);
	bool yes = false;
	if (find_begins(p, b)) {
		find_states(p, u, b);
		for (int64_t period = 1; !yes && 2 * period < few; period++)
			for (int64_t k = period + 1; !yes && k + period < few; k++)
				yes = b[k].state == b[k + period].state && b[k].top == b[k + period].top &&
				      b[k].host_top == b[k + period].host_top && can_stretch(p, b, n, k, period);
	}
	free(b);
	return yes;
}

/* ---- more of the same micro-batches ---- */

/* Makes the program that of n micro-batches, as lowering would: slots between the begins of two micro-batches come
 * again and again. False: it has no such slots, and stays as it is. */
static bool stretch(struct fo_program *p, int64_t n)
{
	const int64_t few = p->run.micro_batches;
	struct begin *b = fo_xmalloc((size_t)few * sizeof *b);
	int64_t period = 0, k = 0;
	if (find_begins(p, b))
		for (int64_t i = 1; !period && 2 * i < few; i++)
			for (int64_t at = i + 1; !period && at + i < few; at++)
				if (can_stretch(p, b, n, at, i))
					period = i, k = at;
	if (period) {
		const int32_t begin = b[k].slot, end = b[k + period].slot, part = end - begin;
		const int64_t times = (n - few) / period;
		struct fo_slot *slot = fo_xmalloc((size_t)(p->nslot + times * part) * sizeof *slot);
		for (int32_t i = 0; i < end; i++)
			slot[i] = p->slot[i];
		for (int64_t t = 0; t < times; t++)
			for (int32_t i = 0; i < part; i++) {
				slot[end + t * part + i] = p->slot[begin + i];
				slot[end + t * part + i].mb += (int32_t)((t + 1) * period);
			}
		for (int32_t i = end; i < p->nslot; i++) {
			struct fo_slot *to = &slot[i + times * part];
			*to = p->slot[i];
			to->mb += to->mb ? (int32_t)(times * period) : 0; /* 0: it is of no micro-batch */
		}
		free(p->slot);
		p->slot = slot;
		p->nslot += (int32_t)(times * part);
		p->slot_cap = (size_t)p->nslot;
		p->run.micro_batches = n;
	}
	free(b);
	return period > 0;
}

/* ---- one rank ---- */

/* Micro-batches of the first program of a rank, enough for a pipeline to be full for a while. */
static int64_t first_try(const struct fo_lowering *run)
{
	const int64_t n = run->micro_batches, stages = fo_mesh_pp(&run->mesh);
	if (stages > 1 && run->pass.pp == 1 + FO_PP_GPIPE) /* all are in flight */
		return n;
	/* Interleaved groups of more micro-batches than stages come first: one for each that is left over. */
	const int64_t rest = n % stages, rounds = run->pass.pp == 1 + FO_PP_INTERLEAVED ? 4 + rest : 4,
		      few = stages > 1 ? rounds * stages + rest : 8 + n % 2;
	return 3 * few / 2 < n ? few : n;
}

/* Bytes that are alive when most are, by kinds. */
static void take_parts(const struct fo_program *p, const struct fo_unrolled *u, struct fo_planned *out)
{
	int64_t *live = fo_xmalloc((size_t)(u->n + 1) * sizeof *live), most = 0;
	memset(live, 0, (size_t)(u->n + 1) * sizeof *live);
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		const int64_t bytes = fo_round_up(l->bytes, ALIGN);
		if (l->persists && p->buf[l->buf].home == FO_HOME_PARAM)
			out->part[FO_PLANNED_WEIGHTS] += bytes;
		if (l->persists || p->buf[l->buf].home == FO_HOME_HOST)
			continue;
		live[l->first] += bytes;
		live[l->until + !l->moved] -= bytes;
	}
	int at = 0;
	for (int64_t i = 0, sum = 0; i < u->n; i++) {
		sum += live[i];
		if (sum > most)
			most = sum, at = (int)i;
	}
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		const struct fo_buffer *b = &p->buf[l->buf];
		if (l->persists || b->home == FO_HOME_HOST || l->first > at || l->until + !l->moved <= at)
			continue;
		enum fo_planned_part part = FO_PLANNED_ACTIVATIONS;
		if (b->home == FO_HOME_GRAD)
			part = FO_PLANNED_GRADIENTS;
		else if (fo_instance_op(p, u, l->first)->lane == FO_LANE_GATHER)
			part = FO_PLANNED_GATHERED;
		out->part[part] += fo_round_up(l->bytes, ALIGN);
	}
	out->part[FO_PLANNED_STATES] = u->persistent_bytes - out->part[FO_PLANNED_WEIGHTS];
	out->part[FO_PLANNED_HOLES] = u->arena_bytes - most;
	free(live);
}

static void take(const struct fo_program *p, const struct fo_unrolled *u, struct fo_planned *out)
{
	*out = (struct fo_planned){ .rank = p->rank,
				    .persistent = u->persistent_bytes,
				    .arena = u->arena_bytes,
				    .live = u->max_live_bytes,
				    .host = u->host_arena_bytes };
	take_parts(p, u, out);
}

static int64_t operations_of(const struct fo_program *p)
{
	int64_t n = 0;
	for (int32_t s = 0; s < p->nslot; s++)
		n += p->block[p->slot[s].block].n;
	return n;
}

static fo_status unroll_and_plan(const struct fo_program *p, struct fo_unrolled *u, struct fo_planned_job *job)
{
	FO_TRY(fo_unroll(p, u));
	fo_plan(p, u);
	job->operations += u->n;
	return FO_OK;
}

static const char too_long[] = "its programs have more operations than are planned in some seconds";

/* Plans the program of `few` micro-batches for n. *done: *out is it. */
static fo_status plan_few(struct fo_program *p, int64_t n, int64_t most, struct fo_planned_job *job,
			  struct fo_planned *out, bool *done)
{
	struct fo_unrolled u;
	const int64_t few = p->run.micro_batches;
	*done = few == n;
	if (few < n && !p->staged) { /* stages hand their places on in an order of its own */
		FO_TRY(unroll_and_plan(p, &u, job));
		*done = plan_repeats(p, &u, n);
		if (*done)
			take(p, &u, out);
		fo_unrolled_fini(&u);
		if (*done)
			return FO_OK;
	}
	/* Slots have an operation or more each: too many are not even listed. */
	if (most && p->nslot / few * n > most) {
		job->why = too_long;
		return FO_OK;
	}
	*done = few == n || stretch(p, n);
	if (!*done)
		return FO_OK;
	if (most && job->operations + operations_of(p) > most) {
		job->why = too_long;
		return FO_OK;
	}
	FO_TRY(unroll_and_plan(p, &u, job));
	take(p, &u, out);
	fo_unrolled_fini(&u);
	return FO_OK;
}

/* Operations of a layer and micro-batch, forward and backward, at least. */
enum { OPERATIONS_LEAST = 16 };

static fo_status plan_rank(const struct fo_model *m, struct fo_lowering run, int64_t most, struct fo_planned_job *job,
			   struct fo_planned *out)
{
	const int64_t n = run.micro_batches, layers = fo_ceil_div(m->layers, fo_mesh_pp(&run.mesh));
	int64_t few = first_try(&run);
	if (most && fo_mesh_pp(&run.mesh) > 1 && OPERATIONS_LEAST * layers * n > most) { /* all are planned there */
		job->why = too_long;
		return FO_OK;
	}
	for (bool done = false; !done && !job->why;) {
		struct fo_program p;
		if (most && job->operations + OPERATIONS_LEAST * layers * few > most) {
			job->why = too_long;
			return FO_OK;
		}
		run.micro_batches = few;
		FO_TRY(fo_pass_build_unverified(&p, m, &run));
		job->programs++;
		job->operations += operations_of(&p);
		job->micro_batches = fo_max(job->micro_batches, few);
		const fo_status st = plan_few(&p, n, most, job, out, &done);
		fo_program_fini(&p);
		FO_TRY(st);
		few = 2 * few + (n - 2 * few) % (p.staged ? fo_mesh_pp(&run.mesh) : 2);
		few = 3 * few / 2 < n ? few : n;
	}
	return FO_OK;
}

/* ---- ranks that differ ---- */

/* Sizes that a rank of a tp and a shard group has: its parts of all that these divide. words: it has some of the
 * embedding or the head. */
enum { DIVIDED = 10 };
static void sizes_of(const struct fo_model *m, const struct fo_lowering *run, bool words, int32_t tp, int32_t shard,
		     int64_t out[DIVIDED])
{
	const struct fo_mesh *mesh = &run->mesh;
	const int32_t of_tp = run->pass.tp ? fo_mesh_tp(mesh) : 1, kv = fo_mesh_kv_of(m, of_tp),
		      of_shard = run->pass.zero ? fo_mesh_group(mesh, FO_GROUP_SHARD, NULL, NULL) : 1;
	int64_t begin;
	const int64_t v = fo_mesh_part(words ? m->vocab : 0, tp % of_tp, of_tp, &begin),
		      f = fo_mesh_part(m->ffn, tp % of_tp, of_tp, &begin), q = m->heads * m->head_dim / of_tp,
		      k = m->kv_heads * m->head_dim * kv / of_tp,
		      whole[DIVIDED - 2] = { v, f, 2 * f, q, k, q + 2 * k, m->hidden, m->head_dim };
	for (int i = 0; i < DIVIDED - 2; i++)
		out[i] = fo_mesh_part(whole[i], shard % of_shard, of_shard, &begin);
	out[DIVIDED - 2] = v;
	out[DIVIDED - 1] = f;
}

/* Has a stage the embedding or the head? */
static bool has_words(const struct fo_lowering *run, int32_t stage)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	bool has = shape.stages < 2;
	for (int32_t c = 0; c < shape.chunks && !has; c++) {
		const int32_t at = fo_pp_position(&shape, stage, c);
		has = at == 0 || at == fo_pp_parts(&shape) - 1;
	}
	return has;
}

/* Ranks of a stage that differ in sizes. The last one, whose parts are the largest, is the first. Returns how many
 * there are. */
enum { KINDS_MOST = 256 };
static int32_t kinds_of(const struct fo_model *m, const struct fo_lowering *run, int32_t stage,
			int32_t rank[KINDS_MOST])
{
	int64_t seen[KINDS_MOST][DIVIDED];
	const int32_t tps = fo_mesh_tp(&run->mesh), shards = fo_mesh_group(&run->mesh, FO_GROUP_SHARD, NULL, NULL),
		      last = (stage + 1) * fo_mesh_stage_ranks(&run->mesh) - tps * shards;
	const bool words = has_words(run, stage);
	int32_t n = 0;
	for (int32_t s = shards - 1; s >= 0; s--)
		for (int32_t t = tps - 1; t >= 0 && n < KINDS_MOST; t--) {
			int32_t i = 0;
			sizes_of(m, run, words, t, s, seen[n]);
			while (memcmp(seen[i], seen[n], sizeof *seen) != 0)
				i++;
			if (i == n)
				rank[n++] = last + s * tps + t;
		}
	return n;
}

/* ---- all of them ---- */

struct task {
	struct fo_lowering run;
	struct fo_planned_job job;
	struct fo_planned out;
	fo_status st;
};
struct tasks {
	const struct fo_model *m;
	struct task *of;
	int64_t most; /* operations of a task; 0: no limit */
};

static void plan_task(void *ctx, size_t i)
{
	struct tasks *t = ctx;
	struct task *x = &t->of[i];
	x->st = plan_rank(t->m, x->run, t->most, &x->job, &x->out);
	fo_err_clear(); /* of this thread */
}

static fo_status gather(struct tasks *t, size_t n, struct fo_planned_job *out)
{
	for (size_t i = 0; i < n; i++) {
		struct task *x = &t->of[i];
		const int32_t stage = fo_mesh_stage(&x->run.mesh);
		const bool first = !i || fo_mesh_stage(&x[-1].run.mesh) != stage;
		if (x->st != FO_OK) { /* once more, for its words */
			x->job = (struct fo_planned_job){ .stage = NULL };
			return plan_rank(t->m, x->run, t->most, &x->job, &x->out);
		}
		out->programs += x->job.programs;
		out->operations += x->job.operations;
		out->micro_batches = fo_max(out->micro_batches, x->job.micro_batches);
		out->why = x->job.why ? x->job.why : out->why;
		if (out->stage && (first || fo_planned_bytes(&x->out) > fo_planned_bytes(&out->stage[stage])))
			out->stage[stage] = x->out;
		if (!i || fo_planned_bytes(&x->out) > fo_planned_bytes(&out->fullest))
			out->fullest = x->out;
	}
	return FO_OK;
}

fo_status fo_pass_plan_job(const struct fo_model *m, const struct fo_lowering *run, int64_t most,
			   struct fo_planned_job *out)
{
	int32_t rank[KINDS_MOST];
	struct tasks t = { .m = m };
	size_t n = 0, cap = 0;
	*out = (struct fo_planned_job){ .stage = out->stage };
	for (int32_t s = 0; s < fo_mesh_pp(&run->mesh) && !out->why; s++) {
		const int32_t kinds = kinds_of(m, run, s, rank);
		for (int32_t i = 0; i < kinds; i++) {
			fo_array_room(&t.of, &cap, n, sizeof *t.of);
			t.of[n] = (struct task){ .run = *run };
			t.of[n++].run.mesh.rank = rank[i];
		}
		if (kinds == KINDS_MOST)
			out->why = "its ranks have too many sizes to be planned in some seconds";
	}
	fo_status st = FO_OK;
	if (!out->why) {
		t.most = most ? most / (int64_t)n + 1 : 0;
		fo_thread_share(n, plan_task, &t);
		st = gather(&t, n, out);
	}
	free(t.of);
	return st;
}
