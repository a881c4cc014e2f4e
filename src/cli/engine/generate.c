/* flatout generate: continue a text with a trained model. */
#include "cli/engine/screen.h"
#include "cli/engine/textout.h"

#include "base/clock.h"
#include "base/fs.h"
#include "kernel/memory.h"
#include "train/pretrained.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK 128 /* tokens of a prompt that go through the model together: more gain little */
#define PROMPT_BYTES_MAX ((size_t)64 << 20) /* no model's positions hold the tokens of more */

struct generate {
	const char *prompt, *prompt_file, *device;
	int64_t tokens, top_k, seed, threads;
	double temperature, top_p;
	int precision;
	bool stop_at_eos, force;
	const char *json;
};
static const struct fo_opt rows[] = {
	FO_OPT_TEXT(struct generate, prompt, "generate.prompt", "TEXT", NULL,
		    "what to continue; without it and --prompt-file: standard input, on a terminal the start of a "
		    "document"),
	FO_OPT_PATH(struct generate, prompt_file, "generate.prompt-file", "PATH", NULL, "a file to continue"),
	FO_OPT_INT(struct generate, tokens, "generate.tokens", "N", "128", 1, 1 << 24, "tokens",
		   "how many to generate"),
	FO_OPT_REAL(struct generate, temperature, "generate.temperature", "T", "0.8", 0, 100, "",
		    "logits are divided by it; 0: always the likeliest token"),
	FO_OPT_INT(struct generate, top_k, "generate.top-k", "K", "40", 0, 1 << 24, "tokens",
		   "draw from the K likeliest; 0: from all"),
	FO_OPT_REAL(struct generate, top_p, "generate.top-p", "P", "1", 1e-9, 1, "",
		    "draw from the fewest that are this probable together; 1: from all"),
	FO_OPT_INT(struct generate, seed, "generate.seed", "N", "1", 0, 9e15, "", "of the draws"),
	FO_OPT_BOOL(struct generate, stop_at_eos, "generate.stop-at-eos", "true",
		    "end where the model ends the text; --no-stop-at-eos goes on"),
	FO_OPT_ENUM(struct generate, precision, "generate.precision", "stored",
		    "of weights and cache: as the folder says, or this", "stored|fp32|bf16"),
	FO_OPT_INT(struct generate, threads, "generate.threads", "N", "0", 0, 1024, "threads",
		   "0: all this process may use"),
	FO_OPT_TEXT(struct generate, device, "generate.device", "HOW", "auto",
		    "what computes: auto, cpu, cuda or cuda:N, as train.device"),
	FO_CLI_OUTPUT_ROWS(struct generate, "generate", "print the result as JSON, nothing as it comes")
};

struct session {
	const struct generate *in;
	struct fo_pretrained model;
	struct fo_store *store;
	struct fo_generator *generator;
	struct fo_sampler sampler;
	struct fo_exec_options exec;
	int32_t *ids; /* prompt and what follows */
	size_t n, cap, prompt;
	struct fo_textout shown;
	bool begun;
	struct fo_str text;                    /* the continuation */
	double prompt_seconds, seconds, bytes; /* bytes: moved by `steps` single-token steps, which took `seconds` */
	int64_t steps;
	const char *stop;
};

/* ---- the prompt ---- */

static fo_status read_stdin(struct fo_arena *a, char **text, size_t *len)
{
	struct fo_str s = { 0 };
	char part[1 << 16];
	for (;;) {
		ssize_t n = read(STDIN_FILENO, part, sizeof part);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno != EBADF) {
			fo_str_fini(&s);
			return fo_fail(FO_EIO, "cannot read standard input: %s", strerror(errno));
		}
		if (n <= 0)
			break;
		fo_str_append(&s, part, (size_t)n);
		if (s.len > PROMPT_BYTES_MAX) {
			fo_str_fini(&s);
			return fo_fail(FO_EARG, "the prompt on standard input is longer than %zu MiB",
				       PROMPT_BYTES_MAX >> 20);
		}
	}
	*len = s.len;
	*text = fo_arena_alloc(a, s.len + 1);
	if (s.len)
		memcpy(*text, s.data, s.len);
	fo_str_fini(&s);
	return FO_OK;
}

