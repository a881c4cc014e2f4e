/* A checkpoint that all ranks of a team write beside what they do next. */
#ifndef FO_TESTS_SUPPORT_KEEP_BESIDE_H
#define FO_TESTS_SUPPORT_KEEP_BESIDE_H

#include "train/team.h"

/* Begins it, in a folder that it makes: step 1. own: rank 0's, opened by fo_keep_init. */
void keep_beside_begin(struct fo_team *t, struct fo_keep *own, const char *dir);
/* Ends it; fails the test unless it is whole. */
void keep_beside_end(struct fo_team *t, struct fo_keep *own, const char *dir);

#endif
