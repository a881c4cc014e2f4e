/* flatout diagnose on a terminal: the answer, the bridge to MFU, findings, products, what is not known. */
#include "cli/diagnose.h"

#include "cli/cli.h"
#include "report/ledger_parts.h"

#include <math.h>
#include <string.h>

enum { PRODUCTS = 8, SHOWN = 1024 };

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

static char *money(struct fo_arena *a, double dollars)
{
	return fo_arena_printf(a, fabs(dollars) < 0.1 && fabs(dollars) >= 5e-7 ? "$%.3g" : "$%.2f", dollars);
}

/* "x 1.26 (1.10 to 1.50; at best x 1.50)" */
static char *gain(struct fo_arena *a, const struct fo_finding *f)
{
	if (!isfinite(f->gain))
		return fo_arena_strdup(a, "");
	const char *best = isfinite(f->ceiling) ? fo_arena_printf(a, "; at best x %.2f", f->ceiling) : "";
	return fo_arena_printf(a, "x %.2f (%.2f to %.2f%s)", f->gain, f->gain_low, f->gain_high, best);
}

void fo_cli_diagnose_answer(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	char text[SHOWN];
	const struct fo_finding *first = NULL, *second = NULL;
	for (int64_t i = 0; i < d->findings; i++) {
		first = d->finding[i].is_bottleneck ? &d->finding[i] : first;
		second = d->finding[i].is_runner_up ? &d->finding[i] : second;
	}
	if (first)
		fo_cli_put(f, "Bottleneck:  ", "             ", "%s%s%s", seen(text, first->title), isfinite(first->gain) ? ". Worth " : "",
			   gain(&a, first));
	else
		fo_cli_put(f, "Bottleneck:  ", "             ", "none that these traces show");
	if (second)
		fo_cli_put(f, "Runner-up:   ", "             ", "%s%s%s", seen(text, second->title), isfinite(second->gain) ? ". Worth " : "",
			   gain(&a, second));
	if (d->bridge.known)
		fo_cli_put(f, "MFU:         ", "             ", "%s (rule %s%s%s)", percent(&a, d->bridge.mfu), d->bridge.rule,
			   *d->bridge.dtype ? ", " : "", d->bridge.dtype);
	if (*d->utilisation.sentence)
		fo_cli_put(f, "Utilisation: ", "             ", "%s", seen(text, d->utilisation.sentence));
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
	fprintf(f, "\n");
	if (!b->known) {
		fo_cli_put(f, "MFU: ", "     ", "not known: %s", *b->why_not ? seen(text, b->why_not) : "give --model, --seq and --tokens-per-step");
		return;
	}
	for (int i = 0; i < b->rows && i < FO_BRIDGE_MAX; i++)
		price = price || isfinite(b->row[i].dollars_per_hour);
	fo_cli_put(f, "From 100 % to MFU: ", "  ", "peak %s %s%s%s, %d device%s", fo_str_si(si, b->peak_flop_s, "FLOP/s"), b->dtype,
		   *b->device ? " of " : "", seen(text, b->device), b->devices, b->devices == 1 ? "" : "s");
	fprintf(f, "\n");
	fo_table_init(&t, "lrrrr");
	fo_table_row(&t, "", "points", "left", price ? "$/step" : "", price ? "$/h" : "");
	fo_table_row(&t, "the peak", "", "100.0 %", "", "");
	for (int i = 1; i <= b->rows && i < FO_BRIDGE_MAX; i++) {
		const struct fo_bridge_row *r = &b->row[i < b->rows ? i : 0]; /* MFU, the first, is what is left */
		const char *step = isfinite(r->dollars) ? money(&a, r->dollars) : "", *hour = isfinite(r->dollars_per_hour) ? money(&a, r->dollars_per_hour)
																: "";
		if (i < b->rows)
			left -= r->share;
		fo_table_row(&t, r->name, i < b->rows ? fo_arena_printf(&a, "%+.1f", -100 * r->share) : "", percent(&a, i < b->rows ? left : r->share),
			     step, hour);
	}
	fo_table_print(&t, f, "  ", true);
	fo_table_fini(&t);
	if (*b->peak_source)
		fo_cli_put(f, "  ", "  ", "Peak: %s.", seen(text, b->peak_source));
	fo_arena_fini(&a);
}

/* At most 80 bytes of a name, in words that a table can break: kernels' names have none for hundreds of characters. */
static char *breakable(struct fo_arena *a, const char *name)
{
	enum { WHOLE = 80, WORD = 40 };
	char *out = fo_arena_alloc(a, WHOLE + 4 + WHOLE / WORD + 2); /* the last character whole */
	int n = 0, word = 0;
	bool inside = false; /* of one character */
	for (int i = 0; name[i] && (i < WHOLE || inside); i++) {
		word = name[i] == ' ' ? 0 : word + 1;
		out[n++] = name[i];
		inside = ((unsigned char)name[i + 1] & 0xC0) == 0x80;
		if (word >= WORD && !inside) {
			out[n++] = ' ';
			word = 0;
		}
	}
	out[n] = '\0';
	return out;
}

