/* Every mesh of a machine's ranks, each as the executor would run it. */
#include "plan/meshes.h"

#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "base/thread.h"
#include "pass/pass.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings ---- */

/* Writes the mesh into a run. */
static void apply(const struct fo_plan_mesh *m, struct fo_run *r)
{
	r->pp = m->pp, r->pp_kind = m->pp_kind, r->pp_chunks = m->pp_chunks;
	r->tp = m->tp, r->tp_sequence = m->tp_sequence, r->tp_async = m->tp_async;
	r->cp = m->cp, r->cp_by = m->cp_by;
	r->shard = m->shard, r->replicate = m->replicate, r->zero = m->zero, r->zero_reshard = m->zero_reshard;
	r->rows = m->rows, r->micro_batches = m->micro_batches, r->batch_rows = 0;
}

struct setting {
	const char *group, *name, *text; /* text NULL: the number */
	int64_t number;
	bool matters; /* it is not what it is anyhow */
};
enum { SETTINGS = 16 };

static void settings_of(const struct fo_plan_mesh *m, int64_t ranks, struct setting out[SETTINGS])
{
	static const char *const cp_by[] = { "ring", "heads" }, *const reshard[] = { "forward", "backward", "step" };
	const struct setting list[SETTINGS] = {
		{ "train", "rows", NULL, m->rows, true },
		{ "train", "micro-batches", NULL, m->micro_batches, true },
		{ "train", "batch-rows", NULL, 0, false },
		{ "mesh", "ranks", NULL, ranks, true },
		{ "mesh", "pp", NULL, m->pp, true },
		{ "mesh", "tp", NULL, m->tp, true },
		{ "mesh", "cp", NULL, m->cp, true },
		{ "mesh", "shard", NULL, m->shard, true },
		{ "mesh", "replicate", NULL, m->replicate, false },
		{ "pass", "pp", fo_pp_name[m->pp_kind], 0, m->pp > 1 },
		{ "pass", "pp-chunks", NULL, m->pp_chunks, m->pp > 1 && m->pp_chunks > 0 },
		{ "pass", "tp-sequence", m->tp_sequence || m->tp < 2 ? "yes" : "no", 0, m->tp > 1 },
		{ "pass", "tp-async", m->tp_async < 0 ? "auto" : NULL, m->tp_async, m->tp > 1 },
		{ "pass", "cp", cp_by[m->cp_by], 0, m->cp > 1 },
		{ "pass", "zero", m->zero ? NULL : "off", m->zero, m->shard * m->cp > 1 },
		{ "pass", "zero-reshard", reshard[m->zero_reshard], 0, m->zero == FO_ZERO_WEIGHTS },
	};
	memcpy(out, list, sizeof list);
}

static void put_text(const struct setting *s, struct fo_str *out)
{
	if (s->text)
		fo_str_puts(out, s->text);
	else
		fo_str_printf(out, "%" PRId64, s->number);
}

void fo_plan_mesh_options(const struct fo_plan_mesh *m, int64_t ranks, struct fo_str *out)
{
	struct setting s[SETTINGS];
	settings_of(m, ranks, s);
	for (int i = 0; i < SETTINGS; i++) {
		fo_str_printf(out, "%s--%s.%s=", i ? " " : "", s[i].group, s[i].name);
		put_text(&s[i], out);
	}
}

void fo_plan_mesh_yaml(const struct fo_plan_mesh *m, int64_t ranks, struct fo_str *out)
{
	static const char *const group[] = { "train", "mesh", "pass" };
	struct setting s[SETTINGS];
	settings_of(m, ranks, s);
	for (int g = 0; g < 3; g++) {
		bool any = false;
		for (int i = 0; i < SETTINGS; i++) {
			if (!s[i].matters || strcmp(group[g], s[i].group) != 0)
				continue;
			if (!any)
				fo_str_printf(out, "%s:\n", group[g]);
			fo_str_printf(out, "  %s: ", s[i].name);
			put_text(&s[i], out);
			fo_str_puts(out, "\n");
			any = true;
		}
	}
}

/* ---- every mesh ---- */

struct walk {
	const struct fo_plan_meshes_asked *a;
	struct fo_plan_mesh m;
	int64_t rows, layers; /* of a step, of the model */
	struct fo_plan_mesh *list;
	size_t n, cap;
};

