# The command line, `moe`: a program beside the library that calls it as every other program does. Its objects are no part
# of the library.
find_path(MOE_CLI11_INCLUDE CLI/App.hpp)
if(NOT MOE_CLI11_INCLUDE)
  message(FATAL_ERROR "CLI11 not found: install libcli11-dev, or configure with -DMOE_TOOL=OFF")
endif()
find_package(Threads REQUIRED)
file(GLOB sources CONFIGURE_DEPENDS impl/tool/*.cpp)
add_executable(libmoe_tool ${sources})
set_target_properties(libmoe_tool PROPERTIES OUTPUT_NAME moe)
target_include_directories(libmoe_tool SYSTEM PRIVATE ${MOE_CLI11_INCLUDE})
target_compile_definitions(libmoe_tool PRIVATE FMT_HEADER_ONLY)
target_link_libraries(libmoe_tool PRIVATE libmoe_flags libmoe_program_link libmoe_shared Threads::Threads ${CMAKE_DL_LIBS})
target_compile_options(libmoe_tool PRIVATE $<$<CONFIG:Debug>:-O0>)
# Each of its files includes these, which take longer to read than the rest.
if(MOE_PRECOMPILE OR MOE_TEST_PRECOMPILE)
  target_precompile_headers(libmoe_tool PRIVATE <CLI/App.hpp> <fmt/format.h> <nlohmann/json.hpp>)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang) # else ccache finds nothing again
    target_compile_options(libmoe_tool PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
endif()
# A template of theirs is made once in a batch of files, which halves the time; not in builds of packages.
set_target_properties(libmoe_tool PROPERTIES UNITY_BUILD ${MOE_TEST_BATCHES} UNITY_BUILD_BATCH_SIZE 8)
# The probe is held against kernels that are compiled like this.
set_source_files_properties(impl/tool/probe.cpp PROPERTIES COMPILE_OPTIONS -O3 SKIP_PRECOMPILE_HEADERS ON)
# The second has a table whose type is the file's own, at which GCC warns where a file is included; the third has the one
# call that is not weak.
set_source_files_properties(impl/tool/probe.cpp impl/tool/shapes.cpp impl/tool/needs_library.cpp
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
target_link_options(libmoe_tool PRIVATE LINKER:-z,now LINKER:--enable-new-dtags)
# In the build folder the library lies beside it. (Relative: the bytes are the same in every folder.)
set_target_properties(libmoe_tool PROPERTIES BUILD_RPATH_USE_ORIGIN ON)
