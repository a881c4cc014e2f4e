#include "sim/ranks.h"

#include "base/mem.h"
#include "pass/pass.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

/* The program's hash without the rank's number. */
static uint64_t role_hash(const struct fo_program *p)
{
	struct fo_program q = *p;
	q.rank = q.run.mesh.rank = 0;
	return fo_program_hash(&q);
}

static fo_status add_rank(struct fo_sim_ranks *x, const struct fo_program *first, int rank, uint64_t *hash, size_t *cap)
{
	struct fo_lowering low = first->run;
	struct fo_program p;
	low.mesh.rank = rank;
	FO_TRY(fo_pass_build(&p, &first->model, &low));
	uint64_t h = role_hash(&p);
	for (int k = 0; k < x->roles; k++)
		if (hash[k] == h) {
			x->role_of[rank] = k;
			fo_program_fini(&p);
			return FO_OK;
		}
	fo_array_room(&x->role, cap, (size_t)x->roles, sizeof *x->role);
	struct fo_sim_role *role = &x->role[x->roles];
	*role = (struct fo_sim_role){ .p = p };
	hash[x->roles] = h;
	x->role_of[rank] = x->roles++;
	FO_TRY(fo_unroll(&role->p, &role->u));
	fo_plan(&role->p, &role->u);
	fo_prune_waits(&role->p, &role->u);
	return FO_OK;
}

static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }

/* Send and receive name one rank, so even programs of one role do not do the same. */
static bool whole_groups(const struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			enum fo_wire wire = fo_op_info(p->block[b].op[i].kind)->wire;
			if (wire == FO_WIRE_SEND || wire == FO_WIRE_RECEIVE)
				return false;
		}
	return true;
}

fo_status fo_sim_ranks_init(struct fo_sim_ranks *x, const struct fo_program *first)
{
	*x = (struct fo_sim_ranks){ .ranks = first->ranks };
	size_t cap = 0, n = (size_t)first->ranks;
	uint64_t *hash = fo_xmalloc(n * sizeof *hash);
	x->role_of = fo_xmalloc(n * sizeof *x->role_of);
	fo_status st = FO_OK;
	for (int r = 0; r < first->ranks && st == FO_OK; r++)
		st = add_rank(x, first, r, hash, &cap);
	free(hash);
	x->alike = st == FO_OK && x->roles == 1 && whole_groups(&x->role->p);
	return st;
}

/* ---- times ---- */

/* The most that a rank of the group receives, tensor by tensor: parts may be uneven. */
static double most_received(struct fo_program *p, const struct fo_op *o)
{
	const struct fo_mesh mesh = p->run.mesh;
	double most = 0;
	for (int i = 0, n = fo_mesh_group(&mesh, (enum fo_group)o->group, NULL, NULL); i < n; i++) {
		p->run.mesh.rank = fo_mesh_member(&mesh, (enum fo_group)o->group, i);
		most = fmax(most, fo_op_cost(p, o, -1).wire);
	}
	p->run.mesh = mesh;
	/* What a rank sends takes its link as long as what the other receives. */
	if (fo_op_info(o->kind)->wire == FO_WIRE_SEND)
		most = (double)o->arg->nr * o->arg->nc * (double)fo_dtype_bytes(p->buf[o->arg->buf].dtype);
	return most;
}

static void time_calls(struct fo_sim_role *role, const struct fo_link_rates *l)
{
	struct fo_link_time **of = fo_xmalloc((size_t)(role->p.nblock + 1) * sizeof *of);
	for (int b = 0; b < role->p.nblock; b++) {
		const struct fo_block *k = &role->p.block[b];
		of[b] = fo_xmalloc((size_t)(k->n + 1) * sizeof **of);
		for (int i = 0; i < k->n; i++)
			if (is_comm(&k->op[i]))
				of[b][i] = fo_link_op(l, &role->p, &k->op[i], most_received(&role->p, &k->op[i]));
	}
	for (int i = 0; i < role->u.n; i++) {
		if (!is_comm(fo_instance_op(&role->p, &role->u, i)))
			continue;
		struct fo_link_time t = of[role->p.slot[role->u.slot[i]].block][role->u.op[i]];
		role->times.seconds[i] = t.own_s;
		role->times.hold_s[i] = t.hold_s;
		role->times.sure[i] = (uint8_t)t.sure;
	}
	for (int b = 0; b < role->p.nblock; b++)
		free(of[b]);
	free(of);
}

