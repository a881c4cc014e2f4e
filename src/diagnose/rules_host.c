/* Why the GPU idled, and what the host could do about it. */
#include "diagnose/findings_int.h"

#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <string.h>

static int64_t host_exposed(const struct fo_ledger *l)
{
	return l->idle_ns[FO_IDLE_HOST_LAUNCH_BOUND] + l->idle_ns[FO_IDLE_HOST_OTHER] +
	       l->idle_ns[FO_IDLE_LAUNCH_LATENCY];
}

/* A cause is serious above the mark, or where it is the greatest of the causes and all idling together is above it. */
static bool serious(const struct fo_rule_context *c, int64_t ns)
{
	const struct fo_ledger *l = &c->s->l;
	int64_t greatest = 0;
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		greatest = fo_max(l->idle_ns[i], greatest);
	return fo_share(c, ns) > FO_SHARE_SERIOUS ||
	       (fo_share(c, l->idle_total_ns) > FO_SHARE_SERIOUS && ns >= greatest);
}

/* Does it deserve a line? Sets f->serious. */
static bool worth_it(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns)
{
	f->serious = serious(c, ns);
	return ns > 0 && (fo_share(c, ns) > FO_SHARE_ADVICE || f->serious);
}

static bool data_loading(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	int64_t idle = l->idle_ns[FO_IDLE_HOST_DATA];
	if (!worth_it(c, f, idle) && c->host_data_share <= FO_SHARE_ADVICE)
		return false;
	/* Workers take the loader's processor time along; where they share cores with the launching thread (two
	 * hardware threads of a core do at best half each) what it still shows doubles. Its own work stays the floor.
	 */
	fo_gain_of(c, f, idle,
		   (struct fo_gain){ .least = 1, .most = 1, .reappear_ns = host_exposed(l), .frees_ns = c->loader_ns });
	if (fo_share(c, idle) > FO_SHARE_ADVICE / 5)
		fo_title(f, "the GPU waits for data: %.1f %% of the step", fo_percent(c, idle));
	else
		fo_title(f, "data loading takes %.1f %% of the host's step, hidden behind GPU work",
			 100 * c->host_data_share);
	if (idle > 0)
		fo_why(f, "While the data loader worked, the GPU idled %s of each step. ", FO_NS(idle));
	if (c->host_data_share > 0) /* 0: the host's steps are not marked */
		fo_why(f, "The loader takes %.1f %% of the host's step. ", 100 * c->host_data_share);
	if (c->facts->loader_inline)
		fo_why(f, "It runs on the thread that launches GPU work: there are no worker processes. ");
	fo_why(f, "Worker processes need processor time too.");
	if (host_exposed(l) > 0)
		fo_why(f,
		       " The GPU waits %.1f %% of the step for the host's other work already, and that part may grow.",
		       fo_percent(c, host_exposed(l)));
	fo_evidence_host(f, c->s, FO_HOST_DATA);
	if (f->evidences == 0)
		fo_evidence_named(f, c->s, "DataLoader");
	return true;
}

/* "180 compute kernels of 4.4 us on average": neither communication nor copies are launches that could be fewer. */
static const char *kernels_text(const struct fo_ledger *l, char buf[80])
{
	int64_t ops = 0, ns = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++) {
		ops += l->class_ops[i];
		ns += l->class_sum_ns[i];
	}
	snprintf(buf, 80, "%lld compute kernel%s of %s on average", (long long)ops, fo_plural(ops),
		 FO_NS(ops ? ns / ops : 0));
	return buf;
}
#define KERNELS(l) kernels_text(l, (char[80]){ 0 })

/* The operator on the processor inside which long gaps lie, if it holds a quarter of the idling: then launches are not
 * what takes time. */
static int32_t long_operator(const struct fo_rule_context *c, int64_t idle, int64_t *ns)
{
	struct fo_tally seen = { .n = 0 };
	for (int64_t i = 0; i < c->gaps; i++) {
		int64_t length = c->gap[i].end_ns - c->gap[i].begin_ns;
		int32_t op = length > FO_GAP_SHORT_NS && fo_idle_gap_call(c->s, &c->gap[i]) < 0
				     ? fo_idle_gap_operator(c->s, &c->gap[i])
				     : -1;
		if (op >= 0)
			fo_tally_add(&seen, c->s->t->op[op].name, op,
				     c->gap[i].idle_ns[FO_IDLE_HOST_LAUNCH_BOUND] / c->s->steps);
	}
	*ns = seen.best ? seen.best->ns : 0;
	return seen.best && 4 * *ns > idle ? seen.best->first : -1;
}

