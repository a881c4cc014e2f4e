/* Opening a shard: everything is checked before anything of it is used. */
#include "data/data_int.h"

#include "base/fs.h"

#define XXH_INLINE_ALL
#include <string.h>
#include <xxhash.h>

/* A shard is read where it is mapped, so its byte order is the machine's. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "shards are little endian");

static fo_status check_header(const struct shard_header *h, size_t file_bytes)
{
	if (memcmp(h->magic, SHARD_MAGIC, sizeof h->magic) != 0)
		return fo_fail(FO_EFORMAT, "not a shard: it does not begin with '%s'", SHARD_MAGIC);
	if (h->version != SHARD_VERSION)
		return fo_fail(FO_EFORMAT, "format version is %u, this program reads version %u", h->version,
			       SHARD_VERSION);
	if (h->vocab < 1 || h->vocab > (int64_t)1 << 31 || h->reserved)
		return fo_fail(FO_EFORMAT, "the header is damaged: a vocabulary of %lld tokens", (long long)h->vocab);
	uint32_t id_bytes = h->vocab <= 65536 ? 2 : 4;
	if (h->id_bytes != id_bytes)
		return fo_fail(FO_EFORMAT, "ids have %u bytes, expected %u with a vocabulary of %lld tokens",
			       h->id_bytes, id_bytes, (long long)h->vocab);
	/* Every document has at least one token; the bound by the file's size keeps the sums below from overflowing. */
	if (h->tokens < 1 || (uint64_t)h->tokens > file_bytes || h->docs < 1 || h->docs > h->tokens)
		return fo_fail(FO_EFORMAT,
			       "the header is damaged or the file cut: %lld documents with %lld tokens in %zu bytes",
			       (long long)h->docs, (long long)h->tokens, file_bytes);
	size_t want = sizeof *h + shard_ids_bytes(h->tokens, h->id_bytes) + ((size_t)h->docs + 1) * sizeof(int64_t);
	if (want != file_bytes)
		return fo_fail(FO_EFORMAT, "the file has %zu bytes, expected %zu for %lld documents with %lld tokens",
			       file_bytes, want, (long long)h->docs, (long long)h->tokens);
	return FO_OK;
}

uint64_t data_file_checksum(const unsigned char *file, size_t bytes, size_t header, size_t at)
{
	unsigned char head[64];
	XXH3_state_t x;
	memcpy(head, file, header);
	memset(head + at, 0, sizeof(uint64_t));
	XXH3_INITSTATE(&x);
	XXH3_64bits_reset(&x);
	XXH3_64bits_update(&x, file + header, bytes - header);
	XXH3_64bits_update(&x, head, header);
	return XXH3_64bits_digest(&x);
}

static fo_status check_contents(const struct fo_shard *s)
{
	if (s->doc_at[0] != 0 || s->doc_at[s->docs] != s->tokens)
		return fo_fail(FO_EFORMAT, "documents span tokens %lld to %lld, expected 0 to %lld",
			       (long long)s->doc_at[0], (long long)s->doc_at[s->docs], (long long)s->tokens);
	for (int64_t d = 0; d < s->docs; d++)
		if (s->doc_at[d + 1] <= s->doc_at[d])
			return fo_fail(FO_EFORMAT, "document %lld ends at token %lld, where or before it begins (%lld)",
				       (long long)d, (long long)s->doc_at[d + 1], (long long)s->doc_at[d]);
	for (int64_t i = 0; i < s->tokens; i++) {
		uint32_t id = (uint32_t)shard_id(s, i);
		if (id >= s->vocab)
			return fo_fail(FO_EFORMAT, "token %lld is id %u, expected ids below %lld", (long long)i, id,
				       (long long)s->vocab);
	}
	return FO_OK;
}

struct opening {
	struct fo_shard *s;
	const struct fo_map *m;
};

static fo_status open_map(void *ctx)
{
	struct fo_shard *s = ((struct opening *)ctx)->s;
	const struct fo_map *m = ((struct opening *)ctx)->m;
	struct shard_header h;
	if (m->len < sizeof h)
		return fo_fail(FO_EFORMAT, "the file has %zu bytes, a shard's header %zu", m->len, sizeof h);
	memcpy(&h, m->data, sizeof h);
	FO_TRY(check_header(&h, m->len));
	uint64_t sum = data_file_checksum(m->data, m->len, sizeof h, offsetof(struct shard_header, checksum));
	if (sum != h.checksum)
		return fo_fail(FO_EFORMAT, "the checksum is %016llx, expected %016llx", (unsigned long long)sum,
			       (unsigned long long)h.checksum);
	const unsigned char *ids = m->data + sizeof h;
	struct fo_shard new = {
		.tokens = h.tokens,
		.docs = h.docs,
		.vocab = h.vocab,
		.doc_at = (const int64_t *)(const void *)(ids + shard_ids_bytes(h.tokens, h.id_bytes)),
		.checksum = h.checksum,
		.tokenizer_checksum = h.tokenizer_checksum,
		.map = (void *)(uintptr_t)m->data,
		.map_len = m->len,
	};
	if (h.id_bytes == 2)
		new.ids16 = (const uint16_t *)(const void *)ids;
	else
		new.ids32 = (const uint32_t *)(const void *)ids;
	FO_TRY(check_contents(&new));
	*s = new;
	return FO_OK;
}

fo_status fo_shard_open(struct fo_shard *s, const char *path)
{
	struct fo_map m;
	FO_TRY(fo_map_open(&m, path));
	fo_status st = fo_map_guard(open_map, &(struct opening){ s, &m });
	if (st != FO_OK) {
		fo_map_close(&m);
		fo_wrap(st, "cannot use the shard '%s'", path);
		return fo_hint(st, "prepare the data again");
	}
	return FO_OK;
}

void fo_shard_close(struct fo_shard *s)
{
	struct fo_map m = { s->map, s->map_len };
	if (s->map)
		fo_map_close(&m);
	*s = (struct fo_shard){ 0 };
}
