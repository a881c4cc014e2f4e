/* What one CUDA device reaches, and what every operation of a training step reaches of that.
 *
 *   bench_gpu [--bench.device 0] [--bench.seconds 0.2] [--bench.square 8192] [--model.name llama-3.1-8b --data.seq 8192 ...]
 *
 * All options of a run work (flatout train --help). First two ceilings: a device-to-device copy of random numbers (bytes read and
 * written) and a square bf16 product (8,192). Then each distinct operation of the run's step program (kind, shape, data types, stored or
 * added to) by itself on random numbers, with the level-two cache filled with something else before each call, between two events: median
 * and best, the rate, its share of the ceiling that binds it, and its share of the step when all instances run one after the other. That
 * sum is what the step would take without gaps and without anything at the same time: a prediction to hold a measured step against.
 *
 * One JSON object per line; exit 77: no CUDA device. Clocks drop under power: read the ratios. */
#include "base/clock.h"
#include "base/mem.h"
#include "cost/cost.h"
#include "kernel/cuda/cuda.h"
#include "kernel/work.h"
#include "pass/pass.h"
#include "program/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 10, MOST = 400, ALIGNMENT = 256 };
#define STAGE_BYTES ((size_t)16 << 20)
#define COPY_BYTES ((size_t)1 << 30)  /* far larger than any cache */
#define FLUSH_BYTES ((size_t)256 << 20)

struct entry {
	struct fo_work work;
	int64_t count; /* in a step */
	uint64_t key;  /* fo_op_signature: how flatout predict finds it again */
};
struct bench {
	struct fo_run run;
	int64_t device, square;
	double seconds;
	struct fo_model model;
	struct fo_program program;
	struct fo_unrolled unrolled;
	struct entry *entry;
	size_t entries, entry_cap;
	struct fo_work_data host;
	struct fo_cuda *cuda;
	struct fo_cuda_queue queue;
	fo_cuda_event begin, end;
	unsigned char *pool, *flush; /* device */
	void *stage;                 /* page-locked: what goes to the device passes through it */
	size_t pool_bytes;
	double copy_bytes_s, product_flop_s;
	double *ms; /* of the newest measurement, sorted */
	size_t n;
};
static const struct fo_opt extra[] = {
	FO_OPT_INT(struct bench, device, "bench.device", "N", "0", 0, 15, "", "which of the visible devices"),
	FO_OPT_INT(struct bench, square, "bench.square", "N", "8192", 16, 65536, "", "rows and columns of the product that is the ceiling"),
	FO_OPT_REAL(struct bench, seconds, "bench.seconds", "S", "0.2", 0.001, 60, "s", "that each operation is repeated for, at least"),
	FO_OPT_END
};
static struct fo_opt rows[FO_RUN_ROWS_MAX];

/* ---- timing ---- */

typedef fo_status enqueue_fn(struct bench *b, const void *arg);

/* Calls fn again and again; b->ms holds the times. */
static fo_status measure(struct bench *b, enqueue_fn *fn, const void *arg)
{
	double sum = 0;
	for (b->n = 0; b->n < MOST && (b->n < LEAST || sum < b->seconds * 1e3);) {
		float ms = 0;
		FO_TRY(fo_cuda_fill(b->cuda, b->flush, (unsigned char)b->n, FLUSH_BYTES, b->queue.stream));
		FO_TRY(fo_cuda_event_record(b->cuda, b->begin, b->queue.stream, false));
		FO_TRY(fn(b, arg));
		FO_TRY(fo_cuda_event_record(b->cuda, b->end, b->queue.stream, false));
		FO_TRY(fo_cuda_stream_wait(b->cuda, b->queue.stream));
		FO_TRY(fo_cuda_event_ms(b->cuda, b->begin, b->end, &ms));
		b->ms[b->n++] = (double)ms;
		sum += (double)ms;
	}
	return FO_OK;
}
static double median_s(const struct bench *b) { return fo_stats_median(b->ms, b->n) * 1e-3; }
static double best_s(const struct bench *b) { return fo_stats_quantile(b->ms, b->n, 0) * 1e-3; }

/* ---- one operation ---- */

static size_t padded(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }
static size_t operand_bytes(const struct fo_tensor *t) { return (size_t)(t->rows * t->ld) * fo_dtype_bytes(t->dtype); }

