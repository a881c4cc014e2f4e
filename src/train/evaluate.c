#include "train/pretrained.h"
#include "base/clock.h"
#include "base/fs.h"
#include "record/record.h"
#include "train/ports.h"
#include "train/train.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_SEQ 2048  /* more positions than most texts need; attention of longer rows only costs memory */
#define BATCH_TOKENS 4096 /* of a micro-batch when the run does not say: enough for matmuls to run at full speed */

/* The settings of a run's own evaluation. */
struct run_values {
	int64_t seq, rows, batches;
	enum fo_packing packing;
	char *data;       /* data.path; "": unknown */
	char val_sum[17]; /* of the shard of held-out text, in hexadecimal; "": unknown */
};

struct session {
	const struct fo_pretrained *p;
	const struct fo_eval_options *o;
	struct fo_eval_result *out;
	struct fo_arena arena;
	struct fo_shard shard;    /* opened or made */
	struct fo_documents text; /* where it was made of text */
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_ports ports;
	int32_t *length,
		*first_length; /* bytes that a token stands for, by id; at a document's start; NULL: no tokenizer */
	double sum, count, pairs;
};

/* A whole number that a run may have as this option (fo_run_options); 0: the folder says none. */
static int64_t option_number(const struct fo_record *r, const char *key, int64_t most)
{
	const struct fo_record_option *o = fo_record_option(r, key);
	int64_t v = o ? strtoll(o->value, NULL, 10) : 0;
	return v >= 1 && v <= most ? v : 0;
}

static const char *option_text(const struct fo_record *r, const char *key)
{
	const struct fo_record_option *o = fo_record_option(r, key);
	return o ? o->value : "";
}

static void read_run(struct session *s, struct run_values *out)
{
	struct fo_record r;
	*out = (struct run_values){ .seq = s->p->seq, .data = "" };
	if (s->p->step < 0)
		return;
	if (fo_record_open(&r, s->p->dir, 0) != FO_OK) {
		fo_err_clear();
		return;
	}
	out->rows = option_number(&r, "train.rows", 65536);
	out->batches = option_number(&r, "eval.batches", 1000000);
	if (!out->rows || !out->batches)
		out->rows = out->batches = 0;
	for (int i = 0; i < FO_PACK_COUNT; i++)
		if (!strcmp(option_text(&r, "data.packing"), fo_packing_name[i]))
			out->packing = (enum fo_packing)i;
	out->data = fo_arena_strdup(&s->arena, option_text(&r, "data.path"));
	snprintf(out->val_sum, sizeof out->val_sum, "%s", r.val_checksum);
	fo_record_fini(&r);
}

/* ---- data ---- */

static fo_status open_shard(struct session *s, const char *path)
{
	snprintf(s->out->data, sizeof s->out->data, "%s", path);
	FO_TRY(fo_shard_open(&s->shard, path));
	if (s->p->tokenizer && s->shard.tokenizer_checksum != fo_tokenizer_checksum(s->p->tokenizer))
		return fo_fail(FO_EARG, "'%s' was made with another tokenizer than the one in '%s'", path, s->p->dir);
	return FO_OK;
}

