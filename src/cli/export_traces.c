/* flatout export --chrome, --csv: the operations of anybody's traces. */
#include "cli/export.h"

#include "cli/cli.h"
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

static fo_status write_one(const char *key, const char *path, fo_status (*fill)(const struct fo_trace_sink *, void *),
			   const struct fo_trace_set *s, struct fo_json *j)
{
	struct job job = { s, 0 };
	int64_t bytes;
	char size[32];
	FO_TRY(fo_cli_export_file(path, fill, &job, &bytes));
	if (j)
		fo_json_text(j, key, path);
	else
		fo_cli_put(stdout, "wrote ", "      ", "%s: %lld operations of %d rank%s, %s", fo_cli_seen(path),
			   (long long)job.rows, s->count, s->count == 1 ? "" : "s", fo_str_bytes(size, (double)bytes));
	return FO_OK;
}

fo_status fo_cli_export_traces(const char *chrome, const char *csv, const char *const *traces, int n, struct fo_json *j)
{
	struct fo_trace_set s;
	if (*chrome)
		FO_TRY(fo_cli_export_place(chrome));
	if (*csv)
		FO_TRY(fo_cli_export_place(csv));
	FO_TRY(fo_trace_set_open(&s, traces, n));
	fo_status st = is_no_input(csv, &s);
	if (st == FO_OK)
		st = is_no_input(chrome, &s);
	if (st == FO_OK && *csv)
		st = write_one("csv", csv, fill_csv, &s, j);
	if (st == FO_OK && *chrome)
		st = write_one("chrome", chrome, fill_chrome, &s, j);
	fo_trace_set_fini(&s);
	return st;
}
