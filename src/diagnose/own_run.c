/* Timelines of our own engine: what the run's record says beside them, rules on its options, words for a
 * processor. */
#include "diagnose/findings_int.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "record/record.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the record ---- */

/* "yes" and the like of an option in run.json; "" without. */
static const char *option(const struct fo_record *r, const char *key)
{
	const struct fo_record_option *o = fo_record_option(r, key);
	return o ? o->value : "";
}

static void take(struct fo_own_run *x, const struct fo_record *r)
{
	static const char *const key[FO_OWN_OPTIONS] = { "eval.every",           "eval.batches",
							 "checkpoint.every",     "pass.fuse-elementwise",
							 "pass.fused-optimizer", "run.threads" };
	const struct fo_record_start *start = fo_record_last_start(r);
	int64_t n = r->step.n; /* the same median as 'flatout report' prints */
	x->mfu = fo_record_quantile(&r->step, FO_STEP_MFU, 0, n, 0.5);
	x->mfu_causal = fo_record_quantile(&r->step, FO_STEP_MFU_CAUSAL, 0, n, 0.5);
	x->steps = n;
	x->peak_flop_s = n ? fo_record_peak_of(r, n - 1) : r->peak_flop_s;
	x->threads = fo_record_host_threads(r, start ? start->threads : r->threads);
	x->load = fo_record_load(r);
	x->processors = r->state.cpus;
	x->processor = !start || !*start->device;
	snprintf(x->device, sizeof x->device, "%s", x->processor ? r->cpu : start->device);
	snprintf(x->dtype, sizeof x->dtype, "%s", start ? start->peak_dtype : "");
	snprintf(x->peak_source, sizeof x->peak_source, "%s", r->peak_source);
	for (int i = 0; i < FO_OWN_OPTIONS; i++) {
		x->key[i] = key[i];
		snprintf(x->value[i], sizeof x->value[i], "%s", option(r, key[i]));
	}
	x->known = isfinite(x->mfu) && isfinite(x->peak_flop_s);
}

void fo_own_run_of(struct fo_diagnosis *d)
{
	struct fo_own_run *x = &d->own;
	struct fo_record r;
	*x = (struct fo_own_run){
		.mfu = NAN, .mfu_causal = NAN, .peak_flop_s = NAN, .load = NAN, .processors = -1, .processor = true
	};
	if (!d->ranks || d->rank[0].trace->format != FO_TRACE_OWN)
		return;
	x->is = true;
	struct fo_str dir = { 0 };
	const char *path = d->rank[0].trace->path, *slash = strrchr(path, '/');
	if (!slash)
		fo_str_puts(&dir, ".");
	else
		fo_str_append(&dir, path, slash > path ? (size_t)(slash - path) : 1);
	/* A timeline without a record beside it is diagnosed alone. */
	if (fo_record_open(&r, dir.data, 0) == FO_OK) {
		take(x, &r);
		fo_record_fini(&r);
	} else {
		fo_err_clear();
	}
	fo_str_fini(&dir);
}

const char *fo_own_mfu_text(const struct fo_own_run *x, char buf[400])
{
	char peak[32], causal[48] = "";
	if (isfinite(x->mfu_causal))
		snprintf(causal, sizeof causal, ", by mfu_causal %.1f %%", 100 * x->mfu_causal);
	size_t n = (size_t)snprintf(buf, 400,
				    "%.1f %% by rule mfu%s (median of %lld steps, from the run's record), of %s%s%s",
				    100 * x->mfu, causal, (long long)x->steps,
				    fo_str_si(peak, x->peak_flop_s, "FLOP/s"), *x->dtype ? " " : "", x->dtype);
	if (*x->peak_source && n < 400)
		snprintf(buf + n, 400 - n, ": %s", x->peak_source);
	return buf;
}

