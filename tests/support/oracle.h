// Oracles: figures of the source systems that ours must reproduce (docs/source-systems.md, O1 to
// O8). Each is printed as it was computed here, so that one command lists them all:
//
//   ctest --test-dir build -R '\.O[1-8]' -V | grep -o 'oracle O.*'
//   oracle O4 step with one wait per bucket, us: 75
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <iostream>
#include <string>

namespace dovetail::testing {

template <class Computed, class Known>
void expect_oracle(const std::string& what, const Computed& computed, const Known& known) {
  std::cout << "oracle " << what << ": " << ::testing::PrintToString(computed) << '\n';
  EXPECT_EQ(computed, known) << what;
}

}  // namespace dovetail::testing
