/* Files: round trips, what each function refuses, and that nothing is left behind after a refusal. */
#define _DEFAULT_SOURCE
#include "base/fs.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

static char dir[64];
static struct fo_arena arena;

static int setup(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/flatout-test-fs-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	fo_arena_fini(&arena);
	return fo_fs_remove_tree(dir) == FO_OK ? 0 : -1;
}

/* dir/name in arena memory */
static char *in(const char *name) { return fo_arena_printf(&arena, "%s/%s", dir, name); }

static void put(const char *name, const char *text)
{
	assert_int_equal(fo_fs_write_atomic(in(name), text, strlen(text)), FO_OK);
}

static void assert_failed(fo_status got, fo_status want, const char *words)
{
	assert_int_equal(got, want);
	if (!strstr(fo_err_text(), words))
		fail_msg("error text is '%s', without '%s'", fo_err_text(), words);
	fo_err_clear();
}

static void test_write_read(void **state)
{
	(void)state;
	char *text;
	size_t len;
	size_t big = 300000; /* several growths of the read buffer */
	char *bytes = fo_arena_alloc(&arena, big);
	for (size_t i = 0; i < big; i++)
		bytes[i] = (char)(i * 7 >> 3);
	assert_int_equal(fo_fs_write_atomic(in("a"), bytes, big), FO_OK);
	assert_int_equal(fo_fs_read(&arena, in("a"), big, &text, &len), FO_OK);
	assert_int_equal(len, big);
	assert_memory_equal(text, bytes, big);
	assert_int_equal(text[big], 0);

	put("a", "short"); /* replaces the long file whole */
	assert_int_equal(fo_fs_read(&arena, in("a"), 5, &text, &len), FO_OK);
	assert_string_equal(text, "short");
	assert_int_equal(len, 5);

	put("empty", "");
	assert_int_equal(fo_fs_read(&arena, in("empty"), 0, &text, &len), FO_OK);
	assert_int_equal(len, 0);
	assert_string_equal(text, "");
}

static void test_read_refuses(void **state)
{
	(void)state;
	char *text = NULL;
	size_t len = 7;
	assert_failed(fo_fs_read(&arena, in("none"), 10, &text, &len), FO_EIO, "none': no such file");
	assert_failed(fo_fs_read(&arena, dir, 10, &text, &len), FO_EIO, "directory");
	put("six", "sixsix");
	assert_failed(fo_fs_read(&arena, in("six"), 5, &text, &len), FO_EFORMAT, "limit of 5 bytes");
	/* no size is reported for a device, so the limit must hold while reading */
	assert_failed(fo_fs_read(&arena, "/dev/zero", 10000, &text, &len), FO_EFORMAT, "limit of 10000 bytes");
	assert_null(text);
	assert_int_equal(len, 7);
	assert_int_equal(fo_fs_read(&arena, "/proc/self/status", 1 << 20, &text, &len), FO_OK);
	assert_true(len > 0 && !strncmp(text, "Name:", 5));
}

static void test_write_refuses(void **state)
{
	(void)state;
	assert_failed(fo_fs_write_atomic(in("no/such"), "x", 1), FO_EIO, "no such file");
	assert_int_equal(fo_fs_mkdirs(in("folder/inside")), FO_OK);
	assert_failed(fo_fs_write_atomic(in("folder"), "x", 1), FO_EIO, "cannot write");
}

static void assert_text(const char *name, const char *want)
{
	char *text;
	size_t len;
	assert_int_equal(fo_fs_read(&arena, in(name), 100, &text, &len), FO_OK);
	assert_string_equal(text, want);
}

/* Entries of the folder, hidden ones too. */
static int entries(const char *name)
{
	int n = 0;
	DIR *d = opendir(in(name));
	assert_non_null(d);
	for (const struct dirent *e; (e = readdir(d));)
		n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
	closedir(d);
	return n;
}

/* What lies under the names that temporary files had or have: a pipe does not hang us, and no link leads the write
 * elsewhere. */
