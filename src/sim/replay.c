#include "sim/replay.h"

#include "base/count.h"
#include "base/fs.h"
#include "base/clock.h"
#include "base/mem.h"
#include "sim/walk.h"
#include "timeline/ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 4096 };

/* ---- what was recorded ---- */

static fo_status open_rank(struct fo_replay_rank *r, const char *path)
{
	FO_TRY(fo_timeline_read(&r->file, path));
	fo_status st = fo_timeline_program(&r->p, &r->file, path);
	if (st == FO_OK) {
		st = fo_unroll(&r->p, &r->u);
		if (st != FO_OK)
			fo_program_fini(&r->p);
	}
	if (st != FO_OK) {
		fo_timeline_fini(&r->file.t);
		return st;
	}
	fo_plan(&r->p, &r->u);
	fo_prune_waits(&r->p, &r->u);
	r->known = true;
	return FO_OK;
}

/* Begin and end of each instance of a step, ns of rank 0's clock; false: the step is not whole. */
static bool spans_of(const struct fo_replay_rank *r, int32_t step, int64_t *begin, int64_t *end, double *own_s)
{
	int n = 0;
	for (int i = 0; i < r->u.n; i++)
		begin[i] = INT64_MIN;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_ring *ring = &r->file.t.lane[l];
		for (uint64_t k = 0; k < ring->n; k++) {
			const struct fo_span *s = &ring->span[k];
			if (s->step != step || s->instance < 0 || s->instance >= r->u.n ||
			    fo_instance_op(&r->p, &r->u, s->instance)->lane != l)
				continue;
			n += begin[s->instance] == INT64_MIN;
			begin[s->instance] = s->begin_ns + r->file.t.whose.clock_offset_ns;
			end[s->instance] = s->end_ns + r->file.t.whose.clock_offset_ns;
			if (own_s)
				own_s[s->instance] = fo_timeline_own_ns(&r->file.t, l, s) * 1e-9;
		}
	}
	return n == r->u.n;
}

/* From the first begin to the last end of a step over all ranks; false: it is not whole. */
static bool measure_step(const struct fo_replay *x, int32_t step, double *seconds)
{
	int64_t first = INT64_MAX, last = INT64_MIN;
	bool whole = true;
	for (int r = 0; r < x->ranks && whole; r++) {
		const struct fo_replay_rank *k = &x->rank[r];
		if (!k->known || (x->alone >= 0 && r != x->alone))
			continue;
		int64_t *begin = fo_xmalloc(2 * (size_t)(k->u.n + 1) * sizeof *begin), *end = begin + k->u.n + 1;
		whole = spans_of(k, step, begin, end, NULL);
		for (int i = 0; i < k->u.n && whole; i++) {
			first = fo_min(begin[i], first);
			last = fo_max(end[i], last);
		}
		free(begin);
	}
	*seconds = (double)(last - first) * 1e-9;
	return whole && last > first;
}

static void find_slow(struct fo_replay *x)
{
	const struct fo_timeline_file **file = fo_xmalloc((size_t)x->ranks * sizeof *file);
	struct fo_ranks all;
	x->slow = -1;
	for (int r = 0; r < x->ranks; r++)
		file[r] = x->rank[r].known ? &x->rank[r].file : NULL;
	fo_ranks_merge(&all, file, x->ranks);
	x->slow_known = all.slow.known;
	x->slow = all.slow.known ? all.slow.rank : -1;
	x->slow_steps = all.slow.windows;
	x->slow_needed = all.slow.needed;
	fo_ranks_fini(&all);
	free(file);
}

