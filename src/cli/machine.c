/* flatout machine: what this machine is and in what state, on one screen. */
#include "cli/cli.h"

#include "hw/state.h"

#include <math.h>
#include <string.h>

struct machine {
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = { FO_OPT_JSON(struct machine, json, "machine.json", "JSON on standard output"),
				      FO_OPT_FORCE(struct machine, force, "machine.force"), FO_OPT_END };

#define LEAD "            " /* below "huge pages  " */
#define UNREADABLE "not readable"

static void count(struct fo_str *s, int n, const char *one, const char *many)
{
	if (n >= 0)
		fo_str_printf(s, "%s%d %s", s->len ? ", " : "", n, fo_cli_plural(n, one, many));
}

static void line(const char *label, struct fo_str *s)
{
	char first[16];
	snprintf(first, sizeof first, "%-12s", label);
	fo_cli_put(stdout, first, LEAD, "%s", s->len ? s->data : UNREADABLE);
	fo_str_fini(s);
}

static void print_processors(const struct fo_machine *m)
{
	struct fo_str s = { 0 };
	char a[32];
	fo_str_puts(&s, *m->cpu ? m->cpu : "unknown processor");
	count(&s, m->sockets, "socket", "sockets");
	count(&s, m->cores, "core", "cores");
	count(&s, m->cpus, "hardware thread", "hardware threads");
	count(&s, m->nodes, "NUMA node", "NUMA nodes");
	line("cpu", &s);
	fo_str_puts(&s, m->isa);
	line("features", &s);
	for (int i = 0; i < m->caches; i++) {
		char type = m->cache[i].type[0];
		fo_str_printf(&s, "%sL%d%s %s", i ? ", " : "", m->cache[i].level,
			      type == 'D'   ? "d"
			      : type == 'I' ? "i"
					    : "",
			      fo_str_bytes(a, (double)m->cache[i].bytes));
		if (m->cache[i].shared > 1)
			fo_str_printf(&s, " shared by %d", m->cache[i].shared);
	}
	line("caches", &s);
}

static void print_memory(const struct fo_machine *m)
{
	struct fo_str s = { 0 };
	char a[32];
	if (m->memory_bytes >= 0)
		fo_str_puts(&s, fo_str_bytes(a, (double)m->memory_bytes));
	if (m->available_bytes >= 0)
		fo_str_printf(&s, ", %s available", fo_str_bytes(a, (double)m->available_bytes));
	line("memory", &s);
	if (*m->thp)
		fo_str_printf(&s, "%s%s%s", m->huge_page_bytes > 0 ? fo_str_bytes(a, (double)m->huge_page_bytes) : "",
			      m->huge_page_bytes > 0 ? ", transparent: " : "transparent: ", m->thp);
	if (!strcmp(m->thp, "never"))
		fo_str_puts(&s, " (training asks for them and gets none)");
	line("huge pages", &s);
}

static void print_clock(const struct fo_machine *m)
{
	struct fo_str s = { 0 };
	char a[32], b[32];
	if (isnan(m->clock_hz))
		fo_str_puts(&s, UNREADABLE);
	else
		fo_str_printf(&s, "%s now", fo_str_si(a, m->clock_hz, "Hz"));
	if (!isnan(m->min_hz + m->max_hz))
		fo_str_printf(&s, "%s%s to %s", s.len ? ", " : "", fo_str_si(a, m->min_hz, "Hz"),
			      fo_str_si(b, m->max_hz, "Hz"));
	if (*m->governor)
		fo_str_printf(&s, "%sgovernor %s%s%s", s.len ? ", " : "", m->governor, *m->driver ? " of " : "",
			      m->driver);
	else
		fo_str_printf(&s, "%sgovernor " UNREADABLE, s.len ? ", " : "");
	line("clock", &s);
	fo_str_puts(&s, isnan(m->throttles) ? "thermal events " UNREADABLE : "");
	if (!isnan(m->throttles))
		fo_str_printf(&s, "%.0f thermal events since the machine started", m->throttles);
	line("throttling", &s);
	if (m->energy)
		fo_str_puts(&s, "readable (RAPL): runs report J/token");
	else
		fo_str_printf(&s, UNREADABLE ": %s", m->energy_why);
	line("energy", &s);
}

static void print_limits(const struct fo_machine *m)
{
	struct fo_str s = { 0 };
	if (m->allowed >= 0)
		fo_str_printf(&s, "this process may use %d of %d hardware threads", m->allowed,
			      m->cpus > m->allowed ? m->cpus : m->allowed);
	if (!isnan(m->cpu_limit))
		fo_str_printf(&s, "%sthe cgroup grants %.3g processors", s.len ? "; " : "", m->cpu_limit);
	line("limits", &s);
	if (!isnan(m->load))
		fo_str_printf(&s, "load %.2f", m->load);
	if (!isnan(m->steal))
		fo_str_printf(&s, "%ssteal %.2f %% since the machine started", s.len ? ", " : "", 100 * m->steal);
	line("state", &s);
}

static void print_json(const struct fo_machine *m)
{
	struct fo_json *j = fo_cli_json_begin();
	fo_json_text(j, "of", "machine"); /* a profile of calibrate begins with the processor, too */
	fo_schema_write_fields(&fo_machine_schema, m, j);
	fo_cli_json_end(j);
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct machine *in = call->in;
	struct fo_machine m;
	fo_machine_read(&m, "");
	if (in->json) {
		print_json(&m);
	} else {
		print_processors(&m);
		print_memory(&m);
		print_clock(&m);
		print_limits(&m);
	}
	return FO_OK;
}

const struct fo_command fo_cmd_machine = {
	.name = "machine",
	.group = "measure",
	.usage = "flatout machine [--json]",
	.summary = "this machine and its state: cores, caches, clocks, limits",
	.text = "What a figure measured here depends on. What the system does not tell is\n"
		"\"not readable\" (null in JSON), never a guess. A training run records the same\n"
		"in run.json and log.jsonl beside its results.\n"
		"\n"
		"  flatout machine\n"
		"  flatout machine --json",
	.opts = rows,
	.act = run,
	.size = sizeof(struct machine),
};
