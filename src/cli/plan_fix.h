/* --fix of flatout plan, on a cluster and on a measured machine. */
#ifndef FO_CLI_PLAN_FIX_H
#define FO_CLI_PLAN_FIX_H

#include "plan/plan.h"

/* Reads "tp=8,pp=4" on top of what is fixed; NULL: nothing. */
FO_CHECKED fo_status fo_cli_plan_fix(const char *fix, struct fo_arena *arena, struct fo_plan_fixed *f);
/* Refuses what --set says of anything that is searched (NAME=VALUE,...; NULL: nothing). */
FO_CHECKED fo_status fo_cli_plan_settable(const char *set, struct fo_arena *arena);

/* Reads the number types of --precision and the formats of --state ("bf16,fp8", "any"; NULL: not given) that are
 * searched: one type alone is the job's. What a framework or a device lacks is refused once both are known. */
struct fo_cli_numbers {
	uint32_t types, formats; /* bits, FO_PLAN_HALF for fp16; 0: not given */
	bool any_type, any_format;
};
FO_CHECKED fo_status fo_cli_plan_numbers(const char *types, const char *formats, struct fo_cli_numbers *out);
/* The place of the type in FO_CLI_TYPES. */
int fo_cli_plan_precision(int type);
FO_CHECKED fo_status fo_cli_plan_take_numbers(const struct fo_cli_numbers *n, struct fo_plan_asked *a);

#endif
