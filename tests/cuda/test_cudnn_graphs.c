/* The real cuDNN without a GPU: attention graphs are built, engines chosen and kernels compiled for an H200 that
 * h200.json describes (by hand; probe_attention prints a device's own). A driver that runs nothing (fake_driver.c) lets
 * it come that far.
 *
 * What this cannot see: what a graph computes. A mask the wrong way round is accepted just so. test_cuda_attention sees
 * it: on the software device, whose cuDNN does what the graph says, and on a real one. */
#ifdef FO_CUDA_HEADERS
#include "kernel/cuda/cudnn.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HOPPER = 9, SKIPPED = 77, KNOWN = 91900 /* the version whose engines and workspaces are asserted */ };
static const struct fo_cudnn_calls *dnn;
static cudnnBackendDescriptor_t h200;

static bool read_device(const char *path)
{
	char text[4096];
	FILE *f = fopen(path, "rb");
	size_t n = f ? fread(text, 1, sizeof text, f) : 0;
	if (f)
		fclose(f);
	return n &&
	       dnn->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &h200) == CUDNN_STATUS_SUCCESS &&
	       dnn->cudnnBackendSetAttribute(h200, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
					     (int64_t)n, text) == CUDNN_STATUS_SUCCESS &&
	       dnn->cudnnBackendFinalize(h200) == CUDNN_STATUS_SUCCESS;
}

/* Llama-3.1-8B: 32 query heads and 8 kv heads of 128; q, k, v and their gradients in rows of 6,144. */
static struct fo_dnn_shape llama(int64_t batch, int64_t seq, int64_t tokens, bool ragged, bool backward)
{
	struct fo_dnn_shape s = { .batch = batch,
				  .seq = seq,
				  .tokens = tokens,
				  .heads = 32,
				  .kv = 8,
				  .dim = 128,
				  .ragged = ragged,
				  .backward = backward };
	static const int64_t ld[] = { 0, 6144, 6144, 6144, 4096, 32, 4096, 6144, 6144, 6144 };
	memcpy(s.ld, ld, sizeof s.ld);
	if (!backward)
		memset(&s.ld[FO_DNN_DO], 0, 4 * sizeof *s.ld);
	else if (ragged) /* rows without gaps (attention_dnn.c) */
		s.ld[FO_DNN_K] = s.ld[FO_DNN_V] = s.ld[FO_DNN_DK] = s.ld[FO_DNN_DV] = 1024;
	return s;
}

static void check(struct fo_dnn_shape s, int operations, int64_t least, int64_t most)
{
	struct fo_dnn_graph g;
	struct fo_dnn_plan p;
	if (fo_dnn_graph_new(&g, dnn, NULL, &s) != FO_OK)
		fail_msg("%s", fo_err_text());
	assert_int_equal(g.ops, operations);
	if (fo_dnn_plan_new(&p, &g, NULL, h200, HOPPER) != FO_OK)
		fail_msg("%s", fo_err_text());
	print_message("%s %s %lld x %lld: engine %lld, workspace %lld, %s\n", s.ragged ? "ragged" : "fixed",
		      s.backward ? "backward" : "forward", (long long)s.batch, (long long)s.seq, (long long)p.engine,
		      (long long)p.workspace, p.kernel);
	assert_non_null(strstr(p.kernel, s.backward ? "sm90_flash_bprop_wgmma" : "sm90_flash_fprop_wgmma"));
	assert_in_range(p.workspace, least, most);
	if (dnn->cudnnGetVersion() == KNOWN)
		assert_int_equal(p.engine, s.backward ? 6 : 2);
	assert_true(p.used[FO_DNN_LENGTH] == (bool)s.ragged && p.used[FO_DNN_WINDOW] == (s.window != 0));
	assert_true(p.used[FO_DNN_DK_FULL] == ((s.ragged || s.unfinished) && s.backward));
	assert_true(p.used[FO_DNN_DQ] == (s.backward && !s.unfinished) &&
		    p.used[FO_DNN_DV] == (s.backward && !s.unfinished));
	fo_dnn_plan_free(&p, dnn);
	fo_dnn_graph_free(&g);
}

