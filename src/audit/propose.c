/* From a rule to a finding: what a change is worth, and whether it fits. */
#include "audit/config_int.h"

#include <stdio.h>
#include <string.h>

/* ---- names ---- */

/* "--bf16" says the type of matmuls, and what follows from it for gradients. */
static bool is_of_another(const struct fo_site *s, enum fo_job_setting x)
{
	const char *key = s->job->value[x].key;
	for (int y = 0; y < FO_JOB_SETTINGS; y++)
		if (y != (int)x && s->job->value[y].key && !strcmp(s->job->value[y].key, key))
			return true;
	return false;
}

const char *fo_site_key(const struct fo_site *s, enum fo_job_setting x)
{
	const struct fo_job_value *v = &s->job->value[x];
	const char *spelled = fo_site_spelled(s, x);
	bool own = v->key && !(spelled && *spelled && is_of_another(s, x));
	if (own)
		return v->key;
	if (spelled && *spelled)
		return spelled;
	char *id = fo_arena_strdup(&s->audit->arena, fo_job_setting_row[x].id);
	for (char *at = id; *at; at++)
		if (*at >= 'A' && *at <= 'Z')
			*at = (char)(*at + 32);
	return id;
}

/* ---- what a change is worth ---- */

/* Selective recomputation is proposed with torchtitan's usual option, which spell.c writes. Full recomputation, from
 * where the change leads, has no use for it. */
static bool wants_option(const struct fo_site *s, const struct fo_job_change *change, int changes)
{
	bool selective = false;
	for (int i = 0; i < changes; i++)
		selective |= change[i].setting == FO_JOB_RECOMPUTE && change[i].number == FO_JOB_RECOMPUTE_SELECTIVE;
	return selective && !fo_job_stated(s->job, FO_JOB_RECOMPUTE_OPTION) && fo_site_form(s, "torchtitan");
}

void fo_site_what_if(const struct fo_site *s, const struct fo_job_change *change, int changes, struct fo_job_gain *g)
{
	struct fo_job_value *option = &s->job->value[FO_JOB_RECOMPUTE_OPTION], was = *option;
	if (wants_option(s, change, changes))
		option->text = "op";
	fo_job_what_if(s->job, s->cluster, change, changes, g);
	*option = was;
	if (!fo_range_known(g->times))
		g->times = fo_range(NAN);
}

bool fo_gain_fits(const struct fo_job_gain *g) { return g->memory.fit == FO_JOB_FITS; }
bool fo_gain_may_fit(const struct fo_job_gain *g)
{
	return g->memory.fit == FO_JOB_FITS || (g->memory.fit == FO_JOB_FIT_UNCERTAIN &&
						fo_range_middle(g->memory.total) <= fo_range_middle(g->memory.usable));
}

/* Where the arithmetic sees no difference at all, it has no model of the setting. */
static bool modelled(const struct fo_job_gain *g)
{
	return fo_range_known(g->times) && (g->times.low != 1 || g->times.high != 1);
}

static void value_it(const struct fo_proposal *p, const struct fo_job_gain *g, struct fo_audit_finding *f)
{
	f->gain = fo_range(NAN);
	if (modelled(g)) {
		f->gain = g->times;
		f->gain_from = p->compiled ? "both settings predicted, once compiled" : "both settings predicted";
	} else if (p->published.high > 0) {
		f->gain = (struct fo_range){ p->published.low, p->published.high };
		f->gain_from = p->published.source;
	}
}

/* A change that follows from others, or the second of two settings of ours that are one of the framework's. */
static bool is_said(const struct fo_site *s, const struct fo_proposal *p, int i)
{
	const char *spelled = fo_site_spelled(s, p->change[i].setting), *key = fo_site_key(s, p->change[i].setting);
	bool said = spelled && !*spelled;
	for (int k = 0; k < i && !said; k++)
		said = !strcmp(key, fo_site_key(s, p->change[k].setting));
	return said;
}

const char *fo_site_and_removed(const struct fo_site *s, const char *proposed, const struct fo_job_change *change,
				int changes)
{
	const char *removed = fo_site_removed(s, change, changes);
	return removed && !strstr(proposed, removed) ? fo_site_say(s, "%s; remove %s", proposed, removed) : proposed;
}

/* The value that a change gives, in the sense of the framework's own flag. */
static const char *changed_text(const struct fo_site *s, const struct fo_job_change *c)
{
	const char *removed = fo_site_removed(s, c, 1), *key = s->job->value[c->setting].key;
	const char *text = fo_site_text(s, c->setting, c->number);
	if (!fo_site_negated(s, c->setting))
		return removed ? fo_site_say(s, "%s (remove %s)", text, removed) : text;
	if (removed || (key[0] == '-' && c->number != 0))
		return "remove it";
	if (key[0] == '-')
		return "give it";
	return c->number == 0 ? "true" : "false";
}