/* "idle before void ns::kernel<4>(int)" without what no line has room for. */
static char *short_evidence(struct fo_arena *a, const char *name)
{
	char kernel[160];
	const char *behind = !strncmp(name, "idle", 4) ? strstr(name, "before ") : NULL;
	size_t n = behind ? (size_t)(behind - name) + strlen("before ") : 0;
	/* Only names of C++ have such parts; "enumerate(DataLoader)" is one. */
	if (strncmp(name + n, "void ", 5) && !strchr(name + n, '<'))
		return breakable(a, name);
	return breakable(a, fo_arena_printf(a, "%.*s%s", (int)n, name, fo_kernel_short_name(kernel, sizeof kernel, name + n)));
}

static void print_evidence(FILE *f, struct fo_arena *a, const struct fo_diagnosis *d, const struct fo_finding *x)
{
	struct fo_table t;
	if (!x->evidences)
		return;
	fo_table_init(&t, "rrrl");
	fo_table_row(&t, "rank", "at", "takes", "evidence (times are after the trace's begin)");
	for (int i = 0; i < x->evidences && i < FO_EVIDENCE_MAX; i++) {
		const struct fo_evidence *e = &x->evidence[i];
		int64_t origin = 0;
		for (int r = 0; r < d->ranks; r++)
			if (d->rank[r].rank == e->rank && d->rank[r].trace)
				origin = d->rank[r].trace->begin_ns;
		fo_table_row(&t, e->rank < 0 ? "?" : fo_arena_printf(a, "%d", e->rank), fo_arena_printf(a, "%.3f ms", (double)(e->begin_ns - origin) * 1e-6),
			     ms(a, e->duration_ns), short_evidence(a, e->name));
	}
	fo_table_print(&t, f, "     ", false);
	fo_table_fini(&t);
}

void fo_cli_diagnose_findings(FILE *f, const struct fo_diagnosis *d)
{
	struct fo_arena a = { 0 };
	char text[SHOWN], key[SHOWN], now[SHOWN], to[SHOWN], lead[16];
	if (!d->findings) {
		fprintf(f, "\nNo findings: nothing that these traces show is worth a change.\n");
		return;
	}
	fprintf(f, "\nFindings\n");
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *x = &d->finding[i];
		const char *role = x->is_bottleneck ? " [bottleneck]" : x->is_runner_up ? " [runner-up]" : "";
		snprintf(lead, sizeof lead, "%3lld. ", (long long)i + 1);
		fprintf(f, "\n");
		fo_cli_put(f, lead, "     ", "%s%s%s", seen(text, x->title), role, x->serious ? " [serious]" : "");
		fo_cli_put(f, "     ", "     ", "%s", seen(text, x->why));
		if (isfinite(x->gain))
			fo_cli_put(f, "     Worth ", "     ", "%s%s%s", gain(&a, x), isfinite(x->dollars) ? ", per hour " : "",
				   isfinite(x->dollars) ? money(&a, x->dollars) : "");
		for (int k = 0; k < x->settings && k < FO_SETTINGS_MAX; k++) {
			const struct fo_setting *s = &x->setting[k];
			fo_cli_put(f, "     * ", "       ", "%s: %s%s%s%s -> %s", s->framework, seen(key, s->key), *s->now ? " (now " : "",
				   seen(now, s->now), *s->now ? ")" : "", seen(to, s->proposed));
		}
		print_evidence(f, &a, d, x);
	}
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
	fo_table_row(&t, "m x n x k", "type", "calls", "time", "TFLOP/s", "of attainable", "");
	for (int64_t i = 0; i < d->products && i < PRODUCTS; i++) {
		const struct fo_product *q = &d->product[i];
		fo_table_row(&t,
			     fo_arena_printf(&a, q->batch > 1 ? "%lldx%lldx%lld, %lld times" : "%lldx%lldx%lld", (long long)q->m, (long long)q->n,
					     (long long)q->k, (long long)q->batch),
			     q->dtype, fo_arena_printf(&a, "%lld", (long long)q->calls), ms(&a, q->time_ns),
			     isfinite(q->flop_s) ? fo_arena_printf(&a, "%.1f", q->flop_s * 1e-12) : "-",
			     percent(&a, q->flop_s / q->attainable_flop_s), q->memory_bound ? "memory" : "");
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
