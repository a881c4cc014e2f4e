/* What a rank of several costs over plain training: as many jobs of one rank, each with the rows of a rank and nothing
 * to do with the others, against the ranks of one job, in turns, on the same threads.
 *
 *   bench_rank_overhead [RANKS 4] [STEPS 4] [ROUNDS 15]
 *
 * Three kinds of turn: `plain` (a program of one rank), `linked` (ddp, a transport that moves no bytes: what the
 * executor costs, and waiting) and `whole` (ddp with its sums and copies). One JSON line each: seconds of the clock and
 * of processors per step and rank, medians and least, and both over those of plain. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/thread.h"
#include "comm/local.h"
#include "pass/pass.h"
#include "train/exec.h"
#include "train/ports.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RANKS_MOST = 16, ROUNDS_MOST = 200, SEQ = 128, ROWS = 2, VOCAB = 2048 };
enum kind { PLAIN, LINKED, WHOLE, KINDS };
static const char *const kind_name[KINDS] = { "plain", "linked", "whole" };

struct job;
struct rank {
	struct job *job;
	int number;
	struct fo_comm *world;
	struct fo_links links;
	struct fo_program program;
	struct fo_store *store;
	struct fo_exec *exec;
	struct fo_ports ports;
	struct fo_batch batch;
	pthread_t thread;
	int turns;
};
struct job {
	enum kind kind;
	int ranks, steps;
	struct rank rank[RANKS_MOST];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	int turns, busy;
	bool quit;
	double wall[ROUNDS_MOST], cpu[ROUNDS_MOST];
};
static enum fo_isa isa;

static void must(fo_status st)
{
	if (st == FO_OK)
		return;
	fprintf(stderr, "bench_rank_overhead: %s\n", fo_err_text());
	exit(1);
}

static void make_text(struct rank *r)
{
	const int64_t n = SEQ * ROWS;
	int32_t *token = fo_xmalloc((size_t)(4 * n) * sizeof *token), *target = token + n, *position = target + n,
		*start = position + n;
	for (int64_t i = 0; i < n; i++) {
		token[i] = (int32_t)(fo_rng_u64(1, (uint64_t)i) % VOCAB);
		target[i] = (int32_t)(fo_rng_u64(2, (uint64_t)i) % VOCAB);
		position[i] = (int32_t)(i % SEQ);
		start[i] = (int32_t)(i - i % SEQ);
	}
	r->batch = (struct fo_batch){ .token = token, .target = target, .position = position, .doc_start = start };
}

static void open_rank(struct rank *r)
{
	const struct fo_model m = { .family = FO_FAMILY_LLAMA,
				    .name = "bench",
				    .gated = true,
				    .layers = 6,
				    .hidden = 256,
				    .heads = 4,
				    .kv_heads = 4,
				    .head_dim = 64,
				    .ffn = 704,
				    .vocab = VOCAB,
				    .norm_eps = 1e-5,
				    .rope = { .theta = 10000 } };
	struct fo_lowering low = {
		.seq = SEQ, .rows = ROWS, .micro_batches = 1, .precision = FO_PRECISION_F32, .mode = FO_MODE_TRAIN
	};
	struct fo_exec_options o = { .isa = isa, .threads = 1, .timeline_steps = 4 };
	if (r->job->kind != PLAIN) {
		low.mesh = (struct fo_mesh){ .replicate = r->job->ranks, .rank = r->number };
		low.pass.ddp = 25;
	}
	must(fo_pass_build(&r->program, &m, &low));
	if (r->job->kind != PLAIN) {
		must(fo_links_open(&r->links, r->world, &r->program, NULL, NULL));
		o.links = &r->links;
	}
	make_text(r);
	r->ports.batch = &r->batch;
	double *h = r->ports.hyper;
	h[FO_HYPER_LR] = 1e-4, h[FO_HYPER_BETA1] = 0.9, h[FO_HYPER_BETA2] = 0.95, h[FO_HYPER_EPS] = 1e-8;
	h[FO_HYPER_CORR1] = 0.1, h[FO_HYPER_CORR2] = 0.05, h[FO_HYPER_CLIP] = 1;
	h[FO_HYPER_INV_TOKENS] = 1.0 / (SEQ * ROWS);
	must(fo_store_new(&r->store, &r->program));
	must(fo_exec_new(&r->exec, &r->program, r->store, &o, fo_ports_serve, &r->ports, NULL));
	fo_store_init(r->store, &r->program, 1);
	fo_exec_weights_changed(r->exec);
}

/* Opens itself, then runs a turn of steps each time it is told to. */
static void *run_rank(void *arg)
{
	struct rank *r = arg;
	struct job *j = r->job;
	open_rank(r);
	for (int32_t step = 0;;) {
		pthread_mutex_lock(&j->lock);
		j->busy--;
		pthread_cond_broadcast(&j->changed);
		while (j->turns == r->turns && !j->quit)
			pthread_cond_wait(&j->changed, &j->lock);
		r->turns = j->turns;
		bool quit = j->quit;
		pthread_mutex_unlock(&j->lock);
		if (quit)
			return NULL;
		for (int s = 0; s < j->steps; s++)
			must(fo_exec_step(r->exec, step++));
	}
}

