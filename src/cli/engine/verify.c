/* flatout verify: does this machine compute what it should? */
#include "cli/engine/verify.h"
#include "cli/engine/screen.h"

#include "kernel/calibrate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct verify {
	bool brief, force;
	const char *json;
	int64_t threads;
	const char *device;
};

static const struct fo_opt rows[] = {
	FO_OPT_BOOL(struct verify, brief, "verify.short", "false",
		    "the chosen kernel set only, one run per case: what a training run can do at its start"),
	FO_OPT_INT(struct verify, threads, "verify.threads", "N", "0", 0, 1024, "threads",
		   "of the steps; 0: all this process may use"),
	FO_OPT_TEXT(
		struct verify, device, "verify.device", "HOW", "cpu",
		"what is checked: cpu, the processor's kernels; cuda or cuda:N, that device's; auto, as train.device"),
	FO_OPT_JSON(struct verify, json, "verify.json", "JSON on standard output"),
	FO_OPT_FORCE(struct verify, force, "verify.force"),
	FO_OPT_END
};

/* ---- groups of checks: a line each ---- */

struct group {
	size_t from, to; /* checks */
	size_t worst;    /* the one nearest its bound; `to` where none measured anything */
	int count[FO_VERIFY_RESULTS];
};

static double used(const struct fo_verify_check *c) { return c->error / c->bound; }

static struct group next_group(const struct fo_verify_report *r, size_t from)
{
	struct group g = { .from = from, .to = from };
	size_t worst = SIZE_MAX;
	while (g.to < r->n && !strcmp(r->check[g.to].group, r->check[from].group)) {
		const struct fo_verify_check *c = &r->check[g.to];
		g.count[c->result]++;
		if (c->bound > 0 && (worst == SIZE_MAX || !(used(c) <= used(&r->check[worst]))))
			worst = g.to;
		g.to++;
	}
	g.worst = worst == SIZE_MAX ? g.to : worst;
	return g;
}

static enum fo_verify_result group_result(const struct group *g)
{
	if (g->count[FO_VERIFY_FAIL])
		return FO_VERIFY_FAIL;
	return g->count[FO_VERIFY_PASS] ? FO_VERIFY_PASS : FO_VERIFY_NOT_CHECKED;
}

static void print_row(struct fo_table *t, struct fo_arena *a, const struct fo_verify_report *r, const struct group *g)
{
	const struct fo_verify_check *c = &r->check[g->from];
	enum fo_verify_result result = group_result(g);
	const char *worst = "";
	if (g->worst < g->to)
		worst = fo_arena_printf(a, "%.2g of %.2g", r->check[g->worst].error, r->check[g->worst].bound);
	else if (result == FO_VERIFY_PASS)
		worst = "equal";
	const char *checks = "", *said = fo_verify_result_name[result];
	if (result != FO_VERIFY_NOT_CHECKED)
		checks = fo_arena_printf(a, "%zu", g->to - g->from);
	if (result == FO_VERIFY_PASS && g->count[FO_VERIFY_NOT_CHECKED])
		said = fo_arena_printf(a, "%d not checked", g->count[FO_VERIFY_NOT_CHECKED]);
	fo_table_row(t, c->group, checks, c->against, worst, said);
}

static void print_text(const struct fo_verify_report *r)
{
	struct fo_table t;
	struct fo_arena a = { 0 };
	int told = 0;
	fo_table_init(&t, "lrlrl");
	fo_table_row(&t, "check", "n", "against", "worst error", "result");
	for (size_t i = 0; i < r->n;) {
		struct group g = next_group(r, i);
		if (*r->check[i].against) /* else a whole set that did not run: said below */
			print_row(&t, &a, r, &g);
		i = g.to;
	}
	fo_cli_table(&t, "", true);
	fo_table_fini(&t);
	for (size_t i = 0; i < r->n; i++) {
		const struct fo_verify_check *c = &r->check[i];
		if (c->result == FO_VERIFY_PASS)
			continue;
		const char *name = *c->against ? fo_arena_printf(&a, ", %s", c->name) : "";
		char *lead = fo_arena_printf(&a, "%s: %s%s: ", fo_verify_result_name[c->result], c->group, name);
		if (!told++)
			printf("\n");
		if (c->detail && c->bound > 0)
			fo_cli_put(stdout, lead, "  ", "%s", c->detail);
		else if (c->bound > 0)
			fo_cli_put(stdout, lead, "  ", "error %.3g, at most %.3g is allowed", c->error, c->bound);
		else
			fo_cli_put(stdout, lead, "  ", "%s", c->detail ? c->detail : "");
	}
	fo_arena_fini(&a);
	printf("\n%d passed, %d failed, %d not checked in %.1f s\n", r->count[FO_VERIFY_PASS], r->count[FO_VERIFY_FAIL],
	       r->count[FO_VERIFY_NOT_CHECKED], r->seconds);
}

