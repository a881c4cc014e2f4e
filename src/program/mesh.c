/* Ranks as a mesh: groups, places in them, and the rows that each has. */
#include "program/program.h"

int32_t fo_mesh_group(const struct fo_mesh *m, enum fo_group g, int32_t *place, int32_t *colour)
{
	int32_t shard = m->shard ? m->shard : 1, ranks = fo_mesh_ranks(m), at = 0, same = m->rank;
	switch (g) {
	case FO_GROUP_DATA: at = m->rank, same = 0; break;
	case FO_GROUP_SHARD: at = m->rank % shard, same = m->rank / shard, ranks = shard; break;
	case FO_GROUP_REPLICATE: at = m->rank / shard, same = m->rank % shard, ranks /= shard; break;
	case FO_GROUP_NONE:
	case FO_GROUP_COUNT: ranks = 1; break;
	}
	if (place)
		*place = at;
	if (colour)
		*colour = same;
	return ranks;
}

int32_t fo_mesh_member(const struct fo_mesh *m, enum fo_group g, int32_t place)
{
	int32_t own;
	fo_mesh_group(m, g, &own, NULL);
	return m->rank + (place - own) * (g == FO_GROUP_REPLICATE && m->shard ? m->shard : 1);
}

int64_t fo_mesh_part(int64_t n, int32_t place, int32_t ranks, int64_t *begin)
{
	*begin = n * place / ranks;
	return n * (place + 1) / ranks - *begin;
}
