/* Which devices, which MFU now and by what, the limit of every promise, and figures that contradict each other. */
#include "health/health_int.h"

#include "base/text.h"
#include "predict/predict.h"

#include <math.h>
#include <string.h>

const char *const fo_health_source_name[FO_HEALTH_SOURCES] = { "nothing", "log",    "trace",     "run",
							       "ladder",  "caller", "arithmetic" };

/* ---- devices ---- */

fo_status fo_health_name_devices(struct fo_health *h)
{
	enum fo_precision p;
	if (h->given.dtype)
		FO_TRY(fo_precision_parse(h->given.dtype, &p));
	h->cluster = (struct fo_cluster){ .devices = NAN, .per_node = NAN, .nodes = NAN };
	if (h->given.cluster) {
		FO_TRY(fo_cluster_parse(h->given.cluster, &h->catalogue, &h->cluster, &h->arena));
		h->device = h->cluster.device;
		h->device_from = "--cluster";
		h->devices_from = "--cluster";
		if (!(h->given.devices > 0))
			h->given.devices = h->cluster.devices;
		else if (h->given.devices != h->cluster.devices)
			return fo_fail(FO_EARG, "--devices is %.0f, and --cluster '%s' has %.0f", h->given.devices,
				       h->given.cluster, h->cluster.devices);
	}
	if (h->given.device) {
		FO_TRY(fo_catalogue_find(&h->catalogue, h->given.device, &h->device));
		h->device_from = "--device";
	}
	if (h->given.model) {
		struct fo_model m;
		FO_TRY(fo_model_load(h->given.model, &m));
	}
	return FO_OK;
}

/* ---- the cap ---- */

/* The same speed by the rule of the figure that stands first, over that by causal attention; 1 where no model tells. */
static double rule_factor(const struct fo_health *h)
{
	const struct fo_health_log *l = h->main_log;
	if (h->mfu.source != FO_HEALTH_BY_LOG || !l || l->account.first < 0)
		return 1;
	const double *flop = l->account.flop;
	double causal = flop[FO_LOG_MFU_CAUSAL];
	/* LoRA's count leaves out the gradients of frozen weights; causal attention takes as much off it as off full
	 * training's. */
	if (l->account.first == FO_LOG_MFU_LORA)
		causal = flop[FO_LOG_MFU_LORA] - flop[FO_LOG_MFU_FULL] + flop[FO_LOG_MFU_CAUSAL];
	double f = flop[l->account.first] / causal;
	return isfinite(f) && f > 0 ? f : 1;
}

/* Does the job multiply in 8 bit? The runs of find_cap are of 16 bit, over that peak. */
static bool in_8_bit(const struct fo_health *h)
{
	enum fo_precision p = FO_PREC_BF16;
	if (h->given.dtype && fo_precision_parse(h->given.dtype, &p) != FO_OK)
		fo_err_clear();
	bool log = h->main_log && h->main_log->log.told[FO_LOG_FP8].number > 0;
	bool configured = h->configured && fo_job_number(&h->job, FO_JOB_FP8) > FO_JOB_FP8_OFF;
	return log || configured || p == FO_PREC_FP8 || p == FO_PREC_FP4;
}

static const char CAP_IS[] = "the best published run of this class";

const char *fo_health_cap_run(const char *from)
{
	size_t n = sizeof CAP_IS - 1;
	return strncmp(from, CAP_IS, n) ? from : from + n + strlen(": ");
}

static void find_cap(struct fo_health *h)
{
	struct fo_health_mfu *m = &h->mfu;
	const struct fo_device *d = h->device;
	double factor = rule_factor(h);
	m->cap = 1;
	m->cap_from = "the peak itself: no published training run of this device is known here";
	if (in_8_bit(h)) {
		m->cap_from = "the peak itself: the published runs that are known here multiply in 16 bit";
		return;
	}
	const struct fo_predict_best *best = d ? fo_predict_best_of(d->name, FO_PREDICT_BF16) : NULL;
	if (best) {
		m->cap = fmin(best->causal * factor, 1);
		m->cap_from = fo_health_text(
			h, "%s: %s%s", CAP_IS, best->run,
			factor == 1 ? "" : fo_health_text(h, "; %.1f %% with causal attention", 100 * best->causal));
		return;
	}
	if (d && d->measured_bf16 > 0 && d->dense[FO_PREC_BF16] > 0) {
		m->cap = fmin(d->measured_bf16 / d->dense[FO_PREC_BF16], 1);
		m->cap_from = fo_health_text(h, "the best matmul that was measured on %s (%s): no training comes near",
					     d->name, d->source);
	}
}

