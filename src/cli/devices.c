/* flatout devices: the catalogue of accelerators. */
#include "cli/cli.h"

#include "hw/catalogue.h"

#include <stdlib.h>
#include <string.h>

struct devices {
	const char *devices_file;
	bool local, force;
	const char *json;
};

static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct devices, devices_file, "devices.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_BOOL(struct devices, local, "devices.local", "false",
		    "what this machine has: devices, NVIDIA's libraries, and what is missing"),
	FO_CLI_OUTPUT_ROWS(struct devices, "devices", "JSON on standard output")
};

/* A device's numbers beside its peaks: one table for text and JSON. */
static const struct {
	const char *key, *title, *unit;
	size_t offset;
} facts[] = {
	{ "memory_gb", "memory", "GB", offsetof(struct fo_device, memory_gb) },
	{ "memory_usable_gb", "usable memory", "GB", offsetof(struct fo_device, memory_usable_gb) },
	{ "memory_tb_s", "memory bandwidth", "TB/s", offsetof(struct fo_device, memory_tb_s) },
	{ "cache_mb", "last-level cache", "MB", offsetof(struct fo_device, cache_mb) },
	{ "units", "compute units", "SM or CU", offsetof(struct fo_device, units) },
	{ "tdp_w", "power", "W", offsetof(struct fo_device, tdp_w) },
	{ "scaleup_gb_s", "scale-up links", "GB/s per direction", offsetof(struct fo_device, scaleup_gb_s) },
	{ "pair_gb_s", "between two devices", "GB/s per direction", offsetof(struct fo_device, pair_gb_s) },
	{ "scaleup_devices", "scale-up domain", "devices", offsetof(struct fo_device, scaleup_devices) },
	{ "scaleout_gbit_s", "scale-out network", "Gbit/s per device", offsetof(struct fo_device, scaleout_gbit_s) },
	{ "measured_bf16_tflops", "best bf16 matmul measured", "TFLOP/s", offsetof(struct fo_device, measured_bf16) },
	{ "measured_fp8_tflops", "best fp8 matmul measured", "TFLOP/s", offsetof(struct fo_device, measured_fp8) },
	{ "rent_low_usd_h", "rent, low", "USD per hour", offsetof(struct fo_device, rent_low) },
	{ "rent_high_usd_h", "rent, high", "USD per hour", offsetof(struct fo_device, rent_high) },
};
enum { FACTS = sizeof(facts) / sizeof(facts[0]) };

static double fact(const struct fo_device *d, int i) { return *(const double *)((const char *)d + facts[i].offset); }

static const char *number(struct fo_doc *d, double v) { return isnan(v) ? "-" : fo_doc_printf(d, "%g", v); }

static void peaks_json(struct fo_json *j, const char *key, const double *tflops)
{
	fo_json_object(j, key);
	for (int p = 0; p < FO_PREC_COUNT; p++)
		fo_json_real(j, fo_precision_name[p], tflops[p]);
	fo_json_close(j);
}

static void device_json(struct fo_json *j, const struct fo_device *d)
{
	char alias[64];
	fo_json_object(j, NULL);
	fo_json_text(j, "name", d->name);
	fo_json_array(j, "aliases");
	for (const char *a = d->aliases; *a;) {
		size_t len = strcspn(a, " ");
		snprintf(alias, sizeof(alias), "%.*s", (int)len, a);
		fo_json_text(j, NULL, alias);
		a += len + (a[len] == ' ');
	}
	fo_json_close(j);
	fo_json_text(j, "kind", d->kind);
	peaks_json(j, "dense_tflops", d->dense);
	peaks_json(j, "sparse_tflops", d->sparse);
	for (int i = 0; i < FACTS; i++)
		fo_json_real(j, facts[i].key, fact(d, i));
	fo_json_put(j, FO_TEXT("rent_note", d->rent_note), FO_TEXT("source", d->source), FO_TEXT("date", d->date),
		    FO_TEXT("notes", d->notes), FO_TEXT("defined_at", d->where));
	fo_json_close(j);
}

/* All devices, or `only` that one. */
static void write_json(const struct fo_catalogue *c, const struct fo_device *only, struct fo_json *j)
{
	fo_json_array(j, "devices");
	for (size_t i = 0; i < c->count; i++)
		if (!only || only == &c->device[i])
			device_json(j, &c->device[i]);
	fo_json_close(j);
}

