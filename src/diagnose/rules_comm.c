/* Communication that no compute hides: waiting for a late rank before transfer, many small all-reduces; and copies. */
#include "diagnose/findings_int.h"

#include "base/str.h"
#include "base/count.h"
#include "base/text.h"

#include <math.h>
#include <string.h>

/* A collective of NCCL holds 16 to 32 thread blocks, one per unit and channel (nccl 5067397c src/graph/connect.cc:
 * channels are doubled up to 16 of themselves, users may ask for 32), of the 132 units of an H100: what is hidden slows
 * the compute above it by at most that. */
#define CONTENTION_SHARE (32.0 / 132.0)

/* ---- a device of any rank ---- */

static struct fo_subject other(const struct fo_subject *s, int rank, int64_t device)
{
	struct fo_subject o;
	fo_subject_device(&o, s->d, &s->d->rank[rank], &s->d->rank[rank].device[device]);
	return o;
}

/* Waiting over all devices of all ranks: where most, and on average. */
struct waiting {
	struct fo_subject most;
	double greatest, mean; /* shares of the step */
	int64_t mean_ns;
	int devices;
};

/* A pipeline's bubble is no rank that is late: its schedule has it. */
static int64_t late_ns(const struct fo_ledger *l) { return l->exposed_wait_ns - l->exposed_bubble_ns; }

static struct waiting waiting_of(const struct fo_subject *s)
{
	struct waiting w = { .most = *s };
	int64_t sum = 0;
	for (int i = 0; i < s->d->ranks; i++)
		for (int64_t k = 0; k < s->d->rank[i].devices; k++) {
			struct fo_subject o = other(s, i, k);
			if (o.l.span_ns <= 0)
				continue;
			double share = (double)late_ns(&o.l) / (double)o.l.span_ns;
			if (share > w.greatest) {
				w.greatest = share;
				w.most = o;
			}
			sum += late_ns(&o.l);
			w.mean += share;
			w.devices++;
		}
	w.mean_ns = w.devices ? sum / w.devices : 0;
	w.mean = w.devices ? w.mean / w.devices : 0;
	return w;
}

/* Names the late rank, the row of the ledger in which it exceeds the others, and the cure of that cause. */
static void name_culprit(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	const struct fo_culprit *x = &d->culprit;
	static const char *const cure[] = {
		[FO_CULPRIT_NONE] = "",
		[FO_CULPRIT_ONCE] = " The trace has one step only, so it is not known to recur: record several steps.",
		[FO_CULPRIT_LOADS] = " Look at its data loader.",
		[FO_CULPRIT_LAUNCHES] = " Look at its host.",
		[FO_CULPRIT_WAITS] = " Look at what its host waits for.",
		[FO_CULPRIT_HOST] = " Look at what its host does between steps.",
		[FO_CULPRIT_COMPUTES] = " Its work is larger, or its GPU slower.",
		[FO_CULPRIT_MOVES] = "",
	};
	if (x->at < 0 || x->at >= d->waits)
		return;
	const struct fo_rank_wait *w = &d->wait[x->at];
	fo_why(f, " %.0f %% of all waiting is for rank %d. It was last in %lld of %lld collectives.", 100 * x->share,
	       w->rank, (long long)w->last, (long long)w->matched);
	if (!x->row)
		return;
	if (strcmp(x->row, "late_begin") == 0)
		fo_why(f, " Its step began %s after the others'.", FO_NS(x->excess_ns));
	else
		fo_why(f, " It has %s a step more than the median in: %s.", FO_NS(x->excess_ns), fo_row_words(x->row));
	fo_why(f, "%s", cure[c->facts->culprit]);
}

