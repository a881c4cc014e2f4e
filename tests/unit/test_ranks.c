/* Traces of several ranks: which files, whose they are, which collectives are one, clocks, waiting and transfer, who is
 * last. */
#define _XOPEN_SOURCE 700 /* mkdtemp */
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "diagnose/diagnose.h"
#include "support/must.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[] = "test_ranks.XXXXXX";

static char *in_dir(const char *name)
{
	static char path[32][256];
	static int turn;
	char *p = path[turn++ % 32];
	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}
static void write_text(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	if (!f)
		fail_msg("cannot write '%s'", path);
	fputs(text, f);
	fclose(f);
}

/* ---- a trace by hand; times in us ---- */

static struct fo_str out;
static int serial;

static void begin_trace(int rank, int world)
{
	out.len = 0;
	serial = 0;
	fo_str_puts(&out, "{");
	if (rank >= 0)
		fo_str_printf(&out, "\"distributedInfo\":{\"backend\":\"nccl\",\"rank\":%d,\"world_size\":%d},", rank,
			      world);
	fo_str_puts(&out, "\"traceEvents\":[");
}
static void kernel(const char *name, int stream, double ts, double dur, const char *args)
{
	serial++;
	fo_str_printf(&out,
		      "%s{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"
		      "\"ts\":%.3f,\"dur\":1,\"args\":{"
		      "\"correlation\":%d}},{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,\"tid\":%d,"
		      "\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
		      "\"device\":0,\"stream\":%d,\"correlation\":%d%s}}",
		      serial > 1 ? "," : "", 10.0 + serial, serial, name, stream, ts, dur, stream, serial, args);
}
static const char *group(const char *name, const char *pg, const char *members, int size, int seq, const char *more)
{
	static char text[512];
	snprintf(text, sizeof text,
		 ",\"Collective name\":\"%s\",\"Process Group Name\":\"%s\",\"Process Group Ranks\":\"%s\",\"Group "
		 "size\":%d,"
		 "\"Seq\":%d%s",
		 name, pg, members, size, seq, more);
	return text;
}
static char *end_trace(const char *name)
{
	/* The name makes the files differ: two ranks never record the same bytes. */
	fo_str_printf(&out, "],\"traceName\":\"%s\"}", name);
	char *path = in_dir(name);
	write_text(path, out.data);
	return path;
}
static const char gemm[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";
static const char reduce[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*, unsigned long, ncclWork*)";
static const char exchange[] = "ncclDevKernel_SendRecv(ncclDevComm*, unsigned long, ncclWork*)";

static void open_set(struct fo_trace_set *s, int n, const char *const *path) { must(fo_trace_set_open(s, path, n)); }
static void refused(int n, const char *const *path, const char *why)
{
	struct fo_trace_set s;
	if (fo_trace_set_open(&s, path, n) == FO_OK) {
		fo_trace_set_fini(&s);
		fail_msg("taken: expected '%s'", why);
	}
	if (!strstr(fo_err_text(), why))
		fail_msg("'%s' does not say '%s'", fo_err_text(), why);
}

/* Only what this file is about. */
static struct fo_diagnosis diagnosed_on(struct fo_trace_set *s, const char *device)
{
	struct fo_diagnosis d = { .set = s, .with = { .price_per_hour = NAN, .device = device } };
	d.rank = fo_xmalloc((size_t)s->count * sizeof *d.rank);
	struct fo_op_waits waits;
	d.ranks = s->count;
	fo_diagnose_collectives(&d, &waits);
	fo_ledger_ranks(d.rank, s->rank, (size_t)s->count, &d.with.ledger, &waits);
	fo_op_waits_fini(&waits);
	fo_diagnose_culprit(&d);
	fo_diagnose_pipeline(&d);
	for (int i = 0; i < d.ranks; i++)
		for (int64_t k = 0; k < d.rank[i].devices; k++)
			for (int64_t n = -1; n < d.rank[i].device[k].steps; n++) {
				const struct fo_ledger *l = n < 0 ? &d.rank[i].device[k].total
								  : &d.rank[i].device[k].step[n].l;
				assert_true(l->exposed_wait_ns >= 0 && l->exposed_transfer_ns >= 0 &&
					    l->exposed_comm_unknown_ns >= 0);
				assert_int_equal(l->exposed_wait_ns + l->exposed_transfer_ns +
							 l->exposed_comm_unknown_ns,
						 l->exposed_comm_ns);
			}
	return d;
}
static struct fo_diagnosis diagnosed(struct fo_trace_set *s) { return diagnosed_on(s, NULL); }
static void done(struct fo_diagnosis *d, struct fo_trace_set *s)
{
	fo_diagnosis_fini(d);
	fo_trace_set_fini(s);
}

/* ---- whose ---- */

static char *plain(int rank, int world, const char *name)
{
	begin_trace(rank, world);
	kernel(gemm, 7, 100, 50, "");
	return end_trace(name);
}

static void test_whose(void **state)
{
	(void)state;
	struct fo_trace_set s;
	const char *two[3] = { plain(1, 2, "a.json"), plain(0, 2, "b.json") };
	open_set(&s, 2, two);
	assert_int_equal(s.count, 2);
	assert_int_equal(s.rank[0]->rank, 0);
	assert_string_equal(s.rank[0]->path, two[1]);
	assert_int_equal(s.rank[0]->rank_from, FO_RANK_RECORDED);
	assert_int_equal(s.residual_ns, -1);
	fo_trace_set_fini(&s);
	/* From names; the last number counts, folders too. */
	must(fo_fs_mkdirs(in_dir("run/rank12")));
	const char *named[3] = { plain(-1, 0, "trace_rank_3_of_8.json"), plain(-1, 0, "worker0_step_12.1694.json"),
				 plain(-1, 0, "run/rank12/t.json") };
	open_set(&s, 3, named);
	assert_int_equal(s.rank[0]->rank, 0);
	assert_int_equal(s.rank[1]->rank, 3);
	assert_int_equal(s.rank[2]->rank, 12);
	assert_int_equal(s.rank[2]->rank_from, FO_RANK_FILE_NAME);
	fo_trace_set_fini(&s);
	const char *order[2] = { plain(-1, 0, "z.json"), plain(-1, 0, "y.json") };
	open_set(&s, 2, order);
	assert_string_equal(s.rank[0]->path, order[0]);
	assert_int_equal(s.rank[1]->rank, 1);
	assert_int_equal(s.rank[1]->rank_from, FO_RANK_ORDER);
	fo_trace_set_fini(&s);
	open_set(&s, 1, order);
	assert_int_equal(s.rank[0]->rank, -1);
	fo_trace_set_fini(&s);
	const char *mixed[2] = { two[0], order[0] }, *twice[2] = { two[0], two[0] },
		   *worlds[2] = { two[1], plain(1, 4, "four.json") };
	refused(2, mixed, "does not say its rank");
	refused(2, twice, "a.json' is given twice");
	assert_non_null(strstr(fo_err_hint(), "flatout compare"));
	const char *linked[2] = { two[0], in_dir("link.json") }, *both[2] = { two[0], plain(1, 2, "again.json") };
	assert_int_equal(symlink("a.json", linked[1]), 0);
	refused(2, linked, "are one file");
	assert_int_equal(unlink(linked[1]), 0);
	refused(2, both, "two traces of rank 1");
	assert_non_null(strstr(fo_err_hint(), "flatout compare"));
	refused(2, worlds, "of 2 ranks");
	refused(1, (const char *[]){ in_dir("absent.json") }, "absent.json");
	refused(0, NULL, "no trace");
}

static void test_folders(void **state)
{
	(void)state;
	struct fo_trace_set s;
	must(fo_fs_mkdirs(in_dir("job/sub")));
	refused(1, (const char *[]){ in_dir("job") }, "no traces in");
	for (int i = 0; i < 12; i++) {
		char name[64];
		snprintf(name, sizeof name, i % 2 ? "job/sub/rank%d.json" : "job/rank%d.json", i);
		plain(-1, 0, name);
	}
	write_text(in_dir("job/notes.txt"), "nothing");
	write_text(in_dir("job/config.json"), "{\"layers\": 3}");
	write_text(in_dir("job/broken.json"), "<html>");
	open_set(&s, 1, (const char *[]){ in_dir("job") });
	assert_int_equal(s.count, 12);
	assert_int_equal(s.rank[11]->rank, 11);
	assert_int_equal(s.lefts, 2);
	fo_trace_set_fini(&s);
	open_set(&s, 1, (const char *[]){ in_dir("job/rank*.json") });
	assert_int_equal(s.count, 6);
	fo_trace_set_fini(&s);
	refused(1, (const char *[]){ in_dir("job/none*.json") }, "no file matches");
	/* A file that the user named is not left out in silence. */
	refused(2, (const char *[]){ in_dir("job/rank0.json"), in_dir("job/broken.json") }, "broken.json");
}

/* ---- waiting ---- */

/* Three ranks, two collectives by sequence; rank 2 computes longest, the first is hidden behind its compute in part.
 * Rank 1's clock is 5 ms ahead. */
static void three(const char *const name[3], const char *pg_of_last, int gap)
{
	static const double compute[3] = { 100, 130, 190 };
	for (int r = 0; r < 3; r++) {
		double clock = r == 1 ? 5000 : 0, t = 1000 + clock;
		begin_trace(r, 3);
		kernel(gemm, 7, t, compute[r], "");
		kernel(reduce, 9, t + compute[r], 190 - compute[r] + 40,
		       group("allreduce", "0", "[0, 1, 2]", 3, 5, ""));
		if (r == 0)
			kernel(gemm, 7, t + 150, 20, ""); /* hides 50 to 70 of its 130 */
		kernel(gemm, 7, t + 230, 10, "");
		if (!(gap && r == 1))
			kernel(reduce, 9, t + 240, 30,
			       group("allreduce", r == 2 ? pg_of_last : "0", "[0, 1, 2]", 3, 6, ""));
		end_trace(name[r]);
	}
}

static void test_waiting(void **state)
{
	(void)state;
	struct fo_trace_set s;
	const char *name[3] = { "w/rank0.json", "w/rank1.json", "w/rank2.json" };
	must(fo_fs_mkdirs(in_dir("w")));
	three(name, "0", 0);
	open_set(&s, 1, (const char *[]){ in_dir("w") });
	assert_int_equal(s.matches, 2);
	assert_int_equal(s.match_parts, 6);
	assert_int_equal(s.residual_ns, 0);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.waits, 3);
	static const int64_t wait[3] = { 90000, 60000, 0 };
	for (int r = 0; r < 3; r++) {
		assert_int_equal(d.wait[r].rank, r);
		assert_int_equal(d.wait[r].wait_ns, wait[r]);
		assert_int_equal(d.wait[r].transfer_ns, 70000);
		assert_int_equal(d.wait[r].end_skew_ns, 0);
		assert_int_equal(d.wait[r].matched, 2);
		assert_int_equal(d.wait[r].unmatched, 0);
	}
	assert_int_equal(d.wait[2].last + d.wait[0].last, 2); /* the second: all at once */
	assert_int_equal(d.wait[2].caused_ns, 150000);
	/* Of rank 0's 90 us of waiting 20 were hidden behind compute. */
	assert_int_equal(d.rank[0].device[0].total.exposed_wait_ns, 70000);
	assert_int_equal(d.rank[0].device[0].total.exposed_transfer_ns, 70000);
	assert_int_equal(d.rank[1].device[0].total.exposed_wait_ns, 60000);
	assert_int_equal(d.culprit.at, 2);
	assert_string_equal(d.culprit.row, "gemm");
	assert_int_equal(d.culprit.excess_ns, 65000); /* 200 against 130 and 140 */
	assert_true(fabs(d.culprit.share - 1) < 1e-12);
	assert_int_equal(d.pipeline.stages, 0);
	struct fo_str json = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &json, false);
	fo_json_object(&j, NULL);
	fo_diagnosis_ranks_json(&j, &d);
	fo_json_close(&j);
	assert_non_null(strstr(json.data, "\"caused_wait_ns\""));
	fo_str_fini(&json);
	done(&d, &s);
}

