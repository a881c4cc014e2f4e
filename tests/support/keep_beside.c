#include "support/keep_beside.h"
#include "support/must.h"

#include <stdio.h>
#include <sys/stat.h>

static struct fo_keep_task task_of(enum fo_keep_kind kind, const char *dir)
{
	struct fo_keep_task t = { .kind = (int)kind, .beside = true, .wait = true, .add = true, .step = 1 };
	snprintf(t.path, sizeof t.path, "%s", dir);
	return t;
}

static void all(struct fo_team *t, struct fo_keep *own, enum fo_keep_kind kind, const char *dir)
{
	const struct fo_keep_task what = task_of(kind, dir);
	bool done;
	must(fo_team_keep(t, own, &what, &done));
	assert_true(done);
}

void keep_beside_begin(struct fo_team *t, struct fo_keep *own, const char *dir)
{
	const struct fo_ckpt_meta meta = { .step = 1, .precision = "fp32", .master = "none", .moments = "fp32" };
	const struct fo_ckpt_content content = { .model = &own->program->model, .weight_dtype = "float32" };
	mkdir(dir, 0777);
	own->sums = fo_team_tasks(t);
	all(t, own, FO_KEEP_OPEN, dir);
	all(t, own, FO_KEEP_COPY, dir);
	fo_keep_prepare(own, dir, &content, &meta, 0, true);
	must(fo_keep_now(own, FO_JOB_BEGIN));
	all(t, own, FO_KEEP_WRITE, dir);
}

void keep_beside_end(struct fo_team *t, struct fo_keep *own, const char *dir)
{
	struct fo_ckpt_meta meta;
	char path[512];
	all(t, own, FO_KEEP_POLL, dir);
	all(t, own, FO_KEEP_END, dir);
	must(fo_keep_now(own, FO_JOB_END));
	snprintf(path, sizeof path, "%s/step-%08d", dir, 1);
	must(fo_ckpt_open(path, &meta)); /* with its checksums */
	assert_int_equal(meta.step, 1);
}
