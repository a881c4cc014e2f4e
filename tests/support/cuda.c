#define _GNU_SOURCE
#include "support/cuda.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SENTINEL = 0xa5, SENTINEL_BYTES = 256 };

static struct fo_cuda *device;

struct fo_cuda *fo_test_cuda_open(int *status)
{
	static struct fo_cuda_survey s;
	const char *index = getenv("FLATOUT_CUDA_DEVICE"), *named = getenv("FLATOUT_CUDA_LIBRARIES"), *soft = getenv("FLATOUT_SOFT_CUDA");
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
	static const char *const name[] = { "fo_software_counters", "fo_software_seed", "fo_software_order", "fo_software_enqueue" };
	if (!fo_cuda_info(c)->software)
		return NULL;
	void *h = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
	for (int i = 0; h && i < 4; i++)
		soft.at[i] = dlsym(h, name[i]);
	return h ? &soft.call : NULL;
}

void fo_test_cuda_use(struct fo_cuda *c) { device = c; }

static struct fo_call without_data(const struct fo_call *c)
{
	struct fo_call shape = *c;
	for (int i = 0; i < c->n; i++)
		shape.arg[i].data = NULL;
	return shape;
}

const char *fo_test_cuda_cannot(const struct fo_num_case *n)
{
	struct fo_call shape = without_data(&n->call);
	return fo_cuda_cannot(device, &shape);
}

static void need(fo_status st, const struct fo_call *c, const char *what)
{
	if (st != FO_OK)
		fail_msg("%s: %s: %s (%s)", fo_op_info(c->kind)->name, what, fo_err_text(), fo_err_hint());
}

/* Operand i's block in host memory, page-locked memory and on the device; two operands in one place share all. */
struct block {
	unsigned char *host, *locked, *device;
	size_t bytes;
	int same; /* an earlier operand, or -1 */
};

static void blocks_in(const struct fo_call *c, struct block *b, fo_cuda_stream s)
{
	for (int i = 0; i < c->n; i++) {
		b[i].same = -1;
		for (int k = 0; k < i && b[i].same < 0; k++)
			if (b[k].host == b[i].host)
				b[i] = b[k], b[i].same = k;
		if (b[i].same >= 0)
			continue;
		need(fo_cuda_host_alloc(device, b[i].bytes, (void **)&b[i].locked), c, "page-locked memory");
		need(fo_cuda_alloc(device, b[i].bytes, (void **)&b[i].device), c, "memory");
		memcpy(b[i].locked, b[i].host, b[i].bytes);
		need(fo_cuda_copy_in(device, b[i].device, b[i].locked, b[i].bytes, s), c, "copy in");
	}
}

static void blocks_out(const struct fo_call *c, struct block *b, fo_cuda_stream s)
{
	for (int i = 0; i < c->n; i++)
		if (b[i].same < 0)
			need(fo_cuda_copy_out(device, b[i].locked, b[i].device, b[i].bytes, s), c, "copy out");
	need(fo_cuda_stream_wait(device, s), c, "wait");
	for (int i = 0; i < c->n; i++) {
		if (b[i].same >= 0)
			continue;
		memcpy(b[i].host, b[i].locked, b[i].bytes);
		fo_cuda_host_free(device, b[i].locked);
		fo_cuda_free(device, b[i].device);
	}
}

/* b: host and bytes are set. */
static void run_on(const struct fo_call *c, struct block *b)
{
	const struct fo_cuda_kernel *k = fo_cuda_kernel_of(c->kind);
	struct fo_call shape = without_data(c), call = *c;
	const void *host[FO_MAX_OPERANDS] = { NULL };
	unsigned char *ws, *tail;
	fo_cuda_stream s;
	size_t bytes = 0;
	need(fo_cuda_stream_new(device, &s), c, "stream");
	/* What the training loop fills lies in host memory, too: indices of every kind. */
	for (int i = 0; i < c->n; i++)
		host[i] = c->arg[i].dtype == FO_I32 ? c->arg[i].data : NULL;
	int64_t variant = k->variant ? k->variant(c, host) : 0;
	if (k->prepare)
		need(k->prepare(device, &shape, variant, &bytes), c, "prepare");
	blocks_in(c, b, s);
	for (int i = 0; i < c->n; i++)
		call.arg[i].data = b[i].device + ((unsigned char *)c->arg[i].data - b[i].host);
	call.ws = NULL;
	call.ws_bytes = 0;
	need(fo_cuda_alloc(device, bytes + SENTINEL_BYTES, (void **)&ws), c, "workspace");
	need(fo_cuda_host_alloc(device, SENTINEL_BYTES, (void **)&tail), c, "page-locked memory");
	need(fo_cuda_fill(device, ws, 0xff, bytes, s), c, "fill");
	need(fo_cuda_fill(device, ws + bytes, SENTINEL, SENTINEL_BYTES, s), c, "fill");
	struct fo_cuda_queue q = { .cuda = device, .stream = s, .ws = ws, .ws_bytes = bytes };
	need(k->run(&q, &call, variant), c, "run");
	need(fo_cuda_copy_out(device, tail, ws + bytes, SENTINEL_BYTES, s), c, "copy out");
	blocks_out(c, b, s);
	for (int i = 0; i < SENTINEL_BYTES; i++)
		if (tail[i] != SENTINEL)
			fail_msg("%s wrote behind its workspace", fo_op_info(c->kind)->name);
	fo_cuda_host_free(device, tail);
	fo_cuda_free(device, ws);
	fo_cuda_stream_free(device, s);
}
static void run(const struct fo_call *c)
{
	struct block b[FO_MAX_OPERANDS];
	for (int i = 0; i < c->n; i++)
		fo_num_block(&c->arg[i], &b[i].host, &b[i].bytes);
	run_on(c, b);
}
const struct fo_kernel fo_test_cuda_kernel = { .run = run };

void fo_test_cuda_run(const struct fo_call *c, unsigned char *const *block, const size_t *bytes)
{
	struct block b[FO_MAX_OPERANDS];
	for (int i = 0; i < c->n; i++)
		b[i].host = block[i], b[i].bytes = bytes[i];
	run_on(c, b);
}
