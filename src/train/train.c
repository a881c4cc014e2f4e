#include "train/train_int.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "pass/pass.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CALIBRATION_SECONDS 1.0
#define TIMELINE_STEPS 32
#define MEDIAN_STEPS (1 << 20) /* the medians are of the newest million steps: 16 MiB */

/* ---- setting up ---- */

static int64_t memory_free(const struct fo_session *s)
{
	return s->cuda ? s->device_free - s->device_reserve : fo_memory_available();
}

/* Checkpoints that the run adds to its folder, at most at one time: the newest ones stay while the next is written. */
static int64_t checkpoints_added(const struct fo_session *s)
{
	const struct fo_run *r = s->r;
	int64_t every = r->ckpt_every, from = s->found.step, there = fo_ckpt_count(s->ckpt_dir);
	int64_t n = every && r->steps > from ? r->steps / every - from / every : 0;
	n += r->ckpt_last && r->steps > from && (!every || r->steps % every);
	if (!n || !r->ckpt_keep)
		return n;
	int64_t most = there + n < r->ckpt_keep + 1 ? there + n : r->ckpt_keep + 1;
	return most > there ? most - there : 1;
}

/* Hours of training are not to end at a disk that was too small from the start. That later ones do not fit beside each
 * other is a warning: what is there stays, and the disk may be larger by then. */
static fo_status disk_fits(struct fo_session *s, const struct fo_train_plan *p)
{
	char one[32], all[32], have[32];
	fo_str_bytes(one, (double)p->save_bytes);
	fo_str_bytes(have, (double)p->disk_free);
	if (!p->save_count || !p->save_bytes || p->disk_free < 0 || p->save_count <= p->disk_free / p->save_bytes)
		return FO_OK;
	if (p->save_bytes > p->disk_free)
		return fo_hint(fo_fail(FO_EIO, "a checkpoint of this run takes %s, and the disk of '%s' has %s free",
				       one, s->r->dir, have),
			       "make room, choose another run.dir or a smaller state (optim.state=auto), or save no "
			       "weights: checkpoint.last=no and checkpoint.every=0");
	fo_session_warn(s,
			"the disk of '%s' has %s free, and the run writes checkpoints of %s, %s at one time: not all "
			"will fit%s",
			s->r->dir, have, one, fo_str_bytes(all, (double)p->save_count * (double)p->save_bytes),
			s->r->ckpt_keep ? "" : " (checkpoint.keep=0 keeps all)");
	return FO_OK;
}

/* What the run may take; 0: not known. */
static int64_t memory_allowed(const struct fo_session *s) { return fo_room_allowed(s->r, memory_free(s)); }

static int *predicted_option(struct fo_run *r, int i)
{
	return (int *)(void *)((char *)r + fo_predicted_pass[i].of_run);
}

/* Sums round as the step is split and as the loss is chunked, and the state is stored as it is: a run that goes on
 * keeps all of it, whatever memory is free. */
static void keep_choice(struct fo_session *s, struct fo_run *r)
{
	struct fo_program p;
	const char *path = fo_arena_printf(&s->arena, "%s/program.txt", r->dir);
	char *text;
	size_t len;
	/* Without a checkpoint there is nothing to keep to. */
	if (!fo_fs_exists(fo_arena_printf(&s->arena, "%s/checkpoints", r->dir)))
		return;
	bool open = r->batch_rows || r->state || r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO;
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		open |= *predicted_option(r, i) == FO_RUN_AUTO;
	if (!open || !fo_fs_exists(path) ||
	    fo_fs_read_regular(&s->arena, path, (size_t)256 << 20, &text, &len) != FO_OK ||
	    fo_program_parse(&p, text, len, path) != FO_OK)
		return;
	if (r->batch_rows && p.run.seq == r->seq && p.run.rows * p.run.micro_batches == r->batch_rows)
		r->rows = p.run.rows, r->micro_batches = p.run.micro_batches, r->batch_rows = 0;
	if (r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO && p.run.seq == r->seq)
		r->fuse_loss = p.run.pass.fuse_loss;
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (*predicted_option(r, i) == FO_RUN_AUTO)
			*predicted_option(r, i) = fo_passes_get(&p.run.pass, fo_predicted_pass[i].of_pass) ? FO_RUN_YES
													   : FO_RUN_NO;
	bool exact = p.run.pass.master != FO_MASTER_NONE && p.run.pass.moments == FO_MOMENTS_FP32;
	if (r->state == FO_RUN_STATE_AUTO || (r->state && exact))
		r->master = (int)p.run.pass.master, r->moments = (int)p.run.pass.moments, r->state = FO_RUN_STATE_GIVEN;
	fo_program_fini(&p);
}

/* What may be planned with; 0: not known. */
static int64_t memory_budget(const struct fo_session *s) { return fo_room_budget(s->r, memory_free(s)); }

static struct fo_choose_rates session_rates(const struct fo_session *s)
{
	return s->cuda ? fo_device_choose_rates(fo_cuda_info(s->cuda), fo_run_precision(s->r)) : fo_choose_processor;
}