/* ---- MFU now ---- */

/* All options that the log's account asks for, each without its explanation: "--device D, --devices N". */
static const char *options(struct fo_health *h, const struct fo_log_account *a)
{
	const char *all = "";
	for (int i = 0; i < a->missings; i++)
		all = fo_health_text(h, "%s%s%.*s", all, i ? ", " : "", (int)strcspn(a->missing[i], ":"),
				     a->missing[i]);
	return all;
}

static bool by_log(struct fo_health *h, struct fo_health_mfu *m)
{
	const struct fo_health_log *l = h->main_log;
	if (!l)
		return false;
	const struct fo_log_account *a = &l->account;
	if (a->first >= 0) {
		struct fo_log_spread s = a->mfu[a->first];
		*m = (struct fo_health_mfu){
			FO_HEALTH_BY_LOG, s.median, { s.low, s.high }, .rule = fo_log_mfu_name[a->first]
		};
	} else if (!isnan(a->printed_mfu)) {
		*m = (struct fo_health_mfu){ FO_HEALTH_BY_LOG, a->printed_mfu, fo_range(a->printed_mfu),
					     .rule = "printed" };
	} else if (!isnan(a->printed_tflops / a->peak)) {
		double v = a->printed_tflops / a->peak;
		*m = (struct fo_health_mfu){ FO_HEALTH_BY_LOG, v, fo_range(v), .rule = "printed" };
	} else {
		const char *name = fo_text_file_name(l->path);
		m->why_not = a->missings ? fo_health_text(h, "%s does not tell; give %s", name, options(h, a))
					 : fo_health_text(h, "%s does not tell", name);
		return false;
	}
	m->from = fo_health_text(h, "%s", fo_text_file_name(l->path));
	return true;
}

static bool by_trace(struct fo_health *h, struct fo_health_mfu *m)
{
	const struct fo_diagnosis *d = &h->diagnosis;
	if (!h->traced || !fo_diagnosed(d))
		return false;
	if (d->bridge.known) {
		*m = (struct fo_health_mfu){ FO_HEALTH_BY_TRACE, d->bridge.mfu, fo_range(d->bridge.mfu),
					     .rule = fo_health_text(h, "%s", d->bridge.rule), .from = "the trace" };
		return true;
	}
	if (!m->why_not && *d->bridge.why_not)
		m->why_not = fo_health_text(h, "the trace: %s", d->bridge.why_not);
	return false;
}

static bool by_run(struct fo_health *h, struct fo_health_mfu *m)
{
	for (size_t i = h->runs; i-- > 0;) {
		const struct fo_record_steps *s = &h->run[i]->step;
		double v = fo_record_quantile(s, FO_STEP_MFU, 0, s->n, 0.5);
		if (isnan(v))
			continue;
		*m = (struct fo_health_mfu){ FO_HEALTH_BY_RUN,
					     v,
					     { fo_record_quantile(s, FO_STEP_MFU, 0, s->n, 0.25),
					       fo_record_quantile(s, FO_STEP_MFU, 0, s->n, 0.75) },
					     .rule = "mfu",
					     .from = fo_health_text(h, "the run '%s'", h->run[i]->dir) };
		return true;
	}
	return false;
}

