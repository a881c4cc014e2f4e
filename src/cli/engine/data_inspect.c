/* flatout data inspect: what is in a shard. */
#include "cli/engine/data.h"
#include "cli/engine/textout.h"

#include "base/fs.h"

#include <stdlib.h>
#include <string.h>

struct inspect {
	int64_t doc, seq, seed;
	int split;
	const char *tokenizer;
	const char *json;
	bool force;
};
static const struct fo_opt rows[] = { FO_OPT_INT(struct inspect, doc, "inspect.doc", "N", "-1", -1, 0x1p53, "",
						 "show this document's text, from 0; -1: none"),
				      FO_OPT_LENGTH(struct inspect, seq, "inspect.seq", "N", "2048", 1, 1 << 24,
						    "length of the rows that the packings are compared at"),
				      FO_OPT_INT(struct inspect, seed, "inspect.seed", "N", "1", 0, 0x1p53, "",
						 "of the order in which 'packed' lays documents"),
				      FO_OPT_ENUM(struct inspect, split, "inspect.split", "train",
						  "which shard of a folder", "train|val"),
				      FO_OPT_PATH(struct inspect, tokenizer, "inspect.tokenizer", "FILE", "",
						  "empty: tokenizer.json beside the shard"),
				      FO_OPT_JSON(struct inspect, json, "inspect.json", "JSON on standard output"),
				      FO_OPT_FORCE(struct inspect, force, "inspect.force"),
				      FO_OPT_END };

enum { BINS = 48 }; /* by powers of two: 2^48 tokens are more than there is text */

struct view {
	const struct inspect *in;
	struct fo_arena arena;
	const char *path;
	struct fo_shard shard;
	struct fo_shard_sources sources;
	struct fo_tokenizer *tokenizer; /* NULL: there is none, or it is another one's */
	const char *tokenizer_path, *tokenizer_note;
	int64_t bin[BINS], bins, longest;
	struct fo_packing_cost cost[FO_PACK_COUNT];
};

static int64_t length(const struct fo_shard *s, int64_t d) { return s->doc_at[d + 1] - s->doc_at[d]; }

static void count_lengths(struct view *v)
{
	for (int64_t d = 0; d < v->shard.docs; d++) {
		int64_t n = length(&v->shard, d);
		int bin = 63 - __builtin_clzll((uint64_t)n);
		v->bin[bin]++;
		v->bins = v->bins > bin + 1 ? v->bins : bin + 1;
		v->longest = v->longest > n ? v->longest : n;
	}
}

static fo_status open_tokenizer(struct view *v)
{
	const char *slash = strrchr(v->path, '/');
	int folder = slash ? (int)(slash - v->path) + 1 : 0;
	v->tokenizer_path = v->in->tokenizer;
	if (!*v->in->tokenizer)
		v->tokenizer_path = fo_arena_printf(&v->arena, "%.*stokenizer.json", folder, v->path);
	if (!*v->in->tokenizer && !fo_fs_exists(v->tokenizer_path)) {
		v->tokenizer_note = "none beside the shard";
		return FO_OK;
	}
	FO_TRY(fo_tokenizer_load(v->tokenizer_path, &v->tokenizer));
	if (fo_tokenizer_checksum(v->tokenizer) == v->shard.tokenizer_checksum)
		return FO_OK;
	if (*v->in->tokenizer)
		return fo_fail(FO_EARG, "the shard was made with another tokenizer than '%s'", v->tokenizer_path);
	fo_tokenizer_free(v->tokenizer);
	v->tokenizer = NULL;
	v->tokenizer_note = "the one beside the shard is another";
	return FO_OK;
}

static fo_status open_view(struct view *v, const char *path)
{
	const char *split = v->in->split ? "val" : "train";
	v->path = fo_arena_strdup(&v->arena, path);
	if (fo_fs_is_dir(path))
		v->path = fo_arena_printf(&v->arena, "%s/%s.shard", path, split);
	if (fo_fs_is_dir(path) && !fo_fs_exists(v->path))
		return fo_hint(fo_fail(FO_EARG, "'%s' holds no %s.shard", path, split),
			       "'flatout data prepare' makes a folder of shards; a run keeps its own in run.dir/data");
	FO_TRY(fo_shard_open(&v->shard, v->path));
	FO_TRY(fo_shard_sources_open(&v->sources, &v->shard, v->path));
	if (v->sources.docs)
		FO_TRY(fo_shard_sources_verify(&v->sources));
	return open_tokenizer(v);
}

/* ---- one document ---- */

