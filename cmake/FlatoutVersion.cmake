# fo_version.h. Its commit is looked up at each build, not at configuration, and the file changes only when its content
# does, so that a commit recompiles the few files that include it.
find_package(Git QUIET)
set(dir "${CMAKE_BINARY_DIR}/generated")
add_custom_target(fo_version_header
	COMMAND ${CMAKE_COMMAND}
		"-DOUT=${dir}/fo_version.h" "-DSOURCE=${CMAKE_CURRENT_SOURCE_DIR}" "-DGIT=${GIT_EXECUTABLE}"
		"-DVERSION=${FLATOUT_VERSION}" "-DCOMPILER=${CMAKE_C_COMPILER_ID} ${CMAKE_C_COMPILER_VERSION}"
		"-DARCH=${CMAKE_SYSTEM_PROCESSOR}" "-DBUILD=${CMAKE_BUILD_TYPE}" "-DSANITIZE=${FLATOUT_SANITIZE}"
		"-DLIBRARIES=${FO_LIBRARIES}" -P "${CMAKE_CURRENT_LIST_DIR}/WriteVersion.cmake"
	BYPRODUCTS "${dir}/fo_version.h"
	COMMENT "" VERBATIM)
add_library(fo_version INTERFACE)
target_include_directories(fo_version INTERFACE "${dir}")
add_dependencies(fo_version fo_version_header)
