/* What the readers of one format share; private to conf*.c and toml.c. */
#ifndef FO_JOB_CONF_INT_H
#define FO_JOB_CONF_INT_H

#include "base/str.h"
#include "job/conf.h"

enum { FO_CONF_PATH_MAX = 512, FO_CONF_VALUE_MAX = 1 << 16 };

/* Where a reader puts what it finds: keys and values in the order of the file. */
struct fo_conf_sink {
	struct fo_conf *conf;
	struct fo_str path, joined; /* joined: the scalars of open lists */
	int depth;
	struct fo_conf_level {
		size_t path, joined;
		bool list;
		int line;
		long items, scalars;
	} level[FO_CONF_DEPTH_MAX + 1];
};
void fo_conf_sink_init(struct fo_conf_sink *s, struct fo_conf *c);
void fo_conf_sink_fini(struct fo_conf_sink *s);
/* The key of the next value. */
FO_CHECKED fo_status fo_conf_key(struct fo_conf_sink *s, const char *key, size_t n, int line);
FO_CHECKED fo_status fo_conf_scalar(struct fo_conf_sink *s, const char *text, size_t n, enum fo_conf_kind kind,
				    bool quoted, int line);
/* Opens a mapping or a list as the next value, and closes the innermost. */
FO_CHECKED fo_status fo_conf_open(struct fo_conf_sink *s, bool list, int line);
FO_CHECKED fo_status fo_conf_close(struct fo_conf_sink *s);
/* An entry with its whole path. */
FO_CHECKED fo_status fo_conf_add(struct fo_conf *c, const char *path, const char *text, size_t n,
				 enum fo_conf_kind kind, bool quoted, int line);

/* One reader per format: all of c->text into entries. */
FO_CHECKED fo_status fo_conf_toml(struct fo_conf *c);
FO_CHECKED fo_status fo_conf_yaml(struct fo_conf *c);
FO_CHECKED fo_status fo_conf_json(struct fo_conf *c);
FO_CHECKED fo_status fo_conf_arguments(struct fo_conf *c);
FO_CHECKED fo_status fo_conf_printed(struct fo_conf *c);
FO_CHECKED fo_status fo_conf_python(struct fo_conf *c);

/* A value of Python or JSON at text[*at..len): scalars, lists, dictionaries, calls with keywords. Stops behind it;
 * *line counts. In Python what cannot be read as one of these becomes OPEN up to the next comma or bracket. */
struct fo_conf_literal {
	const char *text;
	size_t len, at;
	int line;
	bool python; /* else JSON words alone */
};
FO_CHECKED fo_status fo_conf_literal(struct fo_conf_literal *l, struct fo_conf_sink *s);

/* Does the text have a configuration that a program printed? *at: where it begins. */
bool fo_conf_find_printed(const char *text, size_t len, size_t *at);

#endif
