/* The texts of `flatout`, `flatout --help` and `flatout CMD --help`. */
#include "cli/cli.h"

#include "program/run.h"

#include <string.h>

static const struct {
	const char *name, *title;
} groups[] = {
	{ "measure", "Measure" },   { "train", "Train" }, { "improve", "Improve" },
	{ "diagnose", "Diagnose" }, { "plan", "Plan" },
};

/* Tasks in the order of their worth to a newcomer; the first five whose command is part of this build are shown. The
 * numbers are those of a public claim: Llama-3.1-8B on one B200. */
static const struct {
	const char *command, *task, *example;
} tasks[] = {
	{ "diagnose", "Find out why a training run is slow, from a profiler's trace",
	  "flatout diagnose trace.json.gz" },
	{ "mfu", "Judge a training speed that somebody reports",
	  "flatout mfu --model llama-3.1-8b --seq 8192 --device b200 --devices 1 \\\n"
	  "          --tokens-per-second 21111" },
	{ "demo", "Train a small model on this machine, in minutes", "flatout demo" },
	{ "train", "Train on your own text, interrupt it, go on", "flatout init run.yaml && flatout train run.yaml" },
	{ "data", "Turn text, JSON lines or C4's archives into tokens", "flatout data" },
	{ "compare", "See what a change did, by a trace before and one after",
	  "flatout compare before.json.gz after.json.gz" },
	{ "flops", "Count the work of a model", "flatout flops --model llama-3.1-8b --seq 8192 --tokens 15T" },
	{ "devices", "Look up the peaks of an accelerator", "flatout devices h100" },
	{ "program", "See every operation of a training step", "flatout program run.yaml" },
	{ "ops", "See the operations and what each costs", "flatout ops" },
	{ "config", "See where each setting comes from", "flatout config run.yaml" },
};

const struct fo_command *fo_command_find(const struct fo_command *const *list, const char *name, const char **nearest)
{
	const char *best = NULL;
	int least = (int)strlen(name) / 2 + 1; /* more than half of the letters wrong is no typing mistake */
	for (; *list; list++) {
		if (!strcmp((*list)->name, name))
			return *list;
		int d = fo_str_distance(name, (*list)->name);
		if (d < least) {
			least = d;
			best = (*list)->name;
		}
	}
	if (nearest)
		*nearest = best;
	return NULL;
}

void fo_help_tasks(const struct fo_command *const *list, struct fo_str *out)
{
	fo_str_puts(out, "Flatout says why training is slow, tells whether an MFU is true, and trains\nsmall Llamas at "
			 "most of what a CPU can do.\n");
	int shown = 0;
	for (size_t i = 0; i < sizeof tasks / sizeof tasks[0] && shown < 5; i++) {
		if (!fo_command_find(list, tasks[i].command, NULL))
			continue;
		fo_str_printf(out, "\n  %s:\n      %s\n", tasks[i].task, tasks[i].example);
		shown++;
	}
	fo_str_puts(out, "\n'flatout --help' lists all commands.\n");
}

void fo_help_overview(const struct fo_command *const *list, struct fo_str *out)
{
	fo_str_puts(out, "usage: flatout COMMAND [ARGUMENTS] [--OPTION=VALUE ...]\n");
	for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
		bool any = false;
		for (const struct fo_command *const *c = list; *c; c++) {
			if (strcmp((*c)->group, groups[g].name) || strchr((*c)->name, ' '))
				continue; /* "data prepare" is part of "data" */
			if (!any)
				fo_str_printf(out, "\n%s:\n", groups[g].title);
			fo_str_printf(out, "  %-10s %s\n", (*c)->name, (*c)->summary);
			any = true;
		}
	}
	fo_str_puts(out, "\n"
			 "  flatout help COMMAND   what a command does and its options\n"
			 "  flatout man [COMMAND]  the same as a manual page: flatout man mfu | man -l -\n"
			 "  flatout completion bash   a script for the shell (also zsh, fish)\n"
			 "  flatout --version      version, compiler, instruction sets, libraries\n"
			 "\n"
			 "Exit codes: 0 done, 1 a check or the numerics failed, or diagnose found\n"
			 "something serious, 2 wrong input, 3 the machine or its files, 4 a mistake of\n"
			 "ours, 130 interrupted, state saved.\n");
}

