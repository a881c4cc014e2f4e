/* Reads --fix, for flatout plan on a cluster and on a measured machine. */
#include "cli/plan.h"
#include "cli/plan_fix.h"

#include <math.h>
#include <string.h>
#include <strings.h>

static const struct fixable {
	const char *name;
	size_t offset;
} fixable[] = {
	{ "tp", offsetof(struct fo_plan_fixed, tp) },
	{ "cp", offsetof(struct fo_plan_fixed, cp) },
	{ "pp", offsetof(struct fo_plan_fixed, pp) },
	{ "ep", offsetof(struct fo_plan_fixed, ep) },
	{ "chunks", offsetof(struct fo_plan_fixed, chunks) },
	{ "shard", offsetof(struct fo_plan_fixed, shard) },
	{ "micro_batch", offsetof(struct fo_plan_fixed, micro_batch) },
};
enum { FIXABLE = sizeof fixable / sizeof *fixable };
/* As many as a cluster has devices at most (src/job/cluster.c). */
#define FIX_MOST 1e6

static fo_status fix_twice(const char *name, double was, double n)
{
	return fo_cli_contradict("%s is fixed at %.15g and at %.15g", name, was, n);
}

static fo_status fix_one(struct fo_plan_fixed *f, const char *text)
{
	char name[32] = "";
	double n;
	int used = 0;
	if (sscanf(text, "%31[a-z_-]=%lf%n", name, &n, &used) != 2 || text[used])
		return fo_hint(fo_fail(FO_EARG, "--fix %s: expected NAME=N", fo_cli_seen(text)), "--fix tp=8,pp=4");
	for (char *p = name; *p; p++)
		*p = *p == '-' ? '_' : *p;
	if (!strcmp(name, "zero") && n >= 0 && n <= 3 && n == floor(n)) {
		if (f->zero >= 0 && f->zero != (int)n)
			return fix_twice(name, f->zero, n);
		f->zero = (int)n;
		return FO_OK;
	}
	for (int i = 0; i < FIXABLE; i++)
		if (!strcmp(name, fixable[i].name)) {
			if (!(n >= 1 && n <= FIX_MOST && n == floor(n)))
				return fo_fail(FO_EARG, "--fix %s: a whole number from 1 to %.0f was expected",
					       fo_cli_seen(text), FIX_MOST);
			double *at = (double *)((char *)f + fixable[i].offset);
			if (*at > 0 && *at != n)
				return fix_twice(name, *at, n);
			*at = n;
			return FO_OK;
		}
	return fo_hint(fo_fail(FO_EARG, "--fix %s: nothing of this name is searched", fo_cli_seen(text)),
		       "tp, cp, pp, ep, chunks, shard, micro-batch, zero");
}

fo_status fo_cli_plan_fix(const char *fix, struct fo_arena *arena, struct fo_plan_fixed *f)
{
	const char **one;
	int n = fix ? fo_job_split_settings(fix, arena, &one) : 0;
	for (int i = 0; i < n; i++)
		FO_TRY(fix_one(f, one[i]));
	return FO_OK;
}

/* Settings of src/job that are searched, and what fixes them. */
static const char *const searched[][2] = {
	{ "tp", "--tp" },
	{ "cp", "--cp" },
	{ "pp", "--pp" },
	{ "ep", "--ep" },
	{ "pp_virtual", "--chunks" },
	{ "pp_schedule", "--schedule" },
	{ "dp_shard", "--shard" },
	{ "dp_replicate", "--shard" },
	{ "zero", "--zero" },
	{ "micro_batch", "--micro-batch" },
	{ "local_batch", "--micro-batch" },
	{ "accumulation", "--global-batch and --micro-batch" },
	{ "recompute", "--recompute" },
	{ "recompute_layers", "--recompute" },
	{ "sequence_parallel", NULL },
	{ "tp_overlap", NULL },
	{ "pp_near", NULL },
	{ "pp_first_layers", NULL },
	{ "pp_last_layers", NULL },
	{ "reshard", NULL },
};

fo_status fo_cli_plan_settable(const char *set, struct fo_arena *arena)
{
	const char **one;
	int n = set ? fo_job_split_settings(set, arena, &one) : 0;
	for (int i = 0; i < n; i++)
		for (size_t k = 0; k < sizeof searched / sizeof *searched; k++) {
			size_t length = strlen(searched[k][0]);
			if (strncasecmp(one[i], searched[k][0], length) || one[i][length] != '=')
				continue;
			fo_status st = fo_fail(FO_EARG, "--set %s: that is searched%s", fo_cli_seen(one[i]),
					       searched[k][1] ? "" : ", and nothing fixes it");
			return searched[k][1] ? fo_hint(st, "%s fixes it", searched[k][1]) : st;
		}
	return FO_OK;
}
