/* libFuzzer's entry: the environment variable FUZZ_TARGET names one of tests/support/fuzz_targets.c. */
#include "support/fuzz_targets.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fuzz_target *target;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	const char *name = getenv("FUZZ_TARGET");
	(void)argc;
	(void)argv;
	for (int i = 0; name && i < fuzz_targets; i++)
		if (!strcmp(fuzz_target[i].name, name))
			target = &fuzz_target[i];
	if (target)
		return 0;
	fprintf(stderr, "FUZZ_TARGET is '%s', which is no target\n", name ? name : "");
	exit(2);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	target->run(bytes, n);
	return 0;
}
