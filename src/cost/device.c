#include "cost/device.h"
#include "cost/cost.h"
#include "cost/device_profile.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const char *const fo_device_part_name[FO_DEVICE_PARTS] = { "linear",   "wgrad_sums", "head", "attention",
							   "fused",    "fp8",        "loss", "optimizer",
							   "repeated", "transfer",   "gaps" };

/* ---- what is known of devices ---- */

/* Shares of what the vendor publishes: of the dense peak of the type, of the memory's rate. "Fits published runs": of
 * 562 dense GPU runs of eight publishers (November 2026), a model of whole steps with these shares free met the
 * published rates best; it was off by 5 % in the mean. A device is of the first family whose name its own begins with;
 * "" is every other one. */
struct share {
	struct fo_interval of;
	const char *origin;
};
static const struct family {
	const char *name;
	bool published;
	double keys0[2];
	struct share share[FO_DEVICE_CLASSES];
} family_of[] = {
	{ "H200-SXM",
	  true,
	  { 763, 828 },
	  /* 989 TFLOP/s. keys0 and the rates of rows without end are the curve through cuDNN's own figures for 64
	   * heads (644 / 541 TFLOP/s at 8,192 tokens, 673 / 579 at 16,384, 688 / 581 at 32,768): 704 and 596, the
	   * second 2 % below the middle one. */
	  { { { 700 / 989., 745 / 989., 790 / 989. },
	      "of 989; 769 to 798 were seen in bursts of 14 ms on random numbers; at the 1,376 MHz that an H100 of the "
	      "same power held in training, 744 is all that tensor cores can do" },
	    { { 1150 / 1979., 1250 / 1979., 1350 / 1979. },
	      "of 1,979; Transformer Engine's page has 1.9 times bf16 on an H200 NVL, 1.7 with casts; nothing is "
	      "published of this card" },
	    { { 704 / 1.065 / 989, 704 / 1.03 / 989, 704 / 989. },
	      "cuDNN 9.19's own table for an H200, 64 heads: 644 TFLOP/s at 8,192 tokens; up to 6.5 % less with 32 "
	      "heads, unmeasured" },
	    { { 596 / 1.065 / 989, 596 / 1.03 / 989, 596 / 989. }, "the same table: 541 TFLOP/s at 8,192 tokens" },
	    { { 3.7 / 4.8, 3.85 / 4.8, 4.0 / 4.8 }, "of 4.8; a copy reaches 4.3, kernels that compute a little less" },
	    { { 4.0 / 4.8, 4.15 / 4.8, 4.3 / 4.8 }, "of 4.8; a copy reaches 4.3" } } },
	{ "H100-SXM",
	  true,
	  { 763, 828 },
	  { { { 0.64, 0.73, 790 / 989. },
	      "0.73 of the peak fits published runs on this card best; 0.80 is the best matmul that was measured "
	      "(794.5 TFLOP/s, stas00/ml-engineering); 0.64: as far below" },
	    { { 0.52, 0.60, 0.70 },
	      "0.60 to 0.67 of the peak fit published fp8 runs; the best matmul reached 0.71 "
	      "(stas00/ml-engineering)" },
	    { { 0.58, 0.65, 704 / 989. },
	      "as an H200, which has the same multiprocessors; FlashAttention 3's paper has 0.65 on an H100" },
	    { { 0.48, 0.56, 596 / 989. }, "the same; 0.57 in that paper" },
	    { { 0.72, 0.79, 0.83 }, "0.79 of the memory's rate fits published runs; 0.83 as an H200" },
	    { { 0.80, 0.86, 0.90 }, "0.90 is what a copy reaches on an H200" } } },
	{ "A100",
	  false,
	  { 300, 300 },
	  { { { 0.72, 0.82, 0.87 },
	      "0.82 to 0.85 of the peak fit published runs; the best matmul reached 0.87 (stas00/ml-engineering)" },
	    { { NAN, NAN, NAN }, "no fp8 on this device" },
	    { { 0.35, 0.50, 0.65 },
	      "0.36 to 0.50 fit published runs of other kernels; cuDNN's on this card: nothing is published" },
	    { { 0.30, 0.42, 0.58 }, "the same" },
	    { { 0.68, 0.79, 0.87 }, "0.79 of the memory's rate fits published runs" },
	    { { 0.75, 0.85, 0.92 }, "of other devices" } } },
	{ "B200",
	  false,
	  { 300, 300 },
	  { { { 0.42, 0.54, 0.76 },
	      "0.54 of the peak fits published runs on GB200, where power limits; the best single matmul reached 0.78 "
	      "(stas00/ml-engineering)" },
	    { { 0.42, 0.54, 0.74 }, "the same; the best single matmul reached 0.76" },
	    { { 0.35, 0.46, 0.71 }, "0.46 fits published runs; FlashAttention 4's paper has 0.71 forward" },
	    { { 0.30, 0.40, 0.60 }, "0.40 as the whole of attention fits; 0.60: a guess" },
	    { { 0.65, 0.79, 0.88 }, "0.79 of the memory's rate fits published runs of all devices" },
	    { { 0.75, 0.85, 0.92 }, "of other devices" } } },
	{ "GB300",
	  false,
	  { 300, 300 },
	  { { { 0.48, 0.64, 0.78 },
	      "0.64 fits Megatron-Bridge's published fp8 runs (405B: 2,646 TFLOP/s in whole steps); 1,400 W where a "
	      "B200 has 1,000" },
	    { { 0.48, 0.64, 0.78 }, "the same" },
	    { { 0.35, 0.50, 0.71 }, "FlashAttention 4's paper has 0.71 forward on a B200" },
	    { { 0.30, 0.44, 0.60 }, "as the forward's, less by what a B200's backward is" },
	    { { 0.65, 0.79, 0.88 }, "0.79 of the memory's rate fits published runs of all devices" },
	    { { 0.75, 0.85, 0.92 }, "of other devices" } } },
	{ "",
	  false,
	  { 300, 300 },
	  { { { 0.40, 0.62, 0.87 },
	      "nothing is published that this program knows: between the worst and the best of other devices" },
	    { { 0.40, 0.57, 0.76 }, "the same" },
	    { { 0.20, 0.45, 0.71 }, "the same" },
	    { { 0.18, 0.40, 0.61 }, "the same" },
	    { { 0.65, 0.79, 0.90 }, "the same" },
	    { { 0.75, 0.85, 0.92 }, "the same" } } },
};
/* Blackwell's other forms differ by power and memory, not by what is known of them. */
static const char *const as_b200[] = { "GB200", "B300" };

