// How far a calibration may be trusted, from its own figures and from what the machine did meanwhile.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "exec/machine.h"
#include "models/clusters/cluster.h"

namespace dovetail::calibrate {

// What a cluster's own figures do not tell.
struct Evidence {
  exec::Conditions conditions;
  std::int64_t contention_ops = 0;  // that ran side by side with the collectives below
  std::int64_t contention_collectives = 0;
  std::map<std::string, double> figures = {};  // anything else, for the file
};
models::Quality quality_of(const models::Cluster& cluster, const Evidence& evidence);

// A reason why the measurements should not be used, unless it is known already.
void object(models::Cluster& cluster, const std::string& objection);

}  // namespace dovetail::calibrate
