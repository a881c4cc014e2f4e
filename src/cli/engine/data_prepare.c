/* flatout data prepare: texts to the shards that a run trains on. */
#include "cli/engine/data.h"

#include "base/clock.h"
#include "base/fs.h"
#include "kernel/calibrate.h"

#include <string.h>

struct prepare {
	const char *out, *tokenizer;
	int64_t vocab, holdout, threads;
	double save_every;
	struct fo_cli_texts texts;
	bool replace, force;
	const char *json;
};
static const struct fo_opt rows[] = {
	FO_OPT_OUTPUT(struct prepare, out, "prepare.out", "DIR", "", "the folder to write; made if needed",
		      FO_OUTPUT_SHARDS),
	FO_OPT_PATH(struct prepare, tokenizer, "prepare.tokenizer", "FILE", "",
		    "a tokenizer.json; copied into the folder"),
	FO_OPT_INT(struct prepare, vocab, "prepare.vocab", "N", "0", 0, 1 << 20, "tokens",
		   "train a tokenizer of this size on the text instead"),
	FO_OPT_INT(struct prepare, holdout, "prepare.holdout", "N", "50", 2, 1000000, "documents",
		   "one document in N is held out for evaluation"),
	FO_OPT_INT(struct prepare, threads, "prepare.threads", "N", "0", 0, 1024, "", "threads that encode; 0: all"),
	FO_OPT_REAL(struct prepare, save_every, "prepare.save-every", "T", "5s", 0.001, 86400, "s",
		    "how much work a kill may cost"),
	FO_CLI_TEXT_ROWS(struct prepare, texts, "prepare"),
	FO_OPT_BOOL(struct prepare, replace, "prepare.replace", "false",
		    "make anew what the folder holds of other inputs or options"),
	FO_CLI_OUTPUT_ROWS(struct prepare, "prepare", "the result as JSON, progress on standard error")
};

/* A preparation that is under way, or done, keeps its tokenizer. */
static bool is_begun(struct fo_arena *a, const char *dir)
{
	return fo_fs_exists(fo_arena_printf(a, "%s/prepare.journal", dir)) ||
	       fo_fs_exists(fo_arena_printf(a, "%s/prepared.json", dir));
}

static fo_status check(const struct prepare *in, int argc, char **argv)
{
	FO_TRY(fo_cli_inputs(&fo_cmd_data_prepare, argc));
	if (!*in->out)
		return fo_hint(fo_fail(FO_EARG, "no folder to write to is named"), "--out=DIR names it");
	if (!*in->tokenizer == !in->vocab) {
		fo_fail(FO_EARG,
			*in->tokenizer ? "--tokenizer and --vocab exclude each other" : "no tokenizer is named");
		return fo_hint(FO_EARG, "--tokenizer=FILE takes one that there is, --vocab=N trains one on the text");
	}
	for (int i = 1; in->vocab && i < argc; i++)
		if (!strcmp(argv[i], "-"))
			return fo_hint(
				fo_fail(FO_EARG, "standard input can be read only once, --vocab reads the text twice"),
				"train a tokenizer on a part first: flatout data train-tokenizer");
	return FO_OK;
}

static fo_status tokenizer_of(const struct prepare *in, int argc, char **argv, struct fo_arena *a,
			      struct fo_screen *screen, struct fo_tokenizer **t)
{
	char *own = fo_arena_printf(a, "%s/tokenizer.json", in->out);
	if (*in->tokenizer)
		return fo_tokenizer_load(in->tokenizer, t);
	if (!in->replace && is_begun(a, in->out) && fo_fs_exists(own))
		return fo_tokenizer_load(own, t);
	struct fo_text_options o = fo_cli_text_options(&in->texts);
	o.leave_out = in->out;
	return fo_tokenizer_train(argv + 1, (size_t)argc - 1, &o, in->vocab, FO_TOKENIZER_SAMPLE_BYTES,
				  fo_screen_progress, screen, &fo_stop_requested, t);
}

static void write_json(const struct prepare *in, const struct fo_prepare_stats *r, const struct fo_tokenizer *t,
		       double seconds, struct fo_json *j)
{
	fo_json_put(j, FO_TEXT("path", in->out), FO_INT("vocab", fo_tokenizer_vocab(t)),
		    FO_HEX("tokenizer_checksum", fo_tokenizer_checksum(t)), FO_INT("files", r->files),
		    FO_INT("skipped_binary", r->skipped_binary), FO_INT("skipped_empty", r->skipped_empty),
		    FO_INT("skipped_bad", r->skipped_bad), FO_INT("bytes", r->bytes),
		    FO_INT("train_documents", r->train_docs), FO_INT("train_tokens", r->train_tokens),
		    FO_INT("val_documents", r->val_docs), FO_INT("val_tokens", r->val_tokens),
		    FO_INT("resumed_bytes", r->resumed_bytes), FO_REAL("seconds", seconds));
}

/* "36 documents, 4.12 ktokens (DIR/train.shard)" */
static void say_shard(struct fo_doc *d, const char *label, int64_t docs, int64_t tokens, const char *dir,
		      const char *file)
{
	fo_doc_line(d, label, "%lld %s, %s (%s/%s.shard)", (long long)docs, fo_word(docs, "document", "documents"),
		    fo_doc_si(d, (double)tokens, "tokens"), dir, file);
}

