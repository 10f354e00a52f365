# cpack: the release archive and the Debian packages libmoe0, libmoe0-dev and libmoe-tools. pkgconfig/make_packages calls it twice, because
# their files have different places; with SOURCE_DATE_EPOCH and umask 022 the same sources give the same bytes.
set(CPACK_PACKAGE_NAME libmoe)
set(CPACK_PACKAGE_HOMEPAGE_URL ${PROJECT_HOMEPAGE_URL})
set(CPACK_PACKAGE_VENDOR "the libmoe maintainers")
set(CPACK_PACKAGE_CONTACT "the libmoe maintainers <maintainers@libmoe.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY ${PROJECT_DESCRIPTION})
set(CPACK_PACKAGE_FILE_NAME libmoe-${PROJECT_VERSION}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR TGZ)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_COMPONENTS_ALL Runtime Development)
if(TARGET libmoe_tool)
  list(APPEND CPACK_COMPONENTS_ALL Tools)
endif()

# --- Debian -------------------------------------------------------------------------------------
set(runtime libmoe${MOE_ABI_VERSION})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # else it would be that of the machine which builds
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE amd64)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
endif()
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/pkgconfig/moe_debian.cmake)
set(CPACK_LIBMOE_LINKED ${moe_linked})
set(CPACK_LIBMOE_TOOL_LINKED ${moe_tool_linked})
# No scripts: what packages that link with libmoe depend on, and the trigger that has ldconfig run.
file(CONFIGURE OUTPUT pkgconfig/shlibs CONTENT "libmoe ${MOE_ABI_VERSION} ${runtime} (>= ${PROJECT_VERSION})\n")
file(CONFIGURE OUTPUT pkgconfig/triggers CONTENT "activate-noawait ldconfig\n")
# A function came with the minor release whose number its node has; those of the first node with 0.1.
file(STRINGS abi_check/symbols.txt symbols)
list(APPEND symbols "LIBMOE_${MOE_ABI_VERSION}@@LIBMOE_${MOE_ABI_VERSION}")
list(SORT symbols)
list(TRANSFORM symbols REPLACE "^(.*)@@LIBMOE_(.*)$" " \\1@LIBMOE_\\2 \\2")
list(TRANSFORM symbols REPLACE " 0$" " 0.1")
list(JOIN symbols "\n" symbols)
file(CONFIGURE OUTPUT pkgconfig/symbols CONTENT "libmoe.so.${MOE_ABI_VERSION} ${runtime} #MINVER#\n* Build-Depends-Package: ${runtime}-dev\n${symbols}\n")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA shlibs symbols triggers)
list(TRANSFORM CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA PREPEND ${PROJECT_BINARY_DIR}/pkgconfig/)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME ${runtime})
set(multi_arch "\nMulti-Arch: same") # a field of its own, that CPack does not know
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION "libs${multi_arch}")
if(MOE_GLIBC_2_28)
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS "libc6 (>= 2.28)")
else()
  set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON) # asks dpkg-shlibdeps
endif()
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME ${runtime}-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION "libdevel${multi_arch}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION})")
# The program is of the same release as the library: it names what an older one lacks, and need not.
set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME libmoe-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${runtime} (= ${PROJECT_VERSION})")
if(MOE_GLIBC_2_28)
  string(APPEND CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS ", ${CPACK_DEBIAN_RUNTIME_PACKAGE_DEPENDS}")
else()
  set(CPACK_DEBIAN_TOOLS_PACKAGE_SHLIBDEPS ON)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}) # where libmoe.so is for dpkg-shlibdeps
endif()
set(what "libmoe selects a kernel for the machine, converts a checkpoint's experts once
into the layout of that kernel, and applies the layer: routing, gate and up,
activation, down, weighted sum.
.
")
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${what}This package has the shared library.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${what}This package has headers for C and C++, the archive, a description
of the ABI for other languages, pkg-config and CMake files.")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "${what}This package has the command line, moe: it tells what this machine can do and
what is in a model, why a kernel is chosen, converts, measures and checks.")
include(CPack)
