/* The rungs of a ladder: the built-in list, checking, and the run that each of them is. */
#include "ladder/plan_int.h"

#include "base/fs.h"

#include <stdio.h>
#include <string.h>

const char *const fo_ladder_verdict_name[FO_LADDER_VERDICT_COUNT] = {
	"baseline", "gain", "loss", "not resolved", "not known (unsteady)", "numerics only", "failed", "not measured",
};
const char *const fo_ladder_check_name[FO_LADDER_CHECK_COUNT] = { "reference", "new data", "held", "left",
								  "not checked" };
const char *const fo_ladder_rule_name[FO_LADDER_RULES] = { "mfu", "mfu_causal", "mfu_document", "mfu_6n", "hfu" };

/* The built-in ladder. Each row starts from the one before it, but branches, which start from the top of the climb.
 * "*2" and "/2" change what the rung before has. */
struct built_in {
	enum { CLIMB, BRANCH, EMULATED } place; /* EMULATED: a branch whose time says nothing on a processor */
	const char *name, *what;
	struct {
		const char *key, *value;
	} set[16];
};
static const struct built_in built_in[] = {
	{ CLIMB,
	  "baseline",
	  "an untuned stack: rows of one document each, every operation by itself, layers made again in backward",
	  { { "data.packing", "split" },
	    { "pass.merge-qkv", "no" },
	    { "pass.merge-gate-up", "no" },
	    { "pass.fuse-loss", "0" },
	    { "pass.fuse-elementwise", "no" },
	    { "pass.recompute", "full" },
	    { "pass.fused-optimizer", "no" },
	    { "pass.optimizer-in-backward", "no" },
	    { "pass.fp8", "off" },
	    { "pass.attention", "eager" },
	    { "pass.tp-sequence", "no" },
	    { "pass.tp-async", "0" },
	    { "pass.overlap", "no" },
	    { "pass.zero-prefetch", "0" },
	    { "pass.zero-first", "no" } } },
	{ CLIMB, "packing", "documents end to end in full rows", { { "data.packing", "packed" } } },
	{ CLIMB, "keep", "backward makes again only what memory cannot keep", { { "pass.recompute", "auto" } } },
	{ CLIMB, "merge-qkv", "queries, keys and values from one matmul", { { "pass.merge-qkv", "yes" } } },
	{ CLIMB, "merge-gate-up", "gate and up from one matmul", { { "pass.merge-gate-up", "yes" } } },
	{ CLIMB, "flash", "attention by tiles: scores never leave the caches", { { "pass.attention", "flash" } } },
	{ CLIMB,
	  "elementwise",
	  "additions with the norms behind them in one walk over memory",
	  { { "pass.fuse-elementwise", "yes" } } },
	{ CLIMB, "fuse-loss", "head and loss by chunks: the logits never exist", { { "pass.fuse-loss", "512" } } },
	{ CLIMB, "optimizer", "one operation steps many tensors", { { "pass.fused-optimizer", "yes" } } },
	{ CLIMB,
	  "micro-batch",
	  "half as many micro-batches of twice the rows",
	  { { "train.micro-batches", "/2" }, { "train.rows", "*2" } } },
	{ CLIMB,
	  "tp-sequence",
	  "ranks of a tp group have norms and the residual stream of their own tokens",
	  { { "pass.tp-sequence", "yes" } } },
	{ CLIMB,
	  "tp-overlap",
	  "tokens travel between ranks of a tp group in pieces, while others are computed",
	  { { "pass.tp-async", "auto" } } },
	{ CLIMB, "overlap", "gradients travel between ranks while backward goes on", { { "pass.overlap", "yes" } } },
	{ CLIMB,
	  "prefetch",
	  "weights that ranks share are gathered while the block before computes",
	  { { "pass.zero-prefetch", "1" } } },
	{ BRANCH,
	  "fp32",
	  "weights and activations in fp32 instead of bf16",
	  { { "train.precision", "fp32" }, { "optim.master", "fp32" } } },
	{ BRANCH, "bf16", "weights and activations in bf16 instead of fp32", { { "train.precision", "bf16" } } },
	{ BRANCH,
	  "first-blocks",
	  "weights of the first blocks are gathered behind their update, before the next step",
	  { { "pass.zero-first", "yes" } } },
	{ EMULATED,
	  "fp8",
	  "factors of the layers' matmuls rounded to fp8; a processor computes them in a wider type",
	  { { "pass.fp8", "current" } } },
};
enum { BUILT_IN = sizeof built_in / sizeof *built_in };

