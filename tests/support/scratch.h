/* A folder of the test's own, below the current one: set up and torn down as a group's fixtures. */
#ifndef FO_TESTS_SCRATCH_H
#define FO_TESTS_SCRATCH_H

extern char fo_scratch[]; /* its name, once scratch_make has run */

int scratch_make(void **state);
int scratch_remove(void **state);

#endif
