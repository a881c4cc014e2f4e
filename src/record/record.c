#include "record/record.h"
#include "base/clock.h"
#include "base/fs.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RUN_JSON_BYTES_MAX ((size_t)16 << 20) /* a run's options are some 20 KiB */

/* ---- steps ---- */

int64_t fo_record_row(const struct fo_record_steps *s, int64_t step)
{
	int64_t lo = 0, hi = s->n;
	while (lo < hi) {
		int64_t mid = lo + (hi - lo) / 2;
		if (s->step[mid] < step)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < s->n && s->step[lo] == step ? lo : -1;
}

double fo_record_quantile(const struct fo_record_steps *s, enum fo_step_field f, int64_t from, int64_t to, double q)
{
	size_t n = 0;
	from = from < 0 ? 0 : from;
	to = to > s->n ? s->n : to;
	if (!s->value[f] || from >= to)
		return NAN;
	double *v = fo_xmalloc((size_t)(to - from) * sizeof *v);
	for (int64_t i = from; i < to; i++)
		if (isfinite(s->value[f][i]) && !(fo_record_value(s, FO_STEP_METERED, i) > 0))
			v[n++] = s->value[f][i];
	double at = n ? fo_stats_quantile(v, n, q) : NAN;
	free(v);
	return at;
}

const struct fo_record_start *fo_record_start_of(const struct fo_record *r, int64_t row)
{
	int32_t i = r->step.start ? r->step.start[row] : -1;
	return i < 0 ? NULL : &r->start[i];
}

double fo_record_peak_of(const struct fo_record *r, int64_t row)
{
	const struct fo_record_start *s = fo_record_start_of(r, row);
	return s && s->peak_flop_s > 0 ? s->peak_flop_s : r->peak_flop_s;
}

double fo_record_mean_flop(const struct fo_record *r, enum fo_step_field f)
{
	double sum = 0;
	int64_t n = 0;
	for (int64_t i = 0; i < r->step.n; i++) {
		double flop = fo_record_value(&r->step, f, i) * fo_record_value(&r->step, FO_STEP_SECONDS, i) *
			      fo_record_peak_of(r, i);
		sum += flop > 0 ? flop : 0;
		n += flop > 0;
	}
	return n ? sum / (double)n : NAN;
}

/* ---- run.json ---- */

double fo_record_load(const struct fo_record *r)
{
	double load = NAN;
	for (int64_t i = 0; i < r->machines; i++)
		load = fmax(load, r->machine[i].use.load); /* fmax ignores NaN */
	return load;
}

bool fo_record_paced(const struct fo_record *r)
{
	bool paced = !strcmp(r->isa, FO_RECORD_PACED);
	for (int64_t i = 0; i < r->starts; i++)
		paced |= !strcmp(r->start[i].isa, FO_RECORD_PACED);
	return paced;
}

static fo_status read_run(struct fo_record *r, const char *path)
{
	struct fo_schema_reader reader = { .arena = &r->arena, .lenient = true };
	return fo_schema_read_file(&fo_run_schema, path, RUN_JSON_BYTES_MAX, r, &reader);
}

const struct fo_record_option *fo_record_option(const struct fo_record *r, const char *key)
{
	for (int64_t i = 0; i < r->options; i++)
		if (!strcmp(r->option[i].key, key))
			return &r->option[i];
	return NULL;
}

bool fo_record_saves_none(const struct fo_record *r)
{
	const struct fo_record_option *last = fo_record_option(r, "checkpoint.last");
	return last && !strcmp(last->value, "no") && r->step.n && !r->checkpoints;
}

const char *fo_record_model(const struct fo_record *r)
{
	const struct fo_record_option *o = fo_record_option(r, "model.name");
	if (r->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE)
		return *r->program.model.name ? r->program.model.name : "custom";
	return o ? o->value : "";
}

/* ---- the other files ---- */

static fo_status read_log(struct fo_record *r, const char *path)
{
	int fd;
	FO_TRY(fo_fs_open_regular(path, &fd));
	fo_status st = fo_record_read_log(r, fd, path);
	close(fd);
	if (st == FO_OK && r->bad_lines && r->bad_lines == r->lines)
		st = fo_fail(FO_EFORMAT, "'%s' is no log: none of its %lld lines is an event", path,
			     (long long)r->lines);
	return st;
}

static fo_status read_program(struct fo_record *r, const char *path)
{
	fo_status st = fo_program_read(&r->program, path, true);
	if (st == FO_OK) {
		st = fo_unroll(&r->program, &r->unrolled);
		if (st == FO_OK)
			fo_plan(&r->program, &r->unrolled);
		else
			fo_program_fini(&r->program);
	}
	return st;
}

static fo_status needs_program(const struct fo_record *r, const char *path)
{
	const struct fo_record_file *p = &r->file[FO_RECORD_PROGRAM];
	if (p->state == FO_RECORD_WHOLE)
		return FO_OK;
	return fo_fail(FO_EFORMAT, "'%s' cannot be read without its program: '%s' is %s", path, p->path,
		       p->state == FO_RECORD_ABSENT ? "not there" : "damaged");
}

static fo_status another_program(const struct fo_record *r, const char *path)
{
	return fo_fail(FO_EFORMAT, "'%s' was recorded with another step program than '%s'", path,
		       r->file[FO_RECORD_PROGRAM].path);
}

static fo_status read_timeline(struct fo_record *r, const char *path)
{
	FO_TRY(needs_program(r, path));
	FO_TRY(fo_timeline_read(&r->timeline, path));
	if (r->timeline.program_hash == fo_program_hash(&r->program))
		return FO_OK;
	fo_timeline_fini(&r->timeline.t);
	return another_program(r, path);
}

static fo_status read_metered(struct fo_record *r, const char *path)
{
	FO_TRY(needs_program(r, path));
	FO_TRY(fo_metered_read(&r->metered, path));
	if (r->metered.program_hash == fo_program_hash(&r->program))
		return FO_OK;
	fo_metered_fini(&r->metered);
	return another_program(r, path);
}

/* A file that is not there is no mistake; one that cannot be read, or is not what it should be, keeps its sentence. */
static void open_file(struct fo_record *r, enum fo_record_file_id id,
		      fo_status (*read_it)(struct fo_record *, const char *))
{
	struct fo_record_file *f = &r->file[id];
	struct stat st;
	if (stat(f->path, &st) && errno == ENOENT)
		return;
	if (read_it(r, f->path) == FO_OK) {
		f->state = FO_RECORD_WHOLE;
		return;
	}
	f->state = FO_RECORD_DAMAGED;
	f->why = fo_arena_strdup(&r->arena, fo_err_text());
	fo_err_clear();
}

/* ---- ranks ---- */

/* A sentence of what is wrong with the file of a rank; then its timeline is left alone. */
static void refuse_rank(struct fo_record *r, struct fo_record_rank *x, const char *why)
{
	x->file.state = FO_RECORD_DAMAGED;
	x->file.why = fo_arena_strdup(&r->arena, why);
	x->timeline = NULL;
	fo_err_clear();
}

static fo_status read_rank(const struct fo_record *r, struct fo_record_rank *x, int rank)
{
	const struct fo_timeline_file *first = NULL;
	const char *path = x->file.path;
	if (rank)
		FO_TRY(fo_timeline_read(&x->own, path));
	x->timeline = rank ? &x->own : &r->timeline;
	for (int i = 0; i < rank && !first; i++)
		first = r->rank[i].timeline;
	if (!x->timeline->ranks)
		return fo_fail(FO_EFORMAT,
			       "'%s' says nothing of other ranks, as an earlier version wrote it: for whom they "
			       "waited is not known from this",
			       path);
	if (x->timeline->rank != rank || x->timeline->ranks != r->ranks)
		return fo_fail(FO_EFORMAT, "'%s' is of rank %d of %d, expected rank %d of %d", path, x->timeline->rank,
			       x->timeline->ranks, rank, r->ranks);
	if (first && !fo_timeline_same_run(first, x->timeline))
		return fo_fail(FO_EFORMAT, "'%s' is of another run than '%s'", path, r->rank[first->rank].file.path);
	return FO_OK;
}

static void read_ranks(struct fo_record *r)
{
	struct stat st;
	if (r->file[FO_RECORD_PROGRAM].state != FO_RECORD_WHOLE || r->program.ranks < 2)
		return;
	r->ranks = r->program.ranks;
	r->rank = fo_xmalloc((size_t)r->ranks * sizeof *r->rank);
	for (int i = 0; i < r->ranks; i++) {
		struct fo_record_rank *x = &r->rank[i];
		x->file = (struct fo_record_file){ .path = fo_timeline_rank_path(&r->arena, r->dir, i), .why = "" };
		if (!i)
			x->file = r->file[FO_RECORD_TIMELINE];
		else if (!stat(x->file.path, &st) || errno != ENOENT)
			x->file.state = FO_RECORD_WHOLE;
		if (x->file.state == FO_RECORD_WHOLE && read_rank(r, x, i) != FO_OK)
			refuse_rank(r, x, fo_err_text());
	}
}

static void begin(struct fo_record *r, const char *dir)
{
	static const char *const name[] = { "run.json", "log.jsonl", "program.txt", FO_TIMELINE_FILE, FO_METERED_FILE };
	*r = (struct fo_record){ 0 };
	fo_schema_blank(&fo_run_schema, r);
	r->dir = fo_arena_strdup(&r->arena, dir);
	for (int i = 0; i < FO_RECORD_FILES; i++)
		r->file[i] = (struct fo_record_file){ .path = fo_arena_printf(&r->arena, "%s/%s", dir, name[i]),
						      .why = "" };
}

fo_status fo_record_open(struct fo_record *r, const char *dir, unsigned with)
{
	struct stat st;
	if (stat(dir, &st))
		return fo_fs_refuse("open", dir, errno);
	begin(r, dir);
	if (!S_ISDIR(st.st_mode) ||
	    (!fo_fs_exists(r->file[FO_RECORD_RUN_JSON].path) && !fo_fs_exists(r->file[FO_RECORD_LOG].path))) {
		fo_record_fini(r);
		return fo_hint(
			fo_fail(FO_EARG, "'%s' is not a run directory: it has neither run.json nor log.jsonl", dir),
			"name the folder that run.dir said");
	}
	open_file(r, FO_RECORD_RUN_JSON, read_run);
	open_file(r, FO_RECORD_LOG, read_log);
	if (with)
		open_file(r, FO_RECORD_PROGRAM, read_program);
	if (with & (FO_RECORD_WITH_TIMELINE | FO_RECORD_WITH_RANKS))
		open_file(r, FO_RECORD_TIMELINE, read_timeline);
	if (with & FO_RECORD_WITH_METERED)
		open_file(r, FO_RECORD_METERED, read_metered);
	if (with & FO_RECORD_WITH_RANKS)
		read_ranks(r);
	return FO_OK;
}

void fo_record_fini(struct fo_record *r)
{
	if (r->file[FO_RECORD_TIMELINE].state == FO_RECORD_WHOLE)
		fo_timeline_fini(&r->timeline.t);
	if (r->file[FO_RECORD_METERED].state == FO_RECORD_WHOLE)
		fo_metered_fini(&r->metered);
	if (r->file[FO_RECORD_PROGRAM].state == FO_RECORD_WHOLE) {
		fo_unrolled_fini(&r->unrolled);
		fo_program_fini(&r->program);
	}
	for (int i = 1; i < r->ranks; i++)
		fo_timeline_fini(&r->rank[i].own.t);
	free(r->rank);
	free(r->step.step);
	free(r->step.start);
	for (int f = 0; f < FO_STEP_FIELD_COUNT; f++)
		free(r->step.value[f]);
	free(r->eval);
	free(r->checkpoint);
	free(r->machine);
	free(r->profile);
	free(r->guard);
	free(r->start);
	free(r->end);
	fo_arena_fini(&r->arena);
	*r = (struct fo_record){ 0 };
}

/* ---- where the time went ---- */

bool fo_record_profile_total(const struct fo_record *r, struct fo_profile *out)
{
	*out = (struct fo_profile){ 0 };
	for (int64_t i = 0; i < r->profiles; i++) {
		const struct fo_profile *f = &r->profile[i].profile;
		for (int p = 0; p < FO_PART_COUNT; p++)
			out->part_ns[p] += f->part_ns[p];
		out->total_ns += f->total_ns;
		out->steps += f->steps;
	}
	if (out->steps || r->file[FO_RECORD_TIMELINE].state != FO_RECORD_WHOLE)
		return out->steps > 0;
	struct fo_timeline t = r->timeline.t; /* its compute lane: seen up to the end of one step after the other */
	struct fo_ring *c = &t.lane[FO_LANE_COMPUTE];
	const struct fo_ring all = *c;
	int whole = fo_instances_computing(&r->program, &r->unrolled);
	for (uint64_t from = 0, to; from < all.n; from = to) {
		for (to = from; to < all.n && all.span[to].step == all.span[from].step;)
			to++;
		if (fo_timeline_ran(&r->timeline.t, all.span[from].step, all.span[from].begin_ns,
				    all.span[to - 1].end_ns) != whole)
			continue;
		c->n = to;
		fo_profile_add_step(out, &t, &r->program, &r->unrolled, all.span[from].step, all.span[from].begin_ns,
				    all.span[to - 1].end_ns, 0);
	}
	return out->steps > 0;
}
