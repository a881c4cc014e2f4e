/* Training on several ranks is what one rank does: random small models x meshes of 1 to 8 ranks (all of replicate x
 * shard, with tp groups of 1, 2, 3, 4 and 8 where they fit) x random legal subsets of passes x what shard groups
 * share x accumulation, in double precision against one rank's plain program with all rows: losses, gradient norms,
 * gradients, weights and moments of three steps agree to 1e-12; in fp32 and bf16 within rounding; fp8 is held to
 * the bit of every scale in test_fp8_ranks.c, here to all the rest. A job again, in another order or with other
 * delays, gives the same bits. What the transport carries is what the accounting says, to the byte, per kind and
 * group. A rank that fails ends the others.
 *
 * FLATOUT_OVER=mpi runs a sample of such cases, of each kind of mesh, as processes that MPI carries: the
 * bits are those of threads (over_mpi.h).
 *
 * Most cases run on one thread, which draws the order of all ranks' instances (support/interleave.h); every twelfth has
 * a thread per rank and lane, with delays. FLATOUT_RANK_CASES says how many, FLATOUT_RANK_SEED draws others. */
#include "base/clock.h"
#include "comm/mpi.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/mpirun.h"
#include "support/must.h"
#include "support/ranks.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

enum { STEPS = OUTCOME_STEPS };
#define EPS 1e-12

/* ---- what was drawn ---- */

/* Every value that a case may have, with how many cases had it. An option that is never drawn proves nothing. */
static struct seen {
	char name[48];
	int n;
} seen[256];
static int nseen;

