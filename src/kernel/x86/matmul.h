/* What the sources of products share before their panels are defined. */
#ifndef FO_KERNEL_X86_MATMUL_H
#define FO_KERNEL_X86_MATMUL_H

#include "kernel/x86/vec.h"

#ifdef __clang__
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

FO_INLINE int64_t mm_min(int64_t a, int64_t b) { return a < b ? a : b; }
FO_INLINE int64_t mm_up(int64_t a, int64_t unit) { return (a + unit - 1) / unit; }

#endif
