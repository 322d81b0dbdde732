// Names for the gradients of a recorded step, which a trace does not have: from a list of the module's parameters, by order and size.
//
//   names.txt    one parameter a line, in the order of definition: its name, then its elements or its shape, as
//                for name, p in model.named_parameters(): print(name, tuple(p.shape))
//
// Gradients become ready in about the reverse of that order. Where all sizes are those of the reverse order, one by one, each
// gradient has its name. Elsewhere the gradients of one size get the names of that size in the reverse order: names of a size
// that stands once are certain, and how many are not is said. Parameters without a gradient (frozen, unused) may be in the list.
//
// Where the trace has only sizes of buckets, the reverse order must fill each of them exactly; the sizes of gradients are known then, too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/workloads/profile.h"

namespace dovetail::imports {

struct Parameter {
  std::string name;
  std::int64_t elements = 0;
  friend bool operator==(const Parameter&, const Parameter&) = default;
};

struct ParameterList {
  std::string file;
  std::vector<Parameter> parameters;  // in the order of definition; names differ
};

// Throws InputError with the line that is none: no name, no size, a name that stands twice.
ParameterList read_parameters(const std::string& file, std::string_view text);

enum class GradientSizes : std::uint8_t { Known, OfBucketsOnly };

// Names the profile's gradients, with their places in the list, and says in a sentence how. Throws InputError where sizes do not
// fit. `ends`: of the buckets, exclusive, in gradient-ready order.
std::string name_gradients(models::Profile& profile, std::span<const std::size_t> ends,
                           GradientSizes sizes, const ParameterList& list);

}  // namespace dovetail::imports
