#include "diagnose/products_int.h"

#include "base/mem.h"
#include "base/count.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

static bool has_any(const char *text, const char *const *part)
{
	for (; *part; part++)
		if (has(text, *part))
			return true;
	return false;
}

/* ---- matmuls without matrix units ---- */

/* Parts of names that libraries give to kernels with matrix units: instruction shapes of mma (884, 1688, 16816),
 * Hopper's and Blackwell's generated matmuls. The PyTorch profiler's old plug-in went by a list like it. */
static const char *const matrix_units[] = { "884",     "1688",     "16816", "hmma",      "imma",
					    "gmma",    "tensorop", "nvjet", "xmma_gemm", "xmma_implicit_gemm",
					    "tcgen05", "mfma",     "bf16",  "fp16",      "f16",
					    "float16", "half",     "e4m3",  NULL };
static const char *const single[] = { "sgemm", "scudnn", "simt", "_f32f32_f32f32", "sgemv", NULL };
/* The C++ type of an operand or of the sum: a kernel that works on TF32 or a mixed one may have it just so. */
static const char *const perhaps_single[] = { "<float", NULL };

/* Tensile's names (AMD): "Cijk_Ailk_Bjlk_SB_MT64x64...": behind the two operands' layouts stand the types, S for
 * single. */
static bool tensile_single(const char *name)
{
	const char *p = strstr(name, "Cijk_");
	for (int words = 0; p && words < 3; words++) {
		p = strchr(p, '_');
		p = p ? p + 1 : NULL;
	}
	return p && p[0] == 'S' && (p[1] == 'B' || p[1] == '_');
}

static bool is_single(const char *name)
{
	if (has(name, "Cijk_"))
		return tensile_single(name);
	return has_any(name, single) && !has_any(name, matrix_units);
}

static bool is_perhaps_single(const char *name)
{
	return !has(name, "Cijk_") && has_any(name, perhaps_single) && !has_any(name, single) &&
	       !has_any(name, matrix_units);
}

/* ---- names, each once ---- */

struct names {
	bool *seen; /* by text id */
	int64_t cap;
};

static bool first_time(struct names *n, int32_t id)
{
	if (id < 0 || id >= n->cap || n->seen[id])
		return false;
	n->seen[id] = true;
	return true;
}

