#include "base/packed.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#define PACKED_BYTES ((size_t)1 << 18)
/* 128 MiB is the most that `zstd` itself unpacks without --long or --ultra; RFC 8878 advises 8 MiB. */
#define ZSTD_WINDOW_LOG 27
/* Up to this much text no ratio is suspicious: it fits on every disk. */
#define EXPAND_FREE_BYTES ((int64_t)64 << 20)
#define GZIP_WINDOW (15 + 16) /* zlib: the largest window, gzip's wrapping */

enum packing { PLAIN, GZIP, ZSTANDARD };

struct fo_packed {
	int fd;
	char *name;
	enum packing packing;
	double max_expand;
	int64_t packed, unpacked;
	bool file_end; /* nothing more comes from the file */
	bool inside;   /* a gzip member or Zstandard frame has begun and not ended */
	bool ended;    /* nothing more comes out */
	z_stream z;
	ZSTD_DStream *zstd;
	size_t from, to; /* what is left in packed_bytes */
	unsigned char packed_bytes[PACKED_BYTES];
};

static fo_status read_some(struct fo_packed *u, void *to, size_t room, size_t *got)
{
	ssize_t n;
	do
		n = read(u->fd, to, room);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return fo_fs_refuse("read", u->name, errno);
	u->file_end = n == 0;
	u->packed += n;
	*got = (size_t)n;
	return FO_OK;
}

/* Reads more packed bytes after those that are left, until there are enough to go on with: a pipe is not waited for. */
static fo_status refill(struct fo_packed *u)
{
	size_t n;
	memmove(u->packed_bytes, u->packed_bytes + u->from, u->to - u->from);
	u->to -= u->from;
	u->from = 0;
	while (!u->file_end && u->to < PACKED_BYTES) {
		FO_TRY(read_some(u, u->packed_bytes + u->to, PACKED_BYTES - u->to, &n));
		u->to += n;
		if (u->to >= 4)
			break;
	}
	return FO_OK;
}

static bool begins_gzip(const struct fo_packed *u)
{
	const unsigned char *p = u->packed_bytes + u->from;
	return u->to - u->from >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8; /* RFC 1952: deflate */
}

/* RFC 8878: a frame, or a skippable one. */
static bool begins_zstd(const struct fo_packed *u)
{
	const unsigned char *p = u->packed_bytes + u->from;
	if (u->to - u->from < 4)
		return false;
	uint32_t magic = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
	return magic == ZSTD_MAGICNUMBER || (magic & ZSTD_MAGIC_SKIPPABLE_MASK) == ZSTD_MAGIC_SKIPPABLE_START;
}

static fo_status begin(struct fo_packed *u)
{
	FO_TRY(refill(u));
	if (begins_gzip(u)) {
		u->packing = GZIP;
		if (inflateInit2(&u->z, GZIP_WINDOW) != Z_OK)
			return fo_fail(FO_ENOMEM, "cannot start to unpack '%s'", u->name);
	} else if (begins_zstd(u)) {
		u->packing = ZSTANDARD;
		u->zstd = ZSTD_createDStream();
		if (!u->zstd)
			return fo_fail(FO_ENOMEM, "cannot start to unpack '%s'", u->name);
		ZSTD_DCtx_setParameter(u->zstd, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG);
	}
	return FO_OK;
}

fo_status fo_packed_open(struct fo_packed **out, int fd, const char *name, double max_expand)
{
	struct fo_packed *u = fo_xmalloc(sizeof *u);
	u->fd = fd;
	u->name = fo_xstrdup(name);
	u->max_expand = max_expand;
	fo_status st = begin(u);
	if (st == FO_OK)
		*out = u;
	else
		fo_packed_close(u);
	return st;
}

void fo_packed_close(struct fo_packed *u)
{
	if (!u)
		return;
	if (u->packing == GZIP)
		inflateEnd(&u->z);
	ZSTD_freeDStream(u->zstd);
	if (u->fd != STDIN_FILENO)
		close(u->fd);
	free(u->name);
	free(u);
}

bool fo_packed_is(const struct fo_packed *u) { return u->packing != PLAIN; }
bool fo_packed_inside(const struct fo_packed *u) { return u->inside; }
int64_t fo_packed_bytes(const struct fo_packed *u) { return u->packed - (int64_t)(u->to - u->from); }

static fo_status cut_short(const struct fo_packed *u)
{
	return fo_fail(FO_EFORMAT, "'%s' ends in the middle of its compressed data, after %lld bytes: the file was cut",
		       u->name, (long long)u->packed);
}

