#include "timeline/metered.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/retry.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define MAGIC "FOMETER1"
#define PIECE 0x50455453u /* "STEP" */
enum { MAX_SPANS = 1 << 24, MAX_THREADS = 1 << 16 };

struct header {
	char magic[8];
	uint64_t program_hash;
	char dtype[8];
	uint32_t threads, zero;
	uint64_t checksum; /* of the fields above */
};
struct piece {
	uint32_t magic, spans;
	int32_t step;
	uint32_t zero;
	uint64_t checksum; /* of the spans, seeded with that of the 16 bytes above */
};
struct record {
	double seconds, lost, before[3], after[3]; /* bursts: FLOP/s, byte/s, share */
	int32_t instance;
	uint32_t zero;
};

void fo_metered_init(struct fo_metered *m, const struct fo_program *p, const char *dtype, int threads)
{
	*m = (struct fo_metered){ .program_hash = fo_program_hash(p), .threads = threads };
	snprintf(m->dtype, sizeof m->dtype, "%s", dtype);
}

void fo_metered_fini(struct fo_metered *m)
{
	free(m->span);
	*m = (struct fo_metered){ 0 };
}

void fo_metered_add(struct fo_metered *m, int32_t step, int32_t instance, const struct fo_quiet_span *s)
{
	fo_array_room(&m->span, &m->cap, m->n, sizeof *m->span);
	/* Instances of a step come in ascending order: a lower or equal one begins another step. */
	if (!m->n || m->span[m->n - 1].step != step || m->span[m->n - 1].instance >= instance)
		m->steps++;
	m->span[m->n++] = (struct fo_metered_span){ step, instance, *s };
}

/* ---- writing ---- */

static struct header header_of(const struct fo_metered *m)
{
	struct header h = { .magic = MAGIC, .program_hash = m->program_hash, .threads = (uint32_t)m->threads };
	memcpy(h.dtype, m->dtype, sizeof h.dtype);
	h.checksum = XXH3_64bits(&h, offsetof(struct header, checksum));
	return h;
}

static uint64_t piece_sum(const unsigned char *piece, size_t bytes)
{
	uint64_t head = XXH3_64bits(piece, offsetof(struct piece, checksum));
	return XXH3_64bits_withSeed(piece + sizeof(struct piece), bytes - sizeof(struct piece), head);
}

/* Bytes of the piece at the front of data[0, len) as its header has them, or 0 where that cannot be. */
static size_t piece_bytes(const unsigned char *data, size_t len, struct piece *p)
{
	if (len < sizeof *p)
		return 0;
	memcpy(p, data, sizeof *p);
	size_t bytes = sizeof *p + (size_t)p->spans * sizeof(struct record);
	return p->magic == PIECE && p->spans <= MAX_SPANS && bytes <= len && !p->zero ? bytes : 0;
}

/* The same, 0 too where the checksum does not match. */
static size_t whole_piece(const unsigned char *data, size_t len, struct piece *p)
{
	size_t bytes = piece_bytes(data, len, p);
	return bytes && piece_sum(data, bytes) == p->checksum ? bytes : 0;
}

static fo_status write_all(int fd, const char *path, const void *data, size_t n)
{
	int error = fo_write_all(fd, data, n, NULL);
	return error ? fo_fs_refuse("write", path, error) : FO_OK;
}

/* Bytes of the file that can be gone on with: 0 when it is new, or of something else. */
static fo_status usable_bytes(const char *path, const struct header *h, size_t *out)
{
	struct fo_map m;
	struct piece p;
	*out = 0;
	if (!fo_fs_exists(path))
		return FO_OK;
	FO_TRY(fo_map_open(&m, path));
	if (m.len >= sizeof *h && !memcmp(m.data, h, sizeof *h)) {
		size_t at = sizeof *h;
		for (size_t n; (n = whole_piece(m.data + at, m.len - at, &p)) > 0;)
			at += n;
		*out = at;
	}
	fo_map_close(&m);
	return FO_OK;
}

fo_status fo_metered_open(struct fo_metered_out *o, const char *path, const struct fo_metered *m)
{
	struct header h = header_of(m);
	size_t keep;
	*o = (struct fo_metered_out){ .fd = -1 };
	FO_TRY(usable_bytes(path, &h, &keep));
	o->path = fo_xstrdup(path);
	o->fd = fo_open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	fo_status st = o->fd < 0 || fo_ftruncate(o->fd, (off_t)keep) ? fo_fs_refuse("write", path, errno) : FO_OK;
	if (st == FO_OK && !keep)
		st = write_all(o->fd, path, &h, sizeof h);
	if (st != FO_OK)
		fo_metered_close(o);
	return st;
}

