/* The page of a diagnosis, from structures that are filled by hand: what stands in it, and that nothing breaks out of
 * it. `test_diagnose_html FILE KIND` writes a page there instead, for tests/cli/html.sh; KIND: one, many (64 ranks),
 * hostile, bare. */
#include "report/diagnose_doc.h"

#include "base/mem.h"
#include "base/str.h"
#include "draw/doc.h"
#include "report/ledger_parts.h"
#include "trace/trace_int.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MS = 1000000, US = 1000, RANKS = 64, STEPS = 5 };
static const char evil[] =
	"</title><script>alert(1)</script>\"'&\x1b[2J\xff\xe2\x80\xae"
	"a_name_without_any_space_that_is_so_long_that_no_telephone_has_room_for_it_in_one_line_and_no_desk_either";

static void print_page(const struct fo_diagnosis *d, struct fo_str *out)
{
	struct fo_doc doc = { 0 };
	fo_diagnose_doc(&doc, d, false);
	fo_doc_to_html(&doc, out);
	fo_doc_fini(&doc);
}

static int32_t text(struct fo_trace_build *b, const char *s) { return fo_trace_intern(b, s, strlen(s)); }

static void gpu(struct fo_trace_build *b, const char *name, int stream, int64_t begin, int64_t end,
		enum fo_kernel_class class, int64_t correlation)
{
	int16_t device = fo_trace_device(b, 0);
	int32_t id = text(b, name);
	struct fo_gpu_op *o = fo_trace_add_gpu(b, begin, end);
	o->name = id, o->stream = stream, o->device = device, o->correlation = correlation;
	o->class = o->class_by_name = (uint8_t) class;
	o->bytes = -1, o->launch = o->op = o->collective = -1;
	o->kind = class == FO_K_MEMORY ? FO_GPU_MEMCPY : FO_GPU_KERNEL;
}

static void host(struct fo_trace_build *b, const char *name, enum fo_host_kind kind, int64_t begin, int64_t end)
{
	int32_t thread = fo_trace_thread(b, 1, 4711), id = text(b, name);
	struct fo_host_op *o = fo_trace_add_op(b, begin, end);
	*o = (struct fo_host_op){ begin,        end,         .name = id,     .thread = thread, .parent = -1,
				  .shapes = -1, .types = -1, .sequence = -1, .kind = kind };
}

static void launch(struct fo_trace_build *b, int64_t begin, int64_t end, int64_t correlation)
{
	int32_t thread = fo_trace_thread(b, 1, 4711), id = text(b, "cudaLaunchKernel");
	struct fo_launch *l = fo_trace_add_launch(b, begin, end);
	*l = (struct fo_launch){
		.begin_ns = begin, .end_ns = end, .correlation = correlation, .name = id, .thread = thread, .op = -1
	};
}

