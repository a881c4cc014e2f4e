/* The operations of a device that the ledger counts, and the row that each is charged to. */
#include "diagnose/ledger_int.h"

#include <string.h>
#include <strings.h>

/* Is this operation of class FO_K_MEMORY a fill? */
static bool fills(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (g->kind != FO_GPU_KERNEL)
		return g->kind == FO_GPU_MEMSET;
	for (const char *name = fo_trace_text(t, g->name); *name; name++)
		if (!strncasecmp(name, "fill", 4) || !strncasecmp(name, "set", 3))
			return true;
	return false;
}

bool fo_ledger_counts(const struct fo_trace *t, const struct fo_gpu_op *g, enum fo_kinds kinds)
{
	if (kinds != FO_KINDS_LINKED)
		return true;
	return g->launch >= 0 &&
	       (g->kind != FO_GPU_MEMSET || strncmp(fo_trace_text(t, t->launch[g->launch].name), "hip", 3));
}

uint8_t fo_ledger_class(const struct fo_trace *t, const struct fo_gpu_op *g, enum fo_kinds kinds)
{
	if (kinds == FO_KINDS_BY_NAME)
		return g->class;
	if (kinds == FO_KINDS_LINKED && (g->kind != FO_GPU_KERNEL || g->class_by_name == FO_K_MEMORY))
		return fills(t, g) ? FO_K_COPY : FO_K_MEMORY;
	if (g->kind != FO_GPU_KERNEL)
		return FO_K_MEMORY;
	if (g->class_by_name == FO_K_COMMUNICATION)
		return FO_K_COMMUNICATION;
	return g->class < FO_K_COMPUTE_COUNT ? g->class : FO_K_COPY;
}

uint8_t fo_ledger_copy(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	if (fills(t, g))
		return FO_COPY_NONE;
	return g->copy != FO_COPY_NONE && g->copy < FO_COPY_COUNT ? g->copy : FO_COPY_OTHER;
}
