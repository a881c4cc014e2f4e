/* Writing checkpoints, in a thread of their own where memory allows. One checkpoint is under way at most. Its state is
 * a copy of the store, so training changes nothing that is being written; the copy is all that a step waits for, unless
 * the checkpoint before is not done yet. */
#ifndef FO_TRAIN_SAVE_H
#define FO_TRAIN_SAVE_H

#include "train/setup.h"

struct fo_saver;
/* log: descriptor of the log, which reaches the disk before the checkpoint that it leads to; -1: none. Closed with
 * fo_saver_close, whatever was returned; `set` must outlive it. */
FO_CHECKED fo_status fo_saver_open(struct fo_saver **out, struct fo_setup *set, int log);
void fo_saver_close(struct fo_saver *v); /* waits for what is under way */

/* Begins a checkpoint of the store and meta. What goes wrong from here on is a warning: the run goes on, older
 * checkpoints stay. But where the run's folder is lost the state is saved elsewhere and the error returned: the run has
 * to stop. */
FO_CHECKED fo_status fo_saver_begin(struct fo_saver *v, const struct fo_ckpt_meta *meta);
/* Sends the event of a checkpoint that has been finished, or a warning of one that failed, since the last call. Cheap:
 * once a step. */
void fo_saver_poll(struct fo_saver *v);
/* Called at the end and when the run is stopped. Writes a checkpoint and waits for it where one of checkpoint.every is
 * `due` or checkpoint.last asks for one; else waits for what is under way. A lost folder is an error, after the state
 * was saved elsewhere. */
FO_CHECKED fo_status fo_saver_last(struct fo_saver *v, const struct fo_ckpt_meta *meta, bool due);
/* Waits for what is under way and saves what is not saved yet, because the run must end with `why`; returns why, with
 * where the state lies as its hint. */
fo_status fo_saver_rescue(struct fo_saver *v, const struct fo_ckpt_meta *meta, fo_status why);
/* Fills store and meta from the newest whole checkpoint, of a multiple of checkpoint.every where there is one, and
 * removes those after it. *found false: there is none, nothing was changed. *torn: reading failed half way, so that the
 * weights are of two moments; else it stays or becomes false. */
FO_CHECKED fo_status fo_saver_go_back(struct fo_saver *v, struct fo_ckpt_meta *meta, bool *found, bool *torn);

/* The number of steps, of `step`, after the newest checkpoint that checkpoint.last=no leaves unsaved. */
int64_t fo_saver_unsaved(const struct fo_saver *v, int64_t step);
/* "DIR/checkpoints/step-00000100" of the newest checkpoint that is known to be whole; "": none. */
void fo_saver_newest(const struct fo_saver *v, char *path, size_t size);

#endif
