/* Kernels of many libraries by name, each with the class that a person would give it: a table beside that of the rules,
 * so that a rule that is widened for one library shows what it takes from another. Names are shortened, never invented
 * words of a class. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trace/trace.h"

struct named {
	const char *name, *class;
};

static void hold(const struct named *v, size_t n)
{
	int wrong = 0;
	for (size_t i = 0; i < n; i++) {
		const char *got = fo_kernel_class_name[fo_kernel_class_of(v[i].name)];
		if (strcmp(got, v[i].class) != 0) {
			print_error("'%s' is %s, expected %s\n", v[i].name, got, v[i].class);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}
#define HOLD(v) hold(v, sizeof(v) / sizeof *(v))

/* "fbgemm" is a library's name and no product. */
static void test_recommender(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "void fbgemm_gpu::bounds_check_indices_kernel_v1<long>(at::GenericPackedTensorAccessor<int, 1ul>)",
		  "embedding" },
		{ "void bounds_check_indices_kernel<long>(at::GenericPackedTensorAccessor<long, 1ul>, "
		  "fbgemm_gpu::BoundsCheckMode)",
		  "embedding" },
		{ "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, long, 5ul>(at::Tensor, "
		  "fbgemm_gpu::FixedDivisor)",
		  "embedding" },
		{ "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_warp_per_row_1<float, "
		  "float>(fbgemm_gpu::X)",
		  "embedding" },
		{ "void fbgemm_gpu::permute_2D_lengths_kernel<int>(int, int, int const*, int const*, int*)",
		  "embedding" },
		{ "void fbgemm_gpu::permute_1D_data_kernel<true, long, float>(int, long const*)", "embedding" },
		{ "void fbgemm_gpu::permute_pooled_embs_kernel<float, false>(float const*)", "embedding" },
		{ "void fbgemm_gpu::jagged_index_select_2d_kernel<long, "
		  "c10::BFloat16>(at::PackedTensorAccessor64<c10::BFloat16>)",
		  "embedding" },
		{ "void fbgemm_gpu::jagged_dense_elementwise_dense_output_kernel_<2, long, "
		  "float>(at::PackedTensorAccessor32<float>)",
		  "elementwise" },
		{ "void fbgemm_gpu::jagged_to_padded_dense_forward_kernel<long, float>(float*)", "copy" },
		{ "void fbgemm_gpu::jagged_softmax_kernel<long, float>(float*)", "softmax" },
		{ "void fbgemm_gpu::jagged_dense_bmm_kernel<long, float>(float*)", "gemm" },
		{ "void fbgemm_gpu::_float_to_fused8bitrowwise_cuda_kernel<float, unsigned char>(float const*)",
		  "cast" },
		{ "void fbgemm_gpu::_fused8bitrowwise_to_float_cuda_kernel<float>(unsigned char const*)", "cast" },
		{ "void fbgemm_gpu::_bfloat16_to_float_cuda_kernel(c10::BFloat16 const*)", "cast" },
		{ "void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float const*)", "cast" },
		{ "void fbgemm_gpu::f8f8bf16_rowwise_quantize_kernel<float>(float const*)", "cast" },
		{ "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<fbgemm_gpu::f8f8bf16, "
		  "cutlass::float_e4m3_t>>",
		  "gemm_fp8" },
		{ "void fbgemm_gpu::asynchronous_complete_cumsum_kernel<long>(long*)", "reduce" },
		{ "void recat_copy_async_kernel<float>(long const*, long const*, float const*)", "copy" },
	};
	HOLD(v);
}

