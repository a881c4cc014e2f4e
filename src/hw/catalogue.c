#include "hw/catalogue.h"
#include "base/count.h"
#include "base/fs.h"
#include "base/str.h"
#include "hw/csv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *const fo_precision_name[FO_PREC_COUNT] = {
	[FO_PREC_FP32] = "fp32", [FO_PREC_TF32] = "tf32", [FO_PREC_FP16] = "fp16",
	[FO_PREC_BF16] = "bf16", [FO_PREC_FP8] = "fp8",   [FO_PREC_FP4] = "fp4",
};

fo_status fo_precision_parse(const char *name, enum fo_precision *out)
{
	char shown[64];
	for (int i = 0; i < FO_PREC_COUNT; i++)
		if (strcasecmp(name, fo_precision_name[i]) == 0) {
			*out = (enum fo_precision)i;
			return FO_OK;
		}
	return fo_fail(FO_EARG, "unknown precision '%s', expected fp32, tf32, fp16, bf16, fp8 or fp4",
		       fo_str_visible(shown, sizeof(shown), name));
}

/* ---- columns ---- */

struct column {
	const char *name;
	bool text;
	size_t offset;
};
#define TEXT(f)                                         \
	{                                               \
#f, true, offsetof(struct fo_device, f) \
	}
#define REAL(name, f)                                      \
	{                                                  \
		name, false, offsetof(struct fo_device, f) \
	}
static const struct column column[] = {
	TEXT(name),
	TEXT(aliases),
	TEXT(kind),
	REAL("fp32_tflops", dense[FO_PREC_FP32]),
	REAL("tf32_dense_tflops", dense[FO_PREC_TF32]),
	REAL("fp16_dense_tflops", dense[FO_PREC_FP16]),
	REAL("bf16_dense_tflops", dense[FO_PREC_BF16]),
	REAL("fp8_dense_tflops", dense[FO_PREC_FP8]),
	REAL("fp4_dense_tflops", dense[FO_PREC_FP4]),
	REAL("tf32_sparse_tflops", sparse[FO_PREC_TF32]),
	REAL("fp16_sparse_tflops", sparse[FO_PREC_FP16]),
	REAL("bf16_sparse_tflops", sparse[FO_PREC_BF16]),
	REAL("fp8_sparse_tflops", sparse[FO_PREC_FP8]),
	REAL("fp4_sparse_tflops", sparse[FO_PREC_FP4]),
	REAL("memory_gb", memory_gb),
	REAL("memory_usable_gb", memory_usable_gb),
	REAL("memory_tb_s", memory_tb_s),
	REAL("cache_mb", cache_mb),
	REAL("units", units),
	REAL("tdp_w", tdp_w),
	REAL("scaleup_gb_s", scaleup_gb_s),
	REAL("pair_gb_s", pair_gb_s),
	REAL("scaleup_devices", scaleup_devices),
	REAL("scaleout_gbit_s", scaleout_gbit_s),
	REAL("measured_bf16_tflops", measured_bf16),
	REAL("measured_fp8_tflops", measured_fp8),
	REAL("rent_low_usd_h", rent_low),
	REAL("rent_high_usd_h", rent_high),
	TEXT(rent_note),
	TEXT(source),
	TEXT(date),
	TEXT(notes),
};
enum { COLUMNS = sizeof(column) / sizeof(column[0]) };

/* The header's columns, in any order, each at most once; `name` must be there. map[i] is the row of column[]. */
static fo_status map_header(const struct fo_csv *csv, const char *where, int map[FO_CSV_MAX_COLUMNS])
{
	bool seen[COLUMNS] = { false };
	for (int i = 0; i < csv->columns; i++) {
		const char *name = csv->head.field[i];
		int best = 0, found = -1;
		for (int k = 0; k < COLUMNS; k++) {
			if (strcmp(name, column[k].name) == 0)
				found = k;
			if (fo_str_distance(name, column[k].name) < fo_str_distance(name, column[best].name))
				best = k;
		}
		char shown[64];
		fo_str_visible(shown, sizeof(shown), name);
		if (found < 0)
			return fo_fail(FO_EFORMAT, "%s:%d: unknown column '%s', nearest is '%s'", where, csv->head.line,
				       shown, column[best].name);
		if (seen[found])
			return fo_fail(FO_EFORMAT, "%s:%d: column '%s' appears twice", where, csv->head.line, shown);
		seen[found] = true;
		map[i] = found;
	}
	if (!seen[0])
		return fo_fail(FO_EFORMAT, "%s:%d: no column 'name'", where, csv->head.line);
	return FO_OK;
}

