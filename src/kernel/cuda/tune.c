/* Matmuls by shape: descriptors are made once, and each gets an algorithm, proposed by the library, kept from before or
 * measured here.
 *
 * Measuring. Operands are random: a device at its power limit runs zeros up to 13 % faster, and what is best on zeros
 * need not be best on numbers. Copies of them that are larger than the second-level cache are used in turn. First every
 * proposal runs alone for a while. Then the fastest few alternate, batch by batch, so that clocks and heat are the same
 * for all of them, and medians decide (FO_CUDA_TUNE_ON). In a step they are not the same: which algorithm runs decides
 * how far power holds the clock back. So where several are close, FO_CUDA_TUNE_LONG runs each for a second, there and
 * back, and reads the device's energy and clock beside the time (kernel/tune_blocks.h). */
#include "kernel/cuda/product.h"

#include "base/clock.h"
#include "hw/nvml.h"
#include "hw/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum {
	BUCKETS = 256, /* of the table: a program has tens of matmuls */
	PROPOSALS = 32,
	FINALISTS = FO_TUNE_FINALISTS,
	BATCHES = 25,             /* per finalist; odd: the median is one of them */
	SETS = 32,                /* of operands, at most */
	RUNS_MOST = 2000,         /* of a burst */
	BLOCK_RUNS_MOST = 400000, /* of a block: the host takes 2.5 us to launch one run */
	ALIGNED = 256,
};
#define WARM_MS 50.0   /* before anything counts: clocks and power settle */
#define SCREEN_MS 10.0 /* per proposal */
#define BATCH_MS 5.0   /* per batch of a finalist: 4 x 25 x 5 ms = half a second */
/* A block. Power and clock settle within a tenth of a second (the driver renews them some ten to fifty times a second),
 * and twice that does not count. After it comes a second, because the energy counter moves in steps of up to a tenth of
 * one. */
#define SETTLE_MS 200.0
#define BLOCK_MS 1000.0
/* An algorithm that is slower than the fastest by more than this in bursts is not helped by its clock: matmuls of
 * zeros, which draw the least power possible, run 13 % faster than matmuls of numbers on an H200, and algorithms
 * differ by far less in power than that. This is an assumption until both orders were seen on a device; the blocks that
 * are kept in the cache show whether it is too narrow. */
#define CLOSE 1.05
/* The part of these times that the tests' model of a device takes, whose times say nothing of another. */
#define SOFTWARE_PART 0.02

struct fo_cuda_tune {
	enum fo_cuda_tune_mode mode;
	char *path;
	struct fo_cuda_product_plan *bucket[BUCKETS];
	struct fo_cuda_choices kept;
	struct fo_cuda_tuned result;
	double log_gain; /* sum over measured matmuls */
	fo_progress_fn *progress;
	void *progress_ctx;
	const volatile sig_atomic_t *stop;
};

static struct fo_cuda_tune *tune_of(struct fo_cuda *c)
{
	if (!c->tune)
		c->tune = fo_xmalloc(sizeof *c->tune);
	return c->tune;
}

void fo_cuda_tune_free(struct fo_cuda *c)
{
	struct fo_cuda_tune *t = c->tune;
	for (int i = 0; t && i < BUCKETS; i++)
		for (struct fo_cuda_product_plan *p = t->bucket[i], *next; p; p = next) {
			next = p->next;
			fo_cuda_product_fini(c, p);
			free(p);
		}
	if (t) {
		fo_cuda_choices_fini(&t->kept);
		free(t->path);
	}
	free(t);
	c->tune = NULL;
}

void fo_cuda_tune_hooks(struct fo_cuda *c, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	struct fo_cuda_tune *t = tune_of(c);
	t->progress = progress;
	t->progress_ctx = ctx;
	t->stop = stop;
}

static bool stopped(const struct fo_cuda_tune *t) { return t->stop && *t->stop; }

char *fo_cuda_tune_path(struct fo_arena *a) { return fo_cache_path(a, "cuda-products.jsonl"); }

static void note_damaged(struct fo_cuda_tune *t)
{
	if (t->kept.damaged)
		snprintf(t->result.note, sizeof t->result.note, "%d damaged line%s of '%s' left out", t->kept.damaged,
			 t->kept.damaged > 1 ? "s" : "", t->path);
}

