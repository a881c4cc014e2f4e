/* A job in one line of "key=value" words, for bench_job and the test of published figures: the settings of
 * src/job/settings.def in lower case, "form", "cluster", "net_gbit", "memory_gb", "memory_tb_s", "peak_tflops" (of
 * bf16; fp8 in proportion), "id", the fields of struct fo_model as "m.layers", and what-ifs as "change.KEY=NUMBER". */
#ifndef BENCH_JOB_LINE_H
#define BENCH_JOB_LINE_H

#include "job/worth.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
	const char *name;
	size_t offset;
} whole[] = {
#define F(f)                                     \
	{                                        \
#f, offsetof(struct fo_model, f) \
	}
	F(layers),       F(hidden),         F(heads),   F(kv_heads),       F(head_dim),       F(ffn),
	F(vocab),        F(sliding_window), F(experts), F(experts_active), F(shared_experts), F(expert_ffn),
	F(dense_layers), F(q_lora),         F(kv_lora), F(qk_nope_dim),    F(qk_rope_dim),    F(v_dim),
#undef F
};
static const struct {
	const char *name;
	size_t offset;
} yes_no[] = {
#define F(f)                                     \
	{                                        \
#f, offsetof(struct fo_model, f) \
	}
	F(tied), F(gated), F(attention_bias), F(mlp_bias), F(output_bias), F(norm_bias), F(learned_position),
#undef F
};

static int setting(const char *key)
{
	char upper[64];
	size_t n = 0;
	for (; key[n] && n + 1 < sizeof upper; n++)
		upper[n] = (char)toupper((unsigned char)key[n]);
	upper[n] = '\0';
	for (int s = 0; s < FO_JOB_SETTINGS; s++)
		if (!strcmp(upper, fo_job_setting_row[s].id))
			return s;
	return -1;
}

struct line {
	struct fo_job job;
	struct fo_job_form form;
	struct fo_cluster cluster;
	struct fo_device device;
	struct fo_arena arena;
	struct fo_job_change change[8];
	int changes;
	const char *id;
};

static int model_word(struct fo_model *m, const char *key, const char *value)
{
	if (!strcmp(key, "family"))
		m->family = (enum fo_family)atoi(value);
	for (size_t i = 0; i < sizeof whole / sizeof *whole; i++)
		if (!strcmp(key, whole[i].name))
			*(int64_t *)((char *)m + whole[i].offset) = atoll(value);
	for (size_t i = 0; i < sizeof yes_no / sizeof *yes_no; i++)
		if (!strcmp(key, yes_no[i].name))
			*(bool *)((char *)m + yes_no[i].offset) = atoi(value) != 0;
	return 0;
}

/* 0, or 1 with a line on standard error. */
static int word(struct line *l, const char *key, const char *value, const struct fo_catalogue *catalogue)
{
	int s;
	if (!strcmp(key, "id"))
		l->id = value;
	else if (!strcmp(key, "form")) {
		l->form.id = l->form.name = value;
		l->job.form = &l->form;
	} else if (!strcmp(key, "cluster")) {
		if (fo_cluster_parse(value, catalogue, &l->cluster, &l->arena) != FO_OK)
			return fprintf(stderr, "%s\n", fo_err_text()), 1;
		l->device = *l->cluster.device;
		l->cluster.device = &l->device;
	} else if (!strcmp(key, "net_gbit"))
		l->cluster.net_gb_s = fo_range(atof(value) / 8);
	else if (!strcmp(key, "memory_gb"))
		l->device.memory_gb = atof(value), l->device.memory_usable_gb = NAN;
	else if (!strcmp(key, "peak_tflops")) {
		double by = atof(value) / l->device.dense[FO_PREC_BF16];
		l->device.dense[FO_PREC_BF16] *= by;
		l->device.dense[FO_PREC_FP8] *= by;
	} else if (!strcmp(key, "memory_tb_s"))
		l->device.memory_tb_s = atof(value);
	else if (!strncmp(key, "m.", 2))
		return l->job.has_model = true, model_word(&l->job.model, key + 2, value);
	else if (!strncmp(key, "change.", 7) && (s = setting(key + 7)) >= 0)
		l->change[l->changes++] = (struct fo_job_change){ (enum fo_job_setting)s, atof(value) };
	else if ((s = setting(key)) >= 0) {
		fo_job_set(&l->job, (enum fo_job_setting)s, atof(value));
		if (fo_job_setting_row[s].kind == FO_JOB_TEXT)
			l->job.value[s].text = value;
	} else
		return fprintf(stderr, "'%s' is no setting\n", key), 1;
	return 0;
}

/* Words are separated by blanks and tabs; text is cut into them and must outlive *l. */
static int line_read(struct line *l, char *text, const struct fo_catalogue *catalogue)
{
	int bad = 0;
	char *save;
	*l = (struct line){ .id = "" };
	fo_job_init(&l->job);
	for (char *w = strtok_r(text, " \t\n", &save); w; w = strtok_r(NULL, " \t\n", &save)) {
		char *value = strchr(w, '=');
		if (!value)
			continue;
		*value = '\0';
		bad |= word(l, w, value + 1, catalogue);
	}
	return bad;
}

static void line_fini(struct line *l)
{
	fo_job_fini(&l->job);
	fo_arena_fini(&l->arena);
}

#endif
