/* How this process was started, and the plugin that has MPI in it. */
#include "comm/mpi_int.h"

#include "base/library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- launchers ---- */

/* Variables by launcher. A process of one sets all that it has. SLURM_NTASKS alone says nothing: a script of a batch
 * job has it, too; srun --mpi=pmix sets PMIX_RANK beside it. Open MPI's launcher sets PMIX_RANK as well, so it comes
 * first. Read in November 2026 from processes that Open MPI 4.1.4, MPICH 4.0.2 and Slurm 22.05 had started. */
static const struct {
	const char *by, *ranks, *rank, *local_rank, *local_ranks;
} launcher[] = {
	{ "Open MPI", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
	  "OMPI_COMM_WORLD_LOCAL_SIZE" },
	{ "MPICH", "PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", "MPI_LOCALNRANKS" },
	{ "Slurm", "SLURM_STEP_NUM_TASKS", "PMIX_RANK", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE" },
	{ "Slurm", "SLURM_NTASKS", "PMIX_RANK", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE" },
	{ "PMIx", "PMIX_SIZE", "PMIX_RANK", "PMIX_LOCAL_RANK", "PMIX_LOCAL_SIZE" },
};

static fo_status number(const char *by, const char *name, long least, long most, int *out)
{
	const char *text = getenv(name);
	char *end;
	if (!text || !*text)
		return FO_OK;
	long v = strtol(text, &end, 10);
	if (end == text || *end || v < least || v > most)
		return fo_fail(FO_EARG, "%s, which %s sets, is '%s': expected a number from %ld to %ld", name, by, text,
			       least, most);
	*out = (int)v;
	return FO_OK;
}

fo_status fo_comm_launched(struct fo_comm_launch *out)
{
	*out = (struct fo_comm_launch){ .ranks = 1, .local_rank = -1, .local_ranks = -1 };
	for (size_t i = 0; i < sizeof launcher / sizeof *launcher; i++) {
		const char *by = launcher[i].by;
		if (!getenv(launcher[i].ranks) || !getenv(launcher[i].rank))
			continue;
		out->by = by;
		FO_TRY(number(by, launcher[i].ranks, 1, FO_COMM_RANKS_MAX, &out->ranks));
		FO_TRY(number(by, launcher[i].rank, 0, out->ranks - 1, &out->rank));
		FO_TRY(number(by, launcher[i].local_rank, 0, out->ranks - 1, &out->local_rank));
		return number(by, launcher[i].local_ranks, 1, FO_COMM_RANKS_MAX, &out->local_ranks);
	}
	return FO_OK;
}

/* ---- the plugin ---- */

#define PLUGIN "libflatout-mpi.so"
static struct fo_library library;
static const struct fo_mpi_plugin *plugin;
static char why[1024]; /* why there is none */

static void look_for(void)
{
	const char *file = getenv("FLATOUT_MPI_PLUGIN"), *here = fo_library_program_folder();
	char folders[2 * sizeof library.file];
	fo_mpi_entry *entry = NULL;
	/* Names with a colon would be two folders. */
	snprintf(folders, sizeof folders, "%s:%s/../lib/flatout", here, here);
	const bool named = file && *file;
	if (named)
		fo_library_open(&library, "", 0, file); /* who names a file wants that one */
	else if (*here)
		fo_library_open_in(&library, folders, PLUGIN);
	if (library.handle)
		fo_library_find(&library, FO_MPI_ENTRY, &entry);
	const struct fo_mpi_plugin *found = entry ? entry() : NULL;
	if (found && found->abi == FO_MPI_ABI)
		plugin = found;
	else if (found)
		snprintf(why, sizeof why,
			 "the MPI plugin '%s' was made for another version of flatout (interface %d, here %d)",
			 library.file, found->abi, FO_MPI_ABI);
	else if (library.handle)
		snprintf(why, sizeof why, "'%s' is not flatout's MPI plugin: it has no function %s", library.file,
			 FO_MPI_ENTRY);
	else if (*library.why)
		snprintf(why, sizeof why, "%s", library.why);
	else if (named)
		snprintf(why, sizeof why, "FLATOUT_MPI_PLUGIN names '%s', which is not there", file);
	else
		snprintf(why, sizeof why, "there is no %s in '%s' or '%s/../lib/flatout'", PLUGIN, here, here);
}

const struct fo_mpi_plugin *fo_mpi_load(const char **out)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, look_for);
	*out = why;
	return plugin;
}

bool fo_comm_mpi_found(const char **file, const char **made_for, const char **reason)
{
	const struct fo_mpi_plugin *p = fo_mpi_load(reason);
	*file = library.file;
	*made_for = p ? p->made_for : "";
	return p;
}
