/* From files to shards and back, hostile shards, and the bigram baseline against its formula. */
#include "base/clock.h"
#include "base/fs.h"
#include "data/data_int.h"
#include "support/must.h"

#define XXH_INLINE_ALL
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

static char scratch[] = "/tmp/flatout_shard_XXXXXX";
static struct fo_tokenizer *tokenizer;

static const char *in_scratch(const char *format, int i)
{
	static char path[4][4096];
	static int turn;
	char name[256];
	snprintf(name, sizeof name, format, i);
	turn = (turn + 1) % 4;
	snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
	return path[turn];
}

static void write_plain(const char *path, const void *bytes, size_t len)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(bytes, 1, len, f), len);
	assert_int_equal(fclose(f), 0);
}

/* The text of document d, without BOS and EOS, which are checked. */
static void read_document(const struct fo_shard *s, int64_t d, struct fo_str *out)
{
	int64_t from = s->doc_at[d], to = s->doc_at[d + 1];
	assert_true(to - from >= 2);
	assert_int_equal(s->ids16[from], fo_tokenizer_bos(tokenizer));
	assert_int_equal(s->ids16[to - 1], fo_tokenizer_eos(tokenizer));
	for (int64_t i = from + 1; i < to - 1; i++)
		fo_tokenizer_decode(tokenizer, &(int32_t){ s->ids16[i] }, 1, out);
}

struct seen {
	int calls;
	double last, total;
};

static void note_progress(void *ctx, const char *what, const char *unit, double done, double total)
{
	struct seen *s = ctx;
	assert_string_equal(what, "encoding");
	assert_string_equal(unit, "bytes");
	assert_true(done >= s->last && done <= total);
	*s = (struct seen){ s->calls + 1, done, total };
}

/* As `flatout train` calls it, of one input. */
static fo_status prepare(const char *path, const char *dir, int64_t every, fo_progress_fn *progress, void *ctx,
			 struct fo_prepare_stats *stats)
{
	return fo_data_prepare(&(struct fo_prepare){ .inputs = (char *[]){ (char *)(uintptr_t)path },
						     .n = 1,
						     .dir = dir,
						     .tokenizer = tokenizer,
						     .holdout_every = every,
						     .threads = 2,
						     .replace = true,
						     .progress = progress,
						     .ctx = ctx },
			       stats);
}

static void test_many_documents(void **state)
{
	(void)state;
	enum { N = 97, EVERY = 10 };
	struct fo_str text[N] = { 0 };
	struct seen seen = { 0 };
	struct fo_prepare_stats stats;
	int64_t bytes = 0;
	must(fo_fs_mkdirs(in_scratch("many/sub", 0)));
	for (int i = 0; i < N; i++) { /* any bytes but NUL */
		for (uint64_t k = 0, n = 1 + fo_rng_u64(7, (uint64_t)i) % 900; k < n; k++)
			fo_str_append(&text[i], &(char){ (char)(1 + fo_rng_u64((uint64_t)i, k) % (i % 2 ? 255 : 126)) },
				      1);
		write_plain(in_scratch(i < 50 ? "many/%03d.txt" : "many/sub/%03d.txt", i), text[i].data, text[i].len);
		bytes += (int64_t)text[i].len;
	}
	write_plain(in_scratch("many/binary", 0), "a\0b", 3);
	write_plain(in_scratch("many/empty", 0), "", 0);
	must(prepare(in_scratch("many", 0), in_scratch("out/deep", 0), EVERY, note_progress, &seen, &stats));
	assert_int_equal(stats.files, N + 2);
	assert_int_equal(stats.skipped_binary, 1);
	assert_int_equal(stats.bytes, bytes);
	assert_int_equal(stats.train_docs + stats.val_docs, N);
	assert_in_range(stats.val_docs, N / EVERY, N / EVERY + 1); /* one in each full group */
	assert_true(seen.calls >= 1 && seen.last == seen.total && seen.total == (double)bytes + 3);
	assert_false(fo_fs_exists(in_scratch("out/deep/train.shard.tmp", 0)));
	assert_false(fo_fs_exists(in_scratch("out/deep/val.shard.tmp", 0)));

	/* Every file is one document of one shard, byte for byte. */
	bool found[N] = { false };
	int order[2] = { -1, -1 };
	for (int side = 0; side < 2; side++) {
		struct fo_shard s;
		must(fo_shard_open(&s, in_scratch(side ? "out/deep/val.shard" : "out/deep/train.shard", 0)));
		assert_int_equal(s.docs, side ? stats.val_docs : stats.train_docs);
		assert_int_equal(s.tokens, side ? stats.val_tokens : stats.train_tokens);
		assert_int_equal(s.vocab, fo_tokenizer_vocab(tokenizer));
		assert_true(s.tokenizer_checksum == fo_tokenizer_checksum(tokenizer));
		for (int64_t d = 0; d < s.docs; d++) {
			struct fo_str got = { 0 };
			read_document(&s, d, &got);
			int i = order[side] + 1;
			while (i < N && (text[i].len != got.len || memcmp(text[i].data, got.data, got.len) != 0))
				i++;
			assert_true(i < N && !found[i]);
			found[i] = true;
			order[side] = i;
			fo_str_fini(&got);
		}
		fo_shard_close(&s);
	}
	for (int i = 0; i < N; i++) {
		assert_true(found[i]);
		fo_str_fini(&text[i]);
	}
}