static fo_status read_real(const char *text, const char *what, const char *where, double *out)
{
	if (!*text)
		return FO_OK; /* stays unknown */
	char *end, shown[64];
	double v = strtod(text, &end);
	/* A digit must come first: strtod would also take "inf", "nan", signs and blanks. 1e9 bounds every column. */
	if (*end || !isdigit((unsigned char)*text) || !(v > 0 && v <= 1e9))
		return fo_fail(FO_EFORMAT, "%s: %s is '%s', expected a number above 0 up to 1e9 or nothing", where,
			       what, fo_str_visible(shown, sizeof(shown), text));
	*out = v;
	return FO_OK;
}

static bool valid_name(const char *s)
{
	size_t n = strlen(s);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)s[i]) && !strchr("-_.+", s[i]))
			return false;
	return n > 0 && n < 48;
}

/* The next of the aliases at *at (separated by spaces), cut to the room there is; false after the last. */
static bool next_alias(const char **at, char word[64])
{
	const size_t n = strcspn(*at, " ");
	if (!**at)
		return false;
	snprintf(word, 64, "%.*s", (int)n, *at);
	*at += n + ((*at)[n] == ' ');
	return true;
}

/* True if `word` is the name or one of the aliases of d. */
static bool answers_to(const struct fo_device *d, const char *word)
{
	char alias[64];
	bool yes = !strcasecmp(d->name, word);
	for (const char *at = d->aliases; !yes && next_alias(&at, alias);)
		yes = !strcasecmp(alias, word);
	return yes;
}

/* `self` may answer to the word: it is the row that the new one replaces. */
static fo_status check_word(const struct fo_catalogue *c, const char *word, const struct fo_device *self,
			    const char *where)
{
	char shown[64];
	if (!valid_name(word))
		return fo_fail(FO_EFORMAT, "%s: name '%s': expected 1 to 47 letters, digits or any of '-_.+'", where,
			       fo_str_visible(shown, sizeof(shown), word));
	for (size_t i = 0; i < c->count; i++)
		if (&c->device[i] != self && answers_to(&c->device[i], word))
			return fo_fail(FO_EFORMAT, "%s: name '%s' already belongs to '%s' (%s)", where, word,
				       c->device[i].name, c->device[i].where);
	return FO_OK;
}

/* `file` and `where` are the text's name and the row's file:line. */
static fo_status add_row(struct fo_catalogue *c, const struct fo_csv_row *row, int columns, const int *map,
			 const char *file, const char *where)
{
	struct fo_device d = { .where = where };
	for (int k = 0; k < COLUMNS; k++)
		if (column[k].text)
			*(const char **)((char *)&d + column[k].offset) = "";
		else
			*(double *)((char *)&d + column[k].offset) = FO_UNKNOWN;
	d.sparse[FO_PREC_FP32] = FO_UNKNOWN; /* no column: vector units have no sparse mode */
	for (int i = 0; i < columns; i++) {
		const struct column *col = &column[map[i]];
		void *slot = (char *)&d + col->offset;
		if (col->text)
			*(const char **)slot = fo_arena_strdup(&c->arena, row->field[i]);
		else
			FO_TRY(read_real(row->field[i], col->name, where, slot));
	}
	size_t at = 0;
	while (at < c->count && strcasecmp(c->device[at].name, d.name) != 0)
		at++;
	const struct fo_device *self = at < c->count ? &c->device[at] : NULL;
	size_t n = strlen(file);
	if (self && strncmp(self->where, file, n) == 0 && self->where[n] == ':')
		return fo_fail(FO_EFORMAT, "%s: device '%s' appears twice, first at %s", where, self->name,
			       self->where);
	FO_TRY(check_word(c, d.name, self, where));
	char word[64];
	for (const char *rest = d.aliases; next_alias(&rest, word);)
		FO_TRY(check_word(c, word, self, where));
	if (!*d.source)
		return fo_fail(FO_EFORMAT, "%s: device '%s' has no source: every row says where its figures come from",
			       where, d.name);
	fo_array_room(&c->device, &c->cap, at, sizeof(*c->device));
	c->count += at == c->count;
	c->device[at] = d;
	return FO_OK;
}

fo_status fo_catalogue_add(struct fo_catalogue *c, const char *csv, size_t len, const char *where)
{
	struct fo_arena scratch = { 0 };
	struct fo_csv table;
	int map[FO_CSV_MAX_COLUMNS];
	fo_status st;
	FO_TRY_OR(st, fo_csv_parse(&scratch, csv, len, where, &table), done);
	FO_TRY_OR(st, map_header(&table, where, map), done);
	for (size_t i = 0; i < table.rows; i++)
		FO_TRY_OR(st,
			  add_row(c, &table.row[i], table.columns, map, where,
				  fo_arena_printf(&c->arena, "%s:%d", where, table.row[i].line)),
			  done);
done:
	fo_arena_fini(&scratch);
	return st;
}

