/* The questions that traces answer: communication's share, idling between collectives; and what of NCCL they show. */
#include "health/health_int.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_health_answer_name[FO_HEALTH_ANSWERS] = { "unknown", "yes", "no", "undecided", "not applicable" };

/* Five steps behind a warm-up: what docs/start-slow-run.md tells to record. */
static const char PROFILE[] =
	"from torch.profiler import profile, schedule, ProfilerActivity, tensorboard_trace_handler\n"
	"with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True,\n"
	"             schedule=schedule(wait=5, warmup=3, active=5, repeat=1),\n"
	"             on_trace_ready=tensorboard_trace_handler(\"profile\", use_gzip=True)) as p:\n"
	"    for batch in loader:\n"
	"        train_step(batch)\n"
	"        p.step()";
static const char RECORD_TRACE[] =
	"a trace of five steps on every rank, or on two of each node: flatout health reads it beside the rest";
static const char RECORD_ONE[] = "a trace of five steps: flatout health reads it beside the rest";

/* One device has nobody to communicate with; a trace of several ranks, or with communication, says that there are
 * more. */
bool fo_health_alone(const struct fo_health *h)
{
	struct fo_subject s;
	bool talks = h->set.count > 1 || (h->traced && fo_health_step(h, &s) && s.l.comm_ns > 0);
	return h->devices == 1 && !talks;
}

static void does_not_apply(struct fo_health_question *q)
{
	q->answer = FO_HEALTH_NOT_APPLICABLE;
	q->because = "It does not apply: the job has one device.";
}

/* ---- communication above half of the step ---- */

struct shares {
	double comm, exposed; /* of the shown step */
	double low, high;     /* of comm over all devices of all ranks */
	int over, of;         /* devices above half */
};

static struct shares shares_of(const struct fo_diagnosis *d, const struct fo_subject *s)
{
	double span = (double)s->l.span_ns;
	struct shares x = { (double)s->l.comm_ns / span, (double)s->l.exposed_comm_ns / span, INFINITY, 0, 0, 0 };
	for (int r = 0; r < d->ranks; r++)
		for (int64_t k = 0; k < d->rank[r].devices; k++) {
			struct fo_subject o;
			fo_shown_step_of(&d->rank[r].device[k], &o);
			if (o.l.span_ns <= 0 || !o.l.ops)
				continue;
			double v = (double)o.l.comm_ns / (double)o.l.span_ns;
			x.low = fmin(x.low, v);
			x.high = fmax(x.high, v);
			x.over += v > 0.5;
			x.of++;
		}
	return x;
}

/* The communication kernel of the shown device that lasts longest within its step; -1: none. */
static int64_t longest_collective(const struct fo_subject *s)
{
	int64_t best = -1;
	for (int64_t i = 0; i < s->t->gpu_count; i++) {
		const struct fo_gpu_op *g = &s->t->gpu[i];
		if (g->device != s->id || g->class != FO_K_COMMUNICATION || g->begin_ns < s->begin_ns ||
		    g->begin_ns >= s->end_ns)
			continue;
		if (best < 0 || g->end_ns - g->begin_ns > s->t->gpu[best].end_ns - s->t->gpu[best].begin_ns)
			best = i;
	}
	return best;
}

static const char *ms(struct fo_health *h, int64_t ns) { return fo_health_num(h, (double)ns * 1e-9, FO_DRAW_SECONDS); }

static void communication_evidence(struct fo_health *h, struct fo_health_question *q, const struct fo_subject *s)
{
	char words[48], name[120];
	fo_health_evidence(h, q, "%s, %s: communication kernels run for %s of %s, %s of it while nothing computes",
			   fo_health_unit(h, s->rank, s->device), fo_shown_step_words(words, s->device),
			   ms(h, s->l.comm_ns), ms(h, s->l.span_ns), ms(h, s->l.exposed_comm_ns));
	int64_t i = longest_collective(s);
	if (i < 0)
		return;
	const struct fo_gpu_op *g = &s->t->gpu[i];
	fo_health_evidence(h, q, "the longest: %s for %s, %s into the step",
			   fo_kernel_short_name(name, sizeof name, fo_trace_text(s->t, g->name)),
			   ms(h, g->end_ns - g->begin_ns), ms(h, g->begin_ns - s->begin_ns));
}

