#include "cost/links.h"

#include <math.h>
#include <string.h>

bool fo_link_is_row(const struct fo_limits_row *row) { return !strcmp(row->variant, FO_LINK_VARIANT); }

const char *fo_link_kind(enum fo_wire wire)
{
	/* What one rank sends another receives: their call is one. A shift is as many such calls side by side. */
	if (wire == FO_WIRE_SEND || wire == FO_WIRE_SHIFT)
		wire = FO_WIRE_RECEIVE;
	for (int k = 0; wire != FO_WIRE_NONE && k < FO_OP_COUNT; k++)
		if (fo_op_info(k)->wire == wire && !fo_op_info(k)->per_tensor)
			return fo_op_info(k)->name;
	return NULL;
}

/* Groups of so many ranks, numbered so far apart. */
struct shape {
	int64_t ranks, apart;
};

/* Rows of a kind (NULL: any) over one transport. */
struct rows {
	const struct fo_limits *l;
	const char *kind, *over;
};

/* Two points of the line that `bytes` lies on, in groups of so many ranks. */
struct line {
	const struct fo_limits_row *low, *high; /* the nearest below or at, above or at; NULL: none */
	const struct fo_limits_row *second;     /* beside the only one of them, on the other side of it */
};

static bool is_of(const struct rows *x, const struct fo_limits_row *row)
{
	return fo_link_is_row(row) && !strcmp(row->set, x->over) && (!x->kind || !strcmp(row->kind, x->kind));
}

static bool fits(const struct rows *x, const struct fo_limits_row *row, struct shape g)
{
	return is_of(x, row) && row->dim[0] == g.ranks && row->dim[2] == g.apart;
}

static struct line line_of(const struct rows *of, struct shape ranks, double bytes)
{
	const struct fo_limits *l = of->l;
	struct line x = { 0 };
	for (size_t i = 0; i < l->rows; i++) {
		const struct fo_limits_row *row = &l->row[i];
		if (!fits(of, row, ranks))
			continue;
		if (row->bytes <= bytes && (!x.low || row->bytes > x.low->bytes))
			x.low = row;
		if (row->bytes >= bytes && (!x.high || row->bytes < x.high->bytes))
			x.high = row;
	}
	const struct fo_limits_row *end = x.low ? x.low : x.high;
	for (size_t i = 0; i < l->rows && end && !(x.low && x.high); i++) {
		const struct fo_limits_row *row = &l->row[i];
		bool beyond = x.low ? row->bytes < end->bytes : row->bytes > end->bytes;
		if (fits(of, row, ranks) && beyond &&
		    (!x.second || fabs(row->bytes - end->bytes) < fabs(x.second->bytes - end->bytes)))
			x.second = row;
	}
	return x;
}

/* Latency is what the smallest call takes: nothing below it. Above the largest the last two sizes say how it goes on.
 */
static double along(const struct line *x, double bytes, enum fo_sure *sure)
{
	*sure = FO_SURE_EXACT;
	if (x->low && x->high) {
		double a = fo_limits_row_seconds(x->low), b = fo_limits_row_seconds(x->high),
		       width = x->high->bytes - x->low->bytes;
		return width > 0 ? a + (b - a) * (bytes - x->low->bytes) / width : a;
	}
	if (!x->low)
		return fo_limits_row_seconds(x->high);
	*sure = FO_SURE_NEAR;
	double end = fo_limits_row_seconds(x->low);
	if (!x->second)
		return end * bytes / x->low->bytes;
	double slope = (end - fo_limits_row_seconds(x->second)) / (x->low->bytes - x->second->bytes);
	return end + fmax(slope, 0) * (bytes - x->low->bytes);
}

/* How many times one is the other, either way, as a power of two. */
static double unlike(int64_t a, int64_t b) { return fabs(log2((double)a / (double)b)); }

/* The groups, of those measured, that are nearest: in size, then in how far apart; ranks 0: none. */
static struct shape nearest_group(const struct rows *of, struct shape g)
{
	struct shape best = { 0 };
	double size = 0, apart = 0;
	for (size_t i = 0; i < of->l->rows; i++) {
		const struct fo_limits_row *row = &of->l->row[i];
		if (!is_of(of, row) || row->dim[0] < 1 || row->dim[2] < 0)
			continue;
		const double s = unlike(row->dim[0], g.ranks), a = row->dim[2] ? unlike(row->dim[2], g.apart) : 0;
		if (best.ranks && (s > size || (s == size && a >= apart)))
			continue;
		best = (struct shape){ row->dim[0], row->dim[2] };
		size = s;
		apart = a;
	}
	return best;
}