static fo_status decode(const struct view *v, int64_t doc, struct fo_str *out)
{
	const struct fo_shard *s = &v->shard;
	if (doc >= s->docs)
		return fo_fail(FO_EARG, "no document %lld: the shard has %lld, from 0", (long long)doc,
			       (long long)s->docs);
	if (!v->tokenizer)
		return fo_hint(fo_fail(FO_EARG, "no tokenizer to decode with: %s", v->tokenizer_note),
			       "--tokenizer=FILE names it");
	/* BOS and EOS are left out. */
	for (int64_t i = s->doc_at[doc] + 1; i + 1 < s->doc_at[doc + 1]; i++)
		fo_tokenizer_decode(v->tokenizer, &(int32_t){ s->ids16 ? s->ids16[i] : (int32_t)s->ids32[i] }, 1, out);
	return FO_OK;
}

static fo_status source_of(const struct view *v, int64_t doc, struct fo_doc_source *source)
{
	*source = (struct fo_doc_source){ NULL, 0 };
	return v->sources.docs ? fo_shard_source(&v->sources, doc, source) : FO_OK;
}

static fo_status show_document(const struct view *v)
{
	struct fo_str text = { 0 };
	struct fo_doc_source from;
	fo_status st = decode(v, v->in->doc, &text);
	if (st == FO_OK)
		st = source_of(v, v->in->doc, &from);
	if (st == FO_OK && v->in->json) {
		struct fo_str out = { 0 };
		struct fo_json j;
		fo_json_begin(&j, &out, false);
		fo_json_object(&j, NULL);
		fo_json_int(&j, "schema", 1);
		fo_json_int(&j, "document", v->in->doc);
		fo_json_text(&j, "path", from.path);
		fo_json_int(&j, "line", from.line);
		fo_json_int(&j, "tokens", length(&v->shard, v->in->doc));
		struct fo_str quoted = { 0 };
		fo_json_string(&quoted, text.data ? text.data : "", text.len);
		fo_json_raw(&j, "text", quoted.data);
		fo_str_fini(&quoted);
		fo_json_close(&j);
		printf("%s\n", out.data);
		fo_str_fini(&out);
	} else if (st == FO_OK) {
		printf("document %lld, %lld tokens", (long long)v->in->doc, (long long)length(&v->shard, v->in->doc));
		if (from.path)
			printf(", from %s", fo_cli_seen(from.path));
		if (from.line)
			printf(":%lld", (long long)from.line);
		printf("\n\n");
		struct fo_textout screen = { 0 };
		struct fo_str safe = { 0 };
		fo_textout_put(&screen, text.data ? text.data : "", text.len, &safe);
		fo_textout_end(&screen, &safe);
		fwrite(safe.data, 1, safe.len, stdout);
		fo_str_fini(&safe);
		printf("\n");
	}
	fo_str_fini(&text);
	return st;
}

/* ---- the whole shard ---- */

static void put_lengths(struct view *v)
{
	struct fo_table t;
	int64_t most = 0;
	for (int64_t b = 0; b < v->bins; b++)
		most = most > v->bin[b] ? most : v->bin[b];
	fo_table_init(&t, "rrrl");
	fo_table_row(&t, "tokens", "documents", "share", "");
	for (int64_t b = 0; b < v->bins; b++) {
		char bar[33] = "";
		int64_t n = most ? (v->bin[b] * 32 + most - 1) / most : 0;
		memset(bar, '#', (size_t)n);
		if (v->bin[b])
			fo_table_row(&t, fo_arena_printf(&v->arena, "%lld..%lld", 1ll << b, (2ll << b) - 1),
				     fo_arena_printf(&v->arena, "%lld", (long long)v->bin[b]),
				     fo_arena_printf(&v->arena, "%.1f %%",
						     100.0 * (double)v->bin[b] / (double)v->shard.docs),
				     bar);
	}
	fo_cli_table(&t, "  ", true);
	fo_table_fini(&t);
}

static const char *share(struct fo_arena *a, double part, double whole)
{
	return fo_arena_printf(a, "%.2f %%", whole > 0 ? 100 * part / whole : 0);
}

static void put_packings(struct view *v)
{
	static const int order[] = { FO_PACK_PACKED, FO_PACK_BESTFIT, FO_PACK_SPLIT, FO_PACK_PADDED };
	struct fo_table t;
	fo_table_init(&t, "lrrrr");
	fo_table_row(&t, "data.packing", "rows", "padding", "tokens dropped", "cut needlessly");
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		const struct fo_packing_cost *c = &v->cost[order[i]];
		fo_table_row(&t, fo_packing_name[order[i]], fo_arena_printf(&v->arena, "%.0f", c->rows),
			     share(&v->arena, c->padding, c->rows * (double)v->in->seq),
			     share(&v->arena, (double)c->truncated, (double)v->shard.tokens),
			     fo_arena_printf(&v->arena, "%lld", (long long)c->cut_docs));
	}
	fo_cli_table(&t, "  ", true);
	fo_table_fini(&t);
}

