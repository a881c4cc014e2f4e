/* Machine code of our kernels, as the build made it: one image per .cu file, each for all architectures it was built
 * for. */
#ifndef FO_KERNEL_CUDA_IMAGE_H
#define FO_KERNEL_CUDA_IMAGE_H

struct fo_cuda_image {
	const char *name;           /* of the .cu file */
	const unsigned char *begin; /* what cuModuleLoadData takes */
};
extern const struct fo_cuda_image fo_cuda_images[]; /* ends with a name of NULL */
extern const char fo_cuda_architectures[];          /* "80 90a 100"; "": built without kernels */

#endif
