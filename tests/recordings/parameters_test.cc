// Names for gradients of a trace: lists as people write them, and what is certain.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/support/errors.h"

namespace dovetail::imports {
namespace {

using dovetail::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

models::Profile profile_of(const std::vector<std::int64_t>& sizes) {
  models::Profile profile;
  for (const std::int64_t size : sizes) {
    profile.gradients.push_back({.name = "bucket0.gradient0", .numel = size, .ready = {}});
  }
  return profile;
}

std::vector<std::string> names_of(const models::Profile& profile) {
  std::vector<std::string> names;
  for (const models::ProfiledGradient& gradient : profile.gradients) names.push_back(gradient.name);
  return names;
}

// As printed by print(name, tuple(p.shape)), p.numel(), p.shape, f"{name}: {p.numel()}", and as JSON.
TEST(ParametersTest, AListIsReadAsPeopleWriteIt) {
  const std::vector<Parameter> expected = {{"fc.weight", 20000}, {"fc.bias", 10}, {"scale", 1}};
  for (const char* text :
       {"fc.weight (1000, 20)\nfc.bias (10,)\nscale ()\n", "fc.weight 20000\nfc.bias 10\nscale 1",
        "fc.weight torch.Size([1000, 20]) torch.float32\r\nfc.bias torch.Size([10])\nscale "
        "torch.Size([1])\n",
        "# of the model\n\nfc.weight: 20000\nfc.bias: 10\nscale: 1\n",
        "[[\"fc.weight\", [1000, 20]],\n [\"fc.bias\", [10]],\n [\"scale\", [1]]]\n"}) {
    EXPECT_EQ(read_parameters("list.txt", text).parameters, expected) << text;
  }
}

TEST(ParametersTest, ALineThatIsNoParameterIsNamed) {
  EXPECT_THAT(error_of([] { read_parameters("list.txt", "fc.weight 4\nfc.bias\n"); }),
              HasSubstr("list.txt: line 2: expected a parameter's name"));
  EXPECT_THAT(error_of([] { read_parameters("list.txt", "a 4\na 4\n"); }),
              HasSubstr("stands twice"));
  EXPECT_THAT(error_of([] { read_parameters("list.txt", "a 0\n"); }), HasSubstr("line 1"));
  EXPECT_THAT(error_of([] { read_parameters("list.txt", "a 99999999 99999999\n"); }),
              HasSubstr("line 1"));
  EXPECT_THAT(error_of([] { read_parameters("list.txt", "\n"); }), HasSubstr("no parameter"));
}

ParameterList list() { return {"list.txt", {{"a", 7}, {"b", 5}, {"c", 5}, {"d", 3}}}; }

TEST(ParametersTest, TheReverseOrderOfDefinitionNamesEachGradient) {
  models::Profile profile = profile_of({3, 5, 5, 7});
  const std::vector<std::size_t> ends = {4};
  EXPECT_THAT(name_gradients(profile, ends, GradientSizes::Known, list()), HasSubstr("one by one"));
  EXPECT_THAT(names_of(profile), ElementsAre("d", "c", "b", "a"));
  EXPECT_EQ(profile.gradients[0].definition, 3);
}

// a is ready before the others: the two of 5 elements cannot be told apart, the others can.
TEST(ParametersTest, AnotherOrderIsMappedBySize) {
  models::Profile profile = profile_of({7, 5, 3, 5});
  const std::vector<std::size_t> ends = {4};
  EXPECT_THAT(name_gradients(profile, ends, GradientSizes::Known, list()),
              HasSubstr("2 of 4 have a size of their own"));
  EXPECT_THAT(names_of(profile), ElementsAre("a", "c", "d", "b"));
}

// A frozen parameter has no gradient; one more than the list has is another model.
TEST(ParametersTest, ParametersWithoutAGradientMayBeInTheListAndNotTheOtherWayRound) {
  const std::vector<std::size_t> ends = {2};
  models::Profile frozen = profile_of({3, 5});
  name_gradients(frozen, ends, GradientSizes::Known, list());
  EXPECT_THAT(names_of(frozen), ElementsAre("d", "c"));
  EXPECT_THAT(error_of([&] {
                models::Profile other = profile_of({3, 3});
                name_gradients(other, ends, GradientSizes::Known, list());
              }),
              HasSubstr("no parameter of 3 elements is left for gradient 1 of the trace's 2"));
}

// Buckets of 8 and 12 elements, whose gradients are views and were shared out evenly.
TEST(ParametersTest, SizesOfBucketsAreEnoughWhereTheReverseOrderFillsThem) {
  const std::vector<std::size_t> ends = {2, 4};
  models::Profile profile = profile_of({4, 4, 6, 6});
  name_gradients(profile, ends, GradientSizes::OfBucketsOnly, list());
  EXPECT_THAT(names_of(profile), ElementsAre("d", "c", "b", "a"));
  EXPECT_EQ(profile.gradients[0].numel, 3);
  EXPECT_EQ(profile.gradients[3].numel, 7);
  EXPECT_THAT(error_of([&] {
                models::Profile other = profile_of({5, 5, 5, 5});
                name_gradients(other, ends, GradientSizes::OfBucketsOnly, list());
              }),
              HasSubstr("bucket 0 of the trace has 10 elements"));
  EXPECT_THAT(error_of([&] {
                models::Profile other = profile_of({4, 4, 6});
                name_gradients(other, ends, GradientSizes::OfBucketsOnly, list());
              }),
              HasSubstr("record_shapes=True"));
}

}  // namespace
}  // namespace dovetail::imports
