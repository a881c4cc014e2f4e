#include "trace/scan.h"

#include "base/str.h"

#include <stdatomic.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ---- what all instruction sets share ---- */

struct marks {
	uint64_t quote, back, open, close, control;
};

static inline uint64_t odd_quotes_portable(uint64_t x)
{
	for (int by = 1; by < 64; by *= 2)
		x ^= x << by;
	return x;
}

/* The characters behind a backslash that is not itself escaped. In a run of backslashes every second one escapes: a run
 * that begins at an even place ends in an escape exactly when adding 1 at its begin carries out to an odd place, and
 * the other way round. */
static inline uint64_t escaped_bits(uint64_t back, uint64_t *carry)
{
	const uint64_t even = 0x5555555555555555u;
	uint64_t first = *carry;
	back &= ~first;
	uint64_t begins = back & ~(back << 1);
	uint64_t odd_begins = begins & ~even & ~first;
	uint64_t sum;
	*carry = __builtin_add_overflow(odd_begins, back, &sum);
	uint64_t flipped = (sum << 1);
	uint64_t follows = (back << 1) | first;
	return (even ^ flipped) & follows;
}

static inline bool in_scalar(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
	       c == '+';
}

static inline const char *blank(const char *p, const char *end)
{
	while (p < end && (unsigned char)*p <= ' ')
		p++;
	return p;
}

const char *fo_scan_blank(const char *p, const char *end) { return blank(p, end); }

/* Where the value of the key goes whose opening quote is at p; *n bytes with both quotes. NULL: nobody asks for it, or
 * its quotes end elsewhere. */
static inline struct fo_scan_text *known_key(struct fo_scan_event *e, const char *p, size_t *n)
{
#define FOUR(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)
	const unsigned char *u = (const unsigned char *)p;
	switch (FOUR(u[0], u[1], u[2], u[3])) {
	case FOUR('"', 'p', 'h', '"'): return *n = 4, &e->ph;
	case FOUR('"', 't', 's', '"'): return *n = 4, &e->ts;
	case FOUR('"', 'i', 'd', '"'): return *n = 4, &e->id;
	case FOUR('"', 'c', 'a', 't'): return *n = 5, p[4] == '"' ? &e->cat : NULL;
	case FOUR('"', 'p', 'i', 'd'): return *n = 5, p[4] == '"' ? &e->pid : NULL;
	case FOUR('"', 't', 'i', 'd'): return *n = 5, p[4] == '"' ? &e->tid : NULL;
	case FOUR('"', 'd', 'u', 'r'): return *n = 5, p[4] == '"' ? &e->dur : NULL;
	case FOUR('"', 'n', 'a', 'm'): return *n = 6, p[4] == 'e' && p[5] == '"' ? &e->name : NULL;
	case FOUR('"', 'a', 'r', 'g'): return *n = 6, p[4] == 's' && p[5] == '"' ? &e->args : NULL;
	default: return NULL;
	}
#undef FOUR
}

static inline struct fo_scan_text *slot_of(struct fo_scan_event *e, const struct fo_scan_text *key)
{
	size_t n;
	struct fo_scan_text *slot = known_key(e, key->p - 1, &n);
	return slot && n == key->n + 2 ? slot : NULL;
}

/* Frames of Python that are kept: modules, and garbage collection as the profiler marks it (record_python_gc_info) or
 * as it is called. */
enum { FRAME_LONGEST = sizeof("<built-in function collect>") - 1 };
static inline bool kept_frame(const char *p, size_t n)
{
	if (n < 9)
		return false;
	switch (*p) {
	case 'n': return n > 11 && !memcmp(p, "nn.Module: ", 11);
	case 'P': return !memcmp(p, "Python GC", 9);
	case '<': return n >= FRAME_LONGEST && !memcmp(p, "<built-in function collect>", FRAME_LONGEST);
	default: return false;
	}
}

/* "python_function", until 2022 "python" */
static inline bool is_python(const struct fo_scan_event *e)
{
	return e->cat.n >= 6 && e->cat.first == '"' && !memcmp(e->cat.p, "python", 6);
}

/* Whether it was this member (slot) that showed an event of which nothing is kept: an arrow, an instant, a counter, a
 * frame of Python that is not kept. (A frame whose category stands before its name is known from the name's begin.) */