/* What the run leaves open. reserve: bytes that the run takes beside what its program does. */
static fo_status choose(struct fo_session *s, int64_t reserve)
{
	struct fo_run r = *s->r;
	int64_t budget = memory_budget(s);
	struct fo_choose_rates device = session_rates(s);
	keep_choice(s, &r);
	fo_status st = fo_pass_choose_run(&r, &s->model, budget, reserve, s->cuda ? &device : NULL, &s->choice);
	if (st != FO_ENOMEM)
		return st;
	fo_err_save(&s->too_large, st);
	return FO_OK;
}

static bool is_split(const struct fo_run *r, const struct fo_lowering *run)
{
	return r->batch_rows ? run->rows * run->micro_batches == r->batch_rows
			     : run->rows == r->rows && run->micro_batches == r->micro_batches;
}

/* Defaults give way to what the file's program has, options that were given do not. */
static fo_status check_options(const struct fo_session *s)
{
	struct fo_str text = { 0 };
	fo_status st = FO_OK;
	if (s->h->options)
		fo_run_contradicts(s->h->options, s->r, &s->program.run.pass, &text);
	if (text.len)
		st = fo_hint(
			fo_fail(FO_EARG, "options contradict the program in '%s': %s", s->r->program_file, text.data),
			"leave them out, or leave program.file out");
	fo_str_fini(&text);
	return st;
}

static fo_status make_programs(struct fo_session *s, int64_t reserve)
{
	struct fo_lowering train = fo_run_lowering(s->r, FO_MODE_TRAIN), eval = fo_run_lowering(s->r, FO_MODE_EVAL);
	FO_TRY(fo_run_model(s->r, &s->model));
	if (*s->r->program_file) {
		char *text;
		size_t len;
		FO_TRY(fo_fs_read(&s->arena, s->r->program_file, (size_t)256 << 20, &text, &len));
		FO_TRY(fo_program_parse(&s->program, text, len, s->r->program_file));
		s->model = s->program.model;
		if (s->program.run.seq != train.seq || !is_split(s->r, &s->program.run) ||
		    s->program.run.precision != train.precision || s->program.run.mode != FO_MODE_TRAIN)
			return fo_hint(fo_fail(FO_EARG,
					       "the program in '%s' was made for train.micro-batches=%lld, "
					       "train.rows=%lld, data.seq=%lld, train.precision=%s, this run says "
					       "otherwise",
					       s->r->program_file, (long long)s->program.run.micro_batches,
					       (long long)s->program.run.rows, (long long)s->program.run.seq,
					       fo_numerics_name[s->program.run.precision]),
				       "use the run.yaml it was dumped from");
		FO_TRY(check_options(s));
	} else {
		FO_TRY(choose(s, reserve));
		FO_TRY(fo_pass_build(&s->program, &s->model, &s->choice.run));
	}
	eval.pass = s->program.run.pass; /* they share weights: a program from a file decides for both */
	return fo_pass_build(&s->eval_program, &s->model, &eval);
}

static fo_status make_executors(struct fo_session *s)
{
	s->options.timeline_steps = TIMELINE_STEPS;
	s->options.cuda = s->cuda;
	s->options.timed_every = (int)(s->r->timed_every < INT32_MAX ? s->r->timed_every : INT32_MAX);
	FO_TRY(fo_isa_choose(&s->options.isa));
	if (s->cuda)
		FO_TRY(fo_session_device_fits(s));
	FO_TRY(fo_store_new_on(&s->store, &s->program, s->cuda));
	struct fo_exec_options train = s->options;
	train.batch = s->r->inputs_ahead ? fo_ports_batch : NULL;
	fo_status st = fo_exec_new(&s->exec, &s->program, s->store, &train, fo_ports_serve, &s->ports, NULL);
	if (st == FO_OK)
		st = fo_exec_new(&s->eval, &s->eval_program, s->store, &s->options, fo_ports_serve, &s->eval_ports,
				 s->exec);
	if (st == FO_EUNSUPPORTED && s->cuda)
		return fo_hint(st, "train.device=cpu runs it on the processor");
	/* A dumped program that names its buffers otherwise is the user's mistake, not ours. */
	if (st == FO_EBUG && *s->r->program_file)
		return fo_wrap(FO_EFORMAT, "the program in '%s' does not fit this run", s->r->program_file);
	return st;
}

struct fo_batch_shape fo_session_shape(const struct fo_session *s, const struct fo_program *p)
{
	return (struct fo_batch_shape){ .seq = p->run.seq,
					.rows = p->run.rows,
					.micro_batches = p->run.micro_batches,
					.packing = (enum fo_packing)s->r->packing,
					.window = s->model.sliding_window };
}

/* Bytes of the loader's token arrays (data.h: four int32 each, up to three steps alive) and the recorder. */
static int64_t loader_bytes(const struct fo_session *s)
{
	int64_t step = s->program.tokens * s->program.run.micro_batches * 16,
		eval = s->eval_program.tokens * 16 * s->eval_batches;
	struct fo_batch_shape shape = fo_session_shape(s, &s->program);
	int64_t order = fo_loader_order_bytes(&s->corpus.train, &shape);
	return (int64_t)fo_pages_size((size_t)(3 * step + order)) + eval +
	       (int64_t)fo_pages_size(fo_exec_timeline(s->exec)->bytes) +
	       (int64_t)fo_pages_size(fo_exec_timeline(s->eval)->bytes);
}

