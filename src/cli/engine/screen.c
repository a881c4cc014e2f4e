#include "cli/engine/screen.h"

#include "base/clock.h"
#include "base/mem.h"
#include "timeline/parts.h"
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
	*s = (struct fo_screen){ .out = json ? stderr : stdout, .log_every = r->log_every, .dir = r->dir };
	s->live = isatty(fileno(s->out)) && (!getenv("TERM") || strcmp(getenv("TERM"), "dumb"));
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

static void plan_json(const struct fo_train_plan *p, struct fo_str *out)
{
	struct fo_json j;
	const struct fo_program *g = p->program;
	struct fo_flop f = fo_model_flop_per_token(&g->model, g->run.seq);
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_text(&j, "model", g->model.name);
	fo_json_real(&j, "params", p->params.total);
	fo_json_object(&j, "flop_per_token");
	fo_json_real(&j, "mfu", f.mfu);
	fo_json_real(&j, "mfu_causal", f.mfu_causal);
	fo_json_real(&j, "mfu_6n", f.mfu_6n);
	fo_json_close(&j);
	fo_json_int(&j, "micro_batches", g->run.micro_batches);
	fo_json_int(&j, "rows", g->run.rows);
	fo_json_int(&j, "seq", g->run.seq);
	fo_json_text(&j, "precision", fo_numerics_name[g->run.precision]);
	fo_json_int(&j, "slots", g->nslot);
	fo_json_object(&j, "passes");
	for (int i = 0; i < fo_pass_fields; i++)
		fo_json_int(&j, fo_pass_field[i].name, fo_passes_get(&g->run.pass, fo_pass_field[i].offset));
	fo_json_close(&j);
	if (p->choice.seconds > 0) {
		fo_json_object(&j, "chosen");
		fo_json_real(&j, "recompute_share", p->choice.repeat_seconds / p->choice.seconds);
		fo_json_int(&j, "candidates", p->choice.candidates);
		fo_json_int(&j, "planned", p->choice.planned);
		fo_json_close(&j);
	}
	fo_json_real(&j, "fuse_loss_gain", p->choice.fuse_loss ? p->choice.fuse_loss_gain : NAN);
	fo_json_object(&j, "predicted");
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (p->choice.predicted[i].open) {
			fo_json_object(&j, fo_predicted_pass[i].key);
			fo_json_bool(&j, "taken", p->choice.predicted[i].taken);
			fo_json_real(&j, "gain", p->choice.predicted[i].gain);
			fo_json_close(&j);
		}
	fo_json_close(&j);
	fo_json_real(&j, "micro_batches_gain", p->device ? p->gain_of_more : NAN);
	fo_json_object(&j, "memory");
	fo_json_int(&j, "total_bytes", fo_train_planned(p));
	fo_json_int(&j, "arena_bytes", p->memory.arena);
	fo_json_int(&j, "host_arena_bytes", p->memory.host_arena);
	fo_json_int(&j, "persistent_bytes", p->memory.persistent);
	fo_json_int(&j, "workspace_bytes", p->memory.workspace);
	fo_json_int(&j, "other_bytes", p->memory_other);
	fo_json_int(&j, "checkpoint_bytes", p->memory_checkpoint);
	fo_json_int(&j, "available_bytes", p->memory_available);
	if (p->device) {
		fo_json_int(&j, "reserve_bytes", p->memory_reserve);
		fo_json_int(&j, "host_bytes", p->memory_host);
		fo_json_int(&j, "host_copy_bytes", p->memory_host_copy);
	}
	fo_json_close(&j);
	fo_json_object(&j, "checkpoints");
	fo_json_int(&j, "bytes", p->save_bytes);
	fo_json_int(&j, "at_once", p->save_count);
	fo_json_real(&j, "disk_free_bytes", p->disk_free < 0 ? NAN : (double)p->disk_free);
	fo_json_close(&j);
	fo_json_text(&j, "device", p->device ? p->device->name : NULL);
	if (p->device) {
		fo_json_object(&j, "products");
		fo_device_tuned_json(&p->tuned, p->run, &j);
		fo_json_close(&j);
	}
	fo_json_object(&j, "code");
	for (int i = 0; i < p->codes; i++)
		fo_json_int(&j, p->code[i].by, p->code[i].instances);
	fo_json_close(&j);
	fo_json_text(&j, "isa", fo_isa_name[p->isa]);
	fo_json_int(&j, "threads", p->threads);
	fo_json_object(&j, "kernels");
	for (int i = 0; i < FO_ISA_COUNT; i++)
		fo_json_int(&j, fo_isa_name[i], p->kernels[i]);
	fo_json_close(&j);
	fo_json_real(&j, "peak_flop_s", fo_peak_or_nan(&p->peak));
	fo_json_text(&j, "peak_source", *p->peak.source ? p->peak.source : NULL);
	fo_json_close(&j);
}

