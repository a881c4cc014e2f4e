#include "train/processes.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "comm/mpi.h"
#include "hw/topology.h"
#include "train/member_int.h"
#include "train/room.h"

#define XXH_INLINE_ALL
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- who is there ---- */

/* Part of the program's protocol with itself: its size never changes, so that unlike programs can say that they are. */
struct joining {
	char magic[8];
	struct fo_processes_place place;
	uint64_t processors; /* XXH3-64 of the set that this process may use */
	uint64_t bind;       /* rank 0's wish */
	unsigned char room[512 - 24 - sizeof(struct fo_processes_place)];
};
_Static_assert(sizeof(struct joining) == 512, "other versions read it");
#define MAGIC "FLATJOB1"

static uint64_t hash_of_program(void)
{
	struct fo_map m;
	uint64_t hash = 0;
	if (fo_map_open(&m, "/proc/self/exe") != FO_OK) {
		fo_err_clear();
		return 0;
	}
	hash = XXH3_64bits(m.data, m.len);
	fo_map_close(&m);
	return hash;
}

static void say_own(struct joining *j, const char *version, bool bind)
{
	struct fo_processes_place *own = &j->place;
	struct fo_cpus set;
	enum fo_isa isa;
	*j = (struct joining){ .magic = MAGIC, .bind = bind };
	snprintf(own->version, sizeof own->version, "%s", version);
	own->binary = hash_of_program();
	if (gethostname(own->host, sizeof own->host - 1))
		snprintf(own->host, sizeof own->host, "(unknown)");
	own->threads = fo_cpu_threads();
	if (fo_isa_choose(&isa) != FO_OK) {
		fo_err_clear(); /* rank 0 says so when it sets up */
		isa = FO_ISA_REF;
	}
	own->isa = (int32_t)isa;
	own->memory = fo_memory_available();
	fo_cpus_here(&set);
	j->processors = XXH3_64bits(&set, sizeof set);
}

/* Ranks of a host that may use the very same processors share them. */
static bool shares(const struct joining *a, const struct joining *b)
{
	return !strcmp(a->place.host, b->place.host) && a->processors == b->processors;
}

/* Ranks of a host are numbered in their order. */
static void place_all(struct fo_processes *p, const struct joining *all)
{
	const int ranks = p->self.ranks;
	for (int i = 0; i < ranks; i++) {
		struct fo_processes_place *own = &p->place[i];
		*own = all[i].place;
		own->local_rank = own->local_ranks = 0;
		for (int k = 0; k < ranks; k++) {
			if (strcmp(all[k].place.host, own->host))
				continue;
			own->local_ranks++;
			own->local_rank += k < i;
		}
	}
}

/* Takes this rank's share of the processors, and tells the others which it is. */
static fo_status take_share(struct fo_processes *p, const struct joining *all)
{
	const int ranks = p->self.ranks, number = p->self.number;
	struct fo_processes_place own = p->place[number];
	int sharing = 0, at = 0;
	for (int i = 0; i < ranks; i++) {
		sharing += shares(&all[i], &all[number]);
		at += i < number && shares(&all[i], &all[number]);
	}
	fo_cpus_here(&p->self.given);
	struct fo_cpus *share = fo_xmalloc((size_t)sharing * sizeof *share);
	own.threads = fo_topology_share_here(sharing, share);
	if (all[0].bind && fo_cpus_count(&share[at]))
		(void)fo_cpus_bind(&share[at]); /* where the system refuses, it goes on unbound */
	free(share);
	fo_cpus_here(&p->self.cpus);
	fo_cpus_text(&p->self.cpus, own.cpus, sizeof own.cpus);
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_ALL_GATHER, &own, p->place, sizeof own, 0);
	return fo_comm_call(p->tasks, &k);
}

static fo_status check_alike(const struct joining *all, int ranks)
{
	for (int i = 1; i < ranks; i++) {
		const struct fo_processes_place *a = &all[0].place, *b = &all[i].place;
		if (memcmp(all[i].magic, all[0].magic, sizeof all[i].magic) || strcmp(a->version, b->version))
			return fo_hint(fo_fail(FO_EUNSUPPORTED,
					       "rank %d on host %.63s runs flatout %.63s, rank 0 on host %.63s %.63s",
					       i, b->host, b->version, a->host, a->version),
				       "all ranks of a job need the same program");
		if (a->binary != b->binary)
			return fo_hint(fo_fail(FO_EUNSUPPORTED,
					       "rank %d on host %.63s runs another program than rank 0 on host %.63s: "
					       "both say flatout %.63s, and their files differ",
					       i, b->host, a->host, a->version),
				       "all ranks of a job need the same program: copy it to every host, or start it "
				       "from a folder that they share");
	}
	return FO_OK;
}

