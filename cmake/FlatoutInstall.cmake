# What `cmake --install` puts where. Manual pages and completions are printed by the program that was just built, so a
# cross build has them only if it can run that program (CMAKE_CROSSCOMPILING_EMULATOR).

install(TARGETS flatout)
set(docs ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE NOTICE README.md CHANGELOG.md DESTINATION ${docs})
install(DIRECTORY docs/ DESTINATION ${docs}/docs FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "*.png")
install(DIRECTORY examples/ DESTINATION ${docs}/examples)
# To read and to copy rows from: the program has its tables built in.
install(FILES data/devices.csv data/README.md DESTINATION ${docs}/data)

if(CMAKE_CROSSCOMPILING AND NOT CMAKE_CROSSCOMPILING_EMULATOR)
	message(STATUS "the program cannot run here: no manual pages, no shell completion")
	return()
endif()
find_program(FO_GZIP gzip)
set(pages "${CMAKE_BINARY_DIR}/pages")
add_custom_command(OUTPUT "${pages}/stamp"
	COMMAND ${CMAKE_COMMAND} "-DOUT=${pages}" "-DGZIP=${FO_GZIP}"
		"-DPROGRAM=${CMAKE_CROSSCOMPILING_EMULATOR};$<TARGET_FILE:flatout>"
		-P "${CMAKE_CURRENT_LIST_DIR}/WritePages.cmake"
	DEPENDS flatout "${CMAKE_CURRENT_LIST_DIR}/WritePages.cmake"
	COMMENT "Manual pages and completions" VERBATIM)
add_custom_target(pages ALL DEPENDS "${pages}/stamp")
install(DIRECTORY "${pages}/man1" DESTINATION ${CMAKE_INSTALL_MANDIR})
install(FILES "${pages}/flatout.bash" DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME flatout)
install(FILES "${pages}/_flatout" DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
install(FILES "${pages}/flatout.fish" DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
