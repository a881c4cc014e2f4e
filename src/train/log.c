#include "train/watchers.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Lines that wait for room on the disk: at some 400 bytes a step, 40,000 steps. */
#define PENDING_BYTES ((size_t)16 << 20)

/* A machine that lost its power in the middle of a line leaves half of it; what follows must not be glued to that. */
static fo_status cut_torn_line(int fd, const char *path)
{
	struct stat st;
	char text[4096];
	if (fstat(fd, &st) || !S_ISREG(st.st_mode))
		return FO_OK;
	off_t end = st.st_size;
	while (end > 0) {
		size_t n = end < (off_t)sizeof text ? (size_t)end : sizeof text;
		ssize_t got;
		while ((got = pread(fd, text, n, end - (off_t)n)) < 0 && errno == EINTR)
			;
		if (got != (ssize_t)n)
			return fo_fs_refuse("read", path, got < 0 ? errno : ENODATA);
		size_t k = n;
		while (k && text[k - 1] != '\n')
			k--;
		end -= (off_t)(n - k);
		if (k)
			break;
	}
	if (end < st.st_size && fo_ftruncate(fd, end))
		return fo_fs_refuse("write", path, errno);
	return FO_OK;
}

fo_status fo_log_open(struct fo_log *l, struct fo_events *events, struct fo_arena *a, const char *dir)
{
	l->events = events;
	l->path = fo_arena_printf(a, "%s/log.jsonl", dir);
	l->fd = fo_open(l->path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (l->fd < 0)
		return fo_fs_refuse("open", l->path, errno);
	return cut_torn_line(l->fd, l->path);
}

/* ---- lines ---- */

static void begin_line(struct fo_log *l, struct fo_json *j, const char *event, int64_t step)
{
	fo_json_begin(j, &l->waiting, false);
	fo_json_object(j, NULL);
	fo_json_text(j, "event", event);
	fo_json_int(j, "step", step);
}

/* Writes what waits; what could not be written goes on waiting, from the byte where it stopped. Returns an errno value.
 */
static int flush_lines(struct fo_log *l)
{
	size_t done;
	int error = fo_write_all(l->fd, l->waiting.data, l->waiting.len, &done);
	if (done)
		memmove(l->waiting.data, l->waiting.data + done, l->waiting.len - done);
	l->waiting.len -= done;
	return error;
}

/* Unix time in whole milliseconds: what other tools place events by. */
static double unix_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return ((double)t.tv_sec * 1000 + floor((double)t.tv_nsec * 1e-6)) / 1000;
}

/* A log that cannot be written for a while is no reason to stop training. */
static fo_status end_line(struct fo_log *l, struct fo_json *j)
{
	fo_json_real(j, "time", unix_time());
	fo_json_real(j, "clock", floor((double)fo_now_ns() * 1e-6) / 1000);
	fo_json_close(j);
	fo_str_puts(&l->waiting, "\n");
	int error = flush_lines(l);
	if (error && l->waiting.len > PENDING_BYTES)
		return fo_fail(FO_EIO, "cannot write '%s': %s", l->path, strerror(error));
	if (error && !l->failed)
		fo_events_warn(l->events, "cannot write '%s': %s; its lines are kept in memory until it can be written",
			       l->path, strerror(error));
	l->failed = error != 0;
	return FO_OK;
}

fo_status fo_log_flush(struct fo_log *l, bool saved)
{
	int error = l->fd < 0 ? 0 : flush_lines(l);
	if (!error)
		return FO_OK;
	return fo_hint(fo_fail(FO_EIO, "cannot write '%s': %s", l->path, strerror(error)),
		       "%swhat the log lacks are its last lines", saved ? "the training itself is saved; " : "");
}

void fo_log_close(struct fo_log *l)
{
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
	fo_str_fini(&l->waiting);
}

/* ---- events ---- */

/* What this process's steps are measured against, and the memory it plans. */
static void put_start(struct fo_json *j, const struct fo_train_plan *p)
{
	char hash[24];
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fo_program_hash(p->program));
	fo_json_text(j, "program_hash", hash);
	fo_json_text(j, "isa", fo_isa_name[p->isa]);
	fo_json_int(j, "threads", p->threads);
	fo_json_text(j, "peak_dtype", p->peak.dtype);
	fo_json_real(j, "peak_flop_s", fo_peak_or_nan(&p->peak));
	fo_json_int(j, "arena_bytes", p->memory.arena);
	fo_json_int(j, "persistent_bytes", p->memory.persistent);
	fo_json_int(j, "workspace_bytes", p->memory.workspace);
	fo_json_int(j, "other_bytes", p->memory_other);
	fo_json_int(j, "checkpoint_bytes", p->memory_checkpoint);
	if (!p->device)
		return;
	fo_json_text(j, "device", p->device->name);
	fo_json_int(j, "device_reserve_bytes", p->memory_reserve);
	fo_json_int(j, "host_bytes", p->memory_host);
}

static void put_step(struct fo_json *j, const struct fo_train_step *t)
{
	fo_json_real(j, "loss", t->loss);
	fo_json_real(j, "grad_norm", t->grad_norm);
	fo_json_real(j, "lr", t->lr);
	fo_json_real(j, "seconds", t->seconds);
	fo_json_real(j, "data_seconds", t->data_seconds);
	fo_json_int(j, "tokens", t->tokens);
	fo_json_int(j, "loss_tokens", t->loss_tokens);
	fo_json_real(j, "tokens_per_second", t->tokens_per_second);
	fo_json_real(j, "mfu", t->mfu.mfu);
	fo_json_real(j, "mfu_causal", t->mfu.mfu_causal);
	fo_json_real(j, "mfu_document", t->mfu.mfu_document);
	fo_json_real(j, "mfu_6n", t->mfu.mfu_6n);
	fo_json_real(j, "hfu", t->mfu.hfu);
	if (t->metered)
		fo_json_bool(j, "metered", true);
}