/* Fixed backward keeps dk and dv of all query heads, bf16, in its workspace: 2 x 32 x 128 x 2 bytes a token. */
enum { KIB = 1024, PER_TOKEN = 16384 };
static void test_fixed(void **state)
{
	(void)state;
	check(llama(1, 8192, 8192, false, false), 14, 0, 64 * KIB);
	check(llama(1, 32768, 32768, false, true), 24, 0, (int64_t)32768 * PER_TOKEN + 64 * KIB);
}
static void test_ragged(void **state)
{
	(void)state;
	check(llama(16, 8192, 8192, true, false), 20, 0, 64 * KIB);
	check(llama(64, 2048, 8192, true, true), 30, 0, 256 * KIB);
}
/* dq left in fp32, dk and dv in all query heads: the same engine, and none of the workspace that it would reduce from.
 */
static void test_unfinished(void **state)
{
	struct fo_dnn_shape s = llama(1, 8192, 8192, false, true);
	(void)state;
	s.unfinished = 1;
	check(s, 21, 0, 64 * KIB);
	s = llama(64, 2048, 8192, true, true);
	s.unfinished = 1;
	check(s, 27, 0, 256 * KIB);
}
static void test_window(void **state)
{
	struct fo_dnn_shape s = llama(1, 8192, 8192, false, true);
	(void)state;
	s.window = 4096;
	check(s, 29, 0, 8192 * PER_TOKEN + 64 * KIB);
}

/* Graphs alone, which cost nothing: every description that attention_dnn.c can make is accepted, and nothing stays
 * behind. */
static void test_graphs(void **state)
{
	(void)state;
	for (int ragged = 0; ragged < 2; ragged++)
		for (int backward = 0; backward < 2; backward++)
			for (int window = 0; window < 2; window++)
				for (int64_t kv = 8; kv <= 32; kv *= 4)
					for (int64_t tokens = 8192; tokens <= 32768; tokens *= 2) {
						struct fo_dnn_shape s = llama(ragged ? 64 : 2, tokens / 2, tokens,
									      ragged, backward);
						struct fo_dnn_graph g;
						s.kv = kv;
						s.window = window * 1000;
						if (fo_dnn_graph_new(&g, dnn, NULL, &s) != FO_OK)
							fail_msg("%s", fo_err_text());
						assert_int_equal(g.ops, (backward ? 24 - 2 * (kv == 32) : 14) +
										6 * ragged + 5 * window);
						fo_dnn_graph_free(&g);
						assert_int_equal(g.owns, 0);
					}
}
/* What no engine takes, and what cuDNN refuses to describe, comes back as an error with its words. */
static void test_refused(void **state)
{
	struct fo_dnn_shape s = llama(1, 8192, 8192, false, false);
	struct fo_dnn_graph g;
	struct fo_dnn_plan p;
	(void)state;
	s.dim = 100; /* 200 bytes: no row begins where 16 bytes can be read */
	if (fo_dnn_graph_new(&g, dnn, NULL, &s) == FO_OK) {
		assert_int_not_equal(fo_dnn_plan_new(&p, &g, NULL, h200, HOPPER), FO_OK);
		fo_dnn_graph_free(&g);
	}
	assert_true(strlen(fo_err_text()) > 20);
	fo_err_clear();
	s = llama(1, 8192, 8192, false, false);
	s.kv = 5; /* 32 heads do not share 5 */
	if (fo_dnn_graph_new(&g, dnn, NULL, &s) == FO_OK) {
		assert_int_not_equal(fo_dnn_plan_new(&p, &g, NULL, h200, HOPPER), FO_OK);
		fo_dnn_graph_free(&g);
	}
	assert_true(strlen(fo_err_text()) > 20);
	fo_err_clear();
	/* A kernel for an older generation than the device is turned down with its name: here Hopper's on one that
	 * would be newer. */
	s = llama(1, 1024, 1024, false, false);
	assert_int_equal(fo_dnn_graph_new(&g, dnn, NULL, &s), FO_OK);
	assert_int_equal(fo_dnn_plan_new(&p, &g, NULL, h200, HOPPER + 1), FO_EUNSUPPORTED);
	assert_non_null(strstr(fo_err_text(), "sm90_flash"));
	fo_err_clear();
	fo_dnn_graph_free(&g);
}
/* A call that is turned down, here for a head size, goes to our own kernels; whoever asks is told by whose word. */
static void test_note(void **state)
{
	struct fo_dnn_shape s = llama(1, 1024, 1024, false, false);
	struct fo_cuda c = { .dnn = dnn, .info.cc_major = HOPPER };
	const struct fo_cuda_plan *p;
	bool is_new;
	(void)state;
	assert_null(fo_cuda_attention_note(&c));
	s.dim = 100;
	assert_int_equal(fo_cuda_plan_get(&c, &s, &p, &is_new), FO_OK);
	assert_true(is_new && strlen(p->why) > 20);
	assert_ptr_equal(fo_cuda_attention_note(&c), p->why);
	snprintf(c.dnn_why, sizeof c.dnn_why, "cuDNN does not start");
	assert_ptr_equal(fo_cuda_attention_note(&c), c.dnn_why);
	fo_cuda_plans_free(&c);
}
/* The intermediate that holds the probabilities must be bf16: as fp32 the graph is accepted and no engine takes it. */
static cudnnStatus_t no_bf16(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			     cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	static cudnnBackendDescriptor_t bf16_tensor;
	const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
	if (name == CUDNN_ATTR_TENSOR_DATA_TYPE && *(const cudnnDataType_t *)values == CUDNN_DATA_BFLOAT16)
		bf16_tensor = d;
	if (name == CUDNN_ATTR_TENSOR_IS_VIRTUAL && d == bf16_tensor) {
		cudnnStatus_t st = dnn->cudnnBackendSetAttribute(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE,
								 1, &f32);
		if (st != CUDNN_STATUS_SUCCESS)
			return st;
	}
	return dnn->cudnnBackendSetAttribute(d, name, type, n, values);
}
static void test_probabilities_in_fp32(void **state)
{
	const struct fo_dnn_shape s = llama(1, 8192, 8192, false, false);
	struct fo_cudnn_calls wrong = *dnn;
	struct fo_dnn_graph g;
	struct fo_dnn_plan p;
	(void)state;
	wrong.cudnnBackendSetAttribute = no_bf16;
	assert_int_equal(fo_dnn_graph_new(&g, &wrong, NULL, &s), FO_OK);
	assert_int_equal(fo_dnn_plan_new(&p, &g, NULL, h200, HOPPER), FO_EUNSUPPORTED);
	fo_err_clear();
	fo_dnn_graph_free(&g);
}

