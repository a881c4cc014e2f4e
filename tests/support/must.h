/* What every test needs: cmocka with the headers it wants, and a check that a call succeeded. */
#ifndef FO_TESTS_MUST_H
#define FO_TESTS_MUST_H

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Fails the test with the error's text unless the call succeeded. */
static inline void must(fo_status st)
{
	if (st != FO_OK)
		fail_msg("%s%s%s", fo_err_text(), *fo_err_hint() ? "; " : "", fo_err_hint());
}

#endif
