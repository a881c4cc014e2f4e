/* Kernels of a CUDA device for num.h: the row below runs the device's kernel of an operation on operands in host
 * memory. It copies each operand's whole block to the device, runs the kernel and copies back. One device, one
 * operation at a time, on the thread that opened the device. */
#ifndef FO_CHECK_NUM_CUDA_H
#define FO_CHECK_NUM_CUDA_H

#include "check/engine/num.h"
#include "kernel/cuda/cuda.h"

/* Names the device that fo_num_cuda_kernel runs on from now on; NULL: none. */
void fo_num_cuda_use(struct fo_cuda *c);
extern const struct fo_kernel fo_num_cuda_kernel;
/* The same with a status: the device's errors, and FO_EBUG where a kernel wrote past its workspace. Operand i lies
 * inside block[i] of bytes[i] bytes, and operands may share a block; block NULL: in those of struct fo_num_data. */
FO_CHECKED fo_status fo_num_cuda_run(const struct fo_call *call, unsigned char *const *block, const size_t *bytes);
/* Would the last call give the same bits again? Not cuDNN's attention backward, which adds the gradient of queries in
 * the order in which its blocks end. */
bool fo_num_cuda_same_bits(void);
/* NULL where the device takes this case, else why not. */
const char *fo_num_cuda_cannot(const struct fo_num_case *n);
/* The device's first error since the last call in one sentence, or NULL: fo_num_cuda_kernel cannot return it. */
const char *fo_num_cuda_error(void);

#endif