bool fo_ladder_key_reserved(const char *key)
{
	static const char *const own[] = { "run.dir",      "run.seed",       "run.verify",
					   "data.path",    "data.tokenizer", "data.vocab",
					   "data.holdout", "train.steps",    "train.metered-every",
					   "mesh.ranks",   "model.",         "checkpoint.",
					   "eval.",        "log.",           "sample.",
					   "guard." };
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (!strncmp(key, own[i], strlen(own[i])))
			return true;
	return false;
}

/* ---- the run of a rung ---- */

static const char *base_value(const struct fo_ladder_plan *p, const char *key)
{
	for (int i = 0; fo_run_options[i].key; i++)
		if (!strcmp(fo_run_options[i].key, key))
			return fo_opt_value_text(p->base, i);
	return "";
}

const char *fo_ladder_value(const struct fo_ladder_plan *p, int rung, const char *key)
{
	for (int i = rung; i >= 0; i = p->rung[i].from)
		for (int k = 0; k < p->rung[i].changes; k++)
			if (!strcmp(p->rung[i].change[k].key, key))
				return p->rung[i].change[k].value;
	return base_value(p, key);
}

static int64_t number(const struct fo_ladder_plan *p, int rung, const char *key)
{
	long long v = 0;
	sscanf(fo_ladder_value(p, rung, key), "%lld", &v);
	return v;
}

static void apply_changes(const struct fo_ladder_plan *p, int i, struct fo_opt_set *s)
{
	if (i < 0)
		return;
	apply_changes(p, p->rung[i].from, s);
	for (int k = 0; k < p->rung[i].changes; k++)
		fo_opt_set_text(s, p->rung[i].change[k].key, p->rung[i].change[k].value, FO_ORIGIN_FLAG,
				p->rung[i].name);
}

/* Metered steps cost time and say the most when they are spread: the last of a turn, of a long one three. Of several
 * ranks none: composed of one rank's operations they would say nothing of what ranks wait for. */
static int64_t metered_every(const struct fo_ladder_plan *p, const struct fo_run *r)
{
	int64_t turn = p->steps / p->rounds;
	if (r->ranks > 1)
		return 0;
	return turn >= 12 ? turn / 3 : turn;
}

static void apply_own(const struct fo_ladder_plan *p, int i, const char *data, struct fo_opt_set *s)
{
	const struct fo_run *r = s->target;
	const char *dir = fo_arena_printf(&s->arena, "%s/%s", p->dir, p->rung[i].name);
	int64_t warmup = r->warmup < p->steps / 10 ? r->warmup : p->steps / 10;
	/* The same amount of held-out text, whatever a micro-batch holds. */
	int64_t evals = number(p, -1, "eval.batches") * number(p, -1, "train.rows") / r->rows;
	const struct {
		const char *key, *value;
	} own[] = { { "run.dir", dir },
		    { "run.verify", "off" },
		    { "train.metered-every", fo_arena_printf(&s->arena, "%lld", (long long)metered_every(p, r)) },
		    { "optim.warmup", fo_arena_printf(&s->arena, "%lld", (long long)warmup) },
		    { "eval.packing", "packed" }, /* the same rows for every rung, whatever it trains on */
		    { "eval.every", fo_arena_printf(&s->arena, "%lld", (long long)p->steps) },
		    { "eval.batches", fo_arena_printf(&s->arena, "%lld", (long long)(evals > 1 ? evals : 1)) },
		    { "checkpoint.every", "0" },
		    { "checkpoint.keep", "1" },
		    { "sample.tokens", "0" },
		    { "guard.spike", "off" },
		    { "guard.nonfinite", "stop" } };
	for (size_t k = 0; k < sizeof own / sizeof *own; k++)
		fo_opt_set_text(s, own[k].key, own[k].value, FO_ORIGIN_FLAG, "flatout ladder");
	if (!data)
		return;
	fo_opt_set_text(s, "data.path", data, FO_ORIGIN_FLAG, "flatout ladder");
	fo_opt_set_text(s, "data.tokenizer", "", FO_ORIGIN_FLAG, "flatout ladder");
	fo_opt_set_text(s, "data.vocab", "0", FO_ORIGIN_FLAG, "flatout ladder");
}

