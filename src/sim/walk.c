/* Step programs as a fleet, and what the fleet's step says of a rank. */
#include "sim/walk.h"

#include "base/count.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }

/* ---- programs as roles ---- */

/* Of all tensors of a call; of parts and a whole, of the whole. */
static int64_t elements_of(const struct fo_op *o)
{
	int64_t sum = 0, most = 0;
	for (int i = 0; i < o->n; i++) {
		int64_t n = (int64_t)o->arg[i].nr * o->arg[i].nc;
		sum += n;
		most = n > most ? n : most;
	}
	return fo_op_info(o->kind)->per_tensor ? sum : most;
}

static bool is_pair(const struct fo_op *o)
{
	enum fo_wire wire = fo_op_info(o->kind)->wire;
	return wire == FO_WIRE_SEND || wire == FO_WIRE_RECEIVE;
}

/* What ranks that meet must have in common. Send and receive are a pair. */
static uint64_t what_of(const struct fo_program *p, const struct fo_op *o)
{
	uint64_t wire = fo_op_info(o->kind)->wire, peer = (uint64_t)o->attr.peer;
	if (is_pair(o)) {
		wire = FO_WIRE_SEND;
		peer = 0;
	}
	const uint64_t part[] = { wire,
				  peer,
				  o->attr.narrow,
				  (uint64_t)fo_op_tensors(o->kind, o->n),
				  (uint64_t)elements_of(o),
				  p->buf[o->arg->buf].dtype };
	uint64_t h = 1;
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		h = fo_fleet_mix(h ^ part[i]);
	return h | 1;
}

/* "all_reduce of 4096 f32 in layer.b" */
static void tell(const void *ctx, int32_t role, int32_t op, char *out, size_t size)
{
	const struct fo_sim_job *job = ctx;
	const struct fo_sim_rank *r = &job->role[role];
	const struct fo_op *o = fo_instance_op(r->p, r->u, op);
	snprintf(out, size, "%s of %lld %s in %s", fo_op_info(o->kind)->name, (long long)elements_of(o),
		 fo_dtype_name[r->p->buf[o->arg->buf].dtype], r->p->block[r->p->slot[r->u->slot[op]].block].name);
}

static int32_t *names_of(struct fo_fleet *f, const struct fo_program *p)
{
	int ops = 0, n = 0;
	for (int b = 0; b < p->nblock; b++)
		ops += p->block[b].n;
	int32_t *name = fo_xmalloc((size_t)(ops + 1) * sizeof *name);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			char text[96];
			snprintf(text, sizeof text, "%s of %s", fo_op_info(p->block[b].op[i].kind)->name,
				 p->block[b].name);
			name[n++] = fo_fleet_name(f, text);
		}
	return name;
}

static void add_role(struct fo_fleet *f, const struct fo_sim_job *job, int k)
{
	const struct fo_sim_rank *from = &job->role[k];
	const struct fo_program *p = from->p;
	const struct fo_sim *s = from->sim;
	char text[32];
	snprintf(text, sizeof text, "role %d", k);
	struct fo_fleet_role *r = fo_fleet_role_add(f, text);
	int32_t *name = names_of(f, p), *begin = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *begin);
	r->after_s = s->overhead_s;
	for (int b = 0; b < p->nblock; b++)
		begin[b + 1] = begin[b] + p->block[b].n;
	for (int i = 0; i < from->u->n; i++) {
		const struct fo_op *o = fo_instance_op(p, from->u, i);
		const enum fo_class cls = fo_op_info(o->kind)->cls;
		struct fo_fleet_op x = { .name = name[begin[p->slot[from->u->slot[i]].block] + from->u->op[i]],
					 .lane = o->lane,
					 .does = FO_FLEET_WORKS,
					 .kind = cls == FO_CLASS_TENSOR ? FO_CROWD_TENSOR : FO_CROWD_MEMORY,
					 .before_s = from->before_s ? from->before_s[i] : 0,
					 .seconds = s->seconds[i] };
		if (is_comm(o) && job->meets) {
			x.does = FO_FLEET_CALLS;
			x.group = o->group;
			x.link_s = s->hold_s[i];
			x.what = what_of(p, o);
			if (is_pair(o)) {
				int32_t place;
				fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &place, NULL);
				x.does = fo_op_info(o->kind)->wire == FO_WIRE_SEND ? FO_FLEET_SENDS : FO_FLEET_RECEIVES;
				x.peer = (int16_t)(o->attr.peer - place);
			}
		}
		fo_fleet_op_add(r, x);
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (from->u->wait[i][l] >= 0 && l != o->lane)
				fo_fleet_need(r, from->u->wait[i][l]);
	}
	free(begin);
	free(name);
}

