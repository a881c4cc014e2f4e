/* flatout audit: what in a training job's configuration, or on its machines, holds it back. */
#include "cli/cli.h"

#include "audit/config.h"
#include "audit/host.h"
#include "hw/catalogue.h"

#include <string.h>

struct audit {
	const char *cluster, *model, *set, *from, *devices_file;
	bool host, settings;
	const char *html, *json;
	bool force;
};

static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct audit, cluster, "audit.cluster", "C", NULL,
		    "where it runs: 2xHGX-H100, 128xA100, 4xGB200-NVL72, or the path of a cluster file"),
	FO_OPT_PATH(struct audit, model, "audit.model", "M", NULL,
		    "what is trained, where the configuration does not say: preset, name on Hugging Face, config.json"),
	FO_OPT_TEXT(struct audit, set, "audit.set", "NAME=VALUE,...", NULL,
		    "settings that go before the files': tp=4,micro_batch=2; '--settings' lists the names"),
	FO_OPT_PATH(
		struct audit, from, "audit.from", "FILES", NULL,
		"hosts by what their commands printed (nvidia-smi -q, env, NCCL's log, ...): files a,b,c or a folder"),
	FO_OPT_BOOL(struct audit, host, "audit.host", "false",
		    "this machine, also beside a configuration; without either it is what is audited"),
	FO_OPT_BOOL(struct audit, settings, "audit.settings", "false",
		    "lists every setting, its value and the line that it comes from"),
	FO_OPT_PATH(struct audit, devices_file, "audit.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_OUTPUT(struct audit, html, "audit.html", "FILE", NULL, "a page", FO_OUTPUT_PAGE),
	FO_CLI_OUTPUT_ROWS(struct audit, "audit", "JSON on standard output"),
};

struct looked {
	const struct audit *in;
	const char *const *file;
	int files;
	struct fo_catalogue catalogue;
	struct fo_cluster cluster;
	struct fo_job job;
	struct fo_audit audit;
	struct fo_audit_config config;
};

/* ---- inputs ---- */

static fo_status read_job(struct looked *l)
{
	struct fo_job_given given = { .model = l->in->model };
	const char **set = NULL;
	if (l->in->set)
		given.sets = fo_job_split_settings(l->in->set, &l->audit.arena, &set);
	given.set = set;
	FO_TRY(fo_job_read(l->file, l->files, &given, &l->job));
	if (l->in->cluster)
		return fo_cluster_parse(l->in->cluster, &l->catalogue, &l->cluster, &l->audit.arena);
	fo_cluster_of_job(&l->job, &l->cluster);
	return FO_OK;
}

static void say_read(struct looked *l)
{
	int stated = 0;
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		stated += l->job.value[s].origin == FO_JOB_STATED;
	for (int i = 0; i < l->files; i++)
		if (i)
			fo_audit_read(&l->audit, "%s", l->file[i]);
		else
			fo_audit_read(&l->audit, "%s: %s, %d setting%s that rules know", l->file[i],
				      l->job.form ? l->job.form->name : "unknown", stated, fo_plural(stated));
	if (l->job.has_model)
		fo_audit_read(&l->audit, "model %s, from %s", l->job.model.name,
			      l->job.model_from ? l->job.model_from : "the files");
	if (l->cluster.device)
		fo_audit_read(&l->audit, "%.0f x %s, from %s", l->cluster.devices, l->cluster.device->name,
			      l->cluster.from ? l->cluster.from : "the files");
}

/* ---- what it says ---- */

/* The last name of a path: "/home/me/train.toml" is "train.toml". */
static const char *last_name(struct fo_doc *d, const char *path)
{
	size_t n = strlen(path), from;
	while (n > 1 && path[n - 1] == '/')
		n--;
	for (from = n; from > 0 && path[from - 1] != '/';)
		from--;
	return from < n ? fo_doc_printf(d, "%.*s", (int)(n - from), path + from) : path;
}

static void document(struct fo_doc *d, struct looked *l)
{
	const char *of = l->in->from ? last_name(d, l->in->from) : "this machine";
	fo_doc_title(d, "Audit of %s", l->files ? last_name(d, l->file[0]) : of);
	fo_audit_doc_verdict(d, &l->audit);
	if (l->files) {
		fo_audit_memory_verdict(d, &l->config);
		fo_audit_config_tables(d, &l->config);
	}
	fo_audit_doc_findings(d, &l->audit);
	if (l->in->settings)
		fo_job_list(&l->job, d);
}

