/* Attention of our own, for calls that cuDNN does not take: fp32, odd head sizes, windows that it refuses, no cuDNN.
 * Plain fp32 arithmetic without tensor cores, by the algorithm of FlashAttention: o = softmax(scale q k') v over tiles
 * of keys with a running maximum and sum, and the scores recomputed in backward. It is right in every layout and gives
 * the same bits in every run; speed comes from cuDNN.
 *
 * Three kernels have one form. A block owns ROWS rows of one head (queries; attention_dkv: keys), PER of them per warp,
 * and walks over tiles of COLS columns (keys; attention_dkv: queries) in shared memory. For scores a thread has one
 * column and the warp's PER rows, so that a value from shared memory serves PER products. For sums over columns a
 * thread has the elements lane, lane + 32, ... of each row, in registers.
 *
 * Query i sees the keys first .. last of span_of. doc_start does not decrease, so the walk over a key's queries ends
 * where the first query of a tile no longer sees any key of the block. With RING keys are another rank's
 * (program/ring.h): then a query may see none, and the queries that see a key may begin anywhere. */
#include "kernel/cuda/device.cuh"

enum {
	ROWS = FO_CUDA_ATTENTION_ROWS,
	COLS = FO_CUDA_ATTENTION_COLS,
	THREADS = FO_CUDA_ATTENTION_THREADS,
	WARPS = THREADS / 32,
	PER = ROWS / WARPS,
	DECODE_THREADS = FO_CUDA_THREADS,
	DECODE_WARPS = DECODE_THREADS / 32,
	AHEAD = 4, /* keys that a warp of attention_decode has under way at once */
};

#define MINUS_INF __uint_as_float(0xff800000u)

struct span {
	int32_t first, last; /* last < first: sees nothing */
};
FO_DEVICE int32_t at_least(int32_t a, int32_t b) { return a > b ? a : b; }
FO_DEVICE int32_t at_most(int32_t a, int32_t b) { return a < b ? a : b; }
/* Entries of doc outside 0 .. i are clamped: wrong contents give wrong numbers, not wrong addresses. */
FO_DEVICE span doc_span(const fo_cuda_view &doc, int32_t window, int32_t i)
{
	const int32_t start = at_most(at_least(((const int32_t *)doc.data)[(int64_t)i * doc.ld], 0), i);
	return span{ window ? at_least(start, i - window + 1) : start, i };
}
FO_DEVICE span ring_span(const fo_cuda_view &doc, int32_t window, const fo_key_ring &ring, int32_t i)
{
	const fo_ring_keys see = fo_ring_see(&ring, window, i, ((const int32_t *)doc.data)[(int64_t)i * doc.ld]);
	return span{ see.first, see.end - 1 };
}
template <bool RING> FO_DEVICE span span_of(const fo_cuda_attention_bwd_args &p, int32_t i)
{
	return RING ? ring_span(p.doc, p.window, p.ring, i) : doc_span(p.doc, p.window, i);
}
template <bool RING> FO_DEVICE span span_of(const fo_cuda_attention_args &p, int32_t i)
{
	if (i >= p.q.rows)
		return span{ 0, -1 };
	if (RING)
		return ring_span(p.doc, p.window, p.ring, i);
	if (!p.cached)
		return doc_span(p.doc, p.window, i);
	const int32_t *s = (const int32_t *)p.doc.data;
	if (i >= s[1])
		return span{ 0, -1 };
	const int32_t last = at_most(at_least(s[0], 0) + i, (int32_t)p.k.rows - 1);
	return span{ p.window ? at_least(0, last - p.window + 1) : 0, last };
}

