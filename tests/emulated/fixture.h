// Tests on the emulated device: each begins with options of its own, and fails if a rule was broken
// that it did not ask for.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tests/emulated/emulated.h"

#include <gtest/gtest.h>

#include <string>

namespace dovetail::emulated {

class EmulatedTest : public ::testing::Test {
 protected:
  void SetUp() override { use({}); }
  void TearDown() override {
    for (const std::string& complaint : take_complaints()) ADD_FAILURE() << complaint;
  }
  static void use(const Options& options) {
    static_cast<void>(take_complaints());
    configure(options);
  }
};

}  // namespace dovetail::emulated