enum { JOINED = '\037' }; /* for a space at which no line may end: no usage holds this character */

/* An option and its value stay on one line: "--seq S", "[--seconds S]". */
static void join_values(char *usage)
{
	bool option = false;
	for (char *c = usage; *c; c++) {
		if (*c != ' ')
			option |= c[0] == '-' && c[1] == '-';
		else if (option && !strchr("-[(| ", c[1])) {
			*c = JOINED;
			option = false;
		} else
			option = false;
	}
}

/* Prints one form per line of the usage; a long one goes on below the first word after the command's name. */
static void put_usage(const struct fo_command *c, struct fo_str *out)
{
	char lead[41];
	int indent = 7 + 8 + (int)strlen(c->name) + 1; /* "usage: flatout NAME " */
	snprintf(lead, sizeof lead, "%*s", indent < 40 ? indent : 40, "");
	for (const char *p = c->usage, *start = "usage: "; *p; start = "       ") {
		size_t skip = strspn(p, " "), n = strcspn(p, "\n");
		if (n > skip) {
			struct fo_str line = { 0 };
			fo_str_append(&line, p + skip, n - skip);
			join_values(line.data);
			fo_str_puts(out, start);
			size_t from = out->len;
			fo_opt_wrapped(out, line.data, 7, lead, 80);
			for (char *c = out->data + from; *c; c++)
				*c = *c == JOINED ? ' ' : *c;
			fo_str_fini(&line);
		}
		p += n + (p[n] == '\n');
	}
}

/* Paragraphs are filled to 80 columns; indented lines (examples) and blank ones stay as they are. */
static void put_text(const char *p, struct fo_str *out)
{
	while (*p) {
		size_t n = strcspn(p, "\n");
		struct fo_str block = { 0 };
		bool plain = *p != ' ' && *p != '\n';
		while (plain && p[n] == '\n' && p[n + 1] && p[n + 1] != ' ' && p[n + 1] != '\n')
			n += 1 + strcspn(p + n + 1, "\n");
		fo_str_append(&block, p, n);
		for (size_t i = 0; plain && i < n; i++)
			if (block.data[i] == '\n')
				block.data[i] = ' ';
		if (plain)
			fo_opt_wrapped(out, block.data, 0, "", 80);
		else
			fo_str_printf(out, "%s\n", block.data);
		fo_str_fini(&block);
		p += n + (p[n] == '\n');
	}
}

void fo_help_command(const struct fo_command *c, struct fo_str *out)
{
	put_usage(c, out);
	fo_str_printf(out, "\n%s\n", c->summary);
	if (c->text && *c->text) {
		fo_str_puts(out, "\n");
		put_text(c->text, out);
	}
	const struct fo_opt *rows = c->opts;
	if (c->own) {
		struct fo_str own = { 0 };
		fo_opt_help(c->own, &own);
		/* Rows of one group stand below "Options:", which would say too much here. */
		fo_str_printf(out, "\nthis command:\n%s", strchr(own.data, '\n') + 1);
		fo_str_fini(&own);
		if (strcmp(c->name, FO_RUN_OPTIONS_COMMAND)) {
			fo_str_puts(out, "\nrun options: flatout " FO_RUN_OPTIONS_COMMAND " --help\n");
			return;
		}
	}
	if (rows && rows[0].key) {
		fo_str_puts(out, "\n");
		fo_opt_help(rows, out);
		/* The example is an option that takes a value: nobody keeps --json in the environment. */
		int i = 0;
		char env[128];
		while (rows[i].key && (fo_opt_is_switch(&rows[i]) || rows[i].bare))
			i++;
		if (rows[i].key)
			fo_str_printf(
				out, "\nEach option%s can also be set by an environment variable:\n%s=%s is --%s=%s.\n",
				c->own ? " of a run" : "", fo_opt_env_name(env, rows[i].key), rows[i].arg,
				fo_opt_flag_name(rows, i), rows[i].arg);
	}
}
