/* A diagnosis as a document: the answer, findings, the worst gap, what is not known. */
#include "report/diagnose_doc.h"

#include "base/clock.h"
#include "base/text.h"
#include "draw/doc.h"
#include "hw/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* The longest gap that is the hardware's own (docs/metrics.md, "idle causes"). */
enum { TURN_AROUND_NS = 10000 };

static const struct fo_finding *find(const struct fo_diagnosis *d, bool runner_up)
{
	for (int64_t i = 0; i < d->findings; i++)
		if (runner_up ? d->finding[i].is_runner_up : d->finding[i].is_bottleneck)
			return &d->finding[i];
	return NULL;
}

static const struct fo_trace *shown_trace(const struct fo_diagnosis *d)
{
	if (d->ranks <= 0)
		return NULL;
	return d->rank[d->worst >= 0 && d->worst < d->ranks ? d->worst : 0].trace;
}

/* Returns "a step", or "the trace" where no steps are marked. */
static const char *a_window(const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_slowest_device(d);
	return v && v->from == FO_WINDOW_WHOLE ? "the trace" : "a step";
}

/* ---- the answer ---- */

/* Returns what the finding's removal is worth: "1.29 x", or what can be said without a number. */
static const char *gain_text(struct fo_doc *doc, const struct fo_finding *f)
{
	if (f->nearly_all)
		return "nearly all of the step";
	if (f->up_to)
		return fo_doc_printf(doc, "up to %s", fo_doc_num(doc, f->gain_high, FO_DRAW_FACTOR));
	return fo_doc_num(doc, f->gain, FO_DRAW_FACTOR);
}

static const char *gain_note(struct fo_doc *doc, const struct fo_finding *f)
{
	if (f->nearly_all)
		return "so little is left that no factor can be told";
	if (f->up_to)
		return "how much cannot be told from this trace";
	const char *best = "";
	if (isfinite(f->ceiling))
		best = fo_doc_printf(doc, "; at best %s", fo_doc_num(doc, f->ceiling, FO_DRAW_FACTOR));
	return fo_doc_printf(doc, "%.2f to %.2f%s", f->gain_low, f->gain_high, best);
}

static const char *worth(struct fo_doc *doc, const struct fo_finding *f)
{
	if (!fo_finding_worth(f))
		return "";
	return fo_doc_printf(doc, "%s (%s)", gain_text(doc, f), gain_note(doc, f));
}

/* "PyTorch: DataLoader(num_workers=) (now 0) -> 4" */
static const char *setting_text(struct fo_doc *doc, const struct fo_setting *s)
{
	const char *now = *s->now ? fo_doc_printf(doc, " (now %s)", s->now) : "";
	return fo_doc_printf(doc, "%s: %s%s -> %s", s->framework, s->key, now, s->proposed);
}

/* The first setting, or that none follows from the trace. */
static const char *first_change(struct fo_doc *doc, const struct fo_finding *f)
{
	return f->settings ? setting_text(doc, &f->setting[0])
			   : "this trace does not tell which setting helps; the finding says what to look at";
}

static const char *why_no_mfu(const struct fo_diagnosis *d)
{
	return *d->bridge.why_not ? d->bridge.why_not : "give --model, --seq and --tokens-per-step";
}

static const char *mfu_rule(struct fo_doc *doc, const struct fo_bridge *b, bool causal)
{
	const char *rule = strcmp(b->rule, "shapes") ? fo_doc_printf(doc, "rule %s", b->rule)
						     : "FLOP counted from recorded shapes";
	if (*b->dtype)
		rule = fo_doc_printf(doc, "%s, %s", rule, b->dtype);
	if (causal && isfinite(b->mfu_causal))
		rule = fo_doc_printf(doc, "%s; causal %s", rule, fo_doc_num(doc, b->mfu_causal, FO_DRAW_SHARE));
	return *b->note ? fo_doc_printf(doc, "%s; %s", rule, b->note) : rule;
}

/* Returns "; most is lost to norms (17.1 points), ...". */
static const char *losses(struct fo_doc *doc, const struct fo_bridge *b)
{
	const char *all = "";
	for (int i = 0; i < b->losses; i++)
		all = fo_doc_printf(doc, "%s%s%s (%.1f points)", all, i ? ", " : "; most is lost to ",
				    b->row[b->loss[i]].name, 100 * b->row[b->loss[i]].share);
	return all;
}

