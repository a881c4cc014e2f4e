#include "train/train_int.h"
#include "base/json.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

fo_status fo_session_log_open(struct fo_session *s)
{
	s->log_path = fo_arena_printf(&s->arena, "%s/log.jsonl", s->r->dir);
	s->log = fopen(s->log_path, "ae");
	return s->log ? FO_OK : fo_fail(FO_EIO, "cannot open '%s': %s", s->log_path, strerror(errno));
}

static void begin(struct fo_session *s, struct fo_json *j, const char *event, int64_t step)
{
	s->line.len = 0;
	fo_json_begin(j, &s->line, false);
	fo_json_object(j, NULL);
	fo_json_text(j, "event", event);
	fo_json_int(j, "step", step);
}

static fo_status end(struct fo_session *s, struct fo_json *j)
{
	fo_json_close(j);
	fo_str_puts(&s->line, "\n");
	if (fwrite(s->line.data, 1, s->line.len, s->log) != s->line.len || fflush(s->log))
		return fo_fail(FO_EIO, "cannot write '%s': %s", s->log_path, strerror(errno));
	return FO_OK;
}

fo_status fo_session_log_step(struct fo_session *s, const struct fo_train_step *t)
{
	struct fo_json j;
	begin(s, &j, "step", t->step);
	fo_json_real(&j, "loss", t->loss);
	fo_json_real(&j, "grad_norm", t->grad_norm);
	fo_json_real(&j, "lr", t->lr);
	fo_json_real(&j, "seconds", t->seconds);
	fo_json_int(&j, "tokens", t->tokens);
	fo_json_int(&j, "loss_tokens", t->loss_tokens);
	fo_json_real(&j, "tokens_per_second", t->tokens_per_second);
	fo_json_real(&j, "mfu", t->mfu.mfu);
	fo_json_real(&j, "mfu_causal", t->mfu.mfu_causal);
	fo_json_real(&j, "mfu_document", t->mfu.mfu_document);
	fo_json_real(&j, "mfu_6n", t->mfu.mfu_6n);
	fo_json_real(&j, "hfu", t->mfu.hfu);
	return end(s, &j);
}

fo_status fo_session_log_eval(struct fo_session *s, int64_t step, double loss)
{
	struct fo_json j;
	begin(s, &j, "eval", step);
	fo_json_real(&j, "loss", loss);
	return end(s, &j);
}

fo_status fo_session_log_checkpoint(struct fo_session *s, int64_t step, const char *path, double seconds)
{
	struct fo_json j;
	begin(s, &j, "checkpoint", step);
	fo_json_text(&j, "path", path);
	fo_json_real(&j, "seconds", seconds);
	return end(s, &j);
}

fo_status fo_session_log_machine(struct fo_session *s, const struct fo_state_use *u)
{
	struct fo_json j;
	begin(s, &j, "machine", s->meta.step);
	fo_state_use_json(u, &j);
	return end(s, &j);
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

static int64_t read_number(const char *path)
{
	FILE *f = fopen(path, "re");
	long long v = -1;
	if (f && fscanf(f, "%lld", &v) != 1)
		v = -1;
	if (f)
		fclose(f);
	return v;
}

int64_t fo_memory_available(void)
{
	int64_t free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
	int64_t limit = read_number("/sys/fs/cgroup/memory.max"), used = read_number("/sys/fs/cgroup/memory.current");
	if (limit > 0 && used >= 0 && limit - used < free_bytes)
		free_bytes = limit - used;
	return free_bytes;
}
