/* The reference kernels in double precision. */
#define REAL double
#define REAL_EXP exp
#define REAL_LOG log
#define REAL_SQRT sqrt
#define FN(name) fo_ref_f64_##name
#include "kernel/ref/real.inc"
#include "kernel/ref/matmul.inc"
#include "kernel/ref/attention.inc"
#include "kernel/ref/rows.inc"
#include "kernel/ref/sums.inc"
#include "kernel/ref/fp8.inc"
