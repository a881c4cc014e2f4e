/* The document of `flatout mfu LOG`: what other people's training logs say of MFU, time and money. */
#ifndef FO_REPORT_LOG_DOC_H
#define FO_REPORT_LOG_DOC_H

#include "draw/doc.h"
#include "hw/shares.h"
#include "logs/account.h"

/* files: the logs' names, for the title. The document points into *a, which must live until it is printed. */
void fo_log_document(struct fo_doc *d, const struct fo_log_account *a, const char *const *file, size_t files);
/* The table of an MFU over each of n peaks where there is more than one. tflops: of one device, by the named rule; else
 * (NULL) as the log counts. */
void fo_mfu_denominators(struct fo_doc *d, const struct fo_denominator *of, int n, const char *rule, double tflops);
/* A line per step line: step, seconds, tokens_per_second_per_device, mfu, mfu_causal, loss, printed_mfu, time. */
void fo_log_csv(const struct fo_log_account *a, struct fo_str *out);
/* Its picture alone: MFU, else the step time, over the run; nothing of fewer than three lines. */
void fo_log_picture(struct fo_doc *d, const struct fo_log_account *a);

#endif
