# libmoe.a: one relocatable object in which only the public names are global.
#
# A plain archive would put every C++ name of ours, and the copies of inline library functions, into the
# namespace of the host's link. ld -r merges the objects (and dissolves COMDAT groups, which must not
# meet others of the same name once their members are local), objcopy then hides what is not public.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS abi_check/symbols.txt)
file(READ abi_check/symbols.txt names)
string(REGEX REPLACE "@[^\n]*" "" names "${names}")
set(public_symbols ${CMAKE_CURRENT_BINARY_DIR}/public_symbols.txt)
file(CONFIGURE OUTPUT ${public_symbols} CONTENT "${names}")
# (zig's own linker takes minutes over it: who builds with zig names another one.)
if(NOT DEFINED MOE_MERGE_OBJECTS)
  set(MOE_MERGE_OBJECTS ${CMAKE_CXX_COMPILER} -r -nostdlib -Wl,--force-group-allocation)
endif()
set(one_object ${CMAKE_CURRENT_BINARY_DIR}/libmoe.o)
add_custom_command(OUTPUT ${one_object}
  COMMAND ${MOE_MERGE_OBJECTS} -o ${one_object}.all ${moe_objects}
  COMMAND ${CMAKE_OBJCOPY} --strip-debug --keep-global-symbols=${public_symbols} ${one_object}.all ${one_object}
  COMMAND ${CMAKE_COMMAND} -E rm ${one_object}.all
  DEPENDS ${moe_objects} ${public_symbols} COMMAND_EXPAND_LISTS VERBATIM)
add_library(libmoe_static STATIC ${one_object})
foreach(room IN LISTS rooms) # Makefiles know files of this target only: the objects must be there before it begins
  if(TARGET libmoe_${room})
    add_dependencies(libmoe_static libmoe_${room})
  endif()
endforeach()
add_library(moe::moe_static ALIAS libmoe_static)
set_source_files_properties(${one_object} PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(libmoe_static PROPERTIES OUTPUT_NAME moe EXPORT_NAME moe_static LINKER_LANGUAGE CXX)
target_link_libraries(libmoe_static INTERFACE stdc++ m pthread) # C programs need them named; libmoe-static.pc says so too
target_include_directories(libmoe_static PUBLIC $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include_c>)
