// A multi-layer perceptron for 28 x 28 images: small enough to run for real on a CPU.
//
// A step on one core is about 6 FLOP x 7.9 M parameters x 64 samples = 3 GFLOP, while its gradients
// are 32 MB in fp32: enough of both to make overlap visible.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <array>
#include <string>

namespace dovetail::models::zoo {
namespace {

constexpr std::array<std::int64_t, 5> kWidths{784, 2048, 2048, 1024, 10};

Value perceptron(Builder& b) {
  Value x{.tensor = std::nullopt, .shape = {b.batch(), kWidths[0]}};
  for (std::size_t i = 1; i < kWidths.size(); ++i) {
    if (i > 1) x = relu(b, "relu" + std::to_string(i - 1), x);
    x = linear(b, "fc" + std::to_string(i), {.in = kWidths[i - 1], .out = kWidths[i]}, x);
  }
  return x;
}

}  // namespace

std::vector<Model> mlp_models() {
  return {{.entry = {.name = "mlp",
                     .parameters = 7'912'458,
                     .gradients = 8,
                     .batch = 64,
                     .source = "784-2048-2048-1024-10, ours"},
           .forward = perceptron}};
}

}  // namespace dovetail::models::zoo
