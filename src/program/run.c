#include "program/run.h"
#include "base/fs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* enum fo_pp_kind */
#define FO_RUN_PP_KINDS "gpipe|1f1b|interleaved|zb-h1|zb-h2|dualpipe-v"

#define R struct fo_run
const struct fo_opt fo_run_options[] = {
	FO_OPT_PATH(R, model, "model.name", "NAME", "flatout-134m",
		    "preset (flatout flops --list), name on Hugging Face, config.json or a folder with one"),
	FO_OPT_PATH(R, weights, "model.weights", "PATH", "",
		    "start from a Hugging Face folder's weights; also model.name and data.tokenizer unless given"),
	FO_OPT_INT(R, layers, "model.layers", "N", "0", 0, 10000, "layers",
		   "overrides the model; 0: as the model says"),
	FO_OPT_INT(R, hidden, "model.hidden", "N", "0", 0, 1 << 20, "columns",
		   "width of the residual stream; 0: as the model says"),
	FO_OPT_INT(R, heads, "model.heads", "N", "0", 0, 65536, "heads", "query heads; 0: as the model says"),
	FO_OPT_INT(R, kv_heads, "model.kv-heads", "N", "0", 0, 65536, "heads",
		   "key and value heads; 0: as the model says"),
	FO_OPT_INT(R, head_dim, "model.head-dim", "N", "0", 0, 4096, "columns",
		   "columns of one head; 0: as the model says"),
	FO_OPT_INT(R, ffn, "model.ffn", "N", "0", 0, 1 << 22, "columns",
		   "width of the feed-forward; 0: as the model says"),
	FO_OPT_INT(R, vocab, "model.vocab", "N", "0", 0, 1 << 22, "tokens", "vocabulary; 0: as the model says"),
	FO_OPT_TRI(R, tied, "model.tied", "model", "whether the head shares the embedding's weights", "model"),
	FO_OPT_PATH(R, data, "data.path", "PATH", "",
		    "text to train on: a file or folder, packed or JSON lines too; or what flatout data prepare made"),
	FO_OPT_PATH(R, tokenizer, "data.tokenizer", "PATH", "",
		    "tokenizer.json; empty: train a byte-level BPE on the text"),
	FO_OPT_INT(R, tokenizer_vocab, "data.vocab", "N", "0", 0, 1 << 20, "tokens",
		   "size of the tokenizer to train; 0: the model's vocabulary"),
	FO_OPT_LENGTH(R, seq, "data.seq", "N", "2048", 2, 1 << 20, "length of one row"),
	FO_OPT_ENUM(R, packing, "data.packing", "packed",
		    "packed: end to end in full rows; padded: one document per row, cut at its end; bestfit: documents "
		    "that fit together; split: one document per row, what is longer goes on in further ones",
		    "packed|padded|bestfit|split"),
	FO_OPT_INT(R, holdout, "data.holdout", "N", "50", 2, 1000000, "documents",
		   "one document in N is held out for evaluation"),
	FO_OPT_OUTPUT(R, dir, "run.dir", "PATH", "run",
		      "where shards, logs and checkpoints go; the same folder resumes", FO_OUTPUT_RUN),
	FO_OPT_INT(R, seed, "run.seed", "N", "1", 0, 9e15, "", "initial weights and order of documents"),
	FO_OPT_INT(R, threads, "run.threads", "N", "0", 0, 1024, "threads",
		   "of the compute lane; 0: all this process may use"),
	FO_OPT_TEXT(
		R, affinity, "run.affinity", "HOW", "auto",
		"binds compute threads: auto (ranks of a host each to their share of it, one rank not at all), none, "
		"cores (one per physical core), or a list: 0,2,4-7"),
	FO_OPT_INT(R, ranks, "mesh.ranks", "N", "1", 1, FO_RUN_RANKS_MOST, "ranks",
		   "ranks share the rows of each micro-batch and add up their gradients; they are threads of "
		   "this process, "
		   "which share run.threads, or the processes that a launcher started"),
	FO_OPT_INT(R, shard, "mesh.shard", "N", "0", 0, FO_RUN_RANKS_MOST, "ranks",
		   "neighbouring ranks (times mesh.cp) that share state, gradients and weights as pass.zero says; 0: "
		   "mesh.ranks / mesh.replicate, or 1 where neither it nor pass.zero is given"),
	FO_OPT_INT(R, replicate, "mesh.replicate", "N", "0", 0, FO_RUN_RANKS_MOST, "groups",
		   "groups of mesh.shard ranks, which hold the same; 0: mesh.ranks / mesh.shard"),
	FO_OPT_INT(R, cp, "mesh.cp", "N", "1", 1, FO_RUN_RANKS_MOST, "ranks",
		   "of a group that has the same rows, each its own tokens of them (pass cp); as ranks with the same "
		   "weights they belong to one shard group"),
	FO_OPT_INT(R, tp, "mesh.tp", "N", "1", 1, FO_RUN_RANKS_MOST, "ranks",
		   "of a group that has the same rows and divides the layers' heads, columns and weights: neighbours "
		   "(pass tp)"),
	FO_OPT_INT(R, pp, "mesh.pp", "N", "1", 1, FO_RUN_RANKS_MOST, "stages",
		   "of a pipeline: each has its part of the layers, and micro-batches go through them one behind the "
		   "other (pass pp); the other axes divide the ranks of a stage"),
	FO_OPT_TEXT(
		R, pp_layers, "mesh.pp-layers", "HOW", "balanced",
		"layers of the stages of mesh.pp: balanced by predicted time, with embedding and head counted; even; "
		"or a list: 5,4,4,3 (a number for each of mesh.pp x pass.pp-chunks parts, in the order of the model)"),
	FO_OPT_ENUM(R, over, "mesh.over", "auto",
		    "what carries calls between ranks on devices: nccl, from device to device; host, through host "
		    "memory; auto: nccl where each rank has a device of its own",
		    "auto|host|nccl"), /* enum fo_run_over */
	FO_OPT_REAL(R, link_gbps, "mesh.link-gbps", "X", "0", 0, 1e6, "Gbit/s",
		    "emulates links between ranks: what each receives at most; 0: as fast as memory"),
	FO_OPT_REAL(R, link_us, "mesh.link-us", "X", "0", 0, 1e6, "us",
		    "emulates links between ranks: latency of each call once all its ranks are there"),
	FO_OPT_ENUM(R, verify, "run.verify", "off", "self-check ('flatout verify') before the first step",
		    "off|short|full"),
	FO_OPT_INT(R, steps, "train.steps", "N", "1000", 1, 1e9, "steps", "optimizer steps of the whole run"),
	FO_OPT_INT(R, rows, "train.rows", "N", "1", 1, 65536, "rows", "rows in a micro-batch"),
	FO_OPT_INT(R, micro_batches, "train.micro-batches", "N", "4", 1, 65536, "",
		   "micro-batches accumulated in a step"),
	FO_OPT_INT(R, batch_rows, "train.batch-rows", "N", "0", 0, 65536, "rows",
		   "rows in a step, in micro-batches as fit memory.budget, whatever train.rows and train.micro-batches "
		   "say; 0: as they say"),
	FO_OPT_INT(R, metered_every, "train.metered-every", "N", "0", 0, 1e9, "steps",
		   "every N-th step is timed operation by operation between bursts of known work, for a quiet step "
		   "time; the same numbers, but slower; 0: none"),
	FO_OPT_PATH(R, paced, "train.paced", "PROFILE", "",
		    "paced kernels: nothing is computed, each operation waits the time that this machine profile gives "
		    "it, while messages between ranks, links and schedules are real; for studies of these; no weights, "
		    "no loss, no MFU"),
	FO_OPT_ENUM_REFUSED(
		R, precision, "train.precision", "bf16",
		"of weights and activations; sums and gradients of weights are fp32", "bf16|fp32",
		"fp16: numbers below 6e-8 are lost in its five bits of exponent, so that gradients need a loss scale "
		"that is searched for and steps that are thrown away; bf16 takes the same bytes, has the range of fp32 "
		"and needs neither"),
	FO_OPT_TEXT(R, device, "train.device", "HOW", "auto",
		    "what computes: cpu; cuda, or cuda:N of several; auto: a CUDA device where one opens, else the "
		    "processor"),
	FO_OPT_INT(R, timed_every, "train.timed-every", "N", "16", 0, 1e9, "steps",
		   "on a device the operations of every N-th step are timed, to say where time went; 0: of none. The "
		   "processor times all"),
	FO_OPT_YES_NO(
		R, inputs_ahead, "train.inputs-ahead", "yes",
		"on a device: the next step's batch is copied there while a step runs. The processor copies none"),
	FO_OPT_INT(R, kernel_times, "train.kernel-times", "N", "0", 0, 1e6, "steps",
		   "on a device every kernel of a process's first N steps is timed by CUPTI, into kernels.jsonl; the "
		   "steps take longer; 0: of none"),
	FO_OPT_ENUM(R, tune, "train.tune", "on",
		    "on a device: algorithms of matmuls are measured once and kept in the cache; kept: what the cache "
		    "has, nothing is measured; off: the library's first proposals; long: those that are close run for "
		    "seconds, as in a step",
		    "on|kept|off|long"), /* enum fo_run_tune */
	FO_OPT_REAL(R, lr, "optim.lr", "X", "6e-4", 0, 10, "", "peak learning rate of AdamW"),
	FO_OPT_ENUM(R, schedule, "optim.schedule", "cosine", "how the learning rate falls after warm-up",
		    "cosine|linear|wsd|constant"),
	FO_OPT_INT(R, warmup, "optim.warmup", "N", "100", 0, 1e9, "steps",
		   "linear warm-up; at most a tenth of train.steps unless given"),
	FO_OPT_REAL(R, final_lr, "optim.final-lr", "X", "0.1", 0, 1, "", "last learning rate as a share of the peak"),
	FO_OPT_REAL(R, decay_share, "optim.decay-share", "X", "0.2", 0, 1, "",
		    "wsd: share of the steps after the warm-up over which the rate falls"),
	FO_OPT_REAL(R, beta1, "optim.beta1", "X", "0.9", 0, 0.9999999, "", "AdamW: decay of the first moment"),
	FO_OPT_REAL(R, beta2, "optim.beta2", "X", "0.95", 0, 0.9999999, "", "AdamW: decay of the second moment"),
	FO_OPT_REAL(R, eps, "optim.eps", "X", "1e-8", 0, 1, "", "AdamW: added to the root of the second moment"),
	FO_OPT_REAL(R, weight_decay, "optim.weight-decay", "X", "0.1", 0, 10, "", "AdamW: decoupled decay of matrices"),
	FO_OPT_ENUM(R, master, "optim.master", "fp32",
		    "what bf16 weights are rounded from: an fp32 copy; that number split into the weight and a low "
		    "half; or nothing",
		    "fp32|split|none"),
	FO_OPT_ENUM(R, moments, "optim.moments", "fp32", "what AdamW's moments are stored in", "fp32|bf16"),
	FO_OPT_ENUM(R, state, "optim.state", "given",
		    "given: as optim.master and optim.moments say; else in their place exact: fp32 or split masters, "
		    "the same numbers, as fits memory.budget; auto: then bf16 moments, then no masters too",
		    "given|exact|auto"),
	FO_OPT_ENUM(R, rounding, "optim.rounding", "stochastic",
		    "of weights without a master and of bf16 moments: at random so that the mean is right, or nearest",
		    "stochastic|nearest"),
	FO_OPT_REAL(R, clip, "optim.clip", "X", "1.0", 0, 1e9, "", "bound on the global gradient norm; 0: none"),
	FO_OPT_ENUM(R, clip_norm, "optim.clip-norm", "exact",
		    "the norm that is bounded: this step's, or the step's before (no clipping in the first)",
		    "exact|previous"),
	FO_OPT_INT(R, eval_every, "eval.every", "N", "100", 0, 1e9, "steps",
		   "held-out loss every N steps and at the end; 0: never"),
	FO_OPT_INT(R, eval_batches, "eval.batches", "N", "8", 1, 1e6, "micro-batches",
		   "how much held-out text each evaluation reads"),
	FO_OPT_ENUM(R, eval_packing, "eval.packing", "data",
		    "how held-out documents are put into rows: as data.packing says, or one way for runs that shall be "
		    "compared",
		    "data|packed|padded|bestfit|split"),
	FO_OPT_INT(R, ckpt_every, "checkpoint.every", "N", "500", 0, 1e9, "steps",
		   "checkpoint every N steps, and at the end (checkpoint.last); 0: only at the end"),
	FO_OPT_INT(R, ckpt_keep, "checkpoint.keep", "N", "2", 0, 1e6, "", "newest checkpoints to keep; 0: all"),
	FO_OPT_YES_NO(R, ckpt_last, "checkpoint.last", "yes",
		      "checkpoint at the end and when the run is stopped; no: those of checkpoint.every alone, so that "
		      "with 0 no weights are ever saved"),
	FO_OPT_BYTES(R, ckpt_file, "checkpoint.file-size", "SIZE", "5GB", 0, 0x1p53,
		     "weights or state of more are split by layer into several files; 0: never"),
	FO_OPT_YES_NO(R, ckpt_async, "checkpoint.async", "yes",
		      "copy the state and write it while training goes on; no, or no memory for the copy: wait"),
	FO_OPT_ENUM(R, guard_nonfinite, "guard.nonfinite", "stop",
		    "a loss or gradient that is not finite: stop, or leave the weights as they are and go on",
		    "stop|skip"),
	FO_OPT_ENUM(R, guard_spike, "guard.spike", "warn",
		    "a loss far above the last ones: say so, skip the step, or go back and around its data",
		    "off|warn|skip|rewind"),
	FO_OPT_REAL(R, guard_spike_z, "guard.spike-z", "X", "6", 1, 1000, "deviations",
		    "how far above the median a loss is a spike"),
	FO_OPT_INT(R, guard_spike_window, "guard.spike-window", "N", "64", 8, 256, "steps",
		   "how many losses the median and deviation are of"),
	FO_OPT_INT(R, guard_limit, "guard.limit", "N", "10", 1, 1e9, "steps",
		   "stop after this many skipped steps in a row, or returns to one checkpoint"),
	FO_OPT_INT(R, log_every, "log.every", "N", "1", 1, 1e9, "steps",
		   "a line every N steps where the output is no terminal"),
	FO_OPT_OUTPUT(
		R, tensorboard, "report.tensorboard", "DIR", "",
		"scalars for TensorBoard into this folder; yes: into DIR/tensorboard of run.dir; empty or no: none",
		FO_OUTPUT_NEW_NAMES),
	FO_OPT_OUTPUT(R, prometheus, "report.prometheus", "FILE", "",
		      "figures for Prometheus (node_exporter's textfile collector), renewed every second; empty: none",
		      FO_OUTPUT_PROMETHEUS),
	FO_OPT_TEXT(R, prompt, "sample.prompt", "TEXT", "",
		    "what the sample at the end begins with; empty: the start of a document"),
	FO_OPT_INT(R, sample_tokens, "sample.tokens", "N", "0", 0, 4096, "tokens",
		   "length of a sample generated at the end; 0: none"),
	FO_OPT_BYTES(R, memory_limit, "memory.limit", "SIZE", NULL, 0, 0x1p53,
		     "refuse a run that plans more; unset or 0: what this machine has free"),
	FO_OPT_BYTES(R, memory_budget, "memory.budget", "SIZE", NULL, 0, 0x1p53,
		     "what auto may plan with; unset or 0: memory.limit, else what this machine has free"),
	FO_OPT_YES_NO(R, merge_qkv, "pass.merge-qkv", "yes", "queries, keys and values from one matmul"),
	FO_OPT_YES_NO(R, merge_gate_up, "pass.merge-gate-up", "yes", "gate and up from one matmul"),
	FO_OPT_INT_OR(R, fuse_loss, "pass.fuse-loss", "N|auto", "auto", 0, 1 << 24, "tokens",
		      "head and loss by chunks of N tokens, so that all logits never exist; 0: at once; auto: 512 on "
		      "the processor, on a device up to the whole micro-batch, as its memory allows",
		      "auto"),
	FO_OPT_YES_NO(R, fuse_elementwise, "pass.fuse-elementwise", "yes",
		      "additions with the norms after them, and both gradients of a norm, in one walk over memory"),
	FO_OPT_TRI(R, fuse_rope, "pass.fuse-rope", "auto",
		   "attention's gradients are turned back by rope before they are stored; auto: on a device, where "
		   "that is predicted to be faster",
		   "auto"),
	FO_OPT_ENUM(
		R, recompute, "pass.recompute", "auto",
		"activations made again in backward: none, selective (norms, SwiGLU), full (a layer from its input), "
		"auto (the least work that fits memory.budget)",
		"auto|none|selective|full"),
	FO_OPT_INT(R, recompute_layers, "pass.recompute-layers", "N", "0", 0, 10000, "layers",
		   "selective and full: only in the first N layers; 0: in all"),
	FO_OPT_INT(R, offload, "pass.offload", "N", "0", 0, 10000, "layers",
		   "activations of the first N layers wait for backward in host memory; 0: none. For devices; auto "
		   "does not choose it"),
	FO_OPT_ENUM(R, cp_by, "pass.cp", "ring",
		    "how tokens of a cp group's ranks see each other: ring: keys and values travel from rank to rank; "
		    "heads: each rank has some heads of all tokens while attention is computed (all-to-all)",
		    "ring|heads"), /* enum fo_cp less 1 */
	FO_OPT_YES_NO(R, tp_sequence, "pass.tp-sequence", "yes",
		      "ranks of a tp group have norms and the residual stream of their own tokens (sequence parallel); "
		      "no: of all tokens each"),
	FO_OPT_INT_OR(
		R, tp_async, "pass.tp-async", "N|auto", "auto", 0, FO_TP_ASYNC_MOST, "pieces",
		"with pass.tp-sequence: tokens travel between ranks of a tp group in N pieces, while the work on "
		"other pieces goes on; 0: all at once, which is waited for; auto: up to 4 pieces of 256 tokens or more",
		"auto"),
	FO_OPT_ENUM(R, pp_kind, "pass.pp", "1f1b",
		    "with mesh.pp: in which order stages work on micro-batches forward and backward",
		    FO_RUN_PP_KINDS), /* enum fo_pp_kind */
	FO_OPT_INT(R, pp_chunks, "pass.pp-chunks", "N", "0", 0, FO_PP_CHUNKS_MOST, "parts",
		   "parts of the model that each stage has; 0: as usual: two of interleaved and dualpipe-v, else one"),
	FO_OPT_INT(R, ddp, "pass.ddp", "N", "25", 1, 1 << 20, "MiB",
		   "on several ranks: gradients are added up in buckets of N MiB while backward goes on"),
	FO_OPT_YES_NO(R, overlap, "pass.overlap", "yes",
		      "on several ranks: gradients travel while backward goes on; no: when it is over, a baseline"),
	FO_OPT_ENUM(R, reduce_dtype, "pass.reduce-dtype", "fp32",
		    "what gradients travel as between ranks: as they are, or rounded to bf16, half the bytes; sums "
		    "are fp32 in any case",
		    "fp32|bf16"), /* enum fo_reduce */
	FO_OPT_ENUM(R, zero, "pass.zero", "3",
		    "what ranks of a shard group (mesh.shard) share by rows: off: nothing; 1: the optimizer's state; "
		    "2: gradients too; 3: weights too (fsdp), which are gathered where they are used",
		    "off|1|2|3"), /* enum fo_zero */
	FO_OPT_INT(R, zero_prefetch, "pass.zero-prefetch", "N", "1", 0, FO_ZERO_PREFETCH_MOST, "uses",
		   "pass.zero=3: weights are gathered while the N blocks before theirs compute: time for memory"),
	FO_OPT_ENUM(R, zero_reshard, "pass.zero-reshard", "forward",
		    "pass.zero=3: gathered weights are given up after each use (forward), after a micro-batch's "
		    "backward, or after the step: fewer bytes travel, more memory is taken",
		    "forward|backward|step"), /* enum fo_reshard */
	FO_OPT_YES_NO(
		R, zero_first, "pass.zero-first", "no",
		"pass.zero=3: the first pass.zero-prefetch blocks' weights are gathered behind their update, before "
		"the step that uses them; they stay in memory"),
	FO_OPT_ENUM(R, zero_sync, "pass.zero-sync", "micro-batch",
		    "pass.zero=2 and 3: gradients are added up over the shard group behind each micro-batch, and only "
		    "own rows are kept, or once a step, and whole gradients are: fewer bytes travel",
		    "step|micro-batch"), /* enum fo_sync */
	FO_OPT_YES_NO(R, fused_optimizer, "pass.fused-optimizer", "yes", "one operation steps many tensors"),
	FO_OPT_YES_NO(R, optimizer_in_backward, "pass.optimizer-in-backward", "no",
		      "update a layer's weights as soon as its gradients are complete: less memory"),
	FO_OPT_TRI(R, wgrad_lane, "pass.wgrad-lane", "auto",
		   "matmuls of weight gradients on a lane of their own beside the rest of backward: the same "
		   "numbers. auto: on a device, where that is predicted to be faster",
		   "auto"),
	FO_OPT_ENUM(R, fp8, "pass.fp8", "off",
		    "factors of the layers' matmuls in fp8: scales per tensor (current, or delayed by past maxima) or "
		    "per row (hp: weight gradients keep their precision)",
		    "off|current|delayed|rowwise|rowwise-hp"),
	FO_OPT_INT(R, fp8_history, "pass.fp8-history", "N", "1024", 1, FO_FP8_HISTORY_MAX, "steps",
		   "delayed: whose largest maximum makes the scale"),
	FO_OPT_YES_NO(R, fp8_precompute, "pass.fp8-scale-precompute", "no",
		      "fp8: weights are scaled and cast once, after their optimizer step, and kept"),
	FO_OPT_ENUM(R, fp8_wgrad, "pass.fp8-wgrad", "fp8",
		    "fp8: factors of weight gradients; bf16: as they are, unrounded (rowwise-hp has them so anyhow)",
		    "fp8|bf16"),
	FO_OPT_YES_NO(R, fp8_transposed, "pass.fp8-transposed", "no",
		      "fp8, scales per tensor: casts write transposed copies too, so that every matmul has the form "
		      "that Hopper's fp8 takes; wants pass.fp8-scale-precompute=yes"),
	FO_OPT_TRI(R, fp8_fuse, "pass.fp8-fuse", "auto",
		   "fp8=delayed: norms, SwiGLU and its backward cast what they make, which is then not stored by "
		   "itself. auto: on a device, where that is predicted to be faster",
		   "auto"),
	FO_OPT_INT(R, fp8_first, "pass.fp8-skip-first", "N", "0", 0, 10000, "layers",
		   "fp8: the first N layers keep their precision"),
	FO_OPT_INT(R, fp8_last, "pass.fp8-skip-last", "N", "0", 0, 10000, "layers",
		   "fp8: the last N layers keep their precision"),
	FO_OPT_ENUM(R, attention, "pass.attention", "flash",
		    "flash: tiles, scores never leave the caches; eager: whole rows of probabilities in memory, what "
		    "an untuned stack does",
		    "flash|eager"),
	FO_OPT_PATH(R, program_file, "program.file", "PATH", "",
		    "run this dumped step program instead of lowering the model"),
	FO_OPT_END
};
#undef R

