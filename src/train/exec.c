#include "train/exec.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is known about an operation of a block before any instance runs. */
struct prepared {
	const struct fo_kernel *kernel;
	enum fo_isa isa;
	struct fo_call call;
};

struct lane {
	struct fo_exec *e;
	int id;
	pthread_t thread;
	bool started;
	int *instance, n; /* its instances, in order */
	void *ws;
	size_t ws_bytes;
	int threads;
	_Atomic int32_t done;   /* newest instance that has finished in this step */
	_Atomic int32_t wanted; /* oldest instance that a sleeper waits for; INT32_MAX: nobody sleeps on this lane */
	uint64_t delays;        /* random delays drawn so far */
};

struct fo_exec {
	const struct fo_program *p;
	struct fo_store *store;
	struct fo_exec_options o;
	fo_port_fn *port;
	void *ctx;
	struct fo_unrolled u;
	struct fo_timeline timeline;
	struct prepared **op; /* [block][op] */
	void **data;          /* per life: where it lies */
	unsigned char *arena;
	size_t arena_bytes;
	bool owns_arena;
	unsigned char *host_arena; /* of home HOST; NULL: nothing is */
	struct lane lane[FO_LANE_COUNT];
	/* Lanes sleep on `wake` until what they wait for has moved. */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	int32_t step;       /* guarded by lock */
	int64_t generation; /* steps begun; guarded by lock */
	int running;        /* helper lanes still in this step; guarded by lock */
	bool quit;
	bool derived; /* what is made of weights alone is up to date */
	_Atomic bool failed;
	struct fo_err error; /* guarded by lock */
};

/* ---- one instance ---- */

static void poison(struct fo_exec *e, int id, const struct fo_op *o)
{
	const int32_t *life_of = &e->u.life_of[e->u.arg_begin[id]];
	for (int i = 0; i < o->n; i++) {
		const struct fo_life *l = &e->u.life[life_of[i]];
		bool shared = false;
		for (int k = 0; k < o->n; k++)
			shared |= k != i && e->data[life_of[k]] == e->data[life_of[i]];
		if (!l->persists && l->first == id && !shared)
			memset(e->data[life_of[i]], 0xff,
			       (size_t)l->bytes); /* NaN in every floating-point type, -1 as an index */
	}
}

static fo_status run_instance(struct fo_exec *e, struct lane *ln, int id)
{
	const struct fo_slot *s = &e->p->slot[e->u.slot[id]];
	const struct prepared *pr = &e->op[s->block][e->u.op[id]];
	const struct fo_op *o = &e->p->block[s->block].op[e->u.op[id]];
	struct fo_call c = pr->call;
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *a = &o->arg[i];
		int64_t at = a->r0 * c.arg[i].ld + a->c0;
		c.arg[i].data = (unsigned char *)e->data[e->u.life_of[e->u.arg_begin[id] + i]] +
				at * (int64_t)fo_dtype_bytes(c.arg[i].dtype);
		c.arg[i].first = at;
		c.arg[i].layer = e->p->buf[a->buf].axes & FO_PER_LAYER ? s->layer + a->dlayer + 1 : 0;
	}
	if (e->o.poison)
		poison(e, id, o);
	if (fo_op_info(o->kind)->cls == FO_CLASS_HOST)
		return e->port(e->ctx, o->attr.port, s->mb, c.arg, o->n);
	c.first = e->u.first[id];
	c.threads = ln->threads;
	c.ws = ln->ws;
	c.ws_bytes = ln->ws_bytes;
	c.mac = e->o.mac;
	if (!e->o.null_kernels)
		pr->kernel->run(&c);
	return FO_OK;
}

/* ---- lanes ---- */

static void fail(struct fo_exec *e, fo_status st)
{
	pthread_mutex_lock(&e->lock);
	if (!atomic_load(&e->failed))
		fo_err_save(&e->error, st);
	atomic_store(&e->failed, true);
	pthread_cond_broadcast(&e->wake);
	pthread_mutex_unlock(&e->lock);
}

