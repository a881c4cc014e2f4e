/* The simulator of many ranks: jobs small enough to be computed by hand, pipelines against their closed formula, and
 * random jobs of which one rank of each class is simulated against the same jobs rank by rank. */
#include "sim/fleet.h"
#include "support/must.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void near(double got, double want)
{
	if (!(fabs(got - want) <= 1e-12 + 1e-9 * fabs(want)))
		fail_msg("got %.12g, expected %.12g", got, want);
}

static int32_t work(struct fo_fleet *f, struct fo_fleet_role *r, const char *name, double seconds)
{
	return fo_fleet_op_add(r, (struct fo_fleet_op){ .name = fo_fleet_name(f, name), .seconds = seconds });
}

static int32_t call(struct fo_fleet *f, struct fo_fleet_role *r, const char *name, int lane, int group, double link_s)
{
	return fo_fleet_op_add(r, (struct fo_fleet_op){ .name = fo_fleet_name(f, name),
							.lane = (uint8_t)lane,
							.does = FO_FLEET_CALLS,
							.group = (uint8_t)group,
							.link_s = link_s });
}

static int32_t pair(struct fo_fleet *f, struct fo_fleet_role *r, int lane, bool sends, int group, int peer,
		    double link_s)
{
	return fo_fleet_op_add(r, (struct fo_fleet_op){ .name = fo_fleet_name(f, sends ? "send" : "receive"),
							.lane = (uint8_t)lane,
							.does = sends ? FO_FLEET_SENDS : FO_FLEET_RECEIVES,
							.group = (uint8_t)group,
							.peer = (int16_t)peer,
							.link_s = link_s });
}

static const struct fo_fleet_class *class_of(const struct fo_fleet_run *run, int32_t rank)
{
	return &run->class[run->class_of[rank]];
}

/* ---- by hand ---- */

/* Two sums of one link second each on one link: alone 1 s; together each takes 2 s. The first begins at 1, the
 * second, on another lane, at 1.5: half is left of the first, which takes until 2.5; then a half is left of the
 * second. A serial link carries the second from 2 to 3. */
static void test_links(void **state)
{
	(void)state;
	for (int serial = 0; serial < 2; serial++) {
		struct fo_fleet f = { 0 };
		struct fo_fleet_run run;
		int all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 4));
		fo_fleet_link(&f, "link", 1, serial);
		struct fo_fleet_role *r = fo_fleet_role_add(&f, "all");
		int32_t a = work(&f, r, "a", 1);
		int32_t x = call(&f, r, "sum", FO_LANE_REDUCE, all, 1);
		fo_fleet_need(r, a);
		int32_t b = work(&f, r, "b", 0.5);
		int32_t y = call(&f, r, "gather", FO_LANE_GATHER, all, 1);
		fo_fleet_need(r, b);
		must(fo_fleet_simulate(&run, &f));
		assert_int_equal(run.classes, 1);
		assert_int_equal(run.class[0].ranks, 4);
		near(run.class[0].end_s[x], serial ? 2 : 2.5);
		near(run.class[0].end_s[y], 3);
		near(run.step_s, 3);
		struct fo_fleet_sums s;
		fo_fleet_sums_of(&s, &run, 0);
		assert_int_equal(s.step_ns, 3000000000);
		assert_int_equal(s.compute_ns, 1500000000);
		assert_int_equal(s.hidden_transfer_ns, 500000000);
		assert_int_equal(s.transfer_ns, 1500000000);
		assert_int_equal(s.wait_ns + s.other_ns + s.tail_ns, 0);
		assert_int_equal(s.lane_exposed_ns[FO_LANE_GATHER], 1500000000); /* the first lane counts */
		fo_fleet_run_fini(&run);
		fo_fleet_fini(&f);
	}
}

/* Four ranks, two to a host that share its link; sums over one rank of each host. The two sums of a host are under way
 * at once, so each takes twice its second. Where rank 0 comes 1 s later, rank 1's group has the link alone for 1 s. */
static void test_host_link(void **state)
{
	(void)state;
	for (int late = 0; late < 2; late++) {
		const struct fo_fleet_odd odd[] = { { 0, 2, 1 } };
		struct fo_fleet f = { .odd = odd, .odds = late };
		struct fo_fleet_run run;
		int across = fo_fleet_group(&f, "across", 1u << fo_fleet_axis(&f, "host", 2));
		fo_fleet_axis(&f, "local", 2);
		fo_fleet_link(&f, "NIC", 2, false);
		struct fo_fleet_role *r = fo_fleet_role_add(&f, "all");
		int32_t a = work(&f, r, "a", 1), x = call(&f, r, "sum", FO_LANE_REDUCE, across, 1);
		fo_fleet_need(r, a);
		must(fo_fleet_simulate(&run, &f));
		assert_int_equal(run.classes, late ? 4 : 1);
		near(class_of(&run, 1)->end_s[x], late ? 2 : 3);
		near(class_of(&run, 0)->end_s[x], 3);
		near(class_of(&run, 2)->end_s[x], 3);
		fo_fleet_run_fini(&run);
		fo_fleet_fini(&f);
	}
}