/* The newest whole steps, but the first of a run, which touches fresh memory, unless there is no other. */
static fo_status find_steps(struct fo_replay *x, const char *path)
{
	const struct fo_replay_rank *r = &x->rank[x->alone >= 0 ? x->alone : 0];
	const struct fo_ring *c = &r->file.t.lane[FO_LANE_COMPUTE];
	int32_t last = INT32_MAX;
	for (uint64_t k = c->n; k > 0 && x->steps < FO_REPLAY_STEPS; k--) {
		const int32_t step = c->span[k - 1].step;
		if (step >= last)
			continue;
		last = step;
		if (step == 0 && x->steps)
			break;
		if (measure_step(x, step, &x->measured_s[x->steps]))
			x->step[x->steps++] = step;
	}
	for (int i = 0; i < x->steps / 2; i++) {
		const int k = x->steps - 1 - i;
		const int32_t step = x->step[i];
		const double s = x->measured_s[i];
		x->step[i] = x->step[k];
		x->measured_s[i] = x->measured_s[k];
		x->step[k] = step;
		x->measured_s[k] = s;
	}
	return x->steps ? FO_OK : fo_fail(FO_EARG, "'%s' holds no step of which every operation was recorded", path);
}

static fo_status open_others(struct fo_replay *x, const char *folder)
{
	struct fo_arena a = { 0 };
	fo_status st = FO_OK;
	for (int r = 1; r < x->ranks && st == FO_OK; r++) {
		const char *path = fo_timeline_rank_path(&a, folder, r);
		if (!fo_fs_exists(path))
			continue;
		st = open_rank(&x->rank[r], path);
		if (st == FO_OK &&
		    (x->rank[r].file.rank != r || !fo_timeline_same_run(&x->rank[r].file, &x->rank[0].file)))
			st = fo_fail(FO_EFORMAT, "'%s' is of another run than rank 0's timeline", path);
		x->known += x->rank[r].known;
	}
	fo_arena_fini(&a);
	return st;
}

fo_status fo_replay_open(struct fo_replay *x, const char *path)
{
	struct fo_arena a = { 0 };
	const bool folder = fo_fs_is_dir(path);
	const char *first = folder ? fo_timeline_rank_path(&a, path, 0) : path;
	struct fo_replay_rank r = { 0 };
	*x = (struct fo_replay){ .alone = -1, .slow = -1 };
	fo_status st = FO_OK;
	if (folder && !fo_fs_exists(first))
		st = fo_fail(FO_EFORMAT, "'%s' has no %s: nothing tells when its operations ran", path,
			     FO_TIMELINE_FILE);
	if (st == FO_OK)
		st = open_rank(&r, first);
	if (st == FO_OK && r.p.ranks > RANKS_MOST) {
		x->rank = fo_xmalloc(sizeof *x->rank);
		x->rank[0] = r;
		x->ranks = 1;
		st = fo_fail(FO_EUNSUPPORTED, "'%s' is of %d ranks: at most %d are replayed", path, r.p.ranks,
			     RANKS_MOST);
	} else if (st == FO_OK) {
		const int at = r.file.ranks ? r.file.rank : 0;
		x->ranks = r.p.ranks;
		x->rank = fo_xmalloc((size_t)x->ranks * sizeof *x->rank);
		x->rank[at] = r;
		x->known = 1;
		if (folder && x->ranks > 1 && r.file.ranks)
			st = open_others(x, path);
		x->alone = x->known < x->ranks ? at : -1;
	}
	if (st == FO_OK)
		st = find_steps(x, path);
	if (st == FO_OK && x->ranks > 1 && x->alone < 0)
		find_slow(x);
	if (st != FO_OK)
		fo_replay_fini(x);
	fo_arena_fini(&a);
	return st;
}

void fo_replay_fini(struct fo_replay *x)
{
	for (int r = 0; r < x->ranks; r++) {
		if (!x->rank[r].known)
			continue;
		fo_timeline_fini(&x->rank[r].file.t);
		fo_unrolled_fini(&x->rank[r].u);
		fo_program_fini(&x->rank[r].p);
	}
	free(x->rank);
	*x = (struct fo_replay){ 0 };
}

/* ---- changes ---- */

static bool is_kind(const char *name, const struct fo_program *p, int block, const struct fo_op *o)
{
	const char *kind = fo_op_info(o->kind)->name;
	const size_t n = strlen(kind);
	if (!strcmp(name, kind))
		return true;
	return !strncmp(name, kind, n) && !strncmp(name + n, " of ", 4) && !strcmp(name + n + 4, p->block[block].name);
}

