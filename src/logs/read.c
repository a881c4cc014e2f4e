/* Reads files as one run. */
#include "logs/logs_int.h"

#include "base/fs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct reading {
	struct fo_log *log;
	struct fo_map map;
	const char *path;
	int file;
};

static void scan(struct reading *r, const char *text)
{
	fo_log_scan(r->log, text, r->map.len, r->file, r->path);
	fo_log_find_sizes(r->log, text, r->map.len, r->file);
}

static fo_status read_mapped(void *ctx)
{
	struct reading *r = ctx;
	const char *text = (const char *)r->map.data;
	if (memchr(text, 0, r->map.len < 4096 ? r->map.len : 4096))
		return fo_hint(fo_fail(FO_EFORMAT, "'%s' is no text: it has zero bytes", r->path),
			       "'flatout mfu' reads what a training run prints; 'flatout diagnose' reads traces");
	if (!fo_log_mlperf(r->log, text, r->map.len, r->file, r->path) &&
	    !fo_log_whole(r->log, text, r->map.len, r->file, r->path))
		scan(r, text);
	return FO_OK;
}

static fo_status read_file(struct fo_log *log, const char *path, int file)
{
	struct reading r = { .log = log, .path = path, .file = file };
	FO_TRY(fo_map_open(&r.map, path));
	fo_status st = r.map.len ? fo_map_guard(read_mapped, &r) : FO_OK;
	fo_map_close(&r.map);
	return st;
}

/* Numbers of devices below 1 ("dp_shard=-1": what the others leave) tell nothing. */
static void forget_impossible(struct fo_log *log)
{
	static const enum fo_log_fact mesh[] = { FO_LOG_DP_SHARD, FO_LOG_DP_REPLICATE, FO_LOG_TP, FO_LOG_PP,
						 FO_LOG_CP };
	struct fo_log_told *t = log->told, none = { .number = NAN, .later = NAN };
	if (t[FO_LOG_DEVICES].number < 1)
		t[FO_LOG_DEVICES] = none;
	for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++)
		if (t[mesh[i]].number < 1)
			t[FO_LOG_DP_SHARD] = t[FO_LOG_DP_REPLICATE] = t[mesh[i]] = none;
	if (t[FO_LOG_NODES].number < 1 || t[FO_LOG_PER_NODE].number < 1)
		t[FO_LOG_NODES] = t[FO_LOG_PER_NODE] = none;
}

fo_status fo_log_read(const char *const *path, size_t files, struct fo_log *log)
{
	*log = (struct fo_log){ .interval = NAN, .summary = { NAN, NAN, NAN }, .time = { NAN, NAN, NAN } };
	for (int f = 0; f < FO_LOG_FACTS; f++)
		log->told[f].number = log->told[f].later = NAN;
	for (size_t i = 0; i < files; i++)
		FO_TRY(read_file(log, path[i], (int)i));
	forget_impossible(log);
	fo_log_speed(log);
	if (log->kinds && fo_log_is_mixed(log))
		return fo_hint(
			fo_fail(FO_EFORMAT,
				"'%s'%s: lines of several runs alternate: %zu times the step falls back and then "
				"goes on from where it was",
				path[0], files > 1 ? " and the files beside it" : "", log->crossings),
			"no figure of such a log is right: give the lines of one run alone");
	return FO_OK;
}

void fo_log_fini(struct fo_log *log)
{
	for (size_t i = 0; i < log->kinds; i++)
		fo_log_lines_fini(&log->lines[i]);
	free(log->lines);
	free(log->size);
	free(log->seconds);
	free(log->row);
	free(log->part);
	free(log->phase);
	fo_arena_fini(&log->arena);
	*log = (struct fo_log){ 0 };
}
