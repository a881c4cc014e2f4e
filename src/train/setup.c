#include "train/setup.h"
#include "base/schema.h"
#include "hw/topology.h"
#include "record/rank_state.h"
#include "record/record.h"
#include "train/devices.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the device ---- */

/* The other ranks' devices. Threads open theirs when they are made, and what rank 0's device has free is for all that
 * share it; processes open theirs now, and each plans with its own part. */
static fo_status open_devices(struct fo_setup *s)
{
	struct fo_exec_devices *how = &s->step.options.devices;
	struct fo_devices seen;
	*how = (struct fo_exec_devices){ .tune = s->run->tune, .over = s->run->over };
	if (s->run->link_gbps > 0 || s->run->link_us > 0)
		how->over = FO_RUN_OVER_HOST; /* links that are emulated are the host's */
	snprintf(how->text, sizeof how->text, "%s", s->run->device);
	if (!s->hooks->processes) {
		s->step.sharing = fo_devices_sharing(s->run->device, (int)s->run->ranks, &s->devices);
		return FO_OK;
	}
	s->step.sharing = 1;
	fo_status st = fo_devices_open(&seen, s->hooks->processes->carrier, how, s->cuda);
	s->devices = seen.devices;
	s->device_have = seen.free_bytes;
	fo_devices_fini(&seen);
	return st;
}

fo_status fo_setup_device(struct fo_setup *s)
{
	char why[320] = "";
	int64_t total;
	if (fo_run_is_paced(s->run) || (s->run->ranks > 1 && strncmp(s->run->device, "cuda", 4)))
		return FO_OK; /* they compute on the processor, unless devices are asked for by name */
	if (s->run->ranks > 1)
		FO_TRY(fo_devices_open_own(s->run->device,
					   s->hooks->processes ? s->hooks->processes->self.local_rank : 0, &s->cuda));
	else
		FO_TRY(fo_device_open(s->run->device, &s->cuda, why, sizeof why));
	if (*why)
		fo_events_warn(s->events,
			       "a CUDA device is there but cannot be used: %s; the processor computes "
			       "(train.device=cpu says so at once)",
			       why);
	if (!s->cuda)
		return FO_OK;
	FO_TRY(fo_device_tune(s->cuda, s->run));
	fo_cuda_tune_hooks(s->cuda, s->hooks->progress, s->hooks->ctx, s->hooks->stop);
	FO_TRY(fo_cuda_memory(s->cuda, &s->device_free, &total));
	s->device_reserve = fo_device_reserve(total);
	s->device_have = s->device_free - s->device_reserve;
	return s->run->ranks > 1 ? open_devices(s) : FO_OK;
}

void fo_setup_check_attention(struct fo_setup *s)
{
	const char *why = NULL;
	if (s->cuda && fo_run_precision(s->run) == FO_PRECISION_BF16 && !s->attention_reported)
		why = fo_cuda_attention_note(s->cuda);
	if (!why)
		return;
	s->attention_reported = true;
	fo_events_warn(s->events, "attention runs on kernels that are slower than cuDNN's by a multiple: %s", why);
}

/* ---- programs ---- */

static int *predicted_option(struct fo_run *r, int i)
{
	return (int *)(void *)((char *)r + fo_predicted_pass[i].of_run);
}

/* Does the run leave anything open that a checkpoint may have decided? */
static bool is_open(struct fo_run *r)
{
	bool open = r->batch_rows || r->state || r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO;
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		open |= *predicted_option(r, i) == FO_RUN_AUTO;
	return open;
}

/* Makes the choices of a run the program's, where they are open. */
static void adopt_choices(struct fo_run *r, const struct fo_lowering *of)
{
	const int64_t rows = of->rows * fo_mesh_data(&of->mesh); /* of all ranks, which may be others now */
	if (r->batch_rows && of->seq == r->seq && rows * of->micro_batches == r->batch_rows &&
	    rows % fo_run_row_sets(r) == 0) {
		r->rows = rows;
		r->micro_batches = of->micro_batches;
		r->batch_rows = 0;
	}
	if (r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO && of->seq == r->seq)
		r->fuse_loss = of->pass.fuse_loss;
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (*predicted_option(r, i) == FO_RUN_AUTO)
			*predicted_option(r, i) = fo_passes_get(&of->pass, fo_predicted_pass[i].of_pass) ? FO_RUN_YES
													 : FO_RUN_NO;
	bool exact = of->pass.master != FO_MASTER_NONE && of->pass.moments == FO_MOMENTS_FP32;
	if (r->state == FO_RUN_STATE_AUTO || (r->state && exact)) {
		r->master = (int)of->pass.master;
		r->moments = (int)of->pass.moments;
		r->state = FO_RUN_STATE_GIVEN;
	}
}

