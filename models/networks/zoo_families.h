// The families of the zoo: each source file zoo_FAMILY.cc lists its models.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/networks/job.h"
#include "models/networks/zoo.h"
#include "models/networks/zoo_builder.h"

#include <functional>
#include <vector>

namespace dovetail::models::zoo {

struct Model {
  ZooEntry entry;
  // Puts all layers on the tape and returns the value that the loss is taken of;
  std::function<Value(Builder&)> forward = {};
  // or the job that it is. REQUIRES: batch and sequence of the options are resolved.
  std::function<jobs::Job(const ZooOptions&)> job = {};
};

std::vector<Model> resnet_models();
std::vector<Model> vgg_models();
std::vector<Model> inception_models();  // googlenet and inception_v4
std::vector<Model> densenet_models();
std::vector<Model> bert_models();
std::vector<Model> text_models();  // GPT-2, Llama, Mixtral
std::vector<Model> mlp_models();

}  // namespace dovetail::models::zoo