/* Why traces that are there do not answer; NULL: they may. */
static const char *no_judgement(struct fo_health *h, struct fo_subject *s)
{
	if (!h->traced)
		return "no trace is given";
	if (!fo_diagnosed(&h->diagnosis))
		return fo_health_text(h, "the trace cannot be diagnosed: %s", h->diagnosis.cannot);
	if (h->diagnosis.forward_only)
		return "the trace is of inference: it has no backward pass";
	return fo_health_step(h, s) ? NULL : "the trace holds no step";
}

static void ask_communication(struct fo_health *h, struct fo_health_question *q)
{
	struct fo_subject s;
	const char *not = no_judgement(h, &s);
	if (not ) {
		q->because = fo_health_sentence(h, not );
		q->record = RECORD_TRACE;
		q->paste = PROFILE;
		fo_health_estimate_communication(h, q);
		return;
	}
	struct shares x = shares_of(&h->diagnosis, &s);
	if (x.high <= 0 && h->devices > 1) {
		q->because = fo_health_text(
			h, "The trace shows no communication at all, and the job has %.0f devices (%s).", h->devices,
			h->devices_from);
		q->record = RECORD_TRACE;
		q->paste = PROFILE;
		return;
	}
	q->figure = (struct fo_range){ x.low, x.high };
	q->figure_of = "of the step in communication kernels";
	if (x.over == x.of)
		q->answer = FO_HEALTH_YES;
	else
		q->answer = x.over ? FO_HEALTH_UNDECIDED : FO_HEALTH_NO;
	q->bad = x.exposed > 0.5 || (x.comm > 0.5 && x.exposed > 0.1);
	const char *on = "";
	if (q->answer == FO_HEALTH_UNDECIDED)
		on = fo_health_text(h, " Above half it is on %d of %d devices.", x.over, x.of);
	q->because = fo_health_text(
		h,
		"Communication kernels run for %s of the step; for %s nothing else computes, and that "
		"part alone costs time.%s",
		fo_health_num(h, x.comm, FO_DRAW_SHARE), fo_health_num(h, x.exposed, FO_DRAW_SHARE), on);
	communication_evidence(h, q, &s);
	if (h->set.count == 1 && x.comm > 0) {
		q->record = "how much of it waits for another rank and how much transfers: traces of all ranks of one "
			    "step";
		q->paste = PROFILE;
	}
}

/* ---- idle between collectives ---- */

/* Idling above this share of the time is a finding of the diagnosis, too (docs/diagnosis-rules.md). */
static const double IDLE = 0.05;

struct between {
	int64_t span, idle; /* from the first collective's begin to the last one's end; of it without any operation */
	int64_t gap, gap_at;
	int64_t collectives;
};

static void find_between(const struct fo_subject *s, struct between *b)
{
	struct fo_intervals busy = { 0 };
	int64_t from = s->device->step[0].l.begin_ns, to = s->device->step[s->device->steps - 1].l.end_ns;
	int64_t first = INT64_MAX, last = INT64_MIN;
	*b = (struct between){ 0 };
	for (int64_t i = 0; i < s->t->gpu_count; i++) {
		const struct fo_gpu_op *g = &s->t->gpu[i];
		if (g->device != s->id || g->begin_ns < from || g->begin_ns >= to)
			continue;
		fo_intervals_add(&busy, g->begin_ns, g->end_ns);
		if (g->class != FO_K_COMMUNICATION)
			continue;
		b->collectives++;
		first = g->begin_ns < first ? g->begin_ns : first;
		last = g->end_ns > last ? g->end_ns : last;
	}
	fo_intervals_unite(&busy);
	if (b->collectives > 1) {
		b->span = last - first;
		b->idle = b->span - fo_intervals_within(&busy, first, last);
		for (size_t i = 1; i < busy.n; i++) {
			int64_t gap = busy.v[i].begin - busy.v[i - 1].end;
			if (busy.v[i - 1].end >= first && busy.v[i].begin <= last && gap > b->gap) {
				b->gap = gap;
				b->gap_at = busy.v[i - 1].end - s->t->begin_ns;
			}
		}
	}
	fo_intervals_fini(&busy);
}

