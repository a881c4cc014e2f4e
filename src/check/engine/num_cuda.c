#include "check/engine/num_cuda.h"

#include <stdio.h>
#include <string.h>

enum { SENTINEL = 0xa5, SENTINEL_BYTES = 256 };

static struct fo_cuda *device;
static char error[512];
static bool failed;
static struct fo_call last; /* without its data */

void fo_num_cuda_use(struct fo_cuda *c) { device = c; }

const char *fo_num_cuda_error(void)
{
	bool was = failed;
	failed = false;
	return was ? error : NULL;
}

static struct fo_call without_data(const struct fo_call *c)
{
	struct fo_call shape = *c;
	for (int i = 0; i < c->n; i++)
		shape.arg[i].data = NULL;
	return shape;
}

const char *fo_num_cuda_cannot(const struct fo_num_case *n)
{
	struct fo_call shape = without_data(&n->call);
	return fo_cuda_cannot(device, &shape);
}

bool fo_num_cuda_same_bits(void)
{
	return fo_op_family(last.kind) != FO_OPS_ATTENTION_BWD || strcmp(fo_cuda_by(device, &last), "cuDNN") != 0;
}

/* Operand i's block in host memory, page-locked memory and on the device; operands in one place share all. */
struct block {
	unsigned char *host, *locked, *device;
	size_t bytes;
	int same; /* an earlier operand, or -1 */
};
struct job {
	const struct fo_call *c;
	unsigned char *const *block; /* NULL: operands lie in blocks of fo_num_data */
	const size_t *bytes;
	struct block b[FO_MAX_OPERANDS];
	unsigned char *ws, *tail; /* workspace with sentinels after it; these, copied back */
	fo_cuda_stream s;
};

static fo_status blocks_in(struct job *j)
{
	const struct fo_call *c = j->c;
	for (int i = 0; i < c->n; i++) {
		struct block *b = &j->b[i];
		if (j->block)
			b->host = j->block[i], b->bytes = j->bytes[i];
		else
			fo_num_block(&c->arg[i], &b->host, &b->bytes);
		b->same = -1;
		for (int k = 0; k < i && b->same < 0; k++)
			if (j->b[k].host == b->host)
				*b = j->b[k], b->same = k;
		if (b->same >= 0)
			continue;
		FO_TRY(fo_cuda_host_alloc(device, b->bytes, (void **)&b->locked));
		FO_TRY(fo_cuda_alloc(device, b->bytes, (void **)&b->device));
		memcpy(b->locked, b->host, b->bytes);
		FO_TRY(fo_cuda_copy_in(device, b->device, b->locked, b->bytes, j->s));
	}
	return FO_OK;
}

static fo_status blocks_out(struct job *j)
{
	for (int i = 0; i < j->c->n; i++)
		if (j->b[i].same < 0)
			FO_TRY(fo_cuda_copy_out(device, j->b[i].locked, j->b[i].device, j->b[i].bytes, j->s));
	FO_TRY(fo_cuda_stream_wait(device, j->s));
	for (int i = 0; i < j->c->n; i++)
		if (j->b[i].same < 0)
			memcpy(j->b[i].host, j->b[i].locked, j->b[i].bytes);
	return FO_OK;
}

static fo_status run_job(struct job *j)
{
	const struct fo_call *c = j->c;
	const struct fo_cuda_kernel *k = fo_cuda_kernel_of(c->kind);
	struct fo_call shape = without_data(c), call = *c;
	const void *host[FO_MAX_OPERANDS] = { NULL };
	size_t bytes = 0;
	if (!k)
		return fo_fail(FO_EUNSUPPORTED, "the device has no kernel for %s", fo_op_info(c->kind)->name);
	FO_TRY(fo_cuda_stream_new(device, &j->s));
	/* Indices lie in host memory, too, as in training. */
	for (int i = 0; i < c->n; i++)
		host[i] = c->arg[i].dtype == FO_I32 ? c->arg[i].data : NULL;
	int64_t variant = k->variant ? k->variant(c, host) : 0;
	if (k->prepare)
		FO_TRY(k->prepare(device, &shape, variant, &bytes));
	last = shape;
	FO_TRY(blocks_in(j));
	for (int i = 0; i < c->n; i++)
		call.arg[i].data = j->b[i].device + ((unsigned char *)c->arg[i].data - j->b[i].host);
	call.ws = NULL;
	call.ws_bytes = 0;
	FO_TRY(fo_cuda_alloc(device, bytes + SENTINEL_BYTES, (void **)&j->ws));
	FO_TRY(fo_cuda_host_alloc(device, SENTINEL_BYTES, (void **)&j->tail));
	FO_TRY(fo_cuda_fill(device, j->ws, 0xff, bytes, j->s)); /* not a number */
	FO_TRY(fo_cuda_fill(device, j->ws + bytes, SENTINEL, SENTINEL_BYTES, j->s));
	struct fo_cuda_queue q = { .cuda = device, .stream = j->s, .ws = j->ws, .ws_bytes = bytes };
	FO_TRY(k->run(&q, &call, variant));
	FO_TRY(fo_cuda_copy_out(device, j->tail, j->ws + bytes, SENTINEL_BYTES, j->s));
	FO_TRY(blocks_out(j));
	for (int i = 0; i < SENTINEL_BYTES; i++)
		if (j->tail[i] != SENTINEL)
			return fo_fail(FO_EBUG, "%s wrote past its workspace", fo_op_info(c->kind)->name);
	return FO_OK;
}

fo_status fo_num_cuda_run(const struct fo_call *c, unsigned char *const *block, const size_t *bytes)
{
	struct job j = { .c = c, .block = block, .bytes = bytes };
	fo_status st = run_job(&j);
	for (int i = 0; i < c->n; i++)
		if (j.b[i].same < 0) {
			fo_cuda_host_free(device, j.b[i].locked);
			fo_cuda_free(device, j.b[i].device);
		}
	fo_cuda_host_free(device, j.tail);
	fo_cuda_free(device, j.ws);
	fo_cuda_stream_free(device, j.s);
	return st;
}
static void run(const struct fo_call *c)
{
	if (fo_num_cuda_run(c, NULL, NULL) != FO_OK && !failed) {
		snprintf(error, sizeof error, "%s", fo_err_text());
		failed = true;
	}
}
const struct fo_kernel fo_num_cuda_kernel = { .run = run };
