# FindNCCL: the headers and the library of NCCL, wherever a toolkit, a package or a wheel put them.
#
# Looks in NCCL_ROOT (variable or environment), then beside the CUDA toolkit, then in the usual places. A
# wheel holds only libnccl.so.2, so that name is searched too, directory by directory: otherwise a
# libnccl.so elsewhere would win over the one in NCCL_ROOT.
# Result: NCCL_FOUND, NCCL_VERSION (from nccl.h), target NCCL::NCCL.

find_path(NCCL_INCLUDE_DIR nccl.h
          HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_ROOT} ${CUDAToolkit_INCLUDE_DIRS}
          PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2 NAMES_PER_DIR
             HINTS ${NCCL_ROOT} ENV NCCL_ROOT ${CUDAToolkit_ROOT} ${CUDAToolkit_LIBRARY_DIR}
             PATH_SUFFIXES lib lib64)

if(NCCL_INCLUDE_DIR)
  foreach(PART MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h LINE REGEX "^#define NCCL_${PART} +[0-9]+")
    string(REGEX MATCH "[0-9]+" NCCL_${PART} "${LINE}")
  endforeach()
  set(NCCL_VERSION ${NCCL_MAJOR}.${NCCL_MINOR}.${NCCL_PATCH})
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR
                                  VERSION_VAR NCCL_VERSION)
if(NCCL_FOUND AND NOT TARGET NCCL::NCCL)
  add_library(NCCL::NCCL UNKNOWN IMPORTED)
  set_target_properties(NCCL::NCCL PROPERTIES IMPORTED_LOCATION ${NCCL_LIBRARY}
                        INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
