/* A program written out and read back is the same program; a damaged dump is refused or harmless. */
#include "support/step.h"
#include "base/clock.h"
#include "support/must.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void dump(const struct fo_program *p, struct fo_str *s)
{
	*s = (struct fo_str){ 0 };
	fo_program_dump(p, s);
}

static void test_round_trip(void **state)
{
	(void)state;
	const char *const name[] = { "tiny", "", "a name of words", "line\nbreak", "-x" };
	for (int k = 0; k < 15; k++) {
		struct fo_model m = step_model(1 + k % 3, 32, 4, 1 + k % 2, 48, 64, k % 2);
		struct fo_lowering low = { .seq = 8,
					   .rows = 1 + k % 2,
					   .micro_batches = 1 + k % 4,
					   .precision = (enum fo_numerics)(k % 3),
					   .mode = (enum fo_mode)(k / 3 % 3) };
		struct fo_program p, q;
		struct fo_str a, b;
		snprintf(m.name, sizeof m.name, "%s", name[k % 5]);
		m.rope.type = k % 2 ? FO_ROPE_LLAMA3 : FO_ROPE_DEFAULT;
		if (k % 2)
			m.rope.factor = 8.1, m.rope.low_freq_factor = 1. / 3, m.rope.high_freq_factor = 4,
			m.rope.original_max_position = 8192;
		m.norm_eps = 1e-5 / 3; /* not a short decimal */
		must(fo_program_lower(&p, &m, &low));
		dump(&p, &a);
		must(fo_program_parse(&q, a.data, a.len, "dump"));
		dump(&q, &b);
		assert_int_equal(a.len, b.len);
		assert_memory_equal(a.data, b.data, a.len);
		assert_true(fo_program_hash(&p) == fo_program_hash(&q));
		assert_true(q.next_id == p.next_id && q.tokens == p.tokens);
		fo_str_fini(&a), fo_str_fini(&b);
		fo_program_fini(&p), fo_program_fini(&q);
	}
}

static void run(struct fo_program *p, const struct step_batch *b, double loss[3], uint64_t *hash)
{
	struct step_rig r;
	struct fo_exec_options o = { .threads = 2, .timeline_steps = 1 };
	must(fo_isa_choose(&o.isa));
	step_rig_new(&r, p, b, &o);
	for (int i = 0; i < 3; i++) {
		step_rig_at(&r, i + 1);
		must(fo_exec_step(r.exec, i));
		loss[i] = r.loss[0];
	}
	*hash = step_rig_hash(&r);
	step_rig_free(&r);
}

static void test_reloaded_runs(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 64, 4, 2, 96, 128, false);
	struct step_batch b;
	step_batch_random(&b, 32, 2, 2, 128, 2, 3);
	for (int precision = 0; precision < FO_PRECISION_COUNT; precision++) {
		struct fo_program p, q;
		struct fo_str s;
		struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_TRAIN);
		double first[3], second[3];
		uint64_t h1, h2;
		must(fo_program_lower(&p, &m, &low));
		dump(&p, &s);
		must(fo_program_parse(&q, s.data, s.len, "dump"));
		fo_str_fini(&s);
		run(&p, &b, first, &h1);
		run(&q, &b, second, &h2);
		assert_memory_equal(first, second, sizeof first);
		assert_true(h1 == h2);
		assert_true(first[2] < first[0]);
	}
	step_batch_free(&b);
}

/* ---- damaged dumps ---- */

static uint64_t draws;
static size_t draw(size_t n) { return (size_t)(fo_rng_u64(99, draws++) % n); }

/* Begin of a random line. */
static size_t some_line(const struct fo_str *s)
{
	size_t at = draw(s->len);
	while (at && s->data[at - 1] != '\n')
		at--;
	return at;
}
static size_t line_length(const struct fo_str *s, size_t at)
{
	const char *end = memchr(s->data + at, '\n', s->len - at);
	return end ? (size_t)(end - s->data) - at + 1 : s->len - at;
}

static void splice(struct fo_str *out, const struct fo_str *s, size_t at, size_t drop, const char *insert, size_t n)
{
	*out = (struct fo_str){ 0 };
	fo_str_append(out, s->data, at);
	fo_str_append(out, insert, n);
	fo_str_append(out, s->data + at + drop, s->len - at - drop);
}

