#include "cli/engine/screen.h"

#include "base/clock.h"
#include "base/mem.h"
#include "timeline/timeline.h"
#include "train/device.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_NS 100000000  /* ten times a second is enough for the eye */
#define PLAIN_NS 10000000000 /* a log wants to see that something moves, no more */

volatile sig_atomic_t fo_stop_requested;
static volatile sig_atomic_t asked; /* by hand: SIGINT or SIGTERM */

/* A terminal that goes away says so to each process of it, a shell that it ends says it again, and service managers
 * send SIGTERM beside it: none of that is a second, impatient wish. */
static void on_signal(int sig)
{
	static const char text[] = "\nstopping as soon as all is saved (again: stop at once)\n";
	int before = errno;
	if (sig != SIGHUP && asked)
		_exit(128 + sig);
	if (sig != SIGHUP)
		asked = 1;
	if (!fo_stop_requested && write(STDERR_FILENO, text, sizeof text - 1) < 0)
		errno = 0;
	fo_stop_requested = 1;
	errno = before;
}

void fo_catch_signals(void)
{
	static const int wish[] = { SIGINT, SIGTERM, SIGHUP };
	struct sigaction a = { .sa_handler = on_signal, .sa_flags = SA_RESTART }, before;
	sigemptyset(&a.sa_mask);
	for (size_t i = 0; i < sizeof wish / sizeof *wish; i++)
		sigaddset(&a.sa_mask, wish[i]);
	for (size_t i = 0; i < sizeof wish / sizeof *wish; i++)
		/* nohup, and a shell's background jobs, have it ignored: that stays. */
		if (!sigaction(wish[i], NULL, &before) && (wish[i] != SIGHUP || before.sa_handler != SIG_IGN))
			sigaction(wish[i], &a, NULL);
}

void fo_screen_init(struct fo_screen *s, const struct fo_run *r, bool json)
{
	*s = (struct fo_screen){
		.out = json ? stderr : stdout, .log_every = r->log_every, .dir = r->dir, .paced = fo_run_is_paced(r)
	};
	s->live = fo_cli_is_live(s->out);
}

void fo_screen_end_line(struct fo_screen *s)
{
	if (s->open_line)
		fputc('\n', s->out);
	s->open_line = false;
}

static bool redraw_now(struct fo_screen *s)
{
	int64_t now = fo_now_ns();
	if (now - s->last_ns < REDRAW_NS)
		return false;
	s->last_ns = now;
	return true;
}

/* Can text be written without waiting for its reader? The log has whatever is not shown. */
static bool is_read(const struct fo_screen *s)
{
	struct pollfd p = { .fd = fileno(s->out), .events = POLLOUT };
	return poll(&p, 1, 0) != 0; /* an error is for writing to tell */
}

static void put_line(struct fo_screen *s, const char *text)
{
	if (!is_read(s))
		return;
	if (s->live) {
		fo_cli_live(s->out, text);
		s->open_line = true;
	} else {
		fprintf(s->out, "%s\n", text);
	}
	fflush(s->out);
}

/* ---- hooks ---- */

static void duration(char *buf, size_t size, double seconds)
{
	if (seconds < 100)
		snprintf(buf, size, "%.0f s", seconds);
	else if (seconds < 6000)
		snprintf(buf, size, "%.0f min", seconds / 60);
	else
		snprintf(buf, size, "%.1f h", seconds / 3600);
}

static void amount(char buf[32], double n, bool bytes)
{
	bytes ? fo_str_bytes(buf, n) : fo_str_si(buf, n, "");
	size_t len = strlen(buf);
	if (len && buf[len - 1] == ' ') /* in front of a unit that is not there */
		buf[len - 1] = 0;
}

void fo_screen_progress(void *ctx, const char *what, const char *unit, double done, double total)
{
	struct fo_screen *s = ctx;
	char a[32], b[32], line[200];
	bool news = strncmp(what, s->last_what, sizeof s->last_what - 1) != 0, bytes = !strcmp(unit, "bytes");
	int64_t now = fo_now_ns();
	if (news) {
		fo_screen_end_line(s);
		snprintf(s->last_what, sizeof s->last_what, "%s", what);
		s->what_ns = s->last_ns = now;
		s->what_done = done;
		if (s->live)
			return; /* something short is not worth a line */
		put_line(s, what);
		return;
	}
	if (s->live ? !redraw_now(s) : now - s->last_ns < PLAIN_NS)
		return;
	s->last_ns = now;
	amount(a, done, bytes);
	amount(b, total, bytes);
	int n = snprintf(line, sizeof line, total > 0 ? "%s: %s of %s" : "%s: %s", what, a, b);
	if (!bytes)
		n += snprintf(line + n, sizeof line - (size_t)n, " %s", unit);
	double seconds = (double)(now - s->what_ns) * 1e-9, rate = (done - s->what_done) / seconds;
	if (seconds >= 1 && rate > 0) {
		amount(a, rate, bytes);
		n += snprintf(line + n, sizeof line - (size_t)n, ", %s/s", a);
		duration(b, sizeof b, (total - done) / rate);
		if (total > done)
			snprintf(line + n, sizeof line - (size_t)n, ", %s left", b);
	}
	put_line(s, line);
}