#define LEAD "         " /* below "model    " */

static void put_choice(FILE *f, const struct fo_train_plan *p)
{
	struct fo_str text = { 0 };
	fo_recompute_text(&p->program->run.pass, p->program->model.layers, &text);
	fo_cli_put(f, "auto     ", LEAD, "recomputes %s: %.1f %% of a step's time by the model that chose", text.data,
		   100 * p->choice.repeat_seconds / p->choice.seconds);
	fo_str_fini(&text);
}

/* The chunk that was chosen for a device, and the gain of more micro-batches there: the user decides about the
 * batch. */
static void put_device_choices(FILE *f, const struct fo_train_plan *p)
{
	const struct fo_lowering *run = &p->program->run;
	int64_t chunk = run->pass.fuse_loss, tokens = run->rows * run->seq;
	const char *how = chunk < tokens ? "by chunks of " : "at once for all ";
	if (chunk > tokens)
		chunk = tokens;
	if (p->choice.fuse_loss && p->choice.fuse_loss_gain > 0)
		fo_cli_put(f, "auto     ", LEAD,
			   "head and loss %s%lld tokens on this device: up to %.1f %% of a step's time less than by "
			   "%d, by the model that chose",
			   how, (long long)chunk, 100 * p->choice.fuse_loss_gain, FO_RUN_FUSE_LOSS);
	for (int i = 0; i < FO_PREDICTED_PASSES; i++)
		if (p->choice.predicted[i].taken)
			fo_cli_put(f, "auto     ", LEAD,
				   "%s=yes on this device: %.1f %% of a step's time less, predicted",
				   fo_predicted_pass[i].key, 100 * p->choice.predicted[i].gain);
	if (p->gain_of_more >= 5e-4) /* less would show as 0.0 % */
		fo_cli_put(f, "hint     ", LEAD,
			   "train.micro-batches=%d would share the optimizer among more tokens: %.1f %% of the time "
			   "less, by the same model; it makes the batch larger",
			   FO_TRAIN_MICRO_BATCHES, 100 * p->gain_of_more);
}

/* ", copy for checkpoints 12.0 MiB"; "": there is none. */
static const char *copy_text(char buf[64], int64_t bytes)
{
	char size[32];
	*buf = 0;
	if (bytes)
		snprintf(buf, 64, ", copy for checkpoints %s", fo_str_bytes(size, (double)bytes));
	return buf;
}

static void put_memory(FILE *f, const struct fo_train_plan *p)
{
	char a[32], b[32], c[32], d[32], e[32], g[32], copy[64];
	const char *where = "", *holder = "it";
	if (p->device) {
		where = "of the device ";
		holder = "the latter";
	}
	fo_cli_put(
		f, "memory   ", LEAD,
		"%s%s: activations and gradients %s, weights and optimizer %s, workspace %s, other %s%s; %s available",
		where, fo_str_bytes(a, (double)fo_train_planned(p)), fo_str_bytes(b, (double)p->memory.arena),
		fo_str_bytes(c, (double)p->memory.persistent), fo_str_bytes(d, (double)p->memory.workspace),
		fo_str_bytes(e, (double)p->memory_other), copy_text(copy, p->memory_checkpoint),
		fo_str_bytes(g, (double)p->memory_available));
	if (p->device)
		fo_cli_put(f, "         ", LEAD,
			   "%s more of the device are left alone; the host holds %s (tables, staging, loader%s)",
			   fo_str_bytes(a, (double)p->memory_reserve), fo_str_bytes(b, (double)p->memory_host),
			   copy_text(copy, p->memory_host_copy));
	if (p->memory.host_arena)
		fo_cli_put(f, "         ", LEAD, "of %s %s of activations that wait for backward in host memory",
			   holder, fo_str_bytes(a, (double)p->memory.host_arena));
}

