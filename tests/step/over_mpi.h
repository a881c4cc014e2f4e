/* The rest of test_data_parallel.c, which includes it: a sample of its cases as processes that MPI carries. Every
 * process draws the same case and runs its own rank. Rank 0 runs the job on threads as well, holds that to one rank's
 * as the test does, and each process to its bits. */
#ifndef FO_TESTS_STEP_OVER_MPI_H
#define FO_TESTS_STEP_OVER_MPI_H

/* What a sample has of each number of ranks. 0: what is left of the mesh. */
static const struct form {
	const char *name;
	int ranks_least, replicate, shard, tp, zero, micro;
	enum fo_numerics precision;
	int reduce;
	bool eight; /* also of eight ranks: a case of these takes longest */
} form[] = {
	{ "ddp", 2, 0, 1, 1, FO_ZERO_OFF, 1, FO_PRECISION_F64, 0, false },
	{ "ddp, accumulated", 2, 0, 1, 1, FO_ZERO_OFF, 2, FO_PRECISION_F64, 0, true },
	{ "zero 1", 2, 1, 0, 1, FO_ZERO_STATE, 1, FO_PRECISION_F64, 0, false },
	{ "zero 2", 2, 1, 0, 1, FO_ZERO_GRADIENTS, 1, FO_PRECISION_F64, 0, false },
	{ "zero 2, accumulated", 2, 1, 0, 1, FO_ZERO_GRADIENTS, 2, FO_PRECISION_F64, 0, true },
	{ "fsdp", 2, 1, 0, 1, FO_ZERO_WEIGHTS, 1, FO_PRECISION_F64, 0, false },
	{ "fsdp, accumulated", 2, 1, 0, 1, FO_ZERO_WEIGHTS, 2, FO_PRECISION_F64, 0, true },
	{ "hsdp", 4, 2, 0, 1, FO_ZERO_WEIGHTS, 1, FO_PRECISION_F64, 0, true },
	{ "hsdp, accumulated", 4, 0, 2, 1, FO_ZERO_WEIGHTS, 2, FO_PRECISION_F64, 0, false },
	{ "tp", 2, 1, 1, 0, FO_ZERO_OFF, 1, FO_PRECISION_F64, 0, true },
	{ "tp and fsdp", 4, 1, 0, 2, FO_ZERO_WEIGHTS, 1, FO_PRECISION_F64, 0, false },
	{ "tp and ddp, accumulated", 4, 0, 1, 2, FO_ZERO_OFF, 2, FO_PRECISION_F64, 0, false },
	{ "tp and hsdp", 8, 2, 2, 2, FO_ZERO_WEIGHTS, 1, FO_PRECISION_F64, 0, true },
	{ "ddp, fp32 reduced as bf16", 2, 0, 1, 1, FO_ZERO_OFF, 1, FO_PRECISION_F32, FO_REDUCE_BF16, false },
	{ "fsdp, bf16 numbers and sums", 2, 1, 0, 1, FO_ZERO_WEIGHTS, 2, FO_PRECISION_BF16, FO_REDUCE_BF16, true },
	{ "zero 2, bf16", 2, 1, 0, 1, FO_ZERO_GRADIENTS, 2, FO_PRECISION_BF16, 0, false },
};
enum { FORMS = sizeof form / sizeof *form };

static struct fo_mesh mesh_of(const struct form *f, int ranks)
{
	const int tp = f->tp ? f->tp : ranks;
	struct fo_mesh mesh = { .replicate = f->replicate, .shard = f->shard, .tp = tp };
	if (!mesh.replicate)
		mesh.replicate = ranks / tp / mesh.shard;
	if (!mesh.shard)
		mesh.shard = ranks / tp / mesh.replicate;
	assert_int_equal(fo_mesh_ranks(&mesh), ranks);
	return mesh;
}

/* A task and a job of a form, the same in every process, for each draws the same. */
static struct ranks_job draw_form(const struct form *f, int ranks, struct task *t, struct step_batch *b)
{
	const struct fo_mesh mesh = mesh_of(f, ranks);
	struct ranks_job j;
	for (task_draw(t); !is_shared(t, &mesh, f->micro); task_draw(t))
		step_batch_free(&t->all);
	step_batch_split(b, &t->all, f->micro);
	do {
		j = job_of(&t->m, b, mesh, draw_passes(t, f->precision, &mesh));
		j.low.precision = f->precision;
	} while (j.low.pass.zero != f->zero || j.low.pass.reduce_dtype != f->reduce || !is_legal(&j));
	return j;
}

