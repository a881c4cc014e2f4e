/* The part of the tokenizer that looks at many bytes at once, included once for each instruction set (scan.c), which
 * defines before
 *
 *   FO_SCAN_NAME(x)   the name of x for that instruction set
 *   FO_SCAN_TARGET    the function attribute that allows its instructions
 *   string_stops(p)   32 bytes at p: one bit for each '"', '\\' and character below ' '
 *   scalar_stops(p)   16 bytes at p: one bit for each ',', bracket that closes, and character up to ' '
 *   blank_stops(p)    16 bytes at p: one bit for each character above ' '
 *   look(p, &marks)   64 bytes at p: struct marks
 *   odd_quotes(bits)  bit i: the number of bits up to and with i is odd
 */

/* The next character above ' ': what JSON calls white space, and control characters, which can stand nowhere else
 * either. */
FO_SCAN_TARGET static inline const char *FO_SCAN_NAME(blank)(const char *p, const char *end)
{
	if ((unsigned char)*p > ' ' || p >= end)
		return p;
	if ((unsigned char)*++p > ' ') /* one blank is the most frequent case */
		return p;
	for (; p < end; p += 16) {
		uint32_t stops = FO_SCAN_NAME(blank_stops)(p);
		if (stops) {
			p += __builtin_ctz(stops);
			break;
		}
	}
	return p < end ? p : end;
}

/* Where the string whose content begins at p ends: its quote. NULL: end comes first, or a control character (which JSON
 * forbids inside a string and which so shows that a quote was missed); *control tells them apart. */
FO_SCAN_TARGET static inline const char *FO_SCAN_NAME(string_end)(const char *p, const char *end, bool *escaped,
								  bool *control)
{
	*escaped = *control = false;
	while (p < end) {
		uint32_t stops = FO_SCAN_NAME(string_stops)(p);
		if (!stops) {
			p += 32;
			continue;
		}
		p += __builtin_ctz(stops);
		if (p >= end)
			return NULL;
		if (*p == '"')
			return p;
		if (*p != '\\') {
			*control = true;
			return NULL;
		}
		*escaped = true;
		p += 2;
	}
	return NULL;
}

/* Behind the bracket that closes the `depth` brackets open at p, p being outside any string. */
FO_SCAN_TARGET static enum fo_scan FO_SCAN_NAME(skip)(const char *p, const char *end, int64_t depth, const char **after)
{
	uint64_t inside = 0; /* all ones while a string is open over the border of two blocks */
	uint64_t carry = 0;  /* 1: the block before ended in a backslash that escapes */
	for (; p < end; p += 64) {
		struct marks m;
		FO_SCAN_NAME(look)(p, &m);
		if (end - p < 64) {
			uint64_t valid = ((uint64_t)1 << (end - p)) - 1;
			m.quote &= valid, m.back &= valid, m.open &= valid, m.close &= valid, m.control &= valid;
		}
		if (m.back | carry)
			m.quote &= ~escaped_bits(m.back, &carry);
		uint64_t text = FO_SCAN_NAME(odd_quotes)(m.quote) ^ inside; /* the opening quote and what it holds */
		inside = (uint64_t)((int64_t)text >> 63);
		if (m.control & text)
			return FO_SCAN_BAD;
		uint64_t open = m.open & ~text, close = m.close & ~text;
		if (__builtin_popcountll(close) < depth) {
			depth += __builtin_popcountll(open) - __builtin_popcountll(close);
			continue;
		}
		for (uint64_t both = open | close; both; both &= both - 1) {
			uint64_t bit = both & -both;
			depth += open & bit ? 1 : -1;
			if (!depth) {
				*after = p + __builtin_ctzll(bit) + 1;
				return FO_SCAN_OK;
			}
		}
	}
	return FO_SCAN_MORE;
}

