/* Reads what the process's control group and the groups above it grant. Each ancestor limits a group, and a container
 * may show its own group at the top of the mount: files that are missing say nothing. */
#include "hw/state_int.h"

#include "base/mem.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINES = 64 << 10 }; /* of /proc/self/cgroup: a line per hierarchy, each of at most a path */

/* Returns true to end the walk. dir: "/sys/fs/cgroup/a/b", below the root. */
typedef bool visit_fn(void *ctx, const char *root, const char *dir, bool v1);

/* Is `word` one of the comma-separated words of list[0..n)? */
static bool lists(const char *list, size_t n, const char *word)
{
	size_t len = strlen(word);
	for (size_t at = 0; at + len <= n; at += strcspn(list + at, ",") + 1)
		if (!strncmp(list + at, word, len) && (at + len == n || list[at + len] == ','))
			return true;
	return false;
}

/* The path after "0::", or with a controller after "N:...,controller,...:"; false: no such line. */
static bool own_path(const char *text, const char *controller, char *path)
{
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *names = line + strcspn(line, ":\n"), *end;
		if (*names++ != ':')
			continue;
		end = names + strcspn(names, ":\n");
		if (*end != ':' ||
		    (controller ? !lists(names, (size_t)(end - names), controller) : line[0] != '0' || end != names))
			continue;
		snprintf(path, FO_CGROUP_PATH, "%.*s", (int)strcspn(end + 1, "\n"), end + 1);
		/* Another namespace's path ("/../x") leads nowhere here. */
		if (*path != '/' || strstr(path, "/..") || strcspn(end + 1, "\n") >= FO_CGROUP_PATH)
			*path = 0;
		return true;
	}
	return false;
}

/* The group of `path` below the mount and all above it, the mount's top last. */
static bool walk(const char *root, const char *mount, char *path, bool v1, visit_fn *fn, void *ctx)
{
	char *dir = fo_xmalloc(FO_CGROUP_PATH + 64);
	bool done = false;
	for (;;) {
		size_t n = strlen(path);
		while (n && path[n - 1] == '/')
			path[--n] = 0;
		snprintf(dir, FO_CGROUP_PATH + 64, "%s%s", mount, path);
		done = fn(ctx, root, dir, v1);
		if (done || !n)
			break;
		*strrchr(path, '/') = 0;
	}
	free(dir);
	return done;
}

/* A controller is in one hierarchy: version 1's where a line names it, else version 2's. Without a line for either,
 * what stands at the usual places is taken. */
static void each_group(const char *root, const char *controller, visit_fn *fn, void *ctx)
{
	char *text = fo_xmalloc(LINES), *path = fo_xmalloc(FO_CGROUP_PATH), mount[64];
	snprintf(mount, sizeof mount, "/sys/fs/cgroup/%s", controller);
	if (!fo_state_text(text, LINES, root, "/proc/self/cgroup"))
		*text = 0;
	*path = 0;
	if (own_path(text, controller, path)) {
		walk(root, mount, path, true, fn, ctx);
	} else {
		own_path(text, NULL, path);
		if (!walk(root, "/sys/fs/cgroup", path, false, fn, ctx)) {
			*path = 0;
			walk(root, mount, path, true, fn, ctx);
		}
	}
	free(text);
	free(path);
}

struct wanted {
	char *buf;
	size_t size;
	const char *file, *v1_file;
	bool found;
};

static bool take_file(void *ctx, const char *root, const char *dir, bool v1)
{
	struct wanted *w = ctx;
	return w->found = fo_state_text(w->buf, w->size, root, "%s/%s", dir, v1 ? w->v1_file : w->file);
}

bool fo_state_cgroup(char *buf, size_t size, const char *root, const char *controller, const char *file,
		     const char *v1_file)
{
	struct wanted w = { buf, size, file, v1_file, false };
	*buf = 0;
	each_group(root, controller, take_file, &w);
	return w.found;
}

/* ---- memory ---- */

/* The least room of all groups. What files' pages take that nobody has used lately is given back when memory runs
 * short, as the system's own MemAvailable has it. "max", and the huge number by which version 1 says that there is
 * none, are no limits. */
static bool least_room(void *ctx, const char *root, const char *dir, bool v1)
{
	static const char *const limit_file[2][3] = { { "memory.max", "memory.high", NULL },
						      { "memory.limit_in_bytes", NULL } };
	double *room = ctx, used = fo_state_number(root, "%s/%s", dir, v1 ? "memory.usage_in_bytes" : "memory.current");
	char *stat = fo_xmalloc(FO_CGROUP_PATH + 64);
	snprintf(stat, FO_CGROUP_PATH + 64, "%s/memory.stat", dir);
	double cached = fo_state_field(root, stat, v1 ? "total_inactive_file" : "inactive_file");
	free(stat);
	used = isnan(used) ? 0 : used;
	used -= cached > 0 && cached < used ? cached : 0;
	for (const char *const *file = limit_file[v1]; *file; file++) {
		double limit = fo_state_number(root, "%s/%s", dir, *file);
		if (!isnan(limit) && !(*room <= limit - used))
			*room = limit > used ? limit - used : 0;
	}
	return false;
}

double fo_state_memory_room(const char *root)
{
	double room = NAN;
	each_group(root, "memory", least_room, &room);
	return room;
}

/* ---- processors ---- */

/* v2 "quota period" in microseconds, or "max period"; v1 the quota (-1: none) beside the period. */
static bool least_processors(void *ctx, const char *root, const char *dir, bool v1)
{
	double *least = ctx, quota, period;
	char text[128], *end;
	if (!fo_state_text(text, sizeof text, root, "%s/%s", dir, v1 ? "cpu.cfs_quota_us" : "cpu.max") ||
	    !isdigit((unsigned char)*text))
		return false;
	quota = strtod(text, &end);
	period = v1 ? fo_state_number(root, "%s/cpu.cfs_period_us", dir) : strtod(end, NULL);
	if (quota > 0 && period > 0 && quota / period < 1e6 && !(*least <= quota / period))
		*least = quota / period;
	return false;
}

double fo_state_processors(const char *root)
{
	double least = NAN;
	each_group(root, "cpu", least_processors, &least);
	return least;
}
