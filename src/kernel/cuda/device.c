/* A device: finding it, opening it and closing it. stream.c has what runs on an open one. */
#include "kernel/cuda/cudnn.h"
#include "base/str.h"
#include "hw/nvml.h"
#include "kernel/cuda/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const function_name[] = {
#define NAME(name, args) #name,
	FO_CUDA_KERNEL_LIST(NAME)
#undef NAME
};

static void describe(const struct fo_cuda_driver_calls *d, CUdevice dev, int index, struct fo_cuda_device *out)
{
	size_t bytes = 0;
	int l2 = 0, shared = 0, domain = 0, bus = 0, slot = 0;
	const struct {
		CUdevice_attribute a;
		int *to;
	} attr[] = {
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &out->cc_major },
		{ CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &out->cc_minor },
		{ CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &out->multiprocessors },
		{ CU_DEVICE_ATTRIBUTE_CLOCK_RATE, &out->clock_khz },
		{ CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &l2 },
		{ CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &shared },
		{ CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, &domain },
		{ CU_DEVICE_ATTRIBUTE_PCI_BUS_ID, &bus },
		{ CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, &slot },
	};
	*out = (struct fo_cuda_device){ .index = index };
	d->cuDeviceGetName(out->name, sizeof out->name, dev);
	d->cuDeviceTotalMem(&bytes, dev);
	out->memory_bytes = (int64_t)bytes;
	for (size_t i = 0; i < sizeof attr / sizeof *attr; i++)
		if (d->cuDeviceGetAttribute(attr[i].to, attr[i].a, dev) != CUDA_SUCCESS)
			*attr[i].to = 0;
	out->l2_bytes = l2;
	out->shared_per_block = shared;
	snprintf(out->pci, sizeof out->pci, "%04x:%02x:%02x.0", domain & 0xffff, bus & 0xff, slot & 0xff);
	out->software = out->has_kernels = fo_cuda_driver_is_software();
	/* "90a" runs on 9.0 alone, "80" on all of 8.x. */
	char list[64], *save = NULL;
	snprintf(list, sizeof list, "%s", fo_cuda_architectures);
	for (char *a = strtok_r(list, " ", &save); a; a = strtok_r(NULL, " ", &save)) {
		int cc = atoi(a), own = out->cc_major * 10 + out->cc_minor;
		out->has_kernels |= strchr(a, 'a') ? cc == own : cc / 10 == out->cc_major && cc <= own;
	}
}

static void survey_nvml(struct fo_cuda_found *f)
{
	struct fo_nvml_library l;
	f->loaded = fo_nvml_library(&l);
	snprintf(f->file, sizeof f->file, "%s", l.file);
	snprintf(f->version, sizeof f->version, "%s", l.version);
	snprintf(f->why, sizeof f->why, "%s", l.why);
}

void fo_cuda_survey(struct fo_cuda_survey *s)
{
	*s = (struct fo_cuda_survey){ .built = true };
	snprintf(s->architectures, sizeof s->architectures, "%s", fo_cuda_architectures);
	for (int i = 0; i < FO_CUDA_LIBS; i++)
		(void)fo_cuda_load(i, &s->lib[i]);
	survey_nvml(&s->lib[FO_CUDA_NVML]);
	const struct fo_cuda_driver_calls *d = fo_cuda_load(FO_CUDA_DRIVER, &s->lib[FO_CUDA_DRIVER]);
	int n = 0;
	if (!d) {
		snprintf(s->why, sizeof s->why, "%s", s->lib[FO_CUDA_DRIVER].why);
		return;
	}
	CUresult r = d->cuInit(0);
	if (r == CUDA_SUCCESS)
		r = d->cuDeviceGetCount(&n);
	if (r != CUDA_SUCCESS || !n) {
		const char *text = "no device";
		if (r != CUDA_SUCCESS)
			d->cuGetErrorString(r, &text);
		snprintf(s->why, sizeof s->why, "the CUDA driver says \"%s\"", text);
		return;
	}
	for (int i = 0; i < n && i < FO_CUDA_DEVICES_MAX; i++) {
		CUdevice dev;
		if (d->cuDeviceGet(&dev, i) == CUDA_SUCCESS)
			describe(d, dev, i, &s->device[s->devices++]);
	}
}

int fo_cuda_count(void)
{
	struct fo_cuda_found found;
	const struct fo_cuda_driver_calls *d = fo_cuda_load(FO_CUDA_DRIVER, &found);
	int n = 0;
	return d && d->cuInit(0) == CUDA_SUCCESS && d->cuDeviceGetCount(&n) == CUDA_SUCCESS ? n : 0;
}

