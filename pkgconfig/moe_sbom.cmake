# libmoe.spdx.json: what is in the library and in the program `moe`, package by package, for tools that ask (SPDX 2.3). The
# list is that of NOTICE.
# Its time is SOURCE_DATE_EPOCH where that is set, and its name is made of all the rest: the same build, the same document.
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
set(packages)
set(relationships)
set(seen)
function(moe_sbom_package package version licence origin)
  set(packages ${packages} "    {
      \"name\": \"${package}\",
      \"SPDXID\": \"SPDXRef-${package}\",
      \"versionInfo\": \"${version}\",
      \"downloadLocation\": \"${origin}\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"${licence}\",
      \"licenseDeclared\": \"${licence}\",
      \"copyrightText\": \"NOASSERTION\"
    }" PARENT_SCOPE)
endfunction()
function(moe_sbom_relationship from type to)
  set(relationships ${relationships} "    {
      \"spdxElementId\": \"SPDXRef-${from}\",
      \"relationshipType\": \"${type}\",
      \"relatedSpdxElement\": \"SPDXRef-${to}\"
    }" PARENT_SCOPE)
endfunction()

set(described libmoe)
if(TARGET libmoe_tool)
  list(APPEND described moe)
endif()
foreach(package IN LISTS described)
  moe_sbom_package(${package} ${PROJECT_VERSION} Apache-2.0 ${PROJECT_HOMEPAGE_URL})
  moe_sbom_relationship(DOCUMENT DESCRIBES ${package})
endforeach()
foreach(row IN LISTS moe_linked moe_tool_linked)
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 package)
  if(NOT package IN_LIST seen)
    moe_sbom_package(${row})
    list(APPEND seen ${package})
  endif()
endforeach()
foreach(row IN LISTS moe_linked)
  string(REGEX REPLACE "[|].*" "" package "${row}")
  moe_sbom_relationship(libmoe STATIC_LINK ${package})
endforeach()
if(TARGET libmoe_tool)
  moe_sbom_relationship(moe DYNAMIC_LINK libmoe)
  foreach(row IN LISTS moe_tool_linked)
    string(REGEX REPLACE "[|].*" "" package "${row}")
    moe_sbom_relationship(moe STATIC_LINK ${package})
  endforeach()
endif()
list(JOIN packages ",\n" packages)
list(JOIN relationships ",\n" relationships)
string(UUID name NAMESPACE 6ba7b811-9dad-11d1-80b4-00c04fd430c8 TYPE SHA1
       NAME "${packages} ${CMAKE_SYSTEM_PROCESSOR} ${created}") # the namespace of names made of URLs
file(CONFIGURE OUTPUT pkgconfig/libmoe.spdx.json @ONLY CONTENT "{
  \"spdxVersion\": \"SPDX-2.3\",
  \"dataLicense\": \"CC0-1.0\",
  \"SPDXID\": \"SPDXRef-DOCUMENT\",
  \"name\": \"libmoe-${PROJECT_VERSION}-${CMAKE_SYSTEM_PROCESSOR}\",
  \"documentNamespace\": \"${PROJECT_HOMEPAGE_URL}/spdx/${name}\",
  \"creationInfo\": {
    \"created\": \"${created}\",
    \"creators\": [\"Organization: the libmoe maintainers\", \"Tool: CMake-${CMAKE_VERSION}\"]
  },
  \"packages\": [
${packages}
  ],
  \"relationships\": [
${relationships}
  ]
}
")
