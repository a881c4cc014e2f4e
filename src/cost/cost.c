#include "cost/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

const char *const fo_sure_name[FO_SURE_COUNT] = { "exact", "interpolated", "guessed", "unknown" };

/* A row one doubling away counts a sixteenth of one that fits: rates change by a few percent per doubling where shapes
 * are large, so near rows shall decide and far ones only stand in. */
#define NEAR 0.0625
#define SHARPNESS 4
/* Rows are of the same work where it differs by no more than this: shares of bytes, relative FLOP. */
#define SAME 0.02
/* Distance between all operands in the caches and none of them, in doublings of the bytes. */
#define COLD_DOUBLINGS 2

/* The median of the quiet measurements, of all where none was quiet. */
static bool was_quiet(const struct fo_limits_row *row) { return row->time.quiet > 0; }
static double seconds_of(const struct fo_limits_row *row)
{
	return was_quiet(row) ? row->time.quiet_median_s : row->time.median_s;
}

/* ---- what an operation is ---- */

static bool is_attention(const struct fo_op *o)
{
	enum fo_category c = fo_op_info(o->kind)->category;
	return c == FO_CAT_ATTENTION_FORWARD || c == FO_CAT_ATTENTION_BACKWARD;
}
static bool is_matmul(const struct fo_op *o) { return fo_op_family(o->kind) == FO_OPS_MATMUL; }
static bool is_tensor(const struct fo_op *o) { return fo_op_info(o->kind)->cls == FO_CLASS_TENSOR; }

uint64_t fo_op_signature(const struct fo_program *p, const struct fo_op *o, uint32_t first)
{
	/* A fixed layout without padding: the number must be the same in every build. */
	int32_t v[6 + 5 * FO_MAX_OPERANDS];
	int n = 0;
	char name[24] = { 0 };
	snprintf(name, sizeof name, "%s", fo_op_info(o->kind)->name);
	v[n++] = o->attr.ta;
	v[n++] = o->attr.tb;
	v[n++] = o->attr.head_dim;
	v[n++] = o->attr.window;
	v[n++] = o->attr.stochastic;
	v[n++] = o->n;
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		bool adds = a->access == FO_ACC && !(first >> i & 1);
		v[n++] = a->nr;
		v[n++] = a->nc;
		v[n++] = a->nr > 1 ? (int32_t)p->buf[a->buf].cols : a->nc;
		v[n++] = p->buf[a->buf].dtype;
		v[n] = a->access == FO_UPDATE; /* what else it is follows from the kind */
		if (adds)
			v[n] = 2;
		n++;
	}
	uint64_t h = XXH3_64bits_withSeed(v, (size_t)n * sizeof *v, XXH3_64bits(name, sizeof name));
	return h ? h : 1;
}

/* The type of the first operand for matmuls and attention, else that of the run. */
static const char *dtype_of(const struct fo_program *p, const struct fo_op *o)
{
	if (is_tensor(o))
		return fo_dtype_name[p->buf[o->arg->buf].dtype];
	static const int dtype[] = {
		[FO_PRECISION_F32] = FO_F32, [FO_PRECISION_BF16] = FO_BF16, [FO_PRECISION_F64] = FO_F64
	};
	return fo_dtype_name[dtype[p->run.precision]];
}

static const char *variant_of(const struct fo_op *o)
{
	if (!is_matmul(o))
		return is_attention(o) ? "causal" : "-";
	if (o->attr.ta)
		return "wgrad";
	return o->attr.tb ? "forward" : "dgrad";
}

static void shape_of(const struct fo_program *p, const struct fo_op *o, int64_t dim[FO_LIMITS_DIMS])
{
	const struct fo_operand *q = &o->arg[FO_ATTENTION_Q], *k = &o->arg[FO_ATTENTION_K];
	memset(dim, 0, FO_LIMITS_DIMS * sizeof *dim);
	if (is_matmul(o)) {
		fo_matmul_dims(o, &dim[0], &dim[1], &dim[2]);
	} else if (is_attention(o)) {
		/* Tokens of a row: rows are apart, each has its own triangle. */
		dim[0] = p->run.mode == FO_MODE_DECODE ? k->nr : p->run.seq;
		dim[1] = q->nc / o->attr.head_dim;
		dim[2] = k->nc / o->attr.head_dim;
		dim[3] = o->attr.head_dim;
	} else {
		for (int i = 0; i < o->n; i++)
			if ((int64_t)o->arg[i].nr * o->arg[i].nc > dim[0] * dim[1]) {
				dim[0] = o->arg[i].nr;
				dim[1] = o->arg[i].nc;
			}
	}
}

