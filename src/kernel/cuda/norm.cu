/* RMSNorm and its gradients, and sums of columns.
 *   rstd = (mean(x^2) + eps)^-1/2, y = x rstd g
 *   dx = rstd (g dy) - x rstd^3 mean(x g dy) [+ dres], dg = sum over rows of x rstd dy
 *
 * Bound by memory: a piece (a row, or a head of it) is read once and stays packed in registers while its sum is made. A
 * team of threads takes a piece, each thread V groups of eight neighbours, so a sum is: 8 V elements in order per
 * thread, a butterfly over the warp, then over warps. The order depends on the shape alone, so the bits repeat. Times
 * at 4.3 TB/s for T = 8,192, D = 4,096 in bf16 (67 MB a tensor): rmsnorm 134 MB, 0.031 ms; add_rmsnorm 268 MB, 0.062
 * ms; rmsnorm_bwd with a residual 268 MB, 0.062 ms, without 201 MB, 0.047 ms. g, rstd and the partial sums of dg come
 * from the second-level cache.
 *
 * V = 1: pieces of up to 256 columns (heads), several to a warp. Else a block is a team. */
#include "kernel/cuda/rows.cuh"

enum { THREADS = 256, THREADS_MAX = 512 };

/* The sum over the threads of a team, the same in all of them. */
template <int V> FO_DEVICE float team_sum(float x, int team)
{
	if constexpr (V > 1) {
		return fo_block_sum(x, team / 32);
	} else {
		for (int k = team / 2; k; k >>= 1)
			x += __shfl_xor_sync(0xffffffffu, x, k);
		return x;
	}
}

/* Where a piece begins. */
struct piece_place {
	int64_t row;
	int32_t head, col;
};
FO_DEVICE piece_place place_of_piece(const fo_cuda_pieces &p, int32_t piece)
{
	piece_place at;
	const uint32_t row = fo_quotient((uint32_t)piece, p.count);
	at.row = row, at.head = piece - (int32_t)(row * p.count.value), at.col = at.head * p.width;
	return at;
}
template <typename T> FO_DEVICE T *piece_at(const fo_cuda_view &v, const piece_place &at)
{
	return (T *)v.data + at.row * v.ld + at.col;
}

/* ---- forward ---- */

template <typename T, int V, bool ADD> FO_DEVICE void norm_rows(const fo_cuda_norm_args &p)
{
	const int team = p.pieces.team, lane = V > 1 ? (int)threadIdx.x : (int)threadIdx.x & (team - 1),
		  groups = p.pieces.width / 8;
	const int32_t piece = V > 1 ? (int32_t)blockIdx.x
				    : (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / (uint32_t)team);
	const bool is = piece < p.pieces.n;
	const piece_place at = place_of_piece(p.pieces, is ? piece : 0);
	fo_pack<T> x[V], b[V], g[V];
#pragma unroll
	for (int v = 0; v < V; v++) {
		const int i = lane + v * team;
		if (!is || i >= groups) {
			x[v] = b[v] = g[v] = fo_pack_zero<T>();
			continue;
		}
		x[v] = fo_pack_load(piece_at<const T>(p.x, at) + i * 8);
		if (ADD)
			b[v] = fo_pack_load(piece_at<const T>(p.b, at) + i * 8);
		g[v] = fo_pack_load((const T *)p.g.data + i * 8);
	}
	float sum = 0;
#pragma unroll
	for (int v = 0; v < V; v++)
		fo_norm_group<T, ADD>(
			x[v], b[v],
			ADD && is && lane + v * team < groups ? piece_at<T>(p.c, at) + (lane + v * team) * 8 : NULL,
			sum);
	const float rstd = 1 / sqrtf(team_sum<V>(sum, team) / (float)p.pieces.width + p.eps);
	if (is && !lane)
		((float *)p.rstd.data)[at.row * p.rstd.ld + at.head] = rstd;
#pragma unroll
	for (int v = 0; v < V; v++) {
		if (!is || lane + v * team >= groups)
			continue;
		float e[8], f[8];
		fo_unpack(x[v], e), fo_unpack(g[v], f);
#pragma unroll
		for (int k = 0; k < 8; k++)
			e[k] = e[k] * rstd * f[k];
		fo_packed(x[v], e);
		fo_pack_store(piece_at<T>(p.y, at) + (lane + v * team) * 8, x[v]);
	}
}
#define NORM(name, type, V, add, threads) \
	FO_KERNEL(name, struct fo_cuda_norm_args, threads) { norm_rows<type, V, add>(p); }