static void test_the_same_text_gives_the_same_shards(void **state)
{
	(void)state;
	struct fo_prepare_stats stats;
	struct fo_shard a, b;
	uint64_t sum[2];
	for (int i = 0; i < 2; i++) {
		/* A cut-off earlier run left its files behind. */
		must(fo_fs_mkdirs(in_scratch("same%d", i)));
		write_plain(in_scratch("same%d/train.shard.tmp", i), "rubbish", 7);
		must(prepare(in_scratch("many", 0), in_scratch("same%d", i), 10, NULL, NULL, &stats));
		must(fo_shard_open(&a, in_scratch("same%d/train.shard", i)));
		must(fo_shard_open(&b, in_scratch("same%d/val.shard", i)));
		assert_true(a.checksum != b.checksum);
		sum[i] = a.checksum ^ b.checksum * 3;
		fo_shard_close(&a);
		fo_shard_close(&b);
	}
	assert_true(sum[0] == sum[1]);
}

static void test_few_documents_give_their_tails(void **state)
{
	(void)state;
	struct fo_str text = { 0 }, head = { 0 }, tail = { 0 };
	struct fo_prepare_stats stats;
	for (int i = 0; i < 3000; i++)
		fo_str_printf(&text, "line %d \xe4\xb8\xad\n", i);
	for (int docs = 1; docs <= 3; docs += 2) {
		must(fo_fs_remove_tree(in_scratch("few", 0)));
		must(fo_fs_mkdirs(in_scratch("few", 0)));
		for (int i = 0; i < docs; i++)
			write_plain(in_scratch("few/%d.txt", i), text.data, text.len);
		const char *path = docs == 1 ? in_scratch("few/0.txt", 0)
					     : in_scratch("few", 0); /* a file or a folder */
		must(prepare(path, in_scratch("few_out", 0), 20, NULL, NULL, &stats));
		assert_int_equal(stats.train_docs, docs);
		assert_int_equal(stats.val_docs, docs);
		struct fo_shard train, val;
		must(fo_shard_open(&train, in_scratch("few_out/train.shard", 0)));
		must(fo_shard_open(&val, in_scratch("few_out/val.shard", 0)));
		for (int d = 0; d < docs; d++) {
			head.len = tail.len = 0;
			read_document(&train, d, &head);
			read_document(&val, d, &tail);
			assert_in_range(tail.len, text.len / 20 - 20, text.len / 20);
			assert_memory_equal(tail.data, "line ", 5); /* cut at a line's end */
			fo_str_append(&head, tail.data, tail.len);
			assert_int_equal(head.len, text.len);
			assert_memory_equal(head.data, text.data, text.len);
		}
		fo_shard_close(&train);
		fo_shard_close(&val);
	}
	fo_str_fini(&text);
	fo_str_fini(&head);
	fo_str_fini(&tail);
}

