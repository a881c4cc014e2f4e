/* flatout predict: operations' names in lists, and the step as a timeline; both of its halves use them. */
#include "cli/predict.h"

#include "sim/sim.h"
#include "timeline/timeline.h"

static const struct fo_op *op_of(const struct fo_program *p, const struct fo_sim_line *l)
{
	return &p->block[l->block].op[l->op];
}

const char *fo_cli_predict_operand(const struct fo_program *p, const struct fo_sim_line *l)
{
	const struct fo_op *o = op_of(p, l);
	const struct fo_buffer *written = NULL;
	for (int i = 0; i < o->n; i++) {
		const struct fo_buffer *b = &p->buf[o->arg[i].buf];
		if (b->home == FO_HOME_PARAM)
			return b->name;
		if (!written && fo_access_writes(o->arg[i].access))
			written = b;
	}
	return written ? written->name : NULL;
}

const char *fo_cli_predict_operation(struct fo_doc *d, const struct fo_program *p, const struct fo_sim_table *t,
				     const struct fo_sim_line *l)
{
	const struct fo_op *o = op_of(p, l);
	const char *block = p->block[l->block].name, *kind = fo_op_info(o->kind)->name,
		   *phase = fo_phase_name[o->phase];
	int alike = 0;
	for (int i = 0; i < t->lines; i++)
		alike += t->line[i].block == l->block && op_of(p, &t->line[i])->kind == o->kind &&
			 op_of(p, &t->line[i])->phase == o->phase;
	const char *operand = alike > 1 ? fo_cli_predict_operand(p, l) : NULL;
	if (operand && o->phase == FO_OPTIMIZER) /* their names are long, and they have no other phase */
		return fo_doc_printf(d, "%s %s %s", block, kind, operand);
	return operand ? fo_doc_printf(d, "%s %s.%s %s", block, kind, phase, operand)
		       : fo_doc_printf(d, "%s %s.%s", block, kind, phase);
}

fo_status fo_cli_predict_timeline(const struct fo_sim *s, const struct fo_program *p, const struct fo_unrolled *u,
				  const char *path)
{
	struct fo_timeline t;
	FO_TRY(fo_sim_timeline(s, p, u, &t));
	fo_status st = fo_timeline_write(&t, p, path);
	fo_timeline_fini(&t);
	return st;
}
