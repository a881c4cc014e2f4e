/* Subscribers of a run's events (event.h): each sees the events and nothing else of the run. */
#ifndef FO_TRAIN_WATCHERS_H
#define FO_TRAIN_WATCHERS_H

#include "base/str.h"
#include "record/prometheus.h"
#include "record/tensorboard.h"
#include "train/train.h"

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
/* The numbers of a step as the log and other tools have them; its time is now, its clock NAN. */
void fo_step_values(const struct fo_train_step *t, double value[FO_STEP_FIELD_COUNT]);
/* FO_EIO where lines are still waiting after another try. saved: all training is in checkpoints. */
FO_CHECKED fo_status fo_log_flush(struct fo_log *l, bool saved);
void fo_log_close(struct fo_log *l);

/* ---- publish.c: TensorBoard's files and Prometheus' (report.*); what goes wrong there is a warning ---- */

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

/* ---- kernel_times.c: DIR/kernels.jsonl, what ran on the device in the first steps of a process (docs/formats.md) ----
 */

struct fo_kernel_times {
	struct fo_events *events; /* for warnings */
	bool tracing;             /* by CUPTI */
	int64_t steps;            /* that are still timed */
	char *path;
	/* Known from BEGIN on. */
	const struct fo_program *program;
	const struct fo_unrolled *instances;
};
/* Begins tracing, before programs run: graphs that were captured earlier have kernels that nobody knows. What cannot be
 * timed is a warning. */
void fo_kernel_times_open(struct fo_kernel_times *k, struct fo_events *events, struct fo_arena *a,
			  const struct fo_run *r, bool on_device);
fo_status fo_kernel_times_event(void *times, const struct fo_event *e);
void fo_kernel_times_close(struct fo_kernel_times *k);

#endif
