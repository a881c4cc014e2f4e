/* Operations element by element, and rows that move. Each kernel has a fast form, eight neighbours at a time by 16-byte
 * accesses, and one for any layout of rows and any mix of bf16 and fp32 ("any"), which is for correctness and not for
 * speed.
 *
 * The fast forms are bound by memory. A thread issues all its loads before it uses any of them; a block does its share
 * and ends, so that the hardware evens out the load. Arithmetic is fp32; bf16 is rounded once at the store. Nothing is
 * summed between threads but the embedding's gradient, in a fixed order. Times at 4.3 TB/s for Llama-3.1-8B at T =
 * 8,192 tokens stand at each kernel. */
#include "kernel/cuda/rows.cuh"
#include "kernel/cuda/swiglu.cuh"

enum { THREADS = 256 };

/* Group k of a thread's share: neighbours in a warp are neighbours in memory. */
FO_DEVICE uint32_t group_of(int k, int shares)
{
	return blockIdx.x * (uint32_t)(THREADS * shares) + (uint32_t)(k * THREADS) + threadIdx.x;
}

/* ---- maps: each element of the results is a function of the elements at its place ----
 *
 *   add         c = a + b                     6 bytes an element in bf16; (8192, 4096): 201 MB, 0.047 ms
 *   add_bias    y += b for every row          4 bytes, b stays in the caches; (8192, 6144): 201 MB, 0.047 ms
 *   swiglu      y = silu(gate) up             6 bytes; (8192, 14336): 705 MB, 0.164 ms
 *   swiglu_bwd  gradients of gate and up      10 bytes; (8192, 14336): 1174 MB, 0.273 ms
 *
 * A thread has SHARE groups of eight neighbours, so that 4 to 8 accesses of 16 bytes are in flight. It loads them all,
 * packed as they lie in memory, then computes in fp32 in registers. A bias is an operand whose rows all lie at one
 * place (ld 0). A map M has the numbers of operands and results, and at(x): the elements x[IN] of one place become the
 * results, in x[0 .. OUT). */

