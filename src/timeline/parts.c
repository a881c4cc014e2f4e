#include "timeline/parts.h"

const char *const fo_part_words[FO_PART_COUNT] = {
	[FO_PART_MATMUL] = "matmuls",
	[FO_PART_ATTENTION_FORWARD] = "attention forward",
	[FO_PART_ATTENTION_BACKWARD] = "attention backward",
	[FO_PART_ELEMENTWISE] = "norms and elementwise",
	[FO_PART_LOSS] = "loss",
	[FO_PART_OPTIMIZER] = "optimizer",
	[FO_PART_COMMUNICATION] = "exposed communication",
	[FO_PART_DATA] = "waiting for data",
	[FO_PART_UNATTRIBUTED] = "unattributed",
};

const unsigned char fo_part_tone[FO_PART_COUNT] = {
	[FO_PART_MATMUL] = 0,
	[FO_PART_ATTENTION_FORWARD] = 12,
	[FO_PART_ATTENTION_BACKWARD] = 2,
	[FO_PART_ELEMENTWISE] = 10,
	[FO_PART_LOSS] = 19,
	[FO_PART_OPTIMIZER] = 5,
	[FO_PART_COMMUNICATION] = 6,
	[FO_PART_DATA] = 9,
	[FO_PART_UNATTRIBUTED] = 8,
};
