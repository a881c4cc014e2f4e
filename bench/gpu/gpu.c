/* What one CUDA device reaches, and what every operation of a training step reaches of that.
 *
 *   bench_gpu [--bench.device 0] [--bench.seconds 0.2] [--bench.block 0] [--bench.square 8192]
 *             [--model.name llama-3.1-8b --data.seq 8192 ...]
 *   bench_gpu --bench.only attention ...
 *   bench_gpu --bench.sustain 20 [--bench.square 8192]
 *   bench_gpu --bench.plan 150.1GB ...
 *
 * All options of a run work (flatout train --help); what they leave open (pass.recompute, optim.state) is chosen for
 * this device's memory as `flatout train` chooses it, and products are tuned as train.tune says. First two ceilings:
 * a device-to-device copy of random numbers (bytes read and written) and a square bf16 product (8,192). Then each
 * distinct operation of the run's step program (kind, shape, data types, stored or added to) by itself on random
 * numbers. The sum over all instances is what the step would take without gaps and without anything at the same time:
 * a prediction to hold a measured step against.
 *
 * There are two kinds of times, and they differ:
 * - "us_median", "us_best", "step_ms_without_gaps": single calls (--bench.seconds of each operation). Between them
 *   the level-two cache is filled with something else and the host waits, so operands come from memory, and the
 *   device rests: its power never settles, and clocks are higher than in training.
 * - "us_block", "step_ms_of_blocks": the same call over and over for --bench.block seconds, of which the last half
 *   counts, without a flush and without a wait: clock and power are those of a device at work, but small operands
 *   stay in the cache. For products, most of a step, this is the time to believe; for kernels bound by memory the
 *   single calls.
 * --bench.sustain runs only the square product, for that many seconds, with NVML's clock, power, temperature and
 * energy beside it, and says at which rate it settled. --bench.plan says how the step's memory is laid out on a
 * device of that size, needs none and stops there.
 *
 * One JSON object per line; exit 77: no CUDA device. Clocks drop under power: read the ratios. */
#include "gpu.h"

#include "base/clock.h"
#include "base/mem.h"
#include "cost/cost.h"
#include "cost/device_profile.h"
#include "pass/pass.h"
#include "train/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST = 10, MOST = 400, ALIGNMENT = 256 };
#define STAGE_BYTES ((size_t)16 << 20)
/* In level-two caches of the device: far more than fits (a gigabyte on an H200), and enough to leave nothing of an
 * operand there. */
#define COPY_CACHES 20
#define FLUSH_CACHES 4

static const struct fo_opt extra[] = {
	FO_OPT_INT(struct bench, device, "bench.device", "N", "0", 0, 15, "", "which of the visible devices"),
	FO_OPT_INT(struct bench, square, "bench.square", "N", "8192", 16, 65536, "",
		   "rows and columns of the product that is the ceiling"),
	FO_OPT_REAL(struct bench, seconds, "bench.seconds", "S", "0.2", 0.001, 60, "s",
		    "that each operation is repeated for, at least"),
	FO_OPT_REAL(struct bench, block, "bench.block", "S", "0", 0, 60, "s",
		    "that each operation then runs without a pause; 0: not"),
	FO_OPT_REAL(struct bench, sustain, "bench.sustain", "S", "0", 0, 3600, "s",
		    "only the square product, without a pause; 0: not"),
	FO_OPT_TEXT(struct bench, only, "bench.only", "TEXT", "",
		    "the operations with this in their names; empty: all"),
	FO_OPT_BYTES(struct bench, plan, "bench.plan", "SIZE", NULL, 0, 0x1p53,
		     "the step's memory on a device of this size, which need not be there"),
	FO_OPT_END
};

/* ---- timing ---- */

typedef fo_status enqueue_fn(struct bench *b, const void *arg);

