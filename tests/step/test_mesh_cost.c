/* What a mesh costs in closed form (program/mesh_cost.h) against the programs that passes make: random models, meshes
 * of up to 512 ranks, pipelines, passes and ranks in them. FLATOUT_MESH_CASES asks for another number of cases,
 * FLATOUT_RANK_SEED for others. Legality is alike, with the same words; bytes on the wire, by group and
 * lane, and bytes that persist are equal; what lives in the arena lies between the bounds. That transports carry what
 * programs say is test_data_parallel.c's affair.
 *
 * And what pass/planned.h says of the memory of all ranks, from few programs and few micro-batches, against the plans
 * of all programs, each lowered whole as the executor does. FLATOUT_PLANNED_CASES asks for another number of those. */
#include "base/clock.h"
#include "pass/pass.h"
#include "pass/planned.h"
#include "program/mesh_cost.h"
#include "support/choices.h"
#include "support/must.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>

enum { CASES = 2000 };

struct drawn {
	struct fo_model m;
	struct fo_lowering low;
	char label[600];
};

static struct fo_model draw_model(int32_t tp)
{
	struct fo_model m = choices_small_model();
	m.layers = 1 + choices_draw(6);
	if (choices_draw(4)) { /* one that tp ranks can share, often */
		m.kv_heads *= choices_draw(2) ? tp : 1;
		m.heads = m.kv_heads * (1 + choices_draw(4));
		while (choices_draw(4) && m.heads % tp)
			m.heads += m.kv_heads;
		m.ffn += (tp - m.ffn % tp) % tp;
	}
	if (choices_draw(4) == 0) {
		m.hidden *= 8;
		m.ffn *= 8;
	}
	if (choices_draw(4) == 0)
		m.vocab *= 30;
	return m;
}

static void draw_passes(struct fo_passes *p, const struct drawn *x)
{
	const struct fo_mesh *mesh = &x->low.mesh;
	*p = choices_passes(&x->m);
	p->offload = 0;
	p->ddp = fo_mesh_ranks(mesh) > 1 ? 1 + choices_draw(30) : 0;
	p->reduce_late = choices_draw(4) == 0;
	choices_zero(p, fo_mesh_group(mesh, FO_GROUP_SHARD, NULL, NULL));
	if (mesh->cp > 1)
		p->cp = 1 + choices_draw(FO_CP_COUNT - 1);
	if (mesh->tp > 1)
		p->tp = 1 + choices_draw(FO_TP_COUNT - 1);
	if (p->tp == FO_TP_SEQUENCE)
		p->tp_async = choices_draw(5);
	if (x->low.precision != FO_PRECISION_F64)
		p->reduce_dtype = choices_draw(FO_REDUCE_COUNT);
	if (x->low.precision == FO_PRECISION_BF16) {
		p->master = choices_draw(FO_MASTER_COUNT);
		p->moments = choices_draw(FO_MOMENTS_COUNT);
		p->rounding = choices_draw(FO_ROUND_COUNT);
	}
}

static void draw(struct drawn *x)
{
	static const int32_t axis[] = { 1, 1, 1, 2, 2, 3, 4, 5, 8 };
	struct fo_mesh *mesh = &x->low.mesh;
	*mesh = (struct fo_mesh){ .tp = axis[choices_draw(9)] };
	x->m = draw_model(mesh->tp);
	x->low = (struct fo_lowering){ .seq = 4 * (1 + choices_draw(12)),
				       .rows = 1 + choices_draw(4),
				       .micro_batches = 1 + choices_draw(4),
				       .precision = (enum fo_numerics)choices_draw(FO_PRECISION_COUNT),
				       .mode = FO_MODE_TRAIN,
				       .mesh = *mesh };
	x->low.seq += choices_draw(4) == 0;
	do {
		mesh->cp = axis[choices_draw(9)];
		mesh->shard = axis[choices_draw(9)] * axis[choices_draw(4)];
		mesh->replicate = axis[choices_draw(9)];
		mesh->pp = choices_draw(3) ? 1 : (int32_t)(2 + choices_draw(4));
	} while (fo_mesh_ranks(mesh) > 512);
	mesh->rank = (int32_t)choices_draw(fo_mesh_ranks(mesh));
	draw_passes(&x->low.pass, x);
	if (mesh->pp > 1) {
		x->low.pass.pp = 1 + choices_draw(FO_PP_KINDS_COUNT);
		x->low.pass.pp_chunks = x->low.pass.pp == 1 + FO_PP_INTERLEAVED ? 2 * choices_draw(3) : 0;
		x->low.micro_batches += choices_draw(3) * mesh->pp;
		choices_parts(&x->low, x->m.layers);
	}
	int n = snprintf(x->label, sizeof x->label,
			 "rank %d of %d x %d x %d x %d x %d, pp %d x %d, %d micro-batches of %d x %d, ", mesh->rank,
			 mesh->pp, mesh->replicate, mesh->shard, mesh->cp, mesh->tp, (int)x->low.pass.pp,
			 (int)x->low.pass.pp_chunks, (int)x->low.micro_batches, (int)x->low.rows, (int)x->low.seq);
	choices_describe(x->label + n, sizeof x->label - (size_t)n, &x->m, &x->low);
}