static const char *mfu_text(struct fo_doc *doc, const struct fo_bridge *b)
{
	return fo_doc_printf(doc, "%.*f %%", fo_mfu_decimals(b->mfu), 100 * b->mfu);
}

/* The line of MFU on a terminal; on a page it is a tile. */
static void terminal_mfu(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	char own[400];
	const char *text = fo_doc_printf(doc, "not known: %s", why_no_mfu(d));
	if (d->bridge.known)
		text = fo_doc_printf(doc, "%s (%s)%s", mfu_text(doc, &d->bridge), mfu_rule(doc, &d->bridge, false),
				     losses(doc, &d->bridge));
	else if (d->own.known)
		text = fo_own_mfu_text(&d->own, own);
	fo_doc_verdict(doc, FO_DOC_PLAIN, "MFU", "%s", text);
	if (*d->utilisation.sentence)
		fo_doc_verdict(doc, FO_DOC_PLAIN, "Utilisation", "%s", d->utilisation.sentence);
}

static void step_tile(struct fo_doc *doc, const struct fo_device_ledger *v)
{
	char words[48];
	const struct fo_ledger *l = fo_shown_ledger(doc, v);
	const char *name = "step", *note = "one step: no spread";
	if (v->from == FO_WINDOW_WHOLE) {
		name = "whole trace";
		note = "taken as one step";
	} else if (v->steps > 1) {
		double *s = fo_doc_alloc(doc, (size_t)v->steps * sizeof *s);
		for (int64_t i = 0; i < v->steps; i++)
			s[i] = (double)v->step[i].l.span_ns * 1e-9;
		struct fo_spread spread = fo_stats_spread(s, (size_t)v->steps);
		note = fo_doc_printf(doc, "%s of %lld; quartiles %s to %s", fo_shown_step_words(words, v),
				     (long long)v->steps, fo_doc_num(doc, spread.low, FO_DRAW_SECONDS),
				     fo_doc_num(doc, spread.high, FO_DRAW_SECONDS));
	}
	fo_doc_fact(doc, name, fo_doc_ns(doc, l->span_ns), note);
	fo_doc_fact(doc, "GPU idle", fo_doc_share(doc, l->idle_total_ns, l->span_ns), fo_doc_ns(doc, l->idle_total_ns));
}

static void tiles(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_slowest_device(d);
	const struct fo_finding *f = find(d, false);
	char own[400];
	if (f)
		fo_doc_fact(doc, "bottleneck", fo_finding_kind_words[f->kind],
			    f->loss_ns > 0 ? fo_doc_printf(doc, "%s of %s", fo_doc_ns(doc, f->loss_ns), a_window(d))
					   : NULL);
	if (d->bridge.known)
		fo_doc_fact(doc, "MFU", mfu_text(doc, &d->bridge), mfu_rule(doc, &d->bridge, true));
	else if (v && d->own.known)
		fo_doc_fact(doc, "MFU", fo_doc_num(doc, d->own.mfu, FO_DRAW_SHARE), fo_own_mfu_text(&d->own, own));
	else if (v)
		fo_doc_fact(doc, "MFU", "not known", why_no_mfu(d));
	if (v && isfinite(d->utilisation.resident) && !d->own.is)
		fo_doc_fact(doc, "utilisation", fo_doc_num(doc, d->utilisation.resident, FO_DRAW_SHARE),
			    "as the driver counts: any kernel resident, waiting ones included");
	if (v && v->median.l.span_ns > 0)
		step_tile(doc, v);
}

/* Says what to change first and what that is worth; the finding's own sentence is in its card. */
static void page_verdict(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_finding *f = find(d, false), *second = find(d, true);
	if (!f) {
		fo_doc_verdict(doc, FO_DOC_GOOD, NULL,
			       "No bottleneck: nothing that these traces show is worth a change.");
		return;
	}
	enum fo_doc_tone tone = f->serious ? FO_DOC_BAD : FO_DOC_PLAIN;
	if (!f->settings || !fo_finding_worth(f))
		fo_doc_verdict(doc, tone, "Bottleneck", "%s", fo_finding_kind_words[f->kind]);
	if (fo_finding_worth(f))
		fo_doc_verdict(doc, tone, "Change first", "%s", first_change(doc, f));
	if (fo_finding_worth(f))
		fo_doc_verdict(doc, tone, "Worth", "%s", worth(doc, f));
	if (second && second->settings && fo_finding_worth(second))
		fo_doc_verdict(doc, tone, "Then", "%s: %s", setting_text(doc, &second->setting[0]), worth(doc, second));
}

