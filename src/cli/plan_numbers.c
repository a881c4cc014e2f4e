/* Reads --precision and --state of flatout plan: the number types and the formats of states that are searched. */
#include "cli/plan.h"
#include "cli/plan_fix.h"

#include <math.h>
#include <string.h>

enum { TYPES = FO_PLAN_HALF + 1 };
#define BIT(i) (1u << (i))

static const char *type_name(int type) { return type == FO_PLAN_HALF ? "fp16" : fo_predict_type_name[type]; }
static const char *format_name(int format) { return fo_predict_format_row[format].name; }

int fo_cli_plan_precision(int type)
{
	const char *name = type_name(type), *p = FO_CLI_TYPES;
	const size_t len = strlen(name);
	for (int i = 0;; i++) {
		const size_t n = strcspn(p, "|");
		if (n == len && !strncmp(p, name, n))
			return i;
		p += n + (p[n] == '|');
	}
}

/* "bf16, fp8" of bits; the names of a table of `count`. */
static void names_of(struct fo_str *out, uint32_t bits, int count, const char *(*name)(int))
{
	for (int i = 0; i < count; i++)
		if (bits & BIT(i) && *name(i))
			fo_str_printf(out, "%s%s", out->len ? ", " : "", name(i));
}

struct list {
	const char *option, *text, *two; /* two: an example */
	int count;                       /* of names */
	const char *(*name)(int);
};

static fo_status unknown(const struct list *l, const char *word, size_t len)
{
	struct fo_str all = { 0 };
	char seen[48];
	snprintf(seen, sizeof seen, "%.*s", (int)len, word);
	names_of(&all, ~0u, l->count, l->name);
	const fo_status st = fo_hint(
		fo_fail(FO_EARG, "--%s: '%s' is none of %s, any", l->option, fo_cli_seen(seen), all.data),
		"--%s=%s searches both, any all that the framework and the device have", l->option, l->two);
	fo_str_fini(&all);
	return st;
}

static fo_status read_list(const struct list *l, uint32_t *bits, bool *any)
{
	for (const char *p = l->text; p; p = *p ? p + 1 : NULL) {
		const size_t n = strcspn(p, ",");
		int i = 0;
		while (i < l->count && (strlen(l->name(i)) != n || !n || strncmp(l->name(i), p, n) != 0))
			i++;
		if (i < l->count)
			*bits |= BIT(i);
		else if (n == 3 && !strncmp(p, "any", n))
			*any = true;
		else
			return unknown(l, p, n);
		p += n;
	}
	return FO_OK;
}

fo_status fo_cli_plan_numbers(const char *types, const char *formats, struct fo_cli_numbers *o)
{
	const struct list type = { "precision", types, "bf16,fp8", TYPES, type_name },
			  format = { "state", formats, "fp32,bf16", FO_PREDICT_FORMATS, format_name };
	*o = (struct fo_cli_numbers){ 0 };
	FO_TRY(read_list(&type, &o->types, &o->any_type));
	FO_TRY(read_list(&format, &o->formats, &o->any_format));
	/* Gradients of a job in fp16 are kept otherwise, and other types would be counted with them. */
	if (o->types & BIT(FO_PLAN_HALF) && (o->any_type || o->types & ~BIT(FO_PLAN_HALF)))
		return fo_hint(fo_fail(FO_EARG,
				       "--precision=%s: fp16 is searched beside no other type, for its job keeps "
				       "gradients otherwise",
				       fo_cli_seen(types)),
			       "name one of them, or plan twice and compare");
	return FO_OK;
}

/* ---- what framework and device have ---- */

/* Types that are no wider than bf16: what "any" asks for. */
static uint32_t narrow(const struct fo_plan_asked *a)
{
	uint32_t bits = 0;
	for (int t = FO_PREDICT_BF16; t <= FO_PREDICT_FP4; t++)
		if (a->framework->types & BIT(t) && fo_plan_has_type(&a->base.job.machine, t))
			bits |= BIT(t);
	return bits;
}

static fo_status lacks(const char *option, const char *who, const char *name, uint32_t has, int count,
		       const char *(*names)(int))
{
	struct fo_str all = { 0 };
	names_of(&all, has, count, names);
	const fo_status st = fo_hint(fo_fail(FO_EARG, "--%s: %s has no %s that plan can ask for", option, who, name),
				     "it has %s", all.data ? all.data : "none");
	fo_str_fini(&all);
	return st;
}

static fo_status take_types(const struct fo_cli_numbers *n, struct fo_plan_asked *a)
{
	const struct fo_predict_machine *m = &a->base.job.machine;
	uint32_t device = 0, bits = n->types;
	for (int t = 0; t < FO_PREDICT_TYPES; t++)
		device |= fo_plan_has_type(m, t) ? BIT(t) : 0;
	if (device & BIT(FO_PREDICT_BF16)) /* its rate is that of fp16 */
		device |= BIT(FO_PLAN_HALF);
	for (int t = 0; t < TYPES; t++) {
		if (!(bits & BIT(t)))
			continue;
		if (!(a->framework->types & BIT(t)))
			return lacks("precision", a->framework->title, type_name(t), a->framework->types & device,
				     TYPES, type_name);
		if (!(device & BIT(t)))
			return lacks("precision", m->name, type_name(t), a->framework->types & device, TYPES,
				     type_name);
	}
	if (n->any_type)
		bits |= narrow(a);
	if (bits & BIT(FO_PLAN_HALF)) /* the job's own, which has the place of bf16 */
		bits = (bits & ~BIT(FO_PLAN_HALF)) | BIT(FO_PREDICT_BF16);
	a->types = bits;
	return FO_OK;
}

/* The job's own format has a place of its own. */
static uint32_t own_format(const struct fo_plan_asked *a, uint32_t bits)
{
	const struct fo_predict_job *j = &a->base.job;
	enum fo_predict_format own = j->format;
	if (own == FO_PREDICT_FORMAT_JOB && fo_memory_plain_states(&a->base.memory.ways))
		own = FO_PREDICT_FORMAT_FP32;
	if (own == FO_PREDICT_FORMAT_JOB || !(bits & BIT(own)))
		return bits;
	return (bits & ~BIT(own)) | BIT(FO_PREDICT_FORMAT_JOB);
}

static fo_status take_formats(const struct fo_cli_numbers *n, struct fo_plan_asked *a)
{
	uint32_t bits = n->formats, all = a->framework->formats & ~BIT(FO_PREDICT_FORMAT_JOB);
	for (int f = 0; f < FO_PREDICT_FORMATS; f++)
		if (bits & BIT(f) & ~all)
			return lacks("state", a->framework->title, format_name(f), all, FO_PREDICT_FORMATS,
				     format_name);
	if (n->any_format)
		bits |= all;
	/* Formats that compute the same numbers need no leave. */
	if (!bits && a->base.job.format == FO_PREDICT_FORMAT_JOB && fo_memory_plain_states(&a->base.memory.ways))
		for (int f = 0; f < FO_PREDICT_FORMATS; f++)
			bits |= fo_predict_format_row[f].exact ? all & BIT(f) : 0;
	a->formats = own_format(a, bits);
	return FO_OK;
}

fo_status fo_cli_plan_take_numbers(const struct fo_cli_numbers *n, struct fo_plan_asked *a)
{
	if (a->base.job.lora && n->formats)
		return fo_fail(FO_EARG, "--state: frozen weights have no optimizer states");
	FO_TRY(take_types(n, a));
	return a->base.job.lora ? FO_OK : take_formats(n, a);
}