fo_status fo_cuda_tune_set(struct fo_cuda *c, enum fo_cuda_tune_mode mode, const char *cache)
{
	struct fo_cuda_tune *t = tune_of(c);
	struct fo_cuda_choices *k = &t->kept;
	size_t v = c->lt->cublasLtGetVersion();
	free(t->path);
	t->path = cache && mode != FO_CUDA_TUNE_OFF ? fo_xstrdup(cache) : NULL;
	t->mode = mode;
	fo_cuda_choices_fini(k);
	snprintf(k->device, sizeof k->device, "%s", c->info.name);
	snprintf(k->library, sizeof k->library, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
	if (!t->path)
		return FO_OK;
	FO_TRY(fo_cuda_choices_read(k, t->path));
	note_damaged(t);
	return FO_OK;
}

void fo_cuda_tune_result(const struct fo_cuda *c, struct fo_cuda_tuned *out)
{
	*out = c->tune ? c->tune->result : (struct fo_cuda_tuned){ 0 };
	out->gain = out->measured ? exp(c->tune->log_gain / out->measured) : 1;
}

static int bucket_of(const struct fo_cuda_product *key) { return (int)(XXH3_64bits(key, sizeof *key) % BUCKETS); }

struct fo_cuda_product_plan *fo_cuda_product_find(const struct fo_cuda *c, const struct fo_cuda_product *key)
{
	struct fo_cuda_product_plan *p = c->tune ? c->tune->bucket[bucket_of(key)] : NULL;
	while (p && memcmp(&p->key, key, sizeof *key) != 0)
		p = p->next;
	return p;
}

/* ---- proposals ---- */

/* Split sums are added up in the compute type and in a fixed order: not in place, where blocks add as they finish, and
 * not in the type of the output, which would round each part to bf16. */
static bool ask_for(const struct fo_cuda *c, const struct fo_cuda_product *key, cublasLtMatmulPreference_t pref)
{
	static const cublasLtMatmulPreferenceAttributes_t align[] = {
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
		CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
	};
	const int type[] = { key->type_a, key->type_b, key->type_d, key->type_d };
	uint64_t most = fo_cuda_product_ws_most(c);
	uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	bool ok = c->lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most,
							      sizeof most) == CUBLAS_STATUS_SUCCESS &&
		  c->lt->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
							      &reduction, sizeof reduction) == CUBLAS_STATUS_SUCCESS;
	for (int i = 0; i < 4; i++) {
		uint32_t bytes = key->loose ? (uint32_t)fo_dtype_bytes(type[i]) : 16;
		ok = ok && c->lt->cublasLtMatmulPreferenceSetAttribute(pref, align[i], &bytes, sizeof bytes) ==
				   CUBLAS_STATUS_SUCCESS;
	}
	return ok;
}

/* Asks for at most `most` proposals, the library's best first; returns how many there are. */
static int propose(const struct fo_cuda *c, const struct fo_cuda_product_plan *p, int most,
		   cublasLtMatmulHeuristicResult_t *out)
{
	cublasLtMatmulPreference_t pref;
	int n = 0, good = 0;
	if (c->lt->cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS)
		return 0;
	if (!ask_for(c, &p->key, pref) ||
	    c->lt->cublasLtMatmulAlgoGetHeuristic(c->lt_handle, p->desc, p->a, p->b, p->d, p->d, pref, most, out, &n) !=
		    CUBLAS_STATUS_SUCCESS)
		n = 0;
	c->lt->cublasLtMatmulPreferenceDestroy(pref);
	for (int i = 0; i < n; i++)
		if (out[i].state == CUBLAS_STATUS_SUCCESS && out[i].workspaceSize <= fo_cuda_product_ws_most(c))
			out[good++] = out[i];
	return good;
}

static void take(struct fo_cuda_product_plan *p, const cublasLtMatmulAlgo_t *algo, size_t ws_bytes)
{
	p->algo = *algo;
	p->ws_bytes = ws_bytes;
}

/* ---- measuring ---- */

