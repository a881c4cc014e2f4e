/* Many ranks: how long the simulator takes, and what memory. One JSON line for each job:
 *
 *   bench_sim [RANKS 16384]
 *
 *   step      the 405B's own step program, RANKS / 1024 replicas x 128 shards x 8 tp ranks, 8 micro-batches: roles are
 *             found, built, unrolled and planned, and the step is simulated, with 0 and with 3 ranks that are slow
 *   pipeline  16 stages of 8 layers x RANKS / 128 replicas x 8 tp ranks, 32 micro-batches in the order of 1F1B, 8
 *             operations a layer each way, with 0, 1 and 10 ranks that are slow; and with each operation of each rank
 *             jittered, one operation a layer
 *   predicted the 405B as `flatout predict --cluster` has it, 16 stages x RANKS / 128 replicas x 8 tp ranks, 16
 *             micro-batches, an operation for each forward and backward of a stage; jittered
 *
 * Times of operations are made up (half of 1 PFLOP/s, 2.4 TB/s, links of 300 and 50 GB/s): what is measured is the
 * simulator. cpu_s: of this process, whatever else the machine does. */
#include "base/clock.h"
#include "base/count.h"
#include "base/mem.h"
#include "hw/catalogue.h"
#include "pass/pass.h"
#include "plan/timeline.h"
#include "sim/ranks.h"
#include "sim/walk.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static double now_s(void) { return (double)fo_now_ns() * 1e-9; }