template <typename T, typename M> FO_DEVICE void map_groups(const fo_cuda_map_args &p)
{
	fo_pack<T> v[M::SHARE][M::IN];
	fo_place at[M::SHARE];
#pragma unroll
	for (int k = 0; k < M::SHARE; k++) {
		const uint32_t i = group_of(k, M::SHARE);
		if (i >= p.groups.n)
			continue;
		at[k] = fo_place_of(i, p.groups.per_row);
#pragma unroll
		for (int n = 0; n < M::IN; n++)
			v[k][n] = fo_pack_load(fo_at<T>(p.in[n], at[k]));
	}
#pragma unroll
	for (int k = 0; k < M::SHARE; k++) {
		if (group_of(k, M::SHARE) >= p.groups.n)
			continue;
		float x[M::IN][8];
#pragma unroll
		for (int n = 0; n < M::IN; n++)
			fo_unpack(v[k][n], x[n]);
#pragma unroll
		for (int e = 0; e < 8; e++) {
			float y[M::IN];
#pragma unroll
			for (int n = 0; n < M::IN; n++)
				y[n] = x[n][e];
			M::template at<T>(y);
#pragma unroll
			for (int n = 0; n < M::OUT; n++)
				x[n][e] = y[n];
		}
#pragma unroll
		for (int n = 0; n < M::OUT; n++) {
			fo_packed(v[k][n], x[n]);
			fo_pack_store(fo_at<T>(p.out[n], at[k]), v[k][n]);
		}
	}
}
/* Any layout and types, one element at a time, in fp32. */
template <typename M> FO_DEVICE void map_any(const fo_cuda_map_args &p)
{
	FO_EACH_ELEMENT(i, r, c, p.out[0].rows, p.out[0].cols)
	{
		float x[M::IN];
		for (int n = 0; n < M::IN; n++)
			x[n] = fo_view_get(p.in[n], r, c);
		M::template at<float>(x);
		for (int n = 0; n < M::OUT; n++)
			fo_view_put(p.out[n], r, c, x[n]);
	}
}
#define MAP(name, map)                                                                             \
	FO_KERNEL(name##_bf16, struct fo_cuda_map_args, THREADS) { map_groups<uint16_t, map>(p); } \
	FO_KERNEL(name##_f32, struct fo_cuda_map_args, THREADS) { map_groups<float, map>(p); }     \
	FO_KERNEL(name##_any, struct fo_cuda_map_args, THREADS) { map_any<map>(p); }

struct add_map {
	enum { IN = 2, OUT = 1, SHARE = FO_CUDA_MAP_SHARE };
	template <typename T> static FO_DEVICE_MEMBER void at(float *x) { x[0] += x[1]; }
};
struct add_bias_map {
	enum { IN = 2, OUT = 1, SHARE = FO_CUDA_MAP_SHARE_BIAS };
	template <typename T> static FO_DEVICE_MEMBER void at(float *x) { x[0] += x[1]; }
};
struct swiglu_map {
	enum { IN = 2, OUT = 1, SHARE = FO_CUDA_MAP_SHARE };
	template <typename T> static FO_DEVICE_MEMBER void at(float *x) { x[0] = x[1] * silu(T(), x[0]); }
};
struct swiglu_bwd_map {
	enum { IN = 3, OUT = 2, SHARE = FO_CUDA_MAP_SHARE };
	template <typename T> static FO_DEVICE_MEMBER void at(float *x) { swiglu_gradient<T>(&x[0], &x[1], x[2]); }
};
MAP(add, add_map)
/* Sums that ranks share by parts: a few numbers. */
FO_KERNEL(add_f64, struct fo_cuda_map_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, c, p.out[0].rows, p.out[0].cols)
	((double *)p.out[0].data)[r * p.out[0].ld + c] = ((const double *)p.in[0].data)[r * p.in[0].ld + c] +
							 ((const double *)p.in[1].data)[r * p.in[1].ld + c];
}
MAP(add_bias, add_bias_map)
MAP(swiglu, swiglu_map)
MAP(swiglu_bwd, swiglu_bwd_map)

/* ---- rotations: 4 bytes an element in bf16; (8192, 40 heads x 128): 168 MB, 0.039 ms ----
 *
 * A thread turns eight pairs of each of FO_CUDA_ROPE_HEADS heads, so the table is read (from the second-level cache,
 * 512 bytes a token) ten times for 40 heads and not forty. Eight threads read whole lines of 128 bytes at a head size
 * of 128. */

template <typename T> FO_DEVICE void rope_rows(const fo_cuda_rope_args &p)
{
	const uint32_t i = blockIdx.x * (uint32_t)THREADS + threadIdx.x;
	if (i >= p.items)
		return;
	const uint32_t r = fo_quotient(i, p.per_row), rest = i - r * p.per_row.value,
		       slab = fo_quotient(rest, p.per_slab);
	const int j = (int)(rest - slab * p.per_slab.value) * 8, first = (int)slab * FO_CUDA_ROPE_HEADS;
	T *x = (T *)p.x.data + r * p.x.ld + j;
	fo_pack<T> a[FO_CUDA_ROPE_HEADS], b[FO_CUDA_ROPE_HEADS];
#pragma unroll
	for (int h = 0; h < FO_CUDA_ROPE_HEADS; h++)
		if (first + h < p.heads) {
			a[h] = fo_pack_load(x + (first + h) * 2 * p.half);
			b[h] = fo_pack_load(x + (first + h) * 2 * p.half + p.half);
		}
	const float *table = (const float *)p.table.data +
			     ((const int32_t *)p.position.data)[r * p.position.ld] * p.table.ld + j;
	float cosine[8], sine[8];
	fo_load8(table, cosine);
	fo_load8(table + p.half, sine);
#pragma unroll
	for (int e = 0; e < 8; e++)
		sine[e] *= p.sign;
#pragma unroll
	for (int h = 0; h < FO_CUDA_ROPE_HEADS; h++)
		if (first + h < p.heads) {
			float x1[8], x2[8];
			fo_unpack(a[h], x1), fo_unpack(b[h], x2);
#pragma unroll
			for (int e = 0; e < 8; e++)
				fo_rotate(&x1[e], &x2[e], cosine[e], sine[e]);
			fo_packed(a[h], x1), fo_packed(b[h], x2);
			fo_pack_store(x + (first + h) * 2 * p.half, a[h]);
			fo_pack_store(x + (first + h) * 2 * p.half + p.half, b[h]);
		}
}
FO_KERNEL(rope_bf16, struct fo_cuda_rope_args, THREADS) { rope_rows<uint16_t>(p); }
FO_KERNEL(rope_f32, struct fo_cuda_rope_args, THREADS) { rope_rows<float>(p); }
FO_KERNEL(rope_any, struct fo_cuda_rope_args, THREADS)
{
	const int64_t per_row = (int64_t)p.heads * p.half;
	FO_EACH(i, p.x.rows * per_row)
	{
		const int64_t r = i / per_row, j = i % per_row % p.half, at = i % per_row / p.half * 2 * p.half + j;
		const int64_t position = ((const int32_t *)p.position.data)[r * p.position.ld];
		float x1 = fo_view_get(p.x, r, at), x2 = fo_view_get(p.x, r, at + p.half);
		fo_rotate(&x1, &x2, fo_view_get(p.table, position, j),
			  p.sign * fo_view_get(p.table, position, p.half + j));
		fo_view_put(p.x, r, at, x1);
		fo_view_put(p.x, r, at + p.half, x2);
	}
}

/* ---- rows from here to there: embedding, key-value cache, the last row; (8192, 4096) in bf16: 134 MB, 0.031 ms ----
 */

constexpr int64_t NO_ROW = -1, ZEROS = -2;

/* Row of x for row r of the loop, NO_ROW, or ZEROS that stand for one; *to is the row of y. */
FO_DEVICE int64_t copy_from(const fo_cuda_copy_args &p, int64_t r, int64_t *to)
{
	const int32_t *index = (const int32_t *)p.index.data;
	*to = p.mode == FO_CUDA_COPY_PUT ? index[0] + r : r;
	if (p.mode == FO_CUDA_COPY_GATHER) {
		const int64_t row = index[r * p.index.ld] - p.first;
		return row >= 0 && row < p.x.rows ? row : ZEROS;
	}
	if (p.mode == FO_CUDA_COPY_LAST)
		return index[1] - 1;
	return r < index[1] ? r : NO_ROW;
}

/* Units of 16 bytes, whatever they hold: x and y are of one type. */
FO_KERNEL(copy_rows_16, struct fo_cuda_copy_args, THREADS)
{
	const int bytes = p.x.dtype == FO_CUDA_BF16 ? 2 : 4;
	fo_16 v[FO_CUDA_COPY_SHARE];
	unsigned char *to[FO_CUDA_COPY_SHARE];
#pragma unroll
	for (int k = 0; k < FO_CUDA_COPY_SHARE; k++) {
		const uint32_t i = group_of(k, FO_CUDA_COPY_SHARE);
		to[k] = NULL;
		if (i >= p.units)
			continue;
		const uint32_t r = fo_quotient(i, p.per_row), at = (i - r * p.per_row.value) * 16;
		int64_t y;
		const int64_t x = copy_from(p, r, &y);
		if (x == NO_ROW)
			continue;
		if (x >= 0)
			v[k] = *reinterpret_cast<const fo_16 *>((const unsigned char *)p.x.data + x * p.x.ld * bytes +
								at);
		else
			v[k].w[0] = v[k].w[1] = v[k].w[2] = v[k].w[3] = 0;
		to[k] = (unsigned char *)p.y.data + y * p.y.ld * bytes + at;
	}
#pragma unroll
	for (int k = 0; k < FO_CUDA_COPY_SHARE; k++)
		if (to[k])
			*reinterpret_cast<fo_16 *>(to[k]) = v[k];
}
FO_KERNEL(copy_rows_any, struct fo_cuda_copy_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, c, p.rows, p.y.cols)
	{
		int64_t y;
		const int64_t x = copy_from(p, r, &y);
		if (x != NO_ROW)
			fo_view_put(p.y, y, c, x >= 0 ? fo_view_get(p.x, x, c) : 0);
	}
}

/* ---- heads of the ranks of a cp group ---- */

/* What a rank has of one row and what all have lie alike, but for where they begin: x and y are of one type, and no
 * head is on two ranks, or nothing is added up. */
FO_KERNEL(heads_16, struct fo_cuda_heads_args, THREADS)
{
	const int bytes = p.x.dtype == FO_CUDA_BF16 ? 2 : 4;
	const uint32_t i = group_of(0, 1);
	if (i >= p.units)
		return;
	const int64_t r = fo_quotient(i, p.per_row), at = (int64_t)(i - r * p.per_row.value) * 16;
	int64_t row, from;
	if (p.together) {
		const int64_t part = p.x.cols * bytes;
		row = at / part * p.y.rows + r;
		from = at % part;
	} else {
		row = r % p.x.rows;
		from = (int64_t)p.heads * (r / p.x.rows) / p.ranks * p.head_dim * bytes + at;
	}
	*reinterpret_cast<fo_16 *>((unsigned char *)p.y.data + r * p.y.ld * bytes + at) =
		*reinterpret_cast<const fo_16 *>((const unsigned char *)p.x.data + row * p.x.ld * bytes + from);
}
FO_KERNEL(heads_any, struct fo_cuda_heads_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, c, p.y.rows, p.y.cols)
	{
		if (!p.together) {
			const int64_t first = (int64_t)p.heads * (r / p.x.rows) / p.ranks * p.head_dim;
			fo_view_put(p.y, r, c, fo_view_get(p.x, r % p.x.rows, first + c));
			continue;
		}
		const int64_t first = c / p.head_dim * p.ranks / p.heads,
			      end = first + (p.ranks > p.heads ? p.ranks / p.heads : 1);
		float sum = 0;
		for (int64_t rank = first; rank < end; rank++)
			sum += fo_view_get(p.x, rank * p.y.rows + r, c % p.x.cols);
		fo_view_put(p.y, r, c, sum);
	}
}

