#include "train/devices.h"

#include "base/count.h"
#include "base/mem.h"
#include "comm/nccl.h"
#include "program/run.h"
#include "train/device.h"
#include "train/member_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

fo_status fo_devices_open_own(const char *text, int local_rank, struct fo_cuda **out)
{
	const int n = fo_cuda_count();
	char own[32], why[320];
	if (strcmp(text, "cuda") || n < 2)
		return fo_device_open(text, out, why, sizeof why);
	snprintf(own, sizeof own, "cuda:%d", local_rank % n);
	return fo_device_open(own, out, why, sizeof why);
}

int fo_devices_sharing(const char *text, int ranks, int *devices)
{
	const int n = strcmp(text, "cuda") ? 1 : fo_cuda_count();
	*devices = n < 1 ? 1 : (int)fo_min(n, ranks);
	return (ranks + *devices - 1) / *devices;
}

/* ---- a rank's part ---- */

/* A rank's answer about its device. */
struct is {
	char host[64], pci[16];
	int64_t free_bytes;
	char no_nccl[320]; /* why it has none; "": it has */
};
_Static_assert(sizeof(struct is) <= FO_ANSWER_BYTES, "");

static fo_status describe(struct fo_cuda *c, struct is *out)
{
	int64_t total;
	memset(out, 0, sizeof *out);
	if (gethostname(out->host, sizeof out->host - 1))
		out->host[0] = 0;
	snprintf(out->pci, sizeof out->pci, "%s", fo_cuda_info(c)->pci);
	FO_TRY(fo_cuda_attach(c));
	FO_TRY(fo_cuda_memory(c, &out->free_bytes, &total));
	out->free_bytes -= fo_device_reserve(total);
	fo_comm_nccl_there(out->no_nccl, sizeof out->no_nccl);
	return FO_OK;
}

fo_status fo_member_device(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out)
{
	const struct fo_exec_devices *how = bytes;
	struct is is;
	(void)n;
	if (!m->cuda) {
		FO_TRY(fo_devices_open_own(how->text, m->local_ranks ? m->local_rank : m->number, &m->cuda));
		if (!m->cuda)
			return fo_fail(FO_EUNSUPPORTED, "there is no CUDA device");
		const struct fo_run tune = { .tune = how->tune };
		FO_TRY(fo_device_tune(m->cuda, &tune));
	}
	FO_TRY(describe(m->cuda, &is));
	fo_answer_put(out, &is, sizeof is);
	return FO_OK;
}

/* ---- what carries calls ---- */

static bool same(const struct is *a, const struct is *b)
{
	return !strcmp(a->pci, b->pci) && !strcmp(a->host, b->host);
}

static void count(struct fo_devices *d, const struct is *is)
{
	d->free_bytes = INT64_MAX;
	for (int i = 0; i < d->ranks; i++) {
		int before = 0, all = 0;
		for (int k = 0; k < d->ranks; k++) {
			all += same(&is[i], &is[k]);
			before += k < i && same(&is[i], &is[k]);
		}
		d->devices += !before;
		d->sharing = all > d->sharing ? all : d->sharing;
		d->free_bytes = is[i].free_bytes / all < d->free_bytes ? is[i].free_bytes / all : d->free_bytes;
		d->with_first[i] = same(&is[i], &is[0]);
	}
}

static fo_status refuse_shared(const struct fo_devices *d, const struct is *is)
{
	for (int i = 0; i < d->ranks; i++)
		for (int k = i + 1; k < d->ranks; k++)
			if (same(&is[i], &is[k]))
				return fo_hint(fo_fail(FO_EARG,
						       "mesh.over=nccl needs a device of its own for each rank, and "
						       "ranks %d and %d of %d share %s of host %s",
						       i, k, d->ranks, is[i].pci, is[i].host),
					       "mesh.over=auto takes their calls through host memory");
	return FO_OK;
}

/* The choice by what was asked for and what there is. */
static fo_status choose(struct fo_devices *d, const struct is *is, int over)
{
	int lacks = -1;
	for (int i = d->ranks; i-- > 0;)
		if (*is[i].no_nccl)
			lacks = i;
	d->nccl = over == FO_RUN_OVER_NCCL || (over == FO_RUN_OVER_AUTO && d->sharing == 1 && lacks < 0);
	if (over != FO_RUN_OVER_NCCL)
		return FO_OK;
	FO_TRY(refuse_shared(d, is));
	if (lacks < 0)
		return FO_OK;
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "mesh.over=nccl: rank %d of %d on host %s has no NCCL: %s", lacks,
			       d->ranks, is[lacks].host, is[lacks].no_nccl),
		       "mesh.over=auto takes calls through host memory then");
}

fo_status fo_devices_open(struct fo_devices *d, struct fo_carrier *c, const struct fo_exec_devices *how,
			  struct fo_cuda *own)
{
	struct is *is = fo_xmalloc((size_t)c->ranks * sizeof *is);
	*d = (struct fo_devices){ .ranks = c->ranks };
	d->with_first = fo_xmalloc((size_t)c->ranks * sizeof *d->with_first);
	c->self->cuda = own;
	fo_status st = fo_carrier_begin(c, FO_TASK_DEVICE, how, sizeof *how);
	if (st == FO_OK)
		st = fo_carrier_end(c, describe(own, &is[0]));
	for (int i = 1; i < c->ranks && st == FO_OK; i++)
		st = fo_answer_get(&c->answer[i], &is[i], sizeof is[i]);
	if (st == FO_OK) {
		count(d, is);
		st = choose(d, is, how->over);
	}
	free(is);
	return st;
}

void fo_devices_fini(struct fo_devices *d)
{
	free(d->with_first);
	*d = (struct fo_devices){ 0 };
}
