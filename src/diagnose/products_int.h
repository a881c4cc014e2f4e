/* Inside src/diagnose: matmuls by shape, for products.c and bridge.c. */
#ifndef FO_DIAGNOSE_PRODUCTS_INT_H
#define FO_DIAGNOSE_PRODUCTS_INT_H

#include "diagnose/findings_int.h"

struct fo_product_shape {
	int64_t m, n, k, batch; /* c(m, n) = a(m, k) b(k, n), `batch` times */
	char dtype[12];
};

/* The innermost matmul or attention with recorded shapes at or above a host operator: *where is its index, *flop what
 * it needs, *shape that of a matmul (m = 0: attention, of which it has the type alone). Formulas: matmul 2 batch m n
 * k; attention 4 batch heads queries keys dim, twice that backward. */
bool fo_call_of_op(const struct fo_trace *t, int32_t op, int32_t *where, struct fo_product_shape *shape, double *flop);
/* Fused attention's dimensions by the innermost operator that recorded them. */
struct fo_attention_shape {
	int64_t batch, heads, queries, keys, dim, value_dim;
	bool backward;
};
bool fo_attention_of_op(const struct fo_trace *t, int32_t op, struct fo_attention_shape *out);
/* The type that a matmul's, convolution's or attention's kernel computes in: what was recorded of the operand, else
 * what the kernel's name says; "" unknown. */
const char *fo_dtype_of_gpu(const struct fo_trace *t, const struct fo_gpu_op *g);
bool fo_dtype_recorded(const struct fo_trace *t, const struct fo_gpu_op *g);
/* "bf16", ... as a kernel's name says it; "". */
const char *fo_dtype_of_kernel(const char *name);
/* FLOP/s: the published dense peak, or the best matmul that anyone measured where the catalogue has one; NaN. */
double fo_peak_of(const struct fo_device *v, const char *dtype, bool measured);
/* Estimate of the share of tiles and waves that hold work: the tile from the kernel's name, one tile per unit and wave.
 * NaN. */
double fo_product_fill(const struct fo_product_shape *s, const char *kernel, double units);
/* FLOP/s of that shape at best: the peak by its tiles and waves, or the memory's; NaN. */
double fo_product_attainable(const struct fo_product_shape *s, const char *kernel, const struct fo_device *v);
/* The result's number of tiles, whose size the kernel's name tells. */
double fo_product_tiles(const struct fo_product_shape *s, const char *kernel);
/* Bytes moved when each operand is read once and the result written once: no reuse can save those. */
double fo_product_bytes(const struct fo_product_shape *s);
/* Split k, stream k: such a kernel fills waves that tiles alone would not. */
bool fo_product_splits_k(const char *kernel);
/* pad, padded_flop_s, tiles and few_tiles of *p, whose other fields are known. */
void fo_product_pad(struct fo_product *p, const struct fo_product_shape *s, const char *kernel,
		    const struct fo_device *v);
/* Does shape-padding or split-k count its loss? Then no other finding does. */
static inline bool fo_product_claimed(const struct fo_product *p) { return p->padded_flop_s > 0 || p->few_tiles; }
/* rates.c: d->moving of the subject; v may be NULL. */
void fo_moving_of(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_device *v);
/* The matmul in d->product that a kernel belongs to, by its shape and the type it computes in; *where: the operator
 * that recorded it. -1: none of the 512 that took most time (a bound for the search that every call makes). */
int fo_product_of_gpu(const struct fo_diagnosis *d, const struct fo_trace *t, const struct fo_gpu_op *g,
		      int32_t *where);
enum { FO_PRODUCTS_LOOKED_AT = 512 };
/* Fills d->product; v may be NULL. */
void fo_products_of(struct fo_diagnosis *d, const struct fo_subject *s, const struct fo_device *v);

#endif
