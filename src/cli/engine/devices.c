/* flatout devices --local: CUDA devices of this machine, NVIDIA's libraries, and what is missing. */
#include "cli/engine/screen.h"

#include "hw/catalogue.h"
#include "hw/nvml.h"
#include "kernel/cuda/cuda.h"
#include "train/device.h"

#include <string.h>

#define LEAD "             " /* below "CUDA driver  " */

static bool can_train(const struct fo_cuda_survey *s, const struct fo_cuda_device *d)
{
	return d->has_kernels && s->lib[FO_CUDA_CUBLASLT].loaded && !s->lib[FO_CUDA_CUBLASLT].refused;
}

/* The software model of a device is no product of anyone. */
static const struct fo_device *row_of(const struct fo_catalogue *c, const struct fo_cuda_device *d)
{
	return d->software ? NULL : fo_device_match(c, d->name, d->multiprocessors, d->memory_bytes);
}

static void put_now(const struct fo_nvml_now *n)
{
	struct fo_str s = { 0 };
	char a[32], b[32];
	if (!isnan(n->sm_hz))
		fo_str_printf(&s, "%s", fo_str_si(a, n->sm_hz, "Hz"));
	if (!isnan(n->sm_hz) && !isnan(n->sm_max_hz))
		fo_str_printf(&s, " of %s", fo_str_si(b, n->sm_max_hz, "Hz"));
	if (!isnan(n->memory_hz))
		fo_str_printf(&s, "%smemory %s", s.len ? ", " : "", fo_str_si(a, n->memory_hz, "Hz"));
	if (!isnan(n->power_w))
		fo_str_printf(&s, "%s%.0f W", s.len ? "; " : "", n->power_w);
	if (!isnan(n->limit_w))
		fo_str_printf(&s, "%sthe power limit is %.0f W", s.len ? ", " : "", n->limit_w);
	if (!isnan(n->temperature_c))
		fo_str_printf(&s, "%s%.0f C", s.len ? "; " : "", n->temperature_c);
	fo_str_printf(&s, "%sclock held back by: ", s.len ? "; " : "");
	fo_nvml_reasons_text(n->reasons, &s);
	fo_cli_put(stdout, "  now        ", LEAD, "%s", s.data);
	fo_str_fini(&s);
}

/* Prints the figures that the catalogue has of the device; some have no fp8. */
static void put_row(const struct fo_device *row)
{
	struct fo_str s = { 0 };
	fo_str_puts(&s, row->name);
	const char *before = ": ";
	if (!isnan(row->dense[FO_PREC_BF16])) {
		fo_str_printf(&s, "%s%g TFLOP/s bf16 dense", before, row->dense[FO_PREC_BF16]);
		before = ", ";
	}
	if (!isnan(row->dense[FO_PREC_FP8])) {
		fo_str_printf(&s, "%s%g TFLOP/s fp8 dense", before, row->dense[FO_PREC_FP8]);
		before = ", ";
	}
	if (!isnan(row->memory_tb_s))
		fo_str_printf(&s, "%s%g TB/s", before, row->memory_tb_s);
	fo_cli_put(stdout, "  catalogue  ", LEAD, "%s", s.data);
	fo_str_fini(&s);
}

static void put_device(const struct fo_cuda_survey *s, const struct fo_catalogue *c, const struct fo_cuda_device *d)
{
	const struct fo_device *row = row_of(c, d);
	char first[32], a[32], b[32];
	struct fo_nvml_now now;
	fo_nvml_device nvml = d->software ? NULL : fo_nvml_find(d->pci);
	char architecture[16];
	const char *built = *s->architectures ? s->architectures : "no device";
	snprintf(first, sizeof first, "cuda:%-8d", d->index);
	snprintf(architecture, sizeof architecture, "%d%d%s", d->cc_major, d->cc_minor, d->cc_major == 9 ? "a" : "");
	fo_cli_put(stdout, first, LEAD, "%s, compute capability %d.%d, %d multiprocessors up to %s, %s at %s", d->name,
		   d->cc_major, d->cc_minor, d->multiprocessors, fo_str_si(a, d->clock_khz * 1e3, "Hz"),
		   fo_str_bytes(b, (double)d->memory_bytes), d->pci);
	if (d->software)
		fo_cli_put(stdout, "  software   ", LEAD,
			   "not a device: the tests' model of one, computed by this machine's processors; nothing "
			   "measured on it means anything");
	else if (d->has_kernels)
		fo_cli_put(stdout, "  kernels    ", LEAD, "this build has them (for %s)", s->architectures);
	else
		fo_cli_put(stdout, "  kernels    ", LEAD,
			   "none: this build has them for %s; build with -DFLATOUT_CUDA_ARCHITECTURES=%s", built,
			   architecture);
	if (row)
		put_row(row);
	else if (!d->software)
		fo_cli_put(stdout, "  catalogue  ", LEAD,
			   "not in it: runs have no MFU until FLATOUT_DEVICES names a file with its peak");
	fo_nvml_read(nvml, &now);
	if (nvml)
		put_now(&now);
}