/* Gaps and ramps are 2 to 3 ms of a row of Llama-3.1-8B on an H200, whose graph has some 740 nodes: arithmetic. */
static const struct fo_interval gap = { 2.7e-6, 3.4e-6, 4.05e-6 };
/* A kernel of a graph that does next to nothing: 2 to 4 us are what programmatic launch is said to hide behind small
 * kernels. */
static const struct fo_interval least = { 2e-6, 3e-6, 4e-6 };
/* Two lanes: the tails of waves are some 3 % of backward's matmuls on an H200. */
static const struct fo_interval overlap = { 0.018, 0.024, 0.031 };
/* The visible share of the time of reading and writing a weight gradient's sum; matmuls hide the rest. With K = 8,192 5
 * to 8 of 14 ms of a row of Llama-3.1-8B; with K = 2,048 8 us of epilogue meet 23 us of matmul, and 2 to 3 of 4.2 ms
 * show. Arithmetic; between them by log K. */
static const struct {
	double k;
	struct fo_interval shows;
} sums_at[2] = { { 2048, { 0.48, 0.60, 0.71 } }, { 8192, { 0.36, 0.46, 0.55 } } };
/* Tiles of a matmul by the rate that they reach: 1 and 0.62 fit published runs, the others follow from operands read
 * per FLOP. */
