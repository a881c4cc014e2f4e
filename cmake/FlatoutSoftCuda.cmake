# The software CUDA device of the tests (docs/cuda-testing.md): libcuda.so.1 with our kernels compiled by a C++ compiler for this
# processor, libcublasLt and libcudnn, in <build>/tests/cuda, which FLATOUT_CUDA_LIBRARIES names to the tests that use them. FO_SOFT_CUDA is that
# folder; empty where the toolkit's headers are missing.
set(FO_SOFT_CUDA "")
if(NOT FO_CUDA)
	return()
endif()
find_program(FO_OBJCOPY objcopy)
if(NOT FO_OBJCOPY)
	message(FATAL_ERROR "objcopy was not found: install the Debian package 'binutils'")
endif()
set(FO_SOFT_CUDA "${CMAKE_BINARY_DIR}/tests/cuda")
set(source "${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda")
set(objects "${CMAKE_BINARY_DIR}/cuda_host")
file(MAKE_DIRECTORY "${objects}")

# Kernels: one object per .cu file, whose .bss, the __shared__ variables, gets a name of its own (simt.h). No sanitizer looks at
# them: threads that switch stacks look like overruns.
file(GLOB kernels CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/*.cu")
file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/*.cuh"
	"${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/kernels*.h"
	"${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/round.h" "${CMAKE_CURRENT_SOURCE_DIR}/src/base/both.h"
	"${CMAKE_CURRENT_SOURCE_DIR}/src/base/fp8.h" "${CMAKE_CURRENT_SOURCE_DIR}/src/base/rng.h")
# A device traps where an access is not aligned to its size; the processor would not. The other checks cost little beside it.
set(FO_SIMT_FLAGS -std=c++17 -O2 -g -fPIC -fvisibility=hidden -fno-exceptions -fno-rtti -ffp-contract=off -Wall -Wextra -Wno-unknown-pragmas
	-fsanitize=alignment,bounds,shift,integer-divide-by-zero -fsanitize-undefined-trap-on-error)
if(FLATOUT_WERROR)
	list(APPEND FO_SIMT_FLAGS -Werror)
endif()
# fo_simt_object(<OUT> <file.cu>)
function(fo_simt_object out kernel)
	get_filename_component(name "${kernel}" NAME_WE)
	add_custom_command(OUTPUT "${objects}/${name}.o"
		COMMAND ${CMAKE_C_COMPILER_LAUNCHER} ${FO_HOST_CXX} -x c++ ${FO_SIMT_FLAGS} -DFO_SIMT_FILE=${name} -include "${source}/simt.h"
			"-I${CMAKE_CURRENT_SOURCE_DIR}/src" "-I${CMAKE_CURRENT_SOURCE_DIR}/tests" -c "${kernel}" -o "${objects}/${name}.o"
		COMMAND ${FO_OBJCOPY} --rename-section .bss=fo_shared_${name},alloc,load,data,contents "${objects}/${name}.o"
		DEPENDS "${kernel}" ${headers} "${source}/simt.h" "${source}/simt_int.h"
		COMMENT "CUDA kernels ${name}.cu for the software device" VERBATIM)
	set_source_files_properties("${objects}/${name}.o" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
	set(${out} "${objects}/${name}.o" PARENT_SCOPE)
endfunction()
set(kernel_objects "")
foreach(kernel ${kernels})
	fo_simt_object(object "${kernel}")
	list(APPEND kernel_objects "${object}")
endforeach()

# fo_soft_library(<target> <file name> <source>...)
function(fo_soft_library target file)
	add_library(${target} SHARED ${ARGN})
	set_target_properties(${target} PROPERTIES PREFIX "" OUTPUT_NAME "${file}" SUFFIX "" LIBRARY_OUTPUT_DIRECTORY "${FO_SOFT_CUDA}"
		BUILD_RPATH "$ORIGIN" POSITION_INDEPENDENT_CODE ON)
	target_include_directories(${target} PRIVATE src tests)
	target_include_directories(${target} SYSTEM PRIVATE "${FO_CUDA_INCLUDE}")
	target_compile_options(${target} PRIVATE -O3 -fvisibility=default -fno-sanitize=all -Wno-psabi)
	target_link_options(${target} PRIVATE -fno-sanitize=all -Wl,-z,defs "-Wl,--version-script=${source}/soft.map")
	set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${source}/soft.map")
	target_link_libraries(${target} PRIVATE fo::threads m)
endfunction()
fo_soft_library(fo_soft_cuda libcuda.so.1 "${source}/soft_driver.c" "${source}/soft_queue.c" "${source}/soft_memory.c" "${source}/simt.c"
	${kernel_objects})
file(STRINGS "${FO_CUDA_INCLUDE}/cublas_api.h" major REGEX "^#define CUBLAS_VER_MAJOR ")
string(REGEX REPLACE ".* " "" major "${major}")
fo_soft_library(fo_soft_cublaslt libcublasLt.so.${major} "${source}/soft_cublaslt.c")
target_link_libraries(fo_soft_cublaslt PRIVATE fo_soft_cuda)
file(STRINGS "${FO_CUDNN_INCLUDE}/cudnn_version.h" major REGEX "^#define CUDNN_MAJOR ")
string(REGEX REPLACE ".* " "" major "${major}")
fo_soft_library(fo_soft_cudnn libcudnn.so.${major} "${source}/soft_cudnn.c")
target_include_directories(fo_soft_cudnn SYSTEM PRIVATE "${FO_CUDNN_INCLUDE}")
target_link_libraries(fo_soft_cudnn PRIVATE fo_soft_cuda)
set(FO_SOFT_TARGETS fo_soft_cuda fo_soft_cublaslt fo_soft_cudnn)
if(FO_NCCL_INCLUDE)
	fo_soft_library(fo_soft_nccl libnccl.so.2 "${source}/soft_nccl.c")
	target_include_directories(fo_soft_nccl SYSTEM PRIVATE "${FO_NCCL_INCLUDE}")
	target_link_libraries(fo_soft_nccl PRIVATE fo_soft_cuda)
	list(APPEND FO_SOFT_TARGETS fo_soft_nccl)
endif()
if(FO_CUPTI_MAJOR)
	fo_soft_library(fo_soft_cupti libcupti.so.${FO_CUPTI_MAJOR} "${source}/soft_cupti.c")
	target_include_directories(fo_soft_cupti SYSTEM PRIVATE "${FO_CUPTI_INCLUDE}")
	list(APPEND FO_SOFT_TARGETS fo_soft_cupti)
	target_compile_definitions(fo_soft_cuda PRIVATE "SOFT_CUPTI=\"libcupti.so.${FO_CUPTI_MAJOR}\"")
endif()

# The model of a multiprocessor alone, with kernels that break its rules: not sanitized, as in the library.
fo_simt_object(FO_SIMT_CASES "${source}/simt_cases.cu")
add_library(fo_simt STATIC "${source}/simt.c")
target_include_directories(fo_simt PRIVATE tests)
target_compile_options(fo_simt PRIVATE -O3 -fno-sanitize=all)
