/* Tables of published runs, by column name; what a row does not state is inferred by the rules of docs/accuracy.md. */
#include "score/score_int.h"

#include "base/fs.h"
#include "hw/csv.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- fields ---- */

struct reader {
	struct fo_score_table *t;
	const struct fo_catalogue *catalogue;
	struct fo_csv csv;
	const struct fo_csv_row *at;
	struct fo_score_row *row;
	const char **said;
	int64_t says;
};

static int column(const struct fo_csv *csv, const char *name)
{
	for (int i = 0; i < csv->columns; i++)
		if (!strcmp(csv->head.field[i], name))
			return i;
	return -1;
}
static const char *text(const struct reader *r, const char *name)
{
	int i = column(&r->csv, name);
	return i < 0 ? "" : r->at->field[i];
}
static void infer(struct reader *r, const char *what);
/* NAN: not stated, or nothing that reads as a number, which is said with what was inferred. */
static double number(struct reader *r, const char *name)
{
	const char *s = text(r, name);
	if (fo_score_missing(s))
		return NAN;
	double v = fo_score_number(s, strcmp(name, "seq_len") ? 1000 : 1024);
	if (isnan(v)) {
		char shown[40];
		const char *what = fo_arena_printf(&r->t->arena, "%s '%s' is no number", name,
						   fo_str_visible(shown, sizeof shown, s));
		bool said = false;
		for (int64_t i = 0; i < r->says; i++)
			said = said || !strcmp(r->said[i], what);
		if (!said)
			infer(r, what);
	}
	return v;
}
static double or_else(double v, double otherwise) { return isnan(v) ? otherwise : v; }
static void infer(struct reader *r, const char *what) { fo_arena_say(&r->t->arena, &r->said, &r->says, "%s", what); }
static double inferred(struct reader *r, const char *name, double otherwise)
{
	double v = number(r, name);
	if (!isnan(v))
		return v;
	infer(r, name);
	return otherwise;
}
/* ---- models and devices ---- */

static void model(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_predict_model *m = &x->job.model, named;
	double layers = number(r, "layers"), hidden = number(r, "hidden"), experts = number(r, "experts");
	bool shaped = fo_score_shape(x->model, &named, layers), tied;
	x->moe = number(r, "is_moe") == 1 || experts > 1;
	if (isnan(number(r, "is_moe")) && isnan(experts) && shaped) /* nobody says: the name may */
		x->moe = named.experts > 0;
	if (!shaped && (isnan(layers) || isnan(hidden)) && !x->refused)
		x->refused = "its layers and hidden size are not stated, and no model of this name is known";
	bool stated = !isnan(layers) && !isnan(hidden) && (!x->moe || experts > 1);
	m->matrices = or_else(number(r, "mlp_matrices"), 3);
	tied = fo_score_has(fo_score_lower(&r->t->arena, text(r, "other_opts")), "tied emb") ||
	       !strncmp(x->family, "bloom", 5);
	if (!stated && shaped) {
		*m = named;
		m->tied = tied;
		infer(r, "the model's shape, by its name");
		return;
	}
	m->tied = tied;
	m->layers = layers, m->hidden = hidden;
	m->heads = inferred(r, "heads", fmax(1, hidden / 128));
	m->kv_heads = or_else(number(r, "kv_heads"), m->heads);
	m->head_dim = or_else(number(r, "head_dim"), hidden / m->heads);
	m->ffn = inferred(r, "ffn", 4 * hidden);
	m->vocab = inferred(r, "vocab", 50000);
	if (x->moe) {
		m->experts = experts;
		m->top_k = number(r, "experts_active");
		m->expert_ffn = or_else(number(r, "expert_ffn"), m->ffn);
		m->shared_ffn = or_else(number(r, "shared_ffn"), 0);
		m->moe_layers = or_else(number(r, "moe_layers"), layers);
	}
}