static bool by_ladder(struct fo_health *h, struct fo_health_mfu *m)
{
	for (size_t i = h->ladders; i-- > 0;) {
		const struct fo_ladder *l = h->ladder[i];
		int bottom = fo_ladder_bottom(l);
		if (bottom < 0 || isnan(l->rung[bottom].mfu[FO_LADDER_MFU].median))
			continue;
		const struct fo_spread *v = &l->rung[bottom].mfu[FO_LADDER_MFU];
		*m = (struct fo_health_mfu){ .source = FO_HEALTH_BY_LADDER,
					     .now = v->median,
					     .spread = { v->low, v->high },
					     .rule = "mfu",
					     .from = fo_health_text(h, "rung '%s' of the ladder '%s'",
								    l->rung[bottom].name, l->dir) };
		return true;
	}
	return false;
}

static bool by_caller(struct fo_health *h, struct fo_health_mfu *m)
{
	if (!fo_range_known(h->given.mfu))
		return false;
	*m = (struct fo_health_mfu){ FO_HEALTH_BY_CALLER, fo_range_middle(h->given.mfu), h->given.mfu,
				     .rule = "as given", .from = "--mfu" };
	return true;
}

/* The mean of what nvidia-smi shows of all devices; NAN. */
static double busy_of_hosts(const struct fo_health *h)
{
	double sum = 0;
	int n = 0;
	for (size_t i = 0; i < h->host.hosts; i++)
		for (size_t g = 0; g < h->host.host[i].gpus; g++) {
			double v = fo_host_number(fo_gpu_told(&h->host.host[i].gpu[g], FO_GPU_BUSY));
			if (isfinite(v)) {
				sum += v / 100;
				n++;
			}
		}
	return n ? sum / n : NAN;
}

static void by_arithmetic(struct fo_health *h, struct fo_health_mfu *m)
{
	const struct fo_job_step *s = &h->config.step;
	if (!h->configured || s->unknown || !fo_range_known(s->mfu))
		return;
	m->source = FO_HEALTH_BY_ARITHMETIC;
	m->spread = s->mfu;
	m->rule = "mfu";
	m->from = "the arithmetic of the configuration";
}

void fo_health_find_mfu(struct fo_health *h)
{
	struct fo_health_mfu *m = &h->mfu;
	struct fo_subject s;
	m->now = NAN;
	m->spread = fo_range(NAN);
	bool known = by_log(h, m) || by_trace(h, m) || by_run(h, m) || by_ladder(h, m) || by_caller(h, m);
	if (!known)
		by_arithmetic(h, m);
	if (!known && !m->why_not)
		m->why_not =
			"a training log (flatout mfu LOG), a trace with --model, --seq and --tokens-per-step, or --mfu";
	if (m->now > 1) {
		m->why_not = fo_health_text(
			h, "%s gives %s, which cannot be: the device, its number or the model is another", m->from,
			fo_health_num(h, m->now, FO_DRAW_SHARE));
		fo_health_conflict(h, "MFU: %s", m->why_not);
		m->source = FO_HEALTH_BY_NOTHING;
		m->now = NAN;
		m->spread = fo_range(NAN);
	}
	m->utilisation = m->computing = NAN;
	m->busy = busy_of_hosts(h);
	if (fo_health_step(h, &s)) {
		m->utilisation = h->diagnosis.utilisation.resident;
		m->computing = h->diagnosis.utilisation.computing;
	}
	find_cap(h);
}

/* ---- what does not fit ---- */

/* Two measurements of one job agree within this: a profiler slows a step by some per cent (docs/diagnosis-rules.md
 * calls 5 % a lot), and logs of one run move by as much. */
static const double AGREE = 1.25;

static void compare_steps(struct fo_health *h, const struct fo_subject *s)
{
	const struct fo_health_log *l = h->main_log;
	if (!l || h->trace_apart || s->device->from == FO_WINDOW_WHOLE || isnan(l->log.time.median))
		return;
	double traced = (double)s->l.span_ns * 1e-9, logged = l->log.time.median;
	if (traced / logged > AGREE || logged / traced > AGREE)
		fo_health_conflict(
			h,
			"a step takes %s in the log and %s in the trace: the trace is not of a usual step, or "
			"not of this run",
			fo_health_num(h, logged, FO_DRAW_SECONDS), fo_health_num(h, traced, FO_DRAW_SECONDS));
}