/* The cause that holds most of the step's idling. */
static enum fo_idle_cause main_cause(const struct fo_ledger *l)
{
	enum fo_idle_cause best = FO_IDLE_UNKNOWN;
	for (int c = 0; c < FO_IDLE_COUNT; c++)
		if (l->idle_ns[c] > l->idle_ns[best])
			best = (enum fo_idle_cause)c;
	return best;
}

/* What held the device up, by the ledger of the step. */
static const char *idle_sentence(struct fo_health *h, const struct fo_ledger *l)
{
	static const char *const says[FO_IDLE_COUNT] = {
		[FO_IDLE_HOST_DATA] = "the host loaded data",
		[FO_IDLE_HOST_SYNC] = "the host waited for the device or allocated memory",
		[FO_IDLE_HOST_LAUNCH_BOUND] = "the host was busy launching kernels",
		[FO_IDLE_HOST_OTHER] = "the host did something that the trace does not show",
		[FO_IDLE_LAUNCH_LATENCY] = "a kernel was launched and had not begun",
		[FO_IDLE_LONG_CALL] = "the host loaded code",
		[FO_IDLE_KERNEL_GAP] = "the device passed from one kernel to the next",
		[FO_IDLE_DEPENDENCY] = "the next kernel waited for another stream or event",
		[FO_IDLE_UNKNOWN] = "the trace does not tell what held the device up",
	};
	enum fo_idle_cause cause = main_cause(l);
	double share = (double)l->idle_ns[cause] / fmax(1, (double)l->idle_total_ns);
	return fo_health_text(h, "In %s of the step's idle time %s.", fo_health_num(h, share, FO_DRAW_SHARE),
			      says[cause]);
}

static void ask_idle(struct fo_health *h, struct fo_health_question *q)
{
	struct fo_subject s;
	struct between b = { 0 };
	const char *not = no_judgement(h, &s);
	if (!not ) {
		find_between(&s, &b);
		if (b.collectives < 2)
			not = b.collectives ? "the trace shows one collective alone" : "the trace shows no collective";
	}
	if (not &&h->traced && fo_health_step(h, &s) && fo_health_alone(h)) {
		does_not_apply(q);
		return;
	}
	if (not ) {
		q->because = fo_health_sentence(h, not );
		q->record = fo_health_alone(h) ? RECORD_ONE : RECORD_TRACE;
		q->paste = PROFILE;
		return;
	}
	double share = b.span > 0 ? (double)b.idle / (double)b.span : 0;
	enum fo_idle_cause cause = main_cause(&s.l);
	q->figure = fo_range(share);
	q->figure_of = "of the time from the first collective to the last without any operation on the device";
	q->answer = share > IDLE ? FO_HEALTH_YES : FO_HEALTH_NO;
	q->bad = share > IDLE;
	const char *why = "";
	if (q->bad)
		why = fo_health_text(h, " %s", idle_sentence(h, &s.l));
	q->because = fo_health_text(
		h, "Between the first and the last of %lld collectives nothing at all runs for %s of the time.%s",
		(long long)b.collectives, fo_health_num(h, share, FO_DRAW_SHARE), why);
	fo_health_evidence(h, q, "%s: %s of %s idle", fo_health_unit(h, s.rank, s.device), ms(h, b.idle),
			   ms(h, b.span));
	if (b.gap > 0)
		fo_health_evidence(h, q, "the longest gap: %s, %s after the trace's begin", ms(h, b.gap),
				   ms(h, b.gap_at));
	if (q->bad && (cause == FO_IDLE_UNKNOWN || cause == FO_IDLE_HOST_OTHER))
		q->record = "what the host did meanwhile: the same trace with with_stack=True, or nsys profile "
			    "--trace=cuda,nvtx,osrt --python-sampling=true";
}

/* ---- NCCL ---- */

