/* Slots of pipelines as pictures: of a schedule that was walked through, and of logs of what ran. */
#ifndef FO_REPORT_SLOTS_H
#define FO_REPORT_SLOTS_H

#include "draw/doc.h"
#include "program/schedule.h"
#include "timeline/timeline.h"
#include "trace/schedule.h"

/* The picture of a plan and the walk through it, with begin and end in turns. All memory is the document's. */
void fo_slots_of_walk(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_pp_plan *plan,
		      const struct fo_pp_walk *w);
/* One step of one replica of a log, from the step's start: passes, collectives, optimizer, pauses. False: the log has
 * none there. */
bool fo_slots_of_log(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_schedule_log *s, int64_t step,
		     int32_t replica);

/* What a stage ran: its program and its rank's timeline. f NULL: it left none, and its row is empty. */
struct fo_slots_stage {
	const struct fo_program *p;
	const struct fo_timeline_file *f;
};
/* A step of a pipeline as its ranks' timelines have it, from the first slot of all to the end of the last; clocks are
 * rank 0's. A slot is what a stage computes for one micro-batch in one chunk (layers without a gap) without anything
 * else between. False: no stage has spans of that step. */
bool fo_slots_of_timelines(struct fo_doc *d, struct fo_draw_slots *out, const struct fo_slots_stage *stage,
			   int32_t stages, int32_t step);
/* The same of timeline files of one run, each with its program beside it: the first rank of each stage, and the last
 * step but one that all of them have (the last may be cut short; of a single step that one). False: they are of no
 * pipeline (*why NULL), or *why says what is missing. *program: stage 0's, freed by the caller where true. */
bool fo_slots_of_files(struct fo_doc *d, struct fo_draw_slots *out, const char *const *path, int paths,
		       struct fo_program *program, int32_t *step, const char **why);
/* How much of such a step was idle, measured and by the schedule's formula with the slots' own mean times. */
struct fo_slots_bubble {
	double measured; /* share of the time from the first slot to the end of the last, of all stages */
	double longest;  /* the same of the longest that one stage takes from its first slot to its last */
	double formula;  /* of the one that `by` is about; NAN: it does not hold for these times */
	struct fo_pp_formula by;
};
void fo_slots_bubble_of(struct fo_slots_bubble *out, const struct fo_draw_slots *c, const struct fo_pp_shape *shape);
/* "23.1 % of the time from the first pass to the last of step 5; even stages would leave 20.0 % (...)". */
const char *fo_slots_bubble_text(struct fo_doc *d, const struct fo_slots_bubble *b, int32_t step);
/* "even stages and messages that take no time would leave at most 20.0 % of a stage's own time by ...", or why the
 * formula says nothing. */
const char *fo_slots_formula_text(struct fo_doc *d, const struct fo_slots_bubble *b);
/* The object "pipeline" of a JSON. step: from 0; -1: none of a run. */
void fo_slots_bubble_json(struct fo_json *j, const struct fo_slots_bubble *b, const struct fo_pp_shape *shape,
			  int32_t step);
/* Names such a picture and puts it into the document. */
void fo_slots_draw(struct fo_doc *d, struct fo_draw_slots *c, const struct fo_pp_shape *shape, int32_t step);

#endif
