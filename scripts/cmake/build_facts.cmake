# Writes OUTPUT, the definitions of cli/build_facts.h: run before every build, so that the commit is the one
# that is built. The file stays untouched where nothing changed.
#
#   cmake -D SOURCE=DIR -D BUILD_TYPE=TEXT -D OUTPUT=FILE -P build_facts.cmake
#
# A package sets DOVETAIL_COMMIT in the environment where it is built outside of git.
set(COMMIT unknown)
if(DEFINED ENV{DOVETAIL_COMMIT})
  set(COMMIT $ENV{DOVETAIL_COMMIT})
elseif(EXISTS ${SOURCE}/.git)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=7 --exclude=*
                  OUTPUT_VARIABLE FOUND OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE CODE)
  if(CODE EQUAL 0)
    set(COMMIT ${FOUND})
  endif()
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [=[
// Written by scripts/cmake/build_facts.cmake.
#include "cli/build_facts.h"

namespace dovetail::cli {

const char* const kCommit = "@COMMIT@";
const char* const kBuildType = "@BUILD_TYPE@";

}  // namespace dovetail::cli
]=] @ONLY)
