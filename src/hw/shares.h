/* Runs of mixed precision: shares of their FLOP by data type, and peaks that their MFU can be over. There is not one
 * denominator (pytorch/torchtitan issue 560): a run in fp8 may pass 100 % of the bf16 peak, and cannot reach 100 % of
 * the fp8 peak while attention and the head are in bf16. Where shares are known the peak is weighted by time: a FLOP of
 * type i takes 1 / peak_i at best, so a mean FLOP takes the sum of share_i / peak_i. IST-DASLab/llmq prints its "speed
 * of light" that way (src/utilities/sol.cpp, 2026-05-25). */
#ifndef FO_HW_SHARES_H
#define FO_HW_SHARES_H

#include "hw/catalogue.h"

struct fo_shares {
	bool given;
	double of[FO_PREC_COUNT]; /* of all FLOP; they sum to 1 where given */
};

/* Reads "fp8=0.7" or "fp8=70%,bf16=30%". What is left to 1 is bf16; where bf16 is named the sum must be 1 within 0.001.
 * NULL or empty: not given. FO_EARG with what was expected. */
FO_CHECKED fo_status fo_shares_parse(const char *text, struct fo_shares *out);
/* "70 % fp8, 30 % bf16", narrow types first. Returns buf. */
const char *fo_shares_text(char *buf, size_t size, const struct fo_shares *s);
/* The peak weighted by shares in TFLOP/s: 1 / (sum of share / dense peak). FO_EARG for a type without a published
 * peak. */
FO_CHECKED fo_status fo_device_weighted_peak(const struct fo_device *d, const struct fo_shares *s, double *tflops);

struct fo_denominator {
	const char *type; /* "bf16", ...; "weighted" */
	double tflops;
};
enum { FO_DENOMINATORS = FO_PREC_COUNT + 1 };
/* The published dense peaks that the MFU of a run in this precision, or with these shares (where given, then precision
 * is not looked at), can be over; returns how many. bf16's is among them where it differs, and fp8's for fp4; the
 * weighted one is the last. */
int fo_device_denominators(const struct fo_device *d, enum fo_precision precision, const struct fo_shares *s,
			   struct fo_denominator out[FO_DENOMINATORS]);

#endif
