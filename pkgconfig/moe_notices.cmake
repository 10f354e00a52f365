# share/doc/libmoe: LICENSE, NOTICE, and notices/<package>, the copyright notice and licence of each package that has code
# in the library. Those are files of the build machine, not ours, so that they are of the version that was linked in: of
# Debian (share/doc/*/copyright), or of Fedora and Arch (share/licenses).
set(doc_dir ${CMAKE_INSTALL_DATAROOTDIR}/doc/libmoe)
string(REGEX MATCH "^[0-9]+" major "${CMAKE_CXX_COMPILER_VERSION}")

# moe_notice(<package> <licence> <origin> <a folder of its headers> <files below share, patterns>...)
set(notices)
function(moe_notice package licence origin include)
  list(TRANSFORM ARGN PREPEND ${include}/../share/ OUTPUT_VARIABLE near)
  list(TRANSFORM ARGN PREPEND /usr/share/ OUTPUT_VARIABLE of_system)
  file(GLOB found ${near} ${of_system})
  if(found)
    list(GET found 0 found)
    file(REAL_PATH ${found} found)
    install(FILES ${found} DESTINATION ${doc_dir}/notices RENAME ${package} COMPONENT Runtime)
  else()
    message(WARNING "no licence text of ${package} on this machine: whoever hands libmoe on must add it to ${doc_dir}/notices")
  endif()
  set(notices "${notices}- ${package} (${licence}), ${origin}\n" PARENT_SCOPE)
endfunction()

moe_notice(nlohmann-json MIT https://github.com/nlohmann/json ${MOE_NLOHMANN_INCLUDE}
           doc/nlohmann-json3-dev/copyright licenses/json/LICENSE* licenses/nlohmann-json/LICENSE*)
moe_notice(spdlog MIT https://github.com/gabime/spdlog ${MOE_SPDLOG_INCLUDE}
           doc/libspdlog-dev/copyright licenses/spdlog/LICENSE*)
moe_notice(fmt "MIT with an exception for object code" https://github.com/fmtlib/fmt ${MOE_FMT_INCLUDE}
           doc/libfmt-dev/copyright licenses/fmt/LICENSE*)
moe_notice(xxhash "BSD 2-Clause" https://github.com/Cyan4973/xxHash ${MOE_XXHASH_INCLUDE}
           doc/libxxhash-dev/copyright licenses/xxhash/LICENSE*)
if(MOE_BUNDLE_LIBSTDCXX)
  moe_notice(gcc-runtime "GPL 3 with the GCC Runtime Library Exception" https://gcc.gnu.org /usr/include
             doc/gcc-${major}-base/copyright doc/gcc-*-base/copyright licenses/libstdc++/* licenses/gcc-libs/*)
endif()
configure_file(pkgconfig/NOTICE.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/NOTICE @ONLY)
install(FILES LICENSE ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/NOTICE DESTINATION ${doc_dir} COMPONENT Runtime)
