/* A diagnosis as one page: the answer, the ledger as a picture, the timeline around the worst gap, the bridge to MFU,
 * findings, products by shape, ranks, what the trace cannot tell, definitions. Self-contained: no network, no script
 * (draw/draw.h). */
#ifndef FO_REPORT_DIAGNOSE_HTML_H
#define FO_REPORT_DIAGNOSE_HTML_H

#include "diagnose/diagnose.h"

struct fo_arena;
struct fo_str;

void fo_diagnose_html(const struct fo_diagnosis *d, struct fo_str *out);

/* ---- the worst gap ---- */

/* The longest stretch of a device's step that is shown (fo_shown_step_of) in which nothing ran, or only communication.
 * Indices into the trace; -1: none. */
enum { FO_GAP_DID = 4 };
struct fo_gap {
	const struct fo_trace *trace;
	int rank;
	int16_t device;
	bool whole;               /* no step: of the whole trace */
	bool communication;       /* meanwhile communication ran, and nothing else */
	int64_t begin_ns, end_ns; /* equal: there is none */
	int64_t before, after;    /* gpu[]: what ended last before it, what ended it */
	int64_t launch;           /* of `after` */
	int32_t thread; /* that launched it; where nothing came behind the gap, that of the device's last launch; -1 */
	/* Where the launch lies in the gap's second half: what its thread did from the gap's begin until then, by its
	 * own time, longest first; the rest is what the trace does not show. */
	struct {
		int32_t name; /* text */
		bool call;    /* of the runtime or driver, which did not return */
		int64_t ns;
	} did[FO_GAP_DID];
	int dids;
	int64_t meanwhile_ns, did_ns; /* of all that it did */
};
enum fo_gap_kind { FO_GAP_ANY, FO_GAP_IDLE, FO_GAP_COMMUNICATION };
/* d: of r's; NULL: there is no gap. Of that kind; FO_GAP_ANY: the longer, communication only where it is more than
 * twice as long. begin_ns = end_ns where there is no such stretch (also without any GPU operation). */
void fo_gap_worst(struct fo_gap *g, const struct fo_rank_ledger *r, const struct fo_device_ledger *d,
		  enum fo_gap_kind kind);
/* One sentence or two. */
void fo_gap_words(const struct fo_gap *g, struct fo_str *out);
/* The picture: the launching thread and the device's streams, half as long again on either side. title may be NULL. */
void fo_gap_draw(const struct fo_gap *g, const char *title, struct fo_arena *a, struct fo_str *out);

#endif
