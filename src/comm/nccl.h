/* NCCL carries a group of devices, one rank each. The library is found at run time (kernel/cuda/load.c). */
#ifndef FO_COMM_NCCL_H
#define FO_COMM_NCCL_H

#include "comm/comm.h"

struct fo_cuda;
/* Waits for all ranks of `place`. The communicator works on `cuda`, which stays open longer. FO_EUNSUPPORTED: built
 * without NCCL's header, or no NCCL here; FO_ECOMM: the ranks did not come together. */
FO_CHECKED fo_status fo_comm_nccl_open(struct fo_comm **out, struct fo_cuda *cuda, const struct fo_comm_place *place);
/* The same for the ranks of `host`, any communicator of theirs over host memory: they meet over it; it may be closed
 * afterwards. */
FO_CHECKED fo_status fo_comm_nccl_among(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host);
/* The same for two ranks, of which one sends to the other and never the other way: both ends are made ready for that,
 * so that the first call makes no host wait for the other one. sends: this one does. */
FO_CHECKED fo_status fo_comm_nccl_pair(struct fo_comm **out, struct fo_cuda *cuda, struct fo_comm *host, bool sends);
/* Tells whether NCCL is here; `why` (of `size` bytes) gets why it is not, else "". */
bool fo_comm_nccl_there(char *why, size_t size);
/* Windows of memory that all ranks share now; 0 where this NCCL has none (before 2.27) or the devices cannot. */
int fo_comm_nccl_windows(const struct fo_comm *c);

#endif