bool fo_run_device_parse(const char *text, enum fo_run_device *kind, int *index)
{
	const char *digits = text + 5;
	*index = 0;
	*kind = FO_RUN_DEVICE_CUDA;
	if (!strcmp(text, "auto") || !strcmp(text, "cpu")) {
		*kind = *text == 'a' ? FO_RUN_DEVICE_AUTO : FO_RUN_DEVICE_CPU;
		return true;
	}
	if (!strcmp(text, "cuda"))
		return true;
	if (strncmp(text, "cuda:", 5) || !*digits || strspn(digits, "0123456789") != strlen(digits) ||
	    strlen(digits) > 4)
		return false;
	*index = atoi(digits);
	return true;
}

bool fo_run_balances(const struct fo_run *r)
{
	return r->pp > 1 && (!r->pp_layers || !strcmp(r->pp_layers, "balanced"));
}

/* "5,4,4,3" as layers by part; false: it is no such list. Words leave *out without parts. */
static bool read_parts(const char *text, struct fo_staging *out)
{
	*out = (struct fo_staging){ 0 };
	if (!text || !strcmp(text, "balanced") || !strcmp(text, "even"))
		return true;
	for (const char *at = text;; at++) {
		const size_t digits = strspn(at, "0123456789");
		const long layers = digits && digits < 6 ? strtol(at, NULL, 10) : 0;
		if (layers < 1 || layers > INT16_MAX || out->parts == FO_STAGING_MOST)
			return false;
		out->layers[out->parts++] = (int16_t)layers;
		at += digits;
		if (!*at)
			return true;
		if (*at != ',')
			return false;
	}
}

