#include "cli/goodput.h"

#include <math.h>

/* More than this cannot be meant: each node fails every minute, a save or a restart takes a month. */
#define MOST_FAILURES 1.5e6
#define MOST_SECONDS 2.6e6

static fo_status read(const char *text, const char *option, struct fo_range usual, double most, const char *example,
		      struct fo_range *out)
{
	*out = usual;
	if (!text)
		return FO_OK;
	FO_TRY(fo_range_parse(text, option, out));
	if (out->high <= most)
		return FO_OK;
	return fo_hint(fo_fail(FO_EARG, "%s is '%s', and %.15g is the most that it may be", option, text, most),
		       "%s=%s", option, example);
}

fo_status fo_cli_goodput_read(const struct fo_cli_goodput *in, struct fo_goodput_in *out)
{
	*out = (struct fo_goodput_in){ .interval_s = in->every > 0 ? in->every : 0, .days = in->days, .seed = 1 };
	FO_TRY(read(in->failures, "--failures", FO_GOODPUT_FAILURES, MOST_FAILURES, "4", &out->failures));
	FO_TRY(read(in->save, "--save", FO_GOODPUT_SAVE_S, MOST_SECONDS, "20", &out->save_s));
	return read(in->restart, "--restart", FO_GOODPUT_RESTART_S, MOST_SECONDS, "600", &out->restart_s);
}

const char *fo_cli_goodput_time(struct fo_doc *d, double s)
{
	if (isinf(s))
		return "never";
	if (s >= 2 * 86400)
		return fo_doc_printf(d, "%.3g days", s / 86400);
	if (s >= 2 * 3600)
		return fo_doc_printf(d, "%.1f h", s / 3600);
	return s >= 120 ? fo_doc_printf(d, "%.0f min", s / 60) : fo_doc_printf(d, "%.3g s", s);
}

static const char *range(struct fo_doc *d, struct fo_range r)
{
	return r.low < r.high ? fo_doc_printf(d, "%.4g to %.4g", r.low, r.high) : fo_doc_printf(d, "%.4g", r.low);
}

void fo_cli_goodput_say(struct fo_doc *d, const struct fo_cli_goodput *given, const struct fo_goodput_in *in)
{
	fo_doc_line(d, "failures", "%s of 1,000 nodes of eight devices in a day%s", range(d, in->failures),
		    given->failures
			    ? ""
			    : " (published: Meta's A100 clusters, 2024; Llama 3's were 3.8; --failures says yours)");
	fo_doc_line(d, "saves", "a checkpoint stops training for %s s%s, a restart takes %s s%s", range(d, in->save_s),
		    given->save ? "" : " (a guess: --save)", range(d, in->restart_s),
		    given->restart ? "" : " (a guess: --restart)");
}

void fo_cli_goodput_json(struct fo_json *j, const struct fo_cli_goodput *given, const struct fo_goodput_in *in)
{
	const struct {
		const char *key;
		struct fo_range r;
		bool given;
	} one[] = { { "failures_per_1000_node_days", in->failures, given->failures != NULL },
		    { "save_seconds", in->save_s, given->save != NULL },
		    { "restart_seconds", in->restart_s, given->restart != NULL } };
	fo_json_object(j, "goodput_from");
	for (size_t i = 0; i < sizeof one / sizeof *one; i++)
		fo_json_record(j, one[i].key, FO_REAL("low", one[i].r.low), FO_REAL("high", one[i].r.high),
			       FO_BOOL("given", one[i].given));
	fo_json_put(j, FO_REAL("days", in->days),
		    FO_REAL("checkpoint_every_seconds", in->interval_s > 0 ? in->interval_s : NAN));
	fo_json_close(j);
}
