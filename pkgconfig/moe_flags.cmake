# Compiler and linker flags: target moe_flags for every object of libmoe and its tests, moe_link for
# the shared library itself.
#
# No -m flag and no -march anywhere: ISA code lives in target regions of the kernel files. No -ffast-math
# and no contraction: fused multiply-adds are written out where the definition has them.
include(CheckCXXCompilerFlag)
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)

add_library(moe_flags INTERFACE)
add_library(moe_link INTERFACE)
target_include_directories(moe_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include_c ${CMAKE_CURRENT_SOURCE_DIR}/impl)
target_compile_options(moe_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wdouble-promotion
  $<$<COMPILE_LANGUAGE:CXX>:-Wmissing-declarations>
  -ffp-contract=off -fno-math-errno -ffunction-sections -fdata-sections
  -ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_CURRENT_BINARY_DIR}=build)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU) # unique symbols would keep a library from being unloaded
  target_compile_options(moe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(moe_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
  # false alarms of GCC 12: "text" + std::string (bug 105651), std::optional and std::variant at -Os (bug 80635)
endif()
if(MOE_WERROR)
  target_compile_options(moe_flags INTERFACE -Werror)
endif()

# Packages used header-only, each in one file of impl/ (their Debian packages are shared libraries).
find_path(MOE_NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(MOE_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_path(MOE_FMT_INCLUDE fmt/format.h REQUIRED)
find_path(MOE_XXHASH_INCLUDE xxhash.h REQUIRED)
target_include_directories(moe_flags SYSTEM INTERFACE ${MOE_NLOHMANN_INCLUDE} ${MOE_SPDLOG_INCLUDE} ${MOE_FMT_INCLUDE}
                                                      ${MOE_XXHASH_INCLUDE})

# --- sanitizers and hardening -------------------------------------------------------------------
target_compile_definitions(moe_flags INTERFACE $<$<CONFIG:Debug>:_GLIBCXX_ASSERTIONS>)
if(MOE_SANITIZE)
  target_compile_definitions(moe_flags INTERFACE $<$<NOT:$<CONFIG:Debug>>:_GLIBCXX_ASSERTIONS>)
  set(sanitize -fsanitize=${MOE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(MOE_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fsanitize=float-cast-overflow)
  endif()
  if(MOE_BUILD_FUZZ)
    list(APPEND sanitize -fsanitize=fuzzer-no-link)
  endif()
  target_compile_options(moe_flags INTERFACE ${sanitize})
  target_link_options(moe_flags INTERFACE ${sanitize})
  target_link_options(moe_link INTERFACE ${sanitize})
else()
  # what the compiler of this architecture knows; fortify needs an optimising build
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "MOE_HAS${flag}" has)
    check_cxx_compiler_flag("-Werror ${flag}" ${has})
    if(${has})
      target_compile_options(moe_flags INTERFACE ${flag})
    endif()
  endforeach()
  target_compile_options(moe_flags INTERFACE
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()

# --- the shared library -------------------------------------------------------------------------
target_link_options(moe_link INTERFACE LINKER:-z,relro LINKER:-z,now LINKER:-z,noexecstack LINKER:--as-needed
                                       LINKER:--gc-sections LINKER:--build-id=sha1)
if(NOT MOE_SANITIZE) # Clang's sanitizer run time lives in the program, so it is undefined here
  target_link_options(moe_link INTERFACE LINKER:--no-undefined)
endif()
check_linker_flag(CXX LINKER:--no-undefined-version MOE_HAS_NO_UNDEFINED_VERSION)
if(MOE_HAS_NO_UNDEFINED_VERSION)
  target_link_options(moe_link INTERFACE LINKER:--no-undefined-version)
endif()
if(MOE_BUNDLE_LIBSTDCXX AND NOT MOE_SANITIZE)
  target_link_options(moe_link INTERFACE -static-libstdc++ -static-libgcc)
endif()