static void framework_by_name(struct fo_facts *f, const char *name)
{
	/* Names that only this framework gives to annotations, operators, modules or kernels. DeepSpeed wraps its
	 * engine's methods in ranges of their qualified names; Megatron's ranges and frames carry its package;
	 * TorchTitan's frames its own. */
	static const struct {
		const char *framework;
		const char *part[4];
	} known[] = {
		{ "Megatron-LM", { "megatron", "Megatron", "forward_backward_func", NULL } },
		{ "TorchTitan", { "torchtitan", NULL } },
		{ "DeepSpeed", { "deepspeed", "DeepSpeed", "PartitionedParameterCoordinator", NULL } },
		{ "vLLM",
		  { "vllm/", "vllm::unified", "vllm::model", NULL } }, /* its operators; others use its kernels */
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (has_any(name, known[i].part))
			f->framework = known[i].framework;
}

/* "Optimizer.step#AdamW.step" */
static void optimizer_name(struct fo_facts *f, const char *name)
{
	const char *at = strstr(name, "Optimizer.step#");
	if (!at || f->optimizer[0])
		return;
	at += strlen("Optimizer.step#");
	size_t n = strcspn(at, ".");
	if (n < sizeof(f->optimizer))
		memcpy(f->optimizer, at, n);
}

/* Names that mark it: PyTorch's profiler ("Python GC"), TorchTitan's and Megatron-LM's ranges, frames of the modules
 * that do it. What is called "checkpoint" alone recomputes activations. */
static const char *const collection[] = { "gc.collect", "Python GC",          "<built-in function collect>",
					  "gc_collect", "garbage collection", "Garbage collection",
					  NULL };
static const char *const saving[] = { "save_checkpoint",   "torch.save", "checkpoint_save",  "checkpoint.save",
				      "Checkpointer.save", "dcp.save",   "save_state",       "save_pretrained",
				      "checkpoint write",  "async_save", "write checkpoint", NULL };

bool fo_marks(enum fo_mark m, const char *name)
{
	return (m == FO_MARK_COLLECTION && has_any(name, collection)) || (m == FO_MARK_SAVING && has_any(name, saving));
}

static void host_name(struct fo_facts *f, const char *name)
{
	framework_by_name(f, name);
	f->compiled |= has(name, "Torch-Compiled Region") || has(name, "CompiledFxGraph") ||
		       has(name, "CompiledFunction");
	optimizer_name(f, name);
	f->transformers |= has(name, "ForCausalLM") || has(name, "ForMaskedLM") ||
			   has(name, "ForSequenceClassification") || has(name, "ForConditionalGeneration") ||
			   has(name, "LMHeadModel");
	f->gc |= fo_marks(FO_MARK_COLLECTION, name);
	f->saves |= fo_marks(FO_MARK_SAVING, name);
	f->optimizer_foreach |= has(name, "_foreach_add") || has(name, "_foreach_mul") || has(name, "_foreach_lerp");
	f->optimizer_fused |= has(name, "_fused_adam") || has(name, "_fused_sgd") || has(name, "FusedAdam");
	f->optimizer_loop |= has(name, "Optimizer.step#");
	f->ddp |= has(name, "DistributedDataParallel") || has(name, "torch::distributed::reducer");
	f->fsdp |= has(name, "FSDP::") || has(name, "FullyShardedDataParallel") || has(name, "fsdp::");
	const char *dp = strstr(name, "DataParallel.forward");
	f->data_parallel |= dp && !has(name, "DistributedDataParallel") && !has(name, "ShardedDataParallel");
}

static void call_name(struct fo_facts *f, const char *name)
{
	f->alloc_calls |= has(name, "Malloc") || has(name, "Free");
	f->sync_calls |= has(name, "Synchronize");
}

static void scan_host(struct fo_facts *f, const struct fo_trace *t, struct names *n)
{
	bool *launches = fo_xmalloc((size_t)t->thread_count + 1);
	for (int64_t i = 0; i < t->launch_count; i++) {
		const struct fo_launch *l = &t->launch[i];
		if (l->thread >= 0 && l->thread < t->thread_count)
			launches[l->thread] = true;
		f->graphs |= l->graph;
		f->blocking_copies |= l->blocking;
		if (first_time(n, l->name))
			call_name(f, fo_trace_text(t, l->name));
	}
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		if (!first_time(n, o->name))
			continue;
		const char *name = fo_trace_text(t, o->name);
		if (o->kind == FO_HOST_SYNC || o->kind == FO_HOST_CALL) {
			call_name(f, name);
			continue;
		}
		if (o->kind == FO_HOST_DATA) {
			/* The iterator's class says how many workers there are: PyTorch has one class for none, one for
			 * some. */
			bool own = o->thread >= 0 && o->thread < t->thread_count && launches[o->thread];
			f->loader = true;
			f->loader_inline |= has(name, "_SingleProcessDataLoaderIter") ||
					    (own && !has(name, "_MultiProcessingDataLoaderIter"));
		}
		host_name(f, name);
	}
	free(launches);
}

/* An operator that normalises by itself: aten::native_layer_norm, aten::miopen_batch_norm, NativeBatchNormBackward0,
 * FusedRMSNorm. A module's frame says only what its kernels are for. */
static bool is_norm_operator(const struct fo_trace *t, const struct fo_host_op *o)
{
	const char *name = fo_trace_text(t, o->name);
	if (o->kind == FO_HOST_MODULE)
		return false;
	return (strncmp(name, "aten::", 6) == 0 && has(name, "_norm")) || has(name, "NormBackward") ||
	       ((has(name, "norm") || has(name, "Norm")) && (has(name, "fused") || has(name, "Fused")));
}

static bool in_norm_operator(const struct fo_trace *t, const struct fo_gpu_op *g)
{
	for (int32_t i = g->op; i >= 0; i = t->op[i].parent)
		if (is_norm_operator(t, &t->op[i]))
			return true;
	return false;
}

