/* Shell completion made from the command rows, so that it cannot differ from --help: commands, flags, and values where
 * a row tells them: names of an enumeration, files, presets, devices, precisions. */
#include "cli/cli.h"

#include "hw/catalogue.h"
#include "model/model.h"
#include "program/run.h"

#include <string.h>

enum value { VALUE_NONE, VALUE_ANY, VALUE_NAMES, VALUE_FILE, VALUE_MODEL, VALUE_DEVICE, VALUE_DTYPE };

/* "seq" of "train.seq" */
static const char *last_part(const char *key)
{
	const char *dot = strrchr(key, '.');
	return dot ? dot + 1 : key;
}

/* The kind of value that follows the flag. Texts say it by their placeholder or, like `model`, by their name. */
static enum value value_of(const struct fo_opt *row)
{
	static const char *const files[] = { "PATH", "FILE", "DIR", "FOLDER" };
	const char *name = last_part(row->key);
	if (fo_opt_is_switch(row) || row->bare)
		return VALUE_NONE;
	if (row->type == FO_OPT_T_ENUM || row->type == FO_OPT_T_BOOL)
		return VALUE_NAMES;
	if (row->type != FO_OPT_T_TEXT)
		return VALUE_ANY;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (!strcmp(row->arg, files[i]))
			return VALUE_FILE;
	if (!strcmp(name, "model") || !strcmp(row->key, "model.name"))
		return VALUE_MODEL;
	if (!strcmp(name, "device"))
		return VALUE_DEVICE;
	if (!strcmp(name, "dtype"))
		return VALUE_DTYPE;
	return row->path ? VALUE_FILE : VALUE_ANY;
}

static void put_word(struct fo_str *out, const char *word)
{
	if (*word)
		fo_str_printf(out, "%s%s", out->len ? " " : "", word);
}

/* How the shells offer such values. Words are listed besides, except by zsh where it has a function. */
static const struct {
	const char *bash, *zsh, *fish;
} offer[] = {
	[VALUE_ANY] = { "value", NULL, " -x" },
	[VALUE_NAMES] = { "value", NULL, " -x" },
	[VALUE_FILE] = { "file", "_files", " -r -F" },
	[VALUE_MODEL] = { "file", "_flatout_models", " -r -F" },
	[VALUE_DEVICE] = { "value", "_flatout_devices", " -x" },
	[VALUE_DTYPE] = { "value", NULL, " -x" },
};

/* Appends the words that may stand there, parted by blanks; nothing for VALUE_NONE, VALUE_ANY and VALUE_FILE. */
static void put_words(enum value v, const struct fo_opt *row, struct fo_str *out)
{
	struct fo_catalogue c;
	fo_str_puts(out, ""); /* empty is a text, too */
	for (const char *p = v == VALUE_NAMES ? row->names : ""; *p; p++)
		fo_str_append(out, *p == '|' ? " " : p, 1);
	for (int i = 0; v == VALUE_MODEL && i < fo_model_preset_count(); i++)
		put_word(out, fo_model_preset(i)->name);
	for (int i = 0; v == VALUE_DTYPE && i < FO_PREC_COUNT; i++)
		put_word(out, fo_precision_name[i]);
	/* If the catalogue is damaged no names are offered, and the command itself will say why. */
	if (v != VALUE_DEVICE || fo_catalogue_load(&c, NULL) != FO_OK)
		return;
	for (size_t i = 0; i < c.count; i++) {
		put_word(out, c.device[i].name);
		put_word(out, c.device[i].aliases);
	}
	fo_catalogue_fini(&c);
}

/* An option of a command as its help shows it. */
struct flag {
	const struct fo_opt *row;
	const char *name;
	bool of_run; /* of the run that the command takes, not its own */
};

