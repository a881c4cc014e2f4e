/* A plain C model of kernel/x86/amx_tile.h, on which machines without AMX run the same kernel source. It follows the
 * Intel SDM, volume 2: TDPBF16PS takes denormals as zero and sums the even and the odd products of a row apart. */
#include "kernel/x86/pairs.h"

static _Thread_local struct {
	bool configured;
	unsigned char row[8][16][64];
} tile_file;

static inline void tile_configure(void)
{
	memset(&tile_file, 0, sizeof tile_file);
	tile_file.configured = true;
}
static inline void tile_release(void) { tile_file.configured = false; }

/* Like the instructions, the model refuses unconfigured tiles (the hardware raises #UD). */
static inline void tile_must_be_configured(void)
{
	if (!tile_file.configured)
		__builtin_trap();
}
static inline void tile_model_load(int t, const void *p, int64_t stride)
{
	tile_must_be_configured();
	for (int r = 0; r < 16; r++)
		memcpy(tile_file.row[t][r], (const char *)p + r * stride, 64);
}
static inline void tile_model_store(int t, void *p, int64_t stride)
{
	tile_must_be_configured();
	for (int r = 0; r < 16; r++)
		memcpy((char *)p + r * stride, tile_file.row[t][r], 64);
}
static inline void tile_model_zero(int t)
{
	tile_must_be_configured();
	memset(tile_file.row[t], 0, sizeof tile_file.row[t]);
}
/* Row r of a tile as floats: the even elements, then the odd ones. */
static inline void tile_model_row(int t, int r, vf out[2])
{
	vu pairs;
	vf even, odd;

	memcpy(&pairs, tile_file.row[t][r], 64);
	even = (vf)(pairs << 16);
	odd = (vf)(pairs & 0xffff0000);
	out[0] = v_flush(even);
	out[1] = v_flush(odd);
}
/* The product of two bf16 is exact in fp32, so a product and a sum round like the fused operation. */
static inline void tile_model_dot(int c, int a, int b)
{
	vf row_b[16][2];

	tile_must_be_configured();
	for (int k = 0; k < 16; k++)
		tile_model_row(b, k, row_b[k]);
	for (int m = 0; m < 16; m++) {
		vf row_a[2], sum[2] = { { 0 } }, out;

		tile_model_row(a, m, row_a);
		for (int k = 0; k < 16; k++)
			for (int odd = 0; odd < 2; odd++) {
				sum[odd] += row_a[odd][k] * row_b[k][odd];
				sum[odd] = v_flush(sum[odd]);
			}
		memcpy(&out, tile_file.row[c][m], 64);
		out += sum[0] + sum[1];
		out = v_flush(out);
		memcpy(tile_file.row[c][m], &out, 64);
	}
}

#define TILE_LOAD(t, p, stride) tile_model_load(t, p, stride)
#define TILE_LOAD_ONCE(t, p, stride) tile_model_load(t, p, stride)
#define TILE_STORE(t, p, stride) tile_model_store(t, p, stride)
#define TILE_ZERO(t) tile_model_zero(t)
#define TILE_DOT(c, a, b) tile_model_dot(c, a, b)

FO_INLINE vw tile_to_bf16(vf lo, vf hi)
{
	vh half[2];
	vw v;

	half[0] = v_to_bf16(v_flush(lo));
	half[1] = v_to_bf16(v_flush(hi));
	memcpy(&v, half, sizeof v);
	return v;
}