static struct fo_mesh_wire counted(const struct fo_program *p)
{
	struct fo_mesh_wire w = { .all = 0 };
	for (int s = 0; s < p->nslot; s++)
		for (int i = 0; i < p->block[p->slot[s].block].n; i++) {
			const struct fo_op *o = &p->block[p->slot[s].block].op[i];
			if (fo_op_info(o->kind)->cls != FO_CLASS_COMM)
				continue;
			const double bytes = fo_op_cost(p, o, -1).wire;
			w.group[o->group] += bytes;
			w.lane[o->lane] += bytes;
			w.all += bytes;
		}
	return w;
}

static void equal(double got, double want, const char *what, const struct drawn *x)
{
	if (got < want || got > want)
		fail_msg("%s: %s: %.17g, the program has %.17g", x->label, what, got, want);
}

/* What legal cases had: a formula that no case needs is not held to anything. */
enum {
	RING,
	HEADS,
	SEQUENCE,
	REPLICATED,
	KV_COPIES,
	ZERO_1,
	ZERO_2,
	ZERO_3,
	FIRST,
	EACH,
	HYBRID,
	CHUNKS,
	REST,
	TIED,
	STAGES,
	LOOPED,
	SPLIT,
	BOTH_ENDS,
	STAGES_SHARE,
	UNLIKE,
	KINDS
};
static int seen[KINDS];

static void see(const struct drawn *x)
{
	const struct fo_passes *c = &x->low.pass;
	const bool is[KINDS] = {
		[RING] = c->cp == FO_CP_RING,
		[HEADS] = c->cp == FO_CP_HEADS,
		[SEQUENCE] = c->tp == FO_TP_SEQUENCE,
		[REPLICATED] = c->tp == FO_TP_REPLICATED,
		[KV_COPIES] = fo_mesh_kv_of(&x->m, fo_mesh_tp(&x->low.mesh)) > 1,
		[ZERO_1] = c->zero == FO_ZERO_STATE,
		[ZERO_2] = c->zero == FO_ZERO_GRADIENTS,
		[ZERO_3] = c->zero == FO_ZERO_WEIGHTS,
		[FIRST] = c->zero_first != 0,
		[EACH] = c->zero_sync && x->low.micro_batches > 1,
		[HYBRID] = c->zero && x->low.mesh.replicate > 1,
		[CHUNKS] = c->tp && c->fuse_loss > 0,
		[REST] = c->recompute && c->recompute_layers && c->recompute_rest,
		[TIED] = c->zero == FO_ZERO_WEIGHTS && x->m.tied,
		[STAGES] = x->low.mesh.pp > 1,
		[LOOPED] = x->low.mesh.pp > 1 && c->pp == 1 + FO_PP_INTERLEAVED,
		[SPLIT] = x->low.mesh.pp > 1 && fo_pp_splits((enum fo_pp_kind)(c->pp - 1)),
		[BOTH_ENDS] = x->low.mesh.pp > 1 && x->m.tied,
		[STAGES_SHARE] = x->low.mesh.pp > 1 && c->zero == FO_ZERO_WEIGHTS,
		[UNLIKE] = x->low.stages.parts || x->low.stages.repeats,
	};
	for (int i = 0; i < KINDS; i++)
		seen[i] += is[i];
}

static double low_most, high_most, low_sum, high_sum; /* shares of the arena */
static int over;                                      /* times that holes took it above the upper bound */

static void compare(const struct drawn *x, const struct fo_program *p)
{
	struct fo_mesh_wire wire;
	struct fo_mesh_memory memory;
	struct fo_unrolled u;
	must(fo_mesh_cost(&x->m, &x->low, &wire, &memory));
	const struct fo_mesh_wire want = counted(p);
	for (int g = 0; g < FO_GROUP_COUNT; g++)
		equal(wire.group[g], want.group[g], fo_group_name[g] ? fo_group_name[g] : "no group", x);
	for (int l = 0; l < FO_LANE_COUNT; l++)
		equal(wire.lane[l], want.lane[l], fo_lane_name[l], x);
	equal(wire.all, fo_program_wire(p), "all", x);
	must(fo_unroll(p, &u));
	fo_plan(p, &u);
	equal((double)memory.persistent, (double)u.persistent_bytes, "what persists", x);
	const double low = (double)memory.arena_low / (double)u.max_live_bytes,
		     live = (double)u.max_live_bytes / (double)memory.arena_high,
		     high = (double)u.arena_bytes / (double)memory.arena_high;
	if (low > 1 || live > 1 || high > FO_MESH_HOLES)
		fail_msg("%s: arena %lld (live %lld) is not between %lld and %lld", x->label, (long long)u.arena_bytes,
			 (long long)u.max_live_bytes, (long long)memory.arena_low, (long long)memory.arena_high);
	low_most = low > low_most ? low : low_most;
	high_most = high > high_most ? high : high_most;
	over += high > 1;
	low_sum += low;
	high_sum += high;
	fo_unrolled_fini(&u);
}