/* The divisor of n that is nearest to `to`, below it (dir -1) or above (1); 0: there is none. */
static int64_t nearest_divisor(int64_t n, int64_t to, int dir)
{
	to = to > n ? n + (dir > 0) : to;
	while (to >= 1 && to <= n && n % to)
		to += dir;
	return to >= 1 && to <= n ? to : 0;
}

static void set_number(struct fo_opt_set *s, const char *key, int64_t value, const char *from)
{
	char text[24];
	snprintf(text, sizeof text, "%lld", (long long)value);
	s->origin[fo_opt_find(s->rows, key)].from = FO_ORIGIN_DEFAULT; /* a 0 that was given asks for what follows */
	fo_opt_set_text(s, key, text, FO_ORIGIN_DEFAULT, from);
}

/* Appends the meshes of `ranks` ranks whose shard group is nearest to this one. */
static void put_meshes(struct fo_str *out, int64_t ranks, int64_t shard)
{
	const int64_t near[] = { nearest_divisor(ranks, shard - 1, -1), nearest_divisor(ranks, shard, 1) };
	for (int i = 0; i < 2; i++)
		if (near[i])
			fo_str_printf(out, "%s%lld x %lld", out->len ? " or " : "", (long long)near[i],
				      (long long)(ranks / near[i]));
}