static const struct {
	double rows, cols, rate;
} tile[] = { { 128, 256, 1 }, { 128, 128, 0.92 }, { 64, 128, 0.78 }, { 64, 64, 0.62 } };
/* The last wave of large matmuls leaves 3 % idle (8 waves over 132 multiprocessors); the rates above include that. */
#define FULL 0.969
/* Filling a matmul's pipeline costs as much as this many terms of K; fits published runs. The rates above hold for K >=
 * 2,048. */
#define DEPTH 160
#define DEEP 2048
/* Passes over the logits for two in fo_op_cost (read, written): the second reading comes from the level-two cache, or
 * half of it, or rows are lost from it too. */
static const struct fo_interval loss_passes = { 1, 1.5, 2 };
/* A measurement cannot exceed what is published by more than this. Tensor cores: peaks are of the published boost
 * clock, and cards run above it where power allows (an H200 up to 1,980 MHz of 1,830; an RTX 4090 some 3,000 of
 * 2,520: 1.19). Memory: what lies in the level-two cache is read at 2 to 3 times the memory's rate. */
static const double above[FO_DEVICE_CLASSES] = { 1.25, 1.25, 1.25, 1.25, 4, 4 };
/* A driver shows a little less than the vendor's figure, in GiB: 139.8 of an H200's 141, 179.1 of a B200's 180. */
#define SHOWN 0.99

static const struct family *find_family(const char *name)
{
	const struct family *f = family_of;
	for (size_t i = 0; i < sizeof as_b200 / sizeof *as_b200; i++)
		if (!strncasecmp(name, as_b200[i], strlen(as_b200[i])))
			name = "B200";
	while (strncasecmp(name, f->name, strlen(f->name)))
		f++;
	return f;
}

static struct fo_interval scaled(struct fo_interval x, double by)
{
	return (struct fo_interval){ x.low * by, x.mid * by, x.high * by };
}

static fo_status missing(const struct fo_device *d, const char *what)
{
	return fo_hint(fo_fail(FO_EUNSUPPORTED,
			       "the step time on %s is not known from this: the catalogue has no %s of it", d->name,
			       what),
		       "a row in a file that FLATOUT_DEVICES names can have it");
}

fo_status fo_device_rates_init(struct fo_device_rates *r, const struct fo_device *d)
{
	double tflops, fp8 = d->dense[FO_PREC_FP8];
	bool gpu = !strcmp(d->kind, "gpu");
	if (!*d->kind)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "the step time on %s is not known from this: its row of the catalogue does not "
				       "say what kind of device it is",
				       d->name),
			       "'gpu' in the row's column 'kind' says that it is a GPU");
	const char *other = !strcmp(d->kind, "tpu") ? " TPU" : "n accelerator that is no GPU";
	if (gpu)
		other = " GPU without CUDA";
	if (!gpu || !strncmp(d->name, "MI", 2)) /* AMD's names */
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "the step time on %s is not known from this: Flatout has no kernels for a%s",
				       d->name, other),
			       "NVIDIA's GPUs from the A100 on are predicted: --device=h200, or another of 'flatout "
			       "devices'");
	if (fo_device_peak(d, FO_PREC_BF16, &tflops) != FO_OK)
		return fo_wrap(FO_EARG, "the step time on %s is not known from this", d->name);
	if (isnan(d->memory_tb_s))
		return missing(d, "memory bandwidth");
	const struct family *f = find_family(d->name);
	*r = (struct fo_device_rates){ .peak_flop_s = tflops * 1e12,
				       .memory_byte_s = d->memory_tb_s * 1e12,
				       .units = d->units,
				       .gap_s = gap,
				       .published = f->published };
	snprintf(r->name, sizeof r->name, "%s", d->name);
	double memory = SHOWN * (isnan(d->memory_usable_gb) ? d->memory_gb : d->memory_usable_gb);
	r->memory_bytes = isnan(memory) ? 0 : (int64_t)(memory * (1 << 30));
	for (int c = 0; c < FO_DEVICE_CLASSES; c++) {
		double of = c >= FO_DEVICE_FUSED ? r->memory_byte_s : r->peak_flop_s;
		if (c == FO_DEVICE_PRODUCT_FP8)
			of = fp8 * 1e12;
		r->rate[c] = scaled(f->share[c].of, of);
		r->most[c] = above[c] * of;
		r->origin[c] = f->share[c].origin;
	}
	memcpy(r->keys0, f->keys0, sizeof r->keys0);
	return FO_OK;
}

