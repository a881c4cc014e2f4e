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
enum { BLOCK_OPS_MAX = 65535, STEPS_MOST = 16 /* operations of a chunk */ };

/* An operation's place; at < 0: there is none. */
struct place {
	int block, at;
};
/* From the matmul that makes the logits to the end of its block: the loss, in one operation or, where ranks divide the
 * vocabulary (pass tp), in several with sums over ranks between them. */
struct head {
	struct place matmul, dgrad, wgrad;
	int logits; /* buffer; -1: there is no loss */
	int ops;    /* of the loss */
};

static struct fo_op *op_at(const struct fo_program *p, struct place x) { return &p->block[x.block].op[x.at]; }

static bool is_whole(const struct fo_program *p, const struct fo_operand *a)
{
	return a->nr == p->buf[a->buf].rows && a->nc == p->buf[a->buf].cols;
}

static bool is_loss(const struct head *h, int block, int at)
{
	return block == h->matmul.block && at > h->matmul.at && at <= h->matmul.at + h->ops;
}

/* Sorts one more operation that touches the logits into its place. NULL, or why it has none. */
static const char *sort_in(const struct fo_program *p, struct head *h, struct place x)
{
	const struct fo_op *o = op_at(p, x);
	struct place *to = NULL;
	bool is_matmul = fo_op_family(o->kind) == FO_OPS_MATMUL;
	const struct fo_operand *a = &o->arg[FO_MATMUL_A], *b = &o->arg[FO_MATMUL_B];
	for (int k = 0; k < o->n; k++)
		if (o->arg[k].buf == h->logits && !is_whole(p, &o->arg[k]))
			return "the logits are divided already";
	if (is_loss(h, x.block, x.at) || (x.block == h->matmul.block && x.at == h->matmul.at))
		return NULL;
	if (is_matmul && a->buf == h->logits && b->buf != h->logits)
		to = o->attr.ta ? &h->wgrad : &h->dgrad;
	if (!to || to->at >= 0)
		return "more than the head's matmul, the loss and two backward matmuls use the logits";
	*to = x;
	return NULL;
}

static bool joins_loss(const struct fo_op *o)
{
	return fo_op_family(o->kind) == FO_OPS_LOSS || fo_op_info(o->kind)->wire == FO_WIRE_ALL_REDUCE;
}

static const char *find_matmul(const struct fo_program *p, struct head *h)
{
	bool loss = false;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			loss |= fo_op_family(o->kind) == FO_OPS_LOSS;
			if (fo_op_family(o->kind) != FO_OPS_MATMUL || o->attr.ta ||
			    o->arg[FO_MATMUL_C].access != FO_DEF ||
			    p->buf[o->arg[FO_MATMUL_C].buf].col_axis != FO_AXIS_VOCAB)
				continue;
			if (h->matmul.at >= 0)
				return "the program has more than one loss";
			h->matmul = (struct place){ b, i };
		}
	if (!loss)
		return NULL;
	const struct fo_block *b = h->matmul.at < 0 ? NULL : &p->block[h->matmul.block];
	while (b && h->matmul.at + 1 + h->ops < b->n && joins_loss(&b->op[h->matmul.at + 1 + h->ops]))
		h->ops++;
	if (!h->ops)
		return "the logits do not come from a matmul directly in front of the loss";
	h->logits = op_at(p, h->matmul)->arg[FO_MATMUL_C].buf;
	return NULL;
}

/* Finds the operations around the loss; logits < 0 where the program has none (logits, decoding). */
static const char *find_head(const struct fo_program *p, struct head *h)
{
	const struct place none = { -1, -1 };
	*h = (struct head){ none, none, none, -1, 0 };
	const char *why = find_matmul(p, h);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n && !why && h->logits >= 0; i++) {
			bool touches = false;
			for (int k = 0; k < p->block[b].op[i].n; k++)
				touches |= p->block[b].op[i].arg[k].buf == h->logits;
			if (touches)
				why = sort_in(p, h, (struct place){ b, i });
			else if (fo_op_family(p->block[b].op[i].kind) == FO_OPS_LOSS && !is_loss(h, b, i))
				why = "the program has more than one loss";
		}
	return why;
}

/* Backward operations move up from their block's front to the loss: nothing may lie between the two slots. */
static const char *backward_follows(const struct fo_program *p, const struct head *h)
{
	if (h->dgrad.at < 0 || h->wgrad.at < 0 || h->dgrad.block != h->wgrad.block || h->dgrad.block == h->matmul.block)
		return "the backward matmuls of the head must stand in one block after the loss's";
	for (int s = 0; s < p->nslot; s++) {
		const struct fo_slot *f = &p->slot[s], *b = f + 1;
		if (f->block == h->matmul.block &&
		    (s + 1 == p->nslot || b->block != h->dgrad.block || b->mb != f->mb || b->layer != f->layer))
			return "the head's backward must follow its forward directly";
	}
	if (h->matmul.at + 1 + h->ops != p->block[h->matmul.block].n ||
	    !fo_edit_can_move(p, h->dgrad.block, h->dgrad.at, 0) ||
	    !fo_edit_can_move(p, h->wgrad.block, h->wgrad.at, 0))
		return "another operation of the head stands between the loss and the backward matmuls";
	return NULL;
}

