/* Gradient norm, clipping, AdamW, and the search for numbers that are not finite: single passes over memory.
 *
 * Bytes for each parameter, gradients in fp32 (2 less where they are bf16), and a step of Llama-3.1-8B (8.03e9) at 4.2
 * TB/s:
 *   sumsq                                          4    7.7 ms
 *   adamw, fp32 master, fp32 moments, bf16 weight 30   57 ms
 *   adamw, fp32 master, bf16 moments, bf16 weight 22   42 ms
 *   adamw, split master, fp32 moments             28   54 ms
 *   adamw, split master, bf16 moments             20   38 ms
 *   adamw, bf16 weight and moments                16   31 ms
 *   adamw, fp32 weight and moments                28   54 ms
 * Arithmetic: two divisions and a root, rounded as the processor's are, some 70 instructions for a parameter. A
 * multiprocessor has room for 128 x 1.7e9 x 132 / (4.2e12 / 20) = 137 of them while the 20 bytes of the leanest exact
 * format pass: memory stays the bound. */
#include "kernel/cuda/device.cuh"

/* The columns of enum fo_hyper; launch_optimizer.c holds both to each other. */
enum { HYPER_LR, HYPER_BETA1, HYPER_BETA2, HYPER_EPS, HYPER_DECAY, HYPER_CORR1, HYPER_CORR2 };
enum { HYPER_CLIP = 7, HYPER_LOSS_LIMIT = 9, HYPER_SEED, HYPER_STEP, HYPER_LAST_NORM };
enum { THREADS = 256 };

/* A chunk: n elements of tensor k from (row, col) on. */
struct piece {
	int k, n;
	int64_t row, col;
};
template <typename T> FO_DEVICE piece piece_of(const T *t, int tensors, uint32_t chunk, int size)
{
	piece at;
	at.k = 0;
	while (at.k + 1 < tensors && chunk >= t[at.k + 1].begin)
		at.k++;
	const uint32_t local = chunk - t[at.k].begin;
	at.row = local / t[at.k].per_row;
	at.col = (int64_t)(local % t[at.k].per_row) * size;
	const int64_t left = t[at.k].cols - at.col;
	at.n = (int)(left < size ? left : size);
	return at;
}

/* ---- squared norm: a thread's share of a chunk in fp32, above it doubles, every sum in an order that only shapes
 * decide ---- */

template <typename T> FO_DEVICE float squares(const T *p, int n, bool aligned)
{
	float sum[2] = { 0, 0 };
	const int groups = aligned ? n / 8 : 0;
	int i = threadIdx.x;
	for (; i + 3 * THREADS < groups; i += 4 * THREADS) {
		float x[4][8];
#pragma unroll
		for (int u = 0; u < 4; u++)
			fo_load8(p + (i + u * THREADS) * 8, x[u]);
#pragma unroll
		for (int u = 0; u < 4; u++)
#pragma unroll
			for (int k = 0; k < 8; k++)
				sum[k % 2] += x[u][k] * x[u][k];
	}
	for (; i < groups; i += THREADS) {
		float x[8];
		fo_load8(p + i * 8, x);
#pragma unroll
		for (int k = 0; k < 8; k++)
			sum[k % 2] += x[k] * x[k];
	}
	for (int j = groups * 8 + (int)threadIdx.x; j < n; j += THREADS) {
		const float x = fo_load(p + j);
		sum[0] += x * x;
	}
	return sum[0] + sum[1];
}

FO_KERNEL(sumsq, struct fo_cuda_sumsq_args, THREADS)
{
	for (uint32_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
		const piece at = piece_of(p.t, p.n, chunk, FO_CUDA_SUMSQ_CHUNK);
		const fo_cuda_sumsq_tensor &t = p.t[at.k];
		const int64_t offset = at.row * t.ld + at.col;
		const float mine = t.dtype == FO_CUDA_BF16 ? squares((const uint16_t *)t.data + offset, at.n, t.aligned)
							   : squares((const float *)t.data + offset, at.n, t.aligned);
		const double sum = fo_block_sum((double)mine, THREADS / 32);
		if (threadIdx.x == 0)
			p.partial[chunk] = sum;
	}
}

/* One block adds the chunks of each tensor, then the tensors in turn, so that many tensors give the bits of one after
 * the other. */
