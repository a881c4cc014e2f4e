/* The joined record: what is read, in which order it is judged. */
#include "health/health_int.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_health_kind_name[FO_HEALTH_KINDS] = { "none", "log",  "trace", "ladder", "run",
							   "job",  "host", "claim", "plan" };

/* ---- the job ---- */

/* What the caller or other files say of the devices goes to the logs that do not tell it themselves; what the caller
 * says of their number, to the only log. */
static fo_status tell_logs(struct fo_health *h)
{
	for (size_t i = 0; i < h->logs; i++) {
		struct fo_health_log *l = h->log[i];
		const struct fo_log_account *a = &l->account;
		bool number = h->given.devices > 0 && (h->logs == 1 || isnan(a->devices));
		bool device = !a->device && h->device;
		if (!number && !device)
			continue;
		const char *name = device ? h->device->name : h->given.device;
		const struct fo_log_given given = { .model = h->given.model,
						    .device = name,
						    .devices_file = h->given.devices_file,
						    .dtype = h->given.dtype,
						    .devices = number ? h->given.devices : 0,
						    .seq = h->given.seq,
						    .tokens_per_step = h->given.tokens_per_step };
		fo_log_account_fini(&l->account);
		FO_TRY(fo_health_account(l, &given));
	}
	return FO_OK;
}

/* The log that MFU is of: the one of most devices; of several the last one. */
static void find_main_log(struct fo_health *h)
{
	double most = -1;
	for (size_t i = 0; i < h->logs; i++) {
		double n = h->log[i]->account.devices;
		if ((isnan(n) ? 0 : n) >= most) {
			most = isnan(n) ? 0 : n;
			h->main_log = h->log[i];
		}
	}
	const struct fo_log_account *a = h->main_log ? &h->main_log->account : NULL;
	h->devices = h->given.devices > 0 ? h->given.devices : NAN;
	if (h->given.devices > 0 && !h->devices_from)
		h->devices_from = "--devices";
	if (a && !isnan(h->devices) && !isnan(a->devices) && a->devices != h->devices)
		fo_health_conflict(h, "%s is of %.0f device%s, %s says %.0f", fo_text_file_name(h->main_log->path),
				   a->devices, fo_plural(a->devices), h->devices_from, h->devices);
	if (a && isnan(h->devices) && !isnan(a->devices)) {
		h->devices = a->devices;
		h->devices_from = fo_text_file_name(h->main_log->path);
	}
	const struct fo_device *same;
	if (a && a->device && !h->device && fo_catalogue_find(&h->catalogue, a->device->name, &same) == FO_OK) {
		h->device = same;
		h->device_from = fo_text_file_name(h->main_log->path);
	}
}

/* A plan tells of the devices where nothing else does: it is of the job that is to be. */
static void ask_plans(struct fo_health *h)
{
	const struct fo_health_plan *p = h->plan;
	const struct fo_device *d;
	if (!h->plans)
		return;
	if (isnan(h->devices)) {
		h->devices = p->plan.devices;
		h->devices_from = fo_text_file_name(p->path);
	}
	if (!h->device && fo_catalogue_find(&h->catalogue, p->plan.device, &d) == FO_OK) {
		h->device = d;
		h->device_from = fo_text_file_name(p->path);
	}
	fo_err_clear();
}

static void say_which_log(struct fo_health *h)
{
	int same = 0;
	for (size_t i = 0; h->main_log && i < h->logs; i++)
		same += h->log[i] != h->main_log && h->log[i]->account.devices == h->main_log->account.devices;
	if (same)
		fo_health_conflict(h, "%d log%s of %.0f device%s beside %s: MFU now is of the one that was named last",
				   same, fo_plural(same), h->main_log->account.devices,
				   fo_plural(h->main_log->account.devices), h->main_log->path);
}

static bool is_serious(const struct fo_health *h)
{
	for (int i = 0; i < FO_HEALTH_ASKS; i++)
		if (h->question[i].bad)
			return true;
	for (size_t i = 0; i < h->changes; i++)
		if (h->change[i].serious)
			return true;
	return false;
}

fo_status fo_health_make(struct fo_health *h, const char *const *path, int paths, const struct fo_health_given *given)
{
	*h = (struct fo_health){ .given = *given, .devices = NAN };
	fo_status st = fo_catalogue_load(&h->catalogue, given->devices_file);
	if (st != FO_OK)
		h->catalogue = (struct fo_catalogue){ 0 };
	if (st != FO_OK)
		return st;
	FO_TRY(fo_health_name_devices(h));
	for (int i = 0; i < paths; i++)
		fo_health_take(h, path[i], true);
	find_main_log(h);
	fo_health_read_job(h);
	fo_health_open_traces(h);
	fo_health_settle_cluster(h);
	ask_plans(h);
	FO_TRY(tell_logs(h));
	fo_health_diagnose(h);
	fo_health_audit(h);
	fo_health_find_mfu(h);
	say_which_log(h);
	fo_health_compare_sources(h);
	fo_health_ask_all(h);
	fo_health_gather(h);
	fo_health_worth(h);
	fo_health_check_claims(h);
	h->serious = is_serious(h);
	return FO_OK;
}

void fo_health_fini(struct fo_health *h)
{
	for (size_t i = 0; i < h->logs; i++) {
		fo_log_account_fini(&h->log[i]->account);
		fo_log_fini(&h->log[i]->log);
	}
	for (size_t i = 0; i < h->ladders; i++)
		fo_ladder_fini(h->ladder[i]);
	for (size_t i = 0; i < h->runs; i++)
		fo_record_fini(h->run[i]);
	if (h->traced)
		fo_diagnosis_fini(&h->diagnosis);
	fo_trace_set_fini(&h->set);
	fo_audit_fini(&h->config_audit);
	fo_audit_fini(&h->host_audit);
	fo_host_facts_fini(&h->host);
	fo_job_fini(&h->job);
	free(h->file);
	free(h->log);
	free(h->ladder);
	free(h->run);
	free(h->claim);
	free(h->plan);
	free(h->change);
	fo_catalogue_fini(&h->catalogue);
	fo_arena_fini(&h->arena);
	*h = (struct fo_health){ 0 };
}

int fo_health_unused(const struct fo_health *h, const struct fo_health_file **first)
{
	int n = 0;
	*first = NULL;
	for (size_t i = 0; i < h->files; i++)
		if (h->file[i].kind == FO_HEALTH_NONE && h->file[i].named) {
			*first = *first ? *first : &h->file[i];
			n++;
		}
	return n;
}