/* Returns when instance `id` of lane `l` has finished, or the step has failed. A sleeper says first what it wants and looks at
 * `done` again; the other side stores `done` first and then looks at `wanted`, all in sequentially consistent order: either the
 * sleeper sees the new value or it is woken. */
static void wait_for(struct fo_exec *e, int l, int32_t id)
{
	struct lane *ln = &e->lane[l];
	pthread_mutex_lock(&e->lock);
	for (;;) {
		if (id < atomic_load(&ln->wanted))
			atomic_store(&ln->wanted, id);
		if (atomic_load(&ln->done) >= id || atomic_load(&e->failed))
			break;
		pthread_cond_wait(&e->wake, &e->lock);
	}
	pthread_mutex_unlock(&e->lock);
}

static void finished(struct fo_exec *e, struct lane *ln, int32_t id)
{
	atomic_store(&ln->done, id);
	if (id >= atomic_load(&ln->wanted)) {
		pthread_mutex_lock(&e->lock);
		atomic_store(&ln->wanted, INT32_MAX); /* who still waits for more says so again */
		pthread_cond_broadcast(&e->wake);
		pthread_mutex_unlock(&e->lock);
	}
}

static void random_delay(struct fo_exec *e, struct lane *ln)
{
	uint64_t r = fo_rng_u64(e->o.delay_seed + (uint64_t)ln->id, ln->delays++);
	if (r % 4 == 0) { /* a quarter of the operations start up to 0.1 ms late */
		struct timespec t = { .tv_nsec = (long)(r >> 8 & 0xffff) * 100000 / 0xffff };
		nanosleep(&t, NULL);
	}
}

static void run_lane(struct lane *ln, int32_t step)
{
	struct fo_exec *e = ln->e;
	for (int i = 0; i < ln->n; i++) {
		int id = ln->instance[i];
		for (int l = 0; l < FO_LANE_COUNT; l++) {
			int32_t need = e->u.wait[id][l];
			if (l == ln->id || need < 0 || atomic_load(&e->lane[l].done) >= need)
				continue;
			int64_t t0 = fo_now_ns();
			wait_for(e, l, need);
			fo_timeline_record(&e->timeline, ln->id, step, ~need, t0, fo_now_ns());
		}
		if (atomic_load(&e->failed))
			return;
		if (e->o.delay_seed)
			random_delay(e, ln);
		int64_t t0 = fo_now_ns();
		fo_status st = run_instance(e, ln, id);
		fo_timeline_record(&e->timeline, ln->id, step, id, t0, fo_now_ns());
		if (st != FO_OK) {
			fail(e, st);
			return;
		}
		finished(e, ln, id);
	}
}

static void *lane_thread(void *arg)
{
	struct lane *ln = arg;
	struct fo_exec *e = ln->e;
	int64_t seen = 0;
	for (;;) {
		pthread_mutex_lock(&e->lock);
		while (e->generation == seen && !e->quit)
			pthread_cond_wait(&e->wake, &e->lock);
		seen = e->generation;
		bool quit = e->quit;
		int32_t step = e->step;
		pthread_mutex_unlock(&e->lock);
		if (quit)
			return NULL;
		run_lane(ln, step);
		pthread_mutex_lock(&e->lock);
		e->running--;
		pthread_cond_broadcast(&e->wake);
		pthread_mutex_unlock(&e->lock);
	}
}

void fo_exec_weights_changed(struct fo_exec *e) { e->derived = false; }

fo_status fo_exec_fetch(struct fo_exec *e)
{
	(void)e;
	return FO_OK;
}

double fo_exec_around_seconds(const struct fo_exec *e)
{
	(void)e;
	return NAN;
}

static fo_status derive(struct fo_exec *e)
{
	for (int i = 0; i < e->u.n && !e->derived; i++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, i);
		if (o->phase == FO_DERIVE)
			FO_TRY(run_instance(e, &e->lane[o->lane], i));
	}
	e->derived = true;
	return FO_OK;
}