static void test_random_meshes(void **state)
{
	(void)state;
	int legal = 0, refused = 0;
	const char *asked = getenv("FLATOUT_MESH_CASES"), *seed = getenv("FLATOUT_RANK_SEED");
	const int usual = getenv("FLATOUT_SANITIZED") ? CASES / 10 : CASES; /* sanitizers look for other things */
	const int cases = asked ? atoi(asked) : usual;
	choices_seed = seed ? strtoull(seed, NULL, 10) : choices_seed;
	while (legal < cases) {
		struct drawn x;
		struct fo_program p;
		char why[512] = "", hint[512] = "";
		draw(&x);
		if (fo_mesh_legal(&x.m, &x.low) != FO_OK) {
			snprintf(why, sizeof why, "%s", fo_err_text());
			snprintf(hint, sizeof hint, "%s", fo_err_hint());
			fo_err_clear();
		}
		const fo_status st = fo_pass_build(&p, &x.m, &x.low);
		if ((st == FO_OK) != !*why)
			fail_msg("%s: '%s', lowering says '%s'", x.label, why, st == FO_OK ? "" : fo_err_text());
		if (st != FO_OK) {
			if (st != FO_EARG || !strstr(fo_err_text(), why) || strcmp(hint, fo_err_hint()))
				fail_msg("%s: '%s' (%s), lowering says '%s' (%s)", x.label, why, hint, fo_err_text(),
					 fo_err_hint());
			fo_err_clear();
			refused++;
			continue;
		}
		compare(&x, &p);
		see(&x);
		fo_program_fini(&p);
		legal++;
	}
	print_message(
		"%d legal meshes, %d refused; the lower bound is at most %.4f of what lives, %.2f on average; the "
		"arena at most %.3f of the upper bound, %.2f on average, above it in %d cases\n",
		legal, refused, low_most, low_sum / legal, high_most, high_sum / legal, over);
	assert_true(refused > cases / 4);
	for (int i = 0; i < KINDS; i++)
		assert_true(seen[i] >= cases / 100);
}

/* ---- plans of all ranks ---- */

/* Meshes of few ranks and steps of many micro-batches, with fp8 and activations in host memory, too. */
static void draw_many(struct drawn *x, bool stages)
{
	do
		draw(x);
	while (fo_mesh_ranks(&x->low.mesh) > 8 || (x->low.mesh.pp > 1) != stages);
	if (choices_draw(3))
		x->low.micro_batches += choices_draw(x->low.mesh.pp > 1 ? 16 * x->low.mesh.pp : 16);
	if (choices_draw(4) == 0)
		choices_fp8(&x->low.pass, &x->m);
	if (choices_draw(4) == 0)
		x->low.pass.offload = choices_draw(x->m.layers);
}

/* What lowering in full plans, by stage: of the rank that takes most, with what is alive on rank `of`. */
static void plan_whole(const struct drawn *x, const struct fo_planned *of, struct fo_planned *stage)
{
	struct fo_lowering low = x->low;
	const int32_t ranks = fo_mesh_ranks(&low.mesh);
	for (low.mesh.rank = 0; low.mesh.rank < ranks; low.mesh.rank++) {
		struct fo_program p;
		struct fo_unrolled u;
		struct fo_planned *s = &stage[fo_mesh_stage(&low.mesh)];
		must(fo_pass_build_unverified(&p, &x->m, &low)); /* the caller has verified one of them */
		must(fo_unroll(&p, &u));
		fo_plan(&p, &u);
		if (u.persistent_bytes + u.arena_bytes > s->persistent + s->arena) {
			s->persistent = u.persistent_bytes;
			s->arena = u.arena_bytes;
			s->host = u.host_arena_bytes;
		}
		if (low.mesh.rank == of[fo_mesh_stage(&low.mesh)].rank)
			s->live = u.max_live_bytes;
		fo_unrolled_fini(&u);
		fo_program_fini(&p);
	}
}