struct bench {
	struct fo_cuda *c;
	struct fo_cuda_product_plan *p;
	fo_cuda_stream stream;
	fo_cuda_event begin, end;
	char *memory;
	size_t a, b, d, set; /* bytes */
	int sets, next;
	char *ws;
	float *scale;
};
struct timed {
	cublasLtMatmulHeuristicResult_t h;
	int rank, runs;
	double ms, batch[BATCHES];
};

/* Sizes of the three matrices, and of as many copies as are larger than twice the second-level cache: what an operand
 * leaves there is gone when its turn comes again. */
static void size_up(struct bench *b)
{
	const struct fo_cuda_product *k = &b->p->key;
	b->a = fo_round_up_bytes((size_t)(k->lda * (k->ta ? k->m : k->k)) * fo_dtype_bytes(k->type_a), ALIGNED);
	b->b = fo_round_up_bytes((size_t)(k->ldb * (k->tb ? k->k : k->n)) * fo_dtype_bytes(k->type_b), ALIGNED);
	b->d = fo_round_up_bytes((size_t)(k->ldd * k->n) * fo_dtype_bytes(k->type_d), ALIGNED);
	b->set = b->a + b->b + b->d;
	b->sets = (int)fo_min(2 * b->c->info.l2_bytes / (int64_t)b->set + 1, SETS);
}

static fo_status fill_random(struct bench *b, void *to, size_t bytes, int dtype, uint64_t seed)
{
	struct fo_cuda_queue q = { .cuda = b->c, .stream = b->stream };
	const struct fo_cuda_product_random_args args = { to, (int64_t)(bytes / fo_dtype_bytes(dtype)), seed, dtype };
	return fo_cuda_launch_each(&q, FO_CUDA_FN_product_random, args.n, &args);
}

/* FO_ENOMEM where not even one copy fits: then nothing is measured. */
static fo_status begin(struct bench *b)
{
	const struct fo_cuda_product *k = &b->p->key;
	size_t ws = fo_round_up_bytes(fo_cuda_product_ws_most(b->c), ALIGNED),
	       lines = fo_round_up_bytes((size_t)fo_max(k->m, k->n) * sizeof(float), ALIGNED);
	int64_t have = 0, all = 0;
	size_up(b);
	FO_TRY(fo_cuda_memory(b->c, &have, &all));
	/* Half of what is free: others allocate meanwhile. */
	while (b->sets > 1 && (size_t)b->sets * b->set + ws + lines > (size_t)have / 2)
		b->sets--;
	FO_TRY(fo_cuda_alloc(b->c, (size_t)b->sets * b->set + ws + lines, (void **)&b->memory));
	b->ws = b->memory + (size_t)b->sets * b->set;
	b->scale = (float *)(b->ws + ws);
	FO_TRY(fo_cuda_stream_new(b->c, &b->stream));
	FO_TRY(fo_cuda_event_new(b->c, true, &b->begin));
	FO_TRY(fo_cuda_event_new(b->c, true, &b->end));
	for (int i = 0; i < b->sets; i++) {
		char *at = b->memory + (size_t)i * b->set;
		FO_TRY(fill_random(b, at, b->a, k->type_a, 2 * (uint64_t)i));
		FO_TRY(fill_random(b, at + b->a, b->b, k->type_b, 2 * (uint64_t)i + 1));
		FO_TRY(fo_cuda_fill(b->c, at + b->a + b->b, 0, b->d, b->stream));
	}
	/* Scales that are not one and do not make sums overflow: their values cost nothing. */
	FO_TRY(fill_random(b, b->scale, lines, FO_F32, 0));
	return fo_cuda_stream_wait(b->c, b->stream);
}

static void finish(struct bench *b)
{
	fo_cuda_event_free(b->c, b->begin);
	fo_cuda_event_free(b->c, b->end);
	fo_cuda_stream_free(b->c, b->stream);
	fo_cuda_free(b->c, b->memory);
}

