/* Two jobs' traces beside each other, and what explains the difference of their steps.
 *
 * Of each side the slowest rank's fo_shown_device stands for the job (the job's step is one number: the others wait for
 * it). Every figure is of one step, in seconds: the mean over the steps, so that parts sum to the step and the parts'
 * differences to the step's difference exactly, and beside it median and quartiles. A difference is resolved when both
 * sides have at least FO_TRACES_STEPS steps and the quartile ranges are apart; else the steps vary by as much as they
 * differ. Where a side has no steps (the whole trace is one window) nothing is resolved, and shares are what can be
 * compared.
 *
 * Texts belong to the comparison (arena); diagnoses must outlive it. */
#ifndef FO_REPORT_TRACES_VERSUS_H
#define FO_REPORT_TRACES_VERSUS_H

#include "base/clock.h"
#include "base/mem.h"
#include "diagnose/diagnose.h"
#include "draw/doc.h"

enum { FO_TRACES_STEPS = 3 }; /* quartiles of fewer say nothing */

struct fo_traces_figure {
	double mean[2]; /* seconds of a step */
	struct fo_spread time[2];
	double difference; /* of the means, B - A */
	bool resolved;
};
/* A part of the ledger. Leaves sum to the whole step, as do the rows of level 1. */
struct fo_traces_part {
	const char *name, *id; /* in words; as in JSON: "idle", "idle.host_data" */
	int level;             /* 0: the step itself, 1: compute, ..., 2: what that consists of */
	bool leaf;
	struct fo_traces_figure f;
};
enum { FO_TRACES_PARTS = 1 + 4 + FO_K_COMPUTE_COUNT + 3 + FO_COPY_COUNT + FO_IDLE_COUNT };

/* Kernels and copies of one name (without template arguments, fo_kernel_short_name). */
struct fo_traces_kernel {
	const char *name;
	enum fo_kernel_class class;
	double calls[2]; /* in a step; 0: not there */
	struct fo_traces_figure f;
};
struct fo_traces_collective {
	const char *name;
	int32_t group_size;        /* -1 unknown */
	double calls[2], bytes[2]; /* in a step; bytes NaN where the traces do not tell */
	double time[2];            /* seconds in a step, durations added up */
};
struct fo_traces_product {
	const struct fo_product *in[2]; /* NULL: not there */
	double call_s[2];               /* seconds of a call; NaN */
};

struct fo_traces_side {
	const struct fo_diagnosis *d;
	const struct fo_rank_ledger *rank; /* NULL: no trace with GPU operations */
	const struct fo_device_ledger *device;
	double utilisation, mfu; /* NaN */
	double ops;              /* GPU operations in a step */
};
struct fo_traces_versus {
	struct fo_arena arena;
	struct fo_traces_side side[2];
	bool windows; /* both have steps, not the whole trace as one */
	struct fo_traces_part part[FO_TRACES_PARTS];
	int parts;
	struct fo_traces_kernel *kernel; /* largest difference first */
	int64_t kernels;
	struct fo_traces_collective *collective; /* by time */
	int64_t collectives;
	struct fo_traces_product *product; /* by the difference of their time */
	int64_t products;
	/* Indices of leaves, largest difference first, without those that are equal. */
	int order[FO_TRACES_PARTS], ordered;
	const char **cause; /* sentences: what else differs */
	int64_t causes;
};
void fo_traces_versus_make(struct fo_traces_versus *v, const struct fo_diagnosis *a, const struct fo_diagnosis *b);
void fo_traces_versus_fini(struct fo_traces_versus *v);
/* The comparison as a document; path: of A and B, as the user named them. all: a terminal gets whole lists. */
void fo_traces_versus_doc(const struct fo_traces_versus *v, const char *const path[2], bool all, struct fo_doc *d);

#endif
