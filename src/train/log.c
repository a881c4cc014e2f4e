#include "train/train_int.h"
#include "base/clock.h"
#include "base/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
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

fo_status fo_session_log_open(struct fo_session *s)
{
	s->log_path = fo_arena_printf(&s->arena, "%s/log.jsonl", s->r->dir);
	s->log = fo_open(s->log_path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (s->log < 0)
		return fo_fs_refuse("open", s->log_path, errno);
	return cut_torn_line(s->log, s->log_path);
}

/* Writes what waits; what could not be written goes on waiting, from the byte where it stopped. Returns an errno value.
 */
static int flush_lines(struct fo_session *s)
{
	size_t done;
	int error = fo_write_all(s->log, s->line.data, s->line.len, &done);
	if (done)
		memmove(s->line.data, s->line.data + done, s->line.len - done);
	s->line.len -= done;
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
fo_status fo_session_log(struct fo_session *s, const struct fo_schema *line, void *record)
{
	const struct fo_schema_field *tail = &line->field[line->fields - 2];
	*(double *)(void *)((char *)record + tail[0].offset) = unix_time();
	*(double *)(void *)((char *)record + tail[1].offset) = floor((double)fo_now_ns() * 1e-6) / 1000;
	fo_schema_text(line, record, false, &s->line);
	fo_str_puts(&s->line, "\n");
	int error = flush_lines(s);
	if (error && s->line.len > PENDING_BYTES)
		return fo_fail(FO_EIO, "cannot write '%s': %s", s->log_path, strerror(error));
	if (error && !s->log_failed)
		fo_session_warn(s, "cannot write '%s': %s; its lines are kept in memory until it can be written",
				s->log_path, strerror(error));
	s->log_failed = error != 0;
	return FO_OK;
}

fo_status fo_session_log_close(struct fo_session *s)
{
	int error = s->log < 0 ? 0 : flush_lines(s);
	if (!error)
		return FO_OK;
	return fo_hint(fo_fail(FO_EIO, "cannot write '%s': %s", s->log_path, strerror(error)),
		       "%swhat the log lacks are its last lines",
		       fo_session_unsaved(s) ? "" : "the training itself is saved; ");
}

void fo_session_step_values(const struct fo_train_step *t, double value[FO_STEP_FIELD_COUNT])
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
		[FO_STEP_TIME] = unix_time(),
		[FO_STEP_CLOCK] = NAN,
	};
	memcpy(value, v, sizeof v);
}

fo_status fo_session_log_step(struct fo_session *s, const struct fo_train_step *t)
{
	struct fo_record_step line = { .step = t->step };
	fo_session_step_values(t, line.value);
	return fo_session_log(s, &fo_log_step, &line);
}

fo_status fo_session_log_eval(struct fo_session *s, int64_t step, double loss)
{
	struct fo_record_eval line = { .step = step, .loss = loss };
	return fo_session_log(s, &fo_log_eval, &line);
}

fo_status fo_session_log_checkpoint(struct fo_session *s, int64_t step, const char *path, double seconds,
				    double blocked)
{
	struct fo_record_checkpoint line = {
		.step = step, .path = path, .seconds = seconds, .blocked_seconds = blocked
	};
	return fo_session_log(s, &fo_log_checkpoint, &line);
}

fo_status fo_session_log_start(struct fo_session *s, const struct fo_train_plan *p)
{
	struct fo_record_start line = {
		.step = s->meta.step,
		.program_hash = fo_arena_printf(&s->arena, "%016" PRIx64, fo_program_hash(&s->program)),
		.isa = fo_isa_name[s->options.isa],
		.threads = s->options.threads,
		.peak_dtype = s->peak.dtype,
		.peak_flop_s = s->peak.flop_s > 0 ? s->peak.flop_s : NAN,
		.arena_bytes = (double)p->memory.arena,
		.persistent_bytes = (double)p->memory.persistent,
		.workspace_bytes = (double)p->memory.workspace,
		.other_bytes = (double)p->memory_other,
		.checkpoint_bytes = (double)p->memory_checkpoint,
		.device = p->device ? p->device->name : NULL,
		.device_reserve_bytes = p->device ? (double)p->memory_reserve : NAN,
		.host_bytes = p->device ? (double)p->memory_host : NAN,
	};
	return fo_session_log(s, &fo_log_start, &line);
}

/* What happened between two states of a profile. */
static struct fo_profile profile_since(const struct fo_profile *now, const struct fo_profile *before)
{
	struct fo_profile p = { .steps = now->steps - before->steps, .total_ns = now->total_ns - before->total_ns };
	for (int i = 0; i < FO_PART_COUNT; i++)
		p.part_ns[i] = now->part_ns[i] - before->part_ns[i];
	return p;
}

fo_status fo_session_log_end_of_run(struct fo_session *s, const struct fo_train_result *r, const char *how)
{
	struct fo_record_end line = {
		.step = s->meta.step,
		.how = how,
		.steps = r->steps,
		.profile = profile_since(&r->profile, &s->first_step),
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
	return fo_session_log(s, &fo_log_end, &line);
}

fo_status fo_session_log_machine(struct fo_session *s, const struct fo_state_use *u, const struct fo_nvml_use *device)
{
	struct fo_record_machine line = { .step = s->meta.step, .use = *u, .device = device };
	return fo_session_log(s, &fo_log_machine, &line);
}

/* Where the time of the steps since the last such line went. */
fo_status fo_session_log_profile(struct fo_session *s)
{
	struct fo_record_profile line = { .step = s->meta.step,
					  .profile = profile_since(s->profile, &s->profile_logged) };
	if (!line.profile.steps)
		return FO_OK;
	s->profile_logged = *s->profile;
	return fo_session_log(s, &fo_log_profile, &line);
}

/* "Name:   123 kB" in a /proc file, in bytes; 0 when it is not there. */
static int64_t proc_bytes(const char *file, const char *name)
{
	FILE *f = fopen(file, "re");
	char line[256];
	int64_t bytes = 0;
	while (f && fgets(line, sizeof line, f)) {
		long long kb;
		if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), ": %lld kB", &kb) == 1)
			bytes = kb * 1024;
	}
	if (f)
		fclose(f);
	return bytes;
}

int64_t fo_memory_resident(void) { return proc_bytes("/proc/self/status", "RssAnon"); }

int64_t fo_memory_unlimited(void)
{
	static const struct {
		int limit;
		const char *used;
	} row[] = { { RLIMIT_DATA, "VmData" }, { RLIMIT_AS, "VmSize" } };
	int64_t room = INT64_MAX;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct rlimit l;
		int64_t used = proc_bytes("/proc/self/status", row[i].used);
		if (getrlimit(row[i].limit, &l) || l.rlim_cur == RLIM_INFINITY || l.rlim_cur > INT64_MAX)
			continue;
		int64_t left = (int64_t)l.rlim_cur > used ? (int64_t)l.rlim_cur - used : 1;
		room = left < room ? left : room;
	}
	return room;
}

int64_t fo_memory_available(void)
{
	int64_t free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
	double room = fo_state_memory_room("");
	/* 0 would say that nothing is known. */
	if (!isnan(room) && (!free_bytes || room < (double)free_bytes))
		free_bytes = room < 1 ? 1 : (int64_t)room;
	return free_bytes;
}
