/* flatout program --meshes: the meshes of a number of ranks that a run can have, with what each costs. */
#include "cli/cli.h"

#include "pass/pass.h"
#include "pass/planned.h"
#include "program/mesh_cost.h"

#include <stdlib.h>

/* One mesh: why it cannot be, or the figures of the rank that receives most and of the one that needs most memory. */
struct row {
	struct fo_mesh mesh;
	const char *why; /* NULL: it is legal */
	struct fo_mesh_wire wire;
	struct fo_mesh_memory memory;
	struct fo_planned planned; /* of the rank that takes most */
	const char *not_planned;   /* NULL: it is */
};
struct table {
	struct row *row;
	int n, legal, bounded;
	int64_t operations; /* planned so far */
	size_t cap;
	struct fo_arena arena;
};

static int64_t most_of(const struct fo_mesh_memory *m) { return m->persistent + m->arena_high; }

/* The run as it would be with this mesh: settings that follow from a mesh do so. */
static struct fo_run run_of(const struct fo_run *r, const struct fo_mesh *mesh)
{
	struct fo_run with = *r;
	with.ranks = fo_mesh_ranks(mesh);
	with.replicate = mesh->replicate;
	with.shard = mesh->shard;
	with.cp = mesh->cp;
	with.tp = mesh->tp;
	with.pp = mesh->pp;
	return with;
}

/* With what the run leaves open chosen: layers of stages, what is computed again. */
static struct fo_lowering lowering_of(const struct fo_run *r, const struct fo_model *m, const struct fo_mesh *mesh)
{
	const struct fo_run with = run_of(r, mesh);
	struct fo_choice c;
	if (fo_pass_choose_said(&with, m, &c) == FO_OK)
		return c.run;
	fo_err_clear(); /* fo_mesh_legal has better words */
	return fo_run_lowering(&with, FO_MODE_TRAIN);
}

static fo_status rows_legal(const struct fo_run *r, const struct fo_mesh *mesh)
{
	const int32_t sets = fo_mesh_data(mesh);
	if (r->rows % sets == 0)
		return FO_OK;
	return fo_fail(FO_EARG, "%d groups of ranks cannot share the rows of a micro-batch evenly, train.rows=%lld",
		       sets, (long long)r->rows);
}

static fo_status measure(const struct fo_model *m, struct fo_lowering low, struct row *row)
{
	const int32_t ranks = fo_mesh_ranks(&low.mesh);
	for (low.mesh.rank = 0; low.mesh.rank < ranks; low.mesh.rank++) {
		struct fo_mesh_wire wire;
		struct fo_mesh_memory memory;
		FO_TRY(fo_mesh_cost(m, &low, &wire, &memory));
		if (!low.mesh.rank || wire.all > row->wire.all)
			row->wire = wire;
		if (!low.mesh.rank || most_of(&memory) > most_of(&row->memory))
			row->memory = memory;
	}
	return FO_OK;
}

/* Operations of all meshes' programs that are planned: a few seconds. */
enum { OPERATIONS = 2 * FO_PLANNED_OPERATIONS };

static fo_status plan(struct table *t, const struct fo_model *m, const struct fo_lowering *low, struct row *row)
{
	struct fo_planned_job job = { .stage = NULL };
	const int64_t rest = OPERATIONS - t->operations;
	if (rest <= 0) {
		row->not_planned = "the meshes before took all the operations that are planned in some seconds";
	} else {
		FO_TRY(fo_pass_plan_job(m, low, rest < FO_PLANNED_OPERATIONS ? rest : FO_PLANNED_OPERATIONS, &job));
		row->planned = job.fullest;
		row->not_planned = job.why;
	}
	t->operations += job.operations;
	t->bounded += row->not_planned != NULL;
	return FO_OK;
}

static fo_status add(struct table *t, const struct fo_run *r, const struct fo_model *m, const struct fo_mesh *mesh)
{
	fo_array_room(&t->row, &t->cap, (size_t)t->n, sizeof *t->row);
	struct row *row = &t->row[t->n++];
	*row = (struct row){ .mesh = *mesh };
	const struct fo_lowering low = lowering_of(r, m, mesh);
	fo_status st = rows_legal(r, mesh);
	if (st == FO_OK)
		st = fo_mesh_legal(m, &low);
	if (st == FO_OK) {
		t->legal++;
		FO_TRY(measure(m, low, row));
		return plan(t, m, &low, row);
	}
	row->why = fo_arena_strdup(&t->arena, fo_err_text());
	fo_err_clear();
	return FO_OK;
}

