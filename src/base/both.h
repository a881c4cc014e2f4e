/* Functions that the processor and CUDA devices run from one source: their headers are included by .c and .cu files
 * alike. */
#ifndef FO_BASE_BOTH_H
#define FO_BASE_BOTH_H

#ifdef __CUDACC__
#define FO_BOTH static __host__ __device__ __forceinline__
#else
#define FO_BOTH static inline
#endif

#endif
