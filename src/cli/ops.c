/* flatout ops: the operations table. */
#include "cli/cli.h"

#include "program/program.h"

struct ops {
	const char *json;
	bool force;
};

static const struct fo_opt rows[] = { FO_CLI_OUTPUT_ROWS(struct ops, "ops", "JSON on standard output") };

/* The modes an operand may have: "read", "def|part|acc". */
static const char *modes(struct fo_arena *a, int bits)
{
	struct fo_str s = { 0 };
	for (int m = FO_READ; m <= FO_TAKE; m++)
		if (bits & 1 << m)
			fo_str_printf(&s, "%s%s", s.len ? "|" : "", fo_access_name[m]);
	const char *text = fo_arena_strdup(a, s.data ? s.data : "");
	fo_str_fini(&s);
	return text;
}

static void write_json(struct fo_arena *a, struct fo_json *j)
{
	fo_json_array(j, "operations");
	for (int k = 0; k < FO_OP_COUNT; k++) {
		const struct fo_op_info *f = fo_op_info(k);
		fo_json_object(j, NULL);
		fo_json_put(j, FO_TEXT("name", f->name), FO_TEXT("class", fo_class_name[f->cls]),
			    FO_TEXT("category", fo_category_name[f->category]), FO_TEXT("doc", f->doc));
		fo_json_array(j, "operands");
		for (int i = 0; i < f->max_operands; i++) {
			fo_json_record(j, NULL, FO_TEXT("name", f->operand[i].name),
				       FO_TEXT("access", modes(a, f->operand[i].modes)),
				       FO_BOOL("optional", i >= f->min_operands),
				       FO_BOOL("per_tensor", i >= f->common));
		}
		fo_json_close(j);
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void print_table(struct fo_arena *a)
{
	for (int k = 0; k < FO_OP_COUNT; k++) {
		const struct fo_op_info *f = fo_op_info(k);
		struct fo_str line = { 0 };
		printf("%s%s  (%s, %s)\n", k ? "\n" : "", f->name, fo_class_name[f->cls],
		       fo_category_name[f->category]);
		fo_str_puts(&line, "  ");
		fo_opt_wrapped(&line, f->doc, 2, "  ", 80);
		fo_str_puts(&line, "  ");
		struct fo_str args = { 0 };
		for (int i = 0; i < f->max_operands; i++) {
			if (i)
				fo_str_puts(&args, " ");
			if (i == f->common)
				fo_str_puts(&args, "per tensor ");
			fo_str_printf(&args, "%s:%s%s", f->operand[i].name, modes(a, f->operand[i].modes),
				      i >= f->min_operands ? "?" : "");
		}
		fo_opt_wrapped(&line, args.data, 2, "    ", 80);
		fputs(line.data, stdout);
		fo_str_fini(&args);
		fo_str_fini(&line);
	}
}

static fo_status run(const struct fo_cli_call *call)
{
	struct fo_arena a = { 0 };
	if (call->json)
		write_json(&a, call->json);
	else
		print_table(&a);
	fo_arena_fini(&a);
	return FO_OK;
}

const struct fo_command fo_cmd_ops = {
	.name = "ops",
	.group = "improve",
	.usage = "flatout ops [--json]",
	.summary = "the operations that step programs are made of",
	.text = "Every operation declares itself once: its class (tensor, memory, comm, host), the row of the step "
		"profile its time belongs to, its operands with their access modes, and its shapes. T tokens of a "
		"micro-batch, D hidden, HQ heads x head dimension, KQ kv heads x head dimension, F ffn, V "
		"vocabulary.\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct ops),
};
