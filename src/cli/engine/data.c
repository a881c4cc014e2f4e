/* flatout data: text to tokens. Its parts are commands of their own: "data prepare" and so on. */
#include "cli/engine/data.h"

#include "base/clock.h"
#include "kernel/calibrate.h"

#include <string.h>

struct fo_text_options fo_cli_text_options(const struct fo_cli_texts *t)
{
	return (struct fo_text_options){ .format = (enum fo_text_format)t->format,
					 .field = t->field,
					 .skip_bad = t->on_error == 1,
					 .max_document = t->max_document,
					 .max_expand = t->max_expand };
}

fo_status fo_cli_inputs(const struct fo_command *c, int argc)
{
	if (argc > 1)
		return FO_OK;
	fo_fail(FO_EARG, "'flatout %s' needs at least one input: a file, a folder, a quoted pattern or '-'", c->name);
	return fo_hint(FO_EARG, "'flatout %s --help' shows examples", c->name);
}

/* ---- the overview ---- */

static const struct fo_opt none[] = { FO_OPT_END };

static const char parts[] = "  flatout data prepare c4/*.json.gz --vocab=32000 --out=c4.tokens\n"
			    "      text to shards of tokens that a run trains on\n"
			    "  flatout data train-tokenizer books/ --vocab=32000 --out=tokenizer.json\n"
			    "      a byte-level BPE tokenizer in Hugging Face's format\n"
			    "  flatout data inspect c4.tokens --seq=4096\n"
			    "      what is in a shard: documents, lengths, packing\n";

static fo_status run(int argc, char **argv)
{
	if (argc < 2) {
		printf("flatout data has three parts:\n\n%s\n'flatout data prepare --help' says more of one.\n", parts);
		return FO_OK;
	}
	static const char *const name[] = { "prepare", "train-tokenizer", "inspect" };
	int best = 0;
	for (int i = 1; i < 3; i++)
		if (fo_str_distance(argv[1], name[i]) < fo_str_distance(argv[1], name[best]))
			best = i;
	fo_fail(FO_EARG, "'flatout data' has no part '%s'; nearest is '%s'", fo_cli_seen(argv[1]), name[best]);
	return fo_hint(
		FO_EARG,
		"its parts are 'prepare', 'train-tokenizer' and 'inspect'; 'flatout data' shows an example of each");
}

const struct fo_command fo_cmd_data = {
	.name = "data",
	.group = "train",
	.usage = "flatout data prepare|train-tokenizer|inspect ...",
	.summary = "text, JSON lines and their archives to tokens to train on",
	.text = parts,
	.opts = none,
	.run = run,
};

/* ---- train-tokenizer ---- */

struct tokenizer {
	const char *out;
	int64_t vocab, sample;
	struct fo_cli_texts texts;
	const char *json;
	bool force;
};
static const struct fo_opt tokenizer_rows[] = {
	FO_OPT_OUTPUT(struct tokenizer, out, "tokenizer.out", "FILE", "tokenizer.json", "the file to write",
		      FO_OUTPUT_TOKENIZER),
	FO_OPT_INT(struct tokenizer, vocab, "tokenizer.vocab", "N", "32000", 258, 1 << 20, "tokens",
		   "size of the vocabulary, two special tokens included"),
	FO_OPT_BYTES(struct tokenizer, sample, "tokenizer.sample", "SIZE", "32MiB", 1, 0x1p36,
		     "of more text an even sample of at most this much is used"),
	FO_CLI_TEXT_ROWS(struct tokenizer, texts, "tokenizer"),
	FO_CLI_OUTPUT_ROWS(struct tokenizer, "tokenizer", "the result as JSON, progress on standard error")
};

static void tokenizer_report(const struct fo_cli_call *call, const struct fo_tokenizer *t, double seconds)
{
	const struct tokenizer *in = call->in;
	int64_t vocab = fo_tokenizer_vocab(t);
	if (call->json) {
		fo_json_put(call->json, FO_TEXT("path", in->out), FO_INT("vocab", vocab),
			    FO_HEX("checksum", fo_tokenizer_checksum(t)), FO_REAL("seconds", seconds));
		return;
	}
	fo_doc_para(call->doc, "%s: %lld tokens, in %.1f s", in->out, (long long)vocab, seconds);
	if (vocab < in->vocab)
		fo_doc_para(call->doc, "fewer than the %lld asked for: no pair of tokens is left that occurs twice",
			    (long long)in->vocab);
}

static fo_status tokenizer_run(const struct fo_cli_call *call)
{
	const struct tokenizer *in = call->in;
	struct fo_screen screen;
	struct fo_tokenizer *t = NULL;
	int64_t from = fo_now_ns();
	FO_TRY(fo_cli_inputs(call->command, call->argc));
	struct fo_text_options o = fo_cli_text_options(&in->texts);
	fo_screen_init(&screen, &(struct fo_run){ .log_every = 1 }, in->json);
	fo_catch_signals();
	fo_status st = fo_tokenizer_train(call->argv + 1, (size_t)call->argc - 1, &o, in->vocab, (size_t)in->sample,
					  fo_screen_progress, &screen, &fo_stop_requested, &t);
	fo_screen_end_line(&screen);
	if (st == FO_OK)
		st = fo_tokenizer_save(t, in->out);
	if (st == FO_OK)
		tokenizer_report(call, t, (double)(fo_now_ns() - from) * 1e-9);
	fo_tokenizer_free(t);
	return st;
}

const struct fo_command fo_cmd_data_train_tokenizer = {
	.name = "data train-tokenizer",
	.group = "train",
	.usage = "flatout data train-tokenizer INPUT... [--vocab=N] [--out=FILE] [--json]",
	.summary = "a byte-level BPE tokenizer in Hugging Face's format from texts",
	.text = "An INPUT is a file, a folder, a quoted pattern or '-' (standard input); gzip and Zstandard are "
		"unpacked. The same text gives the same file. Hugging Face tokenizers loads it and gives the same "
		"ids.\n\n"
		"  flatout data train-tokenizer books/ --vocab=32000 --out=tokenizer.json\n"
		"  zstdcat dump.zst | head -c 1G | flatout data train-tokenizer - --vocab=8192\n",
	.opts = tokenizer_rows,
	.act = tokenizer_run,
	.size = sizeof(struct tokenizer),
	.most = FO_CLI_ANY,
};