/* Does anybody ask for a shard group by pass.zero? Not a run file with all defaults, such as `flatout init` writes. */
static bool asks_for_shards(const struct fo_opt_set *s, const struct fo_run *r)
{
	const enum fo_opt_origin from = s->origin[fo_opt_find(s->rows, "pass.zero")].from;
	return r->zero && from != FO_ORIGIN_DEFAULT && (from != FO_ORIGIN_FILE || r->zero != FO_ZERO_WEIGHTS);
}

/* mesh.tp or mesh.cp does not divide so many ranks. */
static void refuse_axis(struct fo_opt_set *s, const char *key, int64_t n, int64_t ranks, const char *of)
{
	const int64_t below = nearest_divisor(ranks, n, -1), above = nearest_divisor(ranks, n, 1);
	struct fo_str near = { 0 };
	fo_str_printf(&near, "%lld", (long long)below);
	if (above)
		fo_str_printf(&near, " and %lld", (long long)above);
	fo_opt_problem(s, "%s=%lld does not divide %s=%lld: the nearest that %s %s", key, (long long)n, of,
		       (long long)ranks, above ? "do are" : "does is", near.data);
	fo_str_fini(&near);
}

/* Divides ranks by the axis `key`; *of: what they are then called in messages. False: refused. */
static bool take_axis(struct fo_opt_set *s, const char *key, int64_t n, int64_t *ranks, struct fo_str *of)
{
	if (*ranks % n) {
		refuse_axis(s, key, n, *ranks, of->data);
		return false;
	}
	*ranks /= n;
	if (n > 1)
		fo_str_printf(of, " / %s", key);
	return true;
}

