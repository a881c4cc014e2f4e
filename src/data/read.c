/* Inputs to documents: which files there are, what each one is, where its documents begin and end. */
#include "data/text.h"

#include "base/fs.h"
#include "base/mem.h"
#include "base/packed.h"
#include "base/retry.h"

#define XXH_INLINE_ALL
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

/* Long enough that threads have something to do and a cut is rare, short enough that dozens of parts fit into memory.
 */
#define PART_BYTES ((size_t)1 << 20)

struct file {
	const char *path;
	int64_t bytes, changed_ns;
};

struct fo_text {
	struct fo_text_options o;
	char *field;
	struct fo_arena arena;
	struct file *file;
	size_t files, file_cap;
	bool standard_input, left_out;       /* left_out: some of the caller's own output */
	int64_t packed_total, packed_before; /* packed_before: of the files that are done */
	struct fo_packed *in;                /* of the present file; NULL: between files */
	bool json;
	char *buffer;
	size_t cap, from, to;
	bool in_end;         /* nothing comes after buffer[from..to) */
	fo_status in_failed; /* damage after these bytes, reported when it is reached */
	struct fo_err in_error;
	XXH3_state_t *digest;
	struct fo_text_place place; /* digest is filled in when asked for */
};

/* ---- the list of files ---- */

static fo_status add_file(struct fo_text *t, const char *path)
{
	struct stat s = { 0 };
	bool standard = !strcmp(path, "-");
	if (t->files == FO_TEXT_MAX_FILES)
		return fo_fail(FO_EARG, "more than %zu files", FO_TEXT_MAX_FILES);
	if (!standard && stat(path, &s))
		return fo_fs_refuse("read", path, errno);
	if (standard && t->standard_input)
		return fo_fail(FO_EARG, "standard input ('-') is named twice");
	t->standard_input |= standard;
	fo_array_room(&t->file, &t->file_cap, t->files, sizeof *t->file);
	t->file[t->files++] = (struct file){
		.path = fo_arena_strdup(&t->arena, path),
	};
	if (S_ISREG(s.st_mode)) {
		t->file[t->files - 1].bytes = s.st_size;
		t->file[t->files - 1].changed_ns = (int64_t)s.st_mtim.tv_sec * 1000000000 + s.st_mtim.tv_nsec;
	}
	t->packed_total += t->file[t->files - 1].bytes;
	return FO_OK;
}

/* Does `path` lie in `folder`? *rest: what follows the folder in it, "" for the folder itself. Both are resolved. */
static bool lies_in(const char *path, const char *folder, const char **rest)
{
	size_t n = strlen(folder);
	n -= n && folder[n - 1] == '/'; /* the root */
	*rest = path + n;
	return !strncmp(path, folder, n) && (!path[n] || path[n] == '/');
}

/* The output's path as it is spelled below the folder that is read; "": the folder is the output or lies in it; NULL:
 * neither lies in the other. */
static char *output_below(const struct fo_text *t, struct fo_arena *a, const char *path)
{
	const char *rest;
	char *out = NULL, *in = NULL, *name = NULL;
	if (t->o.leave_out)
		out = realpath(t->o.leave_out, NULL);
	if (out)
		in = realpath(path, NULL);
	size_t n = strlen(path);
	if (in && lies_in(in, out, &rest))
		name = "";
	else if (in && lies_in(out, in, &rest))
		name = fo_arena_printf(a, "%.*s%s/", (int)(n - (n && path[n - 1] == '/')), path, rest);
	free(in);
	free(out);
	return name;
}

static fo_status add_path(struct fo_text *t, const char *path)
{
	struct fo_arena scratch = { 0 };
	char **found;
	size_t n = 0;
	if (!strcmp(path, "-") || !fo_fs_is_dir(path))
		return add_file(t, path);
	const char *output = output_below(t, &scratch, path);
	fo_status st = FO_OK;
	t->left_out |= output && !*output;
	if (!output || *output)
		st = fo_fs_list(&scratch, path, FO_TEXT_MAX_FILES, &found, &n);
	for (size_t i = 0; i < n && st == FO_OK; i++)
		if (!output || strncmp(found[i], output, strlen(output)) != 0)
			st = add_file(t, found[i]);
		else
			t->left_out = true;
	fo_arena_fini(&scratch);
	return st;
}

