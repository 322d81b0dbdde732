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
      get_filename_component(WHOLE ${SOURCE} ABSOLUTE)
      list(APPEND TOGETHER ${WHOLE})
    endif()
  endforeach()
  if(NOT TOGETHER)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY DOVETAIL_UNITED ${TARGET})
  set_property(TARGET ${TARGET} PROPERTY SOURCES ${ALONE})
  set_property(TARGET ${TARGET} PROPERTY DOVETAIL_GROUPS ${CMAKE_CURRENT_BINARY_DIR}/${TARGET}_groups ${TOGETHER})
endfunction()

# Writes the groups of all targets that dovetail_unite() was called for. To be called when all of them are there.
function(dovetail_write_groups)
  get_property(TARGETS GLOBAL PROPERTY DOVETAIL_UNITED)
  if(NOT TARGETS)
    return()
  endif()
  set(LINES "")
  foreach(TARGET ${TARGETS})
    get_target_property(LINE ${TARGET} DOVETAIL_GROUPS)
    string(APPEND LINES "${LINE}\n")
  endforeach()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/groups.txt CONTENT "${LINES}" @ONLY)
  execute_process(COMMAND ${DOVETAIL_PYTHON} ${PROJECT_SOURCE_DIR}/scripts/unity_groups.py ${DOVETAIL_UNITY_FILES}
                          ${CMAKE_BINARY_DIR}/groups.txt
                  OUTPUT_VARIABLE LINES OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE ";" "|" LINES "${LINES}")
  string(REPLACE "\n" ";" LINES "${LINES}")
  foreach(TARGET LINE IN ZIP_LISTS TARGETS LINES)
    string(REPLACE "|" ";" GROUPS "${LINE}")
    set_property(TARGET ${TARGET} APPEND PROPERTY SOURCES ${GROUPS})
  endforeach()
endfunction()

# dovetail_precompiled(TARGET ROOM|TEST): this target may use the precompiled headers of its kind.
function(dovetail_precompiled TARGET KIND)
  set_property(GLOBAL APPEND PROPERTY DOVETAIL_PCH_${KIND} ${TARGET})
  # A file that cannot use them is compiled without them: slower, and said, but no error.
  if(DOVETAIL_PCH AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${TARGET} PRIVATE -Wno-error=invalid-pch)
  endif()
endfunction()

# Makes one precompiled header for each way to compile that occurs: position independent or not, test or not. To be
# called when all targets are there.
function(dovetail_precompile)
  if(NOT DOVETAIL_PCH)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/nothing.cc CONTENT "")
  foreach(KIND ROOM TEST)
    get_property(TARGETS GLOBAL PROPERTY DOVETAIL_PCH_${KIND})
    foreach(TARGET ${TARGETS})
      get_target_property(IS_PIC ${TARGET} POSITION_INDEPENDENT_CODE)
      set(HEADERS dovetail_pch_${KIND})
      if(IS_PIC)
        set(HEADERS dovetail_pch_${KIND}_PIC)
      endif()
      if(NOT TARGET ${HEADERS})
        dovetail_make_headers(${HEADERS} ${KIND})
        set_target_properties(${HEADERS} PROPERTIES POSITION_INDEPENDENT_CODE ${IS_PIC})
      endif()
      target_precompile_headers(${TARGET} REUSE_FROM ${HEADERS})
    endforeach()
  endforeach()
endfunction()

# An object library NAME with the headers of this kind.
function(dovetail_make_headers NAME KIND)
  add_library(${NAME} OBJECT ${CMAKE_BINARY_DIR}/nothing.cc)
  target_link_libraries(${NAME} PRIVATE dovetail_flags nlohmann_json::nlohmann_json)
  target_precompile_headers(${NAME} PRIVATE
      <algorithm> <array> <chrono> <cmath> <cstdint> <functional> <map> <memory> <optional>
      <ostream> <set> <span> <sstream> <string> <string_view> <tuple> <unordered_map> <utility> <variant>
      <vector> <nlohmann/json_fwd.hpp>)
  if(KIND STREQUAL TEST)
    target_precompile_headers(${NAME} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
    target_link_libraries(${NAME} PRIVATE GTest::gmock)
    dovetail_test_options(${NAME})
  endif()
endfunction()
