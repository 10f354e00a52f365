# share/doc/libmoe: LICENSE, NOTICE, libmoe.spdx.json (moe_sbom.cmake), and notices/<package>, the copyright notice and
# licence of each package that has code in the library or in the program. Those are files of the build machine, not ours, so that they are of
# the version that was linked in: of Debian (share/doc/*/copyright), or of Fedora and Arch (share/licenses).
set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/libmoe)
string(REGEX MATCH "^[0-9]+" major "${CMAKE_CXX_COMPILER_VERSION}")

# moe_header_version(<out> <prefix> <header>...): the numbers of the macros <prefix>MAJOR, MINOR and PATCH or RELEASE
function(moe_header_version out prefix)
  foreach(header IN LISTS ARGN)
    if(EXISTS ${header})
      file(STRINGS ${header} lines REGEX "# *define ${prefix}(MAJOR|MINOR|PATCH|RELEASE) +[0-9]+")
      list(TRANSFORM lines REPLACE ".*${prefix}[A-Z]+ +([0-9]+).*" "\\1")
      list(JOIN lines . version)
      if(version)
        set(${out} ${version} PARENT_SCOPE)
      endif()
    endif()
  endforeach()
endfunction()

# moe_notice(<package> <version> <licence> <its name in SPDX> <origin> <a folder of its headers> <files below share, patterns>...)
# Text of NOTICE, and package|version|licence in SPDX|origin of each.
set(notices) # what the library has
set(moe_linked)
set(tool_notices) # what the program has and the library has not
set(moe_tool_linked) # all of the program
function(moe_notice package version licence spdx origin include)
  set(found)
  foreach(pattern IN LISTS ARGN) # the first that is there; one GLOB of all would sort them
    if(NOT found)
      file(GLOB found ${include}/../share/${pattern} /usr/share/${pattern})
    endif()
  endforeach()
  if(found)
    list(GET found 0 found)
    file(REAL_PATH ${found} found)
    install(FILES ${found} DESTINATION ${doc_dir}/notices RENAME ${package} COMPONENT Runtime)
  else()
    message(WARNING "no licence text of ${package} on this machine: add it to ${doc_dir}/notices")
  endif()
  set(line "- ${package} ${version} (${licence}), ${origin}\n")
  set(row "${package}|${version}|${spdx}|${origin}")
  if(package STREQUAL cli11)
    set(tool_notices "${tool_notices}${line}" PARENT_SCOPE)
  else()
    set(notices "${notices}${line}" PARENT_SCOPE)
    set(moe_linked ${moe_linked} "${row}" PARENT_SCOPE)
  endif()
  if(TARGET libmoe_tool AND package MATCHES "^(cli11|nlohmann-json|fmt|gcc-runtime)$")
    set(moe_tool_linked ${moe_tool_linked} "${row}" PARENT_SCOPE)
  endif()
endfunction()

foreach(name IN ITEMS json spdlog fmt xxhash cli11)
  set(${name}_version unknown)
endforeach()
moe_header_version(json_version NLOHMANN_JSON_VERSION_ ${MOE_NLOHMANN_INCLUDE}/nlohmann/json.hpp
                   ${MOE_NLOHMANN_INCLUDE}/nlohmann/detail/abi_macros.hpp)
moe_header_version(spdlog_version SPDLOG_VER_ ${MOE_SPDLOG_INCLUDE}/spdlog/version.h)
moe_header_version(xxhash_version XXH_VERSION_ ${MOE_XXHASH_INCLUDE}/xxhash.h)
foreach(header IN ITEMS core base) # one number: 90100
  if(EXISTS ${MOE_FMT_INCLUDE}/fmt/${header}.h)
    file(STRINGS ${MOE_FMT_INCLUDE}/fmt/${header}.h line REGEX "# *define FMT_VERSION +[0-9]+")
    if(line MATCHES " ([0-9]+)([0-9][0-9])([0-9][0-9])$")
      math(EXPR minor "${CMAKE_MATCH_2}")
      math(EXPR patch "${CMAKE_MATCH_3}")
      set(fmt_version ${CMAKE_MATCH_1}.${minor}.${patch})
    endif()
  endif()
endforeach()

moe_notice(nlohmann-json ${json_version} MIT MIT https://github.com/nlohmann/json ${MOE_NLOHMANN_INCLUDE}
           doc/nlohmann-json3-dev/copyright licenses/json/LICENSE* licenses/nlohmann-json/LICENSE*)
moe_notice(spdlog ${spdlog_version} MIT MIT https://github.com/gabime/spdlog ${MOE_SPDLOG_INCLUDE}
           doc/libspdlog-dev/copyright licenses/spdlog/LICENSE*)
moe_notice(fmt ${fmt_version} "MIT with an exception for object code" "MIT WITH fmt-exception" https://github.com/fmtlib/fmt
           ${MOE_FMT_INCLUDE} doc/libfmt-dev/copyright licenses/fmt/LICENSE*)
moe_notice(xxhash ${xxhash_version} "BSD 2-Clause" BSD-2-Clause https://github.com/Cyan4973/xxHash ${MOE_XXHASH_INCLUDE}
           doc/libxxhash-dev/copyright licenses/xxhash/LICENSE*)
if(MOE_BUNDLE_LIBSTDCXX)
  moe_notice(gcc-runtime ${CMAKE_CXX_COMPILER_VERSION} "GPL 3 with the GCC Runtime Library Exception"
             "GPL-3.0-or-later WITH GCC-exception-3.1" https://gcc.gnu.org /usr/include
             doc/gcc-${major}-base/copyright doc/gcc-*-base/copyright licenses/libstdc++/* licenses/gcc-libs/*)
endif()
set(tool_notice)
if(TARGET libmoe_tool)
  moe_header_version(cli11_version CLI11_VERSION_ ${MOE_CLI11_INCLUDE}/CLI/Version.hpp)
  moe_notice(cli11 ${cli11_version} "BSD 3-Clause" BSD-3-Clause https://github.com/CLIUtils/CLI11 ${MOE_CLI11_INCLUDE}
             doc/libcli11-dev/copyright licenses/cli11/LICENSE* licenses/cli11-devel/LICENSE*)
  list(TRANSFORM moe_tool_linked REPLACE "[|].*" "" OUTPUT_VARIABLE tool_notice)
  list(REMOVE_ITEM tool_notice cli11)
  list(JOIN tool_notice ", " tool_notice)
  set(tool_notice "\nThe program moe contains code of ${tool_notice}, and of this package, of which the library has none:\n\n${tool_notices}")
endif()
configure_file(pkgconfig/NOTICE.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/NOTICE @ONLY)
include(pkgconfig/moe_sbom.cmake)
install(FILES LICENSE ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/NOTICE ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe.spdx.json
        DESTINATION ${doc_dir} COMPONENT Runtime)
