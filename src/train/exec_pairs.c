/* One by one: a rank that runs its instances in issue order must not wait for a send or a receive where it stands, for
 * stages of a pipeline would wait for each other in a circle. These go on beside what follows, each lane's in their
 * order, and an instance waits for those that it needs. In a whole step, streams and events do the same. */
#include "base/clock.h"
#include "train/exec_cuda.h"

/* Waits in the lane's stream for the sends and receives that instance `id` needs; all else is over. */
static fo_status after_pairs(struct fo_exec *e, int id)
{
	struct fo_exec_cuda *x = e->cuda;
	const struct fo_exec_stream *lane = &x->lane[fo_instance_op(e->p, &e->u, id)->lane];
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->u.wait[id][l] >= 0 && x->lane[l].listed)
			FO_TRY(fo_cuda_event_after(x->c, lane->stream, x->at[e->u.wait[id][l]].done));
	return FO_OK;
}

/* Were those that instance `id` needs put into their streams? */
static bool pairs_begun(const struct fo_exec *e, int id)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->cuda->lane[l].listed && e->u.wait[id][l] > e->cuda->lane[l].issued)
			return false;
	return true;
}

/* The lane's send or receive that is under way through host memory, or the next one that is listed. */
static fo_status move_one(struct fo_exec *e, struct fo_exec_stream *lane, bool *moved)
{
	const int id = lane->instance[lane->next];
	*moved = false;
	if (lane->phase == FO_EXEC_RESTS) {
		if (!pairs_begun(e, id))
			return FO_OK;
		FO_TRY(after_pairs(e, id));
		FO_TRY(fo_exec_staged_leave(e, id));
		*moved = true;
	}
	FO_TRY(fo_exec_staged_go_on(e, id, moved));
	if (lane->phase != FO_EXEC_RESTS)
		return FO_OK;
	FO_TRY(fo_exec_instance_ends(e, id, false, false));
	lane->issued = id;
	lane->next++;
	return FO_OK;
}

/* Goes on with those under way. *moved: more may be possible at once. *until_ns: a call will be over then; 0: not
 * known. */
static fo_status move_pairs(struct fo_exec *e, bool *moved, int64_t *until_ns)
{
	*moved = false;
	*until_ns = 0;
	for (int l = 0; e->cuda->staged && l < FO_LANE_COUNT; l++) {
		struct fo_exec_stream *lane = &e->cuda->lane[l];
		bool went = true;
		while (went && lane->next < lane->listed) {
			FO_TRY(move_one(e, lane, &went));
			*moved |= went;
		}
		if (lane->next < lane->listed && lane->phase == FO_EXEC_TRAVELS)
			*until_ns = fo_exec_earlier(*until_ns, lane->transfer.until_ns);
	}
	return FO_OK;
}

/* Says that this rank waits for others, where it does: a copy to the host that is under way ends by itself, and another
 * rank may wait for what it brings. */
static void tell_idle(struct fo_exec *e)
{
	bool travels = false;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (e->cuda->lane[l].phase == FO_EXEC_LEAVES)
			return;
		travels |= e->cuda->lane[l].phase == FO_EXEC_TRAVELS;
	}
	if (travels)
		fo_comm_idle(e->o.links->world, true);
}

fo_status fo_exec_pairs_list(struct fo_exec *e, int id)
{
	struct fo_exec_stream *lane = &e->cuda->lane[fo_instance_op(e->p, &e->u, id)->lane];
	bool moved;
	int64_t until_ns;
	if (lane->instance[0] == id) { /* a step begins */
		lane->listed = lane->next = 0;
		lane->issued = -1;
		lane->phase = FO_EXEC_RESTS;
	}
	lane->listed++;
	if (e->cuda->staged)
		return move_pairs(e, &moved, &until_ns);
	FO_TRY(after_pairs(e, id));
	FO_TRY(fo_exec_enqueue(e, id));
	lane->issued = id;
	lane->next++;
	return fo_exec_instance_ends(e, id, false, false);
}

/* Are the lanes whose sends and receives were all listed done with them? */
static bool ended_lanes_rest(const struct fo_exec *e)
{
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (e->cuda->lane[l].listed == e->cuda->lane[l].instances &&
		    e->cuda->lane[l].next < e->cuda->lane[l].listed)
			return false;
	return true;
}

fo_status fo_exec_pairs_settle(struct fo_exec *e, int id)
{
	struct fo_exec_cuda *x = e->cuda;
	int64_t since = fo_now_ns(), until_ns;
	bool moved;
	if (!e->o.links)
		return FO_OK;
	while (!pairs_begun(e, id) || !ended_lanes_rest(e)) {
		FO_TRY(move_pairs(e, &moved, &until_ns));
		if (moved) {
			since = fo_now_ns();
			continue;
		}
		tell_idle(e);
		fo_comm_rest(since, until_ns);
	}
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_exec_stream *lane = &x->lane[l];
		if (lane->listed && e->u.wait[id][l] >= 0)
			FO_TRY(fo_exec_wait_for(e, x->at[e->u.wait[id][l]].done));
		if (lane->listed && lane->listed == lane->instances)
			FO_TRY(fo_exec_wait(e, lane->stream));
	}
	return FO_OK;
}

fo_status fo_exec_pairs_run(struct fo_exec *e, int id)
{
	struct fo_exec_stream *lane = &e->cuda->lane[fo_instance_op(e->p, &e->u, id)->lane];
	int64_t since = fo_now_ns();
	FO_TRY(fo_exec_staged_leave(e, id));
	while (lane->phase != FO_EXEC_RESTS) {
		bool moved = false, others;
		int64_t until;
		FO_TRY(fo_exec_staged_go_on(e, id, &moved));
		FO_TRY(move_pairs(e, &others, &until));
		if (moved || others) {
			since = fo_now_ns();
			continue;
		}
		tell_idle(e);
		const int64_t own = lane->phase == FO_EXEC_TRAVELS ? lane->transfer.until_ns : 0;
		fo_comm_rest(since, fo_exec_earlier(own, until));
	}
	return FO_OK;
}
