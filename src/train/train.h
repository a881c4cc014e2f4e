/* The training loop: data, program, executor, checkpoints, logs. It names ports and buffers' homes, never an operation.
 *
 * Everything a user sees goes through hooks; the loop itself writes only into the run directory:
 *   run.json          effective options with origins, commit, machine, versions, checksums
 *   log.jsonl         one JSON object per step, evaluation and checkpoint
 *   program.txt       the step program that ran
 *   timeline.fot      the newest spans
 *   metered.fom       spans of the metered steps (train.metered-every)
 *   paced.json        the profile whose times operations took (train.paced)
 *   kernels.jsonl     kernels of the first steps on a device (train.kernel-times)
 *   tensorboard/      event files (report.tensorboard=yes)
 *   data/             tokenizer.json, train.shard, val.shard, source.txt (what they were made from)
 *   lock              held while a process trains here
 *   checkpoints/      step-%08d */
#ifndef FO_TRAIN_TRAIN_H
#define FO_TRAIN_TRAIN_H

#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "data/data.h"
#include "hw/nvml.h"
#include "hw/state.h"
#include "kernel/calibrate.h"
#include "pass/pass.h"
#include "program/run.h"
#include "timeline/timeline.h"
#include "train/device.h"
#include "train/event.h"
#include "train/exec.h"

#include <signal.h>

/* More micro-batches in a step than these gain nothing that is worth a line by sharing the optimizer. */
enum { FO_TRAIN_MICRO_BATCHES = 32 };

struct fo_train_plan {
	const struct fo_run *run;
	const struct fo_program *program;
	const struct fo_unrolled *instances; /* of its operations */
	struct fo_memory memory;             /* of the training step */
	/* The next three are of the device's memory where one computes, memory_available without the reserve. */
	int64_t memory_other;      /* evaluation's arena beyond the step's, loader, recorder */
	int64_t memory_checkpoint; /* the copy that is written while training goes on; 0: checkpoints are waited for */
	int64_t memory_available;
	int64_t save_bytes; /* of one checkpoint on the disk */
	int64_t save_count; /* so many more of them at once, while the run goes on; 0: none is written */
	int64_t disk_free;  /* of the file system of run.dir; -1: not known */
	const struct fo_cuda_device *device; /* NULL: the processor */
	int devices;                         /* of all ranks */
	bool over_nccl; /* of several ranks on devices: calls go over NCCL, else through host memory */
	/* Device: its free memory that is not planned on; host memory of tables, pieces, staging, loader, activations
	 * that wait there and the copy; that copy alone, 0: checkpoints are waited for. */
	int64_t memory_reserve, memory_host, memory_host_copy;
	struct fo_exec_code code[FO_EXEC_CODES_MAX]; /* whose code runs how many operations */
	int codes;
	struct fo_cuda_tuned tuned; /* device: how algorithms of matmuls were chosen */
	struct fo_peak peak;        /* flop_s 0: unknown, see peak.source */
	enum fo_isa isa;
	bool paced; /* kernels do nothing: operations take given times */
	int threads;
	int ranks_here; /* whose threads and memory these are: all ranks, or one of them */
	int kernels[FO_ISA_COUNT];
	int64_t resumed_step;             /* 0: from the start */
	int64_t train_tokens, val_tokens; /* in the shards */
	struct fo_params params;
	double gain_of_more;     /* device: share of a step's time that FO_TRAIN_MICRO_BATCHES would save */
	struct fo_choice choice; /* planned 0: nothing was left to choose */
};

/* Bytes that the run plans to take: of the device, or of the host. */
static inline int64_t fo_train_planned(const struct fo_train_plan *p)
{
	return fo_memory_taken(&p->memory, p->device != NULL) + p->memory_other + p->memory_checkpoint;
}

struct fo_processes;
struct fo_train_hooks {
	void *ctx;
	fo_progress_fn *progress;         /* long preparations; may be NULL */
	fo_event_fn *event;               /* may be NULL */
	volatile sig_atomic_t *stop;      /* not 0: checkpoint and return FO_EINTERRUPT */
	bool dry_run;                     /* return after FO_EVENT_PLAN */
	const char *run_json;             /* JSON that goes into run.json: options, version; may be NULL */
	const struct fo_opt_set *options; /* of the run: none may contradict program.file; may be NULL */
	struct fo_processes *processes;   /* that the run's ranks are, joined; NULL: threads of this process */
	const char *version;              /* of the program, as other tools shall name it; may be NULL */
};

