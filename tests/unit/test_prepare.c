/* Preparing: the same bytes with any number of threads, stopped and killed at any instant; sources of documents. */
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "data/data.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

static char scratch[] = "/tmp/flatout_prepare_XXXXXX";
static struct fo_tokenizer *tokenizer;
static char inputs_path[4][512], *inputs[4];
enum { LINES = 40000, EVERY = 20 };

static const char *in_scratch(const char *name)
{
	static char path[6][512];
	static int turn;
	turn = (turn + 1) % 6;
	snprintf(path[turn], sizeof path[turn], "%s/%s", scratch, name);
	return path[turn];
}

static fo_status prepare(const char *dir, int threads, int64_t save_ns, fo_progress_fn *progress,
			 const volatile sig_atomic_t *stop, struct fo_prepare_stats *stats)
{
	return fo_data_prepare(&(struct fo_prepare){ .inputs = inputs,
						     .n = 4,
						     .dir = in_scratch(dir),
						     .tokenizer = tokenizer,
						     .text = { .skip_bad = true },
						     .holdout_every = EVERY,
						     .threads = threads,
						     .save_every_ns = save_ns,
						     .progress = progress,
						     .stop = stop },
			       stats);
}

/* Are the four files of two folders the same bytes, and nothing else there? */
static void assert_same(const char *a, const char *b)
{
	static const char *const name[] = { "train.shard", "val.shard", "train.src", "val.src", "prepared.json" };
	struct fo_arena arena = { 0 };
	char path[1024], **files;
	for (int i = 0; i < 5; i++) {
		struct fo_map m[2];
		for (int k = 0; k < 2; k++) {
			snprintf(path, sizeof path, "%s/%s", in_scratch(k ? b : a), name[i]);
			must(fo_map_open(&m[k], path));
		}
		if (m[0].len != m[1].len || memcmp(m[0].data, m[1].data, m[0].len))
			fail_msg("%s of '%s' and '%s' differ", name[i], a, b);
		fo_map_close(&m[0]);
		fo_map_close(&m[1]);
	}
	size_t n;
	must(fo_fs_list(&arena, in_scratch(b), 100, &files, &n));
	assert_int_equal(n, 5); /* no temporary file, no journal */
	fo_arena_fini(&arena);
}

static void test_threads_do_not_matter(void **state)
{
	(void)state;
	struct fo_prepare_stats s[3];
	must(prepare("one", 1, 0, NULL, NULL, &s[0]));
	must(prepare("two", 2, 1, NULL, NULL, &s[1]));
	must(prepare("five", 5, 0, NULL, NULL, &s[2]));
	assert_same("one", "two");
	assert_same("one", "five");
	assert_memory_equal(&s[0], &s[1], sizeof *s);
	assert_memory_equal(&s[0], &s[2], sizeof *s);
	assert_int_equal(s[0].files, 4);
	assert_int_equal(s[0].skipped_bad, 2); /* a line and a cut archive */
	assert_int_equal(s[0].skipped_binary, 0);
	assert_int_equal(s[0].skipped_empty, 1);
	assert_int_equal(s[0].train_docs + s[0].val_docs, LINES - 2 + 2); /* lines, two texts */
	/* Once more: nothing is left to do. */
	must(prepare("one", 3, 0, NULL, NULL, &s[1]));
	assert_int_equal(s[1].resumed_bytes, s[0].bytes);
	assert_int_equal(s[1].train_tokens, s[0].train_tokens);
	assert_same("two", "one");
}

/* Every document's source is where its text stands. */
static void test_sources(void **state)
{
	(void)state;
	bool seen[LINES + 1] = { false };
	int64_t texts = 0;
	for (int side = 0; side < 2; side++) {
		char path[1024];
		struct fo_shard s;
		struct fo_shard_sources o;
		struct fo_doc_source from;
		snprintf(path, sizeof path, "%s/%s.shard", in_scratch("one"), side ? "val" : "train");
		must(fo_shard_open(&s, path));
		must(fo_shard_sources_open(&o, &s, path));
		must(fo_shard_sources_verify(&o));
		assert_int_equal(o.docs, s.docs);
		assert_int_equal(o.files, 4);
		for (int64_t d = 0; d < s.docs; d++) {
			must(fo_shard_source(&o, d, &from));
			if (!from.line) {
				texts++;
				continue;
			}
			struct fo_str text = { 0 };
			char want[64];
			assert_string_equal(from.path, inputs[0]);
			for (int64_t i = s.doc_at[d] + 1; i < s.doc_at[d + 1] - 1; i++)
				fo_tokenizer_decode(tokenizer, &(int32_t){ s.ids16[i] }, 1, &text);
			snprintf(want, sizeof want, "line %lld of many", (long long)from.line);
			assert_string_equal(text.data, want);
			assert_false(seen[from.line]);
			seen[from.line] = true;
			fo_str_fini(&text);
		}
		assert_int_equal(fo_shard_source(&o, s.docs, &from), FO_EARG);
		assert_int_equal(fo_shard_source(&o, -1, &from), FO_EARG);
		/* The other shard's list does not pass for this one's. */
		char other[1024];
		struct fo_shard_sources wrong;
		snprintf(other, sizeof other, "%s/%s.shard", in_scratch("one"), side ? "train" : "val");
		assert_int_equal(fo_shard_sources_open(&wrong, &s, other), FO_EFORMAT);
		fo_shard_sources_close(&o);
		fo_shard_close(&s);
	}
	assert_int_equal(texts, 2);
}