static void may(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void may(const char *fmt, ...)
{
	va_list ap;
	assert_true(nseen < (int)(sizeof seen / sizeof *seen));
	va_start(ap, fmt);
	vsnprintf(seen[nseen++].name, sizeof seen->name, fmt, ap);
	va_end(ap);
}

static void saw(bool it, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void saw(bool it, const char *fmt, ...)
{
	char name[sizeof seen->name];
	va_list ap;
	if (!it)
		return;
	va_start(ap, fmt);
	vsnprintf(name, sizeof name, fmt, ap);
	va_end(ap);
	for (int i = 0; i < nseen; i++)
		if (!strcmp(seen[i].name, name)) {
			seen[i].n++;
			return;
		}
	fail_msg("'%s' was drawn and is not in the list of what may be", name);
}

static const char *const plain_options[] = {
	"tied head",
	"untied head",
	"grouped heads",
	"one kv head",
	"a kv head each",
	"attention bias",
	"output bias",
	"mlp bias",
	"qk norm",
	"kv heads on several ranks",
	"an uneven vocabulary",
	"sliding window",
	"head size apart",
	"rope default",
	"rope linear",
	"rope llama3",
	"1 layer",
	"2 layers",
	"3 layers",
	"4 layers",
	"documents in a row",
	"a row per rank",
	"several rows",
	"1 micro-batch",
	"2 micro-batches",
	"3 micro-batches",
	"4 micro-batches",
	"zero 1",
	"zero 2",
	"zero 3",
	"fp64",
	"fp32",
	"bf16",
	"threads",
	"one thread",
	"again",
	"tied head at both ends",
	"uneven stages",
	"uneven stages, several chunks",
	"stages that recompute differently",
	"fewer micro-batches than stages",
	"pp group of 2, zero 3",
	"pp group of 2, cp group of 2",
	"pp group of 2, tp group of 2",
};
static const int tp_drawn[] = { 1, 2, 3, 4, 8 };       /* ranks of a tp group */
static const int cp_drawn[] = { 1, 1, 1, 2, 2, 3, 4 }; /* of a cp group, as often as each is tried */
enum { PP_RUN = 1 + FO_PP_INTERLEAVED };               /* schedules that run */
static const int pp_drawn[] = { 1, 1, 1, 2, 2, 3, 4 };
static const char *const rope_name[FO_ROPE_OTHER] = { "default", "linear", "llama3" };

static void list_options(void)
{
	nseen = 0;
	for (size_t i = 0; i < sizeof plain_options / sizeof *plain_options; i++)
		may("%s", plain_options[i]);
	for (int i = 0; i < fo_pass_fields; i++) {
		const struct fo_pass_field *f = &fo_pass_field[i];
		for (int64_t v = 1; v < f->values; v++)
			may("%s=%s", f->name, f->value[v]);
		if (!f->values)
			may("%s", f->name);
	}
	for (int replicate = 1; replicate <= RANKS_MOST; replicate++)
		for (int shard = 1; replicate * shard <= RANKS_MOST; shard++)
			for (size_t i = 0; i < sizeof tp_drawn / sizeof *tp_drawn; i++)
				if (replicate * shard * tp_drawn[i] <= RANKS_MOST)
					may("%d x %d x %d ranks", replicate, shard, tp_drawn[i]);
	for (int cp = 1; cp <= 4; cp++)
		may("cp group of %d", cp);
	for (int pp = 1; pp <= 4; pp++)
		may("pp group of %d", pp);
	may("cp group of 2, tp group of 2");
	may("cp group of 2, zero 3");
	may("cp group of 4, several rows");
	may("tokens for heads, tp group");
	may("tokens for heads, zero 3");
	may("tokens for heads, a kv head on several ranks");
	may("tokens for heads, rows cut anywhere");
}

static void see_model(const struct fo_model *m)
{
	saw(m->tied, "tied head");
	saw(!m->tied, "untied head");
	saw(m->kv_heads > 1 && m->kv_heads < m->heads, "grouped heads");
	saw(m->kv_heads == 1 && m->heads > 1, "one kv head");
	saw(m->kv_heads == m->heads, "a kv head each");
	saw(m->attention_bias, "attention bias");
	saw(m->output_bias, "output bias");
	saw(m->mlp_bias, "mlp bias");
	saw(m->qk_norm, "qk norm");
	saw(m->sliding_window, "sliding window");
	saw(m->head_dim * m->heads != m->hidden, "head size apart");
	saw(true, "rope %s", rope_name[m->rope.type]);
	saw(true, "%d layer%s", (int)m->layers, m->layers > 1 ? "s" : "");
}

static void see_job(const struct ranks_job *j)
{
	const struct fo_lowering *low = &j->low;
	see_model(&j->model);
	saw(true, "%d micro-batch%s", (int)low->micro_batches, low->micro_batches > 1 ? "es" : "");
	saw(low->rows == 1, "a row per rank");
	saw(low->rows > 1, "several rows");
	saw(true, "%s", fo_numerics_name[low->precision]);
	saw(true, j->order ? "one thread" : "threads");
	saw(fo_mesh_kv_of(&j->model, fo_mesh_tp(&low->mesh)) > 1, "kv heads on several ranks");
	saw(j->model.vocab % fo_mesh_tp(&low->mesh) != 0, "an uneven vocabulary");
	saw(low->pass.zero > 0, "zero %d", (int)low->pass.zero);
	saw(true, "%d x %d x %d ranks", low->mesh.replicate, low->mesh.shard, low->mesh.tp);
	saw(true, "cp group of %d", low->mesh.cp);
	saw(low->mesh.cp == 2 && low->mesh.tp == 2, "cp group of 2, tp group of 2");
	saw(low->mesh.cp == 2 && low->pass.zero == FO_ZERO_WEIGHTS, "cp group of 2, zero 3");
	saw(low->mesh.cp == 4 && low->rows > 1, "cp group of 4, several rows");
	saw(true, "pp group of %d", low->mesh.pp);
	saw(low->mesh.pp > 1 && j->model.tied, "tied head at both ends");
	saw(low->stages.parts, "uneven stages");
	saw(low->stages.parts > low->mesh.pp, "uneven stages, several chunks");
	saw(low->stages.repeats, "stages that recompute differently");
	saw(low->mesh.pp > low->micro_batches, "fewer micro-batches than stages");
	saw(low->mesh.pp == 2 && low->pass.zero == FO_ZERO_WEIGHTS, "pp group of 2, zero 3");
	saw(low->mesh.pp == 2 && low->mesh.cp == 2, "pp group of 2, cp group of 2");
	saw(low->mesh.pp == 2 && low->mesh.tp == 2, "pp group of 2, tp group of 2");
	if (low->pass.cp == FO_CP_HEADS) {
		const int32_t cp = low->mesh.cp, tp = fo_mesh_tp(&low->mesh);
		saw(tp > 1, "tokens for heads, tp group");
		saw(low->pass.zero == FO_ZERO_WEIGHTS, "tokens for heads, zero 3");
		saw(j->model.kv_heads % (cp * tp) != 0, "tokens for heads, a kv head on several ranks");
		saw(low->seq % cp != 0, "tokens for heads, rows cut anywhere");
	}
	for (int i = 0; i < fo_pass_fields; i++) {
		const struct fo_pass_field *f = &fo_pass_field[i];
		int64_t v = fo_passes_get(&low->pass, f->offset);
		if (v && f->values)
			saw(true, "%s=%s", f->name, f->value[v]);
		else
			saw(v != 0, "%s", f->name);
	}
}

static void check_seen(int cases)
{
	int least = cases;
	const char *what = "";
	for (int i = 0; i < nseen; i++)
		if (seen[i].n < least)
			least = seen[i].n, what = seen[i].name;
	print_message("%d options, each in at least %d of %d cases (%s)\n", nseen, least, cases, what);
	for (int i = 0; i < nseen; i++)
		if (!seen[i].n)
			fail_msg("no case of %d has '%s'", cases, seen[i].name);
}

/* ---- one case ---- */

static void train_alone(struct outcome *out, const struct fo_model *m, const struct fo_lowering *low,
			const struct step_batch *b)
{
	struct step_rig r;
	const struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 };
	*out = (struct outcome){ 0 };
	step_rig_lower(&r, m, low, b, &o);
	r.hyper[FO_HYPER_CLIP] = 0.5;
	r.hyper[FO_HYPER_EPS] = 1e-4;
	for (int s = 0; s < STEPS; s++) {
		step_rig_at(&r, s + 1);
		must(fo_exec_step(r.exec, s));
		outcome_step(out, &r, s);
	}
	outcome_end(out, &r);
	step_rig_free(&r);
}

static struct ranks_job job_of(const struct fo_model *m, const struct step_batch *b, struct fo_mesh mesh,
			       struct fo_passes pass)
{
	struct ranks_job j = { .model = *m,
			       .batch = b,
			       .options = { .isa = FO_ISA_REF, .threads = 1, .poison = true, .timeline_steps = 1 },
			       .clip = 0.5, /* below the norm of a fresh model: clipping takes part */
			       .eps = 1e-4 };
	j.low = step_lowering(b, FO_PRECISION_F64, FO_MODE_TRAIN);
	j.low.pass = pass;
	j.low.mesh = mesh;
	j.low.rows = b->rows / fo_mesh_data(&mesh);
	return j;
}

/* A model, a step's tokens and what one rank makes of them: several cases are held to it. */
struct task {
	struct fo_model m;
	struct step_batch all; /* in one micro-batch */
	bool previous_norm;    /* other mathematics, not a pass */
	int tp;                /* so many ranks of a tp group can share the model at most */
	struct outcome truth;
};

/* In some tasks a model that ranks of a tp group can share: more heads, and as many columns. Key and value heads become
 * more where they neither divide the ranks nor are divided by them, and in half of the others. */
static void widen_for_tp(struct task *t)
{
	struct fo_model *m = &t->m;
	t->tp = tp_drawn[choices_draw(sizeof tp_drawn / sizeof *tp_drawn)];
	if (m->kv_heads % t->tp && (t->tp % m->kv_heads || choices_draw(2))) {
		const int64_t more = m->kv_heads == 2 && t->tp % 2 == 0 ? t->tp / 2 : t->tp;
		m->kv_heads *= more;
		m->heads *= more;
	}
	while (m->heads % t->tp)
		m->heads += m->kv_heads;
	m->ffn += (t->tp - m->ffn % t->tp) % t->tp;
}

static void task_draw(struct task *t)
{
	static const uint8_t rows[] = { 4, 5, 6, 6, 7, 8, 8, 12, 16 };
	t->m = choices_small_model();
	widen_for_tp(t);
	if (choices_draw(4) == 0)
		t->m.layers = 4; /* two parts for each of two stages */
	step_batch_random(&t->all, 4 + choices_draw(5), rows[choices_draw(sizeof rows)], 1, t->m.vocab,
			  (int)choices_draw(4), choices_seed + choices_draws);
	t->previous_norm = choices_draw(2);
}

/* What one rank makes of it. */
static void task_train(struct task *t)
{
	struct fo_lowering low = step_lowering(&t->all, FO_PRECISION_F64, FO_MODE_TRAIN);
	low.pass.previous_norm = t->previous_norm;
	train_alone(&t->truth, &t->m, &low, &t->all);
}

static bool can_by_heads(const struct task *t, const struct fo_mesh *mesh, int64_t micro)
{
	const bool can = fo_mesh_cp_heads_legal(&t->m, t->all.rows / fo_mesh_data(mesh) / micro * t->all.seq, mesh->cp,
						mesh->tp) == FO_OK;
	fo_err_clear();
	return can;
}

static bool is_shared(const struct task *t, const struct fo_mesh *mesh, int64_t micro)
{
	const int64_t parts = fo_mesh_data(mesh) * micro, tokens = t->all.rows / parts * t->all.seq / fo_mesh_cp(mesh);
	bool shared = fo_mesh_ranks(mesh) <= RANKS_MOST && t->all.rows % parts == 0 && mesh->pp <= t->m.layers &&
		      (fo_mesh_cp_legal(t->all.seq, mesh->cp) == FO_OK || can_by_heads(t, mesh, micro)) &&
		      fo_mesh_tp_legal(&t->m, tokens, mesh->tp) == FO_OK;
	fo_err_clear();
	return shared;
}

/* Of all meshes, one with a number of micro-batches that share rows, heads and columns evenly. */
static struct fo_mesh draw_mesh(const struct task *t, int64_t *micro)
{
	struct fo_mesh mesh = { 0 };
	do {
		*micro = 1 + choices_draw(4);
		mesh.replicate = 1 + (int32_t)choices_draw(RANKS_MOST);
		mesh.shard = 1 + (int32_t)choices_draw(RANKS_MOST);
		mesh.tp = tp_drawn[choices_draw(sizeof tp_drawn / sizeof *tp_drawn)];
		mesh.cp = cp_drawn[choices_draw(sizeof cp_drawn / sizeof *cp_drawn)];
		mesh.pp = pp_drawn[choices_draw(sizeof pp_drawn / sizeof *pp_drawn)];
	} while (!is_shared(t, &mesh, *micro));
	return mesh;
}

static struct fo_passes draw_passes(const struct task *t, enum fo_numerics precision, const struct fo_mesh *mesh)
{
	struct fo_passes p = choices_passes(&t->m);
	p.previous_norm = t->previous_norm;
	p.optimizer_in_backward &= p.previous_norm;
	p.ddp = 1 + choices_draw(30);
	p.reduce_late = choices_draw(4) == 0;
	choices_zero(&p, fo_mesh_group(mesh, FO_GROUP_SHARD, NULL, NULL));
	if (mesh->cp > 1)
		p.cp = 1 + choices_draw(FO_CP_COUNT - 1);
	if (mesh->pp > 1) {
		p.pp = 1 + choices_draw(FO_PP_KINDS_COUNT);
		p.pp_chunks = p.pp == 1 + FO_PP_INTERLEAVED ? choices_draw(2) * 2 : 0;
		p.offload = 0;
	}
	if (mesh->tp > 1)
		p.tp = 1 + choices_draw(FO_TP_COUNT - 1);
	if (p.tp == FO_TP_SEQUENCE)
		p.tp_async = choices_draw(5); /* pieces */
	if (precision != FO_PRECISION_F64) {
		p.reduce_dtype = choices_draw(FO_REDUCE_COUNT);
		choices_fp8(&p, &t->m);
	}
	if (precision == FO_PRECISION_BF16) {
		p.master = choices_draw(FO_MASTER_COUNT);
		p.moments = choices_draw(FO_MOMENTS_COUNT);
		p.rounding = choices_draw(FO_ROUND_COUNT);
	}
	return p;
}

static bool is_legal(const struct ranks_job *j)
{
	struct fo_program p;
	const fo_status st = fo_pass_build(&p, &j->model, &j->low);
	const bool legal = st == FO_OK;
	if (legal)
		fo_program_fini(&p);
	if (st == FO_EBUG) { /* a pass went wrong: drawing anew would hide it */
		char label[400];
		choices_describe(label, sizeof label, &j->model, &j->low);
		fail_msg("%d x %d x %d x %d x %d ranks, %s: %s", j->low.mesh.pp, j->low.mesh.replicate,
			 j->low.mesh.shard, j->low.mesh.cp, j->low.mesh.tp, label, fo_err_text());
	}
	fo_err_clear();
	return legal;
}

enum { LOSS = 5, NORM, KINDS };
static const char *const kind_name[KINDS] = { "weight", "master", "m", "v", "gradient", "loss", "norm" };

/* The largest relative difference of each kind, and of which tensor or step. A NaN stays. */
struct difference {
	double of[KINDS];
	char where[KINDS][96];
};

static void differs_by(struct difference *d, int kind, double e, const char *where)
{
	if (isnan(d->of[kind]) || e <= d->of[kind])
		return;
	d->of[kind] = e;
	snprintf(d->where[kind], sizeof d->where[kind], "%s", where);
}

static struct difference differ(const struct outcome *got, const struct outcome *want)
{
	struct difference d = { 0 };
	for (int s = 0; s < STEPS; s++) {
		char where[16];
		snprintf(where, sizeof where, "step %d", s);
		differs_by(&d, LOSS, fabs(got->loss[s] / want->loss[s] - 1), where);
		differs_by(&d, NORM, fabs(got->norm[s] / want->norm[s] - 1), where);
	}
	for (int i = 0; i < got->n; i++) {
		const struct outcome_item *g = &got->item[i];
		struct outcome_item like = *g;
		if (g->which == 1) /* double precision has no master copies: its weights are */
			like.which = 0;
		if (!g->part)
			differs_by(&d, g->which, outcome_distance(g, outcome_find(want, &like), want), g->name);
	}
	return d;
}

static double most, most_narrow[FO_PRECISION_COUNT]; /* so far: the difference in fp64; shares of the bound */

/* In narrow types numbers differ with the order of sums, by rounding. How far may it go? As far as one rank's own
 * program is from double precision, which is rounding alone: n ranks round each number as often as one, for a sum of n
 * partial sums has as many additions as one long sum. Both distances are of one size, but they are random: in a
 * thousand cases one is at times several times the other, so the bound is TIMES that distance (the largest of all
 * tensors of a kind, which chance moves less than each tensor's) and UNITS of the type's roundoff beside it, for
 * numbers that one rank happens to get right. A sum that misses one rank's part is off by a part of itself, 2^20 units
 * of fp32. */
enum { TIMES = 4, UNITS = 16 };

/* What ranks of a tp group add up is rounded as each rank's term and again as their sum, t times more than one rank's
 * number; so is what queries find on each rank of a cp group, and the sum of a key's gradients; errors that have
 * nothing to do with each other add up by their squares. */
static double times_of(const struct fo_lowering *low)
{
	return TIMES * sqrt(fo_mesh_tp(&low->mesh) * fo_mesh_cp(&low->mesh));
}

static void check_narrow(const struct task *t, const struct ranks_job *j, const struct outcome *ranks,
			 const char *label)
{
	static struct outcome alone;
	struct fo_lowering low = j->low;
	/* Of fp32 numbers only those that are sums of gradients are held to bf16's rounding: Adam makes much of a
	 * rounding where a gradient is near zero. */
	const bool wide = low.precision == FO_PRECISION_F32, narrow = low.pass.reduce_dtype == FO_REDUCE_BF16;
	const double unit = wide && !narrow ? 0x1p-24 : 0x1p-9;
	low.mesh = (struct fo_mesh){ 0 };
	low.rows = j->batch->rows;
	low.pass.reduce_dtype = FO_REDUCE_FP32;
	train_alone(&alone, &t->m, &low, j->batch);
	const struct difference got = differ(ranks, &t->truth), one = differ(&alone, &t->truth);
	for (int k = wide && narrow ? 2 : 0; k < KINDS; k++) {
		double bound = times_of(&j->low) * one.of[k] + UNITS * unit;
		if (!(got.of[k] <= bound))
			fail_msg("%s: %s of %s is off by %.3g, one rank's (of %s) by %.3g", label, kind_name[k],
				 got.where[k], got.of[k], one.where[k], one.of[k]);
		most_narrow[low.precision] = fmax(most_narrow[low.precision], got.of[k] / bound);
	}
	outcome_free(&alone);
}

/* AdamW divides by the root of the squares' mean, so a small gradient that fp8 rounds to the other side of 0 makes a
 * weight's whole step differ, and the distance between two fp8 runs is no measure of sums. Losses are: a product of
 * factors of 3 bits is off by at most 2 x 2^-4. */
static void check_fp8(const struct task *t, const struct outcome *ranks, const char *label)
{
	const struct difference got = differ(ranks, &t->truth);
	if (!(got.of[LOSS] <= 2 * 0x1p-4))
		fail_msg("%s: the loss of %s is off by %.3g", label, got.where[LOSS], got.of[LOSS]);
}

static void check_double(const struct task *t, const struct outcome *ranks, const char *label)
{
	const struct difference d = differ(ranks, &t->truth);
	for (int k = 0; k < KINDS; k++) {
		if (!(d.of[k] <= EPS))
			fail_msg("%s: %s of %s is off by %.3g", label, kind_name[k], d.where[k], d.of[k]);
		most = fmax(most, d.of[k]);
	}
}

/* What persists from step to step lies in the store as planned: all of it, and nothing else. */
static void check_memory(const struct ranks_rank *r, const char *label)
{
	const int64_t planned = fo_exec_unrolled(r->rig.exec)->persistent_bytes, taken = fo_store_bytes(r->rig.store);
	if (planned != taken)
		fail_msg("%s: rank %d plans %lld bytes of weights and state and takes %lld", label, r->rank,
			 (long long)planned, (long long)taken);
}

static void check_outcome(const struct task *t, const struct ranks_job *j, const char *label)
{
	static struct outcome all;
	/* Ranks that have a tensor between them. */
	const int tp = fo_mesh_tp(&j->low.mesh), stage = fo_mesh_stage_ranks(&j->low.mesh),
		  shared = tp * (j->low.pass.zero ? fo_mesh_group(&j->low.mesh, FO_GROUP_SHARD, NULL, NULL) : 1);
	all = (struct outcome){ 0 };
	for (int r = 0; r < j->ranks; r++) {
		const struct ranks_rank *k = &j->rank[r];
		if (k->error.st != FO_OK)
			fail_msg("%s: rank %d: %s", label, r, k->error.text);
		/* All ranks have the same losses, and those of a stage weights and state or the same rows of them, bit
		 * by bit. */
		const int like = r / stage * stage + r % stage % shared;
		if (k->hash != j->rank[like].hash || memcmp(k->out.loss, j->rank[0].out.loss, sizeof k->out.loss) ||
		    memcmp(k->out.norm, j->rank[0].out.norm, sizeof k->out.norm))
			fail_msg("%s: rank %d ended with other bits than rank %d", label, r, like);
		check_memory(k, label);
		if (r == like)
			outcome_join(&all, &k->out, (tp > 1 || j->ranks > stage) && r > 0); /* roles know owners */
	}
	ranks_check_wire(j, label);
	if (j->low.precision == FO_PRECISION_F64)
		check_double(t, &all, label);
	else if (j->low.pass.fp8)
		check_fp8(t, &all, label);
	else
		check_narrow(t, j, &all, label);
	outcome_free(&all);
}

/* The same job in another order, or with a thread per lane and rank and other delays. */
static void check_again(const struct ranks_job *first, const char *label)
{
	struct ranks_job j = { .model = first->model,
			       .low = first->low,
			       .batch = first->batch,
			       .options = first->options,
			       .clip = first->clip,
			       .eps = first->eps };
	j.order = choices_draw(4) ? choices_seed + choices_draws : 0;
	j.transport.shake = j.options.delay_seed = choices_seed + choices_draws;
	ranks_run(&j);
	for (int r = 0; r < j.ranks; r++)
		if (j.rank[r].hash != first->rank[r].hash)
			fail_msg("%s: rank %d has other bits when the job runs again", label, r);
	ranks_free(&j);
	saw(true, "again");
}

/* The programs of all ranks fit together: calls, sums, owners, FLOP. */
static void check_roles(const struct ranks_job *j, const char *label)
{
	struct fo_pass_ranks all;
	struct fo_program first;
	must(fo_pass_build(&first, &j->model, &j->low));
	if (fo_pass_build_ranks(&all, &first) != FO_OK)
		fail_msg("%s: %s", label, fo_err_text());
	fo_pass_ranks_fini(&all);
	fo_program_fini(&first);
}

static void run_case(const struct task *t, int number)
{
	struct step_batch b;
	struct ranks_job j;
	char label[640];
	int64_t micro;
	const struct fo_mesh mesh = draw_mesh(t, &micro);
	static const enum fo_numerics precisions[] = { FO_PRECISION_F64, FO_PRECISION_F64, FO_PRECISION_F64,
						       FO_PRECISION_F64, FO_PRECISION_F64, FO_PRECISION_F64,
						       FO_PRECISION_F32, FO_PRECISION_BF16 };
	const enum fo_numerics precision = precisions[choices_draw(8)];
	step_batch_split(&b, &t->all, micro);
	do {
		j = job_of(&t->m, &b, mesh, draw_passes(t, precision, &mesh));
		j.low.precision = precision;
		choices_parts(&j.low, t->m.layers);
	} while (!is_legal(&j));
	j.order = choices_draw(12) ? choices_seed + choices_draws : 0;
	if (!j.order && choices_draw(2))
		j.transport.shake = j.options.delay_seed = choices_seed + choices_draws;
	int n = snprintf(label, sizeof label, "case %d, %d x %d x %d x %d x %d ranks, %d mb, ", number, mesh.pp,
			 mesh.replicate, mesh.shard, mesh.cp, mesh.tp, (int)micro);
	choices_describe(label + n, sizeof label - (size_t)n, &t->m, &j.low);
	if (choices_draw(4) == 0 || mesh.pp > 1)
		check_roles(&j, label);
	ranks_run(&j);
	see_job(&j);
	saw(b.position[b.seq - 1] != b.seq - 1, "documents in a row");
	check_outcome(t, &j, label);
	if (choices_draw(8) == 0)
		check_again(&j, label);
	ranks_free(&j);
	step_batch_free(&b);
}

enum { OF_A_TASK = 5 };

static int cases_wanted(void)
{
	const char *more = getenv("FLATOUT_RANK_CASES"); /* a nightly run asks for many, a sanitizer's for few */
	if (more)
		return atoi(more);
	return getenv("FLATOUT_SANITIZED") ? 60 : 400;
}

static void test_equal_to_one_rank(void **state)
{
	(void)state;
	static struct task t;
	const char *seed = getenv("FLATOUT_RANK_SEED");
	const int cases = cases_wanted();
	if (seed)
		choices_seed = strtoull(seed, NULL, 10);
	list_options();
	for (int i = 0; i < cases; i++) {
		if (i % OF_A_TASK == 0)
			task_draw(&t), task_train(&t);
		run_case(&t, i);
		if (i % OF_A_TASK == OF_A_TASK - 1 || i == cases - 1) {
			outcome_free(&t.truth);
			step_batch_free(&t.all);
		}
	}
	ranks_close_links();
	print_message("%d cases: at most %.3g off in double precision; %.0f %% of the bound in fp32, %.0f %% in bf16\n",
		      cases, most, 100 * most_narrow[FO_PRECISION_F32], 100 * most_narrow[FO_PRECISION_BF16]);
	if (cases >= 1000)
		check_seen(cases);
}

/* A gradient travels once a step however many micro-batches there are, in as many operations as its buckets need. */
static void test_reduced_once(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 64, 4, 2, 128, 512, false);
	double bytes = 0;
	for (int micro = 1; micro <= 4; micro += 3) {
		struct fo_lowering low = { .seq = 16,
					   .rows = 1,
					   .micro_batches = micro,
					   .precision = FO_PRECISION_F32,
					   .mesh = { .replicate = 2 },
					   .pass = { .ddp = 25 } };
		struct step_built b;
		int calls = 0;
		step_build(&b, &m, &low);
		for (int i = 0; i < b.u.n; i++) {
			const struct fo_op *o = fo_instance_op(&b.p, &b.u, i);
			calls += fo_op_info(o->kind)->cls == FO_CLASS_COMM;
			if (fo_op_info(o->kind)->cls == FO_CLASS_COMM)
				assert_int_equal(o->lane, FO_LANE_REDUCE);
		}
		/* Loss and head's gradients, 3 layers, embedding. */
		assert_int_equal(calls, 1 + 1 + 3 + 1);
		/* Two ranks: each receives as many bytes as it has, of fp32 gradients and the loss. */
		assert_true(b.cost.wire == 4.0 * (double)fo_model_params(&m).total + 8);
		assert_true(bytes == 0 || b.cost.wire == bytes);
		bytes = b.cost.wire;
		step_built_free(&b);
	}
}

