#define _GNU_SOURCE
#include "support/cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct fo_cuda *fo_test_cuda_open(int *status)
{
	static struct fo_cuda_survey s;
	const char *index = getenv("FLATOUT_CUDA_DEVICE"), *named = getenv("FLATOUT_CUDA_LIBRARIES"),
		   *soft = getenv("FLATOUT_SOFT_CUDA");
	struct fo_cuda *c = NULL;
	bool promised = named && soft && *soft && !strcmp(named, soft);
	*status = 0;
	fo_cuda_survey(&s);
	if (!s.built || (!s.devices && !promised)) {
		printf("skipped: no CUDA device%s%s\n", *s.why ? ": " : "", s.why);
		*status = 77;
		return NULL;
	}
	if (fo_cuda_open(&c, index && *index ? atoi(index) : 0) != FO_OK) {
		printf("the device cannot be opened: %s; %s\n", fo_err_text(), fo_err_hint());
		*status = 1;
		return NULL;
	}
	if (promised && !fo_cuda_info(c)->software) {
		printf("'%s' was opened, not the software device in '%s'\n", s.lib[FO_CUDA_DRIVER].file, soft);
		fo_cuda_close(c);
		*status = 1;
		return NULL;
	}
	printf("on %s\n", fo_cuda_info(c)->name);
	return c;
}

const struct fo_test_soft *fo_test_soft(const struct fo_cuda *c)
{
	static union {
		struct fo_test_soft call;
		void *at[4];
	} soft;
	static const char *const name[] = { "fo_software_counters", "fo_software_seed", "fo_software_order",
					    "fo_software_enqueue" };
	if (!fo_cuda_info(c)->software)
		return NULL;
	void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	for (int i = 0; h && i < 4; i++)
		soft.at[i] = dlsym(h, name[i]);
	return h ? &soft.call : NULL;
}

void fo_test_cuda_run(const struct fo_call *c, unsigned char *const *block, const size_t *bytes)
{
	if (fo_num_cuda_run(c, block, bytes) != FO_OK)
		fail_msg("%s: %s (%s)", fo_op_info(c->kind)->name, fo_err_text(), fo_err_hint());
}
static void run(const struct fo_call *c) { fo_test_cuda_run(c, NULL, NULL); }
const struct fo_kernel fo_test_cuda_kernel = { .run = run };