static bool is_product(uint8_t class) { return class == FO_K_GEMM || class == FO_K_CONV; }

enum {
	NAME_SINGLE = 1 << 0,
	NAME_COMPILED = 1 << 1,
	NAME_OPERATOR = 1 << 2,
	NAME_PRODUCT = 1 << 3,
	NAME_PERHAPS = 1 << 4
};

/* The recorded type of the operand decides, then the kernel's name. Where neither tells, the matmul does not count as
 * 32 bit. *perhaps: no type is recorded, and the name does not settle it. */
static bool computes_single(const struct fo_trace *t, const struct fo_gpu_op *o, uint8_t name, bool *perhaps)
{
	const char *dtype = fo_dtype_of_gpu(t, o);
	*perhaps = (name & NAME_PERHAPS) && !fo_dtype_recorded(t, o);
	return dtype[0] ? strcmp(dtype, "fp32") == 0 : (name & NAME_SINGLE) != 0;
}

/* A kernel's name tells, found once: a matmul in 32 bit, a compiler's kernel, one elementwise operator of
 * PyTorch's. */
static uint8_t kernel_name(struct fo_facts *f, const struct fo_gpu_op *o, const char *name)
{
	const unsigned merged = 1u << FO_K_CAST | 1u << FO_K_ELEMENTWISE | 1u << FO_K_COPY | 1u << FO_K_REDUCE;
	framework_by_name(f, name);
	f->nccl |= o->class == FO_K_COMMUNICATION && (has(name, "nccl") || has(name, "rccl"));
	f->optimizer_fused |= has(name, "FusedAdam") || has(name, "FusedOptimizer") || has(name, "FusedSgd");
	unsigned is = 0;
	if (is_product(o->class_by_name)) {
		is = NAME_PRODUCT;
		is |= is_single(name) ? NAME_SINGLE : 0;
		is |= is_perhaps_single(name) ? NAME_PERHAPS : 0;
	}
	if (strncmp(name, "triton_", 7) == 0)
		is |= NAME_COMPILED;
	if ((merged >> o->class_by_name & 1) && has(name, "at::native") && !has(name, "multi_tensor"))
		is |= NAME_OPERATOR;
	return (uint8_t)is;
}

