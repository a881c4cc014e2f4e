#include "train/device.h"

#include "hw/catalogue.h"
#include "kernel/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* An open device that is not a software device; *why: the last reason against one that the driver shows. */
static struct fo_cuda *first_that_opens(char *why, size_t size)
{
	int n = fo_cuda_count();
	for (int i = 0; i < n; i++) {
		struct fo_cuda *c;
		if (fo_cuda_open(&c, i) != FO_OK) {
			snprintf(why, size, "%s", fo_err_text());
			fo_err_clear();
			continue;
		}
		if (!fo_cuda_info(c)->software) {
			*why = 0;
			return c;
		}
		fo_cuda_close(c);
	}
	return NULL;
}

fo_status fo_device_open(const char *text, struct fo_cuda **out, char *why, size_t size)
{
	enum fo_run_device kind;
	int index;
	*out = NULL;
	*why = 0;
	if (!fo_run_device_parse(text, &kind, &index)) {
		char shown[64];
		return fo_fail(FO_EARG, "the device must be " FO_RUN_DEVICES ", got '%s'",
			       fo_str_visible(shown, sizeof shown, text));
	}
	if (kind == FO_RUN_DEVICE_AUTO)
		*out = first_that_opens(why, size);
	if (kind != FO_RUN_DEVICE_CUDA)
		return FO_OK;
	fo_status st = fo_cuda_open(out, index);
	return st == FO_OK || *fo_err_hint()
		       ? st
		       : fo_hint(st, "'flatout devices --local' says what is there and what is missing");
}

/* Indexed by the values of train.tune. */
static const struct {
	const char *name;
	enum fo_cuda_tune_mode mode;
} tune[] = {
	[FO_RUN_TUNE_ON] = { "on", FO_CUDA_TUNE_ON },
	[FO_RUN_TUNE_KEPT] = { "kept", FO_CUDA_TUNE_KEPT },
	[FO_RUN_TUNE_OFF] = { "off", FO_CUDA_TUNE_OFF },
	[FO_RUN_TUNE_LONG] = { "long", FO_CUDA_TUNE_LONG },
};

fo_status fo_device_tune(struct fo_cuda *c, const struct fo_run *r)
{
	struct fo_arena a = { 0 };
	enum fo_cuda_tune_mode mode = tune[r ? r->tune : FO_RUN_TUNE_KEPT].mode;
	fo_status st = fo_cuda_tune_set(c, mode, mode == FO_CUDA_TUNE_OFF ? NULL : fo_cuda_tune_path(&a));
	fo_arena_fini(&a);
	return st;
}

void fo_device_tuned_json(const struct fo_cuda_tuned *t, const struct fo_run *r, struct fo_json *j)
{
	fo_json_text(j, "mode", tune[r->tune].name);
	fo_json_int(j, "measured", t->measured);
	fo_json_int(j, "by_blocks", t->by_blocks);
	fo_json_int(j, "by_energy", t->by_energy);
	fo_json_int(j, "kept", t->kept);
	fo_json_int(j, "proposed", t->proposed);
	fo_json_real(j, "seconds", t->seconds);
	fo_json_real(j, "gain", t->gain);
	fo_json_text(j, "note", *t->note ? t->note : NULL);
}

void fo_train_peak(struct fo_cuda *c, enum fo_numerics precision, int threads, struct fo_peak *out)
{
	if (c)
		fo_device_find_peak(fo_cuda_info(c), precision, out);
	else
		fo_calibrate_find_peak(precision, threads, out);
}

void fo_device_find_peak(const struct fo_cuda_device *d, enum fo_numerics precision, struct fo_peak *out)
{
	struct fo_catalogue c;
	const enum fo_precision p = precision == FO_PRECISION_BF16 ? FO_PREC_BF16 : FO_PREC_FP32;
	*out = (struct fo_peak){ 0 };
	snprintf(out->dtype, sizeof out->dtype, "%s", fo_precision_name[p]);
	if (d->software) {
		snprintf(out->source, sizeof out->source, "a software device has no peak");
		return;
	}
	if (fo_catalogue_load(&c, NULL) != FO_OK) {
		snprintf(out->source, sizeof out->source, "%s", fo_err_text());
		fo_err_clear();
		return;
	}
	const struct fo_device *row = fo_device_match(&c, d->name, d->multiprocessors, d->memory_bytes);
	if (!row || isnan(row->dense[p])) {
		snprintf(out->source, sizeof out->source,
			 "%s is not in the catalogue%s: name a file with its peak in FLATOUT_DEVICES", d->name,
			 row ? " with such a peak" : "");
	} else {
		out->flop_s = row->dense[p] * 1e12;
		snprintf(out->source, sizeof out->source, "published dense peak of %s", row->name);
	}
	fo_catalogue_fini(&c);
}

struct fo_choose_rates fo_device_choose_rates(const struct fo_cuda_device *d, enum fo_numerics precision)
{
	struct fo_catalogue c;
	if (fo_catalogue_load(&c, NULL) != FO_OK) {
		fo_err_clear();
		return fo_choose_device(NULL, precision);
	}
	struct fo_choose_rates rates = fo_choose_device(
		fo_device_match(&c, d->name, d->multiprocessors, d->memory_bytes), precision);
	fo_catalogue_fini(&c);
	return rates;
}

double fo_device_clock_of_peak(const struct fo_cuda_device *d, enum fo_numerics precision, double flop_s)
{
	static const struct {
		int major, minor;
		double bf16, fp32;
	} row[] = { { 8, 0, 2048, 128 }, { 9, 0, 4096, 256 }, { 10, 0, 8192, 256 } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (row[i].major == d->cc_major && row[i].minor == d->cc_minor && d->multiprocessors > 0 &&
		    flop_s > 0 && !d->software)
			return flop_s /
			       (d->multiprocessors * (precision == FO_PRECISION_BF16 ? row[i].bf16 : row[i].fp32));
	return NAN;
}

struct fo_mfu_split fo_device_split(const struct fo_cuda_device *d, enum fo_numerics precision,
				    const struct fo_mfu *mfu, double peak_flop_s, const struct fo_nvml_use *u)
{
	return fo_mfu_split_of(mfu, u, fo_device_clock_of_peak(d, precision, peak_flop_s),
			       precision == FO_PRECISION_BF16 ? NULL : "the peak of fp32 is that of the vector units");
}
