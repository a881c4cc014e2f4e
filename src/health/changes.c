/* The changes that all sources propose, each once. */
#include "health/health_int.h"

#include "base/text.h"

#include <math.h>
#include <string.h>

const char *const fo_health_worth_name[FO_HEALTH_WORTHS] = { "measured", "estimated", "not known" };

/* What findings of different sources have in common: one row per change. Findings without a row are changes of their
 * own, with their own title. `ladder`: options of our runs that make this change. */
static const struct row {
	const char *id, *title;
	const char *findings; /* separated by blanks, of traces and audits */
	const char *ladder;
} table[] = {
	{ "communication", "Hide communication behind compute, and send less of it",
	  "comm-transfer comm-unknown comm-small grad-overlap param-overlap bucket-small tensor-overlap "
	  "expert-overlap network-bound",
	  NULL },
	{ "late-rank", "Find out why one rank is late", "comm-wait", NULL },
	{ "launches", "Launch less: compile, replay graphs, or give each launch more work",
	  "host-launch kernel-gaps compile cuda-graphs torch-compile-off merged-qkv",
	  "pass.merge-qkv pass.merge-gate-up" },
	{ "waits", "Keep the host from waiting for the device", "host-sync allocator", NULL },
	{ "host", "Find out what the host does while the device idles", "host-other host-work idle-unknown dependency",
	  NULL },
	{ "data", "Have the next batch ready", "data-loading own-data loader-workers loader-pinned", NULL },
	{ "fusion", "Fuse operations that only move memory",
	  "memory-bound own-memory-bound rope-fusion norm-fusion activation-fusion compile-loss",
	  "pass.fuse-elementwise pass.fuse-loss pass.fuse-rope" },
	{ "attention", "Use fused attention", "attention-eager te-attention", "pass.attention" },
	{ "optimizer", "Use a fused optimizer", "optimizer-unfused optimizer-fused",
	  "pass.fused-optimizer pass.optimizer-in-backward" },
	{ "precision", "Run matmuls in 16 bit", "precision precision-fp32", "train.precision" },
	{ "fp8", "Run matmuls in 8 bit", "fp8-unused", "pass.fp8" },
	{ "recompute", "Recompute less", "recompute recompute-full recompute-selective", "pass.recompute" },
	{ "batch", "Give each device more tokens per step", "micro-batch", "train.rows" },
	{ "shapes", "Choose shapes that fill the device", "shape-padding attention-padding split-k product-layout",
	  NULL },
	{ "pipeline", "Shrink the pipeline's bubble", "pipeline pipeline-bubble pipeline-micro-batches", NULL },
	{ "checkpoint", "Write checkpoints while training goes on", "checkpoint checkpoint-async", NULL },
};

