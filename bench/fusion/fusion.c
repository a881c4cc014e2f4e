/* Measures what fusing row operations gains: it times the fused operation and the plain pair in turns on the same data,
 * beside a copy of as many bytes. It also gives the most that an operation could gain in the epilogue of the matmul
 * before it.
 *
 *   bench_fusion [--tokens T] [--hidden D] [--ffn F] [--dtype f32|bf16] [--threads N] [--rounds N]
 *
 * Each sample finds its operands outside the caches: a walk over four times their size comes first, as in a step other
 * layers do. One JSON line per comparison: best and median times of both, the median and best of the ratios of one
 * round. Lines "epilogue" compare an operation with the same work on a block of rows that stays in L2: what is left
 * when its operands cost nothing, so that (1 - ratio) x plain_ms is more than an epilogue can save. product_ms is the
 * product itself, best. */
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

enum { ROUNDS_MAX = 999, OPERANDS = 10, BLOCK_BYTES = 128 << 10 /* a quarter of this machine's L2 */ };

struct bench {
	enum fo_isa isa;
	int64_t tokens, hidden, ffn, threads, rounds;
	int dtype;
	struct fo_traffic_data lines;
	char *memory;
	size_t used, room;
	void *ws;
	size_t ws_bytes;
};

static struct fo_tensor tensor(struct bench *b, int64_t rows, int64_t cols, int dtype)
{
	struct fo_tensor t = {
		.data = b->memory + b->used, .rows = rows, .cols = cols, .ld = cols, .dtype = (uint8_t)dtype
	};
	size_t n = (size_t)(rows * cols);
	b->used += (n * fo_dtype_bytes(dtype) + 4095) / 4096 * 4096;
	if (b->used > b->room) {
		fputs("bench_fusion: these shapes need more memory than this program takes\n", stderr);
		exit(2);
	}
	for (size_t i = 0; i < n; i++) {
		double v = fo_rng_uniform(7, i) - 0.5;
		if (dtype == FO_BF16)
			((uint16_t *)t.data)[i] = fo_bf16_from_f32((float)v);
		else if (dtype == FO_F32)
			((float *)t.data)[i] = (float)v;
		else
			((int32_t *)t.data)[i] = (int32_t)(i % (size_t)rows);
	}
	return t;
}

static struct fo_call call(const struct bench *b, int kind, uint32_t first, int n, const struct fo_tensor *arg)
{
	struct fo_call c = { .kind = (uint8_t)kind, .n = (uint8_t)n, .first = first, .threads = (int)b->threads };
	memcpy(c.arg, arg, (size_t)n * sizeof *arg);
	c.attr.value = 1e-5;
	c.ws = b->ws;
	c.ws_bytes = b->ws_bytes;
	return c;
}

/* Of one thread its processor time: another program may take the core. */
static int64_t now_ns(const struct bench *b) { return b->threads == 1 ? fo_thread_cpu_ns() : fo_now_ns(); }

/* Seconds of one run of the calls, one after the other. */
static double seconds(const struct bench *b, const struct fo_call *c, int n)
{
	const struct fo_kernel *k[2];
	for (int i = 0; i < n; i++) {
		k[i] = fo_kernel_pick(b->isa, &c[i], NULL);
		if (k[i]->ws && k[i]->ws(&c[i]) > b->ws_bytes) {
			fputs("bench_fusion: workspace is too small\n", stderr);
			exit(2);
		}
	}
	int64_t t0 = now_ns(b);
	for (int i = 0; i < n; i++)
		k[i]->run(&c[i]);
	return (double)(now_ns(b) - t0) * 1e-9;
}

static void evict(struct bench *b)
{
	struct fo_traffic t = { .data = &b->lines, .kind = FO_MEMORY_READ, .threads = (int)b->threads };
	int pieces = (int)((double)b->lines.bytes / fo_traffic_bytes(&t)) + 1;
	for (int i = 0; i < pieces; i++)
		fo_traffic_run(&t);
}

static double copy_rate(struct bench *b)
{
	struct fo_traffic t = { .data = &b->lines, .kind = FO_MEMORY_COPY, .threads = (int)b->threads };
	double best = 0;
	for (int i = 0; i < 4; i++) {
		int64_t t0 = now_ns(b);
		fo_traffic_run(&t);
		double rate = fo_traffic_bytes(&t) / ((double)(now_ns(b) - t0) * 1e-9);
		best = rate > best ? rate : best;
	}
	return best;
}

static double least(const double *v, int64_t n)
{
	double x = v[0];
	for (int64_t i = 1; i < n; i++)
		x = v[i] < x ? v[i] : x;
	return x;
}

struct times {
	double plain[ROUNDS_MAX], fused[ROUNDS_MAX], ratio[ROUNDS_MAX], copy[ROUNDS_MAX];
};

