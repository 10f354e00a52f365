# cpack runs this when the files of the packages lie in its folder. Debian wants papers elsewhere than share/doc/libmoe: the
# file copyright in its machine-readable format instead of LICENSE, NOTICE and notices, and a changelog, one of each for
# every package. The SBOM is another one on each architecture, and packages of two architectures are installed together
# (Multi-Arch: same): its name tells whose it is.
if(NOT CPACK_GENERATOR STREQUAL DEB)
  return()
endif()
file(GLOB doc ${CPACK_TEMPORARY_DIRECTORY}/Runtime/*/share/doc/libmoe)
get_filename_component(share_doc ${doc} DIRECTORY)
set(runtime ${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME})

# --- copyright ----------------------------------------------------------------------------------
# debian_copyright(<out> <where the code is> <row of moe_linked>...)
function(debian_copyright out where)
  set(copyright "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: libmoe
Source: ${CPACK_PACKAGE_HOMEPAGE_URL}

Files: *
Copyright: ${CPACK_PACKAGE_VENDOR}
License: Apache-2.0
Comment: libmoe ${CPACK_PACKAGE_VERSION}

License: Apache-2.0
 On Debian systems the text is in /usr/share/common-licenses/Apache-2.0.
")
  foreach(row IN LISTS ARGN)
    string(REGEX MATCH "^(.*)[|](.*)[|](.*)[|](.*)$" row "${row}")
    set(package ${CMAKE_MATCH_1})
    string(APPEND copyright "
Files: linked/${package}/*
Copyright: as the text of the licence says
License: text-of-${package}
Comment: ${package} ${CMAKE_MATCH_2} (${CMAKE_MATCH_3}) from ${CMAKE_MATCH_4} has code in ${where}.

License: text-of-${package}
")
    file(READ ${doc}/notices/${package} text)
    string(REGEX REPLACE "[ \t]*\n" "\n " text "${text}") # lines of a text begin with a space; one without words has a dot
    string(REGEX REPLACE "\n (\n|$)" "\n .\\1" text " ${text}")
    string(REGEX REPLACE "\n (\n|$)" "\n .\\1" text "${text}")
    string(REGEX REPLACE "(\n \\.)+$" "" text "${text}")
    string(APPEND copyright "${text}\n")
  endforeach()
  set(${out} "${copyright}" PARENT_SCOPE)
endfunction()
debian_copyright(copyright "the library" ${CPACK_LIBMOE_LINKED})
debian_copyright(tool_copyright "the program" ${CPACK_LIBMOE_TOOL_LINKED})

# --- a changelog of this release; its time is SOURCE_DATE_EPOCH where that is set --------------------
string(TIMESTAMP time "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(changelog "libmoe (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}: its CHANGELOG.md is at ${CPACK_PACKAGE_HOMEPAGE_URL}.

 -- ${CPACK_PACKAGE_CONTACT}  ${time}
")

# --- where they go ------------------------------------------------------------------------------
file(RENAME ${doc}/libmoe.spdx.json ${CPACK_TEMPORARY_DIRECTORY}/libmoe.spdx.json)
file(REMOVE_RECURSE ${doc})
# debian_papers(<component> <package> <copyright>)
function(debian_papers component package copyright)
  string(REPLACE /Runtime/ /${component}/ folder ${share_doc}/${package})
  file(WRITE ${folder}/copyright "${copyright}")
  file(WRITE ${folder}/changelog "${changelog}")
  execute_process(COMMAND gzip -9n ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
endfunction()
debian_papers(Runtime ${runtime} "${copyright}")
debian_papers(Development ${CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME} "${copyright}")
if("${CPACK_COMPONENTS_ALL}" MATCHES Tools)
  debian_papers(Tools ${CPACK_DEBIAN_TOOLS_PACKAGE_NAME} "${tool_copyright}")
  # Pages of manuals are compressed there, and zsh looks for completions of packages elsewhere.
  string(REGEX REPLACE "/Runtime/(.*)/doc$" "/Tools/\\1" share ${share_doc})
  file(GLOB pages ${share}/man/man1/*.1)
  foreach(page IN LISTS pages)
    execute_process(COMMAND gzip -9n ${page} COMMAND_ERROR_IS_FATAL ANY)
  endforeach()
  if(EXISTS ${share}/zsh/site-functions)
    file(RENAME ${share}/zsh/site-functions ${share}/zsh/vendor-completions)
  endif()
endif()
file(RENAME ${CPACK_TEMPORARY_DIRECTORY}/libmoe.spdx.json
     ${share_doc}/${runtime}/${runtime}_${CPACK_DEBIAN_PACKAGE_ARCHITECTURE}.spdx.json)
