/* The events of a fleet's step.
 *
 * What goes on is kept as work that is left and the rate at which it goes on. One heap holds when each would end: what
 * lanes compute, and transfers. Where a rate changes (another lane or rank begins to compute, another transfer takes a
 * link), what is left is brought up to date and the end moves.
 *
 * A class of which one lane alone computes, on a host without others in its way, runs ahead: nothing but calls can
 * change when its operations begin and end, so they are gone through at once up to the next calls. When a call is met
 * is the latest of its ranks' times whatever the order in which they come. It waits in the heap until then where
 * transfers may share a link, because these depend on their order in time; where none can, it is over at once, and its
 * ranks go on. */
#include "sim/fleet_int.h"

#include "base/count.h"
#include "base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many operations of classes are simulated at most: 21 bytes each, so 1.7 GB. */
#define OPERATIONS_MOST 80000000.0

enum state { IDLE, COMES, RUNS, WAITS, IN_TRANSFER, DISPATCHES };
struct lane {
	double free_s; /* its last operation ended */
	double at, left, rate;
	int32_t next; /* place in the lane's list */
	int32_t op;   /* that runs */
	int32_t transfer;
	uint8_t state;
};
/* Of a role: its operations by lane, and the lanes that it uses. */
struct plan {
	int32_t *list[FO_LANE_COUNT], n[FO_LANE_COUNT];
	uint8_t lane[FO_LANE_COUNT];
	int32_t lanes, calls, computing; /* lanes; calls; lanes that compute */
};
struct class
{
	const struct fo_fleet_role *role;
	const struct plan *plan;
	struct fo_fleet_class *out;
	double work, link; /* factors */
	struct lane *lane; /* FO_LANE_COUNT of them */
	int32_t computing; /* lanes that compute now */
	bool ahead, ready; /* ready: in engine.ready */
};
/* A call that some of its group have come to. */
struct meeting {
	int32_t came, class, op;     /* class and op: that came first */
	int32_t last_class, last_op; /* that came last in time; of several the class with the highest number */
	double last_s, own_s, link_s;
	uint8_t link;
};
struct transfer {
	double own_end, at, left, rate;
	int32_t circle, a, b; /* circle: index of members, or -1: classes a sends to b */
	uint8_t group, channel, link;
	bool on_links; /* else the ranks' own work is what is left of it */
};
/* A link of a class, or of a kind of block: what is on it now. */
struct on_link {
	int32_t transfer, class;
};
struct load {
	double sum;
	struct on_link *on;
	int32_t n;
	size_t cap;
	double busy_until; /* serial */
};
struct heap {
	double *key;
	int32_t *id, *at; /* at: place by id; -1: not in it */
	int32_t n;
	size_t cap, ids;
	int32_t lane_ids; /* ids below are lanes; from there on, by transfer, its end and its begin */
};
/* A transfer and where it is. */
struct met {
	struct transfer at;
	int32_t id;
};
struct engine {
	const struct fo_fleet *f;
	struct fo_fleet_run *run;
	struct fo_fleet_classes classes;
	struct fo_fleet_blocks link_block[FO_FLEET_LINKS], host;
	struct plan *plan;
	struct class *class;
	struct meeting *meeting[FO_FLEET_GROUPS]; /* per circle and channel */
	struct load *load[FO_FLEET_LINKS];
	bool alone[FO_FLEET_LINKS]; /* of a rank, and used by one lane that uses no other link: never by two at once */
	int32_t *ready, readies;    /* classes whose lanes may go on */
	int32_t *host_computing;    /* per kind of host: ranks that compute */
	struct transfer *transfer;
	int32_t transfers, *unused, unuseds;
	size_t transfer_cap, unused_cap;
	struct met *met; /* that begin at once */
	size_t met_cap;
	struct heap heap;
};

/* ---- the heap ---- */

static int32_t end_id(const struct heap *h, int32_t transfer) { return h->lane_ids + 2 * transfer; }
static int32_t begin_id(const struct heap *h, int32_t transfer) { return h->lane_ids + 2 * transfer + 1; }
static bool is_begin(const struct heap *h, int32_t id) { return id >= h->lane_ids && (id - h->lane_ids) % 2 == 1; }

/* An operation that begins at a moment does so after all that end then. */
static bool before(const struct heap *h, int32_t a, int32_t b)
{
	if (h->key[a] < h->key[b] || h->key[a] > h->key[b])
		return h->key[a] < h->key[b];
	const bool x = is_begin(h, h->id[a]), y = is_begin(h, h->id[b]);
	return x != y ? y : h->id[a] < h->id[b];
}

static void swap(struct heap *h, int32_t a, int32_t b)
{
	double key = h->key[a];
	int32_t id = h->id[a];
	h->key[a] = h->key[b];
	h->id[a] = h->id[b];
	h->key[b] = key;
	h->id[b] = id;
	h->at[h->id[a]] = a;
	h->at[h->id[b]] = b;
}

