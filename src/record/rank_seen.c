/* Reading what ranks do. Files may hold anything. */
#include "record/rank_state_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS_MAX = 1 << 16 };

static void text_of(const char *bytes, size_t n, char *out, size_t size)
{
	char ended[520];
	n = strnlen(bytes, n < sizeof ended ? n : sizeof ended - 1);
	memcpy(ended, bytes, n);
	ended[n] = 0;
	fo_str_visible(out, size, ended);
}
#define TEXT(from, to) text_of((const char *)(from), sizeof(from), to, sizeof(to))

/* Seconds from `since` to `now`; NAN where that is no time that a rank could have written. */
static double seconds(int64_t since, int64_t now)
{
	int64_t ns;
	if (since <= 0 || __builtin_sub_overflow(now, since, &ns))
		return NAN;
	return ns < 0 ? 0 : (double)ns * 1e-9;
}

/* ---- one file ---- */

static fo_status damaged(struct fo_rank_seen *out, const char *why)
{
	out->file = FO_RANK_FILE_DAMAGED;
	snprintf(out->why, sizeof out->why, "%s", why);
	return FO_EFORMAT;
}

static fo_status read_bytes(int fd, struct fo_rank_bytes *b, struct fo_rank_seen *out)
{
	memset((void *)b, 0, sizeof *b);
	ssize_t n;
	while ((n = pread(fd, (void *)b, sizeof *b, 0)) < 0 && errno == EINTR)
		;
	if (n < 0)
		return damaged(out, strerror(errno));
	if (n < 8 || memcmp(b->magic, FO_RANK_MAGIC, sizeof b->magic))
		return damaged(out, "it is no state of a rank, or one of another version");
	if ((size_t)n < sizeof *b || b->bytes != sizeof *b || b->lanes != FO_RANK_LANES)
		return damaged(out, "it is cut");
	if (b->ranks < 1 || b->ranks > RANKS_MAX || b->rank < 0 || b->rank >= b->ranks)
		return damaged(out, "its rank is out of range");
	return FO_OK;
}

static void take_lane(const struct fo_rank_lane_bytes *l, bool torn, struct fo_lane_seen *out)
{
	memset(out, 0, sizeof *out);
	TEXT(l->name, out->name);
	out->torn = torn || l->does >= FO_LANE_DOES;
	out->does = l->does < FO_LANE_DOES ? (enum fo_lane_does)l->does : FO_LANE_UNUSED;
	out->since_ns = out->torn ? 0 : l->since_ns;
	out->instance = out->torn ? -1 : l->instance;
	out->layer = out->torn ? -1 : l->layer;
	out->mb = out->torn ? -1 : l->mb;
	if (out->torn)
		return;
	TEXT(l->op, out->op);
	TEXT(l->block, out->block);
	TEXT(l->phase, out->phase);
	TEXT(l->group, out->group);
}

static void take(const struct fo_rank_bytes *b, struct fo_rank_seen *out)
{
	out->file = FO_RANK_FILE_WHOLE;
	out->rank = b->rank;
	out->ranks = b->ranks;
	out->pid = b->pid;
	out->begun_unix_ns = b->begun_unix_ns;
	TEXT(b->host, out->host);
	const uint32_t threads = atomic_load_explicit(&b->threads, memory_order_acquire);
	out->threads = threads <= FO_CPUS_MAX ? (int)threads : 0;
	if (out->threads)
		TEXT(b->cpus, out->cpus);
	TEXT(b->job, out->job);
	TEXT(b->program, out->program);
	out->phase = b->phase < FO_RANK_PHASES ? (enum fo_rank_phase)b->phase : FO_RANK_STARTING;
	out->step = b->step > 0 ? b->step : 0;
	out->steps = b->steps > 0 ? b->steps : 0;
	out->beats = b->beats;
	out->error = b->has_error && b->error > FO_OK && b->error <= FO_EBUG ? (fo_status)b->error : FO_OK;
	if (b->has_error)
		TEXT(b->text, out->text);
	out->end.known = b->has_end;
	out->end.signal = b->end_signal < 128 ? (int)b->end_signal : 0;
	out->end.code = (int)(b->end_code & 255);
	out->end.told = b->end_told;
	out->end.memory = b->end_memory;
}

