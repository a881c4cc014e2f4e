/* Words in a text, many bytes at a time: both of the word's rarest bytes are compared at their distance, for a vector
 * of places at once, and what is left is compared in full. Logs are searched for words that most lines do not have, or
 * for one of each line; memmem of glibc reads about a third as fast. */
#include "logs/logs_int.h"

#include <string.h>

typedef unsigned char bytes __attribute__((vector_size(16)));
enum { STEP = 2 * sizeof(bytes) };

/* How seldom a byte is in logs, roughly. */
static int rarity(unsigned char c)
{
	if (c == ' ' || (c >= '0' && c <= '9'))
		return 0;
	if (strchr("eationsrl.,:-", c) && c)
		return 1;
	if (c >= 'a' && c <= 'z')
		return 2;
	return c == '|' ? 1 : 3;
}

struct fo_log_needle fo_log_needle(const char *word)
{
	struct fo_log_needle n = { .text = word, .len = strlen(word) };
	for (size_t i = 1; i < n.len; i++)
		if (rarity((unsigned char)word[i]) >= rarity((unsigned char)word[n.rare]))
			n.rare = i;
	n.other = n.rare ? 0 : n.len - 1;
	for (size_t i = 0; i < n.len; i++)
		if (i != n.rare && rarity((unsigned char)word[i]) >= rarity((unsigned char)word[n.other]))
			n.other = i;
	return n;
}

static bytes load(const char *p)
{
	bytes v;
	memcpy(&v, p, sizeof v);
	return v;
}

static bytes all(char c) { return (bytes){ 0 } + (unsigned char)c; }

/* The first place of the vector's worth at p; NULL. */
static const char *among(const char *p, const struct fo_log_needle *n)
{
	for (size_t i = 0; i < STEP; i++)
		if (p[i + n->rare] == n->text[n->rare] && !memcmp(p + i, n->text, n->len))
			return p + i;
	return NULL;
}

const char *fo_log_seek(const char *p, const char *end, const struct fo_log_needle *n)
{
	const bytes rare = all(n->text[n->rare]), other = all(n->text[n->other]);
	/* The last byte that is read is the word's last one behind the vector's last place. */
	for (; end - p >= (ptrdiff_t)(STEP + n->len); p += STEP) {
		const char *a = p + n->rare, *b = p + n->other;
		union {
			bytes v;
			uint64_t word[2];
		} hit = { .v = (bytes)((load(a) == rare) & (load(b) == other)) |
			       (bytes)((load(a + sizeof(bytes)) == rare) & (load(b + sizeof(bytes)) == other)) };
		if (hit.word[0] | hit.word[1]) {
			const char *at = among(p, n);
			if (at)
				return at;
		}
	}
	for (; end - p >= (ptrdiff_t)n->len; p++)
		if (p[n->rare] == n->text[n->rare] && !memcmp(p, n->text, n->len))
			return p;
	return NULL;
}

const char *fo_log_find(const char *p, const char *end, const char *word)
{
	struct fo_log_needle n = fo_log_needle(word);
	return fo_log_seek(p, end, &n);
}
