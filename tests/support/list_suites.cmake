# Asks a GoogleTest program for its tests and writes one add_test per suite (a case each would start the
# program thousands of times, one entry per program would hide where the time goes).
#   cmake -D PROGRAM= -D EMULATOR= -D NAME= -D LABELS= -D OUT= -P list_suites.cmake
execute_process(COMMAND ${EMULATOR} ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE text RESULT_VARIABLE status ERROR_VARIABLE errors)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} --gtest_list_tests: ${status}\n${errors}")
endif()
string(REPLACE ";" "," text "${text}")
string(REPLACE "\n" ";" lines "${text}")
set(out "")
foreach(line IN LISTS lines)
  if(line MATCHES "^([A-Za-z0-9_/]+)\\.( .*)?$") # suites stand at the margin, their tests are indented
    set(suite ${CMAKE_MATCH_1})
    string(APPEND out "add_test([=[${NAME}.${suite}]=] ${EMULATOR} [=[${PROGRAM}]=] [=[--gtest_filter=${suite}.*]=])\n"
                      "set_tests_properties([=[${NAME}.${suite}]=] PROPERTIES LABELS [=[${LABELS}]=] TIMEOUT 900)\n")
  endif()
endforeach()
if(out STREQUAL "")
  message(FATAL_ERROR "${PROGRAM} has no test")
endif()
file(WRITE ${OUT} "${out}")