/* The pointwise operations of a graph as letters, in their order: * - / e(xp) i(ndex) < > g(reater or equal) & and
 * s(elect) for masks, others . */
static char modes[64];
static cudnnStatus_t noting(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
			    cudnnBackendAttributeType_t type, int64_t n, const void *values)
{
	static const struct {
		cudnnPointwiseMode_t mode;
		char letter;
	} known[] = { { CUDNN_POINTWISE_MUL, '*' },         { CUDNN_POINTWISE_SUB, '-' },
		      { CUDNN_POINTWISE_DIV, '/' },         { CUDNN_POINTWISE_EXP, 'e' },
		      { CUDNN_POINTWISE_GEN_INDEX, 'i' },   { CUDNN_POINTWISE_CMP_LT, '<' },
		      { CUDNN_POINTWISE_CMP_GT, '>' },      { CUDNN_POINTWISE_CMP_GE, 'g' },
		      { CUDNN_POINTWISE_LOGICAL_AND, '&' }, { CUDNN_POINTWISE_BINARY_SELECT, 's' } };
	if (name == CUDNN_ATTR_POINTWISE_MODE) {
		char letter = '.';
		for (size_t i = 0; i < sizeof known / sizeof *known; i++)
			if (known[i].mode == *(const cudnnPointwiseMode_t *)values)
				letter = known[i].letter;
		const size_t len = strlen(modes);
		assert_true(len + 1 < sizeof modes);
		modes[len] = letter;
		modes[len + 1] = 0;
	}
	return dnn->cudnnBackendSetAttribute(d, name, type, n, values);
}
/* NVIDIA's front end scales, in backward subtracts the log-sum-exp, then masks padding, then the future, then takes the
 * exponential. With the padding masked before the subtraction, NaN in the log-sum-exp of rows behind a document gets
 * through to the gradients. */