fo_status fo_op_row(const struct fo_program *p, const struct fo_op *o, uint32_t first, double pairs,
		    struct fo_limits_row *row)
{
	const struct fo_op_info *info = fo_op_info(o->kind);
	if (info->cls != FO_CLASS_TENSOR && info->cls != FO_CLASS_MEMORY)
		return fo_fail(FO_EARG, "operation '%s' is computed by no kernel", info->name);
	struct fo_cost c = fo_op_cost(p, o, pairs);
	*row = (struct fo_limits_row){
		.key = fo_op_signature(p, o, first), .flop = c.exec, .bytes = c.bytes, .cold = NAN
	};
	snprintf(row->kind, sizeof row->kind, "%s", info->name);
	snprintf(row->variant, sizeof row->variant, "%s", variant_of(o));
	snprintf(row->dtype, sizeof row->dtype, "%s", dtype_of(p, o));
	shape_of(p, o, row->dim);
	return FO_OK;
}

/* ---- the machine ---- */

int fo_rates_threads(const struct fo_limits *l)
{
	int most = 0;
	for (size_t i = 0; i < l->rows; i++)
		if (!strcmp(l->row[i].kind, "matmul") && l->row[i].threads > most)
			most = l->row[i].threads;
	return most;
}

int fo_rates_cores(const struct fo_limits *l)
{
	int most = fo_rates_threads(l);
	for (size_t i = 0; i < l->peaks; i++)
		most = l->peak[i].threads > most ? l->peak[i].threads : most;
	return most;
}

static double mean_rate(const struct fo_rates *r, const char *kind, const char *dtype);

fo_status fo_rates_init(struct fo_rates *r, const struct fo_limits *l, int threads)
{
	*r = (struct fo_rates){ .limits = l, .threads = threads, .copy_byte_s = fo_limits_memory(l, "copy", threads) };
	for (size_t i = 0; i < l->rows; i++)
		if (!strcmp(l->row[i].kind, "overhead"))
			r->overhead_s = seconds_of(&l->row[i]);
	fo_caches_of(&r->caches, l);
	if (mean_rate(r, "matmul", NULL) > 0 && r->copy_byte_s > 0)
		return FO_OK;
	fo_status st = fo_fail(FO_EUNSUPPORTED, "the machine profile has no times of matmuls and memory with %d %s",
			       threads, fo_word(threads, "thread", "threads"));
	int most = fo_rates_threads(l);
	return most && most != threads
		       ? fo_hint(st,
				 "'flatout calibrate --threads=%d' measures them; there are times with run.threads=%d",
				 threads, most)
		       : fo_hint(st, "'flatout calibrate --threads=%d' measures them", threads);
}

/* ---- exact ---- */

struct at {
	double x, seconds;
	bool found, quiet;
};

/* Rows of this signature, by the share of cold bytes, or of attention by FLOP (documents): the one that fits, else
 * between two. false: there is none. */
static bool exact(const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
		  const struct fo_op_use *use, struct fo_op_time *t)
{
	uint64_t key = fo_op_signature(p, o, use->first);
	bool pairs = is_attention(o);
	const double cold = fo_reuse_share(p, o, use->cold);
	double want = pairs ? fo_op_cost(p, o, use->pairs).exec : cold + use->lost;
	struct at low = { 0 }, high = { 0 };
	for (size_t i = 0; i < r->limits->rows; i++) {
		const struct fo_limits_row *row = &r->limits->row[i];
		if (row->key != key || row->threads != r->threads)
			continue;
		struct at here = { want, seconds_of(row), true, was_quiet(row) };
		if (pairs)
			here.x = row->flop;
		else if (!isnan(row->cold))
			here.x = row->cold;
		if (here.x <= want && (!low.found || here.x >= low.x))
			low = here;
		if (here.x >= want && (!high.found || here.x <= high.x))
			high = here;
	}
	if (!low.found && !high.found)
		return false;
	struct at near = !high.found || (low.found && want - low.x <= high.x - want) ? low : high;
	bool fits = fabs(near.x - want) <= SAME * (pairs ? want : 1);
	/* It was measured with and without the bytes that others push out, and their share was measured, too. */
	const bool both = !pairs && low.found && high.found && fabs(low.x - cold) <= SAME;
	t->sure = fits || both ? FO_SURE_EXACT : FO_SURE_NEAR;
	t->quiet = near.quiet;
	t->seconds = near.seconds;
	if (fits)
		return true;
	if (low.found && high.found)
		t->seconds = low.seconds + (high.seconds - low.seconds) * (want - low.x) / (high.x - low.x);
	else if (pairs && near.x > 0)
		t->seconds = near.seconds * want / near.x;
	return true;
}

/* ---- interpolated ---- */

static bool is_of(const struct fo_limits_row *row, const char *kind, const char *variant, const char *dtype,
		  int threads)
{
	return row->threads == threads && !strcmp(row->kind, kind) && (!variant || !strcmp(row->variant, variant)) &&
	       (!dtype || !strcmp(row->dtype, dtype));
}

