/* Command-line arguments: one to a line, or a shell script that starts a training. Variables, arrays and defaults that
 * the same file defines are put in; nothing is executed: conditions are not evaluated, both branches count. */
#include "base/str.h"
#include "job/conf_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 20000, VARIABLES_MAX = 2000, EXPAND_MAX = 16, TEXT_MAX = 1 << 20 };

struct word {
	const char *text;
	int line;
	bool quoted; /* a part of it stood in quotes */
	bool open;   /* a variable in it is not known */
};
struct words {
	struct word *word;
	size_t n, cap;
};
struct variable {
	const char *name;
	size_t len;
	struct words value;
};
struct shell {
	struct fo_conf *c;
	struct fo_arena *a;
	const char *p, *end;
	int line;
	struct variable variable[VARIABLES_MAX];
	int variables;
	struct words command;
	size_t grown; /* bytes of all words: a variable may double itself */
};

static fo_status too_large(struct shell *sh)
{
	return fo_fail(FO_EFORMAT, "%s:%d: the arguments grow without end", sh->c->file, sh->line);
}

static fo_status push(struct shell *sh, struct words *to, struct word w)
{
	if (to->n >= WORDS_MAX || (sh->grown += strlen(w.text) + 1) > TEXT_MAX * 8)
		return too_large(sh);
	fo_array_room(&to->word, &to->cap, to->n, sizeof *to->word);
	to->word[to->n++] = w;
	return FO_OK;
}

static struct variable *variable(struct shell *sh, const char *name, size_t n)
{
	for (int i = 0; i < sh->variables; i++)
		if (sh->variable[i].len == n && !memcmp(sh->variable[i].name, name, n))
			return &sh->variable[i];
	return NULL;
}

static fo_status set(struct shell *sh, const char *name, size_t n, const struct words *value, bool append)
{
	struct variable *v = variable(sh, name, n);
	if (!v) {
		if (sh->variables == VARIABLES_MAX)
			return fo_fail(FO_EFORMAT, "%s:%d: more than %d variables", sh->c->file, sh->line,
				       VARIABLES_MAX);
		v = &sh->variable[sh->variables++];
		*v = (struct variable){ .name = fo_arena_printf(sh->a, "%.*s", (int)n, name), .len = n };
	}
	if (!append)
		v->value.n = 0;
	size_t count = value->n; /* `value` may be the variable's own */
	for (size_t i = 0; i < count; i++)
		FO_TRY(push(sh, &v->value, value->word[i]));
	return FO_OK;
}

/* ---- expansion ---- */

/* A word while it is read. */
struct building {
	struct fo_str text;
	bool any, quoted, open;
	int line;
};

static fo_status finish_word(struct shell *sh, struct building *b, struct words *out)
{
	if (!b->any && !b->text.len)
		return FO_OK;
	struct word w = {
		.text = fo_arena_printf(sh->a, "%s", b->text.data ? b->text.data : ""),
		.line = b->line,
		.quoted = b->quoted,
		.open = b->open,
	};
	b->text.len = 0;
	fo_str_puts(&b->text, "");
	b->any = b->quoted = b->open = false;
	return push(sh, out, w);
}

/* The words of a variable's value into the one that is read; unquoted, blanks part words. */
static fo_status put_words(struct shell *sh, const struct words *value, bool quoted, bool all, struct building *b,
			   struct words *out)
{
	size_t count = value->n;
	for (size_t i = 0; i < count; i++) {
		const struct word w = value->word[i];
		if (i && (all || !quoted))
			FO_TRY(finish_word(sh, b, out));
		else if (i)
			fo_str_puts(&b->text, " ");
		if ((sh->grown += strlen(w.text)) > TEXT_MAX * 8)
			return too_large(sh);
		b->any = true;
		if (quoted) {
			b->open |= w.open;
			b->line = all ? w.line : b->line;
			fo_str_puts(&b->text, w.text);
			continue;
		}
		for (const char *s = w.text; *s;) {
			size_t blank = strspn(s, " \t\n"), n = strcspn(s + blank, " \t\n");
			if (blank && b->text.len)
				FO_TRY(finish_word(sh, b, out));
			if (n) {
				/* What is not known stands in the text with its dollar: that piece alone is open. */
				b->open |= w.open && memchr(s + blank, '$', n);
				b->line = b->text.len ? b->line : w.line;
				fo_str_append(&b->text, s + blank, n);
				b->any = true;
			}
			s += blank + n;
			if (!n && !*s)
				b->any = b->text.len > 0;
		}
	}
	return FO_OK;
}

