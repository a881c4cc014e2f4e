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
				      FO_CLI_OUTPUT_ROWS(struct inspect, "inspect", "JSON on standard output") };

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

static fo_status show_document(const struct fo_cli_call *call, const struct view *v)
{
	struct fo_str text = { 0 }, shown = { 0 };
	struct fo_doc_source from = { NULL, 0 };
	int64_t tokens = 0;
	fo_status st = decode(v, v->in->doc, &text);
	if (st == FO_OK && v->sources.docs)
		st = fo_shard_source(&v->sources, v->in->doc, &from);
	if (st == FO_OK)
		tokens = length(&v->shard, v->in->doc);
	if (st == FO_OK && call->json) {
		fo_json_put(call->json, FO_INT("document", v->in->doc), FO_TEXT("path", from.path),
			    FO_INT("line", from.line), FO_INT("tokens", tokens));
		fo_json_string(&shown, text.data ? text.data : "", text.len);
		fo_json_raw(call->json, "text", shown.data);
	} else if (st == FO_OK) {
		printf("document %lld, %lld tokens", (long long)v->in->doc, (long long)tokens);
		if (from.path)
			printf(", from %s", fo_cli_seen(from.path));
		if (from.line)
			printf(":%lld", (long long)from.line);
		struct fo_textout screen = { 0 };
		fo_textout_put(&screen, text.data ? text.data : "", text.len, &shown);
		fo_textout_end(&screen, &shown);
		printf("\n\n%s\n", shown.data ? shown.data : "");
	}
	fo_str_fini(&shown);
	fo_str_fini(&text);
	return st;
}

/* ---- the whole shard ---- */

static void say_lengths(const struct view *v, struct fo_doc *d)
{
	int64_t most = 0;
	for (int64_t b = 0; b < v->bins; b++)
		most = most > v->bin[b] ? most : v->bin[b];
	fo_doc_table(d, FO_DRAW_FITTED, "Lengths of the documents, BOS and EOS included", "rrrl", "tokens", "documents",
		     "share", "");
	for (int64_t b = 0; b < v->bins; b++) {
		char bar[33] = "";
		if (!v->bin[b])
			continue;
		memset(bar, '#', (size_t)((v->bin[b] * 32 + most - 1) / most));
		fo_doc_row(d, fo_doc_printf(d, "%lld..%lld", 1ll << b, (2ll << b) - 1), fo_doc_count(d, v->bin[b]),
			   fo_doc_printf(d, "%.1f %%", 100.0 * (double)v->bin[b] / (double)v->shard.docs), bar);
	}
}

static const char *share(struct fo_doc *d, double part, double whole)
{
	return fo_doc_printf(d, "%.2f %%", whole > 0 ? 100 * part / whole : 0);
}

static void say_packings(const struct view *v, struct fo_doc *d)
{
	static const int order[] = { FO_PACK_PACKED, FO_PACK_BESTFIT, FO_PACK_SPLIT, FO_PACK_PADDED };
	const char *longer = fo_word(v->cost[0].long_docs, "document is", "documents are");
	fo_doc_table(d, FO_DRAW_FITTED,
		     fo_doc_printf(d, "Rows of %lld tokens; %lld %s longer than a row", (long long)v->in->seq,
				   (long long)v->cost[0].long_docs, longer),
		     "lrrrr", "data.packing", "rows", "padding", "tokens dropped", "cut needlessly");
	for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
		const struct fo_packing_cost *c = &v->cost[order[i]];
		fo_doc_row(d, fo_packing_name[order[i]], fo_doc_printf(d, "%.0f", c->rows),
			   share(d, c->padding, c->rows * (double)v->in->seq),
			   share(d, (double)c->truncated, (double)v->shard.tokens), fo_doc_count(d, c->cut_docs));
	}
}

static void say(const struct view *v, struct fo_doc *d)
{
	const struct fo_shard *s = &v->shard;
	const char *sources = "not recorded", *tokenizer = v->tokenizer ? v->tokenizer_path : v->tokenizer_note;
	if (v->sources.docs)
		sources = fo_doc_printf(d, "%lld %s", (long long)v->sources.files,
					fo_word(v->sources.files, "file", "files"));
	fo_doc_line(d, "shard", "%s", v->path);
	fo_doc_line(d, "documents", "%lld", (long long)s->docs);
	fo_doc_line(d, "tokens", "%lld (%s)", (long long)s->tokens, fo_doc_si(d, (double)s->tokens, ""));
	fo_doc_line(d, "lengths", "mean %.1f, longest %lld", (double)s->tokens / (double)s->docs,
		    (long long)v->longest);
	fo_doc_line(d, "vocabulary", "%lld, %d bytes per id", (long long)s->vocab, s->ids16 ? 2 : 4);
	fo_doc_line(d, "checksum", "%016llx, stored in the shard", (unsigned long long)s->checksum);
	fo_doc_line(d, "tokenizer", "%016llx; %s", (unsigned long long)s->tokenizer_checksum, tokenizer);
	fo_doc_line(d, "sources", "%s", sources);
	say_lengths(v, d);
	say_packings(v, d);
}

static void write_json(const struct view *v, struct fo_json *j)
{
	const struct fo_shard *s = &v->shard;
	fo_json_put(j, FO_TEXT("path", v->path), FO_INT("documents", s->docs), FO_INT("tokens", s->tokens),
		    FO_INT("longest", v->longest), FO_INT("vocab", s->vocab), FO_HEX("checksum", s->checksum),
		    FO_HEX("tokenizer_checksum", s->tokenizer_checksum),
		    FO_TEXT("tokenizer", v->tokenizer ? v->tokenizer_path : NULL),
		    FO_INT("source_files", v->sources.files));
	fo_json_array(j, "documents_by_log2_length");
	for (int64_t b = 0; b < v->bins; b++)
		fo_json_int(j, NULL, v->bin[b]);
	fo_json_close(j);
	fo_json_put(j, FO_INT("seq", v->in->seq), FO_INT("documents_longer_than_a_row", v->cost[0].long_docs));
	fo_json_object(j, "packing");
	for (int i = 0; i < FO_PACK_COUNT; i++)
		fo_json_record(j, fo_packing_name[i], FO_REAL("rows", v->cost[i].rows),
			       FO_REAL("padding_tokens", v->cost[i].padding),
			       FO_INT("dropped_tokens", v->cost[i].truncated),
			       FO_INT("documents_cut_needlessly", v->cost[i].cut_docs));
	fo_json_close(j);
}

static fo_status inspect(const struct fo_cli_call *call, struct view *v)
{
	const struct inspect *in = v->in;
	FO_TRY(open_view(v, call->argv[1]));
	if (in->doc >= 0)
		return show_document(call, v);
	count_lengths(v);
	for (int i = 0; i < FO_PACK_COUNT; i++)
		FO_TRY(fo_packing_measure(&v->shard, in->seq, (enum fo_packing)i, (uint64_t)in->seed, &v->cost[i]));
	if (call->json)
		write_json(v, call->json);
	else
		say(v, call->doc);
	return FO_OK;
}

static fo_status run(const struct fo_cli_call *call)
{
	struct view v = { .in = call->in };
	if (call->argc < 2)
		return fo_hint(fo_fail(FO_EARG, "no shard is named"),
			       "name a .shard file or a folder that 'flatout data prepare' made");
	fo_status st = inspect(call, &v);
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