static void test_planted_names(void **state)
{
	(void)state;
	static const char *const name[] = { "plant/target.tmp", "plant/.target.0123456789abcdef.flatout-tmp",
					    "plant/.target.tmp" };
	assert_int_equal(fo_fs_mkdirs(in("plant")), FO_OK);
	put("plant/victim", "untouched");
	for (int kind = 0; kind < 3; kind++) {
		for (int i = 0; i < 3; i++) {
			unlink(in(name[i]));
			assert_int_equal(kind == 0   ? mkfifo(in(name[i]), 0600)
					 : kind == 1 ? link(in("plant/victim"), in(name[i]))
						     : symlink(in("plant/victim"), in(name[i])),
					 0);
		}
		put("plant/target", "x");
		assert_text("plant/target", "x");
		assert_text("plant/victim", "untouched");
		struct stat st;
		for (int i = 0; i < 3; i++)
			assert_int_equal(lstat(in(name[i]), &st), 0); /* not ours to remove */
	}
}

/* A writer that was killed leaves a file; the next one of the same target removes it, but not one that is still
 * written. */
static void test_left_over(void **state)
{
	(void)state;
	assert_int_equal(fo_fs_mkdirs(in("left")), FO_OK);
	for (int i = 0; i < 3; i++) {
		pid_t child = fork();
		if (!child) {
			struct fo_new_file f;
			_exit(fo_fs_new_begin(&f, in("left/target")) == FO_OK && fo_fs_new_write(&f, "half", 4) == FO_OK
				      ? 0
				      : 1);
		}
		int code;
		assert_int_equal(waitpid(child, &code, 0), child);
		assert_int_equal(code, 0);
	}
	assert_int_equal(entries("left"), 1); /* the newest alone */
	struct fo_new_file open_one;
	assert_int_equal(fo_fs_new_begin(&open_one, in("left/target")), FO_OK);
	put("left/other", "of another name");
	put("left/target", "whole");
	assert_int_equal(entries("left"), 3);
	assert_int_equal(fo_fs_new_write(&open_one, "later", 5), FO_OK);
	assert_int_equal(fo_fs_new_end(&open_one, FO_OK, true), FO_OK);
	assert_text("left/target", "later");
	assert_int_equal(entries("left"), 2);
	/* A name as long as file systems allow has room for what is added. */
	char longest[256 + 8] = "left/";
	memset(longest + 5, 'n', 255);
	put(longest, "long");
	assert_text(longest, "long");
	/* An error leaves nothing. */
	assert_int_equal(fo_fs_new_begin(&open_one, in("left/target")), FO_OK);
	assert_int_equal(fo_fs_new_end(&open_one, FO_EIO, true), FO_EIO);
	assert_int_equal(entries("left"), 3);
	assert_text("left/target", "later");
}

/* Processes that write one file at once all succeed, and one of them has it whole. */
static void test_writers_at_once(void **state)
{
	(void)state;
	enum { WRITERS = 8, TIMES = 20, BYTES = 20000 };
	pid_t child[WRITERS];
	assert_int_equal(fo_fs_mkdirs(in("once")), FO_OK);
	for (int i = 0; i < WRITERS; i++) {
		child[i] = fork();
		if (child[i])
			continue;
		static char bytes[BYTES];
		memset(bytes, 'a' + i, sizeof bytes);
		for (int k = 0; k < TIMES; k++)
			if (fo_fs_write_atomic(in("once/target"), bytes, sizeof bytes) != FO_OK)
				_exit(1);
		_exit(0);
	}
	for (int i = 0; i < WRITERS; i++) {
		int code;
		assert_int_equal(waitpid(child[i], &code, 0), child[i]);
		assert_int_equal(code, 0);
	}
	char *text;
	size_t len;
	assert_int_equal(fo_fs_read(&arena, in("once/target"), BYTES, &text, &len), FO_OK);
	assert_int_equal(len, BYTES);
	for (size_t i = 1; i < len; i++)
		assert_int_equal(text[i], text[0]);
	assert_int_equal(entries("once"), 1);
}

static void test_home_path(void **state)
{
	(void)state;
	assert_int_equal(setenv("HOME", "/h", 1), 0);
	assert_string_equal(fo_fs_home_path(&arena, "~/x"), "/h/x");
	assert_string_equal(fo_fs_home_path(&arena, "~"), "/h");
	assert_string_equal(fo_fs_home_path(&arena, "x/~"), "x/~");
	assert_null(fo_fs_home_path(&arena, "~bob/x"));
}

