/* flatout devices --local: CUDA devices of this machine, NVIDIA's libraries, and what is missing. */
#include "cli/engine/screen.h"

#include "hw/catalogue.h"
#include "hw/nvml.h"
#include "kernel/cuda/cuda.h"
#include "train/device.h"

#include <string.h>

static bool can_train(const struct fo_cuda_survey *s, const struct fo_cuda_device *d)
{
	return d->has_kernels && s->lib[FO_CUDA_CUBLASLT].loaded && !s->lib[FO_CUDA_CUBLASLT].refused;
}

/* The software model of a device is no product of anyone. */
static const struct fo_device *row_of(const struct fo_catalogue *c, const struct fo_cuda_device *d)
{
	return d->software ? NULL : fo_device_match(c, d->name, d->multiprocessors, d->memory_bytes);
}

/* Clocks, power and temperature at this moment, as far as they can be read. */
static void say_now(struct fo_doc *d, const struct fo_nvml_now *n)
{
	const char *text = isnan(n->sm_hz) ? "" : fo_doc_si(d, n->sm_hz, "Hz");
	struct fo_str reasons = { 0 };
	if (!isnan(n->sm_hz) && !isnan(n->sm_max_hz))
		text = fo_doc_printf(d, "%s of %s", text, fo_doc_si(d, n->sm_max_hz, "Hz"));
	if (!isnan(n->memory_hz))
		text = fo_doc_join(d, text, fo_doc_printf(d, "memory %s", fo_doc_si(d, n->memory_hz, "Hz")));
	if (!isnan(n->power_w))
		text = fo_doc_join(d, text, fo_doc_printf(d, "%.0f W", n->power_w));
	if (!isnan(n->limit_w))
		text = fo_doc_join(d, text, fo_doc_printf(d, "the power limit is %.0f W", n->limit_w));
	if (!isnan(n->temperature_c))
		text = fo_doc_join(d, text, fo_doc_printf(d, "%.0f C", n->temperature_c));
	fo_nvml_reasons_text(n->reasons, &reasons);
	fo_doc_line(d, "now", "%s", fo_doc_join(d, text, fo_doc_printf(d, "clock held back by: %s", reasons.data)));
	fo_str_fini(&reasons);
}

/* The figures that the catalogue has of the device; some have no fp8. */
static void say_row(struct fo_doc *d, const struct fo_device *row)
{
	const char *text = "";
	if (!isnan(row->dense[FO_PREC_BF16]))
		text = fo_doc_printf(d, "%g TFLOP/s bf16 dense", row->dense[FO_PREC_BF16]);
	if (!isnan(row->dense[FO_PREC_FP8]))
		text = fo_doc_join(d, text, fo_doc_printf(d, "%g TFLOP/s fp8 dense", row->dense[FO_PREC_FP8]));
	if (!isnan(row->memory_tb_s))
		text = fo_doc_join(d, text, fo_doc_printf(d, "%g TB/s", row->memory_tb_s));
	fo_doc_line(d, "catalogue", "%s%s%s", row->name, *text ? ": " : "", text);
}

static void say_device(const struct fo_cuda_survey *s, const struct fo_catalogue *c, const struct fo_cuda_device *v,
		       struct fo_doc *d)
{
	const struct fo_device *row = row_of(c, v);
	struct fo_nvml_now now;
	fo_nvml_device nvml = v->software ? NULL : fo_nvml_find(v->pci);
	const char *built = *s->architectures ? s->architectures : "no device";
	fo_doc_line(d, fo_doc_printf(d, "cuda:%d", v->index),
		    "%s, compute capability %d.%d, %d multiprocessors up to %s, %s at %s", v->name, v->cc_major,
		    v->cc_minor, v->multiprocessors, fo_doc_si(d, v->clock_khz * 1e3, "Hz"),
		    fo_doc_bytes(d, v->memory_bytes), v->pci);
	if (v->software)
		fo_doc_line(d, "software",
			    "not a device: the tests' model of one, computed by this machine's "
			    "processors; nothing measured on it means anything");
	else if (v->has_kernels)
		fo_doc_line(d, "kernels", "this build has them (for %s)", s->architectures);
	else
		fo_doc_line(d, "kernels",
			    "none: this build has them for %s; build with -DFLATOUT_CUDA_ARCHITECTURES=%d%d%s", built,
			    v->cc_major, v->cc_minor, v->cc_major == 9 ? "a" : "");
	if (row)
		say_row(d, row);
	else if (!v->software)
		fo_doc_line(d, "catalogue",
			    "not in it: runs have no MFU until FLATOUT_DEVICES names a file with its peak");
	fo_nvml_read(nvml, &now);
	if (nvml)
		say_now(d, &now);
}

