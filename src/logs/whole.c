/* Logs that are not read line by line: trainer_state.json, Megatron's golden values, CSV, and what the Hugging Face
 * Trainer prints at its end (with tqdm's progress bars, which hold the only times of most such logs). */
#define _GNU_SOURCE /* memrchr */
#include "logs/logs_int.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct fo_log_kind trainer_state = { "trainer_state", "Hugging Face trainer_state.json",
						  "transformers 5.23.0", FO_LOG_RULE_NONE, FO_LOG_MEAN };
static const struct fo_log_kind golden = { "golden", "Megatron-LM golden values", "core 0.20.0", FO_LOG_RULE_NONE,
					   FO_LOG_MEAN };
static const struct fo_log_kind csv = { "csv", "CSV (Lightning and others)", "Lightning 2.6.6", FO_LOG_RULE_NONE,
					FO_LOG_MEAN };
static const struct fo_log_kind trainer = { "trainer", "Hugging Face Trainer, printed", "transformers 5.23.0",
					    FO_LOG_RULE_NONE, FO_LOG_MEAN };

static double number_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static double at_least(double v, double least) { return v >= least ? v : NAN; }

/* ---- trainer_state.json ---- */

static void take_summary(struct fo_log *log, const json_t *o)
{
	struct fo_log_summary *s = &log->summary;
	s->seconds = at_least(number_of(o, "train_runtime"), 1e-9);
	s->samples_rate = at_least(number_of(o, "train_samples_per_second"), 1e-9);
	if (isnan(s->steps))
		s->steps = at_least(number_of(o, "step"), 1);
}

static bool read_trainer_state(struct fo_log *log, const json_t *o, int file)
{
	const json_t *history = json_object_get(o, "log_history"), *e;
	size_t i;
	if (!json_is_array(history))
		return false;
	struct fo_log_lines *l = fo_log_lines_of(log, &trainer_state);
	json_array_foreach(history, i, e)
	{
		if (!json_object_get(e, "loss")) {
			if (json_object_get(e, "train_runtime"))
				take_summary(log, e);
			continue;
		}
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_STEP] = number_of(e, "step");
		row[FO_LOG_STEPS] = number_of(o, "max_steps");
		row[FO_LOG_LOSS] = number_of(e, "loss");
		row[FO_LOG_SEEN_TOKENS] = at_least(number_of(e, "num_input_tokens_seen"), 1);
		row[FO_LOG_RATE] = number_of(e, "tokens/train_per_sec_per_gpu");
		row[FO_LOG_TOTAL] = number_of(e, "train_runtime"); /* where tokens are counted, in each entry */
		fo_log_add(l, row, file);
	}
	return true;
}

/* ---- Megatron's golden values ---- */

static bool read_golden(struct fo_log *log, const json_t *o, int file)
{
	const json_t *time = json_object_get(json_object_get(o, "iteration-time"), "values");
	const json_t *loss = json_object_get(json_object_get(o, "lm loss"), "values");
	if (!json_is_object(time))
		return false;
	struct fo_log_lines *l = fo_log_lines_of(log, &golden);
	const char *key;
	const json_t *v;
	json_object_foreach((json_t *)time, key, v)
	{
		if (!json_is_number(v))
			continue; /* "nan" as text, where the interval of the log is longer than a step */
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_STEP] = strtod(key, NULL);
		row[FO_LOG_SECONDS] = json_number_value(v);
		row[FO_LOG_LOSS] = number_of(loss, key);
		fo_log_add(l, row, file);
	}
	return true;
}

/* ---- CSV ---- */

