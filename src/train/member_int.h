/* Private to member*.c and to rank 0's end of their tasks. */
#ifndef FO_TRAIN_MEMBER_INT_H
#define FO_TRAIN_MEMBER_INT_H

#include "train/member.h"

typedef fo_status fo_task_fn(struct fo_member *m, const void *bytes, size_t n, struct fo_answer *out);
fo_task_fn fo_member_folder, fo_member_peak, fo_member_data, fo_member_loader, fo_member_eval_data, fo_member_clock,
	fo_member_timeline, fo_member_device;

/* The step's batch from the rank's own loader, if it has one: that of this number. */
FO_CHECKED fo_status fo_member_next_batch(struct fo_member *m, int64_t number);
/* The same of evaluation: batch number `step` of the rank's own. */
FO_CHECKED fo_status fo_member_eval_batch(struct fo_member *m, int64_t step);
/* Measures the peak of all ranks of a host, with the threads that they have together. */
void fo_member_measure(int local_ranks, const struct fo_task_peak *what, struct fo_peak *out);
/* Rank 0's end of FO_TASK_CLOCK, for each rank in turn, which learns what to add to its times. */
FO_CHECKED fo_status fo_member_ask_clock(struct fo_comm *c, int rank);

/* m->order, for loaders of this text, whose shape is that of all ranks: all of them at once. */
FO_CHECKED fo_status fo_member_order(struct fo_member *m, const struct fo_shard *shard,
				     const struct fo_batch_shape *shape);

#endif
