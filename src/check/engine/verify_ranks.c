/* Several ranks against one, on a small Llama and several meshes: the same rows, the same weights, three optimizer
 * steps. */
#include "check/engine/verify_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "pass/pass.h"
#include "program/run.h"
#include "train/team.h"

enum { SEQ = 16, MICRO = 2, VOCAB = 64, STEPS = 3, HIDDEN = 32 };

/* The meshes of a number of ranks: who holds all of what. */
struct form {
	const char *name; /* in the name of a group of checks; "": all ranks have all */
	int cp, tp, shard, zero;
	int pp; /* stages; 0: 1 */
	enum fo_pp_kind schedule;
	enum fo_tp stream; /* of ranks of a tp group */
	bool several;      /* shard groups, or ranks in them */
	enum fo_cp by;     /* of ranks of a cp group */
	int first;         /* layers of the first stage; 0: stages are even */
};

/* The steps of `ranks` ranks, and what came of them. */
struct job {
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_team *team;
	struct fo_keep keep;
	struct fo_ports ports;
	struct fo_store *whole; /* of `of`: the weights that ranks have parts of; NULL: store has all */
	const struct fo_program *of;
	double loss[STEPS], norm[STEPS];
};

/* Rows of random tokens, one document each; of all ranks. */
struct text {
	int64_t rows;
	int32_t *at;
	struct fo_batch batch;
};

static void make_text(struct text *t, int64_t rows)
{
	const int64_t n = rows * SEQ * MICRO;
	*t = (struct text){ .rows = rows, .at = fo_xmalloc((size_t)(4 * n) * sizeof *t->at) };
	int32_t *token = t->at, *target = token + n, *position = target + n, *start = position + n;
	for (int64_t i = 0; i < n; i++) {
		const int64_t in_micro = i % (rows * SEQ);
		token[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i) % VOCAB);
		/* Ranks have unlike numbers of targets. */
		target[i] = i % (SEQ + 3) ? (int32_t)(fo_rng_u64(2, (uint64_t)i) % VOCAB) : -1;
		t->batch.loss_tokens += target[i] >= 0;
		position[i] = (int32_t)(i % SEQ);
		start[i] = (int32_t)(in_micro - in_micro % SEQ);
	}
	t->batch.token = token;
	t->batch.target = target;
	t->batch.position = position;
	t->batch.doc_start = start;
}

static void close_job(struct job *j)
{
	fo_store_free(j->whole);
	fo_keep_close(&j->keep);
	fo_exec_free(j->exec);
	fo_team_close(j->team);
	fo_store_free(j->store);
	fo_program_fini(&j->program);
	*j = (struct job){ 0 };
}

/* Brings the weights that ranks have parts of to rank 0, which compares them. one: a program of one rank. */
static fo_status collect(struct job *j, const struct fo_program *one)
{
	j->of = one;
	FO_TRY(fo_store_new(&j->whole, one));
	FO_TRY(fo_team_fill(j->team, &j->keep, &(struct fo_keep_task){ .kind = FO_KEEP_OPEN }));
	return fo_team_lend(j->team, &j->keep, j->whole, one);
}

