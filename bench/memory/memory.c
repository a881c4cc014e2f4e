/* Memory-bound kernels against this machine's own copy rate.
 *
 *   bench_memory [--threads N] [--tokens T] [--seconds S] [--dtype f32|bf16] [--only OPERATION] [--isa
 * ref|avx2|avx512|avx512bf16]
 *
 * For every memory-bound operation of the benchmark Llama's training step (768 wide, ffn 2048, vocabulary 32,000; the
 * largest of its kind) the kernel and a copy of 32 MiB run in turn, each between two bursts (kernel/measure.h). Bytes
 * are what the program's cost rule says that the operation moves, so fetching a line to overwrite it counts for nothing
 * in either. The ratio is the kernel's bytes/s over the copy's (the faster of ordinary and non-temporal stores) right
 * beside it. With --tokens 2048 many operands fit a large third-level cache and the ratio may exceed 1; --tokens 16384
 * is beyond every cache. One JSON line per operation. */
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernel/measure.h"
#include "kernel/memory.h"
#include "kernel/work.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct bench {
	int threads, dtype; /* dtype -1: both */
	int64_t tokens;
	double seconds; /* per operation */
	const char *only;
	enum fo_isa isa;
};

/* Times of the kernel and of the copy behind it. */
struct series {
	struct fo_quiet_span *span[2];
	double *ratio, *calm; /* bytes/s over the copy's: all pairs, quiet pairs */
	size_t n, quiet;
};

static int64_t largest_operand(const struct fo_op *o, int64_t dim[2])
{
	int64_t most = 0;
	for (int i = 0; i < o->n; i++)
		if ((int64_t)o->arg[i].nr * o->arg[i].nc > most) {
			most = (int64_t)o->arg[i].nr * o->arg[i].nc;
			dim[0] = o->arg[i].nr;
			dim[1] = o->arg[i].nc;
		}
	return most;
}

static void take(struct series *s, struct fo_meter *m, const struct fo_work *w, struct fo_traffic *copy, double seconds)
{
	enum { LEAST = 8, MOST = 4000 };
	struct fo_quiet_span *a = s->span[0], *b = s->span[1];
	double spent = 0;
	s->n = s->quiet = 0;
	fo_work_run((void *)w);
	fo_traffic_run(copy);
	fo_meter_idle(m);
	for (; s->n < MOST && (s->n < LEAST || spent < seconds); s->n++) {
		fo_meter_span(m, fo_work_run, (void *)w, &a[s->n]);
		fo_meter_span(m, fo_traffic_run, copy, &b[s->n]);
		spent += a[s->n].seconds + b[s->n].seconds;
	}
	for (size_t i = 0; i < s->n; i++) {
		s->ratio[i] = w->bytes / a[i].seconds / (fo_traffic_bytes(copy) / b[i].seconds);
		if (fo_quiet_is(&a[i], &m->best) && fo_quiet_is(&b[i], &m->best))
			s->calm[s->quiet++] = s->ratio[i];
	}
}

static void print(const struct bench *b, const struct fo_work *w, const int64_t dim[2], int dtype, bool past_caches,
		  const struct series *s, const struct fo_meter *m)
{
	struct fo_quiet_stats k = fo_quiet_stats(s->span[0], s->n, &m->best),
			      c = fo_quiet_stats(s->span[1], s->n, &m->best);
	double moved = (double)(64 << 20); /* by a copy: read and written */
	struct fo_str out = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &out, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "kernel", fo_op_info(w->call.kind)->name);
	fo_json_text(&j, "set", w->set->name);
	fo_json_text(&j, "dtype", fo_dtype_name[dtype]);
	fo_json_int(&j, "threads", b->threads);
	fo_json_int(&j, "rows", dim[0]);
	fo_json_int(&j, "cols", dim[1]);
	fo_json_real(&j, "bytes", w->bytes);
	fo_json_int(&j, "pairs", (int64_t)s->n);
	fo_json_real(&j, "byte_s_median", w->bytes / k.median_s);
	fo_json_real(&j, "byte_s_best", w->bytes / k.best_s);
	fo_json_text(&j, "copy_stores", past_caches ? "non-temporal" : "ordinary");
	fo_json_real(&j, "copy_byte_s_median", moved / c.median_s);
	fo_json_real(&j, "copy_byte_s_best", moved / c.best_s);
	fo_json_real(&j, "ratio_median", fo_stats_quantile(s->ratio, s->n, 0.5));
	fo_json_real(&j, "ratio_of_bests", w->bytes / k.best_s / (moved / c.best_s));
	fo_json_int(&j, "quiet_pairs", (int64_t)s->quiet);
	fo_json_real(&j, "quiet_ratio_median", s->quiet ? fo_stats_quantile(s->calm, s->quiet, 0.5) : NAN);
	fo_json_close(&j);
	puts(out.data);
	fflush(stdout);
	fo_str_fini(&out);
}

/* The faster of the two kinds of stores. */
static bool copy_past_caches(struct fo_traffic copy)
{
	double best[2] = { INFINITY, INFINITY };
	for (int i = 0; i < 16; i++) {
		copy.past_caches = i & 1;
		if (!fo_traffic_can(&copy))
			continue;
		int64_t t0 = fo_now_ns();
		fo_traffic_run(&copy);
		double t = (double)(fo_now_ns() - t0);
		best[i & 1] = t < best[i & 1] ? t : best[i & 1];
	}
	return best[1] < best[0];
}

