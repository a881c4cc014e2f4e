/* Kineto's and Chrome's trace events: JSON from the PyTorch profiler. facts: docs/traces.md. */
#define _GNU_SOURCE /* memmem */
#include "trace/shapes.h"
#include "trace/foreign.h"
#include "trace/scan.h"
#include "trace/trace_int.h"
#include "trace/unpack.h"

#include "base/mem.h"
#include "base/str.h"
#include "base/count.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

enum {
	WINDOW_BYTES = 1 << 20, /* of the file in memory at once: larger reads leave the second-level cache */
	EVENT_MAX_BYTES =
		256 << 20,   /* one event or header value: more is no profiler's, and the window does not grow for it */
	BORDER_BYTES = 4096, /* "}, {" and the first key of the next event, white space included */
	ARGS_MAX = 96,       /* members of one "args": kernels have about 20, collectives 12 more */
};

struct reader {
	struct fo_trace_build *b;
	struct fo_unpack *u;
	char *window; /* [at, len) is to be read; FO_SCAN_PAD zeros behind */
	size_t at, len, cap;
	uint64_t offset; /* of window[0] in the unpacked file */
	bool last;       /* nothing follows the window */
	bool events_seen;
	bool profiler; /* the file has a category or a header member that only PyTorch's profiler writes */
	bool mtia;     /* categories of Meta's accelerator */
	char *scratch; /* unescaped texts */
	size_t scratch_cap;
	struct fo_scan_member arg[ARGS_MAX];
	int args;
	uint8_t *name_is; /* by text: NAME_*, 0 not looked at yet */
	size_t name_cap;
	bool only_arrows; /* the second reading, for traces that tie launches to GPU work by arrows alone */
	struct fo_trace_arrow *arrow;
	size_t arrows, arrow_cap;
};

/* Bits for what a name says, found once for each. */
enum { NAME_KNOWN = 1, NAME_SHAPES = 2, NAME_STEP = 4, NAME_COLLECTIVE = 8, NAME_DATA = 16, NAME_MODULE = 32 };

/* ---- the window ---- */

/* More of the file behind what is left of the window; the window grows when that is all of it. */
static fo_status more(struct reader *r)
{
	memmove(r->window, r->window + r->at, r->len - r->at);
	r->offset += r->at;
	r->len -= r->at;
	r->at = 0;
	if (r->len >= r->cap / 2) {
		r->cap *= 2;
		r->window = fo_xrealloc(r->window, r->cap + FO_SCAN_PAD);
	}
	size_t n = 0;
	FO_TRY(fo_unpack_read(r->u, r->window + r->len, r->cap - r->len, &n));
	r->len += n;
	r->last = !n;
	memset(r->window + r->len, 0, FO_SCAN_PAD);
	return FO_OK;
}

/* Moves to the next character that is no white space; *c = 0 at the end. */
static fo_status next(struct reader *r, char *c)
{
	for (;;) {
		r->at = (size_t)(fo_scan_blank(r->window + r->at, r->window + r->len) - r->window);
		if (r->at < r->len || r->last)
			break;
		FO_TRY(more(r));
	}
	*c = r->at < r->len ? r->window[r->at] : 0;
	return FO_OK;
}

/* ---- texts and numbers ---- */

/* The text of a string, escapes undone: valid until the next call. */
static const char *plain(struct reader *r, const struct fo_scan_text *v, size_t *n)
{
	*n = v->n;
	if (!v->escaped)
		return v->p;
	fo_array_room(&r->scratch, &r->scratch_cap, v->n, 1);
	*n = fo_scan_unescape(v, r->scratch);
	return r->scratch;
}

static int32_t intern(struct reader *r, const struct fo_scan_text *v)
{
	size_t n;
	if (!v->first)
		return -1;
	const char *p = plain(r, v, &n);
	return fo_trace_intern(r->b, p, n);
}

/* pid or tid: a number, or a hash of the text. Kineto has both "stream 7" and 7, "25738" and 25738. */
static int64_t id_of(const struct fo_scan_text *v)
{
	int64_t id;
	if (fo_scan_int(v, &id))
		return id;
	return v->first == '"' ? (int64_t)(XXH3_64bits(v->p, v->n) >> 1) | (int64_t)1 << 62 : 0;
}

static inline __attribute__((always_inline)) const struct fo_scan_text *arg(const struct reader *r, const char *key)
{
	size_t n = strlen(key); /* a constant wherever the key is */
	for (int i = 0; i < r->args; i++)
		if (r->arg[i].key.n == n && !memcmp(r->arg[i].key.p, key, n))
			return &r->arg[i].value;
	return NULL;
}