/* What is not on every member says nothing. */
static void test_unmatched(void **state)
{
	(void)state;
	struct fo_trace_set s;
	const char *name[3] = { "w/rank0.json", "w/rank1.json", "w/rank2.json" };
	three(name, "other", 0);
	open_set(&s, 1, (const char *[]){ in_dir("w") });
	assert_int_equal(s.matches, 1);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.wait[0].unmatched, 1);
	assert_int_equal(d.wait[0].unmatched_ns, 30000);
	assert_int_equal(d.rank[0].device[0].total.exposed_comm_unknown_ns, 30000);
	done(&d, &s);
	three(name, "0", 1);
	open_set(&s, 1, (const char *[]){ in_dir("w") });
	assert_int_equal(s.matches, 1);
	fo_trace_set_fini(&s);
	/* Two of three. */
	three(name, "0", 0);
	open_set(&s, 2, (const char *[]){ in_dir("w/rank0.json"), in_dir("w/rank2.json") });
	assert_int_equal(s.matches, 0);
	d = diagnosed(&s);
	assert_int_equal(d.wait[0].wait_ns, 0);
	assert_int_equal(d.rank[0].device[0].total.exposed_comm_unknown_ns, d.rank[0].device[0].total.exposed_comm_ns);
	assert_int_equal(d.culprit.at, -1);
	done(&d, &s);
	/* One alone: unknown, not zero. */
	open_set(&s, 1, (const char *[]){ in_dir("w/rank0.json") });
	d = diagnosed(&s);
	assert_null(d.wait);
	assert_int_equal(d.rank[0].device[0].total.exposed_wait_ns, 0);
	assert_int_equal(d.rank[0].device[0].total.exposed_comm_unknown_ns, 140000);
	done(&d, &s);
}

