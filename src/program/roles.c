/* Ranks whose programs are checked together: roles, the order of calls, and that nobody waits for ever.
 *
 * The engine of a rank has lanes. An instance starts when it is the next of its lane and all instances that it waits
 * for have finished. One that computes then finishes by itself. One that communicates makes a call for each of its
 * tensors and finishes when each of its calls has met: when all members of the group have made the call with the same
 * number on this communicator (a group and a lane; both directions of a neighbour's lane share one), or, point to
 * point, when the n-th send from one rank to another and the n-th receive there have both been made (rendezvous).
 *
 * Why one order of events proves all of them. Whatever has happened can only allow more: a start needs that certain
 * instances have finished, an end needs that certain calls were made, and neither is ever undone. So if two events are
 * possible, either may go first and the other stays possible, and every order of events ends in the same place: either
 * all instances of all ranks have finished, or the same ones never do. It is therefore enough to let one order happen,
 * whichever (fo_roles_verify does, rank by rank), and what it says holds for all delays of ranks, lanes and links.
 * Sends that are buffered finish earlier than with rendezvous, which again only allows more. What the numbers of calls
 * rest on is that a communicator's calls come from one lane, or in the two directions from one lane each: that is
 * checked too. Within a rank waits point back in issue order, so in a rank that is stuck the oldest instance that has
 * not finished is a call that was made: the message names it. */
#include "program/roles.h"

#include "base/count.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum side { COLLECTIVE, SENDS, RECEIVES };

/* ---- roles ---- */

/* Whether two operands of one buffer are the same rows, or lie alike in their own rank's part of the rows of a
 * group. */
static bool same_rows(const struct fo_program *p, const struct fo_operand *a, const struct fo_program *q,
		      const struct fo_operand *b)
{
	for (int g = FO_GROUP_DATA; a->r0 != b->r0 && g < FO_GROUP_COUNT; g++) {
		int32_t at, to, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)g, &at, NULL);
		int64_t x, y, rows = p->buf[a->buf].rows, n = fo_mesh_part(rows, at, ranks, &x), m;
		fo_mesh_group(&q->run.mesh, (enum fo_group)g, &to, NULL);
		m = fo_mesh_part(rows, to, ranks, &y);
		if (a->r0 >= x && a->r0 + a->nr <= x + n && b->r0 + b->nr <= y + m && a->r0 - x == b->r0 - y)
			return true;
	}
	return a->r0 == b->r0;
}

static bool same_attr(const struct fo_program *p, const struct fo_op *x, const struct fo_program *q,
		      const struct fo_op *y)
{
	const struct fo_attr *a = &x->attr, *b = &y->attr;
	bool same = a->ta == b->ta && a->tb == b->tb && a->sign == b->sign && a->port == b->port &&
		    a->head_dim == b->head_dim && a->window == b->window && a->stochastic == b->stochastic &&
		    a->narrow == b->narrow && !(a->value < b->value) && !(a->value > b->value);
	if (fo_op_family(x->kind) != FO_OPS_P2P)
		return same && a->peer == b->peer;
	int32_t at, to, n = fo_mesh_group(&p->run.mesh, (enum fo_group)x->group, &at, NULL);
	fo_mesh_group(&q->run.mesh, (enum fo_group)y->group, &to, NULL);
	return same && (a->peer - at + n) % n == (b->peer - to + n) % n;
}

static bool same_op(const struct fo_program *p, const struct fo_op *x, const struct fo_program *q,
		    const struct fo_op *y)
{
	if (x->kind != y->kind || x->phase != y->phase || x->lane != y->lane || x->group != y->group || x->n != y->n ||
	    !same_attr(p, x, q, y))
		return false;
	for (int i = 0; i < x->n; i++) {
		const struct fo_operand *a = &x->arg[i], *b = &y->arg[i];
		if (a->buf != b->buf || a->dlayer != b->dlayer || a->access != b->access || a->nr != b->nr ||
		    a->c0 != b->c0 || a->nc != b->nc || !same_rows(p, a, q, b))
			return false;
	}
	return true;
}

