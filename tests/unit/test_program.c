/* The verifier: what it must notice, edit by edit, and what share of blind edits it notices at all. */
#include "program/program.h"
#include "base/clock.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void good(struct fo_program *p, enum fo_mode mode)
{
	struct fo_model m = tiny_model();
	snprintf(m.name, sizeof m.name, "tiny");
	m.layers = 3;
	struct fo_lowering low = {
		.seq = 8, .rows = 2, .micro_batches = 3, .precision = FO_PRECISION_BF16, .mode = mode
	};
	must(fo_program_lower(p, &m, &low));
}

static bool noticed(const struct fo_program *p)
{
	fo_err_clear();
	fo_status st = fo_program_verify(p, "an edit");
	if (st == FO_OK)
		return false;
	assert_int_equal(st, FO_EBUG);
	assert_non_null(strstr(fo_err_text(), "an edit"));
	return true;
}

static struct fo_op *find(struct fo_program *p, const char *block, int kind, int nth, int *at)
{
	struct fo_block *b = &p->block[fo_block_find(p, block)];
	for (int i = 0; i < b->n; i++)
		if (b->op[i].kind == kind && nth-- == 0) {
			if (at)
				*at = i;
			return &b->op[i];
		}
	fail_msg("no such operation in %s", block);
	return NULL;
}

static void test_good(void **state)
{
	(void)state;
	for (int mode = FO_MODE_TRAIN; mode <= FO_MODE_LOGITS; mode++) {
		struct fo_program p;
		good(&p, (enum fo_mode)mode);
		assert_false(noticed(&p));
		fo_program_fini(&p);
	}
}

/* Every operation that computes something that another one needs: none may go. */
static void test_dropped_ops(void **state)
{
	(void)state;
	struct fo_program p;
	int all = 0, seen = 0;
	good(&p, FO_MODE_TRAIN);
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++) {
			struct fo_op was = p.block[b].op[i];
			fo_op_remove(&p, b, i);
			bool n = noticed(&p);
			all++;
			seen += n;
			/* A rotation in place and one term of a sum leave nothing undefined: only numbers show those.
			 */
			bool quiet = was.kind == FO_OP_rope || was.kind == FO_OP_sumsq || was.kind == FO_OP_host_out;
			for (int k = 0; k < was.n; k++)
				quiet |= was.arg[k].access == FO_ACC;
			if (!n && !quiet)
				fail_msg("block %s without its %s passes", p.block[b].name, fo_op_info(was.kind)->name);
			struct fo_op *o = fo_op_insert(&p, b, i, was.kind, was.phase, was.lane);
			*o = was;
		}
	print_message("dropped operations: %d of %d noticed\n", seen, all);
	assert_true(seen * 4 >= all * 3);
	assert_false(noticed(&p));
	fo_program_fini(&p);
}

static void test_rectangles(void **state)
{
	(void)state;
	struct fo_program p;
	int all = 0, seen = 0;
	good(&p, FO_MODE_TRAIN);
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++)
			for (int k = 0; k < p.block[b].op[i].n; k++) {
				struct fo_operand *a = &p.block[b].op[i].arg[k], was = *a;
				for (int how = 0; how < 4; how++) {
					*a = was;
					if (how == 0)
						a->nr--;
					else if (how == 1)
						a->nc--;
					else if (how == 2)
						a->r0++; /* outside */
					else
						a->buf = (int16_t)p.nbuf;
					bool n = noticed(&p);
					if (how >= 2)
						assert_true(n);
					all++;
					seen += n;
				}
				*a = was;
			}
	print_message("shrunk and moved rectangles: %d of %d noticed\n", seen, all);
	assert_true(seen * 100 >= all * 95);
	fo_program_fini(&p);
}

