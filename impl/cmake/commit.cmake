# cmake -D GIT=.. -D SOURCE=.. -D OUT=.. -P commit.cmake: the commit of the sources as a C++ constant; 12 digits, with
# "-dirty" when tracked files differ from it, empty where the sources are no git checkout of their own.
set(commit)
if(GIT AND EXISTS ${SOURCE}/.git)
  execute_process(COMMAND ${GIT} --no-optional-locks -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(commit)
  endif()
endif()
file(CONFIGURE OUTPUT ${OUT} CONTENT "constexpr std::string_view kCommit = \"${commit}\";\n")