/* A path that exists is itself, whatever letters it has; else it may be a pattern. */
static fo_status add_input(struct fo_text *t, const char *input)
{
	glob_t g = { 0 };
	if (!strcmp(input, "-") || fo_fs_exists(input) || !strpbrk(input, "*?["))
		return add_path(t, input);
	int code = glob(input, 0, NULL, &g);
	fo_status st = FO_OK;
	if (code)
		st = fo_fail(FO_EIO, code == GLOB_NOMATCH ? "no file matches '%s'" : "cannot search for '%s'", input);
	for (size_t i = 0; i < g.gl_pathc && st == FO_OK; i++)
		st = add_path(t, g.gl_pathv[i]);
	globfree(&g);
	return st;
}

fo_status fo_text_open(struct fo_text **out, char *const *inputs, size_t n, const struct fo_text_options *o)
{
	struct fo_text *t = fo_xmalloc(sizeof *t);
	fo_status st = FO_OK;
	t->o = *o;
	t->o.field = t->field = fo_xstrdup(o->field ? o->field : "text");
	t->o.max_document = o->max_document ? o->max_document : FO_TEXT_MAX_DOCUMENT;
	t->o.max_expand = o->max_expand > 0 ? o->max_expand : FO_TEXT_MAX_EXPAND;
	t->place = (struct fo_text_place){ .offset = -1 };
	t->digest = XXH3_createState();
	if (!t->digest)
		st = fo_fail(FO_ENOMEM, "cannot allocate a checksum state");
	for (size_t i = 0; i < n && st == FO_OK; i++)
		st = add_input(t, inputs[i]);
	t->o.leave_out = NULL; /* belongs to the caller and is not needed any more */
	if (st == FO_OK && !n)
		st = fo_fail(FO_EARG, "no input is named");
	else if (st == FO_OK && !t->files)
		st = fo_fail(FO_EARG, "'%s' holds no files%s", inputs[0], t->left_out ? " but our own output" : "");
	if (st == FO_OK)
		*out = t;
	else
		fo_text_close(t);
	return st;
}

void fo_text_close(struct fo_text *t)
{
	if (!t)
		return;
	fo_packed_close(t->in);
	XXH3_freeState(t->digest);
	free(t->buffer);
	free(t->file);
	free(t->field);
	fo_arena_fini(&t->arena);
	free(t);
}

size_t fo_text_files(const struct fo_text *t) { return t->files; }
const char *fo_text_file(const struct fo_text *t, int64_t file) { return t->file[file].path; }
struct fo_text_counts fo_text_counts(const struct fo_text *t) { return t->place.counts; }

void fo_text_progress(const struct fo_text *t, double *done, double *total)
{
	*done = (double)(t->packed_before + (t->in ? fo_packed_bytes(t->in) : 0));
	*total = t->standard_input ? 0 : (double)t->packed_total;
}

uint64_t fo_text_fingerprint(const struct fo_text *t)
{
	XXH3_state_t x;
	XXH3_INITSTATE(&x);
	XXH3_64bits_reset(&x);
	/* skip_bad and max_expand stay out: they change nothing until something bad is met, and a user who then asks
	 * for it to be skipped wants to go on, not to begin anew. */
	const int64_t option[] = { t->o.format, t->o.max_document, (int64_t)t->files, (int64_t)PART_BYTES };
	XXH3_64bits_update(&x, option, sizeof option);
	XXH3_64bits_update(&x, t->field, strlen(t->field) + 1);
	for (size_t i = 0; i < t->files; i++) {
		const struct file *f = &t->file[i];
		XXH3_64bits_update(&x, f->path, strlen(f->path) + 1);
		XXH3_64bits_update(&x, &f->bytes, sizeof f->bytes);
		XXH3_64bits_update(&x, &f->changed_ns, sizeof f->changed_ns);
	}
	return XXH3_64bits_digest(&x);
}

