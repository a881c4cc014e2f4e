/* A simulated job as the files that a run of several ranks leaves. */
#include "sim/ranks.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "pass/pass.h"

#include <stdlib.h>
#include <time.h>

static fo_status is_free(const char *dir)
{
	struct fo_arena a = { 0 };
	char **name;
	size_t n = 0;
	fo_status st = FO_OK;
	if (fo_fs_exists(dir) && !fo_fs_is_dir(dir))
		st = fo_fail(FO_EARG, "'%s' is a file: timelines of ranks go into a new folder", dir);
	else if (fo_fs_is_dir(dir))
		st = fo_fs_list_here(&a, dir, 1000, &name, &n);
	if (st == FO_OK && n)
		st = fo_fail(FO_EARG, "'%s' is not empty: timelines of ranks go into a new folder", dir);
	fo_arena_fini(&a);
	return st;
}

static fo_status write_rank(const struct fo_sim_ranks *x, const struct fo_program *first, int32_t rank, const char *dir,
			    int64_t begun)
{
	const int class = x->class_of[rank];
	struct fo_lowering low = first->run;
	struct fo_program p;
	struct fo_timeline t;
	struct fo_arena a = { 0 };
	low.mesh.rank = rank;
	FO_TRY(fo_pass_build(&p, &first->model, &low));
	fo_status st = fo_sim_timeline(&x->rank[class], &p, &x->role[x->class_role[class]].u, &t);
	if (st == FO_OK) {
		t.whose = (struct fo_timeline_whose){ .begun_unix_ns = begun, .host = "simulated" };
		st = fo_timeline_write(&t, &p, fo_timeline_rank_path(&a, dir, rank));
		fo_timeline_fini(&t);
	}
	if (st == FO_OK && rank)
		st = fo_timeline_write_program(&p, first, dir);
	fo_program_fini(&p);
	fo_arena_fini(&a);
	return st;
}

fo_status fo_sim_ranks_write(const struct fo_sim_ranks *x, const char *dir, int most, int *written)
{
	const struct fo_program *first = &x->role[x->role_of[0]].p;
	struct fo_arena a = { 0 };
	struct fo_str text = { 0 };
	struct timespec now;
	int32_t *rank, n;
	*written = 0;
	FO_TRY(is_free(dir));
	FO_TRY(fo_fs_mkdirs(dir));
	clock_gettime(CLOCK_REALTIME, &now);
	const int64_t begun = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
	if (x->ranks <= most) {
		n = x->ranks;
		rank = fo_xmalloc((size_t)n * sizeof *rank);
		for (int32_t r = 0; r < n; r++)
			rank[r] = r;
	} else {
		n = fo_fleet_shown(x->run, most, &rank);
	}
	fo_program_dump(first, &text);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&a, "%s/program.txt", dir), text.data, text.len);
	for (int32_t i = 0; i < n && st == FO_OK; i++) {
		st = write_rank(x, first, rank[i], dir, begun);
		*written += st == FO_OK;
	}
	free(rank);
	fo_str_fini(&text);
	fo_arena_fini(&a);
	return st;
}
