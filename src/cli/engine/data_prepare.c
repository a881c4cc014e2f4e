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
	FO_OPT_JSON(struct prepare, json, "prepare.json", "the result as JSON, progress on standard error"),
	FO_OPT_FORCE(struct prepare, force, "prepare.force"),
	FO_OPT_END
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

static void report_json(const struct prepare *in, const struct fo_prepare_stats *r, const struct fo_tokenizer *t,
			double seconds)
{
	struct fo_json *j = fo_cli_json_begin();
	char hex[17];
	snprintf(hex, sizeof hex, "%016llx", (unsigned long long)fo_tokenizer_checksum(t));
	fo_json_text(j, "path", in->out);
	fo_json_int(j, "vocab", fo_tokenizer_vocab(t));
	fo_json_text(j, "tokenizer_checksum", hex);
	fo_json_int(j, "files", r->files);
	fo_json_int(j, "skipped_binary", r->skipped_binary);
	fo_json_int(j, "skipped_empty", r->skipped_empty);
	fo_json_int(j, "skipped_bad", r->skipped_bad);
	fo_json_int(j, "bytes", r->bytes);
	fo_json_int(j, "train_documents", r->train_docs);
	fo_json_int(j, "train_tokens", r->train_tokens);
	fo_json_int(j, "val_documents", r->val_docs);
	fo_json_int(j, "val_tokens", r->val_tokens);
	fo_json_int(j, "resumed_bytes", r->resumed_bytes);
	fo_json_real(j, "seconds", seconds);
	fo_cli_json_end(j);
}

static void report_text(const struct prepare *in, const struct fo_prepare_stats *r, const struct fo_tokenizer *t,
			double seconds)
{
	char a[32], b[32];
	int64_t here = r->bytes - r->resumed_bytes;
	const char *dir = fo_cli_seen(in->out);
	fo_cli_put(stdout, "text       ", "           ", "%lld %s, %s; left out: %lld binary, %lld empty, %lld bad",
		   (long long)r->files, fo_cli_plural(r->files, "file", "files"), fo_str_bytes(a, (double)r->bytes),
		   (long long)r->skipped_binary, (long long)r->skipped_empty, (long long)r->skipped_bad);
	fo_cli_put(stdout, "tokenizer  ", "           ", "%lld tokens (%s/tokenizer.json)",
		   (long long)fo_tokenizer_vocab(t), dir);
	fo_cli_put(stdout, "train      ", "           ", "%lld %s, %s (%s/train.shard)", (long long)r->train_docs,
		   fo_cli_plural(r->train_docs, "document", "documents"),
		   fo_str_si(a, (double)r->train_tokens, "tokens"), dir);
	fo_cli_put(stdout, "held out   ", "           ", "%lld %s, %s (%s/val.shard)", (long long)r->val_docs,
		   fo_cli_plural(r->val_docs, "document", "documents"), fo_str_si(a, (double)r->val_tokens, "tokens"),
		   dir);
	if (!here)
		printf("nothing was left to do: all of it was prepared before\n");
	else
		printf("time       %.1f s, %s/s\n", seconds, fo_str_bytes(a, (double)here / seconds));
	if (here && r->resumed_bytes)
		printf("gone on    behind %s that were prepared before\n", fo_str_bytes(b, (double)r->resumed_bytes));
	printf("\nflatout train run.yaml --data.path=%s --model.vocab=%lld trains on it\n", dir,
	       (long long)fo_tokenizer_vocab(t));
}

static fo_status prepare(const struct prepare *in, int argc, char **argv, struct fo_arena *a, struct fo_screen *screen)
{
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
	fo_screen_end_line(screen);
	if (st == FO_OK)
		(in->json ? report_json : report_text)(in, &stats, t, (double)(fo_now_ns() - from) * 1e-9);
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
	fo_status st = prepare(in, call->argc, call->argv, &a, &screen);
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
