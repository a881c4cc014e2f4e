/* Commands that a launcher started several times. */
#include "cli/cli.h"

#include "comm/mpi.h"

fo_status fo_cli_one_process(const struct fo_command *c, bool *silent)
{
	struct fo_comm_launch l;
	if (c->processes)
		return FO_OK;
	if (fo_comm_launched(&l) != FO_OK) { /* variables that make no sense are no launcher's */
		fo_err_clear();
		return FO_OK;
	}
	if (l.ranks == 1)
		return FO_OK;
	*silent = l.rank > 0;
	return fo_hint(fo_fail(FO_EARG, "'%s' is done by one process, and %s has started %d", c->name, l.by, l.ranks),
		       "start it without that; 'train' and 'calibrate' are for several processes");
}
