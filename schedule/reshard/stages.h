// Which meshes the layouts of a Program use, and that they can be the stages of a pipeline.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/reshard/program.h"

#include <vector>

namespace dovetail::schedule::reshard {

// The meshes of stage 0, 1, ... A mesh of all ranks beside smaller ones is the union mesh: what
// lies on it must be whole on every rank, and it is no stage. Throws InputError for anything else.
std::vector<Mesh> stages_of(const Program& program, const Requirements& requirements);

// Whether the mesh holds all ranks although there are several stages.
bool is_union(const Mesh& mesh, const std::vector<Mesh>& stages);

}  // namespace dovetail::schedule::reshard
