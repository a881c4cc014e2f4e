#include "report/traces_versus.h"

#include "report/ledger_parts.h"
#include "report/versus.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- figures over steps ---- */

static int64_t steps_of(const struct fo_traces_side *s) { return s->device ? s->device->steps : 0; }

static bool same_figure(const struct fo_traces_versus *v, const struct fo_traces_figure *f)
{
	return !v->windows || f->time[0].n < FO_TRACES_STEPS || f->time[1].n < FO_TRACES_STEPS ||
	       !fo_spread_apart(&f->time[0], &f->time[1]);
}

/* value: seconds, of each step of each side; sorted in place. */
static void set_figure(struct fo_traces_versus *v, struct fo_traces_figure *f, double *value[2])
{
	for (int k = 0; k < 2; k++) {
		size_t n = (size_t)steps_of(&v->side[k]);
		double sum = 0;
		for (size_t i = 0; i < n; i++)
			sum += value[k][i];
		f->mean[k] = n ? sum / (double)n : NAN;
		f->time[k] = fo_stats_spread(value[k], n);
	}
	f->difference = f->mean[1] - f->mean[0];
	f->resolved = f->difference != 0 && !same_figure(v, f);
}

/* ---- parts ---- */

/* Offset of an int64_t in struct fo_ledger. */
static void add_part(struct fo_traces_versus *v, const char *name, const char *id, int level, bool leaf, size_t offset)
{
	double *value[2];
	struct fo_traces_part *p = &v->part[v->parts];
	bool any = false;
	for (int k = 0; k < 2; k++) {
		size_t n = (size_t)steps_of(&v->side[k]);
		value[k] = fo_xmalloc((n + 1) * sizeof **value);
		for (size_t i = 0; i < n; i++) {
			int64_t ns;
			memcpy(&ns, (const char *)&v->side[k].device->step[i].l + offset, sizeof ns);
			value[k][i] = (double)ns * 1e-9;
			any = any || ns;
		}
	}
	if (any || level < 2) {
		*p = (struct fo_traces_part){ name, id, level, leaf, { .difference = 0 } };
		set_figure(v, &p->f, value);
		v->parts++;
	}
	free(value[0]);
	free(value[1]);
}

#define AT(field) offsetof(struct fo_ledger, field)

static void add_parts(struct fo_traces_versus *v)
{
	add_part(v, "step", "step", 0, false, AT(span_ns));
	add_part(v, "compute", "compute", 1, false, AT(comp_ns));
	for (int k = 0; k < FO_K_COMPUTE_COUNT; k++)
		add_part(v, fo_class_words[k], fo_arena_printf(&v->arena, "compute.%s", fo_kernel_class_name[k]), 2,
			 true, AT(class_ns) + (size_t)k * sizeof(int64_t));
	add_part(v, "exposed communication", "exposed_comm", 1, false, AT(exposed_comm_ns));
	add_part(v, fo_wait_words, "exposed_comm.wait", 2, true, AT(exposed_wait_ns));
	add_part(v, fo_transfer_words, "exposed_comm.transfer", 2, true, AT(exposed_transfer_ns));
	add_part(v, fo_wait_or_transfer_words, "exposed_comm.unknown", 2, true, AT(exposed_comm_unknown_ns));
	add_part(v, "exposed copies", "exposed_mem", 1, false, AT(exposed_mem_ns));
	for (int k = 0; k < FO_COPY_COUNT; k++)
		add_part(v, fo_copy_words[k], fo_arena_printf(&v->arena, "exposed_mem.%s", fo_copy_name[k]), 2, true,
			 AT(copy_ns) + (size_t)k * sizeof(int64_t));
	add_part(v, "idle", "idle", 1, false, AT(idle_total_ns));
	for (int k = 0; k < FO_IDLE_COUNT; k++)
		add_part(v, fo_idle_words[k], fo_arena_printf(&v->arena, "idle.%s", fo_idle_name[k]), 2, true,
			 AT(idle_ns) + (size_t)k * sizeof(int64_t));
}