static void test_planned(void **state)
{
	(void)state;
	enum { USUAL = 20, STAGES = 16 };
	const char *asked = getenv("FLATOUT_PLANNED_CASES");
	const int cases = asked ? atoi(asked) : USUAL;
	int legal = 0, few = 0, staged = 0;
	while (legal < cases) {
		struct drawn x;
		struct fo_planned stage[STAGES] = { 0 }, whole[STAGES] = { 0 };
		struct fo_planned_job job = { .stage = stage };
		struct fo_program p;
		draw_many(&x, legal % 2);
		if (fo_pass_build(&p, &x.m, &x.low) != FO_OK) {
			fo_err_clear();
			continue;
		}
		fo_program_fini(&p);
		must(fo_pass_plan_job(&x.m, &x.low, 0, &job));
		assert_null(job.why);
		plan_whole(&x, stage, whole);
		for (int32_t s = 0; s < fo_mesh_pp(&x.low.mesh); s++) {
			const struct fo_planned *a = &stage[s], *b = &whole[s];
			int64_t sum = 0;
			for (int i = 0; i < FO_PLANNED_PARTS; i++) {
				assert_true(a->part[i] >= 0);
				sum += a->part[i];
			}
			assert_true(sum == fo_planned_bytes(a));
			if (a->persistent + a->arena != b->persistent + b->arena || a->live != b->live)
				fail_msg("%s: %lld micro-batches (%lld lowered), fp8 %d, offload %d: stage %d takes "
					 "%lld + %lld (%lld alive), lowered whole %lld + %lld (%lld alive)",
					 x.label, (long long)x.low.micro_batches, (long long)job.micro_batches,
					 (int)x.low.pass.fp8, (int)x.low.pass.offload, s, (long long)a->persistent,
					 (long long)a->arena, (long long)a->live, (long long)b->persistent,
					 (long long)b->arena, (long long)b->live);
		}
		few += job.micro_batches < x.low.micro_batches;
		staged += x.low.mesh.pp > 1 && job.micro_batches < x.low.micro_batches;
		legal++;
	}
	print_message("%d meshes are planned to the byte, %d from fewer micro-batches, %d of these with stages\n",
		      legal, few, staged);
	assert_true(few >= cases / 6 && staged >= cases / 10);
}

static void test_what_is_not_known(void **state)
{
	(void)state;
	const struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct fo_lowering low = {
		.seq = 16, .rows = 1, .micro_batches = 1, .mesh = { .shard = 2 }, .pass = { .ddp = 1 }
	};
	struct fo_mesh_wire wire;
	struct fo_mesh_memory memory;
	must(fo_mesh_cost(&m, &low, &wire, &memory));
	low.pass.fp8 = FO_FP8_CURRENT;
	assert_int_equal(fo_mesh_cost(&m, &low, &wire, &memory), FO_EUNSUPPORTED);
	low.pass.fp8 = 0;
	low.pass.offload = 1;
	assert_int_equal(fo_mesh_cost(&m, &low, &wire, &memory), FO_EUNSUPPORTED);
	low.pass.offload = low.pass.ddp = 0;
	assert_int_equal(fo_mesh_cost(&m, &low, &wire, &memory), FO_EUNSUPPORTED);
	fo_err_clear();
}

/* How long a question takes is printed, not held to anything. */
static void test_speed(void **state)
{
	(void)state;
	enum { TIMES = 20000 };
	const struct fo_model m = step_model(126, 16384, 128, 8, 53248, 128256, false);
	struct fo_lowering low = { .seq = 8192,
				   .rows = 1,
				   .micro_batches = 16,
				   .precision = FO_PRECISION_BF16,
				   .mesh = { .replicate = 2, .shard = 64, .cp = 4, .tp = 8 },
				   .pass = { .ddp = 25,
					     .tp = FO_TP_SEQUENCE,
					     .cp = FO_CP_RING,
					     .zero = FO_ZERO_WEIGHTS,
					     .zero_prefetch = 1,
					     .merge_qkv = 1,
					     .merge_gate_up = 1,
					     .fuse_loss = 512,
					     .recompute = FO_RECOMPUTE_SELECTIVE } };
	struct fo_mesh_wire wire;
	struct fo_mesh_memory memory;
	double sum = 0;
	const int64_t begin = fo_now_ns();
	for (int i = 0; i < TIMES; i++) {
		low.mesh.rank = i % 1024;
		must(fo_mesh_legal(&m, &low));
		must(fo_mesh_cost(&m, &low, &wire, &memory));
		sum += wire.all;
	}
	print_message("%.2f us for legality, bytes and memory of a mesh of a 405B (%.3g bytes)\n",
		      (double)(fo_now_ns() - begin) / TIMES / 1e3, sum / TIMES);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_meshes),
		cmocka_unit_test(test_planned),
		cmocka_unit_test(test_what_is_not_known),
		cmocka_unit_test(test_speed),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
