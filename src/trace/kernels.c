#include "trace/trace_int.h"

#include <assert.h>
#include <pthread.h>
#include <regex.h>
#include <string.h>

#define NAME(enumerator, name) #name,
const char *const fo_kernel_class_name[FO_K_COUNT] = { FO_KERNEL_CLASSES(NAME) };

/* data/kernel_rules.tsv as it was when this was built (cmake/FlatoutSources.cmake, fo_embed). */
static const char table[] = {
#include "kernel_rules.inc"
	, 0
};

enum {
	MOST_RULES = 64,
	/* Template arguments make names of a few kilobytes; what decides stands in front of that. */
	LONGEST_NAME = 16384,
	/* A trace of a training step has a few hundred distinct names; a hostile one shall not fill the memory. */
	MOST_NAMES = 1 << 16,
};

static struct {
	regex_t regex[MOST_RULES];
	enum fo_kernel_class class[MOST_RULES];
	int count;
} rule;
static pthread_once_t compiled = PTHREAD_ONCE_INIT;

static enum fo_kernel_class class_by_word(const char *word, size_t n)
{
	for (int c = 0; c < FO_K_COUNT; c++)
		if (strlen(fo_kernel_class_name[c]) == n && memcmp(fo_kernel_class_name[c], word, n) == 0)
			return (enum fo_kernel_class)c;
	assert(!"data/kernel_rules.tsv names an unknown class");
	return FO_K_OTHER;
}

/* ASCII only, whatever the locale. Rules and names are both brought to lower case: REG_ICASE takes more than twice the
 * time. */
static void lower(char *out, const char *in, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = in[i] >= 'A' && in[i] <= 'Z' ? (char)(in[i] - 'A' + 'a') : in[i];
	out[n] = '\0';
}

/* The table is part of the program: a mistake in it is a bug of ours, which the tests hold. */
static void compile(void)
{
	char pattern[2048];
	bool header = true;
	for (const char *line = table; *line; line = strchr(line, '\n') + 1) {
		if (*line == '#')
			continue;
		if (header) {
			header = false;
			continue;
		}
		const char *tab = strchr(line, '\t');
		const char *end = strchr(tab + 1, '\t');
		size_t n = (size_t)(end - tab - 1);
		assert(n < sizeof(pattern) && rule.count < MOST_RULES);
		lower(pattern, tab + 1, n);
		rule.class[rule.count] = class_by_word(line, (size_t)(tab - line));
		int failed = regcomp(&rule.regex[rule.count], pattern, REG_EXTENDED | REG_NOSUB);
		assert(failed == 0);
		(void)failed;
		rule.count++;
	}
}

/* Hides the library's own name, which does not tell what a kernel does: most of FBGEMM's are lookups, no products. */
static void blank_library(char *text)
{
	static const char library[] = "fbgemm";
	for (char *at = text; (at = strstr(at, library)) != NULL; at += sizeof(library) - 1)
		memset(at, '_', sizeof(library) - 1);
}

/* Where the list of parameters of "void f<4>(float*, std::array<char*, 3ul>)" begins: at the parenthesis that the last
 * one closes. A name without one, and one that is nothing else, is all name. */
static size_t name_length(const char *text, size_t n)
{
	int depth = 0;
	if (n >= 3 && memcmp(text + n - 3, ".kd", 3) == 0) /* AMD's kernel descriptor */
		n -= 3;
	for (size_t i = n; i > 0 && text[n - 1] == ')'; i--) {
		depth += (text[i - 1] == ')') - (text[i - 1] == '(');
		if (depth == 0)
			return i > 1 ? i - 1 : n;
	}
	return n;
}

static enum fo_kernel_class first_rule(const char *text)
{
	for (int i = 0; i < rule.count; i++)
		if (regexec(&rule.regex[i], text, 0, NULL, 0) == 0)
			return rule.class[i];
	return FO_K_OTHER;
}

/* The function's own name says what it does; its parameters' types only where the name says nothing. */
static enum fo_kernel_class match(const char *name)
{
	char text[LONGEST_NAME + 1];
	size_t n = strnlen(name, LONGEST_NAME);
	lower(text, name, n);
	blank_library(text);
	size_t own = name_length(text, n);
	char next = text[own];
	text[own] = '\0';
	enum fo_kernel_class class = first_rule(text);
	text[own] = next;
	return class == FO_K_OTHER && next ? first_rule(text) : class;
}

/* Names seen before. A job's ranks have the same kernels, and forty expressions over a long name take tens of
 * microseconds. */
static struct {
	struct fo_trace_texts *names;
	uint8_t class[MOST_NAMES]; /* 1 + the class; 0: not known yet */
	pthread_mutex_t lock;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The name's place in seen.class, which `class` is written to unless it is 0; the place's value. */
static uint8_t look_up(const char *name, uint8_t class)
{
	pthread_mutex_lock(&seen.lock);
	if (!seen.names)
		seen.names = fo_trace_texts_new();
	if (fo_trace_texts_count(seen.names) == MOST_NAMES) {
		fo_trace_texts_free(seen.names);
		seen.names = fo_trace_texts_new();
		memset(seen.class, 0, sizeof(seen.class));
	}
	uint8_t *at = &seen.class[fo_trace_texts_add(seen.names, name, strlen(name))];
	class = *at = class ? class : *at;
	pthread_mutex_unlock(&seen.lock);
	return class;
}

enum fo_kernel_class fo_kernel_class_of(const char *name)
{
	pthread_once(&compiled, compile);
	if (strlen(name) > LONGEST_NAME)
		return match(name);
	uint8_t class = look_up(name, 0);
	if (!class) /* outside the lock: threads that meet the same new name at once all work it out */
		class = look_up(name, (uint8_t)(1 + match(name)));
	return (enum fo_kernel_class)(class - 1);
}