static void terminal_verdict(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_finding *f = find(d, false), *second = find(d, true);
	if (!f)
		fo_doc_verdict(doc, FO_DOC_GOOD, "Bottleneck", "none that these traces show");
	else
		fo_doc_verdict(doc, FO_DOC_BAD, "Bottleneck", "%s%s%s", f->title, fo_finding_worth(f) ? ". Worth " : "",
			       worth(doc, f));
	if (f && fo_finding_worth(f)) /* a change that gains nothing is not tried first */
		fo_doc_verdict(doc, FO_DOC_PLAIN, "Try first", "%s", first_change(doc, f));
	if (second)
		fo_doc_verdict(doc, FO_DOC_PLAIN, "Runner-up", "%s%s%s", second->title,
			       fo_finding_worth(second) ? ". Worth " : "", worth(doc, second));
}

/* Says which traces are missing, cut or left out. */
static void found(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const char **line;
	int n = fo_found_of(d, &doc->arena, &line);
	for (int i = 0; i < n; i++) {
		fo_doc_only(doc, FO_DOC_TERM);
		const char *end = i + 1 < n ? ";" : "";
		fo_doc_verdict(doc, FO_DOC_PLAIN, i ? "" : "Traces", "%s%s", line[i], end);
		fo_doc_only(doc, FO_DOC_PAGE);
		fo_doc_remark(doc, "%s.", line[i]);
	}
	fo_doc_only(doc, FO_DOC_BOTH);
}

static void answer(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	char load[96];
	const char *busy = fo_state_others_text(d->own.load, d->own.processors, d->own.threads, load);
	if (busy) /* before a bottleneck that it may have made */
		fo_doc_verdict(doc, FO_DOC_PLAIN, "Machine", "%s; figures may be of the busy machine", busy);
	fo_doc_only(doc, FO_DOC_PAGE);
	page_verdict(doc, d);
	tiles(doc, d);
	if (isfinite(d->with.price_per_hour))
		fo_doc_remark(doc, "Money is at %s an hour for one device.",
			      fo_doc_num(doc, d->with.price_per_hour, FO_DRAW_DOLLARS));
	fo_doc_only(doc, FO_DOC_TERM);
	terminal_verdict(doc, d);
	terminal_mfu(doc, d);
	found(doc, d);
}

/* Is this the note that holds the reason? The answer gives it, so the notes after the findings do not. */
static bool is_reason(const struct fo_diagnosis *d, const struct fo_finding *x)
{
	return !fo_diagnosed(d) && x->kind == FO_FIND_VALIDITY && !strcmp(x->title, d->cannot);
}

/* Says why there is no bottleneck, and what to record instead. Any other line before it would look like a verdict. */
static void reason(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const char *why = "";
	for (int64_t i = 0; i < d->findings; i++)
		if (is_reason(d, &d->finding[i]))
			why = d->finding[i].why;
	fo_doc_verdict(doc, FO_DOC_BAD, NULL, "Cannot be diagnosed: %s. %s", d->cannot, why);
	found(doc, d);
}

/* ---- findings ---- */

static void settings(struct fo_doc *doc, const struct fo_finding *f)
{
	struct fo_str paste = { 0 };
	if (!f->settings)
		return;
	fo_doc_only(doc, FO_DOC_TERM);
	for (int i = 0; i < f->settings && i < FO_SETTINGS_MAX; i++)
		fo_doc_item(doc, "%s", setting_text(doc, &f->setting[i]));
	fo_doc_only(doc, FO_DOC_PAGE);
	fo_doc_table(doc, FO_DRAW_FULL, NULL, "llll", "framework", "setting", "now", "try");
	for (int i = 0; i < f->settings && i < FO_SETTINGS_MAX; i++) {
		const struct fo_setting *s = &f->setting[i];
		fo_doc_row(doc, s->framework, s->key, *s->now ? s->now : "not in the trace", s->proposed);
		if (*s->paste)
			fo_str_printf(&paste, "%s%s", paste.len ? "\n" : "", s->paste);
	}
	if (paste.len)
		fo_doc_code(doc, paste.data);
	fo_doc_only(doc, FO_DOC_BOTH);
	fo_str_fini(&paste);
}

