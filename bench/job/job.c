/* Reads jobs as bench/job/line.h has them, a line each, and prints what the arithmetic of memory and of time says of
 * each, a line of JSON; for score.py. */
#include "base/json.h"
#include "line.h"

#include <time.h>

static void range(struct fo_json *j, const char *key, struct fo_range r)
{
	fo_json_array(j, key);
	fo_json_real(j, NULL, r.low);
	fo_json_real(j, NULL, r.high);
	fo_json_close(j);
}

static void print(struct line *l)
{
	struct fo_str out = { 0 };
	struct fo_json j;
	struct fo_job_memory m;
	struct fo_job_step s;
	fo_job_memory_of(&l->job, &l->cluster, &m);
	struct timespec t0, t1;
	clock_gettime(CLOCK_MONOTONIC, &t0);
	fo_job_step_of(&l->job, &l->cluster, &s);
	clock_gettime(CLOCK_MONOTONIC, &t1);
	fo_json_begin(&j, &out, false);
	fo_json_object(&j, NULL);
	fo_json_put(&j, FO_TEXT("id", l->id), FO_TEXT("memory_unknown", m.unknown), FO_TEXT("step_unknown", s.unknown),
		    FO_REAL("stage", m.stage), FO_INT("fit", m.fit),
		    FO_REAL("us", 1e6 * (double)(t1.tv_sec - t0.tv_sec) + 1e-3 * (double)(t1.tv_nsec - t0.tv_nsec)));
	for (int i = 0; i < FO_PREDICT_MEMORIES; i++)
		range(&j, fo_predict_memory_name[i], m.part[i]);
	range(&j, "memory", m.total);
	range(&j, "usable", m.usable);
	for (int i = 0; i < FO_PREDICT_PARTS; i++)
		range(&j, i == FO_PREDICT_OPTIMIZER ? "t.optimizer" : fo_predict_part_name[i], s.part[i]);
	range(&j, "seconds", s.total);
	range(&j, "tokens_s", s.tokens_s);
	range(&j, "mfu", s.mfu);
	if (l->changes) {
		struct fo_job_gain g;
		fo_job_what_if(&l->job, &l->cluster, l->change, l->changes, &g);
		range(&j, "gain", g.times);
		fo_json_text(&j, "gain_unknown", g.unknown);
	}
	fo_json_close(&j);
	puts(out.data);
	fo_str_fini(&out);
}

int main(void)
{
	struct fo_catalogue catalogue;
	static char text[1 << 16];
	int bad = 0;
	if (fo_catalogue_load(&catalogue, NULL) != FO_OK)
		return fprintf(stderr, "%s\n", fo_err_text()), 1;
	while (fgets(text, sizeof text, stdin)) {
		struct line l;
		bad |= line_read(&l, text, &catalogue);
		print(&l);
		line_fini(&l);
	}
	fo_catalogue_fini(&catalogue);
	return bad;
}
