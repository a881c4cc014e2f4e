/* MLPerf training logs: ":::MLLOG {json}" and ":::SYSJSON {json}", a line each.
 *
 * They tell times of blocks of steps and not of steps. What a block counts differs between submitters: epoch_num,
 * samples_count and step may be samples, steps or tokens. Arithmetic decides: a count that is a multiple of the tokens
 * of a step, and at least one step, is tokens; else a multiple of the batch is samples; else it is steps. */
#include "logs/logs_int.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fo_log_kind mlperf = { "mlperf", "MLPerf training log", "mlperf_logging 4.1.68", FO_LOG_RULE_NONE,
					   FO_LOG_MEAN };

/* The benchmarks of MLPerf training that train a transformer: model and sequence as its rules fix them. */
static const struct benchmark {
	const char *name, *model;
	double seq, vocab, lora;
} benchmark[] = {
	{ "gpt3", "gpt3-175b", 2048, 51200, 0 },
	{ "llama2_70b_lora", "llama-2-70b", 8192, 0, 16 },
	{ "llama31_405b", "llama-3.1-405b", 8192, 0, 0 },
	{ "llama31_8b", "llama-3.1-8b", 8192, 0, 0 },
};

struct reader {
	struct fo_log *log;
	struct fo_log_lines *lines;
	const char *path;
	int64_t line;
	int file;
	/* The open block: where it began, evaluations in it, the counts of its events. */
	double began, eval_began, evals;
	double first, counted, announced, seen; /* counts: at its begin, its length as its begin and end say, largest */
	double stopped_samples, done;
	double run_began;
	bool rates; /* tracked_stats tell the rate: blocks are not needed */
};

static double number_of(const json_t *o, const char *key)
{
	const json_t *v = json_object_get(o, key);
	if (json_is_string(v))
		return strtod(json_string_value(v), NULL);
	return json_is_number(v) ? json_number_value(v) : NAN;
}

static void tell(struct reader *r, enum fo_log_fact f, double v)
{
	if (v > 0)
		fo_log_tell(r->log, f, v, NULL, 0, r->path, r->line);
}

static void tell_text(struct reader *r, enum fo_log_fact f, const char *text)
{
	if (text && *text)
		fo_log_tell(r->log, f, NAN, text, strlen(text), r->path, r->line);
}

/* "64xNVIDIA DGX H100" is 64 nodes of 8; "gaudi-1024" ends in its number of devices. */
static void read_platform(struct reader *r, const char *text)
{
	char *x;
	double n = strtod(text, &x);
	const char *dgx = strstr(text, "DGX ");
	if (n >= 1 && *x == 'x' && dgx) {
		tell(r, FO_LOG_NODES, n);
		tell(r, FO_LOG_PER_NODE, 8);
		char device[64]; /* the modules of a DGX have no PCIe form */
		snprintf(device, sizeof device, "NVIDIA %s SXM", dgx + 4);
		tell_text(r, FO_LOG_DEVICE, device);
	}
	const char *minus = strrchr(text, '-');
	if (!strncmp(text, "gaudi-", 6) && minus) {
		tell(r, FO_LOG_DEVICES, strtod(minus + 1, NULL));
		tell_text(r, FO_LOG_DEVICE, "Gaudi2");
	}
}

static void read_system(struct reader *r, const json_t *o)
{
	tell(r, FO_LOG_NODES, number_of(o, "number_of_nodes"));
	tell(r, FO_LOG_PER_NODE, number_of(o, "accelerators_per_node"));
	tell_text(r, FO_LOG_DEVICE, json_string_value(json_object_get(o, "accelerator_model_name")));
}

static void read_benchmark(struct reader *r, const char *name)
{
	for (size_t i = 0; i < sizeof benchmark / sizeof *benchmark; i++)
		if (!strcmp(name, benchmark[i].name)) {
			tell_text(r, FO_LOG_MODEL, benchmark[i].model);
			tell(r, FO_LOG_VOCAB, benchmark[i].vocab);
			tell(r, FO_LOG_LORA, benchmark[i].lora);
			tell(r, FO_LOG_SEQ, benchmark[i].seq);
		}
}

/* Steps in a count, by the rule above; NAN where the batch is not known. */
static double steps_in(const struct reader *r, double count)
{
	double batch = r->log->told[FO_LOG_BATCH].number, seq = r->log->told[FO_LOG_SEQ].number;
	if (!(count > 0))
		return NAN;
	if (count >= batch * seq && fmod(count, batch * seq) == 0)
		return count / (batch * seq);
	if (count >= batch && fmod(count, batch) == 0)
		return count / batch;
	return isnan(batch) ? NAN : count;
}

static void add_row(struct reader *r, double at, double seconds, double steps)
{
	double row[FO_LOG_FIELDS];
	fo_log_blank(row);
	r->done += steps;
	row[FO_LOG_STEP] = r->done;
	row[FO_LOG_SECONDS] = seconds;
	row[FO_LOG_AT] = at;
	fo_log_add(r->lines, row, r->file);
}

static void end_block(struct reader *r, double at)
{
	double seen = r->seen > r->first ? r->seen - r->first : r->announced;
	double count = isnan(r->counted) ? seen : r->counted;
	double steps = steps_in(r, count);
	if (!isnan(r->began) && steps >= 1 && at > r->began)
		add_row(r, at, (at - r->began - r->evals) / steps, steps);
	r->began = NAN;
}