/* Returns at most 80 bytes of a name, with the last character whole and the cut shown; names of kernels have hundreds.
 * */
static const char *beginning(struct fo_doc *doc, const char *name)
{
	enum { WHOLE = 80 };
	size_t n = strlen(name);
	if (n <= WHOLE)
		return name;
	n = WHOLE - strlen("...");
	while (n && ((unsigned char)name[n] & 0xc0) == 0x80)
		n--;
	return fo_doc_printf(doc, "%.*s...", (int)n, name);
}

/* Shortens the kernel in "idle before void ns::kernel<4>(int)" to what a line has room for. */
static const char *event_name(struct fo_doc *doc, const char *name)
{
	char kernel[160];
	const char *before = !strncmp(name, "idle", 4) ? strstr(name, "before ") : NULL;
	size_t n = before ? (size_t)(before - name) + strlen("before ") : 0;
	/* Only C++ names are shortened; "enumerate(DataLoader)" is none. */
	if (strncmp(name + n, "void ", 5) && !strchr(name + n, '<') && strncmp(name + n, "nccl", 4))
		return beginning(doc, name);
	return beginning(
		doc, fo_doc_printf(doc, "%.*s%s", (int)n, name, fo_kernel_short_name(kernel, sizeof kernel, name + n)));
}

static const struct fo_trace *trace_of(const struct fo_diagnosis *d, int rank)
{
	for (int r = 0; r < d->ranks; r++)
		if (d->rank[r].rank == rank)
			return d->rank[r].trace;
	return NULL;
}

/* Do these two belong on one line? */
static bool same_event(const struct fo_evidence *a, const struct fo_evidence *b)
{
	return a->rank == b->rank && a->device == b->device && !strcmp(a->name, b->name);
}

/* Lists the events behind a finding. Several of one name on one rank are one row: the first's time, the sum of what
 * they take. */
static void evidence(struct fo_doc *doc, const struct fo_diagnosis *d, const struct fo_finding *f)
{
	const int n = f->evidences < FO_EVIDENCE_MAX ? f->evidences : FO_EVIDENCE_MAX;
	if (!n)
		return;
	fo_doc_only(doc, FO_DOC_PAGE);
	fo_doc_details(doc, FO_DOC_FOLDED, "Evidence");
	fo_doc_only(doc, FO_DOC_BOTH);
	const char *what = "evidence";
	bool ranks = d->ranks > 1;
	if (ranks)
		fo_doc_table(doc, FO_DRAW_SLIM_FULL, NULL, "rrrl", "rank", "at", "takes", what);
	else
		fo_doc_table(doc, FO_DRAW_SLIM_FULL, NULL, "rrl", "at", "takes", what);
	for (int i = 0; i < n; i++) {
		const struct fo_evidence *e = &f->evidence[i], *first = e;
		int64_t sum = 0;
		int same = 0, before = 0;
		for (int k = 0; k < n; k++) {
			const struct fo_evidence *o = &f->evidence[k];
			if (!same_event(o, e))
				continue;
			before += k < i;
			same++;
			sum = fo_plus(sum, o->duration_ns);
			first = o->begin_ns < first->begin_ns ? o : first;
		}
		if (before)
			continue;
		const struct fo_trace *t = trace_of(d, e->rank);
		const char *place = fo_evidence_place(d, e), *text = event_name(doc, e->name);
		double at = (double)(first->begin_ns - (t ? t->begin_ns : 0)) * 1e-9;
		if (place)
			text = fo_doc_printf(doc, "%s (%s)", text, beginning(doc, place));
		if (same > 1)
			text = fo_doc_printf(doc, "%s, %d times", text, same);
		struct fo_cells row = FO_CELLS(fo_doc_count(doc, e->rank),
					       fo_doc_printf(doc, "%s ms", fo_doc_num(doc, at, FO_DRAW_MS)),
					       fo_doc_ns(doc, sum), text);
		row.v += !ranks;
		fo_doc_cells(doc, e->name, row);
	}
	fo_doc_only(doc, FO_DOC_PAGE);
	fo_doc_details_end(doc);
	fo_doc_only(doc, FO_DOC_BOTH);
}

static const char *role(const struct fo_finding *f)
{
	if (f->is_bottleneck)
		return f->serious ? "bottleneck, serious" : "bottleneck";
	if (f->is_runner_up)
		return f->serious ? "runner-up, serious" : "runner-up";
	return f->serious ? "serious" : NULL;
}