/* Two ranks of a host slow each other by half while both compute. Rank 1 has 1 s less to do: both go at 2/3 until it
 * ends (1 s of work: 1.5 s), then rank 0 does its second second alone. */
static void test_crowd(void **state)
{
	(void)state;
	const double slow[] = { 1, 1.5 };
	const struct fo_fleet_odd odd[] = { { 0, 2, 1 } };
	struct fo_fleet f = { .odd = odd, .odds = 1, .crowd = { 2, 2, { slow, slow } } };
	struct fo_fleet_run run;
	fo_fleet_axis(&f, "x", 4);
	int32_t a = work(&f, fo_fleet_role_add(&f, "all"), "a", 1);
	must(fo_fleet_simulate(&run, &f));
	assert_int_equal(run.classes, 3);
	near(class_of(&run, 1)->end_s[a], 1.5);
	near(class_of(&run, 0)->end_s[a], 2.5);
	near(class_of(&run, 2)->end_s[a], 1.5);
	near(class_of(&run, 3)->end_s[a], 1.5);
	fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
}

/* What comes 0.5 s after it could: the call of rank 0 at 1.75, so all others wait; the path has the pauses. */
static void test_before(void **state)
{
	(void)state;
	struct fo_fleet f = { 0 };
	struct fo_fleet_run run;
	struct fo_fleet_path p;
	const int32_t role_of[] = { 0, 1, 1 };
	int all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 3));
	f.role_of = role_of;
	for (int k = 0; k < 2; k++) {
		struct fo_fleet_role *r = fo_fleet_role_add(&f, "role");
		int32_t a = work(&f, r, "a", 1), x = call(&f, r, "sum", FO_LANE_REDUCE, all, 0);
		r->op[x].seconds = 2;
		r->op[x].before_s = k ? 0 : 0.5;
		fo_fleet_need(r, a);
		r->op[a].before_s = k ? 0 : 0.25;
	}
	must(fo_fleet_simulate(&run, &f));
	assert_int_equal(run.classes, 2);
	near(run.class[0].begin_s[1], 1.75);
	near(run.class[1].begin_s[1], 1);
	near(run.step_s, 3.75);
	fo_fleet_path_of(&p, &run);
	assert_int_equal(p.pieces, 4);
	near(p.piece[0].end_s, 0.25);
	assert_int_equal(p.piece[2].hold, FO_FLEET_HOLD_DISPATCH);
	near(p.piece[2].end_s - p.piece[2].begin_s, 0.5);
	fo_fleet_path_fini(&p);
	fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
}

/* ---- pipelines ---- */

/* 1F1B of `stages` x `micro` x 2 replicas, with F and B of each stage in seconds. Transfers take no time. */
static void pipeline(struct fo_fleet *f, int stages, int micro, double F, double B)
{
	*f = (struct fo_fleet){ 0 };
	int pp = fo_fleet_group(f, "pp", 1u << fo_fleet_axis(f, "pp", stages));
	int dp = fo_fleet_group(f, "dp", 1u << fo_fleet_axis(f, "dp", 2));
	fo_fleet_link(f, "NIC", 1, false);
	f->role_axis = 0;
	for (int s = 0; s < stages; s++) {
		struct fo_fleet_role *r = fo_fleet_role_add(f, "stage");
		const int warm = stages - 1 - s < micro ? stages - 1 - s : micro;
		int32_t last = -1;
		for (int k = 0, forwards = 0; k < 2 * micro; k++) {
			const bool forward = forwards < micro && (k < warm || (k - warm) % 2 == 0);
			int32_t got = -1;
			forwards += forward;
			if (forward && s)
				got = pair(f, r, FO_LANE_RECV_FORWARD, false, pp, -1, 0);
			if (!forward && s < stages - 1)
				got = pair(f, r, FO_LANE_RECV_BACKWARD, false, pp, 1, 0);
			last = work(f, r, forward ? "F" : "B", forward ? F : B);
			if (got >= 0)
				fo_fleet_need(r, got);
			if (forward && s < stages - 1) {
				pair(f, r, FO_LANE_SEND_FORWARD, true, pp, 1, 0);
				fo_fleet_need(r, last);
			}
			if (!forward && s) {
				pair(f, r, FO_LANE_SEND_BACKWARD, true, pp, -1, 0);
				fo_fleet_need(r, last);
			}
		}
		call(f, r, "sum", FO_LANE_REDUCE, dp, 0);
		fo_fleet_need(r, last);
	}
}

