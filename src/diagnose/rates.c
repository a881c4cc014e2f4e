/* Rates of kernels and copies that only move bytes: elementwise operators by their recorded shapes against the memory's
 * bandwidth, copies by their bytes against the link; and the rate of compute, which says what a healthy step consists
 * of. */
#include "diagnose/products_int.h"

#include "base/text.h"
#include "trace/shapes.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- elementwise operators ---- */

/* A kernel's own cost hides the memory's rate below this: 4 MiB take 1.3 us of an H100's memory, a launch 2 to 4. */
#define MOVES_LEAST (4.0 * 1048576)
/* Faster than the memory by more than rounding: it came from the cache. */
#define CACHED 1.05

/* Operators that read each operand once and write one result of the greatest one's size, or write an operand in place
 * ("_"). */
static bool is_pointwise(const char *name, bool *in_place)
{
	static const char known[] =
		" add sub mul div neg exp log sqrt rsqrt pow square abs sin cos tanh sigmoid silu gelu "
		"relu clamp clamp_min reciprocal where addcmul addcdiv lerp fill zero copy tanh_backward "
		"sigmoid_backward silu_backward gelu_backward threshold_backward ";
	char word[64];
	size_t n = strlen(name);
	*in_place = n > 0 && name[n - 1] == '_';
	n = strlen("aten::");
	if (strncmp(name, "aten::", n) != 0 || strlen(name) - n > sizeof(word) - 3 || strchr(name, ' '))
		return false;
	snprintf(word, sizeof(word), " %.*s ", (int)(strlen(name) - n) - *in_place, name + n);
	return strstr(known, word) != NULL;
}

/* 0: not known. */
static double bytes_of(const struct fo_trace *t, int32_t op)
{
	const struct fo_host_op *o = &t->op[op];
	const char *name = fo_trace_text(t, o->name);
	struct fo_shapes s;
	bool in_place;
	double sum = 0, most = 0;
	if (o->shapes < 0 || o->types < 0 || !is_pointwise(name, &in_place) ||
	    !fo_shapes_parse(&s, fo_trace_text(t, o->shapes)))
		return 0;
	for (int i = 0; i < s.n; i++) {
		double bytes = fo_shapes_elements(&s, i) *
			       fo_dtype_bytes_of(fo_dtype_of_arg(fo_trace_text(t, o->types), i));
		if (s.rank[i] > 0 && bytes == 0)
			return 0;
		sum += bytes;
		most = fmax(bytes, most);
	}
	/* copy_ lists what it writes and what it reads, fill_ and zero_ what they write. */
	if (!strcmp(name, "aten::copy_") || !strcmp(name, "aten::fill_") || !strcmp(name, "aten::zero_"))
		return sum;
	double own = fo_shapes_elements(&s, 0) * fo_dtype_bytes_of(fo_dtype_of_arg(fo_trace_text(t, o->types), 0));
	return sum + (in_place ? own : most);
}

void fo_moving_of(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_device *v)
{
	const struct fo_trace *t = s->t;
	int64_t first, last;
	d->moving = (struct fo_moving_rate){ .peak_bytes_s = v ? v->memory_tb_s * 1e12 : NAN };
	if (t->format == FO_TRACE_OWN)
		return;
	fo_subject_ops(t, s->id, s->begin_ns, s->end_ns, &first, &last);
	for (int64_t i = first; i < last; i++) {
		const struct fo_gpu_op *g = &t->gpu[i];
		bool alone = (i == first || t->gpu[i - 1].op != g->op) &&
			     (i + 1 >= t->gpu_count || t->gpu[i + 1].op != g->op);
		if (g->kind != FO_GPU_KERNEL || g->op < 0 || g->begin_ns < s->begin_ns || (g->flags & FO_GPU_GRAPH) ||
		    !alone || g->end_ns <= g->begin_ns || !(FO_MOVING_CLASSES >> g->class & 1))
			continue;
		double bytes = bytes_of(t, g->op), rate = bytes / ((double)(g->end_ns - g->begin_ns) * 1e-9);
		if (bytes < MOVES_LEAST || rate > CACHED * d->moving.peak_bytes_s)
			continue;
		d->moving.bytes += bytes;
		d->moving.time_ns = fo_plus(d->moving.time_ns, g->end_ns - g->begin_ns);
	}
	d->moving.bytes /= (double)s->steps;
	d->moving.time_ns /= s->steps;
}