static void test_prepare_refuses(void **state)
{
	(void)state;
	struct fo_prepare_stats stats;
	char dir[4096];
	snprintf(dir, sizeof dir, "%s", in_scratch("refused", 0));
	write_plain(in_scratch("one_byte", 0), "x", 1);
	write_plain(in_scratch("nul", 0), "x\0", 2);
	assert_int_equal(prepare(in_scratch("many", 0), dir, 1, NULL, NULL, &stats), FO_EARG);
	assert_int_equal(prepare(in_scratch("absent", 0), dir, 20, NULL, NULL, &stats), FO_EIO);
	assert_int_equal(prepare(in_scratch("nul", 0), dir, 20, NULL, NULL, &stats), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "1 of them binary"));
	assert_int_equal(prepare(in_scratch("one_byte", 0), dir, 20, NULL, NULL, &stats), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "too little text"));
	assert_false(fo_fs_exists(in_scratch("refused/train.shard", 0)));
	assert_false(fo_fs_exists(in_scratch("refused/train.shard.tmp", 0)));
	/* A folder where a file should go. */
	must(fo_fs_mkdirs(in_scratch("refused/train.shard.tmp", 0)));
	assert_int_equal(prepare(in_scratch("many", 0), dir, 20, NULL, NULL, &stats), FO_EIO);
	assert_non_null(strstr(fo_err_text(), "train.shard.tmp"));
}

/* ---- hostile shards ---- */

static void repair_checksum(unsigned char *file, size_t len)
{
	struct shard_header h;
	XXH3_state_t x;
	memcpy(&h, file, sizeof h);
	h.checksum = 0;
	XXH3_INITSTATE(&x);
	XXH3_64bits_reset(&x);
	XXH3_64bits_update(&x, file + sizeof h, len - sizeof h);
	XXH3_64bits_update(&x, &h, sizeof h);
	h.checksum = XXH3_64bits_digest(&x);
	memcpy(file, &h, sizeof h);
}

/* A well-formed shard file of the given ids and documents, in malloced memory. */
static unsigned char *shard_file(int64_t vocab, const int64_t *ids, int64_t tokens, const int64_t *doc_at, int64_t docs,
				 size_t *len)
{
	uint32_t id_bytes = vocab <= 65536 ? 2 : 4;
	*len = sizeof(struct shard_header) + shard_ids_bytes(tokens, id_bytes) + ((size_t)docs + 1) * 8;
	unsigned char *file = calloc(1, *len);
	struct shard_header h = { .version = 1, .id_bytes = id_bytes, .tokens = tokens, .docs = docs, .vocab = vocab };
	memcpy(h.magic, SHARD_MAGIC, 8);
	memcpy(file, &h, sizeof h);
	for (int64_t i = 0; i < tokens; i++)
		memcpy(file + sizeof h + (size_t)i * id_bytes, &ids[i], id_bytes);
	memcpy(file + *len - ((size_t)docs + 1) * 8, doc_at, ((size_t)docs + 1) * 8);
	repair_checksum(file, *len);
	return file;
}

static struct fo_shard make_shard(int64_t vocab, const int64_t *ids, int64_t tokens, const int64_t *doc_at,
				  int64_t docs)
{
	size_t len;
	struct fo_shard s;
	unsigned char *file = shard_file(vocab, ids, tokens, doc_at, docs, &len);
	unlink(in_scratch("made.shard", 0)); /* an earlier one may still be mapped */
	write_plain(in_scratch("made.shard", 0), file, len);
	free(file);
	must(fo_shard_open(&s, in_scratch("made.shard", 0)));
	return s;
}

static void test_32_bit_ids(void **state)
{
	(void)state;
	const int64_t ids[] = { 0, 65535, 65536, 99999, 5 }, at[] = { 0, 2, 5 };
	for (int64_t vocab = 65536; vocab <= 100000; vocab += 34464) {
		bool wide = vocab > 65536;
		struct fo_shard s = make_shard(vocab, ids, wide ? 5 : 2, at, wide ? 2 : 1);
		assert_true(!s.ids32 == !wide && !s.ids16 == wide);
		for (int i = 0; i < (wide ? 5 : 2); i++)
			assert_int_equal(wide ? s.ids32[i] : s.ids16[i], ids[i]);
		fo_shard_close(&s);
	}
}

