#include "trace/nsys_int.h"

#include "base/str.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum {
	LONGEST_VALUE = 16 << 20, /* bytes; kernel names of a hundred kilobytes exist */
	MOST_TABLES = 4096,       /* an export has about a hundred */
	NEWEST_VERSION = 9,       /* of "_V2"; two and three are what exports have today */
};

/* SQLite's reason, once it is no wrong call of ours. */
static fo_status refuse(const struct nsys_db *d, int code)
{
	char why[256];
	switch (code & 0xff) {
	case SQLITE_NOTADB: return fo_fail(FO_EFORMAT, "'%s' is no SQLite database", d->path);
	case SQLITE_CANTOPEN:
	case SQLITE_IOERR:
	case SQLITE_PERM: return fo_fail(FO_EIO, "cannot read '%s': %s", d->path, sqlite3_errstr(code));
	case SQLITE_NOMEM: return fo_fail(FO_ENOMEM, "cannot read '%s': %s", d->path, sqlite3_errstr(code));
	}
	fo_str_visible(why, sizeof(why), d->h ? sqlite3_errmsg(d->h) : sqlite3_errstr(code));
	return fo_hint(fo_fail(FO_EFORMAT, "'%s' is damaged: %s", d->path, why), "export the report again");
}

static fo_status too_much(const struct nsys_db *d, const char *what)
{
	return fo_hint(fo_fail(FO_EFORMAT, "'%s' is damaged: it has more %s than its %lld bytes can hold", d->path,
			       what, (long long)d->bytes),
		       "export the report again");
}

/* "file:" and the path, percent-encoded, read-only and immutable. */
static void uri_of(struct fo_str *out, const char *path)
{
	fo_str_puts(out, "file:");
	for (const char *c = path; *c; c++)
		if (isalnum((unsigned char)*c) || strchr("/._-~", *c))
			fo_str_append(out, c, 1);
		else
			fo_str_printf(out, "%%%02X", (unsigned)(unsigned char)*c);
	fo_str_puts(out, "?mode=ro&immutable=1");
}

