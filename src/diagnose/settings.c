/* The table of settings, and which of its rows a trace calls for. */
#include "diagnose/findings_int.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const char table[] = {
#include "settings.inc"
	, '\0'
};

enum { COLUMNS = 9 };
enum column { FINDING, FRAMEWORK, KEY, NOW, PROPOSED, PASTE, WHEN };

/* The columns of a line, each with its length. */
static void cut(const char *line, const char *field[COLUMNS], int len[COLUMNS])
{
	const char *end = strchr(line, '\n');
	for (int i = 0; i < COLUMNS; i++) {
		const char *tab = memchr(line, '\t', (size_t)(end - line));
		const char *stop = tab ? tab : end;
		field[i] = line;
		len[i] = (int)(stop - line);
		line = tab ? tab + 1 : end;
	}
}

static bool is(const char *field, int len, const char *text)
{
	return strlen(text) == (size_t)len && memcmp(field, text, (size_t)len) == 0;
}

/* A setting for less than a tenth of the communication's time is not worth changing. */
static bool much(const struct fo_comm_kinds *x, enum fo_comm_kind kind) { return 10 * x->ns[kind] > x->all_ns; }

/* Does DDP reduce in buckets, and in more than two, so that larger ones would make fewer? */
static bool buckets(const struct fo_facts *f)
{
	return f->ddp && f->comm.reduces > 2 && 2 * f->comm.ns[FO_COMM_ALL_REDUCE] > f->comm.all_ns;
}

/* Compute capability 8.0 is the first of NVIDIA's with bf16 matrix units, 8.9 the first with fp8 (CUDA C++ programming
 * guide, compute capabilities); AMD's CDNA has bf16 from the first, fp8 from gfx940 (9.4) on. */
