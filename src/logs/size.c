/* How many devices a run has, and from where in its files on: a process that begins again prints its own number. */
#include "logs/logs_int.h"

#include <math.h>
#include <string.h>

enum { START = 1024 }; /* bytes between two lines of progress in which a process may have begun */

static double known(double a, double b) { return isnan(a) ? b : a; }

double fo_log_told_devices(const struct fo_log *log)
{
	const struct fo_log_told *t = log->told;
	if (fo_log_knows(log, FO_LOG_DEVICES))
		return t[FO_LOG_DEVICES].number;
	if (fo_log_knows(log, FO_LOG_DP_SHARD) || fo_log_knows(log, FO_LOG_DP_REPLICATE))
		return known(t[FO_LOG_DP_SHARD].number, 1) * known(t[FO_LOG_DP_REPLICATE].number, 1) *
		       known(t[FO_LOG_TP].number, 1) * known(t[FO_LOG_PP].number, 1) * known(t[FO_LOG_CP].number, 1);
	return t[FO_LOG_NODES].number * t[FO_LOG_PER_NODE].number;
}

/* The product of a torchtitan mesh; NAN where a dimension is below 1 ("dp_shard=-1": what the others leave). */
static double mesh_at(const char *p, const char *end)
{
	static const char *const dimension[] = { "pp=", "dp_replicate=", "dp_shard=", "cp=", "tp=" };
	const char *feed = memchr(p, '\n', (size_t)(end - p)), *behind;
	double devices = 1, v;
	end = feed ? feed : end;
	for (size_t i = 0; i < sizeof dimension / sizeof *dimension; i++) {
		const char *at = fo_log_find(p, end, dimension[i]);
		if (!at)
			continue;
		at += strlen(dimension[i]);
		devices *= fo_log_number(at, end, &v, &behind) && v >= 1 ? v : NAN;
	}
	return devices;
}

static void add_size(struct fo_log *log, int file, double place, double devices)
{
	const struct fo_log_size *last = log->sizes ? &log->size[log->sizes - 1] : NULL;
	if (!(devices >= 1) || (last && last->file == file && last->devices == devices))
		return;
	log->size = fo_xrealloc(log->size, (log->sizes + 1) * sizeof *log->size);
	log->size[log->sizes++] = (struct fo_log_size){ file, place, devices };
}

/* The last number that is named in [p, to) holds for what follows. */
static void read_start(struct fo_log *log, const char *text, const char *p, const char *to, int file)
{
	static const char mesh[] = "device mesh with parallelism:";
	double devices = NAN;
	for (const struct fo_log_word *w = fo_log_word; w < fo_log_word + fo_log_words; w++)
		for (const char *at = p; w->fact == FO_LOG_DEVICES && (at = fo_log_find(at, to, w->text)) != NULL; at++)
			devices = known(fo_log_fact_at(w, text, at, to), devices);
	for (const char *at = p; (at = fo_log_find(at, to, mesh)) != NULL; at++)
		devices = known(mesh_at(at, to), devices);
	add_size(log, file, (double)(to - text), devices);
}

void fo_log_find_sizes(struct fo_log *log, const char *text, size_t len, int file)
{
	const struct fo_log_lines *l = NULL;
	size_t from = 0;
	for (size_t k = 0; k < log->kinds; k++) {
		const struct fo_log_lines *x = &log->lines[k];
		size_t first = x->files > file ? x->from[file] : x->count;
		if (!l || x->count - first > l->count - from) {
			l = x;
			from = first;
		}
	}
	double last = 0;
	for (size_t i = from; l && i < l->count; i++) {
		double place = fo_log_get(l, i, FO_LOG_PLACE);
		bool first = i == from,
		     falls = !first && fo_log_get(l, i, FO_LOG_STEP) < fo_log_get(l, i - 1, FO_LOG_STEP);
		if ((first || falls || place - last > START) && place <= (double)len)
			read_start(log, text, text + (size_t)last, text + (size_t)place, file);
		last = place;
	}
}

static int file_of(const struct fo_log_lines *l, size_t row)
{
	int f = 0;
	while (f + 1 < l->files && l->from[f + 1] <= row)
		f++;
	return f;
}

double fo_log_devices(const struct fo_log *log, size_t i)
{
	const struct fo_log_lines *l = &log->lines[0];
	if (!log->sizes || i >= log->steps)
		return fo_log_told_devices(log);
	if (log->sizes == 1)
		return log->size[0].devices;
	int file = file_of(l, log->row[i]);
	double place = fo_log_get(l, log->row[i], FO_LOG_PLACE);
	size_t low = 0, high = log->sizes; /* the last one that does not come behind the line */
	while (high - low > 1) {
		const struct fo_log_size *s = &log->size[low + (high - low) / 2];
		if (s->file < file || (s->file == file && !(s->place > place)))
			low += (high - low) / 2;
		else
			high = low + (high - low) / 2;
	}
	return log->size[low].devices;
}
