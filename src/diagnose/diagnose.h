/* Traces become findings here: where each step's time went (parts that sum exactly to it), why the GPU idled, who
 * waited for whom, what it costs, what to change and what that would gain. Definitions: docs/metrics.md. Everything is
 * int64 nanoseconds; shares and money are computed from them when they are shown. */
#ifndef FO_DIAGNOSE_DIAGNOSE_H
#define FO_DIAGNOSE_DIAGNOSE_H

#include "trace/trace.h"

struct fo_arena;
struct fo_json;
struct fo_schema;
struct fo_str;

/* ---- intervals ---- */

struct fo_interval {
	int64_t begin, end;
};
/* Half-open, disjoint, ascending, none empty and none touching the next; only between fo_intervals_add and
 * fo_intervals_unite any others. A zeroed struct is an empty set; fo_intervals_fini frees it. Each operation below is
 * linear in its operands, but fo_intervals_unite, which sorts what is not ascending (n log n). */
struct fo_intervals {
	struct fo_interval *v;
	size_t n, cap;
};
void fo_intervals_add(struct fo_intervals *s, int64_t begin, int64_t end); /* at the end; nothing if begin >= end */
void fo_intervals_unite(struct fo_intervals *s);
/* *out, which is none of the operands, is replaced: what is in both, in a but not in b. */
void fo_intervals_intersect(struct fo_intervals *out, const struct fo_intervals *a, const struct fo_intervals *b);
void fo_intervals_subtract(struct fo_intervals *out, const struct fo_intervals *a, const struct fo_intervals *b);
int64_t fo_intervals_length(const struct fo_intervals *s);
/* The length of what lies in [begin, end): log n and what it meets. */
int64_t fo_intervals_within(const struct fo_intervals *s, int64_t begin, int64_t end);
/* The first interval that ends behind `at`; n if there is none. */
size_t fo_intervals_find(const struct fo_intervals *s, int64_t at);
/* Holes of at most `hole` between two intervals become part of the set. */
void fo_intervals_close(struct fo_intervals *s, int64_t hole);
void fo_intervals_fini(struct fo_intervals *s);

/* ---- the ledger of one device in one window ---- */

/* Causes of idling: name in JSON, words, words for a timeline of our own. HOST_*: the launching thread was late,
 * and meanwhile the data loader ran; it waited for the GPU, allocated or freed; it was busy with operators and launches
 * all the time; the trace shows nothing of it (Python, garbage collection, logging). LAUNCH_LATENCY: from the launch to
 * the begin. LONG_CALL: more than a millisecond inside one launching or loading call. KERNEL_GAP: launched before the
 * gap, which lasts at most 10 us; DEPENDENCY: a longer one. UNKNOWN: there is no launch record. */
#define FO_IDLE_LIST(X)                                                                       \
	X(HOST_DATA, "host_data", "data loading", "waiting for the batch")                    \
	X(HOST_SYNC, "host_sync", "host waits or allocates", "waiting for a lane")            \
	X(HOST_LAUNCH_BOUND, "host_launch_bound", "host busy launching", "the training loop") \
	X(HOST_OTHER, "host_other", "host, not in the trace", "between steps")                \
	X(LAUNCH_LATENCY, "launch_latency", "launch latency", "behind a wait")                \
	X(LONG_CALL, "long_call", "code being loaded", "code being loaded")                   \
	X(KERNEL_GAP, "kernel_gap", "gaps between kernels", "short gaps")                     \
	X(DEPENDENCY, "dependency", "another stream or event", "another lane")                \
	X(UNKNOWN, "unknown", "the trace cannot tell", "the trace cannot tell")
#define FO_IDLE_ID(id, name, words, own) FO_IDLE_##id,
enum fo_idle_cause { FO_IDLE_LIST(FO_IDLE_ID) FO_IDLE_COUNT };
extern const char *const fo_idle_name[FO_IDLE_COUNT];

/* Words for the ledger's rows (words.c): kernels by class (copies and communication too), copies, idling, exposed
 * communication. */
