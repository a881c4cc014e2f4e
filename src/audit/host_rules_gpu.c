/* Rules about GPUs: clocks and power, what holds them back, PCIe, NVLink, memory errors, modes. Names and meanings are
 * those of nvidia-smi's manual (driver 580) and the NVML reference 13.0. */
#include "audit/host_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SMI "nvidia-smi(1), driver 580 (2025)"

static const struct fo_host_gpu *first_of(const struct fo_look *k, const struct fo_gpus_of *w)
{
	return &k->host->gpu[w->first];
}
static double of(const struct fo_host_gpu *g, enum fo_gpu_id id) { return fo_host_number(fo_gpu_told(g, id)); }

#define NEEDS_QUERY "nvidia-smi -q (of each host, under load)"

/* A GPU that works: its clock, its link and its reasons say something. A busy share is of the last second; where the
 * driver tells that it idles, that counts. */
static bool works(const struct fo_host_gpu *g) { return of(g, FO_GPU_IDLE) == 0 && !(of(g, FO_GPU_BUSY) < 10); }
static bool idles(const struct fo_host_gpu *g) { return of(g, FO_GPU_IDLE) == 1 || of(g, FO_GPU_BUSY) < 10; }

/* ---- the driver ---- */

static bool look_driver(struct fo_look *k)
{
	const struct fo_host_fact *f = fo_host_told(k->host, FO_HOST_SMI_FAILED);
	if (f)
		fo_look_add(
			k, f,
			(struct fo_audit_finding){
				.level = FO_AUDIT_SERIOUS,
				.title = "nvidia-smi cannot talk to the driver",
				.now = f->text,
				.proposed =
					"load the driver that belongs to the installed library: reboot, or reload the "
					"kernel modules",
				.why = "without a working driver no job can use these GPUs" });
	return f || k->host->gpus;
}

/* "Attached GPUs: 8", of which fewer are described. */
static bool look_count(struct fo_look *k)
{
	const struct fo_host_fact *f = fo_host_told(k->host, FO_HOST_GPUS);
	size_t described = 0;
	for (size_t i = 0; i < k->host->gpus; i++)
		described += *k->host->gpu[i].bus != 0;
	if (f && described && f->number > (double)described)
		fo_audit_not_known(
			k->a,
			fo_look_text(k, "%s describes %zu of %.0f GPUs: it was cut", f->file, described, f->number),
			"all of nvidia-smi -q");
	return f != NULL;
}

/* ---- power and clocks ---- */

static bool capped(const struct fo_host_gpu *g) { return of(g, FO_GPU_LIMIT_W) < 0.99 * of(g, FO_GPU_DEFAULT_W); }

static bool look_power_cap(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, capped);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		double limit = of(g, FO_GPU_LIMIT_W), usual = of(g, FO_GPU_DEFAULT_W);
		fo_look_add(
			k, fo_gpu_told(g, FO_GPU_LIMIT_W),
			(struct fo_audit_finding){
				.level = FO_AUDIT_SERIOUS,
				.title = fo_look_text(k, "the power limit is below the default on %s",
						      fo_look_gpus_text(k, &w)),
				.setting = "power limit",
				.now = fo_look_text(k, "%.0f W", limit),
				.proposed = fo_look_text(k, "%.0f W, the default", usual),
				.why = "matmuls of large models reach the limit, and the clock falls until they keep "
				       "to it",
				.paste = fo_look_text(k, "nvidia-smi -pl %.0f", usual),
				.gain = { 1, usual / limit },
				.gain_from = "bound: power grows at least in proportion to the clock",
				.source = SMI });
	}
	return fo_look_any_gpu(k, FO_GPU_DEFAULT_W) && fo_look_any_gpu(k, FO_GPU_LIMIT_W);
}

static bool app_low(const struct fo_host_gpu *g)
{
	return of(g, FO_GPU_APP_MHZ) < 0.97 * of(g, FO_GPU_APP_DEFAULT_MHZ);
}

static bool look_app_clocks(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, app_low);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		double now = of(g, FO_GPU_APP_MHZ), usual = of(g, FO_GPU_APP_DEFAULT_MHZ);
		fo_look_add(k, fo_gpu_told(g, FO_GPU_APP_MHZ),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "application clocks are below their default on %s",
							  fo_look_gpus_text(k, &w)),
				    .setting = "application clock (SM)",
				    .now = fo_look_text(k, "%.0f MHz", now),
				    .proposed = fo_look_text(k, "%.0f MHz, the default", usual),
				    .why = "compute-bound kernels are slower in proportion to the clock",
				    .paste = "nvidia-smi -rac",
				    .gain = { 1, usual / now },
				    .gain_from = "bound: everything is limited by the SM clock",
				    .source = SMI });
	}
	return fo_look_any_gpu(k, FO_GPU_APP_DEFAULT_MHZ) || fo_look_any_gpu(k, FO_GPU_SM_MAX_MHZ);
}