fo_status fo_exec_step(struct fo_exec *e, int32_t step)
{
	FO_TRY(derive(e));
	pthread_mutex_lock(&e->lock);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		atomic_store(&e->lane[l].done, -1);
		atomic_store(&e->lane[l].wanted, INT32_MAX);
		e->running += e->lane[l].started;
	}
	atomic_store(&e->failed, false);
	e->step = step;
	e->generation++;
	pthread_cond_broadcast(&e->wake);
	pthread_mutex_unlock(&e->lock);
	run_lane(&e->lane[FO_LANE_COMPUTE], step);
	pthread_mutex_lock(&e->lock);
	while (e->running)
		pthread_cond_wait(&e->wake, &e->lock);
	pthread_mutex_unlock(&e->lock);
	return atomic_load(&e->failed) ? fo_err_raise(&e->error) : FO_OK;
}

fo_status fo_exec_step_in_order(struct fo_exec *e, const int *order)
{
	FO_TRY(derive(e));
	/* Each with the threads and workspace of its own lane: that is what was asked for its kernel. */
	for (int i = 0; i < e->u.n; i++)
		FO_TRY(run_instance(e, &e->lane[fo_instance_op(e->p, &e->u, order[i])->lane], order[i]));
	return FO_OK;
}

struct around {
	struct fo_exec *e;
	int id;
	fo_status st;
};
static void run_around(void *arg)
{
	struct around *a = arg;
	a->st = run_instance(a->e, &a->e->lane[fo_instance_op(a->e->p, &a->e->u, a->id)->lane], a->id);
}

fo_status fo_exec_step_around(struct fo_exec *e, fo_exec_around_fn *around, void *ctx)
{
	FO_TRY(derive(e));
	for (int i = 0; i < e->u.n; i++) {
		struct around a = { e, i, FO_OK };
		if (fo_op_info(fo_instance_op(e->p, &e->u, i)->kind)->cls == FO_CLASS_HOST)
			run_around(&a);
		else
			around(ctx, i, run_around, &a);
		if (a.st != FO_OK)
			return a.st;
	}
	return FO_OK;
}

/* ---- looking for the first number that is not finite ---- */

static bool find_nonfinite(const struct fo_tensor *t, struct fo_exec_fault *f)
{
	if (t->dtype == FO_I32 || t->dtype == FO_I16)
		return false;
	for (int64_t r = 0; r < t->rows; r++)
		for (int64_t c = 0; c < t->cols; c++) {
			int64_t at = r * t->ld + c;
			double v = t->dtype == FO_F64    ? ((const double *)t->data)[at]
				   : t->dtype == FO_BF16 ? (double)fo_bf16_to_f32(((const uint16_t *)t->data)[at])
				   : t->dtype == FO_E4M3 ? (double)fo_e4m3_to_f32(((const uint8_t *)t->data)[at])
				   : t->dtype == FO_E5M2 ? (double)fo_e5m2_to_f32(((const uint8_t *)t->data)[at])
							 : (double)((const float *)t->data)[at];
			if (isfinite(v))
				continue;
			f->row = r;
			f->col = c;
			f->value = v;
			return true;
		}
	return false;
}

/* "weight 'model.layers.3.mlp.up_proj.weight'" for a parameter's buffers, else "gate". */
static void name_operand(const struct fo_exec *e, const struct fo_op *o, int operand, int layer, char *out, size_t size)
{
	static const char *const role[] = { "weight", "master weight", "first moment", "second moment" };
	int buf = o->arg[operand].buf;
	for (int q = 0; q < e->p->nparam; q++) {
		const struct fo_param *pr = &e->p->param[q];
		const int16_t have[] = { pr->weight, pr->master, pr->m, pr->v };
		for (int k = 0; k < 4; k++) {
			if (have[k] != buf)
				continue;
			const char *brace = strstr(pr->name, "{}");
			if (brace)
				snprintf(out, size, "the %s '%.*s%d%s'", role[k], (int)(brace - pr->name), pr->name,
					 layer, brace + 2);
			else
				snprintf(out, size, "the %s '%s'", role[k], pr->name);
			return;
		}
	}
	snprintf(out, size, "'%s'", e->p->buf[buf].name);
}

