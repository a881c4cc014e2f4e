/* Everything that reads bytes from outside, behind one signature: for libFuzzer (fuzz/) and for the replay test. */
#ifndef FO_TESTS_SUPPORT_FUZZ_TARGETS_H
#define FO_TESTS_SUPPORT_FUZZ_TARGETS_H

#include "ckpt/ckpt.h" /* the readers are of both halves: a build without the engine leaves these tests out */
#include <stddef.h>

struct fuzz_target {
	const char *name;                         /* folder of fuzz/corpus */
	void (*run)(const void *bytes, size_t n); /* any bytes: an error or a result, never a crash, never a hang */
};
extern const struct fuzz_target fuzz_target[];
extern const int fuzz_targets;

#endif
