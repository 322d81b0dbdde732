// Spells out norms, rotations, routers, experts and losses as the operators that Hugging Face's transformers runs for them, with the bytes of each.
//
// SPDX-License-Identifier: Apache-2.0
#include "models/networks/written_out.h"

#include <algorithm>

namespace dovetail::jobs {
namespace {

using enum schedule::Access;
using schedule::Access;
using schedule::Kernel;

constexpr std::int64_t kIndex = 8, kWide = 4;  // bytes of an int64, of an f32

// Adds to one list.
class Passes {
 public:
  explicit Passes(std::vector<Kernel>& list) : list_(list) {}
  Passes& operator()(std::int64_t bytes, Access access = Any) {
    list_.emplace_back(
        schedule::MemoryWork{.bytes = Bytes(bytes), .flop = Flop(0), .access = access});
    return *this;
  }
  void product(const schedule::GemmWork& gemm) { list_.emplace_back(gemm); }

 private:
  std::vector<Kernel>& list_;
};

// A part of a tensor's columns: its gradient is put into zeros of the whole.
void slice_backward(Passes& backward, std::int64_t whole, std::int64_t part) {
  backward(whole, Filled)(2 * part, Strided);
}

// Which positions a position sees, as truth values, and as numbers where scores are written.
void mask(Passes& forward, const BatchSize& b, bool is_windowed, bool is_added) {
  const std::int64_t s = b.sequence, all = s * s;
  forward(kIndex * b.samples)(kIndex);
  for (int i = 0; i < 2; ++i) forward(kIndex * s)(2 * kIndex * s);
  if (is_windowed) forward(kIndex * s + 1)(2 * kIndex * s)(2 * kIndex * s + all)(2 * all + 1);
  forward(2 * kIndex * s + all);
  if (is_windowed) forward(3 * all);
  if (is_added) forward(b.element)(all + 2 * b.element + b.samples * all * b.element);
}

// Whether several samples lie in one row of tokens: where positions do not follow each other.
void packed(Passes& forward, const BatchSize& b) {
  const std::int64_t s = b.sequence, all = b.samples * s;
  forward(kIndex * (b.samples + 1));
  forward(kIndex * (b.samples + s + b.samples * (s + 1)));
  forward(3 * kIndex * all)(9 * all)(9 * all)(9 * b.samples)(b.samples + 1);
}

void tables(Passes& forward, Rotary rotary, std::int64_t width, const BatchSize& b) {
  const std::int64_t half = b.sequence * width / 2;
  forward((kIndex + kWide) * b.sequence);
  forward.product({.m = width / 2, .n = b.sequence, .k = 1});
  if (rotary == Rotary::Complex) {
    forward(kWide * half, Filled)(4 * kWide * half)(4 * kWide * half);
    return;
  }
  const std::int64_t all = rotary == Rotary::HalfTables ? half : 2 * half;
  if (rotary != Rotary::HalfTables) forward(2 * kWide * all, Strided);
  for (int i = 0; i < 4; ++i) forward(2 * kWide * all, Plain);
  if (b.element == kWide) return;
  for (int i = 0; i < 2; ++i) forward((kWide + b.element) * all, Plain);
}

// Times cosines, halves exchanged and one negated, times sines, summed.
void rotate_halves(KernelLists& lists, const RotarySize& r) {
  const std::int64_t n = r.tokens * r.heads * r.width;
  const std::int64_t table = r.sequence * r.width * r.output;
  const std::int64_t in = r.input, out = r.output;
  Passes forward(lists.forward), backward(lists.backward);
  forward((in + out) * n + table, Columns)(in * n, Strided)(2 * in * n, Strided);
  forward((in + out) * n + table, Columns)(3 * out * n, Strided);
  if (out > r.attention) {
    forward((out + r.attention) * n, Plain);
    backward((r.attention + out) * n, Widened);
  }
  backward(2 * out * n + table, Columns);
  if (out > in) backward((out + in) * n, Plain);
  backward(in * n, Strided);
  for (int i = 0; i < 2; ++i) slice_backward(backward, in * n, in * n / 2);
  backward(3 * in * n, Plain)(2 * out * n + table, Columns);
  if (out > in) backward((out + in) * n, Plain);
  backward(3 * in * n, r.is_repeated ? Plain : Strided);
}

// Each half times the cosines and sines of its own. Interleaved: the halves were every other number of a row.
void rotate_parts(KernelLists& lists, const RotarySize& r, bool is_interleaved) {
  const std::int64_t e = r.input;
  const std::int64_t n = e * r.tokens * r.heads * r.width;  // bytes
  const std::int64_t times = n + e * r.sequence * r.width / 2;
  // One head for all of one sample is as large as the table.
  const bool is_alike = r.heads == 1 && r.tokens == r.sequence;
  const Access access = is_alike ? Strided : Columns;
  Passes forward(lists.forward), backward(lists.backward);
  for (int i = 0; i < 2; ++i) forward(times, access)(times, access)(3 * n / 2, Plain);
  forward(2 * n, r.heads == 1 ? Plain : Strided);
  backward(times, access)(times, access)(n, Strided);
  for (int i = 0; i < 2; ++i) backward(times, access)(3 * n / 2, Plain);
  if (!is_interleaved) {
    backward(2 * n, Plain);
    return;
  }
  for (int i = 0; i < 2; ++i) slice_backward(backward, n, n / 2);
  backward(3 * n, Plain);
}

// Pairs of numbers as complex ones, in f32.
void rotate_complex(KernelLists& lists, const RotarySize& r) {
  const std::int64_t n = r.tokens * r.heads * r.width, e = r.input;
  const std::int64_t table = kWide * r.sequence * r.width;
  Passes(lists.forward)((e + kWide) * n, Widened)(2 * kWide * n + table)((kWide + e) * n, Plain);
  Passes(lists.backward)((e + kWide) * n, Widened)(2 * table)(2 * kWide * n + table)(
      (kWide + e) * n, Plain);
}

}  // namespace

KernelLists rms_norm_lists(const NormSize& size, const NormTypes& types) {
  const std::int64_t rows = size.rows, n = size.rows * size.width, h = size.width;
  const std::int64_t e = types.input, out = types.between;
  const bool is_narrow = e < kWide;
  const Access meets = size.is_of_heads ? Strided : Plain;
  KernelLists lists;
  Passes forward(lists.forward), backward(lists.backward);
  // To f32, squared, mean, with epsilon, root, times it, back, times the weight.
  if (is_narrow) forward((e + kWide) * n, Widened);
  forward(8 * n, Plain)(4 * n + 4 * rows, SumRows)(8 * rows, Plain)(8 * rows, Plain);
  forward(8 * n + 4 * rows, Rows);
  if (size.scales_wide) forward(8 * n + out * h, Rows);
  if (is_narrow) forward((kWide + e) * n, Plain);
  if (!size.scales_wide) forward((e + out) * n + out * h, Columns);
  if (size.scales_wide) {
    if (is_narrow) backward((e + kWide) * n, Widened);
    backward(8 * n + out * h, Rows)(12 * n, Plain)(4 * n + 4 * h, SumColumns);
    if (out < kWide) backward((kWide + out) * h, Plain);
  } else {
    backward(2 * out * n + out * h, Columns)((e + 2 * out) * n, meets);
    backward(out * n + out * h, SumColumns);
    if (out > e) backward((out + e) * n, Plain);
    if (is_narrow) backward((e + kWide) * n, Widened);
  }
  backward(12 * n, meets)(8 * n + 4 * rows, Rows)(4 * n + 4 * rows, SumRows);
  backward(8 * rows, Plain)(8 * rows, Plain)(12 * rows, Plain)(4 * n + 4 * rows, Rows);
  backward(8 * n, Plain)(8 * n, Plain)(12 * n, Plain)(12 * n, meets);
  if (is_narrow) backward((kWide + e) * n, Plain);
  return lists;
}

KernelLists positions_lists(const Model& model, const BatchSize& batch) {
  const Attention& a = model.attention;
  const std::int64_t s = batch.sequence;
  KernelLists lists;
  Passes forward(lists.forward);
  forward(kIndex * s)(2 * kIndex * s);
  bool has_windows = false, has_whole = false;
  for (std::int64_t layer = 0; layer < model.layers; ++layer)
    (is_windowed(model, layer) ? has_windows : has_whole) = true;
  if (!a.sinks) packed(forward, batch);
  if (a.sinks && has_whole) mask(forward, batch, false, true);
  if (has_windows && (a.sinks || a.window < s)) mask(forward, batch, true, a.sinks);
  if (model.positions == 0)
    tables(forward, model.written.rotary, a.latent ? a.latent->rope_dim : a.head_dim, batch);
  return lists;
}

KernelLists rotary_lists(Rotary rotary, const RotarySize& size) {
  KernelLists lists;
  switch (rotary) {
    case Rotary::Halves:
      rotate_halves(lists, size);
      break;
    case Rotary::HalfTables:
      rotate_parts(lists, size, false);
      break;
    case Rotary::Interleaved:
      rotate_parts(lists, size, true);
      break;
    case Rotary::Complex:
      rotate_complex(lists, size);
      break;
  }
  return lists;
}

KernelLists repeat_lists(const ScoresSize& size) {
  const std::int64_t rows = size.samples * size.sequence * size.width * size.element;
  const std::int64_t both = rows * (size.heads + size.key_value_heads);
  KernelLists lists;
  if (size.heads == size.key_value_heads) return lists;
  for (int i = 0; i < 2; ++i) {
    Passes(lists.forward)(both, Columns);
    Passes(lists.backward)(both, SumColumns);
  }
  return lists;
}

KernelLists scores_lists(const ScoresSize& size) {
  const std::int64_t e = size.element, q = size.queries, s = size.sequence, d = size.width;
  const std::int64_t heads = size.samples * size.heads;
  const std::int64_t rows = heads * q;
  const std::int64_t all = e * rows * s, wider = e * rows * (s + 1);  // bytes; with a sink a row
  const std::int64_t given = e * rows * d;
  const std::int64_t positions = size.samples * q * s * e;
  KernelLists lists = repeat_lists(size);
  Passes forward(lists.forward), backward(lists.backward);
  forward.product({.m = q, .n = s, .k = d, .count = heads});
  forward(2 * all, Plain)(2 * all + positions, Columns)(all + size.heads * e + wider, Strided);
  forward(wider + (e + kIndex) * rows)(2 * wider + e * rows, Columns)(2 * wider, Plain);
  forward.product({.m = q, .n = d, .k = s, .count = heads});
  forward(2 * given, Strided);
  if (size.samples > 1) backward(2 * given, Strided);
  backward.product({.m = s, .n = d, .k = q, .count = heads});
  backward.product({.m = q, .n = s, .k = d, .count = heads});
  slice_backward(backward, wider, all);
  backward(3 * wider, Plain)(2 * wider, Plain)(wider + e * rows, SumRows)(wider, Filled);
  backward(2 * wider + (kIndex + e) * rows)(3 * wider, Plain);
  backward(e * rows + e * size.heads, SumRows)(2 * all, Strided);
  backward.product({.m = d, .n = s, .k = q, .count = heads});
  backward.product({.m = q, .n = d, .k = s, .count = heads});
  return lists;
}

KernelLists before_router_lists(const Model& model, const RoutedSize& size) {
  KernelLists lists;
  if (!model.written.router.wide || size.element == kWide) return lists;
  const std::int64_t e = size.element;
  for (const std::int64_t n : {size.rows * size.width, model.experts->count * size.width}) {
    Passes(lists.forward)((e + kWide) * n, Widened);
    Passes(lists.backward)((kWide + e) * n, Plain);
  }
  return lists;
}

namespace {

// The best groups' experts: others are no candidates.
void choose_groups(Passes& forward, const Router& router, std::int64_t rows, std::int64_t count) {
  const std::int64_t groups = rows * router.groups, all = rows * count;
  if (router.group_best > 1) {
    forward(4 * all + 12 * groups * router.group_best);
    forward(4 * groups * router.group_best + 4 * groups, SumColumns);
  } else {
    forward(4 * all + 12 * groups);
  }
  const std::int64_t chosen = rows * router.groups_chosen;
  forward(4 * groups + 12 * chosen)(4 * groups, Filled)(8 * groups + 8 * chosen);
  forward(4 * groups + 4 * all, Rows)(5 * all)(2 * all)(8 * all, Plain)(9 * all);
}

void normalize(Passes& forward, Passes& backward, std::int64_t rows, std::int64_t chosen,
               bool has_epsilon) {
  const std::int64_t by_row = 8 * chosen + 4 * rows;
  forward(4 * chosen + 4 * rows, SumRows);
  if (has_epsilon) forward(8 * rows, Plain);
  forward(8 * chosen, Plain)(by_row, Rows);
  backward(by_row, Rows)(by_row, Rows)(8 * chosen, Plain)(12 * chosen, Plain)(by_row, Rows);
  backward(4 * chosen + 4 * rows, SumRows)(by_row, Rows);
}

}  // namespace

KernelLists router_lists(const Model& model, const RoutedSize& size) {
  const Router& router = model.written.router;
  const std::int64_t e = size.element, rows = size.rows;
  const std::int64_t all = rows * model.experts->count, chosen = size.chosen;
  KernelLists lists;
  Passes forward(lists.forward), backward(lists.backward);
  if (router.score == Score::SoftmaxOfChosen) {
    forward(e * all + (e + kIndex) * chosen)(2 * e * chosen, Plain);
    backward(3 * e * chosen, Plain)(e * all, Filled)(2 * e * all + (kIndex + e) * chosen);
    return lists;
  }
  const bool is_cast = !router.wide && e < kWide;
  const bool is_sigmoid = router.score == Score::Sigmoid;
  if (is_cast) forward((e + kWide) * all, Widened);
  forward(8 * all, Plain);
  if (is_sigmoid)
    forward(8 * all + e * model.experts->count, Rows);  // a bias that no gradient meets
  if (router.groups > 0) choose_groups(forward, router, rows, model.experts->count);
  forward(4 * all + 12 * chosen);
  if (is_sigmoid) forward(16 * chosen);
  if (router.scaled) backward(8 * chosen, Plain);
  if (!router.wide_weights && e < kWide) backward((e + kWide) * chosen, Widened);
  if (router.normalized) normalize(forward, backward, rows, chosen, is_sigmoid);
  if (router.scaled) forward(8 * chosen, Plain);
  if (!router.wide_weights && e < kWide) forward((kWide + e) * chosen, Plain);
  backward(4 * all, Filled)(8 * all + 12 * chosen);
  if (router.groups > 0 && !is_sigmoid) backward(8 * all, Plain)(9 * all);
  backward(12 * all, Plain);
  if (is_cast) backward((kWide + e) * all, Plain);
  return lists;
}

namespace {

// Bytes of an element of the weights of what experts give.
std::int64_t weight_size(const Model& model, const RoutedSize& size) {
  return model.written.router.wide_weights ? kWide : size.element;
}

// Each row's bias by its expert, added to what a product gives.
void expert_bias(Passes& forward, Passes& backward, const RoutedSize& size, std::int64_t n,
                 std::int64_t columns) {
  const std::int64_t e = size.element, all = e * n * columns;
  const std::int64_t biases = e * size.held * columns;
  forward(std::min(biases, all) + kIndex * n + all, Gathered)(3 * all, Plain);
  backward(biases, Filled)(2 * biases + kIndex * n + all, Scattered);
}

// Rows of no expert of this rank are set to zero, in place or in a copy.
void mask_rows(Passes& list, const RoutedSize& size, std::int64_t columns, bool is_copied = true) {
  const std::int64_t n = size.chosen, all = size.element * n * columns;
  if (is_copied) list(2 * all, Plain);
  list(2 * all + n);
}

}  // namespace

KernelLists dispatch_lists(const Model& model, const RoutedSize& size) {
  const std::int64_t e = size.element, w = weight_size(model, size);
  const std::int64_t n = size.chosen;
  const std::int64_t tokens = e * size.rows * size.width, all = e * n * size.width;
  KernelLists lists;
  Passes forward(lists.forward), backward(lists.backward);
  forward(3 * kIndex * n)(2 * kIndex * n);  // sorted; whose token it is
  forward(std::min(tokens, all) + kIndex * n + all, Gathered);
  forward((2 * w + kIndex) * n, Gathered);
  forward(12 * n)(4 * n + 4 * size.held)(8 * size.held);  // how many rows each has
  forward(9 * n)(2 * kIndex * n);
  mask_rows(forward, size, size.width, false);
  mask_rows(backward, size, size.width);
  backward(w * n, Filled)((3 * w + kIndex) * n, Scattered);
  backward(tokens, Filled)(2 * tokens + kIndex * n + all, Scattered);
  return lists;
}

KernelLists between_experts_lists(const Model& model, const RoutedSize& size) {
  const std::int64_t e = size.element, n = size.chosen;
  const std::int64_t one = n * size.inner, all = e * one;
  KernelLists lists;
  Passes forward(lists.forward), backward(lists.backward);
  if (model.experts->biases) expert_bias(forward, backward, size, n, 2 * size.inner);
  mask_rows(forward, size, 2 * size.inner);
  mask_rows(backward, size, 2 * size.inner);
  if (!model.written.clamped_experts) {
    forward(2 * all, Strided)(3 * all, Strided);
    backward(3 * all, Plain)(3 * all, Strided)(3 * all, Strided)(4 * all, Plain);
    return lists;
  }
  // Both halves clamped; (up + 1) gate sigmoid(alpha gate).
  forward(2 * all, Strided)(2 * all, Strided)(2 * all, Plain)(2 * all, Plain)(3 * all, Plain);
  forward(2 * all, Plain)(3 * all, Plain);
  for (int i = 0; i < 5; ++i) backward(3 * all, Plain);
  backward(2 * all, Plain)(3 * all, Plain);
  const std::int64_t compared = all + one, picked = one + 2 * all + e;
  backward(e)(compared)(compared)(3 * one)(picked);
  backward(e)(compared)(picked);
  for (int i = 0; i < 2; ++i) slice_backward(backward, 2 * all, all);
  backward(6 * all, Plain);
  return lists;
}

KernelLists combine_lists(const Model& model, const RoutedSize& size) {
  const std::int64_t e = size.element, w = weight_size(model, size);
  const std::int64_t n = size.chosen, width = size.width;
  const std::int64_t all = n * width, tokens = size.rows * width;
  const bool is_wide = w > e;
  const Access by_row = w == kWide ? Rows : Columns;
  KernelLists lists;
  Passes forward(lists.forward), backward(lists.backward);
  if (model.experts->biases) expert_bias(forward, backward, size, n, width);
  mask_rows(forward, size, width);
  forward((e + w) * all + w * n, by_row);
  forward(kIndex * n)(4 * kIndex * n)(2 * w * all + kIndex * n, Gathered);  // in order again
  forward(w * (all + tokens), SumColumns);
  lists.after = is_wide ? 3 : 2;  // from the rows in order on
  if (is_wide) {
    forward((w + e) * tokens, Plain);
    backward((e + w) * tokens, Widened);
  }
  backward(w * (tokens + all), by_row)(w * all, Filled)(3 * w * all + kIndex * n, Scattered);
  backward((2 * w + e) * all, is_wide ? Mixed : Plain)(2 * w * all + w * n, by_row);
  if (is_wide) backward((w + e) * all, Plain);
  backward(w * all + w * n, SumRows);
  mask_rows(backward, size, width);
  return lists;
}

}  // namespace dovetail::jobs
