/* What the rules about configurations share. */
#ifndef FO_AUDIT_CONFIG_INT_H
#define FO_AUDIT_CONFIG_INT_H

#include "audit/config.h"

/* What a rule needs besides settings. */
enum {
	FO_NEED_MODEL = 1,   /* the architecture */
	FO_NEED_DEVICE = 2,  /* a device of the catalogue */
	FO_NEED_DOMAIN = 4,  /* how many devices share a fast fabric */
	FO_NEED_SHAPE = 8,   /* the whole division of the job */
	FO_NEED_MEMORY = 16, /* memory by parts, and what of it is usable */
	FO_NEED_STEP = 32,   /* time by parts */
};
enum { FO_RULE_SETTINGS = 4, FO_RULE_CHANGES = 8, FO_SITE_OFFERS = 24 };

/* The changes of a finding whose worth is known. */
struct fo_offer {
	const char *id;
	double low;
	struct fo_job_change change[FO_RULE_CHANGES];
	int changes;
};

struct fo_site;
struct fo_config_rule {
	const char *id;    /* stable, kebab-case */
	const char *forms; /* ids of the forms it is about, separated by blanks; NULL: all */
	unsigned needs;
	int settings; /* a rule is silent unless all of these are known; AUTO is unknown */
	enum fo_job_setting setting[FO_RULE_SETTINGS];
	/* Is the rule about such a job at all? NULL: about every one. What is unknown here does not concern. */
	bool (*concerns)(const struct fo_site *s);
	void (*look)(struct fo_site *s);
	const char *when; /* what triggers it, one sentence, for docs/audit-rules.md */
};
/* Tables end with a row without id. */
extern const struct fo_config_rule fo_config_rules_memory[], fo_config_rules_layout[], fo_config_rules_data[],
	fo_config_rules_pipeline[], fo_config_rules_compute[], fo_config_rules_types[], fo_config_rules_run[];

struct fo_site {
	struct fo_audit *audit;
	struct fo_job *job;
	const struct fo_cluster *cluster;
	const struct fo_job_shape *shape;
	const struct fo_job_memory *memory;
	const struct fo_job_step *step;
	const struct fo_config_rule *rule; /* the one that looks */
	double domain;                     /* devices of one fast fabric; NAN: not known */
	struct fo_offer offer[FO_SITE_OFFERS];
	int offers;
};

/* A setting has this number, and not because another program decides it. */
static inline bool fo_site_is(const struct fo_site *s, enum fo_job_setting x, double number)
{
	return s->job->value[x].origin != FO_JOB_AUTO && fo_job_is(s->job, x, number);
}
static inline bool fo_site_over(const struct fo_site *s, enum fo_job_setting x, double number)
{
	return s->job->value[x].origin != FO_JOB_AUTO && fo_job_number(s->job, x) > number;
}
/* Does the id of the job's form begin with one of these words? A job without a form is of none. */
bool fo_site_form(const struct fo_site *s, const char *forms);
/* All weights are trained: what is said about their gradients and optimizer states does not hold for adapters. */
bool fo_site_trains_all(const struct fo_site *s);
/* The job runs on more devices than one fast fabric joins. */
bool fo_site_spans(const struct fo_site *s);
/* "tensor_parallel_degree" as the framework spells it, else the id in lower case. */
const char *fo_site_key(const struct fo_site *s, enum fo_job_setting x);
/* The text of `number` as a value of the setting, in words of settings.def. */
const char *fo_site_text(const struct fo_site *s, enum fo_job_setting x, double number);
/* Is the framework's name of the setting a flag that says what is off: "--no-load-optim", "disable_cuda_graphs"? */
bool fo_site_negated(const struct fo_site *s, enum fo_job_setting x);
/* The value now, in the sense of the framework's own flag: "--no-load-optim" is "given" where nothing is loaded. */
const char *fo_site_now(const struct fo_site *s, enum fo_job_setting x);
/* Is there a word for the setting in the framework's files? A default without one is no choice of the user's. */
bool fo_site_has(const struct fo_site *s, enum fo_job_setting x);
/* Has the framework a setting for this, with such a value? What follows from other settings counts as settable. */
bool fo_site_settable(const struct fo_site *s, const struct fo_job_change *change);
/* "job.toml:12", "default of torchtitan 0.2.1". */
const char *fo_site_evidence(const struct fo_site *s, enum fo_job_setting x);
/* "61 to 72 GiB" */
const char *fo_site_gb(const struct fo_site *s, struct fo_range bytes);
const char *fo_site_percent(const struct fo_site *s, struct fo_range share); /* "12 to 18 %" */
#define fo_site_say(s, ...) fo_audit_text((s)->audit, __VA_ARGS__)