void fo_moving_words(const struct fo_diagnosis *d, struct fo_finding *f)
{
	const struct fo_moving_rate *m = &d->moving;
	double rate = m->time_ns > 0 ? m->bytes / ((double)m->time_ns * 1e-9) : 0;
	if (rate <= 0)
		return;
	fo_why(f, " By recorded shapes the elementwise ones move %.0f GB/s", rate / 1e9);
	if (!isnan(m->peak_bytes_s))
		fo_why(f, ", %.0f %% of the memory's %.0f", 100 * rate / m->peak_bytes_s, m->peak_bytes_s / 1e9);
	fo_why(f, ".");
}

/* ---- copies ---- */

/* One direction of a device's link to its host, GB/s by the specification: PCIe 3.0, 4.0 and 5.0 with 16 lanes, which
 * the generations of both vendors brought (NVIDIA's data sheets: V100 and T4 3.0, A100 4.0, H100 and B200 5.0; AMD's:
 * MI200 4.0, MI300 5.0). 0: not known, and where the processor is on the same board (GH200, GB200, MI300A). */
static double host_link(const struct fo_rule_context *c)
{
	const struct fo_subject *s = c->s;
	const char *name = s->id >= 0 && s->id < s->t->device_count ? fo_trace_text(s->t, s->t->device[s->id].name)
								    : "";
	int chip = c->facts->capability;
	if (strstr(name, "GH200") || strstr(name, "GB200") || strstr(name, "GB300") || strstr(name, "MI300A"))
		return 0;
	static const struct {
		bool amd;
		int least, most;
		double gb_s;
	} known[] = { { true, 94, INT_MAX, 63.0 },
		      { true, 90, 90, 31.5 },
		      { false, 90, INT_MAX, 63.0 },
		      { false, 80, 89, 31.5 },
		      { false, 70, 79, 15.75 } };
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (known[i].amd == c->facts->amd && chip >= known[i].least && chip <= known[i].most)
			return known[i].gb_s;
	return 0;
}

void fo_copy_words_of(const struct fo_rule_context *c, struct fo_finding *f)
{
	/* Smaller copies do not reach a link's rate: their latency, about 10 us, is that of 640 KB at 63 GB/s. */
	enum { LEAST = 1 << 20 };
	int64_t bytes[FO_COPY_COUNT] = { 0 }, ns[FO_COPY_COUNT] = { 0 };
	double link = host_link(c);
	const char *before = " Rates: ";
	for (const struct fo_gpu_op *end, *g = fo_shown_ops(c->s, &end); g < end; g++)
		if (g->kind == FO_GPU_MEMCPY && g->bytes >= LEAST && g->copy < FO_COPY_COUNT) {
			bytes[g->copy] += g->bytes;
			ns[g->copy] += g->end_ns - g->begin_ns;
		}
	for (int k = 0; k < FO_COPY_COUNT; k++) {
		bool host = (k == FO_COPY_H2D || k == FO_COPY_D2H) && link > 0;
		double rate = ns[k] > 0 ? (double)bytes[k] / (double)ns[k] : 0;
		if (rate <= 0 || (host && rate > link * 1.05)) /* faster than that link: the device has another one */
			continue;
		fo_why(f, "%s%s %.1f GB/s", before, fo_copy_words[k], rate);
		if (host)
			fo_why(f, " of %.3g that a link of its generation can do", link);
		before = ", ";
	}
	if (before[0] == ',')
		fo_why(f, ".");
}

/* ---- what computes ---- */

void fo_compute_words(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	double products = fo_share(c, fo_class_time(&c->s->l, FO_PRODUCT_CLASSES)),
	       attention = fo_share(c, fo_class_time(&c->s->l, FO_ATTENTION_CLASSES)), flop = 0, took = 0, ideal = 0;
	bool attends = attention > FO_SHARE_ADVICE, multiplies = products > FO_SHARE_ADVICE;
	for (int64_t i = 0; i < d->products; i++) {
		const struct fo_product *p = &d->product[i];
		if (isnan(p->attainable_flop_s) || p->tiny)
			continue;
		flop += p->flop_s * (double)p->time_ns;
		took += (double)p->time_ns;
		ideal += p->flop_s / p->attainable_flop_s * (double)p->time_ns;
	}
	if (attends)
		fo_why(f, " %.0f %% of the step is attention", 100 * attention);
	if (attends && d->attention.efficiency >= FO_RATE_LEAST)
		fo_why(f, ", at %.0f %% of the peak", 100 * d->attention.efficiency);
	if (multiplies)
		fo_why(f, attends ? "; %.0f %% are matmuls" : " %.0f %% of the step are matmuls", 100 * products);
	if (multiplies && took > 0 && ideal / took >= FO_RATE_LEAST)
		fo_why(f, ", at %.0f TFLOP/s, %.0f %% of what is attainable for their shapes", flop / took / 1e12,
		       100 * ideal / took);
	if (attends || multiplies)
		fo_why(f, ".");
}
