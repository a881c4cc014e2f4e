/* A build without the CUDA toolkit: everything is there and says so. */
#include "base/err.h"
#include "hw/profile.h"
#include "kernel/cuda/cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* nothing here looks at its arguments */

static fo_status none(void)
{
	return fo_hint(fo_fail(FO_EUNSUPPORTED, "this build has no CUDA backend"),
		       "install the CUDA toolkit with cuDNN and build again");
}
void fo_cuda_survey(struct fo_cuda_survey *s)
{
	*s = (struct fo_cuda_survey){
		.why = "this build has no CUDA backend: install the CUDA toolkit with cuDNN and build again"
	};
}
int fo_cuda_count(void) { return 0; }
fo_status fo_cuda_open(struct fo_cuda **out, int index) { return none(); }
void fo_cuda_close(struct fo_cuda *c) {}
const struct fo_cuda_device *fo_cuda_info(const struct fo_cuda *c) { return NULL; }
const char *fo_cuda_attention_note(const struct fo_cuda *c) { return NULL; }
fo_status fo_cuda_attach(struct fo_cuda *c) { return none(); }
fo_status fo_cuda_alloc(struct fo_cuda *c, size_t bytes, void **device) { return none(); }
void fo_cuda_free(struct fo_cuda *c, void *device) {}
fo_status fo_cuda_host_alloc(struct fo_cuda *c, size_t bytes, void **host) { return none(); }
void fo_cuda_host_free(struct fo_cuda *c, void *host) {}
fo_status fo_cuda_memory(struct fo_cuda *c, int64_t *free_bytes, int64_t *total_bytes) { return none(); }
fo_status fo_cuda_stream_new(struct fo_cuda *c, fo_cuda_stream *out) { return none(); }
void fo_cuda_stream_free(struct fo_cuda *c, fo_cuda_stream s) {}
fo_status fo_cuda_stream_wait(struct fo_cuda *c, fo_cuda_stream s) { return none(); }
fo_status fo_cuda_event_new(struct fo_cuda *c, bool timed, fo_cuda_event *out) { return none(); }
void fo_cuda_event_free(struct fo_cuda *c, fo_cuda_event e) {}
fo_status fo_cuda_event_record(struct fo_cuda *c, fo_cuda_event e, fo_cuda_stream s, bool external) { return none(); }
fo_status fo_cuda_event_after(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_event e) { return none(); }
fo_status fo_cuda_event_wait(struct fo_cuda *c, fo_cuda_event e) { return none(); }
fo_status fo_cuda_event_done(struct fo_cuda *c, fo_cuda_event e, bool *done) { return none(); }
fo_status fo_cuda_event_ms(struct fo_cuda *c, fo_cuda_event begin, fo_cuda_event end, float *ms) { return none(); }
fo_status fo_cuda_copy_in(struct fo_cuda *c, void *device, const void *host, size_t bytes, fo_cuda_stream s)
{
	return none();
}
fo_status fo_cuda_copy_out(struct fo_cuda *c, void *host, const void *device, size_t bytes, fo_cuda_stream s)
{
	return none();
}
fo_status fo_cuda_copy(struct fo_cuda *c, void *to, const void *from, size_t bytes, fo_cuda_stream s) { return none(); }
fo_status fo_cuda_fill(struct fo_cuda *c, void *device, unsigned char byte, size_t bytes, fo_cuda_stream s)
{
	return none();
}
fo_status fo_cuda_capture_begin(struct fo_cuda *c, fo_cuda_stream s) { return none(); }
fo_status fo_cuda_capture_end(struct fo_cuda *c, fo_cuda_stream s, fo_cuda_graph *out) { return none(); }
fo_status fo_cuda_graph_launch(struct fo_cuda *c, fo_cuda_graph g, fo_cuda_stream s) { return none(); }
void fo_cuda_graph_free(struct fo_cuda *c, fo_cuda_graph g) {}
const struct fo_cuda_kernel *fo_cuda_kernel_of(enum fo_op_kind kind) { return NULL; }
const char *fo_cuda_cannot(const struct fo_cuda *c, const struct fo_call *shape)
{
	return "this build has no CUDA backend";
}
size_t fo_cuda_ws_most(const struct fo_cuda_device *d, const struct fo_call *shape) { return 0; }
const char *fo_cuda_by(const struct fo_cuda *c, const struct fo_call *shape) { return "none"; }
void *fo_cuda_nvml(const struct fo_cuda *c) { return NULL; }
fo_status fo_cuda_tune_set(struct fo_cuda *c, enum fo_cuda_tune_mode mode, const char *cache) { return none(); }
void fo_cuda_tune_hooks(struct fo_cuda *c, fo_progress_fn *progress, void *ctx, const volatile sig_atomic_t *stop) {}
char *fo_cuda_tune_path(struct fo_arena *a) { return fo_cache_path(a, "cuda-products.jsonl"); }
void fo_cuda_tune_result(const struct fo_cuda *c, struct fo_cuda_tuned *out)
{
	*out = (struct fo_cuda_tuned){ .gain = 1 };
}
fo_status fo_cuda_trace_start(void) { return none(); }
void fo_cuda_trace_push(int64_t instance) {}
void fo_cuda_trace_pop(void) {}
fo_status fo_cuda_trace_take(struct fo_cuda_trace *out)
{
	*out = (struct fo_cuda_trace){ 0 };
	return none();
}
void fo_cuda_trace_fini(struct fo_cuda_trace *t) {}
void fo_cuda_trace_stop(void) {}
fo_status fo_cuda_find_nonfinite(struct fo_cuda_queue *q, const struct fo_tensor *t, int64_t *found) { return none(); }
fo_status fo_cuda_add(struct fo_cuda_queue *q, const struct fo_tensor *to, const struct fo_tensor *from)
{
	return none();
}
fo_status fo_cuda_init_weights(struct fo_cuda_queue *q, const struct fo_cuda_init *in) { return none(); }
