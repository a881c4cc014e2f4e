/* Private to src/train: what the loop, the ports and the sampler share. */
#ifndef FO_TRAIN_TRAIN_INT_H
#define FO_TRAIN_TRAIN_INT_H

#include "base/json.h"
#include "ckpt/ckpt.h"
#include "kernel/measure.h"
#include "kernel/place.h"
#include "timeline/metered.h"
#include "record/prometheus.h"
#include "record/tensorboard.h"
#include "train/device.h"
#include "train/ports.h"
#include "train/room.h"
#include "train/train.h"

struct fo_session_meter {
	bool on; /* train.metered-every, and the kernel set can be metered */
	struct fo_meter meter;
	struct fo_metered spans; /* of the step that runs */
	struct fo_metered_out out;
};

struct fo_session_publish {
	bool tensorboard, tensorboard_failed, prometheus,
		prometheus_failed; /* asked for; could not be written the last time */
	struct fo_tensorboard board;
	struct fo_prometheus figures;
	int64_t next_ns; /* when the Prometheus file is written next */
	char cpu[96];
};

struct fo_session {
	const struct fo_run *r;
	const struct fo_train_hooks *h;
	struct fo_arena arena;
	struct fo_model model;
	struct fo_program program, eval_program;
	struct fo_choice choice; /* what was chosen for the step; nothing of a program from a file */
	struct fo_err
		too_large; /* st FO_OK, or why no choice fits: the least plan is announced before the run is refused */
	struct fo_store *store;
	struct fo_exec *exec, *eval;
	struct fo_exec_options options;
	struct fo_cuda *cuda; /* NULL: the processor computes */
	int64_t device_free, device_reserve,
		device_used;        /* free bytes once it was open; kept free; most that was taken of them */
	struct fo_nvml_watch *nvml; /* NULL: no device, or none that NVML knows */
	bool attention_told;        /* that attention is slow */
	bool kernel_tracing;        /* by CUPTI, for the next kernel_steps steps */
	int64_t kernel_steps;
	struct fo_ports ports, eval_ports;
	struct fo_corpus corpus;
	struct fo_loader *loader;
	struct fo_batch *eval_batch; /* eval_batches single micro-batches */
	int64_t eval_batches;
	struct fo_peak peak;
	struct fo_calibration calibration;
	struct fo_ckpt_meta meta;
	char *found_path;          /* the newest whole checkpoint; NULL: none */
	struct fo_ckpt_meta found; /* its meta; zero when there is none or none is whole */
	struct fo_err found_error; /* st FO_OK, or why it cannot be resumed from */
	struct fo_tensors tensors;
	char *ckpt_dir, *log_path, *run_json;
	struct fo_saver *saver; /* NULL until the run begins */
	bool async;             /* periodic checkpoints are copied and written by the saver's thread */
	int64_t host_copy;      /* device: bytes of that copy; 0: none */
	int log;                /* descriptor; -1: not open */
	struct fo_str line;     /* what the log still lacks; one line, more only while its disk is full */
	bool log_failed;        /* and was reported */
	int64_t refused_in_row, rewinds_in_row;
	bool torn;            /* the weights are of no single moment: not to be saved */
	double *step_seconds; /* of this process, for the median; metered steps are in neither */
	double *step_tokens;
	int64_t steps_here, steps_timed, steps_kept; /* the arrays are rings of steps_kept */
	struct fo_session_meter meter;
	struct fo_session_publish publish;
	struct fo_profile
		first_step; /* of this process: cold memory, left out of what the log says of the steps' parts */
	struct fo_state_watch watch;
	int64_t look_ns;                  /* when the machine is looked at next */
	const struct fo_profile *profile; /* of all steps of this process */
	struct fo_profile profile_logged; /* how far the log has it */
	struct fo_place place;
	int lock;   /* descriptor of DIR/lock, held while the run lives; -1: none */
	int folder; /* descriptor of DIR; -1: none */
	bool lost;  /* DIR is another folder or none: ckpt_dir lies in rescue_dir, which is NULL if there is no place */
	const char *rescue_dir;
	int64_t rss_before, rss_peak;
	int64_t stepped_tokens, real_tokens, truncated, pairs;
	double tail_loss; /* sum over the steps of the run's last tenth that this process did */
	int64_t tail_steps;
	int64_t mark_ns; /* where the next step's time begins: the last one's end, evaluation and checkpoints left out
			  */
};

/* src/train/generate.c: continues the prompt up to data.seq. Temperature 0.8, the 40 likeliest tokens: fixed, so that
 * runs compare. */
FO_CHECKED fo_status fo_session_sample(struct fo_session *s, char **text);
/* src/train/folder.c: DIR is made and locked, which stays until it is closed. */
FO_CHECKED fo_status fo_session_folder_lock(struct fo_session *s);
void fo_session_folder_close(struct fo_session *s);
/* Before anything is saved: FO_EIO, once, where DIR is not the folder any more in which the run began. ckpt_dir is then
 * a place in which its state can be saved: where the folder was moved to, else a new one beside it. */