static bool may(int64_t fixed, int64_t value) { return fixed < 0 || fixed == value; }

static void put(struct walk *w)
{
	if (w->n == w->cap)
		w->list = fo_xrealloc(w->list, (w->cap = 2 * w->cap + 64) * sizeof *w->list);
	w->list[w->n++] = w->m;
}

static int parts_of(const struct fo_plan_mesh *m)
{
	return 4 * (m->pp > 1) + (m->pp > 1 && m->pp_kind != FO_PP_1F1B) + (m->pp_kind >= FO_PP_ZB_H1) +
	       2 * (m->pp_chunks > 1) + 3 * (m->tp > 1) + (m->tp > 1 && !m->tp_sequence) + 3 * (m->cp > 1) +
	       (m->cp > 1 && m->cp_by == FO_CP_HEADS - 1) + (m->zero && m->replicate > 1) +
	       (m->zero_reshard != FO_RESHARD_FORWARD);
}

/* Do two schedules work in the same order on so few micro-batches? */
static bool same_orders(const struct fo_plan_mesh *m, enum fo_pp_kind a, enum fo_pp_kind b)
{
	struct fo_pp_shape x = { a, (int32_t)m->pp, (int32_t)m->micro_batches, 1 }, y = x;
	y.kind = b;
	struct fo_pp_plan one, other;
	if (fo_pp_legal(&x) != FO_OK || fo_pp_legal(&y) != FO_OK) {
		fo_err_clear();
		return false;
	}
	fo_pp_plan_of(&one, &x);
	fo_pp_plan_of(&other, &y);
	bool same = one.begin[m->pp] == other.begin[m->pp];
	for (int64_t i = 0; same && i < one.begin[m->pp]; i++)
		same = one.slot[i].mb == other.slot[i].mb && one.slot[i].work == other.slot[i].work;
	for (int64_t s = 0; same && s <= m->pp; s++)
		same = one.begin[s] == other.begin[s];
	fo_pp_plan_free(&one);
	fo_pp_plan_free(&other);
	return same;
}

/* The very program of a mesh that is listed anyhow. */
static bool repeats(const struct fo_plan_mesh *m)
{
	if (m->zero_reshard == FO_RESHARD_STEP && m->micro_batches == 1)
		return true; /* a step has one backward */
	if (m->pp > 1 && m->pp_kind == FO_PP_GPIPE)
		return same_orders(m, FO_PP_GPIPE, FO_PP_1F1B);
	return m->pp > 1 && m->pp_kind == FO_PP_ZB_H2 && same_orders(m, FO_PP_ZB_H2, FO_PP_ZB_H1);
}

/* How the rows of a set become micro-batches. */
static void walk_rows(struct walk *w)
{
	const int64_t sets = w->m.shard * w->m.replicate, own = w->rows / sets;
	if (w->rows % sets)
		return;
	for (int64_t each = 1; each <= own; each++) {
		if (own % each || !may(w->a->fixed.rows_of_a_rank, each))
			continue;
		w->m.rows = each * sets;
		w->m.micro_batches = own / each;
		w->m.parts = parts_of(&w->m);
		if (w->a->fixed.pp_kind >= 0 || w->a->fixed.zero_reshard >= 0 || !repeats(&w->m))
			put(w);
	}
}

static void walk_states(struct walk *w, int64_t dp)
{
	const struct fo_plan_mesh_fixed *f = &w->a->fixed;
	for (int64_t shard = 1; shard <= dp; shard++) {
		if (dp % shard || !may(f->shard, shard))
			continue;
		w->m.shard = shard;
		w->m.replicate = dp / shard;
		for (int zero = FO_ZERO_OFF; zero < FO_ZERO_COUNT; zero++) {
			/* Without sharing a shard group is nothing but a group. */
			if (!may(f->zero, zero) || (zero ? shard * w->m.cp < 2 : shard > 1))
				continue;
			w->m.zero = zero;
			for (int r = FO_RESHARD_FORWARD; r < FO_RESHARD_COUNT; r++) {
				if (!may(f->zero_reshard, r) || (r && zero != FO_ZERO_WEIGHTS))
					continue;
				w->m.zero_reshard = r;
				walk_rows(w);
			}
		}
	}
	w->m.zero = w->m.zero_reshard = 0;
}