/* Calls fn again and again; b->ms holds the times. */
static fo_status measure(struct bench *b, enqueue_fn *fn, const void *arg)
{
	const size_t least = fo_cuda_info(b->cuda)->software
				     ? 2
				     : LEAST; /* times of a model of a device say nothing, however many */
	double sum = 0;
	for (b->n = 0; b->n < MOST && (b->n < least || sum < b->seconds * 1e3);) {
		float ms = 0;
		FO_TRY(fo_cuda_fill(b->cuda, b->flush, (unsigned char)b->n, b->flush_bytes, b->queue.stream));
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

fo_status bench_enqueue(struct bench *b, const struct launch *l)
{
	return l->kernel->run(&b->queue, &l->call, l->variant);
}
static fo_status enqueue(struct bench *b, const void *arg) { return bench_enqueue(b, arg); }

fo_status bench_ready(struct bench *b, struct fo_work *w, struct launch *l)
{
	const void *host[FO_MAX_OPERANDS] = { NULL };
	size_t ws = 0;
	*l = (struct launch){ .kernel = fo_cuda_kernel_of(w->call.kind) };
	fo_work_bind(w, &b->host, 1);
	for (int i = 0; i < w->call.n; i++)
		host[i] = w->call.arg[i].data;
	l->variant = l->kernel->variant ? l->kernel->variant(&w->call, host) : 0;
	l->call = w->call;
	if (l->kernel->prepare)
		FO_TRY(l->kernel->prepare(b->cuda, &l->call, l->variant, &ws));
	if (ws > b->queue.ws_bytes) {
		fo_cuda_free(b->cuda, b->queue.ws);
		b->queue.ws = NULL;
		FO_TRY(fo_cuda_alloc(b->cuda, ws, &b->queue.ws));
		b->queue.ws_bytes = ws;
	}
	l->call.ws = b->queue.ws;
	l->call.ws_bytes = b->queue.ws_bytes;
	FO_TRY(upload(b, &l->call));
	FO_TRY(bench_enqueue(b, l)); /* warm: code is loaded at a first launch */
	return fo_cuda_stream_wait(b->cuda, b->queue.stream);
}

/* block_s: seconds of a call in a block; NAN: there was none. */
static fo_status time_work(struct bench *b, struct fo_work *w, double *block_s)
{
	struct launch l;
	*block_s = NAN;
	FO_TRY(bench_ready(b, w, &l));
	FO_TRY(measure(b, enqueue, &l));
	return b->block > 0 ? bench_block(b, &l, b->block, block_s) : FO_OK;
}

/* ---- ceilings ---- */

static fo_status copy(struct bench *b, const void *arg)
{
	(void)arg;
	return fo_cuda_copy(b->cuda, b->pool + b->copy_bytes, b->pool, b->copy_bytes, b->queue.stream);
}

static void print_ceiling(const struct bench *b, const char *what, const char *unit, double amount)
{
	printf("{\"ceiling\":\"%s\",\"unit\":\"%s\",\"median\":%.1f,\"best\":%.1f,\"times\":%zu}\n", what, unit,
	       amount / median_s(b), amount / best_s(b), b->n);
	fflush(stdout);
}

static fo_status ceilings(struct bench *b)
{
	/* Numbers, not zeros: those draw less power, so clocks stay higher than in training. */
	for (size_t at = 0; at < b->copy_bytes; at += b->host.bytes[FO_WORK_READ_BF16]) {
		size_t left = b->copy_bytes - at, part = b->host.bytes[FO_WORK_READ_BF16];
		FO_TRY(copy_in(b, b->pool + at, b->host.at[FO_WORK_READ_BF16], part < left ? part : left));
	}
	FO_TRY(copy(b, NULL));
	FO_TRY(measure(b, copy, NULL));
	print_ceiling(b, "copy", "GB/s", 2e-9 * (double)b->copy_bytes);
	b->copy_bytes_s = 2 * (double)b->copy_bytes / median_s(b);
	struct fo_work square;
	double block_s;
	fo_work_linear(&square, FO_ISA_REF, FO_WORK_FORWARD, b->square, b->square, b->square, FO_BF16, 1);
	FO_TRY(time_work(b, &square, &block_s));
	print_ceiling(b, "square bf16 product", "TFLOP/s", 1e-12 * square.flop);
	b->product_flop_s = square.flop / median_s(b);
	return FO_OK;
}

/* ---- the step's operations ---- */

static bool same(const struct fo_call *a, const struct fo_call *b)
{
	if (a->kind != b->kind || a->n != b->n || a->first != b->first ||
	    memcmp(&a->attr, &b->attr, offsetof(struct fo_attr, element)) || a->attr.value != b->attr.value)
		return false;
	for (int i = 0; i < a->n; i++)
		if (a->arg[i].rows != b->arg[i].rows || a->arg[i].cols != b->arg[i].cols ||
		    a->arg[i].ld != b->arg[i].ld || a->arg[i].dtype != b->arg[i].dtype)
			return false;
	return true;
}

static void collect(struct bench *b)
{
	const struct fo_program *p = &b->step.program;
	for (int i = 0; i < b->unrolled.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &b->unrolled, i);
		struct fo_work w;
		size_t k = 0;
		if (fo_op_info(o->kind)->cls == FO_CLASS_HOST || o->phase == FO_DERIVE ||
		    !strstr(fo_op_info(o->kind)->name, b->only))
			continue;
		fo_work_of_op(&w, FO_ISA_REF, p, o, b->unrolled.first[i], 1);
		while (k < b->entries && !same(&b->entry[k].work.call, &w.call))
			k++;
		if (k == b->entries) {
			fo_array_room(&b->entry, &b->entry_cap, b->entries, sizeof *b->entry);
			b->entry[b->entries++] = (struct entry){ .work = w,
								 .key = fo_op_signature(p, o, b->unrolled.first[i]) };
		}
		b->entry[k].count++;
	}
}

static fo_status check_all(const struct bench *b)
{
	for (size_t k = 0; k < b->entries; k++) {
		const char *why = fo_cuda_cannot(b->cuda, &b->entry[k].work.call);
		if (why)
			return fo_fail(FO_EUNSUPPORTED, "%s cannot run on the device: %s",
				       fo_op_info(b->entry[k].work.call.kind)->name, why);
	}
	return FO_OK;
}

static void shape_text(const struct fo_call *c, char *out, size_t size)
{
	size_t at = 0;
	*out = 0;
	for (int i = 0; i < c->n && at < size; i++)
		at += (size_t)snprintf(out + at, size - at, "%s%lldx%lld %s", i ? ", " : "", (long long)c->arg[i].rows,
				       (long long)c->arg[i].cols, fo_dtype_name[c->arg[i].dtype]);
}

/* Median milliseconds of all its instances; *block_ms: of blocks. */
static double print_entry(const struct bench *b, const struct entry *e, double block_s, double *block_ms)
{
	const struct fo_op_info *info = fo_op_info(e->work.call.kind);
	const bool products = info->cls == FO_CLASS_TENSOR;
	const double amount = products ? e->work.flop : e->work.bytes,
		     ceiling = products ? b->product_flop_s : b->copy_bytes_s, unit = products ? 1e-12 : 1e-9;
	const double rate = amount / median_s(b) * unit, block_rate = amount / block_s * unit;
	struct fo_str text = { 0 };
	char shape[512], key[17];
	shape_text(&e->work.call, shape, sizeof shape);
	snprintf(key, sizeof key, "%016llx", (unsigned long long)e->key);
	const struct fo_device_operation line = {
		.operation = info->name,
		.key = key,
		.category = fo_category_name[info->category],
		.count = (double)e->count,
		.us_median = median_s(b) * 1e6,
		.us_best = best_s(b) * 1e6,
		.us_block = block_s * 1e6,
		.times = (double)b->n,
		.tflop_s = products ? rate : NAN,
		.gb_s = products ? NAN : rate,
		.tflop_s_block = products ? block_rate : NAN,
		.gb_s_block = products ? NAN : block_rate,
		.of_ceiling = amount / median_s(b) / ceiling,
		.ms_per_step = median_s(b) * 1e3 * (double)e->count,
		.operands = shape,
	};
	fo_schema_text(&fo_device_operation_schema, &line, false, &text);
	puts(text.data);
	fflush(stdout);
	fo_str_fini(&text);
	*block_ms = block_s * 1e3 * (double)e->count;
	return median_s(b) * 1e3 * (double)e->count;
}

static void print_sums(const struct bench *b, const double *category, double sum, double block_sum)
{
	struct fo_str text = { 0 };
	struct fo_json j;
	struct fo_cuda_tuned tuned;
	char name[64];
	fo_cuda_tune_result(b->cuda, &tuned);
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_real(&j, "step_ms_without_gaps", sum);
	fo_json_real(&j, "step_ms_of_blocks", block_sum);
	for (int c = 0; c < FO_CAT_COUNT; c++) {
		snprintf(name, sizeof name, "%s_ms", fo_category_name[c]);
		if (category[c] > 0)
			fo_json_real(&j, name, category[c]);
	}
	fo_json_object(&j, "products");
	fo_device_tuned_json(&tuned, &b->run, &j);
	fo_json_close(&j);
	fo_json_close(&j);
	puts(text.data);
	fo_str_fini(&text);
}

static fo_status operations(struct bench *b)
{
	double category[FO_CAT_COUNT] = { 0 }, sum = 0, block_sum = 0;
	for (size_t k = 0; k < b->entries; k++) {
		double block_s, block_ms;
		FO_TRY(time_work(b, &b->entry[k].work, &block_s));
		double ms = print_entry(b, &b->entry[k], block_s, &block_ms);
		category[fo_op_info(b->entry[k].work.call.kind)->category] += ms;
		sum += ms;
		block_sum += block_ms;
	}
	print_sums(b, category, sum, block_sum);
	return FO_OK;
}

/* ---- setting up ---- */

/* The step that `flatout train` would make here, and its operations. */
static fo_status make_step(struct bench *b)
{
	const struct fo_exec_options o = { .cuda = b->cuda, .timeline_steps = 1 };
	FO_TRY(fo_room_step_open(&b->step, &b->run, &o, NULL, NULL));
	FO_TRY(fo_unroll(&b->step.program, &b->unrolled));
	collect(b);
	return b->entries ? check_all(b)
			  : fo_fail(FO_EARG, "no operation of this step has '%s' in its name (bench.only)", b->only);
}

static fo_status prepare(struct bench *b)
{
	const size_t cache = (size_t)fo_cuda_info(b->cuda)->l2_bytes;
	struct fo_work square;
	b->copy_bytes = COPY_CACHES * cache / ALIGNMENT * ALIGNMENT;
	b->flush_bytes = FLUSH_CACHES * cache;
	fo_work_linear(&square, FO_ISA_REF, FO_WORK_FORWARD, b->square, b->square, b->square, FO_BF16, 1);
	b->pool_bytes = device_bytes(&square.call) > 2 * b->copy_bytes ? device_bytes(&square.call) : 2 * b->copy_bytes;
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
	FO_TRY(fo_cuda_alloc(b->cuda, b->flush_bytes, (void **)&b->flush));
	FO_TRY(fo_cuda_host_alloc(b->cuda, STAGE_BYTES, &b->stage));
	b->ms = fo_xmalloc(MOST * sizeof *b->ms);
	return fo_cuda_alloc(b->cuda, b->pool_bytes, (void **)&b->pool);
}

static void print_start(const struct bench *b)
{
	const struct fo_cuda_device *d = fo_cuda_info(b->cuda);
	struct fo_device_header line = { .device = d->name };
	struct fo_str text = { 0 }, choice = { 0 };
	struct fo_json j;
	char cc[16];
	snprintf(cc, sizeof cc, "%d.%d", d->cc_major, d->cc_minor);
	line.compute_capability = cc;
	if (b->entries) {
		fo_json_begin(&j, &choice, false);
		fo_json_object(&j, NULL);
		fo_room_choice_json(&b->step.choice, &b->step.program, &j);
		fo_json_close(&j);
		line.model = b->step.model.name;
		line.seq = b->run.seq;
		line.choice = choice.data;
		line.distinct_operations = (int64_t)b->entries;
	}
	fo_schema_text(&fo_device_header_schema, &line, false, &text);
	puts(text.data);
	fflush(stdout);
	fo_str_fini(&choice);
	fo_str_fini(&text);
}

static fo_status run(struct bench *b)
{
	FO_TRY(fo_cuda_open(&b->cuda, (int)b->device));
	FO_TRY(fo_device_tune(b->cuda, &b->run));
	b->queue.cuda = b->cuda;
	if (b->sustain <= 0)
		FO_TRY(make_step(b));
	FO_TRY(prepare(b));
	print_start(b);
	if (b->sustain > 0)
		return bench_sustain(b);
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
	fo_room_step_close(&b->step);
	fo_cuda_close(b->cuda);
	fo_work_data_free(&b->host);
	fo_unrolled_fini(&b->unrolled);
	free(b->entry);
	free(b->ms);
}

int main(int argc, char **argv)
{
	struct bench b = { 0 };
	struct fo_opt_set s;
	struct fo_cuda_survey found;
	fo_opt_init_own(&s, fo_run_options, extra, &b);
	b.run.micro_batches = 1; /* unless asked for */
	fo_opt_read_args(&s, &argc, argv);
	fo_status st = argc > 1 ? fo_fail(FO_EARG, "unexpected argument '%s'", argv[1]) : fo_run_check(&s, &b.run);
	if (st == FO_OK && b.plan) {
		st = fo_room_plan_print(&b.run, b.plan, stdout);
	} else if (st == FO_OK) {
		fo_cuda_survey(&found);
		if (!found.devices) {
			printf("skipped: no CUDA device (%s)\n", found.why);
			fo_opt_fini(&s);
			return 77;
		}
		st = run(&b);
	}
	if (st != FO_OK)
		fprintf(stderr, "bench_gpu: %s%s%s\n", fo_err_text(), *fo_err_hint() ? "\nhint: " : "", fo_err_hint());
	tidy(&b);
	fo_opt_fini(&s);
	return fo_status_exit_code(st);
}