static bool holds(const char *when, int len, const struct fo_facts *f, const struct fo_pipeline *p)
{
	bool device = f->amd || f->capability > 0, bf16 = f->amd || f->capability >= 80,
	     single = f->fp32_product_share > 0.5;
	bool eager_optimizer = fo_optimizer_is_eager(f);
	const struct fo_comm_kinds *x = &f->comm;
	bool reduces = much(x, FO_COMM_ALL_REDUCE) || much(x, FO_COMM_REDUCE_SCATTER),
	     gathers = much(x, FO_COMM_ALL_GATHER);
	const struct {
		const char *name;
		bool value;
	} known[] = {
		{ "always", true },
		{ "loader_inline", f->loader_inline },
		{ "loader_workers", f->loader && !f->loader_inline },
		{ "pageable_copies", f->pageable },
		{ "blocking_copies", f->blocking_copies },
		{ "sync_calls", f->sync_calls },
		{ "alloc_calls", f->alloc_calls },
		{ "not_compiled", !f->compiled },
		{ "merges_not_compiled", f->merges && !f->compiled },
		{ "compiled_no_graphs", f->compiled && !f->graphs },
		{ "no_graphs", !f->graphs },
		{ "optimizer_not_fused", eager_optimizer && f->optimizer[0] && fo_optimizer_can_fuse(f) },
		{ "optimizer_loop", f->optimizer_loop && !fo_optimizer_can_fuse(f) },
		{ "optimizer_unnamed", eager_optimizer && !f->optimizer[0] },
		{ "ddp_buckets", buckets(f) },
		{ "transformers", f->transformers },
		{ "loss", f->loss },
		{ "no_wrapper", !f->ddp && !f->fsdp },
		{ "ddp_reduces", f->ddp && reduces },
		{ "fsdp_gathers", f->fsdp && gathers },
		{ "accumulates", (f->ddp || f->fsdp) && reduces },
		{ "tensor_parallel", x->tensor_parallel },
		{ "reduces", reduces },
		{ "gathers", gathers },
		{ "uploads", f->uploads },
		{ "offloads", f->offloads },
		{ "gc", f->gc },
		{ "unseen_python", !f->gc && !f->saves && !f->frames },
		{ "eager_norm", f->norm_written_out && !f->compiled },
		{ "ddp", f->ddp },
		{ "fsdp", f->fsdp },
		{ "moe", f->moe },
		{ "pipeline", p->stages > 1 },
		{ "hidden_ragged", f->hidden_ragged },
		{ "tokens_ragged", f->tokens_ragged },
		{ "nccl", f->nccl },
		{ "nvidia", f->nvidia },
		{ "culprit_loads", f->culprit == FO_CULPRIT_LOADS },
		{ "culprit_launches", f->culprit == FO_CULPRIT_LAUNCHES && !f->compiled },
		{ "culprit_waits", f->culprit == FO_CULPRIT_WAITS },
		{ "culprit_host", f->culprit == FO_CULPRIT_HOST },
		{ "culprit_computes", f->culprit == FO_CULPRIT_COMPUTES },
		{ "fp32_bf16_capable", single && bf16 },
		{ "fp32_bf16_incapable", single && device && !bf16 },
		{ "bf16_capable", bf16 },
		{ "bf16_incapable", device && !bf16 },
		{ "hopper", f->nvidia && f->capability / 10 == 9 },
		{ "cudnn_attention", f->nvidia && f->capability >= 90 },
		{ "amd", f->amd },
		{ "fp8_capable", f->amd ? f->capability >= 94 : f->capability >= 89 },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (is(when, len, known[i].name))
			return known[i].value;
	assert(!"data/settings.tsv has an unknown test");
	return false;
}

/* torch.compile came with PyTorch 2.0, and the fused update of most optimizers with it or later (release notes). */
static bool needs_pytorch_2(const char *key) { return strncmp(key, "torch.compile", 13) == 0 || strstr(key, "fused="); }

static const struct fo_vendor_words *words_of(const struct fo_facts *f)
{
	return f->words ? f->words : fo_vendor_words(FO_VENDOR_NVIDIA);
}

static void replace(char *text, size_t size, const char *from, const char *to)
{
	char whole[256];
	const char *at = strstr(text, from);
	if (!at)
		return;
	snprintf(whole, sizeof(whole), "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
	snprintf(text, size, "%s", whole);
}

/* Replaces NVIDIA's words of the table by those of the device's maker. */
static void in_words_of(const struct fo_vendor_words *to, char *text, size_t size)
{
	const struct fo_vendor_words *from = fo_vendor_words(FO_VENDOR_NVIDIA);
	const char *word[][2] = { { from->graphs, to->graphs },
				  { from->units, to->units },
				  { from->links, to->links },
				  { from->type, to->type },
				  { from->allocator, to->allocator } };
	for (size_t i = 0; to != from && i < sizeof(word) / sizeof(*word); i++)
		replace(text, size, word[i][0], word[i][1]);
}

/* The present value; for a program that is compiled in part it says which part. */
static void fill_now(struct fo_setting *s, const char *now, int len, const struct fo_facts *facts)
{
	snprintf(s->now, sizeof(s->now), "%.*s", len, now);
	if (strcmp(s->now, "not compiled") == 0 && facts->compiled_share > 0)
		snprintf(s->now, sizeof(s->now), "compiled in part: %.2g %% of what it could merge",
			 100 * facts->compiled_share);
}

static int add(struct fo_finding *f, const char *finding, const char *framework, const struct fo_facts *facts,
	       const struct fo_pipeline *p)
{
	int added = 0;
	bool header = true;
	for (const char *line = table; *line; line = strchr(line, '\n') + 1) {
		const char *field[COLUMNS];
		int len[COLUMNS];
		if (*line == '#' || header) {
			header = *line == '#' && header;
			continue;
		}
		cut(line, field, len);
		if (!is(field[FINDING], len[FINDING], finding) || !is(field[FRAMEWORK], len[FRAMEWORK], framework) ||
		    !holds(field[WHEN], len[WHEN], facts, p) || f->settings == FO_SETTINGS_MAX)
			continue;
		/* vLLM compiles by itself, and has its own switch for it. */
		if (strcmp(facts->framework, "vLLM") == 0 && strncmp(field[KEY], "torch.compile", 13) == 0)
			continue;
		struct fo_setting *s = &f->setting[f->settings++];
		snprintf(s->framework, sizeof(s->framework), "%s",
			 strcmp(framework, "NCCL") == 0 ? words_of(facts)->collectives : framework);
		snprintf(s->key, sizeof(s->key), "%.*s", len[KEY], field[KEY]);
		fill_now(s, field[NOW], len[NOW], facts);
		snprintf(s->proposed, sizeof(s->proposed), "%.*s%s", len[PROPOSED], field[PROPOSED],
			 facts->before_pytorch_2 && needs_pytorch_2(s->key) ? "; needs PyTorch 2" : "");
		snprintf(s->paste, sizeof(s->paste), "%.*s", len[PASTE], field[PASTE]);
		in_words_of(words_of(facts), s->key, sizeof(s->key));
		in_words_of(words_of(facts), s->proposed, sizeof(s->proposed));
		in_words_of(words_of(facts), s->paste, sizeof(s->paste));
		replace(s->paste, sizeof(s->paste), "OPTIMIZER", *facts->optimizer ? facts->optimizer : "AdamW");
		added++;
	}
	return added;
}

void fo_settings_add(struct fo_finding *f, const char *finding, const struct fo_facts *facts,
		     const struct fo_pipeline *p)
{
	if (add(f, finding, facts->framework, facts, p) == 0 && strcmp(facts->framework, "PyTorch") != 0)
		add(f, finding, "PyTorch", facts, p);
	add(f, finding, "NCCL", facts, p);
	add(f, finding, words_of(facts)->tool, facts, p);
}

/* ---- one constructor each ---- */

/* "DataLoader(dataset, num_workers=4)": the length up to and with the opening bracket; 0: it is no such call. */
static size_t call_of(const char *paste)
{
	size_t n = strlen(paste);
	const char *open = strchr(paste, '(');
	return open && n > 0 && paste[n - 1] == ')' && strchr(open + 1, '(') == NULL ? (size_t)(open - paste) + 1 : 0;
}

/* The named arguments of `from` that `to` does not set already are set there too. */
static void join(struct fo_setting *to, struct fo_setting *from)
{
	char all[2 * sizeof(to->paste)], *argument = from->paste + call_of(from->paste), *rest = NULL;
	from->paste[strlen(from->paste) - 1] = '\0';
	for (argument = strtok_r(argument, ",", &rest); argument; argument = strtok_r(NULL, ",", &rest)) {
		char name[64];
		argument += strspn(argument, " ");
		const char *equals = strchr(argument, '=');
		snprintf(name, sizeof(name), " %.*s=", equals ? (int)(equals - argument) : 0, argument);
		if (!equals || strstr(to->paste, name))
			continue;
		snprintf(all, sizeof(all), "%.*s, %s)", (int)strlen(to->paste) - 1, to->paste, argument);
		if (strlen(all) < sizeof(to->paste))
			snprintf(to->paste, sizeof(to->paste), "%s", all);
	}
	from->paste[0] = '\0';
}

void fo_settings_join(struct fo_finding *f)
{
	for (int i = 0; i < f->settings; i++) {
		size_t same = call_of(f->setting[i].paste);
		for (int k = 0; same > 0 && k < i; k++)
			if (call_of(f->setting[k].paste) == same &&
			    strncmp(f->setting[k].paste, f->setting[i].paste, same) == 0) {
				join(&f->setting[k], &f->setting[i]);
				break;
			}
	}
}
