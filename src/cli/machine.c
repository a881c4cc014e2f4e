/* flatout machine: what this machine is and in what state, on one screen. */
#include "cli/cli.h"

#include "hw/state.h"

#include <math.h>
#include <string.h>

struct machine {
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = { FO_CLI_OUTPUT_ROWS(struct machine, "machine", "JSON on standard output") };

#define UNREADABLE "not readable"

static const char *count(struct fo_doc *d, const char *text, int n, const char *one, const char *many)
{
	return n < 0 ? text : fo_doc_join(d, text, fo_doc_printf(d, "%d %s", n, fo_word(n, one, many)));
}

static void line(struct fo_doc *d, const char *label, const char *text)
{
	fo_doc_line(d, label, "%s", *text ? text : UNREADABLE);
}

static const char *caches(const struct fo_machine *m, struct fo_doc *d)
{
	const char *text = "";
	for (int i = 0; i < m->caches; i++) {
		char type = m->cache[i].type[0], mark[2] = "";
		if (type == 'D' || type == 'I') /* data or instructions alone */
			mark[0] = type == 'D' ? 'd' : 'i';
		const char *one = fo_doc_printf(d, "L%d%s %s", m->cache[i].level, mark,
						fo_doc_bytes(d, m->cache[i].bytes));
		if (m->cache[i].shared > 1)
			one = fo_doc_printf(d, "%s shared by %d", one, m->cache[i].shared);
		text = fo_doc_join(d, text, one);
	}
	return text;
}

static void say_processors(const struct fo_machine *m, struct fo_doc *d)
{
	const char *text = count(d, *m->cpu ? m->cpu : "unknown processor", m->sockets, "socket", "sockets");
	text = count(d, text, m->cores, "core", "cores");
	text = count(d, text, m->cpus, "hardware thread", "hardware threads");
	line(d, "CPU", count(d, text, m->nodes, "NUMA node", "NUMA nodes"));
	line(d, "features", m->isa);
	line(d, "caches", caches(m, d));
}

static void say_memory(const struct fo_machine *m, struct fo_doc *d)
{
	const char *text = m->memory_bytes >= 0 ? fo_doc_bytes(d, m->memory_bytes) : "", *pages = "";
	if (m->available_bytes >= 0)
		text = fo_doc_join(d, text, fo_doc_printf(d, "%s available", fo_doc_bytes(d, m->available_bytes)));
	line(d, "memory", text);
	if (*m->thp)
		pages = fo_doc_join(d, m->huge_page_bytes > 0 ? fo_doc_bytes(d, m->huge_page_bytes) : "",
				    fo_doc_printf(d, "transparent: %s", m->thp));
	if (!strcmp(m->thp, "never"))
		pages = fo_doc_printf(d, "%s (training asks for them and gets none)", pages);
	line(d, "huge pages", pages);
}

static void say_clock(const struct fo_machine *m, struct fo_doc *d)
{
	const char *text = isnan(m->clock_hz) ? UNREADABLE
					      : fo_doc_printf(d, "%s now", fo_doc_si(d, m->clock_hz, "Hz"));
	if (!isnan(m->min_hz + m->max_hz))
		text = fo_doc_join(
			d, text,
			fo_doc_printf(d, "%s to %s", fo_doc_si(d, m->min_hz, "Hz"), fo_doc_si(d, m->max_hz, "Hz")));
	const char *governor = *m->governor ? m->governor : UNREADABLE;
	if (*m->governor && *m->driver)
		governor = fo_doc_printf(d, "%s of %s", governor, m->driver);
	line(d, "clock", fo_doc_join(d, text, fo_doc_printf(d, "governor %s", governor)));
	if (isnan(m->throttles))
		line(d, "throttling", "thermal events " UNREADABLE);
	else
		fo_doc_line(d, "throttling", "%.0f thermal events since the machine started", m->throttles);
	if (m->energy)
		line(d, "energy", "readable (RAPL): runs report J/token");
	else
		fo_doc_line(d, "energy", UNREADABLE ": %s", m->energy_why);
}

static void say_limits(const struct fo_machine *m, struct fo_doc *d)
{
	const char *text = "", *state = "";
	if (m->allowed >= 0)
		text = fo_doc_printf(d, "this process may use %d of %d hardware threads", m->allowed,
				     m->cpus > m->allowed ? m->cpus : m->allowed);
	if (!isnan(m->cpu_limit))
		text = fo_doc_join(d, text, fo_doc_printf(d, "the cgroup grants %.3g processors", m->cpu_limit));
	line(d, "limits", text);
	if (!isnan(m->load))
		state = fo_doc_printf(d, "load %.2f", m->load);
	if (!isnan(m->steal))
		state = fo_doc_join(d, state,
				    fo_doc_printf(d, "steal %.2f %% since the machine started", 100 * m->steal));
	line(d, "state", state);
}

static fo_status run(const struct fo_cli_call *call)
{
	struct fo_machine m;
	fo_machine_read(&m, "");
	if (call->json) {
		fo_json_text(call->json, "of",
			     "machine"); /* a profile of calibrate begins with the processor as well */
		fo_schema_write_fields(&fo_machine_schema, &m, call->json);
		return FO_OK;
	}
	say_processors(&m, call->doc);
	say_memory(&m, call->doc);
	say_clock(&m, call->doc);
	say_limits(&m, call->doc);
	return FO_OK;
}

const struct fo_command fo_cmd_machine = {
	.name = "machine",
	.group = "measure",
	.usage = "flatout machine [--json]",
	.summary = "this machine and its state: cores, caches, clocks, limits",
	.text = "Lists what a figure measured here depends on. What the system does not tell is \"not readable\" (null "
		"in JSON), never a guess. A training run records the same in run.json and log.jsonl beside its "
		"results.\n\n"
		"  flatout machine\n"
		"  flatout machine --json",
	.opts = rows,
	.act = run,
	.size = sizeof(struct machine),
};
