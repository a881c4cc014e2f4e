/* flatout flops: parameters and FLOPs of a model by component and rule. */
#include "cli/cli.h"

#include "hw/catalogue.h"
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

struct flops {
	const char *model, *device, *dtype, *devices_file;
	int64_t seq;
	double tokens;
	bool list, mtp, force;
	const char *json;
};

static const struct fo_opt rows[] = {
	FO_OPT_PATH(struct flops, model, "flops.model", "M", NULL,
		    "preset, name on Hugging Face, config.json, or a folder with one"),
	FO_OPT_LENGTH(struct flops, seq, "flops.seq", "S", NULL, 1, 1 << 30, "sequence length"),
	FO_OPT_REAL(struct flops, tokens, "flops.tokens", "D", NULL, 1, 1e18, "tokens",
		    "training budget: adds totals and device-days"),
	FO_OPT_TEXT(struct flops, device, "flops.device", "X", "H100-SXM5-80GB", "device of the device-days"),
	FO_OPT_TEXT(struct flops, dtype, "flops.dtype", "TYPE", "bf16", "precision of the device's dense peak"),
	FO_OPT_PATH(struct flops, devices_file, "flops.devices-file", "PATH", NULL,
		    "CSV with own devices, as data/devices.csv"),
	FO_OPT_BOOL(struct flops, mtp, "flops.mtp", "false", "count the model's multi-token-prediction modules too"),
	FO_OPT_BOOL(struct flops, list, "flops.list", "false", "list the presets with their parameters and sources"),
	FO_CLI_OUTPUT_ROWS(struct flops, "flops", "JSON on standard output")
};

/* The figures that text and JSON show. */
struct result {
	struct flops in;
	struct fo_model m;
	struct fo_params p;
	struct fo_flop f;
	const char *source; /* where the dimensions come from */
	const struct fo_device *device;
	double peak; /* TFLOP/s */
};

static const double utilisation[] = { 1.0, 0.5, 0.4 };
enum { UTILISATIONS = sizeof(utilisation) / sizeof(utilisation[0]) };

static double device_days(const struct result *r, double flop, double share)
{
	return flop / (r->peak * 1e12 * share) / 86400;
}

static bool per_layer(int c) { return c != FO_COMP_EMBEDDING && c != FO_COMP_HEAD && c != FO_COMP_MTP; }

/* Components that the model does not have are not shown. */
static bool has(const struct result *r, int component)
{
	if (component == FO_COMP_MTP)
		return r->m.mtp_counted > 0;
	return component != FO_COMP_ROUTER || r->m.experts > 0;
}

/* A module's layer is one more. */
static int64_t layers_of(const struct result *r) { return r->m.layers + r->m.mtp_counted; }

static void component_json(struct fo_json *j, const struct result *r, int i)
{
	double forward = r->f.component[i].forward, backward = r->f.component[i].backward;
	fo_json_record(j, NULL, FO_TEXT("name", fo_component_name[i]), FO_REAL("params", r->p.component[i]),
		       FO_REAL("params_active", r->p.component_active[i]), FO_REAL("forward", forward),
		       FO_REAL("backward", backward), FO_REAL("forward_causal", r->f.component[i].forward_causal),
		       FO_REAL("backward_causal", r->f.component[i].backward_causal),
		       FO_REAL("forward_per_layer", per_layer(i) ? forward / (double)layers_of(r) : NAN),
		       FO_REAL("share", (forward + backward) / r->f.mfu));
}

static void rules_json(struct fo_json *j, const char *key, const struct fo_flop *f, double factor)
{
	fo_json_record(j, key, FO_REAL("mfu", f->mfu * factor), FO_REAL("mfu_causal", f->mfu_causal * factor),
		       FO_REAL("mfu_6n", f->mfu_6n * factor));
}

