#include "support/ranks.h"
#include "base/clock.h"
#include "base/thread.h"
#include "pass/pass.h"
#include "program/ring.h"
#include "support/interleave.h"
#include "support/must.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

/* A stretch of the tokens that a cp group shares, and the documents of all of them. */
static void keep_own_stretch(struct step_batch *b, int cp, int place)
{
	struct step_batch own;
	const int64_t all = b->seq * b->rows, n = all / cp;
	step_batch_alloc(&own, n, 1, b->micro_batches);
	free(own.doc_start);
	own.doc_start = b->doc_start;
	b->doc_start = NULL;
	for (int64_t m = 0; m < b->micro_batches; m++)
		for (int64_t i = 0; i < n; i++) {
			own.token[m * n + i] = b->token[m * all + place * n + i];
			own.target[m * n + i] = b->target[m * all + place * n + i];
			own.position[m * n + i] = b->position[m * all + place * n + i];
		}
	own.loss_tokens = b->loss_tokens;
	step_batch_free(b);
	*b = own;
}

/* Own tokens of the rows that a cp group shares; documents begin where they do in whole rows. */
static void keep_own_tokens(struct step_batch *b, int cp, int place)
{
	struct step_batch own;
	const int64_t chunk = b->seq / cp / 2;
	step_batch_alloc(&own, b->seq / cp, b->rows, b->micro_batches);
	for (int64_t m = 0; m < b->micro_batches; m++)
		for (int64_t i = 0; i < own.rows * own.seq; i++) {
			const int64_t to = m * own.rows * own.seq + i,
				      from = (m * b->rows + i / own.seq) * b->seq + fo_ring_place(cp, place, chunk, i);
			own.token[to] = b->token[from];
			own.target[to] = b->target[from];
			own.position[to] = b->position[from];
			own.doc_start[to] = b->doc_start[from];
		}
	own.loss_tokens = b->loss_tokens;
	step_batch_free(b);
	*b = own;
}

void ranks_slice(struct step_batch *out, const struct step_batch *job, int rank, int ranks)
{
	int64_t rows = job->rows / ranks, tokens = rows * job->seq;
	step_batch_alloc(out, job->seq, rows, job->micro_batches);
	for (int64_t m = 0; m < job->micro_batches; m++)
		for (int64_t i = 0; i < tokens; i++) {
			int64_t to = m * tokens + i, from = (m * ranks + rank) * tokens + i;
			out->token[to] = job->token[from];
			out->target[to] = job->target[from];
			out->position[to] = job->position[from];
			out->doc_start[to] = job->doc_start[from] - (int32_t)(rank * tokens);
		}
	out->loss_tokens = job->loss_tokens; /* what every rank's loss is divided by */
}

static void build(struct ranks_rank *r, struct fo_program *p)
{
	struct ranks_job *j = r->job;
	struct fo_lowering low = j->low;
	low.mesh.rank = r->rank;
	must(fo_pass_build(p, &j->model, &low));
	if (j->build)
		j->build(p);
	if (j->batch) {
		int32_t place, cp = fo_mesh_group(&low.mesh, FO_GROUP_CP, &place, NULL);
		ranks_slice(&r->batch, j->batch, fo_mesh_set(&low.mesh), fo_mesh_data(&low.mesh));
		if (cp > 1 && low.pass.cp == FO_CP_HEADS)
			keep_own_stretch(&r->batch, cp, place);
		else if (cp > 1)
			keep_own_tokens(&r->batch, cp, place);
	}
	r->wire = fo_program_wire(p);
	for (int s = 0; s < p->nslot; s++)
		for (int i = 0; i < p->block[p->slot[s].block].n; i++) {
			const struct fo_op *o = &p->block[p->slot[s].block].op[i];
			if (fo_op_info(o->kind)->wire == FO_WIRE_NONE)
				continue;
			int64_t bytes = (int64_t)fo_op_cost(p, o, -1).wire;
			r->wire_by[o->group][fo_op_info(o->kind)->wire - 1] += bytes;
			if (o->phase == FO_DERIVE)
				r->derived_by[o->group][fo_op_info(o->kind)->wire - 1] += bytes;
		}
}

/* What came over the links so far; sign -1: the job begins with that. */
static void count_received(struct ranks_rank *r, int sign)
{
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		for (int k = 0; k < FO_COMM_KINDS; k++)
			r->received_by[g][k] += sign *
						fo_links_received(&r->links, (enum fo_group)g, (enum fo_comm_kind)k);
	r->received = 0;
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		for (int k = 0; k < FO_COMM_KINDS; k++)
			r->received += r->received_by[g][k];
}

static fo_status count_port(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	(void)port, (void)mb, (void)arg, (void)n;
	((struct ranks_rank *)ctx)->calls++; /* one lane serves all ports */
	return FO_OK;
}

