/* Training steps of one model under several choices of passes, in turn, in one run: whole step, head and optimizer.
 *
 *   bench_passes [--layers 12] [--tied yes|no] [--seq 2048] [--micro-batches 1] [--threads N] [--rounds 7] CHOICE...
 *
 * A CHOICE is a list of passes and values as program dumps have them, "merge-qkv=1,fuse-loss=512" ("none": no pass).
 * All choices run on one store, so they must agree in what they do to weights. The model is the 134M Llama (768 wide,
 * vocabulary 32,000), bf16 with fp32 master weights, one row of random tokens; the first round warms up and does not
 * count. One JSON line per choice: planned bytes of the arena, seconds (median, best), and the median over rounds of
 * each part's ratio to the first choice in the same round. Machines are noisy: read the ratios, not the seconds. */
#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "kernel/calibrate.h"
#include "pass/pass.h"
#include "train/exec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHOICES_MAX = 12, ROUNDS_MAX = 200 };
enum part { STEP, HEAD, OPTIMIZER, PARTS };
static const char *const part_name[PARTS] = { "step", "head", "optimizer" };

struct choice {
	const char *text;
	struct fo_program program;
	struct fo_exec *exec;
	double seconds[PARTS][ROUNDS_MAX];
};
struct bench {
	int64_t layers, seq, micro_batches, rounds, threads;
	bool tied;
	struct choice choice[CHOICES_MAX];
	int n;
};

static fo_status port(void *ctx, enum fo_port p, int mb, const struct fo_tensor *arg, int n)
{
	const struct bench *b = ctx;
	(void)n;
	for (int64_t i = 0; p == FO_PORT_BATCH && i < arg[0].rows; i++) {
		uint64_t at = (uint64_t)(mb * arg[0].rows + i);
		((int32_t *)arg[0].data)[i] = (int32_t)(fo_rng_u64(1, at) % 32000);
		((int32_t *)arg[1].data)[i] = (int32_t)(fo_rng_u64(1, at + 1) % 32000);
		((int32_t *)arg[2].data)[i] = (int32_t)i;
		((int32_t *)arg[3].data)[i] = 0;
	}
	if (p == FO_PORT_HYPER) {
		const double v[FO_HYPER_COUNT] = { [FO_HYPER_LR] = 1e-4,
						   [FO_HYPER_BETA1] = 0.9,
						   [FO_HYPER_BETA2] = 0.95,
						   [FO_HYPER_EPS] = 1e-8,
						   [FO_HYPER_DECAY] = 0.1,
						   [FO_HYPER_CORR1] = 0.1,
						   [FO_HYPER_CORR2] = 0.05,
						   [FO_HYPER_CLIP] = 1,
						   [FO_HYPER_INV_TOKENS] = 1.0 / (double)(b->seq * b->micro_batches) };
		memcpy(arg[0].data, v, sizeof v);
	}
	return FO_OK;
}

static fo_status parse_choice(const char *text, struct fo_passes *out)
{
	char copy[256], *save = NULL;
	*out = (struct fo_passes){ 0 };
	snprintf(copy, sizeof copy, "%s", text);
	for (char *w = strtok_r(copy, ",", &save); w && strcmp(text, "none"); w = strtok_r(NULL, ",", &save)) {
		char *value = strchr(w, '=');
		int i = 0;
		if (value)
			*value++ = 0;
		while (i < fo_pass_fields && strcmp(fo_pass_field[i].name, w))
			i++;
		if (i == fo_pass_fields || !value || atoll(value) < 0)
			return fo_fail(FO_EARG, "'%s' is not a list of passes and values such as merge-qkv=1", text);
		fo_passes_set(out, fo_pass_field[i].offset, atoll(value));
	}
	return FO_OK;
}

static fo_status set_up(struct bench *b, struct fo_store **store)
{
	struct fo_model m;
	struct fo_exec_options o = { .threads = (int)b->threads, .timeline_steps = 2 };
	struct fo_lowering low = {
		.seq = b->seq, .rows = 1, .micro_batches = b->micro_batches, .precision = FO_PRECISION_BF16
	};
	FO_TRY(fo_model_load("flatout-134m", &m));
	m.layers = b->layers;
	m.tied = b->tied;
	FO_TRY(fo_isa_choose(&o.isa));
	int64_t most = -1;
	int largest = 0;
	for (int i = 0; i < b->n; i++) {
		struct fo_unrolled u;
		FO_TRY(parse_choice(b->choice[i].text, &low.pass));
		FO_TRY(fo_pass_build(&b->choice[i].program, &m, &low));
		FO_TRY(fo_unroll(&b->choice[i].program, &u));
		fo_plan(&b->choice[i].program, &u);
		if (u.arena_bytes > most)
			most = u.arena_bytes, largest = i;
		fo_unrolled_fini(&u);
		FO_TRY(i ? fo_store_add(*store, &b->choice[i].program) : fo_store_new(store, &b->choice[i].program));
	}
	fo_store_init(*store, &b->choice[0].program, 1);
	/* The largest arena is everybody's: they run in turn. */
	for (int k = 0; k < b->n; k++) {
		int i = k == 0 ? largest : k <= largest ? k - 1 : k;
		FO_TRY(fo_exec_new(&b->choice[i].exec, &b->choice[i].program, *store, &o, port, b,
				   k ? b->choice[largest].exec : NULL));
	}
	return FO_OK;
}

