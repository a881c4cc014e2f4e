/* Finds the catalogue row of an accelerator by the name that a driver or a trace gives it. */
#include "hw/catalogue.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { WORDS = 16, WORD = 24 };
struct words {
	char word[WORDS][WORD];
	int n;
};

static void split(struct words *w, const char *text)
{
	w->n = 0;
	while (*text && w->n < WORDS) {
		size_t n = 0;
		while (isalnum((unsigned char)text[n]))
			n++;
		if (n == 0) {
			text++;
			continue;
		}
		snprintf(w->word[w->n++], WORD, "%.*s", (int)(n < WORD ? n : WORD - 1), text);
		text += n;
	}
}

static bool contains(const struct words *w, const char *word)
{
	for (int i = 0; i < w->n; i++)
		if (strcasecmp(w->word[i], word) == 0)
			return true;
	return false;
}

/* "80GB": memory; its figure is compared as bytes where the trace has them. */
static bool is_memory(const char *word)
{
	size_t n = strspn(word, "0123456789");
	return n > 0 && strcasecmp(word + n, "GB") == 0;
}

/* The form that a word names, in the vendors' spellings; NULL: none. SXM2, SXM4 and SXM5 are one form, the chip
 * distinguishes them; NVL is a pair of boards, NVL72 a rack. */
static const char *form_of(const char *word)
{
	static const char *const form[] = { "SXM", "PCIe", "NVL", "HGX", "DGXS" };
	if (strncasecmp(word, "NVL", 3) == 0 && word[3])
		return "HGX";
	for (size_t i = 0; i < sizeof(form) / sizeof(*form); i++)
		if (strncasecmp(word, form[i], strlen(form[i])) == 0)
			return form[i];
	return NULL;
}

static const char *form_in(const struct words *w)
{
	for (int i = 0; i < w->n; i++)
		if (form_of(w->word[i]))
			return form_of(w->word[i]);
	return NULL;
}

/* Words that make another product of a name that is otherwise the same: RTX 4090 D, RTX 4090 Laptop GPU, a slice of an
 * A100. */
static bool another_product(const struct words *name, const struct words *row)
{
	static const char *const word[] = { "D", "Ti", "SUPER", "Laptop", "Max", "MIG", "GRID", "vGPU", "Mobile" };
	for (size_t i = 0; i < sizeof(word) / sizeof(*word); i++)
		if (contains(name, word[i]) && !contains(row, word[i]))
			return true;
	return false;
}

static bool fits(const struct fo_device *d, const struct words *name, int32_t sm_count, int64_t memory_bytes)
{
	struct words row;
	split(&row, d->name);
	for (int i = 0; i < row.n; i++)
		if (!is_memory(row.word[i]) && !form_of(row.word[i]) && !contains(name, row.word[i]))
			return false;
	if (another_product(name, &row))
		return false;
	const char *mine = form_in(&row), *its = form_in(name);
	/* A DGX Station's V100 runs at the SXM2's clocks (NVIDIA DGX Station data sheet: 500 TFLOP/s of four). */
	if (its && strcmp(its, "DGXS") == 0)
		its = "SXM";
	/* NVIDIA's boards for slots have their form in their name ("NVIDIA H100 PCIe", "NVIDIA H100 NVL"), modules may
	 * not ("NVIDIA H100 80GB HBM3", "NVIDIA H200"). */
	if (mine && !its && (strcmp(mine, "PCIe") == 0 || strcmp(mine, "NVL") == 0))
		return false;
	if (mine && its && strcmp(mine, its) != 0 && strcmp(mine, "HGX") != 0)
		return false;
	if (sm_count > 0 && !isnan(d->units) && (double)sm_count != d->units)
		return false;
	/* The memory's size does not change the peak, but its bandwidth: rows that differ in memory alone are
	 * distinguished by size. Programs see a little less, or in GiB a little more, than the label says. */
	if (memory_bytes > 0 && !isnan(d->memory_gb)) {
		double ratio = (double)memory_bytes / (d->memory_gb * 1e9);
		return ratio > 0.85 && ratio < 1.15;
	}
	return true;
}

const struct fo_device *fo_device_match(const struct fo_catalogue *c, const char *name, int32_t sm_count,
					int64_t memory_bytes)
{
	struct words words;
	const struct fo_device *found = NULL;
	split(&words, name);
	for (size_t i = 0; i < c->count; i++) {
		if (!fits(&c->device[i], &words, sm_count, memory_bytes))
			continue;
		for (int p = 0; found && p < FO_PREC_COUNT; p++)
			if (!(found->dense[p] == c->device[i].dense[p] ||
			      (isnan(found->dense[p]) && isnan(c->device[i].dense[p]))))
				return NULL;
		/* Among rows with one peak, the row with the slower memory wins: an attainable rate that is too low is
		 * better than one that is too high. */
		if (!found || c->device[i].memory_tb_s < found->memory_tb_s)
			found = &c->device[i];
	}
	return found;
}