static void put_saves(FILE *f, const struct fo_train_plan *p)
{
	char a[32], b[32];
	if (!p->save_count) {
		if (!p->run->ckpt_last)
			fo_cli_put(f, "saves    ", LEAD, "no weights: checkpoint.last=no%s",
				   p->run->ckpt_every ? "" : ", checkpoint.every=0");
		return;
	}
	const char *room = p->disk_free < 0 ? "an unknown amount" : fo_str_bytes(b, (double)p->disk_free);
	fo_cli_put(f, "saves    ", LEAD, "checkpoints of %s, %lld more at one time; the disk has %s free%s",
		   fo_str_bytes(a, (double)p->save_bytes), (long long)p->save_count, room,
		   p->run->ckpt_last ? "" : "; none at the end: checkpoint.last=no");
}

/* Says how the algorithms of matmuls were chosen; nothing where all are the library's proposals. */
static void put_products(FILE *f, const struct fo_cuda_tuned *t)
{
	struct fo_str s = { 0 };
	if (t->measured)
		fo_str_printf(&s, "%d measured in %.1f s (%.3f times as fast as the first proposals), ", t->measured,
			      t->seconds, t->gain);
	if (t->by_blocks)
		fo_str_printf(&s, "%d of them chosen by blocks of a second (%d by their energy), ", t->by_blocks,
			      t->by_energy);
	if (t->measured || t->kept)
		fo_str_printf(&s, "%d from the cache, ", t->kept);
	if (s.len || *t->note) {
		fo_str_printf(&s, "%d as the library proposes", t->proposed);
		fo_cli_put(f, "         ", LEAD, *t->note ? "matmuls: %s; %s" : "matmuls: %s", s.data, t->note);
	}
	fo_str_fini(&s);
}

/* Says which kernel sets or libraries run the step's operations. */
static void put_kernels(FILE *f, const struct fo_train_plan *p)
{
	struct fo_str sets = { 0 };
	for (int i = 0; p->device && i < p->codes; i++)
		fo_str_printf(&sets, "%s %d %s", sets.len ? "," : "", p->code[i].instances, p->code[i].by);
	for (int i = 0; !p->device && i < FO_ISA_COUNT; i++)
		if (p->kernels[i])
			fo_str_printf(&sets, "%s %d %s", sets.len ? "," : "", p->kernels[i], fo_isa_name[i]);
	const char *by = sets.len ? sets.data : " no";
	if (p->device)
		fo_cli_put(f, "device   ", LEAD, "cuda:%d, %s%s:%s operations per step", p->device->index,
			   p->device->name, p->device->software ? " (a model of one: its times mean nothing)" : "", by);
	put_products(f, &p->tuned);
	if (!p->device)
		fo_cli_put(f, "kernels  ", LEAD, "%s on %d %s:%s operations per step", fo_isa_name[p->isa], p->threads,
			   fo_cli_plural(p->threads, "thread", "threads"), by);
	fo_str_fini(&sets);
}

