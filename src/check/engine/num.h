/* Holds kernels to their contract: precision, bounds, repeatability, in-place pairs.
 *
 * A case is an operation with operand shapes, dtypes and the kind of values that fill them. fo_num_check() builds it,
 * runs the kernel under test, `ref` in the same precision and `ref` in double precision on the very same (already
 * rounded) inputs:
 *
 *   error <= 2 x error of ref in the same precision + FO_NUM_FLOOR
 *
 * for the relative L2 norm over an output and for its worst element over its largest one. Every operand lies in a block
 * with sentinels around the rectangle; outputs start as NaN, workspace too. */
#ifndef FO_CHECK_NUM_H
#define FO_CHECK_NUM_H

#include "kernel/kernel.h"

/* Four roundings to fp32, 4 x 2^-24, for where the naive implementation happens to be exact (copies, single
 * roundings). */
#define FO_NUM_FLOOR 0x1p-22

enum fo_num_fill {
	FO_NUM_NORMAL,    /* normal with standard deviation `scale` */
	FO_NUM_POSITIVE,  /* uniform in (0.1, 1) x scale */
	FO_NUM_INDEX,     /* integers in [0, limit) */
	FO_NUM_TARGET,    /* integers in [-1, limit), about one in eight is -1 */
	FO_NUM_DOC_START, /* documents of random length over the rows: index of the first row of one's own document */
	FO_NUM_ROTATION,  /* cosines in the first half of the columns, sines in the second, of random angles */
	FO_NUM_HYPER,     /* the hyper buffer */
	FO_NUM_FORWARD, /* o and lse of attention_bwd, prob of attention_eager_bwd: what the forward operation gives */
	FO_NUM_SPAN,    /* {limit, scale}: rows cached before the chunk, rows of the chunk */
	FO_NUM_NAN,     /* an output that is stored */
};
struct fo_num_case {
	char name[128];
	struct fo_call call; /* kind, attr, n, first, arg rows, cols, dtype */
	struct {
		uint8_t access, fill;
		double scale;
		int64_t limit;
	} spec[FO_MAX_OPERANDS];
};
struct fo_num_data {
	struct fo_call call;
	unsigned char *block[FO_MAX_OPERANDS];
	size_t bytes[FO_MAX_OPERANDS];
};

/* An empty case; then one operand after the other, in the order of ops.def. The name gets shapes and dtypes. */
void fo_num_case_init(struct fo_num_case *c, int kind);
void fo_num_case_arg(struct fo_num_case *c, int dtype, int64_t rows, int64_t cols, int access, int fill, double scale,
		     int64_t limit);

/* A factor (rows, cols) of a matmul, stored transposed where it is turned. */
void fo_num_case_factor(struct fo_num_case *c, int dtype, int64_t rows, int64_t cols, bool turned, double scale);
/* Operand `arg` is summed into (ACC): stored, where this is the first sum into it, or added to random numbers. */
void fo_num_case_sum(struct fo_num_case *c, int arg, bool first);

/* All cases for operands of `dtype` (f32, bf16 or f64): every operation, several odd shapes, ACC with and without
 * first. Returns how many there are; at most `cap` are written. */
size_t fo_num_case_list(int dtype, struct fo_num_case *out, size_t cap);
/* One matmul: a, b of dtype ab, c of dtype cc; access FO_DEF or FO_ACC. */
void fo_num_case_matmul(struct fo_num_case *c, int64_t m, int64_t n, int64_t k, int ta, int tb, int ab, int cc,
			int access, bool first);

/* tight: ld = cols and 64-byte aligned; else ld > cols and rows that start anywhere (transfers are always tight). Freed
 * with fo_num_data_free. */
void fo_num_data_new(struct fo_num_data *d, const struct fo_num_case *c, uint64_t seed, bool tight);
void fo_num_data_copy(struct fo_num_data *to, const struct fo_num_data *from);
void fo_num_data_f64(struct fo_num_data *to, const struct fo_num_data *from); /* the same values; indices stay i32 */
void fo_num_data_free(struct fo_num_data *d);
/* The block that an operand of data lies in, sentinels included: kernels of a device take all of it along. */
void fo_num_block(const struct fo_tensor *t, unsigned char **block, size_t *bytes);
double fo_num_get(const struct fo_tensor *t, int64_t r, int64_t c);
void fo_num_set(const struct fo_tensor *t, int64_t r, int64_t c, double x);

/* Runs k with its workspace (filled with NaN); false: it wrote past the workspace. */
bool fo_num_run(const struct fo_kernel *k, struct fo_num_data *d, int threads);
/* The relative error nearest its bound, of all outputs so far. Starts as zeros. */
struct fo_num_margin {
	double error, bound;
};
/* False, and why, where k breaks its contract on this case: both layouts, one to three threads, repeated runs, in-place
 * pairs. margin may be NULL. */
bool fo_num_check(const struct fo_num_case *c, const struct fo_kernel *k, struct fo_num_margin *margin, char *why,
		  size_t size);
/* The same for kernels of a device. same_bits says after a run whether another one must give the same bits. */
bool fo_num_check_device(const struct fo_num_case *c, const struct fo_kernel *k, bool (*same_bits)(void),
			 struct fo_num_margin *margin, char *why, size_t size);
/* ref in the case's precision against double precision, with an a priori bound: four roundings to each output's type,
 * and four to fp32 times the root of the longest dimension (rounding errors of a sum are a random walk). */
bool fo_num_check_naive(const struct fo_num_case *c, struct fo_num_margin *margin, char *why, size_t size);
/* Bounds and precision of one run: for shapes that take long, and where time is short. */
bool fo_num_check_once(const struct fo_num_case *c, const struct fo_kernel *k, int threads,
		       struct fo_num_margin *margin, char *why, size_t size);

#endif
