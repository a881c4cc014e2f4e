/* A small Llama on fixed tokens against stored values, and the same steps again. */
#include "check/engine/verify_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"

#include "step_values.inc" /* data/ */

static const char *const precision_name[FO_PRECISION_COUNT] = { "fp32", "bf16", "f64" };

/* ---- the rig ---- */

/* Weight i of tensor `stream`, exactly as make_step.py draws it. */
static double weight_at(int stream, int64_t i)
{
	int r = (int)(fo_rng_u64((uint64_t)stream, (uint64_t)i) >> 56);
	return step_tensor[stream].rows == 1 ? 1 + ((r >> 3) - 16) / 128.0
					     : ldexp((r - 128) / 128.0, step_tensor[stream].exponent);
}

static int find_tensor(const char *name)
{
	for (int i = 0; i < STEP_TENSORS; i++)
		if (!strcmp(step_tensor[i].name, name))
			return i;
	return -1;
}

static fo_status set_weight(void *ctx, const struct fo_store_tensor *t)
{
	int stream = find_tensor(t->name), *seen = ctx;
	struct fo_tensor out = { .data = t->data, .rows = t->rows, .cols = t->cols, .ld = t->ld, .dtype = t->dtype };
	if (t->which > 1)
		return FO_OK;
	if (stream < 0 || t->rows != step_tensor[stream].rows || t->cols != step_tensor[stream].cols)
		return fo_fail(FO_EBUG, "the step to verify has a weight '%s' (%lld x %lld) that is not stored",
			       t->name, (long long)t->rows, (long long)t->cols);
	*seen += t->which == 0;
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++)
			fo_num_set(&out, r, c, weight_at(stream, r * t->cols + c));
	return FO_OK;
}

static void set_hyper(struct fo_verify_rig *g)
{
	int64_t targets = 0;
	for (int i = 0; i < STEP_SEQ * STEP_ROWS * STEP_MICRO; i++)
		targets += step_target[i] >= 0;
	double *h = g->ports.hyper;
	h[FO_HYPER_LR] = step_lr;
	h[FO_HYPER_BETA1] = step_beta1;
	h[FO_HYPER_BETA2] = step_beta2;
	h[FO_HYPER_EPS] = step_eps;
	h[FO_HYPER_DECAY] = step_decay;
	h[FO_HYPER_CLIP] = step_clip;
	h[FO_HYPER_INV_TOKENS] = 1 / (double)targets;
}

struct fo_exec_options fo_verify_how(const struct fo_verify_run *v, enum fo_isa isa)
{
	return (struct fo_exec_options){ .isa = isa, .threads = v->o->threads, .cuda = v->o->cuda };
}

static const char *where(const struct fo_verify_run *v, enum fo_isa isa)
{
	return v->o->cuda ? "cuda" : fo_isa_name[isa];
}

enum fo_verify_result fo_verify_bits(const struct fo_verify_rig *g, bool same)
{
	struct fo_exec_code code[FO_EXEC_CODES_MAX];
	int n = g->exec ? fo_exec_codes(g->exec, code) : 0;
	for (int i = 0; i < n && !same; i++)
		if (!strcmp(code[i].by, "cuDNN"))
			return FO_VERIFY_NOT_CHECKED;
	return same ? FO_VERIFY_PASS : FO_VERIFY_FAIL;
}

