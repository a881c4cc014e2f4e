/* The cost of a product's shape: dimensions that no load of 16 bytes fits, those one past a tile's multiple, and
 * results with too few tiles for the device. Such a loss is not the device's limit: another shape, or a kernel that
 * divides k, does not have it. */
#include "diagnose/products_int.h"

#include "trace/shapes.h"

#include <string.h>

enum {
	TILE = 128,    /* the libraries' usual tile (products.c) */
	PAST = 8,      /* one past a multiple: so little of the last tile is used */
	ROUND = 64,    /* what a ragged dimension is padded to: a whole number of the smallest tiles */
	LONG_K = 4096, /* a k that is worth dividing: 32 steps of the usual 128 */
};
/* A product above this share of its ceiling runs well enough; gemm-efficiency has the same mark. */
#define WELL 0.6

/* NVIDIA's tensor cores and the loads of every library want rows of whole 16 bytes ("Matrix Multiplication Background
 * User's Guide", section 3: dimensions a multiple of 16 bytes). */
static int64_t better(int64_t d, double bytes, bool rows)
{
	int64_t align = bytes > 0 ? (int64_t)(16 / bytes) : 1;
	if (rows && d > align && d % align)
		return d > ROUND ? (d + ROUND - 1) / ROUND * ROUND : (d + align - 1) / align * align;
	if (d > TILE && d % TILE > 0 && d % TILE <= PAST)
		return d - d % TILE;
	return d;
}

void fo_product_pad(struct fo_product *p, const struct fo_product_shape *s, const char *kernel,
		    const struct fo_device *v)
{
	double bytes = fo_dtype_bytes_of(p->dtype),
	       useful = 2 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
	struct fo_product_shape as = *s;
	p->padded_flop_s = p->tiles = NAN;
	if (!v || isnan(v->units) || isnan(p->attainable_flop_s) || p->tiny || !strcmp(p->dtype, "fp32") ||
	    !strcmp(p->dtype, "fp64"))
		return; /* for 32 bit without matrix units `precision` is the cure */
	p->tiles = fo_product_tiles(s, kernel);
	/* Tensile's names do not tell whether k is divided. */
	p->few_tiles = 2 * p->tiles <= v->units && s->k >= LONG_K && s->k >= 4 * s->m && s->k >= 4 * s->n &&
		       !p->splits_k && !strstr(kernel, "Cijk_") && p->flop_s < WELL * p->attainable_flop_s;
	as.m = better(s->m, bytes, false);
	as.n = better(s->n, bytes, true);
	as.k = better(s->k, bytes, true);
	if (p->few_tiles || (as.m == s->m && as.n == s->n && as.k == s->k))
		return;
	/* A cut dimension does less work and a padded one more; the useful part stays nearly what it was. */
	double flop = 2 * (double)as.batch * (double)as.m * (double)as.n * (double)as.k;
	double rate = useful * fo_product_attainable(&as, "", v) / flop;
	if (!(p->flop_s < WELL * rate))
		return;
	p->padded_flop_s = rate;
	p->pad[0] = as.m == s->m ? 0 : as.m;
	p->pad[1] = as.n == s->n ? 0 : as.n;
	p->pad[2] = as.k == s->k ? 0 : as.k;
}
