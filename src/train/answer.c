/* What ranks answer to tasks, and whose errors are. */
#include "train/member.h"

#include <string.h>

void fo_answer_put(struct fo_answer *a, const void *bytes, size_t n)
{
	a->n = n < sizeof a->bytes ? n : sizeof a->bytes;
	memcpy(a->bytes, bytes, a->n);
}

fo_status fo_answer_get(const struct fo_answer *a, void *bytes, size_t n)
{
	if (a->n != n)
		return fo_fail(FO_EBUG, "a rank answers %zu bytes where %zu are expected", a->n, n);
	memcpy(bytes, a->bytes, n);
	return FO_OK;
}

void fo_member_name(const struct fo_member *m, struct fo_err *e)
{
	if (e->st == FO_OK)
		return;
	fo_err_raise(e);
	if (*m->host)
		fo_err_save(e, fo_wrap(e->st, "rank %d of %d on host %s", m->number, m->ranks, m->host));
	else
		fo_err_save(e, fo_wrap(e->st, "rank %d of %d", m->number, m->ranks));
}
