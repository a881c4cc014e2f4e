/* Operations of class COMM as steps run them: each kind in each group of meshes of 6 and 8 ranks, in every type that
 * travels, with rows that ranks do not share evenly, against sums and copies made here. The bytes that the transport
 * counts are the cost of the operations. What cannot be is refused. */
#include "base/clock.h"
#include "pass/pass.h"
#include "support/must.h"
#include "support/ranks.h"

#include <stdio.h>
#include <string.h>

enum { REPLICATE = 2, SHARD = 3, MESHES = 3, ROWS = 9, COLS = 5, CASES_MOST = 96 };
static const struct fo_mesh mesh_of[MESHES] = { { .replicate = REPLICATE, .shard = SHARD },
						{ .shard = 2, .tp = 3 },
						{ .replicate = 2, .shard = 2, .tp = 2 } };

/* An operation of the test: operand 0 is read, the last one written. */
struct one {
	int kind, group, dtype, x, y;
	bool adds, narrow; /* to what is there; travels as bf16 */
	char name[2][24];
};
static struct one one[RANKS_MOST][CASES_MOST]; /* per rank */
static int ones;

static int add_buffer(struct fo_program *p, char *name, const char *what, int i, int dtype, int64_t rows)
{
	snprintf(name, 24, "test.%s.%d", what, i);
	return fo_buffer_add(p, name, dtype, FO_HOME_STATE, 0, rows, FO_AXIS_ONE, COLS, FO_AXIS_ONE);
}

static void add_case(struct fo_program *p, int block, int *n, int kind, int group, int dtype, bool adds)
{
	struct one *c = &one[p->rank][(*n)++];
	int32_t place, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)group, &place, NULL);
	int64_t begin, own = fo_mesh_part(ROWS, place, ranks, &begin), in = ROWS, out = ROWS;
	enum fo_wire wire = fo_op_info(kind)->wire;
	bool in_place = fo_op_info(kind)->max_operands == 1;
	int lane = *n % 2 ? FO_LANE_GATHER : FO_LANE_REDUCE, access = FO_READ;
	if (wire == FO_WIRE_ALL_GATHER)
		in = own;
	if (wire == FO_WIRE_REDUCE_SCATTER)
		out = own;
	if (wire == FO_WIRE_ALL_TO_ALL)
		in = out = 2 * ranks;
	*c = (struct one){ .kind = kind, .group = group, .dtype = dtype, .adds = adds };
	c->narrow = dtype == FO_F32 && !fo_op_info(kind)->max &&
		    (wire == FO_WIRE_ALL_REDUCE || wire == FO_WIRE_REDUCE_SCATTER);
	c->x = c->y = add_buffer(p, c->name[0], "x", *n, dtype, in);
	memcpy(c->name[1], c->name[0], sizeof c->name[0]);
	if (!in_place)
		c->y = add_buffer(p, c->name[1], "y", *n, dtype, out);
	if (wire == FO_WIRE_SEND)
		lane = FO_LANE_SEND_FORWARD;
	if (wire == FO_WIRE_RECEIVE)
		lane = FO_LANE_RECV_FORWARD, access = FO_DEF;
	if (wire == FO_WIRE_ALL_REDUCE || wire == FO_WIRE_BROADCAST)
		access = FO_UPDATE;
	struct fo_op *o = fo_op_insert(p, block, p->block[block].n, kind, FO_TRANSFER, lane);
	o->group = (uint8_t)group;
	fo_op_arg(p, o, c->x, 0, access);
	if (!in_place)
		fo_op_arg(p, o, c->y, 0, adds ? FO_ACC : FO_DEF);
	o->attr.narrow = c->narrow;
	/* Around a ring; the last rank but one is the root. */
	if (wire == FO_WIRE_SEND)
		o->attr.peer = (place + 1) % ranks;
	else if (wire == FO_WIRE_RECEIVE)
		o->attr.peer = (place + ranks - 1) % ranks;
	else if (wire == FO_WIRE_BROADCAST)
		o->attr.peer = ranks - 2;
}

/* A group of one rank has nobody to send to. */
static bool has_others(const struct fo_program *p, int group)
{
	return fo_mesh_group(&p->run.mesh, (enum fo_group)group, NULL, NULL) > 1;
}

