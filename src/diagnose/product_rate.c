/* The rate that a device can reach for a matmul of a given shape: tiles, waves, peak, memory. */
#include "diagnose/products_int.h"

#include "trace/shapes.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

bool fo_product_splits_k(const char *kernel)
{
	return strstr(kernel, "plitK") || strstr(kernel, "splitk") || strstr(kernel, "streamk") ||
	       strstr(kernel, "StreamK") || strstr(kernel, "_SK3");
}

/* Two numbers joined by x in a kernel's name are its tile ("nvjet_tst_192x192_64x4",
 * "sm80_xmma_gemm_..._tilesize128x128x32", "MT256x192x64"); 128 x 128, the libraries' usual one, where the name has
 * none. */
static void tile_of(const char *name, int64_t *m, int64_t *n)
{
	*m = *n = 128;
	for (const char *p = name; *p; p++) {
		char *end, *stop;
		if (!isdigit((unsigned char)*p) || (p > name && isdigit((unsigned char)p[-1])))
			continue;
		long a = strtol(p, &end, 10);
		if (*end != 'x' || !isdigit((unsigned char)end[1]))
			continue;
		long b = strtol(end + 1, &stop, 10);
		/* Instruction shapes (16x16x1, 16x8x16) come with smaller numbers than any tile of a matmul worth a
		 * diagnosis. */
		if (a < 32 || b < 32 || a > 512 || b > 512)
			continue;
		*m = a;
		*n = b;
		return;
	}
}

static int64_t up(int64_t a, int64_t b) { return a / b + (a % b != 0); }

double fo_product_tiles(const struct fo_product_shape *s, const char *kernel)
{
	int64_t tm, tn;
	tile_of(kernel, &tm, &tn);
	return (double)up(s->m, tm) * (double)up(s->n, tn) * (double)s->batch;
}

double fo_product_fill(const struct fo_product_shape *s, const char *kernel, double units)
{
	int64_t tm, tn;
	if (isnan(units) || units < 1)
		return NAN;
	tile_of(kernel, &tm, &tn);
	double tiles = fo_product_tiles(s, kernel);
	double inside = (double)s->m * (double)s->n * (double)s->batch / (tiles * (double)tm * (double)tn);
	double waves = ceil(tiles / units);
	return fo_product_splits_k(kernel) || tiles < units ? inside : inside * tiles / (waves * units);
}

double fo_peak_of(const struct fo_device *v, const char *dtype, bool measured)
{
	enum fo_precision p;
	if (!v || !dtype[0] || strcmp(dtype, "fp64") == 0)
		return NAN;
	for (p = 0; p < FO_PREC_COUNT && strcmp(fo_precision_name[p], dtype) != 0; p++)
		;
	if (p == FO_PREC_COUNT)
		return NAN;
	double ceiling = NAN;
	if (p == FO_PREC_BF16 || p == FO_PREC_FP16)
		ceiling = v->measured_bf16;
	else if (p == FO_PREC_FP8)
		ceiling = v->measured_fp8;
	double peak = measured && !isnan(ceiling) ? fmin(ceiling, v->dense[p]) : v->dense[p];
	return peak * 1e12;
}

double fo_product_bytes(const struct fo_product_shape *s)
{
	double b = (double)s->batch, e = fo_dtype_bytes_of(s->dtype) > 0 ? fo_dtype_bytes_of(s->dtype) : 4;
	return e * b * ((double)s->m * (double)s->k + (double)s->k * (double)s->n + (double)s->m * (double)s->n);
}

double fo_product_attainable(const struct fo_product_shape *s, const char *kernel, const struct fo_device *v)
{
	double flop = 2 * (double)s->batch * (double)s->m * (double)s->n * (double)s->k;
	double fill = v ? fo_product_fill(s, kernel, v->units) : NAN;
	double peak = fo_peak_of(v, s->dtype, true),
	       memory = v ? flop / fo_product_bytes(s) * v->memory_tb_s * 1e12 : NAN;
	if (isnan(peak))
		return NAN;
	return fmin(isnan(fill) ? peak : peak * fill, memory); /* fmin passes over a memory that is not known */
}

/* ---- the cost of a shape ---- */

/* Dimensions that no load of 16 bytes fits, those one past a tile's multiple, and results with too few tiles for the
 * device: another shape, or a kernel that divides k, does not have that loss. */
enum {
	TILE = 128,    /* the libraries' usual tile (products.c) */
	PAST = 8,      /* one past a multiple: so little of the last tile is used */
	ROUND = 64,    /* what a ragged dimension is padded to: a whole number of the smallest tiles */
	LONG_K = 4096, /* a k that is worth dividing: 32 steps of the usual 128 */
};
/* A matmul above this share of its ceiling runs well enough; gemm-efficiency has the same mark. */
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