/* A device's name without what does not tell it from others. In arena memory. */
static char *plain_device(struct fo_arena *a, const char *name)
{
	static const char *const words[] = { "nvidia",  "instinct", "geforce", "tensorcore", "dgx",       "hgx",
					     "sxm4",    "sxm5",     "sxm6",    "sxm",        "hbm2e",     "hbm3e",
					     "hbm3",    "nvl72",    "nvl36",   "blackwell",  "hopper",    "grace",
					     "ultra",   "oam",      "amd",     "superpod",   "superchip", "server",
					     "edition", "pergpu",   "gpus",    "gpu" };
	char *out = fo_arena_alloc(a, strlen(name) + 1), *to = out;
	size_t count = strspn(name, "0123456789"), blanks = strspn(name + count, " ");
	bool counted = count && tolower((unsigned char)name[count + blanks]) == 'x'; /* "8xH100", "8 x H100" */
	for (const char *from = name + (counted ? count + blanks + 1 : 0); *from; from++)
		if (isalnum((unsigned char)*from))
			*to++ = (char)tolower((unsigned char)*from);
	*to = '\0';
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		char *at = strstr(out, words[i]);
		if (at && strlen(out) > strlen(words[i]))
			memmove(at, at + strlen(words[i]), strlen(at + strlen(words[i])) + 1);
	}
	return out;
}

static const struct fo_device *device_alike(struct fo_arena *a, const struct fo_catalogue *c, const char *plain)
{
	for (size_t i = 0; i < c->count; i++) {
		const char *list = c->device[i].aliases ? c->device[i].aliases : "";
		if (!strcmp(plain_device(a, c->device[i].name), plain))
			return &c->device[i];
		for (; *list; list += strcspn(list, " "), list += *list == ' ') {
			char *alias = fo_arena_strdup(a, list);
			alias[strcspn(alias, " ")] = '\0';
			if (!strcmp(plain_device(a, alias), plain))
				return &c->device[i];
		}
	}
	return NULL;
}

static const struct fo_device *device_named(struct fo_arena *a, const struct fo_catalogue *c, const char *name)
{
	const struct fo_device *d;
	if (fo_catalogue_find(c, name, &d) == FO_OK)
		return d;
	fo_err_clear();
	d = device_alike(a, c, plain_device(a, name));
	for (size_t digits = 3; !d && digits >= 2; digits--) { /* "B200 180GB": another label than the catalogue's */
		char *plain = plain_device(a, name);
		size_t n = strlen(plain);
		if (n < digits + 3 || strcmp(plain + n - 2, "gb"))
			continue;
		plain[n - 2 - digits] = '\0';
		d = device_alike(a, c, plain);
	}
	return d;
}

/* GB/s of one device from a text: "8x400Gb IB", "1600 Gb/s RoCE", of a node; 0: nothing is said. */
static double adapter(const char *fabric, double per_node)
{
	for (const char *p = fabric; *p; p++) {
		if (!isdigit((unsigned char)*p))
			continue;
		char *end;
		double a = strtod(p, &end), b = 1;
		if (*end == 'x')
			b = strtod(end + 1, &end);
		while (*end == ' ')
			end++;
		if (!strncmp(end, "Gb", 2) && a * b > 0)
			return a * b / 8 / (fo_score_has(fabric, "per GPU|per gpu|/GPU") ? 1 : per_node);
		p = end - 1;
		if (!*end)
			break;
	}
	return 0;
}

static void machine(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_predict_machine *m = &x->job.machine;
	const struct fo_device *d = device_named(&r->t->arena, r->catalogue, x->gpu);
	if (!d) {
		if (!x->refused)
			x->refused = fo_arena_printf(&r->t->arena, "the catalogue has no '%s'", x->gpu);
		return;
	}
	if (fo_predict_machine_of(d, m) != FO_OK) {
		x->refused = fo_arena_strdup(&r->t->arena, fo_err_text()); /* before the shape: it decides about all */
		fo_err_clear();
		return;
	}
	double nodes = or_else(number(r, "gpus_per_node"), 8);
	if (m->per_node <= 8)
		m->per_node = fmin(fmax(nodes, 1), 8);
	double net = adapter(text(r, "interconnect"), m->per_node > 8 ? 4 : 8);
	if (net > 0)
		m->net_byte_s = net * 1e9;
	const char *notes = fo_arena_printf(&r->t->arena, "%s %s", text(r, "notes"), text(r, "source_detail"));
	if (fo_score_has(notes, "500W|500 W") && m->watts == 700) {
		fo_predict_power_limit(m, 500);
		m->memory_byte_s = 2.4e12; /* torchtitan's H100 has HBM2e */
	}
}

/* ---- rules ---- */