extern const char *const fo_class_words[FO_K_COUNT];
extern const char *const fo_copy_words[FO_COPY_COUNT];
extern const char *const fo_idle_words[FO_IDLE_COUNT];
extern const char *const fo_wait_words, *const fo_bubble_words;
extern const char *const fo_transfer_words, *const fo_wait_or_transfer_words;
/* The words for a culprit's row ("host_data": "data loading"). */
const char *fo_row_words(const char *row);

/* Exact: span = comp + exposed_comm + exposed_mem + idle; comp = sum of class_ns; exposed_comm = wait + transfer +
 * unknown; exposed_mem = sum of copy_ns; idle = sum of idle_ns. */
struct fo_ledger {
	int64_t begin_ns, end_ns, span_ns;
	int64_t busy_ns, idle_total_ns;
	int64_t comp_ns, class_ns[FO_K_COMPUTE_COUNT]; /* exclusive, by the order of the classes */
	int64_t class_sum_ns[FO_K_COUNT];              /* durations added up, overlapping or not */
	int64_t class_ops[FO_K_COUNT];
	int64_t comm_ns, exposed_comm_ns;
	int64_t exposed_wait_ns, exposed_transfer_ns, exposed_comm_unknown_ns;
	/* The pipeline's bubble in our own timelines: exposed_wait for its other stages and nobody else. */
	int64_t exposed_bubble_ns;
	int64_t mem_ns, exposed_mem_ns, copy_ns[FO_COPY_COUNT]; /* exposed, by direction; [FO_COPY_NONE]: fills */
	int64_t exposed_pageable_ns;                            /* of exposed_mem */
	int64_t idle_ns[FO_IDLE_COUNT];
	/* Overlays, in no sum. */
	int64_t resident_ns; /* any kernel, communication included: what nvidia-smi calls utilisation */
	int64_t recompute_ns, backward_ns, forward_ns; /* compute so marked; forward_ns -1: not marked */
	int64_t blocking_comm_ns; /* exposed and the next compute kernel began at its end (within 10 us) */
	int64_t ops;
};

/* A ledger is that many int64_t and nothing else, so that all can be summed or divided. */
enum { FO_LEDGER_FIGURES = sizeof(struct fo_ledger) / sizeof(int64_t) };

struct fo_step_ledger {
	int64_t number; /* -1: the whole trace */
	struct fo_ledger l;
	int64_t host_begin_ns, host_end_ns; /* the host's step of that number; -1: not in the trace */
	int64_t launch_busy_ns;             /* of launching threads in what does not wait, the floor; -1: unknown */
	int64_t loader_ns, loader_busy_ns;  /* the data loader's time; of it, while a launching thread was busy */
};

/* A step as the host sees it, from its begin (or the end of the one before, if its GPU work lasted longer) to the end
 * of its last GPU operation, in exclusive parts that sum to it: the first of these that was going on anywhere. The
 * definition is that of the PyTorch profiler's TensorBoard view (overall_parser.py, event_parser.py of pytorch/kineto
 * 94979607^), so that its figures can be compared. */
#define FO_HOST_PART_LIST(X)                                                                 \
	X(KERNEL, "kernel", "kernel")                                                        \
	X(MEMCPY, "memcpy", "memcpy")                                                        \
	X(MEMSET, "memset", "memset")                                                        \
	X(COMMUNICATION, "communication", "communication")                                   \
	X(RUNTIME, "runtime", "runtime") /* a call of the runtime or driver on any thread */ \
	X(DATA, "data_loader", "data loader")                                                \
	X(CPU, "cpu_exec", "CPU exec") /* an operator or annotation on any thread */         \
	X(OTHER, "other", "other")
#define FO_HOST_PART_ID(id, name, words) FO_HOST_PART_##id,
enum fo_host_part { FO_HOST_PART_LIST(FO_HOST_PART_ID) FO_HOST_PART_COUNT };
extern const char *const fo_host_part_name[FO_HOST_PART_COUNT], *const fo_host_part_words[FO_HOST_PART_COUNT];
struct fo_host_step {
	int64_t number, begin_ns, end_ns, part_ns[FO_HOST_PART_COUNT];
};

/* What communication of a device is for, as the trace says of its groups: exposed and hidden in [begin_ns, end_ns). A
 * moment with several counts for the one that came first. Returns how many there are, the most exposed first; text -1:
 * of what the trace does not say so. */
