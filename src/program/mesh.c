/* Ranks as a mesh: groups, places in them, and the rows that each has. */
#include "program/mesh_cost.h"
#include "program/ring.h"
#include "program/schedule.h"

#include "base/count.h"

#include <stdio.h>
#include <string.h>

/* Ranks of a group are `stride` apart. */
static int32_t stride_of(const struct fo_mesh *m, enum fo_group g)
{
	if (g == FO_GROUP_HEADS)
		return fo_mesh_kv(m);
	if (g == FO_GROUP_PP)
		return fo_mesh_stage_ranks(m);
	if (g == FO_GROUP_ENDS)
		return fo_mesh_stage_ranks(m) * (fo_mesh_pp(m) - 1);
	if (g == FO_GROUP_REPLICATE)
		return fo_mesh_tp(m) * fo_mesh_cp(m) * (m->shard ? m->shard : 1);
	return g == FO_GROUP_DATA || g == FO_GROUP_SHARD || g == FO_GROUP_CP ? fo_mesh_tp(m) : 1;
}

/* The first and the last stage's ranks in the same place; others are alone, and so are all without a pipeline. */
static int32_t ends_group(const struct fo_mesh *m, int32_t *place, int32_t *colour)
{
	const int32_t stage = fo_mesh_stage(m), last = fo_mesh_pp(m) - 1;
	const bool pair = last && (stage == 0 || stage == last);
	if (place)
		*place = pair && stage == last;
	if (colour)
		*colour = pair ? m->rank % fo_mesh_stage_ranks(m) : m->rank;
	return pair ? 2 : 1;
}

