/* Real traces of the PyTorch profiler (FLATOUT_TRACES) against the counts of an independent reader. */
#include "trace/trace.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void as_the_reference_counts(void **state)
{
	(void)state;
	const char *root = getenv("FLATOUT_TRACES");
	char file[4096], line[1 << 16];
	int checked = 0;
	if (!root || !*root)
		skip();
	snprintf(file, sizeof file, "%s/REF_exact.jsonl", root);
	FILE *f = fopen(file, "re");
	if (!f)
		skip();
	while (fgets(line, sizeof line, f)) {
		json_t *ref = json_loads(line, 0, NULL), *dev = json_object_get(ref, "dev");
		const char *name = json_string_value(json_object_get(ref, "file"));
		assert_non_null(name);
		snprintf(file, sizeof file, "%s/%s", root, name);
		struct fo_trace *t;
		if (!dev || access(file, R_OK)) {
			json_decref(ref);
			continue;
		}
		if (fo_trace_open(&t, file) != FO_OK)
			fail_msg("%s: %s", name, fo_err_text());
		assert_int_equal(t->gpu_count, json_integer_value(json_object_get(ref, "n")));
		assert_int_equal(t->defect.zero_duration, json_integer_value(json_object_get(ref, "zero")));
		double sum = 0, want = 0;
		size_t i;
		json_t *d;
		json_array_foreach(dev, i, d) want += json_number_value(json_object_get(d, "sum_dur_us"));
		for (int64_t k = 0; k < t->gpu_count; k++)
			sum += (double)(t->gpu[k].end_ns - t->gpu[k].begin_ns) / 1e3;
		assert_true(sum - want < 1e-3 && want - sum < 1e-3);
		assert_int_equal(t->defect.malformed + t->defect.clipped, 0);
		fo_trace_free(t);
		json_decref(ref);
		checked++;
	}
	fclose(f);
	assert_true(checked > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(as_the_reference_counts) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
