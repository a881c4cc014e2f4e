/* The list of files and lines that a shard's documents came from. */
#include "data/data_int.h"

#include "base/fs.h"

#include <stdio.h>
#include <string.h>

fo_status sources_path(char *buf, size_t size, const char *shard_path)
{
	size_t n = strlen(shard_path), tail = strlen(".shard");
	if (n > tail && !strcmp(shard_path + n - tail, ".shard"))
		n -= tail;
	if (snprintf(buf, size, "%.*s.src", (int)n, shard_path) >= (int)size)
		return fo_fail(FO_EARG, "the path '%s' is too long", shard_path);
	return FO_OK;
}

static fo_status open_map(struct fo_shard_sources *o, const struct fo_shard *s, const struct fo_map *m)
{
	struct sources_header h;
	if (m->len < sizeof h)
		return fo_fail(FO_EFORMAT, "the file has %zu bytes, its header alone %zu", m->len, sizeof h);
	memcpy(&h, m->data, sizeof h);
	if (memcmp(h.magic, SOURCES_MAGIC, sizeof h.magic) != 0)
		return fo_fail(FO_EFORMAT, "it does not begin with '%s'", SOURCES_MAGIC);
	if (h.version != SOURCES_VERSION)
		return fo_fail(FO_EFORMAT, "format version is %u, this program reads version %u", h.version,
			       SOURCES_VERSION);
	/* The bounds by the file's size keep the sum below from overflowing. */
	int64_t most = (int64_t)(m->len / 8);
	if (h.docs < 1 || h.docs > most || h.files < 1 || h.files > most || h.names_bytes < 1 ||
	    h.names_bytes > (int64_t)m->len)
		return fo_fail(FO_EFORMAT, "the header is damaged or the file cut: %lld documents of %lld files",
			       (long long)h.docs, (long long)h.files);
	size_t records = (size_t)h.docs * sizeof(struct sources_record), offsets = (size_t)h.files * sizeof(int64_t),
	       want = sizeof h + records + offsets + (size_t)h.names_bytes;
	if (want != m->len)
		return fo_fail(FO_EFORMAT, "the file has %zu bytes, expected %zu", m->len, want);
	if (m->data[m->len - 1])
		return fo_fail(FO_EFORMAT, "the last file's name has no end");
	if (h.shard_checksum != s->checksum || h.docs != s->docs)
		return fo_fail(FO_EFORMAT, "it belongs to another shard: checksum %016llx, expected %016llx",
			       (unsigned long long)h.shard_checksum, (unsigned long long)s->checksum);
	*o = (struct fo_shard_sources){
		.docs = h.docs,
		.files = h.files,
		.record = m->data + sizeof h,
		.name_at = m->data + sizeof h + records,
		.names = (const char *)m->data + sizeof h + records + offsets,
		.names_len = (size_t)h.names_bytes,
		.map = *m,
	};
	return FO_OK;
}

fo_status fo_shard_sources_open(struct fo_shard_sources *o, const struct fo_shard *s, const char *shard_path)
{
	char path[4096];
	struct fo_map m;
	FO_TRY(sources_path(path, sizeof path, shard_path));
	*o = (struct fo_shard_sources){ 0 };
	if (!fo_fs_exists(path))
		return FO_OK;
	FO_TRY(fo_map_open(&m, path));
	fo_status st = open_map(o, s, &m);
	if (st != FO_OK) {
		fo_map_close(&m);
		return fo_wrap(st, "cannot use the list of sources '%s'", path);
	}
	return FO_OK;
}

void fo_shard_sources_close(struct fo_shard_sources *o)
{
	if (o->map.len)
		fo_map_close(&o->map);
	*o = (struct fo_shard_sources){ 0 };
}

fo_status fo_shard_source(const struct fo_shard_sources *o, int64_t doc, struct fo_doc_source *out)
{
	struct sources_record r;
	int64_t at;
	if (doc < 0 || doc >= o->docs)
		return fo_fail(FO_EARG, "no source is known of document %lld: %lld documents are listed",
			       (long long)doc, (long long)o->docs);
	memcpy(&r, (const char *)o->record + (size_t)doc * sizeof r, sizeof r);
	if (r.file < 0 || r.file >= o->files || r.line < 0)
		return fo_fail(FO_EFORMAT, "the source of document %lld is damaged: file %lld of %lld", (long long)doc,
			       (long long)r.file, (long long)o->files);
	memcpy(&at, (const char *)o->name_at + (size_t)r.file * sizeof at, sizeof at);
	if (at < 0 || at >= (int64_t)o->names_len)
		return fo_fail(FO_EFORMAT, "the name of file %lld is damaged", (long long)r.file);
	*out = (struct fo_doc_source){ o->names + at, r.line }; /* the last byte of the names is a NUL */
	return FO_OK;
}

fo_status fo_shard_sources_verify(const struct fo_shard_sources *o)
{
	struct sources_header h;
	struct fo_doc_source unused;
	memcpy(&h, o->map.data, sizeof h);
	uint64_t sum = data_file_checksum(o->map.data, o->map.len, sizeof h, offsetof(struct sources_header, checksum));
	if (sum != h.checksum)
		return fo_fail(FO_EFORMAT, "the checksum is %016llx, expected %016llx", (unsigned long long)sum,
			       (unsigned long long)h.checksum);
	for (int64_t d = 0; d < o->docs; d++)
		FO_TRY(fo_shard_source(o, d, &unused));
	return FO_OK;
}
