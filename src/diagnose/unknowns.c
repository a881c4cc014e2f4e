/* The list of what a trace cannot say, and what to record it with. */
#include "diagnose/findings_int.h"

#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static void add(struct fo_diagnosis *d, const char *what, const char *flag)
{
	size_t cap = (size_t)d->unknowns; /* one at a time: there are ten at most */
	fo_array_room(&d->unknown, &cap, (size_t)d->unknowns, sizeof(*d->unknown));
	struct fo_unknown *u = &d->unknown[d->unknowns++];
	snprintf(u->what, sizeof(u->what), "%s", what);
	snprintf(u->flag, sizeof(u->flag), "%s", flag);
}

static bool nsys(const struct fo_subject *s) { return s->t->format == FO_TRACE_NSYS; }

static void of_steps(struct fo_diagnosis *d, const struct fo_subject *s)
{
	if (s->device->from != FO_WINDOW_WHOLE || d->with.ledger.whole_trace || d->with.ledger.exclude_unlinked)
		return;
	if (s->t->step_count > 0) /* the remedy is more of what was done, not the same again */
		add(d, "where the marked step ends on the GPU: the next one's first kernel tells",
		    nsys(s) ? "more iterations inside the capture range"
			    : "torch.profiler.schedule(wait=1, warmup=2, active=5)");
	else
		add(d, "where steps begin and end",
		    nsys(s) ? "torch.cuda.nvtx.range_push(\"step\") around each iteration, with nsys profile "
			      "--trace=cuda,nvtx"
			    : "torch.profiler.profile(schedule=torch.profiler.schedule(wait=1, warmup=2, active=5)) "
			      "and profiler.step() after each iteration");
}

void fo_unknowns_without_gpu(struct fo_diagnosis *d)
{
	add(d, "everything about the GPU: the trace has no work of it",
	    d->rank[0].trace->format == FO_TRACE_NSYS ? "nsys profile --trace=cuda,nvtx"
						      : "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
}

static void of_host(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_facts *facts)
{
	const struct fo_trace_defects *x = &s->t->defect;
	if (!x->has_launches)
		add(d, "why the GPU idled: no launch is recorded",
		    nsys(s) ? "nsys profile --trace=cuda,nvtx,osrt"
			    : "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
	else if (!x->has_host_ops)
		add(d, "what the host did: no operator is recorded",
		    nsys(s) ? "nsys profile --trace=cuda,nvtx,osrt, and torch.autograd.profiler.emit_nvtx() for "
			      "operators"
			    : "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]");
	if (s->l.idle_ns[FO_IDLE_UNKNOWN] * 100 > s->l.span_ns && x->has_launches)
		add(d, "why the GPU idled before operations whose launch is not in the trace",
		    "a warm-up in the profiler's schedule (warmup=2), so that nothing launched before it is still "
		    "running");
	if (x->graph_granularity)
		add(d, "the kernels inside CUDA graphs", "nsys profile --cuda-graph-trace=node");
	if (s->l.idle_ns[FO_IDLE_DEPENDENCY] * 100 > s->l.span_ns && facts->graphs)
		add(d, "which kernel of a replayed graph its others waited for: they share one launch",
		    nsys(s) ? "nsys profile --cuda-graph-trace=node"
			    : "one more trace without graphs (training and kernels otherwise the same)");
	else if (s->l.idle_ns[FO_IDLE_DEPENDENCY] * 100 > s->l.span_ns && !x->has_gpu_waits)
		add(d, "what launched work waited for",
		    nsys(s) ? "nsys profile --cuda-event-trace=true"
			    : "experimental_config=torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events="
			      "True)");
	if (s->l.idle_ns[FO_IDLE_HOST_OTHER] * 20 > s->l.span_ns) {
		const char *how = nsys(s) ? "nsys profile --python-sampling=true" : "with_stack=True";
		if (!nsys(s) && x->has_frames)
			how = "Perfetto (ui.perfetto.dev) shows Python's frames, which are in the trace";
		add(d, "which Python code the launching thread was in", how);
	}
}

static void of_ranks(struct fo_diagnosis *d, const struct fo_subject *s)
{
	char text[200];
	if (s->t->rank_from == FO_RANK_ORDER)
		add(d, "which rank each trace is: they are numbered by the order of the files",
		    nsys(s) ? "one report of the whole job, or the rank in each file's name: rank3.nsys-rep"
			    : "torch.profiler after init_process_group, or the rank in each file's name: rank3.json");
	if (s->l.exposed_comm_unknown_ns * 100 > s->l.span_ns && d->ranks > 1 && d->ranks >= s->t->world_size &&
	    s->t->rank_from != FO_RANK_ORDER) {
		add(d, "whether sends, receives and exchanges of unequal parts wait or transfer: traces only bound it",
		    "--device D, for the links' peak");
	} else if (s->l.exposed_comm_unknown_ns * 100 > s->l.span_ns) {
		snprintf(text, sizeof(text), "the traces of %s, from the same steps",
			 s->t->world_size > 1 ? "all ranks" : "the other ranks");
		add(d, "whether exposed communication is waiting for a late rank or transfer", text);
	} else if (s->t->world_size > d->ranks && s->l.comm_ns > 0) {
		snprintf(text, sizeof(text), "the traces of all %d ranks (%d given)", s->t->world_size, d->ranks);
		add(d, "whether this rank is the slow one", text);
	}
}

static void of_products(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_facts *facts)
{
	if (!s->t->defect.has_shapes && facts->product_ns > 0) {
		const char *how = "torch.profiler.profile(record_shapes=True)";
		if (strcmp(facts->framework, "Megatron-LM") == 0)
			how = "--pytorch-profiler-collect-shapes";
		else if (nsys(s))
			how = "torch.autograd.profiler.emit_nvtx(record_shapes=True), or the PyTorch profiler";
		add(d, "what each matmul's shape could reach, and MFU without --model", how);
	}
	if (!d->bridge.known)
		add(d, "MFU, and what each loss costs of it",
		    fo_diagnosed(d) ? d->bridge.why_not : "a trace that can be diagnosed");
	if (!s->t->defect.has_modules && s->t->defect.has_host_ops &&
	    s->l.class_ns[FO_K_ELEMENTWISE] * 10 > s->l.span_ns && !nsys(s))
		add(d, "to which module elementwise kernels belong", "with_modules=True, or with_stack=True");
}

void fo_diagnose_unknowns(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_facts *facts)
{
	if (s->t->format == FO_TRACE_OWN) { /* its recorder has no flags to set */
		if (!d->bridge.known)
			add(d, d->own.known ? "what each loss costs of the MFU" : "MFU, and what each loss costs of it",
			    d->bridge.why_not);
		return;
	}
	of_steps(d, s);
	of_host(d, s, facts);
	of_ranks(d, s);
	of_products(d, s, facts);
}