/* Opens the text that the run held out: in its own folder, or in the prepared one that data.path named. */
static fo_status open_held_out(struct session *s, const struct run_values *r)
{
	char sum[17];
	if (!s->p->run_dir)
		return fo_hint(fo_fail(FO_EARG, "'%s' does not belong to a run that held text out", s->p->dir),
			       "say what to read: --data=FILE_OR_FOLDER");
	char *path = fo_arena_printf(&s->arena, "%s/data/val.shard", s->p->run_dir);
	if (!fo_fs_exists(path) && *r->data)
		path = fo_arena_printf(&s->arena, "%s/val.shard", r->data);
	if (!fo_fs_exists(path)) {
		char run[FO_PATH_BYTES], seen[FO_PATH_BYTES];
		return fo_hint(
			fo_fail(FO_EIO,
				"the text that the run in '%s' held out is not in '%s', nor in the run's folder 'data'",
				fo_str_visible(run, sizeof run, s->p->run_dir),
				fo_str_visible(seen, sizeof seen, r->data)),
			"put it back (a relative path counts from the current folder), or say what to read: "
			"--data=FILE_OR_FOLDER");
	}
	fo_status st = open_shard(s, path);
	snprintf(sum, sizeof sum, "%016llx", (unsigned long long)s->shard.checksum);
	if (st == FO_OK && *r->val_sum && strcmp(sum, r->val_sum) != 0)
		st = fo_fail(FO_EARG, "'%s' is not what the run in '%s' held out: its checksum is %s, expected %s",
			     path, s->p->run_dir, sum, r->val_sum);
	return st == FO_OK ? st : fo_hint(st, "say what to read: --data=FILE_OR_FOLDER");
}

static fo_status open_data(struct session *s, const struct run_values *r)
{
	const char *data = s->o->data;
	if (!data) {
		FO_TRY(open_held_out(s, r));
	} else {
		char *val = fo_arena_printf(&s->arena, "%s/val.shard", data);
		size_t n = strlen(data);
		bool shard = n > 6 && !strcmp(data + n - 6, ".shard");
		if (shard || fo_fs_exists(val)) {
			FO_TRY(open_shard(s, shard ? data : val));
		} else {
			snprintf(s->out->data, sizeof s->out->data, "%s", data);
			if (!s->p->tokenizer)
				return fo_hint(
					fo_fail(FO_EARG, "'%s' has no tokenizer.json to read text with", s->p->dir),
					"give a shard, or put the model's tokenizer.json there");
			FO_TRY(fo_documents_read(&s->text, data, s->p->tokenizer, s->o->progress, s->o->ctx));
			s->shard = s->text.shard;
		}
	}
	if (s->shard.vocab > s->p->model.vocab)
		return fo_fail(FO_EARG, "'%s' has a vocabulary of %lld tokens, the model %lld", s->out->data,
			       (long long)s->shard.vocab, (long long)s->p->model.vocab);
	return FO_OK;
}

/* Bytes of text per token: those that it decodes to; none for tokens that begin or end a document. */
static void measure_tokens(struct session *s)
{
	const struct fo_tokenizer *t = s->p->tokenizer;
	struct fo_str text = { 0 };
	if (!t)
		return;
	int64_t vocab = fo_tokenizer_vocab(t);
	size_t most = (size_t)(vocab > s->p->model.vocab ? vocab : s->p->model.vocab);
	s->length = fo_xmalloc(most * sizeof *s->length);
	s->first_length = fo_xmalloc(most * sizeof *s->length);
	for (int32_t id = 0; id < vocab; id++) {
		if (id == fo_tokenizer_bos(t) || id == fo_tokenizer_eos(t))
			continue;
		text.len = 0;
		fo_tokenizer_decode(t, &id, 1, &text);
		s->length[id] = (int32_t)text.len;
		text.len = 0;
		fo_tokenizer_decode_text(t, &id, 1, &text);
		s->first_length[id] = (int32_t)text.len;
	}
	fo_str_fini(&text);
}

/* ---- the model ---- */

static fo_status make_executor(struct session *s)
{
	struct fo_eval_result *out = s->out;
	const struct fo_lowering low = { .seq = out->seq,
					 .rows = out->rows,
					 .micro_batches = 1,
					 .precision = s->p->precision,
					 .mode = FO_MODE_EVAL };
	struct fo_exec_options o = { .threads = s->o->threads ? s->o->threads : fo_cpu_threads(), .cuda = s->o->cuda };
	if (o.cuda)
		memcpy(out->device, fo_cuda_info(o.cuda)->name, sizeof out->device);
	FO_TRY(fo_isa_choose(&o.isa));
	out->isa = o.isa;
	out->threads = o.threads;
	FO_TRY(fo_program_lower(&s->program, &s->p->model, &low));
	FO_TRY(fo_pretrained_store(s->p, &s->program, o.cuda, &s->store));
	return fo_exec_new(&s->exec, &s->program, s->store, &o, fo_ports_serve, &s->ports, NULL);
}

