/* The loss of a model on text: nats per token, perplexity, bits per byte. */
#ifndef FO_TRAIN_EVALUATE_H
#define FO_TRAIN_EVALUATE_H

#include "base/fs.h"
#include "data/data.h"
#include "kernel/cuda/cuda.h"
#include "kernel/kernel.h"
#include "timeline/timeline.h"

#include <signal.h>

struct fo_eval_options {
	const char *data; /* text (a file, or a folder of files), a shard, or a folder with val.shard; NULL: what the
			     run held out */
	int64_t seq;      /* tokens in a row; 0: as trained, else the model's positions, at most 2048 */
	int64_t batches;  /* micro-batches; 0: everything once, in order; -1: as the run evaluates, else everything */
	int threads;      /* 0: all */
	struct fo_cuda *cuda; /* NULL: the processor */
	bool measure_peak;    /* for MFU: takes a second once per machine */
	fo_progress_fn *progress;
	void *ctx;
	volatile sig_atomic_t *stop; /* may be NULL; not 0: FO_EINTERRUPT */
};

struct fo_eval_result {
	char data[FO_PATH_BYTES];   /* what was read */
	bool in_order;              /* all of it, each token once; else rows as training's evaluation draws them */
	int64_t seq, rows, batches; /* of `rows` rows of seq tokens */
	int64_t tokens;             /* with loss: all that follow another one in their document */
	int64_t real_tokens;        /* without padding */
	double loss;                /* mean over tokens, nats */
	double perplexity;          /* exp(loss) */
	int64_t bytes;              /* of text that the tokens with loss stand for; -1: no tokenizer */
	double bits_per_byte;       /* loss summed / (ln 2 bytes); NAN where unknown */
	double seconds;             /* in steps */
	double tokens_per_second;   /* real ones */
	struct fo_mfu mfu;          /* of forward: a third of what training is charged with; hfu as run */
	struct fo_peak peak;        /* flop_s 0: unknown */
	enum fo_isa isa;
	int threads;
	char device[96]; /* "": the processor */
	double logged;   /* what the run logged at this checkpoint's step; NAN: nothing */
};

/* ln 2: nats to bits */
#define FO_LN2 0.69314718055994530942

#endif
