// Changes to a text that leave it nearly readable: numbers and quoted strings take each other's place,
// numbers change, lines are left out, repeated or exchanged. Bytes changed at random seldom pass the JSON
// parser; these do, and reach the code that believes what the file says.
//
//   std::string other = mutate_tokens(text, seed);   // the same for the same text and seed
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dovetail {

// One to four changes. A text without numbers, strings or lines comes back as it is.
std::string mutate_tokens(std::string_view text, std::uint64_t seed);

}  // namespace dovetail