/* Sums round as the step is split and as the loss is chunked, and the state is stored as it is: a run that goes on
 * keeps all of it, whatever memory is free. Without a checkpoint there is nothing to keep to. */
static void keep_choices(struct fo_setup *s)
{
	struct fo_program p;
	const char *path = fo_arena_printf(&s->arena, "%s/program.txt", s->run->dir);
	if (!fo_fs_exists(fo_arena_printf(&s->arena, "%s/checkpoints", s->run->dir)) || !is_open(&s->choosing) ||
	    !fo_fs_exists(path) || fo_program_read(&p, path, true) != FO_OK)
		return;
	adopt_choices(&s->choosing, &p.run);
	fo_program_fini(&p);
}

/* Defaults give way to what the file's program has, options that were given do not. */
static fo_status check_options(const struct fo_setup *s)
{
	struct fo_str text = { 0 };
	fo_status st = FO_OK;
	if (s->hooks->options)
		fo_run_contradicts(s->hooks->options, s->run, &s->step.program.run.pass, &text);
	if (text.len)
		st = fo_hint(
			fo_fail(FO_EARG, "options contradict the program in '%s': %s", s->run->program_file, text.data),
			"leave them out, or leave program.file out");
	fo_str_fini(&text);
	return st;
}

static bool is_split(const struct fo_run *r, const struct fo_lowering *run)
{
	if (r->batch_rows)
		return run->rows * run->micro_batches == r->batch_rows;
	return run->rows == r->rows && run->micro_batches == r->micro_batches;
}

static fo_status read_program(struct fo_setup *s)
{
	const struct fo_run *r = s->run;
	struct fo_program *p = &s->step.program;
	FO_TRY(fo_program_read(p, r->program_file, false));
	s->step.model = p->model;
	s->step.given = true;
	if (p->run.seq != r->seq || !is_split(r, &p->run) || p->run.precision != fo_run_precision(r) ||
	    p->run.mode != FO_MODE_TRAIN)
		return fo_hint(fo_fail(FO_EARG,
				       "the program in '%s' was made for train.micro-batches=%lld, train.rows=%lld, "
				       "data.seq=%lld, train.precision=%s, this run says otherwise",
				       r->program_file, (long long)p->run.micro_batches, (long long)p->run.rows,
				       (long long)p->run.seq, fo_numerics_name[p->run.precision]),
			       "use the run.yaml it was dumped from");
	return check_options(s);
}

int64_t fo_setup_free(const struct fo_setup *s)
{
	if (s->cuda)
		return s->device_have;
	return s->hooks->processes ? fo_processes_memory(s->hooks->processes) : fo_memory_available();
}

/* What all ranks of this process use is what the peak is of: each has at least one, and all have the same number. */
static int choose_threads(const struct fo_setup *s)
{
	const int given = (int)s->run->threads, ranks = fo_room_step_ranks_here(&s->step);
	if (s->hooks->processes)
		return given ? given : fo_processes_threads(s->hooks->processes);
	if (ranks == 1 || given)
		return ranks * fo_team_threads(given ? given : fo_cpu_threads(), ranks);
	struct fo_cpus *share = fo_xmalloc((size_t)ranks * sizeof *share);
	const int own = fo_topology_share_here(ranks, share);
	free(share);
	return ranks * own;
}

/* Where compute threads run. Ranks that are processes were bound when they joined. */
static fo_status choose_place(struct fo_setup *s)
{
	struct fo_room_step *p = &s->step;
	const int ranks = fo_room_step_ranks_here(p);
	p->options.bind = ranks > 1 && !strcmp(s->run->affinity, "auto");
	if (!p->options.bind)
		return fo_place_plan(&s->place, s->run->affinity, p->options.threads, NULL, NULL);
	struct fo_cpus *share = fo_xmalloc((size_t)ranks * sizeof *share);
	(void)fo_topology_share_here(ranks, share);
	fo_place_share(&s->place, share, fo_team_threads(p->options.threads, ranks));
	free(share);
	return FO_OK;
}

