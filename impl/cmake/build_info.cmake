# What moe_build_info_json tells of the build: generated/moe_build_flags.inc, the compiler flags that all objects have,
# without warnings and paths, and generated/moe_commit.inc, the commit of the sources. Nothing else of the machine or
# the day gets in: the same sources and flags give the same library.

# --- flags --------------------------------------------------------------------------------------
block()
string(TOUPPER "${CMAKE_BUILD_TYPE}" type)
separate_arguments(flags NATIVE_COMMAND "${CMAKE_CXX_FLAGS} ${CMAKE_CXX_FLAGS_${type}}")
get_directory_property(of_directory COMPILE_OPTIONS)
get_target_property(of_every_target libmoe_flags INTERFACE_COMPILE_OPTIONS)
string(REGEX REPLACE "SHELL:([^;]*)" "\\1" of_every_target "${of_every_target}")
string(REPLACE " " ";" of_every_target "${of_every_target}")
list(APPEND flags ${of_directory} ${of_every_target})
list(FILTER flags INCLUDE REGEX "^-[DOUfgm]")
list(FILTER flags EXCLUDE REGEX "[/\"\\$]")
list(JOIN flags " " flags)
file(CONFIGURE OUTPUT generated/moe_build_flags.inc CONTENT "constexpr std::string_view kBuildFlags = \"${flags}\";\n")
endblock()

# --- commit: asked for at every build, written when it is another ------------------------------------
find_package(Git QUIET)
set(commit_file ${CMAKE_CURRENT_BINARY_DIR}/generated/moe_commit.inc)
add_custom_target(libmoe_commit
  COMMAND ${CMAKE_COMMAND} -D GIT=${GIT_EXECUTABLE} -D SOURCE=${CMAKE_CURRENT_SOURCE_DIR} -D OUT=${commit_file}
          -P ${CMAKE_CURRENT_LIST_DIR}/commit.cmake
  BYPRODUCTS ${commit_file} COMMENT "" VERBATIM)
add_dependencies(libmoe_api libmoe_commit)
