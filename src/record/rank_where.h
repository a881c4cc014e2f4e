/* Where a job of several ranks is, and which of them holds it up: what their state files say, over time.
 *
 * A heartbeat's age is told by the clock of this system where the rank runs under it, else by when a new heartbeat
 * arrived here: clocks of two hosts are never compared. */
#ifndef FO_RECORD_RANK_WHERE_H
#define FO_RECORD_RANK_WHERE_H

#include "record/rank_state.h"
#include "timeline/slow.h"

/* The later ones are the nearer to the cause. */
enum fo_rank_health {
	FO_HEALTH_FINE,
	FO_HEALTH_ENDED,   /* done or interrupted */
	FO_HEALTH_UNKNOWN, /* under another system, and not watched for long enough */
	FO_HEALTH_ECHO,    /* failed because another rank did */
	FO_HEALTH_ABSENT,  /* left no file */
	FO_HEALTH_DAMAGED, /* its file is damaged */
	FO_HEALTH_SILENT,  /* no heartbeat for longer than the bound */
	FO_HEALTH_STOPPED, /* by a signal or a debugger, as the system says */
	FO_HEALTH_GONE,    /* its process ended without a word */
	FO_HEALTH_FAILED,
	FO_HEALTH_COUNT
};
extern const char *const fo_rank_health_name[FO_HEALTH_COUNT];
static inline bool fo_rank_health_is_bad(enum fo_rank_health h) { return h >= FO_HEALTH_ECHO; }
/* bound: seconds. */
enum fo_rank_health fo_rank_health(const struct fo_rank_seen *r, double bound);

/* Ranks that are looked at again and again. Zeroed before the first look; ended with fo_ranks_watch_fini. */
struct fo_ranks_watch {
	struct fo_ranks_seen seen; /* with ages as above */
	struct fo_rank_pulse *pulse;
	int pulses;
	char job[80];
};
FO_CHECKED fo_status fo_ranks_watch_look(struct fo_ranks_watch *w, const char *dir, const char *job);
void fo_ranks_watch_fini(struct fo_ranks_watch *w);
/* Is some rank under another system and not ended? Then a second look tells whether its heart beats. */
bool fo_ranks_need_watch(const struct fo_ranks_seen *s);

/* The rank that holds the others up, or ended the job: the worst health, of equals the one whose end its parent
 * saw, then the one least far (step, then what is not merely waiting). Where all are well: one that computes, or
 * does something else, while all others have waited for longer than `least` seconds. -1: none. *text: a clause
 * about it, without its number: "is stopped (host h2, process 41): step 3: matmul of layer 1 (forward, micro-batch
 * 1)". */
int fo_ranks_cause(const struct fo_ranks_seen *s, double bound, double least, char *text, size_t size);
/* Is one rank slower than all others (timeline/slow.h)? By the marks of all ranks: the recent ones, or those of the
 * whole run since it began or went on last. */
void fo_ranks_slow(const struct fo_ranks_seen *s, bool recent, struct fo_slow_rank *out);
/* "0-2, 5" of the ranks for which `in` is true. */
void fo_ranks_text(const bool *in, int n, char *out, size_t size);
/* "host h2, process 41". */
void fo_rank_place_text(const struct fo_rank_seen *r, char *out, size_t size);

#endif