fo_status fo_ladder_plan_run(const struct fo_ladder_plan *p, int i, const char *data, struct fo_opt_set *s,
			     struct fo_run *r)
{
	char steps[24];
	fo_opt_init(s, fo_run_options, r);
	for (int k = 0; fo_run_options[k].key; k++)
		if (p->base->origin[k].from != FO_ORIGIN_DEFAULT)
			fo_opt_set_text(s, fo_run_options[k].key, fo_opt_value_text(p->base, k),
					p->base->origin[k].from, p->base->origin[k].where);
	snprintf(steps, sizeof steps, "%lld", (long long)p->steps);
	fo_opt_set_text(s, "train.steps", steps, FO_ORIGIN_FLAG, "flatout ladder");
	apply_changes(p, i, s);
	apply_own(p, i, data, s);
	fo_status st = fo_run_check(s, r);
	return st == FO_OK ? FO_OK : fo_wrap(st, "rung '%s'", p->rung[i].name);
}

bool fo_ladder_plan_prepares(const struct fo_ladder_plan *p)
{
	struct fo_arena a = { 0 };
	const char *data = base_value(p, "data.path");
	/* fo_corpus_open recognises a prepared folder by the same files. */
	bool prepared = *data && fo_fs_exists(fo_arena_printf(&a, "%s/train.shard", data)) &&
			fo_fs_exists(fo_arena_printf(&a, "%s/val.shard", data)) &&
			fo_fs_exists(fo_arena_printf(&a, "%s/tokenizer.json", data));
	fo_arena_fini(&a);
	return !prepared;
}

/* ---- finishing a plan: what follows from names and changes ---- */

/* The batches of a step are the same when these are: how the loader cuts rows, and how many make a step. */
static bool same_batches(const struct fo_ladder_plan *p, int a, int b)
{
	int64_t rows[2] = { 0 };
	const int of[2] = { a, b };
	for (int i = 0; i < 2; i++) {
		rows[i] = number(p, of[i], "train.batch-rows");
		if (!rows[i])
			rows[i] = number(p, of[i], "train.rows") * number(p, of[i], "train.micro-batches");
	}
	return rows[0] == rows[1] &&
	       !strcmp(fo_ladder_value(p, a, "data.packing"), fo_ladder_value(p, b, "data.packing")) &&
	       !strcmp(fo_ladder_value(p, a, "data.seq"), fo_ladder_value(p, b, "data.seq"));
}

/* Writes the options that make `flatout train RUN.yaml` this rung, except the folder: those of the command line, of
 * this rung and those that it builds on, and the ladder's own. */
static void options_text(const struct fo_ladder_plan *p, int i, struct fo_str *out)
{
	struct fo_opt_set s;
	struct fo_run r;
	/* A run that cannot be is refused by fo_ladder_plan_check, in better words. */
	if (fo_ladder_plan_run(p, i, NULL, &s, &r) != FO_OK)
		fo_err_clear();
	for (int k = 0; fo_run_options[k].key; k++) {
		const char *key = fo_run_options[k].key, *value = fo_opt_value_text(&s, k);
		/* A flag may stand before a line of the run file that says otherwise; a default of which nobody spoke
		 * goes without saying. */
		bool named = p->base->origin[k].from != FO_ORIGIN_DEFAULT;
		if (!strcmp(key, "run.dir") || s.origin[k].from == FO_ORIGIN_DEFAULT ||
		    s.origin[k].from == FO_ORIGIN_FILE ||
		    (!named && fo_run_options[k].dfl && !strcmp(value, fo_run_options[k].dfl)))
			continue;
		fo_str_printf(out, "%s--%s=", out->len ? " " : "", key);
		fo_str_shell(out, value);
	}
	fo_opt_fini(&s);
}

void fo_ladder_plan_derive(struct fo_ladder_plan *p, int i)
{
	struct fo_ladder_rung *g = &p->rung[i];
	struct fo_ladder_change *c = (struct fo_ladder_change *)g->change;
	for (int k = 0; k < g->changes; k++)
		c[k].was = fo_arena_strdup(&p->arena, g->from < 0 ? base_value(p, c[k].key)
								  : fo_ladder_value(p, g->from, c[k].key));
	g->dir = fo_arena_printf(&p->arena, "%s/%s", p->dir, g->name);
	g->reference = i;
	g->check = g->from < 0 ? FO_LADDER_REFERENCE : FO_LADDER_NEW_DATA;
	if (g->from >= 0 && same_batches(p, i, g->from)) {
		g->reference = p->rung[g->from].reference;
		g->check = FO_LADDER_UNCHECKED;
	}
	struct fo_str text = { 0 };
	options_text(p, i, &text);
	g->options = fo_arena_strdup(&p->arena, text.data ? text.data : "");
	fo_str_fini(&text);
}

