// A tape for the models of the zoo: layers go on in forward order; finish() plays it backwards.
//
// A Layer says what its forward op costs and how to undo it. finish() appends the loss, then for
// each layer, last first, its backward ops, then one update per parameter. Rules of the tape:
//   - An op that computes gradients reads the gradients of its layer's outputs, and what it lists.
//   - A gradient that several ops write is accumulated: all but the first writer also read it. This
//     serves activations with several consumers and shared parameters (GPT-2's wte) alike.
//   - A parameter's gradient is ready at its last write. Parameters of one op become ready in
//     reverse order of definition: bias before weight.
//   - A layer without backward ops (a residual sum) hands its gradient to its inputs unchanged:
//     they share one tensor, and later consumers accumulate into it. REQUIRES: the sum is the last
//     consumer of its inputs on the tape.
//
// Cost of memory-bound work: bytes of every tensor read (times the passes that a kernel needs) plus
// bytes of every tensor written; FLOP = flop_per_element x elements of the largest tensor touched.
// A gradient that several ops write is a pass of its own over both parts and their sum. Left out: workspace, index tensors, masks.
// Cost of an update by SGD: 5 elements moved per parameter (read gradient, parameter and momentum; write
// parameter and momentum; 20 bytes in fp32) and 4 FLOP; by AdamW 7, as there are two moments, and 12 FLOP. Moments are no tensors of
// the Program.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "base/units.h"
#include "models/networks/zoo.h"
#include "schedule/program.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

namespace dovetail::models::zoo {

using Shape = std::vector<std::int64_t>;

// What flows between layers. Two Values may be views of one tensor with different shapes.
struct Value {
  std::optional<TensorId> tensor;  // absent for the data batch, which needs no gradient
  Shape shape;
};
std::int64_t numel(const Shape& shape);

// Memory-bound work, priced by the formula above.
struct Traffic {
  int read_passes = 1;  // how often a kernel reads its operands
  double flop_per_element = 1;
  schedule::Access access = schedule::Access::Any;
  std::int64_t columns = 0;  // of a row, where that matters
};
using Recipe =
    std::variant<schedule::GemmWork, schedule::MemoryWork, schedule::KernelsWork, Traffic>;

struct BackwardOp {
  std::string suffix;  // the op is called LAYER.SUFFIX
  Recipe work;
  std::vector<std::optional<TensorId>> reads = {};  // beside the gradients of the outputs
  std::vector<TensorId> parameters = {};            // whose gradients it writes; definition order
  std::vector<Value> inputs = {};                   // whose gradients it writes
  schedule::Effect effect = schedule::Opaque{};
};

struct Layer {
  std::string name;
  Recipe forward;
  std::vector<Value> inputs = {};
  std::vector<TensorId> parameters = {};
  std::vector<Value> outputs = {};
  std::vector<BackwardOp> backward = {};  // empty: the inputs share the gradient of the output
};

class Builder {
 public:
  // REQUIRES: batch and sequence of the options are resolved.
  Builder(std::string name, const ZooOptions& options);

  [[nodiscard]] std::int64_t batch() const { return options_.batch; }
  [[nodiscard]] std::int64_t sequence() const { return options_.sequence; }
  [[nodiscard]] std::int64_t tokens() const { return batch() * sequence(); }
  // Of activations.
  [[nodiscard]] Bytes bytes(std::int64_t elements) const;
  // Of autocast: the kernel that casts so many elements of f32 for what is computed, or back; nothing where no cast is made.
  [[nodiscard]] std::optional<schedule::MemoryWork> cast(std::int64_t elements, bool back) const;

  TensorId parameter(const std::string& name, Shape shape);
  // A new activation, to be the output of a layer.
  Value activation(const std::string& name, Shape shape);
  // Appends the forward op. Returns the layer's first output.
  Value add(Layer layer);
  // Closes the tape with a loss over `result` and returns the Program; the Builder is spent.
  schedule::Program finish(const Value& result);

 private:
  struct Operands {
    std::vector<TensorId> reads;
    std::vector<TensorId> writes;
    Bytes accumulated;  // of gradients that an earlier op wrote, too
  };

  TensorId add_tensor(std::string name, schedule::TensorKind kind, Shape shape);
  void add_op(std::string name, schedule::Phase phase, const Recipe& work, Operands operands);
  // Of activations and of what is computed.
  [[nodiscard]] schedule::DType computed() const;
  [[nodiscard]] schedule::GemmWork product_of(schedule::GemmWork gemm) const;
  [[nodiscard]] schedule::Work price(const Recipe& work, const Operands& operands) const;
  [[nodiscard]] schedule::Work price_alone(const Recipe& work, const Operands& operands) const;
  [[nodiscard]] Flop element_flop(double per_element, const Operands& operands) const;
  void share_gradient(const Layer& layer);
  void undo(const Layer& layer);
  void write_gradient(TensorId of, Operands& operands);
  void update_parameters();

  ZooOptions options_;
  schedule::Program program_;
  std::vector<Layer> tape_;
  std::unordered_map<TensorId, TensorId> gradients_;  // of a parameter or activation
  std::vector<TensorId> ready_;  // parameters by the last write of their gradient
};

}  // namespace dovetail::models::zoo
