/* flatout compare on plans: what the two ways to name them share. */
#ifndef FO_CLI_COMPARE_PLANS_H
#define FO_CLI_COMPARE_PLANS_H

#include "cli/cost.h"
#include "plan/file.h"

enum { FO_CLI_SIDES = 4 };
struct fo_cli_plans {
	struct fo_arena arena;
	struct fo_catalogue catalogue;
	int sides;
	struct fo_cli_side {
		const char *name; /* the file, or the cluster as it was named */
		struct fo_plan_file plan;
		struct fo_cli_rates rates;
	} side[FO_CLI_SIDES];
	const char *html;
};
/* Are both paths plans? FO_EARG where one is and the other is something else; what cannot be read is no plan. */
FO_CHECKED fo_status fo_cli_are_plans(const char *const path[2], bool *are);
/* Compares two files. */
FO_CHECKED fo_status fo_cli_compare_plan_files(const struct fo_cli_call *call, const char *const path[2],
					       const struct fo_cli_cost *cost, const char *html);

#endif
