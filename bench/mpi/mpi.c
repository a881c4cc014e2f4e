/* Calls between processes as a rank's thread of communication makes them (src/comm/mpi.h), beside the same call of
 * plain MPI, in one run, in turn:
 *
 *   mpirun -n 4 --oversubscribe build/release/bench_mpi [SECONDS A ROW] [LARGEST MiB] [SMALLEST bytes] [PIECE bytes]
 *
 * Per kind, type and size one JSON line from rank 0: bytes that a rank receives by the least that can be, the median
 * of seconds from a barrier until the last rank has ended (plain, ours, naps), and the quotient of the first two. Plain
 * is MPI's blocking call, which spins; ours looks again at once for a while, as a rank does that computes nothing
 * meanwhile, and then naps; naps does so from the start, as behind computing. Data is random. */
#include "comm/comm.h"
#include "comm/mpi.h"

#include "base/clock.h"
#include "base/mem.h"
#include "program/program.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LEAST = 5, MOST = 400 };
struct row {
	enum fo_comm_kind kind;
	int dtype;
	int64_t n; /* elements of a part; of all-reduce, of all */
	void *from, *to;
};

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, fo_err_text());
	MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Datatype type_of(int dtype)
{
	return dtype == FO_F64 ? MPI_DOUBLE : dtype == FO_F32 ? MPI_FLOAT : MPI_SHORT;
}

