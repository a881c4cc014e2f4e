/* Much of something small: all-reduces that are each too short for their links, kernels that only turn layouts around.
 */
#include "diagnose/findings_int.h"

#include <stdio.h>
#include <string.h>

/* ---- many small all-reduces ---- */

/* So many a step that gathering them is worth while, each so short that it is latency: an all-reduce over eight GPUs
 * takes 10 to 30 us however few its bytes (nccl-tests: flat up to about 256 KB), and in 50 us links of 100 GB/s move 5
 * MB, a fifth of DDP's bucket. */
enum { SMALL_REDUCES = 16 };
#define SMALL_NS INT64_C(50000)
#define BUCKET_BYTES INT64_C(25000000) /* DistributedDataParallel(bucket_cap_mb=25), the default */

/* The part of them that no compute hides and that is not known to be waiting; 0: there are none. */
int64_t fo_small_reduces(const struct fo_rule_context *c)
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
	int64_t ns = fo_small_reduces(c);
	if (ns == 0)
		return false;
	int64_t buckets = x->reduce_bytes / BUCKET_BYTES + 1;
	double most = buckets < x->reduces ? 1 - (double)buckets / (double)x->reduces : 0;
	char a[24], bytes[80] = "";
	if (x->reduce_bytes > 0)
		snprintf(bytes, sizeof(bytes), " All together move %.3g MB.", (double)x->reduce_bytes / 1e6);
	f->serious = fo_share(c, ns) > FO_SHARE_SERIOUS;
	/* Where sizes are recorded it is known that a few would do. */
	fo_gain_solve(&(struct fo_gain){ .step_ns = c->s->l.span_ns,
					 .removable_ns = ns,
					 .least = x->reduce_bytes > 0 ? FO_GAIN_HALF * most : 0,
					 .most = most,
					 .floor_ns = c->floor_ns },
		      f);
	snprintf(f->title, sizeof(f->title),
		 "%lld small all-reduces a step, %s each: %.1f %% of the step that nothing hides",
		 (long long)x->reduces, fo_ns_text(a, x->reduce_median_ns), 100 * fo_share(c, ns));
	snprintf(f->why, sizeof(f->why),
		 "So short a one is latency, not transfer: its time hardly depends on its bytes.%s %s", bytes,
		 c->facts->ddp ? "DistributedDataParallel is there: raise bucket_cap_mb."
			       : "No DistributedDataParallel is in the trace. Gather gradients in buckets: it does "
				 "that, as does one all-reduce of a flattened buffer.");
	fo_evidence_kernels(f, c->s, (uint64_t)1 << FO_K_COMMUNICATION);
	return true;
}

/* ---- layouts ---- */

static bool conv_layout(const struct fo_rule_context *c, struct fo_finding *f)
{
	int64_t n, ns = fo_layout_ns(c, fo_turns_layout, f, &n);
	/* Half the usual mark, for the convolutions between them gain as well from the layout that suits them. */
	if (fo_share(c, ns) <= FO_SHARE_ADVICE / 2)
		return false;
	f->serious = fo_share(c, ns) > FO_SHARE_SERIOUS;
	fo_gain_usual(c, f, ns, FO_GAIN_HALF);
	snprintf(f->title, sizeof(f->title),
		 "convolutions turn their layout around: %.1f %% of the step in %lld kernels", 100 * fo_share(c, ns),
		 (long long)n);
	snprintf(f->why, sizeof(f->why),
		 "The matrix units take images with their channels last (NHWC); tensors are stored as NCHW and are "
		 "converted around each convolution. Stored with channels last they need no conversion.");
	return true;
}

const struct fo_rule_row fo_rules_small[] = {
	{ "comm-small", FO_FIND_COMM_TRANSFER, small_reduces },
	{ "conv-layout", FO_FIND_MEMORY_BOUND, conv_layout },
	{ NULL, FO_FIND_VALIDITY, NULL },
};
