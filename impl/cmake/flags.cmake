# Compiler and linker flags: target libmoe_flags for every object of libmoe and its tests, libmoe_link for
# what is handed on, the shared library and the program `moe`, libmoe_program_link for the program.
#
# Every object is of the baseline: ISA code lives in target regions of the kernel files. No -ffast-math
# and no contraction: fused multiply-adds are written out where the definition has them.
include(CMakeDependentOption)
include(CheckCXXCompilerFlag)
include(CheckCXXSymbolExists)
include(CheckLinkerFlag)

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_INTERPROCEDURAL_OPTIMIZATION OFF) # an object is of one ISA, and so is what is inlined in it
set(CMAKE_UNITY_BUILD OFF)                  # files have names of their own in unnamed namespaces

add_library(libmoe_flags INTERFACE)
add_library(libmoe_link INTERFACE)
add_library(libmoe_program_link INTERFACE)
target_include_directories(libmoe_flags INTERFACE ${CMAKE_CURRENT_SOURCE_DIR}/include_c ${CMAKE_CURRENT_SOURCE_DIR}/impl)
target_compile_options(libmoe_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wvla -Wdouble-promotion
  $<$<COMPILE_LANGUAGE:CXX>:-Wmissing-declarations>
  -ffunction-sections -fdata-sections
  -ffile-prefix-map=${CMAKE_CURRENT_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_CURRENT_BINARY_DIR}=build)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU) # unique symbols would keep a library from being unloaded
  target_compile_options(libmoe_flags INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(libmoe_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized)
  # false alarms of GCC 12: "text" + std::string (bug 105651), std::optional and std::variant at -Os (bug 80635)
endif()
if(MOE_WERROR)
  target_compile_options(libmoe_flags INTERFACE -Werror)
endif()

# Packages used header-only, each in one file of impl/ (their Debian packages are shared libraries).
find_path(MOE_NLOHMANN_INCLUDE nlohmann/json.hpp REQUIRED)
find_path(MOE_SPDLOG_INCLUDE spdlog/spdlog.h REQUIRED)
find_path(MOE_FMT_INCLUDE fmt/format.h REQUIRED)
find_path(MOE_XXHASH_INCLUDE xxhash.h REQUIRED)
target_include_directories(libmoe_flags SYSTEM INTERFACE ${MOE_NLOHMANN_INCLUDE} ${MOE_SPDLOG_INCLUDE} ${MOE_FMT_INCLUDE}
                                                      ${MOE_XXHASH_INCLUDE})

# Which C library: what is of glibc's own is left out elsewhere (musl).
check_cxx_symbol_exists(__GLIBC__ features.h MOE_HAS_GLIBC)
if(NOT MOE_HAS_GLIBC)
  target_compile_definitions(libmoe_flags INTERFACE _LARGEFILE64_SOURCE) # spdlog calls fstat64
endif()

# --- sanitizers and hardening -------------------------------------------------------------------
target_compile_definitions(libmoe_flags INTERFACE $<$<CONFIG:Debug,Fuzz>:_GLIBCXX_ASSERTIONS>)
if(MOE_BUILD_FUZZ) # comparisons handed to libFuzzer one by one would take half of the time
  target_compile_options(libmoe_flags INTERFACE -fsanitize=fuzzer-no-link -fno-sanitize-coverage=trace-cmp)
endif()
if(MOE_SANITIZE)
  target_compile_definitions(libmoe_flags INTERFACE $<$<NOT:$<CONFIG:Debug,Fuzz>>:_GLIBCXX_ASSERTIONS>)
  set(sanitize -fsanitize=${MOE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(MOE_SANITIZE MATCHES undefined)
    list(APPEND sanitize -fsanitize=float-cast-overflow)
  endif()
  # Checks that keep small functions from being inlined; the address sanitizer sees what they look for once the pointer is
  # used.
  if(MOE_BUILD_FUZZ)
    list(APPEND sanitize -fno-sanitize=pointer-overflow,object-size,null)
  endif()
  target_compile_options(libmoe_flags INTERFACE ${sanitize})
  target_link_options(libmoe_flags INTERFACE ${sanitize})
  target_link_options(libmoe_link INTERFACE ${sanitize})
  # Half of the time of a link: these programs have over 100 MB.
  find_program(MOE_LD_GOLD ld.gold)
  if(MOE_LD_GOLD AND MOE_SANITIZE MATCHES address)
    target_link_options(libmoe_flags INTERFACE -fuse-ld=gold)
    target_link_options(libmoe_link INTERFACE -fuse-ld=gold)
  endif()
else()
  # what the compiler of this architecture knows; fortify needs an optimising build
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection=full -mbranch-protection=standard)
    string(MAKE_C_IDENTIFIER "MOE_HAS${flag}" has)
    check_cxx_compiler_flag("-Werror ${flag}" ${has})
    if(${has})
      target_compile_options(libmoe_flags INTERFACE ${flag})
    endif()
  endforeach()
  # frames of the library itself: callers' threads may have 64 KiB
  target_compile_options(libmoe_flags INTERFACE
    $<$<AND:$<NOT:$<CONFIG:Debug>>,$<STREQUAL:$<TARGET_PROPERTY:TYPE>,OBJECT_LIBRARY>>:-Wframe-larger-than=8192>)
  target_compile_options(libmoe_flags INTERFACE
    $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE> $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=3>)
endif()

# --- the shared library and the program -----------------------------------------------------------
target_link_options(libmoe_link INTERFACE LINKER:-z,relro LINKER:-z,noexecstack LINKER:--as-needed
                                       LINKER:--gc-sections LINKER:--build-id=sha1)
if(NOT MOE_SANITIZE) # Clang's sanitizer run time lives in the program, so it is undefined here
  target_link_options(libmoe_link INTERFACE LINKER:--no-undefined)
endif()
check_linker_flag(CXX LINKER:--no-undefined-version MOE_HAS_NO_UNDEFINED_VERSION)
if(MOE_HAS_NO_UNDEFINED_VERSION)
  target_link_options(libmoe_link INTERFACE LINKER:--no-undefined-version)
endif()
if(MOE_BUNDLE_LIBSTDCXX AND NOT MOE_SANITIZE)
  target_link_options(libmoe_link INTERFACE -static-libstdc++ -static-libgcc)
endif()

# Every version of a function that they ask for is one of glibc 2.28: the file takes others back (linker option --wrap).
# That is for files that are handed on as they are; a library that shares the C++ runtime of its distribution stays there.
cmake_dependent_option(MOE_GLIBC_2_28 "libmoe.so and moe run with glibc 2.28 and newer" ON
  "MOE_HAS_GLIBC;MOE_BUNDLE_LIBSTDCXX;NOT MOE_SANITIZE;CMAKE_SYSTEM_PROCESSOR MATCHES x86_64|AMD64|aarch64|arm64" OFF)
if(MOE_GLIBC_2_28)
  set(glibc_2_28 ${CMAKE_CURRENT_SOURCE_DIR}/impl/base/os/glibc_2_28.cpp)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${glibc_2_28})
  file(STRINGS ${glibc_2_28} taken REGEX "^MOE_TAKE")
  list(TRANSFORM taken REPLACE "^MOE_TAKE\\(([a-z0-9_]+),.*" "LINKER:--wrap=\\1")
  target_sources(libmoe_link INTERFACE ${glibc_2_28})
  target_link_options(libmoe_link INTERFACE ${taken} "LINKER:--push-state,--no-as-needed,-l:libpthread.so.0,--pop-state")
  target_compile_definitions(libmoe_program_link INTERFACE MOE_PROGRAM)
  target_link_options(libmoe_program_link INTERFACE "LINKER:--push-state,--no-as-needed,-l:libdl.so.2,--pop-state")
endif()
target_link_libraries(libmoe_program_link INTERFACE libmoe_link)

# --- the last word ------------------------------------------------------------------------------
# A project that we are a part of may have set -ffast-math, -Ofast or -march=native for all of its targets: the same bits
# all the same. What stays of it is an -mavx2 by itself: then the library is for machines that have it, as that project is;
# the bits are the same there too. (SHELL: an option that stands further left already is left out otherwise.)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(wanted -march=x86-64 -mtune=generic)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(wanted -march=armv8-a -mtune=generic)
else()
  set(wanted -mtune=generic)
endif()
set(baseline)
foreach(flag IN LISTS wanted) # zig has other names for processors, and is for the baseline without them
  string(MAKE_C_IDENTIFIER "MOE_HAS${flag}" has)
  check_cxx_compiler_flag(${flag} ${has})
  if(${has})
    string(APPEND baseline " ${flag}")
  endif()
endforeach()
foreach(name overriding-t-option overriding-option) # Clang, before 19 and since: says so when -ffp-contract is given twice
  string(MAKE_C_IDENTIFIER "MOE_HAS_W${name}" has)
  check_cxx_compiler_flag("-Werror -W${name}" ${has})
  if(${has})
    target_compile_options(libmoe_flags INTERFACE -Wno-${name})
  endif()
endforeach()
target_compile_options(libmoe_flags INTERFACE "SHELL:-fno-fast-math -fno-math-errno -ffp-contract=off${baseline}")
# A shared library linked with -ffast-math or -Ofast would switch denormal numbers off in every thread that loads it.
target_link_options(libmoe_link INTERFACE "SHELL:-fno-fast-math -fno-unsafe-math-optimizations -O1")
