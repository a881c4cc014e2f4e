/* A trained model in a folder, ours or Hugging Face's: generating and evaluating begin with it. */
#ifndef FO_TRAIN_PRETRAINED_H
#define FO_TRAIN_PRETRAINED_H

#include "train/generate.h"
#include "train/train.h"

struct fo_pretrained {
	struct fo_arena arena;
	char *dir;     /* holds config.json and the weights */
	char *run_dir; /* of the run that dir is a checkpoint of; NULL: of none that is there */
	struct fo_model model;
	enum fo_numerics precision;
	struct fo_tokenizer *tokenizer; /* NULL: the folder has no tokenizer.json */
	int64_t step;                   /* of our checkpoints; -1: not one of ours */
	int64_t seq;                    /* row length it was trained with; 0: unknown */
};
/* path: a run directory (its newest checkpoint is taken), a checkpoint, or a folder in Hugging Face's layout. Reads
 * configuration, tokenizer and a checkpoint's manifest with all checksums; changes nothing on disk. precision < 0: bf16
 * where config.json says that the weights are bf16 or fp16, else fp32. Ended with fo_pretrained_close also after an
 * error: FO_EARG, FO_EIO, FO_EFORMAT, FO_EUNSUPPORTED. */
FO_CHECKED fo_status fo_pretrained_open(struct fo_pretrained *p, const char *path, int precision);
void fo_pretrained_close(struct fo_pretrained *p);

/* A store with the persistent buffers of `program` (of this model and precision), weights read from the folder, in this
 * machine's memory, or on the device `cuda`. FO_ENOMEM where too little memory is free. */
FO_CHECKED fo_status fo_pretrained_store(const struct fo_pretrained *p, const struct fo_program *program,
					 struct fo_cuda *cuda, struct fo_store **out);
/* A store and a generator over it (freed in the other order). */
FO_CHECKED fo_status fo_pretrained_generator(const struct fo_pretrained *p, const struct fo_exec_options *o,
					     int64_t context, int64_t chunk, struct fo_store **store,
					     struct fo_generator **out);
/* ---- evaluate.c: the loss on text: nats per token, perplexity, bits per byte ---- */

struct fo_eval_options {
	const char *data; /* text (file or folder), a shard, or a folder with val.shard; NULL: what the run held out */
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

/* The loss of the model on text. Options that `o` leaves open are taken from the run, if there is one. */
FO_CHECKED fo_status fo_pretrained_evaluate(const struct fo_pretrained *p, const struct fo_eval_options *o,
					    struct fo_eval_result *out);

#endif
