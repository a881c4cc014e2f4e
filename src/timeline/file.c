/* Timeline files (docs/formats.md). A run of one rank leaves one; of several ranks each leaves its own, which also says
 * whose it is and what communicates. */
#include "timeline/timeline.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/text.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define RANK_NAME "timeline-rank"
/* 416 days: no run's clock goes further, and sums of times from anywhere do not overflow. */
#define TIME_MOST ((int64_t)1 << 55)
enum { MAX_SPANS = 1 << 28, MAX_COLLECTIVES = 1 << 25 };

struct header {
	char magic[8];
	uint64_t program_hash, checksum;
	uint64_t spans[FO_LANE_COUNT];
};

/* How files begin, and which of the lanes they have counts of; with `ranks` the block of several ranks follows. */
static const struct form {
	char magic[9];
	int lanes;
	bool ranks;
} form[] = {
	{ "FOTIMEL1", FO_LANE_SEND_BACKWARD + 1, false },
	{ "FOTIMEL2", FO_LANE_WGRAD + 1, false },
	{ "FOTIMEL3", FO_LANE_WGRAD + 1, true },
	{ "FOTIMEL4", FO_LANE_COUNT, true },
};
enum { FORM_ONE = 1, FORM_RANKS = 3, FORMS = sizeof form / sizeof *form }; /* those that are written */

static size_t head_bytes(const struct form *f)
{
	return offsetof(struct header, spans) + (size_t)f->lanes * sizeof(uint64_t);
}
/* Behind the header of a file of several ranks; then the collectives, then spans. */
struct whose {
	int32_t rank, ranks;
	int64_t begun_unix_ns, clock_offset_ns;
	char host[64];
	uint32_t collectives, zero;
};
_Static_assert(sizeof(struct whose) == 96 && sizeof(struct fo_timeline_collective) == 32, "as docs/formats.md says");

/* ---- writing ---- */

static fo_status append_whose(const struct fo_timeline *t, const struct fo_program *p, struct fo_str *out)
{
	struct whose w = { .rank = p->rank,
			   .ranks = p->ranks,
			   .begun_unix_ns = t->whose.begun_unix_ns,
			   .clock_offset_ns = t->whose.clock_offset_ns };
	struct fo_unrolled u;
	FO_TRY(fo_unroll(p, &u));
	size_t at = out->len;
	memcpy(w.host, t->whose.host, sizeof w.host - 1);
	fo_str_append(out, &w, sizeof w);
	for (int i = 0; i < u.n; i++) {
		const struct fo_op *o = fo_instance_op(p, &u, i);
		const enum fo_wire wire = fo_op_info(o->kind)->wire;
		bool peer = wire == FO_WIRE_SEND || wire == FO_WIRE_RECEIVE || wire == FO_WIRE_BROADCAST;
		struct fo_timeline_collective c = { .instance = i,
						    .wire = (uint8_t)wire,
						    .group = o->group,
						    .lane = (uint8_t)o->lane,
						    .peer = peer ? o->attr.peer : -1,
						    .bytes = (int64_t)fo_op_cost(p, o, 0).wire };
		if (wire == FO_WIRE_NONE)
			continue;
		c.members = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &c.place, &c.colour);
		fo_str_append(out, &c, sizeof c);
		w.collectives++;
	}
	memcpy(out->data + at, &w, sizeof w);
	fo_unrolled_fini(&u);
	return FO_OK;
}

fo_status fo_timeline_write(const struct fo_timeline *t, const struct fo_program *p, const char *path)
{
	const struct form *f = &form[p->ranks > 1 ? FORM_RANKS : FORM_ONE];
	const size_t head = head_bytes(f);
	struct header h = { .program_hash = fo_program_hash(p) };
	struct fo_str s = { 0 };
	fo_status st = FO_OK;
	memcpy(h.magic, f->magic, sizeof h.magic);
	fo_str_append(&s, &h, head);
	if (f->ranks)
		st = append_whose(t, p, &s);
	for (int l = 0; l < f->lanes; l++) { /* one rank has nothing on the lanes after these */
		const struct fo_ring *r = &t->lane[l];
		for (uint64_t i = r->n > r->cap ? r->n - r->cap : 0; i < r->n; i++) {
			struct fo_span x = r->span[i % r->cap];
			x.begin_ns -= t->origin_ns;
			x.end_ns -= t->origin_ns;
			fo_str_append(&s, &x, sizeof x);
			h.spans[l]++;
		}
	}
	h.checksum = XXH3_64bits(s.data + head, s.len - head);
	memcpy(s.data, &h, head);
	if (st == FO_OK)
		st = fo_fs_write_atomic(path, s.data, s.len);
	fo_str_fini(&s);
	return st;
}

/* ---- reading ---- */

static const struct form *form_of(const void *head, size_t n)
{
	for (int i = 0; n >= 8 && i < FORMS; i++)
		if (!memcmp(head, form[i].magic, 8))
			return &form[i];
	return NULL;
}

