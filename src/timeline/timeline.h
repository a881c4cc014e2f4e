/* What a step did and when: spans in ring buffers, the step profile, the MFU meter, the timeline file.
 *
 * Recording costs two clock reads and one store per operation; each lane writes its own ring, so no locks. The rest is
 * looked up in the program whose hash the file carries. */
#ifndef FO_TIMELINE_TIMELINE_H
#define FO_TIMELINE_TIMELINE_H

#include "base/err.h"
#include "base/mem.h"
#include "base/str.h"
#include "hw/nvml.h"
#include "program/program.h"

#include <stdbool.h>
#include <stdint.h>

/* instance >= 0: an operation ran. instance < 0: the lane waited; ~instance is the instance it waited for. */
struct fo_span {
	int64_t begin_ns, end_ns;
	int32_t step, instance;
};

struct fo_ring {
	struct fo_span *span;
	uint32_t cap;
	uint64_t n;
}; /* n spans ever written; the newest cap are there */
/* What a file says of several ranks. All files of a run have the same `begun`, which no other run has. */
struct fo_timeline_whose {
	int64_t begun_unix_ns;   /* when rank 0 opened the job */
	int64_t clock_offset_ns; /* added to this rank's times: those of rank 0's clock; 0 for threads of one process */
	char host[64];           /* "" not known */
};
struct fo_timeline {
	struct fo_ring lane[FO_LANE_COUNT]; /* lanes that the program uses; cap 0 elsewhere */
	int64_t origin_ns;                  /* monotonic time that file times count from */
	struct fo_timeline_whose whose;     /* written where the program has several ranks */
	void *memory;
	size_t bytes;
};

/* Rings that hold at least `steps` steps of this program. Freed with fo_timeline_fini. */
FO_CHECKED fo_status fo_timeline_init(struct fo_timeline *t, const struct fo_program *p, const struct fo_unrolled *u,
				      int steps);
void fo_timeline_fini(struct fo_timeline *t);
static inline void fo_timeline_record(struct fo_timeline *t, int lane, int32_t step, int32_t instance, int64_t begin_ns,
				      int64_t end_ns)
{
	struct fo_ring *r = &t->lane[lane];
	r->span[r->n++ % r->cap] = (struct fo_span){ begin_ns, end_ns, step, instance };
}

/* The time that counts as a span's own. Two lanes that compute share the cores, so a moment in which both run an
 * operation counts half for each; a moment in which one waits counts for the other. On other lanes: the span's
 * length. */
double fo_timeline_own_ns(const struct fo_timeline *t, int lane, const struct fo_span *s);
/* The first span of the ring, by number in [0, n), that does not end before ns; n: none. */
uint64_t fo_ring_from(const struct fo_ring *r, int64_t ns);
/* How many operations the lanes that compute ran in the step that lasted [begin, end]; a whole step has
 * fo_instances_computing. */
int fo_timeline_ran(const struct fo_timeline *t, int32_t step, int64_t begin_ns, int64_t end_ns);
int fo_instances_computing(const struct fo_program *p, const struct fo_unrolled *u);

/* ---- the step profile: parts of the step time that sum to 100 % ---- */

enum fo_part {
	FO_PART_MATMUL,
	FO_PART_ATTENTION_FORWARD,
	FO_PART_ATTENTION_BACKWARD,
	FO_PART_ELEMENTWISE,
	FO_PART_LOSS,
	FO_PART_OPTIMIZER,
	FO_PART_COMMUNICATION, /* exposed: all compute lanes waited for a communication lane */
	FO_PART_DATA,          /* waited for the loader or the host lane */
	FO_PART_UNATTRIBUTED,  /* dispatch between operations, which no span covers; waits for another compute lane */
	FO_PART_COUNT
};
extern const char *const fo_part_name[FO_PART_COUNT], *const fo_part_words[FO_PART_COUNT]; /* for files; for people */
/* Colours of the style sheet (draw/draw.h: tone), the same as a trace's ledger has for the same work. */
extern const unsigned char fo_part_tone[FO_PART_COUNT];
/* The part of the step that the time of such an operation counts for. */
enum fo_part fo_part_of_op(enum fo_op_kind kind);

struct fo_profile {
	double part_ns[FO_PART_COUNT];
	double total_ns; /* = sum of part_ns */
	int64_t steps;
	/* Steps whose operations were not timed (on a device) are in none of the above. */
	double untimed_ns;
	int64_t untimed_steps;
};
/* Adds one step with wall time [begin, end), of which loader_wait_ns went to waiting for the loader. Operations count
 * with their own time (fo_timeline_own_ns), waits are the compute lane's, and what neither covers is unattributed. A
 * step of which the compute lane has no span is an untimed one. */
void fo_profile_add_step(struct fo_profile *f, const struct fo_timeline *t, const struct fo_program *p,
			 const struct fo_unrolled *u, int32_t step, int64_t begin_ns, int64_t end_ns,
			 int64_t loader_wait_ns);

/* ---- the meter ---- */

