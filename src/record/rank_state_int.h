/* The bytes of a rank's state file (docs/formats.md). All numbers are little endian, times are nanoseconds. */
#ifndef FO_RECORD_RANK_STATE_INT_H
#define FO_RECORD_RANK_STATE_INT_H

#include "record/rank_state.h"
#include "timeline/slow.h"

#include <stdatomic.h>
#include <stddef.h>

#define FO_RANK_MAGIC "FORANKS2"

/* A text that is written word by word, so that no store is torn. */
#define FO_RANK_WORDS(bytes) ((bytes) / 8)

struct fo_rank_lane_bytes {
	_Atomic uint32_t turn; /* odd while the rest changes */
	_Atomic uint32_t does;
	_Atomic int64_t since_ns;
	_Atomic int32_t instance, layer, mb, spare;
	_Atomic uint64_t op[FO_RANK_WORDS(24)], block[FO_RANK_WORDS(24)], phase[FO_RANK_WORDS(16)],
		group[FO_RANK_WORDS(16)];
	char name[16];
};
_Static_assert(sizeof(struct fo_rank_lane_bytes) == 128, "as docs/formats.md says");

/* What a rank worked up to the end of some step, counted from when its file was made. */
struct fo_rank_mark_bytes {
	_Atomic int64_t step, at_ns, own_ns, counted;
};
struct fo_rank_pace_bytes {
	_Atomic uint32_t turn; /* odd while the rest changes */
	_Atomic uint32_t whole_n;
	_Atomic int64_t
		recent_n; /* marks so far; the newest FO_RANK_RECENT are there, each at its number modulo that */
	_Atomic int64_t spare[2];
	struct fo_rank_mark_bytes recent[FO_RANK_RECENT], whole[FO_RANK_WHOLE];
};

struct fo_rank_bytes {
	char magic[8];
	uint32_t bytes, lanes; /* of this struct; in it */
	int32_t rank, ranks;
	int64_t pid, pid_ticks; /* pid_ticks: when the process began, as /proc/PID/stat has it */
	uint64_t pid_namespace;
	int64_t begun_unix_ns, begun_ns;
	char boot[40], host[64], job[64], program[48];
	uint64_t time_namespace;
	_Atomic uint32_t threads; /* 0: not told yet; what follows does not change after that */
	char cpus[28];
	_Atomic uint64_t beats;
	_Atomic int64_t beat_ns, beat_unix_ns, spare1;
	_Atomic uint32_t phase, spare2;
	_Atomic int64_t phase_ns, step, steps;
	_Atomic uint32_t has_error;
	uint32_t error; /* a status of ours */
	char text[512];
	/* Written by the parent of the rank's process, where `flatout launch` started it. */
	_Atomic uint32_t has_end;
	uint32_t end_signal, end_code, end_told, end_memory, spare4;
	char spare3[96];
	struct fo_rank_lane_bytes lane[FO_RANK_LANES];
	struct fo_rank_pace_bytes pace;
};
_Static_assert(offsetof(struct fo_rank_bytes, beats) == 320 && offsetof(struct fo_rank_bytes, text) == 392 &&
		       offsetof(struct fo_rank_bytes, lane) == 1024 && offsetof(struct fo_rank_bytes, pace) == 3072 &&
		       offsetof(struct fo_rank_bytes, pace.recent) == 3104 && sizeof(struct fo_rank_bytes) == 6208,
	       "as docs/formats.md says");

/* The writer's side of the pace: what of a step is not in the file yet. Only the thread that runs the steps, which is
 * that of lane 0, touches it, but for what is atomic. */
struct fo_rank_pace_writer {
	int64_t begin_ns;           /* of the step; 0: none is under way, or it is not counted */
	int64_t waits_ns;           /* lane 0 has waited for another rank since then; 0: it does not */
	int64_t waited_ns;          /* in this step so far */
	_Atomic int64_t late_ns;    /* in this step, what the thread of communication was late while lane 0 rested */
	_Atomic bool rests;         /* lane 0 waits for another rank, or has done all of the step */
	int64_t idle_ns;            /* lane 0 has done all of the step since then; 0: not yet */
	int64_t own_ns, counted;    /* sums over steps */
	int64_t step;               /* that ended last */
	int64_t last_step, last_ns; /* of the newest recent mark; 0: none */
	int64_t every, sparse;      /* steps between two marks: recent, whole */
	int64_t recent_n, whole_n;  /* as in the file, whose bytes anybody may have changed */
};
void fo_rank_pace_begin(struct fo_rank_pace_writer *w, int64_t now_ns);
void fo_rank_pace_lane(struct fo_rank_pace_writer *w, enum fo_lane_does does, bool for_ranks, int64_t now_ns);
void fo_rank_pace_end(struct fo_rank_pace_writer *w, struct fo_rank_pace_bytes *b, int64_t step, int64_t now_ns);
void fo_rank_pace_late(struct fo_rank_pace_writer *w, int64_t ns);
/* Of a copy that was not torn. Marks that are out of order are left out. */
void fo_rank_pace_take(const struct fo_rank_pace_bytes *b, struct fo_rank_seen *out);

/* What names the system and the process to those who want to look at it. */
struct fo_rank_place {
	char boot[40], host[64];
	uint64_t pid_namespace, time_namespace; /* 0 not known */
};
void fo_rank_place_here(struct fo_rank_place *p);
/* When the process began, in clock ticks since the boot, and the letter of its state; false: there is none. */
bool fo_rank_process(int64_t pid, int64_t *ticks, char *state);

#endif