/* The idling in gaps that one call of the driver fills; *name: the call of the longest such gap. */
static int64_t in_driver(const struct fo_rule_context *c, const char **name)
{
	int64_t sum = 0, longest = 0;
	for (int64_t i = 0; i < c->gaps; i++) {
		const struct fo_idle_gap *g = &c->gap[i];
		/* A launch takes a few us; the driver that holds a thread for a hundred waits for something. */
		int64_t length = g->end_ns - g->begin_ns, call = length > 100000 ? fo_idle_gap_call(c->s, g) : -1;
		if (call < 0)
			continue;
		sum += g->idle_ns[FO_IDLE_HOST_LAUNCH_BOUND] + g->idle_ns[FO_IDLE_LAUNCH_LATENCY] +
		       g->idle_ns[FO_IDLE_HOST_OTHER];
		if (length > longest)
			*name = fo_trace_text(c->s->t, c->s->t->launch[call].name);
		longest = fo_max(length, longest);
	}
	return sum / c->s->steps;
}

/* The sentence on what the launching thread did while the GPU waited, by its greatest part, as far as the trace
 * tells. */
static const char *launching_text(const struct fo_rule_context *c)
{
	const struct fo_ledger *l = &c->s->l;
	int64_t busy = l->idle_ns[FO_IDLE_HOST_LAUNCH_BOUND], latency = l->idle_ns[FO_IDLE_LAUNCH_LATENCY];
	if (latency >= busy && latency >= c->other_short_ns)
		return "Most of the idling lies between a launch and the begin of its kernel.";
	if (!c->s->t->defect.has_host_ops)
		return "Launches come late. No operator is recorded, so the trace does not show what the host did "
		       "before them.";
	if (c->other_short_ns > busy)
		return "Most of the idling lies between two operators: the launching thread was in Python.";
	return "The launching thread is busy with operators and calls, and does not keep the GPU fed.";
}

static int64_t launch_idle(const struct fo_rule_context *c)
{
	return fo_idle_of(c, FO_IDLE_HOST_LAUNCH_BOUND) + fo_idle_of(c, FO_IDLE_LAUNCH_LATENCY) + c->other_short_ns;
}

/* The part of launch_idle inside one operator on the processor, if that is most of it and enough for host-work: fewer
 * launches would not change it. 0: there is no such operator. */
static int64_t work_on_processor(const struct fo_rule_context *c, struct fo_finding *f, int32_t *op)
{
	int64_t idle = launch_idle(c), inside;
	*op = long_operator(c, idle, &inside);
	return *op >= 0 && 2 * inside > idle && worth_it(c, f, inside) ? inside : 0;
}

/* Does the operator launch work itself? Then its time is not one of host tensors alone: it may allocate, load or
 * prepare. */
static bool launches_itself(const struct fo_trace *t, int32_t op)
{
	const struct fo_host_op *o = &t->op[op];
	const struct fo_launch *l = t->launch;
	int64_t next = FO_FIRST(i, t->launch_count,
				l[i].thread > o->thread || (l[i].thread == o->thread && l[i].begin_ns >= o->begin_ns));
	return next < t->launch_count && l[next].thread == o->thread && l[next].begin_ns < o->end_ns;
}

static bool host_work(const struct fo_rule_context *c, struct fo_finding *f)
{
	int32_t op;
	int64_t inside = work_on_processor(c, f, &op);
	char name[64];
	if (inside == 0)
		return false;
	bool launches = launches_itself(c->s->t, op);
	fo_gain_freed(c, f, inside, launches ? 0 : FO_GAIN_HALF);
	fo_str_visible(name, sizeof(name), fo_trace_text(c->s->t, c->s->t->op[op].name));
	fo_title(f, "work on the processor holds up the launches, in '%.60s': the GPU idles %.1f %% of the step", name,
		 fo_percent(c, inside));
	fo_why(f, "For %s of the step the thread that launches is in this operator%s, and the GPU has nothing to do.",
	       FO_NS(inside), launches ? "" : ", on tensors in the host's memory");
	if (launches)
		fo_why(f, " The operator launches work itself: before that it converts data, allocates, compiles or "
			  "loads. Which of them the trace does not say. What happens at the first call alone is a "
			  "warm-up and no loss of later steps.");
	else
		fo_why(f, " Move that work to the GPU, to the data loader's workers or another thread, or out of the "
			  "step.");
	return true;
}

