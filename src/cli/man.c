/* Manual pages in mdoc, made from the command rows, so that they cannot differ from --help. */
#include "cli/cli.h"

#include "program/run.h"

#include <string.h>

/* Date of the pages: that of the release, not of the build, so that the same source gives the same page. */
#define MAN_DATE "November 21, 2026"

static void head(struct fo_str *out, const char *name, const char *summary)
{
	fo_str_printf(out, ".Dd %s\n.Dt ", MAN_DATE);
	for (const char *p = name; *p; p++) {
		char up = *p >= 'a' && *p <= 'z' ? (char)(*p - 32) : *p;
		fo_str_append(out, &up, 1);
	}
	fo_str_printf(out, " 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd ", name);
	/* .Nd is one line without a full stop; \& keeps a word of two or three letters from being a macro. */
	size_t n = strlen(summary);
	while (n > 0 && summary[n - 1] == '.')
		n--;
	fo_str_printf(out, "\\&%.*s\n", (int)n, summary);
}

static void exit_status(struct fo_str *out)
{
	fo_str_puts(out, ".Sh EXIT STATUS\n"
			 ".Bl -tag -width Ds\n"
			 ".It 0\nDone.\n"
			 ".It 1\nA check or the numerics failed.\n"
			 ".It 2\nThe input is wrong: an argument, an option or a file's content.\n"
			 ".It 3\nThe machine, its files or its memory did not allow it.\n"
			 ".It 4\nA mistake of ours.\n"
			 ".It 130\nInterrupted; the state was saved.\n"
			 ".El\n");
}

/* Joins the lists of two tables: the end of the first and the beginning of the second are left out. */
static void joint_options(const struct fo_opt *first, const struct fo_opt *second, struct fo_str *out)
{
	struct fo_str more = { 0 };
	fo_opt_mdoc(first, out);
	fo_opt_mdoc(second, &more);
	out->len -= strlen(".El\n");
	out->data[out->len] = 0;
	fo_str_puts(out, strstr(more.data, ".It "));
	fo_str_fini(&more);
}

void fo_man_command(const struct fo_command *c, struct fo_str *out)
{
	struct fo_str name = { 0 };
	fo_str_printf(&name, "flatout-%s", c->name);
	for (char *p = name.data; *p; p++)
		*p = *p == ' ' ? '-' : *p; /* flatout-data-prepare */
	head(out, name.data, c->summary);
	fo_str_puts(out, ".Sh SYNOPSIS\n");
	/* A usage may have several lines, one per form. */
	for (const char *p = c->usage; *p;) {
		size_t n = strcspn(p, "\n"), skip = strspn(p, " ");
		if (n > skip) {
			struct fo_str line = { 0 };
			fo_str_append(&line, p + skip, n - skip);
			fo_opt_mdoc_text(out, line.data);
			fo_str_fini(&line);
			if (p[n] == '\n' && p[n + 1])
				fo_str_puts(out, ".br\n");
		}
		p += n + (p[n] == '\n');
	}
	fo_str_puts(out, ".Sh DESCRIPTION\n");
	fo_opt_mdoc_text(out, c->text && *c->text ? c->text : c->summary);
	bool refer = c->own && strcmp(c->name, FO_RUN_OPTIONS_COMMAND);
	const struct fo_opt *rows = c->opts;
	if (refer)
		fo_opt_mdoc(c->own, out);
	else if (c->own)
		joint_options(c->own, rows, out);
	else
		fo_opt_mdoc(rows, out);
	if (refer)
		fo_str_puts(out,
			    ".Pp\nThe options of a run are those of\n.Xr flatout-" FO_RUN_OPTIONS_COMMAND " 1 .\n");
	if (rows && rows[0].key && !refer) {
		char env[128];
		fo_str_printf(out,
			      ".Sh ENVIRONMENT\nEach option%s can be set by a variable:\n.Fl -%s\nby\n.Ev %s .\n"
			      "A flag counts more than a variable, a variable more than a file.\n",
			      c->own ? " of a run" : "", fo_opt_flag_name(rows, 0), fo_opt_env_name(env, rows[0].key));
	}
	exit_status(out);
	fo_str_puts(out, ".Sh SEE ALSO\n.Xr flatout 1\n");
	fo_str_fini(&name);
}

void fo_man_overview(const struct fo_command *const *list, struct fo_str *out)
{
	head(out, "flatout", "why training is slow, what MFU it reaches, and a fast engine");
	fo_str_puts(out, ".Sh SYNOPSIS\n.Nm\n.Ar command\n.Op Ar argument ...\n.Op Fl -option Ns = Ns Ar value ...\n"
			 ".Sh DESCRIPTION\nThe commands are:\n.Bl -tag -width Ds\n");
	for (; *list; list++) {
		fo_str_printf(out, ".It Cm \\&%s\n", (*list)->name);
		fo_opt_mdoc_text(out, (*list)->summary);
	}
	fo_str_puts(out, ".El\n.Pp\nEach has a page of its own, named\n.Nm flatout- Ns Ar command .\n");
	exit_status(out);
}