static void print_json(const struct fo_verify_report *r, bool brief, int threads, const char *device)
{
	struct fo_json *j = fo_cli_json_begin();
	fo_json_bool(j, "short", brief);
	fo_json_int(j, "threads", threads);
	fo_json_text(j, "device", device);
	fo_json_int(j, "passed", r->count[FO_VERIFY_PASS]);
	fo_json_int(j, "failed", r->count[FO_VERIFY_FAIL]);
	fo_json_int(j, "not_checked", r->count[FO_VERIFY_NOT_CHECKED]);
	fo_json_real(j, "seconds", r->seconds);
	fo_json_array(j, "checks");
	for (size_t i = 0; i < r->n; i++) {
		const struct fo_verify_check *c = &r->check[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "group", c->group);
		fo_json_text(j, "name", c->name);
		fo_json_text(j, "against", *c->against ? c->against : NULL);
		fo_json_real(j, "error", c->error);
		fo_json_real(j, "bound", c->bound);
		fo_json_text(j, "result", fo_verify_result_name[c->result]);
		fo_json_text(j, "detail", c->detail);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_cli_json_end(j);
}

static fo_status failed(const struct fo_verify_report *r, const struct fo_cuda *cuda)
{
	if (!r->count[FO_VERIFY_FAIL])
		return FO_OK;
	fo_fail(FO_ENUMERIC, "%d of %zu checks failed on this %s", r->count[FO_VERIFY_FAIL], r->n,
		cuda ? "device" : "machine");
	if (cuda)
		return fo_hint(FO_ENUMERIC, "train.device=cpu leaves the device alone; please report the output of "
					    "'flatout verify --device=cuda --json'");
	return fo_hint(FO_ENUMERIC, "FLATOUT_ISA=ref avoids the faster kernels; please report the output of 'flatout "
				    "verify --json'");
}

/* ---- a terminal sees what is being done ---- */

static void show_group(void *ctx, const char *group)
{
	(void)ctx;
	fo_cli_live(stderr, group);
}

fo_status fo_cli_verify_at_start(bool brief, int threads, const char *device, FILE *f)
{
	struct fo_verify_options o = { .brief = brief, .threads = threads ? threads : fo_cpu_threads() };
	struct fo_verify_report r;
	FO_TRY(fo_cli_device_open(device, &o.cuda));
	fo_status st = fo_verify(&o, &r);
	if (st == FO_OK) {
		fprintf(f, "verify   %d checks passed, %d failed, %d not checked in %.1f s\n", r.count[FO_VERIFY_PASS],
			r.count[FO_VERIFY_FAIL], r.count[FO_VERIFY_NOT_CHECKED], r.seconds);
		fflush(f);
		if (failed(&r, o.cuda) != FO_OK)
			st = fo_hint(fo_fail(FO_ENUMERIC, "%d of %zu checks failed on this %s: nothing was trained",
					     r.count[FO_VERIFY_FAIL], r.n, o.cuda ? "device" : "machine"),
				     "'flatout verify' shows which; run.verify=off trains all the same");
	}
	fo_verify_fini(&r);
	fo_cuda_close(o.cuda);
	return st;
}

static fo_status verify(const struct verify *in)
{
	struct fo_verify_options o = { .brief = in->brief,
				       .threads = in->threads ? (int)in->threads : fo_cpu_threads() };
	struct fo_verify_report r;
	bool live = isatty(STDERR_FILENO) && (!getenv("TERM") || strcmp(getenv("TERM"), "dumb"));
	FO_TRY(fo_cli_device_open(in->device, &o.cuda));
	if (live)
		o.progress = show_group;
	fo_status st = fo_verify(&o, &r);
	if (live)
		fprintf(stderr, "\r\033[K");
	if (st == FO_OK) {
		if (in->json)
			print_json(&r, in->brief, o.threads, o.cuda ? fo_cuda_info(o.cuda)->name : NULL);
		else
			print_text(&r);
		st = failed(&r, o.cuda);
	}
	fo_verify_fini(&r);
	fo_cuda_close(o.cuda);
	return st;
}

static fo_status run(const struct fo_cli_call *call) { return verify(call->in); }

const struct fo_command fo_cmd_verify = {
	.name = "verify",
	.group = "measure",
	.usage = "flatout verify [--short] [--threads N] [--device HOW] [--json]",
	.summary = "self-check: kernels, a training step, checkpoints",
	.text = "Every operation with every kernel set that this machine has against double\n"
		"precision; losses, gradients and gradient norms of a training step against stored\n"
		"values; the same steps twice; a checkpoint to disk and back; a program dumped and\n"
		"read back. The worst error stands beside what is allowed: twice that of a naive\n"
		"implementation in the same precision. What did not run says \"not checked\".\n"
		"\n"
		"  flatout verify\n"
		"  flatout verify --short\n"
		"  flatout verify --device=cuda\n"
		"  flatout train run.yaml --run.verify=short",
	.opts = rows,
	.act = run,
	.size = sizeof(struct verify),
	.spin = FO_SPIN_NONE,
};