enum { FO_COMM_PURPOSES = 8 };
struct fo_comm_purpose {
	int32_t text; /* in the trace */
	int64_t exposed_ns, hidden_ns;
};
int fo_comm_purposes(const struct fo_trace *t, int16_t device, int64_t begin_ns, int64_t end_ns,
		     struct fo_comm_purpose out[FO_COMM_PURPOSES]);

enum fo_window_origin {
	FO_WINDOW_LAUNCHED_STEPS, /* the host's steps, by the GPU operations that were launched in them */
	FO_WINDOW_HOST_STEP, /* the only one, marked on the host: to its end or that of the last operation launched */
	FO_WINDOW_GPU_STEPS, /* the GPU's copy of their annotation */
	FO_WINDOW_NVTX,      /* recurring annotations of iterations */
	FO_WINDOW_OPTIMIZER, /* from the end of one optimizer update to the end of the next */
	FO_WINDOW_WHOLE,     /* none of these: the whole trace */
	FO_WINDOW_ORIGIN_COUNT
};
extern const char *const fo_window_origin_name[FO_WINDOW_ORIGIN_COUNT]; /* "launched_steps", ... */

struct fo_device_ledger {
	int16_t device;             /* in the trace's device[] */
	enum fo_window_origin from; /* how steps were found */
	const struct fo_step_ledger *step;
	int64_t steps;
	struct fo_ledger total;       /* sum of the steps (or the whole trace): what JSON's device carries */
	struct fo_step_ledger median; /* the step of median span: what findings and pictures show */
	struct fo_ledger once; /* with exclude_unlinked: without recomputation, as TraceLens shows it; span 0: none */
	int64_t leftover_ops;  /* at the front, without a launch record, in no window */
	int64_t outside_ops;   /* others in no window: before the first step, in the last one, which was dropped */
	int64_t excluded_ops;  /* without a launch record, left out on demand (exclude_unlinked) */
	int64_t dropped_steps; /* at the end, of which the trace does not show where they end */
	int64_t empty_steps;   /* in `step`, that hold no operation */
	int64_t unseen_steps;  /* that launched nothing and are not in `step`: the device was still busy */
	/* FO_WINDOW_WHOLE alone: the window spans the GPU's operations, changed by these (window_start.c). */
	int64_t lead_ns;       /* in front of the first operation: the host's recorded work */
	int64_t start_ns;      /* left out at the front: a gap in which the profiler or the job started */
	int64_t start_ops;     /* operations that lie before that gap */
	int32_t start_call;    /* text: the longest operator or call in start_ns */
	int64_t start_call_ns; /* how much of it lies there; 0: none is recorded */
};

/* Ledgers are final when fo_ledger_rank returns: readers get const pointers, and the figures derived from them
 * (fo_shown_step, fo_bridge) are structures of their own. */
struct fo_rank_ledger {
	const struct fo_trace *trace; /* not owned */
	int rank;
	const struct fo_device_ledger *device; /* those with GPU operations */
	int64_t devices;
	const struct fo_host_step *host; /* every step of the host whose end is certain */
	int64_t hosts;
};

/* Both options exist so that figures can be compared with ref.py and TraceLens. Kinds are then taken as recorded (a
 * copy that AMD's runtime does with a kernel is a kernel), and host_sync holds only calls that wait for the GPU: no
 * allocation, and cudaFree alone of those that free. */
struct fo_ledger_options {
	bool whole_trace;      /* no steps: every GPU operation of the trace */
	bool exclude_unlinked; /* as TraceLens has it: also without those without a launch record, fills computing */
};

/* ---- collectives over ranks ---- */

/* One device's matched collectives over the whole trace: its own begin to the last member's begin, and from there to
 * its own end. */