bool fo_timeline_begins(const void *head, size_t n) { return form_of(head, n) != NULL; }

/* *head: bytes of the header; *more: bytes from there to the spans. */
static fo_status check_file(const struct fo_map *m, const char *path, struct header *h, size_t *head, size_t *more)
{
	const struct form *f = form_of(m->data, m->len);
	*head = f ? head_bytes(f) : 0;
	*more = 0;
	*h = (struct header){ 0 };
	if (!f || m->len < *head)
		return fo_fail(FO_EFORMAT, "'%s' is not a timeline: it does not begin with '%s' to '%s' and a header",
			       path, form[0].magic, form[FORMS - 1].magic);
	memcpy(h, m->data, *head);
	uint64_t spans = 0;
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (h->spans[l] > MAX_SPANS)
			return fo_fail(FO_EFORMAT, "timeline '%s' claims %llu spans on one lane, more than 2^28", path,
				       (unsigned long long)h->spans[l]);
		spans += h->spans[l];
	}
	struct whose w = { 0 };
	if (f->ranks && m->len - *head < sizeof w)
		return fo_fail(FO_EFORMAT, "timeline '%s' is cut off: it ends before it says whose it is", path);
	if (f->ranks) {
		memcpy(&w, m->data + *head, sizeof w);
		if (w.collectives > MAX_COLLECTIVES)
			return fo_fail(FO_EFORMAT, "timeline '%s' claims %u collectives, more than 2^25", path,
				       (unsigned)w.collectives);
		*more = sizeof w + w.collectives * sizeof(struct fo_timeline_collective);
	}
	size_t want = *more + spans * sizeof(struct fo_span);
	if (m->len - *head != want)
		return fo_fail(FO_EFORMAT, "timeline '%s' is cut off: got %zu bytes behind its header, expected %zu",
			       path, m->len - *head, want);
	if (XXH3_64bits(m->data + *head, m->len - *head) != h->checksum)
		return fo_fail(FO_EFORMAT, "timeline '%s' is damaged: its checksum does not match", path);
	return FO_OK;
}

static bool collective_ok(const struct fo_timeline_collective *c, int32_t before, int32_t ranks)
{
	return c->instance > before && c->wire > FO_WIRE_NONE && c->wire <= FO_WIRE_SHIFT && c->group > FO_GROUP_NONE &&
	       c->group < FO_GROUP_COUNT && c->lane < FO_LANE_COUNT && !c->zero && c->members > 0 &&
	       c->members <= ranks && c->colour >= 0 && c->colour < ranks && c->place >= 0 && c->place < c->members &&
	       c->peer >= -1 && c->peer < c->members && c->bytes >= 0;
}

static fo_status read_whose(struct fo_timeline_file *f, const char *path)
{
	struct whose w;
	memcpy(&w, f->t.memory, sizeof w);
	if (w.ranks < 2 || w.ranks > FO_MESH_RANKS_MOST || w.rank < 0 || w.rank >= w.ranks || w.zero ||
	    !memchr(w.host, 0, sizeof w.host) || w.clock_offset_ns < -TIME_MOST || w.clock_offset_ns > TIME_MOST)
		return fo_fail(
			FO_EFORMAT,
			"timeline '%s' is of rank %d of %d, its clock is more than a year off, or its host's name "
			"does not end",
			path, w.rank, w.ranks);
	f->rank = w.rank;
	f->ranks = w.ranks;
	f->t.whose.begun_unix_ns = w.begun_unix_ns;
	f->t.whose.clock_offset_ns = w.clock_offset_ns;
	memcpy(f->t.whose.host, w.host, sizeof w.host);
	f->collective = (const void *)((const char *)f->t.memory + sizeof w);
	f->collectives = w.collectives;
	for (int64_t i = 0; i < f->collectives; i++)
		if (!collective_ok(&f->collective[i], i ? f->collective[i - 1].instance : -1, w.ranks))
			return fo_fail(FO_EFORMAT, "timeline '%s': collective %lld is one that cannot be", path,
				       (long long)i);
	return FO_OK;
}

static fo_status read_spans(struct fo_timeline_file *f, const struct header *h, size_t more, const char *path)
{
	struct fo_span *at = (void *)((char *)f->t.memory + more);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		f->t.lane[l] = (struct fo_ring){ at, (uint32_t)h->spans[l], h->spans[l] };
		for (uint64_t i = 0; i < h->spans[l]; i++)
			if (at[i].end_ns < at[i].begin_ns || (i && at[i].begin_ns < at[i - 1].begin_ns) ||
			    at[i].begin_ns < -TIME_MOST || at[i].end_ns > TIME_MOST)
				return fo_fail(FO_EFORMAT,
					       "timeline '%s': span %llu of lane %s ends before it begins, is out of "
					       "order or more than a year away",
					       path, (unsigned long long)i, fo_lane_name[l]);
		at += h->spans[l];
	}
	return FO_OK;
}