/* Reads BOS, which begins every document that a model was trained on, then the text. Special tokens are not read from
 * it. */
static fo_status read_prompt(struct session *s)
{
	const struct generate *in = s->in;
	char *text = "";
	size_t len = 0;
	if (in->prompt && in->prompt_file)
		return fo_fail(FO_EARG, "'--prompt' and '--prompt-file' both say what to continue: give one");
	if (in->prompt)
		text = fo_arena_strdup(&s->model.arena, in->prompt), len = strlen(text);
	else if (in->prompt_file)
		FO_TRY(fo_fs_read(&s->model.arena, in->prompt_file, PROMPT_BYTES_MAX, &text, &len));
	else if (!isatty(STDIN_FILENO))
		FO_TRY(read_stdin(&s->model.arena, &text, &len));
	fo_array_room(&s->ids, &s->cap, 0, sizeof *s->ids);
	s->ids[s->n++] = fo_tokenizer_bos(s->model.tokenizer);
	FO_TRY(fo_tokenizer_encode(s->model.tokenizer, text, len, &s->ids, &s->n, &s->cap));
	s->prompt = s->n;
	return FO_OK;
}

/* ---- generating ---- */

static void show(struct session *s, int32_t id, bool end)
{
	struct fo_str raw = { 0 }, out = { 0 };
	if (id >= 0) /* the first one may carry a space that encoding put there */
		(s->begun ? fo_tokenizer_decode : fo_tokenizer_decode_text)(s->model.tokenizer, &id, 1, &raw);
	s->begun = true;
	fo_str_append(&s->text, raw.data, raw.len);
	fo_textout_put(&s->shown, raw.data, raw.len, &out);
	if (end)
		fo_textout_end(&s->shown, &out);
	if (!s->in->json && out.len) {
		fwrite(out.data, 1, out.len, stdout);
		fflush(stdout);
	}
	fo_str_fini(&raw);
	fo_str_fini(&out);
}

static void show_prompt(struct session *s)
{
	for (size_t i = 1; i < s->prompt; i++) /* BOS is not text */
		show(s, s->ids[i], false);
	s->text.len = 0;
}

static fo_status push(struct session *s, const int32_t *ids, size_t n, double *seconds)
{
	int64_t t0 = fo_now_ns();
	FO_TRY(fo_generator_push(s->generator, ids, (int64_t)n));
	*seconds += (double)(fo_now_ns() - t0) * 1e-9;
	return FO_OK;
}

static fo_status generate(struct session *s)
{
	const struct generate *in = s->in;
	FO_TRY(push(s, s->ids, s->n, &s->prompt_seconds));
	show_prompt(s);
	s->stop = "tokens";
	for (int64_t i = 0; i < in->tokens; i++) {
		int32_t id = fo_sampler_draw(&s->sampler, fo_generator_logits(s->generator), (uint64_t)i);
		if (id < 0)
			return fo_fail(FO_ENUMERIC, "token %lld cannot be drawn: the model's logits are not numbers",
				       (long long)i + 1);
		if (in->stop_at_eos && id == fo_tokenizer_eos(s->model.tokenizer)) {
			s->stop = "eos";
			break;
		}
		fo_array_room(&s->ids, &s->cap, s->n, sizeof *s->ids);
		s->ids[s->n++] = id;
		show(s, id, false);
		if (fo_stop_requested) {
			s->stop = "interrupted";
			break;
		}
		if (i + 1 == in->tokens)
			break;
		if (fo_generator_length(s->generator) == fo_generator_context(s->generator)) {
			s->stop = "context";
			break;
		}
		s->bytes += fo_generator_step_bytes(s->generator);
		s->steps++;
		FO_TRY(push(s, &id, 1, &s->seconds));
	}
	show(s, -1, true);
	return FO_OK;
}

