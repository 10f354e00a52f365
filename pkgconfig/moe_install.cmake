# Installation: library and description (component Runtime); header, link name, libmoe.pc, CMake package and
# the static library (component Development). Everything is relocatable.
include(CMakePackageConfigHelpers)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moe)

install(TARGETS moe EXPORT moeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime
        NAMELINK_COMPONENT Development)
install(FILES include_c/moe/moe.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe COMPONENT Development)
install(FILES abi_check/moe_abi.json DESTINATION ${CMAKE_INSTALL_DATADIR}/moe COMPONENT Development)

# --- libmoe.a: one relocatable object in which only the public names are global ------------------
# A plain archive would put every C++ name of ours, and the copies of inline library functions, into the
# namespace of the host's link. ld -r merges the objects (and dissolves COMDAT groups, which must not
# meet others of the same name once their members are local), objcopy then hides what is not public.
if(MOE_BUILD_STATIC)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS abi_check/symbols.txt)
  file(READ abi_check/symbols.txt names)
  string(REGEX REPLACE "@[^\n]*" "" names "${names}")
  set(public_symbols ${CMAKE_CURRENT_BINARY_DIR}/public_symbols.txt)
  file(CONFIGURE OUTPUT ${public_symbols} CONTENT "${names}")
  set(one_object ${CMAKE_CURRENT_BINARY_DIR}/libmoe.o)
  add_custom_command(OUTPUT ${one_object}
    COMMAND ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation -o ${one_object}.all ${moe_objects}
    COMMAND ${CMAKE_OBJCOPY} --strip-debug --keep-global-symbols=${public_symbols} ${one_object}.all ${one_object}
    COMMAND ${CMAKE_COMMAND} -E rm ${one_object}.all
    DEPENDS ${moe_objects} ${public_symbols} COMMAND_EXPAND_LISTS VERBATIM)
  add_library(moe_static STATIC ${one_object})
  add_library(moe::moe_static ALIAS moe_static)
  set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  set_target_properties(moe_static PROPERTIES OUTPUT_NAME moe LINKER_LANGUAGE CXX)
  target_link_libraries(moe_static INTERFACE stdc++ m) # what Libs.private says; C programs need it named
  target_include_directories(moe_static PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include_c>
                                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  install(TARGETS moe_static EXPORT moeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
endif()

# --- CMake package ------------------------------------------------------------------------------
install(EXPORT moeTargets NAMESPACE moe:: FILE moeTargets.cmake DESTINATION ${cmake_dir} COMPONENT Development)
configure_package_config_file(pkgconfig/moeConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfig.cmake
                              INSTALL_DESTINATION ${cmake_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion) # SameMajorVersion from 1.0 on
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfigVersion.cmake
        DESTINATION ${cmake_dir} COMPONENT Development)

# --- libmoe.pc ----------------------------------------------------------------------------------
# The prefix is found from the place of the file, so a moved tree works. The way up depends on the depth of
# libdir (lib/x86_64-linux-gnu on Debian); with an absolute libdir nothing is relative and full paths are written.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_DATADIR}")
  set(MOE_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
  set(MOE_PC_LIBDIR ${CMAKE_INSTALL_FULL_LIBDIR})
  set(MOE_PC_INCLUDEDIR ${CMAKE_INSTALL_FULL_INCLUDEDIR})
  set(MOE_PC_DATADIR ${CMAKE_INSTALL_FULL_DATADIR})
else()
  file(RELATIVE_PATH up "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(MOE_PC_PREFIX "\${pcfiledir}/${up}")
  set(MOE_PC_LIBDIR "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(MOE_PC_INCLUDEDIR "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
  set(MOE_PC_DATADIR "\${prefix}/${CMAKE_INSTALL_DATADIR}")
endif()
configure_file(pkgconfig/libmoe.pc.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
        COMPONENT Development)