static bool same_blocks(const struct fo_program *p, const struct fo_program *q)
{
	for (int b = 0; b < p->nblock; b++) {
		if (p->block[b].n != q->block[b].n || strcmp(p->block[b].name, q->block[b].name) != 0)
			return false;
		for (int i = 0; i < p->block[b].n; i++)
			if (!same_op(p, &p->block[b].op[i], q, &q->block[b].op[i]))
				return false;
	}
	for (int s = 0; s < p->nslot; s++)
		if (p->slot[s].block != q->slot[s].block || p->slot[s].layer != q->slot[s].layer ||
		    p->slot[s].mb != q->slot[s].mb)
			return false;
	return true;
}

static bool same_role(const struct fo_program *p, const struct fo_program *q)
{
	if (p->nbuf != q->nbuf || p->nblock != q->nblock || p->nslot != q->nslot || p->nparam != q->nparam ||
	    p->tokens != q->tokens || p->layer_begin != q->layer_begin || p->layer_end != q->layer_end)
		return false;
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *a = &p->buf[i], *b = &q->buf[i];
		if (a->rows != b->rows || a->cols != b->cols || a->dtype != b->dtype || a->home != b->home ||
		    a->axes != b->axes || a->row_axis != b->row_axis || a->col_axis != b->col_axis || a->tp != b->tp ||
		    a->stage != b->stage || strcmp(a->name, b->name) != 0)
			return false;
	}
	for (int i = 0; i < p->nparam; i++) {
		const struct fo_param *a = &p->param[i], *b = &q->param[i];
		bool same = a->nr == b->nr && a->nc == b->nc && a->rows == b->rows && a->cols == b->cols &&
			    a->c0 == b->c0;
		for (int k = 0; k < FO_PARAM_BUFFERS; k++)
			same &= a->buf[k] == b->buf[k];
		if (!same || strcmp(a->name, b->name) != 0)
			return false;
	}
	return same_blocks(p, q);
}

/* ---- calls ---- */

/* The operand that all ranks of the group have together. */
static const struct fo_operand *whole_of(const struct fo_op *o, int tensor)
{
	bool last = fo_op_info(o->kind)->wire == FO_WIRE_ALL_GATHER;
	return &o->arg[last ? o->n - 1 : tensor];
}

static void add_call(struct fo_roles *r, const struct fo_program *p, const struct fo_slot *s, const struct fo_op *o,
		     int instance, int tensor)
{
	const struct fo_mesh *m = &p->run.mesh;
	const struct fo_operand *a = whole_of(o, tensor);
	const struct fo_buffer *b = &p->buf[a->buf];
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	const bool parts = o->n == 2 && !fo_op_info(o->kind)->per_tensor;
	fo_array_room(&r->call, &r->call_cap, (size_t)r->calls, sizeof *r->call);
	struct fo_role_call *c = &r->call[r->calls++];
	*c = (struct fo_role_call){ .rank = m->rank,
				    .instance = instance,
				    .kind = o->kind,
				    .group = o->group,
				    .channel = (uint8_t)fo_lane_channel(o->lane),
				    .dtype = o->attr.narrow ? FO_BF16 : b->dtype,
				    .tensor = (int16_t)tensor,
				    .buf = a->buf,
				    .part = (int16_t)(parts ? o->arg[a == o->arg].buf : -1),
				    .root = (int16_t)(wire == FO_WIRE_BROADCAST ? o->attr.peer : -1),
				    .layer = b->axes & FO_PER_LAYER ? s->layer + a->dlayer : -1,
				    .mb = b->axes & FO_PER_MICRO_BATCH ? s->mb : -1,
				    .r0 = a->r0,
				    .rows = a->nr,
				    .cols = a->nc };
	if (fo_op_family(o->kind) != FO_OPS_P2P) {
		fo_mesh_group(m, (enum fo_group)o->group, &c->b, &c->a);
		return;
	}
	int32_t peer = fo_mesh_member(m, (enum fo_group)o->group, o->attr.peer);
	c->side = wire == FO_WIRE_SEND ? SENDS : RECEIVES;
	c->a = c->side == SENDS ? m->rank : peer;
	c->b = c->side == SENDS ? peer : m->rank;
}