static fo_status fill(struct table *t, const struct fo_run *r, const struct fo_model *m, int32_t ranks)
{
	struct fo_mesh mesh = { 0 };
	for (mesh.pp = 1; mesh.pp <= ranks; mesh.pp++) {
		const int32_t stage = ranks / mesh.pp;
		for (mesh.tp = 1; ranks % mesh.pp == 0 && mesh.tp <= stage; mesh.tp++)
			for (mesh.cp = 1; stage % mesh.tp == 0 && mesh.cp <= stage / mesh.tp; mesh.cp++) {
				const int32_t sets = stage / mesh.tp / mesh.cp;
				if (stage / mesh.tp % mesh.cp)
					continue;
				for (mesh.shard = 1; mesh.shard <= sets; mesh.shard++) {
					mesh.replicate = sets / mesh.shard;
					if (sets % mesh.shard == 0)
						FO_TRY(add(t, r, m, &mesh));
				}
			}
	}
	return FO_OK;
}

/* ---- what it says ---- */

static const char *mesh_text(struct fo_doc *d, const struct fo_mesh *m)
{
	return fo_doc_printf(d, "%dx%dx%dx%dx%d", m->pp, m->replicate, m->shard, m->cp, m->tp);
}

/* Bytes by axis: sums over ranks with other rows or tokens are one, whatever axes they span. */
static double other_rows(const struct fo_mesh_wire *w)
{
	return w->group[FO_GROUP_DATA] + w->group[FO_GROUP_REPLICATE] + w->group[FO_GROUP_ALL];
}
static double pp_group(const struct fo_mesh_wire *w) { return w->group[FO_GROUP_PP] + w->group[FO_GROUP_ENDS]; }
static double tp_group(const struct fo_mesh_wire *w)
{
	return w->group[FO_GROUP_TP] + w->group[FO_GROUP_KV] + w->group[FO_GROUP_HEADS];
}

static void say(const struct table *t, const struct fo_run *r, const struct fo_model *m, int ranks, struct fo_doc *d)
{
	fo_doc_para(
		d,
		"meshes of %d %s for %s: %lld %s x %lld %s x %lld tokens, meshes are pp x replicate x shard x cp x tp",
		ranks, fo_word(ranks, "rank", "ranks"), m->name, (long long)r->micro_batches,
		fo_word(r->micro_batches, "micro-batch", "micro-batches"), (long long)r->rows,
		fo_word(r->rows, "row", "rows"), (long long)r->seq);
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrrrrrrr", "mesh", "shard", "data", "cp", "tp", "pp", "persists", "arena");
	for (int i = 0; i < t->n; i++) {
		const struct row *x = &t->row[i];
		if (!x->why)
			fo_doc_row(
				d, mesh_text(d, &x->mesh), fo_doc_num(d, x->wire.group[FO_GROUP_SHARD], FO_DRAW_BYTES),
				fo_doc_num(d, other_rows(&x->wire), FO_DRAW_BYTES),
				fo_doc_num(d, x->wire.group[FO_GROUP_CP], FO_DRAW_BYTES),
				fo_doc_num(d, tp_group(&x->wire), FO_DRAW_BYTES),
				fo_doc_num(d, pp_group(&x->wire), FO_DRAW_BYTES), fo_doc_bytes(d, x->memory.persistent),
				x->not_planned ? fo_doc_printf(d, "<= %s", fo_doc_bytes(d, x->memory.arena_high))
					       : fo_doc_bytes(d, x->planned.arena));
	}
	fo_doc_para(
		d,
		"Columns: bytes that a rank receives in a step, by group; bytes of weights and state that persist; "
		"the arena of activations and gradients, as the executor plans it. Each is that of the rank with the "
		"most.");
	if (t->bounded)
		fo_doc_para(
			d,
			"<=: bounded, not planned, for programs of %d %s are more than are planned in some seconds. "
			"So much may be alive; holes between take more.",
			t->bounded, fo_word(t->bounded, "mesh", "meshes"));
	for (int i = 0; i < t->n && i < 64; i++)
		if (t->row[i].why)
			fo_doc_item(d, "not %s: %s", mesh_text(d, &t->row[i].mesh), t->row[i].why);
}

static void put_mesh(struct fo_json *j, const struct fo_mesh *m)
{
	fo_json_put(j, FO_INT("pp", m->pp), FO_INT("replicate", m->replicate), FO_INT("shard", m->shard),
		    FO_INT("cp", m->cp), FO_INT("tp", m->tp));
}

