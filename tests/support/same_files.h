/* Compares folders of files, for tests of what writes them. */
#ifndef FO_TESTS_SUPPORT_SAME_FILES_H
#define FO_TESTS_SUPPORT_SAME_FILES_H

#include "base/fs.h"
#include "support/must.h"

#include <string.h>

/* The same files with the same bytes in folders x and y, else the test fails; label: of the case. Returns their
 * number. */
static inline size_t same_files(struct fo_arena *a, const char *x, const char *y, const char *label)
{
	char **of_x, **of_y, *p, *q;
	size_t n, m, len, other;
	must(fo_fs_list(a, x, 10000, &of_x, &n));
	must(fo_fs_list(a, y, 10000, &of_y, &m));
	assert_int_equal(n, m);
	for (size_t i = 0; i < n; i++) {
		must(fo_fs_read(a, of_x[i], 1 << 24, &p, &len));
		must(fo_fs_read(a, of_y[i], 1 << 24, &q, &other));
		if (strcmp(strrchr(of_x[i], '/'), strrchr(of_y[i], '/')) != 0 || len != other || memcmp(p, q, len) != 0)
			fail_msg("%s: '%s' and '%s' differ", label, of_x[i], of_y[i]);
	}
	return n;
}

#endif