/* Calls of one communicator that a rank makes from two lanes come in no order that others could know. */
static fo_status check_lane(const struct fo_program *p, const struct fo_unrolled *u, int instance,
			    int8_t lane_of[FO_GROUP_COUNT][FO_LANE_COUNT][3])
{
	const struct fo_op *o = fo_instance_op(p, u, instance);
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	enum side side = COLLECTIVE;
	if (fo_op_family(o->kind) == FO_OPS_P2P)
		side = wire == FO_WIRE_SEND ? SENDS : RECEIVES;
	int8_t *first = &lane_of[o->group][fo_lane_channel(o->lane)][side];
	char where[160];
	if (*first && *first != o->lane + 1) {
		fo_roles_where(p, u, p->rank, instance, p->buf[o->arg->buf].name, where, sizeof where);
		return fo_fail(FO_EBUG,
			       "%s is on lane %s, and others of its kind and group are on lane %s: other ranks cannot "
			       "know in which order they come",
			       where, fo_lane_name[o->lane], fo_lane_name[*first - 1]);
	}
	*first = (int8_t)(o->lane + 1);
	return FO_OK;
}

static fo_status add_calls(struct fo_roles *r, const struct fo_program *p, const struct fo_role_program *k)
{
	int8_t lane_of[FO_GROUP_COUNT][FO_LANE_COUNT][3] = { 0 };
	fo_array_room(&r->call_begin, &r->begin_cap, (size_t)p->rank + 1, sizeof *r->call_begin);
	r->call_begin[p->rank] = (int32_t)r->calls;
	for (int i = 0; i < k->u.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &k->u, i);
		if (k->call[i] < 0)
			continue;
		FO_TRY(check_lane(p, &k->u, i, lane_of));
		for (int t = 0; t < fo_op_tensors(o->kind, o->n); t++)
			add_call(r, p, &p->slot[k->u.slot[i]], o, i, t);
	}
	r->call_begin[p->rank + 1] = (int32_t)r->calls;
	return FO_OK;
}

/* ---- adding ranks ---- */

static fo_status new_role(struct fo_roles *r, const struct fo_program *p)
{
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	fo_status st = FO_OK;
	if (u.dead_stores && p->run.mode == FO_MODE_TRAIN)
		st = fo_fail(FO_EBUG, "%d values are written and never read", u.dead_stores);
	if (st == FO_OK)
		st = fo_sums_verify(p, &u);
	if (st == FO_OK)
		st = fo_rows_verify(p, &u);
	if (st != FO_OK) {
		fo_unrolled_fini(&u);
		return st;
	}
	fo_plan(p, &u);
	fo_prune_waits(p, &u);
	fo_array_room(&r->of, &r->of_cap, (size_t)r->n, sizeof *r->of);
	struct fo_role_program *k = &r->of[r->n++];
	*k = (struct fo_role_program){ .p = p, .u = u, .first = p->rank };
	k->call = fo_xmalloc((size_t)(u.n + 1) * sizeof *k->call);
	for (int l = 0; l < FO_LANE_COUNT; l++)
		k->lane[l] = fo_xmalloc((size_t)(u.n + 1) * sizeof *k->lane[l]);
	for (int i = 0, calls = 0; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &u, i);
		bool comm = fo_op_info(o->kind)->cls == FO_CLASS_COMM;
		k->call[i] = comm ? calls : -1;
		calls += comm ? fo_op_tensors(o->kind, o->n) : 0;
		k->lane[o->lane][k->lane_n[o->lane]++] = i;
	}
	return FO_OK;
}

fo_status fo_roles_add(struct fo_roles *r, const struct fo_program *p, bool *kept)
{
	int k = 0;
	*kept = false;
	if (p->rank != r->ranks || p->rank != p->run.mesh.rank || p->ranks != fo_mesh_ranks(&p->run.mesh))
		return fo_fail(FO_EBUG, "the program of rank %d says that it is rank %d of %d", r->ranks, p->rank,
			       p->ranks);
	while (k < r->n && !same_role(r->of[k].p, p))
		k++;
	if (k == r->n) {
		fo_status st = new_role(r, p);
		if (st != FO_OK)
			return fo_wrap(st, "rank %d of %d", p->rank, p->ranks);
		*kept = true;
	}
	fo_array_room(&r->role, &r->role_cap, (size_t)r->ranks, sizeof *r->role);
	r->role[r->ranks++] = k;
	r->of[k].ranks++;
	fo_updates_add(r, p);
	return add_calls(r, p, &r->of[k]);
}

