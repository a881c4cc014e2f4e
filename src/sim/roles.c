/* Which ranks of a mesh have programs that are equal in all that decides times.
 *
 * A program of two layers and one micro-batch tells roles apart as well as the whole one, and is made in a millisecond:
 * blocks depend on neither. Of pipelines, and where it cannot be made, the whole one is. */
#include "sim/ranks.h"

#include "base/count.h"
#include "base/mem.h"
#include "pass/pass.h"
#include "sim/fleet_int.h"

#include <stdlib.h>
#include <string.h>

enum { ALL_UP_TO = 256, SAMPLES = 64, SMALL_LAYERS = 2, AXES = 5 };

static uint64_t add(uint64_t h, uint64_t x) { return fo_fleet_mix(h ^ fo_fleet_mix(x)); }

static uint64_t op_key(const struct fo_program *p, const struct fo_op *o, uint64_t h)
{
	const struct fo_attr *a = &o->attr;
	const enum fo_op_family family = fo_op_family(o->kind);
	h = add(h, (uint64_t)o->kind << 32 | (uint64_t)o->lane << 24 | (uint64_t)o->group << 16 |
			   (uint64_t)o->phase << 8 | o->n);
	h = add(h, (uint64_t)a->ta << 8 | a->tb | (uint64_t)a->narrow << 16 | (uint64_t)(uint32_t)a->window << 32);
	h = add(h, (uint64_t)(uint32_t)a->head_dim << 32 | (uint32_t)a->chunk);
	if (family == FO_OPS_P2P) {
		int32_t place, ranks = fo_mesh_group(&p->run.mesh, (enum fo_group)o->group, &place, NULL);
		h = add(h, (uint64_t)((a->peer - place + ranks) % ranks));
	} else {
		/* Blocks of attention: how much of a block is seen depends on where it is. */
		h = add(h, (uint64_t)(uint32_t)a->peer << 32 | (uint32_t)(a->cp ? a->place : 0));
	}
	for (int i = 0; i < o->n; i++) {
		const struct fo_operand *x = &o->arg[i];
		h = add(h, (uint64_t)(uint16_t)x->buf << 32 | (uint64_t)(uint8_t)x->dlayer << 8 | x->access);
		h = add(h, (uint64_t)(uint32_t)x->nr << 32 | (uint32_t)x->nc);
	}
	return h;
}

static uint64_t key_of(const struct fo_program *p)
{
	uint64_t h = add(1, (uint64_t)p->tokens);
	h = add(h, (uint64_t)(uint32_t)p->layer_begin << 32 | (uint32_t)p->layer_end);
	for (int i = 0; i < p->nbuf; i++) {
		const struct fo_buffer *b = &p->buf[i];
		h = add(h, (uint64_t)b->dtype << 24 | (uint64_t)b->layout << 16 | (uint64_t)b->home << 8 | b->axes);
		h = add(add(h, (uint64_t)b->rows), (uint64_t)b->cols);
	}
	for (int b = 0; b < p->nblock; b++)
		for (int i = 0; i < p->block[b].n; i++)
			h = op_key(p, &p->block[b].op[i], add(h, (uint64_t)b));
	for (int s = 0; s < p->nslot; s++)
		h = add(h, (uint64_t)(uint16_t)p->slot[s].block << 48 | (uint64_t)(uint16_t)p->slot[s].layer << 32 |
				   (uint32_t)p->slot[s].mb);
	return h;
}

struct look {
	const struct fo_program *first;
	struct fo_model model;
	struct fo_lowering low;
};

static fo_status key_of_rank(const struct look *x, int32_t rank, uint64_t *key)
{
	struct fo_program p;
	struct fo_lowering low = x->low;
	low.mesh.rank = rank;
	FO_TRY(fo_pass_build(&p, &x->model, &low));
	*key = key_of(&p);
	fo_program_fini(&p);
	return FO_OK;
}

static struct look look_of(const struct fo_program *first)
{
	struct look x = { first, first->model, first->run };
	uint64_t key;
	/* Stages of a pipeline differ in their layers and in the order of their micro-batches. */
	if (first->model.layers <= SMALL_LAYERS || fo_mesh_pp(&first->run.mesh) > 1)
		return x;
	x.model.layers = SMALL_LAYERS;
	x.low.micro_batches = 1;
	if (key_of_rank(&x, 0, &key) == FO_OK)
		return x;
	return (struct look){ first, first->model, first->run };
}