static fo_status run_operation(const struct bench *b, const struct fo_program *p, const struct fo_op *o, int dtype,
			       struct fo_traffic *copy, struct fo_meter *m, struct series *s)
{
	struct fo_work w;
	struct fo_work_data d = { 0 };
	int64_t dim[2] = { 0, 0 };
	fo_work_of_op(&w, b->isa, p, o, UINT32_MAX, b->threads);
	fo_work_data_need(&d, &w);
	FO_TRY(fo_work_data_new(&d));
	fo_work_bind(&w, &d, 1);
	largest_operand(o, dim);
	take(s, m, &w, copy, b->seconds);
	print(b, &w, dim, dtype, copy->past_caches, s, m);
	fo_work_data_free(&d);
	return FO_OK;
}

static fo_status run_program(const struct bench *b, const struct fo_program *p, int dtype, struct fo_traffic *copy,
			     struct fo_meter *m, struct series *s)
{
	const struct fo_op *largest[FO_OP_COUNT] = { NULL };
	int64_t dim[2] = { 0, 0 };
	for (int k = 0; k < p->nblock; k++)
		for (int i = 0; i < p->block[k].n; i++) {
			const struct fo_op *o = &p->block[k].op[i];
			if (fo_op_info(o->kind)->cls == FO_CLASS_MEMORY && o->kind != FO_OP_clip /* one number */ &&
			    (!largest[o->kind] || largest_operand(o, dim) > largest_operand(largest[o->kind], dim)))
				largest[o->kind] = o;
		}
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (largest[k] && (!b->only || !strcmp(b->only, fo_op_info(k)->name)))
			FO_TRY(run_operation(b, p, largest[k], dtype, copy, m, s));
	return FO_OK;
}

static fo_status run(const struct bench *b)
{
	enum { SPANS = 4000 };
	struct fo_traffic_data data;
	struct fo_meter m;
	struct fo_model model;
	FO_TRY(fo_model_load("flatout-134m", &model));
	model.layers = 1;
	FO_TRY(fo_meter_init(&m, fo_kernel_sets[b->isa], FO_F32, b->threads));
	fo_status st = fo_traffic_data_new(&data, fo_cache_bytes(), b->threads);
	if (st != FO_OK) {
		fo_meter_fini(&m);
		return st;
	}
	struct fo_traffic copy = { .data = &data, .kind = FO_MEMORY_COPY, .threads = b->threads };
	copy.past_caches = copy_past_caches(copy);
	struct series s = { { fo_xmalloc(SPANS * sizeof *s.span[0]), fo_xmalloc(SPANS * sizeof *s.span[0]) },
			    fo_xmalloc(SPANS * sizeof(double)),
			    fo_xmalloc(SPANS * sizeof(double)),
			    0,
			    0 };
	for (int bf16 = 0; bf16 < 2 && st == FO_OK; bf16++) {
		int dtype = bf16 ? FO_BF16 : FO_F32;
		struct fo_program p;
		if (b->dtype >= 0 && b->dtype != dtype)
			continue;
		st = fo_program_lower(
			&p, &model,
			&(struct fo_lowering){ .seq = b->tokens,
					       .rows = 1,
					       .micro_batches = 1,
					       .precision = bf16 ? FO_PRECISION_BF16 : FO_PRECISION_F32 });
		if (st == FO_OK) {
			st = run_program(b, &p, dtype, &copy, &m, &s);
			fo_program_fini(&p);
		}
	}
	free(s.span[0]);
	free(s.span[1]);
	free(s.ratio);
	free(s.calm);
	fo_traffic_data_free(&data);
	fo_meter_fini(&m);
	return st;
}

static int usage(void)
{
	fputs("usage: bench_memory [--threads N] [--tokens T] [--seconds S] [--dtype f32|bf16] [--only OPERATION]\n"
	      "                    [--isa ref|avx2|avx512|avx512bf16]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct bench b = { .threads = 1, .dtype = -1, .tokens = 2048, .seconds = 0.3 };
	if (fo_isa_choose(&b.isa) != FO_OK) {
		fprintf(stderr, "bench_memory: %s\n", fo_err_text());
		return 2;
	}
	for (int i = 1; i < argc; i += 2) {
		const char *key = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
		if (!value)
			return usage();
		if (!strcmp(key, "--threads")) {
			b.threads = atoi(value);
		} else if (!strcmp(key, "--tokens")) {
			b.tokens = atoll(value);
		} else if (!strcmp(key, "--seconds")) {
			b.seconds = atof(value);
		} else if (!strcmp(key, "--dtype") && (!strcmp(value, "f32") || !strcmp(value, "bf16"))) {
			b.dtype = strcmp(value, "f32") ? FO_BF16 : FO_F32;
		} else if (!strcmp(key, "--only")) {
			b.only = value;
		} else if (!strcmp(key, "--isa")) {
			if (!fo_isa_named(value, &b.isa) || !fo_isa_have(b.isa)) {
				fprintf(stderr, "bench_memory: this machine has no instruction set '%s'\n", value);
				return 2;
			}
		} else {
			return usage();
		}
	}
	if (b.threads < 1 || b.threads > 1024 || b.tokens < 2 || b.tokens > 1 << 20 || !(b.seconds >= 0))
		return usage();
	fo_status st = run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_memory: %s\n", fo_err_text());
	return fo_status_exit_code(st);
}
