#include "train/train.h"
#include "base/fs.h"
#include "base/mem.h"
#include "kernel/calibrate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static fo_status open_tokenizer(struct fo_arena *a, struct fo_corpus *c, const struct fo_run *r, const char *dir,
				int64_t vocab, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	char *own = fo_arena_printf(a, "%s/tokenizer.json", dir);
	if (*r->tokenizer)
		return fo_tokenizer_load(r->tokenizer, &c->tokenizer);
	if (fo_fs_exists(own))
		return fo_tokenizer_load(own, &c->tokenizer);
	char *input = fo_arena_strdup(a, r->data);
	const struct fo_text_options o = { .leave_out = r->dir };
	fo_status st = fo_tokenizer_train(&input, 1, &o, r->tokenizer_vocab ? r->tokenizer_vocab : vocab,
					  FO_TOKENIZER_SAMPLE_BYTES, progress, ctx, stop, &c->tokenizer);
	if (st == FO_EINTERRUPT)
		return st;
	if (st != FO_OK && !fo_fs_exists(r->data))
		return fo_hint(st, "data.path names the text to train on: a file, a folder or a pattern");
	if (st != FO_OK)
		return fo_wrap(st, "cannot train a tokenizer on '%s'", r->data);
	return fo_tokenizer_save(c->tokenizer, own);
}

/* The options that DIR/data is made from, a line each. */
static char *source_text(struct fo_arena *a, const struct fo_run *r, int64_t vocab)
{
	const char *tokenizer = *r->tokenizer ? r->tokenizer : "(trained)";
	if (*r->tokenizer)
		vocab = 0; /* its own */
	else if (r->tokenizer_vocab)
		vocab = r->tokenizer_vocab;
	return fo_arena_printf(a, "data.path %s\ndata.holdout %lld\ndata.tokenizer %s\ndata.vocab %lld\n", r->data,
			       (long long)r->holdout, tokenizer, (long long)vocab);
}

/* Refuses shards that were made from something else than this run names: they would be used in silence. Shards that
 * other settings left half made are made anew. */
