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
	bool list, force;
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
	FO_OPT_BOOL(struct flops, list, "flops.list", "false", "list the presets with their parameters and sources"),
	FO_OPT_JSON(struct flops, json, "flops.json", "JSON on standard output"),
	FO_OPT_FORCE(struct flops, force, "flops.force"),
	FO_OPT_END
};

/* Everything that both forms of output show. */
struct result {
	struct flops in;
	struct fo_model m;
	struct fo_params p;
	struct fo_flop f;
	const char *source; /* of the dimensions: a preset's, or the file's name */
	const struct fo_device *device;
	double peak; /* TFLOP/s */
};

static const double utilisation[] = { 1.0, 0.5, 0.4 };
enum { UTILISATIONS = sizeof(utilisation) / sizeof(utilisation[0]) };

static double device_days(const struct result *r, double flop, double share)
{
	return flop / (r->peak * 1e12 * share) / 86400;
}

static bool per_layer(int component) { return component != FO_COMP_EMBEDDING && component != FO_COMP_HEAD; }

static void component_json(struct fo_json *j, const struct result *r, int i)
{
	double forward = r->f.component[i].forward, backward = r->f.component[i].backward;
	fo_json_object(j, NULL);
	fo_json_text(j, "name", fo_component_name[i]);
	fo_json_real(j, "params", r->p.component[i]);
	fo_json_real(j, "params_active", r->p.component_active[i]);
	fo_json_real(j, "forward", forward);
	fo_json_real(j, "backward", backward);
	fo_json_real(j, "forward_causal", r->f.component[i].forward_causal);
	fo_json_real(j, "backward_causal", r->f.component[i].backward_causal);
	fo_json_real(j, "forward_per_layer", per_layer(i) ? forward / (double)r->m.layers : NAN);
	fo_json_real(j, "share", (forward + backward) / r->f.mfu);
	fo_json_close(j);
}

static void rules_json(struct fo_json *j, const char *key, const struct fo_flop *f, double factor)
{
	fo_json_object(j, key);
	fo_json_real(j, "mfu", f->mfu * factor);
	fo_json_real(j, "mfu_causal", f->mfu_causal * factor);
	fo_json_real(j, "mfu_6n", f->mfu_6n * factor);
	fo_json_close(j);
}

static void budget_json(struct fo_json *j, const struct result *r)
{
	fo_json_real(j, "tokens", r->in.tokens);
	rules_json(j, "total_flop", &r->f, r->in.tokens);
	fo_json_text(j, "device", r->device->name);
	fo_json_text(j, "dtype", r->in.dtype);
	fo_json_real(j, "peak_tflops", r->peak);
	fo_json_text(j, "peak_source", r->device->source);
	fo_json_array(j, "device_days");
	for (int i = 0; i < UTILISATIONS; i++) {
		fo_json_object(j, NULL);
		fo_json_real(j, "mfu", utilisation[i]);
		fo_json_real(j, "device_days", device_days(r, r->f.mfu * r->in.tokens, utilisation[i]));
		fo_json_close(j);
	}
	fo_json_close(j);
}

static void print_json(const struct result *r)
{
	struct fo_json *j = fo_cli_json_begin();
	fo_json_text(j, "model", r->m.name);
	fo_json_text(j, "model_source", r->source);
	fo_json_int(j, "layers", r->m.layers);
	fo_json_int(j, "seq", r->in.seq);
	fo_json_real(j, "params", r->p.total);
	fo_json_real(j, "params_embedding", r->p.embedding);
	fo_json_real(j, "params_head", r->p.head);
	fo_json_bool(j, "tied", r->m.tied);
	fo_json_real(j, "params_matmul", r->p.matmul);
	fo_json_real(j, "params_active", r->p.active);
	rules_json(j, "flop_per_token", &r->f, 1);
	fo_json_array(j, "components");
	for (int i = 0; i < FO_COMP_COUNT; i++)
		component_json(j, r, i);
	fo_json_close(j);
	if (r->in.tokens > 0)
		budget_json(j, r);
	fo_cli_json_end(j);
}

/* 8030261248 as "8,030,261,248": exact counts are compared digit by digit. */
static const char *grouped(struct fo_arena *a, double v)
{
	char *plain = fo_arena_printf(a, "%.0f", v), *out = fo_arena_alloc(a, 2 * strlen(plain) + 1), *o = out;
	for (size_t n = strlen(plain); n > 0; n--) {
		*o++ = *plain++;
		if (n % 3 == 1 && n > 1)
			*o++ = ',';
	}
	return out;
}