static const struct column {
	const char *name;
	enum fo_log_field field;
	double scale;
} column[] = {
	{ "step", FO_LOG_STEP, 1 },
	{ "global_step", FO_LOG_STEP, 1 },
	{ "trainer/global_step", FO_LOG_STEP, 1 },
	{ "_step", FO_LOG_STEP, 1 },
	{ "iteration", FO_LOG_STEP, 1 },
	{ "train_loss", FO_LOG_LOSS, 1 },
	{ "train_loss_step", FO_LOG_LOSS, 1 },
	{ "train/loss", FO_LOG_LOSS, 1 },
	{ "loss", FO_LOG_LOSS, 1 },
	{ "reduced_train_loss", FO_LOG_LOSS, 1 },
	{ "train_step_timing in s", FO_LOG_SECONDS, 1 },
	{ "step_time", FO_LOG_SECONDS, 1 },
	{ "iter_time", FO_LOG_SECONDS, 1 },
	{ "time/step", FO_LOG_SECONDS, 1 },
	{ "throughput/device/tokens_per_sec", FO_LOG_RATE, 1 },
	{ "tokens_per_sec_per_gpu", FO_LOG_RATE, 1 },
	{ "tokens_per_second_per_gpu", FO_LOG_RATE, 1 },
	{ "throughput/tokens_per_sec", FO_LOG_RATE_ALL, 1 },
	{ "tokens_per_sec", FO_LOG_RATE_ALL, 1 },
	{ "tokens_per_second", FO_LOG_RATE_ALL, 1 },
	{ "throughput/device/mfu", FO_LOG_MFU, 1 },
	/* Lightning's ThroughputMonitor. Its items are what `length_fn` counts, which are tokens. Its time is not read:
	 * the step beside it counts batches, also where several make an optimizer step. */
	{ "train/device/items_per_sec", FO_LOG_RATE, 1 },
	{ "train/items_per_sec", FO_LOG_RATE_ALL, 1 },
	{ "train/device/mfu", FO_LOG_MFU, 1 },
	{ "train/device/flops_per_sec", FO_LOG_TFLOPS, 1e-12 },
	{ "train|device|items_per_sec", FO_LOG_RATE, 1 },
	{ "train|device|mfu", FO_LOG_MFU, 1 },
	{ "throughput/device/items_per_sec", FO_LOG_RATE, 1 },
	{ "total_tokens", FO_LOG_SEEN_TOKENS, 1 },
	{ "consumed_samples", FO_LOG_SEEN_SAMPLES, 1 },
	{ "_timestamp", FO_LOG_AT, 1 },
	{ "_runtime", FO_LOG_TOTAL, 1 },
	{ "time", FO_LOG_TOTAL, 1 },
};

enum { HEADER = 4 << 20, UNKNOWN = -1 }; /* bytes of the first line */

/* The cell at p, its quotes left out; *next is behind its comma, or the line's end. A comma in quotes is none. */
static const char *cell(const char *p, const char *end, size_t *len, const char **next)
{
	while (p < end && *p == ' ')
		p++;
	const char *quote = p < end && *p == '"' ? memchr(p + 1, '"', (size_t)(end - p - 1)) : NULL;
	while (quote && quote + 1 < end && quote[1] == '"') /* a quote in quotes is doubled */
		quote = memchr(quote + 2, '"', (size_t)(end - quote - 2));
	const char *from = quote ? quote : p, *stop = memchr(from, ',', (size_t)(end - from));
	stop = stop ? stop : end;
	*next = stop < end ? stop + 1 : end + 1;
	while (p < stop && (*p == ' ' || *p == '"'))
		p++;
	while (stop > p && (stop[-1] == ' ' || stop[-1] == '"' || stop[-1] == '\r'))
		stop--;
	*len = (size_t)(stop - p);
	return p;
}

static bool is_named(const char *name, size_t len, const char *what)
{
	return len == strlen(what) && !strncasecmp(name, what, len);
}

/* The number of columns up to the last one that is known; 0: no such CSV. of: one more than the line has commas. */
static int heads(const char *p, const char *end, int8_t *of)
{
	int n = 0, known = 0, last = 0;
	bool step = false, litgpt = false;
	for (const char *next; p <= end; p = next) {
		size_t len;
		const char *name = cell(p, end, &len, &next);
		of[n] = UNKNOWN;
		for (size_t k = 0; k < sizeof column / sizeof *column; k++)
			if (is_named(name, len, column[k].name))
				of[n] = (int8_t)k;
		known += of[n] >= 0;
		step |= of[n] >= 0 && column[of[n]].field == FO_LOG_STEP;
		litgpt |= is_named(name, len, "remaining_time");
		last = of[n] >= 0 ? n + 1 : last;
		n++;
	}
	/* litgpt's steps and times are those of micro-batches, and no column tells how many make a step. */
	for (int i = 0; litgpt && i < last; i++)
		if (of[i] >= 0 && column[of[i]].field == FO_LOG_SECONDS)
			of[i] = UNKNOWN;
	return step && known > 1 ? last : 0;
}

/* A column named "time" may as well be a step's: a running time never falls while the steps go up. */
static void drop_falling(struct fo_log_lines *l, size_t from)
{
	bool falls = false;
	for (size_t i = from + 1; i < l->count && !falls; i++)
		falls = fo_log_get(l, i, FO_LOG_TOTAL) < fo_log_get(l, i - 1, FO_LOG_TOTAL) &&
			fo_log_get(l, i, FO_LOG_STEP) > fo_log_get(l, i - 1, FO_LOG_STEP);
	for (size_t i = from; i < l->count && falls; i++)
		fo_log_set(l, i, FO_LOG_TOTAL, NAN);
}

