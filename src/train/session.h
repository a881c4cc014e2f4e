/* The parts of a training session beside its setup: accounting, guards, the saver, metered steps, and the subscribers
 * of events (event.h), which see the events and nothing else of the run. */
#ifndef FO_TRAIN_SESSION_H
#define FO_TRAIN_SESSION_H

#include "base/str.h"
#include "kernel/measure.h"
#include "record/prometheus.h"
#include "record/tensorboard.h"
#include "timeline/metered.h"
#include "train/setup.h"

/* ---- account.c: counts what happened, and decides nothing ---- */

/* A step right after it ran. */
struct fo_step_run {
	const struct fo_batch *batch;
	bool metered;
	int64_t wait_ns;          /* for the loader */
	int64_t begin_ns, end_ns; /* wall time; begin is the end of what came before: the last step, or a pause */
};

struct fo_account {
	bool on_device;
	struct fo_profile profile;    /* time by part of this process's steps */
	struct fo_profile first_step; /* its first step's alone */
	/* Tokens per second and MFU of the newest `kept` steps that were not metered, for medians: rings. */
	double *rate;
	struct fo_mfu *mfu;
	int64_t kept, timed;
	/* Sums over all steps that ran, taken or not. */
	int64_t steps, tokens, real_tokens, truncated; /* tokens processed; without padding; lost to truncation */
	/* The steps that were taken. */
	int64_t loss_tokens, first_taken; /* tokens with a target; number of the first such step */
	double first_loss, last_loss;
	double tail_loss; /* sum over the steps in the run's last tenth */
	int64_t tail_steps;
	double val_loss; /* of the last evaluation; NaN: none */
	/* Bytes: the process's host memory before the planned, the most seen; the most device memory taken. */
	int64_t resident_before, resident_peak, device_used;
};
/* Arrays for `steps` coming steps from the arena. */
void fo_account_init(struct fo_account *a, struct fo_arena *arena, int64_t steps);
/* Counts a step that ran, whatever the guards say of it, and describes it in *out, without its ETA. */
void fo_account_ran(struct fo_account *a, const struct fo_setup *set, const struct fo_step_run *ran, int64_t number,
		    struct fo_train_step *out);
/* Counts a step that was taken and fills in its ETA. */
void fo_account_taken(struct fo_account *a, struct fo_train_step *t);
/* Looks at the memory that is taken now. */
void fo_account_look(struct fo_account *a, const struct fo_setup *set);
/* Most bytes that were seen: of the device, or of the host beyond what the process had before. */
static inline int64_t fo_account_measured(const struct fo_account *a)
{
	return a->on_device ? a->device_used : a->resident_peak - a->resident_before;
}
/* The result's figures that follow from what was counted. meta: the run's state at the end. */
void fo_account_result(const struct fo_account *a, const struct fo_setup *set, const struct fo_ckpt_meta *meta,
		       struct fo_train_result *out);

/* ---- guard.c: steps that must not be taken ----
 *
 * The operation that knows loss and norm before any weight is touched (clip, ops.def) decides whether a step is taken:
 * the limit is part of the step's numbers, so no lane waits for the host. Guards prepare and explain that decision. */

struct fo_guard {
	struct fo_setup *set;                   /* to repeat a step and to name its text */
	int64_t refused_in_row, rewinds_in_row; /* since a step was taken; since a checkpoint was written */
};
/* The loss above which the coming step is a spike, 0 while there is too little to compare with:
 *   median + z max(1.4826 MAD, 2^-8 median) of the last guard.spike-window losses that were taken
 * MAD is the median of |loss - median|; 1.4826 = 1 / 0.6745 makes it the standard deviation of a normal distribution.
 * The least deviation is a loss's resolution in bf16 (2^-8): else noise would be a spike where losses hardly differ. */
