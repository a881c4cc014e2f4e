/* Ranks whose devices do not reach each other, as those of one device: what an operation of communication reads comes
 * to page-locked memory, travels from there over the links of the processor, and what it writes goes back.
 *
 * The host takes part in such a step, so it is no graph: one thread puts each instance into its lane's stream as soon
 * as all that it waits for was put into theirs, and drives the calls of all lanes meanwhile. A lane of communication
 * has one operation under way, and no lane stops for another but where the program waits. What is staged stays until
 * the copy that ends the operation, which comes before the next one's in the same stream. */
#include "base/clock.h"
#include "train/exec_cuda.h"
#include "train/store_int.h"

#include <stdlib.h>

enum { STAGE_ALIGN = 64 }; /* a cache line */

/* ---- memory ---- */

/* Lays the call's operands out from `at` on, one behind the other; returns the bytes. */
static size_t lay_out(struct fo_call *c, unsigned char *at)
{
	size_t bytes = 0;
	for (int i = 0; i < c->n; i++) {
		c->arg[i].data = at ? at + bytes : NULL;
		bytes += fo_round_up_bytes(fo_tensor_bytes(&c->arg[i]), STAGE_ALIGN);
	}
	return bytes;
}

void fo_exec_staged_plan(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	for (int i = 0; i < e->ops; i++) {
		struct fo_exec_stream *lane = &x->lane[e->op[i]->lane];
		struct fo_call c = e->call[i];
		const size_t bytes = fo_exec_is_comm(e->op[i]) ? lay_out(&c, NULL) : 0;
		lane->stage_bytes = bytes > lane->stage_bytes ? bytes : lane->stage_bytes;
	}
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		x->lane[l].stage_at = x->staging_bytes;
		x->staging_bytes += x->lane[l].stage_bytes;
	}
}

/* ---- one operation ---- */

static struct fo_call staged(const struct fo_exec *e, int id)
{
	struct fo_call c = fo_exec_call(e, id);
	lay_out(&c, e->cuda->staging + e->cuda->lane[fo_instance_op(e->p, &e->u, id)->lane].stage_at);
	return c;
}

/* Copies out what the operation reads, or in what it has written. */
static fo_status copy(struct fo_exec *e, int id, bool in)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
	const struct fo_call there = fo_exec_call(e, id), here = staged(e, id);
	fo_cuda_stream s = x->lane[o->lane].stream;
	for (int i = 0; i < o->n; i++) {
		const size_t bytes = fo_tensor_bytes(&there.arg[i]);
		const bool adds = i == o->n - 1 && fo_exec_adds(o, there.first);
		if (bytes && in && fo_access_writes(o->arg[i].access))
			FO_TRY(fo_cuda_copy_in(x->c, there.arg[i].data, here.arg[i].data, bytes, s));
		if (bytes && !in && (adds || fo_access_reads(o->arg[i].access)))
			FO_TRY(fo_cuda_copy_out(x->c, here.arg[i].data, there.arg[i].data, bytes, s));
	}
	return FO_OK;
}

/* Begins the operation: its call starts when the copies out are done. */
fo_status fo_exec_staged_leave(struct fo_exec *e, int id)
{
	struct fo_exec_stream *lane = &e->cuda->lane[fo_instance_op(e->p, &e->u, id)->lane];
	FO_TRY(fo_exec_poison_device(e, id));
	FO_TRY(copy(e, id, false));
	lane->phase = FO_EXEC_LEAVES;
	return fo_cuda_event_record(e->cuda->c, lane->left, lane->stream, false);
}

/* Goes on with an operation that has begun. *moved: something changed; it is over when phase is FO_EXEC_RESTS again,
 * and the copies in are in the stream. */
fo_status fo_exec_staged_go_on(struct fo_exec *e, int id, bool *moved)
{
	struct fo_exec_stream *lane = &e->cuda->lane[fo_instance_op(e->p, &e->u, id)->lane];
	bool done = false;
	if (lane->phase == FO_EXEC_LEAVES) {
		FO_TRY(fo_cuda_event_done(e->cuda->c, lane->left, &done));
		if (!done)
			return FO_OK;
		const struct fo_call c = staged(e, id);
		FO_TRY(fo_exec_transfer_start_at(e, id, &c, &lane->transfer));
		lane->phase = FO_EXEC_TRAVELS;
		*moved = true;
	}
	FO_TRY(fo_exec_transfer_test(e, id, &lane->transfer, &done));
	*moved |= done || lane->transfer.moved;
	if (!done)
		return FO_OK;
	lane->phase = FO_EXEC_RESTS;
	return copy(e, id, true);
}

/* ---- a step ---- */

/* Was all that the instance waits for put into streams, so that their events can be waited for? */
static bool may_begin(const struct fo_exec *e, int id)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->u.wait[id][l] > e->cuda->lane[l].issued)
			return false;
	return true;
}

/* Puts the lane's next instance into its stream, or goes on with the one under way. */
static fo_status drive(struct fo_exec *e, struct fo_exec_stream *lane, bool timed, bool *moved)
{
	const int id = lane->instance[lane->next];
	const bool travels = fo_exec_is_comm(fo_instance_op(e->p, &e->u, id));
	if (lane->phase == FO_EXEC_RESTS) {
		if (!may_begin(e, id))
			return FO_OK;
		*moved = true;
		FO_TRY(fo_exec_instance_begins(e, id, timed, false));
		FO_TRY(travels ? fo_exec_staged_leave(e, id) : fo_exec_enqueue(e, id));
	}
	if (lane->phase != FO_EXEC_RESTS)
		FO_TRY(fo_exec_staged_go_on(e, id, moved));
	if (lane->phase != FO_EXEC_RESTS)
		return FO_OK;
	FO_TRY(fo_exec_instance_ends(e, id, timed, false));
	lane->issued = id;
	lane->next++;
	return FO_OK;
}

/* Drives all lanes once. *left: they are not done; *rests: nothing moves before a call is over. */
static fo_status drive_all(struct fo_exec *e, bool timed, bool *moved, bool *left, bool *rests, int64_t *until_ns)
{
	*moved = *left = *rests = false;
	*until_ns = 0;
	bool leaves = false;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct fo_exec_stream *lane = &e->cuda->lane[l];
		bool more = lane->next < lane->instances;
		while (more) {
			bool went = false;
			FO_TRY(drive(e, lane, timed, &went));
			*moved |= went;
			more = went && lane->next < lane->instances;
		}
		*left |= lane->next < lane->instances;
		leaves |= lane->phase == FO_EXEC_LEAVES;
		if (lane->phase != FO_EXEC_TRAVELS)
			continue;
		*rests = true;
		*until_ns = fo_exec_earlier(*until_ns, lane->transfer.until_ns);
	}
	*rests &= !leaves;
	return FO_OK;
}

fo_status fo_exec_staged_step(struct fo_exec *e, bool timed)
{
	int64_t since = fo_now_ns(), until;
	bool moved, left = true, rests;
	FO_TRY(fo_exec_lanes_begin(e, timed, false));
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct fo_exec_stream *lane = &e->cuda->lane[l];
		lane->next = 0;
		lane->issued = -1;
		lane->phase = FO_EXEC_RESTS;
	}
	while (left) {
		FO_TRY(drive_all(e, timed, &moved, &left, &rests, &until));
		if (moved) {
			since = fo_now_ns();
			continue;
		}
		if (rests)
			fo_comm_idle(e->o.links->world, true);
		if (left)
			fo_comm_rest(since, rests ? until : 0);
	}
	return fo_exec_lanes_end(e);
}