static void settle(struct heap *h, int32_t i)
{
	while (i > 0 && before(h, i, (i - 1) / 2)) {
		swap(h, i, (i - 1) / 2);
		i = (i - 1) / 2;
	}
	for (;;) {
		int32_t least = i, left = 2 * i + 1, right = left + 1;
		if (left < h->n && before(h, left, least))
			least = left;
		if (right < h->n && before(h, right, least))
			least = right;
		if (least == i)
			return;
		swap(h, i, least);
		i = least;
	}
}

static void put(struct heap *h, int32_t id, double key)
{
	if ((size_t)id >= h->ids) {
		size_t ids = 2 * (size_t)id + 16;
		h->at = fo_xrealloc(h->at, ids * sizeof *h->at);
		memset(h->at + h->ids, -1, (ids - h->ids) * sizeof *h->at);
		h->ids = ids;
	}
	int32_t i = h->at[id];
	if (i < 0) {
		if ((size_t)h->n == h->cap) {
			h->cap = 2 * h->cap + 64;
			h->key = fo_xrealloc(h->key, h->cap * sizeof *h->key);
			h->id = fo_xrealloc(h->id, h->cap * sizeof *h->id);
		}
		i = h->n++;
		h->id[i] = id;
		h->at[id] = i;
	}
	h->key[i] = key;
	settle(h, i);
}

static int32_t pop(struct heap *h, double *key)
{
	int32_t id = h->id[0];
	*key = h->key[0];
	swap(h, 0, --h->n);
	h->at[id] = -1;
	if (h->n)
		settle(h, 0);
	return id;
}

/* ---- what computes ---- */

static int32_t class_of(const struct engine *e, const struct class *c) { return (int32_t)(c - e->class); }

/* How fast an operation of a lane that computes goes on: its rank's lanes that compute take turns, and ranks of the
 * host slow each other. */
static double rate_of(const struct engine *e, const struct class *c, const struct fo_fleet_op *o)
{
	const struct fo_fleet_crowd *w = &e->f->crowd;
	double rate = c->computing > 1 ? 1.0 / c->computing : 1;
	if (!e->host_computing || !w->slow[o->kind])
		return rate;
	int32_t k = e->host_computing[e->host.of[class_of(e, c)]];
	k = k < 1 ? 1 : k;
	return rate / w->slow[o->kind][(k > w->most ? w->most : k) - 1];
}

static void change_rate(struct engine *e, struct class *c, int lane, double now)
{
	struct lane *x = &c->lane[lane];
	double rate = rate_of(e, c, &c->role->op[x->op]), left = x->left - (now - x->at) * x->rate;
	x->left = left > 0 ? left : 0;
	x->at = now;
	x->rate = rate;
	put(&e->heap, class_of(e, c) * FO_LANE_COUNT + lane, now + x->left / rate);
}

static void change_class(struct engine *e, struct class *c, double now)
{
	for (int32_t i = 0; i < c->plan->lanes; i++) {
		int lane = c->plan->lane[i];
		if (fo_lane_computes(lane) && c->lane[lane].state == RUNS)
			change_rate(e, c, lane, now);
	}
}

/* One more (or fewer) lane of a class computes. */
static void change_computing(struct engine *e, struct class *c, int by, double now)
{
	const bool was = c->computing > 0;
	c->computing += by;
	if (!e->host_computing || was == (c->computing > 0)) {
		change_class(e, c, now);
		return;
	}
	const int32_t host = e->host.of[class_of(e, c)];
	const struct fo_fleet_part *part = e->host.part + e->host.begin[host],
				   *end = e->host.part + e->host.begin[host + 1];
	for (const struct fo_fleet_part *p = part; p < end; p++)
		e->host_computing[host] += p->class == class_of(e, c) ? by * p->ranks : 0;
	for (const struct fo_fleet_part *p = part; p < end; p++)
		change_class(e, &e->class[p->class], now);
}

/* ---- links ---- */

static int32_t members_of(const struct engine *e, const struct transfer *t, const int32_t **member, int32_t pair[2])
{
	if (t->circle < 0) {
		pair[0] = t->a;
		pair[1] = t->b;
		*member = pair;
		return t->a == t->b ? 1 : 2;
	}
	const struct fo_fleet_circle *x = &e->classes.circle[t->group];
	*member = x->member + x->begin[t->circle];
	return x->begin[t->circle + 1] - x->begin[t->circle];
}

