/* The elements of a document, as builders leave them and renderers read them. */
#ifndef FO_DRAW_DOC_INT_H
#define FO_DRAW_DOC_INT_H

#include "draw/doc.h"

enum fo_doc_kind {
	FO_DOC_VERDICT,
	FO_DOC_FACT,
	FO_DOC_HEADING,
	FO_DOC_PARA,
	FO_DOC_REMARK,
	FO_DOC_WARNING,
	FO_DOC_ITEM,
	FO_DOC_CODE,
	FO_DOC_DETAILS,
	FO_DOC_DETAILS_END,
	FO_DOC_CARD,
	FO_DOC_CARD_END,
	FO_DOC_TABLE,
	FO_DOC_ROW,
	FO_DOC_BARS,
	FO_DOC_LINES,
	FO_DOC_POINTS,
	FO_DOC_AREAS,
	FO_DOC_STACKS,
	FO_DOC_WATERFALL,
	FO_DOC_LANES,
	FO_DOC_SLOTS,
	FO_DOC_KINDS
};

struct fo_doc_node {
	enum fo_doc_kind kind;
	enum fo_doc_for only;
	enum fo_doc_tone tone;
	enum fo_doc_fold fold;
	enum fo_draw_shape shape;
	const char *text;  /* the sentence; of a fact the value, of a table align, of a row its title */
	const char *label; /* of verdicts and facts the name, of cards the tag, of tables the caption; may be NULL */
	const char *note;  /* of facts; may be NULL */
	const char **cell; /* of rows and of a table's head: cols of them */
	size_t cols;
	const void *picture; /* struct fo_draw_bars, ... */
};

/* Returns one past the last of the nodes from `at` on that have the kind of node `at` (verdicts, facts, items). Nodes
 * that the audience does not see do not end the run. */
size_t fo_doc_run(const struct fo_doc *d, size_t at, enum fo_doc_for audience);
static inline bool fo_doc_shown(const struct fo_doc_node *n, enum fo_doc_for audience)
{
	return n->only == FO_DOC_BOTH || n->only == audience;
}

#endif
