/* Flatout's own programs: what lowering and passes make of a layer, in closed form, where that differs from the habits
 * of other stacks. tests/unit/test_predict_lowered.c holds it to programs that are lowered and simulated event by
 * event. */
#include "predict/time_int.h"

/* ---- a layer ---- */

/* Do gradients of weights have slots of their own? */
static bool is_later(const struct fo_predict_work *w)
{
	return w->pp > 1 && (w->schedule == FO_PREDICT_ZERO_BUBBLE || w->schedule == FO_PREDICT_ZB_H2);
}

/* The first micro-batch stores sums of gradients, later ones add to them. */
double fo_predict_own_stored(const struct now *n, double weights)
{
	const struct fo_predict_work *w = n->w;
	const double share = w->zero >= 2 ? 1 : 1 / w->micro_batches; /* ZeRO 2 adds to the rows of a rank alone */
	return n->x[FO_X_SUMS] * w->own.gradient * weights / n->memory * share;
}

void fo_predict_own_memory(const struct now *n, struct layer *y)
{
	const double rate = n->memory / n->x[FO_X_U_MCORE + n->w->habits];
	for (int i = 0; i < 2; i++)
		y->memory[i] = n->w->own.moved[i] / rate;
}

/* Forward waits for its four messages. Backward's sums travel beside the weight's gradients of what made them, where
 * these are not for later; gathers of sequence parallelism are waited for. */
void fo_predict_own_tensor(const struct now *n, double ring, double exposed, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	const bool later = is_later(w);
	static const int site[] = { FO_PREDICT_QKV, FO_PREDICT_UP };
	y->tensor[0] = 4 * ring * exposed;
	y->tensor[1] = w->own.sp ? 2 * ring * exposed : 0;
	for (int i = 0; i < 2; i++) {
		const struct fo_predict_product *p = &w->product[site[i]][FO_PREDICT_WEIGHT];
		double beside = fo_predict_product_s(n, p, n->linear);
		if (i == 0 && w->cp > 1)
			beside += 2 * fo_predict_product_s(n, &w->own.keys[FO_PREDICT_WEIGHT], n->linear);
		if (later || !w->trains)
			beside = 0;
		y->tensor[1] += most(0, (w->own.sp ? 1 : 2) * ring * exposed - beside);
	}
}

/* A ring: keys and values come while queries meet those that are there; backward, where the first ones travel beside
 * the feed-forward, their gradients follow one step behind, and the last ones are waited for. */
void fo_predict_own_context(const struct now *n, struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	static const int site[] = { FO_PREDICT_DOWN, FO_PREDICT_UP, FO_PREDICT_OUT };
	double before = y->tensor[1] + y->memory[1];
	for (int i = 0; i < 3; i++)
		for (int pass = FO_PREDICT_INPUT; pass <= FO_PREDICT_WEIGHT; pass++)
			before += fo_predict_product_s(n, &w->product[site[i]][pass], n->linear);
	const double near = least(most(1, w->in_node / w->tp), w->cp), steps = w->cp,
		     shift = 2 * fo_predict_ring_s(n, steps * w->own.keys_bytes, steps, near >= steps, near) /
			     (steps - 1);
	for (int back = 0; back < 2; back++) {
		const double block = y->attention[back] / steps;
		double now = block, lane = shift - (back ? before : 0), came = lane; /* the first keys are its own */
		for (double k = 1; k < steps; k++) {
			const double needed = came;
			if (k + 1 < steps)
				came = lane += shift;
			now = most(now, needed) + block;
			if (back)
				lane = most(lane, now) + shift;
		}
		y->context[back] = most(now, back ? lane : 0) - steps * block +
				   n->x[FO_X_CP] * (1 + back) * (steps - 1) * shift;
	}
}

/* Full recomputation ends with what the down projection reads. Values are there before keys, and these before queries,
 * so that a ring's first messages travel beside the products of what comes later. */
double fo_predict_own_again(const struct now *n, const struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	const double rate = n->memory / n->x[FO_X_U_MCORE + w->habits],
		     less = (w->own.moved[0] - w->own.again_moved) / rate + y->tensor[0] / (w->own.sp ? 4 : 2);
	const struct fo_predict_product *const down = &w->product[FO_PREDICT_DOWN][FO_PREDICT_FORWARD],
					       *const queries = &w->product[FO_PREDICT_QKV][FO_PREDICT_FORWARD];
	double beside = 0;
	if (w->cp > 1)
		beside = least(y->context[0],
			       fo_predict_product_s(n, queries, n->linear) +
				       fo_predict_product_s(n, &w->own.keys[FO_PREDICT_FORWARD], n->linear));
	return w->again * (y->pass[0] - fo_predict_product_s(n, down, n->linear) - less - beside);
}