static void plan_json(const struct fo_train_plan *p, struct fo_json *j)
{
	const struct fo_program *g = p->program;
	struct fo_flop f = fo_model_flop_per_token(&g->model, g->run.seq);
	fo_json_put(j, FO_TEXT("model", g->model.name), FO_REAL("params", p->params.total));
	fo_json_record(j, "flop_per_token", FO_REAL("mfu", f.mfu), FO_REAL("mfu_causal", f.mfu_causal),
		       FO_REAL("mfu_6n", f.mfu_6n));
	fo_json_put(j, FO_INT("micro_batches", g->run.micro_batches), FO_INT("rows", g->run.rows),
		    FO_INT("seq", g->run.seq), FO_TEXT("precision", fo_numerics_name[g->run.precision]),
		    FO_INT("slots", g->nslot));
	fo_json_object(j, "passes");
	for (int i = 0; i < fo_pass_fields; i++)
		fo_json_int(j, fo_pass_field[i].name, fo_passes_get(&g->run.pass, fo_pass_field[i].offset));
	fo_json_close(j);
	if (p->choice.seconds > 0)
		fo_json_record(j, "chosen", FO_REAL("recompute_share", p->choice.repeat_seconds / p->choice.seconds),
			       FO_INT("candidates", p->choice.candidates), FO_INT("planned", p->choice.planned));
	fo_json_real(j, "fuse_loss_gain", p->choice.fuse_loss ? p->choice.fuse_loss_gain : NAN);
	fo_json_object(j, "predicted");
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (p->choice.predicted[i].open)
			fo_json_record(j, fo_predicted_pass[i].key, FO_BOOL("taken", p->choice.predicted[i].taken),
				       FO_REAL("gain", p->choice.predicted[i].gain));
	fo_json_close(j);
	fo_json_real(j, "micro_batches_gain", p->device ? p->gain_of_more : NAN);
	fo_json_object(j, "memory");
	fo_json_put(j, FO_INT("total_bytes", fo_train_planned(p)), FO_INT("arena_bytes", p->memory.arena),
		    FO_INT("host_arena_bytes", p->memory.host_arena), FO_INT("persistent_bytes", p->memory.persistent),
		    FO_INT("workspace_bytes", p->memory.workspace), FO_INT("other_bytes", p->memory_other),
		    FO_INT("checkpoint_bytes", p->memory_checkpoint), FO_INT("available_bytes", p->memory_available));
	if (p->device)
		fo_json_put(j, FO_INT("reserve_bytes", p->memory_reserve), FO_INT("host_bytes", p->memory_host),
			    FO_INT("host_copy_bytes", p->memory_host_copy));
	fo_json_close(j);
	fo_json_record(j, "checkpoints", FO_INT("bytes", p->save_bytes), FO_INT("at_once", p->save_count),
		       FO_REAL("disk_free_bytes", fo_json_when(p->disk_free >= 0, (double)p->disk_free)));
	fo_json_text(j, "device", p->device ? p->device->name : NULL);
	if (p->device) {
		fo_json_object(j, "products");
		fo_device_tuned_json(&p->tuned, p->run, j);
		fo_json_close(j);
	}
	fo_json_object(j, "code");
	for (int i = 0; i < p->codes; i++)
		fo_json_int(j, p->code[i].by, p->code[i].instances);
	fo_json_close(j);
	fo_json_put(j, FO_TEXT("isa", fo_isa_name[p->isa]), FO_INT("threads", p->threads));
	fo_json_object(j, "kernels");
	for (int i = 0; i < FO_ISA_COUNT; i++)
		fo_json_int(j, fo_isa_name[i], p->kernels[i]);
	fo_json_close(j);
	fo_json_put(j, FO_REAL("peak_flop_s", fo_peak_or_nan(&p->peak)),
		    FO_TEXT("peak_source", fo_json_some(p->peak.source)));
}

/* The chunk that was chosen for a device, and the gain of more micro-batches there: the user decides about the
 * batch. */