/* A denominator: dense FLOP/s of everything the run uses, and where the number comes from. */
struct fo_peak {
	double flop_s, median_flop_s;
	char source[160];
	char dtype[8];
};

struct fo_mfu {
	double mfu, mfu_causal, mfu_6n, mfu_document, hfu;
}; /* fractions of the peak */
/* The closed formulas: f is the FLOP per token (fo_model_flop_per_token); tokens, seconds and the peak of all devices
 * are above 0. mfu_document and hfu, which take a program, are NaN. */
struct fo_mfu fo_mfu_of_tokens(const struct fo_flop *f, double tokens, double seconds, double peak_flop_s);
/* The same with mfu_document, from the true pairs (6 N_mm + 12 L H Q pairs / tokens), and hfu, what the program
 * executed. tokens: of the step, without padding; pairs: attention pairs of all its micro-batches. */
struct fo_mfu fo_mfu_of_step(const struct fo_program *p, double tokens, double pairs, double seconds,
			     double peak_flop_s);

/* MFU of a device in factors, each NAN where not known (docs/metrics.md, "OFU"): mfu = clock x work x counted = clock x
 * pipes x useful. */
struct fo_mfu_split {
	double clock;       /* mean SM clock / clock at which the device reaches its peak */
	double work;        /* FLOP that ran / FLOP that this clock gives: hfu / clock */
	double counted;     /* mfu / hfu: less than 1 by recomputation, more by causal attention */
	double hz, peak_hz; /* the two clocks */
	double pipes;       /* share of cycles in which a tensor pipe was active */
	double ofu;         /* clock x pipes: the utilisation if each of those cycles did all it can */
	double useful;      /* mfu / ofu */
	char why[160];      /* where ofu is NAN: in a clause, why; else "" */
};
/* u: what the device did during the steps; the clock is of the time in which the pipes were measured, if they were.
 * peak_hz: NAN where not known. not_tensor: in a clause, why the peak is not one of tensor pipes; NULL: it is. */
struct fo_mfu_split fo_mfu_split_of(const struct fo_mfu *m, const struct fo_nvml_use *u, double peak_hz,
				    const char *not_tensor);
/* "60.9 %: MFU = clock 75.2 % x tensor pipes active 81.0 % x 1.084 useful", or "not measured: WHY". */
void fo_ofu_text(const struct fo_mfu_split *s, struct fo_str *out);

/* ---- the file (docs/formats.md): header, of several ranks whose it is and what communicates, then per lane its spans
 * ---- */

#define FO_TIMELINE_FILE "timeline.fot" /* in a run directory: rank 0's; others' names by fo_timeline_rank_path */

/* An instance of class COMM: what several ranks do together. */
struct fo_timeline_collective {
	int32_t instance;
	uint8_t wire, group, lane, zero; /* enum fo_wire, fo_group, fo_lane */
	int32_t members, colour, place;  /* of the group: fo_mesh_group */
	int32_t peer;                    /* a rank of the group; sends, receives and broadcasts alone have one */
	int64_t bytes;                   /* that this rank receives: fo_op_cost's */
};

/* Whether these n bytes begin a timeline file, of any version. */
bool fo_timeline_begins(const void *head, size_t n);
FO_CHECKED fo_status fo_timeline_write(const struct fo_timeline *t, const struct fo_program *p, const char *path);
struct fo_timeline_file {
	uint64_t program_hash;
	int32_t rank, ranks; /* ranks 0: the file does not say; it is rank 0's or that of a run without others */
	const struct fo_timeline_collective *collective; /* by instance; in t's memory */
	int64_t collectives;
	struct fo_timeline t; /* whose: as the file says */
};
/* Reads and validates: magic, sizes, lanes, spans ordered and not negative. Freed with fo_timeline_fini(&f->t). */
FO_CHECKED fo_status fo_timeline_read(struct fo_timeline_file *f, const char *path);
/* Were these two written by one run of several ranks? */
bool fo_timeline_same_run(const struct fo_timeline_file *a, const struct fo_timeline_file *b);
/* The collective that an instance is; NULL: none. */
const struct fo_timeline_collective *fo_timeline_collective_of(const struct fo_timeline_file *f, int32_t instance);

/* "DIR/timeline.fot" of rank 0, "DIR/timeline-rank3.fot" of others. dir "": the name alone. */
char *fo_timeline_rank_path(struct fo_arena *a, const char *dir, int rank);
/* The rank that a file's name says; -1: it is no such name. */
int fo_timeline_rank_of_path(const char *path);
/* Reads the program of a rank's timeline, which lies beside it: rank 0's program.txt with the number changed, where
 * that is what the rank ran; else program-rank3.txt. FO_EFORMAT: it is not there, or of another program. */
FO_CHECKED fo_status fo_timeline_program(struct fo_program *p, const struct fo_timeline_file *f, const char *path);
/* Writes a rank's program beside its timeline unless rank 0's, with the number changed, is the same. */
FO_CHECKED fo_status fo_timeline_write_program(const struct fo_program *p, const struct fo_program *first,
					       const char *dir);

#endif