/* Fragments that stand inside other words. */
static void test_word_bounds(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "prefill_metadata_kernel", "other" },
		{ "europe_kernel", "other" },
		{ "streamKernel", "other" },
		{ "deep_epilogue_kernel", "other" },
		{ "at::native::quantile_interp_kernel", "other" },
		{ "memori::step", "other" },
		{ "input_scale_kernel", "other" },
		{ "soln_fwd_step", "other" },
		{ "convert_dtype_kernel", "cast" },
		{ "void normal_kernel<float>(float*)", "rng" },
		{ "broadcast_tile_kernel", "other" },
		{ "volta_igemm_int8_128x128_ldg4_nn", "gemm_fp8" },
		{ "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x128x32", "conv" },
		/* a parameter's type is no word of the function */
		{ "void prepare_args(cutlass::gemm::GemmCoord, ncclComm*)", "communication" },
		{ "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int, ncclWork*)",
		  "elementwise" },
		{ "void add_bias_kernel<float>(float*, cublasHandle_t)", "elementwise" },
	};
	HOLD(v);
}

static void test_products(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn", "gemm" },
		{ "ampere_sgemm_64x32_sliced1x4_tn", "gemm" },
		{ "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn", "gemm" },
		{ "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "gemm" },
		{ "maxwell_fp16_sgemm_fp16_32x128_nn", "gemm" },
		{ "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_TNT", "gemm" },
		{ "nvjet_qqtst_128x256_128x4_2x1_v_bz_TNT", "gemm_fp8" },
		{ "sm90_xmma_gemm_e4m3bf16_e4m3f32_f32_tn_n_tilesize64x128x128_warpgroupsize1x1x1", "gemm_fp8" },
		{ "void "
		  "cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_64x64_64x6_tn_align8>(cutlass_80::"
		  "Params)",
		  "gemm" },
		{ "void gemvNSP_kernel<float, float, float, float, 1, 16, 4, 1024, false, "
		  "cublasGemvParams<cublasGemvTensorStridedBatched<float>>>",
		  "gemm" },
		{ "void cublasLt::splitKreduce_kernel<32, 16, int, float, float, float, float, true, false, "
		  "false>(cublasLt::Params)",
		  "gemm" },
		{ "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long, float*, "
		  "cublasLtEpilogue_t)",
		  "gemm" },
		{ "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN", "gemm" },
		{ "Cijk_Ailk_Bljk_HHS_BH_MT128x64x32_MI32x32x8x1_SN_1LDSB0.kd", "gemm" },
		{ "Cijk_Alik_Bljk_F8F8S_BH_Bias_MT256x256x128", "gemm_fp8" },
		{ "void rocblas_gemvt_warp_reduce_kernel<256, int, float const*, float const*, float>(bool)", "gemm" },
		{ "_ZN2ck16tensor_operation6device12_GLOBAL__N_127kernel_gemm_xdl_cshuffle_v3INS_36GridwiseGemm_xdl_"
		  "cshuffle_v3IN",
		  "gemm" },
		{ "_ZN7ck_tile6kentryILi2ENS_10GemmKernelINS_27GemmSpatiallyLocalTilePartE", "gemm" },
		{ "void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, 7168u, 2048u, 1u, 64u, 128u>(float*, int*)",
		  "gemm_fp8" },
		{ "void deep_gemm::sm90_bf16_gemm_impl<0u, 4096u, 7168u>(int*, unsigned int)", "gemm" },
		{ "void deep_gemm::transpose_and_pack_fp32_into_ue8m0<512u, 48u, 64u>(float*, unsigned int*)",
		  "layout" },
		{ "triton_tem_fused__grouped_mm_3", "gemm" },
		{ "triton_mm", "gemm" },
		{ "fused_moe_kernel", "gemm" },
		{ "_ZN5aiter32fmoe_bf16_blockscaleFp8_g1u1_silE", "gemm_fp8" },
		{ "aiter::fmoe_bf16_g1u1_silu", "gemm" },
		{ "ck_moe_stage1_kernel<BF16, 128, 128>", "gemm" },
		{ "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu", "gemm_fp8" },
		{ "_matmul_ogs_NNT_bf16xbf16xbf16_128x128x64x1", "gemm" },
		{ "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899906909960l, 256, 4, 16, 4, true>(int4 const*)",
		  "gemm_fp8" },
		{ "_w8a8_block_fp8_matmul", "gemm_fp8" },
	};
	HOLD(v);
}