/* The link that a class has, or shares; *weight: how many such transfers its block has on it at once. */
static struct load *load_of(const struct engine *e, const struct transfer *t, int32_t class, double *weight)
{
	const struct fo_fleet_blocks *b = &e->link_block[t->link];
	*weight = 1;
	if (b->ranks < 2)
		return &e->load[t->link][class];
	const int32_t kind = b->of[class];
	const int32_t rank = e->classes.first[class], from = rank / b->ranks * b->ranks,
		      colour = fo_fleet_colour(e->f, t->group, rank);
	int32_t ranks = 0, together = 0;
	for (const struct fo_fleet_part *p = b->part + b->begin[kind]; p < b->part + b->begin[kind + 1]; p++)
		ranks = p->class == class ? p->ranks : ranks;
	for (int32_t r = from; t->circle >= 0 && r < from + b->ranks && r < fo_fleet_ranks(e->f); r++)
		together += fo_fleet_colour(e->f, t->group, r) == colour;
	*weight = (double)ranks / (together ? together : 1);
	return &e->load[t->link][kind];
}

static void set_rate(struct engine *e, int32_t id, double rate, double now)
{
	struct transfer *t = &e->transfer[id];
	if (rate >= t->rate && rate <= t->rate)
		return;
	t->left = fmax(t->left - (now - t->at) * t->rate, 0);
	t->at = now;
	t->rate = rate;
	put(&e->heap, end_id(&e->heap, id), now + t->left / rate);
}

/* The rate that its slowest link allows. */
static double slowest(const struct engine *e, const struct transfer *t)
{
	const int32_t *member;
	int32_t pair[2], n = members_of(e, t, &member, pair);
	double rate = INFINITY, weight;
	for (int32_t k = 0; k < n; k++)
		rate = fmin(rate, 1 / (load_of(e, t, member[k], &weight)->sum * e->class[member[k]].link));
	return rate;
}

static void take_links(struct engine *e, int32_t id, double now)
{
	struct transfer *t = &e->transfer[id];
	const int32_t *member;
	int32_t pair[2], n = members_of(e, t, &member, pair);
	t->on_links = true;
	t->at = now;
	t->rate = 0;
	for (int32_t k = 0; k < n; k++) {
		double weight;
		struct load *l = load_of(e, t, member[k], &weight);
		l->sum += weight;
		/* The others on it can only become slower, and not before this link is their slowest. */
		for (int32_t i = 0; i < l->n; i++) {
			const double rate = 1 / (l->sum * e->class[l->on[i].class].link);
			if (l->on[i].transfer != id && rate < e->transfer[l->on[i].transfer].rate)
				set_rate(e, l->on[i].transfer, rate, now);
		}
		fo_array_room(&l->on, &l->cap, (size_t)l->n, sizeof *l->on);
		l->on[l->n++] = (struct on_link){ id, member[k] };
	}
	set_rate(e, id, slowest(e, t), now);
}

static void leave_links(struct engine *e, int32_t id, double now)
{
	struct transfer *t = &e->transfer[id];
	const int32_t *member;
	int32_t pair[2], n = members_of(e, t, &member, pair);
	t->on_links = false;
	for (int32_t k = 0; k < n; k++) {
		double weight;
		struct load *l = load_of(e, t, member[k], &weight);
		const double before = l->sum;
		int32_t i = 0;
		while (l->on[i].transfer != id || l->on[i].class != member[k])
			i++;
		l->on[i] = l->on[--l->n];
		l->sum = l->n ? l->sum - weight : 0;
		/* Those become faster of which it was the slowest link. */
		for (i = 0; i < l->n; i++) {
			const struct on_link *x = &l->on[i];
			const double was = 1 / (before * e->class[x->class].link);
			if (x->transfer != id && was <= e->transfer[x->transfer].rate * (1 + 1e-12))
				set_rate(e, x->transfer, slowest(e, &e->transfer[x->transfer]), now);
		}
	}
}

/* Serial links carry it each when it is free; when the last of them will have carried it. */
static double carry_in_turn(struct engine *e, const struct transfer *t, double link_s, double now)
{
	const int32_t *member;
	int32_t pair[2], n = members_of(e, t, &member, pair);
	double end = now, took = 0, weight;
	for (int32_t k = 0; k < n; k++) {
		end = fmax(end, load_of(e, t, member[k], &weight)->busy_until);
		took = fmax(took, link_s * weight * e->class[member[k]].link);
	}
	for (int32_t k = 0; k < n; k++) {
		struct load *l = load_of(e, t, member[k], &weight);
		bool again = false; /* classes that share a host have one link */
		for (int32_t i = 0; i < k && e->link_block[t->link].ranks > 1; i++)
			again |= load_of(e, t, member[i], &weight) == l;
		if (!again)
			l->busy_until = fmax(now, l->busy_until) + took;
	}
	return end + took;
}

/* ---- calls ---- */

static const char *op_name(const struct engine *e, const struct class *c, int32_t op)
{
	return e->f->name[c->role->op[op].name];
}

