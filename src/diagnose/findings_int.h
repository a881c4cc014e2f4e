/* Inside the files that turn ledgers into advice: what bridge, products, facts, evidence, rules_*.c, gain, settings and
 * findings share. */
#ifndef FO_DIAGNOSE_FINDINGS_INT_H
#define FO_DIAGNOSE_FINDINGS_INT_H

#include "base/str.h"
#include "diagnose/diagnose.h"
#include "hw/catalogue.h"

/* ---- the subject of all of them: one device of the critical rank, in the step that is shown ---- */

/* fo_shown_device of the slowest rank and its fo_shown_step. false: no device with GPU operations. */
bool fo_subject_of(const struct fo_diagnosis *d, struct fo_subject *out);
void fo_subject_device(struct fo_subject *out, const struct fo_diagnosis *d, const struct fo_rank_ledger *r,
		       const struct fo_device_ledger *v);
/* The GPU operations of a device that begin before `end` and are not over by `begin`: first and one past the last of
 * t->gpu (others of the same device may lie between whose end comes earlier). */
void fo_subject_ops(const struct fo_trace *t, int16_t device, int64_t begin, int64_t end, int64_t *first,
		    int64_t *last);
/* The same of the subject's step: its first, and one past its last. */
const struct fo_gpu_op *fo_shown_ops(const struct fo_subject *s, const struct fo_gpu_op **end);

/* ---- gaps of a window ---- */

struct fo_idle_gap {
	int64_t begin_ns, end_ns;
	int64_t idle_ns[FO_IDLE_COUNT]; /* sums to it */
	int64_t op;                     /* in t->gpu: what ended it; -1: nothing did */
};
/* The times in which no operation of the device runs in the subject's step, divided as the ledger divides them; *out is
 * freed with free(). */
int64_t fo_idle_gaps(const struct fo_subject *s, struct fo_idle_gap **out);

/* ---- evidence ---- */

/* Each fills f->evidence with at most FO_EVIDENCE_MAX events, the longest first, those of different kernels or
 * operators preferred. */
void fo_evidence_kernels(struct fo_finding *f, const struct fo_subject *s,
			 uint64_t classes); /* bits 1 << fo_kernel_class */
/* One GPU operation with its operator and module; fo_evidence_kernel puts it behind those there are, for which there
 * must be room. */
void fo_evidence_placed(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o);
void fo_evidence_kernel(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o);
/* The same with another text for what it belongs to; NULL: none. */
void fo_evidence_gpu(struct fo_finding *f, const struct fo_subject *s, const struct fo_gpu_op *o, const char *of);
/* An event of the subject's rank and device. */
void fo_evidence_at(struct fo_finding *f, const struct fo_subject *s, int64_t begin_ns, int64_t duration_ns,
		    const char *name);
void fo_evidence_host(struct fo_finding *f, const struct fo_subject *s, enum fo_host_kind kind);
/* The operator, module or annotation that the thread which ended a gap was in for most of it, innermost; -1. */
int32_t fo_idle_gap_operator(const struct fo_subject *s, const struct fo_idle_gap *g);
/* The launching call (in t->launch) that held that thread for most of the gap; -1: none did. */
int64_t fo_idle_gap_call(const struct fo_subject *s, const struct fo_idle_gap *g);
/* Gaps of which at least half has one of these causes (bits 1 << fo_idle_cause), those of a length between `least` and
 * `most` ns. */
void fo_evidence_gaps(struct fo_finding *f, const struct fo_subject *s, const struct fo_idle_gap *gap, int64_t gaps,
		      unsigned causes, int64_t least, int64_t most);
/* Time by name, of the first names that are added; a zeroed one is empty. */
enum { FO_TALLY_NAMES = 64 };
struct fo_tally {
	int n;
	struct fo_tally_row {
		int32_t name, first, longest; /* operators: the first that was added, the longest */
		int64_t ns, longest_ns;
	} * best, v[FO_TALLY_NAMES]; /* best: most time; NULL: none */
};
void fo_tally_add(struct fo_tally *t, int32_t name, int32_t op, int64_t ns);
/* Host operators of any kind whose name contains this, anywhere in the trace. */
void fo_evidence_named(struct fo_finding *f, const struct fo_subject *s, const char *part);
void fo_evidence_add(struct fo_finding *f, int rank, int16_t device, int64_t begin_ns, int64_t duration_ns,
		     const char *name, const char *of); /* of: NULL or the operator and module */

/* ---- what a trace shows of the program ---- */