static fo_status run_job(struct job *j, const struct text *text, int ranks, const struct form *form,
			 enum fo_numerics precision, const struct fo_exec_options *how)
{
	const struct fo_model model = { .family = FO_FAMILY_LLAMA,
					.name = "verify",
					.gated = true,
					.layers = form->first ? 3 : 2,
					.hidden = HIDDEN,
					.heads = 4,
					.kv_heads = 2,
					.head_dim = 8,
					.ffn = 48,
					.vocab = VOCAB,
					.norm_eps = 1e-5,
					.rope = { .theta = 10000 } };
	const int stages = form->pp ? form->pp : 1,
		  sets = ranks > 1 ? ranks / form->tp / form->cp / stages : 1; /* of rows */
	struct fo_lowering low = { .seq = SEQ,
				   .rows = text->rows / sets,
				   .micro_batches = MICRO,
				   .precision = precision,
				   .mode = FO_MODE_TRAIN,
				   .pass = { .ddp = ranks > 1 } };
	struct fo_exec_options o = *how;
	double *h = j->ports.hyper;
	*j = (struct job){ .ports = { .batch = &text->batch, .ranks = sets } };
	o.poison = true;
	o.timeline_steps = 1;
	if (ranks > 1) {
		low.mesh = (struct fo_mesh){ .pp = stages,
					     .replicate = sets / form->shard,
					     .shard = form->shard,
					     .cp = form->cp,
					     .tp = form->tp };
		low.pass.pp = stages > 1 ? 1 + (int)form->schedule : 0;
		if (form->first) {
			low.stages.parts = 2;
			low.stages.layers[0] = (int16_t)form->first;
			low.stages.layers[1] = (int16_t)(model.layers - form->first);
		}
		low.pass.cp = form->cp > 1 ? form->by : FO_CP_OFF;
		low.pass.tp = form->stream;
		low.pass.zero = form->zero;
		low.pass.zero_prefetch = form->zero == FO_ZERO_WEIGHTS;
	}
	FO_TRY(fo_pass_build(&j->program, &model, &low));
	fo_ports_own_tokens(&j->ports, &low);
	if (ranks > 1) {
		FO_TRY(fo_team_open(&j->team, &j->program, NULL, &o, fo_ports_serve, NULL));
		o.links = fo_team_links(j->team);
	}
	FO_TRY(fo_store_new_on(&j->store, &j->program, o.cuda));
	FO_TRY(fo_exec_new(&j->exec, &j->program, j->store, &o, fo_ports_serve, &j->ports, NULL));
	fo_keep_init(&j->keep, &j->program, j->store, j->exec, fo_team_world(j->team), 1);
	FO_TRY(fo_team_fill(j->team, &j->keep, &(struct fo_keep_task){ .kind = FO_KEEP_INIT, .seed = 1 }));
	h[FO_HYPER_LR] = 1e-2;
	h[FO_HYPER_BETA1] = 0.9;
	h[FO_HYPER_BETA2] = 0.95;
	h[FO_HYPER_EPS] = 1e-8;
	h[FO_HYPER_DECAY] = 0.1;
	h[FO_HYPER_CLIP] = 0.5;
	h[FO_HYPER_INV_TOKENS] = 1 / (double)text->batch.loss_tokens;
	for (int s = 0; s < STEPS; s++) {
		h[FO_HYPER_CORR1] = 1 - pow(h[FO_HYPER_BETA1], s + 1);
		h[FO_HYPER_CORR2] = 1 - pow(h[FO_HYPER_BETA2], s + 1);
		FO_TRY(fo_team_step(j->team, j->exec, &j->ports, s));
		j->loss[s] = j->ports.loss[0];
		j->norm[s] = j->ports.scale[1];
	}
	return fo_exec_fetch(j->exec);
}

/* ---- comparing ---- */

struct visit {
	struct fo_store_tensor *tensor;
	size_t n, cap;
};

static fo_status remember(void *ctx, const struct fo_store_tensor *t)
{
	struct visit *v = ctx;
	fo_array_room(&v->tensor, &v->cap, v->n, sizeof *v->tensor);
	v->tensor[v->n++] = *t;
	return FO_OK;
}

/* The largest difference of an element, over the largest element of its tensor. */
static double distance(const struct fo_store_tensor *a, const struct fo_store_tensor *b)
{
	double off = 0, top = 0;
	for (int64_t r = 0; r < a->rows; r++)
		for (int64_t c = 0; c < a->cols; c++) {
			double x = fo_element(a->data, a->dtype, r * a->ld + c),
			       y = fo_element(b->data, b->dtype, r * b->ld + c);
			off = fabs(x - y) <= 1e300 ? fmax(off, fabs(x - y)) : INFINITY;
			top = fmax(top, fabs(y));
		}
	return off > 0 ? off / top : 0;
}

static fo_status visit_all(struct job *j, struct visit *v)
{
	if (j->whole)
		return fo_store_visit(j->whole, j->of, remember, v);
	return fo_store_visit(j->store, &j->program, remember, v);
}

/* Weights of two jobs, and moments where rank 0 has all of them. NaN: they are not of the same tensors. *name: where
 * they differ most. */
