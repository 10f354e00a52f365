# At installation, on request (cmake --install BUILD --component Debug): what was stripped, where debuggers look for it by
# the build id of the library. Below a prefix that is not /usr, tell gdb: set debug-file-directory PREFIX/lib/debug.
execute_process(COMMAND ${moe_readelf} -n ${moe_library} OUTPUT_VARIABLE notes COMMAND_ERROR_IS_FATAL ANY)
if(NOT notes MATCHES "Build ID: ([0-9a-f][0-9a-f])([0-9a-f]+)")
  message(FATAL_ERROR "${moe_library} has no build id")
endif()
set(folder $ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/lib/debug/.build-id/${CMAKE_MATCH_1})
file(MAKE_DIRECTORY ${folder})
message(STATUS "Installing: ${folder}/${CMAKE_MATCH_2}.debug")
execute_process(COMMAND ${moe_objcopy} --only-keep-debug ${moe_library} ${folder}/${CMAKE_MATCH_2}.debug
                COMMAND_ERROR_IS_FATAL ANY)