FO_KERNEL(sumsq_sum, struct fo_cuda_sumsq_args, 1024)
{
	__shared__ double scratch[FO_CUDA_SUMSQ_TENSORS][32];
	const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
	for (int k = 0; k < p.n; k++) {
		const uint32_t end = k + 1 < p.n ? p.t[k + 1].begin : p.chunks;
		double sum = 0;
		for (uint32_t i = p.t[k].begin + threadIdx.x; i < end; i += blockDim.x)
			sum += p.partial[i];
		sum = fo_warp_sum(sum);
		if (threadIdx.x % 32 == 0)
			scratch[k][warp] = sum;
	}
	__syncthreads();
	if (threadIdx.x)
		return;
	double acc = p.stored ? 0 : *p.acc;
	for (int k = 0; k < p.n; k++) {
		double sum = 0;
		for (int w = 0; w < warps; w++)
			sum += scratch[k][w];
		acc += sum;
	}
	*p.acc = acc;
}

/* ---- the decision whether a step is taken, one thread: -1 makes adamw leave everything as it is, without asking the
 * host ---- */

FO_DEVICE bool is_finite(double x) { return x - x == 0; }
FO_DEVICE double decide(const double *hyper, double bounded, double norm, double loss)
{
	const double bound = hyper[HYPER_CLIP], scale = bound / (bounded + 1e-6), limit = hyper[HYPER_LOSS_LIMIT];
	const bool refused = !is_finite(norm) || !is_finite(loss) || (limit > 0 && loss > limit);
	if (refused)
		return -1;
	return bound == 0 || bounded == 0 || scale > 1 ? 1 : scale;
}
FO_KERNEL(clip, struct fo_cuda_clip_args, 32)
{
	if (threadIdx.x)
		return;
	const double norm = sqrt(*p.acc);
	const double bounded = p.last ? p.hyper[HYPER_LAST_NORM] : norm;
	p.scale[0] = decide(p.hyper, bounded, norm, p.loss ? *p.loss : 0);
	p.scale[1] = norm;
}
FO_KERNEL(clip_ahead, struct fo_cuda_clip_args, 32)
{
	if (threadIdx.x)
		return;
	p.scale[1] = p.hyper[HYPER_LAST_NORM];
	p.scale[0] = decide(p.hyper, p.scale[1], 0, *p.loss);
}
FO_KERNEL(global_norm, struct fo_cuda_clip_args, 32)
{
	if (threadIdx.x == 0)
		p.scale[1] = sqrt(*p.acc);
}

/* ---- AdamW, in the order of torch.optim.AdamW: decay first, moments, then the step ---- */

struct adamw {
	float keep, scale, rest1, beta2, rest2, step, root, inv_root, eps;
};
struct adamw_shared {
	adamw scalars;
	struct fo_noise_key weight[FO_CUDA_ADAMW_TENSORS], moments[FO_CUDA_ADAMW_TENSORS];
};

/* The scalars of a step, computed once per block: they need doubles, and the noise 64-bit hashes of seed and step. */
FO_DEVICE void adamw_prepare(const fo_cuda_adamw_args &p, adamw_shared &s)
{
	const double *h = p.hyper, lr = h[HYPER_LR];
	const int k = threadIdx.x;
	if (k == 0) {
		s.scalars.keep = (float)(1 - lr * h[HYPER_DECAY] * p.decays);
		s.scalars.scale = (float)*p.scale;
		s.scalars.rest1 = (float)(1 - h[HYPER_BETA1]);
		s.scalars.beta2 = (float)h[HYPER_BETA2];
		s.scalars.rest2 = (float)(1 - h[HYPER_BETA2]);
		s.scalars.step = (float)(lr / h[HYPER_CORR1]);
		s.scalars.root = (float)sqrt(h[HYPER_CORR2]);
		s.scalars.inv_root = fo_div_rn(1, s.scalars.root);
		s.scalars.eps = (float)h[HYPER_EPS];
	}
	if (p.stochastic && k < p.n) {
		const uint64_t seed = (uint64_t)h[HYPER_SEED], step = (uint64_t)h[HYPER_STEP];
		s.weight[k] = fo_noise_key(seed, step, p.t[k].layer, FO_NOISE_WEIGHT);
		s.moments[k] = fo_noise_key(seed, step, p.t[k].layer, FO_NOISE_MOMENTS);
	}
	__syncthreads();
}