static bool comm_wait(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_diagnosis *d = c->s->d;
	struct waiting w = waiting_of(c->s);
	if (w.greatest <= FO_SHARE_ADVICE)
		return false;
	f->serious = w.greatest > FO_SHARE_SERIOUS;
	/* If all arrived when the average rank does, what the ranks wait on average would go; if only the one that is
	 * late most often were as the others, its part of that. */
	fo_gain_of(c, f, w.mean_ns,
		   (struct fo_gain){
			   .least = d->culprit.at >= 0 ? d->culprit.share : 0, .most = 1, .frees_ns = INT64_MAX });
	fo_title(f, "ranks wait for a late one: up to %.1f %% of a step, %.1f %% on average", 100 * w.greatest,
		 100 * w.mean);
	fo_why(f,
	       "On rank %d communication kernels ran alone for %s of a step because another rank had not arrived. A "
	       "faster network would not change it.",
	       w.most.rank->rank, FO_NS(late_ns(&w.most.l)));
	name_culprit(c, f);
	fo_evidence_kernels(f, &w.most, (uint64_t)1 << FO_K_COMMUNICATION);
	return true;
}

/* Exposed communication holds the step up only where compute begins right after it. */
static int64_t blocking(const struct fo_ledger *l, int64_t ns)
{
	if (l->exposed_comm_ns <= 0)
		return 0;
	double share = (double)l->blocking_comm_ns / (double)l->exposed_comm_ns;
	return (int64_t)((double)ns * fmin(share, 1));
}

/* The kind of most communication, as the beginning of a sentence. */
static const char *kind_words(const struct fo_rule_context *c)
{
	static const char *const words[FO_COMM_KINDS] = {
		[FO_COMM_ALL_REDUCE] = "all-reduces",
		[FO_COMM_REDUCE_SCATTER] = "reduce-scatters",
		[FO_COMM_ALL_GATHER] = "all-gathers",
		[FO_COMM_ALL_TO_ALL] = "all-to-alls",
		[FO_COMM_POINT_TO_POINT] = "sends and receives",
		[FO_COMM_OTHER] = "communication",
	};
	const struct fo_comm_kinds *x = &c->facts->comm;
	for (int i = 0; i < FO_COMM_KINDS; i++)
		if (10 * x->ns[i] > 6 * x->all_ns)
			return words[i];
	return "communication";
}

/* ---- many small all-reduces ---- */

/* So many a step that gathering them is worth while, each so short that it is latency: an all-reduce over eight GPUs
 * takes 10 to 30 us however few its bytes (nccl-tests: flat up to about 256 KB), and in 50 us links of 100 GB/s move 5
 * MB, a fifth of DDP's bucket. */
enum { SMALL_REDUCES = 16 };
#define SMALL_NS INT64_C(50000)
#define BUCKET_BYTES INT64_C(25000000) /* DistributedDataParallel(bucket_cap_mb=25), the default */

/* The part of them that no compute hides and that is not known to be waiting; 0: there are none. */
static int64_t small_ns(const struct fo_rule_context *c)
{
	const struct fo_comm_kinds *x = &c->facts->comm;
	const struct fo_ledger *l = &c->s->l;
	if (x->reduces < SMALL_REDUCES || x->reduce_median_ns > SMALL_NS || c->s->d->forward_only ||
	    x->reduce_ns <= 0 || l->comm_ns <= 0)
		return 0;
	double share = (double)x->reduce_ns * (double)c->s->steps / (double)x->all_ns;
	int64_t ns = (int64_t)(share * (double)(l->exposed_transfer_ns + l->exposed_comm_unknown_ns));
	return fo_share(c, ns) > FO_SHARE_ADVICE ? ns : 0;
}

static bool small_reduces(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_comm_kinds *x = &c->facts->comm;
	int64_t ns = small_ns(c);
	if (ns == 0)
		return false;
	int64_t buckets = x->reduce_bytes / BUCKET_BYTES + 1;
	double most = buckets < x->reduces ? 1 - (double)buckets / (double)x->reduces : 0;
	fo_notable(c, f, ns);
	/* Recorded sizes tell that a few larger ones would do. */
	fo_gain_of(c, f, ns, (struct fo_gain){ .least = x->reduce_bytes > 0 ? FO_GAIN_HALF * most : 0, .most = most });
	fo_title(f, "%lld small all-reduces a step, %s each: %.1f %% of the step that nothing hides",
		 (long long)x->reduces, FO_NS(x->reduce_median_ns), fo_percent(c, ns));
	fo_why(f, "So short a one is latency, not transfer: its time hardly depends on its bytes.");
	if (x->reduce_bytes > 0)
		fo_why(f, " All together move %.3g MB.", (double)x->reduce_bytes / 1e6);
	fo_why(f, c->facts->ddp ? " DistributedDataParallel is there: raise bucket_cap_mb."
				: " No DistributedDataParallel is in the trace. Gather gradients in buckets: it does "
				  "that, as does one all-reduce of a flattened buffer.");
	return true;
}

