/* Schedules of pipelines: in which order a stage works on its micro-batches.
 *
 * The layers of a model are cut into `stages` x `chunks` parts in the order of the model; position 0 has the embedding,
 * the last one the head. A stage holds one part per chunk (fo_pp_position). A schedule is a pure function from a shape
 * to each stage's list of slots: work on one micro-batch in one chunk. It decides nothing else: what a stage sends and
 * receives follows from the positions (fo_pp_needs, fo_pp_feeds).
 *
 * One file per schedule in src/program/schedule/, each beside its paper. There is no state; all memory is the caller's,
 * but where fo_pp_plan_* is used. Times are seconds. */
#ifndef FO_PROGRAM_SCHEDULE_H
#define FO_PROGRAM_SCHEDULE_H

#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* X(enumerator, name, title, placement, fewest chunks, most chunks) */
#define FO_PP_KINDS(X)                                                                        \
	X(GPIPE, "gpipe", "GPipe", LOOP, 1, 1)                                                \
	X(1F1B, "1f1b", "1F1B", LOOP, 1, 1)                                                   \
	X(INTERLEAVED, "interleaved", "interleaved 1F1B", LOOP, 2, FO_PP_CHUNKS_MOST)         \
	X(ZB_H1, "zb-h1", "zero bubble ZB-H1", LOOP, 1, 1) /* memory as 1F1B's first stage */ \
	X(ZB_H2, "zb-h2", "zero bubble ZB-H2", LOOP, 1, 1) /* about twice that memory */      \
	X(DUALPIPE_V, "dualpipe-v", "DualPipe-V", V, 2, 2) /* its V-shaped half */
#define FO_PP_ENUM(enumerator, name, title, placement, fewest, most) FO_PP_##enumerator,
enum fo_pp_kind { FO_PP_KINDS(FO_PP_ENUM) FO_PP_KINDS_COUNT };
#undef FO_PP_ENUM
enum {
	FO_PP_STAGES_MOST = 4096,
	FO_PP_MICRO_BATCHES_MOST = 1 << 16,
	FO_PP_CHUNKS_MOST = 64,
	FO_PP_SLOTS_MOST = 1 << 23
};
/* LOOP: chunk c of stage s is part c x stages + s of the model. V: chunk 0 of stage s is part s, chunk 1 is part
 * 2 x stages - 1 - s, so that the last stage hands on to itself and the first has embedding and head. */
enum fo_pp_placement { FO_PP_LOOP, FO_PP_V };
extern const char *const fo_pp_name[FO_PP_KINDS_COUNT], *const fo_pp_title[FO_PP_KINDS_COUNT];
/* FO_EARG: no such schedule; the names. */
FO_CHECKED fo_status fo_pp_kind_of(const char *name, enum fo_pp_kind *out);

struct fo_pp_shape {
	enum fo_pp_kind kind;
	int32_t stages, micro_batches, chunks; /* chunks: parts of the model that each stage holds */
};
/* FO_EARG: one sentence that says what cannot be and the nearest value that can. Every other function here wants a
 * legal shape. Any number of micro-batches is legal (dualpipe-v wants two per stage); all stages' slots together are at
 * most FO_PP_SLOTS_MOST. */
FO_CHECKED fo_status fo_pp_legal(const struct fo_pp_shape *p);
/* The fewest chunks per stage that a kind allows: its usual number. */
int32_t fo_pp_chunks_usual(enum fo_pp_kind kind);
/* Whether the kind parts backward into input and weight gradients (slots INPUT and WEIGHT). */
bool fo_pp_splits(enum fo_pp_kind kind);
/* Adds a sentence where the shape is legal but wasteful (fewer micro-batches than stages); else nothing. */
void fo_pp_remark(const struct fo_pp_shape *p, struct fo_str *out);

/* ---- slots ---- */

/* BACKWARD makes the gradients of input and weights together, INPUT of the input alone, WEIGHT of the weights alone
 * (after INPUT of the same micro-batch and chunk). */