fo_status fo_setup_programs(struct fo_setup *s)
{
	struct fo_room_step *p = &s->step;
	s->choosing = *s->run;
	p->run = s->run;
	p->open = &s->choosing;
	p->options.cuda = s->cuda;
	p->processes = s->hooks->processes;
	p->options.threads = choose_threads(s);
	p->options.local.bytes_s = s->run->link_gbps * 1e9 / 8;
	p->options.local.latency_s = s->run->link_us * 1e-6;
	FO_TRY(fo_run_model(s->run, &p->model));
	if (*s->run->program_file)
		FO_TRY(read_program(s));
	else
		keep_choices(s);
	p->have = fo_setup_free(s);
	return fo_room_step_programs(p, 0);
}

fo_status fo_setup_check_weights(struct fo_setup *s)
{
	char *found = NULL;
	if (!*s->run->weights)
		return FO_OK;
	if (!s->hooks->dry_run)
		FO_TRY(fo_ckpt_newest(&s->arena, s->folder.ckpt_dir, true, &found));
	return found ? FO_OK : fo_weights_check(&s->step.program, s->run->weights);
}

/* ---- data ---- */

struct fo_batch_shape fo_setup_shape(const struct fo_setup *s, const struct fo_program *p)
{
	return (struct fo_batch_shape){ .seq = p->run.seq,
					.rows = p->run.rows * fo_mesh_data(&p->run.mesh), /* of all ranks */
					.micro_batches = p->run.micro_batches,
					.packing = (enum fo_packing)s->run->packing,
					.window = s->step.model.sliding_window };
}

fo_status fo_setup_loader(const struct fo_setup *s, const struct fo_loader_state *from, struct fo_loader **out)
{
	struct fo_batch_shape shape = fo_setup_shape(s, &s->step.program);
	const int32_t pad = fo_tokenizer_eos(s->corpus.tokenizer);
	struct fo_order_share *order = NULL;
	if (s->hooks->processes) {
		FO_TRY(fo_processes_loader(s->hooks->processes, &s->corpus.train, &shape, from, pad, &order));
		shape.own_rows = s->step.program.run.rows;
	}
	return fo_loader_open_shared(out, &s->corpus.train, &shape, from, pad, order);
}

/* Tokens of a batch of evaluation, of all ranks. */
static int64_t eval_tokens(const struct fo_setup *s)
{
	const struct fo_lowering *run = &s->step.eval_program.run;
	return run->rows * run->seq * fo_mesh_data(&run->mesh);
}

int64_t fo_setup_loader_bytes(const struct fo_setup *s)
{
	enum { TOKEN_BYTES = 16, STEPS = 3 }; /* four int32 each; steps that are alive at once (data.h) */
	const struct fo_room_step *p = &s->step;
	struct fo_batch_shape shape = fo_setup_shape(s, &p->program);
	const int64_t here = fo_room_step_rows_here(p);
	int64_t step = p->program.run.rows * p->program.run.seq * here * p->program.run.micro_batches * TOKEN_BYTES,
		eval = p->eval_program.run.rows * p->eval_program.run.seq * here * TOKEN_BYTES * s->eval_batches,
		order = fo_loader_order_bytes(&s->corpus.train, &shape,
					      p->processes ? fo_processes_on_host(p->processes) : 1);
	const struct fo_program *evaluation = p->eval_program.nbuf ? &p->eval_program : NULL;
	const int64_t pieces = p->processes ? fo_links_bytes(&p->program, evaluation) : 0;
	return (int64_t)fo_pages_size((size_t)(STEPS * step + order)) + eval + pieces +
	       (int64_t)fo_pages_size(fo_exec_timeline(p->exec)->bytes) + fo_team_beside_bytes(p->team) +
	       (int64_t)fo_pages_size(fo_exec_timeline(p->eval)->bytes);
}

