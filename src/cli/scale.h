/* flatout scale: what was found, for the files that print it. */
#ifndef FO_CLI_SCALE_H
#define FO_CLI_SCALE_H

#include "cli/goodput.h"
#include "cli/plan.h"
#include "plan/scale.h"

struct fo_cli_scaled {
	const struct fo_cli_planned *planned; /* what was asked */
	struct fo_cli_goodput given;
	struct fo_scale_asked ask;
	struct fo_scale strong, weak; /* points 0: not asked for */
	/* USD of a device and hour, W of a device, of the building over the devices. rent: not known, or with where it
	 * is from. */
	struct fo_range rent, watts, pue;
	const char *rent_from;
	bool watts_given; /* else watts are the device's limit: an upper bound */
};
/* The job and its cluster, as every size has them; sizes and goodput are the caller's. */
void fo_cli_scale_ask(const struct fo_cli_planned *p, struct fo_scale_asked *out);
void fo_cli_scaled_doc(struct fo_doc *d, const struct fo_cli_scaled *s);
void fo_cli_scaled_json(struct fo_json *j, const struct fo_cli_scaled *s);

/* Pictures for a page: MFU and goodput over the number of devices. Either may be NULL, or have no points. */
void fo_cli_scale_picture(struct fo_doc *d, const struct fo_scale *strong, const struct fo_scale *weak);

#endif
