/* How long a collective takes: latency plus bytes over the bandwidth of the slowest link on its way. Private to
 * src/job.
 *
 * The latencies are NCCL's own (tuning.cc, commit 5067397c): of its three protocols the fastest counts. Bandwidth is a
 * share of what the hardware states; the share is the caller's. */
#ifndef FO_JOB_COLLECTIVE_H
#define FO_JOB_COLLECTIVE_H

/* Ranks of one group: how many, and how many of them share a node. */
struct fo_job_group {
	double n, in_node;
};
/* Ranks `stride` apart, counted from 0 on node after node. */
struct fo_job_group fo_job_group_of(double n, double stride, double per_node);

/* Rates that one device can use, bytes/s. */
struct fo_job_links {
	double node, net;
};

/* Seconds, 0 for a group of one. bytes: of the whole buffer, which every rank has after a gather and before a
 * reduce-scatter; of an all-reduce the buffer. */
double fo_job_gather_s(struct fo_job_group g, struct fo_job_links l, double bytes); /* reduce-scatter, too */
double fo_job_all_reduce_s(struct fo_job_group g, struct fo_job_links l, double bytes);
/* bytes: what one rank sends to all ranks together, itself included. */
double fo_job_all_to_all_s(struct fo_job_group g, struct fo_job_links l, double bytes);
double fo_job_send_s(int across_nodes, struct fo_job_links l, double bytes);

#endif
