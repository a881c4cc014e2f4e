/* Attention forward and backward against the register-only FMA rate of the same threads at the same time.
 *
 *   bench_attention [--seq N] [--heads N] [--kv N] [--dim N] [--docs N] [--threads N] [--dtype f32|bf16] [--isa avx2|avx512]
 *                   [--rounds N]
 *
 * One JSON line per direction. FLOP are useful ones: 4 Q per visible pair and head forward, 10 Q backward (of which 2 Q
 * recompute the scores: they are executed, not model FLOP). Each round times a burst of FMAs on registers, the kernel, and the
 * burst again; a ratio is the kernel's rate over the mean of its two bursts. wall: elapsed time; cpu: processor time of all
 * threads, which on a shared machine leaves out what others took, but also waiting for the slowest thread. */
#include "base/clock.h"
#include "base/mem.h"
#include "kernel/x86/attention.h"

#include <immintrin.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
	int64_t seq, heads, kv, dim, docs, threads, rounds;
	int dtype;
	bool wide;
};
struct times {
	double wall, cpu;
};

static struct times now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (struct times){ (double)fo_now_ns() * 1e-9, (double)t.tv_sec + (double)t.tv_nsec * 1e-9 };
}

/* 12 independent chains hide the latency (4 cycles, two units). The factor keeps the values near 1. */
enum { CHAINS = 12 };
__attribute__((target("avx2,fma"))) static double burst_avx2(int64_t n, double *flop)
{
	__m256 s[CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.001f);
#pragma GCC unroll 12
	for (int i = 0; i < CHAINS; i++)
		s[i] = _mm256_set1_ps((float)i);
	for (int64_t j = 0; j < n; j++) {
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++) {
			s[i] = _mm256_fmadd_ps(s[i], a, b);
			__asm__ volatile("" : "+x"(s[i])); /* no reassociation, no hoisting */
		}
	}
#pragma GCC unroll 12
	for (int i = 1; i < CHAINS; i++)
		s[0] = _mm256_add_ps(s[0], s[i]);
	*flop = 2.0 * 8 * CHAINS * (double)n;
	return _mm256_cvtss_f32(s[0]);
}
__attribute__((target("avx512f"))) static double burst_avx512(int64_t n, double *flop)
{
	__m512 s[CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.001f);
#pragma GCC unroll 12
	for (int i = 0; i < CHAINS; i++)
		s[i] = _mm512_set1_ps((float)i);
	for (int64_t j = 0; j < n; j++) {
#pragma GCC unroll 12
		for (int i = 0; i < CHAINS; i++) {
			s[i] = _mm512_fmadd_ps(s[i], a, b);
			__asm__ volatile("" : "+v"(s[i]));
		}
	}
#pragma GCC unroll 12
	for (int i = 1; i < CHAINS; i++)
		s[0] = _mm512_add_ps(s[0], s[i]);
	*flop = 2.0 * 16 * CHAINS * (double)n;
	return _mm512_cvtss_f32(s[0]);
}

static volatile double sink;

/* FLOP/s of all threads together. */
static struct times burst(const struct options *o, int64_t n)
{
	double flop = 0, value = 0;
	struct times a = now();
#pragma omp parallel num_threads((int)o->threads) reduction(+ : flop, value)
	{
		double f;
		value += o->wide ? burst_avx512(n, &f) : burst_avx2(n, &f);
		flop += f;
	}
	struct times b = now();
	sink = value;
	return (struct times){ flop / (b.wall - a.wall), flop * (double)o->threads / (b.cpu - a.cpu) };
}

static struct fo_tensor tensor(int64_t rows, int64_t cols, int dtype, uint64_t stream)
{
	struct fo_tensor t = { .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype };
	size_t bytes = (size_t)(rows * cols) * fo_dtype_bytes(dtype);
	t.data = aligned_alloc(64, (bytes + 63) / 64 * 64);
	for (int64_t i = 0; stream && i < rows * cols; i++) {
		float x = (float)fo_rng_normal(stream, (uint64_t)i);
		if (dtype == FO_BF16)
			((uint16_t *)t.data)[i] = fo_bf16_from_f32(x);
		else
			((float *)t.data)[i] = x;
	}
	return t;
}

static void measure(const struct options *o, const struct fo_call *c, double flop, const char *name)
{
	double wall[64], cpu[64], rate[64], peak[64];
	int n = o->rounds > 64 ? 64 : (int)o->rounds;
	for (int r = -1; r < n; r++) { /* round -1 warms up */
		struct times before = burst(o, 2000000), t0 = now();
		if (c->kind == FO_OP_attention)
			o->wide ? fo_attention_avx512(c) : fo_attention_avx2(c);
		else
			o->wide ? fo_attention_bwd_avx512(c) : fo_attention_bwd_avx2(c);
		struct times t1 = now(), after = burst(o, 2000000);
		if (r < 0)
			continue;
		peak[r] = (before.wall + after.wall) / 2;
		rate[r] = flop / (t1.wall - t0.wall);
		wall[r] = rate[r] / peak[r];
		cpu[r] = flop * (double)o->threads / (t1.cpu - t0.cpu) / ((before.cpu + after.cpu) / 2);
	}
	size_t m = (size_t)n;
	printf("{\"kernel\":\"%s\",\"isa\":\"%s\",\"seq\":%lld,\"heads\":%lld,\"kv\":%lld,\"dim\":%lld,\"docs\":%lld,"
	       "\"threads\":%lld,"
	       "\"dtype\":\"%s\",\"ws_bytes\":%zu,\"rounds\":%d,\"peak_gflop_s\":%.1f,\"gflop_s\":%.1f,\"wall_median\":"
	       "%.3f,"
	       "\"wall_best\":%.3f,\"cpu_median\":%.3f,\"cpu_best\":%.3f}\n",
	       name, o->wide ? "avx512" : "avx2", (long long)o->seq, (long long)o->heads, (long long)o->kv,
	       (long long)o->dim, (long long)o->docs, (long long)o->threads, o->dtype == FO_BF16 ? "bf16" : "f32",
	       c->ws_bytes, n, fo_stats_median(peak, m) * 1e-9, fo_stats_median(rate, m) * 1e-9,
	       fo_stats_median(wall, m), fo_stats_quantile(wall, m, 1), fo_stats_median(cpu, m),
	       fo_stats_quantile(cpu, m, 1));
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_attention [--seq N] [--heads N] [--kv N] [--dim N] [--docs N] [--threads N] "
			"[--rounds N]\n"
			"                       [--dtype f32|bf16] [--isa avx2|avx512]\n");
	return 2;
}

