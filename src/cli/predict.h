/* flatout predict: the options and words that its two halves share. */
#ifndef FO_CLI_PREDICT_H
#define FO_CLI_PREDICT_H

#include "cli/spread.h"
#include "program/run.h"
#include "sim/compare.h"
#include "sim/ranks.h"

struct predict {
	struct fo_run run;
	const char *profile, *compare, *timeline, *device;
	const char *what_if, *scale, *without, *timelines, *trace;
	const char *cluster, *torchtitan, *megatron, *deepspeed; /* never set: predict_cluster.c has them */
	double documents, links;
	struct fo_cli_spread spread;
	int over; /* 0 threads, 1 MPI */
	bool all, budget, force;
	const char *json;
};

/* Reads the profile that is given, or with "" this machine's. FO_EUNSUPPORTED: it has none. *out needs fini where this
 * succeeds. */
FO_CHECKED fo_status fo_cli_profile_read(struct fo_arena *arena, const char *given, struct fo_limits *out);
/* Seconds of the step that flatout predict prints; options: where `in` came from. */
FO_CHECKED fo_status fo_cli_predict_seconds(const struct predict *in, const struct fo_opt_set *options,
					    double *seconds);
/* Writes the predicted step as a timeline. */
FO_CHECKED fo_status fo_cli_predict_timeline(const struct fo_sim *s, const struct fo_program *p,
					     const struct fo_unrolled *u, const char *path);
/* The operand that tells an operation from others of its kind: the weight it reads, else what it writes. NULL:
 * neither. */
const char *fo_cli_predict_operand(const struct fo_program *p, const struct fo_sim_line *l);
/* An operation's name in lists: block, kind, phase, and its operand where several of t are alike. */
const char *fo_cli_predict_operation(struct fo_doc *d, const struct fo_program *p, const struct fo_sim_table *t,
				     const struct fo_sim_line *l);
/* Predicts the step on an accelerator of the catalogue (predict_device.c). */
FO_CHECKED fo_status fo_cli_predict_device(const struct fo_cli_call *call);

/* Runs recorded steps again with other times (predict_what_if.c). */
FO_CHECKED fo_status fo_cli_predict_what_if(const struct fo_cli_call *call);

/* ---- several ranks (predict_ranks.c) ---- */

struct fo_predict_ranks {
	struct fo_sim_ranks job;
	struct fo_link_rates links;
	int threads;                    /* of each rank */
	struct fo_spread_in spread;     /* where steps are drawn */
	struct fo_sim_exposed measured; /* with --compare; steps 0: nothing to compare with */
};
/* Timelines of the ranks in a folder, and a trace of those that differ; "": not. */
FO_CHECKED fo_status fo_cli_predict_ranks_files(const struct fo_predict_ranks *x, const char *dir, const char *trace);
void fo_cli_predict_ranks(const struct fo_predict_ranks *x, struct fo_doc *d);
/* An interval as a record. */
void fo_cli_json_interval(struct fo_json *j, const char *name, struct fo_interval x);
void fo_cli_predict_ranks_json(const struct fo_predict_ranks *x, struct fo_json *j);
/* An option of a run that is recorded there (r NULL: no run), else what is given. */
double fo_cli_predict_link_option(const struct fo_record *r, const char *key, double given);

#endif