static void on_plan(void *ctx, const struct fo_train_plan *p)
{
	struct fo_screen *s = ctx;
	FILE *f = s->out;
	char a[32], b[32];
	const struct fo_model *m = &p->program->model;
	long long mb = (long long)p->program->run.micro_batches, rows = (long long)p->program->run.rows,
		  seq = (long long)p->program->run.seq;
	if (s->plan)
		plan_json(p, s->plan);
	if (!s->plan_is_all && !is_read(s))
		return;
	fo_screen_end_line(s);
	fo_cli_put(f, "model    ", LEAD,
		   "%s: %s parameters (%lld %s, hidden %lld, %lld %s, ffn %lld, vocabulary %lld), %s per token at "
		   "sequence %lld",
		   m->name, fo_str_si(a, p->params.total, ""), (long long)m->layers,
		   fo_cli_plural(m->layers, "layer", "layers"), (long long)m->hidden, (long long)m->heads,
		   fo_cli_plural(m->heads, "head", "heads"), (long long)m->ffn, (long long)m->vocab,
		   fo_str_si(b, fo_model_flop_per_token(m, seq).mfu, "FLOP"), seq);
	fo_cli_put(f, "step     ", LEAD, "%lld %s x %lld %s x %lld tokens, %s; %d slots", mb,
		   fo_cli_plural(mb, "micro-batch", "micro-batches"), rows, fo_cli_plural(rows, "row", "rows"), seq,
		   fo_numerics_name[p->program->run.precision], p->program->nslot);
	struct fo_str passes = { 0 };
	fo_passes_text(&p->program->run.pass, &passes);
	fo_cli_put(f, "passes   ", LEAD, "%s", passes.data);
	fo_str_fini(&passes);
	if (p->choice.seconds > 0 && p->choice.run.pass.recompute)
		put_choice(f, p);
	put_device_choices(f, p);
	put_memory(f, p);
	put_saves(f, p);
	put_kernels(f, p);
	if (p->peak.flop_s > 0)
		fo_cli_put(f, "peak     ", LEAD, "%s/s %s, %s", fo_str_si(a, p->peak.flop_s, "FLOP"), p->peak.dtype,
			   p->peak.source);
	else if (*p->peak.source)
		fo_cli_put(f, "peak     ", LEAD, "unknown: %s", p->peak.source);
	if (p->train_tokens)
		fo_cli_put(f, "data     ", LEAD, "%stokens to train on, %sheld out",
			   fo_str_si(a, (double)p->train_tokens, " "), fo_str_si(b, (double)p->val_tokens, " "));
	if (p->resumed_step)
		fprintf(f, "resume   after step %lld\n", (long long)p->resumed_step);
	fflush(f);
}