static void describe_fault(const struct fo_exec *e, struct fo_exec_fault *f)
{
	const struct fo_slot *s = &e->p->slot[e->u.slot[f->instance]];
	const struct fo_block *b = &e->p->block[s->block];
	const struct fo_op *o = &b->op[e->u.op[f->instance]];
	const struct fo_life *l = &e->u.life[e->u.life_of[e->u.arg_begin[f->instance] + f->operand]];
	char where[96], what[112];
	if (b->unit == FO_UNIT_LAYER)
		snprintf(where, sizeof where, "layer %d", s->layer);
	else
		snprintf(where, sizeof where, "the %s", b->unit == FO_UNIT_EMBED ? "embedding"
							: b->unit == FO_UNIT_HEAD ? "head" : "step");
	if (b->role != FO_ROLE_OPTIMIZER && b->unit != FO_UNIT_STEP)
		snprintf(where + strlen(where), sizeof where - strlen(where), " (%s, micro-batch %d)",
			 fo_phase_name[o->phase], s->mb + 1);
	name_operand(e, o, f->operand, l->layer, what, sizeof what);
	snprintf(f->text, sizeof f->text,
		 f->read ? "%s of %s read the first value that is not finite: %s[row %lld, column %lld] = %g"
			 : "%s of %s made the first value that is not finite: %s[row %lld, column %lld] = %g; all it read "
			   "was finite",
		 fo_op_info(o->kind)->name, where, what, (long long)f->row, (long long)f->col, f->value);
}

/* The operands' rectangles as run_instance gives them to a kernel. */
static struct fo_tensor operand_of(const struct fo_exec *e, int id, const struct fo_op *o, int i)
{
	const struct fo_operand *a = &o->arg[i];
	const struct fo_buffer *b = &e->p->buf[a->buf];
	struct fo_tensor t = { .rows = a->nr, .cols = a->nc, .ld = b->cols, .dtype = b->dtype };
	t.data = (unsigned char *)e->data[e->u.life_of[e->u.arg_begin[id] + i]] +
		 (a->r0 * b->cols + a->c0) * (int64_t)fo_dtype_bytes(b->dtype);
	return t;
}

fo_status fo_exec_find_fault(struct fo_exec *e, struct fo_exec_fault *out)
{
	*out = (struct fo_exec_fault){ .instance = -1 };
	for (int id = 0; id < e->u.n; id++) {
		const struct fo_op *o = fo_instance_op(e->p, &e->u, id);
		bool changes = false;
		for (int i = 0; i < o->n; i++)
			changes |= fo_access_writes(o->arg[i].access) && fo_home_persists(e->p->buf[o->arg[i].buf].home);
		if (changes)
			continue;
		/* What it adds to is its own output's past: looked at when it was made. */
		for (int i = 0; i < o->n; i++) {
			struct fo_tensor t = operand_of(e, id, o, i);
			if (fo_access_reads(o->arg[i].access) && find_nonfinite(&t, out)) {
				out->read = true;
				out->operand = i;
				out->instance = id;
				describe_fault(e, out);
				return FO_OK;
			}
		}
		FO_TRY(run_instance(e, &e->lane[o->lane], id));
		for (int i = 0; i < o->n; i++) {
			struct fo_tensor t = operand_of(e, id, o, i);
			if (fo_access_writes(o->arg[i].access) && find_nonfinite(&t, out)) {
				out->operand = i;
				out->instance = id;
				describe_fault(e, out);
				return FO_OK;
			}
		}
	}
	return FO_OK;
}

/* ---- setting up ---- */