static bool parse(struct options *o, int argc, char **argv)
{
	struct {
		const char *name;
		int64_t *to;
	} number[] = {
		{ "--seq", &o->seq },   { "--heads", &o->heads },     { "--kv", &o->kv },         { "--dim", &o->dim },
		{ "--docs", &o->docs }, { "--threads", &o->threads }, { "--rounds", &o->rounds },
	};
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			return false;
		const char *value = argv[i + 1];
		size_t k = 0;
		for (; k < sizeof number / sizeof *number && strcmp(argv[i], number[k].name); k++)
			;
		if (k < sizeof number / sizeof *number)
			*number[k].to = strtoll(value, NULL, 10);
		else if (!strcmp(argv[i], "--dtype") && (!strcmp(value, "f32") || !strcmp(value, "bf16")))
			o->dtype = value[0] == 'b' ? FO_BF16 : FO_F32;
		else if (!strcmp(argv[i], "--isa") && (!strcmp(value, "avx2") || !strcmp(value, "avx512")))
			o->wide = value[3] == '5';
		else
			return false;
	}
	if (!o->kv)
		o->kv = o->heads;
	return o->seq > 0 && o->heads > 0 && o->kv > 0 && o->docs > 0 && o->docs <= o->seq && o->threads > 0 &&
	       o->rounds > 0;
}

int main(int argc, char **argv)
{
	struct options o = {
		.seq = 2048, .heads = 12, .dim = 64, .docs = 1, .threads = 1, .rounds = 7, .dtype = FO_F32
	};
	if (!parse(&o, argc, argv))
		return usage();
	if (o.wide ? !__builtin_cpu_supports("avx512dq") : !__builtin_cpu_supports("avx2")) {
		fprintf(stderr, "this processor lacks the instruction set\n");
		return 77;
	}
	int64_t hq = o.heads * o.dim, kq = o.kv * o.dim;
	struct fo_tensor q = tensor(o.seq, hq, o.dtype, 1), k = tensor(o.seq, kq, o.dtype, 2),
			 v = tensor(o.seq, kq, o.dtype, 3);
	struct fo_tensor out = tensor(o.seq, hq, o.dtype, 0), lse = tensor(o.seq, o.heads, FO_F32, 0),
			 doc = tensor(o.seq, 1, FO_I32, 0);
	struct fo_tensor dout = tensor(o.seq, hq, o.dtype, 4), dq = tensor(o.seq, hq, o.dtype, 0);
	struct fo_tensor dk = tensor(o.seq, kq, o.dtype, 0), dv = tensor(o.seq, kq, o.dtype, 0);
	double pairs = 0;
	for (int64_t i = 0; i < o.seq; i++) {
		int64_t d = i * o.docs / o.seq, first = (d * o.seq + o.docs - 1) / o.docs;
		((int32_t *)doc.data)[i] = (int32_t)first;
		pairs += (double)(i - first + 1);
	}
	struct fo_call f = {
		.kind = FO_OP_attention, .n = 6, .threads = (int)o.threads, .arg = { q, k, v, doc, out, lse }
	};
	struct fo_call b = { .kind = FO_OP_attention_bwd,
			     .n = 10,
			     .threads = (int)o.threads,
			     .arg = { q, k, v, out, lse, dout, doc, dq, dk, dv } };
	f.attr.head_dim = b.attr.head_dim = (int32_t)o.dim;
	f.attr.value = b.attr.value = 1 / __builtin_sqrt((double)o.dim);
	if (!(o.wide ? fo_attention_can_avx512(&f) && fo_attention_can_avx512(&b)
		     : fo_attention_can_avx2(&f) && fo_attention_can_avx2(&b))) {
		fprintf(stderr, "the kernel does not take this shape\n");
		return 2;
	}
	f.ws_bytes = o.wide ? fo_attention_ws_avx512(&f) : fo_attention_ws_avx2(&f);
	b.ws_bytes = o.wide ? fo_attention_bwd_ws_avx512(&b) : fo_attention_bwd_ws_avx2(&b);
	size_t most = f.ws_bytes > b.ws_bytes ? f.ws_bytes : b.ws_bytes;
	if (fo_pages_new(most, &f.ws)) {
		fprintf(stderr, "%s\n", fo_err_text());
		return 3;
	}
	b.ws = f.ws;
	measure(&o, &f, 4.0 * (double)(o.dim * o.heads) * pairs, "attention");
	measure(&o, &b, 10.0 * (double)(o.dim * o.heads) * pairs, "attention_bwd");
	fo_pages_free(f.ws, most);
	struct fo_tensor all[] = { q, k, v, out, lse, doc, dout, dq, dk, dv };
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		free(all[i].data);
	return 0;
}
