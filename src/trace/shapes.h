/* Shapes and element types of an operator's arguments as the profilers, frameworks and kernels write them. */
#ifndef FO_TRACE_SHAPES_H
#define FO_TRACE_SHAPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { FO_SHAPE_DIMS = 8, FO_SHAPE_ARGS = 8 };
struct fo_shapes {
	int64_t dim[FO_SHAPE_ARGS][FO_SHAPE_DIMS];
	int rank[FO_SHAPE_ARGS], n; /* rank 0: not a tensor, a scalar, or a list of tensors */
};
/* "[[4096, 4096], [], [4096, 11008]]"; false for anything else. Quotes and blanks are passed over. Dimensions are
 * capped at 2^40, so that the product of eight is far below what a double holds. */
bool fo_shapes_parse(struct fo_shapes *s, const char *text);
/* The i-th dimension from behind, 1 the last; 0 where the argument has fewer. */
int64_t fo_shapes_last(const struct fo_shapes *s, int arg, int i);
/* The number of elements, as a double because shapes come from a file and may overflow; 0 for what is no tensor. */
double fo_shapes_elements(const struct fo_shapes *s, int arg);

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
