/* The rate that a device can reach for a product of a given shape: tiles, waves, peak, memory. */
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
		/* Instruction shapes (16x16x1, 16x8x16) come with smaller numbers than any tile of a product worth a
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
