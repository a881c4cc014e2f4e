/* Setting up a training run: what it is made of before its first step. While the loop runs only the contents of the
 * store, the executors' state and the ports change. */
#ifndef FO_TRAIN_SETUP_H
#define FO_TRAIN_SETUP_H

#include "kernel/place.h"
#include "train/event.h"
#include "train/keep.h"
#include "train/ports.h"
#include "train/room.h"
#include "train/train.h"

enum { FO_TIMELINE_STEPS = 32 }; /* steps whose spans the recorder keeps */

/* ---- folder.c: the run's folder while a process trains in it, locked, and checked before each checkpoint ---- */

struct fo_folder {
	struct fo_arena *arena;
	const char *dir;        /* run.dir */
	char *ckpt_dir;         /* where checkpoints are written; below rescue_dir once the folder is lost */
	int lock;               /* descriptor of DIR/lock, held while the run lives; -1: none */
	int self;               /* descriptor of DIR; -1: none */
	bool lost;              /* DIR is another folder, or none, by now */
	const char *rescue_dir; /* lost: where the state is saved instead; NULL: there is no place */
};
/* Sets the paths; nothing is opened yet. */
void fo_folder_init(struct fo_folder *f, struct fo_arena *arena, const char *dir);
/* Makes DIR and locks it until it is closed, if DIR is there or `data` names text to make it for. FO_EIO where another
 * process holds the lock: two in one folder would take each other's files for left-overs. */
FO_CHECKED fo_status fo_folder_lock(struct fo_folder *f, const char *data);
/* That error now, without taking the lock for good. */
FO_CHECKED fo_status fo_folder_free(const char *dir);
/* Called before anything is saved: FO_EIO, once, where DIR is no longer the folder in which the run began. ckpt_dir is
 * then a place for its state: the folder's new path, else a new folder beside it, which gets `run_json`. */
FO_CHECKED fo_status fo_folder_check(struct fo_folder *f, const char *run_json);
void fo_folder_close(struct fo_folder *f);

/* ---- setup.c ---- */

/* Paced kernels; open: the run has them. */
struct fo_paced {
	bool open;
	struct fo_limits limits;
	struct fo_rates rates;
	struct fo_exec_pace pace;
};

struct fo_setup {
	const struct fo_run *run;
	const struct fo_train_hooks *hooks;
	struct fo_events *events; /* for warnings */
	struct fo_arena arena;    /* texts and arrays that live as long as the run */
	struct fo_folder folder;
	struct fo_cuda *cuda;     /* the device; NULL: the processor computes */
	int devices;              /* of all ranks, where they compute on some */
	int64_t device_free;      /* bytes of its memory that were free when it was opened */
	int64_t device_reserve;   /* of these left alone */
	int64_t device_have;      /* that this run may take, or of ranks that are processes this one */
	bool attention_reported;  /* that attention runs on slow kernels */
	struct fo_run choosing;   /* `run` with the choices that a checkpoint has made already */
	struct fo_room_step step; /* model, programs, store, executors */
	struct fo_ports ports, eval_ports;
	struct fo_corpus corpus;
	struct fo_batch *eval_batch; /* eval_batches single micro-batches, the same in every evaluation */
	int64_t eval_batches;
	struct fo_peak peak;
	struct fo_paced paced;
	struct fo_place place; /* processors of the compute threads */
	struct fo_keep keep;   /* rank 0's part in making, reading and writing weights and state */
	bool async;            /* periodic checkpoints are copied, then written by threads of their own */
	int64_t host_copy;     /* device: bytes of that copy in host memory; 0: none */
	char *run_json;        /* the text of run.json; NULL until it was written */
	struct {
		char *path; /* the newest whole checkpoint; NULL: none */
		struct fo_ckpt_meta meta;
		struct fo_err error; /* st FO_OK, or why none can be resumed from */
	} found;
};

/* Opens the device that train.device names. */
FO_CHECKED fo_status fo_setup_device(struct fo_setup *s);
/* Model and programs; what the run leaves open is chosen within the memory that is free. */
FO_CHECKED fo_status fo_setup_programs(struct fo_setup *s);
/* Do the weights of model.weights fit the model? Called before the text is prepared. A run that has a checkpoint needs
 * none. */
