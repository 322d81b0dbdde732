// Reads Horovod's timeline event by event: when each tensor was first announced, which tensors one
// reduction fused, and how long it took. Steps are told apart by repetition, since the file does
// not mark them.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/horovod_timeline.h"

#include "base/count.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "base/statistics.h"
#include "recordings/json_stream.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace dovetail::imports {
namespace {

constexpr double kLatestUs = 1e15;  // 31 years
constexpr std::int64_t kMostNumel = std::int64_t{1} << 40;
constexpr std::int64_t kMostPid = std::int64_t{1} << 31;

// One tensor over all steps.
struct Tensor {
  std::string name;
  std::int64_t numel = 0;
  std::optional<schedule::DType> dtype;
  std::vector<std::int64_t> ready_us;  // of each step
  std::vector<std::string> open;       // what has begun and not ended, outermost first
  std::size_t bucket = 0;              // of the reduction that is open
};

// A reduction of one tensor or of several fused ones.
struct Reduction {
  std::int64_t start_us = 0, end_us = 0;
  std::vector<std::int64_t> tensors{};
};

bool is_reduction(std::string_view activity) {
  constexpr std::array<std::string_view, 5> kNames = {
      "NCCL_ALLREDUCE", "MPI_ALLREDUCE", "GLOO_ALLREDUCE", "CCL_ALLREDUCE", "DDL_ALLREDUCE"};
  return std::ranges::find(kNames, activity) != kNames.end();
}

std::optional<schedule::DType> dtype_of(std::string_view word) {
  if (word == "float32") return schedule::DType::F32;
  if (word == "float16") return schedule::DType::F16;
  if (word == "bfloat16") return schedule::DType::BF16;
  if (word == "float64") return schedule::DType::F64;
  return std::nullopt;
}

// "[64, 3, 7]" to 1344, "[]" to 1; absent where it is no shape, is empty or is too large.
std::optional<std::int64_t> numel_of(std::string_view shape) {
  if (shape.size() < 2 || shape.front() != '[' || shape.back() != ']') return std::nullopt;
  shape = shape.substr(1, shape.size() - 2);
  std::int64_t numel = 1;
  while (!shape.empty()) {
    const std::size_t comma = shape.find(',');
    const auto extent = integer_of(trimmed(shape.substr(0, comma)));
    if (!extent || *extent < 1 || *extent > kMostNumel / numel) return std::nullopt;
    numel *= *extent;
    shape = comma == std::string_view::npos ? std::string_view{} : shape.substr(comma + 1);
  }
  return numel;
}

class TimelineReader {
 public:
  explicit TimelineReader(const Source& source) : source_(source) {}

  ImportedStep read(std::optional<std::int64_t> ranks) {
    JsonStream json(source_.name, source_.text);
    while (const auto item = json.next_item()) event(*item);
    if (const std::size_t line = json.items_end().cut_line; line > 0) {
      step_.left_out.push_back(source_.name + ": line " + std::to_string(line) +
                               ": the last event is cut off");
    }
    if (ranks) ranks_ = *ranks;
    if (tensors_.empty()) {
      throw InputError(source_.name +
                       ": no tensor in it (expected the file that HOROVOD_TIMELINE "
                       "names, on rank 0)");
    }
    if (ranks_ < 1) {
      throw InputError(source_.name +
                       ": it does not show how many ranks there are (their marks stand "
                       "only in a timeline without response cache); say it with "
                       "--ranks");
    }
    gradients();
    reductions();
    phases();
    return std::move(step_);
  }

 private:
  void event(const JsonItem& item) {
    const JsonFile file(source_.name + ": line " + std::to_string(item.line), item.text,
                        JsonNumbers::Loose);
    JsonObject root = file.root();
    const std::string phase = root.string_or("ph", "");
    if (phase == "M") return metadata(root);
    if (phase != "B" && phase != "E" && phase != "X") return;
    const std::int64_t pid = root.integer("pid", 0, kMostPid);
    Tensor& tensor = tensors_[pid];
    const auto ts =
        static_cast<std::int64_t>(std::llround(root.number("ts", -kLatestUs, kLatestUs)));
    if (phase == "B") {
      begin(tensor, pid, root.string("name"), ts);
    } else if (phase == "E") {
      finish(tensor, ts, root);
    } else if (const auto rank = integer_of(root.string_or("name", ""))) {
      if (*rank >= 0 && *rank < (1 << 20)) ranks_ = std::max(ranks_, *rank + 1);
    }
  }

