/* Packed documents around cuDNN: their lengths and offsets, made on the device so that a captured graph serves other
 * contents; tokens that are a document of their own, which cuDNN does not get; copies where it needs rows without gaps;
 * and the end of its gradients. */
#include "kernel/cuda/rows.cuh"

enum { DOCS_THREADS = FO_CUDA_DOCS_THREADS, DOCS_WARPS = DOCS_THREADS / 32, THREADS = FO_CUDA_THREADS };

FO_DEVICE int32_t start_of(const fo_cuda_view &doc, int32_t i)
{
	const int32_t s = ((const int32_t *)doc.data)[(int64_t)i * doc.ld];
	if (s < 0)
		return 0;
	return s > i ? i : s;
}
/* Token i is the last of its document. */
FO_DEVICE bool ends(const fo_cuda_view &doc, int32_t i) { return i + 1 == doc.rows || start_of(doc, i + 1) > i; }

/* Document b begins at token `first`. The loop stays one: unrolled three times, its factors do not fit into the
 * registers of a block of 1,024 threads. */
FO_DEVICE void put_offsets(const fo_cuda_attention_docs_args &p, int32_t b, int32_t first)
{
#pragma unroll 1
	for (int k = 0; k < FO_CUDA_DOCS_OFFSETS; k++)
		p.offset[k][b] = first * p.ld[k];
}

/* Each thread counts the ends of documents in its stretch of tokens; a prefix sum over the threads says where it
 * writes. Start and length come from the same token, so whatever doc holds, a document lies within the tokens. */
FO_KERNEL(attention_docs, struct fo_cuda_attention_docs_args, DOCS_THREADS)
{
	__shared__ int32_t total[DOCS_WARPS], unfit;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t rows = (int32_t)p.doc.rows, stretch = (rows + DOCS_THREADS - 1) / DOCS_THREADS;
	const int32_t from = (int32_t)threadIdx.x * stretch, to = from + stretch < rows ? from + stretch : rows;
	int32_t mine = 0;
	for (int32_t i = from; i < to; i++)
		mine += ends(p.doc, i) && start_of(p.doc, i) < i;
	int32_t sum = mine;
	for (int k = 1; k < 32; k *= 2) {
		const int32_t before = __shfl_up_sync(0xffffffffu, sum, k);
		sum += lane >= k ? before : 0;
	}
	if (lane == 31)
		total[warp] = sum;
	if (threadIdx.x == 0)
		unfit = 0;
	__syncthreads();
	int32_t at = sum - mine, all = 0;
	for (int w = 0; w < DOCS_WARPS; w++) {
		at += w < warp ? total[w] : 0;
		all += total[w];
	}
	for (int32_t i = from; i < to; i++) {
		const int32_t start = start_of(p.doc, i), length = i + 1 - start;
		if (length < 2 || !ends(p.doc, i))
			continue;
		const bool fits = length <= p.longest;
		if (at >= p.documents || !fits)
			unfit = 1;
		if (at < p.documents) {
			p.length[at] = fits ? length : 0;
			put_offsets(p, at, start);
		}
		at++;
	}
	for (int32_t b = all + (int32_t)threadIdx.x; b <= p.documents; b += DOCS_THREADS) {
		if (b < p.documents)
			p.length[b] = 0;
		put_offsets(p, b, rows);
	}
	if (threadIdx.x == 0 && all > p.documents)
		put_offsets(p, p.documents, rows);
	__syncthreads();
	if (threadIdx.x == 0)
		*p.unfit = unfit;
}

#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)

/* A warp per token. */
FO_KERNEL(attention_lone, struct fo_cuda_attention_lone_args, THREADS)
{
	const int lane = threadIdx.x % 32;
	const int32_t rows = (int32_t)p.doc.rows, warps = (int32_t)gridDim.x * (THREADS / 32);
	const bool unfit = *p.unfit;
	for (int32_t i = (int32_t)(blockIdx.x * (THREADS / 32) + threadIdx.x / 32); i < rows; i += warps) {
		if (!unfit && (start_of(p.doc, i) < i || !ends(p.doc, i)))
			continue;
		for (int h = 0; h < p.heads; h++) {
			const int64_t cq = (int64_t)h * p.dim, ck = (int64_t)(h / p.group) * p.dim;
			float x = 0;
			for (int d = lane; d < p.dim; d += 32) {
				x += fo_view_get(p.q, i, cq + d) * fo_view_get(p.k, i, ck + d);
				fo_view_put(p.o, i, cq + d, unfit ? NOT_A_NUMBER : fo_view_get(p.v, i, ck + d));
			}
			x = fo_warp_sum(x) * p.scale;
			if (lane == 0)
				fo_view_put(p.lse, i, h, unfit ? NOT_A_NUMBER : x);
		}
	}
}

/* A lone token has one key, its own, whose weight is 1 whatever q and k are: dq and dk are 0, and dv is the sum of do
 * over the group. */
