/* The makers' names for tools and libraries, in one table, so that no rule has its own. Names of PyTorch's interface
 * stay as they are: ROCm's builds call theirs torch.cuda, device_type="cuda", backend="nccl" too. */
#include "diagnose/findings_int.h"

#include <string.h>

static const struct fo_vendor_words words[FO_VENDOR_COUNT] = {
	[FO_VENDOR_NVIDIA] = { "nvidia-smi", "nvidia-smi -q -d PERFORMANCE,CLOCK", "CUDA graphs", "NCCL",
			       "tensor cores", "NVLink", "device_type=\"cuda\"", "PYTORCH_CUDA_ALLOC_CONF" },
	/* ROCm documentation: AMD SMI, HIP graphs, RCCL, matrix cores. */
	[FO_VENDOR_AMD] = { "amd-smi", "amd-smi metric --clock --power --temperature", "HIP graphs", "RCCL",
			    "matrix cores", "xGMI", "device_type=\"cuda\"", "PYTORCH_HIP_ALLOC_CONF" },
	/* Intel's documentation: XPU manager, oneCCL, XMX engines, Xe Link; torch.xpu.XPUGraph. */
	[FO_VENDOR_INTEL] = { "xpu-smi", "xpu-smi stats", "XPU graphs", "oneCCL", "XMX engines", "Xe Link",
			      "device_type=\"xpu\"", "PYTORCH_ALLOC_CONF" },
	[FO_VENDOR_CPU] = { "top", "/proc/cpuinfo", "graphs", "the collectives", "matrix units", "the links",
			    "device_type=\"cuda\"", "PYTORCH_ALLOC_CONF" },
};

const struct fo_vendor_words *fo_vendor_words(enum fo_vendor v) { return &words[v]; }

/* Boards for slots and modules of AMD: "AMD Instinct MI300X", "AMD Radeon PRO W7900", "gfx942". */
static bool amd_device(const char *name)
{
	return strstr(name, "AMD") || strstr(name, "Radeon") || strstr(name, "Instinct") || !strncmp(name, "gfx", 3);
}

/* Calls of Intel's runtimes: urEnqueueKernelLaunch (Unified Runtime), zeCommandListAppendLaunchKernel (Level Zero). */
static bool level_zero(const char *call) { return !strncmp(call, "urEnqueue", 9) || !strncmp(call, "zeCommand", 9); }

enum fo_vendor fo_vendor_of(const struct fo_trace *t, int16_t device)
{
	const char *name = device >= 0 && device < t->device_count ? fo_trace_text(t, t->device[device].name) : "";
	if (t->format == FO_TRACE_OWN)
		return FO_VENDOR_CPU;
	if (*name && amd_device(name))
		return FO_VENDOR_AMD;
	if (*name)
		return strstr(name, "Intel") ? FO_VENDOR_INTEL : FO_VENDOR_NVIDIA;
	for (int64_t i = 0; i < t->launch_count; i++) {
		const char *call = fo_trace_text(t, t->launch[i].name);
		if (level_zero(call))
			return FO_VENDOR_INTEL;
		if (!strncmp(call, "hip", 3) || !strncmp(call, "cuda", 4) || !strncmp(call, "cu", 2))
			return *call == 'h' ? FO_VENDOR_AMD : FO_VENDOR_NVIDIA;
	}
	for (int64_t i = 0; i < t->gpu_count; i++) {
		const char *kernel = fo_trace_text(t, t->gpu[i].name);
		if (strstr(kernel, "Cijk_") || strstr(kernel, "rocclr") || strstr(kernel, "__hip"))
			return FO_VENDOR_AMD;
	}
	return FO_VENDOR_NVIDIA;
}

/* ---- compute capability ---- */

/* 10 x major + minor of NVIDIA's (developer.nvidia.com/cuda-gpus) and of AMD's gfx names (rocm.docs.amd.com,
 * accelerator specifications); the longer of two names that begin alike stands first. */
static const struct {
	const char *chip;
	int capability;
} chips[] = {
	{ "GB300", 103 }, { "B300", 103 },   { "GB200", 100 },  { "B200", 100 }, { "B100", 100 },  { "GH200", 90 },
	{ "H100", 90 },   { "H200", 90 },    { "H800", 90 },    { "H20", 90 },   { "L40", 89 },    { "L4", 89 },
	{ "RTX 40", 89 }, { "RTX 50", 120 }, { "A100", 80 },    { "A800", 80 },  { "A30", 80 },    { "A10", 86 },
	{ "A16", 86 },    { "A40", 86 },     { "A2", 86 },      { "RTX A", 86 }, { "RTX 30", 86 }, { "T4", 75 },
	{ "RTX 20", 75 }, { "V100", 70 },    { "TITAN V", 70 }, { "P100", 60 },  { "MI355", 95 },  { "MI350", 95 },
	{ "MI325", 94 },  { "MI300", 94 },   { "MI308", 94 },   { "MI250", 90 }, { "MI210", 90 },  { "MI100", 90 },
};

static bool alnum(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); }

int fo_capability_of_name(const char *name)
{
	for (size_t i = 0; i < sizeof chips / sizeof *chips; i++) {
		size_t n = strlen(chips[i].chip);
		/* The chip is a whole word, but for what specifies it further: "RTX 4090", "MI300X", "A100-SXM4". */
		for (const char *at = strstr(name, chips[i].chip); at; at = strstr(at + 1, chips[i].chip)) {
			bool series = chips[i].chip[0] == 'M' || strchr(chips[i].chip, ' ');
			if ((at == name || !alnum(at[-1])) && (series || !(at[n] >= '0' && at[n] <= '9')))
				return chips[i].capability;
		}
	}
	return 0;
}