/* Without recorded groups: by order, when counts agree. */
static void by_order(int extra, double shift)
{
	for (int r = 0; r < 2; r++) {
		begin_trace(r, 2);
		for (int i = 0; i < 3; i++)
			kernel(exchange, 9, 1000 + 100 * i + (r ? 10 * i : 0) + (r ? shift : 0), 50 - (r ? 10 * i : 0),
			       "");
		if (r && extra)
			kernel(exchange, 9, 2000, 10, "");
		end_trace(r ? "order/rank1.json" : "order/rank0.json");
	}
}

static void test_by_order(void **state)
{
	(void)state;
	struct fo_trace_set s;
	must(fo_fs_mkdirs(in_dir("order")));
	by_order(0, 0);
	open_set(&s, 1, (const char *[]){ in_dir("order") });
	assert_int_equal(s.matches, 3);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.wait[0].wait_ns, 30000);
	assert_int_equal(d.wait[0].transfer_ns, 120000);
	assert_int_equal(d.wait[1].last, 2);
	done(&d, &s);
	by_order(1, 0);
	open_set(&s, 1, (const char *[]){ in_dir("order") });
	assert_int_equal(s.matches, 0);
	fo_trace_set_fini(&s);
}

/* Two files that say neither rank nor group may be two runs: nobody is told to have waited. Groups that are recorded,
 * or ranks in names, are believed. */