static void budget_json(struct fo_json *j, const struct result *r)
{
	fo_json_real(j, "tokens", r->in.tokens);
	rules_json(j, "total_flop", &r->f, r->in.tokens);
	fo_json_put(j, FO_TEXT("device", r->device->name), FO_TEXT("dtype", r->in.dtype),
		    FO_REAL("peak_tflops", r->peak), FO_TEXT("peak_source", r->device->source));
	fo_json_array(j, "device_days");
	for (int i = 0; i < UTILISATIONS; i++)
		fo_json_record(j, NULL, FO_REAL("mfu", utilisation[i]),
			       FO_REAL("device_days", device_days(r, r->f.mfu * r->in.tokens, utilisation[i])));
	fo_json_close(j);
}

static void write_json(const struct result *r, struct fo_json *j)
{
	fo_json_put(j, FO_TEXT("model", r->m.name), FO_TEXT("model_source", r->source), FO_INT("layers", r->m.layers),
		    FO_INT("mtp_modules", r->m.mtp_modules), FO_INT("mtp_counted", r->m.mtp_counted),
		    FO_INT("seq", r->in.seq), FO_REAL("params", r->p.total),
		    FO_REAL("params_embedding", r->p.embedding), FO_REAL("params_head", r->p.head),
		    FO_BOOL("tied", r->m.tied), FO_REAL("params_matmul", r->p.matmul),
		    FO_REAL("params_active", r->p.active));
	rules_json(j, "flop_per_token", &r->f, 1);
	fo_json_array(j, "components");
	for (int i = 0; i < FO_COMP_COUNT; i++)
		if (i != FO_COMP_MTP || has(r, i))
			component_json(j, r, i);
	fo_json_close(j);
	if (r->in.tokens > 0)
		budget_json(j, r);
}

/* 8030261248 as "8,030,261,248": exact counts are compared digit by digit. */
static const char *grouped(struct fo_doc *d, double v)
{
	const char *plain = fo_doc_printf(d, "%.0f", v);
	char *out = fo_doc_alloc(d, 2 * strlen(plain) + 1), *o = out;
	for (size_t n = strlen(plain); n > 0; n--) {
		*o++ = *plain++;
		if (n % 3 == 1 && n > 1)
			*o++ = ',';
	}
	return out;
}

/* Tables count in GFLOP per token, those of small models in MFLOP. */
struct unit {
	double flop;
	const char *name;
};
static struct unit unit_of(const struct result *r)
{
	return r->f.mfu < 1e10 ? (struct unit){ 1e6, "MFLOP" } : (struct unit){ 1e9, "GFLOP" };
}

static const char *in_units(struct fo_doc *d, struct unit u, double flop)
{
	return fo_doc_printf(d, "%.3f", flop / u.flop);
}

static const char *weights_of(struct fo_doc *d, const struct result *r, int component)
{
	if (component == FO_COMP_SCORES)
		return "-";
	return component == FO_COMP_HEAD && r->m.tied ? "(tied)" : grouped(d, r->p.component[component]);
}

/* Components with forward, backward and their share of the full rule. */
static void say_components(const struct result *r, struct fo_doc *d)
{
	struct unit u = unit_of(r);
	fo_doc_table(d, FO_DRAW_FULL, fo_doc_printf(d, "%s per token, rule mfu:", u.name), "lrrrrr", "component",
		     "parameters", "fwd/layer", "forward", "backward", "share");
	for (int i = 0; i < FO_COMP_COUNT; i++) {
		double forward = r->f.component[i].forward, backward = r->f.component[i].backward;
		if (!has(r, i))
			continue;
		fo_doc_row(d, fo_component_name[i], weights_of(d, r, i),
			   per_layer(i) ? in_units(d, u, forward / (double)layers_of(r)) : "-", in_units(d, u, forward),
			   in_units(d, u, backward), fo_doc_num(d, (forward + backward) / r->f.mfu, FO_DRAW_SHARE));
	}
	fo_doc_row(d, "total", grouped(d, r->p.total), "", in_units(d, u, r->f.mfu / 3),
		   in_units(d, u, r->f.mfu * 2 / 3), "100.0 %");
	if (r->m.experts > 0)
		fo_doc_para(d, "active per token: %s; %lld of %lld experts%s", grouped(d, r->p.active),
			    (long long)r->m.experts_active, (long long)r->m.experts,
			    r->m.shared_experts ? " and the shared ones" : "");
	if (r->m.experts > 0 && r->m.dense_layers > 0)
		fo_doc_para(d, "fwd/layer is the mean over %lld layers, %lld of them dense", (long long)layers_of(r),
			    (long long)r->m.dense_layers);
}