/* Weights are gathered as often as zero-reshard says, and state, gradients and weights take a rank's share of bytes. */
static void test_gathered(void **state)
{
	(void)state;
	enum { LAYERS = 4, MICRO = 3, MATRICES = 7, OUTSIDE = 2 };
	struct fo_model m = step_model(LAYERS, 64, 4, 4, 128, 512, false);
	struct fo_lowering low = { .seq = 16,
				   .rows = 1,
				   .micro_batches = MICRO,
				   .precision = FO_PRECISION_F32,
				   .mesh = { .replicate = 1, .shard = 4 },
				   .pass = { .ddp = 25 } };
	const double matrices = (double)fo_model_params(&m).total - (2 * LAYERS + 1) * 64,
		     norms = (2 * LAYERS + 1) * 64;
	int64_t arena[2] = { 0 };
	for (int zero = FO_ZERO_OFF; zero < FO_ZERO_COUNT; zero++) {
		struct step_built b;
		low.pass.zero = zero;
		step_build(&b, &m, &low);
		/* fp32: a weight and two moments, of a quarter of the matrices' rows where they are shared. */
		double weights = zero == FO_ZERO_WEIGHTS ? matrices / 4 : matrices,
		       moments = 2 * (zero ? matrices / 4 : matrices);
		double table = 4.0 * 16 * 16; /* rope */
		assert_true((double)b.u.persistent_bytes == 4 * (weights + moments + 3 * norms) + table);
		step_built_free(&b);
	}
	low.pass.zero = FO_ZERO_WEIGHTS;
	for (int reshard = 0; reshard < FO_RESHARD_COUNT; reshard++) {
		/* Of layers: forward and backward of each micro-batch; once a micro-batch; once a step. The embedding
		 * is used forward alone, the head's weights forward and backward. */
		const int layers[] = { MICRO * 2 * LAYERS, MICRO * LAYERS, LAYERS }, outside[] = { MICRO, MICRO, 1 };
		struct step_built b;
		int calls = 0;
		low.pass.zero_reshard = reshard;
		step_build(&b, &m, &low);
		for (int i = 0; i < b.u.n; i++) {
			const struct fo_op *o = fo_instance_op(&b.p, &b.u, i);
			calls += fo_op_info(o->kind)->wire == FO_WIRE_ALL_GATHER;
			assert_true(fo_op_info(o->kind)->wire != FO_WIRE_ALL_GATHER || o->lane == FO_LANE_GATHER);
		}
		assert_int_equal(calls, MATRICES * layers[reshard] + OUTSIDE * outside[reshard] +
						(reshard == FO_RESHARD_FORWARD ? MICRO : 0));
		step_built_free(&b);
	}
	low.pass.zero_reshard = FO_RESHARD_FORWARD;
	for (int first = 0; first < 2; first++) {
		/* The embedding and layer 0 are gathered once a step, behind their updates, and persist. Two uses ahead
		 * the head's copy lives from forward to backward, and else layer 0's from a micro-batch to the next. */
		const double kept = first ? 512 * 64 + (matrices - 2 * 512 * 64) / LAYERS : 0;
		struct step_built b;
		int calls = 0;
		low.pass.zero_prefetch = 2;
		low.pass.zero_first = first;
		step_build(&b, &m, &low);
		for (int i = 0; i < b.u.n; i++)
			calls += fo_op_info(fo_instance_op(&b.p, &b.u, i)->kind)->wire == FO_WIRE_ALL_GATHER;
		assert_int_equal(calls, first ? MATRICES * (2 * MICRO * (LAYERS - 1) + 1) + 1 + MICRO
					      : MATRICES * (2 * MICRO * LAYERS - (MICRO - 1)) + MICRO + MICRO);
		assert_true((double)b.u.persistent_bytes == 4 * (3 * matrices / 4 + 3 * norms + kept) + 4.0 * 16 * 16);
		step_built_free(&b);
	}
	low.pass.zero_first = 0;
	for (int ahead = 0; ahead < 2; ahead++) {
		struct step_built b;
		low.pass.zero_prefetch = 2 * ahead;
		step_build(&b, &m, &low);
		arena[ahead] = b.u.arena_bytes;
		step_built_free(&b);
	}
	assert_true(arena[1] > arena[0]);
}