void fo_own_run_json(struct fo_json *j, const struct fo_diagnosis *d)
{
	const struct fo_own_run *x = &d->own;
	if (!x->is) {
		fo_json_raw(j, "own_run", "null");
		return;
	}
	fo_json_object(j, "own_run");
	fo_json_real(j, "mfu", x->mfu);
	fo_json_real(j, "mfu_causal", x->mfu_causal);
	fo_json_real(j, "peak_flop_s", x->peak_flop_s);
	fo_json_text(j, "dtype", *x->dtype ? x->dtype : NULL);
	fo_json_text(j, "peak_source", *x->peak_source ? x->peak_source : NULL);
	fo_json_text(j, "device", *x->device ? x->device : NULL);
	fo_json_bool(j, "processor", x->processor);
	fo_json_close(j);
}

/* ---- rules ---- */

static void propose(const struct fo_rule_context *c, struct fo_finding *f, const char *key, const char *only_if,
		    const char *to)
{
	const struct fo_own_run *x = &c->s->d->own;
	for (int i = 0; i < FO_OWN_OPTIONS && f->settings < FO_SETTINGS_MAX; i++) {
		if (!x->key[i] || strcmp(x->key[i], key) != 0 || !*x->value[i] ||
		    (only_if && strcmp(x->value[i], only_if) != 0))
			continue;
		struct fo_setting *s = &f->setting[f->settings++];
		*s = (struct fo_setting){ 0 };
		snprintf(s->framework, sizeof s->framework, "Flatout");
		snprintf(s->key, sizeof s->key, "%s", key);
		snprintf(s->now, sizeof s->now, "%s", x->value[i]);
		snprintf(s->proposed, sizeof s->proposed, "%s", to);
	}
}

/* The cost is known; the gain of another setting is not. */
static bool costs(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns)
{
	f->loss_ns = ns;
	fo_gain_none(f);
	return fo_notable(c, f, ns);
}

static bool waits_for_data(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = c->s->l.idle_ns[FO_IDLE_HOST_DATA];
	if (!costs(c, f, idle))
		return false;
	fo_title(f, "the step waits for its batch: %.1f %% of it", fo_percent(c, idle));
	fo_why(f, "The loader had not filled the next batch when the step needed it. Look at the disk that holds the "
		  "shards, and at what else runs on this machine.");
	fo_evidence_host(f, c->s, FO_HOST_DATA);
	if (!f->evidences)
		fo_evidence_gaps(f, c->s, c->gap, c->gaps, 1u << FO_IDLE_HOST_DATA, 0, INT64_MAX);
	return true;
}

static bool between_steps(const struct fo_rule_context *c, struct fo_finding *f)
{
	const int64_t *by = c->s->l.idle_ns,
		      idle = by[FO_IDLE_HOST_OTHER] + by[FO_IDLE_HOST_SYNC] + by[FO_IDLE_HOST_LAUNCH_BOUND];
	if (!costs(c, f, idle))
		return false;
	fo_title(f, "between steps nothing is trained: %.1f %% of the time", fo_percent(c, idle));
	fo_why(f, "That is where the training loop evaluates, saves and logs; 'flatout report RUN' says how long each "
		  "took. Of a run of few steps it is much, of a long one little.");
	propose(c, f, "eval.every", NULL, "more, or 0 for none");
	propose(c, f, "eval.batches", NULL, "fewer");
	propose(c, f, "checkpoint.every", NULL, "more");
	return true;
}

static bool moves_bytes(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t ns = fo_class_time(&c->s->l, FO_MOVING_CLASSES);
	costs(c, f, ns);
	if (!f->serious)
		return false;
	f->serious = false; /* no setting is sure to change it */
	fo_title(f, "operations that only move bytes: %.1f %% of the step", fo_percent(c, ns));
	fo_why(f, "Memory bandwidth limits them, not arithmetic. Their share is large where the model is narrow or its "
		  "rows are few.");
	propose(c, f, "pass.fuse-elementwise", "no", "yes");
	propose(c, f, "pass.fused-optimizer", "no", "yes");
	return true;
}