static void tell(const struct engine *e, const struct class *c, int32_t op, char out[192])
{
	if (e->f->tell)
		e->f->tell(e->f->ctx, c->out->role, op, out, 192);
	else
		snprintf(out, 192, "'%s'", op_name(e, c, op));
}

static fo_status agree(const struct engine *e, int32_t a, int32_t op_a, int32_t b, int32_t op_b)
{
	const struct class *x = &e->class[a], *y = &e->class[b];
	const struct fo_fleet_op *o = &x->role->op[op_a], *q = &y->role->op[op_b];
	char first[192], second[192];
	if (o->what == q->what || !o->what || !q->what)
		return FO_OK;
	tell(e, x, op_a, first);
	tell(e, y, op_b, second);
	return fo_fail(FO_EBUG, "rank %d calls %s where rank %d calls %s: the step cannot run", y->out->first, second,
		       x->out->first, first);
}

/* The operation of a lane has ended. */
static void take_end(struct engine *e, struct class *c, struct lane *x, double now)
{
	c->out->end_s[x->op] = x->free_s = now;
	x->state = IDLE;
	if (now >= c->out->step_s)
		c->out->step_s = now;
	if (now > e->run->step_s || (now >= e->run->step_s && class_of(e, c) >= e->run->last)) {
		e->run->step_s = now;
		e->run->last = class_of(e, c);
		e->run->last_op = x->op;
	}
}

/* The lanes of the transfer's ranks go on, after what they need between operations. */
static void release(struct engine *e, int32_t id, double now)
{
	const int32_t *member;
	int32_t pair[2], n = members_of(e, &e->transfer[id], &member, pair);
	for (int32_t k = 0; k < n; k++) {
		struct class *c = &e->class[member[k]];
		for (int32_t i = 0; i < c->plan->lanes; i++) {
			int l = c->plan->lane[i];
			struct lane *x = &c->lane[l];
			if (x->state != IN_TRANSFER || x->transfer != id)
				continue;
			x->state = DISPATCHES;
			if (c->ahead)
				take_end(e, c, x, now + c->role->after_s);
			else
				put(&e->heap, member[k] * FO_LANE_COUNT + l, now + c->role->after_s);
		}
		if (c->ahead && !c->ready)
			e->ready[e->readies++] = member[k];
		c->ready = c->ahead;
	}
	/* Its number may be another's from here on. */
	fo_array_room(&e->unused, &e->unused_cap, (size_t)e->unuseds, sizeof *e->unused);
	e->unused[e->unuseds++] = id;
}

/* All members are there: they have met at `now`, which may be to come. */
static void meet(struct engine *e, struct transfer given, double own_s, double link_s, double now, int32_t last,
		 int32_t last_op)
{
	int32_t id = e->unuseds ? e->unused[--e->unuseds] : e->transfers++;
	fo_array_room(&e->transfer, &e->transfer_cap, (size_t)id, sizeof *e->transfer);
	struct transfer *t = &e->transfer[id];
	*t = given;
	t->own_end = now + own_s;
	t->left = link_s;
	const int32_t *member;
	int32_t pair[2], n = members_of(e, t, &member, pair);
	for (int32_t k = 0; k < n; k++) {
		struct class *c = &e->class[member[k]];
		for (int32_t i = 0; i < c->plan->lanes; i++) {
			int l = c->plan->lane[i];
			struct lane *x = &c->lane[l];
			if (x->state != WAITS)
				continue;
			const struct fo_fleet_op *o = &c->role->op[x->op];
			if (o->group != t->group || fo_lane_channel(l) != t->channel ||
			    (o->does == FO_FLEET_CALLS) != (t->circle >= 0))
				continue;
			if (t->circle < 0 && !(o->does == FO_FLEET_SENDS ? member[k] == t->a : member[k] == t->b))
				continue;
			int32_t call = e->run->call[c->out->role][x->op];
			x->state = IN_TRANSFER;
			x->transfer = id;
			c->out->met_s[call] = now;
			c->out->met_class[call] = last;
			c->out->met_op[call] = last_op;
		}
	}
	double longest = link_s > 0 && !e->alone[t->link] ? INFINITY : 0; /* factor on the time of its links */
	for (int32_t k = 0; k < n; k++)
		longest = e->class[member[k]].ahead ? fmax(longest, e->class[member[k]].link) : INFINITY;
	if (isinf(longest))
		put(&e->heap, begin_id(&e->heap, id), now);
	else
		release(e, id, fmax(t->own_end, now + link_s * longest));
}

static int by_place(const void *a, const void *b)
{
	const struct transfer *x = &((const struct met *)a)->at, *y = &((const struct met *)b)->at;
	return FO_ORDER_BY(fo_order(x->channel, y->channel), fo_order(x->group, y->group),
			   fo_order(x->circle, y->circle), fo_order(x->a, y->a), fo_order(x->b, y->b));
}

