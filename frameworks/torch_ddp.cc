// PyTorch DistributedDataParallel: caps by version, and the list of sizes that reproduces a plan byte for byte.
//
// A bucket closes on reaching bucket_cap_mb (25 MiB by itself). The first one closes on reaching 1 MiB where no cap is
// given; 1.x closes it there always. Sources: torch 1.13 nn/parallel/distributed.py:723, 2.6 :1171-1215, 2.14
// :80-110; c10d/reducer.cpp.
//
// From 2.11 on DDP takes bucket_cap_mb_list (2.9.1 and 2.10.0 do not): it walks the gradients in the order in which they became
// ready in the first step (until it rebuilds its buckets, in the second forward, with static_graph the third, from the other
// end; its log shows them a forward later), closes bucket k once its bytes reach the k-th entry, and takes
// int(entry * 2^20) bytes for an entry. A bucket's bytes divided by 2^20 is exact in a double, and a
// bucket reaches its own size with its last gradient only; so the list gives the plan's buckets, if
// they are consecutive in ready order and of one dtype (DDP keeps a position in the list per dtype).
// Any other grouping, and any older version, takes dovetail_torch.apply (python/dovetail_torch).
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdio>

#include "frameworks/list.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/typed.h"

namespace dovetail::frameworks {
namespace {

namespace typed = schedule::typed;
using schedule::Bucket;
using schedule::Policy;
using schedule::Program;
using schedule::Schedule;
using schedule::SyncPoint;
using schedule::WaitPoint;

// Why the list cannot say it; "" if it can.
std::string torch_not_a_list(const Program& program, const Schedule& schedule) {
  const std::vector<TensorId> order = ready_order(program);
  std::size_t next = 0;
  for (const Bucket& bucket : schedule.buckets) {
    const std::size_t end = next + bucket.gradients.size();
    for (const schedule::Slice& slice : bucket.gradients) {
      const auto place = std::ranges::find(order, slice.tensor) - order.begin();
      const bool inside =
          static_cast<std::size_t>(place) >= next && static_cast<std::size_t>(place) < end;
      if (!inside) return "its buckets are not consecutive in the order of readiness";
      if (program.tensor(slice.tensor).dtype != program.tensor(order.front()).dtype) {
        return "its gradients have several dtypes, and DDP goes through the list for each of them";
      }
    }
    next = end;
  }
  return "";
}

std::string torch_buckets_text(const Program& program, const Schedule& schedule) {
  std::string text =
      "BUCKETS = [  # bytes; parameters in the order in which their gradients are ready\n";
  for (const Bucket& bucket : schedule.buckets) {
    text += "    (" + std::to_string(payload(program, bucket).count()) + ", " +
            quoted_list(parameter_names(program, bucket)) + "),\n";
  }
  return text + "]\n";
}

std::string torch_caps_text(const Program& program, const Schedule& schedule) {
  std::string text = "BUCKET_CAP_MB_LIST = [";
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    const auto bytes = static_cast<double>(payload(program, schedule.buckets[b]).count());
    text += (b == 0 ? "" : ", ") + shortest(bytes / (1 << 20));
  }
  return text + "]\n";
}

constexpr std::string_view kTorchWrap = R"py(

def wrap(module, **options):
    """DistributedDataParallel(module) with the buckets of the plan; takes its other options."""
    import inspect
    import os

    from torch.nn.parallel import DistributedDataParallel

    if "bucket_cap_mb_list" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        raise RuntimeError("this PyTorch has no bucket_cap_mb_list (2.11 has): use dovetail_torch.apply")
    if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":
        raise RuntimeError("DDP_SET_LAST_BUCKET_CAP=1 makes DDP read the list from its end: unset it")
    if options.get("find_unused_parameters") and not options.get("static_graph"):
        raise RuntimeError("find_unused_parameters: DDP never rebuilds its buckets then, and reads the list from its end")
    return DistributedDataParallel(module, bucket_cap_mb_list=BUCKET_CAP_MB_LIST,
                                   gradient_as_bucket_view=GRADIENT_AS_BUCKET_VIEW, **options)


def check(ddp):
    """After the third step (with static_graph the fourth): raises RuntimeError unless DDP's own log shows the plan's buckets."""
    said = ddp._get_ddp_logging_data()
    sizes = [int(size) for size in str(said.get("rebuilt_bucket_sizes", "")).split(",") if size.strip()]
    if not sizes:
        raise RuntimeError("DDP's log has no rebuilt buckets yet: it has them after the third step (with static_graph the fourth)")
    if sizes != [size for size, _ in BUCKETS]:
        raise RuntimeError(f"DDP's buckets hold {sizes} bytes, the plan's {[size for size, _ in BUCKETS]}")
)py";