/* Reasons, each of which is a fault of cooling or of power supply. */
static const struct {
	enum fo_gpu_id id;
	const char *words, *cause;
} slow[] = {
	{ FO_GPU_REASON_HW_THERMAL, "hardware thermal slowdown", "the chip is too hot: its cooling fails" },
	{ FO_GPU_REASON_BRAKE, "power brake", "the power supply asks the GPU to draw less: a supply or cable fails" },
	{ FO_GPU_REASON_SW_THERMAL, "software thermal slowdown",
	  "the chip or its memory is at its target temperature" },
	{ FO_GPU_REASON_HW, "hardware slowdown", "too hot, or the power supply asks to draw less" },
};
static const char *slow_words(const struct fo_host_gpu *g, const struct fo_host_fact **at, const char **cause)
{
	for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
		if (of(g, slow[i].id) == 1) {
			*at = fo_gpu_told(g, slow[i].id);
			*cause = slow[i].cause;
			return slow[i].words;
		}
	return NULL;
}
static bool slowed(const struct fo_host_gpu *g)
{
	const struct fo_host_fact *at;
	const char *cause;
	return slow_words(g, &at, &cause);
}

static bool look_slowdown(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, slowed), idle = fo_look_gpus(k, idles);
	if (w.n) {
		const struct fo_host_fact *at = NULL;
		const char *cause = NULL;
		const struct fo_host_gpu *g = first_of(k, &w);
		const char *words = slow_words(g, &at, &cause);
		double now = of(g, FO_GPU_SM_MHZ), most = of(g, FO_GPU_SM_MAX_MHZ);
		struct fo_audit_finding f = {
			.level = FO_AUDIT_SERIOUS,
			.title = fo_look_text(k, "%s is active on %s", words, fo_look_gpus_text(k, &w)),
			.proposed = "mend cooling or power supply of this host, or take it out of the job",
			.why = fo_look_text(k, "%s; one slow GPU slows every step of the job", cause),
			.source = SMI,
		};
		if (now > 0)
			f.now = fo_look_text(k, "SM clock %.0f of %.0f MHz", now, most);
		if (works(g) && now > 0 && most > now) {
			f.gain = (struct fo_range){ 1, most / now };
			f.gain_from = "bound: everything is limited by the SM clock";
		}
		fo_look_add(k, at, f);
	}
	if (!w.n && k->host->gpus && (size_t)idle.n == k->host->gpus)
		fo_audit_not_known(k->a, "what holds the clocks back under load (the GPUs idled)", NEEDS_QUERY);
	return fo_look_any_gpu(k, FO_GPU_REASON_HW) || fo_look_any_gpu(k, FO_GPU_REASON_SW_THERMAL);
}

/* More than a second since the driver was loaded: short ones happen at its start. */
static bool was_slowed(const struct fo_host_gpu *g)
{
	return !slowed(g) && (of(g, FO_GPU_THERMAL_S) > 1 || of(g, FO_GPU_BRAKE_S) > 1);
}

static bool look_slowdown_before(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, was_slowed);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		bool hot = of(g, FO_GPU_THERMAL_S) > 1;
		enum fo_gpu_id id = hot ? FO_GPU_THERMAL_S : FO_GPU_BRAKE_S;
		fo_look_add(k, fo_gpu_told(g, id),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = fo_look_text(k, "hardware slowed %s down since the driver was loaded",
							  fo_look_gpus_text(k, &w)),
				    .now = fo_look_text(k, "%.0f s of %s", of(g, id),
							hot ? "thermal slowdown" : "power brake"),
				    .proposed = "read it again under load: nvidia-smi -q -d PERFORMANCE",
				    .why = "the counter grows only while heat or the power supply holds the clock down",
				    .source = SMI });
	}
	return fo_look_any_gpu(k, FO_GPU_THERMAL_S);
}

static bool at_power_limit(const struct fo_host_gpu *g) { return of(g, FO_GPU_REASON_POWER) == 1 && !capped(g); }