/* ---- the buffer ---- */

static size_t left(const struct fo_text *t) { return t->to - t->from; }

/* Makes n bytes available, fewer only at the end of the file or before its damage. */
static void fill(struct fo_text *t, size_t n)
{
	if (left(t) >= n || t->in_end)
		return;
	if (t->from) {
		memmove(t->buffer, t->buffer + t->from, left(t));
		t->to -= t->from;
		t->from = 0;
	}
	if (n > t->cap) {
		t->buffer = fo_xrealloc(t->buffer, n);
		t->cap = n;
	}
	size_t got;
	t->in_failed = fo_packed_read(t->in, t->buffer + t->to, t->cap - t->to, &got);
	t->in_end = t->in_failed != FO_OK || got < t->cap - t->to;
	t->to += got;
	if (t->in_failed != FO_OK)
		fo_err_save(&t->in_error, t->in_failed);
}

static void consume(struct fo_text *t, size_t n)
{
	XXH3_64bits_update(t->digest, t->buffer + t->from, n);
	t->from += n;
	t->place.offset += (int64_t)n;
}

static void leave_file(struct fo_text *t)
{
	t->packed_before += t->file[t->place.file].bytes;
	fo_packed_close(t->in);
	t->in = NULL;
	t->place.file++;
	t->place.offset = -1;
	t->place.line = 0;
	t->place.open = false;
}

static bool named_jsonl(const char *path)
{
	static const char *const packed[] = { ".gz", ".zst" }, *const lines[] = { ".jsonl", ".ndjson" };
	size_t n = strlen(path);
	for (int i = 0; i < 2; i++)
		if (n > strlen(packed[i]) && !strncmp(path + n - strlen(packed[i]), packed[i], strlen(packed[i]))) {
			n -= strlen(packed[i]);
			break;
		}
	for (int i = 0; i < 2; i++)
		if (n >= strlen(lines[i]) && !strncmp(path + n - strlen(lines[i]), lines[i], strlen(lines[i])))
			return true;
	return false;
}

/* Is the file's first line that is not blank an object with the field? The buffer holds the file's beginning. */
static bool looks_jsonl(const struct fo_text *t)
{
	const char *p = t->buffer + t->from, *end = t->buffer + t->to;
	while (p < end && strchr(" \t\r\n", *p) && *p)
		p++;
	if (p == end || *p != '{')
		return false;
	const char *line_end = memchr(p, '\n', (size_t)(end - p));
	if (!line_end && !t->in_end)
		return false; /* a first line of over a mebibyte: the name decides */
	size_t n = (size_t)((line_end ? line_end : end) - p), len;
	char *copy = fo_xmalloc(n + 1), *text;
	memcpy(copy, p, n);
	bool yes = fo_text_field(copy, n, t->field, &text, &len) == FO_OK;
	free(copy);
	fo_err_clear();
	return yes;
}

static fo_status open_file(struct fo_text *t, const char *path)
{
	struct stat info;
	if (!strcmp(path, "-"))
		return fo_packed_open(&t->in, STDIN_FILENO, "standard input", t->o.max_expand);
	int fd = fo_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0); /* a FIFO without a writer must not hang us */
	if (fd < 0)
		return fo_fs_refuse("read", path, errno);
	if (fstat(fd, &info) || S_ISDIR(info.st_mode)) {
		close(fd);
		return fo_fail(FO_EIO, "cannot read '%s': it is a folder", path);
	}
	fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
	return fo_packed_open(&t->in, fd, path, t->o.max_expand);
}