/* The step is (micro + stages - 1)(F + B), and the path that holds it has no gap. */
static void test_pipeline(void **state)
{
	(void)state;
	for (int stages = 1; stages <= 6; stages++)
		for (int micro = stages; micro <= 9; micro += 2) {
			struct fo_fleet f;
			struct fo_fleet_run run;
			struct fo_fleet_path p;
			pipeline(&f, stages, micro, 1, 2);
			must(fo_fleet_simulate(&run, &f));
			assert_int_equal(run.classes, stages);
			near(run.step_s, (micro + stages - 1) * 3.0);
			for (int s = 0; s < stages; s++) {
				struct fo_fleet_sums x;
				fo_fleet_sums_of(&x, &run, s);
				assert_int_equal(x.compute_ns, micro * 3000000000LL);
			}
			fo_fleet_path_of(&p, &run);
			double at = 0, sum = 0;
			for (int32_t i = 0; i < p.pieces; i++) {
				near(p.piece[i].begin_s, at);
				at = p.piece[i].end_s;
			}
			near(at, run.step_s);
			for (int32_t i = 0; i < p.shares; i++)
				sum += p.share[i].seconds;
			near(sum, run.step_s);
			fo_fleet_path_fini(&p);
			fo_fleet_run_fini(&run);
			fo_fleet_fini(&f);
		}
}

/* A rank of replica 1 that takes twice as long holds the step: the path is on it, and its replica waits. */
static void test_straggler(void **state)
{
	(void)state;
	const struct fo_fleet_odd odd[] = { { 3, 2, 1 } }; /* stage 1, replica 1 */
	struct fo_fleet f;
	struct fo_fleet_run run;
	struct fo_fleet_path p;
	pipeline(&f, 3, 8, 1, 2);
	f.odd = odd;
	f.odds = 1;
	must(fo_fleet_simulate(&run, &f));
	assert_int_equal(run.classes, 6);
	/* Stage 1 does 8 times 2 + 4 s, from 1 s on; its first backward waits for stage 2 from 5 s to 6 s, and
	 * behind its last one comes stage 0's. */
	near(run.step_s, 1 + 8 * 6 + 1 + 2);
	fo_fleet_path_of(&p, &run);
	assert_string_equal(f.name[p.share[0].name], "B");
	assert_int_equal(run.class[p.share[0].class].first, 3);
	near(p.share[0].seconds, 2 + 8 * 4 + 2);
	near(p.share[0].class_s, 8 * 4);
	int32_t *rank, n = fo_fleet_shown(&run, 2, &rank);
	assert_int_equal(n, 2);
	assert_int_equal(rank[1], 3);
	struct fo_str out = { 0 };
	fo_fleet_trace(&run, rank, n, &out);
	assert_non_null(strstr(out.data, "\"name\":\"late rank: receive\""));
	fo_str_fini(&out);
	free(rank);
	fo_fleet_path_fini(&p);
	fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
}

/* ---- random jobs ---- */

static int below(uint64_t *g, int n) { return (int)(fo_rng_u64(5, (*g)++) % (uint64_t)n); }

/* A mesh of three axes, roles along one of them, some calls in each group, a chain of neighbours, hosts. All roles make
 * the same calls; what they compute differs. */