static void time_role(struct fo_sim_role *role, const struct fo_rates *r, const struct fo_link_rates *l,
		      const struct fo_crowd *crowd, double pairs)
{
	struct fo_sim *s = &role->times;
	fo_sim_init(s, &role->u, r->overhead_s);
	fo_sim_time(s, &role->p, &role->u, r, pairs);
	for (int i = 0; i < role->u.n; i++) {
		enum fo_class c = fo_op_info(fo_instance_op(&role->p, &role->u, i)->kind)->cls;
		if (c == FO_CLASS_TENSOR)
			s->seconds[i] *= crowd->tensor;
		else if (c == FO_CLASS_MEMORY)
			s->seconds[i] *= crowd->memory;
	}
	time_calls(role, l);
}

/* ---- the three walks ---- */

enum { LOW, MID, HIGH };
/* Factors on times, by how sure they are. */
static const double computing[3][FO_SURE_COUNT] = { { 0.95, 0.88, 0.5, 1 }, { 1, 1, 1, 1 }, { 1.05, 1.12, 2, 1 } };
static const double calling[3][FO_SURE_COUNT] = { { 0.75, 0.5, 0.5, 1 }, { 1, 1, 1, 1 }, { 1.25, 1.5, 2, 1 } };
/* Of ranks that compute at once: high above what was measured; where nothing was, they may slow each other by half. */
#define CROWD_KNOWN 1.1
#define CROWD_UNKNOWN 1.5

static double crowded(const struct fo_sim_ranks *x, double measured, double turns, int end)
{
	if (end == LOW)
		return turns / measured;
	if (end == MID || x->ranks == 1)
		return 1;
	return x->crowd.known ? CROWD_KNOWN : CROWD_UNKNOWN;
}

/* A rank's times at one end of the interval. */
static void take_times(const struct fo_sim_ranks *x, struct fo_sim *s, const struct fo_sim_role *role, double turns,
		       int end)
{
	const struct fo_sim *t = &role->times;
	fo_sim_init(s, &role->u, t->overhead_s);
	s->busy_s = t->busy_s;
	memcpy(s->sure, t->sure, (size_t)t->n * sizeof *s->sure);
	memcpy(s->hold_s, t->hold_s, (size_t)t->n * sizeof *s->hold_s);
	for (int i = 0; i < t->n; i++) {
		enum fo_class c = fo_op_info(fo_instance_op(&role->p, &role->u, i)->kind)->cls;
		double factor = c == FO_CLASS_COMM ? calling[end][t->sure[i]] : computing[end][t->sure[i]];
		if (c == FO_CLASS_TENSOR)
			factor *= crowded(x, x->crowd.tensor, turns, end);
		else if (c == FO_CLASS_MEMORY)
			factor *= crowded(x, x->crowd.memory, turns, end);
		s->seconds[i] = factor * t->seconds[i];
		/* Links that are not emulated are the ranks themselves. */
		if (c == FO_CLASS_COMM && t->hold_s[i] == t->seconds[i])
			s->hold_s[i] = s->seconds[i];
	}
}

static double *end_of(struct fo_interval *x, int end)
{
	double *const at[] = { &x->low, &x->mid, &x->high };
	return at[end];
}

