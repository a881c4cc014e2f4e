/* The measuring half of flatout calibrate. */
#include "base/clock.h"
#include "base/count.h"
#include "cli/cli.h"
#include "comm/measure.h"
#include "comm/mpi.h"
#include "kernel/calibrate.h"
#include "kernel/ceilings.h"
#include "kernel/crowd.h"
#include "kernel/kept.h"
#include "train/overhead.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct screen {
	bool live;
	int64_t last_ns;
	struct fo_state_watch watch;
};

/* Counters of energy wrap within a minute or so (hw/state.c). */
#define SAMPLE_NS 5000000000

static void progress(void *ctx, const char *what, double share)
{
	struct screen *s = ctx;
	int64_t now = fo_now_ns();
	if (now - s->watch.last.when_ns > SAMPLE_NS)
		fo_state_watch_sample(&s->watch);
	if (!s->live || now - s->last_ns < 200000000) /* five times a second is all an eye wants */
		return;
	s->last_ns = now;
	char line[80];
	snprintf(line, sizeof line, "  calibrating: %3.0f %%  %s", 100 * share, what);
	fo_cli_live(stderr, line);
}

/* Rows and header are this calibration's; peaks may only rise. */
static void take(struct fo_limits *m, void *ctx)
{
	const struct fo_limits *n = (const struct fo_limits *)ctx;
	for (size_t i = 0; i < n->peaks; i++)
		fo_limits_peak_raise(m, &n->peak[i]);
	memcpy(m->isa, n->isa, sizeof m->isa);
	memcpy(m->date, n->date, sizeof m->date);
	memcpy(m->method, n->method, sizeof m->method);
	m->cache_bytes = n->cache_bytes;
	m->state = n->state;
	m->rows = 0;
	for (size_t i = 0; i < n->rows; i++)
		fo_limits_row_add(m, &n->row[i]);
}

static fo_status measure(struct fo_limits *m, struct fo_ceilings_options *o)
{
	struct fo_overhead *overhead;
	struct fo_ceilings_result r;
	FO_TRY(fo_isa_choose(&o->isa));
	FO_TRY(fo_overhead_new(&overhead));
	struct fo_ceilings_extra extra = {
		.row = { .kind = "overhead", .variant = "executor", .dtype = "-", .set = "null", .threads = 1 },
		.fn = fo_overhead_run,
		.arg = overhead,
		.units = fo_overhead_operations(overhead)
	};
	o->extra = &extra;
	o->extras = 1;
	fo_status st = fo_ceilings_measure(o, m, &r);
	fo_overhead_free(overhead);
	if (st != FO_OK)
		return st;
	fprintf(stderr, "measured %d lines in %.0f s, %.0f %% of the time quiet\n", r.rows, r.seconds,
		r.spans ? 100.0 * (double)r.quiet / (double)r.spans : 0);
	if (r.kept)
		fprintf(stderr, "kept %d older lines: these had quiet spans before and none now\n", r.kept);
	if (r.left_out)
		fprintf(stderr, "left out %d shapes: too little time or memory\n", r.left_out);
	return FO_OK;
}

/* Long enough for some calls of 16 MiB in each group; less where less is asked for. */
#define LINKS_S 10
#define PEAK_S 0.5
#define CROWD_S 5
/* Ten spans of the longest wait; a tenth of the time where less is asked for. */
#define KEPT_S 4
#define KEPT_SHARE 0.1

static double links_seconds(const struct fo_cli_calibration *c)
{
	return c->seconds > 0 && c->seconds < LINKS_S ? c->seconds : LINKS_S;
}

/* Calls between ranks, and the peak of all their threads together: what ranks that compute at once take from each
 * other. */
static fo_status measure_links(struct fo_limits *m, const struct fo_cli_calibration *c, struct screen *s)
{
	int threads = c->threads ? c->threads : fo_cpu_threads(),
	    each = threads / c->ranks > 1 ? threads / c->ranks : 1;
	int all = (int)fo_min(each * c->ranks, fo_cpu_threads());
	for (int k = 0; k < 4; k++) {
		struct fo_limits_peak p;
		int dtype = k % 2 ? FO_BF16 : FO_F32, count = k < 2 ? each : all;
		if (fo_limits_peak(m, fo_dtype_name[dtype], count))
			continue;
		FO_TRY(fo_calibrate_peak(dtype, count, PEAK_S, &p));
		fo_limits_peak_raise(m, &p);
	}
	if (c->program) {
		enum fo_isa isa;
		FO_TRY(fo_isa_choose(&isa));
		FO_TRY(fo_crowd_measure(c->program, isa, each, c->ranks, fmin(links_seconds(c), CROWD_S), m, progress,
					s));
	}
	return fo_comm_measure(c->ranks, links_seconds(c), m, progress, s);
}

