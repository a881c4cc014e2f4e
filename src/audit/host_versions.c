/* Versions with known faults, each with the page that says so, and versions that do not fit together. */
#include "audit/host_int.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "2.18.1+cuda12.1" is 2.18.1; at most four parts. */
static bool parse(const char *text, long part[4])
{
	memset(part, 0, 4 * sizeof *part);
	for (int i = 0; i < 4 && isdigit((unsigned char)*text); i++) {
		char *end;
		part[i] = strtol(text, &end, 10);
		text = end + (*end == '.');
		if (*end != '.')
			return true;
	}
	return part[0] > 0;
}

static int compare(const char *a, const char *b)
{
	long x[4], y[4];
	parse(a, x);
	parse(b, y);
	for (int i = 0; i < 4; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return 0;
}

enum part { NCCL, CUBLAS, TORCH, PARTS };
static const char *const part_name[PARTS] = { "NCCL", "cuBLAS", "PyTorch" };

/* What the fault needs beside the version. */
enum with { ALWAYS, HOPPER_BOARD, CROSS_NIC_1, CROSS_NIC_0, NVL72 };

static const struct known {
	enum part part;
	const char *from, *before; /* from <= version < before */
	enum with with;
	enum fo_audit_level level;
	const char *what, *proposed, *source;
} known[] = {
	{ NCCL, "2.16.2", "2.16.5", ALWAYS, FO_AUDIT_ADVICE,
	  "on boards without NVSwitch its rings may be slow: up to ten times slower than 2.15.5 on 8 A40",
	  "2.16.5 or later", "NVIDIA/nccl#770 (2023-01), fixed in 2.16.5" },
	{ NCCL, "2.18.1", "2.18.3", HOPPER_BOARD, FO_AUDIT_SERIOUS,
	  "Tree with LL128 can corrupt data where an adapter shares its PCIe switch with one GPU, as on HGX H100",
	  "2.18.3 or later; until then NCCL_PROTO=^LL128",
	  "NCCL 2.18.1 release notes, known issues; fixed in 2.18.3 (2023-06-13)" },
	{ NCCL, "2.26.2", "2.26.3", ALWAYS, FO_AUDIT_ADVICE,
	  "capturing large CUDA graphs takes longer, and collectives carry the cost of profiling without a profiler",
	  "2.26.3 or later", "release notes of NCCL 2.26.3 (2025-04-22)" },
	/* Since when the next two are so is not said, so earlier releases are only named. */
	{ NCCL, "2.0", "2.26.2", CROSS_NIC_1, FO_AUDIT_NOTE,
	  "with NCCL_CROSS_NIC=1 rings may alternate without need, which breaks the association of GPU and adapter",
	  "2.26.2 or later, or unset NCCL_CROSS_NIC", "release notes of NCCL 2.26.2 (2025-03-12)" },
	{ NCCL, "2.0", "2.28.7", CROSS_NIC_0, FO_AUDIT_NOTE,
	  "with NCCL_CROSS_NIC=0 and some split masks no viable ring may be found, and communication is slow",
	  "2.28.7 or later, or unset NCCL_CROSS_NIC", "release notes of NCCL 2.28.7 (2025-10-17)" },
	{ NCCL, "2.0", "2.26.5", NVL72, FO_AUDIT_ADVICE,
	  "patterns like all-to-all may hang on multi-node NVLink with more than 80 ranks", "2.27.3 or later",
	  "release notes of NCCL 2.26.5 (2025-04-22) and 2.27.3 (2025-05-29)" },
	{ NCCL, "2.28.3", "2.28.9", ALWAYS, FO_AUDIT_ADVICE,
	  "operations of main and proxy thread may be ordered wrongly, which hangs jobs at large scale",
	  "2.28.9 or later", "release notes of NCCL 2.28.9 (2025-11-10)" },
	{ CUBLAS, "12.1.3", "12.1.4", ALWAYS, FO_AUDIT_ADVICE,
	  "torch.bmm and einsum of one batch take a kernel on one multiprocessor: up to 250 times slower",
	  "a later cuBLAS, or 12.1.0.26; measure the shapes of this model", "pytorch/pytorch#114911 (2023-11-30)" },
	{ TORCH, "2.9.0", "2.9.1", ALWAYS, FO_AUDIT_NOTE, "conv3d in bfloat16 needs far more memory (models of video)",
	  "2.9.1, or cuDNN 9.15 or later", "PyTorch 2.9.1 release notes: pytorch/pytorch#166643 (2025-11)" },
};

static const struct fo_host_fact *version_of(const struct fo_look *k, enum part p)
{
	const struct fo_host_fact *log = fo_host_told(k->host, FO_HOST_NCCL);
	switch (p) {
	case NCCL: return log ? log : fo_host_told(k->host, FO_HOST_PIP_NCCL);
	case CUBLAS: return fo_host_told(k->host, FO_HOST_CUBLAS);
	default: return fo_host_told(k->host, FO_HOST_TORCH);
	}
}

static bool gpu_named(const struct fo_look *k, const char *const *name)
{
	const struct fo_host_fact *f = k->host->gpus ? fo_gpu_told(&k->host->gpu[0], FO_GPU_NAME) : NULL;
	for (; f && *name; name++)
		if (strstr(f->text, *name))
			return true;
	return false;
}

static bool holds(const struct fo_look *k, enum with with)
{
	static const char *const hopper[] = { "H100", "H800", "H200", "H20", NULL }, *const rack[] = { "GB200", "GB300",
												       NULL };
	const struct fo_host_fact *cross = fo_host_variable(k->host, "NCCL_CROSS_NIC");
	switch (with) {
	case HOPPER_BOARD: return gpu_named(k, hopper);
	case CROSS_NIC_1: return cross && cross->number == 1;
	case CROSS_NIC_0: return cross && cross->number == 0;
	case NVL72: return gpu_named(k, rack);
	default: return true;
	}
}

static bool look_known(struct fo_look *k)
{
	bool told = false;
	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		const struct known *v = &known[i];
		const struct fo_host_fact *f = version_of(k, v->part);
		told |= f != NULL;
		if (!f || compare(f->text, v->from) < 0 || compare(f->text, v->before) >= 0 || !holds(k, v->with))
			continue;
		fo_look_add(k, f,
			    (struct fo_audit_finding){ .level = v->level,
						       .title = fo_look_text(k, "%s %.24s has a known fault: %s",
									     part_name[v->part], f->text, v->what),
						       .setting = fo_look_text(k, "version of %s", part_name[v->part]),
						       .now = f->text,
						       .proposed = v->proposed,
						       .why = v->what,
						       .source = v->source });
	}
	return told;
}

/* The log tells what was loaded, pip what was installed. */
static bool look_two_nccl(struct fo_look *k)
{
	const struct fo_host_fact *log = fo_host_told(k->host, FO_HOST_NCCL),
				  *pip = fo_host_told(k->host, FO_HOST_PIP_NCCL);
	if (log && pip && compare(log->text, pip->text))
		fo_look_add(
			k, log,
			(struct fo_audit_finding){
				.level = FO_AUDIT_NOTE,
				.title = fo_look_text(k, "the job loaded NCCL %.24s, and pip has %.24s", log->text,
						      pip->text),
				.now = fo_look_text(k, "%s:%lld says %s", pip->file, (long long)pip->line, pip->text),
				.proposed = "one NCCL: check LD_LIBRARY_PATH and LD_PRELOAD",
				.why = "a change of the package then changes nothing" });
	return log && pip;
}

const struct fo_host_rule fo_host_rules_versions[] = {
	{ "version-known-bad", look_known, "versions of NCCL, cuBLAS and PyTorch",
	  "pip freeze, and the log of a start with NCCL_DEBUG=INFO" },
	{ "version-two-nccl", look_two_nccl, NULL, NULL },
	{ 0 },
};