/* What to run on the job's own devices; what it writes into files is read by `flatout health`. */
static const char *nccl_commands(struct fo_health *h)
{
	double node = isnan(h->cluster.per_node) ? 8 : h->cluster.per_node;
	const char *all = isnan(h->devices) ? "DEVICES" : fo_health_text(h, "%.0f", h->devices);
	const char *each = fo_health_text(h, "%.0f", isnan(h->devices) ? node : fmin(node, h->devices));
	return fo_health_text(h,
			      "mpirun -np %s -N %s -x NCCL_DEBUG=INFO -x NCCL_DEBUG_SUBSYS=INIT,NET,ENV,TUNING \\\n"
			      "    all_reduce_perf -b 8M -e 1G -f 2 -g 1 > nccl.txt   # github.com/NVIDIA/nccl-tests\n"
			      "nvidia-smi topo -m > topo.txt; nvidia-smi -q > smi.txt; ibstat > ibstat.txt\n"
			      "env | grep -E 'NCCL|UCX|TORCH_NCCL' > env.txt",
			      all, each);
}

/* Collectives of fewer bytes are bound by latency, whatever the network. */
static const int64_t LARGE = (int64_t)16 << 20;
/* A tuned all-reduce of large messages comes near its links: NVIDIA reports 82 to 92 % for nccl-tests on DGX systems;
 * below half of the link something else limits it. */
static const double NEAR = 0.7;

/* The fastest large all-reduce: bytes per second that each device sends (busbw of nccl-tests, PERFORMANCE.md). */
static double best_bandwidth(const struct fo_subject *s, int64_t *op)
{
	double best = NAN;
	for (int64_t i = 0; i < s->t->gpu_count; i++) {
		const struct fo_gpu_op *g = &s->t->gpu[i];
		if (g->device != s->id || g->class != FO_K_COMMUNICATION || g->collective < 0)
			continue;
		const struct fo_collective *c = &s->t->collective[g->collective];
		if (c->bytes < LARGE || c->group_size < 2 || g->end_ns <= g->begin_ns ||
		    !fo_text_mentions(fo_trace_text(s->t, c->name), "allreduce"))
			continue;
		double v = 2.0 * (c->group_size - 1) / c->group_size * (double)c->bytes /
			   ((double)(g->end_ns - g->begin_ns) * 1e-9);
		if (isnan(best) || v > best) {
			best = v;
			*op = i;
		}
	}
	return best;
}

/* How many ranks of a collective's group share a node, and so how many adapters carry it. Of a group of all devices it
 * follows from the node; else the trace's list of ranks tells, where it is complete. */
static struct fo_range ranks_on_a_node(const struct fo_health *h, const struct fo_trace *t,
				       const struct fo_collective *c, double node)
{
	const struct fo_range unknown = { 1, fmin(node, c->group_size) };
	double at = NAN, here = 0, fewest = INFINITY, most = 0;
	int read = 0;
	if (c->group_size == h->devices)
		return fo_range(unknown.high);
	for (const char *p = fo_trace_text(t, c->members); (p = strpbrk(p, "0123456789")); read++) {
		char *end;
		double on = floor((double)strtol(p, &end, 10) / node);
		if (on != at && here > 0)
			fewest = fmin(fewest, here);
		here = on == at ? here + 1 : 1;
		at = on;
		most = fmax(most, here);
		p = end;
	}
	return read == c->group_size ? (struct fo_range){ fmin(fewest, here), most } : unknown;
}

/* NCCL's protocol LL stores a flag beside every four bytes, which leaves half of the link's rate (NCCL's
 * tuning table: tuning.cc, commit 5067397c). */
static void say_protocol(struct fo_health *h, struct fo_health_question *q, const char *kernel, int64_t bytes)
{
	if (strstr(kernel, "_LL") && !strstr(kernel, "_LL128"))
		fo_health_evidence(h, q,
				   "its kernel uses NCCL's protocol LL on %s: LL moves about half of the links' rate "
				   "and is meant for small messages",
				   fo_health_num(h, (double)bytes, FO_DRAW_BYTES));
}

/* Rate that the links leave a ring, GB/s (as src/predict/time.c has it): within a node the link between devices; beyond
 * it the adapters of all ranks of the group on a node together, which the link within may limit. */
static double rate_of_links(const struct fo_health *h, double on_a_node, double net, int group)
{
	double inside = h->device->scaleup_gb_s > 0 ? h->device->scaleup_gb_s : INFINITY;
	if (on_a_node >= group)
		return inside;
	return on_a_node > 1 ? fmin(inside, on_a_node * net) : net;
}