static inline bool tells_nothing(const struct fo_scan_event *e, const struct fo_scan_text *slot)
{
	if (slot == &e->ph)
		return e->ph.n == 1 && e->ph.first == '"' && *e->ph.p != 'X' && *e->ph.p != 'M';
	return slot == &e->cat && e->name.first && is_python(e) && !kept_frame(e->name.p, e->name.n);
}

/* ---- portable ---- */

static inline uint32_t string_stops_portable(const char *p)
{
	uint32_t stops = 0;
	for (int i = 0; i < 32; i++)
		stops |= (uint32_t)(p[i] == '"' || p[i] == '\\' || (unsigned char)p[i] < ' ') << i;
	return stops;
}

static inline uint32_t scalar_stops_portable(const char *p)
{
	uint32_t stops = 0;
	for (int i = 0; i < 16; i++)
		stops |= (uint32_t)(p[i] == ',' || p[i] == '}' || p[i] == ']' || (unsigned char)p[i] <= ' ') << i;
	return stops;
}

static inline uint32_t blank_stops_portable(const char *p)
{
	uint32_t stops = 0;
	for (int i = 0; i < 16; i++)
		stops |= (uint32_t)((unsigned char)p[i] > ' ') << i;
	return stops;
}

static inline void look_portable(const char *p, struct marks *m)
{
	*m = (struct marks){ 0 };
	for (int i = 0; i < 64; i++) {
		unsigned char c = (unsigned char)p[i];
		m->quote |= (uint64_t)(c == '"') << i;
		m->back |= (uint64_t)(c == '\\') << i;
		m->open |= (uint64_t)(c == '{' || c == '[') << i;
		m->close |= (uint64_t)(c == '}' || c == ']') << i;
		m->control |= (uint64_t)(c < ' ') << i;
	}
}

#define FO_SCAN_NAME(x) x##_portable
#define FO_SCAN_TARGET
#include "trace/scan_body.h"
#undef FO_SCAN_NAME
#undef FO_SCAN_TARGET

#if defined(__x86_64__)
/* ---- SSE2: every x86-64 has it ---- */

static inline uint32_t string_stops_sse2(const char *p)
{
	uint32_t stops = 0;
	for (int i = 0; i < 2; i++) {
		__m128i x = _mm_loadu_si128((const __m128i *)(p + 16 * i));
		__m128i low = _mm_cmpeq_epi8(_mm_max_epu8(x, _mm_set1_epi8(' ' - 1)), _mm_set1_epi8(' ' - 1));
		__m128i hit = _mm_or_si128(
			_mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('"')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))),
			low);
		stops |= (uint32_t)_mm_movemask_epi8(hit) << 16 * i;
	}
	return stops;
}

static inline uint32_t scalar_stops_sse2(const char *p)
{
	__m128i x = _mm_loadu_si128((const __m128i *)p), blank = _mm_set1_epi8(' ');
	__m128i low = _mm_cmpeq_epi8(_mm_max_epu8(x, blank), blank);
	__m128i close = _mm_cmpeq_epi8(_mm_or_si128(x, _mm_set1_epi8(0x20)), _mm_set1_epi8('}'));
	return (uint32_t)_mm_movemask_epi8(
		_mm_or_si128(_mm_or_si128(low, close), _mm_cmpeq_epi8(x, _mm_set1_epi8(','))));
}

static inline uint32_t blank_stops_sse2(const char *p)
{
	__m128i x = _mm_loadu_si128((const __m128i *)p), blank = _mm_set1_epi8(' ');
	return (uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(x, blank), blank)) ^ 0xffff;
}

static inline void look_sse2(const char *p, struct marks *m)
{
	*m = (struct marks){ 0 };
	for (int i = 0; i < 4; i++) {
		__m128i x = _mm_loadu_si128((const __m128i *)(p + 16 * i));
		__m128i bent = _mm_or_si128(x,
					    _mm_set1_epi8(0x20)); /* '[' and '{' differ in this bit, ']' and '}' too */
		m->quote |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('"'))) << 16 * i;
		m->back |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(x, _mm_set1_epi8('\\'))) << 16 * i;
		m->open |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bent, _mm_set1_epi8('{'))) << 16 * i;
		m->close |= (uint64_t)(uint32_t)_mm_movemask_epi8(_mm_cmpeq_epi8(bent, _mm_set1_epi8('}'))) << 16 * i;
		__m128i low = _mm_cmpeq_epi8(_mm_max_epu8(x, _mm_set1_epi8(' ' - 1)), _mm_set1_epi8(' ' - 1));
		m->control |= (uint64_t)(uint32_t)_mm_movemask_epi8(low) << 16 * i;
	}
}