struct fo_rank_wait {
	int rank;
	int16_t device; /* in the trace's device[] */
	int64_t wait_ns, transfer_ns;
	int64_t end_skew_ns;     /* of transfer_ns: behind the first member's end */
	int64_t last, caused_ns; /* how often it arrived last, and what the others waited for it then */
	int64_t matched;         /* kernels */
	int64_t unmatched;       /* others: not on all members, no barrier by nature, or of unequal parts */
	int64_t unmatched_ns;    /* their durations */
	int64_t wait_most_ns; /* the most of that which may be waiting: less what a transfer takes at the links' peak */
};
/* The rank that makes the others wait, and the row in which its median step exceeds the median of theirs. */
struct fo_culprit {
	int at;          /* in wait[]; -1: nobody waits */
	double share;    /* of all waiting, what others spent waiting for it */
	const char *row; /* of the ledger: "gemm", ...; "late_begin": the step itself began later; NULL: none */
	int64_t excess_ns;
};

/* ---- pipelines and stragglers: filled where the traces show them ---- */

struct fo_pipeline {
	int stages, chunks, microbatches; /* stages 0: no pipeline seen; the others 0: unknown */
	double *bubble; /* by stage: share of its span (pipeline.c) without work; NaN: nobody's trace was given */
	int *stage;     /* by ranks[]: its stage; -1 */
	double ideal;   /* (p - 1) / (v m), as a share of the ideal compute time; NaN unknown */
};

/* ---- the bridge to MFU ---- */

enum { FO_BRIDGE_MAX = 40, FO_BRIDGE_LOSSES = 3 };
/* MATMULS: of matmuls alone; where attention cannot be told from them, the row is a LOSS as the others. */
enum fo_bridge_part { FO_BRIDGE_MFU, FO_BRIDGE_MATMULS, FO_BRIDGE_LOSS };
struct fo_bridge_row {
	enum fo_bridge_part part;
	char name[48];
	double share;            /* of the step, which is its MFU points; MFU itself is the first row; rows sum to 1 */
	double dollars;          /* per step over all devices; NaN without a price */
	double dollars_per_hour; /* of the job; NaN */
};
/* Rows are of the critical rank's median step. One row may be negative: that of attention, because the rule counts the
 * masked half that kernels skip. Where anything else came out above its peak, the bridge is not known
 * (docs/metrics.md). */
struct fo_bridge {
	bool known;
	double mfu, mfu_causal, peak_flop_s, step_s; /* mfu_causal NaN: not told */
	double flop_per_step;                        /* of one device's share */
	double steps;           /* in the window: 1, but where it has none of its own and their number was given */
	double measured_flop_s; /* the best matmul that the catalogue's source measured in that precision; NaN */
	double coverage;        /* of matmuls' and attention's time, the share of known shapes; 1 with a model given */
	int devices;            /* that share the step */
	char rule[32];          /* "mfu", "shapes" */
	char dtype[8], device[48];
	char peak_source[240]; /* "1307 TFLOP/s bf16 dense, <source of the catalogue's row>"; "" unknown */
	char why_not[320];     /* known == false: what is missing, or what cannot be */
	char note[240];        /* known: why it is not by the rule that was asked for; "" */
	struct fo_bridge_row row[FO_BRIDGE_MAX];
	int rows;
	int loss[FO_BRIDGE_LOSSES]; /* in row[]: what takes most MFU points, greatest first */
	int losses;
};

/* "GPU utilisation" as the driver's tool would have shown it, beside MFU: the share of time with any kernel resident,
 * one that only waits for another rank included. */
struct fo_utilisation {
	double resident, computing; /* shares of the step; computing: compute kernels alone */
	char sentence[400];         /* why it is not MFU; "" without GPU work */
};

/* Attention in fused kernels, of a step. The rule counts every pair of tokens; a causal mask halves the work, so that
 * up to 200 % of the peak are possible by it. */
struct fo_attention_rate {
	int64_t time_ns;   /* recomputed work included */
	double flop;       /* that time's, all pairs counted; NaN: neither shapes nor a model tell */
	double efficiency; /* flop / time over the dense peak; NaN */
};