void fo_roles_fini(struct fo_roles *r)
{
	for (int k = 0; k < r->n; k++) {
		fo_unrolled_fini(&r->of[k].u);
		free(r->of[k].call);
		for (int l = 0; l < FO_LANE_COUNT; l++)
			free(r->of[k].lane[l]);
	}
	free(r->role);
	free(r->of);
	free(r->call);
	free(r->call_begin);
	free(r->update);
	*r = (struct fo_roles){ 0 };
}

/* ---- who meets whom ---- */

/* What a call is, and where it stands in its rank's program. */
static void describe(const struct fo_roles *r, const struct fo_role_call *c, char *out, size_t size)
{
	const struct fo_role_program *k = &r->of[r->role[c->rank]];
	char where[160], layer[24] = "", other[48] = "";
	fo_roles_where(k->p, &k->u, c->rank, c->instance, k->p->buf[c->buf].name, where, sizeof where);
	if (c->layer >= 0)
		snprintf(layer, sizeof layer, " of layer %d", c->layer);
	if (c->part >= 0)
		snprintf(other, sizeof other, ", part '%s'", k->p->buf[c->part].name);
	if (c->root >= 0)
		snprintf(other, sizeof other, ", root %d", c->root);
	if (c->side != COLLECTIVE)
		snprintf(other, sizeof other, ", %s rank %d", c->side == SENDS ? "to" : "from",
			 c->side == SENDS ? c->b : c->a);
	snprintf(out, size, "%s%s (%d x %d %s from row %d%s)", where, layer, c->rows, c->cols, fo_dtype_name[c->dtype],
		 c->r0, other);
}

/* Calls that meet lie together: of one communicator, by their number there, then by place. */
struct sorted {
	const struct fo_role_call *c;
	int32_t number; /* of this rank's calls of the communicator, and of one pair and side */
};

static int by_communicator(const void *x, const void *y)
{
	const struct fo_role_call *a = ((const struct sorted *)x)->c, *b = ((const struct sorted *)y)->c;
	bool pairs = a->side != COLLECTIVE;
	return FO_ORDER_BY(fo_order(a->group, b->group), fo_order(a->channel, b->channel),
			   fo_order(pairs, b->side != COLLECTIVE), fo_order(a->a, b->a),
			   pairs ? fo_order(a->b, b->b) : 0, fo_order(a->side, b->side), fo_order(a->rank, b->rank),
			   fo_order(a - b, 0));
}

static bool same_communicator(const struct fo_role_call *a, const struct fo_role_call *b)
{
	return a->group == b->group && a->channel == b->channel && (a->side != COLLECTIVE) == (b->side != COLLECTIVE) &&
	       a->a == b->a && (a->side == COLLECTIVE || a->b == b->b);
}

static const char *name_of(const struct fo_roles *r, const struct fo_role_call *c)
{
	return r->of[r->role[c->rank]].p->buf[c->buf].name;
}

static const char *part_of(const struct fo_roles *r, const struct fo_role_call *c)
{
	return c->part < 0 ? "" : r->of[r->role[c->rank]].p->buf[c->part].name;
}

/* Do two calls that meet fit together? A collective works on the same tensor on all ranks. What goes from one rank to
 * another may have two names, but is of one micro-batch. */
static bool fits(const struct fo_roles *r, const struct fo_role_call *a, const struct fo_role_call *b)
{
	bool named = !strcmp(name_of(r, a), name_of(r, b)), size = a->rows == b->rows && a->cols == b->cols;
	enum fo_wire x = fo_op_info(a->kind)->wire, y = fo_op_info(b->kind)->wire;
	if (a->dtype != b->dtype || !size)
		return false;
	if (a->side == COLLECTIVE)
		return x == y && named && !strcmp(part_of(r, a), part_of(r, b)) && a->layer == b->layer &&
		       a->mb == b->mb && a->r0 == b->r0 && a->root == b->root;
	return (a->mb < 0 || b->mb < 0 || a->mb == b->mb) && (!named || (a->layer == b->layer && a->r0 == b->r0));
}