double fo_guard_limit(const struct fo_run *r, const struct fo_ckpt_meta *m, double *median, double *deviation);
/* Adds the loss of a step that was taken to those that the limit comes from. */
void fo_guard_remember(const struct fo_run *r, struct fo_ckpt_meta *m, double loss);
/* Decides what is to be done about a step that ran (out->action), and does nothing. m: the state before the step;
 * data_step: the loader's number of its batch. FO_ENUMERIC with *torn true: weights were updated before the value was
 * known, so the run has to end and nothing may be saved. */
FO_CHECKED fo_status fo_guard_judge(struct fo_guard *g, const struct fo_train_step *t, const struct fo_ckpt_meta *m,
				    int64_t data_step, struct fo_guard_report *out, bool *torn);
/* Warns, after the loop did what r->action says, or SKIP in place of a REWIND without a checkpoint. FO_ENUMERIC: the
 * run has to end, because the action is STOP or because guard.limit steps in a row were refused. */
FO_CHECKED fo_status fo_guard_report(struct fo_guard *g, const struct fo_train_step *t,
				     const struct fo_guard_report *r);
/* Subscriber: counts refused steps and rewinds in a row. */
fo_status fo_guard_event(void *guard, const struct fo_event *e);

/* ---- meter.c: metered steps, with a clock around every operation (train.metered-every) ---- */

struct fo_step_meter {
	bool on; /* train.metered-every, and the kernel set can be metered */
	int64_t every;
	int64_t step; /* that runs, from 1 */
	struct fo_setup *set;
	struct fo_events *events;
	struct fo_meter meter;
	struct fo_metered spans; /* of the step that runs */
	struct fo_metered_out out;
};
/* The compute threads must be in their places; `step` steps are done. A run that cannot be metered is a warning. */
FO_CHECKED fo_status fo_step_meter_open(struct fo_step_meter *m, struct fo_setup *set, int64_t step);
void fo_step_meter_close(struct fo_step_meter *m);
/* Is this step metered? Never the first of a process: it touches memory that later ones find in caches. */
bool fo_step_meter_due(const struct fo_step_meter *m, int64_t step, bool first);
/* Runs step number `step`: the bits of fo_exec_step. */
FO_CHECKED fo_status fo_step_meter_run(struct fo_step_meter *m, int64_t step);

/* ---- save.c: writing checkpoints, in a thread of their own where memory allows ----
 *
 * At most one checkpoint is under way. It is written from a copy of the store, so training changes nothing that is
 * being written; a step waits for that copy alone, unless the checkpoint before is not done yet. */

struct fo_saver;
/* log: descriptor of the log, which reaches the disk before the checkpoint that it leads to; -1: none. Closed with
 * fo_saver_close, whatever was returned; `set` must outlive it. */
FO_CHECKED fo_status fo_saver_open(struct fo_saver **out, struct fo_setup *set, int log);
void fo_saver_close(struct fo_saver *v); /* waits for what is under way */
/* Begins a checkpoint of the store and meta. A failure from here on is a warning: the run goes on, older checkpoints
 * stay. Only where the run's folder is lost the state is saved elsewhere and the error returned: the run has to stop.
 */
FO_CHECKED fo_status fo_saver_begin(struct fo_saver *v, const struct fo_ckpt_meta *meta);
/* Reports, by an event or a warning, a checkpoint that was finished or failed since the last call. Cheap: once a step.
 */
void fo_saver_poll(struct fo_saver *v);
/* At the end of the run: writes a checkpoint and waits for it where one of checkpoint.every is `due` or checkpoint.last
 * asks for one; else waits for what is under way. A lost folder is an error, after the state was saved elsewhere. */
FO_CHECKED fo_status fo_saver_last(struct fo_saver *v, const struct fo_ckpt_meta *meta, bool due);
/* Saves what is not saved yet, because the run must end with `why`; returns why, with where the state lies as its hint.
 */
fo_status fo_saver_rescue(struct fo_saver *v, const struct fo_ckpt_meta *meta, fo_status why);
/* Fills store and meta from the newest whole checkpoint, of a multiple of checkpoint.every where there is one, and
 * removes those after it. *found false: there is none, nothing was changed. *torn: reading failed half way, so that the
 * weights are of two moments; else it stays or becomes false. */