/* A matmul of the trace, by shape: c(m, n) = a(m, k) b(k, n), `batch` of them. */
struct fo_product {
	int64_t m, n, k, batch, calls, time_ns; /* time: of its kernels over all calls */
	char dtype[12];
	double flop_s, attainable_flop_s; /* NaN: no ceiling known */
	double best_flop_s;               /* of the fastest call */
	double fill;       /* estimate: share of tiles and waves that hold work; NaN: the device is unknown */
	double contended;  /* median time while a communication kernel was live over that without; NaN: not both seen */
	bool memory_bound; /* intensity below the ridge of the device */
	bool tiny;         /* calls are so short that what any kernel costs hides their rate */
	int64_t warm_up;   /* first calls that are left out, where no step is marked: much slower than those behind */
	/* The cost of the shape itself, where that is worth a finding of its own (product_rate.c). */
	int64_t pad[3];       /* m, n, k as they would be; 0: as it is */
	double padded_flop_s; /* estimate for the same useful FLOP with them; NaN: nothing to pad, no ceiling known */
	double tiles;         /* of the result, over the batch; NaN: the device is unknown */
	bool splits_k;        /* some kernel divides k over units */
	bool few_tiles;       /* fewer than half of the units have one, k is long, and nothing divides it */
};

/* Bytes that elementwise operators of recorded shapes move: each operand and the result once. */
struct fo_moving_rate {
	int64_t time_ns;
	double bytes, peak_bytes_s; /* peak NaN: the device is unknown */
};

/* ---- findings ---- */

/* Kinds: name in JSON, words. COMM: wait or transfer, the trace cannot say; IDLE: nor why. */
#define FO_FIND_LIST(X)                                          \
	X(VALIDITY, "validity", "validity")                      \
	X(COMPUTE, "compute", "computation itself")              \
	X(MEMORY_BOUND, "memory_bound", "memory bandwidth")      \
	X(COMM_WAIT, "communication_wait", "waiting for a rank") \
	X(COMM_TRANSFER, "communication_transfer", "network")    \
	X(COPIES, "copies", "copies")                            \
	X(HOST, "host", "the host is late")                      \
	X(DATA, "data_loading", "data loading")                  \
	X(RECOMPUTE, "recompute", "recomputation")               \
	X(PIPELINE, "pipeline", "pipeline")                      \
	X(COMM, "communication", "communication")                \
	X(IDLE, "idle", "idling")
#define FO_FIND_ID(id, name, words) FO_FIND_##id,
enum fo_finding_kind { FO_FIND_LIST(FO_FIND_ID) FO_FIND_COUNT };
extern const char *const fo_finding_kind_name[FO_FIND_COUNT], *const fo_finding_kind_words[FO_FIND_COUNT];

enum { FO_EVIDENCE_OF = 96 };
struct fo_evidence {
	int rank, device; /* device -1: of none */
	int64_t begin_ns, duration_ns;
	char name[160];
	char of[FO_EVIDENCE_OF]; /* a kernel's operator and module: "aten::mul in LlamaRMSNorm_3"; "": unknown */
};
struct fo_setting {
	char framework[24];                  /* "PyTorch", "TorchTitan", "Megatron-LM", "NCCL" */
	char key[96], now[64], proposed[96]; /* now: "" where the trace does not tell */
	char paste[128];                     /* code, flag or command line as it is typed; "": there is no one line */
};
enum { FO_EVIDENCE_MAX = 5, FO_SETTINGS_MAX = 6 };
struct fo_finding {
	const char *id; /* stable: "data-loading", ... (docs/diagnosis-rules.md) */
	enum fo_finding_kind kind;
	bool serious; /* makes the exit code 1 */
	bool is_bottleneck, is_runner_up;
	char title[160], why[640];
	int64_t loss_ns;                  /* of the median step: what would go away at best */
	double ceiling;                   /* step time before / after, if all of that went: x 1.50 */
	double gain, gain_low, gain_high; /* estimate and interval, as ceiling; all four NaN: it promises nothing */
	bool up_to;                       /* the interval is so wide that only "up to gain_high" may be said */
	bool nearly_all; /* the loss is more than nine tenths of the step: no factor is said, and all four are NaN */
	bool later;      /* alone it gains nothing yet, for the launching thread needs the step; all four are NaN */
	double dollars;  /* per hour of the job at `gain`; NaN without a price */
	struct fo_setting setting[FO_SETTINGS_MAX];
	int settings;
	struct fo_evidence evidence[FO_EVIDENCE_MAX];
	int evidences;
};