/* 100 ms: kernels up to 40, the data loader until 90, launches from there; the collective ends the step. */
static struct fo_trace *make_trace(const char *path, const char *name)
{
	struct fo_trace_build b;
	struct fo_trace *t = NULL;
	fo_trace_build_init(&b, path);
	for (int i = 0; i < 200; i++) {
		int64_t at = i * 200 * US;
		launch(&b, at, at + 10 * US, i + 1);
		gpu(&b,
		    i % 4 ? name
			  : "void at::native::(anonymous namespace)::vectorized_elementwise_kernel<4, float>(int)",
		    7, at + 20 * US, at + 190 * US, i % 4 ? FO_K_GEMM : FO_K_ELEMENTWISE, i + 1);
	}
	gpu(&b, "Memcpy HtoD (Pageable -> Device)", 7, 91 * MS, 93 * MS, FO_K_MEMORY, 301);
	gpu(&b, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, 95 * MS, 98 * MS,
	    FO_K_COMMUNICATION, 302);
	host(&b, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", FO_HOST_DATA, 41 * MS, 85 * MS);
	host(&b, "aten::to", FO_HOST_OP, 86 * MS, 90 * MS + 900 * US);
	launch(&b, 90 * MS, 90 * MS + 20 * US, 301);
	launch(&b, 92 * MS, 92 * MS + 20 * US, 302);
	assert_int_equal(fo_trace_build_finish(&b, &t), FO_OK);
	t->begin_ns = 0;
	t->end_ns = 98 * MS;
	t->defect.events = 400;
	return t;
}

static void fill_ledger(struct fo_ledger *l, int64_t late)
{
	*l = (struct fo_ledger){
		.begin_ns = 20 * US, .end_ns = 100 * MS, .span_ns = 100 * MS - 20 * US, .forward_ns = -1
	};
	l->class_ns[FO_K_GEMM] = 26 * MS;
	l->class_ns[FO_K_ELEMENTWISE] = 8 * MS;
	l->comp_ns = 34 * MS;
	l->class_sum_ns[FO_K_GEMM] = 26 * MS;
	l->class_ops[FO_K_GEMM] = 150;
	l->class_sum_ns[FO_K_ELEMENTWISE] = 9 * MS;
	l->class_ops[FO_K_ELEMENTWISE] = 50;
	l->exposed_wait_ns = 1 * MS + late;
	l->exposed_transfer_ns = 2 * MS - late;
	l->exposed_comm_ns = l->comm_ns = 3 * MS;
	l->class_ops[FO_K_COMMUNICATION] = 1;
	l->mem_ns = l->exposed_mem_ns = l->copy_ns[FO_COPY_H2D] = 2 * MS;
	l->busy_ns = 39 * MS;
	l->idle_total_ns = l->span_ns - l->busy_ns;
	l->idle_ns[FO_IDLE_HOST_DATA] = 44 * MS;
	l->idle_ns[FO_IDLE_HOST_OTHER] = 10 * MS;
	l->idle_ns[FO_IDLE_KERNEL_GAP] = l->idle_total_ns - 54 * MS;
	l->resident_ns = 37 * MS;
	l->ops = 202;
}

static void fill_findings(struct fo_finding *f, const char *say)
{
	f[0] = (struct fo_finding){ .id = "host-data",
				    .kind = FO_FIND_DATA,
				    .serious = true,
				    .is_bottleneck = true,
				    .loss_ns = 44 * MS,
				    .ceiling = 1.79,
				    .gain = 1.45,
				    .gain_low = 1.2,
				    .gain_high = 1.79,
				    .dollars = 12.4,
				    .settings = 2,
				    .evidences = 2 };
	snprintf(f[0].title, sizeof f[0].title, "%s", say ? say : "The GPU waits for the data loader");
	snprintf(f[0].why, sizeof f[0].why, "%s",
		 say ? say
		     : "44.0 ms of each step nothing runs because the batch is not there: the launching thread is "
		       "inside the DataLoader. Workers that load ahead would hide it.");
	for (int i = 0; i < 2; i++) {
		struct fo_setting *s = &f[0].setting[i];
		snprintf(s->framework, sizeof s->framework, "%s", i ? "TorchTitan" : "PyTorch");
		snprintf(s->key, sizeof s->key, "%s",
			 say ? say
			 : i ? "training.dataloader.num_workers"
			     : "DataLoader(num_workers)");
		snprintf(s->now, sizeof s->now, "%s", i ? "" : "0");
		snprintf(s->proposed, sizeof s->proposed, "%s", say ? say : "4");
		f[0].evidence[i] = (struct fo_evidence){ .rank = 0, .begin_ns = 41 * MS, .duration_ns = 44 * MS };
		snprintf(f[0].evidence[i].name, sizeof f[0].evidence[i].name, "%s",
			 say ? say : "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__");
	}
	f[1] = (struct fo_finding){ .id = "copies",
				    .kind = FO_FIND_COPIES,
				    .is_runner_up = true,
				    .loss_ns = 2 * MS,
				    .ceiling = 1.02,
				    .gain = 1.015,
				    .gain_low = 1.0,
				    .gain_high = 1.02,
				    .dollars = NAN };
	snprintf(f[1].title, sizeof f[1].title, "Copies from pageable memory stand in the way");
	snprintf(f[1].why, sizeof f[1].why, "2.00 ms of each step.");
}

struct sample {
	struct fo_diagnosis d;
	struct fo_trace *trace;
	struct fo_rank_ledger rank[RANKS];
	struct fo_device_ledger device[RANKS];
	struct fo_step_ledger step[RANKS][STEPS];
	struct fo_rank_wait wait[RANKS];
	struct fo_finding finding[2];
	struct fo_product product[3];
	struct fo_unknown unknown[2];
	double bubble[4];
};

static void fill_bridge(struct fo_bridge *b)
{
	static const struct {
		const char *name;
		double share;
	} row[] = { { "MFU", 0.21 },
		    { "matmuls below peak", 0.05 },
		    { "other kernels", 0.08 },
		    { "exposed wait", 0.01 },
		    { "exposed transfer", 0.02 },
		    { "copies", 0.02 },
		    { "idle: data loading", 0.44 },
		    { "idle: other", 0.17 } };
	*b = (struct fo_bridge){ .known = true,
				 .mfu = 0.21,
				 .mfu_causal = 0.19,
				 .peak_flop_s = 989e12,
				 .step_s = 0.1,
				 .flop_per_step = 2e13,
				 .devices = 64 };
	snprintf(b->rule, sizeof b->rule, "mfu");
	snprintf(b->dtype, sizeof b->dtype, "bf16");
	snprintf(b->peak_source, sizeof b->peak_source, "H100 SXM, dense, vendor's data sheet");
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		snprintf(b->row[i].name, sizeof b->row[i].name, "%s", row[i].name);
		b->row[i].share = row[i].share;
		b->row[i].dollars_per_hour = row[i].share * 64 * 2.5;
		b->row[i].dollars = b->row[i].dollars_per_hour * 0.1 / 3600;
		b->rows++;
	}
}

