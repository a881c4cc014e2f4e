/* Element types as profilers, frameworks and kernels spell them, by one name each. */
#ifndef FO_TRACE_DTYPES_H
#define FO_TRACE_DTYPES_H

#include <stddef.h>

/* "bf16" for "c10::BFloat16", "bfloat16", "torch.bfloat16", "__nv_bfloat16", "BF16", ...; likewise "fp64", "fp32",
 * "tf32", "fp16", "fp8", "fp4", "int64", "int32", "int16", "int8", "bool", "complex64", "complex128"; "" for anything
 * else. Upper and lower case alike. */
const char *fo_dtype_of(const char *spelling, size_t n);
/* The type of the arg-th of the recorded types "['c10::BFloat16', '', 'Scalar']"; "": none there, no type that is
 * known, or a list. */
const char *fo_dtype_of_arg(const char *types, int arg);
/* Bytes of an element by its one name; 0 unknown. fp4: a half. */
double fo_dtype_bytes_of(const char *dtype);

#endif