static void guard(sqlite3 *h)
{
	sqlite3_limit(h, SQLITE_LIMIT_LENGTH, LONGEST_VALUE);
	sqlite3_limit(h, SQLITE_LIMIT_ATTACHED, 0);
	sqlite3_limit(h, SQLITE_LIMIT_WORKER_THREADS, 0);
	sqlite3_limit(h, SQLITE_LIMIT_TRIGGER_DEPTH, 1);
	sqlite3_limit(h, SQLITE_LIMIT_EXPR_DEPTH, 64);
	sqlite3_limit(h, SQLITE_LIMIT_COMPOUND_SELECT, 2);
	sqlite3_db_config(h, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0, NULL);
	sqlite3_db_config(h, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
	sqlite3_db_config(h, SQLITE_DBCONFIG_ENABLE_VIEW, 0, NULL);
	sqlite3_db_config(h, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	sqlite3_db_config(h, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
}

/* Tables that have pages of their own: no views, no virtual tables. */
static fo_status list_tables(struct nsys_db *d)
{
	sqlite3_stmt *s = NULL;
	int code = sqlite3_prepare_v2(d->h, "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0", -1,
				      &s, NULL);
	fo_status st = code == SQLITE_OK ? FO_OK : refuse(d, code);
	while (st == FO_OK && (code = sqlite3_step(s)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(s, 0);
		if (!name)
			continue;
		if (d->tables == MOST_TABLES) {
			st = fo_fail(FO_EFORMAT, "'%s' has more than %d tables", d->path, MOST_TABLES);
			break;
		}
		fo_array_room(&d->table, &d->cap, (size_t)d->tables, sizeof(*d->table));
		d->table[d->tables++] = fo_xstrdup(name);
	}
	if (st == FO_OK && code != SQLITE_DONE)
		st = refuse(d, code);
	sqlite3_finalize(s);
	return st;
}

fo_status nsys_db_open(struct nsys_db *d, const char *path)
{
	struct stat info;
	struct fo_str uri = { 0 };
	*d = (struct nsys_db){ .path = path };
	if (stat(path, &info) == 0)
		d->bytes = info.st_size;
	uri_of(&uri, path);
	int code = sqlite3_open_v2(uri.data, &d->h, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX, NULL);
	fo_str_fini(&uri);
	fo_status st = code == SQLITE_OK ? FO_OK : refuse(d, code);
	if (st == FO_OK) {
		guard(d->h);
		st = list_tables(d);
	}
	if (st != FO_OK)
		nsys_db_close(d);
	return st;
}

void nsys_db_close(struct nsys_db *d)
{
	for (int64_t i = 0; i < d->tables; i++)
		free(d->table[i]);
	free(d->table);
	sqlite3_close(d->h);
	*d = (struct nsys_db){ 0 };
}

const char *nsys_db_table(const struct nsys_db *d, const char *name)
{
	const char *best = NULL;
	int version = 0;
	size_t n = strlen(name);
	for (int64_t i = 0; i < d->tables; i++) {
		const char *t = d->table[i];
		if (strncasecmp(t, name, n) != 0)
			continue;
		int v = t[n] == '\0' ? 1 : 0;
		if (strncasecmp(t + n, "_V", 2) == 0 && t[n + 2] >= '2' && t[n + 2] <= '0' + NEWEST_VERSION &&
		    t[n + 3] == '\0')
			v = t[n + 2] - '0';
		if (v > version) {
			version = v;
			best = t;
		}
	}
	return best;
}

/* ---- rows ---- */

/* Finds which of the columns the table has; the pragma leaves out computed ones (generated columns). */
static fo_status find_columns(struct nsys_row *r, const char *table, const char *const *columns)
{
	char *sql = sqlite3_mprintf("PRAGMA table_info(\"%w\")", table);
	sqlite3_stmt *s = NULL;
	int code = sql ? sqlite3_prepare_v2(r->d->h, sql, -1, &s, NULL) : SQLITE_NOMEM;
	sqlite3_free(sql);
	while (code == SQLITE_OK || code == SQLITE_ROW) {
		code = sqlite3_step(s);
		const char *name = code == SQLITE_ROW ? (const char *)sqlite3_column_text(s, 1) : NULL;
		for (int i = 0; name && columns[i]; i++)
			if (strcasecmp(name, columns[i]) == 0)
				r->at[i] = 0;
	}
	sqlite3_finalize(s);
	return code == SQLITE_DONE ? FO_OK : refuse(r->d, code);
}

/* Sets r->stmt where the file has the table and any of the columns. */
static fo_status select_rows(struct nsys_row *r, const struct nsys_table *t)
{
	const char *table = nsys_db_table(r->d, t->name);
	struct fo_str sql = { 0 };
	int found = 0;
	memset(r->at, -1, sizeof(r->at));
	if (!table)
		return FO_OK;
	FO_TRY(find_columns(r, table, t->column));
	for (int i = 0; i < t->needed; i++)
		if (r->at[i] < 0)
			return fo_fail(FO_EFORMAT, "'%s': table '%s' has no column '%s'", r->d->path, table,
				       t->column[i]);
	for (int i = 0; t->column[i]; i++) {
		if (r->at[i] < 0)
			continue;
		fo_str_printf(&sql, "%s\"%s\"", found ? ", " : "SELECT ", t->column[i]);
		r->at[i] = found++;
	}
	/* The table's name is one of ours but for its case and version; its indexes are not trusted. */
	fo_str_printf(&sql, " FROM \"%s\" NOT INDEXED", table);
	int code = found ? sqlite3_prepare_v2(r->d->h, sql.data, -1, &r->stmt, NULL) : SQLITE_OK;
	fo_str_fini(&sql);
	return code == SQLITE_OK ? FO_OK : refuse(r->d, code);
}

static fo_status read_table(struct nsys *x, const struct nsys_table *t)
{
	struct nsys_row r = { .d = &x->db };
	int code = SQLITE_DONE;
	fo_status st = select_rows(&r, t);
	for (int64_t read = 1; st == FO_OK && r.stmt && (code = sqlite3_step(r.stmt)) == SQLITE_ROW; read++) {
		if (read > x->db.bytes)
			st = too_much(&x->db, "rows");
		else if (x->db.text_bytes > 4 * x->db.bytes) /* some tables are read twice */
			st = too_much(&x->db, "text");
		else
			t->row(x, &r);
	}
	if (st == FO_OK && code != SQLITE_DONE)
		st = refuse(&x->db, code);
	sqlite3_finalize(r.stmt);
	return st;
}

fo_status nsys_read_tables(struct nsys *x, const struct nsys_table *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		FO_TRY(read_table(x, &t[i]));
	return FO_OK;
}

bool nsys_has(const struct nsys_row *r, int column) { return r->stmt && r->at[column] >= 0; }

int64_t nsys_int(const struct nsys_row *r, int column, int64_t otherwise)
{
	if (!nsys_has(r, column))
		return otherwise;
	int type = sqlite3_column_type(r->stmt, r->at[column]);
	/* SQLite saturates what a real number holds beyond 64 bits. */
	return type == SQLITE_INTEGER || type == SQLITE_FLOAT ? sqlite3_column_int64(r->stmt, r->at[column])
							      : otherwise;
}

const char *nsys_text(const struct nsys_row *r, int column, size_t *n)
{
	*n = 0;
	if (!nsys_has(r, column) || sqlite3_column_type(r->stmt, r->at[column]) != SQLITE_TEXT)
		return NULL;
	const char *text = (const char *)sqlite3_column_text(r->stmt, r->at[column]);
	*n = text ? (size_t)sqlite3_column_bytes(r->stmt, r->at[column]) : 0;
	r->d->text_bytes += (int64_t)*n;
	return text;
}

int64_t nsys_time(const struct nsys_row *r, int column)
{
	int64_t v = nsys_int(r, column, NSYS_NO_TIME);
	return v > -((int64_t)1 << 60) && v < (int64_t)1 << 60 ? v : NSYS_NO_TIME;
}