/* Evaluation beyond the shared arena, and beside a device's memory nothing else. */
static int64_t other_bytes(const struct fo_session *s)
{
	return (s->cuda ? 0 : loader_bytes(s)) + fo_room_evaluation(s->exec, s->eval);
}

/* What a run on a device takes of the host: tables, the pieces that its state passes through, staging, the loader,
 * activations that wait there, and where checkpoints are written while training goes on the copy that they are written
 * from. */
static int64_t host_bytes(const struct fo_session *s)
{
	struct fo_memory m = fo_exec_memory(s->exec), e = fo_exec_memory(s->eval);
	return s->cuda ? m.host + m.staging + e.staging + m.host_arena + loader_bytes(s) + s->host_copy : 0;
}

static int64_t step_bytes(const struct fo_session *s)
{
	struct fo_memory m = fo_exec_memory(s->exec);
	return m.arena + (s->cuda ? 0 : m.host_arena) + m.persistent + m.workspace + other_bytes(s);
}

static int64_t budget_of(const void *s) { return memory_budget(s); }
/* 0 once no choice fits: the least is announced, then the run is refused. */
static int64_t need_of(const void *ctx)
{
	const struct fo_session *s = ctx;
	return s->too_large.st == FO_OK ? step_bytes(s) : 0;
}

static fo_status make_again(void *ctx, int64_t reserve)
{
	struct fo_session *s = ctx;
	fo_exec_free(s->eval);
	fo_exec_free(s->exec);
	fo_store_free(s->store);
	s->eval = s->exec = NULL;
	s->store = NULL;
	fo_program_fini(&s->eval_program);
	fo_program_fini(&s->program);
	FO_TRY(make_programs(s, reserve));
	return make_executors(s);
}

static fo_status make_executors_that_fit(struct fo_session *s)
{
	FO_TRY(make_executors(s));
	return fo_room_settle(&(struct fo_room_maker){ s, &s->choice, budget_of, need_of, make_again });
}

/* A copy is worth its memory only where a checkpoint is written while steps remain. */
static bool copies_checkpoints(const struct fo_session *s)
{
	int64_t every = s->r->ckpt_every, last = s->r->steps - 1;
	return s->r->ckpt_async && every && last / every > s->found.step / every;
}

static struct fo_train_plan plan_of(const struct fo_session *s)
{
	struct fo_train_plan p = {
		.run = s->r,
		.program = &s->program,
		.memory = fo_exec_memory(s->exec),
		.memory_other = other_bytes(s),
		.memory_available = s->cuda ? s->device_free - s->device_reserve : fo_memory_available(),
		.device = s->cuda ? fo_cuda_info(s->cuda) : NULL,
		.memory_reserve = s->device_reserve,
		.memory_host = host_bytes(s),
		.memory_host_copy = s->host_copy,
		.save_bytes = fo_store_checkpoint_bytes(s->store, &s->program),
		.save_count = checkpoints_added(s),
		.disk_free = fo_fs_free(s->ckpt_dir),
		.peak = s->peak,
		.isa = s->options.isa,
		.threads = s->options.threads,
		.resumed_step = s->found.step,
		.train_tokens = s->corpus.train.tokens,
		.val_tokens = s->corpus.val.tokens,
		.params = fo_model_params(&s->model),
		.choice = s->choice,
		.memory_checkpoint = fo_saver_bytes(s),
	};
	const struct fo_choose_rates rates = session_rates(s);
	p.gain_of_more = s->cuda ? fo_program_gain_of_more(&s->program, &rates, FO_TRAIN_MICRO_BATCHES) : 0;
	p.codes = fo_exec_codes(s->exec, p.code);
	if (s->cuda)
		fo_cuda_tune_result(s->cuda, &p.tuned);
	return p;
}

/* Of the host, for a run on a device; 0: not known. */
static int64_t host_available(void)
{
	int64_t have = fo_memory_available(), room = fo_memory_unlimited();
	return room < INT64_MAX && (!have || room < have) ? room : have;
}

/* The host's part of a run on a device. */
static fo_status host_fits(const struct fo_session *s)
{
	char a[32], b[32];
	int64_t need = host_bytes(s), have = host_available();
	if (!s->cuda || !have || need <= have)
		return FO_OK;
	return fo_hint(
		fo_fail(FO_ENOMEM, "beside the device the run takes %s of this machine's memory, of which %s are free",
			fo_str_bytes(a, (double)need), fo_str_bytes(b, (double)have)),
		s->program.run.pass.offload ? "lower pass.offload, whose activations wait in host memory"
					    : "end other programs, or shorten the batch, which the loader holds");
}

