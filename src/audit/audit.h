/* An audit reads settings, of a machine or of a run's configuration, and reports what holds training back. It never
 * changes one. Both halves (host.h, config.h) add findings to one list, which is sorted and shown here alone. */
#ifndef FO_AUDIT_AUDIT_H
#define FO_AUDIT_AUDIT_H

#include "base/json.h"
#include "base/mem.h"
#include "base/range.h"
#include "draw/doc.h"

/* SERIOUS: speed is lost for certain, or the job is about to fail; a command exits with 1. ADVICE: a better setting is
 * known, and what it gives depends on the run. NOTE: worth knowing; usually nothing is to be changed. */
enum fo_audit_level { FO_AUDIT_SERIOUS, FO_AUDIT_ADVICE, FO_AUDIT_NOTE, FO_AUDIT_LEVELS };
extern const char *const fo_audit_level_name[FO_AUDIT_LEVELS]; /* "serious", "advice", "note" */

struct fo_audit_finding {
	const char *id; /* stable, kebab-case: "gpu-pcie-width" */
	enum fo_audit_level level;
	const char *title;     /* a sentence without a full stop: "PCIe runs at x8 of x16 on 1 of 8 GPUs" */
	const char *setting;   /* what to set: "NCCL_IB_DISABLE"; NULL: nothing that can be set */
	const char *now;       /* its value now; NULL */
	const char *proposed;  /* NULL */
	const char *why;       /* one or two sentences */
	const char *evidence;  /* "env.txt:3", or the command or file of this machine; never NULL */
	const char *paste;     /* text to paste as it is; NULL */
	struct fo_range gain;  /* new speed over old speed: 1.05..1.12; unknown (also {0, 0}): no model of it exists */
	const char *gain_from; /* the model or the published source of `gain`; NULL where it is unknown */
	const char *source;    /* what the rule rests on: a manual with its version or date; NULL */
};

/* What could not be judged, and which file or command would tell. */
struct fo_audit_gap {
	const char *what, *tell;
};

struct fo_audit { /* a zeroed one is empty */
	struct fo_arena arena;
	struct fo_audit_finding *finding;
	size_t count, cap;
	struct fo_audit_gap *gap;
	size_t gaps, gap_cap;
	const char **read; /* what was read, a line each: "env.txt: environment (12 facts)" */
	int64_t reads;
	int64_t checked;        /* rules that had what they need and looked */
	int64_t concerned;      /* rules that are about such a job; 0: not counted */
	const char *little_why; /* why little is known: "no GPU on this machine"; NULL: few rules could look */
	const char *little; /* so little is known that silence means nothing: what would tell; NULL: enough is known */
};
void fo_audit_fini(struct fo_audit *a);

/* Adds a finding; its texts are copied. id, title and evidence are needed. */
void fo_audit_add(struct fo_audit *a, struct fo_audit_finding f);
/* Text that lives as long as the audit, for members of a finding. */
#define fo_audit_text(a, ...) fo_arena_printf(&(a)->arena, __VA_ARGS__)
/* Adds what is not known; one of the same words is added once. */
void fo_audit_not_known(struct fo_audit *a, const char *what, const char *tell);
/* Adds a line about what was read. */
#define fo_audit_read(a, ...) fo_arena_say(&(a)->arena, &(a)->read, &(a)->reads, __VA_ARGS__)

/* Serious ones first, those without a gain (which stop a job or lose it) before the others; within a level those of
 * the greatest certain gain first, then in the order of adding. */
void fo_audit_sort(struct fo_audit *a);
size_t fo_audit_of(const struct fo_audit *a, enum fo_audit_level level); /* how many */
static inline bool fo_audit_serious(const struct fo_audit *a) { return fo_audit_of(a, FO_AUDIT_SERIOUS) > 0; }

/* Appends the verdict, the findings as they are sorted, what was read and what is not known. */
void fo_audit_doc(struct fo_doc *d, const struct fo_audit *a);
/* Its two parts, for a page with something between verdict and findings. */
void fo_audit_doc_verdict(struct fo_doc *d, const struct fo_audit *a);
void fo_audit_doc_findings(struct fo_doc *d, const struct fo_audit *a);
/* The same as members of the open object: "serious", "advice", "notes", "checked", "little_known", "findings", "read",
 * "not_known". */
void fo_audit_json(struct fo_json *j, const struct fo_audit *a);

#endif
