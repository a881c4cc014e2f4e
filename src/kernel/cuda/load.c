/* NVIDIA's libraries, found and loaded at run time. */
#include "kernel/cuda/libraries.h"

#include "base/library.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A function's name is the value of NVIDIA's macro where cuda.h renames it. */
#define NAME(f) FO_CUDA_TEXT(f),
#define NEWER(f) "?" #f,
static const char *const driver_names[] = { FO_CUDA_DRIVER_CALLS(NAME) };
static const char *const lt_names[] = { FO_CUBLASLT_CALLS(NAME) };
static const char *const dnn_names[] = { FO_CUDNN_CALLS(NAME) };
#if FO_NCCL
static const char *const nccl_names[] = { FO_NCCL_CALLS(NAME) FO_NCCL_NEWER_CALLS(NEWER) };
#endif
#if FO_CUPTI
static const char *const cupti_names[] = { FO_CUPTI_CALLS(NAME) };
#endif

enum { FUNCTIONS_MOST = 64 };
static struct library {
	struct fo_cuda_found found;
	const char *file, *version; /* version: the function that tells it */
	const char *const *name;    /* those that begin with '?' may be missing and are NULL then */
	int functions;
	bool returns_version; /* else it stores the version where its argument points */
	bool tried, good, software;
	void *function[FUNCTIONS_MOST];
} library[FO_CUDA_LIBS] = {
#define FUNCTIONS(names) .name = names, .functions = sizeof names / sizeof *names
	[FO_CUDA_DRIVER] = { { .name = "CUDA driver", .what = "the device itself" },
			     "libcuda.so.1",
			     "cuDriverGetVersion",
			     FUNCTIONS(driver_names) },
	[FO_CUDA_CUBLASLT] = { { .name = "cuBLASLt", .what = "matmuls" },
			       "libcublasLt.so." FO_CUDA_TEXT(CUBLAS_VER_MAJOR),
			       "cublasLtGetVersion",
			       FUNCTIONS(lt_names),
			       .returns_version = true },
	[FO_CUDA_CUDNN] = { { .name = "cuDNN", .what = "attention" },
			    "libcudnn.so." FO_CUDA_TEXT(CUDNN_MAJOR),
			    "cudnnGetVersion",
			    FUNCTIONS(dnn_names),
			    .returns_version = true },
#if FO_NCCL
	[FO_CUDA_NCCL] = { { .name = "NCCL", .what = "several devices" },
			   "libnccl.so.2",
			   "ncclGetVersion",
			   FUNCTIONS(nccl_names) },
#else
	[FO_CUDA_NCCL] = { { .name = "NCCL",
			     .what = "several devices",
			     .why = "this build has no NCCL: install it with its header (nccl.h) and build again" },
			   .tried = true },
#endif
#if FO_CUPTI
	[FO_CUDA_CUPTI] = { { .name = "CUPTI", .what = "times of kernels" },
			    "libcupti.so." FO_CUDA_TEXT(FO_CUPTI),
			    "cuptiGetVersion",
			    FUNCTIONS(cupti_names) },
#else
	[FO_CUDA_CUPTI] = { { .name = "CUPTI",
			      .what = "times of kernels",
			      .why = "this build has no CUPTI: install the toolkit with its profiling headers "
				     "(cupti.h) and build again" },
			    .tried = true },
#endif
	/* hw/nvml.h loads it. */
	[FO_CUDA_NVML] = { { .name = "NVML", .what = "power and clocks" }, .tried = true },
};
_Static_assert(sizeof driver_names <= sizeof library->function && sizeof lt_names <= sizeof library->function &&
		       sizeof dnn_names <= sizeof library->function,
	       "room for all functions");
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- the file ---- */

/* only_named: look only in the folders of FLATOUT_CUDA_LIBRARIES. */
static struct fo_library find(struct fo_cuda_found *f, const char *name, bool only_named)
{
	const char *hint = "name its folder in FLATOUT_CUDA_LIBRARIES";
	struct fo_library l = { 0 };
	fo_library_open_in(&l, getenv("FLATOUT_CUDA_LIBRARIES"), name);
	if (!only_named)
		fo_library_open(&l, "", 0, name);
	if (!only_named)
		fo_library_open_in(&l, FO_CUDA_FOLDERS, name);
	f->loaded = l.handle;
	snprintf(f->why, sizeof f->why, "%s", l.why);
	if (l.handle)
		snprintf(f->file, sizeof f->file, "%s", l.file);
	if (l.handle || *f->why)
		return l;
	if (only_named)
		hint = "beside a software driver only FLATOUT_CUDA_LIBRARIES is looked at";
	else if (f == &library[FO_CUDA_DRIVER].found)
		hint = "it comes with the NVIDIA driver; where that lies elsewhere, name its folder in "
		       "FLATOUT_CUDA_LIBRARIES";
	snprintf(f->why, sizeof f->why, "'%s' was not found: %s", name, hint);
	return l;
}