static void print(const struct bench *b, const char *kind, const char *op, struct times *t, double bytes,
		  double product_s)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	size_t n = (size_t)b->rounds;
	double plain = least(t->plain, b->rounds), fused = least(t->fused, b->rounds);
	for (size_t i = 0; i < n; i++)
		t->ratio[i] = t->fused[i] / t->plain[i];
	double best_ratio = least(t->ratio, b->rounds);
	for (size_t i = 0; i < n; i++)
		t->copy[i] = bytes / t->fused[i] / t->copy[i];
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "compare", kind);
	fo_json_text(&j, "operation", op);
	fo_json_int(&j, "tokens", b->tokens);
	fo_json_int(&j, "hidden", b->hidden);
	fo_json_int(&j, "ffn", b->ffn);
	fo_json_text(&j, "dtype", fo_dtype_name[b->dtype]);
	fo_json_int(&j, "threads", b->threads);
	fo_json_int(&j, "rounds", b->rounds);
	fo_json_real(&j, "plain_ms_best", plain * 1e3);
	fo_json_real(&j, "plain_ms_median", fo_stats_median(t->plain, n) * 1e3);
	fo_json_real(&j, "fused_ms_best", fused * 1e3);
	fo_json_real(&j, "fused_ms_median", fo_stats_median(t->fused, n) * 1e3);
	fo_json_real(&j, "ratio_of_best", fused / plain);
	fo_json_real(&j, "ratio_median", fo_stats_median(t->ratio, n));
	fo_json_real(&j, "ratio_best", best_ratio);
	if (bytes > 0)
		fo_json_real(&j, "fused_of_copy_rate_median", fo_stats_median(t->copy, n));
	if (product_s > 0)
		fo_json_real(&j, "product_ms_best", product_s * 1e3);
	fo_json_close(&j);
	puts(s.data);
	fflush(stdout);
	fo_str_fini(&s);
}

/* The plain pair and what the pass makes of it. */
static void pair(struct bench *b, const struct fo_call *plain, const struct fo_call *fused, double bytes)
{
	static struct times t;
	for (int64_t i = 0; i < b->rounds; i++) {
		t.copy[i] = copy_rate(b);
		evict(b);
		t.plain[i] = seconds(b, plain, 2);
		evict(b);
		t.fused[i] = seconds(b, fused, 1);
	}
	print(b, "pair", fo_op_info(fused->kind)->name, &t, bytes, 0);
}

static void norms(struct bench *b)
{
	int64_t n = b->tokens, d = b->hidden;
	int w = b->dtype;
	b->used = 0;
	struct fo_tensor x = tensor(b, n, d, w), ao = tensor(b, n, d, w), g = tensor(b, 1, d, w),
			 sum = tensor(b, n, d, w), y = tensor(b, n, d, w), rstd = tensor(b, n, 1, FO_F32),
			 dg = tensor(b, 1, d, FO_F32);
	double token = (double)(n * d) * (double)fo_dtype_bytes(w);
	struct fo_call forward[] = {
		call(b, FO_OP_add, 1u << 2, 3, (struct fo_tensor[]){ x, ao, sum }),
		call(b, FO_OP_rmsnorm, 3u << 2, 4, (struct fo_tensor[]){ sum, g, y, rstd }),
	};
	struct fo_call add_norm = call(b, FO_OP_add_rmsnorm, 7u << 3, 6,
				       (struct fo_tensor[]){ x, ao, g, sum, y, rstd });
	pair(b, forward, &add_norm, 4 * token);
	/* dx takes the place of dy, as the memory plan has it. */
	struct fo_call backward[] = {
		call(b, FO_OP_rmsnorm_dg, 1u << 3, 4, (struct fo_tensor[]){ x, rstd, ao, dg }),
		call(b, FO_OP_rmsnorm_dx, 1u << 4, 6, (struct fo_tensor[]){ x, rstd, g, ao, ao, sum }),
	};
	struct fo_call both = call(b, FO_OP_rmsnorm_bwd, 3u << 4, 7,
				   (struct fo_tensor[]){ x, rstd, g, ao, ao, dg, sum });
	pair(b, backward, &both, 4 * token);
}

/* The first `rows` rows of what the call works on. */
static struct fo_call rows_of(struct fo_call c, int64_t rows)
{
	int64_t all = c.arg[0].rows;
	for (int i = 0; i < c.n; i++)
		if (c.arg[i].rows == all)
			c.arg[i].rows = rows;
	return c;
}

/* c on all its rows from memory, and on blocks of rows that stay in L2, as many times. row_bytes: of all its operands.
 * One thread: a block of rows belongs to one. */
static void epilogue(struct bench *b, struct fo_call c, double row_bytes, const struct fo_call *product)
{
	static struct times t;
	int64_t all = c.arg[0].rows, rows = (int64_t)(BLOCK_BYTES / row_bytes);
	rows = rows < 1 ? 1 : rows > all ? all : rows;
	double best = INFINITY;
	for (int64_t i = 0; i < b->rounds; i++) {
		struct fo_call block = rows_of(c, rows);
		evict(b);
		t.plain[i] = seconds(b, &c, 1);
		t.fused[i] = 0;
		seconds(b, &block, 1);
		for (int64_t r = 0; r < all; r += rows) {
			block = rows_of(c, r + rows < all ? rows : all - r);
			t.fused[i] += seconds(b, &block, 1);
		}
		if (i < 3) {
			double s = seconds(b, product, 1);
			best = s < best ? s : best;
		}
	}
	print(b, "epilogue", fo_op_info(c.kind)->name, &t, 0, best);
}