static inline uint64_t odd_quotes_sse2(uint64_t x) { return odd_quotes_portable(x); }

#define FO_SCAN_NAME(x) x##_sse2
#define FO_SCAN_TARGET
#include "trace/scan_body.h"
#undef FO_SCAN_NAME
#undef FO_SCAN_TARGET

/* ---- AVX2 ---- */

#define FO_SCAN_TARGET __attribute__((target("avx2,bmi,popcnt,pclmul")))

FO_SCAN_TARGET static inline uint32_t string_stops_avx2(const char *p)
{
	__m256i x = _mm256_loadu_si256((const __m256i *)p);
	__m256i low = _mm256_cmpeq_epi8(_mm256_max_epu8(x, _mm256_set1_epi8(' ' - 1)), _mm256_set1_epi8(' ' - 1));
	__m256i hit = _mm256_or_si256(_mm256_cmpeq_epi8(x, _mm256_set1_epi8('"')),
				      _mm256_cmpeq_epi8(x, _mm256_set1_epi8('\\')));
	return (uint32_t)_mm256_movemask_epi8(_mm256_or_si256(hit, low));
}

/* Short things: 16 bytes are enough, in the encoding of AVX. */
FO_SCAN_TARGET static inline uint32_t scalar_stops_avx2(const char *p) { return scalar_stops_sse2(p); }

FO_SCAN_TARGET static inline uint32_t blank_stops_avx2(const char *p) { return blank_stops_sse2(p); }

FO_SCAN_TARGET static inline uint64_t bits_avx2(__m256i a, __m256i b)
{
	return (uint32_t)_mm256_movemask_epi8(a) | (uint64_t)(uint32_t)_mm256_movemask_epi8(b) << 32;
}

FO_SCAN_TARGET static inline void look_avx2(const char *p, struct marks *m)
{
	__m256i a = _mm256_loadu_si256((const __m256i *)p), b = _mm256_loadu_si256((const __m256i *)(p + 32));
	__m256i quote = _mm256_set1_epi8('"'), back = _mm256_set1_epi8('\\'), last = _mm256_set1_epi8(' ' - 1);
	__m256i open = _mm256_set1_epi8('{'), close = _mm256_set1_epi8('}'), bend = _mm256_set1_epi8(0x20);
	m->quote = bits_avx2(_mm256_cmpeq_epi8(a, quote), _mm256_cmpeq_epi8(b, quote));
	m->back = bits_avx2(_mm256_cmpeq_epi8(a, back), _mm256_cmpeq_epi8(b, back));
	m->control = bits_avx2(_mm256_cmpeq_epi8(_mm256_max_epu8(a, last), last),
			       _mm256_cmpeq_epi8(_mm256_max_epu8(b, last), last));
	a = _mm256_or_si256(a, bend);
	b = _mm256_or_si256(b, bend);
	m->open = bits_avx2(_mm256_cmpeq_epi8(a, open), _mm256_cmpeq_epi8(b, open));
	m->close = bits_avx2(_mm256_cmpeq_epi8(a, close), _mm256_cmpeq_epi8(b, close));
}

/* A product without carries by all ones adds up, modulo 2, all bits below each. */
FO_SCAN_TARGET static inline uint64_t odd_quotes_avx2(uint64_t x)
{
	return (uint64_t)_mm_cvtsi128_si64(_mm_clmulepi64_si128(_mm_set_epi64x(0, (long long)x), _mm_set1_epi8(-1), 0));
}

#define FO_SCAN_NAME(x) x##_avx2
#include "trace/scan_body.h"
#undef FO_SCAN_NAME
#undef FO_SCAN_TARGET
#endif

/* ---- the choice ---- */

struct isa {
	const char *name;
	enum fo_scan (*event)(const char *, const char *, bool, struct fo_scan_event *, const char **);
	enum fo_scan (*value)(const char *, const char *, bool, struct fo_scan_text *, const char **);
	int (*members)(const char *, const char *, struct fo_scan_member *, int);
};

