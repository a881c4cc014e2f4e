/* Names, frameworks' habits, constants: the tables of the .def files. */
#include "predict/predict_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

const char *const fo_predict_type_name[FO_PREDICT_TYPES] = { "bf16", "fp8", "mxfp8", "fp4", "tf32", "fp32" };
/* An update reads a gradient (4 bytes), master and moments and writes them and a weight of 2: 30 bytes in fp32. The
 * scales of 8 bits are 4 bytes for 256. */
#define SCALED (1 + 4 / 256.)
#define MOVED(read, written) ((4 + (read) + (written)) / 30.)
const struct fo_predict_format_row fo_predict_format_row[FO_PREDICT_FORMATS] = {
	[FO_PREDICT_FORMAT_JOB] = { "", "as the job states", 0, 0, 0, 1, true },
	[FO_PREDICT_FORMAT_FP32] = { "fp32", "masters and moments in fp32", 0, 4, 4, 1, true },
	[FO_PREDICT_FORMAT_SPLIT] = { "split", "split masters", 0, 2, 4, MOVED(12, 12), true },
	[FO_PREDICT_FORMAT_BF16] = { "bf16", "moments in bf16", 0, 4, 2, MOVED(8, 10), false },
	[FO_PREDICT_FORMAT_8BIT] = { "8bit", "moments in 8 bits", 0, 4, SCALED, MOVED(6, 8), false },
	[FO_PREDICT_FORMAT_ALL_BF16] = { "all-bf16", "all in bf16, no masters", 2, 0, 2, MOVED(6, 6), false },
};
const char *const fo_predict_part_name[FO_PREDICT_PARTS] = { "matmul",    "attention", "memory-bound", "loss",
							     "recompute", "tensor",    "context",      "expert",
							     "data",      "sends",     "pipeline",     "optimizer",
							     "host",      "rest" };
const char *const fo_predict_memory_name[FO_PREDICT_MEMORIES] = { "weights", "gradients", "optimizer", "activations",
								  "logits",  "buffers",   "reserve" };
const char *const fo_predict_ground_name[FO_PREDICT_GROUNDS] = { "measured here", "catalogue", "fitted constant",
								 "published figure", "guess" };

const struct fo_predict_style fo_predict_style[FO_PREDICT_STYLES] = {
#define FO_PREDICT_STYLE(id, ...) { __VA_ARGS__ },
#include "predict/styles.def"
#undef FO_PREDICT_STYLE
};
const struct fo_predict_constant_row fo_predict_constant_row[FO_PREDICT_CONSTANTS] = {
#define FO_PREDICT_CONSTANT(id, ...) { #id, __VA_ARGS__ },
#include "predict/constants.def"
#undef FO_PREDICT_CONSTANT
};
const int fo_predict_constant_count = FO_PREDICT_CONSTANTS;
_Static_assert((int)FO_PREDICT_CONSTANTS <= 128, "struct fo_predict_base holds 128 constants");

/* Publishers' factors on speed beside the constants, from the same fit: hardware, clocks, and how a run was timed. */
static const struct {
	const char *publisher;
	double habit;
} habit[] = {
#define FO_PREDICT_HABIT(publisher, factor) { publisher, factor },
#include "predict/habits.def"
#undef FO_PREDICT_HABIT
};

double fo_predict_habit(const char *publisher)
{
	for (size_t i = 0; publisher && i < sizeof habit / sizeof *habit; i++)
		if (!strcmp(habit[i].publisher, publisher))
			return habit[i].habit;
	return 0;
}

void fo_predict_constants(bool fitted, double x[FO_PREDICT_CONSTANTS])
{
	for (int i = 0; i < FO_PREDICT_CONSTANTS; i++)
		x[i] = fitted ? fo_predict_constant_row[i].value : fo_predict_constant_row[i].start;
}

enum fo_predict_ground fo_predict_ground_of(const struct fo_predict_constant_row *r)
{
	if (r->value != r->start)
		return FO_PREDICT_FITTED;
	bool none = strstr(r->origin, "guess") || !strcmp(r->origin, "fitted") || !strcmp(r->origin, "has none");
	return none ? FO_PREDICT_GUESS : FO_PREDICT_PUBLISHED;
}

#define AFTER_FIT 0.5
double fo_predict_spread_of(const struct fo_predict_constant_row *r)
{
	return r->spread * (r->value != r->start ? AFTER_FIT : 1);
}

/* ---- styles ---- */