fo_status fo_metered_write(struct fo_metered_out *o, struct fo_metered *m)
{
	struct piece p = { .magic = PIECE, .spans = (uint32_t)m->n, .step = m->n ? m->span[0].step : 0 };
	o->piece.len = 0;
	fo_str_append(&o->piece, &p, sizeof p);
	for (size_t i = 0; i < m->n; i++) {
		const struct fo_quiet_span *s = &m->span[i].span;
		struct record r = { .seconds = s->seconds,
				    .lost = s->lost,
				    .before = { s->before.flop_s, s->before.byte_s, s->before.share },
				    .after = { s->after.flop_s, s->after.byte_s, s->after.share },
				    .instance = m->span[i].instance };
		fo_str_append(&o->piece, &r, sizeof r);
	}
	m->n = 0;
	m->steps = 0;
	p.checksum = piece_sum((const unsigned char *)o->piece.data, o->piece.len);
	memcpy(o->piece.data, &p, sizeof p);
	off_t end = lseek(o->fd, 0, SEEK_END);
	fo_status st = write_all(o->fd, o->path, o->piece.data, o->piece.len);
	/* Half a piece would hide the pieces after it from readers. */
	if (st != FO_OK && end >= 0 && fo_ftruncate(o->fd, end))
		return fo_fs_refuse("shorten", o->path, errno);
	return st;
}

void fo_metered_close(struct fo_metered_out *o)
{
	if (o->fd >= 0)
		close(o->fd);
	free(o->path);
	fo_str_fini(&o->piece);
	*o = (struct fo_metered_out){ .fd = -1 };
}

/* ---- reading ---- */

static fo_status read_header(struct fo_metered *m, const struct fo_map *f, const char *path)
{
	struct header h;
	if (f->len < sizeof h || memcmp(f->data, MAGIC, 8))
		return fo_fail(FO_EFORMAT, "'%s' holds no metered steps: it does not begin with '" MAGIC "'", path);
	memcpy(&h, f->data, sizeof h);
	if (XXH3_64bits(&h, offsetof(struct header, checksum)) != h.checksum)
		return fo_fail(FO_EFORMAT, "metered steps '%s' are damaged: the header's checksum does not match",
			       path);
	if (h.threads < 1 || h.threads > MAX_THREADS || !memchr(h.dtype, 0, sizeof h.dtype))
		return fo_fail(FO_EFORMAT,
			       "metered steps '%s' are of %u threads, expected 1 to %d, or name no data type", path,
			       (unsigned)h.threads, MAX_THREADS);
	*m = (struct fo_metered){ .program_hash = h.program_hash, .threads = (int)h.threads };
	memcpy(m->dtype, h.dtype, sizeof m->dtype);
	return FO_OK;
}

static bool rate_ok(double v) { return isfinite(v) && v >= 0; }

static bool record_ok(const struct record *r)
{
	bool ok = r->instance >= 0 && isfinite(r->seconds) && r->seconds > 0 && rate_ok(r->lost);
	for (int i = 0; i < 3; i++)
		ok = ok && rate_ok(r->before[i]) && rate_ok(r->after[i]);
	return ok;
}

static fo_status read_piece(struct fo_metered *m, const unsigned char *data, const struct piece *p, const char *path)
{
	int32_t last = -1;
	if (p->step < 0)
		return fo_fail(FO_EFORMAT, "metered steps '%s': a piece is of step %d", path, p->step);
	for (uint32_t i = 0; i < p->spans; i++) {
		struct record r;
		memcpy(&r, data + i * sizeof r, sizeof r);
		if (!record_ok(&r) || r.instance <= last)
			return fo_fail(FO_EFORMAT,
				       "metered steps '%s': span %u of step %d has no time, rate or place that can be",
				       path, (unsigned)i, p->step);
		last = r.instance;
		struct fo_quiet_span s = { r.seconds,
					   r.lost,
					   { r.before[0], r.before[1], r.before[2] },
					   { r.after[0], r.after[1], r.after[2] } };
		fo_array_room(&m->span, &m->cap, m->n, sizeof *m->span);
		m->span[m->n++] = (struct fo_metered_span){ p->step, r.instance, s };
	}
	m->steps++;
	return FO_OK;
}

/* A kill or a power cut leaves half a piece at the end of a file. Whole pieces after it mean damage. So do many that
 * look whole until they are summed: spans hold next to none by chance, and summing a file full of them would take time
 * that grows with the square of its length. Eight times the bytes is far beyond chance. */
static bool ends_here(const unsigned char *data, size_t len)
{
	struct piece p;
	size_t summed = 0;
	for (size_t at = 1; at + sizeof p <= len && summed / 8 <= len; at++) {
		if (memcmp(data + at, &(uint32_t){ PIECE }, 4))
			continue;
		size_t bytes = piece_bytes(data + at, len - at, &p);
		if (bytes && piece_sum(data + at, bytes) == p.checksum)
			return false;
		summed += bytes;
	}
	return summed / 8 <= len;
}