/* Shared memory of a block: rows a and b, column tiles x and y, weights of rows by columns. */
struct tiles {
	float *a, *b, *x, *y, *s, *t;
	int ld; /* from one column of x or y to the next */
};
FO_DEVICE tiles tiles_in(int dim)
{
	FO_SHARED_DYNAMIC(shared);
	tiles t;
	t.ld = dim + 1;
	t.a = (float *)shared;
	t.b = t.a + ROWS * dim;
	t.x = t.b + ROWS * dim;
	t.y = t.x + COLS * t.ld;
	t.s = t.y + COLS * t.ld;
	t.t = t.s + ROWS * COLS;
	return t;
}
/* n rows from row `from` of a head into to, row distance ld; rows outside low .. high as zeros. */
FO_DEVICE void fetch(float *to, int ld, const fo_cuda_view &v, int head, int dim, int32_t from, int n, int32_t low,
		     int32_t high)
{
	for (int k = threadIdx.x; k < n * dim; k += THREADS) {
		const int r = k / dim, d = k % dim;
		const int32_t i = from + r;
		to[r * ld + d] = i >= low && i <= high ? fo_view_get(v, i, (int64_t)head * dim + d) : 0;
	}
}
/* out[r] = row r of this warp times this thread's column */
FO_DEVICE void dots(float *out, const float *rows, const float *cols, int dim, int ld)
{
	const float *row = rows + threadIdx.x / 32 * PER * dim, *col = cols + threadIdx.x % 32 * ld;
#pragma unroll
	for (int r = 0; r < PER; r++)
		out[r] = 0;
	for (int d = 0; d < dim; d++) {
		const float x = col[d];
#pragma unroll
		for (int r = 0; r < PER; r++)
			out[r] += row[r * dim + d] * x;
	}
}
/* sum[r][n] += sum over columns of weight x column */
template <int N> FO_DEVICE void combine(float (*sum)[N], const float *weight, const float *cols, int dim, int ld)
{
	const int lane = threadIdx.x % 32;
	const float *w = weight + threadIdx.x / 32 * PER * COLS;
	for (int j = 0; j < COLS; j++) {
		float s[PER];
#pragma unroll
		for (int r = 0; r < PER; r++)
			s[r] = w[r * COLS + j];
#pragma unroll
		for (int n = 0; n < N; n++) {
			const float x = lane + 32 * n < dim ? cols[j * ld + lane + 32 * n] : 0;
#pragma unroll
			for (int r = 0; r < PER; r++)
				sum[r][n] += s[r] * x;
		}
	}
}
template <int N>
FO_DEVICE void put_row(const fo_cuda_view &to, int64_t i, int head, int dim, const float *sum, float factor)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		const int d = (int)(threadIdx.x % 32) + 32 * n;
		if (d < dim)
			fo_view_put(to, i, (int64_t)head * dim + d, sum[n] * factor);
	}
}
/* sum[n] += row i of `from` */
template <int N> FO_DEVICE void add_row(float *sum, const fo_cuda_view &from, int64_t i, int head, int dim)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		const int d = (int)(threadIdx.x % 32) + 32 * n;
		if (d < dim)
			sum[n] += fo_view_get(from, i, (int64_t)head * dim + d);
	}
}

/* ---- forward ---- */