/* A checkpoint is written while training goes on where there is memory for a copy of the state. */
static void decide_async(struct fo_session *s, int64_t need)
{
	int64_t budget = memory_budget(s), copy = (int64_t)fo_pages_size((size_t)fo_store_bytes(s->store)),
		have = host_available();
	s->async = copies_checkpoints(s);
	if (s->cuda)
		s->async = s->async && (!have || host_bytes(s) + copy <= have);
	else
		s->async = s->async && (!budget || need + fo_exec_memory(s->exec).persistent <= budget);
	s->host_copy = s->cuda && s->async ? copy : 0;
}

static fo_status announce(struct fo_session *s)
{
	int64_t need = step_bytes(s), have = memory_allowed(s);
	decide_async(s, need);
	struct fo_train_plan p = plan_of(s);
	fo_exec_kernels(s->exec, p.kernels);
	if (s->h->plan)
		s->h->plan(s->h->ctx, &p);
	if (s->too_large.st != FO_OK)
		return fo_err_raise(&s->too_large);
	fo_session_device_attention(s);
	if (copies_checkpoints(s) && !s->async && need <= have) {
		char copy[32];
		fo_session_warn(
			s, "no memory %sfor a copy of the state (%s): training waits while a checkpoint is written",
			s->cuda ? "on the host " : "", fo_str_bytes(copy, (double)p.memory.persistent));
	}
	if (!have || need <= have) {
		FO_TRY(host_fits(s));
		return disk_fits(s, &p);
	}
	char a[32], b[32], c[32];
	fo_fail(FO_ENOMEM, "the run plans %s and may use %s", fo_str_bytes(a, (double)need),
		fo_str_bytes(b, (double)have));
	return s->program.run.rows > 1
		       ? fo_hint(FO_ENOMEM, "activations take %s: halve train.rows and double train.micro-batches",
				 fo_str_bytes(c, (double)p.memory.arena))
		       : fo_hint(FO_ENOMEM,
				 "activations take %s, weights and optimizer state %s: shorten data.seq or choose a "
				 "smaller model",
				 fo_str_bytes(c, (double)p.memory.arena), fo_str_bytes(a, (double)p.memory.persistent));
}

/* Evaluation reads the same held-out micro-batches each time: copied once, so that evaluating allocates nothing. */
static fo_status load_eval_batches(struct fo_session *s)
{
	struct fo_batch_shape shape = fo_session_shape(s, &s->eval_program);
	if (s->r->eval_packing)
		shape.packing = (enum fo_packing)(s->r->eval_packing - 1);
	struct fo_loader_state state = { .seed = FO_EVAL_SEED, .shard_checksum = s->corpus.val.checksum };
	struct fo_loader *l;
	int64_t T = s->eval_program.tokens, wait;
	if (!s->eval_batches)
		return FO_OK;
	FO_TRY(fo_loader_open(&l, &s->corpus.val, &shape, &state, fo_tokenizer_eos(s->corpus.tokenizer)));
	s->eval_batch = fo_arena_alloc(&s->arena, (size_t)s->eval_batches * sizeof *s->eval_batch);
	fo_status st = FO_OK;
	for (int64_t i = 0; i < s->eval_batches && st == FO_OK; i++) {
		const struct fo_batch *b;
		st = fo_loader_next(l, &b, &wait);
		if (st != FO_OK)
			break;
		int32_t *copy = fo_arena_alloc(&s->arena, (size_t)T * 16);
		const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
		for (int k = 0; k < 4; k++)
			memcpy(copy + k * T, from[k], (size_t)T * 4);
		s->eval_batch[i] = (struct fo_batch){
			.token = copy, .target = copy + T, .position = copy + 2 * T, .doc_start = copy + 3 * T
		};
	}
	fo_loader_close(l);
	return st;
}

static fo_status open_data(struct fo_session *s)
{
	FO_TRY(fo_corpus_open(&s->corpus, s->r, s->model.vocab, s->h->progress, s->h->ctx, s->h->stop));
	s->eval_batches = s->r->eval_every ? s->r->eval_batches : 0;
	/* No more evaluation than held-out text. */
	int64_t most = s->corpus.val.tokens / s->eval_program.tokens;
	if (s->eval_batches > most)
		s->eval_batches = most > 0 ? most : s->corpus.val.tokens > 1;
	s->rss_before = fo_memory_resident(); /* from here on everything is planned */
	return load_eval_batches(s);
}

/* Weights that do not fit are told before the text is prepared. A run that has a checkpoint needs none. */
static fo_status check_weights(struct fo_session *s)
{
	char *found = NULL;
	if (!*s->r->weights)
		return FO_OK;
	if (!s->h->dry_run)
		FO_TRY(fo_ckpt_latest(&s->arena, s->ckpt_dir, &found));
	return found ? FO_OK : fo_weights_check(&s->program, s->r->weights);
}

fo_status fo_session_open_loader(struct fo_session *s)
{
	struct fo_batch_shape shape = fo_session_shape(s, &s->program);
	return fo_loader_open(&s->loader, &s->corpus.train, &shape, &s->meta.loader,
			      fo_tokenizer_eos(s->corpus.tokenizer));
}

