/* Private to src/train: what the loop, the ports and the sampler share. */
#ifndef FO_TRAIN_TRAIN_INT_H
#define FO_TRAIN_TRAIN_INT_H

#include "ckpt/ckpt.h"
#include "kernel/place.h"
#include "train/ports.h"
#include "train/train.h"

#include <stdio.h>

struct fo_session {
	const struct fo_run *r;
	const struct fo_train_hooks *h;
	struct fo_arena arena;
	struct fo_model model;
	struct fo_program program, eval_program;
	struct fo_store *store;
	struct fo_exec *exec, *eval;
	struct fo_exec_options options;
	struct fo_ports ports, eval_ports;
	struct fo_corpus corpus;
	struct fo_loader *loader;
	struct fo_batch *eval_batch; /* eval_batches single micro-batches */
	int64_t eval_batches;
	struct fo_peak peak;
	struct fo_calibration calibration;
	struct fo_ckpt_meta meta;
	char *found_path;                 /* the newest checkpoint; NULL: none */
	struct fo_ckpt_meta found;        /* its meta; zero when there is none or it is damaged */
	struct fo_err found_error;        /* st FO_OK, or why it cannot be resumed from */
	struct fo_st_tensor *weight, *state;
	size_t weights, states, weight_cap, state_cap;
	char *ckpt_dir, *log_path, *run_json;
	FILE *log;
	struct fo_str line;   /* one log line; grows once */
	double *step_seconds; /* of this process, for the median */
	double *step_tokens;
	int64_t steps_here, steps_kept; /* the arrays are rings of steps_kept */
	struct fo_state_watch watch;
	int64_t look_ns; /* when the machine is looked at next */
	struct fo_place place;
	int lock;                       /* descriptor of DIR/lock, held while the run lives; -1: none */
	int64_t rss_before, rss_peak;
	int64_t stepped_tokens, real_tokens, truncated, pairs;
	double tail_loss; /* sum over the steps of the run's last tenth that this process did */
	int64_t tail_steps;
	int64_t mark_ns; /* where the next step's time begins: the last one's end, evaluation and checkpoints left out */
};

/* src/train/generate.c: continues the prompt up to data.seq. Temperature 0.8, the 40 likeliest tokens: fixed, so that runs
 * compare. */
FO_CHECKED fo_status fo_session_sample(struct fo_session *s, char **text);
/* src/train/state.c: tensors of the store by name, checkpoint and resume. */
FO_CHECKED fo_status fo_session_tensors(struct fo_session *s);
FO_CHECKED fo_status fo_session_save(struct fo_session *s, char *path, size_t size);
/* Looks up and checks the newest checkpoint, once: its files are hashed. What is wrong with it is told by fo_session_resume,
 * after the plan was announced. */
FO_CHECKED fo_status fo_session_find(struct fo_session *s);
FO_CHECKED fo_status fo_session_resume(struct fo_session *s);
/* src/train/machine.c: watches the machine from here on; looks at it when it is time to (or `last`) and logs what it saw. */
void fo_session_watch_start(struct fo_session *s);
FO_CHECKED fo_status fo_session_watch(struct fo_session *s, bool last);
/* src/train/log.c */
FO_CHECKED fo_status fo_session_log_open(struct fo_session *s);
FO_CHECKED fo_status fo_session_log_step(struct fo_session *s, const struct fo_train_step *t);
FO_CHECKED fo_status fo_session_log_eval(struct fo_session *s, int64_t step, double loss);
FO_CHECKED fo_status fo_session_log_checkpoint(struct fo_session *s, int64_t step, const char *path, double seconds);
FO_CHECKED fo_status fo_session_log_machine(struct fo_session *s, const struct fo_state_use *u);
/* Anonymous resident memory of this process in bytes; 0 where the system does not tell. */
int64_t fo_memory_resident(void);
/* Memory that this process may still take: free memory or the container's limit, whichever is less. */
int64_t fo_memory_available(void);

#endif