static fo_status walk(struct fo_sim_ranks *x, double turns, int end, struct fo_sim *s, int walked)
{
	struct fo_sim_rank *rank = fo_xmalloc((size_t)x->ranks * sizeof *rank);
	for (int r = 0; r < walked; r++) {
		const struct fo_sim_role *role = &x->role[x->role_of[r]];
		take_times(x, &s[r], role, turns, end);
		rank[r] = (struct fo_sim_rank){ &role->p, &role->u, &s[r] };
	}
	fo_status st = fo_sim_walk_ranks(rank, x->ranks, x->alike);
	free(rank);
	const struct fo_sim *most = s;
	for (int r = 0; r < walked; r++) {
		*end_of(&x->step_s, end) = fmax(*end_of(&x->step_s, end), s[r].step_s);
		most = s[r].exposed_s > most->exposed_s ? &s[r] : most;
	}
	*end_of(&x->exposed_s, end) = most->exposed_s;
	*end_of(&x->late_s, end) = most->exposed_late_s;
	*end_of(&x->hidden_s, end) = most->comm_s - most->exposed_s;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		*end_of(&x->lane_exposed_s[l], end) = most->lane_exposed_s[l];
		*end_of(&x->lane_hidden_s[l], end) = most->lane_hidden_s[l];
	}
	return st;
}

/* Which end of a wait is small is not said by which times are. */
static void sort(struct fo_interval *x)
{
	double low = fmin(x->mid, fmin(x->low, x->high)), high = fmax(x->mid, fmax(x->low, x->high));
	x->low = low;
	x->high = high;
}

fo_status fo_sim_ranks_step(struct fo_sim_ranks *x, const struct fo_rates *r, const struct fo_link_rates *l, int cores,
			    double pairs)
{
	int walked = x->alike ? 1 : x->ranks, all = x->ranks * r->threads;
	double turns = x->ranks > 1 && cores > 0 && all > cores ? (double)all / cores : 1;
	x->crowd = fo_rates_crowd(r, x->ranks, cores);
	for (int k = 0; k < x->roles; k++)
		time_role(&x->role[k], r, l, &x->crowd, pairs);
	const struct fo_sim_role *first = x->role;
	for (int i = 0; i < first->u.n; i++)
		if (is_comm(fo_instance_op(&first->p, &first->u, i)))
			x->sure_s[first->times.sure[i]] += fmax(first->times.seconds[i], first->times.hold_s[i]);
	struct fo_sim *end = fo_xmalloc((size_t)walked * sizeof *end);
	x->rank = fo_xmalloc((size_t)walked * sizeof *x->rank);
	fo_status st = walk(x, turns, MID, x->rank, walked);
	for (int k = LOW; k <= HIGH && st == FO_OK; k += HIGH - LOW) {
		st = walk(x, turns, k, end, walked);
		for (int i = 0; i < walked; i++)
			fo_sim_fini(&end[i]);
	}
	free(end);
	sort(&x->exposed_s);
	sort(&x->late_s);
	sort(&x->hidden_s);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		sort(&x->lane_exposed_s[l]);
		sort(&x->lane_hidden_s[l]);
	}
	return st;
}

void fo_sim_ranks_fini(struct fo_sim_ranks *x)
{
	for (int r = 0; x->rank && r < (x->alike ? 1 : x->ranks); r++)
		fo_sim_fini(&x->rank[r]);
	for (int k = 0; k < x->roles; k++) {
		fo_sim_fini(&x->role[k].times);
		fo_unrolled_fini(&x->role[k].u);
		fo_program_fini(&x->role[k].p);
	}
	free(x->rank);
	free(x->role);
	free(x->role_of);
	*x = (struct fo_sim_ranks){ 0 };
}

double fo_sim_ranks_wire(const struct fo_sim_ranks *x, int rank)
{
	struct fo_program p = x->role[x->role_of[rank]].p;
	p.rank = p.run.mesh.rank = rank;
	return fo_program_wire(&p);
}