static void put_planned(struct fo_json *j, const struct row *x)
{
	static const char *const key[] = { "planned_persistent_bytes", "planned_arena_bytes" };
	const int64_t bytes[] = { x->planned.persistent, x->planned.arena };
	for (int i = 0; i < 2; i++)
		if (x->not_planned)
			fo_json_raw(j, key[i], "null");
		else
			fo_json_int(j, key[i], bytes[i]);
	fo_json_text(j, "not_planned", x->not_planned);
}

static void put_costs(struct fo_json *j, const struct row *x)
{
	const struct fo_mesh_memory *m = &x->memory;
	fo_json_put(j, FO_REAL("received_bytes", x->wire.all));
	fo_json_object(j, "received_from");
	for (int g = FO_GROUP_NONE + 1; g < FO_GROUP_COUNT; g++)
		if (x->wire.group[g] > 0)
			fo_json_put(j, FO_REAL(fo_group_name[g], x->wire.group[g]));
	fo_json_close(j);
	fo_json_object(j, "received_on");
	for (int l = 0; l < FO_LANE_COUNT; l++)
		if (x->wire.lane[l] > 0)
			fo_json_put(j, FO_REAL(fo_lane_name[l], x->wire.lane[l]));
	fo_json_close(j);
	fo_json_put(j, FO_INT("weight_bytes", m->weights), FO_INT("master_bytes", m->master),
		    FO_INT("moment_bytes", m->moments), FO_INT("copy_bytes", m->copies),
		    FO_INT("persistent_bytes", m->persistent), FO_INT("kept_bytes", m->kept),
		    FO_INT("gradient_bytes", m->gradients), FO_INT("arena_low_bytes", m->arena_low),
		    FO_INT("arena_high_bytes", m->arena_high));
}

static void put_row(struct fo_json *j, const struct row *x)
{
	put_costs(j, x);
	put_planned(j, x);
}

static void write_json(const struct table *t, const struct fo_model *m, int ranks, struct fo_json *j)
{
	fo_json_put(j, FO_TEXT("model", m->name), FO_INT("ranks", ranks));
	for (int refused = 0; refused < 2; refused++) {
		fo_json_array(j, refused ? "refused" : "meshes");
		for (int i = 0; i < t->n; i++) {
			if (refused != (t->row[i].why != NULL))
				continue;
			fo_json_object(j, NULL);
			put_mesh(j, &t->row[i].mesh);
			if (refused)
				fo_json_text(j, "why", t->row[i].why);
			else
				put_row(j, &t->row[i]);
			fo_json_close(j);
		}
		fo_json_close(j);
	}
}

/* What has nothing to do with ranks is as one rank's program says. */
static fo_status check(const struct fo_run *r, const struct fo_model *m)
{
	static const struct fo_mesh one = { .pp = 1, .replicate = 1, .shard = 1, .cp = 1, .tp = 1 };
	const struct fo_run alone = run_of(r, &one);
	struct fo_lowering low = fo_run_lowering(&alone, FO_MODE_TRAIN);
	struct fo_program p;
	if (*r->program_file)
		return fo_hint(fo_fail(FO_EARG, "a program in a file has its mesh: --meshes makes others of a run"),
			       "leave program.file out");
	if (r->batch_rows)
		return fo_hint(fo_fail(FO_EARG, "train.batch-rows leaves open how many rows a micro-batch has"),
			       "say it by train.rows and train.micro-batches, with train.batch-rows=0");
	low.micro_batches = low.rows = 1;
	FO_TRY(fo_pass_build(&p, m, &low));
	fo_program_fini(&p);
	return FO_OK;
}

fo_status fo_cli_meshes(const struct fo_cli_call *call, const struct fo_run *r, int ranks)
{
	struct table t = { 0 };
	struct fo_model m;
	FO_TRY(fo_run_model(r, &m));
	FO_TRY(check(r, &m));
	fo_status st = fill(&t, r, &m, ranks);
	if (st == FO_EUNSUPPORTED)
		st = fo_hint(
			st, "flatout program with --mesh.tp, --mesh.cp and --mesh.shard makes the program of one mesh");
	if (st == FO_OK && !t.legal)
		st = fo_hint(
			fo_fail(FO_EARG, "no mesh of %d ranks can train this run; the first: %s", ranks, t.row[0].why),
			"--meshes with fewer ranks, such as --meshes=2");
	if (st == FO_OK && call->json)
		write_json(&t, &m, ranks, call->json);
	else if (st == FO_OK)
		say(&t, r, &m, ranks, call->doc);
	free(t.row);
	fo_arena_fini(&t.arena);
	return st;
}