/* AdamW (Loshchilov and Hutter 2019) of one element, in the order of torch.optim.AdamW:
 *   g *= scale                              the clip factor
 *   m += (1 - beta1) (g - m)                first moment
 *   v  = beta2 v + (1 - beta2) g^2          second moment
 *   w  = w (1 - lr decay) - lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 * Every operation is rounded by itself (_rn), so that the numbers are those of kernel/ref, bit for bit. */
FO_DEVICE void adamw_update(const adamw &a, float &m, float &v, float g, float &w)
{
	g = fo_mul_rn(g, a.scale);
	m = fo_add_rn(m, fo_mul_rn(a.rest1, fo_sub_rn(g, m)));
	v = fo_add_rn(fo_mul_rn(v, a.beta2), fo_mul_rn(fo_mul_rn(a.rest2, g), g));
	const float root = fo_add_rn(fo_div_by(fo_sqrt_rn(v), a.root, a.inv_root), a.eps);
	w = fo_sub_rn(fo_mul_rn(w, a.keep), fo_div_rn(fo_mul_rn(a.step, m), root));
}

FO_DEVICE void noise8(uint32_t *noise, const struct fo_noise_key &key, uint32_t number)
{
#pragma unroll
	for (int i = 0; i < 8; i++)
		noise[i] = fo_noise(key, number + i);
}
/* Eight bf16 numbers rounded at random; noise: 16 bits for each, above them anything. */
FO_DEVICE void store8_at_random(uint16_t *p, const float *x, const uint32_t *noise)
{
	fo_16 o;
#pragma unroll
	for (int i = 0; i < 4; i++)
		o.w[i] = (uint32_t)fo_bf16_at_random(x[2 * i + 1], noise[2 * i + 1] & 0xffff) << 16 |
			 fo_bf16_at_random(x[2 * i], noise[2 * i] & 0xffff);
	*reinterpret_cast<fo_16 *>(p) = o;
}
FO_DEVICE void moments_store8(float *m, float *v, const float *x, const float *y, bool, const struct fo_noise_key &,
			      uint32_t)
{
	fo_store8(m, x);
	fo_store8(v, y);
}
FO_DEVICE void moments_store8(uint16_t *m, uint16_t *v, const float *x, const float *y, bool stochastic,
			      const struct fo_noise_key &key, uint32_t number)
{
	if (!stochastic) {
		fo_store8(m, x);
		fo_store8(v, y);
		return;
	}
	uint32_t noise[8];
	noise8(noise, key, number);
	store8_at_random(m, x, noise);
#pragma unroll
	for (int i = 0; i < 8; i++)
		noise[i] >>= 16;
	store8_at_random(v, y, noise);
}

/* The format of weights: a bf16 or fp32 weight alone; an fp32 copy that a bf16 weight is rounded from; a bf16 weight
 * and its low half. */
enum weights { BF16, F32, COPY, SPLIT };
template <weights W>
FO_DEVICE void weights_load8(const fo_cuda_adamw_tensor &t, int64_t at_w, int64_t at_master, float *x)
{
	if (W == BF16) {
		fo_load8((const uint16_t *)t.w + at_w, x);
	} else if (W == F32) {
		fo_load8((const float *)t.w + at_w, x);
	} else if (W == COPY) {
		fo_load8((const float *)t.master + at_master, x);
	} else {
		const fo_16 high = *reinterpret_cast<const fo_16 *>((const uint16_t *)t.w + at_w);
		const fo_16 low = *reinterpret_cast<const fo_16 *>((const int16_t *)t.master + at_master);
#pragma unroll
		for (int i = 0; i < 4; i++) {
			x[2 * i] = fo_split_join((uint16_t)high.w[i], (int16_t)low.w[i]);
			x[2 * i + 1] = fo_split_join((uint16_t)(high.w[i] >> 16), (int16_t)(low.w[i] >> 16));
		}
	}
}
template <weights W>
FO_DEVICE void weights_store8(const fo_cuda_adamw_tensor &t, int64_t at_w, int64_t at_master, const float *x,
			      bool stochastic, const struct fo_noise_key &key, uint32_t number)
{
	if (W == F32) {
		fo_store8((float *)t.w + at_w, x);
	} else if (W == COPY) {
		fo_store8((float *)t.master + at_master, x);
		fo_store8((uint16_t *)t.w + at_w, x);
	} else if (W == SPLIT) {
		fo_16 high, low;
#pragma unroll
		for (int i = 0; i < 4; i++) {
			high.w[i] = (uint32_t)fo_split_high(x[2 * i + 1]) << 16 | fo_split_high(x[2 * i]);
			low.w[i] = (uint32_t)(uint16_t)fo_split_low(x[2 * i + 1]) << 16 |
				   (uint16_t)fo_split_low(x[2 * i]);
		}
		*reinterpret_cast<fo_16 *>((uint16_t *)t.w + at_w) = high;
		*reinterpret_cast<fo_16 *>((int16_t *)t.master + at_master) = low;
	} else if (stochastic) {
		uint32_t noise[8];
		noise8(noise, key, number);
		store8_at_random((uint16_t *)t.w + at_w, x, noise);
	} else {
		fo_store8((uint16_t *)t.w + at_w, x);
	}
}