static void record_state(struct screen *s, struct fo_limits_state *out)
{
	struct fo_machine now;
	fo_state_watch_sample(&s->watch);
	fo_machine_read(&now, "");
	out->use = fo_state_watch_total(&s->watch);
	memcpy(out->governor, now.governor, sizeof out->governor);
}

fo_status fo_cli_calibrate(const char *path, const struct fo_cli_calibration *c)
{
	struct screen s = { .live = c->live && fo_cli_is_live(stderr) };
	struct fo_limits m;
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	if (fo_limits_read(path, &m) != FO_OK || strcmp(m.cpu, cpu)) {
		fo_err_clear();
		m = (struct fo_limits){ 0 };
		snprintf(m.cpu, sizeof m.cpu, "%s", cpu);
	}
	int threads = c->threads ? c->threads : fo_cpu_threads();
	if (c->ranks > 1 && c->program) /* a rank computes with its share (train/team.h) */
		threads = threads / c->ranks > 1 ? threads / c->ranks : 1;
	struct fo_ceilings_options o = { .threads = threads,
					 .seconds = c->seconds,
					 .quick = c->quick,
					 .program = c->program,
					 .pairs = c->pairs,
					 .progress = progress,
					 .ctx = &s };
	if (!s.live && c->seconds > 0)
		fprintf(stderr, "calibrating: about %.0f s\n", c->seconds);
	else if (!s.live)
		fprintf(stderr, "calibrating: a minute or some\n");
	fo_state_watch_start(&s.watch, "");
	fo_status st = c->links_alone ? FO_OK : measure(&m, &o);
	if (st == FO_OK && !c->links_alone) {
		progress(&s, "what caches keep", 1);
		st = fo_kept_measure(c->seconds > 0 ? fmin(KEPT_SHARE * c->seconds, KEPT_S) : KEPT_S, &m);
	}
	if (st == FO_OK && c->ranks > 1)
		st = measure_links(&m, c, &s);
	if (!c->links_alone)
		record_state(&s, &m.state);
	if (s.live)
		fprintf(stderr, "\r\033[K");
	if (st == FO_OK)
		st = fo_limits_update(path, cpu, take, &m);
	fo_limits_fini(&m);
	return st;
}

fo_status fo_cli_launched(bool *many, int *rank)
{
	struct fo_comm_launch l;
	FO_TRY(fo_comm_launched(&l));
	*many = l.ranks > 1;
	*rank = l.rank;
	return FO_OK;
}

/* The rows of calls over MPI are this calibration's; all else stays. */
static void take_links(struct fo_limits *m, void *ctx)
{
	const struct fo_limits *n = (const struct fo_limits *)ctx;
	fo_comm_measure_replace(m, n);
}

fo_status fo_cli_calibrate_processes(const char *path, const struct fo_cli_calibration *c)
{
	struct screen s = { .live = c->live && fo_cli_is_live(stderr) };
	struct fo_limits m = { 0 };
	struct fo_comm *world;
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	snprintf(m.cpu, sizeof m.cpu, "%s", cpu);
	FO_TRY(fo_comm_mpi_open(NULL, &world));
	const struct fo_comm_where where = fo_comm_mpi_where(world);
	const bool first = fo_comm_rank(world) == 0;
	const double seconds = c->seconds > 0 ? c->seconds : LINKS_S;
	if (first)
		fprintf(stderr, "measuring calls between %d processes on %d host%s: about %.0f s\n",
			fo_comm_ranks(world), where.nodes, fo_plural(where.nodes), seconds);
	fo_state_watch_start(&s.watch, "");
	fo_status st = first ? fo_comm_measure_world(world, where.nodes == 1, seconds, &m, progress, &s)
			     : fo_comm_measure_world(world, where.nodes == 1, seconds, NULL, NULL, &s);
	if (s.live && first)
		fprintf(stderr, "\r\033[K");
	if (st != FO_OK)
		fo_comm_abort(world);
	fo_comm_close(world);
	if (st == FO_OK && first)
		st = fo_limits_update(path, cpu, take_links, &m);
	fo_limits_fini(&m);
	return st;
}