/* ---- the head, with the embedding ---- */

/* One micro-batch's: the embedding's rows, the last norm, and the messages of ranks that divide words. */
void fo_predict_own_ends(const struct now *n, double pass[3], double embed[2])
{
	const struct fo_predict_work *w = n->w;
	const struct fo_predict_own *o = &w->own;
	const double rate = n->memory / n->x[FO_X_U_MCORE + w->habits],
		     ring = fo_predict_ring_s(n, w->tp_bytes, w->tp, w->tp_inside, w->in_node),
		     largest = 2 * fo_predict_ring_s(n, 4 * o->tokens, w->tp, w->tp_inside, w->in_node),
		     sums = 2 * fo_predict_ring_s(n, 8 * o->tokens, w->tp, w->tp_inside, w->in_node);
	embed[0] = o->embed_moved[0] / rate + (o->sp ? 1 : 2) * ring;
	embed[1] = o->embed_moved[1] / rate + (o->sp ? 1 : 0) * ring;
	pass[FO_PREDICT_FORWARD] += o->head_moved[0] / rate + largest + sums + (o->sp ? 1 : 0) * ring;
	pass[FO_PREDICT_INPUT] += o->head_moved[1] / rate + most(0, (o->sp ? 1 : 2) * ring - pass[FO_PREDICT_WEIGHT]);
	if (w->trains)
		pass[FO_PREDICT_WEIGHT] -= fo_predict_own_stored(n, o->words);
	for (int i = 0; i < 2 && w->pp <= 1; i++) {
		pass[i] += embed[i];
		embed[i] = 0;
	}
}

/* ---- states between ranks ---- */

/* Seconds of calls: of a layer, of the embedding, of the head: gradients of a step or micro-batch, weights. */
struct calls {
	double reduce[3], gather[3];
	double once[3]; /* what reduce has more in a step's last micro-batch: sums over replicas */
	double tail;    /* of a layer's gradients, when its backward is over and the lane was idle before */
};
enum { LAYER, EMBED, HEAD };
#define BUCKET (25.0 * (1 << 20)) /* pass.ddp's default */

/* Sums of what is whole on all ranks; of a tensor whose rows ranks share, scattered and added up over replicas. */
static double whole_s(const struct now *n, double bytes)
{
	const struct fo_predict_work *w = n->w;
	const double ranks = w->shard * w->replicate, in_node = least(w->data_node, ranks);
	return 2 * fo_predict_spread_s(n, bytes, ranks, in_node, most(1, ranks / in_node));
}
static double term_s(const struct now *n, double bytes)
{
	const struct fo_predict_work *w = n->w;
	const double ranks = w->shard * w->replicate * w->tp, in_node = least(w->in_node, ranks);
	return 2 * fo_predict_spread_s(n, bytes, ranks, in_node, most(1, ranks / in_node));
}
static double shared_s(const struct now *n, double bytes, bool once)
{
	const struct fo_predict_work *w = n->w;
	const double near = least(most(1, w->data_node / w->shard), w->replicate);
	return fo_predict_spread_s(n, bytes, w->shard, w->shard_node, w->nodes) +
	       once * 2 * fo_predict_spread_s(n, bytes / w->shard, w->replicate, near, w->replicate / near);
}

/* Tensors of one unit, in the order in which backward completes their gradients, in buckets as pass ddp has them.
 * Norms (negative here) are whole on all ranks in any case. made: seconds of backward from one to the next; NULL: all
 * come at once. once: the step's last micro-batch, in which what is whole and replicas are added up, too. Returns the
 * calls' seconds; *tail: how long they go on when the last is made. */
static double reduce_s(const struct now *n, const double *tensor, int tensors, bool once, const double *made,
		       double *tail)
{
	const struct fo_predict_own *o = &n->w->own;
	const bool shares = n->w->zero >= 1 && n->w->shard > 1;
	double sum = 0, whole = 0, bytes = 0, now = 0, busy = 0;
	for (int i = 0; i <= tensors; i++) {
		const double size = i < tensors ? fabs(tensor[i]) * o->gradient : 0;
		const bool term = i < tensors && o->sp && tensor[i] < 0; /* a sum over the tp group, too */
		double sent = 0;
		if (i == tensors || (bytes > 0 && (bytes + size > BUCKET || term))) {
			sent = once && whole > 0 ? whole_s(n, whole) : 0;
			sum += sent;
			busy = most(busy, now) + sent;
			whole = bytes = 0;
		}
		if (i == tensors)
			break;
		now += made ? made[i] : 0;
		if (term) {
			sent = once ? term_s(n, size) : 0;
			sum += sent;
			busy = most(busy, now) + sent;
			continue;
		}
		bytes += size;
		if (shares && tensor[i] > 0) {
			sent = shared_s(n, size, once);
			sum += sent;
			busy = most(busy, now) + sent;
		} else {
			whole += size;
		}
	}
	*tail = most(0, busy - now);
	return sum;
}