static const struct isa isas[] = {
#if defined(__x86_64__)
	{ "avx2", event_avx2, value_avx2, members_avx2 },
	{ "sse2", event_sse2, value_sse2, members_sse2 },
#endif
	{ "portable", event_portable, value_portable, members_portable },
};

static const struct isa *_Atomic chosen;

static bool runs(const struct isa *i)
{
#if defined(__x86_64__)
	if (!strcmp(i->name, "avx2"))
		return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
		       __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul");
#endif
	return i->name != NULL;
}

bool fo_scan_choose(const char *isa)
{
	for (size_t i = 0; i < sizeof(isas) / sizeof(*isas); i++)
		if (runs(&isas[i]) && (!isa || !strcmp(isa, isas[i].name))) {
			atomic_store_explicit(&chosen, &isas[i], memory_order_release);
			return true;
		}
	return false;
}

static inline const struct isa *isa(void)
{
	const struct isa *i = atomic_load_explicit(&chosen, memory_order_acquire);
	if (i)
		return i;
	fo_scan_choose(NULL);
	return atomic_load_explicit(&chosen, memory_order_acquire);
}

const char *fo_scan_chosen(void) { return isa()->name; }

/* ---- the kinder rules ---- */

static const char *const event_keys[] = {
	"ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "args", "bp", "s", NULL
};

/* The key of events that stands with its colon at p, a quote; NULL: none. */
static const char *event_key_at(const char *p, const char *end)
{
	if (p >= end || *p != '"')
		return NULL;
	p++;
	for (const char *const *k = event_keys; *k; k++) {
		size_t n = strlen(*k);
		if ((size_t)(end - p) > n + 1 && !memcmp(p, *k, n) && p[n] == '"') {
			const char *colon = blank(p + n + 1, end);
			return colon < end && *colon == ':' ? *k : NULL;
		}
	}
	return NULL;
}

/* Before p, white space left out; begin - 1 if there is nothing. */
static const char *before(const char *p, const char *begin)
{
	for (p--; p >= begin && (unsigned char)*p <= ' '; p--)
		;
	return p;
}

const char *fo_scan_next_event(const char *p, const char *end)
{
	const char *begin = p;
	for (; p < end && (p = memchr(p, '{', (size_t)(end - p))); p++) {
		const char *key = event_key_at(blank(p + 1, end), end);
		const char *comma = key ? before(p, begin) : NULL;
		if (!key || comma < begin || *comma != ',')
			continue;
		/* "ph" begins nothing but events; other keys may stand in objects of "args". */
		const char *close = before(comma, begin);
		if (!strcmp(key, "ph") || (close >= begin && *close == '}'))
			return p;
	}
	return NULL;
}

/* Whether a quote before p ends a member's string: an object's end follows, or a comma and the next key with its colon.
 */
static bool ends_member(const char *p, const char *end)
{
	p = blank(p, end);
	if (p < end && *p == '}') {
		p = blank(p + 1, end);
		return p >= end || *p == ',' || *p == ']' || *p == '}';
	}
	if (p >= end || *p != ',')
		return false;
	p = blank(p + 1, end);
	if (p >= end || *p != '"')
		return false;
	for (p++; p < end && *p != '"' && *p != '\n'; p++)
		;
	p = p < end ? blank(p + 1, end) : end;
	return p < end && *p == ':';
}

/* The quote that ends a member's string; with `escapes`, backslashes mean what JSON says. */
static const char *kind_string_end(const char *p, const char *end, bool escapes)
{
	for (; p < end; p++) {
		if (*p == '\\' && escapes)
			p++;
		else if (*p == '"' && ends_member(p + 1, end))
			return p;
	}
	return NULL;
}

/* The end of an object or array whose texts hold stray quotes: the first closing bracket behind which a member or an
 * event can follow. */
static const char *kind_skip(const char *p, const char *end)
{
	int64_t depth = 0;
	bool text = false;
	for (; p < end; p++) {
		if (*p == '"') {
			const char *q = blank(p + 1, end);
			/* A quote that closes stands before one of these; one that opens, behind a colon, comma or
			 * bracket. */
			if (text)
				text = !(q < end && (*q == ',' || *q == ':' || *q == '}' || *q == ']'));
			else
				text = true;
		} else if (text) {
			if (*p == '\\')
				p++;
			else if (*p == '\n')
				text = false;
		} else if (*p == '{' || *p == '[') {
			depth++;
		} else if ((*p == '}' || *p == ']') && --depth == 0) {
			return p + 1;
		}
	}
	return NULL;
}