/* What a rank has to say; it travels as bytes. */
struct rank_said {
	uint64_t hash, outcome;
	double loss[STEPS], norm[STEPS];
	int64_t received[FO_GROUP_COUNT][FO_COMM_KINDS];
};

static struct rank_said say(const struct ranks_rank *r)
{
	struct rank_said s;
	memset(&s, 0, sizeof s);
	s.hash = r->hash;
	s.outcome = outcome_hash(&r->out);
	memcpy(s.loss, r->out.loss, sizeof s.loss);
	memcpy(s.norm, r->out.norm, sizeof s.norm);
	memcpy(s.received, r->received_by, sizeof s.received);
	return s;
}

static void same_bits(const struct ranks_job *threads, const struct rank_said *all, const char *label)
{
	for (int r = 0; r < threads->ranks; r++) {
		const struct rank_said want = say(&threads->rank[r]), *got = &all[r];
		const int last = STEPS - 1;
		if (memcmp(got, &want, sizeof want))
			fail_msg("%s: rank %d has other bits or bytes than as a thread: losses %.17g to %.17g "
				 "and %.17g to %.17g",
				 label, r, got->loss[0], got->loss[last], want.loss[0], want.loss[last]);
	}
}

static void over_mpi(const struct form *f, struct fo_comm *world)
{
	static struct task t;
	const int ranks = fo_comm_ranks(world), rank = fo_comm_rank(world);
	struct rank_said all[RANKS_MOST], own;
	struct step_batch b;
	char label[640];
	struct ranks_job j = draw_form(f, ranks, &t, &b), threads = j;
	int n = snprintf(label, sizeof label, "%s, %d ranks over MPI, ", f->name, ranks);
	choices_describe(label + n, sizeof label - (size_t)n, &t.m, &j.low);
	threads.order = choices_seed + choices_draws;
	ranks_run_one(&j, world);
	if (j.rank[rank].error.st != FO_OK)
		fail_msg("%s: rank %d: %s", label, rank, j.rank[rank].error.text);
	check_memory(&j.rank[rank], label);
	ranks_check_wire_of(&j.rank[rank], label);
	own = say(&j.rank[rank]);
	must(fo_comm_call(world, &(struct fo_comm_call){ .kind = FO_COMM_ALL_GATHER,
							 .from = &own,
							 .to = all,
							 .n = (int64_t)sizeof own,
							 .dtype = FO_E4M3 }));
	ranks_free(&j);
	if (rank == 0) { /* the others wait in the next case */
		task_train(&t);
		ranks_run(&threads);
		check_outcome(&t, &threads, label);
		same_bits(&threads, all, label);
		ranks_free(&threads);
		outcome_free(&t.truth);
	}
	step_batch_free(&b);
	step_batch_free(&t.all);
}

/* One of the processes. Every other form in small pieces with delays at random. A failure ends the process, and so
 * the job. */
static int run_forms(void)
{
	static const struct fo_comm_mpi options[] = { { 0 }, { .piece = 96, .shake = 7 } };
	struct fo_comm *world[2];
	int cases = 0;
	for (int i = 0; i < 2; i++)
		must(fo_comm_mpi_open(&options[i], &world[i]));
	const int ranks = fo_comm_ranks(world[0]);
	for (int i = 0; i < FORMS; i++)
		if (ranks >= form[i].ranks_least && (ranks < RANKS_MOST || form[i].eight))
			over_mpi(&form[i], world[cases++ % 2]);
	if (fo_comm_rank(world[0]) == 0)
		print_message("%d processes, %d cases: the bits of threads; at most %.3g off in double precision\n",
			      ranks, cases, most);
	ranks_close_links();
	for (int i = 0; i < 2; i++)
		fo_comm_close(world[i]);
	return 0;
}

/* The program is started again by mpirun, for each number of ranks. */
static int start_over_mpi(char *program)
{
	int status = 0;
	for (int ranks = 2; ranks <= RANKS_MOST && !status; ranks *= 2)
		status = mpirun_self(program, ranks);
	return status;
}

#endif