static fo_status read_words(struct shell *sh, const char *s, const char *end, int deep, struct words *out);

/* The bytes before the first blank. */
static size_t span_of_word(const char *s, const char *end)
{
	size_t n = 0;
	while (s + n < end && !isspace((unsigned char)s[n]))
		n++;
	return n;
}

/* ${NAME...}: the name, and the default behind :- or -. */
static fo_status braces(struct shell *sh, const char *s, const char *end, bool quoted, int deep, struct building *b,
			struct words *out)
{
	size_t n = 0;
	while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_'))
		n++;
	const char *rest = s + n;
	bool all = end - rest == 3 && (!memcmp(rest, "[@]", 3) || !memcmp(rest, "[*]", 3));
	struct variable *v = variable(sh, s, n);
	if (n && v && v->value.n && (all || rest == end || *rest == ':' || *rest == '-'))
		return put_words(sh, &v->value, quoted, all, b, out);
	const char *otherwise = NULL;
	if (n && end - rest >= 2 && rest[0] == ':' && (rest[1] == '-' || rest[1] == '='))
		otherwise = rest + 2;
	else if (n && end > rest && (*rest == '-' || *rest == '='))
		otherwise = rest + 1;
	if (otherwise && deep < EXPAND_MAX) {
		struct words w = { 0 };
		fo_status st = read_words(sh, otherwise, end, deep + 1, &w);
		b->any = true;
		if (st == FO_OK)
			st = put_words(sh, &w, quoted, false, b, out);
		free(w.word);
		return st;
	}
	if (all && !v)
		return FO_OK; /* an array that nothing filled */
	b->any = b->open = true;
	fo_str_puts(&b->text, "$");
	fo_str_append(&b->text, s, n ? n : span_of_word(s, end)); /* no blank: an open word may be parted later */
	return FO_OK;
}

/* $((...)): products, quotients, sums and differences of numbers and variables, from left to right. */
static bool arithmetic(struct shell *sh, const char *s, const char *end, double *out)
{
	double sum = 0, product = 1;
	char plus = '+', times = '*';
	for (;;) {
		while (s < end && strchr(" ${}", *s))
			s++;
		size_t n = 0;
		while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_'))
			n++;
		if (!n || n > 60)
			return false;
		char text[64];
		memcpy(text, s, n);
		text[n] = '\0';
		struct variable *v = variable(sh, text, n);
		char *stop;
		const char *value = v && v->value.n ? v->value.word[0].text : text;
		double number = strtod(value, &stop);
		if (stop == value || *stop || (times == '/' && number == 0))
			return false;
		product = times == '*' ? product * number : (double)(long long)(product / number);
		s += n;
		while (s < end && strchr(" }", *s))
			s++;
		if (s == end || *s == '+' || *s == '-') {
			sum += plus == '+' ? product : -product;
			product = 1;
			times = '*';
			if (s == end)
				break;
			plus = *s++;
		} else if (*s == '*' || *s == '/') {
			times = *s++;
		} else {
			return false;
		}
	}
	*out = sum;
	return true;
}

/* From a dollar on; where it ends. */
static fo_status dollar(struct shell *sh, const char **at, const char *end, bool quoted, int deep, struct building *b,
			struct words *out)
{
	const char *s = *at + 1;
	if (s < end && (*s == '{' || *s == '(')) {
		char open = *s, close = open == '{' ? '}' : ')';
		const char *from = s + 1;
		int nested = 0;
		for (; s < end; s++) {
			nested += *s == open;
			nested -= *s == close;
			if (!nested)
				break;
		}
		*at = s < end ? s + 1 : s;
		if (open == '{')
			return braces(sh, from, s, quoted, deep, b, out);
		double v;
		b->any = true;
		if (s < end && *from == '(' && s[-1] == ')' && arithmetic(sh, from + 1, s - 1, &v)) {
			fo_str_printf(&b->text, "%.15g", v);
			return FO_OK;
		}
		b->open = true;
		fo_str_puts(&b->text, "$(...)");
		return FO_OK;
	}
	size_t n = 0;
	while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_'))
		n++;
	if (n && isdigit((unsigned char)*s))
		n = 1;
	if (!n && s < end && strchr("@*#?$!", *s))
		n = 1;
	*at = s + n;
	if (!n) {
		b->any = true;
		fo_str_puts(&b->text, "$");
		return FO_OK;
	}
	return braces(sh, s, s + n, quoted, deep, b, out);
}