/* Tokens whose logits this rank makes. */
static int64_t tokens_of(const struct fo_program *p, const struct head *h)
{
	return h->logits < 0 ? p->tokens : p->buf[h->logits].rows;
}
static int64_t chunks_of(const struct fo_program *p, const struct head *h)
{
	return fo_ceil_div(tokens_of(p, h), p->run.pass.fuse_loss);
}

fo_status fo_pass_fuse_loss_legal(const struct fo_program *p)
{
	struct head h;
	const char *why = find_head(p, &h);
	if (!why && h.logits >= 0 && p->run.mode == FO_MODE_TRAIN)
		why = backward_follows(p, &h);
	if (why)
		return fo_fail(FO_EARG, "the loss cannot be computed by chunks: %s", why);
	if (h.ops + 3 > STEPS_MOST)
		return fo_fail(FO_EARG, "the loss cannot be computed by chunks: it has %d operations", h.ops);
	if (p->run.pass.fuse_loss > 1 << 24) /* as the option: sums with a micro-batch's tokens stay in range */
		return fo_fail(FO_EARG, "chunks of %lld tokens: at most 2^24", (long long)p->run.pass.fuse_loss);
	const int each = h.ops + 3; /* operations of a chunk: with three matmuls */
	if (h.logits >= 0 && chunks_of(p, &h) * each + p->block[h.matmul.block].n > BLOCK_OPS_MAX)
		return fo_hint(fo_fail(FO_EARG, "%lld tokens make %lld chunks of %lld, at most %d fit into a block",
				       (long long)tokens_of(p, &h), (long long)chunks_of(p, &h),
				       (long long)p->run.pass.fuse_loss, BLOCK_OPS_MAX / each - 1),
			       "use larger chunks, or 0 for none");
	return FO_OK;
}

/* What the loss makes of a chunk's logits for itself: rows of tokens that nothing outside of it touches. */
static bool is_scratch(const struct fo_program *p, const struct head *h, int buf)
{
	if (buf == h->logits)
		return true;
	bool inside = false, made = false;
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			for (int k = 0; k < p->block[b].op[i].n; k++) {
				const struct fo_operand *a = &p->block[b].op[i].arg[k];
				if (a->buf != buf)
					continue;
				if (!is_loss(h, b, i))
					return false;
				inside = true;
				made |= a->access == FO_DEF;
			}
	return inside && made && p->buf[buf].row_axis == FO_AXIS_TOKENS;
}

/* One chunk's clone of `from` before operation `at`; scratch, rows: which of its operands are rows of the chunk, or of
 * all tokens, as bit sets. Scratch begins at row 0: each chunk overwrites the one before it. */
static void clone_rows(struct fo_program *p, struct place to, const struct fo_op *from, uint32_t scratch, uint32_t rows,
		       int64_t begin, int64_t n)
{
	struct fo_op *o = fo_op_clone(p, to.block, to.at, from);
	for (int k = 0; k < o->n; k++) {
		struct fo_operand *a = &o->arg[k];
		if (scratch >> k & 1) {
			a->nr = (int32_t)n;
		} else if (rows >> k & 1) {
			a->r0 += (int32_t)begin;
			a->nr = (int32_t)n;
			if (begin && a->access == FO_DEF)
				a->access = FO_PART;
		}
	}
}

/* An operation of each chunk. */
struct step {
	struct fo_op op;
	uint32_t scratch, rows;
};

static struct step step_of(const struct fo_program *p, const struct head *h, struct place x)
{
	struct step s = { .op = *op_at(p, x) };
	for (int k = 0; k < s.op.n; k++) {
		if (is_scratch(p, h, s.op.arg[k].buf))
			s.scratch |= 1u << k;
		else if (p->buf[s.op.arg[k].buf].row_axis == FO_AXIS_TOKENS)
			s.rows |= 1u << k;
	}
	return s;
}

void fo_pass_fuse_loss(struct fo_program *p)
{
	struct head h;
	struct step step[STEPS_MOST];
	int64_t chunk = p->run.pass.fuse_loss;
	int n = 0;
	find_head(p, &h); /* legal: nothing to say */
	const int64_t tokens = tokens_of(p, &h);
	if (h.logits < 0 || chunk >= tokens)
		return;
	for (int i = 0; i <= h.ops; i++)
		step[n++] = step_of(p, &h, (struct place){ h.matmul.block, h.matmul.at + i });
	if (p->run.mode == FO_MODE_TRAIN) {
		step[n++] = step_of(p, &h, h.dgrad);
		step[n++] = step_of(p, &h, h.wgrad);
		/* The later one goes first, so that the other keeps its place. */
		fo_op_remove(p, h.dgrad.block, (int)fo_max(h.wgrad.at, h.dgrad.at));
		fo_op_remove(p, h.dgrad.block, (int)fo_min(h.wgrad.at, h.dgrad.at));
	}
	for (int i = 0; i <= h.ops; i++)
		fo_op_remove(p, h.matmul.block, h.matmul.at);
	struct place to = h.matmul;
	for (int64_t begin = 0; begin < tokens; begin += chunk)
		for (int i = 0; i < n; i++, to.at++)
			clone_rows(p, to, &step[i].op, step[i].scratch, step[i].rows, begin,
				   fo_min(chunk, tokens - begin));
	for (int i = 0; i < n; i++)
		for (int k = 0; k < step[i].op.n; k++)
			if (step[i].scratch >> k & 1)
				p->buf[step[i].op.arg[k].buf].rows = chunk;
}
