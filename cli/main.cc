// The executable: hands the command line to the front door and returns its exit code.
//
// Memory that is freed is kept: plans of pipelines make and free some hundred MB again and again, and asking the system
// for them anew takes a sixth of the time.
//
// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include "cli/front_door.h"

int main(int argc, char** argv) {
  static_cast<void>(::mallopt(M_MMAP_THRESHOLD, 1 << 30));
  static_cast<void>(::mallopt(M_TRIM_THRESHOLD, 1 << 30));
  static_cast<void>(::mallopt(M_TOP_PAD, 16 << 20));
  return dovetail::cli::answer(argc, argv);
}