fo_status fo_verify_rig_init(struct fo_verify_rig *g, enum fo_numerics precision, const struct fo_exec_options *how,
			     const struct fo_str *text)
{
	const struct fo_model model = { .family = FO_FAMILY_LLAMA, .name = "verify", .gated = true, STEP_MODEL };
	const struct fo_lowering run = { .seq = STEP_SEQ,
					 .rows = STEP_ROWS,
					 .micro_batches = STEP_MICRO,
					 .precision = precision,
					 .mode = FO_MODE_TRAIN };
	struct fo_exec_options o = *how;
	o.poison = true;
	o.timeline_steps = 1;
	int seen = 0;
	*g = (struct fo_verify_rig){ 0 };
	/* The port only reads them. */
	g->batch = (struct fo_batch){ .token = (int32_t *)step_token,
				      .target = (int32_t *)step_target,
				      .position = (int32_t *)step_position,
				      .doc_start = (int32_t *)step_doc_start };
	g->ports.batch = &g->batch;
	if (text)
		FO_TRY(fo_program_parse(&g->program, text->data, text->len, "the dumped program"));
	else
		FO_TRY(fo_program_lower(&g->program, &model, &run));
	FO_TRY(fo_store_new(&g->store, &g->program));
	FO_TRY(fo_store_visit(g->store, &g->program, set_weight, &seen));
	if (seen != STEP_TENSORS)
		return fo_fail(FO_EBUG, "the step to verify has %d weights, %d are stored", seen, STEP_TENSORS);
	FO_TRY(fo_exec_new(&g->exec, &g->program, g->store, &o, fo_ports_serve, &g->ports, NULL));
	set_hyper(g);
	return FO_OK;
}

void fo_verify_rig_fini(struct fo_verify_rig *g)
{
	fo_exec_free(g->exec);
	fo_store_free(g->store);
	fo_program_fini(&g->program);
	*g = (struct fo_verify_rig){ 0 };
}

fo_status fo_verify_rig_steps(struct fo_verify_rig *g, int first, int n, double *loss, double *norm)
{
	double *h = g->ports.hyper;
	for (int i = 0; i < n; i++) {
		h[FO_HYPER_CORR1] = 1 - pow(h[FO_HYPER_BETA1], first + i);
		h[FO_HYPER_CORR2] = 1 - pow(h[FO_HYPER_BETA2], first + i);
		FO_TRY(fo_exec_step(g->exec, first + i - 1));
		if (loss)
			loss[i] = g->ports.loss[0];
		if (norm)
			norm[i] = g->ports.scale[1];
	}
	return FO_OK;
}

static fo_status add_digest(void *ctx, const struct fo_store_tensor *t)
{
	uint64_t *d = ctx;
	size_t item = fo_dtype_bytes(t->dtype);
	for (int64_t r = 0; r < t->rows; r++)
		*d = XXH3_64bits_withSeed((const char *)t->data + (size_t)(r * t->ld) * item, (size_t)t->cols * item,
					  *d);
	return FO_OK;
}

fo_status fo_verify_rig_digest(struct fo_verify_rig *g, uint64_t *digest)
{
	FO_TRY(fo_exec_fetch(g->exec));
	*digest = XXH3_64bits(g->ports.loss, sizeof g->ports.loss[0]);
	return fo_store_visit(g->store, &g->program, add_digest, digest);
}

/* ---- against the stored values ---- */

struct gradients {
	struct fo_verify_run *v;
	const char *group;
	enum fo_numerics precision;
};

/* The first moment is the gradient, because beta1 = 0. */
static fo_status check_gradient(void *ctx, const struct fo_store_tensor *t)
{
	struct gradients *g = ctx;
	int at = find_tensor(t->name);
	const uint32_t *bits = step_gradient;
	struct fo_tensor got = { .data = t->data, .rows = t->rows, .cols = t->cols, .ld = t->ld, .dtype = t->dtype };
	double worst = 0, top = 0, off2 = 0, all2 = 0;
	char name[128];
	if (t->which != 2)
		return FO_OK;
	for (int i = 0; i < at; i++)
		bits += step_tensor[i].rows * step_tensor[i].cols;
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++) {
			float want;
			memcpy(&want, &bits[r * t->cols + c], sizeof want);
			double off = fabs(fo_num_get(&got, r, c) - (double)want);
			if (!(off <= 1e300))
				off = INFINITY;
			worst = fmax(worst, off);
			top = fmax(top, fabs((double)want));
			off2 += off * off;
			all2 += (double)want * (double)want;
		}
	snprintf(name, sizeof name, "gradient of %s", t->name);
	const char *against = "stored values";
	if (g->precision == FO_PRECISION_BF16)
		fo_verify_measured(g->v, g->group, name, against, sqrt(off2 / all2), 2 * step_tensor[at].naive[1],
				   NULL);
	else if (g->precision == FO_PRECISION_F32)
		fo_verify_measured(g->v, g->group, name, against, worst / top,
				   2 * step_tensor[at].naive[0] + FO_NUM_FLOOR, NULL);
	else /* stored as fp32: half a unit of the largest, and nothing else */
		fo_verify_measured(g->v, g->group, name, against, worst / top, 0x1p-24 + 1e-11, NULL);
	return FO_OK;
}

