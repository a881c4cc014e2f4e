#include "support/step.h"
#include "base/clock.h"
#include "pass/pass.h"
#include "train/train.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

struct fo_model step_model(int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn, int64_t vocab,
			   bool tied)
{
	struct fo_model m = { .family = FO_FAMILY_LLAMA,
			      .layers = layers,
			      .hidden = hidden,
			      .heads = heads,
			      .kv_heads = kv_heads,
			      .head_dim = hidden / heads,
			      .ffn = ffn,
			      .vocab = vocab,
			      .tied = tied,
			      .gated = true,
			      .norm_eps = 1e-5,
			      .rope = { .theta = 10000, .type = FO_ROPE_DEFAULT } };
	snprintf(m.name, sizeof m.name, "tiny");
	return m;
}

struct fo_lowering step_lowering(const struct step_batch *b, enum fo_numerics precision, enum fo_mode mode)
{
	return (struct fo_lowering){
		.seq = b->seq, .rows = b->rows, .micro_batches = b->micro_batches, .precision = precision, .mode = mode
	};
}

void step_batch_alloc(struct step_batch *b, int64_t seq, int64_t rows, int64_t micro_batches)
{
	size_t n = (size_t)(seq * rows * micro_batches);
	*b = (struct step_batch){ .seq = seq, .rows = rows, .micro_batches = micro_batches };
	b->token = fo_xmalloc(n * sizeof *b->token);
	b->target = fo_xmalloc(n * sizeof *b->target);
	b->position = fo_xmalloc(n * sizeof *b->position);
	b->doc_start = fo_xmalloc(n * sizeof *b->doc_start);
}

void step_batch_count(struct step_batch *b)
{
	int64_t t = b->seq * b->rows;
	b->loss_tokens = 0;
	b->pairs = 0;
	for (int64_t i = 0; i < t * b->micro_batches; i++) {
		b->loss_tokens += b->target[i] >= 0;
		b->pairs += (double)(i % t - b->doc_start[i] + 1);
	}
}

void step_batch_window(struct step_batch *b, int64_t window)
{
	int64_t t = b->seq * b->rows;
	b->pairs = 0;
	for (int64_t i = 0; i < t * b->micro_batches; i++) {
		int64_t keys = i % t - b->doc_start[i] + 1;
		b->pairs += (double)(window && window < keys ? window : keys);
	}
}

void step_batch_random(struct step_batch *b, int64_t seq, int64_t rows, int64_t micro_batches, int64_t vocab,
		       int documents, uint64_t seed)
{
	step_batch_alloc(b, seq, rows, micro_batches);
	uint64_t k = 0;
	int32_t start = 0;
	for (int64_t i = 0; i < seq * rows * micro_batches; i++) {
		int32_t in_micro = (int32_t)(i % (seq * rows));
		bool cut = documents > 1 && fo_rng_u64(seed, k++) % (uint64_t)seq < (uint64_t)(documents - 1);
		if (i % seq == 0 || cut)
			start = in_micro;
		b->token[i] = (int32_t)(fo_rng_u64(seed, k++) % (uint64_t)vocab);
		b->target[i] = fo_rng_u64(seed, k++) % 8 ? (int32_t)(fo_rng_u64(seed, k++) % (uint64_t)vocab) : -1;
		b->doc_start[i] = start;
		b->position[i] = in_micro - start;
	}
	step_batch_count(b);
}

void step_batch_split(struct step_batch *out, const struct step_batch *all, int64_t micro_batches)
{
	int64_t rows = all->rows * all->micro_batches, from = all->seq * all->rows,
		to = all->seq * rows / micro_batches; /* tokens of a micro-batch */
	step_batch_alloc(out, all->seq, rows / micro_batches, micro_batches);
	for (int64_t i = 0; i < all->seq * rows; i++) {
		out->token[i] = all->token[i];
		out->target[i] = all->target[i];
		out->position[i] = all->position[i];
		out->doc_start[i] = (int32_t)(all->doc_start[i] + i / from * from - i / to * to);
	}
	step_batch_count(out);
}

void step_batch_free(struct step_batch *b)
{
	free(b->token);
	free(b->target);
	free(b->position);
	free(b->doc_start);
	*b = (struct step_batch){ 0 };
}

double step_get(const void *data, int dtype, int64_t i)
{
	return dtype == FO_F64    ? ((const double *)data)[i]
	       : dtype == FO_BF16 ? (double)fo_bf16_to_f32(((const uint16_t *)data)[i])
	       : dtype == FO_I16  ? (double)((const int16_t *)data)[i]
	       : dtype == FO_E4M3 ? (double)fo_e4m3_to_f32(((const uint8_t *)data)[i])
	       : dtype == FO_E5M2 ? (double)fo_e5m2_to_f32(((const uint8_t *)data)[i])
				  : (double)((const float *)data)[i];
}

static fo_status serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	struct step_rig *r = ctx;
	const struct step_batch *b = r->batch;
	__atomic_add_fetch(&r->calls, 1, __ATOMIC_RELAXED);
	if (port == FO_PORT_BATCH) {
		const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
		for (int i = 0; i < n && i < 4; i++)
			memcpy(arg[i].data, from[i] + mb * arg[i].rows, (size_t)arg[i].rows * sizeof(int32_t));
	} else if (port == FO_PORT_HYPER) {
		const struct fo_unrolled *u = fo_exec_unrolled(r->exec);
		memcpy(arg[0].data, r->hyper, sizeof r->hyper);
		for (int i = 0; i < u->nlife; i++)
			if (!strcmp(r->program.buf[u->life[i].buf].name, "hyper"))
				r->arena = (unsigned char *)arg[0].data - u->life[i].offset;
	} else if (port == FO_PORT_LOSS) {
		memcpy(r->loss, arg[0].data, (size_t)arg[0].cols * sizeof(double));
		if (n > 1)
			memcpy(r->scale, arg[1].data, sizeof r->scale);
	} else if (port == FO_PORT_LOGITS) {
		for (int64_t i = 0; i < arg[0].rows; i++)
			for (int64_t k = 0; k < arg[0].cols; k++)
				r->logits[((int64_t)mb * arg[0].rows + i) * arg[0].cols + k] = step_get(
					arg[0].data, arg[0].dtype, i * arg[0].ld + k);
	} else {
		return fo_fail(FO_EBUG, "no port %d here", (int)port);
	}
	return FO_OK;
}