static void add_cases(struct fo_program *p)
{
	static const int dtype[] = { FO_F64, FO_F32, FO_BF16 };
	int block = fo_block_add(p, "test", FO_ROLE_GATHER, FO_UNIT_STEP), n = 0;
	for (int g = FO_GROUP_DATA; g < FO_GROUP_COUNT; g++)
		for (int kind = 0; kind < FO_OP_COUNT; kind++)
			if (fo_op_info(kind)->cls == FO_CLASS_COMM && has_others(p, g))
				add_case(p, block, &n, kind, g,
					 fo_op_info(kind)->max
						 ? FO_F32 /* nothing else */
						 : dtype[(g + kind - (fo_op_info(kind)->wire == FO_WIRE_RECEIVE)) % 3],
					 false);
	for (int g = FO_GROUP_DATA; g < FO_GROUP_COUNT; g++)
		if (has_others(p, g))
			add_case(p, block, &n, FO_OP_reduce_scatter, g, dtype[g % 3], true);
	fo_slot_add(p, block, 0, 0);
	must(fo_program_verify(p, "the test's operations"));
	__atomic_store_n(&ones, n, __ATOMIC_RELAXED);
}

/* Small whole numbers: sums are exact in every type. */
static double input(int c, int rank, int64_t i) { return (double)((c * 7 + rank * 5 + i * 3) % 23 - 11); }

static void put(void *data, int dtype, int64_t i, double v)
{
	if (dtype == FO_F64)
		((double *)data)[i] = v;
	else if (dtype == FO_F32)
		((float *)data)[i] = (float)v;
	else
		((uint16_t *)data)[i] = fo_bf16_from_f32((float)v);
}

static double before(int rank, int64_t i) { return (double)((rank * 3 + i) % 7 - 3); } /* that a sum is added to */

static void fill(struct ranks_rank *r)
{
	for (int c = 0; c < ones; c++) {
		const struct fo_buffer *b;
		void *x = fo_store_find(r->rig.store, one[r->rank][c].name[0], 0, &b);
		for (int64_t i = 0; i < b->rows * b->cols; i++)
			put(x, b->dtype, i, input(c, r->rank, i));
		x = fo_store_find(r->rig.store, one[r->rank][c].name[1], 0, &b);
		for (int64_t i = 0; one[r->rank][c].adds && i < b->rows * b->cols; i++)
			put(x, b->dtype, i, before(r->rank, i));
	}
}

/* What element i of the output of case c is on this rank. `member` gives the job's ranks of the group in order. */
static double expected(int c, int rank, int place, int ranks, const int *member, int64_t i)
{
	const struct one *o = &one[rank][c];
	int64_t begin, sum = o->adds ? (int64_t)before(rank, i) : 0;
	fo_mesh_part(ROWS, place, ranks, &begin);
	switch (fo_op_info(o->kind)->wire) {
	case FO_WIRE_REDUCE_SCATTER: i += begin * COLS; /* fallthrough */
	case FO_WIRE_ALL_REDUCE:
		for (int r = 0; r < ranks; r++) {
			int64_t v = (int64_t)input(c, member[r], i);
			sum = r && fo_op_info(o->kind)->max ? (v > sum ? v : sum) : sum + v;
		}
		return (double)sum;
	case FO_WIRE_ALL_GATHER:
		for (int r = 0; r < ranks; r++) {
			int64_t own = fo_mesh_part(ROWS, r, ranks, &begin);
			if (i < (begin + own) * COLS)
				return input(c, member[r], i - begin * COLS);
		}
		break;
	case FO_WIRE_ALL_TO_ALL: return input(c, member[i / (2 * COLS)], 2 * COLS * place + i % (2 * COLS));
	case FO_WIRE_SHIFT: return input(c, member[(place + ranks - 1) % ranks], i);
	case FO_WIRE_BROADCAST: return input(c, member[ranks - 2], i);
	case FO_WIRE_RECEIVE: return input(c - 1, member[(place + ranks - 1) % ranks], i);
	case FO_WIRE_SEND: return input(c, rank, i);
	case FO_WIRE_NONE: break;
	}
	return 1e9;
}