static fo_status misfit(const struct fo_roles *r, const struct fo_role_call *a, const struct fo_role_call *b,
			int number)
{
	char one[320], other[320], lane[64];
	describe(r, a, one, sizeof one);
	describe(r, b, other, sizeof other);
	snprintf(lane, sizeof lane, "group %s, lane %s", fo_group_name[a->group], fo_lane_name[a->channel]);
	return fo_fail(FO_EBUG, "%s is call %d of %s, and it meets %s", one, number + 1, lane, other);
}

static fo_status alone(const struct fo_roles *r, const struct fo_role_call *a, int rank, int number)
{
	char one[320];
	describe(r, a, one, sizeof one);
	if (a->side == COLLECTIVE)
		return fo_fail(FO_EBUG, "%s is call %d of group %s, lane %s, and rank %d has only %d there", one,
			       number + 1, fo_group_name[a->group], fo_lane_name[a->channel], rank, number);
	return fo_fail(FO_EBUG, "%s is number %d of its kind between these ranks, and rank %d has only %d to meet it",
		       one, number + 1, rank, number);
}

/* Calls s[0, n) of one communicator: `parts` runs of members (or of a sender and a receiver), each in order. */
static fo_status match(struct fo_roles *r, struct sorted *s, int64_t n)
{
	const struct fo_role_call *first = s->c;
	const bool pairs = first->side != COLLECTIVE;
	const struct fo_role_program *k = &r->of[r->role[first->rank]];
	const int members = pairs ? 2 : fo_mesh_group(&k->p->run.mesh, (enum fo_group)first->group, NULL, NULL);
	int64_t longest = 0, run = 0, runs = 0;
	for (int64_t i = 0; i < n; i++) {
		bool begins = !i || s[i].c->rank != s[i - 1].c->rank || s[i].c->side != s[i - 1].c->side;
		runs += begins;
		run = begins ? 1 : run + 1;
		s[i].number = (int32_t)run - 1;
		r->call[s[i].c - r->call].meeting = (int32_t)(r->meetings + run - 1);
		longest = fo_max(longest, run);
	}
	/* Of every run: is each call what the first run has there? */
	int64_t lead = 0;
	while (lead < n && s[lead].c->rank == first->rank && s[lead].c->side == first->side)
		lead++;
	for (int64_t i = lead; i < n; i++) {
		if (s[i].number >= lead)
			return alone(r, s[i].c, pairs && first->side == RECEIVES ? first->b : first->rank, (int)lead);
		if (!fits(r, s[s[i].number].c, s[i].c))
			return misfit(r, s[i].c, s[s[i].number].c, s[i].number);
		bool ends = i + 1 == n || s[i + 1].c->rank != s[i].c->rank || s[i + 1].c->side != s[i].c->side;
		if (ends && s[i].number + 1 < lead)
			return alone(r, s[s[i].number + 1].c, s[i].c->rank, s[i].number + 1);
	}
	if (runs < members) { /* somebody makes no call at all */
		int absent = first->side == SENDS ? first->b : first->a;
		for (int place = 0; !pairs && place < members; place++) {
			bool here = false;
			absent = fo_mesh_member(&r->of[r->role[first->rank]].p->run.mesh, (enum fo_group)first->group,
						place);
			for (int64_t i = 0; i < n; i += longest)
				here |= s[i].c->b == place;
			if (!here)
				break;
		}
		return alone(r, first, absent, 0);
	}
	r->meetings += longest;
	return FO_OK;
}

static fo_status match_all(struct fo_roles *r)
{
	struct sorted *s = fo_xmalloc((size_t)(r->calls + 1) * sizeof *s);
	fo_status st = FO_OK;
	for (int64_t i = 0; i < r->calls; i++)
		s[i].c = &r->call[i];
	qsort(s, (size_t)r->calls, sizeof *s, by_communicator);
	r->meetings = 0;
	for (int64_t i = 0, end; i < r->calls && st == FO_OK; i = end) {
		for (end = i + 1; end < r->calls && same_communicator(s[i].c, s[end].c);)
			end++;
		st = match(r, s + i, end - i);
	}
	free(s);
	return st;
}

/* ---- one order of events ---- */

