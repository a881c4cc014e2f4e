/* The walk: lanes of one rank or of many, in the order of time. */
#include "sim/sim.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A lane's operation. left_s: what was left of it at at_s, in seconds of a lane that has the cores alone; infinite for
 * communication of which not all ranks have come. */
struct lane {
	int next, runs; /* its first instance that has not begun, and the one that runs; -1: none */
	double free_s;  /* its last one ended */
	double at_s, left_s;
};
struct walk {
	struct fo_sim *s;
	const struct fo_program *p;
	const struct fo_unrolled *u;
	double idle_s; /* since when no lane computes */
	struct lane lane[FO_LANE_COUNT];
	int *after;          /* the next instance of the same lane; -1: none */
	int computing, last; /* lanes that compute now; the instance that ended last */
	int moving;          /* calls that are under way, and since when there is one */
	double moving_s;
	int carried;    /* of these, those to which all ranks have come */
	double until_s; /* so far exposed communication is counted */
	int first;      /* the lane whose operation ends first, and when; -1: none will */
	double first_s;
};
/* A call that some of its ranks have come to. A lane does one after the other, so a group has at most one open on a
 * lane. */
struct meeting {
	int group, channel, colour, sender, receiver; /* -1, -1: all ranks of the group; else they are of the job */
	int members, came, who, instance;             /* of the first that came */
	double hold_s, own_s;                         /* longest of all that came */
	int *rank;
};
struct job {
	struct walk *walk;
	int ranks;
	bool meets, alike; /* alike: the one rank that is walked stands for all */
	double *link_s;    /* per rank: until when its link is taken */
	struct meeting *open;
	size_t opens, cap;
};

static const struct fo_op *op_of(const struct walk *w, int i) { return fo_instance_op(w->p, w->u, i); }
static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }

/* The part of the step that idle time before or after an operation of another lane belongs to (as in
 * fo_profile_add_step). */
static enum fo_part part_of_wait(const struct fo_op *o)
{
	enum fo_part part = fo_part_of_op((enum fo_op_kind)o->kind);
	return part < FO_PART_COMMUNICATION ? FO_PART_UNATTRIBUTED : part;
}

static double share(const struct walk *w, int lane)
{
	return fo_lane_computes(lane) && w->computing > 1 ? w->computing : 1;
}

/* Lanes that compute share the cores: when one begins or ends, what the others have left takes another time. */
static void change_computing(struct walk *w, int by, double now)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *x = &w->lane[l];
		if (x->runs < 0 || !fo_lane_computes(l))
			continue;
		double left = x->left_s - (now - x->at_s) / share(w, l);
		x->left_s = left > 0 ? left : 0;
		x->at_s = now;
	}
	w->computing += by;
}

/* No lane computes from idle_s to `until`, and the one that would waits for instance `need`. */
static void add_wait(struct walk *w, int need, double until)
{
	w->s->part_s[part_of_wait(op_of(w, need))] += until - w->idle_s;
}

/* Called before anything that computes or communicates begins or ends. Communication is exposed while nothing computes,
 * as in timelines (timeline/ranks.h): where one call waits and another is carried, the moment is transfer. */
static void pass_time(struct walk *w, double now)
{
	if (now <= w->until_s)
		return;
	const double passed = w->moving ? now - w->until_s : 0, exposed = w->computing ? 0 : passed;
	for (int l = 0; w->moving && l < FO_LANE_COUNT; l++) {
		if (w->lane[l].runs < 0 || !is_comm(op_of(w, w->lane[l].runs)))
			continue;
		*(w->computing ? &w->s->lane_hidden_s[l] : &w->s->lane_exposed_s[l]) += passed;
		break;
	}
	w->s->exposed_s += exposed;
	w->s->exposed_late_s += w->carried ? 0 : exposed;
	w->until_s = now;
}

/* ---- meetings ---- */

/* This rank in the job's mesh: programs of equal ranks are one, so the program's own number may be another's. */
static struct fo_mesh mesh_of(const struct walk *w, int rank)
{
	struct fo_mesh m = w->p->run.mesh;
	m.rank = rank;
	return m;
}

static struct meeting key_of(const struct walk *w, int rank, const struct fo_op *o)
{
	struct fo_mesh mesh = mesh_of(w, rank);
	int32_t colour;
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	int members = fo_mesh_group(&mesh, (enum fo_group)o->group, NULL, &colour);
	struct meeting m = { .group = o->group,
			     .channel = fo_lane_channel(o->lane),
			     .colour = colour,
			     .sender = -1,
			     .receiver = -1,
			     .members = members };
	if (wire != FO_WIRE_SEND && wire != FO_WIRE_RECEIVE)
		return m;
	int peer = fo_mesh_member(&mesh, (enum fo_group)o->group, o->attr.peer);
	m.sender = wire == FO_WIRE_SEND ? rank : peer;
	m.receiver = wire == FO_WIRE_SEND ? peer : rank;
	m.members = 2;
	return m;
}

static bool same_key(const struct meeting *a, const struct meeting *b)
{
	return a->group == b->group && a->channel == b->channel && a->colour == b->colour && a->sender == b->sender &&
	       a->receiver == b->receiver;
}