static fo_status open_session(struct fo_session *s)
{
	s->ckpt_dir = fo_arena_printf(&s->arena, "%s/checkpoints", s->r->dir);
	FO_TRY(fo_session_device_open(s));
	fo_session_kernels_open(s);
	FO_TRY(make_programs(s, 0));
	if (!s->h->dry_run)
		FO_TRY(fo_session_folder_lock(
			s)); /* two processes in one folder would take each other's files for left-overs */
	if (!s->h->dry_run)
		FO_TRY(fo_session_has_weights(s));
	FO_TRY(check_weights(s));
	if (s->cuda)
		fo_device_find_peak(fo_cuda_info(s->cuda), fo_run_precision(s->r), &s->peak);
	if (!s->h->dry_run && !s->cuda) {
		fo_status st = fo_calibrate_peak(fo_run_precision(s->r) == FO_PRECISION_BF16 ? FO_BF16 : FO_F32,
						 s->r->threads ? (int)s->r->threads : fo_cpu_threads(),
						 CALIBRATION_SECONDS, false, &s->calibration);
		if (st == FO_OK)
			fo_calibration_peak(&s->calibration, &s->peak);
		else
			snprintf(s->peak.source, sizeof s->peak.source, "%s", fo_err_text());
	}
	if (!s->h->dry_run)
		FO_TRY(open_data(s));
	s->options.threads = s->r->threads ? (int)s->r->threads : fo_cpu_threads();
	FO_TRY(fo_place_plan(&s->place, s->r->affinity, s->options.threads, NULL, NULL));
	FO_TRY(fo_place_others(
		&s->place)); /* lanes and loader, which start from here on, leave the compute threads alone */
	FO_TRY(make_executors_that_fit(s));
	s->meta = (struct fo_ckpt_meta){ .seed = (uint64_t)s->r->seed,
					 .tokenizer_checksum = s->corpus.tokenizer
								       ? fo_tokenizer_checksum(s->corpus.tokenizer)
								       : 0 };
	s->meta.loader = (struct fo_loader_state){ .seed = (uint64_t)s->r->seed,
						   .shard_checksum = s->corpus.train.checksum };
	s->meta.seq = s->r->seq;
	s->meta.rows_per_step = s->program.run.rows * s->program.run.micro_batches;
	s->meta.packing = s->r->packing;
	snprintf(s->meta.precision, sizeof s->meta.precision, "%s", fo_numerics_name[fo_run_precision(s->r)]);
	snprintf(s->meta.master, sizeof s->meta.master, "%s", fo_master_name[s->program.run.pass.master]);
	snprintf(s->meta.moments, sizeof s->meta.moments, "%s", fo_moments_name[s->program.run.pass.moments]);
	if (s->h->dry_run)
		return announce(s);
	/* The newest checkpoint's step is part of what is announced; its tensors are read after the memory check. */
	FO_TRY(fo_session_find(s));
	FO_TRY(announce(s));
	FO_TRY(fo_store_tensors(s->store, &s->program, &s->tensors));
	if (*s->r->weights && !s->found_path) /* a checkpoint of this run is further on than its start */
		FO_TRY(fo_store_load(s->store, &s->program, s->r->weights));
	else if (s->cuda)
		FO_TRY(fo_store_init_device(s->store, &s->program, (uint64_t)s->r->seed, s->cuda));
	else
		fo_store_init(s->store, &s->program, (uint64_t)s->r->seed);
	FO_TRY(fo_session_resume(s));
	fo_exec_weights_changed(s->exec);
	FO_TRY(fo_session_open_loader(s));
	FO_TRY(fo_saver_open(s));
	int64_t steps = s->r->steps > s->meta.step ? s->r->steps - s->meta.step : 0;
	s->steps_kept = steps < MEDIAN_STEPS ? steps + 1 : MEDIAN_STEPS;
	s->step_seconds = fo_arena_alloc(&s->arena, (size_t)s->steps_kept * sizeof(double));
	s->step_tokens = fo_arena_alloc(&s->arena, (size_t)s->steps_kept * sizeof(double));
	return fo_session_log_open(s);
}

static void close_session(struct fo_session *s)
{
	fo_saver_close(s);
	fo_session_meter_close(s);
	fo_session_kernels_close(s);
	fo_session_publish_close(s);
	fo_loader_close(s->loader);
	fo_exec_free(s->eval);
	fo_exec_free(s->exec);
	fo_store_free(s->store);
	fo_session_device_close(s);
	fo_corpus_close(&s->corpus);
	fo_program_fini(&s->eval_program);
	fo_program_fini(&s->program);
	if (s->log >= 0)
		close(s->log);
	fo_str_fini(&s->line);
	fo_tensors_fini(&s->tensors);
	fo_arena_fini(&s->arena);
	fo_session_folder_close(s);
}

static const char *hex_text(struct fo_session *s, uint64_t v) { return fo_arena_printf(&s->arena, "%016" PRIx64, v); }

