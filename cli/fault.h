// What a person is told where dovetail itself is wrong: a failed check, or an exception that nothing should throw.
//
//   dovetail: schedule/lower/order.cc:164: check failed: chunks == 2 1
//   dovetail: a fault of dovetail, not of what was asked; please report it with: dovetail plan --job ...
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dovetail::cli {

// The second line, up to what was asked.
inline constexpr const char* kFault =
    "a fault of dovetail, not of what was asked; please report it with";

// What a program returns that ended so: EX_SOFTWARE of sysexits.h.
inline constexpr int kFaultCode = 70;

}  // namespace dovetail::cli
