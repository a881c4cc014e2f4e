/* flatout demo: the main job on real text in a few minutes, sized by what this machine can do. */
#include "cli/engine/screen.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "pass/pass.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct demo {
	const char *text, *dir;
	double minutes;
	bool ladder, force;
	const char *json;
};
static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct demo, text, "demo.text", "PATH", "",
		    "text to train on: a file or folder; empty: the POD files of Debian's perl-doc"),
	FO_OPT_OUTPUT(struct demo, dir, "demo.dir", "PATH", "",
		      "run directory; empty: runs/demo, replaced when it is an earlier demo's", FO_OUTPUT_DEMO),
	FO_OPT_REAL(struct demo, minutes, "demo.minutes", "X", "2", 0.05, 60, "minutes",
		    "how long to train; preparing takes some seconds more"),
	FO_OPT_BOOL(struct demo, ladder, "demo.ladder", "true",
		    "then measure four rungs of a ladder on the same model; takes six tenths of --minutes more"),
	FO_CLI_OUTPUT_ROWS(struct demo, "demo", "the result as JSON on standard output, progress on standard error")
};

/* Models to choose from. A run of N weights that multiply a token learns best from about 20 N tokens (Hoffmann et al.
 * 2022); a short demo is content with TOKENS_PER_WEIGHT. Shapes keep the width-to-depth ratio of small Llamas. */
#define TOKENS_PER_WEIGHT 1.0
static const struct {
	int64_t layers, hidden, heads, ffn;
} sizes[] = {
	{ 2, 64, 2, 192 },  { 2, 96, 3, 256 },    { 3, 128, 4, 352 },    { 4, 192, 6, 512 },
	{ 6, 256, 8, 704 }, { 8, 384, 12, 1024 }, { 10, 512, 16, 1408 },
};
enum { SIZES = sizeof sizes / sizeof *sizes };
#define VOCAB 2048 /* small enough that the head does not outweigh a small model */
#define SEQ 256
#define ROWS 4
#define PROBE_SECONDS 5.0
enum { PROBE_STEPS = 1024 }; /* of one size: the smallest takes about 5 ms on two processors */

static void set_size(struct fo_run *r, int i)
{
	r->layers = sizes[i].layers;
	r->hidden = sizes[i].hidden;
	r->heads = r->kv_heads = sizes[i].heads;
	r->head_dim = sizes[i].hidden / sizes[i].heads;
	r->ffn = sizes[i].ffn;
}

/* ---- the probe: how many tokens per second each size would train ---- */

/* A step's tokens without meaning: every row one document. */
static fo_status probe_port(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	(void)ctx, (void)mb;
	if (port == FO_PORT_BATCH) {
		int32_t *token = arg[FO_PORT_BATCH_TOKEN].data, *target = arg[FO_PORT_BATCH_TARGET].data,
			*position = arg[FO_PORT_BATCH_POSITION].data, *start = arg[FO_PORT_BATCH_DOC_START].data;
		for (int64_t i = 0; i < arg->rows; i++) {
			token[i] = target[i] = (int32_t)(fo_rng_u64(7, (uint64_t)i) % VOCAB);
			position[i] = (int32_t)(i % SEQ);
			start[i] = (int32_t)(i - i % SEQ);
		}
	}
	if (port == FO_PORT_HYPER)
		for (int i = 0; i < n; i++)
			memset(arg[i].data, 0, (size_t)arg[i].cols * sizeof(double));
	return FO_OK;
}