  void metadata(JsonObject& root) {
    if (root.string_or("name", "") != "process_name") return;
    JsonObject args = root.object("args");
    if (args.has("name")) tensors_[root.integer("pid", 0, kMostPid)].name = args.string("name");
  }

  void begin(Tensor& tensor, std::int64_t pid, const std::string& name, std::int64_t ts) {
    constexpr std::size_t kDeepest = 16;
    if (tensor.open.size() >= kDeepest) {
      throw InputError(source_.name + ": tensor \"" + printable(tensor.name) +
                       "\" begins more than it ends");
    }
    tensor.open.push_back(name);
    if (name == "NEGOTIATE_ALLREDUCE") tensor.ready_us.push_back(ts);
    if (!is_reduction(name)) return;
    // Tensors of one fused reduction begin it one right after the other.
    constexpr std::int64_t kTogetherUs = 200;
    const bool joins = !reductions_.empty() && reductions_.back().end_us == 0 &&
                       ts - reductions_.back().start_us <= kTogetherUs &&
                       std::ranges::count(reductions_.back().tensors, pid) == 0;
    if (!joins) reductions_.push_back({.start_us = ts});
    reductions_.back().tensors.push_back(pid);
    tensor.bucket = reductions_.size();
  }

  void finish(Tensor& tensor, std::int64_t ts, JsonObject& root) {
    if (tensor.open.empty()) return;  // it began before the file did
    const std::string name = std::move(tensor.open.back());
    tensor.open.pop_back();
    if (is_reduction(name) && tensor.bucket > 0) {
      Reduction& reduction = reductions_[tensor.bucket - 1];
      reduction.end_us = std::max(reduction.end_us, ts);
    }
    if (!root.has("args") || !tensor.open.empty()) return;
    JsonObject args = root.object("args");
    tensor.dtype = dtype_of(args.string_or("dtype", ""));
    tensor.numel = numel_of(args.string_or("shape", "")).value_or(0);
  }

  // Steps are counted by repetition: the tensor's k-th time is in step k. Those that take part in as many
  // steps as most do are the gradients.
  void gradients() {
    std::map<std::size_t, std::size_t> counts;
    for (const auto& [pid, tensor] : tensors_) ++counts[tensor.ready_us.size()];
    counts.erase(0);
    counts.erase(1);
    if (counts.empty()) {
      throw InputError(source_.name + ": no tensor was reduced twice: fewer than two steps");
    }
    steps_ =
        std::ranges::max_element(counts, {}, &std::pair<const std::size_t, std::size_t>::second)
            ->first;
    std::size_t others = 0;
    std::size_t unknown = 0;
    for (auto& [pid, tensor] : tensors_) {
      if (tensor.ready_us.empty()) continue;
      if (tensor.ready_us.size() < steps_) {
        ++others;
      } else if (!tensor.dtype || tensor.numel == 0) {
        ++unknown;
      } else {
        tensor.ready_us.resize(steps_);
        gradients_.push_back(pid);
      }
    }
    if (others > 0) {
      step_.left_out.push_back(counted(others, "tensor") + " that most steps do not reduce");
    }
    if (unknown > 0) {
      step_.left_out.push_back(counted(unknown, "tensor") + " without a shape or a known type");
    }
    if (gradients_.empty()) throw InputError(source_.name + ": no tensor has a shape and a type");
    const std::vector<std::int64_t>& first = tensors_.at(gradients_.front()).ready_us;
    starts_ = ends_ = first;
    for (const std::int64_t pid : gradients_) {
      const std::vector<std::int64_t>& ready = tensors_.at(pid).ready_us;
      for (std::size_t step = 0; step < steps_; ++step) {
        starts_[step] = std::min(starts_[step], ready[step]);
        ends_[step] = std::max(ends_[step], ready[step]);
      }
    }
  }

