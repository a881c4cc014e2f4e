/* flatout predict --cluster: its options and what is predicted, shared by the files of that command. */
#ifndef FO_CLI_PREDICT_CLUSTER_H
#define FO_CLI_PREDICT_CLUSTER_H

#include "cli/goodput.h"
#include "cli/spread.h"
#include "job/memory.h"
#include "job/predict.h"
#include "plan/timeline.h"
#include "predict/division.h"

/* Options that say which job on which machines. */
struct fo_cli_job {
	const char *cluster, *model, *set, *devices_file;
	const char *torchtitan, *megatron, *deepspeed;
	int framework; /* place among the option's values; -1: not named */
	int64_t seq, global_tokens, global_batch, micro_batch, micro_batches;
	int64_t tp, cp, pp, ep, chunks, replicate, shard, zero, recompute_layers;
	int schedule, precision, recompute; /* -1: not given */
	const char *bandwidth;
	double watts;
};
/* The words of --recompute, in the order of enum fo_plan_again. */
#define FO_CLI_AGAIN "none|selective|quarter|half|three-quarters|full"
enum { FO_CLI_MEGATRON = 1 }; /* fo_cli_job.framework */

#define FO_CLI_TYPES "bf16|fp16|fp32|tf32|fp8|mxfp8|fp4" /* the values of fo_cli_job.precision */
/* Rows of a table whose struct S has a `struct fo_cli_job` called `job` at its begin; group is the keys' first part. */
#define FO_CLI_JOB_ROWS(S, group)                                                     \
	FO_CLI_JOB_ROWS_TYPED(S, group,                                               \
			      FO_OPT_ENUM(S, job.precision, group ".precision", NULL, \
					  "type of the linear layers' products", FO_CLI_TYPES))
/* The same with another row for --precision. */
#define FO_CLI_JOB_ROWS_TYPED(S, group, row)                                                                           \
	FO_OPT_PATH(S, job.cluster, group ".cluster", "C", NULL,                                                       \
		    "where it runs: 16xHGX-H100, 128xA100, 32x8xH100, 4xGB200-NVL72, or the path of a cluster file"),  \
		FO_OPT_PATH(S, job.model, group ".model", "M", NULL,                                                   \
			    "what is trained: preset, name on Hugging Face, path of a config.json"),                   \
		FO_OPT_ENUM(S, job.framework, group ".framework", NULL,                                                \
			    "whose habits and defaults count where no file is given; not named: eager PyTorch's, "     \
			    "where divisions are searched Megatron-LM's",                                              \
			    "torchtitan|megatron|megatron-bridge|deepspeed|flatout"),                                  \
		FO_OPT_LENGTH(S, job.seq, group ".seq", "N", NULL, 1, 1 << 24, "tokens of a sequence"),                \
		FO_OPT_LENGTH(S, job.global_tokens, group ".global-tokens", "N", NULL, 1, 1e12,                        \
			      "tokens of a step of all devices"),                                                      \
		FO_OPT_INT(S, job.global_batch, group ".global-batch", "N", NULL, 1, 1e9, "sequences",                 \
			   "sequences of a step of all devices"),                                                      \
		FO_OPT_INT(S, job.micro_batch, group ".micro-batch", "N", NULL, 1, 1e6, "sequences",                   \
			   "sequences that pass a device at once"),                                                    \
		FO_OPT_INT(S, job.micro_batches, group ".micro-batches", "N", NULL, 1, 1e6, "",                        \
			   "micro-batches of a step, in place of a global batch"),                                     \
		FO_OPT_INT(S, job.tp, group ".tp", "N", NULL, 1, 1e6, "devices", "tensor parallel"),                   \
		FO_OPT_INT(S, job.cp, group ".cp", "N", NULL, 1, 1e6, "devices", "context parallel"),                  \
		FO_OPT_INT(S, job.pp, group ".pp", "N", NULL, 1, 1e6, "devices", "pipeline stages"),                   \
		FO_OPT_INT(S, job.ep, group ".ep", "N", NULL, 1, 1e6, "devices", "expert parallel"),                   \
		FO_OPT_INT(S, job.chunks, group ".chunks", "N", NULL, 1, 1e4, "", "model chunks of a pipeline rank"),  \
		FO_OPT_ENUM(S, job.schedule, group ".schedule", NULL,                                                  \
			    "pipeline schedule; gpipe: where none is searched", "gpipe|1f1b|interleaved|zero-bubble"), \
		FO_OPT_INT(S, job.replicate, group ".replicate", "N", NULL, 1, 1e6, "",                                \
			   "replicas of a sharded model (HSDP)"),                                                      \
		FO_OPT_INT(S, job.shard, group ".shard", "N", NULL, 1, 1e6, "", "ranks that shard one replica"),       \
		FO_OPT_INT(S, job.zero, group ".zero", "N", "-1", -1, 3, "",                                           \
			   "what data-parallel ranks shard: 0 nothing, 1 optimizer, 2 gradients, 3 weights (FSDP)"),   \
		FO_OPT_ENUM(S, job.recompute, group ".recompute", NULL,                                                \
			    "activations that backward computes again; quarter, half, three-quarters: of the layers, " \
			    "whole ones",                                                                              \
			    FO_CLI_AGAIN),                                                                             \
		FO_OPT_INT(S, job.recompute_layers, group ".recompute-layers", "N", NULL, 1, 1e6, "layers",            \
			   "layers that compute again; not given: all"),                                               \
		row,                                                                                                   \
		FO_OPT_TEXT(S, job.set, group ".set", "NAME=VALUE,...", NULL,                                          \
			    "other settings, as 'flatout audit --settings' names them: reshard=off,compile=on"),       \
		FO_OPT_PATH(S, job.torchtitan, group ".torchtitan", "FILE", NULL,                                      \
			    "a torchtitan configuration: TOML, or as torchtitan prints it"),                           \
		FO_OPT_PATH(S, job.megatron, group ".megatron", "ARGS", NULL,                                          \
			    "Megatron-LM's arguments: a file, a script, or the text itself"),                          \
		FO_OPT_PATH(S, job.deepspeed, group ".deepspeed", "FILE", NULL, "a DeepSpeed configuration, JSON"),    \
		FO_OPT_TEXT(                                                                                           \
			S, job.bandwidth, group ".measured-bandwidth", "GB/S", NULL,                                   \
			"what collectives of one device reach between nodes, one direction, as measured: 38, 30..40"), \
		FO_OPT_REAL(S, job.watts, group ".power-limit", "W", NULL, 50, 5000, "W",                              \
			    "power limit of a device; not given: its own"),                                            \
		FO_OPT_PATH(S, job.devices_file, group ".devices-file", "PATH", NULL,                                  \
			    "CSV with own devices, as data/devices.csv")