static fo_status time_steps(const struct fo_run *r, double seconds, double *tokens_per_second)
{
	struct fo_model m;
	struct fo_program p;
	struct fo_store *store = NULL;
	struct fo_exec *e = NULL;
	struct fo_lowering low = fo_run_lowering(r, FO_MODE_TRAIN);
	struct fo_exec_options o = { .threads = fo_cpu_threads(), .timeline_steps = 2 };
	fo_status st;
	FO_TRY(fo_run_model(r, &m));
	FO_TRY(fo_isa_choose(&o.isa));
	FO_TRY(fo_pass_build(&p, &m, &low));
	FO_TRY_OR(st, fo_store_new(&store, &p), done);
	fo_store_init(store, &p, 1);
	FO_TRY_OR(st, fo_exec_new(&e, &p, store, &o, probe_port, NULL, NULL), done);
	FO_TRY_OR(st, fo_exec_step(e, 0), done); /* touches every page */
	/* The median step counts: a moment's disturbance of the machine must not size the run. */
	int64_t begin = fo_now_ns(), now = begin;
	double step[PROBE_STEPS];
	size_t steps = 0;
	while (st == FO_OK && steps < PROBE_STEPS && (double)(now - begin) < seconds * 1e9) {
		int64_t before = now;
		st = fo_exec_step(e, (int32_t)steps + 1);
		now = fo_now_ns();
		step[steps++] = (double)(now - before) * 1e-9;
	}
	*tokens_per_second = (double)(SEQ * ROWS) / fo_stats_median(step, steps);
done:
	fo_exec_free(e);
	fo_store_free(store);
	fo_program_fini(&p);
	return st;
}

/* The largest model that still sees enough tokens in the time given; tokens that it will see in *tokens. */
static fo_status probe(struct fo_run *r, double seconds, FILE *out, double *tokens)
{
	int best = -1;
	int64_t begin = fo_now_ns();
	for (int i = 0; i < SIZES; i++) {
		struct fo_run try = *r;
		struct fo_model m;
		double rate = 0;
		set_size(&try, i);
		FO_TRY(fo_run_model(&try, &m));
		FO_TRY(time_steps(&try, PROBE_SECONDS / SIZES, &rate));
		double weights = fo_model_params(&m).matmul;
		if (best < 0 || rate * seconds >= TOKENS_PER_WEIGHT * weights) {
			best = i;
			*tokens = rate * seconds;
		}
		/* Larger ones only get slower. */
		if (rate * seconds < TOKENS_PER_WEIGHT * weights ||
		    (double)(fo_now_ns() - begin) > 2 * PROBE_SECONDS * 1e9)
			break;
	}
	set_size(r, best);
	fprintf(out, "Probe: %.1f s: this machine trains %lld layers of width %lld at %.0f tokens/s\n",
		(double)(fo_now_ns() - begin) * 1e-9, (long long)r->layers, (long long)r->hidden, *tokens / seconds);
	return FO_OK;
}

/* ---- text and folder ---- */

/* Debian's perl-doc keeps its PODs in /usr/share/perl/VERSION/pod. */
static fo_status default_text(struct fo_arena *a, const char **text)
{
	DIR *d = opendir("/usr/share/perl");
	*text = NULL;
	for (struct dirent *e; d && (e = readdir(d));) {
		char *path = fo_arena_printf(a, "/usr/share/perl/%s/pod", e->d_name), **files;
		size_t n;
		/* perl itself ships perldiag.pod alone: a corpus has more files. */
		if (e->d_name[0] != '.' && fo_fs_is_dir(path) && fo_fs_list(a, path, 100000, &files, &n) == FO_OK &&
		    n > 10)
			*text = path;
	}
	if (d)
		closedir(d);
	return *text ? FO_OK
		     : fo_hint(fo_fail(FO_EIO, "the POD files of perl-doc are not in /usr/share/perl/VERSION/pod"),
			       "install perl-doc, or name any text: flatout demo --text=PATH");
}

static fo_status fresh_folder(struct fo_arena *a, const char *dir, bool force)
{
	char *mark = fo_arena_printf(a, "%s/" FO_OUTPUT_DEMO_MARK, dir);
	/* Even --force removes nothing from somebody else's folder, and does not mark it as ours. */
	if (force && fo_fs_exists(dir) && !fo_fs_exists(mark))
		return fo_fs_mkdirs(dir);
	FO_TRY(fo_output_may_replace(FO_OUTPUT_DEMO, dir));
	FO_TRY(fo_fs_remove_tree(dir));
	FO_TRY(fo_fs_mkdirs(dir));
	return fo_fs_write_atomic(mark, "", 0);
}