static enum fo_predict_style_id style(struct reader *r)
{
	const char *options = fo_score_lower(&r->t->arena, text(r, "other_opts"));
	bool compiled = fo_score_has(options, "compile") && !fo_score_has(options, "no compile");
	enum fo_predict_style_id s = fo_predict_style_of(r->row->framework);
	double year = r->row->year;
	if (s == FO_PREDICT_STYLE_FSDP1 && compiled)
		s = FO_PREDICT_STYLE_COMPILED;
	if (s == FO_PREDICT_STYLE_EAGER && compiled)
		s = FO_PREDICT_STYLE_COMPILED;
	if (s == FO_PREDICT_STYLE_TITAN && !compiled)
		s = FO_PREDICT_STYLE_TITAN_EAGER;
	if ((s == FO_PREDICT_STYLE_MLM || s == FO_PREDICT_STYLE_MCORE) && year > 0 && year < 2023)
		s = FO_PREDICT_STYLE_MEG22; /* before FlashAttention and Transformer Engine */
	return s;
}

static void recompute(struct reader *r)
{
	struct fo_predict_layout *l = &r->row->layout;
	const char *t = fo_score_lower(&r->t->arena, text(r, "recompute"));
	const struct fo_predict_style *s = &fo_predict_style[r->row->job.style];
	r->row->recompute_stated = *t != '\0';
	if (!*t) {
		l->recompute = s->recomputes;
		infer(r, s->recomputes ? "recompute: full" : "recompute: none");
		return;
	}
	bool half = fo_score_has(t, "selective op|selective layer") || !strcmp(t, "selective");
	bool full = fo_score_has(t, "full|recompute-block|true") && !fo_score_has(t, "mixed|layers/stage");
	l->recompute = half ? .5 : full;
	l->recompute_op = half && !strncmp(s->name, "torchtitan", 10);
	l->recompute_core = !half && fo_score_has(t, "selective|attn|attention|swiglu|norm|ffn");
	l->recompute_ffn = fo_score_has(t, "ffn|mlp");
}

static void type(struct reader *r)
{
	const char *p = fo_score_lower(&r->t->arena, r->row->precision);
	enum fo_predict_type *out = &r->row->job.type;
	static const struct {
		const char *words;
		enum fo_predict_type type;
	} known[] = { { "fp4|float4", FO_PREDICT_FP4 },
		      { "mxfp8|mx-fp8|fp8-mx|fp8_mx|fp8mx|fp8 mx|fp8 (mx|blockwise|rowwise|subchannel|fp8-sc|fp8_sc",
			FO_PREDICT_MXFP8 },
		      { "fp8|float8|e4m3|hybrid", FO_PREDICT_FP8 },
		      { "tf32", FO_PREDICT_TF32 },
		      { "bf16|fp16|bfloat16|float16|half|16-mixed", FO_PREDICT_BF16 },
		      { "fp32|float32", FO_PREDICT_FP32 } };
	*out = FO_PREDICT_BF16;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++)
		if (fo_score_has(p, known[i].words)) {
			*out = known[i].type;
			return;
		}
	infer(r, *p ? "precision not known: bf16" : "precision: bf16");
}

/* Megatron-Bridge's container of June 2026: the same settings run 1.3 to 1.6 times as fast as in April. */
#define GRAPHS_SINCE 2026.4

/* torchtitan's pipeline_parallel_microbatches had the pipeline's degree as its default until early 2025. It compiles
 * the loss with the model since then. */
#define TITAN_SINGLE 2025