static void show_text(struct view *v)
{
	char a[32];
	const struct fo_shard *s = &v->shard;
	printf("%s\n\n", fo_cli_seen(v->path));
	printf("  documents  %lld\n  tokens     %lld (%s)\n", (long long)s->docs, (long long)s->tokens,
	       fo_str_si(a, (double)s->tokens, ""));
	printf("  lengths    mean %.1f, longest %lld\n", (double)s->tokens / (double)s->docs, (long long)v->longest);
	printf("  vocabulary %lld, %d bytes per id\n", (long long)s->vocab, s->ids16 ? 2 : 4);
	printf("  checksum   %016llx, as its bytes have it\n", (unsigned long long)s->checksum);
	printf("  tokenizer  %016llx", (unsigned long long)s->tokenizer_checksum);
	if (v->tokenizer)
		printf(", %s\n", fo_cli_seen(v->tokenizer_path));
	else
		printf("; %s\n", v->tokenizer_note);
	if (v->sources.docs)
		printf("  sources    %lld %s\n", (long long)v->sources.files,
		       fo_cli_plural(v->sources.files, "file", "files"));
	else
		printf("  sources    not recorded\n");
	printf("\nLengths of the documents, BOS and EOS included\n\n");
	put_lengths(v);
	printf("\nRows of %lld tokens; %lld %s longer than a row\n\n", (long long)v->in->seq,
	       (long long)v->cost[0].long_docs, fo_cli_plural(v->cost[0].long_docs, "document is", "documents are"));
	put_packings(v);
}

static void show_json(struct view *v)
{
	const struct fo_shard *s = &v->shard;
	struct fo_json *j = fo_cli_json_begin();
	char hex[17];
	fo_json_text(j, "path", v->path);
	fo_json_int(j, "documents", s->docs);
	fo_json_int(j, "tokens", s->tokens);
	fo_json_int(j, "longest", v->longest);
	fo_json_int(j, "vocab", s->vocab);
	snprintf(hex, sizeof hex, "%016llx", (unsigned long long)s->checksum);
	fo_json_text(j, "checksum", hex);
	snprintf(hex, sizeof hex, "%016llx", (unsigned long long)s->tokenizer_checksum);
	fo_json_text(j, "tokenizer_checksum", hex);
	fo_json_text(j, "tokenizer", v->tokenizer ? v->tokenizer_path : NULL);
	fo_json_int(j, "source_files", v->sources.files);
	fo_json_array(j, "documents_by_log2_length");
	for (int64_t b = 0; b < v->bins; b++)
		fo_json_int(j, NULL, v->bin[b]);
	fo_json_close(j);
	fo_json_int(j, "seq", v->in->seq);
	fo_json_int(j, "documents_longer_than_a_row", v->cost[0].long_docs);
	fo_json_object(j, "packing");
	for (int i = 0; i < FO_PACK_COUNT; i++) {
		fo_json_object(j, fo_packing_name[i]);
		fo_json_real(j, "rows", v->cost[i].rows);
		fo_json_real(j, "padding_tokens", v->cost[i].padding);
		fo_json_int(j, "dropped_tokens", v->cost[i].truncated);
		fo_json_int(j, "documents_cut_needlessly", v->cost[i].cut_docs);
		fo_json_close(j);
	}
	fo_json_close(j);
	fo_cli_json_end(j);
}

static fo_status inspect(const struct inspect *in, const char *path, struct view *v)
{
	v->in = in;
	FO_TRY(open_view(v, path));
	if (in->doc >= 0)
		return show_document(v);
	count_lengths(v);
	for (int i = 0; i < FO_PACK_COUNT; i++)
		FO_TRY(fo_packing_measure(&v->shard, in->seq, (enum fo_packing)i, (uint64_t)in->seed, &v->cost[i]));
	(in->json ? show_json : show_text)(v);
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct view v = { 0 };
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no shard is named"),
			       "name a .shard file or a folder that 'flatout data prepare' made");
	fo_status st = inspect(call->in, call->argv[1], &v);
	fo_tokenizer_free(v.tokenizer);
	fo_shard_sources_close(&v.sources);
	if (v.shard.map)
		fo_shard_close(&v.shard);
	fo_arena_fini(&v.arena);
	return st;
}

const struct fo_command fo_cmd_data_inspect = {
	.name = "data inspect",
	.group = "train",
	.usage = "flatout data inspect DIR|FILE.shard [--seq=N] [--doc=N] [--split=train|val] [--json]",
	.summary = "what is in a shard: documents, lengths, packings, texts",
	.text = "Reads all of the shard and checks it. The last table compares what rows of --seq tokens cost: padding "
		"(places without a token), tokens dropped, and documents that would fit into a row and are cut all the "
		"same.\n\n"
		"  flatout data inspect c4.tokens --seq=4096\n"
		"  flatout data inspect c4.tokens --doc=17\n"
		"  flatout data inspect runs/demo/data/val.shard --json\n",
	.opts = rows,
	.act = run,
	.size = sizeof(struct inspect),
	.most = 1,
};