/* ---- transfer, or what may be it ---- */

/* The part of `ns` exposed communication that neither comm-small nor pipeline counts: in a pipeline's bubble stages
 * wait to receive. */
static int64_t besides(const struct fo_rule_context *c, int64_t ns)
{
	const struct fo_ledger *l = &c->s->l;
	const struct fo_comm_kinds *x = &c->facts->comm;
	int64_t all = l->exposed_transfer_ns + l->exposed_comm_unknown_ns, said = small_ns(c);
	if (all <= 0 || x->all_ns <= 0)
		return ns;
	if (fo_pipeline_bubble(&c->s->d->pipeline) > FO_SHARE_ADVICE)
		said += (int64_t)((double)all * (double)x->ns[FO_COMM_POINT_TO_POINT] / (double)x->all_ns);
	return ns - (int64_t)((double)fo_min(said, all) * (double)ns / (double)all);
}

static bool comm_transfer(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	int64_t ns = besides(c, l->exposed_transfer_ns);
	if (!fo_notable(c, f, ns))
		return false;
	/* No more can hide than there is compute to hide under. */
	int64_t removable = fo_min(ns, l->comp_ns);
	fo_gain_of(c, f, removable,
		   (struct fo_gain){ .least = FO_GAIN_HALF * (double)blocking(l, removable) /
					      (double)(removable ? removable : 1),
				     .most = 1,
				     .reappear_ns = (int64_t)(CONTENTION_SHARE * (double)removable) / 2 });
	fo_title(f, "%s that nothing hides: %.1f %% of the step is transfer", kind_words(c), fo_percent(c, ns));
	fo_why(f,
	       "Communication takes %s of a step. %s of it lie under no compute, and in %s of those data moves while "
	       "all ranks are there. Overlap it (prefetch%s), send less, or look at the links.",
	       FO_NS(l->comm_ns), FO_NS(l->exposed_comm_ns), FO_NS(l->exposed_transfer_ns),
	       c->facts->comm.reduces > 2 ? ", larger or fewer collectives" : "");
	return true;
}

static bool comm_unknown(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	const struct fo_diagnosis *d = c->s->d;
	int64_t ns = besides(c, l->exposed_comm_unknown_ns);
	if (!fo_notable(c, f, ns))
		return false;
	fo_gain_usual(c, f, ns, 0);
	fo_title(f, "%s that nothing hides: %.1f %% of the step", kind_words(c), fo_percent(c, ns));
	fo_why(f, "Communication takes %s of a step, and %s of it lie under no compute.", FO_NS(l->comm_ns),
	       FO_NS(l->exposed_comm_unknown_ns));
	if (d->ranks > 1 && d->ranks >= c->s->t->world_size && c->s->t->rank_from != FO_RANK_ORDER)
		fo_why(f, " Traces do not say whether a rank waited or data moved where not all ranks take part, nor "
			  "point to point or with unequal parts.");
	else
		fo_why(f, " One rank's trace cannot say whether this rank waited for a late one or data "
			  "moved. Give the traces of the other ranks too, from the same steps.");
	fo_why(f, " Waiting calls for an even load, transfer for overlap or faster links.");
	return true;
}

/* ---- copies ---- */