static void set(struct fo_opt_set *s, const char *key, const char *fmt, ...) FO_PRINTF(3, 4);
static void set(struct fo_opt_set *s, const char *key, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fo_opt_set_text(s, key, text, FO_ORIGIN_FLAG, "flatout demo");
}

struct number {
	const char *key;
	int64_t value;
};
static void set_numbers(struct fo_opt_set *s, const struct number *row, size_t n)
{
	for (; n > 0; n--, row++)
		set(s, row->key, "%lld", (long long)row->value);
}

static void base_run(struct fo_opt_set *s, struct fo_run *r, const char *text, const char *dir)
{
	static const struct number fixed[] = {
		{ "model.vocab", VOCAB },     { "data.seq", SEQ },      { "train.rows", ROWS },
		{ "train.micro-batches", 1 }, { "data.holdout", 20 },   { "eval.batches", 24 },
		{ "sample.tokens", 80 },      { "checkpoint.keep", 1 }, { "checkpoint.every", 0 },
	};
	fo_opt_init(s, fo_run_options, r);
	set(s, "data.path", "%s", text);
	set(s, "run.dir", "%s", dir);
	set_numbers(s, fixed, sizeof fixed / sizeof *fixed);
	set(s, "train.device", "cpu"); /* what the probe times */
	set(s, "optim.lr", "3e-3");
	set(s, "optim.final-lr", "0.05");
}

/* Sets the options that the probe found and writes all of them as a run file: `flatout train DIR/run.yaml` goes on. */
static fo_status size_run(struct fo_opt_set *s, const struct fo_run *probed, double tokens, struct fo_arena *a)
{
	int64_t steps = (int64_t)(tokens / (double)(SEQ * ROWS));
	if (steps < 20)
		steps = 20;
	const struct number row[] = {
		{ "model.layers", probed->layers },
		{ "model.hidden", probed->hidden },
		{ "model.heads", probed->heads },
		{ "model.kv-heads", probed->kv_heads },
		{ "model.head-dim", probed->head_dim },
		{ "model.ffn", probed->ffn },
		{ "train.steps", steps },
		{ "optim.warmup", steps / 20 },
		{ "eval.every", steps / 4 + 1 },
		{ "log.every", steps / 10 + 1 },
	};
	set_numbers(s, row, sizeof row / sizeof *row);
	FO_TRY(fo_opt_finish(s));
	struct fo_str yaml = { 0 };
	fo_opt_sample_yaml(s, &yaml);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(a, "%s/run.yaml", ((struct fo_run *)s->target)->dir),
					  yaml.data, yaml.len);
	fo_str_fini(&yaml);
	return st;
}

/* ---- running ---- */

/* Rows that a loader serves, as a shard in memory whose documents are the rows' pieces, each with the token that
 * follows it: the very predictions that the model was trained on or is judged by. */
struct rows {
	struct fo_shard shard;
	uint32_t *ids;
	int64_t *at;
};

static fo_status rows_open(struct rows *v, const struct fo_run *r, const struct fo_corpus *c,
			   const struct fo_shard *from, uint64_t seed, int64_t steps)
{
	struct fo_batch_shape shape = { .seq = r->seq, .rows = r->rows, .micro_batches = 1, .packing = FO_PACK_PACKED };
	struct fo_loader_state state = { .seed = seed };
	struct fo_loader *l;
	int64_t width = r->rows * r->seq, wait;
	FO_TRY(fo_loader_open(&l, from, &shape, &state, fo_tokenizer_eos(c->tokenizer)));
	v->ids = fo_xmalloc((size_t)(2 * steps * width) *
			    sizeof *v->ids); /* a piece has at least one token, and one follows it */
	v->at = fo_xmalloc((size_t)(steps * width + 1) * sizeof *v->at);
	v->shard = (struct fo_shard){
		.vocab = from->vocab, .tokenizer_checksum = from->tokenizer_checksum, .ids32 = v->ids, .doc_at = v->at
	};
	fo_status st = FO_OK;
	for (int64_t step = 0; step < steps && st == FO_OK; step++) {
		const struct fo_batch *b;
		st = fo_loader_next(l, &b, &wait);
		for (int64_t i = 0; st == FO_OK && i < width; i++) {
			if (b->position[i] == 0)
				v->at[v->shard.docs++] = v->shard.tokens;
			v->ids[v->shard.tokens++] = (uint32_t)b->token[i];
			bool last = i + 1 == width || b->position[i + 1] == 0;
			if (last && b->target[i] >= 0)
				v->ids[v->shard.tokens++] = (uint32_t)b->target[i];
		}
	}
	v->at[v->shard.docs] = v->shard.tokens;
	fo_loader_close(l);
	return st;
}

