/* How NVIDIA devices are set and wired, through NVML: limits, modes, links and memory errors. Names, constants and
 * units are those of NVIDIA's "NVML API Reference" (version 13.0). Nothing is ever set or reset; what the driver does
 * not report is NAN. */
#ifndef FO_HW_NVML_SETTINGS_H
#define FO_HW_NVML_SETTINGS_H

#include "hw/nvml.h"

/* X(member): 1 and 0 for on and off; clocks in Hz, power in W. */
#define FO_NVML_SETTINGS(X)                                                                    \
	X(persistence)                                                                         \
	X(mig)                                                                                 \
	X(compute_mode) /* 0 default, 2 prohibited, 1 and 3 exclusive */                       \
	X(pstate)                                                                              \
	X(pcie_gen)                                                                            \
	X(pcie_gen_max)                                                                        \
	X(pcie_width)                                                                          \
	X(pcie_width_max)                                                                      \
	X(default_w)                                                                           \
	X(app_hz)                                                                              \
	X(app_default_hz)                                                                      \
	X(links_up)                                                                            \
	X(links_down)                                                                          \
	X(ecc)                                                                                 \
	X(ecc_pending)                                                                         \
	X(uncorrected) /* memory errors that were not corrected since the driver was loaded */ \
	X(remap_pending)                                                                       \
	X(remap_failed)
struct fo_nvml_settings {
	char bus[32]; /* "00000000:1B:00.0"; "" unknown */
	char name[96];
#define FO_NVML_MEMBER(member) double member;
	FO_NVML_SETTINGS(FO_NVML_MEMBER)
#undef FO_NVML_MEMBER
};
int fo_nvml_count(void); /* devices; 0 without a library */
/* The device of NVML's own number (PCI order), as nvidia-smi counts; NULL. */
fo_nvml_device fo_nvml_at(int index);
void fo_nvml_settings(fo_nvml_device d, struct fo_nvml_settings *out);

#endif
