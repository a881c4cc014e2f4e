/* Ranks as a mesh: groups, places in them, and the rows that each has. */
#include "program/program.h"

#include <stdio.h>
#include <string.h>

/* Ranks of a group are `stride` apart. */
static int32_t stride_of(const struct fo_mesh *m, enum fo_group g)
{
	if (g == FO_GROUP_REPLICATE)
		return fo_mesh_tp(m) * fo_mesh_cp(m) * (m->shard ? m->shard : 1);
	return g == FO_GROUP_DATA || g == FO_GROUP_SHARD || g == FO_GROUP_CP ? fo_mesh_tp(m) : 1;
}

int32_t fo_mesh_group(const struct fo_mesh *m, enum fo_group g, int32_t *place, int32_t *colour)
{
	const int32_t stride = stride_of(m, g);
	int32_t ranks = 1;
	switch (g) {
	case FO_GROUP_DATA: ranks = fo_mesh_data(m) * fo_mesh_cp(m); break;
	case FO_GROUP_SHARD: ranks = (m->shard ? m->shard : 1) * fo_mesh_cp(m); break;
	case FO_GROUP_REPLICATE: ranks = m->replicate ? m->replicate : 1; break;
	case FO_GROUP_CP: ranks = fo_mesh_cp(m); break;
	case FO_GROUP_TP: ranks = fo_mesh_tp(m); break;
	case FO_GROUP_ALL: ranks = fo_mesh_ranks(m); break;
	case FO_GROUP_NONE:
	case FO_GROUP_COUNT: break;
	}
	if (place)
		*place = m->rank / stride % ranks;
	if (colour)
		*colour = m->rank / (stride * ranks) * stride + m->rank % stride;
	return ranks;
}

bool fo_mesh_is_sound(const struct fo_mesh *m)
{
	const int32_t axis[] = { m->replicate, m->shard, m->cp, m->tp };
	int64_t ranks = 1;
	for (size_t i = 0; i < sizeof axis / sizeof *axis; i++) {
		if (axis[i] < 0)
			return false;
		ranks *= axis[i] ? axis[i] : 1;
		if (ranks > FO_MESH_RANKS_MOST)
			return false;
	}
	return true;
}

int32_t fo_mesh_member(const struct fo_mesh *m, enum fo_group g, int32_t place)
{
	int32_t own;
	fo_mesh_group(m, g, &own, NULL);
	return m->rank + (place - own) * stride_of(m, g);
}

int64_t fo_mesh_part(int64_t n, int32_t place, int32_t ranks, int64_t *begin)
{
	*begin = n * place / ranks;
	return n * (place + 1) / ranks - *begin;
}

int32_t fo_buffer_holders(const struct fo_mesh *m, const struct fo_buffer *b, int32_t *place)
{
	const bool divided = b->tp == FO_TP_ROWS || b->tp == FO_TP_COLS;
	int32_t same, in_tp;
	const int32_t ranks = fo_mesh_group(m, b->whole ? FO_GROUP_REPLICATE : FO_GROUP_DATA, &same, NULL);
	const int32_t tp = fo_mesh_group(m, FO_GROUP_TP, &in_tp, NULL);
	*place = divided ? same : same * tp + in_tp;
	return divided ? ranks : ranks * tp;
}

/* ---- tensor parallel ---- */

struct shared {
	const char *what;
	int64_t n;
};
enum { SHARED = 4 };

static void shared_of(const struct fo_model *m, int64_t tokens, struct shared out[SHARED])
{
	const struct shared all[SHARED] = { { "attention heads", m->heads },
					    { "key and value heads", m->kv_heads },
					    { "columns of the feed-forward layer", m->ffn },
					    { "tokens of a micro-batch", tokens } };
	memcpy(out, all, sizeof all);
}

static bool divides_all(const struct shared s[SHARED], int32_t tp)
{
	for (int i = 0; i < SHARED; i++)
		if (s[i].n % tp)
			return false;
	return true;
}

fo_status fo_mesh_tp_legal(const struct fo_model *m, int64_t tokens, int32_t tp)
{
	struct shared s[SHARED];
	int32_t below = tp - 1, above = tp + 1;
	int bad = 0;
	shared_of(m, tokens, s);
	if (tp < 2 || divides_all(s, tp))
		return FO_OK;
	while (s[bad].n % tp == 0)
		bad++;
	while (!divides_all(s, below)) /* 1 divides everything */
		below--;
	while (above <= m->kv_heads && !divides_all(s, above))
		above++;
	fo_status st = fo_fail(FO_EARG, "%d ranks of a tp group cannot share %lld %s evenly", tp, (long long)s[bad].n,
			       s[bad].what);
	if (above <= m->kv_heads)
		return fo_hint(st, "mesh.tp=%d or %d can share all that is divided", below, above);
	return fo_hint(st, "mesh.tp=%d is the most that can share all that is divided", below);
}

/* ---- context parallel ---- */

fo_status fo_mesh_cp_legal(int64_t seq, int32_t cp)
{
	int64_t below = cp - 1, above = cp + 1, shorter = seq / (2 * (int64_t)cp) * 2 * cp;
	char rows[64], more[32] = "";
	if (cp < 2 || seq % (2 * (int64_t)cp) == 0)
		return FO_OK;
	while (below > 1 && seq % (2 * below))
		below--;
	while (2 * above <= seq && seq % (2 * above))
		above++;
	fo_status st = fo_fail(
		FO_EARG,
		"%d ranks of a cp group cannot share rows of %lld tokens: each has two chunks of a row, so "
		"its tokens must be a multiple of %lld",
		cp, (long long)seq, 2LL * cp);
	if (2 * above <= seq)
		snprintf(more, sizeof more, " or %lld", (long long)above);
	if (shorter)
		snprintf(rows, sizeof rows, "%lld or %lld", (long long)shorter, (long long)shorter + 2 * cp);
	else
		snprintf(rows, sizeof rows, "%lld", 2LL * cp);
	return fo_hint(st, "mesh.cp=%lld%s can share them; or data.seq=%s", (long long)below, more, rows);
}

bool fo_operand_divided(const struct fo_program *p, const struct fo_operand *a, bool *rows, bool *cols)
{
	const struct fo_buffer *b = &p->buf[a->buf];
	*rows = b->tp == FO_TP_ROWS;
	*cols = b->tp == FO_TP_COLS;
	if (p->run.pass.tp && b->tp == FO_TP_WHOLE && b->row_axis == FO_AXIS_TOKENS) {
		/* Own tokens of a buffer that has all. */
		int32_t place, ranks = fo_mesh_group(&p->run.mesh, FO_GROUP_TP, &place, NULL);
		int64_t begin, n = fo_mesh_part(b->rows, place, ranks, &begin);
		*rows = ranks > 1 && a->r0 >= begin && a->r0 + a->nr <= begin + n;
	}
	return *rows || *cols;
}
