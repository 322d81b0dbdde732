// LoRA (Hu et al., arXiv 2106.09685): which weights of a job have adapters that train in their place, and what
// of the job trains.
//
//   y = W x + B A x      W, n x k, is frozen; A, rank x k, and B, n x rank, train
//
// Adapters stand beside the matrix of a linear layer of attention (lora_on=attention), and of dense feed-forward networks,
// too (all-linear, PEFT's word, which leaves out the output layer). Norms, biases, embedding, output layer, router and experts
// are frozen. With tp B is cut as a column-parallel W, A as a row-parallel one, and the other is whole, as
// PEFT does (tuners/lora/model.py).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "models/networks/job.h"
#include "models/networks/tensors.h"

namespace dovetail::jobs {

// Whether linear layers of this part of a layer have adapters.
bool has_adapters(const Job& job, Part part);

// The model's (tensors.h), and behind each weight that has them its A and B.
std::vector<ParameterShape> job_parameters(const Job& job);

// Elements of the whole job that the optimizer updates: without LoRA those of the model.
std::int64_t trained_parameters(const Job& job);

}  // namespace dovetail::jobs