/* Finds every function or none. Those that only newer versions have are NULL in older ones. */
static bool find_all(const struct fo_library *h, struct library *l)
{
	const struct fo_cuda_found f = l->found;
	for (int i = 0; i < l->functions; i++) {
		const bool newer = *l->name[i] == '?';
		if (fo_library_find(h, l->name[i] + newer, &l->function[i]) || newer)
			continue;
		snprintf(l->found.why, sizeof l->found.why, "'%s' has no function %s: it is too old", f.file,
			 l->name[i]);
		l->found.refused = true;
		return false;
	}
	return true;
}

/* ---- the version ---- */

/* The number by which a library tells its version; 0: it does not. */
static int64_t version_of(const struct fo_library *h, const struct library *l)
{
	int (*stores)(int *), v = 0;
	size_t (*returns)(void);
	fo_library_find(h, l->version, &stores);
	fo_library_find(h, l->version, &returns);
	if (l->returns_version)
		return returns ? (int64_t)returns() : 0;
	return stores && !stores(&v) ? v : 0;
}

static void print_version(struct library *l, int64_t v)
{
	struct fo_cuda_found *f = &l->found;
	/* NCCL's number had one digit less until 2.8. */
	const int64_t minors = l == &library[FO_CUDA_NCCL] && v < 10000 ? 10 : 100;
	if (v && l == &library[FO_CUDA_DRIVER])
		snprintf(f->version, sizeof f->version, "%d.%d", (int)(v / 1000), (int)(v % 1000 / 10));
	else if (v)
		snprintf(f->version, sizeof f->version, "%d.%d.%d", (int)(v / (100 * minors)), (int)(v / 100 % minors),
			 (int)(v % 100));
}

/* cuDNN compiles attention by NVRTC when a plan is made, and NVRTC opens its built-in functions by name alone. The
 * system's loader finds neither in a folder that it was not told of, even the one that NVRTC lies in. What is loaded
 * already is found by its name, so both are loaded here. */
static void load_compiler(bool only_named)
{
	struct fo_cuda_found f = { 0 };
	int (*compiler_version)(int *, int *), major = 0, minor = 0;
	char builtins[48];
	const struct fo_library h = find(&f, "libnvrtc.so." FO_CUDA_TEXT(CUBLAS_VER_MAJOR), only_named);
	if (!fo_library_find(&h, "nvrtcVersion", &compiler_version) || compiler_version(&major, &minor))
		return; /* plans then say what is missing */
	snprintf(builtins, sizeof builtins, "libnvrtc-builtins.so.%d.%d", major, minor);
	(void)find(&f, builtins, only_named);
}

/* Versions before 9.18 compute wrong gradients of packed documents on Hopper (TransformerEngine issue 2186), 9.10 wrong
 * ones of all. */
enum { CUDNN_LEAST = 91800 };
static void judge_cudnn(struct library *l, int64_t version)
{
	const bool software = library[FO_CUDA_DRIVER].software;
	const struct fo_cuda_found f = l->found;
	l->found.refused = true;
	if (software && !l->software) {
		snprintf(l->found.why, sizeof l->found.why, "NVIDIA's cuDNN cannot run on a software device");
	} else if (version < CUDNN_LEAST) {
		snprintf(l->found.why, sizeof l->found.why,
			 "cuDNN %s is known to compute wrong gradients: install 9.18 or newer", f.version);
	} else {
		l->found.refused = false;
		load_compiler(software);
	}
}

/* ---- loading ---- */

static void load(enum fo_cuda_lib which)
{
	struct library *l = &library[which];
	/* NVIDIA's own libraries would talk to another driver than the software one, or find none. */
	const struct fo_library h = find(&l->found, l->file,
					 which != FO_CUDA_DRIVER && library[FO_CUDA_DRIVER].software);
	l->tried = true;
	void *mark;
	l->software = fo_library_find(&h, "fo_software_device", &mark);
	l->good = h.handle && find_all(&h, l);
	if (!l->good)
		return;
	const int64_t version = version_of(&h, l);
	print_version(l, version);
	if (which == FO_CUDA_CUDNN)
		judge_cudnn(l, version);
	/* The driver reads this when it starts (CUDA C programming guide, environment variables: 1 to 32, 8 if unset).
	 * Streams that share a queue wait for each other, and a rank has a stream for each of FO_LANE_COUNT lanes: a
	 * receive must not hold up the send that the other stage waits for. */
	if (which == FO_CUDA_DRIVER && !l->software)
		setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
	l->good = !l->found.refused;
}

const void *fo_cuda_load(enum fo_cuda_lib which, struct fo_cuda_found *found)
{
	struct library *l = &library[which];
	if (which != FO_CUDA_DRIVER)
		(void)fo_cuda_driver_is_software(); /* it decides where other libraries are looked for */
	pthread_mutex_lock(&lock);
	if (!l->tried)
		load(which);
	*found = l->found;
	pthread_mutex_unlock(&lock);
	return l->good ? l->function : NULL;
}

bool fo_cuda_driver_is_software(void)
{
	struct fo_cuda_found found;
	(void)fo_cuda_load(FO_CUDA_DRIVER, &found);
	return library[FO_CUDA_DRIVER].software;
}