/* Seconds that the last step's spans spent in the head's blocks and in the optimizer's. */
static void split(const struct choice *c, int32_t step, double *head, double *optimizer)
{
	const struct fo_unrolled *u = fo_exec_unrolled(c->exec);
	const struct fo_ring *r = &fo_exec_timeline(c->exec)->lane[FO_LANE_COMPUTE];
	*head = *optimizer = 0;
	for (uint64_t i = 0; i < r->n && i < r->cap; i++) {
		const struct fo_span *s = &r->span[i];
		if (s->step != step || s->instance < 0)
			continue;
		const struct fo_block *b = &c->program.block[c->program.slot[u->slot[s->instance]].block];
		bool updates = fo_instance_op(&c->program, u, s->instance)->phase == FO_OPTIMIZER;
		double seconds = (double)(s->end_ns - s->begin_ns) * 1e-9;
		*optimizer += updates ? seconds : 0;
		*head += !updates && b->unit == FO_UNIT_HEAD ? seconds : 0;
	}
}

static fo_status run(struct bench *b)
{
	struct fo_store *store = NULL;
	FO_TRY(set_up(b, &store));
	for (int64_t round = -1; round < b->rounds; round++)
		for (int i = 0; i < b->n; i++) {
			struct choice *c = &b->choice[i];
			int64_t t0 = fo_now_ns();
			FO_TRY(fo_exec_step(c->exec, (int32_t)round + 1));
			int64_t t1 = fo_now_ns();
			if (round < 0)
				continue;
			c->seconds[STEP][round] = (double)(t1 - t0) * 1e-9;
			split(c, (int32_t)round + 1, &c->seconds[HEAD][round], &c->seconds[OPTIMIZER][round]);
		}
	for (int i = 0; i < b->n; i++) {
		struct choice *c = &b->choice[i];
		printf("{\"choice\":\"%s\",\"rounds\":%lld,\"threads\":%lld,\"arena_bytes\":%lld", c->text,
		       (long long)b->rounds, (long long)b->threads, (long long)fo_exec_unrolled(c->exec)->arena_bytes);
		for (int part = 0; part < PARTS; part++) {
			double ratio[ROUNDS_MAX], own[ROUNDS_MAX];
			for (int64_t k = 0; k < b->rounds; k++) {
				own[k] = c->seconds[part][k];
				ratio[k] = own[k] / b->choice[0].seconds[part][k];
			}
			printf(",\"%s\":{\"median\":%.4f,\"ratio\":%.4f,\"best\":%.4f}", part_name[part],
			       fo_stats_median(own, (size_t)b->rounds), fo_stats_median(ratio, (size_t)b->rounds),
			       fo_stats_quantile(own, (size_t)b->rounds, 0));
		}
		puts("}");
	}
	for (int i = b->n - 1; i >= 0; i--) {
		fo_exec_free(b->choice[i].exec);
		fo_program_fini(&b->choice[i].program);
	}
	fo_store_free(store);
	return FO_OK;
}

int main(int argc, char **argv)
{
	static struct bench b = { .layers = 12, .seq = 2048, .micro_batches = 1, .rounds = 7 };
	struct {
		const char *name;
		int64_t *to;
	} flag[] = { { "--layers", &b.layers },
		     { "--seq", &b.seq },
		     { "--micro-batches", &b.micro_batches },
		     { "--threads", &b.threads },
		     { "--rounds", &b.rounds } };
	b.threads = fo_cpu_threads();
	for (int i = 1; i < argc; i++) {
		size_t k = 0;
		while (k < sizeof flag / sizeof *flag && strcmp(flag[k].name, argv[i]))
			k++;
		if (k < sizeof flag / sizeof *flag && i + 1 < argc)
			*flag[k].to = atoll(argv[++i]);
		else if (!strcmp(argv[i], "--tied") && i + 1 < argc)
			b.tied = !strcmp(argv[++i], "yes");
		else if (argv[i][0] != '-' && b.n < CHOICES_MAX)
			b.choice[b.n++].text = argv[i];
		else
			b.n = CHOICES_MAX + 1;
	}
	if (b.n < 1 || b.n > CHOICES_MAX || b.layers < 1 || b.seq < 2 || b.micro_batches < 1 || b.threads < 1 ||
	    b.rounds < 1 || b.rounds > ROUNDS_MAX) {
		fprintf(stderr, "bench_passes: see the top of bench/passes/passes.c for the arguments\n");
		return 2;
	}
	fo_status st = run(&b);
	if (st != FO_OK)
		fprintf(stderr, "bench_passes: %s\n", fo_err_text());
	return fo_status_exit_code(st);
}
