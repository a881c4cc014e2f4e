/* Configurations and files of hosts: recognised, read as one job and as facts of hosts, and audited. */
#include "health/health_int.h"

#include "base/fs.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

/* ---- what a file is ---- */

/* Does the name say that it ought to be a configuration? It chooses the reason that is told, nothing else. */
static bool named_like_a_job(const char *path)
{
	static const char *const end[] = { ".toml", ".yaml", ".yml", ".json", ".args" };
	for (size_t i = 0; i < sizeof end / sizeof *end; i++)
		if (fo_text_ends(path, end[i]))
			return true;
	return false;
}

bool fo_health_take_job(struct fo_health *h, struct fo_health_file *f)
{
	struct fo_job job;
	const char *path = f->path;
	fo_status st = fo_job_read(&path, 1, NULL, &job);
	bool yes = st == FO_OK && job.form;
	if (yes) {
		f->kind = FO_HEALTH_JOB;
		f->what = fo_health_text(h, "configuration of %s", job.form->name);
	} else if (st == FO_EFORMAT && named_like_a_job(path)) {
		f->why = fo_health_text(h, "as a configuration: %s", fo_err_text());
	}
	fo_err_clear();
	fo_job_fini(&job);
	return yes;
}

/* The name of the variable that a line assigns: "NAME=", "export NAME=", "declare -x NAME=", "setenv NAME "; NULL: it
 * assigns none. */
static const char *assigns(const char *line)
{
	static const char *const before[] = { "export ", "declare -x ", "setenv " };
	line += strspn(line, " \t");
	for (size_t i = 0; i < sizeof before / sizeof *before; i++)
		if (!strncmp(line, before[i], strlen(before[i])))
			line += strlen(before[i]);
	size_t n = strspn(line, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
	return n && (line[n] == '=' || line[n] == ' ') ? line : NULL;
}

/* Is it the environment of a job, or a script that sets one? Any text may hold a line like NAME=VALUE: most lines must
 * be such, or a script must set what training reads. */
static bool is_environment(char *text)
{
	static const char *const of_training[] = { "NCCL_", "TORCH", "PYTORCH_", "CUDA_", "UCX_",
						   "NVTE_", "FI_",   "OMP_",     "RCCL_" };
	bool script = !strncmp(text, "#!", 2), sets = false;
	int lines = 0, assigned = 0;
	char *rest;
	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		const char *name = assigns(line);
		lines += line[strspn(line, " \t\r")] && *line != '#';
		assigned += name && strchr(name, '=') != NULL;
		for (size_t i = 0; name && i < sizeof of_training / sizeof *of_training; i++)
			sets |= !strncmp(name, of_training[i], strlen(of_training[i])) && strchr(name, '=') != NULL;
	}
	return 2 * assigned > lines || (script && sets);
}

/* Texts up to this size are looked at twice: by the host's reader, and whether what it says can be. */
#define HOST_BYTES ((size_t)8 << 20)
static bool is_of_host(struct fo_health *h, const char *path)
{
	struct fo_host_facts probe = { 0 };
	char *text;
	size_t len;
	bool yes = fo_host_read_file(&probe, path) == FO_OK && probe.reads > 0 && probe.not_reads == 0;
	if (yes && probe.hosts == 1 && probe.host[0].variables && !probe.host[0].gpus && !probe.host[0].ports &&
	    fo_fs_read_regular(&h->arena, path, HOST_BYTES, &text, &len) == FO_OK &&
	    fo_text_ends(probe.read[0], "environment"))
		yes = is_environment(text);
	fo_err_clear();
	fo_host_facts_fini(&probe);
	return yes;
}

