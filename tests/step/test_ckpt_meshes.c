/* Checkpoints of real programs: ranks of any mesh (pp x replicate x shard x tp) begin with one rank's weights, leave
 * one rank's files byte for byte, and read what another mesh wrote, for random models, passes and formats of state,
 * with histories of fp8 maxima, too. */
#include "base/rng.h"
#include "pass/pass.h"
#include "support/choices.h"
#include "support/must.h"
#include "support/same_files.h"
#include "train/train.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { RANKS = 8, STEP = 3, SEQ = 4, ROWS = 24 };

static char root[] = "test_ckpt_meshes.XXXXXX";

/* Programs and stores of all ranks of a mesh. */
struct job {
	int ranks;
	struct fo_model model;
	struct fo_program program[RANKS];
	struct fo_store *store[RANKS];
	struct fo_tensors tensors[RANKS];
};

static void job_free(struct job *j)
{
	for (int r = 0; r < j->ranks; r++) {
		fo_tensors_fini(&j->tensors[r]);
		fo_store_free(j->store[r]);
		fo_program_fini(&j->program[r]);
	}
	*j = (struct job){ 0 };
}

/* False: no such programs. */
static bool job_make(struct job *j, const struct fo_model *m, struct fo_lowering low)
{
	*j = (struct job){ .model = *m };
	snprintf(j->model.name, sizeof j->model.name, "random");
	low.rows = ROWS / fo_mesh_data(&low.mesh);
	for (int r = 0; r < fo_mesh_ranks(&low.mesh); r++) {
		low.mesh.rank = r;
		if (fo_pass_build(&j->program[r], &j->model, &low) != FO_OK) {
			fo_err_clear();
			assert_int_equal(r, 0);
			return false;
		}
		j->ranks++;
		must(fo_store_new(&j->store[r], &j->program[r]));
		must(fo_store_tensors(j->store[r], &j->program[r], &j->tensors[r]));
	}
	return true;
}

static char *folder(struct fo_arena *a, const char *dir) { return fo_arena_printf(a, "%s/step-%08d", dir, STEP); }

static void job_save(const struct job *j, const char *dir, int64_t bound)
{
	const struct fo_ckpt_meta meta = { .step = STEP, .tokens = 1, .seed = 1, .precision = "bf16" };
	struct fo_ckpt_content c[RANKS];
	struct fo_ckpt_writer *w[RANKS];
	size_t n;
	for (int r = 0; r < j->ranks; r++) {
		c[r] = (struct fo_ckpt_content){ .model = &j->model,
						 .weight_dtype = "float32",
						 .weight = j->tensors[r].weight,
						 .weights = j->tensors[r].weights,
						 .state = j->tensors[r].state,
						 .states = j->tensors[r].states,
						 .file_bytes = bound,
						 .rank = r };
		fo_ckpt_writer_new(&w[r], dir, &c[r], &meta);
	}
	must(fo_ckpt_writer_begin(w[0]));
	for (int r = j->ranks - 1; r >= 0; r--)
		must(fo_ckpt_writer_rows(w[r]));
	uint64_t *sum = fo_ckpt_writer_sums(w[0], &n);
	for (int r = 1; r < j->ranks; r++)
		for (size_t i = 0; i < n; i++)
			sum[i] += fo_ckpt_writer_sums(w[r], &n)[i];
	must(fo_ckpt_writer_end(w[0], FO_OK, 0));
	for (int r = 0; r < j->ranks; r++)
		fo_ckpt_writer_free(w[r]);
}

/* Returns how many tensors of state were there in another shape. */
static int64_t job_read(const struct job *j, const char *path)
{
	struct fo_ckpt_meta meta;
	int64_t afresh = 0;
	must(fo_ckpt_open(path, &meta));
	for (int r = 0; r < j->ranks; r++) {
		const struct fo_tensors *t = &j->tensors[r];
		must(fo_ckpt_read(path, t->weight, t->weights, t->state, t->states, &afresh));
	}
	return afresh;
}