/* A device or a pipe is written into: a file renamed over /dev/null would take it from the whole machine. */
static void test_write_special(void **state)
{
	(void)state;
	char got[8] = "";
	struct stat info;
	assert_int_equal(mkfifo(in("pipe"), 0600), 0);
	int fd = open(in("pipe"), O_RDWR);
	assert_true(fd >= 0);
	assert_true(fo_fs_is_special(in("pipe")));
	assert_int_equal(fo_fs_write_atomic(in("pipe"), "hello", 5), FO_OK);
	assert_int_equal(read(fd, got, sizeof got), 5);
	assert_string_equal(got, "hello");
	assert_int_equal(stat(in("pipe"), &info), 0);
	assert_true(S_ISFIFO(info.st_mode));
	close(fd);
}

static void test_mkdirs(void **state)
{
	(void)state;
	assert_int_equal(fo_fs_mkdirs(in("x/y/z")), FO_OK);
	assert_int_equal(fo_fs_mkdirs(in("x//y/z/")), FO_OK);
	assert_int_equal(fo_fs_mkdirs("/"), FO_OK);
	assert_true(fo_fs_is_dir(in("x/y/z")));
	put("x/file", "1");
	assert_false(fo_fs_is_dir(in("x/file")));
	assert_failed(fo_fs_mkdirs(in("x/file")), FO_EIO, "x/file': not a directory");
	assert_failed(fo_fs_mkdirs(in("x/file/y")), FO_EIO, "not a directory");
	assert_failed(fo_fs_mkdirs(""), FO_EIO, "no such file");
	assert_int_equal(fo_fs_sync_dir(in("x")), FO_OK);
	assert_failed(fo_fs_sync_dir(in("x/file")), FO_EIO, "not a directory");
}

static void test_remove_tree(void **state)
{
	(void)state;
	assert_int_equal(fo_fs_mkdirs(in("r/a/b")), FO_OK);
	put("r/a/b/file", "1");
	put("outside", "stays");
	assert_int_equal(symlink(dir, in("r/a/up")), 0); /* followed, this would remove everything */
	assert_int_equal(fo_fs_remove_tree(in("r")), FO_OK);
	assert_false(fo_fs_exists(in("r")));
	assert_true(fo_fs_exists(in("outside")));
	assert_int_equal(fo_fs_remove_tree(in("r")), FO_OK);
	assert_int_equal(fo_fs_remove_tree(in("outside")), FO_OK);
	assert_false(fo_fs_exists(in("outside")));
}

static void test_list(void **state)
{
	(void)state;
	char **files;
	size_t n;
	assert_int_equal(fo_fs_mkdirs(in("l/sub/.hidden")), FO_OK);
	assert_int_equal(fo_fs_mkdirs(in("l/nothing")), FO_OK);
	put("l/b", "1");
	put("l/a", "1");
	put("l/sub/c", "1");
	put("l/.dot", "1");
	put("l/sub/.hidden/d", "1");
	assert_int_equal(symlink("..", in("l/sub/loop")), 0);
	assert_int_equal(symlink("b", in("l/link")), 0);
	assert_int_equal(symlink("nowhere", in("l/broken")), 0);
	assert_int_equal(mkfifo(in("l/pipe"), 0600), 0);
	const char *const want[] = { "l/a", "l/b", "l/link", "l/sub/c" };
	for (int slash = 0; slash < 2; slash++) {
		assert_int_equal(fo_fs_list(&arena, in(slash ? "l/" : "l"), 4, &files, &n), FO_OK);
		assert_int_equal(n, 4);
		for (size_t i = 0; i < n; i++)
			assert_string_equal(files[i], in(want[i]));
	}
	assert_failed(fo_fs_list(&arena, in("l"), 3, &files, &n), FO_EFORMAT, "more than 3 files");
	assert_int_equal(fo_fs_list(&arena, in("l/.dot"), 1, &files, &n), FO_OK); /* named by the user: not skipped */
	assert_int_equal(n, 1);
	assert_failed(fo_fs_list(&arena, in("l/.dot"), 0, &files, &n), FO_EFORMAT, "more than 0 files");
	assert_int_equal(fo_fs_list(&arena, in("l/nothing"), 1, &files, &n), FO_OK);
	assert_int_equal(n, 0);
	assert_failed(fo_fs_list(&arena, in("l/broken"), 1, &files, &n), FO_EIO, "no such file");
}

