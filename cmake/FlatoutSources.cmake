# Which files a module has, and which flags a file gets.

# Instruction sets by file name. Every other file is built for the baseline of the architecture and the code chooses at
# run time; nothing that a *_avx2.c file exports may be called before its CPU check.
set(FO_FLAGS_avx2 -mavx2 -mfma -mf16c)
set(FO_FLAGS_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mfma -mf16c)
set(FO_FLAGS_avx512bf16 ${FO_FLAGS_avx512} -mavx512bf16)
set(FO_FLAGS_amx ${FO_FLAGS_avx512bf16} -mamx-tile -mamx-bf16)

# fo_source_flags(OUT <file>...): sets the flags of each file; OUT receives those that this architecture can compile.
function(fo_source_flags out)
	set(kept "")
	foreach(file ${ARGN})
		set(flags "")
		if(file MATCHES "_(avx2|avx512|avx512bf16|amx)\\.c$")
			set(flags ${FO_FLAGS_${CMAKE_MATCH_1}})
			if(NOT FO_X86)
				continue()
			endif()
		elseif(file MATCHES "/kernel/x86/" AND NOT FO_X86)
			continue()
		endif()
		if(file MATCHES "/src/kernel/|/src/comm/sum\\.c$")
			list(PREPEND flags "$<$<CONFIG:Release>:-O3>")
		endif()
		if(flags)
			set_property(SOURCE "${file}" APPEND PROPERTY COMPILE_OPTIONS ${flags})
		endif()
		list(APPEND kept "${file}")
	endforeach()
	set(${out} "${kept}" PARENT_SCOPE)
endfunction()

# fo_modules(<half>... OUT <var>): the sources of all modules of these halves, from src/FLOORS.
function(fo_modules)
	cmake_parse_arguments(arg "" "OUT" "" ${ARGN})
	set(root "${CMAKE_CURRENT_SOURCE_DIR}/src")
	set(found "")
	file(STRINGS "${root}/FLOORS" lines REGEX "^[a-z]")
	foreach(line ${lines})
		string(REGEX MATCH "^([a-z]+)[ \t]+[0-9]+[ \t]+([a-z]+)" matched "${line}")
		set(module "${CMAKE_MATCH_1}")
		if(NOT CMAKE_MATCH_2 IN_LIST arg_UNPARSED_ARGUMENTS)
			continue()
		endif()
		file(GLOB_RECURSE files CONFIGURE_DEPENDS "${root}/${module}/*.c")
		list(FILTER files EXCLUDE REGEX "/src/[a-z]+/onefile/") # cmake/FlatoutStatic.cmake
		list(FILTER files EXCLUDE REGEX "/src/comm/mpi_plugin/") # cmake/FlatoutMpi.cmake
		if(NOT FLATOUT_ENGINE)
			list(FILTER files EXCLUDE REGEX "/src/[a-z]+/engine/")
		endif()
		# Without the toolkit one file stands for the CUDA backend.
		if(FO_CUDA)
			list(FILTER files EXCLUDE REGEX "/src/kernel/cuda/none\\.c$")
		else()
			list(FILTER files EXCLUDE REGEX "/src/kernel/cuda/([^n]|n[^o])[^/]*\\.c$")
		endif()
		list(APPEND found ${files})
	endforeach()
	fo_source_flags(found ${found})
	set(${arg_OUT} "${found}" PARENT_SCOPE)
endfunction()

# A static library, or an empty target while a part of the tree has no sources.
function(fo_library name)
	if(ARGN)
		add_library(${name} STATIC ${ARGN})
	else()
		add_library(${name} INTERFACE)
	endif()
	fo_include(${name} "${CMAKE_CURRENT_SOURCE_DIR}/src")
	fo_link(${name} fo_version)
endfunction()

# What a library of either kind shows to itself (if it has sources) and to its users.
function(fo_scope name out)
	get_target_property(type ${name} TYPE)
	if(type STREQUAL "INTERFACE_LIBRARY")
		set(${out} INTERFACE PARENT_SCOPE)
	else()
		set(${out} PUBLIC PARENT_SCOPE)
	endif()
endfunction()

function(fo_include name)
	fo_scope(${name} scope)
	target_include_directories(${name} ${scope} ${ARGN})
endfunction()

function(fo_link name)
	fo_scope(${name} scope)
	target_link_libraries(${name} ${scope} ${ARGN})
endfunction()

# fo_embed(<file> <name>): a file's bytes as a list of C numbers, <build>/generated/<name>, for tables that are part of the program.
function(fo_embed file name)
	set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
	file(READ "${CMAKE_CURRENT_SOURCE_DIR}/${file}" bytes HEX)
	# A char may be signed: the table is ASCII, which its test checks.
	string(REGEX REPLACE "(................................)" "\\1\n" bytes "${bytes}")
	string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
	string(REGEX REPLACE ",\n*$" "" bytes "${bytes}")
	file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/generated/${name}" CONTENT "${bytes}\n" @ONLY)
endfunction()