#define BETWEEN (1u << FO_IDLE_HOST_OTHER | 1u << FO_IDLE_HOST_SYNC | 1u << FO_IDLE_HOST_LAUNCH_BOUND)
const struct fo_rule_row fo_rules_own[] = {
	{ "own-data", FO_FIND_DATA, .holds = waits_for_data },
	{ "own-between-steps", FO_FIND_HOST, .holds = between_steps, .gaps = BETWEEN },
	{ "own-memory-bound", FO_FIND_MEMORY_BOUND, .holds = moves_bytes, .kernels = FO_MOVING_CLASSES },
	{ .id = NULL },
};

bool fo_own_others_ran(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_own_run *own = &c->s->d->own;
	char buf[96];
	const char *text = fo_state_others_text(own->load, own->processors, own->threads, buf);
	if (!own->is || !text)
		return false;
	fo_title(f, "%s", text);
	fo_why(f, "That is the highest load of the run's record. While another program has the processor, the time "
		  "counts as that of the operation that was interrupted, so times and MFU may be of the busy machine "
		  "and not of the model. Record it again on a quiet machine before you change anything.");
	return true;
}

/* Notes that only a profiler of GPUs can cause do not apply to our timelines. */
bool fo_own_validity(const char *id)
{
	static const char *const none[] = { "host-step", "unlinked", "profiler-overhead", "forward-only",
					    "no-training-step" };
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		if (!strcmp(id, none[i]))
			return false;
	return true;
}

/* ---- words ---- */

const char *fo_own_label(const struct fo_trace *t, const char *label)
{
#define OWN(id, name, words, own) own,
	static const char *const own[] = { FO_IDLE_LIST(OWN) };
	for (int i = 0; t->format == FO_TRACE_OWN && i < FO_IDLE_COUNT; i++)
		if (!strcmp(label, fo_idle_words[i]))
			return own[i];
	return label;
}

void fo_own_words(struct fo_str *s)
{
	/* The longer of two that begin alike comes first. */
	static const char *const word[][2] = {
		{ "GPU operations", "operations" },
		{ "GPU operation", "operation" },
		{ "GPU work", "work" },
		{ "The GPU", "The processor" },
		{ "GPU 0, stream", "lane" },
		{ "GPU 0", "processor" },
		{ "GPU idle", "idle" },
		{ "GPUs", "processors" },
		{ "GPU", "processor" },
		{ "kernels", "operations" },
		{ "kernel", "operation" },
		{ "launching thread", "training loop" },
		{ "host, not in the trace", "between steps" },
		{ "host busy launching", "the training loop" },
		{ "host waits or allocates", "waiting for a lane" },
		{ "another stream or event", "another lane" },
	};
	struct fo_str out = { 0 };
	for (const char *p = s->data ? s->data : ""; *p;) {
		size_t i = 0, n = sizeof word / sizeof *word;
		while (i < n && strncmp(p, word[i][0], strlen(word[i][0])) != 0)
			i++;
		if (i < n) {
			fo_str_puts(&out, word[i][1]);
			p += strlen(word[i][0]);
		} else {
			fo_str_append(&out, p++, 1);
		}
	}
	fo_str_fini(s);
	*s = out;
}

static void reword(char *text, size_t size)
{
	struct fo_str s = { 0 };
	fo_str_puts(&s, text);
	fo_own_words(&s);
	snprintf(text, size, "%s", s.data ? s.data : "");
	fo_str_fini(&s);
}

void fo_own_reword(struct fo_diagnosis *d)
{
	if (!d->own.is || !d->own.processor)
		return;
	reword(d->cannot, sizeof d->cannot);
	for (int64_t i = 0; i < d->findings; i++) {
		reword(d->finding[i].title, sizeof d->finding[i].title);
		reword(d->finding[i].why, sizeof d->finding[i].why);
	}
}