/* Gradients that are added up behind each micro-batch leave own rows alone: so much memory less for so many bytes more
 * on the wire. As bf16 they are half the bytes. */
static void test_synced(void **state)
{
	(void)state;
	enum { LAYERS = 8, MICRO = 3, SHARDS = 4 };
	const struct fo_model m = step_model(LAYERS, 64, 4, 4, 128, 512, false);
	const double norms = (2 * LAYERS + 1) * 64, matrices = (double)fo_model_params(&m).total - norms,
		     others = SHARDS - 1;
	for (int zero = FO_ZERO_STATE; zero < FO_ZERO_COUNT; zero++)
		for (int precision = FO_PRECISION_F32; precision <= FO_PRECISION_BF16; precision++) {
			int64_t arena[FO_SYNC_COUNT];
			double wire[FO_SYNC_COUNT][FO_REDUCE_COUNT];
			for (int k = 0; k < FO_SYNC_COUNT * FO_REDUCE_COUNT; k++) {
				struct fo_lowering low = { .seq = 16,
							   .rows = 1,
							   .micro_batches = MICRO,
							   .precision = (enum fo_numerics)precision,
							   .mesh = { .replicate = 1, .shard = SHARDS },
							   .pass = { .ddp = 25, .zero = zero } };
				struct step_built b;
				low.pass.zero_sync = k / FO_REDUCE_COUNT;
				low.pass.reduce_dtype = k % FO_REDUCE_COUNT;
				step_build(&b, &m, &low);
				arena[low.pass.zero_sync] = b.u.arena_bytes;
				wire[low.pass.zero_sync][low.pass.reduce_dtype] = b.cost.wire;
				step_built_free(&b);
			}
			/* A rank's part of matrices from each other rank, and norms twice, which are added up whole. */
			double once = 4 * others * matrices / SHARDS, whole = 2 * 4 * others * norms / SHARDS;
			assert_true(wire[FO_SYNC_STEP][FO_REDUCE_FP32] - wire[FO_SYNC_STEP][FO_REDUCE_BF16] ==
				    (once + whole) / 2);
			if (zero == FO_ZERO_STATE) {
				assert_true(wire[FO_SYNC_MICRO_BATCH][0] == wire[FO_SYNC_STEP][0]);
				assert_int_equal(arena[FO_SYNC_MICRO_BATCH], arena[FO_SYNC_STEP]);
				continue;
			}
			for (int r = 0; r < FO_REDUCE_COUNT; r++)
				assert_true(wire[FO_SYNC_MICRO_BATCH][r] - wire[FO_SYNC_STEP][r] ==
					    (MICRO - 1) * once / (1 + r));
			/* Own rows, one layer's gradients and the embedding's or the head's in place of all. */
			double most = 4 * matrices / SHARDS + 4 * (matrices - 2 * 512 * 64) / LAYERS + 4 * 512 * 64,
			       saved = 4 * matrices - most;
			print_message("zero %d, %s: arena %lld of %lld bytes, at least %.0f less\n", zero,
				      fo_numerics_name[precision], (long long)arena[FO_SYNC_MICRO_BATCH],
				      (long long)arena[FO_SYNC_STEP], saved);
			assert_true((double)(arena[FO_SYNC_STEP] - arena[FO_SYNC_MICRO_BATCH]) >= saved);
		}
}