/* Ranks are a mesh of pp x replicate x shard x cp x tp: what is not given follows from what is. The options hold the
 * result. */
static void settle_mesh(struct fo_opt_set *s, const struct fo_run *r)
{
	const bool ranks_given = fo_opt_given(s, "mesh.ranks"), zero_given = asks_for_shards(s, r);
	const struct fo_mesh asked = { .replicate = (int32_t)r->replicate,
				       .shard = (int32_t)r->shard,
				       .cp = (int32_t)r->cp,
				       .tp = (int32_t)r->tp,
				       .pp = (int32_t)r->pp };
	const int64_t given = r->shard ? r->shard : r->replicate;
	struct fo_str near = { 0 }, of = { 0 };
	/* Always noted as what follows: `flatout init` then writes it as a comment, and a launcher or --mesh.shard
	 * decides. */
	if (!ranks_given)
		set_number(s, "mesh.ranks",
			   given || r->cp > 1 || r->tp > 1 || r->pp > 1 ? fo_mesh_ranks(&asked) : r->ranks, "the mesh");
	int64_t ranks = r->ranks;
	fo_str_puts(&of, "mesh.ranks");
	if (!take_axis(s, "mesh.pp", r->pp, &ranks, &of) || !take_axis(s, "mesh.tp", r->tp, &ranks, &of) ||
	    !take_axis(s, "mesh.cp", r->cp, &ranks, &of)) {
		fo_str_fini(&of);
		return;
	}
	if (!r->shard && !r->replicate && zero_given && ranks > 1)
		set_number(s, "mesh.shard", ranks, "pass.zero");
	else if (!r->shard)
		set_number(s, "mesh.shard", r->replicate && ranks % r->replicate == 0 ? ranks / r->replicate : 1,
			   "mesh.ranks");
	if (!r->replicate)
		set_number(s, "mesh.replicate", ranks % r->shard == 0 ? ranks / r->shard : 1, "mesh.ranks");
	if (r->shard * r->replicate != ranks) {
		/* Of what was given alone, its own nearest are listed as shard groups of so many. */
		put_meshes(&near, ranks, r->shard);
		fo_opt_problem(s,
			       "mesh.shard=%lld x mesh.replicate=%lld are not %.10s=%lld%s: the nearest meshes of so "
			       "many ranks are %s (shard x replicate)",
			       (long long)r->shard, (long long)r->replicate, of.data, (long long)r->ranks, of.data + 10,
			       near.data);
	} else if (zero_given && r->shard * r->cp == 1) {
		fo_opt_problem(s,
			       "pass.zero=%d is about what the ranks of a shard group share, and mesh.shard is 1: with "
			       "more ranks (--ranks=4) give mesh.shard too, or leave pass.zero out",
			       r->zero);
	}
	fo_str_fini(&of);
	fo_str_fini(&near);
}

/* The rows that ranks share: a micro-batch's, or where its rows are chosen those of the step. */
static void check_rows(struct fo_opt_set *s, const struct fo_run *r)
{
	struct fo_str near = { 0 };
	const int64_t shared = r->batch_rows ? r->batch_rows : r->rows, ranks = fo_run_row_sets(r);
	const int64_t rows = shared / ranks * ranks, below = nearest_divisor(shared, ranks, -1),
		      above = nearest_divisor(shared, ranks, 1);
	const char *const of[] = { "rank", "tp group", "cp group", "group" },
			  *what = r->pp > 1 ? "group" : of[(r->tp > 1) + 2 * (r->cp > 1)];
	if (shared % ranks == 0)
		return;
	if (rows)
		fo_str_printf(&near, "%lld or ", (long long)rows);
	fo_str_printf(&near, "%lld rows, or %lld", (long long)(rows + ranks), (long long)below);
	if (above)
		fo_str_printf(&near, " or %lld", (long long)above);
	fo_opt_problem(s,
		       "%lld %ss cannot share the rows of a %s evenly, %s=%lld: the nearest that "
		       "can be shared are %s %s%s",
		       (long long)ranks, what, r->batch_rows ? "step" : "micro-batch",
		       r->batch_rows ? "train.batch-rows" : "train.rows", (long long)shared, near.data, what,
		       above || below > 1 ? "s" : "");
	fo_str_fini(&near);
}

/* What several ranks cannot do. */
static void check_ranks(struct fo_opt_set *s, const struct fo_run *r)
{
	const struct {
		bool is;
		const char *text;
	} row[] = {
		{ *r->program_file != 0, "program.file: a file holds the program of one rank; leave it out" },
		{ strcmp(r->affinity, "none") != 0 && strcmp(r->affinity, "auto") != 0,
		  "run.affinity: cores and lists bind the threads of one rank; leave it out" },
		{ (r->link_gbps > 0 || r->link_us > 0) && r->over == FO_RUN_OVER_NCCL,
		  "mesh.link-gbps or mesh.link-us and mesh.over=nccl: only links through host memory are emulated" },
		{ r->over == FO_RUN_OVER_NCCL && strncmp(r->device, "cuda", 4) != 0,
		  "mesh.over=nccl on the processor: NCCL carries calls between CUDA devices; set train.device=cuda, or "
		  "leave mesh.over out" },
		{ !strncmp(r->device, "cuda", 4) && r->kernel_times > 0,
		  "train.kernel-times: CUPTI sees the kernels of all ranks of a process alike; leave it out" },
	};
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (row[i].is)
			fo_opt_problem(s, "mesh.ranks=%lld cannot be combined with %s", (long long)r->ranks,
				       row[i].text);
	check_rows(s, r);
}

/* Layers by part; that they are the model's is fo_lowering_check_pipeline's. */
static void check_parts(struct fo_opt_set *s, const struct fo_run *r)
{
	char shown[64];
	struct fo_staging list;
	const int64_t chunks = r->pp_chunks ? r->pp_chunks : fo_pp_chunks_usual((enum fo_pp_kind)r->pp_kind);
	if (!read_parts(r->pp_layers, &list))
		fo_opt_problem(
			s,
			"mesh.pp-layers must be balanced, even, or at most %d numbers of layers from 1 on, such as "
			"5,4,4,3; got '%s'",
			FO_STAGING_MOST, fo_str_visible(shown, sizeof shown, r->pp_layers));
	else if (list.parts && r->pp < 2)
		fo_opt_problem(
			s,
			"mesh.pp-layers=%s is about stages of a pipeline, and mesh.pp is 1: give mesh.pp too, or "
			"leave mesh.pp-layers out",
			fo_str_visible(shown, sizeof shown, r->pp_layers));
	else if (list.parts && list.parts != r->pp * chunks)
		fo_opt_problem(s,
			       "mesh.pp-layers=%s is a list of %d, and mesh.pp=%lld stages of %lld part%s each "
			       "take %lld",
			       fo_str_visible(shown, sizeof shown, r->pp_layers), list.parts, (long long)r->pp,
			       (long long)chunks, fo_plural(chunks), (long long)(r->pp * chunks));
}

