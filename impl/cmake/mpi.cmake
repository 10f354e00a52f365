# libmoe_mpi, once for each MPI of MOE_MPI: `openmpi`, `mpich` (Debian has both side by side; find_package(MPI) finds one).
# They differ in nothing but the mpi.h that impl/mpi is compiled with and the library that it needs. One folder for each,
# the same name within: a program takes the one of its MPI, by libmoe-mpi-<mpi>.pc or moe::mpi_<mpi>.
find_package(PkgConfig REQUIRED)
set(mpi_module_openmpi ompi-c)
set(mpi_module_mpich mpich)
foreach(mpi IN LISTS MOE_MPI)
  if(NOT DEFINED mpi_module_${mpi})
    message(FATAL_ERROR "MOE_MPI: '${mpi}' is none of openmpi, mpich")
  endif()
  pkg_check_modules(MOE_MPI_${mpi} REQUIRED IMPORTED_TARGET ${mpi_module_${mpi}})
  add_library(libmoe_mpi_${mpi} SHARED impl/mpi/moe_mpi.c)
  add_library(moe::mpi_${mpi} ALIAS libmoe_mpi_${mpi})
  target_compile_features(libmoe_mpi_${mpi} PRIVATE c_std_11)
  target_compile_definitions(libmoe_mpi_${mpi} PRIVATE _GNU_SOURCE)
  target_compile_options(libmoe_mpi_${mpi} PRIVATE -Wall -Wextra -Wshadow -Wconversion $<$<BOOL:${MOE_WERROR}>:-Werror>)
  target_link_libraries(libmoe_mpi_${mpi} PUBLIC libmoe_shared PRIVATE PkgConfig::MOE_MPI_${mpi})
  target_link_options(libmoe_mpi_${mpi} PRIVATE LINKER:-z,now
                      LINKER:--version-script=${CMAKE_CURRENT_SOURCE_DIR}/abi_check/libmoe_mpi.map)
  set_target_properties(libmoe_mpi_${mpi} PROPERTIES OUTPUT_NAME moe_mpi EXPORT_NAME mpi_${mpi}
    VERSION ${PROJECT_VERSION} SOVERSION ${MOE_ABI_VERSION} C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/${mpi} INSTALL_RPATH "\$ORIGIN/.."
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/abi_check/libmoe_mpi.map)
endforeach()
