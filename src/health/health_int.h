/* Private to health: its parts, each in its own file. */
#ifndef FO_HEALTH_HEALTH_INT_H
#define FO_HEALTH_HEALTH_INT_H

#include "health/health.h"

/* Text that lives as long as the record. */
#define fo_health_text(h, ...) fo_arena_printf(&(h)->arena, __VA_ARGS__)
#define fo_health_evidence(h, q, ...) fo_arena_say(&(h)->arena, &(q)->evidence, &(q)->evidences, __VA_ARGS__)
#define fo_health_conflict(h, ...) fo_arena_say(&(h)->arena, &(h)->conflict, &(h)->conflicts, __VA_ARGS__)
/* fo_draw_number's text, and "A to B", one of them where both read alike, "not known". */
const char *fo_health_num(struct fo_health *h, double v, enum fo_draw_unit unit);
const char *fo_health_range(struct fo_arena *a, struct fo_range r, enum fo_draw_unit unit);

/* One benchmark that NVIDIA published three times in four weeks (NeMo 24.07, commits 4c73f77, 3a8081f, 8e3d65d) spread
 * up to 6.4 %: a smaller difference of two runs is none. */
#define FO_HEALTH_NOISE 0.064

/* The clause as a sentence: with a capital and a full stop. */
const char *fo_health_sentence(struct fo_health *h, const char *clause);
/* The title within a sentence: without its capital, which a name in capitals keeps. */
const char *fo_health_clause(struct fo_health *h, const char *title);

/* sniff.c: takes path as what its content says, folders with their files. */
void fo_health_take(struct fo_health *h, const char *path, bool named);
/* Accounts for a log, and its rates. */
FO_CHECKED fo_status fo_health_account(struct fo_health_log *l, const struct fo_log_given *given);
/* claim.c */
bool fo_health_is_claim(const char *text, size_t len);
FO_CHECKED fo_status fo_health_read_claim(struct fo_health *h, const char *path, const char *text, size_t len,
					  struct fo_health_claim *out);
void fo_health_check_claims(struct fo_health *h);
/* audits.c: is the file a configuration, or of a host? Then both are judged. */
bool fo_health_take_job(struct fo_health *h, struct fo_health_file *f);
bool fo_health_take_host(struct fo_health *h, struct fo_health_file *f);
void fo_health_read_job(struct fo_health *h);
void fo_health_settle_cluster(struct fo_health *h);
void fo_health_audit(struct fo_health *h);
/* Does the finding speak of NCCL, or of the network that it uses? */
bool fo_health_of_network(const struct fo_audit_finding *f);
/* traces.c: opens what was taken for traces, and is it of this job? Then diagnoses it. */
void fo_health_open_traces(struct fo_health *h);
void fo_health_diagnose(struct fo_health *h);
/* mfu.c: which job, which device, MFU now, the cap, and what contradicts it. */
FO_CHECKED fo_status fo_health_name_devices(struct fo_health *h);
void fo_health_find_mfu(struct fo_health *h);
/* What of cap_from names the run alone, beside a label that says the rest. */
const char *fo_health_cap_run(const char *from);
void fo_health_compare_sources(struct fo_health *h);
/* questions.c, scaling.c */
bool fo_health_alone(const struct fo_health *h); /* one device, as far as anything tells */
void fo_health_ask_all(struct fo_health *h);
/* estimates.c: by the arithmetic of the configuration, where nothing was measured. */
void fo_health_estimate_communication(struct fo_health *h, struct fo_health_question *q);
void fo_health_estimate_scaling(struct fo_health *h, struct fo_health_question *q);
void fo_health_ask_scaling(struct fo_health *h, struct fo_health_question *q);
/* changes.c: gathers and merges. worth.c: MFU points, money, order, the savings. */
void fo_health_gather(struct fo_health *h);
/* Of changes in their order that set one option to different values, the first keeps its text to paste. */
void fo_health_settle_options(struct fo_health *h);
void fo_health_worth(struct fo_health *h);

/* The step of the diagnosis that figures are of; false: none can be judged. */
bool fo_health_step(const struct fo_health *h, struct fo_subject *s);
/* "rank 3, GPU 1 of trace.json.gz" */
const char *fo_health_unit(struct fo_health *h, const struct fo_rank_ledger *r, const struct fo_device_ledger *v);

#endif