static bool holds_word(const char *words, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = words; p && (p = strstr(p, word)); p += n)
		if ((p == words || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

static const struct row *row_of(const char *finding)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (holds_word(table[i].findings, finding))
			return &table[i];
	return NULL;
}

static const struct row *row_of_option(const char *key)
{
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		if (table[i].ladder && holds_word(table[i].ladder, key))
			return &table[i];
	return NULL;
}

/* The change of that row, or of that id where there is none, made where it is not there yet. */
static struct fo_health_change *change_of(struct fo_health *h, const struct row *row, const char *id, const char *title)
{
	if (row) {
		id = row->id;
		title = row->title;
	}
	for (size_t i = 0; i < h->changes; i++)
		if (!strcmp(h->change[i].id, id))
			return &h->change[i];
	fo_array_room(&h->change, &h->change_cap, h->changes, sizeof *h->change);
	h->change[h->changes] = (struct fo_health_change){ .id = id,
							   .title = title,
							   .worth = FO_HEALTH_NO_MODEL,
							   .gain = fo_range(NAN),
							   .mfu_after = fo_range(NAN),
							   .points = fo_range(NAN),
							   .year_usd = fo_range(NAN) };
	return &h->change[h->changes++];
}

#define say_source(h, c, ...) fo_arena_say(&(h)->arena, &(c)->source, &(c)->sources, __VA_ARGS__)

/* Takes a worth where it is known better than the one that is there: measured before estimated; what came first stays
 * otherwise. */
static void take_worth(struct fo_health_change *c, enum fo_health_worth worth, struct fo_range gain, bool priced,
		       const char *from)
{
	bool better = worth < c->worth && (priced || !c->priced);
	if (!fo_range_known(gain) || (!better && !(priced && !c->priced)))
		return;
	c->worth = worth;
	c->gain = gain;
	c->priced = priced;
	c->gain_from = from;
	c->traced = false;
}

static const char *gain_text(struct fo_health *h, struct fo_range gain)
{
	return fo_health_range(&h->arena, gain, FO_DRAW_FACTOR);
}

/* ---- traces ---- */

/* How well a source knows the setting: a trace guesses the framework, an audit reads its configuration, a ladder tried
 * it. */
enum { BY_TRACE = 1, BY_AUDIT, BY_AUDIT_WITH_GAIN, BY_LADDER };

static void take_setting(struct fo_health *h, struct fo_health_change *c, const struct fo_setting *s)
{
	if (c->setting_rank >= BY_TRACE)
		return;
	c->setting_rank = BY_TRACE;
	c->setting = fo_health_text(h, "%s: %s", s->framework, s->key);
	c->now = *s->now ? fo_health_text(h, "%s", s->now) : NULL;
	c->proposed = fo_health_text(h, "%s", s->proposed);
	c->paste = *s->paste ? fo_health_text(h, "%s", s->paste) : NULL;
}

static const char TRACE_GAIN[] = "the trace: what its removal saves, with the discounts of docs/diagnosis-rules.md";

static void from_finding(struct fo_health *h, const struct fo_finding *f)
{
	const struct row *r = row_of(f->id);
	struct fo_health_change *c = change_of(h, r, f->id, fo_health_text(h, "%s", f->title));
	struct fo_range gain = { f->gain_low, f->gain_high };
	const char *worth = "";
	if (fo_finding_worth(f) && fo_range_known(gain)) {
		take_worth(c, FO_HEALTH_ESTIMATED, gain, !h->trace_apart, TRACE_GAIN);
		c->traced = c->gain_from == TRACE_GAIN;
		worth = fo_health_text(h, "; worth %s", gain_text(h, gain));
	} else if (f->nearly_all) {
		worth = "; it is nearly all of the step";
	}
	c->serious |= f->serious;
	say_source(h, c, "trace: %s%s", f->title, worth);
	if (f->settings)
		take_setting(h, c, &f->setting[0]);
}

static void from_trace(struct fo_health *h)
{
	const struct fo_diagnosis *d = &h->diagnosis;
	if (!h->traced || !fo_diagnosed(d))
		return;
	for (int64_t i = 0; i < d->findings; i++) {
		const struct fo_finding *f = &d->finding[i];
		if (f->kind != FO_FIND_VALIDITY && (f->serious || fo_finding_worth(f)))
			from_finding(h, f);
	}
}

/* ---- ladders ---- */

/* A ladder measures one model on one machine. Its gains are of this job where nothing else is given, or where the job
 * runs on the ladder's device. */
static bool ladder_is_here(const struct fo_health *h, const struct fo_ladder *l)
{
	if (!h->logs && !h->traced && !h->configured)
		return true;
	return *l->device && h->device && fo_text_mentions(l->device, h->device->name);
}

static void from_rung(struct fo_health *h, const struct fo_ladder *l, const struct fo_ladder_rung *r)
{
	bool here = ladder_is_here(h, l);
	const char *on = *l->device ? l->device : l->cpu;
	const struct row *row = r->changes == 1 ? row_of_option(r->change[0].key) : NULL;
	const char *title = r->what && *r->what ? r->what : r->name;
	struct fo_range gain = { r->gain_low, r->gain_high };
	if (r->verdict != FO_LADDER_GAIN && r->verdict != FO_LADDER_LOSS && r->verdict != FO_LADDER_UNRESOLVED)
		return;
	struct fo_health_change *c = change_of(h, row, r->name, title);
	take_worth(c, FO_HEALTH_MEASURED, gain, here,
		   fo_health_text(h, "measured by the ladder in '%s' on %s%s", l->dir, on,
				  here ? "" : ", another machine than this job's"));
	say_source(h, c, "ladder: rung %s (%s) is worth %s on %s%s", r->name, title, gain_text(h, gain), on,
		   r->verdict == FO_LADDER_UNRESOLVED ? ", not resolved" : "");
	if (r->changes == 1) {
		c->setting_rank = BY_LADDER;
		c->setting = r->change[0].key;
		c->now = r->change[0].was;
		c->proposed = r->change[0].value;
		c->paste = fo_health_text(h, "--%s=%s", r->change[0].key, r->change[0].value);
	}
}

static void from_ladders(struct fo_health *h)
{
	for (size_t i = 0; i < h->ladders; i++)
		for (int r = 0; r < h->ladder[i]->rungs; r++)
			if (h->ladder[i]->rung[r].from >= 0)
				from_rung(h, h->ladder[i], &h->ladder[i]->rung[r]);
}

/* ---- audits ---- */

/* Several findings of one id are one change with several settings. */
static void take_audit_setting(struct fo_health *h, struct fo_health_change *c, const struct fo_audit_finding *f)
{
	int rank = fo_range_known(f->gain) ? BY_AUDIT_WITH_GAIN : BY_AUDIT;
	bool more = c->setting && f->setting && c->setting_rank == rank && !strcmp(c->id, f->id);
	if ((!f->setting && !f->proposed && !f->paste) || (c->setting_rank >= rank && !more))
		return;
	c->setting = more ? fo_health_text(h, "%s, %s", c->setting, f->setting) : f->setting;
	c->now = more ? NULL : f->now;
	c->proposed = f->proposed;
	if (more && c->paste && f->paste)
		c->paste = fo_health_text(h, "%s\n%s", c->paste, f->paste);
	else
		c->paste = f->paste;
	c->setting_rank = rank;
}

/* A gain by arithmetic saves a share of the step that the configuration explains. Where the log's step is longer, that
 * time is at least what is saved of the whole, if the rest stays; at most the rest shrinks with it. */
static struct fo_range of_this_step(const struct fo_health *h, struct fo_range gain)
{
	if (!(h->longer > 0) || !fo_range_known(gain) || gain.low <= 1)
		return gain;
	double logged = h->main_log->log.time.median, saved = h->config.step.total.low * (1 - 1 / gain.low);
	return (struct fo_range){ fmin(logged / (logged - saved), gain.high), gain.high };
}

static void from_audit(struct fo_health *h, const struct fo_audit *a, const char *what)
{
	bool config = a == &h->config_audit;
	for (size_t i = 0; i < a->count; i++) {
		const struct fo_audit_finding *f = &a->finding[i];
		struct fo_range gain = config ? of_this_step(h, f->gain) : f->gain;
		const struct row *r = row_of(f->id);
		if (f->level == FO_AUDIT_NOTE)
			continue;
		struct fo_health_change *c = change_of(h, r, f->id, f->title);
		take_worth(c, FO_HEALTH_ESTIMATED, gain, !(config && h->other_step),
			   fo_health_text(h, "%s: %s", what, f->gain_from ? f->gain_from : "an estimate"));
		c->serious |= f->level == FO_AUDIT_SERIOUS;
		if (!c->why)
			c->why = f->why;
		say_source(h, c, "%s: %s (%s)%s", what, f->title, f->evidence,
			   fo_range_known(gain) ? fo_health_text(h, "; worth %s", gain_text(h, gain)) : "");
		take_audit_setting(h, c, f);
	}
}

/* ---- plans ---- */

/* Is the log's model the plan's? By layers and hidden size, and by weights but for the vocabulary's: logs and
 * configurations pad that differently, and a log seldom says whether embedding and head are one. By name where the
 * plan's file says no sizes. */
static bool plan_model_is(const struct fo_plan_file *p, const struct fo_model *m)
{
	const struct fo_params of = fo_model_params(m);
	if (!(p->model_layers > 0 && p->model_hidden > 0 && p->model_weights > 0))
		return !strcmp(m->name, p->model);
	return p->model_layers == (double)m->layers && p->model_hidden == (double)m->hidden &&
	       fabs(p->model_weights - of.total) <= of.embedding + of.head;
}

/* Why a plan is not of this job, so that no gain rests on it; NULL: as far as anything tells, it is. */
static const char *plan_apart(struct fo_health *h, const struct fo_plan_file *p)
{
	const struct fo_log_account *a = h->main_log ? &h->main_log->account : NULL;
	if (h->device && strcmp(h->device->name, p->device))
		return fo_health_text(h, "it is of %s, this job of %s", p->device, h->device->name);
	if (!isnan(h->devices) && h->devices != p->devices)
		return fo_health_text(h, "it is of %.0f device%s, this job of %.0f", p->devices, fo_plural(p->devices),
				      h->devices);
	if (a && a->has_model && !plan_model_is(p, &a->model))
		return fo_health_text(h, "it is of %s, the log of %s", fo_plan_file_model(p, &h->arena), a->model.name);
	return NULL;
}

/* Speed with the plan over speed now: tokens/s where a log has them, else MFU by the plan's own rule. Unknown: why. */
static struct fo_range plan_gain(struct fo_health *h, const struct fo_plan_file *p, const char **why)
{
	const struct fo_log_spread *rate = h->main_log ? &h->main_log->rate : NULL;
	bool causal = h->mfu.rule && !strcmp(h->mfu.rule, "mfu_causal");
	if (rate && rate->median > 0)
		return fo_range_scaled(1 / (rate->median * p->devices), fo_plan_file_tokens_s(p));
	if (isnan(h->mfu.now)) {
		*why = "nothing tells the speed now: a log does";
		return fo_range(NAN);
	}
	if (!h->mfu.rule || (!causal && strcmp(h->mfu.rule, "mfu") != 0)) {
		bool named = h->mfu.rule && strcmp(h->mfu.rule, "as given") && strcmp(h->mfu.rule, "printed");
		*why = named ? fo_health_text(h, "the MFU now is by the rule %s, which the plan lacks", h->mfu.rule)
			     : fo_health_text(h, "%s does not say by which rule it counts: a log's tokens/s would tell",
					      h->mfu.from);
		return fo_range(NAN);
	}
	double over = causal ? 1 : p->best[0].mfu / p->best[0].mfu_causal;
	return fo_range_scaled(over / h->mfu.now, fo_plan_file_mfu(p));
}

static void from_plan(struct fo_health *h, const struct fo_health_plan *given)
{
	const struct fo_plan_file *p = &given->plan;
	const struct fo_plan_file_point *b = p->best;
	const char *apart = plan_apart(h, p), *why = apart ? apart : "its figures do not tell it";
	struct fo_range gain = apart ? fo_range(NAN) : plan_gain(h, p, &why);
	const char *id = fo_health_text(h, "plan:%s", given->path);
	struct fo_health_change *c = change_of(h, NULL, id,
					       fo_health_text(h, "The division of the plan '%s'", given->path));
	take_worth(c, FO_HEALTH_ESTIMATED, gain, true, "the plan's predicted tokens/s, 80 %, over what is reached now");
	if (apart)
		say_source(h, c, "plan: %s: %s; no gain rests on it", given->path, apart);
	else
		say_source(h, c, "plan: %s predicts a step of %s to %s%s", given->path,
			   fo_health_num(h, b->seconds_low, FO_DRAW_SECONDS),
			   fo_health_num(h, b->seconds_high, FO_DRAW_SECONDS),
			   fo_range_known(gain) ? fo_health_text(h, "; worth %s", gain_text(h, gain))
						: fo_health_text(h, "; its gain is not known: %s", why));
	if (p->doubt && *p->doubt)
		say_source(h, c, "plan: %s: doubt: %s", given->path, p->doubt);
	if (p->size && *p->size)
		say_source(h, c, "plan: %s: doubt: %s", given->path, p->size);
	c->no_gain = fo_range_known(gain) ? NULL : why;
	c->setting_rank = BY_AUDIT;
	c->setting = "how the devices are divided";
	struct fo_division x;
	struct fo_str division = { 0 };
	fo_plan_file_division(b, &x);
	fo_division_text(&x, false, &division);
	c->proposed = fo_health_text(h, "%s, micro-batch %.15g, recomputation: %s", division.data, b->micro_batch,
				     b->recompute ? b->recompute : "-");
	fo_str_fini(&division);
}

/* The option that a text to paste begins with, and its value: "--global-batch-size 1024". */
static bool option_at(const char *p, size_t *name, const char **value, size_t *len)
{
	*name = strcspn(p, " =\n");
	if (strncmp(p, "--", 2) != 0 || !p[*name] || p[*name] == '\n')
		return false;
	*value = p + *name + 1;
	*len = strcspn(*value, " \n");
	return *len > 0 && strncmp(*value, "--", 2) != 0;
}

/* Do both texts set one option, to different values? */
static bool contradicts(const char *a, const char *b)
{
	for (const char *x = a; x && (x = strstr(x, "--")); x += 2)
		for (const char *y = b; y && (y = strstr(y, "--")); y += 2) {
			size_t nx, ny, lx, ly;
			const char *vx, *vy;
			if (option_at(x, &nx, &vx, &lx) && option_at(y, &ny, &vy, &ly) && nx == ny &&
			    !strncmp(x, y, nx) && (lx != ly || strncmp(vx, vy, lx) != 0))
				return true;
		}
	return false;
}

void fo_health_settle_options(struct fo_health *h)
{
	for (size_t i = 1; i < h->changes; i++)
		for (size_t k = 0; k < i; k++) {
			struct fo_health_change *c = &h->change[i];
			if (!contradicts(h->change[k].paste, c->paste))
				continue;
			c->paste = NULL;
			c->proposed = fo_health_text(h, "%s; not together with '%s', which sets the same option",
						     c->proposed ? c->proposed : "see there", h->change[k].title);
			break;
		}
}

void fo_health_gather(struct fo_health *h)
{
	from_ladders(h);
	from_trace(h);
	from_audit(h, &h->config_audit, "configuration");
	from_audit(h, &h->host_audit, "host");
	for (size_t i = 0; i < h->plans; i++)
		from_plan(h, &h->plan[i]);
}