static void say_choices(const struct fo_train_plan *p, struct fo_doc *d)
{
	const struct fo_lowering *run = &p->program->run;
	int64_t chunk = run->pass.fuse_loss, tokens = run->rows * run->seq;
	if (p->choice.seconds > 0 && p->choice.run.pass.recompute) {
		struct fo_str text = { 0 };
		fo_recompute_text(run, p->program->model.layers, &text);
		fo_doc_line(d, "auto", "recomputes %s: %.1f %% of a step's time by the model that chose", text.data,
			    100 * p->choice.repeat_seconds / p->choice.seconds);
		fo_str_fini(&text);
	}
	if (p->choice.fuse_loss && p->choice.fuse_loss_gain > 0)
		fo_doc_line(d, "auto",
			    "head and loss %s%lld tokens on this device: up to %.1f %% of a step's time less than by "
			    "%d, by the model that chose",
			    chunk < tokens ? "by chunks of " : "at once for all ",
			    (long long)(chunk < tokens ? chunk : tokens), 100 * p->choice.fuse_loss_gain,
			    FO_RUN_FUSE_LOSS);
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (p->choice.predicted[i].taken)
			fo_doc_line(d, "auto", "%s=yes on this device: %.1f %% of a step's time less, predicted",
				    fo_predicted_pass[i].key, 100 * p->choice.predicted[i].gain);
	if (p->gain_of_more >= 5e-4) /* less would show as 0.0 % */
		fo_doc_line(d, "hint",
			    "train.micro-batches=%d would share the optimizer among more tokens: %.1f %% of the time "
			    "less, by the same model; it makes the batch larger",
			    FO_TRAIN_MICRO_BATCHES, 100 * p->gain_of_more);
}

/* ", copy for checkpoints 12.0 MiB"; "" where none is planned. */
static const char *copy_text(struct fo_doc *d, int64_t bytes)
{
	return bytes ? fo_doc_printf(d, ", copy for checkpoints %s", fo_doc_bytes(d, bytes)) : "";
}

/* Whose memory a line is about. */
static const char *whose_memory(bool device, int ranks, int ranks_here)
{
	if (device)
		return "of the device ";
	if (ranks <= 1)
		return "";
	return fo_word(ranks_here, "of each rank ", "of all ranks ");
}

static void say_memory(const struct fo_train_plan *p, struct fo_doc *d)
{
	fo_doc_line(d, "memory",
		    "%s%s: activations and gradients %s, weights and optimizer %s, workspace %s, other %s%s; %s "
		    "available",
		    whose_memory(p->device, p->program->ranks, p->ranks_here), fo_doc_bytes(d, fo_train_planned(p)),
		    fo_doc_bytes(d, p->memory.arena), fo_doc_bytes(d, p->memory.persistent),
		    fo_doc_bytes(d, p->memory.workspace), fo_doc_bytes(d, p->memory_other),
		    copy_text(d, p->memory_checkpoint), fo_doc_bytes(d, p->memory_available));
	if (p->device)
		fo_doc_line(d, "",
			    "%s more of the device are left alone; the host holds %s (tables, staging, loader%s)",
			    fo_doc_bytes(d, p->memory_reserve), fo_doc_bytes(d, p->memory_host),
			    copy_text(d, p->memory_host_copy));
	if (p->memory.host_arena)
		fo_doc_line(d, "", "of %s %s of activations that wait for backward in host memory",
			    p->device ? "the latter" : "it", fo_doc_bytes(d, p->memory.host_arena));
}

static void say_saves(const struct fo_train_plan *p, struct fo_doc *d)
{
	if (p->save_count)
		fo_doc_line(d, "saves", "checkpoints of %s, %lld more at one time; the disk has %s free%s",
			    fo_doc_bytes(d, p->save_bytes), (long long)p->save_count,
			    p->disk_free < 0 ? "an unknown amount" : fo_doc_bytes(d, p->disk_free),
			    p->run->ckpt_last ? "" : "; none at the end: checkpoint.last=no");
	else if (!p->run->ckpt_last)
		fo_doc_line(d, "saves", "no weights: checkpoint.last=no%s",
			    p->run->ckpt_every ? "" : ", checkpoint.every=0");
}

