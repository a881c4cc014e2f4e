/* flatout health: everything that is given about a job, joined. */
#include "cli/cli.h"

#include "health/health.h"

#include <math.h>
#include <string.h>

struct health {
	const char *cluster, *model, *device, *dtype, *devices_file, *mfu, *rent, *year;
	int64_t devices, seq, tokens_per_step;
	const char *json, *html;
	bool force;
};

static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct health, model, "health.model", "M", NULL,
		    "what is trained: preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_PATH(struct health, cluster, "health.cluster", "C", NULL,
		    "devices and nodes: 16xDGX-A100, 128xA100, or a YAML file; without it as files tell"),
	FO_OPT_TEXT(struct health, device, "health.device", "D", NULL,
		    "accelerator: 'flatout devices' lists them; without it as files tell"),
	FO_OPT_INT(struct health, devices, "health.devices", "N", NULL, 1, 1 << 30, "devices",
		   "how many train; without it as files tell"),
	FO_OPT_LENGTH(struct health, seq, "health.seq", "S", NULL, 1, 1 << 30, "sequence length, where no log tells"),
	FO_OPT_LENGTH(struct health, tokens_per_step, "health.tokens-per-step", "N", NULL, 1, 1e15,
		      "tokens of one step of the whole job, where no log tells"),
	FO_OPT_TEXT(struct health, mfu, "health.mfu", "P", NULL,
		    "MFU now in percent, where neither log nor trace tells: 40, or 35..45"),
	FO_OPT_TEXT(struct health, rent, "health.rent", "R", NULL,
		    "USD per device and hour: 2.5, or 2..3; without it the catalogue's range"),
	FO_OPT_TEXT(struct health, year, "health.year", "P", "100",
		    "share of a year in which the devices train, in percent"),
	FO_OPT_TEXT(struct health, dtype, "health.dtype", "TYPE", NULL,
		    "precision of the peak of logs; without it bf16"),
	FO_OPT_PATH(struct health, devices_file, "health.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_OUTPUT(struct health, html, "health.html", "FILE", NULL, "one self-contained page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct health, "health", "JSON on standard output")
};

static fo_status read_range(const char *text, const char *what, double unit, double most, struct fo_range *out)
{
	*out = fo_range(NAN);
	if (!text)
		return FO_OK;
	FO_TRY(fo_range_parse(text, what, out));
	out->low *= unit;
	out->high *= unit;
	if (out->high > most || !(out->low > 0))
		return fo_fail(FO_EARG, "%s is '%s', expected a number above 0%s", what, text,
			       most == 1 ? " and at most 100 percent" : "");
	return FO_OK;
}

static fo_status read_given(const struct health *in, struct fo_health_given *g)
{
	*g = (struct fo_health_given){ .model = in->model,
				       .cluster = in->cluster,
				       .device = in->device,
				       .dtype = in->dtype,
				       .devices_file = in->devices_file,
				       .devices = (double)in->devices,
				       .seq = (double)in->seq,
				       .tokens_per_step = (double)in->tokens_per_step };
	FO_TRY(read_range(in->mfu, "--mfu", 0.01, 1, &g->mfu));
	FO_TRY(read_range(in->rent, "--rent", 1, INFINITY, &g->rent));
	return read_range(in->year, "--year", 0.01, 1, &g->year);
}

static fo_status show(const struct fo_cli_call *call, const struct fo_health *h)
{
	const struct health *in = call->in;
	struct fo_doc d = { 0 };
	fo_status st = FO_OK;
	fo_health_doc(h, &d);
	if (call->json)
		fo_health_json(h, call->json);
	if (in->html)
		st = fo_cli_page(&d, in->html);
	if (st == FO_OK && !call->json && !(in->html && !strcmp(in->html, "-")))
		fo_cli_print(stdout, &d);
	fo_doc_fini(&d);
	return st;
}

/* What is not used is an error, told after everything else was judged. */
static fo_status unused(const struct fo_health *h)
{
	const struct fo_health_file *f;
	int n = fo_health_unused(h, &f);
	if (!n)
		return h->serious ? fo_cli_found() : FO_OK;
	if (n == 1)
		return fo_fail(f->st, "'%s' is not used: %s", f->path, f->why);
	return fo_fail(f->st, "%d files are not used; the first is '%s': %s", n, f->path, f->why);
}

static fo_status run(const struct fo_cli_call *call)
{
	struct fo_health_given given;
	struct fo_health h;
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no file"), "flatout health train.log trace.json.gz");
	FO_TRY(read_given(call->in, &given));
	fo_status st = fo_health_make(&h, (const char *const *)call->argv + 1, call->argc - 1, &given);
	if (st == FO_OK)
		st = show(call, &h);
	if (st == FO_OK)
		st = unused(&h);
	fo_health_fini(&h);
	return st;
}

const struct fo_command fo_cmd_health = {
	.name = "health",
	.group = "diagnose",
	.usage = "flatout health FILE... [--cluster C] [--model M] [--device D] [--devices N] [--seq S] "
		 "[--tokens-per-step N] "
		 "[--mfu P] [--rent R] [--year P] [--html FILE] [--json]",
	.summary = "all about one job on one page: four answers, changes, their worth",
	.text = "Reads whatever there is about a training job, files and folders, each told by its content: logs of "
		"training programs, traces of PyTorch's profiler or Nsight Systems, configurations of training "
		"frameworks, what a host's tools print (nvidia-smi, ibstat, the environment), ladders and runs of this "
		"program, plans that 'flatout plan --json' wrote, and claims (what somebody promises of a change: a "
		"file that begins with 'claim:').\n\n"
		"It answers: is communication above half of the step, does efficiency per GPU fall beyond 8 GPUs, do "
		"GPUs idle between all-reduces, is NCCL tuned for this topology; each with its evidence, or as not "
		"known with what to record. Changes of all sources stand once, serious ones first, then by the low end "
		"of their gain; single gains do not add up, and no promise goes above the best published MFU of the "
		"device. Money is a range.\n\n"
		"  flatout health job/ --html health.html\n"
		"  flatout health train.log --device a100 --devices 128\n"
		"  flatout health train-8.log train-128.log profile/ --html health.html\n"
		"  flatout health train.log trace.json.gz --rent 1.2..1.6 --year 80 --json\n\n"
		"Exit status: 0; 1 for an answer or a finding that is a sign of trouble; 2 for wrong arguments, or a "
		"file that is none of these (the rest is judged all the same); 3 for what cannot be read or written.",
	.opts = rows,
	.act = run,
	.size = sizeof(struct health),
	.most = FO_CLI_ANY,
};