static void wait_all(struct job *j)
{
	pthread_mutex_lock(&j->lock);
	while (j->busy)
		pthread_cond_wait(&j->changed, &j->lock);
	pthread_mutex_unlock(&j->lock);
}

static void open_job(struct job *j, enum kind kind, int ranks, int steps)
{
	const struct fo_comm_local transport = { .null = kind == LINKED };
	struct fo_comm *world[RANKS_MOST];
	*j = (struct job){ .kind = kind, .ranks = ranks, .steps = steps, .busy = ranks };
	pthread_mutex_init(&j->lock, NULL);
	pthread_cond_init(&j->changed, NULL);
	must(fo_comm_local_open(ranks, &transport, world));
	for (int i = 0; i < ranks; i++) {
		j->rank[i] = (struct rank){ .job = j, .number = i, .world = world[i] };
		must(fo_thread_start(&j->rank[i].thread, run_rank, &j->rank[i], "a rank"));
	}
	wait_all(j);
}

static double processor_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* round -1: to warm up. */
static void turn(struct job *j, int round)
{
	double cpu = processor_s();
	int64_t begin = fo_now_ns();
	pthread_mutex_lock(&j->lock);
	j->turns++;
	j->busy = j->ranks;
	pthread_cond_broadcast(&j->changed);
	pthread_mutex_unlock(&j->lock);
	wait_all(j);
	if (round < 0)
		return;
	j->wall[round] = (double)(fo_now_ns() - begin) * 1e-9 / j->steps;
	j->cpu[round] = (processor_s() - cpu) / j->steps / j->ranks;
}

static int by_size(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

struct figure {
	double median, best;
};

static struct figure figure_of(const double *v, int n)
{
	double sorted[ROUNDS_MOST];
	memcpy(sorted, v, (size_t)n * sizeof *v);
	qsort(sorted, (size_t)n, sizeof *v, by_size);
	return (struct figure){ sorted[n / 2], sorted[0] };
}

static int number(int argc, char **argv, int at, int otherwise, int most)
{
	int n = argc > at ? atoi(argv[at]) : otherwise;
	if (n >= 1 && n <= most)
		return n;
	fprintf(stderr, "bench_rank_overhead: argument %d must be from 1 to %d\n", at, most);
	exit(2);
}

int main(int argc, char **argv)
{
	static struct job job[KINDS];
	struct figure wall[KINDS], cpu[KINDS];
	int ranks = number(argc, argv, 1, 4, RANKS_MOST), steps = number(argc, argv, 2, 4, 1000),
	    rounds = number(argc, argv, 3, 15, ROUNDS_MOST);
	must(fo_isa_choose(&isa));
	for (int k = 0; k < KINDS; k++)
		open_job(&job[k], (enum kind)k, ranks, steps);
	for (int round = -1; round < rounds; round++)
		for (int k = 0; k < KINDS; k++)
			turn(&job[(k + round + KINDS) % KINDS], round);
	for (int k = 0; k < KINDS; k++) {
		wall[k] = figure_of(job[k].wall, rounds);
		cpu[k] = figure_of(job[k].cpu, rounds);
		printf("{\"bench\":\"rank_overhead\",\"kind\":\"%s\",\"ranks\":%d,\"isa\":\"%s\",\"steps\":%d,"
		       "\"rounds\":%d,\"wall_s_median\":%.6f,\"wall_s_best\":%.6f,\"cpu_s_median\":%.6f,"
		       "\"cpu_s_best\":%.6f,\"wall_ratio_median\":%.4f,\"wall_ratio_best\":%.4f,"
		       "\"cpu_ratio_median\":%.4f,\"cpu_ratio_best\":%.4f}\n",
		       kind_name[k], ranks, fo_isa_name[isa], steps, rounds, wall[k].median, wall[k].best,
		       cpu[k].median, cpu[k].best, wall[k].median / wall[PLAIN].median, wall[k].best / wall[PLAIN].best,
		       cpu[k].median / cpu[PLAIN].median, cpu[k].best / cpu[PLAIN].best);
	}
	return 0;
}