static void say_rules(const struct result *r, struct fo_doc *d)
{
	struct unit u = unit_of(r);
	bool latent = r->m.kv_lora > 0, windowed = r->m.sliding_window > 0 && r->m.sliding_window < r->in.seq;
	int full = latent ? 6 : 12, half = full / 2;
	if (windowed) /* its causal rule counts the keys themselves */
		half = full;
	const char *width = latent ? "(Qqk + Qv)" : "Q", *sizes;
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrl", "rule", fo_doc_printf(d, "%s per token", u.name), "formula");
	fo_doc_row(d, "mfu", in_units(d, u, r->f.mfu),
		   fo_doc_printf(d, "6 N_mm + %d L H %s %s", full, width, windowed ? "W" : "S"));
	fo_doc_row(d, "mfu_causal", in_units(d, u, r->f.mfu_causal),
		   fo_doc_printf(d, "6 N_mm + %d L H %s %s", half, width, windowed ? "(W - W^2/2S)" : "S"));
	fo_doc_row(d, "mfu_6n", in_units(d, u, r->f.mfu_6n), "6 N_mm");
	const char *times = "";
	if (r->m.mtp_counted)
		times = fo_doc_printf(d, " %lld times", (long long)(1 + r->m.mtp_counted));
	fo_doc_para(d, "N_mm %s: active weights without the lookup, with the head%s%s", grouped(d, r->p.matmul), times,
		    r->m.tied ? " (tied)" : "");
	if (latent)
		sizes = fo_doc_printf(d, "Qqk %lld, Qv %lld", (long long)(r->m.qk_nope_dim + r->m.qk_rope_dim),
				      (long long)r->m.v_dim);
	else
		sizes = fo_doc_printf(d, "Q %lld", (long long)r->m.head_dim);
	sizes = fo_doc_printf(d, "%s, S %lld", sizes, (long long)r->in.seq);
	if (windowed)
		sizes = fo_doc_printf(d, "%s, W %lld (sliding window)", sizes, (long long)r->m.sliding_window);
	fo_doc_para(d, "L %lld, H %lld, %s", (long long)layers_of(r), (long long)r->m.heads, sizes);
}

static void say_budget(const struct result *r, struct fo_doc *d)
{
	char tokens[32];
	double n = r->in.tokens;
	fo_doc_para(d, "%s, total FLOP: %.4g by mfu, %.4g by mfu_causal, %.4g by mfu_6n",
		    fo_str_si(tokens, n, " tokens"), r->f.mfu * n, r->f.mfu_causal * n, r->f.mfu_6n * n);
	fo_doc_table(d, FO_DRAW_FITTED, NULL, "lrr", "at MFU", "device-days", "tokens/s per device");
	for (int i = 0; i < UTILISATIONS; i++) {
		double days = device_days(r, r->f.mfu * n, utilisation[i]);
		fo_doc_row(d, fo_doc_printf(d, "%.0f %%", 100 * utilisation[i]),
			   days < 100 ? fo_doc_printf(d, "%.3f", days) : grouped(d, days),
			   fo_doc_printf(d, "%.0f", r->peak * 1e12 * utilisation[i] / r->f.mfu));
	}
	fo_doc_para(d, "on %s: %s %g TFLOP/s, dense", r->device->name, r->in.dtype, r->peak);
	fo_doc_line(d, "peak from", "%s", r->device->source);
}