static int64_t duration_ns;

/* Killed at random instants until it comes through. */
static void test_killed_at_any_instant(void **state)
{
	(void)state;
	int kills = 0, gone_on = 0;
	/* Where the machine is faster now than when `duration_ns` was taken: more rounds, that kill earlier. */
	for (uint64_t round = 0; round < 4 || (round < 40 && (kills < 4 || gone_on == 0)); round++) {
		bool done = false;
		must(fo_fs_remove_tree(in_scratch("killed")));
		for (uint64_t attempt = 0; !done && attempt < 200; attempt++) {
			pid_t child = fork();
			if (!child) {
				struct fo_prepare_stats s;
				fo_status st = prepare("killed", 1 + (int)(attempt % 3), 1, NULL, NULL, &s);
				if (st != FO_OK)
					fprintf(stderr, "after a kill: %s\n", fo_err_text());
				_exit(st != FO_OK ? 1 : s.resumed_bytes > 0 && s.resumed_bytes < s.bytes ? 2 : 0);
			}
			/* Early rounds kill early and often; all come through in the end. */
			int64_t wait = (int64_t)(fo_rng_u64(round, attempt) %
						 (uint64_t)(duration_ns / (2 + (int64_t)round) + attempt * 10000000));
			nanosleep(&(struct timespec){ wait / 1000000000, wait % 1000000000 }, NULL);
			kill(child, SIGKILL);
			int status;
			waitpid(child, &status, 0);
			kills += WIFSIGNALED(status);
			done = WIFEXITED(status);
			assert_true(!done || WEXITSTATUS(status) != 1);
			gone_on += done && WEXITSTATUS(status) == 2;
		}
		assert_true(done);
		struct fo_prepare_stats s;
		must(prepare("killed", 1, 0, NULL, NULL, &s)); /* a kill behind the last rename leaves the journal */
		assert_same("one", "killed");
	}
	assert_true(kills >= 4 && gone_on > 0);
}

static volatile sig_atomic_t stop_now;
static int calls;

static void stop_after_two(void *ctx, const char *what, const char *unit, double done, double total)
{
	(void)ctx, (void)what, (void)unit, (void)done, (void)total;
	stop_now = ++calls >= 2;
}

static void test_stopped_and_gone_on(void **state)
{
	(void)state;
	struct fo_prepare_stats s = { 0 };
	stop_now = calls = 0;
	assert_int_equal(prepare("stopped", 1, 0, stop_after_two, &stop_now, &s), FO_EINTERRUPT);
	assert_true(fo_fs_exists(in_scratch("stopped/prepare.journal")));
	assert_false(fo_fs_exists(in_scratch("stopped/train.shard")));
	must(prepare("stopped", 2, 0, NULL, NULL, &s));
	assert_true(s.resumed_bytes > 0 && s.resumed_bytes < s.bytes);
	assert_same("one", "stopped");
}

/* A second preparation in the same folder, asked for while the first one runs. */
static fo_status nested;
static char nested_text[512];

static void prepare_again(void *ctx, const char *what, const char *unit, double done, double total)
{
	(void)ctx, (void)what, (void)unit, (void)done, (void)total;
	struct fo_prepare_stats s;
	if (nested != FO_OK)
		return;
	nested = prepare("shared", 1, 0, NULL, NULL, &s);
	snprintf(nested_text, sizeof nested_text, "%s", fo_err_text());
}

