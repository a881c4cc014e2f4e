#include "train/memory.h"
#include "hw/state.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

/* "Name:   123 kB" in a /proc file, in bytes; 0 when it is not there. */
static int64_t proc_bytes(const char *file, const char *name)
{
	FILE *f = fopen(file, "re");
	char line[256];
	int64_t bytes = 0;
	while (f && fgets(line, sizeof line, f)) {
		long long kb;
		if (!strncmp(line, name, strlen(name)) && sscanf(line + strlen(name), ": %lld kB", &kb) == 1)
			bytes = kb * 1024;
	}
	if (f)
		fclose(f);
	return bytes;
}

int64_t fo_memory_resident(void) { return proc_bytes("/proc/self/status", "RssAnon"); }

int64_t fo_memory_available(void)
{
	int64_t free_bytes = proc_bytes("/proc/meminfo", "MemAvailable");
	double room = fo_state_memory_room("");
	/* 0 would mean that nothing is known. */
	if (!isnan(room) && (!free_bytes || room < (double)free_bytes))
		free_bytes = room < 1 ? 1 : (int64_t)room;
	return free_bytes;
}

int64_t fo_memory_mappable(void)
{
	static const struct {
		int limit;
		const char *used; /* counts what is mapped, touched or not */
	} row[] = { { RLIMIT_DATA, "VmData" }, { RLIMIT_AS, "VmSize" } };
	int64_t most = fo_memory_available();
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		struct rlimit l;
		int64_t used = proc_bytes("/proc/self/status", row[i].used);
		if (getrlimit(row[i].limit, &l) || l.rlim_cur == RLIM_INFINITY || l.rlim_cur > INT64_MAX)
			continue;
		int64_t left = (int64_t)l.rlim_cur > used ? (int64_t)l.rlim_cur - used : 1;
		if (!most || left < most)
			most = left;
	}
	return most;
}
