# Builds from scratch in less time (scripts/test.sh); off otherwise, for they defeat ccache and clangd.

option(DOVETAIL_PCH "Read the headers that most files include once (precompiled headers)" OFF)
option(DOVETAIL_UNITY "Compile many source files as one (scripts/unity_groups.py)" OFF)
set(DOVETAIL_UNITY_FILES 40 CACHE STRING "How many files at most, then")
# Where there is no Python the tool is built all the same.
if(DOVETAIL_UNITY)
  find_program(DOVETAIL_PYTHON python3)
  if(NOT DOVETAIL_PYTHON)
    message(STATUS "no python3: source files are compiled one by one, which takes longer")
  endif()
endif()

# dovetail_unite(TARGET): compiles its sources in groups, where DOVETAIL_UNITY is on. Those with options of their own,
# and those that the build writes, stay by themselves.
function(dovetail_unite TARGET)
  if(DOVETAIL_UNITY AND DOVETAIL_PYTHON)
    # At the end of the folder, when all of that is known.
    cmake_language(EVAL CODE "cmake_language(DEFER CALL dovetail_unite_now ${TARGET})")
  endif()
endfunction()

function(dovetail_unite_now TARGET)
  get_target_property(SOURCES ${TARGET} SOURCES)
  set(ALONE "")
  set(TOGETHER "")
  foreach(SOURCE ${SOURCES})
    set(OWN "")
    foreach(PROPERTY COMPILE_OPTIONS COMPILE_DEFINITIONS GENERATED)
      get_source_file_property(VALUE ${SOURCE} ${PROPERTY})
      if(VALUE)
        set(OWN ${PROPERTY})
      endif()
    endforeach()
    if(OWN OR NOT SOURCE MATCHES "[.]cc$")
      list(APPEND ALONE ${SOURCE})
    else()
      list(APPEND TOGETHER ${SOURCE})
    endif()
  endforeach()
  execute_process(COMMAND ${DOVETAIL_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py ${DOVETAIL_UNITY_FILES}
                          ${CMAKE_CURRENT_BINARY_DIR}/${TARGET}_groups ${TOGETHER}
                  WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}
                  OUTPUT_VARIABLE GROUPS COMMAND_ERROR_IS_FATAL ANY)
  set_property(TARGET ${TARGET} PROPERTY SOURCES ${ALONE} ${GROUPS})
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
