/* NVIDIA's libraries, found and loaded at run time. */
#include "kernel/cuda/cuda_int.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Opens `name` in the folder folder[0..len), or where the system's loader finds it (len 0). NULL: f->why says why, if
 * the file is there and cannot be loaded. */
static void *open_in(const char *folder, size_t len, const char *name, struct fo_cuda_found *f)
{
	char path[512];
	if (len)
		snprintf(path, sizeof path, "%.*s/%s", (int)len, folder, name);
	else
		snprintf(path, sizeof path, "%s", name);
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	const char *text = h ? NULL : dlerror();
	if (h)
		snprintf(f->file, sizeof f->file, "%s", path);
	/* The loader's message begins with the file that it did not find: this one, or one that this one needs. */
	else if (text && (strncmp(text, path, strlen(path)) != 0 || !strstr(text, "No such file")) && !*f->why)
		snprintf(f->why, sizeof f->why, "cannot load '%s': %s", path, text);
	return h;
}

static void *open_in_folders(const char *folders, const char *name, struct fo_cuda_found *f)
{
	for (const char *at = folders; at && *at;) {
		size_t len = strcspn(at, ":");
		void *h = len ? open_in(at, len, name, f) : NULL;
		if (h)
			return h;
		at += len + (at[len] == ':');
	}
	return NULL;
}

static struct fo_cuda_loaded driver, lt, dnn;

/* only_named: look only in the folders of FLATOUT_CUDA_LIBRARIES. */
static void *find(struct fo_cuda_found *f, const char *const *names, bool only_named)
{
	*f->why = 0;
	for (int i = 0; names[i]; i++) {
		void *h = open_in_folders(getenv("FLATOUT_CUDA_LIBRARIES"), names[i], f);
		if (!h && !only_named)
			h = open_in("", 0, names[i], f);
		if (!h && !only_named)
			h = open_in_folders(FO_CUDA_FOLDERS, names[i], f);
		if (h) {
			*f->why = 0;
			f->loaded = true;
			return h;
		}
	}
	const char *hint = "name its folder in FLATOUT_CUDA_LIBRARIES";
	if (only_named)
		hint = "beside a software driver only FLATOUT_CUDA_LIBRARIES is looked at";
	else if (f == &driver.found)
		hint = "it comes with the NVIDIA driver; where that lies elsewhere, name its folder in "
		       "FLATOUT_CUDA_LIBRARIES";
	if (!*f->why)
		snprintf(f->why, sizeof f->why, "'%s' was not found: %s", names[0], hint);
	return NULL;
}

/* Finds every function or none. Those that only newer versions have are NULL in older ones. */
static bool find_all(void *h, void **to, const char *const *names, int n, struct fo_cuda_found *f)
{
	for (int i = 0; i < n; i++) {
		const bool newer = *names[i] == '?';
		to[i] = dlsym(h, names[i] + newer);
		if (to[i] || newer)
			continue;
		snprintf(f->why, sizeof f->why, "'%s' has no function %s: it is too old", f->file, names[i]);
		f->refused = true;
		return false;
	}
	return true;
}

