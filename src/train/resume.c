#include "train/resume.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define OWN(name, rule, kind, offset, data, options, why)    \
	{                                                    \
		name, rule, kind, offset, data, options, why \
	}
#define META(f) offsetof(struct fo_ckpt_meta, f)
#define PASS(f) offsetof(struct fo_passes, f)
#define SAME FO_RESUME_SAME
/* The rows that are compared beside the model's fields. */
static const struct fo_resume_row own[] = {
	OWN("model_type", SAME, FO_RESUME_MODEL_TYPE, 0, false, NULL, NULL),
	OWN("rope_scaling.rope_type", SAME, FO_RESUME_ROPE_TYPE, 0, false, NULL, NULL),
	OWN("train.precision", SAME, FO_RESUME_META_TEXT, META(precision), false, NULL, NULL),
	OWN("optim.master", SAME, FO_RESUME_META_TEXT, META(master), false, "optim.master optim.state", NULL),
	OWN("optim.moments", SAME, FO_RESUME_META_TEXT, META(moments), false, NULL, NULL),
	OWN("pass.fp8", SAME, FO_RESUME_PASS, PASS(fp8), false, NULL, NULL),
	OWN("pass.fp8-history", SAME, FO_RESUME_PASS, PASS(fp8_history), false, NULL, NULL),
	OWN("pass.fp8-wgrad", SAME, FO_RESUME_PASS, PASS(fp8_wgrad), false, NULL, NULL),
	OWN("pass.fp8-skip-first", SAME, FO_RESUME_PASS, PASS(fp8_first), false, NULL, NULL),
	OWN("pass.fp8-skip-last", SAME, FO_RESUME_PASS, PASS(fp8_last), false, NULL, NULL),
	/* A step's batch depends on these: others would go on in the middle of other text. */
	OWN("data.seq", SAME, FO_RESUME_META_INT, META(seq), false, NULL, NULL),
	OWN("data.packing", SAME, FO_RESUME_META_PACKING, META(packing), false, NULL, NULL),
	OWN("run.seed", SAME, FO_RESUME_META_SEED, META(loader.seed), false, NULL, NULL),
	OWN("checksum of the tokenizer", SAME, FO_RESUME_META_CHECKSUM, META(tokenizer_checksum), true,
	    "data.tokenizer data.vocab", NULL),
	OWN("checksum of train.shard", SAME, FO_RESUME_META_CHECKSUM, META(loader.shard_checksum), true,
	    "data.path data.holdout", NULL),
	OWN("checksum of val.shard", SAME, FO_RESUME_VAL_CHECKSUM, 0, true, "", NULL),
	OWN("rows in a step", FO_RESUME_WARNED, FO_RESUME_META_INT, META(rows_per_step), false,
	    "train.rows train.micro-batches train.batch-rows",
	    "the text goes on after what was seen, and steps are of another size"),
	OWN("optim.rounding", FO_RESUME_WARNED, FO_RESUME_PASS, PASS(rounding), false, NULL,
	    "weights and moments are rounded differently from here on"),
	OWN("pass.reduce-dtype", FO_RESUME_WARNED, FO_RESUME_PASS, PASS(reduce_dtype), false, NULL,
	    "gradients are rounded differently between ranks from here on"),
	/* The same bits are promised for the same kernels. Which ones a processor takes may change with the machine,
	 * with FLATOUT_ISA, and where two sets are timed against each other. */
	OWN("kernels", FO_RESUME_WARNED, FO_RESUME_KERNELS, 0, false, "",
	    "the same up to rounding, not to the bit (FLATOUT_ISA chooses)"),
};
#undef SAME
enum { OWN_ROWS = sizeof own / sizeof *own };