static void layout(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_predict_layout *l = &x->layout;
	const struct fo_predict_style *s = &fo_predict_style[x->job.style];
	l->devices = number(r, "gpus");
	l->tp = or_else(number(r, "tp"), 1);
	l->cp = or_else(number(r, "cp"), 1);
	l->pp = or_else(number(r, "pp"), 1);
	l->ep = number(r, "ep");
	if (isnan(l->ep)) {
		l->ep = 1;
		if (x->moe) { /* as many as a fast domain and the ranks of a stage allow */
			double most = fmin(x->job.model.experts, fmin(x->job.machine.per_node, l->devices / l->pp));
			while (l->ep * 2 <= most)
				l->ep *= 2;
			infer(r, "ep: a fast domain");
		}
	}
	const bool titan = fo_score_has(fo_score_lower(&r->t->arena, x->framework), "torchtitan");
	l->chunks = number(r, "vp");
	if (isnan(l->chunks) && titan)
		l->chunks = 1; /* 1F1B unless told */
	l->zero = number(r, "zero_stage");
	if (isnan(l->zero)) {
		l->zero = s->zero;
		infer(r, s->zero >= 3 ? "zero 3" : "zero 1");
	}
	if (fo_score_has(text(r, "other_opts"), "Megatron-FSDP") || number(r, "fsdp") > 0)
		l->zero = 3;
	if (l->zero >= 3 && l->pp > 1 && titan) {
		l->keeps_weights = true; /* its default with pipelines */
		infer(r, "gathered weights are kept");
	}
	l->sp = or_else(number(r, "sp"), s->sequence_parallel) != 0;
	l->micro_batch = inferred(r, "micro_batch", 1);
	double dp = l->devices / (l->tp * l->cp * l->pp);
	l->global_batch = number(r, "global_batch_seqs");
	if (isnan(l->global_batch)) {
		l->global_batch = l->micro_batch * fmax(1, dp) * or_else(number(r, "grad_accum"), 1);
		infer(r, "global batch");
	}
	/* torchtitan's pipeline cuts the local batch: into as many as there are ranks, and since 2025 into single
	 * sequences. */
	if (titan && l->pp > 1 && l->global_batch <= dp * l->micro_batch)
		l->micro_batch = x->year > 0 && x->year < TITAN_SINGLE ? fmax(1, l->micro_batch / l->pp) : 1;
	const char *options = fo_score_lower(&r->t->arena, text(r, "other_opts"));
	if (fo_score_has(options, "async tp|async-tp|asynctp|async tensor|tp overlap|tp_comm_overlap"))
		l->tp_overlap = 1;
	if (fo_score_has(options, "fused loss|fused cross|fused ce|chunked loss"))
		x->job.logit_bytes = 8;
	if (fo_score_has(options,
			 "full-iteration cuda graph|full cuda graph|full_cuda_graph|full iteration cuda graph"))
		l->graphs = 1;
	/* The recipes of 2026 capture a whole step of mixtures of experts, but not on Hopper. */
	else if (x->moe && x->job.style == FO_PREDICT_STYLE_MCORE && x->year >= GRAPHS_SINCE &&
		 x->job.machine.family == FO_PREDICT_BLACKWELL) {
		l->graphs = 1;
		infer(r, "CUDA graphs");
	}
}

static double year_of(const char *date)
{
	char *end;
	double year = strtod(date, &end);
	if (!(year > 2000 && year < 2100))
		return 0;
	double month = *end == '-' ? strtod(end + 1, NULL) : 0;
	return month >= 1 && month <= 12 ? year + (month - 0.5) / 12 : year + 0.5;
}

static void scope(struct reader *r)
{
	struct fo_score_row *x = r->row;
	const char *can = text(r, "repredictable"), *off = fo_score_lower(&r->t->arena, text(r, "offload"));
	bool known = column(&r->csv, "repredictable") < 0 || !strcmp(can, "full") ||
		     !strcmp(can, "all but recompute stated") || x->moe;
	if (!known)
		x->out = "the table says that its configuration is stated in part";
	else if (fo_score_has(off, "params|opt|master") && !fo_score_has(off, "activation cpu"))
		x->out = "parameters or optimizer are offloaded";
	else if (fo_score_has(x->gpu, "TPU|Gaudi|Trainium"))
		x->out = "not a GPU";
	else if (!(x->tokens_s > 0) || !isfinite(x->tokens_s))
		x->out = "no tokens/s and no step time above 0";
	x->scope = !x->out;
}

static void measured(struct reader *r)
{
	struct fo_score_row *x = r->row;
	double t = number(r, "derived_tokens_per_s_per_gpu"), gpus = x->layout.devices;
	t = or_else(t, number(r, "tokens_per_s_per_gpu"));
	t = or_else(t, number(r, "tokens_per_s_total") / gpus);
	double step = or_else(number(r, "step_time_s"), number(r, "step_time_ms") / 1000);
	if (isnan(t) && !isnan(step)) /* of the batch that was stated or inferred */
		t = x->layout.global_batch * x->job.seq / step / gpus;
	x->tokens_s = t;
	x->bytes = number(r, "peak_mem_gib") * 1073741824.;
}

/* GeForce and RTX boost above their data sheets. */
#define ABOVE_PEAK 1.1

