#include "train/session.h"
#include "base/clock.h"
#include "base/retry.h"
#include "base/schema.h"
#include "record/record.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Lines that wait for room on the disk: at some 400 bytes a step, 40,000 steps. */
#define PENDING_BYTES ((size_t)16 << 20)

/* A power cut in the middle of a line leaves half of it; the next line must not be appended to that. */
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

/* Writes waiting lines. Bytes that could not be written go on waiting. Returns an errno value. */
static int flush_lines(struct fo_log *l)
{
	size_t done;
	int error = fo_write_all(l->fd, l->waiting.data, l->waiting.len, &done);
	if (done)
		memmove(l->waiting.data, l->waiting.data + done, l->waiting.len - done);
	l->waiting.len -= done;
	return error;
}

/* Stamps and writes a record, whose table ends with time and clock. A log that cannot be written for a while is no
 * reason to stop training. */
static fo_status put(struct fo_log *l, const struct fo_schema *table, void *record)
{
	const struct fo_schema_field *tail = &table->field[table->fields - 2];
	*(double *)(void *)((char *)record + tail[0].offset) = floor(fo_clock_unix() * 1e3) / 1e3;
	*(double *)(void *)((char *)record + tail[1].offset) = floor((double)fo_now_ns() * 1e-6) / 1000;
	fo_schema_text(table, record, false, &l->waiting);
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

static fo_status log_start(struct fo_log *l, int64_t step, const struct fo_train_plan *p)
{
	char hash[17];
	struct fo_record_start line = { .step = step,
					.program_hash = hash,
					.isa = p->paced ? FO_RECORD_PACED : fo_isa_name[p->isa],
					.threads = p->threads,
					.peak_dtype = p->peak.dtype,
					.peak_flop_s = fo_peak_or_nan(&p->peak),
					.arena_bytes = (double)p->memory.arena,
					.persistent_bytes = (double)p->memory.persistent,
					.workspace_bytes = (double)p->memory.workspace,
					.other_bytes = (double)p->memory_other,
					.checkpoint_bytes = (double)p->memory_checkpoint,
					.device_reserve_bytes = NAN,
					.host_bytes = NAN };
	snprintf(hash, sizeof hash, "%016" PRIx64, fo_program_hash(p->program));
	if (p->device) {
		line.device = p->device->name;
		line.device_reserve_bytes = (double)p->memory_reserve;
		line.host_bytes = (double)p->memory_host;
	}
	return put(l, &fo_log_start, &line);
}

void fo_step_values(const struct fo_train_step *t, double time, double value[FO_STEP_FIELD_COUNT])
{
	const double v[FO_STEP_FIELD_COUNT] = {
		[FO_STEP_LOSS] = t->loss,
		[FO_STEP_GRAD_NORM] = t->grad_norm,
		[FO_STEP_LR] = t->lr,
		[FO_STEP_SECONDS] = t->seconds,
		[FO_STEP_DATA_SECONDS] = t->data_seconds,
		[FO_STEP_TOKENS] = (double)t->tokens,
		[FO_STEP_LOSS_TOKENS] = (double)t->loss_tokens,
		[FO_STEP_TOKENS_PER_SECOND] = t->tokens_per_second,
		[FO_STEP_MFU] = t->mfu.mfu,
		[FO_STEP_MFU_CAUSAL] = t->mfu.mfu_causal,
		[FO_STEP_MFU_DOCUMENT] = t->mfu.mfu_document,
		[FO_STEP_MFU_6N] = t->mfu.mfu_6n,
		[FO_STEP_HFU] = t->mfu.hfu,
		[FO_STEP_METERED] = t->metered,
		[FO_STEP_TIME] = time,
		[FO_STEP_CLOCK] = NAN,
	};
	memcpy(value, v, sizeof v);
}

static fo_status log_guard(struct fo_log *l, const struct fo_guard_report *g)
{
	static const char *const action[] = { [FO_GUARD_NONE] = "off",
					      [FO_GUARD_WARN] = "warn",
					      [FO_GUARD_SKIP] = "skip",
					      [FO_GUARD_REWIND] = "rewind",
					      [FO_GUARD_STOP] = "stop" };
	struct fo_record_guard line = g->line;
	line.action = action[g->action];
	return put(l, line.kind == FO_GUARD_SPIKE ? &fo_log_spike : &fo_log_nonfinite, &line);
}

/* The difference of two states of a profile. */
static struct fo_profile profile_since(const struct fo_profile *now, const struct fo_profile *before)
{
	struct fo_profile p = { .steps = now->steps - before->steps, .total_ns = now->total_ns - before->total_ns };
	for (int i = 0; i < FO_PART_COUNT; i++)
		p.part_ns[i] = now->part_ns[i] - before->part_ns[i];
	return p;
}

/* Two lines: the parts of the steps' time since the last such line, and the machine's state meanwhile. */
static fo_status log_machine(struct fo_log *l, const struct fo_event *e)
{
	struct fo_record_profile parts = { .step = e->step, .profile = profile_since(e->profile, &l->written) };
	struct fo_record_machine line = { .step = e->step, .use = *e->machine.use, .device = e->machine.device };
	if (parts.profile.steps) {
		l->written = *e->profile;
		FO_TRY(put(l, &fo_log_profile, &parts));
	}
	return put(l, &fo_log_machine, &line);
}

static fo_status log_end(struct fo_log *l, const struct fo_event *e)
{
	const struct fo_train_result *r = e->end.result;
	struct fo_record_end line = {
		.step = e->step,
		.how = e->end.how,
		.steps = r->steps,
		.profile = profile_since(&r->profile, e->end.first_step),
		.planned_bytes = (double)r->planned_bytes,
		.measured_bytes = (double)r->measured_bytes,
		.joules_per_token = r->joules_per_token,
		.device = { .told = r->on_device,
			    .use = r->device_use,
			    .joules_per_token = r->device_joules_per_token,
			    .split = r->split },
		.huge_page_share = r->huge_share,
		.padding_share = r->waste,
		.truncated_share = r->truncated,
	};
	line.seconds = line.profile.total_ns * 1e-9;
	return put(l, &fo_log_end, &line);
}

fo_status fo_log_event(void *log, const struct fo_event *e)
{
	struct fo_log *l = log;
	struct fo_record_step step = { .step = e->step };
	struct fo_record_eval eval = { .step = e->step };
	struct fo_record_checkpoint checkpoint;
	switch (e->kind) {
	case FO_EVENT_BEGIN: return log_start(l, e->step, e->plan);
	case FO_EVENT_STEP: fo_step_values(e->taken, NAN, step.value); return put(l, &fo_log_step, &step);
	case FO_EVENT_GUARD: return log_guard(l, e->guard);
	case FO_EVENT_EVALUATION: eval.loss = e->evaluation.loss; return put(l, &fo_log_eval, &eval);
	case FO_EVENT_CHECKPOINT: checkpoint = e->checkpoint; return put(l, &fo_log_checkpoint, &checkpoint);
	case FO_EVENT_MACHINE: return log_machine(l, e);
	case FO_EVENT_END: return log_end(l, e);
	default: return FO_OK;
	}
}
