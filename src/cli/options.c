/* Options of one command, from all places. */
#include "cli/cli.h"

#include "base/fs.h"
#include "program/run.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void fo_cli_options_read(const struct fo_command *c, struct fo_opt_set *s, void *target, int *argc, char **argv)
{
	fo_opt_init_own(s, c->opts, c->own, target);
	fo_opt_read_args(s, argc, argv);
	fo_opt_read_env(s);
}

/* ---- outputs ---- */

const char *fo_cli_text_at(const struct fo_opt_set *s, int i)
{
	return *(const char *const *)((const char *)s->target + fo_opt_row(s, i)->offset);
}

static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

/* The name that a user writes for output option i: a command's own options go by the last part of their key. */
static const char *flag(const struct fo_opt_set *s, int i)
{
	const char *key = fo_opt_row(s, i)->key;
	return i < s->count && s->total > s->count ? key : last_part(key);
}

static bool forced(const struct fo_opt_set *s)
{
	for (int i = 0; i < s->total; i++) {
		const struct fo_opt *row = fo_opt_row(s, i);
		if (row->type == FO_OPT_T_BOOL && !strcmp(last_part(row->key), "force"))
			return *(const bool *)((const char *)s->target + row->offset);
	}
	return false;
}

/* An output may be neither an argument nor a file or folder that another option names. */
static fo_status is_no_input(const struct fo_opt_set *s, enum fo_output kind, const char *path)
{
	for (int i = 1; i < s->argc; i++)
		FO_TRY(fo_output_is_no_input(kind, path, s->argv[i]));
	for (int i = 0; i < s->total; i++)
		if (fo_opt_row(s, i)->path && !fo_opt_row(s, i)->output && fo_cli_text_at(s, i) &&
		    *fo_cli_text_at(s, i))
			FO_TRY(fo_output_is_no_input(kind, path, fo_cli_text_at(s, i)));
	return FO_OK;
}

static fo_status check_output(const struct fo_opt_set *s, const struct fo_opt *row, enum fo_output kind,
			      const char *path, bool force)
{
	if (!strcmp(path, "-")) {
		if (row->bare || kind == FO_OUTPUT_PAGE)
			return FO_OK;
		return fo_hint(fo_fail(FO_EARG, "'%s' wants the name of a file, got '-'", row->key),
			       "/dev/stdout is the standard output, ./- a file of that name");
	}
	if (kind == FO_OUTPUT_NEW_NAMES)
		return FO_OK;
	FO_TRY(is_no_input(s, kind, path));
	return force ? FO_OK : fo_output_may_replace(kind, path);
}

/* Two outputs in one file: the second would take the first one's place. Standard output takes one, too: a page or JSON,
 * which is text there even where --json=PATH takes all that is printed. */
static fo_status is_no_other(const struct fo_command *c, const struct fo_opt_set *s, int first, int i, const char *path)
{
	for (int k = first; k < s->total; k++) {
		const struct fo_opt *row = fo_opt_row(s, k);
		const char *other = row->output ? fo_cli_text_at(s, k) : NULL;
		bool printed = row->bare && (!c->json_beside || (other && !strcmp(other, "-")));
		if (!other || k == i)
			continue;
		if (!strcmp(path, "-") && fo_opt_row(s, i)->output == FO_OUTPUT_PAGE && printed)
			return fo_fail(FO_EARG, "--html=- and --json both write to standard output: give one of them "
						"a file, or two commands");
		if (k < i && !strcmp(other, path) && strcmp(path, "-"))
			return fo_fail(FO_EARG, "'--%s' and '--%s' both name '%s'", flag(s, k), flag(s, i), path);
	}
	return FO_OK;
}

/* Every output that the options name, before the work. */
static fo_status check_outputs(const struct fo_command *c, const struct fo_opt_set *s, enum fo_output writes)
{
	int first = c->own && !writes ? s->count : 0; /* what a run would write, this command does not */
	bool force = forced(s);
	for (int i = first; i < s->total; i++) {
		const struct fo_opt *row = fo_opt_row(s, i);
		const char *path = row->output ? fo_cli_text_at(s, i) : NULL;
		if (!path || !*path)
			continue;
		FO_TRY(is_no_other(c, s, first, i, path));
		FO_TRY(check_output(s, row, row->output == FO_OUTPUT_RUN ? writes : row->output, path, force));
	}
	return FO_OK;
}

/* The file of --json=PATH, which takes what the command prints. */
static struct {
	struct fo_new_file file;
	int standard; /* the standard output meanwhile */
} captured = { .standard = -1 };