static bool look_power_limit(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, at_power_limit);
	if (w.n)
		fo_look_add(
			k, fo_gpu_told(first_of(k, &w), FO_GPU_REASON_POWER),
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = fo_look_text(k, "%s at the default power limit", fo_look_gpus_text(k, &w)),
				.why = "normal for matmuls at full rate: the clock follows the power that is left" });
	return fo_look_any_gpu(k, FO_GPU_REASON_POWER);
}

/* ---- modes ---- */

static bool not_persistent(const struct fo_host_gpu *g) { return of(g, FO_GPU_PERSISTENCE) == 0; }

static bool look_persistence(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, not_persistent);
	if (w.n)
		fo_look_add(k, fo_gpu_told(first_of(k, &w), FO_GPU_PERSISTENCE),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = fo_look_text(k, "persistence mode is off on %s", fo_look_gpus_text(k, &w)),
				    .setting = "persistence mode",
				    .now = "off",
				    .proposed = "on, by nvidia-persistenced",
				    .why = "the driver leaves the GPU when no process uses it: the next start takes "
					   "seconds "
					   "longer, and limits and clocks that were set are lost",
				    .paste = "systemctl enable --now nvidia-persistenced",
				    .source = "NVIDIA Driver Persistence, docs.nvidia.com/deploy/driver-persistence" });
	return fo_look_any_gpu(k, FO_GPU_PERSISTENCE);
}

static bool has_mig(const struct fo_host_gpu *g) { return of(g, FO_GPU_MIG) == 1; }

static bool look_mig(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, has_mig);
	if (w.n)
		fo_look_add(k, fo_gpu_told(first_of(k, &w), FO_GPU_MIG),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "MIG is enabled on %s", fo_look_gpus_text(k, &w)),
				    .setting = "MIG mode",
				    .now = "enabled",
				    .proposed = "disabled on hosts that train",
				    .why = "a process sees a part of the GPU, and parts have no peer access: neither "
					   "NVLink nor "
					   "PCIe between GPUs",
				    .paste = "nvidia-smi -mig 0",
				    .source = "NVIDIA MIG User Guide r580, application considerations" });
	return fo_look_any_gpu(k, FO_GPU_MIG) || fo_look_any_gpu(k, FO_GPU_PERSISTENCE);
}

static bool other_mode(const struct fo_host_gpu *g)
{
	const struct fo_host_fact *f = fo_gpu_told(g, FO_GPU_COMPUTE_MODE);
	return f && strcmp(f->text, "Default");
}

static bool look_compute_mode(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, other_mode);
	if (w.n) {
		const struct fo_host_fact *mode = fo_gpu_told(first_of(k, &w), FO_GPU_COMPUTE_MODE);
		struct fo_audit_finding f = {
			.level = FO_AUDIT_NOTE,
			.title = fo_look_text(k, "compute mode is not Default on %s", fo_look_gpus_text(k, &w)),
			.setting = "compute mode",
			.now = mode->text,
			.why = "one process at a time can use the GPU: a second one, such as an evaluation, fails",
			.source = SMI,
		};
		if (fo_host_begins(mode->text, "Prohib")) {
			f.level = FO_AUDIT_SERIOUS;
			f.proposed = "Default";
			f.why = "no process can make a context on this GPU";
			f.paste = "nvidia-smi -c 0";
		}
		fo_look_add(k, mode, f);
	}
	return fo_look_any_gpu(k, FO_GPU_COMPUTE_MODE);
}

static bool look_mixed(struct fo_look *k)
{
	const struct fo_host_fact *first = NULL;
	for (size_t i = 0; i < k->host->gpus; i++) {
		const struct fo_host_fact *f = fo_gpu_told(&k->host->gpu[i], FO_GPU_NAME);
		if (f && first && strcmp(f->text, first->text)) {
			fo_look_add(
				k, f,
				(struct fo_audit_finding){
					.level = FO_AUDIT_SERIOUS,
					.title = "GPUs of one host are not of one model",
					.now = fo_look_text(k, "%s and %s", first->text, f->text),
					.proposed = "one model per job: leave the others out by CUDA_VISIBLE_DEVICES",
					.why = "a step ends when the slowest GPU is done" });
			return true;
		}
		first = first ? first : f;
	}
	return first != NULL;
}

static bool has_slider(const struct fo_host_gpu *g)
{
	const struct fo_host_fact *f = fo_gpu_told(g, FO_GPU_NAME);
	return f && (strstr(f->text, "H100") || strstr(f->text, "H200") || strstr(f->text, "B200"));
}