/* ---- one operation ---- */

/* Work over a rate: the fast end of the time comes from the fast end of the rate. */
static struct fo_interval over(struct fo_interval work, struct fo_interval rate)
{
	return (struct fo_interval){ work.low / rate.high, work.mid / rate.mid, work.high / rate.low };
}
static struct fo_interval same(double x) { return (struct fo_interval){ x, x, x }; }
static struct fo_interval at_least(struct fo_interval x, struct fo_interval y)
{
	return (struct fo_interval){ fmax(x.low, y.low), fmax(x.mid, y.mid), fmax(x.high, y.high) };
}

/* The factor by which blocks take longer because their last wave is not full. At the fast end other blocks fill it. */
static double wave(const struct fo_device_rates *r, double blocks)
{
	return r->units > 0 ? fmax(1, FULL * ceil(blocks / r->units) * r->units / blocks) : 1;
}

double fo_device_shape_cost(const struct fo_device_rates *r, double m, double n, double k)
{
	double best = INFINITY;
	for (size_t i = 0; i < sizeof tile / sizeof *tile; i++) {
		double blocks = ceil(m / tile[i].rows) * ceil(n / tile[i].cols);
		double waste = blocks * tile[i].rows * tile[i].cols / (m * n);
		best = fmin(best, wave(r, blocks) * waste / tile[i].rate);
	}
	return best * fmax(1, (1 + DEPTH / k) / (1 + (double)DEPTH / DEEP));
}

static struct fo_interval sums_shown(double k)
{
	double at = fmin(1, fmax(0, log2(k / sums_at[0].k) / log2(sums_at[1].k / sums_at[0].k)));
	struct fo_interval s = scaled(sums_at[0].shows, 1 - at);
	fo_interval_add(&s, sums_at[1].shows, at);
	return s;
}

static double bytes_of(const struct fo_program *p, const struct fo_operand *a)
{
	return (double)a->nr * a->nc * (double)fo_dtype_bytes(p->buf[a->buf].dtype);
}

static struct fo_device_time matmul(const struct fo_device_rates *r, const struct fo_program *p, const struct fo_op *o,
				    uint32_t first)
{
	const struct fo_operand *a = &o->arg[FO_MATMUL_A], *b = &o->arg[FO_MATMUL_B], *c = &o->arg[FO_MATMUL_C];
	bool fp8 = fo_dtype_fp8(p->buf[a->buf].dtype), sums = c->access == FO_ACC && p->buf[c->buf].dtype == FO_F32;
	int64_t rows, cols, depth;
	fo_matmul_dims(o, &rows, &cols, &depth);
	double m = (double)rows, n = (double)cols, k = (double)depth;
	bool stored = first >> FO_MATMUL_C & 1;
	struct fo_interval rate = r->rate[fp8 ? FO_DEVICE_PRODUCT_FP8 : FO_DEVICE_PRODUCT],
			   memory = r->rate[FO_DEVICE_FUSED];
	struct fo_device_time t = { .known = !isnan(rate.mid) && (fp8 || p->buf[a->buf].dtype == FO_BF16) };
	if (!t.known)
		return t;
	double flop = 2 * m * n * k, shaped = flop * fo_device_shape_cost(r, m, n, k);
	t.seconds = over((struct fo_interval){ flop, shaped, shaped }, rate);
	/* A faster matmul hides as much as one of a proportionally smaller K. */
	if (sums)
		t.sum_bytes = (stored ? 1 : 2) * bytes_of(p, c);
	double as_deep = fp8 ? k * r->rate[FO_DEVICE_PRODUCT].mid / rate.mid : k;
	t.sums = over(scaled(sums_shown(as_deep), t.sum_bytes), memory);
	fo_interval_add(&t.seconds, t.sums, 1);
	double moved = bytes_of(p, a) + bytes_of(p, b) + (sums && !stored ? 2 : 1) * bytes_of(p, c);
	t.seconds = at_least(t.seconds, over(same(moved), memory));
	double turned = 0; /* copies of factors whose lines do not run along the sum: read and written */
	if (fp8 && o->attr.ta)
		turned += 2 * bytes_of(p, a);
	if (fp8 && !o->attr.tb)
		turned += 2 * bytes_of(p, b);
	fo_interval_add(&t.seconds, over(same(turned), memory), 1);
	return t;
}