static void any_job(struct fo_fleet *f, uint64_t *g)
{
	*f = (struct fo_fleet){ 0 };
	for (int a = 0; a < 3; a++)
		fo_fleet_axis(f, "axis", 1 + below(g, 3));
	static const uint32_t axes[] = { 1, 2, 4, 3, 6, 7, 2, 5 };
	for (int k = 0; k < 8; k++)
		fo_fleet_group(f, "group", axes[k]);
	f->group[6].ends = f->group[7].ends = true;
	fo_fleet_link(f, "own", 1, below(g, 2));
	fo_fleet_link(f, "host", 1 + below(g, 4), false);
	f->role_axis = below(g, 3);
	const int ops = 3 + below(g, 12), roles = below(g, 2) ? f->axis[f->role_axis] : 1;
	struct fo_fleet_op op[20];
	for (int i = 0; i < ops; i++) {
		static const uint8_t lane[] = { FO_LANE_REDUCE, FO_LANE_GATHER, FO_LANE_TP };
		op[i] = (struct fo_fleet_op){ .name = fo_fleet_name(f, below(g, 2) ? "a" : "b") };
		op[i].does = below(g, 3) ? FO_FLEET_WORKS : FO_FLEET_CALLS;
		op[i].lane = op[i].does == FO_FLEET_CALLS ? lane[below(g, 3)]
							  : (uint8_t)(below(g, 3) ? 0 : FO_LANE_WGRAD);
		op[i].group = op[i].does == FO_FLEET_CALLS ? (uint8_t)below(g, 8) : 0;
		op[i].link = (uint8_t)below(g, 2);
		op[i].link_s = op[i].does == FO_FLEET_CALLS ? below(g, 4) + 1e-3 * below(g, 1000) : 0;
	}
	for (int k = 0; k < roles; k++) {
		struct fo_fleet_role *r = fo_fleet_role_add(f, "role");
		r->after_s = k % 2 ? 0.25 : 0;
		for (int i = 0; i < ops; i++) {
			struct fo_fleet_op x = op[i];
			x.before_s = below(g, 8) ? 0 : 0.125;
			x.seconds = below(g, 4) + 1e-3 * below(g, 1000); /* no two end at the same time by chance */
			fo_fleet_op_add(r, x);
			for (int n = 0; n < i; n++)
				if (!below(g, 4))
					fo_fleet_need(r, n);
		}
	}
}

/* One of each class does to the bit what all do by themselves: same role programs, some ranks slower. */
static void test_classes(void **state)
{
	(void)state;
	uint64_t g = 0;
	int fewer = 0, ran = 0;
	for (int round = 0; round < 400; round++) {
		struct fo_fleet f;
		struct fo_fleet_run one, all;
		struct fo_fleet_odd odd[3];
		const double slow[] = { 1, 1.25, 2 };
		any_job(&f, &g);
		const int32_t ranks = fo_fleet_ranks(&f);
		int odds = 0;
		for (int32_t r = 0; r < ranks && odds < 3; r++)
			if (!below(&g, 8))
				odd[odds++] = (struct fo_fleet_odd){ r, 1 + below(&g, 2), 1 + below(&g, 2) };
		f.odd = odd;
		f.odds = odds;
		if (below(&g, 2))
			f.crowd = (struct fo_fleet_crowd){ 1 + below(&g, 4), 3, { slow, slow } };
		fo_status st = fo_fleet_simulate(&one, &f);
		f.apart = true;
		fo_status other = fo_fleet_simulate(&all, &f);
		assert_int_equal(st, other); /* calls of lanes may wait for each other for ever */
		if (st == FO_OK) {
			ran++;
			fewer += one.classes < all.classes;
			near(one.step_s, all.step_s);
			for (int32_t r = 0; r < ranks; r++) {
				const struct fo_fleet_class *x = class_of(&one, r), *y = class_of(&all, r);
				for (int32_t i = 0; i < f.role[x->role].ops; i++) {
					near(x->begin_s[i], y->begin_s[i]);
					near(x->end_s[i], y->end_s[i]);
				}
			}
			fo_fleet_run_fini(&one);
			fo_fleet_run_fini(&all);
		}
		fo_fleet_fini(&f);
	}
	assert_true(ran > 200 && fewer > 100);
}

/* Jitter: every rank differs, the seed decides, and the mean of the work is that of the distribution. */
static void test_jitter(void **state)
{
	(void)state;
	double step[3];
	for (int k = 0; k < 3; k++) {
		struct fo_fleet f = { .jitter = 0.1, .seed = k < 2 ? 1 : 2 };
		struct fo_fleet_run run;
		int all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 4096));
		struct fo_fleet_role *r = fo_fleet_role_add(&f, "all");
		int32_t a = work(&f, r, "a", 1);
		call(&f, r, "sum", FO_LANE_REDUCE, all, 0);
		fo_fleet_need(r, a);
		must(fo_fleet_simulate(&run, &f));
		assert_int_equal(run.classes, 4096);
		double mean = 0, square = 0;
		for (int c = 0; c < 4096; c++) {
			const double x = log(run.class[c].end_s[a]);
			mean += x / 4096;
			square += x * x / 4096;
		}
		assert_true(fabs(mean) < 0.01 && fabs(sqrt(square) - 0.1) < 0.005); /* five standard errors */
		step[k] = run.step_s;
		fo_fleet_run_fini(&run);
		fo_fleet_fini(&f);
	}
	assert_true(step[0] == step[1] && step[0] != step[2]);
}

/* ---- what cannot be ---- */