struct fo_train_result {
	int64_t steps, tokens, loss_tokens; /* of this process */
	int64_t first_step; /* the whole run's first that was taken, else (old checkpoints) this process's */
	double first_loss, last_loss, mean_loss; /* training; mean over the last tenth of the steps */
	double val_loss, bigram_loss;            /* nats per token; NAN when not computed */
	double seconds;                          /* spent in steps */
	double tokens_per_second;                /* useful, unfiltered median over steps */
	struct fo_mfu mfu;                       /* medians over steps, unfiltered */
	struct fo_profile profile;
	struct fo_peak peak;
	int64_t skipped, rewinds; /* steps refused by a guard; times the run went back */
	/* Peak resident memory beyond what the process had before, or the device's memory: planned and seen. */
	int64_t planned_bytes, measured_bytes;
	int ranks, ranks_here; /* of the run; those whose bytes and threads these are */
	int threads;
	bool paced;                  /* kernels did nothing */
	struct fo_state_use machine; /* of the loop: evaluations and checkpoints included; NAN where not readable */
	double joules_per_token;     /* of those with loss; NAN */
	bool on_device;
	char device[96];                /* its name */
	struct fo_nvml_use device_use;  /* of the loop, as `machine`; NAN where not readable or no device */
	double device_joules_per_token; /* of those with loss; NAN */
	struct fo_mfu_split split;
	double huge_share;              /* of the process's anonymous memory in huge pages; NAN */
	char checkpoint[FO_PATH_BYTES]; /* the newest that is whole; "": none */
	int64_t steps_unsaved;          /* after it, whose weights checkpoint.last=no did not save */
	char *sample;                   /* heap; NULL: none */
	double waste, truncated;        /* shares of processed tokens: padding; dropped by truncation */
};

FO_CHECKED fo_status fo_train(const struct fo_run *r, const struct fo_train_hooks *h, struct fo_train_result *out);
void fo_train_result_fini(struct fo_train_result *r);

/* Fills the store's weights, and their fp32 master copies or low halves, from a folder in Hugging Face's layout
 * (fo_hf_read); optimizer moments are left alone. p is the program that the store was made for, in any mode. FO_EFORMAT
 * names all tensors that do not fit its model; then nothing is copied. */
FO_CHECKED fo_status fo_store_load(struct fo_store *s, const struct fo_program *p, const char *dir);
/* Whether fo_store_load would succeed, from the files' headers: before hours of preparation. */
FO_CHECKED fo_status fo_weights_check(const struct fo_program *p, const char *dir);

/* The store's tensors as a checkpoint names them: weights by their Hugging Face names, the optimizer's state with the
 * prefixes "master." (or "low.": low halves), "m." and "v.". They point into the store; those on a device are reached
 * through pieces, between steps, which takes its device memory. */
struct fo_tensors {
	struct fo_st_tensor *weight, *state;
	size_t weights, states, weight_cap, state_cap;
};
FO_CHECKED fo_status fo_store_tensors(struct fo_store *s, const struct fo_program *p, struct fo_tensors *out);
void fo_tensors_fini(struct fo_tensors *t);
/* Bytes of these tensors, all rows of them: of a checkpoint except headers, tokenizer and text of some MB. */
int64_t fo_store_checkpoint_bytes(struct fo_store *s, const struct fo_program *p);

#define FO_EVAL_SEED 1 /* of the held-out rows: the same in every run, so that runs compare */

/* The first batches of evaluation in memory of the arena: those rows of them that the shape fills in. */
FO_CHECKED fo_status fo_eval_batches(struct fo_arena *a, const struct fo_shard *held_out,
				     const struct fo_batch_shape *shape, int32_t pad, int64_t batches,
				     struct fo_batch **out);

/* Opens the run's tokenizer and shards: those of data.path where `flatout data prepare` made that folder, else those of
 * DIR/data, which are made once from data.path and kept. stop as with fo_tokenizer_train. */
struct fo_corpus {
	char *dir; /* that holds the shards */
	struct fo_tokenizer *tokenizer;
	struct fo_shard train, val;
	struct fo_shard_sources train_sources; /* docs 0: not known */
};
FO_CHECKED fo_status fo_corpus_open(struct fo_corpus *c, const struct fo_run *r, int64_t vocab,
				    fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop);
void fo_corpus_close(struct fo_corpus *c);

#endif
