#include "train/links.h"

#include "base/count.h"
#include "base/mem.h"
#include "comm/mpi.h"
#include "comm/nccl.h"

#include <stdlib.h>

enum { GROUPS = FO_GROUP_COUNT, LANES = FO_LANE_COUNT };

/* A send or a receive. */
static bool is_pair(const struct fo_op *o)
{
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	return wire == FO_WIRE_SEND || wire == FO_WIRE_RECEIVE;
}

/* pairs: those of sends and receives, too. */
static void note_used(const struct fo_program *p, bool pairs, float used[GROUPS][LANES])
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			if (pairs || !is_pair(o))
				used[o->group][fo_lane_channel(o->lane)] = 1;
		}
}

/* Over NCCL the ranks of a group meet over the host, and need it no more. */
static fo_status open_group(struct fo_comm *world, int colour, struct fo_cuda *nccl, struct fo_comm **out)
{
	struct fo_comm *host;
	if (!nccl)
		return fo_comm_split(world, colour, out);
	FO_TRY(fo_comm_split(world, colour, &host));
	fo_status st = fo_comm_nccl_among(out, nccl, host);
	fo_comm_close(host);
	return st;
}

/* ---- two stages, one direction ---- */

static const int channel[] = { FO_LANE_SEND_FORWARD, FO_LANE_SEND_BACKWARD };
enum { CHANNELS = sizeof channel / sizeof *channel };

/* Where the pair of channel c from one stage to another is noted. */
static size_t pair_at(const struct fo_links *l, int c, int from, int to)
{
	return ((size_t)c * (size_t)l->stages + (size_t)from) * (size_t)l->stages + (size_t)to;
}

static void note_pairs(const struct fo_links *l, const struct fo_program *p, int own, float *used)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			const int from = o->lane == fo_lane_channel(o->lane) ? own : o->attr.peer;
			for (int c = 0; is_pair(o) && c < CHANNELS; c++)
				if (fo_lane_channel(o->lane) == channel[c])
					used[pair_at(l, c, from, own + o->attr.peer - from)] = 1;
		}
}

/* Stages of a pipeline open each pair at the same time, also those that have no part in it. */
static fo_status open_pair(struct fo_links *l, struct fo_comm *stages, int c, int from, int to, struct fo_cuda *nccl)
{
	const int own = fo_comm_rank(stages), colour = own == from || own == to;
	struct fo_comm *host, *comm;
	FO_TRY(fo_comm_split(stages, colour, &host));
	fo_status st = colour ? fo_comm_nccl_pair(&comm, nccl, host, own == from) : FO_OK;
	fo_comm_close(host);
	for (int lane = 0; st == FO_OK && colour && lane < LANES; lane++)
		if (fo_lane_channel(lane) == channel[c] && (lane == channel[c]) == (own == from)) {
			if (!l->pair[lane])
				l->pair[lane] = fo_xmalloc((size_t)l->stages * sizeof *l->pair[lane]);
			l->pair[lane][own == from ? to : from] = comm;
		}
	return st;
}

static fo_status open_pairs(struct fo_links *l, const struct fo_program *p, const struct fo_program *other,
			    struct fo_cuda *nccl)
{
	int32_t place, colour;
	l->stages = fo_mesh_group(&p->run.mesh, FO_GROUP_PP, &place, &colour);
	if (l->stages < 2)
		return FO_OK;
	const size_t n = CHANNELS * (size_t)l->stages * (size_t)l->stages;
	float *used = fo_xmalloc(n * sizeof *used);
	struct fo_comm *stages;
	note_pairs(l, p, place, used);
	if (other)
		note_pairs(l, other, place, used);
	fo_status st = fo_comm_split(l->world, colour, &stages);
	if (st == FO_OK) {
		st = fo_comm_call(stages, &(struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE,
								  .op = FO_COMM_MAX,
								  .from = used,
								  .to = used,
								  .n = (int64_t)n,
								  .dtype = FO_F32 });
		for (int c = 0; c < CHANNELS; c++)
			for (int from = 0; from < l->stages; from++)
				for (int to = 0; to < l->stages && st == FO_OK; to++)
					if (used[pair_at(l, c, from, to)] > 0)
						st = open_pair(l, stages, c, from, to, nccl);
		fo_comm_close(stages);
	}
	free(used);
	return st;
}

/* ---- all of them ---- */

/* The communicator in the i-th of all places; NULL: none. */
static struct fo_comm *comm_at(const struct fo_links *l, int i)
{
	const int groups = GROUPS * LANES, k = i - groups;
	if (k < 0)
		return l->of[i / LANES][i % LANES];
	return l->pair[k / l->stages] ? l->pair[k / l->stages][k % l->stages] : NULL;
}
static int places(const struct fo_links *l) { return GROUPS * LANES + LANES * l->stages; }

