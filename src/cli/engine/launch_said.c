/* Standard error of mpirun and its ranks, line by line. */
#include "cli/engine/launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HELD_MAX = 1 << 18, LINE_MAX_ = 1 << 16 };

void fo_launch_said_begin(struct fo_launch_said *s) { memset(s, 0, sizeof *s); }

static bool begins(const char *line, const char *with) { return !strncmp(line, with, strlen(with)); }

/* The word behind `key` in the line, without the bracket or comma at its end. */
static void word_after(const char *line, const char *key, char *out, size_t size)
{
	const char *at = strstr(line, key);
	if (!at)
		return;
	at += strlen(key);
	at += strspn(at, " \t");
	snprintf(out, size, "%.*s", (int)strcspn(at, " \t,)]"), at);
}

/* Takes from a line of Open MPI or Hydra what it says about hosts and ranks. */
static void learn(struct fo_launch_said *s, const char *line)
{
	if (begins(line, "Executable:"))
		word_after(line, "Executable:", s->exe, sizeof s->exe);
	if (begins(line, "Node:"))
		word_after(line, "Node:", s->node, sizeof s->node);
	s->daemon |= strstr(line, "unable to reliably start one or more daemons") != NULL;
	if (begins(line, "  Remote daemon:"))
		word_after(line, " on node ", s->lost, sizeof s->lost);
	if (begins(line, "ssh: ") || strstr(line, "Permission denied (") ||
	    strstr(line, "Host key verification failed"))
		snprintf(s->unreachable, sizeof s->unreachable, "%.*s", (int)strcspn(line, "\r"), line);
	if (strstr(line, "execvp error on file ")) { /* [proxy:0:1@h2] HYDU_create_process (...): ... FILE (reason) */
		word_after(line, "execvp error on file ", s->exe, sizeof s->exe);
		word_after(line, "@", s->node, sizeof s->node);
	}
}

static void hold(struct fo_launch_said *s, const char *line)
{
	if (s->held.len < HELD_MAX)
		fo_str_printf(&s->held, "%s\n", line);
}

/* Finds MPI's rule of dashes at the end of a line, which a rank may have begun and not ended. NULL: there is none. */
static const char *rule_in(const char *line)
{
	enum { LEAST = 60 }; /* Open MPI's has 74 */
	const char *at = line + strlen(line);
	while (at > line && at[-1] == '-')
		at--;
	return strlen(at) >= LEAST ? at : NULL;
}

static void pass(struct fo_launch_said *s, const char *line)
{
	fprintf(stderr, "%s\n", line);
	if (*line)
		snprintf(s->last, sizeof s->last, "%.159s", line);
}

static void take(struct fo_launch_said *s, const char *line)
{
	static const char equals[] = "========================";
	const char *rule = rule_in(line);
	learn(s, line);
	if (rule) {
		if (rule > line && !s->block) {
			char *first = fo_xstrdup(line);
			first[rule - line] = 0;
			take(s, first);
			free(first);
		}
		s->block = !s->block;
		hold(s, rule);
	} else if (s->block || begins(line, equals) || begins(line, "=   ") || begins(line, "YOUR APPLICATION TERM") ||
		   begins(line, "This typically refers to a problem") || begins(line, "Please see the FAQ page") ||
		   begins(line, "[proxy:") || begins(line, "[mpiexec@") || begins(line, "ssh: ") ||
		   begins(line, "flatout: ") || begins(line, "hint: ") || begins(line, "mpirun: Forwarding signal") ||
		   begins(line, "stopping as soon as all is saved") || strstr(line, "more processes have sent help") ||
		   strstr(line, "orte_base_help_aggregate") || strstr(line, "total processes failed to start") ||
		   strstr(line, "total processes killed")) {
		hold(s, line);
	} else {
		pass(s, line);
	}
}

void fo_launch_said_add(struct fo_launch_said *s, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (bytes[i] != '\n' && s->line.len < LINE_MAX_) {
			fo_str_append(&s->line, &bytes[i], 1);
			continue;
		}
		fo_str_append(&s->line, "", 0);
		take(s, s->line.data);
		s->line.len = 0;
		if (bytes[i] != '\n')
			fo_str_append(&s->line, &bytes[i], 1);
	}
}

bool fo_launch_said_error(const struct fo_launch_said *s, const char *part, char *text, char *hint, size_t size)
{
	bool found = false;
	*text = *hint = 0;
	for (const char *at = s->held.data; at && *at;) {
		int n = (int)strcspn(at, "\n");
		char line[4096];
		snprintf(line, sizeof line, "%.*s", n, at);
		if (begins(line, "flatout: ") && strstr(line, part)) {
			snprintf(text, size, "%s", line + strlen("flatout: "));
			*hint = 0;
			found = true;
		} else if (found && !*hint && begins(line, "hint: ")) {
			snprintf(hint, size, "%s", line + strlen("hint: "));
		}
		at += n + (at[n] == '\n');
	}
	return found;
}

void fo_launch_said_end(struct fo_launch_said *s, bool show)
{
	if (s->line.len) {
		fo_str_append(&s->line, "", 0);
		take(s, s->line.data);
	}
	if (show && s->held.len)
		fputs(s->held.data, stderr);
	fo_str_fini(&s->line);
	fo_str_fini(&s->held);
}