FO_CHECKED fo_status fo_session_folder_check(struct fo_session *s);
/* src/train/state.c: tensors of the store by name, checkpoint and resume. */
/* Looks up and checks the newest checkpoint, once: its files are hashed. A damaged one is passed over with a warning;
 * that none is whole is told by fo_session_resume, after the plan was announced. */
FO_CHECKED fo_status fo_session_find(struct fo_session *s);
FO_CHECKED fo_status fo_session_resume(struct fo_session *s);
/* FO_EARG where a run in this folder did steps and checkpoint.last=no left no checkpoint of them: it cannot go on, and
 * to begin anew would mix two runs in one log. */
FO_CHECKED fo_status fo_session_has_weights(struct fo_session *s);
/* s->meta becomes a checkpoint's, its place in the text counted in this run's steps. */
void fo_session_adopt(struct fo_session *s, const struct fo_ckpt_meta *m);
/* src/train/session_device.c: opens what train.device names and begins to watch it; most of the device's memory that
 * was taken; the end. */
FO_CHECKED fo_status fo_session_device_open(struct fo_session *s);
void fo_session_device_look(struct fo_session *s);
/* Warns, once, where bf16 attention runs on our own kernels because cuDNN is not there or turned it down. */
void fo_session_device_attention(struct fo_session *s);
void fo_session_device_close(struct fo_session *s);
/* FO_ENOMEM, as the run is refused, where the device's memory cannot hold the program: told before executors take it.
 */
FO_CHECKED fo_status fo_session_device_fits(struct fo_session *s);
/* What the device did, and MFU in factors. */
void fo_session_device_summarise(struct fo_session *s, struct fo_train_result *out);
/* src/train/machine.c: watches the machine from here on; looks at it when it is time to (or `last`) and logs what it
 * saw. */
void fo_session_watch_start(struct fo_session *s);
FO_CHECKED fo_status fo_session_watch(struct fo_session *s, bool last);

/* src/train/meter.c: steps with a clock around every operation (train.metered-every). Opening needs the compute threads
 * in their places; what cannot be metered is a warning. */
FO_CHECKED fo_status fo_session_meter_open(struct fo_session *s);
void fo_session_meter_close(struct fo_session *s);
/* Whether the coming step is metered; never the first of a process: it touches memory that later ones find in caches.
 */
bool fo_session_meters(const struct fo_session *s);
/* Runs it: the bits of fo_exec_step. */
FO_CHECKED fo_status fo_session_metered_step(struct fo_session *s);

/* src/train/kernel_times.c: kernels of the first steps (train.kernel-times): begin before a step, step behind it, while
 * its number is still to come. What cannot be timed or written is a warning. */
void fo_session_kernels_open(struct fo_session *s);
void fo_session_kernels_begin(struct fo_session *s);
void fo_session_kernels_step(struct fo_session *s);
void fo_session_kernels_close(struct fo_session *s);

/* src/train/publish.c: TensorBoard's files and Prometheus' (report.*); what goes wrong there is a warning. */
void fo_session_publish_open(struct fo_session *s, const struct fo_train_plan *plan);
void fo_session_publish_step(struct fo_session *s, const struct fo_train_step *t);
void fo_session_publish_eval(struct fo_session *s, int64_t step, double loss);
void fo_session_publish_checkpoint(struct fo_session *s, int64_t step);
void fo_session_publish_machine(struct fo_session *s, const struct fo_state_use *u);
void fo_session_publish_rewind(struct fo_session *s); /* the run went back to s->meta.step */
void fo_session_publish_close(struct fo_session *s);

/* src/train/save.c: writing checkpoints, in a thread of their own where memory allows.
 * One checkpoint is under way at most. Its state is a copy of the store, so training changes nothing that is being
 * written; the copy is all that a step waits for, unless the one before is not done yet. */
FO_CHECKED fo_status fo_saver_open(struct fo_session *s);
void fo_saver_close(struct fo_session *s);          /* waits for what is under way */
int64_t fo_saver_bytes(const struct fo_session *s); /* of the copy; 0 without one */
/* Begins a checkpoint of the session's state. What goes wrong from here on is a warning: the run goes on, older
 * checkpoints stay. But where the run's folder is lost the state is saved elsewhere and the error returned: the run has
 * to stop. */
FO_CHECKED fo_status fo_session_save_begin(struct fo_session *s);
/* Reports a checkpoint that has been finished, or failed, since the last call. Cheap: once a step. */
void fo_session_save_poll(struct fo_session *s);
/* Writes a checkpoint and waits: at the end, and when the run must stop. keep 0: removes no older one. A lost folder is
 * an error, after the state was saved elsewhere. */