static void test_map(void **state)
{
	(void)state;
	struct fo_map m = { 0 };
	put("m", "mapped");
	assert_int_equal(fo_map_open(&m, in("m")), FO_OK);
	assert_int_equal(m.len, 6);
	assert_memory_equal(m.data, "mapped", 6);
	fo_map_close(&m);
	assert_null(m.data);
	fo_map_close(&m); /* closing twice is harmless */

	put("zero", "");
	assert_int_equal(fo_map_open(&m, in("zero")), FO_OK);
	assert_int_equal(m.len, 0);
	assert_non_null(m.data);
	fo_map_close(&m);
	assert_failed(fo_map_open(&m, in("none")), FO_EIO, "no such file");
	assert_failed(fo_map_open(&m, dir), FO_EIO, "directory");
	assert_failed(fo_map_open(&m, "/dev/null"), FO_EIO, "not a regular file");
}

static fo_status touch_all(void *ctx)
{
	const struct fo_map *m = ctx;
	unsigned sum = 0;
	for (size_t i = 0; i < m->len; i++)
		sum += m->data[i];
	return sum ? FO_OK : fo_fail(FO_EBUG, "nothing was read");
}

static fo_status touch_guarded(void *ctx)
{
	assert_int_equal(fo_map_guard(touch_all, ctx), FO_EIO);
	return FO_OK;
}

/* A mapped file that is cut, written to or removed while it is in use. */
static void test_map_guard(void **state)
{
	(void)state;
	enum { SIZE = 3 * 65536 }; /* several pages, whatever their size */
	static char text[SIZE + 1];
	struct fo_map m, other;
	memset(text, 'x', SIZE);
	put("cut", text);
	put("other", "text");
	assert_int_equal(fo_map_open(&other, in("other")), FO_OK);
	assert_int_equal(fo_map_open(&m, in("cut")), FO_OK);
	assert_int_equal(fo_map_guard(touch_all, &m), FO_OK);
	assert_int_equal(fo_map_check(m.data), FO_OK);
	assert_int_equal(truncate(in("cut"), 65536), 0);
	assert_failed(fo_map_guard(touch_all, &m), FO_EIO, "cut' at byte 65536");
	assert_failed(fo_map_check(m.data), FO_EIO, "has 65536 bytes now, 196608 when it was opened");
	assert_int_equal(fo_map_guard(touch_guarded, &m), FO_OK); /* the inner one is left, not the outer */
	assert_int_equal(fo_map_guard(touch_all, &other), FO_OK);
	fo_map_close(&m);
	assert_int_equal(fo_map_check(m.data), FO_OK); /* nothing that is open */

	/* The same size, other bytes. */
	int fd = open(in("other"), O_WRONLY);
	struct timespec times[2] = { { .tv_sec = 1 }, { .tv_sec = 1 } };
	assert_int_equal(pwrite(fd, "T", 1, 0), 1);
	assert_int_equal(futimens(fd, times), 0); /* two writes within one tick of the clock are not the point here */
	close(fd);
	assert_failed(fo_map_check(other.data), FO_EIO, "other' was written to while it was in use");
	fo_map_close(&other);

	put("gone", "text");
	assert_int_equal(fo_map_open(&other, in("gone")), FO_OK);
	assert_int_equal(unlink(in("gone")), 0);
	assert_int_equal(fo_map_check(other.data), FO_OK);
	assert_int_equal(fo_map_guard(touch_all, &other), FO_OK);
	fo_map_close(&other);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_write_read),    cmocka_unit_test(test_read_refuses),
		cmocka_unit_test(test_write_refuses), cmocka_unit_test(test_planted_names),
		cmocka_unit_test(test_left_over),     cmocka_unit_test(test_writers_at_once),
		cmocka_unit_test(test_home_path),     cmocka_unit_test(test_write_special),
		cmocka_unit_test(test_mkdirs),        cmocka_unit_test(test_remove_tree),
		cmocka_unit_test(test_list),          cmocka_unit_test(test_map),
		cmocka_unit_test(test_map_guard),
	};
	return cmocka_run_group_tests(tests, setup, teardown);
}
