// Meshes in the order of their ranks.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/reshard/stages.h"

#include "base/error.h"

#include <algorithm>
#include <set>

namespace dovetail::schedule::reshard {
namespace {

std::vector<Layout> layouts_of(const Requirements& requirements) {
  std::vector<Layout> layouts;
  for (const TensorLayout& tensor : requirements.tensors) layouts.push_back(tensor.layout);
  for (const UseLayout& use : requirements.reads) layouts.push_back(use.layout);
  for (const UseLayout& use : requirements.writes) layouts.push_back(use.layout);
  return layouts;
}

void require_stage(const Mesh& mesh, const Mesh& first, std::int64_t stage) {
  if (mesh.shape != first.shape) {
    throw InputError("meshes " + to_string(first) + " and " + to_string(mesh) +
                     " differ in shape, so their ranks cannot run the stages of one pipeline");
  }
  const auto size = static_cast<std::int64_t>(mesh.size());
  for (std::int64_t i = 0; i < size; ++i) {
    if (mesh.ranks[static_cast<std::size_t>(i)].value != stage * size + i) {
      throw InputError("mesh " + to_string(mesh) + " is no stage: expected the ranks " +
                       std::to_string(stage * size) + ".." +
                       std::to_string((stage + 1) * size - 1) + " in order");
    }
  }
}

}  // namespace

bool is_union(const Mesh& mesh, const std::vector<Mesh>& stages) {
  return stages.size() > 1 && std::ranges::find(stages, mesh) == stages.end();
}

std::vector<Mesh> stages_of(const Program& program, const Requirements& requirements) {
  const std::vector<Layout> layouts = layouts_of(requirements);
  std::set<Mesh> meshes;
  for (const Layout& layout : layouts) meshes.insert(layout.mesh);
  const auto world = static_cast<std::size_t>(program.world_size);
  if (meshes.size() > 1) std::erase_if(meshes, [&](const Mesh& m) { return m.size() == world; });
  if (meshes.empty()) throw InputError("reshard: no tensor has a layout");
  std::vector<Mesh> stages(meshes.begin(), meshes.end());
  std::ranges::sort(stages, {}, [](const Mesh& mesh) { return mesh.ranks.front(); });
  for (std::size_t p = 0; p < stages.size(); ++p) {
    require_stage(stages[p], stages.front(), static_cast<std::int64_t>(p));
  }
  if (stages.size() * stages.front().size() != world) {
    throw InputError("reshard: the meshes hold " +
                     std::to_string(stages.size() * stages.front().size()) +
                     " ranks of a world of " + std::to_string(world));
  }
  for (const Layout& layout : layouts) {
    if (is_union(layout.mesh, stages) && !layout.is_replicated()) {
      throw InputError("layout " + to_string(layout) + " on " + to_string(layout.mesh) +
                       ": a tensor on the ranks of several stages must be whole on each");
    }
  }
  return stages;
}

}  // namespace dovetail::schedule::reshard