static void check_mesh(struct fo_opt_set *s, const struct fo_run *r)
{
	settle_mesh(s, r);
	check_parts(s, r);
	if (r->pp < 2 && r->pp_kind != FO_PP_1F1B)
		fo_opt_problem(s,
			       "pass.pp=%s is about stages of a pipeline, and mesh.pp is 1: give mesh.pp too, or leave "
			       "pass.pp out",
			       fo_pp_name[r->pp_kind]);
	if (r->pp < 2 && r->pp_chunks > 0)
		fo_opt_problem(s,
			       "pass.pp-chunks=%lld is about stages of a pipeline, and mesh.pp is 1: give mesh.pp too, "
			       "or leave pass.pp-chunks out",
			       (long long)r->pp_chunks);
	if (r->ranks > 1 && r->ranks % (r->tp * r->cp * r->pp) == 0)
		check_ranks(s, r);
	else if (r->link_gbps > 0 || r->link_us > 0)
		fo_opt_problem(s, "mesh.link-%s is about links between ranks, and there is one rank: set mesh.ranks",
			       r->link_gbps > 0 ? "gbps" : "us");
}

/* A run with paced kernels has no numbers: there is nothing to evaluate, to save or to write from. */
static void check_paced(struct fo_opt_set *s, const struct fo_run *r)
{
	static const struct {
		const char *key, *value;
	} none[] = { { "eval.every", "0" }, { "checkpoint.every", "0" }, { "checkpoint.last", "no" } };
	if (!fo_run_is_paced(r))
		return;
	for (size_t i = 0; i < sizeof none / sizeof *none; i++)
		if (!fo_opt_given(s, none[i].key))
			fo_opt_set_text(s, none[i].key, none[i].value, FO_ORIGIN_DEFAULT, "train.paced");
	const struct {
		bool is;
		const char *text;
	} row[] = { { r->eval_every != 0, "eval.every: set it to 0" },
		    { r->ckpt_every != 0, "checkpoint.every: set it to 0" },
		    { r->ckpt_last, "checkpoint.last: set it to no" },
		    { r->sample_tokens != 0, "sample.tokens: set it to 0" },
		    { *r->weights != 0, "model.weights: name the model by model.name" },
		    { r->metered_every != 0, "train.metered-every: set it to 0" },
		    { !strncmp(r->device, "cuda", 4), "train.device=cuda: leave it out" },
		    { r->verify != FO_VERIFY_AT_START_OFF, "run.verify: set it to off" } };
	for (size_t i = 0; i < sizeof row / sizeof *row; i++)
		if (row[i].is)
			fo_opt_problem(s, "train.paced computes nothing, and cannot be combined with %s", row[i].text);
}

fo_status fo_run_check(struct fo_opt_set *s, const struct fo_run *r)
{
	check_mesh(s, r);
	check_paced(s, r);
	/* A default gives way: nobody who asks for a short run has asked for a warm-up that is longer. */
	if (!fo_opt_given(s, "optim.warmup")) {
		char text[24];
		snprintf(text, sizeof text, "%lld", (long long)(r->warmup < r->steps / 10 ? r->warmup : r->steps / 10));
		fo_opt_set_text(s, "optim.warmup", text, FO_ORIGIN_DEFAULT, "train.steps");
	}
	/* A folder with weights says what they are weights of, and what its tokens mean. */
	if (*r->weights) {
		struct fo_arena a = { 0 };
		char *tokenizer = fo_arena_printf(&a, "%s/tokenizer.json", r->weights);
		if (!fo_opt_given(s, "model.name"))
			fo_opt_set_text(s, "model.name", r->weights, FO_ORIGIN_DEFAULT, "model.weights");
		if (!fo_opt_given(s, "data.tokenizer") && fo_fs_exists(tokenizer))
			fo_opt_set_text(s, "data.tokenizer", tokenizer, FO_ORIGIN_DEFAULT, "model.weights");
		fo_arena_fini(&a);
	}
	if (r->warmup > r->steps)
		fo_opt_problem(s,
			       "optim.warmup is %lld steps, longer than train.steps (%lld): shorten the warm-up, or "
			       "leave it out for a tenth of the run",
			       (long long)r->warmup, (long long)r->steps);
	enum fo_run_device kind;
	int index;
	if (!fo_run_device_parse(r->device, &kind, &index)) {
		char shown[64];
		fo_opt_problem(s, "train.device must be " FO_RUN_DEVICES ", got '%s'",
			       fo_str_visible(shown, sizeof shown, r->device));
	}
	if (r->metered_every == 1)
		fo_opt_problem(
			s, "train.metered-every=1 leaves no step to be timed as it is: take 2 or more, or 0 for none");
	if (r->precision == FO_RUN_FP32 && r->master != FO_MASTER_FP32)
		fo_opt_problem(
			s,
			"optim.master=%s is about bf16 weights: with train.precision=fp32 the weights are the master",
			fo_master_name[r->master]);
	if (r->precision == FO_RUN_FP32 && r->state != FO_RUN_STATE_GIVEN)
		fo_opt_problem(s,
			       "optim.state=%s chooses what is stored beside bf16 weights: with train.precision=fp32 "
			       "leave it out, and set optim.moments=bf16 where memory is short",
			       r->state == FO_RUN_STATE_AUTO ? "auto" : "exact");
	if (r->fp8_precompute && !r->fp8)
		fo_opt_problem(s, "pass.fp8-scale-precompute=yes is about fp8 matmuls: choose a recipe with pass.fp8, "
				  "or leave it out");
	if (r->fp8_transposed && ((r->fp8 != FO_FP8_CURRENT && r->fp8 != FO_FP8_DELAYED) || !r->fp8_precompute))
		fo_opt_problem(s, "pass.fp8-transposed=yes is about scales per tensor and weights that are cast once: "
				  "set pass.fp8=current or delayed, and pass.fp8-scale-precompute=yes");
	if (r->fp8_fuse == FO_RUN_YES && r->fp8 != FO_FP8_DELAYED)
		fo_opt_problem(s, "pass.fp8-fuse=yes is about scales that are known before what is cast: set "
				  "pass.fp8=delayed, or leave it out");
	const char *about = NULL;
	if (r->fp8_wgrad)
		about = "pass.fp8-wgrad";
	else if (r->fp8_first)
		about = "pass.fp8-skip-first";
	else if (r->fp8_last)
		about = "pass.fp8-skip-last";
	if (about && !r->fp8)
		fo_opt_problem(s, "%s is about fp8 matmuls: choose a recipe with pass.fp8, or leave it out", about);
	if (r->recompute_layers && r->recompute != FO_RUN_RECOMPUTE_SELECTIVE && r->recompute != FO_RUN_RECOMPUTE_FULL)
		fo_opt_problem(s, "pass.recompute-layers says where pass.recompute=selective or full applies: choose "
				  "one of them, or leave it out");
	if (r->rows * r->seq > 1 << 28)
		fo_opt_problem(s, "train.rows x data.seq is %lld tokens, at most 2^28 fit into a micro-batch",
			       (long long)(r->rows * r->seq));
	if (r->optimizer_in_backward && r->clip > 0 && r->clip_norm == FO_RUN_CLIP_EXACT)
		fo_opt_problem(
			s, "pass.optimizer-in-backward updates weights before this step's gradient norm is known: set "
			   "optim.clip-norm=previous, or optim.clip=0");
	if (r->optimizer_in_backward && r->guard_nonfinite == FO_NONFINITE_SKIP)
		fo_opt_problem(
			s,
			"pass.optimizer-in-backward updates weights before a gradient that is not finite is seen, so "
			"guard.nonfinite=skip cannot leave them as they were: set guard.nonfinite=stop");
	return fo_opt_finish(s);
}

