/* flatout mfu LOG...: MFU, time and money from the logs that other programs print. */
#include "cli/mfu.h"

#include "base/fs.h"
#include "report/log_doc.h"

#include <math.h>
#include <string.h>

static void spread_json(struct fo_json *j, const char *key, struct fo_log_spread s)
{
	fo_json_record(j, key, FO_REAL("low", s.low), FO_REAL("median", s.median), FO_REAL("high", s.high));
}

static void lists_json(struct fo_json *j, const struct fo_log *log)
{
	fo_json_array(j, "slow");
	for (size_t i = 0; i < log->phases; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "first", log->phase[i].first);
		fo_json_int(j, "last", log->phase[i].last);
		fo_json_put(j, FO_REAL("times", log->phase[i].times), FO_REAL("time", log->phase[i].at));
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_array(j, "restarts");
	for (size_t p = 1; p < log->parts; p++) {
		fo_json_object(j, NULL);
		fo_json_put(j, FO_REAL("step", fo_log_at(log, log->part[p].from, FO_LOG_STEP)),
			    FO_REAL("lines_again", (double)log->part[p].again),
			    FO_REAL("lost_seconds", log->part[p].lost));
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void denominators_json(struct fo_json *j, const struct fo_log_account *a)
{
	fo_json_object(j, "shares");
	for (int p = 0; p < FO_PREC_COUNT; p++)
		if (a->shares.of[p] > 0)
			fo_json_real(j, fo_precision_name[p], a->shares.of[p]);
	fo_json_close(j);
	fo_json_array(j, "denominators");
	for (int i = 0; i < a->denominators; i++)
		fo_json_record(j, NULL, FO_TEXT("type", a->denominator[i].type),
			       FO_REAL("peak_tflops", a->denominator[i].tflops),
			       FO_REAL("mfu", a->tflops / a->denominator[i].tflops));
	fo_json_close(j);
}

static void write_json(const struct fo_log_account *a, struct fo_json *j)
{
	const struct fo_log *log = a->log;
	fo_json_text(j, "kind", log->kind.id);
	fo_json_text(j, "log", log->kind.name);
	fo_json_int(j, "lines", (int64_t)log->steps);
	fo_json_int(j, "left_out", (int64_t)log->left_out);
	fo_json_text(j, "timed_by", log->timed_by);
	spread_json(j, "step_seconds", log->time);
	fo_json_put(j, FO_REAL("tokens_per_step", a->tokens), FO_REAL("tokens_per_second_per_device", a->rate),
		    FO_REAL("devices", a->devices), FO_REAL("seq", a->seq), FO_REAL("peak_tflops", a->peak));
	fo_json_text(j, "model", a->model_name);
	fo_json_text(j, "model_from", a->model_from);
	fo_json_real(j, "tflops_per_device", a->tflops);
	double unknown = a->has_model ? 0 : NAN;
	fo_json_put(j, FO_REAL("mtp_modules", (double)a->model.mtp_modules + unknown),
		    FO_REAL("mtp_counted", (double)a->model.mtp_counted + unknown));
	fo_json_text(j, "device", a->device ? a->device->name : NULL);
	fo_json_text(j, "dtype", a->shares.given ? "mixed" : fo_precision_name[a->precision]);
	denominators_json(j, a);
	fo_json_text(j, "first_rule", a->first >= 0 ? fo_log_mfu_name[a->first] : NULL);
	for (int r = 0; r < FO_LOG_MFU_RULES; r++)
		spread_json(j, fo_log_mfu_name[r], a->mfu[r]);
	fo_json_record(j, "flop_per_token", FO_REAL(fo_log_mfu_name[0], a->flop[0]),
		       FO_REAL(fo_log_mfu_name[1], a->flop[1]), FO_REAL(fo_log_mfu_name[2], a->flop[2]),
		       FO_REAL(fo_log_mfu_name[3], a->flop[3]));
	fo_json_object(j, "printed");
	fo_json_put(j, FO_REAL("mfu", a->printed_mfu), FO_REAL("tflops", a->printed_tflops),
		    FO_REAL("flop_per_token", a->printed_flop), FO_REAL("peak_tflops", a->printed_peak));
	fo_json_text(j, "convention", a->convention);
	fo_json_close(j);
	fo_json_record(j, "summary", FO_REAL("seconds", log->summary.seconds), FO_REAL("steps", log->summary.steps),
		       FO_REAL("samples_per_second", log->summary.samples_rate));
	fo_json_record(j, "seconds", FO_REAL("wall", a->wall), FO_REAL("steps", a->training), FO_REAL("lost", a->lost),
		       FO_REAL("other", a->other));
	fo_json_put(j, FO_REAL("tokens_so_far", a->seen_tokens), FO_REAL("steps_left", a->left_steps),
		    FO_REAL("seconds_left", a->left_seconds), FO_REAL("cost_low_usd", a->cost_low),
		    FO_REAL("cost_high_usd", a->cost_high));
	lists_json(j, log);
	fo_json_texts(j, "missing", a->missing, a->missings);
	fo_json_texts(j, "notes", a->note, a->notes);
}

static fo_status write_csv(const struct fo_log_account *a, const char *path)
{
	struct fo_str out = { 0 };
	fo_log_csv(a, &out);
	fo_status st = fo_fs_write_atomic(path, out.data, out.len);
	fo_str_fini(&out);
	return st;
}

static fo_status show(const struct fo_cli_call *call, const struct fo_log_account *a)
{
	const struct fo_cli_mfu *in = call->in;
	struct fo_doc page = { 0 }, *d = call->json || (in->html && !strcmp(in->html, "-")) ? &page : call->doc;
	if (!call->json || in->html)
		fo_log_document(d, a, (const char *const *)call->argv + 1, (size_t)call->argc - 1);
	if (call->json)
		write_json(a, call->json);
	fo_status st = in->html ? fo_cli_page(d, in->html) : FO_OK;
	if (st == FO_OK && in->csv)
		st = write_csv(a, in->csv);
	fo_doc_fini(&page);
	return st;
}

fo_status fo_cli_mfu_log(const struct fo_cli_call *call)
{
	const struct fo_cli_mfu *in = call->in;
	const struct fo_log_given given = { .model = in->model,
					    .device = in->device,
					    .devices_file = in->devices_file,
					    .dtype = fo_opt_given(call->options, "mfu.dtype") ? in->dtype : NULL,
					    .share = in->share,
					    .devices = (double)in->devices,
					    .seq = (double)in->seq,
					    .tokens_per_step = in->tokens_per_step,
					    .batch = (double)in->batch,
					    .params = in->params,
					    .mtp = in->mtp,
					    .rent = in->rent,
					    .planned = in->tokens };
	struct fo_log log;
	struct fo_log_account a = { 0 };
	fo_status st = fo_log_read((const char *const *)call->argv + 1, (size_t)call->argc - 1, &log);
	if (st == FO_OK)
		st = fo_log_account(&log, &given, &a);
	if (st == FO_OK)
		st = show(call, &a);
	bool known = a.first >= 0 || !isnan(a.printed_mfu) || !isnan(a.printed_tflops / a.peak);
	fo_log_account_fini(&a);
	fo_log_fini(&log);
	return st == FO_OK && !known ? fo_cli_found() : st;
}
