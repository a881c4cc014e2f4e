#include "support/job.h"
#include "support/must.h"

#include <string.h>

void job_rig_init(struct job_rig *g, const char *form, const char *cluster)
{
	memset(g, 0, sizeof *g);
	must(fo_catalogue_load(&g->catalogue, NULL));
	must(fo_cluster_parse(cluster, &g->catalogue, &g->cluster, &g->arena));
	fo_job_init(&g->job);
	g->form.id = g->form.name = form;
	g->job.form = &g->form;
	must(fo_model_load("llama-3.1-8b", &g->job.model));
	g->job.has_model = true;
	const struct {
		enum fo_job_setting s;
		double number;
	} start[] = { { FO_JOB_SEQ, 8192 },
		      { FO_JOB_MICRO_BATCH, 1 },
		      { FO_JOB_ACCUMULATION, 1 },
		      { FO_JOB_ZERO, 3 },
		      { FO_JOB_RECOMPUTE, FO_JOB_RECOMPUTE_NONE },
		      { FO_JOB_COMPILE, 1 },
		      { FO_JOB_COMPILE_LOSS, 1 },
		      { FO_JOB_ATTENTION, FO_JOB_ATTENTION_FLASH },
		      { FO_JOB_OPTIMIZER_FUSED, 1 } };
	for (size_t i = 0; i < sizeof start / sizeof *start; i++)
		job_set(g, start[i].s, start[i].number);
}

void job_rig_fini(struct job_rig *g)
{
	fo_job_fini(&g->job);
	fo_arena_fini(&g->arena);
	fo_catalogue_fini(&g->catalogue);
}
