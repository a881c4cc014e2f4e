/* Generating with a cache: against recomputing the whole text, against Hugging Face transformers' generate() and loss
 * (tests/golden/make_generate.py), its accounting; and how tokens are drawn. */
#include "support/step.h"
#include "base/clock.h"
#include "train/pretrained.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* As in test_golden.c: fp32 rounding of the stored values and of ours, relative to the largest logit. */
#define TIGHT_F32 8e-6

static const char *const golden[] = { "mha",        "gqa",     "gqa_tied", "rope_llama3",  "odd",
				      "llama_bias", "mistral", "qwen2",    "qwen2_window", "qwen3" };

static const void *stored(const struct fo_st_file *f, const char *name, int64_t *n)
{
	const struct fo_st_entry *e = fo_st_find(f, name);
	if (!e)
		fail_msg("no tensor '%s'", name);
	*n = 1;
	for (int i = 0; i < e->ndim; i++)
		*n *= e->shape[i];
	return f->data + e->begin;
}

static int64_t likeliest(const float *logits, int64_t n)
{
	int64_t best = 0;
	for (int64_t i = 1; i < n; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

static struct fo_exec_options options(int isa)
{
	return (struct fo_exec_options){ .isa = (enum fo_isa)isa, .threads = 2, .poison = true, .timeline_steps = 1 };
}

/* ---- against transformers ---- */

static double follow(struct fo_generator *g, const struct fo_st_file *f, const char *what)
{
	int64_t prompts, tokens, n, done = 0;
	const int32_t *prompt = stored(f, "prompt", &prompts), *greedy = stored(f, "greedy", &tokens);
	const float *logits = stored(f, "logits", &n);
	int64_t vocab = n / tokens;
	double worst = 0, top = 0;
	/* In pieces, so that chunks begin and end anywhere. */
	for (int64_t piece = 1; done < prompts; done += piece, piece = piece * 3 % 11 + 1) {
		if (piece > prompts - done)
			piece = prompts - done;
		must(fo_generator_push(g, prompt + done, piece));
	}
	for (int64_t t = 0; t < tokens; t++) {
		const float *have = fo_generator_logits(g);
		for (int64_t i = 0; i < vocab; i++) {
			worst = fmax(worst,
				     isfinite(have[i]) ? fabs((double)have[i] - logits[t * vocab + i]) : INFINITY);
			top = fmax(top, fabs((double)logits[t * vocab + i]));
		}
		int32_t id = (int32_t)likeliest(have, vocab);
		if (id != greedy[t])
			fail_msg("%s: token %lld is %d, transformers says %d", what, (long long)t, id, greedy[t]);
		must(fo_generator_push(g, &id, 1));
	}
	assert_int_equal(fo_generator_length(g), prompts + tokens);
	return worst / top;
}

static void test_transformers_generate(void **state)
{
	static const int64_t chunk[] = { 1, 4, 64 };
	(void)state;
	for (size_t m = 0; m < sizeof golden / sizeof *golden; m++) {
		struct fo_st_file f;
		struct fo_pretrained p;
		char path[512], what[80];
		double worst = 0;
		must(fo_st_open(&f, step_golden(path, golden[m], "generate.safetensors")));
		must(fo_pretrained_open(&p, step_golden(path, golden[m], ""), -1));
		assert_int_equal(p.precision, !strncmp(golden[m], "qwen", 4) && strcmp(golden[m], "qwen2_window")
						      ? FO_PRECISION_BF16
						      : FO_PRECISION_F32); /* fp16, bf16: stored so */
		p.precision = FO_PRECISION_F32;                            /* as transformers computed */
		for (int isa = 0; isa < FO_ISA_COUNT; isa++)
			for (int c = 0; c < 3 && fo_isa_have((enum fo_isa)isa); c++) {
				struct fo_exec_options o = options(isa);
				struct fo_store *s;
				struct fo_generator *g;
				must(fo_pretrained_generator(&p, &o, 37 + 32, chunk[c], &s, &g));
				snprintf(what, sizeof what, "%s, %s, chunks of %lld", golden[m], fo_isa_name[isa],
					 (long long)chunk[c]);
				worst = fmax(worst, follow(g, &f, what));
				if (c == 1) { /* forgotten and told again, it is the same text */
					fo_generator_clear(g);
					worst = fmax(worst, follow(g, &f, what));
				}
				fo_generator_free(g);
				fo_store_free(s);
			}
		print_message("%-12s: 32 greedy tokens the same, logits within %.1e of the largest\n", golden[m],
			      worst);
		assert_true(worst <= TIGHT_F32);
		fo_pretrained_close(&p);
		fo_st_close(&f);
	}
}

/* A shard (docs/formats.md) with one document. */
static void write_shard(const char *path, const int32_t *ids, int64_t n, int64_t vocab)
{
	struct header {
		char magic[8];
		uint32_t version, id_bytes;
		int64_t tokens, docs, vocab;
		uint64_t tokenizer_checksum, checksum, reserved;
	} h = { "FLATSHRD", 1, 2, n, 1, vocab, 0, 0, 0 };
	size_t padded = ((size_t)n * 2 + 7) / 8 * 8, bytes = padded + 16;
	unsigned char *body = fo_xmalloc(bytes);
	for (int64_t i = 0; i < n; i++) {
		uint16_t id = (uint16_t)ids[i];
		memcpy(body + 2 * i, &id, 2);
	}
	memcpy(body + padded + 8, &n, 8);
	unsigned char *all = fo_xmalloc(bytes + sizeof h);
	memcpy(all, body, bytes);
	memcpy(all + bytes, &h, sizeof h);
	h.checksum = XXH3_64bits(all, bytes + sizeof h);
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(&h, sizeof h, 1, f) + fwrite(body, bytes, 1, f), 2);
	fclose(f);
	free(all);
	free(body);
}

static void test_transformers_loss(void **state)
{
	char file[64];
	(void)state;
	snprintf(file, sizeof file, "eval-%ld.shard", (long)getpid());
	for (size_t m = 0; m < sizeof golden / sizeof *golden; m++) {
		struct fo_st_file f;
		struct fo_pretrained p;
		struct fo_eval_result r;
		struct fo_eval_options o = { .data = file, .seq = 24, .threads = 2 };
		char path[512];
		int64_t n, one;
		must(fo_st_open(&f, step_golden(path, golden[m], "generate.safetensors")));
		must(fo_pretrained_open(&p, step_golden(path, golden[m], ""), FO_PRECISION_F32));
		const int32_t *document = stored(&f, "document", &n);
		double want = *(const float *)stored(&f, "loss", &one);
		write_shard(file, document, n, p.model.vocab);
		must(fo_pretrained_evaluate(&p, &o, &r));
		assert_int_equal(r.tokens, n - 1);
		assert_int_equal(r.real_tokens, n);
		assert_int_equal(r.batches, 1);
		assert_true(r.in_order && isnan(r.logged) && isnan(r.bits_per_byte) && r.bytes == -1);
		/* A mean of 72 fp32 losses, rounded to fp32 when stored. */
		if (!(fabs(r.loss - want) <= 2e-6 * want))
			fail_msg("%s: the loss is %.9g, transformers says %.9g", golden[m], r.loss, want);
		assert_true(fabs(r.perplexity - exp(want)) <= 2e-5 * exp(want));
		fo_pretrained_close(&p);
		fo_st_close(&f);
	}
	unlink(file);
}

/* ---- against recomputing ---- */

enum { TEXT = 75, VOCAB = 91 };

/* Logits of every position of one text, by the program that knows no cache; [TEXT][VOCAB]. */
static double *recompute(const struct fo_model *m, const int32_t *ids, enum fo_numerics precision, int isa)
{
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = options(isa);
	step_batch_alloc(&b, TEXT, 1, 1);
	for (int i = 0; i < TEXT; i++) {
		b.token[i] = ids[i];
		b.target[i] = -1;
		b.position[i] = i;
		b.doc_start[i] = 0;
	}
	step_batch_count(&b);
	struct fo_lowering low = step_lowering(&b, precision, FO_MODE_LOGITS);
	step_rig_lower(&r, m, &low, &b, &o);
	must(fo_exec_step(r.exec, 0));
	double *logits = fo_xmalloc(TEXT * VOCAB * sizeof *logits);
	memcpy(logits, r.logits, TEXT * VOCAB * sizeof *logits);
	step_rig_free(&r);
	step_batch_free(&b);
	return logits;
}

/* The same logits token by token behind a prompt, from a store with the same random weights. */
static double *with_cache(const struct fo_model *m, const int32_t *ids, int prompt, int64_t chunk,
			  enum fo_numerics precision, int isa)
{
	const struct fo_lowering low = {
		.seq = TEXT, .rows = 1, .micro_batches = 1, .precision = precision, .mode = FO_MODE_EVAL
	};
	struct fo_program p;
	struct fo_store *s;
	struct fo_generator *g;
	struct fo_exec_options o = options(isa);
	double *logits = fo_xmalloc(TEXT * VOCAB * sizeof *logits);
	must(fo_program_lower(&p, m, &low));
	must(fo_store_new(&s, &p));
	fo_store_init(s, &p, 42);
	must(fo_generator_new(&g, m, precision, NULL, s, &o, TEXT, chunk, NULL));
	for (int at = 0; at < TEXT;) {
		int n = at ? 1 : prompt;
		must(fo_generator_push(g, ids + at, n));
		at += n;
		for (int i = 0; i < VOCAB; i++)
			logits[(at - 1) * VOCAB + i] = fo_generator_logits(g)[i];
	}
	assert_int_equal(fo_generator_push(g, ids, 1), FO_EARG); /* the context is used up */
	assert_int_equal(fo_generator_length(g), TEXT);
	fo_generator_clear(g);
	const int32_t bad[] = { 0, VOCAB };
	assert_int_equal(fo_generator_push(g, bad, 2), FO_EARG);
	assert_int_equal(fo_generator_length(g), 0);
	fo_generator_free(g);
	fo_store_free(s);
	fo_program_fini(&p);
	return logits;
}

/* Largest difference from position `from` on, over the largest value. */
static double difference(const double *a, const double *b, int from)
{
	double d = 0, top = 0;
	for (int i = from * VOCAB; i < TEXT * VOCAB; i++) {
		d = fmax(d, isfinite(a[i]) ? fabs(a[i] - b[i]) : INFINITY);
		top = fmax(top, fabs(b[i]));
	}
	return d / top;
}

static void test_recomputing(void **state)
{
	static const struct {
		int prompt, chunk;
	} how[] = { { 1, 1 }, { 40, 7 }, { 40, 64 }, { 74, 16 } };
	struct fo_model m = step_model(3, 48, 3, 1, 100, VOCAB, false);
	int32_t ids[TEXT];
	(void)state;
	for (int window = 0; window <= 20; window += 20) {
		m.sliding_window = window;
		for (int i = 0; i < TEXT; i++)
			ids[i] = (int32_t)(fo_rng_u64(5, (uint64_t)i) % VOCAB);
		double *exact = recompute(&m, ids, FO_PRECISION_F64, FO_ISA_REF);
		for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
			if (!fo_isa_have((enum fo_isa)isa))
				continue;
			double *f32 = recompute(&m, ids, FO_PRECISION_F32, isa),
			       *bf16 = recompute(&m, ids, FO_PRECISION_BF16, isa);
			for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
				int from = how[k].prompt - 1;
				double *a = with_cache(&m, ids, how[k].prompt, how[k].chunk, FO_PRECISION_F32, isa),
				       *b = with_cache(&m, ids, how[k].prompt, how[k].chunk, FO_PRECISION_BF16, isa);
				double d32 = difference(a, f32, from), mine = difference(b, exact, from),
				       theirs = difference(bf16, exact, from);
				print_message("window %2d, %-6s prompt %2d in chunks of %2d: fp32 within %.1e; bf16 "
					      "%.1e from exact, without cache %.1e\n",
					      window, fo_isa_name[isa], how[k].prompt, how[k].chunk, d32, mine, theirs);
				assert_true(d32 <= TIGHT_F32);
				if (isa == FO_ISA_REF) /* the same sums in the same order */
					assert_true(d32 == 0);
				/* Sums of another order round to another bf16 now and then. */
				assert_true(mine <= 2 * theirs);
				free(a), free(b);
			}
			free(f32), free(bf16);
		}
		free(exact);
	}
}