static void test_slots(void **state)
{
	(void)state;
	struct fo_program p;
	int seen = 0;
	good(&p, FO_MODE_TRAIN);
	for (int s = 0; s < p.nslot; s++) {
		struct fo_slot was = p.slot[s];
		memmove(p.slot + s, p.slot + s + 1, (size_t)(--p.nslot - s) * sizeof *p.slot);
		seen += noticed(&p);
		memmove(p.slot + s + 1, p.slot + s, (size_t)(p.nslot++ - s) * sizeof *p.slot);
		p.slot[s] = was;
		p.slot[s].mb = (int32_t)p.run.micro_batches;
		assert_true(noticed(&p));
		p.slot[s] = was;
		p.slot[s].layer = (int16_t)(p.model.layers + 1);
		assert_true(noticed(&p));
		p.slot[s] = was;
	}
	print_message("dropped slots: %d of %d noticed\n", seen, p.nslot);
	assert_true(seen * 10 >= p.nslot * 8);
	for (int s = 0; s < p.nslot; s++) { /* an optimizer's slot twice */
		if (p.block[p.slot[s].block].role != FO_ROLE_OPTIMIZER ||
		    p.block[p.slot[s].block].op[0].kind != FO_OP_adamw)
			continue;
		fo_slot_add(&p, p.slot[s].block, p.slot[s].layer, p.slot[s].mb);
		assert_true(noticed(&p));
		p.nslot--;
	}
	assert_false(noticed(&p));
	fo_program_fini(&p);
}

static void test_types_and_modes(void **state)
{
	(void)state;
	struct fo_program p;
	int all = 0, seen = 0;
	good(&p, FO_MODE_TRAIN);
	for (int i = 0; i < p.nbuf; i++) {
		uint8_t was = p.buf[i].dtype;
		p.buf[i].dtype = was == FO_I32 ? FO_F32 : FO_I32;
		assert_true(noticed(&p));
		p.buf[i].dtype = was == FO_F64 ? FO_F32
					       : FO_F64; /* one wide buffer among narrow ones, or the other way round */
		assert_true(noticed(&p));
		p.buf[i].dtype = was;
	}
	for (int b = 0; b < p.nblock; b++)
		for (int i = 0; i < p.block[b].n; i++) {
			struct fo_op *o = &p.block[b].op[i];
			for (int k = 0; k < o->n; k++) {
				uint8_t was = o->arg[k].access;
				for (int mode = 0; mode <= FO_TAKE; mode++) {
					if (mode == was)
						continue;
					o->arg[k].access = (uint8_t)mode;
					all++;
					seen += noticed(&p);
				}
				o->arg[k].access = was;
			}
			uint8_t n = o->n, min = (uint8_t)fo_op_info(o->kind)->min_operands;
			o->n = (uint8_t)(min - 1);
			assert_true(noticed(&p));
			o->n = n;
		}
	print_message("changed access modes: %d of %d noticed\n", seen, all);
	assert_true(seen * 100 >= all * 95);
	fo_program_fini(&p);
}

static void test_coverage(void **state)
{
	(void)state;
	struct fo_program p;
	int at;
	good(&p, FO_MODE_EVAL);
	int b = fo_block_find(&p, "layer.f");
	/* The gate's product in two parts: rows 0..7 and 8..15. */
	struct fo_op *o = find(&p, "layer.f", FO_OP_matmul, 4, &at);
	assert_string_equal(p.buf[o->arg[2].buf].name, "gate");
	struct fo_op half = *o;
	o->arg[0].nr = o->arg[2].nr = 8;
	half.arg[0].nr = half.arg[2].nr = 8;
	half.arg[2].access = FO_PART;
	half.arg[0].r0 = half.arg[2].r0 = 8;
	*fo_op_insert(&p, b, at + 1, half.kind, half.phase, half.lane) = half;
	assert_false(noticed(&p));
	/* The second part over the first again: as many elements written, half of them never. */
	p.block[b].op[at + 1].arg[0].r0 = p.block[b].op[at + 1].arg[2].r0 = 0;
	p.block[b].op[at + 1].lane = FO_LANE_COPY;
	assert_true(noticed(&p));
	assert_non_null(strstr(fo_err_text(), "not written"));
	/* A part before the definition. */
	p.block[b].op[at].arg[2].access = FO_PART;
	assert_true(noticed(&p));
	fo_program_fini(&p);
}