/* NVIDIA's Megatron Bridge and NeMo set it on Hopper for large matmuls. */
static bool vboost_off(const struct fo_host_gpu *g) { return of(g, FO_GPU_VBOOST) == 0; }

static bool look_vboost(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, vboost_off);
	if (w.n)
		fo_look_add(k, fo_gpu_told(first_of(k, &w), FO_GPU_VBOOST),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_NOTE,
				    .title = fo_look_text(k, "vboost is 0 on %s", fo_look_gpus_text(k, &w)),
				    .setting = "boost slider vboost",
				    .now = "0",
				    .proposed = "1, where matmuls fill the step; measure it",
				    .why = "it gives more of the power to the tensor cores",
				    .paste = "sudo nvidia-smi boost-slider --vboost 1",
				    .source = "NVIDIA NeMo 2.0, PerfEnvPlugin enable_vboost (2025)" });
	/* Only Hopper and Blackwell have the slider. */
	return fo_look_any_gpu(k, FO_GPU_VBOOST) || (fo_look_any_gpu(k, FO_GPU_NAME) && !fo_look_gpus(k, has_slider).n);
}

/* ---- PCIe ---- */

static bool narrow(const struct fo_host_gpu *g) { return of(g, FO_GPU_PCIE_WIDTH) < of(g, FO_GPU_PCIE_WIDTH_MAX); }

static bool look_pcie_width(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, narrow);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		double now = of(g, FO_GPU_PCIE_WIDTH), most = of(g, FO_GPU_PCIE_WIDTH_MAX);
		fo_look_add(k, fo_gpu_told(g, FO_GPU_PCIE_WIDTH),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "PCIe runs at x%.0f of x%.0f on %s", now, most,
							  fo_look_gpus_text(k, &w)),
				    .setting = "PCIe link width",
				    .now = fo_look_text(k, "x%.0f", now),
				    .proposed = fo_look_text(
					    k,
					    "x%.0f: reseat the card or riser, check the slot's lanes in the "
					    "firmware",
					    most),
				    .why = fo_look_text(
					    k,
					    "copies to the host, and to the network by GPUDirect, take %.0f times as "
					    "long; the width does not fall at idle",
					    most / now),
				    .source = SMI });
	}
	return fo_look_any_gpu(k, FO_GPU_PCIE_WIDTH);
}

static bool old_generation(const struct fo_host_gpu *g)
{
	return works(g) && of(g, FO_GPU_PCIE_GEN) < of(g, FO_GPU_PCIE_GEN_MAX);
}
static bool works_and_tells(const struct fo_host_gpu *g) { return works(g) && fo_gpu_told(g, FO_GPU_PCIE_GEN); }

/* At idle the link saves power in a lower generation, which says nothing. */
static bool look_pcie_generation(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, old_generation), working = fo_look_gpus(k, works_and_tells);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		double now = of(g, FO_GPU_PCIE_GEN), most = of(g, FO_GPU_PCIE_GEN_MAX);
		fo_look_add(k, fo_gpu_told(g, FO_GPU_PCIE_GEN),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "PCIe runs in generation %.0f of %.0f under load on %s",
							  now, most, fo_look_gpus_text(k, &w)),
				    .setting = "PCIe link generation",
				    .now = fo_look_text(k, "%.0f", now),
				    .proposed = fo_look_text(
					    k, "%.0f: check the slot's link speed in the firmware, and risers", most),
				    .why = "each generation doubles the rate of copies to the host and the network",
				    .source = SMI });
	}
	for (size_t i = 0; i < k->host->gpus && !working.n; i++)
		if (idles(&k->host->gpu[i]) &&
		    of(&k->host->gpu[i], FO_GPU_PCIE_GEN) < of(&k->host->gpu[i], FO_GPU_PCIE_GEN_MAX))
			return false;
	return fo_look_any_gpu(k, FO_GPU_PCIE_GEN);
}

/* ---- NVLink ---- */

static int expected_links(const struct fo_host_gpu *g)
{
	const struct fo_host_fact *f = fo_gpu_told(g, FO_GPU_NAME);
	return f ? fo_host_nvlinks(f->text) : 0;
}
static bool has_links(const struct fo_host_gpu *g) { return expected_links(g) > 0; }
static bool links_missing(const struct fo_host_gpu *g)
{
	double up = of(g, FO_GPU_LINKS_UP), down = of(g, FO_GPU_LINKS_DOWN);
	return up < expected_links(g) || (up > 0 && down > 0);
}

