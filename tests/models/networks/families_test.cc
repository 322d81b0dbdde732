// Every family that a job can name has the kernels that dovetail.torch describes of the same model: as many of each class, with as many
// bytes and FLOP, forward and backward.
//
// data/families.json: small models of random weights, made for this test; counts of PyTorch 2.11 with transformers 5.17 on the meta
// device (scripts/checks/described_families.py).
//
// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "base/json.h"
#include "models/networks/program.h"
#include "models/networks/text.h"

namespace dovetail::jobs {
namespace {

struct Counted {
  std::int64_t kernels = 0;
  double amount = 0;  // bytes; FLOP of products
  double flop = 0;    // of attention
};
using Classes = std::map<std::string, Counted>;

void add(Classes& classes, const schedule::Kernel& kernel) {
  if (const auto* gemm = std::get_if<schedule::GemmWork>(&kernel)) {
    Counted& entry = classes["product"];
    ++entry.kernels;
    entry.amount += 2 * static_cast<double>(gemm->m) * static_cast<double>(gemm->n) *
                    static_cast<double>(gemm->k) * static_cast<double>(gemm->count);
    return;
  }
  const auto& memory = std::get<schedule::MemoryWork>(kernel);
  Counted& entry = classes[memory.attention ? "attention" : std::string(to_string(memory.access))];
  ++entry.kernels;
  entry.amount += static_cast<double>(memory.bytes.count());
  entry.flop += memory.flop.count();
}

void expect_alike(const Classes& found, const nlohmann::json& described) {
  constexpr double kBytes = 0.01;
  for (const auto& [name, unused] : found)
    EXPECT_TRUE(described.contains(name)) << name << " is not described";
  for (const auto& [name, entry] : described.items()) {
    SCOPED_TRACE(name);
    const auto at = found.find(name);
    const Counted counted = at == found.end() ? Counted{} : at->second;
    EXPECT_EQ(counted.kernels, entry[0].get<std::int64_t>());
    const auto amount = entry[1].get<double>();
    EXPECT_NEAR(counted.amount, amount, name == "product" ? 0 : kBytes * amount);
    EXPECT_DOUBLE_EQ(counted.flop, entry[2].get<double>());
  }
}

const nlohmann::json& families() {
  static const nlohmann::json kAll = [] {
    std::ifstream file(std::string(DOVETAIL_SOURCE_DIR) +
                       "/tests/models/networks/data/families.json");
    return nlohmann::json::parse(file)["families"];
  }();
  return kAll;
}

std::vector<std::string> family_names() {
  std::vector<std::string> names;
  for (const nlohmann::json& family : families()) names.push_back(family["name"]);
  return names;
}

class FamiliesTest : public ::testing::TestWithParam<std::string> {};

TEST_P(FamiliesTest, HasTheKernelsThatAreDescribed) {
  const auto at = std::ranges::find_if(
      families(), [](const nlohmann::json& family) { return family["name"] == GetParam(); });
  const nlohmann::json& family = *at;
  const std::string path = ::testing::TempDir() + GetParam() + ".json";
  std::ofstream(path) << family["config"].dump();
  const std::string samples = std::to_string(family["samples"].get<int>());
  const Job job =
      parse_job(path + ":gbs=" + samples + ",mbs=" + samples +
                ",seq=" + std::to_string(family["sequence"].get<int>()) + ",kernels=transformers" +
                (family.value("checkpoint", false) ? ",recompute=full" : ""));
  std::map<schedule::Phase, Classes> phases;
  for (const schedule::Op& op : program_of(job).ops)
    for (const schedule::Kernel& kernel : schedule::kernels_of(op.work))
      add(phases[op.phase], kernel);
  {
    SCOPED_TRACE("forward");
    expect_alike(phases[schedule::Phase::Forward], family["forward"]);
  }
  SCOPED_TRACE("backward");
  expect_alike(phases[schedule::Phase::Backward], family["backward"]);
}

INSTANTIATE_TEST_SUITE_P(All, FamiliesTest, ::testing::ValuesIn(family_names()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace dovetail::jobs
