/* The three published patterns, matched by hand: what PCRE2 gives, several times as fast, with the Unicode version of
 * Hugging Face's library and not PCRE2's. */
#include "data/data_int.h"
#include "data/unicode.h"

#include <string.h>

/* The patterns of Llama 3's, GPT-2's and Qwen2's (and Qwen3's) published tokenizers. */
const char *const split_pattern_llama3 =
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
	"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const char *const split_pattern_gpt2 =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const char *const split_pattern_qwen2 =
	"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
	"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

struct text {
	const unsigned char *s;
	size_t end;
	const uint8_t *flags;
};

/* The flags of the character at `at`, 0 at the end of the text; *next is where the following one begins. */
static inline uint8_t flags_at(const struct text *t, size_t at, size_t *next)
{
	if (at >= t->end)
		return 0;
	uint32_t c;
	*next = at + utf8_char(t->s + at, &c);
	return t->flags[c];
}

static inline size_t skip(const struct text *t, size_t at, uint8_t flag)
{
	size_t next = at;
	while (at < t->end && (flags_at(t, at, &next) & flag))
		at = next;
	return at;
}

/* [^\s\p{L}\p{N}]* */
static inline size_t skip_others(const struct text *t, size_t at)
{
	size_t next = at;
	while (at < t->end && !(flags_at(t, at, &next) & (UNI_LETTER | UNI_NUMBER | UNI_SPACE)))
		at = next;
	return at;
}

static inline bool is_line_end(unsigned char c) { return c == '\r' || c == '\n'; }

/* Matches 's 't 're 've 'm 'll 'd after an apostrophe at `at`: the end, or 0. With `fold` in either case; the long s
 * (U+017F) is the only other character that folds to one of these letters. */
static size_t contraction(const struct text *t, size_t at, bool fold)
{
	static const char two[][3] = { "re", "ve", "ll" };
	size_t left = t->end - at - 1;
	if (!left)
		return 0;
	const unsigned char *s = t->s + at + 1;
	unsigned char lower = fold ? 0x20 : 0;
	char a = (char)(s[0] | lower), b = left > 1 ? (char)(s[1] | lower) : 0;
	if (a == 's' || a == 't' || a == 'm' || a == 'd')
		return at + 2;
	if (fold && left > 1 && s[0] == 0xc5 && s[1] == 0xbf)
		return at + 3;
	for (int i = 0; i < 3; i++)
		if (a == two[i][0] && b == two[i][1])
			return at + 3;
	return 0;
}

/* \s+(?!\S)|\s+ at a space: all of the run but its last character, unless that is the only one or the text ends. */
static size_t spaces(const struct text *t, size_t at)
{
	size_t last = at, next = at, end = at;
	while (end < t->end && (flags_at(t, end, &next) & UNI_SPACE)) {
		last = end;
		end = next;
	}
	return end == t->end || last == at ? end : last;
}

/* \s*[\r\n]+|\s+(?!\S)|\s+ : to the last line end of the run of spaces, if it has one. */
static size_t spaces_to_line_end(const struct text *t, size_t at)
{
	size_t line = 0, next = at;
	for (size_t i = at; i < t->end && (flags_at(t, i, &next) & UNI_SPACE); i = next)
		if (is_line_end(t->s[i]))
			line = next;
	return line ? line : spaces(t, at);
}

/* Llama 3's pattern; Qwen2's differs in how many digits a piece has. */
static size_t match_llama3(const struct text *t, size_t at, int digits)
{
	size_t next = at, end;
	uint8_t f = flags_at(t, at, &next);
	unsigned char c = t->s[at];
	if (c == '\'' && (end = contraction(t, at, true)))
		return end;
	if (f & UNI_LETTER)
		return skip(t, next, UNI_LETTER);
	if (f & UNI_NUMBER) {
		for (end = next; --digits > 0 && (flags_at(t, end, &next) & UNI_NUMBER);)
			end = next;
		return end;
	}
	size_t second = next;
	if (!is_line_end(c) && (flags_at(t, second, &next) & UNI_LETTER))
		return skip(t, next, UNI_LETTER);
	size_t others = skip_others(t, c == ' ' ? second : at);
	if (others > (c == ' ' ? second : at)) {
		while (others < t->end && is_line_end(t->s[others]))
			others++;
		return others;
	}
	return spaces_to_line_end(t, at);
}

static size_t match_llama3_digits(const unsigned char *s, size_t at, size_t end)
{
	return match_llama3(&(struct text){ s, end, unicode_flags() }, at, 3);
}

static size_t match_qwen2(const unsigned char *s, size_t at, size_t end)
{
	return match_llama3(&(struct text){ s, end, unicode_flags() }, at, 1);
}

static size_t match_gpt2(const unsigned char *s, size_t at, size_t end)
{
	const struct text t = { s, end, unicode_flags() };
	size_t next = at, from = at, to;
	if (s[at] == '\'' && (to = contraction(&t, at, false)))
		return to;
	from += s[at] == ' ';
	uint8_t f = flags_at(&t, from, &next);
	if (from == end || (f & UNI_SPACE))
		return spaces(&t, at);
	if (f & (UNI_LETTER | UNI_NUMBER))
		return skip(&t, next, f & (UNI_LETTER | UNI_NUMBER));
	return skip_others(&t, from);
}

split_matcher *split_known_matcher(const char *pattern)
{
	if (strcmp(pattern, split_pattern_llama3) == 0)
		return match_llama3_digits;
	if (strcmp(pattern, split_pattern_qwen2) == 0)
		return match_qwen2;
	return strcmp(pattern, split_pattern_gpt2) == 0 ? match_gpt2 : NULL;
}
