#include "train/train.h"
#include "base/fs.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define MAX_FILES 1000000
/* BPE merges settle long before this much text; more only costs time. */
#define TOKENIZER_BYTES ((size_t)32 << 20)

static fo_status open_tokenizer(struct fo_arena *a, struct fo_corpus *c, const struct fo_run *r, const char *dir,
				int64_t vocab, fo_progress_fn *progress, void *ctx,
				const volatile sig_atomic_t *stop)
{
	char *own = fo_arena_printf(a, "%s/tokenizer.json", dir);
	if (*r->tokenizer)
		return fo_tokenizer_load(r->tokenizer, &c->tokenizer);
	if (fo_fs_exists(own))
		return fo_tokenizer_load(own, &c->tokenizer);
	char **files;
	size_t n;
	FO_TRY(fo_fs_list(a, r->data, MAX_FILES, &files, &n));
	if (!n)
		return fo_fail(FO_EIO, "'%s' holds no files to train on", r->data);
	fo_status st = fo_tokenizer_train(files, n, r->tokenizer_vocab ? r->tokenizer_vocab : vocab, TOKENIZER_BYTES,
					  progress, ctx, stop, &c->tokenizer);
	if (st != FO_OK && st != FO_EINTERRUPT)
		return fo_wrap(st, "cannot train a tokenizer on '%s'", r->data);
	FO_TRY(st);
	return fo_tokenizer_save(c->tokenizer, own);
}

/* What DIR/data is made from, a line each. */
static char *source_text(struct fo_arena *a, const struct fo_run *r, int64_t vocab)
{
	return fo_arena_printf(a, "data.path %s\ndata.holdout %lld\ndata.tokenizer %s\ndata.vocab %lld\n", r->data,
			       (long long)r->holdout, *r->tokenizer ? r->tokenizer : "(trained)",
			       (long long)(*r->tokenizer        ? 0
					   : r->tokenizer_vocab ? r->tokenizer_vocab
								: vocab));
}

/* Shards that were made from something else than this run names would be used in silence: they are refused. What was left half
 * made by other settings is made anew. */
static fo_status check_source(struct fo_arena *a, const struct fo_run *r, const char *dir, int64_t vocab, bool made)
{
	char *path = fo_arena_printf(a, "%s/source.txt", dir), *want = source_text(a, r, vocab), *have = "";
	size_t len = 0;
	if (!*r->data) /* nothing is named: what is there is meant */
		return FO_OK;
	if (fo_fs_exists(path))
		FO_TRY(fo_fs_read(a, path, (size_t)1 << 20, &have, &len));
	if (made && len && strcmp(have, want)) {
		while (*have && *have == *want && strcspn(have, "\n") == strcspn(want, "\n") &&
		       !strncmp(have, want, strcspn(have, "\n"))) {
			have += strcspn(have, "\n") + 1;
			want += strcspn(want, "\n") + 1;
		}
		return fo_hint(fo_fail(FO_EARG, "'%s' was made with '%.*s', this run says '%.*s'", dir,
				       (int)strcspn(have, "\n"), have, (int)strcspn(want, "\n"), want),
			       "choose another run.dir; or remove '%s' to make it anew: a checkpoint goes on only from "
			       "the same tokens",
			       dir);
	}
	if (made)
		return FO_OK;
	if (len && strcmp(have, want))
		FO_TRY(fo_fs_remove_tree(fo_arena_printf(a, "%s/tokenizer.json", dir)));
	return fo_fs_write_atomic(path, want, strlen(want));
}

static fo_status open_all(struct fo_arena *a, struct fo_corpus *c, const struct fo_run *r, int64_t vocab,
			  fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	char *dir = fo_arena_printf(a, "%s/data", r->dir), *train = fo_arena_printf(a, "%s/train.shard", dir),
	     *val = fo_arena_printf(a, "%s/val.shard", dir);
	if (!*r->data && !fo_fs_exists(train))
		return fo_hint(fo_fail(FO_EARG, "data.path is empty and '%s' holds no shards", dir),
			       "say what to train on: --data.path=FILE_OR_FOLDER");
	FO_TRY(fo_fs_mkdirs(dir));
	FO_TRY(check_source(a, r, dir, vocab, fo_fs_exists(train) && fo_fs_exists(val)));
	FO_TRY(open_tokenizer(a, c, r, dir, vocab, progress, ctx, stop));
	if (fo_tokenizer_vocab(c->tokenizer) > vocab)
		return fo_hint(fo_fail(FO_EARG, "the tokenizer has %lld tokens, the model's vocabulary %lld",
				       (long long)fo_tokenizer_vocab(c->tokenizer), (long long)vocab),
			       "set --model.vocab=%lld or train a smaller tokenizer with --data.vocab",
			       (long long)fo_tokenizer_vocab(c->tokenizer));
	if (!fo_fs_exists(train) || !fo_fs_exists(val)) {
		struct fo_prepare_stats stats;
		FO_TRY(fo_data_prepare(&(struct fo_prepare){ .inputs = (char *[]){ (char *)(uintptr_t)r->data }, .n = 1, .dir = dir, .tokenizer = c->tokenizer, .holdout_every = r->holdout, .threads = 2, .replace = true, .progress = progress, .ctx = ctx }, &stats));
	}
	FO_TRY(fo_shard_open(&c->train, train));
	FO_TRY(fo_shard_open(&c->val, val));
	if (c->train.tokenizer_checksum != fo_tokenizer_checksum(c->tokenizer))
		return fo_hint(fo_fail(FO_EARG, "the shards in '%s' were made with another tokenizer", dir),
			       "remove '%s' or choose another run.dir", dir);
	return FO_OK;
}

fo_status fo_corpus_open(struct fo_corpus *c, const struct fo_run *r, int64_t vocab, fo_progress_fn *progress,
			 void *ctx, const volatile sig_atomic_t *stop)
{
	struct fo_arena a = { 0 };
	*c = (struct fo_corpus){ 0 };
	fo_status st = open_all(&a, c, r, vocab, progress, ctx, stop);
	fo_arena_fini(&a);
	if (st != FO_OK)
		fo_corpus_close(c);
	return st;
}

void fo_corpus_close(struct fo_corpus *c)
{
	if (c->train.map)
		fo_shard_close(&c->train);
	if (c->val.map)
		fo_shard_close(&c->val);
	fo_tokenizer_free(c->tokenizer);
	*c = (struct fo_corpus){ 0 };
}
