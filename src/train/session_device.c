/* The device beside a run: opened before programs are made for it, watched, and what it did at the end. */
#include "train/train_int.h"

#include <math.h>
#include <string.h>

fo_status fo_session_device_open(struct fo_session *s)
{
	char why[320];
	int64_t total;
	FO_TRY(fo_device_open(s->r->device, &s->cuda, why, sizeof why));
	if (*why)
		fo_session_warn(s,
				"a CUDA device is there but cannot be used: %s; the processor computes "
				"(train.device=cpu says so at once)",
				why);
	if (!s->cuda)
		return FO_OK;
	FO_TRY(fo_device_tune(s->cuda, s->r));
	fo_cuda_tune_hooks(s->cuda, s->h->progress, s->h->ctx, s->h->stop);
	FO_TRY(fo_cuda_memory(s->cuda, &s->device_free, &total));
	s->device_reserve = fo_device_reserve(total);
	/* Started here: threads that begin later may be bound to a processor. */
	if (!s->h->dry_run)
		s->nvml = fo_nvml_watch_start(fo_cuda_nvml(s->cuda));
	return FO_OK;
}

void fo_session_device_attention(struct fo_session *s)
{
	const char *why = s->cuda && fo_run_precision(s->r) == FO_PRECISION_BF16 ? fo_cuda_attention_note(s->cuda)
										 : NULL;
	if (!why || s->attention_told)
		return;
	s->attention_told = true;
	fo_session_warn(s, "attention runs on kernels that are slower than cuDNN's by a multiple: %s", why);
}

void fo_session_device_look(struct fo_session *s)
{
	int64_t have, total;
	fo_session_device_attention(s);
	if (!s->cuda || fo_cuda_memory(s->cuda, &have, &total) != FO_OK)
		return;
	if (s->device_free - have > s->device_used)
		s->device_used = s->device_free - have;
}

void fo_session_device_close(struct fo_session *s)
{
	fo_nvml_watch_stop(s->nvml);
	s->nvml = NULL;
	fo_cuda_close(s->cuda);
	s->cuda = NULL;
}

fo_status fo_session_device_fits(struct fo_session *s)
{
	if (s->too_large.st != FO_OK)
		return fo_err_raise(&s->too_large);
	return fo_room_fits(s->r, &s->program, 0, s->device_free - s->device_reserve);
}

void fo_session_device_summarise(struct fo_session *s, struct fo_train_result *out)
{
	out->device_use = fo_nvml_watch_total(s->nvml);
	out->device_joules_per_token = out->loss_tokens ? out->device_use.joules / (double)out->loss_tokens : NAN;
	out->on_device = s->cuda != NULL;
	if (!s->cuda)
		return;
	const struct fo_cuda_device *d = fo_cuda_info(s->cuda);
	memcpy(out->device, d->name, sizeof out->device);
	out->split = fo_device_split(d, fo_run_precision(s->r), &out->mfu, s->peak.flop_s, &out->device_use);
}