static bool launch_bound(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	int32_t op;
	int64_t idle = launch_idle(c) - work_on_processor(c, f, &op), inside;
	char name[80];
	if (!worth_it(c, f, idle))
		return false;
	op = long_operator(c, idle, &inside);
	if (2 * inside > launch_idle(c)) /* a finding of its own */
		op = -1;
	const char *call = "";
	int64_t driver = in_driver(c, &call);
	bool driven = op < 0 && 4 * driver > idle;
	/* Graphs at best replay the step without a launch per kernel; in the worst a compiler merges every
	 * other kernel that it can merge. Neither touches one long operator on the processor. */
	fo_gain_of(c, f, idle,
		   (struct fo_gain){
			   .least = op >= 0 || driven ? 0 : fo_fusable(c) / 2, .most = 1, .frees_ns = INT64_MAX });
	fo_title(f, "the host launches too slowly: the GPU idles %.1f %% of the step for it", fo_percent(c, idle));
	if (op >= 0)
		fo_why(f, "%s of it lie inside '%s'%s The rest lies between %s.", FO_NS(inside),
		       fo_str_visible(name, sizeof(name), fo_trace_text(c->s->t, c->s->t->op[op].name)),
		       launches_itself(c->s->t, op)
			       ? ", before it launches work."
			       : ", which runs on the processor. Move that work to the GPU, to another thread, or out "
				 "of the step.",
		       KERNELS(l));
	else if (driven)
		fo_why(f,
		       "%s of it lie inside '%s', calls of the driver that took long to return. The driver was busy: "
		       "it loaded kernels for the first time, its queue was full, or another thread or process held "
		       "it. The rest lies between %s.",
		       FO_NS(driver), fo_str_visible(name, sizeof(name), call), KERNELS(l));
	else
		fo_why(f,
		       "%s The step has %s. Fewer or larger launches help: compiled kernels, %s, more work per step.",
		       launching_text(c), KERNELS(l), c->facts->words->graphs);
	return true;
}

/* The operator in which the host waited longest, if that is half of all waiting: aten::item, aten::nonzero. */
static int32_t waiting_operator(const struct fo_subject *s)
{
	struct fo_tally seen = { .n = 0 };
	const struct fo_trace *t = s->t;
	int64_t all = 0;
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (o->kind != FO_HOST_SYNC || o->end_ns <= s->begin_ns || o->begin_ns >= s->end_ns)
			continue;
		int32_t in = o->parent, name = -1;
		for (; in >= 0; in = t->op[in].parent) /* the outermost operator is what was written: aten::item, not
							  what it calls */
			name = t->op[in].kind == FO_HOST_OP ? t->op[in].name : name;
		all += o->end_ns - o->begin_ns;
		if (name >= 0)
			fo_tally_add(&seen, name, in, o->end_ns - o->begin_ns);
	}
	return seen.best && 2 * seen.best->ns > all ? seen.best->name : -1;
}

static bool synchronised(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = fo_idle_of(c, FO_IDLE_HOST_SYNC);
	char name[80], in[100] = "";
	if (!worth_it(c, f, idle))
		return false;
	fo_gain_usual(c, f, idle, FO_GAIN_HALF);
	int32_t op = waiting_operator(c->s);
	if (op >= 0)
		snprintf(in, sizeof(in), ", in %s", fo_str_visible(name, sizeof(name), fo_trace_text(c->s->t, op)));
	fo_title(f, "the host waits for the GPU inside the step%s: the GPU idles %.1f %% after it", in,
		 fo_percent(c, idle));
	fo_why(f, "The host waits inside a call: synchronisation, a blocking copy, .item(). Meanwhile it launches "
		  "nothing, so the GPU runs out of work.");
	if (op >= 0)
		fo_why(f, " Reading a value on the host (a loss to be logged, a size) waits for all work that was "
			  "launched before it: read it every so many steps, or after the next step was launched.");
	fo_evidence_host(f, c->s, FO_HOST_SYNC);
	if (f->evidences == 0)
		fo_evidence_gaps(f, c->s, c->gap, c->gaps, 1u << FO_IDLE_HOST_SYNC, 0, INT64_MAX);
	return true;
}

static bool host_other(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = fo_idle_of(c, FO_IDLE_HOST_OTHER) - c->other_short_ns;
	bool frames = c->s->t->defect.has_frames;
	if (!worth_it(c, f, idle))
		return false;
	fo_gain_freed(c, f, idle, FO_GAIN_HALF);
	fo_title(f, "the host does something else: the GPU idles %.1f %% of the step", fo_percent(c, idle));
	if (!c->s->t->defect.has_host_ops)
		fo_why(f, "The trace has no host operators. ");
	fo_why(f,
	       "For more than a millisecond each time the launching thread was in %s. It may be garbage collection, "
	       "logging, a checkpoint, a data loader without annotation, or other Python.",
	       frames ? "no operator and no call" : "nothing that the trace shows");
	if (frames)
		fo_why(f, " The trace has Python's frames: Perfetto (ui.perfetto.dev) shows them at the times below.");
	return true;
}

