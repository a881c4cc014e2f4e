#include "train/carrier.h"

fo_status fo_carrier_begin(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n)
{
	return c->way->begin(c, task, bytes, n);
}

int fo_carrier_cause(const struct fo_answer *answer, int ranks)
{
	int cause = -1;
	for (int i = 0; i < ranks; i++) {
		const fo_status st = answer[i].error.st;
		if (st != FO_OK && (cause < 0 || (answer[cause].error.st == FO_ECOMM && st != FO_ECOMM)))
			cause = i;
	}
	return cause;
}

fo_status fo_carrier_end(struct fo_carrier *c, fo_status own)
{
	struct fo_answer *first = &c->answer[0];
	first->error.st = FO_OK;
	if (own != FO_OK) {
		fo_err_save(&first->error, own);
		fo_comm_abort(c->self->world);
	}
	return c->way->end(c);
}

fo_status fo_carrier_do(struct fo_carrier *c, enum fo_task task, const void *bytes, size_t n)
{
	FO_TRY(fo_carrier_begin(c, task, bytes, n));
	return fo_carrier_end(c, FO_OK);
}

void fo_carrier_close(struct fo_carrier *c)
{
	if (c)
		c->way->close(c);
}
