/* The reference kernels in fp32. */
#define REAL float
#define REAL_EXP expf
#define REAL_LOG logf
#define REAL_SQRT sqrtf
#define FN(name) fo_ref_f32_##name
#include "kernel/ref/real.inc"
#include "kernel/ref/matmul.inc"
#include "kernel/ref/attention.inc"
#include "kernel/ref/rows.inc"
#include "kernel/ref/sums.inc"
#include "kernel/ref/fp8.inc"
