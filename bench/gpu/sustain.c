/* One product for seconds: the rate, and beside it what NVML says of clock, power, temperature and energy.
 *
 * A device that waits between calls is cool and has its highest clock; one at work meets its power limit after some
 * tenths of a second, and then the clock, and with it the rate, is what the limit allows. So a burst promises more
 * than training gets. Here the host only keeps a bounded queue full: batches of calls, an event behind each, at most
 * DEPTH batches ahead of the device. Times are those between events. */
#include "gpu.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "train/device.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEPTH = 8, BURSTS = 5 };
#define BATCH_S \
	0.02 /* 8 of them in the queue: 0.16 s, far more than the host ever takes to put the next; less where all is \
		short */
#define BURST_S 0.014 /* bursts that are known from other measurements of such cards took 14 ms */
#define REST_S 0.3    /* between bursts: some periods of the power control */
#define WINDOW_S 1.0

struct queue {
	struct bench *b;
	const struct launch *l;
	fo_cuda_event end[DEPTH + 1]; /* of the newest batches, a ring; one more: a batch's time begins where the one
					 before it ends */
	int64_t put, done;            /* batches */
	int64_t calls;                /* in a batch */
};

static fo_status queue_open(struct queue *q, struct bench *b, const struct launch *l, double seconds)
{
	const double batch_ms = 1e3 * (seconds / 50 < BATCH_S ? seconds / 50 : BATCH_S);
	float ms = 0;
	*q = (struct queue){ .b = b, .l = l };
	for (int i = 0; i <= DEPTH; i++)
		FO_TRY(fo_cuda_event_new(b->cuda, true, &q->end[i]));
	/* How long one call takes; code was loaded before. */
	FO_TRY(fo_cuda_event_record(b->cuda, b->begin, b->queue.stream, false));
	FO_TRY(bench_enqueue(b, l));
	FO_TRY(fo_cuda_event_record(b->cuda, b->end, b->queue.stream, false));
	FO_TRY(fo_cuda_stream_wait(b->cuda, b->queue.stream));
	FO_TRY(fo_cuda_event_ms(b->cuda, b->begin, b->end, &ms));
	q->calls = ms > 0 && (double)ms < batch_ms ? (int64_t)(batch_ms / (double)ms) : 1;
	/* The first batch is timed from this event on. */
	return fo_cuda_event_record(b->cuda, q->end[DEPTH], b->queue.stream, false);
}

static void queue_close(struct queue *q)
{
	(void)!fo_cuda_stream_wait(q->b->cuda, q->b->queue.stream);
	for (int i = 0; i <= DEPTH; i++)
		fo_cuda_event_free(q->b->cuda, q->end[i]);
}

static fo_status put_batch(struct queue *q)
{
	for (int64_t i = 0; i < q->calls; i++)
		FO_TRY(bench_enqueue(q->b, q->l));
	return fo_cuda_event_record(q->b->cuda, q->end[q->put++ % (DEPTH + 1)], q->b->queue.stream, false);
}

/* Keeps the queue full and waits for the oldest batch; *s: its seconds. */
static fo_status next_batch(struct queue *q, double *s)
{
	float ms = 0;
	while (q->put - q->done < DEPTH)
		FO_TRY(put_batch(q));
	fo_cuda_event before = q->end[(q->done + DEPTH) % (DEPTH + 1)], end = q->end[q->done % (DEPTH + 1)];
	FO_TRY(fo_cuda_event_wait(q->b->cuda, end));
	FO_TRY(fo_cuda_event_ms(q->b->cuda, before, end, &ms));
	q->done++;
	*s = (double)ms * 1e-3;
	return FO_OK;
}

fo_status bench_block(struct bench *b, const struct launch *l, double seconds, double *each_s)
{
	struct queue q;
	double all = 0, half = 0, s;
	int64_t calls = 0;
	fo_status st = queue_open(&q, b, l, seconds);
	while (st == FO_OK && (all < seconds || !calls)) {
		st = next_batch(&q, &s);
		if (all >= seconds / 2)
			half += s, calls += q.calls;
		all += s;
	}
	queue_close(&q);
	*each_s = half / (double)calls;
	return st;
}

/* ---- the square product ---- */

struct settled { /* sums over the windows of the last half */
	double seconds, flop, hz_seconds, joules, power_seconds, hottest_c;
	int64_t windows;
};

static void print_window(int64_t k, double began, double seconds, double flop, const struct fo_nvml_use *u)
{
	struct fo_str text = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "window", k);
	fo_json_real(&j, "from_second", began);
	fo_json_real(&j, "device_seconds", seconds);
	fo_json_real(&j, "tflop_s", flop / seconds * 1e-12);
	fo_json_object(&j, "nvml");
	fo_schema_write_fields(&fo_nvml_use_schema, u, &j);
	fo_json_close(&j);
	fo_json_close(&j);
	puts(text.data);
	fflush(stdout);
	fo_str_fini(&text);
}

static void add_window(struct settled *t, double seconds, double flop, const struct fo_nvml_use *u)
{
	t->windows++;
	t->seconds += seconds;
	t->flop += flop;
	t->hz_seconds += u->sm_hz * seconds; /* NAN as soon as one window is not readable */
	t->joules += u->joules;
	t->power_seconds += u->power_share * seconds;
	if (!(u->hottest_c <= t->hottest_c))
		t->hottest_c = u->hottest_c;
}

