# tests/<group>/*.c, tests/cli/*.sh and tests/install/*.sh become CTest tests, named after their file, labelled with their group.
# Exit 77 is a skip. tests/cli/lib*.sh are included by the others.

# fo_needs_engine(<var> <file>): does the file, or a header of tests/ that it includes, include the doing half?
function(fo_needs_engine out file)
	set(${out} OFF PARENT_SCOPE)
	file(STRINGS "${file}" includes REGEX "^#include \"")
	foreach(line ${includes})
		string(REGEX REPLACE "^#include \"([^\"]*)\".*" "\\1" header "${line}")
		string(REGEX MATCH "^[a-z]+" module "${header}")
		if(module IN_LIST FO_ENGINE_MODULES OR header MATCHES "^[a-z]+/engine/")
			set(${out} ON PARENT_SCOPE)
			return()
		endif()
		if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/tests/${header}")
			fo_needs_engine(below "${CMAKE_CURRENT_SOURCE_DIR}/tests/${header}")
			if(below)
				set(${out} ON PARENT_SCOPE)
				return()
			endif()
		endif()
	endforeach()
endfunction()

# fo_test_files(OUT <file>...): those that this build can compile.
function(fo_test_files out)
	fo_source_flags(kept ${ARGN})
	if(NOT FLATOUT_ENGINE)
		set(all ${kept})
		set(kept "")
		foreach(file ${all})
			fo_needs_engine(engine "${file}")
			if(NOT engine)
				list(APPEND kept "${file}")
			endif()
		endforeach()
	endif()
	set(${out} "${kept}" PARENT_SCOPE)
endfunction()

set(FO_ENGINE_MODULES "")
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/src/FLOORS" lines REGEX "^[a-z]+[ \t]+[0-9]+[ \t]+do")
foreach(line ${lines})
	string(REGEX MATCH "^[a-z]+" module "${line}")
	list(APPEND FO_ENGINE_MODULES ${module})
endforeach()

# Waiting threads sleep: several tests share the cores, and a spinning barrier would starve the others.
# One cache for all: a peak is measured once, not at each start, which on a busy machine takes seconds; nobody's own is touched.
set(FO_TEST_ENV "FLATOUT_SOURCE=${CMAKE_CURRENT_SOURCE_DIR}" OMP_WAIT_POLICY=passive LC_ALL=C.UTF-8
	"FLATOUT_CACHE=${CMAKE_BINARY_DIR}/tests/cache"
	ASAN_OPTIONS=allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1)
# Against hangs, not for speed: a busy machine takes many times as long.
set(FO_TEST_TIMEOUT 300)
if(FLATOUT_SANITIZE)
	set(FO_TEST_TIMEOUT 600)
	# The software CUDA driver keeps what it gave out, to know it again when it is used too late.
	list(APPEND FO_TEST_ENV FLATOUT_SANITIZED=1
		"LSAN_OPTIONS=suppressions=${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/leaks.supp:print_suppressions=0")
elseif(FLATOUT_COVERAGE)
	set(FO_TEST_TIMEOUT 600) # unoptimised, and every line counts itself
elseif(CMAKE_CROSSCOMPILING)
	set(FO_TEST_TIMEOUT 480) # an emulated program takes five times as long, most of it to start
	list(APPEND FO_TEST_ENV BLIND_SEEDS=1) # as many traces as that test makes elsewhere would take minutes
endif()
if(FLATOUT_SANITIZE MATCHES "thread")
	# libgomp is not instrumented, so its barriers are invisible to ThreadSanitizer; our own threads are what it checks.
	list(APPEND FO_TEST_ENV OMP_NUM_THREADS=1)
endif()
set(FO_TEST_DIR "${CMAKE_BINARY_DIR}/tests")
file(MAKE_DIRECTORY "${FO_TEST_DIR}")

function(fo_test name label)
	add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY "${FO_TEST_DIR}")
	set_tests_properties(${name} PROPERTIES LABELS "${label}" SKIP_RETURN_CODE 77 TIMEOUT ${FO_TEST_TIMEOUT}
		ENVIRONMENT "${FO_TEST_ENV}")
endfunction()

# The software CUDA device: FO_SOFT_CUDA is the folder of its libraries, or empty.
include(FlatoutSoftCuda)
list(APPEND FO_TEST_ENV "FLATOUT_SOFT_CUDA=${FO_SOFT_CUDA}")