static void on_step(void *ctx, const struct fo_train_step *t)
{
	struct fo_screen *s = ctx;
	char line[200], eta[32], rate[32] = "- ", mfu[24] = "-";
	bool last = t->step == t->steps;
	if (s->live ? !last && !redraw_now(s) : !last && t->step % s->log_every != 0)
		return;
	duration(eta, sizeof eta, t->eta_seconds);
	if (isfinite(t->mfu.mfu))
		snprintf(mfu, sizeof mfu, "%.1f %%", 100 * t->mfu.mfu);
	if (!t->metered)
		fo_str_si(rate, t->tokens_per_second, "");
	snprintf(line, sizeof line, "step %lld/%lld loss %.4f |g| %.2f %stok/s MFU %s ETA %s", (long long)t->step,
		 (long long)t->steps, t->loss, t->grad_norm, rate, mfu, eta);
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
static void print_split(FILE *f, const struct fo_train_result *r)
{
	const struct fo_mfu_split *s = &r->split;
	char a[32], b[32];
	struct fo_str ofu = { 0 };
	if (isnan(s->clock))
		fo_cli_put(f, "split    ", LEAD,
			   "MFU by clock and work per clock: not known, the device's clock is not readable");
	else
		fo_cli_put(f, "split    ", LEAD,
			   "MFU = clock %.1f %% (%s of %s) x work per clock %.1f %% x %.3f counted per FLOP run",
			   100 * s->clock, fo_str_si(a, s->hz, "Hz"), fo_str_si(b, s->peak_hz, "Hz"), 100 * s->work,
			   s->counted);
	fo_ofu_text(s, &ofu);
	fo_cli_put(f, "OFU      ", LEAD, "%s", ofu.data);
	fo_str_fini(&ofu);
}

static void print_rules(FILE *f, const struct fo_train_result *r)
{
	char a[32], b[32];
	if (!(r->peak.flop_s > 0)) {
		fo_cli_put(f, "MFU      ", LEAD, "unknown: %s", r->peak.source);
		return;
	}
	fo_cli_put(f, "MFU      ", LEAD,
		   "%.1f %% by rule mfu, %.1f %% mfu_causal, %.1f %% mfu_document, %.1f %% mfu_6n; HFU %.1f %% (median "
		   "step, unfiltered)",
		   100 * r->mfu.mfu, 100 * r->mfu.mfu_causal, 100 * r->mfu.mfu_document, 100 * r->mfu.mfu_6n,
		   100 * r->mfu.hfu);
	if (r->on_device) {
		fo_cli_put(f, "peak     ", LEAD, "%s/s %s, %s", fo_str_si(a, r->peak.flop_s, "FLOP"), r->peak.dtype,
			   r->peak.source);
		print_split(f, r);
		return;
	}
	fo_cli_put(f, "peak     ", LEAD, "%s/s %s (median burst %s/s), %s", fo_str_si(a, r->peak.flop_s, "FLOP"),
		   r->peak.dtype, fo_str_si(b, r->peak.median_flop_s, "FLOP"), r->peak.source);
	if (r->mfu.hfu > 1)
		fo_cli_put(f, "         ", LEAD,
			   "more than 100 %% cannot be: the peak was measured while this machine was busy; train again "
			   "when it is not");
}

static void print_profile(FILE *f, const struct fo_profile *p)
{
	if (!p->steps) {
		fo_cli_put(f, "time     ", LEAD,
			   "where it went is not known: no step's operations were timed (train.timed-every)");
		return;
	}
	fprintf(f, "time     of %lld %s%s, %.1f s, where it went:\n", (long long)p->steps,
		p->untimed_steps ? "timed " : "", fo_cli_plural(p->steps, "step", "steps"), p->total_ns * 1e-9);
	for (int i = 0; i < FO_PART_COUNT; i++) {
		double share = p->part_ns[i] / p->total_ns;
		char bar[41];
		int n = (int)(fmin(fmax(share, 0), 1) * 40 + 0.5);
		if (i == FO_PART_COMMUNICATION && share == 0)
			continue;
		memset(bar, '#', (size_t)n);
		bar[n] = 0;
		fprintf(f, "  %-21s %6.2f %%%s%s\n", fo_part_words[i], 100 * share, n ? "  " : "", bar);
	}
}

/* The sample with its own line breaks, in lines of 80 columns, at most `lines` of them. */
static void print_sample(FILE *f, const char *text, int lines)
{
	enum { ROOM = 80 - 9 };
	const char *lead = "sample   ";
	size_t size = 4 * strlen(text) + 8;
	if (!*text) { /* a model of few steps may draw the end of the document first */
		fprintf(f, "%s(empty: the model ended the text at once)\n", lead);
		return;
	}
	char *shown = malloc(size), *line = malloc(size);
	while (shown && line && *text && lines > 0) {
		size_t n = strcspn(text, "\n");
		snprintf(line, size, "%.*s", (int)n, text);
		text += n + (text[n] == '\n');
		fo_str_visible(shown, size, line);
		const char *p = shown;
		do {
			size_t end = 0, space = 0;
			for (int columns = 0; p[end] && columns < ROOM - 4; columns++) { /* 4: " ..." */
				space = p[end] == ' ' ? end : space;
				do
					end++;
				while (((unsigned char)p[end] & 0xc0) == 0x80);
			}
			if (p[end] && p[end] != ' ' && space)
				end = space;
			bool more = p[end] || *text;
			if (end || *lead == 's')
				fprintf(f, "%s%.*s", lead, (int)end, p);
			if (more && lines == 1)
				fputs(end ? " ..." : LEAD "...", f);
			fputc('\n', f);
			lead = LEAD;
			p += end + (p[end] == ' ');
			lines--;
		} while (*p && lines > 0);
	}
	free(shown);
	free(line);
}

/* The machine's state during the run; all that cannot be read is named at the end of the line. */
static void print_machine(FILE *f, const struct fo_train_result *r)
{
	const struct fo_state_use *u = &r->machine;
	struct fo_str s = { 0 }, unread = { 0 };
	char buf[96];
	const char *busy = fo_state_others_text(u->load, sysconf(_SC_NPROCESSORS_ONLN), buf);
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
			fo_str_printf(&unread, "%s%s", unread.len ? ", " : "", part[i].name);
		else if (!isnan(part[i].v) && (part[i].name || part[i].v > 0)) {
			fo_str_puts(&s, s.len ? ", " : "");
			fo_str_printf(&s, part[i].form, part[i].v);
		}
	}
	if (unread.len)
		fo_str_printf(&s, "%snot readable: %s", s.len ? "; " : "", unread.data);
	fo_cli_put(f, "machine  ", LEAD, "%s", s.len ? s.data : "");
	fo_str_fini(&s);
	fo_str_fini(&unread);
}

