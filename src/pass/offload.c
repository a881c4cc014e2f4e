/* offload: what the first layers keep for backward waits in host memory.
 *
 * A layer's kept activations are copied out on the copy lane as soon as they are made, and back for its backward, while
 * compute goes on. An activation's bytes are free for others from where its copy out is listed, and taken again where
 * its copy back is: so the places of copies in the list say how long nobody waits for them. Memory is short where
 * forward ends and backward begins. With L layers, N of which wait elsewhere, layer l's copy out is listed after the
 * forward of layer l + D, its copy back before that layer's backward, with D = L - 1 - N (at least 1): L - N layers'
 * activations are on the device at any time, as many as while the head runs, and each copy has the time of D layers. In
 * backward that holds where gradients exist already or leave at once. Where one micro-batch's backward makes them, they
 * take the place of the activations that leave, and a copy back is listed one layer ahead. It defines a new generation,
 * as recomputation does: nothing is renamed, and unroll and plan find the waits.
 *
 * Rhu et al. 2016, "vDNN". docs/passes/offload.md. */
#include "pass/pass.h"
#include "base/count.h"
#include "base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Activations below this share of all that a layer keeps stay on the device: reciprocal deviations, log sums. A copy of
 * their own would cost more than their bytes are worth. */
#define LEAST_SHARE 0.01

/* The blocks of a layer, and what of it moves, in the order in which forward makes it and in which backward asks for
 * it. */
struct layer {
	int forward, backward, n;
	int *out, *in;
};

static bool is_layer(const struct fo_program *p, int b, int role)
{
	return p->block[b].unit == FO_UNIT_LAYER && p->block[b].role == role;
}

/* Lists the activations of a layer that the block reads before it writes to them, in order; mark[buf] is set for
 * each. */
static int find_reads(const struct fo_program *p, const struct fo_block *b, uint8_t *mark, int *list)
{
	enum { READ = 1, SEEN = 2 };
	int n = 0;
	for (int i = 0; i < b->n; i++)
		for (int k = 0; k < b->op[i].n; k++) {
			const struct fo_operand *a = &b->op[i].arg[k];
			const struct fo_buffer *f = &p->buf[a->buf];
			if (a->dlayer || f->home != FO_HOME_ACT || !(f->axes & FO_PER_LAYER) || mark[a->buf])
				continue;
			mark[a->buf] = a->access == FO_READ ? READ : SEEN;
			if (a->access == FO_READ)
				list[n++] = a->buf;
		}
	for (int i = 0; i < n; i++)
		mark[list[i]] = READ;
	return n;
}

/* The buffers that forward leaves to backward, except small ones, in both orders. */
static void find_kept(const struct fo_program *p, struct layer *l)
{
	const struct fo_block *f = &p->block[l->forward];
	uint8_t *reads = fo_xmalloc((size_t)p->nbuf), *moves = fo_xmalloc((size_t)p->nbuf);
	int *list = fo_xmalloc((size_t)(p->nbuf + 1) * sizeof *list), n;
	double all = 0;
	memset(reads, 0, (size_t)p->nbuf);
	memset(moves, 0, (size_t)p->nbuf);
	n = find_reads(p, &p->block[l->backward], reads, list);
	l->out = fo_xmalloc((size_t)(n + 1) * sizeof *l->out);
	l->in = fo_xmalloc((size_t)(n + 1) * sizeof *l->in);
	for (int i = 0; i < n; i++)
		all += (double)fo_buffer_bytes(&p->buf[list[i]]);
	l->n = 0;
	for (int i = 0; i < f->n; i++)
		for (int k = 0; k < f->op[i].n; k++) {
			const struct fo_operand *a = &f->op[i].arg[k];
			if (a->dlayer || reads[a->buf] != 1 || moves[a->buf] ||
			    (double)fo_buffer_bytes(&p->buf[a->buf]) < LEAST_SHARE * all)
				continue;
			moves[a->buf] = 1;
			l->out[l->n++] = a->buf;
		}
	for (int i = 0, k = 0; i < n; i++)
		if (moves[list[i]])
			l->in[k++] = list[i];
	free(reads);
	free(moves);
	free(list);
}

