// Content: what a tensor holds, as a formula over known values (known_values.h), and the algebra on it.
//
//   fc1.weight.grad   0..999: the sum over ranks 0, 1 of what its producer wrote, times 1/2
//   gathered          0..9: x of rank 0;  10..19: x of rank 1, its elements 0..9
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/ids.h"
#include "exec/values/known_values.h"
#include "schedule/program.h"

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace dovetail::exec::values {

// Elements begin .. begin + count - 1 of a tensor are elements source .. of the combination.
struct Piece {
  std::size_t begin = 0;
  std::size_t count = 0;
  std::size_t source = 0;
  std::vector<Term> terms;
};
using Content = std::vector<Piece>;

Content whole(const schedule::Tensor& tensor, std::vector<Term> terms);
Content scaled(Content content, double factor);
// Elements first .. first + count - 1, as they lie.
Content part_of(const Content& content, std::size_t first, std::size_t count);
// Element by element; nothing where the two are not cut alike.
std::optional<Content> sum_of(const Content& a, const Content& b);
// Each rank's writes are summed up over the ranks that `group` names for it; nothing where it names
// none.
std::optional<Content> summed_over(const Content& content,
                                   const std::function<std::span<const Rank>(Rank)>& group);

// What the rank at `index` of `contents.size()` ranks has after a collective to which rank i brought
// contents[i], all of the same size. Nothing where that is no simple formula.
std::optional<Content> received(const schedule::CollectiveWork& work,
                                const std::vector<Content>& contents, std::size_t index);

}  // namespace dovetail::exec::values
