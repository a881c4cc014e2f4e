/* The plan of a run: what it will take, announced before any of it is taken, and refused where it does not fit. */
#include "train/setup.h"

#include <stdio.h>

/* ---- checkpoints ---- */

/* Checkpoints that the run adds to its folder, at most at one time: the newest ones stay while the next is written. */
static int64_t checkpoints_added(const struct fo_setup *s)
{
	const struct fo_run *r = s->run;
	int64_t every = r->ckpt_every, from = s->found.meta.step, there = fo_ckpt_count(s->folder.ckpt_dir), n = 0;
	if (r->steps <= from)
		return 0;
	if (every)
		n = r->steps / every - from / every;
	if (r->ckpt_last && (!every || r->steps % every))
		n++;
	if (!n || !r->ckpt_keep)
		return n;
	int64_t most = there + n < r->ckpt_keep + 1 ? there + n : r->ckpt_keep + 1;
	return most > there ? most - there : 1;
}

/* A copy is worth its memory only where a checkpoint is written while steps remain. */
static bool copies_checkpoints(const struct fo_setup *s)
{
	int64_t every = s->run->ckpt_every, last = s->run->steps - 1;
	return s->run->ckpt_async && every && last / every > s->found.meta.step / every;
}

/* Bytes of the copies that checkpoints on the processor are written from, of all ranks; 0: there are none. */
static int64_t copy_bytes(const struct fo_setup *s)
{
	return s->async && !s->cuda ? fo_keep_copy_bytes(s->step.store) + fo_team_copy_bytes(s->step.team) : 0;
}

/* ---- memory ---- */

/* Host memory of a run on a device, in bytes: tables, the pieces that its state passes through, staging, the loader,
 * activations that wait there, and the copy that checkpoints are written from. */
static int64_t host_bytes(const struct fo_setup *s)
{
	struct fo_memory m = fo_room_step_memory(&s->step), e = fo_exec_memory(s->step.eval);
	if (!s->cuda)
		return 0;
	return m.host + m.staging + e.staging + m.host_arena + fo_setup_loader_bytes(s) + s->host_copy;
}

int64_t fo_setup_planned(const struct fo_setup *s) { return fo_room_step_need(&s->step) + copy_bytes(s); }

/* A checkpoint is written while training goes on where there is memory for a copy of the state. */
static void decide_async(struct fo_setup *s)
{
	int64_t budget = fo_room_budget(s->run, fo_setup_free(s)), have = fo_memory_mappable(),
		copy = (int64_t)fo_pages_size((size_t)fo_store_bytes(s->step.store)) + fo_team_copy_bytes(s->step.team);
	bool fits = !budget || fo_room_step_need(&s->step) + copy <= budget;
	if (s->cuda)
		fits = !have || host_bytes(s) + copy <= have;
	s->async = copies_checkpoints(s) && fits;
	s->host_copy = s->cuda && s->async ? copy : 0;
}

void fo_setup_plan(const struct fo_setup *s, struct fo_train_plan *out)
{
	const struct fo_room_step *step = &s->step;
	*out = (struct fo_train_plan){
		.run = s->run,
		.program = &step->program,
		.instances = fo_exec_unrolled(step->exec),
		.memory = fo_room_step_memory(step),
		.memory_available = fo_setup_free(s),
		.memory_reserve = s->device_reserve,
		.memory_host = host_bytes(s),
		.memory_host_copy = s->host_copy,
		.memory_checkpoint = copy_bytes(s),
		.save_bytes = fo_store_checkpoint_bytes(step->store, &step->program),
		.save_count = checkpoints_added(s),
		.disk_free = fo_fs_free(s->folder.ckpt_dir),
		.peak = s->peak,
		.isa = step->options.isa,
		.paced = s->paced.open,
		.threads = step->options.threads,
		.ranks_here = fo_room_step_ranks_here(step),
		.resumed_step = s->found.meta.step,
		.train_tokens = s->corpus.train.tokens,
		.val_tokens = s->corpus.val.tokens,
		.params = fo_model_params(&step->model),
		.choice = step->choice,
	};
	out->memory_other = fo_room_step_need(step) - fo_memory_taken(&out->memory, s->cuda != NULL);
	out->codes = fo_exec_codes(step->exec, out->code);
	fo_exec_kernels(step->exec, out->kernels);
	if (!s->cuda)
		return;
	out->device = fo_cuda_info(s->cuda);
	out->devices = s->devices;
	out->over_nccl = fo_team_over_nccl(step->team);
	const struct fo_choose_rates rates = fo_device_choose_rates(out->device, fo_run_precision(s->run));
	out->gain_of_more = fo_program_gain_of_more(&step->program, &rates, FO_TRAIN_MICRO_BATCHES);
	fo_cuda_tune_result(s->cuda, &out->tuned);
}

