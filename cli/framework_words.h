// The advice on buckets, as lines for people.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "diagnose/diagnosis.h"

namespace dovetail::cli {

// The flat range; the line to paste, or that no line would help; what the framework cannot express, with
// what that costs where it was simulated.
std::vector<std::string> advice_lines(const diagnose::BucketAdvice& advice);

}  // namespace dovetail::cli
