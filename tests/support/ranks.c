#include "support/ranks.h"
#include "base/thread.h"
#include "pass/pass.h"
#include "support/must.h"

#include <string.h>

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

static void *run_rank(void *arg)
{
	struct ranks_rank *r = arg;
	struct ranks_job *j = r->job;
	struct fo_exec_options o = j->options;
	struct fo_lowering low = j->low;
	struct fo_program p;
	low.mesh.rank = r->rank;
	must(fo_pass_build(&p, &j->model, &low));
	if (j->build)
		j->build(&p);
	ranks_slice(&r->batch, j->batch, r->rank, j->ranks);
	must(fo_links_open(&r->links, r->world, &p));
	o.links = &r->links;
	r->wire = fo_program_wire(&p);
	step_rig_new(&r->rig, &p, &r->batch, &o);
	r->rig.hyper[FO_HYPER_CLIP] = j->clip;
	r->rig.hyper[FO_HYPER_EPS] = j->eps;
	if (j->before)
		j->before(r);
	for (int s = 0; s < j->steps && r->error.st == FO_OK; s++) {
		step_rig_at(&r->rig, s + 1);
		fo_status st = fo_exec_step(r->rig.exec, s);
		if (st != FO_OK) {
			fo_err_save(&r->error, st);
			break;
		}
		if (s < OUTCOME_STEPS)
			outcome_step(&r->out, &r->rig, s);
		if (j->after)
			j->after(r, s);
	}
	if (r->error.st == FO_OK)
		outcome_end(&r->out, &r->rig);
	r->hash = step_rig_hash(&r->rig);
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (r->links.of[g][l])
				r->received += fo_comm_local_received(r->links.of[g][l]);
	return NULL;
}

void ranks_run(struct ranks_job *j)
{
	struct fo_comm *world[RANKS_MOST];
	pthread_t thread[RANKS_MOST];
	j->ranks = fo_mesh_ranks(&j->low.mesh);
	j->steps = j->steps ? j->steps : OUTCOME_STEPS;
	assert_true(j->ranks <= RANKS_MOST && j->batch->rows % j->ranks == 0);
	must(fo_comm_local_open(j->ranks, &j->transport, world));
	for (int i = 0; i < j->ranks; i++) {
		j->rank[i] = (struct ranks_rank){ .job = j, .rank = i, .world = world[i] };
		must(fo_thread_start(&thread[i], run_rank, &j->rank[i], "a rank"));
	}
	for (int i = 0; i < j->ranks; i++)
		pthread_join(thread[i], NULL);
}

void ranks_free(struct ranks_job *j)
{
	for (int i = 0; i < j->ranks; i++) {
		struct ranks_rank *r = &j->rank[i];
		step_rig_free(&r->rig);
		step_batch_free(&r->batch);
		outcome_free(&r->out);
		fo_links_close(&r->links);
		fo_comm_close(r->world);
	}
}
