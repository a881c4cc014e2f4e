/* How fast the tokenizer trains and encodes.
 *
 *   bench_tokenizer train PATH VOCAB [OUT.json]                             one thread
 *   bench_tokenizer encode FILE.json DOCS THREADS [OUT.ids [AGAIN.json]]
 *
 * PATH is a text file or folder; encoding it is timed from an empty cache (as fo_data_prepare meets it) and once more.
 * DOCS holds documents: 8 bytes of length (little endian), then the text; OUT.ids: 8 bytes of count, then ids of 4. The
 * time is that of encoding from memory into memory, from empty caches, documents shared out to THREADS threads.
 * AGAIN.json is FILE.json as we write it. compare.py sets both against Hugging Face's tokenizers. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "data/data.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static fo_status encode_all(const struct fo_tokenizer *t, char **paths, size_t n, size_t *bytes, size_t *tokens)
{
	int32_t *ids = NULL;
	size_t cap = 0;
	*bytes = *tokens = 0;
	fo_status st = FO_OK;
	for (size_t i = 0; i < n && st == FO_OK; i++) {
		struct fo_map m;
		size_t count = 0;
		FO_TRY_OR(st, fo_map_open(&m, paths[i]), free_ids);
		st = fo_tokenizer_encode(t, (const char *)m.data, m.len, &ids, &count, &cap);
		*bytes += m.len;
		*tokens += count;
		fo_map_close(&m);
	}
free_ids:
	free(ids);
	return st;
}

static fo_status bench_train(struct fo_arena *a, const char *path, int64_t vocab, const char *out)
{
	char **paths;
	size_t n, bytes, tokens;
	struct fo_tokenizer *t;
	FO_TRY(fo_fs_list(a, path, 1u << 22, &paths, &n));
	int64_t start = fo_now_ns();
	FO_TRY(fo_tokenizer_train(paths, n, NULL, vocab, (size_t)1 << 40, NULL, NULL, NULL, &t));
	double train_s = (double)(fo_now_ns() - start) * 1e-9;
	fo_status st = FO_OK;
	for (int pass = 0; pass < 2 && st == FO_OK; pass++) {
		start = fo_now_ns();
		st = encode_all(t, paths, n, &bytes, &tokens);
		double s = (double)(fo_now_ns() - start) * 1e-9;
		if (!pass)
			printf("%zu files, %.2f MB, vocabulary %lld (asked %lld)\ntrain   %7.2f s  %6.2f MB/s\n", n,
			       (double)bytes * 1e-6, (long long)fo_tokenizer_vocab(t), (long long)vocab, train_s,
			       (double)bytes * 1e-6 / train_s);
		printf("encode  %7.2f s  %6.2f MB/s  %.3f bytes per token  (%s cache)\n", s, (double)bytes * 1e-6 / s,
		       (double)bytes / (double)tokens, pass ? "warm" : "empty");
	}
	if (st == FO_OK && out)
		st = fo_tokenizer_save(t, out);
	fo_tokenizer_free(t);
	return st;
}

struct doc {
	const char *text;
	size_t len, n, cap;
	int32_t *ids;
};

struct job {
	const struct fo_tokenizer *t;
	struct doc *doc;
	size_t docs, cap;
	atomic_size_t next;
};

static void *encode_docs(void *arg)
{
	struct job *j = arg;
	struct fo_encoder *e;
	static fo_status failed = FO_EBUG;
	if (fo_encoder_new(j->t, &e) != FO_OK)
		return &failed;
	void *result = NULL;
	for (size_t i; !result && (i = atomic_fetch_add(&j->next, 1)) < j->docs;) {
		struct doc *d = &j->doc[i];
		if (fo_encoder_encode(e, d->text, d->len, true, &d->ids, &d->n, &d->cap) != FO_OK)
			result = &failed;
	}
	fo_encoder_free(e);
	return result;
}

static fo_status read_docs(struct job *j, const struct fo_map *m, size_t *bytes)
{
	for (size_t at = 0; at + 8 <= m->len;) {
		uint64_t len;
		memcpy(&len, (const char *)m->data + at, sizeof len);
		at += 8;
		if (len > m->len - at)
			return fo_fail(FO_EFORMAT, "the last document is cut off");
		fo_array_room(&j->doc, &j->cap, j->docs, sizeof *j->doc);
		j->doc[j->docs++] = (struct doc){ .text = (const char *)m->data + at, .len = len };
		at += len;
		*bytes += len;
	}
	return FO_OK;
}

static fo_status write_ids(const struct job *j, const char *path)
{
	FILE *f = fopen(path, "wb");
	if (!f)
		return fo_fail(FO_EIO, "cannot create '%s'", path);
	bool ok = true;
	for (size_t i = 0; i < j->docs; i++) {
		uint64_t n = j->doc[i].n;
		ok &= fwrite(&n, sizeof n, 1, f) == 1 && fwrite(j->doc[i].ids, sizeof(int32_t), n, f) == n;
	}
	ok &= fclose(f) == 0;
	return ok ? FO_OK : fo_fail(FO_EIO, "cannot write '%s'", path);
}

static fo_status bench_encode(int argc, char **argv)
{
	enum { MAX_THREADS = 256 };
	struct fo_tokenizer *t;
	struct fo_map m;
	size_t bytes = 0, tokens = 0;
	long threads = strtol(argv[4], NULL, 10);
	if (threads < 1 || threads > MAX_THREADS)
		return fo_fail(FO_EARG, "threads: 1 to %d", MAX_THREADS);
	FO_TRY(fo_tokenizer_load(argv[2], &t));
	FO_TRY(fo_map_open(&m, argv[3]));
	struct job j = { .t = t };
	FO_TRY(read_docs(&j, &m, &bytes));
	pthread_t thread[MAX_THREADS];
	int64_t start = fo_now_ns();
	clock_t cpu = clock(); /* of all threads */
	for (long i = 1; i < threads; i++)
		if (pthread_create(&thread[i], NULL, encode_docs, &j))
			return fo_fail(FO_ENOMEM, "cannot start a thread");
	bool ok = encode_docs(&j) == NULL;
	for (long i = 1; i < threads; i++) {
		void *result;
		pthread_join(thread[i], &result);
		ok &= result == NULL;
	}
	double s = (double)(fo_now_ns() - start) * 1e-9, cpu_s = (double)(clock() - cpu) / CLOCKS_PER_SEC;
	if (!ok)
		return fo_fail(FO_EFORMAT, "a document could not be encoded");
	for (size_t i = 0; i < j.docs; i++)
		tokens += j.doc[i].n;
	printf("%zu documents, %.2f MB, %zu ids: %.4f s, CPU %.4f s, %.2f MB/s\n", j.docs, (double)bytes * 1e-6, tokens,
	       s, cpu_s, (double)bytes * 1e-6 / s);
	fo_status st = argc > 5 ? write_ids(&j, argv[5]) : FO_OK;
	if (st == FO_OK && argc > 6)
		st = fo_tokenizer_save(t, argv[6]);
	for (size_t i = 0; i < j.docs; i++)
		free(j.doc[i].ids);
	free(j.doc);
	fo_map_close(&m);
	fo_tokenizer_free(t);
	return st;
}

int main(int argc, char **argv)
{
	struct fo_arena a = { 0 };
	bool train = argc >= 4 && strcmp(argv[1], "train") == 0, encode = argc >= 5 && strcmp(argv[1], "encode") == 0;
	if (!train && !encode) {
		fprintf(stderr, "usage: bench_tokenizer train PATH VOCAB [OUT.json]\n"
				"       bench_tokenizer encode FILE.json DOCS THREADS [OUT.ids [AGAIN.json]]\n");
		return 2;
	}
	fo_status st = train ? bench_train(&a, argv[2], atoll(argv[3]), argc > 4 ? argv[4] : NULL)
			     : bench_encode(argc, argv);
	if (st != FO_OK)
		fprintf(stderr, "bench_tokenizer: %s\n", fo_err_text());
	fo_arena_fini(&a);
	return fo_status_exit_code(st);
}