/* Why the rank that others wait for is late, as far as its ledger beyond the others' tells. */
enum fo_culprit_cause {
	FO_CULPRIT_NONE, /* nobody waits, or nothing tells */
	FO_CULPRIT_ONCE, /* it began later, in a trace of one step */
	FO_CULPRIT_LOADS,
	FO_CULPRIT_LAUNCHES,
	FO_CULPRIT_WAITS,    /* for its GPU, or allocates */
	FO_CULPRIT_HOST,     /* what the trace does not show, or steps that begin later */
	FO_CULPRIT_COMPUTES, /* longer than the others */
	FO_CULPRIT_MOVES,    /* copies, transfers, gaps: no cure known */
};
enum fo_culprit_cause fo_culprit_cause(const struct fo_diagnosis *d);

/* ---- whose device it is (vendor.c) ---- */

enum fo_vendor { FO_VENDOR_NVIDIA, FO_VENDOR_AMD, FO_VENDOR_INTEL, FO_VENDOR_CPU, FO_VENDOR_COUNT };
struct fo_vendor_words {
	const char *tool;        /* "nvidia-smi" */
	const char *clocks;      /* the command that tells why clocks fell */
	const char *graphs;      /* "CUDA graphs" */
	const char *collectives; /* "NCCL" */
	const char *units;       /* "tensor cores" */
	const char *links;       /* "NVLink" */
	const char *type;        /* what PyTorch calls the device: "device_type=\"cuda\"" */
	const char *allocator;   /* "PYTORCH_CUDA_ALLOC_CONF" */
};
enum fo_vendor fo_vendor_of(const struct fo_trace *t, int16_t device);
const struct fo_vendor_words *fo_vendor_words(enum fo_vendor v);
/* 10 x major + minor of the chip that a name holds; 0 unknown. */
int fo_capability_of_name(const char *name);

/* ---- kinds of communication (comm_kinds.c) ---- */

enum fo_comm_kind {
	FO_COMM_ALL_REDUCE,
	FO_COMM_REDUCE_SCATTER,
	FO_COMM_ALL_GATHER,
	FO_COMM_ALL_TO_ALL,
	FO_COMM_POINT_TO_POINT,
	FO_COMM_OTHER,
	FO_COMM_KINDS
};
struct fo_comm_kinds {
	int64_t ns[FO_COMM_KINDS], all_ns; /* durations over all steps of the subject */
	bool tensor_parallel;
	int64_t reduces, reduce_ns, reduce_median_ns,
		reduce_bytes; /* all-reduces of a step that are not tensor-parallel; bytes 0: unknown */
};
void fo_comm_kinds_of(const struct fo_subject *s, struct fo_comm_kinds *out);

struct fo_facts {
	const char *framework; /* "PyTorch", "TorchTitan", "Megatron-LM", "DeepSpeed", "vLLM" */
	enum fo_vendor vendor;
	const struct fo_vendor_words *words; /* of that vendor */
	bool loader, loader_inline;          /* a data loader is annotated; on a thread that launches GPU work */
	bool frames;                         /* Python's, recorded with_stack */
	bool compiled, graphs;               /* most of what a compiler merges comes from one; replayed graphs */
	bool merges;                         /* what a compiler could merge takes enough of the step (fo_merges) */
	double compiled_share; /* of the time of compiled kernels and of operators that a compiler would merge */
	bool optimizer_foreach, optimizer_loop, optimizer_fused;
	char optimizer[24]; /* "AdamW"; "" where the trace does not name it */
	bool ddp, fsdp, data_parallel, moe;
	bool uploads, offloads; /* copies to the device are most of all copies; much goes either way */
	bool transformers;      /* modules are named as Hugging Face's library names its models */
	bool loss;              /* kernels of the loss take a fortieth of the step or more */
	bool gc, saves;         /* garbage collection or the writing of a checkpoint is marked in the trace */
	struct fo_comm_kinds comm;
	bool pageable, blocking_copies, sync_calls, alloc_calls;
	bool nvidia, amd, nccl;
	bool norm_written_out, attention_written_out;
	bool hidden_ragged, tokens_ragged; /* dimensions that cost matmuls time, and what they are (rules_shape.c) */
	double norm_written_share; /* of the normalisations' time: kernels of elementwise operators, not of a norm's */
	bool before_pytorch_2;     /* the trace was recorded before its release */
	enum fo_culprit_cause culprit;
	int capability;            /* 10 x major + minor; 0 unknown */
	double fp32_product_share; /* of the matmuls' and convolutions' time: kernels of 32 bit without matrix units */
	bool fp32_by_name;         /* not without those of which only a type in the kernel's name says so */
	int64_t product_ns;        /* their time, durations added up */
};
/* PyTorch has a fused update of this optimizer for GPUs, or the trace does not name it. */
bool fo_optimizer_can_fuse(const struct fo_facts *f);
void fo_facts_of(const struct fo_trace *t, int16_t device, struct fo_facts *out);
/* Operators are recorded, and neither a backward pass nor an optimizer is among them or among the device's kernels. A
 * trace of our own (FO_TRACE_OWN) has no operators: its kernels tell. */