static void say_all(const struct fo_catalogue *c, struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrrr", "device", "bf16", "fp8", "fp4", "memory", "rate", "scale-up");
	fo_doc_row(d, "", "TFLOP/s", "TFLOP/s", "TFLOP/s", "GB", "TB/s", "GB/s x count");
	for (size_t i = 0; i < c->count; i++) {
		const struct fo_device *v = &c->device[i];
		const char *links = "-";
		if (!isnan(v->scaleup_gb_s))
			links = fo_doc_printf(d, "%s x %4s", number(d, v->scaleup_gb_s), number(d, v->scaleup_devices));
		fo_doc_row(d, v->name, number(d, v->dense[FO_PREC_BF16]), number(d, v->dense[FO_PREC_FP8]),
			   number(d, v->dense[FO_PREC_FP4]), number(d, v->memory_gb), number(d, v->memory_tb_s), links);
	}
	fo_doc_para(d,
		    "Peaks are dense; links are per device and direction. 'flatout devices NAME' shows sparse peaks, "
		    "other precisions, aliases, source, date and conflicts.");
}

static void say_peaks(const struct fo_device *v, struct fo_doc *d)
{
	int shown = 0;
	for (int p = 0; p < FO_PREC_COUNT; p++) {
		if (isnan(v->dense[p]) && isnan(v->sparse[p]))
			continue;
		if (!shown++)
			fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "TFLOP/s", "dense", "sparse");
		fo_doc_row(d, fo_precision_name[p], number(d, v->dense[p]), number(d, v->sparse[p]));
	}
	if (!shown)
		fo_doc_para(d, "No peak of it is published: it has no MFU until a row of your own gives it one.");
}

static void say_one(const struct fo_device *v, struct fo_doc *d)
{
	const char *const text[][2] = { { "rent from", v->rent_note }, { "aliases", v->aliases },
					{ "source", v->source },       { "date", v->date },
					{ "notes", v->notes },         { "defined at", v->where } };
	fo_doc_para(d, "%s (%s)", v->name, v->kind);
	say_peaks(v, d);
	for (int i = 0; i < FACTS; i++)
		if (!isnan(fact(v, i)))
			fo_doc_line(d, facts[i].title, "%g %s", fact(v, i), facts[i].unit);
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		if (*text[i][1])
			fo_doc_line(d, text[i][0], "%s", text[i][1]);
}

static fo_status local(const struct fo_cli_call *call, const struct fo_catalogue *c)
{
#ifdef FO_NO_ENGINE
	(void)call, (void)c;
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build has no engine: it cannot look for devices"),
		       "build with -DFLATOUT_ENGINE=ON");
#else
	return fo_cli_devices_local(call, c);
#endif
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct devices *in = call->in;
	const char *name = call->argc > 1 ? call->argv[1] : NULL;
	struct fo_catalogue c;
	const struct fo_device *one = NULL;
	fo_status st = FO_OK;
	if (in->local && name)
		return fo_fail(FO_EARG, "'--local' shows this machine's devices: leave the name out");
	FO_TRY(fo_catalogue_load(&c, in->devices_file));
	if (name)
		FO_TRY_OR(st, fo_catalogue_find(&c, name, &one), done);
	if (in->local)
		st = local(call, &c);
	else if (call->json)
		write_json(&c, one, call->json);
	else if (one)
		say_one(one, call->doc);
	else
		say_all(&c, call->doc);
done:
	fo_catalogue_fini(&c);
	return st;
}

const struct fo_command fo_cmd_devices = {
	.name = "devices",
	.group = "measure",
	.usage = "flatout devices [NAME | --local] [--devices-file PATH] [--json]",
	.summary = "peaks, memory and links of accelerators, with sources",
	.text = "Dense and sparse peaks stand apart: vendors' headlines are often the sparse ones. A file of your "
		"own (--devices-file or FLATOUT_DEVICES) with the columns of data/devices.csv adds devices or "
		"replaces those of the same name. --local shows the CUDA devices of this machine, the libraries "
		"that were found and what is missing; it ends with 1 where there is no device to train on.\n\n"
		"  flatout devices\n"
		"  flatout devices b200\n"
		"  flatout devices h100 --json\n"
		"  flatout devices --local",
	.opts = rows,
	.act = run,
	.size = sizeof(struct devices),
	.most = 1,
};