static void order_parts(struct fo_traces_versus *v)
{
	for (int i = 0; i < v->parts; i++) {
		if (!v->part[i].leaf || v->part[i].f.difference == 0 || isnan(v->part[i].f.difference))
			continue;
		int at = v->ordered++;
		for (; at > 0 && fabs(v->part[v->order[at - 1]].f.difference) < fabs(v->part[i].f.difference); at--)
			v->order[at] = v->order[at - 1];
		v->order[at] = i;
	}
}

/* ---- kernels and collectives ---- */

struct names {
	struct fo_traces_kernel *v;
	double **seconds; /* of each: side 0's steps, then side 1's */
	size_t n, cap, cap_seconds;
};

static size_t find_name(struct fo_traces_versus *v, struct names *l, const char *full, enum fo_kernel_class class)
{
	char name[160];
	size_t i;
	fo_kernel_short_name(name, sizeof name, full);
	for (i = 0; i < l->n; i++)
		if (!strcmp(l->v[i].name, name))
			return i;
	fo_array_room(&l->v, &l->cap, l->n, sizeof *l->v);
	fo_array_room(&l->seconds, &l->cap_seconds, l->n, sizeof *l->seconds);
	l->v[l->n] = (struct fo_traces_kernel){ .name = fo_arena_strdup(&v->arena, name), .class = class };
	l->seconds[l->n] = fo_arena_alloc(&v->arena,
					  (size_t)(steps_of(&v->side[0]) + steps_of(&v->side[1]) + 1) * sizeof(double));
	return l->n++;
}

static void read_kernels(struct fo_traces_versus *v, int k, struct names *l)
{
	const struct fo_traces_side *s = &v->side[k];
	const struct fo_trace *t = s->rank->trace;
	int32_t most = -1;
	for (int64_t i = 0; i < t->gpu_count; i++)
		most = t->gpu[i].name > most ? t->gpu[i].name : most;
	/* place[number of a name]: 1 + its place in the list; 0: not met yet. */
	size_t *place = fo_xmalloc((size_t)(most + 2) * sizeof *place);
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		int64_t step = o->device == s->device->device ? fo_step_at(s->device, o->begin_ns) : -1;
		if (step < 0 || o->name < 0)
			continue;
		if (!place[o->name])
			place[o->name] = 1 + find_name(v, l, fo_trace_text(t, o->name), (enum fo_kernel_class)o->class);
		size_t at = place[o->name] - 1;
		l->seconds[at][step + (k ? steps_of(&v->side[0]) : 0)] += (double)(o->end_ns - o->begin_ns) * 1e-9;
		l->v[at].calls[k] += 1 / (double)s->device->steps;
	}
	free(place);
}

static int by_difference(const void *a, const void *b)
{
	const struct fo_traces_kernel *x = a, *y = b;
	double p = fabs(x->f.difference), q = fabs(y->f.difference);
	return p != q ? (p < q) - (p > q) : strcmp(x->name, y->name);
}

static void compare_kernels(struct fo_traces_versus *v)
{
	struct names l = { 0 };
	for (int k = 0; k < 2; k++)
		read_kernels(v, k, &l);
	for (size_t i = 0; i < l.n; i++) {
		double *value[2] = { l.seconds[i], l.seconds[i] + steps_of(&v->side[0]) };
		set_figure(v, &l.v[i].f, value);
		/* A kernel that only one side runs differs, however wide the spreads are. */
		l.v[i].f.resolved = l.v[i].f.resolved || !(l.v[i].calls[0] > 0) || !(l.v[i].calls[1] > 0);
	}
	if (l.n)
		qsort(l.v, l.n, sizeof *l.v, by_difference);
	v->kernels = (int64_t)l.n;
	v->kernel = fo_arena_alloc(&v->arena, (l.n + 1) * sizeof *v->kernel);
	if (l.n)
		memcpy(v->kernel, l.v, l.n * sizeof *v->kernel);
	free(l.v);
	free(l.seconds);
}