/* The words of a piece of text without commands in it. */
static fo_status read_words(struct shell *sh, const char *s, const char *end, int deep, struct words *out)
{
	struct building b = { .line = sh->line };
	fo_status st = FO_OK;
	char quote = 0;
	while (s < end && st == FO_OK) {
		char ch = *s;
		if (quote != '\'' && ch == '$') {
			st = dollar(sh, &s, end, quote, deep, &b, out);
			continue;
		}
		if (ch == '\\' && quote != '\'') {
			if (s + 1 < end && s[1] != '\n')
				fo_str_append(&b.text, s + 1, 1);
			s += 2;
			continue;
		}
		s++;
		if (quote ? ch == quote : ch == '"' || ch == '\'') {
			quote = quote ? 0 : ch;
			b.any = b.quoted = true;
		} else if (!quote && isspace((unsigned char)ch)) {
			st = finish_word(sh, &b, out);
		} else {
			fo_str_append(&b.text, &ch, 1);
		}
	}
	if (st == FO_OK)
		st = finish_word(sh, &b, out);
	fo_str_fini(&b.text);
	return st;
}

/* ---- commands ---- */

/* An option's words as one entry. */
static fo_status option(struct shell *sh, const char *prefix, const struct words *w, size_t *i)
{
	const struct word *key = &w->word[*i];
	const char *equals = strchr(key->text, '='), *value = NULL;
	struct fo_str list = { 0 };
	bool open = key->open, quoted = key->quoted;
	int values = 0;
	size_t n = equals ? (size_t)(equals - key->text) : strlen(key->text);
	if (equals) {
		value = equals + 1;
		values = 1;
	}
	for (; !equals && *i + 1 < w->n; ++*i) {
		const struct word *next = &w->word[*i + 1];
		bool word = next->text[0] == '-' && next->text[1] == '-' && isalpha((unsigned char)next->text[2]);
		bool letter = next->text[0] == '-' && isalpha((unsigned char)next->text[1]) && !next->quoted;
		if (word || letter)
			break;
		if (*prefix && values) /* a launcher's options have one value; the script's name comes next */
			break;
		if (*prefix && strstr(next->text, ".py"))
			break;
		fo_str_puts(&list, values++ ? "," : "");
		fo_str_puts(&list, next->text);
		open |= next->open;
		quoted |= next->quoted;
		value = list.data;
	}
	char path[FO_CONF_PATH_MAX];
	fo_status st = FO_OK;
	if ((int)sizeof path > snprintf(path, sizeof path, "%s%.*s", prefix, (int)n, key->text)) {
		enum fo_conf_kind kind = FO_CONF_VALUE;
		if (!value)
			kind = FO_CONF_FLAG;
		else if (open)
			kind = FO_CONF_OPEN;
		else if (values > 1)
			kind = FO_CONF_LIST;
		value = value ? value : "true";
		st = fo_conf_add(sh->c, path, value, strlen(value), kind, quoted, key->line);
	}
	fo_str_fini(&list);
	return st;
}

static const char *last_part(const char *s)
{
	const char *slash = strrchr(s, '/');
	return slash ? slash + 1 : s;
}

/* Programs whose own options come before those of the training script. */
static bool launches(const char *word)
{
	static const char *const name[] = { "torchrun",
					    "srun",
					    "deepspeed",
					    "accelerate",
					    "mpirun",
					    "python",
					    "python3",
					    "torch.distributed.run",
					    "torch.distributed.launch",
					    "sbatch",
					    "lightning",
					    "composer",
					    "litgpt",
					    "llamafactory-cli",
					    "axolotl" };
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		if (!strcmp(last_part(word), name[i]))
			return true;
	return false;
}

static bool is_option(const struct word *w)
{
	return w->text[0] == '-' && ((w->text[1] == '-' && isalpha((unsigned char)w->text[2])) ||
				     (isalpha((unsigned char)w->text[1]) && !w->text[2]));
}

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && !strcmp(s + n - m, end);
}