FO_CHECKED fo_status fo_session_save(struct fo_session *s, int keep);
/* At the end and when the run is stopped: a checkpoint of checkpoint.every is `due`, or checkpoint.last asks for one;
 * else waits for what is under way. */
FO_CHECKED fo_status fo_session_save_last(struct fo_session *s, bool due);
/* Steps behind the newest checkpoint that checkpoint.last=no leaves unsaved. */
int64_t fo_session_unsaved(const struct fo_session *s);
/* Waits for what is under way and saves what is not saved yet, because the run must end with `why`; returns why, with
 * where the state lies as its hint. */
fo_status fo_session_rescue(struct fo_session *s, fo_status why);
/* Fills store and meta from the newest whole checkpoint, of a multiple of checkpoint.every where there is one, and
 * removes those after it. *found false: there is none, nothing was changed. */
FO_CHECKED fo_status fo_session_go_back(struct fo_session *s, bool *found);
/* "checkpoints/step-00000100" of the newest checkpoint that is known to be whole; "": none. */
void fo_session_saved(const struct fo_session *s, char *path, size_t size);

/* src/train/guard.c: steps that must not be taken. */
enum fo_verdict { FO_STEP_TAKEN, FO_STEP_SKIPPED, FO_STEP_REWOUND };
/* The loss above which the coming step is a spike, 0 while there is too little to compare with:
 *   median + z max(1.4826 MAD, 2^-8 median) of the last guard.spike-window losses that were taken
 * MAD is the median of |loss - median|; 1.4826 = 1 / 0.6745 makes it the standard deviation of a normal distribution. A
 * loss's resolution in bf16 (2^-8) is the least deviation: losses that hardly differ would else make noise a spike. */
double fo_guard_limit(const struct fo_run *r, const struct fo_ckpt_meta *m, double *median, double *deviation);
void fo_guard_remember(const struct fo_run *r, struct fo_ckpt_meta *m, double loss);
/* After the step ran: was it taken? Warns, logs, goes back to a checkpoint. FO_ENUMERIC: the run has to stop. */
FO_CHECKED fo_status fo_guard_judge(struct fo_session *s, const struct fo_train_step *t, enum fo_verdict *out);
void fo_session_warn(struct fo_session *s, const char *fmt, ...) FO_PRINTF(2, 3);
/* src/train/train.c: the batch that a program takes, the step's or the evaluation's; the loader, from the state in
 * s->meta on. */
struct fo_batch_shape fo_session_shape(const struct fo_session *s, const struct fo_program *p);
FO_CHECKED fo_status fo_session_open_loader(struct fo_session *s);
/* src/train/log.c */
FO_CHECKED fo_status fo_session_log_open(struct fo_session *s);
FO_CHECKED fo_status fo_session_log_step(struct fo_session *s, const struct fo_train_step *t);
FO_CHECKED fo_status fo_session_log_eval(struct fo_session *s, int64_t step, double loss);
/* device: NULL without one. */
FO_CHECKED fo_status fo_session_log_machine(struct fo_session *s, const struct fo_state_use *u,
					    const struct fo_nvml_use *device);
FO_CHECKED fo_status fo_session_log_checkpoint(struct fo_session *s, int64_t step, const char *path, double seconds,
					       double blocked);
/* Parts of the time of the steps since the last call. */
FO_CHECKED fo_status fo_session_log_profile(struct fo_session *s);
/* Any other line: stamps the record, whose table ends with time and clock, and writes it. */
FO_CHECKED fo_status fo_session_log(struct fo_session *s, const struct fo_schema *line, void *record);
/* The numbers of a step as the log and other tools have them; its time is now, its clock NAN. */
void fo_session_step_values(const struct fo_train_step *t, double value[FO_STEP_FIELD_COUNT]);
/* A process begins: what its steps are measured against, and the memory it plans. */
FO_CHECKED fo_status fo_session_log_start(struct fo_session *s, const struct fo_train_plan *p);
/* What this process has done, at its end: how that came ("done", "interrupted", "failed"), time by part
 * (docs/formats.md), memory planned and measured. */
FO_CHECKED fo_status fo_session_log_end_of_run(struct fo_session *s, const struct fo_train_result *r, const char *how);
/* Whether all lines are in the file; tries once more. */
FO_CHECKED fo_status fo_session_log_close(struct fo_session *s);
/* Anonymous resident memory of this process in bytes; 0 where the system does not tell. */
int64_t fo_memory_resident(void);
/* Memory that this process may still take: free memory or what its control groups leave, whichever is less; 0: not
 * known. */
int64_t fo_memory_available(void);
/* What the process's own limits (ulimit -d, -v) leave beside what it has mapped already, touched or not; INT64_MAX:
 * none is set. */
int64_t fo_memory_unlimited(void);

#endif
