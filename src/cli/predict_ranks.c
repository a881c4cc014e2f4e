/* flatout predict: what several ranks do to a step, in words and as JSON. */
#include "cli/predict.h"

#include "base/fs.h"
#include "report/slots.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double fo_cli_predict_link_option(const struct fo_record *r, const char *key, double given)
{
	const struct fo_record_option *o = r ? fo_record_option(r, key) : NULL;
	return o ? strtod(o->value, NULL) : given;
}

/* "12.3 ms (10.1 to 15.0)", in the unit of the middle. */
static const char *interval(struct fo_doc *d, struct fo_interval x)
{
	const char *unit = "us";
	double by = 1e6;
	if (x.mid >= 1)
		unit = "s", by = 1;
	else if (1e3 * x.mid >= 1)
		unit = "ms", by = 1e3;
	return fo_doc_printf(d, "%.4g %s (%.3g to %.3g)", by * x.mid, unit, by * x.low, by * x.high);
}

static const char *link_text(struct fo_doc *d, const struct fo_predict_ranks *x)
{
	const bool mpi = !strcmp(x->links.over, FO_LINK_MPI);
	const char *text = "", *origin;
	if (mpi)
		origin = fo_doc_printf(d, "not measured in groups of %d ranks ('mpirun -n %d flatout calibrate' does)",
				       x->job.ranks, x->job.ranks);
	else
		origin = fo_doc_printf(d, "not measured in groups of %d ranks ('flatout calibrate --ranks=%d' does)",
				       x->job.ranks, x->job.ranks);
	for (size_t i = 0; i < x->links.limits->rows; i++) {
		const struct fo_limits_row *row = &x->links.limits->row[i];
		if (fo_link_is_row(row) && row->dim[0] == x->job.ranks && !strcmp(row->set, x->links.over))
			origin = fo_doc_printf(d, "measured %.10s in groups of %d ranks", row->date, x->job.ranks);
	}
	if (x->links.byte_s > 0)
		text = fo_doc_printf(d, "emulated, %g Gbit/s", x->links.byte_s * 8e-9);
	if (x->links.latency_s > 0)
		text = fo_doc_join(d, *text ? text : "emulated",
				   fo_doc_printf(d, "%g us a call", x->links.latency_s * 1e6));
	return fo_doc_join(d, text,
			   fo_doc_printf(d, "%s: %s", mpi ? "processes over MPI" : "threads of one process", origin));
}

static void say_sure(const struct fo_predict_ranks *x, struct fo_doc *d)
{
	double all = 0;
	for (int i = 0; i < FO_SURE_COUNT; i++)
		all += x->job.sure_s[i];
	if (!(all > 0))
		return;
	fo_doc_line(d, "calls sure",
		    "%.0f %% of their time was measured in such groups, %.0f %% is beyond the sizes "
		    "measured, %.0f %% guessed",
		    100 * x->job.sure_s[FO_SURE_EXACT] / all, 100 * x->job.sure_s[FO_SURE_NEAR] / all,
		    100 * (x->job.sure_s[FO_SURE_GUESS] + x->job.sure_s[FO_SURE_NONE]) / all);
}

/* A line for each lane that communicates: what it carries, and how much of that shows. */
static void say_lanes(const struct fo_predict_ranks *x, struct fo_doc *d)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		const struct fo_interval e = x->job.lane_exposed_s[l], h = x->job.lane_hidden_s[l];
		const char *got = "";
		if (!fo_lane_carries[l] || !(e.high > 0 || h.high > 0))
			continue;
		if (x->measured.steps)
			got = fo_doc_printf(d, "; measured %.4g ms exposed", 1e3 * x->measured.lane_median_s[l]);
		fo_doc_line(d, fo_doc_printf(d, "lane %s", fo_lane_name[l]), "%s: %s exposed, %s hidden%s",
			    fo_lane_carries[l], interval(d, e), interval(d, h), got);
	}
}

enum { HOLDS = 3, TIMELINES_MOST = 64 };

/* "matmul of layer.b 41 % (rank 0), transfer of ..." */
static void say_path(const struct fo_sim_ranks *j, struct fo_doc *d)
{
	const char *text = "";
	for (int32_t i = 0; i < j->path.shares && i < HOLDS; i++) {
		const struct fo_fleet_share *s = &j->path.share[i];
		text = fo_doc_join(d, text,
				   fo_doc_printf(d, "%s%s %.0f %% (rank %d)", fo_cli_hold_text[s->hold],
						 j->fleet->name[s->name], 100 * s->seconds / j->run->step_s,
						 j->run->class[s->class].first));
	}
	if (*text)
		fo_doc_line(d, "holds the step", "%s", text);
}