static void ordered(const char *args, const char *const name[2])
{
	for (int r = 0; r < 2; r++) {
		begin_trace(-1, 0);
		kernel(gemm, 7, 1000, r ? 200 : 100, "");
		kernel(reduce, 9, 1000 + (r ? 200 : 100), r ? 50 : 150, args);
		end_trace(name[r]);
	}
}

static void test_order(void **state)
{
	(void)state;
	struct fo_trace_set s;
	static const char *const plain_name[2] = { "one.json", "two.json" }, *const named[2] = { "o_rank0.json",
												 "o_rank1.json" };
	const char *const path[2] = { in_dir("one.json"), in_dir("two.json") }, *const with[2] = {
		in_dir("o_rank0.json"), in_dir("o_rank1.json")
	};
	ordered("", plain_name);
	open_set(&s, 2, path);
	assert_int_equal(s.matches, 0);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.wait[0].wait_ns, 0);
	assert_int_equal(d.wait[0].unmatched_ns, 150000);
	assert_int_equal(d.wait[0].wait_most_ns, 150000);
	assert_int_equal(d.culprit.at, -1);
	done(&d, &s);
	ordered(group("allreduce", "0", "[0, 1]", 2, 5, ""), plain_name);
	open_set(&s, 2, path);
	assert_int_equal(s.matches, 1);
	fo_trace_set_fini(&s);
	ordered("", named);
	open_set(&s, 2, with);
	d = diagnosed(&s);
	assert_int_equal(d.wait[0].wait_ns, 100000);
	done(&d, &s);
}

