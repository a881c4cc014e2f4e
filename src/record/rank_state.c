/* Writing what a rank does: memory that is a file's. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include "record/rank_state_int.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/retry.h"
#include "base/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *const fo_rank_phase_name[FO_RANK_PHASES] = { "starting",      "preparing",   "step",
							 "between steps", "evaluating",  "saving",
							 "done",          "interrupted", "failed" };

struct fo_rank_state {
	struct fo_rank_bytes *b;
	char *dir;
	struct fo_rank_pace_writer pace;
	bool flush; /* the file lies on another host: pages go there only when they are told to */
	pthread_t heart;
	bool beats;
	pthread_mutex_t lock; /* of `quit` and of the error */
	pthread_cond_t wake;
	bool quit;
};

/* ---- what does not change ---- */

static void copy(char *to, size_t size, const char *text)
{
	size_t n = strnlen(text, size - 1);
	memcpy(to, text, n);
	memset(to + n, 0, size - n);
}

static void first_line(const char *path, char *out, size_t size)
{
	int fd = fo_open(path, O_RDONLY | O_CLOEXEC, 0);
	ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
	if (fd >= 0)
		close(fd);
	out[n > 0 ? n : 0] = 0;
	out[strcspn(out, "\n")] = 0;
}

void fo_rank_place_here(struct fo_rank_place *p)
{
	struct stat ns;
	memset(p, 0, sizeof *p);
	first_line("/proc/sys/kernel/random/boot_id", p->boot, sizeof p->boot);
	if (gethostname(p->host, sizeof p->host - 1))
		p->host[0] = 0;
	if (!stat("/proc/self/ns/pid", &ns))
		p->pid_namespace = (uint64_t)ns.st_ino;
	if (!stat("/proc/self/ns/time", &ns)) /* monotonic clocks of two of them differ */
		p->time_namespace = (uint64_t)ns.st_ino;
}

bool fo_rank_process(int64_t pid, int64_t *ticks, char *state)
{
	enum { BEGAN = 22 }; /* the field's number in proc(5); the state is the third */
	char path[64], line[1024];
	/* The main thread's entry, not /proc/PID/stat: an emulator answers that one itself for its own process, with
	 * another beginning than all others see. */
	snprintf(path, sizeof path, "/proc/%lld/task/%lld/stat", (long long)pid, (long long)pid);
	first_line(path, line, sizeof line);
	const char *at = strrchr(line, ')'); /* the second field may hold anything */
	if (!at || at[1] != ' ')
		return false;
	*state = at[2];
	for (int field = 2; field < BEGAN && at; field++)
		at = strchr(at + 1, ' ');
	*ticks = at ? strtoll(at, NULL, 10) : 0;
	return true;
}

static int read_build_id(struct dl_phdr_info *info, size_t size, void *out)
{
	(void)size;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		if (h->p_type != PT_NOTE)
			continue;
		const char *at = (const char *)(uintptr_t)(info->dlpi_addr + h->p_vaddr), *end = at + h->p_memsz;
		while (end - at >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
			const ElfW(Nhdr) *n = (const void *)at;
			const char *name = at + sizeof *n, *id = name + (n->n_namesz + 3) / 4 * 4;
			if (n->n_type == NT_GNU_BUILD_ID && n->n_namesz == 4 && !memcmp(name, "GNU", 4)) {
				char *to = out;
				for (unsigned k = 0; k < n->n_descsz && k < 20; k++)
					sprintf(to + (size_t)2 * k, "%02x", (unsigned char)id[k]);
				return 1;
			}
			at = id + (n->n_descsz + 3) / 4 * 4;
		}
	}
	return 1; /* the first object is the program itself */
}

static void name_job(char *out, size_t size, const struct fo_rank_bytes *b)
{
	const char *ours = getenv(FO_RANK_JOB_VARIABLE), *pmix = getenv("PMIX_NAMESPACE"),
		   *slurm = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID"), *hydra = getenv("PMI_JOBID");
	if (ours && *ours)
		copy(out, size, ours);
	else if (pmix && *pmix)
		copy(out, size, pmix);
	else if (slurm && *slurm && step && *step)
		snprintf(out, size, "slurm %.20s.%.20s", slurm, step);
	else if (hydra && *hydra)
		copy(out, size, hydra);
	else
		snprintf(out, size, "%.30s %lld.%lld", b->host, (long long)b->pid, (long long)b->pid_ticks);
}