static bool look_nvlinks(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, links_missing);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		double up = of(g, FO_GPU_LINKS_UP), down = of(g, FO_GPU_LINKS_DOWN);
		double all = fmax(expected_links(g), isnan(down) ? up : up + down);
		fo_look_add(k, fo_gpu_told(g, isnan(down) ? FO_GPU_LINKS_UP : FO_GPU_LINKS_DOWN),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "%.0f of %.0f NVLinks are active on %s", up, all,
							  fo_look_gpus_text(k, &w)),
				    .now = fo_look_text(k, "%.0f links", up),
				    .proposed = fo_look_text(
					    k,
					    "%.0f links: check the fabric manager and the kernel log (Xid 74), "
					    "reset the GPU",
					    all),
				    .why = "a collective goes at the rate of its slowest GPU; without any link it goes "
					   "over PCIe",
				    .paste = "systemctl status nvidia-fabricmanager",
				    .source = "NVIDIA data sheets of A100, H100, H200 and B200 (links per GPU)" });
	}
	/* Nothing is expected of cards for PCIe. */
	return fo_look_any_gpu(k, FO_GPU_LINKS_UP) ||
	       (fo_look_any_gpu(k, FO_GPU_NAME) && !fo_look_gpus(k, has_links).n);
}

static bool fabric_failed(const struct fo_host_gpu *g)
{
	const struct fo_host_fact *f = fo_gpu_told(g, FO_GPU_FABRIC);
	return f && strcmp(f->text, "Success");
}

static bool look_fabric(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, fabric_failed);
	if (w.n) {
		const struct fo_host_fact *f = fo_gpu_told(first_of(k, &w), FO_GPU_FABRIC);
		fo_look_add(k, f,
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "the NVSwitch fabric is not ready on %s",
							  fo_look_gpus_text(k, &w)),
				    .now = f->text,
				    .proposed = "Success: start the fabric manager of the driver's version",
				    .why = "CUDA does not start on these GPUs, or they have no NVLink, until it has "
					   "trained the "
					   "links",
				    .paste = "systemctl restart nvidia-fabricmanager",
				    .source = "NVIDIA Fabric Manager User Guide r580" });
	}
	return fo_look_any_gpu(k, FO_GPU_FABRIC);
}

/* ---- memory ---- */

static bool uncorrected(const struct fo_host_gpu *g) { return of(g, FO_GPU_UNCORRECTED) > 0; }
static bool remap_failed(const struct fo_host_gpu *g) { return of(g, FO_GPU_REMAP_FAILED) == 1; }
static bool repair_pending(const struct fo_host_gpu *g)
{
	return of(g, FO_GPU_REMAP_PENDING) == 1 || of(g, FO_GPU_RETIRE_PENDING) == 1;
}
#define MEMORY_ERRORS "NVIDIA GPU Memory Error Management r580, docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt"

static bool look_ecc_errors(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, uncorrected);
	if (w.n)
		fo_look_add(k, fo_gpu_told(first_of(k, &w), FO_GPU_UNCORRECTED),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_SERIOUS,
				    .title = fo_look_text(k, "memory errors that ECC could not correct on %s",
							  fo_look_gpus_text(k, &w)),
				    .now = fo_look_text(k, "%.0f since the driver was loaded",
							of(first_of(k, &w), FO_GPU_UNCORRECTED)),
				    .proposed = "drain the host, reset the GPU, run dcgmi diag -r 3",
				    .why = "such an error ends the process that used the memory: the job restarts from "
					   "its last "
					   "checkpoint",
				    .source = MEMORY_ERRORS });
	return fo_look_any_gpu(k, FO_GPU_UNCORRECTED);
}

static bool look_remap_failed(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, remap_failed);
	if (w.n)
		fo_look_add(
			k, fo_gpu_told(first_of(k, &w), FO_GPU_REMAP_FAILED),
			(struct fo_audit_finding){
				.level = FO_AUDIT_SERIOUS,
				.title = fo_look_text(k, "a bad memory row could not be replaced on %s",
						      fo_look_gpus_text(k, &w)),
				.proposed =
					"take the GPU out of service; the field diagnostic decides about its return",
				.why = "no spare row is left where the error is, so it comes again",
				.source = MEMORY_ERRORS });
	return fo_look_any_gpu(k, FO_GPU_REMAP_FAILED);
}