static struct fo_device_time attention(const struct fo_device_rates *r, const struct fo_program *p,
				       const struct fo_op *o, double pairs)
{
	enum { QUERIES = 128 }; /* of a block: 2 x 64 forward, 64 x 128 backward, in cuDNN's kernels for 9.0 */
	bool backward = fo_op_family(o->kind) == FO_OPS_ATTENTION_BWD;
	struct fo_interval rate = r->rate[backward ? FO_DEVICE_ATTENTION_BACKWARD : FO_DEVICE_ATTENTION];
	const struct fo_operand *q = &o->arg[FO_ATTENTION_Q];
	double flop = fo_op_cost(p, o, pairs).exec,
	       keys = flop / ((backward ? 5. : 2.) * q->nc * q->nr); /* pairs of a query, times two */
	double blocks = ceil((double)q->nr / QUERIES) * (q->nc / o->attr.head_dim), full = wave(r, blocks);
	if (p->buf[q->buf].dtype != FO_BF16)
		return (struct fo_device_time){ .known = false };
	flop *= 1 + r->keys0[backward] / fmax(1, keys);
	return (struct fo_device_time){ .seconds = over((struct fo_interval){ flop, flop * full, flop * full }, rate),
					.known = true };
}

static struct fo_device_time moves(const struct fo_device_rates *r, const struct fo_program *p, const struct fo_op *o)
{
	enum fo_category c = fo_op_info(o->kind)->category;
	struct fo_interval bytes = same(fo_op_cost(p, o, -1).bytes);
	/* The loss of a training step writes the logits' gradient over them. */
	if (c == FO_CAT_LOSS && o->arg[FO_XENT_LOGITS].access == FO_UPDATE)
		bytes = scaled(loss_passes, bytes.mid);
	return (struct fo_device_time){
		.seconds = at_least(over(bytes, r->rate[c == FO_CAT_ELEMENTWISE ? FO_DEVICE_FUSED : FO_DEVICE_STREAM]),
				    least),
		.known = c != FO_CAT_COMMUNICATION,
	};
}

struct fo_device_time fo_device_op_seconds(const struct fo_device_rates *r, const struct fo_program *p,
					   const struct fo_op *o, uint32_t first, double pairs)
{
	struct fo_device_time t;
	enum fo_op_family family = fo_op_family(o->kind);
	if (family == FO_OPS_HOST)
		return (struct fo_device_time){ .known = true };
	if (family == FO_OPS_MATMUL)
		t = matmul(r, p, o, first);
	/* attention_bwd_rope rotates the gradients while it rounds them, and moves the bytes of attention_bwd. */
	else if (family == FO_OPS_ATTENTION || family == FO_OPS_ATTENTION_BWD)
		t = attention(r, p, o, pairs);
	else if (fo_op_info(o->kind)->cls == FO_CLASS_MEMORY)
		t = moves(r, p, o);
	else
		t = (struct fo_device_time){ .known = false };
	/* Attention that ends at documents takes less than the row that was measured: by the rate. */
	bool heats = fo_op_info(o->kind)->cls == FO_CLASS_TENSOR;
	struct fo_interval row;
	if (r->profile && (pairs < 0 || !heats || family == FO_OPS_MATMUL) &&
	    fo_device_profile_find(r->profile, fo_op_signature(p, o, first), &row)) {
		t = (struct fo_device_time){ .seconds = row };
		t.known = t.measured = true;
	}
	return t;
}