NORM(norm_bf16_1, uint16_t, 1, false, THREADS)
NORM(norm_f32_1, float, 1, false, THREADS)
NORM(norm_bf16_4, uint16_t, 4, false, THREADS_MAX)
NORM(norm_f32_4, float, 4, false, THREADS_MAX)
NORM(add_norm_bf16_1, uint16_t, 1, true, THREADS)
NORM(add_norm_f32_1, float, 1, true, THREADS)
NORM(add_norm_bf16_4, uint16_t, 4, true, THREADS_MAX)
NORM(add_norm_f32_4, float, 4, true, THREADS_MAX)

/* A block per piece, one element at a time, any layout and types. */
FO_KERNEL(norm_any, struct fo_cuda_norm_args, THREADS)
{
	const piece_place at = place_of_piece(p.pieces, (int32_t)blockIdx.x);
	const fo_cuda_view &x = p.c.data ? p.c : p.x;
	float sum = 0;
	for (int32_t j = threadIdx.x; j < p.pieces.width; j += THREADS) {
		if (p.c.data)
			fo_view_put(p.c, at.row, at.col + j,
				    fo_view_get(p.x, at.row, at.col + j) + fo_view_get(p.b, at.row, at.col + j));
		const float e = fo_view_get(x, at.row, at.col + j);
		sum += e * e;
	}
	const float rstd = 1 / sqrtf(fo_block_sum(sum, THREADS / 32) / (float)p.pieces.width + p.eps);
	if (!threadIdx.x)
		fo_view_put(p.rstd, at.row, at.head, rstd);
	for (int32_t j = threadIdx.x; j < p.pieces.width; j += THREADS)
		fo_view_put(p.y, at.row, at.col + j,
			    fo_view_get(x, at.row, at.col + j) * rstd * fo_view_get(p.g, 0, j));
}

/* ---- backward: dx, dg or both ----
 *
 * Blocks stride over pieces. Each thread keeps the sums of dg for its columns in fp32 and asks for its next piece
 * before it waits for the sum of this one, so that reading never pauses. At the end a block leaves a row of partial
 * sums; sum_partials adds them in the order of blocks. */

template <typename T, int V> struct loaded {
	fo_pack<T> x[V], dy[V], dres[V];
	float rstd;
};
/* Operands and columns that do not exist are zeros and add nothing. */
template <typename T, int V, bool DRES>
FO_DEVICE void load_piece(const fo_cuda_norm_bwd_args &p, int32_t piece, int lane, loaded<T, V> &to)
{
	const int groups = p.pieces.width / 8;
	const bool is = piece < p.pieces.n;
	const piece_place at = place_of_piece(p.pieces, is ? piece : 0);
#pragma unroll
	for (int v = 0; v < V; v++) {
		const int i = lane + v * p.pieces.team;
		const bool in = is && i < groups;
		to.x[v] = in ? fo_pack_load(piece_at<const T>(p.x, at) + i * 8) : fo_pack_zero<T>();
		to.dy[v] = in ? fo_pack_load(piece_at<const T>(p.dy, at) + i * 8) : fo_pack_zero<T>();
		if (DRES)
			to.dres[v] = in && p.dres.data ? fo_pack_load(piece_at<const T>(p.dres, at) + i * 8)
						       : fo_pack_zero<T>();
	}
	to.rstd = is ? ((const float *)p.rstd.data)[at.row * p.rstd.ld + at.head] : 0;
}

