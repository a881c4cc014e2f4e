#include "trace/shapes.h"

#include "base/count.h"
#include "base/text.h"

#include <ctype.h>
#include <stdlib.h>

#define LARGEST (INT64_C(1) << 40)

bool fo_shapes_parse(struct fo_shapes *s, const char *p)
{
	int depth = 0;
	s->n = 0;
	for (; *p; p++) {
		if (*p == '[') {
			if (++depth == 2 && s->n < FO_SHAPE_ARGS)
				s->rank[s->n] = 0;
			if (depth > 3)
				return false;
		} else if (*p == ']') {
			if (depth == 2 && s->n < FO_SHAPE_ARGS)
				s->n++;
			if (--depth < 0)
				return false;
		} else if (isdigit((unsigned char)*p)) {
			char *end;
			long long v = strtoll(p, &end, 10);
			p = end - 1;
			if (depth == 2 && s->n < FO_SHAPE_ARGS && s->rank[s->n] < FO_SHAPE_DIMS)
				s->dim[s->n][s->rank[s->n]++] = fo_min(v, LARGEST);
		}
	}
	return depth == 0 && s->n > 0;
}

int64_t fo_shapes_last(const struct fo_shapes *s, int arg, int i)
{
	return arg < s->n && s->rank[arg] >= i ? s->dim[arg][s->rank[arg] - i] : 0;
}

double fo_shapes_elements(const struct fo_shapes *s, int arg)
{
	double n = arg < s->n && s->rank[arg] > 0;
	for (int i = 0; n > 0 && i < s->rank[arg]; i++)
		n *= (double)s->dim[arg][i];
	return n;
}
