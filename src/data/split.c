#include "data/data_int.h"
#include "data/property.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Unicode's White_Space, which is Oniguruma's \s; PCRE2's has U+180E in addition. */
#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

#define MAX_PATTERN 4096      /* the longest published one has 300 characters */
#define MATCH_LIMIT 10000000u /* PCRE2's own default, stated because hostile patterns meet it */

struct split {
	split_matcher *match; /* of a known pattern; without one PCRE2's */
	pcre2_code *code;
	bool shared; /* the code is another split's */
	pcre2_match_data *data;
	pcre2_match_context *limits;
};

static fo_status not_shared(const char *what, size_t at)
{
	fo_fail(FO_EFORMAT, "the split pattern uses %s at character %zu, which Oniguruma and PCRE2 read differently",
		what, at + 1);
	return fo_hint(FO_EFORMAT,
		       "patterns like Llama 3's and GPT-2's are supported: literals, classes, \\p{..}, \\s, groups, "
		       "look-ahead and simple quantifiers");
}

struct translation {
	struct fo_str *out;
	const char *pattern;
	struct properties properties;
	int depth, caseless; /* groups that are open; the depth of the one in which case does not matter, 0: none */
};

/* The property that `name` names, at character `at` of the pattern. */
static fo_status put_property(struct translation *t, const char *name, size_t len, bool negated, size_t at,
			      bool in_class)
{
	bool known;
	char shown[128], cut[32];
	if (!in_class)
		fo_str_puts(t->out, "[");
	FO_TRY(property_class(&t->properties, name, len, negated, t->out, &known));
	if (!in_class)
		fo_str_puts(t->out, "]");
	if (known)
		return FO_OK;
	snprintf(cut, sizeof cut, "%.*s", (int)(len < 31 ? len : 31), name);
	return fo_hint(fo_fail(FO_EFORMAT,
			       "the split pattern uses the property '%s%s' at character %zu, which is neither a "
			       "general category nor a script",
			       fo_str_visible(shown, sizeof shown, cut), len > 31 ? "..." : "", at + 1),
		       "categories (L, Lu, Letter, Nd, ...) and scripts (Han, Greek, ...) are supported");
}

/* Copies one escape at p[*i] (the backslash), \s and \S spelled out. \w is missing: Oniguruma's includes marks. */
static fo_status translate_escape(struct translation *t, size_t *i, bool in_class)
{
	struct fo_str *o = t->out;
	const char *p = t->pattern;
	char c = p[*i + 1];
	size_t n = 2;
	if (c == 's') {
		fo_str_puts(o, in_class ? SPACE : "[" SPACE "]");
	} else if (c == 'S' && !in_class) {
		fo_str_puts(o, "[^" SPACE "]");
	} else if (c && strchr("pPx", c) && p[*i + 2] == '{' && strchr(p + *i, '}')) {
		n = (size_t)(strchr(p + *i, '}') - (p + *i)) + 1;
		bool not = p[*i + 3] == '^';
		if (c == 'x')
			fo_str_append(o, p + *i, n);
		else if (t->caseless) /* the one adds the other case to it, the other does not */
			return not_shared("a property inside (?i:", *i);
		else
			FO_TRY(put_property(t, p + *i + 3 + not, n - 4 - not, not != (c == 'P'), *i, in_class));
	} else if (c == 'd' || c == 'D') { /* digits of the same Unicode as the rest */
		FO_TRY(put_property(t, "Nd", 2, c == 'D', *i, in_class));
	} else if (c && (strchr("rnt", c) || strchr("!\"#$%&'()*+,-./:;=?@[\\]^_`{|}~", c))) {
		fo_str_append(o, p + *i, n);
	} else {
		return not_shared("an escape", *i);
	}
	*i += n;
	return FO_OK;
}

/* Rewrites a Hugging Face pattern for PCRE2, refusing whatever the two libraries do not understand alike. */
static fo_status translate(struct translation *t)
{
	struct fo_str *o = t->out;
	const char *p = t->pattern;
	bool in_class = false;
	for (size_t i = 0, class_at = 0; p[i];) {
		char c = p[i];
		if (c == '\\') {
			FO_TRY(translate_escape(t, &i, in_class));
			continue;
		}
		if (in_class) {
			if (c == '[' || (c == '&' && p[i + 1] == '&') || (c == ']' && i == class_at))
				return not_shared("a nested class", i);
			in_class = c != ']';
		} else if (c == '[') {
			in_class = true;
			class_at = i + 1 + (p[i + 1] == '^');
		} else if (c == '^' || c == '$') {
			return not_shared("an anchor", i);
		} else if ((c == '}' && (p[i + 1] == '+' || p[i + 1] == '?')) || (c == '{' && p[i + 1] == ',')) {
			return not_shared("an interval", i);
		} else if (c == '(' && (p[i + 1] == '?' || p[i + 1] == '*')) {
			static const char *const known[] = { "(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!" };
			bool ok = false;
			for (size_t k = 0; k < sizeof known / sizeof *known; k++)
				ok |= strncmp(p + i, known[k], strlen(known[k])) == 0;
			if (!ok)
				return not_shared("a special group", i);
		}
		if (!in_class && c == '(' && ++t->depth && !t->caseless && !strncmp(p + i, "(?i:", 4))
			t->caseless = t->depth;
		if (!in_class && c == ')' && t->depth-- == t->caseless)
			t->caseless = 0;
		fo_str_append(o, &c, 1);
		i++;
	}
	return FO_OK;
}

