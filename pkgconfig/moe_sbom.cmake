# libmoe.spdx.json: what is in the library, package by package, for tools that ask (SPDX 2.3). The list is that of NOTICE.
# Its time is SOURCE_DATE_EPOCH where that is set, and its name is made of all the rest: the same build, the same document.
string(TIMESTAMP created "%Y-%m-%dT%H:%M:%SZ" UTC)
set(packages)
set(relationships)
foreach(row IN ITEMS "libmoe|${PROJECT_VERSION}|Apache-2.0|${PROJECT_HOMEPAGE_URL}" LISTS moe_linked)
  string(REPLACE "|" ";" row "${row}")
  list(GET row 0 package)
  list(GET row 1 version)
  list(GET row 2 licence)
  list(GET row 3 origin)
  list(APPEND packages "    {
      \"name\": \"${package}\",
      \"SPDXID\": \"SPDXRef-${package}\",
      \"versionInfo\": \"${version}\",
      \"downloadLocation\": \"${origin}\",
      \"filesAnalyzed\": false,
      \"licenseConcluded\": \"${licence}\",
      \"licenseDeclared\": \"${licence}\",
      \"copyrightText\": \"NOASSERTION\"
    }")
  if(package STREQUAL libmoe)
    set(from DOCUMENT)
    set(type DESCRIBES)
  else()
    set(from libmoe)
    set(type STATIC_LINK)
  endif()
  list(APPEND relationships "    {
      \"spdxElementId\": \"SPDXRef-${from}\",
      \"relationshipType\": \"${type}\",
      \"relatedSpdxElement\": \"SPDXRef-${package}\"
    }")
endforeach()
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