static void walk_tokens(struct walk *w, int64_t dp)
{
	const struct fo_plan_mesh_fixed *f = &w->a->fixed;
	for (int by = 0; by < (w->m.cp > 1 ? FO_CP_COUNT - 1 : 1); by++) {
		if (w->m.cp > 1 && !may(f->cp_by, by))
			continue;
		w->m.cp_by = by;
		walk_states(w, dp);
	}
	w->m.cp_by = 0;
}

static void walk_tensor(struct walk *w, int64_t dp)
{
	const struct fo_plan_mesh_fixed *f = &w->a->fixed;
	for (int sp = w->m.tp > 1; sp >= 0; sp--)
		for (int async = 0; async <= (w->m.tp > 1 && sp); async++) {
			int64_t pieces = async ? -1 : 0;
			if (w->m.tp > 1 &&
			    (!may(f->tp_sequence, sp) || (f->tp_async >= 0 && pieces != (f->tp_async ? -1 : 0))))
				continue;
			w->m.tp_sequence = sp;
			w->m.tp_async = pieces;
			walk_tokens(w, dp);
		}
}

static void walk_stages(struct walk *w, int64_t dp)
{
	const struct fo_plan_mesh_fixed *f = &w->a->fixed;
	w->m.pp_kind = FO_PP_1F1B, w->m.pp_chunks = 0;
	if (w->m.pp < 2) {
		walk_tensor(w, dp);
		return;
	}
	for (int kind = 0; kind <= FO_PP_ZB_H2; kind++) {
		if (!may(f->pp_kind, kind))
			continue;
		w->m.pp_kind = kind;
		w->m.pp_chunks = 0;
		if (kind != FO_PP_INTERLEAVED && may(f->pp_chunks > 1 ? f->pp_chunks : -1, 1))
			walk_tensor(w, dp);
		for (int64_t c = 2; kind == FO_PP_INTERLEAVED && c * w->m.pp <= w->layers; c++) {
			w->m.pp_chunks = c;
			if (c <= FO_PP_CHUNKS_MOST && may(f->pp_chunks > 0 ? f->pp_chunks : -1, c))
				walk_tensor(w, dp);
		}
	}
}

static void walk_axes(struct walk *w)
{
	const int64_t ranks = w->a->run->ranks;
	const struct fo_plan_mesh_fixed *f = &w->a->fixed;
	for (int64_t pp = 1; pp <= ranks; pp++)
		for (int64_t tp = 1; tp <= ranks / pp; tp++)
			for (int64_t cp = 1; cp <= ranks / (pp * tp); cp++) {
				if (ranks % (pp * tp * cp) || !may(f->pp, pp) || !may(f->tp, tp) || !may(f->cp, cp))
					continue;
				w->m = (struct fo_plan_mesh){ .pp = pp, .tp = tp, .cp = cp };
				walk_stages(w, ranks / (pp * tp * cp));
			}
}

/* ---- one of them ---- */

struct job {
	const struct fo_plan_meshes_asked *a;
	struct fo_plan_mesh *mesh;
};

static void take_one(struct fo_plan_mesh *m, const struct fo_plan_meshes_asked *a, const struct fo_program *p,
		     double pairs)
{
	struct fo_unrolled u;
	struct fo_sim s;
	if (fo_unroll(p, &u) != FO_OK)
		return;
	fo_plan(p, &u);
	fo_sim_step(&s, p, &u, a->rates, pairs);
	m->legal = true;
	m->step_s = (struct fo_interval){ s.step_s, s.step_s, s.step_s };
	m->bytes = u.arena_bytes + u.persistent_bytes + u.host_arena_bytes;
	m->guess_share = s.sure_s[FO_SURE_GUESS];
	fo_sim_fini(&s);
	fo_unrolled_fini(&u);
}

static void take_ranks(struct fo_plan_mesh *m, const struct fo_plan_meshes_asked *a, const struct fo_program *p,
		       double pairs)
{
	struct fo_sim_ranks x;
	fo_status st = fo_sim_ranks_init(&x, p);
	x.apart = fo_run_is_paced(a->run);
	if (st == FO_OK && fo_sim_ranks_step(&x, a->rates, a->links, a->cores, pairs) == FO_OK) {
		double all = 0;
		m->legal = true;
		m->step_s = x.step_s;
		m->exposed_s = x.exposed_s;
		for (int r = 0; r < x.ranks; r++) {
			const struct fo_unrolled *u = &x.role[x.role_of[r]].u;
			m->bytes += u->arena_bytes + u->persistent_bytes + u->host_arena_bytes;
		}
		for (int i = 0; i < FO_SURE_COUNT; i++)
			all += x.rank[0].sure_s[i];
		m->guess_share = all > 0 ? x.rank[0].sure_s[FO_SURE_GUESS] / all : 0;
	}
	fo_sim_ranks_fini(&x);
}