static fo_status open_model(struct session *s, const struct fo_cli_call *call)
{
	const struct generate *in = s->in;
	FO_TRY(fo_cli_pretrained(call, in->precision, &s->model));
	if (!s->model.tokenizer)
		return fo_hint(fo_fail(FO_EARG, "'%s' has no tokenizer.json", s->model.dir),
			       "put the model's tokenizer.json there");
	int64_t vocab = fo_tokenizer_vocab(s->model.tokenizer), most = s->model.model.max_position;
	if (fo_tokenizer_bos(s->model.tokenizer) >= s->model.model.vocab)
		return fo_fail(FO_EARG, "the tokenizer in '%s' has %lld tokens, the model's vocabulary %lld",
			       s->model.dir, (long long)vocab, (long long)s->model.model.vocab);
	FO_TRY(read_prompt(s));
	if (most && (int64_t)s->n > most)
		return fo_hint(fo_fail(FO_EARG, "the prompt has %zu tokens, the model has %lld positions", s->n,
				       (long long)most),
			       "shorten the prompt");
	/* The last token drawn goes through the model no more. */
	int64_t context = (int64_t)s->n + in->tokens - 1;
	if (most && context > most)
		context = most;
	if (context > 1 << 24)
		context = 1 << 24;
	s->exec.threads = in->threads ? (int)in->threads : fo_cpu_threads();
	FO_TRY(fo_isa_choose(&s->exec.isa));
	FO_TRY(fo_cli_device_open(in->device, &s->exec.cuda));
	int64_t chunk = (int64_t)s->n < CHUNK ? (int64_t)s->n : CHUNK;
	FO_TRY(fo_pretrained_generator(&s->model, &s->exec, context, chunk, &s->store, &s->generator));
	const struct fo_sampling how = {
		.temperature = in->temperature, .top_k = in->top_k, .top_p = in->top_p, .seed = (uint64_t)in->seed
	};
	fo_sampler_init(&s->sampler, &how, vocab < s->model.model.vocab ? vocab : s->model.model.vocab);
	return FO_OK;
}

/* ---- what is said about it ---- */

/* The highest rate at which memory was seen to deliver, B/s; 0 where the model fits the caches and does not wait for
 * memory. */
static double read_rate(const struct session *s)
{
	return s->steps >= 4 && !s->exec.cuda && s->bytes / (double)s->steps > 2.0 * (double)fo_cache_bytes()
		       ? fo_memory_read_rate(s->exec.threads)
		       : 0;
}

static void print_speed(const struct session *s)
{
	struct fo_doc d = { 0 };
	fflush(stdout);
	if (!s->in->json)
		fprintf(stderr, "\n");
	fo_doc_line(&d, "prompt", "%zu %s in %.3g s: %.4g tokens/s", s->prompt, fo_word(s->prompt, "token", "tokens"),
		    s->prompt_seconds, (double)s->prompt / s->prompt_seconds);
	size_t made = s->n - s->prompt;
	if (s->steps)
		fo_doc_line(&d, "text", "%zu %s, %.4g tokens/s", made, fo_word(made, "token", "tokens"),
			    (double)s->steps / s->seconds);
	double rate = s->bytes / s->seconds, most = read_rate(s);
	if (most > 0)
		fo_doc_line(&d, "memory", "%s per token: %s/s, %.0f %% of the %s/s that a plain loop reads",
			    fo_doc_num(&d, s->bytes / (double)s->steps, FO_DRAW_BYTES),
			    fo_doc_num(&d, rate, FO_DRAW_BYTES), 100 * rate / most,
			    fo_doc_num(&d, most, FO_DRAW_BYTES));
	if (!strcmp(s->stop, "context"))
		fo_doc_line(&d, "stopped", "the model's %lld positions are used up",
			    (long long)s->model.model.max_position);
	fo_cli_print(stderr, &d);
	fo_doc_fini(&d);
}