void step_rig_at(struct step_rig *r, int64_t step)
{
	r->hyper[FO_HYPER_CORR1] = 1 - pow(r->hyper[FO_HYPER_BETA1], (double)step);
	r->hyper[FO_HYPER_CORR2] = 1 - pow(r->hyper[FO_HYPER_BETA2], (double)step);
	r->hyper[FO_HYPER_INV_TOKENS] = 1 / (double)r->batch->loss_tokens;
	r->hyper[FO_HYPER_STEP] = (double)(step - 1);
}

void step_build(struct step_built *b, const struct fo_model *m, const struct fo_lowering *run)
{
	must(fo_pass_build(&b->p, m, run));
	must(fo_unroll(&b->p, &b->u));
	fo_plan(&b->p, &b->u);
	b->cost = fo_program_cost(&b->p, -1);
}

void step_built_free(struct step_built *b)
{
	fo_unrolled_fini(&b->u);
	fo_program_fini(&b->p);
}

void step_rig_new(struct step_rig *r, struct fo_program *p, const struct step_batch *b, const struct fo_exec_options *o)
{
	*r = (struct step_rig){ .program = *p, .batch = b };
	const double hyper[] = {
		[FO_HYPER_LR] = 1e-3,   [FO_HYPER_BETA1] = 0.9, [FO_HYPER_BETA2] = 0.95, [FO_HYPER_EPS] = 1e-8,
		[FO_HYPER_DECAY] = 0.1, [FO_HYPER_CLIP] = 1,    [FO_HYPER_SEED] = 42
	};
	memcpy(r->hyper, hyper, sizeof hyper);
	step_rig_at(r, 1);
	if (r->program.run.mode == FO_MODE_LOGITS)
		r->logits = fo_xmalloc((size_t)(b->micro_batches * b->rows * b->seq * r->program.model.vocab) *
				       sizeof(double));
	must(fo_store_new(&r->store, &r->program));
	fo_store_init(r->store, &r->program, 42);
	must(fo_exec_new(&r->exec, &r->program, r->store, o, serve, r, NULL));
}

void step_rig_lower(struct step_rig *r, const struct fo_model *m, const struct fo_lowering *run,
		    const struct step_batch *b, const struct fo_exec_options *o)
{
	struct fo_program p;
	must(fo_pass_build(&p, m, run));
	step_rig_new(r, &p, b, o);
}

void step_rig_free(struct step_rig *r)
{
	fo_exec_free(r->exec);
	fo_store_free(r->store);
	fo_program_fini(&r->program);
	free(r->logits);
}

void step_rig_load(struct step_rig *r, const char *dir)
{
	must(fo_store_load(r->store, &r->program, dir));
	fo_exec_weights_changed(r->exec);
}

static fo_status hash_tensor(void *ctx, const struct fo_store_tensor *t)
{
	uint64_t *h = ctx;
	for (int64_t i = 0; i < t->rows; i++)
		*h = XXH3_64bits_withSeed((const char *)t->data + (size_t)(i * t->ld) * fo_dtype_bytes(t->dtype),
					  (size_t)t->cols * fo_dtype_bytes(t->dtype), *h);
	return FO_OK;
}

uint64_t step_rig_hash(struct step_rig *r)
{
	uint64_t h = 0;
	must(fo_store_visit(r->store, &r->program, hash_tensor, &h));
	return h;
}

struct copying {
	unsigned char *at;
	size_t bytes;
	bool restore;
};

static fo_status copy_tensor(void *ctx, const struct fo_store_tensor *t)
{
	struct copying *c = ctx;
	size_t row = (size_t)t->cols * fo_dtype_bytes(t->dtype);
	for (int64_t i = 0; i < t->rows; i++, c->bytes += row) {
		unsigned char *mine = (unsigned char *)t->data + (size_t)(i * t->ld) * fo_dtype_bytes(t->dtype);
		if (c->at)
			memcpy(c->restore ? mine : c->at + c->bytes, c->restore ? c->at + c->bytes : mine, row);
	}
	return FO_OK;
}

void *step_rig_save(struct step_rig *r)
{
	struct copying c = { 0 };
	must(fo_store_visit(r->store, &r->program, copy_tensor, &c));
	c = (struct copying){ .at = fo_xmalloc(c.bytes) };
	must(fo_store_visit(r->store, &r->program, copy_tensor, &c));
	return c.at;
}

void step_rig_put_back(struct step_rig *r, const void *saved)
{
	struct copying c = { .at = (unsigned char *)saved, .restore = true };
	must(fo_store_visit(r->store, &r->program, copy_tensor, &c));
}

void step_rig_restore(struct step_rig *r, const void *saved)
{
	step_rig_put_back(r, saved);
	fo_exec_weights_changed(r->exec);
}

char *step_golden(char buf[512], const char *dir, const char *file)
{
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(buf, 512, "%s/tests/golden/%s/%s", root ? root : ".", dir, file);
	return buf;
}
