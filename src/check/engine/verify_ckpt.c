/* A checkpoint goes to disk and comes back; a damaged one is refused. */
#include "check/engine/verify_int.h"
#include "base/retry.h"

#include "train/train.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GROUP "checkpoint"

static fo_status save(struct fo_verify_rig *g, const char *dir)
{
	struct fo_tensors t = { 0 };
	const struct fo_ckpt_meta meta = {
		.step = 2, .tokens = 2, .seed = 1, .loss = g->ports.loss[0], .precision = "bf16"
	};
	fo_status st = fo_store_tensors(g->store, &g->program, &t);
	const struct fo_ckpt_content c = { .model = &g->program.model,
					   .weight_dtype = "bfloat16",
					   .weight = t.weight,
					   .weights = t.weights,
					   .state = t.state,
					   .states = t.states,
					   .run_config_json = "{}\n" };
	if (st == FO_OK)
		st = fo_exec_fetch(g->exec);
	if (st == FO_OK)
		st = fo_ckpt_save(dir, &c, &meta, 1);
	fo_tensors_fini(&t);
	return st;
}

static fo_status load(struct fo_verify_rig *g, const char *path)
{
	struct fo_tensors t = { 0 };
	struct fo_ckpt_meta meta;
	int64_t afresh;
	FO_TRY(fo_ckpt_open(path, &meta));
	fo_status st = fo_store_tensors(g->store, &g->program, &t);
	if (st == FO_OK)
		st = fo_ckpt_read(path, t.weight, t.weights, t.state, t.states, &afresh);
	fo_exec_weights_changed(g->exec);
	fo_tensors_fini(&t);
	return st;
}

/* Two steps, a checkpoint, one step more; then the third step again from the checkpoint in a fresh store. */
static fo_status round_trip(struct fo_verify_run *v, struct fo_arena *a, const char *dir, char **path)
{
	struct fo_verify_rig g, h = { 0 };
	const struct fo_exec_options how = fo_verify_how(v, v->isa);
	uint64_t saved, loaded, end, again;
	fo_status st;
	*path = NULL;
	FO_TRY_OR(st, fo_verify_rig_init(&g, FO_PRECISION_BF16, &how, NULL), done);
	FO_TRY_OR(st, fo_verify_rig_steps(&g, 1, 2, NULL, NULL), done);
	FO_TRY_OR(st, save(&g, dir), done);
	FO_TRY_OR(st, fo_ckpt_newest(a, dir, true, path), done);
	if (!*path) {
		st = fo_fail(FO_EIO, "the checkpoint that was saved in '%s' is not there", dir);
		goto done;
	}
	FO_TRY_OR(st, fo_verify_rig_digest(&g, &saved), done);
	FO_TRY_OR(st, fo_verify_rig_init(&h, FO_PRECISION_BF16, &how, NULL), done);
	FO_TRY_OR(st, load(&h, *path), done);
	h.ports.loss[0] = g.ports.loss[0]; /* the digest has it; a store that was read back has had no step yet */
	FO_TRY_OR(st, fo_verify_rig_digest(&h, &loaded), done);
	fo_verify_same_bits(v, GROUP, "saved and read back", "what was saved", saved == loaded);
	FO_TRY_OR(st, fo_verify_rig_steps(&g, 3, 1, NULL, NULL), done);
	FO_TRY_OR(st, fo_verify_rig_steps(&h, 3, 1, NULL, NULL), done);
	FO_TRY_OR(st, fo_verify_rig_digest(&g, &end), done);
	FO_TRY_OR(st, fo_verify_rig_digest(&h, &again), done);
	fo_verify_add(v, GROUP, "the step after it", "a run without the interruption", fo_verify_bits(&g, end == again),
		      end == again ? "the same bits" : "other bits");
done:
	fo_verify_rig_fini(&g);
	fo_verify_rig_fini(&h);
	return st;
}

/* Changes the byte in the middle of the file, or changes it back. */
static fo_status flip(const char *path)
{
	int fd = fo_open(path, O_RDWR | O_CLOEXEC, 0);
	off_t at = fd < 0 ? 0 : lseek(fd, 0, SEEK_END) / 2;
	unsigned char byte = 0;
	bool ok = fd >= 0 && pread(fd, &byte, 1, at) == 1;
	byte ^= 1;
	ok = ok && pwrite(fd, &byte, 1, at) == 1;
	if (fd >= 0)
		close(fd);
	return ok ? FO_OK : fo_fail(FO_EIO, "cannot change a byte of '%s': %s", path, strerror(errno));
}

/* Every file of the checkpoint with one byte changed, one after the other. */
static void refuse_damage(struct fo_verify_run *v, struct fo_arena *a, const char *path)
{
	const char *name = "one byte of each file changed", *against = "a refusal";
	char **file, detail[160];
	size_t n;
	if (fo_fs_list(a, path, 1000, &file, &n) != FO_OK) {
		fo_verify_error(v, GROUP, name, against);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		struct fo_ckpt_meta meta;
		if (flip(file[i]) != FO_OK) {
			fo_verify_error(v, GROUP, name, against);
			return;
		}
		if (fo_ckpt_open(path, &meta) == FO_OK) {
			const char *base = strrchr(file[i], '/');
			snprintf(detail, sizeof detail, "a checkpoint with another byte in %s was accepted",
				 base ? base + 1 : file[i]);
			fo_verify_add(v, GROUP, name, against, FO_VERIFY_FAIL, detail);
			return;
		}
		if (flip(file[i]) != FO_OK) {
			fo_verify_error(v, GROUP, name, against);
			return;
		}
	}
	snprintf(detail, sizeof detail, "%zu files", n);
	if (n)
		fo_verify_add(v, GROUP, name, against, FO_VERIFY_PASS, detail);
	else
		fo_verify_add(v, GROUP, name, against, FO_VERIFY_NOT_CHECKED, "no files");
}

void fo_verify_checkpoint(struct fo_verify_run *v)
{
	const char *group = fo_verify_group(v, GROUP), *base = getenv("TMPDIR");
	struct fo_arena a = { 0 };
	char *dir = fo_arena_printf(&a, "%s/flatout-verify-XXXXXX", base && *base ? base : "/tmp"), *path;
	if (!mkdtemp(dir)) {
		fo_verify_add(v, group, "saved and read back", "what was saved", FO_VERIFY_NOT_CHECKED,
			      fo_arena_printf(&a, "cannot make a temporary folder '%s': %s", dir, strerror(errno)));
		fo_arena_fini(&a);
		return;
	}
	if (round_trip(v, &a, dir, &path) != FO_OK)
		fo_verify_error(v, group, "saved and read back", "what was saved");
	else
		refuse_damage(v, &a, path);
	if (fo_fs_remove_tree(dir) != FO_OK)
		fo_verify_error(v, group, "temporary folder removed", "an empty place");
	fo_arena_fini(&a);
}
