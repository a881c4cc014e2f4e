/* The half of an audit that reads the configuration of a training job: what it loses, what fails, what a change is
 * worth. Rules stand in rules_*.c, one table each; docs/audit-rules.md lists them. */
#ifndef FO_AUDIT_CONFIG_H
#define FO_AUDIT_CONFIG_H

#include "audit/audit.h"
#include "job/worth.h"

struct fo_audit_config {
	struct fo_job *job;               /* must outlive the audit's use of this struct; its arena takes texts */
	const struct fo_cluster *cluster; /* never NULL; what is unknown in it stays unknown */
	struct fo_job_shape shape;
	struct fo_job_memory memory;
	struct fo_job_step step;
	/* Findings whose changes go together, fit for certain and change no format of weights or matmuls:
	 * what they are worth at once. */
	struct fo_range together; /* NAN: fewer than two */
	const char *together_ids; /* "compile, micro-batch", arena of the audit */
};

/* Computes shape, memory and step of the job, lets every rule look, and adds findings and gaps to `a`, unsorted. */
void fo_audit_config(struct fo_audit *a, struct fo_audit_config *c);

/* Lines of verdict: memory, "61 to 72 of 79 GiB a device: fits", and what changes are worth together. */
void fo_audit_memory_verdict(struct fo_doc *d, const struct fo_audit_config *c);
/* The table of memory by parts, and of the step's time by parts where it is known. */
void fo_audit_config_tables(struct fo_doc *d, const struct fo_audit_config *c);
/* Members of the open object: "form", "release", "model", "cluster", "shape", "memory", "step". */
void fo_audit_config_json(struct fo_json *j, const struct fo_audit_config *c);

/* All rules, for the page of documentation and for tests; `when` says in a sentence what triggers the rule. */
int fo_audit_config_rules(void);
void fo_audit_config_rule(int i, const char **id, const char **when);

#endif