static fo_status introduce(struct fo_processes *p, const char *version, bool bind)
{
	const int ranks = p->self.ranks;
	struct joining own, *all = fo_xmalloc((size_t)ranks * sizeof *all);
	say_own(&own, version, bind);
	const struct fo_comm_call k = fo_comm_bytes(FO_COMM_ALL_GATHER, &own, all, sizeof own, 0);
	fo_status st = fo_comm_call(p->tasks, &k);
	for (int i = 0; st == FO_OK && i < ranks; i++) /* texts of strangers */
		all[i].place.version[sizeof all->place.version - 1] = all[i].place.host[sizeof all->place.host - 1] = 0;
	if (st == FO_OK)
		st = check_alike(all, ranks);
	p->place = fo_xmalloc((size_t)ranks * sizeof *p->place);
	if (st == FO_OK) {
		place_all(p, all);
		st = take_share(p, all);
	}
	free(all);
	FO_TRY(st);
	const struct fo_processes_place *self = &p->place[p->self.number];
	p->self.local_rank = self->local_rank;
	p->self.local_ranks = self->local_ranks;
	snprintf(p->self.host, sizeof p->self.host, "%s", self->host);
	return FO_OK;
}

fo_status fo_processes_launched(int *rank, int *ranks, int *local_rank)
{
	struct fo_comm_launch l;
	*rank = *local_rank = 0;
	*ranks = 1;
	FO_TRY(fo_comm_launched(&l));
	*rank = l.rank;
	*ranks = l.ranks;
	*local_rank = l.local_rank;
	return FO_OK;
}

/* Ranks that serve take it within milliseconds; MPI's starter ends the job of a rank that is gone within a second or
 * two, but one that hangs is there. */
#define END_S 5.0

fo_status fo_processes_meet(struct fo_processes **out, struct fo_comm *tasks, struct fo_comm *steps,
			    const char *version, bool bind)
{
	struct fo_processes *p = *out = fo_xmalloc(sizeof *p);
	p->tasks = tasks;
	p->end_s = END_S;
	p->self = (struct fo_member){ .number = fo_comm_rank(tasks),
				      .ranks = fo_comm_ranks(tasks),
				      .world = steps,
				      .tasks = tasks,
				      .port = fo_ports_serve };
	FO_TRY(introduce(p, version, bind));
	if (!p->self.number)
		fo_carrier_processes(&p->carrier, &p->self, p->tasks);
	return FO_OK;
}

fo_status fo_processes_join(struct fo_processes **out, const char *version, bool bind)
{
	struct fo_comm *tasks, *steps;
	*out = NULL;
	FO_TRY(fo_comm_mpi_open(NULL, &tasks));
	fo_status st = fo_comm_mpi_open(NULL, &steps);
	if (st != FO_OK) {
		fo_comm_abort(tasks);
		fo_comm_close(tasks);
		return st;
	}
	return fo_processes_meet(out, tasks, steps, version, bind);
}

fo_status fo_processes_serve(struct fo_processes *p, bool *told)
{
	fo_status st = fo_carrier_serve(&p->self, p->tasks);
	*told = p->self.ended || st == FO_OK;
	if (*told)
		return st;
	struct fo_err error;
	fo_err_save(&error, st);
	fo_member_name(&p->self, &error);
	fo_rank_state_failed(p->self.state, st, error.text);
	fo_comm_abort(p->tasks); /* else its end would wait for ranks that may be gone */
	return fo_err_raise(&error);
}

void fo_processes_close(struct fo_processes *p, fo_status st)
{
	if (!p)
		return;
	struct fo_err error;
	struct fo_answer *left = fo_xmalloc(sizeof *left);
	fo_err_save(&error, st);
	if (p->carrier && fo_carrier_finish(p->carrier, &error, st == FO_OK ? INFINITY : p->end_s) != FO_OK) {
		fo_comm_abort(p->tasks);
		fo_err_clear();
	}
	if (!p->carrier) /* what an end in the middle has left */
		(void)fo_member_work(&p->self, FO_TASK_CLOSE, NULL, 0, left);
	free(left);
	fo_order_share_close(p->self.order);
	if (p->self.shard.map)
		fo_shard_close(&p->self.shard);
	fo_arena_fini(&p->self.arena);
	free(p->self.lost);
	if (error.st != FO_OK)
		fo_err_raise(&error);
	if (p->self.number) /* rank 0's is the run's */
		fo_rank_state_close(p->self.state, st);
	fo_comm_close(p->self.world);
	fo_comm_close(p->tasks);
	fo_carrier_close(p->carrier); /* what it sent may have been on its way */
	free(p->place);
	free(p);
	if (error.st != FO_OK)
		fo_err_raise(&error);
}

/* ---- what all have ---- */

int fo_processes_on_host(const struct fo_processes *p) { return p->place[0].local_ranks; }

int fo_processes_hosts(const struct fo_processes *p)
{
	int hosts = 0;
	for (int i = 0; i < p->self.ranks; i++)
		hosts += !p->place[i].local_rank;
	return hosts;
}

int fo_processes_threads(const struct fo_processes *p)
{
	int threads = p->place[0].threads;
	for (int i = 1; i < p->self.ranks; i++)
		threads = p->place[i].threads < threads ? p->place[i].threads : threads;
	return threads;
}

enum fo_isa fo_processes_isa(const struct fo_processes *p, enum fo_isa most)
{
	for (int i = 0; i < p->self.ranks; i++)
		most = p->place[i].isa < (int)most ? (enum fo_isa)p->place[i].isa : most;
	return most;
}

