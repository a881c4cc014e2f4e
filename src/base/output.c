#include "base/output.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define JSON_HEAD "{\n  \"schema\": "

enum { SIGNATURES = 4 };
/* A file of ours begins with `begin`, which numbers may follow, and then `next`. */
struct signature {
	const char *begin, *next;
};

static const struct {
	const char *name;
	struct signature is[SIGNATURES]; /* any of them */
	bool packed;                     /* may be compressed */
} kinds[FO_OUTPUT_COUNT] = {
	[FO_OUTPUT_NONE] = { .name = "none" },
	[FO_OUTPUT_PAGE] = { "page", { { FO_OUTPUT_PAGE_HEAD, "" } }, false },
	[FO_OUTPUT_JSON] = { "json", { { JSON_HEAD, "" }, { "{\"schema\":", "" } }, false },
	[FO_OUTPUT_SVG] = { "svg",
			    { { "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
				"\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">Roofline of " },
			      { "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
				"\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">Timeline of " },
			      { "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ",
				"\" role=\"img\" aria-labelledby=\"t d\">\n<title id=\"t\">schedule " } },
			    false },
	[FO_OUTPUT_SLICES] = { "slices",
			       { { "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"program\":\"flatout\"},", "" } },
			       true },
	[FO_OUTPUT_CSV] = { "csv", { { "rank,device,stream,step,begin_us,duration_us,kind,class,", "" } }, true },
	[FO_OUTPUT_STEPS] = { "steps", { { "step,seconds,tokens_per_second_per_device,mfu,", "" } }, false },
	[FO_OUTPUT_SCORE] = { "score", { { "line,measured_tokens_s,predicted_tokens_s,", "" } }, false },
	[FO_OUTPUT_PROMETHEUS] = { "prometheus", { { "# HELP flatout_", "" } }, false },
	[FO_OUTPUT_PROGRAM] = { "program", { { "flatout-program ", "" } }, false },
	[FO_OUTPUT_TIMELINE] = { "timeline",
				 { { "FOTIMEL4", "" }, { "FOTIMEL3", "" }, { "FOTIMEL2", "" }, { "FOTIMEL1", "" } },
				 false },
	[FO_OUTPUT_PROFILE] = { "profile", { { JSON_HEAD, "\"cpu\":" } }, false },
	[FO_OUTPUT_LADDER] = { "ladder", { { JSON_HEAD, "\"dir\":" } }, false },
	[FO_OUTPUT_TOKENIZER] = { .name = "tokenizer" },
	[FO_OUTPUT_RUN_FILE] = { .name = "run-file" },
	[FO_OUTPUT_RUN] = { .name = "run-folder" },
	[FO_OUTPUT_LADDER_FOLDER] = { .name = "ladder-folder" },
	[FO_OUTPUT_SHARDS] = { .name = "shard-folder" },
	[FO_OUTPUT_DEMO] = { .name = "demo-folder" },
	[FO_OUTPUT_NEW_NAMES] = { .name = "new-names" },
};

/* The first keys after the schema in our other JSON files. --json prints none of these files. */
static const char *const other_json[] = { "\"run\": {", "\"run\":{", "\"fingerprint\":", "\"files\":",
					  "\"cpu\":",   "\"dir\":",  "\"version\":",     "\"step\":" };

/* The folders: a file that begins as in `mark` says that what lies there is ours; without one none of `file` may be
 * there. */
static const struct {
	enum fo_output kind;
	struct {
		const char *file;
		struct signature is;
	} mark[2];
	const char *file[13];
} folders[] = {
	{ FO_OUTPUT_RUN,
	  { { "run.json", { JSON_HEAD, "\"run\":" } }, { "data/source.txt", { "data.path ", "" } } },
	  { "run.json", "program.txt", "log.jsonl", "timeline.fot", "metered.fom", "kernels.jsonl", "checkpoints",
	    "timeline-rank1.fot", "report.html", "data/source.txt", "data/tokenizer.json", "data/train.shard",
	    "data/val.shard" } },
	{ FO_OUTPUT_LADDER_FOLDER,
	  { { "plan.json", { JSON_HEAD, "\"version\":" } }, { "ladder.json", { JSON_HEAD, "\"dir\":" } } },
	  { "ladder.json", "ladder.html", "plan.json" } },
	{ FO_OUTPUT_SHARDS,
	  { { "prepared.json", { JSON_HEAD, "\"fingerprint\":" } }, { "prepare.journal", { "FLATJRN1", "" } } },
	  { "prepared.json", "prepare.journal", "train.shard", "val.shard", "train.src", "val.src" } },
};

const char *fo_output_name(enum fo_output kind) { return kinds[kind].name; }

enum { LOOKED_AT = 512 }; /* longer than every signature */

/* Reads the first bytes of a file, unpacked if `packed`, and ends them with a NUL. Nothing is read from what is no
 * regular file: a pipe would wait. */
static void first_bytes(const char *path, bool packed, char out[LOOKED_AT + 1])
{
	int fd;
	memset(out, 0, LOOKED_AT + 1);
	if (fo_fs_open_regular(path, &fd) != FO_OK) {
		fo_err_clear();
		return;
	}
	if (packed) {
		gzFile f = gzdopen(fd, "rb");
		if (f && gzread(f, out, LOOKED_AT) < 0)
			out[0] = 0;
		if (f)
			gzclose(f);
		else
			close(fd);
		return;
	}
	ssize_t n;
	for (size_t at = 0; at < LOOKED_AT; at += (size_t)n) {
		while ((n = read(fd, out + at, LOOKED_AT - at)) < 0 && errno == EINTR)
			;
		if (n <= 0)
			break;
	}
	close(fd);
}

/* The text after the signature's first part and the numbers that follow it; NULL: the file lacks this signature. */
static const char *after(const char *there, const struct signature *s)
{
	size_t n = strlen(s->begin);
	if (strncmp(there, s->begin, n))
		return NULL;
	const char *next = there + n + (*s->next ? strspn(there + n, "0123456789, \n") : 0);
	return strncmp(next, s->next, strlen(s->next)) ? NULL : next;
}

static bool is_ours(enum fo_output kind, const char *path)
{
	char there[LOOKED_AT + 1];
	first_bytes(path, kinds[kind].packed, there);
	for (int i = 0; i < SIGNATURES && kinds[kind].is[i].begin; i++) {
		const char *next = after(there, &kinds[kind].is[i]);
		bool other = false;
		if (next && kind == FO_OUTPUT_JSON && strspn(next, "0123456789") == 0)
			continue; /* another program's idea of a schema */
		if (next && kind == FO_OUTPUT_JSON)
			next += strspn(next, "0123456789, \n");
		for (size_t k = 0; next && kind == FO_OUTPUT_JSON && k < sizeof other_json / sizeof *other_json; k++)
			other |= !strncmp(next, other_json[k], strlen(other_json[k]));
		if (next && !other)
			return true;
	}
	return false;
}

/* A file of a kind without a signature may be what this command wrote and somebody changed since, and the message says
 * so. */
static fo_status refuse(enum fo_output kind, const char *path, const char *in)
{
	const char *why = kind < FO_OUTPUT_RUN && !kinds[kind].is[0].begin ? "may hold somebody's changes"
									   : "is nothing that this command wrote";
	fo_status st = in ? fo_fail(FO_EARG, "'%s/%s' is there and %s: not replaced", path, in, why)
			  : fo_fail(FO_EARG, "'%s' is there and %s: not replaced", path, why);
	return fo_hint(st, "another name, or --force writes there all the same");
}

static bool is_there(const char *dir, const char *name)
{
	struct fo_arena a = { 0 };
	bool there = fo_fs_exists(fo_arena_printf(&a, "%s/%s", dir, name));
	fo_arena_fini(&a);
	return there;
}

static fo_status may_fill(enum fo_output kind, const char *dir)
{
	if (kind == FO_OUTPUT_DEMO && is_there(dir, FO_OUTPUT_DEMO_MARK))
		return FO_OK;
	if (kind == FO_OUTPUT_DEMO)
		return fo_hint(fo_fail(FO_EARG, "'%s' exists and is not an earlier demo's folder", dir),
			       "choose another: flatout demo --dir=PATH");
	for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
		if (folders[i].kind != kind)
			continue;
		for (int k = 0; k < 2; k++) {
			struct fo_arena a = { 0 };
			char there[LOOKED_AT + 1] = "";
			const char *mark = fo_arena_printf(&a, "%s/%s", dir, folders[i].mark[k].file);
			if (fo_fs_exists(mark))
				first_bytes(mark, false, there);
			fo_arena_fini(&a);
			if (after(there, &folders[i].mark[k].is))
				return FO_OK;
		}
		for (size_t k = 0; k < sizeof folders[i].file / sizeof *folders[i].file; k++)
			if (folders[i].file[k] && is_there(dir, folders[i].file[k]))
				return refuse(kind, dir, folders[i].file[k]);
	}
	return FO_OK;
}

fo_status fo_output_may_replace(enum fo_output kind, const char *path)
{
	struct stat there;
	bool folder = kind >= FO_OUTPUT_RUN;
	if (stat(path, &there) || (folder && !S_ISDIR(there.st_mode)))
		return FO_OK; /* whatever else is wrong with it, writing will tell */
	if (folder)
		return may_fill(kind, path);
	if (S_ISDIR(there.st_mode))
		return fo_hint(fo_fail(FO_EARG, "'%s' is a folder, a file is written", path), "name a file in it");
	if (!S_ISREG(there.st_mode) || !there.st_size || is_ours(kind, path))
		return FO_OK;
	return refuse(kind, path, NULL);
}

fo_status fo_output_is_no_input(enum fo_output kind, const char *path, const char *input)
{
	struct stat out, in;
	if (stat(path, &out) || stat(input, &in) || !S_ISREG(out.st_mode))
		return FO_OK;
	if (out.st_dev == in.st_dev && out.st_ino == in.st_ino)
		return fo_hint(fo_fail(FO_EARG, "'%s' is read by this very command: not replaced", path),
			       "another name for what is written");
	if (!S_ISDIR(in.st_mode) || !out.st_size || is_ours(kind, path))
		return FO_OK;
	char *whole = realpath(path, NULL), *folder = realpath(input, NULL);
	size_t n = folder ? strlen(folder) : 0;
	bool within = whole && folder && !strncmp(whole, folder, n) && (whole[n] == '/' || n == 1);
	free(whole);
	free(folder);
	if (!within)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "'%s' lies in '%s', which this command reads: not replaced", path, input),
		       "another name for what is written");
}
