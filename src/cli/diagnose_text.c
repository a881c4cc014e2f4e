/* flatout diagnose on a terminal: the answer, the bridge to MFU, findings, products, what is not known. */
#include "cli/diagnose.h"

#include "cli/cli.h"
#include "hw/state.h"
#include "report/ledger_parts.h"

#include <math.h>
#include <string.h>

enum {
	PRODUCTS = 8,
	SHOWN = 1024,
	KERNEL = 30,
	/* bytes of a kernel's name, where the other columns leave them room */ LINE = 80
};

/* Texts of findings may hold names from the trace. */
static const char *seen(char buf[SHOWN], const char *text) { return fo_str_visible(buf, SHOWN, text); }

static char *ms(struct fo_arena *a, int64_t ns)
{
	return fo_arena_printf(a, ns >= 100000 || ns == 0 ? "%.1f ms" : "%.3f ms", (double)ns * 1e-6);
}

static char *percent(struct fo_arena *a, double share)
{
	return isfinite(share) ? fo_arena_printf(a, "%.1f %%", 100 * share) : fo_arena_strdup(a, "-");
}

/* Two decimals, and nothing is -$0.00. */
static char *money(struct fo_arena *a, double dollars)
{
	if (!isfinite(dollars))
		return fo_arena_strdup(a, "");
	double shown = fabs(dollars) < 0.005 ? 0 : dollars;
	return fo_arena_printf(a, "%s$%.2f", shown < 0 ? "-" : "", fabs(shown));
}

/* "x 1.26 (1.10 to 1.50; at best x 1.50)" */
static char *gain(struct fo_arena *a, const struct fo_finding *f)
{
	if (f->nearly_all)
		return fo_arena_strdup(a, "nearly all of the step: so little is left that no factor can be told");
	if (!isfinite(f->gain))
		return fo_arena_strdup(a, "");
	if (f->up_to)
		return fo_arena_printf(a, "up to x %.2f; how much cannot be told from this trace", f->gain_high);
	const char *best = isfinite(f->ceiling) ? fo_arena_printf(a, "; at best x %.2f", f->ceiling) : "";
	return fo_arena_printf(a, "x %.2f (%.2f to %.2f%s)", f->gain, f->gain_low, f->gain_high, best);
}

/* "; most is lost to norms, 17.1 points, and ..." */
static const char *losses(struct fo_arena *a, const struct fo_bridge *b)
{
	const char *all = "";
	for (int i = 0; i < b->losses; i++)
		all = fo_arena_printf(a, "%s%s%s (%.1f points)", all, i ? ", " : "; most is lost to ",
				      b->row[b->loss[i]].name, 100 * b->row[b->loss[i]].share);
	return all;
}

static void print_setting(FILE *f, const char *first, const char *lead, const struct fo_setting *s)
{
	char key[SHOWN], now[SHOWN], to[SHOWN];
	fo_cli_put(f, first, lead, "%s: %s%s%s%s -> %s", s->framework, seen(key, s->key), *s->now ? " (now " : "",
		   seen(now, s->now), *s->now ? ")" : "", seen(to, s->proposed));
}

/* The note that holds the reason; it stands in the answer and not a second time behind the findings. */
static bool is_reason(const struct fo_diagnosis *d, const struct fo_finding *x)
{
	return !fo_diagnosed(d) && x->kind == FO_FIND_VALIDITY && !strcmp(x->title, d->cannot);
}

/* Prints the reason alone: any other line would look like a verdict. */
static void print_reason(FILE *f, const struct fo_diagnosis *d)
{
	char text[SHOWN], why[SHOWN] = "";
	for (int64_t i = 0; i < d->findings; i++)
		if (is_reason(d, &d->finding[i]))
			seen(why, d->finding[i].why);
	fo_cli_put(f, "Cannot be diagnosed: ", "  ", "%s. %s", seen(text, d->cannot), why);
}