/* run.json: what the caller knows (options with origins, version), this machine, checksums of data and tokenizer. */
static void describe_run(struct fo_session *s, struct fo_str *out)
{
	struct fo_str passes = { 0 };
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	fo_passes_text(&s->program.run.pass, &passes); /* of a program from a file too */
	struct fo_record r = {
		.run = s->h->run_json,
		.passes = passes.data,
		.cpu = cpu,
		.threads = s->options.threads,
		.isa = fo_isa_name[s->options.isa],
		.peak_flop_s = s->peak.flop_s > 0 ? s->peak.flop_s : NAN,
		.peak_source = s->peak.source,
		.device = s->cuda ? fo_cuda_info(s->cuda)->name : NULL,
		.affinity = s->r->affinity,
		.seed = s->r->seed,
		.tokenizer_checksum = hex_text(s, s->meta.tokenizer_checksum),
		.train_checksum = hex_text(s, s->corpus.train.checksum),
		.val_checksum = hex_text(s, s->corpus.val.checksum),
		.program_hash = hex_text(s, fo_program_hash(&s->program)),
	};
	fo_machine_read(&r.state, "");
	fo_schema_text(&fo_run_schema, &r, true, out);
	fo_str_puts(out, "\n");
	fo_str_fini(&passes);
}

static fo_status write_run_files(struct fo_session *s)
{
	struct fo_str text = { 0 };
	fo_program_dump(&s->program, &text);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/program.txt", s->r->dir), text.data, text.len);
	text.len = 0;
	describe_run(s, &text);
	s->run_json = fo_arena_strdup(&s->arena, text.data);
	if (st == FO_OK)
		st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/run.json", s->r->dir), text.data, text.len);
	fo_str_fini(&text);
	return st;
}

/* ---- the loop ---- */

static void set_hyper(struct fo_session *s, const struct fo_batch *b)
{
	const struct fo_run *r = s->r;
	/* Steps that the moments saw, this one included. */
	double t = (double)(s->meta.step + 1 - s->meta.skipped), *h = s->ports.hyper, median, deviation;
	h[FO_HYPER_LR] = fo_run_lr(r, s->meta.step);
	h[FO_HYPER_BETA1] = r->beta1;
	h[FO_HYPER_BETA2] = r->beta2;
	h[FO_HYPER_EPS] = r->eps;
	h[FO_HYPER_DECAY] = r->weight_decay;
	h[FO_HYPER_CORR1] = 1 - pow(r->beta1, t);
	h[FO_HYPER_CORR2] = 1 - pow(r->beta2, t);
	h[FO_HYPER_CLIP] = r->clip;
	h[FO_HYPER_SEED] = (double)r->seed;
	h[FO_HYPER_STEP] = (double)s->meta.step;
	h[FO_HYPER_INV_TOKENS] = b->loss_tokens > 0 ? 1.0 / (double)b->loss_tokens : 0;
	h[FO_HYPER_LAST_NORM] = s->meta.grad_norm;
	/* What only warns is taken. */
	h[FO_HYPER_LOSS_LIMIT] = r->guard_spike >= FO_SPIKE_SKIP ? fo_guard_limit(r, &s->meta, &median, &deviation) : 0;
}

/* Time and tokens of a step that ran, taken or not. */
static void count_step(struct fo_session *s, const struct fo_batch *b, const struct fo_train_step *t, int64_t pairs)
{
	if (!t->metered) {
		s->step_seconds[s->steps_timed % s->steps_kept] = t->seconds;
		s->step_tokens[s->steps_timed++ % s->steps_kept] = t->tokens_per_second;
	}
	s->steps_here++;
	s->stepped_tokens += t->tokens;
	s->real_tokens += b->real_tokens;
	s->truncated += b->truncated;
	s->pairs += pairs;
}