/* Components in GFLOP per token (MFLOP for small models), forward, backward and share of the full rule. */
static void print_components(const struct result *r, struct fo_arena *a)
{
	bool small = r->f.mfu < 1e10;
	double unit = small ? 1e6 : 1e9;
	struct fo_table t;
	fo_table_init(&t, "lrrrrr");
	fo_table_row(&t, "component", "parameters", "fwd/layer", "forward", "backward", "share");
	for (int i = 0; i < FO_COMP_COUNT; i++) {
		double forward = r->f.component[i].forward, backward = r->f.component[i].backward;
		if (i == FO_COMP_ROUTER && r->m.experts == 0)
			continue;
		fo_table_row(&t, fo_component_name[i],
			     i == FO_COMP_SCORES              ? "-"
			     : i == FO_COMP_HEAD && r->m.tied ? "(tied)"
							      : grouped(a, r->p.component[i]),
			     per_layer(i) ? fo_arena_printf(a, "%.3f", forward / (double)r->m.layers / unit) : "-",
			     fo_arena_printf(a, "%.3f", forward / unit), fo_arena_printf(a, "%.3f", backward / unit),
			     fo_arena_printf(a, "%.1f %%", 100 * (forward + backward) / r->f.mfu));
	}
	fo_table_row(&t, "total", grouped(a, r->p.total), "", fo_arena_printf(a, "%.3f", r->f.mfu / 3 / unit),
		     fo_arena_printf(a, "%.3f", r->f.mfu * 2 / 3 / unit), "100.0 %");
	printf("%s per token, rule mfu:\n", small ? "MFLOP" : "GFLOP");
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	if (r->m.experts > 0)
		printf("  active per token: %s; %lld of %lld experts%s\n", grouped(a, r->p.active),
		       (long long)r->m.experts_active, (long long)r->m.experts,
		       r->m.shared_experts ? " and the shared ones" : "");
	if (r->m.experts > 0 && r->m.dense_layers > 0)
		printf("  fwd/layer is the mean over %lld layers, %lld of them dense\n", (long long)r->m.layers,
		       (long long)r->m.dense_layers);
}

static void print_rules(const struct result *r, struct fo_arena *a)
{
	bool small = r->f.mfu<1e10, latent = r->m.kv_lora> 0,
	     windowed = r->m.sliding_window > 0 && r->m.sliding_window < r->in.seq;
	double unit = small ? 1e6 : 1e9;
	const char *keys = windowed ? "W" : "S", *causal = windowed ? "(W - W^2/2S)" : "S",
		   *width = latent ? "(Qqk + Qv)" : "Q";
	struct fo_table t;
	fo_table_init(&t, "lrl");
	fo_table_row(&t, "rule", small ? "MFLOP per token" : "GFLOP per token", "formula");
	fo_table_row(&t, "mfu", fo_arena_printf(a, "%.3f", r->f.mfu / unit),
		     fo_arena_printf(a, "6 N_mm + %d L H %s %s", latent ? 6 : 12, width, keys));
	fo_table_row(&t, "mfu_causal", fo_arena_printf(a, "%.3f", r->f.mfu_causal / unit),
		     fo_arena_printf(a, "6 N_mm + %d L H %s %s", (latent ? 3 : 6) * (windowed ? 2 : 1), width, causal));
	fo_table_row(&t, "mfu_6n", fo_arena_printf(a, "%.3f", r->f.mfu_6n / unit), "6 N_mm");
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	printf("  N_mm %s: active weights without the lookup, with the head%s\n", grouped(a, r->p.matmul),
	       r->m.tied ? " (tied)" : "");
	printf("  L %lld, H %lld, ", (long long)r->m.layers, (long long)r->m.heads);
	if (latent)
		printf("Qqk %lld, Qv %lld, S %lld", (long long)(r->m.qk_nope_dim + r->m.qk_rope_dim),
		       (long long)r->m.v_dim, (long long)r->in.seq);
	else
		printf("Q %lld, S %lld", (long long)r->m.head_dim, (long long)r->in.seq);
	if (windowed)
		printf(", W %lld (sliding window)", (long long)r->m.sliding_window);
	printf("\n");
}

/* Long texts are wrapped behind their titles. */
static void print_titled(const char *title, const char *text)
{
	struct fo_table t;
	fo_table_init(&t, "ll");
	fo_table_row(&t, title, text);
	fo_table_print(&t, stdout, "  ", false);
	fo_table_fini(&t);
}

static void print_budget(const struct result *r, struct fo_arena *a)
{
	char tokens[32];
	struct fo_table t;
	double d = r->in.tokens;
	printf("\n%s, total FLOP: %.4g by mfu,\n  %.4g by mfu_causal, %.4g by mfu_6n\n\n",
	       fo_str_si(tokens, d, " tokens"), r->f.mfu * d, r->f.mfu_causal * d, r->f.mfu_6n * d);
	fo_table_init(&t, "lrr");
	fo_table_row(&t, "at MFU", "device-days", "tokens/s per device");
	for (int i = 0; i < UTILISATIONS; i++) {
		double days = device_days(r, r->f.mfu * d, utilisation[i]);
		fo_table_row(&t, fo_arena_printf(a, "%.0f %%", 100 * utilisation[i]),
			     days < 100 ? fo_arena_printf(a, "%.3f", days) : grouped(a, days),
			     fo_arena_printf(a, "%.0f", r->peak * 1e12 * utilisation[i] / r->f.mfu));
	}
	fo_table_print(&t, stdout, "  ", true);
	fo_table_fini(&t);
	printf("  on %s: %s %g TFLOP/s, dense\n", r->device->name, r->in.dtype, r->peak);
	print_titled("peak from", r->device->source);
}