fo_status fo_metered_read(struct fo_metered *m, const char *path)
{
	struct fo_map f;
	struct piece p;
	*m = (struct fo_metered){ 0 };
	FO_TRY(fo_map_open(&f, path));
	fo_status st = read_header(m, &f, path);
	size_t at = sizeof(struct header);
	while (st == FO_OK && at < f.len) {
		size_t n = whole_piece(f.data + at, f.len - at, &p);
		if (!n) {
			m->torn = true;
			if (!ends_here(f.data + at, f.len - at))
				st = fo_fail(FO_EFORMAT,
					     "metered steps '%s' are damaged at byte %zu: more pieces begin after it",
					     path, at);
			break;
		}
		st = read_piece(m, f.data + at + sizeof p, &p, path);
		at += n;
	}
	fo_map_close(&f);
	if (st != FO_OK)
		fo_metered_fini(m);
	return st;
}

/* ---- composition ---- */

void fo_metered_best(const struct fo_metered *m, struct fo_burst *best)
{
	for (size_t i = 0; i < m->n; i++) {
		fo_burst_raise(best, &m->span[i].span.before);
		fo_burst_raise(best, &m->span[i].span.after);
	}
}

/* Spans by operation: counted, then put side by side. */
static void sort_spans(const struct fo_metered *m, const int *group_of, int groups, struct fo_quiet_span *out,
		       size_t *begin)
{
	for (size_t i = 0; i < m->n; i++)
		begin[group_of[m->span[i].instance] + 1]++;
	for (int g = 0; g < groups; g++)
		begin[g + 1] += begin[g];
	size_t *at = fo_xmalloc((size_t)(groups + 1) * sizeof *at);
	memcpy(at, begin, (size_t)(groups + 1) * sizeof *at);
	for (size_t i = 0; i < m->n; i++)
		out[at[group_of[m->span[i].instance]]++] = m->span[i].span;
	free(at);
}

static void add_up(struct fo_composed *c, const struct fo_program *p)
{
	double quiet = 0, enough = 0, spans = 0, calm = 0;
	c->seconds = c->median_s = 0;
	for (int i = 0; i < c->ops; i++) {
		struct fo_composed_op *g = &c->op[i];
		if (!g->time.spans)
			continue;
		g->seconds = g->time.quiet ? g->time.quiet_median_s : g->time.median_s;
		double s = g->seconds * g->per_step;
		c->seconds += s;
		c->median_s += g->time.median_s * g->per_step;
		c->part_s[fo_part_of_op((enum fo_op_kind)p->block[g->block].op[g->op].kind)] += s;
		quiet += g->time.quiet ? s : 0;
		enough += g->time.quiet >= FO_QUIET_ENOUGH ? s : 0;
		spans += g->time.spans;
		calm += g->time.quiet;
	}
	c->quiet_share = quiet / c->seconds;
	c->enough_share = enough / c->seconds;
	c->quiet_spans_share = calm / spans;
}

static fo_status check_program(const struct fo_metered *m, const struct fo_program *p, const struct fo_unrolled *u)
{
	uint64_t want = fo_program_hash(p);
	if (m->program_hash != want)
		return fo_fail(FO_EFORMAT,
			       "the metered steps are of another program: hash %016llx, this one has %016llx",
			       (unsigned long long)m->program_hash, (unsigned long long)want);
	for (size_t i = 0; i < m->n; i++)
		if (m->span[i].instance >= u->n)
			return fo_fail(FO_EFORMAT, "a metered span is of instance %d, the program has %d",
				       m->span[i].instance, u->n);
	return FO_OK;
}

fo_status fo_compose(struct fo_composed *c, const struct fo_metered *m, const struct fo_program *p,
		     const struct fo_unrolled *u, const struct fo_burst *best)
{
	*c = (struct fo_composed){ .steps = m->steps,
				   .seconds = NAN,
				   .median_s = NAN,
				   .quiet_share = NAN,
				   .enough_share = NAN,
				   .quiet_spans_share = NAN };
	FO_TRY(check_program(m, p, u));
	int *begin = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *begin),
	    *group_of = fo_xmalloc((size_t)(u->n + 1) * sizeof *group_of);
	for (int b = 0; b < p->nblock; b++) {
		begin[b] = c->ops;
		c->ops += p->block[b].n;
	}
	c->op = fo_xmalloc((size_t)(c->ops + 1) * sizeof *c->op);
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			c->op[begin[b] + i] = (struct fo_composed_op){ .block = b, .op = i };
	for (int i = 0; i < u->n; i++)
		c->op[group_of[i] = begin[p->slot[u->slot[i]].block] + u->op[i]].per_step++;
	struct fo_quiet_span *span = fo_xmalloc((m->n + 1) * sizeof *span);
	size_t *at = fo_xmalloc((size_t)(c->ops + 2) * sizeof *at);
	sort_spans(m, group_of, c->ops, span, at);
	for (int g = 0; g < c->ops; g++)
		c->op[g].time = fo_quiet_stats(span + at[g], at[g + 1] - at[g], best);
	if (m->n)
		add_up(c, p);
	free(span);
	free(at);
	free(begin);
	free(group_of);
	return FO_OK;
}

void fo_composed_fini(struct fo_composed *c)
{
	free(c->op);
	*c = (struct fo_composed){ 0 };
}
