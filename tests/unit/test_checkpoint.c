/* Checkpoints: what comes back, what is refused, and that a killed run never leaves half of one. */
#include "ckpt/ckpt.h"
#include "base/clock.h"
#include "support/must.h"
#include "support/tiny_model.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 4096 }; /* elements of the tensors: several pages, several writes */

static char root[] = "test_checkpoint.XXXXXX", dir[64];
static float weight[N], moment[N];
static struct fo_st_tensor
	w = { .name = "model.norm.weight", .dtype = FO_F32, .rows = 64, .cols = N / 64, .ld = N / 64, .data = weight },
	s = {
		.name = "m.model.norm.weight", .dtype = FO_F32, .rows = 64, .cols = N / 64, .ld = N / 64, .data = moment
	};

static void fill(int64_t step)
{
	for (int i = 0; i < N; i++) {
		weight[i] = (float)(step * N + i);
		moment[i] = -weight[i];
	}
}

static fo_status save(int64_t step, int keep)
{
	struct fo_model m = tiny_model();
	snprintf(m.name, sizeof m.name, "tiny");
	m.layers = 1;
	struct fo_ckpt_content c = { .model = &m,
				     .weight_dtype = "float32",
				     .weight = &w,
				     .weights = 1,
				     .state = &s,
				     .states = 1,
				     .run_config_json = "{}\n" };
	struct fo_ckpt_meta meta = { .step = step,
				     .tokens = step * 100,
				     .loader = { step, 0xfedcba9876543210u, 5 },
				     .tokenizer_checksum = UINT64_MAX,
				     .seed = 42,
				     .loss = 1.0 / 3,
				     .precision = "fp32" };
	fill(step);
	return fo_ckpt_save(dir, &c, &meta, keep);
}

/* The step of the newest checkpoint, whose content must be that step's; 0: none. */
static int64_t newest(void)
{
	struct fo_arena a = { 0 };
	struct fo_ckpt_meta m;
	char *path;
	float want[N], first;
	int64_t afresh;
	must(fo_ckpt_newest(&a, dir, true, &path));
	if (!path) {
		fo_arena_fini(&a);
		return 0;
	}
	must(fo_ckpt_open(path, &m));
	memset(weight, 0, sizeof weight);
	memset(moment, 0, sizeof moment);
	must(fo_ckpt_read(path, &w, 1, &s, 1, &afresh));
	assert_int_equal(afresh, 0);
	memcpy(want, weight, sizeof want);
	first = moment[0];
	fill(m.step);
	assert_memory_equal(want, weight, sizeof want);
	assert_true(first == moment[0]);
	fo_arena_fini(&a);
	return m.step;
}

static int count(const char *prefix)
{
	DIR *d = opendir(dir);
	int n = 0;
	for (struct dirent *e; d && (e = readdir(d));)
		n += !strncmp(e->d_name, prefix, strlen(prefix));
	if (d)
		closedir(d);
	return n;
}

static void test_round_trip(void **state)
{
	(void)state;
	struct fo_ckpt_meta m;
	char path[128];
	assert_int_equal(newest(), 0); /* no folder yet */
	must(save(7, 0));
	assert_int_equal(newest(), 7);
	snprintf(path, sizeof path, "%s/step-00000007", dir);
	must(fo_ckpt_open(path, &m));
	assert_true(m.step == 7 && m.tokens == 700 && m.seed == 42 && m.loss == 1.0 / 3 &&
		    m.tokenizer_checksum == UINT64_MAX);
	assert_true(m.loader.next_step == 7 && m.loader.seed == 0xfedcba9876543210u && m.loader.shard_checksum == 5);
	assert_string_equal(m.precision, "fp32");
	must(save(7, 0)); /* the same step again replaces it */
	assert_int_equal(newest(), 7);
	assert_int_equal(count("step-"), 1);
	struct fo_model back;
	must(fo_model_load(path, &back)); /* a folder in Hugging Face layout */
	assert_int_equal(back.ffn, 48);
	must(fo_fs_remove_tree(dir));
}