static int by_time(const void *a, const void *b)
{
	const struct fo_traces_collective *x = a, *y = b;
	double p = x->time[0] + x->time[1], q = y->time[0] + y->time[1];
	return (p < q) - (p > q);
}

static void compare_collectives(struct fo_traces_versus *v)
{
	struct fo_traces_collective *l = NULL;
	size_t n = 0, cap = 0, at;
	char name[160];
	for (int k = 0; k < 2; k++) {
		const struct fo_traces_side *s = &v->side[k];
		const struct fo_trace *t = s->rank->trace;
		double steps = (double)s->device->steps;
		for (int64_t i = 0; i < t->gpu_count; i++) {
			const struct fo_gpu_op *o = &t->gpu[i];
			if (o->class != FO_K_COMMUNICATION || o->device != s->device->device ||
			    fo_step_at(s->device, o->begin_ns) < 0)
				continue;
			const struct fo_collective *c = o->collective >= 0 ? &t->collective[o->collective] : NULL;
			int32_t size = c ? c->group_size : -1;
			fo_kernel_short_name(name, sizeof name,
					     fo_trace_text(t, c && c->name >= 0 ? c->name : o->name));
			for (at = 0; at < n && (l[at].group_size != size || strcmp(l[at].name, name)); at++)
				;
			if (at == n) {
				fo_array_room(&l, &cap, n, sizeof *l);
				l[n++] = (struct fo_traces_collective){ .name = fo_arena_strdup(&v->arena, name),
									.group_size = size };
			}
			l[at].calls[k] += 1 / steps;
			l[at].bytes[k] += c && c->bytes >= 0 ? (double)c->bytes / steps : NAN;
			l[at].time[k] += (double)(o->end_ns - o->begin_ns) * 1e-9 / steps;
		}
	}
	if (n)
		qsort(l, n, sizeof *l, by_time);
	v->collectives = (int64_t)n;
	v->collective = fo_arena_alloc(&v->arena, (n + 1) * sizeof *v->collective);
	if (n)
		memcpy(v->collective, l, n * sizeof *l);
	free(l);
}

/* ---- products ---- */

static bool same_product(const struct fo_product *a, const struct fo_product *b)
{
	return a->m == b->m && a->n == b->n && a->k == b->k && a->batch == b->batch && !strcmp(a->dtype, b->dtype);
}

static double product_seconds(const struct fo_product *p) { return p ? (double)p->time_ns * 1e-9 : 0; }

static int by_product(const void *a, const void *b)
{
	const struct fo_traces_product *x = a, *y = b;
	double p = fabs(product_seconds(x->in[1]) - product_seconds(x->in[0])),
	       q = fabs(product_seconds(y->in[1]) - product_seconds(y->in[0]));
	return (p < q) - (p > q);
}

static void compare_products(struct fo_traces_versus *v)
{
	const struct fo_diagnosis *a = v->side[0].d, *b = v->side[1].d;
	v->product = fo_arena_alloc(&v->arena, (size_t)(a->products + b->products + 1) * sizeof *v->product);
	for (int64_t i = 0; i < a->products; i++)
		v->product[v->products++] = (struct fo_traces_product){ .in = { &a->product[i] } };
	for (int64_t i = 0; i < b->products; i++) {
		int64_t k = 0;
		while (k < a->products && !same_product(&a->product[k], &b->product[i]))
			k++;
		if (k == a->products)
			k = v->products++;
		v->product[k].in[1] = &b->product[i];
	}
	for (int64_t i = 0; i < v->products; i++)
		for (int k = 0; k < 2; k++) {
			const struct fo_product *p = v->product[i].in[k];
			v->product[i].call_s[k] = p && p->calls > 0 ? product_seconds(p) / (double)p->calls : NAN;
		}
	if (v->products)
		qsort(v->product, (size_t)v->products, sizeof *v->product, by_product);
}

/* ---- what else differs ---- */

/* v: the comparison. */
#define say(v, ...) fo_arena_say(&(v)->arena, &(v)->cause, &(v)->causes, __VA_ARGS__)