/* ---- where rows come from ---- */

/* "~/" is HOME here too: no shell expands what stands in quotes where a variable is set. */
static fo_status add_file(struct fo_catalogue *c, const char *name)
{
	struct fo_arena a = { 0 };
	char *text, *path = fo_fs_home_path(&a, name);
	size_t len;
	if (!path)
		path = fo_arena_strdup(&a, name);
	fo_status st = fo_fs_read(&a, path, FO_CSV_MAX_BYTES, &text, &len);
	if (st == FO_OK)
		st = fo_catalogue_add(c, text, len, path);
	fo_arena_fini(&a);
	return st;
}

/* data/devices.csv as it was when this was built (cmake/FlatoutSources.cmake, fo_embed): a copied program needs no file
 * beside it. */
static const char builtin[] = {
#include "devices.inc"
};

fo_status fo_catalogue_load(struct fo_catalogue *c, const char *user_file)
{
	const char *folder = getenv("FLATOUT_DATA");
	*c = (struct fo_catalogue){ 0 };
	fo_status st = fo_catalogue_add(c, builtin, sizeof builtin, "built-in devices.csv");
	if (st == FO_OK && folder && *folder) {
		st = add_file(c, fo_arena_printf(&c->arena, "%s/devices.csv", folder));
		if (st == FO_EIO)
			st = fo_hint(
				st,
				"FLATOUT_DATA names a folder with a devices.csv of your own; without it the built-in "
				"table is taken");
	}
	if (!user_file || !*user_file)
		user_file = getenv("FLATOUT_DEVICES");
	if (st == FO_OK && user_file && *user_file)
		st = add_file(c, user_file);
	if (st != FO_OK)
		fo_catalogue_fini(c);
	return st;
}

void fo_catalogue_fini(struct fo_catalogue *c)
{
	free(c->device);
	fo_arena_fini(&c->arena);
	*c = (struct fo_catalogue){ 0 };
}

/* ---- queries ---- */

/* Smallest edit distance between `word` and the name or an alias of d; 0 where the name begins with it, as "gb" does of
 * GB200-NVL72. */
static int nearness(const struct fo_device *d, const char *word)
{
	if (*word && !strncasecmp(d->name, word, strlen(word)))
		return 0;
	int best = fo_str_distance(word, d->name);
	char alias[64];
	for (const char *rest = d->aliases; next_alias(&rest, alias);)
		best = (int)fo_min(best, fo_str_distance(word, alias));
	return best;
}

fo_status fo_catalogue_find(const struct fo_catalogue *c, const char *name, const struct fo_device **out)
{
	for (size_t i = 0; i < c->count; i++)
		if (answers_to(&c->device[i], name)) {
			*out = &c->device[i];
			return FO_OK;
		}
	const struct fo_device *near[3] = { NULL };
	char shown[64], list[256] = "";
	for (int k = 0; k < 3; k++) {
		int best = 1 << 20;
		for (size_t i = 0; i < c->count; i++) {
			const struct fo_device *d = &c->device[i];
			int n = nearness(d, name);
			if (n < best && d != near[0] && d != near[1]) {
				best = n;
				near[k] = d;
			}
		}
		if (!near[k])
			break;
		size_t n = strlen(list);
		snprintf(list + n, sizeof(list) - n, "%s'%s'", k ? ", " : "", near[k]->name);
	}
	fo_status st = fo_fail(FO_EARG, "unknown device '%s', nearest names: %s",
			       fo_str_visible(shown, sizeof(shown), name), list);
	return fo_hint(st, "'flatout devices' lists all; add your own in a file that FLATOUT_DEVICES names");
}

fo_status fo_device_peak(const struct fo_device *d, enum fo_precision p, double *tflops)
{
	if (!isnan(d->dense[p])) {
		*tflops = d->dense[p];
		return FO_OK;
	}
	char list[64] = "";
	for (int i = 0; i < FO_PREC_COUNT; i++)
		if (!isnan(d->dense[i])) {
			size_t n = strlen(list);
			snprintf(list + n, sizeof(list) - n, "%s%s", n ? ", " : "", fo_precision_name[i]);
		}
	if (!*list)
		return fo_hint(fo_fail(FO_EARG, "device '%s' has no published dense peak, for %s or another type",
				       d->name, fo_precision_name[p]),
			       "a row of your own in a file that FLATOUT_DEVICES names can have one");
	return fo_fail(FO_EARG, "device '%s' has no published dense peak for %s, only for: %s", d->name,
		       fo_precision_name[p], list);
}
