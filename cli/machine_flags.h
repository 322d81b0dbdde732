// Binding run, calibrate and selftest.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/calibrate.h"
#include "cli/calibrate_cuda.h"
#include "cli/command_line.h"
#include "cli/run.h"
#include "cli/selftest.h"

namespace dovetail::cli {

// Either backend's calibration; what both need is bound once.
struct CalibrateBinding {
  CalibrateOptions cpu;
  CalibrateCudaOptions cuda;
};

struct MachineOptions {
  RunCommandOptions run;
  CalibrateBinding calibrate;
  SelftestOptions selftest;
};

void bind_machine_commands(CLI::App& app, MachineOptions& options, Action& action);

}  // namespace dovetail::cli
