#include "train/pretrained.h"
#include "base/fs.h"
#include "ckpt/ckpt.h"
#include "record/record.h"
#include "train/room.h"
#include "train/store_int.h"

#include <jansson.h>
#include <string.h>

#define MAX_CONFIG ((size_t)1 << 20) /* a config.json is a few KiB */

/* The error of a run's folder that has no weights. */
static fo_status no_checkpoint(const char *path, const char *seen)
{
	struct fo_record r;
	bool none = fo_record_open(&r, path, 0) == FO_OK;
	if (none) {
		none = fo_record_saves_none(&r);
		fo_record_fini(&r);
	} else {
		fo_err_clear();
	}
	if (none)
		return fo_hint(fo_fail(FO_EARG,
				       "the run in '%s' has no checkpoint: with checkpoint.last=no none of its weights "
				       "were saved",
				       seen),
			       "train it again in another run.dir with checkpoint.last=yes");
	return fo_hint(fo_fail(FO_EARG, "the run in '%s' has no checkpoint yet", seen),
		       "training saves one at its end and every checkpoint.every steps");
}

/* Finds the folder that holds the weights, and the run that it belongs to. */
static fo_status resolve(struct fo_pretrained *p, const char *path)
{
	char seen[FO_PATH_BYTES];
	char *checkpoints = fo_arena_printf(&p->arena, "%s/checkpoints", path),
	     *config = fo_arena_printf(&p->arena, "%s/config.json", path);
	fo_str_visible(seen, sizeof seen, path);
	p->dir = fo_arena_strdup(&p->arena, path);
	if (fo_fs_exists(config)) {
		char *above = fo_arena_printf(&p->arena, "%s/../..", path);
		if (fo_fs_exists(fo_arena_printf(&p->arena, "%s/manifest.json", path)) &&
		    fo_fs_exists(fo_arena_printf(&p->arena, "%s/run.json", above)))
			p->run_dir = above;
		return FO_OK;
	}
	if (!fo_fs_is_dir(checkpoints) && fo_fs_exists(fo_arena_printf(&p->arena, "%s/log.jsonl", path)))
		return no_checkpoint(path, seen);
	if (!fo_fs_is_dir(checkpoints)) {
		const char *is = "not there";
		if (fo_fs_is_dir(path))
			is = "a folder without config.json or checkpoints";
		else if (fo_fs_exists(path))
			is = "a file, not the folder of a model";
		return fo_hint(fo_fail(FO_EARG, "'%s' is %s", seen, is),
			       "name a run directory, a checkpoint or a folder with config.json and model.safetensors");
	}
	char *newest;
	FO_TRY(fo_ckpt_newest(&p->arena, checkpoints, false, &newest));
	if (!newest)
		return no_checkpoint(path, seen);
	p->dir = newest;
	p->run_dir = fo_arena_strdup(&p->arena, path);
	return FO_OK;
}

/* The data type that config.json names ("torch_dtype", in newer files "dtype"). */
static fo_status stored_precision(struct fo_pretrained *p)
{
	char *text;
	size_t len;
	FO_TRY(fo_fs_read(&p->arena, fo_arena_printf(&p->arena, "%s/config.json", p->dir), MAX_CONFIG, &text, &len));
	json_t *j = json_loadb(text, len, 0, NULL); /* the model was read from the same text: it is JSON */
	const char *name = json_string_value(json_object_get(j, "torch_dtype"));
	if (!name)
		name = json_string_value(json_object_get(j, "dtype"));
	p->precision = name && (!strcmp(name, "bfloat16") || !strcmp(name, "float16")) ? FO_PRECISION_BF16
										       : FO_PRECISION_F32;
	json_decref(j);
	return FO_OK;
}

static fo_status open_all(struct fo_pretrained *p, const char *path, int precision)
{
	FO_TRY(resolve(p, path));
	char *tokenizer = fo_arena_printf(&p->arena, "%s/tokenizer.json", p->dir);
	if (fo_fs_exists(fo_arena_printf(&p->arena, "%s/manifest.json", p->dir))) {
		struct fo_ckpt_meta meta;
		FO_TRY(fo_ckpt_open(p->dir, &meta));
		p->step = meta.step;
		p->seq = meta.seq;
	}
	FO_TRY(fo_model_load(p->dir, &p->model));
	FO_TRY(fo_model_trainable(&p->model));
	FO_TRY(stored_precision(p));
	if (precision >= 0)
		p->precision = (enum fo_numerics)precision;
	return fo_fs_exists(tokenizer) ? fo_tokenizer_load(tokenizer, &p->tokenizer) : FO_OK;
}

fo_status fo_pretrained_open(struct fo_pretrained *p, const char *path, int precision)
{
	*p = (struct fo_pretrained){ .step = -1 };
	return open_all(p, path, precision);
}

void fo_pretrained_close(struct fo_pretrained *p)
{
	fo_tokenizer_free(p->tokenizer);
	fo_arena_fini(&p->arena);
	*p = (struct fo_pretrained){ 0 };
}

fo_status fo_pretrained_store(const struct fo_pretrained *p, const struct fo_program *program, struct fo_cuda *cuda,
			      struct fo_store **out)
{
	double need = 0, have = (double)fo_memory_available();
	char a[32], b[32];
	if (cuda) {
		int64_t left, total;
		FO_TRY(fo_cuda_memory(cuda, &left, &total));
		have = (double)left;
	}
	for (int i = 0; i < program->nbuf; i++)
		if (fo_home_persists(program->buf[i].home))
			need += (double)fo_buffer_bytes(&program->buf[i]) *
				(double)fo_buffer_layers(program, &program->buf[i]);
	if (have > 0 && need > have)
		return fo_hint(fo_fail(FO_ENOMEM, "the model in '%s' takes %s, this %s has %s free", p->dir,
				       fo_str_bytes(a, need), cuda ? "device" : "machine", fo_str_bytes(b, have)),
			       "fewer tokens need a smaller cache; bf16 takes half of fp32");
	FO_TRY(fo_store_new_on(out, program, cuda));
	fo_status st = fo_store_load(*out, program, p->dir);
	if (st != FO_OK) {
		fo_store_free(*out);
		*out = NULL;
	}
	return st;
}

fo_status fo_pretrained_generator(const struct fo_pretrained *p, const struct fo_exec_options *o, int64_t context,
				  int64_t chunk, struct fo_store **store, struct fo_generator **out)
{
	const struct fo_lowering low = { .seq = 1,
					 .rows = 1,
					 .micro_batches = 1,
					 .precision = p->precision,
					 .mode = FO_MODE_DECODE,
					 .context = context };
	struct fo_program program;
	FO_TRY(fo_program_lower(&program, &p->model, &low));
	fo_status st = fo_pretrained_store(p, &program, o->cuda, store);
	fo_program_fini(&program);
	if (st == FO_OK) {
		st = fo_generator_new(out, &p->model, p->precision, NULL, *store, o, context, chunk, NULL);
		if (st != FO_OK) {
			fo_store_free(*store);
			*store = NULL;
		}
	}
	return st;
}