/* Online softmax over tiles: m is the largest score so far, l this thread's share of the sum of exp(score - m). */
template <int N, bool RING> FO_DEVICE void forward(const fo_cuda_attention_args &p)
{
	const tiles t = tiles_in(p.dim);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, kv = head / p.group;
	/* The longest rows come first, so that blocks end together. */
	const int32_t i0 = (int32_t)(gridDim.x - 1 - blockIdx.x) * ROWS;
	int32_t low = 0x7fffffff, high = -1;
	for (int r = 0; r < ROWS; r++) {
		const span s = span_of<RING>(p, i0 + r);
		if (s.last >= s.first) {
			low = at_most(low, s.first);
			high = at_least(high, s.last);
		}
	}
	span see[PER];
	float m[PER], l[PER], o[PER][N];
#pragma unroll
	for (int r = 0; r < PER; r++) {
		see[r] = span_of<RING>(p, i0 + warp * PER + r);
		m[r] = MINUS_INF;
		l[r] = 0;
#pragma unroll
		for (int n = 0; n < N; n++)
			o[r][n] = 0;
	}
	fetch(t.a, p.dim, p.q, head, p.dim, i0, ROWS, 0, (int32_t)p.q.rows - 1);
	for (int32_t j0 = low; j0 <= high; j0 += COLS) {
		float s[PER];
		__syncthreads(); /* others may still read the tile before */
		fetch(t.x, t.ld, p.k, kv, p.dim, j0, COLS, low, high);
		fetch(t.y, t.ld, p.v, kv, p.dim, j0, COLS, low, high);
		__syncthreads();
		dots(s, t.a, t.x, p.dim, t.ld);
#pragma unroll
		for (int r = 0; r < PER; r++) {
			const bool ok = j0 + lane >= see[r].first && j0 + lane <= see[r].last;
			const float x = ok ? s[r] * p.scale : MINUS_INF, top = fmaxf(m[r], fo_warp_max(x));
			const float keep = m[r] == top ? 1 : expf(m[r] - top), e = ok ? expf(x - top) : 0;
			m[r] = top;
			l[r] = l[r] * keep + e;
#pragma unroll
			for (int n = 0; n < N; n++)
				o[r][n] *= keep;
			t.s[(warp * PER + r) * COLS + lane] = e;
		}
		__syncthreads();
		combine<N>(o, t.s, t.y, p.dim, t.ld);
	}
#pragma unroll
	for (int r = 0; r < PER; r++) {
		const int32_t i = i0 + warp * PER + r;
		const float sum = fo_warp_sum(l[r]);
		if (i >= p.o.rows)
			continue;
		put_row<N>(p.o, i, head, p.dim, o[r], see[r].last < see[r].first ? 0 : 1 / sum);
		if (!p.cached && lane == 0)
			fo_view_put(p.lse, i, head,
				    RING && see[r].last < see[r].first ? (float)FO_RING_UNSEEN : m[r] + logf(sum));
	}
}
FO_KERNEL(attention_4, struct fo_cuda_attention_args, THREADS) { forward<4, false>(p); }
FO_KERNEL(attention_8, struct fo_cuda_attention_args, THREADS) { forward<8, false>(p); }
FO_KERNEL(attention_block_4, struct fo_cuda_attention_args, THREADS) { forward<4, true>(p); }
FO_KERNEL(attention_block_8, struct fo_cuda_attention_args, THREADS) { forward<8, true>(p); }

/* A warp per token and head. Of the larger lse the weight is 1 / (1 + e), of the other e / (1 + e), where e =
 * exp(-|lse - lseb|): they sum to 1, and what saw no key has weight 0 where the other saw one. */
FO_KERNEL(attention_merge, struct fo_cuda_attention_merge_args, FO_CUDA_THREADS)
{
	const int lane = threadIdx.x % 32;
	const int64_t n = p.o.rows * p.heads, warps = (int64_t)gridDim.x * (FO_CUDA_THREADS / 32);
	for (int64_t k = (int64_t)blockIdx.x * (FO_CUDA_THREADS / 32) + threadIdx.x / 32; k < n; k += warps) {
		const int64_t i = k / p.heads, h = k - i * p.heads;
		const float x = fo_view_get(p.lse, i, h), y = fo_view_get(p.lseb, i, h), e = expf(-fabsf(x - y)),
			    more = 1 / (1 + e), less = e * more, keep = x >= y ? more : less,
			    take = x >= y ? less : more;
		for (int64_t d = h * p.dim + lane; d < (h + 1) * p.dim; d += 32)
			fo_view_put(p.o, i, d, fo_view_get(p.o, i, d) * keep + fo_view_get(p.ob, i, d) * take);
		__syncwarp(); /* all have read lse */
		if (lane == 0)
			fo_view_put(p.lse, i, h, (x >= y ? x : y) + log1pf(e));
	}
}