static int64_t arg_int(const struct reader *r, const char *key, int64_t otherwise)
{
	const struct fo_scan_text *v = arg(r, key);
	int64_t x;
	return v && fo_scan_int(v, &x) ? x : otherwise;
}

static int32_t arg_text(struct reader *r, const char *key)
{
	const struct fo_scan_text *v = arg(r, key);
	return v ? intern(r, v) : -1;
}

static int32_t arg_stream(const struct reader *r, const struct fo_scan_event *e)
{
	const struct fo_scan_text *v = arg(r, "stream"), *t = v ? v : &e->tid;
	int64_t id = 0;
	if (!t->first)
		return -1;
	size_t skip = t->first == '"' && t->n > 7 && !memcmp(t->p, "stream ", 7) ? 7 : 0;
	struct fo_scan_text number = { t->p + skip, t->n - skip, t->first, false };
	return fo_scan_int(&number, &id) && id >= INT32_MIN && id <= INT32_MAX ? (int32_t)id : (int32_t)id_of(t);
}

static int32_t to_int32(int64_t x) { return x < -1 || x > INT32_MAX ? -1 : (int32_t)x; }

/* The number of the operator that an event belongs to ("external id" until 2022); -1: none. Zero belongs to no
 * operator. */
static int32_t arg_external(const struct reader *r)
{
	int32_t id = to_int32(arg_int(r, "External id", 0));
	if (id <= 0)
		id = to_int32(arg_int(r, "external id", 0));
	return id > 0 ? id : -1;
}

static void read_args(struct reader *r, const struct fo_scan_event *e)
{
	r->args = e->args.first == '{' ? fo_scan_members(e->args.p, e->args.p + e->args.n, r->arg, ARGS_MAX) : 0;
}

/* ---- events ---- */

enum category {
	CAT_OTHER,
	CAT_KERNEL,
	CAT_MEMCPY,
	CAT_MEMSET,
	CAT_OP,
	CAT_NOTE,
	CAT_GPU_NOTE,
	CAT_CALL,
	CAT_PYTHON,
	CAT_OVERHEAD,
	CAT_GPU_WAIT,
	CAT_MTIA
};

