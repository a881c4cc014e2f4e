/* flatout ladder: prints what a ladder's directory holds, and writes its files. */
#include "cli/ladder.h"

#include "base/fs.h"

/* Writes DIR/ladder.json and DIR/ladder.html. */
static fo_status write_files(const struct fo_ladder *l, const struct fo_doc *d)
{
	struct fo_arena a = { 0 };
	struct fo_str s = { 0 };
	fo_ladder_json(l, &s);
	fo_status st = fo_fs_write_atomic(fo_arena_printf(&a, "%s/ladder.json", l->dir), s.data, s.len);
	if (st == FO_OK)
		st = fo_cli_page(d, fo_arena_printf(&a, "%s/ladder.html", l->dir));
	fo_str_fini(&s);
	fo_arena_fini(&a);
	return st;
}

static fo_status conclude(const struct fo_ladder *l)
{
	for (int i = 0; i < l->rungs; i++)
		if (l->rung[i].check == FO_LADDER_LEFT)
			return fo_hint(
				fo_fail(FO_ENUMERIC,
					"the losses of rung '%s' left those of '%s': %.2f %% away, %.1f %% are allowed",
					l->rung[i].name, l->rung[l->rung[i].reference].name, 100 * l->rung[i].deviation,
					100 * l->rung[i].tolerance),
				"a change that only makes steps faster keeps the losses: look at what the rung "
				"changes");
	int failed = 0;
	for (int i = 1; i < l->rungs; i++)
		failed += l->rung[i].reason != NULL;
	/* No gain was measured. */
	if (l->rung[0].reason || (l->rungs > 1 && failed == l->rungs - 1))
		return fo_fail(FO_EIO,
			       l->rung[0].reason ? "rung '%s', the baseline, failed" : "every rung but '%s' failed",
			       l->rung[0].name);
	return FO_OK;
}

fo_status fo_cli_ladder_report(const char *dir, const struct fo_cli_ladder *in, bool keeps)
{
	struct fo_ladder l;
	struct fo_doc d = { 0 };
	FO_TRY(fo_ladder_read(&l, dir));
	fo_ladder_doc(&l, in->brief, &d);
	if (in->json) {
		struct fo_str s = { 0 };
		fo_ladder_json(&l, &s);
		fputs(s.data, stdout);
		fo_str_fini(&s);
	} else {
		fo_cli_print(stdout, &d);
	}
	/* The text goes out before a file can fail: the ladder took hours. */
	fflush(stdout);
	struct fo_arena a = { 0 };
	fo_status st = in->force ? FO_OK
				 : fo_output_may_replace(FO_OUTPUT_PAGE, fo_arena_printf(&a, "%s/ladder.html", dir));
	fo_arena_fini(&a);
	if (st == FO_OK)
		st = write_files(&l, &d);
	if (st == FO_OK && !in->json)
		printf("\nPictures: %s/ladder.html\n", fo_cli_seen(dir));
	if (st != FO_OK && !keeps) {
		fprintf(stderr, "warning: %s\n", fo_cli_seen(fo_err_text()));
		fo_err_clear();
		st = FO_OK;
	}
	if (st == FO_OK)
		st = conclude(&l);
	fo_doc_fini(&d);
	fo_ladder_fini(&l);
	return st;
}