static const char *device_name(const struct fo_traces_side *s)
{
	const struct fo_trace *t = s->rank->trace;
	return s->device->device >= 0 && s->device->device < t->device_count
		       ? fo_trace_text(t, t->device[s->device->device].name)
		       : "";
}

/* ---- is it one job? ---- */

/* Two versions of one job do most of their work in kernels of the same name or shape; below this share on both sides
 * nothing speaks for one job. Another batch size, another split over ranks or a compiler change the one or the other,
 * so shapes decide where both sides have them. */
static const double one_job_least = 0.1;

/* Another batch size or split over ranks changes one of the three sizes. */
static bool related(const struct fo_product *a, const struct fo_product *b)
{
	return (a->m == b->m) + (a->n == b->n) + (a->k == b->k) >= 2;
}

/* The share of the products' time that is in shapes related to one of the other side's; NaN: no products. */
static double related_share(const struct fo_diagnosis *d, const struct fo_diagnosis *other)
{
	double all = 0, both = 0;
	for (int64_t i = 0; i < d->products; i++) {
		int64_t k = 0;
		while (k < other->products && !related(&d->product[i], &other->product[k]))
			k++;
		all += product_seconds(&d->product[i]);
		both += k < other->products ? product_seconds(&d->product[i]) : 0;
	}
	return all > 0 ? both / all : NAN;
}

/* Only kernels count that a job's shapes choose; others are everybody's. */
static double named_share(const struct fo_traces_versus *v, int side)
{
	double all = 0, both = 0;
	for (int64_t i = 0; i < v->kernels; i++) {
		const struct fo_traces_kernel *k = &v->kernel[i];
		if (!fo_class_is_heavy(k->class) || !(k->calls[side] > 0))
			continue;
		all += k->f.mean[side];
		both += k->calls[!side] > 0 ? k->f.mean[side] : 0;
	}
	return all > 0 ? both / all : NAN;
}

static void explain_jobs(struct fo_traces_versus *v)
{
	const struct fo_traces_side *a = &v->side[0], *b = &v->side[1];
	const char *x = device_name(a), *y = device_name(b);
	double shape[2] = { related_share(a->d, b->d), related_share(b->d, a->d) };
	double name[2] = { named_share(v, 0), named_share(v, 1) };
	if (!isnan(shape[0]) && !isnan(shape[1])) {
		if (shape[0] < one_job_least && shape[1] < one_job_least)
			say(v,
			    "these look like different jobs: matmuls with two of their three sizes in common "
			    "take %.1f %% of the matmuls' time in A, %.1f %% in B",
			    100 * shape[0], 100 * shape[1]);
	} else if (name[0] < one_job_least && name[1] < one_job_least && (!*x || !*y || !strcmp(x, y))) {
		/* Another device has other kernels for the same work. */
		say(v,
		    "these look like different jobs: kernels of matmuls, convolutions and attention that both run "
		    "take %.1f %% of such kernels' time in A, %.1f %% in B",
		    100 * name[0], 100 * name[1]);
	}
}

static void explain_setting(struct fo_traces_versus *v)
{
	static const char *const who_has[] = { "", "A has", "B has", "the traces have" };
	const struct fo_traces_side *a = &v->side[0], *b = &v->side[1];
	const char *x = device_name(a), *y = device_name(b);
	for (int k = 0; k < 2; k++)
		if (!fo_diagnosed(v->side[k].d))
			say(v, "%s cannot be diagnosed: %.150s; what stands beside it says nothing of the job",
			    k ? "B" : "A", v->side[k].d->cannot);
	if (*x && *y && strcmp(x, y))
		say(v, "other devices: %.80s in A, %.80s in B", x, y);
	if (a->d->ranks != b->d->ranks)
		say(v, "traces of %d rank%s in A, of %d in B", a->d->ranks, fo_plural(a->d->ranks), b->d->ranks);
	if (a->rank->trace->format != b->rank->trace->format)
		say(v, "recorded by different profilers: what either shows of the host differs");
	if (v->windows && a->device->from != b->device->from)
		say(v, "steps were found in different ways: their ends need not be the same place of the program");
	if (!v->windows)
		say(v,
		    "%s no steps: windows of arbitrary length stand beside each other, so only shares can be compared",
		    who_has[(a->device->from == FO_WINDOW_WHOLE) + 2 * (b->device->from == FO_WINDOW_WHOLE)]);
	else if (a->device->steps < FO_TRACES_STEPS || b->device->steps < FO_TRACES_STEPS)
		say(v, "%lld step%s in A, %lld in B: too few for a spread, so nothing is resolved",
		    (long long)a->device->steps, fo_plural(a->device->steps), (long long)b->device->steps);
}