static bool is_named(const char *name, const struct fo_program *p, int block, const struct fo_op *o)
{
	if (!strncmp(name, "lane:", 5))
		return !strcmp(name + 5, fo_lane_name[o->lane]);
	return is_kind(name, p, block, o);
}

static bool has_name(const struct fo_replay *x, const char *name)
{
	for (int r = 0; r < x->ranks; r++) {
		const struct fo_program *p = &x->rank[r].p;
		for (int b = 0; x->rank[r].known && b < p->nblock; b++)
			for (int i = 0; i < p->block[b].n; i++)
				if (is_named(name, p, b, &p->block[b].op[i]))
					return true;
	}
	return false;
}

/* The names of the kinds of operations that the first rank runs, and of its lanes. */
static void list_names(const struct fo_replay *x, struct fo_str *out)
{
	bool kind[FO_OP_COUNT] = { false }, lane[FO_LANE_COUNT] = { false };
	const struct fo_program *p = &x->rank[x->alone >= 0 ? x->alone : 0].p;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			kind[p->block[b].op[i].kind] = true;
			lane[p->block[b].op[i].lane] = true;
		}
	for (int k = 0; k < FO_OP_COUNT; k++)
		if (kind[k])
			fo_str_printf(out, "%s%s", out->len ? ", " : "", fo_op_info(k)->name);
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (lane[l])
			fo_str_printf(out, ", lane:%s", fo_lane_name[l]);
}

fo_status fo_replay_parse(struct fo_replay_changes *c, const struct fo_replay *x, const char *text)
{
	while (*text) {
		const size_t n = strcspn(text, ",");
		const char *equals = memchr(text, '=', n);
		struct fo_replay_scale s = { .factor = -1 };
		char *end = NULL;
		if (equals && equals > text && (size_t)(equals - text) < sizeof s.name) {
			memcpy(s.name, text, (size_t)(equals - text));
			s.factor = strtod(equals + 1, &end);
		}
		if (!end || end == equals + 1 || end != text + n || !(s.factor >= 0) || !(s.factor <= 1e6))
			return fo_hint(
				fo_fail(FO_EARG, "'%.*s' is not NAME=FACTOR with a factor from 0 to 1e6", (int)n, text),
				"--scale=matmul=0.5,lane:reduce=2 halves the matmuls and doubles a lane");
		if (!has_name(x, s.name)) {
			struct fo_str names = { 0 };
			list_names(x, &names);
			fo_status st = fo_hint(fo_fail(FO_EARG, "this run has no operation '%s'", s.name),
					       "it has %s; also \"matmul of layer.f\"", names.data);
			fo_str_fini(&names);
			return st;
		}
		if (c->scales == FO_REPLAY_CHANGES)
			return fo_fail(FO_EARG, "more than %d changes at once", FO_REPLAY_CHANGES);
		c->scale[c->scales++] = s;
		text += n + (text[n] == ',');
	}
	return FO_OK;
}

/* ---- one step ---- */

struct recorded {
	int64_t *begin, *end;
	double *own_s;  /* of what works */
	double *took_s; /* of calls, from when all had come: the mean of its ranks */
};
struct inside {
	const struct fo_replay *x;
	int n; /* ranks that are replayed */
	struct recorded *rec;
	struct fo_sim *sim;
	double **before_s;
	struct fo_sim_rank *role;
	int32_t *role_of;
	struct fo_sim_job job;
};

static bool is_comm(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_COMM; }
static int rank_at(const struct fo_replay *x, int k) { return x->alone >= 0 ? x->alone : k; }