static void test_one_at_a_time(void **state)
{
	(void)state;
	struct fo_prepare_stats s;
	must(prepare("shared", 1, 0, prepare_again, NULL, &s));
	assert_int_equal(nested, FO_EIO);
	assert_non_null(strstr(nested_text, "another process prepares data"));
	assert_same("one", "shared");
}

static void test_other_inputs_are_refused(void **state)
{
	(void)state;
	struct fo_prepare_stats s;
	char *other[] = { inputs[1] };
	struct fo_prepare p = { .inputs = other,
				.n = 1,
				.dir = in_scratch("two"),
				.tokenizer = tokenizer,
				.holdout_every = 20,
				.threads = 1 };
	assert_int_equal(fo_data_prepare(&p, &s), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "holds data prepared from other inputs"));
	stop_now = calls = 0;
	assert_int_equal(prepare("begun", 1, 0, stop_after_two, &stop_now, &s), FO_EINTERRUPT);
	p.dir = in_scratch("begun");
	assert_int_equal(fo_data_prepare(&p, &s), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "holds a preparation begun with other inputs"));
	p.replace = true;
	must(fo_data_prepare(&p, &s));
	assert_int_equal(s.resumed_bytes, 0);
	assert_int_equal(s.files, 1);
	/* A journal with a wrong byte counts as none. */
	stop_now = calls = 0;
	assert_int_equal(prepare("broken", 1, 0, stop_after_two, &stop_now, &s), FO_EINTERRUPT);
	FILE *f = fopen(in_scratch("broken/prepare.journal"), "r+b");
	assert_non_null(f);
	fseek(f, 60, SEEK_SET);
	fputc(0x55, f);
	fclose(f);
	must(prepare("broken", 1, 0, NULL, NULL, &s));
	assert_int_equal(s.resumed_bytes, 0);
	assert_same("one", "broken");
}

static void write_file(int i, const char *name, const struct fo_str *s)
{
	snprintf(inputs_path[i], sizeof inputs_path[i], "%s", in_scratch(name));
	inputs[i] = inputs_path[i];
	FILE *f = fopen(inputs[i], "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(s->data, 1, s->len, f), s->len);
	fclose(f);
}

static int setup(void **state)
{
	(void)state;
	struct fo_str s = { 0 };
	if (!mkdtemp(scratch))
		return -1;
	/* Many short documents, one line bad, one empty; a long text; an archive that is cut; a short text. */
	for (int i = 1; i <= LINES; i++)
		fo_str_printf(&s,
			      i == 777     ? "{\"text\":}\n"
			      : i == 30000 ? "{\"text\":\"\"}\n"
					   : "{\"text\":\"line %d of many\"}\n",
			      i);
	write_file(0, "lines.jsonl", &s);
	s.len = 0;
	for (uint64_t i = 0; s.len < (size_t)2 << 20; i++)
		fo_str_printf(&s, "%llx and some words\n", (unsigned long long)fo_rng_u64(1, i) >> 40);
	write_file(1, "long.txt", &s);
	unsigned char *packed = malloc(s.len);
	z_stream z = { 0 };
	if (deflateInit2(&z, 1, Z_DEFLATED, 31, 8, 0) != Z_OK)
		return -1;
	z.next_in = (unsigned char *)s.data;
	z.avail_in = (uInt)s.len;
	z.next_out = packed;
	z.avail_out = (uInt)s.len;
	deflate(&z, Z_FINISH);
	struct fo_str cut = { 0 };
	fo_str_append(&cut, packed, z.total_out - 5000);
	deflateEnd(&z);
	free(packed);
	write_file(2, "cut.gz", &cut);
	fo_str_fini(&cut);
	s.len = 0;
	fo_str_puts(&s, "the end\n");
	write_file(3, "zz.txt", &s);
	fo_str_fini(&s);
	must(fo_tokenizer_train(inputs, 2, &(struct fo_text_options){ .skip_bad = true }, 400, 1 << 20, NULL, NULL,
				NULL, &tokenizer));
	struct fo_prepare_stats unused;
	int64_t from = fo_now_ns();
	must(prepare("timed", 2, 1, NULL, NULL, &unused));
	duration_ns = fo_now_ns() - from;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	fo_tokenizer_free(tokenizer);
	return fo_fs_remove_tree(scratch) == FO_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_do_not_matter), cmocka_unit_test(test_sources),
		cmocka_unit_test(test_killed_at_any_instant), cmocka_unit_test(test_stopped_and_gone_on),
		cmocka_unit_test(test_one_at_a_time),         cmocka_unit_test(test_other_inputs_are_refused),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
