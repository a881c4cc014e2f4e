/* What each rank of a job touches is what its plan says, to the byte: of the arena every byte of every life and no
 * other (communication has no buffers of its own: calls move what the program names), of the state the buffers of
 * its program. */
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char filled[] = { 0x5a, 0xc3, 0x96, 0x3f };
enum { STEPS = 1 + sizeof filled };
static unsigned char *touched[RANKS_MOST];

/* A byte that differs from what it was filled with was written. Several patterns: one may be what was written. */
static void look(struct ranks_rank *r, int s)
{
	const struct fo_unrolled *u = fo_exec_unrolled(r->rig.exec);
	const int64_t bytes = u->arena_bytes;
	unsigned char *arena = r->rig.arena, *t = touched[r->rank];
	assert_non_null(arena);
	if (!s)
		t = touched[r->rank] = calloc(1, (size_t)bytes);
	for (int64_t i = 0; s && i < bytes; i++)
		t[i] |= arena[i] != filled[s - 1];
	if (s + 1 < STEPS)
		memset(arena, filled[s], (size_t)bytes);
}

static void check_arena(const struct ranks_rank *r, const char *label)
{
	const struct fo_unrolled *u = fo_exec_unrolled(r->rig.exec);
	unsigned char *planned = calloc(1, (size_t)u->arena_bytes);
	int64_t end = 0, count = 0;
	for (int i = 0; i < u->nlife; i++) {
		const struct fo_life *l = &u->life[i];
		if (l->persists)
			continue;
		assert_true(l->offset >= 0 && l->offset + l->bytes <= u->arena_bytes);
		memset(planned + l->offset, 1, (size_t)l->bytes);
		end = l->offset + l->bytes > end ? l->offset + l->bytes : end;
	}
	/* Offsets are multiples of 64, and so is the end. */
	assert_true(u->arena_bytes - end < 64);
	for (int64_t i = 0; i < u->arena_bytes; i++) {
		count += planned[i];
		if (planned[i] != touched[r->rank][i])
			fail_msg("%s: rank %d: byte %lld of %lld of the arena is %s and was %s", label, r->rank,
				 (long long)i, (long long)u->arena_bytes, planned[i] ? "planned" : "not planned",
				 touched[r->rank][i] ? "touched" : "not touched");
	}
	assert_true(count > 0);
	free(planned);
	free(touched[r->rank]);
}

static void check_state(const struct ranks_rank *r)
{
	const struct fo_unrolled *u = fo_exec_unrolled(r->rig.exec);
	const struct fo_memory m = fo_exec_memory(r->rig.exec);
	int64_t bytes;
	assert_non_null(fo_store_memory(r->rig.store, &bytes));
	assert_int_equal(bytes, u->persistent_bytes);
	assert_int_equal(fo_store_bytes(r->rig.store), u->persistent_bytes);
	assert_true(m.arena >= u->arena_bytes && m.arena - u->arena_bytes < 2 << 20); /* whole pages */
}

static void test_touched(void **state)
{
	(void)state;
	for (int round = 0; round < 16; round++) {
		int tp = round < 12 ? 1 : 2, ranks = 1 << (1 + (int)choices_draw(3));
		struct fo_model m = choices_model();
		m.heads *= tp, m.kv_heads *= tp, m.ffn *= tp;
		struct step_batch b;
		char label[512];
		step_batch_random(&b, 8, ranks * (1 + choices_draw(2)), 1 + choices_draw(2), m.vocab, 2,
				  choices_seed + choices_draws);
		struct ranks_job j = { .model = m,
				       .batch = &b,
				       .options = { .isa = FO_ISA_REF, .threads = 1, .timeline_steps = 1 },
				       .clip = 0.5,
				       .eps = 1e-4,
				       .after = look,
				       .steps = STEPS };
		j.low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
		j.low.rows = b.rows / ranks * tp;
		j.low.mesh.tp = tp;
		j.low.pass.tp = tp > 1 ? 1 + round % 2 : 0;
		j.low.pass.ddp = 1;
		j.low.pass.zero = round % FO_ZERO_COUNT;
		j.low.pass.zero_prefetch = j.low.pass.zero == FO_ZERO_WEIGHTS ? choices_draw(3) : 0;
		j.low.pass.zero_first = j.low.pass.zero_prefetch && choices_draw(2);
		j.low.pass.zero_sync = j.low.pass.zero >= FO_ZERO_GRADIENTS ? choices_draw(FO_SYNC_COUNT) : 0;
		j.low.pass.reduce_dtype = choices_draw(FO_REDUCE_COUNT);
		if (ranks / tp < 2)
			j.low.pass.zero = j.low.pass.zero_prefetch = j.low.pass.zero_sync = 0;
		j.low.mesh.shard = j.low.pass.zero ? 2 : 1;
		j.low.mesh.replicate = ranks / tp / j.low.mesh.shard;
		choices_describe(label, sizeof label, &m, &j.low);
		ranks_run(&j);
		for (int r = 0; r < ranks; r++) {
			assert_int_equal(j.rank[r].error.st, FO_OK);
			check_arena(&j.rank[r], label);
			check_state(&j.rank[r]);
		}
		ranks_free(&j);
		step_batch_free(&b);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_touched) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