/* ---- what persists of weights ---- */

static void *saved[RANKS_MOST];
static bool tell;

/* The state goes back to that behind the first step, as when a run returns to a checkpoint. */
static void go_back(struct ranks_rank *r, int s)
{
	if (s == 0)
		saved[r->rank] = step_rig_save(&r->rig);
	if (s != 1)
		return;
	if (tell)
		step_rig_restore(&r->rig, saved[r->rank]);
	else
		step_rig_put_back(&r->rig, saved[r->rank]);
	r->changes += tell;
	free(saved[r->rank]);
}

struct gone_back {
	double loss[STEPS];
	uint64_t hash[RANKS_MOST];
};

static void run_back(struct gone_back *out, struct ranks_job *j, bool first, bool says, uint64_t order)
{
	tell = says;
	j->low.pass.zero_first = first;
	j->after = go_back;
	j->order = order;
	ranks_run(j);
	for (int r = 0; r < j->ranks; r++) {
		assert_int_equal(j->rank[r].error.st, FO_OK);
		out->hash[r] = j->rank[r].hash;
	}
	memcpy(out->loss, j->rank[0].out.loss, sizeof out->loss);
	ranks_check_wire(j, "gone back");
	ranks_free(j);
}

/* Copies of the first blocks' weights that were gathered ahead are made again where weights change from outside: the
 * same bits as without such copies. The test can tell: a copy that nobody makes again changes losses. */