static fo_status one_batch(struct session *s, const struct fo_batch *b, int64_t i)
{
	int64_t t0 = fo_now_ns(), T = s->program.tokens;
	s->ports.batch = b;
	FO_TRY(fo_exec_step(s->exec, (int32_t)(i & INT32_MAX)));
	s->out->seconds += (double)(fo_now_ns() - t0) * 1e-9;
	s->sum += s->ports.loss[0];
	s->count += s->ports.loss[1];
	s->pairs += (double)b->pairs[0];
	s->out->real_tokens += b->real_tokens;
	s->out->batches++;
	for (int64_t k = 0; k < T && s->length; k++) {
		bool first = b->token[k] == fo_tokenizer_bos(s->p->tokenizer);
		if (b->target[k] >= 0)
			s->out->bytes += (first ? s->first_length : s->length)[b->target[k]];
	}
	if (s->o->stop && *s->o->stop)
		return fo_fail(FO_EINTERRUPT, "stopped after %lld batches", (long long)i + 1);
	return FO_OK;
}

static fo_status run_in_order(struct session *s, int64_t most)
{
	const struct fo_batch_shape shape = {
		.seq = s->out->seq, .rows = s->out->rows, .micro_batches = 1, .window = s->p->model.sliding_window
	};
	struct fo_rows rows;
	const struct fo_batch *b;
	fo_status st = fo_rows_open(&rows, &s->shard, &shape);
	double total = ceil((double)s->shard.tokens / (double)s->program.tokens);
	if (most && total > (double)most)
		total = (double)most;
	for (int64_t i = 0; st == FO_OK && (!most || i < most); i++) {
		st = fo_rows_next(&rows, &b);
		if (st != FO_OK || !b)
			break;
		if (s->o->progress)
			s->o->progress(s->o->ctx, "evaluating", "batches", (double)i, total);
		st = one_batch(s, b, i);
	}
	fo_rows_close(&rows);
	return st;
}

/* Reads the rows that training's evaluation reads (setup.c): drawn with a fixed seed. */
static fo_status run_as_trained(struct session *s, const struct run_values *r, int64_t batches)
{
	const struct fo_batch_shape shape = { .seq = s->out->seq,
					      .rows = s->out->rows,
					      .micro_batches = 1,
					      .packing = r->packing,
					      .window = s->p->model.sliding_window };
	const struct fo_loader_state state = { .seed = FO_EVAL_SEED, .shard_checksum = s->shard.checksum };
	struct fo_loader *l;
	int64_t most = s->shard.tokens / s->program.tokens, wait;
	if (batches > most)
		batches = most > 0 ? most : s->shard.tokens > 1;
	FO_TRY(fo_loader_open(&l, &s->shard, &shape, &state, s->p->tokenizer ? fo_tokenizer_eos(s->p->tokenizer) : 0));
	fo_status st = FO_OK;
	for (int64_t i = 0; i < batches && st == FO_OK; i++) {
		const struct fo_batch *b;
		st = fo_loader_next(l, &b, &wait);
		if (st == FO_OK)
			st = one_batch(s, b, i);
	}
	fo_loader_close(l);
	return st;
}

/* The loss that the run logged at this checkpoint's step; NaN: none. A run without a log can be evaluated all the same.
 */