/* Says how the algorithms of matmuls were chosen; nothing where all are the library's proposals. */
static void say_matmuls(const struct fo_cuda_tuned *t, struct fo_doc *d)
{
	const char *text = "";
	if (t->measured)
		text = fo_doc_printf(d, "%d measured in %.1f s (%.3f times as fast as the first proposals), ",
				     t->measured, t->seconds, t->gain);
	if (t->by_blocks)
		text = fo_doc_printf(d, "%s%d of them chosen by blocks of a second (%d by their energy), ", text,
				     t->by_blocks, t->by_energy);
	if (t->measured || t->kept)
		text = fo_doc_printf(d, "%s%d from the cache, ", text, t->kept);
	if (*text || *t->note)
		fo_doc_line(d, "", "matmuls: %s%d as the library proposes%s%s", text, t->proposed, *t->note ? "; " : "",
			    t->note);
}

static const char *whose_after(const struct fo_train_plan *p)
{
	if (p->program->ranks == 1)
		return "";
	return fo_word(p->ranks_here, " of each rank", " of all ranks");
}

/* Says which kernel sets or libraries run the step's operations. */
static void say_kernels(const struct fo_train_plan *p, struct fo_doc *d)
{
	const char *sets = "";
	for (int i = 0; p->device && i < p->codes; i++)
		sets = fo_doc_join(d, sets, fo_doc_printf(d, "%d %s", p->code[i].instances, p->code[i].by));
	for (int i = 0; !p->device && i < FO_ISA_COUNT; i++)
		if (p->kernels[i])
			sets = fo_doc_join(d, sets, fo_doc_printf(d, "%d %s", p->kernels[i], fo_isa_name[i]));
	if (!*sets)
		sets = "no";
	if (p->device)
		fo_doc_line(d, "device", "cuda:%d, %s%s: %s operations per step", p->device->index, p->device->name,
			    p->device->software ? " (a model of one: its times mean nothing)" : "", sets);
	if (p->device && p->program->ranks > 1)
		fo_doc_line(d, "ranks", "on %d %s; calls between them go %s", p->devices,
			    fo_word(p->devices, "device", "devices"),
			    p->over_nccl ? "over NCCL" : "through host memory");
	if (p->paced)
		fo_doc_line(d, "kernels",
			    "none: paced, each operation waits the time that '%s' gives it on %d %s, and computes "
			    "nothing",
			    fo_cli_seen(p->run->paced), p->threads / p->ranks_here,
			    fo_word(p->threads / p->ranks_here, "thread", "threads"));
	else if (!p->device)
		fo_doc_line(d, "kernels", "%s on %d %s%s: %s operations per step", fo_isa_name[p->isa], p->threads,
			    fo_word(p->threads, "thread", "threads"), whose_after(p), sets);
	say_matmuls(&p->tuned, d);
}

static void say_plan(const struct fo_train_plan *p, struct fo_doc *d)
{
	const struct fo_model *m = &p->program->model;
	const struct fo_lowering *run = &p->program->run;
	struct fo_str passes = { 0 };
	fo_doc_line(d, "model",
		    "%s: %s parameters (%lld %s, hidden %lld, %lld %s, ffn %lld, vocabulary %lld), %s per token at "
		    "sequence %lld",
		    m->name, fo_doc_si(d, p->params.total, ""), (long long)m->layers,
		    fo_word(m->layers, "layer", "layers"), (long long)m->hidden, (long long)m->heads,
		    fo_word(m->heads, "head", "heads"), (long long)m->ffn, (long long)m->vocab,
		    fo_doc_si(d, fo_model_flop_per_token(m, run->seq).mfu, "FLOP"), (long long)run->seq);
	fo_doc_line(d, "step", "%s; %d slots", fo_cli_run_text(d, run), p->program->nslot);
	fo_passes_text(&run->pass, &passes);
	fo_doc_line(d, "passes", "%s", passes.data);
	if (p->program->staged) {
		passes.len = 0;
		fo_lowering_parts_text(run, m->layers, &passes);
		fo_doc_line(d, "stages", "with %s layers in the order of the model; passes are the first stage's",
			    passes.data);
	}
	fo_str_fini(&passes);
	say_choices(p, d);
	say_memory(p, d);
	say_saves(p, d);
	say_kernels(p, d);
	if (p->peak.flop_s > 0)
		fo_doc_line(d, "peak", "%s/s %s, %s", fo_doc_si(d, p->peak.flop_s, "FLOP"), p->peak.dtype,
			    p->peak.source);
	else if (*p->peak.source)
		fo_doc_line(d, "peak", "unknown: %s", p->peak.source);
	if (p->train_tokens)
		fo_doc_line(d, "data", "%stokens to train on, %sheld out", fo_doc_si(d, (double)p->train_tokens, " "),
			    fo_doc_si(d, (double)p->val_tokens, " "));
	if (p->resumed_step)
		fo_doc_line(d, "resume", "after step %lld", (long long)p->resumed_step);
}