/* Groups of a program by their numbers, as sets of the axes of its mesh. */
void fo_sim_mesh(struct fo_fleet *f, const struct fo_mesh *m)
{
	const int32_t kv = fo_mesh_kv(m);
	const uint32_t pp = 1u << fo_fleet_axis(f, "pp", fo_mesh_pp(m)),
		       replicate = 1u << fo_fleet_axis(f, "replicate", (int32_t)fo_max(m->replicate, 1)),
		       shard = 1u << fo_fleet_axis(f, "shard", (int32_t)fo_max(m->shard, 1)),
		       cp = 1u << fo_fleet_axis(f, "cp", fo_mesh_cp(m)),
		       heads = 1u << fo_fleet_axis(f, "heads", fo_mesh_tp(m) / kv),
		       same = 1u << fo_fleet_axis(f, "kv", kv);
	const uint32_t axes[FO_GROUP_COUNT] = { [FO_GROUP_DATA] = replicate | shard | cp,
						[FO_GROUP_SHARD] = shard | cp,
						[FO_GROUP_REPLICATE] = replicate,
						[FO_GROUP_TP] = heads | same,
						[FO_GROUP_ALL] = replicate | shard | cp | heads | same,
						[FO_GROUP_KV] = same,
						[FO_GROUP_HEADS] = heads,
						[FO_GROUP_CP] = cp,
						[FO_GROUP_PP] = pp,
						[FO_GROUP_ENDS] = pp };
	_Static_assert(FO_GROUP_COUNT == 11 && (int)FO_GROUP_COUNT <= (int)FO_FLEET_GROUPS, "a new group has axes");
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		f->group[fo_fleet_group(f, fo_group_name[g], axes[g])].ends = g == FO_GROUP_ENDS;
}

void fo_sim_fleet(struct fo_fleet *f, const struct fo_sim_job *job)
{
	*f = (struct fo_fleet){ .role_of = job->role_of,
				.role_axis = -1,
				.odd = job->odd,
				.odds = job->odds,
				.crowd = job->crowd,
				.apart = job->apart,
				.tell = tell,
				.ctx = job };
	if (job->meets)
		fo_sim_mesh(f, &job->role->p->run.mesh);
	fo_fleet_link(f, "link", 1, job->serial);
	for (int k = 0; k < job->roles; k++)
		add_role(f, job, k);
}

/* ---- what a rank's step consists of ---- */

/* The part of the step that idle time before or after an operation of another lane belongs to (as in
 * fo_profile_add_step). */
static enum fo_part part_of_wait(const struct fo_op *o)
{
	enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
	return part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part;
}

/* The lanes that compute, in step: what each has, and at which of its instances we are. */
struct shared {
	const struct fo_sim_rank *r;
	int32_t *list[2], n[2], at[2];
	double *own; /* per instance: with the cores to itself */
};
static const int computing_lane[2] = { FO_LANE_COMPUTE, FO_LANE_WGRAD };

static void open_shared(struct shared *x, const struct fo_sim_rank *r)
{
	*x = (struct shared){ .r = r, .own = fo_xmalloc((size_t)(r->u->n + 1) * sizeof *x->own) };
	for (int k = 0; k < 2; k++)
		x->list[k] = fo_xmalloc((size_t)(r->u->n + 1) * sizeof **x->list);
	for (int i = 0; i < r->u->n; i++)
		for (int k = 0; k < 2; k++)
			if (fo_instance_op(r->p, r->u, i)->lane == computing_lane[k])
				x->list[k][x->n[k]++] = i;
}

/* Adds the time without computing up to the begin of instance i, and what it was spent on. */
static void add_idle(struct fo_sim *s, const struct fo_sim_rank *r, int32_t i, double since)
{
	if (s->waited[i] >= 0)
		s->part_s[part_of_wait(fo_instance_op(r->p, r->u, s->waited[i]))] += s->begin_s[i] - since;
}

/* Goes through the moments in which lanes compute; returns when the last of them ended. */
static double share_moments(struct shared *x, struct fo_sim *s)
{
	double now = 0;
	for (;;) {
		int32_t run[2], runs = 0, first = -1;
		double next = INFINITY;
		for (int k = 0; k < 2; k++) {
			while (x->at[k] < x->n[k] && s->end_s[x->list[k][x->at[k]]] <= now)
				x->at[k]++;
			if (x->at[k] == x->n[k])
				continue;
			const int32_t i = x->list[k][x->at[k]];
			const bool on = s->begin_s[i] <= now;
			if (on)
				run[runs++] = i;
			else if (first < 0 || s->begin_s[i] < s->begin_s[first])
				first = i;
			next = fmin(next, on ? s->end_s[i] : s->begin_s[i]);
		}
		if (isinf(next))
			return now;
		for (int32_t k = 0; k < runs; k++)
			x->own[run[k]] += (next - now) / runs;
		if (!runs)
			add_idle(s, x->r, first, now);
		now = next;
	}
}