int32_t fo_mesh_group(const struct fo_mesh *m, enum fo_group g, int32_t *place, int32_t *colour)
{
	if (g == FO_GROUP_ENDS)
		return ends_group(m, place, colour);
	const int32_t stride = stride_of(m, g);
	int32_t ranks = 1;
	switch (g) {
	case FO_GROUP_DATA: ranks = fo_mesh_data(m) * fo_mesh_cp(m); break;
	case FO_GROUP_SHARD: ranks = (m->shard ? m->shard : 1) * fo_mesh_cp(m); break;
	case FO_GROUP_REPLICATE: ranks = m->replicate ? m->replicate : 1; break;
	case FO_GROUP_CP: ranks = fo_mesh_cp(m); break;
	case FO_GROUP_TP: ranks = fo_mesh_tp(m); break;
	case FO_GROUP_KV: ranks = fo_mesh_kv(m); break;
	case FO_GROUP_HEADS: ranks = fo_mesh_tp(m) / fo_mesh_kv(m); break;
	case FO_GROUP_ALL: ranks = fo_mesh_stage_ranks(m); break;
	case FO_GROUP_PP: ranks = fo_mesh_pp(m); break;
	case FO_GROUP_ENDS:
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
	const int32_t axis[] = { m->replicate, m->shard, m->cp, m->tp, m->pp };
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
	const bool own = b->tp == FO_TP_ROWS || b->tp == FO_TP_COLS;
	int32_t same, of_tp;
	const int32_t ranks = fo_mesh_group(m, b->whole ? FO_GROUP_REPLICATE : FO_GROUP_DATA, &same, NULL);
	const int32_t tp = fo_mesh_group(m, fo_tp_is_kv(b->tp) ? FO_GROUP_KV : FO_GROUP_TP, &of_tp, NULL);
	const int32_t here = own ? ranks : ranks * tp;
	int32_t end = 0;
	const int32_t ends = b->stage == FO_STAGE_ENDS ? fo_mesh_group(m, FO_GROUP_ENDS, &end, NULL) : 1;
	*place = (own ? same : same * tp + of_tp) + end * here;
	return here * ends;
}

/* ---- tensor parallel ---- */

struct shared {
	const char *what;
	int64_t n;
};
enum { SHARED = 5, KV = 1 };

static void shared_of(const struct fo_model *m, int64_t tokens, struct shared out[SHARED])
{
	const struct shared all[SHARED] = { { "attention heads", m->heads },
					    { "key and value heads", m->kv_heads },
					    { "columns of the feed-forward layer", m->ffn },
					    { "tokens of a micro-batch", tokens },
					    { "words of the vocabulary", m->vocab } };
	memcpy(out, all, sizeof all);
}

/* Key and value heads may also be the same on several ranks, and words need not be equally many. */
static bool divides(const struct shared s[SHARED], int i, int32_t tp)
{
	if (i == SHARED - 1)
		return s[i].n >= tp;
	return s[i].n % tp == 0 || (i == KV && tp % s[i].n == 0);
}

static bool divides_all(const struct shared s[SHARED], int32_t tp)
{
	for (int i = 0; i < SHARED; i++)
		if (!divides(s, i, tp))
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
	while (divides(s, bad, tp))
		bad++;
	while (!divides_all(s, below)) /* 1 divides everything */
		below--;
	while (above <= m->heads && !divides_all(s, above))
		above++;
	fo_status st = fo_fail(FO_EARG, "%d ranks of a tp group cannot share %lld %s evenly", tp, (long long)s[bad].n,
			       s[bad].what);
	if (above <= m->heads)
		return fo_hint(st, "mesh.tp=%d or %d can share all that is divided", below, above);
	return fo_hint(st, "mesh.tp=%d is the most that can share all that is divided", below);
}

/* ---- stages of a pipeline ---- */

struct fo_pp_shape fo_lowering_pipeline(const struct fo_lowering *run)
{
	const enum fo_pp_kind kind = (enum fo_pp_kind)(run->pass.pp ? run->pass.pp - 1 : 0);
	return (struct fo_pp_shape){ .kind = kind,
				     .stages = fo_mesh_pp(&run->mesh),
				     .micro_batches = (int32_t)run->micro_batches,
				     .chunks = run->pass.pp_chunks ? (int32_t)run->pass.pp_chunks
								   : fo_pp_chunks_usual(kind) };
}

static fo_status check_schedule(const struct fo_pp_shape *shape)
{
	struct fo_pp_plan plan;
	FO_TRY(fo_pp_legal(shape));
	if (shape->kind != FO_PP_DUALPIPE_V) /* all others run on lanes, with any number of stages */
		return FO_OK;
	fo_pp_plan_of(&plan, shape);
	const fo_status st = fo_pp_check(&plan, FO_PP_LANES);
	fo_pp_plan_free(&plan);
	if (st == FO_OK)
		return FO_OK;
	fo_err_clear();
	return fo_hint(
		fo_fail(FO_EARG,
			"dualpipe-v of %d stages needs messages that overtake each other, and lanes between ranks "
			"keep their order: they would wait for ever",
			shape->stages),
		"5 stages or fewer, or pass.pp=zb-h1");
}

static fo_status check_repeats(const struct fo_lowering *run, const struct fo_pp_shape *shape)
{
	const struct fo_staging *s = &run->stages;
	if (s->repeats && s->repeats != shape->stages)
		return fo_fail(FO_EARG, "what %d stages recompute is listed, and there are %d", s->repeats,
			       shape->stages);
	for (int32_t i = 0; i < s->repeats; i++)
		if (s->repeat[i].rest & ~s->repeat[i].first)
			return fo_fail(FO_EARG, "the rest of stage %d's layers recompute more than the first ones", i);
	return FO_OK;
}

/* Layers that are listed by part. */
static fo_status check_parts(const struct fo_lowering *run, const struct fo_pp_shape *shape, int64_t layers)
{
	const struct fo_staging *s = &run->stages;
	const int32_t parts = fo_pp_parts(shape);
	int64_t sum = 0;
	for (int32_t i = 0; i < s->parts && i < FO_STAGING_MOST; i++) {
		if (s->layers[i] < 1)
			return fo_fail(FO_EARG, "part %d of the pipeline is to have %d layers: each part needs one", i,
				       s->layers[i]);
		sum += s->layers[i];
	}
	if (s->parts != parts)
		return fo_hint(fo_fail(FO_EARG, "layers of %d parts are listed, and %d stages x %d part%s are %d",
				       s->parts, shape->stages, shape->chunks, fo_plural(shape->chunks), parts),
			       "list one number of layers for each part, in the order of the model");
	if (sum == layers)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "the parts of the pipeline are to have %lld layers together, and the model has "
			       "%lld",
			       (long long)sum, (long long)layers),
		       "mesh.pp-layers=balanced divides them by time and memory");
}