/* Anything of a row that no prediction can do without. */
static void refuse(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_predict_base b;
	struct fo_predict_work w;
	if (x->refused)
		return;
	x->refused = fo_predict_prepare(&x->job, &b);
	if (!x->refused && x->moe && !(x->job.model.experts > 1) && !(x->job.model.score_share > 0))
		x->refused = "how many experts the model has is not known";
	if (x->refused)
		return;
	fo_predict_work_of(&b, &x->layout, &w);
	x->refused = w.wrong;
	if (!w.wrong && !x->job.lora && x->tokens_s * b.flops_causal > x->job.machine.peak[x->job.type] * ABOVE_PEAK) {
		x->out = "its tokens/s need more than the device's dense peak";
		x->scope = false;
	}
}

/* DeepSpeed keeps gradients in 16 bits, or their fp32 sums beside. */
static void ways(struct reader *r)
{
	struct fo_predict_job *j = &r->row->job;
	fo_memory_ways_of_style(j, &j->ways);
	j->ways.half = fo_score_has(r->row->precision, "fp16");
	if (j->style == FO_PREDICT_STYLE_TITAN && j->year >= TITAN_SINGLE)
		j->ways.loss_fused = FO_MEMORY_YES;
	if (j->style == FO_PREDICT_STYLE_MEG22 &&
	    fo_score_has(fo_score_lower(&r->t->arena, r->row->framework), "deepspeed")) {
		j->ways.keeper = FO_MEMORY_BY_DEEPSPEED;
		j->ways.gradient = fo_range(fo_score_has(r->row->precision, "fp32 grad") ? 6 : 2);
	}
}

/* One sentence on a cell that says what cannot be; NULL: none does. */
static const char *impossible(struct reader *r)
{
	static const struct {
		const char *name;
		double low, high;
		bool whole;
	} of[] = { { "gpus", 1, 1e7, true },
		   { "seq_len", 1, 1e8, true },
		   { "tp", 0, 1e6, true }, /* 0: off */
		   { "cp", 0, 1e6, true },
		   { "pp", 0, 1e6, true },
		   { "vp", 0, 1e4, true },
		   { "ep", 0, 1e6, true },
		   { "micro_batch", 0, 1e6, false },
		   { "global_batch_seqs", 1e-3, 1e9, false },
		   { "gpus_per_node", 0, 1e5, true },
		   { "layers", 0, 1e5, true },
		   { "hidden", 0, 1e7, true },
		   { "step_time_s", 1e-9, 1e9, false },
		   { "tokens_per_s_total", 1e-6, 1e15, false },
		   { "tokens_per_s_per_gpu", 1e-6, 1e9, false },
		   { "derived_tokens_per_s_per_gpu", 1e-6, 1e9, false } };
	struct fo_arena *a = &r->t->arena;
	char shown[40];
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		const char *s = fo_str_visible(shown, sizeof shown, text(r, of[i].name));
		double v = number(r, of[i].name);
		if (i < 2 && fo_score_missing(text(r, of[i].name)))
			return fo_arena_printf(a, "its %s is not stated", of[i].name);
		if (i < 2 && isnan(v))
			return fo_arena_printf(a, "%s '%s' is no number", of[i].name, s);
		if (v < of[i].low || v > of[i].high)
			return fo_arena_printf(a, "%s '%s' is out of range", of[i].name, s);
		if (of[i].whole && v > floor(v))
			return fo_arena_printf(a, "%s '%s' is no whole number", of[i].name, s);
	}
	const struct fo_predict_layout *l = &r->row->layout;
	double ranks = fmax(l->tp, 1) * fmax(l->cp, 1) * fmax(l->pp, 1);
	if (ranks > l->devices || fmod(l->devices, ranks) > 0)
		return fo_arena_printf(a, "%g GPUs do not divide by tp x cp x pp = %g", l->devices, ranks);
	return NULL;
}

static void published(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_arena *a = &r->t->arena;
	const char *group = text(r, "source_group");
	x->group = fo_arena_strdup(a, *group ? group : "unnamed");
	x->model = fo_arena_strdup(a, text(r, "model"));
	x->family = fo_score_family(a, x->model);
	x->gpu = fo_arena_strdup(a, text(r, "gpu"));
	x->framework = fo_arena_strdup(a, text(r, "framework"));
	x->precision = fo_arena_strdup(a, text(r, "precision"));
	x->year = year_of(text(r, "date"));
	const char *task = fo_score_lower(a, text(r, "task"));
	x->job = (struct fo_predict_job){ .seq = number(r, "seq_len"),
					  .year = x->year,
					  .lora = fo_score_has(task, "lora") };
	if (fo_score_has(task, "packed"))
		x->job.attention_share = .25;
	model(r);
	type(r);
	machine(r);
	x->job.style = style(r);
	layout(r);
	recompute(r);
	ways(r);
	measured(r);
	scope(r);
	const char *not = x->out ? NULL : impossible(r);
	if (not )
		x->out = not, x->scope = false;
}