enum fo_pp_work { FO_PP_FORWARD, FO_PP_BACKWARD, FO_PP_INPUT, FO_PP_WEIGHT, FO_PP_WORKS };
extern const char *const fo_pp_work_name[FO_PP_WORKS]; /* "forward", "backward", "backward-input", "backward-weight" */
extern const char fo_pp_letter[FO_PP_WORKS + 1];       /* "FBIW" */
struct fo_pp_slot {
	int32_t mb;
	int16_t chunk;
	uint8_t work; /* enum fo_pp_work */
};
/* Room that any stage's list takes, in slots: 2 or 3 for each micro-batch and chunk. */
int64_t fo_pp_slots_most(const struct fo_pp_shape *p);
/* Writes a stage's slots in order (room for fo_pp_slots_most); returns their number. */
int64_t fo_pp_order(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot *out);
/* The most micro-batches x chunks whose activations a list of slots holds at once: begun forward and not through with
 * BACKWARD or WEIGHT. *input (may be NULL): the same up to BACKWARD or INPUT, after which only what the weights'
 * gradient needs is held. Micro-batches are below `micro_batches`. */
int32_t fo_pp_in_flight(const struct fo_pp_slot *slot, int64_t slots, int32_t *input);

/* ---- who has which part, and who hands on to whom ---- */

static inline int32_t fo_pp_parts(const struct fo_pp_shape *p) { return p->stages * p->chunks; }
enum fo_pp_placement fo_pp_placement(enum fo_pp_kind kind);
/* The part of the model (0 first) that a stage's chunk is; and the other way round. */
int32_t fo_pp_position(const struct fo_pp_shape *p, int32_t stage, int32_t chunk);
void fo_pp_holder(const struct fo_pp_shape *p, int32_t position, int32_t *stage, int32_t *chunk);
/* Another part's slot. Of a backward one `work` is FO_PP_BACKWARD, which stands for INPUT, too. */
struct fo_pp_peer {
	int32_t stage; /* the same stage: nothing is sent, the tensor is handed on in memory */
	struct fo_pp_slot slot;
};
/* The slot whose output a slot of this stage takes in: activations from the part before, gradients from the part
 * behind. False: none (first part's forward, last part's backward, WEIGHT). */
bool fo_pp_needs(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot slot, struct fo_pp_peer *out);
/* The slot that takes in this one's output. False: none (last part's forward, first part's backward, WEIGHT). */
bool fo_pp_feeds(const struct fo_pp_shape *p, int32_t stage, struct fo_pp_slot slot, struct fo_pp_peer *out);
/* ---- all stages' lists ---- */

/* Lists of all stages: slot[begin[s]] to slot[begin[s + 1]]. Any order can be put in here, right or wrong. */
struct fo_pp_plan {
	struct fo_pp_shape shape;
	struct fo_pp_slot *slot;
	int64_t *begin; /* (stages + 1) */
};
void fo_pp_plan_of(struct fo_pp_plan *out, const struct fo_pp_shape *p); /* freed with fo_pp_plan_free */
void fo_pp_plan_free(struct fo_pp_plan *plan);

/* How transfers meet. BUFFERED: a sender goes on, the receiver takes what has come in any order. LANES: a send ends
 * when its receive does, and each stage has one in-order lane for sends and one for receives in each direction (as the
 * engine's lanes are). BLOCKING: as LANES, and the stage itself waits for its sends and receives, which stand in its
 * order behind and in front of the slot. */
enum fo_pp_sends { FO_PP_BUFFERED, FO_PP_LANES, FO_PP_BLOCKING, FO_PP_SENDS };
extern const char *const fo_pp_sends_name[FO_PP_SENDS];
/* Whether a plan can run: each slot exactly once, WEIGHT after its INPUT, backward after its forward, and nothing waits
 * for itself over any number of stages. FO_EARG: the first defect, with stage, slot and what it waits for. */
FO_CHECKED fo_status fo_pp_check(const struct fo_pp_plan *plan, enum fo_pp_sends sends);

/* ---- times ---- */

/* Seconds of a slot by part of the model, and of a transfer from one part to the next. NULL: the single value that
 * stands beside it. BACKWARD takes input + weight. */
