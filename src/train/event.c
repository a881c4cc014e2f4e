#include "train/session.h"

#include <stdarg.h>
#include <stdio.h>

fo_status fo_events_send(struct fo_events *to, struct fo_event e)
{
	fo_status st = FO_OK;
	struct fo_err first;
	e.tokens = to->meta->tokens;
	e.skipped = to->meta->skipped;
	e.rewinds = to->meta->rewinds;
	e.measured_bytes = fo_account_measured(to->account);
	e.profile = &to->account->profile;
	for (int i = 0; i < to->n; i++) {
		fo_status one = to->to[i].event(to->to[i].ctx, &e);
		if (one != FO_OK && st == FO_OK)
			fo_err_save(&first, st = one);
	}
	return st == FO_OK ? FO_OK : fo_err_raise(&first);
}

fo_status fo_events_tell(struct fo_events *to, enum fo_event_kind kind)
{
	return fo_events_send(to, (struct fo_event){ .kind = kind, .step = to->meta->step });
}

void fo_events_warn(struct fo_events *to, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (fo_events_send(to, (struct fo_event){
				       .kind = FO_EVENT_WARNING, .step = to->meta->step, .warning = text }) != FO_OK)
		fo_err_clear();
}
