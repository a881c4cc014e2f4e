/* Names in JSON, and words on a terminal, on pages and in comparisons alike. */
#include "diagnose/diagnose.h"

#include <string.h>

const char *const fo_class_words[FO_K_COUNT] = {
	[FO_K_GEMM] = "matmuls",
	[FO_K_GEMM_FP8] = "8 and 4 bit matmuls",
	[FO_K_ATTENTION_FORWARD] = "attention, forward",
	[FO_K_ATTENTION_BACKWARD] = "attention, backward",
	[FO_K_CONV] = "convolutions",
	[FO_K_NORM] = "norms",
	[FO_K_OPTIMIZER] = "optimizer",
	[FO_K_LOSS] = "loss",
	[FO_K_SOFTMAX] = "softmax",
	[FO_K_MOE] = "routing of experts",
	[FO_K_ROPE] = "rotary embedding",
	[FO_K_EMBEDDING] = "embedding",
	[FO_K_POOL] = "pooling",
	[FO_K_FUSED] = "compiled, fused",
	[FO_K_CAST] = "casts",
	[FO_K_ELEMENTWISE] = "elementwise",
	[FO_K_COPY] = "copying kernels",
	[FO_K_LAYOUT] = "layout for libraries",
	[FO_K_REDUCE] = "reductions",
	[FO_K_RNG] = "random numbers",
	[FO_K_OTHER] = "not classified",
	[FO_K_COMMUNICATION] = "communication",
	[FO_K_MEMORY] = "copies and fills",
};

const char *const fo_copy_words[FO_COPY_COUNT] = {
	[FO_COPY_NONE] = "fills",        [FO_COPY_H2D] = "host to device",  [FO_COPY_D2H] = "device to host",
	[FO_COPY_D2D] = "on the device", [FO_COPY_P2P] = "between devices", [FO_COPY_OTHER] = "direction not told",
};

#define NAME(id, name, ...) name,
#define WORDS(id, name, words, ...) words,
const char *const fo_idle_name[FO_IDLE_COUNT] = { FO_IDLE_LIST(NAME) };
const char *const fo_idle_words[FO_IDLE_COUNT] = { FO_IDLE_LIST(WORDS) };
const char *const fo_host_part_name[FO_HOST_PART_COUNT] = { FO_HOST_PART_LIST(NAME) };
const char *const fo_host_part_words[FO_HOST_PART_COUNT] = { FO_HOST_PART_LIST(WORDS) };
const char *const fo_finding_kind_name[FO_FIND_COUNT] = { FO_FIND_LIST(NAME) };
const char *const fo_finding_kind_words[FO_FIND_COUNT] = { FO_FIND_LIST(WORDS) };
const char *const fo_judgement_name[FO_JUDGED_COUNT] = { FO_JUDGED_LIST(NAME) };

const char *const fo_wait_words = "waiting for a late rank";
const char *const fo_bubble_words = "waiting for another stage, the bubble";
const char *const fo_transfer_words = "transfer", *const fo_wait_or_transfer_words = "waiting or transfer";

const char *fo_row_words(const char *row)
{
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
		if (!strcmp(row, fo_kernel_class_name[i]))
			return fo_class_words[i];
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		if (!strcmp(row, fo_idle_name[i]))
			return fo_idle_words[i];
	if (!strcmp(row, "late_begin"))
		return "a late begin";
	if (!strcmp(row, "exposed_mem"))
		return "exposed copies";
	return !strcmp(row, "exposed_transfer") ? fo_transfer_words : row;
}