void fo_cli_diagnose_answer(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	char text[SHOWN], own[400], load[96];
	const struct fo_finding *first = NULL, *second = NULL;
	for (int64_t i = 0; i < d->findings; i++) {
		first = d->finding[i].is_bottleneck ? &d->finding[i] : first;
		second = d->finding[i].is_runner_up ? &d->finding[i] : second;
	}
	if (!fo_diagnosed(d)) {
		print_reason(f, d);
		return;
	}
	/* In front of a bottleneck that it may have made. */
	const char *busy = fo_state_others_text(d->own.load, d->own.processors, load);
	if (busy)
		fo_cli_put(f, "Machine:     ", "             ", "%s; figures may be of the busy machine", busy);
	if (first)
		fo_cli_put(f, "Bottleneck:  ", "             ", "%s%s%s", seen(text, first->title),
			   fo_finding_worth(first) ? ". Worth " : "", gain(&a, first));
	else
		fo_cli_put(f, "Bottleneck:  ", "             ", "none that these traces show");
	if (first && first->settings && fo_finding_worth(first)) /* what gains nothing is nothing to begin with */
		print_setting(f, "Try first:   ", "             ", &first->setting[0]);
	if (second)
		fo_cli_put(f, "Runner-up:   ", "             ", "%s%s%s", seen(text, second->title),
			   fo_finding_worth(second) ? ". Worth " : "", gain(&a, second));
	const char *rule = strcmp(d->bridge.rule, "shapes") ? "rule mfu" : "FLOP counted from recorded shapes";
	if (d->bridge.known)
		fo_cli_put(f, "MFU:         ", "             ", "%.*f %% (%s%s%s%s%s)%s",
			   fo_mfu_decimals(d->bridge.mfu), 100 * d->bridge.mfu, rule, *d->bridge.dtype ? ", " : "",
			   d->bridge.dtype, *d->bridge.note ? "; " : "", seen(text, d->bridge.note),
			   losses(&a, &d->bridge));
	else if (d->own.known)
		fo_cli_put(f, "MFU:         ", "             ", "%s", seen(text, fo_own_mfu_text(&d->own, own)));
	else
		fo_cli_put(f, "MFU:         ", "             ", "not known: %s",
			   *d->bridge.why_not ? seen(text, d->bridge.why_not)
					      : "give --model, --seq and --tokens-per-step");
	if (*d->utilisation.sentence)
		fo_cli_put(f, "Utilisation: ", "             ", "%s", seen(text, d->utilisation.sentence));
	fo_arena_fini(&a);
}

void fo_cli_diagnose_found(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	const char **line;
	char text[SHOWN];
	int n = fo_found_of(d, &a, &line);
	for (int i = 0; i < n; i++)
		fo_cli_put(f, i ? "             " : "Traces:      ", "             ", "%s%s", seen(text, line[i]),
			   i + 1 < n ? ";" : "");
	fo_arena_fini(&a);
}

void fo_cli_diagnose_bridge(FILE *f, const struct fo_diagnosis *d)
{
	const struct fo_bridge *b = &d->bridge;
	struct fo_arena a = { 0 };
	struct fo_table t;
	char text[SHOWN], si[32];
	bool price = false;
	double left = 1;
	if (!b->known) /* the answer says why */
		return;
	fprintf(f, "\n");
	for (int i = 0; i < b->rows && i < FO_BRIDGE_MAX; i++)
		price = price || isfinite(b->row[i].dollars_per_hour);
	fo_cli_put(f, "From 100 % to MFU: ", "  ", "peak %s %s%s%s, %d device%s",
		   fo_str_si(si, b->peak_flop_s, "FLOP/s"), b->dtype, *b->device ? " of " : "", seen(text, b->device),
		   b->devices, b->devices == 1 ? "" : "s");
	fprintf(f, "\n");
	fo_table_init(&t, "lrrrr");
	char label[48];
	const struct fo_device_ledger *shown = fo_shown_device(d, d->worst);
	fo_table_row(&t, shown ? fo_shown_step_words(label, shown) : "", "points", "left", price ? "an hour" : "",
		     price ? "a day" : "");
	fo_table_row(&t, "the peak", "", "100.0 %", "", "");
	for (int i = 1; i <= b->rows && i < FO_BRIDGE_MAX; i++) {
		const struct fo_bridge_row *r = &b->row[i < b->rows ? i : 0]; /* MFU, the first, is what is left */
		if (i < b->rows)
			left -= r->share;
		fo_table_row(&t, r->name, i < b->rows ? fo_arena_printf(&a, "%+.1f", -100 * r->share) : "",
			     percent(&a, i < b->rows ? left : r->share), money(&a, r->dollars_per_hour),
			     money(&a, 24 * r->dollars_per_hour));
	}
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
	if (*b->peak_source)
		fo_cli_put(f, "  ", "  ", "Peak: %s.", seen(text, b->peak_source));
	fo_arena_fini(&a);
}

/* At most 80 bytes of a name, the last character whole, the cut shown: kernels' names have hundreds. */
static char *beginning(struct fo_arena *a, const char *name)
{
	enum { WHOLE = 80 };
	size_t n = strlen(name);
	if (n <= WHOLE)
		return fo_arena_strdup(a, name);
	n = WHOLE - strlen("...");
	while (n && ((unsigned char)name[n] & 0xC0) == 0x80)
		n--;
	return fo_arena_printf(a, "%.*s...", (int)n, name);
}