/* Scripts that set up a machine's software and no job: a virtual environment, a shell's profile, modules, vendors'
 * kits. */
static bool sets_up_software(const char *path)
{
	static const char *const folder[] = { "/etc/", "/opt/", "/usr/", "/root/.", "~/.", "$HOME/." };
	static const char *const end[] = { "activate",   "bashrc",     "profile",   "conda.sh",
					   "modules.sh", "setvars.sh", "set_env.sh" };
	for (size_t i = 0; i < sizeof folder / sizeof *folder; i++)
		if (!strncmp(path, folder[i], strlen(folder[i])))
			return true;
	for (size_t i = 0; i < sizeof end / sizeof *end; i++)
		if (ends_with(path, end[i]))
			return true;
	return false;
}

/* "source FILE" and ". FILE": what the file sets is not seen here, so it is an entry of its own. */
static fo_status on_source(struct shell *sh, bool *was)
{
	const struct words *w = &sh->command;
	*was = w->n > 1 && (!strcmp(w->word[0].text, "source") || !strcmp(w->word[0].text, "."));
	if (!*was || sets_up_software(w->word[1].text))
		return FO_OK;
	const char *file = w->word[1].open ? last_part(w->word[1].text) : w->word[1].text;
	return fo_conf_add(sh->c, FO_CONF_SOURCE, file, strlen(file), FO_CONF_VALUE, true, w->word[1].line);
}

/* One command: options of launchers become "launch.--nodes", those of the script stand alone. */
static fo_status on_command(struct shell *sh)
{
	const struct words *w = &sh->command;
	bool launched = false, script = false;
	for (size_t i = 0; i < w->n; i++)
		launched |= launches(w->word[i].text);
	bool list = w->n && is_option(&w->word[0]); /* a file of arguments alone */
	if (!list && !launched)
		return FO_OK;
	script = list;
	for (size_t i = 0; i < w->n; i++) {
		const char *text = w->word[i].text + strspn(w->word[i].text, "+"); /* Hydra's +key=value */
		const char *equals = strchr(text, '=');
		if (is_option(&w->word[i]) && !(text[1] == 'm' && !text[2])) {
			FO_TRY(option(sh, script ? "" : "launch.", w, &i));
		} else if (!script &&
			   (ends_with(text, ".py") || (i && !strcmp(w->word[i - 1].text, "-m") && !launches(text)))) {
			script = true;
			FO_TRY(fo_conf_add(sh->c, "launch.script", text, strlen(text), FO_CONF_VALUE, true,
					   w->word[i].line));
		} else if (script &&
			   (ends_with(text, ".yml") || ends_with(text, ".yaml") || ends_with(text, ".toml"))) {
			FO_TRY(fo_conf_add(sh->c, "launch.config", text, strlen(text), FO_CONF_VALUE, true,
					   w->word[i].line));
		} else if (script && equals && equals > text && isalpha((unsigned char)*text)) {
			/* Hydra and MaxText: key=value without dashes. */
			char path[FO_CONF_PATH_MAX];
			if ((int)sizeof path > snprintf(path, sizeof path, "%.*s", (int)(equals - text), text))
				FO_TRY(fo_conf_add(sh->c, path, equals + 1, strlen(equals + 1),
						   w->word[i].open ? FO_CONF_OPEN : FO_CONF_VALUE, w->word[i].quoted,
						   w->word[i].line));
		}
	}
	return FO_OK;
}

/* NAME=value before a command or alone; also after export. True where the word was one. */
static fo_status assignment(struct shell *sh, const struct word *w, bool exported, bool *was)
{
	size_t n = 0;
	while (isalnum((unsigned char)w->text[n]) || w->text[n] == '_')
		n++;
	bool append = w->text[n] == '+' && w->text[n + 1] == '=';
	*was = n && !isdigit((unsigned char)w->text[0]) && (append || w->text[n] == '=');
	if (!*was)
		return FO_OK;
	const char *value = w->text + n + 1 + append;
	struct words one = { 0 };
	struct word v = { .text = value, .line = w->line, .quoted = false, .open = w->open };
	fo_status st = push(sh, &one, v);
	if (st == FO_OK)
		st = set(sh, w->text, n, &one, append);
	free(one.word);
	FO_TRY(st);
	static const char *const family[] = { "NCCL_", "CUDA_", "NVTE_", "TORCH", "PYTORCH_",
					      "XLA_",  "OMP_",  "FI_",   "UCX_" };
	bool known = exported;
	for (size_t i = 0; i < sizeof family / sizeof *family; i++)
		known |= !strncmp(w->text, family[i], strlen(family[i]));
	char path[FO_CONF_PATH_MAX];
	if (!known || (int)sizeof path <= snprintf(path, sizeof path, "env.%.*s", (int)n, w->text))
		return FO_OK;
	return fo_conf_add(sh->c, path, value, strlen(value), w->open ? FO_CONF_OPEN : FO_CONF_VALUE, w->quoted,
			   w->line);
}