/* Between two members as among many: a send and its receive, unequal parts and batches are no barrier; equal parts are.
 */
static void test_two(void **state)
{
	(void)state;
	struct fo_trace_set s;
	static const char *const send[2] = {
		",\"Dst Rank\":1,\"In msg nelems\":5000000,\"Out msg nelems\":5000000,\"dtype\":\"BFloat16\"",
		",\"Src Rank\":0,\"In msg nelems\":5000000,\"Out msg nelems\":5000000,\"dtype\":\"BFloat16\""
	};
	must(fo_fs_mkdirs(in_dir("pair")));
	for (int r = 0; r < 2; r++) {
		begin_trace(r, 2);
		kernel(exchange, 9, 1000 + 50 * r, 90 - 50 * r,
		       group(r ? "recv" : "send", "0", "[0, 1]", 2, 1, send[r]));
		kernel(exchange, 9, 2000 + 50 * r, 90 - 50 * r,
		       group("all_to_allv", "0", "[0, 1]", 2, 2, ",\"In split size\":\"[4, 5]\""));
		kernel("void deep_ep::internode::combine<4, false>(int, int)", 9, 3000 + 50 * r, 90 - 50 * r, "");
		kernel(exchange, 9, 4000 + 50 * r, 90 - 50 * r, group("coalesced", "0", "[0, 1]", 2, 3, ""));
		kernel(exchange, 9, 5000 + 50 * r, 90 - 50 * r,
		       group("all_to_all", "0", "[0, 1]", 2, 4, ",\"In split size\":\"[]\""));
		end_trace(r ? "pair/rank1.json" : "pair/rank0.json");
	}
	open_set(&s, 1, (const char *[]){ in_dir("pair") });
	assert_int_equal(s.matches, 5);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.wait[0].matched, 1);
	assert_int_equal(d.wait[0].wait_ns, 50000);
	assert_int_equal(d.wait[0].transfer_ns, 40000);
	assert_int_equal(d.wait[0].unmatched_ns, 360000);
	assert_int_equal(d.wait[0].wait_most_ns, 360000);
	/* 10 MB over an H100's 450 GB/s are 22.2 us of the send's 90 and the receive's 40. */
	fo_diagnosis_fini(&d);
	d = diagnosed_on(&s, "h100-sxm");
	assert_true(llabs((long long)d.wait[0].wait_most_ns - (360000 - 22222)) <= 1);
	assert_true(llabs((long long)d.wait[1].wait_most_ns - (160000 - 22222)) <= 1);
	done(&d, &s);
}