/* The slots of the first rank of each stage in the middle walk. False: there is no pipeline, or no memory. */
static bool bubble_of(const struct fo_sim_ranks *x, struct fo_doc *d, struct fo_slots_bubble *out,
		      struct fo_pp_shape *shape)
{
	const struct fo_lowering *run = &x->role[0].p.run;
	const int pp = fo_mesh_pp(&run->mesh), apart = fo_mesh_stage_ranks(&run->mesh);
	struct fo_draw_slots picture;
	bool got = pp > 1;
	if (!got)
		return false;
	struct fo_slots_stage *stage = fo_doc_alloc(d, (size_t)pp * sizeof *stage);
	struct fo_timeline_file *file = fo_doc_alloc(d, (size_t)pp * sizeof *file);
	for (int s = 0; s < pp && got; s++) {
		const int class = x->class_of[s * apart];
		const struct fo_sim_role *role = &x->role[x->class_role[class]];
		got = fo_sim_timeline(&x->rank[class], &role->p, &role->u, &file[s].t) == FO_OK;
		stage[s] = (struct fo_slots_stage){ &role->p, got ? &file[s] : NULL };
	}
	got = got && fo_slots_of_timelines(d, &picture, stage, pp, 0);
	*shape = fo_lowering_pipeline(run);
	if (got)
		fo_slots_bubble_of(out, &picture, shape);
	else
		fo_err_clear();
	for (int s = 0; s < pp; s++)
		if (stage[s].f)
			fo_timeline_fini(&file[s].t);
	return got;
}

static void say_bubble(const struct fo_sim_ranks *x, struct fo_doc *d)
{
	struct fo_slots_bubble b;
	struct fo_pp_shape shape;
	if (!bubble_of(x, d, &b, &shape))
		return;
	fo_doc_line(d, "bubble", "%s of the time from the first pass to the last is without passes; %s",
		    fo_doc_num(d, b.measured, FO_DRAW_SHARE), fo_slots_formula_text(d, &b));
}

static void put_bubble(const struct fo_sim_ranks *x, struct fo_json *j)
{
	struct fo_doc d = { 0 };
	struct fo_slots_bubble b;
	struct fo_pp_shape shape;
	if (bubble_of(x, &d, &b, &shape))
		fo_slots_bubble_json(j, &b, &shape, -1);
	fo_doc_fini(&d);
}

static void put_path(const struct fo_sim_ranks *x, struct fo_json *j)
{
	fo_json_array(j, "path");
	for (int32_t i = 0; i < x->path.shares; i++) {
		const struct fo_fleet_share *s = &x->path.share[i];
		fo_json_record(j, NULL, FO_TEXT("operation", x->fleet->name[s->name]),
			       FO_TEXT("what", fo_cli_hold_name[s->hold]), FO_TEXT("lane", fo_lane_name[s->lane]),
			       FO_INT("rank", x->run->class[s->class].first),
			       FO_INT("ranks", x->run->class[s->class].ranks), FO_REAL("seconds", s->seconds));
	}
	fo_json_close(j);
}

fo_status fo_cli_predict_ranks_files(const struct fo_predict_ranks *x, const char *dir, const char *trace)
{
	struct fo_str out = { 0 };
	int32_t *rank, n;
	int written;
	fo_status st = FO_OK;
	if (*dir)
		st = fo_sim_ranks_write(&x->job, dir, TIMELINES_MOST, &written);
	if (st != FO_OK || !*trace)
		return st;
	n = fo_fleet_shown(x->job.run, TIMELINES_MOST, &rank);
	fo_fleet_trace(x->job.run, rank, n, &out);
	st = fo_fs_write_atomic(trace, out.data, out.len);
	fo_str_fini(&out);
	free(rank);
	return st;
}

/* The measured time is rank 0's; the interval is of the rank that shows most communication. */
static double first_exposed(const struct fo_predict_ranks *x) { return x->job.rank[x->job.class_of[0]].exposed_s; }