/* What the system says, where it is the one under which the rank ran. */
static void ask(const struct fo_rank_bytes *b, struct fo_rank_seen *out)
{
	struct fo_rank_place here;
	int64_t ticks = 0;
	char state = 0;
	fo_rank_place_here(&here);
	out->here = here.boot[0] && !strncmp(here.boot, b->boot, sizeof here.boot) &&
		    here.time_namespace == b->time_namespace;
	if (!out->here)
		return;
	const int64_t now = fo_now_ns();
	out->age = seconds(b->beat_ns, now);
	if (!here.pid_namespace || here.pid_namespace != b->pid_namespace || b->pid <= 0)
		return;
	if (!fo_rank_process(b->pid, &ticks, &state) || ticks != b->pid_ticks || state == 'Z' || state == 'X')
		out->alive = FO_RANK_GONE;
	else
		out->alive = state == 'T' || state == 't' ? FO_RANK_STOPPED : FO_RANK_ALIVE;
}

/* How long it has done what it does: until now where it runs under this system, else until its last heartbeat. */
static void count(const struct fo_rank_bytes *b, struct fo_rank_seen *out)
{
	const bool now = out->here && out->alive != FO_RANK_GONE && !fo_rank_phase_ended(out->phase);
	const int64_t until = now ? fo_now_ns() : b->beat_ns;
	out->phase_seconds = seconds(b->phase_ns, until);
	for (int l = 0; l < out->lanes; l++)
		out->lane[l].seconds = seconds(out->lane[l].since_ns, until);
}

void fo_rank_state_read(const char *path, struct fo_rank_seen *out)
{
	enum { LOOKS = 8 };
	struct fo_rank_bytes first, then;
	bool taken[FO_RANK_LANES] = { false }, paced = false;
	int fd;
	memset(out, 0, sizeof *out);
	out->age = out->phase_seconds = NAN;
	if (!fo_fs_exists(path))
		return;
	if (fo_fs_open_regular(path, &fd) != FO_OK) {
		if (fo_fs_exists(path))
			(void)damaged(out, fo_err_text());
		fo_err_clear();
		return;
	}
	fo_status st = read_bytes(fd, &first, out);
	if (st == FO_OK)
		take(&first, out);
	/* A lane counts as it was at one look when its turn is the same at the next one. */
	for (int look = 0; st == FO_OK && look < LOOKS; look++) {
		st = read_bytes(fd, &then, out);
		int left = 0;
		if (st == FO_OK && !paced && first.pace.turn == then.pace.turn && first.pace.turn % 2 == 0) {
			fo_rank_pace_take(&first.pace, out);
			paced = true;
		}
		left += !paced;
		for (int l = 0; st == FO_OK && l < FO_RANK_LANES; l++) {
			bool whole = first.lane[l].turn == then.lane[l].turn && first.lane[l].turn % 2 == 0;
			if (!taken[l])
				take_lane(&first.lane[l], !whole, &out->lane[l]);
			taken[l] |= whole;
			left += !taken[l];
		}
		if (!left)
			break;
		memcpy((void *)&first, (const void *)&then, sizeof first);
	}
	out->lanes = st == FO_OK ? FO_RANK_LANES : 0;
	if (st == FO_OK)
		ask(&then, out);
	if (st == FO_OK)
		count(&then, out);
	close(fd);
}

/* ---- all ---- */

/* The rank that "ranks/00003.state" names; -1. */
static int rank_of(const char *path)
{
	const char *name = strrchr(path, '/');
	char *end;
	if (!name || name[1] < '0' || name[1] > '9')
		return -1;
	long v = strtol(name + 1, &end, 10);
	return strcmp(end, ".state") || v < 0 || v >= RANKS_MAX ? -1 : (int)v;
}