struct rank_state {
	int32_t next[FO_LANE_COUNT], done[FO_LANE_COUNT];
	bool started[FO_LANE_COUNT];
};

struct events {
	const struct fo_roles *r;
	struct rank_state *rank;
	int32_t *came, *members; /* by meeting */
};

static bool may_start(const struct fo_role_program *k, const struct rank_state *s, int lane, int id)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (l != lane && k->u.wait[id][l] > s->done[l])
			return false;
	return true;
}

/* The next instance of a lane starts or ends, or nothing is possible. */
static bool move_lane(struct events *e, int rank, int lane)
{
	const struct fo_role_program *k = &e->r->of[e->r->role[rank]];
	struct rank_state *s = &e->rank[rank];
	if (s->next[lane] == k->lane_n[lane])
		return false;
	int id = k->lane[lane][s->next[lane]], calls = 0;
	const struct fo_op *o = fo_instance_op(k->p, &k->u, id);
	const struct fo_role_call *c = NULL;
	if (k->call[id] >= 0) {
		c = &e->r->call[e->r->call_begin[rank] + k->call[id]];
		calls = fo_op_tensors(o->kind, o->n);
	}
	if (!s->started[lane]) {
		if (!may_start(k, s, lane, id))
			return false;
		for (int i = 0; i < calls; i++)
			e->came[c[i].meeting]++;
		s->started[lane] = true;
		if (calls)
			return true;
	}
	for (int i = 0; i < calls; i++)
		if (e->came[c[i].meeting] < e->members[c[i].meeting])
			return false;
	s->started[lane] = false;
	s->done[lane] = id;
	s->next[lane]++;
	return true;
}

static bool move_rank(struct events *e, int rank)
{
	bool any = false, moved;
	do {
		moved = false;
		for (int l = 0; l < FO_LANE_COUNT; l++)
			while (move_lane(e, rank, l))
				moved = true;
		any |= moved;
	} while (moved);
	return any;
}

/* The oldest call that a rank has made and that nobody answers; -1: it is done. */
static int stuck_at(const struct events *e, int rank)
{
	const struct fo_role_program *k = &e->r->of[e->r->role[rank]];
	const struct rank_state *s = &e->rank[rank];
	int oldest = -1;
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (s->started[l] && (oldest < 0 || k->lane[l][s->next[l]] < oldest))
			oldest = k->lane[l][s->next[l]];
	return oldest;
}

/* A rank that has not come to one of the meetings of an instance of `rank`. */
static int who_is_missing(const struct events *e, int rank, int instance, int *call)
{
	const struct fo_roles *r = e->r;
	const struct fo_role_program *k = &r->of[r->role[rank]];
	int at = r->call_begin[rank] + k->call[instance];
	while (e->came[r->call[at].meeting] == e->members[r->call[at].meeting])
		at++;
	*call = at;
	for (int other = 0; other < r->ranks; other++)
		for (int i = r->call_begin[other]; other != rank && i < r->call_begin[other + 1]; i++) {
			const struct fo_role_program *q = &r->of[r->role[other]];
			const struct rank_state *s = &e->rank[other];
			int lane = fo_instance_op(q->p, &q->u, r->call[i].instance)->lane;
			bool started = r->call[i].instance <= s->done[lane] ||
				       (s->started[lane] && q->lane[lane][s->next[lane]] == r->call[i].instance);
			if (r->call[i].meeting == r->call[at].meeting && !started)
				return other;
		}
	return rank;
}

static fo_status stuck(const struct events *e, int rank)
{
	char one[320], other[320];
	int call, here = stuck_at(e, rank), with = who_is_missing(e, rank, here, &call), there = stuck_at(e, with),
		  back;
	describe(e->r, &e->r->call[call], one, sizeof one);
	if (there < 0)
		return fo_fail(FO_EBUG, "%s waits for rank %d for ever", one, with);
	int for_whom = who_is_missing(e, with, there, &back);
	describe(e->r, &e->r->call[back], other, sizeof other);
	return fo_fail(FO_EBUG,
		       "%s waits for ever: it waits for rank %d, and %s waits for rank %d before it comes there", one,
		       with, other, for_whom);
}