/* Mean of `runs` runs in a row. FO_EUNSUPPORTED: this algorithm does not run. */
static fo_status time_runs(struct bench *b, const struct timed *t, int runs, double *ms)
{
	float all = 0;
	take(b->p, &t->h.algo, t->h.workspaceSize);
	FO_TRY(fo_cuda_event_record(b->c, b->begin, b->stream, false));
	for (int i = 0; i < runs; i++) {
		char *at = b->memory + (size_t)(b->next++ % b->sets) * b->set;
		bool fp8 = fo_dtype_fp8(b->p->key.type_a);
		const float *scale = fp8 ? b->scale : NULL;
		if (fo_cuda_product_run(b->c, b->p, at, at + b->a, at + b->a + b->b, scale, scale, b->ws, b->stream) !=
		    CUBLAS_STATUS_SUCCESS)
			return fo_fail(FO_EUNSUPPORTED, "cuBLASLt does not run what it proposed");
	}
	FO_TRY(fo_cuda_event_record(b->c, b->end, b->stream, false));
	FO_TRY(fo_cuda_stream_wait(b->c, b->stream));
	FO_TRY(fo_cuda_event_ms(b->c, b->begin, b->end, &all));
	*ms = (double)all / runs;
	return FO_OK;
}

static int runs_for(const struct bench *b, double want_ms, double ms)
{
	int most = want_ms < SETTLE_MS ? RUNS_MOST : BLOCK_RUNS_MOST;
	const double part = b->c->info.software ? SOFTWARE_PART : 1;
	return (int)fmin(fmax(ms > 0 ? want_ms * part / ms : RUNS_MOST, 1), most);
}

static int faster(const void *a, const void *b)
{
	const struct timed *x = a, *y = b;
	if (x->ms == y->ms)
		return x->rank - y->rank;
	return x->ms < y->ms ? -1 : 1;
}

/* Times each proposal by itself and drops those that do not run; *n are left. */
static fo_status screen(struct bench *b, struct timed *t, int *n)
{
	int kept = 0;
	bool warm = false;
	for (int i = 0; i < *n; i++) {
		fo_status st = time_runs(b, &t[i], 1, &t[i].ms); /* loads the kernel */
		if (st == FO_OK)
			st = time_runs(b, &t[i], 1, &t[i].ms);
		if (st == FO_OK && !warm)
			st = time_runs(b, &t[i], runs_for(b, WARM_MS, t[i].ms), &t[i].ms);
		if (st == FO_OK)
			st = time_runs(b, &t[i], runs_for(b, SCREEN_MS, t[i].ms), &t[i].ms);
		if (st != FO_OK && st != FO_EUNSUPPORTED)
			return st;
		fo_err_clear();
		if (st != FO_OK)
			continue;
		warm = true;
		t[i].runs = runs_for(b, BATCH_MS, t[i].ms);
		t[kept++] = t[i];
	}
	*n = kept;
	return FO_OK;
}

/* The first n alternate; their medians, fastest first. */
static fo_status final(struct bench *b, struct timed *t, int n)
{
	for (int r = 0; r < BATCHES; r++)
		for (int i = 0; i < n; i++)
			FO_TRY(time_runs(b, &t[i], t[i].runs, &t[i].batch[r]));
	for (int i = 0; i < n; i++)
		t[i].ms = fo_stats_quantile(t[i].batch, BATCHES, 0.5);
	qsort(t, (size_t)n, sizeof *t, faster);
	return FO_OK;
}

/* Runs one block of x, after a while in which power and clock settle. w NULL: time alone. */
static fo_status run_block(struct bench *b, struct fo_nvml_watch *w, const struct timed *x, struct fo_tune_block *out)
{
	int runs = runs_for(b, BLOCK_MS, x->ms);
	double ms;
	FO_TRY(time_runs(b, x, runs_for(b, SETTLE_MS, x->ms), &ms));
	(void)fo_nvml_watch_sample(w);
	FO_TRY(time_runs(b, x, runs, &ms));
	struct fo_nvml_use use = fo_nvml_watch_sample(w);
	*out = (struct fo_tune_block){ .us = ms * 1e3, .joules = use.joules / runs, .hz = use.sm_hz };
	return FO_OK;
}