/* The value at p by JSON's rules alone. */
FO_SCAN_TARGET static inline enum fo_scan FO_SCAN_NAME(value)(const char *p, const char *end, bool last,
							      struct fo_scan_text *v, const char **after)
{
	v->first = *p;
	v->escaped = false;
	if (*p == '"') {
		bool control;
		const char *close = FO_SCAN_NAME(string_end)(p + 1, end, &v->escaped, &control);
		if (!close)
			return control ? FO_SCAN_BAD : FO_SCAN_MORE;
		v->p = p + 1;
		v->n = (size_t)(close - p - 1);
		*after = close + 1;
		return FO_SCAN_OK;
	}
	v->p = p;
	if (*p == '{' || *p == '[') {
		enum fo_scan r = FO_SCAN_NAME(skip)(p + 1, end, 1, after);
		if (r == FO_SCAN_OK)
			v->n = (size_t)(*after - p);
		return r;
	}
	const char *q = p;
	uint32_t stops;
	while (q < end && !(stops = FO_SCAN_NAME(scalar_stops)(q)))
		q += 16;
	if (q < end)
		q += __builtin_ctz(stops);
	if (q >= end && !last)
		return FO_SCAN_MORE;
	q = q < end ? q : end;
	v->n = (size_t)(q - p);
	*after = q;
	return q > p && in_scalar(*p) && in_scalar(q[-1]) ? FO_SCAN_OK : FO_SCAN_BAD;
}

/* Key and colon at p; *at: the value's first character. */
FO_SCAN_TARGET static inline enum fo_scan FO_SCAN_NAME(key)(const char *p, const char *end, struct fo_scan_text *key,
							    const char **at)
{
	bool control;
	if (p >= end)
		return FO_SCAN_MORE;
	if (*p != '"')
		return FO_SCAN_BAD;
	const char *close = FO_SCAN_NAME(string_end)(p + 1, end, &key->escaped, &control);
	if (!close)
		return control ? FO_SCAN_BAD : FO_SCAN_MORE;
	key->first = '"';
	key->p = p + 1;
	key->n = (size_t)(close - p - 1);
	p = FO_SCAN_NAME(blank)(close + 1, end);
	if (p >= end)
		return FO_SCAN_MORE;
	if (*p != ':')
		return FO_SCAN_BAD;
	p = FO_SCAN_NAME(blank)(p + 1, end);
	*at = p;
	return p >= end ? FO_SCAN_MORE : FO_SCAN_OK;
}

FO_SCAN_TARGET static enum fo_scan FO_SCAN_NAME(event)(const char *p, const char *end, bool last,
						       struct fo_scan_event *e, const char **after)
{
	struct fo_scan_text key, ignored;
	for (p = FO_SCAN_NAME(blank)(p + 1, end); p < end && *p != '}';) {
		const char *at;
		size_t n = 0;
		struct fo_scan_text *slot = known_key(e, p, &n);
		if (slot && p[n] == ':' && (unsigned char)p[n + 1] <= ' ' && (unsigned char)p[n + 2] > ' ') {
			at = p + n + 2;
			if (at >= end)
				return FO_SCAN_MORE;
		} else {
			enum fo_scan r = FO_SCAN_NAME(key)(p, end, &key, &at);
			if (r != FO_SCAN_OK)
				return r;
			slot = slot_of(e, &key);
		}
		if (slot == &e->name && is_python(e) && end - at > FRAME_LONGEST && *at == '"' &&
		    !kept_frame(at + 1, (size_t)(end - at) - 1)) {
			e->skipped = true;
			return FO_SCAN_NAME(skip)(at, end, 1, after);
		}
		enum fo_scan r = FO_SCAN_NAME(value)(at, end, last, slot ? slot : &ignored, &p);
		if (r != FO_SCAN_OK)
			return r;
		p = FO_SCAN_NAME(blank)(p, end);
		if (p < end && *p == ',')
			p = FO_SCAN_NAME(blank)(p + 1, end);
		else if (p < end && *p != '}')
			return FO_SCAN_BAD;
		if (tells_nothing(e, slot)) {
			e->skipped = true;
			return p < end && *p == '}' ? (*after = p + 1, FO_SCAN_OK)
						    : FO_SCAN_NAME(skip)(p, end, 1, after);
		}
	}
	*after = p + 1;
	return p < end ? FO_SCAN_OK : FO_SCAN_MORE;
}

FO_SCAN_TARGET static int FO_SCAN_NAME(members)(const char *p, const char *end, struct fo_scan_member *m, int cap)
{
	int n = 0;
	for (p = FO_SCAN_NAME(blank)(p + 1, end); n < cap && p < end && *p != '}';) {
		const char *at;
		if (FO_SCAN_NAME(key)(p, end, &m[n].key, &at) != FO_SCAN_OK ||
		    FO_SCAN_NAME(value)(at, end, true, &m[n].value, &p) != FO_SCAN_OK)
			break;
		n++;
		p = FO_SCAN_NAME(blank)(p, end);
		if (p < end && *p == ',')
			p = FO_SCAN_NAME(blank)(p + 1, end);
	}
	return n;
}
