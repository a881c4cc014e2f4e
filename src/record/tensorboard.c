#include "record/tensorboard.h"
#include "base/fs.h"
#include "base/retry.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The scalars' names; NULL: the field is none. */
static const char *const tag[FO_STEP_FIELD_COUNT] = {
	[FO_STEP_LOSS] = "loss/train",
	[FO_STEP_GRAD_NORM] = "optimizer/grad_norm",
	[FO_STEP_LR] = "optimizer/learning_rate",
	[FO_STEP_SECONDS] = "speed/step_seconds",
	[FO_STEP_DATA_SECONDS] = "speed/data_seconds",
	[FO_STEP_TOKENS_PER_SECOND] = "speed/tokens_per_second",
	[FO_STEP_MFU] = "mfu/mfu",
	[FO_STEP_MFU_CAUSAL] = "mfu/mfu_causal",
	[FO_STEP_MFU_DOCUMENT] = "mfu/mfu_document",
	[FO_STEP_MFU_6N] = "mfu/mfu_6n",
	[FO_STEP_HFU] = "mfu/hfu",
};

/* ---- checksums and framing ---- */

uint32_t fo_crc32c(uint32_t crc, const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	crc = ~crc;
	/* Bit by bit: a step has some 400 bytes. 0x82f63b78 is Castagnoli's polynomial with its bits reversed. */
	while (n--) {
		crc ^= *p++;
		for (int k = 0; k < 8; k++)
			crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
	}
	return ~crc;
}

/* Checksums of bytes that hold checksums are weak: TFRecord turns and shifts them. */
static void put_crc(struct fo_str *s, const void *bytes, size_t n)
{
	uint32_t crc = fo_crc32c(0, bytes, n), masked = (crc >> 15 | crc << 17) + 0xa282ead8u;
	fo_str_append(s, &masked, sizeof masked);
}

/* ---- the wire format: a field is a varint (number << 3 | type) and its value ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_varint(struct fo_str *s, uint64_t v)
{
	unsigned char out[10];
	size_t n = 0;
	do
		out[n++] = (unsigned char)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
	while (v >>= 7);
	fo_str_append(s, out, n);
}

static void put_key(struct fo_str *s, int field, int type) { put_varint(s, (uint64_t)field << 3 | (uint64_t)type); }

static void put_bytes(struct fo_str *s, int field, const void *bytes, size_t n)
{
	put_key(s, field, BYTES);
	put_varint(s, n);
	fo_str_append(s, bytes, n);
}

/* Event: wall_time 1, step 2; what follows is the caller's. */
static void begin_event(struct fo_tensorboard *t, int64_t step, double time)
{
	t->record.len = 0;
	put_key(&t->record, 1, FIXED64);
	fo_str_append(&t->record, &time, sizeof time);
	put_key(&t->record, 2, VARINT);
	put_varint(&t->record, (uint64_t)step);
}

static fo_status end_event(struct fo_tensorboard *t)
{
	struct fo_str framed = { 0 };
	uint64_t n = t->record.len;
	fo_str_append(&framed, &n, sizeof n);
	put_crc(&framed, &n, sizeof n);
	fo_str_append(&framed, t->record.data, t->record.len);
	put_crc(&framed, t->record.data, t->record.len);
	off_t at = lseek(t->fd, 0, SEEK_CUR);
	int error = fo_write_all(t->fd, framed.data, framed.len, NULL);
	fo_str_fini(&framed);
	if (!error)
		return FO_OK;
	/* Half a record would hide all that follow it. */
	if (at >= 0 && !fo_ftruncate(t->fd, at))
		lseek(t->fd, at, SEEK_SET);
	return fo_fs_refuse("write", t->path, error);
}

/* Summary.Value: tag 1, simple_value 2 (float), inside Summary.value 1. */
static void put_scalar(struct fo_str *summary, const char *name, double value)
{
	struct fo_str v = { 0 };
	float f = (float)value;
	put_bytes(&v, 1, name, strlen(name));
	put_key(&v, 2, FIXED32);
	fo_str_append(&v, &f, sizeof f);
	put_bytes(summary, 1, v.data, v.len);
	fo_str_fini(&v);
}

/* Event.summary; the summary is freed. */
static fo_status put_summary(struct fo_tensorboard *t, int64_t step, double time, struct fo_str *summary)
{
	begin_event(t, step, isfinite(time) ? time : 0);
	put_bytes(&t->record, 5, summary->data, summary->len);
	fo_str_fini(summary);
	return end_event(t);
}

