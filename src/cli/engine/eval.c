/* flatout eval: the loss of a trained model on text. */
#include "cli/engine/screen.h"

#include "train/pretrained.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct eval {
	const char *data, *batches, *device;
	int64_t seq, threads;
	int precision;
	const char *json;
	bool force;
};
static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct eval, data, "eval.data", "PATH", NULL,
		    "text (a file or a folder), a shard, or a folder with val.shard; without it what the run held out"),
	FO_OPT_LENGTH(struct eval, seq, "eval.seq", "N", "0", 0, 1 << 20,
		      "length of one row; 0: as trained, else the model's positions, at most 2048"),
	FO_OPT_TEXT(struct eval, batches, "eval.batches", "N|all", NULL,
		    "how many batches of rows, or all of the text; without it as the run evaluated, else all"),
	FO_OPT_ENUM(struct eval, precision, "eval.precision", "stored",
		    "of weights and activations: as the folder says, or this", "stored|fp32|bf16"),
	FO_OPT_INT(struct eval, threads, "eval.threads", "N", "0", 0, 1024, "threads", "0: all this process may use"),
	FO_OPT_TEXT(struct eval, device, "eval.device", "HOW", "auto",
		    "what computes: auto, cpu, cuda or cuda:N, as train.device"),
	FO_CLI_OUTPUT_ROWS(struct eval, "eval", "print JSON")
};

static fo_status parse_batches(const char *text, int64_t *out)
{
	char *end;
	*out = !text ? -1 : 0;
	if (!text || !strcmp(text, "all"))
		return FO_OK;
	long long v = strtoll(text, &end, 10);
	if (end == text || *end || v < 1 || v > 1000000000)
		return fo_fail(FO_EARG, "'--batches' must be 'all' or an integer from 1 to 1e9, got '%s'",
			       fo_cli_seen(text));
	*out = v;
	return FO_OK;
}

fo_status fo_cli_pretrained(const struct fo_cli_call *call, int precision, struct fo_pretrained *out)
{
	static const int as[] = { -1, FO_PRECISION_F32, FO_PRECISION_BF16 };
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "which model? 'flatout %s' takes a folder", call->command->name),
			       "a run directory, a checkpoint or a folder with config.json and model.safetensors");
	return fo_pretrained_open(out, call->argv[1], as[precision]);
}

static void write_json(const struct fo_pretrained *p, const struct fo_eval_result *r, struct fo_json *j)
{
	fo_json_put(j, FO_TEXT("model", p->dir), FO_REAL("step", fo_json_when(p->step >= 0, (double)p->step)),
		    FO_TEXT("precision", fo_numerics_name[p->precision]), FO_TEXT("isa", fo_isa_name[r->isa]),
		    FO_INT("threads", r->threads), FO_TEXT("device", fo_json_some(r->device)), FO_TEXT("data", r->data),
		    FO_BOOL("in_order", r->in_order), FO_INT("seq", r->seq), FO_INT("rows", r->rows),
		    FO_INT("batches", r->batches), FO_INT("loss_tokens", r->tokens), FO_INT("tokens", r->real_tokens),
		    FO_REAL("loss", r->loss), FO_REAL("perplexity", r->perplexity),
		    FO_REAL("bytes", fo_json_when(r->bytes >= 0, (double)r->bytes)),
		    FO_REAL("bits_per_byte", r->bits_per_byte), FO_REAL("logged_loss", r->logged),
		    FO_REAL("seconds", r->seconds), FO_REAL("tokens_per_second", r->tokens_per_second));
	fo_cli_mfu_json(j, &r->mfu);
	fo_json_put(j, FO_REAL("peak_flop_s", fo_json_when(r->peak.flop_s > 0, r->peak.flop_s)),
		    FO_TEXT("peak_source", r->peak.source));
}

static void say(const struct fo_pretrained *p, const struct fo_eval_result *r, struct fo_doc *d)
{
	fo_doc_line(d, "model", "%s%s, %s", p->dir, p->step < 0 ? "" : " (ours)", fo_numerics_name[p->precision]);
	fo_doc_line(d, "text", "%s: %lld tokens with loss in %lld %s of %lld x %lld%s", r->data, (long long)r->tokens,
		    (long long)r->batches, fo_word(r->batches, "batch", "batches"), (long long)r->rows,
		    (long long)r->seq, r->in_order ? "" : ", drawn as in training");
	fo_doc_line(d, "loss", "%.6f nats per token, perplexity %.4f", r->loss, r->perplexity);
	if (isfinite(r->bits_per_byte))
		fo_doc_line(d, "bytes", "%.4f bits per byte over %lld bytes of text", r->bits_per_byte,
			    (long long)r->bytes);
	if (isfinite(r->logged))
		fo_doc_line(d, "logged", "%.6f at step %lld: %s", r->logged, (long long)p->step,
			    r->logged == r->loss ? "the same" : "not the same (see flatout help eval)");
	const char *where = r->device;
	if (!*where)
		where = fo_doc_printf(d, "%d %s, %s", r->threads, fo_word(r->threads, "thread", "threads"),
				      fo_isa_name[r->isa]);
	fo_doc_line(d, "speed", "%s/s on %s", fo_doc_si(d, r->tokens_per_second, "tokens"), where);
	if (r->peak.flop_s > 0)
		fo_doc_line(d, "MFU", "%.1f %% of %s/s (forward: a third of the rule mfu), HFU %.1f %%",
			    100 * r->mfu.mfu, fo_doc_si(d, r->peak.flop_s, "FLOP"), 100 * r->mfu.hfu);
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct eval *in = call->in;
	struct fo_pretrained p = { 0 };
	struct fo_eval_result r;
	struct fo_screen screen;
	struct fo_eval_options o = { .data = in->data,
				     .seq = in->seq,
				     .threads = (int)in->threads,
				     .measure_peak = true,
				     .progress = fo_screen_progress,
				     .ctx = &screen,
				     .stop = &fo_stop_requested };
	fo_status st;
	FO_TRY(parse_batches(in->batches, &o.batches));
	FO_TRY_OR(st, fo_cli_pretrained(call, in->precision, &p), done);
	FO_TRY_OR(st, fo_cli_device_open(in->device, &o.cuda), done);
	fo_screen_init(&screen, &(struct fo_run){ .log_every = 1 }, true); /* on standard error: the result is short */
	fo_catch_signals();
	st = fo_pretrained_evaluate(&p, &o, &r);
	fo_screen_end_line(&screen);
	if (st == FO_OK && call->json)
		write_json(&p, &r, call->json);
	else if (st == FO_OK)
		say(&p, &r, call->doc);
done:
	fo_cuda_close(o.cuda);
	fo_pretrained_close(&p);
	return st;
}

const struct fo_command fo_cmd_eval = {
	.name = "eval",
	.group = "train",
	.usage = "flatout eval DIR [--data PATH] [--seq N] [--batches N|all] [--json]",
	.summary = "loss, perplexity and bits per byte of a trained model",
	.text = "DIR as for 'flatout generate'. Without --data a run is evaluated on the rows that its training "
		"evaluated: with the same threads and instruction set the loss is the one that was logged, bit for "
		"bit, unless ranks of a tp group added it up. With --data, or with --batches all, the text is read in "
		"order, every token once; bits per byte compare models with different tokenizers.\n\n"
		"  flatout eval run\n"
		"  flatout eval run --data book.txt\n"
		"  flatout eval llama/ --data val.shard --batches 10\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct eval),
	.most = 1,
	.spin = FO_SPIN_TRAINING,
};
