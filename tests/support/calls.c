#include "support/calls.h"

#include "base/rng.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdlib.h>

double drawn_input(uint64_t salt, int rank, int64_t i, bool rough)
{
	const uint64_t v = fo_rng_u64(salt + (uint64_t)rank, (uint64_t)i);
	if (!rough)
		return (double)(int)(v % 61) / 8 - 3.75;
	if (v % 997 == 0)
		return v >> 32 & 1 ? INFINITY : NAN;
	return ldexp((double)(v >> 11) - 0x1p52, (int)(v % 13) - 56);
}

double drawn_before(const struct drawn_call *o, int64_t i, bool rough)
{
	return drawn_input(o->salt + 77, 0, i, rough);
}

static void put(char *at, int dtype, int64_t i, double v)
{
	const int whole = isfinite(v) ? (int)(8 * v) : 99;
	switch (dtype) {
	case FO_F64: ((double *)(void *)at)[i] = v; break;
	case FO_F32: ((float *)(void *)at)[i] = (float)v; break;
	case FO_BF16: ((uint16_t *)(void *)at)[i] = fo_bf16_from_f32((float)v); break;
	case FO_I32: ((int32_t *)(void *)at)[i] = whole; break;
	default: at[i] = (char)whole; break;
	}
}

/* How many elements a rank has and gets. */
static void count(struct drawn_call *o, int rank, int ranks)
{
	const struct fo_comm_call *k = &o->call;
	int64_t begin, own = fo_comm_part(k, rank, ranks, &begin), last = fo_comm_part(k, ranks - 1, ranks, &begin);
	o->from_n = k->kind == FO_COMM_BROADCAST || k->kind == FO_COMM_SHIFT ? (size_t)k->n : (size_t)(begin + last);
	o->to_n = o->from_n;
	if (k->kind == FO_COMM_ALL_GATHER)
		o->from_n = (size_t)own;
	if (k->kind == FO_COMM_REDUCE_SCATTER)
		o->to_n = (size_t)own;
}

static void place(struct drawn_call *o, int rank, int ranks, bool in_place)
{
	const enum fo_comm_kind kind = o->call.kind;
	const size_t size = fo_dtype_bytes(o->call.dtype);
	int64_t begin;
	fo_comm_part(&o->call, rank, ranks, &begin);
	in_place &= kind != FO_COMM_ALL_TO_ALL && kind != FO_COMM_SHIFT;
	o->own[0] = o->from = malloc(o->from_n * size + 1);
	o->own[1] = o->to = malloc(o->to_n * size + 1);
	if (in_place && kind == FO_COMM_ALL_GATHER)
		o->from = o->to + (size_t)begin * size;
	else if (in_place && kind == FO_COMM_REDUCE_SCATTER)
		o->to = o->from + (size_t)begin * size;
	else if (in_place)
		o->to = o->from;
}

void draw_call(struct drawn_call *o, uint64_t seed, uint64_t number, int rank, int ranks, bool rough)
{
	static const int type[] = { FO_F32, FO_BF16, FO_F64, FO_I32, FO_E4M3 };
	static const enum fo_comm_kind kind[] = { FO_COMM_ALL_REDUCE, FO_COMM_ALL_GATHER, FO_COMM_REDUCE_SCATTER,
						  FO_COMM_BROADCAST,  FO_COMM_ALL_TO_ALL, FO_COMM_SHIFT };
	const uint64_t v = fo_rng_u64(seed, number);
	struct fo_comm_call *k = &o->call;
	*k = (struct fo_comm_call){ .kind = kind[v % 6], .op = v >> 8 & 1 ? FO_COMM_SUM : FO_COMM_MAX };
	bool adds = k->kind == FO_COMM_ALL_REDUCE || k->kind == FO_COMM_REDUCE_SCATTER;
	k->dtype = type[(v >> 12) % (adds ? 3 : 5)];
	k->narrow = adds && k->op == FO_COMM_SUM && k->dtype == FO_F32 && v >> 42 & 1;
	k->accumulate = k->kind == FO_COMM_REDUCE_SCATTER && k->op == FO_COMM_SUM && v >> 43 & 1;
	k->n = (int64_t)((v >> 16) % DRAWN_MOST);
	if (v >> 50 & 1) /* fewer elements than ranks, and none */
		k->n %= 5;
	k->peer = (int)((v >> 32) % (unsigned)ranks);
	o->salt = v >> 20;
	if ((v >> 40 & 1) && (k->kind == FO_COMM_ALL_GATHER || k->kind == FO_COMM_REDUCE_SCATTER)) {
		k->part = o->part;
		for (int r = 0; r < ranks; r++)
			o->part[r] = (int64_t)(fo_rng_u64(v, (uint64_t)r) % 700);
		o->part[(v >> 52) % (unsigned)ranks] = 0;
	}
	count(o, rank, ranks);
	place(o, rank, ranks, (v >> 41 & 1) && !k->accumulate);
	for (size_t i = 0; i < o->from_n; i++)
		put(o->from, k->dtype, (int64_t)i,
		    drawn_input(o->salt, rank, (int64_t)i, rough) * (k->narrow ? DRAWN_FINE : 1));
	for (size_t i = 0; k->accumulate && i < o->to_n; i++)
		put(o->to, k->dtype, (int64_t)i, drawn_before(o, (int64_t)i, rough));
	k->from = o->from;
	k->to = o->to;
}

void drawn_free(struct drawn_call *o)
{
	free(o->own[0]);
	free(o->own[1]);
}