/* Where a count is given at a block's end: the difference to the end of the block before. */
static void stop_block(struct reader *r, double at, const json_t *meta)
{
	double samples = number_of(meta, "samples_count");
	r->counted = number_of(meta, "epoch_count");
	if (!isnan(samples)) {
		r->counted = isnan(r->stopped_samples) ? NAN : samples - r->stopped_samples;
		r->stopped_samples = samples;
		r->seen = NAN;
	}
	if (r->evals == 0 || !isnan(r->counted))
		end_block(r, at);
	else
		r->eval_began = at; /* the counts of such a block come with the events behind it */
}

static void block_event(struct reader *r, const char *key, double at, const json_t *meta)
{
	double count = fmax(number_of(meta, "epoch_num"), number_of(meta, "samples_count"));
	if (!strcmp(key, "block_start")) {
		r->began = at;
		r->first = number_of(meta, "first_epoch_num");
		r->announced = number_of(meta, "epoch_count");
		if (number_of(meta, "samples_count") ==
		    0) /* the first block: later ones may have a block's own count there */
			r->stopped_samples = 0;
		r->counted = r->seen = NAN;
		r->evals = 0;
	} else if (!strcmp(key, "block_stop")) {
		stop_block(r, at, meta);
	} else if (!strcmp(key, "run_start")) {
		r->run_began = at;
	} else if (!strcmp(key, "run_stop") && !isnan(r->began) && r->done == 0) {
		r->began = r->run_began; /* one block for the whole run: the run's own clock */
		r->eval_began = at;
	} else if (!strcmp(key, "eval_start")) {
		r->eval_began = at;
	} else if (!strcmp(key, "eval_stop")) {
		r->evals += at - r->eval_began;
	}
	if (!isnan(count) && !(r->seen >= count) && strcmp(key, "block_stop") != 0)
		r->seen = count;
}

static void event(struct reader *r, const json_t *o)
{
	static const struct {
		const char *key;
		enum fo_log_fact fact;
	} of[] = { { "global_batch_size", FO_LOG_BATCH }, { "num_layers", FO_LOG_LAYERS },
		   { "num_heads", FO_LOG_HEADS },         { "hidden_size", FO_LOG_HIDDEN },
		   { "ffn_hidden_size", FO_LOG_FFN },     { "lora_rank", FO_LOG_LORA } };
	const char *key = json_string_value(json_object_get(o, "key"));
	const json_t *value = json_object_get(o, "value"), *meta = json_object_get(o, "metadata");
	double at = number_of(o, "time_ms") * 1e-3;
	if (!key)
		return;
	for (size_t i = 0; i < sizeof of / sizeof *of; i++)
		if (!strcmp(key, of[i].key))
			tell(r, of[i].fact, number_of(o, "value"));
	if (!strcmp(key, "max_sequence_length") && number_of(o, "value") > 0) { /* goes before what the rules fix */
		r->log->told[FO_LOG_SEQ].file = NULL;
		tell(r, FO_LOG_SEQ, number_of(o, "value"));
	}
	if (!strcmp(key, "submission_platform") && json_is_string(value))
		read_platform(r, json_string_value(value));
	if (!strcmp(key, "submission_benchmark") && json_is_string(value))
		read_benchmark(r, json_string_value(value));
	double rate = number_of(value, "throughput");
	if (!strcmp(key, "tracked_stats") && rate > 0) {
		if (!r->rates)
			r->lines->count = 0;
		r->rates = true;
		double row[FO_LOG_FIELDS];
		fo_log_blank(row);
		row[FO_LOG_STEP] = steps_in(r, number_of(meta, "step"));
		row[FO_LOG_SAMPLES_RATE] = rate;
		row[FO_LOG_SECONDS] = r->log->told[FO_LOG_BATCH].number / rate;
		row[FO_LOG_AT] = at;
		fo_log_add(r->lines, row, r->file);
	}
	if (!r->rates)
		block_event(r, key, at, meta);
}

bool fo_log_mlperf(struct fo_log *log, const char *text, size_t len, int file, const char *path)
{
	const char *end = text + len, *p;
	if (!fo_log_is_there(text, len, ":::MLLOG"))
		return false;
	struct reader r = { .log = log,
			    .lines = fo_log_lines_of(log, &mlperf),
			    .path = path,
			    .file = file,
			    .began = NAN,
			    .run_began = NAN,
			    .seen = NAN,
			    .stopped_samples = NAN,
			    .counted = NAN };
	const char *counted = text;
	r.line = 1;
	for (p = text; (p = fo_log_find(p, end, ":::")) != NULL; p++) {
		if (strncmp(p, ":::MLLOG", 8) != 0 && strncmp(p, ":::SYSJSON", 10) != 0)
			continue;
		const char *feed = memchr(p, '\n', (size_t)(end - p)), *stop = feed ? feed : end;
		const char *brace = memchr(p, '{', (size_t)(stop - p));
		for (; (counted = memchr(counted, '\n', (size_t)(p - counted))) != NULL; counted++)
			r.line++;
		counted = p;
		bool system = p[3] == 'S';
		p = stop - 1; /* the rest of the line is read here */
		if (!brace)
			continue;
		json_t *o = json_loadb(brace, (size_t)(stop - brace), JSON_DISABLE_EOF_CHECK, NULL);
		if (o && system)
			read_system(&r, o);
		else if (o)
			event(&r, o);
		json_decref(o);
	}
	if (!isnan(r.began)) /* one block for the whole run: its counts have been seen by now */
		end_block(&r, r.eval_began);
	return true;
}
