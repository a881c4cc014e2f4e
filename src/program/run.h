/* A run configuration (run.yaml): one struct, one options table. */
#ifndef FO_PROGRAM_RUN_H
#define FO_PROGRAM_RUN_H

#include "base/opt.h"
#include "model/model.h"
#include "program/program.h"

enum fo_schedule { FO_SCHEDULE_COSINE, FO_SCHEDULE_LINEAR, FO_SCHEDULE_WSD, FO_SCHEDULE_CONSTANT };

enum fo_verify_at_start { FO_VERIFY_AT_START_OFF, FO_VERIFY_AT_START_SHORT, FO_VERIFY_AT_START_FULL };
enum fo_nonfinite { FO_NONFINITE_STOP, FO_NONFINITE_SKIP };
enum fo_run_state { FO_RUN_STATE_GIVEN, FO_RUN_STATE_EXACT, FO_RUN_STATE_AUTO };
enum fo_run_recompute {
	FO_RUN_RECOMPUTE_AUTO,
	FO_RUN_RECOMPUTE_NONE,
	FO_RUN_RECOMPUTE_SELECTIVE,
	FO_RUN_RECOMPUTE_FULL
};
enum fo_run_over { FO_RUN_OVER_AUTO, FO_RUN_OVER_HOST, FO_RUN_OVER_NCCL };
enum fo_run_tune { FO_RUN_TUNE_ON, FO_RUN_TUNE_KEPT, FO_RUN_TUNE_OFF, FO_RUN_TUNE_LONG };
enum fo_run_device { FO_RUN_DEVICE_AUTO, FO_RUN_DEVICE_CPU, FO_RUN_DEVICE_CUDA };
/* Values of pass.fuse-loss: auto (src/pass/choose.c chooses on a device), and the tokens of a chunk on a processor,
 * where there is nothing to choose. */
enum { FO_RUN_FUSE_LOSS_AUTO = -1, FO_RUN_FUSE_LOSS = 512 };
/* The three values of an option with a third word (FO_OPT_TRI). FO_RUN_AUTO leaves the choice open. A pass is then not
 * taken on the processor, and on a device if the step is predicted to be faster with it (fo_pass_choose_run);
 * model.tied is as the model says. */
enum fo_run_choice { FO_RUN_NO, FO_RUN_YES, FO_RUN_AUTO };
enum fo_run_dtype { FO_RUN_BF16, FO_RUN_FP32 };
enum fo_run_rounding { FO_RUN_STOCHASTIC, FO_RUN_NEAREST };
enum fo_run_clip { FO_RUN_CLIP_EXACT, FO_RUN_CLIP_PREVIOUS };
enum { FO_RUN_RANKS_MOST = 1024 }; /* threads of one process: more would be a mistake */
#define FO_RUN_DEVICES "auto, cpu, cuda or cuda:N"
enum fo_spike { FO_SPIKE_OFF, FO_SPIKE_WARN, FO_SPIKE_SKIP, FO_SPIKE_REWIND };

