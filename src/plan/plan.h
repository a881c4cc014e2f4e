/* The best division of a job over a cluster, by looking at every one that is legal.
 *
 * A division is a point of pp with its schedule and chunks and where its stages are, data parallelism with its ZeRO
 * stage, the ranks that share states and how long gathered weights stay, cp, tp with sequence parallelism and overlap,
 * ep, recomputation and micro-batch; where several are asked for, the number type and the format of the optimizer's
 * states. Each that a framework can run is counted in memory by src/predict, and each that fits by the most that it may
 * take is timed in closed form. Nothing else is left out but GPipe, which never takes less time or memory than 1F1B
 * (tests/unit/test_plan.c): there is no rule of thumb. */
#ifndef FO_PLAN_PLAN_H
#define FO_PLAN_PLAN_H

#include "predict/predict.h"
#include "program/schedule.h"

enum { FO_PLAN_HALF = FO_PREDICT_TYPES }; /* fp16's place behind the types */
/* A framework and the divisions that it can run: the rows of fo_plan_framework in search.c. */
struct fo_plan_framework {
	const char *id, *title;
	uint32_t zero;    /* bit s: ZeRO stage s */
	bool shards_part; /* replicas of sharded models (HSDP) */
	bool tp, cp, pp, ep;
	uint32_t schedules;  /* bit: enum fo_predict_schedule */
	bool keeps_weights;  /* it can be told to keep gathered weights until backward */
	bool stages_near;    /* it can be told to put stages inside of data parallelism */
	bool tp_overlap;     /* it can be told to hide tensor parallelism's communication */
	double chunks;       /* the most of a pipeline rank; 1: it does not interleave */
	bool pp_zero_most_1; /* pipelines share nothing but the optimizer's states */
	bool pp_even;   /* stages divide the layers, or the layers, embedding and loss together (fo_plan_accounts) */
	bool sp_always; /* tensor parallelism is never without sequence parallelism */
	uint32_t again; /* bit: enum fo_plan_again */
	uint32_t again_piped; /* those that it has with a pipeline, too; 0: all of them */
	uint32_t types;       /* bit: enum fo_predict_type that its settings can state; FO_PLAN_HALF: fp16 */
	uint32_t formats;     /* bit: enum fo_predict_format, the same */
	bool formats_shared;  /* moments of less than fp32 are kept beside ZeRO 1 and above alone */
	bool executes;        /* it is Flatout, whose executor says itself which meshes it runs */
	const char *origin;   /* where that is stated */
};
extern const struct fo_plan_framework fo_plan_framework[];
extern const int fo_plan_frameworks;
const struct fo_plan_framework *fo_plan_framework_of(const char *id); /* NULL: none of that name */
/* The one for a form of src/job ("megatron-bridge", "torchtitan-fork"); "any" where none is like it. */
const struct fo_plan_framework *fo_plan_framework_of_form(const char *form);

enum fo_plan_again {
	FO_PLAN_AGAIN_NONE,
	FO_PLAN_AGAIN_OP,      /* torchtitan's selective: every second product and what is bound by memory */
	FO_PLAN_AGAIN_QUARTER, /* of the layers, whole */
	FO_PLAN_AGAIN_HALF,
	FO_PLAN_AGAIN_MOST, /* three quarters */
	FO_PLAN_AGAIN_FULL,
	FO_PLAN_AGAIN_FRONT, /* all layers of a pipeline's first stages, which hold the most micro-batches */
	FO_PLAN_AGAINS
};
/* As JSON has it and, but for the last, --recompute takes it. */
extern const char *const fo_plan_again_id[FO_PLAN_AGAINS];
extern const char *const fo_plan_again_name[FO_PLAN_AGAINS];
extern const char *const fo_plan_again_short[FO_PLAN_AGAINS]; /* for a narrow table: "1/4" */
extern const double fo_plan_again_share[FO_PLAN_AGAINS];      /* of a forward that backward repeats */

/* A number that is fixed, 0: free. The others: -1 is free. */
struct fo_plan_fixed {
	double tp, cp, pp, ep, chunks, shard, micro_batch;
	int zero, schedule, again, keeps_weights, stages_near, tp_overlap;
};
#define FO_PLAN_FREE                                                                                              \
	(struct fo_plan_fixed)                                                                                    \
	{                                                                                                         \
		.zero = -1, .schedule = -1, .again = -1, .keeps_weights = -1, .stages_near = -1, .tp_overlap = -1 \
	}