/* Evaluation reads the same held-out micro-batches each time: copied once, so that evaluating allocates nothing. */
fo_status fo_setup_eval_batches(struct fo_setup *s)
{
	struct fo_batch_shape shape = fo_setup_shape(s, &s->step.eval_program);
	const int32_t pad = fo_tokenizer_eos(s->corpus.tokenizer);
	if (s->run->eval_packing)
		shape.packing = (enum fo_packing)(s->run->eval_packing - 1);
	if (!s->eval_batches)
		return FO_OK;
	if (s->hooks->processes) {
		FO_TRY(fo_processes_eval_data(s->hooks->processes, s->corpus.dir, s->corpus.val.checksum, &shape,
					      s->eval_batches, pad));
		shape.own_rows = s->step.eval_program.run.rows;
	}
	return fo_eval_batches(&s->arena, &s->corpus.val, &shape, pad, s->eval_batches, &s->eval_batch);
}

/* The corpus makes the run's folder once it knows that there is something to train on. */
fo_status fo_setup_data(struct fo_setup *s)
{
	const struct fo_train_hooks *h = s->hooks;
	fo_processes_use_all(h->processes, true);
	fo_status st = fo_corpus_open(&s->corpus, s->run, s->step.model.vocab, h->progress, h->ctx, h->stop);
	fo_processes_use_all(h->processes, false);
	FO_TRY(st);
	s->eval_batches = s->run->eval_every ? s->run->eval_batches : 0;
	/* No more evaluation than held-out text. */
	int64_t most = s->corpus.val.tokens / eval_tokens(s);
	if (s->eval_batches > most)
		s->eval_batches = most > 0 ? most : s->corpus.val.tokens > 1;
	return h->processes ? fo_processes_data(h->processes, s->corpus.dir, s->corpus.train.checksum) : FO_OK;
}

/* ---- executors ---- */

static int64_t bytes_beside(const void *setup)
{
	const struct fo_setup *s = setup;
	return s->cuda ? 0 : fo_setup_loader_bytes(s); /* a device's memory holds neither */
}

fo_status fo_setup_executors(struct fo_setup *s)
{
	struct fo_room_step *p = &s->step;
	FO_TRY(choose_place(s));
	/* Lanes and loader, which start from here on, leave the compute threads alone. */
	FO_TRY(fo_place_others(&s->place));
	p->options.timeline_steps = FO_TIMELINE_STEPS;
	p->options.timed_every = (int)(s->run->timed_every < INT32_MAX ? s->run->timed_every : INT32_MAX);
	FO_TRY(fo_isa_choose(&p->options.isa));
	if (p->processes)
		p->options.isa = fo_processes_isa(p->processes, p->options.isa);
	if (s->run->inputs_ahead)
		p->batch = fo_ports_batch;
	s->ports.ranks = s->eval_ports.ranks = fo_room_step_rows_here(p);
	fo_ports_own_tokens(&s->ports, &p->program.run);
	fo_ports_own_tokens(&s->eval_ports, &p->program.run);
	p->port = fo_ports_serve;
	p->ctx = &s->ports;
	p->eval_ctx = &s->eval_ports;
	p->beside = bytes_beside;
	p->beside_ctx = s;
	p->have = fo_setup_free(s);
	fo_status st = fo_room_step_executors(p);
	if (st == FO_EUNSUPPORTED && s->cuda)
		return fo_hint(st, "train.device=cpu runs it on the processor");
	/* A dumped program that names its buffers otherwise is the user's mistake, not ours. */
	if (st == FO_EBUG && p->given)
		return fo_wrap(FO_EFORMAT, "the program in '%s' does not fit this run", s->run->program_file);
	if (st != FO_OK)
		return st;
	const struct fo_cpus own = fo_place_cpus(&s->place);
	const int threads = fo_team_threads(p->options.threads, fo_room_step_ranks_here(p));
	fo_rank_state_processors(p->options.state, threads, &own);
	fo_keep_init(&s->keep, &p->program, p->store, p->exec, fo_team_world(p->team), threads);
	s->keep.sums = fo_team_tasks(p->team);
	return FO_OK;
}

/* ---- the state ---- */

void fo_setup_meta(const struct fo_setup *s, struct fo_ckpt_meta *meta)
{
	const struct fo_run *r = s->run;
	const struct fo_lowering *p = &s->step.program.run;
	*meta = (struct fo_ckpt_meta){ .seed = (uint64_t)r->seed,
				       .loader = { .seed = (uint64_t)r->seed,
						   .shard_checksum = s->corpus.train.checksum },
				       .seq = r->seq,
				       .rows_per_step = p->rows * fo_mesh_data(&p->mesh) * p->micro_batches,
				       .packing = r->packing };
	if (s->corpus.tokenizer)
		meta->tokenizer_checksum = fo_tokenizer_checksum(s->corpus.tokenizer);
	snprintf(meta->precision, sizeof meta->precision, "%s", fo_numerics_name[fo_run_precision(r)]);
	snprintf(meta->master, sizeof meta->master, "%s", fo_master_name[p->pass.master]);
	snprintf(meta->moments, sizeof meta->moments, "%s", fo_moments_name[p->pass.moments]);
}