static void say(const struct prepare *in, const struct fo_prepare_stats *r, const struct fo_tokenizer *t,
		double seconds, struct fo_doc *d)
{
	int64_t here = r->bytes - r->resumed_bytes;
	long long vocab = (long long)fo_tokenizer_vocab(t);
	fo_doc_line(d, "text", "%lld %s, %s; left out: %lld binary, %lld empty, %lld bad", (long long)r->files,
		    fo_word(r->files, "file", "files"), fo_doc_bytes(d, r->bytes), (long long)r->skipped_binary,
		    (long long)r->skipped_empty, (long long)r->skipped_bad);
	fo_doc_line(d, "tokenizer", "%lld tokens (%s/tokenizer.json)", vocab, in->out);
	say_shard(d, "train", r->train_docs, r->train_tokens, in->out, "train");
	say_shard(d, "held out", r->val_docs, r->val_tokens, in->out, "val");
	if (here)
		fo_doc_line(d, "time", "%.1f s, %s/s", seconds, fo_doc_num(d, (double)here / seconds, FO_DRAW_BYTES));
	if (here && r->resumed_bytes)
		fo_doc_line(d, "gone on", "after %s that were prepared before", fo_doc_bytes(d, r->resumed_bytes));
	if (!here)
		fo_doc_para(d, "nothing was left to do: all of it was prepared before");
	fo_doc_para(d, "flatout train run.yaml --data.path=%s --model.vocab=%lld trains on it", in->out, vocab);
}

static fo_status prepare(const struct fo_cli_call *call, struct fo_arena *a, struct fo_screen *screen)
{
	const struct prepare *in = call->in;
	int argc = call->argc;
	char **argv = call->argv;
	struct fo_tokenizer *t = NULL;
	struct fo_prepare_stats stats = { 0 };
	int64_t from = fo_now_ns();
	FO_TRY(check(in, argc, argv));
	fo_status st;
	FO_TRY_OR(st, fo_fs_mkdirs(in->out), done);
	FO_TRY_OR(st, tokenizer_of(in, argc, argv, a, screen, &t), done);
	/* The folder is never without the tokenizer of its journal, nor a finished one's overwritten by another. */
	char *own = fo_arena_printf(a, "%s/tokenizer.json", in->out);
	bool begun = is_begun(a, in->out);
	/* One that was killed before its journal began left the same bytes there; others are not ours. */
	if (!begun && !in->force && !fo_tokenizer_is_saved(t, own))
		FO_TRY_OR(st, fo_output_may_replace(FO_OUTPUT_TOKENIZER, own), done);
	if (!begun || in->replace || !fo_fs_exists(own))
		FO_TRY_OR(st, fo_tokenizer_save(t, own), done);
	from = fo_now_ns();
	st = fo_data_prepare(&(struct fo_prepare){ .inputs = argv + 1,
						   .n = (size_t)argc - 1,
						   .dir = in->out,
						   .tokenizer = t,
						   .text = fo_cli_text_options(&in->texts),
						   .holdout_every = in->holdout,
						   .threads = in->threads ? (int)in->threads : fo_cpu_threads(),
						   .save_every_ns = (int64_t)(in->save_every * 1e9),
						   .also = (uint64_t)in->vocab,
						   .replace = in->replace,
						   .progress = fo_screen_progress,
						   .ctx = screen,
						   .stop = &fo_stop_requested },
			     &stats);
	double seconds = (double)(fo_now_ns() - from) * 1e-9;
	if (st == FO_OK && call->json)
		write_json(in, &stats, t, seconds, call->json);
	else if (st == FO_OK)
		say(in, &stats, t, seconds, call->doc);
done:
	fo_screen_end_line(screen);
	fo_tokenizer_free(t);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct prepare *in = call->in;
	struct fo_screen screen;
	struct fo_arena a = { 0 };
	fo_screen_init(&screen, &(struct fo_run){ .log_every = 1 }, in->json);
	fo_catch_signals();
	fo_status st = prepare(call, &a, &screen);
	fo_arena_fini(&a);
	return st;
}

const struct fo_command fo_cmd_data_prepare = {
	.name = "data prepare",
	.group = "train",
	.usage = "flatout data prepare INPUT... --out=DIR (--tokenizer=FILE | --vocab=N) [--holdout=N] [--json]",
	.summary = "texts to the shards of tokens that a run trains on",
	.text = "An INPUT is a file, a folder, a quoted pattern or '-' (standard input), of any length; gzip and "
		"Zstandard are unpacked as they are read, by what they begin with and not by their names. A file whose "
		"first line is a JSON object with the text field holds a document per line; any other is one document; "
		"files with NUL bytes are skipped. What is left out is counted.\n\n"
		"Killed at any moment, the same command goes on where it was; the result is the same bytes, with any "
		"number of threads. DIR is then a run's data.path.\n\n"
		"  flatout data prepare c4/*.json.gz --tokenizer=tokenizer.json --out=c4.tokens\n"
		"  flatout data prepare books/ --vocab=8192 --out=books.tokens\n"
		"  zstdcat dump.jsonl.zst | flatout data prepare - --tokenizer=t.json --out=d\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct prepare),
	.most = FO_CLI_ANY,
};