static void rows_close(struct rows *v)
{
	free(v->ids);
	free(v->at);
}

/* A bigram model of the tokens that training saw (the whole text once it saw that much), on the rows of the held-out
 * loss. */
static fo_status bigram(const struct fo_run *r, double *loss)
{
	struct fo_corpus c;
	struct rows seen = { 0 }, held = { 0 };
	FO_TRY(fo_corpus_open(&c, r, VOCAB, NULL, NULL, NULL));
	int64_t width = r->rows * r->seq,
		evals = c.val.tokens / width < r->eval_batches ? c.val.tokens / width : r->eval_batches;
	bool part = r->steps * width < c.train.tokens;
	fo_status st = rows_open(&held, r, &c, &c.val, FO_EVAL_SEED, evals > 0 ? evals : 1);
	if (st == FO_OK && part)
		st = rows_open(&seen, r, &c, &c.train, (uint64_t)r->seed, r->steps);
	if (st == FO_OK)
		st = fo_data_bigram_loss(part ? &seen.shard : &c.train, &held.shard, loss);
	rows_close(&seen);
	rows_close(&held);
	fo_corpus_close(&c);
	return st;
}

static fo_status train_sized(const struct demo *in, struct fo_opt_set *s, struct fo_run *r, struct fo_arena *a,
			     struct fo_train_result *result)
{
	struct fo_screen screen;
	struct fo_train_hooks hooks;
	struct fo_run probed = *r;
	double tokens = 0;
	fo_screen_init(&screen, r, in->json);
	fprintf(screen.out, "Text: %s\n", fo_cli_seen(r->data));
	FO_TRY(probe(&probed, in->minutes * 60, screen.out, &tokens));
	FO_TRY(size_run(s, &probed, tokens, a));
	screen.log_every = r->log_every;
	fo_screen_hooks(&screen, &hooks);
	char *run_json = fo_screen_run_json(s);
	hooks.run_json = run_json;
	fo_catch_signals();
	fo_status st = fo_train(r, &hooks, result);
	free(run_json);
	fo_screen_end_line(&screen);
	if (st == FO_EINTERRUPT)
		return fo_hint(st, "flatout train %s/run.yaml goes on from there; flatout demo begins anew", r->dir);
	if (st == FO_OK)
		st = bigram(r, &result->bigram_loss);
	if (st == FO_OK)
		fo_screen_summary(&screen, result);
	return st;
}

/* ---- the ladder at the end ---- */

#define LADDER_SHARE 0.6    /* of --minutes */
#define LADDER_SECONDS 12.0 /* to begin twenty turns */
#define LADDER_SLOWER 1.3   /* a step of a rung, on average, against one with everything on */
enum { LADDER_RUNGS = 4 };

static const char ladder_rungs[] =
	"baseline:\n"
	"  what: rows of one document each, layers made again in backward, every operation by itself\n"
	"  data.packing: split\n"
	"  pass: {merge-qkv: no, merge-gate-up: no, fuse-loss: 0, fuse-elementwise: no, recompute: full, "
	"fused-optimizer: no, attention: eager}\n"
	"packing:\n"
	"  what: documents end to end in full rows\n"
	"  data.packing: packed\n"
	"keep:\n"
	"  what: activations are kept for backward\n"
	"  pass.recompute: none\n"
	"fused:\n"
	"  what: flash attention, merged matmuls, fused elementwise work, loss and optimizer\n"
	"  pass: {merge-qkv: yes, merge-gate-up: yes, fuse-loss: 512, fuse-elementwise: yes, fused-optimizer: yes, "
	"attention: flash}\n";

