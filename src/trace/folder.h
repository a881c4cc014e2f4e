/* Tells which files of a folder are traces of one recording, and what else lies there. Names and first bytes decide;
 * nothing is read. */
#ifndef FO_TRACE_FOLDER_H
#define FO_TRACE_FOLDER_H

#include "trace/trace.h"

enum { FO_FOLDER_FILES = 65536 }; /* more is no folder of traces but somebody's disk */

/* One of several times that the job was recorded: an iteration's folder, or one file of each worker. */
struct fo_recording {
	char *label; /* "profile/iteration_20" */
	int64_t number;
	int files;
	bool complete; /* it has a file of every worker that any recording has */
};

struct fo_folder {
	char *path;
	char **file;
	int *recording_of; /* in recording[]; -1: the file belongs to none */
	size_t files;
	struct fo_recording
		*recording; /* complete ones first, then the newest first; none: the job was recorded once */
	int recordings;
};

/* Files that are left out are reported to `s`. FO_EARG: no trace in it, or several runs of our own. Freed with
 * fo_folder_fini, also then. */
FO_CHECKED fo_status fo_folder_list(struct fo_folder *f, const char *path, struct fo_trace_set *s);
void fo_folder_fini(struct fo_folder *f);

/* Adds a file to what was left out. An entry of the same folder with the same reason counts it instead. */
void fo_trace_set_leave(struct fo_trace_set *s, enum fo_left_kind kind, const char *path, int files, const char *why);

#endif