static void test_each_damage_is_named(void **state)
{
	(void)state;
	const int64_t ids[] = { 1, 2, 3, 4, 5, 6 }, at[] = { 0, 2, 6 };
	static const struct {
		size_t offset;
		int64_t value;
		int bytes;
		bool repair;
		const char *says;
	} damage[] = {
		{ 0, 'X', 1, true, "does not begin with 'FLATSHRD'" },
		{ 8, 2, 4, true, "version is 2, this program reads version 1" },
		{ 12, 4, 4, true, "ids have 4 bytes, expected 2" },
		{ 12, 0, 4, true, "ids have 0 bytes" },
		{ 16, 9, 8, true, "the file has 104 bytes, expected 112" },
		{ 16, 0, 8, true, "damaged or the file cut" },
		{ 16, -1, 8, true, "damaged or the file cut" },
		{ 16, INT64_MAX, 8, true, "damaged or the file cut" },
		{ 24, INT64_MAX, 8, true, "damaged or the file cut" },
		{ 24, 3, 8, true, "expected 112" },
		{ 32, 0, 8, true, "a vocabulary of 0 tokens" },
		{ 32, 6, 8, true, "token 5 is id 6, expected ids below 6" },
		{ 40, 1, 8, false, "checksum" },
		{ 56, 1, 8, true, "damaged" },
		{ 64, 9, 2, false, "checksum" },
		{ 80, 1, 8, true, "documents span tokens 1 to 6" },
		{ 88, 0, 8, true, "document 0 ends at token 0" },
		{ 88, 7, 8, true, "document 1 ends at token 6" },
		{ 88, INT64_MIN, 8, true, "document 0 ends" },
		{ 96, 5, 8, true, "expected 0 to 6" },
	};
	for (size_t i = 0; i < sizeof damage / sizeof *damage; i++) {
		size_t len;
		struct fo_shard s;
		unsigned char *file = shard_file(7, ids, 6, at, 2, &len);
		assert_int_equal(len, 104);
		memcpy(file + damage[i].offset, &damage[i].value, (size_t)damage[i].bytes);
		if (damage[i].repair)
			repair_checksum(file, len);
		write_plain(in_scratch("damaged.shard", 0), file, len);
		assert_int_equal(fo_shard_open(&s, in_scratch("damaged.shard", 0)), FO_EFORMAT);
		if (!strstr(fo_err_text(), damage[i].says))
			fail_msg("expected '%s' in: %s", damage[i].says, fo_err_text());
		assert_non_null(strstr(fo_err_text(), "damaged.shard"));
		free(file);
	}
}

static void test_hostile_shards(void **state)
{
	(void)state;
	enum { TOKENS = 300, DOCS = 20 };
	int64_t ids[TOKENS], at[DOCS + 1];
	for (int i = 0; i < TOKENS; i++)
		ids[i] = i % 50;
	for (int d = 0; d <= DOCS; d++)
		at[d] = d * TOKENS / DOCS;
	size_t len;
	unsigned char *file = shard_file(50, ids, TOKENS, at, DOCS, &len), *edited = malloc(len + 64);
	int accepted = 0;
	for (uint64_t i = 0; i < 4000; i++) {
		size_t n = len;
		memcpy(edited, file, len);
		for (uint64_t k = 0, edits = 1 + fo_rng_u64(5, i) % 3; k < edits; k++) {
			uint64_t r = fo_rng_u64(1000 + i, k);
			size_t offset = r % 2 ? (r >> 8) % len : (r >> 8) % 64;
			static const int64_t values[] = { 0, -1, INT64_MAX, INT64_MIN, 1, 65536, 49, 299 };
			if ((r >> 2) % 3 == 0)
				edited[offset] ^= (unsigned char)(1 << (r >> 50) % 8);
			else if ((r >> 2) % 3 == 1)
				memcpy(edited + offset / 8 * 8, &values[(r >> 50) % 8],
				       8); /* one of the header's numbers */
			else
				n = (r >> 50) % 2 ? offset : len + 1 + offset % 60;
		}
		if (n > len)
			memset(edited + len, 0, n - len);
		if (n >= sizeof(struct shard_header) && i % 4)
			repair_checksum(edited, n);
		write_plain(in_scratch("hostile.shard", 0), edited, n);
		struct fo_shard s = { 0 };
		fo_status st = fo_shard_open(&s, in_scratch("hostile.shard", 0));
		if (st == FO_OK) {
			/* What was accepted can be used: every offset and id is in range. */
			double nats;
			struct fo_loader *l;
			const struct fo_batch *b;
			int64_t wait_ns;
			must(fo_loader_open(
				&l, &s,
				&(struct fo_batch_shape){
					.seq = 16, .rows = 2, .micro_batches = 2, .packing = FO_PACK_PACKED },
				&(struct fo_loader_state){ 0 }, 0));
			must(fo_loader_next(l, &b, &wait_ns));
			fo_loader_close(l);
			assert_true(s.vocab > 1 << 20 || fo_data_bigram_loss(&s, &s, &nats) == FO_OK);
			fo_shard_close(&s);
			accepted++;
		} else {
			assert_int_equal(st, FO_EFORMAT);
			assert_null(s.map);
		}
	}
	assert_in_range(accepted, 1, 3000);
	write_plain(in_scratch("hostile.shard", 0), "", 0);
	struct fo_shard s;
	assert_int_equal(fo_shard_open(&s, in_scratch("hostile.shard", 0)), FO_EFORMAT);
	assert_int_equal(fo_shard_open(&s, in_scratch("none.shard", 0)), FO_EIO);
	free(file);
	free(edited);
}