int64_t fo_processes_memory(const struct fo_processes *p)
{
	int64_t least = 0;
	for (int i = 0; i < p->self.ranks; i++) {
		int64_t own = p->place[i].memory / p->place[i].local_ranks;
		if (own && (!least || own < least))
			least = own;
	}
	return least;
}

void fo_processes_use_all(struct fo_processes *p, bool on)
{
	if (p && fo_cpus_count(&p->self.given))
		(void)fo_cpus_bind(on ? &p->self.given : &p->self.cpus);
}

/* ---- what all do ---- */

fo_status fo_processes_folder(struct fo_processes *p, const char *dir)
{
	struct fo_task_folder *t = fo_xmalloc(sizeof *t);
	char text[32];
	t->text = (uint64_t)fo_now_ns() ^ (uint64_t)getpid() << 40;
	snprintf(text, sizeof text, "%llx\n", (unsigned long long)t->text);
	fo_status st = fo_fs_whole_path(dir, t->dir, FO_PATH_BYTES);
	if (st == FO_OK)
		st = fo_fs_whole_path(".", t->cwd, sizeof t->cwd);
	if (st == FO_OK && snprintf(t->token, sizeof t->token, "%.*s/seen-%llx", FO_PATH_BYTES - 32, t->dir,
				    (unsigned long long)t->text) >= (int)sizeof t->token)
		st = fo_fail(FO_EARG, "the path '%s' is too long", t->dir);
	if (st == FO_OK)
		st = fo_fs_write_atomic(t->token, text, strlen(text));
	if (st == FO_OK) {
		st = fo_carrier_do(p->carrier, FO_TASK_FOLDER, t, sizeof *t);
		unlink(t->token);
	}
	free(t);
	return st;
}

fo_status fo_processes_peak(struct fo_processes *p, enum fo_numerics precision, int threads, struct fo_peak *out)
{
	const struct fo_task_peak what = { .precision = precision, .threads = threads };
	int hosts = 1;
	FO_TRY(fo_carrier_begin(p->carrier, FO_TASK_PEAK, &what, sizeof what));
	fo_member_measure(p->self.local_ranks, &what, out);
	FO_TRY(fo_carrier_end(p->carrier, FO_OK));
	for (int i = 1; i < p->self.ranks; i++) {
		struct fo_peak other;
		FO_TRY(fo_answer_get(&p->carrier->answer[i], &other, sizeof other));
		if (p->place[i].local_rank)
			continue;
		hosts++;
		if (!(other.flop_s > 0) || !(out->flop_s > 0)) {
			*out = (struct fo_peak){ 0 };
			snprintf(out->source, sizeof out->source, "host %.63s: %.80s", p->place[i].host, other.source);
			return FO_OK;
		}
		out->flop_s += other.flop_s;
		out->median_flop_s += other.median_flop_s;
	}
	if (hosts > 1) {
		char first[sizeof out->source];
		memcpy(first, out->source, sizeof first);
		snprintf(out->source, sizeof out->source, "sum over %d hosts; the first: %.120s", hosts, first);
	}
	return FO_OK;
}

static fo_status name_shard(struct fo_task_data *t, const char *dir, const char *name, uint64_t checksum)
{
	char at[FO_PATH_BYTES];
	t->checksum = checksum;
	FO_TRY(fo_fs_whole_path(dir, at, sizeof at));
	snprintf(t->path, sizeof t->path, "%.*s/%s", FO_PATH_BYTES - 32, at, name);
	return FO_OK;
}

fo_status fo_processes_data(struct fo_processes *p, const char *dir, uint64_t checksum)
{
	struct fo_task_data t;
	memset(&t, 0, sizeof t);
	FO_TRY(name_shard(&t, dir, "train.shard", checksum));
	return fo_carrier_do(p->carrier, FO_TASK_DATA, &t, sizeof t);
}

fo_status fo_processes_eval_data(struct fo_processes *p, const char *dir, uint64_t checksum,
				 const struct fo_batch_shape *shape, int64_t batches, int32_t pad)
{
	struct fo_task_eval_data t;
	memset(&t, 0, sizeof t);
	FO_TRY(name_shard(&t.from, dir, "val.shard", checksum));
	t.shape = *shape;
	t.batches = batches;
	t.pad = pad;
	return fo_carrier_do(p->carrier, FO_TASK_EVAL_DATA, &t, sizeof t);
}

fo_status fo_processes_loader(struct fo_processes *p, const struct fo_shard *shard, const struct fo_batch_shape *shape,
			      const struct fo_loader_state *from, int32_t pad, struct fo_order_share **order)
{
	struct fo_task_loader t;
	memset(&t, 0, sizeof t);
	t.shape = *shape;
	t.from = *from;
	t.pad = pad;
	FO_TRY(fo_carrier_begin(p->carrier, FO_TASK_LOADER, &t, sizeof t));
	FO_TRY(fo_carrier_end(p->carrier, fo_member_order(&p->self, shard, shape)));
	*order = p->self.order;
	return FO_OK;
}