constexpr std::string_view kTorchApply = R"py(

def wrap(module, **options):
    """The buckets of the plan through dovetail_torch, which patches what DDP does not offer."""
    import dovetail_torch

    return dovetail_torch.apply(module, PLAN, **options)
)py";

// An average's factor: the copy into a bucket applies it, and where gradients lie in buckets a pass of its own.
void divide_into_buckets(const Program& program, Schedule& schedule) {
  const bool averages = std::ranges::any_of(program.reductions, [](const auto& reduction) {
    return reduction.op == schedule::ReduceOp::Average;
  });
  if (!averages || schedule.buckets.empty()) return;
  const bool is_view = schedule.buckets.front().mode == schedule::BucketMode::View;
  schedule.scale = is_view ? schedule::ScaleAt::BeforeCollective : schedule::ScaleAt::Collective;
}

void restrict_to_torch(Restriction& left) {
  require_one_stage_and_group(left, "DDP");
  keep_parameters_whole(left, "DDP", schedule::ParameterSync::AfterUpdate);
  left.give_up("sharded updates: DDP all-reduces", all_reduce);
  give_up_the_usual(left, "DDP");
  left.give_up("waits at first use: DDP waits at the end of backward",
               [](Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
  left.give_up(
      "averages without a pass: DDP divides gradients that lie in buckets in one of its own",
      [&left](Schedule& schedule) { divide_into_buckets(left.program(), schedule); });
}

Export write_torch(Restriction& left, const Writing& writing) {
  const schedule::Program& program = left.program();
  Export result = left.result();
  const Schedule& run = result.schedule;
  const std::string reason = torch_not_a_list(program, run);
  if (run.merge.micro_steps > 1) {
    result.notes.push_back("run all but the last of the " + std::to_string(run.merge.micro_steps) +
                           " micro-steps, forward and backward, under ddp.no_sync()");
  }
  if (!reason.empty()) {
    result.notes.push_back("bucket_cap_mb_list cannot say this plan: " + reason +
                           "; dovetail_torch.apply does it, on every version");
  } else {
    result.notes.push_back(
        "in its first step (with static_graph two) DDP reads the list from its other end, then it "
        "rebuilds its buckets as planned, and its log shows them a step later: leave three steps "
        "out of timings");
    result.notes.push_back(
        "with torch.compile compile the blocks, not the whole (block.compile()), and set "
        "torch._dynamo.config.optimize_ddp = False: a backward compiled as a whole gives all "
        "gradients at its end, or at cuts of DDP's largest cap");
  }
  result.text = head(writing, result);
  result.text += std::string("\nGRADIENT_AS_BUCKET_VIEW = ") +
                 (run.buckets.front().mode == schedule::BucketMode::View ? "True" : "False") + "\n";
  if (reason.empty()) {
    result.text += torch_caps_text(program, run) + torch_buckets_text(program, run);
    result.text += kTorchWrap;
  } else {
    result.text +=
        "PLAN = " + python_quoted(writing.options.plan) + "\n" + torch_buckets_text(program, run);
    result.text += kTorchApply;
  }
  result.paste = "from FILE import wrap; model = wrap(model)";
  return result;
}

constexpr std::int64_t kTorchFirstBucket = 1 << 20;
constexpr std::int64_t kTorchCap = 25 << 20;

std::vector<std::int64_t> torch_limits(std::optional<std::int64_t> cap, std::int64_t /*ranks*/) {
  if (!cap) return {kTorchFirstBucket, kTorchCap};
  return {*cap};
}

std::vector<std::int64_t> torch1_limits(std::optional<std::int64_t> cap, std::int64_t /*ranks*/) {
  return {kTorchFirstBucket, cap.value_or(kTorchCap)};
}

Written cap_setting(const Chosen& chosen) {
  const std::string setting =
      "bucket_cap_mb=" + (chosen.is_set ? typed::in_mb(chosen.bytes) : std::string("None"));
  return {setting, "DistributedDataParallel(model, " + setting + ")"};
}

// DDP's own list: exact in a double, as a bucket's bytes are divided by a power of two.
Written torch_list_setting(std::span<const Bytes> sizes, const std::string& /*counts*/,
                           schedule::BucketMode mode) {
  std::string caps;
  for (const Bytes size : sizes) {
    std::array<char, 40> number{};
    std::snprintf(number.data(), number.size(), "%.17g",
                  static_cast<double>(size.count()) / (1 << 20));
    caps += (caps.empty() ? "" : ", ") + std::string(number.data());
  }
  const std::string setting =
      "bucket_cap_mb_list=[" + caps + "]" +
      (mode == schedule::BucketMode::View ? ", gradient_as_bucket_view=True" : "");
  return {setting, "DistributedDataParallel(model, " + setting + ")"};
}

std::string torch_policy(std::span<const Bytes> limits) {
  return "torch-ddp:cap=" + typed::exact_size(limits.back()) +
         ",first=" + typed::exact_size(limits.front());
}

// What any version does with the buckets that it is told: a launch when each is ready, a wait at the end.
bool is_run_by_torch(const Policy& policy) {
  const schedule::BucketPlacement place = schedule::placement(policy);
  return place.wait == WaitPoint::EndOfBackward && place.batch == 0 &&
         schedule::accumulation(policy).sync == SyncPoint::LastMicroStep;
}

// The caps of a version, where `first` is what it does with the first bucket of a given cap.
std::optional<Said> say_cap(const Policy& policy, const std::string& name, Bytes first) {
  const schedule::ByLimits* by = limits_of(policy);
  if (by == nullptr || !by->first || !is_run_by_torch(policy)) return std::nullopt;
  const bool is_view = schedule::placement(policy).mode == schedule::BucketMode::View;
  const std::string view = is_view ? "gradient_as_bucket_view=True" : "";
  const auto paste = [](const std::string& setting) {
    return "DistributedDataParallel(model, " + setting + ")";
  };
  if (by->first == mib(1) && by->cap == mib(25)) {
    if (!is_view) return Said{name + "'s default", "", ToldBy::Default};
    return Said{name + ": " + view, paste(view)};
  }
  if (by->first != first) return std::nullopt;
  const std::string setting =
      "bucket_cap_mb=" + typed::in_mb(by->cap) + (is_view ? ", " + view : "");
  return Said{name + ": " + setting, paste(setting)};
}

std::optional<Said> say_torch(const Policy& policy, const Gradients& /*gradients*/) {
  return say_cap(policy, "PyTorch DDP", schedule::bucket_size(policy).value_or(Bytes(0)));
}

std::optional<Said> say_with_list(const Policy& policy, const Gradients& gradients) {
  if (std::optional<Said> cap = say_torch(policy, gradients)) return cap;
  if (!is_run_by_torch(policy) || !groups_freely(policy)) return std::nullopt;
  return Said{"PyTorch DDP: bucket_cap_mb_list (export --to torch)", "", ToldBy::List};
}

std::optional<Said> say_torch1(const Policy& policy, const Gradients& /*gradients*/) {
  return say_cap(policy, "PyTorch 1.x DDP", mib(1));
}

}  // namespace

std::vector<Framework> torch_ddp() {
  Framework newest{
      .id = "torch",
      .name = "PyTorch DDP",
      .presets = {{"ddp", "torch-ddp:cap=25MiB,first=1MiB"}},
      .size = SizeOption{.written_in = 1 << 20, .limits = torch_limits, .write = cap_setting},
      .policy = torch_policy,
      .usual = {"torch-ddp:cap=25MiB,first=1MiB,mode=view"},
      .more = {"exact:mode=copy,wait=end-of-backward",
               "exact:wait=end-of-backward,scale=before-collective"},
      .says = say_with_list,
      .list = torch_list_setting,
      .curve = "torch-ddp",
      .axis = "PyTorch DDP: bucket_cap_mb",
      .title = "PyTorch DistributedDataParallel (2.11 or later)",
      .writes = "bucket_cap_mb_list, byte for byte",
      .restrict_to = restrict_to_torch,
      .write = write_torch};
  // Before 2.11 there is no list; 1.x closes the first bucket at 1 MiB whatever the cap.
  Framework older = newest;
  older.id = "torch2.6";
  older.name = "PyTorch DDP before 2.11";
  older.presets = {};
  older.more = {};
  older.says = say_torch;
  older.list = nullptr;
  older.curve = {};
  older.write = nullptr;
  Framework oldest = older;
  oldest.id = "torch1";
  oldest.name = "PyTorch 1.x DDP";
  oldest.size->limits = torch1_limits;
  oldest.says = say_torch1;
  return {newest, older, oldest};
}

}  // namespace dovetail::frameworks
