# How every target of this project is compiled, and the functions that make targets.
include(${CMAKE_CURRENT_LIST_DIR}/faster.cmake)  # defines dovetail_unite(), dovetail_precompiled()

add_library(dovetail_flags INTERFACE)
target_include_directories(dovetail_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(dovetail_flags INTERFACE -Wall -Wextra -Wconversion -Wshadow -Wpedantic)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(dovetail_flags INTERFACE -Wno-sign-conversion)  # as g++ has it for C++
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # False alarms of g++ 12 at -O3 inside libstdc++ and nlohmann/json (GCC bugs 105329 and 105651).
  target_compile_options(dovetail_flags INTERFACE -Wno-restrict -Wno-array-bounds
                         -Wno-stringop-overflow -Wno-stringop-overread)
  if(DOVETAIL_UNITY)
    # It takes what a group includes for a header, where a class must not have a private type's members.
    target_compile_options(dovetail_flags INTERFACE -Wno-subobject-linkage)
  endif()
  if(DOVETAIL_PCH OR DOVETAIL_UNITY)
    # g++ looks for garbage in its own memory less often: an eighth less time, half as much memory again.
    target_compile_options(dovetail_flags INTERFACE "SHELL:--param ggc-min-expand=1000"
                           "SHELL:--param ggc-min-heapsize=4000000")
  endif()
endif()
if(CMAKE_COMPILE_WARNING_AS_ERROR)
  target_compile_options(dovetail_flags INTERFACE -Werror)
endif()
if(DOVETAIL_PACKAGE)
  # Fortified and hardened as Debian builds; no path of the build in what is installed.
  target_compile_options(dovetail_flags INTERFACE -ffile-prefix-map=${PROJECT_SOURCE_DIR}/=
                         -fstack-protector-strong)
  target_compile_definitions(dovetail_flags INTERFACE _FORTIFY_SOURCE=2)
  target_link_options(dovetail_flags INTERFACE -Wl,-z,relro -Wl,-z,now)
endif()
if(DOVETAIL_NATIVE AND NOT DOVETAIL_PACKAGE)
  target_compile_options(dovetail_flags INTERFACE -march=native)
endif()
if(DOVETAIL_SANITIZE)
  target_compile_options(dovetail_flags INTERFACE -fsanitize=${DOVETAIL_SANITIZE}
                         -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(dovetail_flags INTERFACE -fsanitize=${DOVETAIL_SANITIZE})
  if(DOVETAIL_SANITIZE MATCHES "address")
    # Pays where every room is built (base/json.h).
    target_compile_definitions(dovetail_flags INTERFACE DOVETAIL_JSON_ONCE)
    # At a fixed address the tool need not correct a million pointers whenever a test starts it.
    target_link_options(dovetail_flags INTERFACE $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  endif()
endif()
target_compile_definitions(dovetail_flags INTERFACE JSON_DIAGNOSTICS=1)

# Code that reads options and files, writes text or makes plans, where little is computed for long: with g++'s -Og it
# compiles in about half the time of -O3 (a few milliseconds of a command).
function(dovetail_cold TARGET)
  target_compile_options(${TARGET} PRIVATE $<$<CONFIG:Release>:-Og>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # which warns falsely of variants with -Og
    target_compile_options(${TARGET} PRIVATE $<$<CONFIG:Release>:-Wno-maybe-uninitialized>)
  endif()
endfunction()

# Of a cold room the files that `dovetail evaluate` goes through for every line.
function(dovetail_hot_sources)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O3>" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

# dovetail_room(base SOURCES a.cc b.cc LIBS dovetail_x [COLD|WARM|HOT]): the static library dovetail_base. WARM: code
# that takes part in measurements, but for inner loops with options of their own: -O1. HOT: code in
# which tests spend their time; without optimisation (build types Debug) it takes four times as long. Not so under the
# thread sanitizer, whose few tests run in less time than optimising takes.
function(dovetail_room NAME)
  cmake_parse_arguments(ROOM "COLD;WARM;HOT" "" "SOURCES;LIBS" ${ARGN})
  add_library(dovetail_${NAME} STATIC ${ROOM_SOURCES})
  set_property(GLOBAL APPEND PROPERTY DOVETAIL_ALL_ROOMS dovetail_${NAME})
  target_link_libraries(dovetail_${NAME} PUBLIC dovetail_flags ${ROOM_LIBS})
  dovetail_unite(dovetail_${NAME})
  if(ROOM_COLD)
    dovetail_cold(dovetail_${NAME})
  elseif(ROOM_WARM)
    target_compile_options(dovetail_${NAME} PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  if(ROOM_HOT AND DOVETAIL_SANITIZE MATCHES "address")
    # Compiled otherwise than the others, and few: they have no precompiled headers.
    target_compile_options(dovetail_${NAME} PRIVATE $<$<CONFIG:Debug>:-O1>)
  else()
    dovetail_precompiled(dovetail_${NAME} ROOM)
  endif()
endfunction()

# What differs where tests are compiled in a build from scratch (scripts/cmake/faster.cmake): they are not the
# code that is judged, and there are many.
add_library(dovetail_test_flags INTERFACE)
if(DOVETAIL_PCH OR DOVETAIL_UNITY)
  target_compile_options(dovetail_test_flags INTERFACE -O0 -g0)
  if(DOVETAIL_SANITIZE MATCHES "undefined")
    target_compile_options(dovetail_test_flags INTERFACE -fno-sanitize=undefined)
  endif()
endif()

# To be called when TARGET links dovetail_flags: of contrary options the last one holds, and a target's own stand
# before those that it inherits.
function(dovetail_test_options TARGET)
  target_link_libraries(${TARGET} PRIVATE dovetail_test_flags)
endfunction()

# dovetail_test(NAME SOURCES x_test.cc LIBS dovetail_x LABELS unit [TOOL]): one test executable. TOOL: it
# starts the program itself, which is then built first; its label becomes unit-tool, as an option of
# gtest_discover_tests cannot be a list.
# Labels: unit golden property fuzz mpi gpu. Tests find the source tree in DOVETAIL_SOURCE_DIR, the tool
# in the environment's DOVETAIL_TOOL, else in the macro of this name.
function(dovetail_test NAME)
  cmake_parse_arguments(TEST "TOOL" "" "SOURCES;LIBS;LABELS" ${ARGN})
  add_executable(${NAME} ${TEST_SOURCES})
  target_link_libraries(${NAME} PRIVATE dovetail_flags ${TEST_LIBS} GTest::gmock GTest::gtest_main)
  target_compile_definitions(${NAME} PRIVATE
    DOVETAIL_SOURCE_DIR="${PROJECT_SOURCE_DIR}" DOVETAIL_TOOL="$<TARGET_FILE:dovetail>")
  dovetail_test_options(${NAME})
  dovetail_unite(${NAME})
  dovetail_precompiled(${NAME} TEST)
  if(TEST_TOOL)
    add_dependencies(${NAME} dovetail)
    string(APPEND TEST_LABELS "-tool")
  endif()
  include(GoogleTest)
  gtest_discover_tests(${NAME} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 300
                       PROPERTIES LABELS "${TEST_LABELS}" TIMEOUT 300)
endfunction()

# dovetail_benchmark(NAME SOURCES x_bench.cc LIBS dovetail_x): one benchmark executable.
function(dovetail_benchmark NAME)
  cmake_parse_arguments(BENCH "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(${NAME} ${BENCH_SOURCES})
  target_link_libraries(${NAME} PRIVATE dovetail_flags ${BENCH_LIBS} benchmark::benchmark)
  if(NOT TARGET dovetail_benchmarks)
    add_custom_target(dovetail_benchmarks)
  endif()
  add_dependencies(dovetail_benchmarks ${NAME})
endfunction()