/* Begins what has met at `now`, of which `first` left the heap. Where several take a link at once, the order is that of
 * their lanes and groups and not that in which ranks were looked at, so that ranks that do the same also do it in the
 * same order. */
static void begin_met(struct engine *e, int32_t first, double now)
{
	int32_t n = 0;
	double key;
	for (int32_t id = first;; id = pop(&e->heap, &key)) {
		const int32_t k = (id - e->heap.lane_ids) / 2;
		fo_array_room(&e->met, &e->met_cap, (size_t)n, sizeof *e->met);
		e->met[n++] = (struct met){ e->transfer[k], k };
		if (!e->heap.n || e->heap.key[0] > now || !is_begin(&e->heap, e->heap.id[0]))
			break;
	}
	if (n > 1)
		qsort(e->met, (size_t)n, sizeof *e->met, by_place);
	for (int32_t i = 0; i < n; i++) {
		const int32_t id = e->met[i].id;
		const struct transfer *t = &e->transfer[id];
		if (t->left > 0 && !e->f->link[t->link].serial) {
			take_links(e, id, now);
			continue;
		}
		double end = t->left > 0 ? carry_in_turn(e, t, t->left, now) : now;
		put(&e->heap, end_id(&e->heap, id), fmax(end, t->own_end));
	}
}

static fo_status come_to_pair(struct engine *e, struct class *c, int lane, double now)
{
	const struct fo_fleet_op *o = &c->role->op[c->lane[lane].op];
	const int32_t partner = fo_fleet_partner(e->f, o, c->out->first), self = class_of(e, c);
	if (partner < 0)
		return fo_fail(FO_EBUG, "rank %d: '%s' is with place %+d of group '%s' from here, which there is not",
			       c->out->first, e->f->name[o->name], o->peer, e->f->group[o->group].name);
	struct class *other = &e->class[e->classes.of[partner]];
	for (int32_t i = 0; i < other->plan->lanes; i++) {
		int l = other->plan->lane[i];
		const struct lane *x = &other->lane[l];
		if (x->state != WAITS)
			continue;
		const struct fo_fleet_op *q = &other->role->op[x->op];
		if (q->does == FO_FLEET_CALLS || q->does == o->does || q->group != o->group ||
		    fo_lane_channel(l) != fo_lane_channel(lane))
			continue;
		const int32_t back = fo_fleet_partner(e->f, q, partner);
		if (back < 0 || e->classes.of[back] != self)
			continue;
		FO_TRY(agree(e, class_of(e, other), x->op, self, c->lane[lane].op));
		const bool sends = o->does == FO_FLEET_SENDS;
		const int32_t both[] = { self, class_of(e, other) };
		struct transfer t = { .circle = -1,
				      .a = both[!sends],
				      .b = both[sends],
				      .group = o->group,
				      .channel = (uint8_t)fo_lane_channel(lane),
				      .link = o->link_s >= q->link_s ? o->link : q->link };
		const double came = other->out->begin_s[x->op];
		const bool later = came > now || (came >= now && class_of(e, other) > self);
		const int32_t last = later ? class_of(e, other) : self;
		meet(e, t, fmax(o->seconds, q->seconds), fmax(o->link_s, q->link_s), fmax(now, came), last,
		     later ? x->op : c->lane[lane].op);
		return FO_OK;
	}
	return FO_OK;
}

static fo_status come(struct engine *e, struct class *c, int lane, double now)
{
	const int32_t op = c->lane[lane].op, self = class_of(e, c);
	const struct fo_fleet_op *o = &c->role->op[op];
	const int channel = fo_lane_channel(lane);
	if (o->does != FO_FLEET_CALLS)
		return come_to_pair(e, c, lane, now);
	const struct fo_fleet_circle *x = &e->classes.circle[o->group];
	const int32_t circle = x->of[self], members = x->begin[circle + 1] - x->begin[circle];
	struct meeting *m = &e->meeting[o->group][circle * FO_LANE_COUNT + channel];
	if (!m->came)
		*m = (struct meeting){ .class = self, .op = op, .last_s = -1, .link = o->link };
	FO_TRY(agree(e, m->class, m->op, self, op));
	m->link = o->link_s > m->link_s ? o->link : m->link;
	m->own_s = fmax(m->own_s, o->seconds);
	m->link_s = fmax(m->link_s, o->link_s);
	if (now > m->last_s || (now >= m->last_s && self > m->last_class)) {
		m->last_s = now;
		m->last_class = self;
		m->last_op = op;
	}
	if (++m->came < members)
		return FO_OK;
	struct transfer t = { .circle = circle, .group = o->group, .channel = (uint8_t)channel, .link = m->link };
	m->came = 0;
	meet(e, t, m->own_s, m->link_s, m->last_s, m->last_class, m->last_op);
	return FO_OK;
}

