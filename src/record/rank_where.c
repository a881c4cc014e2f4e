#define _GNU_SOURCE /* strsignal */
#include "record/rank_where.h"

#include "base/clock.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const fo_rank_health_name[FO_HEALTH_COUNT] = { "fine",    "ended",   "not known", "ended with another",
							   "missing", "damaged", "silent",    "stopped",
							   "gone",    "failed" };

enum fo_rank_health fo_rank_health(const struct fo_rank_seen *r, double bound)
{
	if (r->file == FO_RANK_FILE_ABSENT)
		return FO_HEALTH_ABSENT;
	if (r->file == FO_RANK_FILE_DAMAGED)
		return FO_HEALTH_DAMAGED;
	if (r->phase == FO_RANK_FAILED)
		return r->error == FO_ECOMM ? FO_HEALTH_ECHO : FO_HEALTH_FAILED;
	if (fo_rank_phase_ended(r->phase))
		return FO_HEALTH_ENDED;
	if (r->end.known)
		return r->end.told ? FO_HEALTH_ECHO : FO_HEALTH_GONE;
	if (r->alive == FO_RANK_GONE)
		return FO_HEALTH_GONE;
	if (r->alive == FO_RANK_STOPPED)
		return FO_HEALTH_STOPPED;
	if (isnan(r->age))
		return FO_HEALTH_UNKNOWN;
	return r->age > bound ? FO_HEALTH_SILENT : FO_HEALTH_FINE;
}

/* ---- over time ---- */

struct fo_rank_pulse {
	int64_t begun_unix_ns; /* of the process that the rest is about */
	uint64_t beats;
	int64_t moved_ns; /* when a look found other beats than the one before; 0: not yet */
	int64_t first_ns; /* the first look */
};

static void feel(struct fo_rank_pulse *p, struct fo_rank_seen *r, int64_t now)
{
	if (p->begun_unix_ns != r->begun_unix_ns || !p->first_ns)
		*p = (struct fo_rank_pulse){ r->begun_unix_ns, r->beats, 0, now };
	if (p->beats != r->beats) {
		p->beats = r->beats;
		p->moved_ns = now;
	}
	if (r->here)
		return;
	/* One look says nothing; as long as it takes for several beats, a lack of them says something. */
	if (p->moved_ns)
		r->age = (double)(now - p->moved_ns) * 1e-9;
	else if (now - p->first_ns > 8 * FO_RANK_BEAT_NS)
		r->age = (double)(now - p->first_ns) * 1e-9;
}

fo_status fo_ranks_watch_look(struct fo_ranks_watch *w, const char *dir, const char *job)
{
	struct fo_ranks_seen seen;
	fo_status st = fo_ranks_seen_read(&seen, dir, job);
	fo_ranks_seen_fini(&w->seen);
	w->seen = seen;
	if (st != FO_OK)
		return st;
	if (w->pulses != seen.ranks || strcmp(w->job, seen.job) != 0) {
		free(w->pulse);
		w->pulse = fo_xmalloc((size_t)(seen.ranks + 1) * sizeof *w->pulse);
		w->pulses = seen.ranks;
		memcpy(w->job, seen.job, sizeof w->job);
	}
	int64_t now = fo_now_ns();
	for (int i = 0; i < seen.ranks; i++)
		if (seen.rank[i].file == FO_RANK_FILE_WHOLE)
			feel(&w->pulse[i], &seen.rank[i], now);
	return FO_OK;
}

void fo_ranks_watch_fini(struct fo_ranks_watch *w)
{
	fo_ranks_seen_fini(&w->seen);
	free(w->pulse);
	w->pulse = NULL;
	w->pulses = 0;
}

bool fo_ranks_need_watch(const struct fo_ranks_seen *s)
{
	for (int i = 0; i < s->ranks; i++)
		if (s->rank[i].file == FO_RANK_FILE_WHOLE && !s->rank[i].here && !fo_rank_phase_ended(s->rank[i].phase))
			return true;
	return false;
}

/* ---- the cause ---- */

void fo_rank_place_text(const struct fo_rank_seen *r, char *out, size_t size)
{
	if (r->file != FO_RANK_FILE_WHOLE)
		snprintf(out, size, "host not known");
	else
		snprintf(out, size, "host %s, process %lld", *r->host ? r->host : "not known", (long long)r->pid);
}