/* A number for each key, in the order in which they come. */
struct keys {
	uint64_t *key;
	int n;
	size_t cap;
};

static int number_of(struct keys *k, uint64_t key)
{
	for (int i = 0; i < k->n; i++)
		if (k->key[i] == key)
			return i;
	fo_array_room(&k->key, &k->cap, (size_t)k->n, sizeof *k->key);
	k->key[k->n] = key;
	return k->n++;
}

static fo_status look_at_all(const struct look *x, int32_t *role_of, int32_t ranks)
{
	struct keys keys = { 0 };
	fo_status st = FO_OK;
	for (int32_t r = 0; r < ranks && st == FO_OK; r++) {
		uint64_t key = 0;
		st = key_of_rank(x, r, &key);
		role_of[r] = number_of(&keys, key);
	}
	free(keys.key);
	return st;
}

/* Roles as places on the axes say, and whether samples agree. */
static fo_status look_along_axes(const struct look *x, int32_t *role_of, int32_t ranks, bool *sure)
{
	const struct fo_mesh *m = &x->low.mesh;
	const int32_t size[AXES] = { fo_mesh_pp(m), (int32_t)fo_max(m->replicate, 1), (int32_t)fo_max(m->shard, 1),
				     fo_mesh_cp(m), fo_mesh_tp(m) };
	int32_t *of[AXES] = { NULL }, stride = ranks;
	struct keys keys = { 0 };
	fo_status st = FO_OK;
	for (int a = 0; a < AXES; a++) {
		struct keys along = { 0 };
		of[a] = fo_xmalloc((size_t)size[a] * sizeof **of);
		stride /= size[a];
		for (int32_t k = 0; k < size[a] && st == FO_OK; k++) {
			uint64_t key = 0;
			st = key_of_rank(x, k * stride, &key);
			of[a][k] = number_of(&along, key);
		}
		free(along.key);
	}
	for (int32_t r = 0; r < ranks && st == FO_OK; r++) {
		uint64_t key = 0;
		int32_t rest = r;
		for (int a = AXES - 1; a >= 0; rest /= size[a], a--)
			key = add(key, (uint64_t)of[a][rest % size[a]]);
		role_of[r] = number_of(&keys, key);
	}
	/* One of each role, and ranks anywhere: a role has one key, and no two have the same. */
	uint64_t *key_of_role = fo_xmalloc((size_t)(keys.n + 1) * sizeof *key_of_role);
	*sure = true;
	for (int32_t r = 0, seen = 0; r < ranks && seen < keys.n && st == FO_OK; r++)
		if (role_of[r] == seen)
			st = key_of_rank(x, r, &key_of_role[seen++]);
	for (int k = 0; k < SAMPLES && st == FO_OK && *sure; k++) {
		int32_t r = (int32_t)(fo_fleet_mix((uint64_t)k) % (uint64_t)ranks);
		uint64_t key = 0;
		st = key_of_rank(x, r, &key);
		*sure = key == key_of_role[role_of[r]];
	}
	for (int a = 0; a < AXES; a++)
		free(of[a]);
	free(key_of_role);
	free(keys.key);
	return st;
}

fo_status fo_sim_roles(const struct fo_program *first, int32_t **role_of, int32_t **first_of, int *roles)
{
	const int32_t ranks = first->ranks;
	const struct look x = look_of(first);
	bool sure = false;
	fo_status st = FO_OK;
	*roles = 0;
	*role_of = fo_xmalloc((size_t)ranks * sizeof **role_of);
	if (ranks > ALL_UP_TO)
		st = look_along_axes(&x, *role_of, ranks, &sure);
	if (st == FO_OK && !sure)
		st = look_at_all(&x, *role_of, ranks);
	*first_of = fo_xmalloc((size_t)ranks * sizeof **first_of);
	for (int32_t r = 0; r < ranks && st == FO_OK; r++)
		if ((*role_of)[r] == *roles)
			(*first_of)[(*roles)++] = r;
	return st;
}
