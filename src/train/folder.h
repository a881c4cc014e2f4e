/* The run's folder while a process trains in it: locked, and checked before each checkpoint. */
#ifndef FO_TRAIN_FOLDER_H
#define FO_TRAIN_FOLDER_H

#include "base/fs.h"

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
/* Called before anything is saved: FO_EIO, once, where DIR is not the folder any more in which the run began. Then
 * ckpt_dir becomes a place in which its state can be saved: the folder's new path, else a new folder beside it, which
 * gets `run_json`. */
FO_CHECKED fo_status fo_folder_check(struct fo_folder *f, const char *run_json);
void fo_folder_close(struct fo_folder *f);

#endif
