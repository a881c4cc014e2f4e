/* A machine profile as a roofline: what the processor and its memory allow, and where each kernel lies below.
 *
 * Horizontal: FLOP per byte moved; vertical: FLOP/s; both logarithmic. Ceilings: the calibrated register-only peaks,
 * and the highest memory rate that was measured, as a slope. Matmuls and attention lie at their own intensity.
 * Memory-bound operations do next to no counted FLOP: they are drawn at FO_ROOFLINE_MEMORY FLOP per byte, so that their
 * distance to the slope is that of their bytes/s to the memory's. (Williams, Waterman, Patterson 2009.) */
#ifndef FO_REPORT_ROOFLINE_H
#define FO_REPORT_ROOFLINE_H

#include "base/str.h"
#include "hw/profile.h"

#define FO_ROOFLINE_MEMORY 0.25

enum fo_roofline_kind { FO_ROOFLINE_PRODUCT, FO_ROOFLINE_ATTENTION, FO_ROOFLINE_OPERATION, FO_ROOFLINE_KINDS };
struct fo_roofline_point {
	double flop_byte, flop_s; /* by fo_limits_row_seconds */
	int kind;
	bool half; /* 16-bit numbers */
	const struct fo_limits_row *row;
};
struct fo_roofline {
	const struct fo_limits *m;
	int threads;          /* the most that matmuls were measured with */
	double peak[2];       /* f32, bf16; 0: not known */
	bool unsure;          /* a peak was measured on a busy machine: fo_limits_peak_sure */
	double memory_byte_s; /* highest of read, write and copy; 0: not known */
	const char *memory_kind;
	struct fo_roofline_point *point;
	size_t n, cap;
	double x0, x1, y0, y1; /* what is shown */
};
/* The profile must outlive it. FO_EARG when the profile has no matmul or no peak to draw. Ends with fo_roofline_fini.
 */
FO_CHECKED fo_status fo_roofline_init(struct fo_roofline *r, const struct fo_limits *m);
void fo_roofline_fini(struct fo_roofline *r);
/* 80 columns; utf8: symbols instead of letters; colour: terminal colours. */
void fo_roofline_text(const struct fo_roofline *r, bool utf8, bool colour, struct fo_str *out);
/* A self-contained SVG; light or dark as the reader prefers. */
void fo_roofline_svg(const struct fo_roofline *r, struct fo_str *out);
/* Is this row bound by the matrix unit (a point at its own intensity)? */
bool fo_roofline_is_product(const struct fo_limits_row *r);
bool fo_roofline_is_traffic(const struct fo_limits_row *r); /* read, write, copy: a ceiling, not a point */

#endif