static void test_attention(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "void pytorch_flash::flash_fwd_splitkv_combine_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, "
		  "64, 128, 4>>",
		  "attention_forward" },
		{ "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, "
		  "8>>(Flash_bwd_params)",
		  "attention_backward" },
		{ "void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128>>(flash::Flash_bwd_params)",
		  "attention_backward" },
		{ "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::"
		  "CollectiveMainloopFwdSm90<2>>>>",
		  "attention_forward" },
		{ "void "
		  "cutlass::device_kernel<flash::enable_sm90<flash::FlashAttnBwdSm90<flash::CollectiveMainloopBwdSm90<"
		  "2>>>>",
		  "attention_backward" },
		{ "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_128x128x64_4x1x1_cga1x1x1_"
		  "kernel0_0",
		  "attention_forward" },
		{ "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16_knob_3_64x128x128_1x1x1_kernel0_0",
		  "attention_backward" },
		{ "fmha_cutlassF_bf16_aligned_64x128_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_"
		  "t>::Params)",
		  "attention_forward" },
		{ "fmha_cutlassB_bf16_aligned_64x64_k128_sm80(PyTorchMemEffAttention::AttentionBackwardKernel::Params)",
		  "attention_backward" },
		{ "void flashinfer::BatchDecodeWithPagedKVCacheKernel<flashinfer::PosEncodingMode>",
		  "attention_forward" },
		{ "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128>",
		  "attention_forward" },
		{ "_ZN7ck_tile6kentryILi2ENS_13FmhaFwdKernelINS_24BlockFmhaPipelineQRKSVSE", "attention_forward" },
		{ "_ZN5aiter34fmha_bwd_hd128_bf16_a32_rtz_psskdE", "attention_backward" },
		{ "attn_fwd.kd", "attention_forward" },
		{ "bwd_kernel_dk_dv.kd", "attention_backward" },
		{ "triton_tem_fused_flex_attention_0", "attention_forward" },
		{ "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, __nv_bfloat16>", "copy" },
		{ "void vllm::reshape_and_cache_kernel<__nv_bfloat16, __nv_bfloat16>", "copy" },
		{ "void transformer_engine::scaled_upper_triang_masked_softmax_warp_forward<__nv_bfloat16, "
		  "__nv_bfloat16, float, 11>",
		  "softmax" },
	};
	HOLD(v);
}

static void test_experts_and_communication(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "void deep_ep::layout::get_dispatch_layout<256, 32, 4>(long const*, int*, int*, int*, bool*, int, "
		  "int, int, int)",
		  "moe" },
		{ "void deep_ep::internode::get_dispatch_layout<256, 32, 8>(long const*, int*)", "moe" },
		{ "_ZN7deep_ep6layout19get_dispatch_layoutILi256ELi32ELi4EEEvPKlPi", "moe" },
		{ "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*, long*)", "communication" },
		{ "void deep_ep::internode::notify_dispatch<false, 16>(int const*, int*)", "communication" },
		{ "void deep_ep::internode_ll::combine<false, 7168, 9, 128>(void*, void*, int*)", "communication" },
		{ "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>(float const*, bool const*, float*)",
		  "moe" },
		{ "void vllm::moe::moe_align_block_size_kernel<int>(int const*, int*, int*)", "moe" },
		{ "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>", "reduce" },
		{ "_permute_kernel", "moe" },
		{ "_unpermute_kernel", "moe" },
		{ "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication" },
		{ "ncclSymkDevKernel_AllGather_LLMC(ncclSymkDevWorkArgs4K)", "communication" },
		{ "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)", "communication" },
		{ "mscclKernel_Sum_float_LL_false", "communication" },
		{ "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)",
		  "communication" },
		{ "void transformer_engine::kuserbuffers_pullsend(int, int)", "communication" },
	};
	HOLD(v);
}