static struct sample *make_sample(int ranks, const char *say, bool bare)
{
	struct sample *s = fo_xmalloc(sizeof *s);
	s->trace = make_trace(say ? say : "traces/worker0.pt.trace.json",
			      say ? say : "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64");
	s->d = (struct fo_diagnosis){
		.with.price_per_hour = bare ? NAN : 2.5,
		.rank = s->rank,
		.ranks = ranks,
		.worst = 0,
		.middle = ranks / 2,
		.best = ranks - 1,
		.utilisation = { .resident = 0.37, .computing = 0.34 },
		.step_skew = 0.04,
		.wait = ranks > 1 ? s->wait : NULL,
		.waits = ranks > 1 ? ranks : 0,
		.culprit = { .at = ranks > 1 ? 3 % ranks : -1, .share = 0.63, .row = "host_data", .excess_ns = 2 * MS }
	};
	for (int r = 0; r < ranks; r++) {
		int64_t late = (int64_t)(r * 7 % 10) * 100 * US;
		s->device[r] = (struct fo_device_ledger){ .step = s->step[r], .steps = STEPS };
		for (int k = 0; k < STEPS; k++) {
			fill_ledger(&s->step[r][k].l, late);
			s->step[r][k].l.span_ns += k * MS;
		}
		fill_ledger(&s->device[r].median.l, late);
		s->device[r].total.ops = STEPS * 202;
		s->rank[r] = (struct fo_rank_ledger){
			.trace = s->trace, .rank = r, .device = &s->device[r], .devices = 1
		};
		s->wait[r] = (struct fo_rank_wait){ .rank = r,
						    .wait_ns = 1 * MS + late,
						    .transfer_ns = 2 * MS,
						    .last = r % 9,
						    .matched = 8,
						    .unmatched = 1 };
	}
	if (bare)
		return s;
	snprintf(s->d.utilisation.sentence, sizeof s->d.utilisation.sentence, "It counts what waits, too.");
	fill_findings(s->finding, say);
	fill_bridge(&s->d.bridge);
#define SHAPE_COSTS_NOTHING false, 0, { 0 }, NAN, NAN, false, false /* the last of struct fo_product */
	s->product[0] = (struct fo_product){ 4096,   14336,  4096,   1,    64,   20 * MS, "bf16",
					     600e12, 740e12, 650e12, 0.95, 1.21, false,   SHAPE_COSTS_NOTHING };
	s->product[1] = (struct fo_product){ 4096,   4096, 4096,   32,  64,  6 * MS, "bf16",
					     300e12, NAN,  310e12, 0.5, NAN, true,   SHAPE_COSTS_NOTHING };
	s->product[2] = (struct fo_product){ 1,   1,   1,   1,   1,   1,     "fp8",
					     NAN, NAN, NAN, NAN, NAN, false, SHAPE_COSTS_NOTHING };
	for (int i = 0; i < 2; i++) {
		snprintf(s->unknown[i].what, sizeof s->unknown[i].what, "%s",
			 say ? say : "what waited and what transferred: one rank's trace");
		snprintf(s->unknown[i].flag, sizeof s->unknown[i].flag, "%s",
			 say ? say : "record every rank, and give all files at once");
	}
	s->d.finding = s->finding, s->d.findings = 2;
	s->d.product = s->product, s->d.products = 3;
	s->d.unknown = s->unknown, s->d.unknowns = 2;
	if (ranks > 1) {
		for (int i = 0; i < 4; i++)
			s->bubble[i] = 0.36 - 0.05 * i;
		s->d.pipeline = (struct fo_pipeline){
			.stages = 4, .chunks = 1, .microbatches = 16, .bubble = s->bubble, .ideal = 3.0 / 16
		};
	}
	return s;
}

