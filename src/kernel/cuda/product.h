/* Private to src/kernel/cuda: a product as cuBLASLt has it, which algorithm runs it (tune.c), and its run (product.c).
 */
#ifndef FO_KERNEL_CUDA_PRODUCT_H
#define FO_KERNEL_CUDA_PRODUCT_H

#include "base/str.h"
#include "kernel/cuda/cuda_int.h"
#include "kernel/tune_blocks.h"

/* d(m,n) = op(a) op(b) [+ d], all column-major: a is (m,k), or (k,m) where ta; b is (k,n), or (n,k) where tb. Row-major
 * c(m,n) = a b is column-major c'(n,m) = b' a', so its second factor is `a` here. Zeroed before it is filled: it is
 * hashed and compared as bytes. */
struct fo_cuda_product {
	int64_t m, n, k, lda, ldb, ldd;
	int type_a, type_b, type_d; /* enum fo_dtype */
	bool ta, tb, add;
	bool lines; /* fp8: a scale of each line of a and of b, else one of each */
	bool fast;  /* fp8: sums may stay in the tensor cores' own, shorter form */
	bool loose; /* operands begin at multiples of their elements only, else of 16 bytes */
	bool unused[6];
};

/* Ready to run. Owned by the device's table; its place in memory stays until the device is closed. */
struct fo_cuda_product_plan {
	struct fo_cuda_product key;
	bool good; /* else the library has no algorithm for it */
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, d;
	cublasLtMatmulAlgo_t algo;
	size_t ws_bytes; /* of the algorithm; its workspace is 256-byte aligned */
	struct fo_cuda_product_plan *next;
};

/* Finds the plan or makes it: from the cache, by measuring, or the library's first proposal, as fo_cuda_tune_set said.
 * May take seconds. Not while capturing. */
FO_CHECKED fo_status fo_cuda_product_prepare(struct fo_cuda *c, const struct fo_cuda_product *key,
					     struct fo_cuda_product_plan **out);
/* The plan that prepare made; NULL: it was never asked for. */
struct fo_cuda_product_plan *fo_cuda_product_find(const struct fo_cuda *c, const struct fo_cuda_product *key);
/* Device pointers; scales: NULL without fp8. Enqueues, nothing else. */
cublasStatus_t fo_cuda_product_run(const struct fo_cuda *c, struct fo_cuda_product_plan *p, const void *a,
				   const void *b, void *d, const float *scale_a, const float *scale_b, void *ws,
				   fo_cuda_stream s);

/* Largest workspace an algorithm may ask for: what cuBLAS documents for its own on each architecture. */
size_t fo_cuda_product_ws_most(const struct fo_cuda *c);

/* ---- choices that were measured, by product: a file of JSON lines (tune_cache.c) ---- */

enum fo_cuda_method {
	FO_CUDA_BURSTS, /* fastest in bursts, others close behind */
	FO_CUDA_CLEAR,  /* fastest in bursts by so much that longer runs were not needed */
	FO_CUDA_BLOCKS, /* of those that bursts left close, by blocks of a second */
	FO_CUDA_METHODS
};
struct fo_cuda_choice {
	struct fo_cuda_product key;
	cublasLtMatmulAlgo_t algo;
	double us, first_us; /* of the choice and of the library's first proposal; medians of the method's own runs */
	int rank, of;        /* the choice's place among the proposals, and how many ran */
	int method;          /* enum fo_cuda_method */
	bool by_energy;      /* blocks: struct fo_tune_verdict */
	double noise, joules, hz;                   /* of blocks, the last two the choice's medians; NAN */
	struct fo_tune_block block[FO_TUNE_BLOCKS]; /* as they ran; who: place among the proposals */
	int blocks;                                 /* 0: none */
};
struct fo_cuda_choices {
	struct fo_cuda_choice *choice;
	size_t n, cap;
	char device[96], library[32]; /* whose choices these are; lines of others are kept as text */
	struct fo_str others;
	int damaged; /* lines that were left out */
};
/* Absent: empty. FO_EIO, FO_EFORMAT (too large) where the file cannot be read. *to: device and library are set. */
FO_CHECKED fo_status fo_cuda_choices_read(struct fo_cuda_choices *to, const char *path);
/* Reads the file again, adds or replaces one and writes it, alone among processes. Makes the folder. */
FO_CHECKED fo_status fo_cuda_choices_keep(struct fo_cuda_choices *to, const char *path,
					  const struct fo_cuda_choice *add);
const struct fo_cuda_choice *fo_cuda_choices_find(const struct fo_cuda_choices *in, const struct fo_cuda_product *key);
void fo_cuda_choices_fini(struct fo_cuda_choices *c); /* device and library stay */

/* Descriptors for p->key; good stays false where the library refuses one; fini frees them. */
void fo_cuda_product_describe(const struct fo_cuda *c, struct fo_cuda_product_plan *p);
void fo_cuda_product_fini(const struct fo_cuda *c, struct fo_cuda_product_plan *p);

#endif
