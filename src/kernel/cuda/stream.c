/* Memory, streams, events and graphs of an open device. */
#include "kernel/cuda/cuda_int.h"

#include "base/str.h"
#include "hw/nvml.h"

#include <stdlib.h>

fo_status fo_cuda_check(const struct fo_cuda *c, CUresult r, const char *doing)
{
	const char *why = NULL;
	if (r == CUDA_SUCCESS)
		return FO_OK;
	c->driver->cuGetErrorString(r, &why);
	if (!why)
		why = "unknown error";
	return fo_fail(r == CUDA_ERROR_OUT_OF_MEMORY ? FO_ENOMEM : FO_EDEVICE,
		       "cannot %s: the CUDA driver says \"%s\" (%d)", doing, why, (int)r);
}

void *fo_cuda_nvml(const struct fo_cuda *c)
{
	const char *named = getenv("FLATOUT_NVML");
	return !c->info.software || (named && *named) ? fo_nvml_find(c->info.pci) : NULL;
}

/* ---- memory ---- */

#define DEVICE(p) ((CUdeviceptr)(uintptr_t)(p))

fo_status fo_cuda_alloc(struct fo_cuda *c, size_t bytes, void **device)
{
	CUdeviceptr p = 0;
	char a[32], b[32], d[32];
	CUresult r = c->driver->cuMemAlloc(&p, bytes ? bytes : 1);
	if (r == CUDA_ERROR_OUT_OF_MEMORY) {
		int64_t have = 0, all = 0;
		FO_TRY(fo_cuda_memory(c, &have, &all));
		return fo_fail(FO_ENOMEM, "the device cannot hold %s: %s of %s are free",
			       fo_str_bytes(a, (double)bytes), fo_str_bytes(b, (double)have),
			       fo_str_bytes(d, (double)all));
	}
	*device = (void *)(uintptr_t)p;
	return fo_cuda_check(c, r, "allocate device memory");
}
void fo_cuda_free(struct fo_cuda *c, void *device)
{
	if (device)
		c->driver->cuMemFree(DEVICE(device));
}
fo_status fo_cuda_host_alloc(struct fo_cuda *c, size_t bytes, void **host)
{
	return fo_cuda_check(c, c->driver->cuMemAllocHost(host, bytes ? bytes : 1), "allocate page-locked memory");
}
void fo_cuda_host_free(struct fo_cuda *c, void *host)
{
	if (host)
		c->driver->cuMemFreeHost(host);
}
fo_status fo_cuda_memory(struct fo_cuda *c, int64_t *free_bytes, int64_t *total_bytes)
{
	size_t have = 0, all = 0;
	FO_TRY(fo_cuda_check(c, c->driver->cuMemGetInfo(&have, &all), "ask for free memory"));
	*free_bytes = (int64_t)have;
	*total_bytes = (int64_t)all;
	return FO_OK;
}
fo_status fo_cuda_copy_in(struct fo_cuda *c, void *device, const void *host, size_t bytes, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuMemcpyHtoDAsync(DEVICE(device), host, bytes, s), "copy to the device");
}
fo_status fo_cuda_copy_out(struct fo_cuda *c, void *host, const void *device, size_t bytes, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuMemcpyDtoHAsync(host, DEVICE(device), bytes, s), "copy from the device");
}
fo_status fo_cuda_copy(struct fo_cuda *c, void *to, const void *from, size_t bytes, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuMemcpyAsync(DEVICE(to), DEVICE(from), bytes, s), "copy on the device");
}
fo_status fo_cuda_fill(struct fo_cuda *c, void *device, unsigned char byte, size_t bytes, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuMemsetD8Async(DEVICE(device), byte, bytes, s), "fill device memory");
}

/* ---- streams and events ---- */

/* Streams do not wait for the default one: it would order what the program leaves open. */
fo_status fo_cuda_stream_new(struct fo_cuda *c, fo_cuda_stream *out)
{
	return fo_cuda_check(c, c->driver->cuStreamCreate((CUstream *)out, CU_STREAM_NON_BLOCKING), "make a stream");
}
void fo_cuda_stream_free(struct fo_cuda *c, fo_cuda_stream s)
{
	if (s)
		c->driver->cuStreamDestroy(s);
}
fo_status fo_cuda_stream_wait(struct fo_cuda *c, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuStreamSynchronize(s), "finish what was begun");
}
fo_status fo_cuda_event_new(struct fo_cuda *c, bool timed, fo_cuda_event *out)
{
	return fo_cuda_check(
		c, c->driver->cuEventCreate((CUevent *)out, timed ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING),
		"make an event");
}
void fo_cuda_event_free(struct fo_cuda *c, fo_cuda_event e)
{
	if (e)
		c->driver->cuEventDestroy(e);
}
fo_status fo_cuda_event_record(struct fo_cuda *c, fo_cuda_event e, fo_cuda_stream s, bool external)
{
	CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
	/* Outside a capture the driver refuses the flag: there every record is of that kind. */
	if (external)
		FO_TRY(fo_cuda_check(c, c->driver->cuStreamIsCapturing(s, &status), "ask for a capture"));
	external = status != CU_STREAM_CAPTURE_STATUS_NONE;
	return fo_cuda_check(
		c,
		c->driver->cuEventRecordWithFlags(e, s, external ? CU_EVENT_RECORD_EXTERNAL : CU_EVENT_RECORD_DEFAULT),
		"record an event");
}
fo_status fo_cuda_event_after(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_event e)
{
	return fo_cuda_check(c, c->driver->cuStreamWaitEvent(s, e, CU_EVENT_WAIT_DEFAULT), "wait for an event");
}
fo_status fo_cuda_event_wait(struct fo_cuda *c, fo_cuda_event e)
{
	return fo_cuda_check(c, c->driver->cuEventSynchronize(e), "wait for what was put before an event");
}
fo_status fo_cuda_event_done(struct fo_cuda *c, fo_cuda_event e, bool *done)
{
	const CUresult r = c->driver->cuEventQuery(e);
	*done = r == CUDA_SUCCESS;
	return r == CUDA_ERROR_NOT_READY ? FO_OK : fo_cuda_check(c, r, "look whether an event has happened");
}
fo_status fo_cuda_event_ms(struct fo_cuda *c, fo_cuda_event begin, fo_cuda_event end, float *ms)
{
	return fo_cuda_check(c, c->driver->cuEventElapsedTime(ms, begin, end), "read the time between two events");
}

/* ---- graphs ---- */

/* Only this thread's calls are captured: other threads may allocate meanwhile. */
fo_status fo_cuda_capture_begin(struct fo_cuda *c, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
			     "begin to capture a graph");
}
fo_status fo_cuda_capture_end(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_graph *out)
{
	CUgraph g = NULL;
	FO_TRY(fo_cuda_check(c, c->driver->cuStreamEndCapture(s, &g), "end the capture of a graph"));
	fo_status st = fo_cuda_check(c, c->driver->cuGraphInstantiateWithFlags((CUgraphExec *)out, g, 0),
				     "make a graph ready to run");
	c->driver->cuGraphDestroy(g);
	return st;
}
fo_status fo_cuda_graph_launch(struct fo_cuda *c, fo_cuda_graph g, fo_cuda_stream s)
{
	return fo_cuda_check(c, c->driver->cuGraphLaunch(g, s), "launch a graph");
}
void fo_cuda_graph_free(struct fo_cuda *c, fo_cuda_graph g)
{
	if (g)
		c->driver->cuGraphExecDestroy(g);
}