static void print_text(const struct result *r)
{
	struct fo_arena a = { 0 };
	printf("%s, sequence %lld\n", r->m.name, (long long)r->in.seq);
	print_titled("dimensions from", r->source);
	printf("\n");
	print_components(r, &a);
	printf("\n");
	print_rules(r, &a);
	if (r->m.max_position > 0 && r->in.seq > r->m.max_position)
		printf("  note: the model states at most %lld positions\n", (long long)r->m.max_position);
	if (r->in.tokens > 0)
		print_budget(r, &a);
	fo_arena_fini(&a);
}

static void list_presets(bool json)
{
	struct fo_arena a = { 0 };
	struct fo_str out = { 0 };
	struct fo_json j;
	struct fo_table t;
	fo_table_init(&t, "lrl");
	fo_table_row(&t, "preset", "parameters", "dimensions from");
	fo_json_begin(&j, &out, true);
	fo_json_object(&j, NULL);
	fo_json_int(&j, "schema", 1);
	fo_json_array(&j, "presets");
	for (int i = 0; i < fo_model_preset_count(); i++) {
		const struct fo_model *m = fo_model_preset(i);
		double params = fo_model_params(m).total;
		fo_json_object(&j, NULL);
		fo_json_text(&j, "name", m->name);
		fo_json_real(&j, "params", params);
		fo_json_text(&j, "source", fo_model_preset_source(i));
		fo_json_close(&j);
		fo_table_row(&t, m->name, grouped(&a, params), fo_model_preset_source(i));
	}
	fo_json_close(&j);
	fo_json_close(&j);
	if (json)
		fputs(out.data, stdout);
	else
		fo_table_print(&t, stdout, "", true);
	fo_table_fini(&t);
	fo_str_fini(&out);
	fo_arena_fini(&a);
}

static const char *source_of(const struct fo_model *m)
{
	for (int i = 0; i < fo_model_preset_count(); i++)
		if (strcmp(m->name, fo_model_preset(i)->name) == 0)
			return fo_model_preset_source(i);
	return "own file";
}

static fo_status count(const struct flops *in)
{
	struct result r = { .in = *in };
	struct fo_catalogue c = { 0 };
	enum fo_precision precision;
	if (!in->model || in->seq == 0)
		return fo_hint(fo_fail(FO_EARG, "'%s' is missing", in->model ? "--seq" : "--model"), "usage: %s",
			       fo_cmd_flops.usage);
	FO_TRY(fo_model_load(in->model, &r.m));
	FO_TRY(fo_precision_parse(in->dtype, &precision));
	r.p = fo_model_params(&r.m);
	r.f = fo_model_flop_per_token(&r.m, in->seq);
	r.source = source_of(&r.m);
	fo_status st = FO_OK;
	if (in->tokens > 0) {
		FO_TRY(fo_catalogue_load(&c, in->devices_file));
		FO_TRY_OR(st, fo_catalogue_find(&c, in->device, &r.device), done);
		FO_TRY_OR(st, fo_device_peak(r.device, precision, &r.peak), done);
	}
	(in->json ? print_json : print_text)(&r);
done:
	fo_catalogue_fini(&c);
	return st;
}

static fo_status run(const struct fo_cli_call *call)
{
	const struct flops *in = call->in;
	if (!in->list)
		return count(in);
	list_presets(in->json);
	return FO_OK;
}

const struct fo_command fo_cmd_flops = {
	.name = "flops",
	.group = "measure",
	.usage = "flatout flops --model M --seq S [--tokens D] [--device X] [--json]",
	.summary = "count a model's parameters and FLOPs by component and rule",
	.text = "Three rules stand side by side: mfu (6 N_mm + 12 L H Q S, the common one), mfu_causal\n"
		"(half of the attention, as causal kernels need) and mfu_6n (weights only). N_mm is\n"
		"every weight that multiplies a token. With --tokens the total and the device-days at\n"
		"100, 50 and 40 % MFU follow, on an H100 unless --device names another one.\n"
		"\n"
		"  flatout flops --model llama-3.1-8b --seq 8192 --tokens 15T --device b200\n"
		"  flatout flops --model ./my-model/config.json --seq 4096 --json\n"
		"  flatout flops --list",
	.opts = rows,
	.act = run,
	.size = sizeof(struct flops),
};