static void test_weights_changed(void **state)
{
	(void)state;
	const struct fo_mesh meshes[] = { { .replicate = 1, .shard = 3 }, { .replicate = 2, .shard = 2 } };
	for (int k = 0; k < 8; k++) {
		struct fo_model m = step_model(3, 32, 4, 2, 40, 50, k % 4 == 3);
		struct step_batch b;
		struct gone_back want, got, stale;
		step_batch_random(&b, 8, 12, 2, m.vocab, 2, 7);
		struct ranks_job j = job_of(
			&m, &b, meshes[k % 2],
			(struct fo_passes){ .ddp = 1,
					    .zero = FO_ZERO_WEIGHTS,
					    .zero_prefetch = 1 + k % 3,
					    .zero_reshard = k % 3,
					    .zero_sync = k % 2,
					    .merge_qkv = k > 3,
					    .optimizer_in_backward = k == 5,
					    .previous_norm = k == 5,
					    .recompute = k == 2 ? FO_RECOMPUTE_FULL : FO_RECOMPUTE_SELECTIVE,
					    .fused_optimizer = k == 4 });
		run_back(&want, &j, false, true, 0);
		run_back(&got, &j, true, true, (uint64_t)k / 4);
		run_back(&stale, &j, true, false, 0);
		assert_memory_equal(got.loss, want.loss, sizeof got.loss);
		assert_memory_equal(got.hash, want.hash, (size_t)fo_mesh_ranks(&meshes[k % 2]) * sizeof *got.hash);
		assert_memory_equal(stale.loss, want.loss, 2 * sizeof *want.loss);
		assert_true(stale.loss[2] != want.loss[2]);
		step_batch_free(&b);
	}
	ranks_close_links();
}