static void finding(struct fo_doc *doc, const struct fo_diagnosis *d, const struct fo_finding *f, bool brief)
{
	int n = d->bridge.devices;
	fo_doc_card(doc, f->serious ? FO_DOC_BAD : FO_DOC_PLAIN, role(f), "%s", f->title);
	if (!brief)
		fo_doc_para(doc, "%s", f->why);
	if (fo_finding_worth(f)) {
		const char *note = gain_note(doc, f);
		if (f->loss_ns > 0)
			note = fo_doc_printf(doc, "%s, if all of the %s that it costs in %s were saved", note,
					     fo_doc_ns(doc, f->loss_ns), a_window(d));
		fo_doc_fact(doc, "worth", gain_text(doc, f), note);
	}
	if (isfinite(f->dollars))
		fo_doc_fact(doc, "saves",
			    fo_doc_printf(doc, "%s an hour", fo_doc_num(doc, f->dollars, FO_DRAW_DOLLARS)),
			    fo_doc_printf(doc, "%s a day; an estimate, of %d device%s",
					  fo_doc_num(doc, 24 * f->dollars, FO_DRAW_DOLLARS), n, fo_plural(n)));
	if (!brief) {
		settings(doc, f);
		evidence(doc, d, f);
	}
	fo_doc_card_end(doc);
}

/* Prints notes on the trace. With doubt, those that make its figures doubtful, which are framed and come before the
 * findings; else the others, which a page folds. */
static void notes(struct fo_doc *doc, const struct fo_diagnosis *d, bool doubt, bool brief)
{
	int64_t n = 0;
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *f = &d->finding[i];
		if (f->kind != FO_FIND_VALIDITY || fo_finding_doubtful(f) != doubt || is_reason(d, f))
			continue;
		fo_doc_only(doc, FO_DOC_PAGE);
		if (!doubt && !n++)
			fo_doc_details(doc, FO_DOC_FOLDED, "Notes on the trace");
		if (!doubt)
			fo_doc_para(doc, "%s. %s", f->title, f->why);
		fo_doc_only(doc, doubt ? FO_DOC_BOTH : FO_DOC_TERM);
		if (brief)
			fo_doc_warning(doc, "%s", f->title);
		else
			fo_doc_warning(doc, "%s. %s", f->title, f->why);
	}
	fo_doc_only(doc, FO_DOC_PAGE);
	if (n)
		fo_doc_details_end(doc);
	fo_doc_only(doc, FO_DOC_BOTH);
}

static void findings(struct fo_doc *doc, const struct fo_diagnosis *d, bool brief)
{
	char window[160];
	int64_t n = 0;
	notes(doc, d, true, brief);
	for (int64_t i = 0; i < d->findings; i++) {
		if (d->finding[i].kind == FO_FIND_VALIDITY)
			continue;
		if (!n++) {
			fo_doc_heading(doc, "What to change");
			fo_doc_only(doc, FO_DOC_TERM); /* on a page the lead says so */
			fo_doc_remark(doc, "Shares and gains are of %s.", fo_window_words(window, d));
			fo_doc_only(doc, FO_DOC_BOTH);
			if (!brief)
				fo_doc_remark(doc, "Times of evidence are from the trace's start.");
		}
		finding(doc, d, &d->finding[i], brief);
	}
	if (!n && fo_diagnosed(d)) {
		fo_doc_only(doc, FO_DOC_TERM); /* the page's verdict says so */
		fo_doc_para(doc, "No findings: nothing that these traces show is worth a change.");
	}
	notes(doc, d, false, brief);
}

/* ---- the worst gap: a picture, so on the page alone ---- */

/* Returns the kind of gap that the bottleneck is about, FO_GAP_ANY where it is about none. */
static enum fo_gap_kind gap_of(const struct fo_finding *f)
{
	switch (f ? f->kind : FO_FIND_COUNT) {
	case FO_FIND_HOST:
	case FO_FIND_DATA:
	case FO_FIND_IDLE: return FO_GAP_IDLE;
	case FO_FIND_COMM:
	case FO_FIND_COMM_WAIT:
	case FO_FIND_COMM_TRANSFER: return FO_GAP_COMMUNICATION;
	default: return FO_GAP_ANY;
	}
}

