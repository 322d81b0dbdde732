// ResNet-18, -50 and -152 as in torchvision/models/resnet.py.
//
// Four stages of residual blocks on 64, 128, 256 and 512 channels. A basic block is two 3x3
// convolutions; a bottleneck is 1x1, 3x3 (with the stride) and 1x1 to four times the channels. The
// first block of a stage whose shape changes has a 1x1 convolution on its shortcut.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <array>
#include <string>
#include <utility>

namespace dovetail::models::zoo {
namespace {

enum class ResidualBlock { Basic, Bottleneck };
struct ResNetArchitecture {
  ResidualBlock block = ResidualBlock::Basic;
  std::array<int, 4> depths{};  // blocks per stage
};

Value conv_bn(Builder& b, const std::string& conv_name, const std::string& bn_name, const Value& in,
              std::int64_t channels, const Kernel& kernel) {
  return norm(b, bn_name, NormKind::Batch, conv(b, conv_name, in, channels, kernel));
}

Value residual_block(Builder& b, const std::string& name, ResidualBlock kind, const Value& in,
                     std::int64_t width, std::int64_t stride) {
  const std::int64_t expansion = kind == ResidualBlock::Bottleneck ? 4 : 1;
  struct Step {
    std::int64_t channels;
    Kernel kernel;
  };
  const Kernel one{};
  const Kernel three{.height = 3, .width = 3};
  const Kernel strided{.height = 3, .width = 3, .stride = stride};
  const std::vector<Step> steps =
      kind == ResidualBlock::Basic
          ? std::vector<Step>{{width, strided}, {width, three}}
          : std::vector<Step>{{width, one}, {width, strided}, {width * expansion, one}};
  Value x = in;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const std::string number = std::to_string(i + 1);
    if (i > 0) x = relu(b, name + "relu" + std::to_string(i), x);
    x = conv_bn(b, name + "conv" + number, name + "bn" + number, x, steps[i].channels,
                steps[i].kernel);
  }
  Value shortcut = in;
  if (stride != 1 || in.shape[1] != width * expansion) {
    shortcut = conv_bn(b, name + "downsample.0", name + "downsample.1", in, width * expansion,
                       {.height = 1, .width = 1, .stride = stride});
  }
  return relu(b, name + "relu", sum(b, name + "add", {x, shortcut}));
}

Value resnet(Builder& b, const ResNetArchitecture& architecture) {
  Value x = conv_bn(b, "conv1", "bn1", image_batch(b, 3, kImageNetSide), 64,
                    {.height = 7, .width = 7, .stride = 2});
  x = relu(b, "relu", x);
  x = pool(b, "maxpool", x, {.kernel = {.height = 3, .width = 3, .stride = 2}});
  std::int64_t width = 64;
  for (std::size_t stage = 0; stage < architecture.depths.size(); ++stage) {
    for (int block = 0; block < architecture.depths[stage]; ++block) {
      const std::string name =
          "layer" + std::to_string(stage + 1) + "." + std::to_string(block) + ".";
      const std::int64_t stride = stage > 0 && block == 0 ? 2 : 1;
      x = residual_block(b, name, architecture.block, x, width, stride);
    }
    width *= 2;
  }
  x = global_pool(b, "avgpool", x);
  return linear(b, "fc", {.in = x.shape[1], .out = kImageNetClasses}, x);
}

Model resnet_model(ZooEntry entry, const ResNetArchitecture& architecture) {
  entry.source = "torchvision resnet.py; He et al., arXiv 1512.03385";
  return {.entry = std::move(entry),
          .forward = [architecture](Builder& b) { return resnet(b, architecture); }};
}

}  // namespace

std::vector<Model> resnet_models() {
  return {
      resnet_model({.name = "resnet18", .parameters = 11'689'512, .gradients = 62, .batch = 64},
                   {.block = ResidualBlock::Basic, .depths = {2, 2, 2, 2}}),
      resnet_model({.name = "resnet50", .parameters = 25'557'032, .gradients = 161, .batch = 64},
                   {.block = ResidualBlock::Bottleneck, .depths = {3, 4, 6, 3}}),
      resnet_model({.name = "resnet152", .parameters = 60'192'808, .gradients = 467, .batch = 32},
                   {.block = ResidualBlock::Bottleneck, .depths = {3, 8, 36, 3}}),
  };
}

}  // namespace dovetail::models::zoo