static double logged_loss(struct session *s)
{
	struct fo_record r;
	double found = NAN;
	if (!s->p->run_dir)
		return NAN;
	if (fo_record_open(&r, s->p->run_dir, 0) != FO_OK) {
		fo_err_clear();
		return NAN;
	}
	for (int64_t i = 0; i < r.evals; i++)
		if (r.eval[i].step == s->p->step && isfinite(r.eval[i].loss))
			found = r.eval[i].loss;
	fo_record_fini(&r);
	return found;
}

static void summarise(struct session *s)
{
	struct fo_eval_result *out = s->out;
	out->tokens = (int64_t)s->count;
	out->loss = s->count > 0 ? s->sum / s->count : NAN;
	out->perplexity = exp(out->loss);
	if (!s->length)
		out->bytes = -1;
	out->bits_per_byte = out->bytes > 0 ? s->sum / (FO_LN2 * (double)out->bytes) : NAN;
	out->tokens_per_second = (double)out->real_tokens / out->seconds;
	if (s->o->measure_peak)
		fo_train_peak(s->o->cuda, s->p->precision, out->threads, &out->peak);
	/* Forward is one of the three matmuls of a training step, so every rule counts a third. hfu sums what ran. */
	double batches = (double)out->batches;
	out->mfu = fo_mfu_of_step(&s->program, (double)out->real_tokens / batches, s->pairs / batches,
				  out->seconds / batches, fo_peak_or_nan(&out->peak));
	out->mfu.mfu /= 3;
	out->mfu.mfu_causal /= 3;
	out->mfu.mfu_6n /= 3;
	out->mfu.mfu_document /= 3;
}

/* Tokens in a row: as asked for, else as trained, else the model's positions up to a bound. */
static int64_t row_length(const struct session *s, const struct run_values *run)
{
	int64_t limit = s->p->model.max_position;
	if (s->o->seq)
		return s->o->seq;
	if (run->seq)
		return run->seq;
	return limit && limit < DEFAULT_SEQ ? limit : DEFAULT_SEQ;
}

static fo_status evaluate(struct session *s)
{
	struct run_values run;
	struct fo_eval_result *out = s->out;
	int64_t limit = s->p->model.max_position, batches = s->o->batches;
	read_run(s, &run);
	FO_TRY(open_data(s, &run));
	out->seq = row_length(s, &run);
	if (limit && out->seq > limit)
		return fo_fail(FO_EARG, "rows of %lld tokens are longer than the model's %lld positions",
			       (long long)out->seq, (long long)limit);
	/* `own`: the run's held-out text, in rows of the shape that it was evaluated with. */
	bool own = !s->o->data && run.rows && out->seq == run.seq && batches;
	if (own && batches < 0)
		batches = run.batches;
	out->rows = out->seq < BATCH_TOKENS ? BATCH_TOKENS / out->seq : 1;
	if (own)
		out->rows = run.rows;
	FO_TRY(make_executor(s));
	measure_tokens(s);
	out->in_order = !own;
	if (own)
		FO_TRY(run_as_trained(s, &run, batches));
	else
		FO_TRY(run_in_order(s, batches < 0 ? 0 : batches));
	if (s->count <= 0)
		return fo_fail(FO_EARG, "'%s' has no token that follows another one", out->data);
	summarise(s);
	out->logged = own ? logged_loss(s) : NAN;
	return isfinite(out->loss) ? FO_OK : fo_fail(FO_ENUMERIC, "the loss is %g", out->loss);
}

fo_status fo_pretrained_evaluate(const struct fo_pretrained *p, const struct fo_eval_options *o,
				 struct fo_eval_result *out)
{
	struct session s = { .p = p, .o = o, .out = out };
	*out = (struct fo_eval_result){ .logged = NAN };
	fo_status st = evaluate(&s);
	fo_exec_free(s.exec);
	fo_store_free(s.store);
	fo_program_fini(&s.program);
	if (s.text.shard.docs)
		fo_documents_free(&s.text);
	else
		fo_shard_close(&s.shard);
	free(s.length);
	free(s.first_length);
	fo_arena_fini(&s.arena);
	return st;
}