fo_status fo_run_model(const struct fo_run *r, struct fo_model *m)
{
	FO_TRY(fo_model_load(r->model, m));
	const struct {
		int64_t value;
		int64_t *field;
	} over[] = {
		{ r->layers, &m->layers },     { r->hidden, &m->hidden },     { r->heads, &m->heads },
		{ r->kv_heads, &m->kv_heads }, { r->head_dim, &m->head_dim }, { r->ffn, &m->ffn },
		{ r->vocab, &m->vocab },
	};
	bool changed = r->tied != FO_RUN_AUTO;
	for (size_t i = 0; i < sizeof over / sizeof *over; i++)
		if (over[i].value) {
			changed |= *over[i].field != over[i].value;
			*over[i].field = over[i].value;
		}
	/* Overrides imply others: heads imply kv heads, hidden and heads imply the head dimension. */
	if (r->heads && !r->kv_heads)
		m->kv_heads = m->heads;
	if ((r->hidden || r->heads) && !r->head_dim)
		m->head_dim = m->hidden / m->heads;
	if (r->tied != FO_RUN_AUTO)
		m->tied = r->tied == FO_RUN_YES;
	fo_status st = fo_model_check(m);
	if (changed)
		strcpy(m->name, "custom");
	if (st == FO_OK || !changed)
		return st;
	/* "model 'NAME': what is wrong": the name is said once, with what makes it another model. */
	char shown[256], text[1024];
	const char *what = strstr(fo_err_text(), "': ");
	snprintf(text, sizeof text, "%s", what ? what + 3 : fo_err_text());
	return fo_fail(st, "model '%s' with the overrides of this run: %s",
		       fo_str_visible(shown, sizeof shown, r->model), text);
}

enum fo_numerics fo_run_precision(const struct fo_run *r)
{
	return r->precision == FO_RUN_BF16 ? FO_PRECISION_BF16 : FO_PRECISION_F32;
}

/* Pieces of tp communication; what is not given is chosen, where there is something to cut. */
static int async_of(const struct fo_run *r)
{
	if (r->tp < 2)
		return 0;
	if (r->tp_async >= 0)
		return (int)r->tp_async;
	return r->tp_sequence ? FO_TP_ASYNC_AUTO : 0;
}

static struct fo_passes passes_of(const struct fo_run *r)
{
	static const int64_t recompute[] = {
		[FO_RUN_RECOMPUTE_SELECTIVE] = FO_RECOMPUTE_SELECTIVE, [FO_RUN_RECOMPUTE_FULL] = FO_RECOMPUTE_FULL
	};
	struct fo_passes c = {
		.merge_qkv = r->merge_qkv,
		.merge_gate_up = r->merge_gate_up,
		.master = r->master,
		.moments = r->moments,
		.rounding = FO_ROUND_NEAREST,
		.fuse_loss = r->fuse_loss,
		.recompute = recompute[r->recompute],
		.fuse_elementwise = r->fuse_elementwise,
		.fuse_rope = r->fuse_rope == FO_RUN_YES,
		.attention = r->attention,
		.tp = r->tp < 2        ? FO_TP_OFF
		      : r->tp_sequence ? FO_TP_SEQUENCE
				       : FO_TP_REPLICATED,
		.tp_async = async_of(r),
		.cp = r->cp < 2 ? FO_CP_OFF : FO_CP_RING + r->cp_by,
		.pp = r->pp < 2 ? 0 : 1 + r->pp_kind,
		.pp_chunks = r->pp < 2 ? 0 : r->pp_chunks,
		.offload = r->offload,
		.fused_optimizer = r->fused_optimizer,
		.optimizer_in_backward = r->optimizer_in_backward,
		.ddp = r->ranks > 1 ? r->ddp : 0,
		.reduce_late = r->ranks > 1 && !r->overlap,
		.reduce_dtype = r->ranks > 1 ? r->reduce_dtype : 0,
		.wgrad_lane = r->wgrad_lane == FO_RUN_YES,
		/* Without clipping it does not matter which step's norm it is. */
		.previous_norm = r->clip_norm == FO_RUN_CLIP_PREVIOUS || (r->optimizer_in_backward && r->clip == 0),
	};
	if (r->shard * r->cp > 1) {
		c.zero = r->zero;
		c.zero_prefetch = r->zero == FO_ZERO_WEIGHTS ? r->zero_prefetch : 0;
		c.zero_reshard = r->zero == FO_ZERO_WEIGHTS ? r->zero_reshard : 0;
		c.zero_first = r->zero == FO_ZERO_WEIGHTS && r->zero_first;
		c.zero_sync = r->zero >= FO_ZERO_GRADIENTS ? r->zero_sync : 0;
	}
	if (r->fuse_loss == FO_RUN_FUSE_LOSS_AUTO)
		c.fuse_loss = FO_RUN_FUSE_LOSS;
	if (c.recompute)
		c.recompute_layers = r->recompute_layers;
	if (r->rounding == FO_RUN_STOCHASTIC && (r->master == FO_MASTER_NONE || r->moments == FO_MOMENTS_BF16))
		c.rounding = FO_ROUND_STOCHASTIC;
	if (r->fp8) {
		c.fp8 = r->fp8;
		c.fp8_precompute = r->fp8_precompute;
		c.fp8_wgrad = r->fp8_wgrad;
		c.fp8_transposed = r->fp8_transposed;
		c.fp8_first = r->fp8_first;
		c.fp8_last = r->fp8_last;
	}
	if (r->fp8 == FO_FP8_DELAYED) {
		c.fp8_history = r->fp8_history;
		c.fp8_fuse = r->fp8_fuse == FO_RUN_YES;
	}
	return c;
}