static void test_the_rest(void **state)
{
	(void)state;
	static const struct named v[] = {
		{ "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, "
		  "(cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>)",
		  "layout" },
		{ "batched_transpose_32x32_half.kd", "layout" },
		{ "transpose_NCHW2CNHW_opt.kd", "layout" },
		{ "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_stage3",
		  "conv" },
		{ "void "
		  "cutlass__5x_cudnn::Kernel<cutlass_tensorop_bf16_s16816dgrad_optimized_bf16_128x64_64x4_nhwc_unity_"
		  "stride_align8>",
		  "conv" },
		{ "miopenSp3AsmConv_v21_1_3_gfx9_fp16_dot2_edc_stride1.kd", "conv" },
		{ "Im2d2Col_v2.kd", "conv" },
		{ "naive_conv_ab_nonpacked_fwd_nchw_half_double_half.kd", "conv" },
		{ "MIOpenBatchNormBwdSpatialDX.kd", "norm" },
		{ "void "
		  "transformer_engine::normalization::rmsnorm_bwd_tuned_kernel<transformer_engine::Kernel_traits<__nv_"
		  "bfloat16>>",
		  "norm" },
		{ "void cuApplyLayerNorm<c10::BFloat16, float, c10::BFloat16>(c10::BFloat16*)", "norm" },
		{ "_rms_norm_forward_kernel", "norm" },
		{ "void vllm::rms_norm_static_fp8_quant_kernel<c10::BFloat16, __nv_fp8_e4m3>", "norm" },
		{ "void transformer_engine::cast_transpose_fused_kernel<true, false, float>", "cast" },
		{ "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>", "cast" },
		{ "per_token_group_quant_8bit_kernel", "cast" },
		{ "_moe_mxfp8_quant_per_token_kernel", "cast" },
		{ "liger_cross_entropy_kernel", "loss" },
		{ "void cunn_SoftMaxXEntropyForward<8, c10::BFloat16, float, float, SoftMaxXEntropyForwardEpilogue>",
		  "loss" },
		{ "_swiglu_forward_kernel", "elementwise" },
		{ "_triton_rope", "rope" },
		{ "void fused_rope_forward<float>(int)", "rope" },
		{ "void multi_tensor_apply_kernel<TensorListMetadata<4>, LAMBStage1Functor<float>, float>",
		  "optimizer" },
		{ "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<3>, "
		  "at::native::FusedSgdMathFunctor<float, 3>>",
		  "optimizer" },
		{ "void kOptimizer32bit2State<__nv_bfloat16, 1>(__nv_bfloat16*)", "optimizer" },
		{ "void at::native::CatArrayBatchedCopy_vectorized<at::native::OpaqueType<2u>, unsigned int, 2, 64, "
		  "64>",
		  "copy" },
		{ "void at::native::_scatter_gather_elementwise_kernel<128, 8, "
		  "at::native::_cuda_scatter_gather_internal_kernel<true>>",
		  "copy" },
		{ "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*)", "embedding" },
		{ "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::NormTwoOps<float>>>",
		  "reduce" },
		{ "void at::native::vectorized_elementwise_kernel<8, "
		  "at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&)::{lambda()#1}>",
		  "elementwise" },
		{ "triton_poi_fused_native_dropout_12", "fused" },
		{ "loop_convert_fusion_2", "fused" },
		{ "input_reduce_fusion", "fused" },
		{ "Memcpy HtoD (Pinned -> Device)", "memory" },
		{ "Memset (Device)", "memory" },
	};
	HOLD(v);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_recommender),
		cmocka_unit_test(test_word_bounds),
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_attention),
		cmocka_unit_test(test_experts_and_communication),
		cmocka_unit_test(test_the_rest),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
