/* One kernel call of a given shape on random operands: what calibration and the benchmarks time. */
#ifndef FO_KERNEL_WORK_H
#define FO_KERNEL_WORK_H

#include "kernel/kernel.h"

struct fo_work {
	struct fo_call call;
	uint8_t access[FO_MAX_OPERANDS]; /* enum fo_access */
	double flop, bytes; /* FLOP executed; bytes moved at least: each operand once for each way it is used */
	const struct fo_kernel *kernel; /* fo_kernel_pick at the isa given */
	const struct fo_kernel_set *set;
};

enum fo_work_pass { FO_WORK_FORWARD, FO_WORK_DGRAD, FO_WORK_WGRAD, FO_WORK_PASSES };
extern const char *const fo_work_pass_name[FO_WORK_PASSES];
/* The matmuls of a linear layer with weights w(out,in) on x(T,in): forward y = x w', dgrad dx = dy w, wgrad dw = dy' x,
 * which is f32 as in training. */
void fo_work_linear(struct fo_work *w, enum fo_isa isa, enum fo_work_pass pass, int64_t tokens, int64_t out, int64_t in,
		    int dtype, int threads);
/* Causal attention of one row of `tokens` in `docs` documents of equal length; FLOP 4 Q per visible pair and head
 * forward, 10 Q backward (2 Q of them recompute scores). */
void fo_work_attention(struct fo_work *w, enum fo_isa isa, bool backward, int64_t tokens, int64_t docs, int64_t heads,
		       int64_t kv_heads, int64_t head_dim, int dtype, int threads);
/* The same with the probabilities in memory, in rows of `seq` tokens (attention_eager). FLOP of the full squares: 4 Q
 * per pair and head forward, 8 Q backward. */
void fo_work_attention_eager(struct fo_work *w, enum fo_isa isa, bool backward, int64_t tokens, int64_t seq,
			     int64_t heads, int64_t kv_heads, int64_t head_dim, int dtype, int threads);
/* An operation of a program as its executor would call it. first: bit i is set where operand i, an ACC, is stored
 * (struct fo_unrolled). FLOP of unbroken rows. */
void fo_work_of_op(struct fo_work *w, enum fo_isa isa, const struct fo_program *p, const struct fo_op *o,
		   uint32_t first, int threads);

/* Memory that many works share, one after the other. Operands that are only read come from one region and results go to
 * another, so that no result becomes an input. Numbers are uniform in +-0.5; what an operation updates in place starts
 * anew at each fo_work_bind, so that it does not grow. Zero-initialise; call need for each work and new once, then bind
 * and run. */
enum fo_work_region {
	FO_WORK_READ_F32,
	FO_WORK_READ_BF16,
	FO_WORK_WRITE_F32,
	FO_WORK_WRITE_BF16,
	FO_WORK_F64,
	FO_WORK_INDEX,
	FO_WORK_DOCS,
	FO_WORK_SPACE,
	FO_WORK_REGIONS
};
struct fo_work_data {
	unsigned char *at[FO_WORK_REGIONS];
	size_t bytes[FO_WORK_REGIONS];
};
void fo_work_data_need(struct fo_work_data *d, const struct fo_work *w);
/* The bytes of the largest region that this work needs. */
size_t fo_work_bytes(const struct fo_work *w);
FO_CHECKED fo_status fo_work_data_new(struct fo_work_data *d);
void fo_work_data_free(struct fo_work_data *d);
/* Gives the operands their places. docs: documents of equal length, as in fo_work_attention. */
void fo_work_bind(struct fo_work *w, const struct fo_work_data *d, int64_t docs);
/* Fetches the operands into the caches, then evicts those of `cold` (bit i: operand i). An operand of more than twice
 * cache_bytes is left alone: its own end evicts its beginning. false: this processor has no way to do it. */
bool fo_work_arrange(const struct fo_work *w, uint32_t cold, int64_t cache_bytes);
/* Runs the work: a fo_meter_span function. */
void fo_work_run(void *work);

#endif