static void damage(const struct fo_str *s, struct fo_str *out)
{
	static const char *const number[] = { "0",
					      "-1",
					      "1",
					      "2",
					      "3",
					      "7",
					      "2147483647",
					      "-2147483648",
					      "9223372036854775807",
					      "99999999999999999999",
					      "1e308",
					      "nan",
					      "inf",
					      "0x10",
					      "" };
	size_t at = some_line(s), n = line_length(s, at);
	char byte;
	switch (draw(7)) {
	case 0: /* a byte */
		byte = (char)draw(256);
		splice(out, s, draw(s->len), 1, &byte, 1);
		return;
	case 1: splice(out, s, at, n, "", 0); return;
	case 2: splice(out, s, at, 0, s->data + at, n); return;
	case 3: { /* a line moves */
		size_t to = some_line(s);
		splice(out, s, to, 0, s->data + at, n);
		return;
	}
	case 4: /* cut off */
		at = draw(s->len);
		splice(out, s, at, s->len - at, "", 0);
		return;
	default: { /* a word becomes a number, or a word from another line */
		size_t word = at, end, spaces = 0, pick;
		for (size_t i = at; i < at + n; i++)
			spaces += s->data[i] == ' ';
		for (pick = draw(spaces + 1); pick && word < at + n; word++)
			pick -= s->data[word] == ' ';
		for (end = word; end < s->len && s->data[end] != ' ' && s->data[end] != '\n';)
			end++;
		if (draw(3)) {
			const char *w = number[draw(sizeof number / sizeof *number)];
			splice(out, s, word, end - word, w, strlen(w));
		} else {
			size_t other = some_line(s), stop = other;
			while (stop < s->len && s->data[stop] != ' ' && s->data[stop] != '\n')
				stop++;
			other = stop < s->len && s->data[stop] == ' ' ? stop + 1 : other;
			for (stop = other; stop < s->len && s->data[stop] != ' ' && s->data[stop] != '\n';)
				stop++;
			splice(out, s, word, end - word, s->data + other, stop - other);
		}
	}
	}
}

static bool same_run(const struct fo_program *p, const struct fo_program *q)
{
	const struct fo_model *a = &p->model, *b = &q->model;
	return p->run.seq == q->run.seq && p->run.rows == q->run.rows && p->run.micro_batches == q->run.micro_batches &&
	       p->run.mode == q->run.mode && a->layers == b->layers && a->vocab == b->vocab && a->hidden == b->hidden;
}

static fo_status ports(void *ctx, enum fo_port port, int mb, const struct fo_tensor *arg, int n)
{
	const struct step_batch *b = ctx;
	if (port == FO_PORT_BATCH) {
		const int32_t *const from[] = { b->token, b->target, b->position, b->doc_start };
		for (int i = 0; i < n && i < 4; i++)
			memcpy(arg[i].data, from[i] + mb * arg[i].rows, (size_t)arg[i].rows * sizeof(int32_t));
	} else if (port == FO_PORT_HYPER) {
		const double hyper[FO_HYPER_COUNT] = { 1e-3, 0.9, 0.95, 1e-8, 0.1, 0.1, 0.05, 1, 0.01 };
		memcpy(arg[0].data, hyper, sizeof hyper);
	}
	return FO_OK;
}

/* A damaged buffer may have any size, as long as it holds the rectangles that are used: flatout train refuses what
 * plans more than there is, and this test would fill it all under sanitizers, where fresh memory is poisoned. */
static bool plans_much(const struct fo_program *p)
{
	struct fo_unrolled u;
	if (fo_unroll(p, &u) != FO_OK)
		return true;
	fo_plan(p, &u);
	bool much = u.arena_bytes > 64 << 20 || u.persistent_bytes > 64 << 20;
	fo_unrolled_fini(&u);
	return much;
}

/* What passes the verifier may compute anything, but it must not touch memory that is not its own: run under
 * sanitizers. */
static bool try_to_run(struct fo_program *p, const struct step_batch *b)
{
	struct fo_store *s;
	struct fo_exec *e;
	struct fo_exec_options o = { .isa = FO_ISA_REF, .threads = 1, .timeline_steps = 1 };
	if (plans_much(p) || fo_isa_choose(&o.isa) != FO_OK || fo_store_new(&s, p) != FO_OK)
		return false;
	fo_store_init(s, p, 1);
	bool ran = false;
	if (fo_exec_new(&e, p, s, &o, ports, (void *)b, NULL) == FO_OK) {
		ran = fo_exec_step(e, 0) == FO_OK;
		fo_exec_free(e);
	}
	fo_store_free(s);
	return ran;
}

static void test_damaged(void **state)
{
	(void)state;
	struct fo_model m = step_model(1, 16, 2, 1, 24, 16, true);
	struct step_batch b;
	struct fo_program p, q;
	struct fo_str s, bad;
	step_batch_random(&b, 4, 1, 2, 16, 2, 3);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_BF16, FO_MODE_TRAIN);
	must(fo_program_lower(&p, &m, &low));
	dump(&p, &s);
	int refused = 0, ran = 0;
	for (int k = 0; k < 1500; k++) {
		damage(&s, &bad);
		if (k % 4 == 0) { /* a second wound */
			struct fo_str again;
			damage(&bad, &again);
			fo_str_fini(&bad);
			bad = again;
		}
		fo_err_clear();
		fo_status st = fo_program_parse(&q, bad.data, bad.len, "damaged");
		if (st != FO_OK) {
			refused++;
			assert_true(st == FO_EFORMAT || st == FO_EARG);
			assert_true(strlen(fo_err_text()) > 10 && !strchr(fo_err_text(), '\n'));
		} else {
			ran += same_run(&p, &q) && try_to_run(&q, &b);
			fo_program_fini(&q);
		}
		fo_str_fini(&bad);
	}
	print_message("1500 damaged dumps: %d refused, %d ran\n", refused, ran);
	assert_true(refused > 750);
	fo_str_fini(&s);
	fo_program_fini(&p);
	step_batch_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_round_trip), cmocka_unit_test(test_reloaded_runs),
					    cmocka_unit_test(test_damaged) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