/* Largest relative difference of the steps, and what is allowed: twice the naive implementation's, plus a rounding of
 * the loss: its error may be near zero by chance. In double precision sums of a few thousand terms: 1e-11. */
static void check_series(struct fo_verify_run *v, const char *group, const char *name, enum fo_numerics precision,
			 const double *got, const double *want, const double naive[2])
{
	double off = 0, top = 0;
	for (int i = 0; i < STEP_STEPS; i++) {
		double d = fabs(got[i] - want[i]);
		off = d <= 1e300 ? fmax(off, d) : INFINITY;
		top = fmax(top, want[i]);
	}
	double bound = 1e-11; /* of double precision */
	if (precision == FO_PRECISION_F32)
		bound = 2 * naive[0] / top + FO_NUM_FLOOR;
	else if (precision == FO_PRECISION_BF16)
		bound = 2 * naive[1] / top + 0x1p-9;
	fo_verify_measured(v, group, name, "stored values", off / top, bound, NULL);
}

static fo_status check_step(struct fo_verify_run *v, const char *group, enum fo_numerics precision, enum fo_isa isa)
{
	struct fo_verify_rig g;
	struct gradients ctx = { v, group, precision };
	const struct fo_exec_options how = fo_verify_how(v, isa);
	double loss[STEP_STEPS], norm[STEP_STEPS];
	fo_status st;
	FO_TRY_OR(st, fo_verify_rig_init(&g, precision, &how, NULL), done);
	FO_TRY_OR(st, fo_verify_rig_steps(&g, 1, STEP_STEPS, loss, norm), done);
	check_series(v, group, "losses of 3 optimizer steps", precision, loss, step_loss, step_loss_naive);
	check_series(v, group, "gradient norms of 3 steps", precision, norm, step_norm, step_norm_naive);
	fo_verify_rig_fini(&g);
	/* Once more from the start, with an optimizer that changes nothing and keeps the gradients in its first moment.
	 */
	FO_TRY_OR(st, fo_verify_rig_init(&g, precision, &how, NULL), done);
	g.ports.hyper[FO_HYPER_LR] = g.ports.hyper[FO_HYPER_BETA1] = g.ports.hyper[FO_HYPER_CLIP] = 0;
	FO_TRY_OR(st, fo_verify_rig_steps(&g, 1, 1, NULL, NULL), done);
	FO_TRY_OR(st, fo_exec_fetch(g.exec), done);
	st = fo_store_visit(g.store, &g.program, check_gradient, &ctx);
done:
	fo_verify_rig_fini(&g);
	return st;
}

void fo_verify_steps(struct fo_verify_run *v)
{
	_Static_assert(STEP_STEPS == 3, "the checks are named after three steps");
	for (int isa = 0; isa < FO_ISA_COUNT; isa++)
		for (int p = 0; p < FO_PRECISION_COUNT; p++) {
			/* Only ref computes in double precision. */
			if (!fo_verify_set_runs(v, isa) || (p == FO_PRECISION_F64 && (isa != FO_ISA_REF || v->o->cuda)))
				continue;
			const char *group = fo_verify_group(v, "step %s %s", where(v, isa), precision_name[p]);
			if (check_step(v, group, p, isa) != FO_OK)
				fo_verify_error(v, group, "a training step", "stored values");
		}
}

