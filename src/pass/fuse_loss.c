/* fuse-loss: the head's matmul and the cross entropy by chunks of tokens, forward and backward together.
 *
 * The loss is a sum over tokens and its scale, 1 / targets of the global batch, is known before the step, so a chunk's
 * logits can become their own gradient at once and go into both backward matmuls while the chunk is all that exists:
 * the (T,V) logits, a small model's largest tensor, shrink to (chunk,V). Evaluation does the same without the backward
 * matmuls. Apple's "Cut Your Losses" (Wijmans et al. 2024), Liger Kernel (Hsu et al. 2024) and torchtune's
 * chunked cross entropy do the same on GPUs. */
#include "pass/pass.h"
#include "base/count.h"

/* Operations of a block have 16-bit numbers when unrolled (fo_unrolled). */
enum { BLOCK_OPS_MAX = 65535, CHUNK_OPS = 4 };

/* An operation's place; at < 0: there is none. */
struct place {
	int block, at;
};
struct head {
	struct place matmul, loss, dgrad, wgrad;
	int logits; /* buffer */
};

static struct fo_op *op_at(const struct fo_program *p, struct place x) { return &p->block[x.block].op[x.at]; }

static bool is_whole(const struct fo_program *p, const struct fo_operand *a)
{
	return a->nr == p->buf[a->buf].rows && a->nc == p->buf[a->buf].cols;
}

/* Sorts one more operation that touches the logits into its place. NULL, or why it has none. */
static const char *sort_in(const struct fo_program *p, struct head *h, struct place x)
{
	const struct fo_op *o = op_at(p, x);
	struct place *to = NULL;
	if (fo_op_family(o->kind) == FO_OPS_LOSS)
		return NULL; /* the one that the search began with */
	bool is_matmul = fo_op_family(o->kind) == FO_OPS_MATMUL;
	const struct fo_operand *a = &o->arg[FO_MATMUL_A], *b = &o->arg[FO_MATMUL_B], *c = &o->arg[FO_MATMUL_C];
	if (is_matmul && c->buf == h->logits && c->access == FO_DEF && !o->attr.ta)
		to = &h->matmul;
	else if (is_matmul && a->buf == h->logits && b->buf != h->logits)
		to = o->attr.ta ? &h->wgrad : &h->dgrad;
	if (!to || to->at >= 0)
		return "more than the head's matmul, the loss and two backward matmuls use the logits";
	for (int k = 0; k < o->n; k++)
		if (o->arg[k].buf == h->logits && !is_whole(p, &o->arg[k]))
			return "the logits are divided already";
	*to = x;
	return NULL;
}

/* Finds the operations around the loss; loss.at < 0 where the program has none (logits, decoding). */
static const char *find_head(const struct fo_program *p, struct head *h)
{
	const struct place none = { -1, -1 };
	*h = (struct head){ none, none, none, none, -1 };
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			if (fo_op_family(p->block[b].op[i].kind) != FO_OPS_LOSS)
				continue;
			if (h->loss.at >= 0)
				return "the program has more than one loss";
			h->loss = (struct place){ b, i };
		}
	if (h->loss.at < 0)
		return NULL;
	h->logits = op_at(p, h->loss)->arg[FO_XENT_LOGITS].buf;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			bool touches = false;
			for (int k = 0; k < p->block[b].op[i].n; k++)
				touches |= p->block[b].op[i].arg[k].buf == h->logits;
			const char *why = touches ? sort_in(p, h, (struct place){ b, i }) : NULL;
			if (why)
				return why;
		}
	if (h->matmul.at < 0 || h->matmul.block != h->loss.block || h->matmul.at + 1 != h->loss.at)
		return "the logits do not come from a matmul directly in front of the loss";
	return NULL;
}

/* Backward operations move up from their block's front to the loss: nothing may lie between the two slots. */
static const char *backward_follows(const struct fo_program *p, const struct head *h)
{
	if (h->dgrad.at < 0 || h->wgrad.at < 0 || h->dgrad.block != h->wgrad.block || h->dgrad.block == h->loss.block)
		return "the backward matmuls of the head must stand in one block after the loss's";
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_slot *f = &p->slot[s], *b = f + 1;
		if (f->block == h->loss.block &&
		    (s + 1 == p->nslot || b->block != h->dgrad.block || b->mb != f->mb || b->layer != f->layer))
			return "the head's backward must follow its forward directly";
	}
	if (h->loss.at + 1 != p->block[h->loss.block].n || !fo_edit_can_move(p, h->dgrad.block, h->dgrad.at, 0) ||
	    !fo_edit_can_move(p, h->wgrad.block, h->wgrad.at, 0))
		return "another operation of the head stands between the loss and the backward matmuls";
	return NULL;
}

