#include "base/json.h"
#include "hw/state.h"
#include "train/setup.h"

#include <stdio.h>

/* run.json: what the caller knows (options with origins, version), this machine, checksums of data and tokenizer. */
static void describe_run(const struct fo_setup *s, const struct fo_ckpt_meta *meta, struct fo_str *out)
{
	struct fo_json j;
	struct fo_machine m;
	char cpu[80], hex[24];
	fo_cpu_name(cpu, sizeof cpu);
	fo_json_begin(&j, out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_raw(&j, "run", s->hooks->run_json ? s->hooks->run_json : "null");
	struct fo_str passes = { 0 };
	fo_passes_text(&s->step.program.run.pass, &passes); /* of a program from a file too */
	fo_json_text(&j, "passes", passes.data);
	fo_str_fini(&passes);
	fo_json_object(&j, "machine");
	fo_json_text(&j, "cpu", cpu);
	fo_json_int(&j, "threads", s->step.options.threads);
	fo_json_text(&j, "isa", fo_isa_name[s->step.options.isa]);
	fo_json_real(&j, "peak_flop_s", fo_peak_or_nan(&s->peak));
	fo_json_text(&j, "peak_source", s->peak.source);
	if (s->cuda)
		fo_json_text(&j, "device", fo_cuda_info(s->cuda)->name);
	fo_json_text(&j, "affinity", s->run->affinity);
	fo_json_object(&j, "state");
	fo_machine_read(&m, "");
	fo_machine_json(&m, &j);
	fo_json_close(&j);
	fo_json_close(&j);
	fo_json_int(&j, "seed", s->run->seed);
	const struct {
		const char *key;
		uint64_t v;
	} sum[] = { { "tokenizer_checksum", meta->tokenizer_checksum },
		    { "train_shard_checksum", s->corpus.train.checksum },
		    { "val_shard_checksum", s->corpus.val.checksum },
		    { "program_hash", fo_program_hash(&s->step.program) } };
	for (size_t i = 0; i < sizeof sum / sizeof *sum; i++) {
		snprintf(hex, sizeof hex, "%016llx", (unsigned long long)sum[i].v);
		fo_json_text(&j, sum[i].key, hex);
	}
	fo_json_close(&j);
	fo_str_puts(out, "\n");
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