/* The arguments of the command that follows. */
static fo_status plan_ladder(const struct demo *in, const struct fo_run *r, const struct fo_train_result *result,
			     struct fo_arena *a, char **argv)
{
	double step = (double)(SEQ * ROWS) / result->tokens_per_second,
	       budget = in->minutes * 60 * LADDER_SHARE - LADDER_SECONDS;
	int64_t steps = (int64_t)(budget / (LADDER_RUNGS * LADDER_SLOWER * step)) / 5 * 5;
	char *rungs = fo_arena_printf(a, "%s/rungs.yaml", r->dir);
	FO_TRY(fo_fs_write_atomic(rungs, ladder_rungs, sizeof ladder_rungs - 1));
	*argv++ = "flatout";
	*argv++ = "ladder";
	*argv++ = fo_arena_printf(a, "%s/run.yaml", r->dir);
	*argv++ = fo_arena_printf(a, "--rungs=%s", rungs);
	*argv++ = fo_arena_printf(a, "--run.dir=%s/ladder", r->dir);
	*argv++ = fo_arena_printf(a, "--data.path=%s/data", r->dir); /* shards are there */
	*argv++ = "--brief"; /* the run's own figures shall stay on the screen */
	if (steps > 500)
		steps = 500;
	*argv++ = fo_arena_printf(a, "--train.steps=%lld", (long long)(steps < 20 ? 20 : steps));
	*argv = NULL;
	return FO_OK;
}

/* Takes the place of this process: turns of a ladder are forked, and OpenMP has run here. Returns only when it cannot.
 */
static fo_status begin_ladder(const struct fo_cli_call *call, char **argv)
{
	fo_cli_show(call);
	fputc('\n', call->json ? stderr : stdout);
	fflush(NULL);
	if (ferror(stdout))
		return FO_OK; /* main says that output was lost */
	/* Text for --json=FILE becomes the file now: main, which does it otherwise, is not reached. */
	FO_TRY(fo_cli_output_end());
	if (call->json)
		dup2(STDERR_FILENO, STDOUT_FILENO);
	execv("/proc/self/exe", argv);
	return fo_fail(FO_EUNSUPPORTED, "cannot start the ladder: /proc/self/exe is not there");
}

static fo_status run_demo(const struct fo_cli_call *call, struct fo_arena *a, struct fo_train_result *result,
			  char **ladder)
{
	const struct demo *in = call->in;
	const char *text = in->text, *dir = *in->dir ? in->dir : "runs/demo";
	struct fo_run r;
	struct fo_opt_set s;
	if (!*text)
		FO_TRY(default_text(a, &text));
	FO_TRY(fresh_folder(a, dir, in->force));
	base_run(&s, &r, text, dir);
	fo_status st = train_sized(in, &s, &r, a, result);
	if (st == FO_OK && in->ladder)
		st = plan_ladder(in, &r, result, a, ladder);
	fo_opt_fini(&s);
	if (st == FO_OK && call->json)
		fo_screen_summary_json(result, call->json);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct fo_arena a = { 0 };
	struct fo_train_result result = { 0 };
	char *ladder[16] = { NULL };
	fo_status st = run_demo(call, &a, &result, ladder);
	if (st == FO_OK && *ladder)
		st = begin_ladder(call, ladder);
	fo_train_result_fini(&result);
	fo_arena_fini(&a);
	return st;
}

const struct fo_command fo_cmd_demo = {
	.name = "demo",
	.group = "train",
	.usage = "flatout demo [--text PATH] [--minutes X] [--dir PATH] [--no-ladder] [--json]",
	.summary = "train a small model on real text here, in minutes",
	.text = "Measures for five seconds what this machine can train, picks the largest of seven small Llamas that "
		"still sees enough tokens in the time given, trains a tokenizer and the model on the text, saves a "
		"checkpoint, prints a sample and one screen of figures: losses beside a bigram model's, tokens/s, MFU "
		"by each rule, where the time went, memory planned and measured. Then it measures what packing, kept "
		"activations and fused operations gain on this model: a ladder of four rungs (flatout ladder), in "
		"DIR/ladder.\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct demo),
	.spin = FO_SPIN_TRAINING,
};