fo_status fo_links_open(struct fo_links *l, struct fo_comm *world, const struct fo_program *p,
			const struct fo_program *other, struct fo_cuda *nccl)
{
	float used[GROUPS][LANES] = { 0 };
	*l = (struct fo_links){ .world = world, .streams = nccl != NULL };
	if (fo_comm_ranks(world) != p->ranks || fo_comm_rank(world) != p->rank)
		return fo_fail(FO_EBUG, "rank %d of %d runs the program of rank %d of %d", fo_comm_rank(world),
			       fo_comm_ranks(world), p->rank, p->ranks);
	note_used(p, !nccl, used);
	if (other)
		note_used(other, !nccl, used);
	/* Programs of ranks may differ, but all of them split the world alike. */
	FO_TRY(fo_comm_call(world, &(struct fo_comm_call){ .kind = FO_COMM_ALL_REDUCE,
							   .op = FO_COMM_MAX,
							   .from = used,
							   .to = used,
							   .n = FO_GROUP_COUNT * FO_LANE_COUNT,
							   .dtype = FO_F32 }));
	for (int g = FO_GROUP_NONE + 1; g < FO_GROUP_COUNT; g++)
		for (int lane = 0; lane < FO_LANE_COUNT; lane++) {
			int32_t colour;
			fo_mesh_group(&p->run.mesh, (enum fo_group)g, NULL, &colour);
			if (used[g][lane] > 0)
				FO_TRY(open_group(world, colour, nccl, &l->of[g][lane]));
		}
	return nccl ? open_pairs(l, p, other, nccl) : FO_OK;
}

struct fo_comm *fo_links_of(const struct fo_links *l, const struct fo_op *o, int *peer)
{
	*peer = o->attr.peer;
	if (!l->streams || !is_pair(o))
		return l->of[o->group][fo_lane_channel(o->lane)];
	struct fo_comm *c = l->pair[o->lane][o->attr.peer];
	*peer = 1 - fo_comm_rank(c);
	return c;
}

int64_t fo_links_received(const struct fo_links *l, enum fo_group g, enum fo_comm_kind k)
{
	int64_t sum = 0;
	for (int i = 0; i < places(l); i++)
		if (comm_at(l, i) && (i < GROUPS * LANES ? i / LANES : FO_GROUP_PP) == (int)g)
			sum += fo_comm_received_by(comm_at(l, i), k);
	return sum;
}

fo_status fo_links_check(const struct fo_links *l)
{
	FO_TRY(fo_comm_check(l->world));
	for (int i = 0; l->streams && i < places(l); i++)
		if (comm_at(l, i))
			FO_TRY(fo_comm_check(comm_at(l, i)));
	return FO_OK;
}

void fo_links_abort(struct fo_links *l)
{
	for (int i = 0; l->streams && i < places(l); i++)
		if (comm_at(l, i))
			fo_comm_abort(comm_at(l, i));
}

void fo_links_close(struct fo_links *l)
{
	/* A group that lacks a rank would wait for it. */
	if (l->streams) {
		struct fo_err own;
		fo_err_save(&own, FO_EBUG);
		if (fo_links_check(l) != FO_OK)
			fo_links_abort(l);
		(void)fo_err_raise(&own);
	}
	for (int i = 0; i < places(l); i++)
		fo_comm_close(comm_at(l, i));
	for (int lane = 0; lane < LANES; lane++)
		free(l->pair[lane]);
	*l = (struct fo_links){ 0 };
}

static void note_largest(const struct fo_program *p, int64_t most[GROUPS][LANES])
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			const enum fo_wire wire = fo_op_info(o->kind)->wire;
			if (wire != FO_WIRE_ALL_REDUCE && wire != FO_WIRE_REDUCE_SCATTER)
				continue;
			const int ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, NULL, NULL);
			int64_t *bytes = &most[o->group][fo_lane_channel(o->lane)];
			for (int k = 0; ranks > 1 && k < fo_op_tensors(o->kind, o->n); k++) {
				const struct fo_operand *a = &o->arg[k];
				const size_t size = fo_dtype_bytes(p->buf[a->buf].dtype);
				*bytes = fo_max(*bytes, fo_comm_mpi_touches((int64_t)a->nr * a->nc, size, ranks));
			}
		}
}

int64_t fo_links_bytes(const struct fo_program *p, const struct fo_program *other)
{
	int64_t most[GROUPS][LANES] = { 0 }, sum = 0;
	note_largest(p, most);
	if (other)
		note_largest(other, most);
	for (int g = 0; g < GROUPS; g++)
		for (int lane = 0; lane < LANES; lane++)
			sum += most[g][lane];
	return sum;
}