static size_t device_bytes(const struct fo_call *c)
{
	size_t sum = 0;
	for (int i = 0; i < c->n; i++)
		sum += padded(operand_bytes(&c->arg[i]));
	return sum;
}

static fo_status copy_in(struct bench *b, void *device, const void *host, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += STAGE_BYTES) {
		size_t part = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
		memcpy(b->stage, (const char *)host + at, part);
		FO_TRY(fo_cuda_copy_in(b->cuda, (char *)device + at, b->stage, part, b->queue.stream));
		FO_TRY(fo_cuda_stream_wait(b->cuda, b->queue.stream));
	}
	return FO_OK;
}

/* Operands into the pool, one behind the other; host pointers become device pointers. */
static fo_status upload(struct bench *b, struct fo_call *c)
{
	size_t at = 0;
	for (int i = 0; i < c->n; i++) {
		struct fo_tensor *t = &c->arg[i];
		FO_TRY(copy_in(b, b->pool + at, t->data, operand_bytes(t)));
		t->data = b->pool + at;
		at += padded(operand_bytes(t));
	}
	return FO_OK;
}

struct launch {
	const struct fo_cuda_kernel *kernel;
	struct fo_call call;
	int64_t variant;
};
static fo_status enqueue(struct bench *b, const void *arg)
{
	const struct launch *l = arg;
	return l->kernel->run(&b->queue, &l->call, l->variant);
}

static fo_status time_work(struct bench *b, struct fo_work *w)
{
	struct launch l = { .kernel = fo_cuda_kernel_of(w->call.kind) };
	const void *host[FO_MAX_OPERANDS] = { NULL };
	size_t ws = 0;
	fo_work_bind(w, &b->host, 1);
	for (int i = 0; i < w->call.n; i++)
		host[i] = w->call.arg[i].data;
	l.variant = l.kernel->variant ? l.kernel->variant(&w->call, host) : 0;
	l.call = w->call;
	if (l.kernel->prepare)
		FO_TRY(l.kernel->prepare(b->cuda, &l.call, l.variant, &ws));
	if (ws > b->queue.ws_bytes) {
		fo_cuda_free(b->cuda, b->queue.ws);
		b->queue.ws = NULL;
		FO_TRY(fo_cuda_alloc(b->cuda, ws, &b->queue.ws));
		b->queue.ws_bytes = ws;
	}
	l.call.ws = b->queue.ws;
	l.call.ws_bytes = b->queue.ws_bytes;
	FO_TRY(upload(b, &l.call));
	FO_TRY(enqueue(b, &l)); /* warm: code is loaded at a first launch */
	FO_TRY(fo_cuda_stream_wait(b->cuda, b->queue.stream));
	return measure(b, enqueue, &l);
}

/* ---- ceilings ---- */

static fo_status copy(struct bench *b, const void *arg)
{
	(void)arg;
	return fo_cuda_copy(b->cuda, b->pool + COPY_BYTES, b->pool, COPY_BYTES, b->queue.stream);
}

static void print_ceiling(const struct bench *b, const char *what, const char *unit, double amount)
{
	printf("{\"ceiling\":\"%s\",\"unit\":\"%s\",\"median\":%.1f,\"best\":%.1f,\"times\":%zu}\n", what, unit, amount / median_s(b),
	       amount / best_s(b), b->n);
	fflush(stdout);
}

static fo_status ceilings(struct bench *b)
{
	/* Numbers, not zeros: those draw less power, so clocks stay higher than in training. */
	for (size_t at = 0; at < COPY_BYTES; at += b->host.bytes[FO_WORK_READ_BF16]) {
		size_t left = COPY_BYTES - at, part = b->host.bytes[FO_WORK_READ_BF16];
		FO_TRY(copy_in(b, b->pool + at, b->host.at[FO_WORK_READ_BF16], part < left ? part : left));
	}
	FO_TRY(copy(b, NULL));
	FO_TRY(measure(b, copy, NULL));
	print_ceiling(b, "copy", "GB/s", 2e-9 * (double)COPY_BYTES);
	b->copy_bytes_s = 2 * (double)COPY_BYTES / median_s(b);
	struct fo_work square;
	fo_work_linear(&square, FO_ISA_REF, FO_WORK_FORWARD, b->square, b->square, b->square, FO_BF16, 1);
	FO_TRY(time_work(b, &square));
	print_ceiling(b, "square bf16 product", "TFLOP/s", 1e-12 * square.flop);
	b->product_flop_s = square.flop / median_s(b);
	return FO_OK;
}

