/* A trained model in a folder, ours or Hugging Face's: generating and evaluating begin with it. */
#ifndef FO_TRAIN_PRETRAINED_H
#define FO_TRAIN_PRETRAINED_H

#include "train/evaluate.h"
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
/* path: a run directory (its newest checkpoint is taken), a checkpoint, or a folder in Hugging Face's layout. Reads the
 * configuration, the tokenizer and, of a checkpoint of ours, the manifest with all checksums; changes nothing on disk.
 * precision < 0: bf16 where config.json says that the weights are bf16 or fp16, else fp32. FO_EARG, FO_EIO, FO_EFORMAT,
 * FO_EUNSUPPORTED say what is wrong. Ended with fo_pretrained_close also after an error. */
FO_CHECKED fo_status fo_pretrained_open(struct fo_pretrained *p, const char *path, int precision);
void fo_pretrained_close(struct fo_pretrained *p);

/* A store with the persistent buffers of `program` (of this model and precision), weights read from the folder. It lies
 * in this machine's memory, or with cuda on that device, while the host holds pieces of the weights only. FO_ENOMEM
 * where too little memory is free. */
FO_CHECKED fo_status fo_pretrained_store(const struct fo_pretrained *p, const struct fo_program *program,
					 struct fo_cuda *cuda, struct fo_store **out);
/* A store and a generator over it (freed in the other order). */
FO_CHECKED fo_status fo_pretrained_generator(const struct fo_pretrained *p, const struct fo_exec_options *o,
					     int64_t context, int64_t chunk, struct fo_store **store,
					     struct fo_generator **out);
/* The loss of the model on text. Options that `o` leaves open are taken from the run, if there is one. */
FO_CHECKED fo_status fo_pretrained_evaluate(const struct fo_pretrained *p, const struct fo_eval_options *o,
					    struct fo_eval_result *out);

#endif