bool fo_trace_forward_only(const struct fo_trace *t, int16_t device);

/* Rows of data/settings.tsv for a finding: those of the framework in use, else PyTorch's; NCCL's behind them. */
void fo_settings_add(struct fo_finding *f, const char *finding, const struct fo_facts *facts,
		     const struct fo_pipeline *p);

/* Settings that are arguments of one call are typed once, where the call stands first; the others keep their words. */
void fo_settings_join(struct fo_finding *f);

/* ---- gain ---- */

/* The gain of removing a cause from a step. The loss is `most` R, the ceiling T / (T - most R). The estimate lies
 * between two new step times: best   T - most R,                 not below best_floor worst  T - least R, not below
 * floor, and reappear on top; not below best, not above T and its middle is the mean of the two.
 * docs/diagnosis-rules.md says where `least`, `most` and `reappear` come from per finding. */
struct fo_gain {
	int64_t step_ns, removable_ns; /* T, R */
	double least, most;            /* shares of R that go away in the worst and in the best case */
	int64_t reappear_ns;           /* what may come back elsewhere */
	int64_t floor_ns;              /* no step is shorter: the launching thread's own work; 0 unknown */
	int64_t best_floor_ns; /* the same in the best case, where the cure shortens that work too; 0: as floor_ns */
	int64_t frees_ns;      /* for fo_gain_of: INT64_MAX: there is no floor */
	bool at_most;          /* nothing but names speaks for it: only "up to" the best case is said */
};
/* No factor is said above this ceiling: less than a tenth of the step would be left, and a step is known to a fiftieth
 * of itself (FO_GAIN_NONE). Such a quotient would be wrong by a fifth and more, and by any factor where nearly nothing
 * is left. */
#define FO_CEILING_MOST 10.0
/* An estimate below this is within what one step differs from the next, even in its best case. */
#define FO_GAIN_NONE 1.02
void fo_gain_solve(const struct fo_gain *g, struct fo_finding *f);
/* The cost of such a finding is seen and its cure is not: no ceiling, no estimate; loss_ns stays. */
void fo_gain_none(struct fo_finding *f);

/* ---- rules ---- */

/* The share of the peak that the best published attention kernels reach (rules_compute.c). */
#define FO_ATTENTION_BEST 0.75
/* A cause above this share of the step is worth a line: the TensorBoard plug-in of the PyTorch profiler named data
 * loading from 5 % on (tb_plugin profiler/data.py), Ascend's advisor every cause. */
#define FO_SHARE_ADVICE 0.05
/* A cause above this share is serious, and may be the bottleneck: the plug-in's mark for communication, ours for
 * idling, copies and matmuls. */
#define FO_SHARE_SERIOUS 0.10
/* Half of what could go is assumed to go at least where nothing better is known. Not calibrated:
 * docs/diagnosis-rules.md. */
#define FO_GAIN_HALF 0.5

/* Neighbours on a stream (chains.c): kernels that a compiler could merge, and attention that is written out. Times are
 * of one step, and exclusive as the ledger's classes are. */
struct fo_chains {
	int64_t fusable_ns,
		fusable_ops; /* kernels that each do one operator, with another such beside them; attention's not */
	int64_t alone_ns; /* kernels that only move bytes and have none beside them, or are several operators already */
	int64_t softmax_ns,
		between_ns;   /* attention written out: its softmax, and what stands between that and its matmuls */
	int64_t product_ns;   /* its matmuls */
	double product_flop;  /* of product_ns; NaN: shapes are not recorded */
	bool operators_known; /* operators are recorded for most of the time that could be merged, not kernels' names
				 alone */
};
void fo_chains_of(const struct fo_subject *s, struct fo_chains *out);

/* Whether matmuls of all shapes were slower at one time than at another (clocks.c). */
struct fo_clocks {
	bool fell;
	double ratio; /* time of equal calls while it was low over that while it was high */
	double share; /* of the matmuls' time in the trace: while it was low */
	double lost;  /* of the matmuls' time in that step: what they took longer than at the high clock */
};
void fo_clocks_of(const struct fo_subject *s, struct fo_clocks *out);

