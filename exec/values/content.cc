// Arithmetic on formulas of tensors: which known values were added up with which factor, in which
// part of the tensor. The executor computes what memory must hold without touching the data.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/values/content.h"

#include "schedule/collective_traits.h"

#include <algorithm>
#include <utility>

namespace dovetail::exec::values {
namespace {

std::size_t size_of(const Content& content) {
  std::size_t size = 0;
  for (const Piece& piece : content) size = std::max(size, piece.begin + piece.count);
  return size;
}

// Adds a term; ranks that wrote the same kind of value join.
void add_term(std::vector<Term>& terms, const Term& term) {
  for (Term& known : terms) {
    if (known.tensor != term.tensor || known.writes_left != term.writes_left ||
        known.micro_step != term.micro_step || known.factor != term.factor) {
      continue;
    }
    known.ranks.insert(known.ranks.end(), term.ranks.begin(), term.ranks.end());
    return;
  }
  terms.push_back(term);
}

std::optional<Content> sum_of_all(const std::vector<Content>& contents) {
  std::optional<Content> sum = contents[0];
  for (std::size_t i = 1; i < contents.size() && sum; ++i) sum = sum_of(*sum, contents[i]);
  return sum;
}

// The parts of all contents, one after another.
Content joined(const std::vector<Content>& parts) {
  Content all;
  std::size_t begin = 0;
  for (const Content& part : parts) {
    for (Piece piece : part) {
      piece.begin += begin;
      all.push_back(std::move(piece));
    }
    begin += size_of(part);
  }
  return all;
}

// What the collective makes, of which the rank at this index holds all or its part.
std::optional<Content> made_for(const schedule::CollectiveWork& work,
                                const std::vector<Content>& contents, std::size_t index) {
  const auto ranks = static_cast<double>(contents.size());
  const schedule::CollectiveTraits& traits = schedule::traits_of(work.kind);
  switch (traits.makes) {
    case schedule::Made::Sum: {
      const std::optional<Content> sum = sum_of_all(contents);
      if (!sum) return std::nullopt;
      return scaled(*sum, work.op == schedule::ReduceOp::Average ? 1.0 / ranks : 1.0);
    }
    case schedule::Made::Joined: {
      if (traits.sends == schedule::Extent::Part) return joined(contents);
      const std::size_t part = size_of(contents[index]) / contents.size();
      std::vector<Content> parts;
      for (const Content& content : contents) parts.push_back(part_of(content, index * part, part));
      return joined(parts);
    }
    case schedule::Made::OfRoot:
      return contents[static_cast<std::size_t>(work.root)];
  }
  return std::nullopt;
}

}  // namespace

Content whole(const schedule::Tensor& tensor, std::vector<Term> terms) {
  return {{.begin = 0,
           .count = static_cast<std::size_t>(tensor.numel()),
           .source = 0,
           .terms = std::move(terms)}};
}

Content scaled(Content content, double factor) {
  for (Piece& piece : content) {
    for (Term& term : piece.terms) term.factor *= factor;
  }
  return content;
}

Content part_of(const Content& content, std::size_t first, std::size_t count) {
  Content part;
  for (const Piece& piece : content) {
    const std::size_t begin = std::max(first, piece.begin);
    const std::size_t end = std::min(first + count, piece.begin + piece.count);
    if (begin >= end) continue;
    part.push_back({.begin = begin - first,
                    .count = end - begin,
                    .source = piece.source + (begin - piece.begin),
                    .terms = piece.terms});
  }
  return part;
}

std::optional<Content> sum_of(const Content& a, const Content& b) {
  if (a.size() != b.size()) return std::nullopt;
  Content sum = a;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const bool is_alike =
        a[i].begin == b[i].begin && a[i].count == b[i].count && a[i].source == b[i].source;
    if (!is_alike) return std::nullopt;
    for (const Term& term : b[i].terms) add_term(sum[i].terms, term);
  }
  return sum;
}

std::optional<Content> summed_over(const Content& content,
                                   const std::function<std::span<const Rank>(Rank)>& group) {
  Content sum = content;
  for (Piece& piece : sum) {
    for (Term& term : piece.terms) {
      std::vector<Rank> ranks;
      for (const Rank rank : term.ranks) {
        const std::span<const Rank> more = group(rank);
        if (more.empty()) return std::nullopt;
        ranks.insert(ranks.end(), more.begin(), more.end());
      }
      term.ranks = std::move(ranks);
    }
  }
  return sum;
}

std::optional<Content> received(const schedule::CollectiveWork& work,
                                const std::vector<Content>& contents, std::size_t index) {
  std::optional<Content> made = made_for(work, contents, index);
  if (!made || schedule::traits_of(work.kind).holds == schedule::Extent::Whole) return made;
  const std::size_t part = size_of(*made) / contents.size();
  return part_of(*made, index * part, part);
}

}  // namespace dovetail::exec::values
