/* Parts that the readers of schedule logs share: names of operations, and how a log begins. */
#include "trace/schedule_int.h"

#include "base/fs.h"

#include <string.h>
#include <unistd.h>

const char *const fo_schedule_kind_name[FO_SCHED_COUNT] = {
	[FO_SCHED_FORWARD] = "forward-compute",
	[FO_SCHED_BACKWARD] = "backward-compute",
	[FO_SCHED_WEIGHT] = "backward-wgrad-compute",
	[FO_SCHED_FORWARD_SEND] = "forward-send",
	[FO_SCHED_FORWARD_RECV] = "forward-recv",
	[FO_SCHED_BACKWARD_SEND] = "backward-send",
	[FO_SCHED_BACKWARD_RECV] = "backward-recv",
	[FO_SCHED_PARAMS_GATHER] = "params-all-gather",
	[FO_SCHED_GRADS_SCATTER] = "grads-reduce-scatter",
	[FO_SCHED_GRADS_SEPARATE] = "separate-grads-all-reduce",
	[FO_SCHED_GRADS_NORM] = "layernorm-grads-all-reduce",
	[FO_SCHED_GRADS_EMBEDDING] = "embedding-grads-all-reduce",
	[FO_SCHED_CLIP] = "optimizer-clip-main-grad",
	[FO_SCHED_OPTIMIZER] = "optimizer",
	[FO_SCHED_PAUSE] = "gc",
};

int fo_schedule_kind_of(const char *name, size_t n)
{
	for (int i = 0; i < FO_SCHED_COUNT; i++)
		if (strlen(fo_schedule_kind_name[i]) == n && memcmp(name, fo_schedule_kind_name[i], n) == 0)
			return i;
	return -1;
}

fo_status fo_schedule_text_open(const char *path, gzFile *f)
{
	int fd;
	FO_TRY(fo_fs_open_regular(path, &fd));
	*f = gzdopen(fd, "rb");
	if (*f)
		return FO_OK;
	close(fd);
	return fo_fail(FO_EIO, "cannot open '%s'", path);
}

bool fo_schedule_begins(const char *text)
{
	for (const char *p = text; (p = strstr(p, "\"cat\""));) {
		p += strlen("\"cat\"");
		p += strspn(p, " \t\r\n:");
		if (*p == '"' && fo_schedule_kind_of(p + 1, strcspn(p + 1, "\"")) >= 0)
			return true;
	}
	return false;
}