/* ---- the step's operations ---- */

static bool same(const struct fo_call *a, const struct fo_call *b)
{
	if (a->kind != b->kind || a->n != b->n || a->first != b->first || memcmp(&a->attr, &b->attr, offsetof(struct fo_attr, element)) ||
	    a->attr.value != b->attr.value)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->arg[i].rows != b->arg[i].rows || a->arg[i].cols != b->arg[i].cols || a->arg[i].ld != b->arg[i].ld ||
		    a->arg[i].dtype != b->arg[i].dtype)
			return false;
	return true;
}

static void collect(struct bench *b)
{
	for (int i = 0; i < b->unrolled.n; i++) {
		const struct fo_op *o = fo_instance_op(&b->program, &b->unrolled, i);
		struct fo_work w;
		size_t k = 0;
		if (fo_op_info(o->kind)->cls == FO_CLASS_HOST || o->phase == FO_DERIVE)
			continue;
		fo_work_of_op(&w, FO_ISA_REF, &b->program, o, b->unrolled.first[i], 1);
		while (k < b->entries && !same(&b->entry[k].work.call, &w.call))
			k++;
		if (k == b->entries) {
			fo_array_room(&b->entry, &b->entry_cap, b->entries, sizeof *b->entry);
			b->entry[b->entries++] = (struct entry){ .work = w, .key = fo_op_signature(&b->program, o, b->unrolled.first[i]) };
		}
		b->entry[k].count++;
	}
}

static fo_status check_all(const struct bench *b)
{
	for (size_t k = 0; k < b->entries; k++) {
		const char *why = fo_cuda_cannot(b->cuda, &b->entry[k].work.call);
		if (why)
			return fo_fail(FO_EUNSUPPORTED, "%s cannot run on the device: %s", fo_op_info(b->entry[k].work.call.kind)->name, why);
	}
	return FO_OK;
}

static void shape_text(const struct fo_call *c, char *out, size_t size)
{
	size_t at = 0;
	*out = 0;
	for (int i = 0; i < c->n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%lldx%lld %s", i ? ", " : "", (long long)c->arg[i].rows, (long long)c->arg[i].cols,
				       fo_dtype_name[c->arg[i].dtype]);
}

/* Median milliseconds of all its instances. */
static double print_entry(const struct bench *b, const struct entry *e)
{
	const struct fo_op_info *info = fo_op_info(e->work.call.kind);
	bool products = info->cls == FO_CLASS_TENSOR;
	double rate = (products ? e->work.flop : e->work.bytes) / median_s(b), ms = median_s(b) * 1e3 * (double)e->count;
	char shape[512];
	shape_text(&e->work.call, shape, sizeof shape);
	printf("{\"operation\":\"%s\",\"key\":\"%016llx\",\"category\":\"%s\",\"count\":%lld,\"us_median\":%.2f,\"us_best\":%.2f,\"times\":%zu,\"%s\":%.1f,"
	       "\"of_ceiling\":%.3f,\"ms_per_step\":%.3f,\"operands\":\"%s\"}\n",
	       info->name, (unsigned long long)e->key, fo_category_name[info->category], (long long)e->count, median_s(b) * 1e6, best_s(b) * 1e6, b->n,
	       products ? "tflop_s" : "gb_s", rate * (products ? 1e-12 : 1e-9), rate / (products ? b->product_flop_s : b->copy_bytes_s), ms, shape);
	fflush(stdout);
	return ms;
}

static fo_status operations(struct bench *b)
{
	double category[FO_CAT_COUNT] = { 0 }, sum = 0;
	for (size_t k = 0; k < b->entries; k++) {
		FO_TRY(time_work(b, &b->entry[k].work));
		double ms = print_entry(b, &b->entry[k]);
		category[fo_op_info(b->entry[k].work.call.kind)->category] += ms;
		sum += ms;
	}
	printf("{\"step_ms_without_gaps\":%.3f", sum);
	for (int c = 0; c < FO_CAT_COUNT; c++)
		if (category[c] > 0)
			printf(",\"%s_ms\":%.3f", fo_category_name[c], category[c]);
	printf("}\n");
	return FO_OK;
}

