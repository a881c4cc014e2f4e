/* docs/formats.md holds every record table as the program has it: what is between "<!-- table NAME -->" and
 * "<!-- end of table -->" is fo_schema_markdown's. FLATOUT_UPDATE=1 writes the tables anew instead of comparing. */
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "cost/device_profile.h"
#include "data/data.h"
#include "hw/profile.h"
#include "ladder/ladder.h"
#include "record/record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BEGIN "<!-- table "
#define END "<!-- end of table -->"

/* diagnose/diagnose.h declares these; its intervals and the ladder's cannot be included together. */
extern const struct fo_schema fo_advice_schema, fo_kernels_schema, fo_verdict_schema;

static const struct fo_schema *const tables[] = {
	&fo_run_schema,
	&fo_machine_schema,
	&fo_log_start,
	&fo_log_step,
	&fo_log_eval,
	&fo_log_machine,
	&fo_log_profile,
	&fo_log_checkpoint,
	&fo_log_end,
	&fo_log_nonfinite,
	&fo_log_spike,
	&fo_ladder_plan_schema,
	&fo_ladder_text_schema,
	&fo_ladder_schema,
	&fo_ckpt_schema,
	&fo_ckpt_manifest_schema,
	&fo_limits_schema,
	&fo_prepared_schema,
	&fo_device_header_schema,
	&fo_device_operation_schema,
	&fo_advice_schema,
	&fo_kernels_schema,
	&fo_verdict_schema,
};
enum { TABLES = sizeof tables / sizeof *tables };

/* Copies the document with each table written anew; counts the tables it found. */
static void make(const char *text, struct fo_str *out, int found[TABLES])
{
	for (;;) {
		const char *begin = strstr(text, BEGIN), *line = begin ? strchr(begin, '\n') : NULL;
		const char *end = line ? strstr(line, END) : NULL;
		int i = 0;
		if (!begin) {
			fo_str_puts(out, text);
			return;
		}
		if (!end)
			fail_msg("a table of docs/formats.md has no end: %.40s", begin);
		const char *name = begin + strlen(BEGIN);
		while (i < TABLES && (strncmp(name, tables[i]->name, strlen(tables[i]->name)) != 0 ||
				      strncmp(name + strlen(tables[i]->name), " -->", 4) != 0))
			i++;
		if (i == TABLES)
			fail_msg("docs/formats.md has a table that nothing writes: %.40s", begin);
		found[i]++;
		fo_str_append(out, text, (size_t)(line + 1 - text));
		fo_schema_markdown(tables[i], out);
		text = end;
		fo_str_puts(out, END);
		text += strlen(END);
	}
}

static void test_document(void **state)
{
	const char *root = getenv("FLATOUT_SOURCE"), *update = getenv("FLATOUT_UPDATE");
	struct fo_arena a = { 0 };
	struct fo_str made = { 0 };
	int found[TABLES] = { 0 };
	char *text;
	size_t len;
	(void)state;
	const char *path = fo_arena_printf(&a, "%s/docs/formats.md", root && *root ? root : ".");
	assert_int_equal(fo_fs_read(&a, path, (size_t)1 << 20, &text, &len), FO_OK);
	make(text, &made, found);
	for (int i = 0; i < TABLES; i++)
		if (found[i] != 1)
			fail_msg("docs/formats.md has the table '%s' %d times", tables[i]->name, found[i]);
	if (update && *update == '1')
		assert_int_equal(fo_fs_write_atomic(path, made.data, made.len), FO_OK);
	else if (strcmp(text, made.data) != 0)
		fail_msg("docs/formats.md is not what the tables say (FLATOUT_UPDATE=1 writes it anew)");
	fo_str_fini(&made);
	fo_arena_fini(&a);
}

/* Every row says what it is; a key stands once in its object. */
static void check_rows(const struct fo_schema *s)
{
	for (int i = 0; i < s->fields; i++) {
		const struct fo_schema_field *f = &s->field[i];
		if (f->of && f->of != s)
			check_rows(f->of);
		if (f->flags & (FO_INLINE | FO_WRITE_ONLY))
			continue;
		for (int k = 0; k < i; k++)
			if (!strcmp(s->field[k].key, f->key) && !(f->flags & FO_READ_ONLY))
				fail_msg("'%s' stands twice in a table", f->key);
		if (f->offset + f->size > s->size)
			fail_msg("'%s' lies outside its struct", f->key);
	}
}

static void test_rows(void **state)
{
	(void)state;
	for (int i = 0; i < TABLES; i++)
		check_rows(tables[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_document), cmocka_unit_test(test_rows) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