static void make_rig(struct ranks_rank *r, struct fo_program *p)
{
	struct fo_exec_options o = r->job->options;
	o.links = &r->links;
	o.cuda = r->cuda;
	if (o.null_kernels) {
		r->rig = (struct step_rig){ .program = *p };
		must(fo_store_new(&r->rig.store, &r->rig.program));
		must(fo_exec_new(&r->rig.exec, &r->rig.program, r->rig.store, &o, count_port, r, NULL));
		return;
	}
	step_rig_new(&r->rig, p, &r->batch, &o);
	r->rig.hyper[FO_HYPER_CLIP] = r->job->clip;
	r->rig.hyper[FO_HYPER_EPS] = r->job->eps;
	if (r->job->before)
		r->job->before(r);
}

static void before_step(struct ranks_rank *r, int s)
{
	if (r->job->batch)
		step_rig_at(&r->rig, s + 1);
	r->step_s = -1e-9 * (double)fo_now_ns();
}

static void after_step(struct ranks_rank *r, int s)
{
	r->step_s += 1e-9 * (double)fo_now_ns();
	must(fo_exec_fetch(r->rig.exec));
	if (r->job->batch && s < OUTCOME_STEPS)
		outcome_step(&r->out, &r->rig, s);
	if (r->job->after)
		r->job->after(r, s);
}

static void end_rank(struct ranks_rank *r)
{
	if (r->error.st == FO_OK && r->job->batch)
		outcome_end(&r->out, &r->rig);
	if (r->job->batch)
		r->hash = step_rig_hash(&r->rig);
	count_received(r, 1);
}

static void *run_rank(void *arg)
{
	struct ranks_rank *r = arg;
	struct fo_program p;
	omp_set_num_threads(r->job->options.threads); /* else each rank has a team for its weights' first values */
	build(r, &p);
	if (r->job->where)
		must(fo_cuda_open(&r->cuda, r->job->where == RANKS_OWN_DEVICES ? r->rank : 0));
	must(fo_links_open(&r->links, r->world, &p, NULL, r->job->where == RANKS_OWN_DEVICES ? r->cuda : NULL));
	make_rig(r, &p);
	for (int s = 0; s < r->job->steps && r->error.st == FO_OK; s++) {
		before_step(r, s);
		fo_status st = fo_exec_step(r->rig.exec, s);
		if (st != FO_OK) {
			fo_err_save(&r->error, st);
			break;
		}
		after_step(r, s);
	}
	fo_comm_idle(r->world, true); /* it calls nothing more */
	end_rank(r);
	return NULL;
}

static void run_threads(struct ranks_job *j)
{
	struct fo_comm *world[RANKS_MOST];
	pthread_t thread[RANKS_MOST];
	must(fo_comm_local_open(j->ranks, &j->transport, world));
	for (int i = 0; i < j->ranks; i++) {
		j->rank[i] = (struct ranks_rank){ .job = j, .rank = i, .world = world[i] };
		must(fo_thread_start(&thread[i], run_rank, &j->rank[i], "a rank"));
	}
	for (int i = 0; i < j->ranks; i++)
		pthread_join(thread[i], NULL);
}

/* ---- one thread for all ranks ---- */

/* Links of a mesh, for every group and lane. Opening them takes calls that wait, and so threads. */
struct kept {
	struct fo_mesh mesh;
	bool null;
	struct kept_rank {
		struct kept *kept;
		int rank;
		struct fo_links links;
	} rank[RANKS_MOST];
};
enum { KEPT_MOST = 256 };
static struct kept kept[KEPT_MOST];
static int nkept;

static void *open_links(void *arg)
{
	struct kept_rank *r = arg;
	struct fo_mesh mesh = r->kept->mesh;
	mesh.rank = r->rank;
	for (int g = FO_GROUP_NONE + 1; g < FO_GROUP_COUNT; g++)
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int32_t colour;
			fo_mesh_group(&mesh, (enum fo_group)g, NULL, &colour);
			must(fo_comm_split(r->links.world, colour, &r->links.of[g][l]));
		}
	return NULL;
}

static struct kept *links_of(const struct fo_mesh *m, bool null)
{
	for (int i = 0; i < nkept; i++)
		if (kept[i].mesh.replicate == m->replicate && kept[i].mesh.shard == m->shard &&
		    fo_mesh_cp(&kept[i].mesh) == fo_mesh_cp(m) && fo_mesh_tp(&kept[i].mesh) == fo_mesh_tp(m) &&
		    fo_mesh_pp(&kept[i].mesh) == fo_mesh_pp(m) && fo_mesh_kv(&kept[i].mesh) == fo_mesh_kv(m) &&
		    kept[i].null == null)
			return &kept[i];
	struct kept *k = &kept[nkept++];
	struct fo_comm *world[RANKS_MOST];
	pthread_t thread[RANKS_MOST];
	int ranks = fo_mesh_ranks(m);
	assert_true(nkept < KEPT_MOST);
	*k = (struct kept){ .mesh = *m, .null = null };
	must(fo_comm_local_open(ranks, &(struct fo_comm_local){ .null = null }, world));
	for (int i = 0; i < ranks; i++) {
		k->rank[i] = (struct kept_rank){ .kept = k, .rank = i, .links.world = world[i] };
		must(fo_thread_start(&thread[i], open_links, &k->rank[i], "links of a rank"));
	}
	for (int i = 0; i < ranks; i++)
		pthread_join(thread[i], NULL);
	return k;
}

