// The exact optimum for a cost of k linear pieces that never falls, in O(k n): one deque per piece.
//
// f never falls, as a bucket's cost does not fall when it loses its last gradient. So for gradient j the starts split
// in two. Free starts, f(i) <= r_j: all begin at r_j, and the last of them is the best, for it leaves the fewest
// bytes. Busy starts, f(i) > r_j: piece p applies to those for which S_j - S_i lies in the piece, a window whose both
// ends only move right. Its least key f(i) - b_p S_i is at the front of the window's own deque.
//
//   starts   0 ......... free | window of p = 2 | window of p = 1 | window of p = 0 | j
//
// Pieces are walked from small buckets to large ones and only as far as there are busy starts, so a
// step that is bound by computation costs little more than one of a single piece. Starts that became free
// before they entered a window are never put in.
//
// SPDX-License-Identifier: Apache-2.0
#include "search/min_window.h"
#include "search/ticks.h"

#include <memory>

#include "base/interruption.h"

namespace dovetail::search {
namespace {

using internal::MinWindow;
using internal::Ticks;

class PiecewiseSolver {
 public:
  explicit PiecewiseSolver(const PartitionProblem& problem, const internal::LinearTicks& cost)
      : problem_(problem),
        cost_(cost),
        n_(static_cast<std::uint32_t>(problem.size.size())),
        bytes_(std::make_unique_for_overwrite<std::int64_t[]>(n_ + std::size_t{1})),
        finish_(std::make_unique_for_overwrite<Ticks[]>(n_ + std::size_t{1})),
        begins_(std::make_unique_for_overwrite<std::uint32_t[]>(n_ + std::size_t{1})),
        entries_(std::make_unique_for_overwrite<MinWindow::Entry[]>(n_ * cost.pieces().size())) {
    for (std::size_t p = 0; p < cost.pieces().size(); ++p) {
      windows_.push_back(Window{MinWindow(entries_.get() + p * n_)});
    }
  }

  Partition solve() {
    bytes_[0] = 0;
    finish_[0] = 0;
    for (std::uint32_t j = 1; j <= n_; ++j) {
      if ((j & 0xfff) == 0) throw_if_interrupted();
      bytes_[j] = bytes_[j - 1] + problem_.size[j - 1].count();
      const Ticks ready = cost_.ticks(problem_.ready[j - 1]);
      while (free_ + 1 < j && finish_[free_ + 1] <= ready) ++free_;
      choose(j, ready);
    }
    const std::size_t entries = n_ + std::size_t{1};
    return internal::read_partition(problem_, {{finish_.get(), entries}, {begins_.get(), entries}},
                                    cost_);
  }

 private:
  struct Window {
    MinWindow starts;
    std::uint32_t next = 1;  // the first start that has not been admitted
  };

  // Admits the busy starts below j that leave at least piece.from bytes.
  void admit(Window& window, const internal::LinearTicks::Piece& piece, std::uint32_t j) const {
    std::uint32_t next = std::max(window.next, free_ + 1);
    const std::int64_t limit = bytes_[j] - piece.from;
    for (; next < j && bytes_[next] <= limit; ++next) {
      window.starts.push(next, finish_[next] - piece.slope * bytes_[next]);
    }
    window.next = next;
  }

  // Sets finish and begins of j.
  void choose(std::uint32_t j, Ticks ready) {
    const auto pieces = cost_.pieces();
    Ticks best = ready + cost_.cost(bytes_[j] - bytes_[free_]);
    std::uint32_t begin = free_;
    admit(windows_[0], pieces[0], j);
    for (std::size_t p = 0; p < pieces.size() && windows_[p].next > free_ + 1; ++p) {
      Window& window = windows_[p];
      std::uint32_t before = free_;  // the last start outside the window, on its left
      if (p + 1 < pieces.size()) {
        admit(windows_[p + 1], pieces[p + 1], j);
        before = windows_[p + 1].next - 1;
      }
      window.starts.drop_through(before);
      if (window.starts.empty()) continue;
      const MinWindow::Entry& least = window.starts.front();
      const Ticks end = least.key + pieces[p].base + pieces[p].slope * bytes_[j];
      // Of equal ends the latest start wins: pieces come with falling starts, the free one first.
      if (end < best || (end == best && least.start > begin)) {
        best = end;
        begin = least.start;
      }
    }
    finish_[j] = best;
    begins_[j] = begin;
  }

  const PartitionProblem& problem_;
  const internal::LinearTicks& cost_;
  std::uint32_t n_;
  std::unique_ptr<std::int64_t[]> bytes_;  // of the first j gradients
  std::unique_ptr<Ticks[]> finish_;
  std::unique_ptr<std::uint32_t[]> begins_;
  std::unique_ptr<MinWindow::Entry[]> entries_;  // n for each window; untouched until used
  std::vector<Window> windows_;
  std::uint32_t free_ = 0;  // the last start with finish <= ready of the current gradient
};

}  // namespace

Duration rounding_of(const PartitionProblem& problem, std::span<const LinearPiece> pieces) {
  const internal::LinearTicks cost(problem, pieces);
  const auto units = internal::checked_total_bytes(problem) + std::ssize(problem.size);
  return cost.duration(units);
}

Partition exact_partition(const PartitionProblem& problem, std::span<const LinearPiece> pieces) {
  const internal::LinearTicks cost(problem, pieces);
  if (problem.size.empty()) return {};
  return PiecewiseSolver(problem, cost).solve();
}

}  // namespace dovetail::search