/* ---- operations ---- */

/* A number of the normal distribution that depends on nothing but the seed, the rank and the operation (Box,
 * Muller). */
static double normal(const struct engine *e, int32_t rank, int32_t op)
{
	const uint64_t h = fo_fleet_mix(fo_fleet_mix(e->f->seed ^ (uint64_t)rank << 32) + (uint64_t)op);
	const double u = ((double)(h >> 11) + 0.5) * 0x1p-53, v = (double)(fo_fleet_mix(h) >> 11) * 0x1p-53;
	return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static double work_of(const struct engine *e, const struct class *c, int32_t op)
{
	double s = c->role->op[op].seconds * c->work;
	return e->f->jitter > 0 ? s * exp(e->f->jitter * normal(e, c->out->first, op)) : s;
}

static void run_op(struct engine *e, struct class *c, int lane, double now)
{
	struct lane *x = &c->lane[lane];
	if (c->ahead) {
		take_end(e, c, x, now + work_of(e, c, x->op) + c->role->after_s);
		return;
	}
	const bool computes = fo_lane_computes(lane);
	x->state = RUNS;
	x->at = now;
	x->left = work_of(e, c, x->op) + c->role->after_s;
	x->rate = 1;
	if (computes)
		change_computing(e, c, 1, now);
	else
		put(&e->heap, class_of(e, c) * FO_LANE_COUNT + lane, now + x->left);
}

/* The lane's operation begins. */
static fo_status start(struct engine *e, struct class *c, int lane, double now)
{
	struct lane *x = &c->lane[lane];
	c->out->begin_s[x->op] = now;
	if (c->role->op[x->op].does == FO_FLEET_WORKS) {
		run_op(e, c, lane, now);
		return FO_OK;
	}
	x->state = WAITS;
	return come(e, c, lane, now);
}

/* Begins the lane's next operation if all that it waits for has ended, or, of classes that run ahead, will end at a
 * time that is known. *begun: it did. */
static fo_status begin_next(struct engine *e, struct class *c, int lane, bool *begun)
{
	struct lane *x = &c->lane[lane];
	const struct plan *p = c->plan;
	struct fo_fleet_class *out = c->out;
	*begun = false;
	if (x->state != IDLE || x->next >= p->n[lane])
		return FO_OK;
	const int32_t op = p->list[lane][x->next];
	const struct fo_fleet_op *o = &c->role->op[op];
	double ready = x->free_s;
	int32_t cause = x->next ? p->list[lane][x->next - 1] : -1;
	bool waited = false;
	for (int32_t k = 0; k < o->needs; k++) {
		const int32_t need = c->role->need[o->need_begin + k];
		if (isnan(out->end_s[need]))
			return FO_OK;
		if (out->end_s[need] > ready) {
			ready = out->end_s[need];
			cause = need;
			waited = true;
		}
	}
	out->cause[op] = cause;
	out->waited[op] = waited;
	x->op = op;
	x->next++;
	e->run->events++;
	*begun = true;
	if (c->ahead || !(o->before_s > 0))
		return start(e, c, lane, ready + o->before_s);
	x->state = COMES;
	put(&e->heap, class_of(e, c) * FO_LANE_COUNT + lane, ready + o->before_s);
	return FO_OK;
}

/* All that can begin now, and of classes that run ahead all that does not wait for a call. */
static fo_status advance(struct engine *e, struct class *c)
{
	bool again = true, begun;
	while (again) {
		again = false;
		for (int32_t i = 0; i < c->plan->lanes; i++)
			do {
				FO_TRY(begin_next(e, c, c->plan->lane[i], &begun));
				again |= begun && c->ahead;
			} while (begun && c->ahead);
	}
	return FO_OK;
}

static fo_status end_op(struct engine *e, struct class *c, int lane, double now)
{
	struct lane *x = &c->lane[lane];
	if (x->state == COMES)
		return start(e, c, lane, now);
	const bool computed = x->state == RUNS && fo_lane_computes(lane);
	take_end(e, c, x, now);
	if (computed)
		change_computing(e, c, -1, now);
	return advance(e, c);
}

/* The transfer's links have carried it, or its ranks have done their own work. */
static void end_transfer(struct engine *e, int32_t id, double now)
{
	struct transfer *t = &e->transfer[id];
	if (t->on_links) {
		t->left = 0;
		leave_links(e, id, now);
		if (t->own_end > now) {
			put(&e->heap, end_id(&e->heap, id), t->own_end);
			return;
		}
	}
	release(e, id, now);
}

/* The newest first: what it needs is still in the caches. */
static fo_status advance_ready(struct engine *e)
{
	while (e->readies) {
		struct class *c = &e->class[e->ready[--e->readies]];
		c->ready = false;
		FO_TRY(advance(e, c));
	}
	return FO_OK;
}

static fo_status run_events(struct engine *e)
{
	for (int32_t k = 0; k < e->classes.n; k++) {
		FO_TRY(advance(e, &e->class[k]));
		FO_TRY(advance_ready(e));
	}
	while (e->heap.n) {
		double now;
		int32_t id = pop(&e->heap, &now);
		if (id < e->heap.lane_ids)
			FO_TRY(end_op(e, &e->class[id / FO_LANE_COUNT], id % FO_LANE_COUNT, now));
		else if (is_begin(&e->heap, id))
			begin_met(e, id, now);
		else
			end_transfer(e, (id - e->heap.lane_ids) / 2, now);
		FO_TRY(advance_ready(e));
	}
	for (int32_t k = 0; k < e->classes.n; k++)
		for (int32_t i = 0; i < e->class[k].plan->lanes; i++) {
			const struct class *c = &e->class[k];
			int l = c->plan->lane[i];
			if (c->lane[l].state != IDLE)
				return fo_fail(FO_EBUG,
					       "the step of %d ranks never ends: rank %d waits in %s on lane %s for a "
					       "rank that does not come",
					       fo_fleet_ranks(e->f), c->out->first, op_name(e, c, c->lane[l].op),
					       fo_lane_name[l]);
		}
	return FO_OK;
}

/* ---- beginning and end ---- */

static void plan_roles(struct engine *e)
{
	const struct fo_fleet *f = e->f;
	e->plan = fo_xmalloc((size_t)f->roles * sizeof *e->plan);
	e->run->call = fo_xmalloc((size_t)f->roles * sizeof *e->run->call);
	for (int32_t k = 0; k < f->roles; k++) {
		const struct fo_fleet_role *r = &f->role[k];
		struct plan *p = &e->plan[k];
		e->run->call[k] = fo_xmalloc((size_t)(r->ops + 1) * sizeof **e->run->call);
		for (int32_t i = 0; i < r->ops; i++) {
			p->n[r->op[i].lane]++;
			e->run->call[k][i] = r->op[i].does == FO_FLEET_WORKS ? -1 : p->calls++;
		}
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			p->list[l] = fo_xmalloc((size_t)(p->n[l] + 1) * sizeof **p->list);
			if (p->n[l])
				p->lane[p->lanes++] = (uint8_t)l;
			p->computing += p->n[l] && fo_lane_computes(l);
			p->n[l] = 0;
		}
		for (int32_t i = 0; i < r->ops; i++)
			p->list[r->op[i].lane][p->n[r->op[i].lane]++] = i;
	}
}