static const char *const driver_names[] = { FO_CUDA_DRIVER_CALLS(FO_CUDA_NAME) };
static const char *const lt_names[] = { FO_CUBLASLT_CALLS(FO_CUDA_NAME) };
static const char *const dnn_names[] = { FO_CUDNN_CALLS(FO_CUDA_NAME) };
enum {
	DRIVER_CALLS = sizeof driver_names / sizeof *driver_names,
	LT_CALLS = sizeof lt_names / sizeof *lt_names,
	DNN_CALLS = sizeof dnn_names / sizeof *dnn_names
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
_Static_assert((int)DRIVER_CALLS <= 64 && (int)LT_CALLS <= 64 && (int)DNN_CALLS <= 64, "room for all functions");

const void *fo_cuda_load(struct fo_cuda_loaded *l, const char *const *files, const char *const *names, int n,
			 void (*version)(struct fo_cuda_loaded *), struct fo_cuda_found *found)
{
	if (l != &driver)
		(void)fo_cuda_driver_is_software(); /* it decides where other libraries are looked for */
	pthread_mutex_lock(&lock);
	if (!l->tried) {
		/* NVIDIA's own libraries would talk to another driver than the software one, or find none. */
		void *h = find(&l->found, files, l != &driver && driver.software);
		l->good = h && find_all(h, l->function, names, n, &l->found);
		l->software = h && dlsym(h, "fo_software_device");
		if (l->good)
			version(l);
		l->good = l->good && !l->found.refused;
		l->tried = true;
	}
	const char *name = found->name, *what = found->what;
	*found = l->found;
	found->name = name;
	found->what = what;
	pthread_mutex_unlock(&lock);
	return l->good ? l->function : NULL;
}

static void driver_version(struct fo_cuda_loaded *l)
{
	int v = 0;
	if (((const struct fo_cuda_driver_calls *)l->function)->cuDriverGetVersion(&v) == CUDA_SUCCESS)
		snprintf(l->found.version, sizeof l->found.version, "%d.%d", v / 1000, v % 1000 / 10);
}
const struct fo_cuda_driver_calls *fo_cuda_load_driver(struct fo_cuda_found *found)
{
	static const char *const files[] = { "libcuda.so.1", NULL };
	return fo_cuda_load(&driver, files, driver_names, DRIVER_CALLS, driver_version, found);
}

bool fo_cuda_driver_is_software(void)
{
	struct fo_cuda_found found = { 0 };
	(void)fo_cuda_load_driver(&found);
	return driver.software;
}

void *fo_cuda_dlopen(struct fo_cuda_found *f, const char *const *names)
{
	return find(f, names, fo_cuda_driver_is_software());
}

static void lt_version(struct fo_cuda_loaded *l)
{
	size_t v = ((const struct fo_cublaslt_calls *)l->function)->cublasLtGetVersion();
	snprintf(l->found.version, sizeof l->found.version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
}
const struct fo_cublaslt_calls *fo_cuda_load_cublaslt(struct fo_cuda_found *found)
{
	static const char *const files[] = { "libcublasLt.so." FO_CUDA_TEXT(CUBLAS_VER_MAJOR), NULL };
	return fo_cuda_load(&lt, files, lt_names, LT_CALLS, lt_version, found);
}

/* cuDNN compiles attention by NVRTC when a plan is made, and NVRTC opens its built-in functions by name alone. The
 * system's loader finds neither in a folder that it was not told of, even the one that NVRTC lies in. What is loaded
 * already is found by its name, so both are loaded here. */
static void load_compiler(bool only_named)
{
	static const char *const files[] = { "libnvrtc.so." FO_CUDA_TEXT(CUBLAS_VER_MAJOR), NULL };
	struct fo_cuda_found f = { 0 };
	int (*version_of)(int *, int *), major = 0, minor = 0;
	char name[48];
	const char *const builtins[] = { name, NULL };
	void *h = find(&f, files, only_named);
	*(void **)&version_of = h ? dlsym(h, "nvrtcVersion") : NULL;
	if (!version_of || version_of(&major, &minor))
		return; /* plans then say what is missing */
	snprintf(name, sizeof name, "libnvrtc-builtins.so.%d.%d", major, minor);
	(void)find(&f, builtins, only_named);
}

/* Versions before 9.18 compute wrong gradients of packed documents on Hopper (TransformerEngine issue 2186), 9.10 wrong
 * ones of all. */
enum { CUDNN_LEAST = 91800 };
static void dnn_version(struct fo_cuda_loaded *l)
{
	size_t v = ((const struct fo_cudnn_calls *)l->function)->cudnnGetVersion();
	snprintf(l->found.version, sizeof l->found.version, "%zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
	l->found.refused = v < CUDNN_LEAST;
	if (driver.software && !l->software) {
		l->found.refused = true;
		snprintf(l->found.why, sizeof l->found.why, "NVIDIA's cuDNN cannot run on a software device");
	} else if (l->found.refused)
		snprintf(l->found.why, sizeof l->found.why,
			 "cuDNN %s is known to compute wrong gradients: install 9.18 or newer", l->found.version);
	else
		load_compiler(driver.software);
}
const struct fo_cudnn_calls *fo_cuda_load_cudnn(struct fo_cuda_found *found)
{
	static const char *const files[] = { "libcudnn.so." FO_CUDA_TEXT(CUDNN_MAJOR), NULL };
	return fo_cuda_load(&dnn, files, dnn_names, DNN_CALLS, dnn_version, found);
}