/* "idle before void ns::kernel<4>(int)" without what no line has room for. */
static char *short_evidence(struct fo_arena *a, const char *name)
{
	char kernel[160];
	const char *behind = !strncmp(name, "idle", 4) ? strstr(name, "before ") : NULL;
	size_t n = behind ? (size_t)(behind - name) + strlen("before ") : 0;
	/* Only names of C++ have such parts; "enumerate(DataLoader)" is one. */
	if (strncmp(name + n, "void ", 5) && !strchr(name + n, '<'))
		return fo_arena_strdup(a, name);
	return fo_arena_printf(a, "%.*s%s", (int)n, name, fo_kernel_short_name(kernel, sizeof kernel, name + n));
}

/* One line for events that read the same: the first of them is the longest. */
struct evidence_line {
	const struct fo_evidence *e;
	const char *text;
	int count;
};

static void print_evidence(FILE *f, struct fo_arena *a, const struct fo_diagnosis *d, const struct fo_finding *x)
{
	struct evidence_line line[FO_EVIDENCE_MAX];
	struct fo_table t;
	char place[SHOWN];
	int n = 0;
	for (int i = 0; i < x->evidences && i < FO_EVIDENCE_MAX; i++) {
		const struct fo_evidence *e = &x->evidence[i];
		const char *in = fo_evidence_place(d, e);
		const char *text = beginning(a, short_evidence(a, e->name));
		if (in)
			text = fo_arena_printf(a, "%s (%s)", text, beginning(a, seen(place, in)));
		int k = 0;
		while (k < n && (line[k].e->rank != e->rank || strcmp(line[k].text, text)))
			k++;
		if (k == n)
			line[n++] = (struct evidence_line){ e, text, 0 };
		line[k].count++;
	}
	if (!n)
		return;
	fo_table_init(&t, "rrrl");
	fo_table_row(&t, "rank", "at", "takes", "evidence (times are after the trace's begin)");
	for (int i = 0; i < n; i++) {
		const struct fo_evidence *e = line[i].e;
		int64_t origin = 0;
		for (int r = 0; r < d->ranks; r++)
			if (d->rank[r].rank == e->rank && d->rank[r].trace)
				origin = d->rank[r].trace->begin_ns;
		const char *more = line[i].count > 1 ? fo_arena_printf(a, ", and %d more", line[i].count - 1) : "";
		fo_table_row(&t, e->rank < 0 ? "?" : fo_arena_printf(a, "%d", e->rank),
			     fo_arena_printf(a, "%.3f ms", (double)(e->begin_ns - origin) * 1e-6),
			     ms(a, e->duration_ns), fo_arena_printf(a, "%s%s", line[i].text, more));
	}
	fo_table_print(&t, f, "     ", false);
	fo_table_fini(&t);
}

/* What it would save over all devices. */
static char *savings(struct fo_arena *a, const struct fo_diagnosis *d, double dollars)
{
	int n = d->bridge.devices;
	if (!isfinite(dollars))
		return fo_arena_strdup(a, "");
	return fo_arena_printf(a, "; %s an hour of %d device%s, %s a day", money(a, dollars), n, n == 1 ? "" : "s",
			       money(a, 24 * dollars));
}

static void print_settings(FILE *f, const struct fo_finding *x)
{
	for (int k = 0; k < x->settings && k < FO_SETTINGS_MAX; k++)
		print_setting(f, "     * ", "       ", &x->setting[k]);
}

/* What has to be known of the trace; `doubt`: what makes its figures doubtful, else the rest. */
static void print_notes(FILE *f, const struct fo_diagnosis *d, bool doubt, bool brief)
{
	char text[SHOWN], why[SHOWN];
	bool any = false;
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *x = &d->finding[i];
		if (x->kind != FO_FIND_VALIDITY || fo_finding_doubtful(x) != doubt || is_reason(d, x))
			continue;
		if (!any)
			fprintf(f, "\n");
		any = true;
		fo_cli_put(f, "Note: ", "      ", "%s%s%s", seen(text, x->title), brief ? "" : ". ",
			   brief ? "" : seen(why, x->why));
	}
}