static bool look_repair_pending(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, repair_pending);
	if (w.n) {
		const struct fo_host_gpu *g = first_of(k, &w);
		bool remap = of(g, FO_GPU_REMAP_PENDING) == 1;
		fo_look_add(k, fo_gpu_told(g, remap ? FO_GPU_REMAP_PENDING : FO_GPU_RETIRE_PENDING),
			    (struct fo_audit_finding){
				    .level = FO_AUDIT_ADVICE,
				    .title = fo_look_text(k, "memory is to be replaced at the next reset on %s",
							  fo_look_gpus_text(k, &w)),
				    .now = remap ? "row remapping pending" : "page retirement pending",
				    .proposed = "reset the GPU between two jobs",
				    .why = "until then the bad memory stays in use, and its next error may end the job",
				    .paste = "nvidia-smi --gpu-reset",
				    .source = MEMORY_ERRORS });
	}
	return fo_look_any_gpu(k, FO_GPU_REMAP_PENDING) || fo_look_any_gpu(k, FO_GPU_RETIRE_PENDING);
}

/* Only memory of stacks (HBM) carries check bits beside the data; elsewhere ECC takes memory and bandwidth, so that its
 * owner may have turned it off on purpose. */
static bool has_hbm(const struct fo_host_gpu *g)
{
	static const char *const chip[] = {
		"V100", "A100", "A800", "A30", "H100", "H800", "H200", "H20", "B200", "B300"
	};
	const struct fo_host_fact *f = fo_gpu_told(g, FO_GPU_NAME);
	for (size_t i = 0; f && i < sizeof chip / sizeof *chip; i++)
		if (strstr(f->text, chip[i]) && !strstr(f->text, "A3000"))
			return true;
	return false;
}

static bool ecc_changes(const struct fo_host_gpu *g)
{
	if (!has_hbm(g))
		return false;
	double now = of(g, FO_GPU_ECC), next = of(g, FO_GPU_ECC_PENDING);
	return now == 0 || (now == 1 && next == 0);
}

static bool look_ecc_mode(struct fo_look *k)
{
	struct fo_gpus_of w = fo_look_gpus(k, ecc_changes);
	if (w.n)
		fo_look_add(
			k, fo_gpu_told(first_of(k, &w), FO_GPU_ECC),
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = fo_look_text(k, "ECC is off or about to change on %s",
						      fo_look_gpus_text(k, &w)),
				.setting = "ECC mode",
				.now = of(first_of(k, &w), FO_GPU_ECC) == 0 ? "disabled" : "enabled, to be disabled",
				.proposed = "enabled",
				.why = "without it errors reach the weights unseen; HBM carries the check bits "
				       "beside the data",
				.source = MEMORY_ERRORS });
	return fo_look_any_gpu(k, FO_GPU_ECC);
}

const struct fo_host_rule fo_host_rules_gpu[] = {
	{ "gpu-driver", look_driver, "GPUs of this host", NEEDS_QUERY },
	{ "gpu-count", look_count, NULL, NULL },
	{ "gpu-power-cap", look_power_cap, "power limit against its default", NEEDS_QUERY },
	{ "gpu-app-clocks", look_app_clocks, "application clocks", NEEDS_QUERY },
	{ "gpu-slowdown", look_slowdown, "what holds the clocks back", NEEDS_QUERY },
	{ "gpu-slowdown-before", look_slowdown_before, NULL, NULL },
	{ "gpu-power-limit", look_power_limit, NULL, NULL },
	{ "gpu-persistence", look_persistence, NULL, NULL },
	{ "gpu-mig", look_mig, NULL, NULL },
	{ "gpu-compute-mode", look_compute_mode, NULL, NULL },
	{ "gpu-mixed", look_mixed, NULL, NULL },
	{ "gpu-vboost", look_vboost, "vboost", "nvidia-smi boost-slider -l" },
	{ "gpu-pcie-width", look_pcie_width, "width of the PCIe links", NEEDS_QUERY },
	{ "gpu-pcie-generation", look_pcie_generation, "PCIe generation under load", NEEDS_QUERY },
	{ "gpu-nvlinks", look_nvlinks, "number of active NVLinks", "nvidia-smi nvlink -s" },
	{ "gpu-fabric", look_fabric, NULL, NULL },
	{ "gpu-ecc-errors", look_ecc_errors, "memory errors", NEEDS_QUERY },
	{ "gpu-remap-failed", look_remap_failed, NULL, NULL },
	{ "gpu-repair-pending", look_repair_pending, NULL, NULL },
	{ "gpu-ecc-mode", look_ecc_mode, NULL, NULL },
	{ 0 },
};
