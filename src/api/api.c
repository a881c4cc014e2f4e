/* The functions of include/flatout.h for errors, models and peaks (meter.c has the meter's). Each checks what comes
 * from outside and hands the work to the module that also serves the commands. */
#include "api/api_int.h"

#include "base/mem.h"
#include "base/str.h"
#include "fo_version.h"
#include "hw/catalogue.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The numbers are part of the binary interface; a call can return these. */
_Static_assert((int)FLATOUT_OK == FO_OK && (int)FLATOUT_EARG == FO_EARG && (int)FLATOUT_EFORMAT == FO_EFORMAT, "");
_Static_assert((int)FLATOUT_EIO == FO_EIO && (int)FLATOUT_ENOMEM == FO_ENOMEM, "");
_Static_assert((int)FLATOUT_EUNSUPPORTED == FO_EUNSUPPORTED && (int)FLATOUT_EBUG == FO_EBUG, "");

/* Copies, because the library's own next call may use fo_fail() without failing itself. */
static _Thread_local char error_text[2048], error_hint[512];

flatout_status fo_api_failed(fo_status st)
{
	fo_str_visible(error_text, sizeof(error_text), fo_err_text());
	fo_str_visible(error_hint, sizeof(error_hint), fo_err_hint());
	return (flatout_status)st;
}

flatout_status fo_api_wrong(const char *fmt, ...)
{
	char text[256];
	va_list args;
	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	return fo_api_failed(fo_fail(FO_EARG, "%s", text));
}

const char *flatout_version(void) { return FO_VERSION; }
const char *flatout_error(void) { return error_text; }
const char *flatout_hint(void) { return error_hint; }

int flatout_preset_count(void) { return fo_model_preset_count(); }

const char *flatout_preset_name(int i)
{
	return i >= 0 && i < fo_model_preset_count() ? fo_model_preset(i)->name : NULL;
}

/* Makes a handle for a model that was read, or passes on the error of reading it. */
static flatout_status give(fo_status st, const struct fo_model *m, flatout_model **out)
{
	if (st != FO_OK)
		return fo_api_failed(st);
	*out = fo_xmalloc(sizeof(**out));
	(*out)->m = *m;
	return FLATOUT_OK;
}

flatout_status flatout_model_load(const char *name, flatout_model **out)
{
	struct fo_model m;
	if (!out)
		return fo_api_wrong("flatout_model_load: no place for the model: 'out' is NULL");
	*out = NULL;
	if (!name)
		return fo_api_wrong("flatout_model_load: 'name' is NULL");
	return give(fo_model_load(name, &m), &m, out);
}

flatout_status flatout_model_parse(const char *json, size_t bytes, flatout_model **out)
{
	struct fo_model m;
	if (!out)
		return fo_api_wrong("flatout_model_parse: no place for the model: 'out' is NULL");
	*out = NULL;
	if (!json)
		return fo_api_wrong("flatout_model_parse: 'json' is NULL");
	return give(fo_model_parse(json, bytes, "config.json", &m), &m, out);
}

void flatout_model_free(flatout_model *model) { free(model); }
const char *flatout_model_name(const flatout_model *model) { return model ? model->m.name : NULL; }

double flatout_model_parameters(const flatout_model *model, flatout_parameters which)
{
	if (!model)
		return fo_api_nan("flatout_model_parameters: 'model' is NULL");
	struct fo_params p = fo_model_params(&model->m);
	switch (which) {
	case FLATOUT_TOTAL: return p.total;
	case FLATOUT_ACTIVE: return p.active;
	case FLATOUT_MATMUL: return p.matmul;
	case FLATOUT_EMBEDDING: return p.embedding;
	}
	return fo_api_nan("flatout_model_parameters: %d is none of the flatout_parameters", (int)which);
}

double fo_api_by_rule(const char *function, flatout_rule rule, double mfu, double mfu_causal, double mfu_6n)
{
	switch (rule) {
	case FLATOUT_MFU: return mfu;
	case FLATOUT_MFU_CAUSAL: return mfu_causal;
	case FLATOUT_MFU_6N: return mfu_6n;
	}
	return fo_api_nan("%s: %d is no flatout_rule", function, (int)rule);
}

double flatout_model_flop_per_token(const flatout_model *model, int64_t seq, flatout_rule rule)
{
	if (!model)
		return fo_api_nan("flatout_model_flop_per_token: 'model' is NULL");
	if (seq < 1 || seq > FO_API_MAX)
		return fo_api_nan("flatout_model_flop_per_token: seq is %lld, expected 1 to %lld tokens",
				  (long long)seq, (long long)FO_API_MAX);
	struct fo_flop f = fo_model_flop_per_token(&model->m, seq);
	return fo_api_by_rule("flatout_model_flop_per_token", rule, f.mfu, f.mfu_causal, f.mfu_6n);
}

flatout_status flatout_device_peak(const char *device, const char *dtype, double *peak_flop_s, char *source,
				   size_t source_bytes)
{
	struct fo_catalogue c;
	const struct fo_device *d;
	enum fo_precision precision;
	double tflop_s;
	if (!device)
		return fo_api_wrong("flatout_device_peak: 'device' is NULL");
	if (!dtype)
		return fo_api_wrong("flatout_device_peak: 'dtype' is NULL");
	if (!peak_flop_s)
		return fo_api_wrong("flatout_device_peak: 'peak_flop_s' is NULL");
	fo_status st = fo_precision_parse(dtype, &precision);
	if (st == FO_OK)
		st = fo_catalogue_load(&c, NULL);
	if (st != FO_OK)
		return fo_api_failed(st);
	FO_TRY_OR(st, fo_catalogue_find(&c, device, &d), done);
	FO_TRY_OR(st, fo_device_peak(d, precision, &tflop_s), done);
	*peak_flop_s = tflop_s * 1e12;
	if (source && source_bytes > 0)
		snprintf(source, source_bytes, "%s%s%s", d->source, *d->date ? ", " : "", d->date);
done:
	fo_catalogue_fini(&c);
	return st == FO_OK ? FLATOUT_OK : fo_api_failed(st);
}