/* Rows of partial sums of the teams of a block become one. */
FO_DEVICE void store_partial_teams(const fo_cuda_norm_bwd_args &p, const float *dg)
{
	__shared__ __align__(16) float part[8 * THREADS];
	fo_store8(part + threadIdx.x * 8, dg);
	__syncthreads();
	for (int32_t j = threadIdx.x; j < p.pieces.width; j += THREADS) {
		float sum = 0;
		for (int t = 0; t < THREADS; t += p.pieces.team)
			sum += part[t * 8 + j];
		p.partial[blockIdx.x * (int64_t)p.pieces.width + j] = sum;
	}
}

template <typename T, int V, bool DX, bool DG> FO_DEVICE void norm_backward(const fo_cuda_norm_bwd_args &p)
{
	/* Else there are not enough registers for it, nor for g and dres before they are used. */
	constexpr bool AHEAD = V * sizeof(T) <= 4;
	const int team = p.pieces.team, lane = V > 1 ? (int)threadIdx.x : (int)threadIdx.x & (team - 1),
		  groups = p.pieces.width / 8;
	const int32_t teams = V > 1 ? 1 : (int32_t)(blockDim.x / (uint32_t)team),
		      mine = V > 1 ? 0 : (int32_t)threadIdx.x / team;
	const int32_t step = (int32_t)gridDim.x * teams;
	fo_pack<T> g[V];
	float dg[V][8];
	loaded<T, V> now;
#pragma unroll
	for (int v = 0; v < V; v++) {
		if (DX && AHEAD)
			g[v] = lane + v * team < groups ? fo_pack_load((const T *)p.g.data + (lane + v * team) * 8)
							: fo_pack_zero<T>();
#pragma unroll
		for (int k = 0; k < 8; k++)
			dg[v][k] = 0;
	}
	if (AHEAD)
		load_piece<T, V, DX>(p, (int32_t)blockIdx.x * teams + mine, lane, now);
	for (int32_t base = (int32_t)blockIdx.x * teams; base < p.pieces.n; base += step) {
		loaded<T, V> next;
		float sum = 0, factor = 0;
		if (AHEAD)
			load_piece<T, V, DX>(p, base + step + mine, lane, next);
		else
			load_piece<T, V, false>(p, base + mine, lane, now);
		const bool is = base + mine < p.pieces.n;
		const piece_place at = place_of_piece(p.pieces, is ? base + mine : 0);
#pragma unroll
		for (int v = 0; v < V; v++) {
			float x[8], dy[8], w[8];
			fo_unpack(now.x[v], x), fo_unpack(now.dy[v], dy);
			if (DX && !AHEAD)
				g[v] = lane + v * team < groups
					       ? fo_pack_load((const T *)p.g.data + (lane + v * team) * 8)
					       : fo_pack_zero<T>();
			if (DX)
				fo_unpack(g[v], w);
#pragma unroll
			for (int k = 0; k < 8; k++) {
				if (DX)
					sum += x[k] * (w[k] * dy[k]);
				if (DG)
					dg[v][k] += x[k] * now.rstd * dy[k];
			}
		}
		if (DX) {
			sum = team_sum<V>(sum, team);
			factor = now.rstd * now.rstd * now.rstd * (sum / (float)p.pieces.width);
		}
#pragma unroll
		for (int v = 0; v < V; v++) {
			if (!DX || !is || lane + v * team >= groups)
				continue;
			float x[8], dy[8], w[8], r[8];
			if (!AHEAD) {
				g[v] = fo_pack_load((const T *)p.g.data + (lane + v * team) * 8);
				now.dres[v] = p.dres.data ? fo_pack_load(piece_at<const T>(p.dres, at) +
									 (lane + v * team) * 8)
							  : fo_pack_zero<T>();
			}
			fo_unpack(now.x[v], x), fo_unpack(now.dy[v], dy), fo_unpack(g[v], w), fo_unpack(now.dres[v], r);
#pragma unroll
			for (int k = 0; k < 8; k++)
				x[k] = now.rstd * (w[k] * dy[k]) - x[k] * factor + r[k];
			fo_packed(now.x[v], x);
			fo_pack_store(piece_at<T>(p.dx, at) + (lane + v * team) * 8, now.x[v]);
		}
		if (AHEAD)
			now = next;
	}
	if (DG && V == 1)
		store_partial_teams(p, dg[0]);
#pragma unroll
	for (int v = 0; v < V; v++)
		if (DG && V > 1 && lane + v * team < groups)
			fo_store8(p.partial + blockIdx.x * (int64_t)p.pieces.width + (lane + v * team) * 8, dg[v]);
}
#define NORM_BACKWARD(name, type, V, dx, dg, threads) \
	FO_KERNEL(name, struct fo_cuda_norm_bwd_args, threads) { norm_backward<type, V, dx, dg>(p); }