/* Causes that a trace marks by name (rules_marked.c). */
enum fo_mark { FO_MARK_SAVING, FO_MARK_COLLECTION, FO_MARK_ALLOCATION, FO_MARK_COUNT };
bool fo_marks(enum fo_mark m, const char *name); /* facts.c; not for allocation, which is a call */

struct fo_rule_context {
	const struct fo_subject *s;
	const struct fo_chains *chain;
	const struct fo_clocks *clocks;
	const struct fo_facts *facts;
	const struct fo_idle_gap *gap;
	int64_t gaps;
	double host_data_share; /* of the host's steps: the data loader's exclusive part; 0 unknown */
	double host_step_ns;    /* their mean length; 0 unknown */
	int64_t floor_ns;  /* the launching thread's own work in a step, its data loading and Python included; 0 unknown
			    */
	int64_t launch_ns; /* of it: inside operators and calls */
	int64_t loader_ns; /* of it: in the data loader beside operators; 0 where that has processes of its own */
	bool no_training_step; /* the window is something else: what a step would gain is not to be had from it */
	int64_t marked_ns[FO_MARK_COUNT][FO_IDLE_COUNT]; /* idling of a step that lies in what is marked */
	int64_t optimizer_idle_ns[FO_IDLE_COUNT];        /* idling of a step that a kernel of an unfused update ended */
	int64_t other_short_ns; /* idle[HOST_OTHER] in gaps that are not longer than FO_GAP_SHORT_NS: Python between
				   operators */
};
/* fo_gain_solve for the step of c. Of g are used: least, most, reappear_ns, best_floor_ns, at_most; what the cure takes
 * off the launching thread's own work (frees_ns) lowers the floor. */
void fo_gain_of(const struct fo_rule_context *c, struct fo_finding *f, int64_t removable_ns, struct fo_gain g);
/* The usual gain: between `least` (a share) and all of `ns` goes, and the floor holds. */
void fo_gain_usual(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns, double least);
/* The gain where all of `ns` is the launching thread's own work too. */
void fo_gain_freed(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns, double least);
/* The mean bubble over the stages that were given; 0: no pipeline. */
double fo_pipeline_bubble(const struct fo_pipeline *p);
/* Fills c->marked_ns and lowers the causes of the gaps by it. */
void fo_marks_find(struct fo_rule_context *c, struct fo_idle_gap *gap);
/* All of one cause that is marked: no other finding counts it. */
int64_t fo_marked(const struct fo_rule_context *c, enum fo_idle_cause cause);
/* Idling of one cause that no other finding counts. */
static inline int64_t fo_idle_of(const struct fo_rule_context *c, enum fo_idle_cause cause)
{
	return c->s->l.idle_ns[cause] - fo_marked(c, cause) - c->optimizer_idle_ns[cause];
}
/* The step's time in kernels that a compiler could merge, without what attention-eager counts. Is it enough to
 * propose a compiler? */
int64_t fo_merging_ns(const struct fo_rule_context *c);
bool fo_merges(const struct fo_rule_context *c);
/* An update of many kernels, and what it takes: their time and the idling before them (rules_gpu.c). */
bool fo_optimizer_is_eager(const struct fo_facts *f);
bool fo_optimizer_counts(const struct fo_rule_context *c);
/* An operator's way through Python and the framework costs 10 to 100 us, and several may fall together. Whatever holds
 * the launching thread longer than this is something else: garbage collection, a log line, a checkpoint, one operator
 * on the processor. */
#define FO_GAP_SHORT_NS INT64_C(1000000)
/* The share of all operations that a compiler could merge with a neighbour. */
static inline double fo_fusable(const struct fo_rule_context *c)
{
	return c->s->l.ops > 0 ? (double)c->chain->fusable_ops / (double)c->s->l.ops : 0;
}
static inline double fo_share(const struct fo_rule_context *c, int64_t ns)
{
	return (double)ns / (double)c->s->l.span_ns;
}
static inline double fo_percent(const struct fo_rule_context *c, int64_t ns) { return 100 * fo_share(c, ns); }
/* The kernels that move bytes rather than compute, as bits; a compiler's fused ones are not among them. */
#define FO_MOVING_CLASSES                                                                                      \
	(1u << FO_K_NORM | 1u << FO_K_OPTIMIZER | 1u << FO_K_LOSS | 1u << FO_K_SOFTMAX | 1u << FO_K_ROPE |     \
	 1u << FO_K_EMBEDDING | 1u << FO_K_POOL | 1u << FO_K_CAST | 1u << FO_K_ELEMENTWISE | 1u << FO_K_COPY | \
	 1u << FO_K_REDUCE | 1u << FO_K_RNG)
