// Completions of shells, made from the commands themselves.
//
//   dovetail completion bash > ~/.local/share/bash-completion/completions/dovetail
//
// Commands and options complete everywhere; values where there is a list of them: workloads, clusters,
// policies, frameworks. All others complete as files.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/command_text.h"

namespace dovetail::cli {

// "bash", "zsh", "fish", or "man" for the manual page. `data_dir` holds workloads/ and clusters/. Throws
// InputError for another word.
std::string completion_text(const std::string& shell, const CommandText& tool,
                            const std::string& data_dir);

// The manual page, for man(1): dovetail.1.
std::string man_page(const CommandText& tool);

}  // namespace dovetail::cli
