# Installation: library, licence and notices (component Runtime); headers, description, link name, libmoe.pc, CMake package
# and the static library (component Development); the program `moe` with its pages (component Tools); on request the debug
# information (component Debug). Everything is relocatable.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moe)

# moe_install_stripped(<component> <arguments of install>...): stripped, asked for (cmake --install --strip) or not; what is
# installed next to us is as it was asked for.
function(moe_install_stripped component)
  install(CODE "set(moe_asked_for_strip \"\${CMAKE_INSTALL_DO_STRIP}\")\nset(CMAKE_INSTALL_DO_STRIP ON)" COMPONENT ${component})
  install(${ARGN})
  install(CODE "set(CMAKE_INSTALL_DO_STRIP \"\${moe_asked_for_strip}\")" COMPONENT ${component})
endfunction()
moe_install_stripped(Runtime
  TARGETS libmoe_shared EXPORT moeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Runtime
  NAMELINK_COMPONENT Development INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
if(TARGET libmoe_static)
  install(TARGETS libmoe_static EXPORT moeStaticTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development
          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(CODE "set(moe_library [=[$<TARGET_FILE:libmoe_shared>]=])\nset(moe_readelf [=[${CMAKE_READELF}]=])\nset(moe_objcopy [=[${CMAKE_OBJCOPY}]=])"
        SCRIPT pkgconfig/moe_debug_file.cmake COMPONENT Debug EXCLUDE_FROM_ALL)
include(pkgconfig/moe_notices.cmake)

install(FILES include_c/moe/moe.h include_c/moe/moe.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe COMPONENT Development)
install(DIRECTORY include_c/moe/cpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe COMPONENT Development)
install(FILES abi_check/moe_abi.json DESTINATION ${CMAKE_INSTALL_DATADIR}/moe COMPONENT Development)

# --- the program --------------------------------------------------------------------------------
if(TARGET libmoe_tool)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_BINDIR}") # neither is relative to the other
    set(library_dir ${CMAKE_INSTALL_FULL_LIBDIR})
  else()
    file(RELATIVE_PATH library_dir "/p/${CMAKE_INSTALL_BINDIR}" "/p/${CMAKE_INSTALL_LIBDIR}")
    string(REGEX REPLACE "/$" "" library_dir "\$ORIGIN/${library_dir}")
  endif()
  set_target_properties(libmoe_tool PROPERTIES INSTALL_RPATH "${library_dir}")
  # OPTIONAL: a tree where the library alone was built, as by bindings_examples/run, installs that.
  moe_install_stripped(Tools TARGETS libmoe_tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT Tools OPTIONAL)
  # moe_page(<file of impl/tool/pages> <folder> <name>)
  function(moe_page file folder name)
    install(FILES impl/tool/pages/${file} DESTINATION ${folder} RENAME ${name} COMPONENT Tools)
  endfunction()
  moe_page(moe.1 ${CMAKE_INSTALL_MANDIR}/man1 moe.1)
  moe_page(moe.bash ${CMAKE_INSTALL_DATADIR}/bash-completion/completions moe)
  moe_page(moe.zsh ${CMAKE_INSTALL_DATADIR}/zsh/site-functions _moe)
  moe_page(moe.fish ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d moe.fish)
endif()

# --- CMake package ------------------------------------------------------------------------------
install(EXPORT moeTargets NAMESPACE moe:: FILE moeTargets.cmake DESTINATION ${cmake_dir} COMPONENT Development)
if(TARGET libmoe_static)
  install(EXPORT moeStaticTargets NAMESPACE moe:: FILE moeStaticTargets.cmake DESTINATION ${cmake_dir} COMPONENT Development)
endif()
configure_package_config_file(pkgconfig/moeConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfig.cmake
                              INSTALL_DESTINATION ${cmake_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion) # SameMajorVersion from 1.0 on
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/moeConfigVersion.cmake
        DESTINATION ${cmake_dir} COMPONENT Development)

# --- libmoe.pc, libmoe-static.pc ----------------------------------------------------------------------
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
# moe_pc(<name> <link> <file>): a .pc file, and the link that its -l finds.
function(moe_pc name link file)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig)
  configure_file(pkgconfig/${name}.pc.in ${folder}/${name}.pc @ONLY)
  install(FILES ${folder}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT Development)
  file(CREATE_LINK ${file} ${folder}/${link} SYMBOLIC)
  install(FILES ${folder}/${link} DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT Development)
endfunction()
set(MOE_PC_STATIC_LIBS)
if(TARGET libmoe_static)
  get_target_property(MOE_PC_STATIC_LIBS libmoe_static INTERFACE_LINK_LIBRARIES)
  list(TRANSFORM MOE_PC_STATIC_LIBS PREPEND -l)
  list(JOIN MOE_PC_STATIC_LIBS " " MOE_PC_STATIC_LIBS)
  moe_pc(libmoe-static libmoe-static.a libmoe.a)
  # what -lmoe-abi<N> is for cc -static
  file(CREATE_LINK libmoe.a ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe-abi${MOE_ABI_VERSION}.a SYMBOLIC)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe-abi${MOE_ABI_VERSION}.a DESTINATION ${CMAKE_INSTALL_LIBDIR}
          COMPONENT Development)
endif()
moe_pc(libmoe libmoe-abi${MOE_ABI_VERSION}.so libmoe.so.${MOE_ABI_VERSION})

# --- libmoe_mpi: a folder, a description, an export of targets for each MPI (component Mpi) ------------------------------
foreach(mpi IN LISTS MOE_MPI)
  moe_install_stripped(Mpi TARGETS libmoe_mpi_${mpi} EXPORT moeMpi_${mpi}Targets LIBRARY
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/${mpi} COMPONENT Mpi INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT moeMpi_${mpi}Targets NAMESPACE moe:: FILE moeMpi_${mpi}Targets.cmake DESTINATION ${cmake_dir} COMPONENT Mpi)
  set(MOE_PC_MPI ${mpi})
  set(MOE_PC_MPI_MODULE ${mpi_module_${mpi}})
  set(MOE_PC_MPI_VERSION ${MOE_MPI_${mpi}_VERSION})
  configure_file(pkgconfig/libmoe-mpi.pc.in ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe-mpi-${mpi}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/pkgconfig/libmoe-mpi-${mpi}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
          COMPONENT Mpi)
endforeach()
if(MOE_MPI)
  install(FILES include_c/moe/moe_mpi.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/moe COMPONENT Mpi)
endif()
