/* Private to src/hw/state.c and machine.c: small files of /proc and /sys. */
#ifndef FO_HW_STATE_INT_H
#define FO_HW_STATE_INT_H

#include "hw/state.h"

#include <stddef.h>

/* The first size - 1 bytes of ROOT + the path, NUL behind them, without the line feed at the end; false: not readable.
 */
bool fo_state_text(char *buf, size_t size, const char *root, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* A whole file that holds one number >= 0; NAN. */
double fo_state_number(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The number behind "KEY" at the start of a line (and an optional ':'), in a file of such lines; NAN. */
double fo_state_field(const char *root, const char *path, const char *key);
/* Those this process may use; all that are online where the system does not tell; false: unknown. */
bool fo_state_allowed(const char *root, struct fo_cpus *set);
/* src/hw/cgroup.c: a file of this process's group of a controller ("cpu"), or of the nearest one above that has it. */
enum { FO_CGROUP_PATH = 4096 };
bool fo_state_cgroup(char *buf, size_t size, const char *root, const char *controller, const char *file,
		     const char *v1_file);

#endif
