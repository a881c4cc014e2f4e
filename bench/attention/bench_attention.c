/* Attention forward and backward against the register-only rate of the same threads at the same time.
 *
 *   bench_attention [--seq N] [--heads N] [--kv N] [--dim N] [--docs N] [--threads N] [--dtype f32|bf16] [--isa
 * avx2|avx512|avx512bf16]
 *                   [--rounds N] [--eager yes] [--cp N [--ref yes]]
 *
 * One JSON line per direction. FLOP are useful ones: 4 Q per visible pair and head forward, 10 Q backward (of which 2 Q
 * recompute the scores: they are executed, not model FLOP). Each round times the kernel between two bursts
 * (kernel/measure.h); fma_ratio is the kernel's rate over the mean of the two register-only rates of fp32
 * multiply-adds. For bf16 operands as many rounds again have bursts of the unit that products of bf16 run on (`unit`:
 * the set it belongs to): unit_ratio is the fraction that an MFU counts. Where there is no such unit the two are the
 * same.
 *
 * --eager yes: the tiled kernel and the eager one (probabilities in memory, full squares) in turn on the same shape;
 * one line per direction with seconds of each (median, best) and the ratio of their times in the same round (median),
 * and of their bests.
 *
 * --cp N: one rank's attention over a whole row, and the blocks and merges of each of N ranks of a ring (pass cp) that
 * share the row, in turn on this one processor. One line per direction: seconds of the whole row, of all ranks' blocks
 * together, of their merges, and of the slowest rank; balance = mean over ranks / slowest; efficiency = whole / all
 * ranks' together: 1 where nothing is lost by cutting. With --ref yes also the seconds that `ref` takes for rank 0's
 * own block, against this set's, once. */
#include "base/clock.h"
#include "base/count.h"
#include "base/json.h"
#include "kernel/calibrate.h"
#include "kernel/measure.h"
#include "kernel/work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
	int64_t seq, heads, kv, dim, docs, threads, rounds;
	int dtype;
	int64_t cp;
	bool eager, ref;
	enum fo_isa isa;
};

/* The best set of this machine whose bf16 products are worth their unit: its register-only loop is the peak of bf16. */
static const struct fo_kernel_set *unit_set(void)
{
	static const enum fo_isa order[] = { FO_ISA_AMX, FO_ISA_AVX512BF16, FO_ISA_AVX512 };

	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		const struct fo_kernel_set *set = fo_kernel_sets[order[i]];
		if (fo_isa_have(order[i]) && (!set->worth || set->worth()))
			return set;
	}
	return fo_kernel_sets[FO_ISA_AVX2];
}

static void print_rates(struct fo_json *j, const char *name, const struct fo_work *w, const struct fo_measured *r)
{
	char key[64];
	struct {
		const char *name;
		double value;
	} rate[] = {
		{ "peak_gflop_s", r->burst_flop_s_median * 1e-9 },
		{ "gflop_s", w->flop / r->time.median_s * 1e-9 },
		{ "ratio_median", r->ratio_median },
		{ "ratio_best", r->ratio_best },
		{ "quiet_rounds", r->time.quiet },
		{ "quiet_gflop_s", w->flop / r->time.quiet_median_s * 1e-9 },
		{ "quiet_ratio_median", r->quiet_ratio_median },
	};
	for (size_t i = 0; i < sizeof rate / sizeof *rate; i++) {
		snprintf(key, sizeof key, "%s_%s", name, rate[i].name);
		fo_json_real(j, key, rate[i].value);
	}
}

static void print(const struct options *o, const struct fo_work *w, const struct fo_measured *r,
		  const struct fo_measured *unit)
{
	struct fo_str s = { 0 };
	struct fo_json j;
	fo_json_begin(&j, &s, false);
	fo_json_object(&j, NULL);
	fo_json_text(&j, "kernel", fo_op_info(w->call.kind)->name);
	fo_json_text(&j, "isa", w->set->name);
	fo_json_int(&j, "seq", o->seq);
	fo_json_int(&j, "heads", o->heads);
	fo_json_int(&j, "kv", o->kv);
	fo_json_int(&j, "dim", o->dim);
	fo_json_int(&j, "docs", o->docs);
	fo_json_int(&j, "threads", o->threads);
	fo_json_text(&j, "dtype", fo_dtype_name[o->dtype]);
	fo_json_int(&j, "ws_bytes", (int64_t)w->call.ws_bytes);
	fo_json_int(&j, "rounds", r->time.spans);
	if (o->dtype == FO_BF16) {
		fo_json_text(&j, "unit", unit_set()->name);
		print_rates(&j, "unit", w, unit);
	}
	print_rates(&j, "fma", w, r);
	fo_json_close(&j);
	puts(s.data);
	fflush(stdout);
	fo_str_fini(&s);
}

