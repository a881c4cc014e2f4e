#include "data/prepare_int.h"
#include <string.h>
fo_status fo_encoder_new(const struct fo_tokenizer *t, struct fo_encoder **out) { *out = (void *)(uintptr_t)t; return FO_OK; }
void fo_encoder_free(struct fo_encoder *e) { (void)e; }
fo_status fo_encoder_encode(struct fo_encoder *e, const char *text, size_t len, bool first, int32_t **ids, size_t *n, size_t *cap)
{ (void)first; return fo_tokenizer_encode((void*)e, text, len, ids, n, cap); }
size_t fo_tokenizer_cut(const struct fo_tokenizer *t, const char *text, size_t len, size_t at)
{ (void)t;
for (; at + 1 < len; at++) if (text[at-1]=='\n' && (unsigned char)text[at]>' ' && at>1 && (unsigned char)text[at-2]>' ') return at;
return len; }