/* A mean of rates by nearness. */
struct mean {
	double log_rate, weight, nearest;
	bool quiet; /* the nearest */
};
static void mean_add(struct mean *m, const struct fo_limits_row *row, double work, double distance)
{
	double w = 1 / pow(distance + NEAR, SHARPNESS), rate = work / seconds_of(row);
	if (!(rate > 0) || !isfinite(rate))
		return;
	if (!(m->weight > 0) || distance < m->nearest) {
		m->nearest = distance;
		m->quiet = was_quiet(row);
	}
	m->log_rate += w * log(rate);
	m->weight += w;
}
static double mean_of(const struct mean *m) { return m->weight > 0 ? exp(m->log_rate / m->weight) : 0; }
static struct fo_op_time time_by_mean(const struct mean *m, double work)
{
	return (struct fo_op_time){ work / mean_of(m), m->nearest <= FO_COST_NEAR ? FO_SURE_NEAR : FO_SURE_GUESS,
				    m->quiet };
}

/* FLOP/s of a kind whatever the shape; 0: no row. */
static double mean_rate(const struct fo_rates *r, const char *kind, const char *dtype)
{
	struct mean m = { 0 };
	for (size_t i = 0; i < r->limits->rows; i++)
		if (is_of(&r->limits->row[i], kind, NULL, dtype, r->threads))
			mean_add(&m, &r->limits->row[i], r->limits->row[i].flop, 1);
	return mean_of(&m);
}

static struct fo_op_time tensor_time(const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
				     const struct fo_op_use *use)
{
	struct fo_cost c = fo_op_cost(p, o, use->pairs);
	const char *kind = fo_op_info(o->kind)->name, *variant = variant_of(o), *dtype = dtype_of(p, o);
	int64_t dim[FO_LIMITS_DIMS];
	struct mean m = { 0 };
	shape_of(p, o, dim);
	for (size_t i = 0; i < r->limits->rows; i++) {
		const struct fo_limits_row *row = &r->limits->row[i];
		double d = 0;
		if (!is_of(row, kind, variant, dtype, r->threads))
			continue;
		for (int k = 0; k < FO_LIMITS_DIMS; k++)
			if (dim[k] > 0 && row->dim[k] > 0)
				d += fabs(log2((double)dim[k] / (double)row->dim[k]));
		mean_add(&m, row, row->flop, d);
	}
	if (m.weight > 0)
		return time_by_mean(&m, c.exec);
	/* No row of this pass and type (fp8 factors are widened when they are packed): any row of the kind stands in,
	 * then any matmul. */
	double rate = mean_rate(r, kind, NULL);
	rate = rate > 0 ? rate : mean_rate(r, "matmul", dtype);
	rate = rate > 0 ? rate : mean_rate(r, "matmul", NULL);
	return (struct fo_op_time){ c.exec / rate, FO_SURE_GUESS, false };
}

/* Share of cold bytes. Rows of older profiles do not say: what is larger than the caches was in none. */
static double row_share(const struct fo_rates *r, const struct fo_limits_row *row)
{
	return isnan(row->cold) ? row->bytes > (double)r->limits->cache_bytes : row->cold;
}

static struct fo_op_time memory_time(const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
				     const struct fo_op_use *use)
{
	double bytes = fo_op_cost(p, o, use->pairs).bytes, share = fo_reuse_share(p, o, use->cold) + use->lost;
	const struct fo_op_info *info = fo_op_info(o->kind);
	/* An operation on many tensors does the same to each as its base: rows of the base may stand in. */
	const char *kinds[] = { info->name, fo_op_info(info->base)->name }, *dtype = dtype_of(p, o);
	struct mean m = { 0 };
	for (int k = 0; k < 2 && !(m.weight > 0); k++)
		for (size_t i = 0; i < r->limits->rows; i++) {
			const struct fo_limits_row *row = &r->limits->row[i];
			if (is_of(row, kinds[k], NULL, dtype, r->threads) && row->bytes > 0)
				mean_add(&m, row, row->bytes,
					 fabs(log2((bytes > 1 ? bytes : 1) / row->bytes)) +
						 COLD_DOUBLINGS * fabs(share - row_share(r, row)));
		}
	if (!(m.weight > 0))
		return (struct fo_op_time){ bytes / r->copy_byte_s, FO_SURE_GUESS, false };
	return time_by_mean(&m, bytes);
}

struct fo_op_time fo_rates_op(const struct fo_rates *r, const struct fo_program *p, const struct fo_op *o,
			      const struct fo_op_use *use)
{
	struct fo_op_time t = { 0, FO_SURE_EXACT, true };
	switch (fo_op_info(o->kind)->cls) {
	case FO_CLASS_TENSOR: return exact(r, p, o, use, &t) ? t : tensor_time(r, p, o, use);
	case FO_CLASS_MEMORY: return exact(r, p, o, use, &t) ? t : memory_time(r, p, o, use);
	case FO_CLASS_COMM: t.sure = FO_SURE_NONE; break;
	case FO_CLASS_HOST: break;
	}
	return t;
}