static void print_text(const struct fo_cuda_survey *s, const struct fo_catalogue *c)
{
	struct fo_nvml_library nvml;
	char first[32];
	const struct fo_cuda_found *driver = &s->lib[FO_CUDA_DRIVER];
	if (!s->devices && s->built && *s->why && !strcmp(s->why, driver->why)) /* said below, once */
		fo_cli_put(stdout, "devices      ", LEAD, "none: there is no CUDA driver");
	else if (!s->devices)
		fo_cli_put(stdout, "devices      ", LEAD, "none: %s", *s->why ? s->why : "the CUDA driver shows none");
	for (int i = 0; i < s->devices; i++)
		put_device(s, c, &s->device[i]);
	for (int i = 0; s->built && i < FO_CUDA_LIBS; i++) {
		const struct fo_cuda_found *f = &s->lib[i];
		snprintf(first, sizeof first, "%-13s", f->name);
		if (f->loaded && !f->refused)
			fo_cli_put(stdout, first, LEAD, "%s (%s), %s", *f->version ? f->version : "version unknown",
				   f->what, f->file);
		else if (*f->why)
			fo_cli_put(stdout, first, LEAD, "%s (%s): %s", f->refused ? "refused" : "not loaded", f->what,
				   f->why);
	}
	fo_nvml_library(&nvml);
	if (*nvml.driver)
		fo_cli_put(stdout, "driver       ", LEAD, "%s", nvml.driver);
}

/* ---- JSON ---- */

static void now_json(struct fo_json *j, const struct fo_nvml_now *n)
{
	fo_json_object(j, "now");
	fo_json_real(j, "sm_clock_hz", n->sm_hz);
	fo_json_real(j, "sm_clock_max_hz", n->sm_max_hz);
	fo_json_real(j, "memory_clock_hz", n->memory_hz);
	fo_json_real(j, "memory_clock_max_hz", n->memory_max_hz);
	fo_json_real(j, "power_w", n->power_w);
	fo_json_real(j, "power_limit_w", n->limit_w);
	fo_json_real(j, "temperature_c", n->temperature_c);
	fo_json_real(j, "busy", n->busy);
	fo_json_real(j, "memory_used_bytes", n->memory_used_bytes < 0 ? NAN : (double)n->memory_used_bytes);
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
	fo_json_int(j, "index", d->index);
	fo_json_text(j, "name", d->name);
	fo_json_text(j, "pci", d->pci);
	fo_json_bool(j, "software", d->software);
	fo_json_text(j, "compute_capability", capability);
	fo_json_int(j, "multiprocessors", d->multiprocessors);
	fo_json_real(j, "clock_hz", d->clock_khz * 1e3);
	fo_json_int(j, "memory_bytes", d->memory_bytes);
	fo_json_int(j, "l2_bytes", d->l2_bytes);
	fo_json_bool(j, "kernels", d->has_kernels);
	fo_json_bool(j, "can_train", can_train(s, d));
	fo_json_text(j, "catalogue", row ? row->name : NULL);
	fo_json_real(j, "bf16_tflops", row ? row->dense[FO_PREC_BF16] : NAN);
	fo_json_real(j, "fp8_tflops", row ? row->dense[FO_PREC_FP8] : NAN);
	fo_nvml_read(d->software ? NULL : fo_nvml_find(d->pci), &now);
	now_json(j, &now);
	fo_json_close(j);
}

static void print_json(const struct fo_cuda_survey *s, const struct fo_catalogue *c)
{
	struct fo_json *j = fo_cli_json_begin();
	struct fo_nvml_library nvml;
	fo_nvml_library(&nvml);
	fo_json_bool(j, "built", s->built);
	fo_json_text(j, "architectures", s->architectures);
	fo_json_text(j, "driver", *nvml.driver ? nvml.driver : NULL);
	fo_json_text(j, "why", *s->why ? s->why : NULL);
	fo_json_array(j, "devices");
	for (int i = 0; i < s->devices; i++)
		device_json(j, s, c, &s->device[i]);
	fo_json_close(j);
	fo_json_array(j, "libraries");
	for (int i = 0; s->built && i < FO_CUDA_LIBS; i++) {
		const struct fo_cuda_found *f = &s->lib[i];
		fo_json_object(j, NULL);
		fo_json_text(j, "name", f->name);
		fo_json_text(j, "for", f->what);
		fo_json_bool(j, "loaded", f->loaded && !f->refused);
		fo_json_bool(j, "refused", f->refused);
		fo_json_text(j, "version", *f->version ? f->version : NULL);
		fo_json_text(j, "file", *f->file ? f->file : NULL);
		fo_json_text(j, "why", *f->why ? f->why : NULL);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_cli_json_end(j);
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

fo_status fo_cli_devices_local(const struct fo_catalogue *c, bool json)
{
	struct fo_cuda_survey s;
	bool any = false;
	fo_cuda_survey(&s);
	(json ? print_json : print_text)(&s, c);
	for (int i = 0; i < s.devices; i++)
		any |= can_train(&s, &s.device[i]);
	return any ? FO_OK : fo_cli_found();
}