/* Chunks that other rows of the same recipe state; states that cannot fit whole are sharded; FSDP stacks whose
 * activations cannot fit recompute as much as makes them fit. */
static void chunks(struct fo_score_table *t, struct fo_score_row *x)
{
	if (!isnan(x->layout.chunks))
		return;
	double most = 1;
	for (int i = 0; i < t->rows; i++) {
		const struct fo_score_row *y = &t->row[i];
		if (!strcmp(y->group, x->group) && !strcmp(y->family, x->family) && y->layout.pp == x->layout.pp &&
		    y->layout.chunks > most)
			most = y->layout.chunks;
	}
	x->layout.chunks = most;
	if (x->layout.pp > 1)
		x->inferred = fo_arena_printf(&t->arena, "%s%schunks: %g", x->inferred, *x->inferred ? ", " : "", most);
}

static void fit_memory(struct fo_score_table *t, struct fo_score_row *x)
{
	struct fo_predict_base b;
	struct fo_predict_step s, again;
	if (x->refused || fo_predict_prepare(&x->job, &b))
		return;
	struct fo_predict_layout l = x->layout;
	l.recompute = 0;
	fo_predict_memory_of(&b, &l, &s);
	double room = x->job.machine.memory_bytes;
	double states = s.memory[FO_PREDICT_WEIGHTS] + s.memory[FO_PREDICT_GRADIENTS] + s.memory[FO_PREDICT_STATES] +
			s.memory[FO_PREDICT_BUFFERS];
	if (states > .95 * room && l.zero < 3 && l.pp <= 1 && !x->moe) {
		x->layout.zero = l.zero = 3;
		x->inferred = fo_arena_printf(&t->arena, "%s%szero 3, else its states do not fit", x->inferred,
					      *x->inferred ? ", " : "");
		fo_predict_memory_of(&b, &l, &s);
		states = s.memory[FO_PREDICT_WEIGHTS] + s.memory[FO_PREDICT_GRADIENTS] + s.memory[FO_PREDICT_STATES] +
			 s.memory[FO_PREDICT_BUFFERS];
	}
	if (x->recompute_stated || x->layout.recompute > 0 || l.zero < 3)
		return;
	l.recompute = 1;
	fo_predict_memory_of(&b, &l, &again);
	double none = s.memory[FO_PREDICT_ACTIVATIONS], full = again.memory[FO_PREDICT_ACTIVATIONS];
	double left = .92 * room - states - s.memory[FO_PREDICT_LOGITS] - 2 * 1073741824.;
	double need = fmin(1, fmax(0, (.9 * none - left) / fmax(none - full, 1)));
	if (need <= .3)
		return;
	x->layout.recompute = need;
	x->inferred = fo_arena_printf(&t->arena, "%s%srecompute: %.0f %% of layers, else activations do not fit",
				      x->inferred, *x->inferred ? ", " : "", 100 * need);
}

/* ---- tables ---- */

/* A run on this machine; flatout predict says what it takes. */
static void own_run(struct reader *r)
{
	struct fo_score_row *x = r->row;
	struct fo_arena *a = &r->t->arena;
	double seconds = number(r, "step_seconds");
	const char *mesh = text(r, "mesh"), *group = text(r, "group");
	x->options = fo_arena_strdup(a, text(r, "options"));
	x->profile = fo_arena_strdup(a, text(r, "profile"));
	x->ranks = or_else(number(r, "ranks"), 1);
	x->group = fo_arena_strdup(a, *group ? group : "here");
	x->model = fo_arena_strdup(a, *mesh ? mesh : "run");
	x->family = x->gpu = x->framework = x->precision = x->inferred = "";
	x->bytes = x->memory = NAN;
	x->tokens_s = 1 / seconds; /* steps */
	if (!(seconds > 0))
		x->out = "no step time";
	x->scope = !x->out;
}

static const char *joined(struct reader *r)
{
	char *out = fo_arena_strdup(&r->t->arena, "");
	for (int64_t i = 0; i < r->says; i++)
		out = fo_arena_printf(&r->t->arena, "%s%s%s", out, i ? ", " : "", r->said[i]);
	return out;
}