struct fo_pp_times {
	const double *forward, *input, *weight; /* by position */
	double forward_s, input_s, weight_s, send_s;
};
double fo_pp_seconds(const struct fo_pp_times *t, int32_t position, int work);
struct fo_pp_span {
	double begin, end;
};
struct fo_pp_walk {
	struct fo_pp_span *span; /* of each slot of the plan */
	double *busy;            /* of each stage: seconds of its slots */
	double step_s;           /* from 0 to the last slot's end */
	double pipeline_s; /* the longest that one stage takes from its first slot's begin to its last one's end */
	double bubble;     /* share of step_s x stages in which no slot runs */
};
/* Walks through a plan event by event: each slot begins when the one before it on its stage has ended and what it needs
 * has arrived. FO_EARG as fo_pp_check. Freed with fo_pp_walk_free. */
FO_CHECKED fo_status fo_pp_walk_of(struct fo_pp_walk *out, const struct fo_pp_plan *plan, const struct fo_pp_times *t,
				   enum fo_pp_sends sends);
void fo_pp_walk_free(struct fo_pp_walk *w);

/* The published formula of a schedule's bubble, in seconds per step beyond micro_batches x (forward + backward): equal
 * parts, sends that take no time. forward, input, weight: of one whole stage (all its chunks), one micro-batch. */
struct fo_pp_formula {
	double idle_s;      /* NAN: the condition is not met by this shape and these times */
	bool bound;         /* the walk gives at most this; else it gives the same */
	bool of_pipeline;   /* of fo_pp_walk.pipeline_s rather than of step_s: the optimizer waits for no other stage */
	const char *text;   /* "(p - 1) (F + B)" */
	const char *source; /* paper and section */
	const char *condition; /* under which the formula holds */
};
void fo_pp_formula_of(struct fo_pp_formula *out, const struct fo_pp_shape *p, double forward, double input,
		      double weight);
/* The published peak of a stage's activations in flight, in micro-batches x chunks: what fo_pp_in_flight counts. */
int64_t fo_pp_in_flight_formula(const struct fo_pp_shape *p, int32_t stage);

/* ---- layers of a model over stages ---- */

/* Predicted costs on one stage. All layers are alike; the first part has the embedding, the last one the head. Seconds
 * are forward and backward of one micro-batch. Bytes stay all step long (weights, gradients, optimizer's state); held
 * bytes are the activations of one micro-batch in flight. Where embedding and head are tied, both have the matrix. */
struct fo_pp_costs {
	double layer_s, embed_s, head_s;
	double layer_bytes, embed_bytes, head_bytes;
	double layer_held, embed_held, head_held;
	double room; /* bytes that a stage has; 0: no limit */
};
struct fo_pp_balance {
	int32_t *layers;    /* by part of the model, each at least 1: the caller's, [fo_pp_parts] */
	double slowest_s;   /* of the slowest stage */
	double fullest;     /* bytes of the fullest stage */
	int32_t slow, full; /* which stages these are */
	double mean_s;      /* of all stages: no split is faster than this */
};
/* Splits `layers` layers so that the slowest stage is as fast as it can be within the room; of those splits, one whose
 * fullest stage is emptiest; of those, the most even one. A step takes the sum of all stages' times and m - 1 times the
 * slowest one's, and the sum is the same for every split. A stage's layers go to its chunks so that the slowest chunk
 * is fastest. Exact: dynamic programming over stages and layers. FO_EARG: fewer layers than parts. FO_ENOMEM: nothing
 * fits; what the best split needs. */
FO_CHECKED fo_status fo_pp_balance_of(struct fo_pp_balance *out, const struct fo_pp_shape *p, int32_t layers,
				      const struct fo_pp_costs *c);
/* Seconds and bytes of a stage with these layers by part; either may be NULL. */
void fo_pp_stage_costs(const struct fo_pp_shape *p, int32_t stage, const int32_t *layers, const struct fo_pp_costs *c,
		       double *seconds, double *bytes);

#endif