/* ---- faults ---- */

static void break_rank(struct ranks_rank *r, int s)
{
	/* Rank 1 leaves the job after its first step, as one that failed between steps does. */
	if (r->rank == 1 && s == 0) {
		fo_comm_abort(r->world);
		r->error.st = FO_EIO;
	}
}

static void test_fault(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 8, 4, 2, m.vocab, 2, 7);
	struct ranks_job j = job_of(&m, &b, (struct fo_mesh){ .replicate = 4 }, (struct fo_passes){ .ddp = 1 });
	j.after = break_rank;
	ranks_run(&j);
	for (int r = 0; r < 4; r++) {
		if (r == 1)
			continue;
		assert_int_equal(j.rank[r].error.st, FO_ECOMM);
		assert_non_null(strstr(j.rank[r].error.text, "all_reduce_many of "));
		assert_non_null(strstr(j.rank[r].error.text, "rank 1 ended the job"));
	}
	ranks_free(&j);
	step_batch_free(&b);
}

#include "step/over_mpi.h"

int main(int argc, char **argv)
{
	struct fo_comm_launch launch;
	const char *over = getenv("FLATOUT_OVER");
	(void)argc;
	/* One thread per kernel and no huge pages, which are zeroed whole: thousands of models of some KiB. */
	omp_set_num_threads(1);
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
	must(fo_comm_launched(&launch));
	if (launch.ranks > 1)
		return run_forms();
	if (over && !strcmp(over, "mpi"))
		return start_over_mpi(argv[0]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal_to_one_rank), cmocka_unit_test(test_reduced_once),
		cmocka_unit_test(test_gathered),          cmocka_unit_test(test_synced),
		cmocka_unit_test(test_weights_changed),   cmocka_unit_test(test_fault)
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