/* ---- the bigram baseline ---- */

/* p(b | a) by the formula of bigram.c, counting anew for each token. */
static double plain_bigram(const int64_t *train, const int64_t *train_at, int64_t train_docs, const int64_t *val,
			   int64_t val_n, int64_t vocab, double k)
{
	double nats = 0;
	for (int64_t i = 1; i < val_n; i++) {
		double ab = 0, a = 0, b = 0, total = 0;
		for (int64_t d = 0; d < train_docs; d++)
			for (int64_t t = train_at[d] + 1; t < train_at[d + 1]; t++) {
				ab += train[t - 1] == val[i - 1] && train[t] == val[i];
				a += train[t - 1] == val[i - 1];
				b += train[t] == val[i];
				total++;
			}
		nats -= log((ab + k * (b + 1) / (total + (double)vocab)) / (a + k));
	}
	return nats / (double)(val_n - 1);
}

/* Evaluation reads a shard in order: cut or changed meanwhile, it says so and does not go on with other text. */
static void test_rows_of_a_shard_that_changes(void **state)
{
	(void)state;
	enum { N = 20000 };
	int64_t *ids = calloc(N, sizeof *ids);
	const int64_t docs[] = { 0, N };
	const struct fo_batch_shape shape = { .seq = 64, .rows = 2, .micro_batches = 1 };
	for (int cut = 0; cut < 2; cut++) {
		struct fo_shard s = make_shard(1000, ids, N, docs, 1);
		const char *path = in_scratch("made.shard", 0);
		struct fo_rows rows;
		const struct fo_batch *b;
		must(fo_rows_open(&rows, &s, &shape));
		must(fo_rows_next(&rows, &b));
		assert_int_equal(b->real_tokens, 128);
		if (cut)
			assert_int_equal(truncate(path, 4096), 0);
		else
			assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){ { 1, 0 }, { 1, 0 } }, 0), 0);
		fo_status st = FO_OK;
		for (int i = 0; i < 200 && st == FO_OK; i++)
			st = fo_rows_next(&rows, &b);
		assert_int_equal(st, FO_EIO);
		assert_null(b);
		assert_non_null(strstr(fo_err_text(), "made.shard"));
		fo_rows_close(&rows);
		fo_shard_close(&s);
	}
	free(ids);
}

