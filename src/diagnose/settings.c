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

static bool is(const char *field, int len, const char *text) { return strlen(text) == (size_t)len && memcmp(field, text, (size_t)len) == 0; }

/* Compute capability 8.0 is the first of NVIDIA's with bf16 matrix units, 8.9 the first with fp8 (CUDA C++ programming guide, compute
 * capabilities); AMD's CDNA has bf16 from the first, fp8 from gfx940 (9.4) on. */
static bool holds(const char *when, int len, const struct fo_facts *f, const struct fo_pipeline *p)
{
	bool bf16 = f->amd || f->capability >= 80, single = f->fp32_product_share > 0.5;
	bool eager_optimizer = (f->optimizer_foreach || f->optimizer_loop) && !f->optimizer_fused;
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
		{ "compiled_no_graphs", f->compiled && !f->graphs },
		{ "no_graphs", !f->graphs },
		{ "optimizer_not_fused", eager_optimizer },
		{ "eager_norm", f->norm_written_out && !f->compiled },
		{ "ddp", f->ddp },
		{ "fsdp", f->fsdp },
		{ "moe", f->moe },
		{ "pipeline", p->stages > 1 },
		{ "nccl", f->nccl },
		{ "nvidia", f->nvidia },
		{ "culprit_loads", f->culprit == FO_CULPRIT_LOADS },
		{ "culprit_launches", f->culprit == FO_CULPRIT_LAUNCHES && !f->compiled },
		{ "culprit_waits", f->culprit == FO_CULPRIT_WAITS },
		{ "culprit_host", f->culprit == FO_CULPRIT_HOST },
		{ "culprit_computes", f->culprit == FO_CULPRIT_COMPUTES },
		{ "fp32_bf16_capable", single && bf16 },
		{ "fp32_bf16_incapable", single && !bf16 },
		{ "bf16_capable", bf16 },
		{ "bf16_incapable", !bf16 },
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

static int add(struct fo_finding *f, const char *finding, const char *framework, const struct fo_facts *facts, const struct fo_pipeline *p)
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
		struct fo_setting *s = &f->setting[f->settings++];
		snprintf(s->framework, sizeof(s->framework), "%s", framework);
		snprintf(s->key, sizeof(s->key), "%.*s", len[KEY], field[KEY]);
		snprintf(s->now, sizeof(s->now), "%.*s", len[NOW], field[NOW]);
		snprintf(s->proposed, sizeof(s->proposed), "%.*s%s", len[PROPOSED], field[PROPOSED],
			 facts->before_pytorch_2 && needs_pytorch_2(s->key) ? "; needs PyTorch 2" : "");
		snprintf(s->paste, sizeof(s->paste), "%.*s", len[PASTE], field[PASTE]);
		added++;
	}
	return added;
}

void fo_settings_add(struct fo_finding *f, const char *finding, const struct fo_facts *facts, const struct fo_pipeline *p)
{
	if (add(f, finding, facts->framework, facts, p) == 0 && strcmp(facts->framework, "PyTorch") != 0)
		add(f, finding, "PyTorch", facts, p);
	add(f, finding, "NCCL", facts, p);
	add(f, finding, "nvidia-smi", facts, p);
}
