# flatout-static: everything that only knows as one file without shared libraries, which runs on any Linux of its architecture: what is
# copied to a cluster's login node. `make static` builds it alone; a build with tests has it, too.
#
#   FLATOUT_STATIC   AUTO (where all archives are found), ON (an error where not), OFF
set(FLATOUT_STATIC AUTO CACHE STRING "the one static file: AUTO, ON or OFF")
if(FLATOUT_STATIC STREQUAL "OFF" OR FLATOUT_SANITIZE OR FLATOUT_COVERAGE)
	return()
endif()

# Archives by file name: what pkg-config found are shared libraries.
set(archives "")
set(missing "")
foreach(row jansson=JANSSON yaml=LIBYAML xxhash=XXHASH z=ZLIB zstd=ZSTD sqlite3=SQLITE c=)
	string(REGEX MATCH "^([a-z0-9]+)=(.*)$" row "${row}")
	set(name "${CMAKE_MATCH_1}")
	find_library(FO_ARCHIVE_${name} NAMES lib${name}.a HINTS ${${CMAKE_MATCH_2}_LIBDIR})
	mark_as_advanced(FO_ARCHIVE_${name})
	if(NOT FO_ARCHIVE_${name})
		list(APPEND missing lib${name}.a)
	elseif(NOT name STREQUAL "c") # the compiler adds it
		list(APPEND archives "${FO_ARCHIVE_${name}}")
	endif()
endforeach()
if(missing)
	list(JOIN missing ", " missing)
	if(FLATOUT_STATIC STREQUAL "ON")
		message(FATAL_ERROR "the static file needs archives that are missing here: ${missing}\n"
			"Debian's and Ubuntu's -dev packages bring them; other systems: docs/install.md")
	endif()
	message(STATUS "static file: not built, no ${missing}")
	return()
endif()

# Where the engine is built, the commands differ: they are compiled again, without it. All else comes from the same archives.
set(sources "${CMAKE_CURRENT_SOURCE_DIR}/src/cli/main.c")
if(FLATOUT_ENGINE)
	file(GLOB sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/cli/*.c")
endif()
add_executable(flatout_onefile ${sources} src/base/onefile/dl.c)
if(NOT FLATOUT_TESTS)
	set_target_properties(flatout_onefile PROPERTIES EXCLUDE_FROM_ALL ON)
endif()
set_target_properties(flatout_onefile PROPERTIES OUTPUT_NAME flatout-static)
target_compile_definitions(flatout_onefile PRIVATE FO_NO_ENGINE=1)
target_include_directories(flatout_onefile PRIVATE src)
target_link_options(flatout_onefile PRIVATE -static -s
	LINKER:--wrap=dlopen,--wrap=dlsym,--wrap=dlclose,--wrap=dlerror) # src/base/onefile/dl.c
# By file: linked as targets they would bring the shared libraries.
target_link_libraries(flatout_onefile PRIVATE fo_version $<TARGET_FILE:flatout_top> $<TARGET_FILE:flatout_know> ${archives} m)
add_dependencies(flatout_onefile flatout_top flatout_know)