static void test_bigram_follows_its_formula(void **state)
{
	(void)state;
	enum { TRAIN = 3000, DOCS = 30, VAL = 200, V = 12 };
	int64_t train[TRAIN], at[DOCS + 1], val[VAL], val_at[] = { 0, VAL };
	for (int i = 0; i < TRAIN; i++) /* half of the tokens follow from the one before */
		train[i] = i && fo_rng_u64(1, (uint64_t)i) % 2 ? (train[i - 1] * 5 + 1) % V
							       : (int64_t)(fo_rng_u64(2, (uint64_t)i) % V);
	for (int i = 0; i < VAL; i++)
		val[i] = i && fo_rng_u64(3, (uint64_t)i) % 2 ? (val[i - 1] * 5 + 1) % V
							     : (int64_t)(fo_rng_u64(4, (uint64_t)i) % V);
	for (int d = 0; d <= DOCS; d++)
		at[d] = d * TRAIN / DOCS;
	struct fo_shard t = make_shard(V, train, TRAIN, at, DOCS), v = make_shard(V, val, VAL, val_at, 1);
	double nats, best = INFINITY, got_k = 0;
	must(fo_data_bigram_loss(&t, &v, &nats));
	for (int e = -3; e <= 16; e++) {
		double want = plain_bigram(train, at, DOCS, val, VAL, V, ldexp(1, e));
		best = fmin(best, want);
		if (fabs(want - nats) < 1e-12)
			got_k = ldexp(1, e);
	}
	assert_true(got_k > 0);          /* the loss is that of one of the k */
	assert_true(nats < best + 0.02); /* and of a good one, though k was chosen without val */
	assert_true(nats < log(V) - 0.3 && nats > 0.5);
	fo_shard_close(&t);
	fo_shard_close(&v);
}

static void test_bigram_extremes(void **state)
{
	(void)state;
	enum { N = 200000, V = 1000 };
	int64_t *cycle = malloc(N * sizeof *cycle), *noise = malloc(N * sizeof *noise), at[] = { 0, N };
	for (int i = 0; i < N; i++) {
		cycle[i] = i * 7 % V;
		noise[i] = (int64_t)(fo_rng_u64(6, (uint64_t)i) % V);
	}
	double nats;
	struct fo_shard c = make_shard(V, cycle, N, at, 1),
			u = make_shard(V, noise, N, at, 1); /* 180,000 distinct pairs: grows */
	must(fo_data_bigram_loss(&c, &c, &nats));
	assert_true(nats > 0 && nats < 0.01);
	must(fo_data_bigram_loss(&c, &u, &nats));
	assert_true(nats > log(V));
	must(fo_data_bigram_loss(&u, &c, &nats)); /* noise teaches nothing: as bad as knowing nothing, hardly worse */
	assert_true(fabs(nats - log(V)) < 0.02);

	/* One-token documents hold no pair; other vocabularies do not compare. */
	const int64_t few[] = { 1, 2 }, singles[] = { 0, 1, 2 };
	struct fo_shard s = make_shard(V, few, 2, singles, 2), other = make_shard(V + 1, few, 2, singles, 2);
	assert_int_equal(fo_data_bigram_loss(&c, &s, &nats), FO_EARG);
	assert_int_equal(fo_data_bigram_loss(&s, &c, &nats), FO_EARG);
	assert_int_equal(fo_data_bigram_loss(&c, &other, &nats), FO_EARG);
	fo_shard_close(&c);
	fo_shard_close(&u);
	fo_shard_close(&s);
	fo_shard_close(&other);
	free(cycle);
	free(noise);
}

static int start(void **state)
{
	(void)state;
	char path[4096];
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof path, "%s/tests/golden/tokenizer_flatout.json", root ? root : ".");
	return mkdtemp(scratch) && fo_tokenizer_load(path, &tokenizer) == FO_OK ? 0 : -1;
}

static int stop(void **state)
{
	(void)state;
	fo_tokenizer_free(tokenizer);
	return fo_fs_remove_tree(scratch) == FO_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_documents),
		cmocka_unit_test(test_the_same_text_gives_the_same_shards),
		cmocka_unit_test(test_few_documents_give_their_tails),
		cmocka_unit_test(test_prepare_refuses),
		cmocka_unit_test(test_32_bit_ids),
		cmocka_unit_test(test_each_damage_is_named),
		cmocka_unit_test(test_hostile_shards),
		cmocka_unit_test(test_rows_of_a_shard_that_changes),
		cmocka_unit_test(test_bigram_follows_its_formula),
		cmocka_unit_test(test_bigram_extremes),
	};
	return cmocka_run_group_tests(tests, start, stop);
}