static void say(const struct result *r, struct fo_doc *d)
{
	char mtp[64];
	fo_doc_verdict(d, FO_DOC_PLAIN, NULL, "%s%s, sequence %lld", r->m.name, fo_model_mtp_with(mtp, &r->m),
		       (long long)r->in.seq);
	fo_doc_line(d, "dimensions from", "%s", r->source);
	if (r->m.mtp_modules > r->m.mtp_counted)
		fo_doc_line(d, "not counted", "%s: --mtp counts %s", fo_model_mtp_text(mtp, r->m.mtp_modules),
			    fo_word(r->m.mtp_modules, "it", "them"));
	say_components(r, d);
	say_rules(r, d);
	if (r->m.max_position > 0 && r->in.seq > r->m.max_position)
		fo_doc_para(d, "note: the model states at most %lld positions", (long long)r->m.max_position);
	if (r->in.tokens > 0)
		say_budget(r, d);
}

static void list_presets(struct fo_doc *d)
{
	fo_doc_table(d, FO_DRAW_FULL, NULL, "lrl", "preset", "parameters", "dimensions from");
	for (int i = 0; i < fo_model_preset_count(); i++)
		fo_doc_row(d, fo_model_preset(i)->name, grouped(d, fo_model_params(fo_model_preset(i)).total),
			   fo_model_preset_source(i));
}

static void list_presets_json(struct fo_json *j)
{
	fo_json_array(j, "presets");
	for (int i = 0; i < fo_model_preset_count(); i++)
		fo_json_record(j, NULL, FO_TEXT("name", fo_model_preset(i)->name),
			       FO_REAL("params", fo_model_params(fo_model_preset(i)).total),
			       FO_TEXT("source", fo_model_preset_source(i)));
	fo_json_close(j);
}

static const char *source_of(const struct fo_model *m)
{
	for (int i = 0; i < fo_model_preset_count(); i++)
		if (strcmp(m->name, fo_model_preset(i)->name) == 0)
			return fo_model_preset_source(i);
	return "own file";
}

static fo_status count(const struct fo_cli_call *call, const struct flops *in)
{
	struct result r = { .in = *in };
	struct fo_catalogue c = { 0 };
	enum fo_precision precision;
	if (!in->model || in->seq == 0)
		return fo_hint(fo_fail(FO_EARG, "'%s' is missing", in->model ? "--seq" : "--model"), "usage: %s",
			       fo_cmd_flops.usage);
	FO_TRY(fo_model_load(in->model, &r.m));
	FO_TRY(fo_precision_parse(in->dtype, &precision));
	if (in->mtp)
		FO_TRY(fo_model_count_mtp(&r.m));
	r.p = fo_model_params(&r.m);
	r.f = fo_model_flop_per_token(&r.m, in->seq);
	r.source = source_of(&r.m);
	fo_status st = FO_OK;
	if (in->tokens > 0) {
		FO_TRY(fo_catalogue_load(&c, in->devices_file));
		FO_TRY_OR(st, fo_catalogue_find(&c, in->device, &r.device), done);
		FO_TRY_OR(st, fo_device_peak(r.device, precision, &r.peak), done);
	}
	if (call->json)
		write_json(&r, call->json);
	else
		say(&r, call->doc);
done:
	fo_catalogue_fini(&c);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct flops *in = call->in;
	if (!in->list)
		return count(call, in);
	if (call->json)
		list_presets_json(call->json);
	else
		list_presets(call->doc);
	return FO_OK;
}

const struct fo_command fo_cmd_flops = {
	.name = "flops",
	.group = "measure",
	.usage = "flatout flops --model M --seq S [--mtp] [--tokens D] [--device X] [--json]",
	.summary = "count a model's parameters and FLOPs by component and rule",
	.text = "Three rules stand side by side: mfu (6 N_mm + 12 L H Q S, the common one), mfu_causal (half of "
		"the attention, as causal kernels need) and mfu_6n (weights only). N_mm is every weight that "
		"multiplies a token. --mtp counts multi-token-prediction modules too (DeepSeek-V3 has one): a layer, a "
		"projection and another pass through the head each. With --tokens the total and the device-days at "
		"100, 50 and 40 % MFU follow, on an H100 unless --device names another one.\n\n"
		"  flatout flops --model llama-3.1-8b --seq 8192 --tokens 15T --device b200\n"
		"  flatout flops --model ./my-model/config.json --seq 4096 --json\n"
		"  flatout flops --list",
	.opts = rows,
	.act = run,
	.size = sizeof(struct flops),
};