/* Option number i in the order of help: the command's own, then those of a run. False after the last. */
static bool flag_at(const struct fo_command *c, int i, struct flag *f)
{
	const int own = c->own ? fo_opt_count(c->own) : 0;
	const struct fo_opt *table = i < own ? c->own : c->opts;
	const int at = i < own ? i : i - own;
	if (!table || !table[at].key)
		return false;
	*f = (struct flag){ &table[at], fo_opt_flag_name(table, at), c->own && i >= own };
	return true;
}

/* The word after the blank of "data prepare", a part of a command; NULL: a whole command. */
static const char *part_of(const struct fo_command *c)
{
	const char *blank = strchr(c->name, ' ');
	return blank ? blank + 1 : NULL;
}
static bool is_part_of(const struct fo_command *c, const struct fo_command *whole)
{
	size_t n = strlen(whole->name);
	return part_of(c) && (size_t)(part_of(c) - c->name) == n + 1 && !strncmp(c->name, whole->name, n);
}

/* The names of the commands or, with `whole`, of its parts; returns how many. */
static int put_names(const struct fo_command *const *list, const struct fo_command *whole, struct fo_str *out)
{
	int n = 0;
	for (; *list; list++)
		if (whole ? is_part_of(*list, whole) : !part_of(*list)) {
			fo_str_printf(out, "%s ", whole ? part_of(*list) : (*list)->name);
			n++;
		}
	return n;
}
static void put_commands(const struct fo_command *const *list, struct fo_str *out) { put_names(list, NULL, out); }

/* The second word of each command with parts, then the two as one name; the form has a place for the command, its parts
 * and the command again. */
static void put_parts(const struct fo_command *const *list, const char *form, struct fo_str *out)
{
	for (const struct fo_command *const *c = list; *c; c++) {
		struct fo_str parts = { 0 };
		if (put_names(list, *c, &parts))
			fo_str_printf(out, form, (*c)->name, parts.data, (*c)->name);
		fo_str_fini(&parts);
	}
}

/* The quotes that a command's name needs as a pattern of a shell's case. */
static const char *quote_of(const struct fo_command *c) { return part_of(c) ? "'" : ""; }

/* ---- bash ---- */

/* Is the last part of this key the last part of no other key? Then it is a flag of its own. */
static bool short_is_unique(const struct fo_command *c, const char *key)
{
	int found = 0;
	struct flag f;
	for (int i = 0; flag_at(c, i, &f); i++)
		found += !strcmp(last_part(f.row->key), last_part(key));
	return found == 1;
}

static void bash_values(const struct fo_command *c, const struct fo_opt *row, struct fo_str *out)
{
	enum value v = value_of(row);
	const char *q = quote_of(c);
	struct fo_str words = { 0 };
	if (v == VALUE_NONE)
		return;
	fo_str_printf(out, "\t%s%s%s:--%s", q, c->name, q, row->key);
	if (strcmp(last_part(row->key), row->key) && short_is_unique(c, row->key))
		fo_str_printf(out, " | %s%s%s:--%s", q, c->name, q, last_part(row->key));
	put_words(v, row, &words);
	fo_str_printf(out, ") takes=%s words='%s' ;;\n", offer[v].bash, words.data);
	fo_str_fini(&words);
}

static void bash_flags(const struct fo_command *c, struct fo_str *out)
{
	struct flag f;
	fo_str_printf(out, "\t%s%s%s) flags='--help", quote_of(c), c->name, quote_of(c));
	for (int i = 0; flag_at(c, i, &f); i++) {
		if (fo_opt_is_switch(f.row))
			fo_str_printf(out, " --%s --no-%s", f.name, f.name);
		else if (f.row->bare)
			fo_str_printf(out, " --%s --%s=", f.name, f.name);
		else
			fo_str_printf(out, " --%s=", f.name);
	}
	fo_str_puts(out, "' ;;\n");
}

