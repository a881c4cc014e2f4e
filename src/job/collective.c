#include "job/collective.h"

#include <math.h>

/* Microseconds of NCCL's tuning table: the start of a ring, one hop within a node, one between nodes; a tree's hop
 * between nodes. */
static const struct protocol {
	double start, hop, net_hop, tree_net, rate;
} protocol[] = {
	{ 8.4, 3.4, 14, 14, 1 },   /* Simple */
	{ 14, 1.9, 4, 8.5, 0.92 }, /* LL128 */
	{ 6.6, 0.6, 2.7, 5, 0.5 }, /* LL */
};
enum { PROTOCOLS = sizeof protocol / sizeof *protocol };
#define US 1e-6
/* A tree moves this share of a ring's bytes in the same time (the same table: 0.85 to 0.92). */
#define TREE 0.88

struct fo_job_group fo_job_group_of(double n, double stride, double per_node)
{
	double fit = isnan(per_node) ? n : fmax(1, floor(per_node / stride));
	return (struct fo_job_group){ n, fmin(n, fit) };
}

static double nodes_of(struct fo_job_group g) { return ceil(g.n / g.in_node); }

/* A ring enters and leaves each node once for each rank's adapter; the slower of both kinds of links decides. */
static double ring_rate(struct fo_job_group g, struct fo_job_links l)
{
	if (nodes_of(g) == 1)
		return l.node;
	return g.in_node > 1 ? fmin(l.node, g.in_node * l.net) : l.net;
}

static double ring_s(struct fo_job_group g, struct fo_job_links l, double bytes)
{
	double nodes = nodes_of(g), across = nodes > 1 ? nodes : 0, best = INFINITY;
	for (int i = 0; i < PROTOCOLS; i++) {
		const struct protocol *p = &protocol[i];
		double hops = (g.n - 1 - across) * p->hop + across * p->net_hop;
		best = fmin(best,
			    (p->start + fmax(0, hops)) * US + bytes * (g.n - 1) / g.n / (p->rate * ring_rate(g, l)));
	}
	return best;
}

double fo_job_gather_s(struct fo_job_group g, struct fo_job_links l, double bytes)
{
	return g.n > 1 && bytes > 0 ? ring_s(g, l, bytes) : 0;
}

double fo_job_all_reduce_s(struct fo_job_group g, struct fo_job_links l, double bytes)
{
	if (!(g.n > 1 && bytes > 0))
		return 0;
	double best = 2 * ring_s(g, l, bytes), nodes = nodes_of(g);
	for (int i = 0; i < PROTOCOLS && nodes > 1; i++) {
		const struct protocol *p = &protocol[i];
		double hops = 2 * ((g.in_node - 1) * p->hop + log2(nodes) * p->tree_net);
		best = fmin(best,
			    (p->start + hops) * US + 2 * bytes * (g.n - 1) / g.n / (TREE * p->rate * ring_rate(g, l)));
	}
	return best;
}

double fo_job_all_to_all_s(struct fo_job_group g, struct fo_job_links l, double bytes)
{
	if (!(g.n > 1 && bytes > 0))
		return 0;
	double inside = bytes * (g.in_node - 1) / g.n / l.node, outside = 0, hops = g.in_node - 1;
	if (nodes_of(g) > 1)
		outside = bytes * (g.n - g.in_node) / g.n / l.net;
	return (protocol[0].start + hops * protocol[2].hop + (g.n - g.in_node) * protocol[2].net_hop) * US +
	       fmax(inside, outside);
}

double fo_job_send_s(int across_nodes, struct fo_job_links l, double bytes)
{
	const struct protocol *p = &protocol[0];
	if (across_nodes)
		return (p->start + p->net_hop) * US + bytes / l.net;
	return (p->start + p->hop) * US + bytes / l.node;
}