static fo_status fill(struct fo_setup *s, enum fo_keep_kind kind, const char *path)
{
	struct fo_keep_task task = { .kind = kind, .seed = (uint64_t)s->run->seed };
	if (snprintf(task.path, sizeof task.path, "%s", path) >= (int)sizeof task.path)
		return fo_fail(FO_EARG, "the path '%.200s...' is too long", path);
	return fo_team_fill(s->step.team, &s->keep, &task);
}

fo_status fo_setup_weights(struct fo_setup *s)
{
	if (s->paced.open) /* nobody reads them: their memory stays untouched */
		return FO_OK;
	if (*s->run->weights && !s->found.path) /* a checkpoint of this run is further on than its start */
		return fill(s, FO_KEEP_LOAD, s->run->weights);
	return fill(s, FO_KEEP_INIT, "");
}

fo_status fo_setup_read(struct fo_setup *s, const char *path)
{
	FO_TRY(fill(s, FO_KEEP_READ, path));
	if (s->keep.afresh)
		fo_events_warn(s->events,
			       "histories of fp8 maxima begin empty: this mesh or its passes cast other tensors "
			       "than those of checkpoint '%s'",
			       path);
	return FO_OK;
}

/* ---- run.json and program.txt ---- */

static const char *hex_text(struct fo_setup *s, uint64_t v) { return fo_arena_printf(&s->arena, "%016" PRIx64, v); }

/* run.json: what the caller knows (options with origins, version), this machine, checksums of data and tokenizer. */
static void describe_run(struct fo_setup *s, const struct fo_ckpt_meta *meta, struct fo_str *out)
{
	const struct fo_room_step *step = &s->step;
	struct fo_str passes = { 0 };
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	fo_passes_text(&step->program.run.pass, &passes); /* of a program from a file too */
	struct fo_record r = {
		.run = s->hooks->run_json,
		.passes = passes.data,
		.cpu = cpu,
		.threads = step->options.threads,
		.processes = step->processes ? s->run->ranks : 0,
		.hosts = step->processes ? fo_processes_hosts(step->processes) : 0,
		.isa = s->paced.open ? FO_RECORD_PACED : fo_isa_name[step->options.isa],
		.peak_flop_s = fo_peak_or_nan(&s->peak),
		.peak_source = s->peak.source,
		.device = s->cuda ? fo_cuda_info(s->cuda)->name : NULL,
		.affinity = s->run->affinity,
		.seed = s->run->seed,
		.tokenizer_checksum = hex_text(s, meta->tokenizer_checksum),
		.train_checksum = hex_text(s, s->corpus.train.checksum),
		.val_checksum = hex_text(s, s->corpus.val.checksum),
		.program_hash = hex_text(s, fo_program_hash(&step->program)),
	};
	fo_machine_read(&r.state, "");
	fo_schema_text(&fo_run_schema, &r, true, out);
	fo_str_puts(out, "\n");
	fo_str_fini(&passes);
}

fo_status fo_setup_write_files(struct fo_setup *s, const struct fo_ckpt_meta *meta)
{
	struct fo_str text = { 0 };
	fo_program_dump(&s->step.program, &text);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/program.txt", s->run->dir), text.data,
					  text.len);
	text.len = 0;
	describe_run(s, meta, &text);
	s->run_json = fo_arena_strdup(&s->arena, text.data);
	if (st == FO_OK)
		st = fo_setup_paced_write(s);
	if (st == FO_OK)
		st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/run.json", s->run->dir), text.data, text.len);
	fo_str_fini(&text);
	return st;
}

void fo_setup_close(struct fo_setup *s)
{
	fo_keep_close(&s->keep);
	fo_room_step_close(&s->step);
	fo_cuda_close(s->cuda);
	fo_setup_paced_close(s);
	fo_corpus_close(&s->corpus);
	fo_folder_close(&s->folder);
	fo_arena_fini(&s->arena);
}