  // Median time of each size that was reduced. The first step is left out: it warms up.
  void reductions() {
    std::map<std::int64_t, std::vector<std::int64_t>> by_size;
    const std::int64_t second = starts_[1];
    std::size_t fused = 0;
    for (const Reduction& reduction : reductions_) {
      if (reduction.end_us <= reduction.start_us || reduction.start_us < second) continue;
      std::int64_t bytes = 0;
      for (const std::int64_t pid : reduction.tensors) {
        const Tensor& tensor = tensors_.at(pid);
        if (tensor.dtype) bytes += tensor.numel * schedule::element_size(*tensor.dtype).count();
      }
      if (bytes == 0) continue;
      ++fused;
      by_size[bytes].push_back(reduction.end_us - reduction.start_us);
    }
    step_.read.push_back(counted(gradients_.size(), "gradient") + ", " + counted(steps_, "step") +
                         ", " + counted(fused, "reduction") + " after the first step");
    if (by_size.size() < 2) {
      step_.left_out.emplace_back(
          "fewer than two sizes were reduced: no all-reduce table; name a machine with --cluster");
      return;
    }
    models::ProfiledCollectives table;
    for (auto& [bytes, times] : by_size) {
      table.points.push_back({.bytes = Bytes(bytes),
                              .isolated = from_us(static_cast<double>(median(std::move(times))))});
    }
    step_.profile.collectives = std::move(table);
  }

  void phases() {
    std::vector<std::pair<std::int64_t, std::int64_t>> order;  // ready, pid
    for (const std::int64_t pid : gradients_) {
      std::vector<std::int64_t> ready;
      for (std::size_t step = 0; step < steps_; ++step) {
        ready.push_back(tensors_.at(pid).ready_us[step] - starts_[step]);
      }
      order.emplace_back(median(std::move(ready)), pid);
    }
    std::ranges::sort(order);
    const std::int64_t first = order.front().first;
    const std::int64_t backward = order.back().first - first;
    std::vector<std::int64_t> periods;
    for (std::size_t step = 1; step < steps_; ++step) {
      periods.push_back(starts_[step] - starts_[step - 1]);
    }
    const std::int64_t period = std::max<std::int64_t>(median(std::move(periods)), 0);
    const std::int64_t rest = std::max<std::int64_t>(period - backward - exposed_us(), 0);
    models::Profile& profile = step_.profile;
    profile.name = std::filesystem::path(source_.name).stem().string();
    profile.world_size = ranks_;
    const auto us = [](std::int64_t value) { return from_us(static_cast<double>(value)); };
    profile.by_rank.push_back({.forward = us(rest), .backward = us(backward)});
    for (const auto& [ready, pid] : order) {
      const Tensor& tensor = tensors_.at(pid);
      profile.gradients.push_back({.name = name_of(pid),
                                   .numel = tensor.numel,
                                   .dtype = *tensor.dtype,
                                   .ready = {us(ready - first)}});
    }
    step_.read.push_back("a step takes " + to_string(us(period)) +
                         ", its gradients become ready over " + to_string(us(backward)));
    step_.what =
        "Horovod timeline; gradients ready when Horovod first heard of them (as exact as its "
        "cycle), "
        "medians over steps; forward holds the optimizer and the start of backward, too";
  }

  // A name of its own for every gradient.
  std::string name_of(std::int64_t pid) {
    std::string name = printable(tensors_.at(pid).name);
    if (name.empty() || !names_.insert(name).second) {
      name += "#" + std::to_string(pid);
      names_.insert(name);
    }
    return name;
  }

  // From the last ready tensor to the end of the last reduction, in the median over the steps.
  [[nodiscard]] std::int64_t exposed_us() const {
    std::vector<std::int64_t> ends = ends_;  // of the last reduction that began in the step
    for (const Reduction& reduction : reductions_) {
      const auto after = std::ranges::upper_bound(starts_, reduction.start_us);
      if (after == starts_.begin() || after == starts_.end()) continue;
      std::int64_t& end = ends[static_cast<std::size_t>(after - starts_.begin()) - 1];
      end = std::max(end, std::min(reduction.end_us, *after));
    }
    std::vector<std::int64_t> tails;
    for (std::size_t step = 0; step + 1 < steps_; ++step) tails.push_back(ends[step] - ends_[step]);
    return median(std::move(tails));
  }

  const Source& source_;
  ImportedStep step_;
  std::map<std::int64_t, Tensor> tensors_;  // by process id
  std::vector<Reduction> reductions_;
  std::vector<std::int64_t> gradients_;
  std::vector<std::int64_t> starts_, ends_;  // first and last ready tensor of each step
  std::set<std::string> names_;
  std::size_t steps_ = 0;
  std::int64_t ranks_ = 0;
};

}  // namespace

ImportedStep read_horovod_timeline(const Source& file, std::optional<std::int64_t> ranks) {
  return TimelineReader(file).read(ranks);
}

}  // namespace dovetail::imports