fo_status fo_timeline_read(struct fo_timeline_file *f, const char *path)
{
	struct fo_map m;
	struct header h;
	size_t head, more;
	*f = (struct fo_timeline_file){ 0 };
	FO_TRY(fo_map_open(&m, path));
	fo_status st = check_file(&m, path, &h, &head, &more);
	if (st == FO_OK) {
		f->program_hash = h.program_hash;
		f->t.bytes = m.len - head;
		st = fo_pages_new(f->t.bytes ? f->t.bytes : 1, &f->t.memory);
	}
	if (st == FO_OK) {
		memcpy(f->t.memory, m.data + head, f->t.bytes);
		st = more ? read_whose(f, path) : FO_OK;
	}
	if (st == FO_OK)
		st = read_spans(f, &h, more, path);
	fo_map_close(&m);
	if (st != FO_OK)
		fo_timeline_fini(&f->t);
	return st;
}

bool fo_timeline_same_run(const struct fo_timeline_file *a, const struct fo_timeline_file *b)
{
	return a->ranks && a->ranks == b->ranks && a->t.whose.begun_unix_ns == b->t.whose.begun_unix_ns;
}

const struct fo_timeline_collective *fo_timeline_collective_of(const struct fo_timeline_file *f, int32_t instance)
{
	int64_t low = 0, high = f->collectives;
	while (low < high) {
		int64_t middle = low + (high - low) / 2;
		if (f->collective[middle].instance < instance)
			low = middle + 1;
		else
			high = middle;
	}
	return low < f->collectives && f->collective[low].instance == instance ? &f->collective[low] : NULL;
}

/* ---- the files of several ranks ---- */

char *fo_timeline_rank_path(struct fo_arena *a, const char *dir, int rank)
{
	const char *slash = *dir ? "/" : "";
	return rank ? fo_arena_printf(a, "%s%s" RANK_NAME "%d.fot", dir, slash, rank)
		    : fo_arena_printf(a, "%s%s" FO_TIMELINE_FILE, dir, slash);
}

int fo_timeline_rank_of_path(const char *path)
{
	const char *name = fo_text_file_name(path);
	char *end;
	if (!strcmp(name, FO_TIMELINE_FILE))
		return 0;
	if (strncmp(name, RANK_NAME, strlen(RANK_NAME)) != 0)
		return -1;
	name += strlen(RANK_NAME);
	long v = *name >= '1' && *name <= '9' ? strtol(name, &end, 10) : -1;
	return v > 0 && v < FO_MESH_RANKS_MOST && !strcmp(end, ".fot") ? (int)v : -1;
}

static void renumber(struct fo_program *p, int rank) { p->rank = p->run.mesh.rank = rank; }

fo_status fo_timeline_program(struct fo_program *p, const struct fo_timeline_file *f, const char *path)
{
	struct fo_arena a = { 0 };
	int dir = (int)(fo_text_file_name(path) - path);
	const char *beside = fo_arena_printf(&a, "%.*sprogram.txt", dir, path),
		   *own = fo_arena_printf(&a, "%.*sprogram-rank%d.txt", dir, path, f->rank);
	bool has_own = f->rank > 0 && fo_fs_exists(own);
	fo_status st = FO_OK;
	if (!has_own && !fo_fs_exists(beside)) {
		st = fo_hint(fo_fail(FO_EFORMAT, "timeline '%s' is numbers without its program: there is no '%s'", path,
				     beside),
			     "put the program.txt of its run beside it");
		fo_arena_fini(&a);
		return st;
	}
	st = fo_program_read(p, has_own ? own : beside, true);
	if (st == FO_OK) {
		if (!has_own && f->rank < p->ranks)
			renumber(p, f->rank);
		if (fo_program_hash(p) != f->program_hash) {
			fo_program_fini(p);
			st = fo_fail(FO_EFORMAT, "timeline '%s' is of another program than '%s'", path,
				     has_own ? own : beside);
		}
	}
	fo_arena_fini(&a);
	return st;
}

fo_status fo_timeline_write_program(const struct fo_program *p, const struct fo_program *first, const char *dir)
{
	struct fo_program other = *first; /* only its number differs; what it points to stays first's */
	struct fo_arena a = { 0 };
	struct fo_str text = { 0 };
	renumber(&other, p->rank);
	const char *path = fo_arena_printf(&a, "%s/program-rank%d.txt", dir, p->rank);
	fo_status st = FO_OK;
	if (fo_program_hash(&other) == fo_program_hash(p)) {
		st = fo_fs_remove_tree(path); /* an earlier run's */
	} else {
		fo_program_dump(p, &text);
		st = fo_fs_write_atomic(path, text.data, text.len);
	}
	fo_str_fini(&text);
	fo_arena_fini(&a);
	return st;
}