static void read_rows(struct fo_log *log, const char *p, const char *end, const int8_t *of, int n, int file)
{
	struct fo_log_lines *l = fo_log_lines_of(log, &csv);
	size_t from = l->count;
	for (const char *feed; p < end; p = feed + 1) {
		feed = memchr(p, '\n', (size_t)(end - p));
		feed = feed ? feed : end;
		double row[FO_LOG_FIELDS], v;
		const char *next = p, *behind;
		fo_log_blank(row);
		for (int c = 0; c < n && next <= feed; c++) {
			size_t width;
			const char *at = cell(next, feed, &width, &next);
			if (of[c] >= 0 && width && fo_log_number(at, at + width, &v, &behind) && behind == at + width)
				row[column[of[c]].field] = v * column[of[c]].scale;
		}
		if (isnan(row[FO_LOG_STEP]))
			continue;
		/* Lightning writes a row per logged group: rows of one step complete each other. */
		bool more = l->count && fo_log_get(l, l->count - 1, FO_LOG_STEP) == row[FO_LOG_STEP];
		for (int f = 0; more && f < FO_LOG_FIELDS; f++)
			if (isnan(fo_log_get(l, l->count - 1, (enum fo_log_field)f)))
				fo_log_set(l, l->count - 1, (enum fo_log_field)f, row[f]);
		if (!more)
			fo_log_add(l, row, file);
	}
	drop_falling(l, from);
}

static bool read_csv(struct fo_log *log, const char *text, size_t len, int file)
{
	const char *feed = memchr(text, '\n', len < HEADER ? len : HEADER);
	size_t columns = 1;
	for (const char *p = text; feed && (p = memchr(p, ',', (size_t)(feed - p))) != NULL; p++)
		columns++;
	if (!feed || columns < 2)
		return false;
	int8_t *of = fo_xmalloc(columns);
	int n = heads(text, feed, of);
	if (n)
		read_rows(log, feed + 1, text + len, of, n, file);
	free(of);
	return n > 0;
}

/* ---- the Trainer's last dict, and tqdm's bars ---- */

static double dict_value(const char *p, const char *end, const char *key)
{
	const char *at = fo_log_find(p, end, key), *behind;
	double v;
	if (!at)
		return NAN;
	for (at += strlen(key); at < end && strchr("': =", *at); at++)
		;
	return fo_log_number(at, end, &v, &behind) ? v : NAN;
}

/* "12/400 [00:30<16:00,  2.48s/it]" that ends at `unit`. */
static bool bar_at(const char *text, const char *unit, double *step, double *steps, double *elapsed)
{
	const char *most = unit - text > 96 ? unit - 96 : text, *p = unit, *behind;
	while (p > most && *p != '[')
		p--;
	if (*p != '[' || !fo_log_clock(p + 1, unit, elapsed))
		return false;
	const char *slash = p;
	while (slash > most && *slash != '/')
		slash--;
	const char *n = slash;
	while (n > most && n[-1] >= '0' && n[-1] <= '9')
		n--;
	return *slash == '/' && n < slash && fo_log_number(n, slash, step, &behind) &&
	       fo_log_number(slash + 1, p, steps, &behind);
}

/* Bars of both units, as they come. What is printed behind a bar and before the next one belongs to its step. */
static void read_bars(struct fo_log_lines *l, const char *text, const char *end, int file)
{
	const char *slow = fo_log_find(text, end, "s/it"), *fast = fo_log_find(text, end, "it/s");
	while (slow || fast) {
		bool is_slow = slow && (!fast || slow < fast);
		const char *p = is_slow ? slow : fast;
		if (is_slow)
			slow = fo_log_find(p + 1, end, "s/it");
		else
			fast = fo_log_find(p + 1, end, "it/s");
		double step, steps, elapsed;
		if (!bar_at(text, p, &step, &steps, &elapsed) || step < 1)
			continue;
		const char *next = slow && (!fast || slow < fast) ? slow : fast ? fast : end;
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_STEP] = step;
		row[FO_LOG_STEPS] = steps;
		row[FO_LOG_TOTAL] = elapsed;
		const char *dict = fo_log_find(p, next, "{'loss':");
		if (dict) {
			row[FO_LOG_LOSS] = dict_value(dict, next, "{'loss':");
			row[FO_LOG_RATE] = dict_value(dict, next, "'tokens/train_per_sec_per_gpu':");
		}
		fo_log_add(l, row, file);
	}
}

struct bar {
	double steps, longest;
	size_t losses;
};

enum { BARS = 64 };