/* ---- gradient of the embedding ----
 *
 * Every row of the table is summed by whoever finds the first of its tokens, in the order of positions and in fp32:
 * nobody else adds to it, so there is no atomic addition and the bits repeat. Who is first is found by counting: a
 * token's place in the order of (id, position) is the number of tokens that come before it there, T comparisons for
 * each of T tokens (8,192: 0.008 ms, 32,768: 0.13 ms of a device's integer rate). Its rank among its like marks what
 * belongs together: from a token of rank 0 at p, tokens p + j have rank j as long as they are of the same id, and never
 * after.
 *
 * Most ids occur a few times: a thread sums them for its 8 columns. More than FO_CUDA_EMBED_FEW are divided among the 8
 * warps of a block and narrower slabs of columns, or the one most frequent word would be what all wait for. dx is read
 * once, rows of the table that occur are written (where they are added to: read too); T = 8192, D = 4096, bf16, 2,000
 * different ids: 67 + 33 MB, 0.023 ms. A table that is stored anew is filled with zeros before, 4 bytes an element:
 * (128256, 4096) 2.1 GB, 0.49 ms. Rows that occur, at most T of V, are not left out of it: that would save 6 % of the
 * fill at 8,192 tokens and cost a look at every row. */

FO_KERNEL(zero_any, struct fo_cuda_zero_args, THREADS)
{
	FO_EACH_ELEMENT(i, r, c, p.t.rows, p.t.cols)
	fo_view_put(p.t, r, c, 0);
}