static fo_status run(const struct options *o, bool backward)
{
	struct fo_work w;
	struct fo_work_data d = { 0 };
	struct fo_meter m;
	fo_work_attention(&w, o->isa, backward, o->seq, o->docs, o->heads, o->kv, o->dim, o->dtype, (int)o->threads);
	fo_work_data_need(&d, &w);
	FO_TRY(fo_work_data_new(&d));
	fo_work_bind(&w, &d, o->docs);
	struct fo_measured rates[2];
	fo_status st = FO_OK;
	for (int i = 0; i < (o->dtype == FO_BF16 ? 2 : 1) && st == FO_OK; i++) {
		st = fo_meter_init(&m, i ? unit_set() : fo_kernel_sets[o->isa], i ? FO_BF16 : FO_F32, (int)o->threads);
		if (st == FO_OK) {
			rates[i] = fo_measure_work(&m, fo_work_run, &w, w.flop, 0, (int)o->rounds);
			fo_meter_fini(&m);
		}
	}
	if (st == FO_OK)
		print(o, &w, &rates[0], &rates[1]);
	fo_work_data_free(&d);
	return st;
}

/* Tiled and eager in turn, the first round warms up. */
static fo_status compare(const struct options *o, bool backward)
{
	enum { ROUNDS_MAX = 1000 };
	static double seconds[2][ROUNDS_MAX], ratio[ROUNDS_MAX];
	struct fo_work w[2];
	struct fo_work_data d = { 0 };
	int64_t rounds = o->rounds < ROUNDS_MAX ? o->rounds : ROUNDS_MAX;
	fo_work_attention(&w[0], o->isa, backward, o->seq, o->docs, o->heads, o->kv, o->dim, o->dtype, (int)o->threads);
	fo_work_attention_eager(&w[1], o->isa, backward, o->seq, o->seq, o->heads, o->kv, o->dim, o->dtype,
				(int)o->threads);
	for (int i = 0; i < 2; i++)
		fo_work_data_need(&d, &w[i]);
	FO_TRY(fo_work_data_new(&d));
	for (int i = 0; i < 2; i++)
		fo_work_bind(&w[i], &d, o->docs);
	for (int64_t r = -1; r < rounds; r++)
		for (int i = 0; i < 2; i++) {
			int64_t begin = fo_now_ns();
			fo_work_run(&w[i]);
			if (r >= 0)
				seconds[i][r] = (double)(fo_now_ns() - begin) * 1e-9;
		}
	for (int64_t r = 0; r < rounds; r++)
		ratio[r] = seconds[1][r] / seconds[0][r];
	double best[2] = { fo_stats_quantile(seconds[0], (size_t)rounds, 0),
			   fo_stats_quantile(seconds[1], (size_t)rounds, 0) };
	printf("{\"kernel\":\"%s\",\"isa\":\"%s\",\"dtype\":\"%s\",\"seq\":%lld,\"heads\":%lld,\"kv\":%lld,\"dim\":%"
	       "lld,\"threads\":%lld,"
	       "\"rounds\":%lld,\"flash\":{\"median\":%.5f,\"best\":%.5f},\"eager\":{\"median\":%.5f,\"best\":%.5f},"
	       "\"ratio_median\":%.3f,"
	       "\"ratio_best\":%.3f}\n",
	       fo_op_info(w[0].call.kind)->name, w[1].set->name, fo_dtype_name[o->dtype], (long long)o->seq,
	       (long long)o->heads, (long long)o->kv, (long long)o->dim, (long long)o->threads, (long long)rounds,
	       fo_stats_median(seconds[0], (size_t)rounds), best[0], fo_stats_median(seconds[1], (size_t)rounds),
	       best[1], fo_stats_median(ratio, (size_t)rounds), best[1] / best[0]);
	fflush(stdout);
	fo_work_data_free(&d);
	return FO_OK;
}

/* ---- a ring ---- */

enum { CP_MAX = 16, CP_ROUNDS_MAX = 100 };

static void pick(struct fo_work *w, enum fo_isa isa)
{
	w->kernel = fo_kernel_pick(isa, &w->call, &w->set);
	w->call.ws_bytes = w->kernel->ws ? w->kernel->ws(&w->call) : 0;
}