/* What is refused leaves no error: it is counted. */
static void try_mesh(void *ctx, size_t i)
{
	const struct job *j = ctx;
	struct fo_plan_mesh *m = &j->mesh[i];
	struct fo_run run = *j->a->run;
	struct fo_program p = { 0 };
	apply(m, &run);
	fo_status st = fo_pass_build_run(&p, &run);
	m->too_large = st == FO_ENOMEM; /* whatever auto chooses */
	if (st == FO_OK) {
		double pairs = j->a->pairs < 0 ? -1 : j->a->pairs * (double)p.run.rows;
		(p.ranks > 1 ? take_ranks : take_one)(m, j->a, &p, pairs);
	}
	fo_program_fini(&p);
	fo_err_clear();
}

static int by_time(const void *a, const void *b)
{
	const struct fo_plan_mesh *x = a, *y = b;
	if (x->step_s.mid < y->step_s.mid || x->step_s.mid > y->step_s.mid)
		return x->step_s.mid < y->step_s.mid ? -1 : 1;
	return x->parts - y->parts;
}

/* Why the executor runs none: what it says of the first. */
static fo_status refuse(const struct fo_plan_meshes_asked *a, const struct fo_plan_mesh *first)
{
	struct fo_run run = *a->run;
	struct fo_program p = { 0 };
	if (first) {
		apply(first, &run);
		fo_status st = fo_pass_build_run(&p, &run);
		fo_program_fini(&p);
		if (st != FO_OK)
			return st;
	}
	return fo_hint(fo_fail(FO_EARG, "no mesh of %" PRId64 " ranks can share the rows of a step with what is fixed",
			       a->run->ranks),
		       "rows of a step are train.rows x train.micro-batches: as many as ranks always can");
}

fo_status fo_plan_meshes_search(struct fo_plan_meshes *o, const struct fo_plan_meshes_asked *a)
{
	int64_t begin = fo_now_ns();
	struct fo_model model;
	*o = (struct fo_plan_meshes){ 0 };
	FO_TRY(fo_run_model(a->run, &model));
	struct walk w = { .a = a,
			  .layers = model.layers,
			  .rows = a->run->batch_rows ? a->run->batch_rows : a->run->rows * a->run->micro_batches };
	walk_axes(&w);
	fo_thread_share(w.n, try_mesh, &(struct job){ a, w.list });
	o->tried = (int64_t)w.n;
	o->mesh = w.list;
	struct fo_plan_mesh first = w.n ? w.list[0] : (struct fo_plan_mesh){ 0 };
	for (size_t i = 0; i < w.n; i++) {
		const struct fo_plan_mesh *m = &w.list[i];
		bool large = m->too_large || (m->legal && a->memory_bytes > 0 && m->bytes > a->memory_bytes);
		o->refused += !m->legal && !large;
		o->too_large += large;
		if (m->legal && large) {
			o->least_bytes = o->least_bytes ? fo_min(o->least_bytes, m->bytes) : m->bytes;
		} else if (m->legal) {
			o->mesh[o->n++] = *m;
		}
	}
	if (o->n)
		qsort(o->mesh, (size_t)o->n, sizeof *o->mesh, by_time);
	for (int i = 1; i < o->n && o->mesh[i].step_s.mid <= (1 + FO_PLAN_TIE) * o->mesh[0].step_s.mid; i++)
		if (o->mesh[i].parts < o->mesh[o->named].parts)
			o->named = i;
	o->seconds = 1e-9 * (double)(fo_now_ns() - begin);
	if (o->n)
		return FO_OK;
	if (o->too_large)
		return fo_fail(FO_ENOMEM, "no mesh fits");
	return refuse(a, w.n ? &first : NULL);
}

void fo_plan_meshes_fini(struct fo_plan_meshes *m)
{
	free(m->mesh);
	*m = (struct fo_plan_meshes){ 0 };
}
