#include "trace/shapes.h"

#include "base/count.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

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

/* ---- element types ---- */

static const struct {
	const char *dtype;
	double bytes;
	const char *spelling[10]; /* whole words, lower case, without a namespace in front and "_t" behind */
} table[] = {
	{ "bf16", 2, { "bfloat16", "bf16", "nv_bfloat16", "__nv_bfloat16", "hip_bfloat16", "__hip_bfloat16" } },
	{ "fp16", 2, { "half", "float16", "fp16", "f16", "__half", "nv_half", "_float16" } },
	{ "fp32", 4, { "float", "float32", "fp32", "f32" } },
	{ "fp64", 8, { "double", "float64", "fp64", "f64" } },
	{ "tf32", 4, { "tf32", "tfloat32", "xf32" } },
	{ "int64", 8, { "long", "long int", "long long", "int64", "uint64" } },
	{ "int32", 4, { "int", "int32", "uint32", "unsigned int" } },
	{ "int16", 2, { "short", "short int", "int16", "uint16" } },
	{ "int8", 1, { "int8", "uint8", "signed char", "unsigned char", "char", "i8", "byte" } },
	{ "complex64", 8, { "complexfloat", "complex<float>", "complex64", "cfloat" } },
	{ "complex128", 16, { "complexdouble", "complex<double>", "complex128", "cdouble" } },
	{ "bool", 1, { "bool", "boolean" } },
	{ "fp8", 1, { "fp8", "f8" } },
	{ "fp4", 0.5, { "fp4", "mxfp4", "nvfp4" } },
};

/* Families whose names go on: "Float8_e4m3fn", "float4_e2m1fn_x2", "__nv_fp8_e4m3". */
static const struct {
	const char *begin, *dtype;
} family[] = {
	{ "float8_", "fp8" },    { "fp8_", "fp8" },       { "fp8e", "fp8" },       { "__nv_fp8_", "fp8" },
	{ "float_e4m3", "fp8" }, { "float_e5m2", "fp8" }, { "e4m3", "fp8" },       { "e5m2", "fp8" },
	{ "float4_", "fp4" },    { "e2m1", "fp4" },       { "float_e2m1", "fp4" },
};

const char *fo_dtype_of(const char *spelling, size_t n)
{
	char word[40];
	for (; n > 0 && strchr(" \"'", *spelling); n--)
		spelling++;
	while (n > 0 && strchr(" \"'", spelling[n - 1]))
		n--;
	/* "c10::BFloat16", "torch.bfloat16", "cutlass::bfloat16_t": the last word. */
	for (size_t i = n; i > 0; i--)
		if (spelling[i - 1] == ':' || spelling[i - 1] == '.') {
			spelling += i;
			n -= i;
			break;
		}
	if (n == 0 || n >= sizeof(word))
		return "";
	for (size_t i = 0; i < n; i++)
		word[i] = spelling[i] >= 'A' && spelling[i] <= 'Z' ? (char)(spelling[i] - 'A' + 'a') : spelling[i];
	word[n] = '\0';
	for (size_t i = 0; i < sizeof(family) / sizeof(*family); i++)
		if (strncmp(word, family[i].begin, strlen(family[i].begin)) == 0)
			return family[i].dtype;
	if (n > 2 && memcmp(word + n - 2, "_t", 2) == 0)
		word[n - 2] = '\0';
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		for (int k = 0; k < 10 && table[i].spelling[k]; k++)
			if (strcmp(word, table[i].spelling[k]) == 0)
				return table[i].dtype;
	return "";
}

const char *fo_dtype_of_arg(const char *types, int arg)
{
	int depth = 0, at = 0;
	const char *from = types;
	for (const char *p = types; *p; p++) {
		bool end = depth == 1 && (*p == ',' || *p == ']');
		if (end && at == arg)
			return fo_dtype_of(from, (size_t)(p - from));
		if (*p == '[')
			depth++;
		else if (*p == ']')
			depth--;
		if (depth == 1 && (*p == ',' || (*p == '[' && from == types))) {
			at += *p == ',';
			from = p + 1;
		}
	}
	return "";
}

double fo_dtype_bytes_of(const char *dtype)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (strcmp(dtype, table[i].dtype) == 0)
			return table[i].bytes;
	return 0;
}