/* Chooses among t[0 .. n-1], n >= 2, by blocks. FO_EINTERRUPT: stopped, *out is as it was. */
static fo_status sustain(struct bench *b, const struct timed *t, int n, struct fo_cuda_choice *out)
{
	struct fo_tune_verdict v;
	struct fo_tune_block block[FO_TUNE_BLOCKS];
	struct fo_nvml_watch *w = fo_nvml_watch_start(fo_cuda_nvml(b->c));
	int order[FO_TUNE_BLOCKS], blocks = fo_tune_blocks_order(n, order);
	fo_status st = FO_OK;
	for (int i = 0; i < blocks && st == FO_OK; i++) {
		st = stopped(b->c->tune) ? fo_fail(FO_EINTERRUPT, "it was stopped")
					 : run_block(b, w, &t[order[i]], &block[i]);
		block[i].who = order[i];
	}
	fo_nvml_watch_stop(w);
	if (st != FO_OK)
		return st;
	fo_tune_blocks_decide(block, blocks, n, &v);
	for (int i = 0; i < blocks; i++) {
		out->block[i] = block[i];
		out->block[i].who = t[order[i]].rank;
	}
	out->blocks = blocks;
	out->method = FO_CUDA_BLOCKS;
	out->by_energy = v.by_energy;
	out->noise = v.noise;
	out->joules = v.joules[v.best];
	out->hz = v.hz[v.best];
	out->algo = t[v.best].h.algo;
	out->rank = t[v.best].rank;
	out->us = out->first_us = v.us[v.best];
	for (int i = 0; i < n; i++)
		out->first_us = t[i].rank == 0 ? v.us[i] : out->first_us;
	take(b->p, &t[v.best].h.algo, t[v.best].h.workspaceSize);
	return FO_OK;
}

/* t: finalists by their medians of bursts, fastest first. Returns how many are close to the first; the library's first
 * proposal is put right after them. */
static int close_ones(struct timed *t, int n)
{
	int close = 1;
	while (close < n && t[close].ms <= t[0].ms * CLOSE)
		close++;
	for (int i = close; i < n; i++)
		if (t[i].rank == 0) {
			const struct timed first = t[i];
			t[i] = t[close];
			t[close] = first;
		}
	return close;
}

/* Measures n >= 1 proposals into *out. The library's first one is always a finalist, because the gain is reported
 * against it. */
static fo_status measure(struct bench *b, const cublasLtMatmulHeuristicResult_t *h, int n, struct fo_cuda_choice *out)
{
	struct timed *t = fo_xmalloc((size_t)n * sizeof *t);
	fo_status st;
	for (int i = 0; i < n; i++)
		t[i] = (struct timed){ .h = h[i], .rank = i };
	FO_TRY_OR(st, begin(b), done);
	FO_TRY_OR(st, screen(b, t, &n), done);
	if (!n) {
		st = fo_fail(FO_EUNSUPPORTED, "none of cuBLASLt's proposals runs");
		goto done;
	}
	const int finalists = (int)fo_min(n, FINALISTS);
	const bool first = t[0].rank == 0 && n > 1;
	qsort(t + first, (size_t)(n - first), sizeof *t, faster);
	FO_TRY_OR(st, final(b, t, finalists), done);
	*out = (struct fo_cuda_choice){ .key = b->p->key,
					.algo = t[0].h.algo,
					.us = t[0].ms * 1e3,
					.first_us = t[0].ms * 1e3,
					.rank = t[0].rank,
					.of = n,
					.noise = NAN,
					.joules = NAN,
					.hz = NAN };
	for (int i = 0; i < finalists; i++)
		out->first_us = t[i].rank == 0 ? t[i].ms * 1e3 : out->first_us;
	const int close = close_ones(t, finalists), with_first = close < finalists && t[close].rank == 0;
	out->method = close > 1 ? FO_CUDA_BURSTS : FO_CUDA_CLEAR;
	if (close > 1 && b->c->tune->mode == FO_CUDA_TUNE_LONG)
		st = sustain(b, t, close + with_first, out);
	if (st == FO_EINTERRUPT) { /* the result of the bursts stands */
		fo_err_clear();
		st = FO_OK;
	}
	if (out->method != FO_CUDA_BLOCKS)
		take(b->p, &t[0].h.algo, t[0].h.workspaceSize);
done:
	finish(b);
	free(t);
	return st;
}

/* ---- choosing ---- */

