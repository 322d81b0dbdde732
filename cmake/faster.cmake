# Builds from scratch in less time (scripts/test.sh); off otherwise, for they defeat ccache and clangd.

option(DOVETAIL_PCH "Read the headers that most files include once (precompiled headers)" OFF)
option(DOVETAIL_UNITY "Compile source files that share no private name together" OFF)
set(DOVETAIL_UNITY_FILES 20 CACHE STRING "How many files at most, then")
# Where there is no Python the tool is built all the same.
if(DOVETAIL_UNITY)
  find_program(DOVETAIL_PYTHON python3)
  if(NOT DOVETAIL_PYTHON)
    message(STATUS "no python3: source files are compiled one by one, which takes longer")
  endif()
endif()

# dovetail_unite(TARGET): compiles its sources in groups, where DOVETAIL_UNITY is on.
function(dovetail_unite TARGET)
  if(NOT DOVETAIL_UNITY OR NOT DOVETAIL_PYTHON)
    return()
  endif()
  get_target_property(SOURCES ${TARGET} SOURCES)
  execute_process(COMMAND ${DOVETAIL_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py ${DOVETAIL_UNITY_FILES} ${SOURCES}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
                  OUTPUT_VARIABLE GROUPS COMMAND_ERROR_IS_FATAL ANY)
  foreach(SOURCE GROUP IN ZIP_LISTS SOURCES GROUPS)
    set_source_files_properties(${SOURCE} PROPERTIES UNITY_GROUP group${GROUP})
  endforeach()
  set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endfunction()

# dovetail_precompiled(TARGET ROOM|HOT|TEST): this target may use the precompiled headers of its kind.
function(dovetail_precompiled TARGET KIND)
  set_property(GLOBAL APPEND PROPERTY DOVETAIL_PCH_${KIND} ${TARGET})
  # A file that cannot use them is compiled without them: slower, and said, but no error.
  if(DOVETAIL_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE -Wno-error=invalid-pch)
  endif()
endfunction()

# Makes one precompiled header for each way to compile: position independent or not, hot or not, test or not.
# To be called when all targets are there.
function(dovetail_precompile)
  if(NOT DOVETAIL_PCH)
    return()
  endif()
  set(HEADERS <algorithm> <array> <chrono> <cmath> <cstdint> <functional> <map> <memory> <optional>
      <ostream> <set> <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility> <variant>
      <vector> <nlohmann/json_fwd.hpp>)
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/nothing.cc CONTENT "")
  foreach(KIND ROOM ROOM_PIC HOT TEST)
    add_library(dovetail_pch_${KIND} OBJECT ${CMAKE_BINARY_DIR}/nothing.cc)
    target_link_libraries(dovetail_pch_${KIND} PRIVATE dovetail_flags nlohmann_json::nlohmann_json)
    target_precompile_headers(dovetail_pch_${KIND} PRIVATE ${HEADERS})
  endforeach()
  set_target_properties(dovetail_pch_ROOM_PIC PROPERTIES POSITION_INDEPENDENT_CODE ON)
  dovetail_hot(dovetail_pch_HOT)
  if(DOVETAIL_TESTS)
    target_precompile_headers(dovetail_pch_TEST PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    target_link_libraries(dovetail_pch_TEST PRIVATE GTest::gmock)
    dovetail_test_options(dovetail_pch_TEST)
  endif()

  get_property(ROOMS GLOBAL PROPERTY DOVETAIL_PCH_ROOM)
  foreach(TARGET ${ROOMS})
    get_target_property(IS_PIC ${TARGET} POSITION_INDEPENDENT_CODE)
    if(IS_PIC)
      target_precompile_headers(${TARGET} REUSE_FROM dovetail_pch_ROOM_PIC)
    else()
      target_precompile_headers(${TARGET} REUSE_FROM dovetail_pch_ROOM)
    endif()
  endforeach()
  foreach(KIND HOT TEST)
    get_property(TARGETS GLOBAL PROPERTY DOVETAIL_PCH_${KIND})
    foreach(TARGET ${TARGETS})
      target_precompile_headers(${TARGET} REUSE_FROM dovetail_pch_${KIND})
    endforeach()
  endforeach()
endfunction()