/* One event by the kinder rules; [p, end) holds at most this event and what may be left of it. */
static enum fo_scan kind_event(const char *p, const char *end, struct fo_scan_event *e, const char **after)
{
	*e = (struct fo_scan_event){ .mended = true };
	for (p = blank(p + 1, end); p < end && *p != '}';) {
		const char *quote = *p == '"' ? memchr(p + 1, '"', (size_t)(end - p - 1)) : NULL;
		if (!quote)
			return FO_SCAN_BAD;
		struct fo_scan_text key = { p + 1, (size_t)(quote - p - 1), '"', false }, ignored,
				    *slot = slot_of(e, &key);
		struct fo_scan_text *v = slot ? slot : &ignored;
		p = blank(quote + 1, end);
		if (p >= end || *p != ':')
			return FO_SCAN_BAD;
		p = blank(p + 1, end);
		if (p >= end)
			return FO_SCAN_BAD;
		if (*p == '"') {
			const char *close = kind_string_end(p + 1, end, true);
			bool stray = !close || memchr(p, '\n', (size_t)(close - p));
			const char *other = stray ? kind_string_end(p + 1, end, false) : NULL;
			if (other && (!close || other < close))
				close = other;
			if (!close)
				return FO_SCAN_BAD;
			*v = (struct fo_scan_text){ p + 1, (size_t)(close - p - 1), '"',
						    memchr(p + 1, '\\', (size_t)(close - p - 1)) != NULL };
			p = close + 1;
		} else if (*p == '{' || *p == '[') {
			const char *close;
			if (isa()->value(p, end, true, v, &close) != FO_SCAN_OK ||
			    !(close = blank(close, end), close < end && (*close == ',' || *close == '}')))
				close = kind_skip(p, end);
			if (!close)
				return FO_SCAN_BAD;
			*v = (struct fo_scan_text){ p, (size_t)(close - p), *p, false };
			p = close;
		} else if (isa()->value(p, end, true, v, &p) != FO_SCAN_OK) {
			return FO_SCAN_BAD;
		}
		p = blank(p, end);
		if (p < end && *p == ',')
			p = blank(p + 1, end);
		else if (p < end && *p != '}')
			return FO_SCAN_BAD;
	}
	*after = p + 1;
	return p < end ? FO_SCAN_OK : FO_SCAN_BAD;
}

/* Whether another event or the array's end follows. */
static bool event_ends_at(const char *p, const char *end, bool last)
{
	p = blank(p, end);
	return p >= end ? true : *p == ']' || *p == ',' || (last && *p == '}');
}

enum fo_scan fo_scan_event(const char *p, const char *end, bool last, struct fo_scan_event *e, const char **after)
{
	*e = (struct fo_scan_event){ 0 };
	enum fo_scan r = isa()->event(p, end, last, e, after);
	if (r == FO_SCAN_OK && event_ends_at(*after, end, last))
		return r;
	if (r == FO_SCAN_MORE && !last)
		return r;
	const char *next = fo_scan_next_event(p + 1, end);
	if (!next && !last)
		return FO_SCAN_MORE;
	enum fo_scan mended = kind_event(p, next ? next : end, e, after);
	if (mended == FO_SCAN_OK)
		return mended;
	return last && r == FO_SCAN_MORE ? FO_SCAN_MORE : FO_SCAN_BAD;
}

enum fo_scan fo_scan_value(const char *p, const char *end, bool last, struct fo_scan_text *value, const char **after)
{
	return p < end ? isa()->value(p, end, last, value, after) : FO_SCAN_MORE;
}

int fo_scan_members(const char *p, const char *end, struct fo_scan_member *m, int cap)
{
	return p < end && *p == '{' ? isa()->members(p, end, m, cap) : 0;
}

/* ---- values ---- */

