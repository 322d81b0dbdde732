// Rules and words of six frameworks.
//
// SPDX-License-Identifier: Apache-2.0
#include "imports/kineto/framework_buckets.h"

#include "imports/kineto/ddp_buckets.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
#include <utility>

namespace dovetail::imports {
namespace {

constexpr std::array<std::int64_t, 15> kMib = {1,  2,   4,   8,   16,  25,  32,  50,
                                               64, 100, 128, 200, 256, 512, 1024};

Bytes all_of(const StepGradients& gradients) {
  return std::accumulate(gradients.bytes.begin(), gradients.bytes.end(), Bytes{});
}

std::int64_t elements_of(const StepGradients& gradients, Bytes bytes) {
  return bytes.count() / std::max<std::int64_t>(1, gradients.element.count());
}

std::vector<std::size_t> ends_at(const StepGradients& gradients, Bytes cap) {
  return ddp_bucket_ends(gradients.bytes, cap, cap);
}

// "2, 15, 12": how many gradients each bucket has; of many the first ones.
std::string counts_text(const std::vector<std::size_t>& ends) {
  constexpr std::size_t kMost = 40;
  std::string text;
  std::size_t from = 0;
  for (std::size_t e = 0; e < ends.size(); ++e) {
    if (e == kMost) return text + ", ...";
    text += (e == 0 ? "" : ", ") + std::to_string(ends[e] - from);
    from = ends[e];
  }
  return text;
}

// DDP's own list: exact in a double, as a bucket's bytes are divided by a power of two.
std::string caps_text(const StepGradients& gradients, const std::vector<std::size_t>& ends) {
  std::string text;
  std::size_t from = 0;
  for (std::size_t e = 0; e < ends.size(); ++e) {
    Bytes sum;
    for (; from < ends[e]; ++from) sum += gradients.bytes[from];
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), "%.17g",
                  static_cast<double>(sum.count()) / 1048576);
    text += (e == 0 ? "" : ", ") + std::string(number.data());
  }
  return text;
}

// Sizes from small to large, up to the first that makes one bucket of all.
class Candidates {
 public:
  // `make` gives the candidate of a size.
  template <class Make>
  void each_size(Make make) {
    for (const std::int64_t cap : kMib) {
      BucketCandidate candidate = make(mib(cap));
      const bool is_last = candidate.ends.size() <= 1;
      found_.push_back(std::move(candidate));
      if (is_last) return;
    }
  }
  void add(BucketCandidate candidate) { found_.push_back(std::move(candidate)); }
  // What the framework does where nothing is set; it is none of the sizes.
  void add_default(BucketCandidate candidate) {
    candidate.size.reset();
    candidate.is_default = true;
    add(std::move(candidate));
  }
  std::vector<BucketCandidate> take() { return std::move(found_); }

 private:
  std::vector<BucketCandidate> found_;
};

std::vector<BucketCandidate> torch(const StepGradients& gradients) {
  const auto make = [](std::string setting, std::vector<std::size_t> ends) {
    BucketCandidate candidate;
    candidate.line = "DistributedDataParallel(model, " + setting + ")";
    candidate.setting = std::move(setting);
    candidate.ends = std::move(ends);
    return candidate;
  };
  Candidates all;
  all.add(make("bucket_cap_mb=None", ddp_bucket_ends(gradients.bytes, mib(1), mib(25))));
  all.each_size([&](Bytes cap) {
    const std::int64_t number = cap.count() >> 20;
    BucketCandidate candidate =
        make("bucket_cap_mb=" + std::to_string(number), ends_at(gradients, cap));
    candidate.size = number;
    return candidate;
  });
  std::vector<BucketCandidate> found = all.take();
  found.front().is_default = true;
  return found;
}

// One reduce-scatter in flight, and as many as there are groups.
std::vector<BucketCandidate> fsdp(const StepGradients& gradients) {
  std::vector<BucketCandidate> found;
  for (const InFlight in_flight : {InFlight::One, InFlight::Any}) {
    Candidates all;
    all.each_size([&](Bytes cap) {
      BucketCandidate candidate;
      candidate.ends = ends_at(gradients, cap);
      candidate.size = cap.count() >> 20;
      candidate.in_flight = in_flight;
      const std::string groups = std::to_string(candidate.ends.size());
      candidate.setting = "fully_shard lists of " + to_string(cap);
      candidate.line = "for modules in groups: fully_shard(modules)  # groups: " + groups +
                       ", each of modules with about " + to_string(cap) + " of gradients";
      if (in_flight == InFlight::Any) {
        const std::string call = "set_reduce_scatter_max_input_buffers(" + groups + ")";
        candidate.setting += ", " + call;
        candidate.line = "model." + call + "; " + candidate.line;
      }
      return candidate;
    });
    for (BucketCandidate& candidate : all.take()) {
      // One group has nothing to wait for.
      if (in_flight == InFlight::One || candidate.ends.size() > 1) {
        found.push_back(std::move(candidate));
      }
    }
  }
  return found;
}

