/* The rows as a table for a file. */
#include "score/score_int.h"

#include "base/str.h"

#include <math.h>
#include <string.h>

static void cell(struct fo_str *out, const char *text)
{
	fo_str_puts(out, "\"");
	for (; *text; text++) {
		char c = (unsigned char)*text < ' ' ? ' ' : *text;
		fo_str_append(out, &c, 1);
		if (c == '"')
			fo_str_puts(out, "\"");
	}
	fo_str_puts(out, "\",");
}
static void figure(struct fo_str *out, double v, const char *end)
{
	if (isfinite(v))
		fo_str_printf(out, "%.6g", v);
	fo_str_puts(out, end);
}

static void machine_rows(const struct fo_score_table *t, struct fo_str *out)
{
	fo_str_puts(out, "line,measured_s,predicted_s,error,ranks,group,run,options,profile,not_predicted_because\n");
	for (int i = 0; i < t->rows; i++) {
		const struct fo_score_row *r = &t->row[i];
		const char *why = r->out ? r->out : r->refused;
		fo_str_printf(out, "%d,", r->line);
		figure(out, 1 / r->tokens_s, ",");
		figure(out, r->covered ? 1 / r->predicted : NAN, ",");
		figure(out, r->covered ? r->tokens_s / r->predicted - 1 : NAN, ",");
		figure(out, r->ranks, ",");
		cell(out, r->group);
		cell(out, r->model);
		cell(out, r->options);
		cell(out, r->profile);
		cell(out, why ? why : "");
		out->data[out->len - 1] = '\n';
	}
}

void fo_score_rows_csv(const struct fo_score_table *t, struct fo_str *out)
{
	if (!strcmp(t->layout, "machine")) {
		machine_rows(t, out);
		return;
	}
	fo_str_puts(out,
		    "line,measured_tokens_s,predicted_tokens_s,error,low,high,publisher_unseen_tokens_s,"
		    "publisher_unseen_half_width,constant_mfu_tokens_s,measured_gib,predicted_gib,group,model,gpu,gpus,"
		    "style,inferred,not_predicted_because\n");
	for (int i = 0; i < t->rows; i++) {
		const struct fo_score_row *r = &t->row[i];
		const double none = NAN, gib = 1073741824.;
		bool has = r->covered;
		fo_str_printf(out, "%d,", r->line);
		figure(out, r->tokens_s, ",");
		figure(out, has ? r->predicted : none, ",");
		figure(out, has ? r->predicted / r->tokens_s - 1 : none, ",");
		figure(out, has ? r->predicted * exp(-r->half_width) : none, ",");
		figure(out, has ? r->predicted * exp(r->half_width) : none, ",");
		figure(out, has ? r->stranger : none, ",");
		figure(out, has ? exp(r->stranger_width) - 1 : none, ",");
		figure(out, has ? r->guess : none, ",");
		figure(out, r->bytes / gib, ",");
		figure(out, has ? r->memory / gib : none, ",");
		cell(out, r->group);
		cell(out, r->model);
		cell(out, r->gpu);
		figure(out, r->layout.devices, ",");
		cell(out, fo_predict_style[r->job.style].name);
		cell(out, r->inferred ? r->inferred : "");
		const char *why = r->out ? r->out : r->refused;
		cell(out, why ? why : "");
		out->data[out->len - 1] = '\n';
	}
}
