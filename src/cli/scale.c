/* flatout scale: one job on clusters of 8 to 262,144 devices, each with the best plan of its own. */
#include "cli/scale.h"

#include "base/count.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct scale {
	struct fo_cli_job job;
	struct fo_cli_goodput goodput;
	const char *fix, *sizes, *rent, *watts, *pue, *html, *json;
	int scaling;
	bool force;
};
enum { SCALING_BOTH, SCALING_STRONG, SCALING_WEAK };
static const struct fo_opt rows[] = {
	FO_CLI_JOB_ROWS(struct scale, "scale"),
	FO_OPT_TEXT(struct scale, fix, "scale.fix", "NAME=N,...", NULL,
		    "what is not searched: tp=8,pp=4; an option of that name does the same"),
	FO_OPT_TEXT(struct scale, sizes, "scale.sizes", "N,...", NULL,
		    "numbers of devices; not given: doublings from 8 to 262,144"),
	FO_OPT_ENUM(struct scale, scaling, "scale.scaling", "both",
		    "strong: the batch of a step stays; weak: it grows with the devices, from the cluster's size on",
		    "both|strong|weak"),
	FO_CLI_GOODPUT_ROWS(struct scale, "scale"),
	FO_OPT_TEXT(struct scale, rent, "scale.rent", "R", NULL,
		    "USD per device and hour: 2.5, or 2..3; not given: the catalogue's range"),
	FO_OPT_TEXT(struct scale, watts, "scale.watts", "W", NULL,
		    "power of one device while it trains; not given: its limit, as an upper bound"),
	FO_OPT_TEXT(struct scale, pue, "scale.pue", "F", "1", "power of the building over that of the devices: 1.2"),
	FO_OPT_OUTPUT(struct scale, html, "scale.html", "FILE", NULL, "a page with pictures", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct scale, "scale", "JSON on standard output"),
};

/* ---- what is asked ---- */

static fo_status read_sizes(const struct scale *in, struct fo_scale_asked *a)
{
	static const double most = 1e6; /* devices: as cluster descriptions take at most */
	const char *s = in->sizes;
	if (!s) {
		a->sizes = fo_scale_sizes(a->size);
		return FO_OK;
	}
	for (;;) {
		char *end;
		double n = strtod(s, &end);
		if (end == s || (*end && *end != ',') || strpbrk(s, "xX"))
			return fo_hint(fo_fail(FO_EARG, "--sizes is '%s', expected numbers of devices",
					       fo_cli_seen(in->sizes)),
				       "--sizes=8,64,1024");
		if (!(n >= 1 && n <= most))
			return fo_hint(
				fo_fail(FO_EARG, "--sizes: %.15g devices are no cluster; 1 to %.15g are", n, most),
				"--sizes=8,64,1024");
		if (a->sizes == FO_SCALE_SIZES)
			return fo_fail(FO_EARG, "--sizes has more than %d numbers", FO_SCALE_SIZES);
		FO_TRY(fo_scale_check(a->per_node, n));
		a->size[a->sizes++] = n;
		if (!*end)
			break;
		s = end + 1;
	}
	qsort(a->size, (size_t)a->sizes, sizeof *a->size, fo_by_double);
	int n = 1;
	for (int i = 1; i < a->sizes; i++)
		if (a->size[i] > a->size[n - 1])
			a->size[n++] = a->size[i];
	a->sizes = n;
	return FO_OK;
}

static fo_status read_money(const struct scale *in, struct fo_cli_scaled *s)
{
	const struct fo_device *d = s->planned->asked->cluster.device;
	struct fo_cli_rates r;
	FO_TRY(fo_cli_cost_read(&(struct fo_cli_cost){ .rent = in->rent, .pue = in->pue }, d, in->job.watts, &r));
	s->rent = r.rent;
	s->rent_from = r.rent_from;
	s->pue = r.pue;
	s->watts = fo_range(r.watts.high);
	s->watts_given = in->watts != NULL;
	return in->watts ? fo_cli_cost_watts(in->watts, &s->watts) : FO_OK;
}