struct fo_run {
	const char *model, *weights; /* weights: a Hugging Face folder to start from; "": random */
	int64_t layers, hidden, heads, kv_heads, head_dim, ffn, vocab; /* 0: as the model says */
	int tied;                                                      /* enum fo_run_choice */
	const char *data, *tokenizer;
	int64_t tokenizer_vocab, seq, holdout;
	int packing; /* 0 packed, 1 padded, 2 bestfit: enum fo_packing */
	const char *dir;
	int64_t seed, steps, rows, micro_batches, threads;
	int64_t ranks; /* shard x replicate, which share the rows of each micro-batch, x cp x tp x pp */
	int64_t shard, replicate, cp, tp, pp;
	int pp_kind;           /* enum fo_pp_kind */
	int64_t pp_chunks;     /* 0: as usual for the kind */
	const char *pp_layers; /* "balanced" (NULL too), "even", or layers by part: "5,4,4,3" */
	int cp_by;             /* what a cp group divides while attention is computed: enum fo_cp less 1 */
	bool tp_sequence;
	int64_t tp_async;      /* pieces; 0: no; negative: auto */
	int over;              /* of ranks on devices: enum fo_run_over */
	double link_gbps;      /* of ranks in one process: Gbit/s that each receives; 0: as fast as memory */
	double link_us;        /* the same: of each call, once all its ranks are there */
	int64_t metered_every; /* 0: never */
	const char *paced;     /* a machine profile whose times operations take instead of computing; "", NULL: none */
	int precision;         /* enum fo_run_dtype */
	const char *device;    /* FO_RUN_DEVICES */
	int64_t timed_every;   /* on a device; 0: never */
	int64_t kernel_times;  /* on a device: steps of a process; 0: none */
	int tune;              /* on a device: enum fo_run_tune */
	bool inputs_ahead;     /* on a device */
	const char *affinity;  /* "auto", "none", "cores", or a list of hardware threads */
	int verify;            /* self-check at the start: enum fo_verify_at_start */
	int master, moments;   /* enum fo_master, fo_moments */
	int rounding;          /* enum fo_run_rounding */
	double lr, final_lr, decay_share, beta1, beta2, eps, weight_decay, clip;
	int clip_norm; /* enum fo_run_clip */
	int schedule;
	int64_t warmup;
	int eval_packing; /* 0 as packing, else 1 + packing */
	int64_t eval_every, eval_batches, ckpt_every, ckpt_keep, log_every;
	int64_t ckpt_file; /* most bytes of a checkpoint's file of tensors; 0: any */
	bool ckpt_async, ckpt_last;
	int guard_nonfinite, guard_spike; /* enum fo_nonfinite, fo_spike */
	double guard_spike_z;
	int64_t guard_spike_window, guard_limit;
	const char *tensorboard, *prometheus; /* what is written for other tools; "": nothing */
	const char *prompt;
	int64_t sample_tokens;
	const char *program_file;
	int64_t memory_limit;
	int state;             /* enum fo_run_state: who says master and moments */
	int64_t memory_budget; /* 0: as memory_limit and the machine say */
	int64_t batch_rows;    /* 0: rows x micro_batches; else the step's rows, whose split is chosen */
	/* Passes. */
	bool merge_qkv, merge_gate_up;
	int64_t fuse_loss; /* tokens of a chunk; 0: no; FO_RUN_FUSE_LOSS_AUTO */
	bool fuse_elementwise;
	int fuse_rope;            /* enum fo_run_choice */
	int recompute;            /* enum fo_run_recompute */
	int64_t recompute_layers; /* the first ones; 0: all */
	bool fused_optimizer, optimizer_in_backward;
	int wgrad_lane; /* enum fo_run_choice */
	int fp8;        /* enum fo_fp8 */
	int64_t fp8_history;
	bool fp8_precompute, fp8_transposed;
	int fp8_wgrad; /* enum fo_fp8_wgrad */
	int fp8_fuse;  /* enum fo_run_choice */
	int64_t fp8_first, fp8_last;
	int64_t offload;  /* layers */
	int64_t ddp;      /* MiB of a bucket, where there are several ranks */
	bool overlap;     /* of sums over ranks and backward */
	int reduce_dtype; /* enum fo_reduce */
	int zero;         /* enum fo_zero, where shard is above 1 */
	int64_t zero_prefetch;
	int zero_reshard; /* enum fo_reshard */
	bool zero_first;
	int zero_sync; /* enum fo_sync */
	int attention; /* enum fo_attention */
};
static inline bool fo_run_is_paced(const struct fo_run *r) { return r->paced && *r->paced; }
/* Sets of rows that its ranks have: those of a tp, cp or pp group have one together. */
static inline int64_t fo_run_row_sets(const struct fo_run *r) { return r->ranks / r->tp / r->cp / r->pp; }

/* A command with flags of its own has a struct that begins with a struct fo_run, and a second table for
 * fo_opt_init_own. */
extern const struct fo_opt fo_run_options[];

/* Are layers divided over stages by predicted time (src/pass/divide.c)? fo_run_lowering has the other ways. */
bool fo_run_balances(const struct fo_run *r);
/* FO_RUN_DEVICES; false for another text. index: N, 0 where none is named. */
bool fo_run_device_parse(const char *text, enum fo_run_device *kind, int *index);
/* Checks rules that span several keys, and ends like fo_opt_finish: all mistakes at once. */
FO_CHECKED fo_status fo_run_check(struct fo_opt_set *s, const struct fo_run *r);
/* The architecture with overrides applied and checked. */
FO_CHECKED fo_status fo_run_model(const struct fo_run *r, struct fo_model *m);
enum fo_numerics fo_run_precision(const struct fo_run *r);
/* The lowering that the options ask for. Choices that are left open (auto) are taken as if memory were plenty;
 * fo_pass_choose_run (src/pass) makes them. */
struct fo_lowering fo_run_lowering(const struct fo_run *r, enum fo_mode mode);
/* Appends to `out` how options that were given contradict the passes of a program made elsewhere: "pass.fp8 is rowwise
 * there, not off; ...". Choices that are left open (auto) contradict nothing. */
void fo_run_contradicts(const struct fo_opt_set *s, const struct fo_run *r, const struct fo_passes *has,
			struct fo_str *out);
/* Learning rate of step `step` (0-based): linear warm-up to lr, then the schedule down to lr x final_lr at the last
 * step. cosine: Loshchilov and Hutter 2017; wsd (warm-up, stable, decay): constant, then linear over the last
 * decay_share. */
double fo_run_lr(const struct fo_run *r, int64_t step);

#endif
