/* How long operations take, by the model that choices and orders are made with: FLOP over a rate and bytes over one. */
#include "pass/pass.h"

/* Attention runs at about half the rate of matmuls, and processors without a bf16 unit do about ten FLOP in the time of
 * moving a byte (with one, two to four times as many). */
const struct fo_choose_rates fo_choose_processor = { .product_flop_s = 1e11,
						     .attention_flop_s = 5e10,
						     .memory_bytes_s = 1e10 };

/* Matmuls over the visible pairs in attention forward and backward. */
#define FORWARD_MATMULS 2.0
#define BACKWARD_MATMULS 5.0
/* A device that the catalogue does not know is taken for this row. */
#define UNKNOWN_DEVICE "h200"

static bool rates_of(const struct fo_device *row, enum fo_numerics precision, struct fo_choose_rates *r)
{
	struct fo_device_rates d;
	const fo_status st = row ? fo_device_rates_init(&d, row) : FO_EARG;
	fo_err_clear();
	if (st != FO_OK)
		return false;
	const struct fo_interval *rate = d.rate;
	const double fp32 = row->dense[FO_PREC_FP32] / row->dense[FO_PREC_BF16];
	const double of = precision == FO_PRECISION_BF16 || !(fp32 > 0) ? 1 : fp32;
	r->product_flop_s = of * rate[FO_DEVICE_PRODUCT].mid;
	r->attention_flop_s = of * (FORWARD_MATMULS + BACKWARD_MATMULS) /
			      (FORWARD_MATMULS / rate[FO_DEVICE_ATTENTION].mid +
			       BACKWARD_MATMULS / rate[FO_DEVICE_ATTENTION_BACKWARD].mid);
	r->memory_bytes_s = rate[FO_DEVICE_FUSED].mid;
	r->on_device = true;
	r->device = d;
	return true;
}

struct fo_choose_rates fo_choose_device(const struct fo_device *row, enum fo_numerics precision)
{
	struct fo_catalogue c;
	struct fo_choose_rates r = fo_choose_processor;
	if (rates_of(row, precision, &r))
		return r;
	if (fo_catalogue_load(&c, NULL) == FO_OK) {
		if (fo_catalogue_find(&c, UNKNOWN_DEVICE, &row) == FO_OK)
			(void)rates_of(row, precision, &r);
		fo_catalogue_fini(&c);
	}
	fo_err_clear();
	return r;
}

double fo_op_seconds(const struct fo_program *p, const struct fo_op *o, const struct fo_choose_rates *rates)
{
	enum fo_category category = fo_op_info(o->kind)->category;
	struct fo_cost c = fo_op_cost(p, o, -1);
	bool attention = category == FO_CAT_ATTENTION_FORWARD || category == FO_CAT_ATTENTION_BACKWARD;
	return c.exec / (attention ? rates->attention_flop_s : rates->product_flop_s) + c.bytes / rates->memory_bytes_s;
}