FO_CHECKED fo_status fo_setup_check_weights(struct fo_setup *s);
/* Opens tokenizer and shards, which are made where they are missing. */
FO_CHECKED fo_status fo_setup_data(struct fo_setup *s);
/* Copies the evaluation's batches: the first memory of the run that is planned. */
FO_CHECKED fo_status fo_setup_eval_batches(struct fo_setup *s);
/* Store and executors; choices are made again where they do not fit with all that comes beside the program. */
FO_CHECKED fo_status fo_setup_executors(struct fo_setup *s);
/* The state of a run that has done no step. */
void fo_setup_meta(const struct fo_setup *s, struct fo_ckpt_meta *meta);
/* Fills all ranks' stores with new weights, or with those of model.weights; a checkpoint's take their place later. */
FO_CHECKED fo_status fo_setup_weights(struct fo_setup *s);
/* Fills them from the checkpoint in this folder. */
FO_CHECKED fo_status fo_setup_read(struct fo_setup *s, const char *path);
/* The batches that a program takes, the step's or the evaluation's. */
struct fo_batch_shape fo_setup_shape(const struct fo_setup *s, const struct fo_program *p);
/* A loader of the training text from this state on. */
FO_CHECKED fo_status fo_setup_loader(const struct fo_setup *s, const struct fo_loader_state *from,
				     struct fo_loader **out);
/* Bytes of host memory of the loader, the evaluation's batches and the recorders. */
int64_t fo_setup_loader_bytes(const struct fo_setup *s);
/* Bytes of memory that are free now, of the device without its reserve; 0: not known. */
int64_t fo_setup_free(const struct fo_setup *s);
/* Warns, once, where bf16 attention runs on our own kernels because cuDNN is missing or refused it. */
void fo_setup_check_attention(struct fo_setup *s);
/* Writes DIR/program.txt and DIR/run.json. */
FO_CHECKED fo_status fo_setup_write_files(struct fo_setup *s, const struct fo_ckpt_meta *meta);
void fo_setup_close(struct fo_setup *s);

/* ---- paced.c ---- */

/* Reads the profile of train.paced, where the run has one: after the programs were made. */
FO_CHECKED fo_status fo_setup_paced(struct fo_setup *s);
/* FO_EARG where the folder has a checkpoint, which such a run would go on from. */
FO_CHECKED fo_status fo_setup_paced_anew(const struct fo_setup *s);
/* Leaves the profile in the run's folder: it says what the times were. */
FO_CHECKED fo_status fo_setup_paced_write(struct fo_setup *s);
void fo_setup_paced_close(struct fo_setup *s);

/* ---- announce.c ---- */

/* Decides how checkpoints are written, sends the plan, and refuses a run that the memory or the disk cannot hold:
 * FO_ENOMEM, FO_EIO. */
FO_CHECKED fo_status fo_setup_announce(struct fo_setup *s);
void fo_setup_plan(const struct fo_setup *s, struct fo_train_plan *out);
/* Bytes that the run plans to take: of the device, or of the host. */
int64_t fo_setup_planned(const struct fo_setup *s);

/* ---- state.c: going on from a checkpoint ---- */

/* Looks up and checks the newest checkpoint: its files are hashed. A damaged one is passed over with a warning; where
 * none is whole fo_setup_resume fails, after the plan was announced. */
void fo_setup_find(struct fo_setup *s);
/* FO_EARG where a run in this folder did steps and checkpoint.last=no left no checkpoint of them: it cannot go on, and
 * to begin anew would mix two runs in one log. */
FO_CHECKED fo_status fo_setup_has_weights(struct fo_setup *s);
/* Reads the checkpoint that was found, if any, into all ranks' stores and meta; FO_EARG where it is another run's. */
FO_CHECKED fo_status fo_setup_resume(struct fo_setup *s, struct fo_ckpt_meta *meta);
/* *meta becomes a checkpoint's, its place in the text counted in this run's steps. */
void fo_setup_adopt(struct fo_ckpt_meta *meta, const struct fo_ckpt_meta *from);

/* ---- generate.c ---- */

/* Continues sample.prompt up to data.seq tokens; *text is heap. Temperature 0.8 and the 40 likeliest tokens are fixed,
 * so that runs compare. */
FO_CHECKED fo_status fo_setup_sample(struct fo_setup *s, char **text);

#endif
