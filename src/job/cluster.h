/* The machines that a job runs on: devices, nodes, and the rates between them. */
#ifndef FO_JOB_CLUSTER_H
#define FO_JOB_CLUSTER_H

#include "job/job.h"

struct fo_cluster {
	const struct fo_device *device;  /* of the catalogue, which must outlive it; NULL: not known */
	double devices, per_node, nodes; /* NAN: not known */
	struct fo_range node_gb_s; /* between devices of a node, per device and direction, as hardware states it */
	struct fo_range net_gb_s;  /* between nodes, per device and direction */
	const char *fabric;        /* "InfiniBand", "Ethernet", "RoCE", "EFA", "TCP"; NULL: not known */
	const char *from;          /* "--cluster", "cluster.yaml", "the configuration" */
	/* Of a file with other memory than the catalogue's: the catalogue's own row; else NULL. */
	const struct fo_device *sold;
	bool net_assumed; /* net_gb_s is the usual adapter of this device, nobody stated it */
};

/* Text "16xHGX-H100" (16 nodes of 8), "2xDGX-A100", "128xA100" (128 devices, 8 per node; of a rack-wide domain as many
 * as fill the number evenly), "32x8xH100", "4xGB200-NVL72" (four racks), or the path of a YAML or JSON file (device,
 * nodes, per_node, devices, net_gbit, fabric, memory_gb, memory_tb_s). The low end of a network that nobody stated is
 * half of the device's usual adapter. FO_EARG says what was expected; *out is set only on success. */
FO_CHECKED fo_status fo_cluster_parse(const char *text, const struct fo_catalogue *catalogue, struct fo_cluster *out,
				      struct fo_arena *arena);
/* The cluster that the configuration itself states (devices, nodes); what it does not state stays unknown. */
void fo_cluster_of_job(const struct fo_job *job, struct fo_cluster *out);

/* Bytes of a device that programs can have; NAN: its memory is not in the catalogue. */
struct fo_range fo_cluster_usable(const struct fo_cluster *c);

/* How a job is divided over a cluster, with every number filled in that follows from others. */
struct fo_job_shape {
	double devices, tp, pp, chunks, cp, ep, etp;
	double dp;                /* ranks with different data: devices / (tp pp cp) */
	double replicate, shard;  /* dp x cp = replicate x shard; shard 1: states are not sharded (ZERO 0) */
	double micro_batch;       /* sequences */
	double micro_batches;     /* of one step of one rank */
	double global_batch, seq; /* sequences, tokens */
	double tokens;            /* of one step, all devices */
	/* Layers of the first and the last pipeline stage and of the fullest one between them, where a file divides
	 * them unevenly; 0: evenly. */
	double first_layers, middle_layers, last_layers;
	const char *wrong;     /* a contradiction in one sentence, arena of the job; NULL */
	const char *wrong_try; /* what would mend it; NULL: not known */
	int wrong_setting;     /* enum fo_job_setting that it is about, whose place is shown; -1: none */
	const char *unknown;   /* the first setting that is needed and unknown, and which option gives it; NULL */
	bool stage_unknown;    /* nobody says what data-parallel ranks shard: a launcher's file may */
};
void fo_job_shape_of(struct fo_job *job, const struct fo_cluster *c, struct fo_job_shape *out);

#endif
