/* flatout report: a run directory as text and as a page. */
#include "cli/cli.h"

#include "report/run.h"

#include <string.h>

struct report {
	const char *html;
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = { FO_OPT_OUTPUT(struct report, html, "report.html", "FILE", NULL,
						    "where the page goes; default: report.html in the run directory",
						    FO_OUTPUT_PAGE),
				      FO_CLI_OUTPUT_ROWS(struct report, "report", "JSON on standard output") };

/* Prints the figures also where the page cannot be written, with the reason: a reader may have no right to write. */
static fo_status print(const struct fo_cli_call *call, struct fo_report *o, const char *page)
{
	struct fo_doc d = { 0 };
	fo_report_doc(o, &d);
	fo_status st = fo_cli_page(&d, page);
	bool standard = !strcmp(page, "-");
	if (call->json) {
		fo_report_json(o, call->json);
		fo_json_text(call->json, "html", st == FO_OK ? page : NULL);
	} else if (!standard) {
		if (st == FO_OK)
			fo_doc_para(&d, "Page: %s", page);
		fo_cli_print(stdout, &d);
	}
	fo_doc_fini(&d);
	return st == FO_OK || standard ? st : fo_hint(st, "--html=FILE writes the page elsewhere");
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct report *in = call->in;
	struct fo_arena a = { 0 };
	struct fo_record r;
	struct fo_report o;
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no run directory"), "usage: %s", call->command->usage);
	const char *dir = call->argv[1], *page = in->html ? in->html : fo_arena_printf(&a, "%s/report.html", dir);
	/* A page that --html names was checked with the options. */
	fo_status st = in->html || in->force ? FO_OK : fo_output_may_replace(FO_OUTPUT_PAGE, page);
	if (st == FO_OK)
		st = fo_record_open(&r, dir, FO_RECORD_WITH_RANKS | FO_RECORD_WITH_METERED);
	if (st == FO_OK) {
		fo_report_make(&o, &r);
		st = print(call, &o, page);
		fo_report_fini(&o);
		fo_record_fini(&r);
	}
	fo_arena_fini(&a);
	return st;
}

const struct fo_command fo_cmd_report = {
	.name = "report",
	.group = "diagnose",
	.usage = "flatout report RUN [--html FILE|-] [--json] [--force]",
	.summary = "what a run did: loss, MFU, slow phases, memory, machine; a page",
	.text = "Reads what 'flatout train' left in its run directory, whatever state that is in, also while it is "
		"training. The page is one file that needs nothing else: no network, no script; dark or light as "
		"the reader's system says; for desks, telephones and paper.\n\n"
		"A slow phase is a stretch of steps whose time, as a running median of 9, is more than 1.25 times "
		"the median of the whole run. What the log says of that time stands beside it.\n\n"
		"  flatout report run\n"
		"  flatout report run --html=/tmp/run.html\n"
		"  flatout report run --json",
	.opts = rows,
	.act = run,
	.size = sizeof(struct report),
	.most = 1,
};
