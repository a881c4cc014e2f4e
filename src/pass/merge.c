/* merge-qkv and merge-gate-up: products that read the same input become one.
 *
 * Forward the input is packed and read once and the product is wider; backward the gradient of the input is one product
 * over the joint depth instead of several that add to each other, and the weight gradient is one product too. The
 * merged tensors are buffers of their own (wqkv, gateup, ...); what was a tensor is a rectangle of it, for checkpoints
 * as for attention. NVIDIA Megatron-LM and many others; the seeds' document 001 names both. */
#include "pass/pass.h"

#include <stdio.h>

enum { MOST = 4 };

/* Joins prefix+name[0..n-1] into prefix+merged where they exist. */
static void concat(struct fo_program *p, const char *prefix, const char *const *name, int n, const char *merged,
		   bool by_rows)
{
	int ids[MOST];
	char text[48];
	for (int i = 0; i < n; i++) {
		snprintf(text, sizeof text, "%s%s", prefix, name[i]);
		ids[i] = fo_buffer_find(p, text);
		if (ids[i] < 0)
			return;
	}
	snprintf(text, sizeof text, "%s%s", prefix, merged);
	fo_edit_concat(p, text, ids, n, by_rows);
}

static void concat_parameters(struct fo_program *p, const char *const *name, int n, const char *merged, bool by_rows)
{
	static const char *const prefix[] = { "", "w32.", "m.", "v.", "d." };
	for (int i = 0; i < 5; i++)
		concat(p, prefix[i], name, n, merged, by_rows);
}

static void concat_values(struct fo_program *p, const char *const *name, int n, const char *merged)
{
	concat(p, "", name, n, merged, false);
	concat(p, "d.", name, n, merged, false);
}

fo_status fo_pass_merge_qkv(struct fo_program *p)
{
	static const char *const weight[] = { "wq", "wk", "wv" }, *const bias[] = { "bq", "bk", "bv" };
	static const char *const plain[] = { "q", "k", "v" }, *const normed[] = { "qp", "kp", "v" };
	concat_parameters(p, weight, 3, "wqkv", true);
	concat_parameters(p, bias, 3, "bqkv", false);
	concat_values(p, p->model.qk_norm ? normed : plain, 3, "qkv");
	fo_edit_join(p);
	fo_edit_sweep(p);
	return FO_OK;
}

fo_status fo_pass_merge_gate_up(struct fo_program *p)
{
	static const char *const weight[] = { "wg", "wu" }, *const bias[] = { "bg", "bu" },
				 *const value[] = { "gate", "up" };
	concat_parameters(p, weight, 2, "wgu", true);
	concat_parameters(p, bias, 2, "bgu", false);
	concat_values(p, value, 2, "gateup");
	fo_edit_join(p);
	fo_edit_sweep(p);
	return FO_OK;
}