/* The part of a predicted step that each family of operations belongs to; matmuls of the head have their own. */
static const enum fo_device_part part_of[FO_OPS_FAMILIES] = {
	[FO_OPS_MATMUL] = FO_DEVICE_PART_LINEAR,
	[FO_OPS_ATTENTION] = FO_DEVICE_PART_ATTENTION,
	[FO_OPS_ATTENTION_BWD] = FO_DEVICE_PART_ATTENTION,
	[FO_OPS_EAGER] = FO_DEVICE_PART_ATTENTION,
	[FO_OPS_EAGER_BWD] = FO_DEVICE_PART_ATTENTION,
	[FO_OPS_CACHED] = FO_DEVICE_PART_ATTENTION,
	[FO_OPS_NORM] = FO_DEVICE_PART_FUSED,
	[FO_OPS_ROPE] = FO_DEVICE_PART_FUSED,
	[FO_OPS_EMBEDDING] = FO_DEVICE_PART_FUSED,
	[FO_OPS_BIAS] = FO_DEVICE_PART_FUSED,
	[FO_OPS_POINTWISE] = FO_DEVICE_PART_FUSED,
	[FO_OPS_COPY] = FO_DEVICE_PART_FUSED,
	[FO_OPS_CAST] = FO_DEVICE_PART_FP8,
	[FO_OPS_HISTORY] = FO_DEVICE_PART_FP8,
	[FO_OPS_LOSS] = FO_DEVICE_PART_LOSS,
	[FO_OPS_CLIP] = FO_DEVICE_PART_OPTIMIZER,
	[FO_OPS_UPDATE] = FO_DEVICE_PART_OPTIMIZER,
	[FO_OPS_TRANSFER] = FO_DEVICE_PART_TRANSFER,
	[FO_OPS_COLLECTIVE] = FO_DEVICE_PART_TRANSFER,
	[FO_OPS_P2P] = FO_DEVICE_PART_TRANSFER,
	[FO_OPS_HOST] = FO_DEVICE_PART_TRANSFER,
};

enum fo_device_part fo_device_part_of(const struct fo_op *o, enum fo_unit unit)
{
	if (o->phase == FO_RECOMPUTE)
		return FO_DEVICE_PART_REPEATED;
	if (fo_op_family(o->kind) == FO_OPS_MATMUL && unit == FO_UNIT_HEAD)
		return FO_DEVICE_PART_HEAD;
	return part_of[fo_op_family(o->kind)];
}

struct fo_interval fo_device_overlap(const struct fo_program *p)
{
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			if (p->block[b].op[i].lane != FO_LANE_COMPUTE && fo_lane_computes(p->block[b].op[i].lane))
				return overlap;
	return (struct fo_interval){ 0 };
}

/* The fast end saves most. */
struct fo_device_time fo_device_beside(struct fo_device_time t, const struct fo_op *o, struct fo_interval saved)
{
	if (fo_op_family(o->kind) != FO_OPS_MATMUL || (o->phase != FO_BACKWARD && o->phase != FO_WGRAD))
		return t;
	struct fo_interval *part[] = { &t.seconds, &t.sums };
	for (int i = 0; i < 2; i++)
		*part[i] = (struct fo_interval){ part[i]->low * (1 - saved.high), part[i]->mid * (1 - saved.mid),
						 part[i]->high * (1 - saved.low) };
	return t;
}

fo_status fo_device_program_seconds(const struct fo_device_rates *r, const struct fo_program *p, double pairs,
				    struct fo_interval *seconds)
{
	struct fo_interval saved = fo_device_overlap(p), sum = { 0 };
	for (int b = 0; b < p->nblock; b++) {
		const int64_t slots = fo_block_slots(p, b);
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct fo_device_time t = fo_device_op_seconds(r, p, o, 0, pairs);
			if (!fo_lane_computes(o->lane))
				continue;
			if (!t.known)
				return fo_fail(FO_EUNSUPPORTED, "nothing is known of how long %s takes on %s",
					       fo_op_info(o->kind)->name, r->name);
			t = fo_device_beside(t, o, saved);
			fo_interval_add(&sum, t.seconds, slots);
			fo_interval_add(&sum, r->gap_s, slots);
		}
	}
	*seconds = sum;
	return FO_OK;
}