static void fill(struct fo_rank_bytes *b, int rank, int ranks)
{
	struct fo_rank_place here;
	char state;
	memcpy(b->magic, FO_RANK_MAGIC, sizeof b->magic);
	b->bytes = sizeof *b;
	b->lanes = FO_RANK_LANES;
	b->rank = rank;
	b->ranks = ranks;
	b->pid = getpid();
	(void)fo_rank_process(b->pid, &b->pid_ticks, &state);
	fo_rank_place_here(&here);
	memcpy(b->boot, here.boot, sizeof b->boot);
	memcpy(b->host, here.host, sizeof b->host);
	b->pid_namespace = here.pid_namespace;
	b->time_namespace = here.time_namespace;
	dl_iterate_phdr(read_build_id, b->program);
	name_job(b->job, sizeof b->job, b);
	const int64_t now = fo_now_ns(), now_unix = (int64_t)(fo_clock_unix() * 1e9);
	b->begun_ns = now;
	b->phase_ns = now;
	b->beat_ns = now;
	b->begun_unix_ns = now_unix;
	b->beat_unix_ns = now_unix;
	b->beats = 1;
}

/* ---- the heartbeat ---- */

static void *heart(void *arg)
{
	struct fo_rank_state *s = arg;
	struct fo_rank_bytes *b = s->b;
	pthread_mutex_lock(&s->lock);
	while (!s->quit) {
		const int64_t until = fo_now_ns() + FO_RANK_BEAT_NS;
		const struct timespec at = { .tv_sec = until / 1000000000, .tv_nsec = until % 1000000000 };
		while (!s->quit && pthread_cond_timedwait(&s->wake, &s->lock, &at) != ETIMEDOUT)
			;
		atomic_store_explicit(&b->beat_ns, fo_now_ns(), memory_order_relaxed);
		atomic_store_explicit(&b->beat_unix_ns, (int64_t)(fo_clock_unix() * 1e9), memory_order_relaxed);
		atomic_fetch_add_explicit(&b->beats, 1, memory_order_release);
		if (s->flush) {
			pthread_mutex_unlock(&s->lock); /* a file server that hangs holds this thread alone */
			msync(b, sizeof *b, MS_SYNC);
			pthread_mutex_lock(&s->lock);
		}
	}
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

/* ---- opening and closing ---- */

char *fo_rank_state_path(struct fo_arena *a, const char *dir, int rank)
{
	return fo_arena_printf(a, "%s/ranks/%05d.state", dir, rank);
}

/* Network file systems whose hosts see pages of a mapped file late, by their numbers in statfs(2). */
static bool is_far(int fd)
{
	static const unsigned far[] = { 0x6969 /* NFS */, 0xff534d42 /* CIFS */, 0xfe534d42 /* SMB2 */,
					0x65735546 /* FUSE */, 0x01021997 /* 9p */ };
	struct statfs fs;
	if (fstatfs(fd, &fs))
		return false;
	for (size_t i = 0; i < sizeof far / sizeof *far; i++)
		if ((unsigned)fs.f_type == far[i])
			return true;
	return false;
}

/* Its bytes are written before they are mapped: a full disk refuses them here, and not a store later on. */
static fo_status map_new(struct fo_rank_state *s, const char *path, const struct fo_rank_bytes *first)
{
	struct fo_new_file f;
	FO_TRY(fo_fs_new_begin(&f, path));
	fo_status st = fo_fs_new_write(&f, first, sizeof *first);
	if (st == FO_OK) {
		/* fo_fs_new_begin opens for writing alone, and a shared mapping needs both. */
		int fd = f.beside ? fo_open(f.beside, O_RDWR | O_CLOEXEC, 0) : -1;
		void *m = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *first, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (m == MAP_FAILED)
			st = fo_fs_refuse("map", path, errno);
		else
			s->b = m;
		if (s->b)
			st = fo_map_spare(s->b, sizeof *s->b);
		s->flush = fd >= 0 && is_far(fd);
		if (fd >= 0)
			close(fd);
	}
	return fo_fs_new_end(&f, st, false);
}

fo_status fo_rank_state_open(struct fo_rank_state **out, const char *dir, int rank, int ranks)
{
	struct fo_arena a = { 0 };
	struct fo_rank_bytes first;
	*out = NULL;
	memset(&first, 0, sizeof first);
	fill(&first, rank, ranks);
	struct fo_rank_state *s = fo_xmalloc(sizeof *s);
	s->dir = fo_xstrdup(dir);
	pthread_condattr_t clock;
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC); /* of fo_now_ns */
	pthread_cond_init(&s->wake, &clock);
	pthread_condattr_destroy(&clock);
	fo_status st = fo_fs_mkdirs(fo_arena_printf(&a, "%s/ranks", dir));
	if (st == FO_OK)
		st = map_new(s, fo_rank_state_path(&a, dir, rank), &first);
	if (st == FO_OK)
		st = fo_thread_start(&s->heart, heart, s, "the heartbeat of a rank");
	s->beats = st == FO_OK;
	if (st == FO_OK)
		*out = s;
	else
		fo_rank_state_close(s, FO_OK);
	fo_arena_fini(&a);
	return st;
}