/* A warp compares 32 positions with one of every eight parts of a tile of tokens. */
FO_KERNEL(embed_order, struct fo_cuda_embed_order_args, THREADS)
{
	enum { WARPS = THREADS / 32, PART = 128, TILE = WARPS * PART, NEVER = 0x7fffffff };
	__shared__ __align__(16) int32_t tile[TILE];
	__shared__ int32_t before[WARPS][32], like[WARPS][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t n = (int32_t)p.token.rows, low = (int32_t)blockIdx.x * FO_CUDA_EMBED_ORDERED, own = low + lane;
	const int32_t *token = (const int32_t *)p.token.data;
	const int32_t mine = own < n ? token[own * p.token.ld] : NEVER;
	int32_t less = 0, same = 0;
	for (int32_t base = 0; base < n; base += TILE) {
		__syncthreads();
		for (int32_t k = threadIdx.x; k < TILE; k += THREADS)
			tile[k] = base + k < n ? token[(base + k) * p.token.ld] : NEVER;
		__syncthreads();
		const int32_t begin = base + warp * PART;
		const int32_t *part = tile + warp * PART;
		if (begin + PART <= low) { /* all before all of ours: equal ones come before too */
#pragma unroll 16
			for (int k = 0; k < PART; k++) {
				less += part[k] < mine;
				same += part[k] == mine;
			}
		} else if (begin >= low + FO_CUDA_EMBED_ORDERED) {
#pragma unroll 16
			for (int k = 0; k < PART; k++)
				less += part[k] < mine;
		} else {
#pragma unroll 4
			for (int k = 0; k < PART; k++) {
				less += part[k] < mine;
				same += part[k] == mine && begin + k < own;
			}
		}
	}
	before[warp][lane] = less, like[warp][lane] = same;
	__syncthreads();
	if (warp || own >= n)
		return;
	less = same = 0;
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		less += before[w][lane], same += like[w][lane];
	p.order[less + same] = own;
	p.rank[less + same] = same;
}

/* Position of the token j places behind p in the order, if it is of the same id; else -1. */
FO_DEVICE int32_t occurrence(const fo_cuda_embed_sum_args &p, int32_t at, int32_t j)
{
	return at + j < p.token.rows && p.rank[at + j] == j ? p.order[at + j] : -1;
}
/* Of the id at place `at` of the order; -1: the table does not have it. */
FO_DEVICE int64_t table_row(const fo_cuda_embed_sum_args &p, int32_t at)
{
	const int64_t row = ((const int32_t *)p.token.data)[p.order[at] * p.token.ld] - p.first;
	return row >= 0 && row < p.table.rows ? row : -1;
}

enum { BATCH = 4 }; /* rows that a thread reads at a time */

/* sum[8] += rows j, j + step, ... of the id whose first is at `at`, columns c and on, up to `end` of them. */
template <typename T>
FO_DEVICE void sum_occurrences(const fo_cuda_embed_sum_args &p, int32_t at, int32_t j, int step, int32_t c, float *sum)
{
	for (;; j += BATCH * step) {
		int32_t row[BATCH];
		fo_pack<T> v[BATCH];
#pragma unroll
		for (int u = 0; u < BATCH; u++)
			row[u] = occurrence(p, at, j + u * step);
#pragma unroll
		for (int u = 0; u < BATCH; u++)
			if (row[u] >= 0)
				v[u] = fo_pack_load((const T *)p.dx.data + row[u] * p.dx.ld + c);
#pragma unroll
		for (int u = 0; u < BATCH; u++) {
			if (row[u] < 0)
				return;
			float x[8];
			fo_unpack(v[u], x);
#pragma unroll
			for (int e = 0; e < 8; e++)
				sum[e] += x[e];
		}
	}
}
FO_DEVICE bool many_of(const fo_cuda_embed_sum_args &p, int32_t at)
{
	return occurrence(p, at, FO_CUDA_EMBED_FEW) >= 0;
}

/* Block (p, slab of 8 THREADS columns). */
template <typename T> FO_DEVICE void embed_few(const fo_cuda_embed_sum_args &p)
{
	const int32_t at = (int32_t)blockIdx.x, c = ((int32_t)blockIdx.y * THREADS + (int32_t)threadIdx.x) * 8;
	if (p.rank[at] || c >= p.dx.cols || many_of(p, at))
		return;
	const int64_t row = table_row(p, at);
	if (row < 0)
		return;
	float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, old[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
	if (p.add && p.table.dtype == FO_CUDA_BF16)
		fo_load8((const uint16_t *)p.table.data + row * p.table.ld + c, old);
	else if (p.add)
		fo_load8((const float *)p.table.data + row * p.table.ld + c, old);
	sum_occurrences<T>(p, at, 0, 1, c, sum);
#pragma unroll
	for (int e = 0; e < 8; e++)
		sum[e] += old[e];
	if (p.table.dtype == FO_CUDA_BF16)
		fo_store8((uint16_t *)p.table.data + row * p.table.ld + c, sum);
	else
		fo_store8((float *)p.table.data + row * p.table.ld + c, sum);
}
FO_KERNEL(embed_few_bf16, struct fo_cuda_embed_sum_args, THREADS) { embed_few<uint16_t>(p); }
FO_KERNEL(embed_few_f32, struct fo_cuda_embed_sum_args, THREADS) { embed_few<float>(p); }

/* Block (FO_CUDA_EMBED_FEW places of the order, slab of 256 columns): of an id that occurs more often than that, the
 * token of rank FO_CUDA_EMBED_FEW lies in one block's places and in no other's, and no two ids' lie in one block's. */
template <typename T> FO_DEVICE void embed_many(const fo_cuda_embed_sum_args &p)
{
	__shared__ __align__(16) float part[THREADS / 32][THREADS];
	const int32_t n = (int32_t)p.token.rows, place = (int32_t)blockIdx.x * FO_CUDA_EMBED_FEW;
	int32_t at = -1;
#pragma unroll
	for (int k = 0; k < FO_CUDA_EMBED_FEW; k++)
		if (place + k < n && p.rank[place + k] == FO_CUDA_EMBED_FEW)
			at = place + k - FO_CUDA_EMBED_FEW;
	if (at < 0 || table_row(p, at) < 0)
		return;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t slab = (int32_t)blockIdx.y * THREADS;
	float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
	if (slab + lane * 8 < p.dx.cols)
		sum_occurrences<T>(p, at, warp, THREADS / 32, slab + lane * 8, sum);
	fo_store8(&part[warp][lane * 8], sum);
	__syncthreads();
	const int64_t row = table_row(p, at), c = slab + threadIdx.x;
	if (c >= p.dx.cols)
		return;
	float total = 0;
#pragma unroll
	for (int w = 0; w < THREADS / 32; w++)
		total += part[w][threadIdx.x];
	fo_view_put(p.table, row, c, p.add ? fo_view_get(p.table, row, c) + total : total);
}
FO_KERNEL(embed_many_bf16, struct fo_cuda_embed_sum_args, THREADS) { embed_many<uint16_t>(p); }
FO_KERNEL(embed_many_f32, struct fo_cuda_embed_sum_args, THREADS) { embed_many<float>(p); }

/* Block p: one column at a time. */
FO_KERNEL(embed_any, struct fo_cuda_embed_sum_args, THREADS)
{
	const int32_t at = (int32_t)blockIdx.x;
	if (p.rank[at])
		return;
	const int64_t row = table_row(p, at);
	if (row < 0)
		return;
	for (int64_t c = threadIdx.x; c < p.dx.cols; c += blockDim.x) {
		float sum = 0;
		for (int32_t j = 0, o; (o = occurrence(p, at, j)) >= 0; j++)
			sum += fo_view_get(p.dx, o, c);
		fo_view_put(p.table, row, c, p.add ? fo_view_get(p.table, row, c) + sum : sum);
	}
}