/* Any bits: what is read and written is not computed with. */
static void fill(const struct job *j)
{
	const struct fo_tensors *t = &j->tensors[0];
	for (size_t i = 0; i < t->weights + t->states; i++) {
		const struct fo_st_tensor *x = i < t->weights ? &t->weight[i] : &t->state[i - t->weights];
		const size_t row = (size_t)x->cols * fo_dtype_bytes(x->dtype);
		for (int64_t r = 0; r < x->rows; r++)
			for (size_t k = 0; k < row; k++)
				((unsigned char *)x->data)[(size_t)r * (size_t)x->ld * fo_dtype_bytes(x->dtype) + k] =
					(unsigned char)fo_rng_u64(choices_seed, choices_draws++);
	}
}

static struct fo_lowering draw(const struct fo_model *m, const struct fo_lowering *like)
{
	struct fo_lowering low = *like;
	do {
		low.mesh = (struct fo_mesh){ .replicate = 1 + (int32_t)choices_draw(3),
					     .shard = 1 + (int32_t)choices_draw(4),
					     .tp = 1 << choices_draw(4),
					     .pp = 1 + (int32_t)choices_draw(3) };
	} while (fo_mesh_ranks(&low.mesh) > RANKS || ROWS % fo_mesh_data(&low.mesh));
	low.pass = choices_passes(m);
	low.pass.master = like->pass.master;
	low.pass.moments = like->pass.moments;
	low.pass.rounding = like->pass.rounding;
	low.pass.ddp = 1;
	choices_zero(&low.pass, low.mesh.shard);
	low.pass.tp = low.mesh.tp > 1 ? 1 + choices_draw(FO_TP_COUNT - 1) : FO_TP_OFF;
	low.pass.pp = low.mesh.pp > 1 ? 1 + choices_draw(FO_PP_KINDS_COUNT) : 0;
	if (like->pass.fp8) { /* what is merged has one history */
		low.pass.merge_qkv = low.pass.merge_gate_up = 0;
		low.pass.fp8 = like->pass.fp8;
		low.pass.fp8_history = like->pass.fp8_history;
		low.pass.fp8_precompute = low.pass.zero != FO_ZERO_WEIGHTS && choices_draw(2);
	}
	return low;
}

/* A job of another random mesh with state of the same formats. */
static void draw_job(struct job *j, const struct fo_model *m, const struct fo_lowering *like, char *label, size_t size,
		     int *divided, int *copied)
{
	struct fo_lowering low;
	do
		low = draw(m, like);
	while (!job_make(j, m, low));
	*divided += low.mesh.tp > 1;
	*copied += j->program[0].run.mesh.kv > 1;
	int n = snprintf(label, size, "stages %d replicate %d shard %d tp %d: ", low.mesh.pp, low.mesh.replicate,
			 low.mesh.shard, low.mesh.tp);
	choices_describe(label + n, size - (size_t)n, m, &low);
}