std::vector<BucketCandidate> megatron(const StepGradients& gradients) {
  constexpr std::int64_t kLeast = 40'000'000;
  constexpr std::int64_t kPerRank = 1'000'000;
  const std::int64_t usual = std::max(kLeast, kPerRank * gradients.ranks);
  Candidates all;
  BucketCandidate first;
  first.setting = first.line = "--overlap-grad-reduce";
  first.ends = ends_at(gradients, gradients.element * usual);
  all.add_default(std::move(first));
  all.each_size([&](Bytes cap) {
    BucketCandidate candidate;
    candidate.size = elements_of(gradients, cap);
    candidate.setting = "--ddp-bucket-size " + std::to_string(*candidate.size);
    candidate.line = "--overlap-grad-reduce " + candidate.setting;
    candidate.ends = ends_at(gradients, cap);
    return candidate;
  });
  return all.take();
}

std::vector<BucketCandidate> deepspeed(const StepGradients& gradients) {
  constexpr std::int64_t kUsual = 500'000'000;
  const auto make = [&](std::int64_t elements) {
    BucketCandidate candidate;
    candidate.size = elements;
    candidate.setting = "\"reduce_bucket_size\": " + std::to_string(elements);
    candidate.line =
        "\"zero_optimization\": {\"stage\": 2, \"overlap_comm\": true, \"contiguous_gradients\": "
        "true, " +
        candidate.setting + "}";
    candidate.ends = ends_below(gradients.bytes, gradients.element * elements);
    candidate.in_flight = InFlight::One;
    return candidate;
  };
  Candidates all;
  all.add_default(make(kUsual));
  all.each_size([&](Bytes cap) { return make(elements_of(gradients, cap)); });
  return all.take();
}

std::vector<BucketCandidate> horovod(const StepGradients& gradients) {
  constexpr Bytes kUsual = mib(128);
  const auto make = [&](Bytes threshold, int cycle_ms) {
    BucketCandidate candidate;
    candidate.setting = "HOROVOD_FUSION_THRESHOLD=" + std::to_string(threshold.count()) +
                        " HOROVOD_CYCLE_TIME=" + std::to_string(cycle_ms);
    candidate.line = candidate.setting;
    candidate.ends = ends_by_cycle(gradients, threshold, std::chrono::milliseconds(cycle_ms));
    return candidate;
  };
  Candidates all;
  all.add_default(make(kUsual, 1));
  for (const std::int64_t cap : kMib) {
    if (mib(cap) >= kUsual || mib(cap) > all_of(gradients)) break;
    BucketCandidate candidate = make(mib(cap), 1);
    candidate.size = mib(cap).count();
    all.add(std::move(candidate));
  }
  for (const int cycle_ms : {2, 5, 10, 20, 50}) all.add(make(kUsual, cycle_ms));
  return all.take();
}

std::vector<BucketCandidate> xla(const StepGradients& gradients) {
  constexpr Bytes kUsual = Bytes((30 << 20) + 7);
  const auto make = [&](Bytes threshold) {
    BucketCandidate candidate;
    candidate.size = threshold.count();
    candidate.setting =
        "--xla_gpu_all_reduce_combine_threshold_bytes=" + std::to_string(threshold.count());
    candidate.line = "XLA_FLAGS=\"" + candidate.setting + "\"";
    candidate.ends = ends_below(gradients.bytes, threshold);
    return candidate;
  };
  Candidates all;
  all.add_default(make(kUsual));
  all.each_size(make);
  return all.take();
}

}  // namespace

std::vector<BucketCandidate> bucket_candidates(Framework framework,
                                               const StepGradients& gradients) {
  switch (framework) {
    case Framework::Torch:
      return torch(gradients);
    case Framework::Fsdp:
      return fsdp(gradients);
    case Framework::Megatron:
      return megatron(gradients);
    case Framework::DeepSpeed:
      return deepspeed(gradients);
    case Framework::Horovod:
      return horovod(gradients);
    case Framework::Xla:
      return xla(gradients);
  }
  return {};
}

