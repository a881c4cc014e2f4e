/* The stages of a run's pipeline: their layers, what they recompute, the memory that each rank plans. */
#include "cli/cli.h"

#include "pass/pass.h"

#include <stdlib.h>

fo_status fo_cli_stages(const struct fo_program *first, struct fo_doc *d, struct fo_json *j)
{
	const int32_t stages = fo_mesh_pp(&first->run.mesh);
	const int64_t layers = first->model.layers;
	struct fo_str parts = { 0 };
	if (stages < 2)
		return FO_OK;
	struct fo_pass_stage *stage = fo_xmalloc((size_t)stages * sizeof *stage);
	const fo_status st = fo_pass_stages(first, stage);
	fo_lowering_parts_text(&first->run, layers, &parts);
	if (j) {
		fo_json_text(j, "pp_layers", parts.data);
		fo_json_array(j, "stages");
	} else {
		fo_doc_line(d, "stages", "%d, with %s layers in the order of the model%s", stages, parts.data,
			    first->run.stages.parts ? "" : ": even");
		fo_doc_table(d, FO_DRAW_FULL, NULL, "lrlrrr", "stage", "layers", "recomputes", "activations",
			     "weights, state", "each rank");
	}
	for (int32_t k = 0; k < stages && st == FO_OK; k++) {
		const struct fo_pass_stage *s = &stage[k];
		struct fo_str repeat = { 0 };
		fo_recompute_stage_text(&first->run, layers, k, &repeat);
		if (j)
			fo_json_record(j, NULL, FO_INT("ranks", s->ranks), FO_INT("layers", s->layers),
				       FO_BOOL("embedding", s->embedding), FO_BOOL("head", s->head),
				       FO_TEXT("recompute", repeat.data), FO_INT("arena_bytes", s->arena_bytes),
				       FO_INT("persistent_bytes", s->persistent_bytes));
		else
			fo_doc_row(d, fo_doc_printf(d, "%d", k), fo_doc_count(d, s->layers),
				   fo_doc_printf(d, "%s", repeat.data), fo_doc_bytes(d, s->arena_bytes),
				   fo_doc_bytes(d, s->persistent_bytes),
				   fo_doc_bytes(d, s->arena_bytes + s->persistent_bytes));
		fo_str_fini(&repeat);
	}
	if (j)
		fo_json_close(j);
	fo_str_fini(&parts);
	free(stage);
	return st;
}