/* The setting's name where no file and no default names it; "": it follows from others; NULL: not known. */
const char *fo_site_spelled(const struct fo_site *s, enum fo_job_setting x);
/* Flags that these changes take away: "--no-rope-fusion", "--a and --b"; NULL: none. Arena of the audit. */
const char *fo_site_removed(const struct fo_site *s, const struct fo_job_change *change, int changes);
/* A proposal in words, and what is to be removed for it. */
const char *fo_site_and_removed(const struct fo_site *s, const char *proposed, const struct fo_job_change *change,
				int changes);
/* What a framework's file says to make these changes; NULL: not known, or flags are taken away and none is added.
 * Arena of the audit. */
const char *fo_site_paste(const struct fo_site *s, const struct fo_job_change *change, int changes);

struct fo_published {
	double low, high;
	const char *source; /* who measured it on what */
};
struct fo_proposal {
	enum fo_audit_level level;   /* of an ordinary gain */
	enum fo_job_setting setting; /* the one that is named */
	struct fo_job_change change[FO_RULE_CHANGES];
	int changes;       /* 0: nothing that the arithmetic knows is changed */
	bool by_code;      /* no file can say it: nothing to paste, and not part of what changes are worth together */
	bool compiled;     /* what it is worth in a compiled model, where this one is not yet */
	const char *title; /* a sentence without a full stop */
	const char *why, *source;
	const char *proposed, *evidence, *paste; /* NULL: made from the setting and its change */
	struct fo_published published;           /* counts where the arithmetic has no model of the change; 0: none */
	double serious;                          /* a certain gain from which on it is serious; 0: never */
	bool always; /* reported even where the arithmetic sees no gain: the setting is wrong in itself */
};
/* Adds the finding unless the framework has no such setting, or the change does not fit, hardly fits or certainly
 * loses; false: it was not added. A gain that stays below 1 % makes it a note; one that may be a loss, and memory that
 * may not suffice, are said. */
bool fo_site_propose(struct fo_site *s, const struct fo_proposal *p);
/* What the changes are worth. */
void fo_site_what_if(const struct fo_site *s, const struct fo_job_change *change, int changes, struct fo_job_gain *g);
/* The gain is of changes that fit for certain, and does not lose. */
bool fo_gain_fits(const struct fo_job_gain *g);
bool fo_gain_may_fit(const struct fo_job_gain *g); /* or more likely fits than not */
/* A plain finding about a setting, without arithmetic; setting < 0: about none. None where the framework has no such
 * setting. */
void fo_site_report(struct fo_site *s, enum fo_audit_level level, int setting, const char *proposed, const char *title,
		    const char *why, const char *source);

/* ---- changes of several settings that belong together; each returns how many it wrote ---- */

/* Another division into tensor, pipeline and context parallel; the sequences of a step stay, as far as they divide. */
int fo_change_layout(const struct fo_site *s, double tp, double pp, double cp, struct fo_job_change *out);
/* Another micro-batch. The batch of a step stays where it is made of several micro-batches, else it grows. */
int fo_change_micro_batch(const struct fo_site *s, double sequences, struct fo_job_change *out, bool *batch_grows);

#endif
