# ctest entries of label "gates": what the sources, the objects, the library and an installation must be.
# Sanitizer and debug builds leave out what speaks of a release.
set(gates ${CMAKE_CURRENT_SOURCE_DIR}/gates)

function(moe_gate name)
  add_test(NAME gates.${name} COMMAND ${ARGN})
  set_tests_properties(gates.${name} PROPERTIES LABELS gates TIMEOUT 300)
endfunction()

if(MOE_SANITIZE)
  return()
endif()

find_program(MOE_CLANG_FORMAT NAMES clang-format-14)
moe_gate(include_levels ${MOE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/include_levels.py ${PROJECT_SOURCE_DIR})
moe_gate(include_levels_self_test ${MOE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/include_levels.py --self-test)
moe_gate(mutate_self_test ${MOE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/mutate --self-test)
moe_gate(sources ${MOE_PYTHON} ${gates}/source_gate.py ${PROJECT_SOURCE_DIR})
moe_gate(bench_report ${MOE_PYTHON} ${CMAKE_CURRENT_SOURCE_DIR}/bench/report --check --readme ${CMAKE_CURRENT_SOURCE_DIR}/bench/results/README.md)
if(MOE_CLANG_FORMAT)
  moe_gate(format ${MOE_PYTHON} ${gates}/source_gate.py ${PROJECT_SOURCE_DIR} --clang-format ${MOE_CLANG_FORMAT})
endif()

# The header with this build's compilers and with Clang or GCC beside them.
set(compilers "${CMAKE_C_COMPILER}:${CMAKE_CXX_COMPILER}")
if(NOT CMAKE_CROSSCOMPILING)
  find_program(MOE_OTHER_CXX NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-17 clang++-18)
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
    list(APPEND compilers gcc:g++)
  elseif(MOE_OTHER_CXX)
    string(REPLACE "clang++" "clang" other_c ${MOE_OTHER_CXX})
    list(APPEND compilers ${other_c}:${MOE_OTHER_CXX})
  endif()
  moe_gate(header_matrix ${MOE_PYTHON} ${gates}/header_matrix.py ${PROJECT_SOURCE_DIR}/include_c ${compilers})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    moe_gate(self_test ${MOE_PYTHON} ${gates}/self_test.py ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
  endif()
endif()

if(NOT TARGET libmoe_shared OR NOT CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  return()
endif()
file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/objects.txt CONTENT "$<JOIN:${moe_objects},\n>\n")
set(instructions)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(instructions --objdump ${CMAKE_OBJDUMP})
endif()
moe_gate(objects ${MOE_PYTHON} ${gates}/objects_gate.py ${CMAKE_CURRENT_BINARY_DIR}/objects.txt --nm ${CMAKE_NM} --impl ${PROJECT_SOURCE_DIR}/impl
         ${instructions})

set(here)
if(NOT CMAKE_CROSSCOMPILING)
  set(here --ldd)
endif()
if(NOT MOE_GLIBC_2_28)
  list(APPEND here --glibc 2.35)
endif()
moe_gate(library ${MOE_PYTHON} ${gates}/library_gate.py $<TARGET_FILE:libmoe_shared> ${PROJECT_SOURCE_DIR}/abi_check/symbols.txt
         --soname libmoe.so.${MOE_ABI_VERSION} --readelf ${CMAKE_READELF} --nm ${CMAKE_NM} --strip ${CMAKE_STRIP}
         --objects ${CMAKE_CURRENT_BINARY_DIR}/objects.txt --source ${PROJECT_SOURCE_DIR} --source ${PROJECT_BINARY_DIR} ${here})
if(TARGET libmoe_tool)
  moe_gate(program ${MOE_PYTHON} ${gates}/library_gate.py $<TARGET_FILE:libmoe_tool> --program --needs libmoe.so.${MOE_ABI_VERSION}
           --readelf ${CMAKE_READELF} --nm ${CMAKE_NM} --strip ${CMAKE_STRIP} --source ${PROJECT_SOURCE_DIR} --source ${PROJECT_BINARY_DIR} ${here})
  add_executable(libmoe_program_start ${gates}/program_start.cpp) # linked as the program is
  target_link_libraries(libmoe_program_start PRIVATE libmoe_flags libmoe_program_link)
  add_test(NAME gates.program_start COMMAND libmoe_program_start)
  set_tests_properties(gates.program_start PROPERTIES LABELS gates)
endif()

# Tests of the cross build run on an emulated CPU with everything; these have dot products and no matrix products, and
# neither of them.
if(CMAKE_CROSSCOMPILING AND CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64" AND TARGET libmoe_test_kernels)
  list(GET CMAKE_CROSSCOMPILING_EMULATOR 0 qemu)
  foreach(cpu IN ITEMS cortex-a76 neoverse-n1 cortex-a57)
    string(REPLACE - _ name ${cpu})
    moe_gate(qemu_${name} ${CMAKE_COMMAND} -E env QEMU_LD_PREFIX=/usr/aarch64-linux-gnu
             sh ${gates}/qemu_gate.sh ${qemu} ${cpu} $<TARGET_FILE:libmoe_test_kernels>)
  endforeach()
endif()

if(NOT CMAKE_CROSSCOMPILING AND MOE_INSTALL)
  moe_gate(install sh ${gates}/install_gate.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER})
  moe_gate(subproject sh ${gates}/subproject_gate.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/subproject
           ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
  set_tests_properties(gates.subproject PROPERTIES LABELS long TIMEOUT 1800) # compiles the library twice
  moe_gate(sbom ${MOE_PYTHON} ${gates}/sbom_gate.py ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/sbom)
  set_tests_properties(gates.sbom PROPERTIES LABELS packages SKIP_RETURN_CODE 77) # needs PyPI
  moe_gate(reproducible sh ${gates}/reproducible_gate.sh ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_BINARY_DIR}/reproducible)
  set_tests_properties(gates.reproducible PROPERTIES LABELS reproducible TIMEOUT 7200 RUN_SERIAL ON)
  moe_gate(musl sh ${gates}/musl_gate.sh ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR} ${CMAKE_CURRENT_BINARY_DIR}/musl)
  set_tests_properties(gates.musl PROPERTIES LABELS musl TIMEOUT 7200 RUN_SERIAL ON SKIP_RETURN_CODE 77) # needs PyPI
endif()
if(NOT CMAKE_CROSSCOMPILING)
  # The first x86-64 there was: an instruction beyond the baseline on any path that this program takes is a SIGILL.
  find_program(MOE_QEMU_X86 NAMES qemu-x86_64)
  if(MOE_QEMU_X86 AND TARGET libmoe_test_kernels AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    moe_gate(qemu64 sh ${gates}/qemu_gate.sh ${MOE_QEMU_X86} qemu64 $<TARGET_FILE:libmoe_test_base> $<TARGET_FILE:libmoe_test_kernels>)
    moe_gate(qemu_haswell sh ${gates}/qemu_gate.sh ${MOE_QEMU_X86} Haswell $<TARGET_FILE:libmoe_test_kernels>)
    set_tests_properties(gates.qemu_haswell PROPERTIES LABELS long) # AVX2 is also forced on the machine itself
  endif()
endif()