static const char *where(const struct walk *w, int i) { return w->p->block[w->p->slot[w->u->slot[i]].block].name; }

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

/* Do two ranks call the same? Send and receive are a pair. */
static fo_status agree(const struct job *j, const struct meeting *m, int rank, int i)
{
	const struct walk *a = &j->walk[m->who], *b = &j->walk[rank];
	const struct fo_op *x = op_of(a, m->instance), *y = op_of(b, i);
	const struct fo_op_info *f = fo_op_info(x->kind), *g = fo_op_info(y->kind);
	bool same = (m->sender >= 0 || (f->wire == g->wire && x->attr.peer == y->attr.peer)) &&
		    x->attr.narrow == y->attr.narrow && fo_op_tensors(x->kind, x->n) == fo_op_tensors(y->kind, y->n) &&
		    elements_of(x) == elements_of(y) && a->p->buf[x->arg->buf].dtype == b->p->buf[y->arg->buf].dtype;
	if (same)
		return FO_OK;
	return fo_fail(FO_EBUG,
		       "rank %d calls %s of %lld %s in %s where rank %d calls %s of %lld %s in %s: the step cannot run",
		       rank, g->name, (long long)elements_of(y), fo_dtype_name[b->p->buf[y->arg->buf].dtype],
		       where(b, i), m->who, f->name, (long long)elements_of(x),
		       fo_dtype_name[a->p->buf[x->arg->buf].dtype], where(a, m->instance));
}

static void find_first(struct walk *w)
{
	w->first = -1;
	w->first_s = INFINITY;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct lane *x = &w->lane[l];
		double at = x->at_s + x->left_s * share(w, l);
		if (x->runs < 0 || isinf(at) ||
		    (w->first >= 0 && (at > w->first_s || (at == w->first_s && x->runs > w->lane[w->first].runs))))
			continue;
		w->first = l;
		w->first_s = at;
	}
}

/* All have come at `now`: the links of its ranks carry it when the last of them is free, and the ranks do their own
 * part from now on (comm/local.c). */
static void begin_call(struct job *j, struct meeting *m, double now)
{
	double begin = now;
	for (int k = 0; k < m->came; k++)
		begin = fmax(begin, j->link_s[m->rank[k]]);
	double end = fmax(begin + m->hold_s, now + m->own_s);
	for (int k = 0; k < m->came; k++) {
		struct walk *w = &j->walk[m->rank[k]];
		j->link_s[m->rank[k]] = begin + m->hold_s;
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			struct lane *x = &w->lane[l];
			if (x->runs < 0 || !isinf(x->left_s))
				continue;
			struct meeting key = key_of(w, m->rank[k], op_of(w, x->runs));
			if (!same_key(&key, m))
				continue;
			pass_time(w, now);
			w->carried++;
			w->s->late_s[x->runs] = now - x->at_s;
			x->at_s = now;
			x->left_s = end - now + w->s->overhead_s;
			break;
		}
		find_first(w);
	}
}

/* Rank `rank` has come to a call. */
static fo_status come(struct job *j, int rank, int i, double now)
{
	struct walk *w = &j->walk[rank];
	struct meeting key = key_of(w, rank, op_of(w, i)), *m = j->open;
	while (m < j->open + j->opens && !same_key(m, &key))
		m++;
	if (m == j->open + j->opens) {
		fo_array_room(&j->open, &j->cap, j->opens, sizeof *j->open);
		m = &j->open[j->opens++];
		*m = key;
		m->who = rank;
		m->instance = i;
		m->rank = fo_xmalloc((size_t)m->members * sizeof *m->rank);
		if (j->alike)
			m->members = 1;
	}
	FO_TRY(agree(j, m, rank, i));
	m->rank[m->came++] = rank;
	m->hold_s = fmax(m->hold_s, w->s->hold_s[i]);
	m->own_s = fmax(m->own_s, w->s->seconds[i]);
	if (m->came < m->members)
		return FO_OK;
	begin_call(j, m, now);
	free(m->rank);
	*m = j->open[--j->opens];
	return FO_OK;
}

/* ---- operations ---- */

/* Begins the lane's next operation if all that it waits for has ended. */
static fo_status begin_next(struct job *j, int rank, int lane)
{
	struct walk *w = &j->walk[rank];
	struct lane *x = &w->lane[lane];
	struct fo_sim *s = w->s;
	int i = x->next;
	double ready = x->free_s;
	if (i < 0 || x->runs >= 0)
		return FO_OK;
	s->waited[i] = -1;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		int need = w->u->wait[i][l];
		if (need < 0)
			continue;
		if (isnan(s->end_s[need]))
			return FO_OK;
		if (s->end_s[need] > ready) {
			ready = s->end_s[need];
			s->waited[i] = need;
		}
	}
	const struct fo_op *o = op_of(w, i);
	pass_time(w, ready);
	if (fo_lane_computes(lane)) {
		if (!w->computing && s->waited[i] >= 0)
			add_wait(w, s->waited[i], ready);
		change_computing(w, 1, ready);
		s->part_s[fo_part_of_op((enum fo_op_kind)o->kind)] += s->seconds[i];
		s->part_s[FO_PART_UNATTRIBUTED] += s->overhead_s;
		s->sure_s[s->sure[i]] += s->seconds[i];
	}
	s->unknown += s->sure[i] == FO_SURE_NONE;
	s->begin_s[i] = ready;
	*x = (struct lane){ w->after[i], i, x->free_s, ready, s->seconds[i] + s->overhead_s };
	if (is_comm(o) && !w->moving++)
		w->moving_s = ready;
	w->carried += !j->meets && is_comm(o);
	if (!j->meets || !is_comm(o))
		return FO_OK;
	x->left_s = INFINITY;
	return come(j, rank, i, ready);
}

