/* Guards: a step that must not be taken changes nothing, its cause is named, and going on is the same with and without
 * an interruption. */
#define _GNU_SOURCE /* sched_getaffinity; mkdtemp, setenv */

#include "support/step.h"
#include "base/clock.h"
#include "base/fs.h"
#include "train/session.h"
#include "support/must.h"

#include <dirent.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[256];

/* ---- one step ---- */

static struct fo_exec_options options(void)
{
	struct fo_exec_options o = { .threads = 2, .timeline_steps = 4 };
	must(fo_isa_choose(&o.isa));
	return o;
}

struct poison {
	const char *buffer;
	int layer;
	int64_t element;
	double value;
	const char *says; /* in the sentence */
};

static void set_value(struct step_rig *r, const struct poison *p)
{
	const struct fo_buffer *b;
	void *data = fo_store_find(r->store, p->buffer, p->layer, &b);
	assert_non_null(data);
	if (b->dtype == FO_BF16)
		((uint16_t *)data)[p->element] = fo_bf16_from_f32((float)p->value);
	else if (b->dtype == FO_F64)
		((double *)data)[p->element] = p->value;
	else
		((float *)data)[p->element] = (float)p->value;
}

/* In every precision: the step is refused, not a bit of the state changes, and the sentence names who was first. */
static void test_first_fault(void **state)
{
	(void)state;
	static const struct poison poison[] = {
		{ "wq", 1, 5, INFINITY,
		  "matmul of layer 1 (forward, micro-batch 1) read the first value that is not finite: the weight "
		  "'model.layers.1.self_attn.q_proj.weight'[row 0, column 5] = inf" },
		{ "g2", 0, 3, NAN,
		  "rmsnorm of layer 0 (forward, micro-batch 1) read the first value that is not finite: the weight "
		  "'model.layers.0.post_attention_layernorm.weight'[row 0, column 3] = nan" },
		{ "g2", 0, 3, -NAN, "'model.layers.0.post_attention_layernorm.weight'[row 0, column 3] = nan" },
		{ "wte", 0, 1, -INFINITY,
		  "embed of the embedding (forward, micro-batch 1) read the first value that is not finite: the weight "
		  "'model.embed_tokens.weight'[row 0, column 1] = -inf" },
	};
	struct fo_model m = step_model(3, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 12, 2, 2, 50, 2, 8);
	for (int i = 0; i < b.seq * b.rows * b.micro_batches; i++)
		b.token[i] = i == 0 ? 0 : b.token[i]; /* the first token's row of the embedding is used */
	for (int precision = 0; precision < 2; precision++)
		for (size_t k = 0; k < sizeof poison / sizeof *poison; k++) {
			struct step_rig r;
			struct fo_exec_options o = options();
			struct fo_exec_fault f;
			struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_TRAIN);
			step_rig_lower(&r, &m, &low, &b, &o);
			must(fo_exec_step(r.exec, 0));
			assert_true(r.scale[0] >= 0);
			must(fo_exec_find_fault(r.exec, &f)); /* a good step has none */
			assert_int_equal(f.instance, -1);
			set_value(&r, &poison[k]);
			uint64_t before = step_rig_hash(&r);
			must(fo_exec_step(r.exec, 1));
			assert_true(r.scale[0] == -1 && !isfinite(r.scale[1]));
			assert_true(step_rig_hash(&r) == before);
			must(fo_exec_find_fault(r.exec, &f));
			assert_true(f.instance >= 0 && step_rig_hash(&r) == before);
			if (!strstr(f.text, poison[k].says))
				fail_msg("precision %d: '%s' does not say '%s'", precision, f.text, poison[k].says);
			step_rig_free(&r);
		}
	step_batch_free(&b);
}

