#include "train/session.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A standard normal's upper quartile is 0.6745: MAD x 1 / 0.6745 estimates the standard deviation. */
#define MAD_TO_DEVIATION 1.4826
#define LOSS_RESOLUTION 0x1p-8 /* of bf16, relative */

enum { NAMED = 8 }; /* documents in a warning; FO_GUARD_DOCUMENTS are in the log */

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

static bool note_document(void *ctx, const struct fo_piece *p)
{
	struct fo_guard_report *r = ctx;
	for (int64_t i = 0; i < r->documents && i < FO_GUARD_DOCUMENTS; i++)
		if (r->document[i].document == p->doc)
			return true;
	if (r->documents < FO_GUARD_DOCUMENTS)
		r->document[r->line.documents++] = (struct fo_record_document){ .document = p->doc };
	r->documents++;
	return true;
}

static fo_status list_documents(const struct fo_guard *g, const struct fo_ckpt_meta *m, struct fo_guard_report *r)
{
	const struct fo_corpus *c = &g->set->corpus;
	struct fo_batch_shape shape = fo_setup_shape(g->set, &g->set->step.program);
	FO_TRY(fo_batch_pieces(&c->train, &shape, m->loader.seed, r->line.data_step, 1, note_document, r));
	for (int64_t i = 0; i < r->line.documents; i++) {
		struct fo_doc_source from;
		struct fo_record_document *d = &r->document[i];
		if (!c->train_sources.docs || fo_shard_source(&c->train_sources, d->document, &from) != FO_OK)
			continue;
		d->path = from.path;
		d->line = from.line;
	}
	return FO_OK;
}

/* "documents 17 (books/a.txt), 3 (books/b.jsonl line 9) and 9 more of 'run/data/train.shard'" */
static void name_documents(const struct fo_guard *g, const struct fo_guard_report *r, struct fo_str *out)
{
	char seen[300];
	fo_str_puts(out, fo_word(r->documents, "document", "documents"));
	for (int64_t i = 0; i < r->documents && i < NAMED; i++) {
		const struct fo_record_document *d = &r->document[i];
		fo_str_printf(out, "%s %lld", i ? "," : "", (long long)d->document);
		if (d->path)
			fo_str_printf(out, " (%.140s", d->path);
		if (d->path && d->line)
			fo_str_printf(out, " line %lld", (long long)d->line);
		if (d->path)
			fo_str_puts(out, ")");
	}
	if (r->documents > NAMED)
		fo_str_printf(out, " and %lld more", (long long)(r->documents - NAMED));
	fo_str_printf(out, " of '%s/train.shard'", fo_str_visible(seen, sizeof seen, g->set->corpus.dir));
}

/* ---- judging ---- */

static fo_status judge_nonfinite(struct fo_guard *g, const struct fo_ckpt_meta *m, struct fo_guard_report *r)
{
	struct fo_exec_fault fault;
	/* Weights and batch are as they were: the same step again, looking at every number. */
	FO_TRY(fo_team_find_fault(g->set->step.team, g->set->step.exec, &g->set->ports, &fault));
	FO_TRY(list_documents(g, m, r));
	r->action = g->set->run->guard_nonfinite == FO_NONFINITE_SKIP ? FO_GUARD_SKIP : FO_GUARD_STOP;
	snprintf(r->where, sizeof r->where, "%s",
		 fault.instance >= 0 ? fault.text
				     : "the step repeated has only finite values: memory or processor made a mistake");
	return FO_OK;
}

