// One conversion of a tensor as ops of a Program: each move of a path becomes a collective, a pair
// of send and receive, or memory work, with packing around collectives of non-contiguous cuts.
//
//   S(1) -> R   all-gather, then unpack         P -> S(1)   pack, then reduce-scatter
//   S(0) -> S(1)   pack, all-to-all             other stage   send on one, receive on the other
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "schedule/editor.h"
#include "schedule/reshard/path.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace dovetail::schedule::reshard {

// What is converted, and what the new ops are called and where they belong.
struct ConversionSource {
  Tensor tensor;      // its shape is what a rank holds
  Shape whole;        // the whole tensor's
  std::string label;  // "x", or "x.v2" for a later version
  Phase phase = Phase::Forward;
  std::int32_t micro_step = 0;
};

struct Conversion {
  std::vector<Op> ops;
  // The tensor after each move, which lies as the move's target says.
  std::vector<TensorId> results;
};

// Makes conversions in one Program; keeps the groups that they share. REQUIRES: the editor outlives
// it; `meshes` are the stages.
class Converter {
 public:
  Converter(ProgramEditor& editor, std::vector<Mesh> meshes);

  // Adds the tensors and groups to the editor; the ops are the caller's to insert. REQUIRES: the
  // path has no exchange (Transfers::Pairwise). `into`: the last tensor, where it exists already.
  Conversion convert(const ConversionSource& source, const Path& path,
                     std::optional<TensorId> into = std::nullopt);

  [[nodiscard]] std::int32_t stage_of(const Mesh& mesh) const;
  // A tensor that lies as the source's, for an op to write.
  Tensor new_tensor_like(const ConversionSource& source, const std::string& name) {
    return new_tensor(source, source.tensor.shape, name);
  }

 private:
  struct Step;
  // A name that is taken gets a number.
  Tensor new_tensor(const ConversionSource& source, const Shape& shape, const std::string& name);
  GroupId axis_group(const Mesh& mesh, std::int32_t axis);
  GroupId pair_group(const Mesh& from, const Mesh& to);
  void add_pairwise(Step& step) const;
  void add_collective(Step& step);
  static void add_local(Step& step);

  ProgramEditor& editor_;
  std::vector<Mesh> meshes_;
  std::set<std::string> names_;
  std::map<std::pair<Mesh, std::int32_t>, GroupId> axis_groups_;
  std::map<std::pair<Mesh, Mesh>, GroupId> pair_groups_;
};

}  // namespace dovetail::schedule::reshard