static bool copies(const struct fo_rule_context *c, struct fo_finding *f)
{
	const struct fo_ledger *l = &c->s->l;
	if (!fo_notable(c, f, l->exposed_mem_ns))
		return false;
	/* Pageable memory is copied twice by the processor's side, first into a pinned buffer (CUDA best practices
	 * guide, 9.1.1): pinning saves half of those at least; a copy on another stream while compute runs saves all of
	 * it, as far as there is compute. */
	double all = (double)l->exposed_mem_ns, pageable = (double)l->exposed_pageable_ns / all;
	double hidden = fmin(1, (double)l->comp_ns / all), least = FO_GAIN_HALF * pageable;
	fo_gain_of(c, f, l->exposed_mem_ns, (struct fo_gain){ .least = least, .most = fmax(hidden, least) });
	fo_title(f, "copies%s that nothing hides: %.1f %% of the step", pageable > 0.5 ? " of pageable memory" : "",
		 fo_percent(c, l->exposed_mem_ns));
	const char *before = "The device only copied: ";
	for (int i = 0; i < FO_COPY_COUNT; i++)
		if (l->copy_ns[i] * 100 > l->exposed_mem_ns) {
			fo_why(f, "%s%s %s", before, fo_copy_words[i], FO_NS(l->copy_ns[i]));
			before = ", ";
		}
	fo_why(f, ".");
	fo_copy_words_of(c, f);
	if (pageable >= FO_SHARE_SERIOUS) /* pinning less than a tenth would change nothing */
		fo_why(f,
		       " %.0f %% of it is from or to pageable host memory. Such copies pass a second buffer and make "
		       "the host wait.",
		       100 * pageable);
	return true;
}

/* ---- how ranks communicate ---- */

static bool backend(const struct fo_rule_context *c, struct fo_finding *f)
{
	const char *name = fo_trace_text(c->s->t, c->s->t->backend);
	/* NCCL, UCC and XCCL move data between GPUs themselves; gloo and mpi without CUDA go through host memory. */
	if (!name[0] || !c->s->t->defect.has_host_ops || strstr(name, "nccl") || strstr(name, "ucc") ||
	    strstr(name, "xccl") || c->s->l.comm_ns > 0)
		return false;
	char shown[24];
	fo_evidence_named(f, c->s, "gloo:");
	fo_evidence_named(f, c->s, "mpi:");
	fo_gain_none(f); /* the trace does not show what it costs */
	fo_title(f, "collectives go through the host: backend '%s'", fo_str_visible(shown, sizeof(shown), name));
	fo_why(f,
	       "With GPUs that backend copies to host memory and back for each collective. %s moves data between "
	       "GPUs.",
	       c->facts->words->collectives);
	return true;
}

static bool data_parallel(const struct fo_rule_context *c, struct fo_finding *f)
{
	if (!c->facts->data_parallel || c->s->rank->devices < 2)
		return false;
	fo_gain_none(f); /* the trace does not show what it costs */
	fo_title(f, "torch.nn.DataParallel drives %lld GPUs from one process", (long long)c->s->rank->devices);
	fo_why(f, "One Python process launches for all devices, copies the model to each in every step and gathers on "
		  "one. DistributedDataParallel has one process per GPU.");
	fo_evidence_named(f, c->s, "DataParallel.forward");
	return true;
}

#define COMMUNICATION (1u << FO_K_COMMUNICATION)
const struct fo_rule_row fo_rules_comm[] = {
	{ "comm-wait", FO_FIND_COMM_WAIT, .holds = comm_wait },
	{ "comm-transfer", FO_FIND_COMM_TRANSFER, .holds = comm_transfer, .kernels = COMMUNICATION },
	{ "comm-unknown", FO_FIND_COMM, .holds = comm_unknown, .kernels = COMMUNICATION },
	{ "copies", FO_FIND_COPIES, .holds = copies, .kernels = 1u << FO_K_MEMORY },
	{ "comm-backend", FO_FIND_COMM_TRANSFER, .holds = backend },
	{ "data-parallel", FO_FIND_HOST, .holds = data_parallel },
	{ "comm-small", FO_FIND_COMM_TRANSFER, .holds = small_reduces, .kernels = COMMUNICATION },
	{ .id = NULL },
};