/* ---- few queries over a long cache ---- */

/* A block per query and head; its warps take AHEAD keys in turn, each with a softmax of its own, joined at the end in
 * the order of warps. Reads each kv head's keys and values once per query head: T H dim S (bytes of k + of v). */
template <int N> FO_DEVICE void decode(const fo_cuda_attention_args &p)
{
	__shared__ float top[DECODE_WARPS], part[DECODE_WARPS], out[DECODE_WARPS * 32 * N];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y;
	const int64_t column = (int64_t)(head / p.group) * p.dim;
	const span see = span_of<false>(p, (int32_t)blockIdx.x);
	float q[N], o[N], m = MINUS_INF, l = 0;
#pragma unroll
	for (int n = 0; n < N; n++) {
		q[n] = lane + 32 * n < p.dim ? fo_view_get(p.q, blockIdx.x, (int64_t)head * p.dim + lane + 32 * n) : 0;
		o[n] = 0;
	}
	for (int32_t j0 = see.first + warp * AHEAD; j0 <= see.last; j0 += DECODE_WARPS * AHEAD) {
		float s[AHEAD], k[AHEAD][N], v[AHEAD][N], now = m;
#pragma unroll
		for (int a = 0; a < AHEAD; a++)
#pragma unroll
			for (int n = 0; n < N; n++) {
				const bool there = j0 + a <= see.last && lane + 32 * n < p.dim;
				k[a][n] = there ? fo_view_get(p.k, j0 + a, column + lane + 32 * n) : 0;
				v[a][n] = there ? fo_view_get(p.v, j0 + a, column + lane + 32 * n) : 0;
			}
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			float x = 0;
#pragma unroll
			for (int n = 0; n < N; n++)
				x += q[n] * k[a][n];
			x = fo_warp_sum(x) * p.scale;
			s[a] = j0 + a <= see.last ? x : MINUS_INF;
			now = fmaxf(now, s[a]);
		}
		const float keep = m == now ? 1 : expf(m - now);
		m = now;
		l *= keep;
#pragma unroll
		for (int n = 0; n < N; n++)
			o[n] *= keep;
#pragma unroll
		for (int a = 0; a < AHEAD; a++) {
			const float e = j0 + a <= see.last ? expf(s[a] - m) : 0;
			l += e;
#pragma unroll
			for (int n = 0; n < N; n++)
				o[n] += e * v[a][n];
		}
	}
	if (lane == 0) {
		top[warp] = m;
		part[warp] = l;
	}
#pragma unroll
	for (int n = 0; n < N; n++)
		out[warp * 32 * N + lane + 32 * n] = o[n];
	__syncthreads();
	for (int w = 0; w < DECODE_WARPS; w++)
		m = fmaxf(m, top[w]);
	for (int d = threadIdx.x; d < p.dim; d += DECODE_THREADS) {
		float sum = 0, x = 0;
		for (int w = 0; w < DECODE_WARPS; w++) {
			const float f = top[w] == m ? 1 : expf(top[w] - m);
			sum += part[w] * f;
			x += out[w * 32 * N + d] * f;
		}
		fo_view_put(p.o, blockIdx.x, (int64_t)head * p.dim + d, see.last < see.first ? 0 : x / sum);
	}
}
FO_KERNEL(attention_decode_4, struct fo_cuda_attention_args, DECODE_THREADS) { decode<4>(p); }
FO_KERNEL(attention_decode_8, struct fo_cuda_attention_args, DECODE_THREADS) { decode<8>(p); }

/* ---- backward ---- */

/* With p = exp(scale q k' - lse), dp = do v', delta = do o' (Dao et al. 2022, section B.4): ds = p (dp - delta) scale,
 * dq = ds k. */