fo_status fo_ranks_seen_read(struct fo_ranks_seen *out, const char *dir, const char *job)
{
	struct fo_arena a = { 0 };
	char **name, *folder = fo_arena_printf(&a, "%s/ranks", dir);
	size_t n = 0;
	memset(out, 0, sizeof *out);
	fo_status st = FO_OK;
	if (fo_fs_is_dir(folder))
		st = fo_fs_list_here(&a, folder, RANKS_MAX, &name, &n);
	else if (!fo_fs_is_dir(dir))
		st = fo_fail(FO_EIO, "there is no run directory '%s'", dir);
	struct fo_rank_seen *all = fo_xmalloc((n + 1) * sizeof *all);
	size_t newest = n, files = 0;
	for (size_t i = 0; st == FO_OK && i < n; i++) {
		int rank = rank_of(name[i]);
		if (rank < 0)
			continue;
		struct fo_rank_seen *r = &all[files];
		fo_rank_state_read(name[i], r);
		if (r->file == FO_RANK_FILE_WHOLE && r->rank != rank)
			(void)damaged(r, "it says that it is another rank's");
		r->rank = rank;
		bool wanted = r->file == FO_RANK_FILE_WHOLE && (!job || !strcmp(r->job, job));
		if (wanted && (newest == n || r->begun_unix_ns > all[newest].begun_unix_ns))
			newest = files;
		files++;
	}
	if (newest < n) {
		out->ranks = all[newest].ranks;
		memcpy(out->job, all[newest].job, sizeof out->job);
	}
	for (size_t i = 0; i < files && newest == n && !job; i++) /* nothing but damage: the names say how many */
		out->ranks = all[i].rank >= out->ranks ? all[i].rank + 1 : out->ranks;
	out->rank = fo_xmalloc((size_t)(out->ranks + 1) * sizeof *out->rank);
	for (int i = 0; i < out->ranks; i++)
		out->rank[i] = (struct fo_rank_seen){ .rank = i, .age = NAN, .phase_seconds = NAN };
	for (size_t i = 0; i < files; i++) {
		bool same = all[i].file != FO_RANK_FILE_WHOLE || !strcmp(all[i].job, out->job);
		if (same && all[i].rank < out->ranks)
			out->rank[all[i].rank] = all[i];
		out->strangers += !same;
	}
	free(all);
	fo_arena_fini(&a);
	return st;
}

void fo_ranks_seen_fini(struct fo_ranks_seen *s)
{
	free(s->rank);
	s->rank = NULL;
	s->ranks = 0;
}

/* ---- in words ---- */

const struct fo_lane_seen *fo_rank_main_lane(const struct fo_rank_seen *r)
{
	const struct fo_lane_seen *best = NULL;
	for (int l = 0; l < r->lanes; l++) {
		const struct fo_lane_seen *x = &r->lane[l];
		if (x->does != FO_LANE_RUNS && x->does != FO_LANE_WAITS)
			continue;
		if (l == 0) /* that of the computation */
			return x;
		if (!best || (best->does == FO_LANE_WAITS && x->does == FO_LANE_RUNS))
			best = x;
	}
	return best;
}

double fo_rank_seconds(const struct fo_rank_seen *r)
{
	const struct fo_lane_seen *l = r->phase == FO_RANK_STEP ? fo_rank_main_lane(r) : NULL;
	return l && !l->torn ? l->seconds : r->phase_seconds;
}

void fo_lane_text(const struct fo_lane_seen *l, char *out, size_t size)
{
	struct fo_str s = { 0 };
	out[0] = 0;
	if (l->torn || !*l->op)
		return;
	fo_str_puts(&s, l->op);
	if (l->layer >= 0)
		fo_str_printf(&s, " of layer %d", l->layer);
	else if (*l->block)
		fo_str_printf(&s, " of block %s", l->block);
	if (*l->phase)
		fo_str_printf(&s, " (%s", l->phase);
	if (*l->phase && l->mb >= 0)
		fo_str_printf(&s, ", micro-batch %d", l->mb == INT32_MAX ? l->mb : l->mb + 1);
	if (*l->phase)
		fo_str_puts(&s, ")");
	snprintf(out, size, "%s", s.data);
	fo_str_fini(&s);
}

void fo_rank_doing(const struct fo_rank_seen *r, char *out, size_t size)
{
	char op[400] = "";
	const struct fo_lane_seen *l = r->phase == FO_RANK_STEP ? fo_rank_main_lane(r) : NULL;
	if (l)
		fo_lane_text(l, op, sizeof op);
	if (r->phase != FO_RANK_STEP)
		snprintf(out, size, "%s", fo_rank_phase_name[r->phase]);
	else if (*op)
		snprintf(out, size, "step %lld: %s%s", (long long)r->step, l->does == FO_LANE_WAITS ? "waits for " : "",
			 op);
	else
		snprintf(out, size, "step %lld", (long long)r->step);
}