/* ---- what does not fit ---- */

/* Hours of training are not to end at a disk that was too small from the start. That later ones do not fit beside each
 * other is a warning: what is there stays, and the disk may be larger by then. */
static fo_status disk_fits(struct fo_setup *s, const struct fo_train_plan *p)
{
	char one[32], all[32], have[32];
	fo_str_bytes(one, (double)p->save_bytes);
	fo_str_bytes(have, (double)p->disk_free);
	if (!p->save_count || !p->save_bytes || p->disk_free < 0 || p->save_count <= p->disk_free / p->save_bytes)
		return FO_OK;
	if (p->save_bytes > p->disk_free)
		return fo_hint(fo_fail(FO_EIO, "a checkpoint of this run takes %s, and the disk of '%s' has %s free",
				       one, s->run->dir, have),
			       "make room, choose another run.dir or a smaller state (optim.state=auto), or save no "
			       "weights: checkpoint.last=no and checkpoint.every=0");
	fo_events_warn(s->events,
		       "the disk of '%s' has %s free, and the run writes checkpoints of %s, %s at one time: not all "
		       "will fit%s",
		       s->run->dir, have, one, fo_str_bytes(all, (double)p->save_count * (double)p->save_bytes),
		       s->run->ckpt_keep ? "" : " (checkpoint.keep=0 keeps all)");
	return FO_OK;
}

/* The host's part of a run on a device. */
static fo_status host_fits(const struct fo_setup *s)
{
	char a[32], b[32];
	int64_t need = host_bytes(s), have = fo_memory_mappable();
	if (!s->cuda || !have || need <= have)
		return FO_OK;
	return fo_hint(
		fo_fail(FO_ENOMEM, "beside the device the run takes %s of this machine's memory, of which %s are free",
			fo_str_bytes(a, (double)need), fo_str_bytes(b, (double)have)),
		s->step.program.run.pass.offload ? "lower pass.offload, whose activations wait in host memory"
						 : "end other programs, or shorten the batch, which the loader holds");
}

static fo_status memory_fits(const struct fo_setup *s, const struct fo_train_plan *p, int64_t need, int64_t have)
{
	char a[32], b[32], c[32];
	if (!have || need <= have)
		return host_fits(s);
	fo_fail(FO_ENOMEM, "the run plans %s and may use %s", fo_str_bytes(a, (double)need),
		fo_str_bytes(b, (double)have));
	fo_str_bytes(c, (double)p->memory.arena);
	if (p->program->run.rows > 1)
		return fo_hint(FO_ENOMEM, "activations take %s: halve train.rows and double train.micro-batches", c);
	return fo_hint(FO_ENOMEM,
		       "activations take %s, weights and optimizer state %s: shorten data.seq or choose a smaller "
		       "model",
		       c, fo_str_bytes(a, (double)p->memory.persistent));
}

/* A pipeline that is legal and wasteful. */
static void warn_of_pipeline(const struct fo_setup *s)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(&s->step.program.run);
	struct fo_str text = { 0 };
	if (s->step.program.staged)
		fo_pp_remark(&shape, &text);
	if (text.len)
		fo_events_warn(s->events, "%s", text.data);
	fo_str_fini(&text);
}

fo_status fo_setup_announce(struct fo_setup *s)
{
	struct fo_train_plan p;
	int64_t need = fo_room_step_need(&s->step), have = fo_room_allowed(s->run, fo_setup_free(s));
	decide_async(s);
	fo_setup_plan(s, &p);
	FO_TRY(fo_events_send(s->events,
			      (struct fo_event){ .kind = FO_EVENT_PLAN, .step = s->found.meta.step, .plan = &p }));
	if (s->step.too_large.st != FO_OK)
		return fo_err_raise(&s->step.too_large);
	fo_setup_check_attention(s);
	warn_of_pipeline(s);
	if (copies_checkpoints(s) && !s->async && need <= have) {
		char copy[32];
		fo_events_warn(s->events,
			       "no memory %sfor a copy of the state (%s): training waits while a checkpoint is written",
			       s->cuda ? "on the host " : "", fo_str_bytes(copy, (double)p.memory.persistent));
	}
	FO_TRY(memory_fits(s, &p, need, have));
	return disk_fits(s, &p);
}