/* ---- setting up ---- */

static fo_status prepare(struct bench *b)
{
	struct fo_lowering low = fo_run_lowering(&b->run, FO_MODE_TRAIN);
	struct fo_work square;
	FO_TRY(fo_run_model(&b->run, &b->model));
	FO_TRY(fo_pass_build(&b->program, &b->model, &low));
	FO_TRY(fo_unroll(&b->program, &b->unrolled));
	collect(b);
	FO_TRY(check_all(b));
	size_t square_bytes = 3 * padded((size_t)(b->square * b->square) * fo_dtype_bytes(FO_BF16));
	b->pool_bytes = square_bytes > 2 * COPY_BYTES ? square_bytes : 2 * COPY_BYTES;
	fo_work_linear(&square, FO_ISA_REF, FO_WORK_FORWARD, b->square, b->square, b->square, FO_BF16, 1);
	fo_work_data_need(&b->host, &square);
	for (size_t k = 0; k < b->entries; k++) {
		b->entry[k].work.call.ws_bytes = 0; /* that of the processor's kernel */
		fo_work_data_need(&b->host, &b->entry[k].work);
		size_t bytes = device_bytes(&b->entry[k].work.call);
		b->pool_bytes = bytes > b->pool_bytes ? bytes : b->pool_bytes;
	}
	FO_TRY(fo_work_data_new(&b->host));
	FO_TRY(fo_cuda_stream_new(b->cuda, &b->queue.stream));
	FO_TRY(fo_cuda_event_new(b->cuda, true, &b->begin));
	FO_TRY(fo_cuda_event_new(b->cuda, true, &b->end));
	FO_TRY(fo_cuda_alloc(b->cuda, FLUSH_BYTES, (void **)&b->flush));
	FO_TRY(fo_cuda_host_alloc(b->cuda, STAGE_BYTES, &b->stage));
	b->ms = fo_xmalloc(MOST * sizeof *b->ms);
	return fo_cuda_alloc(b->cuda, b->pool_bytes, (void **)&b->pool);
}

static fo_status run(struct bench *b)
{
	const struct fo_cuda_device *d;
	FO_TRY(fo_cuda_open(&b->cuda, (int)b->device));
	d = fo_cuda_info(b->cuda);
	b->queue.cuda = b->cuda;
	FO_TRY(prepare(b));
	printf("{\"device\":\"%s\",\"compute_capability\":\"%d.%d\",\"model\":\"%s\",\"seq\":%lld,\"rows\":%lld,\"distinct_operations\":%zu}\n",
	       d->name, d->cc_major, d->cc_minor, b->model.name, (long long)b->run.seq, (long long)b->run.rows, b->entries);
	FO_TRY(ceilings(b));
	return operations(b);
}

static void tidy(struct bench *b)
{
	if (b->cuda) {
		fo_cuda_event_free(b->cuda, b->begin);
		fo_cuda_event_free(b->cuda, b->end);
		fo_cuda_free(b->cuda, b->pool);
		fo_cuda_free(b->cuda, b->flush);
		fo_cuda_host_free(b->cuda, b->stage);
		fo_cuda_free(b->cuda, b->queue.ws);
		fo_cuda_stream_free(b->cuda, b->queue.stream);
	}
	fo_cuda_close(b->cuda);
	fo_work_data_free(&b->host);
	fo_unrolled_fini(&b->unrolled);
	fo_program_fini(&b->program);
	free(b->entry);
	free(b->ms);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct fo_opt_set s;
	struct fo_cuda_survey found;
	fo_run_options_with(rows, extra);
	fo_opt_init(&s, rows, &b);
	b.run.micro_batches = 1; /* unless asked for */
	fo_opt_read_args(&s, &argc, argv);
	fo_status st = argc > 1 ? fo_fail(FO_EARG, "unexpected argument '%s'", argv[1]) : fo_run_check(&s, &b.run);
	if (st == FO_OK) {
		fo_cuda_survey(&found);
		if (!found.devices) {
			printf("skipped: no CUDA device (%s)\n", found.why);
			fo_opt_fini(&s);
			return 77;
		}
		st = run(&b);
	}
	if (st != FO_OK)
		fprintf(stderr, "bench_gpu: %s\n", fo_err_text());
	tidy(&b);
	fo_opt_fini(&s);
	return fo_status_exit_code(st);
}
