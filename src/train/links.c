#include "train/links.h"

#include "base/count.h"
#include "comm/mpi.h"
#include "comm/nccl.h"

enum { GROUPS = FO_GROUP_COUNT, LANES = FO_LANE_COUNT };

static void note_used(const struct fo_program *p, float used[GROUPS][LANES])
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			used[p->block[b].op[i].group][fo_lane_channel(p->block[b].op[i].lane)] = 1;
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

fo_status fo_links_open(struct fo_links *l, struct fo_comm *world, const struct fo_program *p,
			const struct fo_program *other, struct fo_cuda *nccl)
{
	float used[GROUPS][LANES] = { 0 };
	*l = (struct fo_links){ .world = world, .streams = nccl != NULL };
	if (fo_comm_ranks(world) != p->ranks || fo_comm_rank(world) != p->rank)
		return fo_fail(FO_EBUG, "rank %d of %d runs the program of rank %d of %d", fo_comm_rank(world),
			       fo_comm_ranks(world), p->rank, p->ranks);
	note_used(p, used);
	if (other)
		note_used(other, used);
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
	return FO_OK;
}

struct fo_comm *fo_links_of(const struct fo_links *l, int group, int lane)
{
	return l->of[group][fo_lane_channel(lane)];
}

fo_status fo_links_check(const struct fo_links *l)
{
	FO_TRY(fo_comm_check(l->world));
	for (int g = 0; g < GROUPS && l->streams; g++)
		for (int lane = 0; lane < LANES; lane++)
			if (l->of[g][lane])
				FO_TRY(fo_comm_check(l->of[g][lane]));
	return FO_OK;
}

void fo_links_abort(struct fo_links *l)
{
	for (int g = 0; g < GROUPS && l->streams; g++)
		for (int lane = 0; lane < LANES; lane++)
			if (l->of[g][lane])
				fo_comm_abort(l->of[g][lane]);
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
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		for (int lane = 0; lane < FO_LANE_COUNT; lane++)
			fo_comm_close(l->of[g][lane]);
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
