/* The device kernels of our own, by name, with the one struct each takes: shared by host C and CUDA C. A part for each
 * .cu file and the launch_*.c beside it.
 *
 * FO_CUDA_KERNEL_LIST(X): X(name, struct of arguments). The functions lie in *.cu as FO_KERNEL(name, struct, ...)
 * (device.cuh) and are launched by fo_cuda_launch(q, FO_CUDA_FN_name, grid, &args). */
#ifndef FO_KERNEL_CUDA_KERNELS_H
#define FO_KERNEL_CUDA_KERNELS_H

#include "program/ring_keys.h"

#include <stdint.h>

enum { FO_CUDA_THREADS = 256 }; /* of a block, where nothing else is said */

/* enum fo_dtype as device code knows it; launch.c holds both to each other. */
enum { FO_CUDA_F32, FO_CUDA_BF16, FO_CUDA_F64, FO_CUDA_I32, FO_CUDA_I16, FO_CUDA_E4M3, FO_CUDA_E5M2 };

/* A row-major rectangle on the device: FO_CUDA_F32 and its like. */
struct fo_cuda_view {
	void *data;
	int64_t rows, cols, ld;
	int32_t dtype, zero; /* no padding: equal arguments are equal bytes, and none of them looks like an address */
};
/* n / value = n x multiplier >> shift for n < 2^31 (rows.cuh; made by fo_cuda_divisor_of). */
struct fo_cuda_divisor {
	uint32_t value, multiplier, shift;
};