static bool has_all(const struct fo_csv *csv, const char *const needs[4], const char **missing)
{
	for (int k = 0; k < 4 && needs[k]; k++)
		if (column(csv, needs[k]) < 0) {
			*missing = needs[k];
			return false;
		}
	return true;
}
static fo_status layout_of(struct fo_arena *a, struct fo_csv *csv, const char *where, const char **out)
{
	static const char *const vtrain[4] = { "GPUs", "micro batch", "hidden size", "iteration time (ms)" },
				 *const simumax[4] = { "case", "real_ms", "real_alloc_gib", NULL },
				 *const published[4] = { "model", "gpu", "gpus", "seq_len" };
	const char *missing;
	static const char *const machine[4] = { "options", "profile", "step_seconds", NULL };
	*out = "machine";
	if (has_all(csv, machine, &missing))
		return FO_OK;
	*out = "vtrain";
	if (has_all(csv, vtrain, &missing))
		return FO_OK;
	*out = "simumax";
	if (has_all(csv, simumax, &missing))
		return FO_OK;
	*out = "published";
	FO_TRY(fo_score_headings(a, csv, where));
	if (has_all(csv, published, &missing))
		return FO_OK;
	return fo_hint(
		fo_fail(FO_EFORMAT, "%s: no column '%s': not a table of training runs", where, missing),
		"columns model, gpu, gpus, seq_len and what docs/accuracy.md lists; or vTrain's or SimuMax's table");
}

fo_status fo_score_read_text(const char *bytes, size_t len, const char *where, const struct fo_catalogue *c,
			     struct fo_score_table *t)
{
	struct reader r = { .t = t, .catalogue = c };
	*t = (struct fo_score_table){ 0 };
	if (len >= 3 && !memcmp(bytes, "\xef\xbb\xbf", 3))
		bytes += 3, len -= 3;
	if (len >= 6 && !memcmp(bytes, "# GPUs", 6)) /* vTrain's first column: not a comment */
		bytes += 2, len -= 2;
	FO_TRY(fo_csv_parse(&t->arena, bytes, len, where, &r.csv));
	FO_TRY(layout_of(&t->arena, &r.csv, where, &t->layout));
	t->rows = (int)r.csv.rows;
	t->row = fo_arena_alloc(&t->arena, (size_t)(t->rows + 1) * sizeof *t->row);
	for (int i = 0; i < t->rows; i++) {
		r.at = &r.csv.row[i], r.row = &t->row[i];
		r.said = NULL, r.says = 0;
		r.row->line = r.at->line;
		if (!strcmp(t->layout, "published"))
			published(&r);
		else if (!strcmp(t->layout, "machine"))
			own_run(&r);
		else
			fo_score_foreign(t, &r.csv, r.at, c, r.row);
		if (!strcmp(t->layout, "published"))
			r.row->inferred = joined(&r);
	}
	if (!strcmp(t->layout, "machine"))
		return FO_OK;
	for (int i = 0; i < t->rows; i++)
		chunks(t, &t->row[i]);
	for (int i = 0; i < t->rows; i++)
		if (!t->row[i].out)
			r.row = &t->row[i], refuse(&r);
	for (int i = 0; i < t->rows; i++)
		if (!t->row[i].out && !t->row[i].refused)
			fit_memory(t, &t->row[i]);
	return FO_OK;
}

/* data/published_runs.csv as it was when this was built. */
static const char own[] = {
#include "published_runs.inc"
};
fo_status fo_score_read_own(const struct fo_catalogue *c, struct fo_score_table *t)
{
	return fo_score_read_text(own, sizeof own, "built-in published_runs.csv", c, t);
}

fo_status fo_score_read(const char *path, const struct fo_catalogue *c, struct fo_score_table *t)
{
	struct fo_arena a = { 0 };
	char *bytes;
	size_t len;
	*t = (struct fo_score_table){ 0 };
	fo_status st = fo_fs_read_regular(&a, path, FO_CSV_MAX_BYTES, &bytes, &len);
	if (st == FO_OK)
		st = fo_score_read_text(bytes, len, path, c, t);
	fo_arena_fini(&a);
	return st;
}

void fo_score_fini(struct fo_score_table *t)
{
	fo_arena_fini(&t->arena);
	*t = (struct fo_score_table){ 0 };
}