static fo_status end_command(struct shell *sh)
{
	struct words *w = &sh->command;
	size_t first = 0;
	bool exported = false;
	fo_status st = FO_OK;
	static const char *const lead[] = { "export", "local", "declare", "if",   "then", "else",
					    "do",     "exec",  "eval",    "time", "!" };
	for (; first < w->n && st == FO_OK; first++) {
		bool was = false;
		for (size_t i = 0; i < sizeof lead / sizeof *lead; i++)
			was |= !strcmp(w->word[first].text, lead[i]);
		exported |= !strcmp(w->word[first].text, "export");
		if (!was)
			st = assignment(sh, &w->word[first], exported, &was);
		if (!was)
			break;
	}
	if (st == FO_OK && first < w->n) {
		memmove(w->word, w->word + first, (w->n - first) * sizeof *w->word);
		w->n -= first;
		bool source = false;
		st = on_source(sh, &source);
		if (st == FO_OK && !source)
			st = on_command(sh);
	}
	w->n = 0;
	return st;
}

/* "#SBATCH --nodes=16" */
static fo_status directive(struct shell *sh, const char *s, const char *end)
{
	struct words w = { 0 };
	fo_status st = read_words(sh, s, end, 0, &w);
	for (size_t i = 0; i < w.n && st == FO_OK; i++)
		if (is_option(&w.word[i]))
			st = option(sh, "launch.", &w, &i);
	free(w.word);
	return st;
}

/* Where the word that begins at s ends: quotes, ${...} and $(...) belong to it. */
static const char *word_end(const char *s, const char *end, int *lines)
{
	char quote = 0, opened = 0;
	int deep = 0;
	for (; s < end; s++) {
		if (deep && opened == '{' && *s == '\n') /* a ${ that was cut: the next line is no part of it */
			return s;
		*lines += *s == '\n';
		if (*s == '\\' && quote != '\'' && s + 1 < end) {
			*lines += *++s == '\n';
		} else if (quote) {
			quote = *s == quote ? 0 : quote;
		} else if (*s == '"' || *s == '\'') {
			quote = *s;
		} else if (*s == '$' && s + 1 < end && (s[1] == '{' || s[1] == '(')) {
			deep++;
			opened = *++s;
		} else if (deep && (*s == '{' || *s == '(')) {
			deep++;
		} else if (deep && (*s == '}' || *s == ')')) {
			deep--;
		} else if (!deep && (isspace((unsigned char)*s) || strchr(";|&()<>", *s))) {
			*lines -= *s == '\n';
			return s;
		}
	}
	return s;
}

/* NAME=( or NAME+=( : the words up to the closing bracket become the variable. */
static fo_status array(struct shell *sh, const char *name, size_t n, bool append)
{
	struct words value = { 0 };
	fo_status st = FO_OK;
	while (sh->p < sh->end && st == FO_OK) {
		char ch = *sh->p;
		if (ch == ')') {
			sh->p++;
			break;
		}
		if (ch == '#') {
			while (sh->p < sh->end && *sh->p != '\n')
				sh->p++;
		} else if (isspace((unsigned char)ch) || ch == '\\') {
			sh->line += ch == '\n';
			sh->p++;
		} else {
			int lines = 0;
			const char *end = word_end(sh->p, sh->end, &lines);
			if (end == sh->p)
				end++;
			st = read_words(sh, sh->p, end, 0, &value);
			sh->line += lines;
			sh->p = end;
		}
	}
	if (st == FO_OK)
		st = set(sh, name, n, &value, append);
	free(value.word);
	return st;
}

