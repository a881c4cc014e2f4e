/* Lets the rules look at a job. */
#include "audit/config_int.h"

#include <stdio.h>
#include <string.h>

static const struct fo_config_rule *const table[] = { fo_config_rules_memory,  fo_config_rules_layout,
						      fo_config_rules_data,    fo_config_rules_pipeline,
						      fo_config_rules_compute, fo_config_rules_types,
						      fo_config_rules_run };
enum { TABLES = sizeof table / sizeof *table };

int fo_audit_config_rules(void)
{
	int n = 0;
	for (int t = 0; t < TABLES; t++)
		for (const struct fo_config_rule *r = table[t]; r->id; r++)
			n++;
	return n;
}

void fo_audit_config_rule(int i, const char **id, const char **when)
{
	for (int t = 0; t < TABLES; t++)
		for (const struct fo_config_rule *r = table[t]; r->id; r++)
			if (i-- == 0) {
				*id = r->id;
				*when = r->when;
				return;
			}
}

/* ---- what a rule needs ---- */

/* Settings that some rule wanted and nobody states, each once. */
struct wanted {
	bool setting[FO_JOB_SETTINGS];
};

static bool known(const struct fo_job *job, enum fo_job_setting x)
{
	return job->value[x].origin != FO_JOB_AUTO && fo_job_known(job, x);
}

static bool facts(const struct fo_site *s, unsigned needs)
{
	return !((needs & FO_NEED_MODEL && !s->job->has_model) || (needs & FO_NEED_DEVICE && !s->cluster->device) ||
		 (needs & FO_NEED_DOMAIN && isnan(s->domain)) ||
		 (needs & FO_NEED_SHAPE && (s->shape->unknown || s->shape->wrong)) ||
		 (needs & FO_NEED_MEMORY && s->memory->fit == FO_JOB_FIT_UNKNOWN) ||
		 (needs & FO_NEED_STEP && !fo_range_known(s->step->total)));
}

static void look(struct fo_site *s, const struct fo_config_rule *r, struct wanted *w)
{
	s->rule = r;
	if (r->forms && s->job->form && !fo_site_form(s, r->forms))
		return;
	if (r->concerns && !r->concerns(s))
		return;
	s->audit->concerned++;
	bool all = true;
	for (int i = 0; i < r->settings; i++)
		if (!known(s->job, r->setting[i])) {
			w->setting[r->setting[i]] = true;
			all = false;
		}
	if (!all || !facts(s, r->needs))
		return;
	s->audit->checked++;
	r->look(s);
}

/* ---- what is not known ---- */

static void gap_of_auto(struct fo_site *s, enum fo_job_setting x)
{
	const struct fo_job_value *v = &s->job->value[x];
	const char *key = fo_site_key(s, x);
	fo_audit_not_known(
		s->audit,
		fo_site_say(s, "%s (%s): %s leaves it to another program", key, fo_job_setting_row[x].meaning,
			    fo_site_evidence(s, x)),
		fo_site_say(s, "the trainer's own arguments, given as --set %s=VALUE,", v->key ? v->key : key));
}

/* "compile, attention and fp8" in one gap: a line for each would bury what matters. */
static void gap_of_settings(struct fo_site *s, const struct wanted *w)
{
	struct fo_str list = { 0 };
	int n = 0;
	for (int x = 0; x < FO_JOB_SETTINGS; x++) {
		if (!w->setting[x])
			continue;
		if (s->job->value[x].origin == FO_JOB_AUTO) {
			gap_of_auto(s, (enum fo_job_setting)x);
			continue;
		}
		const char *id = fo_job_setting_row[x].id;
		fo_str_printf(&list, "%s", n++ ? ", " : "");
		for (; *id; id++)
			fo_str_printf(&list, "%c", *id >= 'A' && *id <= 'Z' ? *id + 32 : *id);
	}
	if (n)
		fo_audit_not_known(s->audit,
				   fo_site_say(s, "%d setting%s that no file states: %s", n, fo_plural(n), list.data),
				   "--set NAME=VALUE");
	fo_str_fini(&list);
}

/* "tokens of a sequence: give --set seq=N" as what is not known and what would tell. */
static void gap_of(struct fo_site *s, const char *of, const char *unknown)
{
	const char *give = strstr(unknown, ": give ");
	int n = give ? (int)(give - unknown) : (int)strlen(unknown);
	fo_audit_not_known(s->audit, fo_site_say(s, "%s: %.*s", of, n, unknown),
			   give ? give + strlen(": give ") : "--set NAME=VALUE");
}