FO_DEVICE float one_get(const void *p, int type, int64_t i)
{
	return type == FO_CUDA_BF16 ? fo_from_bf16(((const uint16_t *)p)[i]) : ((const float *)p)[i];
}
FO_DEVICE void one_put(void *p, int type, int64_t i, float x)
{
	if (type == FO_CUDA_BF16)
		((uint16_t *)p)[i] = fo_to_bf16(x);
	else
		((float *)p)[i] = x;
}
/* Updates one element in any format and layout. */
FO_DEVICE void adamw_one(const fo_cuda_adamw_args &p, const adamw_shared &s, int k, int64_t row, int64_t col)
{
	const fo_cuda_adamw_tensor &t = p.t[k];
	const int64_t at_m = row * t.ld_m + col, at_v = row * t.ld_v + col, at_w = row * t.ld_w + col,
		      at_master = row * t.ld_master + col;
	const bool split = t.type_master == FO_CUDA_I16, noisy = p.stochastic && t.type_moments == FO_CUDA_BF16;
	const uint32_t number = (uint32_t)(t.number + at_w);
	float m = one_get(t.m, t.type_moments, at_m), v = one_get(t.v, t.type_moments, at_v), w;
	if (!t.master)
		w = one_get(t.w, t.type_w, at_w);
	else if (split)
		w = fo_split_join(((const uint16_t *)t.w)[at_w], ((const int16_t *)t.master)[at_master]);
	else
		w = ((const float *)t.master)[at_master];
	adamw_update(s.scalars, m, v, one_get(t.g, t.type_g, row * t.ld_g + col), w);
	if (noisy) {
		const uint32_t noise = fo_noise(s.moments[k], number);
		((uint16_t *)t.m)[at_m] = fo_bf16_at_random(m, noise & 0xffff);
		((uint16_t *)t.v)[at_v] = fo_bf16_at_random(v, noise >> 16);
	} else {
		one_put(t.m, t.type_moments, at_m, m);
		one_put(t.v, t.type_moments, at_v, v);
	}
	if (split) {
		((uint16_t *)t.w)[at_w] = fo_split_high(w);
		((int16_t *)t.master)[at_master] = fo_split_low(w);
	} else if (!t.master && p.stochastic && t.type_w == FO_CUDA_BF16) {
		((uint16_t *)t.w)[at_w] = fo_bf16_at_random(w, fo_noise(s.weight[k], number) & 0xffff);
	} else {
		if (t.master)
			((float *)t.master)[at_master] = w;
		one_put(t.w, t.type_w, at_w, w);
	}
}

/* Eight elements at a time; what is left of a chunk, fewer than eight, one by one. Up to eight loads are under way in a
 * thread. */
