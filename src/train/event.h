/* Events of a training run. The loop sends each event to a table of subscribers, in the table's order; a subscriber
 * knows nothing of the run but the event. */
#ifndef FO_TRAIN_EVENT_H
#define FO_TRAIN_EVENT_H

#include "base/err.h"
#include "hw/nvml.h"
#include "hw/state.h"
#include "record/record.h"
#include "timeline/timeline.h"

struct fo_train_plan;
struct fo_train_result;

enum fo_event_kind {
	FO_EVENT_PLAN,        /* the memory plan is known, nothing is taken yet: plan */
	FO_EVENT_WARNING,     /* the run goes on, but its owner should know: warning */
	FO_EVENT_BEGIN,       /* everything is set up, the loop begins: plan */
	FO_EVENT_STEP_BEGINS, /* `step` runs next */
	FO_EVENT_STEP_RAN,    /* `step` ran, the guard has not judged it */
	FO_EVENT_STEP,        /* the step was taken: taken */
	FO_EVENT_GUARD,       /* a guard acted on the step: guard */
	FO_EVENT_REWOUND,     /* the run went back to `step` */
	FO_EVENT_STEP_OVER,   /* the step is done with, taken or not */
	FO_EVENT_PAUSE,       /* until GO_ON no step runs: evaluation, a checkpoint, going back */
	FO_EVENT_EVALUATION,  /* held-out text was evaluated: evaluation */
	FO_EVENT_CHECKPOINT,  /* a checkpoint of `step` is whole on the disk: checkpoint */
	FO_EVENT_GO_ON,       /* the next step follows at once */
	FO_EVENT_MACHINE,     /* what the machine did since the last such event: machine */
	FO_EVENT_STEPS_DONE,  /* the loop is over and this process did steps */
	FO_EVENT_END,         /* the result of this process's steps is known: end */
};

/* A step that ran. */
struct fo_train_step {
	int64_t step, steps; /* number of this step, from 1; steps of the whole run */
	bool metered;        /* timed burst by burst (train.metered-every): rates and MFU are NaN */
	double loss;         /* nats per token */
	double grad_norm, lr;
	double seconds; /* wall time, with data_seconds: waiting for the loader */
	double data_seconds;
	int64_t loss_tokens, tokens; /* tokens with a target; with padding */
	double tokens_per_second;    /* of those with a target */
	struct fo_mfu mfu;
	double eta_seconds; /* until the run's last step, by the mean step so far */
};

/* A guard's action on a step. */
enum fo_guard_action { FO_GUARD_NONE, FO_GUARD_WARN, FO_GUARD_SKIP, FO_GUARD_REWIND, FO_GUARD_STOP };

enum { FO_GUARD_DOCUMENTS = 64 };
struct fo_guard_report {
	enum fo_guard_action action;
	struct fo_record_guard line; /* the log's record, but for its action and times */
	int64_t documents;           /* different documents in the batch; the first FO_GUARD_DOCUMENTS are listed */
	struct fo_record_document document[FO_GUARD_DOCUMENTS];
	char where[320]; /* not finite: the first operation that made such a value, as a sentence */
};

struct fo_event {
	enum fo_event_kind kind;
	int64_t step; /* the step that the event is about, else the steps that are done */
	/* The whole run so far, this process included. */
	int64_t tokens, skipped, rewinds; /* tokens with a target; steps that guards refused; times it went back */
	/* This process so far. */
	int64_t measured_bytes;           /* most memory that the run was seen to take: of the device, or of the host */
	const struct fo_profile *profile; /* time of its steps by part */
	union {
		const struct fo_train_plan *plan; /* its run, program and instances live as long as the run */
		const struct fo_train_step *taken;
		const struct fo_guard_report *guard;
		const char *warning; /* one sentence */
		struct {
			double loss; /* nats per token */
		} evaluation;
		struct fo_record_checkpoint checkpoint; /* but for its times */
		struct {
			const struct fo_state_use *use;
			const struct fo_nvml_use *device; /* NULL: the processor computes */
		} machine;
		struct {
			const struct fo_train_result *result;
			const char *how; /* "done", "interrupted" or "failed" */
			/* The first step of this process, left out of the log's sums: memory is cold. */
			const struct fo_profile *first_step;
		} end;
	};
};

/* Receives an event, which is valid during the call only. Called between steps, in the thread that called fo_train. */
typedef void fo_event_fn(void *ctx, const struct fo_event *e);

/* ---- private to src/train ---- */

/* An error ends the run, after its state was saved. */
typedef fo_status fo_subscriber_fn(void *ctx, const struct fo_event *e);
struct fo_subscriber {
	fo_subscriber_fn *event;
	void *ctx;
};
enum { FO_SUBSCRIBERS_MAX = 8 };
struct fo_events {
	struct fo_subscriber to[FO_SUBSCRIBERS_MAX];
	int n;
	/* The loop's state, from which every event is filled in. */
	const struct fo_ckpt_meta *meta;
	const struct fo_account *account;
};
/* Fills in the totals and hands the event to the subscribers in their order. Returns the first error, after all have
 * seen the event. */
FO_CHECKED fo_status fo_events_send(struct fo_events *to, struct fo_event e);
/* Sends an event that says nothing but the steps that are done. */
FO_CHECKED fo_status fo_events_tell(struct fo_events *to, enum fo_event_kind kind);
/* Sends a warning, at most 4,095 bytes of it. Nobody refuses a warning. */
void fo_events_warn(struct fo_events *to, const char *fmt, ...) FO_PRINTF(2, 3);

#endif