static fo_status on_word(struct shell *sh)
{
	int lines = 0;
	const char *s = sh->p, *end = word_end(s, sh->end, &lines);
	size_t n = strspn(s, "0123456789");
	if (n && s + n == end && end < sh->end && (*end == '>' || *end == '<')) { /* the number of a stream: 2>&1 */
		sh->p = end;
		return FO_OK;
	}
	n = 0;
	while (s + n < end && (isalnum((unsigned char)s[n]) || s[n] == '_'))
		n++;
	bool append = s + n + 1 < end && s[n] == '+' && s[n + 1] == '=';
	const char *value = s + n + 1 + append;
	if (n && value <= end && (append || s[n] == '=') && value == end && end < sh->end && *end == '(') {
		sh->p = end + 1;
		return array(sh, s, n, append);
	}
	sh->p = end;
	bool assigns = n && s + n < end && (append || s[n] == '=') && !sh->command.n;
	if (assigns) { /* no parting at blanks in an assignment */
		struct words w = { 0 };
		struct building b = { .line = sh->line, .any = true };
		fo_str_append(&b.text, s, (size_t)(value - s));
		fo_status st = read_words(sh, value, end, 0, &w);
		for (size_t i = 0; i < w.n; i++) {
			fo_str_puts(&b.text, i ? " " : "");
			fo_str_puts(&b.text, w.word[i].text);
			b.open |= w.word[i].open;
			b.quoted |= w.word[i].quoted;
		}
		if (st == FO_OK)
			st = finish_word(sh, &b, &sh->command);
		fo_str_fini(&b.text);
		free(w.word);
		sh->line += lines;
		return st;
	}
	fo_status st = read_words(sh, s, end, 0, &sh->command);
	sh->line += lines;
	return st;
}

/* A script that another one takes in starts nothing: the options are in its variables. */
static fo_status variables_alone(struct shell *sh)
{
	for (size_t i = 0; i < sh->c->entries; i++)
		if (strncmp(sh->c->entry[i].path, "env.", 4) && strncmp(sh->c->entry[i].path, "launch.", 7))
			return FO_OK;
	for (int v = 0; v < sh->variables; v++) {
		struct words all = { 0 };
		struct building b = { .line = sh->line };
		fo_status st = put_words(sh, &sh->variable[v].value, false, false, &b, &all);
		if (st == FO_OK)
			st = finish_word(sh, &b, &all);
		for (size_t i = 0; i < all.n && st == FO_OK; i++)
			if (is_option(&all.word[i]) && all.word[i].text[1] == '-')
				st = option(sh, "", &all, &i);
		fo_str_fini(&b.text);
		free(all.word);
		FO_TRY(st);
	}
	return FO_OK;
}

fo_status fo_conf_arguments(struct fo_conf *c)
{
	struct shell *sh = fo_arena_alloc(&c->arena, sizeof *sh);
	*sh = (struct shell){ .c = c, .a = &c->arena, .p = c->text, .end = c->text + c->len, .line = 1 };
	fo_status st = FO_OK;
	while (sh->p < sh->end && st == FO_OK) {
		char ch = *sh->p;
		if (ch == '\\' && sh->p + 1 < sh->end && (sh->p[1] == '\n' || sh->p[1] == '\r')) {
			sh->p += 1 + (sh->p[1] == '\r' && sh->p + 2 < sh->end);
			sh->line++;
			sh->p++;
		} else if (ch == '#' && (sh->p == c->text || isspace((unsigned char)sh->p[-1]) || sh->p[-1] == ';')) {
			const char *end = memchr(sh->p, '\n', (size_t)(sh->end - sh->p));
			end = end ? end : sh->end;
			if (end - sh->p > 8 && !memcmp(sh->p, "#SBATCH ", 8))
				st = directive(sh, sh->p + 8, end);
			sh->p = end;
		} else if (ch == '\n' || strchr(";|&()<>", ch)) {
			st = end_command(sh);
			sh->line += ch == '\n';
			sh->p++;
		} else if (isspace((unsigned char)ch)) {
			sh->p++;
		} else {
			st = on_word(sh);
		}
	}
	if (st == FO_OK)
		st = end_command(sh);
	if (st == FO_OK)
		st = variables_alone(sh);
	for (int i = 0; i < sh->variables; i++)
		free(sh->variable[i].value.word);
	free(sh->command.word);
	return st;
}