FO_KERNEL(attention_lone_bwd, struct fo_cuda_attention_lone_args, THREADS)
{
	const int lane = threadIdx.x % 32;
	const int32_t rows = (int32_t)p.doc.rows, warps = (int32_t)gridDim.x * (THREADS / 32);
	const bool unfit = *p.unfit;
	const float zero = unfit ? NOT_A_NUMBER : 0;
	for (int32_t i = (int32_t)(blockIdx.x * (THREADS / 32) + threadIdx.x / 32); i < rows; i += warps) {
		if (!unfit && (start_of(p.doc, i) < i || !ends(p.doc, i)))
			continue;
		for (int c = lane; c < p.heads * p.dim; c += 32)
			fo_view_put(p.dq, i, c, zero);
		for (int c = lane; c < p.heads / p.group * p.dim; c += 32) {
			const int64_t first = (int64_t)(c / p.dim) * p.group * p.dim + c % p.dim;
			float sum = zero;
			for (int h = 0; h < p.group; h++)
				sum += fo_view_get(p.dout, i, first + (int64_t)h * p.dim);
			fo_view_put(p.dk, i, c, zero);
			fo_view_put(p.dv, i, c, sum);
		}
	}
}

/* Moves 4 bytes per element and rectangle: 0.02 ms for k and v of 8,192 tokens and 1,024 columns. */
FO_KERNEL(attention_copy, struct fo_cuda_attention_copy_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, group, p.to[0].rows, p.to[0].cols / 8)
	{
		const int64_t c = group * 8;
		const fo_16 a = *(const fo_16 *)((const uint16_t *)p.from[0].data + r * p.from[0].ld + c);
		const fo_16 b = *(const fo_16 *)((const uint16_t *)p.from[1].data + r * p.from[1].ld + c);
		*(fo_16 *)((uint16_t *)p.to[0].data + r * p.to[0].ld + c) = a;
		*(fo_16 *)((uint16_t *)p.to[1].data + r * p.to[1].ld + c) = b;
	}
}

/* Per token of Llama-3.1-8B (32 heads and 8 kv heads of 128) it reads 16 KiB of fp32 and 16 KiB of bf16 and writes 12
 * KiB: 8,192 tokens are 360 MB, 0.09 ms at 4 TB/s. cuDNN's own end of the gradients and a rotation behind it move the
 * same and 20 KiB of bf16 more, dq and dk once in and once out. A thread has eight pairs, so that eight of them read
 * whole lines of 256 bytes; the terms of a kv head are added in the order of its query heads. */
FO_KERNEL(attention_finish, struct fo_cuda_attention_finish_args, THREADS)
{
	const uint32_t i = blockIdx.x * (uint32_t)THREADS + threadIdx.x;
	if (i >= p.items)
		return;
	const uint32_t r = fo_quotient(i, p.per_row), rest = i - r * p.per_row.value, h = fo_quotient(rest, p.per_head);
	const int j = (int)(rest - h * p.per_head.value) * 8;
	if (p.leave_lone && start_of(p.doc, (int32_t)r) == (int32_t)r && ends(p.doc, (int32_t)r))
		return;
	float x1[8], x2[8];
	uint16_t *to;
	const bool of_q = (int)h < p.heads, of_v = (int)h >= p.heads + p.kv;
	if (of_q) {
		const uint32_t doc = fo_quotient(r, p.rows_per_doc);
		const float *sum = p.sum + doc * p.sum_doc + (r - doc * p.rows_per_doc.value) * p.sum_row +
				   h * p.sum_head + j;
		fo_load8(sum, x1);
		fo_load8(sum + p.half, x2);
		to = (uint16_t *)p.dq.data + r * p.dq.ld + (int64_t)h * 2 * p.half + j;
	} else {
		const fo_cuda_view &d = of_v ? p.dv : p.dk;
		const int64_t k = (int64_t)h - p.heads - (of_v ? p.kv : 0);
		to = (uint16_t *)d.data + r * d.ld + k * 2 * p.half + j;
		const uint16_t *term = p.group == 1 ? to
						    : (of_v ? p.dv_full : p.dk_full) +
							      ((int64_t)r * p.heads + k * p.group) * 2 * p.half + j;
		fo_load8(term, x1);
		fo_load8(term + p.half, x2);
		for (int g = 1; g < p.group; g++) {
			float y1[8], y2[8];
			fo_load8(term + (int64_t)g * 2 * p.half, y1);
			fo_load8(term + (int64_t)g * 2 * p.half + p.half, y2);
#pragma unroll
			for (int e = 0; e < 8; e++)
				x1[e] += y1[e], x2[e] += y2[e];
		}
	}
	if (!of_v) {
		const float *table = (const float *)p.table.data +
				     ((const int32_t *)p.position.data)[r * p.position.ld] * p.table.ld + j;
		float cosine[8], sine[8];
		fo_load8(table, cosine);
		fo_load8(table + p.half, sine);
#pragma unroll
		for (int e = 0; e < 8; e++)
			fo_rotate(&x1[e], &x2[e], cosine[e], p.sign * sine[e]);
	}
	fo_store8(to, x1);
	fo_store8(to + p.half, x2);
}