static void plain(const struct row *r, int rank)
{
	const MPI_Datatype t = type_of(r->dtype);
	const int n = (int)r->n;
	switch (r->kind) {
	case FO_COMM_ALL_REDUCE: MPI_Allreduce(r->from, r->to, n, t, MPI_SUM, MPI_COMM_WORLD); break;
	case FO_COMM_ALL_GATHER: MPI_Allgather(r->from, n, t, r->to, n, t, MPI_COMM_WORLD); break;
	case FO_COMM_REDUCE_SCATTER: MPI_Reduce_scatter_block(r->from, r->to, n, t, MPI_SUM, MPI_COMM_WORLD); break;
	case FO_COMM_BROADCAST: MPI_Bcast(rank ? r->to : r->from, n, t, 0, MPI_COMM_WORLD); break;
	case FO_COMM_ALL_TO_ALL: MPI_Alltoall(r->from, n, t, r->to, n, t, MPI_COMM_WORLD); break;
	case FO_COMM_SEND:
		if (rank == 0)
			MPI_Send(r->from, n, t, 1, 0, MPI_COMM_WORLD);
		if (rank == 1)
			MPI_Recv(r->to, n, t, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		break;
	default: break;
	}
}

/* As run_linked (src/train/exec_cpu.c) drives a call: behind computing it only naps, else it looks often at first. */
static void drive(struct fo_comm *c, const struct row *r, int rank, bool naps)
{
	struct fo_comm_call k = { .kind = r->kind, .from = r->from, .to = r->to, .n = r->n, .dtype = r->dtype };
	struct fo_comm_request q;
	int64_t since = fo_now_ns();
	if (r->kind == FO_COMM_SEND && rank > 1)
		return;
	if (r->kind == FO_COMM_BROADCAST && !rank)
		k.to = r->from; /* as plain MPI has it: nothing to copy */
	if (r->kind == FO_COMM_SEND) {
		k.kind = rank ? FO_COMM_RECV : FO_COMM_SEND;
		k.peer = !rank;
	}
	if (fo_comm_start(c, &k, &q) != FO_OK)
		fail("start");
	for (bool done = !q.state; !done;) {
		const int phase = q.phase;
		if (fo_comm_test(c, &q, &done) != FO_OK)
			fail("test");
		if (done)
			break;
		if (q.phase != phase)
			since = fo_now_ns();
		else if (naps)
			nanosleep(&(struct timespec){ .tv_nsec = (long)fo_comm_nap_ns(since, 0, false, false) }, NULL);
		else
			fo_comm_rest(since, 0);
	}
}

static void ours(struct fo_comm *c, const struct row *r, int rank) { drive(c, r, rank, false); }
static void naps(struct fo_comm *c, const struct row *r, int rank) { drive(c, r, rank, true); }

static double seconds(void (*fn)(struct fo_comm *, const struct row *, int), struct fo_comm *c, const struct row *r)
{
	int rank = fo_comm_rank(c);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Barrier(MPI_COMM_WORLD);
	int64_t begin = fo_now_ns();
	if (fn)
		fn(c, r, rank);
	else
		plain(r, rank);
	double mine = (double)(fo_now_ns() - begin) * 1e-9, most;
	MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return most;
}

static void run(struct fo_comm *c, const struct row *r, double each_s)
{
	static double a[MOST], b[MOST], third[MOST], quotient[MOST];
	const int rank = fo_comm_rank(c), ranks = fo_comm_ranks(c);
	const bool compares = r->dtype != FO_BF16 || r->kind == FO_COMM_ALL_GATHER;
	int n = 0, more = 1;
	const int64_t begin = fo_now_ns();
	while (more) {
		a[n] = compares ? seconds(NULL, c, r) : 1;
		b[n] = seconds(ours, c, r);
		third[n] = seconds(naps, c, r);
		quotient[n] = b[n] / a[n];
		n++;
		more = n < MOST && (n < LEAST || (double)(fo_now_ns() - begin) * 1e-9 < each_s);
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	if (rank)
		return;
	struct fo_comm_call k = { .kind = r->kind, .n = r->n, .dtype = r->dtype };
	if (k.kind == FO_COMM_SEND)
		k.kind = FO_COMM_RECV;
	int64_t bytes = 0;
	for (int p = 0; p < ranks; p++) {
		int64_t w = fo_comm_wire_bytes(&k, p, ranks);
		bytes = w > bytes ? w : bytes;
	}
	double best_a = fo_stats_quantile(a, (size_t)n, 0), best_b = fo_stats_quantile(b, (size_t)n, 0);
	double plain_s = fo_stats_quantile(a, (size_t)n, 0.5), ours_s = fo_stats_quantile(b, (size_t)n, 0.5);
	printf("{\"kind\":\"%s\",\"dtype\":\"%s\",\"ranks\":%d,\"bytes\":%lld,\"times\":%d,",
	       fo_comm_kind_name(r->kind), fo_dtype_name[r->dtype], ranks, (long long)bytes, n);
	if (compares)
		printf("\"plain_s\":%.3g,\"plain_best_s\":%.3g,\"plain_GB_s\":%.3g,\"quotient\":%.3f,", plain_s, best_a,
		       (double)bytes / plain_s * 1e-9, fo_stats_quantile(quotient, (size_t)n, 0.5));
	printf("\"ours_s\":%.3g,\"ours_best_s\":%.3g,\"ours_GB_s\":%.3g,\"naps_s\":%.3g,\"naps_best_s\":%.3g}\n",
	       ours_s, best_b, (double)bytes / ours_s * 1e-9, fo_stats_quantile(third, (size_t)n, 0.5),
	       fo_stats_quantile(third, (size_t)n, 0));
	fflush(stdout);
}

int main(int argc, char **argv)
{
	static const struct {
		enum fo_comm_kind kind;
		int dtype;
	} what[] = { { FO_COMM_ALL_REDUCE, FO_F32 }, { FO_COMM_ALL_REDUCE, FO_BF16 },
		     { FO_COMM_ALL_GATHER, FO_F32 }, { FO_COMM_REDUCE_SCATTER, FO_F32 },
		     { FO_COMM_BROADCAST, FO_F32 },  { FO_COMM_ALL_TO_ALL, FO_F32 },
		     { FO_COMM_SEND, FO_F32 } };
	const double each_s = argc > 1 ? atof(argv[1]) : 0.5;
	const int64_t largest = (int64_t)(argc > 2 ? atof(argv[2]) : 64) << 20;
	const int64_t smallest = argc > 3 ? atoll(argv[3]) : 4096, piece = argc > 4 ? atoll(argv[4]) : 0;
	struct fo_comm *c;
	if (fo_comm_mpi_open(&(struct fo_comm_mpi){ .piece = piece }, &c) != FO_OK) {
		fprintf(stderr, "%s\n", fo_err_text());
		return 3;
	}
	const int ranks = fo_comm_ranks(c);
	float *from = malloc((size_t)largest), *to = malloc((size_t)largest);
	for (int64_t i = 0; i < largest / 4; i++)
		from[i] = (float)fo_rng_uniform(7 + (uint64_t)fo_comm_rank(c), (uint64_t)i);
	memset(to, 0, (size_t)largest);
	for (size_t w = 0; w < sizeof what / sizeof *what; w++)
		for (int64_t bytes = smallest; bytes <= largest; bytes *= 16) {
			struct row r = { .kind = what[w].kind, .dtype = what[w].dtype, .from = from, .to = to };
			r.n = bytes / (int64_t)fo_dtype_bytes(r.dtype);
			if (r.kind != FO_COMM_ALL_REDUCE && r.kind != FO_COMM_BROADCAST && r.kind != FO_COMM_SEND)
				r.n /= ranks;
			run(c, &r, each_s);
		}
	fo_comm_close(c);
	free(from);
	free(to);
	return 0;
}
