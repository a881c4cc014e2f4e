/* Bytes and sizes of Flatout's own programs that are counted otherwise than those of other stacks, for own.c. */
#include "predict/predict_int.h"

/* Bytes that operations bound by memory move, of bf16 activations: each norm takes in the addition in front of it
 * (fuse-elementwise), rotations turn queries and keys in place. */
static void moved(const struct fo_predict_model *m, double tokens, struct fo_predict_work *w)
{
	struct fo_predict_own *o = &w->own;
	const double t = w->tp, stream = tokens * m->hidden / (o->sp ? t : 1),
		     turned = 4 * tokens * (m->heads + m->kv_heads) * m->head_dim / t, ffn = tokens * m->ffn / t;
	const bool staged = w->pp > 1; /* an addition takes no norm of the next layer in */
	o->moved[0] = (staged ? 18 : 16) * stream + turned + 6 * ffn;
	o->moved[1] = 16 * stream + turned + 10 * ffn;
	o->again_moved = 12 * stream + turned + 6 * ffn;
	if (w->cp > 1) { /* what a step of the ring finds is merged, gradients of keys are added up */
		const double merged = 6 * (w->cp - 1) * tokens * m->heads * m->head_dim / t;
		o->moved[0] += merged;
		o->again_moved += merged;
		o->moved[1] += 12 * (w->cp - 1) * tokens * m->kv_heads * m->head_dim / t;
	}
	/* The first layer's norm has no addition, the head's has one; look-ups touch the words of a rank. */
	o->embed_moved[0] = tokens * m->hidden * (2 + 2 / t) - (staged ? 0 : 4) * stream;
	o->embed_moved[1] = tokens * m->hidden * (2 + 8 / t);
	o->head_moved[0] = (staged ? 4 : 8) * stream;
	o->head_moved[1] = 6 * stream;
}

void fo_predict_own_of(const struct fo_predict_base *b, const struct fo_predict_layout *l, struct fo_predict_work *w)
{
	const struct fo_predict_model *m = &b->job.model;
	struct fo_predict_own *o = &w->own;
	if (!o->on)
		return;
	o->sp = l->sp && w->tp > 1;
	o->tokens = w->micro_batch * b->job.seq / w->cp;
	o->tied = m->tied;
	o->gradient = w->gradient_bytes / (w->layer_bytes / 2);
	o->hidden = m->hidden;
	o->keys_bytes = 2 * o->tokens * m->kv_heads * m->head_dim / w->tp;
	o->tensor[FO_PREDICT_QKV] = (m->heads + 2 * m->kv_heads) * m->head_dim * m->hidden / w->tp;
	o->tensor[FO_PREDICT_OUT] = m->heads * m->head_dim * m->hidden / w->tp;
	o->tensor[FO_PREDICT_UP] = 2 * m->ffn * m->hidden / w->tp;
	o->tensor[FO_PREDICT_DOWN] = m->ffn * m->hidden / w->tp;
	o->matrices = (b->layer_params + b->ffn_params - 2 * m->hidden) / w->tp;
	o->words = m->vocab * m->hidden / w->tp;
	moved(m, o->tokens, w);
}