/* Says what the fastest collective of the trace shows. A fast one proves the network; a slow one of one rank may have
 * waited. */
static void bandwidth(struct fo_health *h, struct fo_health_question *q)
{
	struct fo_subject s;
	int64_t op = -1;
	if (!fo_health_step(h, &s) || !h->device)
		return;
	double best = best_bandwidth(&s, &op);
	if (isnan(best))
		return;
	const struct fo_gpu_op *g = &s.t->gpu[op];
	const struct fo_collective *c = &s.t->collective[g->collective];
	double node = isnan(h->cluster.per_node) ? h->device->scaleup_devices : h->cluster.per_node;
	if (!(node >= 1))
		return;
	bool stated = fo_range_known(h->cluster.net_gb_s) && !h->cluster.net_assumed;
	double net = stated ? h->cluster.net_gb_s.high : h->device->scaleout_gbit_s / 8;
	struct fo_range ranks = ranks_on_a_node(h, s.t, c, node);
	struct fo_range link = { rate_of_links(h, ranks.low, net, c->group_size),
				 rate_of_links(h, ranks.high, net, c->group_size) };
	if (!(link.low > 0 && link.high >= link.low && isfinite(link.high)))
		return;
	q->figure = (struct fo_range){ best / (link.high * 1e9), best / (link.low * 1e9) };
	q->figure_of = "of the link between devices of a node, by the fastest large all-reduce";
	if (ranks.low < c->group_size)
		q->figure_of = fo_health_text(
			h, "of %s network adapter%s of a node (%s), by the fastest large all-reduce",
			fo_health_range(&h->arena, ranks, FO_DRAW_NUMBER), ranks.high > 1 ? "s" : "",
			stated ? "as the cluster states them" : "usual for this device");
	fo_health_evidence(h, q, "%s: the fastest all-reduce of %d devices moves %.3g GB/s per device, of %s GB/s",
			   fo_health_unit(h, s.rank, s.device), c->group_size, best * 1e-9,
			   fo_health_range(&h->arena, link, FO_DRAW_NUMBER));
	say_protocol(h, q, fo_trace_text(s.t, g->name), c->bytes);
	if (ranks.low != ranks.high) {
		q->because =
			"The trace does not tell how many ranks of the group share a node, and so how many network "
			"adapters carry a large all-reduce.";
	} else if (q->figure.low >= NEAR) {
		q->answer = FO_HEALTH_YES;
		q->because = "A large all-reduce comes near the speed of the links, so NCCL uses them.";
	} else {
		q->because =
			"No large all-reduce of this trace comes near the speed of the links; one rank's trace does "
			"not tell whether the network is slow or another rank was late.";
	}
}

/* What the files of hosts show of NCCL and its network. */
struct host_findings {
	int slow, idle; /* what slows the network; settings without an effect. Notes are neither */
	bool serious;
	const char *worst; /* the title of the first serious one; NULL */
};

static struct host_findings host_findings(struct fo_health *h, struct fo_health_question *q)
{
	struct host_findings x = { 0 };
	for (size_t i = 0; i < h->host_audit.count; i++) {
		const struct fo_audit_finding *f = &h->host_audit.finding[i];
		if (!fo_health_of_network(f))
			continue;
		fo_health_evidence(h, q, "%s: %s (%s)", fo_audit_level_name[f->level], f->title, f->evidence);
		if (f->level == FO_AUDIT_NOTE)
			continue;
		/* The audit's words for a setting that this network does not read or does not need. */
		if (fo_text_mentions(f->title, "does nothing") || fo_text_mentions(f->title, "it does not turn"))
			x.idle++;
		else
			x.slow++;
		if (f->level == FO_AUDIT_SERIOUS && !x.worst)
			x.worst = f->title;
	}
	x.serious = x.worst != NULL;
	return x;
}

static const char *findings_words(struct fo_health *h, struct host_findings x)
{
	const char *slow = fo_health_text(h, "%d finding%s slow%s the network", x.slow, fo_plural(x.slow),
					  fo_word(x.slow, "s", ""));
	const char *idle = fo_health_text(h, "%d setting%s %s no effect", x.idle, fo_plural(x.idle),
					  fo_word(x.idle, "has", "have"));
	if (x.slow && x.idle)
		return fo_health_text(h, "%s, %s", slow, idle);
	return x.slow ? slow : idle;
}

