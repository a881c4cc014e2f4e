/* --fix of flatout plan, on a cluster and on a measured machine. */
#ifndef FO_CLI_PLAN_FIX_H
#define FO_CLI_PLAN_FIX_H

#include "plan/plan.h"

/* Reads "tp=8,pp=4" on top of what is fixed; NULL: nothing. */
FO_CHECKED fo_status fo_cli_plan_fix(const char *fix, struct fo_arena *arena, struct fo_plan_fixed *f);
/* Refuses what --set says of anything that is searched (NAME=VALUE,...; NULL: nothing). */
FO_CHECKED fo_status fo_cli_plan_settable(const char *set, struct fo_arena *arena);

#endif
