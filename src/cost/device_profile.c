#include "cost/device_profile.h"
#include "base/fs.h"
#include "base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_device_class_name[FO_DEVICE_CLASSES] = { "bf16 matmuls",       "fp8 matmuls",   "attention",
							      "attention backward", "fused kernels", "streams" };

/* bench_gpu makes each call alone and synchronised, so the device is cooler than in a step: 790 TFLOP/s in bursts, 744
 * at the clock that it can hold. */
#define SUSTAINED (790. / 744)
enum { LINE_SHOWN = 60 };

struct reader {
	struct fo_device_profile *f;
	const char *where;
	int line;
	struct fo_arena arena; /* texts of the lines */
};

static fo_status wrong(const struct reader *r, const char *what)
{
	return fo_fail(FO_EFORMAT,
		       "line %d of '%s' %s: it is not what 'bench/gpu/run ceilings' leaves, or not the whole of it",
		       r->line, r->where, what);
}

#define OPERATION(m, ...) FO_FIELD(struct fo_device_operation, m, __VA_ARGS__)
#define POSITIVE .low = 0x1p-1022, .high = 1e308
static const struct fo_schema_field operation_field[] = {
	OPERATION(operation, "operation", "", "its kind"),
	OPERATION(key, "key", "", "its signature ([simulator.md](simulator.md)), sixteen hexadecimal digits"),
	OPERATION(category, "category", "", "category of the kind ([ops.md](ops.md))"),
	OPERATION(count, "count", "", "how often a step has it", POSITIVE),
	OPERATION(us_median, "us_median", "us", "median of single calls", POSITIVE),
	OPERATION(us_best, "us_best", "us", "best of single calls", POSITIVE),
	OPERATION(us_block, "us_block", "us", "of calls without a pause; 0, null or absent: not measured", POSITIVE),
	OPERATION(times, "times", "", "single calls measured"),
	OPERATION(tflop_s, "tflop_s", "TFLOP/s", "at the median; of matmuls and attention", POSITIVE, .flags = FO_OMIT),
	OPERATION(gb_s, "gb_s", "GB/s", "at the median; of all others", POSITIVE, .flags = FO_OMIT),
	OPERATION(tflop_s_block, "tflop_s_block", "TFLOP/s", "without a pause", POSITIVE, .flags = FO_OMIT),
	OPERATION(gb_s_block, "gb_s_block", "GB/s", "without a pause", POSITIVE, .flags = FO_OMIT),
	OPERATION(of_ceiling, "of_ceiling", "share", "of the measured ceiling, at the median"),
	OPERATION(ms_per_step, "ms_per_step", "ms", "median times count"),
	OPERATION(operands, "operands", "", "rows x columns and type of each"),
};
const struct fo_schema fo_device_operation_schema = { "ceilings.operation", "operation of a device",
						      FO_FIELDS(struct fo_device_operation, operation_field) };

#define HEADER(m, ...) FO_FIELD(struct fo_device_header, m, __VA_ARGS__)
static const struct fo_schema_field header_field[] = {
	HEADER(device, "device", "", "as its driver calls it"),
	HEADER(compute_capability, "compute_capability", "", "of the device"),
	HEADER(model, "model", "", "whose step it is", .flags = FO_OMIT),
	HEADER(seq, "seq", "", "tokens of a row", .flags = FO_OMIT),
	FO_FIELD_AS(RAW, struct fo_device_header, choice, "choice", "", "what was chosen to fit the device's memory",
		    .flags = FO_OMIT | FO_WRITE_ONLY),
	HEADER(distinct_operations, "distinct_operations", "", "that follow; fewer: it was ended early",
	       .flags = FO_OMIT, .high = 1 << 30),
};
const struct fo_schema fo_device_header_schema = { "ceilings.device", "operations of a device",
						   FO_FIELDS(struct fo_device_header, header_field) };

