// The memory of one rank, cut into pieces so small that every access covers whole ones.
//
// A tensor is cut wherever a bucket's member begins or ends in it, and wherever a tensor is cut with
// which it is accumulated, so that both have the same pieces. A cell is one piece in one place: in
// the tensor's own memory, or packed in the buffer of a bucket in copy mode. In view mode the window
// of the bucket is the tensor: one cell.
//
//   g 100 elements, bucket 0 has [0, 60), bucket 1 has [60, 100), both in copy mode:
//   cells  g[0,60)  g[60,100)  g[0,60) in bucket 0  g[60,100) in bucket 1
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/indexed.h"
#include "schedule/verify/index.h"

#include <cstdint>
#include <vector>

namespace dovetail::schedule::verification {

using CellId = std::int32_t;

struct Cells {
  CellId first = 0;
  std::int32_t count = 0;
};

// One member of a bucket: its pieces in the tensor's memory and in the buffer, pair by pair.
struct Place {
  TensorId tensor;
  bool cut = false;  // the bucket is cut into shards
  Cells own;
  Cells packed;  // equal to `own` in view mode
};

class Memory {
 public:
  // REQUIRES: check_layouts found nothing.
  explicit Memory(const Index& index);

  [[nodiscard]] Cells own(TensorId tensor) const { return own_.at(tensor); }
  // In the order of the bucket's members.
  [[nodiscard]] const std::vector<Place>& places(BucketId bucket) const {
    return places_.at(bucket);
  }
  [[nodiscard]] std::int32_t count() const { return tensor_of_.end_index(); }
  // The tensor of which a cell holds a piece.
  [[nodiscard]] TensorId tensor_of(std::int32_t cell) const { return tensor_of_[cell]; }
  // Whether the cell is memory of a bucket in copy mode.
  [[nodiscard]] bool is_packed(std::int32_t cell) const { return cell >= first_packed_; }
  // Where a tensor's pieces lie in buckets, in the order of those.
  [[nodiscard]] const std::vector<Place>& places_of(TensorId tensor) const {
    return places_of_.at(tensor);
  }
  // Those in buckets that are cut into shards.
  [[nodiscard]] std::vector<Place> sharded_places(TensorId tensor) const;

 private:
  struct Cut {
    TensorId tensor;  // the first of those that are cut alike
    std::int64_t at = 0;
    friend auto operator<=>(const Cut&, const Cut&) = default;
  };

  void join_accumulated();
  void collect_cuts();
  void number_cells();
  [[nodiscard]] TensorId root(TensorId tensor) const;
  // How many cuts lie below or at `at`: the piece that begins there.
  [[nodiscard]] std::int32_t piece_at(TensorId tensor, std::int64_t at) const;

  const Index& index_;
  IdTable<TensorId, std::int32_t> joined_to_{-1};
  std::vector<Cut> cuts_;  // sorted
  IdTable<TensorId, Cells> own_;
  IdTable<BucketId, std::vector<Place>> places_;
  IdTable<TensorId, std::vector<Place>> places_of_;
  Indexed<CellId, TensorId> tensor_of_;
  std::int32_t first_packed_ = 0;
};

}  // namespace dovetail::schedule::verification
