/* AMX tile instructions. Tile numbers are literals. All tiles are 16 rows of 64 bytes.
 *
 * They are asm with a memory clobber: the intrinsics of GCC 12 lack it on loads, which may then move above the stores
 * that they depend on. Requires pairs.h. */
#ifndef FO_KERNEL_X86_AMX_TILE_H
#define FO_KERNEL_X86_AMX_TILE_H

/* The 64-byte operand of LDTILECFG (SDM volume 1, 18.3). */
struct tile_config {
	uint8_t palette, start_row, reserved[14];
	uint16_t row_bytes[16];
	uint8_t rows[16];
};

FO_INLINE void tile_configure(void)
{
	struct tile_config c = { .palette = 1 };
	for (int i = 0; i < 8; i++) {
		c.row_bytes[i] = 64;
		c.rows[i] = 16;
	}
	__asm__ volatile("ldtilecfg %0" : : "m"(c));
}
/* Gives the tile state back, so that the system need not save 8 KiB whenever this thread is switched. */
FO_INLINE void tile_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }

#define TILE_LOAD(t, p, stride) \
	__asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
/* TILE_LOAD with the hint that the bytes are not needed again soon: they do not displace what lies in L1. */
#define TILE_LOAD_ONCE(t, p, stride) \
	__asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_STORE(t, p, stride) \
	__asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define TILE_ZERO(t) __asm__ volatile("tilezero %%tmm" #t : :)
#define TILE_DOT(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)

/* 32 floats to bf16, lo first; rounds to nearest even, denormals become zero. */
FO_INLINE vw tile_to_bf16(vf lo, vf hi) { return (vw)_mm512_cvtne2ps_pbh((__m512)hi, (__m512)lo); }

#endif