static void refused(struct fo_fleet *f, fo_status st, const char *text)
{
	struct fo_fleet_run run;
	assert_int_equal(fo_fleet_simulate(&run, f), st);
	if (!strstr(fo_err_text(), text))
		fail_msg("'%s' does not say '%s'", fo_err_text(), text);
	fo_fleet_fini(f);
}

static void test_refused(void **state)
{
	(void)state;
	struct fo_fleet f = { 0 };
	int all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 2));
	refused(&f, FO_EARG, "a job of 2 ranks has no role");
	/* One calls, the other does not. */
	f = (struct fo_fleet){ 0 };
	all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 2));
	call(&f, fo_fleet_role_add(&f, "a"), "sum", FO_LANE_REDUCE, all, 0);
	work(&f, fo_fleet_role_add(&f, "b"), "work", 1);
	refused(&f, FO_EBUG, "the step of 2 ranks never ends: rank 0 waits in sum on lane reduce");
	/* They call different things. */
	f = (struct fo_fleet){ 0 };
	all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 2));
	for (int k = 0; k < 2; k++) {
		struct fo_fleet_role *r = fo_fleet_role_add(&f, "a");
		int32_t i = call(&f, r, k ? "sum" : "gather", FO_LANE_REDUCE, all, 0);
		r->op[i].what = 1 + (uint64_t)k;
	}
	refused(&f, FO_EBUG, "rank 1 calls 'sum' where rank 0 calls 'gather'");
	/* Behind the last rank is none. */
	f = (struct fo_fleet){ 0 };
	all = fo_fleet_group(&f, "all", 1u << fo_fleet_axis(&f, "x", 2));
	pair(&f, fo_fleet_role_add(&f, "a"), FO_LANE_SEND_FORWARD, true, all, 1, 0);
	refused(&f, FO_EBUG, "rank 1: 'send' is with place +1 of group 'all' from here, which there is not");
	f = (struct fo_fleet){ 0 };
	fo_fleet_axis(&f, "x", 2);
	work(&f, fo_fleet_role_add(&f, "a"), "work", -1);
	refused(&f, FO_EARG, "'work' of role 'a' takes -1 s of ranks");
	f = (struct fo_fleet){ 0 };
	fo_fleet_axis(&f, "x", 2);
	fo_fleet_role_add(&f, "a");
	fo_fleet_role_add(&f, "b");
	fo_fleet_role_add(&f, "c");
	refused(&f, FO_EARG, "3 roles and no axis");
	f = (struct fo_fleet){ 0 };
	fo_fleet_axis(&f, "x", 0);
	fo_fleet_role_add(&f, "a");
	refused(&f, FO_EARG, "an axis without ranks");
	const struct fo_fleet_odd odd[] = { { 2, 1, 1 } };
	f = (struct fo_fleet){ .odd = odd, .odds = 1 };
	fo_fleet_axis(&f, "x", 2);
	fo_fleet_role_add(&f, "a");
	refused(&f, FO_EARG, "rank 2, which differs");
	f = (struct fo_fleet){ 0 };
	fo_fleet_axis(&f, "x", 2);
	struct fo_fleet_role *r = fo_fleet_role_add(&f, "a");
	work(&f, r, "work", 1);
	fo_fleet_need(r, 0);
	refused(&f, FO_EARG, "waits for operation 0, which is not before it");
	f = (struct fo_fleet){ .jitter = 0.1 };
	fo_fleet_axis(&f, "x", 1 << 17);
	r = fo_fleet_role_add(&f, "a");
	for (int i = 0; i < 1000; i++)
		work(&f, r, "work", 1);
	refused(&f, FO_EUNSUPPORTED, "131072 of 131072 ranks differ");
}

/* Nothing to do, and a job of one rank. */
static void test_small(void **state)
{
	(void)state;
	struct fo_fleet f = { 0 };
	struct fo_fleet_run run;
	struct fo_fleet_path p;
	struct fo_fleet_sums s;
	fo_fleet_role_add(&f, "nothing");
	must(fo_fleet_simulate(&run, &f));
	near(run.step_s, 0);
	fo_fleet_path_of(&p, &run);
	assert_int_equal(p.pieces, 0);
	fo_fleet_sums_of(&s, &run, 0);
	assert_int_equal(s.step_ns, 0);
	fo_fleet_path_fini(&p);
	fo_fleet_run_fini(&run);
	fo_fleet_fini(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_links),   cmocka_unit_test(test_host_link), cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_before),  cmocka_unit_test(test_pipeline),  cmocka_unit_test(test_straggler),
		cmocka_unit_test(test_classes), cmocka_unit_test(test_jitter),    cmocka_unit_test(test_refused),
		cmocka_unit_test(test_small),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
