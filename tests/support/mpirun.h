/* A test that starts itself as processes, by the mpirun of the MPI that the plugin was made for. */
#ifndef FO_TESTS_SUPPORT_MPIRUN_H
#define FO_TESTS_SUPPORT_MPIRUN_H

enum { MPIRUN_SKIPPED = 77 };
/* Runs `program` as so many ranks, more than processors if need be, and gives its exit status. MPIRUN_SKIPPED: there is
 * no plugin or no mpirun, and why was printed. */
int mpirun_self(char *program, int ranks);

#endif