static void on_plan(void *ctx, const struct fo_train_plan *p)
{
	struct fo_screen *s = ctx;
	struct fo_doc d = { 0 };
	if (s->plan)
		plan_json(p, s->plan);
	if (!s->plan_is_all && !is_read(s))
		return;
	fo_screen_end_line(s);
	say_plan(p, &d);
	fo_cli_print(s->out, &d);
	fo_doc_fini(&d);
	fflush(s->out);
}

static void on_step(void *ctx, const struct fo_train_step *t)
{
	struct fo_screen *s = ctx;
	char line[200], eta[32], rate[32] = "- ", mfu[24] = "-", loss[64] = "";
	bool last = t->step == t->steps;
	if (s->live ? !last && !redraw_now(s) : !last && t->step % s->log_every != 0)
		return;
	duration(eta, sizeof eta, t->eta_seconds);
	if (isfinite(t->mfu.mfu))
		snprintf(mfu, sizeof mfu, "%.1f %%", 100 * t->mfu.mfu);
	if (!t->metered)
		fo_str_si(rate, t->tokens_per_second, "");
	if (!s->paced)
		snprintf(loss, sizeof loss, " loss %.4f |g| %.2f", t->loss, t->grad_norm);
	snprintf(line, sizeof line, "step %lld/%lld%s %stok/s MFU %s ETA %s", (long long)t->step, (long long)t->steps,
		 loss, rate, mfu, eta);
	put_line(s, line);
	if (last)
		fo_screen_end_line(s);
}

static void on_eval(void *ctx, int64_t step, double loss)
{
	struct fo_screen *s = ctx;
	if (!is_read(s))
		return;
	fo_screen_end_line(s);
	fprintf(s->out, "step %lld held-out loss %.4f\n", (long long)step, loss);
	fflush(s->out);
}

static void on_checkpoint(void *ctx, const char *path, double seconds, double blocked)
{
	struct fo_screen *s = ctx;
	if (!is_read(s))
		return;
	fo_screen_end_line(s);
	if (blocked != seconds) /* written while training went on */
		fprintf(s->out, "checkpoint %s (%.1f s; training waited %.3f s)\n", fo_cli_seen(path), seconds,
			blocked);
	else
		fprintf(s->out, "checkpoint %s (%.1f s)\n", fo_cli_seen(path), seconds);
	fflush(s->out);
}

/* Warnings go to standard error, where they are seen even when the progress is redirected. */
static void on_warn(void *ctx, const char *text)
{
	struct fo_screen *s = ctx;
	if (is_read(s)) {
		fo_screen_end_line(s);
		fflush(s->out);
	}
	fprintf(stderr, "warning: %s\n", fo_cli_seen(text));
	fflush(stderr);
}

static void on_event(void *ctx, const struct fo_event *e)
{
	switch (e->kind) {
	case FO_EVENT_PLAN: on_plan(ctx, e->plan); break;
	case FO_EVENT_STEP: on_step(ctx, e->taken); break;
	case FO_EVENT_EVALUATION: on_eval(ctx, e->step, e->evaluation.loss); break;
	case FO_EVENT_CHECKPOINT:
		on_checkpoint(ctx, e->checkpoint.path, e->checkpoint.seconds, e->checkpoint.blocked_seconds);
		break;
	case FO_EVENT_WARNING: on_warn(ctx, e->warning); break;
	default: break;
	}
}

void fo_screen_hooks(struct fo_screen *s, struct fo_train_hooks *h)
{
	*h = (struct fo_train_hooks){ .ctx = s,
				      .progress = fo_screen_progress,
				      .event = on_event,
				      .stop = &fo_stop_requested,
				      .version = fo_version_number };
}

/* ---- the last screen ---- */

/* MFU as clock times work per clock shows whether power or tuning limits it: a loaded device does not run at the clock
 * that its peak assumes. */
static void say_split(const struct fo_train_result *r, struct fo_doc *d)
{
	const struct fo_mfu_split *s = &r->split;
	struct fo_str ofu = { 0 };
	if (isnan(s->clock))
		fo_doc_line(d, "split",
			    "MFU by clock and work per clock: not known, the device's clock is not readable");
	else
		fo_doc_line(d, "split",
			    "MFU = clock %.1f %% (%s of %s) x work per clock %.1f %% x %.3f counted per FLOP run",
			    100 * s->clock, fo_doc_si(d, s->hz, "Hz"), fo_doc_si(d, s->peak_hz, "Hz"), 100 * s->work,
			    s->counted);
	fo_ofu_text(s, &ofu);
	fo_doc_line(d, "OFU", "%s", ofu.data);
	fo_str_fini(&ofu);
}

