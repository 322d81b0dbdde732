// Binding show, reshard and validate.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/command_line.h"
#include "cli/reshard.h"
#include "cli/show.h"
#include "cli/validate.h"

namespace dovetail::cli {

struct LookOptions {
  ShowOptions show;
  ReshardOptions reshard;
  ValidateOptions validate;
};

void bind_show_commands(CLI::App& app, LookOptions& options, Action& action);

}  // namespace dovetail::cli