/* A chunk's queries give the same bits however the text before was cut: attention and single rows depend on their own
 * keys. */
static void test_single_steps_repeat(void **state)
{
	struct fo_model m = step_model(2, 64, 4, 2, 96, VOCAB, true);
	int32_t ids[TEXT];
	(void)state;
	for (int i = 0; i < TEXT; i++)
		ids[i] = (int32_t)(fo_rng_u64(6, (uint64_t)i) % VOCAB);
	for (int isa = 0; isa < FO_ISA_COUNT; isa++) {
		if (!fo_isa_have((enum fo_isa)isa))
			continue;
		double *a = with_cache(&m, ids, 50, 16, FO_PRECISION_BF16, isa),
		       *b = with_cache(&m, ids, 50, 16, FO_PRECISION_BF16, isa);
		assert_memory_equal(a + 49 * VOCAB, b + 49 * VOCAB, 25 * VOCAB * sizeof *a);
		free(a), free(b);
	}
}

/* ---- accounting ---- */

struct feed {
	int32_t begin, count;
};

static fo_status serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	const struct feed *f = ctx;
	(void)mb, (void)n;
	if (port != FO_PORT_CHUNK)
		return FO_OK;
	for (int64_t i = 0; i < arg[0].rows; i++) {
		((int32_t *)arg[0].data)[i] = 1;
		((int32_t *)arg[1].data)[i] = f->begin + (int32_t)i;
	}
	memcpy(arg[2].data, f, sizeof *f);
	return FO_OK;
}