template <int N, bool RING> FO_DEVICE void backward_q(const fo_cuda_attention_bwd_args &p)
{
	const tiles t = tiles_in(p.dim);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, kv = head / p.group;
	const int32_t i0 = (int32_t)(gridDim.x - 1 - blockIdx.x) * ROWS, end = (int32_t)p.q.rows,
		      last_query = at_most(i0 + ROWS, end) - 1,
		      high = RING ? span_of<RING>(p, last_query).last : last_query;
	span see[PER];
	float lse[PER], delta[PER], dq[PER][N];
	fetch(t.a, p.dim, p.q, head, p.dim, i0, ROWS, 0, end - 1);
	fetch(t.b, p.dim, p.dout, head, p.dim, i0, ROWS, 0, end - 1);
#pragma unroll
	for (int r = 0; r < PER; r++) {
		const int32_t i = i0 + warp * PER + r;
		see[r] = i < end ? span_of<RING>(p, i) : span{ 0, -1 };
		lse[r] = i < end ? fo_view_get(p.lse, i, head) : 0;
#pragma unroll
		for (int n = 0; n < N; n++)
			dq[r][n] = 0;
	}
	/* delta is summed by one thread in the order of dots(), so that a query which sees only its own key has dp =
	 * delta to the last bit, and ds = 0. */
	float mine = 0;
	const int32_t i = i0 + warp * PER + lane;
	if (lane < PER && i < end) {
		for (int d = 0; d < p.dim; d++)
			mine += fo_view_get(p.dout, i, (int64_t)head * p.dim + d) *
				fo_view_get(p.o, i, (int64_t)head * p.dim + d);
		p.delta[(int64_t)i * p.heads + head] = mine;
	}
#pragma unroll
	for (int r = 0; r < PER; r++)
		delta[r] = __shfl_sync(0xffffffffu, mine, r);
	const int32_t low = span_of<RING>(p, i0).first; /* does not decrease from row to row */
	for (int32_t j0 = low; j0 <= high; j0 += COLS) {
		float s[PER], dp[PER];
		__syncthreads();
		fetch(t.x, t.ld, p.k, kv, p.dim, j0, COLS, low, high);
		fetch(t.y, t.ld, p.v, kv, p.dim, j0, COLS, low, high);
		__syncthreads();
		dots(s, t.a, t.x, p.dim, t.ld);
		dots(dp, t.b, t.y, p.dim, t.ld);
#pragma unroll
		for (int r = 0; r < PER; r++) {
			const bool ok = j0 + lane >= see[r].first && j0 + lane <= see[r].last;
			const float ds = ok ? expf(s[r] * p.scale - lse[r]) * (dp[r] - delta[r]) * p.scale : 0;
			t.s[(warp * PER + r) * COLS + lane] = ds;
		}
		__syncthreads();
		combine<N>(dq, t.s, t.x, p.dim, t.ld);
	}
#pragma unroll
	for (int r = 0; r < PER; r++)
		if (i0 + warp * PER + r < end) {
			if (RING && p.add)
				add_row<N>(dq[r], p.dq, i0 + warp * PER + r, head, p.dim);
			put_row<N>(p.dq, i0 + warp * PER + r, head, p.dim, dq[r], 1);
		}
}
FO_KERNEL(attention_dq_4, struct fo_cuda_attention_bwd_args, THREADS) { backward_q<4, false>(p); }
FO_KERNEL(attention_dq_8, struct fo_cuda_attention_bwd_args, THREADS) { backward_q<8, false>(p); }
FO_KERNEL(attention_block_dq_4, struct fo_cuda_attention_bwd_args, THREADS) { backward_q<4, true>(p); }
FO_KERNEL(attention_block_dq_8, struct fo_cuda_attention_bwd_args, THREADS) { backward_q<8, true>(p); }

/* The first query from which on tiles are worth a look for keys from j0 on: j0 itself, as no query before it sees them;
 * RING: of the first tile whose last query sees one. */