FO_CHECKED fo_status fo_saver_go_back(struct fo_saver *v, struct fo_ckpt_meta *meta, bool *found, bool *torn);
/* How many of `step` steps, those after the newest checkpoint, checkpoint.last=no leaves unsaved. */
int64_t fo_saver_unsaved(const struct fo_saver *v, int64_t step);
/* "DIR/checkpoints/step-00000100" of the newest checkpoint that is known to be whole; "": none. */
void fo_saver_newest(const struct fo_saver *v, char *path, size_t size);

/* ---- log.c: DIR/log.jsonl, a JSON object per event ---- */

struct fo_log {
	struct fo_events *events; /* for warnings */
	int fd;                   /* -1: not open */
	char *path;
	struct fo_str waiting;     /* lines that could not be written yet; one line, more only while the disk is full */
	bool failed;               /* and that was reported */
	struct fo_profile written; /* the part of the run's profile that the log has */
};
/* Opens the file and removes a torn last line. */
FO_CHECKED fo_status fo_log_open(struct fo_log *l, struct fo_events *events, struct fo_arena *a, const char *dir);
fo_status fo_log_event(void *log, const struct fo_event *e);
/* The numbers of a step as the log and other tools have them, at this Unix time; its clock is NAN. */
void fo_step_values(const struct fo_train_step *t, double time, double value[FO_STEP_FIELD_COUNT]);
/* FO_EIO where lines are still waiting after another try. saved: all training is in checkpoints. */
FO_CHECKED fo_status fo_log_flush(struct fo_log *l, bool saved);
void fo_log_close(struct fo_log *l);

/* ---- publish.c: TensorBoard's files and Prometheus' (report.*); a failure there is a warning ---- */

struct fo_publisher {
	struct fo_events *events;                   /* for warnings */
	const char *version;                        /* of the program */
	bool tensorboard, prometheus;               /* they are written */
	bool tensorboard_failed, prometheus_failed; /* the last time */
	struct fo_tensorboard board;
	struct fo_prometheus figures;
	const char *path; /* of the Prometheus file */
	int64_t next_ns;  /* when it is written next */
	char cpu[96], dtype[8];
};
fo_status fo_publisher_event(void *publisher, const struct fo_event *e);
void fo_publisher_close(struct fo_publisher *p);

/* ---- watch.c: the state of the machine and the device beside the run ---- */

struct fo_watch {
	struct fo_events *events; /* gets FO_EVENT_MACHINE */
	struct fo_state_watch machine;
	struct fo_nvml_watch *device; /* NULL: no device, or none that NVML knows */
	bool on_device;
	int64_t next_ns; /* when the machine is looked at next */
};
/* Begins to watch the device (NULL: none), in a thread that may run on every processor. */
void fo_watch_open(struct fo_watch *w, struct fo_events *events, struct fo_cuda *device);
fo_status fo_watch_event(void *watch, const struct fo_event *e);
/* The state of machine and device from BEGIN to STEPS_DONE. */
void fo_watch_total(struct fo_watch *w, struct fo_state_use *machine, struct fo_nvml_use *device);
void fo_watch_close(struct fo_watch *w);

/* ---- kernel_times.c: DIR/kernels.jsonl, kernels of a process's first steps on a device (docs/formats.md) ---- */

struct fo_kernel_times {
	struct fo_events *events; /* for warnings */
	bool tracing;             /* by CUPTI */
	int64_t steps;            /* that are still timed */
	char *path;
	/* Known from BEGIN on. */
	const struct fo_program *program;
	const struct fo_unrolled *instances;
};
/* Begins tracing, before programs run: the kernels of graphs that were captured earlier would be unknown. A run that
 * cannot be timed is a warning. */
void fo_kernel_times_open(struct fo_kernel_times *k, struct fo_events *events, struct fo_arena *a,
			  const struct fo_run *r, bool on_device);
fo_status fo_kernel_times_event(void *times, const struct fo_event *e);
void fo_kernel_times_close(struct fo_kernel_times *k);

#endif
