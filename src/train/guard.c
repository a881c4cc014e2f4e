/* Guards: a step whose loss or gradient is not finite, and a step whose loss is far above the last ones.
 *
 * Whether a step is taken is decided inside the program, by the operation that knows loss and norm before any weight is
 * touched (clip, ops.def): the limit is part of the step's numbers, so no lane waits for the host. Here the decision is
 * prepared and, afterwards, explained. */
#include "train/train_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A standard normal's upper quartile is 0.6745: MAD x 1 / 0.6745 estimates the standard deviation. */
#define MAD_TO_DEVIATION 1.4826
#define LOSS_RESOLUTION 0x1p-8 /* of bf16, relative */

enum { NAMED = 8, LISTED = 64 }; /* documents on the terminal; in the log */

void fo_session_warn(struct fo_session *s, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (s->h->warn)
		s->h->warn(s->h->ctx, text);
}

/* ---- how high is too high ---- */

/* Sorts by insertion: at most FO_CKPT_LOSSES numbers, and nothing is allocated. */
static double median_of(double *v, int64_t n)
{
	for (int64_t i = 1; i < n; i++) {
		double x = v[i];
		int64_t k = i;
		for (; k && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double fo_guard_limit(const struct fo_run *r, const struct fo_ckpt_meta *m, double *median, double *deviation)
{
	double v[FO_CKPT_LOSSES];
	int64_t n = m->losses < r->guard_spike_window ? m->losses : r->guard_spike_window;
	const double *recent = m->recent_loss + (m->losses - n);
	/* Half a window is the least: the median of a handful is noise itself. */
	if (r->guard_spike == FO_SPIKE_OFF || n < r->guard_spike_window / 2)
		return 0;
	memcpy(v, recent, (size_t)n * sizeof *v);
	*median = median_of(v, n);
	for (int64_t i = 0; i < n; i++)
		v[i] = fabs(recent[i] - *median);
	*deviation = fmax(MAD_TO_DEVIATION * median_of(v, n), LOSS_RESOLUTION * fabs(*median));
	return *median + r->guard_spike_z * *deviation;
}

void fo_guard_remember(const struct fo_run *r, struct fo_ckpt_meta *m, double loss)
{
	int64_t keep = r->guard_spike_window - 1;
	if (r->guard_spike == FO_SPIKE_OFF) {
		m->losses = 0;
		return;
	}
	if (m->losses > keep) {
		memmove(m->recent_loss, m->recent_loss + (m->losses - keep), (size_t)keep * sizeof *m->recent_loss);
		m->losses = keep;
	}
	m->recent_loss[m->losses++] = loss;
}

/* ---- what the batch was made of ---- */

struct documents {
	int64_t doc[LISTED], n; /* n: how many different ones, of which the first LISTED are kept */
};

static void note_document(void *ctx, const struct fo_piece *p)
{
	struct documents *d = ctx;
	for (int64_t i = 0; i < d->n && i < LISTED; i++)
		if (d->doc[i] == p->doc)
			return;
	if (d->n < LISTED)
		d->doc[d->n] = p->doc;
	d->n++;
}

static fo_status list_documents(struct fo_session *s, int64_t data_step, struct documents *d)
{
	struct fo_batch_shape shape = fo_session_shape(s, &s->program);
	*d = (struct documents){ 0 };
	return fo_batch_pieces(&s->corpus.train, &shape, s->meta.loader.seed, data_step, note_document, d);
}

/* " (books/a.jsonl line 7)"; "" where the shard does not know. */
static void say_source(const struct fo_shard_sources *o, int64_t doc, char *out, size_t size)
{
	struct fo_doc_source from;
	*out = 0;
	if (!o->docs || fo_shard_source(o, doc, &from) != FO_OK)
		return;
	if (from.line)
		snprintf(out, size, " (%s line %lld)", from.path, (long long)from.line);
	else
		snprintf(out, size, " (%s)", from.path);
}

/* "documents 17 (books/a.txt), 3 (books/b.txt) and 9 more of 'run/data/train.shard'" */
static void say_documents(struct fo_session *s, const struct documents *d, char *out, size_t size)
{
	char source[160], seen[300];
	size_t n = (size_t)snprintf(out, size, "%s", d->n == 1 ? "document" : "documents");
	for (int64_t i = 0; i < d->n && i < NAMED; i++) {
		say_source(&s->corpus.train_sources, d->doc[i], source, sizeof source);
		n += (size_t)snprintf(out + n, size - n, "%s %lld%s", i ? "," : "", (long long)d->doc[i], source);
	}
	if (d->n > NAMED)
		n += (size_t)snprintf(out + n, size - n, " and %lld more", (long long)(d->n - NAMED));
	snprintf(out + n, size - n, " of '%s/train.shard'", fo_str_visible(seen, sizeof seen, s->corpus.dir));
}

/* The documents of a batch as the log lists them. */
static void list_sources(struct fo_session *s, const struct documents *d, struct fo_record_document out[LISTED],
			 struct fo_record_guard *line)
{
	const struct fo_shard_sources *o = &s->corpus.train_sources;
	line->document = out;
	line->documents = d->n < LISTED ? d->n : LISTED;
	for (int64_t i = 0; i < line->documents; i++) {
		struct fo_doc_source from;
		out[i] = (struct fo_record_document){ .document = d->doc[i] };
		if (o->docs && fo_shard_source(o, d->doc[i], &from) == FO_OK) {
			out[i].path = fo_arena_strdup(&s->arena, from.path);
			out[i].line = from.line;
		}
	}
}

/* ---- verdicts ---- */

/* The step counts, the optimizer's corrections do not: its moments saw nothing. */
static fo_status skip_step(struct fo_session *s, const struct fo_train_step *t, enum fo_verdict *out)
{
	s->meta.step++;
	s->meta.skipped++;
	s->meta.loader = fo_loader_state(s->loader);
	*out = FO_STEP_SKIPPED;
	if (++s->refused_in_row < s->r->guard_limit)
		return FO_OK;
	return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: %lld steps in a row were skipped", (long long)t->step,
			       (long long)s->refused_in_row),
		       "lower optim.lr, or look at the data that the warnings name");
}

static fo_status judge_nonfinite(struct fo_session *s, const struct fo_train_step *t, enum fo_verdict *out)
{
	bool skip = s->r->guard_nonfinite == FO_NONFINITE_SKIP;
	int64_t data_step = fo_loader_state(s->loader).next_step - 1;
	struct fo_exec_fault fault;
	struct documents d;
	struct fo_record_document document[LISTED];
	char named[2048];
	/* Weights and batch are as they were: the same step again, looking at every number. */
	FO_TRY(fo_exec_find_fault(s->exec, &fault));
	FO_TRY(list_documents(s, data_step, &d));
	say_documents(s, &d, named, sizeof named);
	const char *where = fault.instance >= 0
				    ? fault.text
				    : "the step repeated has only finite values: memory or processor made a mistake";
	struct fo_record_guard line = { .step = t->step,
					.action = skip ? "skip" : "stop",
					.loss = t->loss,
					.grad_norm = t->grad_norm,
					.where = where,
					.data_step = data_step };
	list_sources(s, &d, document, &line);
	FO_TRY(fo_session_log(s, &fo_log_nonfinite, &line));
	if (!skip)
		return fo_hint(
			fo_fail(FO_ENUMERIC, "step %lld: the loss is %g and the gradient norm %g: %s; the batch was %s",
				(long long)t->step, t->loss, t->grad_norm, where, named),
			"lower optim.lr, and if it comes again remove that checkpoint to go on from the one before%s",
			s->program.run.pass.optimizer_in_backward ? ""
								  : "; guard.nonfinite=skip goes on without the step");
	fo_session_warn(s, "step %lld skipped: the loss is %g and the gradient norm %g: %s; the batch was %s",
			(long long)t->step, t->loss, t->grad_norm, where, named);
	return skip_step(s, t, out);
}

/* Goes back to a checkpoint and on with the data behind this batch. */
static fo_status rewind_run(struct fo_session *s, int64_t data_step, bool *done)
{
	int64_t rewinds = s->meta.rewinds;
	fo_nvml_watch_count(s->nvml, false);
	FO_TRY(fo_session_go_back(s, done));
	if (!*done)
		return FO_OK;
	s->meta.rewinds = rewinds + 1;
	s->meta.loader.next_step = data_step + 1;
	fo_loader_close(s->loader);
	s->loader = NULL;
	s->ports.batch = NULL;
	/* The new loader's thread must not inherit the one processor that this thread computes on. */
	FO_TRY(fo_place_others(&s->place));
	FO_TRY(fo_session_open_loader(s));
	return fo_place_compute(&s->place);
}

static fo_status judge_spike(struct fo_session *s, const struct fo_train_step *t, double median, double deviation,
			     enum fo_verdict *out)
{
	static const char *const action[] = { "off", "warn", "skip", "rewind" };
	int64_t data_step = fo_loader_state(s->loader).next_step - 1;
	int mode = s->r->guard_spike;
	bool back = false;
	struct documents d;
	struct fo_record_document document[LISTED];
	char named[2048], what[512];
	FO_TRY(list_documents(s, data_step, &d));
	say_documents(s, &d, named, sizeof named);
	snprintf(what, sizeof what, "the loss %.4f is %.1f deviations above %.4f, the median of the last steps",
		 t->loss, (t->loss - median) / deviation, median);
	if (mode == FO_SPIKE_REWIND)
		FO_TRY(rewind_run(s, data_step, &back));
	if (mode == FO_SPIKE_REWIND && !back)
		mode = FO_SPIKE_SKIP; /* no checkpoint yet */
	struct fo_record_guard line = { .step = t->step,
					.action = action[mode],
					.loss = t->loss,
					.median = median,
					.deviation = deviation,
					.z = (t->loss - median) / deviation,
					.back_to = back ? s->meta.step : -1,
					.data_step = data_step };
	list_sources(s, &d, document, &line);
	FO_TRY(fo_session_log(s, &fo_log_spike, &line));
	if (mode == FO_SPIKE_WARN) {
		fo_session_warn(s, "step %lld: %s; the batch was %s", (long long)t->step, what, named);
		return FO_OK;
	}
	if (!back) {
		fo_session_warn(s, "step %lld skipped: %s; the batch was %s", (long long)t->step, what, named);
		return skip_step(s, t, out);
	}
	fo_session_warn(s, "step %lld: %s; the batch was %s; going back to step %lld and on with the data behind it",
			(long long)t->step, what, named, (long long)s->meta.step);
	*out = FO_STEP_REWOUND;
	if (++s->rewinds_in_row < s->r->guard_limit)
		return FO_OK;
	return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: went back to step %lld %lld times", (long long)t->step,
			       (long long)s->meta.step, (long long)s->rewinds_in_row),
		       "lower optim.lr, or look at the data that the warnings name");
}

fo_status fo_guard_judge(struct fo_session *s, const struct fo_train_step *t, enum fo_verdict *out)
{
	bool refused = s->ports.scale[0] < 0;
	double median = 0, deviation = 1, limit = fo_guard_limit(s->r, &s->meta, &median, &deviation);
	*out = FO_STEP_TAKEN;
	if (!isfinite(t->loss) || !isfinite(t->grad_norm)) {
		if (refused)
			return judge_nonfinite(s, t, out);
		s->torn = true;
		return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: the loss is %g and the gradient norm %g, and %s",
				       (long long)t->step, t->loss, t->grad_norm,
				       s->program.run.pass.optimizer_in_backward
					       ? "weights were updated before that was known (optimizer-in-backward)"
					       : "the program of program.file does not refuse such a step"),
			       "nothing was saved since the last checkpoint in '%s'", s->ckpt_dir);
	}
	if (limit > 0 && t->loss > limit)
		FO_TRY(judge_spike(s, t, median, deviation, out));
	if (*out == FO_STEP_TAKEN) {
		s->refused_in_row = 0;
		fo_guard_remember(s->r, &s->meta, t->loss);
	}
	return FO_OK;
}
