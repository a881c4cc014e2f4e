/* The instruction sets: their names, which of them this machine has, and the choice of a set and of a kernel from any
 * table of sets. No set is known here, so that kernels made of other kernels may use it. */
#include "kernel/kernel.h"

#include <stdatomic.h>
#include <string.h>

const char *const fo_isa_name[FO_ISA_COUNT] = { "ref", "avx2", "avx512", "avx512bf16", "amx" };

#ifdef __x86_64__
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Intel SDM volume 1, 13.3: the parts of the register state that the system saves. */
enum { XCR0_YMM = 0x6, XCR0_ZMM = 0xe0, XCR0_TILE = 0x60000 };

static uint32_t xcr0(void)
{
	uint32_t low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	return low;
}

/* The system hands out the 8 KiB of tile state per process and only on request (Linux 5.16: arch_prctl,
 * ARCH_REQ_XCOMP_PERM, state component 18). */
static bool tile_permission(void) { return syscall(SYS_arch_prctl, 0x1023, 18) == 0; }

static enum fo_isa detect(void)
{
	uint32_t a, b, c, d, a1 = 0, b1, c1, d1, fma, state;
	const uint32_t need512 = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
	if (!__get_cpuid(1, &a, &b, &fma, &d) || !(fma & bit_OSXSAVE) || !__get_cpuid_count(7, 0, &a, &b, &c, &d))
		return FO_ISA_REF;
	state = xcr0();
	if (!(b & bit_AVX2) || !(fma & bit_FMA) || !(fma & bit_F16C) || (state & XCR0_YMM) != XCR0_YMM)
		return FO_ISA_REF;
	if ((b & need512) != need512 || (state & XCR0_ZMM) != XCR0_ZMM)
		return FO_ISA_AVX2;
	if (a >= 1 && !__get_cpuid_count(7, 1, &a1, &b1, &c1, &d1))
		a1 = 0;
	/* Leaf 7: EDX 24 AMX-TILE, EDX 22 AMX-BF16; subleaf 1: EAX 5 AVX512_BF16. */
	if (!(a1 >> 5 & 1))
		return FO_ISA_AVX512;
	if (!(d >> 24 & 1) || !(d >> 22 & 1) || (state & XCR0_TILE) != XCR0_TILE || !tile_permission())
		return FO_ISA_AVX512BF16;
	return FO_ISA_AMX;
}
#else
static enum fo_isa detect(void) { return FO_ISA_REF; }
#endif

enum fo_isa fo_isa_top(void)
{
	static atomic_int known = -1; /* every thread would find the same: a race is harmless */
	int isa = atomic_load_explicit(&known, memory_order_relaxed);
	if (isa < 0) {
		isa = detect();
		atomic_store_explicit(&known, isa, memory_order_relaxed);
	}
	return isa;
}

bool fo_isa_dots_gain(const char maker[12]) { return !memcmp(maker, "AuthenticAMD", 12); }

bool fo_isa_have(enum fo_isa isa) { return isa <= fo_isa_top(); }

bool fo_isa_named(const char *name, enum fo_isa *out)
{
	for (int i = 0; i < FO_ISA_COUNT; i++)
		if (!strcmp(name, fo_isa_name[i])) {
			*out = i;
			return true;
		}
	return false;
}

static bool worth(const struct fo_kernel_set *set) { return !set || !set->worth || set->worth(); }

enum fo_isa fo_isa_best_of(const struct fo_kernel_set *const *sets, enum fo_isa top)
{
	while (top > FO_ISA_REF && !worth(sets[top]))
		top--;
	return top;
}

const struct fo_kernel *fo_kernel_pick_of(const struct fo_kernel_set *const *sets, enum fo_isa isa,
					  const struct fo_call *shape, const struct fo_kernel_set **set)
{
	const struct fo_kernel_set *found = sets[FO_ISA_REF];
	for (int i = isa; i > FO_ISA_REF; i--) {
		const struct fo_kernel *k = sets[i] ? &sets[i]->kernel[shape->kind] : NULL;
		if (k && k->run && (!k->can || k->can(shape)) && (i == (int)isa || worth(sets[i]))) {
			found = sets[i];
			break;
		}
	}
	if (set)
		*set = found;
	return &found->kernel[shape->kind];
}