static void test_order(void **state)
{
	static const struct {
		bool ragged, backward, window;
		const char *want;
	} graph[] = { { true, true, false,
			"**"
			"*-"
			"ii<<&s"
			"iigs"
			"e"
			"-**"
			"." },
		      { false, true, false,
			"**"
			"*-"
			"iigs"
			"e"
			"-**"
			"." },
		      { true, true, true,
			"**"
			"*-"
			"ii<<&s"
			"iigs"
			"ii.>s"
			"e"
			"-**"
			"." },
		      { true, false, false,
			"*"
			"ii<<&s"
			"iigs"
			"-e"
			".."
			"/" },
		      { false, false, false,
			"*"
			"iigs"
			"-e"
			".."
			"/" } };
	(void)state;
	for (size_t i = 0; i < sizeof graph / sizeof *graph; i++) {
		struct fo_dnn_shape s = llama(4, 8192, 8192, graph[i].ragged, graph[i].backward);
		struct fo_cudnn_calls noted = *dnn;
		struct fo_dnn_graph g;
		s.window = graph[i].window ? 1000 : 0;
		noted.cudnnBackendSetAttribute = noting;
		*modes = 0;
		assert_int_equal(fo_dnn_graph_new(&g, &noted, NULL, &s), FO_OK);
		assert_string_equal(modes, graph[i].want);
		fo_dnn_graph_free(&g);
	}
}
/* Every number of documents that a plan is made for (attention_dnn.c), the smallest and the largest with short ones
 * too. */
static void test_buckets(void **state)
{
	(void)state;
	for (int64_t documents = 16; documents <= 16384; documents *= 4)
		for (int64_t longest = documents == 16 || documents == 16384 ? 128 : 8192; longest <= 8192;
		     longest *= 64)
			for (int backward = 0; backward < 2; backward++)
				/* per document some bytes of workspace */
				check(llama(documents, longest, 8192, true, backward), backward ? 30 : 20, 0,
				      64 * KIB + documents * KIB);
}

/* What cuDNN opens by name when it compiles is there before it does, wherever it lies: NVRTC looks for its built-in
 * functions where the system's loader does, not beside itself. Looked at before anything is compiled. */
static bool compiler_loaded;
static void look_for_compiler(void)
{
	char name[48];
	void *h = dlopen("libnvrtc.so." FO_CUDA_TEXT(CUBLAS_VER_MAJOR), RTLD_NOW | RTLD_NOLOAD);
	int (*version)(int *, int *), major = 0, minor = 0;
	*(void **)&version = h ? dlsym(h, "nvrtcVersion") : NULL;
	if (!version || version(&major, &minor))
		return;
	snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
	compiler_loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
}
static void test_compiler_loaded(void **state)
{
	(void)state;
	assert_true(compiler_loaded);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_compiler_loaded),
					    cmocka_unit_test(test_graphs),
					    cmocka_unit_test(test_refused),
					    cmocka_unit_test(test_note),
					    cmocka_unit_test(test_probabilities_in_fp32),
					    cmocka_unit_test(test_order),
					    cmocka_unit_test(test_buckets),
					    cmocka_unit_test(test_fixed),
					    cmocka_unit_test(test_ragged),
					    cmocka_unit_test(test_window),
					    cmocka_unit_test(test_unfinished) };
	const char *driver = getenv("FLATOUT_FAKE_DRIVER"), *root = getenv("FLATOUT_SOURCE");
	const char *named = getenv("FLATOUT_CUDA_LIBRARIES"), *soft = getenv("FLATOUT_SOFT_CUDA");
	struct fo_cuda_found found = { 0 };
	char path[1024];

	if (named && soft && !strcmp(named, soft))
		unsetenv("FLATOUT_CUDA_LIBRARIES"); /* beside a software device NVIDIA's libraries are not looked for */
	if (getenv("FLATOUT_SANITIZED")) {
		printf("skipped: the sanitizers would look at NVIDIA's compiler, not at ours\n");
		return SKIPPED;
	}
	/* By its soname: cuDNN finds this one when it asks for the driver. */
	if (!driver || !dlopen(driver, RTLD_NOW | RTLD_GLOBAL)) {
		printf("skipped: FLATOUT_FAKE_DRIVER names no driver without a device\n");
		return SKIPPED;
	}
	dnn = fo_cuda_load(FO_CUDA_CUDNN, &found);
	if (!dnn) {
		printf("skipped: no cuDNN: %s\n", found.why);
		return SKIPPED;
	}
	printf("cuDNN %s\n", found.version);
	look_for_compiler();
	snprintf(path, sizeof path, "%s/tests/cuda/h200.json", root ? root : ".");
	if (!read_device(path)) {
		printf("cuDNN does not take the device that '%s' describes\n", path);
		return 1;
	}
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	dnn->cudnnBackendDestroyDescriptor(h200);
	return failed;
}
#else
#include <stdio.h>
int main(void)
{
	printf("skipped: built without the CUDA toolkit\n");
	return 77;
}
#endif
