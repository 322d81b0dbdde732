# Whether the CUDA module is built: DOVETAIL_CUDA = AUTO (if the toolkit and NCCL are there), ON (fail if
# not), OFF. Sets DOVETAIL_CUDA_REASON: empty when it is built, else why not; the tool repeats it to those
# who ask for the backend.
#
# Architectures must be set before the language is enabled (CMake would silently take 75). CMake 3.25 knows
# CUDA only up to C++17; nvcc 12 and later take C++20 all the same.

set(DOVETAIL_CUDA AUTO CACHE STRING "CUDA module: AUTO (if found), ON (fail if absent), OFF")
set_property(CACHE DOVETAIL_CUDA PROPERTY STRINGS AUTO ON OFF)

set(DOVETAIL_CUDA_REASON "")
if(DOVETAIL_CUDA STREQUAL "OFF")
  set(DOVETAIL_CUDA_REASON "it was configured with DOVETAIL_CUDA=OFF")
else()
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
    set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80 90 100)
    # CUDA before 12.8 does not know 100, and would fail on it.
    find_program(DOVETAIL_NVCC nvcc HINTS "${CMAKE_CUDA_COMPILER}/.." "$ENV{CUDACXX}/..")
    execute_process(COMMAND ${DOVETAIL_NVCC} --list-gpu-arch OUTPUT_VARIABLE KNOWN_ARCHITECTURES ERROR_QUIET)
    if(KNOWN_ARCHITECTURES AND NOT KNOWN_ARCHITECTURES MATCHES "compute_100")
      list(REMOVE_ITEM CMAKE_CUDA_ARCHITECTURES 100)
    endif()
  endif()
  include(CheckLanguage)
  check_language(CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(DOVETAIL_CUDA_REASON "no CUDA compiler (nvcc) was found when it was built")
  else()
    enable_language(CUDA)
    foreach(KIND STANDARD EXTENSION)
      if(NOT DEFINED CMAKE_CUDA20_${KIND}_COMPILE_OPTION)
        set(CMAKE_CUDA20_${KIND}_COMPILE_OPTION "-std=c++20")
      endif()
    endforeach()
    # FindCUDAToolkit of CMake 3.25 marks this target as deprecated also where the toolkit has no such
    # library (CUDA 13.0), and fails. Nothing here uses it.
    if(NOT TARGET CUDA::nvToolsExt)
      add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
    endif()
    find_package(CUDAToolkit 12.4 QUIET)
    find_package(NCCL 2.19 QUIET MODULE)
    if(NOT CUDAToolkit_FOUND)
      set(DOVETAIL_CUDA_REASON "no CUDA toolkit from 12.4 on was found when it was built")
    elseif(NOT NCCL_FOUND)
      set(DOVETAIL_CUDA_REASON "no NCCL from 2.19 on was found when it was built")
    endif()
  endif()
endif()

if(DOVETAIL_CUDA_REASON STREQUAL "")
  message(STATUS "CUDA module: CUDA ${CUDAToolkit_VERSION}, NCCL ${NCCL_VERSION}, "
                 "architectures ${CMAKE_CUDA_ARCHITECTURES}")
elseif(DOVETAIL_CUDA STREQUAL "ON")
  message(FATAL_ERROR "DOVETAIL_CUDA=ON, but ${DOVETAIL_CUDA_REASON}")
else()
  message(STATUS "CUDA module: not built, ${DOVETAIL_CUDA_REASON}")
endif()
