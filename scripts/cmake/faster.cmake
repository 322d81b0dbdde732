# Builds from scratch in less time (scripts/test.sh); off otherwise, for they defeat ccache and clangd.

option(DOVETAIL_PCH "Read the headers that most files include once (precompiled headers)" OFF)
option(DOVETAIL_UNITY "Compile many source files of a target as one" OFF)
set(DOVETAIL_UNITY_FILES 40 CACHE STRING "How many files at most, then")

# dovetail_unite(TARGET): compiles its source files in batches where DOVETAIL_UNITY is on. Helpers in the anonymous namespaces
# of one target need different names for it. Files with compile options or definitions of their own stay by themselves.
function(dovetail_unite TARGET)
  if(DOVETAIL_UNITY)
    set_target_properties(${TARGET} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${DOVETAIL_UNITY_FILES})
  endif()
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
