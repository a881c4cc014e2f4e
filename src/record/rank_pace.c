/* How fast a rank works: marks in its state file, written at the end of some steps and read by anybody. */
#include "record/rank_state_int.h"

#include "base/count.h"

/* Marks are as far apart as a window is long: near enough that the recent ones tell of the last minute. */
#define APART_NS FO_SLOW_RANK_WINDOW_NS

#define PUT(to, v) atomic_store_explicit(to, v, memory_order_relaxed)
#define GET(from) atomic_load_explicit(from, memory_order_relaxed)

void fo_rank_pace_begin(struct fo_rank_pace_writer *w, int64_t now_ns)
{
	w->begin_ns = now_ns;
	w->waits_ns = w->waited_ns = w->idle_ns = 0;
	PUT(&w->late_ns, 0);
	PUT(&w->rests, false);
}

void fo_rank_pace_lane(struct fo_rank_pace_writer *w, enum fo_lane_does does, bool for_ranks, int64_t now_ns)
{
	if (w->waits_ns)
		w->waited_ns += now_ns - w->waits_ns;
	w->waits_ns = does == FO_LANE_WAITS && for_ranks ? now_ns : 0;
	w->idle_ns = does == FO_LANE_IDLE ? now_ns : 0;
	PUT(&w->rests, w->waits_ns || w->idle_ns);
}

void fo_rank_pace_late(struct fo_rank_pace_writer *w, int64_t ns)
{
	if (GET(&w->rests))
		atomic_fetch_add_explicit(&w->late_ns, ns, memory_order_relaxed);
}

/* ---- marks ---- */

static void put(struct fo_rank_mark_bytes *m, int64_t step, int64_t now_ns, const struct fo_rank_pace_writer *w)
{
	PUT(&m->step, step);
	PUT(&m->at_ns, now_ns);
	PUT(&m->own_ns, w->own_ns);
	PUT(&m->counted, w->counted);
}

/* Marks of two ranks are compared where they name the same step: at multiples of a power of two, so that those of one
 * that sets them twice as often meet all of the other's. */
static bool recent_is_due(struct fo_rank_pace_writer *w, int64_t step, int64_t now_ns)
{
	const int64_t passed = now_ns - w->last_ns;
	if (w->last_ns && (step % w->every || passed < APART_NS))
		return false;
	if (w->last_ns) {
		while (w->every < step - w->last_step)
			w->every *= 2;
		if (w->every > 1 && passed > 3 * APART_NS)
			w->every /= 2;
	}
	return true;
}

/* Where there is no more room each second mark goes, and from then on half as many come. */
static void thin_out(struct fo_rank_pace_writer *w, struct fo_rank_pace_bytes *b)
{
	int64_t n = 0;
	w->sparse *= 2;
	for (int64_t i = 0; i < w->whole_n; i++) {
		struct fo_rank_mark_bytes *from = &b->whole[i], *to = &b->whole[n];
		if (GET(&from->step) % w->sparse)
			continue;
		PUT(&to->step, GET(&from->step));
		PUT(&to->at_ns, GET(&from->at_ns));
		PUT(&to->own_ns, GET(&from->own_ns));
		PUT(&to->counted, GET(&from->counted));
		n++;
	}
	w->whole_n = n;
}

static void add_marks(struct fo_rank_pace_writer *w, struct fo_rank_pace_bytes *b, int64_t now_ns, bool recent,
		      bool whole)
{
	if (recent) {
		put(&b->recent[w->recent_n++ % FO_RANK_RECENT], w->step, now_ns, w);
		w->last_step = w->step;
		w->last_ns = now_ns;
	}
	if (whole && w->whole_n == FO_RANK_WHOLE)
		thin_out(w, b);
	if (whole && w->step % w->sparse == 0)
		put(&b->whole[w->whole_n++], w->step, now_ns, w);
}

void fo_rank_pace_end(struct fo_rank_pace_writer *w, struct fo_rank_pace_bytes *b, int64_t step, int64_t now_ns)
{
	/* A metered step runs in another order and tells nothing of its lanes. */
	if (w->begin_ns && w->idle_ns) {
		w->own_ns += fo_max(w->idle_ns - w->begin_ns - w->waited_ns, 0) + GET(&w->late_ns);
		w->counted++;
	}
	w->begin_ns = 0;
	w->every = fo_max(w->every, 1);
	w->sparse = fo_max(w->sparse, 1);
	if (step <= w->step) { /* the run went back: what was is not comparable with what comes */
		w->recent_n = w->whole_n = w->last_ns = 0;
		w->sparse = 1;
	}
	w->step = step;
	const bool recent = recent_is_due(w, step, now_ns), whole = step % w->sparse == 0;
	if (!recent && !whole)
		return;
	PUT(&b->turn, GET(&b->turn) + 1);
	atomic_thread_fence(memory_order_release);
	add_marks(w, b, now_ns, recent, whole);
	PUT(&b->recent_n, w->recent_n);
	PUT(&b->whole_n, (uint32_t)w->whole_n);
	atomic_store_explicit(&b->turn, GET(&b->turn) + 1, memory_order_release);
}

/* ---- reading ---- */

/* Adds the mark where it goes on from the one before it; anything else in a file is no mark. */
static void take(const struct fo_rank_mark_bytes *m, struct fo_rank_mark *to, int *n)
{
	const struct fo_rank_mark x = { m->step, m->at_ns, m->own_ns, m->counted };
	const struct fo_rank_mark *last = *n ? &to[*n - 1] : NULL;
	if (x.step <= 0 || x.at_ns < 0 || x.own_ns < 0 || x.counted < 0)
		return;
	if (last && (x.step <= last->step || x.at_ns < last->at_ns || x.own_ns < last->own_ns ||
		     x.counted < last->counted || x.counted - last->counted > x.step - last->step))
		return;
	to[(*n)++] = x;
}

void fo_rank_pace_take(const struct fo_rank_pace_bytes *b, struct fo_rank_seen *out)
{
	const int64_t n = b->recent_n > 0 ? b->recent_n : 0;
	const uint32_t all = b->whole_n < FO_RANK_WHOLE ? b->whole_n : FO_RANK_WHOLE;
	out->recents = out->wholes = 0;
	for (int64_t i = n > FO_RANK_RECENT ? n - FO_RANK_RECENT : 0; i < n; i++)
		take(&b->recent[i % FO_RANK_RECENT], out->recent, &out->recents);
	for (uint32_t i = 0; i < all; i++)
		take(&b->whole[i], out->whole, &out->wholes);
}