fo_status fo_rank_state_open_beside(struct fo_rank_state **out, struct fo_rank_state *first, int rank, int ranks)
{
	FO_TRY(fo_rank_state_open(out, first->dir, rank, ranks));
	first->b->ranks = ranks;
	return FO_OK;
}

void fo_rank_state_close(struct fo_rank_state *s, fo_status st)
{
	if (!s)
		return;
	if (s->b && !fo_rank_phase_ended(atomic_load(&s->b->phase))) {
		if (st == FO_OK || st == FO_EINTERRUPT)
			fo_rank_state_phase(s, st == FO_OK ? FO_RANK_DONE : FO_RANK_INTERRUPTED);
		else
			fo_rank_state_failed(s, st, fo_err_text());
	}
	if (s->beats) {
		pthread_mutex_lock(&s->lock);
		s->quit = true;
		pthread_cond_broadcast(&s->wake);
		pthread_mutex_unlock(&s->lock);
		pthread_join(s->heart, NULL);
	}
	if (s->b) {
		fo_map_unspare(s->b);
		munmap(s->b, sizeof *s->b);
	}
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s->dir);
	free(s);
}

fo_status fo_rank_state_clean(const char *dir, int ranks)
{
	enum { FILES = 1 << 20 };
	struct fo_arena a = { 0 };
	char **name, *folder = fo_arena_printf(&a, "%s/ranks", dir);
	size_t n = 0;
	fo_status st = fo_fs_is_dir(folder) ? fo_fs_list_here(&a, folder, FILES, &name, &n) : FO_OK;
	for (size_t i = 0; st == FO_OK && i < n; i++) {
		int rank, end = 0;
		const char *last = strrchr(name[i], '/');
		if (last && sscanf(last, "/%d.state%n", &rank, &end) == 1 && end && !last[end] && rank >= ranks)
			st = fo_fs_remove_tree(name[i]);
	}
	fo_arena_fini(&a);
	return st;
}

/* ---- what changes ---- */

#define PUT(to, v) atomic_store_explicit(to, v, memory_order_relaxed)

void fo_rank_state_processors(struct fo_rank_state *s, int threads, const struct fo_cpus *cpus)
{
	if (!s || atomic_load_explicit(&s->b->threads, memory_order_relaxed))
		return;
	fo_cpus_text(cpus, s->b->cpus, sizeof s->b->cpus);
	atomic_store_explicit(&s->b->threads, (uint32_t)threads, memory_order_release);
}

void fo_rank_state_phase(struct fo_rank_state *s, enum fo_rank_phase phase)
{
	if (!s || fo_rank_phase_ended(atomic_load_explicit(&s->b->phase, memory_order_relaxed)))
		return;
	const int64_t now = fo_now_ns();
	/* A step that ends in anything else has failed, and its time says nothing. */
	if (phase == FO_RANK_BETWEEN &&
	    atomic_load_explicit(&s->b->phase, memory_order_relaxed) == (uint32_t)FO_RANK_STEP)
		fo_rank_pace_end(&s->pace, &s->b->pace, atomic_load_explicit(&s->b->step, memory_order_relaxed), now);
	PUT(&s->b->phase_ns, now);
	PUT(&s->b->phase, (uint32_t)phase);
}

void fo_rank_state_step(struct fo_rank_state *s, int64_t step, int64_t steps)
{
	if (!s)
		return;
	PUT(&s->b->step, step);
	PUT(&s->b->steps, steps);
	fo_rank_state_phase(s, FO_RANK_STEP);
	fo_rank_pace_begin(&s->pace, fo_now_ns());
}