static void drop_sample(struct sample *s)
{
	fo_trace_free(s->trace);
	free(s);
}

static int write_page(const char *path, const char *kind)
{
	struct sample *s = make_sample(!strcmp(kind, "many")      ? RANKS
				       : !strcmp(kind, "hostile") ? 3
								  : 1,
				       !strcmp(kind, "hostile") ? evil : NULL, !strcmp(kind, "bare"));
	struct fo_str out = { 0 };
	FILE *f = fopen(path, "w");
	if (!f)
		return 1;
	print_page(&s->d, &out);
	fwrite(out.data, 1, out.len, f);
	fo_str_fini(&out);
	drop_sample(s);
	return fclose(f) != 0;
}

static size_t count(const char *s, const char *what)
{
	size_t n = 0;
	for (; (s = strstr(s, what)); s += strlen(what))
		n++;
	return n;
}

static void test_page(void **state)
{
	(void)state;
	static const char *const holds[] = {
		"Diagnosis of worker0.pt.trace.json", "What to change", "1.20 to 1.79; at best 1.79\u00a0x",
		"21.0\u00a0%", "rule mfu, bf16; causal 19.0\u00a0%", "37.0\u00a0%", "It counts what waits",
		"idle: data loading", "64 devices; 1000 steps cost $4.44, an hour $160.00",
		/* points and what they cost by the hour: 0.44 of 64 devices at $2.50 */
		"-44.0 points, $70.40/h", "1.21\u00a0x slower beside communication",
		">memory</td><td data-l=\"note\">50\u00a0% of tiles",
		"num_workers</td><td data-l=\"now\">not in the trace", "41.000\u00a0ms", "4096x14336x4096", "600.0",
		"81.1\u00a0%", "record every rank", "what the driver counts", "idle 51 ms",
		"was launched only 50\u00a0ms after the gap began, by thread 4711",
		"_SingleProcessDataLoaderIter.__next__&#39; for 44\u00a0ms"
	};
	struct sample *s = make_sample(1, NULL, false);
	struct fo_str o = { 0 };
	print_page(&s->d, &o);
	for (size_t i = 0; i < sizeof holds / sizeof *holds; i++)
		if (!strstr(o.data, holds[i]))
			fail_msg("the page does not say '%s'", holds[i]);
	assert_null(strstr(o.data, ">waited for<"));
	/* Elementwise kernels are 8 % and stand alone; nothing is left for the others. What cannot be pasted is no box
	 * to copy from. */
	assert_non_null(strstr(o.data, "elementwise, reductions"));
	assert_null(strstr(o.data, ">other kernels</td>"));
	assert_null(strstr(o.data, "<pre>"));
	/* The data loader's is the bottleneck: the gap is idle, and says so; six cards. */
	assert_non_null(strstr(o.data, "<h2>The longest idle gap, "));
	assert_non_null(strstr(o.data, "The bottleneck is data loading; this is where the GPU idles longest"));
	/* Two lines of the verdict, five tiles, what two findings are worth and one saves. */
	assert_int_equal(count(o.data, "<div><dt>"), 2 + 5 + 3);
	assert_int_equal(count(o.data, "facts c5"), 1);
	/* What to change stands before where the time goes, and its sentence once. */
	assert_true(strstr(o.data, "What to change") < strstr(o.data, "Where the time goes"));
	assert_int_equal(count(o.data, "The GPU waits for the data loader"), 1);
	assert_non_null(strstr(o.data, "matmuls<b>"));
	/* Both events are one row. */
	assert_int_equal(count(o.data, "88\u00a0ms</td><td>"), 1);
	assert_int_equal(count(o.data, ", 2 times</td>"), 1);
	assert_null(strstr(o.data, "<script"));
	assert_int_equal(count(o.data, "class=\"arrow\""), 1);
	fo_str_fini(&o);
	drop_sample(s);
}

/* Nothing that is not known is made up: no model, no findings, no price. */
static void test_bare(void **state)
{
	(void)state;
	struct sample *s = make_sample(1, NULL, true);
	struct fo_str o = { 0 };
	print_page(&s->d, &o);
	assert_non_null(strstr(o.data, "not known"));
	assert_non_null(strstr(o.data, "No bottleneck"));
	assert_null(strchr(o.data, '$'));
	assert_null(strstr(o.data, "Worth"));
	assert_null(strstr(o.data, "nan"));
	fo_str_fini(&o);
	s->d.ranks = 0;
	s->d.worst = s->d.middle = s->d.best = -1;
	print_page(&s->d, &o);
	assert_non_null(strstr(o.data, "There is no GPU work in this trace"));
	fo_str_fini(&o);
	drop_sample(s);
}