/* MFU within the time that computes: what the kernels alone would have to reach. */
static void compare_compute(struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	if (m->source != FO_HEALTH_BY_LOG || h->trace_apart || !(m->computing > 0))
		return;
	double within = m->now / m->computing;
	if (within > m->cap)
		fo_health_conflict(
			h,
			"%s MFU (%s) in the %s of the step that computes (trace) would be %s within that "
			"time, above %s: %s. One of the two figures is rough",
			fo_health_num(h, m->now, FO_DRAW_SHARE), m->from, fo_health_num(h, m->computing, FO_DRAW_SHARE),
			fo_health_num(h, within, FO_DRAW_SHARE), fo_health_num(h, m->cap, FO_DRAW_SHARE), m->cap_from);
}

static void compare_mfu(struct fo_health *h)
{
	const struct fo_bridge *b = &h->diagnosis.bridge;
	double log = h->mfu.source == FO_HEALTH_BY_LOG ? h->mfu.now : NAN;
	if (!h->traced || !b->known || h->trace_apart || isnan(log))
		return;
	if (b->mfu / log > AGREE || log / b->mfu > AGREE)
		fo_health_conflict(h, "MFU is %s by %s and %s by the trace", fo_health_num(h, log, FO_DRAW_SHARE),
				   h->mfu.from, fo_health_num(h, b->mfu, FO_DRAW_SHARE));
}

/* What the configuration alone explains. A step that takes much longer holds something that no configuration shows, and
 * gains by arithmetic are gains of the step that it should be. */
static void compare_arithmetic(struct fo_health *h)
{
	const struct fo_health_log *l = h->main_log;
	struct fo_range step = h->config.step.total;
	if (!h->configured || !l || !fo_range_known(step) || isnan(l->log.time.median) || h->config.step.unknown)
		return;
	double logged = l->log.time.median;
	h->other_step = logged * AGREE < step.low;
	h->longer = logged > AGREE * step.high ? logged - step.high : 0;
	if (!h->other_step && !(h->longer > 0))
		return;
	const char *means = "The configuration is not this log's, and no money rests on it";
	if (h->longer > 0)
		means = fo_health_text(h,
				       "The configuration explains at most %s of %s. The low end of each gain by "
				       "arithmetic assumes that the other %s stay",
				       fo_health_num(h, step.high, FO_DRAW_SECONDS),
				       fo_health_num(h, logged, FO_DRAW_SECONDS),
				       fo_health_num(h, h->longer, FO_DRAW_SECONDS));
	fo_health_conflict(h, "a step takes %s in %s and %s by the arithmetic of the configuration. %s",
			   fo_health_num(h, logged, FO_DRAW_SECONDS), fo_text_file_name(l->path),
			   fo_health_range(&h->arena, step, FO_DRAW_SECONDS), means);
}

/* The limit is no law: what is above it is told, for it may be an error or a better run. */
static void compare_cap(struct fo_health *h)
{
	const struct fo_health_mfu *m = &h->mfu;
	const char *run = fo_health_cap_run(m->cap_from);
	if (m->now > m->cap)
		fo_health_conflict(h,
				   "MFU of %s (%s) is above %s, %s (%s). Reasons can be fp8, another number of devices "
				   "or another model",
				   fo_health_num(h, m->now, FO_DRAW_SHARE), m->from,
				   fo_health_num(h, m->cap, FO_DRAW_SHARE),
				   run == m->cap_from ? "the limit that is known here" : CAP_IS, run);
}

void fo_health_compare_sources(struct fo_health *h)
{
	struct fo_subject s;
	compare_cap(h);
	compare_arithmetic(h);
	if (fo_health_step(h, &s)) {
		compare_steps(h, &s);
		compare_compute(h);
		compare_mfu(h);
	}
	for (size_t i = 0; i < h->logs; i++)
		if (h->log[i]->account.device && h->device &&
		    strcmp(h->log[i]->account.device->name, h->device->name) != 0)
			fo_health_conflict(h, "%s is of %s, the job runs on %s (%s)", h->log[i]->path,
					   h->log[i]->account.device->name, h->device->name, h->device_from);
}