fo_status fo_guard_judge(struct fo_guard *g, const struct fo_train_step *t, const struct fo_ckpt_meta *m,
			 int64_t data_step, struct fo_guard_report *out, bool *torn)
{
	static const enum fo_guard_action action[] = { [FO_SPIKE_OFF] = FO_GUARD_NONE,
						       [FO_SPIKE_WARN] = FO_GUARD_WARN,
						       [FO_SPIKE_SKIP] = FO_GUARD_SKIP,
						       [FO_SPIKE_REWIND] = FO_GUARD_REWIND };
	const struct fo_setup *set = g->set;
	bool refused = set->ports.scale[0] < 0;
	bool finite = isfinite(t->loss) && isfinite(t->grad_norm);
	struct fo_record_guard *line = &out->line;
	out->action = FO_GUARD_NONE;
	out->documents = 0;
	*line = (struct fo_record_guard){ .kind = finite ? FO_GUARD_SPIKE : FO_GUARD_NONFINITE,
					  .step = t->step,
					  .back_to = -1,
					  .loss = t->loss,
					  .grad_norm = t->grad_norm,
					  .where = out->where,
					  .data_step = data_step,
					  .document = out->document };
	if (set->paced.open) /* there are no numbers */
		return FO_OK;
	double limit = fo_guard_limit(set->run, m, &line->median, &line->deviation);
	if (!finite && refused)
		return judge_nonfinite(g, m, out);
	*torn |= !finite;
	if (!finite)
		return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: the loss is %g and the gradient norm %g, and %s",
				       (long long)t->step, t->loss, t->grad_norm,
				       set->step.program.run.pass.optimizer_in_backward
					       ? "weights were updated before that was known (optimizer-in-backward)"
					       : "the program of program.file does not refuse such a step"),
			       "nothing was saved since the last checkpoint in '%s'", set->folder.ckpt_dir);
	if (!(limit > 0 && t->loss > limit))
		return FO_OK;
	out->action = action[set->run->guard_spike];
	line->z = (t->loss - line->median) / line->deviation;
	return list_documents(g, m, out);
}

/* ---- reporting ---- */

static fo_status report_nonfinite(struct fo_guard *g, const struct fo_train_step *t, const struct fo_guard_report *r,
				  const char *named)
{
	bool in_backward = g->set->step.program.run.pass.optimizer_in_backward;
	if (r->action == FO_GUARD_STOP)
		return fo_hint(
			fo_fail(FO_ENUMERIC, "step %lld: the loss is %g and the gradient norm %g: %s; the batch was %s",
				(long long)t->step, t->loss, t->grad_norm, r->where, named),
			"lower optim.lr, and if it comes again remove that checkpoint to go on from the one before%s",
			in_backward ? "" : "; guard.nonfinite=skip goes on without the step");
	fo_events_warn(g->set->events,
		       "step %lld skipped: the loss is %g and the gradient norm %g: %s; the batch was %s",
		       (long long)t->step, t->loss, t->grad_norm, r->where, named);
	return FO_OK;
}

static void report_spike(struct fo_guard *g, const struct fo_train_step *t, const struct fo_guard_report *r,
			 const char *named)
{
	char what[512], then[96] = "";
	snprintf(what, sizeof what, "the loss %.4f is %.1f deviations above %.4f, the median of the last steps",
		 t->loss, r->line.z, r->line.median);
	if (r->action == FO_GUARD_REWIND)
		snprintf(then, sizeof then, "; going back to step %lld and on with the data after it",
			 (long long)r->line.back_to);
	fo_events_warn(g->set->events, "step %lld%s: %s; the batch was %s%s", (long long)t->step,
		       r->action == FO_GUARD_SKIP ? " skipped" : "", what, named, then);
}

static fo_status count_in_row(struct fo_guard *g, const struct fo_train_step *t, const struct fo_guard_report *r)
{
	static const char hint[] = "lower optim.lr, or look at the data that the warnings name";
	int64_t limit = g->set->run->guard_limit;
	if (r->action == FO_GUARD_SKIP && ++g->refused_in_row >= limit)
		return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: %lld steps in a row were skipped", (long long)t->step,
				       (long long)g->refused_in_row),
			       "%s", hint);
	if (r->action == FO_GUARD_REWIND && ++g->rewinds_in_row >= limit)
		return fo_hint(fo_fail(FO_ENUMERIC, "step %lld: went back to step %lld %lld times", (long long)t->step,
				       (long long)r->line.back_to, (long long)g->rewinds_in_row),
			       "%s", hint);
	return FO_OK;
}

fo_status fo_guard_report(struct fo_guard *g, const struct fo_train_step *t, const struct fo_guard_report *r)
{
	struct fo_str named = { 0 };
	fo_status st = FO_OK;
	name_documents(g, r, &named);
	if (r->line.kind == FO_GUARD_SPIKE)
		report_spike(g, t, r, named.data);
	else
		st = report_nonfinite(g, t, r, named.data);
	fo_str_fini(&named);
	return st == FO_OK ? count_in_row(g, t, r) : st;
}

fo_status fo_guard_event(void *guard, const struct fo_event *e)
{
	struct fo_guard *g = guard;
	if (e->kind == FO_EVENT_STEP)
		g->refused_in_row = 0;
	if (e->kind == FO_EVENT_CHECKPOINT)
		g->rewinds_in_row = 0;
	return FO_OK;
}
