// The workload zoo: well-known networks as Programs, made from their true layer shapes.
//
// Parameter names, shapes and their order are those of the reference code, so the gradients that
// travel are the ones a framework would send. Shapes are from:
//   resnet18, resnet50, resnet152  torchvision/models/resnet.py (He et al., arXiv 1512.03385; the
//                                  stride of a bottleneck is on its 3x3, "v1.5")
//   vgg16                          torchvision/models/vgg.py, configuration D (arXiv 1409.1556)
//   googlenet                      torchvision/models/googlenet.py without the auxiliary heads
//                                  (arXiv 1409.4842)
//   inception_v4                   Cadene and timm inception_v4.py (arXiv 1602.07261), 299 x 299
//   densenet201                    torchvision/models/densenet.py (arXiv 1608.06993)
//   bert_base, bert_large          Hugging Face BertModel, bert-{base,large}-uncased (1810.04805)
//   gpt2, gpt2_{medium,large,xl}, llama2_7b, llama2_70b, mixtral_8x7b
//                                  the models of these names that jobs know (known_models.cc), as transformers 5 runs them:
//                                  zoo_job() is the same step as a job
//   mlp                            784-2048-2048-1024-10 of our own: small enough to run on a CPU
//
// The step: forward ops in layer order; backward ops, last layer first; one update (SGD with
// momentum, or AdamW) per parameter, in the order in which gradients become ready. That order is the reverse
// of the parameter order, which is what PyTorch's DistributedDataParallel assumes of a new model.
//
//   zoo_program("resnet18", {.world_size = 4})
//     forward   conv1.forward          gemm 802816x64x147   reads conv1.weight   writes conv1.out
//     backward  fc.backward.weight     gemm 1000x512x64     writes fc.bias.grad fc.weight.grad
//     backward  fc.backward.input      gemm 64x512x1000     writes avgpool.out.grad
//     optimizer fc.bias.update         memory 20 KB         reads fc.bias.grad   writes fc.bias
//   owes fc.bias.grad, fc.weight.grad, ..., conv1.weight.grad: average over dp
//
// What the costs leave out: zoo_builder.h and zoo_layers.h say it beside each formula.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/networks/job.h"
#include "schedule/program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::models {

struct ZooOptions {
  std::int64_t batch = 0;     // samples per rank; 0: the model's default
  std::int64_t sequence = 0;  // tokens per sample; 0: the model's default; only for text models
  // Of parameters, gradients and activations. Products of f32 are in TF32: PyTorch's convolutions are by default, its
  // matrix products where torch.set_float32_matmul_precision("high") was called.
  schedule::DType dtype = schedule::DType::F32;
  // f32 weights and gradients; what is computed has this type, for which weights and their gradients are cast. Not of BERT.
  jobs::Autocast autocast = jobs::Autocast::No;
  jobs::Optimizer optimizer = jobs::Optimizer::Sgd;  // SGD with momentum, or fused AdamW
  std::int64_t world_size = 8;
};

// One line of the listing. The counts are the published ones; tests hold the Programs against them.
struct ZooEntry {
  std::string name;
  std::int64_t parameters = 0;                // elements
  std::int64_t gradients = 0;                 // tensors
  std::int64_t batch = 0;                     // default, per rank
  std::optional<std::int64_t> sequence = {};  // default; absent: the model takes images or vectors
  std::optional<std::int64_t> sequence_limit = {};  // rows of a learned position table
  std::string source = {};
};

// In a stable order: networks for images, then for text, then mlp.
std::vector<ZooEntry> zoo_entries();
std::vector<std::string> zoo_names();

// The step of a model. Throws InputError for an unknown name (it names the nearest known one) and
// for options that the model does not take. schedule::problems() of the result is empty.
schedule::Program zoo_program(std::string_view name, const ZooOptions& options);

// The job whose step that is, of text models that jobs know. Absent: a model of another kind. Throws as zoo_program does.
std::optional<jobs::Job> zoo_job(std::string_view name, const ZooOptions& options);

}  // namespace dovetail::models
