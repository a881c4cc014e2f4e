/* A fleet: how it is put together, where ranks stand in it, and whether it can be. */
#include "sim/fleet_int.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- building ---- */

int32_t fo_fleet_axis(struct fo_fleet *f, const char *name, int32_t ranks)
{
	f->axis_name[f->axes] = name;
	f->axis[f->axes] = ranks;
	return f->axes++;
}

int32_t fo_fleet_group(struct fo_fleet *f, const char *name, uint32_t axes)
{
	f->group[f->groups] = (struct fo_fleet_group){ name, axes, false };
	return f->groups++;
}

int32_t fo_fleet_link(struct fo_fleet *f, const char *name, int32_t ranks, bool serial)
{
	f->link[f->links] = (struct fo_fleet_link){ name, ranks, serial };
	return f->links++;
}

int32_t fo_fleet_name(struct fo_fleet *f, const char *name)
{
	for (int32_t i = f->names - 1; i >= 0; i--)
		if (!strcmp(f->name[i], name))
			return i;
	fo_array_room(&f->name, &f->name_cap, (size_t)f->names, sizeof *f->name);
	f->name[f->names] = fo_xstrdup(name);
	return f->names++;
}

struct fo_fleet_role *fo_fleet_role_add(struct fo_fleet *f, const char *name)
{
	fo_array_room(&f->role, &f->role_cap, (size_t)f->roles, sizeof *f->role);
	f->role[f->roles] = (struct fo_fleet_role){ .name = fo_xstrdup(name) };
	return &f->role[f->roles++];
}

int32_t fo_fleet_op_add(struct fo_fleet_role *r, struct fo_fleet_op op)
{
	fo_array_room(&r->op, &r->op_cap, (size_t)r->ops, sizeof *r->op);
	op.need_begin = r->needs;
	op.needs = 0;
	r->op[r->ops] = op;
	return r->ops++;
}

void fo_fleet_need(struct fo_fleet_role *r, int32_t earlier)
{
	fo_array_room(&r->need, &r->need_cap, (size_t)r->needs, sizeof *r->need);
	r->need[r->needs++] = earlier;
	r->op[r->ops - 1].needs++;
}

void fo_fleet_fini(struct fo_fleet *f)
{
	for (int32_t k = 0; k < f->roles; k++) {
		free(f->role[k].name);
		free(f->role[k].op);
		free(f->role[k].need);
	}
	for (int32_t i = 0; i < f->names; i++)
		free(f->name[i]);
	free(f->role);
	free(f->name);
	*f = (struct fo_fleet){ 0 };
}

/* ---- places ---- */

int32_t fo_fleet_ranks(const struct fo_fleet *f)
{
	int64_t ranks = 1;
	for (int32_t a = 0; a < f->axes; a++)
		ranks = f->axis[a] > 0 && ranks <= FO_FLEET_RANKS_MOST ? ranks * f->axis[a] : FO_FLEET_RANKS_MOST + 1;
	return ranks <= FO_FLEET_RANKS_MOST ? (int32_t)ranks : FO_FLEET_RANKS_MOST + 1;
}

/* The place among ranks that differ in a set of axes alone, slowest axis first. */
static int32_t place_on(const struct fo_fleet *f, uint32_t axes, int32_t rank, int32_t *ranks)
{
	int32_t place = 0, unit = 1;
	for (int32_t a = f->axes - 1; a >= 0; a--) {
		int32_t at = rank % f->axis[a];
		rank /= f->axis[a];
		if (!(axes >> a & 1))
			continue;
		place += at * unit;
		unit *= f->axis[a];
	}
	*ranks = unit;
	return place;
}

static int32_t rank_on(const struct fo_fleet *f, uint32_t axes, int32_t rank, int32_t place)
{
	int32_t other = 0, stride = 1;
	for (int32_t a = f->axes - 1; a >= 0; a--) {
		int32_t at = rank % f->axis[a];
		rank /= f->axis[a];
		if (axes >> a & 1) {
			at = place % f->axis[a];
			place /= f->axis[a];
		}
		other += at * stride;
		stride *= f->axis[a];
	}
	return other;
}

int32_t fo_fleet_on_axis(const struct fo_fleet *f, int32_t axis, int32_t rank)
{
	int32_t ranks;
	return place_on(f, 1u << axis, rank, &ranks);
}

int32_t fo_fleet_place(const struct fo_fleet *f, int32_t group, int32_t rank, int32_t *ranks)
{
	const struct fo_fleet_group *g = &f->group[group];
	int32_t n, place = place_on(f, g->axes, rank, &n);
	if (g->ends) {
		const bool end = n > 1 && (place == 0 || place == n - 1);
		place = end && place > 0;
		n = end ? 2 : 1;
	}
	if (ranks)
		*ranks = n;
	return place;
}