static void scan_gpu(struct fo_facts *f, const struct fo_trace *t, int16_t device, struct names *n, uint8_t *kernel)
{
	int64_t single_ns = 0, perhaps_ns = 0, scores_ns = 0, attention_ns = 0, written_norm_ns = 0, norm_ns = 0,
		pageable_ns = 0, upload_ns = 0;
	int64_t compiled_ns = 0, operator_ns = 0, download_ns = 0, copied_ns = 0;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		int64_t dur = o->end_ns - o->begin_ns;
		if (first_time(n, o->name))
			kernel[o->name] = kernel_name(f, o, fo_trace_text(t, o->name));
		f->graphs |= (o->flags & FO_GPU_GRAPH) != 0;
		if (o->device != device)
			continue;
		uint8_t name = o->name >= 0 ? kernel[o->name] : 0;
		f->moe |= o->class == FO_K_MOE;
		compiled_ns = fo_plus(compiled_ns, name & NAME_COMPILED ? dur : 0);
		operator_ns = fo_plus(operator_ns, name & NAME_OPERATOR ? dur : 0);
		scores_ns = fo_plus(scores_ns, o->class == FO_K_SOFTMAX && (o->flags & FO_GPU_SCORES) ? dur : 0);
		attention_ns = fo_plus(attention_ns,
				       o->class == FO_K_ATTENTION_FORWARD || o->class == FO_K_ATTENTION_BACKWARD ? dur
														 : 0);
		copied_ns = fo_plus(copied_ns, o->kind == FO_GPU_MEMCPY ? dur : 0);
		download_ns = fo_plus(download_ns, o->kind == FO_GPU_MEMCPY && o->copy == FO_COPY_D2H ? dur : 0);
		if (o->kind == FO_GPU_MEMCPY && o->copy == FO_COPY_H2D) {
			upload_ns = fo_plus(upload_ns, dur);
			pageable_ns = fo_plus(pageable_ns, o->flags & FO_GPU_PAGEABLE ? dur : 0);
		}
		if (o->class == FO_K_NORM) {
			norm_ns = fo_plus(norm_ns, dur);
			if (o->class_by_name != FO_K_NORM && o->class_by_name != FO_K_FUSED && !in_norm_operator(t, o))
				written_norm_ns = fo_plus(written_norm_ns, dur);
		}
		if (name & NAME_PRODUCT) {
			f->product_ns = fo_plus(f->product_ns, dur);
			bool perhaps, is = computes_single(t, o, name, &perhaps);
			single_ns = fo_plus(single_ns, is && !perhaps ? dur : 0);
			perhaps_ns = fo_plus(perhaps_ns, perhaps ? dur : 0);
		}
	}
	f->norm_written_share = norm_ns ? (double)written_norm_ns / (double)norm_ns : 0;
	f->norm_written_out = f->norm_written_share >
			      0.5; /* a few scalings beside a fused norm are not a norm written out */
	/* Only where most uploads are pageable are they the loader's: where most are pinned already, the rest is not
	 * its own. */
	f->pageable = pageable_ns > 0 && 2 * pageable_ns > upload_ns;
	/* Fused attention beside it (another model, the first layers) does not excuse what is written out. */
	f->attention_written_out = scores_ns > attention_ns;
	f->uploads = 2 * upload_ns > copied_ns;
	f->offloads = 10 * upload_ns > copied_ns && 10 * download_ns > copied_ns;
	f->fp32_by_name = f->product_ns && 2 * (double)single_ns <= (double)f->product_ns && perhaps_ns > 0;
	double fp32_ns = (double)single_ns + (f->fp32_by_name ? (double)perhaps_ns : 0);
	f->fp32_product_share = f->product_ns ? fp32_ns / (double)f->product_ns : 0;
	/* One compiled function among a thousand operators does not make a compiled program; a compiled region with
	 * nothing left to merge does. */
	double merged = (double)(compiled_ns + operator_ns);
	f->compiled_share = merged > 0 ? (double)compiled_ns / merged : (double)f->compiled;
	f->compiled = f->compiled_share > 0.5;
}

bool fo_trace_forward_only(const struct fo_trace *t, int16_t device)
{
	static const char *const training[] = { "autograd::engine", "Backward",    "backward",   "Optimizer.",
						"_foreach_",        "_fused_adam", "_fused_sgd", NULL };
	bool operators = t->format == FO_TRACE_OWN, kernels = false;
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const struct fo_gpu_op *o = &t->gpu[i];
		if (o->class == FO_K_OPTIMIZER || o->class == FO_K_ATTENTION_BACKWARD || (o->flags & FO_GPU_BACKWARD))
			return false;
		kernels |= o->device == device && o->class <= FO_K_CONV;
	}
	for (int64_t i = 0; i < t->op_count; i++) {
		const struct fo_host_op *o = &t->op[i];
		operators |= o->kind == FO_HOST_OP;
		if (o->backward || o->other_thread || has_any(fo_trace_text(t, o->name), training))
			return false;
	}
	return operators && kernels;
}

/* torch.optim has fused updates for GPUs of Adam, AdamW and SGD; that of Adagrad is for processors alone (its
 * documentation). */
bool fo_optimizer_can_fuse(const struct fo_facts *f)
{
	return !f->optimizer[0] || !strcmp(f->optimizer, "Adam") || !strcmp(f->optimizer, "AdamW") ||
	       !strcmp(f->optimizer, "SGD");
}

static int64_t text_cap(const struct fo_trace *t)
{
	int32_t most = -1;
	for (int64_t i = 0; i < t->gpu_count; i++)
		most = fo_max(t->gpu[i].name, most);
	for (int64_t i = 0; i < t->launch_count; i++)
		most = fo_max(t->launch[i].name, most);
	for (int64_t i = 0; i < t->op_count; i++)
		most = fo_max(t->op[i].name, most);
	return (int64_t)most + 1;
}

/* Compute capability where the header does not tell, from the libraries' own names: a volta_ kernel runs on a Volta or
 * later. */