static void test_many(void **state)
{
	(void)state;
	struct sample *s = make_sample(RANKS, NULL, false);
	struct fo_str o = { 0 };
	print_page(&s->d, &o);
	assert_int_equal(count(o.data, "class=\"dense\""), RANKS);
	assert_non_null(strstr(o.data, "slowest: rank 0"));
	assert_non_null(strstr(o.data, "without waiting: "));
	assert_non_null(strstr(o.data, ">slowest</th><th scope=\"col\" class=\"r\">median</th>"));
	assert_non_null(strstr(o.data, "fastest: rank 63"));
	assert_non_null(strstr(o.data, "the slowest takes 4.0\u00a0% more than the median"));
	assert_non_null(strstr(o.data, "stage 3"));
	assert_non_null(strstr(
		o.data, "Rank 3 is who the others wait for: 63\u00a0% of all waiting. Its median step has 2\u00a0ms "
			"more of &#34;data loading&#34;"));
	assert_non_null(strstr(o.data, "8 of 9"));
	fo_str_fini(&o);
	drop_sample(s);
}

/* Two ranks of three devices each: the median is the slower again, and no bar shows it twice. */
static void test_two(void **state)
{
	(void)state;
	struct sample *s = make_sample(6, NULL, false);
	struct fo_str o = { 0 };
	s->d.middle = s->d.best;
	print_page(&s->d, &o);
	assert_non_null(strstr(o.data, "fastest: rank 5"));
	assert_null(strstr(o.data, "median: rank"));
	fo_str_fini(&o);
	drop_sample(s);
}

/* No two parts share a colour, nor one with the host's lanes. */
static void test_tones(void **state)
{
	(void)state;
	for (int i = 0; i < FO_LEDGER_PARTS; i++) {
		assert_true(fo_ledger_part_tone[i] < FO_LEDGER_TONE_OP ||
			    fo_ledger_part_tone[i] > FO_LEDGER_TONE_LAUNCH);
		for (int k = 0; k < i; k++)
			assert_int_not_equal(fo_ledger_part_tone[i], fo_ledger_part_tone[k]);
	}
}

/* A host's steps alone: no GPU work, no picture, but the table. */
static void test_host_only(void **state)
{
	(void)state;
	struct sample *s = make_sample(1, NULL, true);
	struct fo_host_step h = { .number = 1,
				  .begin_ns = 0,
				  .end_ns = 10 * MS,
				  .part_ns = { [FO_HOST_PART_CPU] = 9 * MS, [FO_HOST_PART_OTHER] = 1 * MS } };
	struct fo_str o = { 0 };
	s->rank[0].devices = 0;
	s->rank[0].host = &h;
	s->rank[0].hosts = 1;
	print_page(&s->d, &o);
	assert_non_null(strstr(o.data, "There is no GPU work in this trace."));
	assert_non_null(strstr(o.data, "CPU exec"));
	assert_non_null(strstr(o.data, "90.0\u00a0%"));
	assert_null(strstr(o.data, "<figure"));
	assert_null(strstr(o.data, "class=\"facts"));
	fo_str_fini(&o);
	drop_sample(s);
}

static void test_hostile(void **state)
{
	(void)state;
	struct sample *s = make_sample(3, evil, false);
	struct fo_str o = { 0 };
	print_page(&s->d, &o);
	assert_null(strstr(o.data, "<script"));
	assert_null(strchr(o.data, 0x1b));
	assert_null(strstr(o.data, "\xe2\x80\xae"));
	assert_null(strstr(o.data, "src="));
	fo_str_fini(&o);
	drop_sample(s);
}

/* ---- parts and gaps ---- */