static fo_status compare(struct job *a, struct job *b, double *most, char *name, size_t size)
{
	const bool weights_alone = a->whole || b->whole;
	struct visit of[2] = { 0 };
	fo_status st = visit_all(a, &of[0]);
	if (st == FO_OK)
		st = visit_all(b, &of[1]);
	*most = st == FO_OK && of[0].n == of[1].n && of[0].n ? 0 : NAN;
	snprintf(name, size, "no difference");
	for (size_t i = 0; i < of[0].n && !isnan(*most); i++) {
		const struct fo_store_tensor *x = &of[0].tensor[i], *y = &of[1].tensor[i];
		if (weights_alone && x->which)
			continue;
		bool same = !strcmp(x->name, y->name) && x->which == y->which && x->rows == y->rows &&
			    x->cols == y->cols && x->dtype == y->dtype;
		double d = same ? distance(x, y) : NAN;
		if (!(d <= *most)) {
			static const char *const which[] = { "", ", master", ", first moment", ", second moment", "" };
			*most = d;
			snprintf(name, size, "the largest difference is %.3g of the largest of '%s'%s", d, x->name,
				 which[x->which]);
		}
	}
	free(of[0].tensor);
	free(of[1].tensor);
	return st;
}

static double series(const double *got, const double *want)
{
	double most = 0;
	for (int s = 0; s < STEPS; s++) {
		double d = fabs(got[s] / want[s] - 1);
		most = d <= 1e300 ? fmax(most, d) : INFINITY;
	}
	return most;
}

static fo_status check_precision(struct fo_verify_run *v, const char *group, const struct text *text,
				 const struct form *form, enum fo_numerics precision, enum fo_isa isa)
{
	const int ranks = v->o->ranks;
	const bool exact = precision == FO_PRECISION_F64, parts = form->zero || form->tp > 1 || form->pp;
	/* A kernel's bits may depend on its threads: all jobs have one per rank. */
	struct fo_exec_options how = { .isa = isa, .threads = 1, .cuda = v->o->cuda };
	const double bound = exact ? 1e-11 : 0x1p-14; /* of sums in another order, through three steps */
	struct job one = { 0 }, many = { 0 }, again = { 0 };
	char name[160], against[] = "one rank";
	double most;
	fo_status st;
	snprintf(how.devices.text, sizeof how.devices.text, "%s", v->o->device);
	how.devices.tune = FO_RUN_TUNE_KEPT;
	FO_TRY_OR(st, run_job(&one, text, 1, form, precision, &how), done);
	FO_TRY_OR(st, run_job(&many, text, ranks, form, precision, &how), done);
	FO_TRY_OR(st, run_job(&again, text, ranks, form, precision, &how), done);
	if (parts) {
		FO_TRY_OR(st, collect(&many, &one.program), done);
		FO_TRY_OR(st, collect(&again, &one.program), done);
	}
	fo_verify_measured(v, group, "losses of 3 optimizer steps", against, series(many.loss, one.loss), bound, NULL);
	fo_verify_measured(v, group, "gradient norms of 3 steps", against, series(many.norm, one.norm), bound, NULL);
	FO_TRY_OR(st, compare(&many, &one, &most, name, sizeof name), done);
	if (exact) /* elsewhere Adam makes much of a rounding where a gradient is near zero */
		fo_verify_measured(v, group, parts ? "weights after 3 steps" : "weights and moments after 3 steps",
				   against, most, bound, name);
	FO_TRY_OR(st, compare(&many, &again, &most, name, sizeof name), done);
	fo_verify_same_bits(v, group, "the same steps again", "the first run", most == 0);
done:
	close_job(&one);
	close_job(&many);
	close_job(&again);
	return st;
}

/* A mesh in double precision, where only the order of sums differs, and in fp32 with this machine's kernels; a device
 * has fp32 alone. */
static void check_form(struct fo_verify_run *v, const struct text *text, const struct form *form)
{
	for (int exact = v->o->cuda == NULL; exact >= 0; exact--) {
		const enum fo_isa isa = exact ? FO_ISA_REF : v->isa; /* only ref computes in double precision */
		const char *group = fo_verify_group(v, "%d ranks%s %s %s", v->o->ranks, form->name,
						    v->o->cuda ? "cuda" : fo_isa_name[isa], exact ? "f64" : "fp32");
		if (check_precision(v, group, text, form, exact ? FO_PRECISION_F64 : FO_PRECISION_F32, isa) != FO_OK)
			fo_verify_error(v, group, "3 optimizer steps", "one rank");
	}
}