static void test_keep(void **state)
{
	(void)state;
	for (int i = 1; i <= 6; i++) {
		must(save(i, 3));
		assert_int_equal(count("step-"), i < 3 ? i : 3);
		assert_int_equal(newest(), i);
	}
	must(save(100000000, 3)); /* nine digits sort as numbers */
	assert_int_equal(newest(), 100000000);
	assert_int_equal(count("step-"), 3);
	assert_int_equal(count(".tmp"), 0);
	must(fo_fs_remove_tree(dir));
}

/* A byte of any file changed, a file cut or gone: fo_ckpt_open says so. */
static void test_damaged(void **state)
{
	(void)state;
	static const char *const name[] = { "config.json",   "model.safetensors", "state.safetensors",
					    "training.json", "run.json",          "manifest.json" };
	struct fo_ckpt_meta m;
	char path[128], file[256];
	struct fo_arena a = { 0 };
	snprintf(path, sizeof path, "%s/step-00000003", dir);
	must(save(3, 0));
	for (int i = 0; i < 6; i++) {
		char *whole;
		size_t size;
		snprintf(file, sizeof file, "%s/%s", path, name[i]);
		must(fo_fs_read(&a, file, (size_t)1 << 20, &whole, &size));
		for (int how = 0; how < 8; how++) {
			if (how == 0) {
				assert_int_equal(unlink(file), 0);
			} else if (how == 1) {
				assert_int_equal(truncate(file, (off_t)size / 2), 0);
			} else if (how == 2) {
				assert_int_equal(truncate(file, 0), 0);
			} else {
				FILE *f = fopen(file, "r+b");
				long at = (long)(fo_rng_u64(8, (uint64_t)(i * 8 + how)) % size);
				fseek(f, at, SEEK_SET);
				int c = fgetc(f);
				fseek(f, at, SEEK_SET);
				fputc(c ^ 0x10, f);
				fclose(f);
			}
			fo_status got = fo_ckpt_open(path, &m);
			/* In the manifest a changed byte may be white space. */
			if (got == FO_OK && !(i == 5 && how > 2))
				fail_msg("%s damaged in way %d opens", name[i], how);
			assert_true(got == FO_OK || got == FO_EFORMAT || got == FO_EIO);
			assert_non_null(strstr(got == FO_OK ? path : fo_err_text(), path));
			FILE *f = fopen(file, "wb");
			assert_int_equal(fwrite(whole, 1, size, f), size);
			fclose(f);
		}
		must(fo_ckpt_open(path, &m));
	}
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(dir));
}

struct refusal {
	int calls;
	char why[1024], instead[128];
};

static void on_refused(void *ctx, const char *why, const char *instead)
{
	struct refusal *r = ctx;
	r->calls++;
	snprintf(r->why, sizeof r->why, "%s", why);
	snprintf(r->instead, sizeof r->instead, "%s", instead);
}

/* Changes a byte in a checkpoint's weights. */
static void damage(int64_t step)
{
	char file[128];
	snprintf(file, sizeof file, "%s/step-%08lld/model.safetensors", dir, (long long)step);
	FILE *f = fopen(file, "r+b");
	assert_non_null(f);
	fseek(f, -9, SEEK_END);
	int c = fgetc(f);
	fseek(f, -9, SEEK_END);
	fputc(c ^ 1, f);
	fclose(f);
}

static int64_t pick(int64_t every, struct refusal *r)
{
	struct fo_arena a = { 0 };
	struct fo_ckpt_meta m = { .step = -1 };
	char *path;
	*r = (struct refusal){ 0 };
	fo_status st = fo_ckpt_pick(&a, dir, every, on_refused, r, &path, &m);
	assert_true(st == FO_OK || st == FO_EFORMAT || st == FO_EIO);
	int64_t step = st != FO_OK ? -2 : path ? m.step : -1;
	fo_arena_fini(&a);
	return step;
}