static void prepare_ops(struct fo_exec *e)
{
	const struct fo_program *p = e->p;
	e->op = fo_xmalloc((size_t)(p->nblock + 1) * sizeof *e->op);
	for (int b = 0; b < p->nblock; b++) {
		e->op[b] = fo_xmalloc((size_t)(p->block[b].n + 1) * sizeof **e->op);
		for (int i = 0; i < p->block[b].n; i++) {
			const struct fo_op *o = &p->block[b].op[i];
			struct prepared *pr = &e->op[b][i];
			struct lane *ln = &e->lane[o->lane];
			pr->call = (struct fo_call){
				.kind = o->kind, .n = o->n, .attr = o->attr, .threads = ln->threads
			};
			for (int k = 0; k < o->n; k++) {
				const struct fo_operand *a = &o->arg[k];
				pr->call.arg[k] = (struct fo_tensor){ .rows = a->nr,
								      .cols = a->nc,
								      .ld = p->buf[a->buf].cols,
								      .dtype = p->buf[a->buf].dtype };
			}
			if (fo_op_info(o->kind)->cls == FO_CLASS_HOST)
				continue;
			const struct fo_kernel_set *set;
			pr->kernel = fo_kernel_pick(e->o.isa, &pr->call, &set);
			pr->isa = set->isa;
			size_t ws = pr->kernel->ws ? pr->kernel->ws(&pr->call) : 0;
			if (ws > ln->ws_bytes)
				ln->ws_bytes = ws;
		}
	}
}

static fo_status place_lives(struct fo_exec *e)
{
	e->data = fo_xmalloc((size_t)(e->u.nlife + 1) * sizeof *e->data);
	for (int i = 0; i < e->u.nlife; i++) {
		const struct fo_life *l = &e->u.life[i];
		const struct fo_buffer *b = &e->p->buf[l->buf], *have;
		if (!l->persists) {
			e->data[i] = (b->home == FO_HOME_HOST ? e->host_arena : e->arena) + l->offset;
			continue;
		}
		e->data[i] = fo_store_find(e->store, b->name, l->layer, &have);
		/* A shorter table (fewer positions) is a prefix of a longer one. */
		if (!e->data[i] || have->dtype != b->dtype || have->cols != b->cols ||
		    (have->rows != b->rows && (b->home != FO_HOME_CONST || have->rows < b->rows)))
			return fo_fail(FO_EBUG, "the store has no buffer '%s' (%s, %lld x %lld) of layer %d", b->name,
				       fo_dtype_name[b->dtype], (long long)b->rows, (long long)b->cols, l->layer);
	}
	return FO_OK;
}

static void assign_lanes(struct fo_exec *e)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *ln = &e->lane[l];
		ln->e = e;
		ln->id = l;
		ln->threads = l == FO_LANE_COMPUTE ? e->o.threads : 1;
		ln->instance = fo_xmalloc((size_t)(e->u.n + 1) * sizeof *ln->instance);
	}
	for (int i = 0; i < e->u.n; i++) {
		struct lane *ln = &e->lane[fo_instance_op(e->p, &e->u, i)->lane];
		ln->instance[ln->n++] = i;
	}
}

static fo_status start_lanes(struct fo_exec *e)
{
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		struct lane *ln = &e->lane[l];
		if (ln->ws_bytes)
			FO_TRY(fo_pages_new(ln->ws_bytes, &ln->ws));
		if (l == FO_LANE_COMPUTE || !ln->n)
			continue;
		if (pthread_create(&ln->thread, NULL, lane_thread, ln))
			return fo_fail(FO_ENOMEM, "cannot start the thread of lane %s", fo_lane_name[l]);
		ln->started = true;
	}
	return FO_OK;
}

static fo_status set_up(struct fo_exec *e, struct fo_exec *share)
{
	FO_TRY(fo_unroll(e->p, &e->u));
	fo_plan(e->p, &e->u);
	fo_prune_waits(e->p, &e->u);
	assign_lanes(e);
	prepare_ops(e);
	if (share && share->arena_bytes >= (size_t)e->u.arena_bytes) {
		e->arena = share->arena;
	} else {
		void *arena;
		fo_status st = fo_pages_new((size_t)e->u.arena_bytes, &arena);
		if (st != FO_OK)
			return fo_wrap(st, "cannot hold the step's activations and gradients");
		e->arena = arena;
		e->arena_bytes = (size_t)e->u.arena_bytes;
		e->owns_arena = true;
	}
	if (e->u.host_arena_bytes) {
		void *host;
		FO_TRY(fo_pages_new((size_t)e->u.host_arena_bytes, &host));
		e->host_arena = host;
	}
	FO_TRY(place_lives(e));
	FO_TRY(fo_timeline_init(&e->timeline, e->p, &e->u, e->o.timeline_steps ? e->o.timeline_steps : 64));
	e->timeline.origin_ns = fo_now_ns();
	return start_lanes(e);
}