template <bool RING> FO_DEVICE int32_t first_query(const fo_cuda_attention_bwd_args &p, int32_t j0)
{
	if (!RING)
		return j0;
	const int32_t end = (int32_t)p.q.rows;
	int32_t low = 0, high = (end + COLS - 1) / COLS;
	while (low < high) {
		const int32_t mid = (low + high) / 2;
		if (span_of<RING>(p, at_most((mid + 1) * COLS, end) - 1).last >= j0)
			high = mid;
		else
			low = mid + 1;
	}
	return low * COLS;
}

/* dk += ds' q and dv += p' do over the query heads of the group in turn, and over queries in order. */
template <int N, bool RING> FO_DEVICE void backward_kv(const fo_cuda_attention_bwd_args &p)
{
	const tiles t = tiles_in(p.dim);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, kv = blockIdx.y;
	const int32_t j0 = (int32_t)blockIdx.x * ROWS, end = (int32_t)p.k.rows, last_key = at_most(j0 + ROWS, end) - 1;
	float dk[PER][N], dv[PER][N];
#pragma unroll
	for (int r = 0; r < PER; r++)
#pragma unroll
		for (int n = 0; n < N; n++)
			dk[r][n] = dv[r][n] = 0;
	fetch(t.a, p.dim, p.k, kv, p.dim, j0, ROWS, 0, end - 1);
	fetch(t.b, p.dim, p.v, kv, p.dim, j0, ROWS, 0, end - 1);
	const int32_t from = first_query<RING>(p, j0);
	for (int head = kv * p.group; head < (kv + 1) * p.group; head++)
		for (int32_t i0 = from; i0 < end; i0 += COLS) {
			float s[PER], dp[PER];
			if (span_of<RING>(p, i0).first > last_key)
				break;
			__syncthreads();
			fetch(t.x, t.ld, p.q, head, p.dim, i0, COLS, 0, end - 1);
			fetch(t.y, t.ld, p.dout, head, p.dim, i0, COLS, 0, end - 1);
			__syncthreads();
			dots(s, t.a, t.x, p.dim, t.ld);
			dots(dp, t.b, t.y, p.dim, t.ld);
			const int32_t i = i0 + lane;
			const bool there = i < end;
			const span see = there ? span_of<RING>(p, i) : span{ 0, -1 };
			const float lse = there ? fo_view_get(p.lse, i, head) : 0,
				    delta = there ? p.delta[(int64_t)i * p.heads + head] : 0;
#pragma unroll
			for (int r = 0; r < PER; r++) {
				const int32_t j = j0 + warp * PER + r;
				const float e = j >= see.first && j <= see.last ? expf(s[r] * p.scale - lse) : 0;
				t.s[(warp * PER + r) * COLS + lane] = e;
				t.t[(warp * PER + r) * COLS + lane] = e == 0 ? 0 : e * (dp[r] - delta) * p.scale;
			}
			__syncthreads();
			combine<N>(dv, t.s, t.y, p.dim, t.ld);
			combine<N>(dk, t.t, t.x, p.dim, t.ld);
		}
#pragma unroll
	for (int r = 0; r < PER; r++)
		if (j0 + warp * PER + r < end) {
			put_row<N>(p.dk, j0 + warp * PER + r, kv, p.dim, dk[r], 1);
			put_row<N>(p.dv, j0 + warp * PER + r, kv, p.dim, dv[r], 1);
		}
}
FO_KERNEL(attention_dkv_4, struct fo_cuda_attention_bwd_args, THREADS) { backward_kv<4, false>(p); }
FO_KERNEL(attention_dkv_8, struct fo_cuda_attention_bwd_args, THREADS) { backward_kv<8, false>(p); }
FO_KERNEL(attention_block_dkv_4, struct fo_cuda_attention_bwd_args, THREADS) { backward_kv<4, true>(p); }
FO_KERNEL(attention_block_dkv_8, struct fo_cuda_attention_bwd_args, THREADS) { backward_kv<8, true>(p); }
