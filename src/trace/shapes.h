/* Shapes of an operator's arguments as the profilers write them. */
#ifndef FO_TRACE_SHAPES_H
#define FO_TRACE_SHAPES_H

#include <stdbool.h>
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

#endif
