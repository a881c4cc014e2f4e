#include "support/made_trace.h"

#include "base/fs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOST = 100 }; /* the process of all host events */

void made_begin(struct made *m) { *m = (struct made){ .thread = 1, .stream = 7 }; }

void made_device(struct made *m, const char *name, int sms, int major, int minor, double memory_gib)
{
	fo_str_printf(
		&m->head,
		"\"deviceProperties\": [{\"id\": %d, \"name\": \"%s\", \"totalGlobalMem\": %.0f, \"computeMajor\": %d, "
		"\"computeMinor\": %d, \"numSms\": %d}],\n",
		m->device, name, memory_gib * 1073741824.0, major, minor, sms);
}

void made_rank(struct made *m, int rank, int world)
{
	fo_str_printf(&m->head, "\"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, \"world_size\": %d},\n",
		      rank, world);
}

/* An event with the builder's `args` behind its own. */
static void event(struct made *m, const char *category, const char *name, int pid, int tid, double begin,
		  double duration, const char *own)
{
	const char *comma = *own && m->args ? ", " : "";
	fo_str_printf(&m->events,
		      "%s{\"ph\": \"X\", \"cat\": \"%s\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.3f, "
		      "\"dur\": %.3f, \"args\": {%s%s%s}}",
		      m->events.len ? ",\n" : "", category, name, pid, tid, begin, duration, own, comma,
		      m->args ? m->args : "");
	m->args = NULL;
}

void made_event(struct made *m, const char *category, const char *name, int pid, int tid, double begin, double duration)
{
	event(m, category, name, pid, tid, begin, duration, "");
}

void made_op(struct made *m, const char *name, double begin, double end)
{
	event(m, "cpu_op", name, HOST, m->thread, begin, end - begin, "");
}

void made_shapes(struct made *m, const char *dims, const char *types)
{
	static char text[2048];
	snprintf(text, sizeof text, "\"Input Dims\": %s, \"Input type\": %s", dims, types);
	m->args = text;
}

void made_range(struct made *m, const char *name, double begin, double end)
{
	event(m, "user_annotation", name, HOST, m->thread, begin, end - begin, "");
}

void made_step(struct made *m, int number, double begin, double end)
{
	char name[40];
	snprintf(name, sizeof name, "ProfilerStep#%d", number);
	made_range(m, name, begin, end);
}

void made_call(struct made *m, const char *name, double begin, double end)
{
	event(m, "cuda_runtime", name, HOST, m->thread, begin, end - begin, "");
}

/* The launch, if there is one, then the operation with the same correlation. */
static void on_device(struct made *m, const char *category, const char *call, const char *name, const char *more,
		      double launch, double begin, double end)
{
	char own[160];
	const char *args = m->args;
	m->args = NULL;
	m->correlation++;
	if (launch >= 0) {
		snprintf(own, sizeof own, "\"correlation\": %lld", (long long)m->correlation);
		event(m, "cuda_runtime", call, HOST, m->thread, launch, 2, own);
	}
	snprintf(own, sizeof own, "\"device\": %d, \"stream\": %d, \"correlation\": %lld%s", m->device, m->stream,
		 (long long)m->correlation, more);
	m->args = args;
	event(m, category, name, m->device, m->stream, begin, end - begin, own);
}

void made_kernel(struct made *m, const char *name, double launch, double begin, double end)
{
	on_device(m, "kernel", "cudaLaunchKernel", name, "", launch, begin, end);
}

void made_copy(struct made *m, const char *name, int64_t bytes, double launch, double begin, double end)
{
	char more[40];
	snprintf(more, sizeof more, ", \"bytes\": %lld", (long long)bytes);
	on_device(m, "gpu_memcpy", "cudaMemcpyAsync", name, more, launch, begin, end);
}

void made_write(struct made *m, const char *path)
{
	struct fo_str all = { 0 };
	fo_str_printf(&all, "{\"schemaVersion\": 1,\n%s\"traceEvents\": [\n%s\n]}\n", m->head.data ? m->head.data : "",
		      m->events.data ? m->events.data : "");
	if (fo_fs_write_atomic(path, all.data, all.len) != FO_OK)
		fail_msg("%s", fo_err_text());
	fo_str_fini(&all);
	fo_str_fini(&m->head);
	fo_str_fini(&m->events);
}

void made_diagnose(struct made_diagnosis *out, const char *path, const struct fo_diagnose_options *o)
{
	static const struct fo_diagnose_options none = { .price_per_hour = NAN };
	*out = (struct made_diagnosis){ 0 };
	if (fo_trace_set_open(&out->set, &path, 1) != FO_OK || fo_diagnose(&out->d, &out->set, o ? o : &none) != FO_OK)
		fail_msg("%s", fo_err_text());
}

void made_close(struct made_diagnosis *v)
{
	fo_diagnosis_fini(&v->d);
	fo_trace_set_fini(&v->set);
}

void made_run(struct made *m, struct made_diagnosis *out)
{
	char path[40];
	snprintf(path, sizeof path, "made-%ld.json", (long)getpid());
	made_write(m, path);
	made_diagnose(out, path, NULL);
	unlink(path);
}