static fo_status enter_file(struct fo_text *t)
{
	const char *path = t->file[t->place.file].path;
	t->place.counts.files++;
	t->place.offset = 0;
	t->place.line = 0;
	t->from = t->to = 0;
	t->in_end = false;
	t->in_failed = FO_OK;
	XXH3_64bits_reset(t->digest);
	fo_status st = open_file(t, path);
	if (st != FO_OK) {
		t->in_end = true;
		t->in_failed = st;
		fo_err_save(&t->in_error, st);
		return FO_OK; /* reported as damage after no bytes */
	}
	fill(t, PART_BYTES);
	t->json = t->o.format == FO_TEXT_JSONL ||
		  (t->o.format == FO_TEXT_AUTO && (named_jsonl(path) || looks_jsonl(t)));
	if (t->json && left(t) >= 3 && !memcmp(t->buffer + t->from, "\xef\xbb\xbf", 3))
		consume(t, 3); /* a byte order mark is no part of a line */
	return FO_OK;
}

/* ---- documents ---- */

static size_t cut_at_line(const void *ctx, const char *text, size_t len, size_t at)
{
	(void)ctx;
	const char *end = at < len ? memchr(text + at, '\n', len - at) : NULL;
	return end ? (size_t)(end - text) + 1 : len;
}

/* A cut between two characters, where the text has no better place. */
static size_t cut_anywhere(const char *text, size_t len)
{
	size_t at = len;
	while (at > len - 4 && ((unsigned char)text[at - 1] & 0xc0) == 0x80)
		at--;
	return at > 1 && (unsigned char)text[at - 1] >= 0xc0 ? at - 1 : len;
}

/* Bytes of the part that begins at buffer[from]: a pure function of the text from there on, however much of it was read
 * at once. */
static size_t part_length(struct fo_text *t)
{
	for (size_t window = PART_BYTES;; window *= 2) {
		fill(t, window + 1);
		if (left(t) <= window)
			return left(t);
		size_t at = t->o.cut ? t->o.cut(t->o.cut_ctx, t->buffer + t->from, window, PART_BYTES / 2)
				     : cut_at_line(NULL, t->buffer + t->from, window, PART_BYTES / 2);
		if (at < window)
			return at;
		if (window >= (size_t)t->o.max_document)
			return cut_anywhere(t->buffer + t->from, window);
	}
}

/* Reports the damage after the last good byte of the file, or counts it and leaves the file. *dropped: a document was
 * open. */
static fo_status meet_damage(struct fo_text *t, bool *dropped)
{
	*dropped = t->place.open;
	if (!t->o.skip_bad || t->in_failed == FO_ENOMEM)
		return fo_err_raise(&t->in_error);
	t->place.counts.bad++;
	leave_file(t);
	return FO_OK;
}

static struct fo_text_part drop(const struct fo_text_part *p)
{
	return (struct fo_text_part){ .bytes = p->bytes, .file = p->file, .ends = true, .dropped = true };
}

/* The next part of a file of text. *got: out holds something; else the file was left. */
static fo_status next_of_text(struct fo_text *t, struct fo_text_part *out, bool *got)
{
	size_t n = part_length(t);
	bool last = n == left(t) && t->in_end;
	*out = (struct fo_text_part){
		.bytes = t->buffer + t->from, .len = n, .file = t->place.file, .begins = !t->place.open, .ends = last
	};
	if (last && t->in_failed != FO_OK) {
		*out = drop(out);
		return meet_damage(t, got);
	}
	if (n && memchr(t->buffer + t->from, 0, n)) {
		*got = t->place.open;
		*out = drop(out);
		t->place.counts.binary++;
		leave_file(t);
		return FO_OK;
	}
	*got = n > 0;
	t->place.counts.empty += n == 0;
	t->place.open = !last;
	consume(t, n);
	if (last)
		leave_file(t);
	return FO_OK;
}

