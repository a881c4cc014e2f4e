/* How a process learns from its launcher which rank it is (fo_comm_launched), and what is said where there
 * is no MPI plugin. */
#include "comm/mpi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const names[] = { "OMPI_COMM_WORLD_SIZE",
				     "OMPI_COMM_WORLD_RANK",
				     "OMPI_COMM_WORLD_LOCAL_RANK",
				     "OMPI_COMM_WORLD_LOCAL_SIZE",
				     "PMI_SIZE",
				     "PMI_RANK",
				     "MPI_LOCALRANKID",
				     "MPI_LOCALNRANKS",
				     "SLURM_NTASKS",
				     "SLURM_STEP_NUM_TASKS",
				     "SLURM_LOCALID",
				     "SLURM_NTASKS_PER_NODE",
				     "PMIX_RANK",
				     "PMIX_SIZE" };

struct variable {
	const char *name, *value;
};
static void set(const struct variable *v, int n)
{
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		unsetenv(names[i]);
	for (int i = 0; i < n; i++)
		setenv(v[i].name, v[i].value, 1);
}

static void expect(const struct variable *v, int n, const char *by, int rank, int ranks, int local_rank,
		   int local_ranks)
{
	struct fo_comm_launch l;
	set(v, n);
	assert_int_equal(fo_comm_launched(&l), FO_OK);
	assert_true(by ? l.by && !strcmp(l.by, by) : !l.by);
	assert_int_equal(l.rank, rank);
	assert_int_equal(l.ranks, ranks);
	assert_int_equal(l.local_rank, local_rank);
	assert_int_equal(l.local_ranks, local_ranks);
}

static void test_launchers(void **state)
{
	(void)state;
	const struct variable open_mpi[] = { { "OMPI_COMM_WORLD_SIZE", "8" },
					     { "OMPI_COMM_WORLD_RANK", "5" },
					     { "OMPI_COMM_WORLD_LOCAL_RANK", "1" },
					     { "OMPI_COMM_WORLD_LOCAL_SIZE", "4" },
					     { "PMIX_RANK", "5" },
					     { "SLURM_NTASKS", "2" } };
	const struct variable mpich[] = {
		{ "PMI_SIZE", "3" }, { "PMI_RANK", "2" }, { "MPI_LOCALRANKID", "0" }, { "MPI_LOCALNRANKS", "1" }
	};
	const struct variable slurm[] = {
		{ "SLURM_NTASKS", "4" }, { "SLURM_STEP_NUM_TASKS", "2" }, { "PMIX_RANK", "1" }, { "SLURM_LOCALID", "1" }
	};
	/* A batch script has the number of tasks, too, and is none of them. */
	const struct variable script[] = { { "SLURM_NTASKS", "4" }, { "SLURM_LOCALID", "0" } };
	expect(NULL, 0, NULL, 0, 1, -1, -1);
	expect(open_mpi, 6, "Open MPI", 5, 8, 1, 4);
	expect(mpich, 4, "MPICH", 2, 3, 0, 1);
	expect(slurm, 4, "Slurm", 1, 2, 1, -1);
	expect(script, 2, NULL, 0, 1, -1, -1);
}

static void test_nonsense(void **state)
{
	(void)state;
	struct fo_comm_launch l;
	const struct variable bad[][2] = { { { "PMI_SIZE", "x" }, { "PMI_RANK", "0" } },
					   { { "PMI_SIZE", "0" }, { "PMI_RANK", "0" } },
					   { { "PMI_SIZE", "4" }, { "PMI_RANK", "4" } },
					   { { "PMI_SIZE", "4" }, { "PMI_RANK", "-1" } } };
	for (int i = 0; i < 4; i++) {
		set(bad[i], 2);
		assert_int_equal(fo_comm_launched(&l), FO_EARG);
		assert_non_null(strstr(fo_err_text(), "which MPICH sets"));
	}
	assert_non_null(strstr(fo_err_text(), "PMI_RANK, which MPICH sets, is '-1': expected a number from 0 to 3"));
	set(NULL, 0);
}

static void test_no_plugin(void **state)
{
	(void)state;
	struct fo_comm *c;
	setenv("FLATOUT_MPI_PLUGIN", "/nowhere/libflatout-mpi.so", 1);
	assert_int_equal(fo_comm_mpi_open(NULL, &c), FO_EUNSUPPORTED);
	assert_non_null(
		strstr(fo_err_text(), "FLATOUT_MPI_PLUGIN names '/nowhere/libflatout-mpi.so', which is not there"));
	assert_non_null(strstr(fo_err_hint(), "install Open MPI"));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_launchers), cmocka_unit_test(test_nonsense),
					    cmocka_unit_test(test_no_plugin) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