static bool kernel_gaps(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = fo_idle_of(c, FO_IDLE_KERNEL_GAP);
	if (!worth_it(c, f, idle))
		return false;
	fo_gain_of(c, f, idle, (struct fo_gain){ .least = fo_fusable(c) / 2, .most = fo_fusable(c) });
	fo_title(f, "many small kernels: %.1f %% of the step lies between them", fo_percent(c, idle));
	fo_why(f,
	       "%s were all launched in time. Between two of them the hardware needs a few microseconds. Fewer "
	       "kernels leave fewer gaps.",
	       KERNELS(&c->s->l));
	return true;
}

static bool dependency(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = c->s->l.idle_ns[FO_IDLE_DEPENDENCY];
	if (!worth_it(c, f, idle))
		return false;
	fo_gain_usual(c, f, idle, 0);
	fo_title(f, "launched work waits for something else: %.1f %% of the step", fo_percent(c, idle));
	fo_why(f, "The next operation was in the queue before the gap began, and the gap is longer than the hardware "
		  "needs. It waited for an event, another stream or device, or for memory of the host.");
	if (c->facts->graphs)
		fo_why(f, " Kernels of a replayed graph wait for others of it, and the host was not late.");
	else if (!c->s->t->defect.has_gpu_waits)
		fo_why(f, " The trace does not record which.");
	return true;
}

/* Loading code at the first use of a kernel is a warm-up. One recorded step cannot tell it from what every step does
 * (rules_window.c). */
static bool code_loading(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = c->s->l.idle_ns[FO_IDLE_LONG_CALL];
	if (fo_one_window(c) || !worth_it(c, f, idle))
		return false;
	fo_gain_of(c, f, idle,
		   (struct fo_gain){ .least = FO_GAIN_HALF, .most = 1, .frees_ns = c->floor_ns - c->launch_ns });
	fo_title(f, "code is loaded or compiled in every step: the GPU idles %.1f %% for it", fo_percent(c, idle));
	fo_why(f, "Calls that launch a kernel or load a module take more than a millisecond each while the GPU has "
		  "nothing to do. After the first steps no kernel should be new: shapes that change from step to step "
		  "make a compiler or an algorithm's search begin again.");
	return true;
}

static bool unknown(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t idle = c->s->l.idle_ns[FO_IDLE_UNKNOWN];
	if (!worth_it(c, f, idle))
		return false;
	f->loss_ns = idle;
	fo_gain_none(f); /* without a cause there is no cure */
	fo_title(f, "the GPU idles %.1f %% of the step, and the trace cannot say why", fo_percent(c, idle));
	fo_why(f, c->s->t->defect.has_launches
			  ? "What ended the gaps has no launch record: it was launched before the profiler started, or "
			    "its record was lost."
			  : "The trace has no launch records, so it does not show whether the host was late.");
	return true;
}

#define LAUNCHING (1u << FO_IDLE_HOST_LAUNCH_BOUND | 1u << FO_IDLE_LAUNCH_LATENCY | 1u << FO_IDLE_HOST_OTHER)
const struct fo_rule_row fo_rules_host[] = {
	{ "data-loading", FO_FIND_DATA, .holds = data_loading },
	{ "host-work", FO_FIND_HOST, .holds = host_work, .gaps = 1u << FO_IDLE_HOST_LAUNCH_BOUND,
	  .gap_least_ns = FO_GAP_SHORT_NS },
	{ "host-launch", FO_FIND_HOST, .holds = launch_bound, .gaps = LAUNCHING },
	{ "host-sync", FO_FIND_HOST, .holds = synchronised },
	{ "host-other", FO_FIND_HOST, .holds = host_other, .gaps = 1u << FO_IDLE_HOST_OTHER,
	  .gap_least_ns = FO_GAP_SHORT_NS },
	{ "code-loading", FO_FIND_HOST, .holds = code_loading, .gaps = 1u << FO_IDLE_LONG_CALL },
	{ "kernel-gaps", FO_FIND_IDLE, .holds = kernel_gaps, .gaps = 1u << FO_IDLE_KERNEL_GAP },
	{ "dependency", FO_FIND_IDLE, .holds = dependency, .gaps = 1u << FO_IDLE_DEPENDENCY },
	{ "idle-unknown", FO_FIND_IDLE, .holds = unknown, .gaps = 1u << FO_IDLE_UNKNOWN },
	{ .id = NULL },
};