static void test_partial_sum(void **state)
{
	(void)state;
	struct fo_program p;
	int at;
	good(&p, FO_MODE_TRAIN);
	/* dn2 is defined by the gate's product; only half of it, and the up product adds to all of it. */
	struct fo_op *o = find(&p, "layer.b", FO_OP_matmul, 2, &at);
	assert_string_equal(p.buf[o->arg[2].buf].name, "d.n2");
	o->arg[0].nr = o->arg[2].nr = 8;
	assert_true(noticed(&p));
	assert_non_null(strstr(fo_err_text(), "added to where only a part was written"));
	fo_program_fini(&p);
}

static void test_parameters(void **state)
{
	(void)state;
	struct fo_program p;
	good(&p, FO_MODE_TRAIN);
	for (int q = 0; q < p.nparam; q++) {
		int16_t was = p.param[q].weight;
		p.param[q].weight = (int16_t)fo_buffer_find(&p, "x");
		assert_true(noticed(&p));
		p.param[q].weight = was;
		int32_t rows = p.param[q].nr;
		p.param[q].nr++;
		assert_true(noticed(&p));
		p.param[q].nr = rows;
	}
	p.run.seq++; /* another closed formula */
	assert_true(noticed(&p));
	p.run.seq--;
	p.model.layers--;
	assert_true(noticed(&p));
	p.model.layers++;
	fo_program_fini(&p);
}

/* Blocks, ops and slots by the helpers that passes use. */
static void test_building(void **state)
{
	(void)state;
	struct fo_program p;
	good(&p, FO_MODE_TRAIN);
	int from = fo_block_find(&p, "layer.f"), ops = p.block[from].n;
	uint32_t id = p.next_id;
	int to = fo_block_clone(&p, from, "layer.f.0");
	assert_int_equal(p.block[to].n, ops);
	assert_int_equal(p.next_id, id + (uint32_t)ops);
	for (int i = 0; i < ops; i++) {
		assert_int_equal(p.block[to].op[i].origin, p.block[from].op[i].id);
		assert_int_equal(p.block[to].op[i].id, id + (uint32_t)i);
	}
	for (int s = 0; s < p.nslot; s++)
		if (p.slot[s].block == from && p.slot[s].layer == 0)
			p.slot[s].block = (int16_t)to;
	assert_false(noticed(&p));
	assert_int_equal(fo_buffer_find(&p, "no such"), -1);
	assert_int_equal(fo_block_find(&p, "no such"), -1);
	assert_int_equal(fo_op_kind_find("no such"), -1);
	for (int k = 0; k < FO_OP_COUNT; k++)
		assert_int_equal(fo_op_kind_find(fo_op_info((enum fo_op_kind)k)->name), k);
	fo_program_fini(&p);
}

static void test_refused_runs(void **state)
{
	(void)state;
	struct fo_program p;
	good(&p, FO_MODE_TRAIN);
	struct fo_model m = p.model;
	fo_program_fini(&p);
	const struct fo_lowering bad[] = {
		{ .seq = 0, .rows = 1, .micro_batches = 1 },
		{ .seq = 8, .rows = 0, .micro_batches = 1 },
		{ .seq = 8, .rows = 1, .micro_batches = 0 },
		{ .seq = INT64_MAX, .rows = 2, .micro_batches = 1 },
		{ .seq = 8, .rows = INT64_MAX, .micro_batches = 2 },
		{ .seq = 1 << 20, .rows = 1 << 10, .micro_batches = 1 },
		{ .seq = 8, .rows = 1, .micro_batches = 1 << 20 },
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		assert_int_equal(fo_program_lower(&p, &m, &bad[i]), FO_EARG);
	m.layers = 1 << 14;
	const struct fo_lowering many = { .seq = 8, .rows = 1, .micro_batches = 1 << 16 };
	assert_int_not_equal(fo_program_lower(&p, &m, &many), FO_OK);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_good),
		cmocka_unit_test(test_dropped_ops),
		cmocka_unit_test(test_rectangles),
		cmocka_unit_test(test_slots),
		cmocka_unit_test(test_types_and_modes),
		cmocka_unit_test(test_coverage),
		cmocka_unit_test(test_partial_sum),
		cmocka_unit_test(test_parameters),
		cmocka_unit_test(test_building),
		cmocka_unit_test(test_refused_runs),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
