#include "cost/device_profile.h"
#include "base/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_device_class_name[FO_DEVICE_CLASSES] = { "bf16 products",      "fp8 products",  "attention",
							      "attention backward", "fused kernels", "streams" };

/* What bench_gpu's calls, each alone and synchronised, miss of a step's heat: 790 TFLOP/s in bursts, 744 at the clock
 * that was held. */
#define SUSTAINED (790. / 744)
enum { LINE_SHOWN = 60 };

struct reader {
	struct fo_device_profile *f;
	const char *where;
	int line;
};

static fo_status wrong(const struct reader *r, const char *what)
{
	return fo_fail(FO_EFORMAT,
		       "line %d of '%s' %s: it is not what 'bench/gpu/run ceilings' leaves, or not the whole of it",
		       r->line, r->where, what);
}

/* A number above 0; 0: it is none. */
static double number(const json_t *o, const char *key)
{
	double x = json_number_value(json_object_get(o, key));
	return isfinite(x) && x > 0 ? x : 0;
}

static void copy_text(char *out, size_t size, const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));
	fo_str_visible(out, size, s ? s : "");
}

static int class_of(const char *kind, const char *category, const char *operands)
{
	if (!strcmp(kind, "matmul"))
		return strstr(operands, fo_dtype_name[FO_E4M3])   ? FO_DEVICE_PRODUCT_FP8
		       : strstr(operands, fo_dtype_name[FO_BF16]) ? FO_DEVICE_PRODUCT
								  : -1;
	if (!strcmp(kind, "attention"))
		return FO_DEVICE_ATTENTION;
	if (!strcmp(kind, "attention_bwd") || !strcmp(kind, "attention_bwd_rope"))
		return FO_DEVICE_ATTENTION_BACKWARD;
	if (!strcmp(category, fo_category_name[FO_CAT_ELEMENTWISE]))
		return FO_DEVICE_FUSED;
	if (!strcmp(category, fo_category_name[FO_CAT_OPTIMIZER]))
		return FO_DEVICE_STREAM;
	return -1; /* the loss reads more often than its bytes say */
}

/* The header says what is taken. */
static struct fo_interval seconds_of(double best, double median, double block, bool heats)
{
	if (!heats)
		return (struct fo_interval){ best, median, median };
	if (!(block > 0))
		return (struct fo_interval){ best, median, median * SUSTAINED };
	return (struct fo_interval){ fmin(best, block), block, fmax(median, block) };
}

static fo_status take_operation(struct reader *r, const json_t *o)
{
	struct fo_device_profile *f = r->f;
	const char *kind = json_string_value(json_object_get(o, "operation"));
	const char *category = json_string_value(json_object_get(o, "category"));
	const char *operands = json_string_value(json_object_get(o, "operands"));
	const char *key = json_string_value(json_object_get(o, "key"));
	double median = number(o, "us_median") * 1e-6, best = number(o, "us_best") * 1e-6, count = number(o, "count");
	char *end = NULL;
	struct fo_device_row row = { .key = key ? strtoull(key, &end, 16) : 0 };
	if (!kind || !category || !operands || !(median > 0) || !(best > 0) || best > median || !(count > 0))
		return wrong(r, "lacks a figure of an operation");
	if (!row.key || *end)
		return wrong(r, "lacks the operation's key, which bench_gpu prints");
	if (f->rows >= FO_DEVICE_PROFILE_MAX_ROWS)
		return wrong(r, "is one too many");
	int k = fo_op_kind_find(kind), c = class_of(kind, category, operands);
	bool heats = k >= 0 && fo_op_info((enum fo_op_kind)k)->cls == FO_CLASS_TENSOR;
	row.seconds = seconds_of(best, median, number(o, "us_block") * 1e-6, heats);
	fo_array_room(&f->row, &f->cap, f->rows, sizeof *f->row);
	f->row[f->rows++] = row;
	double work = median * (number(o, "tflop_s") * 1e12 + number(o, "gb_s") * 1e9);
	if (c < 0 || !(work > 0))
		return FO_OK;
	f->class_sum[c].work += count * work;
	fo_interval_add(&f->class_sum[c].seconds, row.seconds, count);
	return FO_OK;
}

/* A file may hold several parts, of one device. */
static fo_status take_header(struct reader *r, const json_t *o)
{
	char device[sizeof r->f->device];
	copy_text(device, sizeof device, o, "device");
	if (!*device || (*r->f->device && strcmp(device, r->f->device)))
		return *device ? wrong(r, "begins the figures of another device") : wrong(r, "names no device");
	snprintf(r->f->device, sizeof r->f->device, "%s", device);
	copy_text(r->f->model, sizeof r->f->model, o, "model");
	r->f->seq = (int64_t)number(o, "seq");
	r->f->expected += (int)number(o, "distinct_operations");
	return FO_OK;
}

