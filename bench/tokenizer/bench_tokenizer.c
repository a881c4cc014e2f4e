/* How fast the tokenizer trains and encodes on one thread.
 *
 *   bench_tokenizer PATH VOCAB [OUT.json]
 *
 * PATH is a text file or folder. Encoding is timed from an empty cache (as fo_data_prepare meets it) and once more. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "data/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

static fo_status bench(struct fo_arena *a, const char *path, int64_t vocab, const char *out)
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

int main(int argc, char **argv)
{
	struct fo_arena a = { 0 };
	if (argc < 3) {
		fprintf(stderr, "usage: bench_tokenizer PATH VOCAB [OUT.json]\n");
		return 2;
	}
	fo_status st = bench(&a, argv[1], atoll(argv[2]), argc > 3 ? argv[3] : NULL);
	if (st != FO_OK)
		fprintf(stderr, "bench_tokenizer: %s\n", fo_err_text());
	fo_arena_fini(&a);
	return fo_status_exit_code(st);
}