/* Ends the operation that ends first, the older one of two, and begins what may then; *any false: none runs. */
static fo_status end_first(struct job *j, bool *any)
{
	int rank = 0;
	for (int r = 1; r < j->ranks; r++)
		if (j->walk[r].first_s < j->walk[rank].first_s)
			rank = r;
	struct walk *w = &j->walk[rank];
	*any = w->first >= 0;
	if (!*any)
		return FO_OK;
	struct lane *x = &w->lane[w->first];
	double end = w->first_s;
	const bool call = is_comm(op_of(w, x->runs));
	pass_time(w, end);
	w->carried -= call;
	if (call && !--w->moving)
		w->s->comm_s += end - w->moving_s;
	w->s->end_s[x->runs] = x->free_s = end;
	w->last = w->last < 0 || end > w->s->end_s[w->last] ? x->runs : w->last;
	x->runs = -1;
	if (fo_lane_computes(w->first)) {
		change_computing(w, -1, end);
		w->idle_s = end;
	}
	for (int l = 0; l < FO_LANE_COUNT; l++)
		FO_TRY(begin_next(j, rank, l));
	find_first(w);
	return FO_OK;
}

static void open_rank(struct walk *w)
{
	const size_t n = (size_t)(w->u->n + 1);
	w->after = fo_xmalloc(n * sizeof *w->after);
	w->last = -1;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		w->lane[l].next = w->lane[l].runs = -1;
	for (int i = w->u->n - 1; i >= 0; i--) {
		struct lane *x = &w->lane[op_of(w, i)->lane];
		w->s->end_s[i] = NAN;
		w->after[i] = x->next;
		x->next = i;
	}
}

/* A rank that has something left when nothing runs waits for ever. */
static fo_status all_ended(const struct job *j)
{
	for (int r = 0; r < j->ranks; r++)
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			const struct walk *w = &j->walk[r];
			int i = w->lane[l].runs;
			if (i < 0)
				continue;
			return fo_fail(FO_EBUG,
				       "the step of %d ranks never ends: rank %d waits in %s of %s on lane %s for a "
				       "rank that does not come",
				       j->ranks, r, fo_op_info(op_of(w, i)->kind)->name, where(w, i), fo_lane_name[l]);
		}
	return FO_OK;
}

static fo_status walk_all(struct job *j)
{
	bool any = true;
	for (int r = 0; r < j->ranks; r++) {
		open_rank(&j->walk[r]);
		find_first(&j->walk[r]);
	}
	for (int r = 0; r < j->ranks; r++) {
		for (int l = 0; l < FO_LANE_COUNT; l++)
			FO_TRY(begin_next(j, r, l));
		find_first(&j->walk[r]);
	}
	while (any)
		FO_TRY(end_first(j, &any));
	FO_TRY(all_ended(j));
	for (int r = 0; r < j->ranks; r++) {
		struct walk *w = &j->walk[r];
		w->s->step_s = w->last >= 0 ? w->s->end_s[w->last] : 0;
		if (w->s->step_s > w->idle_s)
			add_wait(w, w->last, w->s->step_s);
	}
	return FO_OK;
}

static void close_job(struct job *j)
{
	for (int r = 0; r < j->ranks; r++)
		free(j->walk[r].after);
	for (size_t i = 0; i < j->opens; i++)
		free(j->open[i].rank);
	free(j->open);
	free(j->link_s);
}

fo_status fo_sim_walk_ranks(const struct fo_sim_rank *rank, int ranks, bool alike)
{
	struct job j = { .ranks = alike ? 1 : ranks, .meets = true, .alike = alike };
	j.walk = fo_xmalloc((size_t)j.ranks * sizeof *j.walk);
	j.link_s = fo_xmalloc((size_t)j.ranks * sizeof *j.link_s);
	memset(j.link_s, 0, (size_t)j.ranks * sizeof *j.link_s);
	for (int r = 0; r < j.ranks; r++)
		j.walk[r] = (struct walk){ .s = rank[r].sim, .p = rank[r].p, .u = rank[r].u };
	fo_status st = walk_all(&j);
	close_job(&j);
	free(j.walk);
	return st;
}

void fo_sim_walk(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u)
{
	struct walk w = { .s = s, .p = p, .u = u };
	struct job j = { .walk = &w, .ranks = 1 };
	/* Without meetings nothing can fail: an instance waits for older ones alone. */
	if (walk_all(&j) != FO_OK)
		abort();
	close_job(&j);
}
