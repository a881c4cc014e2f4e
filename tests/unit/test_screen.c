/* The last screen of a training run: what it says of the machine. */
#include "cli/engine/screen.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The screen of a run of ten steps that ended with this load; the caller frees it. */
static char *screen_at(double load)
{
	char *text = NULL;
	size_t len = 0;
	struct fo_screen s = { .out = open_memstream(&text, &len) };
	struct fo_train_result r = {
		.steps = 10, .tokens = 100, .loss_tokens = 100, .seconds = 1, .val_loss = NAN, .bigram_loss = NAN
	};
	assert_non_null(s.out);
	r.machine = (struct fo_state_use){
		.seconds = 1, .clock_hz = NAN, .throttles = NAN, .limited_s = NAN, .joules = NAN, .load = load
	};
	r.joules_per_token = r.huge_share = NAN;
	fo_screen_summary(&s, &r);
	fclose(s.out);
	return text;
}

/* A slow run on a machine that was not its own has to say so; alone it keeps the load below its processors and one. */
static void test_load(void **state)
{
	(void)state;
	char *busy = screen_at(1e6), *alone = screen_at(0.5), *unknown = screen_at(NAN);
	assert_non_null(strstr(busy, "load 1000000.0 on "));
	assert_non_null(strstr(busy, ": other programs ran too"));
	assert_non_null(strstr(alone, "Machine:"));
	assert_null(strstr(alone, "load"));
	assert_null(strstr(unknown, "load"));
	free(busy);
	free(alone);
	free(unknown);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_load) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
