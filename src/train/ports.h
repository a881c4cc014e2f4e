/* Serves the host operations of one executor: batch and hyper-parameters go in, losses or logits come out. */
#ifndef FO_TRAIN_PORTS_H
#define FO_TRAIN_PORTS_H

#include "data/data.h"
#include "train/exec.h"

struct fo_ports {
	const struct fo_batch *batch; /* the step's tokens, of all ranks */
	int rank, ranks; /* which set of rows is served, of so many that are alike in each micro-batch; 0 of 0: all */
	/* Of these rows the tokens of one rank of a cp group, of rows of `seq` tokens (program/ring.h); cp 0: all.
	 * stretches: its tokens are one stretch (pass.cp=heads). */
	int cp, place;
	int64_t seq;
	bool stretches;
	/* The next step's batch is its next; NULL: there is no next step, or nobody may look ahead. */
	struct fo_loader *loader;
	const struct fo_batch *ahead; /* served while an executor fills in the next step */
	double hyper[FO_HYPER_COUNT];
	int64_t steps;            /* of the run, for who watches; 0: not known */
	double loss[2], scale[2]; /* came out: sum and count of losses; scale and norm of the gradient */
	const int32_t *chunk;     /* for a generator: ids; their number and first position are below */
	int64_t chunk_tokens, chunk_begin;
	float *logits; /* (V): came out, for a chunk's last token */
};
/* Serves a rank's own tokens of the rows of its cp group. */
void fo_ports_own_tokens(struct fo_ports *p, const struct fo_lowering *run);
/* A fo_port_fn; ctx is the struct fo_ports. FO_EBUG for a port that nobody serves here. */
fo_status fo_ports_serve(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n);
/* A fo_exec_batch_fn; batches are numbered as their loader does. */
int64_t fo_ports_batch(void *ctx, bool next);

#endif