static fo_status ask(const struct scale *in, struct fo_cli_scaled *s)
{
	s->given = in->goodput;
	fo_cli_scale_ask(s->planned, &s->ask);
	FO_TRY(read_sizes(in, &s->ask));
	FO_TRY(fo_cli_goodput_read(&in->goodput, &s->ask.goodput));
	return read_money(in, s);
}

/* ---- the command ---- */

static bool fits_anywhere(const struct fo_scale *s)
{
	bool fits = !s->points;
	for (int i = 0; i < s->points; i++)
		fits |= s->point[i].fit == FO_SCALE_FITS;
	return fits;
}

static fo_status search(const struct scale *in, struct fo_cli_scaled *s)
{
	if (in->scaling != SCALING_WEAK)
		FO_TRY(fo_scale_of(&s->strong, &s->ask));
	s->ask.weak = true;
	if (in->scaling != SCALING_STRONG)
		FO_TRY(fo_scale_of(&s->weak, &s->ask));
	if (fits_anywhere(&s->strong) && fits_anywhere(&s->weak))
		return FO_OK;
	return fo_hint(fo_fail(FO_ENOMEM, "%s fits on none of these sizes, from %.15g to %.15g %s",
			       s->planned->asked->job.model.name, s->ask.size[0], s->ask.size[s->ask.sizes - 1],
			       s->planned->asked->cluster.device->name),
		       "'flatout plan' says what it takes; more devices (--sizes), or larger ones ('flatout devices'), "
		       "may hold it");
}

static fo_status show(const struct fo_cli_call *call, const struct fo_cli_scaled *s)
{
	const struct scale *in = call->in;
	struct fo_doc page = { 0 }, *d = call->json || (in->html && !strcmp(in->html, "-")) ? &page : call->doc;
	if (!call->json || in->html)
		fo_cli_scaled_doc(d, s);
	if (call->json)
		fo_cli_scaled_json(call->json, s);
	fo_status st = in->html ? fo_cli_page(d, in->html) : FO_OK;
	fo_doc_fini(&page);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct scale *in = call->in;
	struct fo_cli_asked a;
	struct fo_cli_planned *p = fo_xmalloc(sizeof *p);
	struct fo_cli_scaled *s = fo_xmalloc(sizeof *s);
	p->asked = &a;
	s->planned = p;
	fo_status st = fo_cli_plan_read(call, &in->job, in->fix, NULL, p);
	if (st == FO_OK)
		st = ask(in, s);
	if (st == FO_OK)
		st = search(in, s);
	if (st == FO_OK)
		st = show(call, s);
	free(s);
	free(p);
	fo_cli_job_fini(&a);
	return st;
}

const struct fo_command fo_cmd_scale = {
	.name = "scale",
	.group = "plan",
	.usage = "flatout scale --model M --cluster C --seq S --global-tokens T [--framework F] [--precision P] "
		 "[--sizes N,...] [--scaling both|strong|weak] [--fix tp=8,...] [--failures R] [--save S] "
		 "[--restart S] [--rent R] [--html FILE] [--json]\n"
		 "flatout scale CONFIG... --cluster C [...]",
	.summary = "MFU, goodput, energy and cost of a job on 8 to 262,144 devices",
	.text = "Plans the job for each size of cluster (as 'flatout plan' does for one) and sets side by side its "
		"MFU, the share of the time that counts beside checkpoints, failures and restarts, and what a billion "
		"tokens take in energy and money: with the batch as it is (strong scaling), and with a batch that "
		"grows with the devices from the size of --cluster on (weak scaling).\n\n"
		"  flatout scale --model llama-3.1-405b --cluster 128xHGX-H100 --seq 8192 \\\n"
		"      --global-tokens 16M\n"
		"  flatout scale --model llama-3.1-8b --cluster 1xHGX-H100 --seq 8192 \\\n"
		"      --global-batch 64 --scaling weak --sizes 8,64,512 --html scale.html\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct scale),
	.most = FO_CLI_ANY,
};