/* Kernels that differ in the data type alone. */
#define FO_CUDA_FLOATS(X, name, args) \
	X(name##_bf16, args)          \
	X(name##_f32, args)

/* ---- element by element: additions, rotations, SwiGLU, tables ---- */

/* Work done eight neighbours at a time: `n` groups, per_row in a row. */
struct fo_cuda_groups {
	uint32_t n;
	struct fo_cuda_divisor per_row;
};
/* Results whose elements are functions of the operands' elements at the same place: additions, SwiGLU. A thread has
 * FO_CUDA_MAP_SHARE groups, with a bias FO_CUDA_MAP_SHARE_BIAS. */
enum { FO_CUDA_MAP_SHARE = 2, FO_CUDA_MAP_SHARE_BIAS = 4, FO_CUDA_MAP_IN = 3, FO_CUDA_MAP_OUT = 2 };
struct fo_cuda_map_args {
	struct fo_cuda_view in[FO_CUDA_MAP_IN], out[FO_CUDA_MAP_OUT];
	struct fo_cuda_groups groups;
};
/* An item is eight pairs of FO_CUDA_ROPE_HEADS heads of one row: per_row of them in a row, per_slab for these heads. */
enum { FO_CUDA_ROPE_HEADS = 4 };
struct fo_cuda_rope_args {
	struct fo_cuda_view x, position, table;
	uint32_t items;
	struct fo_cuda_divisor per_row, per_slab;
	int32_t half, heads;
	float sign;
};
/* Rows of y from rows of x: which, `index` says by `mode`. A thread has FO_CUDA_COPY_SHARE units of 16 bytes. */
enum { FO_CUDA_COPY_SHARE = 4 };
enum fo_cuda_copy_mode {
	FO_CUDA_COPY_GATHER, /* y[r] = x[index[r]] */
	FO_CUDA_COPY_PUT,    /* y[index[0] + r] = x[r] for r < index[1] */
	FO_CUDA_COPY_LAST    /* y[0] = x[index[1] - 1] */
};
struct fo_cuda_copy_args {
	struct fo_cuda_view x, index, y;
	int32_t mode, rows; /* of the loop */
	int64_t first;      /* GATHER: the word of x's first row; rows of other words are 0 */
	uint32_t units;
	struct fo_cuda_divisor per_row;
};
/* Rows of all heads to rows for each of `ranks` ranks with its heads, or (together) back, where a head that several
 * ranks have is their sum. Units of 16 bytes of y: per_row in a row. */
struct fo_cuda_heads_args {
	struct fo_cuda_view x, y;
	int32_t ranks, heads, head_dim, together;
	uint32_t units;
	struct fo_cuda_divisor per_row;
};
struct fo_cuda_zero_args {
	struct fo_cuda_view t;
};
/* order[p]: the token that is p-th when tokens are ordered by their id and, for one id, by their position; rank[p]: how
 * many tokens of its id come before it. A block of embed_order has FO_CUDA_EMBED_ORDERED positions; one thread sums up
 * to FO_CUDA_EMBED_FEW tokens. */
enum { FO_CUDA_EMBED_ORDERED = 32, FO_CUDA_EMBED_FEW = 16 };
struct fo_cuda_embed_order_args {
	struct fo_cuda_view token;
	int32_t *order, *rank;
};
struct fo_cuda_embed_sum_args {
	struct fo_cuda_view token, dx, table;
	const int32_t *order, *rank;
	int64_t first; /* the word of the table's first row; others are left out */
	int32_t add;   /* else stored */
};
#define FO_CUDA_MAP(X, name)                             \
	FO_CUDA_FLOATS(X, name, struct fo_cuda_map_args) \
	X(name##_any, struct fo_cuda_map_args)
#define FO_CUDA_ELEMENTWISE(X)                                       \
	FO_CUDA_MAP(X, add)                                          \
	X(add_f64, struct fo_cuda_map_args)                          \
	FO_CUDA_MAP(X, add_bias)                                     \
	FO_CUDA_MAP(X, swiglu)                                       \
	FO_CUDA_MAP(X, swiglu_bwd)                                   \
	FO_CUDA_FLOATS(X, rope, struct fo_cuda_rope_args)            \
	X(rope_any, struct fo_cuda_rope_args)                        \
	X(copy_rows_16, struct fo_cuda_copy_args)                    \
	X(copy_rows_any, struct fo_cuda_copy_args)                   \
	X(heads_16, struct fo_cuda_heads_args)                       \
	X(heads_any, struct fo_cuda_heads_args)                      \
	X(zero_any, struct fo_cuda_zero_args)                        \
	X(embed_order, struct fo_cuda_embed_order_args)              \
	FO_CUDA_FLOATS(X, embed_few, struct fo_cuda_embed_sum_args)  \
	FO_CUDA_FLOATS(X, embed_many, struct fo_cuda_embed_sum_args) \
	X(embed_any, struct fo_cuda_embed_sum_args)

/* ---- norms and sums over rows ---- */

/* A piece is normed by itself: a row, or one of `count` heads of it, `width` columns wide. `team` threads take it: a
 * power of two up to 32, or a whole block. */
struct fo_cuda_pieces {
	int64_t n;
	int32_t width, team;
	struct fo_cuda_divisor count;
};
struct fo_cuda_norm_args {
	struct fo_cuda_view x, b, g, c, y, rstd; /* b and c without data: x is normed, not c = x + b */
	struct fo_cuda_pieces pieces;
	float eps;
};
/* Without data: g and dx where dx is not wanted, an absent dres. */
struct fo_cuda_norm_bwd_args {
	struct fo_cuda_view x, dy, g, dx, dres, rstd;
	float *partial; /* (blocks, width): sums for dg of each block */
	struct fo_cuda_pieces pieces;
};
/* Sums of columns of dy, or of x rstd dy where x has data. */
struct fo_cuda_columns_args {
	struct fo_cuda_view x, rstd, dy, out;
	float *partial; /* columns_*: (blocks, width) */
	struct fo_cuda_pieces pieces;
	int32_t rows_per_block, add; /* add: to out, else stored */
};
struct fo_cuda_partials_args {
	const float *partial; /* (parts, columns of out) */
	struct fo_cuda_view out;
	int32_t parts, add;
};
/* norm_bwd_<result>_<type>_<groups of a thread>. */
#define FO_CUDA_NORM_BWD(X, form)                       \
	X(norm_dx_##form, struct fo_cuda_norm_bwd_args) \
	X(norm_dg_##form, struct fo_cuda_norm_bwd_args) \
	X(norm_bwd_##form, struct fo_cuda_norm_bwd_args)
#define FO_CUDA_NORM(X)                                         \
	X(norm_bf16_1, struct fo_cuda_norm_args)                \
	X(norm_f32_1, struct fo_cuda_norm_args)                 \
	X(norm_bf16_4, struct fo_cuda_norm_args)                \
	X(norm_f32_4, struct fo_cuda_norm_args)                 \
	X(add_norm_bf16_1, struct fo_cuda_norm_args)            \
	X(add_norm_f32_1, struct fo_cuda_norm_args)             \
	X(add_norm_bf16_4, struct fo_cuda_norm_args)            \
	X(add_norm_f32_4, struct fo_cuda_norm_args)             \
	X(norm_any, struct fo_cuda_norm_args)                   \
	X(norm_dx_any, struct fo_cuda_norm_bwd_args)            \
	FO_CUDA_NORM_BWD(X, bf16_1)                             \
	FO_CUDA_NORM_BWD(X, bf16_2)                             \
	FO_CUDA_NORM_BWD(X, bf16_4)                             \
	FO_CUDA_NORM_BWD(X, f32_1)                              \
	FO_CUDA_NORM_BWD(X, f32_2)                              \
	FO_CUDA_FLOATS(X, columns, struct fo_cuda_columns_args) \
	X(columns_any, struct fo_cuda_columns_args)             \
	X(sum_partials, struct fo_cuda_partials_args)

/* ---- cross entropy ---- */

struct fo_cuda_xent_args {
	struct fo_cuda_view logits;
	const int32_t *target; /* of row i at i * target_ld; -1: the row carries no loss */
	int64_t target_ld;
	const double *inv_tokens; /* xent: the factor of all gradients */
	double *row_loss;         /* of each row, without that factor */
};
/* loss[0] = sum of row_loss, times inv_tokens; without that, loss[1] = rows that carry a loss. They are stored or
 * added. */
struct fo_cuda_loss_sum_args {
	const double *row_loss;
	const int32_t *target;
	int64_t target_ld, rows;
	const double *inv_tokens;
	double *loss;
	int32_t stored;
};
/* Columns from word `first` on of logits whose other columns are other ranks'. */
struct fo_cuda_xent_part_args {
	struct fo_cuda_view logits;
	const int32_t *target;
	int64_t target_ld, first;
	float *max, *sums; /* of row i at i * max_ld, i * sums_ld */
	int64_t max_ld, sums_ld;
	const double *inv_tokens;
};
struct fo_cuda_xent_loss_args {
	const float *sums;
	int64_t sums_ld;
	const int32_t *target;
	int64_t target_ld, rows;
	double *row_loss;
};
#define FO_CUDA_XENT_PART(X, name)                             \
	FO_CUDA_FLOATS(X, name, struct fo_cuda_xent_part_args) \
	FO_CUDA_FLOATS(X, name##_any, struct fo_cuda_xent_part_args)
#define FO_CUDA_LOSS(X)                                           \
	FO_CUDA_FLOATS(X, xent, struct fo_cuda_xent_args)         \
	FO_CUDA_FLOATS(X, xent_any, struct fo_cuda_xent_args)     \
	FO_CUDA_FLOATS(X, xent_fwd, struct fo_cuda_xent_args)     \
	FO_CUDA_FLOATS(X, xent_fwd_any, struct fo_cuda_xent_args) \
	FO_CUDA_XENT_PART(X, xent_max)                            \
	FO_CUDA_XENT_PART(X, xent_sums)                           \
	FO_CUDA_XENT_PART(X, xent_grad)                           \
	X(xent_row_loss, struct fo_cuda_xent_loss_args)           \
	X(loss_sum, struct fo_cuda_loss_sum_args)

/* ---- gradient norm, clipping, AdamW, the search for numbers that are not finite ----
 *
 * Tensors are cut into chunks: a tensor whose operands all lie without gaps as one long row, else row by row. The
 * chunks of all tensors of a launch are numbered through; those of tensor k begin at `begin`, and a row has per_row of
 * them. */
enum { FO_CUDA_SUMSQ_TENSORS = 31, FO_CUDA_ADAMW_TENSORS = 7 };   /* at least the operands of sumsq_many, adamw_many */
enum { FO_CUDA_SUMSQ_CHUNK = 16384, FO_CUDA_ADAMW_CHUNK = 8192 }; /* elements; a sum's order depends on the first */

struct fo_cuda_sumsq_tensor {
	const void *data;
	int64_t rows, cols, ld;
	uint32_t begin, per_row;
	int32_t dtype, aligned; /* every row begins at 16 bytes */
};
struct fo_cuda_sumsq_args {
	struct fo_cuda_sumsq_tensor t[FO_CUDA_SUMSQ_TENSORS];
	int32_t n;
	uint32_t chunks;
	double *partial; /* sum of each chunk */
	double *acc;
	int32_t stored; /* else added */
};
struct fo_cuda_clip_args {
	const double *acc, *hyper, *loss; /* NULL where there is none */
	double *scale;
	int32_t last; /* the norm of the step before is bounded */
};
struct fo_cuda_adamw_tensor {
	void *m, *v, *w, *master; /* NULL: without */
	const void *g;
	int64_t rows, cols, ld_m, ld_v, ld_w, ld_master, ld_g;
	int64_t number; /* of the first element, for its noise */
	int32_t layer;
	uint32_t begin, per_row;
	int32_t type_moments, type_g, type_w, type_master;
};
struct fo_cuda_adamw_args {
	struct fo_cuda_adamw_tensor t[FO_CUDA_ADAMW_TENSORS];
	int32_t n;
	uint32_t chunks;
	const double *hyper, *scale;
	double decays; /* 1: weight decay applies, 0: it does not */
	int32_t stochastic;
};
struct fo_cuda_nonfinite_args {
	struct fo_cuda_view t;
	uint64_t *found; /* all ones before */
};
/* adamw_<moments>_<weights>_<gradients>. weights: bf16 or f32 alone; copy: bf16 beside an fp32 master; split: bf16 and
 * its low half. */
#define FO_CUDA_ADAMW(X, moments, gradients)                             \
	X(adamw_##moments##_bf16_##gradients, struct fo_cuda_adamw_args) \
	X(adamw_##moments##_f32_##gradients, struct fo_cuda_adamw_args)  \
	X(adamw_##moments##_copy_##gradients, struct fo_cuda_adamw_args) \
	X(adamw_##moments##_split_##gradients, struct fo_cuda_adamw_args)
#define FO_CUDA_OPTIMIZER(X)                     \
	X(sumsq, struct fo_cuda_sumsq_args)      \
	X(sumsq_sum, struct fo_cuda_sumsq_args)  \
	X(clip, struct fo_cuda_clip_args)        \
	X(clip_ahead, struct fo_cuda_clip_args)  \
	X(global_norm, struct fo_cuda_clip_args) \
	FO_CUDA_ADAMW(X, f32, f32)               \
	FO_CUDA_ADAMW(X, f32, bf16)              \
	FO_CUDA_ADAMW(X, bf16, f32)              \
	FO_CUDA_ADAMW(X, bf16, bf16)             \
	X(adamw_any, struct fo_cuda_adamw_args)  \
	X(find_nonfinite, struct fo_cuda_nonfinite_args)

/* ---- fp8: maxima, scales, casts, histories ----
 *
 * Maxima travel as the bits of magnitudes, which are ordered as integers, with NaN above all; blocks leave theirs in
 * the workspace. */
struct fo_cuda_amax_args {
	struct fo_cuda_view x;
	uint32_t *partial; /* amax_all: of each block; amax_cols: row b of what block (., b) saw of each column */
	float *out;        /* amax_rows: of row i at i * out_ld */
	int64_t out_ld;
	int32_t aligned; /* every row begins at 16 bytes */
};
/* out[j] = maximum of n rows of partial; whole: out[0] of all numbers. */
struct fo_cuda_amax_join_args {
	const uint32_t *partial;
	int64_t n, cols;
	float *out;
	int32_t whole, zero;
};
struct fo_cuda_fp8_scale_args {
	struct fo_cuda_view amax, out;
	float largest;
	int32_t power; /* of two, rounded up */
};
struct fo_cuda_fp8_cast_args {
	struct fo_cuda_view x, y;
	const float *scale;
	int64_t scale_ld;
	int32_t aligned; /* rows of x and y begin at 16 bytes */
};
/* Block b takes tile b of x, 128 x 128 elements, row by row of tiles. */
struct fo_cuda_fp8_cast_t_args {
	struct fo_cuda_view x, y, yt;
	const float *scale;
};
/* The scale of the step: its amax is what ops.def says of fp8_cast_step, as 32-bit words. */
enum {
	FO_CUDA_AMAX_STEP,
	FO_CUDA_AMAX_HISTORY,
	FO_CUDA_AMAX_OWN,    /* of x, where the history is empty */
	FO_CUDA_AMAX_BLOCKS, /* of the second launch that have ended */
	FO_CUDA_AMAX_WORDS
};
struct fo_cuda_fp8_step {
	uint32_t *amax;
	float *sx;
	uint32_t parts;  /* of the work */
	float largest;   /* number of the format */
	uint32_t second; /* 1: the second launch, which casts where the history was empty */
	uint32_t zero;
};
/* Casts by the scale of the step, so without one in `cast`: x in parts of one share each, or in tiles. */
struct fo_cuda_fp8_cast_step_args {
	struct fo_cuda_fp8_cast_args cast;
	struct fo_cuda_fp8_step step;
};
struct fo_cuda_fp8_cast_step_t_args {
	struct fo_cuda_fp8_cast_t_args cast;
	struct fo_cuda_fp8_step step;
};
/* Results that are made and cast in one kernel (fp8_made.cu): x is the first operand, the other views are what an
 * addition, SwiGLU or its backward takes. qt, z: data NULL: not wanted. SwiGLU works in tiles of gate's shape, norms in
 * strips of FO_CUDA_FP8_STRIP rows, so that a transposed column of a strip is one access. */
enum { FO_CUDA_FP8_STRIP = 16 };
struct fo_cuda_fp8_made_args {
	struct fo_cuda_view x, b, dy, c, g, rstd, q, qt, z;
	struct fo_cuda_fp8_step step;
	int32_t team, teams; /* norms: threads of a row, rows at once */
	float eps;
	int32_t zero;
};
/* Block (s, t): row s of history t. */
enum { FO_CUDA_FP8_HISTORIES = 16 };
struct fo_cuda_fp8_begin_args {
	struct fo_cuda_view history[FO_CUDA_FP8_HISTORIES], amax[FO_CUDA_FP8_HISTORIES];
};
struct fo_cuda_fp8_push_args {
	const float *amax;
	int64_t amax_ld;
	struct fo_cuda_view history;
	const double *scale;
};
/* fp8_cast_<from>_<to>_<scale>: one, rows, cols. fp8_cast_t_<from>_<to>: 16 elements at once; _any: any layout. */
#define FO_CUDA_FP8_CAST(X, form)                                  \
	X(fp8_cast_##form##_one, struct fo_cuda_fp8_cast_args)     \
	X(fp8_cast_##form##_rows, struct fo_cuda_fp8_cast_args)    \
	X(fp8_cast_##form##_cols, struct fo_cuda_fp8_cast_args)    \
	X(fp8_cast_step_##form, struct fo_cuda_fp8_cast_step_args) \
	X(fp8_cast_t_##form, struct fo_cuda_fp8_cast_t_args)       \
	X(fp8_cast_step_t_##form, struct fo_cuda_fp8_cast_step_t_args)
#define FO_CUDA_FP8(X)                                              \
	FO_CUDA_FLOATS(X, amax_all, struct fo_cuda_amax_args)       \
	FO_CUDA_FLOATS(X, amax_rows, struct fo_cuda_amax_args)      \
	FO_CUDA_FLOATS(X, amax_cols, struct fo_cuda_amax_args)      \
	X(amax_join, struct fo_cuda_amax_join_args)                 \
	X(fp8_scale, struct fo_cuda_fp8_scale_args)                 \
	X(swiglu_fp8_bf16, struct fo_cuda_fp8_made_args)            \
	X(swiglu_bwd_fp8_bf16, struct fo_cuda_fp8_made_args)        \
	X(norm_fp8_bf16, struct fo_cuda_fp8_made_args)              \
	X(add_norm_fp8_bf16, struct fo_cuda_fp8_made_args)          \
	X(fp8_begin, struct fo_cuda_fp8_begin_args)                 \
	FO_CUDA_FP8_CAST(X, bf16_e4m3)                              \
	FO_CUDA_FP8_CAST(X, bf16_e5m2)                              \
	FO_CUDA_FP8_CAST(X, f32_e4m3)                               \
	FO_CUDA_FP8_CAST(X, f32_e5m2)                               \
	X(fp8_cast_t_any, struct fo_cuda_fp8_cast_t_args)           \
	X(fp8_cast_step_t_any, struct fo_cuda_fp8_cast_step_t_args) \
	X(fp8_push, struct fo_cuda_fp8_push_args)

/* ---- attention ----
 *
 * Heads lie side by side in columns: head h of q in the columns h dim .. (h + 1) dim, and of k and v in the same
 * columns for head h / group. */
struct fo_cuda_attention_args {
	struct fo_cuda_view q, k, v, doc, o, lse; /* doc: doc_start(T,1); cached: span(1,2), and lse is absent */
	float scale;
	int32_t dim, heads, group, window; /* window 0: none */
	int32_t cached;
	struct fo_key_ring ring; /* attention_block_* alone */
};
struct fo_cuda_attention_bwd_args {
	struct fo_cuda_view q, k, v, o, lse, dout, doc, dq, dk, dv;
	float *delta; /* (T,H) row sums of do o: attention_dq writes, attention_dkv reads */
	float scale;
	int32_t dim, heads, group, window;
	int32_t add; /* attention_block_dq_* adds to dq */
	struct fo_key_ring ring;
};
/* o and lse over some keys become those over more (attention_merge). */
struct fo_cuda_attention_merge_args {
	struct fo_cuda_view ob, lseb, o, lse;
	int32_t dim, heads;
};
/* Packed documents, around cuDNN (attention_docs.cu). cuDNN does not get documents of one token: padding comes as
 * thousands of them. */
enum { FO_CUDA_DOCS_OFFSETS = 5 };
struct fo_cuda_attention_docs_args {
	struct fo_cuda_view doc;               /* doc_start(T,1) */
	int32_t *length;                       /* (documents): of those with two tokens or more, in order; then 0 */
	int64_t *offset[FO_CUDA_DOCS_OFFSETS]; /* (documents + 1): first token x ld; of what has length 0: T ld */
	int64_t ld[FO_CUDA_DOCS_OFFSETS];
	int32_t *unfit; /* 1: more documents, or a longer one, than were provided for */
	int32_t documents, longest;
};
/* Tokens that are a document of their own: o = v and lse = scale q k'; or their gradients. NaN for all tokens where
 * unfit. */
struct fo_cuda_attention_lone_args {
	struct fo_cuda_view q, k, v, o, lse;  /* forward */
	struct fo_cuda_view dout, dq, dk, dv; /* backward */
	struct fo_cuda_view doc;
	const int32_t *unfit;
	float scale;
	int32_t dim, heads, group;
};
/* Two rectangles of bf16, rows 16-byte aligned. */
struct fo_cuda_attention_copy_args {
	struct fo_cuda_view from[2], to[2];
};
/* Ends the gradients that an unfinished plan left: dq is the fp32 sum, dk and dv are sums of bf16 terms of the query
 * heads that share a key/value head, each rounded once; dq and dk are turned as rope does it. An item is eight pairs of
 * one head of a token: of dq, then dk, then dv. */
struct fo_cuda_attention_finish_args {
	struct fo_cuda_view dq, dk, dv, doc, position, table;
	const float *sum; /* element d of head h of token s of document b: b sum_doc + h sum_head + s sum_row + d */
	const uint16_t *dk_full,
		*dv_full; /* (T, heads dim) without gaps; group 1: NULL, the terms lie in dk, and dv is ready */
	int64_t sum_doc, sum_head, sum_row;
	struct fo_cuda_divisor per_row, per_head, rows_per_doc;
	uint32_t items;
	int32_t heads, kv, group, half;
	int32_t leave_lone; /* 1: tokens that are a document of their own are nobody's here */
	float sign;
};
/* _4: heads of at most 4 x 32 columns, _8: of 8 x 32. */
#define FO_CUDA_WIDTHS(X, name, args) \
	X(name##_4, args)             \
	X(name##_8, args)
#define FO_CUDA_ATTENTION(X)                                                      \
	FO_CUDA_WIDTHS(X, attention, struct fo_cuda_attention_args)               \
	FO_CUDA_WIDTHS(X, attention_decode, struct fo_cuda_attention_args)        \
	FO_CUDA_WIDTHS(X, attention_dq, struct fo_cuda_attention_bwd_args)        \
	FO_CUDA_WIDTHS(X, attention_dkv, struct fo_cuda_attention_bwd_args)       \
	FO_CUDA_WIDTHS(X, attention_block, struct fo_cuda_attention_args)         \
	FO_CUDA_WIDTHS(X, attention_block_dq, struct fo_cuda_attention_bwd_args)  \
	FO_CUDA_WIDTHS(X, attention_block_dkv, struct fo_cuda_attention_bwd_args) \
	X(attention_merge, struct fo_cuda_attention_merge_args)                   \
	X(attention_docs, struct fo_cuda_attention_docs_args)                     \
	X(attention_lone, struct fo_cuda_attention_lone_args)                     \
	X(attention_lone_bwd, struct fo_cuda_attention_lone_args)                 \
	X(attention_copy, struct fo_cuda_attention_copy_args)                     \
	X(attention_finish, struct fo_cuda_attention_finish_args)

/* Tiles of attention_*, attention_dq_* and attention_dkv_*: a block owns ROWS rows and walks over tiles of COLS
 * columns. attention_docs is one block of FO_CUDA_DOCS_THREADS; attention_lone has a warp per token. */
enum {
	FO_CUDA_ATTENTION_ROWS = 16,
	FO_CUDA_ATTENTION_COLS = 32,
	FO_CUDA_ATTENTION_THREADS = 128,
	FO_CUDA_DOCS_THREADS = 1024
};
/* Dynamic shared memory in bytes: two row tiles, two column tiles (with one column more against bank conflicts), two
 * tiles of weights. */
#define FO_CUDA_ATTENTION_SHARED(dim)                                                     \
	((2 * FO_CUDA_ATTENTION_ROWS * (dim) + 2 * FO_CUDA_ATTENTION_COLS * ((dim) + 1) + \
	  2 * FO_CUDA_ATTENTION_ROWS * FO_CUDA_ATTENTION_COLS) *                          \
	 4)

/* ---- a new model's weights ---- */

/* Elements of one parameter's rectangle in its weight, and in its master copy at the same places. */
struct fo_cuda_init_weights_args {
	void *weight, *master; /* of the rectangle's first element; master NULL: the weight alone */
	int64_t rows, cols, ld;
	int64_t first, global_cols; /* number of the first element in the whole tensor; elements in a row of that */
	uint64_t stream;            /* of random numbers */
	double std;                 /* 0: ones; below 0: zeros */
	int32_t weight_type, master_type; /* master_type FO_CUDA_I16: both are halves of one number */
};

/* ---- what matmuls need beside cuBLASLt (product.cu; matmul.c, tune.c) ---- */

struct fo_cuda_fp8_transpose_args {
	const void *x; /* (rows, cols) bytes */
	void *y;       /* (cols, rows) bytes */
	int64_t rows, cols, ldx, ldy;
	int32_t wide; /* 1: x, y, ldx, ldy, rows and cols are multiples of 16 */
};
/* y(rows, ldy) in bf16 = x in fp8, exactly. */
struct fo_cuda_fp8_widen_args {
	struct fo_cuda_view x;
	uint16_t *y;
	int64_t ldy;
};
/* c = [c +] (sum(i,j) sa[i]) sb[j]; sum is (c.rows, c.cols) without gaps; a lone scale is everybody's. */
struct fo_cuda_product_scale_args {
	const float *sum;
	struct fo_cuda_view c, sa, sb;
	int32_t add;
};
/* to[i] = scale i of a row, a column or a lone one, for i below n. */
struct fo_cuda_product_lines_args {
	struct fo_cuda_view s;
	float *to;
	int64_t n;
};
/* n random elements of a type: bf16 and fp32 near N(0,1), fp8 of either sign with all bits of mantissa in use. */
struct fo_cuda_product_random_args {
	void *to;
	int64_t n;
	uint64_t seed;
	int32_t dtype;
};

/* ---- all of them ---- */

#define FO_CUDA_KERNEL_LIST(X)                              \
	FO_CUDA_ELEMENTWISE(X)                              \
	FO_CUDA_NORM(X)                                     \
	FO_CUDA_LOSS(X)                                     \
	FO_CUDA_OPTIMIZER(X)                                \
	FO_CUDA_FP8(X)                                      \
	FO_CUDA_ATTENTION(X)                                \
	X(init_weights, struct fo_cuda_init_weights_args)   \
	X(fp8_transpose, struct fo_cuda_fp8_transpose_args) \
	X(fp8_widen, struct fo_cuda_fp8_widen_args)         \
	X(product_scale, struct fo_cuda_product_scale_args) \
	X(product_lines, struct fo_cuda_product_lines_args) \
	X(product_random, struct fo_cuda_product_random_args)

enum fo_cuda_function {
#define FO_CUDA_FN(name, args) FO_CUDA_FN_##name,
	FO_CUDA_KERNEL_LIST(FO_CUDA_FN)
#undef FO_CUDA_FN
		FO_CUDA_FUNCTIONS
};

#endif