static int host_buffer(struct fo_program *p, int buf)
{
	struct fo_buffer b = p->buf[buf];
	char name[sizeof b.name];
	snprintf(name, sizeof name, "host.%.18s", b.name);
	if (strlen(b.name) > 18) /* a name that would be cut off: by its number */
		snprintf(name, sizeof name, "host.%d", buf);
	int have = fo_buffer_find(p, name);
	if (have >= 0)
		return have;
	b.home = FO_HOME_HOST;
	return fo_buffer_like(p, name, &b);
}

/* Copies of the layer that lies `distance` before: out after everything, back before it. */
static void put_copies(struct fo_program *p, int block, const struct layer *l, int distance, bool out)
{
	for (int i = 0; i < l->n; i++) {
		int buf = out ? l->out[i] : l->in[i], host = host_buffer(p, buf);
		int at = out ? p->block[block].n : i, kind = out ? FO_OP_offload : FO_OP_fetch;
		struct fo_op *o = fo_op_insert(p, block, at, kind, FO_TRANSFER, FO_LANE_COPY);
		fo_op_arg(p, o, out ? buf : host, -distance, FO_READ);
		fo_op_arg(p, o, out ? host : buf, -distance, FO_DEF);
	}
}

/* The slots of a layer block that copy for another layer get a block that does so, one for each pair of blocks that
 * such a layer has; the block itself, where all of its slots want the same. */
static void split_block(struct fo_program *p, int block, const struct layer *layer, int64_t layers, int distance,
			bool out)
{
	bool *alike = fo_xmalloc((size_t)(p->nslot + 1) * sizeof *alike), all = true;
	for (int s = 0, made = 0; s < p->nslot; s++) {
		int l = p->slot[s].layer - distance;
		char suffix[16];
		if (p->slot[s].block != block || l < 0 || l >= layers)
			continue;
		for (int k = 0; k < p->nslot; k++) {
			int other = p->slot[k].layer - distance;
			alike[k] = other >= 0 && other < layers && layer[other].forward == layer[l].forward &&
				   layer[other].backward == layer[l].backward;
			all &= alike[k] || p->slot[k].block != block;
		}
		snprintf(suffix, sizeof suffix, "%s%.0d", out ? "out" : "in", made ? made + 1 : 0); /* 0: no digit */
		put_copies(p, all ? block : fo_edit_split(p, block, suffix, alike), &layer[l], distance, out);
		made++;
		if (all)
			break;
	}
	free(alike);
}

fo_status fo_pass_offload_legal(const struct fo_program *p)
{
	int64_t n = p->run.pass.offload;
	if (n < 0 || (p->run.mode == FO_MODE_TRAIN && n >= p->model.layers))
		return fo_fail(FO_EARG,
			       "activations of %lld of %lld %s: backward begins with the last layer's, so at most "
			       "those of %lld can wait elsewhere",
			       (long long)n, (long long)p->model.layers, fo_word(p->model.layers, "layer", "layers"),
			       (long long)p->model.layers - 1);
	return FO_OK;
}

void fo_pass_offload(struct fo_program *p)
{
	int64_t layers = p->run.pass.offload;
	if (p->run.mode != FO_MODE_TRAIN)
		return;
	int64_t between = p->model.layers - 1 - layers;
	int out = (int)fo_clamp(between, 1, INT8_MAX); /* an operand's dlayer */
	int in = p->run.micro_batches > 1 || p->run.pass.optimizer_in_backward ? out : 1;
	struct layer *layer = fo_xmalloc((size_t)layers * sizeof *layer);
	memset(layer, 0, (size_t)layers * sizeof *layer);
	for (int s = p->nslot - 1; s >= 0; s--) {
		const struct fo_slot *at = &p->slot[s];
		if (at->layer < layers && is_layer(p, at->block, FO_ROLE_FORWARD))
			layer[at->layer].forward = at->block;
		else if (at->layer < layers && is_layer(p, at->block, FO_ROLE_BACKWARD))
			layer[at->layer].backward = at->block;
	}
	for (int64_t l = 0; l < layers; l++)
		find_kept(p, &layer[l]);
	for (int b = 0, blocks = p->nblock; b < blocks; b++)
		if (is_layer(p, b, FO_ROLE_FORWARD))
			split_block(p, b, layer, layers, out, true);
		else if (is_layer(p, b, FO_ROLE_BACKWARD))
			split_block(p, b, layer, layers, in, false);
	for (int64_t l = 0; l < layers; l++) {
		free(layer[l].out);
		free(layer[l].in);
	}
	free(layer);
}