static void meanwhile(struct fo_doc *doc, const struct fo_gap *g)
{
	if (!g->dids)
		return;
	fo_doc_details(doc, FO_DOC_FOLDED, "What the launching thread did meanwhile");
	fo_doc_table(doc, FO_DRAW_SLIM, NULL, "lrr", "operator or call", "own time", "of the wait");
	for (int i = 0; i < g->dids; i++)
		fo_doc_row(doc,
			   fo_doc_printf(doc, "%.120s%s", fo_trace_text(g->trace, g->did[i].name),
					 g->did[i].call ? " (a call of the driver)" : ""),
			   fo_doc_ns(doc, g->did[i].ns), fo_doc_share(doc, g->did[i].ns, g->meanwhile_ns));
	fo_doc_row(doc, "nothing that is recorded", fo_doc_ns(doc, g->meanwhile_ns - g->did_ns),
		   fo_doc_share(doc, g->meanwhile_ns - g->did_ns, g->meanwhile_ns));
	fo_doc_details_end(doc);
}

static void gap_section(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const double busy = 0.99; /* beyond this a gap cannot be what a reader looks for */
	const struct fo_device_ledger *v = fo_slowest_device(d);
	const struct fo_finding *f = find(d, false);
	enum fo_gap_kind kind = gap_of(f);
	struct fo_gap g;
	char words[48];
	if (!v)
		return;
	const struct fo_ledger *l = fo_shown_ledger(doc, v);
	fo_gap_worst(&g, &d->rank[d->worst], v, kind);
	const char *lasts = fo_doc_ns(doc, g.end_ns - g.begin_ns);
	fo_doc_heading(doc, g.communication ? "The longest communication alone, %s" : "The longest idle gap, %s",
		       fo_shown_step_words(words, v));
	if (g.end_ns - g.begin_ns <= TURN_AROUND_NS) {
		fo_doc_para(doc, "On the slowest rank the GPU was never without work for longer than %s.", lasts);
		return;
	}
	if (!g.communication && (double)l->busy_ns > busy * (double)l->span_ns) {
		fo_doc_para(
			doc,
			"The GPU is busy for %s of it; the longest gap lasts %s. No picture: nothing is lost there.",
			fo_doc_share(doc, l->busy_ns, l->span_ns), lasts);
		return;
	}
	if (f && kind != FO_GAP_ANY && g.communication == (kind == FO_GAP_COMMUNICATION))
		fo_doc_para(doc, "The bottleneck is %s; this is where the GPU %s longest for such a cause: %s at once.",
			    fo_finding_kind_words[f->kind], g.communication ? "only communicates" : "idles", lasts);
	else if (f)
		fo_doc_para(doc, "Beside the bottleneck (%s).", fo_finding_kind_words[f->kind]);
	fo_gap_picture(doc, &g, "What the launching thread and the GPU's streams did around it");
	meanwhile(doc, &g);
}

/* ---- what is not known, and what words mean ---- */

static void unknowns(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	if (!d->unknowns)
		return;
	fo_doc_heading(doc, "Not known");
	for (int64_t i = 0; i < d->unknowns; i++)
		fo_doc_item(doc, "%s: %s", d->unknown[i].what, d->unknown[i].flag);
}

static void traces(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	fo_doc_details(doc, FO_DOC_FOLDED, "Traces that were read");
	fo_doc_table(doc, FO_DRAW_FITTED, NULL, "lrrrr", "trace", "rank", "GPU operations", "without launch record",
		     "events");
	for (int r = 0; r < d->ranks; r++) {
		const struct fo_trace *x = d->rank[r].trace;
		if (x)
			fo_doc_row(doc, x->path, fo_doc_count(doc, d->rank[r].rank), fo_doc_count(doc, x->gpu_count),
				   fo_doc_count(doc, x->defect.unlinked), fo_doc_count(doc, x->defect.events));
	}
	fo_doc_details_end(doc);
}

