/* Inputs ahead: the next step's batch goes to the device while a step runs.
 *
 * Ports of batches fill the front of the staging. It has two copies on the device: `now`, which the step's ports copy
 * from, and `next`. While a step runs the host fills the front of the staging with the following batch and copies it to
 * `next` on a stream of its own. The following step begins with a copy from `next` to `now` on the device and does not
 * touch the staging, so that graphs hold one address. Each of the three places is filled again only when its reader is
 * done: the staging when the host has waited for the copy out of it, `next` after the event of the step that took it,
 * `now` after the step before, which the host has waited for.
 *
 * A number (fo_exec_batch_fn) identifies the batch in `next`. A step that was refused, repeated, interrupted by an
 * evaluation or reached again by going back finds its batch there or fills it in again, and nothing is counted as read
 * before its step. Hyper-parameters depend on the step before and are filled in when a step begins. */
#include "train/exec_cuda.h"
#include "train/store_int.h"

fo_status fo_exec_inputs_open(struct fo_exec *e)
{
	struct fo_exec_inputs *in = &e->cuda->inputs;
	void *device;
	in->held = -1;
	if (!e->o.batch || !in->bytes)
		return FO_OK;
	fo_status st = fo_cuda_alloc(e->cuda->c, fo_device_size(2 * in->bytes), &device);
	if (st != FO_OK)
		return fo_wrap(st, "cannot hold the batch of a step and the next one's");
	in->now = device;
	in->next = in->now + in->bytes;
	FO_TRY(fo_cuda_stream_new(e->cuda->c, &in->stream));
	FO_TRY(fo_cuda_event_new(e->cuda->c, false, &in->copied));
	return fo_cuda_event_new(e->cuda->c, false, &in->taken);
}

void fo_exec_inputs_close(struct fo_exec *e)
{
	struct fo_exec_inputs *in = &e->cuda->inputs;
	fo_cuda_event_free(e->cuda->c, in->copied);
	fo_cuda_event_free(e->cuda->c, in->taken);
	fo_cuda_stream_free(e->cuda->c, in->stream);
	fo_cuda_free(e->cuda->c, in->now);
	*in = (struct fo_exec_inputs){ .bytes = in->bytes, .looks_beyond = in->looks_beyond, .held = -1 };
}

fo_status fo_exec_inputs_drop(struct fo_exec *e)
{
	struct fo_exec_inputs *in = &e->cuda->inputs;
	in->held = -1;
	return in->now ? fo_cuda_stream_wait(e->cuda->c, in->stream) : FO_OK;
}

/* Brings the batch that the ports serve now into the staging and from there to `next`, and chooses the plans that its
 * contents ask for. */
static fo_status fill(struct fo_exec *e, int64_t number)
{
	struct fo_exec_cuda *x = e->cuda;
	struct fo_exec_inputs *in = &x->inputs;
	FO_TRY(fo_exec_inputs_drop(e));
	for (int id = 0; id < e->u.n; id++)
		if (fo_exec_is_batch(fo_instance_op(e->p, &e->u, id)))
			FO_TRY(fo_exec_serve(e, id));
	fo_exec_look(e);
	if (in->was_taken)
		FO_TRY(fo_cuda_event_after(x->c, in->stream, in->taken));
	FO_TRY(fo_cuda_copy_in(x->c, in->next, x->staging, in->bytes, in->stream));
	FO_TRY(fo_cuda_event_record(x->c, in->copied, in->stream, false));
	in->held = number;
	return FO_OK;
}

fo_status fo_exec_inputs_ready(struct fo_exec *e)
{
	int64_t number = e->o.batch(e->ctx, false);
	if (number < 0 || number != e->cuda->inputs.held)
		return fill(e, number);
	if (e->cuda->inputs.looks_beyond)
		fo_exec_look(e);
	return FO_OK;
}

fo_status fo_exec_inputs_take(struct fo_exec *e)
{
	struct fo_exec_cuda *x = e->cuda;
	struct fo_exec_inputs *in = &x->inputs;
	fo_cuda_stream first = x->lane[FO_LANE_COMPUTE].stream;
	FO_TRY(fo_cuda_event_after(x->c, first, in->copied));
	FO_TRY(fo_cuda_copy(x->c, in->now, in->next, in->bytes, first));
	in->was_taken = true;
	return fo_cuda_event_record(x->c, in->taken, first, false);
}

fo_status fo_exec_inputs_ahead(struct fo_exec *e)
{
	int64_t number = e->o.batch(e->ctx, true);
	fo_status st = number >= 0 ? fill(e, number) : FO_OK;
	(void)e->o.batch(e->ctx, false);
	return st;
}
