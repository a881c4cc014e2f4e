/* The bridge to MFU, products by shape, which accelerator a trace names, the arithmetic of gains. */
#define _GNU_SOURCE /* setenv */
#include "support/hand_trace.h"
#include "support/random.h"

#include "diagnose/products_int.h"
#include "model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int64_t draw(int64_t limit) { return (int64_t)(random_next() % (uint64_t)limit); }

static const char product[] = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas";

/* ---- gains ---- */

static void test_gain(void **state)
{
	(void)state;
	struct fo_finding f = { 0 };
	/* A third of 300 goes: 1.5; at worst half of it does and 20 come back: 270. */
	fo_gain_solve(
		&(struct fo_gain){ .step_ns = 300, .removable_ns = 100, .least = 0.5, .most = 1, .reappear_ns = 20 },
		&f);
	assert_int_equal(f.loss_ns, 100);
	assert_true(fabs(f.ceiling - 1.5) < 1e-12 && fabs(f.gain_high - 1.5) < 1e-12);
	assert_true(fabs(f.gain_low - 300.0 / 270) < 1e-12 && fabs(f.gain - 600.0 / (200 + 270)) < 1e-12);
	/* Under a floor of 240 nothing is faster, and what comes back comes on top of it. */
	fo_gain_solve(&(struct fo_gain){ .step_ns = 300,
					 .removable_ns = 100,
					 .least = 1,
					 .most = 1,
					 .reappear_ns = 20,
					 .floor_ns = 240 },
		      &f);
	assert_true(fabs(f.ceiling - 1.5) < 1e-12 && fabs(f.gain_high - 1.25) < 1e-12 &&
		    fabs(f.gain_low - 300.0 / 260) < 1e-12);
	/* The cure lowers the floor too, at best. */
	fo_gain_solve(&(struct fo_gain){ .step_ns = 300,
					 .removable_ns = 100,
					 .least = 0,
					 .most = 1,
					 .floor_ns = 290,
					 .best_floor_ns = 210 },
		      &f);
	assert_true(fabs(f.gain_high - 300.0 / 210) < 1e-12 && f.gain_low == 1);
	for (int i = 0; i < 20000; i++) {
		struct fo_gain g = { .step_ns = draw(1000000),
				     .removable_ns = draw(1200000) - 1000,
				     .reappear_ns = draw(500000),
				     .floor_ns = draw(2) ? draw(1500000) : 0,
				     .most = (double)draw(1001) / 1000 };
		g.least = g.most * (double)draw(1001) / 1000;
		fo_gain_solve(&g, &f);
		if (f.nearly_all) { /* almost nothing would be left: no factor is named */
			assert_true(isnan(f.ceiling) && isnan(f.gain) && isnan(f.gain_low) && isnan(f.gain_high));
			assert_true((double)g.removable_ns * g.most > 0.9 * (double)g.step_ns);
			continue;
		}
		assert_true(f.gain_low >= 1 && f.gain_low <= f.gain && f.gain <= f.gain_high &&
			    f.gain_high <= f.ceiling + 1e-12);
		if (g.floor_ns > 0 && g.floor_ns < g.step_ns)
			assert_true((double)g.step_ns / f.gain_high >= (double)g.floor_ns - 1e-3);
	}
}

/* ---- accelerators ---- */

