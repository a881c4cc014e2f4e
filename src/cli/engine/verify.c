/* flatout verify: does this machine compute what it should? */
#include "check/engine/verify.h"
#include "cli/engine/screen.h"

#include "kernel/calibrate.h"

#include <math.h>
#include <string.h>

struct verify {
	bool brief, force;
	const char *json;
	int64_t threads, ranks;
	const char *device;
};

static const struct fo_opt rows[] = {
	FO_OPT_BOOL(struct verify, brief, "verify.short", "false",
		    "the chosen kernel set only, one run per case: what a training run can do at its start"),
	FO_OPT_INT(struct verify, threads, "verify.threads", "N", "0", 0, 1024, "threads",
		   "of the steps; 0: all this process may use"),
	FO_OPT_INT(struct verify, ranks, "verify.ranks", "N", "1", 1, 64, "ranks",
		   "above 1: as many ranks train a small model, and one rank does; the largest difference is shown"),
	FO_OPT_TEXT(
		struct verify, device, "verify.device", "HOW", "cpu",
		"what is checked: cpu, the processor's kernels; cuda or cuda:N, that device's; auto, as train.device"),
	FO_CLI_OUTPUT_ROWS(struct verify, "verify", "JSON on standard output")
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

static void say_group(struct fo_doc *d, const struct fo_verify_report *r, const struct group *g)
{
	const struct fo_verify_check *c = &r->check[g->from];
	enum fo_verify_result result = group_result(g);
	const char *worst = "", *checks = "", *said = fo_verify_result_name[result];
	if (g->worst < g->to)
		worst = fo_doc_printf(d, "%.2g of %.2g", r->check[g->worst].error, r->check[g->worst].bound);
	else if (result == FO_VERIFY_PASS)
		worst = "equal";
	if (result != FO_VERIFY_NOT_CHECKED)
		checks = fo_doc_count(d, (int64_t)(g->to - g->from));
	if (result == FO_VERIFY_PASS && g->count[FO_VERIFY_NOT_CHECKED])
		said = fo_doc_printf(d, "%d not checked", g->count[FO_VERIFY_NOT_CHECKED]);
	fo_doc_row(d, c->group, checks, c->against, worst, said);
}

static void say(const struct fo_verify_report *r, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrlrl", "check", "n", "against", "worst error", "result");
	for (size_t i = 0; i < r->n;) {
		struct group g = next_group(r, i);
		if (*r->check[i].against) /* else a whole set that did not run: said below */
			say_group(d, r, &g);
		i = g.to;
	}
	for (size_t i = 0; i < r->n; i++) {
		const struct fo_verify_check *c = &r->check[i];
		const char *name = *c->against ? fo_doc_printf(d, ", %s", c->name) : "", *detail = c->detail;
		if (c->result == FO_VERIFY_PASS)
			continue;
		if (!detail && c->bound > 0)
			detail = fo_doc_printf(d, "error %.3g, at most %.3g is allowed", c->error, c->bound);
		fo_doc_item(d, "%s: %s%s: %s", fo_verify_result_name[c->result], c->group, name, detail ? detail : "");
	}
	fo_doc_verdict(d, FO_DOC_PLAIN, NULL, "%d passed, %d failed, %d not checked in %.1f s",
		       r->count[FO_VERIFY_PASS], r->count[FO_VERIFY_FAIL], r->count[FO_VERIFY_NOT_CHECKED], r->seconds);
}

static void write_json(const struct fo_verify_report *r, bool brief, int threads, int ranks, const char *device,
		       struct fo_json *j)
{
	fo_json_put(j, FO_BOOL("short", brief), FO_INT("threads", threads), FO_INT("ranks", ranks),
		    FO_TEXT("device", device), FO_INT("passed", r->count[FO_VERIFY_PASS]),
		    FO_INT("failed", r->count[FO_VERIFY_FAIL]), FO_INT("not_checked", r->count[FO_VERIFY_NOT_CHECKED]),
		    FO_REAL("seconds", r->seconds));
	fo_json_array(j, "checks");
	for (size_t i = 0; i < r->n; i++) {
		const struct fo_verify_check *c = &r->check[i];
		fo_json_record(j, NULL, FO_TEXT("group", c->group), FO_TEXT("name", c->name),
			       FO_TEXT("against", *c->against ? c->against : NULL), FO_REAL("error", c->error),
			       FO_REAL("bound", c->bound), FO_TEXT("result", fo_verify_result_name[c->result]),
			       FO_TEXT("detail", c->detail));
	}
	fo_json_close(j);
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
		fprintf(f, "Verify: %d checks passed, %d failed, %d not checked in %.1f s\n", r.count[FO_VERIFY_PASS],
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

static fo_status run(const struct fo_cli_call *call)
{
	const struct verify *in = call->in;
	struct fo_verify_options o = { .brief = in->brief,
				       .threads = in->threads ? (int)in->threads : fo_cpu_threads(),
				       .ranks = (int)in->ranks,
				       .device = in->device };
	struct fo_verify_report r;
	bool live = fo_cli_is_live(stderr);
	FO_TRY(fo_cli_device_open(in->device, &o.cuda));
	if (live)
		o.progress = show_group;
	fo_status st = fo_verify(&o, &r);
	if (live)
		fprintf(stderr, "\r\033[K");
	if (st == FO_OK) {
		if (call->json)
			write_json(&r, in->brief, o.threads, o.ranks, o.cuda ? fo_cuda_info(o.cuda)->name : NULL,
				   call->json);
		else
			say(&r, call->doc);
		st = failed(&r, o.cuda);
	}
	fo_verify_fini(&r);
	fo_cuda_close(o.cuda);
	return st;
}

const struct fo_command fo_cmd_verify = {
	.name = "verify",
	.group = "measure",
	.usage = "flatout verify [--short] [--threads N] [--ranks N] [--device HOW] [--json]",
	.summary = "self-check: kernels, a training step, checkpoints",
	.text = "Every operation with every kernel set that this machine has against double precision; losses, "
		"gradients and gradient norms of a training step against stored values; the same steps twice; a "
		"checkpoint to disk and back; a program dumped and read back. The worst error stands beside what "
		"is allowed: twice that of a naive implementation in the same precision. What did not run says "
		"\"not checked\".\n\n"
		"  flatout verify\n"
		"  flatout verify --short\n"
		"  flatout verify --ranks=4\n"
		"  flatout verify --device=cuda\n"
		"  flatout train run.yaml --run.verify=short",
	.opts = rows,
	.act = run,
	.size = sizeof(struct verify),
	.spin = FO_SPIN_NONE,
};