static void bash(const struct fo_command *const *list, struct fo_str *out)
{
	struct flag f;
	fo_str_puts(out,
		    "# bash completion of flatout, as printed by `flatout completion bash`\n"
		    "_flatout()\n{\n"
		    "\tlocal cur=${COMP_WORDS[COMP_CWORD]} opt=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
		    "\tlocal takes= words= flags= before=\n"
		    "\tCOMPREPLY=()\n"
		    "\t# bash splits --flag=value at the sign, unless the user took it out of COMP_WORDBREAKS.\n"
		    "\tif [[ $cur == = ]]; then\n\t\tcur=\n"
		    "\telif [[ $opt == = ]]; then\n\t\topt=${COMP_WORDS[COMP_CWORD-2]}\n"
		    "\telif [[ $cur == --*=* ]]; then\n"
		    "\t\topt=${cur%%=*} before=${cur%%=*}= cur=${cur#*=}\n\tfi\n"
		    "\tif [[ $COMP_CWORD -eq 1 ]]; then\n\t\tCOMPREPLY=($(compgen -W '");
	put_commands(list, out);
	fo_str_puts(out, "help man completion --help --version' -- \"$cur\"))\n\t\treturn\n\tfi\n");
	put_parts(list,
		  "\tif [[ $command == %s ]]; then\n"
		  "\t\tif [[ $COMP_CWORD -eq 2 ]]; then\n"
		  "\t\t\tCOMPREPLY=($(compgen -W '%s--help' -- \"$cur\"))\n\t\t\treturn\n\t\tfi\n"
		  "\t\tcommand=\"%s ${COMP_WORDS[2]}\"\n\tfi\n",
		  out);
	fo_str_puts(out, "\tcase $command:$opt in\n");
	fo_str_puts(out, "\thelp:* | man:*) takes=value words='");
	put_commands(list, out);
	fo_str_puts(out, "' ;;\n\tcompletion:*) takes=value words='bash zsh fish' ;;\n");
	for (const struct fo_command *const *c = list; *c; c++)
		for (int i = 0; flag_at(*c, i, &f); i++)
			bash_values(*c, f.row, out);
	fo_str_puts(out, "\tesac\n\tcase $takes in\n"
			 "\tvalue) COMPREPLY=($(compgen -P \"$before\" -W \"$words\" -- \"$cur\")); return ;;\n"
			 "\tfile)\n\t\tcompopt -o filenames 2>/dev/null\n"
			 "\t\tCOMPREPLY=($(compgen -P \"$before\" -W \"$words\" -- \"$cur\"))\n"
			 "\t\tlocal IFS=$'\\n'\n"
			 "\t\tCOMPREPLY+=($(compgen -P \"$before\" -f -- \"$cur\"))\n\t\treturn ;;\n\tesac\n"
			 "\tif [[ $cur != -* ]]; then\n\t\tcompopt -o filenames 2>/dev/null\n"
			 "\t\tlocal IFS=$'\\n'\n\t\tCOMPREPLY=($(compgen -f -- \"$cur\"))\n\t\treturn\n\tfi\n"
			 "\tcase $command in\n");
	for (; *list; list++)
		bash_flags(*list, out);
	fo_str_puts(out, "\tesac\n"
			 "\tCOMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
			 "\t[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null\n"
			 "\treturn 0\n}\ncomplete -F _flatout flatout\n");
}

/* ---- zsh ---- */

/* Appends text for use inside '...' and there inside [...] or a description: characters that _arguments and _describe
 * would read are escaped. */
static void zsh_text(struct fo_str *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\'')
			fo_str_puts(out, "'\\''");
		else if (strchr("[]\\:", *text))
			fo_str_printf(out, "\\%c", *text);
		else
			fo_str_append(out, text, 1);
	}
}