#define NORM_BACKWARDS(name, type)                                           \
	NORM_BACKWARD(norm_dx_##name##_1, type, 1, true, false, THREADS)     \
	NORM_BACKWARD(norm_dg_##name##_1, type, 1, false, true, THREADS)     \
	NORM_BACKWARD(norm_bwd_##name##_1, type, 1, true, true, THREADS)     \
	NORM_BACKWARD(norm_dx_##name##_2, type, 2, true, false, THREADS_MAX) \
	NORM_BACKWARD(norm_dg_##name##_2, type, 2, false, true, THREADS_MAX) \
	NORM_BACKWARD(norm_bwd_##name##_2, type, 2, true, true, THREADS_MAX)
NORM_BACKWARDS(bf16, uint16_t)
NORM_BACKWARDS(f32, float)
/* Above 8,192 columns; fp32 would need more registers than there are and goes one element at a time. */
NORM_BACKWARD(norm_dx_bf16_4, uint16_t, 4, true, false, THREADS_MAX)
NORM_BACKWARD(norm_dg_bf16_4, uint16_t, 4, false, true, THREADS_MAX)
NORM_BACKWARD(norm_bwd_bf16_4, uint16_t, 4, true, true, THREADS_MAX)

/* A block per piece. dx may lie over dy: each thread has read an element before it writes it. */
FO_KERNEL(norm_dx_any, struct fo_cuda_norm_bwd_args, THREADS)
{
	const piece_place at = place_of_piece(p.pieces, (int32_t)blockIdx.x);
	const float rstd = fo_view_get(p.rstd, at.row, at.head);
	float sum = 0;
	for (int32_t j = threadIdx.x; j < p.pieces.width; j += THREADS)
		sum += fo_view_get(p.x, at.row, at.col + j) *
		       (fo_view_get(p.g, 0, j) * fo_view_get(p.dy, at.row, at.col + j));
	const float factor = rstd * rstd * rstd * (fo_block_sum(sum, THREADS / 32) / (float)p.pieces.width);
	for (int32_t j = threadIdx.x; j < p.pieces.width; j += THREADS) {
		const float x = fo_view_get(p.x, at.row, at.col + j), dy = fo_view_get(p.dy, at.row, at.col + j);
		const float dres = p.dres.data ? fo_view_get(p.dres, at.row, at.col + j) : 0;
		fo_view_put(p.dx, at.row, at.col + j, rstd * (fo_view_get(p.g, 0, j) * dy) - x * factor + dres);
	}
}

/* ---- sums of columns ----
 *
 * bias_grad of (8192, 6144) in bf16: 101 MB, 0.023 ms. Block (slab of 256 columns, rows): each warp takes every eighth
 * row, ROWS_AHEAD at a time. */

enum { ROWS_AHEAD = 4 };

template <typename T> FO_DEVICE void column_sums(const fo_cuda_columns_args &p)
{
	enum { WARPS = THREADS / 32 };
	__shared__ __align__(16) float part[WARPS][THREADS];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t slab = (int32_t)blockIdx.x * THREADS, c = slab + lane * 8;
	const int64_t begin = (int64_t)blockIdx.y * p.rows_per_block, most = begin + p.rows_per_block,
		      end = most < p.dy.rows ? most : p.dy.rows;
	float sum[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
	for (int64_t r = begin + warp; c < p.dy.cols && r < end; r += WARPS * ROWS_AHEAD) {
		fo_pack<T> v[ROWS_AHEAD];
#pragma unroll
		for (int u = 0; u < ROWS_AHEAD; u++)
			v[u] = r + u * WARPS < end ? fo_pack_load((const T *)p.dy.data + (r + u * WARPS) * p.dy.ld + c)
						   : fo_pack_zero<T>();
#pragma unroll
		for (int u = 0; u < ROWS_AHEAD; u++) {
			float x[8];
			fo_unpack(v[u], x);
#pragma unroll
			for (int k = 0; k < 8; k++)
				sum[k] += x[k];
		}
	}
	fo_store8(&part[warp][lane * 8], sum);
	__syncthreads();
	if (slab + (int32_t)threadIdx.x >= p.dy.cols)
		return;
	float total = 0;
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		total += part[w][threadIdx.x];
	p.partial[blockIdx.y * p.dy.cols + slab + threadIdx.x] = total;
}
FO_KERNEL(columns_bf16, struct fo_cuda_columns_args, THREADS) { column_sums<uint16_t>(p); }
FO_KERNEL(columns_f32, struct fo_cuda_columns_args, THREADS) { column_sums<float>(p); }

/* Any layout and types: 32 columns of a block, pieces divided among its warps. */
FO_KERNEL(columns_any, struct fo_cuda_columns_args, THREADS)
{
	enum { WARPS = THREADS / 32 };
	__shared__ float part[WARPS][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int32_t c = (int32_t)blockIdx.x * 32 + lane;
	float sum = 0;
	for (int64_t i = warp; c < p.pieces.width && i < p.pieces.n; i += WARPS) {
		const piece_place at = place_of_piece(p.pieces, (int32_t)i);
		const float dy = fo_view_get(p.dy, at.row, at.col + c);
		sum += p.x.data ? fo_view_get(p.x, at.row, at.col + c) * fo_view_get(p.rstd, at.row, at.head) * dy : dy;
	}
	part[warp][lane] = sum;
	__syncthreads();
	if (warp || c >= p.pieces.width)
		return;
	float total = 0;
	for (int w = 0; w < WARPS; w++)
		total += part[w][lane];
	fo_view_put(p.out, 0, c, p.add ? fo_view_get(p.out, 0, c) + total : total);
}

/* Partial rows, some hundreds of them, in the second-level cache: 32 columns of a block, parts divided among its warps,
 * so that all are asked for at once. */
FO_KERNEL(sum_partials, struct fo_cuda_partials_args, THREADS_MAX)
{
	enum { WARPS = THREADS_MAX / 32, AHEAD = 8 };
	__shared__ float part[WARPS][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int64_t c = (int64_t)blockIdx.x * 32 + lane;
	float sum = 0;
	for (int i = warp; c < p.out.cols && i < p.parts; i += WARPS * AHEAD) {
		float v[AHEAD];
#pragma unroll
		for (int u = 0; u < AHEAD; u++)
			v[u] = i + u * WARPS < p.parts ? p.partial[(i + u * WARPS) * p.out.cols + c] : 0;
#pragma unroll
		for (int u = 0; u < AHEAD; u++)
			sum += v[u];
	}
	part[warp][lane] = sum;
	__syncthreads();
	if (warp || c >= p.out.cols)
		return;
	float total = 0;
#pragma unroll
	for (int w = 0; w < WARPS; w++)
		total += part[w][lane];
	fo_view_put(p.out, 0, c, p.add ? fo_view_get(p.out, 0, c) + total : total);
}