static void epilogues(struct bench *b)
{
	int64_t n = b->tokens, d = b->hidden, f = b->ffn;
	int w = b->dtype;
	double size = (double)fo_dtype_bytes(w);
	b->used = 0;
	struct fo_tensor x = tensor(b, n, d, w), wide = tensor(b, 2 * f > 3 * d ? 2 * f : 3 * d, d, w),
			 s = tensor(b, n, f, w);
	struct fo_tensor out = tensor(b, n, 2 * f > 3 * d ? 2 * f : 3 * d, w), position = tensor(b, n, 1, FO_I32),
			 table = tensor(b, n, 64, FO_F32), bias = tensor(b, 1, 3 * d, w);
	struct fo_tensor gate = out, up = out, qkv = out, turned, weight = wide;
	gate.ld = up.ld = 2 * f, gate.cols = up.cols = f;
	up.data = (char *)out.data + (size_t)f * fo_dtype_bytes(w);
	qkv.ld = qkv.cols = 3 * d, turned = qkv, turned.cols = 2 * d;
	out.ld = out.cols = 2 * f, weight.rows = 2 * f;
	struct fo_call gate_up = call(b, FO_OP_matmul, 1u << 2, 3, (struct fo_tensor[]){ x, weight, out });
	weight.rows = 3 * d;
	struct fo_call product = call(b, FO_OP_matmul, 1u << 2, 3, (struct fo_tensor[]){ x, weight, qkv });
	product.attr.tb = gate_up.attr.tb = 1;
	epilogue(b, call(b, FO_OP_swiglu, 1u << 2, 3, (struct fo_tensor[]){ gate, up, s }), 3 * size * (double)f,
		 &gate_up);
	struct fo_call rope = call(b, FO_OP_rope, 0, 3, (struct fo_tensor[]){ turned, position, table });
	rope.attr.head_dim = 64, rope.attr.sign = 1;
	struct fo_tensor *angles = &rope.arg[2];
	angles->rows = n + 1; /* not to be cut to a block: positions reach all of it */
	epilogue(b, rope, 2 * size * (double)d, &product);
	epilogue(b, call(b, FO_OP_add_bias, 0, 2, (struct fo_tensor[]){ qkv, bias }), 3 * size * (double)d, &product);
}

static int usage(void)
{
	fputs("usage: bench_fusion [--tokens T] [--hidden D] [--ffn F] [--dtype f32|bf16] [--threads N] [--rounds N]\n",
	      stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct bench b = { .tokens = 2048, .hidden = 768, .ffn = 2048, .threads = 1, .rounds = 11, .dtype = FO_BF16 };
	const struct {
		const char *name;
		int64_t *to, most;
	} number[] = { { "--tokens", &b.tokens, 1 << 20 },
		       { "--hidden", &b.hidden, 1 << 16 },
		       { "--ffn", &b.ffn, 1 << 18 },
		       { "--threads", &b.threads, 1024 },
		       { "--rounds", &b.rounds, ROUNDS_MAX } };
	for (int i = 1; i < argc; i += 2) {
		size_t k = 0, n = sizeof number / sizeof *number;
		if (i + 1 == argc)
			return usage();
		while (k < n && strcmp(argv[i], number[k].name))
			k++;
		if (k < n)
			*number[k].to = atoll(argv[i + 1]);
		else if (!strcmp(argv[i], "--dtype") && (!strcmp(argv[i + 1], "f32") || !strcmp(argv[i + 1], "bf16")))
			b.dtype = argv[i + 1][0] == 'b' ? FO_BF16 : FO_F32;
		else
			return usage();
		if (k < n && (*number[k].to < 1 || *number[k].to > number[k].most))
			return usage();
	}
	b.room = (size_t)768 << 20;
	b.ws_bytes = (size_t)256 << 20;
	void *memory = NULL;
	if (fo_isa_choose(&b.isa) != FO_OK || fo_pages_new(b.room, &memory) != FO_OK ||
	    fo_pages_new(b.ws_bytes, &b.ws) != FO_OK ||
	    fo_traffic_data_new(&b.lines, fo_cache_bytes(), (int)b.threads) != FO_OK) {
		fprintf(stderr, "bench_fusion: %s\n", fo_err_text());
		return 3;
	}
	b.memory = memory;
	norms(&b);
	epilogues(&b);
	fo_traffic_data_free(&b.lines);
	fo_pages_free(b.ws, b.ws_bytes);
	fo_pages_free(memory, b.room);
	return 0;
}
