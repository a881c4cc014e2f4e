/* Which ranks of a fleet cannot be told apart: the coarsest partition in which all ranks of a class have one role
 * and the same factors on their times, and meet the same classes equally often in each group, at each neighbour and
 * on each host. By induction over the events of a step such ranks do the same at the same times, so one of each
 * class is simulated.
 *
 * The classes are refined until nothing changes: each round sums up the classes of every group (a hash of each,
 * added, so that the order does not matter) and tells ranks apart whose sums differ. */
#include "sim/fleet_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int32_t fo_fleet_partner(const struct fo_fleet *f, const struct fo_fleet_op *o, int32_t rank)
{
	int32_t ranks, place = fo_fleet_place(f, o->group, rank, &ranks) + o->peer;
	if (o->wraps)
		place = (place % ranks + ranks) % ranks;
	return place < 0 || place >= ranks ? -1 : fo_fleet_member(f, o->group, rank, place);
}

struct fo_fleet_odd fo_fleet_odd_of(const struct fo_fleet *f, int32_t rank)
{
	int32_t low = 0, high = f->odds;
	while (low < high) {
		int32_t middle = low + (high - low) / 2;
		if (f->odd[middle].rank < rank)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < f->odds && f->odd[low].rank == rank)
		return f->odd[low];
	return (struct fo_fleet_odd){ rank, 1, 1 };
}

/* ---- whom a role meets ---- */

/* A neighbour that a role sends to or receives from. */
struct neighbour {
	struct fo_fleet_op op;
	uint32_t roles; /* those with a number below 32; bit 31 stands for all others */
};
struct meets {
	bool group[FO_FLEET_GROUPS];
	struct neighbour *to;
	int32_t n;
	size_t cap;
};

static uint32_t role_bit(int32_t role) { return 1u << (role < 31 ? role : 31); }

static void add_neighbour(struct meets *m, const struct fo_fleet_op *o, int32_t role)
{
	for (int32_t i = 0; i < m->n; i++) {
		const struct fo_fleet_op *x = &m->to[i].op;
		if (x->group == o->group && x->peer == o->peer && x->wraps == o->wraps) {
			m->to[i].roles |= role_bit(role);
			return;
		}
	}
	fo_array_room(&m->to, &m->cap, (size_t)m->n, sizeof *m->to);
	m->to[m->n++] = (struct neighbour){ *o, role_bit(role) };
}

static struct meets meets_of(const struct fo_fleet *f)
{
	struct meets m = { 0 };
	for (int32_t k = 0; k < f->roles; k++)
		for (int32_t i = 0; i < f->role[k].ops; i++) {
			const struct fo_fleet_op *o = &f->role[k].op[i];
			if (o->does == FO_FLEET_CALLS)
				m.group[o->group] = true;
			else if (o->does != FO_FLEET_WORKS)
				add_neighbour(&m, o, k);
		}
	return m;
}

/* ---- refining ---- */

struct refining {
	const struct fo_fleet *f;
	struct meets meets;
	int32_t ranks, n;
	int32_t *class;
	uint64_t *mark, *sum; /* per rank; per group, at its lowest rank */
	int32_t *slot;        /* a hash table of marks: ranks that had one first */
	size_t slots;
};