static void one_case(struct fo_arena *a, int *divided, int *copied, int *histories)
{
	static const struct {
		enum fo_numerics precision;
		enum fo_master master;
		enum fo_moments moments;
	} format[] = { { FO_PRECISION_F32, FO_MASTER_FP32, FO_MOMENTS_FP32 },
		       { FO_PRECISION_F32, FO_MASTER_FP32, FO_MOMENTS_BF16 },
		       { FO_PRECISION_BF16, FO_MASTER_FP32, FO_MOMENTS_FP32 },
		       { FO_PRECISION_BF16, FO_MASTER_SPLIT, FO_MOMENTS_BF16 },
		       { FO_PRECISION_BF16, FO_MASTER_NONE, FO_MOMENTS_BF16 } };
	const size_t f = (size_t)choices_draw(sizeof format / sizeof *format);
	struct fo_model m = choices_small_model();
	/* Tp groups have parts of all of these, and copies of key and value heads where there are fewer. */
	m.heads *= 4, m.kv_heads <<= choices_draw(3), m.ffn *= 4;
	struct fo_lowering low = { .seq = SEQ,
				   .micro_batches = 1,
				   .precision = format[f].precision,
				   .mode = FO_MODE_TRAIN,
				   .pass = { .master = format[f].master, .moments = format[f].moments } };
	if (choices_draw(2)) {
		low.pass.fp8 = FO_FP8_DELAYED;
		low.pass.fp8_history = 3;
		(*histories)++;
	}
	const int64_t bound = choices_draw(2) ? 6000 : 0;
	char label[512], *one_dir = fo_arena_printf(a, "%s/one", root), *dirs[2];
	struct job one, many;
	dirs[0] = fo_arena_printf(a, "%s/x", root);
	dirs[1] = fo_arena_printf(a, "%s/y", root);
	assert_true(job_make(&one, &m, low));
	fo_store_init(one.store[0], &one.program[0], 7);
	job_save(&one, one_dir, bound);
	/* Ranks begin alike, and with the weights of a folder. */
	draw_job(&many, &m, &low, label, sizeof label, divided, copied);
	for (int r = 0; r < many.ranks; r++)
		fo_store_init(many.store[r], &many.program[r], 7);
	job_save(&many, dirs[0], bound);
	same_files(a, folder(a, one_dir), folder(a, dirs[0]), label);
	for (int r = 0; r < many.ranks; r++) {
		fo_store_init(many.store[r], &many.program[r], 8);
		must(fo_store_load(many.store[r], &many.program[r], folder(a, one_dir)));
	}
	must(fo_store_load(one.store[0], &one.program[0], folder(a, one_dir)));
	job_save(&one, one_dir, bound);
	job_save(&many, dirs[0], bound);
	same_files(a, folder(a, one_dir), folder(a, dirs[0]), label);
	job_free(&many);
	/* Each mesh reads what the one before it left. */
	fill(&one);
	job_save(&one, one_dir, bound);
	const char *from = one_dir;
	for (int i = 0; i < 2; i++) {
		draw_job(&many, &m, &low, label, sizeof label, divided, copied);
		assert_int_equal(job_read(&many, folder(a, from)), 0);
		job_save(&many, dirs[i], bound);
		same_files(a, folder(a, one_dir), folder(a, dirs[i]), label);
		from = dirs[i];
		job_free(&many);
	}
	job_free(&one);
	assert_true(job_make(&one, &m, low));
	assert_int_equal(job_read(&one, folder(a, from)), 0);
	job_save(&one, dirs[0], bound);
	same_files(a, folder(a, one_dir), folder(a, dirs[0]), "one rank");
	job_free(&one);
}

static void test_any_mesh(void **state)
{
	(void)state;
	const char *more = getenv("FLATOUT_MESH_CASES");
	const int cases = more ? atoi(more) : 12;
	int divided = 0, copied = 0, histories = 0;
	for (int i = 0; i < cases; i++) {
		struct fo_arena a = { 0 };
		one_case(&a, &divided, &copied, &histories);
		fo_arena_fini(&a);
	}
	print_message(
		"%d cases; %d of their jobs with tp groups, %d of these with copies of heads; %d with histories\n",
		cases, divided, copied, histories);
	assert_true(divided > cases / 2 && copied && histories && histories < cases);
}

/* A program that casts other tensors begins with empty histories, and all else is read. */
static void test_other_histories(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	struct fo_model m = choices_small_model();
	struct fo_lowering low = { .seq = SEQ,
				   .micro_batches = 1,
				   .precision = FO_PRECISION_BF16,
				   .mode = FO_MODE_TRAIN,
				   .pass = { .fp8 = FO_FP8_DELAYED, .fp8_history = 3 } };
	char *dir = fo_arena_printf(&a, "%s/other", root);
	struct job plain, merged;
	assert_true(job_make(&plain, &m, low));
	low.pass.merge_gate_up = 1;
	assert_true(job_make(&merged, &m, low));
	fill(&plain);
	fill(&merged);
	job_save(&plain, dir, 0);
	assert_int_equal(job_read(&plain, folder(&a, dir)), 0);
	assert_int_equal(job_read(&merged, folder(&a, dir)), m.layers);
	for (size_t i = 0; i < merged.tensors->states; i++) {
		const struct fo_st_tensor *t = &merged.tensors->state[i];
		for (int64_t k = 0; t->optional && k < t->rows * t->cols; k++)
			assert_true(((const float *)t->data)[k] == 0);
	}
	job_free(&plain);
	job_free(&merged);
	fo_arena_fini(&a);
}

static int make_root(void **state)
{
	(void)state;
	return !mkdtemp(root);
}

static int remove_root(void **state)
{
	(void)state;
	return fo_fs_remove_tree(root) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_any_mesh), cmocka_unit_test(test_other_histories) };
	return cmocka_run_group_tests(tests, make_root, remove_root);
}