void fo_rank_state_failed(struct fo_rank_state *s, fo_status st, const char *text)
{
	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	if (!atomic_load(&s->b->has_error)) {
		s->b->error = (uint32_t)st;
		size_t n = strcspn(text, "\n");
		n = n < sizeof s->b->text ? n : sizeof s->b->text - 1;
		memcpy(s->b->text, text, n);
		atomic_store_explicit(&s->b->has_error, 1, memory_order_release);
	}
	pthread_mutex_unlock(&s->lock);
	fo_rank_state_phase(s, FO_RANK_FAILED);
}

static void put_text(_Atomic uint64_t *to, size_t words, const char *text)
{
	uint64_t word[FO_RANK_WORDS(24)] = { 0 };
	size_t n = text ? strnlen(text, words * 8 - 1) : 0;
	memcpy(word, text ? text : "", n);
	for (size_t i = 0; i < words; i++)
		PUT(&to[i], word[i]);
}

void fo_rank_state_lane(struct fo_rank_state *s, int lane, const char *name, enum fo_lane_does does,
			const struct fo_rank_op *o, int64_t now_ns)
{
	static const struct fo_rank_op none = { .instance = -1, .layer = -1, .mb = -1 };
	if (!s)
		return;
	struct fo_rank_lane_bytes *l = &s->b->lane[lane];
	o = o ? o : &none;
	if (!lane)
		fo_rank_pace_lane(&s->pace, does, o->group != NULL, now_ns);
	if (!l->name[0])
		copy(l->name, sizeof l->name, name);
	/* A reader that sees any of what follows sees the odd turn, too. */
	PUT(&l->turn, atomic_load_explicit(&l->turn, memory_order_relaxed) + 1);
	atomic_thread_fence(memory_order_release);
	PUT(&l->does, (uint32_t)does);
	PUT(&l->since_ns, now_ns);
	PUT(&l->instance, o->instance);
	PUT(&l->layer, o->layer);
	PUT(&l->mb, o->mb);
	put_text(l->op, FO_RANK_WORDS(sizeof l->op), o->op);
	put_text(l->block, FO_RANK_WORDS(sizeof l->block), o->block);
	put_text(l->phase, FO_RANK_WORDS(sizeof l->phase), o->phase);
	put_text(l->group, FO_RANK_WORDS(sizeof l->group), o->group);
	atomic_store_explicit(&l->turn, atomic_load_explicit(&l->turn, memory_order_relaxed) + 1, memory_order_release);
}

void fo_rank_state_late(struct fo_rank_state *s, int64_t ns)
{
	if (s)
		fo_rank_pace_late(&s->pace, ns);
}

/* ---- the end, as the parent saw it ---- */

/* The file, if it is this job's; -1. */
static int open_own(const char *path, const struct fo_rank_bytes *own)
{
	struct fo_rank_bytes there;
	int fd = fo_open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd >= 0 && pread(fd, (void *)&there, sizeof there, 0) == (ssize_t)sizeof there &&
	    !memcmp(there.magic, FO_RANK_MAGIC, sizeof there.magic) && !memcmp(there.job, own->job, sizeof own->job))
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

fo_status fo_rank_state_ended(const char *dir, int rank, int ranks, const struct fo_rank_end *e)
{
	enum { BEGIN = offsetof(struct fo_rank_bytes, has_end), END = offsetof(struct fo_rank_bytes, spare3) };
	struct fo_arena a = { 0 };
	struct fo_rank_bytes own;
	memset((void *)&own, 0, sizeof own);
	fill(&own, rank, ranks);
	own.has_end = 1;
	own.end_signal = (uint32_t)e->signal;
	own.end_code = (uint32_t)e->code;
	own.end_told = e->told;
	own.end_memory = e->memory;
	const char *path = fo_rank_state_path(&a, dir, rank);
	int fd = open_own(path, &own);
	fo_status st = FO_OK;
	if (fd >= 0) {
		if (pwrite(fd, (const char *)&own + BEGIN, END - BEGIN, BEGIN) != END - BEGIN)
			st = fo_fs_refuse("write", path, errno);
	} else {
		st = fo_fs_mkdirs(fo_arena_printf(&a, "%s/ranks", dir));
		if (st == FO_OK)
			st = fo_fs_write_atomic(path, (const void *)&own, sizeof own);
	}
	if (fd >= 0)
		close(fd);
	fo_arena_fini(&a);
	return st;
}