/* Takes what was kept, if this library still accepts it. */
static bool take_kept(struct fo_cuda *c, struct fo_cuda_product_plan *p, const struct fo_cuda_choice *k)
{
	struct fo_cuda_tune *t = c->tune;
	cublasLtMatmulHeuristicResult_t r = { 0 };
	if (!k)
		return false;
	if (c->lt->cublasLtMatmulAlgoCheck(c->lt_handle, p->desc, p->a, p->b, p->d, p->d, &k->algo, &r) !=
		    CUBLAS_STATUS_SUCCESS ||
	    r.workspaceSize > fo_cuda_product_ws_most(c)) {
		snprintf(t->result.note, sizeof t->result.note,
			 "cuBLASLt refuses an algorithm that '%s' holds for a matmul (%lld,%lld,%lld)", t->path,
			 (long long)p->key.m, (long long)p->key.n, (long long)p->key.k);
		return false;
	}
	take(p, &k->algo, r.workspaceSize);
	t->result.kept++;
	return true;
}

/* Measures and keeps the result; false: the first proposal is used, and the note says why. */
static bool take_measured(struct fo_cuda *c, struct fo_cuda_product_plan *p, const cublasLtMatmulHeuristicResult_t *h,
			  int n)
{
	struct fo_cuda_tune *t = c->tune;
	struct bench b = { .c = c, .p = p };
	struct fo_cuda_choice found;
	int64_t start = fo_now_ns();
	if (t->progress)
		t->progress(t->progress_ctx, "measuring the algorithms of matmuls", "matmuls", t->result.measured, 0);
	fo_status st = measure(&b, h, n, &found);
	t->result.seconds += 1e-9 * (double)(fo_now_ns() - start);
	if (st != FO_OK) {
		snprintf(t->result.note, sizeof t->result.note, "a matmul (%lld,%lld,%lld) was not measured: %s",
			 (long long)p->key.m, (long long)p->key.n, (long long)p->key.k, fo_err_text());
		fo_err_clear();
		return false;
	}
	t->result.measured++;
	t->result.by_blocks += found.method == FO_CUDA_BLOCKS;
	t->result.by_energy += found.by_energy;
	t->log_gain += found.us > 0 && found.first_us > 0 ? log(found.first_us / found.us) : 0;
	if (t->path && found.us > 0 && fo_cuda_choices_keep(&t->kept, t->path, &found) != FO_OK) {
		snprintf(t->result.note, sizeof t->result.note, "choices are not kept: %s", fo_err_text());
		fo_err_clear();
	} else if (t->path) {
		note_damaged(t);
	}
	return true;
}

static void choose(struct fo_cuda *c, struct fo_cuda_product_plan *p)
{
	struct fo_cuda_tune *t = c->tune;
	cublasLtMatmulHeuristicResult_t h[PROPOSALS];
	/* Matmuls of loosely aligned operands are there for correctness: they are not measured. */
	bool tune = (t->mode == FO_CUDA_TUNE_ON || t->mode == FO_CUDA_TUNE_LONG) && !p->key.loose && !stopped(t);
	const struct fo_cuda_choice *kept = t->mode == FO_CUDA_TUNE_OFF ? NULL
									: fo_cuda_choices_find(&t->kept, &p->key);
	bool again = tune && kept && kept->method == FO_CUDA_BURSTS && t->mode == FO_CUDA_TUNE_LONG;
	if (!again && take_kept(c, p, kept))
		return;
	int n = propose(c, p, tune ? PROPOSALS : 1, h);
	p->good = n > 0;
	if (!p->good || (tune && n > 1 && take_measured(c, p, h, n)) || (again && take_kept(c, p, kept)))
		return;
	take(p, &h[0].algo, h[0].workspaceSize);
	t->result.proposed++;
}

fo_status fo_cuda_product_prepare(struct fo_cuda *c, const struct fo_cuda_product *key,
				  struct fo_cuda_product_plan **out)
{
	struct fo_cuda_tune *t = tune_of(c);
	int i = bucket_of(key);
	*out = fo_cuda_product_find(c, key);
	if (*out)
		return FO_OK;
	struct fo_cuda_product_plan *p = fo_xmalloc(sizeof *p);
	p->key = *key;
	fo_cuda_product_describe(c, p);
	if (p->good)
		choose(c, p);
	p->next = t->bucket[i];
	t->bucket[i] = *out = p;
	return FO_OK;
}