/* The block of rank `place` over the keys of the rank `peer` places before it; dq is stored by the first. */
static void block_of(struct fo_work *w, const struct options *o, enum fo_isa isa, bool backward, int place, int peer)
{
	fo_work_attention(w, isa, backward, o->seq / o->cp, 1, o->heads, o->kv, o->dim, o->dtype, (int)o->threads);
	w->call.kind = backward ? FO_OP_attention_block_bwd : FO_OP_attention_block;
	w->call.attr.cp = (int32_t)o->cp;
	w->call.attr.place = place;
	w->call.attr.peer = peer;
	w->call.attr.chunk = (int32_t)(o->seq / o->cp / 2);
	if (backward && peer)
		w->call.first &= ~(1u << FO_ATTENTION_BLOCK_BWD_DQ);
	pick(w, isa);
}

static void merge_of(struct fo_work *w, const struct options *o)
{
	*w = (struct fo_work){ .call = { .kind = FO_OP_attention_merge,
					 .n = FO_ATTENTION_MERGE_LSE + 1,
					 .threads = (int)o->threads,
					 .attr = { .head_dim = (int32_t)o->dim } } };
	for (int i = 0; i < w->call.n; i++) {
		const bool lse = i == FO_ATTENTION_MERGE_LSEB || i == FO_ATTENTION_MERGE_LSE;
		const int64_t cols = lse ? o->heads : o->heads * o->dim;
		w->call.arg[i] = (struct fo_tensor){
			.rows = o->seq / o->cp, .cols = cols, .ld = cols, .dtype = (uint8_t)(lse ? FO_F32 : o->dtype)
		};
		w->access[i] = i >= FO_ATTENTION_MERGE_O ? FO_UPDATE : FO_READ;
	}
	pick(w, o->isa);
}

static double seconds_of(struct fo_work *w)
{
	const int64_t begin = fo_now_ns();
	fo_work_run(w);
	return (double)(fo_now_ns() - begin) * 1e-9;
}

struct ring_times {
	double whole[CP_ROUNDS_MAX], merges[CP_ROUNDS_MAX], rank[CP_MAX][CP_ROUNDS_MAX];
};

static void print_ring(const struct options *o, const struct fo_work *w, struct ring_times *t, size_t rounds,
		       const double ref[2])
{
	double all = 0, slowest = 0;
	for (int r = 0; r < o->cp; r++) {
		const double s = fo_stats_median(t->rank[r], rounds);
		all += s;
		slowest = s > slowest ? s : slowest;
	}
	const double whole = fo_stats_median(t->whole, rounds), merges = fo_stats_median(t->merges, rounds);
	printf("{\"kernel\":\"%s\",\"isa\":\"%s\",\"dtype\":\"%s\",\"seq\":%lld,\"heads\":%lld,\"kv\":%lld,"
	       "\"dim\":%lld,\"threads\":%lld,\"rounds\":%zu,\"cp\":%lld,\"whole\":%.5f,\"ranks\":%.5f,"
	       "\"merges\":%.5f,\"slowest\":%.5f,"
	       "\"balance\":%.3f,\"efficiency\":%.3f",
	       fo_op_info(w->call.kind)->name, w->set->name, fo_dtype_name[o->dtype], (long long)o->seq,
	       (long long)o->heads, (long long)o->kv, (long long)o->dim, (long long)o->threads, rounds,
	       (long long)o->cp, whole, all, merges, slowest, all / (double)o->cp / slowest, whole / (all + merges));
	if (ref[0] > 0)
		printf(",\"block_ref\":%.5f,\"block\":%.5f,\"block_speedup\":%.1f", ref[0], ref[1], ref[0] / ref[1]);
	puts("}");
	fflush(stdout);
}