void fo_cli_predict_ranks(const struct fo_predict_ranks *x, struct fo_doc *d)
{
	const struct fo_sim_ranks *j = &x->job;
	const char *alike = "all alike: one was simulated for all";
	if (!j->alike)
		alike = fo_doc_printf(d, "%d role%s: %d do not do the same at the same times", j->roles,
				      fo_plural(j->roles), j->classes);
	fo_doc_line(d, "ranks", "%d of %d thread%s each, %s", j->ranks, x->threads, fo_plural(x->threads), alike);
	fo_doc_line(d, "step between", "%s", interval(d, j->step_s));
	fo_doc_line(d, "exposed", "%s of communication while no lane computes; of it waiting for a late rank %s",
		    interval(d, j->exposed_s), j->late_s.high > 0 ? interval(d, j->late_s) : "nothing");
	fo_doc_line(d, "hidden", "%s of communication behind computing", interval(d, j->hidden_s));
	say_lanes(x, d);
	say_bubble(j, d);
	say_path(j, d);
	if (j->spread)
		fo_cli_spread_say(d, &j->drawn, j->fleet);
	fo_doc_line(d, "received", "%s a step by rank 0", fo_doc_bytes(d, llround(fo_sim_ranks_wire(j, 0))));
	fo_doc_line(d, "links", "%s", link_text(d, x));
	if (!j->crowd.known)
		fo_doc_line(d, "together",
			    "how much ranks that compute at once slow each other is not in the profile: the interval "
			    "holds up to half again");
	else if (j->crowd.tensor > 1.02)
		fo_doc_line(d, "together",
			    "ranks that compute at once take %.2f times as long as one alone, where memory is the "
			    "limit %.2f times%s",
			    j->crowd.tensor, j->crowd.memory,
			    j->crowd.measured ? " (measured on a run's operations)" : "");
	say_sure(x, d);
	if (x->measured.steps)
		fo_doc_line(d, "measured",
			    "%.4g ms of exposed communication on rank 0, the median of %d steps, the least %.4g ms: "
			    "predicted for that rank %+.1f %%, of the least %+.1f %%",
			    1e3 * x->measured.median_s, x->measured.steps, 1e3 * x->measured.best_s,
			    100 * (first_exposed(x) / x->measured.median_s - 1),
			    100 * (first_exposed(x) / x->measured.best_s - 1));
}

void fo_cli_json_interval(struct fo_json *j, const char *name, struct fo_interval x)
{
	fo_json_record(j, name, FO_REAL("low", x.low), FO_REAL("mid", x.mid), FO_REAL("high", x.high));
}

void fo_cli_predict_ranks_json(const struct fo_predict_ranks *x, struct fo_json *j)
{
	const struct fo_sim_ranks *s = &x->job;
	fo_json_object(j, "ranks");
	fo_json_put(j, FO_INT("ranks", s->ranks), FO_INT("roles", s->roles), FO_INT("threads_each", x->threads),
		    FO_BOOL("alike", s->alike), FO_INT("classes", s->classes));
	fo_cli_json_interval(j, "step_seconds", s->step_s);
	fo_cli_json_interval(j, "exposed_seconds", s->exposed_s);
	fo_cli_json_interval(j, "late_seconds", s->late_s);
	fo_cli_json_interval(j, "hidden_seconds", s->hidden_s);
	fo_json_array(j, "lanes");
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (!fo_lane_carries[l] || !(s->lane_exposed_s[l].high > 0 || s->lane_hidden_s[l].high > 0))
			continue;
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("lane", fo_lane_name[l]), FO_TEXT("carries", fo_lane_carries[l]));
		fo_cli_json_interval(j, "exposed_seconds", s->lane_exposed_s[l]);
		fo_cli_json_interval(j, "hidden_seconds", s->lane_hidden_s[l]);
		if (x->measured.steps)
			fo_json_real(j, "measured_exposed_median_seconds", x->measured.lane_median_s[l]);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_json_put(j, FO_TEXT("over", x->links.over), FO_REAL("received_bytes", fo_sim_ranks_wire(s, 0)),
		    FO_REAL("link_bytes_per_second", x->links.byte_s > 0 ? x->links.byte_s : NAN),
		    FO_REAL("link_latency_seconds", x->links.latency_s), FO_BOOL("crowd_known", s->crowd.known),
		    FO_BOOL("crowd_measured", s->crowd.measured), FO_REAL("crowd_tensor", s->crowd.tensor),
		    FO_REAL("crowd_memory", s->crowd.memory));
	fo_json_object(j, "sure_seconds");
	for (int i = 0; i < FO_SURE_COUNT; i++)
		fo_json_real(j, fo_sure_name[i], s->sure_s[i]);
	fo_json_close(j);
	if (x->measured.steps)
		fo_json_record(j, "measured", FO_INT("steps", x->measured.steps),
			       FO_REAL("predicted_exposed_seconds", first_exposed(x)),
			       FO_REAL("exposed_median_seconds", x->measured.median_s),
			       FO_REAL("exposed_least_seconds", x->measured.best_s));
	put_bubble(s, j);
	put_path(s, j);
	if (s->spread)
		fo_cli_spread_json(j, &s->drawn, s->fleet);
	fo_json_array(j, "memory");
	for (int r = 0; r < s->ranks; r++) {
		const struct fo_unrolled *u = &s->role[s->role_of[r]].u;
		fo_json_record(j, NULL, FO_INT("arena_bytes", u->arena_bytes),
			       FO_INT("persistent_bytes", u->persistent_bytes));
	}
	fo_json_close(j);
	fo_json_close(j);
}