static fo_status check_source(struct fo_arena *a, const struct fo_run *r, const char *dir, int64_t vocab, bool made)
{
	char *path = fo_arena_printf(a, "%s/source.txt", dir), *want = source_text(a, r, vocab), *have = "";
	size_t len = 0;
	if (!*r->data) /* the run names nothing and means what is there */
		return FO_OK;
	if (fo_fs_exists(path))
		FO_TRY(fo_fs_read(a, path, (size_t)1 << 20, &have, &len));
	if (made && len && strcmp(have, want)) {
		for (size_t n; n = strcspn(have, "\n"), have[n] && !strncmp(have, want, n + 1);) {
			have += n + 1;
			want += n + 1;
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

static bool is_prepared(struct fo_arena *a, const char *path)
{
	return fo_fs_is_dir(path) && fo_fs_exists(fo_arena_printf(a, "%s/train.shard", path)) &&
	       fo_fs_exists(fo_arena_printf(a, "%s/val.shard", path)) &&
	       fo_fs_exists(fo_arena_printf(a, "%s/tokenizer.json", path));
}

static fo_status open_prepared(struct fo_arena *a, struct fo_corpus *c, const struct fo_run *r)
{
	const char *own = fo_arena_printf(a, "%s/tokenizer.json", r->data);
	FO_TRY(fo_tokenizer_load(*r->tokenizer ? r->tokenizer : own, &c->tokenizer));
	int64_t have = fo_tokenizer_vocab(c->tokenizer);
	if (r->tokenizer_vocab && r->tokenizer_vocab != have)
		return fo_hint(fo_fail(FO_EARG, "'%s' was prepared with %lld tokens, this run asks for %lld", r->data,
				       (long long)have, (long long)r->tokenizer_vocab),
			       "leave data.vocab out");
	return FO_OK;
}

/* Makes the shards that are missing. */
static fo_status make_shards(struct fo_arena *a, const struct fo_corpus *c, const struct fo_run *r, const char *dir,
			     fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	struct fo_prepare_stats stats;
	char *input = fo_arena_strdup(a, r->data);
	return fo_data_prepare(&(struct fo_prepare){ .inputs = &input,
						     .n = 1,
						     .dir = dir,
						     .tokenizer = c->tokenizer,
						     .text = { .leave_out = r->dir }, /* log and checkpoints too */
						     .holdout_every = r->holdout,
						     .threads = r->threads ? (int)r->threads : fo_cpu_threads(),
						     .replace = true,
						     .progress = progress,
						     .ctx = ctx,
						     .stop = stop },
			       &stats);
}

static fo_status check_vocab(const struct fo_corpus *c, int64_t vocab)
{
	int64_t have = fo_tokenizer_vocab(c->tokenizer);
	if (have <= vocab)
		return FO_OK;
	fo_fail(FO_EARG, "the tokenizer has %lld tokens, the model's vocabulary %lld", (long long)have,
		(long long)vocab);
	return fo_hint(FO_EARG, "set --model.vocab=%lld or train a smaller tokenizer with --data.vocab",
		       (long long)have);
}

static fo_status open_all(struct fo_arena *a, struct fo_corpus *c, const struct fo_run *r, int64_t vocab,
			  fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop)
{
	bool prepared = *r->data && is_prepared(a, r->data);
	char *dir = prepared ? fo_arena_strdup(a, r->data) : fo_arena_printf(a, "%s/data", r->dir),
	     *train = fo_arena_printf(a, "%s/train.shard", dir), *val = fo_arena_printf(a, "%s/val.shard", dir);
	c->dir = fo_xstrdup(dir);
	if (!*r->data && !fo_fs_exists(train))
		return fo_hint(fo_fail(FO_EARG, "data.path is empty and '%s' holds no shards", dir),
			       "say what to train on: --data.path=FILE_OR_FOLDER, or name a run file (flatout init "
			       "writes one)");
	if (!strcmp(r->data, "-"))
		return fo_hint(
			fo_fail(FO_EARG, "a run cannot read its text from standard input: it reads it more than once"),
			"flatout data prepare - --out=DIR makes a folder of it that data.path can name");
	if (prepared) {
		FO_TRY(open_prepared(a, c, r));
	} else {
		FO_TRY(fo_fs_mkdirs(dir));
		FO_TRY(check_source(a, r, dir, vocab, fo_fs_exists(train) && fo_fs_exists(val)));
		FO_TRY(open_tokenizer(a, c, r, dir, vocab, progress, ctx, stop));
	}
	FO_TRY(check_vocab(c, vocab));
	if (!fo_fs_exists(train) || !fo_fs_exists(val))
		FO_TRY(make_shards(a, c, r, dir, progress, ctx, stop));
	FO_TRY(fo_shard_open(&c->train, train));
	FO_TRY(fo_shard_open(&c->val, val));
	if (c->train.tokenizer_checksum != fo_tokenizer_checksum(c->tokenizer)) {
		fo_fail(FO_EARG, "the shards in '%s' were made with another tokenizer", dir);
		return prepared ? fo_hint(FO_EARG, "leave data.tokenizer out for '%s' or choose another data.path", dir)
				: fo_hint(FO_EARG, "remove '%s' or choose another run.dir", dir);
	}
	/* The file only holds names of documents: a run can do without it. */
	if (fo_shard_sources_open(&c->train_sources, &c->train, train) != FO_OK)
		fo_err_clear();
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
	fo_shard_sources_close(&c->train_sources);
	fo_tokenizer_free(c->tokenizer);
	free(c->dir);
	*c = (struct fo_corpus){ 0 };
}

static struct fo_batch copy_batch(struct fo_arena *a, const struct fo_batch *b, int64_t tokens)
{
	const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
	int32_t *copy = fo_arena_alloc(a, (size_t)tokens * sizeof from / sizeof *from * sizeof *copy);
	for (size_t k = 0; k < sizeof from / sizeof *from; k++)
		memcpy(copy + (int64_t)k * tokens, from[k], (size_t)tokens * sizeof *copy);
	return (struct fo_batch){
		.token = copy, .target = copy + tokens, .position = copy + 2 * tokens, .doc_start = copy + 3 * tokens
	};
}

fo_status fo_eval_batches(struct fo_arena *a, const struct fo_shard *held_out, const struct fo_batch_shape *shape,
			  int32_t pad, int64_t batches, struct fo_batch **out)
{
	struct fo_loader_state state = { .seed = FO_EVAL_SEED, .shard_checksum = held_out->checksum };
	struct fo_loader *l;
	FO_TRY(fo_loader_open(&l, held_out, shape, &state, pad));
	*out = fo_arena_alloc(a, (size_t)batches * sizeof **out);
	fo_status st = FO_OK;
	for (int64_t i = 0, wait; i < batches && st == FO_OK; i++) {
		const struct fo_batch *b;
		st = fo_loader_next(l, &b, &wait);
		if (st == FO_OK)
			(*out)[i] = copy_batch(a, b, fo_batch_own_rows(shape) * shape->seq * shape->micro_batches);
	}
	fo_loader_close(l);
	return st;
}
