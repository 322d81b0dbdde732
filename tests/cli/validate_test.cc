// dovetail validate, as it prints and as it refuses.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/validate.h"

#include <gmock/gmock.h>

#include <sstream>

#include "base/error.h"

namespace dovetail::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

ValidateOptions public_tables() {
  return {.against = "public",
          .folder = std::string(DOVETAIL_SOURCE_DIR) + "/yardsticks/data",
          .document = {}};
}

std::string validated(const ValidateOptions& options) {
  std::ostringstream out;
  validate(options, out);
  return out.str();
}

TEST(ValidateTest, PrintsARowPerSource) {
  const std::string text = validated(public_tables());
  EXPECT_THAT(text, ContainsRegex("nanotron +1545 "));
  EXPECT_THAT(text, ContainsRegex("duoan +5 +5 +- +- +- +5 "));
  EXPECT_THAT(text, HasSubstr("simumax: 5 rows without a job: model deepseekv2 is not known\n"));
}

TEST(ValidateTest, WritesTheSameAsJson) {
  ValidateOptions options = public_tables();
  options.document.json = true;
  const std::string text = validated(options);
  EXPECT_THAT(text, HasSubstr("\"schema\": \"dovetail.validate/1\""));
  EXPECT_THAT(text, HasSubstr("\"yardstick\": \"torchtitan\""));
  EXPECT_THAT(text, HasSubstr("\"fit_right_percent\": null"));
}

TEST(ValidateTest, RefusesWhatItDoesNotKnowAndTablesThatAreNotThere) {
  ValidateOptions options = public_tables();
  options.against = "private";
  EXPECT_THROW(validated(options), InputError);
  options = public_tables();
  options.folder = "/nowhere";
  EXPECT_THROW(validated(options), InputError);
}

}  // namespace
}  // namespace dovetail::cli