static void zsh_flag(const struct flag *f, struct fo_str *out)
{
	enum value v = value_of(f->row);
	struct fo_str words = { 0 };
	const char *name = f->name;
	fo_str_printf(out, v == VALUE_NONE ? " \\\n\t\t\t'(--no-%s)--%s[" : " \\\n\t\t\t'--%s=[", name, name);
	zsh_text(out, f->row->help);
	if (v == VALUE_NONE) {
		fo_str_printf(out, "]' '(--%s)--no-%s[not that]'", name, name);
		return;
	}
	put_words(v, f->row, &words);
	fo_str_printf(out, "]:%s:", f->row->arg);
	if (offer[v].zsh)
		fo_str_puts(out, offer[v].zsh);
	else if (words.len)
		fo_str_printf(out, "(%s)", words.data);
	fo_str_puts(out, "'");
	fo_str_fini(&words);
}

static void zsh(const struct fo_command *const *list, struct fo_str *out)
{
	struct fo_str models = { 0 }, devices = { 0 };
	put_words(VALUE_MODEL, NULL, &models);
	put_words(VALUE_DEVICE, NULL, &devices);
	fo_str_printf(out,
		      "#compdef flatout\n# zsh completion of flatout, as printed by `flatout completion zsh`\n"
		      "_flatout_models() { compadd -- %s; _files }\n_flatout_devices() { compadd -- %s }\n"
		      "_flatout() {\n\tlocal -a commands=(",
		      models.data, devices.data);
	for (const struct fo_command *const *c = list; *c; c++) {
		if (part_of(*c))
			continue;
		fo_str_printf(out, "\n\t\t'%s:", (*c)->name);
		zsh_text(out, (*c)->summary);
		fo_str_puts(out, "'");
	}
	fo_str_puts(out, "\n\t\t'help:what a command does and its options' 'man:the same as a manual page'\n"
			 "\t\t'completion:prints a script like this one'\n\t)\n"
			 "\tif (( CURRENT == 2 )); then\n\t\t_describe command commands\n\t\treturn\n\tfi\n"
			 "\tlocal command=$words[2]\n\tshift words\n\t(( CURRENT-- ))\n");
	put_parts(list,
		  "\tif [[ $command == %s ]]; then\n"
		  "\t\tif (( CURRENT == 2 )); then\n\t\t\tcompadd -- %s\n\t\t\treturn\n\t\tfi\n"
		  "\t\tcommand=\"%s $words[2]\"\n\t\tshift words\n\t\t(( CURRENT-- ))\n\tfi\n",
		  out);
	fo_str_puts(out, "\tcase $command in\n"
			 "\thelp|man) _describe command commands ;;\n\tcompletion) compadd bash zsh fish ;;\n");
	for (; *list; list++) {
		struct flag f;
		fo_str_printf(out, "\t%s%s%s)\n\t\t_arguments '--help[options and examples]' '*:file:_files'",
			      quote_of(*list), (*list)->name, quote_of(*list));
		for (int i = 0; flag_at(*list, i, &f); i++)
			zsh_flag(&f, out);
		fo_str_puts(out, " ;;\n");
	}
	/* Sourced it only defines the functions; found through $fpath it is the function's body. */
	fo_str_puts(out, "\tesac\n}\nif [[ $funcstack[1] == _flatout ]]; then\n\t_flatout \"$@\"\nelse\n"
			 "\tcompdef _flatout flatout\nfi\n");
	fo_str_fini(&models);
	fo_str_fini(&devices);
}

/* ---- fish ---- */

static void fish_quoted(struct fo_str *out, const char *text)
{
	fo_str_puts(out, "'");
	for (; *text; text++)
		fo_str_printf(out, *text == '\'' || *text == '\\' ? "\\%c" : "%c", *text);
	fo_str_puts(out, "'");
}

/* "__fish_seen_subcommand_from data; and __fish_seen_subcommand_from prepare" */
static void fish_seen(struct fo_str *out, const char *command)
{
	fo_str_puts(out, "__fish_seen_subcommand_from ");
	for (; *command; command++)
		*command == ' ' ? fo_str_puts(out, "; and __fish_seen_subcommand_from ")
				: fo_str_append(out, command, 1);
}