enum fo_predict_style_id fo_predict_style_of(const char *framework)
{
	char name[128];
	size_t n = 0;
	for (; framework && framework[n] && n + 1 < sizeof name; n++)
		name[n] = (char)tolower((unsigned char)framework[n]);
	name[n] = '\0';
	for (int i = 0; i < FO_PREDICT_STYLES; i++) {
		const char *at = fo_predict_style[i].words;
		while (*at) {
			size_t len = strcspn(at, "|");
			char word[32];
			snprintf(word, sizeof word, "%.*s", (int)len, at);
			if (strstr(name, word))
				return (enum fo_predict_style_id)i;
			at += len + (at[len] == '|');
		}
	}
	return FO_PREDICT_STYLE_EAGER;
}

enum fo_predict_habits fo_predict_habits_of(enum fo_predict_style_id style)
{
	static const char *const family[FO_HABITS] = {
		[FO_MCORE] = "mcore", [FO_MLM] = "mlm",           [FO_MEG22] = "meg22", [FO_EAGER] = "eager",
		[FO_FSDP1] = "fsdp1", [FO_COMPILED] = "compiled", [FO_XLA] = "xla",     [FO_GRAPHS] = "graphs"
	};
	int i = 0;
	while (i < FO_HABITS - 1 && strcmp(family[i], fo_predict_style[style].family))
		i++;
	return (enum fo_predict_habits)i;
}

/* Collected 2026-11 from the tables that are named; rows that contradict themselves, models made easier for speed
 * (MegaScale) and finetuning were left out. What others print by another rule was counted again: ml_dataflow's 66.8 %
 * on an H100 is 59.4 % with causal attention, llm-foundry's 66 % on A100 62.7 %. */
static const struct fo_predict_best best[] = {
	{ "A100", FO_PREDICT_BF16, 0.633, "Llama 3 8B on one A100 80GB at sequence 512, als244/ml_dataflow, 2025" },
	{ "H100", FO_PREDICT_BF16, 0.610, "Qwen2.5 7B on 8 H100 at sequence 1,024, IST-DASLab/llmq, 2025" },
	{ "H200", FO_PREDICT_BF16, 0.610, "Qwen2.5 7B on 8 H100 (the same chip), IST-DASLab/llmq, 2025" },
	{ "H800", FO_PREDICT_BF16, 0.610, "Qwen2.5 7B on 8 H100 (the same chip), IST-DASLab/llmq, 2025" },
	{ "B200", FO_PREDICT_BF16, 0.650, "Llama 3.1 405B on 256 B200, AI-Hypercomputer/gpu-recipes, 2025" },
	{ "GB200", FO_PREDICT_BF16, 0.650,
	  "Llama 3.1 405B on 256 B200 (the same chip), AI-Hypercomputer/gpu-recipes, 2025" },
	{ "GB300", FO_PREDICT_BF16, 0.527, "Llama 3.1 405B on 256 GB300, NVIDIA-NeMo/Megatron-Bridge, 2026" },
	{ "RTX-PRO-6000", FO_PREDICT_BF16, 0.673, "Qwen2.5 14B on 4 GPUs, IST-DASLab/llmq, 2025" },
	{ "RTX-5090", FO_PREDICT_BF16, 0.865, "Llama 3 8B at sequence 512, als244/ml_dataflow, 2025" },
	{ "RTX-4090", FO_PREDICT_BF16, 0.804, "Qwen2.5 3B at sequence 1,024, IST-DASLab/llmq, 2025" },
	{ "TPU-v5p", FO_PREDICT_BF16, 0.692, "MaxText 64B on 64 chips, AI-Hypercomputer/maxtext, 2024-08" },
	{ "TPU-v5e", FO_PREDICT_BF16, 0.590, "MaxText 16B on 256 chips, AI-Hypercomputer/maxtext, 2024-08" },
	{ "TPU-v6e", FO_PREDICT_BF16, 0.470, "Llama 2 70B on 256 chips, AI-Hypercomputer/tpu-recipes, 2025" },
	{ "TPU-v7x", FO_PREDICT_BF16, 0.547, "Llama 3.1 405B, AI-Hypercomputer/tpu-recipes, 2026" },
	{ "H100", FO_PREDICT_FP8, 0.470, "930 of 1,979 TFLOP/s on 512 H200 (the same chip), Nebius" },
	{ "H200", FO_PREDICT_FP8, 0.470, "930 of 1,979 TFLOP/s on 512 H200, Nebius" },
	{ "GB300", FO_PREDICT_FP8, 0.529, "Llama 3.1 405B on 256 GB300, NVIDIA-NeMo/Megatron-Bridge, 2026" },
};

const struct fo_predict_best *fo_predict_best_of(const char *device, enum fo_predict_type type)
{
	if (type == FO_PREDICT_MXFP8)
		type = FO_PREDICT_FP8;
	for (size_t i = 0; i < sizeof best / sizeof *best; i++)
		if (best[i].type == type && !strncmp(device, best[i].begins, strlen(best[i].begins)))
			return &best[i];
	return NULL;
}