template <typename M, weights W, typename G> FO_DEVICE void adamw_chunks(const fo_cuda_adamw_args &p)
{
	__shared__ adamw_shared s;
	if (*p.scale < 0)
		return;
	adamw_prepare(p, s);
	const adamw a = s.scalars;
	for (uint32_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
		const piece at = piece_of(p.t, p.n, chunk, FO_CUDA_ADAMW_CHUNK);
		const fo_cuda_adamw_tensor &t = p.t[at.k];
		const int64_t at_w = at.row * t.ld_w + at.col, at_master = at.row * t.ld_master + at.col;
		M *pm = (M *)t.m + at.row * t.ld_m + at.col, *pv = (M *)t.v + at.row * t.ld_v + at.col;
		const G *pg = (const G *)t.g + at.row * t.ld_g + at.col;
		const uint32_t number = (uint32_t)(t.number + at_w);
		for (int i = threadIdx.x * 8; i + 8 <= at.n; i += THREADS * 8) {
			float m[8], v[8], g[8], w[8];
			fo_load8(pm + i, m);
			fo_load8(pv + i, v);
			fo_load8(pg + i, g);
			weights_load8<W>(t, at_w + i, at_master + i, w);
#pragma unroll
			for (int k = 0; k < 8; k++)
				adamw_update(a, m[k], v[k], g[k], w[k]);
			moments_store8(pm + i, pv + i, m, v, p.stochastic, s.moments[at.k], number + i);
			weights_store8<W>(t, at_w + i, at_master + i, w, p.stochastic, s.weight[at.k], number + i);
		}
		for (int i = at.n / 8 * 8 + (int)threadIdx.x; i < at.n; i += THREADS)
			adamw_one(p, s, at.k, at.row, at.col + i);
	}
}

#define ADAMW(name, moments, weights, gradients) \
	FO_KERNEL(name, struct fo_cuda_adamw_args, THREADS) { adamw_chunks<moments, weights, gradients>(p); }
#define ADAMWS(moments, gradients, M, G)                      \
	ADAMW(adamw_##moments##_bf16_##gradients, M, BF16, G) \
	ADAMW(adamw_##moments##_f32_##gradients, M, F32, G)   \
	ADAMW(adamw_##moments##_copy_##gradients, M, COPY, G) \
	ADAMW(adamw_##moments##_split_##gradients, M, SPLIT, G)
ADAMWS(f32, f32, float, float)
ADAMWS(f32, bf16, float, uint16_t)
ADAMWS(bf16, f32, uint16_t, float)
ADAMWS(bf16, bf16, uint16_t, uint16_t)

/* Any layout and format, one element at a time. */
FO_KERNEL(adamw_any, struct fo_cuda_adamw_args, THREADS)
{
	__shared__ adamw_shared shared;
	if (*p.scale < 0)
		return;
	adamw_prepare(p, shared);
	for (uint32_t chunk = blockIdx.x; chunk < p.chunks; chunk += gridDim.x) {
		const piece at = piece_of(p.t, p.n, chunk, FO_CUDA_ADAMW_CHUNK);
		for (int i = threadIdx.x; i < at.n; i += THREADS)
			adamw_one(p, shared, at.k, at.row, at.col + i);
	}
}

/* ---- numbers that are not finite: infinities and NaN of each type; every one of an integer type is finite ---- */

FO_DEVICE bool not_finite(const fo_cuda_view &t, int64_t i)
{
	switch (t.dtype) {
	case FO_CUDA_F32: return (((const uint32_t *)t.data)[i] & 0x7f800000u) == 0x7f800000u;
	case FO_CUDA_BF16: return (((const uint16_t *)t.data)[i] & 0x7f80) == 0x7f80;
	case FO_CUDA_F64: return (((const uint64_t *)t.data)[i] & 0x7ff0000000000000u) == 0x7ff0000000000000u;
	case FO_CUDA_E4M3: return (((const uint8_t *)t.data)[i] & 0x7f) == 0x7f;
	case FO_CUDA_E5M2: return (((const uint8_t *)t.data)[i] & 0x7f) >= 0x7c;
	default: return false;
	}
}
FO_KERNEL(find_nonfinite, struct fo_cuda_nonfinite_args, THREADS)
{
	const bool whole = p.t.ld == p.t.cols;
	FO_EACH(i, p.t.rows * p.t.cols)
	{
		if (!not_finite(p.t, whole ? i : i / p.t.cols * p.t.ld + i % p.t.cols))
			continue;
		atomicMin((unsigned long long *)p.found, (unsigned long long)i);
		break; /* this thread's first */
	}
}
