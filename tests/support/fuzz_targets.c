#define _GNU_SOURCE /* memfd_create */
#include "support/fuzz_targets.h"
#include "ckpt/ckpt.h"
#include "program/run.h"
#include "timeline/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

/* A reader must say what was wrong, in one line. */
static void explained(fo_status st)
{
	if (st != FO_OK && (!fo_err_text()[0] || strchr(fo_err_text(), '\n') || st == FO_EBUG)) {
		fprintf(stderr, "badly explained error %d: '%s'\n", (int)st, fo_err_text());
		abort();
	}
}

/* The bytes as a file that never touches a disk. */
static int as_file(char path[64], const void *bytes, size_t n)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	if (fd < 0 || write(fd, bytes, n) != (ssize_t)n)
		abort();
	snprintf(path, 64, "/proc/self/fd/%d", fd);
	return fd;
}

static void program(const void *bytes, size_t n)
{
	struct fo_program p;
	struct fo_unrolled u;
	fo_err_clear();
	fo_status st = fo_program_parse(&p, bytes, n, "fuzz");
	explained(st);
	if (st != FO_OK)
		return;
	if (fo_unroll(&p, &u) != FO_OK)
		abort(); /* it was verified */
	fo_plan(&p, &u);
	fo_prune_waits(&p, &u);
	fo_unrolled_fini(&u);
	struct fo_str s = { 0 };
	fo_program_dump(&p, &s);
	fo_str_fini(&s);
	fo_program_fini(&p);
}

static void safetensors(const void *bytes, size_t n)
{
	char path[64];
	struct fo_st_file f;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_st_open(&f, path);
	explained(st);
	for (size_t i = 0; st == FO_OK && i < f.n; i++) {
		const struct fo_st_entry *e = &f.entry[i];
		struct fo_st_tensor t = { .dtype = FO_F64,
					  .vector = e->ndim == 1,
					  .rows = e->ndim == 2 ? e->shape[0] : 1 };
		t.cols = t.ld = e->ndim == 2 ? e->shape[1] : e->ndim == 1 ? e->shape[0] : 1;
		if (strlen(e->name) >= sizeof t.name)
			continue;
		snprintf(t.name, sizeof t.name, "%.95s", e->name);
		if (t.rows > 0 && t.cols > 0 &&
		    t.rows * t.cols <= (int64_t)n) { /* as many elements as bytes: no dtype is smaller */
			t.data = malloc((size_t)(t.rows * t.cols) * sizeof(double));
			if (fo_st_copy(&f, path, &t) != FO_OK)
				explained(FO_EFORMAT);
			free(t.data);
		}
	}
	if (st == FO_OK)
		fo_st_close(&f);
	close(fd);
}

static void config(const void *bytes, size_t n)
{
	struct fo_model m;
	fo_err_clear();
	fo_status st = fo_model_parse(bytes, n, "fuzz", &m);
	explained(st);
	if (st != FO_OK)
		return;
	volatile double sink = fo_model_flop_per_token(&m, 2048).mfu;
	(void)sink;
	st = fo_model_trainable(&m);
	explained(st);
}

/* Every shard lies in the folder of the index. */
static void hf_index(const void *bytes, size_t n)
{
	struct fo_arena a = { 0 };
	char **shard;
	size_t shards;
	fo_err_clear();
	fo_status st = fo_hf_index_parse(&a, bytes, n, "fuzz", &shard, &shards);
	explained(st);
	for (size_t i = 0; st == FO_OK && i < shards; i++)
		if (strchr(shard[i], '/') || shard[i][0] == '.' || !shard[i][0])
			abort();
	fo_arena_fini(&a);
}

static void yaml(const void *bytes, size_t n)
{
	struct fo_run r;
	struct fo_opt_set s;
	fo_opt_init(&s, fo_run_options, &r);
	fo_err_clear();
	if (fo_opt_read_yaml_text(&s, bytes, n, "fuzz") == FO_OK && fo_opt_finish(&s) != FO_OK && !fo_err_text()[0])
		abort();
	fo_opt_fini(&s);
}

static void tokenizer(const void *bytes, size_t n)
{
	static const char text[] = "Hello, w\xc3\xb6rld!  123\n\n\xff\xfe";
	char path[64];
	struct fo_tokenizer *t;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_tokenizer_load(path, &t);
	explained(st);
	if (st == FO_OK) {
		int32_t *ids = NULL;
		size_t count = 0, cap = 0;
		struct fo_str out = { 0 };
		if (fo_tokenizer_encode(t, text, sizeof text - 1, &ids, &count, &cap) == FO_OK)
			fo_tokenizer_decode(t, ids, count, &out);
		fo_str_fini(&out);
		free(ids);
		fo_tokenizer_free(t);
	}
	close(fd);
}

static void shard(const void *bytes, size_t n)
{
	char path[64];
	struct fo_shard s;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_shard_open(&s, path);
	explained(st);
	if (st == FO_OK) {
		volatile int64_t sink = 0;
		for (int64_t i = 0; i < s.tokens; i++)
			sink += s.ids16 ? s.ids16[i] : s.ids32[i];
		for (int64_t i = 0; i <= s.docs; i++)
			sink += s.doc_at[i];
		(void)sink;
		fo_shard_close(&s);
	}
	close(fd);
}

static void timeline_file(const void *bytes, size_t n)
{
	char path[64];
	struct fo_timeline_file f;
	int fd = as_file(path, bytes, n);
	fo_err_clear();
	fo_status st = fo_timeline_read(&f, path);
	explained(st);
	if (st == FO_OK)
		fo_timeline_fini(&f.t);
	close(fd);
}

/* As it is, then with its checksum made right (8 bytes at 16, over all behind the header): or nothing else would be tried. */
static void timeline(const void *bytes, size_t n)
{
	enum { HEADER = 24 + 8 * FO_LANE_COUNT };
	timeline_file(bytes, n);
	if (n < HEADER)
		return;
	unsigned char *copy = malloc(n);
	memcpy(copy, bytes, n);
	uint64_t sum = XXH3_64bits(copy + HEADER, n - HEADER);
	memcpy(copy + 16, &sum, sizeof sum);
	timeline_file(copy, n);
	free(copy);
}

const struct fuzz_target fuzz_target[] = {
	{ "program", program },   { "safetensors", safetensors }, { "config", config },
	{ "yaml", yaml },         { "tokenizer", tokenizer },     { "shard", shard },
	{ "timeline", timeline }, { "index", hf_index },
};
const int fuzz_targets = sizeof fuzz_target / sizeof *fuzz_target;