/* All-to-all with parts of unequal size: members go on when their own data is there. */
static void test_unequal(void **state)
{
	(void)state;
	struct fo_trace_set s;
	must(fo_fs_mkdirs(in_dir("moe")));
	for (int r = 0; r < 4; r++) {
		char name[32];
		snprintf(name, sizeof name, "moe/rank%d.json", r);
		begin_trace(r, 4);
		kernel(exchange, 9, 1000 + 10 * r, 90 - 10 * r,
		       group("all_to_allv", "0", "[0, 1, 2, 3]", 4, 1, ",\"In split size\":\"[4, 5, 6, 7]\""));
		kernel(exchange, 9, 2000 + 10 * r, 90 - 10 * r,
		       group("all_to_all", "0", "[0, 1, 2, 3]", 4, 2, ",\"In split size\":\"[]\""));
		/* Ends before the last has begun. */
		kernel(reduce, 9, 3000 + 10 * r, 20, group("broadcast", "0", "[0, 1, 2, 3]", 4, 3, ""));
		kernel("void dpsk::ep::internode::combine<4, false>(int, int)", 9, 4000 + 10 * r, 90 - 10 * r, "");
		end_trace(name);
	}
	open_set(&s, 1, (const char *[]){ in_dir("moe") });
	assert_int_equal(s.matches, 4);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.wait[0].matched, 1);
	assert_int_equal(d.wait[0].wait_ns, 30000);
	assert_int_equal(d.wait[0].unmatched_ns, 200000);
	done(&d, &s);
}

/* ---- pipelines ---- */

static void test_pipeline(void **state)
{
	(void)state;
	struct fo_trace_set s;
	must(fo_fs_mkdirs(in_dir("pipe")));
	for (int r = 0; r < 2; r++) {
		begin_trace(r, 2);
		for (int i = 0; i < 4; i++) {
			/* Forward 10 each, a transfer of 2, ... and of every 40 us 10 are empty on stage 0. */
			char peer[128];
			double t = 1000 + 40 * i + (r ? 12 : 0);
			kernel(gemm, 7, t, r ? 20 : 10, "");
			snprintf(peer, sizeof peer,
				 ",\"Process Group Description\":\"mesh_pp\",\"Src Rank\":%d,\"Dst Rank\":%d", r,
				 1 - r);
			kernel(exchange, 9, r ? 1032 + 40 * i + 2 : 1010 + 40 * i, 2,
			       group("send", "3", "[0, 1]", 2, 10 + i, peer));
			snprintf(peer, sizeof peer,
				 ",\"Process Group Description\":\"mesh_pp\",\"Src Rank\":%d,\"Dst Rank\":%d", 1 - r,
				 r);
			kernel(exchange, 9, r ? 1010 + 40 * i : 1032 + 40 * i + 2, 2,
			       group("recv", "3", "[0, 1]", 2, 10 + i, peer));
			if (r == 0)
				kernel(gemm, 7, t + 36, 4, "");
		}
		end_trace(r ? "pipe/rank1.json" : "pipe/rank0.json");
	}
	open_set(&s, 1, (const char *[]){ in_dir("pipe") });
	assert_int_equal(s.matches, 8);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.pipeline.stages, 2);
	assert_int_equal(d.pipeline.microbatches, 4);
	assert_int_equal(d.pipeline.chunks, 1);
	assert_int_equal(d.pipeline.stage[1], 1);
	assert_true(fabs(d.pipeline.ideal - 0.25) < 1e-12);
	assert_true(fabs(d.pipeline.bubble[0] - 26.0 / 40) < 1e-9);
	/* Of 20 us between its products 2 are the hardware's own turn-around. */
	assert_true(fabs(d.pipeline.bubble[1] - 54.0 / 140) < 1e-9);
	done(&d, &s);
}

