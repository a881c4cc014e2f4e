/* Operations of class COMM: the calls of their tensors, started and tested, or put into a stream. Who drives them is
 * the engine's affair. */
#include "train/exec_int.h"

/* What an operation does is named once, in ops.def; a call has the same names in the same order. */
#define SAME(wire, kind) _Static_assert((int)FO_WIRE_##wire == 1 + (int)FO_COMM_##kind, "the order of comm/comm.h")
SAME(ALL_REDUCE, ALL_REDUCE);
SAME(ALL_GATHER, ALL_GATHER);
SAME(REDUCE_SCATTER, REDUCE_SCATTER);
SAME(BROADCAST, BROADCAST);
SAME(SEND, SEND);
SAME(RECEIVE, RECV);
SAME(ALL_TO_ALL, ALL_TO_ALL);
SAME(SHIFT, SHIFT);

static int64_t elements(const struct fo_tensor *t) { return t->rows * t->cols; }

/* Parts of unlike size, in elements. */
static void fill_parts(const struct fo_transfer *t, const struct fo_tensor *whole)
{
	int64_t begin;
	for (int r = 0; r < fo_comm_ranks(t->comm); r++)
		t->part[r] = fo_mesh_part(whole->rows, r, fo_comm_ranks(t->comm), &begin) * whole->cols;
}

/* The call of tensor k, without its peer. Operands of other kinds are one or two: from, to. adds: to what is there. */
static struct fo_comm_call call_of(const struct fo_call *c, int k, const struct fo_transfer *t, bool adds)
{
	const enum fo_wire wire = fo_op_info(c->kind)->wire;
	const struct fo_tensor *from = &c->arg[k], *to = &c->arg[c->n - 1];
	if (fo_op_info(c->kind)->per_tensor)
		to = from;
	struct fo_comm_call call = { .kind = (enum fo_comm_kind)(wire - 1),
				     .op = fo_op_info(c->kind)->max ? FO_COMM_MAX : FO_COMM_SUM,
				     .from = from->data,
				     .to = to->data,
				     .n = elements(from),
				     .dtype = from->dtype,
				     .narrow = c->attr.narrow };
	if (wire == FO_WIRE_ALL_GATHER || wire == FO_WIRE_REDUCE_SCATTER) {
		fill_parts(t, wire == FO_WIRE_ALL_GATHER ? to : from);
		call.part = t->part;
		call.n = 0;
	}
	call.accumulate = adds;
	if (wire == FO_WIRE_ALL_TO_ALL)
		call.n /= fo_comm_ranks(t->comm);
	return call;
}

bool fo_exec_adds(const struct fo_op *o, uint32_t first)
{
	return o->arg[o->n - 1].access == FO_ACC && !(first >> (o->n - 1) & 1);
}

fo_status fo_exec_transfer_start_at(struct fo_exec *e, int id, const struct fo_call *c, struct fo_transfer *t)
{
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	fo_status fails = fo_exec_fails(e, id);
	if (fails != FO_OK)
		return fo_exec_failed(e, id, fails);
	int peer;
	t->comm = fo_links_of(e->o.links, o, &peer);
	t->n = 0;
	for (int k = 0; k < fo_op_tensors(o->kind, o->n); k++) {
		struct fo_comm_call call = call_of(c, k, t, fo_exec_adds(o, c->first));
		call.peer = peer;
		fo_status st = fo_comm_start(t->comm, &call, &t->request[t->n++]);
		if (st != FO_OK)
			return fo_exec_failed(e, id, st);
	}
	return FO_OK;
}

fo_status fo_exec_transfer_start(struct fo_exec *e, int id, struct fo_transfer *t)
{
	const struct fo_call c = fo_exec_call(e, id);
	fo_exec_poison(e, id);
	return fo_exec_transfer_start_at(e, id, &c, t);
}

fo_status fo_exec_transfer_put(struct fo_exec *e, int id, struct fo_transfer *t, fo_comm_stream stream, void *scratch)
{
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	const struct fo_call c = fo_exec_call(e, id);
	FO_TRY(fo_exec_fails(e, id));
	int peer;
	t->comm = fo_links_of(e->o.links, o, &peer);
	const int n = fo_op_tensors(o->kind, o->n);
	if (n > 1)
		FO_TRY(fo_comm_group_begin(t->comm));
	fo_status st = FO_OK;
	for (int k = 0; k < n && st == FO_OK; k++) {
		struct fo_comm_call call = call_of(&c, k, t, fo_exec_adds(o, c.first));
		call.peer = peer;
		call.stream = stream;
		call.scratch = scratch;
		st = fo_comm_call(t->comm, &call);
	}
	if (n == 1)
		return st;
	const fo_status end = fo_comm_group_end(t->comm);
	return st == FO_OK ? end : st;
}

fo_status fo_exec_transfer_test(struct fo_exec *e, int id, struct fo_transfer *t, bool *done)
{
	int left = 0;
	t->moved = false;
	t->until_ns = 0;
	for (int k = 0; k < t->n; k++) {
		const struct fo_comm_request before = t->request[k];
		bool over;
		fo_status st = fo_comm_test(t->comm, &t->request[k], &over);
		if (st != FO_OK)
			return fo_exec_failed(e, id, st);
		t->moved |= t->request[k].state != before.state || t->request[k].phase != before.phase;
		left += !over;
		if (!over && t->request[k].until_ns && (!t->until_ns || t->request[k].until_ns < t->until_ns))
			t->until_ns = t->request[k].until_ns;
	}
	*done = !left;
	return FO_OK;
}
