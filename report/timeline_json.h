// A Timeline as JSON, part of dovetail.report/1.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "report/timeline.h"

#include <nlohmann/json_fwd.hpp>

namespace dovetail::report {

nlohmann::ordered_json timeline_json(const Timeline& line);

}  // namespace dovetail::report
