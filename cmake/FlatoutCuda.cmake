# The CUDA backend where the toolkit is: its headers for the host code, nvcc for the kernels. Nothing of it is linked; everything is
# loaded at run time.
#
#   FLATOUT_CUDA                AUTO (build it where the toolkit is found), ON (an error where not), OFF
#   FLATOUT_CUDA_ARCHITECTURES  what kernels are compiled for; empty: none, the host code alone
set(FLATOUT_CUDA AUTO CACHE STRING "the CUDA backend: AUTO, ON or OFF")
set(FLATOUT_CUDA_ARCHITECTURES "80;90a;100" CACHE STRING "compute capabilities that kernels are built for; empty: none")
set(FO_CUDA OFF)
if(FLATOUT_ENGINE AND NOT FLATOUT_CUDA STREQUAL "OFF" AND NOT CMAKE_CROSSCOMPILING)
	find_program(FO_NVCC nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
	if(FO_NVCC)
		get_filename_component(root "${FO_NVCC}" REALPATH)
		get_filename_component(root "${root}" DIRECTORY)
		get_filename_component(FO_CUDA_ROOT "${root}" DIRECTORY)
	endif()
	find_program(FO_HOST_CXX NAMES g++ c++)
	find_path(FO_CUDA_INCLUDE cublasLt.h HINTS "${FO_CUDA_ROOT}" ENV CUDA_HOME PATH_SUFFIXES include targets/x86_64-linux/include)
	find_path(FO_CUDNN_INCLUDE cudnn_backend.h HINTS ENV CUDNN_HOME "${FO_CUDA_INCLUDE}" "${FO_CUDA_ROOT}" PATH_SUFFIXES include)
	# Without it the build has no group of devices (src/comm/nccl.c).
	find_path(FO_NCCL_INCLUDE nccl.h HINTS ENV NCCL_HOME "${FO_CUDA_INCLUDE}" "${FO_CUDA_ROOT}" PATH_SUFFIXES include)
	# Without it the build has no times of single kernels (src/kernel/cuda/cupti.c).
	find_path(FO_CUPTI_INCLUDE cupti.h HINTS "${FO_CUDA_INCLUDE}" "${FO_CUDA_ROOT}/extras/CUPTI" "${FO_CUDA_ROOT}" PATH_SUFFIXES include)
	if(FO_NVCC AND FO_HOST_CXX AND FO_CUDA_INCLUDE AND FO_CUDNN_INCLUDE)
		set(FO_CUDA ON)
	elseif(FLATOUT_CUDA STREQUAL "ON")
		message(FATAL_ERROR "FLATOUT_CUDA=ON: nvcc is '${FO_NVCC}', cublasLt.h in '${FO_CUDA_INCLUDE}', cudnn_backend.h in "
			"'${FO_CUDNN_INCLUDE}': install the CUDA toolkit and cuDNN, or set CUDA_HOME and CUDNN_HOME")
	endif()
endif()
# Records look as in the header: the library of its major version is what is looked for. Before 13 they looked otherwise.
set(FO_CUPTI_MAJOR "")
if(FO_CUDA AND FO_CUPTI_INCLUDE)
	file(STRINGS "${FO_CUPTI_INCLUDE}/cupti_version.h" FO_CUPTI_MAJOR REGEX "define CUPTI_API_VERSION +[0-9]+")
	string(REGEX MATCH "[0-9]+" FO_CUPTI_MAJOR "${FO_CUPTI_MAJOR}")
	math(EXPR FO_CUPTI_MAJOR "${FO_CUPTI_MAJOR} / 10000")
	if(FO_CUPTI_MAJOR LESS 13)
		set(FO_CUPTI_MAJOR "")
	endif()
endif()
message(STATUS "CUDA backend: ${FO_CUDA}")

# fo_cuda_build(<library>): compiles every src/kernel/cuda/*.cu into machine code that the library carries (image.c). What ptxas says of
# registers and spills lies beside it: <build>/cuda/<file>.ptxas, which a test holds to limits.
function(fo_cuda_build library)
	if(NOT FO_CUDA)
		target_compile_definitions(${library} PRIVATE FO_CUDA=0)
		return()
	endif()
	set(folder "${CMAKE_BINARY_DIR}/cuda")
	file(MAKE_DIRECTORY "${folder}")
	set(targets "")
	foreach(arch ${FLATOUT_CUDA_ARCHITECTURES})
		list(APPEND targets -gencode "arch=compute_${arch},code=sm_${arch}")
	endforeach()
	file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/*.cu")
	file(GLOB headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/*.cuh"
		"${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/cuda/kernels*.h"
		"${CMAKE_CURRENT_SOURCE_DIR}/src/kernel/round.h" "${CMAKE_CURRENT_SOURCE_DIR}/src/base/both.h"
		"${CMAKE_CURRENT_SOURCE_DIR}/src/base/fp8.h" "${CMAKE_CURRENT_SOURCE_DIR}/src/base/rng.h")
	set(table "")
	set(images "")
	set(werror "")
	if(FLATOUT_WERROR)
		set(werror -Werror all-warnings)
	endif()
	if(targets)
		foreach(source ${sources})
			get_filename_component(name "${source}" NAME_WE)
			add_custom_command(OUTPUT "${folder}/${name}.fatbin"
				COMMAND sh "${CMAKE_CURRENT_SOURCE_DIR}/cmake/nvcc.sh" "${folder}/${name}.ptxas" "${FO_NVCC}" -fatbin -std=c++17 -O3
					-ccbin ${FO_HOST_CXX} ${werror} -Xptxas -v,-warn-spills -Xcompiler -Wall,-Wextra
					"-I${CMAKE_CURRENT_SOURCE_DIR}/src" ${targets} "${source}" -o "${folder}/${name}.fatbin"
				DEPENDS "${source}" ${headers} "${CMAKE_CURRENT_SOURCE_DIR}/cmake/nvcc.sh"
				COMMENT "CUDA kernels ${name}.cu" VERBATIM)
			list(APPEND images "${folder}/${name}.fatbin")
			string(APPEND table "FO_CUDA_IMAGE(${name}, \"${folder}/${name}.fatbin\")\n")
		endforeach()
	endif()
	file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/cuda_images.inc" CONTENT "${table}")
	list(JOIN FLATOUT_CUDA_ARCHITECTURES " " architectures)
	set_property(SOURCE src/kernel/cuda/image.c APPEND PROPERTY OBJECT_DEPENDS "${images};${CMAKE_BINARY_DIR}/generated/cuda_images.inc")
	set_property(SOURCE src/kernel/cuda/image.c APPEND PROPERTY COMPILE_DEFINITIONS "FO_CUDA_ARCHITECTURES=\"${architectures}\"")
	set_property(SOURCE src/kernel/cuda/load.c APPEND PROPERTY COMPILE_DEFINITIONS
		"FO_CUDA_FOLDERS=\"${FO_CUDA_ROOT}/lib64:${FO_CUDA_ROOT}/lib:${FO_CUDA_ROOT}/extras/CUPTI/lib64\"")
	target_compile_definitions(${library} PRIVATE FO_CUDA=1)
	target_include_directories(${library} SYSTEM PRIVATE "${FO_CUDA_INCLUDE}" "${FO_CUDNN_INCLUDE}")
	if(FO_NCCL_INCLUDE)
		target_compile_definitions(${library} PRIVATE FO_NCCL=1)
		target_include_directories(${library} SYSTEM PRIVATE "${FO_NCCL_INCLUDE}")
	endif()
	if(FO_CUPTI_MAJOR)
		target_compile_definitions(${library} PRIVATE FO_CUPTI=${FO_CUPTI_MAJOR})
		target_include_directories(${library} SYSTEM PRIVATE "${FO_CUPTI_INCLUDE}")
	endif()
	target_link_libraries(${library} PUBLIC ${CMAKE_DL_LIBS})
endfunction()