static fo_status let_it_happen(struct fo_roles *r)
{
	struct events e = { .r = r };
	e.rank = fo_xmalloc((size_t)r->ranks * sizeof *e.rank);
	e.came = fo_xmalloc((size_t)(r->meetings + 1) * sizeof *e.came);
	e.members = fo_xmalloc((size_t)(r->meetings + 1) * sizeof *e.members);
	for (int64_t i = 0; i < r->calls; i++)
		e.members[r->call[i].meeting]++;
	for (int k = 0; k < r->ranks; k++)
		memset(e.rank[k].done, -1, sizeof e.rank[k].done);
	bool moved;
	do {
		moved = false;
		for (int k = 0; k < r->ranks; k++)
			moved |= move_rank(&e, k);
	} while (moved);
	fo_status st = FO_OK;
	for (int k = 0; k < r->ranks && st == FO_OK; k++)
		if (stuck_at(&e, k) >= 0)
			st = stuck(&e, k);
	free(e.rank);
	free(e.came);
	free(e.members);
	return st;
}

/* ---- all of it ---- */

static fo_status check_alike(const struct fo_roles *r)
{
	const struct fo_program *first = r->of->p;
	for (int k = 0; k < r->n; k++) {
		const struct fo_program *p = r->of[k].p;
		const struct fo_lowering *a = &first->run, *b = &p->run;
		if (a->seq != b->seq || a->micro_batches != b->micro_batches || a->precision != b->precision ||
		    a->mode != b->mode || a->mesh.replicate != b->mesh.replicate || a->mesh.shard != b->mesh.shard ||
		    fo_mesh_cp(&a->mesh) != fo_mesh_cp(&b->mesh) || fo_mesh_tp(&a->mesh) != fo_mesh_tp(&b->mesh) ||
		    fo_mesh_pp(&a->mesh) != fo_mesh_pp(&b->mesh) || a->pass.pp != b->pass.pp ||
		    a->pass.pp_chunks != b->pass.pp_chunks || first->nparam != p->nparam)
			return fo_fail(FO_EBUG,
				       "rank %d has %lld micro-batches, sequences of %lld tokens, %d parameters and a "
				       "mesh of %d x %d x %d x %d x %d; rank 0 has %lld, %lld, %d and %d x %d x %d x "
				       "%d x %d, or their schedules differ",
				       r->of[k].first, (long long)b->micro_batches, (long long)b->seq, p->nparam,
				       fo_mesh_pp(&b->mesh), b->mesh.replicate, b->mesh.shard, fo_mesh_cp(&b->mesh),
				       fo_mesh_tp(&b->mesh), (long long)a->micro_batches, (long long)a->seq,
				       first->nparam, fo_mesh_pp(&a->mesh), a->mesh.replicate, a->mesh.shard,
				       fo_mesh_cp(&a->mesh), fo_mesh_tp(&a->mesh));
	}
	if (r->ranks != first->ranks)
		return fo_fail(FO_EBUG, "there are programs of %d ranks of %d", r->ranks, first->ranks);
	return FO_OK;
}

static fo_status check_flop(const struct fo_roles *r, int64_t rows)
{
	const struct fo_program *p = r->of->p;
	double want = fo_model_flop_per_token(&p->model, p->run.seq).mfu * (double)(rows * p->run.seq) *
		      (double)p->run.micro_batches / (p->run.mode == FO_MODE_TRAIN ? 1 : 3),
	       have = 0;
	for (int k = 0; k < r->n; k++)
		have += r->of[k].ranks * fo_program_cost(r->of[k].p, -1).model;
	if (fabs(have - want) > 1e-11 * want)
		return fo_fail(FO_EBUG,
			       "%d ranks together do %.17g FLOP of the model in a step, the closed formula says %.17g "
			       "for %lld rows of a micro-batch",
			       r->ranks, have, want, (long long)rows);
	return FO_OK;
}

fo_status fo_roles_verify(struct fo_roles *r, int64_t rows)
{
	if (!r->ranks)
		return fo_fail(FO_EBUG, "there is no rank");
	FO_TRY(check_alike(r));
	if (rows)
		FO_TRY(check_flop(r, rows));
	FO_TRY(match_all(r));
	FO_TRY(let_it_happen(r));
	return fo_updates_verify(r);
}