/* Unpacks some bytes into some others; *got may be 0. */
static fo_status inflate_some(struct fo_packed *u, char *buf, size_t n, size_t *got)
{
	u->z.next_in = u->packed_bytes + u->from;
	u->z.avail_in = (uInt)(u->to - u->from);
	u->z.next_out = (unsigned char *)buf;
	u->z.avail_out = n > (1u << 30) ? 1u << 30 : (uInt)n;
	uInt room = u->z.avail_out;
	int code = inflate(&u->z, Z_NO_FLUSH);
	u->from = u->to - u->z.avail_in;
	*got = room - u->z.avail_out;
	u->inside = code != Z_STREAM_END;
	if (code == Z_STREAM_END) {
		inflateReset(&u->z);
	} else if (code == Z_NEED_DICT || (code != Z_OK && code != Z_BUF_ERROR)) {
		return fo_fail(FO_EFORMAT, "'%s' is damaged: gzip says '%s' near byte %lld", u->name,
			       u->z.msg ? u->z.msg : "preset dictionary", (long long)fo_packed_bytes(u));
	}
	return FO_OK;
}

static fo_status zstd_some(struct fo_packed *u, char *buf, size_t n, size_t *got)
{
	ZSTD_inBuffer in = { u->packed_bytes + u->from, u->to - u->from, 0 };
	ZSTD_outBuffer out = { buf, n, 0 };
	size_t code = ZSTD_decompressStream(u->zstd, &out, &in);
	u->from += in.pos;
	*got = out.pos;
	if (ZSTD_isError(code) && ZSTD_getErrorCode(code) == ZSTD_error_frameParameter_windowTooLarge)
		return fo_hint(fo_fail(FO_EFORMAT, "'%s' needs a window of more than %d MiB to unpack", u->name,
				       1 << (ZSTD_WINDOW_LOG - 20)),
			       "pack it again with zstd, without its --long or with --long=%d", ZSTD_WINDOW_LOG);
	if (ZSTD_isError(code))
		return fo_fail(FO_EFORMAT, "'%s' is damaged: Zstandard says '%s' near byte %lld", u->name,
			       ZSTD_getErrorName(code), (long long)fo_packed_bytes(u));
	u->inside = code != 0;
	return FO_OK;
}

/* Finds out, after a member or frame, whether another one follows. gzip files may be padded with zeros (its manual). */
static fo_status between(struct fo_packed *u)
{
	FO_TRY(refill(u));
	while (u->packing == GZIP && u->from < u->to && u->packed_bytes[u->from] == 0) {
		u->from++;
		if (u->from == u->to)
			FO_TRY(refill(u));
	}
	while (u->to - u->from < 4 && !u->file_end) /* a beginning of less than four bytes cannot be judged */
		FO_TRY(refill(u));
	const bool gzip = u->packing == GZIP, follows = gzip ? begins_gzip(u) : begins_zstd(u);
	if (u->from == u->to)
		u->ended = true;
	else if (!follows)
		return fo_fail(FO_EFORMAT, "'%s' is damaged: bytes that are no %s follow its compressed data", u->name,
			       gzip ? "gzip" : "Zstandard");
	u->inside = !u->ended;
	return FO_OK;
}

static fo_status unpack_some(struct fo_packed *u, char *buf, size_t n, size_t *got)
{
	*got = 0;
	if (u->packing == PLAIN) {
		/* First the bytes that were read to see what the file is. */
		*got = u->to - u->from < n ? u->to - u->from : n;
		memcpy(buf, u->packed_bytes + u->from, *got);
		u->from += *got;
		if (!*got)
			FO_TRY(read_some(u, buf, n, got));
		u->ended = u->file_end && u->from == u->to;
		return FO_OK;
	}
	if (!u->inside)
		FO_TRY(between(u));
	if (u->ended)
		return FO_OK;
	if (u->from == u->to)
		FO_TRY(refill(u));
	size_t before = u->from;
	FO_TRY(u->packing == GZIP ? inflate_some(u, buf, n, got) : zstd_some(u, buf, n, got));
	if (!*got && u->from == before && u->inside) {
		size_t left = u->to - u->from;
		FO_TRY(refill(u));
		if (u->to - u->from == left)
			return cut_short(u);
	}
	u->unpacked += (int64_t)*got;
	if (u->max_expand > 0 && u->unpacked > EXPAND_FREE_BYTES &&
	    (double)u->unpacked > u->max_expand * (double)fo_packed_bytes(u)) {
		char a[32], b[32];
		fo_fail(FO_EFORMAT, "'%s' expands from %s to over %s, more than %g times", u->name,
			fo_str_bytes(a, (double)fo_packed_bytes(u)), fo_str_bytes(b, (double)u->unpacked),
			u->max_expand);
		return fo_hint(FO_EFORMAT,
			       "where that is meant, a higher 'flatout data prepare --max-expand' allows it");
	}
	return FO_OK;
}

fo_status fo_packed_read(struct fo_packed *u, char *buf, size_t n, size_t *got)
{
	*got = 0;
	while (*got < n && !u->ended) {
		size_t more = 0;
		fo_status st = unpack_some(u, buf + *got, n - *got, &more);
		*got += more;
		FO_TRY(st);
	}
	return FO_OK;
}