/* Twice the multiply-adds that `ref` does are the executed FLOP that the program declares, whatever the position. */
static void test_accounting(void **state)
{
	static const struct feed at[] = { { 0, 1 }, { 17, 1 }, { 0, 6 }, { 34, 6 } };
	struct fo_model m = step_model(2, 24, 4, 2, 40, VOCAB, false);
	(void)state;
	for (int window = 0; window <= 9; window += 9)
		for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
			const struct fo_lowering low = {
				.seq = at[k].count, .rows = 1, .micro_batches = 1, .mode = FO_MODE_DECODE, .context = 40
			};
			struct fo_program p;
			struct fo_store *s;
			struct fo_exec *e;
			double mac = 0, pairs = 0;
			struct feed f = at[k];
			struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .mac = &mac };
			m.sliding_window = window;
			must(fo_program_lower(&p, &m, &low));
			must(fo_store_new(&s, &p));
			must(fo_exec_new(&e, &p, s, &o, serve, &f, NULL));
			must(fo_exec_step(e, 0));
			for (int i = 0; i < f.count; i++)
				pairs += window && f.begin + i + 1 > window ? window : f.begin + i + 1;
			assert_true(2 * mac == fo_program_cost(&p, pairs).exec);
			if (f.begin + f.count == 40) /* the cache's last chunk is what -1 stands for */
				assert_true(2 * mac == fo_program_cost(&p, -1).exec);
			/* A later token reads more of the cache: keys and values of one row per layer. */
			if (!window && f.count == 1)
				assert_true(fo_program_cost(&p, pairs + 1).bytes - fo_program_cost(&p, pairs).bytes ==
					    2.0 * 2 * (double)(m.kv_heads * m.head_dim) * 4);
			fo_exec_free(e);
			fo_store_free(s);
			fo_program_fini(&p);
		}
}