size_t fo_scan_unescape(const struct fo_scan_text *value, char *out)
{
	const char *p = value->p, *end = p + value->n;
	char *to = out;
	while (p < end) {
		if (*p != '\\' || p + 1 == end) {
			*to++ = *p++;
			continue;
		}
		static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
		const char *simple = memchr(from, p[1], sizeof(from) - 1);
		if (simple) {
			*to++ = into[simple - from];
			p += 2;
			continue;
		}
		uint32_t code;
		size_t n = fo_str_unicode_escape(p, (size_t)(end - p), &code);
		if (!n) {
			*to++ = *p++;
			continue;
		}
		p += n;
		to += fo_utf8_encode(to, code ? code : ' '); /* texts end at a NUL */
	}
	return (size_t)(to - out);
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* The decimal number in p[0..n), with point and exponent, times 10^shift, cut towards zero. False: no number. */
static bool scaled_decimal(const char *p, size_t n, int shift, int64_t *out, bool *saturated)
{
	const char *end = p + n, *point = NULL;
	int64_t exponent = 0, places = 0; /* places: digits before the point */
	bool digits = false, less = false, down = false;
	p = blank(p, end);
	while (end > p && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	if (p < end && (*p == '-' || *p == '+'))
		less = *p++ == '-';
	const char *first = p;
	for (; p < end && (is_digit(*p) || (*p == '.' && !point)); p++) {
		digits |= *p != '.';
		places += !point && *p != '.';
		point = *p == '.' ? p : point;
	}
	const char *last = p;
	if (p < end && (*p == 'e' || *p == 'E')) {
		if (++p < end && (*p == '-' || *p == '+'))
			down = *p++ == '-';
		digits &= p < end;
		for (; p < end && is_digit(*p); p++)
			exponent = exponent < 100000000 ? exponent * 10 + (*p - '0') : exponent;
	}
	if (!digits || p != end)
		return false;
	places += shift + (down ? -exponent : exponent);
	uint64_t v = 0;
	*saturated = false;
	for (p = first; places > 0 && !*saturated && (v || p < last); p++) {
		if (p == point)
			continue;
		unsigned digit = p < last ? (unsigned)(*p - '0') : 0;
		*saturated = v > ((uint64_t)INT64_MAX - digit) / 10;
		v = *saturated ? INT64_MAX : v * 10 + digit;
		places--;
	}
	*out = less ? -(int64_t)v : (int64_t)v;
	return true;
}

/* "1234567890123.456" is what nearly all are: no sign, no exponent, at most 15 digits before the point. */
static inline bool plain_thousandths(const char *p, size_t n, int64_t *out)
{
	const char *end = p + n;
	uint64_t v = 0;
	if (n > 19)
		return false;
	for (; p < end && (unsigned)(*p - '0') < 10; p++)
		v = v * 10 + (unsigned)(*p - '0');
	size_t whole = n - (size_t)(end - p);
	if (!whole || whole > 15)
		return false;
	int places = 0;
	if (p < end && *p == '.')
		for (p++; p < end && (unsigned)(*p - '0') < 10; p++)
			if (places < 3) {
				v = v * 10 + (unsigned)(*p - '0');
				places++;
			}
	for (; places < 3; places++)
		v *= 10;
	*out = (int64_t)v;
	return p == end;
}

bool fo_scan_thousandths(const struct fo_scan_text *value, int64_t *out, bool *saturated)
{
	*saturated = false;
	return value->first &&
	       (plain_thousandths(value->p, value->n, out) || scaled_decimal(value->p, value->n, 3, out, saturated));
}

bool fo_scan_int(const struct fo_scan_text *value, int64_t *out)
{
	const char *p = value->p;
	if (value->n && value->n <= 18 && value->first) {
		bool negative = *p == '-';
		int64_t v = 0;
		size_t i = negative;
		for (; i < value->n && (unsigned)(p[i] - '0') < 10; i++)
			v = v * 10 + (p[i] - '0');
		if (i == value->n && i > negative) {
			*out = negative ? -v : v;
			return true;
		}
	}
	int64_t v;
	bool saturated;
	if (!value->first || !scaled_decimal(value->p, value->n, 0, &v, &saturated) || saturated)
		return false;
	*out = v;
	return true;
}

bool fo_scan_is(const struct fo_scan_text *value, const char *text)
{
	size_t n = strlen(text);
	return value->first == '"' && value->n == n && !memcmp(value->p, text, n);
}