/* ---- the same again ---- */

/* if_differs: what it would mean that another run gives other bits; may be NULL. */
static fo_status digest_of(enum fo_numerics precision, const struct fo_exec_options *how, const struct fo_str *text,
			   uint64_t *digest, enum fo_verify_result *if_differs)
{
	struct fo_verify_rig g;
	fo_status st;
	FO_TRY_OR(st, fo_verify_rig_init(&g, precision, how, text), done);
	FO_TRY_OR(st, fo_verify_rig_steps(&g, 1, STEP_STEPS, NULL, NULL), done);
	st = fo_verify_rig_digest(&g, digest);
	if (if_differs)
		*if_differs = fo_verify_bits(&g, false);
done:
	fo_verify_rig_fini(&g);
	return st;
}

void fo_verify_repeat(struct fo_verify_run *v)
{
	for (int isa = 0; isa < FO_ISA_COUNT; isa++)
		for (int p = 0; p <= FO_PRECISION_BF16; p++) {
			if (!fo_verify_set_runs(v, isa))
				continue;
			const char *group = fo_verify_group(v, "repeat %s %s", where(v, isa), precision_name[p]);
			const struct fo_exec_options how = fo_verify_how(v, isa);
			enum fo_verify_result differs = FO_VERIFY_FAIL;
			char name[64] = "3 steps";
			uint64_t a = 0, b = 1;
			if (!how.cuda)
				snprintf(name, sizeof name, "3 steps with %d threads", v->o->threads);
			if (digest_of(p, &how, NULL, &a, NULL) != FO_OK ||
			    digest_of(p, &how, NULL, &b, &differs) != FO_OK)
				fo_verify_error(v, group, name, "the first run");
			else if (a == b || differs == FO_VERIFY_FAIL)
				fo_verify_same_bits(v, group, name, "the first run", a == b);
			else
				fo_verify_add(v, group, name, "the first run", differs,
					      "other bits: cuDNN's attention backward adds in no fixed order");
		}
}

void fo_verify_program(struct fo_verify_run *v)
{
	const char *group = fo_verify_group(v, "program"), *against = "the program as lowered";
	struct fo_verify_rig g;
	struct fo_program back = { 0 };
	struct fo_str text = { 0 };
	const struct fo_exec_options how = fo_verify_how(v, v->isa);
	uint64_t a = 0, b = 1;
	if (fo_verify_rig_init(&g, FO_PRECISION_BF16, &how, NULL) != FO_OK) {
		fo_verify_error(v, group, "lowered", against);
		fo_verify_rig_fini(&g);
		return;
	}
	fo_program_dump(&g.program, &text);
	if (fo_program_parse(&back, text.data, text.len, "the dumped program") != FO_OK) {
		fo_verify_error(v, group, "dumped and read back", against);
	} else {
		if (fo_program_hash(&back) == fo_program_hash(&g.program))
			fo_verify_add(v, group, "dumped and read back", against, FO_VERIFY_PASS, "the same program");
		else
			fo_verify_add(v, group, "dumped and read back", against, FO_VERIFY_FAIL, "another program");
		fo_program_fini(&back);
	}
	fo_verify_rig_fini(&g);
	if (digest_of(FO_PRECISION_BF16, &how, NULL, &a, NULL) != FO_OK ||
	    digest_of(FO_PRECISION_BF16, &how, &text, &b, NULL) != FO_OK)
		fo_verify_error(v, group, "3 steps of the program read back", against);
	else
		fo_verify_same_bits(v, group, "3 steps of the program read back", against, a == b);
	fo_str_fini(&text);
}