void ranks_close_links(void)
{
	for (int i = 0; i < nkept; i++)
		for (int r = 0; r < fo_mesh_ranks(&kept[i].mesh); r++) {
			struct fo_comm *world = kept[i].rank[r].links.world;
			fo_links_close(&kept[i].rank[r].links);
			fo_comm_close(world);
		}
	nkept = 0;
}

static void run_interleaved(struct ranks_job *j)
{
	struct fo_mesh mesh = j->low.mesh;
	mesh.kv = j->low.pass.tp ? fo_mesh_kv_of(&j->model, fo_mesh_tp(&mesh)) : 1;
	struct kept *k = links_of(&mesh, j->transport.null);
	struct fo_exec *exec[RANKS_MOST];
	fo_status st = FO_OK;
	for (int i = 0; i < j->ranks; i++) {
		struct ranks_rank *r = &j->rank[i];
		struct fo_program p;
		*r = (struct ranks_rank){ .job = j, .rank = i, .links = k->rank[i].links };
		count_received(r, -1);
		build(r, &p);
		make_rig(r, &p);
		exec[i] = r->rig.exec;
	}
	struct interleave *v = interleave_new(exec, j->ranks);
	for (int s = 0; s < j->steps && st == FO_OK; s++) {
		for (int i = 0; i < j->ranks; i++)
			before_step(&j->rank[i], s);
		st = interleave_step(v, j->order + (uint64_t)s);
		for (int i = 0; i < j->ranks; i++)
			if (st == FO_OK)
				after_step(&j->rank[i], s);
			else
				fo_err_save(&j->rank[i].error, st);
	}
	interleave_free(v);
	for (int i = 0; i < j->ranks; i++)
		end_rank(&j->rank[i]);
}

static void complete(struct ranks_job *j)
{
	j->ranks = fo_mesh_ranks(&j->low.mesh);
	j->steps = j->steps ? j->steps : OUTCOME_STEPS;
	assert_true(j->ranks <= RANKS_MOST && (!j->batch || j->batch->rows % fo_mesh_data(&j->low.mesh) == 0));
	assert_true(!j->options.null_kernels || (!j->batch && j->transport.null));
}

void ranks_run(struct ranks_job *j)
{
	complete(j);
	if (j->order)
		run_interleaved(j);
	else
		run_threads(j);
}

void ranks_run_one(struct ranks_job *j, struct fo_comm *world)
{
	const int rank = fo_comm_rank(world);
	complete(j);
	assert_true(fo_comm_ranks(world) == j->ranks && !j->order);
	j->one = true;
	j->rank[rank] = (struct ranks_rank){ .job = j, .rank = rank, .world = world };
	run_rank(&j->rank[rank]);
}

void ranks_check_wire_of(const struct ranks_rank *r, const char *label)
{
	const int steps = r->job->steps;
	int64_t derived = 0;
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		for (int k = 0; k < FO_COMM_KINDS; k++) {
			int64_t again = (1 + r->changes) * r->derived_by[g][k], says = steps * r->wire_by[g][k] + again;
			derived += again;
			if (r->received_by[g][k] != says)
				fail_msg("%s: rank %d received %lld bytes by %s of group %s, the program says %lld",
					 label, r->rank, (long long)r->received_by[g][k],
					 fo_comm_kind_name((enum fo_comm_kind)k), fo_group_name[g], (long long)says);
		}
	if ((double)r->received != steps * r->wire + (double)derived)
		fail_msg("%s: rank %d received %lld bytes, the program says %.17g", label, r->rank,
			 (long long)r->received, steps * r->wire + (double)derived);
}

void ranks_check_wire(const struct ranks_job *j, const char *label)
{
	for (int i = 0; i < j->ranks; i++)
		ranks_check_wire_of(&j->rank[i], label);
}

void ranks_free(struct ranks_job *j)
{
	for (int i = 0; i < j->ranks; i++) {
		struct ranks_rank *r = &j->rank[i];
		if (j->one && !r->world)
			continue;
		if (r->cuda)
			must(fo_cuda_attach(r->cuda));
		step_rig_free(&r->rig);
		step_batch_free(&r->batch);
		outcome_free(&r->out);
		if (j->order)
			continue;
		fo_links_close(&r->links);
		if (!j->one)
			fo_comm_close(r->world);
		fo_cuda_close(r->cuda);
	}
}