/* The device's state during the run, by NVML. */
static void print_device(FILE *f, const struct fo_train_result *r)
{
	const struct fo_nvml_use *u = &r->device_use;
	struct fo_str s = { 0 };
	char a[32];
	const struct {
		double v;
		const char *form;
	} part[] = { { u->watts, ", %.0f W" },
		     { u->hottest_c, ", at most %.0f C" },
		     { r->device_joules_per_token, ", %.3g J/token" },
		     { 100 * u->power_share, ", clock held back by power %.0f %% of the time" },
		     { 100 * u->thermal_share, ", by heat %.0f %%" } };
	if (!isnan(u->sm_hz))
		fo_str_printf(&s, ", mean clock %s", fo_str_si(a, u->sm_hz, "Hz"));
	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (!isnan(part[i].v))
			fo_str_printf(&s, part[i].form, part[i].v);
	const struct fo_nvml_active *on = &u->active;
	if (!isnan(on->share[FO_NVML_TENSOR]))
		fo_str_printf(&s, ", tensor pipes active in %.0f %% of the cycles", 100 * on->share[FO_NVML_TENSOR]);
	if (!isnan(on->share[FO_NVML_DRAM]))
		fo_str_printf(&s, ", memory in %.0f %%", 100 * on->share[FO_NVML_DRAM]);
	fo_cli_put(f, "device   ", LEAD, "%s%s", r->device, s.len ? s.data : ": clock, power and energy not readable");
	fo_str_fini(&s);
}

static void print_figures(FILE *f, const struct fo_train_result *r)
{
	char a[32], b[32];
	fprintf(f, "\nloss     training %.4f (", r->mean_loss);
	if (r->first_step == 1)
		fprintf(f, "first step %.4f)", r->first_loss);
	else
		fprintf(f, "step %lld: %.4f)", (long long)r->first_step, r->first_loss);
	if (isfinite(r->val_loss))
		fprintf(f, ", held-out %.4f", r->val_loss);
	if (isfinite(r->bigram_loss))
		fprintf(f, "\n         a bigram model of the same tokens: %.4f%s", r->bigram_loss,
			r->val_loss < r->bigram_loss ? " (beaten)" : " (NOT beaten)");
	fprintf(f, "\nspeed    %stokens/s (median step, unfiltered), %stokens with loss in all\n",
		fo_str_si(a, r->tokens_per_second, ""), fo_str_si(b, (double)r->loss_tokens, ""));
	print_rules(f, r);
	print_profile(f, &r->profile);
	if (r->on_device)
		print_device(f, r);
	fprintf(f, "memory   %splanned %s, measured %s (%+.1f %%)\n", r->on_device ? "of the device " : "",
		fo_str_bytes(a, (double)r->planned_bytes), fo_str_bytes(b, (double)r->measured_bytes),
		100 * ((double)r->measured_bytes / (double)r->planned_bytes - 1));
	print_machine(f, r);
	fprintf(f, "padding  %.1f %% of the tokens; truncated %.1f %%\n", 100 * r->waste, 100 * r->truncated);
	if (r->skipped || r->rewinds)
		fprintf(f, "guards   %lld %s skipped, went back %lld %s (whole run)\n", (long long)r->skipped,
			fo_cli_plural(r->skipped, "step", "steps"), (long long)r->rewinds,
			fo_cli_plural(r->rewinds, "time", "times"));
	if (*r->checkpoint)
		fprintf(f, "saved    %s\n", fo_cli_seen(r->checkpoint));
	if (r->steps_unsaved)
		fo_cli_put(f, *r->checkpoint ? LEAD : "saved    ", LEAD,
			   "no weights of the last %lld %s: checkpoint.last=no", (long long)r->steps_unsaved,
			   fo_cli_plural(r->steps_unsaved, "step", "steps"));
}

