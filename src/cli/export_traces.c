/* flatout export --chrome, --csv: the operations of anybody's traces. */
#include "cli/export.h"

#include "diagnose/operations.h"

#include <sys/stat.h>

struct job {
	const struct fo_trace_set *set;
	int64_t rows;
};

static fo_status fill_csv(const struct fo_trace_sink *sink, void *ctx)
{
	struct job *job = ctx;
	return fo_operations_csv(job->set, sink, &job->rows);
}

static fo_status fill_chrome(const struct fo_trace_sink *sink, void *ctx)
{
	struct job *job = ctx;
	return fo_operations_chrome(job->set, sink, &job->rows);
}

/* An output that is one of the traces themselves. */
static fo_status is_no_input(const char *path, const struct fo_trace_set *s)
{
	struct stat out, in;
	for (int i = 0; i < s->count; i++)
		if (!stat(path, &out) && !stat(s->rank[i]->path, &in) && out.st_dev == in.st_dev &&
		    out.st_ino == in.st_ino)
			return fo_hint(fo_fail(FO_EARG, "'%s' is one of the traces: not replaced", path),
				       "another name for what is written");
	return FO_OK;
}

static fo_status write_one(const struct fo_cli_call *call, const char *key, const char *path,
			   fo_status (*fill)(const struct fo_trace_sink *, void *), const struct fo_trace_set *s)
{
	struct job job = { s, 0 };
	int64_t bytes;
	if (!*path)
		return FO_OK;
	FO_TRY(fo_cli_export_file(path, fill, &job, &bytes));
	fo_cli_export_wrote(call, key, path, "%lld operations of %d rank%s, %s", (long long)job.rows, s->count,
			    fo_doc_plural(s->count), fo_doc_bytes(call->doc, bytes));
	return FO_OK;
}

fo_status fo_cli_export_traces(const struct fo_cli_call *call, const char *chrome, const char *csv)
{
	struct fo_trace_set s;
	if (*chrome)
		FO_TRY(fo_cli_export_place(chrome));
	if (*csv)
		FO_TRY(fo_cli_export_place(csv));
	FO_TRY(fo_trace_set_open(&s, (const char *const *)call->argv + 1, call->argc - 1));
	fo_status st = is_no_input(csv, &s);
	if (st == FO_OK)
		st = is_no_input(chrome, &s);
	if (st == FO_OK)
		st = write_one(call, "csv", csv, fill_csv, &s);
	if (st == FO_OK)
		st = write_one(call, "chrome", chrome, fill_chrome, &s);
	fo_trace_set_fini(&s);
	return st;
}