const char *const fo_resume_free[] = {
	/* Shown by the model's fields, or replaced by the checkpoint. */
	"model.name", "model.weights", "program.file",
	/* Place and means. */
	"run.dir", "run.threads", "run.affinity", "run.verify", "train.device", "train.tune", "memory.limit",
	"memory.budget",
	/* Length of the run, learning rate, clipping. */
	"train.steps", "optim.lr", "optim.schedule", "optim.warmup", "optim.final-lr", "optim.decay-share",
	"optim.beta1", "optim.beta2", "optim.eps", "optim.weight-decay", "optim.clip", "optim.clip-norm",
	/* Evaluation, checkpoints, guards, reports. */
	"eval.every", "eval.batches", "eval.packing", "checkpoint.every", "checkpoint.keep", "checkpoint.async",
	"checkpoint.last", "checkpoint.file-size", "guard.nonfinite", "guard.spike", "guard.spike-z",
	"guard.spike-window", "guard.limit", "log.every", "report.tensorboard", "report.prometheus", "sample.prompt",
	"sample.tokens", "train.metered-every", "train.timed-every", "train.kernel-times", "train.inputs-ahead",
	/* Passes that change numbers by rounding alone. */
	"pass.merge-qkv", "pass.merge-gate-up", "pass.fuse-loss", "pass.fuse-elementwise", "pass.fuse-rope",
	"pass.recompute", "pass.recompute-layers", "pass.offload", "pass.fused-optimizer", "pass.optimizer-in-backward",
	"pass.attention", "pass.fp8-scale-precompute", "pass.fp8-transposed", "pass.fp8-fuse", "pass.wgrad-lane",
	"mesh.ranks", "mesh.shard", "mesh.replicate", "mesh.cp", "mesh.tp", "mesh.pp", "mesh.pp-layers", "mesh.over",
	"mesh.link-gbps", "mesh.link-us", "pass.cp", "pass.pp", "pass.pp-chunks", "pass.tp-sequence", "pass.tp-async",
	"pass.ddp", "pass.overlap", "pass.zero", "pass.zero-prefetch", "pass.zero-reshard", "pass.zero-first",
	"pass.zero-sync",
	/* Paced runs keep no checkpoint and refuse a folder that has one. */
	"train.paced", NULL
};

int fo_resume_rows(void) { return fo_model_fields + OWN_ROWS; }

struct fo_resume_row fo_resume_row(int i)
{
	if (i >= fo_model_fields)
		return own[i - fo_model_fields];
	const struct fo_model_field *f = &fo_model_field[i];
	struct fo_resume_row row = {
		.name = f->said, .rule = FO_RESUME_SAME, .kind = FO_RESUME_MODEL_REAL, .offset = f->offset
	};
	if (f->type == 'i')
		row.kind = FO_RESUME_MODEL_INT;
	if (f->type == 'b')
		row.kind = FO_RESUME_MODEL_FLAG;
	/* The length is a statement about the model that nothing computes with. */
	if (f->offset == offsetof(struct fo_model, max_position))
		row.rule = FO_RESUME_FREE;
	return row;
}

/* A scaling with only the numbers that its type uses. */
static struct fo_rope used_rope(const struct fo_rope *r)
{
	struct fo_rope u = { .theta = r->theta, .type = r->type, .factor = 1 };
	if (r->type == FO_ROPE_LINEAR || r->type == FO_ROPE_LLAMA3)
		u.factor = r->factor;
	if (r->type == FO_ROPE_LLAMA3) {
		u.low_freq_factor = r->low_freq_factor;
		u.high_freq_factor = r->high_freq_factor;
		u.original_max_position = r->original_max_position;
	}
	return u;
}

static void model_value(const struct fo_resume_row *row, const struct fo_model *m, char *buf, size_t size)
{
	static const char *const rope[] = { "default", "linear", "llama3", "another" };
	struct fo_model canonical = *m;
	canonical.rope = used_rope(&m->rope);
	const char *at = (const char *)&canonical + row->offset, *type = fo_model_type(m);
	switch (row->kind) {
	case FO_RESUME_MODEL_INT: snprintf(buf, size, "%" PRId64, *(const int64_t *)(const void *)at); break;
	case FO_RESUME_MODEL_FLAG: snprintf(buf, size, "%s", *(const bool *)at ? "yes" : "no"); break;
	case FO_RESUME_MODEL_TYPE: snprintf(buf, size, "%s", type ? type : "none of ours"); break;
	case FO_RESUME_ROPE_TYPE: snprintf(buf, size, "%s", rope[m->rope.type]); break;
	default:
		/* The shortest form that reads back as the same number: 1e-05, not 1.0000000000000001e-05. */
		for (int digits = 6; digits <= 17; digits++) {
			double v = *(const double *)(const void *)at, back;
			snprintf(buf, size, "%.*g", digits, v);
			if (sscanf(buf, "%lf", &back) == 1 && back == v)
				break;
		}
	}
}

static bool meta_value(const struct fo_resume_row *row, const struct fo_ckpt_meta *m, char *buf, size_t size)
{
	const char *at = (const char *)m + row->offset;
	/* Checkpoints of version 0.1 have no shape. */
	bool shape = row->offset == META(seq) || row->offset == META(packing) || row->offset == META(rows_per_step);
	if (shape && !m->seq)
		return false;
	switch (row->kind) {
	case FO_RESUME_META_INT: snprintf(buf, size, "%" PRId64, *(const int64_t *)(const void *)at); break;
	case FO_RESUME_META_PACKING:
		snprintf(buf, size, "%s",
			 m->packing >= 0 && m->packing < FO_PACK_COUNT ? fo_packing_name[m->packing] : "unknown");
		break;
	case FO_RESUME_META_TEXT: fo_str_visible(buf, size, at); break;
	case FO_RESUME_META_SEED: snprintf(buf, size, "%" PRIu64, *(const uint64_t *)(const void *)at); break;
	default: snprintf(buf, size, "%016" PRIx64, *(const uint64_t *)(const void *)at);
	}
	return true;
}