static void test_parts(void **state)
{
	(void)state;
	struct fo_ledger l;
	int64_t part[FO_LEDGER_PARTS], sum = 0;
	fill_ledger(&l, 0);
	fo_ledger_parts(&l, part);
	for (int i = 0; i < FO_LEDGER_PARTS; i++)
		sum += part[i];
	assert_true(sum == l.span_ns);
	assert_true(part[FO_LEDGER_IDLE_DATA] == 44 * MS);
	assert_true(part[FO_LEDGER_ELEMENTWISE] == 8 * MS);
	/* Each cause and each class stands in exactly one part. */
	for (int c = 0; c < FO_IDLE_COUNT + FO_K_COMPUTE_COUNT; c++) {
		struct fo_ledger one = { 0 };
		if (c < FO_IDLE_COUNT)
			one.idle_ns[c] = 1;
		else
			one.class_ns[c - FO_IDLE_COUNT] = 1;
		fo_ledger_parts(&one, part);
		sum = 0;
		for (int i = 0; i < FO_LEDGER_PARTS; i++)
			sum += part[i];
		assert_int_equal(sum, 1);
	}
}

static void test_gap(void **state)
{
	(void)state;
	struct sample *s = make_sample(1, NULL, false);
	struct fo_gap g;
	struct fo_str o = { 0 };
	fo_gap_worst(&g, &s->rank[0], &s->device[0], FO_GAP_ANY);
	/* The last kernel ends at 39.99 ms, the copy begins at 91; it was launched at 90. */
	assert_true(g.begin_ns == 39990 * US && g.end_ns == 91 * MS);
	assert_false(g.communication);
	assert_int_equal(g.dids, 2);
	assert_true(g.did[0].ns == 44 * MS && g.did[1].ns == 4 * MS);
	assert_true(g.meanwhile_ns == 90 * MS - 39990 * US && g.did_ns == 48 * MS);
	/* Launched before the gap: nobody was late. */
	s->trace->launch[g.launch].begin_ns = 30 * MS;
	fo_gap_worst(&g, &s->rank[0], &s->device[0], FO_GAP_ANY);
	fo_gap_words(&g, &o);
	assert_non_null(strstr(o.data, "had been launched 9.99 ms before"));
	assert_int_equal(g.dids, 0);
	fo_str_fini(&o);
	/* A long collective alone is the gap; so is nothing at all in a window without operations. */
	s->trace->gpu[201].begin_ns = 40 * MS;
	s->trace->gpu[201].end_ns = 98 * MS;
	s->trace->gpu[200].begin_ns = 20 * US;
	s->trace->gpu[200].end_ns = 30 * US;
	fo_gap_worst(&g, &s->rank[0], &s->device[0], FO_GAP_ANY);
	assert_true(g.communication);
	s->device[0].median.l.begin_ns = 200 * MS;
	s->device[0].median.l.end_ns = 300 * MS;
	fo_gap_worst(&g, &s->rank[0], &s->device[0], FO_GAP_ANY);
	assert_true(g.begin_ns == g.end_ns);
	fo_gap_words(&g, &o);
	struct fo_doc doc = { 0 };
	fo_gap_picture(&doc, &g, NULL);
	fo_doc_to_html(&doc, &o);
	fo_doc_fini(&doc);
	fo_str_fini(&o);
	drop_sample(s);
}

static void test_short_names(void **state)
{
	(void)state;
	static const char *const name[][2] = {
		{ "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
		  "vectorized_layer_norm_kernel" },
		{ "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
		  "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" },
		{ "void dpsk::ep::internode::combine<true>(int)", "combine" },
		{ "void <unnamed>::elementwise_kernel_with_index<int>(int)", "elementwise_kernel_with_index" },
		{ "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Pageable -> Device)" },
		{ "void "
		  "cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8>(T1::Params)",
		  "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align8" },
		{ "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
		  "CollectiveMainloopFwdSm90<2>>>>(int)",
		  "FlashAttnFwdSm90" },
		{ "Cijk_Alik_Bljk_BBS", "Cijk_Alik_Bljk_BBS" },
		{ "(", "(" },
		{ "", "" },
		{ "a::", "a::" },
	};
	char buf[96], small[5];
	for (size_t i = 0; i < sizeof name / sizeof *name; i++)
		assert_string_equal(fo_kernel_short_name(buf, sizeof buf, name[i][0]), name[i][1]);
	assert_string_equal(fo_kernel_short_name(small, sizeof small, "äöüx"), "äö");
}

int main(int argc, char **argv)
{
	if (argc == 3)
		return write_page(argv[1], argv[2]);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_page),        cmocka_unit_test(test_bare),  cmocka_unit_test(test_many),
		cmocka_unit_test(test_hostile),     cmocka_unit_test(test_parts), cmocka_unit_test(test_gap),
		cmocka_unit_test(test_short_names), cmocka_unit_test(test_two),   cmocka_unit_test(test_tones),
		cmocka_unit_test(test_host_only),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