static fo_status take_calls(struct inside *in, int32_t step)
{
	const struct fo_replay *x = in->x;
	const struct fo_timeline_file **file = fo_xmalloc((size_t)x->ranks * sizeof *file);
	struct fo_rank_call *call;
	int64_t n, meetings = 0;
	fo_status st = FO_OK;
	for (int r = 0; r < x->ranks; r++)
		file[r] = &x->rank[r].file;
	fo_rank_calls(&call, &n, file, x->ranks, step);
	for (int64_t i = 0; i < n; i++)
		meetings = fo_max(meetings, call[i].meeting + 1);
	double *sum = fo_xmalloc((size_t)(2 * meetings + 1) * sizeof *sum), *members = sum + meetings;
	for (int64_t i = 0; i < n && st == FO_OK; i++) {
		const struct fo_rank_call *c = &call[i];
		if (c->meeting < 0) {
			const struct fo_replay_rank *r = &x->rank[c->rank];
			st = fo_fail(FO_EFORMAT,
				     "step %d cannot be run again: %s of rank %d has no counterpart on the other ranks",
				     step + 1, fo_op_info(fo_instance_op(&r->p, &r->u, c->instance)->kind)->name,
				     c->rank);
			break;
		}
		sum[c->meeting] += (double)(c->end_ns - c->met_ns) * 1e-9;
		members[c->meeting]++;
	}
	for (int64_t i = 0; i < n && st == FO_OK; i++)
		if (call[i].instance < x->rank[call[i].rank].u.n)
			in->rec[call[i].rank].took_s[call[i].instance] = sum[call[i].meeting] /
									 members[call[i].meeting];
	free(sum);
	free(call);
	free(file);
	return st;
}

static void take_spans(struct inside *in, int k, int32_t step)
{
	const struct fo_replay_rank *r = &in->x->rank[rank_at(in->x, k)];
	struct recorded *rec = &in->rec[k];
	const size_t n = (size_t)r->u.n + 1;
	rec->begin = fo_xmalloc(n * sizeof *rec->begin);
	rec->end = fo_xmalloc(n * sizeof *rec->end);
	rec->own_s = fo_xmalloc(n * sizeof *rec->own_s);
	rec->took_s = fo_xmalloc(n * sizeof *rec->took_s);
	spans_of(r, step, rec->begin, rec->end, rec->own_s);
	/* A call of a group of one, or one of a rank whose others are not known: as long as it took. */
	for (int i = 0; i < r->u.n; i++)
		rec->took_s[i] = (double)(rec->end[i] - rec->begin[i]) * 1e-9;
}

/* The pause in front of each operation: from when its lane was free and what it waits for had ended. */
static void take_pauses(struct inside *in, int k, int64_t origin)
{
	const struct fo_replay_rank *r = &in->x->rank[rank_at(in->x, k)];
	const struct recorded *rec = &in->rec[k];
	int64_t free_at[FO_LANE_COUNT];
	for (int l = 0; l < FO_LANE_COUNT; l++)
		free_at[l] = origin;
	in->before_s[k] = fo_xmalloc((size_t)(r->u.n + 1) * sizeof **in->before_s);
	for (int i = 0; i < r->u.n; i++) {
		const int lane = fo_instance_op(&r->p, &r->u, i)->lane;
		int64_t ready = free_at[lane];
		for (int l = 0; l < FO_LANE_COUNT; l++)
			if (l != lane && r->u.wait[i][l] >= 0)
				ready = fo_max(ready, rec->end[r->u.wait[i][l]]);
		in->before_s[k][i] = (double)fo_max(rec->begin[i] - ready, 0) * 1e-9;
		free_at[lane] = rec->end[i];
	}
}

/* The median over the other ranks that do the same. */
static double of_others(const struct inside *in, int without, int i, bool pause)
{
	const struct fo_replay_rank *own = &in->x->rank[without];
	double *v = fo_xmalloc((size_t)in->n * sizeof *v), median;
	size_t n = 0;
	for (int k = 0; k < in->n; k++) {
		const struct fo_replay_rank *r = &in->x->rank[k];
		if (k == without || r->u.n != own->u.n ||
		    fo_instance_op(&r->p, &r->u, i)->kind != fo_instance_op(&own->p, &own->u, i)->kind)
			continue;
		v[n++] = pause ? in->before_s[k][i] : in->sim[k].seconds[i];
	}
	median = n ? fo_stats_median(v, n) : NAN;
	free(v);
	return median;
}

static void leave_out(struct inside *in, int without)
{
	const struct fo_replay_rank *r = &in->x->rank[without];
	for (int i = 0; i < r->u.n; i++) {
		const double pause = of_others(in, without, i, true), work = of_others(in, without, i, false);
		if (!isnan(pause))
			in->before_s[without][i] = pause;
		if (!isnan(work) && !is_comm(fo_instance_op(&r->p, &r->u, i)))
			in->sim[without].seconds[i] = work;
	}
}

