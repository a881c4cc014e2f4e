/* GPU kernels by name: every example of data/kernel_rules.tsv, pairs that are easily confused, threads, hostile names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "base/fs.h"
#include "trace/trace.h"

static void same(const char *name, const char *class)
{
	const char *got = fo_kernel_class_name[fo_kernel_class_of(name)];
	if (strcmp(got, class) != 0)
		fail_msg("'%.200s' is %s, expected %s", name, got, class);
}

static void test_examples(void **state)
{
	(void)state;
	struct fo_arena a = { 0 };
	char path[512], *text;
	size_t n;
	const char *root = getenv("FLATOUT_SOURCE");
	snprintf(path, sizeof(path), "%s/data/kernel_rules.tsv", root ? root : ".");
	assert_int_equal(fo_fs_read(&a, path, 1 << 20, &text, &n), FO_OK);
	for (size_t i = 0; i < n; i++)
		assert_true((text[i] >= ' ' && text[i] <= '~') || text[i] == '\n' || text[i] == '\t');
	int rules = 0, examples = 0;
	bool told[FO_K_COUNT] = { false };
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
		if (*line == '#' || strncmp(line, "class\t", 6) == 0)
			continue;
		char *field[4] = { line };
		for (int i = 1; i < 4; i++) {
			char *tab = strchr(field[i - 1], '\t');
			assert_non_null(tab);
			*tab = '\0';
			field[i] = tab + 1;
		}
		assert_null(strchr(field[3], '\t'));
		assert_true(*field[3] != '\0'); /* every rule says where it comes from */
		rules++;
		for (char *example = field[2]; example; examples++) {
			char *next = strstr(example, " ;; ");
			if (next) {
				*next = '\0';
				next += 4;
			}
			assert_true(*example != '\0');
			same(example, field[0]);
			told[fo_kernel_class_of(example)] = true;
			example = next;
		}
	}
	assert_true(rules >= 30 && examples >= 150);
	for (int c = 0; c < FO_K_COUNT; c++)
		assert_true(told[c] || c == FO_K_OTHER);
	fo_arena_fini(&a);
}

/* Words that two classes share. */
static void test_confusions(void **state)
{
	(void)state;
	static const char *const pair[][2] = {
		/* is_log_softmax decides between the loss and eager attention */
		{ "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*)",
		  "loss" },
		{ "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, true>(float*)",
		  "softmax" },
		{ "void <unnamed>::softmax_warp_backward<float, float, float, (int)9, (bool)1, (bool)0>(T2 *)",
		  "loss" },
		{ "void <unnamed>::softmax_warp_backward<float, float, float, (int)9, (bool)0, (bool)0>(T2 *)",
		  "softmax" },
		{ "multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float> >", "optimizer" },
		{ "multi_tensor_apply_kernel<TensorListMetadata<2>, ScaleFunctor<float, float> >", "optimizer" },
		{ "at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
		  "at::native::CopyFunctor<float> >",
		  "copy" },
		{ "sm80_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64", "gemm" },
		{ "sm80_xmma_dgrad_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc", "conv" },
		{ "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "attention_forward" },
		{ "cudnn_generated_fort_native_sdpa_sm90_flash_bprop_wgmma_f16", "attention_backward" },
		{ "void cudnn::detail::bn_bw_1C11_kernel_new<float>", "norm" },
		{ "convert_kernel", "cast" },
		{ "rotary_embedding_kernel", "rope" },
		{ "embedding_dense_backward_kernel", "embedding" },
		{ "get_device_properties_kernel", "other" },
		{ "type_specialized_broadcast_kernel", "other" },
		{ "triton_poi_fused_reduce_scatter_tensor_add_3", "fused" },
		{ "reduce_scatter_kernel", "communication" },
		{ "triton_tem_fused_mm_1", "gemm" },
		{ "MEMCPY HtoD (Pinned -> Device)", "memory" },
		{ "my_memcpy_like_kernel", "other" },
		{ "", "other" },
		{ "zzz", "other" },
	};
	for (size_t i = 0; i < sizeof(pair) / sizeof(pair[0]); i++)
		same(pair[i][0], pair[i][1]);
}

static void *classify(void *arg)
{
	char name[64];
	for (int i = 0; i < 3000; i++) {
		snprintf(name, sizeof(name), "%s_%d",
			 i % 3 == 0   ? "nvjet_tst"
			 : i % 3 == 1 ? "ncclDevKernel"
				      : "unheard_of",
			 i % 1500);
		enum fo_kernel_class c = fo_kernel_class_of(name);
		if (c != (i % 3 == 0 ? FO_K_GEMM : i % 3 == 1 ? FO_K_COMMUNICATION : FO_K_OTHER))
			*(int *)arg += 1;
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	pthread_t t[4];
	int wrong[4] = { 0 };
	for (int i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&t[i], NULL, classify, &wrong[i]), 0);
	for (int i = 0; i < 4; i++) {
		pthread_join(t[i], NULL);
		assert_int_equal(wrong[i], 0);
	}
}

/* What stands behind the first 16 KiB of a name does not count; no byte upsets the expressions. */
static void test_hostile(void **state)
{
	(void)state;
	size_t n = 1 << 20;
	char *name = malloc(n + 1);
	assert_non_null(name);
	memset(name, 'x', n);
	name[n] = '\0';
	memcpy(name + n - 20, "nccl", 4);
	same(name, "other");
	memcpy(name, "nvjet", 5);
	same(name, "gemm");
	free(name);
	char odd[256];
	for (int i = 0; i < 255; i++)
		odd[i] = (char)(i + 1);
	odd[255] = '\0';
	same(odd, "other");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples),
		cmocka_unit_test(test_confusions),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_hostile),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