static double gather_s(const struct now *n, const double *tensor, int tensors)
{
	const struct fo_predict_work *w = n->w;
	double sum = 0;
	for (int i = 0; i < tensors; i++)
		if (tensor[i] > 0)
			sum += fo_predict_spread_s(n, 2 * tensor[i], w->shard, w->shard_node, w->nodes);
	return sum;
}

static void calls_of(const struct now *n, const struct layer *y, struct calls *c)
{
	const struct fo_predict_work *w = n->w;
	const struct fo_predict_own *o = &w->own;
	const double norm = -o->hidden, *t = o->tensor;
	const double
		layer[] = { t[FO_PREDICT_DOWN], t[FO_PREDICT_UP], norm, t[FO_PREDICT_OUT], t[FO_PREDICT_QKV], norm },
		head[] = { o->tied ? norm : o->words, norm }, embed[] = { o->words };
	double made[6] = { 0 }, tail;
	static const int at[FO_PREDICT_HEAD] = {
		[FO_PREDICT_DOWN] = 0, [FO_PREDICT_UP] = 1, [FO_PREDICT_OUT] = 3, [FO_PREDICT_QKV] = 4
	};
	for (int i = 0; i < FO_PREDICT_HEAD; i++)
		for (int pass = FO_PREDICT_INPUT; pass <= FO_PREDICT_WEIGHT; pass++)
			made[at[i]] += fo_predict_product_s(n, &w->product[i][pass], n->linear);
	const double gathers = o->sp ? fo_predict_ring_s(n, w->tp_bytes, w->tp, w->tp_inside, w->in_node) : 0,
		     sums = most(0, y->tensor[1] - 2 * gathers);
	made[0] += y->again + gathers;
	made[1] += y->memory[1] / 2;
	made[2] += y->memory[1] / 4 + sums / 2;
	made[3] += gathers;
	made[4] += y->attention[1] + y->context[1];
	made[5] += y->memory[1] / 4 + sums / 2;
	const double *const unit[] = { layer, embed, head };
	const int tensors[] = { 6, 1, o->tied ? 1 : 2 };
	for (int i = 0; i < 3; i++) {
		c->gather[i] = i == HEAD && o->tied ? 0 : gather_s(n, unit[i], tensors[i]);
		c->reduce[i] = reduce_s(n, unit[i], tensors[i], false, NULL, &tail);
		c->once[i] = reduce_s(n, unit[i], tensors[i], true, i == LAYER ? made : NULL, &tail) - c->reduce[i];
		if (i == LAYER)
			c->tail = tail;
	}
}

/* A lane of messages beside what computes: units that compute, then send what they made. */
struct lane {
	double now, busy;
};
static void units(struct lane *k, double times, double compute, double sent)
{
	const double all = times * sent, begin = k->now + compute;
	if (!(times > 0))
		return;
	k->busy = most(most(k->busy, begin) + all, k->now + times * compute + sent);
	k->now += times * compute;
}

/* Layers' backward, whose gradients travel while it goes on. */
static void layers_back(struct lane *k, double times, double compute, double sent, const struct calls *c)
{
	const double more = sent - compute, late = k->busy - k->now + times * more,
		     fresh = c->tail + (times - 1) * most(0, more);
	k->now += times * compute;
	k->busy = k->now + most(late, fresh);
}

