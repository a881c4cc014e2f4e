/* The document of `flatout mfu LOG`: what other people's training logs say of MFU, time and money. */
#ifndef FO_REPORT_LOG_DOC_H
#define FO_REPORT_LOG_DOC_H

#include "draw/doc.h"
#include "logs/account.h"

/* files: the logs' names, for the title. The document points into *a, which must live until it is printed. */
void fo_log_document(struct fo_doc *d, const struct fo_log_account *a, const char *const *file, size_t files);
/* A line per step line: step, seconds, tokens_per_second_per_device, mfu, mfu_causal, loss, printed_mfu, time. */
void fo_log_csv(const struct fo_log_account *a, struct fo_str *out);

#endif
