/* A libcuda.so.1 that has no device and runs nothing, for test_cudnn_graphs alone: with it cuDNN chooses engines,
 * compiles kernels and makes plans on a machine without a GPU. (The software device is no help there: cuDNN would bring
 * its own machine code.)
 *
 * cuDNN asks for these functions by name and calls them with the arguments of the driver's interface; the ones below
 * ignore what they are given but where a result goes. Numbers are CUresult: 0 success, 100 no device. */
#include <stddef.h>

static int token;

#define SUCCEEDS(name)  \
	int name(void); \
	int name(void) { return 0; }
#define NO_DEVICE(name) \
	int name(void); \
	int name(void) { return 100; }
#define GIVES_TOKEN(name)      \
	int name(void **out);  \
	int name(void **out)   \
	{                      \
		*out = &token; \
		return 0;      \
	}
#define GIVES(name, number)    \
	int name(int *out);    \
	int name(int *out)     \
	{                      \
		*out = number; \
		return 0;      \
	}
#define GIVES_TEXT(name)                            \
	int name(int code, const char **out);       \
	int name(int code, const char **out)        \
	{                                           \
		(void)code;                         \
		*out = "a driver without a device"; \
		return 0;                           \
	}

NO_DEVICE(cuInit)
NO_DEVICE(cuDeviceGet)
NO_DEVICE(cuDeviceGetCount)
NO_DEVICE(cuCtxGetCurrent)
NO_DEVICE(cuLaunchKernel)
NO_DEVICE(cuLaunchKernelEx)
NO_DEVICE(cuLaunchCooperativeKernel)
NO_DEVICE(cuMemcpyDtoH_v2)
NO_DEVICE(cuStreamSynchronize)
NO_DEVICE(cuTensorMapEncodeTiled)
GIVES(cuDriverGetVersion, 13000)
GIVES(cuOccupancyMaxActiveBlocksPerMultiprocessor, 1)
GIVES(cuFuncGetAttribute, 0)
GIVES(cuKernelGetAttribute, 0)
GIVES_TEXT(cuGetErrorString)
GIVES_TEXT(cuGetErrorName)
GIVES_TOKEN(cuLibraryLoadData)
GIVES_TOKEN(cuLibraryLoadFromFile)
GIVES_TOKEN(cuLibraryGetKernel)
GIVES_TOKEN(cuModuleLoadData)
GIVES_TOKEN(cuModuleLoadDataEx)
GIVES_TOKEN(cuModuleLoadFatBinary)
GIVES_TOKEN(cuModuleGetFunction)
SUCCEEDS(cuCtxPushCurrent)
SUCCEEDS(cuCtxPopCurrent)
SUCCEEDS(cuCtxGetLimit)
SUCCEEDS(cuStreamGetCtx)
SUCCEEDS(cuLibraryUnload)
SUCCEEDS(cuModuleUnload)
SUCCEEDS(cuLinkCreate)
SUCCEEDS(cuLinkCreate_v2)
SUCCEEDS(cuLinkAddData)
SUCCEEDS(cuLinkAddData_v2)
SUCCEEDS(cuLinkAddFile_v2)
SUCCEEDS(cuLinkComplete)
SUCCEEDS(cuLinkDestroy)
SUCCEEDS(cuFuncSetAttribute)
SUCCEEDS(cuKernelSetAttribute)
SUCCEEDS(cuOccupancyMaxPotentialClusterSize)

int cuModuleGetGlobal_v2(void **out, size_t *bytes);
int cuModuleGetGlobal_v2(void **out, size_t *bytes)
{
	if (out)
		*out = &token;
	if (bytes)
		*bytes = 0;
	return 0;
}
