#include "sim/ranks.h"

#include "base/count.h"
#include "base/mem.h"
#include "pass/pass.h"
#include "sim/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- roles ---- */

static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }

static fo_status build_role(struct fo_sim_role *role, const struct fo_program *first, int32_t rank, bool planned)
{
	struct fo_lowering low = first->run;
	low.mesh.rank = rank;
	FO_TRY(fo_pass_build(&role->p, &first->model, &low));
	FO_TRY(fo_unroll(&role->p, &role->u));
	if (planned)
		fo_plan(&role->p, &role->u);
	fo_prune_waits(&role->p, &role->u);
	return FO_OK;
}

static fo_status init(struct fo_sim_ranks *x, const struct fo_program *first, bool planned)
{
	int32_t *first_of = NULL;
	int roles;
	*x = (struct fo_sim_ranks){ .ranks = first->ranks };
	fo_status st = fo_sim_roles(first, &x->role_of, &first_of, &roles);
	x->role = fo_xmalloc((size_t)(roles + 1) * sizeof *x->role);
	while (st == FO_OK && x->roles < roles) {
		st = build_role(&x->role[x->roles], first, first_of[x->roles], planned);
		x->roles++;
	}
	free(first_of);
	return st;
}

fo_status fo_sim_ranks_init(struct fo_sim_ranks *x, const struct fo_program *first) { return init(x, first, true); }
fo_status fo_sim_ranks_unplanned(struct fo_sim_ranks *x, const struct fo_program *first)
{
	return init(x, first, false);
}
void fo_sim_ranks_plan(struct fo_sim_ranks *x)
{
	for (int k = 0; k < x->roles; k++) {
		fo_plan(&x->role[k].p, &x->role[k].u);
		fo_prune_waits(&x->role[k].p, &x->role[k].u);
	}
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

static void time_role(struct fo_sim_role *role, const struct fo_rates *r, const struct fo_link_rates *l, double pairs)
{
	struct fo_sim *s = &role->times;
	fo_sim_init(s, &role->u, r->overhead_s);
	fo_sim_time(s, &role->p, &role->u, r, pairs, NULL);
	time_calls(role, l);
}

/* ---- the walks ---- */

enum { LOW, MID, HIGH };
/* Factors on times, by how sure they are. */
static const double computing[3][FO_SURE_COUNT] = { { 0.95, 0.88, 0.5, 1 }, { 1, 1, 1, 1 }, { 1.05, 1.12, 2, 1 } };
static const double calling[3][FO_SURE_COUNT] = { { 0.75, 0.5, 0.5, 1 }, { 1, 1, 1, 1 }, { 1.25, 1.5, 2, 1 } };
/* Of ranks that compute at once: high above what was measured; where nothing was, they may slow each other by half. */
#define CROWD_KNOWN 1.1
#define CROWD_UNKNOWN 1.5

/* How k ranks that compute at once slow each other, for each k, at one end of the interval. */
struct crowd_table {
	double *slow[FO_CROWD_KINDS];
	bool any; /* some do */
};

static void fill_crowd(struct crowd_table *t, const struct fo_sim_ranks *x, const struct fo_rates *r, int cores,
		       int end)
{
	const int ranks = x->ranks;
	const double more = x->crowd.known ? CROWD_KNOWN : CROWD_UNKNOWN;
	*t = (struct crowd_table){ 0 };
	for (int k = 0; k < FO_CROWD_KINDS; k++)
		t->slow[k] = fo_xmalloc((size_t)ranks * sizeof **t->slow);
	for (int k = 1; k <= ranks && !x->apart; k++) {
		const int all = k * r->threads;
		const double part = (double)(k - 1) / (double)fo_max(ranks - 1, 1);
		double turns = 1;
		if (k > 1 && cores > 0 && all > cores)
			turns = (double)all / cores;
		struct fo_crowd c = fo_rates_crowd(r, k, cores);
		if (k < ranks && !c.known) { /* between one, who is alone, and all */
			c.tensor = fmax(turns, 1 + part * (x->crowd.tensor - 1));
			c.memory = fmax(turns, 1 + part * (x->crowd.memory - 1));
		}
		const double slow[FO_CROWD_KINDS] = { [FO_CROWD_TENSOR] = c.tensor, [FO_CROWD_MEMORY] = c.memory };
		for (int i = 0; i < FO_CROWD_KINDS; i++) {
			double v = end == LOW ? turns : slow[i];
			t->slow[i][k - 1] = end == HIGH && k > 1 ? v * more : v;
			t->any |= t->slow[i][k - 1] > 1;
		}
	}
}

/* A role's times at one end of the interval. */
static void take_times(struct fo_sim *s, const struct fo_sim_ranks *x, const struct fo_sim_role *role, int end)
{
	const struct fo_sim *t = &role->times;
	fo_sim_init(s, &role->u, t->overhead_s);
	s->busy_s = t->busy_s;
	memcpy(s->sure, t->sure, (size_t)t->n * sizeof *s->sure);
	memcpy(s->hold_s, t->hold_s, (size_t)t->n * sizeof *s->hold_s);
	for (int i = 0; i < t->n; i++) {
		enum fo_class c = fo_op_info(fo_instance_op(&role->p, &role->u, i)->kind)->cls;
		/* Given times are known as well as those that were measured as they are. */
		const enum fo_sure sure = x->apart ? FO_SURE_EXACT : (enum fo_sure)t->sure[i];
		double factor = c == FO_CLASS_COMM ? calling[end][t->sure[i]] : computing[end][sure];
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

/* The rank that shows most communication stands for all of them. */
static void take_end(struct fo_sim_ranks *x, int end, const struct fo_sim *of_class, int classes)
{
	const struct fo_sim *most = of_class;
	for (int k = 0; k < classes; k++) {
		*end_of(&x->step_s, end) = fmax(*end_of(&x->step_s, end), of_class[k].step_s);
		most = of_class[k].exposed_s > most->exposed_s ? &of_class[k] : most;
	}
	*end_of(&x->exposed_s, end) = most->exposed_s;
	*end_of(&x->late_s, end) = most->exposed_late_s;
	*end_of(&x->hidden_s, end) = most->comm_s - most->exposed_s;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		*end_of(&x->lane_exposed_s[l], end) = most->lane_exposed_s[l];
		*end_of(&x->lane_hidden_s[l], end) = most->lane_hidden_s[l];
	}
}

/* *classes of them in *of_class, each to be ended with fo_sim_fini. */
static void take_classes(const struct fo_sim_ranks *x, const struct fo_fleet_run *run, int end,
			 struct fo_sim **of_class)
{
	*of_class = fo_xmalloc((size_t)run->classes * sizeof **of_class);
	for (int k = 0; k < run->classes; k++) {
		const struct fo_sim_role *role = &x->role[run->class[k].role];
		struct fo_sim *s = &(*of_class)[k];
		const struct fo_sim_rank r = { &role->p, &role->u, s, NULL };
		take_times(s, x, role, end);
		fo_sim_take(s, &r, run, k);
	}
}

static void keep_classes(struct fo_sim_ranks *x, const struct fo_fleet_run *run, struct fo_sim *of_class)
{
	x->rank = of_class;
	x->classes = run->classes;
	x->alike = run->classes == 1;
	x->class_of = fo_xmalloc((size_t)x->ranks * sizeof *x->class_of);
	x->class_role = fo_xmalloc((size_t)run->classes * sizeof *x->class_role);
	memcpy(x->class_of, run->class_of, (size_t)x->ranks * sizeof *x->class_of);
	for (int k = 0; k < run->classes; k++)
		x->class_role[k] = run->class[k].role;
}

static void keep_walk(struct fo_sim_ranks *x, struct fo_fleet *f, struct fo_fleet_run *run, struct fo_sim *of_class)
{
	keep_classes(x, run, of_class);
	fo_fleet_path_of(&x->path, run);
	x->fleet = f;
	x->run = run;
	f->ctx = NULL; /* what these look at ends here */
	f->tell = NULL;
}

/* What a walk is made of; fleet and run look at the rest. */
struct walked {
	struct fo_sim_rank *role;
	struct fo_sim *times;
	struct crowd_table crowd;
	struct fo_sim_job job;
	struct fo_fleet *f;
	struct fo_fleet_run *run;
};

static fo_status simulate(struct walked *w, struct fo_sim_ranks *x, const struct fo_rates *r, int cores, int end)
{
	*w = (struct walked){ .role = fo_xmalloc((size_t)x->roles * sizeof *w->role),
			      .times = fo_xmalloc((size_t)x->roles * sizeof *w->times),
			      .f = fo_xmalloc(sizeof *w->f),
			      .run = fo_xmalloc(sizeof *w->run) };
	fill_crowd(&w->crowd, x, r, cores, end);
	for (int k = 0; k < x->roles; k++) {
		take_times(&w->times[k], x, &x->role[k], end);
		w->role[k] = (struct fo_sim_rank){ &x->role[k].p, &x->role[k].u, &w->times[k], NULL };
	}
	w->job = (struct fo_sim_job){
		.role = w->role, .roles = x->roles, .role_of = x->role_of, .meets = true, .serial = true
	};
	if (w->crowd.any)
		w->job.crowd = (struct fo_fleet_crowd){ x->ranks, x->ranks, { w->crowd.slow[0], w->crowd.slow[1] } };
	fo_sim_fleet(w->f, &w->job);
	return fo_fleet_simulate(w->run, w->f);
}

/* kept: fleet and run go on elsewhere; st: of simulate. */
static void end_walk(struct walked *w, int roles, bool kept, fo_status st)
{
	if (!kept) {
		if (st == FO_OK)
			fo_fleet_run_fini(w->run);
		fo_fleet_fini(w->f);
		free(w->run);
		free(w->f);
	}
	for (int k = 0; k < roles; k++)
		fo_sim_fini(&w->times[k]);
	for (int i = 0; i < FO_CROWD_KINDS; i++)
		free(w->crowd.slow[i]);
	free(w->times);
	free(w->role);
}

static fo_status walk(struct fo_sim_ranks *x, const struct fo_rates *r, int cores, int end)
{
	struct walked w;
	struct fo_sim *of_class = NULL;
	const fo_status simulated = simulate(&w, x, r, cores, end);
	fo_status st = simulated;
	if (st == FO_OK && end == MID && x->spread)
		st = fo_spread_of(&x->drawn, w.f, x->spread);
	if (st == FO_OK) {
		take_classes(x, w.run, end, &of_class);
		take_end(x, end, of_class, w.run->classes);
	}
	const bool kept = st == FO_OK && end == MID;
	if (kept)
		keep_walk(x, w.f, w.run, of_class);
	for (int k = 0; st == FO_OK && !kept && k < w.run->classes; k++)
		fo_sim_fini(&of_class[k]);
	if (!kept)
		free(of_class);
	end_walk(&w, x->roles, kept, simulated);
	return st;
}

/* Times again, by how long what an operation needs was left alone: of each role as its first class has it. */
static fo_status time_again(struct fo_sim_ranks *x, const struct fo_rates *r, const struct fo_link_rates *l, int cores,
			    double pairs)
{
	struct walked w;
	const fo_status st = simulate(&w, x, r, cores, MID);
	for (int32_t k = st == FO_OK ? w.run->classes - 1 : -1; k >= 0; k--) {
		const struct fo_fleet_class *c = &w.run->class[k];
		struct fo_sim_role *role = &x->role[c->role];
		const struct fo_step_when when = { c->begin_s, c->end_s, w.run->step_s };
		bool first = true;
		for (int32_t j = 0; j < k; j++)
			first &= w.run->class[j].role != c->role;
		if (!first)
			continue;
		fo_sim_time(&role->times, &role->p, &role->u, r, pairs, &when);
		time_calls(role, l);
	}
	end_walk(&w, x->roles, false, st);
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
	x->crowd = x->apart ? (struct fo_crowd){ 1, 1, true, false } : fo_rates_crowd(r, x->ranks, cores);
	for (int k = 0; k < x->roles; k++)
		time_role(&x->role[k], r, l, pairs);
	const struct fo_sim_role *first = x->role;
	for (int i = 0; i < first->u.n; i++)
		if (is_comm(fo_instance_op(&first->p, &first->u, i)))
			x->sure_s[first->times.sure[i]] += fmax(first->times.seconds[i], first->times.hold_s[i]);
	fo_status st = r->caches.gaps && !x->apart ? time_again(x, r, l, cores, pairs) : FO_OK;
	for (int end = LOW; end <= HIGH && st == FO_OK; end++)
		st = walk(x, r, cores, end);
	sort(&x->exposed_s);
	sort(&x->late_s);
	sort(&x->hidden_s);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		sort(&x->lane_exposed_s[l]);
		sort(&x->lane_hidden_s[l]);
	}
	return st;
}

/* What the last walk has left. */
static void drop_walk(struct fo_sim_ranks *x)
{
	for (int k = 0; x->rank && k < x->classes; k++)
		fo_sim_fini(&x->rank[k]);
	if (x->run) {
		fo_fleet_path_fini(&x->path);
		fo_fleet_run_fini(x->run);
		fo_fleet_fini(x->fleet);
	}
	free(x->run);
	free(x->fleet);
	free(x->rank);
	free(x->class_of);
	free(x->class_role);
	x->run = NULL;
	x->fleet = NULL;
	x->rank = NULL;
	x->class_of = x->class_role = NULL;
	x->classes = 0;
	x->step_s = x->exposed_s = x->late_s = x->hidden_s = (struct fo_interval){ 0 };
}

static void time_given(struct fo_sim_role *role, fo_sim_given_fn *given, const void *ctx)
{
	const struct fo_program *p = &role->p;
	struct fo_sim *s = &role->times;
	fo_sim_fini(s);
	fo_sim_init(s, &role->u, 0);
	for (int i = 0; i < role->u.n; i++) {
		const enum fo_unit unit = (enum fo_unit)p->block[p->slot[role->u.slot[i]].block].unit;
		const struct fo_sim_given t = given(ctx, p, fo_instance_op(p, &role->u, i), unit, role->u.first[i]);
		s->seconds[i] = t.seconds;
		s->hold_s[i] = t.link_s;
		s->sure[i] = FO_SURE_EXACT;
	}
}

fo_status fo_sim_ranks_given(struct fo_sim_ranks *x, fo_sim_given_fn *given, const void *ctx)
{
	struct fo_sim_rank *role = fo_xmalloc((size_t)x->roles * sizeof *role);
	struct fo_fleet *f = fo_xmalloc(sizeof *f);
	struct fo_fleet_run *run = fo_xmalloc(sizeof *run);
	x->apart = true;
	drop_walk(x);
	for (int k = 0; k < x->roles; k++) {
		time_given(&x->role[k], given, ctx);
		role[k] = (struct fo_sim_rank){ &x->role[k].p, &x->role[k].u, &x->role[k].times, NULL };
	}
	const struct fo_sim_job job = { .role = role, .roles = x->roles, .role_of = x->role_of, .meets = true };
	fo_sim_fleet(f, &job);
	fo_status st = fo_fleet_simulate(run, f);
	if (st == FO_OK) {
		struct fo_sim *of_class = NULL;
		take_classes(x, run, MID, &of_class);
		for (int end = LOW; end <= HIGH; end++)
			take_end(x, end, of_class, run->classes);
		keep_walk(x, f, run, of_class);
	} else {
		fo_fleet_fini(f);
		free(f);
		free(run);
	}
	free(role);
	return st;
}

void fo_sim_ranks_fini(struct fo_sim_ranks *x)
{
	drop_walk(x);
	for (int k = 0; k < x->roles; k++) {
		fo_sim_fini(&x->role[k].times);
		fo_unrolled_fini(&x->role[k].u);
		fo_program_fini(&x->role[k].p);
	}
	fo_spread_fini(&x->drawn);
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