fo_status fo_lowering_check_pipeline(const struct fo_lowering *run, int64_t layers)
{
	const int32_t stages = fo_mesh_pp(&run->mesh);
	if (stages < 2)
		return FO_OK;
	if (run->pass.pp < 1 || run->pass.pp > FO_PP_KINDS_COUNT || run->pass.pp_chunks < 0 ||
	    run->pass.pp_chunks > FO_PP_CHUNKS_MOST)
		return fo_fail(FO_EARG, "%d stages of a pipeline need a schedule: pass.pp names one", stages);
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	if (run->mode == FO_MODE_TRAIN) /* evaluation goes forward alone, in any schedule's parts */
		FO_TRY(check_schedule(&shape));
	const int64_t parts = (int64_t)shape.stages * shape.chunks;
	FO_TRY(check_repeats(run, &shape));
	if (run->stages.parts)
		return check_parts(run, &shape, layers);
	if (layers >= parts)
		return FO_OK;
	fo_status st = fo_fail(FO_EARG, "%d stages x %d part%s of the model cannot share %lld layer%s: each needs one",
			       stages, shape.chunks, fo_plural(shape.chunks), (long long)layers, fo_plural(layers));
	const int64_t most = layers / shape.chunks;
	return most > 1 ? fo_hint(st, "mesh.pp=%lld is the most that this model has layers for", (long long)most)
			: fo_hint(st, "a model with more layers, or mesh.pp=1");
}

int32_t fo_lowering_part(const struct fo_lowering *run, int64_t layers, int32_t part, int32_t *begin)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	const struct fo_staging *s = &run->stages;
	*begin = 0;
	if (part < s->parts) {
		for (int32_t i = 0; i < part; i++)
			*begin += s->layers[i];
		return s->layers[part];
	}
	int64_t from, n = fo_mesh_part(layers, part, fo_pp_parts(&shape), &from);
	*begin = (int32_t)from;
	return (int32_t)n;
}

void fo_lowering_parts_text(const struct fo_lowering *run, int64_t layers, struct fo_str *out)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	for (int32_t i = 0, begin; i < fo_pp_parts(&shape); i++)
		fo_str_printf(out, "%s%d", i ? ", " : "", fo_lowering_part(run, layers, i, &begin));
}

/* Is one of the own stage's chunks this part, or has it this layer? */
static bool has_part(const struct fo_lowering *run, int64_t layers, int32_t part, int64_t layer)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(run);
	for (int32_t c = 0; c < shape.chunks; c++) {
		const int32_t at = fo_pp_position(&shape, fo_mesh_stage(&run->mesh), c);
		int32_t begin, n = fo_lowering_part(run, layers, at, &begin);
		if (at == part || (layer >= begin && layer < begin + n))
			return true;
	}
	return false;
}

void fo_lowering_repeat(struct fo_lowering *run, int64_t layers)
{
	const int32_t stage = fo_mesh_stage(&run->mesh);
	int64_t own = 0, end = 0;
	if (fo_mesh_pp(&run->mesh) < 2 || stage >= run->stages.repeats)
		return;
	const struct fo_stage_repeat r = run->stages.repeat[stage];
	for (int64_t l = 0; l < layers; l++)
		if (has_part(run, layers, -1, l) && ++own == r.layers)
			end = l + 1;
	const bool some = r.layers && r.layers < own;
	run->pass.recompute = r.layers ? r.first : r.rest;
	run->pass.recompute_layers = some ? end : 0;
	run->pass.recompute_rest = some ? r.rest : 0;
}

bool fo_program_has_layer(const struct fo_program *p, int64_t layer)
{
	return p->staged ? has_part(&p->run, p->model.layers, -1, layer) : layer >= 0 && layer < p->model.layers;
}

int64_t fo_program_layers(const struct fo_program *p)
{
	int64_t n = 0;
	for (int64_t l = 0; l < p->model.layers; l++)
		n += fo_program_has_layer(p, l);
	return n;
}

bool fo_program_has(const struct fo_program *p, const struct fo_buffer *b, int64_t layer)
{
	return b->stage != FO_STAGE_ABSENT && (!(b->axes & FO_PER_LAYER) || fo_program_has_layer(p, layer));
}

bool fo_program_has_embedding(const struct fo_program *p)
{
	return !p->staged || has_part(&p->run, p->model.layers, 0, -1);
}

bool fo_program_has_head(const struct fo_program *p)
{
	const struct fo_pp_shape shape = fo_lowering_pipeline(&p->run);
	return !p->staged || has_part(&p->run, p->model.layers, fo_pp_parts(&shape) - 1, -1);
}

/* ---- context parallel ---- */

