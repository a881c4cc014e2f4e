/* libFuzzer's entry: -DFUZZ_TARGET=<name> chooses one of tests/support/fuzz_targets.c. */
#include "support/fuzz_targets.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	for (int i = 0; i < fuzz_targets; i++)
		if (!strcmp(fuzz_target[i].name, TEXT(FUZZ_TARGET))) {
			fuzz_target[i].run(bytes, n);
			return 0;
		}
	abort();
}
