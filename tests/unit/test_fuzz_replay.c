/* Every reader of outside bytes on its corpus (fuzz/corpus/<target>/) and on thousands of damaged copies: a quick share
 * of what libFuzzer does at leisure (fuzz/README.md). What crashes there becomes a file of the corpus. */
#include "support/fuzz_targets.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Of each target, over the files of its corpus. */
enum { COPIES = 1500 };

static uint64_t draws;
static size_t draw(size_t n) { return n ? (size_t)(fo_rng_u64(2026, draws++) % n) : 0; }

static void put(struct fo_str *s, size_t at, size_t drop, const void *bytes, size_t n)
{
	struct fo_str out = { 0 };
	fo_str_append(&out, s->data, at);
	fo_str_append(&out, bytes, n);
	fo_str_append(&out, s->data + at + drop, s->len - at - drop);
	fo_str_fini(s);
	*s = out;
}

static void damage(struct fo_str *s)
{
	static const char *const word[] = { "0",          "-1",    "18446744073709551616",
					    "4294967295", "1e999", "nan",
					    "null",       "{",     "}",
					    "[[[[[[[[",   "\"",    "\\u0000",
					    "\xff\xfe",   ": ",    "\n",
					    "- ",         "&a *a" };
	size_t at = draw(s->len), n = draw(32);
	if (n > s->len - at)
		n = s->len - at;
	char byte = (char)draw(256);
	uint64_t big = (uint64_t)1 << draw(64);
	switch (draw(8)) {
	case 0:
	case 1: put(s, at, s->len > at, &byte, 1); break;
	case 2: put(s, at, n, "", 0); break;
	case 3: {
		const char *w = word[draw(sizeof word / sizeof *word)];
		put(s, at, n, w, strlen(w));
		break;
	}
	case 4: {
		char copy[32];
		memcpy(copy, s->data + at, n);
		put(s, draw(s->len), 0, copy, n);
		break;
	}
	case 5: put(s, at, s->len - at, "", 0); break;
	case 6: put(s, at, s->len - at < 8 ? s->len - at : 8, &big, 8); break;
	default:
		at &= ~(size_t)7; /* counts in binary headers are aligned */
		put(s, at < s->len ? at : 0, 1, &byte, 1);
	}
}

static void test_replay(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_SOURCE");
	for (int t = 0; t < fuzz_targets; t++) {
		struct fo_arena a = { 0 };
		char dir[512], **path;
		size_t files;
		snprintf(dir, sizeof dir, "%s/fuzz/corpus/%s", root ? root : ".", fuzz_target[t].name);
		if (fo_fs_list(&a, dir, 10000, &path, &files) != FO_OK)
			fail_msg("%s", fo_err_text());
		assert_true(files > 0);
		fuzz_target[t].run("", 0);
		for (size_t i = 0; i < files; i++) {
			char *text;
			size_t len;
			if (fo_fs_read(&a, path[i], (size_t)1 << 20, &text, &len) != FO_OK)
				fail_msg("%s", fo_err_text());
			fuzz_target[t].run(text, len);
			for (size_t k = 0; k < (COPIES + files - 1) / files; k++) {
				struct fo_str s = { 0 };
				fo_str_append(&s, text, len);
				for (size_t wounds = 1 + draw(4); wounds && s.len; wounds--)
					damage(&s);
				/* Behind the last byte nothing is readable: sanitizers see a step too far. */
				char *exact = malloc(s.len ? s.len : 1);
				if (s.len)
					memcpy(exact, s.data, s.len);
				fuzz_target[t].run(exact, s.len);
				free(exact);
				fo_str_fini(&s);
			}
		}
		fo_arena_fini(&a);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_replay) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
