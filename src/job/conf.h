/* A configuration file of any kind as a flat list of settings: "parallelism.tensor_parallel_degree" is "8" in line 41.
 * TOML, YAML, JSON, command-line arguments and shell scripts, printed and written Python configurations are told apart
 * by content, never by the file's name. Nothing is executed and no other file is opened. */
#ifndef FO_JOB_CONF_H
#define FO_JOB_CONF_H

#include "base/err.h"
#include "base/mem.h"

#include <stdbool.h>
#include <stddef.h>

enum fo_conf_kind {
	FO_CONF_VALUE,
	FO_CONF_LIST, /* its scalars, parted by commas; collections in it have entries of their own: "path.0" */
	FO_CONF_NULL,
	FO_CONF_FLAG, /* an argument without a value; the value is "true" */
	FO_CONF_OPEN, /* a variable or an expression that is not evaluated here; the value is its text */
	FO_CONF_CALL, /* Python: the name of what is called; its keywords are entries below the path */
};
struct fo_conf_entry {
	const char *path;  /* keys joined by dots; arguments keep their dashes: "--num-layers" */
	const char *value; /* never NULL */
	int line;          /* counted from 1; 0: no line, as for an option of the caller */
	bool quoted;
	enum fo_conf_kind kind;
};
enum fo_conf_format {
	FO_CONF_TOML,
	FO_CONF_YAML,
	FO_CONF_JSON,
	FO_CONF_ARGUMENTS,
	FO_CONF_PRINTED, /* a configuration that a program printed, alone or in a log */
	FO_CONF_PYTHON,  /* Python source with one configuration */
	FO_CONF_FORMATS
};
extern const char *const fo_conf_format_name[FO_CONF_FORMATS];

struct fo_conf {
	struct fo_arena arena; /* owns all texts */
	const char *file;      /* safe to print */
	enum fo_conf_format format;
	const char *function; /* PYTHON: the function that was read; else NULL */
	const char *text;     /* the whole file, NUL-terminated; borrowed from the arena */
	size_t len;
	struct fo_conf_entry *entry; /* in the order of the file */
	size_t entries, cap;
};

/* The path of an entry for a file that a shell script takes in: "source common.sh". */
#define FO_CONF_SOURCE "launch.source"

enum { FO_CONF_BYTES_MAX = 16 << 20, FO_CONF_ENTRIES_MAX = 100000, FO_CONF_DEPTH_MAX = 48 };

/* Reads a file; "config_registry.py:llama3_8b" names one function of a Python file. FO_EIO, FO_EFORMAT with file and
 * line. *out needs fini also after an error. */
FO_CHECKED fo_status fo_conf_read(const char *path, struct fo_conf *out);
/* The same for bytes in memory; function may be NULL. */
FO_CHECKED fo_status fo_conf_parse(const char *text, size_t len, const char *where, const char *function,
				   struct fo_conf *out);
void fo_conf_fini(struct fo_conf *c);
/* An entry of the caller, without a line. FO_EFORMAT: too many. */
FO_CHECKED fo_status fo_conf_add_given(struct fo_conf *c, const char *key, const char *value);

/* Does a text of YAML, JSON or TOML have the gaps of a template ("{{ .Values.tp }}")? Then the error that says so. */
bool fo_conf_is_template(const struct fo_conf *c);
FO_CHECKED fo_status fo_conf_refuse_template(const struct fo_conf *c);

/* Are two keys the same when case, '-', '_' and leading dashes do not count? Dots count. */
bool fo_conf_same_key(const char *a, const char *b);
/* The last entry whose path is `path` in that sense (the last one wins wherever a key may stand twice); NULL: none. */
const struct fo_conf_entry *fo_conf_find(const struct fo_conf *c, const char *path);

#endif