/* What a host's thread does, and a kernel that it launches at `launch`. */
static void note(const char *cat, const char *name, double ts, double dur)
{
	serial++;
	fo_str_printf(&out,
		      "%s{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":1,\"ts\":%.3f,\"dur\":%.3f,"
		      "\"args\":{}}",
		      serial > 1 ? "," : "", cat, name, ts, dur);
}
static void launched(const char *name, int stream, double launch, double ts, double dur, const char *args)
{
	serial++;
	fo_str_printf(&out,
		      "%s{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"
		      "\"ts\":%.3f,\"dur\":1,\"args\":{"
		      "\"correlation\":%d}},{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,\"tid\":%d,"
		      "\"ts\":%.3f,\"dur\":%.3f,\"args\":{"
		      "\"device\":0,\"stream\":%d,\"correlation\":%d%s}}",
		      serial > 1 ? "," : "", launch, serial, name, stream, ts, dur, stream, serial, args);
}
static const char *p2p(const char *name, const char *purpose, int ranks, int seq, int from, int to)
{
	char more[160], members[32];
	snprintf(more, sizeof more, ",\"Process Group Description\":\"%s\",\"%s\":%d", purpose,
		 strcmp(name, "send") ? "Src Rank" : "Dst Rank", strcmp(name, "send") ? from : to);
	snprintf(members, sizeof members, ranks == 3 ? "[0, 1, 2]" : "[0, 1]");
	return group(name, "7", members, ranks, seq, more);
}

/* Steps of 1 ms with four microbatches on each of `ranks` stages: forward 60 us, then a receive from the next (the
 * first stage gets gradients) that ends 60 us later. `notes`: annotated passes, else only what was received tells how
 * many. */
static void stages(int ranks, int steps, bool notes, const char *purpose)
{
	char name[40];
	for (int r = 0; r < ranks; r++) {
		begin_trace(r, ranks);
		for (int k = 0; k < steps; k++) {
			double t = 1000 * (k + 1);
			note("user_annotation", (snprintf(name, sizeof name, "ProfilerStep#%d", k), name), t, 990);
			for (int i = 0; i < 4; i++, t += 200) {
				snprintf(name, sizeof name, "PP:%dF%d", r, i);
				if (notes)
					note("user_annotation", name, t + 1, 8);
				launched(gemm, 7, t + 2, t + 10, 60, "");
				if (r + 1 < ranks) {
					launched(exchange, 9, t + 4, t + 70, 2,
						 p2p("send", purpose, ranks, 2 * i, r, r + 1));
					launched(exchange, 9, t + 6, t + 72, 58,
						 p2p("recv", purpose, ranks, 2 * i + 1, r + 1, r));
				} else {
					launched(exchange, 9, t + 4, t + 70, 2,
						 p2p("send", purpose, ranks, 2 * i, r, r - 1));
					launched(exchange, 9, t + 6, t + 72, 58,
						 p2p("recv", purpose, ranks, 2 * i + 1, r - 1, r));
				}
			}
		}
		snprintf(name, sizeof name, "stages/rank%d.json", r);
		end_trace(name);
	}
}

static void check_stages(int given, int want, int microbatches)
{
	struct fo_trace_set s;
	const char *path[3] = { in_dir("stages/rank0.json"), in_dir("stages/rank1.json"), in_dir("stages/rank2.json") };
	open_set(&s, given, path);
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.pipeline.stages, want);
	assert_int_equal(d.pipeline.microbatches, microbatches);
	/* Within 660 us: three times 60 of transfers; the host launches what follows only after 70 more. */
	if (want)
		assert_true(fabs(d.pipeline.bubble[0] - 180.0 / 660) < 1e-9);
	done(&d, &s);
}

/* The last step is dropped from the ledger; what it holds is in no step. */
static void test_microbatches(void **state)
{
	(void)state;
	must(fo_fs_mkdirs(in_dir("stages")));
	for (int steps = 2; steps < 6; steps++) {
		stages(3, steps, true, "0");
		check_stages(3, 3, 4);
		stages(3, steps, false, "0");
		check_stages(3, 3, 4);
	}
	stages(2, 3, false, "PIPELINE_MODEL_PARALLEL_GROUP");
	check_stages(2, 2, 4);
	check_stages(1, 2, 4);
}