/* Median rate of short bursts, FLOP/s, each on a device that has rested. */
static fo_status bursts(struct bench *b, const struct launch *l, double flop, double rest_s, double *out)
{
	double rate[BURSTS];
	const struct timespec rest = { (time_t)rest_s, (long)((rest_s - floor(rest_s)) * 1e9) };
	int64_t calls = 1;
	for (int i = -1; i < BURSTS; i++) { /* the first one says how many calls a burst has */
		float ms = 0;
		nanosleep(&rest, NULL);
		FO_TRY(fo_cuda_event_record(b->cuda, b->begin, b->queue.stream, false));
		for (int64_t k = 0; k < calls; k++)
			FO_TRY(bench_enqueue(b, l));
		FO_TRY(fo_cuda_event_record(b->cuda, b->end, b->queue.stream, false));
		FO_TRY(fo_cuda_stream_wait(b->cuda, b->queue.stream));
		FO_TRY(fo_cuda_event_ms(b->cuda, b->begin, b->end, &ms));
		if (i >= 0)
			rate[i] = flop * (double)calls / ((double)ms * 1e-3);
		else if (ms > 0 && (double)ms < BURST_S * 1e3)
			calls = (int64_t)ceil(BURST_S * 1e3 / (double)ms);
	}
	*out = fo_stats_median(rate, BURSTS);
	return FO_OK;
}

static void print_settled(const struct bench *b, const struct settled *t, double burst, const char *why)
{
	const struct fo_cuda_device *d = fo_cuda_info(b->cuda);
	struct fo_str text = { 0 };
	struct fo_json j;
	struct fo_peak peak;
	fo_device_find_peak(d, FO_PRECISION_BF16, &peak);
	double rate = t->flop / t->seconds, hz = t->hz_seconds / t->seconds,
	       full = fo_device_clock_of_peak(d, FO_PRECISION_BF16, rate);
	fo_json_begin(&j, &text, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "sustained", "square bf16 product");
	fo_json_int(&j, "n", b->square);
	fo_json_int(&j, "settled_windows", t->windows);
	fo_json_real(&j, "settled_seconds", t->seconds);
	fo_json_real(&j, "burst_tflop_s", burst * 1e-12);
	fo_json_real(&j, "settled_tflop_s", rate * 1e-12);
	fo_json_real(&j, "settled_of_burst", rate / burst);
	fo_json_real(&j, "settled_of_peak", peak.flop_s > 0 ? rate / peak.flop_s : NAN);
	fo_json_real(&j, "sm_clock_hz", hz);
	/* The clock at which tensor pipes that never rest would give this rate; what is measured lies above it by the
	 * share that they rest. */
	fo_json_real(&j, "clock_of_full_activity_hz", full);
	fo_json_real(&j, "tensor_activity", full / hz);
	fo_json_real(&j, "clock_of_peak_hz", fo_device_clock_of_peak(d, FO_PRECISION_BF16, peak.flop_s));
	fo_json_real(&j, "watts", t->joules / t->seconds);
	fo_json_real(&j, "joules_per_tflop", t->joules / (t->flop * 1e-12));
	fo_json_real(&j, "throttled_power", t->power_seconds / t->seconds);
	fo_json_real(&j, "hottest_c", t->hottest_c);
	fo_json_text(&j, "nvml", *why ? why : NULL);
	fo_json_close(&j);
	puts(text.data);
	fflush(stdout);
	fo_str_fini(&text);
}

static fo_status windows(struct queue *q, double flop, struct fo_nvml_watch *w, struct settled *t)
{
	const double all = q->b->sustain, window = all < 10 * WINDOW_S ? all / 10 : WINDOW_S;
	double at = 0;
	fo_nvml_watch_restart(w);
	for (int64_t k = 0; at < all; k++) {
		double seconds = 0, s, work = 0;
		while (seconds < window) {
			FO_TRY(next_batch(q, &s));
			seconds += s;
			work += flop * (double)q->calls;
		}
		const struct fo_nvml_use u = fo_nvml_watch_sample(w);
		print_window(k, at, seconds, work, &u);
		if (at >= all / 2)
			add_window(t, seconds, work, &u);
		at += seconds;
	}
	return FO_OK;
}

fo_status bench_sustain(struct bench *b)
{
	struct fo_nvml_library nvml;
	struct fo_work square;
	struct launch l;
	struct queue q;
	struct settled t = { .hottest_c = NAN };
	double burst = NAN;
	char why[400] = "";
	fo_work_linear(&square, FO_ISA_REF, FO_WORK_FORWARD, b->square, b->square, b->square, FO_BF16, 1);
	FO_TRY(bench_ready(b, &square, &l));
	struct fo_nvml_watch *w = fo_nvml_watch_start(fo_cuda_nvml(b->cuda));
	if (!w)
		snprintf(why, sizeof why, "not readable: %s",
			 fo_nvml_library(&nvml) ? "it does not know this device" : nvml.why);
	fo_status st = bursts(b, &l, square.flop, b->sustain / 50 < REST_S ? b->sustain / 50 : REST_S, &burst);
	if (st == FO_OK) {
		st = queue_open(&q, b, &l, b->sustain);
		if (st == FO_OK)
			st = windows(&q, square.flop, w, &t);
		queue_close(&q);
	}
	if (st == FO_OK)
		print_settled(b, &t, burst, why);
	fo_nvml_watch_stop(w);
	return st;
}
