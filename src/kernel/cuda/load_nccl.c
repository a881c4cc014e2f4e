/* NCCL, found at run time. */
#include "kernel/cuda/cuda_int.h"

#include <stdio.h>

#if FO_NCCL
#include "kernel/cuda/nccl_calls.h"

#define NEWER(f) "?" #f,
static const char *const names[] = { FO_NCCL_CALLS(FO_CUDA_NAME) FO_NCCL_NEWER_CALLS(NEWER) };
enum { CALLS = sizeof names / sizeof *names };
_Static_assert(sizeof(struct fo_nccl_calls) == CALLS * sizeof(void *) && (int)CALLS <= 64, "a name for each function");
static struct fo_cuda_loaded nccl;

/* "2.28.9"; until 2.8 the number had one digit less. */
static void version(struct fo_cuda_loaded *l)
{
	int v = 0;
	if (((const struct fo_nccl_calls *)l->function)->ncclGetVersion(&v) != ncclSuccess)
		return;
	const int minors = v >= 10000 ? 100 : 10;
	snprintf(l->found.version, sizeof l->found.version, "%d.%d.%d", v / (100 * minors), v / 100 % minors, v % 100);
}

const struct fo_nccl_calls *fo_cuda_load_nccl(struct fo_cuda_found *found)
{
	static const char *const files[] = { "libnccl.so.2", NULL };
	return fo_cuda_load(&nccl, files, names, CALLS, version, found);
}

void fo_cuda_survey_nccl(struct fo_cuda_found *found) { (void)fo_cuda_load_nccl(found); }
#else
void fo_cuda_survey_nccl(struct fo_cuda_found *found)
{
	snprintf(found->why, sizeof found->why,
		 "this build has no NCCL: install it with its header (nccl.h) and build again");
}
#endif