static fo_status one_step(struct fo_session *s, struct fo_train_result *out, enum fo_verdict *verdict)
{
	const struct fo_batch *b;
	int64_t wait_ns = 0, pairs = 0;
	FO_TRY(fo_loader_next(s->loader, &b, &wait_ns));
	s->ports.batch = b;
	s->ports.loader = s->meta.step + 1 < s->r->steps ? s->loader : NULL;
	set_hyper(s, b);
	fo_session_kernels_begin(s);
	int64_t t0 = s->mark_ns;
	bool metered = fo_session_meters(s);
	fo_status st = metered ? fo_session_metered_step(s) : fo_exec_step(s->exec, (int32_t)s->meta.step);
	int64_t t1 = s->mark_ns = fo_now_ns();
	if (st != FO_OK) {
		s->torn = true;
		return fo_wrap(st, "step %lld", (long long)s->meta.step + 1);
	}
	fo_session_kernels_step(s);
	if (!metered)
		fo_profile_add_step(&out->profile, fo_exec_timeline(s->exec), &s->program, fo_exec_unrolled(s->exec),
				    (int32_t)s->meta.step, t0, t1, wait_ns);
	if (!s->steps_here)
		s->first_step = out->profile;
	for (int64_t m = 0; m < s->program.run.micro_batches; m++)
		pairs += b->pairs[m];
	struct fo_train_step t = { .step = s->meta.step + 1,
				   .steps = s->r->steps,
				   .metered = metered,
				   .loss = fo_unsigned_nan(s->ports.loss[0]),
				   .grad_norm = fo_unsigned_nan(s->ports.scale[1]),
				   .lr = s->ports.hyper[FO_HYPER_LR],
				   .seconds = (double)(t1 - t0) * 1e-9,
				   .data_seconds = (double)wait_ns * 1e-9,
				   .loss_tokens = b->loss_tokens };
	t.tokens = s->program.tokens * s->program.run.micro_batches;
	/* The bursts of a metered step are in its seconds: no rate comes of those. */
	double seconds = metered ? NAN : t.seconds;
	t.tokens_per_second = (double)t.loss_tokens / seconds;
	/* Padding is not useful work: MFU counts real tokens only. */
	t.mfu = fo_mfu_of_step(&s->program, (double)b->real_tokens, (double)pairs, seconds,
			       s->peak.flop_s > 0 ? s->peak.flop_s : NAN);
	/* A step that goes back loses its batch: what is counted of it is taken first. */
	count_step(s, b, &t, pairs);
	FO_TRY(fo_guard_judge(s, &t, verdict));
	if (*verdict != FO_STEP_TAKEN)
		return FO_OK;
	bool first = s->meta.step == s->meta.skipped; /* no step of the run was taken so far */
	s->meta.step++;
	s->meta.tokens += t.loss_tokens;
	s->meta.loss = t.loss;
	if (first)
		s->meta.first_step = t.step, s->meta.first_loss = t.loss;
	s->meta.grad_norm = t.grad_norm;
	s->meta.loader = fo_loader_state(s->loader);
	/* The running mean is enough for an ETA; the median is taken once, at the end. */
	const struct fo_profile *f = &out->profile;
	t.eta_seconds = (f->total_ns + f->untimed_ns) * 1e-9 / (double)(f->steps + f->untimed_steps) *
			(double)(t.steps - t.step);
	if (!out->loss_tokens)
		out->first_step = t.step, out->first_loss = t.loss;
	out->last_loss = t.loss;
	out->loss_tokens += t.loss_tokens;
	/* Mean of the last tenth: single steps are noisy. */
	if (t.step > s->r->steps - (s->r->steps + 9) / 10)
		s->tail_loss += t.loss, s->tail_steps++;
	if (s->h->step)
		s->h->step(s->h->ctx, &t);
	fo_session_publish_step(s, &t);
	return fo_session_log_step(s, &t);
}

static fo_status evaluate(struct fo_session *s, double *loss)
{
	double sum = 0, count = 0;
	for (int64_t i = 0; i < s->eval_batches; i++) {
		s->eval_ports.batch = &s->eval_batch[i];
		FO_TRY(fo_exec_step(s->eval, (int32_t)i));
		sum += s->eval_ports.loss[0];
		count += s->eval_ports.loss[1];
	}
	*loss = count > 0 ? fo_unsigned_nan(sum / count) : NAN;
	if (s->h->eval)
		s->h->eval(s->h->ctx, s->meta.step, *loss);
	fo_session_publish_eval(s, s->meta.step, *loss);
	return fo_session_log_eval(s, s->meta.step, *loss);
}

static fo_status run_loop(struct fo_session *s, struct fo_train_result *out)
{
	bool stopped = false;
	fo_session_watch_start(s);
	s->mark_ns = fo_now_ns();
	while (s->meta.step < s->r->steps && !stopped) {
		enum fo_verdict verdict;
		fo_status st = one_step(s, out, &verdict);
		fo_session_save_poll(s);
		if (st == FO_OK)
			st = fo_session_watch(s, false);
		if (st != FO_OK)
			return s->torn ? st : fo_session_rescue(s, st);
		stopped = s->h->stop && *s->h->stop;
		if (verdict == FO_STEP_REWOUND) {
			fo_session_publish_rewind(s);
			s->tail_loss = 0, s->tail_steps = 0; /* those steps come again */
			s->mark_ns = fo_now_ns();
			if (!stopped)
				continue;
		}
		bool last = s->meta.step == s->r->steps;
		bool eval = s->eval_batches && !stopped && (last || s->meta.step % s->r->eval_every == 0);
		bool save = s->r->ckpt_every && s->meta.step % s->r->ckpt_every == 0;
		if (eval || save || last || stopped)
			fo_nvml_watch_count(s->nvml, false);
		if (eval) {
			st = evaluate(s, &out->val_loss);
			if (st != FO_OK)
				return fo_session_rescue(s, st);
		}
		if (last || stopped)
			FO_TRY(fo_session_save_last(s, save));
		else if (save)
			FO_TRY(fo_session_save_begin(s));
		/* Between evaluations and checkpoints nothing is allocated, so memory need not be looked at. */
		if (eval || save || last || stopped || s->steps_here <= TIMELINE_STEPS) {
			int64_t rss = fo_memory_resident();
			fo_session_device_look(s);
			if (rss > s->rss_peak)
				s->rss_peak = rss;
			s->mark_ns = fo_now_ns();
		}
		fo_nvml_watch_count(s->nvml, !last && !stopped);
	}
	if (s->steps_here)
		FO_TRY(fo_session_watch(s, true));
	fo_session_saved(s, out->checkpoint, sizeof out->checkpoint);
	int64_t unsaved = fo_session_unsaved(s);
	if (stopped && s->meta.step < s->r->steps && unsaved)
		return fo_hint(fo_fail(FO_EINTERRUPT,
				       "stopped after step %lld of %lld; no weights of the last %lld %s were saved: "
				       "checkpoint.last=no",
				       (long long)s->meta.step, (long long)s->r->steps, (long long)unsaved,
				       unsaved == 1 ? "step" : "steps"),
			       *out->checkpoint ? "the same command goes on from the newest checkpoint, '%s'"
						: "%schoose another run.dir to train it again",
			       out->checkpoint);
	if (stopped && s->meta.step < s->r->steps)
		return fo_hint(fo_fail(FO_EINTERRUPT, "stopped after step %lld of %lld; the state is saved in '%s'",
				       (long long)s->meta.step, (long long)s->r->steps, out->checkpoint),
			       "the same command goes on from there");
	return FO_OK;
}

