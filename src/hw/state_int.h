/* Private to src/hw: small files of /proc and /sys. `root` stands before each path; tests give a made-up tree. */
#ifndef FO_HW_STATE_INT_H
#define FO_HW_STATE_INT_H

#include "hw/state.h"

#include <stddef.h>

/* The first size - 1 bytes of the file, ended by NUL, without blanks at the end; false: not readable. */
bool fo_state_text(char *buf, size_t size, const char *root, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The number at the start of text: digits, perhaps with a fraction, followed by a blank or the end; else NAN. *end (may
 * be NULL) is set behind it where digits were found. */
double fo_state_number_at(const char *text, const char **end);
/* A whole file that holds one number >= 0; else NAN. */
double fo_state_number(const char *root, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The number after `key` (and an optional ':') at the start of a line of a text or a file; NAN where there is none.
 */
double fo_state_field_in(const char *text, const char *key);
double fo_state_field(const char *root, const char *path, const char *key);
/* Those this process may use; all that are online where the system does not tell; false: unknown. */
bool fo_state_allowed(const char *root, struct fo_cpus *set);
/* src/hw/cgroup.c: a file of this process's group of a controller ("cpu"), or of the nearest one above that has it. */
enum { FO_CGROUP_PATH = 4096 };
bool fo_state_cgroup(char *buf, size_t size, const char *root, const char *controller, const char *file,
		     const char *v1_file);

#endif
