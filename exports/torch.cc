// PyTorch DistributedDataParallel: the list of bucket sizes that reproduces a plan byte for byte.
//
// From 2.13 on DDP takes bucket_cap_mb_list: it walks the gradients in the order in which they became
// ready in the first step, closes bucket k once its bytes reach the k-th entry, and takes
// int(entry * 2^20) bytes for an entry. A bucket's bytes divided by 2^20 is exact in a double, and a
// bucket reaches its own size with its last gradient only; so the list gives the plan's buckets, if
// they are consecutive in ready order and of one dtype (DDP keeps a position in the list per dtype).
// Any other grouping, and any older version, takes dovetail_torch.apply (python/dovetail_torch).
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exports/python_text.h"
#include "exports/restriction.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

using schedule::Bucket;
using schedule::Program;
using schedule::Schedule;

// Why the list cannot say it; "" if it can.
std::string not_a_list(const Program& program, const Schedule& schedule) {
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

std::string buckets_text(const Program& program, const Schedule& schedule) {
  std::string text =
      "BUCKETS = [  # bytes; parameters in the order in which their gradients are ready\n";
  for (const Bucket& bucket : schedule.buckets) {
    text += "    (" + std::to_string(payload(program, bucket).count()) + ", " +
            quoted_list(parameter_names(program, bucket)) + "),\n";
  }
  return text + "]\n";
}

std::string caps_text(const Program& program, const Schedule& schedule) {
  std::string text = "BUCKET_CAP_MB_LIST = [";
  for (std::size_t b = 0; b < schedule.buckets.size(); ++b) {
    const auto bytes = static_cast<double>(payload(program, schedule.buckets[b]).count());
    text += (b == 0 ? "" : ", ") + shortest(bytes / (1 << 20));
  }
  return text + "]\n";
}

constexpr std::string_view kWrap = R"py(

def wrap(module, **options):
    """DistributedDataParallel(module) with the buckets of the plan; takes its other options."""
    import inspect
    import os

    from torch.nn.parallel import DistributedDataParallel

    if "bucket_cap_mb_list" not in inspect.signature(DistributedDataParallel.__init__).parameters:
        raise RuntimeError("this PyTorch has no bucket_cap_mb_list (2.13 has): use dovetail_torch.apply")
    if os.environ.get("DDP_SET_LAST_BUCKET_CAP") == "1":
        raise RuntimeError("DDP_SET_LAST_BUCKET_CAP=1 makes DDP read the list from its end: unset it")
    return DistributedDataParallel(module, bucket_cap_mb_list=BUCKET_CAP_MB_LIST,
                                   gradient_as_bucket_view=GRADIENT_AS_BUCKET_VIEW, **options)


def check(ddp):
    """After the second step: raises RuntimeError unless DDP's own log shows the plan's buckets."""
    said = ddp._get_ddp_logging_data()
    sizes = [int(size) for size in str(said.get("rebuilt_bucket_sizes", "")).split(",") if size.strip()]
    if sizes != [size for size, _ in BUCKETS]:
        raise RuntimeError(f"DDP's buckets hold {sizes} bytes, the plan's {[size for size, _ in BUCKETS]}")
)py";

constexpr std::string_view kApply = R"py(

def wrap(module, **options):
    """The buckets of the plan through dovetail_torch, which patches what DDP does not offer."""
    import dovetail_torch

    return dovetail_torch.apply(module, PLAN, **options)
)py";

}  // namespace

Export export_torch(const schedule::Plan& plan, const Machine& machine,
                    const ExportOptions& options) {
  require_no_pipeline(plan, "DDP");
  require_one_group(plan, "DDP");
  Restriction left(plan, machine);
  left.give_up("sharded updates: DDP all-reduces", all_reduce);
  give_up_the_usual(left, "DDP");
  left.give_up("waits at first use: DDP waits at the end of backward",
               [](Schedule& schedule) { wait_at(schedule, schedule::WaitPoint::EndOfBackward); });
  Export result = left.result();
  const Schedule& run = result.schedule;
  const std::string reason = not_a_list(plan.program, run);
  if (run.merge.micro_steps > 1) {
    result.notes.push_back("run all but the last of the " + std::to_string(run.merge.micro_steps) +
                           " micro-steps, forward and backward, under ddp.no_sync()");
  }
  if (!reason.empty()) {
    result.notes.push_back("bucket_cap_mb_list cannot say this plan: " + reason +
                           "; dovetail_torch.apply does it, on every version");
  } else {
    result.notes.push_back(
        "the first step still has other buckets: DDP applies the plan after it, leave it out of "
        "timings");
    result.notes.push_back(
        "torch.compile splits DDP's graphs by a size of its own: set "
        "torch._dynamo.config.optimize_ddp = False");
  }
  result.text = head(Target::Torch, result, plan, options);
  result.text += std::string("\nGRADIENT_AS_BUCKET_VIEW = ") +
                 (run.buckets.front().mode == schedule::BucketMode::View ? "True" : "False") + "\n";
  if (reason.empty()) {
    result.text += caps_text(plan.program, run) + buckets_text(plan.program, run);
    result.text += kWrap;
  } else {
    result.text += "PLAN = " + python_quoted(options.plan) + "\n" + buckets_text(plan.program, run);
    result.text += kApply;
  }
  result.paste = "from FILE import wrap; model = wrap(model)";
  return result;
}

}  // namespace dovetail::exports
