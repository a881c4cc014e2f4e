#include "train/train_int.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static void damaged(void *ctx, const char *why, const char *instead)
{
	fo_session_warn(ctx, "%s; going on from '%s' instead", why, instead);
}

fo_status fo_session_find(struct fo_session *s)
{
	fo_status st = fo_ckpt_pick(&s->arena, s->ckpt_dir, 0, damaged, s, &s->found_path, &s->found);
	if (st != FO_OK) {
		fo_err_save(&s->found_error, st);
		s->found = (struct fo_ckpt_meta){ 0 };
	}
	return FO_OK;
}

static const char *packing_name(int64_t packing)
{
	return packing >= 0 && packing < FO_PACK_COUNT ? fo_packing_name[packing] : "an unknown packing";
}

/* Another format of the state would be another run: an fp32 master that comes from halves is the same, but moments are not. */
static fo_status check_format(const char *path, const char *what, const char *option, const char *has, const char *wants)
{
	char shown[48];
	if (!strcmp(has, wants))
		return FO_OK;
	fo_str_visible(shown, sizeof shown, has);
	return fo_hint(fo_fail(FO_EARG, "checkpoint '%s' was trained with %s=%s, this run asks for %s", path, option, shown, wants),
		       "set %s=%s or choose another run.dir: %s are stored in that format", option, shown, what);
}

/* Maxima of so many steps are stored: tensors of another width would only be said to have another shape. */
static fo_status check_history(struct fo_session *s, const char *path)
{
	static const char prefix[] = "state.fp8.history";
	const char *file = fo_arena_printf(&s->arena, "%s/state.safetensors", path);
	const struct fo_st_tensor *want = NULL;
	for (size_t i = 0; i < s->tensors.states && !want; i++)
		if (!strncmp(s->tensors.state[i].name, prefix, sizeof prefix - 1))
			want = &s->tensors.state[i];
	struct fo_st_file f;
	if (!want || fo_st_open(&f, file) != FO_OK) /* a file that cannot be read is refused where it is read */
		return FO_OK;
	const struct fo_st_entry *e = fo_st_find(&f, want->name);
	int64_t has = e && e->ndim ? e->shape[e->ndim - 1] : want->cols;
	fo_st_close(&f);
	if (has == want->cols)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "checkpoint '%s' was trained with pass.fp8-history=%lld, this run asks for %lld", path, (long long)has,
			       (long long)want->cols),
		       "set pass.fp8-history=%lld or choose another run.dir: the maxima of so many steps are stored", (long long)has);
}

/* The same bits are promised for the same kernels. Which ones a processor takes may change with the machine, with FLATOUT_ISA, and
 * where two sets are timed against each other. */
static void compare_kernels(struct fo_session *s, const char *path)
{
	json_t *root = json_load_file(fo_arena_printf(&s->arena, "%s/run.json", path), 0, NULL), *machine = json_object_get(root, "machine");
	const char *was = json_string_value(json_object_get(machine, "isa")), *is = fo_isa_name[s->options.isa];
	char shown[48];

	if (was && strcmp(was, is) && !s->cuda && !json_object_get(machine, "device"))
		fo_session_warn(s,
				"checkpoint '%s' was made with %s kernels, this run goes on with %s: the same up to rounding, not to the bit "
				"(FLATOUT_ISA chooses)",
				path, fo_str_visible(shown, sizeof shown, was), is);
	json_decref(root);
}

fo_status fo_session_resume(struct fo_session *s)
{
	const char *path = s->found_path;
	const struct fo_ckpt_meta m = s->found;
	if (s->found_error.st != FO_OK)
		return fo_err_raise(&s->found_error);
	if (!path)
		return FO_OK;
	if (strcmp(m.precision, s->meta.precision))
		return fo_hint(fo_fail(FO_EARG, "checkpoint '%s' was trained in %s, this run asks for %s", path,
				       m.precision, s->meta.precision),
			       "set train.precision=%s or choose another run.dir", m.precision);
	FO_TRY(check_format(path, "master weights", "optim.master", m.master, s->meta.master));
	FO_TRY(check_format(path, "moments", "optim.moments", m.moments, s->meta.moments));
	if (m.tokenizer_checksum != s->meta.tokenizer_checksum || m.loader.shard_checksum != s->corpus.train.checksum)
		return fo_hint(fo_fail(FO_EARG,
				       "checkpoint '%s' was trained on other data or with another tokenizer than "
				       "'%s' holds",
				       path, s->corpus.dir),
			       "restore that folder or choose another run.dir");
	/* The batch of a step depends on the shape: another one would go on in the middle of other text. */
	if (m.seq != s->meta.seq || m.rows_per_step != s->meta.rows_per_step || m.packing != s->meta.packing)
		return fo_hint(
			fo_fail(FO_EARG,
				"checkpoint '%s' was trained on %lld rows of %lld tokens per step (%s), this run asks "
				"for %lld of %lld (%s)",
				path, (long long)m.rows_per_step, (long long)m.seq, packing_name(m.packing),
				(long long)s->meta.rows_per_step, (long long)s->meta.seq,
				packing_name(s->meta.packing)),
			"keep data.seq, data.packing and train.rows x train.micro-batches, or choose another run.dir");
	if (m.loader.seed != s->meta.loader.seed)
		return fo_hint(fo_fail(FO_EARG, "checkpoint '%s' was trained with another run.seed than %lld", path,
				       (long long)s->r->seed),
			       "keep the seed or choose another run.dir");
	FO_TRY(check_history(s, path));
	FO_TRY(fo_ckpt_read(path, s->tensors.weight, s->tensors.weights, s->tensors.state, s->tensors.states));
	s->meta = m;
	compare_kernels(s, path);
	return FO_OK;
}