static double cpu_s(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
	       1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static double peak_gb(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_maxrss * 1024e-9;
}

static void die(fo_status st)
{
	if (st == FO_OK)
		return;
	fprintf(stderr, "%s\n", fo_err_text());
	exit(1);
}

/* Slow ranks, spread over the job: 10 % and a little more each. */
static struct fo_fleet_odd *slow_ranks(int32_t ranks, int32_t n)
{
	struct fo_fleet_odd *odd = fo_xmalloc((size_t)(n + 1) * sizeof *odd);
	for (int32_t i = 0; i < n; i++)
		odd[i] = (struct fo_fleet_odd){ (int32_t)((int64_t)ranks * (2 * i + 1) / (2 * n)), 1.1 + 0.001 * i, 1 };
	return odd;
}

/* Peak memory is the process's so far: jobs come in the order of their size. */
static void report(const char *job, const struct fo_fleet *f, int32_t odds, double begin, double cpu)
{
	struct fo_fleet_run run;
	struct fo_fleet_path path;
	die(fo_fleet_simulate(&run, f));
	fo_fleet_path_of(&path, &run);
	printf("{\"job\": \"%s\", \"ranks\": %d, \"slow_ranks\": %d, \"jitter\": %g, \"roles\": %d, \"classes\": %d, "
	       "\"operations\": %lld, \"seconds\": %.3f, \"cpu_s\": %.3f, \"peak_gb\": %.3f, \"step_s\": %.6f, "
	       "\"held_by\": \"%s\", \"held_share\": %.3f}\n",
	       job, fo_fleet_ranks(f), odds, f->jitter, f->roles, run.classes, (long long)run.events, now_s() - begin,
	       cpu_s() - cpu, peak_gb(), run.step_s, f->name[path.share[0].name], path.share[0].seconds / run.step_s);
	fflush(stdout);
	fo_fleet_path_fini(&path);
	fo_fleet_run_fini(&run);
}

/* ---- the 405B's own program ---- */

static void take_times(struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u)
{
	for (int i = 0; i < u->n; i++) {
		const struct fo_op *o = fo_instance_op(p, u, i);
		const struct fo_cost c = fo_op_cost(p, o, -1);
		if (fo_op_info(o->kind)->cls == FO_CLASS_COMM) {
			s->seconds[i] = 10e-6;
			s->hold_s[i] = c.wire / (o->group == FO_GROUP_TP ? 300e9 : 50e9);
		} else {
			s->seconds[i] = fmax(c.exec / 0.5e15, c.bytes / 2.4e12);
		}
	}
}

static void run_step(int32_t ranks, int32_t odds)
{
	const double begin = now_s(), cpu = cpu_s();
	struct fo_model model;
	struct fo_program first;
	struct fo_lowering low = { .seq = 8192,
				   .rows = 1,
				   .micro_batches = 8,
				   .precision = FO_PRECISION_BF16,
				   .mode = FO_MODE_TRAIN,
				   .pass = { .merge_qkv = 1,
					     .merge_gate_up = 1,
					     .fuse_elementwise = 1,
					     .fused_optimizer = 1,
					     .tp = 2,
					     .ddp = 25,
					     .zero = 3,
					     .zero_prefetch = 2 },
				   .mesh = { .replicate = ranks / 1024, .shard = 128, .tp = 8 } };
	struct fo_sim_ranks x;
	struct fo_fleet f;
	die(fo_model_load("llama-3.1-405b", &model));
	die(fo_pass_build(&first, &model, &low));
	die(fo_sim_ranks_init(&x, &first));
	struct fo_sim_rank *role = fo_xmalloc((size_t)x.roles * sizeof *role);
	struct fo_sim *sim = fo_xmalloc((size_t)x.roles * sizeof *sim);
	for (int k = 0; k < x.roles; k++) {
		fo_sim_init(&sim[k], &x.role[k].u, 3e-6);
		take_times(&sim[k], &x.role[k].p, &x.role[k].u);
		role[k] = (struct fo_sim_rank){ &x.role[k].p, &x.role[k].u, &sim[k], NULL };
	}
	struct fo_fleet_odd *odd = slow_ranks(ranks, odds);
	const struct fo_sim_job job = {
		.role = role, .roles = x.roles, .role_of = x.role_of, .meets = true, .odd = odd, .odds = odds
	};
	fo_sim_fleet(&f, &job);
	report("step of the 405B", &f, odds, begin, cpu);
	fo_fleet_fini(&f);
	for (int k = 0; k < x.roles; k++)
		fo_sim_fini(&sim[k]);
	free(odd);
	free(sim);
	free(role);
	fo_sim_ranks_fini(&x);
	fo_program_fini(&first);
}

/* ---- a pipeline ---- */

struct names {
	int32_t forward, backward, tp, send, receive, reduce;
};
struct shape {
	int stages, micro, layers, parts;
	int pp, dp, tp, nvlink, nic;
};

static int32_t transfer(struct fo_fleet_role *r, const struct names *n, const struct shape *s, bool sends, int lane,
			int peer)
{
	return fo_fleet_op_add(r, (struct fo_fleet_op){ .name = sends ? n->send : n->receive,
							.lane = (uint8_t)lane,
							.does = sends ? FO_FLEET_SENDS : FO_FLEET_RECEIVES,
							.group = (uint8_t)s->pp,
							.link = (uint8_t)s->nic,
							.peer = (int16_t)peer,
							.link_s = 1e-3 });
}

/* The layers of a stage one way; behind what was received (-1: nothing). Returns the last operation. */
static int32_t pass(struct fo_fleet_role *r, const struct names *n, const struct shape *s, bool forward, bool last,
		    int32_t received)
{
	int32_t before = received;
	for (int l = 0; l < s->layers; l++) {
		int32_t op = -1;
		for (int k = 0; k < s->parts; k++) {
			op = fo_fleet_op_add(r, (struct fo_fleet_op){ .name = forward ? n->forward : n->backward,
								      .seconds = (forward ? 4e-3 : 8e-3) / s->parts });
			if (!k && before >= 0)
				fo_fleet_need(r, before);
		}
		before = fo_fleet_op_add(r, (struct fo_fleet_op){ .name = n->tp,
								  .lane = FO_LANE_TP,
								  .does = FO_FLEET_CALLS,
								  .group = (uint8_t)s->tp,
								  .link = (uint8_t)s->nvlink,
								  .link_s = 5e-4 });
		fo_fleet_need(r, op);
		if (forward || !last)
			continue;
		fo_fleet_op_add(r, (struct fo_fleet_op){ .name = n->reduce,
							 .lane = FO_LANE_REDUCE,
							 .does = FO_FLEET_CALLS,
							 .group = (uint8_t)s->dp,
							 .link = (uint8_t)s->nic,
							 .link_s = 2e-3 });
		fo_fleet_need(r, op);
	}
	return before;
}

static void add_stage(struct fo_fleet *f, const struct names *n, const struct shape *s, int stage)
{
	char name[32];
	snprintf(name, sizeof name, "stage %d", stage);
	struct fo_fleet_role *r = fo_fleet_role_add(f, name);
	const int warm = (int)fo_min(s->stages - 1 - stage, s->micro);
	for (int k = 0, forwards = 0; k < 2 * s->micro; k++) {
		const bool forward = forwards < s->micro && (k < warm || (k - warm) % 2 == 0);
		const int from = forward ? stage - 1 : stage + 1, to = forward ? stage + 1 : stage - 1;
		int32_t received = -1, last;
		forwards += forward;
		if (from >= 0 && from < s->stages)
			received = transfer(r, n, s, false, forward ? FO_LANE_RECV_FORWARD : FO_LANE_RECV_BACKWARD,
					    from - stage);
		last = pass(r, n, s, forward, k == 2 * s->micro - 1, received);
		if (to < 0 || to >= s->stages)
			continue;
		transfer(r, n, s, true, forward ? FO_LANE_SEND_FORWARD : FO_LANE_SEND_BACKWARD, to - stage);
		fo_fleet_need(r, last);
	}
}

static void run_pipeline(int32_t ranks, int32_t odds, double jitter)
{
	const double begin = now_s(), cpu = cpu_s();
	struct fo_fleet f = { .jitter = jitter, .seed = 1 };
	struct shape s = { .stages = 16, .micro = 32, .layers = 8, .parts = jitter > 0 ? 1 : 8 };
	s.pp = fo_fleet_group(&f, "pp", 1u << fo_fleet_axis(&f, "pp", s.stages));
	s.dp = fo_fleet_group(&f, "dp", 1u << fo_fleet_axis(&f, "dp", ranks / 128));
	s.tp = fo_fleet_group(&f, "tp", 1u << fo_fleet_axis(&f, "tp", 8));
	s.nvlink = fo_fleet_link(&f, "NVLink", 1, false);
	s.nic = fo_fleet_link(&f, "NIC", 1, false);
	f.role_axis = 0;
	const struct names n = { fo_fleet_name(&f, "forward"), fo_fleet_name(&f, "backward"),
				 fo_fleet_name(&f, "tp sum"),  fo_fleet_name(&f, "send"),
				 fo_fleet_name(&f, "receive"), fo_fleet_name(&f, "sum") };
	for (int stage = 0; stage < s.stages; stage++)
		add_stage(&f, &n, &s, stage);
	struct fo_fleet_odd *odd = slow_ranks(ranks, odds);
	f.odd = odd;
	f.odds = odds;
	report("pipeline", &f, odds, begin, cpu);
	fo_fleet_fini(&f);
	free(odd);
}

/* ---- a predicted step ---- */

static void run_predicted(int32_t ranks)
{
	const double begin = now_s(), cpu = cpu_s();
	struct fo_catalogue c;
	const struct fo_device *d;
	struct fo_model m;
	struct fo_predict_job job = { .style = fo_predict_style_of("megatron"), .type = FO_PREDICT_BF16, .seq = 8192 };
	struct fo_predict_base base;
	struct fo_predict_step s;
	struct fo_plan_timeline t;
	const struct fo_predict_layout l = { .devices = ranks,
					     .tp = 8,
					     .sp = true,
					     .pp = 16,
					     .zero = 1,
					     .micro_batch = 1,
					     .micro_batches = 16,
					     .global_batch = ranks / 8.0 };
	die(fo_catalogue_load(&c, NULL));
	die(fo_catalogue_find(&c, "h100", &d));
	die(fo_model_load("llama-3.1-405b", &m));
	die(fo_predict_machine_of(d, &job.machine));
	job.machine.per_node = 8;
	fo_predict_model_of(&m, &job.model);
	const char *wrong = fo_predict_prepare(&job, &base);
	if (!wrong) {
		fo_predict_point(&base, &l, &s);
		wrong = s.wrong;
	}
	if (wrong) {
		fprintf(stderr, "%s\n", wrong);
		exit(1);
	}
	die(fo_plan_timeline_of(&t, &l, &s));
	t.fleet.jitter = 0.02;
	t.fleet.seed = 1;
	report("predicted", &t.fleet, 0, begin, cpu);
	fo_plan_timeline_fini(&t);
	fo_catalogue_fini(&c);
}

int main(int argc, char **argv)
{
	const int32_t ranks = argc > 1 ? atoi(argv[1]) : 16384;
	if (ranks < 1024 || ranks % 1024 || ranks > FO_FLEET_RANKS_MOST) {
		fprintf(stderr, "usage: bench_sim [RANKS, a multiple of 1024 up to %d]\n", FO_FLEET_RANKS_MOST);
		return 2;
	}
	run_pipeline(ranks, 0, 0);
	run_pipeline(ranks, 1, 0);
	run_pipeline(ranks, 10, 0);
	if (ranks <= FO_MESH_RANKS_MOST) {
		run_step(ranks, 0);
		run_step(ranks, 3);
	}
	if (ranks <= 16384)
		run_pipeline(ranks, 0, 0.02);
	run_predicted(ranks);
	return 0;
}