static int capability_by_kernels(const struct fo_trace *t)
{
	static const struct {
		const char *prefix;
		int capability;
	} known[] = { { "sm100_", 100 }, { "sm90_", 90 },   { "ampere_", 80 },
		      { "sm80_", 80 },   { "turing_", 75 }, { "volta_", 70 } };
	int best = 0;
	for (int64_t i = 0; i < t->gpu_count; i++)
		for (size_t k = 0; k < sizeof(known) / sizeof(*known); k++)
			if (known[k].capability > best && t->gpu[i].class_by_name <= FO_K_CONV &&
			    has(fo_trace_text(t, t->gpu[i].name), known[k].prefix))
				best = known[k].capability;
	return best;
}

/* 15 March 2023, the release of PyTorch 2.0. */
#define PYTORCH_2_UNIX_NS INT64_C(1678838400000000000)

enum fo_culprit_cause fo_culprit_cause(const struct fo_diagnosis *d)
{
	const struct fo_culprit *x = &d->culprit;
	static const struct {
		const char *row;
		enum fo_culprit_cause cause;
	} known[] = {
		{ "host_data", FO_CULPRIT_LOADS },
		{ "host_sync", FO_CULPRIT_WAITS },
		{ "host_launch_bound", FO_CULPRIT_LAUNCHES },
		{ "host_other", FO_CULPRIT_HOST },
		{ "launch_latency", FO_CULPRIT_LAUNCHES },
		{ "kernel_gap", FO_CULPRIT_MOVES },
		{ "long_call", FO_CULPRIT_HOST },
		{ "dependency", FO_CULPRIT_MOVES },
		{ "unknown", FO_CULPRIT_MOVES },
		{ "exposed_mem", FO_CULPRIT_MOVES },
		{ "exposed_transfer", FO_CULPRIT_MOVES },
	};
	if (x->at < 0 || x->at >= d->waits || !x->row)
		return FO_CULPRIT_NONE;
	if (strcmp(x->row, "late_begin") == 0) {
		for (int i = 0; i < d->ranks; i++)
			for (int64_t k = 0; d->rank[i].rank == d->wait[x->at].rank && k < d->rank[i].devices; k++)
				if (d->rank[i].device[k].device == d->wait[x->at].device &&
				    d->rank[i].device[k].steps > 1)
					return FO_CULPRIT_HOST;
		return FO_CULPRIT_ONCE;
	}
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (strcmp(x->row, known[i].row) == 0)
			return known[i].cause;
	return FO_CULPRIT_COMPUTES; /* a class of kernels */
}

void fo_facts_of(const struct fo_trace *t, int16_t device, struct fo_facts *out)
{
	*out = (struct fo_facts){ .framework = "PyTorch" };
	struct names n = { .cap = text_cap(t) };
	uint8_t *kernel = fo_xmalloc((size_t)n.cap + 1);
	n.seen = fo_xmalloc((size_t)n.cap + 1);
	scan_host(out, t, &n);
	memset(n.seen, 0, (size_t)n.cap + 1);
	scan_gpu(out, t, device, &n, kernel);
	free(n.seen);
	free(kernel);
	int64_t recorded; /* in old traces times are Unix times themselves */
	if (!__builtin_add_overflow(t->origin_unix_ns, t->begin_ns, &recorded))
		out->before_pytorch_2 = recorded > PYTORCH_2_UNIX_NS / 2 && recorded < PYTORCH_2_UNIX_NS;
	out->optimizer_loop &= !out->optimizer_foreach && !out->optimizer_fused;
	out->frames = t->defect.has_frames;
	out->vendor = fo_vendor_of(t, device);
	out->words = fo_vendor_words(out->vendor);
	out->amd = out->vendor == FO_VENDOR_AMD;
	out->nvidia = out->vendor == FO_VENDOR_NVIDIA;
	if (device < 0 || device >= t->device_count)
		return;
	const struct fo_trace_device *v = &t->device[device];
	out->capability = v->capability_major ? 10 * v->capability_major + v->capability_minor
					      : fo_capability_of_name(fo_trace_text(t, v->name));
	if (!out->capability)
		out->capability = capability_by_kernels(t);
}
