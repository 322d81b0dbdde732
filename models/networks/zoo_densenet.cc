// DenseNet-201 as in torchvision/models/densenet.py.
//
// Every layer of a block reads all features made before it in the block and adds 32 channels,
// through a 1x1 bottleneck of 128. A transition halves channels and image between blocks.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <array>
#include <string>

namespace dovetail::models::zoo {
namespace {

constexpr std::int64_t kFirstChannels = 64;
constexpr std::int64_t kGrowth = 32;
constexpr std::int64_t kBottleneck = 4 * kGrowth;
constexpr std::array<int, 4> kBlocks{6, 12, 48, 32};  // layers per block: DenseNet-201

Value norm_relu(Builder& b, const std::string& norm_name, const std::string& relu_name,
                const Value& in) {
  return relu(b, relu_name, norm(b, norm_name, NormKind::Batch, in));
}

Value dense_block(Builder& b, const std::string& name, const Value& in, int layers) {
  std::vector<Value> features{in};
  for (int i = 1; i <= layers; ++i) {
    const std::string layer = name + "denselayer" + std::to_string(i) + ".";
    Value x = i == 1 ? in : concat(b, layer + "concat", features);
    x = norm_relu(b, layer + "norm1", layer + "relu1", x);
    x = conv(b, layer + "conv1", x, kBottleneck, {});
    x = norm_relu(b, layer + "norm2", layer + "relu2", x);
    features.push_back(conv(b, layer + "conv2", x, kGrowth, {.height = 3, .width = 3}));
  }
  return concat(b, name + "concat", features);
}

Value transition(Builder& b, const std::string& name, const Value& in) {
  Value x = norm_relu(b, name + "norm", name + "relu", in);
  x = conv(b, name + "conv", x, in.shape[1] / 2, {});
  return pool(b, name + "pool", x,
              {.kind = PoolKind::Average,
               .kernel = {.height = 2, .width = 2, .stride = 2, .pad = Kernel::Pad::Valid}});
}

Value densenet201(Builder& b) {
  Value x = conv(b, "features.conv0", image_batch(b, 3, kImageNetSide), kFirstChannels,
                 {.height = 7, .width = 7, .stride = 2});
  x = norm_relu(b, "features.norm0", "features.relu0", x);
  x = pool(b, "features.pool0", x, {.kernel = {.height = 3, .width = 3, .stride = 2}});
  for (std::size_t i = 0; i < kBlocks.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    x = dense_block(b, "features.denseblock" + number + ".", x, kBlocks[i]);
    if (i + 1 < kBlocks.size()) x = transition(b, "features.transition" + number + ".", x);
  }
  x = norm_relu(b, "features.norm5", "relu", x);
  x = global_pool(b, "avgpool", x);
  return linear(b, "classifier", {.in = x.shape[1], .out = kImageNetClasses}, x);
}

}  // namespace

std::vector<Model> densenet_models() {
  return {{.entry = {.name = "densenet201",
                     .parameters = 20'013'928,
                     .gradients = 604,
                     .batch = 32,
                     .source = "torchvision densenet.py; Huang et al., arXiv 1608.06993"},
           .forward = densenet201}};
}

}  // namespace dovetail::models::zoo