static uint64_t bits_of(double x)
{
	uint64_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static void add_mark(struct refining *x, int32_t rank, uint64_t what, uint64_t salt)
{
	x->mark[rank] = fo_fleet_mix(x->mark[rank] ^ fo_fleet_mix(what + salt));
}

/* Gives ranks of equal marks one number, in the order of their first ranks. */
static void number(struct refining *x)
{
	memset(x->slot, -1, x->slots * sizeof *x->slot);
	x->n = 0;
	for (int32_t r = 0; r < x->ranks; r++) {
		size_t at = x->mark[r] & (x->slots - 1);
		while (x->slot[at] >= 0 && x->mark[x->slot[at]] != x->mark[r])
			at = (at + 1) & (x->slots - 1);
		if (x->slot[at] < 0) {
			x->slot[at] = r;
			x->class[r] = x->n++;
		} else {
			x->class[r] = x->class[x->slot[at]];
		}
	}
}

static void mark_blocks(struct refining *x, int32_t ranks, uint64_t salt)
{
	for (int32_t from = 0; ranks > 1 && from < x->ranks; from += ranks) {
		uint64_t sum = 0;
		int32_t to = from + ranks < x->ranks ? from + ranks : x->ranks;
		for (int32_t r = from; r < to; r++)
			sum += fo_fleet_mix((uint64_t)x->class[r]);
		for (int32_t r = from; r < to; r++)
			add_mark(x, r, sum, salt);
	}
}

static void mark_group(struct refining *x, int32_t group, uint64_t salt)
{
	memset(x->sum, 0, (size_t)x->ranks * sizeof *x->sum);
	for (int32_t r = 0; r < x->ranks; r++)
		x->sum[fo_fleet_colour(x->f, group, r)] += fo_fleet_mix((uint64_t)x->class[r]);
	for (int32_t r = 0; r < x->ranks; r++)
		add_mark(x, r, x->sum[fo_fleet_colour(x->f, group, r)], salt);
}

static void mark_neighbours(struct refining *x)
{
	for (int32_t k = 0; k < x->meets.n; k++) {
		const struct neighbour *to = &x->meets.to[k];
		for (int32_t r = 0; r < x->ranks; r++) {
			if (!(to->roles & role_bit(fo_fleet_role_of(x->f, r))))
				continue;
			int32_t other = fo_fleet_partner(x->f, &to->op, r);
			/* Roles above the 31st share a bit, so a rank need not have this neighbour; one that
			 * communicates with it is found out when it does. */
			add_mark(x, r, other < 0 ? UINT64_MAX : (uint64_t)x->class[other], 1000 + (uint64_t)k);
		}
	}
}

/* How many members of a rank's group are in its block: what of a shared link a call takes depends on it. */
static int32_t members_in_block(const struct fo_fleet *f, int32_t group, int32_t rank, int32_t block)
{
	const int32_t colour = fo_fleet_colour(f, group, rank), from = rank / block * block;
	int32_t n = 0;
	for (int32_t r = from; r < from + block && r < fo_fleet_ranks(f); r++)
		n += fo_fleet_colour(f, group, r) == colour;
	return n;
}

static void refine(struct refining *x)
{
	const struct fo_fleet *f = x->f;
	for (int32_t r = 0; r < x->ranks; r++) {
		struct fo_fleet_odd odd = fo_fleet_odd_of(f, r);
		x->mark[r] = (uint64_t)fo_fleet_role_of(f, r);
		add_mark(x, r, bits_of(odd.work), 1);
		add_mark(x, r, bits_of(odd.link), 2);
		for (int32_t l = 0; l < f->links; l++)
			for (int32_t g = 0; f->link[l].ranks > 1 && g < f->groups; g++)
				add_mark(x, r, (uint64_t)members_in_block(f, g, r, f->link[l].ranks), 3);
	}
	number(x);
	for (int32_t before = 0; before < x->n;) {
		before = x->n;
		for (int32_t r = 0; r < x->ranks; r++)
			x->mark[r] = fo_fleet_mix((uint64_t)x->class[r]);
		for (int32_t g = 0; g < f->groups; g++)
			if (x->meets.group[g])
				mark_group(x, g, 10 + (uint64_t)g);
		for (int32_t l = 0; l < f->links; l++)
			mark_blocks(x, f->link[l].ranks, 100 + (uint64_t)l);
		mark_blocks(x, f->crowd.ranks, 200);
		mark_neighbours(x);
		number(x);
	}
}

/* ---- what classes there are ---- */

static void circles_of(struct fo_fleet_classes *c, const struct fo_fleet *f, int32_t g)
{
	struct fo_fleet_circle *x = &c->circle[g];
	size_t cap = 0, begin_cap = 0, ranks_cap = 0;
	int32_t members = 0;
	int32_t *seen = fo_xmalloc((size_t)(c->n + 1) *
				   sizeof *seen); /* the circle that a class was added to last, + 1 */
	x->of = fo_xmalloc((size_t)(c->n + 1) * sizeof *x->of);
	memset(x->of, -1, (size_t)(c->n + 1) * sizeof *x->of);
	for (int32_t k = 0; k < c->n; k++) {
		if (x->of[k] >= 0)
			continue;
		int32_t ranks;
		fo_fleet_place(f, g, c->first[k], &ranks);
		fo_array_room(&x->begin, &begin_cap, (size_t)x->n + 1, sizeof *x->begin);
		fo_array_room(&x->ranks, &ranks_cap, (size_t)x->n, sizeof *x->ranks);
		x->begin[x->n] = members;
		x->ranks[x->n] = ranks;
		for (int32_t i = 0; i < ranks; i++) {
			int32_t other = c->of[fo_fleet_member(f, g, c->first[k], i)];
			if (seen[other] == x->n + 1)
				continue;
			seen[other] = x->n + 1;
			x->of[other] = x->n;
			fo_array_room(&x->member, &cap, (size_t)members, sizeof *x->member);
			x->member[members++] = other;
		}
		x->begin[++x->n] = members;
	}
	free(seen);
}

static void take_classes(struct fo_fleet_classes *c, struct refining *x)
{
	c->n = x->n;
	c->of = x->class;
	x->class = NULL;
	c->first = fo_xmalloc((size_t)(c->n + 1) * sizeof *c->first);
	c->ranks = fo_xmalloc((size_t)(c->n + 1) * sizeof *c->ranks);
	for (int32_t r = x->ranks - 1; r >= 0; r--) {
		c->first[c->of[r]] = r;
		c->ranks[c->of[r]]++;
	}
	for (int32_t g = 0; g < x->f->groups; g++)
		if (x->meets.group[g])
			circles_of(c, x->f, g);
}

void fo_fleet_classes_of(struct fo_fleet_classes *c, const struct fo_fleet *f)
{
	struct refining x = { .f = f, .meets = meets_of(f), .ranks = fo_fleet_ranks(f) };
	const size_t n = (size_t)x.ranks;
	*c = (struct fo_fleet_classes){ 0 };
	x.class = fo_xmalloc(n * sizeof *x.class);
	if (f->jitter > 0 || f->apart) {
		x.n = x.ranks;
		for (int32_t r = 0; r < x.ranks; r++)
			x.class[r] = r;
	} else {
		x.mark = fo_xmalloc(n * sizeof *x.mark);
		x.sum = fo_xmalloc(n * sizeof *x.sum);
		for (x.slots = 16; x.slots < 2 * n;)
			x.slots *= 2;
		x.slot = fo_xmalloc(x.slots * sizeof *x.slot);
		refine(&x);
	}
	take_classes(c, &x);
	free(x.class);
	free(x.mark);
	free(x.sum);
	free(x.slot);
	free(x.meets.to);
}

void fo_fleet_classes_fini(struct fo_fleet_classes *c)
{
	for (int g = 0; g < FO_FLEET_GROUPS; g++) {
		free(c->circle[g].of);
		free(c->circle[g].begin);
		free(c->circle[g].member);
		free(c->circle[g].ranks);
	}
	free(c->of);
	free(c->first);
	free(c->ranks);
	*c = (struct fo_fleet_classes){ 0 };
}

/* ---- blocks ---- */

void fo_fleet_blocks_of(struct fo_fleet_blocks *b, const struct fo_fleet_classes *c, const struct fo_fleet *f,
			int32_t ranks)
{
	const int32_t all = fo_fleet_ranks(f);
	size_t cap = 0, begin_cap = 0;
	int32_t parts = 0;
	*b = (struct fo_fleet_blocks){ .ranks = ranks };
	b->of = fo_xmalloc((size_t)(c->n + 1) * sizeof *b->of);
	memset(b->of, -1, (size_t)(c->n + 1) * sizeof *b->of);
	for (int32_t k = 0; k < c->n; k++) {
		if (b->of[k] >= 0)
			continue;
		const int32_t from = c->first[k] / ranks * ranks, to = from + ranks < all ? from + ranks : all;
		fo_array_room(&b->begin, &begin_cap, (size_t)b->n + 1, sizeof *b->begin);
		b->begin[b->n] = parts;
		for (int32_t r = from; r < to; r++) {
			int32_t i = b->begin[b->n];
			while (i < parts && b->part[i].class != c->of[r])
				i++;
			if (i == parts) {
				fo_array_room(&b->part, &cap, (size_t)parts, sizeof *b->part);
				b->part[parts++] = (struct fo_fleet_part){ c->of[r], 0 };
				b->of[c->of[r]] = b->n;
			}
			b->part[i].ranks++;
		}
		b->begin[++b->n] = parts;
	}
}

void fo_fleet_blocks_fini(struct fo_fleet_blocks *b)
{
	free(b->of);
	free(b->begin);
	free(b->part);
	*b = (struct fo_fleet_blocks){ 0 };
}