static void say(const struct fo_cuda_survey *s, const struct fo_catalogue *c, struct fo_doc *d)
{
	struct fo_nvml_library nvml;
	const char *why = *s->why ? s->why : "the CUDA driver shows none";
	if (s->built && *s->why && !strcmp(s->why, s->lib[FO_CUDA_DRIVER].why)) /* said below, once */
		why = "there is no CUDA driver";
	if (!s->devices)
		fo_doc_line(d, "devices", "none: %s", why);
	for (int i = 0; i < s->devices; i++)
		say_device(s, c, &s->device[i], d);
	for (int i = 0; s->built && i < FO_CUDA_LIBS; i++) {
		const struct fo_cuda_found *f = &s->lib[i];
		if (f->loaded && !f->refused)
			fo_doc_line(d, f->name, "%s (%s), %s", *f->version ? f->version : "version unknown", f->what,
				    f->file);
		else if (*f->why)
			fo_doc_line(d, f->name, "%s (%s): %s", f->refused ? "refused" : "not loaded", f->what, f->why);
	}
	fo_nvml_library(&nvml);
	if (*nvml.driver)
		fo_doc_line(d, "driver", "%s", nvml.driver);
}

/* ---- JSON ---- */

static void now_json(struct fo_json *j, const struct fo_nvml_now *n)
{
	fo_json_object(j, "now");
	fo_json_put(
		j, FO_REAL("sm_clock_hz", n->sm_hz), FO_REAL("sm_clock_max_hz", n->sm_max_hz),
		FO_REAL("memory_clock_hz", n->memory_hz), FO_REAL("memory_clock_max_hz", n->memory_max_hz),
		FO_REAL("power_w", n->power_w), FO_REAL("power_limit_w", n->limit_w),
		FO_REAL("temperature_c", n->temperature_c), FO_REAL("busy", n->busy),
		FO_REAL("memory_used_bytes", fo_json_when(n->memory_used_bytes >= 0, (double)n->memory_used_bytes)));
	struct fo_str text = { 0 };
	fo_nvml_reasons_text(n->reasons, &text);
	fo_json_text(j, "clock_held_back_by", n->reasons < 0 ? NULL : text.data);
	fo_str_fini(&text);
	fo_json_close(j);
}

static void device_json(struct fo_json *j, const struct fo_cuda_survey *s, const struct fo_catalogue *c,
			const struct fo_cuda_device *d)
{
	const struct fo_device *row = row_of(c, d);
	char capability[16];
	struct fo_nvml_now now;
	snprintf(capability, sizeof capability, "%d.%d", d->cc_major, d->cc_minor);
	fo_json_object(j, NULL);
	fo_json_put(j, FO_INT("index", d->index), FO_TEXT("name", d->name), FO_TEXT("pci", d->pci),
		    FO_BOOL("software", d->software), FO_TEXT("compute_capability", capability),
		    FO_INT("multiprocessors", d->multiprocessors), FO_REAL("clock_hz", d->clock_khz * 1e3),
		    FO_INT("memory_bytes", d->memory_bytes), FO_INT("l2_bytes", d->l2_bytes),
		    FO_BOOL("kernels", d->has_kernels), FO_BOOL("can_train", can_train(s, d)),
		    FO_TEXT("catalogue", row ? row->name : NULL));
	fo_json_real(j, "bf16_tflops", row ? row->dense[FO_PREC_BF16] : NAN);
	fo_json_real(j, "fp8_tflops", row ? row->dense[FO_PREC_FP8] : NAN);
	fo_nvml_read(d->software ? NULL : fo_nvml_find(d->pci), &now);
	now_json(j, &now);
	fo_json_close(j);
}

static void write_json(const struct fo_cuda_survey *s, const struct fo_catalogue *c, struct fo_json *j)
{
	struct fo_nvml_library nvml;
	fo_nvml_library(&nvml);
	fo_json_put(j, FO_BOOL("built", s->built), FO_TEXT("architectures", s->architectures),
		    FO_TEXT("driver", fo_json_some(nvml.driver)), FO_TEXT("why", fo_json_some(s->why)));
	fo_json_array(j, "devices");
	for (int i = 0; i < s->devices; i++)
		device_json(j, s, c, &s->device[i]);
	fo_json_close(j);
	fo_json_array(j, "libraries");
	for (int i = 0; s->built && i < FO_CUDA_LIBS; i++) {
		const struct fo_cuda_found *f = &s->lib[i];
		fo_json_record(j, NULL, FO_TEXT("name", f->name), FO_TEXT("for", f->what),
			       FO_BOOL("loaded", f->loaded && !f->refused), FO_BOOL("refused", f->refused),
			       FO_TEXT("version", fo_json_some(f->version)), FO_TEXT("file", fo_json_some(f->file)),
			       FO_TEXT("why", fo_json_some(f->why)));
	}
	fo_json_close(j);
}

fo_status fo_cli_device_open(const char *text, struct fo_cuda **out)
{
	char why[320];
	FO_TRY(fo_device_open(text, out, why, sizeof why));
	if (*why)
		fprintf(stderr, "warning: a CUDA device is there but cannot be used: %s; the processor computes\n",
			fo_cli_seen(why));
	return *out ? fo_device_tune(*out, NULL) : FO_OK;
}

fo_status fo_cli_devices_local(const struct fo_cli_call *call, const struct fo_catalogue *c)
{
	struct fo_cuda_survey s;
	bool any = false;
	fo_cuda_survey(&s);
	if (call->json)
		write_json(&s, c, call->json);
	else
		say(&s, c, call->doc);
	for (int i = 0; i < s.devices; i++)
		any |= can_train(&s, &s.device[i]);
	return any ? FO_OK : fo_cli_found();
}