/* Kernels that only one side runs count as a change of the program from this share of its step on. */
static const double program_least = 0.01;

static void explain_program(struct fo_traces_versus *v)
{
	static const char *const side[] = { "A", "B" };
	for (int k = 0; k < 2; k++) {
		double only = 0, step = v->part[0].f.mean[k];
		int64_t names = 0;
		for (int64_t i = 0; i < v->kernels; i++)
			if (v->kernel[i].calls[k] > 0 && !(v->kernel[i].calls[!k] > 0))
				only += v->kernel[i].f.mean[k], names++;
		if (only > program_least * step)
			say(v, "%lld %s of kernels that only %s runs: %.3f ms of its step", (long long)names,
			    fo_word(names, "name", "names"), side[k], only * 1e3);
	}
	double x = v->side[0].ops, y = v->side[1].ops;
	if (v->windows && x > 0 && fabs(y / x - 1) > program_least)
		say(v, "%.0f GPU operations in a step of A, %.0f in B", x, y);
	const struct fo_ledger *a = &v->side[0].device->total, *b = &v->side[1].device->total;
	if (v->windows && (a->recompute_ns > 0) != (b->recompute_ns > 0))
		say(v, "%s repeats forward work in the backward pass, the other does not",
		    a->recompute_ns > 0 ? "A" : "B");
	if (v->side[0].d->ranks > 1 && v->side[1].d->ranks > 1)
		say(v, "the slowest rank's own work was %.1f %% above the median's in A, %.1f %% in B",
		    100 * v->side[0].d->step_skew, 100 * v->side[1].d->step_skew);
}

/* ---- all ---- */

static void read_side(struct fo_traces_side *s, const struct fo_diagnosis *d)
{
	*s = (struct fo_traces_side){
		.d = d, .utilisation = NAN, .mfu = d->bridge.known ? d->bridge.mfu : NAN, .ops = NAN
	};
	if (d->ranks < 1 || d->worst < 0 || d->worst >= d->ranks)
		return;
	s->device = fo_shown_device(d, d->worst);
	if (!s->device || s->device->steps < 1) {
		s->device = NULL;
		return;
	}
	s->rank = &d->rank[d->worst];
	const struct fo_ledger *t = &s->device->total;
	s->utilisation = t->span_ns > 0 ? (double)t->resident_ns / (double)t->span_ns : NAN;
	s->ops = (double)t->ops / (double)s->device->steps;
}

void fo_traces_versus_make(struct fo_traces_versus *v, const struct fo_diagnosis *a, const struct fo_diagnosis *b)
{
	*v = (struct fo_traces_versus){ 0 };
	read_side(&v->side[0], a);
	read_side(&v->side[1], b);
	if (!v->side[0].rank || !v->side[1].rank)
		return;
	v->windows = v->side[0].device->from != FO_WINDOW_WHOLE && v->side[1].device->from != FO_WINDOW_WHOLE;
	add_parts(v);
	order_parts(v);
	compare_kernels(v);
	compare_collectives(v);
	compare_products(v);
	explain_jobs(v);
	explain_setting(v);
	explain_program(v);
}

void fo_traces_versus_fini(struct fo_traces_versus *v)
{
	fo_arena_fini(&v->arena);
	*v = (struct fo_traces_versus){ 0 };
}