static void put_guard(struct fo_json *j, const struct fo_guard_report *g)
{
	static const char *const action[] = { [FO_GUARD_NONE] = "off",
					      [FO_GUARD_WARN] = "warn",
					      [FO_GUARD_SKIP] = "skip",
					      [FO_GUARD_REWIND] = "rewind",
					      [FO_GUARD_STOP] = "stop" };
	fo_json_text(j, "action", action[g->action]);
	fo_json_real(j, "loss", g->loss);
	if (g->spike) {
		fo_json_real(j, "median", g->median);
		fo_json_real(j, "deviation", g->deviation);
		fo_json_real(j, "z", (g->loss - g->median) / g->deviation);
	} else {
		fo_json_real(j, "grad_norm", g->grad_norm);
		fo_json_text(j, "where", g->where);
	}
	if (g->action == FO_GUARD_REWIND)
		fo_json_int(j, "back_to", g->back_to);
	fo_json_int(j, "data_step", g->data_step);
	fo_json_array(j, "documents");
	for (int64_t i = 0; i < g->documents && i < FO_GUARD_DOCUMENTS; i++) {
		fo_json_object(j, NULL);
		fo_json_int(j, "document", g->document[i].document);
		fo_json_text(j, "path", g->document[i].path);
		fo_json_int(j, "line", g->document[i].line);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void put_checkpoint(struct fo_json *j, const struct fo_event *e)
{
	fo_json_text(j, "path", e->checkpoint.path);
	fo_json_real(j, "seconds", e->checkpoint.seconds);
	fo_json_real(j, "blocked_seconds", e->checkpoint.blocked_seconds);
}

/* Seconds by part of the steps that `now` has and `before` lacks. */
static void put_parts(struct fo_json *j, const struct fo_profile *now, const struct fo_profile *before)
{
	fo_json_object(j, "parts");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(j, fo_part_name[i], (now->part_ns[i] - before->part_ns[i]) * 1e-9);
	fo_json_close(j);
}

/* What the steps since the last such line spent their time on. */
static fo_status log_profile(struct fo_log *l, const struct fo_event *e)
{
	struct fo_json j;
	if (e->profile->steps == l->written.steps)
		return FO_OK;
	begin_line(l, &j, "profile", e->step);
	fo_json_int(&j, "steps", e->profile->steps - l->written.steps);
	put_parts(&j, e->profile, &l->written);
	l->written = *e->profile;
	return end_line(l, &j);
}

static void put_machine(struct fo_json *j, const struct fo_event *e)
{
	fo_state_use_json(e->machine.use, j);
	if (!e->machine.device)
		return;
	fo_json_object(j, "device");
	fo_nvml_use_json(e->machine.device, j);
	fo_json_close(j);
}

/* What this process has done, at its end: time by part (docs/formats.md), memory planned and measured. */
static void put_end(struct fo_json *j, const struct fo_event *e)
{
	const struct fo_train_result *r = e->end.result;
	const struct fo_profile *first = e->end.first_step;
	fo_json_text(j, "how", e->end.how);
	fo_json_int(j, "steps", r->steps);
	fo_json_int(j, "timed_steps", r->profile.steps - first->steps);
	fo_json_real(j, "seconds", (r->profile.total_ns - first->total_ns) * 1e-9);
	put_parts(j, &r->profile, first);
	fo_json_int(j, "planned_bytes", r->planned_bytes);
	fo_json_int(j, "measured_bytes", r->measured_bytes);
	fo_json_real(j, "joules_per_token", r->joules_per_token);
	if (r->on_device) {
		fo_json_object(j, "device");
		fo_device_use_json(&r->device_use, r->device_joules_per_token, &r->split, j);
		fo_json_close(j);
	}
	fo_json_real(j, "huge_page_share", r->huge_share);
	fo_json_real(j, "padding_share", r->waste);
	fo_json_real(j, "truncated_share", r->truncated);
}

fo_status fo_log_event(void *log, const struct fo_event *e)
{
	static const char *const name[] = { [FO_EVENT_BEGIN] = "start",
					    [FO_EVENT_STEP] = "step",
					    [FO_EVENT_GUARD] = "nonfinite",
					    [FO_EVENT_EVALUATION] = "eval",
					    [FO_EVENT_CHECKPOINT] = "checkpoint",
					    [FO_EVENT_MACHINE] = "machine",
					    [FO_EVENT_END] = "end" };
	struct fo_log *l = log;
	struct fo_json j;
	const char *event = e->kind < sizeof name / sizeof *name ? name[e->kind] : NULL;
	if (!event)
		return FO_OK;
	if (e->kind == FO_EVENT_MACHINE)
		FO_TRY(log_profile(l, e));
	if (e->kind == FO_EVENT_GUARD && e->guard->spike)
		event = "spike";
	begin_line(l, &j, event, e->step);
	switch (e->kind) {
	case FO_EVENT_BEGIN: put_start(&j, e->plan); break;
	case FO_EVENT_STEP: put_step(&j, e->taken); break;
	case FO_EVENT_GUARD: put_guard(&j, e->guard); break;
	case FO_EVENT_EVALUATION: fo_json_real(&j, "loss", e->evaluation.loss); break;
	case FO_EVENT_CHECKPOINT: put_checkpoint(&j, e); break;
	case FO_EVENT_MACHINE: put_machine(&j, e); break;
	default: put_end(&j, e);
	}
	return end_line(l, &j);
}
