#include "train/train_int.h"
#include "base/clock.h"
#include "base/retry.h"

#include <errno.h>
#include <fcntl.h>
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

void fo_session_log_begin(struct fo_session *s, struct fo_json *j, const char *event, int64_t step)
{
	fo_json_begin(j, &s->line, false);
	fo_json_object(j, NULL);
	fo_json_text(j, "event", event);
	fo_json_int(j, "step", step);
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
fo_status fo_session_log_end(struct fo_session *s, struct fo_json *j)
{
	fo_json_real(j, "time", unix_time());
	fo_json_real(j, "clock", floor((double)fo_now_ns() * 1e-6) / 1000);
	fo_json_close(j);
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

fo_status fo_session_log_step(struct fo_session *s, const struct fo_train_step *t)
{
	struct fo_json j;
	fo_session_log_begin(s, &j, "step", t->step);
	fo_json_real(&j, "loss", t->loss);
	fo_json_real(&j, "grad_norm", t->grad_norm);
	fo_json_real(&j, "lr", t->lr);
	fo_json_real(&j, "seconds", t->seconds);
	fo_json_real(&j, "data_seconds", t->data_seconds);
	fo_json_int(&j, "tokens", t->tokens);
	fo_json_int(&j, "loss_tokens", t->loss_tokens);
	fo_json_real(&j, "tokens_per_second", t->tokens_per_second);
	fo_json_real(&j, "mfu", t->mfu.mfu);
	fo_json_real(&j, "mfu_causal", t->mfu.mfu_causal);
	fo_json_real(&j, "mfu_document", t->mfu.mfu_document);
	fo_json_real(&j, "mfu_6n", t->mfu.mfu_6n);
	fo_json_real(&j, "hfu", t->mfu.hfu);
	if (t->metered)
		fo_json_bool(&j, "metered", true);
	return fo_session_log_end(s, &j);
}

fo_status fo_session_log_eval(struct fo_session *s, int64_t step, double loss)
{
	struct fo_json j;
	fo_session_log_begin(s, &j, "eval", step);
	fo_json_real(&j, "loss", loss);
	return fo_session_log_end(s, &j);
}

fo_status fo_session_log_checkpoint(struct fo_session *s, int64_t step, const char *path, double seconds,
				    double blocked)
{
	struct fo_json j;
	fo_session_log_begin(s, &j, "checkpoint", step);
	fo_json_text(&j, "path", path);
	fo_json_real(&j, "seconds", seconds);
	fo_json_real(&j, "blocked_seconds", blocked);
	return fo_session_log_end(s, &j);
}

fo_status fo_session_log_start(struct fo_session *s, const struct fo_train_plan *p)
{
	struct fo_json j;
	char hash[24];
	fo_session_log_begin(s, &j, "start", s->meta.step);
	snprintf(hash, sizeof hash, "%016llx", (unsigned long long)fo_program_hash(&s->program));
	fo_json_text(&j, "program_hash", hash);
	fo_json_text(&j, "isa", fo_isa_name[s->options.isa]);
	fo_json_int(&j, "threads", s->options.threads);
	fo_json_text(&j, "peak_dtype", s->peak.dtype);
	fo_json_real(&j, "peak_flop_s", s->peak.flop_s > 0 ? s->peak.flop_s : NAN);
	fo_json_int(&j, "arena_bytes", p->memory.arena);
	fo_json_int(&j, "persistent_bytes", p->memory.persistent);
	fo_json_int(&j, "workspace_bytes", p->memory.workspace);
	fo_json_int(&j, "other_bytes", p->memory_other);
	fo_json_int(&j, "checkpoint_bytes", p->memory_checkpoint);
	if (p->device) {
		fo_json_text(&j, "device", p->device->name);
		fo_json_int(&j, "device_reserve_bytes", p->memory_reserve);
		fo_json_int(&j, "host_bytes", p->memory_host);
	}
	return fo_session_log_end(s, &j);
}

fo_status fo_session_log_end_of_run(struct fo_session *s, const struct fo_train_result *r, const char *how)
{
	struct fo_json j;
	fo_session_log_begin(s, &j, "end", s->meta.step);
	fo_json_text(&j, "how", how);
	fo_json_int(&j, "steps", r->steps);
	fo_json_int(&j, "timed_steps", r->profile.steps - s->first_step.steps);
	fo_json_real(&j, "seconds", (r->profile.total_ns - s->first_step.total_ns) * 1e-9);
	fo_json_object(&j, "parts");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i], (r->profile.part_ns[i] - s->first_step.part_ns[i]) * 1e-9);
	fo_json_close(&j);
	fo_json_int(&j, "planned_bytes", r->planned_bytes);
	fo_json_int(&j, "measured_bytes", r->measured_bytes);
	fo_json_real(&j, "joules_per_token", r->joules_per_token);
	if (r->on_device) {
		fo_json_object(&j, "device");
		fo_device_use_json(&r->device_use, r->device_joules_per_token, &r->split, &j);
		fo_json_close(&j);
	}
	fo_json_real(&j, "huge_page_share", r->huge_share);
	fo_json_real(&j, "padding_share", r->waste);
	fo_json_real(&j, "truncated_share", r->truncated);
	return fo_session_log_end(s, &j);
}

fo_status fo_session_log_machine(struct fo_session *s, const struct fo_state_use *u, const struct fo_nvml_use *device)
{
	struct fo_json j;
	fo_session_log_begin(s, &j, "machine", s->meta.step);
	fo_state_use_json(u, &j);
	if (device) {
		fo_json_object(&j, "device");
		fo_nvml_use_json(device, &j);
		fo_json_close(&j);
	}
	return fo_session_log_end(s, &j);
}

/* What the steps since the last such line spent their time on. */
fo_status fo_session_log_profile(struct fo_session *s)
{
	struct fo_json j;
	struct fo_profile *last = &s->profile_logged;
	if (s->profile->steps == last->steps)
		return FO_OK;
	fo_session_log_begin(s, &j, "profile", s->meta.step);
	fo_json_int(&j, "steps", s->profile->steps - last->steps);
	fo_json_object(&j, "parts");
	for (int i = 0; i < FO_PART_COUNT; i++)
		fo_json_real(&j, fo_part_name[i], (s->profile->part_ns[i] - last->part_ns[i]) * 1e-9);
	fo_json_close(&j);
	*last = *s->profile;
	return fo_session_log_end(s, &j);
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