static void change(struct inside *in, int k, const struct fo_replay_changes *c)
{
	const struct fo_replay_rank *r = &in->x->rank[rank_at(in->x, k)];
	for (int i = 0; i < r->u.n; i++) {
		const struct fo_op *o = fo_instance_op(&r->p, &r->u, i);
		double factor = 1;
		for (int n = 0; n < c->scales; n++)
			if (is_named(c->scale[n].name, &r->p, r->p.slot[r->u.slot[i]].block, o))
				factor *= c->scale[n].factor;
		if (is_comm(o) && c->links > 0)
			factor /= c->links;
		in->sim[k].seconds[i] *= factor;
	}
}

static fo_status build(struct inside *in, int32_t step, const struct fo_replay_changes *c)
{
	const struct fo_replay *x = in->x;
	int64_t origin = INT64_MAX;
	for (int k = 0; k < in->n; k++) {
		take_spans(in, k, step);
		for (int i = 0; i < x->rank[rank_at(x, k)].u.n; i++)
			origin = fo_min(origin, in->rec[k].begin[i]);
	}
	if (in->n > 1)
		FO_TRY(take_calls(in, step));
	for (int k = 0; k < in->n; k++) {
		const struct fo_replay_rank *r = &x->rank[rank_at(x, k)];
		take_pauses(in, k, origin);
		fo_sim_init(&in->sim[k], &r->u, 0);
		for (int i = 0; i < r->u.n; i++)
			in->sim[k].seconds[i] = is_comm(fo_instance_op(&r->p, &r->u, i)) ? in->rec[k].took_s[i]
											 : in->rec[k].own_s[i];
		in->role[k] = (struct fo_sim_rank){ &r->p, &r->u, &in->sim[k], in->before_s[k] };
		in->role_of[k] = k;
	}
	if (c && c->without >= 0 && in->n > 1)
		leave_out(in, c->without);
	for (int k = 0; c && k < in->n; k++)
		change(in, k, c);
	in->job = (struct fo_sim_job){
		.role = in->role, .roles = in->n, .role_of = in->n > 1 ? in->role_of : NULL, .meets = in->n > 1
	};
	return FO_OK;
}

fo_status fo_replay_step(struct fo_replay_step *s, const struct fo_replay *x, int step,
			 const struct fo_replay_changes *c)
{
	struct inside *in = fo_xmalloc(sizeof *in);
	const size_t n = (size_t)(x->alone >= 0 ? 1 : x->ranks);
	*s = (struct fo_replay_step){ .inside = in };
	in->x = x;
	in->n = (int)n;
	in->rec = fo_xmalloc(n * sizeof *in->rec);
	in->sim = fo_xmalloc(n * sizeof *in->sim);
	in->before_s = fo_xmalloc(n * sizeof *in->before_s);
	in->role = fo_xmalloc(n * sizeof *in->role);
	in->role_of = fo_xmalloc(n * sizeof *in->role_of);
	fo_status st = build(in, x->step[step], c);
	if (st == FO_OK) {
		fo_sim_fleet(&s->fleet, &in->job);
		st = fo_fleet_simulate(&s->run, &s->fleet);
	}
	if (st == FO_OK)
		fo_fleet_path_of(&s->path, &s->run);
	else
		fo_replay_step_fini(s);
	return st;
}

void fo_replay_step_fini(struct fo_replay_step *s)
{
	struct inside *in = s->inside;
	fo_fleet_path_fini(&s->path);
	fo_fleet_run_fini(&s->run);
	fo_fleet_fini(&s->fleet);
	for (int k = 0; in && k < in->n; k++) {
		free(in->rec[k].begin);
		free(in->rec[k].end);
		free(in->rec[k].own_s);
		free(in->rec[k].took_s);
		fo_sim_fini(&in->sim[k]);
		free(in->before_s[k]);
	}
	if (in) {
		free(in->rec);
		free(in->sim);
		free(in->before_s);
		free(in->role);
		free(in->role_of);
	}
	free(in);
	*s = (struct fo_replay_step){ 0 };
}