static void say_rules(const struct fo_train_result *r, struct fo_doc *d)
{
	const char *burst = "";
	if (!(r->peak.flop_s > 0)) {
		fo_doc_line(d, "MFU", "unknown: %s", r->peak.source);
		return;
	}
	fo_doc_line(
		d, "MFU",
		"%.1f %% by rule mfu, %.1f %% mfu_causal, %.1f %% mfu_document, %.1f %% mfu_6n; HFU %.1f %% (median "
		"step, unfiltered)",
		100 * r->mfu.mfu, 100 * r->mfu.mfu_causal, 100 * r->mfu.mfu_document, 100 * r->mfu.mfu_6n,
		100 * r->mfu.hfu);
	if (!r->on_device)
		burst = fo_doc_printf(d, " (median burst %s/s)", fo_doc_si(d, r->peak.median_flop_s, "FLOP"));
	fo_doc_line(d, "peak", "%s/s %s%s, %s", fo_doc_si(d, r->peak.flop_s, "FLOP"), r->peak.dtype, burst,
		    r->peak.source);
	if (r->on_device)
		say_split(r, d);
	else if (r->mfu.hfu > 1)
		fo_doc_line(d, "",
			    "more than 100 %% cannot be: the peak was measured while this machine was busy; "
			    "train again when it is not");
}

static void say_profile(const struct fo_profile *p, struct fo_doc *d, struct fo_doc *parts)
{
	if (!p->steps) {
		fo_doc_line(d, "time",
			    "where it went is not known: no step's operations were timed (train.timed-every)");
		return;
	}
	fo_doc_line(d, "time", "of %lld %s%s, %.1f s, where it went:", (long long)p->steps,
		    p->untimed_steps ? "timed " : "", fo_word(p->steps, "step", "steps"), p->total_ns * 1e-9);
	fo_doc_table(parts, FO_DRAW_FITTED, NULL, "lrl", "", "", "");
	for (int i = 0; i < FO_PART_COUNT; i++) {
		double share = p->part_ns[i] / p->total_ns;
		char bar[41];
		int n = (int)(fmin(fmax(share, 0), 1) * 40 + 0.5);
		if (i == FO_PART_COMMUNICATION && share == 0)
			continue;
		memset(bar, '#', (size_t)n);
		bar[n] = 0;
		fo_doc_row(parts, fo_part_words[i], fo_doc_printf(parts, "%.2f %%", 100 * share), bar);
	}
}

/* The sample with its own line breaks, in lines of 80 columns, at most `lines` of them. */
static void print_sample(FILE *f, const char *text, int lines)
{
	enum { ROOM = 80 - 10 - 4 }; /* 4: " ..." */
	const char *lead = "Sample:   ";
	if (!*text) { /* a model of few steps may draw the end of the document first */
		fprintf(f, "%s(empty: the model ended the text at once)\n", lead);
		return;
	}
	while (*text && lines > 0) {
		size_t n = strcspn(text, "\n");
		struct fo_str line = { 0 };
		fo_str_append(&line, text, n);
		const char *p = fo_cli_seen(line.data);
		fo_str_fini(&line);
		text += n + (text[n] == '\n');
		do {
			size_t end = fo_cli_fit(p, ROOM);
			if (end || *lead == 'S')
				fprintf(f, "%s%.*s", lead, (int)end, p);
			if ((p[end] || *text) && lines == 1)
				fputs(end ? " ..." : "          ...", f);
			fputc('\n', f);
			lead = "          ";
			p += end + (p[end] == ' ');
			lines--;
		} while (*p && lines > 0);
	}
}

/* The machine's state during the run; all that cannot be read is named at the end of the line. */
static void say_machine(const struct fo_train_result *r, struct fo_doc *d)
{
	const struct fo_state_use *u = &r->machine;
	const char *text = "", *unread = "";
	char buf[96];
	/* Ranks elsewhere count as well: too few claims rather than a wrong one. */
	const int64_t threads = (int64_t)r->threads * r->ranks / (r->ranks_here ? r->ranks_here : 1);
	const char *busy = fo_state_others_text(u->load, sysconf(_SC_NPROCESSORS_ONLN), threads, buf);
	const struct {
		double v;
		const char *form, *name;
	} part[] = { { u->clock_hz * 1e-9, "clock %.2f GHz", "clock" },
		     { 100 * u->steal, "steal %.1f %%", "steal" },
		     { busy ? u->load : NAN, busy, NULL },
		     { u->throttles, "%.0f thermal events", "throttling" },
		     { u->limited_s, "held back %.1f s by the cgroup", NULL },
		     { 100 * r->huge_share, "huge pages %.0f %%", "huge pages" },
		     { r->joules_per_token, "%.3g J/token", "energy" } };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
		if (isnan(part[i].v) && part[i].name)
			unread = fo_doc_join(d, unread, part[i].name);
		else if (!isnan(part[i].v) && (part[i].name || part[i].v > 0))
			text = fo_doc_join(d, text, fo_doc_printf(d, part[i].form, part[i].v));
	}
	if (*unread)
		text = fo_doc_printf(d, "%s%snot readable: %s", text, *text ? "; " : "", unread);
	fo_doc_line(d, "machine", "%s", text);
}