static double own_work(const struct fo_link_rates *r, enum fo_wire wire, struct shape g, double bytes,
		       enum fo_sure *sure)
{
	const char *kinds[] = { fo_link_kind(wire), NULL };
	for (int k = 0; k < 2; k++) {
		const struct rows of = { r->limits, kinds[k], r->over ? r->over : FO_LINK_THREADS };
		struct shape group = nearest_group(&of, g);
		if (!group.ranks)
			continue;
		struct line x = line_of(&of, group, bytes);
		double s = along(&x, bytes, sure);
		if (k || group.ranks != g.ranks || (group.apart && group.apart != g.apart))
			*sure = FO_SURE_GUESS;
		return s;
	}
	*sure = r->copy_byte_s > 0 ? FO_SURE_GUESS : FO_SURE_NONE;
	return r->copy_byte_s > 0 ? bytes / r->copy_byte_s : 0;
}

struct fo_link_time fo_link_op(const struct fo_link_rates *r, const struct fo_program *p, const struct fo_op *o,
			       double most)
{
	struct fo_link_time t = { 0 };
	const struct fo_mesh *m = &p->run.mesh;
	const enum fo_group group = (enum fo_group)o->group;
	const enum fo_wire wire = fo_op_info(o->kind)->wire;
	struct shape g = { fo_mesh_group(m, group, NULL, NULL), 1 };
	if (g.ranks > 1)
		g.apart = fo_mesh_member(m, group, 1) - fo_mesh_member(m, group, 0);
	if (wire == FO_WIRE_SEND || wire == FO_WIRE_RECEIVE || wire == FO_WIRE_SHIFT)
		g.ranks = 2;
	t.own_s = own_work(r, wire, g, most, &t.sure);
	t.hold_s = t.own_s;
	if (r->byte_s > 0 || r->latency_s > 0)
		t.hold_s = fo_op_tensors(o->kind, o->n) * r->latency_s + (r->byte_s > 0 ? most / r->byte_s : 0);
	return t;
}

/* ---- ranks that compute at once ---- */

/* The least seconds of the row of `ranks` ranks; 0: there is none. The least, because what else the machine does falls
 * on some passes only, and on those of one rank as on those of many. */
static double crowd_seconds(const struct fo_rates *r, const char *variant, int64_t ranks)
{
	for (size_t i = 0; i < r->limits->rows; i++) {
		const struct fo_limits_row *row = &r->limits->row[i];
		if (!strcmp(row->kind, FO_CROWD_ROW) && !strcmp(row->variant, variant) && row->threads == r->threads &&
		    row->dim[0] == ranks)
			return row->time.best_s;
	}
	return 0;
}

/* How many times as long `ranks` take as one, on the line between the numbers of ranks that were measured. Beyond the
 * greatest nothing is known: 0. */
static double crowd_measured(const struct fo_rates *r, const char *variant, int ranks)
{
	const double one = crowd_seconds(r, variant, 1);
	int64_t below = 1, above = 0;
	for (size_t i = 0; i < r->limits->rows; i++) {
		const struct fo_limits_row *row = &r->limits->row[i];
		if (!(crowd_seconds(r, variant, row->dim[0]) > 0) || strcmp(row->kind, FO_CROWD_ROW) != 0)
			continue;
		if (row->dim[0] <= ranks && row->dim[0] > below)
			below = row->dim[0];
		if (row->dim[0] >= ranks && (!above || row->dim[0] < above))
			above = row->dim[0];
	}
	if (!(one > 0) || !above)
		return 0;
	const double a = crowd_seconds(r, variant, below) / one, b = crowd_seconds(r, variant, above) / one;
	return fmax(above > below ? a + (b - a) * (double)(ranks - below) / (double)(above - below) : a, 1);
}

struct fo_crowd fo_rates_crowd(const struct fo_rates *r, int ranks, int cores)
{
	int all = ranks * r->threads, most = 0;
	double turns = cores > 0 && all > cores ? (double)all / cores : 1;
	struct fo_crowd c = { turns, turns, false, false };
	if (ranks == 1)
		return (struct fo_crowd){ 1, 1, true, false };
	const double tensor = crowd_measured(r, FO_CROWD_TENSOR_ROW, ranks),
		     memory = crowd_measured(r, FO_CROWD_MEMORY_ROW, ranks);
	if (tensor > 0)
		return (struct fo_crowd){ fmax(tensor, turns), fmax(memory > 0 ? memory : tensor, turns), true, true };
	/* With more threads than cores the rate is that of the cores. */
	for (size_t i = 0; i < r->limits->peaks; i++)
		if (r->limits->peak[i].threads > most && r->limits->peak[i].threads <= all)
			most = r->limits->peak[i].threads;
	for (size_t i = 0; i < r->limits->peaks; i++) {
		const struct fo_limits_peak *one = &r->limits->peak[i],
					    *many = fo_limits_peak(r->limits, one->dtype, most);
		if (one->threads != r->threads || !many || most <= r->threads || (most < all && most < cores))
			continue;
		c.tensor = fmax(c.known ? c.tensor : turns, ranks * one->best_flop_s / many->best_flop_s);
		c.known = true;
	}
	double one = fo_limits_memory(r->limits, "copy", r->threads), many = fo_limits_memory(r->limits, "copy", most);
	if (c.known && one > 0 && many > 0)
		c.memory = fmax(turns, ranks * one / many);
	return c;
}