/* ---- drawing ---- */

enum { IDS = 60 };
static const float *by_logit;
static int compare(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
	return by_logit[x] > by_logit[y] ? -1 : by_logit[x] < by_logit[y] ? 1 : x < y ? -1 : 1;
}

/* The candidates by sorting everything. Returns how many; p by rank. */
static int64_t candidates(const struct fo_sampling *how, const float *logits, int32_t id[IDS], double p[IDS])
{
	double sum = 0, reached = 0;
	int64_t k = how->top_k && how->top_k < IDS ? how->top_k : IDS, n = 0;
	for (int32_t i = 0; i < IDS; i++)
		id[i] = i;
	by_logit = logits;
	qsort(id, IDS, sizeof *id, compare);
	for (int64_t i = 0; i < k; i++)
		sum += p[i] = exp(((double)logits[id[i]] - logits[id[0]]) / how->temperature);
	while (n < k && (n == 0 || reached < how->top_p * sum))
		reached += p[n++];
	for (int64_t i = 0; i < n; i++)
		p[i] /= reached;
	return n;
}

static void fill_logits(float *logits, uint64_t seed)
{
	for (int i = 0; i < IDS; i++) /* quarters: many are equal */
		logits[i] = (float)floor(4 * 2 * fo_rng_normal(seed, (uint64_t)i)) / 4;
}

