#include "base/library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool fo_library_open(struct fo_library *l, const char *folder, size_t len, const char *name)
{
	if (l->handle)
		return true;
	snprintf(l->file, sizeof l->file, "%.*s%s%s", (int)len, folder, len ? "/" : "", name);
	l->handle = dlopen(l->file, RTLD_NOW | RTLD_LOCAL);
	const char *text = l->handle ? NULL : dlerror();
	/* The loader's message begins with the file that it did not find: this one, or one that this one needs. */
	const bool absent = text && !strncmp(text, l->file, strlen(l->file)) && strstr(text, "No such file");
	if (text && !absent && !*l->why)
		snprintf(l->why, sizeof l->why, "cannot load '%s': %s", l->file, text);
	if (l->handle)
		*l->why = 0;
	return l->handle;
}

bool fo_library_open_in(struct fo_library *l, const char *folders, const char *name)
{
	for (const char *at = folders; at && *at && !l->handle;) {
		const size_t len = strcspn(at, ":");
		if (len)
			fo_library_open(l, at, len, name);
		at += len + (at[len] == ':');
	}
	return l->handle;
}

bool fo_library_find(const struct fo_library *l, const char *function, void *to)
{
	void *f = l->handle ? dlsym(l->handle, function) : NULL;
	memcpy(to, &f, sizeof f);
	return f;
}

static char folder[512];
static void find_folder(void)
{
	const ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
	char *slash = n > 0 ? strrchr(folder, '/') : NULL;
	/* A name that was cut is no folder. */
	if (!slash || n == (ssize_t)sizeof folder - 1)
		slash = folder;
	*slash = 0;
}

const char *fo_library_program_folder(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, find_folder);
	return folder;
}