/* Commands that go on from here. */
static void print_next(struct fo_screen *s, bool weights)
{
	struct fo_str dir = { 0 };
	if (!s->dir)
		return;
	fo_str_shell(&dir, s->dir);
	const char *seen = fo_cli_seen(dir.data);
	if (weights)
		fo_cli_put(s->out, "next     ", LEAD, "flatout report %s, flatout generate %s", seen, seen);
	else
		fo_cli_put(s->out, "next     ", LEAD, "flatout report %s", seen);
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
	print_figures(s->out, r);
	print_next(s, *r->checkpoint);
}

void fo_screen_summary_json(const struct fo_train_result *r, struct fo_str *out)
{
	struct fo_json j;
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_int(&j, "steps", r->steps);
	fo_json_int(&j, "tokens", r->tokens);
	fo_json_int(&j, "loss_tokens", r->loss_tokens);
	fo_json_int(&j, "first_step", r->first_step);
	fo_json_real(&j, "first_loss", r->first_loss);
	fo_json_real(&j, "last_loss", r->last_loss);
	fo_json_real(&j, "mean_loss", r->mean_loss);
	fo_json_real(&j, "val_loss", r->val_loss);
	fo_json_real(&j, "bigram_loss", r->bigram_loss);
	fo_json_real(&j, "seconds", r->seconds);
	fo_json_real(&j, "tokens_per_second", r->tokens_per_second);
	bool known = r->peak.flop_s > 0 && r->steps;
	static const struct fo_mfu unknown = { NAN, NAN, NAN, NAN, NAN };
	fo_cli_mfu_json(&j, known ? &r->mfu : &unknown);
	fo_json_real(&j, "peak_flop_s", known ? r->peak.flop_s : NAN);
	fo_json_real(&j, "peak_median_flop_s", known ? r->peak.median_flop_s : NAN);
	fo_json_text(&j, "peak_dtype", r->peak.dtype);
	fo_json_text(&j, "peak_source", r->peak.source);
	fo_json_object(&j, "profile");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i],
			     r->profile.total_ns > 0 ? r->profile.part_ns[i] / r->profile.total_ns : NAN);
	fo_json_close(&j);
	fo_json_int(&j, "planned_bytes", r->planned_bytes);
	fo_json_int(&j, "measured_bytes", r->measured_bytes);
	fo_json_real(&j, "padding", r->waste);
	fo_json_real(&j, "truncated", r->truncated);
	fo_json_object(&j, "machine");
	fo_schema_write_fields(&fo_state_use_schema, &r->machine, &j);
	fo_json_real(&j, "joules_per_token", r->joules_per_token);
	fo_json_real(&j, "huge_page_share", r->huge_share);
	fo_json_close(&j);
	if (r->on_device) {
		fo_json_object(&j, "device");
		fo_json_text(&j, "name", r->device);
		fo_schema_write_fields(&fo_nvml_use_schema, &r->device_use, &j);
		fo_json_real(&j, "joules_per_token", r->device_joules_per_token);
		fo_json_close(&j);
		fo_json_object(&j, "split");
		fo_json_real(&j, "clock", r->split.clock);
		fo_json_real(&j, "work", r->split.work);
		fo_json_real(&j, "counted", r->split.counted);
		fo_json_real(&j, "clock_hz", r->split.hz);
		fo_json_real(&j, "peak_clock_hz", r->split.peak_hz);
		fo_json_real(&j, "tensor_pipes", r->split.pipes);
		fo_json_real(&j, "ofu", r->split.ofu);
		fo_json_real(&j, "useful", r->split.useful);
		fo_json_text(&j, "why", *r->split.why ? r->split.why : NULL);
		fo_json_close(&j);
	}
	fo_json_int(&j, "skipped", r->skipped);
	fo_json_int(&j, "rewinds", r->rewinds);
	fo_json_text(&j, "checkpoint", *r->checkpoint ? r->checkpoint : NULL);
	fo_json_int(&j, "steps_unsaved", r->steps_unsaved);
	fo_json_text(&j, "sample", r->sample);
	fo_json_close(&j);
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