/* Tokens whose logits this rank makes. */
static int64_t tokens_of(const struct fo_program *p, const struct head *h)
{
	return h->loss.at < 0 ? p->tokens : p->buf[h->logits].rows;
}
static int64_t chunks_of(const struct fo_program *p, const struct head *h)
{
	return fo_ceil_div(tokens_of(p, h), p->run.pass.fuse_loss);
}

fo_status fo_pass_fuse_loss_legal(const struct fo_program *p)
{
	struct head h;
	const char *why = find_head(p, &h);
	if (!why && h.loss.at >= 0 && p->run.mode == FO_MODE_TRAIN)
		why = backward_follows(p, &h);
	if (why)
		return fo_fail(FO_EARG, "the loss cannot be computed by chunks: %s", why);
	if (p->run.pass.fuse_loss > 1 << 24) /* as the option: sums with a micro-batch's tokens stay in range */
		return fo_fail(FO_EARG, "chunks of %lld tokens: at most 2^24", (long long)p->run.pass.fuse_loss);
	if (h.loss.at >= 0 && chunks_of(p, &h) * CHUNK_OPS + p->block[h.loss.block].n > BLOCK_OPS_MAX)
		return fo_hint(fo_fail(FO_EARG, "%lld tokens make %lld chunks of %lld, at most %d fit into a block",
				       (long long)tokens_of(p, &h), (long long)chunks_of(p, &h),
				       (long long)p->run.pass.fuse_loss, BLOCK_OPS_MAX / CHUNK_OPS - 1),
			       "use larger chunks, or 0 for none");
	return FO_OK;
}

/* One chunk's clone of `from` before operation `at`; arg: which of its operands are rows of all tokens, as a bit set.
 * The logits' rectangle begins at row 0: each chunk overwrites the one before it. */
static void clone_rows(struct fo_program *p, int block, int at, const struct fo_op *from, int logits, uint32_t rows,
		       int64_t begin, int64_t n)
{
	struct fo_op *o = fo_op_clone(p, block, at, from);
	for (int k = 0; k < o->n; k++) {
		struct fo_operand *a = &o->arg[k];
		if (a->buf == logits) {
			a->nr = (int32_t)n;
		} else if (rows >> k & 1) {
			a->r0 += (int32_t)begin;
			a->nr = (int32_t)n;
			if (begin && a->access == FO_DEF)
				a->access = FO_PART;
		}
	}
}

void fo_pass_fuse_loss(struct fo_program *p)
{
	struct head h;
	int64_t chunk = p->run.pass.fuse_loss;
	find_head(p, &h); /* legal: nothing to say */
	const int64_t tokens = tokens_of(p, &h);
	if (h.loss.at < 0 || chunk >= tokens)
		return;
	bool train = p->run.mode == FO_MODE_TRAIN;
	const struct fo_op matmul = *op_at(p, h.matmul), loss = *op_at(p, h.loss);
	struct fo_op dgrad = { 0 }, wgrad = { 0 };
	if (train) {
		dgrad = *op_at(p, h.dgrad), wgrad = *op_at(p, h.wgrad);
		/* The later one goes first, so that the other keeps its place. */
		fo_op_remove(p, h.dgrad.block, (int)fo_max(h.wgrad.at, h.dgrad.at));
		fo_op_remove(p, h.dgrad.block, (int)fo_min(h.wgrad.at, h.dgrad.at));
	}
	fo_op_remove(p, h.loss.block, h.loss.at);
	fo_op_remove(p, h.matmul.block, h.matmul.at);
	int at = h.matmul.at;
	for (int64_t begin = 0; begin < tokens; begin += chunk) {
		int64_t n = fo_min(chunk, tokens - begin);
		clone_rows(p, h.loss.block, at++, &matmul, h.logits, 1 << FO_MATMUL_A, begin, n);
		clone_rows(p, h.loss.block, at++, &loss, h.logits, 1 << FO_XENT_TARGET, begin, n);
		if (!train)
			continue;
		clone_rows(p, h.loss.block, at++, &dgrad, h.logits, 1 << FO_MATMUL_C, begin, n);
		clone_rows(p, h.loss.block, at++, &wgrad, h.logits, 1 << FO_MATMUL_B, begin, n);
	}
	p->buf[h.logits].rows = chunk;
}
