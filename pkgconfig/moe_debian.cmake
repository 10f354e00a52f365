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
set(development ${CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME})

# --- copyright ----------------------------------------------------------------------------------
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
foreach(row IN LISTS CPACK_LIBMOE_LINKED)
  string(REGEX MATCH "^(.*)[|](.*)[|](.*)[|](.*)$" row "${row}")
  set(package ${CMAKE_MATCH_1})
  string(APPEND copyright "
Files: linked/${package}/*
Copyright: as the text of the licence says
License: text-of-${package}
Comment: ${package} ${CMAKE_MATCH_2} (${CMAKE_MATCH_3}) from ${CMAKE_MATCH_4} has code in the library.

License: text-of-${package}
")
  file(READ ${doc}/notices/${package} text)
  string(REGEX REPLACE "[ \t]*\n" "\n " text "${text}") # lines of a text begin with a space; one without words has a dot
  string(REGEX REPLACE "\n (\n|$)" "\n .\\1" text " ${text}")
  string(REGEX REPLACE "\n (\n|$)" "\n .\\1" text "${text}")
  string(REGEX REPLACE "(\n \\.)+$" "" text "${text}")
  string(APPEND copyright "${text}\n")
endforeach()

# --- a changelog of this release; its time is SOURCE_DATE_EPOCH where that is set --------------------
string(TIMESTAMP time "%a, %d %b %Y %H:%M:%S +0000" UTC)
set(changelog "libmoe (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium

  * Release ${CPACK_PACKAGE_VERSION}: its CHANGELOG.md is at ${CPACK_PACKAGE_HOMEPAGE_URL}.

 -- ${CPACK_PACKAGE_CONTACT}  ${time}
")

# --- where they go ------------------------------------------------------------------------------
file(RENAME ${doc}/libmoe.spdx.json ${CPACK_TEMPORARY_DIRECTORY}/libmoe.spdx.json)
file(REMOVE_RECURSE ${doc})
string(REPLACE /Runtime/ /Development/ share_doc_development ${share_doc})
foreach(folder IN ITEMS ${share_doc}/${runtime} ${share_doc_development}/${development})
  file(WRITE ${folder}/copyright "${copyright}")
  file(WRITE ${folder}/changelog "${changelog}")
  execute_process(COMMAND gzip -9n ${folder}/changelog COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(RENAME ${CPACK_TEMPORARY_DIRECTORY}/libmoe.spdx.json
     ${share_doc}/${runtime}/${runtime}_${CPACK_DEBIAN_PACKAGE_ARCHITECTURE}.spdx.json)