/* NULL, or why so many ranks have no such mesh. */
static const char *why_not(const struct form *f, int ranks)
{
	const int groups = f->cp * f->tp * (f->pp ? f->pp : 1);
	if (ranks % groups || ranks % (groups * f->shard))
		return "this number of ranks cannot be divided so";
	if (f->several && (f->shard == 1 || ranks == f->shard))
		return "it takes more ranks: several shard groups, or several ranks in them";
	if (f->pp && f->zero && f->shard == 1)
		return "it takes more ranks: several in a shard group of each stage";
	if (f->shard * f->cp > HIDDEN / f->tp)
		return "the small model's narrowest weights have fewer rows than ranks that share them";
	return NULL;
}

void fo_verify_ranks(struct fo_verify_run *v)
{
	const int ranks = v->o->ranks;
	/* Key and value heads of the model are two. */
	const struct form form[] = {
		{ "", 1, 1, 1, FO_ZERO_OFF, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " zero=1", 1, 1, ranks, FO_ZERO_STATE, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " zero=2", 1, 1, ranks, FO_ZERO_GRADIENTS, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " fsdp", 1, 1, ranks, FO_ZERO_WEIGHTS, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " hsdp", 1, 1, 2, FO_ZERO_WEIGHTS, 0, 0, FO_TP_OFF, true, FO_CP_RING, 0 },
		{ " tp=2", 1, 2, 1, FO_ZERO_OFF, 0, 0, FO_TP_SEQUENCE, false, FO_CP_RING, 0 },
		{ " tp=2 replicated", 1, 2, 1, FO_ZERO_OFF, 0, 0, FO_TP_REPLICATED, false, FO_CP_RING, 0 },
		{ " tp=2 fsdp", 1, 2, ranks / 2, FO_ZERO_WEIGHTS, 0, 0, FO_TP_SEQUENCE, true, FO_CP_RING, 0 },
		{ " cp=2", 2, 1, 1, FO_ZERO_OFF, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " cp=4", 4, 1, 1, FO_ZERO_OFF, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " cp=2 fsdp", 2, 1, ranks / 2, FO_ZERO_WEIGHTS, 0, 0, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " cp=2 tp=2", 2, 2, 1, FO_ZERO_OFF, 0, 0, FO_TP_SEQUENCE, false, FO_CP_RING, 0 },
		{ " cp=2 heads", 2, 1, 1, FO_ZERO_OFF, 0, 0, FO_TP_OFF, false, FO_CP_HEADS, 0 },
		{ " cp=4 heads", 4, 1, 1, FO_ZERO_OFF, 0, 0, FO_TP_OFF, false, FO_CP_HEADS, 0 },
		{ " cp=2 heads fsdp", 2, 1, ranks / 2, FO_ZERO_WEIGHTS, 0, 0, FO_TP_OFF, false, FO_CP_HEADS, 0 },
		{ " cp=2 heads tp=2", 2, 2, 1, FO_ZERO_OFF, 0, 0, FO_TP_SEQUENCE, false, FO_CP_HEADS, 0 },
		{ " pp=2", 1, 1, 1, FO_ZERO_OFF, 2, FO_PP_1F1B, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " pp=2 uneven", 1, 1, 1, FO_ZERO_OFF, 2, FO_PP_1F1B, FO_TP_OFF, false, FO_CP_RING, 2 },
		{ " pp=2 zb-h1", 1, 1, 1, FO_ZERO_OFF, 2, FO_PP_ZB_H1, FO_TP_OFF, false, FO_CP_RING, 0 },
		{ " pp=2 tp=2", 1, 2, 1, FO_ZERO_OFF, 2, FO_PP_1F1B, FO_TP_SEQUENCE, false, FO_CP_RING, 0 },
		{ " pp=2 fsdp", 1, 1, ranks / 2, FO_ZERO_WEIGHTS, 2, FO_PP_GPIPE, FO_TP_OFF, false, FO_CP_RING, 0 },
	};
	struct text text;
	if (ranks < 2)
		return;
	make_text(&text, ranks);
	for (size_t i = 0; i < sizeof form / sizeof *form; i++) {
		const char *why = why_not(&form[i], ranks);
		if (why)
			fo_verify_add(v, fo_verify_group(v, "%d ranks%s", ranks, form[i].name), "3 optimizer steps", "",
				      FO_VERIFY_NOT_CHECKED, why);
		else
			check_form(v, &text, &form[i]);
	}
	free(text.at);
}