static fo_status take_line(struct reader *r, const json_t *o)
{
	const char *ceiling = json_string_value(json_object_get(o, "ceiling"));
	if (json_object_get(o, "failed"))
		return FO_OK; /* of the script: what was measured before counts */
	if (json_object_get(o, "device"))
		return take_header(r, o);
	if (!*r->f->device && (ceiling || json_object_get(o, "operation")))
		return wrong(r, "comes before a device is named");
	return json_object_get(o, "operation") ? take_operation(r, o) : FO_OK;
}

static fo_status take_text(struct reader *r, const char *text, size_t len)
{
	for (size_t at = 0; at < len;) {
		const char *end = memchr(text + at, '\n', len - at);
		size_t n = end ? (size_t)(end - (text + at)) : len - at;
		json_error_t why;
		r->line++;
		if (n) {
			json_t *o = json_loadb(text + at, n, JSON_REJECT_DUPLICATES, &why);
			fo_status st = json_is_object(o) ? take_line(r, o) : wrong(r, "is no JSON object");
			json_decref(o);
			if (st != FO_OK)
				return st;
		}
		at += n + 1;
	}
	return FO_OK;
}

fo_status fo_device_profile_parse(const char *text, size_t len, const char *where, struct fo_device_profile *f)
{
	struct reader r = { f, where, 0 };
	*f = (struct fo_device_profile){ 0 };
	fo_status st = take_text(&r, text, len);
	if (st == FO_OK && !f->rows)
		st = fo_fail(FO_EFORMAT,
			     "'%s' holds no operation of a device: it is not what 'bench/gpu/run ceilings' leaves",
			     where);
	if (st != FO_OK)
		fo_device_profile_fini(f);
	return st;
}

fo_status fo_device_profile_read(const char *path, struct fo_device_profile *f)
{
	struct fo_arena a = { 0 };
	char *text;
	size_t len;
	fo_status st = fo_fs_read(&a, path, FO_DEVICE_PROFILE_MAX_BYTES, &text, &len);
	if (st == FO_OK)
		st = fo_device_profile_parse(text, len, path, f);
	fo_arena_fini(&a);
	return st;
}

void fo_device_profile_fini(struct fo_device_profile *f)
{
	free(f->row);
	*f = (struct fo_device_profile){ 0 };
}

bool fo_device_profile_find(const struct fo_device_profile *f, uint64_t key, struct fo_interval *seconds)
{
	for (size_t i = f->rows; i-- > 0;)
		if (f->row[i].key == key) {
			*seconds = f->row[i].seconds;
			return true;
		}
	return false;
}

fo_status fo_device_rates_measured(struct fo_device_rates *r, const struct fo_catalogue *c,
				   const struct fo_device_profile *f)
{
	const struct fo_device *d = fo_device_match(c, f->device, 0, 0);
	if (!d || strcmp(d->name, r->name))
		return fo_hint(
			fo_fail(FO_EARG, "the profile was measured on '%s', which is not %s", f->device, r->name),
			"give the profile of that device, or none: then the catalogue's figures count");
	r->profile = f;
	for (int k = 0; k < FO_DEVICE_CLASSES; k++) {
		double work = f->class_sum[k].work, keys0 = r->keys0[k == FO_DEVICE_ATTENTION_BACKWARD];
		bool attention = k == FO_DEVICE_ATTENTION || k == FO_DEVICE_ATTENTION_BACKWARD;
		if (!(work > 0))
			continue;
		const struct fo_interval t = f->class_sum[k].seconds;
		if (!(t.low > 0) || work / t.low > r->most[k])
			return fo_hint(fo_fail(FO_EFORMAT,
					       "the profile's %s reach %.4g %s, and %s has %.4g at most: its figures "
					       "cannot be right",
					       fo_device_class_name[k], work / t.low * 1e-12,
					       k < FO_DEVICE_FUSED ? "TFLOP/s" : "TB/s", r->name, r->most[k] * 1e-12),
				       "measure it anew ('bench/gpu/run ceilings'), or predict without that file");
		if (attention) /* of rows of this length; the class's is of rows without end */
			work *= 1 + (f->seq > 0 ? keys0 / (double)f->seq : 0);
		r->rate[k] = (struct fo_interval){ work / t.high, work / t.mid, work / t.low };
		r->origin[k] = "the mean of the profile's operations of this class";
	}
	return FO_OK;
}