/* ---- the file ---- */

#define PREFIX "events.out.tfevents."

/* The newest second that a file of the folder names; -1: none. */
static int64_t newest_second(const char *dir)
{
	int64_t newest = -1;
	DIR *d = opendir(dir);
	for (struct dirent *e; d && (e = readdir(d));) {
		long long second;
		if (sscanf(e->d_name, PREFIX "%lld.", &second) == 1 && second > newest && second < 1LL << 40)
			newest = second;
	}
	if (d)
		closedir(d);
	return newest;
}

fo_status fo_tensorboard_open(struct fo_tensorboard *t, const char *dir, int64_t step, double time)
{
	char host[64] = "localhost", name[4096];
	*t = (struct fo_tensorboard){ .fd = -1 };
	FO_TRY(fo_fs_mkdirs(dir));
	/* TensorBoard reads files in the order of their names: a second process within one second sorts after the
	 * first. */
	int64_t second = newest_second(dir) + 1;
	second = second > (int64_t)time ? second : (int64_t)time;
	if (gethostname(host, sizeof host - 1))
		snprintf(host, sizeof host, "localhost");
	if (snprintf(name, sizeof name, "%s/" PREFIX "%010lld.%s.%d.0", dir, (long long)second, host, (int)getpid()) >=
	    (int)sizeof name)
		return fo_fail(FO_EARG, "the name of the folder '%.64s...' is too long", dir);
	t->fd = fo_open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (t->fd < 0)
		return fo_fs_refuse("write", name, errno);
	t->path = fo_xstrdup(name);
	begin_event(t, 0, time);
	put_bytes(&t->record, 3, "brain.Event:2", 13); /* Event.file_version: the one that SessionLog belongs to */
	fo_status st = end_event(t);
	if (st == FO_OK)
		st = fo_tensorboard_restart(t, step, time);
	if (st != FO_OK)
		fo_tensorboard_close(t);
	return st;
}

fo_status fo_tensorboard_restart(struct fo_tensorboard *t, int64_t step, double time)
{
	begin_event(t, step, time);
	put_bytes(&t->record, 7, "\x08\x01", 2); /* Event.session_log, its status 1: START = 1 */
	return end_event(t);
}

fo_status fo_tensorboard_step(struct fo_tensorboard *t, int64_t step, const double value[FO_STEP_FIELD_COUNT])
{
	struct fo_str summary = { 0 };
	/* The seconds of a metered step hold its bursts. */
	bool metered = value[FO_STEP_METERED] > 0;
	for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
		if (tag[f] && isfinite(value[f]) && !(metered && f == FO_STEP_SECONDS))
			put_scalar(&summary, tag[f], value[f]);
	return put_summary(t, step, value[FO_STEP_TIME], &summary);
}

fo_status fo_tensorboard_eval(struct fo_tensorboard *t, int64_t step, double loss, double time)
{
	struct fo_str summary = { 0 };
	if (!isfinite(loss))
		return FO_OK;
	put_scalar(&summary, "loss/held_out", loss);
	return put_summary(t, step, time, &summary);
}

void fo_tensorboard_close(struct fo_tensorboard *t)
{
	if (t->fd >= 0)
		close(t->fd);
	free(t->path);
	fo_str_fini(&t->record);
	*t = (struct fo_tensorboard){ .fd = -1 };
}

fo_status fo_tensorboard_export(const struct fo_record *r, const char *dir, char **path)
{
	struct fo_tensorboard t;
	int64_t e = 0;
	double value[FO_STEP_FIELD_COUNT];
	double began = r->starts && isfinite(r->start[0].time) ? r->start[0].time : 0;
	FO_TRY(fo_tensorboard_open(&t, dir, r->step.n ? r->step.step[0] : 1, began));
	fo_status st = FO_OK;
	for (int64_t i = 0; i < r->step.n && st == FO_OK; i++) {
		for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
			value[f] = fo_record_value(&r->step, (enum fo_step_field)f, i);
		st = fo_tensorboard_step(&t, r->step.step[i], value);
		int64_t next = i + 1 < r->step.n ? r->step.step[i + 1] : INT64_MAX;
		for (; e < r->evals && r->eval[e].step < next && st == FO_OK; e++)
			st = fo_tensorboard_eval(&t, r->eval[e].step, r->eval[e].loss, r->eval[e].time);
	}
	if (st == FO_OK)
		*path = fo_xstrdup(t.path);
	fo_tensorboard_close(&t);
	return st;
}