static void write_json(const struct session *s, struct fo_json *j)
{
	double most = read_rate(s), rate = s->bytes / s->seconds;
	fo_json_put(j, FO_TEXT("model", s->model.dir),
		    FO_REAL("step", fo_json_when(s->model.step >= 0, (double)s->model.step)),
		    FO_TEXT("precision", fo_numerics_name[s->model.precision]),
		    FO_TEXT("isa", fo_isa_name[s->exec.isa]), FO_INT("threads", s->exec.threads),
		    FO_TEXT("device", s->exec.cuda ? fo_cuda_info(s->exec.cuda)->name : NULL),
		    FO_REAL("temperature", s->in->temperature), FO_INT("top_k", s->in->top_k),
		    FO_REAL("top_p", s->in->top_p), FO_INT("seed", s->in->seed), FO_TEXT("stop", s->stop),
		    FO_INT("prompt_tokens", (int64_t)s->prompt), FO_INT("tokens", (int64_t)(s->n - s->prompt)));
	fo_json_array(j, "ids");
	for (size_t i = s->prompt; i < s->n; i++)
		fo_json_int(j, NULL, s->ids[i]);
	fo_json_close(j);
	struct fo_str text = { 0 };
	fo_json_string(&text, s->text.data ? s->text.data : "", s->text.len);
	fo_json_raw(j, "text", text.data);
	fo_str_fini(&text);
	fo_json_put(j, FO_REAL("prompt_seconds", s->prompt_seconds),
		    FO_REAL("prompt_tokens_per_second", (double)s->prompt / s->prompt_seconds),
		    FO_REAL("tokens_per_second", fo_json_when(s->steps, (double)s->steps / s->seconds)),
		    FO_REAL("bytes_per_token", fo_json_when(s->steps, s->bytes / (double)s->steps)),
		    FO_REAL("bytes_per_second", fo_json_when(s->steps, rate)),
		    FO_REAL("read_bytes_per_second", fo_json_when(most > 0, most)),
		    FO_REAL("bandwidth_share", fo_json_when(most > 0, rate / most)));
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct generate *in = call->in;
	struct session s = { .in = in, .stop = "" };
	fo_status st;
	FO_TRY_OR(st, open_model(&s, call), done);
	fo_catch_signals();
	FO_TRY_OR(st, generate(&s), done);
	if (call->json)
		write_json(&s, call->json);
	else
		print_speed(&s);
	if (!strcmp(s.stop, "interrupted"))
		st = fo_fail(FO_EINTERRUPT, "stopped after %zu tokens", s.n - s.prompt);
done:
	fo_sampler_fini(&s.sampler);
	fo_generator_free(s.generator);
	fo_store_free(s.store);
	fo_cuda_close(s.exec.cuda);
	fo_pretrained_close(&s.model);
	free(s.ids);
	fo_str_fini(&s.text);
	return st;
}

const struct fo_command fo_cmd_generate = {
	.name = "generate",
	.group = "train",
	.usage = "flatout generate DIR [--prompt TEXT | --prompt-file PATH] [--tokens N] [--temperature T] [--top-k K] "
		 "[--top-p P] [--seed N] [--json]",
	.summary = "continue a text with a trained model",
	.text = "DIR is a run directory (its newest checkpoint is taken), a checkpoint, or a folder in Hugging Face's "
		"layout with a tokenizer.json. The text goes to standard output as it comes, speed to standard error. "
		"The same seed, threads and instruction set give the same text.\n\n"
		"  flatout generate run --prompt 'The license' --tokens 200\n"
		"  flatout generate run --temperature 0 < prompt.txt\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct generate),
	.most = 1,
	.spin = FO_SPIN_TRAINING,
};