void fo_cli_diagnose_findings(FILE *f, const struct fo_diagnosis *d, bool brief)
{
	struct fo_arena a = { 0 };
	char text[SHOWN], lead[16], window[160];
	int number = 0;
	print_notes(f, d, true, brief);
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *x = &d->finding[i];
		const char *role = x->is_bottleneck ? " [bottleneck]" : x->is_runner_up ? " [runner-up]" : "";
		if (x->kind == FO_FIND_VALIDITY)
			continue;
		if (!number) {
			fprintf(f, "\nFindings\n\n");
			fo_cli_put(f, "  ", "  ", "Shares and gains are of %s.", fo_window_words(window, d));
		}
		if (!number || !brief)
			fprintf(f, "\n");
		snprintf(lead, sizeof lead, "%3d. ", ++number);
		fo_cli_put(f, lead, "     ", "%s%s%s", seen(text, x->title), role, x->serious ? " [serious]" : "");
		if (!brief)
			fo_cli_put(f, "     ", "     ", "%s", seen(text, x->why));
		if (fo_finding_worth(x))
			fo_cli_put(f, "     Worth ", "     ", "%s%s", gain(&a, x), savings(&a, d, x->dollars));
		if (brief)
			continue;
		print_settings(f, x);
		print_evidence(f, &a, d, x);
	}
	if (!number && fo_diagnosed(d))
		fprintf(f, "\nNo findings: nothing that these traces show is worth a change.\n");
	print_notes(f, d, false, brief);
	fo_arena_fini(&a);
}

void fo_cli_diagnose_kernels(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	struct fo_kernels top;
	struct fo_table t;
	fo_kernels_of(d, &top);
	/* The usual width of the indent, the gaps and the columns of figures. */
	const size_t figures = 2 + 4 * 2 + strlen("calls") + strlen("of step") + strlen("1234.567");
	size_t words = 0, room = KERNEL;
	for (int64_t i = 0; i < top.n && i < FO_KERNELS_SHOWN; i++)
		words = strlen(fo_class_words[top.v[i].class]) > words ? strlen(fo_class_words[top.v[i].class]) : words;
	if (room + strlen("...") + words + figures > LINE)
		room = LINE - words - figures - strlen("...");
	if (top.n) {
		fprintf(f, "\n%s by time, durations added up, %s\n\n", d->own.is ? "Operations" : "Kernels", top.label);
		fo_table_init(&t, "llrrr");
		fo_table_row(&t, d->own.is ? "operation" : "kernel", "class", "calls", "of step", "ms");
	}
	for (int64_t i = 0; i < top.n && i < FO_KERNELS_SHOWN; i++) {
		const struct fo_kernel_sum *k = &top.v[i];
		fo_table_row(&t, fo_arena_printf(&a, strlen(k->name) > room ? "%.*s..." : "%.*s", (int)room, k->name),
			     fo_class_words[k->class], fo_arena_printf(&a, "%.6g", k->calls),
			     percent(&a, (double)k->ns / (double)top.span_ns),
			     fo_arena_printf(&a, "%.3f", (double)k->ns * 1e-6));
	}
	if (top.n) {
		fo_table_print(&t, f, "  ", true);
		fo_table_fini(&t);
	}
	if (top.n > FO_KERNELS_SHOWN)
		fprintf(f, "  and %lld more names\n", (long long)(top.n - FO_KERNELS_SHOWN));
	fo_kernels_fini(&top);
	fo_arena_fini(&a);
}

void fo_cli_diagnose_products(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	struct fo_table t;
	if (!d->products)
		return;
	fprintf(f, "\nMatrix products by shape, most time first\n\n");
	fo_table_init(&t, "llrrrrl");
	fo_table_row(&t, "m x n x k", "type", "calls", "time", "TFLOP/s", "of attainable", "bound by");
	for (int64_t i = 0; i < d->products && i < PRODUCTS; i++) {
		const struct fo_product *q = &d->product[i];
		fo_table_row(&t,
			     fo_arena_printf(&a, q->batch > 1 ? "%lldx%lldx%lld, %lld times" : "%lldx%lldx%lld",
					     (long long)q->m, (long long)q->n, (long long)q->k, (long long)q->batch),
			     q->dtype, fo_arena_printf(&a, "%lld", (long long)q->calls), ms(&a, q->time_ns),
			     isfinite(q->flop_s) ? fo_arena_printf(&a, "%.1f", q->flop_s * 1e-12) : "-",
			     percent(&a, q->flop_s / q->attainable_flop_s),
			     q->memory_bound                  ? "memory"
			     : isfinite(q->attainable_flop_s) ? "arithmetic"
							      : "-");
	}
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
	if (d->products > PRODUCTS)
		fprintf(f, "  and %lld more (--json, --html)\n", (long long)(d->products - PRODUCTS));
	fo_arena_fini(&a);
}

void fo_cli_diagnose_unknowns(FILE *f, const struct fo_diagnosis *d)
{
	char what[SHOWN], flag[SHOWN];
	if (!d->unknowns)
		return;
	fprintf(f, "\nNot known\n\n");
	for (int64_t i = 0; i < d->unknowns; i++)
		fo_cli_put(f, "  - ", "    ", "%s: %s", seen(what, d->unknown[i].what), seen(flag, d->unknown[i].flag));
}
