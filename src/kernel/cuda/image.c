#include "kernel/cuda/image.h"

#include <stddef.h>

#if FO_CUDA
/* 16 bytes: what the driver reads are ELF files behind a header of 64-bit fields. */
#define FO_CUDA_IMAGE(name, file)                                                                                \
	__asm__(".pushsection .rodata\n.balign 16\n.hidden fo_cuda_image_" #name "\n.globl fo_cuda_image_" #name \
		"\nfo_cuda_image_" #name ":\n.incbin \"" file "\"\n.balign 16\n.popsection\n");                  \
	extern const unsigned char fo_cuda_image_##name[] __attribute__((visibility("hidden")));
#include "cuda_images.inc"
#undef FO_CUDA_IMAGE

const struct fo_cuda_image fo_cuda_images[] = {
#define FO_CUDA_IMAGE(name, file) { #name, fo_cuda_image_##name },
#include "cuda_images.inc"
	{ NULL, NULL }
};
const char fo_cuda_architectures[] = FO_CUDA_ARCHITECTURES;
#else
const struct fo_cuda_image fo_cuda_images[] = { { NULL, NULL } };
const char fo_cuda_architectures[] = "";
#endif
