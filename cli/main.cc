// The executable: hands the command line to the front door and returns its exit code.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/front_door.h"

int main(int argc, char** argv) { return dovetail::cli::answer(argc, argv); }