/* Rings, and what could be one. */
static void test_no_pipeline(void **state)
{
	(void)state;
	must(fo_fs_mkdirs(in_dir("stages")));
	stages(3, 3, false, "CONTEXT_PARALLEL_GROUP");
	check_stages(3, 0, 0);
	stages(3, 3, false, "mesh_cp");
	check_stages(3, 0, 0);
	/* One rank of three, two ranks that exchange. */
	stages(3, 3, false, "0");
	check_stages(1, 0, 0);
	stages(2, 3, false, "0");
	check_stages(2, 0, 0);
	/* All send to the next, the last to the first. */
	for (int r = 0; r < 3; r++) {
		char name[40];
		begin_trace(r, 3);
		for (int i = 0; i < 6; i++) {
			kernel(gemm, 7, 1000 + 100 * i, 60, "");
			kernel(exchange, 9, 1060 + 100 * i, 30, p2p("send", "0", 3, 2 * i, r, (r + 1) % 3));
			kernel(exchange, 11, 1060 + 100 * i, 30, p2p("recv", "0", 3, 2 * i + 1, (r + 2) % 3, r));
		}
		snprintf(name, sizeof name, "stages/rank%d.json", r);
		end_trace(name);
	}
	check_stages(3, 0, 0);
}

/* ---- published figures ---- */

static void check_waits(const char *path, const int64_t (*want)[3], int n, bool us)
{
	const char *traces = getenv("FLATOUT_TRACES");
	struct fo_trace_set s;
	char full[1024];
	snprintf(full, sizeof full, "%s/%s", traces, path);
	open_set(&s, 1, (const char *[]){ full });
	struct fo_diagnosis d = diagnosed(&s);
	assert_int_equal(d.waits, n);
	for (int i = 0; i < n; i++) {
		int64_t unit = us ? 1000 : 10000; /* as printed: microseconds, or hundredths of a millisecond */
		assert_int_equal((d.wait[i].wait_ns + unit / 2) / unit, want[i][0]);
		assert_int_equal(
			((us ? d.wait[i].transfer_ns : d.wait[i].transfer_ns - d.wait[i].end_skew_ns) + unit / 2) /
				unit,
			want[i][1]);
		assert_int_equal(d.wait[i].last, want[i][2]);
		assert_int_equal(d.wait[i].unmatched, 0);
	}
	done(&d, &s);
}

static void test_published(void **state)
{
	(void)state;
	if (!getenv("FLATOUT_TRACES"))
		skip();
	static const int64_t dlrm[8][3] = { { 5580, 218, 0 }, { 11125, 211, 0 }, { 3280, 212, 0 }, { 9571, 203, 0 },
					    { 6370, 217, 1 }, { 6041, 210, 2 },  { 3342, 216, 0 }, { 1534, 212, 5 } };
	check_waits("param_dlrm_8rank_v100", dlrm, 8, true);
	static const int64_t before[2][3] = { { 1090, 574, 11 }, { 248, 574, 22 } },
			     after[2][3] = { { 427, 548, 15 }, { 1822, 548, 16 } };
	check_waits("nsys_h100_mfu_before", before, 2, false);
	check_waits("nsys_h100_mfu_after", after, 2, false);
}

int main(void)
{
	if (!mkdtemp(dir))
		return 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whose),        cmocka_unit_test(test_folders),
		cmocka_unit_test(test_waiting),      cmocka_unit_test(test_unmatched),
		cmocka_unit_test(test_by_order),     cmocka_unit_test(test_unequal),
		cmocka_unit_test(test_pipeline),     cmocka_unit_test(test_published),
		cmocka_unit_test(test_order),        cmocka_unit_test(test_two),
		cmocka_unit_test(test_microbatches), cmocka_unit_test(test_no_pipeline),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	fo_str_fini(&out);
	if (fo_fs_remove_tree(dir) != FO_OK)
		return 1;
	return failed;
}