/* A damaged checkpoint is passed over, said, and never the reason why a whole one is removed. */
static void test_pick(void **state)
{
	(void)state;
	struct refusal r;
	char file[128];
	assert_int_equal(pick(0, &r), -1);
	for (int i = 1; i <= 5; i++)
		must(save(i * 10, 0));
	assert_true(pick(0, &r) == 50 && r.calls == 0);
	damage(50);
	assert_true(pick(0, &r) == 40 && r.calls == 1);
	assert_non_null(strstr(r.why, "step-00000050/model.safetensors' is damaged"));
	assert_non_null(strstr(r.instead, "step-00000040"));
	snprintf(file, sizeof file, "%s/step-00000040/manifest.json", dir);
	assert_int_equal(unlink(file), 0);
	assert_true(pick(0, &r) == 30 && r.calls == 1 && strstr(r.why, "step-00000050"));
	assert_true(pick(20, &r) == 20 && pick(30, &r) == 30 && pick(70, &r) == -1);
	/* The run goes on from 30 and keeps one: 50 and 40 are later and damaged, and must not count. */
	must(save(33, 1));
	assert_true(pick(0, &r) == 33 && count("step-") == 3);
	must(save(40, 1)); /* takes the damaged one's place */
	assert_true(pick(0, &r) == 40 && count("step-") == 2);
	must(save(50, 1));
	assert_true(pick(0, &r) == 50 && r.calls == 0 && count("step-") == 1);
	damage(50);
	assert_int_equal(pick(0, &r), -2);
	assert_non_null(strstr(fo_err_hint(), "no checkpoint in"));
	must(fo_fs_remove_tree(dir));
}

/* Who reads a live run leaves the checkpoint that is being written; who trains clears away what killed runs left. */
static void test_readers_remove_nothing(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char *path, writing[128];
	must(save(10, 0));
	snprintf(writing, sizeof writing, "%s/.tmp-step-00000020", dir);
	must(fo_fs_mkdirs(writing));
	must(fo_ckpt_newest(&a, dir, false, &path));
	assert_non_null(strstr(path, "step-00000010"));
	assert_int_equal(count(".tmp"), 1);
	must(fo_ckpt_newest(&a, dir, true, &path));
	assert_int_equal(count(".tmp"), 0);
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(dir));
}

static void test_forget(void **state)
{
	(void)state;
	struct refusal r;
	must(fo_ckpt_forget(dir, 0));
	for (int i = 1; i <= 4; i++)
		must(save(i, 0));
	must(fo_ckpt_forget(dir, 2));
	assert_true(count("step-") == 2 && count(".tmp") == 0 && pick(0, &r) == 2);
	must(fo_ckpt_forget(dir, 0));
	assert_int_equal(count("step-"), 0);
	must(fo_fs_remove_tree(dir));
}

/* The manifest vouches for what was meant: it must not be made from what can be read back. */
static void test_manifest_is_of_what_was_written(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char file[128], hex[24], *text;
	size_t len;
	uint64_t sum;
	must(save(1, 0));
	snprintf(file, sizeof file, "%s/other.safetensors", dir);
	fill(1);
	must(fo_st_write(file, &w, 1, "{\"format\":\"pt\"}", &sum));
	snprintf(hex, sizeof hex, "%016llx", (unsigned long long)sum);
	snprintf(file, sizeof file, "%s/step-00000001/manifest.json", dir);
	must(fo_fs_read(&a, file, 1 << 20, &text, &len));
	assert_non_null(strstr(text, hex));
	fo_arena_fini(&a);
	must(fo_fs_remove_tree(dir));
}

static void rewrite(const char *path, const char *text) { must(fo_fs_write_atomic(path, text, strlen(text))); }

static void test_hostile_json(void **state)
{
	(void)state;
	static const char *const text[] = {
		"",
		"[]",
		"{}",
		"{\"schema\":2}",
		"{\"schema\":1}",
		"{\"schema\":1,\"files\":7}",
		"{\"schema\":1,\"files\":{}}",
		"{\"schema\":\"1\"}",
		"\xff",
		"{\"schema\":1",
		"{\"schema\":1,\"files\":{\"config.json\":{\"bytes\":-1,\"xxh3_64\":\"0000000000000000\"}}}",
		"{\"schema\":1,\"files\":{\"config.json\":{\"bytes\":1,\"xxh3_64\":\"zz\"}}}",
		"{\"schema\":1,\"files\":{\"../../etc/passwd\":{}}}",
	};
	struct fo_ckpt_meta m;
	char path[128], file[256];
	must(save(3, 0));
	snprintf(path, sizeof path, "%s/step-00000003", dir);
	snprintf(file, sizeof file, "%s/manifest.json", path);
	for (size_t i = 0; i < sizeof text / sizeof *text; i++) {
		rewrite(file, text[i]);
		assert_int_equal(fo_ckpt_open(path, &m), FO_EFORMAT);
	}
	/* Names that are no checkpoints. */
	char other[128];
	static const char *const name[] = { "step-",         "step-x",         "step-0000000x",
					    "step--0000009", "steps-00000009", "other" };
	for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
		snprintf(other, sizeof other, "%s/%s", dir, name[i]);
		must(fo_fs_mkdirs(other));
	}
	must(save(4, 0));
	assert_int_equal(newest(), 4);
	must(fo_fs_remove_tree(dir));
}