/* ActivityType.h of libkineto; before 2022 Operator, Runtime, Kernel, Memcpy, Memset, python. */
static enum category category_of(const struct fo_scan_text *cat)
{
	static const struct {
		enum category category;
		const char *name[9]; /* ends with NULL */
	} known[] = {
		{ CAT_OP, { "cpu_op", "operator" } },
		{ CAT_KERNEL, { "kernel" } },
		{ CAT_PYTHON, { "python_function", "python" } },
		{ CAT_CALL,
		  { "cuda_runtime", "cuda_driver", "runtime", "driver", "xpu_runtime", "xpu_driver",
		    "privateuse1_runtime", "privateuse1_driver" } },
		{ CAT_MEMCPY, { "gpu_memcpy", "memcpy" } },
		{ CAT_MEMSET, { "gpu_memset", "memset" } },
		{ CAT_NOTE, { "user_annotation" } },
		{ CAT_GPU_NOTE, { "gpu_user_annotation" } },
		{ CAT_OVERHEAD, { "overhead" } },
		{ CAT_GPU_WAIT, { "cuda_sync" } },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		for (const char *const *name = known[i].name; *name; name++)
			if (cat->n == strlen(*name) && !strncasecmp(cat->p, *name, cat->n))
				return known[i].category;
	if (cat->escaped) { /* "kern\u0065l" */
		char plain[64];
		size_t n = cat->n <= sizeof(plain) ? fo_scan_unescape(cat, plain) : 0;
		return category_of(&(struct fo_scan_text){ plain, n, '"', false });
	}
	return cat->n >= 5 && !memcmp(cat->p, "mtia_", 5) ? CAT_MTIA : CAT_OTHER;
}

/* [begin, end) of an event in ns; false where it has no time. */
static bool times(const struct fo_scan_event *e, int64_t *begin, int64_t *end)
{
	bool saturated;
	int64_t dur = 0;
	if (!fo_scan_thousandths(&e->ts, begin, &saturated) || *begin >= FO_TRACE_TIME_MAX ||
	    *begin < FO_TRACE_TIME_MIN)
		return false;
	if (e->dur.first && !fo_scan_thousandths(&e->dur, &dur, &saturated) && !fo_scan_is(&e->dur, "N/A") &&
	    e->dur.first != 'n')
		return false;
	if (__builtin_add_overflow(*begin, dur, end) || *end > FO_TRACE_TIME_MAX)
		*end = dur < 0 ? *begin : FO_TRACE_TIME_MAX;
	return true;
}

static int32_t thread_of(struct reader *r, const struct fo_scan_event *e)
{
	return fo_trace_thread(r->b, id_of(&e->pid), id_of(&e->tid));
}

static bool contains(const struct fo_scan_text *v, const char *part)
{
	return v && v->first && memmem(v->p, v->n, part, strlen(part));
}

/* "Memcpy HtoD (Pageable -> Device)", "HtoD" of ROCm's "kind". */
static void set_copy(struct reader *r, struct fo_gpu_op *g, const struct fo_scan_text *name)
{
	const struct fo_scan_text *kind = arg(r, "kind");
	static const struct {
		const char *part;
		enum fo_copy copy;
	} known[] = {
		{ "HtoD", FO_COPY_H2D }, { "DtoH", FO_COPY_D2H }, { "DtoD", FO_COPY_D2D }, { "PtoP", FO_COPY_P2P }
	};
	g->copy = FO_COPY_OTHER;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (contains(name, known[i].part) || contains(kind, known[i].part)) {
			g->copy = (uint8_t)known[i].copy;
			break;
		}
	if (contains(name, "Pageable"))
		g->flags |= FO_GPU_PAGEABLE;
}

/* Arguments of a collective, on the kernel or on its record_param_comms; -1 without. */
static int32_t collective_of(struct reader *r)
{
	if (!arg(r, "Collective name"))
		return -1;
	int32_t index;
	struct fo_collective *c = fo_trace_add_collective(r->b, &index);
	c->name = arg_text(r, "Collective name");
	c->group = arg_text(r, "Process Group Name");
	c->members = arg_text(r, "Process Group Ranks");
	c->purpose = arg_text(r, "Process Group Description");
	c->dtype = arg_text(r, "dtype");
	c->group_size = to_int32(arg_int(r, "Group size", -1));
	c->sequence = arg_int(r, "Seq", -1);
	c->peer_from = to_int32(arg_int(r, "Src Rank", -1));
	c->peer_to = to_int32(arg_int(r, "Dst Rank", -1));
	const struct fo_scan_text *in = arg(r, "In split size"), *out = arg(r, "Out split size");
	c->equal_parts = (!in || in->n <= 2) && (!out || out->n <= 2); /* "[]" */
	const struct fo_scan_text *dtype = arg(r, "dtype");
	int64_t elements = fo_max(arg_int(r, "In msg nelems", -1), arg_int(r, "Out msg nelems", -1));
	double bytes = dtype ? fo_dtype_bytes_of(fo_dtype_of(dtype->p, dtype->n)) : 0;
	if (bytes > 0 && elements >= 0 && elements <= INT64_MAX / 32)
		c->bytes = (int64_t)(bytes * (double)elements);
	return index;
}

static int16_t device_of(struct reader *r, const struct fo_scan_event *e)
{
	const struct fo_scan_text *device = arg(r, "device");
	return fo_trace_device(r->b, id_of(device ? device : &e->pid));
}

static void read_gpu(struct reader *r, const struct fo_scan_event *e, enum fo_gpu_kind kind, int64_t begin, int64_t end)
{
	read_args(r, e);
	int16_t where = device_of(r, e);
	if (where < 0) {
		r->b->t->defect.malformed++;
		r->b->t->defect.malformed_gpu++;
		return;
	}
	struct fo_gpu_op *g = fo_trace_add_gpu(r->b, begin, end);
	g->name = intern(r, &e->name);
	g->device = where;
	g->stream = arg_stream(r, e);
	g->correlation = arg_int(r, "correlation", -1);
	g->external = arg_external(r);
	g->collective = kind == FO_GPU_KERNEL ? collective_of(r) : -1;
	g->kind = (uint8_t)kind;
	if (kind != FO_GPU_KERNEL)
		g->bytes = arg_int(r, "bytes", -1);
	if (kind == FO_GPU_MEMCPY)
		set_copy(r, g, &e->name);
	if (arg_int(r, "graph id", 0) > 0 || arg_int(r, "graph node id", 0) > 0) {
		g->flags |= FO_GPU_GRAPH;
		r->b->t->defect.graph_granularity = true;
	}
}

static uint8_t name_is(struct reader *r, int32_t id, const struct fo_scan_text *name)
{
	if (id < 0)
		return NAME_KNOWN;
	size_t old = r->name_cap;
	fo_array_room(&r->name_is, &r->name_cap, (size_t)id, 1);
	memset(r->name_is + old, 0, r->name_cap - old);
	uint8_t *is = &r->name_is[id];
	if (*is)
		return *is;
	const char *text = fo_trace_text(r->b->t, id);
	enum fo_host_kind kind = fo_trace_host_kind(text, FO_HOST_OP);
	int64_t number;
	*is = NAME_KNOWN;
	/* Shapes say how much an operator computes or moves. Operators over lists of tensors have thousands, which no
	 * rule uses. */
	if (!contains(name, "_foreach") && !contains(name, "Optimizer"))
		*is |= NAME_SHAPES;
	if (fo_trace_step_number(text, strlen(text), &number))
		*is |= NAME_STEP;
	if (!strcmp(text, "record_param_comms"))
		*is |= NAME_COLLECTIVE;
	if (kind == FO_HOST_DATA)
		*is |= NAME_DATA;
	if (kind == FO_HOST_MODULE)
		*is |= NAME_MODULE;
	return *is;
}

static void read_op(struct reader *r, const struct fo_scan_event *e, enum fo_host_kind kind, int64_t begin, int64_t end)
{
	int32_t id = intern(r, &e->name), thread = thread_of(r, e);
	uint8_t is = name_is(r, id, &e->name);
	if (is & NAME_STEP) {
		const char *name = fo_trace_text(r->b->t, id);
		struct fo_trace_step *s = fo_trace_add_step(r->b, 0, begin, end);
		s->thread = thread;
		fo_trace_step_number(name, strlen(name), &s->number);
		return;
	}
	struct fo_host_op *o = fo_trace_add_op(r->b, begin, end);
	o->name = id;
	o->thread = thread;
	o->kind = (uint8_t)kind;
	if (is & NAME_MODULE)
		o->kind = FO_HOST_MODULE;
	else if (is & NAME_DATA)
		o->kind = FO_HOST_DATA;
	if (kind != FO_HOST_OP)
		return;
	read_args(r, e);
	o->external = arg_external(r);
	o->sequence = arg_int(r, "Sequence number", -1);
	o->other_thread = arg_int(r, "Fwd thread id", 0) > 0;
	if (is & NAME_COLLECTIVE) {
		o->collective = collective_of(r);
	} else if (is & NAME_SHAPES) {
		o->shapes = arg_text(r, arg(r, "Input Dims") ? "Input Dims" : "Input dims");
		o->types = arg_text(r, "Input type");
	}
}

static void read_call(struct reader *r, const struct fo_scan_event *e, int64_t begin, int64_t end)
{
	read_args(r, e);
	struct fo_launch *l = fo_trace_add_launch(r->b, begin, end);
	l->correlation = arg_int(r, "correlation", -1);
	l->thread = thread_of(r, e);
	l->name = intern(r, &e->name);
	l->external = arg_external(r);
}

static void read_gpu_note(struct reader *r, const struct fo_scan_event *e, int64_t begin, int64_t end)
{
	int64_t number;
	size_t n;
	const char *name = plain(r, &e->name, &n);
	if (!fo_trace_step_number(name, n, &number))
		return;
	read_args(r, e);
	fo_trace_add_step(r->b, number, begin, end)->device = device_of(r, e);
}

static void read_gpu_wait(struct reader *r, const struct fo_scan_event *e, int64_t begin, int64_t end)
{
	read_args(r, e);
	struct fo_gpu_wait *w = fo_trace_add_wait(r->b, begin, fo_max(end, begin));
	w->kind = intern(r, &e->name);
	w->stream = arg_stream(r, e);
	w->on_stream = to_int32(arg_int(r, "wait_on_stream", -1));
	w->device = device_of(r, e);
}

static void read_metadata(struct reader *r, const struct fo_scan_event *e)
{
	bool process = fo_scan_is(&e->name, "process_name"), thread = fo_scan_is(&e->name, "thread_name");
	if (!process && !thread)
		return;
	read_args(r, e);
	int32_t name = arg_text(r, "name");
	if (thread) {
		int32_t of = thread_of(r, e); /* may move the array */
		r->b->t->thread[of].name = name;
	} else if (r->b->t->process_name < 0) { /* the host's stands first */
		r->b->t->process_name = name;
	}
}

static void read_event(struct reader *r, const struct fo_scan_event *e)
{
	struct fo_trace_defects *d = &r->b->t->defect;
	int64_t begin, end;
	d->events++;
	if (e->ph.n == 1 && *e->ph.p == 'M')
		read_metadata(r, e);
	d->malformed += e->mended && e->ph.n != 1; /* mended into nonsense */
	if (!r->profiler)
		r->profiler = category_of(&e->cat) != CAT_OTHER;
	d->has_frames |= e->skipped && category_of(&e->cat) == CAT_PYTHON;
	if (e->skipped || e->ph.n != 1 || *e->ph.p != 'X')
		return;
	enum category category = category_of(&e->cat);
	if (category == CAT_OTHER)
		return;
	if (category == CAT_MTIA)
		r->mtia = true;
	if (!times(e, &begin, &end)) {
		d->malformed++;
		d->malformed_gpu += category == CAT_KERNEL || category == CAT_MEMCPY || category == CAT_MEMSET;
		return;
	}
	switch (category) {
	case CAT_KERNEL: read_gpu(r, e, FO_GPU_KERNEL, begin, end); break;
	case CAT_MEMCPY: read_gpu(r, e, FO_GPU_MEMCPY, begin, end); break;
	case CAT_MEMSET: read_gpu(r, e, FO_GPU_MEMSET, begin, end); break;
	case CAT_OP: read_op(r, e, FO_HOST_OP, begin, end); break;
	case CAT_NOTE: read_op(r, e, FO_HOST_NOTE, begin, end); break;
	case CAT_PYTHON: /* modules and garbage collection: other frames were skipped */
		if (e->name.n > 11 && !memcmp(e->name.p, "nn.Module: ", 11))
			read_op(r, e, FO_HOST_MODULE, begin, end);
		else if (e->name.n >= 9 && (*e->name.p == 'P' || *e->name.p == '<'))
			read_op(r, e, FO_HOST_NOTE, begin, end);
		break;
	case CAT_CALL: read_call(r, e, begin, end); break;
	case CAT_GPU_NOTE: read_gpu_note(r, e, begin, end); break;
	case CAT_GPU_WAIT: read_gpu_wait(r, e, begin, end); break;
	case CAT_OVERHEAD: fo_trace_add_overhead(r->b, begin, end); break;
	case CAT_MTIA:
	case CAT_OTHER: break;
	}
}

/* "ac2g": from a launch to its operation. The tokenizer passes over arrows, so that all of the event is looked at
 * again. */
static void read_arrow(struct reader *r, const struct fo_scan_event *e, const char *p, const char *after)
{
	bool begins = e->ph.n == 1 && *e->ph.p == 's';
	if (!begins && (e->ph.n != 1 || *e->ph.p != 'f'))
		return;
	r->args = fo_scan_members(p, after, r->arg, ARGS_MAX);
	const struct fo_scan_text *cat = arg(r, "cat"), *id = arg(r, "id"), *ts = arg(r, "ts"), *tid = arg(r, "tid"),
				  *pid = arg(r, "pid");
	if (!cat || !fo_scan_is(cat, "ac2g") || !id || !ts)
		return;
	struct fo_scan_event whole = { .ph = e->ph, .ts = *ts };
	if (tid)
		whole.tid = *tid;
	if (pid)
		whole.pid = *pid;
	struct fo_trace_arrow a = { .id = id_of(id), .thread = -1, .stream = -1 };
	int64_t end;
	if (!times(&whole, &a.at_ns, &end))
		return;
	r->args = 0;
	if (begins)
		a.thread = thread_of(r, &whole);
	else
		a.stream = arg_stream(r, &whole);
	fo_array_room(&r->arrow, &r->arrow_cap, r->arrows, sizeof(*r->arrow));
	r->arrow[r->arrows++] = a;
}

/* The value at the window's front, whatever it is: into *v where it fits into memory, else passed over. */
static fo_status header_value(struct reader *r, struct fo_scan_text *v, bool *have)
{
	for (;;) {
		const char *after;
		enum fo_scan got = fo_scan_value(r->window + r->at, r->window + r->len, r->last, v, &after);
		*have = got == FO_SCAN_OK;
		if (got == FO_SCAN_OK)
			r->at = (size_t)(after - r->window);
		if (got != FO_SCAN_MORE)
			return FO_OK;
		if (r->last || r->len - r->at >= EVENT_MAX_BYTES)
			return FO_OK;
		FO_TRY(more(r));
	}
}

/* Something else stands where an event should: looks for the next one. */
static fo_status resynchronise(struct reader *r)
{
	r->b->t->defect.malformed++;
	for (;;) {
		const char *p = fo_scan_next_event(r->window + r->at, r->window + r->len);
		if (p) {
			r->at = (size_t)(p - r->window);
			return FO_OK;
		}
		if (r->last) {
			r->at = r->len;
			r->b->t->defect.truncated = true;
			return FO_OK;
		}
		/* Enough stays for a border that lies across two windows. */
		size_t keep = r->len - r->at < BORDER_BYTES ? r->len - r->at : BORDER_BYTES;
		r->at = r->len - keep;
		FO_TRY(more(r));
	}
}

/* The events behind '['. Ends behind ']', or at the end of the file. */
static fo_status read_events(struct reader *r)
{
	struct fo_scan_event e;
	r->events_seen = true;
	for (;;) {
		char c;
		FO_TRY(next(r, &c));
		if (c == ',') {
			r->at++;
			continue;
		}
		if (c == ']') {
			r->at++;
			return FO_OK;
		}
		if (!c) {
			r->b->t->defect.truncated = true;
			return FO_OK;
		}
		const char *after;
		if (c != '{') { /* a number, a text, a list: no event, but its end can be found */
			struct fo_scan_text value;
			bool have;
			FO_TRY(header_value(r, &value, &have));
			if (have)
				r->b->t->defect.malformed++;
			else
				FO_TRY(resynchronise(r));
			continue;
		}
		enum fo_scan got = fo_scan_event(r->window + r->at, r->window + r->len, r->last, &e, &after);
		if (got == FO_SCAN_MORE && r->last) {
			r->b->t->defect.truncated = true;
			r->at = r->len;
			return FO_OK;
		}
		if (got == FO_SCAN_MORE && r->len - r->at < EVENT_MAX_BYTES) {
			FO_TRY(more(r));
		} else if (got == FO_SCAN_OK) {
			if (r->only_arrows)
				read_arrow(r, &e, r->window + r->at, after);
			else
				read_event(r, &e);
			r->at = (size_t)(after - r->window);
		} else {
			FO_TRY(resynchronise(r));
		}
	}
}

/* ---- the header ---- */

/* {"rank": 3, "world_size": 8, "backend": "nccl", ...} */
static void read_distributed(struct reader *r, const struct fo_scan_text *v)
{
	struct fo_trace *t = r->b->t;
	r->args = v->first == '{' ? fo_scan_members(v->p, v->p + v->n, r->arg, ARGS_MAX) : 0;
	t->rank = to_int32(arg_int(r, "rank", t->rank));
	t->world_size = to_int32(arg_int(r, "world_size", t->world_size));
	t->backend = arg_text(r, "backend");
}

static void read_device(struct reader *r, const struct fo_scan_text *v)
{
	r->args = fo_scan_members(v->p, v->p + v->n, r->arg, ARGS_MAX);
	int32_t name = arg_text(r, "name");
	int16_t index = arg(r, "id") ? fo_trace_device(r->b, arg_int(r, "id", 0)) : -1;
	if (index < 0)
		return;
	struct fo_trace_device *d = &r->b->t->device[index];
	int64_t memory = arg_int(r, "totalGlobalMem", 0), multiprocessors = arg_int(r, "numSms", 0);
	d->name = name;
	d->memory_bytes = fo_max(memory, 0);
	d->sm_count = multiprocessors > 0 && multiprocessors < 1 << 20 ? (int32_t)multiprocessors : 0;
	int64_t major = arg_int(r, "computeMajor", 0), minor = arg_int(r, "computeMinor", 0);
	d->capability_major = major > 0 && major < 1000 ? (int32_t)major : 0;
	d->capability_minor = minor > 0 && minor < 1000 ? (int32_t)minor : 0;
}

static void read_devices(struct reader *r, const struct fo_scan_text *v)
{
	const char *p = v->p + 1, *end = v->p + v->n;
	if (v->first != '[')
		return;
	for (;;) {
		struct fo_scan_text one;
		p = fo_scan_blank(p, end);
		if (p < end && *p == ',')
			p = fo_scan_blank(p + 1, end);
		if (p >= end || *p != '{' || fo_scan_value(p, end, true, &one, &p) != FO_SCAN_OK)
			return;
		read_device(r, &one);
	}
}

static void read_header(struct reader *r, const struct fo_scan_text *key, const struct fo_scan_text *v)
{
	static const char *const ours[] = { "schemaVersion", "deviceProperties", "distributedInfo",
					    "baseTimeNanoseconds" };
	int64_t base;
	for (size_t i = 0; i < sizeof(ours) / sizeof(*ours); i++)
		r->profiler |= fo_scan_is(key, ours[i]);
	if (fo_scan_is(key, "distributedInfo"))
		read_distributed(r, v);
	else if (fo_scan_is(key, "deviceProperties"))
		read_devices(r, v);
	else if (fo_scan_is(key, "baseTimeNanoseconds") && fo_scan_int(v, &base) && base > 0)
		r->b->t->origin_unix_ns = base;
}

static const char what_one_is[] =
	"a trace is what prof.export_chrome_trace(FILE) writes: JSON with a list \"traceEvents\"; "
	"docs/traces.md says how to record one";

static fo_status not_a_trace(struct reader *r, const char *what)
{
	char shown[300];
	fo_str_visible(shown, sizeof(shown), r->b->t->path);
	return fo_hint(fo_fail(FO_EFORMAT, "'%s' is no trace of the PyTorch profiler: %s at byte %llu", shown, what,
			       (unsigned long long)(r->offset + r->at)),
		       "%s", what_one_is);
}

/* Refuses JSON, even trace events, that another program wrote. open.c then looks for a format with a name. */
static fo_status not_of_the_profiler(struct reader *r)
{
	char shown[300];
	const struct fo_trace_defects *d = &r->b->t->defect;
	if (r->mtia)
		return fo_foreign_refuse_mtia(r->b->t->path);
	if (!r->events_seen)
		return not_a_trace(r, "its object, which has no \"traceEvents\", ends");
	if (!d->events && !d->malformed)
		return not_a_trace(r, d->truncated ? "its list of events ends before the first one,"
						   : "its list of events is empty, and ends");
	fo_str_visible(shown, sizeof(shown), r->b->t->path);
	return fo_hint(
		fo_fail(FO_EFORMAT,
			"'%s' is no trace of the PyTorch profiler: nothing in its %lld events is of that profiler",
			shown, (long long)d->events),
		"%s", what_one_is);
}

/* The members of the outermost object, at its '{'. */
static fo_status read_object(struct reader *r)
{
	r->at++;
	for (;;) {
		char c;
		struct fo_scan_text key, value;
		bool have;
		FO_TRY(next(r, &c));
		if (c == ',') {
			r->at++;
			continue;
		}
		if (c == '}' || !c) {
			r->b->t->defect.truncated |= !c;
			return FO_OK;
		}
		FO_TRY(header_value(r, &key, &have));
		if (!have || key.first != '"') {
			if (!r->events_seen)
				return not_a_trace(r, "no member of an object");
			r->b->t->defect.truncated = true;
			return FO_OK;
		}
		char kept[64] = "";
		memcpy(kept, key.p, key.n < sizeof(kept) ? key.n : sizeof(kept) - 1);
		FO_TRY(next(r, &c));
		if (c == ':') {
			r->at++;
			FO_TRY(next(r, &c));
		}
		bool events = !strcmp(kept, "traceEvents");
		if (events && c == '[') {
			r->at++;
			FO_TRY(read_events(r));
			continue;
		}
		FO_TRY(header_value(r, &value, &have));
		if (!have) {
			if (!r->events_seen)
				return not_a_trace(r, "a value without an end");
			r->b->t->defect.truncated = true;
			return FO_OK;
		}
		if (events && !r->events_seen)
			return not_a_trace(r, value.first == 'n' ? "\"traceEvents\" is null, not a list,"
								 : "\"traceEvents\" is not a list,");
		read_header(r, &(struct fo_scan_text){ kept, strlen(kept), '"', false }, &value);
	}
}

/* Microseconds since 1970 have 16 digits: traces before 2024 have no "baseTimeNanoseconds". */
#define UNIX_NS_MIN ((int64_t)1000000000 * 1000000000)

static void shift(int64_t *begin, int64_t *end, int64_t by)
{
	*begin -= by;
	*end -= *end == FO_TRACE_TIME_MAX ? 0 : by;
}

/* Times as Unix time become times since the first event. */
static void set_origin(struct reader *r)
{
	struct fo_trace *t = r->b->t;
	int64_t first = INT64_MAX;
	for (int64_t i = 0; i < t->gpu_count; i++)
		if (t->gpu[i].end_ns > t->gpu[i].begin_ns)
			first = fo_min(t->gpu[i].begin_ns, first);
	for (int64_t i = 0; i < t->launch_count; i++)
		if (t->launch[i].begin_ns > 0)
			first = fo_min(t->launch[i].begin_ns, first);
	for (int64_t i = 0; i < t->op_count; i++)
		if (t->op[i].begin_ns > 0)
			first = fo_min(t->op[i].begin_ns, first);
	if (t->origin_unix_ns || first == INT64_MAX || first < UNIX_NS_MIN)
		return;
	t->origin_unix_ns = first;
#define SHIFT(name)                                   \
	for (int64_t i = 0; i < t->name##_count; i++) \
		shift(&t->name[i].begin_ns, &t->name[i].end_ns, first);
	FO_TRACE_SPANS(SHIFT)
}

/* Python's frames stand on process 0, thread 0 on ROCm, apart from the operators that they call. They belong to the
 * thread with the most operators that no backward pass ran. */
static void place_frames(struct fo_trace *t)
{
	int64_t *ops = fo_xmalloc((size_t)t->thread_count * sizeof(*ops) + 1);
	int32_t most = -1, nowhere = -1;
	for (int64_t i = 0; i < t->op_count; i++)
		ops[t->op[i].thread] += t->op[i].kind != FO_HOST_MODULE && !t->op[i].other_thread;
	for (int32_t i = 0; i < t->thread_count; i++) {
		if (t->thread[i].pid == 0 && t->thread[i].tid == 0)
			nowhere = i;
		if (ops[i] && (most < 0 || ops[i] > ops[most]))
			most = i;
	}
	if (nowhere >= 0 && most >= 0 && !ops[nowhere])
		for (int64_t i = 0; i < t->op_count; i++)
			if (t->op[i].thread == nowhere)
				t->op[i].thread = most;
	free(ops);
}

static fo_status read_json(struct reader *r)
{
	char c, shown[300];
	FO_TRY(more(r));
	if (r->len >= 3 && !memcmp(r->window, "\xef\xbb\xbf", 3))
		r->at = 3;
	FO_TRY(next(r, &c));
	if (c == '[') {
		r->at++;
		return read_events(r);
	}
	if (c == '{')
		return read_object(r);
	if (c)
		return not_a_trace(r, "neither '{' nor '['");
	fo_str_visible(shown, sizeof(shown), r->b->t->path);
	return fo_hint(fo_fail(FO_EFORMAT, "'%s' is empty: nothing is in its %llu bytes, where a trace was expected",
			       shown, (unsigned long long)(r->offset + r->at)),
		       "copy or record it again");
}

/* Some ROCm captures tie launches to operations by arrows alone. Only those are read a second time. */
static fo_status read_arrows(struct reader *r)
{
	struct fo_trace *t = r->b->t;
	int64_t loose = 0;
	for (int64_t i = 0; i < t->gpu_count; i++)
		loose += t->gpu[i].correlation < 0 && t->gpu[i].external < 0;
	if (!loose)
		return FO_OK;
	const struct fo_trace_defects kept = t->defect;
	fo_unpack_close(r->u);
	r->u = NULL;
	FO_TRY(fo_unpack_open(&r->u, t->path));
	r->at = r->len = 0;
	r->offset = 0;
	r->last = r->events_seen = false;
	r->only_arrows = true;
	fo_status st = read_json(r);
	t->defect = kept;
	if (st == FO_OK && r->arrows)
		fo_trace_link_by_arrow(r->b, r->arrow, r->arrows);
	return st;
}

static fo_status read_all(struct reader *r)
{
	FO_TRY(read_json(r));
	r->b->t->defect.truncated |= fo_unpack_broken(r->u);
	if (!r->events_seen || !r->profiler || (r->mtia && !r->b->t->gpu_count))
		return not_of_the_profiler(r);
	FO_TRY(read_arrows(r));
	set_origin(r);
	place_frames(r->b->t);
	return FO_OK;
}

fo_status fo_trace_read_kineto(struct fo_trace_build *b, const char *path)
{
	struct reader *r = fo_xmalloc(sizeof(*r));
	r->b = b;
	r->cap = 2 * WINDOW_BYTES;
	r->window = fo_xrealloc(NULL, r->cap + FO_SCAN_PAD);
	b->t->format = FO_TRACE_KINETO;
	fo_status st = fo_unpack_open(&r->u, path);
	if (st == FO_OK)
		st = read_all(r);
	fo_unpack_close(r->u);
	free(r->window);
	free(r->scratch);
	free(r->name_is);
	free(r->arrow);
	free(r);
	return st;
}