/* Is there anything to say of what its removal is worth? */
bool fo_finding_worth(const struct fo_finding *f);

/* A thing that the trace cannot say, and the flag that would record it. */
struct fo_unknown {
	char what[160], flag[200];
};

struct fo_diagnose_options {
	struct fo_ledger_options ledger;
	const char *model;            /* preset or config.json; NULL */
	int64_t seq, tokens_per_step; /* 0: not given; tokens of the whole job's step */
	double steps, step_s;  /* without marked steps: how many the window covers, how long one lasts; 0: not given */
	const char *device;    /* of the catalogue; NULL: the trace's own */
	const char *dtype;     /* NULL: from kernels and shapes */
	double price_per_hour; /* US dollars for one device; NaN */
};

/* The one judgement that text, JSON, page and exit code follow. The last four are not diagnosed; all but the first make
 * the exit code 1, for health was not shown. */
#define FO_JUDGED_LIST(X)                                              \
	X(HEALTHY, "healthy")                                          \
	X(SERIOUS, "serious")                                          \
	X(NO_GPU, "no_gpu_work")                                       \
	X(TOO_LITTLE, "too_little_gpu_work")                           \
	X(WARM_UP, "warm_up") /* the trace shows a start, not steps */ \
	X(THINNED, "thinned") /* most events were taken out of the file, and their time looks idle */
#define FO_JUDGED_ID(id, name) FO_JUDGED_##id,
enum fo_judgement { FO_JUDGED_LIST(FO_JUDGED_ID) FO_JUDGED_COUNT };
extern const char *const fo_judgement_name[FO_JUDGED_COUNT];

/* A run of our own engine: what its record (run.json, log.jsonl beside the timeline) tells (own_run.c). */
enum { FO_OWN_OPTIONS = 6 };
struct fo_own_run {
	bool is;                             /* the trace is of our engine */
	bool known;                          /* MFU and peak are recorded */
	bool processor;                      /* it ran on the processor, as far as the record tells */
	double mfu, mfu_causal, peak_flop_s; /* medians over the steps; NaN */
	double load;                         /* highest load average of the record; NaN */
	int64_t processors;                  /* of the machine; -1: not told */
	int64_t steps, threads;
	char dtype[8], device[96], peak_source[200];
	const char *key[FO_OWN_OPTIONS]; /* options that findings name, with their values */
	char value[FO_OWN_OPTIONS][24];
};

struct fo_diagnosis {
	struct fo_diagnose_options with;
	struct fo_trace_set *set; /* not owned */
	struct fo_rank_ledger *rank;
	int ranks;
	int worst, middle, best;   /* ranks[] by the median step's span without waiting: slowest, median, fastest */
	double step_skew;          /* (max - median) / median of the ranks' own work */
	struct fo_rank_wait *wait; /* by rank, then device, those that communicate; NULL where only one does */
	int waits;
	struct fo_culprit culprit;
	struct fo_pipeline pipeline;
	struct fo_own_run own;
	struct fo_bridge bridge;
	struct fo_utilisation utilisation;
	struct fo_attention_rate attention;
	struct fo_moving_rate moving;
	bool forward_only;  /* operators are recorded, without a backward pass or optimizer: so are FLOP */
	char framework[24]; /* of the settings: "PyTorch", "TorchTitan", ...; "" where nothing was found */
	enum fo_judgement judged;
	char cannot[160];           /* why no bottleneck can be named: "no GPU work in this trace"; "": it can */
	struct fo_product *product; /* by time, greatest first */
	int64_t products;
	struct fo_finding *finding; /* validity first, then by gain */
	int64_t findings;
	struct fo_unknown *unknown;
	int64_t unknowns;
	bool serious;
};

FO_CHECKED fo_status fo_diagnose(struct fo_diagnosis *d, struct fo_trace_set *s, const struct fo_diagnose_options *o);
void fo_diagnosis_fini(struct fo_diagnosis *d);

/* Decimals of an MFU in per cent: 33.0, 0.02, 0.0004. What is known is not shown as nothing. */
static inline int fo_mfu_decimals(double mfu)
{
	int n = 1;
	for (double v = 1000 * mfu; v > 0 && v < 0.5 && n < 6; v *= 10)
		n++;
	return n;
}

