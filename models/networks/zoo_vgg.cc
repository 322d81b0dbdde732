// VGG-16, configuration D without batch norm, as in torchvision/models/vgg.py: a few very large
// linear layers behind small convolutions, so that two gradients hold most of the bytes.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/zoo_families.h"
#include "models/networks/zoo_layers.h"

#include <array>
#include <string>

namespace dovetail::models::zoo {
namespace {

// Channels of the 3x3 convolutions, each followed by a ReLU; kPool halves the image.
constexpr int kPool = 0;
constexpr std::array kFeatures{64,    64,  kPool, 128, 128,   kPool, 256, 256, 256,
                               kPool, 512, 512,   512, kPool, 512,   512, 512, kPool};
constexpr std::array<std::int64_t, 3> kClassifier{4096, 4096, 1000};

// Layers are numbered as in an nn.Sequential: a convolution and its ReLU take two numbers, a pool
// takes one; in the classifier a linear layer, its ReLU and its dropout take three.
Value vgg16(Builder& b) {
  Value x = image_batch(b, 3, kImageNetSide);
  int number = 0;
  const auto next = [&number] { return "features." + std::to_string(number++); };
  for (const int channels : kFeatures) {
    if (channels == kPool) {
      x = pool(b, next(), x,
               {.kernel = {.height = 2, .width = 2, .stride = 2, .pad = Kernel::Pad::Valid}});
    } else {
      x = conv(b, next(), x, channels, {.height = 3, .width = 3}, Bias::Yes);
      x = relu(b, next(), x);
    }
  }
  x = flatten(x);
  for (std::size_t i = 0; i < kClassifier.size(); ++i) {
    const std::string name = "classifier." + std::to_string(3 * i);
    if (i > 0) x = relu(b, "classifier." + std::to_string(3 * i - 2), x);
    x = linear(b, name, {.in = x.shape[1], .out = kClassifier[i]}, x);
  }
  return x;
}

}  // namespace

std::vector<Model> vgg_models() {
  return {{.entry = {.name = "vgg16",
                     .parameters = 138'357'544,
                     .gradients = 32,
                     .batch = 32,
                     .source = "torchvision vgg.py, configuration D; Simonyan and Zisserman, "
                               "arXiv 1409.1556"},
           .forward = vgg16}};
}

}  // namespace dovetail::models::zoo
