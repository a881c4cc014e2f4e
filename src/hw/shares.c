#include "hw/shares.h"

#include "base/str.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Shares are typed with two or three digits: sums may miss 1 by so much. */
static const double rounding = 0.001;

static fo_status bad(const char *text)
{
	char shown[64];
	return fo_fail(FO_EARG, "shares '%s': expected TYPE=SHARE,... with shares above 0 up to 1, as fp8=0.7,bf16=0.3",
		       fo_str_visible(shown, sizeof shown, text));
}

/* One "fp8=0.7" of n bytes. */
static fo_status read_share(const char *text, const char *at, size_t n, struct fo_shares *s)
{
	char word[64], *equals, *end;
	enum fo_precision p;
	if (n >= sizeof word)
		return bad(text);
	snprintf(word, sizeof word, "%.*s", (int)n, at);
	equals = strchr(word, '=');
	if (!equals || (!isdigit((unsigned char)equals[1]) && equals[1] != '.'))
		return bad(text);
	*equals = 0;
	double share = strtod(equals + 1, &end);
	if (*end == '%') {
		share /= 100;
		end++;
	}
	if (*end || strpbrk(equals + 1, "xX") || !(share > 0 && share <= 1))
		return bad(text);
	FO_TRY(fo_precision_parse(word, &p));
	if (s->of[p] > 0)
		return fo_fail(FO_EARG, "shares name %s twice", fo_precision_name[p]);
	s->of[p] = share;
	return FO_OK;
}

fo_status fo_shares_parse(const char *text, struct fo_shares *out)
{
	struct fo_shares s = { .given = true };
	double sum = 0;
	*out = (struct fo_shares){ 0 };
	if (!text || !*text)
		return FO_OK;
	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");
		FO_TRY(read_share(text, at, n, &s));
		at += n;
		if (!*at)
			break;
	}
	for (int p = 0; p < FO_PREC_COUNT; p++)
		sum += s.of[p];
	if (sum > 1 + rounding)
		return fo_fail(FO_EARG, "shares sum to %g, expected at most 1", sum);
	if (s.of[FO_PREC_BF16] > 0 && sum < 1 - rounding)
		return fo_hint(fo_fail(FO_EARG, "shares sum to %g and name bf16, expected 1", sum),
			       "what is not named is bf16: leave bf16 out, or name all types");
	if (sum < 1 - rounding)
		s.of[FO_PREC_BF16] = 1 - sum;
	else
		for (int p = 0; p < FO_PREC_COUNT; p++)
			s.of[p] /= sum;
	*out = s;
	return FO_OK;
}

const char *fo_shares_text(char *buf, size_t size, const struct fo_shares *s)
{
	size_t n = 0;
	buf[0] = 0;
	for (int p = FO_PREC_COUNT - 1; p >= 0; p--)
		if (s->of[p] > 0 && n < size)
			n += (size_t)snprintf(buf + n, size - n, "%s%.3g %% %s", n ? ", " : "", 100 * s->of[p],
					      fo_precision_name[p]);
	return buf;
}

fo_status fo_device_weighted_peak(const struct fo_device *d, const struct fo_shares *s, double *tflops)
{
	double time = 0;
	for (int p = 0; p < FO_PREC_COUNT; p++) {
		double peak;
		if (!(s->of[p] > 0))
			continue;
		FO_TRY(fo_device_peak(d, (enum fo_precision)p, &peak));
		time += s->of[p] / peak;
	}
	*tflops = 1 / time;
	return FO_OK;
}

int fo_device_denominators(const struct fo_device *d, enum fo_precision precision, const struct fo_shares *s,
			   struct fo_denominator out[FO_DENOMINATORS])
{
	bool used[FO_PREC_COUNT] = { [FO_PREC_BF16] = true };
	double weighted;
	int n = 0;
	for (int p = 0; p < FO_PREC_COUNT; p++)
		used[p] |= s->given ? s->of[p] > 0 : p == (int)precision;
	used[FO_PREC_FP8] |= used[FO_PREC_FP4];
	if (!s->given && precision != FO_PREC_BF16 && d->dense[precision] == d->dense[FO_PREC_BF16])
		used[FO_PREC_BF16] = false;
	for (int p = 0; p < FO_PREC_COUNT; p++)
		if (used[p] && !isnan(d->dense[p]))
			out[n++] = (struct fo_denominator){ fo_precision_name[p], d->dense[p] };
	if (!s->given)
		return n;
	if (fo_device_weighted_peak(d, s, &weighted) == FO_OK)
		out[n++] = (struct fo_denominator){ "weighted", weighted };
	else
		fo_err_clear();
	return n;
}
