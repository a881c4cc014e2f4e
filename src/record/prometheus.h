/* Writes a run's figures as a text file for Prometheus, which node_exporter's textfile collector reads (a folder of
 * *.prom files).
 *
 * The format is Prometheus' text exposition format 0.0.4 (prometheus.io/docs/instrumenting/exposition_formats): HELP
 * and TYPE before each metric, base units in names, label values escaped. The file is written under another name and
 * renamed; it is not flushed to the disk, as its figures are of no use after a power cut. Times are Unix times. */
#ifndef FO_RECORD_PROMETHEUS_H
#define FO_RECORD_PROMETHEUS_H

#include "base/str.h"
#include "record/record.h"

/* Medians are of the newest steps: enough to smooth, few enough to follow. */
enum { FO_PROMETHEUS_STEPS = 64 };

struct fo_prometheus {
	/* Labels of flatout_run_info; run is a label of every metric. Borrowed, NULL is "". */
	const char *run, *version, *commit, *model, *cpu, *isa, *dtype;
	int64_t threads, steps_planned;                    /* -1: not known */
	int64_t step;                                      /* done */
	double tokens;                                     /* with loss, in all */
	double eval_loss, eval_step;                       /* NAN: none yet */
	double planned_bytes, measured_bytes, peak_flop_s; /* NAN: not known */
	double checkpoint_time, checkpoint_step;           /* NAN: none yet */
	double skipped, rewinds;
	struct fo_state_use machine; /* since the last look */
	/* Rows of the newest steps, a ring. */
	double recent[FO_PROMETHEUS_STEPS][FO_STEP_FIELD_COUNT];
	int64_t seen; /* steps ever put there */
};
void fo_prometheus_init(struct fo_prometheus *p); /* everything unknown */
void fo_prometheus_step(struct fo_prometheus *p, int64_t step, const double value[FO_STEP_FIELD_COUNT]);
/* The file's text. Figures that are not known are left out. */
void fo_prometheus_text(const struct fo_prometheus *p, struct fo_str *out);
FO_CHECKED fo_status fo_prometheus_write(const struct fo_prometheus *p, const char *path, bool wait);

/* Fills *p from a run that was read; texts are borrowed from it. */
void fo_prometheus_of(const struct fo_record *r, struct fo_prometheus *p);

#endif