int32_t fo_fleet_member(const struct fo_fleet *f, int32_t group, int32_t rank, int32_t place)
{
	const struct fo_fleet_group *g = &f->group[group];
	int32_t n, own = place_on(f, g->axes, rank, &n);
	if (!g->ends)
		return rank_on(f, g->axes, rank, place);
	if (own > 0 && own < n - 1)
		return rank;
	return rank_on(f, g->axes, rank, place ? n - 1 : 0);
}

int32_t fo_fleet_colour(const struct fo_fleet *f, int32_t group, int32_t rank)
{
	return fo_fleet_member(f, group, rank, 0);
}

/* ---- what cannot be ---- */

static bool time_ok(double s) { return s >= 0 && s < INFINITY; }

static fo_status check_op(const struct fo_fleet *f, const struct fo_fleet_role *r, int32_t i)
{
	const struct fo_fleet_op *o = &r->op[i];
	if (o->name < 0 || o->name >= f->names || o->lane >= FO_LANE_COUNT || o->does > FO_FLEET_RECEIVES)
		return fo_fail(FO_EARG, "operation %d of role '%s' has a name, a lane or a kind that is not there", i,
			       r->name);
	const char *name = f->name[o->name];
	if (!time_ok(o->seconds) || !time_ok(o->link_s) || !time_ok(o->before_s))
		return fo_fail(FO_EARG,
			       "'%s' of role '%s' takes %g s of ranks and %g s of links: both must be finite, "
			       "and none below 0",
			       name, r->name, o->seconds, o->link_s);
	if (o->does == FO_FLEET_WORKS ? o->kind >= FO_CROWD_KINDS : o->group >= f->groups)
		return fo_fail(FO_EARG, "'%s' of role '%s' is of a group or kind that the job does not have", name,
			       r->name);
	if (o->does != FO_FLEET_WORKS && (o->link_s > 0 && o->link >= f->links))
		return fo_fail(FO_EARG, "'%s' of role '%s' takes a link that the job does not have", name, r->name);
	for (int32_t k = 0; k < o->needs; k++)
		if (r->need[o->need_begin + k] < 0 || r->need[o->need_begin + k] >= i)
			return fo_fail(FO_EARG,
				       "'%s' of role '%s' (operation %d) waits for operation %d, which is not "
				       "before it",
				       name, r->name, i, r->need[o->need_begin + k]);
	return FO_OK;
}

static fo_status check_shape(const struct fo_fleet *f)
{
	if (fo_fleet_ranks(f) > FO_FLEET_RANKS_MOST)
		return fo_fail(FO_EARG, "a mesh has an axis without ranks, or more than %d ranks", FO_FLEET_RANKS_MOST);
	if (f->roles < 1)
		return fo_fail(FO_EARG, "a job of %d ranks has no role", fo_fleet_ranks(f));
	for (int32_t g = 0; g < f->groups; g++)
		if (f->group[g].axes >> f->axes)
			return fo_fail(FO_EARG, "group '%s' is of axes that the mesh does not have", f->group[g].name);
	for (int32_t l = 0; l < f->links; l++)
		if (f->link[l].ranks < 1)
			return fo_fail(FO_EARG, "link '%s' is of %d ranks: 1 is the least", f->link[l].name,
				       f->link[l].ranks);
	if (!f->role_of && f->roles > 1 &&
	    (f->role_axis < 0 || f->role_axis >= f->axes || f->axis[f->role_axis] != f->roles))
		return fo_fail(FO_EARG, "a job has %d roles and no axis of as many places", f->roles);
	return FO_OK;
}

fo_status fo_fleet_check(const struct fo_fleet *f)
{
	const int32_t ranks = fo_fleet_ranks(f);
	FO_TRY(check_shape(f));
	for (int32_t r = 0; f->role_of && r < ranks; r++)
		if (f->role_of[r] < 0 || f->role_of[r] >= f->roles)
			return fo_fail(FO_EARG, "rank %d has role %d of %d", r, f->role_of[r], f->roles);
	for (int32_t k = 0; k < f->odds; k++) {
		const struct fo_fleet_odd *x = &f->odd[k];
		if (x->rank < 0 || x->rank >= ranks || (k && x->rank <= x[-1].rank))
			return fo_fail(FO_EARG, "rank %d, which differs, is not one of %d ranks, or not in their order",
				       x->rank, ranks);
		if (!(x->work > 0) || !(x->link > 0) || isinf(x->work) || isinf(x->link))
			return fo_fail(FO_EARG,
				       "rank %d takes %g times as long, its links %g times: both must be above 0",
				       x->rank, x->work, x->link);
	}
	if (!time_ok(f->jitter))
		return fo_fail(FO_EARG, "a jitter of %g cannot be", f->jitter);
	for (int32_t k = 0; k < f->roles; k++) {
		if (!time_ok(f->role[k].after_s))
			return fo_fail(FO_EARG, "%g s between operations of role '%s' cannot be", f->role[k].after_s,
				       f->role[k].name);
		for (int32_t i = 0; i < f->role[k].ops; i++)
			FO_TRY(check_op(f, &f->role[k], i));
	}
	return FO_OK;
}