static void definitions(struct fo_doc *doc)
{
	static const char *const word[][2] = {
		{ "step", "on the GPU: from the first operation that step k launched to the first that step k + 1 "
			  "launched; the only one that is marked: as marked on the host" },
		{ "compute", "any kernel that is neither communication nor a copy; where several classes run at once, "
			     "the first in the table counts" },
		{ "communication, copies", "only what nothing computes beside: what is hidden costs nothing here" },
		{ "waiting for a late rank",
		  "from a rank's arrival at a collective to the last one's; of several ranks' traces only" },
		{ "transfer", "the rest of the collective: the data on the wire" },
		{ "idle", "no kernel, no copy on the whole device; its cause is what the launching thread did, or what "
			  "the operation waited for" },
		{ "utilisation", "share of the step in which any kernel is on the device: what the driver counts" },
		{ "MFU", "the model's arithmetic in a step over what the dense peak would have done in that time" },
		{ "at best", "step time before and after if all of the loss went and nothing took its place" },
		{ "worth", "the best case, less what may come back and never below the time the launching thread "
			   "itself needs: rules of docs/diagnosis-rules.md, conventions among them, checked on a "
			   "published pair of runs and not derived from it" },
	};
	fo_doc_details(doc, FO_DOC_FOLDED, "What the words mean");
	fo_doc_table(doc, FO_DRAW_FULL, NULL, "ll", "word", "what it means here");
	for (size_t i = 0; i < sizeof word / sizeof *word; i++)
		fo_doc_row(doc, word[i][0], word[i][1]);
	fo_doc_details_end(doc);
}

/* ---- the whole ---- */

/* ", recorded 2026-03-05" */
static const char *date_of(struct fo_doc *doc, const struct fo_trace *t)
{
	char date[32];
	time_t at = (time_t)(t->origin_unix_ns / 1000000000);
	struct tm tm;
	if (t->origin_unix_ns <= 0 || !gmtime_r(&at, &tm))
		return "";
	strftime(date, sizeof date, ", recorded %Y-%m-%d", &tm);
	return fo_doc_printf(doc, "%s", date);
}

static const char *ranks_of(struct fo_doc *doc, const struct fo_diagnosis *d, const struct fo_trace *t)
{
	if (t->world_size > d->ranks)
		return fo_doc_printf(doc, "%d of %d ranks", d->ranks, t->world_size);
	return d->ranks > 1 ? fo_doc_printf(doc, "%d ranks", d->ranks) : "one process";
}

/* The lead names what was recorded and when: "NVIDIA H100 80GB HBM3, 8 ranks, PyTorch, recorded 2026-03-05; figures are
 * of step 7 as marked on the host, 391 ms." */
static void lead(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const struct fo_device_ledger *v = fo_slowest_device(d);
	const struct fo_trace *t = shown_trace(d);
	const char *device = v ? "A GPU" : "No GPU work";
	char words[160];
	if (!t)
		return;
	if (v && v->device >= 0 && v->device < t->device_count && t->device[v->device].name >= 0)
		device = fo_trace_text(t, t->device[v->device].name);
	fo_window_words(words, d);
	const char *framework = *d->framework ? fo_doc_printf(doc, ", %s", d->framework) : "";
	const char *window = *words ? fo_doc_printf(doc, "; figures are of %s", words) : "";
	fo_doc_lead(doc, "%s, %s%s%s%s.", device, ranks_of(doc, d, t), framework, date_of(doc, t), window);
}

static void title(struct fo_doc *doc, const struct fo_diagnosis *d)
{
	const char *path = d->ranks > 0 && d->rank[0].trace ? d->rank[0].trace->path : NULL;
	const char *file = path ? fo_text_file_name(path) : "no trace";
	if (d->ranks > 1)
		fo_doc_title(doc, "Diagnosis of %d ranks, %s", d->ranks, file);
	else
		fo_doc_title(doc, "Diagnosis of %s", file);
}

void fo_diagnose_doc(struct fo_doc *doc, const struct fo_diagnosis *d, bool brief)
{
	title(doc, d);
	if (d->own.is && d->own.processor)
		doc->reword = fo_own_words;
	lead(doc, d);
	if (fo_diagnosed(d))
		answer(doc, d);
	else
		reason(doc, d);
	findings(doc, d, brief);
	if (brief)
		return;
	fo_ledger_section(doc, d);
	if (fo_diagnosed(d)) {
		fo_doc_only(doc, FO_DOC_PAGE);
		gap_section(doc, d);
		fo_doc_only(doc, FO_DOC_BOTH);
		fo_bridge_section(doc, d);
	}
	fo_ranks_section(doc, d);
	fo_kernels_section(doc, d);
	fo_products_section(doc, d);
	unknowns(doc, d);
	fo_doc_only(doc, FO_DOC_PAGE);
	traces(doc, d);
	definitions(doc);
	fo_doc_footer(doc, "flatout diagnose --html. Figures are defined in docs/metrics.md.");
	fo_doc_only(doc, FO_DOC_BOTH);
}