bool fo_health_take_host(struct fo_health *h, struct fo_health_file *f)
{
	if (!is_of_host(h, f->path) || fo_host_read_file(&h->host, f->path) != FO_OK) {
		fo_err_clear();
		return false;
	}
	const char *line = h->host.read[h->host.reads - 1];
	size_t n = strlen(f->path);
	bool named = !strncmp(line, f->path, n) && line[n] == ':';
	f->kind = FO_HEALTH_HOST;
	f->what = fo_health_text(h, "of a host:%s", named ? line + n + 1 : line);
	h->hosted = true;
	return true;
}

/* ---- the job and its cluster ---- */

void fo_health_read_job(struct fo_health *h)
{
	const char **path = fo_arena_alloc(&h->arena, (h->files + 1) * sizeof *path);
	const struct fo_job_given given = { .model = h->given.model };
	int n = 0;
	for (size_t i = 0; i < h->files; i++)
		if (h->file[i].kind == FO_HEALTH_JOB)
			path[n++] = h->file[i].path;
	fo_job_init(&h->job);
	if (!n)
		return;
	fo_job_fini(&h->job);
	fo_status st = fo_job_read(path, n, &given, &h->job);
	if (st == FO_OK) {
		h->configured = true;
		return;
	}
	for (size_t i = 0; i < h->files; i++)
		if (h->file[i].kind == FO_HEALTH_JOB) {
			h->file[i].kind = FO_HEALTH_NONE;
			h->file[i].st = st;
			h->file[i].why = fo_health_text(h, "%s", fo_err_text());
		}
	fo_err_clear();
}

/* The device that nvidia-smi names. */
static void device_of_host(struct fo_health *h)
{
	for (size_t i = 0; i < h->host.hosts && !h->device; i++)
		for (size_t g = 0; g < h->host.host[i].gpus && !h->device; g++) {
			const struct fo_host_fact *name = fo_gpu_told(&h->host.host[i].gpu[g], FO_GPU_NAME);
			h->device = name ? fo_device_match(&h->catalogue, name->text, 0, 0) : NULL;
			h->device_from = h->device ? fo_health_text(h, "%s", fo_text_file_name(name->file)) : NULL;
		}
}

static void devices_of_job(struct fo_health *h)
{
	struct fo_cluster stated;
	if (!h->configured)
		return;
	fo_cluster_of_job(&h->job, &stated);
	if (isnan(stated.devices))
		return;
	if (isnan(h->devices)) {
		h->devices = stated.devices;
		h->devices_from = "the configuration";
	} else if (h->devices != stated.devices) {
		fo_health_conflict(h, "the configuration is for %.0f device%s, %s says %.0f", stated.devices,
				   fo_plural(stated.devices), h->devices_from, h->devices);
	}
}

void fo_health_settle_cluster(struct fo_health *h)
{
	device_of_host(h);
	devices_of_job(h);
	struct fo_cluster c;
	if (h->given.cluster || !h->device || isnan(h->devices))
		return;
	const char *text = fo_health_text(h, "%.0fx%s", h->devices, h->device->name);
	if (fo_cluster_parse(text, &h->catalogue, &c, &h->arena) == FO_OK)
		h->cluster = c;
	fo_err_clear();
}

/* ---- the audits ---- */

void fo_health_audit(struct fo_health *h)
{
	if (h->configured) {
		h->config = (struct fo_audit_config){ .job = &h->job, .cluster = &h->cluster };
		fo_audit_config(&h->config_audit, &h->config);
		fo_audit_sort(&h->config_audit);
	}
	if (h->hosted) {
		fo_audit_host(&h->host_audit, &h->host);
		fo_audit_sort(&h->host_audit);
	}
}

bool fo_health_of_network(const struct fo_audit_finding *f)
{
	static const char *const begins[] = { "nccl-",    "port-", "gpu-nic-",   "gpu-gpu-path", "gpudirect",
					      "pcie-acs", "iommu", "hosts-nccl", "gpu-nvlinks",  "gpu-fabric" };
	for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
		if (!strncmp(f->id, begins[i], strlen(begins[i])))
			return true;
	return false;
}
