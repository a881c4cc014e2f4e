# The MPI plugin: libflatout-mpi.so, which alone is linked to MPI. The program loads it at run time and needs none to build or run.
#
#   FLATOUT_MPI            AUTO (build it where an MPI is found), ON (an error where not), OFF
#   FLATOUT_MPI_COMPILER   the compiler command of the MPI to take; empty: mpicc, or what pkg-config knows
set(FLATOUT_MPI AUTO CACHE STRING "the MPI plugin: AUTO, ON or OFF")
set(FLATOUT_MPI_COMPILER "" CACHE STRING "an MPI's compiler command, as mpicc.mpich; empty: mpicc")
if(FLATOUT_MPI STREQUAL "OFF" OR NOT FLATOUT_ENGINE OR CMAKE_CROSSCOMPILING)
	message(STATUS "MPI plugin: OFF")
	return()
endif()

# fo_mpi_flags(<out> <command>): what this compiler command adds: <out>_FLAGS for compiling, <out>_LIBRARIES for linking. Asked of the
# command itself, so that the project's own compiler and warnings stay; CMake's FindMPI takes one MPI per build, and tests take two.
function(fo_mpi_flags out command)
	set(${out}_INCLUDE "" PARENT_SCOPE)
	set(${out}_LIBRARIES "" PARENT_SCOPE)
	foreach(way "--showme:compile;--showme:link" "-compile_info;-link_info")
		list(GET way 0 compile)
		list(GET way 1 link)
		execute_process(COMMAND ${command} ${compile} OUTPUT_VARIABLE flags RESULT_VARIABLE failed ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
		execute_process(COMMAND ${command} ${link} OUTPUT_VARIABLE libraries RESULT_VARIABLE failed2 ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
		if(failed OR failed2)
			continue()
		endif()
		separate_arguments(flags UNIX_COMMAND "${flags}")
		separate_arguments(libraries UNIX_COMMAND "${libraries}")
		# Of flags only where headers and libraries are: an MPI's own choice of optimisation is not ours.
		list(FILTER flags INCLUDE REGEX "^-I")
		list(TRANSFORM flags REPLACE "^-I" "")
		list(FILTER libraries INCLUDE REGEX "^-[lL]|^-Wl,-rpath|^/")
		set(${out}_INCLUDE "${flags}" PARENT_SCOPE)
		set(${out}_LIBRARIES "${libraries}" PARENT_SCOPE)
		return()
	endforeach()
endfunction()

# fo_mpi_plugin(<target> <include folders> <libraries>)
function(fo_mpi_plugin name include libraries)
	add_library(${name} MODULE "${CMAKE_CURRENT_SOURCE_DIR}/src/comm/mpi_plugin/plugin.c")
	target_include_directories(${name} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/src")
	target_include_directories(${name} SYSTEM PRIVATE ${include})
	target_link_libraries(${name} PRIVATE ${libraries} Threads::Threads ${CMAKE_DL_LIBS})
	if(FLATOUT_SANITIZE) # MPI is not sanitized, and what it keeps is not ours
		target_compile_options(${name} PRIVATE -fno-sanitize=all)
		target_link_options(${name} PRIVATE -fno-sanitize=all)
	endif()
endfunction()

set(command "${FLATOUT_MPI_COMPILER}")
if(NOT command)
	set(command mpicc)
endif()
fo_mpi_flags(FO_MPI "${command}")
if(FO_MPI_LIBRARIES)
	fo_mpi_plugin(flatout_mpi "${FO_MPI_INCLUDE}" "${FO_MPI_LIBRARIES}")
	set_target_properties(flatout_mpi PROPERTIES PREFIX "" OUTPUT_NAME libflatout-mpi LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
	install(TARGETS flatout_mpi LIBRARY DESTINATION lib/flatout)
	message(STATUS "MPI plugin: ON (${command})")
elseif(FLATOUT_MPI STREQUAL "ON")
	message(FATAL_ERROR "FLATOUT_MPI=ON: '${command}' is not an MPI's compiler command. On Debian or Ubuntu, as root:\n"
		"  apt-get install openmpi-bin libopenmpi-dev\nElsewhere: docs/install.md")
else()
	message(STATUS "MPI plugin: OFF (no ${command})")
endif()