static void test_refused(void **state)
{
	(void)state;
	char file[128];
	must(fo_fs_mkdirs(root));
	snprintf(file, sizeof file, "%s/ck", root);
	rewrite(file, "a file stands where the folder should");
	assert_int_equal(save(1, 0), FO_EIO);
	assert_non_null(strstr(fo_err_text(), "checkpoint of step 1"));
	assert_int_equal(unlink(file), 0);
}

/* A saver killed at a random instant, fifty times: the newest checkpoint is whole and never older than what was
 * reported done; every folder with a checkpoint's name is whole. */
static void test_killed(void **state)
{
	(void)state;
	int64_t done = 0;
	int interrupted = 0;
	int64_t t0 = fo_now_ns();
	must(save(done = 1, 2));
	/* Kills fall anywhere in the first three saves, however fast the disk makes files durable. */
	uint64_t range_us = (uint64_t)(fo_now_ns() - t0) / 1000 * 3 + 1;
	/* Where the disk has become slower since that first save: more kills, each later than the ones before. */
	int k = 0;
	for (; k < 50 || (k < 300 && (interrupted <= 5 || done <= 5)); k++) {
		int pipes[2];
		range_us += range_us / 50;
		assert_int_equal(pipe(pipes), 0);
		fflush(NULL);
		pid_t child = fork();
		if (child == 0) {
			for (int64_t step = done + 1;; step++)
				if (save(step, 2) != FO_OK || write(pipes[1], &step, sizeof step) != sizeof step)
					_exit(1);
		}
		assert_true(child > 0);
		close(pipes[1]);
		usleep((useconds_t)(fo_rng_u64(9, (uint64_t)k) % range_us));
		kill(child, SIGKILL);
		int how;
		assert_int_equal(waitpid(child, &how, 0), child);
		assert_true(WIFSIGNALED(how));
		int64_t reported = done, step;
		while (read(pipes[0], &step, sizeof step) == sizeof step)
			reported = step;
		close(pipes[0]);
		interrupted += count(".tmp") > 0;
		step = newest();
		assert_true(step >= reported && step <= reported + 1);
		assert_int_equal(count(".tmp"), 0); /* cleared away */
		for (int64_t old = step > 3 ? step - 3 : 1; old <= step; old++) {
			struct fo_ckpt_meta m;
			char path[128];
			snprintf(path, sizeof path, "%s/step-%08lld", dir, (long long)old);
			if (fo_fs_exists(path))
				must(fo_ckpt_open(path, &m));
		}
		done = step;
	}
	print_message("%d kills: %lld checkpoints, %d kills in the middle of one\n", k, (long long)done, interrupted);
	assert_true(interrupted > 5 && done > 5);
}

static int make_dir(void **state)
{
	(void)state;
	if (!mkdtemp(root))
		return 1;
	snprintf(dir, sizeof dir, "%s/ck", root);
	return 0;
}

static int remove_dir(void **state)
{
	(void)state;
	return fo_fs_remove_tree(root) != FO_OK;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip), cmocka_unit_test(test_keep),
		cmocka_unit_test(test_damaged),    cmocka_unit_test(test_hostile_json),
		cmocka_unit_test(test_pick),       cmocka_unit_test(test_readers_remove_nothing),
		cmocka_unit_test(test_forget),     cmocka_unit_test(test_manifest_is_of_what_was_written),
		cmocka_unit_test(test_refused),    cmocka_unit_test(test_killed),
	};
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