/* Class of an operation, by which the rates of operations that were not measured are scaled; -1: none. */
static int class_of(const char *kind, const char *category, const char *operands)
{
	if (!strcmp(kind, "matmul") && strstr(operands, fo_dtype_name[FO_E4M3]))
		return FO_DEVICE_PRODUCT_FP8;
	if (!strcmp(kind, "matmul"))
		return strstr(operands, fo_dtype_name[FO_BF16]) ? FO_DEVICE_PRODUCT : -1;
	if (!strcmp(kind, "attention"))
		return FO_DEVICE_ATTENTION;
	if (!strcmp(kind, "attention_bwd") || !strcmp(kind, "attention_bwd_rope"))
		return FO_DEVICE_ATTENTION_BACKWARD;
	if (!strcmp(category, fo_category_name[FO_CAT_ELEMENTWISE]))
		return FO_DEVICE_FUSED;
	if (!strcmp(category, fo_category_name[FO_CAT_OPTIMIZER]))
		return FO_DEVICE_STREAM;
	return -1; /* the loss reads its operands more often than its bytes say */
}

/* Seconds of a call in a step; device_profile.h gives the rule. */
static struct fo_interval seconds_of(double best, double median, double block, bool heats)
{
	if (!heats)
		return (struct fo_interval){ best, median, median };
	if (!(block > 0))
		return (struct fo_interval){ best, median, median * SUSTAINED };
	return (struct fo_interval){ fmin(best, block), block, fmax(median, block) };
}

static fo_status take_operation(struct reader *r, const json_t *object)
{
	struct fo_device_profile *f = r->f;
	struct fo_schema_reader lenient = { .arena = &r->arena, .lenient = true };
	struct fo_device_operation o;
	char *end = NULL;
	fo_schema_blank(&fo_device_operation_schema, &o);
	o.operands = NULL; /* a text that may be empty, but not absent */
	fo_schema_read(&fo_device_operation_schema, object, &o, &lenient);
	struct fo_device_row row = { .key = strtoull(o.key, &end, 16) };
	double median = o.us_median * 1e-6, best = o.us_best * 1e-6;
	if (!*o.operation || !*o.category || !o.operands || !(best <= median) || !(o.count > 0))
		return wrong(r, "lacks a figure of an operation");
	if (!row.key || *end)
		return wrong(r, "lacks the operation's key, which bench_gpu prints");
	if (f->rows >= FO_DEVICE_PROFILE_MAX_ROWS)
		return wrong(r, "is one too many");
	int k = fo_op_kind_find(o.operation), c = class_of(o.operation, o.category, o.operands);
	bool heats = k >= 0 && fo_op_info((enum fo_op_kind)k)->cls == FO_CLASS_TENSOR;
	row.seconds = seconds_of(best, median, o.us_block * 1e-6, heats);
	fo_array_room(&f->row, &f->cap, f->rows, sizeof *f->row);
	f->row[f->rows++] = row;
	double work = median * (isnan(o.tflop_s) ? o.gb_s * 1e9 : o.tflop_s * 1e12);
	if (c < 0 || !(work > 0))
		return FO_OK;
	f->class_sum[c].work += o.count * work;
	fo_interval_add(&f->class_sum[c].seconds, row.seconds, o.count);
	return FO_OK;
}

/* A file may hold several parts, of one device. */
static fo_status take_header(struct reader *r, const json_t *object)
{
	struct fo_schema_reader lenient = { .arena = &r->arena, .lenient = true };
	struct fo_device_profile *f = r->f;
	struct fo_device_header h;
	char device[sizeof f->device];
	fo_schema_blank(&fo_device_header_schema, &h);
	fo_schema_read(&fo_device_header_schema, object, &h, &lenient);
	fo_str_visible(device, sizeof device, h.device);
	if (!*device)
		return wrong(r, "names no device");
	if (*f->device && strcmp(device, f->device) != 0)
		return wrong(r, "begins the figures of another device");
	memcpy(f->device, device, sizeof device);
	fo_str_visible(f->model, sizeof f->model, h.model);
	f->seq = h.seq;
	f->expected += (int)h.distinct_operations;
	return FO_OK;
}

static fo_status take_line(struct reader *r, const json_t *o)
{
	if (json_object_get(o, "failed"))
		return FO_OK; /* of the script: what was measured before counts */
	if (json_object_get(o, "device"))
		return take_header(r, o);
	if (!*r->f->device && (json_is_string(json_object_get(o, "ceiling")) || json_object_get(o, "operation")))
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
	struct reader r = { .f = f, .where = where };
	*f = (struct fo_device_profile){ 0 };
	fo_status st = take_text(&r, text, len);
	fo_arena_fini(&r.arena);
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
