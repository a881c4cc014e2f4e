/* Errors: a status code for programs and one sentence for people.
 *
 * A fallible function returns fo_status. The first detector calls fo_fail() with the cause (what, where, got and
 * expected, with units); callers may prepend what they were doing with fo_wrap(); one "what to do" line may be added
 * with fo_hint(). The text belongs to the calling thread and stays until the next fo_fail() on it.
 * The library never prints and never exits: src/cli does. (One exception, documented in mem.h: bookkeeping memory.)
 *
 * Wording: lower case, no full stop, subjects quoted: "cannot read 'run.yaml': no such file". */
#ifndef FO_BASE_ERR_H
#define FO_BASE_ERR_H

typedef enum {
	FO_OK = 0,
	FO_EARG,         /* the caller or user asked for something that cannot be: exit 2 */
	FO_EFORMAT,      /* bytes from outside are not what they should be: exit 2 */
	FO_EIO,          /* the file system said no: exit 3 */
	FO_ENOMEM,       /* data does not fit into memory: exit 3 */
	FO_EUNSUPPORTED, /* this machine or build cannot do it: exit 3 */
	FO_EDEVICE,      /* an accelerator or its driver failed: exit 3 */
	FO_ECOMM,        /* a rank or its transport failed: exit 3 */
	FO_ENUMERIC,     /* non-finite loss or gradient, check failed: exit 1 */
	FO_EINTERRUPT,   /* the user stopped the run; state was saved: exit 130 */
	FO_EBUG,         /* an invariant of ours does not hold: exit 4 */
} fo_status;

#define FO_CHECKED __attribute__((warn_unused_result))
#define FO_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

/* Sets this thread's error text and returns st. */
fo_status fo_fail(fo_status st, const char *fmt, ...) FO_PRINTF(2, 3);
/* Prepends "fmt: " to this thread's error text and returns st. */
fo_status fo_wrap(fo_status st, const char *fmt, ...) FO_PRINTF(2, 3);
/* Sets the one hint line ("what to do") that goes with the text; returns st. */
fo_status fo_hint(fo_status st, const char *fmt, ...) FO_PRINTF(2, 3);

const char *fo_err_text(void); /* never NULL; "" when nothing failed on this thread */
const char *fo_err_hint(void); /* never NULL; "" when there is no hint */
void fo_err_clear(void);
/* Hands an error from a worker to the thread that joins it: copy in the worker, raise in the joiner. */
/* A text holds two paths of 4095 bytes with the words around them, a hint one. */
struct fo_err {
	fo_status st;
	char text[9216], hint[4608];
};
void fo_err_save(struct fo_err *e, fo_status st);
fo_status fo_err_raise(const struct fo_err *e);

int fo_status_exit_code(fo_status st);    /* 0 ok, 1 check failed, 2 usage, 3 environment, 4 bug, 130 interrupted */
const char *fo_status_name(fo_status st); /* "argument", "format", ... for --json */

/* Called now and then during long work; done and total in `unit`s, total 0: not known. May be NULL. */
typedef void fo_progress_fn(void *ctx, const char *what, const char *unit, double done, double total);

#define FO_TRY(call)                   \
	do {                           \
		fo_status s_ = (call); \
		if (s_ != FO_OK)       \
			return s_;     \
	} while (0)
#define FO_TRY_OR(st, call, label)  \
	do {                        \
		(st) = (call);      \
		if ((st) != FO_OK)  \
			goto label; \
	} while (0)

#endif
