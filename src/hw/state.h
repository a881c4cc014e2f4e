/* Describes this machine and its state while something is measured on it (Linux: /proc and /sys).
 *
 * Nothing is guessed: what cannot be read is NAN or -1 here, null in JSON and "not readable" on a screen, never zero.
 * Files of /proc and /sys are treated as input from outside: lengths are capped, numbers are checked, a missing or odd
 * file makes its own figure unreadable and no other. `root` is put in front of every path ("" for this machine; tests
 * pass a fake tree). Counters are of the processors that this process may use ("Cpus_allowed_list" of
 * /proc/self/status), energy and throttling of the cgroup apart. Nothing here keeps state: call it from any thread. */
#ifndef FO_HW_STATE_H
#define FO_HW_STATE_H

#include "base/schema.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- processors by number ---- */

enum { FO_CPUS_MAX = 4096 };
struct fo_cpus {
	uint64_t word[FO_CPUS_MAX / 64];
};
/* "0-3,8" into a set; false (and an empty set) for anything else. An empty text is an empty set. */
bool fo_cpus_parse(const char *text, struct fo_cpus *set);
int fo_cpus_count(const struct fo_cpus *set);
/* "0-3,8"; "..." ends a text that `size` (at least 16) is too small for. */
void fo_cpus_text(const struct fo_cpus *set, char *buf, size_t size);
int fo_cpus_first(const struct fo_cpus *set); /* the lowest; FO_CPUS_MAX: there is none */
static inline void fo_cpus_add(struct fo_cpus *s, int cpu) { s->word[cpu / 64] |= (uint64_t)1 << (cpu % 64); }
static inline bool fo_cpus_have(const struct fo_cpus *s, int cpu)
{
	return cpu >= 0 && cpu < FO_CPUS_MAX && (s->word[cpu / 64] >> (cpu % 64) & 1);
}

/* ---- counters: a snapshot ---- */

enum { FO_ENERGY_DOMAINS = 16 };
struct fo_state {
	int64_t when_ns;               /* monotonic */
	double steal_ticks, cpu_ticks; /* /proc/stat: time that the hypervisor gave to others, and all time; NAN */
	double clock_hz;               /* mean of the processors now; NAN */
	double throttles;              /* thermal throttle events of cores and packages; NAN */
	double limited_s;              /* time that the cgroup's processor limit held this group back; NAN */
	double load;                   /* load average over one minute; NAN */
	int domains;                   /* energy counters (RAPL packages and DRAM); 0: not readable */
	uint64_t energy_uj[FO_ENERGY_DOMAINS], energy_range_uj[FO_ENERGY_DOMAINS];
};
void fo_state_read(struct fo_state *s, const char *root);

/* Changes between two snapshots. */
struct fo_state_use {
	double seconds;
	double steal;     /* share of the processors' time; NAN */
	double clock_hz;  /* mean; NAN */
	double throttles; /* events; NAN */
	double limited_s; /* NAN */
	double joules;    /* packages and DRAM, everything that ran on them included; NAN */
	double load;      /* at the end; NAN */
};
/* Whether programs beside a run computed, by the machine's load average. It counts who computes or waits for a
 * processor: the run's own threads that compute (a thread per processor where `threads` is less or not known), and what
 * loads and saves beside them is less than one more. NaN or no processors: not known, so false. */
static inline bool fo_state_others_ran(double load, int64_t processors, int64_t threads)
{
	return processors > 0 && load > (double)(threads > processors ? threads : processors) + 1;
}
/* "load 6.2 on 2 processors: other programs ran too", in buf; NULL: nothing says so. */
const char *fo_state_others_text(double load, int64_t processors, int64_t threads, char buf[96]);
/* Changes from a to the later b. A counter that went back has wrapped once where its range is known (RAPL); elsewhere
 * its change is NAN. */
struct fo_state_use fo_state_between(const struct fo_state *a, const struct fo_state *b);

/* A run watched by snapshots: energy counters wrap within minutes, clocks move, so two are not enough for long. */
struct fo_state_watch {
	const char *root;
	struct fo_state first, last;
	struct fo_state_use sum; /* clock_hz: time-weighted sum of the parts */
	int parts;
};
void fo_state_watch_start(struct fo_state_watch *w, const char *root);
/* One more snapshot: what happened since the last one, and added to the sum. */
struct fo_state_use fo_state_watch_sample(struct fo_state_watch *w);
/* Everything since the start up to the last sample; all NAN before the first. */
struct fo_state_use fo_state_watch_total(const struct fo_state_watch *w);
extern const struct fo_schema fo_state_use_schema;

/* Share of this process's anonymous memory that lies in transparent huge pages; NAN. */
double fo_state_huge_share(const char *root);

/* ---- what control groups grant ---- */

/* Bytes that this process's control group and all above it still leave, the least of them; NAN: no limit. */
double fo_state_memory_room(const char *root);
/* Processors that they grant, the least; NAN: no limit. */
double fo_state_processors(const char *root);

/* ---- the machine ---- */

enum { FO_CACHES_MAX = 8 };
struct fo_cache {
	int level, shared; /* shared: by how many hardware threads; -1 unknown */
	char type[16];     /* "Data", "Instruction", "Unified" */
	int64_t bytes;
};
struct fo_machine {
	char cpu[96];              /* as the system tells it; "" unknown */
	char isa[160];             /* of the extensions that matter for matmuls: "avx2 fma f16c"; "" none or unknown */
	int cpus, allowed;         /* online, and those this process may use; -1 */
	int cores, sockets, nodes; /* -1 */
	int caches;
	struct fo_cache cache[FO_CACHES_MAX];  /* of the first processor */
	int64_t memory_bytes, available_bytes; /* -1 */
	int64_t huge_page_bytes;               /* -1 */
	char thp[16];                          /* transparent huge pages: "always", "madvise", "never"; "" unknown */
	char governor[32], driver[32];         /* cpufreq; "" unknown */
	double min_hz, max_hz, clock_hz;       /* NAN */
	double cpu_limit;                      /* processors that the cgroup grants; NAN: none or unknown */
	bool energy;                           /* RAPL can be read */
	const char *energy_why;                /* else why not; static text */
	double throttles;                      /* thermal throttle events since the machine started; NAN */
	double load, steal;                    /* load average; share of stolen time since the machine started; NAN */
};
void fo_machine_read(struct fo_machine *m, const char *root);
extern const struct fo_schema fo_machine_schema; /* docs/formats.md */

#endif
