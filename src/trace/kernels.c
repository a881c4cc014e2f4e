#include "trace/trace.h"

#include "base/mem.h"

#include <assert.h>
#include <pthread.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

const char *const fo_kernel_class_name[FO_K_COUNT] = {
	[FO_K_GEMM] = "gemm",
	[FO_K_GEMM_FP8] = "gemm_fp8",
	[FO_K_ATTENTION_FORWARD] = "attention_forward",
	[FO_K_ATTENTION_BACKWARD] = "attention_backward",
	[FO_K_CONV] = "conv",
	[FO_K_NORM] = "norm",
	[FO_K_OPTIMIZER] = "optimizer",
	[FO_K_LOSS] = "loss",
	[FO_K_SOFTMAX] = "softmax",
	[FO_K_MOE] = "moe",
	[FO_K_ROPE] = "rope",
	[FO_K_EMBEDDING] = "embedding",
	[FO_K_POOL] = "pool",
	[FO_K_FUSED] = "fused",
	[FO_K_CAST] = "cast",
	[FO_K_ELEMENTWISE] = "elementwise",
	[FO_K_COPY] = "copy",
	[FO_K_LAYOUT] = "layout",
	[FO_K_REDUCE] = "reduce",
	[FO_K_RNG] = "rng",
	[FO_K_OTHER] = "other",
	[FO_K_COMMUNICATION] = "communication",
	[FO_K_MEMORY] = "memory",
};

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
	struct entry {
		char *name;
		uint64_t hash;
		enum fo_kernel_class class;
	} * slot;
	size_t count, cap; /* cap: a power of two, at least twice count */
	pthread_mutex_t lock;
} seen = { .lock = PTHREAD_MUTEX_INITIALIZER };

static struct entry *find(const char *name, uint64_t hash)
{
	size_t i = hash & (seen.cap - 1);
	while (seen.slot[i].name && (seen.slot[i].hash != hash || strcmp(seen.slot[i].name, name) != 0))
		i = (i + 1) & (seen.cap - 1);
	return &seen.slot[i];
}

static void grow(void)
{
	struct entry *old = seen.slot;
	size_t n = seen.cap;
	seen.cap = n ? 2 * n : 1024;
	seen.slot = fo_xmalloc(seen.cap * sizeof(*seen.slot));
	for (size_t i = 0; i < n; i++)
		if (old[i].name)
			*find(old[i].name, old[i].hash) = old[i];
	free(old);
}

enum fo_kernel_class fo_kernel_class_of(const char *name)
{
	pthread_once(&compiled, compile);
	size_t n = strlen(name);
	uint64_t hash = XXH3_64bits(name, n);
	pthread_mutex_lock(&seen.lock);
	if (2 * (seen.count + 1) > seen.cap)
		grow();
	struct entry *e = find(name, hash);
	bool known = e->name != NULL;
	enum fo_kernel_class class = e->class;
	pthread_mutex_unlock(&seen.lock);
	if (known)
		return class;
	class = match(name); /* outside the lock: threads that meet the same new name at once all work it out */
	pthread_mutex_lock(&seen.lock);
	if (2 * (seen.count + 1) > seen.cap)
		grow();
	e = find(name, hash);
	if (!e->name && seen.count < MOST_NAMES && n <= LONGEST_NAME) {
		*e = (struct entry){ .name = fo_xstrdup(name), .hash = hash, .class = class };
		seen.count++;
	}
	pthread_mutex_unlock(&seen.lock);
	return class;
}