static int collect_bars(const struct fo_log_lines *l, size_t from, struct bar bar[BARS])
{
	int n = 0, k;
	for (size_t i = from; i < l->count; i++) {
		double steps = fo_log_get(l, i, FO_LOG_STEPS);
		for (k = 0; k < n && bar[k].steps != steps; k++)
			;
		if (k == BARS)
			continue;
		if (k == n)
			bar[n++] = (struct bar){ .steps = steps };
		bar[k].longest = fmax(bar[k].longest, fo_log_get(l, i, FO_LOG_TOTAL));
		bar[k].losses += !isnan(fo_log_get(l, i, FO_LOG_LOSS));
	}
	return n;
}

static bool better_bar(const struct bar *a, const struct bar *b, double runtime)
{
	static const double near = 0.05;
	bool a_fits = fabs(a->longest - runtime) < near * runtime, b_fits = fabs(b->longest - runtime) < near * runtime;
	if (a->losses != b->losses)
		return a->losses > b->losses;
	return a_fits != b_fits ? a_fits : a->longest > b->longest;
}

/* Keeps training's bar, beside those of evaluation and of preparing data: the one with losses between its lines, else
 * the one that took as long as the training, else the longest. */
static void keep_training(struct fo_log_lines *l, size_t from, double runtime)
{
	struct bar bar[BARS];
	int bars = collect_bars(l, from, bar), best = 0;
	size_t n = from;
	for (int k = 1; k < bars; k++)
		best = better_bar(&bar[k], &bar[best], runtime) ? k : best;
	for (size_t i = from; i < l->count; i++)
		if (fo_log_get(l, i, FO_LOG_STEPS) == bar[best].steps)
			fo_log_copy(l, n++, i);
	l->count = n;
}

/* The dict that the Trainer prints at its end. Where tokens are counted, each dict has a "train_runtime", too. */
static bool read_summary(struct fo_log *log, const char *text, const char *end)
{
	const char *p = fo_log_find(text, end, "'train_samples_per_second'");
	if (!p)
		return false;
	const char *from = p - text > 512 ? p - 512 : text, *most = end - p > 512 ? p + 512 : end;
	const char *open = memrchr(from, '{', (size_t)(p - from));
	log->summary.seconds = dict_value(open ? open : from, most, "'train_runtime'");
	log->summary.samples_rate = dict_value(p, most, "'train_samples_per_second'");
	return true;
}

/* Dicts that count tokens have a running time, but no step: tokens/s from one to the next. */
static void read_counted(struct fo_log_lines *l, const char *text, const char *end, int file)
{
	static const char mark[] = "'train_tokens_per_second':";
	double tokens = NAN, seconds = NAN;
	const char *next;
	for (const char *p = text; (p = fo_log_find(p, end, mark)) != NULL; p = next) {
		const char *from = p - text > 4096 ? p - 4096 : text, *open = memrchr(from, '{', (size_t)(p - from));
		next = p + sizeof mark - 1;
		if (!open || !fo_log_find(open, p, "'loss':"))
			continue;
		double seen = dict_value(open, p, "'num_input_tokens_seen':"),
		       at = dict_value(open, p, "'train_runtime':");
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_LOSS] = dict_value(open, p, "'loss':");
		row[FO_LOG_SEEN_TOKENS] = seen;
		if (seen > tokens && at > seconds)
			row[FO_LOG_RATE_ALL] = (seen - tokens) / (at - seconds);
		fo_log_add(l, row, file);
		tokens = seen;
		seconds = at;
	}
}

/* Adds what a printed Trainer log tells; other lines of progress in the same file are read as well. */
static void read_trainer(struct fo_log *log, const char *text, size_t len, int file)
{
	const char *end = text + len;
	bool summary = fo_log_is_there(text, len, "'train_samples_per_second'") && read_summary(log, text, end);
	if (!summary && !fo_log_is_there(text, len, "{'loss':"))
		return;
	struct fo_log_lines *l = fo_log_lines_of(log, &trainer);
	size_t from = l->count;
	read_bars(l, text, end, file);
	keep_training(l, from, log->summary.seconds);
	if (l->count == from)
		read_counted(l, text, end, file);
}

static json_t *parse_object(const char *text, size_t len)
{
	size_t at = 0;
	while (at < len && strchr(" \t\r\n", text[at]) && text[at])
		at++;
	enum { MOST = 256 << 20 };
	const char *line = memchr(text, '\n', len);
	if (at >= len || text[at] != '{' || len > MOST || (line && line > text && line[-1] == '}'))
		return NULL; /* an object per line is read by its lines */
	return json_loadb(text, len, 0, NULL);
}

bool fo_log_whole(struct fo_log *log, const char *text, size_t len, int file, const char *path)
{
	(void)path;
	json_t *o = parse_object(text, len);
	bool found = o && (read_trainer_state(log, o, file) || read_golden(log, o, file));
	json_decref(o);
	if (found || read_csv(log, text, len, file))
		return true;
	read_trainer(log, text, len, file);
	return false;
}
