/* SentencePiece's style of BPE: merges over the whole text, no pattern that cuts it first.
 *
 * A merge joins two neighbouring symbols. Where no merge has a first symbol that ends with the character before a place
 * and a second one that begins with the character after it, no merge can ever cross the place, and what happens on one
 * side does not depend on the other. So the text is cut at all such places: same ids, short pieces, which the encoder's
 * cache knows. */
#include "data/data_int.h"

#include <string.h>

/* The character at s[0..len), U+2581 and space alike as ' '; its length, 0 at a byte that is not UTF-8. */
static size_t read_char(const char *s, size_t len, uint32_t *c)
{
	size_t n = len ? fo_utf8_decode(s, len, NULL) : 0;
	if (!n)
		return 0;
	utf8_char((const unsigned char *)s, c);
	if (*c == SENTENCE_SPACE_CHAR)
		*c = ' ';
	return n;
}

size_t tok_sentence_piece(const struct fo_tokenizer *t, const char *text, size_t len)
{
	uint32_t a, b;
	size_t at = read_char(text, len, &a), n;
	if (!at) {
		while (at < len && at < TOK_MAX_PIECE && !fo_utf8_decode(text + at, len - at, NULL))
			at++;
		return at;
	}
	for (; at < len && at <= TOK_MAX_PIECE - 4; at += n, a = b) {
		n = read_char(text + at, len - at, &b);
		if (!n || !tok_joins(t->index, a, b) || (t->split_spaces && b == ' '))
			break;
	}
	return at;
}

size_t tok_sentence_symbols(const struct fo_tokenizer *t, const char *piece, size_t len, int32_t *ids)
{
	size_t count = 0;
	for (size_t at = 0, n; at < len; at += n) {
		uint32_t c = 0;
		const char *s = piece + at;
		n = read_char(s, len - at, &c);
		int32_t id = -1;
		if (c == ' ')
			id = tok_word(t, " ", 1);
		else if (n)
			id = tok_word(t, s, n);
		n = n ? n : 1;
		if (id >= 0)
			ids[count++] = id;
		else
			for (size_t i = 0; i < n; i++)
				ids[count++] = t->byte_id[(unsigned char)s[i]];
	}
	return count;
}

/* Does a cut at s[at], 0 < at < len, lie between two characters that no merge joins? */
static bool sentence_cut(const struct fo_tokenizer *t, const char *s, size_t len, size_t at)
{
	uint32_t a, b;
	if (!read_char(s + at, len - at, &b))
		return false;
	for (size_t n = 1; n <= 4 && n <= at; n++)
		if (read_char(s + at - n, n, &a) == n)
			return !tok_joins(t->index, a, b);
	return false;
}

static bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static bool is_ascii_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* The added tokens that are read from texts must not be cut either. */
static bool added_may_be_cut(const struct fo_tokenizer *t)
{
	for (size_t i = 0; i < t->specials; i++)
		for (const char *s = t->special[i].text; t->special[i].in_text && *s; s++)
			if (is_ascii_letter(s[0]) && is_ascii_space(s[1]))
				return true;
	return false;
}

/* No match of the known patterns goes on from a letter to a space, whatever came before, and only matches of space look
 * at what follows them. So between a letter and a space one piece always ends and another begins. */
size_t fo_tokenizer_cut(const struct fo_tokenizer *t, const char *text, size_t len, size_t at)
{
	if (!t->sentence && (!split_is_known(tok_split(t)) || added_may_be_cut(t)))
		return len;
	for (at = at ? at : 1; at < len; at++)
		if (t->sentence ? sentence_cut(t, text, len, at)
				: is_ascii_letter(text[at - 1]) && is_ascii_space(text[at]))
			return at;
	return len;
}

size_t tok_text_cut(const void *tokenizer, const char *text, size_t len, size_t at)
{
	return fo_tokenizer_cut(tokenizer, text, len, at);
}