fo_status fo_mesh_cp_legal(int64_t seq, int32_t cp)
{
	char rows[64];
	if (cp < 2 || seq % (2 * (int64_t)cp) == 0)
		return FO_OK;
	/* A divisor of cp: that many ranks divide whatever number there is. */
	int64_t below = cp / 2, shorter = seq / (2 * (int64_t)cp) * 2 * cp;
	while (below > 1 && (cp % below || seq % (2 * below)))
		below--;
	fo_status st = fo_fail(
		FO_EARG,
		"%d ranks of a cp group cannot share rows of %lld tokens evenly: each has two chunks of a "
		"row, so its tokens must be a multiple of %lld",
		cp, (long long)seq, 2LL * cp);
	if (shorter)
		snprintf(rows, sizeof rows, "%lld or %lld", (long long)shorter, (long long)shorter + 2 * cp);
	else
		snprintf(rows, sizeof rows, "%lld", 2LL * cp);
	return fo_hint(st, "data.seq=%s can be shared; or mesh.cp=%lld, with %lld times fewer ranks", rows,
		       (long long)below, (long long)(cp / below));
}

static bool heads_can(const struct fo_model *m, int64_t tokens, int32_t cp, int32_t tp)
{
	const int64_t kv = m->kv_heads % tp ? 1
					    : m->kv_heads / tp; /* fewer than tp: one each, as pass tp copies them */
	const bool divided = m->heads % ((int64_t)tp * cp) == 0 && fo_heads_each(kv, cp);
	return tokens % cp == 0 && (divided || m->heads % tp); /* what tp cannot divide, pass tp says */
}

fo_status fo_mesh_cp_heads_legal(const struct fo_model *m, int64_t tokens, int32_t cp, int32_t tp)
{
	const int64_t most = m->heads / tp;
	int64_t below = cp - 1, above = cp + 1;
	char each[48] = "", more[32] = "";
	if (cp < 2 || heads_can(m, tokens, cp, tp))
		return FO_OK;
	while (!heads_can(m, tokens, (int32_t)below, tp)) /* one rank can */
		below--;
	while (above <= most && !heads_can(m, tokens, (int32_t)above, tp))
		above++;
	if (tp > 1)
		snprintf(each, sizeof each, " that each of %d tp ranks has", tp);
	if (above <= most)
		snprintf(more, sizeof more, " or %lld", (long long)above);
	fo_status st;
	if (m->heads % tp == 0 && most % cp)
		st = fo_fail(FO_EARG, "%d ranks of a cp group cannot share the %lld attention heads%s evenly", cp,
			     (long long)most, each);
	else if (tokens % cp)
		st = fo_fail(FO_EARG, "%d ranks of a cp group cannot share the %lld tokens of a micro-batch evenly", cp,
			     (long long)tokens);
	else
		st = fo_fail(FO_EARG,
			     "%d ranks of a cp group cannot share the %lld key and value heads%s: neither divides the "
			     "other",
			     cp, (long long)(m->kv_heads % tp ? 1 : m->kv_heads / tp), each);
	return fo_hint(st, "pass.cp=heads can have mesh.cp=%lld%s; pass.cp=ring divides no heads", (long long)below,
		       more);
}

/* ---- what a run can have ---- */

fo_status fo_mesh_check(const struct fo_mesh *m)
{
	if (!fo_mesh_is_sound(m) || m->rank < 0 || m->rank >= fo_mesh_ranks(m))
		return fo_fail(
			FO_EARG,
			"cannot lower rank %d of a mesh of %d x %d x %d x %d x %d: at most %d ranks, counted from 0",
			m->rank, m->pp, m->replicate, m->shard, m->cp, m->tp, FO_MESH_RANKS_MOST);
	return FO_OK;
}

fo_status fo_mesh_tokens_legal(const struct fo_model *m, const struct fo_lowering *run)
{
	const int32_t cp = fo_mesh_cp(&run->mesh);
	if (run->pass.cp == FO_CP_HEADS)
		return fo_mesh_cp_heads_legal(m, run->seq * run->rows, cp, run->pass.tp ? fo_mesh_tp(&run->mesh) : 1);
	return fo_mesh_cp_legal(run->seq, cp);
}

fo_status fo_mesh_attention_legal(const struct fo_lowering *run)
{
	if (fo_mesh_cp(&run->mesh) < 2 || run->pass.cp != FO_CP_RING || run->pass.attention != FO_ATTENTION_EAGER)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG,
			       "eager attention has the probabilities of whole rows, which no rank of a cp group sees"),
		       "pass.attention=flash, pass.cp=heads, or mesh.cp=1");
}