# Ranks that are processes: the plugin of this build.
if(TARGET flatout_mpi)
	list(APPEND FO_TEST_ENV "FLATOUT_MPI_PLUGIN=$<TARGET_FILE:flatout_mpi>")
endif()

file(GLOB_RECURSE support CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/tests/support/*.c")
fo_test_files(support ${support})
fo_library(fo_test_support ${support})
fo_link(fo_test_support flatout_top ${halves} fo::cmocka m)
fo_include(fo_test_support "${CMAKE_CURRENT_SOURCE_DIR}/tests")

# NVML without a driver: loaded at run time by the code under test. Not sanitized, as below.
if(NOT CMAKE_CROSSCOMPILING)
	foreach(name fo_fake_nvml fo_fake_nvml_old)
		add_library(${name} MODULE "${CMAKE_CURRENT_SOURCE_DIR}/tests/preload/nvml.c")
		set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${FO_TEST_DIR}")
		target_compile_options(${name} PRIVATE -fvisibility=default)
		if(FLATOUT_SANITIZE)
			target_compile_options(${name} PRIVATE -fno-sanitize=all)
			target_link_options(${name} PRIVATE -fno-sanitize=all)
		endif()
	endforeach()
	target_compile_definitions(fo_fake_nvml_old PRIVATE FAKE_NVML_OLD)
	list(APPEND FO_TEST_ENV "FLATOUT_FAKE_NVML=$<TARGET_FILE:fo_fake_nvml>" "FLATOUT_FAKE_NVML_OLD=$<TARGET_FILE:fo_fake_nvml_old>")
endif()

# NVIDIA's nvml.h, where a toolkit has it: structures are held to it. (hwloc has another file of that name, in a folder of its own.)
find_path(FO_NVML_INCLUDE nvml.h HINTS "${FO_CUDA_INCLUDE}" ENV CUDA_HOME PATH_SUFFIXES include)

# Every folder with C files is a group, but support/ (linked into each), preload/ (loaded into the program under test) and gpu/
# (programs for other machines).
file(GLOB groups CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}/tests" "${CMAKE_CURRENT_SOURCE_DIR}/tests/*")
list(REMOVE_ITEM groups support preload gpu cli install)
set(FLATOUT_TEST_GROUPS "" CACHE STRING "build only these folders of tests/ (unit;step;...); empty: all")
if(FLATOUT_TEST_GROUPS)
	set(groups ${FLATOUT_TEST_GROUPS})
endif()
# A driver without a device, for cuDNN to make plans by. In a folder of its own: no other test must find it.
if(FO_CUDA)
	add_library(fo_fake_driver SHARED "${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/fake_driver.c")
	set_target_properties(fo_fake_driver PROPERTIES PREFIX "" OUTPUT_NAME libcuda.so.1 SUFFIX ""
		LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/fake_driver")
	target_compile_options(fo_fake_driver PRIVATE -fvisibility=default -fno-sanitize=all)
	target_link_options(fo_fake_driver PRIVATE -fno-sanitize=all)
	list(APPEND FO_TEST_ENV "FLATOUT_FAKE_DRIVER=$<TARGET_FILE:fo_fake_driver>")
endif()
foreach(group ${groups})
	file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/tests/${group}/*.c")
	list(FILTER files INCLUDE REGEX "/test_[^/]*$") # tests/cuda has libraries, too
	if(NOT FO_SOFT_CUDA)
		list(FILTER files EXCLUDE REGEX "/test_cuda_simt\\.c$")
	endif()
	fo_test_files(files ${files})
	foreach(file ${files})
		get_filename_component(name "${file}" NAME_WE)
		add_executable(${name} "${file}")
		set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${FO_TEST_DIR}")
		target_link_libraries(${name} PRIVATE fo_test_support)
		# What a test itself computes is little, unless it has kernels in it; compiling it is what takes time. Multiply-adds are
		# made of a * b + c by -fexpensive-optimizations, part of -O2.
		if(group MATCHES "^num")
			target_compile_options(${name} PRIVATE "$<$<AND:$<CONFIG:Release>,$<C_COMPILER_ID:GNU>>:-O1;-fexpensive-optimizations>")
		else()
			target_compile_options(${name} PRIVATE -O0)
		endif()
		fo_test(${name} "${group}" ${name})
		if(name STREQUAL "test_nvml_layout" AND FO_NVML_INCLUDE)
			target_compile_definitions(${name} PRIVATE FO_NVML_HEADER=1)
			target_include_directories(${name} SYSTEM PRIVATE "${FO_NVML_INCLUDE}")
		endif()
		if(group STREQUAL "cuda" AND FO_CUDA)
			target_compile_definitions(${name} PRIVATE FO_CUDA_HEADERS=1)
			add_dependencies(${name} fo_fake_driver)
			target_include_directories(${name} SYSTEM PRIVATE "${FO_CUDA_INCLUDE}" "${FO_CUDNN_INCLUDE}")
		endif()
		if(name STREQUAL "test_cuda_simt")
			target_sources(${name} PRIVATE "${FO_SIMT_CASES}")
			target_link_libraries(${name} PRIVATE fo_simt)
		endif()
		if(group STREQUAL "cuda" AND FO_SOFT_CUDA)
			set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "FLATOUT_CUDA_LIBRARIES=${FO_SOFT_CUDA}")
			if(FLATOUT_SANITIZE)
				# The software driver catches faults itself.
				set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
					"ASAN_OPTIONS=allocator_may_return_null=1:handle_segv=0:handle_sigbus=0:handle_sigfpe=0")
			endif()
			add_dependencies(${name} ${FO_SOFT_TARGETS})
		endif()
	endforeach()
endforeach()

# The same ranks over MPICH, where it is installed beside the MPI of this build.
if(TARGET test_comm_mpi AND TARGET flatout_mpi)
	fo_mpi_flags(FO_MPICH mpicc.mpich)
	if(FO_MPICH_LIBRARIES AND NOT FO_MPICH_LIBRARIES STREQUAL FO_MPI_LIBRARIES)
		fo_mpi_plugin(fo_mpich_plugin "${FO_MPICH_INCLUDE}" "${FO_MPICH_LIBRARIES}")
		set_target_properties(fo_mpich_plugin PROPERTIES PREFIX "" OUTPUT_NAME libflatout-mpich LIBRARY_OUTPUT_DIRECTORY "${FO_TEST_DIR}")
		fo_test(test_comm_mpich unit test_comm_mpi)
		set_property(TEST test_comm_mpich APPEND PROPERTY ENVIRONMENT "FLATOUT_MPI_PLUGIN=$<TARGET_FILE:fo_mpich_plugin>")
		add_dependencies(test_comm_mpi fo_mpich_plugin)
	endif()
	add_dependencies(test_comm_mpi flatout_mpi)
	# A sample of the cases of ranks that are threads, as processes.
	if(TARGET test_data_parallel)
		fo_test(test_data_parallel_mpi step test_data_parallel)
		set_property(TEST test_data_parallel_mpi APPEND PROPERTY ENVIRONMENT FLATOUT_OVER=mpi)
		add_dependencies(test_data_parallel flatout_mpi)
	endif()
endif()

# Not sanitized: it must neither need nor disturb the runtime of the program it is loaded into.
if(FLATOUT_ENGINE)
	add_library(fo_fault MODULE "${CMAKE_CURRENT_SOURCE_DIR}/tests/preload/fault.c")
	set_target_properties(fo_fault PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${FO_TEST_DIR}")
	target_compile_options(fo_fault PRIVATE -fvisibility=default) # its names take those of the C library
	if(FLATOUT_SANITIZE)
		target_compile_options(fo_fault PRIVATE -fno-sanitize=all)
		target_link_options(fo_fault PRIVATE -fno-sanitize=all)
	endif()
	list(APPEND FO_TEST_ENV "FLATOUT_FAULT=$<TARGET_FILE:fo_fault>")
endif()

# Tests run these on the software device, and bundle them.
if(FO_SOFT_CUDA AND TARGET bench_gpu)
	set_target_properties(bench_gpu bench_train_vs_torch PROPERTIES EXCLUDE_FROM_ALL OFF)
endif()

if(TARGET flatout)
	if(CMAKE_CROSSCOMPILING AND CMAKE_CROSSCOMPILING_EMULATOR)
		# The scripts start one program; CTest itself puts the emulator in front of the compiled tests.
		list(JOIN CMAKE_CROSSCOMPILING_EMULATOR "' '" emulator)
		file(GENERATE OUTPUT "${FO_TEST_DIR}/flatout" CONTENT "#!/bin/sh\nexec '${emulator}' '$<TARGET_FILE:flatout>' \"$@\"\n"
			FILE_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
		list(APPEND FO_TEST_ENV "FLATOUT_BIN=${FO_TEST_DIR}/flatout")
	else()
		list(APPEND FO_TEST_ENV "FLATOUT_BIN=$<TARGET_FILE:flatout>")
	endif()
	if(FLATOUT_ENGINE)
		list(APPEND FO_TEST_ENV FLATOUT_HAS_ENGINE=1)
	endif()
	file(GLOB files CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/tests/cli/*.sh")
	list(FILTER files EXCLUDE REGEX "/lib[^/]*\\.sh$")
	foreach(file ${files})
		get_filename_component(name "${file}" NAME_WE)
		fo_test(cli_${name} cli sh "${file}")
	endforeach()
endif()

# What is installed, of a build that could be shipped.
if(TARGET flatout_static AND NOT CMAKE_CROSSCOMPILING)
	list(APPEND FO_TEST_ENV "FLATOUT_BUILD=${CMAKE_BINARY_DIR}" "FLATOUT_STAGE=${FO_TEST_DIR}/stage")
	set(names tree api package make)
	if(TARGET flatout_onefile)
		list(APPEND names static)
	endif()
	if(FO_SOFT_CUDA AND TARGET bench_gpu)
		list(APPEND names bundle)
	endif()
	foreach(name ${names})
		fo_test(install_${name} install sh "${CMAKE_CURRENT_SOURCE_DIR}/tests/install/${name}.sh")
	endforeach()
	if(TEST install_bundle)
		# It and cli_gpu start some thousand short programs.
		set_tests_properties(install_bundle cli_gpu PROPERTIES TIMEOUT 900)
	endif()
	# Each installs from this build, where CMake notes its last installation.
	set_tests_properties(install_tree install_package install_make PROPERTIES RESOURCE_LOCK installing)
	set_tests_properties(install_tree PROPERTIES FIXTURES_SETUP staged)
	set_tests_properties(install_api PROPERTIES FIXTURES_REQUIRED staged)
endif()

# The static file of another architecture, without that one's libraries: the emulator gets no folder to look for them in.
if(TARGET flatout_onefile AND CMAKE_CROSSCOMPILING_EMULATOR)
	list(GET CMAKE_CROSSCOMPILING_EMULATOR 0 emulator)
	fo_test(static_emulated install "${emulator}" $<TARGET_FILE:flatout_onefile> diagnose "${CMAKE_CURRENT_SOURCE_DIR}/examples/trace/slow-loader.json.gz")
	set_tests_properties(static_emulated PROPERTIES PASS_REGULAR_EXPRESSION "Bottleneck:  the GPU waits for data")
endif()

if(FO_CUDA)
	fo_test(cuda_resources cuda sh "${CMAKE_CURRENT_SOURCE_DIR}/tests/cuda/resources.sh" "${CMAKE_BINARY_DIR}/cuda")
endif()
fo_test(tree_scripts tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-scripts")
fo_test(tree_floors tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-floors")
fo_test(tree_floors_refuses tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/test-check-floors")
fo_test(tree_ops tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-ops")
fo_test(tree_ops_refuses tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/test-check-ops")
fo_test(tree_sizes tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-sizes")
fo_test(tree_form tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-form")
fo_test(tree_circles tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/check-circles" "${CMAKE_BINARY_DIR}")
fo_test(tree_checks_refuse tree sh "${CMAKE_CURRENT_SOURCE_DIR}/tools/test-checks")

# The longest first (about their seconds; a tree that has been tested knows better): at the end nothing long runs alone.
foreach(cost cli_demo=30 test_sets=15 install_package=15 install_make=10 install_static=13 install_bundle=90 cli_gpu=40 cli_hostile=15 cli_bench_gpu=70 cli_cuda=12 test_train=12 cli_disk=12 test_guard=10 test_cuda_kernels=10
	cli_launch_faults=15 cli_launch_kills=20 cli_straggler=15 cli_resume=10 cli_host_memory=10 test_passes=10 cli_data=9 cli_ladder=8 cli_calibrate=8 cli_html=8 test_wide_avx2=7 test_cuda_step=7 test_fuzz_replay=7 test_generate=6
	test_attention=5)
	string(REPLACE "=" ";" cost ${cost})
	list(GET cost 0 name)
	list(GET cost 1 seconds)
	if(TEST ${name})
		set_tests_properties(${name} PROPERTIES COST ${seconds})
	endif()
endforeach()

# MPI keeps memory to its end, which is no leak of ours: of processes that it starts none is looked for.
foreach(name test_comm_mpi test_comm_mpich test_data_parallel_mpi cli_processes cli_launch cli_launch_faults cli_launch_kills
	cli_straggler)
	if(FLATOUT_SANITIZE AND TEST ${name})
		set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=0")
	endif()
endforeach()