static void test_device(void **state)
{
	(void)state;
	struct fo_catalogue c;
	assert_int_equal(fo_catalogue_load(&c, NULL), FO_OK);
	/* Names as drivers report them. Memory in GiB; 0: the trace does not tell. */
	static const struct {
		const char *name;
		int sms;
		double gib;
		const char *row; /* NULL: none is sure */
	} known[] = {
		{ "NVIDIA H100 80GB HBM3", 132, 79.1, "H100-SXM5-80GB" },
		{ "NVIDIA H100 80GB HBM3", 0, 0, "H100-SXM5-80GB" },
		{ "NVIDIA H100 PCIe", 114, 79.1, "H100-PCIe-80GB" },
		{ "NVIDIA H100 NVL", 132, 93.1, "H100-NVL-94GB" },
		{ "NVIDIA H200", 132, 139.8, "H200-SXM-141GB" },
		{ "NVIDIA H800", 132, 79.1, "H800-SXM-80GB" },
		{ "NVIDIA A100-SXM4-40GB", 108, 39.4, "A100-SXM4-40GB" },
		{ "NVIDIA A100-SXM4-80GB", 108, 79.1, "A100-SXM4-80GB" },
		{ "NVIDIA A100 80GB PCIe", 108, 79.1, "A100-PCIe-80GB" },
		{ "NVIDIA A100-PG509-200", 108, 39.4, "A100-SXM4-40GB" },
		{ "NVIDIA B200", 148, 178, "B200-SXM-HGX" },
		{ "NVIDIA GB200", 148, 185, "GB200-NVL72" },
		{ "Tesla V100-SXM2-32GB", 80, 31.7, "V100-SXM2-32GB" },
		{ "Tesla V100-DGXS-32GB", 80, 31.7, "V100-SXM2-32GB" },
		{ "Tesla V100-SXM2-16GB", 80, 15.8, NULL },
		{ "Tesla V100-PCIE-32GB", 80, 31.7, NULL },
		{ "AMD Instinct MI300X", 304, 192, "MI300X" },
		{ "AMD Instinct MI325X", 304, 256, "MI325X" },
		{ "AMD Instinct MI210", 104, 64, NULL },
		{ "AMD Radeon Graphics", 0, 0, NULL },
		{ "NVIDIA GeForce RTX 4090", 128, 24, "RTX-4090" },
		{ "NVIDIA GeForce RTX 4090 D", 114, 24, NULL },
		{ "NVIDIA GeForce RTX 4090 Laptop GPU", 76, 16, NULL },
		{ "NVIDIA GeForce RTX 2080 Ti", 68, 11, NULL },
		{ "NVIDIA A100-SXM4-80GB MIG 3g.40gb", 42, 39.4, NULL },
		{ "NVIDIA A100-SXM4-80GB", 132, 79.1, NULL },
		{ "NVIDIA GH200 480GB", 132, 95, "GH200-96GB" },
		{ "NVIDIA GH200 480GB", 0, 0, "GH200-96GB" }, /* of two with one peak the slower memory */
		{ "NVIDIA GH200 144G HBM3e", 132, 143.4, "GH200-144GB" },
		{ "NVIDIA GH200 480GB", 132, 108, NULL }, /* no such memory */
		{ "NVIDIA B300 SXM6 AC", 148, 268, "B300-SXM-HGX" },
		{ "NVIDIA GB300", 152, 277, "GB300-NVL72" },
		{ "NVIDIA GB10", 48, 119.7, "GB10" },
		{ "NVIDIA GeForce RTX 3090", 82, 23.6, "RTX-3090" },
		{ "NVIDIA GeForce RTX 3090 Ti", 84, 23.6, NULL },
		{ "NVIDIA GeForce RTX 5090", 170, 31.4, "RTX-5090" },
		{ "NVIDIA RTX A6000", 84, 47.5, "RTX-A6000" },
		{ "NVIDIA RTX 6000 Ada Generation", 142, 47.5, NULL },
		{ "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 188, 95, "RTX-PRO-6000-Blackwell" },
		{ "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 188, 95, "RTX-PRO-6000-Max-Q" },
		{ "AMD Instinct MI350X", 256, 288, "MI350X" },
		{ "AMD Instinct MI355X", 256, 288, "MI355X" },
		{ "AMD Instinct MI308X", 80, 192, "MI308X" },
		{ "AMD Instinct MI300X", 80, 192, NULL }, /* a part of one */
		{ "", 0, 0, NULL },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		const struct fo_device *v = fo_device_match(&c, known[i].name, known[i].sms,
							    (int64_t)(known[i].gib * 1073741824.0));
		const char *got = v ? v->name : "none";
		if (strcmp(got, known[i].row ? known[i].row : "none") != 0)
			fail_msg("'%s' is taken for %s", known[i].name, got);
	}
	fo_catalogue_fini(&c);
}

/* ---- shapes ---- */

static void test_shapes(void **state)
{
	(void)state;
	static const struct {
		const char *name, *shapes;
		double flop; /* 0: not a product whose shapes tell */
	} known[] = {
		{ "aten::mm", "[[3, 5], [5, 7]]", 2.0 * 3 * 5 * 7 },
		{ "aten::addmm", "[[7], [3, 5], [5, 7], [], []]", 2.0 * 3 * 5 * 7 },
		{ "aten::bmm", "[[2, 3, 5], [2, 5, 7]]", 2.0 * 2 * 3 * 5 * 7 },
		{ "aten::baddbmm", "[[2, 3, 7], [2, 3, 5], [2, 5, 7]]", 2.0 * 2 * 3 * 5 * 7 },
		{ "aten::linear", "[[2, 3, 5], [7, 5], [7]]", 2.0 * 2 * 3 * 5 * 7 },
		{ "aten::_scaled_mm", "[[3, 5], [5, 7], [], []]", 2.0 * 3 * 5 * 7 },
		{ "aten::_grouped_mm", "[[12, 5], [4, 5, 7], [4]]", 2.0 * 12 * 5 * 7 },
		/* Queries and keys of 16 and 24 tokens, 4 heads of 8: both products of each pair. */
		{ "aten::_scaled_dot_product_flash_attention",
		  "[[2, 4, 16, 8], [2, 4, 24, 8], [2, 4, 24, 8], [], [], []]", 2.0 * 2 * 4 * 16 * 24 * 16 },
		{ "aten::_scaled_dot_product_flash_attention_backward",
		  "[[2, 4, 16, 8], [2, 4, 16, 8], [2, 4, 24, 8], [2, 4, 24, 8], [2, 4, 16, 8], [2, 4, 16]]",
		  2 * 2.0 * 2 * 4 * 16 * 24 * 16 },
		{ "aten::_flash_attention_forward", "[[2, 16, 4, 8], [2, 24, 4, 8], [2, 24, 4, 8]]",
		  2.0 * 2 * 4 * 16 * 24 * 16 },
		{ "aten::mm", "[[3, 5], [6, 7]]", 0 },
		{ "aten::mm", "[[3, 5]]", 0 },
		{ "aten::mm", "[]", 0 },
		{ "aten::mm", "]][[", 0 },
		{ "aten::mm", "[[3, 5], [5, 7", 0 },
		{ "aten::mm", "[[[[[[3, 5]]]]]]", 0 },
		{ "aten::mm", "", 0 },
		{ "aten::add", "[[3, 5], [5, 7]]", 0 },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct hand h;
		struct fo_product_shape s;
		int32_t where;
		double flop = 0;
		hand_begin(&h, 0, 1);
		hand_op(&h, FO_HOST_OP, known[i].name, 0, 10)->shapes = hand_text(&h, known[i].shapes);
		hand_kernel(&h, product, 1, 5, 20);
		hand_finish(&h);
		bool got = fo_call_of_op(h.t, h.t->gpu[0].op, &where, &s, &flop);
		if (got != (known[i].flop > 0) || (got && flop != known[i].flop))
			fail_msg("%s %s: %g FLOP instead of %g", known[i].name, known[i].shapes, got ? flop : 0,
				 known[i].flop);
		hand_done(&h, NULL);
	}
	/* Numbers that no tensor has: no overflow, a finite count. */
	struct hand h;
	struct fo_product_shape s;
	int32_t where;
	double flop;
	hand_begin(&h, 0, 1);
	hand_op(&h, FO_HOST_OP, "aten::bmm", 0, 10)->shapes = hand_text(
		&h, "[[99999999999999999999, 9223372036854775807, 9223372036854775807], [9223372036854775807, "
		    "9223372036854775807, 5]]");
	hand_kernel(&h, product, 1, 5, 20);
	hand_finish(&h);
	assert_true(fo_call_of_op(h.t, h.t->gpu[0].op, &where, &s, &flop) && isfinite(flop));
	hand_done(&h, NULL);
}

static void test_types(void **state)
{
	(void)state;
	static const char *const known[][2] = {
		{ "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>(Params)", "tf32" },
		{ "cutlass_80_tensorop_s1688tf32gemm_128x128_16x3_nn_align4", "tf32" },
		{ "ampere_sgemm_128x64_nn", "fp32" },
		{ "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)", "fp32" },
		{ "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x64x64_stage3", "tf32" },
		{ "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize32x32x8_stage3", "fp32" },
		{ "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas", "bf16" },
		{ "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128", "fp8" },
		{ "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_tn_align1", "bf16" },
		{ "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_128x2_tn_align8", "bf16" },
		{ "cutlass_70_wmma_tensorop_f16_s161616gemm_f16_32x32_64x2_tn_align8", "fp16" },
		{ "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "fp16" },
		{ "ampere_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_nn", "bf16" },
		{ "ampere_h16816gemm_64x64_ldg8_stages_64x5_tn", "fp16" },
		{ "volta_s884gemm_fp16_64x64_ldg8_f2f_nn", "fp16" },
		{ "volta_h884gemm_128x128_ldg8_nn", "fp16" },
		{ "volta_sgemm_128x64_nn", "fp32" },
		{ "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "bf16" },
		{ "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "fp16" },
		{ "nvjet_qqtst_128x128_128x6_1x2_h_bz_TNT", "fp8" },
		{ "nvjet_sm100_qqtst_128x256_128x4_2x1_2cta_v_bz_TNT", "fp8" },
		{ "nvjet_sm100_tst_128x256_64x6_2x1_2cta_v_bz_TNT", "bf16" },
		{ "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1", "bf16" },
		{ "Cijk_Alik_Bljk_B_BS_BH_Bias_HA_S_SAV_UserArgs_MT256x128x64", "bf16" },
		{ "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16", "fp16" },
		{ "Cijk_Ailk_Bljk_HSS_BH_MT128x128x16", "fp16" },
		{ "Cijk_Ailk_Bljk_S_B_Bias_HA_S_SAV_UserArgs_MT16x16x128", "fp32" },
		{ "Cijk_Ailk_Bljk_SB_MT64x64x16", "fp32" },
		{ "Cijk_Ailk_Bljk_S_MX_B_Bias_MT64x64x16", "tf32" },
		{ "Cijk_Alik_Bljk_F8BS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x128", "fp8" },
		{ "Cijk_", "" },
		{ "nvjet_", "" },
		{ "nvjet_sm90", "" },
		{ "splitKreduce_kernel", "" },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(fo_dtype_of_kernel(known[i][0]), known[i][1]) != 0)
			fail_msg("%s: '%s' instead of '%s'", known[i][0], fo_dtype_of_kernel(known[i][0]), known[i][1]);
}

static void test_fill(void **state)
{
	(void)state;
	struct fo_product_shape s = { .m = 256, .n = 128 * 66, .k = 64, .batch = 1 };
	assert_true(fabs(fo_product_fill(&s, "x_128x128_", 132) - 1) < 1e-12); /* 132 tiles, one wave */
	s.n = 128 * 67;
	assert_true(fabs(fo_product_fill(&s, "x_128x128_", 132) - 134.0 / 264) < 1e-12); /* two tiles begin a second */
	s.m = 129;
	s.n = 128 * 132;
	assert_true(fabs(fo_product_fill(&s, "x_128x128_", 132) - 129.0 / 256) <
		    1e-12); /* half of the lower tiles is empty */
	s.m = 512;
	s.n = 256 * 66;
	assert_true(fabs(fo_product_fill(&s, "Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1_SN", 132) - 1) < 1e-12);
	assert_true(isnan(fo_product_fill(&s, "x", NAN)));
}

/* ---- the bridge ---- */

static struct fo_device_ledger ledger_of(const struct hand *h, struct fo_ledger *l)
{
	(void)h;
	l->comp_ns = l->exposed_mem_ns = l->idle_total_ns = 0;
	for (int i = 0; i < FO_K_COMPUTE_COUNT; i++)
		l->comp_ns += l->class_ns[i];
	for (int i = 0; i < FO_COPY_COUNT; i++)
		l->exposed_mem_ns += l->copy_ns[i];
	for (int i = 0; i < FO_IDLE_COUNT; i++)
		l->idle_total_ns += l->idle_ns[i];
	l->exposed_comm_ns = l->exposed_wait_ns + l->exposed_transfer_ns + l->exposed_comm_unknown_ns;
	l->busy_ns = l->comp_ns + l->exposed_comm_ns + l->exposed_mem_ns;
	l->span_ns = l->busy_ns + l->idle_total_ns;
	l->resident_ns = l->comp_ns + l->exposed_comm_ns;
	l->end_ns = l->begin_ns + l->span_ns;
	l->ops = 1;
	return (struct fo_device_ledger){
		.from = FO_WINDOW_LAUNCHED_STEPS, .steps = 1, .total = *l, .median = { .l = *l }
	};
}

static double sum(const struct fo_bridge *b)
{
	double s = 0;
	for (int i = 0; i < b->rows; i++)
		s += b->row[i].share;
	return s;
}

static const struct fo_bridge_row *row(const struct fo_bridge *b, const char *name)
{
	for (int i = 0; i < b->rows; i++)
		if (strcmp(b->row[i].name, name) == 0)
			return &b->row[i];
	fail_msg("the bridge has no row '%s'", name);
	return NULL;
}

static void test_random_bridges(void **state)
{
	(void)state;
	struct hand h;
	hand_begin(&h, 0, 8);
	hand_device(&h, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	hand_kernel(&h, product, 1, 2, 3);
	hand_finish(&h);
	int known = 0;
	for (int i = 0; i < 300; i++) {
		struct fo_ledger l = { .begin_ns = 0 };
		for (int k = 0; k < FO_K_COMPUTE_COUNT; k++)
			l.class_ns[k] = draw(3) || k == FO_K_GEMM ? draw(100000000) : 0;
		for (int k = 0; k < FO_COPY_COUNT; k++)
			l.copy_ns[k] = draw(2) ? draw(10000000) : 0;
		for (int k = 0; k < FO_IDLE_COUNT; k++)
			l.idle_ns[k] = draw(2) ? draw(50000000) : 0;
		l.exposed_wait_ns = draw(30000000);
		l.exposed_transfer_ns = draw(30000000);
		l.exposed_comm_unknown_ns = draw(2) ? draw(30000000) : 0;
		struct fo_device_ledger v = ledger_of(&h, &l);
		struct fo_rank_ledger r = { .trace = h.t, .rank = 0, .device = &v, .devices = 1 };
		struct fo_diagnosis d = { .rank = &r,
					  .ranks = 1,
					  .with = { .model = "llama-3.2-1b",
						    .seq = 2048,
						    .tokens_per_step = 8 * (1 + draw(8000)),
						    .price_per_hour = 2.5 } };
		assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
		assert_true(d.bridge.devices == 8);
		known += d.bridge.known;
		if (d.bridge.known) {
			const struct fo_bridge *b = &d.bridge;
			assert_true(fabs(sum(b) - 1) < 1e-12);
			double dollars = 0;
			for (int k = 0; k < b->rows; k++) {
				dollars += b->row[k].dollars_per_hour;
				/* Only these may be negative: the ideal is taken out of them. */
				if (b->row[k].share < 0)
					assert_true(strstr(b->row[k].name, "ideal") != NULL &&
						    b->row[k].share > -b->mfu - 0.01);
			}
			assert_true(b->mfu <= 1.01 * d.utilisation.computing);
			for (int k = 0; k < b->losses; k++)
				for (int n = 1; n < b->rows; n++) /* greater ones come before */
					assert_true(b->row[n].share <= b->row[b->loss[k]].share ||
						    (k > 0 && n == b->loss[0]) || (k > 1 && n == b->loss[1]));
			assert_true(fabs(dollars - 8 * 2.5) < 1e-9);
			assert_true(fabs(b->row[0].dollars - 20 * b->step_s / 3600 * b->mfu) < 1e-12);
		} else {
			/* More tokens than the peak could do, or more than there are kernels for. */
			assert_non_null(strstr(d.bridge.why_not, "cannot be right"));
			assert_non_null(strstr(d.bridge.why_not, "--tokens-per-step"));
		}
		free(d.product);
	}
	assert_true(known > 50 && known < 290);
	hand_done(&h, NULL);
}

/* Of a window of 1 s without steps. */
static void check_steps_given(struct fo_diagnosis *d, double mfu, double causal)
{
	d->with.steps = 2;
	d->with.tokens_per_step /= 2;
	assert_int_equal(fo_diagnose_bridge(d), FO_OK);
	assert_true(d->bridge.known && fabs(d->bridge.mfu - mfu) < 1e-9 && fabs(d->bridge.step_s - 0.5) < 1e-12 &&
		    fabs(sum(&d->bridge) - 1) < 1e-12);
	assert_true(fabs(d->bridge.mfu_causal - causal) < 1e-9);
	assert_non_null(strstr(d->bridge.note, "2 steps, as given"));
	d->with.steps = 0;
	d->with.step_s = 0.5;
	assert_int_equal(fo_diagnose_bridge(d), FO_OK);
	assert_true(d->bridge.known && fabs(d->bridge.mfu - mfu) < 1e-9 && d->bridge.steps == 2);
	d->with.step_s = 1.5; /* part of a step is no step */
	assert_int_equal(fo_diagnose_bridge(d), FO_OK);
	assert_true(!d->bridge.known && strstr(d->bridge.why_not, "is longer than"));
	assert_true(isnan(d->attention.efficiency)); /* nor is attention judged by it */
	d->with.step_s = 0.01;
	assert_int_equal(fo_diagnose_bridge(d), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "--step-seconds"));
	fo_err_clear();
	d->with.step_s = 0;
	d->with.tokens_per_step *= 2;
}

static void check_missing(struct hand *h, struct fo_diagnosis *d)
{
	/* What is missing is said, not guessed. */
	h->t->device[0].name = -1;
	assert_int_equal(fo_diagnose_bridge(d), FO_OK);
	assert_true(!d->bridge.known && strstr(d->bridge.why_not, "--device"));
	d->with.device = "h100";
	d->with.dtype = "bf16";
	assert_int_equal(fo_diagnose_bridge(d), FO_OK);
	assert_true(d->bridge.known);
	d->with.tokens_per_step = 0;
	assert_int_equal(fo_diagnose_bridge(d), FO_EARG);
	d->with.tokens_per_step = 2 * 8192;
	d->with.device = "h1000";
	assert_int_equal(fo_diagnose_bridge(d), FO_EARG);
}

static void test_bridge_by_hand(void **state)
{
	(void)state;
	struct hand h;
	struct fo_model m;
	hand_begin(&h, 0, 2);
	hand_device(&h, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	hand_kernel(&h, product, 1, 2, 3);
	hand_finish(&h);
	struct fo_ledger l = { .begin_ns = 0 };
	l.class_ns[FO_K_GEMM] = 500000000;
	l.class_ns[FO_K_ATTENTION_FORWARD] = 80000000;
	l.class_ns[FO_K_NORM] = 20000000;
	l.exposed_transfer_ns = 100000000;
	l.idle_ns[FO_IDLE_HOST_DATA] = 300000000;
	struct fo_device_ledger v = ledger_of(&h, &l);
	struct fo_rank_ledger r = { .trace = h.t, .rank = 0, .device = &v, .devices = 1 };
	struct fo_diagnosis d = {
		.rank = &r,
		.ranks = 1,
		.with = { .model = "llama-3.1-8b", .seq = 8192, .tokens_per_step = 2 * 8192, .price_per_hour = 3 }
	};
	assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
	assert_int_equal(fo_model_load("llama-3.1-8b", &m), FO_OK);
	struct fo_flop f = fo_model_flop_per_token(&m, 8192);
	assert_true(d.bridge.known);
	assert_true(fabs(d.bridge.mfu - 8192 * f.mfu / 989e12) < 1e-9); /* the step takes 1 s */
	assert_true(fabs(d.bridge.mfu_causal - 8192 * f.mfu_causal / 989e12) < 1e-9);
	double scores = 12.0 * 32 * 4096 * 8192 * 8192 / 989e12; /* 12 L H Q S a token */
	assert_true(fabs(row(&d.bridge, "attention above its ideal")->share - (0.08 - scores)) < 1e-9);
	assert_true(fabs(row(&d.bridge, "matmuls above their ideal")->share - (0.5 - (d.bridge.mfu - scores))) < 1e-9);
	assert_true(fabs(row(&d.bridge, "idle: data loading")->share - 0.3) < 1e-12);
	assert_true(fabs(row(&d.bridge, "idle: data loading")->dollars_per_hour - 1.8) < 1e-12);
	assert_non_null(strstr(d.utilisation.sentence, "70 % utilisation"));
	assert_non_null(strstr(d.utilisation.sentence, "the part of the step that its arithmetic would need at peak"));
	assert_true(d.bridge.losses == 3 && d.bridge.loss[0] >= 0);
	assert_string_equal(d.bridge.row[d.bridge.loss[0]].name, "idle: data loading");
	assert_non_null(strstr(d.bridge.peak_source, "989 TFLOP/s bf16 dense, github.com/"));
	assert_null(strstr(d.bridge.peak_source, "devices.csv"));
	assert_true(fabs(d.bridge.measured_flop_s - 794.5e12) < 1e6);
	assert_true(fabs(d.attention.efficiency - scores / 0.08) < 1e-9);
	/* Twice the tokens need more than the kernels ran for; the sentence names what may be wrong. */
	d.with.tokens_per_step *= 2;
	assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
	assert_true(!d.bridge.known && strstr(d.bridge.why_not, "--tokens-per-step") && isnan(d.bridge.mfu));
	assert_null(strstr(d.utilisation.sentence, "would need at peak"));
	d.with.tokens_per_step /= 2;
	/* More than the whole step at the peak is an error of what was given, which names the inputs to doubt. */
	d.with.dtype = "fp32";
	assert_int_equal(fo_diagnose_bridge(&d), FO_EARG);
	assert_non_null(strstr(fo_err_text(), "an MFU of"));
	assert_non_null(strstr(fo_err_text(), "--tokens-per-step, --model, --device or --dtype"));
	assert_null(strstr(fo_err_text(), "--steps"));
	fo_err_clear();
	d.with.dtype = NULL;
	/* A span that is no step: tokens per step do not help, and there are no shapes. */
	v.from = FO_WINDOW_WHOLE;
	assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
	assert_true(!d.bridge.known && strstr(d.bridge.why_not, "tokens per step say nothing") &&
		    strstr(d.bridge.why_not, "--steps N"));
	/* ... but the number of steps in it, or the time of one, does. */
	double mfu = 8192 * f.mfu / 989e12;
	check_steps_given(&d, mfu, 8192 * f.mfu_causal / 989e12);
	v.from = FO_WINDOW_LAUNCHED_STEPS;
	d.with.steps = 7; /* the trace's own steps are better known */
	assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
	assert_true(d.bridge.known && fabs(d.bridge.mfu - mfu) < 1e-9 && strstr(d.bridge.note, "not used"));
	d.with.steps = 0;
	/* A tenth of the step repeats products: its own row, and no inefficiency of theirs. */
	h.t->gpu[0].flags |= FO_GPU_RECOMPUTED;
	v.median.l.recompute_ns = 100000000;
	assert_int_equal(fo_diagnose_bridge(&d), FO_OK);
	assert_true(fabs(row(&d.bridge, "recomputation")->share - 0.1) < 1e-9 && fabs(sum(&d.bridge) - 1) < 1e-12);
	assert_true(fabs(row(&d.bridge, "matmuls above their ideal")->share - (0.4 - (d.bridge.mfu - scores))) < 1e-9);
	check_missing(&h, &d);
	free(d.product);
	hand_done(&h, NULL);
}

/* One product of single operands in a TF32 kernel: 2 x 4096^3 in 1 ms is 137 TFLOP/s, seven times what an A100's vector
 * units do and below its TF32 peak. The same at 10 times the speed is above any. */
static void tf32_product(struct hand *h, double takes)
{
	hand_begin(h, 0, 1);
	hand_device(h, "NVIDIA A100-SXM4-80GB", 108, 8, 0, 79.1);
	struct fo_host_op *o = hand_op(h, FO_HOST_OP, "aten::mm", 0, 10);
	o->shapes = hand_text(h, "[[4096, 4096], [4096, 4096]]");
	o->types = hand_text(h, "[\"float\", \"float\"]");
	hand_kernel(h, "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 1, 5, 5 + takes);
	hand_finish(h);
}

static void test_shapes_rate(void **state)
{
	(void)state;
	struct hand h;
	struct fo_diagnosis d;
	struct fo_trace_set set;
	struct fo_diagnose_options o = {
		.price_per_hour = NAN, .model = "llama-3.1-8b", .seq = 8192, .tokens_per_step = 8192
	};
	tf32_product(&h, 1000);
	hand_diagnose(&h, &d, &set, &o);
	assert_int_equal(d.products, 1);
	assert_string_equal(d.product[0].dtype, "tf32");
	assert_true(d.product[0].attainable_flop_s <= 156e12 && d.product[0].flop_s < d.product[0].attainable_flop_s);
	assert_true(d.forward_only);
	/* No steps: the model's tokens are left aside, and why is told. */
	assert_true(d.bridge.known && strstr(d.bridge.note, "no steps"));
	assert_string_equal(d.bridge.rule, "shapes");
	assert_string_equal(d.bridge.dtype, "tf32");
	assert_true(fabs(d.bridge.mfu - 137.439e12 / 156e12) < 1e-3);
	hand_done(&h, &d);
	o.model = NULL;
	tf32_product(&h, 100);
	hand_diagnose(&h, &d, &set, &o);
	assert_true(!d.bridge.known && strstr(d.bridge.why_not, "4096 x 4096 x 4096") &&
		    strstr(d.bridge.why_not, "--dtype"));
	hand_done(&h, &d);
	o.dtype = "fp32";
	tf32_product(&h, 1000);
	hand_diagnose(&h, &d, &set, &o);
	assert_true(!d.bridge.known && strstr(d.bridge.why_not, "fp32 peak of A100"));
	hand_done(&h, &d);
}

/* 16384 queries and keys, 32 heads of 128: 4.4e12 FLOP in 20 ms are 220 TFLOP/s, 22 % of an H100's 989. */
static void attention(struct hand *h, bool shapes, double takes)
{
	hand_begin(h, 0, 1);
	hand_device(h, "NVIDIA H100 80GB HBM3", 132, 9, 0, 79.1);
	const char *four = "[[1, 32, 16384, 128], [1, 32, 16384, 128], [1, 32, 16384, 128]]";
	struct fo_host_op *o = hand_op(h, FO_HOST_OP, "aten::_scaled_dot_product_flash_attention", 0, 10);
	o->shapes = shapes ? hand_text(h, four) : -1;
	hand_kernel(h, "pytorch_flash::flash_fwd_kernel", 1, 5, 5 + takes);
	o = hand_op(h, FO_HOST_OP, "aten::mm", 20, 30);
	o->shapes = shapes ? hand_text(h, "[[8192, 8192], [8192, 8192]]") : -1;
	hand_kernel(h, product, 21, 5 + takes, 5 + takes + 2000);
	hand_finish(h);
}

static void test_attention(void **state)
{
	(void)state;
	struct hand h;
	struct fo_diagnosis d;
	struct fo_trace_set set;
	struct fo_diagnose_options o = { .price_per_hour = NAN };
	attention(&h, true, 20000);
	hand_diagnose(&h, &d, &set, &o);
	const struct fo_finding *f = hand_finding(&d, "attention-efficiency");
	assert_true(fabs(d.attention.efficiency - 4.0 * 32 * 16384 * 16384 * 128 / 0.02 / 989e12) < 1e-3);
	assert_true(f && !f->serious && f->settings > 0 && f->gain_low == 1 && f->gain_high > 1.5);
	assert_non_null(hand_finding(&d, "forward-only"));
	hand_done(&h, &d);
	attention(&h, true, 8000); /* 55 %: within what is published */
	hand_diagnose(&h, &d, &set, &o);
	assert_null(hand_finding(&d, "attention-efficiency"));
	hand_done(&h, &d);
	attention(&h, false, 20000);
	hand_diagnose(&h, &d, &set, &o);
	f = hand_finding(&d, "attention-unknown");
	assert_true(f && isnan(f->gain) && strstr(f->why, "record_shapes=True"));
	hand_done(&h, &d);
}

int main(void)
{
	fo_random_state = 20261122;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gain),           cmocka_unit_test(test_device),
		cmocka_unit_test(test_shapes),         cmocka_unit_test(test_fill),
		cmocka_unit_test(test_types),          cmocka_unit_test(test_shapes_rate),
		cmocka_unit_test(test_attention),      cmocka_unit_test(test_random_bridges),
		cmocka_unit_test(test_bridge_by_hand),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