/* The device's state during the run, by NVML. */
static void say_device(const struct fo_train_result *r, struct fo_doc *d)
{
	const struct fo_nvml_use *u = &r->device_use;
	const char *text = r->device;
	const struct {
		double v;
		const char *form;
	} part[] = { { u->sm_hz * 1e-9, "mean clock %.2f GHz" },
		     { u->watts, "%.0f W" },
		     { u->hottest_c, "at most %.0f C" },
		     { r->device_joules_per_token, "%.3g J/token" },
		     { 100 * u->power_share, "clock held back by power %.0f %% of the time" },
		     { 100 * u->thermal_share, "by heat %.0f %%" },
		     { 100 * u->active.share[FO_NVML_TENSOR], "tensor pipes active in %.0f %% of the cycles" },
		     { 100 * u->active.share[FO_NVML_DRAM], "memory in %.0f %%" } };
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (!isnan(part[i].v))
			text = fo_doc_join(d, text, fo_doc_printf(d, part[i].form, part[i].v));
	fo_doc_line(d, "device", "%s%s", text, text == r->device ? ": clock, power and energy not readable" : "");
}

static void say_figures(const struct fo_train_result *r, struct fo_doc *d)
{
	const char *first = "first step", *held_out = "";
	if (r->first_step != 1)
		first = fo_doc_printf(d, "step %lld:", (long long)r->first_step);
	if (isfinite(r->val_loss))
		held_out = fo_doc_printf(d, ", held-out %.4f", r->val_loss);
	if (r->paced)
		fo_doc_line(d, "paced", FO_RECORD_PACED_WHY "; no loss, no MFU");
	else
		fo_doc_line(d, "loss", "training %.4f (%s %.4f)%s", r->mean_loss, first, r->first_loss, held_out);
	if (isfinite(r->bigram_loss))
		fo_doc_line(d, "", "a bigram model of the same tokens: %.4f%s", r->bigram_loss,
			    r->val_loss < r->bigram_loss ? " (beaten)" : " (NOT beaten)");
	fo_doc_line(d, "speed", "%stokens/s (median step, unfiltered), %stokens with loss",
		    fo_doc_si(d, r->tokens_per_second, ""), fo_doc_si(d, (double)r->loss_tokens, ""));
	say_rules(r, d);
	if (r->on_device)
		say_device(r, d);
	fo_doc_line(d, "memory", "%splanned %s, measured %s (%+.1f %%)",
		    whose_memory(r->on_device, r->ranks, r->ranks_here), fo_doc_bytes(d, r->planned_bytes),
		    fo_doc_bytes(d, r->measured_bytes),
		    100 * ((double)r->measured_bytes / (double)r->planned_bytes - 1));
	say_machine(r, d);
	fo_doc_line(d, "padding", "%.1f %% of the tokens; truncated %.1f %%", 100 * r->waste, 100 * r->truncated);
	if (r->skipped || r->rewinds)
		fo_doc_line(d, "guards", "%lld %s skipped, went back %lld %s (whole run)", (long long)r->skipped,
			    fo_word(r->skipped, "step", "steps"), (long long)r->rewinds,
			    fo_word(r->rewinds, "time", "times"));
	if (*r->checkpoint)
		fo_doc_line(d, "saved", "%s", r->checkpoint);
	if (r->steps_unsaved)
		fo_doc_line(d, *r->checkpoint ? "" : "saved", "no weights of the last %lld %s: checkpoint.last=no",
			    (long long)r->steps_unsaved, fo_word(r->steps_unsaved, "step", "steps"));
}

/* Commands that go on from here. */
static void say_next(const struct fo_screen *s, bool weights, struct fo_doc *d)
{
	struct fo_str dir = { 0 };
	if (!s->dir)
		return;
	fo_str_shell(&dir, s->dir);
	if (weights)
		fo_doc_line(d, "next", "flatout report %s, flatout generate %s", dir.data, dir.data);
	else
		fo_doc_line(d, "next", "flatout report %s", dir.data);
	fo_str_fini(&dir);
}