fo_status fo_ladder_plan_check(const struct fo_ladder_plan *p, struct fo_opt_set *problems)
{
	int64_t least = p->rounds * FO_LADDER_MIN_TURN;
	if (p->steps < least)
		fo_opt_problem(problems,
			       "%lld rounds of %lld steps in all: a turn needs %d (one is cold, one metered, two are "
			       "timed), so --steps must be at least %lld",
			       (long long)p->rounds, (long long)p->steps, FO_LADDER_MIN_TURN, (long long)least);
	for (int i = 0; i < p->rungs && !problems->problem_count; i++) {
		struct fo_opt_set s;
		struct fo_run r;
		fo_status st = fo_ladder_plan_run(p, i, NULL, &s, &r);
		fo_opt_fini(&s);
		if (st != FO_OK)
			fo_opt_problem(problems, "%s", fo_err_text());
	}
	return fo_opt_finish(problems);
}

/* ---- the built-in ladder ---- */

/* Does the key say anything of this run? What ranks and shard groups have alone is nothing to others. */
static bool concerns(const struct fo_ladder_plan *p, const char *key)
{
	if (!strcmp(key, "pass.overlap"))
		return number(p, -1, "mesh.ranks") > 1;
	if (!strncmp(key, "pass.tp-", 8))
		return number(p, -1, "mesh.tp") > 1;
	if (!strncmp(key, "pass.zero-", 10))
		return number(p, -1, "mesh.shard") > 1 && number(p, -1, "pass.zero") == FO_ZERO_WEIGHTS;
	return true;
}

static void add_built_in(struct fo_ladder_plan *p, const struct built_in *b, int from)
{
	struct fo_ladder_rung *g = &p->rung[p->rungs];
	struct fo_ladder_change *c = fo_arena_alloc(&p->arena, sizeof b->set / sizeof *b->set * sizeof *c);
	*g = (struct fo_ladder_rung){
		.name = b->name, .what = b->what, .from = from, .change = c, .numerics_only = b->place == EMULATED
	};
	for (size_t k = 0; k < sizeof b->set / sizeof *b->set && b->set[k].key; k++) {
		const char *v = b->set[k].value, *key = b->set[k].key;
		if (!concerns(p, key))
			continue;
		/* The baseline takes what is not optimised from the run file, the rungs what they optimise. */
		if ((!strcmp(key, "pass.fuse-loss") || !strcmp(key, "pass.zero-prefetch") ||
		     !strcmp(key, "pass.tp-async")) &&
		    from >= 0 && strcmp(base_value(p, key), "0"))
			v = base_value(p, key);
		if (*v == '*' || *v == '/') {
			int64_t n = number(p, from, key), by = v[1] - '0';
			v = fo_arena_printf(&p->arena, "%lld", (long long)(*v == '*' ? n * by : n / by));
		}
		/* fp32 says which master weights only where the run has others. */
		if (from >= 0 && !strcmp(fo_ladder_value(p, from, key), v))
			continue;
		c[g->changes++] = (struct fo_ladder_change){ .key = key, .value = fo_arena_strdup(&p->arena, v) };
	}
	fo_ladder_plan_derive(p, p->rungs++);
}

fo_status fo_ladder_plan_default(struct fo_ladder_plan *p)
{
	struct fo_opt_set problems;
	struct fo_run unused;
	p->rung = fo_arena_alloc(&p->arena, BUILT_IN * sizeof *p->rung);
	int top = -1;
	for (int i = 0; i < BUILT_IN; i++) {
		const char *name = built_in[i].name;
		if (!strcmp(name, "micro-batch") &&
		    (number(p, top, "train.batch-rows") || number(p, top, "train.micro-batches") % 2))
			continue;
		if (!strcmp(name, base_value(p, "train.precision")))
			continue;
		if (!concerns(p, built_in[i].set[0].key))
			continue;
		add_built_in(p, &built_in[i], top);
		if (built_in[i].place == CLIMB)
			top = p->rungs - 1;
	}
	fo_opt_init(&problems, fo_run_options, &unused);
	fo_status st = fo_ladder_plan_check(p, &problems);
	fo_opt_fini(&problems);
	return st;
}

void fo_ladder_plan_fini(struct fo_ladder_plan *p)
{
	fo_arena_fini(&p->arena);
	*p = (struct fo_ladder_plan){ 0 };
}
