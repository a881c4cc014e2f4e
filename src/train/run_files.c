#include "base/schema.h"
#include "kernel/calibrate.h"
#include "record/record.h"
#include "train/setup.h"

#include <inttypes.h>

static const char *hex_text(struct fo_setup *s, uint64_t v) { return fo_arena_printf(&s->arena, "%016" PRIx64, v); }

/* run.json: what the caller knows (options with origins, version), this machine, checksums of data and tokenizer. */
static void describe_run(struct fo_setup *s, const struct fo_ckpt_meta *meta, struct fo_str *out)
{
	const struct fo_room_step *step = &s->step;
	struct fo_str passes = { 0 };
	char cpu[80];
	fo_cpu_name(cpu, sizeof cpu);
	fo_passes_text(&step->program.run.pass, &passes); /* of a program from a file too */
	struct fo_record r = {
		.run = s->hooks->run_json,
		.passes = passes.data,
		.cpu = cpu,
		.threads = step->options.threads,
		.isa = fo_isa_name[step->options.isa],
		.peak_flop_s = fo_peak_or_nan(&s->peak),
		.peak_source = s->peak.source,
		.device = s->cuda ? fo_cuda_info(s->cuda)->name : NULL,
		.affinity = s->run->affinity,
		.seed = s->run->seed,
		.tokenizer_checksum = hex_text(s, meta->tokenizer_checksum),
		.train_checksum = hex_text(s, s->corpus.train.checksum),
		.val_checksum = hex_text(s, s->corpus.val.checksum),
		.program_hash = hex_text(s, fo_program_hash(&step->program)),
	};
	fo_machine_read(&r.state, "");
	fo_schema_text(&fo_run_schema, &r, true, out);
	fo_str_puts(out, "\n");
	fo_str_fini(&passes);
}

fo_status fo_setup_write_files(struct fo_setup *s, const struct fo_ckpt_meta *meta)
{
	struct fo_str text = { 0 };
	fo_program_dump(&s->step.program, &text);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/program.txt", s->run->dir), text.data,
					  text.len);
	text.len = 0;
	describe_run(s, meta, &text);
	s->run_json = fo_arena_strdup(&s->arena, text.data);
	if (st == FO_OK)
		st = fo_fs_write_atomic(fo_arena_printf(&s->arena, "%s/run.json", s->run->dir), text.data, text.len);
	fo_str_fini(&text);
	return st;
}