struct fo_plan_programs;
struct fo_plan_asked {
	struct fo_predict_base base;
	const struct fo_plan_framework *framework;
	double devices, global_batch; /* sequences of a step */
	struct fo_plan_fixed fixed;
	/* Number types of products (bit: enum fo_predict_type) and formats of the optimizer's states (bit: enum
	 * fo_predict_format) that are searched; 0: the job's own alone. Others change what is computed. */
	uint32_t types, formats;
	double memory_bytes;          /* that a division may take; 0: the machine's */
	bool half;                    /* FO_PREDICT_BF16 is fp16 here */
	const struct fo_model *model; /* what Flatout's executor is asked about; NULL: it is not asked */
	/* Programs that Flatout's executor has planned for divisions (programs.h), to which a search adds; beside
	 * `model`. All that it returns fits by its program, or by the most that it may take where planning takes too
	 * long. NULL: all memory is estimated. */
	struct fo_plan_programs *programs;
	bool programs_known; /* no more is planned: what is not known must fit by the most that it may take */
};

/* Two divisions nearer than this are a tie. Who picks by predictions of this kind ends 4.9 % above the measured best in
 * the mean (vTrain's 1,440 runs of one node, models left out in turn, November 2026); published runs of one and the
 * same configuration lie 2.2 % from their median. */
#define FO_PLAN_TIE 0.05

struct fo_plan_point {
	struct fo_predict_layout layout;
	enum fo_plan_again again;
	struct fo_predict_step step;
	double tokens_s; /* of all devices */
	int parts;       /* how much there is to it: axes, schedules, recomputation (fo_plan_parts) */
};
enum { FO_PLAN_SHOWN = 12 };
struct fo_plan {
	/* The best of each division into tp, cp, pp and ep, the fastest first; among them, where it is none of these,
	 * the one to take. */
	struct fo_plan_point point[FO_PLAN_SHOWN];
	int points;
	int named;    /* the simplest of all divisions that tie with point[0]: what to take */
	int64_t ties; /* of all divisions, those that tie with point[0], itself among them */
	int64_t legal, timed,
		too_large;             /* divisions: that the framework can run, evaluated for time, that do not fit */
	double seconds;                /* that the search took */
	struct fo_plan_point smallest; /* the one that takes the least memory, for when none fits */
};
/* Does a step of so many seconds tie with the fastest? */
static inline bool fo_plan_ties(const struct fo_plan *p, double seconds)
{
	return seconds <= (1 + FO_PLAN_TIE) * p->point[0].step.seconds;
}
/* FO_EARG, with the nearest thing that works: a batch or a fixed number that no division has; a fixed degree that the
 * framework lacks. FO_ENOMEM: no legal division fits; *out has the smallest. */
FO_CHECKED fo_status fo_plan_search(struct fo_plan *out, const struct fo_plan_asked *asked);
/* The same by the programs that are known already: nothing is planned. */
FO_CHECKED fo_status fo_plan_search_once(struct fo_plan *out, const struct fo_plan_asked *asked);

/* Is any division legal? In a fraction of a search's time. */
bool fo_plan_possible(const struct fo_plan_asked *asked);
/* The next smaller part of a cluster that is worth a look: half of it where that is whole nodes (below a node: whole
 * devices), else the largest power of two of them. 0: there is none. */
double fo_plan_part_of(double per_node, double devices);
/* Number types of 8 bits that the framework's settings can state and the device has, as bits. */
uint32_t fo_plan_types_8(const struct fo_plan_asked *asked);
/* Has the device such products? Blocks of 32 that share a scale are what devices with fp4 have units for. */
bool fo_plan_has_type(const struct fo_predict_machine *m, int type);
/* Are two divisions of one cluster and batch the same? */
bool fo_plan_same(const struct fo_predict_layout *a, const struct fo_predict_layout *b);
/* How simple a division is: smaller is simpler. */
int fo_plan_parts(const struct fo_predict_layout *l, double ranks);
/* Megatron-LM: stages that do not divide the layers divide layers + 2, where embedding and loss count as a layer
 * each. */
bool fo_plan_accounts(const struct fo_plan_asked *asked, const struct fo_predict_layout *l);
/* Is a division legal for this framework and this model? NULL, or why not in one static sentence. */
const char *fo_plan_illegal(const struct fo_plan_asked *asked, const struct fo_predict_layout *l);
/* Number types and formats of states that are searched, as bits. */
static inline uint32_t fo_plan_types(const struct fo_plan_asked *a)
{
	return a->types ? a->types : 1u << a->base.job.type;
}
static inline uint32_t fo_plan_formats(const struct fo_plan_asked *a)
{
	return a->formats ? a->formats : 1u << FO_PREDICT_FORMAT_JOB;
}
/* Bits of what a framework can compute again with so many stages. */
uint32_t fo_plan_agains_of(const struct fo_plan_framework *f, double pp);
/* Bytes that a division may take. */
static inline double fo_plan_room(const struct fo_plan_asked *a)
{
	return a->memory_bytes > 0 ? a->memory_bytes : a->base.job.machine.memory_bytes;
}
/* Calls fn with every legal division until it returns false; the order is fixed. For tests and benches. */
void fo_plan_each(const struct fo_plan_asked *asked,
		  bool (*fn)(void *ctx, const struct fo_predict_layout *l, int again), void *ctx);

#endif