/* Does this note make the figures doubtful (lost events, impossible durations, a start)? Then it stands in front of the
 * findings. */
bool fo_finding_doubtful(const struct fo_finding *f);
/* Can a bottleneck be named? Otherwise d->cannot says why not. */
static inline bool fo_diagnosed(const struct fo_diagnosis *d)
{
	return d->judged == FO_JUDGED_HEALTHY || d->judged == FO_JUDGED_SERIOUS;
}

/* ---- what figures are shown of ---- */

/* The mean of all steps is shown where it is so much longer than the median step that the median hides what some steps
 * wait for (a loader that delivers every tenth batch late). */
#define FO_STEPS_UNEVEN 1.1
/* Bridge, findings, ledgers on a terminal and pages show the same step of a device: the median one, or that mean. */
struct fo_subject {
	const struct fo_diagnosis *d; /* this and the next four: NULL and 0 from fo_shown_step_of */
	const struct fo_rank_ledger *rank;
	const struct fo_device_ledger *device;
	const struct fo_trace *t;
	int16_t id;               /* of the device in the trace's device[] */
	struct fo_ledger l;       /* of one step; its parts sum to span_ns, which is end - begin only for the median */
	int64_t steps;            /* 1 but for the mean */
	int64_t begin_ns, end_ns; /* where its events are: the median step, or all of them */
	int64_t launch_busy_ns, loader_ns, loader_busy_ns; /* of a step; launch_busy_ns -1 unknown */
};
void fo_shown_step_of(const struct fo_device_ledger *v, struct fo_subject *out);
/* "median step (12)", its number, "mean of 5 steps", "step 3" where there is only one, "whole trace". Returns buf. */
char *fo_shown_step_words(char buf[48], const struct fo_device_ledger *v);
/* The step of findings, bridge and utilisation: "step 7 as marked on the host, 391 ms", "the median step
 * (5), 176 ms", "the whole trace from the first GPU operation to the last, 124 ms"; "" without GPU work. */
char *fo_window_words(char buf[160], const struct fo_diagnosis *d);
/* The step in d->step[] that an instant lies in; -1: none. */
int64_t fo_step_at(const struct fo_device_ledger *d, int64_t ns);
/* Is it a class of matmuls, attention or convolutions? */
static inline bool fo_class_is_heavy(enum fo_kernel_class k) { return k <= FO_K_CONV; }
/* The device of ranks[rank] that has the longest step without waiting for others, among those that hold at least a
 * tenth of the operations of the fullest; NULL: none has any. */
const struct fo_device_ledger *fo_shown_device(const struct fo_diagnosis *d, int rank);

/* ---- kernels by name ---- */

/* Names without return type, namespaces and template arguments: what a line has room for. buf is returned. */
char *fo_kernel_short_name(char *buf, size_t size, const char *name);

enum { FO_KERNELS_SHOWN = 10 };
/* Kernels and copies of one short name and class in the step that is shown. */
struct fo_kernel_sum {
	char name[160];
	enum fo_kernel_class class;
	double calls; /* of a step */
	int64_t ns;   /* of a step: durations added up, overlapping or not */
	double share; /* of the step */
};
struct fo_kernels {
	struct fo_kernel_sum *v; /* by time, greatest first */
	int64_t n;
	int64_t span_ns; /* of the step */
	char label[48];  /* fo_shown_step_words */
};
/* Sums for the subject of bridge and findings: the slowest rank's fo_shown_device. n is 0 without GPU work. */
void fo_kernels_of(const struct fo_diagnosis *d, struct fo_kernels *out);
void fo_kernels_fini(struct fo_kernels *k);
/* The operator or module that launched a GPU operation which is evidence; NULL: unknown. */
const char *fo_evidence_place(const struct fo_diagnosis *d, const struct fo_evidence *e);

/* ---- runs of our own (own_run.c) ---- */

