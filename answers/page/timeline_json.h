// A Timeline as JSON: the part of schema dovetail.report/1 that the page draws.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "answers/page/timeline.h"

#include <nlohmann/json_fwd.hpp>

namespace dovetail::report {

nlohmann::ordered_json timeline_json(const Timeline& line);

}  // namespace dovetail::report
