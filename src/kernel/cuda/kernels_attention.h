/* Kernels of attention.cu and launch_attention.c. Heads lie side by side in columns: head h of q in the columns h dim
 * .. (h + 1) dim, and of k and v in the same columns for head h / group. */
struct fo_cuda_attention_args {
	struct fo_cuda_view q, k, v, o, lse;
	struct fo_cuda_view doc; /* doc_start(T,1); cached: span(1,2), and lse is absent */
	float scale;
	int32_t dim, heads, group, window; /* window 0: none */
	int32_t cached;
};
struct fo_cuda_attention_bwd_args {
	struct fo_cuda_view q, k, v, o, lse, dout, doc, dq, dk, dv;
	float *delta; /* (T,H) row sums of do o: attention_dq writes, attention_dkv reads */
	float scale;
	int32_t dim, heads, group, window;
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
#define FO_CUDA_KERNELS_ATTENTION(X)                              \
	X(attention_4, struct fo_cuda_attention_args)             \
	X(attention_8, struct fo_cuda_attention_args)             \
	X(attention_decode_4, struct fo_cuda_attention_args)      \
	X(attention_decode_8, struct fo_cuda_attention_args)      \
	X(attention_dq_4, struct fo_cuda_attention_bwd_args)      \
	X(attention_dq_8, struct fo_cuda_attention_bwd_args)      \
	X(attention_dkv_4, struct fo_cuda_attention_bwd_args)     \
	X(attention_dkv_8, struct fo_cuda_attention_bwd_args)     \
	X(attention_docs, struct fo_cuda_attention_docs_args)     \
	X(attention_lone, struct fo_cuda_attention_lone_args)     \
	X(attention_lone_bwd, struct fo_cuda_attention_lone_args) \
	X(attention_copy, struct fo_cuda_attention_copy_args)     \
	X(attention_finish, struct fo_cuda_attention_finish_args)

/* Tiles of attention_*, attention_dq_* and attention_dkv_*: a block owns ROWS rows and walks over tiles of COLS
 * columns. */
enum {
	FO_CUDA_ATTENTION_ROWS = 16,
	FO_CUDA_ATTENTION_COLS = 32,
	FO_CUDA_ATTENTION_THREADS = 128,
	FO_CUDA_DECODE_THREADS = 256
};
enum {
	FO_CUDA_DOCS_THREADS = 1024 /* attention_docs: one block */,
	FO_CUDA_LONE_THREADS = 256 /* a warp per token */,
	FO_CUDA_FINISH_THREADS = 256
};
/* Dynamic shared memory in bytes: two row tiles, two column tiles (with one column more against bank conflicts), two
 * tiles of weights. */
#define FO_CUDA_ATTENTION_SHARED(dim)                                                     \
	((2 * FO_CUDA_ATTENTION_ROWS * (dim) + 2 * FO_CUDA_ATTENTION_COLS * ((dim) + 1) + \
	  2 * FO_CUDA_ATTENTION_ROWS * FO_CUDA_ATTENTION_COLS) *                          \
	 4)