static void open_class(struct engine *e, int32_t k)
{
	struct class *c = &e->class[k];
	struct fo_fleet_class *out = &e->run->class[k];
	out->first = e->classes.first[k];
	out->ranks = e->classes.ranks[k];
	out->role = fo_fleet_role_of(e->f, out->first);
	struct fo_fleet_odd odd = fo_fleet_odd_of(e->f, out->first);
	const struct fo_fleet_role *r = &e->f->role[out->role];
	const size_t n = (size_t)r->ops + 1, calls = (size_t)e->plan[out->role].calls + 1;
	*c = (struct class){ .role = r, .plan = &e->plan[out->role], .out = out, .work = odd.work, .link = odd.link };
	c->lane = fo_xmalloc(FO_LANE_COUNT * sizeof *c->lane);
	out->begin_s = fo_xmalloc(n * sizeof *out->begin_s);
	out->end_s = fo_xmalloc(n * sizeof *out->end_s);
	out->cause = fo_xmalloc(n * sizeof *out->cause);
	out->waited = fo_xmalloc(n * sizeof *out->waited);
	out->met_s = fo_xmalloc(calls * sizeof *out->met_s);
	out->met_class = fo_xmalloc(calls * sizeof *out->met_class);
	out->met_op = fo_xmalloc(calls * sizeof *out->met_op);
	for (int32_t i = 0; i < r->ops; i++)
		out->begin_s[i] = out->end_s[i] = NAN;
}

static void find_alone(struct engine *e)
{
	const struct fo_fleet *f = e->f;
	uint32_t lanes_of[FO_FLEET_LINKS] = { 0 }, links_of[FO_LANE_COUNT] = { 0 };
	for (int32_t k = 0; k < f->roles; k++)
		for (int32_t i = 0; i < f->role[k].ops; i++) {
			const struct fo_fleet_op *o = &f->role[k].op[i];
			if (o->does == FO_FLEET_WORKS)
				continue;
			lanes_of[o->link] |= 1u << o->lane;
			links_of[o->lane] |= 1u << o->link;
		}
	for (int32_t l = 0; l < f->links; l++) {
		e->alone[l] = f->link[l].ranks == 1;
		for (int k = 0; k < FO_LANE_COUNT; k++)
			if (lanes_of[l] & 1u << k)
				e->alone[l] &= lanes_of[l] == 1u << k && links_of[k] == 1u << l;
	}
}