#define FO_PRODUCT_CLASSES (1u << FO_K_GEMM | 1u << FO_K_GEMM_FP8)
#define FO_ATTENTION_CLASSES (1u << FO_K_ATTENTION_FORWARD | 1u << FO_K_ATTENTION_BACKWARD)
int64_t fo_class_time(const struct fo_ledger *l, uint64_t classes);

/* A rule fills *f where its finding holds and returns true: title, why, gain, and `serious` where it passes the mark at
 * which a bottleneck is named. What its row names is evidence (the longest come first), beside what the rule adds
 * itself; without any evidence the finding is dropped. findings.c adds settings and dollars. */
typedef bool fo_rule(const struct fo_rule_context *c, struct fo_finding *f);
struct fo_rule_row {
	const char *id;
	enum fo_finding_kind kind;
	fo_rule *holds;
	uint64_t kernels;     /* evidence: kernels of these classes, bits 1 << fo_kernel_class */
	unsigned gaps;        /* gaps of these causes, bits 1 << fo_idle_cause ... */
	int64_t gap_least_ns; /* ... which are at least so long */
	const char *window;   /* where nothing else is evidence: the whole window as one event of this name */
};
extern const struct fo_rule_row fo_rules_validity[], fo_rules_window[], fo_rules_host[], fo_rules_gpu[],
	fo_rules_comm[], fo_rules_compute[], fo_rules_marked[], fo_rules_shape[],
	fo_rules_own[]; /* end with id NULL; own: all there are for a timeline of our own */
fo_rule fo_conv_layout; /* rules_shape.c, for the table of rules_gpu.c */
/* The name of the window as evidence, for most rows. */
#define FO_WINDOW_SHOWN "the window that is shown"
void fo_evidence_window(struct fo_finding *f, const struct fo_subject *s, const char *name);

/* Rules write with these. A title is set, reasons are appended; what does not fit is cut. */
void fo_title(struct fo_finding *f, const char *fmt, ...) FO_PRINTF(2, 3);
void fo_why(struct fo_finding *f, const char *fmt, ...) FO_PRINTF(2, 3);
/* "12.3 ms", valid until the end of the block. */
#define FO_NS(ns) fo_ns_text((char[24]){ 0 }, ns)
/* Does a cause that takes `ns` of the step deserve a line? Sets f->serious. */
bool fo_notable(const struct fo_rule_context *c, struct fo_finding *f, int64_t ns);
/* The note that other programs ran beside one, by the load of its record. */
bool fo_own_others_ran(const struct fo_rule_context *c, struct fo_finding *f);
bool fo_own_validity(const char *id); /* Does this note apply to one? */

/* Is one window all there is? Then nothing tells what happens once from what every step does. */
bool fo_one_window(const struct fo_rule_context *c);
/* Says in out that most of that window is a warm-up; "" where it is not. */
void fo_mostly_warm_up(const struct fo_rule_context *c, char *out, size_t size);
/* Says in out that most events were taken out of the file; "" where they were not. */
void fo_mostly_taken_out(const struct fo_rule_context *c, char *out, size_t size);
/* Too little GPU work for any verdict: says why in out, "" otherwise. */
void fo_too_little_work(const struct fo_rule_context *c, char *out, size_t size);
/* The whole trace without marked steps, nearly all of it copies to the device and idling: weights being loaded. */
bool fo_no_training_step(const struct fo_rule_context *c);
/* The findings of a diagnosis without a subject. */
int fo_without_gpu_work(const struct fo_diagnosis *d, struct fo_finding out[2]);

/* Attention below this share of the peak is slow: published kernels reach more (rules_compute.c). */
#define FO_ATTENTION_LEAST 0.5
/* Rules leave out a rate below this share of its ceiling: other costs took that time, not the work. */
#define FO_RATE_LEAST 0.01

/* rules_shape.c: hidden_ragged and tokens_ragged. */
void fo_shape_facts(const struct fo_subject *s, struct fo_facts *facts);
/* rates.c: each appends a sentence to the reasons where the trace tells: what elementwise operators move, how fast
 * copies are, what matmuls and attention reach. */
void fo_moving_words(const struct fo_diagnosis *d, struct fo_finding *f);
void fo_copy_words_of(const struct fo_rule_context *c, struct fo_finding *f);
void fo_compute_words(const struct fo_rule_context *c, struct fo_finding *f);

/* "12.3 ms", "45 us". */
char *fo_ns_text(char buf[24], int64_t ns);

void fo_unknowns_without_gpu(struct fo_diagnosis *d);
void fo_diagnose_unknowns(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_facts *facts);

#endif