/* "10.5 % by rule mfu, ..., of 494 GFLOP/s bf16: measured on this machine ...": own.known. Returns buf. */
const char *fo_own_mfu_text(const struct fo_own_run *x, char buf[400]);
/* A ledger's row as it is called for our own timelines; others keep theirs. */
const char *fo_own_label(const struct fo_trace *t, const char *label);
/* Replaces GPUs, kernels and launches in a text by the words for a processor. */
void fo_own_words(struct fo_str *s);
void fo_own_run_json(struct fo_json *j, const struct fo_diagnosis *d); /* the key "own_run" */
void fo_own_run_of(struct fo_diagnosis *d);                            /* fills own */
void fo_own_reword(struct fo_diagnosis *d); /* findings in words of a processor, where it is one */

/* ---- what was given and what of it was taken (found.c) ---- */

/* Sentences without a full stop, for every output: the recording that was taken of several, ranks that are missing,
 * files that are cut or thinned, what was left out. How many; they and the list are in arena memory. Of a single whole
 * trace: none. */
int fo_found_of(const struct fo_diagnosis *d, struct fo_arena *a, const char ***line);
/* Ranks of the job that have no trace, ascending: how many. Unknown numbers count as missing nowhere. */
int fo_found_missing(const struct fo_diagnosis *d, struct fo_arena *a, int **missing);
/* Do more than a hundredth of its launches lack their operation? */
bool fo_found_thin(const struct fo_trace *t);
void fo_found_json(struct fo_json *j, const struct fo_diagnosis *d); /* the key "found" */

/* Members of the open object: "schema": 1, "ranks": [...], "findings": [...], ...: docs/formats.md. */
void fo_diagnosis_json(const struct fo_diagnosis *d, struct fo_json *j);
/* schedule_json.c: of it the keys "clocks", "waits", "skew", "culprit", "pipeline". */
void fo_diagnosis_ranks_json(struct fo_json *j, const struct fo_diagnosis *d);
/* findings_json.c: the keys from "window" to "unknowns", and their tables. */
extern const struct fo_schema fo_advice_schema, fo_kernels_schema, fo_verdict_schema;
void fo_diagnosis_findings_json(struct fo_json *j, const struct fo_diagnosis *d);

/* ---- its parts, each in its own file ---- */

/* collectives.c, from the traces alone: how long each communication kernel waited for the last member. It is made
 * before the ledgers, which divide exposed communication by it. */
struct fo_op_waits {
	int64_t **ns; /* by trace of the set, then gpu[]: from the kernel's begin to that of the transfer; -1 unknown */
	int traces;
};
/* Fills d->wait and *out, which fo_op_waits_fini frees; reads d->set and d->with. */
void fo_diagnose_collectives(struct fo_diagnosis *d, struct fo_op_waits *out);
void fo_op_waits_fini(struct fo_op_waits *w);
/* ledger.c, idle.c: everything about one rank, which fo_ledger_rank_fini frees. wait: of fo_op_waits, by gpu[]; NULL:
 * unknown of all kernels. */
void fo_ledger_rank(struct fo_rank_ledger *r, const struct fo_trace *t, const struct fo_ledger_options *o,
		    const int64_t *wait);
/* r[0..n) from t[0..n), on as many threads as there are processors; what each is does not depend on how many. waits:
 * of the same traces, or NULL. */
void fo_ledger_ranks(struct fo_rank_ledger *r, struct fo_trace *const *t, size_t n, const struct fo_ledger_options *o,
		     const struct fo_op_waits *waits);
void fo_ledger_rank_fini(struct fo_rank_ledger *r);
int64_t
fo_device_ledger_median(const struct fo_device_ledger *d); /* in step[], of those that hold operations if any does: of
							      the two in the middle the shorter; -1: no step */
void fo_diagnose_culprit(struct fo_diagnosis *d);          /* culprit.c: fills culprit, from d->wait and the ledgers */
void fo_diagnose_pipeline(struct fo_diagnosis *d);         /* pipeline.c: fills pipeline */
/* bridge.c, products.c: fills bridge, product and utilisation. FO_EARG for a model,
 * device or precision that is not known, or a model without sequence and tokens. */
FO_CHECKED fo_status fo_diagnose_bridge(struct fo_diagnosis *d);
/* findings.c: last of all. */
void fo_diagnose_findings(struct fo_diagnosis *d);

#endif