static void add_up_parts(struct fo_sim *s, const struct fo_sim_rank *r, bool crowded)
{
	struct shared x;
	open_shared(&x, r);
	const double idle = share_moments(&x, s);
	for (int k = 0; k < 2; k++)
		for (int32_t n = 0; n < x.n[k]; n++) {
			const int32_t i = x.list[k][n];
			const double alone = s->seconds[i] + s->overhead_s, share = alone > 0 ? x.own[i] / alone : 0;
			/* Rounding of times must not show where nothing slowed it. */
			const double by = crowded ? share : 1;
			const enum fo_op_kind kind = (enum fo_op_kind)fo_instance_op(r->p, r->u, i)->kind;
			s->seconds[i] *= by;
			s->part_s[fo_part_of_op(kind)] += s->seconds[i];
			s->part_s[FO_PART_UNATTRIBUTED] += by * s->overhead_s;
			s->sure_s[s->sure[i]] += s->seconds[i];
		}
	if (s->step_s > idle) {
		int32_t last = 0;
		for (int32_t i = 0; i < s->n; i++)
			last = s->end_s[i] > s->end_s[last] ? i : last;
		s->part_s[part_of_wait(fo_instance_op(r->p, r->u, last))] += s->step_s - idle;
	}
	for (int k = 0; k < 2; k++)
		free(x.list[k]);
	free(x.own);
}

void fo_sim_take(struct fo_sim *s, const struct fo_sim_rank *r, const struct fo_fleet_run *run, int32_t class)
{
	const struct fo_fleet_class *c = &run->class[class];
	struct fo_fleet_sums sums;
	s->step_s = c->step_s;
	for (int i = 0; i < s->n; i++) {
		const int32_t call = run->call[c->role][i];
		s->begin_s[i] = c->begin_s[i];
		s->end_s[i] = c->end_s[i];
		s->waited[i] = c->waited[i] ? c->cause[i] : -1;
		s->late_s[i] = call < 0 ? 0 : c->met_s[call] - c->begin_s[i];
		s->unknown += s->sure[i] == FO_SURE_NONE;
	}
	add_up_parts(s, r, run->fleet->crowd.ranks > 1);
	fo_fleet_sums_of(&sums, run, class);
	s->exposed_late_s = (double)sums.wait_ns * 1e-9;
	s->exposed_s = (double)(sums.wait_ns + sums.transfer_ns) * 1e-9;
	s->comm_s = s->exposed_s + (double)(sums.hidden_wait_ns + sums.hidden_transfer_ns) * 1e-9;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		s->lane_exposed_s[l] = (double)sums.lane_exposed_ns[l] * 1e-9;
		s->lane_hidden_s[l] = (double)sums.lane_hidden_ns[l] * 1e-9;
	}
}

/* ---- walks ---- */

fo_status fo_sim_walk_ranks(const struct fo_sim_rank *rank, int ranks, bool alike)
{
	struct fo_fleet f;
	struct fo_fleet_run run;
	int32_t *role_of = fo_xmalloc((size_t)ranks * sizeof *role_of);
	for (int r = 0; r < ranks; r++)
		role_of[r] = alike ? 0 : r;
	const struct fo_sim_job job = {
		.role = rank, .roles = alike ? 1 : ranks, .role_of = role_of, .meets = true, .serial = true
	};
	fo_sim_fleet(&f, &job);
	fo_status st = fo_fleet_simulate(&run, &f);
	for (int r = 0; st == FO_OK && r < job.roles; r++)
		fo_sim_take(rank[r].sim, &rank[r], &run, run.class_of[r]);
	if (st == FO_OK)
		fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
	free(role_of);
	return st;
}

void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u)
{
	const struct fo_sim_rank one = { p, u, s, NULL };
	const struct fo_sim_job job = { .role = &one, .roles = 1 };
	struct fo_fleet f;
	struct fo_fleet_run run;
	fo_sim_fleet(&f, &job);
	/* Without meetings nothing can fail: an instance waits for older ones alone. */
	if (fo_fleet_simulate(&run, &f) != FO_OK)
		abort();
	fo_sim_take(s, &one, &run, 0);
	fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
}