struct fo_lowering fo_run_lowering(const struct fo_run *r, enum fo_mode mode)
{
	struct fo_lowering low = { .seq = r->seq,
				   .rows = r->rows,
				   .micro_batches = mode == FO_MODE_TRAIN ? r->micro_batches : 1,
				   .precision = fo_run_precision(r),
				   .mode = mode,
				   .pass = passes_of(r) };
	if (r->ranks > 1) {
		low.mesh.shard = (int32_t)(r->shard ? r->shard : 1);
		low.mesh.tp = (int32_t)(r->tp ? r->tp : 1);
		low.mesh.cp = (int32_t)(r->cp ? r->cp : 1);
		low.mesh.pp = (int32_t)(r->pp ? r->pp : 1);
		low.mesh.replicate = (int32_t)r->ranks / low.mesh.pp / low.mesh.cp / low.mesh.tp / low.mesh.shard;
		low.rows /= fo_mesh_data(&low.mesh);
		if (r->pp > 1)
			(void)read_parts(r->pp_layers, &low.stages); /* options were checked */
	}
	return low;
}

/* "yes", "512", "rowwise": as the option would have it. */
static void put_value(size_t offset, int64_t value, bool is_switch, struct fo_str *out)
{
	struct fo_str text = { 0 };
	fo_pass_value_text(offset, value, &text);
	if (is_switch)
		fo_str_puts(out, value ? "yes" : "no");
	else if (text.len && strchr("0123456789", text.data[1]) == NULL)
		fo_str_puts(out, text.data + 1);
	else if (offset == offsetof(struct fo_passes, recompute))
		fo_str_puts(out, "none");
	else
		fo_str_printf(out, "%lld", (long long)value);
	fo_str_fini(&text);
}

void fo_run_contradicts(const struct fo_opt_set *s, const struct fo_run *r, const struct fo_passes *has,
			struct fo_str *out)
{
#define AT(f) offsetof(struct fo_passes, f)
	const bool given = r->state == FO_RUN_STATE_GIVEN,
		   rounds = has->master == FO_MASTER_NONE || has->moments == FO_MOMENTS_BF16,
		   repeats = r->recompute != FO_RUN_RECOMPUTE_AUTO;
	const struct {
		const char *key;
		size_t at;
		bool is_switch, counts;
	} row[] = {
		{ "pass.merge-qkv", AT(merge_qkv), true, true },
		{ "pass.merge-gate-up", AT(merge_gate_up), true, true },
		{ "pass.fuse-loss", AT(fuse_loss), false, r->fuse_loss != FO_RUN_FUSE_LOSS_AUTO },
		{ "pass.fuse-elementwise", AT(fuse_elementwise), true, true },
		{ "pass.fuse-rope", AT(fuse_rope), true, r->fuse_rope != FO_RUN_AUTO },
		{ "pass.recompute", AT(recompute), false, repeats },
		{ "pass.recompute-layers", AT(recompute_layers), false, repeats && has->recompute },
		{ "pass.fused-optimizer", AT(fused_optimizer), true, true },
		{ "pass.optimizer-in-backward", AT(optimizer_in_backward), true, true },
		{ "pass.wgrad-lane", AT(wgrad_lane), true, r->wgrad_lane != FO_RUN_AUTO },
		{ "pass.fp8", AT(fp8), false, true },
		{ "pass.fp8-history", AT(fp8_history), false, has->fp8 == FO_FP8_DELAYED },
		{ "pass.fp8-scale-precompute", AT(fp8_precompute), true, has->fp8 },
		{ "pass.fp8-wgrad", AT(fp8_wgrad), false, has->fp8 },
		{ "pass.fp8-transposed", AT(fp8_transposed), true, has->fp8 },
		{ "pass.fp8-fuse", AT(fp8_fuse), true, has->fp8 == FO_FP8_DELAYED && r->fp8_fuse != FO_RUN_AUTO },
		{ "pass.fp8-skip-first", AT(fp8_first), false, has->fp8 },
		{ "pass.fp8-skip-last", AT(fp8_last), false, has->fp8 },
		{ "pass.attention", AT(attention), false, true },
		{ "pass.offload", AT(offload), false, true },
		{ "optim.master", AT(master), false, given },
		{ "optim.moments", AT(moments), false, given },
		{ "optim.rounding", AT(rounding), false, rounds },
	};
#undef AT
	struct fo_passes want = passes_of(r);
	/* passes_of leaves these out when another option is off; here each is compared by itself. */
	want.fp8_history = r->fp8_history;
	want.fp8_precompute = r->fp8_precompute;
	want.fp8_wgrad = r->fp8_wgrad;
	want.fp8_transposed = r->fp8_transposed;
	want.fp8_fuse = r->fp8_fuse == FO_RUN_YES;
	want.fp8_first = r->fp8_first;
	want.fp8_last = r->fp8_last;
	want.rounding = r->rounding == FO_RUN_NEAREST ? FO_ROUND_NEAREST : FO_ROUND_STOCHASTIC;
	for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
		int64_t asked = fo_passes_get(&want, row[i].at), is = fo_passes_get(has, row[i].at);
		if (!row[i].counts || asked == is || !fo_opt_given(s, row[i].key))
			continue;
		fo_str_printf(out, "%s%s is ", out->len ? "; " : "", row[i].key);
		put_value(row[i].at, is, row[i].is_switch, out);
		fo_str_puts(out, " there, not ");
		put_value(row[i].at, asked, row[i].is_switch, out);
	}
	static const char *const norm[] = { [FO_RUN_CLIP_EXACT] = "exact", [FO_RUN_CLIP_PREVIOUS] = "previous" };
	const int there = has->previous_norm ? FO_RUN_CLIP_PREVIOUS : FO_RUN_CLIP_EXACT;
	if (fo_opt_given(s, "optim.clip-norm") && r->clip > 0 && r->clip_norm != there)
		fo_str_printf(out, "%soptim.clip-norm is %s there, not %s", out->len ? "; " : "", norm[there],
			      norm[r->clip_norm]);
}

double fo_run_lr(const struct fo_run *r, int64_t step)
{
	if (step < r->warmup)
		return r->lr * (double)(step + 1) / (double)r->warmup;
	double span = (double)(r->steps - r->warmup), at = span > 1 ? (double)(step - r->warmup) / (span - 1) : 1,
	       low = r->lr * r->final_lr;
	if (at > 1)
		at = 1;
	switch ((enum fo_schedule)r->schedule) {
	case FO_SCHEDULE_COSINE: return low + (r->lr - low) * (1 + cos(3.14159265358979323846 * at)) / 2;
	case FO_SCHEDULE_LINEAR: return r->lr + (low - r->lr) * at;
	case FO_SCHEDULE_WSD: {
		double begin = 1 - r->decay_share;
		return at <= begin || r->decay_share == 0 ? r->lr
							  : r->lr + (low - r->lr) * (at - begin) / r->decay_share;
	}
	case FO_SCHEDULE_CONSTANT: break;
	}
	return r->lr;
}