fo_status fo_mesh_pieces_legal(int64_t own, int64_t pieces)
{
	int64_t below = pieces, above = pieces;
	if (own % pieces == 0)
		return FO_OK;
	while (own % below)
		below--;
	while (above < own && own % above)
		above++;
	const fo_status st = fo_fail(FO_EARG, "%lld tokens of a rank cannot be %lld equal pieces", (long long)own,
				     (long long)pieces);
	const bool more = above <= FO_TP_ASYNC_MOST && own % above == 0;
	if (below < 2 && !more)
		return fo_hint(st, "use pass.tp-async=0 for none");
	if (!more)
		return fo_hint(st, "use pass.tp-async=%lld, or 0 for none", (long long)below);
	if (below < 2)
		return fo_hint(st, "use pass.tp-async=%lld, or 0 for none", (long long)above);
	return fo_hint(st, "use pass.tp-async=%lld or %lld", (long long)below, (long long)above);
}

fo_status fo_mesh_shards_legal(int64_t most_rows, int32_t ranks)
{
	if (most_rows >= ranks)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "no weight has as many rows as there are ranks in a shard group, %d", ranks),
		       "a smaller mesh.shard, with mesh.replicate for the other ranks, trains this model");
}

/* Of a rank's weights: those of the vocabulary, and of the layers, which merges make longer. */
static int64_t most_rows(const struct fo_model *m, const struct fo_lowering *run)
{
	struct fo_mesh mesh = run->mesh;
	const int32_t tp = run->pass.tp ? fo_mesh_tp(&mesh) : 1;
	int32_t place;
	int64_t begin;
	mesh.kv = run->pass.tp ? fo_mesh_kv_of(m, tp) : 1;
	fo_mesh_group(&mesh, FO_GROUP_TP, &place, NULL);
	const int64_t q = m->heads * m->head_dim / tp, k = m->kv_heads * m->head_dim / (tp / mesh.kv),
		      f = m->ffn / tp * (1 + (run->pass.merge_gate_up != 0)),
		      v = fo_mesh_part(m->vocab, run->pass.tp ? place : 0, tp, &begin);
	const int64_t qkv = run->pass.merge_qkv && mesh.kv < 2 ? q + 2 * k : fo_max(q, k);
	return fo_max(fo_max(v, m->hidden), fo_max(qkv, f));
}

fo_status fo_mesh_legal(const struct fo_model *m, const struct fo_lowering *run)
{
	const struct fo_passes *c = &run->pass;
	const int32_t tp = fo_mesh_tp(&run->mesh), shard = fo_mesh_group(&run->mesh, FO_GROUP_SHARD, NULL, NULL);
	FO_TRY(fo_mesh_check(&run->mesh));
	FO_TRY(fo_mesh_tokens_legal(m, run));
	FO_TRY(fo_lowering_check_pipeline(run, m->layers));
	const int64_t tokens = run->seq * run->rows / fo_mesh_cp(&run->mesh);
	if (c->tp)
		FO_TRY(fo_mesh_tp_legal(m, tokens, tp));
	FO_TRY(fo_mesh_attention_legal(run));
	if (tp > 1 && c->tp == FO_TP_SEQUENCE && c->tp_async > FO_TP_ASYNC_AUTO)
		FO_TRY(fo_mesh_pieces_legal(tokens / tp, c->tp_async));
	return c->zero && shard > 1 ? fo_mesh_shards_legal(most_rows(m, run), shard) : FO_OK;
}

bool fo_operand_divided(const struct fo_program *p, const struct fo_operand *a, uint8_t *rows, uint8_t *cols)
{
	const int part = p->buf[a->buf].tp;
	const bool kv = fo_mesh_kv(&p->run.mesh) > 1, heads = fo_mesh_kv(&p->run.mesh) < fo_mesh_tp(&p->run.mesh);
	uint8_t set = heads ? FO_ACROSS_HEADS : 0;
	if (kv && !fo_tp_is_kv(part))
		set |= FO_ACROSS_KV;
	*rows = part == FO_TP_ROWS || part == FO_TP_KV_ROWS ? set : 0;
	*cols = part == FO_TP_COLS || part == FO_TP_KV_COLS ? set : 0;
	return *rows || *cols;
}
