/* Record tables: what a table writes it reads back, what is wrong it names. */
#include "base/schema.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct part {
	const char *name;
	int64_t size;
};
struct thing {
	double real, mark, by_name[2], *list;
	int64_t integer, list_n, dim[3];
	int small, choice, parts;
	bool yes, has_part;
	const char *text, *raw;
	char word[8];
	uint64_t hex;
	struct part part, *map;
};
static const char *const names[] = { "red", "blue" };

static const struct fo_schema_field part_field[] = {
	FO_FIELD(struct part, name, "name", "", "its name"),
	FO_FIELD(struct part, size, "size", "B", "its size", .flags = FO_NEEDED, .low = 0, .high = 100),
};
static const struct fo_schema part_schema = { "", "part", FO_FIELDS(struct part, part_field) };
#define THING(m, ...) FO_FIELD(struct thing, m, __VA_ARGS__)
static const struct fo_schema_field thing_field[] = {
	THING(real, "real", "s", "a number", .flags = FO_NULLS),
	THING(integer, "integer", "", "a count", .flags = FO_OMIT, .absent = -1),
	THING(small, "small", "", "a small one", .low = 1, .high = 9),
	THING(yes, "yes", "", "a boolean"),
	THING(text, "text", "", "a text", .flags = FO_NULLS),
	THING(word, "word", "", "a word", .flags = FO_WORD),
	THING(hex, "hex", "", "64 bits"),
	FO_FIELD_AS(MARK, struct thing, mark, "mark", "", "there or not"),
	FO_FIELD_AS(CHOICE, struct thing, choice, "choice", "", "a name", .names = names, .elements = 2),
	FO_FIELD_AS(RAW, struct thing, raw, "raw", "", "JSON"),
	FO_FIELD_AS(DIMS, struct thing, dim, "dims", "", "dimensions", .low = 1, .high = 100),
	FO_FIELD_AS(BY_NAME, struct thing, by_name, "by_name", "s", "by colour", .per = 4, .names = names,
		    .elements = 2),
	FO_FIELD_REALS(struct thing, list, list_n, "list", "", "numbers", .flags = FO_POINTER, .elements = 4),
	FO_FIELD_OPTIONAL(struct thing, part, has_part, &part_schema, "part", "a part", .flags = FO_OMIT),
	FO_FIELD_MAP(struct thing, map, parts, &part_schema, "map", "parts by name", .flags = FO_POINTER,
		     .elements = 2),
};
static const struct fo_schema thing_schema = { "thing", "thing", 3, FO_FIELDS(struct thing, thing_field) };

static fo_status read_thing(struct thing *t, struct fo_arena *a, const char *text, bool lenient)
{
	struct fo_schema_reader r = { .arena = a, .where = "file", .lenient = lenient };
	json_t *o;
	memset(t, 0, sizeof *t);
	fo_schema_blank(&thing_schema, t);
	assert_int_equal(fo_schema_parse(text, strlen(text), "file", "thing", &o), FO_OK);
	fo_status st = fo_schema_read(&thing_schema, o, t, &r);
	json_decref(o);
	return st;
}

#define WHOLE                                                                                                          \
	"{\"schema\":3,\"real\":null,\"integer\":7,\"small\":2,\"yes\":true,\"text\":\"a\",\"word\":\"b-1\","          \
	"\"hex\":\"00000000000000ff\",\"mark\":true,\"choice\":\"blue\",\"raw\":null,\"dims\":[3,4],\"by_name\":{"     \
	"\"red\":0.5,\"blue\":2},\"list\":[1,null,2.5],\"part\":{\"name\":\"p\",\"size\":5},\"map\":{\"x\":{\"size\":" \
	"1},"                                                                                                          \
	"\"y\":{\"size\":2}}}"

static void test_round_trip(void **state)
{
	struct fo_arena a = { 0 };
	struct fo_str out = { 0 };
	struct thing t;
	(void)state;
	assert_int_equal(read_thing(&t, &a, WHOLE, false), FO_OK);
	assert_true(isnan(t.real) && t.integer == 7 && t.small == 2 && t.yes && t.hex == 255 && t.choice == 1);
	assert_true(t.by_name[0] == 2 && t.by_name[1] == 8 && t.list_n == 3 && isnan(t.list[1]) && t.list[2] == 2.5);
	assert_true(t.dim[1] == 4 && !t.dim[2] && t.has_part && t.part.size == 5 && t.parts == 2);
	assert_string_equal(t.map[1].name, "y");
	fo_schema_text(&thing_schema, &t, false, &out);
	assert_string_equal(out.data, WHOLE);
	fo_str_fini(&out);
	fo_arena_fini(&a);
}

