# libflatout: include/flatout.h over the part of the knowing half that it needs, as a shared and as a static library.

set(FO_ABI 0) # libflatout.so.N: goes up when a function of the header changes or goes away
file(GLOB api_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/api/*.c")

add_library(flatout_shared SHARED ${api_sources})
target_include_directories(flatout_shared PRIVATE src include)
target_link_libraries(flatout_shared PRIVATE flatout_know fo_version)
set_target_properties(flatout_shared PROPERTIES OUTPUT_NAME flatout VERSION ${FO_ABI}.${FLATOUT_VERSION} SOVERSION ${FO_ABI}
	PUBLIC_HEADER "${CMAKE_CURRENT_SOURCE_DIR}/include/flatout.h")
# Libraries of the knowing half that this part does not use stay out of it.
target_link_options(flatout_shared PRIVATE LINKER:--as-needed)
if(NOT FLATOUT_SANITIZE)
	target_link_options(flatout_shared PRIVATE LINKER:--no-undefined)
endif()

# One object with every hidden symbol made local: whoever links it statically meets no names but the header's.
if(CMAKE_OBJCOPY AND CMAKE_LINKER AND NOT FLATOUT_SANITIZE AND NOT FLATOUT_COVERAGE)
	add_library(flatout_api_objects OBJECT ${api_sources})
	target_include_directories(flatout_api_objects PRIVATE src include)
	target_link_libraries(flatout_api_objects PRIVATE fo_version)
	set_target_properties(flatout_api_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
	add_custom_command(OUTPUT libflatout.a
		COMMAND ${CMAKE_LINKER} -r -o flatout-all.o $<TARGET_OBJECTS:flatout_api_objects> $<TARGET_FILE:flatout_know>
		COMMAND ${CMAKE_OBJCOPY} --localize-hidden flatout-all.o flatout-api.o
		COMMAND ${CMAKE_COMMAND} -E rm -f libflatout.a
		COMMAND ${CMAKE_AR} qcD libflatout.a flatout-api.o
		COMMAND ${CMAKE_RANLIB} -D libflatout.a
		DEPENDS flatout_api_objects flatout_know COMMAND_EXPAND_LISTS VERBATIM)
	add_custom_target(flatout_static ALL DEPENDS libflatout.a)
	install(FILES "${CMAKE_BINARY_DIR}/libflatout.a" DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()

install(TARGETS flatout_shared
	LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} PUBLIC_HEADER DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# The .pc file finds its prefix from its own place, so that the tree can be moved.
cmake_path(IS_ABSOLUTE CMAKE_INSTALL_LIBDIR absolute)
if(absolute)
	set(FO_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
	set(FO_PC_LIBDIR "${CMAKE_INSTALL_LIBDIR}")
else()
	file(RELATIVE_PATH up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
	string(REGEX REPLACE "/$" "" up "${up}")
	set(FO_PC_PREFIX "\${pcfiledir}/${up}")
	set(FO_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
endif()
configure_file(cmake/flatout.pc.in flatout.pc @ONLY)
install(FILES "${CMAKE_BINARY_DIR}/flatout.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