/* All on one set of data. The first round warms up. */
static fo_status around(const struct options *o, bool backward)
{
	static struct fo_work block[CP_MAX][CP_MAX], whole, merge, plain;
	static struct ring_times t;
	const int cp = (int)o->cp;
	const int64_t rounds = fo_min(o->rounds, CP_ROUNDS_MAX);
	struct fo_work_data d = { 0 };
	double ref[2] = { 0 };
	fo_work_attention(&whole, o->isa, backward, o->seq, 1, o->heads, o->kv, o->dim, o->dtype, (int)o->threads);
	merge_of(&merge, o);
	block_of(&plain, o, FO_ISA_REF, backward, 0, 0);
	for (int i = 0; i < cp * cp; i++)
		block_of(&block[i / cp][i % cp], o, o->isa, backward, i / cp, i % cp);
	struct fo_work *const some[] = { &whole, &merge, &plain, &block[0][0] };
	for (size_t i = 0; i < sizeof some / sizeof *some; i++)
		if (i != 2 || o->ref)
			fo_work_data_need(&d, some[i]);
	FO_TRY(fo_work_data_new(&d));
	fo_work_bind(&whole, &d, 1);
	fo_work_bind(&merge, &d, 1);
	for (int i = 0; i < cp * cp; i++)
		fo_work_bind(&block[i / cp][i % cp], &d, 1);
	for (int64_t r = -1; r < rounds; r++) {
		const int64_t at = fo_max(r, 0);
		t.whole[at] = seconds_of(&whole);
		t.merges[at] = 0;
		for (int i = 0; i < cp; i++) {
			t.rank[i][at] = 0;
			for (int peer = 0; peer < cp; peer++) {
				t.rank[i][at] += seconds_of(&block[i][peer]);
				t.merges[at] += peer && !backward ? seconds_of(&merge) : 0;
			}
		}
	}
	if (o->ref) {
		fo_work_bind(&plain, &d, 1);
		ref[0] = seconds_of(&plain);
		ref[1] = seconds_of(&block[0][0]);
	}
	print_ring(o, &block[0][0], &t, (size_t)rounds, ref);
	fo_work_data_free(&d);
	return FO_OK;
}

static int usage(void)
{
	fprintf(stderr, "usage: bench_attention [--seq N] [--heads N] [--kv N] [--dim N] [--docs N] [--threads N] "
			"[--rounds N]\n"
			"                       [--dtype f32|bf16] [--isa avx2|avx512|avx512bf16] [--eager yes|no]\n"
			"                       [--cp 1..16 [--ref yes|no]]\n");
	return 2;
}

static bool parse(struct options *o, int argc, char **argv)
{
	struct {
		const char *name;
		int64_t *to;
	} number[] = {
		{ "--seq", &o->seq },   { "--heads", &o->heads },     { "--kv", &o->kv },         { "--dim", &o->dim },
		{ "--docs", &o->docs }, { "--threads", &o->threads }, { "--rounds", &o->rounds }, { "--cp", &o->cp },
	};
	for (int i = 1; i < argc; i += 2) {
		if (i + 1 == argc)
			return false;
		const char *value = argv[i + 1];
		enum fo_isa isa;
		size_t k = 0;
		for (; k < sizeof number / sizeof *number && strcmp(argv[i], number[k].name); k++)
			;
		if (k < sizeof number / sizeof *number)
			*number[k].to = strtoll(value, NULL, 10);
		else if (!strcmp(argv[i], "--dtype") && (!strcmp(value, "f32") || !strcmp(value, "bf16")))
			o->dtype = value[0] == 'b' ? FO_BF16 : FO_F32;
		else if (!strcmp(argv[i], "--eager") && (!strcmp(value, "yes") || !strcmp(value, "no")))
			o->eager = value[0] == 'y';
		else if (!strcmp(argv[i], "--ref") && (!strcmp(value, "yes") || !strcmp(value, "no")))
			o->ref = value[0] == 'y';
		else if (!strcmp(argv[i], "--isa") && fo_isa_named(value, &isa) && fo_isa_have(isa))
			o->isa = isa;
		else
			return false;
	}
	if (!o->kv)
		o->kv = o->heads;
	if (o->cp < 0 || o->cp > CP_MAX || (o->cp && (o->eager || o->docs != 1 || o->seq % (2 * o->cp))))
		return false;
	return o->seq > 0 && o->heads > 0 && o->kv > 0 && o->heads % o->kv == 0 && o->docs > 0 && o->docs <= o->seq &&
	       o->threads > 0 && o->threads <= 1024 && o->rounds > 0;
}

int main(int argc, char **argv)
{
	struct options o = { .seq = 2048,
			     .heads = 12,
			     .dim = 64,
			     .docs = 1,
			     .threads = 1,
			     .rounds = 7,
			     .dtype = FO_F32,
			     .isa = FO_ISA_AVX2 };
	if (!parse(&o, argc, argv))
		return usage();
	if (!fo_isa_have(o.isa)) {
		fprintf(stderr, "this processor lacks the instruction set\n");
		return 77;
	}
	for (int backward = 0; backward < 2; backward++)
		if ((o.cp ? around : o.eager ? compare : run)(&o, backward) != FO_OK) {
			fprintf(stderr, "bench_attention: %s\n", fo_err_text());
			return 3;
		}
	return 0;
}