void fo_ranks_text(const bool *in, int n, char *out, size_t size)
{
	struct fo_str s = { 0 };
	fo_str_append(&s, "", 0);
	for (int i = 0; i < n; i++) {
		int to = i;
		if (!in[i])
			continue;
		while (to + 1 < n && in[to + 1])
			to++;
		fo_str_printf(&s, "%s%d", s.len ? ", " : "", i);
		if (to > i)
			fo_str_printf(&s, to == i + 1 ? ", %d" : "-%d", to);
		i = to;
	}
	snprintf(out, size, "%s", s.data);
	fo_str_fini(&s);
}

/* Does it do nothing but wait for others, as far as its file says? */
static bool only_waits(const struct fo_rank_seen *r)
{
	if (r->phase == FO_RANK_BETWEEN || r->phase == FO_RANK_STARTING || fo_rank_phase_ended(r->phase))
		return true;
	const struct fo_lane_seen *l = r->phase == FO_RANK_STEP ? fo_rank_main_lane(r) : NULL;
	return l && *l->group; /* in an operation between ranks, or waiting for one */
}

static int worst(const struct fo_ranks_seen *s, double bound)
{
	int at = -1;
	enum fo_rank_health most = FO_HEALTH_UNKNOWN;
	for (int i = 0; i < s->ranks; i++) {
		const struct fo_rank_seen *r = &s->rank[i], *best = at < 0 ? NULL : &s->rank[at];
		enum fo_rank_health h = fo_rank_health(r, bound);
		if (!fo_rank_health_is_bad(h) || h < most)
			continue;
		bool nearer = h > most || !best || r->end.known > best->end.known;
		if (!nearer && r->end.known == best->end.known)
			nearer = r->step < best->step || (r->step == best->step && !only_waits(r) && only_waits(best));
		if (nearer)
			at = i, most = h;
	}
	return at;
}

/* The one rank that does something while all others wait; -1. */
static int awaited(const struct fo_ranks_seen *s, double least)
{
	int at = -1;
	for (int i = 0; i < s->ranks; i++) {
		const struct fo_rank_seen *r = &s->rank[i];
		if (fo_rank_phase_ended(r->phase))
			continue;
		if (!only_waits(r)) {
			if (at >= 0)
				return -1;
			at = i;
		} else if (!(fo_rank_seconds(r) > least)) {
			return -1;
		}
	}
	return s->ranks > 1 ? at : -1;
}

static void say_gone(const struct fo_rank_seen *r, const char *place, const char *doing, char *text, size_t size)
{
	const struct fo_rank_end *e = &r->end;
	if (e->known && e->memory)
		snprintf(text, size, "was killed by the system for lack of memory (%s): %s", place, doing);
	else if (e->known && e->signal)
		snprintf(text, size, "was killed by signal %d, %s (%s): %s", e->signal, strsignal(e->signal), place,
			 doing);
	else if (e->known)
		snprintf(text, size, "ended with exit code %d and without a word (%s): %s", e->code, place, doing);
	else
		snprintf(text, size, "ended without a word (%s): %s", place, doing);
}

int fo_ranks_cause(const struct fo_ranks_seen *s, double bound, double least, char *text, size_t size)
{
	char place[200], doing[600];
	int at = worst(s, bound);
	bool bad = at >= 0;
	*text = 0;
	if (!bad)
		at = awaited(s, least);
	if (at < 0)
		return -1;
	const struct fo_rank_seen *r = &s->rank[at];
	fo_rank_place_text(r, place, sizeof place);
	fo_rank_doing(r, doing, sizeof doing);
	switch (bad ? fo_rank_health(r, bound) : FO_HEALTH_FINE) {
	case FO_HEALTH_ABSENT: snprintf(text, size, "left no file: it has not started, or the file was deleted"); break;
	case FO_HEALTH_DAMAGED: snprintf(text, size, "has a damaged file: %s", r->why); break;
	case FO_HEALTH_SILENT:
		snprintf(text, size, "has had no heartbeat for %.1f s (%s): %s", r->age, place, doing);
		break;
	case FO_HEALTH_STOPPED: snprintf(text, size, "is stopped by a signal (%s): %s", place, doing); break;
	case FO_HEALTH_GONE: say_gone(r, place, doing, text, size); break;
	case FO_HEALTH_ECHO:
		if (r->end.told)
			snprintf(text, size, "was told to end (%s): %s", place, doing);
		else
			snprintf(text, size, "failed (%s): %s", place, r->text);
		break;
	case FO_HEALTH_FAILED: snprintf(text, size, "failed (%s): %s", place, r->text); break;
	default: snprintf(text, size, "is what the others wait for (%s): %s", place, doing); break;
	}
	return at;
}
