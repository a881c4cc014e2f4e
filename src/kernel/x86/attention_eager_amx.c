#define FO_LANES 16
#define FO_NAME(x) x##_amx
#define FO_SET_ISA FO_ISA_AMX
#include "kernel/x86/attention_eager.inc"
