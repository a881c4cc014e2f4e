#include "train/overhead.h"
#include "base/mem.h"
#include "train/exec.h"

#include <stdlib.h>

struct fo_overhead {
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_exec_options options;
	int32_t step;
};

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	(void)ctx, (void)p, (void)mb, (void)arg, (void)n; /* the null kernels look at nothing that it would fill */
	return FO_OK;
}

static fo_status make(struct fo_overhead *o)
{
	struct fo_model m;
	FO_TRY(fo_model_load("flatout-134m", &m));
	/* Small, so that memory stays small: the cost of an operation does not depend on its shape. */
	m.layers = 4;
	m.hidden = 64;
	m.head_dim = 16;
	m.heads = m.kv_heads = 4;
	m.ffn = 128;
	m.vocab = 256;
	FO_TRY(fo_program_lower(&o->program, &m, &(struct fo_lowering){ .seq = 64, .rows = 1, .micro_batches = 1 }));
	FO_TRY(fo_store_new(&o->store, &o->program));
	FO_TRY(fo_exec_new(&o->exec, &o->program, o->store, &o->options, port, NULL, NULL));
	return fo_exec_step(o->exec, o->step++);
}

fo_status fo_overhead_new(struct fo_overhead **out)
{
	struct fo_overhead *o = fo_xmalloc(sizeof *o);
	o->options = (struct fo_exec_options){ .null_kernels = true, .threads = 1 };
	fo_status st = make(o);
	if (st != FO_OK)
		fo_overhead_free(o);
	else
		*out = o;
	return st;
}

void fo_overhead_free(struct fo_overhead *o)
{
	if (!o)
		return;
	fo_exec_free(o->exec);
	fo_store_free(o->store);
	fo_program_fini(&o->program);
	free(o);
}

int fo_overhead_operations(const struct fo_overhead *o) { return fo_exec_unrolled(o->exec)->n; }

void fo_overhead_run(void *overhead)
{
	struct fo_overhead *o = overhead;
	/* A step of null kernels cannot fail: ports succeed and nothing is computed. */
	if (fo_exec_step(o->exec, o->step) == FO_OK)
		o->step = (o->step + 1) & 0xffff;
}
