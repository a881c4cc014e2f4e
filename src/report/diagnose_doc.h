/* A diagnosis as a document (draw/doc.h): the answer, findings, the ledger, the timeline around the worst gap, the
 * bridge to MFU, kernels, matmuls by shape, ranks, what the trace cannot tell, definitions. The terminal's text and the
 * page are printed from it. */
#ifndef FO_REPORT_DIAGNOSE_DOC_H
#define FO_REPORT_DIAGNOSE_DOC_H

#include "diagnose/diagnose.h"
#include "diagnose/straggler.h"

struct fo_doc;
struct fo_str;

/* brief: the answer, and the findings' titles with what they are worth. d lives until the document was printed. */
void fo_diagnose_doc(struct fo_doc *doc, const struct fo_diagnosis *d, bool brief);
/* The same for the log of a pipeline schedule. */
void fo_schedule_doc(struct fo_doc *doc, const struct fo_schedule_diagnosis *d);

/* ---- the worst gap ---- */

/* The longest stretch of a device's step that is shown (fo_shown_step_of) in which nothing ran, or only communication.
 * Indices into the trace; -1: none. */
enum { FO_GAP_DID = 4 };
struct fo_gap {
	const struct fo_trace *trace;
	int16_t device;
	bool communication;       /* meanwhile communication ran, and nothing else */
	int64_t begin_ns, end_ns; /* equal: there is none */
	int64_t before, after;    /* gpu[]: what ended last before it, what ended it */
	int64_t launch;           /* of `after` */
	int32_t thread; /* that launched it; where nothing came after the gap, that of the device's last launch; -1 */
	/* Only where the launch lies in the gap's second half: what its thread did from the gap's begin until then, by
	 * own time, longest first. The trace does not show the rest. */
	struct {
		int32_t name; /* text */
		bool call;    /* of the runtime or driver, which did not return */
		int64_t ns;
	} did[FO_GAP_DID];
	int dids;
	int64_t meanwhile_ns, did_ns; /* until the launch; recorded of it */
};
enum fo_gap_kind { FO_GAP_ANY, FO_GAP_IDLE, FO_GAP_COMMUNICATION };
/* Finds the longest stretch of that kind on device d of rank r; with FO_GAP_ANY the longer of both, communication only
 * where it is more than twice as long. begin_ns = end_ns where there is none: d is NULL, or has no such stretch. */
void fo_gap_worst(struct fo_gap *g, const struct fo_rank_ledger *r, const struct fo_device_ledger *d,
		  enum fo_gap_kind kind);
/* Appends one or two sentences on the gap. */
void fo_gap_words(const struct fo_gap *g, struct fo_str *out);
/* Adds the picture: the launching thread and the device's streams, half as long again on either side. title may be
 * NULL. */
void fo_gap_picture(struct fo_doc *doc, const struct fo_gap *g, const char *title);

/* ---- parts of a diagnosis's document (diagnose_ledger.c, diagnose_ranks.c) ---- */

const struct fo_device_ledger *fo_slowest_device(const struct fo_diagnosis *d); /* NULL: no GPU work */
/* Returns the ledger of the step that figures are shown of, a copy in the document's memory. */
const struct fo_ledger *fo_shown_ledger(struct fo_doc *doc, const struct fo_device_ledger *v);
void fo_ledger_section(struct fo_doc *doc, const struct fo_diagnosis *d);
void fo_bridge_section(struct fo_doc *doc, const struct fo_diagnosis *d);
void fo_kernels_section(struct fo_doc *doc, const struct fo_diagnosis *d);
void fo_products_section(struct fo_doc *doc, const struct fo_diagnosis *d);
void fo_ranks_section(struct fo_doc *doc, const struct fo_diagnosis *d);

#endif
