/* The devices of a job's ranks: each rank opens its own, and what they are decides what carries calls between them. */
#ifndef FO_TRAIN_DEVICES_H
#define FO_TRAIN_DEVICES_H

#include "train/carrier.h"

struct fo_devices {
	int ranks;
	int devices;        /* unlike ones that ranks have */
	int sharing;        /* most ranks that have one together */
	int64_t free_bytes; /* of a rank's part of its device: the least */
	bool nccl;          /* calls go over NCCL, else through host memory */
	bool *with_first;   /* of each rank: it has rank 0's device */
};

/* Opens the device of a rank: `text` as train.device. "cuda" is that of its number among the ranks of its host, of
 * those that the driver shows, counted round; a launcher that shows each rank one device (CUDA_VISIBLE_DEVICES) is
 * obeyed so. "cuda:N": device N, whatever rank. */
FO_CHECKED fo_status fo_devices_open_own(const char *text, int local_rank, struct fo_cuda **out);
/* How many ranks of `ranks` that are threads have rank 0's device, and how many devices all of them have. */
int fo_devices_sharing(const char *text, int ranks, int *devices);

/* All ranks open theirs, where they have not yet; own: rank 0's. What carries calls is chosen by how->over: NCCL needs
 * a device of its own for each rank. FO_EARG, FO_EUNSUPPORTED: what was asked for cannot be. *out is freed with
 * fo_devices_fini, whatever was returned. */
FO_CHECKED fo_status fo_devices_open(struct fo_devices *out, struct fo_carrier *c, const struct fo_exec_devices *how,
				     struct fo_cuda *own);
void fo_devices_fini(struct fo_devices *d);

#endif