static const char *proposed_text(const struct fo_site *s, const struct fo_proposal *p)
{
	if (p->proposed)
		return fo_site_and_removed(s, p->proposed, p->change, p->changes);
	if (p->changes == 1)
		return changed_text(s, &p->change[0]);
	const char *all = NULL;
	for (int i = 0; i < p->changes; i++) {
		const struct fo_job_change *c = &p->change[i];
		if (is_said(s, p, i))
			continue;
		const char *one = fo_site_say(s, "%s %s", fo_site_key(s, c->setting), changed_text(s, c));
		all = all ? fo_site_say(s, "%s, %s", all, one) : one;
	}
	return all;
}

/* The level after what the change is worth; false: it is worth nothing and not reported. Ends of a gain are as far
 * apart as two runs of one configuration at least, so its middle decides whether it is worth a line. */
static bool judge(const struct fo_proposal *p, struct fo_audit_finding *f)
{
	f->level = p->level;
	if (!fo_range_known(f->gain))
		return true;
	double middle = sqrt(f->gain.low * f->gain.high);
	bool loses = f->gain.low < 1 && f->gain.high <= 1;
	if (loses || (!p->always && middle < 1.005))
		return false;
	if (middle < 1.01)
		f->level = FO_AUDIT_NOTE;
	if (p->serious > 0 && f->gain.low >= p->serious)
		f->level = FO_AUDIT_SERIOUS;
	return true;
}

/* For what findings are worth together. */
static void offer(struct fo_site *s, const struct fo_proposal *p, double low)
{
	for (int i = 0; i < p->changes; i++)
		if (p->change[i].setting == FO_JOB_FP8 || p->change[i].setting == FO_JOB_PARAM_DTYPE)
			return; /* other numbers: nothing to be done unseen */
	if (s->offers == FO_SITE_OFFERS)
		return;
	struct fo_offer *o = &s->offer[s->offers++];
	*o = (struct fo_offer){ .id = s->rule->id, .low = low, .changes = p->changes };
	memcpy(o->change, p->change, sizeof o->change);
}

/* Can a file of the framework say all of it? The loss is compiled with the model where a framework does not ask. */
static bool settable(const struct fo_site *s, const struct fo_proposal *p)
{
	for (int i = 0; i < p->changes && !p->by_code; i++)
		if (!(i > 0 && p->change[i].setting == FO_JOB_COMPILE_LOSS) && !fo_site_settable(s, &p->change[i]))
			return false;
	return true;
}

static const char *paste_of(const struct fo_site *s, const struct fo_proposal *p)
{
	if (p->by_code)
		return NULL;
	return p->paste ? p->paste : fo_site_paste(s, p->change, p->changes);
}

bool fo_site_propose(struct fo_site *s, const struct fo_proposal *p)
{
	if (!settable(s, p))
		return false;
	struct fo_job_gain g = { .times = { NAN, NAN } };
	struct fo_job_value was[] = { s->job->value[FO_JOB_COMPILE], s->job->value[FO_JOB_COMPILE_LOSS] };
	if (p->compiled) {
		fo_job_set(s->job, FO_JOB_COMPILE, 1);
		fo_job_set(s->job, FO_JOB_COMPILE_LOSS, 1);
	}
	if (p->changes)
		fo_site_what_if(s, p->change, p->changes, &g);
	s->job->value[FO_JOB_COMPILE] = was[0];
	s->job->value[FO_JOB_COMPILE_LOSS] = was[1];
	bool worse = g.memory.total.high > s->memory->total.high;
	if (worse && g.memory.fit == FO_JOB_FITS_NOT)
		return false;
	bool unsure = worse && g.memory.fit == FO_JOB_FIT_UNCERTAIN;
	if (unsure && !fo_gain_may_fit(&g))
		return false;
	struct fo_audit_finding f = {
		.id = s->rule->id,
		.title = p->title,
		.setting = fo_site_key(s, p->setting),
		.now = fo_site_now(s, p->setting),
		.proposed = proposed_text(s, p),
		.why = p->why,
		.evidence = p->evidence ? p->evidence : fo_site_evidence(s, p->setting),
		.paste = paste_of(s, p),
		.source = p->source,
	};
	value_it(p, &g, &f);
	if (!judge(p, &f))
		return false;
	if (unsure)
		f.proposed = fo_site_say(s, "if memory allows (%s of %s then): %s", fo_site_gb(s, g.memory.total),
					 fo_site_gb(s, fo_range(g.memory.usable.high)), f.proposed);
	if (unsure && f.level == FO_AUDIT_SERIOUS && p->level != FO_AUDIT_SERIOUS)
		f.level = p->level;
	if (fo_range_known(f.gain) && f.gain.low < 1)
		f.why = fo_site_say(s, "%s The interval includes a loss: measure it.", f.why ? f.why : "");
	fo_audit_add(s->audit, f);
	if (modelled(&g) && f.level != FO_AUDIT_NOTE && !unsure && !p->compiled && !p->by_code)
		offer(s, p, f.gain.low);
	return true;
}