static fo_status open_all(struct engine *e)
{
	const struct fo_fleet *f = e->f;
	double operations = 0;
	fo_fleet_classes_of(&e->classes, f);
	const size_t n = (size_t)e->classes.n;
	for (int32_t k = 0; k < e->classes.n; k++)
		operations += f->role[fo_fleet_role_of(f, e->classes.first[k])].ops;
	if (operations > OPERATIONS_MOST || (double)n * FO_LANE_COUNT > INT32_MAX / 2)
		return fo_hint(fo_fail(FO_EUNSUPPORTED,
				       "%zu of %d ranks differ, and have %.3g operations together: at most %.3g are "
				       "simulated",
				       n, fo_fleet_ranks(f), operations, OPERATIONS_MOST),
			       "fewer ranks that differ, or programs of fewer operations, can be");
	e->run->class = fo_xmalloc(n * sizeof *e->run->class);
	e->run->classes = e->classes.n;
	e->class = fo_xmalloc(n * sizeof *e->class);
	e->heap.lane_ids = e->classes.n * FO_LANE_COUNT;
	e->ready = fo_xmalloc((n + 1) * sizeof *e->ready);
	find_alone(e);
	plan_roles(e);
	const bool crowds = f->crowd.ranks > 1 && f->crowd.most > 0;
	for (int32_t k = 0; k < e->classes.n; k++) {
		open_class(e, k);
		e->class[k].ahead = !crowds && e->class[k].plan->computing < 2;
	}
	for (int32_t g = 0; g < f->groups; g++)
		e->meeting[g] = fo_xmalloc((size_t)(e->classes.circle[g].n + 1) * FO_LANE_COUNT * sizeof **e->meeting);
	for (int32_t l = 0; l < f->links; l++) {
		fo_fleet_blocks_of(&e->link_block[l], &e->classes, f, f->link[l].ranks);
		e->load[l] = fo_xmalloc((n + 1) * sizeof **e->load); /* as many as classes are enough for blocks */
	}
	if (crowds) {
		fo_fleet_blocks_of(&e->host, &e->classes, f, f->crowd.ranks);
		e->host_computing = fo_xmalloc((size_t)(e->host.n + 1) * sizeof *e->host_computing);
	}
	return FO_OK;
}

static void close_all(struct engine *e)
{
	const struct fo_fleet *f = e->f;
	for (int32_t k = 0; e->class && k < e->classes.n; k++)
		free(e->class[k].lane);
	for (int32_t k = 0; e->plan && k < f->roles; k++)
		for (int l = 0; l < FO_LANE_COUNT; l++)
			free(e->plan[k].list[l]);
	for (int32_t g = 0; g < f->groups; g++)
		free(e->meeting[g]);
	for (int32_t l = 0; l < f->links; l++) {
		for (int32_t k = 0; e->load[l] && k < e->classes.n; k++)
			free(e->load[l][k].on);
		free(e->load[l]);
		fo_fleet_blocks_fini(&e->link_block[l]);
	}
	fo_fleet_blocks_fini(&e->host);
	free(e->class);
	free(e->plan);
	free(e->host_computing);
	free(e->transfer);
	free(e->unused);
	free(e->ready);
	free(e->met);
	free(e->heap.key);
	free(e->heap.id);
	free(e->heap.at);
	e->run->class_of = e->classes.of;
	e->classes.of = NULL;
	fo_fleet_classes_fini(&e->classes);
}

fo_status fo_fleet_simulate(struct fo_fleet_run *run, const struct fo_fleet *f)
{
	*run = (struct fo_fleet_run){ .fleet = f, .last = -1, .last_op = -1 };
	FO_TRY(fo_fleet_check(f));
	struct engine e = { .f = f, .run = run };
	fo_status st = open_all(&e);
	if (st == FO_OK)
		st = run_events(&e);
	close_all(&e);
	if (st != FO_OK)
		fo_fleet_run_fini(run);
	return st;
}

void fo_fleet_run_fini(struct fo_fleet_run *run)
{
	for (int32_t k = 0; k < run->classes; k++) {
		struct fo_fleet_class *c = &run->class[k];
		free(c->begin_s);
		free(c->end_s);
		free(c->cause);
		free(c->waited);
		free(c->met_s);
		free(c->met_class);
		free(c->met_op);
	}
	for (int32_t k = 0; run->call && run->fleet && k < run->fleet->roles; k++)
		free(run->call[k]);
	free(run->call);
	free(run->class);
	free(run->class_of);
	*run = (struct fo_fleet_run){ 0 };
}
