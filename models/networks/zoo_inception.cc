// GoogLeNet (torchvision/models/googlenet.py) and Inception-v4 (Cadene's and timm's
// inception_v4.py).
//
// Both are chains of blocks, and a block is a small graph of convolutions and pools whose loose
// ends are concatenated. A table of rows describes a block: each row names the row that it reads,
// so the table reads like the code it was taken from. Rows stand in order of definition.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/error.h"
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::models::zoo {
namespace {

constexpr std::int64_t kMaxPool = 0;  // instead of a number of channels
constexpr std::int64_t kAveragePool = -1;

constexpr Kernel k1x1{};
constexpr Kernel k3x3{.height = 3, .width = 3};
constexpr Kernel k7x7Half{.height = 7, .width = 7, .stride = 2};
constexpr Kernel k1x7{.height = 1, .width = 7};
constexpr Kernel k7x1{.height = 7, .width = 1};
constexpr Kernel k1x3{.height = 1, .width = 3};
constexpr Kernel k3x1{.height = 3, .width = 1};
constexpr Kernel k3x3Valid{.height = 3, .width = 3, .pad = Kernel::Pad::Valid};
constexpr Kernel k3x3Half{.height = 3, .width = 3, .stride = 2, .pad = Kernel::Pad::Valid};
constexpr Kernel k2x2Half{.height = 2, .width = 2, .stride = 2, .pad = Kernel::Pad::Valid};

struct Row {
  std::string_view name;
  std::string_view from;  // another row's name; empty: the input of the block
  std::int64_t channels = 0;
  Kernel kernel;
};

// Convolution without bias, batch norm, ReLU.
Value basic_conv(Builder& b, const std::string& name, const Value& in, std::int64_t channels,
                 const Kernel& kernel) {
  Value x = conv(b, name + ".conv", in, channels, kernel);
  x = norm(b, name + ".bn", NormKind::Batch, x);
  return relu(b, name + ".relu", x);
}

Value run_row(Builder& b, const std::string& name, const Row& row, const Value& in) {
  if (row.channels > 0) return basic_conv(b, name, in, row.channels, row.kernel);
  const PoolKind kind = row.channels == kMaxPool ? PoolKind::Max : PoolKind::Average;
  return pool(b, name, in, {.kind = kind, .kernel = row.kernel});
}

Value block_of(Builder& b, const std::string& name, const Value& in, std::span<const Row> table) {
  std::map<std::string_view, Value> values{{"", in}};
  std::vector<Value> ends;
  for (const Row& row : table) {
    const auto input = values.find(row.from);
    DOVETAIL_CHECK(input != values.end()) << row.name << " reads " << row.from << " too early";
    const Value out = run_row(b, name + "." + std::string(row.name), row, input->second);
    values.emplace(row.name, out);
    if (std::ranges::count(table, row.name, &Row::from) == 0) ends.push_back(out);
  }
  return concat(b, name + ".concat", std::move(ends));
}

// ---- GoogLeNet -------------------------------------------------------------------------------

struct GoogleNetBlock {
  std::string_view name;
  std::int64_t one, three_reduce, three, five_reduce, five, pool;
};
constexpr GoogleNetBlock kGoogleNet[] = {
    {"inception3a", 64, 96, 128, 16, 32, 32},
    {"inception3b", 128, 128, 192, 32, 96, 64},
    {"maxpool3", 0, 0, 0, 0, 0, 0},
    {"inception4a", 192, 96, 208, 16, 48, 64},
    {"inception4b", 160, 112, 224, 24, 64, 64},
    {"inception4c", 128, 128, 256, 24, 64, 64},
    {"inception4d", 112, 144, 288, 32, 64, 64},
    {"inception4e", 256, 160, 320, 32, 128, 128},
    {"maxpool4", 0, 0, 0, 0, 0, 0},
    {"inception5a", 256, 160, 320, 32, 128, 128},
    {"inception5b", 384, 192, 384, 48, 128, 128},
};

// torchvision's "5x5" branch is a 3x3 convolution, a slip that its weights depend on.
std::vector<Row> googlenet_table(const GoogleNetBlock& c) {
  return {{"branch1", "", c.one, k1x1},
          {"branch2.0", "", c.three_reduce, k1x1},
          {"branch2.1", "branch2.0", c.three, k3x3},
          {"branch3.0", "", c.five_reduce, k1x1},
          {"branch3.1", "branch3.0", c.five, k3x3},
          {"branch4.0", "", kMaxPool, k3x3},
          {"branch4.1", "branch4.0", c.pool, k1x1}};
}

Value googlenet(Builder& b) {
  const auto halve = [&b](const std::string& name, const Value& in, const Kernel& kernel) {
    return pool(b, name, in, {.kernel = kernel, .rounding = Rounding::Up});
  };
  Value x = basic_conv(b, "conv1", image_batch(b, 3, 224), 64, k7x7Half);
  x = halve("maxpool1", x, k3x3Half);
  x = basic_conv(b, "conv2", x, 64, k1x1);
  x = basic_conv(b, "conv3", x, 192, k3x3);
  x = halve("maxpool2", x, k3x3Half);
  for (const GoogleNetBlock& row : kGoogleNet) {
    const std::string name(row.name);
    if (row.one > 0) {
      x = block_of(b, name, x, googlenet_table(row));
    } else {
      x = halve(name, x, row.name == "maxpool3" ? k3x3Half : k2x2Half);
    }
  }
  x = global_pool(b, "avgpool", x);
  return linear(b, "fc", {.in = x.shape[1], .out = kImageNetClasses}, x);
}

// ---- Inception-v4 ----------------------------------------------------------------------------

constexpr Row kMixed3a[] = {{"maxpool", "", kMaxPool, k3x3Half}, {"conv", "", 96, k3x3Half}};
constexpr Row kMixed4a[] = {
    {"branch0.0", "", 64, k1x1},          {"branch0.1", "branch0.0", 96, k3x3Valid},
    {"branch1.0", "", 64, k1x1},          {"branch1.1", "branch1.0", 64, k1x7},
    {"branch1.2", "branch1.1", 64, k7x1}, {"branch1.3", "branch1.2", 96, k3x3Valid}};
constexpr Row kMixed5a[] = {{"conv", "", 192, k3x3Half}, {"maxpool", "", kMaxPool, k3x3Half}};
constexpr Row kInceptionA[] = {{"branch0", "", 96, k1x1},
                               {"branch1.0", "", 64, k1x1},
                               {"branch1.1", "branch1.0", 96, k3x3},
                               {"branch2.0", "", 64, k1x1},
                               {"branch2.1", "branch2.0", 96, k3x3},
                               {"branch2.2", "branch2.1", 96, k3x3},
                               {"branch3.0", "", kAveragePool, k3x3},
                               {"branch3.1", "branch3.0", 96, k1x1}};
constexpr Row kReductionA[] = {{"branch0", "", 384, k3x3Half},
                               {"branch1.0", "", 192, k1x1},
                               {"branch1.1", "branch1.0", 224, k3x3},
                               {"branch1.2", "branch1.1", 256, k3x3Half},
                               {"branch2", "", kMaxPool, k3x3Half}};
constexpr Row kInceptionB[] = {{"branch0", "", 384, k1x1},
                               {"branch1.0", "", 192, k1x1},
                               {"branch1.1", "branch1.0", 224, k1x7},
                               {"branch1.2", "branch1.1", 256, k7x1},
                               {"branch2.0", "", 192, k1x1},
                               {"branch2.1", "branch2.0", 192, k7x1},
                               {"branch2.2", "branch2.1", 224, k1x7},
                               {"branch2.3", "branch2.2", 224, k7x1},
                               {"branch2.4", "branch2.3", 256, k1x7},
                               {"branch3.0", "", kAveragePool, k3x3},
                               {"branch3.1", "branch3.0", 128, k1x1}};
constexpr Row kReductionB[] = {
    {"branch0.0", "", 192, k1x1},          {"branch0.1", "branch0.0", 192, k3x3Half},
    {"branch1.0", "", 256, k1x1},          {"branch1.1", "branch1.0", 256, k1x7},
    {"branch1.2", "branch1.1", 320, k7x1}, {"branch1.3", "branch1.2", 320, k3x3Half},
    {"branch2", "", kMaxPool, k3x3Half}};
constexpr Row kInceptionC[] = {{"branch0", "", 256, k1x1},
                               {"branch1_0", "", 384, k1x1},
                               {"branch1_1a", "branch1_0", 256, k1x3},
                               {"branch1_1b", "branch1_0", 256, k3x1},
                               {"branch2_0", "", 384, k1x1},
                               {"branch2_1", "branch2_0", 448, k3x1},
                               {"branch2_2", "branch2_1", 512, k1x3},
                               {"branch2_3a", "branch2_2", 256, k1x3},
                               {"branch2_3b", "branch2_2", 256, k3x1},
                               {"branch3.0", "", kAveragePool, k3x3},
                               {"branch3.1", "branch3.0", 256, k1x1}};

struct Repeat {
  int times = 1;
  std::span<const Row> table;
};
constexpr Repeat kInceptionV4[] = {{1, kMixed3a},    {1, kMixed4a},    {1, kMixed5a},
                                   {4, kInceptionA}, {1, kReductionA}, {7, kInceptionB},
                                   {1, kReductionB}, {3, kInceptionC}};

Value inception_v4(Builder& b) {
  constexpr Row kStem[] = {{"", "", 32, k3x3Half}, {"", "", 32, k3x3Valid}, {"", "", 64, k3x3}};
  int number = 0;
  const auto next = [&number] { return "features." + std::to_string(number++); };
  Value x = image_batch(b, 3, 299);
  for (const Row& row : kStem) x = basic_conv(b, next(), x, row.channels, row.kernel);
  for (const Repeat& repeat : kInceptionV4) {
    for (int i = 0; i < repeat.times; ++i) x = block_of(b, next(), x, repeat.table);
  }
  x = global_pool(b, "avg_pool", x);
  return linear(b, "last_linear", {.in = x.shape[1], .out = kImageNetClasses}, x);
}

}  // namespace

std::vector<Model> inception_models() {
  return {{.entry = {.name = "googlenet",
                     .parameters = 6'624'904,
                     .gradients = 173,
                     .batch = 64,
                     .source = "torchvision googlenet.py without auxiliary heads; Szegedy et al., "
                               "arXiv 1409.4842"},
           .forward = googlenet},
          {.entry = {.name = "inception_v4",
                     .parameters = 42'679'816,
                     .gradients = 449,
                     .batch = 32,
                     .source = "timm inception_v4.py; Szegedy et al., arXiv 1602.07261"},
           .forward = inception_v4}};
}

}  // namespace dovetail::models::zoo