static void gap_of_facts(struct fo_site *s)
{
	if (!s->job->has_model)
		gap_of(s, "the model, and with it memory and what changes are worth",
		       s->job->model_missing ? s->job->model_missing : "none is named: give --model NAME");
	if (!s->cluster->device)
		fo_audit_not_known(s->audit, "the devices, their memory and links",
				   "--cluster, such as 2xHGX-H100, or the path of a cluster file,");
	if (s->job->has_model && s->cluster->device && s->memory->unknown)
		gap_of(s, "memory of a device", s->memory->unknown);
	if (s->job->has_model && s->cluster->device && s->step->unknown &&
	    (!s->memory->unknown || strcmp(s->memory->unknown, s->step->unknown)))
		gap_of(s, "what changes are worth", s->step->unknown);
	if (s->cluster->device && s->cluster->net_assumed && s->shape->devices > s->domain)
		fo_audit_not_known(s->audit, "the network between nodes: the device's usual adapter is assumed",
				   "a cluster file with net_gbit");
	enum { SHOWN = 6 };
	int64_t n = s->job->unread_count;
	struct fo_str list = { 0 };
	for (int64_t i = 0; i < n && i < SHOWN; i++)
		fo_str_printf(&list, "%s%s", i ? ", " : "", s->job->unread[i]);
	if (n)
		fo_audit_not_known(s->audit,
				   fo_site_say(s, "%lld setting%s of the files that no rule reads: %s%s", (long long)n,
					       fo_plural(n), list.data, n > SHOWN ? ", ..." : ""),
				   "the framework's manual");
	fo_str_fini(&list);
}

/* ---- findings together ---- */

enum { CHANGES_TOGETHER = FO_SITE_OFFERS * FO_RULE_CHANGES };

static bool touches(const struct fo_offer *o, const struct fo_job_change *all, int n)
{
	for (int i = 0; i < o->changes; i++)
		for (int k = 0; k < n; k++)
			if (o->change[i].setting == all[k].setting)
				return true;
	return false;
}

/* The one of the greatest certain gain that is left; NULL: none. */
static struct fo_offer *best_offer(struct fo_site *s)
{
	struct fo_offer *best = NULL;
	for (int i = 0; i < s->offers; i++)
		if (s->offer[i].changes && (!best || s->offer[i].low > best->low))
			best = &s->offer[i];
	return best;
}

/* Adds one finding's changes after the other while they fit, touch no setting again and gain. */
static void together(struct fo_site *s, struct fo_audit_config *c)
{
	struct fo_job_change all[CHANGES_TOGETHER];
	const char *ids = NULL;
	int n = 0, taken = 0;
	c->together = fo_range(NAN);
	c->together_ids = NULL;
	double sure = 1;
	for (struct fo_offer *o = best_offer(s); o; o->changes = 0, o = best_offer(s)) {
		struct fo_job_gain g;
		if (touches(o, all, n))
			continue;
		memcpy(all + n, o->change, (size_t)o->changes * sizeof *all);
		fo_site_what_if(s, all, n + o->changes, &g);
		if (!fo_gain_fits(&g) || !fo_range_known(g.times) || g.times.low <= sure)
			continue;
		sure = g.times.low;
		n += o->changes;
		ids = ids ? fo_site_say(s, "%s, %s", ids, o->id) : o->id;
		c->together = ++taken > 1 ? g.times : fo_range(NAN);
	}
	if (taken > 1)
		c->together_ids = ids;
}

/* What to give where less than half of the rules could look, or where neither memory nor a step is known. */
static const char *little(const struct fo_site *s)
{
	bool blind = !fo_range_known(s->memory->total) && !fo_range_known(s->step->total);
	if (!blind && 2 * s->audit->checked >= s->audit->concerned)
		return NULL;
	const char *unknown = s->memory->unknown ? s->memory->unknown : s->step->unknown, *give = NULL;
	if (s->shape->wrong)
		return NULL; /* the contradiction is a finding of its own */
	if (!s->job->has_model && !s->cluster->device)
		return "--model NAME and --cluster, for example 8xHGX-H100";
	if (!s->cluster->device)
		return "--cluster, for example 8xHGX-H100";
	give = unknown ? strstr(unknown, ": give ") : NULL;
	if (!give && !s->job->has_model)
		return "--model NAME or its config.json";
	return give ? give + strlen(": give ") : "the settings that are listed as not known";
}

/* Trays of four devices in a rack of 72 are no border: as many of them as fit count as one domain. A cluster that
 * divides racks otherwise (64 of 72) says so by its nodes. */
static double domain_of(const struct fo_cluster *c)
{
	enum { TRAY = 8 };
	double domain = c->per_node, fast = c->device ? c->device->scaleup_devices : NAN;
	if (domain <= TRAY && fast > TRAY) /* trays of a rack; a server of four of a board of eight is a border */
		domain = floor(fast / domain) * domain;
	return fmin(domain, c->devices);
}

void fo_audit_config(struct fo_audit *a, struct fo_audit_config *c)
{
	fo_job_shape_of(c->job, c->cluster, &c->shape);
	fo_job_memory_of(c->job, c->cluster, &c->memory);
	fo_job_step_of(c->job, c->cluster, &c->step);
	struct fo_site s = { .audit = a,
			     .job = c->job,
			     .cluster = c->cluster,
			     .shape = &c->shape,
			     .memory = &c->memory,
			     .step = &c->step };
	s.domain = domain_of(c->cluster);
	struct wanted w = { 0 };
	for (int t = 0; t < TABLES; t++)
		for (const struct fo_config_rule *r = table[t]; r->id; r++)
			look(&s, r, &w);
	together(&s, c);
	gap_of_facts(&s);
	gap_of_settings(&s, &w);
	a->little = little(&s);
}