/* The value of one item of "merge-qkv, fuse-loss=512, ...": the text after "=", "1" without one, and the name of 0
 * where the item is missing. */
static void pass_value(size_t offset, const char *passes, char *buf, size_t size)
{
	const char *name = "";
	for (int i = 0; i < fo_pass_fields; i++)
		if (fo_pass_field[i].offset == offset)
			name = fo_pass_field[i].name;
	size_t n = strlen(name);
	for (const char *p = passes; *p; p += strspn(p, ", ")) {
		size_t len = strcspn(p, ",");
		if (len >= n && !strncmp(p, name, n) && (len == n || p[n] == '=')) {
			char item[64];
			snprintf(item, sizeof item, "%.*s", (int)(len - n), p + n);
			fo_str_visible(buf, size, len == n ? "1" : item + 1);
			return;
		}
		p += len;
	}
	struct fo_str zero = { 0 };
	fo_pass_value_text(offset, 0, &zero);
	snprintf(buf, size, "%s", zero.len ? zero.data + 1 : "0");
	fo_str_fini(&zero);
}

bool fo_resume_value(const struct fo_resume_row *row, const struct fo_resume_side *side, char *buf, size_t size)
{
	switch (row->kind) {
	case FO_RESUME_MODEL_INT:
	case FO_RESUME_MODEL_FLAG:
	case FO_RESUME_MODEL_REAL:
	case FO_RESUME_MODEL_TYPE:
	case FO_RESUME_ROPE_TYPE:
		if (side->model)
			model_value(row, side->model, buf, size);
		return side->model != NULL;
	case FO_RESUME_PASS:
		if (side->passes)
			pass_value(row->offset, side->passes, buf, size);
		return side->passes != NULL;
	case FO_RESUME_VAL_CHECKSUM:
		if (side->val_checksum)
			snprintf(buf, size, "%016" PRIx64, *side->val_checksum);
		return side->val_checksum != NULL;
	case FO_RESUME_KERNELS:
		if (side->kernels)
			fo_str_visible(buf, size, side->kernels);
		return side->kernels != NULL;
	default: return side->meta && meta_value(row, side->meta, buf, size);
	}
}

void fo_resume_compare(const struct fo_resume_side *was, const struct fo_resume_side *is,
		       struct fo_resume_differences *out)
{
	*out = (struct fo_resume_differences){ 0 };
	for (int i = 0; i < fo_resume_rows(); i++) {
		const struct fo_resume_row row = fo_resume_row(i);
		char there[80], here[80];
		if (row.rule == FO_RESUME_FREE || !fo_resume_value(&row, is, here, sizeof here))
			continue;
		if (!fo_resume_value(&row, was, there, sizeof there)) {
			if (row.kind != FO_RESUME_KERNELS) /* made on a device: nothing to compare */
				fo_str_printf(&out->unknown, "%s%s", out->unknown.len ? ", " : "", row.name);
			continue;
		}
		if (!strcmp(there, here))
			continue;
		if (row.rule == FO_RESUME_WARNED) {
			fo_str_printf(&out->warned, "%s: %s in the checkpoint, %s from here on: %s\n", row.name, there,
				      here, row.why);
			continue;
		}
		fo_str_printf(&out->refused, "%s%s is %s there and %s here", out->refused.len ? "; " : "", row.name,
			      there, here);
		/* Model fields that are no options are set in config.json. */
		bool is_model = row.kind <= FO_RESUME_ROPE_TYPE;
		if (row.data)
			out->data = true;
		else if (is_model && strncmp(row.name, "model.", 6))
			out->model = true;
		else
			fo_str_printf(&out->set, "%s%s=%s", out->set.len ? ", " : "", row.name, there);
	}
}

void fo_resume_differences_fini(struct fo_resume_differences *d)
{
	fo_str_fini(&d->refused);
	fo_str_fini(&d->set);
	fo_str_fini(&d->warned);
	fo_str_fini(&d->unknown);
}

int64_t fo_resume_next_step(int64_t next_step, int64_t rows_before, int64_t rows, int64_t *left_out)
{
	int64_t seen, next;
	*left_out = 0;
	if (rows_before == rows || rows_before < 1 || __builtin_mul_overflow(next_step, rows_before, &seen))
		return next_step;
	next = seen / rows + (seen % rows != 0);
	*left_out = next * rows - seen;
	return next;
}
