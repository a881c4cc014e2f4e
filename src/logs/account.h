/* What a log means: MFU by each rule over time, the figure that the log prints and the convention behind it, the time
 * that was lost, what is left, what it costs. What neither the log nor the caller tells is missing, by name. */
#ifndef FO_LOGS_ACCOUNT_H
#define FO_LOGS_ACCOUNT_H

#include "hw/shares.h"
#include "logs/logs.h"
#include "model/model.h"

/* What the caller says; it goes before what the log says. 0, NULL: nothing. */
struct fo_log_given {
	const char *model; /* as fo_model_load takes it */
	const char *device, *devices_file, *dtype;
	const char *share; /* as fo_shares_parse takes it; not together with dtype */
	double devices, seq, tokens_per_step, batch, params;
	double rent;    /* USD per device and hour */
	double planned; /* tokens of the whole run */
	bool mtp;       /* count multi-token-prediction modules */
};

enum fo_log_mfu { FO_LOG_MFU_FULL, FO_LOG_MFU_CAUSAL, FO_LOG_MFU_6N, FO_LOG_MFU_LORA, FO_LOG_MFU_RULES };
extern const char *const fo_log_mfu_name[FO_LOG_MFU_RULES];   /* "mfu", "mfu_causal", "mfu_6n", "mfu_lora" */
extern const char *const fo_log_mfu_counts[FO_LOG_MFU_RULES]; /* "weights, full attention" */

enum { FO_LOG_MISSING = 6, FO_LOG_NOTES = 12 };

struct fo_log_account {
	struct fo_arena arena;
	const struct fo_log *log;
	struct fo_catalogue catalogue;
	bool has_model;
	struct fo_model model;
	const char *model_name, *model_from; /* "the option", "FILE:12"; NULL: not known */
	const struct fo_device *device;      /* NULL: not known */
	const char *device_from, *devices_from, *seq_from;
	enum fo_precision precision;
	struct fo_shares shares;
	const char *type;              /* whose peak figures are over: "bf16", "weighted" */
	double devices, seq, peak;     /* NAN: not known; devices: of the last line */
	bool sizes;                    /* lines have other numbers of devices */
	double fixed_tokens;           /* of a step, as the caller says; NAN */
	double tokens;                 /* of a step, median */
	double rate;                   /* tokens/s of one device, median */
	double flop[FO_LOG_MFU_RULES]; /* per token */
	double flop_layers;            /* of it the matmuls of the layers; NAN */
	struct fo_log_spread mfu[FO_LOG_MFU_RULES];
	int first;     /* the rule whose figure stands first; -1: no MFU is known */
	double tflops; /* of one device by that rule, else as the log prints it, median; NAN */
	struct fo_denominator denominator[FO_DENOMINATORS]; /* peaks that it can be over */
	int denominators;

	/* What the log prints, as medians. */
	double printed_mfu, printed_tflops, printed_flop, printed_peak;
	const char *convention; /* why it differs, or that it does not; NULL: nothing printed */

	/* Seconds by the time stamps; NAN without. */
	double wall, training, lost, other;
	bool seen_here; /* seen_tokens are those of the log, which begins later than the training */
	double seen_tokens, left_seconds, left_steps;
	double cost_low, cost_high, hour_low, hour_high; /* USD, and per device-hour */
	const char *rent_from;

	const char *missing[FO_LOG_MISSING]; /* options to give, "--devices N: the number of devices" */
	int missings;
	const char *note[FO_LOG_NOTES];
	int notes;
};

/* FO_EARG for a device, model or precision that the caller names and nobody knows. Needs fini, also after an error. */
FO_CHECKED fo_status fo_log_account(const struct fo_log *log, const struct fo_log_given *given,
				    struct fo_log_account *a);
void fo_log_account_fini(struct fo_log_account *a);
/* MFU of one line of steps by a rule; NAN. */
double fo_log_mfu_at(const struct fo_log_account *a, size_t line, enum fo_log_mfu rule);
/* Tokens of one step of that line, all devices; tokens/s of one device; NAN. */
double fo_log_tokens_at(const struct fo_log_account *a, size_t line);
double fo_log_rate_at(const struct fo_log_account *a, size_t line);

#endif