void fo_site_report(struct fo_site *s, enum fo_audit_level level, int setting, const char *proposed, const char *title,
		    const char *why, const char *source)
{
	enum fo_job_setting x = setting < 0 ? FO_JOB_MODEL : (enum fo_job_setting)setting;
	if (setting >= 0 && level != FO_AUDIT_SERIOUS && !fo_site_has(s, x))
		return;
	const char *files = s->job->form ? s->job->form->name : "the job";
	fo_audit_add(s->audit, (struct fo_audit_finding){
				       .id = s->rule->id,
				       .level = level,
				       .title = title,
				       .setting = setting < 0 ? NULL : fo_site_key(s, x),
				       .now = setting < 0 ? NULL : fo_site_now(s, x),
				       .proposed = proposed,
				       .why = why,
				       .evidence = setting < 0 ? files : fo_site_evidence(s, x),
				       .gain = { NAN, NAN },
				       .source = source,
			       });
}

/* ---- changes that belong together ---- */

static int put(struct fo_job_change *out, int n, enum fo_job_setting x, double number)
{
	out[n] = (struct fo_job_change){ x, number };
	return n + 1;
}

static bool has(const struct fo_site *s, enum fo_job_setting x) { return !isnan(fo_job_number(s->job, x)); }

/* Writes a change of x unless it already has the number or is unknown at what would be 1. */
static int change_to(const struct fo_site *s, struct fo_job_change *out, int n, enum fo_job_setting x, double number)
{
	return fo_job_or(s->job, x, 1) == number ? n : put(out, n, x, number);
}

int fo_change_layout(const struct fo_site *s, double tp, double pp, double cp, struct fo_job_change *out)
{
	const struct fo_job_shape *h = s->shape;
	double dp = h->devices / (tp * pp * cp), ratio = dp / h->dp;
	int n = 0;
	n = change_to(s, out, n, FO_JOB_TP, tp);
	n = change_to(s, out, n, FO_JOB_PP, pp);
	n = change_to(s, out, n, FO_JOB_CP, cp);
	/* What is left over shards: the replicas stay as they are. */
	if (has(s, FO_JOB_DP_SHARD) && !fo_job_is(s->job, FO_JOB_DP_SHARD, -1))
		n = put(out, n, FO_JOB_DP_SHARD, fmax(1, dp / fmax(1, fo_job_or(s->job, FO_JOB_DP_REPLICATE, 1))));
	double local = h->micro_batch * h->micro_batches, per_rank = fmax(1, floor(local / ratio));
	if (has(s, FO_JOB_LOCAL_BATCH) && ratio != 1) {
		double micro = fmin(h->micro_batch, per_rank);
		n = put(out, n, FO_JOB_LOCAL_BATCH, per_rank);
		if (has(s, FO_JOB_ACCUMULATION))
			n = put(out, n, FO_JOB_ACCUMULATION, per_rank / micro);
		if (has(s, FO_JOB_MICRO_BATCH) && micro != h->micro_batch)
			n = put(out, n, FO_JOB_MICRO_BATCH, micro);
	} else if (has(s, FO_JOB_GLOBAL_BATCH) && has(s, FO_JOB_ACCUMULATION) && ratio != 1) {
		n = put(out, n, FO_JOB_ACCUMULATION, fmax(1, floor(h->micro_batches / ratio)));
	}
	return n;
}

int fo_change_micro_batch(const struct fo_site *s, double sequences, struct fo_job_change *out, bool *batch_grows)
{
	const struct fo_job_shape *h = s->shape;
	double times = sequences / h->micro_batch;
	bool divides = h->micro_batches >= times && fmod(h->micro_batches, times) == 0;
	/* torchtitan without a pipeline: one setting is both, and the global batch makes several of it. */
	const char *micro = s->job->value[FO_JOB_MICRO_BATCH].key, *local = s->job->value[FO_JOB_LOCAL_BATCH].key;
	bool one = has(s, FO_JOB_LOCAL_BATCH) && micro && local && !strcmp(micro, local);
	int n = 0;
	*batch_grows = !divides;
	if (has(s, FO_JOB_MICRO_BATCH))
		n = put(out, n, FO_JOB_MICRO_BATCH, sequences);
	if (divides && one && times != 1) {
		n = put(out, n, FO_JOB_LOCAL_BATCH, sequences);
		n = put(out, n, FO_JOB_ACCUMULATION, 1);
		return put(out, n, FO_JOB_GLOBAL_BATCH, h->global_batch);
	}
	if (divides && has(s, FO_JOB_ACCUMULATION))
		n = put(out, n, FO_JOB_ACCUMULATION, h->micro_batches / times);
	if (!divides && has(s, FO_JOB_LOCAL_BATCH))
		n = put(out, n, FO_JOB_LOCAL_BATCH, h->micro_batches * sequences);
	if (!divides && has(s, FO_JOB_GLOBAL_BATCH) && fo_job_number(s->job, FO_JOB_GLOBAL_BATCH) > 0)
		n = put(out, n, FO_JOB_GLOBAL_BATCH, h->global_batch * times);
	return n;
}