static void summarise(struct fo_session *s, struct fo_train_result *out)
{
	struct fo_memory m = fo_exec_memory(s->exec);
	out->steps = s->steps_here;
	out->tokens = s->stepped_tokens;
	out->seconds = (out->profile.total_ns + out->profile.untimed_ns) * 1e-9;
	out->peak = s->peak;
	out->planned_bytes = m.arena + (s->cuda ? 0 : m.host_arena) + m.persistent + m.workspace + other_bytes(s) +
			     fo_saver_bytes(s);
	fo_session_saved(s, out->checkpoint, sizeof out->checkpoint);
	out->steps_unsaved = fo_session_unsaved(s);
	/* A checkpoint of an earlier version does not know how the run began. */
	if (s->meta.first_step)
		out->first_step = s->meta.first_step, out->first_loss = s->meta.first_loss;
	out->skipped = s->meta.skipped;
	out->rewinds = s->meta.rewinds;
	out->measured_bytes = s->cuda ? s->device_used : s->rss_peak - s->rss_before;
	out->machine = fo_state_watch_total(&s->watch);
	out->joules_per_token = out->loss_tokens ? out->machine.joules / (double)out->loss_tokens : NAN;
	out->huge_share = fo_state_huge_share("");
	out->mean_loss = s->tail_steps ? s->tail_loss / (double)s->tail_steps : NAN;
	if (s->steps_here) {
		size_t kept = (size_t)(s->steps_timed < s->steps_kept ? s->steps_timed : s->steps_kept);
		out->tokens_per_second = fo_stats_median(s->step_tokens, kept);
		double seconds = fo_stats_median(s->step_seconds, kept), steps = (double)s->steps_here;
		double tokens = (double)s->real_tokens / steps;
		out->mfu = fo_mfu_of_step(&s->program, tokens, (double)s->pairs / steps, seconds,
					  s->peak.flop_s > 0 ? s->peak.flop_s : NAN);
		out->waste = 1 - (double)s->real_tokens / (double)s->stepped_tokens;
		out->truncated = (double)s->truncated / (double)(s->stepped_tokens + s->truncated);
	}
	fo_session_device_summarise(s, out);
}

fo_status fo_train(const struct fo_run *r, const struct fo_train_hooks *h, struct fo_train_result *out)
{
	struct fo_session s = { .r = r, .h = h, .lock = -1, .folder = -1, .log = -1 };
	fo_status st;
	*out = (struct fo_train_result){ .val_loss = NAN, .bigram_loss = NAN };
	st = open_session(
		&s); /* the corpus makes the run directory, once it knows that there is something to train on */
	if (st == FO_OK && !h->dry_run) {
		FO_TRY_OR(st, write_run_files(&s), done);
		FO_TRY_OR(st, fo_place_compute(&s.place), done);
		FO_TRY_OR(st, fo_session_meter_open(&s), done);
		const struct fo_train_plan plan = plan_of(&s);
		s.profile = &out->profile;
		FO_TRY_OR(st, fo_session_log_start(&s, &plan), done);
		if (s.meta.step < r->steps)
			fo_session_publish_open(&s, &plan);
		st = run_loop(&s, out);
		summarise(&s, out);
		/* A run that had nothing left to do keeps the timeline of its last steps. */
		if ((st == FO_OK || st == FO_EINTERRUPT) && out->steps) {
			fo_status wt = fo_timeline_write(fo_exec_timeline(s.exec), &s.program,
							 fo_arena_printf(&s.arena, "%s/timeline.fot", r->dir));
			st = st == FO_OK ? wt : st;
		}
		if (out->steps) {
			const char *how = st == FO_OK ? "done" : st == FO_EINTERRUPT ? "interrupted" : "failed";
			/* A full disk at the end is told by closing the log. */
			fo_status lt = fo_session_log_end_of_run(&s, out, how);
			st = st == FO_OK ? lt : st;
		}
		if (st == FO_OK)
			st = fo_session_log_close(&s);
		fo_place_undo(
			&s.place); /* the sample's lanes would inherit the one processor that this thread computes on */
		if (st == FO_OK && r->sample_tokens)
			st = fo_session_sample(&s, &out->sample);
	}
done:
	fo_place_undo(&s.place);
	close_session(&s);
	return st;
}

void fo_train_result_fini(struct fo_train_result *r)
{
	free(r->sample);
	r->sample = NULL;
}