static void check_rank(const struct ranks_job *j, int rank)
{
	const struct ranks_rank *r = &j->rank[rank];
	for (int c = 0; c < ones; c++) {
		const struct one *o = &one[rank][c];
		const struct fo_mesh *mesh = &r->rig.program.run.mesh;
		int member[RANKS_MOST], n = 0;
		int32_t place, colour, ranks = fo_mesh_group(mesh, (enum fo_group)o->group, &place, &colour);
		for (int k = 0; k < j->ranks; k++) {
			struct fo_mesh other = *mesh;
			int32_t same;
			other.rank = k;
			fo_mesh_group(&other, (enum fo_group)o->group, NULL, &same);
			if (same == colour)
				member[n++] = k;
		}
		assert_int_equal(n, ranks);
		assert_int_equal(member[place], rank);
		const struct fo_buffer *b;
		const void *y = fo_store_find(r->rig.store, o->name[1], 0, &b);
		for (int64_t i = 0; i < b->rows * b->cols; i++) {
			double got = step_get(y, b->dtype, i), want = expected(c, rank, place, ranks, member, i);
			if (got != want)
				fail_msg("rank %d, %s in group %s of %s: element %lld is %g, not %g", rank,
					 fo_op_info(o->kind)->name, fo_group_name[o->group], fo_dtype_name[o->dtype],
					 (long long)i, got, want);
		}
	}
}

static void test_every_kind(void **state)
{
	(void)state;
	struct step_batch b;
	step_batch_random(&b, 4, 12, 1, 40, 1, 3);
	for (int seed = 0; seed < 4 * MESHES; seed++) {
		struct ranks_job j = { .model = step_model(1, 16, 2, 1, 24, 40, false),
				       .batch = &b,
				       .options = { .isa = FO_ISA_REF, .threads = 1, .delay_seed = (uint64_t)seed },
				       .transport = { .shake = (uint64_t)seed },
				       .build = add_cases,
				       .before = fill,
				       .steps = 1,
				       .clip = 1 };
		j.low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
		j.low.mesh = mesh_of[seed % MESHES];
		j.low.rows = 12 / fo_mesh_data(&j.low.mesh);
		ranks_run(&j);
		for (int r = 0; r < j.ranks; r++) {
			if (j.rank[r].error.st != FO_OK)
				fail_msg("rank %d: %s", r, j.rank[r].error.text);
			check_rank(&j, r);
			assert_true((double)j.rank[r].received == j.rank[r].wire);
		}
		ranks_free(&j);
	}
	step_batch_free(&b);
}

/* A program with communication is the same after it was written and read, and damage to it is seen. */
static void test_text(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 40, false);
	struct fo_lowering low = {
		.seq = 4, .rows = 1, .micro_batches = 1, .mesh = { .rank = 1, .replicate = REPLICATE, .shard = SHARD }
	};
	struct fo_program p, q;
	struct fo_str text = { 0 }, again = { 0 };
	low.pass.ddp = 1;
	must(fo_pass_build(&p, &m, &low));
	add_cases(&p);
	fo_program_dump(&p, &text);
	must(fo_program_parse(&q, text.data, text.len, "text"));
	fo_program_dump(&q, &again);
	assert_string_equal(text.data, again.data);
	fo_program_fini(&q);
	int block = fo_block_find(&p, "test");
	for (int i = 0; i < p.block[block].n; i++) {
		struct fo_op *o = &p.block[block].op[i], kept = *o;
		const struct fo_buffer *b = &p.buf[o->arg[0].buf];
		o->group = FO_GROUP_NONE;
		assert_non_null(fo_op_check(&p, o));
		o->group = FO_GROUP_COUNT;
		assert_non_null(fo_op_check(&p, o));
		*o = kept;
		o->arg[0].nc = (int32_t)b->cols - 1;
		assert_non_null(fo_op_check(&p, o));
		*o = kept;
		o->attr.peer = 6;
		bool named = fo_op_info(o->kind)->wire == FO_WIRE_BROADCAST || fo_op_family(o->kind) == FO_OPS_P2P;
		assert_true((fo_op_check(&p, o) != NULL) == named);
		*o = kept;
		if (o->n == 2) {
			/* Rows of a part: a whole with other rows may have parts of the same size. */
			o->arg[fo_op_info(o->kind)->wire != FO_WIRE_ALL_GATHER].nr--;
			assert_non_null(fo_op_check(&p, o));
			*o = kept;
		}
		o->attr.narrow = 1;
		bool sums = fo_op_info(o->kind)->wire == FO_WIRE_ALL_REDUCE ||
			    fo_op_info(o->kind)->wire == FO_WIRE_REDUCE_SCATTER;
		assert_true((fo_op_check(&p, o) == NULL) == (sums && b->dtype == FO_F32));
		*o = kept;
		assert_null(fo_op_check(&p, o));
	}
	fo_program_fini(&p);
	fo_str_fini(&text);
	fo_str_fini(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_every_kind), cmocka_unit_test(test_text) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