static fo_status show(const struct fo_cli_call *call, struct looked *l)
{
	struct fo_doc page = { 0 }, *d = call->json || (l->in->html && !strcmp(l->in->html, "-")) ? &page : call->doc;
	if (!call->json || l->in->html)
		document(d, l);
	if (call->json) {
		fo_audit_json(call->json, &l->audit);
		if (l->files)
			fo_audit_config_json(call->json, &l->config);
		if (l->in->settings) {
			fo_json_object(call->json, "job");
			fo_job_json(&l->job, call->json);
			fo_json_close(call->json);
		}
	}
	fo_status st = l->in->html ? fo_cli_page(d, l->in->html) : FO_OK;
	fo_doc_fini(&page);
	return st;
}

/* Options that say nothing without a configuration. */
static fo_status check_options(const struct looked *l)
{
	const struct {
		const char *option;
		bool given;
	} needs[] = { { "--cluster", l->in->cluster != NULL },
		      { "--model", l->in->model != NULL },
		      { "--set", l->in->set != NULL },
		      { "--settings", l->in->settings } };
	for (size_t i = 0; i < sizeof needs / sizeof *needs && !l->files; i++)
		if (needs[i].given)
			return fo_hint(fo_fail(FO_EARG, "'%s' alone changes nothing: it needs a configuration",
					       needs[i].option),
				       "flatout audit train.toml --cluster 2xHGX-H100");
	return FO_OK;
}

static fo_status look(struct looked *l)
{
	FO_TRY(check_options(l));
	if (l->files) {
		FO_TRY(read_job(l));
		l->config = (struct fo_audit_config){ .job = &l->job, .cluster = &l->cluster };
		fo_audit_config(&l->audit, &l->config);
		say_read(l);
	}
	if (l->in->from)
		FO_TRY(fo_audit_host_from(&l->audit, l->in->from));
	if (l->in->host || (!l->files && !l->in->from))
		fo_audit_host_here(&l->audit);
	fo_audit_sort(&l->audit);
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct looked l = { .in = call->in, .file = (const char *const *)call->argv + 1, .files = call->argc - 1 };
	FO_TRY(fo_catalogue_load(&l.catalogue, l.in->devices_file));
	fo_job_init(&l.job);
	fo_status st = look(&l);
	bool serious = fo_audit_serious(&l.audit);
	if (st == FO_OK)
		st = show(call, &l);
	fo_audit_fini(&l.audit);
	fo_job_fini(&l.job);
	fo_catalogue_fini(&l.catalogue);
	return st == FO_OK && serious ? fo_cli_found() : st;
}

const struct fo_command fo_cmd_audit = {
	.name = "audit",
	.group = "diagnose",
	.usage = "flatout audit [CONFIG...] [--cluster C] [--model M] [--set NAME=VALUE,...] [--from FILES] [--host] "
		 "[--settings] [--html FILE] [--json]",
	.summary = "what settings lose, of a job or of a host: worth, what to paste",
	.text = "Reads the configuration of a training job: torchtitan TOML or its printed form, Megatron-LM arguments "
		"or YAML, DeepSpeed JSON, accelerate, NeMo or MaxText YAML, Hugging Face, axolotl, LLaMA-Factory, "
		"LitGPT, nanotron, llm-foundry, OLMo, GPT-NeoX, or a run.yaml. Computes memory of a device by parts, "
		"looks for settings that lose speed or stop the job, and says for each what to set "
		"instead, why, "
		"where it stands and what it is worth. Several files are read as one job. --from reads what "
		"commands of "
		"other hosts printed; without any file it is this machine. It never changes a setting.\n\n"
		"  flatout audit train.toml --cluster 8xHGX-H100\n"
		"  flatout audit ds_config.json --model llama-3.1-8b --cluster 1xHGX-H100 \\\n"
		"      --set seq=4096,micro_batch=2\n"
		"  flatout audit pretrain.args --cluster 16xHGX-H100 --from node7/\n\n"
		"Exit status 1: a serious finding.",
	.opts = rows,
	.act = run,
	.size = sizeof(struct audit),
	.most = FO_CLI_ANY,
};