/* An option that is offered after the command's words. */
static void fish_option(const char *command, const char *no, const char *name, struct fo_str *out)
{
	fo_str_puts(out, "complete -c flatout -n '");
	fish_seen(out, command);
	fo_str_printf(out, "' -l %s%s", no, name);
}

static void fish_flag(const char *command, const struct flag *f, struct fo_str *out)
{
	enum value v = value_of(f->row);
	struct fo_str words = { 0 };
	put_words(v, f->row, &words);
	fish_option(command, "", f->name, out);
	if (v != VALUE_NONE)
		fo_str_puts(out, offer[v].fish);
	if (words.len)
		fo_str_printf(out, " -a '%s'", words.data);
	fo_str_puts(out, " -d ");
	fish_quoted(out, f->row->help);
	fo_str_puts(out, "\n");
	if (v == VALUE_NONE) {
		fish_option(command, "no-", f->name, out);
		fo_str_puts(out, " -d 'not that'\n");
	}
	fo_str_fini(&words);
}

static void fish(const struct fo_command *const *list, struct fo_str *out)
{
	fo_str_puts(out, "# fish completion of flatout, as printed by `flatout completion fish`\n");
	for (const struct fo_command *const *c = list; *c; c++) {
		if (part_of(*c))
			fo_str_printf(out, "complete -c flatout -f -n '__fish_seen_subcommand_from %.*s' -a %s -d ",
				      (int)(part_of(*c) - (*c)->name) - 1, (*c)->name, part_of(*c));
		else
			fo_str_printf(out, "complete -c flatout -f -n __fish_use_subcommand -a %s -d ", (*c)->name);
		fish_quoted(out, (*c)->summary);
		fo_str_puts(out, "\n");
	}
	fo_str_puts(out, "complete -c flatout -f -n __fish_use_subcommand -a 'help man completion'\n"
			 "complete -c flatout -f -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n"
			 "complete -c flatout -f -n '__fish_seen_subcommand_from help man' -a '");
	put_commands(list, out);
	fo_str_puts(out, "'\n");
	struct flag f;
	for (; *list; list++)
		for (int i = 0; flag_at(*list, i, &f); i++)
			fish_flag((*list)->name, &f, out);
}

/* ---- for tests ---- */

/* Appends what a row is about: "flag", "value", "input", or "output" with its kind; "run" where the command writes
 * nothing that a run writes, so that the run's rows do not concern it. */
static void put_about(const struct fo_command *c, const struct flag *f, struct fo_str *out)
{
	enum fo_output kind = f->row->output == FO_OUTPUT_RUN ? c->writes : f->row->output;
	if (f->of_run && !c->writes)
		fo_str_puts(out, "run");
	else if (fo_opt_is_switch(f->row))
		fo_str_puts(out, "flag");
	else if (kind)
		fo_str_printf(out, "output %s", fo_output_name(kind));
	else
		fo_str_puts(out, f->row->path ? "input" : "value");
}

/* Every option of every command, a line each: command, flag, placeholder, and what it is about. A test goes through all
 * that read or write files, so that none is forgotten. */
static void list_options(const struct fo_command *const *list, struct fo_str *out)
{
	struct flag f;
	for (; *list; list++)
		for (int i = 0; flag_at(*list, i, &f); i++) {
			fo_str_printf(out, "%s\t--%s\t%s\t", (*list)->name, f.name, f.row->arg);
			put_about(*list, &f, out);
			fo_str_puts(out, "\n");
		}
}

fo_status fo_completion(const struct fo_command *const *list, const char *shell, struct fo_str *out)
{
	if (!strcmp(shell, "bash"))
		bash(list, out);
	else if (!strcmp(shell, "zsh"))
		zsh(list, out);
	else if (!strcmp(shell, "fish"))
		fish(list, out);
	else if (!strcmp(shell, "options"))
		list_options(list, out);
	else
		return fo_fail(FO_EARG, "unknown shell '%s', expected bash, zsh or fish", fo_cli_seen(shell));
	return FO_OK;
}