fo_status fo_exec_new(struct fo_exec **out, const struct fo_program *p, struct fo_store *s,
		      const struct fo_exec_options *o, fo_port_fn *port, void *ctx, struct fo_exec *share)
{
	if (o->cuda)
		return fo_fail(FO_EUNSUPPORTED, "training steps do not run on a device yet");
	struct fo_exec *e = fo_xmalloc(sizeof *e);
	e->p = p;
	e->store = s;
	e->o = *o;
#ifdef FO_DEBUG
	e->o.poison = true; /* a value that is used before it is written shows as NaN */
#endif
	e->port = port;
	e->ctx = ctx;
	pthread_mutex_init(&e->lock, NULL);
	pthread_cond_init(&e->wake, NULL);
	fo_status st = set_up(e, share);
	if (st != FO_OK) {
		fo_exec_free(e);
		return st;
	}
	*out = e;
	return FO_OK;
}

void fo_exec_free(struct fo_exec *e)
{
	if (!e)
		return;
	pthread_mutex_lock(&e->lock);
	e->quit = true;
	pthread_cond_broadcast(&e->wake);
	pthread_mutex_unlock(&e->lock);
	for (int l = 0; l < FO_LANE_COUNT; l++) {
		if (e->lane[l].started)
			pthread_join(e->lane[l].thread, NULL);
		fo_pages_free(e->lane[l].ws, e->lane[l].ws_bytes);
		free(e->lane[l].instance);
	}
	for (int b = 0; e->op && b < e->p->nblock; b++)
		free(e->op[b]);
	free(e->op);
	free(e->data);
	if (e->owns_arena)
		fo_pages_free(e->arena, e->arena_bytes);
	fo_pages_free(e->host_arena, (size_t)e->u.host_arena_bytes);
	fo_timeline_fini(&e->timeline);
	fo_unrolled_fini(&e->u);
	pthread_cond_destroy(&e->wake);
	pthread_mutex_destroy(&e->lock);
	free(e);
}

const struct fo_unrolled *fo_exec_unrolled(const struct fo_exec *e) { return &e->u; }
struct fo_timeline *fo_exec_timeline(struct fo_exec *e) { return &e->timeline; }

struct fo_memory fo_exec_memory(const struct fo_exec *e)
{
	struct fo_memory m = { .arena = (int64_t)fo_pages_size((size_t)e->u.arena_bytes),
			       .persistent = (int64_t)fo_pages_size((size_t)fo_store_bytes(e->store)),
			       .host_arena = e->u.host_arena_bytes ? (int64_t)fo_pages_size((size_t)e->u.host_arena_bytes) : 0,
			       .max_live = e->u.max_live_bytes };
	for (int l = 0; l < FO_LANE_COUNT; l++)
		m.workspace += e->lane[l].ws_bytes ? (int64_t)fo_pages_size(e->lane[l].ws_bytes) : 0;
	return m;
}

void fo_exec_kernels(const struct fo_exec *e, int count[FO_ISA_COUNT])
{
	memset(count, 0, FO_ISA_COUNT * sizeof *count);
	for (int i = 0; i < e->u.n; i++) {
		const struct prepared *pr = &e->op[e->p->slot[e->u.slot[i]].block][e->u.op[i]];
		if (pr->kernel)
			count[pr->isa]++;
	}
}

int fo_exec_codes(const struct fo_exec *e, struct fo_exec_code out[FO_EXEC_CODES_MAX])
{
	int count[FO_ISA_COUNT], n = 0;
	fo_exec_kernels(e, count);
	for (int i = FO_ISA_COUNT - 1; i >= 0; i--)
		if (count[i])
			out[n++] = (struct fo_exec_code){ fo_isa_name[i], count[i] };
	return n;
}
