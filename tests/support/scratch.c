#include "support/scratch.h"

#include "base/fs.h"

#include <stdlib.h>

char fo_scratch[] = "scratch.XXXXXX";

int scratch_make(void **state)
{
	(void)state;
	return mkdtemp(fo_scratch) ? 0 : -1;
}

int scratch_remove(void **state)
{
	(void)state;
	return fo_fs_remove_tree(fo_scratch) == FO_OK ? 0 : -1;
}
