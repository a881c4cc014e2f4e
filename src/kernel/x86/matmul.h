/* Shared by the sources of matmuls, before their panels are defined: unrolling. */
#ifndef FO_KERNEL_X86_MATMUL_H
#define FO_KERNEL_X86_MATMUL_H

#include "kernel/x86/vec.h"

#ifdef __clang__
#define MM_UNROLL _Pragma("clang loop unroll(full)")
#else
#define MM_UNROLL _Pragma("GCC unroll 16")
#endif

#endif