std::optional<BucketCandidate> list_candidate(Framework framework, const StepGradients& gradients,
                                              std::vector<std::size_t> ends) {
  BucketCandidate candidate;
  const std::string groups = "buckets of " + counts_text(ends) +
                             " parameters, in the order in which their gradients are ready";
  switch (framework) {
    case Framework::Torch:
      candidate.setting = "bucket_cap_mb_list=[" + caps_text(gradients, ends) + "]";
      candidate.line = "DistributedDataParallel(model, " + candidate.setting + ")";
      break;
    case Framework::Megatron:
      candidate.setting = "full_param_layout=";
      candidate.line = "DistributedDataParallel(..., full_param_layout=layout)  # " + groups;
      break;
    case Framework::Horovod:
      candidate.setting = "groups= with HOROVOD_DISABLE_GROUP_FUSION=1";
      candidate.line =
          "HOROVOD_DISABLE_GROUP_FUSION=1, hvd.DistributedOptimizer(..., groups=groups)  # " +
          groups;
      break;
    case Framework::Xla:
      candidate.setting = "combiner_key";
      candidate.line =
          "set_xla_metadata(gradient, combiner_key=key)  # a key for each of " + groups;
      break;
    case Framework::
        Fsdp:  // its groups are whole modules, and the trace does not hold their borders
    case Framework::DeepSpeed:
      return std::nullopt;
  }
  candidate.ends = std::move(ends);
  candidate.is_list = true;
  return candidate;
}

std::vector<std::string> not_replayed(Framework framework) {
  switch (framework) {
    case Framework::Torch:
      return {};
    case Framework::Fsdp:
      return {"groups are of whole modules, whose borders the trace does not hold",
              "FSDP2 moves half of an all-reduce's bytes after backward leaves a group (the "
              "reduce-scatter) and the other half before forward (the all-gather), with "
              "reshard_after_forward=True once more before backward: the replay has whole "
              "all-reduces"};
    case Framework::Megatron:
      return {
          "buckets follow the reverse of the order in which parameters are defined: taken to be "
          "the order in which gradients are ready",
          "with --use-distributed-optimizer a bucket is reduce-scattered and its parameters are "
          "gathered (--overlap-param-gather hides that behind the next forward)"};
    case Framework::DeepSpeed:
      return {"ZeRO gathers all parameters after the update, which nothing hides"};
    case Framework::Horovod:
      return {
          "a bucket is launched at the next cycle, up to HOROVOD_CYCLE_TIME ms after its last "
          "gradient, and all are waited for in step()"};
    case Framework::Xla:
      return {
          "when a collective starts and is waited for is up to XLA's latency-hiding scheduler; "
          "a compiled step has none of the pauses of Python that this one has"};
  }
  return {};
}

std::string_view name_of(Framework framework) {
  switch (framework) {
    case Framework::Torch:
      return "PyTorch DDP";
    case Framework::Fsdp:
      return "FSDP2";
    case Framework::Megatron:
      return "Megatron-Core";
    case Framework::DeepSpeed:
      return "DeepSpeed";
    case Framework::Horovod:
      return "Horovod";
    case Framework::Xla:
      return "XLA";
  }
  return "";
}

std::vector<std::size_t> ends_below(const std::vector<Bytes>& gradients, Bytes most) {
  std::vector<std::size_t> ends;
  Bytes open;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (open > Bytes{} && open + gradients[i] > most) {
      ends.push_back(i);
      open = Bytes{};
    }
    open += gradients[i];
  }
  if (!gradients.empty()) ends.push_back(gradients.size());
  return ends;
}

std::vector<std::size_t> ends_by_cycle(const StepGradients& gradients, Bytes most, Duration cycle) {
  std::vector<std::size_t> ends;
  Bytes open;
  for (std::size_t i = 0; i < gradients.bytes.size(); ++i) {
    // What is ready at 0 goes at the end of the first cycle.
    const bool waited = i > 0 && gradients.ready[i] / cycle != gradients.ready[i - 1] / cycle;
    const bool is_full = open > Bytes{} && open + gradients.bytes[i] > most;
    if (waited || is_full) {
      ends.push_back(i);
      open = Bytes{};
    }
    open += gradients.bytes[i];
  }
  if (!gradients.bytes.empty()) ends.push_back(gradients.bytes.size());
  return ends;
}

}  // namespace dovetail::imports
