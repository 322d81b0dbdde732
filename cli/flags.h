// Values of flags that carry a unit. Each throws InputError "FLAG: expected ..., found ...".
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/units.h"

namespace dovetail::cli {

Duration time_of_flag(const std::string& flag, const std::string& text);
// At least one byte.
Bytes size_of_flag(const std::string& flag, const std::string& text);
// "10GB/s", above 0; the "/s" may be left out.
BytesPerSecond rate_of_flag(const std::string& flag, const std::string& text);
// "1gbit", as tc words the rate of a link; at least 1mbit.
BytesPerSecond link_rate_of_flag(const std::string& flag, const std::string& text);

}  // namespace dovetail::cli