static fo_status too_long(struct fo_text *t)
{
	if (!t->o.skip_bad) {
		fo_fail(FO_EFORMAT, "'%s':%lld: the line is longer than %lld bytes", t->file[t->place.file].path,
			(long long)t->place.line + 1, (long long)t->o.max_document);
		return fo_hint(FO_EFORMAT, "'flatout data prepare --max-document=SIZE' takes longer ones, with "
					   "--on-error=skip it leaves them out");
	}
	t->place.counts.bad++;
	t->place.line++;
	for (char *end = NULL; !end && (fill(t, PART_BYTES), left(t));) {
		end = memchr(t->buffer + t->from, '\n', left(t));
		consume(t, end ? (size_t)(end - (t->buffer + t->from)) + 1 : left(t));
	}
	return FO_OK;
}

static bool blank(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != ' ' && p[i] != '\t' && p[i] != '\r')
			return false;
	return true;
}

static fo_status next_of_lines(struct fo_text *t, struct fo_text_part *out, bool *got)
{
	*got = false;
	char *end = NULL;
	size_t most = (size_t)t->o.max_document, searched = 0;
	for (size_t window = 1 << 16;; window *= 2) {
		fill(t, window < most + 1 ? window : most + 1);
		end = memchr(t->buffer + t->from + searched, '\n', left(t) - searched);
		searched = left(t);
		if (end || t->in_end || searched > most)
			break;
	}
	if (!end && t->in_end && t->in_failed != FO_OK) {
		bool dropped;
		return meet_damage(t, &dropped); /* the line that was cut short is part of the damage */
	}
	if (!end && t->in_end && !left(t)) {
		t->place.counts.empty += t->place.line == 0;
		leave_file(t);
		return FO_OK;
	}
	size_t n = end ? (size_t)(end - (t->buffer + t->from)) : left(t);
	if (n > most)
		return too_long(t);
	t->place.line++;
	*out = (struct fo_text_part){ .bytes = t->buffer + t->from,
				      .len = n,
				      .file = t->place.file,
				      .line = t->place.line,
				      .json = true,
				      .begins = true,
				      .ends = true };
	*got = !blank(out->bytes, n);
	consume(t, n + (end != NULL));
	return FO_OK;
}

fo_status fo_text_next(struct fo_text *t, struct fo_text_part *out)
{
	for (;;) {
		bool got = false;
		if (t->place.file == (int64_t)t->files) {
			*out = (struct fo_text_part){ 0 };
			return FO_OK;
		}
		if (t->place.offset < 0)
			FO_TRY(enter_file(t));
		if (!t->in) {
			FO_TRY(meet_damage(t, &got));
			continue;
		}
		FO_TRY(t->json ? next_of_lines(t, out, &got) : next_of_text(t, out, &got));
		if (got)
			return FO_OK;
	}
}

/* ---- going on ---- */

struct fo_text_place fo_text_place(const struct fo_text *t)
{
	struct fo_text_place p = t->place;
	p.digest = p.offset > 0 ? XXH3_64bits_digest(t->digest) : 0;
	return p;
}

fo_status fo_text_seek(struct fo_text *t, const struct fo_text_place *p)
{
	if (p->file < 0 || p->file > (int64_t)t->files || p->offset < -1 ||
	    (p->file == (int64_t)t->files && p->offset >= 0))
		return fo_fail(FO_EARG, "there is no file %lld to go on in", (long long)p->file);
	for (t->packed_before = t->place.file = 0; t->place.file < p->file; t->place.file++)
		t->packed_before += t->file[t->place.file].bytes;
	if (p->offset >= 0) {
		FO_TRY(enter_file(t));
		if (t->in_failed != FO_OK && !t->in)
			return fo_err_raise(&t->in_error);
		while (t->place.offset < p->offset) {
			fill(t, 1);
			int64_t rest = p->offset - t->place.offset;
			if (!left(t))
				break;
			consume(t, (int64_t)left(t) < rest ? left(t) : (size_t)rest);
		}
		uint64_t digest = p->offset > 0 ? XXH3_64bits_digest(t->digest) : 0;
		if (t->place.offset != p->offset || digest != p->digest)
			return fo_fail(FO_EARG,
				       "'%s' is not the input that was read before: its first %lld bytes differ",
				       t->file[p->file].path, (long long)p->offset);
	}
	t->place = *p;
	return FO_OK;
}