static fo_status make_match_data(struct split *s)
{
	s->data = pcre2_match_data_create_from_pattern(s->code, NULL);
	s->limits = pcre2_match_context_create(NULL);
	if (!s->data || !s->limits)
		return fo_fail(FO_ENOMEM, "cannot allocate the split pattern's match data");
	pcre2_set_match_limit(s->limits, MATCH_LIMIT);
	return FO_OK;
}

fo_status split_new(const char *pattern, struct split **out)
{
	split_matcher *match = split_known_matcher(pattern);
	if (!match)
		return split_new_pcre(pattern, out);
	*out = fo_xmalloc(sizeof **out);
	(*out)->match = match;
	return FO_OK;
}

fo_status split_share(const struct split *from, struct split **out)
{
	struct split *s = fo_xmalloc(sizeof *s);
	*s = (struct split){ .match = from->match, .code = from->code, .shared = true };
	fo_status st = s->match ? FO_OK : make_match_data(s);
	if (st == FO_OK)
		*out = s;
	else
		split_free(s);
	return st;
}

bool split_is_known(const struct split *s) { return s->match != NULL; }

fo_status split_new_pcre(const char *pattern, struct split **out)
{
	if (strlen(pattern) > MAX_PATTERN)
		return fo_fail(FO_EFORMAT, "the split pattern has %zu bytes, at most %d are supported", strlen(pattern),
			       MAX_PATTERN);
	struct fo_str text = { 0 };
	struct translation t = { .out = &text, .pattern = pattern };
	fo_status translated = translate(&t);
	properties_free(&t.properties);
	if (translated != FO_OK) {
		fo_str_fini(&text);
		return translated;
	}
	int code;
	PCRE2_SIZE at;
	struct split *s = fo_xmalloc(sizeof *s);
	s->code = pcre2_compile((PCRE2_SPTR)(text.data ? text.data : ""), text.len,
				PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &code, &at, NULL);
	fo_str_fini(&text);
	if (!s->code) {
		PCRE2_UCHAR why[128];
		pcre2_get_error_message(code, why, sizeof why);
		split_free(s);
		return fo_fail(FO_EFORMAT, "the split pattern does not compile: %s", (char *)why);
	}
	/* A hardened kernel may forbid JIT; pcre2_match then interprets: slower, same result. */
	(void)pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE);
	fo_status st = make_match_data(s);
	if (st == FO_OK)
		*out = s;
	else
		split_free(s);
	return st;
}

void split_free(struct split *s)
{
	if (!s)
		return;
	pcre2_match_context_free(s->limits);
	pcre2_match_data_free(s->data);
	if (!s->shared)
		pcre2_code_free(s->code);
	free(s);
}

/* Sets the run of valid UTF-8, or of bytes that belong to none, that begins at c->pos. */
static void find_run(struct split_cursor *c)
{
	const unsigned char *s = (const unsigned char *)c->text;
	size_t i = c->pos, n;
	c->run_start = i;
	c->valid_run = fo_utf8_decode(s + i, c->len - i, NULL) != 0;
	while (i < c->len) {
		uint64_t word;
		if (c->valid_run && c->len - i >= sizeof word) {
			memcpy(&word, s + i, sizeof word);
			if (!(word & 0x8080808080808080u)) {
				i += sizeof word;
				continue;
			}
		}
		n = fo_utf8_decode(s + i, c->len - i, NULL);
		if ((n != 0) != c->valid_run)
			break;
		i += n ? n : 1;
	}
	c->run_end = i;
}

static void take(struct split_cursor *c, size_t end, const char **piece, size_t *piece_len)
{
	*piece = c->text + c->pos;
	*piece_len = end - c->pos < TOK_MAX_PIECE ? end - c->pos : TOK_MAX_PIECE;
	c->pos += *piece_len;
}

fo_status split_next(struct split *s, struct split_cursor *c, const char **piece, size_t *piece_len)
{
	*piece_len = 0;
	if (c->pos == c->len)
		return FO_OK;
	if (c->match_end > c->pos) { /* a match after a gap, or the rest of a cut piece */
		take(c, c->pos < c->match_start ? c->match_start : c->match_end, piece, piece_len);
		return FO_OK;
	}
	if (c->pos >= c->run_end)
		find_run(c);
	if (!c->valid_run) {
		take(c, c->run_end, piece, piece_len);
		return FO_OK;
	}
	if (s->match) {
		c->match_start = c->pos;
		c->match_end = s->match((const unsigned char *)c->text, c->pos, c->run_end);
		take(c, c->match_end, piece, piece_len);
		return FO_OK;
	}
	size_t at = c->pos - c->run_start, run = c->run_end - c->run_start;
	int rc = pcre2_match(s->code, (PCRE2_SPTR)c->text + c->run_start, run, at, PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
			     s->data, s->limits);
	if (rc == PCRE2_ERROR_NOMATCH) {
		c->match_start = c->match_end = c->run_end;
	} else if (rc < 0) {
		PCRE2_UCHAR why[128];
		pcre2_get_error_message(rc, why, sizeof why);
		return fo_fail(FO_EFORMAT, "the tokenizer's split pattern fails on this text at byte %zu: %s", c->pos,
			       (char *)why);
	} else {
		const PCRE2_SIZE *v = pcre2_get_ovector_pointer(s->data);
		c->match_start = c->run_start + v[0];
		c->match_end = c->run_start + v[1];
	}
	take(c, c->pos < c->match_start ? c->match_start : c->match_end, piece, piece_len);
	return FO_OK;
}