static void test_cuts(void **state)
{
	static const struct fo_sampling how[] = { { 0.8, 40, 1, 1 },    { 1, 5, 1, 1 },     { 2, 1, 1, 1 },
						  { 1, 0, 0.9, 1 },     { 0.5, 0, 0.3, 1 }, { 1, 7, 0.5, 1 },
						  { 1.3, 60, 0.99, 1 }, { 1, 0, 1e-9, 1 },  { 1, 1000, 1, 1 },
						  { 0.7, 0, 1, 1 } };
	float logits[IDS];
	(void)state;
	for (size_t k = 0; k < sizeof how / sizeof *how; k++)
		for (uint64_t seed = 0; seed < 20; seed++) {
			int32_t id[IDS];
			double p[IDS];
			struct fo_sampler s;
			fill_logits(logits, seed);
			int64_t n = candidates(&how[k], logits, id, p);
			fo_sampler_init(&s, &how[k], IDS);
			int32_t drawn = fo_sampler_draw(&s, logits, seed);
			assert_int_equal(s.kept, n);
			for (int64_t i = 0, seen = 0; i < n; i++) {
				int64_t at = 0;
				while (at < n && s.id[at] != id[i])
					at++;
				assert_true(at < n);
				assert_true(fabs(s.p[at] - p[i]) <= 1e-12);
				seen += id[i] == drawn;
				assert_true(i + 1 < n || seen == 1);
			}
			assert_int_equal(fo_sampler_draw(&s, logits, seed), drawn);
			fo_sampler_fini(&s);
		}
}

/* 20,000 draws against the probabilities: chi-square with n - 1 degrees of freedom has mean n - 1 and deviation
 * sqrt(2 (n - 1)); seeds are fixed, so five deviations either hold for good or do not. */
static void test_distribution(void **state)
{
	static const struct fo_sampling how[] = {
		{ 0.8, 40, 1, 11 }, { 1.5, 0, 0.95, 12 }, { 3, 0, 1, 13 }, { 1, 9, 0.8, 14 }
	};
	enum { DRAWS = 20000 };
	float logits[IDS];
	(void)state;
	for (size_t k = 0; k < sizeof how / sizeof *how; k++) {
		int32_t id[IDS];
		double p[IDS], count[IDS] = { 0 }, chi = 0, rare = 0, rare_count = 0;
		struct fo_sampler s;
		fill_logits(logits, 99);
		int64_t n = candidates(&how[k], logits, id, p), cells = 0;
		fo_sampler_init(&s, &how[k], IDS);
		for (uint64_t i = 0; i < DRAWS; i++)
			count[fo_sampler_draw(&s, logits, i)]++;
		for (int64_t i = 0; i < n; i++) {
			double e = DRAWS * p[i], c = count[id[i]];
			if (e >= 5) {
				chi += (c - e) * (c - e) / e;
				cells++;
			} else { /* too rare for the approximation: together */
				rare += e;
				rare_count += c;
			}
		}
		if (rare >= 5) {
			chi += (rare_count - rare) * (rare_count - rare) / rare;
			cells++;
		}
		print_message("temperature %g, top-k %lld, top-p %g: chi-square %.1f in %lld cells\n",
			      how[k].temperature, (long long)how[k].top_k, how[k].top_p, chi, (long long)cells);
		assert_true(cells > 2 && chi < (double)(cells - 1) + 5 * sqrt(2.0 * (double)(cells - 1)));
		fo_sampler_fini(&s);
	}
}

static void test_drawing_bounds(void **state)
{
	const struct fo_sampling greedy = { 0, 40, 0.5, 1 }, warm = { 1, 0, 1, 1 };
	float logits[IDS] = { 0 };
	struct fo_sampler s;
	(void)state;
	fo_sampler_init(&s, &greedy, IDS);
	logits[17] = logits[40] = 3;
	assert_int_equal(fo_sampler_draw(&s, logits, 0), 17); /* of equal ones the lower id */
	logits[5] = NAN;
	assert_int_equal(fo_sampler_draw(&s, logits, 0), -1);
	for (int i = 0; i < IDS; i++)
		logits[i] = -INFINITY;
	assert_int_equal(fo_sampler_draw(&s, logits, 0), -1);
	fo_sampler_fini(&s);
	fo_sampler_init(&s, &warm, IDS);
	logits[33] = -1e30f; /* all others are impossible */
	for (uint64_t i = 0; i < 100; i++)
		assert_int_equal(fo_sampler_draw(&s, logits, i), 33);
	fo_sampler_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_transformers_generate),
		cmocka_unit_test(test_transformers_loss),
		cmocka_unit_test(test_recomputing),
		cmocka_unit_test(test_single_steps_repeat),
		cmocka_unit_test(test_accounting),
		cmocka_unit_test(test_cuts),
		cmocka_unit_test(test_distribution),
		cmocka_unit_test(test_drawing_bounds),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
