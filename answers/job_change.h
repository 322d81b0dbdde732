// How two jobs differ, in the words of a change to one of them.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/networks/job.h"

namespace dovetail::predict {

// All that differs: "tp=4,schedule=zbv,vp=2"; whose job it is (`as`) and what is left at its default are not said.
std::string change_between(const jobs::Job& from, const jobs::Job& to);

// The same, keys that belong together in one text each: {"schedule=zbv,vp=2", "tp=4"}.
std::vector<std::string> changes_between(const jobs::Job& from, const jobs::Job& to);

}  // namespace dovetail::predict