/* What these options mean. */
struct fo_cli_asked {
	struct fo_arena arena;
	struct fo_catalogue catalogue;
	struct fo_cluster cluster;
	struct fo_job job;
	struct fo_job_machine_given given;
	int files;           /* configurations that were read, the text of --megatron too */
	const char *note[4]; /* what was assumed of the work, a sentence each */
	int notes;
};
/* Reads files and options. A job without a stated device, cluster or batch is left so for the caller to refuse. *out
 * needs fini also after an error. */
FO_CHECKED fo_status fo_cli_job_read(const struct fo_cli_call *call, const struct fo_cli_job *in,
				     struct fo_cli_asked *out);
/* Checks that the cluster's device can have what is asked: the number type, the power limit. */
FO_CHECKED fo_status fo_cli_job_check_device(const struct fo_cli_job *in, const struct fo_cli_asked *a);
/* The name of the type of the job's products: "fp16" where its framework runs bf16's speed in fp16. */
const char *fo_cli_job_type_name(const struct fo_cli_asked *a, enum fo_predict_type type);
void fo_cli_job_fini(struct fo_cli_asked *a);

/* One prediction as it is told. */
struct fo_cli_predicted {
	const struct fo_cli_asked *asked;
	struct fo_job_asked job;
	struct fo_predict_step step;
	struct fo_predict_certainty sure;
	const char
		*not_planned; /* why memory of Flatout's own job is an estimate; NULL: it is planned, or no such job */
	const char *fits_not; /* one sentence: does not fit, what would; NULL: it fits or may */
	const struct fo_plan_timeline *timeline; /* NULL: nobody asked for it */
	const struct fo_spread_steps *spread;    /* drawn steps of that timeline; NULL: nobody asked for it */
	const struct fo_cli_goodput *goodput;    /* what was given of failures; NULL: nothing */
	struct fo_goodput_in goodput_in;
};
void fo_cli_predicted_doc(struct fo_doc *d, const struct fo_cli_predicted *p);
/* A line on memory of Flatout's own: planned to the byte, or an estimate and why. */
void fo_cli_memory_ground(struct fo_doc *d, const struct fo_predict_step *s, const char *not_planned);
void fo_cli_predicted_json(struct fo_json *j, const struct fo_cli_predicted *p);
/* A step's losses against the peak, as a waterfall of 100 % in all; a timeline's picture, which does not need the
 * timeline any longer. */
void fo_cli_losses(struct fo_doc *d, const struct fo_predict_step *s);
void fo_cli_timeline_lanes(struct fo_doc *d, const char *model, const struct fo_plan_timeline *t);
/* The picture of the timeline, on pages alone; and its files (either may be NULL). */
void fo_cli_predicted_lanes(struct fo_doc *d, const struct fo_cli_predicted *p);
FO_CHECKED fo_status fo_cli_predicted_write(const struct fo_cli_predicted *p, const char *svg, const char *trace);
/* A division in words (predict/division.h), and what it computes again. */
const char *fo_cli_division(struct fo_doc *d, const struct fo_division *x, bool narrow);
const char *fo_cli_recompute(struct fo_doc *d, const struct fo_predict_layout *l);
/* Why to distrust figures, each on a line: a flag, and the size of the cluster (NULL and "": nothing). of: whose they
 * are, where several are shown, or NULL. */
void fo_cli_say_doubts(struct fo_doc *d, const char *of, const char *flag, const char *size);
/* The mark behind a figure of a cluster whose size is in doubt. */
static inline const char *fo_cli_mark(const char *size) { return size && *size ? " ?" : ""; }
/* "61 to 66 GiB": an interval of bytes or seconds, for people. */
const char *fo_cli_range(struct fo_doc *d, struct fo_range r, enum fo_draw_unit unit);
/* The same as a record with its middle; NAN: null. */
void fo_cli_json_range(struct fo_json *j, const char *key, double mid, struct fo_range r);

#endif