/* Gradients, behind the slot that completes them; with ZeRO 2 in each micro-batch, so long as the lane keeps up. */
static double reduced(const struct now *n, const struct layer *y, const struct calls *c, const double head[3])
{
	const struct fo_predict_work *w = n->w;
	const bool later = is_later(w);
	/* The last slot that makes gradients, of the first stage: of one chunk, or of all weights alone. */
	const double layers = up_to_whole(w->layers / w->pp) / w->chunks,
		     rate = n->memory / n->x[FO_X_U_MCORE + w->habits];
	double back = later ? y->products.pass[FO_PREDICT_WEIGHT] : y->pass[1] + y->again,
	       embed = w->own.embed_moved[1] / rate;
	if (w->fsdp) /* what does not fit behind a layer is counted there */
		back += y->data[1];
	if (w->own.sp)
		embed += fo_predict_ring_s(n, w->tp_bytes, w->tp, w->tp_inside, w->in_node);
	const int each = w->zero == 2 ? (int)least(3, w->micro_batches) : 1;
	double tail[3] = { 0 };
	struct lane k = { 0 };
	for (int i = 0; i < each; i++) {
		const double once = i == each - 1 ? 1 : 0;
		double sent[3];
		for (int u = 0; u < 3; u++)
			sent[u] = c->reduce[u] + once * c->once[u];
		k.now += i ? layers * y->pass[0] + head[0] : 0;
		if (w->pp <= 1) /* else it is the last stage that has it, and the first that ends last */
			units(&k, 1, head[1] + head[2], sent[HEAD]);
		if (later)
			k.busy += sent[EMBED];
		layers_back(&k, layers, back, sent[LAYER], c);
		if (!later)
			units(&k, 1, embed, sent[EMBED]);
		tail[i] = most(0, k.busy - k.now);
	}
	return tail[each - 1] + (each > 2 ? (w->micro_batches - 3) * most(0, tail[2] - tail[1]) : 0);
}

/* The gradients' norm reads so many bytes of the update's (styles.def) before it. */
#define NORM_BYTES 4.

/* Weights, behind their updates: the embedding's first, the head's last. */
static double gathered(const struct now *n, const struct calls *c)
{
	const struct fo_predict_work *w = n->w;
	const double layers = w->layers / w->pp, all = w->optimizer_bytes * n->x[FO_X_UPDATE] / n->memory,
		     weights = w->local_params, bytes = fo_predict_style[FO_PREDICT_STYLE_FLATOUT].optimizer_bytes,
		     update = all * (1 - NORM_BYTES / bytes);
	struct lane k = { 0 };
	units(&k, 1, update * w->own.words / weights, c->gather[EMBED]);
	units(&k, layers, update * w->own.matrices / weights, c->gather[LAYER]);
	if (!w->own.tied && w->pp <= 1)
		units(&k, 1, update * w->own.words / weights, c->gather[HEAD]);
	return most(0, k.busy - k.now);
}

double fo_predict_own_exchange(const struct now *n, const struct layer *y)
{
	const struct fo_predict_work *w = n->w;
	struct calls c;
	double head[3];
	double ends = 0;
	if (w->own.tied && w->pp > 1) { /* the first and the last stage have the embedding */
		const double near = w->pp_inside ? 2 : 1;
		ends = 2 * fo_predict_spread_s(n, w->own.gradient * w->own.words / (w->zero >= 1 ? w->shard : 1), 2,
					       near, 2 / near);
	}
	if (!w->trains || w->shard * w->replicate <= 1)
		return w->trains ? ends : 0;
	calls_of(n, y, &c);
	if (w->pp > 1) /* what counts is the first stage: the last one ends backward first */
		c.reduce[HEAD] = c.once[HEAD] = c.gather[HEAD] = 0;
	fo_predict_head_of(n, head);
	const double layers = up_to_whole(w->layers / w->pp), share = w->dp_overlap < 0 ? 1 : n->x[FO_X_DATA];
	if (w->fsdp) { /* layers' calls are in their passes: here are the ends' */
		const double ends_s = c.reduce[EMBED] + c.once[EMBED] + c.gather[EMBED] + c.gather[LAYER],
			     each = most(0, c.gather[HEAD] - y->pass[0]),
			     again = most(0, c.gather[EMBED] + c.gather[LAYER] - y->pass[1] - y->again);
		return ends + share * ends_s +
		       (1 - share) * (reduced(n, y, &c, head) + c.gather[EMBED] + c.gather[LAYER] +
				      w->micro_batches * each + (w->micro_batches - 1) * again);
	}
	double exposed = (1 - share) * reduced(n, y, &c, head) +
			 share * (layers * (c.reduce[LAYER] + c.once[LAYER]) + c.reduce[EMBED] + c.once[EMBED] +
				  c.reduce[HEAD] + c.once[HEAD]);
	if (w->zero >= 1 && w->shard > 1)
		exposed += (1 - share) * gathered(n, &c) +
			   share * (layers * c.gather[LAYER] + c.gather[EMBED] + c.gather[HEAD]);
	return exposed + ends;
}

/* A layer whose weights are fully sharded: they are gathered for a pass, gradients scattered behind backward. */
void fo_predict_own_shards(const struct now *n, const struct layer *y, double *gather, double *scatter)
{
	struct calls c;
	calls_of(n, y, &c);
	*gather = c.gather[LAYER];
	*scatter = n->w->trains ? c.reduce[LAYER] : 0;
}
