/* Encoding one text on many threads: it is cut at places that change no ids, and the parts' ids are laid end to end. */
#include "data/data_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Much more work than starting a part costs, and little enough that the slowest thread does not finish long after the
 * others. */
#define PART ((size_t)1 << 20)
#define MAX_THREADS 1024

struct part {
	size_t from, to, n, cap;
	int32_t *ids;
};

struct team {
	const struct fo_tokenizer *t;
	const char *text;
	struct part *part;
	size_t parts;
	atomic_size_t next;
};

struct member {
	struct team *team;
	struct fo_encoder *encoder;
	pthread_t thread;
	struct fo_err err; /* an error's text belongs to the thread that raised it */
};

static void *work(void *arg)
{
	struct member *m = arg;
	fo_status st = FO_OK;
	for (size_t i; st == FO_OK && (i = atomic_fetch_add(&m->team->next, 1)) < m->team->parts;) {
		struct part *p = &m->team->part[i];
		st = fo_encoder_encode(m->encoder, m->team->text + p->from, p->to - p->from, i == 0, &p->ids, &p->n,
				       &p->cap);
	}
	fo_err_save(&m->err, st);
	return NULL;
}

static void cut(struct team *team, size_t len)
{
	size_t cap = 0;
	for (size_t at = 0, end; at < len; at = end) {
		end = len - at > PART ? fo_tokenizer_cut(team->t, team->text, len, at + PART) : len;
		fo_array_room(&team->part, &cap, team->parts, sizeof *team->part);
		team->part[team->parts++] = (struct part){ .from = at, .to = end };
	}
}

/* Runs members 1 .. n - 1 in threads of their own and member 0 here; those that cannot be started leave their share to
 * the others. */
static fo_status run(struct member *m, int n)
{
	int started = 1;
	while (started < n && pthread_create(&m[started].thread, NULL, work, &m[started]) == 0)
		started++;
	work(&m[0]);
	for (int i = 1; i < started; i++)
		pthread_join(m[i].thread, NULL);
	for (int i = 0; i < started; i++)
		if (m[i].err.st != FO_OK)
			return fo_err_raise(&m[i].err);
	return FO_OK;
}

fo_status fo_tokenizer_encode_threads(const struct fo_tokenizer *t, const char *text, size_t len, int threads,
				      int32_t **ids, size_t *n, size_t *cap)
{
	if (threads < 1 || threads > MAX_THREADS)
		return fo_fail(FO_EARG, "%d threads cannot encode a text: 1 to %d", threads, MAX_THREADS);
	struct team team = { .t = t, .text = text };
	cut(&team, len);
	if ((size_t)threads > team.parts)
		threads = team.parts ? (int)team.parts : 1;
	struct member *m = fo_xmalloc((size_t)threads * sizeof *m);
	fo_status st = FO_OK;
	for (int i = 0; i < threads && st == FO_OK; i++) {
		m[i].team = &team;
		st = fo_encoder_new(t, &m[i].encoder);
	}
	if (st == FO_OK)
		st = run(m, threads);
	for (size_t i = 0; i < team.parts; i++) {
		struct part *p = &team.part[i];
		if (st == FO_OK && p->n) {
			fo_array_room(ids, cap, *n + p->n, sizeof **ids);
			memcpy(*ids + *n, p->ids, p->n * sizeof *p->ids);
			*n += p->n;
		}
		free(p->ids);
	}
	for (int i = 0; i < threads; i++)
		fo_encoder_free(m[i].encoder);
	free(m);
	free(team.part);
	return st;
}