static const char *transport(struct fo_health *h)
{
	for (size_t i = 0; i < h->host.hosts; i++) {
		const struct fo_host_fact *net = fo_host_told(&h->host.host[i], FO_HOST_NET);
		if (net)
			return fo_health_text(h, "NCCL uses %s (%s:%lld)", net->text, fo_text_file_name(net->file),
					      (long long)net->line);
	}
	return NULL;
}

static void ask_nccl(struct fo_health *h, struct fo_health_question *q)
{
	const char *used = transport(h);
	bandwidth(h, q);
	if (used)
		fo_health_evidence(h, q, "%s", used);
	struct host_findings x = host_findings(h, q);
	if (x.slow && (x.serious || q->answer != FO_HEALTH_YES)) {
		q->answer = FO_HEALTH_NO;
		q->bad = true;
		q->statement = x.worst ? fo_health_clause(h, x.worst) : NULL;
		q->figure_shown = x.worst ? NULL : findings_words(h, x);
	}
	if (x.slow || x.idle) {
		/* What the speed shows stands before it, where it is not what the answer denies. */
		bool keep = q->because && q->answer != FO_HEALTH_NO;
		const char *found = findings_words(h, x);
		q->because = keep ? fo_health_text(h, "%s %s.", q->because, found) : fo_health_text(h, "%s.", found);
	}
	if (q->answer != FO_HEALTH_UNKNOWN)
		return;
	if (h->hosted && !x.idle)
		q->because =
			"No setting in the files of hosts is wrong for this network, as far as they tell; whether the "
			"links reach their speed they do not tell.";
	else if (!q->because)
		q->because = "No file of a host and no trace with the sizes of its collectives is given.";
	q->record =
		h->hosted
			? "the speed of nccl-tests on the nodes of the job"
			: "the environment and the topology of two hosts, NCCL's own log, and the speed of nccl-tests";
	q->paste = nccl_commands(h);
}

/* ---- all four ---- */

void fo_health_ask_all(struct fo_health *h)
{
	static const struct {
		const char *id, *label, *text, *yes, *no;
		void (*ask)(struct fo_health *h, struct fo_health_question *q);
	} asks[FO_HEALTH_ASKS] = {
		[FO_HEALTH_COMMUNICATION] = { "communication", "Communication",
					      "Is communication above half of the step?", "above half of the step",
					      "not above half of the step", ask_communication },
		[FO_HEALTH_SCALING] = { "scaling", "Scaling", "Does efficiency per GPU fall beyond 8 GPUs?",
					"efficiency per GPU falls beyond 8", "efficiency per GPU holds beyond 8",
					fo_health_ask_scaling },
		[FO_HEALTH_IDLE] = { "idle", "Idle", "Do GPUs idle between all-reduces?",
				     "GPUs idle between all-reduces", "GPUs do not idle between all-reduces",
				     ask_idle },
		[FO_HEALTH_NCCL] = { "nccl", "NCCL", "Is NCCL tuned for this topology?", "tuned for this topology",
				     "not tuned for this topology", ask_nccl },
	};
	for (int i = 0; i < FO_HEALTH_ASKS; i++) {
		struct fo_health_question *q = &h->question[i];
		*q = (struct fo_health_question){
			.id = asks[i].id, .text = asks[i].text, .label = asks[i].label, .figure = fo_range(NAN)
		};
		if (i != FO_HEALTH_IDLE && fo_health_alone(h))
			does_not_apply(q);
		else
			asks[i].ask(h, q);
		if (!q->statement && (q->answer == FO_HEALTH_YES || q->answer == FO_HEALTH_NO))
			q->statement = q->answer == FO_HEALTH_YES ? asks[i].yes : asks[i].no;
		/* Findings of hosts deny it, not the figure. */
		bool by_figure = q->answer != FO_HEALTH_UNKNOWN && (i != FO_HEALTH_NCCL || q->answer == FO_HEALTH_YES);
		if (!q->figure_shown && by_figure && fo_range_known(q->figure))
			q->figure_shown = fo_health_range(&h->arena, q->figure, FO_DRAW_SHARE);
	}
}