/* What is absent stays as it is, and is left out again or null. */
static void test_absent(void **state)
{
	struct fo_arena a = { 0 };
	struct fo_str out = { 0 };
	struct thing t;
	(void)state;
	assert_int_equal(read_thing(&t, &a, "{\"schema\":3,\"later\":1,\"text\":null}", false), FO_OK);
	assert_true(t.integer == -1 && !t.has_part && !t.parts && !*t.text && isnan(t.mark));
	fo_schema_text(&thing_schema, &t, false, &out);
	assert_string_equal(
		out.data, "{\"schema\":3,\"real\":null,\"small\":0,\"yes\":false,\"text\":null,\"word\":\"\",\"hex\":"
			  "\"0000000000000000\",\"choice\":\"red\",\"raw\":null,\"dims\":[],\"by_name\":{\"red\":null,"
			  "\"blue\":null},\"list\":[],\"map\":{}}");
	fo_str_fini(&out);
	fo_arena_fini(&a);
}

/* A strict reader names file, key, what was expected and what it got; a lenient one passes over it. */
static void test_refusals(void **state)
{
	static const char *const wrong[][2] = {
		{ "{\"real\":1}", "'file' has no \"schema\", expected 3: not a thing" },
		{ "{\"schema\":4}", "'file': schema is 4, expected 3: not a thing of this version" },
		{ "{\"schema\":3,\"real\":\"x\"}", "'file': real: expected a number, or null, got \"x\"" },
		{ "{\"schema\":3,\"small\":10}", "'file': small: expected an integer from 1 to 9, got 10" },
		{ "{\"schema\":3,\"small\":1.5}", "small: expected an integer" },
		{ "{\"schema\":3,\"yes\":1}", "yes: expected true or false, got 1" },
		{ "{\"schema\":3,\"word\":\"A\"}", "word: expected a word" },
		{ "{\"schema\":3,\"word\":\"12345678\"}", "word: expected a short text" },
		{ "{\"schema\":3,\"hex\":\"ff\"}", "hex: expected sixteen hexadecimal digits" },
		{ "{\"schema\":3,\"choice\":\"green\"}", "choice: expected one of its names" },
		{ "{\"schema\":3,\"dims\":[1,2,3,4]}", "dims: expected a list of a few integers, got a list" },
		{ "{\"schema\":3,\"dims\":[0]}", "dims: expected an integer from 1 to 100" },
		{ "{\"schema\":3,\"list\":[1,2,3,4,5]}", "list: expected a list of numbers" },
		{ "{\"schema\":3,\"part\":3}", "part: expected an object, got 3" },
		{ "{\"schema\":3,\"part\":{}}", "'file': part.size: expected an integer from 0 to 100, got nothing" },
		{ "{\"schema\":3,\"map\":{\"a\":{\"size\":1},\"b\":{\"size\":-1}}}", "map[1].size: expected" },
	};
	struct fo_arena a = { 0 };
	struct thing t;
	(void)state;
	for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
		assert_int_equal(read_thing(&t, &a, wrong[i][0], false), FO_EFORMAT);
		if (!strstr(fo_err_text(), wrong[i][1]))
			fail_msg("got '%s', expected '%s'", fo_err_text(), wrong[i][1]);
		if (i > 1)
			assert_int_equal(read_thing(&t, &a, wrong[i][0], true), FO_OK);
	}
	json_t *o;
	assert_int_equal(fo_schema_parse("{\"a\":1,\"a\":2}", 13, "file", "thing", &o), FO_EFORMAT);
	assert_non_null(strstr(fo_err_text(), "'file' is not a thing: line 1"));
	fo_arena_fini(&a);
}

static void test_markdown(void **state)
{
	struct fo_str out = { 0 };
	(void)state;
	fo_schema_markdown(&thing_schema, &out);
	assert_non_null(strstr(out.data, "| `schema` | integer | | 3 |\n| `real` | number or null | s | a number |\n"));
	assert_non_null(strstr(out.data, "| `choice` | `red`, `blue` |  | a name |\n"));
	assert_non_null(strstr(out.data, "| `part.size` | integer | B | its size |\n"));
	assert_non_null(strstr(out.data, "| `map.NAME.size` | integer | B | its size |\n"));
	fo_str_fini(&out);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip), cmocka_unit_test(test_absent),
					    cmocka_unit_test(test_refusals), cmocka_unit_test(test_markdown) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