void fo_screen_summary(struct fo_screen *s, const struct fo_train_result *r)
{
	enum { SAMPLE_LINES = 8 };
	fo_screen_end_line(s);
	if (!r->steps)
		return;
	if (r->sample) {
		fputc('\n', s->out);
		print_sample(s->out, r->sample, SAMPLE_LINES);
	}
	struct fo_doc figures = { 0 }, parts = { 0 }; /* one after the other, without a line between them */
	say_figures(r, &figures);
	say_next(s, *r->checkpoint, &figures);
	say_profile(&r->profile, &figures, &parts);
	fputc('\n', s->out);
	fo_cli_print(s->out, &figures);
	fo_cli_print(s->out, &parts);
	fo_doc_fini(&figures);
	fo_doc_fini(&parts);
}

void fo_screen_summary_json(const struct fo_train_result *r, struct fo_json *j)
{
	fo_json_put(j, FO_INT("steps", r->steps), FO_INT("tokens", r->tokens), FO_INT("loss_tokens", r->loss_tokens),
		    FO_INT("first_step", r->first_step), FO_REAL("first_loss", r->first_loss),
		    FO_REAL("last_loss", r->last_loss), FO_REAL("mean_loss", r->mean_loss),
		    FO_REAL("val_loss", r->val_loss), FO_REAL("bigram_loss", r->bigram_loss),
		    FO_REAL("seconds", r->seconds), FO_REAL("tokens_per_second", r->tokens_per_second));
	bool known = r->peak.flop_s > 0 && r->steps;
	static const struct fo_mfu unknown = { NAN, NAN, NAN, NAN, NAN };
	fo_cli_mfu_json(j, known ? &r->mfu : &unknown);
	fo_json_put(j, FO_REAL("peak_flop_s", fo_json_when(known, r->peak.flop_s)),
		    FO_REAL("peak_median_flop_s", fo_json_when(known, r->peak.median_flop_s)),
		    FO_TEXT("peak_dtype", r->peak.dtype), FO_TEXT("peak_source", r->peak.source));
	fo_json_object(j, "profile");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(j, fo_part_name[i],
			     r->profile.total_ns > 0 ? r->profile.part_ns[i] / r->profile.total_ns : NAN);
	fo_json_close(j);
	fo_json_put(j, FO_INT("planned_bytes", r->planned_bytes), FO_INT("measured_bytes", r->measured_bytes),
		    FO_REAL("padding", r->waste), FO_REAL("truncated", r->truncated));
	fo_json_object(j, "machine");
	fo_schema_write_fields(&fo_state_use_schema, &r->machine, j);
	fo_json_put(j, FO_REAL("joules_per_token", r->joules_per_token), FO_REAL("huge_page_share", r->huge_share));
	fo_json_close(j);
	if (r->on_device) {
		fo_json_object(j, "device");
		fo_json_text(j, "name", r->device);
		fo_schema_write_fields(&fo_nvml_use_schema, &r->device_use, j);
		fo_json_real(j, "joules_per_token", r->device_joules_per_token);
		fo_json_close(j);
		fo_json_record(j, "split", FO_REAL("clock", r->split.clock), FO_REAL("work", r->split.work),
			       FO_REAL("counted", r->split.counted), FO_REAL("clock_hz", r->split.hz),
			       FO_REAL("peak_clock_hz", r->split.peak_hz), FO_REAL("tensor_pipes", r->split.pipes),
			       FO_REAL("ofu", r->split.ofu), FO_REAL("useful", r->split.useful),
			       FO_TEXT("why", fo_json_some(r->split.why)));
	}
	fo_json_put(j, FO_INT("skipped", r->skipped), FO_INT("rewinds", r->rewinds),
		    FO_TEXT("checkpoint", fo_json_some(r->checkpoint)), FO_INT("steps_unsaved", r->steps_unsaved),
		    FO_TEXT("sample", r->sample));
}

char *fo_screen_run_json(struct fo_opt_set *s)
{
	struct fo_str out = { 0 }, version = { 0 };
	char date[32];
	fo_version_text(&version, true);
	fo_str_printf(&out, "{\"started\":\"%s\",\"flatout\":%s,\"options\":", fo_clock_utc(date), version.data);
	fo_opt_json(s, &out);
	fo_str_puts(&out, "}");
	fo_str_fini(&version);
	return out.data;
}