/* A number that overflows on the way: it is the operation that is named, and in which micro-batch. */
static void test_overflow_is_named(void **state)
{
	(void)state;
	struct fo_model m = step_model(3, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	struct step_rig r;
	struct fo_exec_options o = options();
	struct fo_exec_fault f;
	step_batch_random(&b, 12, 1, 2, 50, 0, 8);
	struct fo_lowering low = step_lowering(&b, FO_PRECISION_F32, FO_MODE_TRAIN);
	step_rig_lower(&r, &m, &low, &b, &o);
	must(fo_exec_step(r.exec, 0));
	for (int64_t i = 0; i < 40; i++) {
		set_value(&r, &(struct poison){ "wg", 2, i * 32, 3e38, "" });
		set_value(&r, &(struct poison){ "wg", 2, i * 32 + 1, 3e38, "" });
		set_value(&r, &(struct poison){ "wg", 2, i * 32 + 2, 3e38, "" });
	}
	uint64_t before = step_rig_hash(&r);
	must(fo_exec_step(r.exec, 1));
	assert_true(r.scale[0] == -1 && step_rig_hash(&r) == before);
	must(fo_exec_find_fault(r.exec, &f));
	if (strncmp(f.text,
		    "matmul of layer 2 (forward, micro-batch 1) made the first value that is not finite: 'gate'[row ",
		    95) ||
	    !strstr(f.text, "all it read was finite"))
		fail_msg("%s", f.text);
	step_rig_free(&r);
	step_batch_free(&b);
}

/* The limit on the loss: refused above it, taken at it; a step that was refused leaves no trace in the next one. */
static void test_loss_limit(void **state)
{
	(void)state;
	struct fo_model m = step_model(2, 32, 4, 2, 40, 50, false);
	struct step_batch b;
	step_batch_random(&b, 12, 2, 2, 50, 2, 8);
	for (int precision = 0; precision < 2; precision++) {
		uint64_t hash[2];
		for (int refuse = 0; refuse < 2; refuse++) {
			struct step_rig r;
			struct fo_exec_options o = options();
			struct fo_lowering low = step_lowering(&b, (enum fo_numerics)precision, FO_MODE_TRAIN);
			step_rig_lower(&r, &m, &low, &b, &o);
			must(fo_exec_step(r.exec, 0));
			if (refuse) {
				uint64_t before = step_rig_hash(&r);
				r.hyper[FO_HYPER_LOSS_LIMIT] = r.loss[0] / 2;
				must(fo_exec_step(r.exec, 1));
				assert_true(r.scale[0] == -1 && isfinite(r.scale[1]) && step_rig_hash(&r) == before);
				r.hyper[FO_HYPER_LOSS_LIMIT] = r.loss[0];
			}
			must(fo_exec_step(r.exec, 2));
			assert_true(r.scale[0] >= 0);
			hash[refuse] = step_rig_hash(&r);
			step_rig_free(&r);
		}
		assert_true(hash[0] == hash[1]);
	}
	step_batch_free(&b);
}

/* ---- the spike's formula ---- */

static void test_limit_formula(void **state)
{
	(void)state;
	struct fo_run r = { .guard_spike = FO_SPIKE_WARN, .guard_spike_z = 4, .guard_spike_window = 8 };
	struct fo_ckpt_meta m = { 0 };
	double median = 0, deviation = 0;
	static const double loss[] = { 9, 3.0, 3.2, 2.9, 3.5, 3.1, 3.3, 2.8, 3.4 };
	for (int i = 0; i < 9; i++) {
		double limit = fo_guard_limit(&r, &m, &median, &deviation);
		assert_true(i < 4 ? limit == 0 : limit > 3);
		fo_guard_remember(&r, &m, loss[i]);
	}
	/* The 9 has left the window. Median of 8: between 3.1 and 3.2; distances .15 .05 .25 .35 .05 .15 .35 .25:
	 * median .2. */
	double limit = fo_guard_limit(&r, &m, &median, &deviation);
	assert_int_equal(m.losses, 8);
	assert_true(fabs(median - 3.15) < 1e-12 && fabs(deviation - 1.4826 * 0.2) < 1e-12);
	assert_true(fabs(limit - (3.15 + 4 * 1.4826 * 0.2)) < 1e-12);
	/* Losses that hardly differ: the deviation is what bf16 resolves. */
	for (int i = 0; i < 8; i++)
		fo_guard_remember(&r, &m, 2);
	assert_true(fo_guard_limit(&r, &m, &median, &deviation) == 2 + 4 * 2 / 256.0);
	r.guard_spike = FO_SPIKE_OFF;
	assert_true(fo_guard_limit(&r, &m, &median, &deviation) == 0);
}

/* ---- runs ---- */

enum { STEPS = 48, GARBAGE = 17 }; /* the garbage document's number among the files */

struct watch {
	double loss[STEPS + 1]; /* of the last time a step was taken; 0: never */
	int steps, warnings, spikes;
	int64_t stop_after;
	volatile sig_atomic_t stop;
	int cpu, bound; /* the most threads seen that may use this processor only; */
	char warning[2048];
};

/* Threads of this process that may use this processor only. */
static int bound_threads(int cpu)
{
	int n = 0;
	DIR *d = opendir("/proc/self/task");
	assert_non_null(d);
	for (struct dirent *e; (e = readdir(d));) {
		cpu_set_t set;
		int id = atoi(e->d_name);
		n += id > 0 && !sched_getaffinity(id, sizeof set, &set) && CPU_COUNT(&set) == 1 && CPU_ISSET(cpu, &set);
	}
	closedir(d);
	return n;
}

static void on_step(void *ctx, const struct fo_train_step *s)
{
	struct watch *w = ctx;
	w->loss[s->step] = s->loss;
	w->steps++;
	int bound = bound_threads(w->cpu);
	w->bound = bound > w->bound ? bound : w->bound;
	w->stop = s->step == w->stop_after;
}

static void on_warn(void *ctx, const char *text)
{
	struct watch *w = ctx;
	w->warnings++;
	w->spikes += strstr(text, "deviations above") != NULL;
	snprintf(w->warning, sizeof w->warning, "%s", text);
}

static void on_event(void *ctx, const struct fo_event *e)
{
	if (e->kind == FO_EVENT_STEP)
		on_step(ctx, e->taken);
	if (e->kind == FO_EVENT_WARNING)
		on_warn(ctx, e->warning);
}

struct setup {
	struct fo_run run;
	struct fo_opt_set options;
	char dir[512], text[512];
};

static void setup(struct setup *s, const char *name, const char *text)
{
	fo_opt_init(&s->options, fo_run_options, &s->run);
	struct fo_run *r = &s->run;
	snprintf(s->dir, sizeof s->dir, "%s/%s", folder, name);
	snprintf(s->text, sizeof s->text, "%s/%s", folder, text);
	r->dir = s->dir;
	r->data = s->text;
	r->layers = 1;
	r->hidden = 32;
	r->heads = 2;
	r->kv_heads = 1;
	r->head_dim = 16;
	r->ffn = 48;
	r->vocab = 300;
	r->seq = 64;
	r->rows = 1;
	r->micro_batches = 2;
	r->steps = STEPS;
	r->lr = 1e-2;
	r->warmup = 2;
	r->holdout = 10;
	r->threads = 1;
	r->precision = FO_RUN_FP32;
	r->eval_every = 0;
	r->ckpt_every = 8;
	r->ckpt_keep = 2;
	r->guard_spike_window = 16;
	r->guard_spike_z = 50; /* a text that is learned by heart has little noise */
}

static fo_status train(const struct setup *s, struct watch *w, struct fo_train_result *out)
{
	struct fo_train_hooks h = { .ctx = w, .event = on_event, .stop = &w->stop };
	w->stop = 0;
	return fo_train(&s->run, &h, out);
}

/* "documents 5 (text/a.txt), 9 (text/b.txt) of": is `doc` among them, and from this file? */
static bool names_document(const char *text, int64_t doc, const char *file)
{
	char want[64];
	snprintf(want, sizeof want, " %lld (", (long long)doc);
	const char *p = strstr(text, "the batch was document"), *end = p ? strstr(p, " of '") : NULL;
	p = p ? strstr(p, want) : NULL;
	const char *close = p ? strchr(p, ')') : NULL;
	return close && p < end && !strncmp(close - strlen(file), file, strlen(file));
}

/* The document of the shard with the most different ids for its length: the garbage. */
static int64_t garbage_document(const struct setup *s)
{
	char path[700];
	struct fo_shard shard;
	int64_t worst = -1, most = -1;
	snprintf(path, sizeof path, "%s/data/train.shard", s->dir);
	must(fo_shard_open(&shard, path));
	for (int64_t d = 0; d < shard.docs; d++) {
		char seen[512] = { 0 };
		int64_t different = 0;
		for (int64_t i = shard.doc_at[d]; i < shard.doc_at[d + 1]; i++) {
			different += !seen[shard.ids16[i]];
			seen[shard.ids16[i]] = 1;
		}
		if (different > most)
			most = different, worst = d;
	}
	fo_shard_close(&shard);
	return worst;
}

static void assert_same_file(const struct setup *a, const struct setup *b, const char *file)
{
	char pa[700], pb[700];
	struct fo_map ma, mb;
	snprintf(pa, sizeof pa, "%s/%s", a->dir, file);
	snprintf(pb, sizeof pb, "%s/%s", b->dir, file);
	must(fo_map_open(&ma, pa));
	must(fo_map_open(&mb, pb));
	if (ma.len != mb.len || memcmp(ma.data, mb.data, ma.len))
		fail_msg("'%s' and '%s' differ", pa, pb);
	fo_map_close(&ma);
	fo_map_close(&mb);
}

/* The state of the end, losses that guards look back at included. */
static void assert_same_end(const struct setup *a, const struct setup *b)
{
	assert_same_file(a, b, "checkpoints/step-00000048/model.safetensors");
	assert_same_file(a, b, "checkpoints/step-00000048/state.safetensors");
	assert_same_file(a, b, "checkpoints/step-00000048/training.json");
}

/* Weights are updated inside backward, bounded by the norm of the step before. */
static void update_in_backward(struct setup *s)
{
	s->run.optimizer_in_backward = true;
	s->run.clip_norm = FO_RUN_CLIP_PREVIOUS;
}

/* Each way to meet a spike; then the same run interrupted at several steps ends the same. The last two once more with
 * updates inside backward: the loss is known before the first of them. */
static void test_spikes(void **state)
{
	(void)state;
	static const char *const name[] = { "off", "warn", "skip", "rewind", "skip_early", "rewind_early" };
	for (int i = 0; i < 6; i++) {
		int mode = i > FO_SPIKE_REWIND ? i - 2 : i;
		struct setup whole, cut;
		struct watch w = { 0 };
		struct fo_train_result r;
		setup(&whole, name[i], "spiky");
		if (mode != i)
			update_in_backward(&whole);
		whole.run.guard_spike = mode;
		must(train(&whole, &w, &r));
		if (mode == FO_SPIKE_OFF)
			assert_int_equal(w.warnings, 0);
		else if (!w.spikes || !names_document(w.warning, garbage_document(&whole), "spiky/17.txt"))
			fail_msg("%s: %d spikes, document %lld not named: %s", name[i], w.spikes,
				 (long long)garbage_document(&whole), w.warning);
		assert_true((r.skipped > 0) == (mode == FO_SPIKE_SKIP) && (r.rewinds > 0) == (mode == FO_SPIKE_REWIND));
		assert_true(mode != FO_SPIKE_SKIP || w.steps == STEPS - r.skipped);
		assert_true(mode != FO_SPIKE_REWIND || w.steps > STEPS);
		print_message("%s: %d spikes, %lld skipped, %lld rewinds: %s\n", name[i], w.spikes,
			      (long long)r.skipped, (long long)r.rewinds, w.warning);
		fo_train_result_fini(&r);
		char dir[64];
		snprintf(dir, sizeof dir, "%s_cut", name[i]);
		setup(&cut, dir, "spiky");
		if (mode != i)
			update_in_backward(&cut);
		cut.run.guard_spike = mode;
		fo_status st = FO_EINTERRUPT;
		for (int at = 9; st == FO_EINTERRUPT; at += 9) { /* not where the periodic checkpoints are */
			w.stop_after = at < STEPS ? at : 0;
			st = train(&cut, &w, &r);
			fo_train_result_fini(&r);
		}
		must(st);
		assert_same_end(&whole, &cut);
		fo_opt_fini(&cut.options);
		fo_opt_fini(&whole.options);
	}
}

/* A spike in a folder that was prepared beforehand: its documents' files are named all the same, and where the shard
 * lies. */
static void test_prepared_documents(void **state)
{
	(void)state;
	struct setup first, s;
	struct watch w = { 0 };
	struct fo_train_result r;
	char data[700], says[800];
	setup(&first, "prepares", "spiky");
	first.run.steps = 1;
	must(train(&first, &w, &r));
	fo_train_result_fini(&r);
	setup(&s, "prepared", "spiky");
	snprintf(data, sizeof data, "%s/data", first.dir);
	snprintf(says, sizeof says, " of '%s/train.shard'", data);
	s.run.data = data;
	s.run.guard_spike = FO_SPIKE_WARN;
	must(train(&s, &w, &r));
	if (!names_document(w.warning, garbage_document(&first), "spiky/17.txt") || !strstr(w.warning, says))
		fail_msg("document %lld%s not named: %s", (long long)garbage_document(&first), says, w.warning);
	fo_train_result_fini(&r);
	fo_opt_fini(&s.options);
	fo_opt_fini(&first.options);
}

/* One thread computes on one processor: nothing that is started beside it is bound with it, not even by a rewind. */
static void test_rewind_leaves_others_free(void **state)
{
	(void)state;
	cpu_set_t allowed;
	int cpu = 0;
	char list[16];
	assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
	if (CPU_COUNT(&allowed) < 2)
		skip();
	while (!CPU_ISSET(cpu, &allowed))
		cpu++;
	struct setup s;
	struct watch w = { 0 };
	struct fo_train_result r;
	snprintf(list, sizeof list, "%d", cpu);
	w.cpu = cpu;
	setup(&s, "bound", "spiky");
	s.run.affinity = list;
	s.run.guard_spike = FO_SPIKE_REWIND;
	must(train(&s, &w, &r));
	assert_true(r.rewinds > 0);
	assert_int_equal(w.bound, 1);
	assert_int_equal(bound_threads(cpu), 0);
	fo_train_result_fini(&r);
	fo_opt_fini(&s.options);
}

/* A rate at which weight decay multiplies the weights by -99 each step: fp32 overflows within twenty. */
static void test_nonfinite(void **state)
{
	(void)state;
	struct setup s;
	struct watch w = { 0 };
	struct fo_train_result r;
	for (int precision = 0; precision < 2; precision++) {
		struct fo_ckpt_meta m;
		setup(&s, precision ? "diverges32" : "diverges16", "plain");
		s.run.precision = precision;
		s.run.lr = s.run.weight_decay = 10;
		s.run.schedule = FO_SCHEDULE_CONSTANT;
		s.run.guard_spike = FO_SPIKE_OFF;
		s.run.ckpt_every = 0;
		memset(&w, 0, sizeof w);
		assert_int_equal(train(&s, &w, &r), FO_ENUMERIC);
		if (!strstr(fo_err_text(), "the first value that is not finite") ||
		    !strstr(fo_err_text(), "document") || !strstr(fo_err_hint(), "is saved in"))
			fail_msg("%s / %s", fo_err_text(), fo_err_hint());
		print_message("%s\n", fo_err_text());
		/* What was good is saved, and finite. */
		assert_true(*r.checkpoint || w.steps == 0);
		must(fo_ckpt_open(r.checkpoint, &m));
		assert_true(m.step == w.steps && m.step > 0 && isfinite(m.loss) && isfinite(w.loss[m.step]));
		fo_train_result_fini(&r);
		/* Going on gives the same end; skipping stops after the given number in a row. */
		assert_int_equal(train(&s, &w, &r), FO_ENUMERIC);
		fo_train_result_fini(&r);
		s.run.guard_nonfinite = FO_NONFINITE_SKIP;
		s.run.guard_limit = 3;
		w.warnings = 0;
		assert_int_equal(train(&s, &w, &r), FO_ENUMERIC);
		assert_non_null(strstr(fo_err_text(), "3 steps in a row"));
		if (w.warnings != r.skipped || !strstr(w.warning, "skipped") ||
		    r.skipped < 3) /* some batches may pass */
			fail_msg("%d warnings, %lld skipped: %s", w.warnings, (long long)r.skipped, w.warning);
		fo_train_result_fini(&r);
		fo_opt_fini(&s.options);
	}
}

/* Updates inside backward: what is saved is finite, whether the loss told in time or only the norm did, too late. */
static void test_nonfinite_in_backward(void **state)
{
	(void)state;
	struct setup s;
	struct watch w = { 0 };
	struct fo_train_result r;
	struct fo_ckpt_meta m;
	setup(&s, "diverges_early", "plain");
	update_in_backward(&s);
	s.run.lr = s.run.weight_decay = 10;
	s.run.schedule = FO_SCHEDULE_CONSTANT;
	s.run.guard_spike = FO_SPIKE_OFF;
	s.run.ckpt_every = 2;
	assert_int_equal(train(&s, &w, &r), FO_ENUMERIC);
	bool late = strstr(fo_err_text(), "weights were updated before that was known");
	print_message("%s\n%s\n", fo_err_text(), fo_err_hint());
	assert_true(late || strstr(fo_err_text(), "the first value that is not finite"));
	struct fo_arena a = { 0 };
	char text[300], *path;
	snprintf(text, sizeof text, "%s/checkpoints", s.dir);
	must(fo_ckpt_newest(&a, text, false, &path));
	assert_non_null(path);
	must(fo_ckpt_open(path, &m));
	fo_arena_fini(&a);
	assert_true(isfinite(m.loss) && isfinite(m.grad_norm) &&
		    (late ? m.step % 2 == 0 && m.step <= w.steps : m.step == w.steps));
	fo_train_result_fini(&r);
	fo_opt_fini(&s.options);
}

/* ---- set-up ---- */

static void write_text(const char *dir, int file, bool garbage)
{
	static const char *const word[] = { "the ",  "quick ", "brown ", "fox ",  "jumps ",
					    "over ", "a ",     "lazy ",  "dog.\n" };
	char path[512], text[1200];
	size_t n = 0;
	snprintf(path, sizeof path, "%s/%s/%02d.txt", folder, dir, file);
	for (int i = 0; n < sizeof text - 16; i++) {
		if (garbage)
			text[n++] = (char)(33 + fo_rng_u64(7, (uint64_t)i) % 90);
		else
			n += (size_t)snprintf(text + n, sizeof text - n, "%s", word[i % 9]);
	}
	must(fo_fs_write_atomic(path, text, n));
}

static int make_folder(void **state)
{
	(void)state;
	char path[512];
	snprintf(folder, sizeof folder, "%s/flatout_guardXXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	if (!mkdtemp(folder))
		return -1;
	/* The peak is looked up here, not in the home of whoever tests. */
	setenv("XDG_CACHE_HOME", folder, 1);
	static const char *const dir[] = { "plain", "spiky" };
	for (int d = 0; d < 2; d++) {
		snprintf(path, sizeof path, "%s/%s", folder, dir[d]);
		must(fo_fs_mkdirs(path));
		for (int i = 0; i < 40; i++)
			write_text(dir[d], i, d == 1 && i == GARBAGE);
	}
	return 0;
}

static int remove_folder(void **state)
{
	(void)state;
	return fo_fs_remove_tree(folder) == FO_OK ? 0 : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_first_fault),
		cmocka_unit_test(test_overflow_is_named),
		cmocka_unit_test(test_loss_limit),
		cmocka_unit_test(test_limit_formula),
		cmocka_unit_test(test_spikes),
		cmocka_unit_test(test_prepared_documents),
		cmocka_unit_test(test_rewind_leaves_others_free),
		cmocka_unit_test(test_nonfinite),
		cmocka_unit_test(test_nonfinite_in_backward),
	};
	return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