static fo_status load_kernels(struct fo_cuda *c)
{
	static const unsigned char nothing[16];
	int n = 0;
	while (fo_cuda_images[n].name)
		n++;
	const bool software = c->info.software;
	n = software ? 1 : n;
	c->module = fo_xmalloc((size_t)(n + 1) * sizeof *c->module);
	for (; c->modules < n; c->modules++)
		FO_TRY(fo_cuda_check(c,
				     c->driver->cuModuleLoadData(&c->module[c->modules],
								 software ? nothing : fo_cuda_images[c->modules].begin),
				     "load kernels"));
	for (int f = 0; f < FO_CUDA_FUNCTIONS; f++) {
		CUresult r = CUDA_ERROR_NOT_FOUND;
		for (int m = 0; m < c->modules && r != CUDA_SUCCESS; m++)
			r = c->driver->cuModuleGetFunction(&c->function[f], c->module[m], function_name[f]);
		if (r != CUDA_SUCCESS)
			return fo_fail(FO_EBUG, "no kernel image has a function '%s'", function_name[f]);
	}
	return FO_OK;
}

static fo_status open_libraries(struct fo_cuda *c)
{
	struct fo_cuda_found found;
	c->lt = fo_cuda_load(FO_CUDA_CUBLASLT, &found);
	if (!c->lt)
		return fo_fail(FO_EUNSUPPORTED, "no matmuls on this device: %s", found.why);
	cublasStatus_t st = c->lt->cublasLtCreate(&c->lt_handle);
	if (st != CUBLAS_STATUS_SUCCESS)
		return fo_fail(FO_EDEVICE, "cannot start cuBLASLt: status %d", (int)st);
	/* Without cuDNN attention runs on our own kernels: not an error. */
	c->dnn = fo_cuda_load(FO_CUDA_CUDNN, &found);
	if (!c->dnn) {
		snprintf(c->dnn_why, sizeof c->dnn_why, "%s", found.why);
		return FO_OK;
	}
	cudnnStatus_t dnn = c->dnn->cudnnCreate(&c->dnn_handle);
	if (dnn != CUDNN_STATUS_SUCCESS) {
		c->dnn_handle = NULL;
		snprintf(c->dnn_why, sizeof c->dnn_why, "cuDNN %s does not start: %s", found.version,
			 c->dnn->cudnnGetErrorString(dnn));
	}
	return FO_OK;
}

const char *fo_cuda_attention_note(const struct fo_cuda *c)
{
	const struct fo_cuda_plan *p = NULL;
	if (*c->dnn_why)
		return c->dnn_why;
	for (int i = 0; (p = fo_cuda_plan_at(c, i)); i++)
		if (*p->why && !p->shape.unfinished) /* a finished plan takes the place of an unfinished one */
			return p->why;
	return NULL;
}

static fo_status open_device(struct fo_cuda *c, int index)
{
	struct fo_cuda_found found;
	CUdevice dev;
	int n = 0;
	c->driver = fo_cuda_load(FO_CUDA_DRIVER, &found);
	if (!c->driver)
		return fo_fail(FO_EUNSUPPORTED, "there is no CUDA device: %s", found.why);
	FO_TRY(fo_cuda_check(c, c->driver->cuInit(0), "use CUDA"));
	FO_TRY(fo_cuda_check(c, c->driver->cuDeviceGetCount(&n), "count devices"));
	if (index < 0 || index >= n)
		return fo_fail(FO_EARG, "there is no CUDA device %d: the driver shows %d", index, n);
	FO_TRY(fo_cuda_check(c, c->driver->cuDeviceGet(&dev, index), "get the device"));
	describe(c->driver, dev, index, &c->info);
	if (!c->info.has_kernels)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "this build has kernels for compute capability %s, '%s' has %d.%d",
				       *fo_cuda_architectures ? fo_cuda_architectures : "none", c->info.name,
				       c->info.cc_major, c->info.cc_minor),
			       "build with -DFLATOUT_CUDA_ARCHITECTURES=%d%d", c->info.cc_major, c->info.cc_minor);
	FO_TRY(fo_cuda_check(c, c->driver->cuDevicePrimaryCtxRetain(&c->context, dev), "open the device"));
	FO_TRY(fo_cuda_attach(c));
	FO_TRY(load_kernels(c));
	return open_libraries(c);
}

fo_status fo_cuda_open(struct fo_cuda **out, int index)
{
	struct fo_cuda *c = fo_xmalloc(sizeof *c);
	c->index = index;
	fo_status st = open_device(c, index);
	if (st != FO_OK) {
		fo_cuda_close(c);
		return st;
	}
	*out = c;
	return FO_OK;
}

void fo_cuda_close(struct fo_cuda *c)
{
	if (!c)
		return;
	fo_cuda_plans_free(c);
	if (c->dnn_handle)
		c->dnn->cudnnDestroy(c->dnn_handle);
	fo_cuda_tune_free(c);
	if (c->lt_handle)
		c->lt->cublasLtDestroy(c->lt_handle);
	for (int i = 0; i < c->modules; i++)
		c->driver->cuModuleUnload(c->module[i]);
	free(c->module);
	if (c->context)
		c->driver->cuDevicePrimaryCtxRelease(c->info.index);
	free(c);
}

const struct fo_cuda_device *fo_cuda_info(const struct fo_cuda *c) { return &c->info; }
fo_status fo_cuda_attach(struct fo_cuda *c)
{
	return fo_cuda_check(c, c->driver->cuCtxSetCurrent(c->context), "make the device current");
}