static fo_status begin_json(const struct fo_command *c, const struct fo_opt_set *s)
{
	for (int i = 0; !c->json_beside && i < s->total; i++) {
		const char *path = fo_opt_row(s, i)->bare ? fo_cli_text_at(s, i) : NULL;
		if (!path || !strcmp(path, "-"))
			continue;
		FO_TRY(fo_fs_new_begin(&captured.file, path));
		captured.standard = dup(STDOUT_FILENO);
		if (captured.standard < 0 || dup2(captured.file.fd, STDOUT_FILENO) < 0)
			return fo_fs_new_end(&captured.file, fo_fs_refuse("write", path, errno), false);
	}
	return FO_OK;
}

fo_status fo_cli_output_begin(const struct fo_command *c, const struct fo_opt_set *s, enum fo_output writes)
{
	FO_TRY(check_outputs(c, s, writes));
	return begin_json(c, s);
}

fo_status fo_cli_output_end(void)
{
	if (captured.standard < 0)
		return FO_OK;
	/* A write that failed earlier left its mark but no reason, and later ones may have succeeded. */
	errno = 0;
	int error = 0;
	if (fflush(stdout) || ferror(stdout))
		error = errno ? errno : EIO;
	/* Writing one more byte shows the reason; the file is thrown away in any case. */
	if (error == EIO && captured.file.beside && write(STDOUT_FILENO, "\n", 1) < 0)
		error = errno;
	clearerr(stdout);
	off_t bytes = lseek(STDOUT_FILENO, 0, SEEK_CUR);
	dup2(captured.standard, STDOUT_FILENO);
	close(captured.standard);
	captured.standard = -1;
	if (error)
		return fo_fs_new_end(&captured.file, fo_fs_refuse("write", captured.file.path, error), false);
	if (bytes)
		return fo_fs_new_end(&captured.file, FO_OK, true);
	(void)!fo_fs_new_end(&captured.file, FO_EARG, false);
	return FO_OK;
}

/* ---- all options ---- */

fo_status fo_cli_options_finish(const struct fo_command *c, struct fo_opt_set *s)
{
	fo_status st = c->own ? fo_run_check(s, s->target) : fo_opt_finish(s);
	if (st == FO_OK && s->notes.len)
		fprintf(stderr, "note: %s\n", s->notes.data);
	if (st == FO_OK)
		return fo_cli_output_begin(c, s, c->writes);
	if (c->own && strcmp(c->name, FO_RUN_OPTIONS_COMMAND))
		return fo_hint(st,
			       "'flatout %s --help' lists its own options, 'flatout " FO_RUN_OPTIONS_COMMAND
			       " --help' those of a run with ranges and units",
			       c->name);
	return fo_hint(st, "'flatout %s --help' lists the options with their ranges and units", c->name);
}

/* How a file begins; nothing of one that cannot be read, which is left to the reader. */
static size_t beginning(const char *path, char *buf, size_t size)
{
	FILE *f = fopen(path, "re");
	size_t n = f ? fread(buf, 1, size, f) : 0;
	if (f)
		fclose(f);
	return n;
}

fo_status fo_cli_options_yaml(const struct fo_command *c, struct fo_opt_set *s, const char *path)
{
	static const char program[] = "flatout-program ";
	const char *shown = fo_cli_seen(path);
	char head[sizeof program - 1] = "";
	size_t n = beginning(path, head, sizeof head);
	if (n == sizeof head && !memcmp(head, program, n))
		return fo_hint(fo_fail(FO_EARG, "'%s' is a step program, not a run file", shown),
			       "flatout %s --program.file=%s reads it", c->name, shown);
	if (!memcmp(head, "\x1f\x8b", 2) || !memcmp(head, "\x28\xb5", 2)) /* gzip, Zstandard */
		return fo_hint(fo_fail(FO_EARG, "'%s' is compressed data, not a run file", shown),
			       "'flatout init' writes a run file; 'flatout diagnose %s' reads a profiler's trace",
			       shown);
	return fo_opt_read_yaml(s, path);
}

fo_status fo_cli_no_more_args(const struct fo_command *c, int argc, char **argv, int most)
{
	if (argc <= 1 + most)
		return FO_OK;
	fo_fail(FO_EARG, "unexpected argument '%s'", fo_cli_seen(argv[1 + most]));
	const int first = (int)strcspn(c->usage, "\n"); /* a hint is one line */
	if (!c->usage[first])
		return fo_hint(FO_EARG, "usage: %s", c->usage);
	return fo_hint(FO_EARG, "usage: %.*s; 'flatout %s --help' has the other forms", first, c->usage, c->name);
}
