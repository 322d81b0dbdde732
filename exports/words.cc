// Whose words a policy is in.
//
// SPDX-License-Identifier: Apache-2.0
#include "exports/words.h"

#include "exports/python_text.h"

namespace dovetail::exports {
namespace {

using schedule::PolicyKind;
using schedule::PolicySpec;

// "25", "0.5": as bucket_cap_mb takes it.
std::string in_mb(Bytes bytes) {
  std::string text = shortest(static_cast<double>(bytes.count()) / (1 << 20));
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

bool is_view(const PolicySpec& spec) { return spec.mode == schedule::BucketMode::View; }

std::string torch_ddp(const PolicySpec& spec) {
  const std::string view = is_view(spec) ? ", gradient_as_bucket_view=True" : "";
  const bool one_mib = spec.first_bucket == mib(1);
  if (one_mib && spec.threshold == mib(25)) {
    return is_view(spec) ? "PyTorch DDP: gradient_as_bucket_view=True" : "PyTorch DDP's default";
  }
  const std::string cap = "bucket_cap_mb=" + in_mb(spec.threshold) + view;
  if (spec.first_bucket == spec.threshold) return "PyTorch DDP: " + cap;
  if (one_mib) return "PyTorch 1.x DDP: " + cap;
  return "PyTorch 1.x DDP: " + cap + ", first " + in_mb(spec.first_bucket);
}

std::string sharded(const PolicySpec& spec) {
  if (spec.wait == schedule::WaitPoint::BeforeNextBatch) return "Apex DistributedFusedAdam";
  return spec.gather == schedule::ParameterSync::NextForward
             ? "Megatron --overlap-param-gather, FSDP2 (export --to megatron, fsdp)"
             : "Megatron's distributed optimizer (export --to megatron)";
}

bool ddp_can(const PolicySpec& spec) {
  return spec.wait == schedule::WaitPoint::EndOfBackward && spec.batch == 0 &&
         spec.merge.sync == schedule::SyncPoint::LastMicroStep;
}

}  // namespace

std::string in_words(const PolicySpec& spec) {
  switch (spec.kind) {
    case PolicyKind::TorchDdp:
      if (ddp_can(spec)) return torch_ddp(spec);
      break;
    case PolicyKind::Sharded:
      return sharded(spec);
    case PolicyKind::SourceFirstFit:
      return "Paddle's data-parallel pass";
    case PolicyKind::Naive:
      return "Paddle without its pass";
    case PolicyKind::Pipeline:
      return "Megatron pipelines";
    case PolicyKind::Exact:
    case PolicyKind::Threshold:
    case PolicyKind::PerTensor:
    case PolicyKind::OneBucket:
    case PolicyKind::GradientMerge:
    case PolicyKind::SourceImproved:
      if (ddp_can(spec)) return "PyTorch DDP: bucket_cap_mb_list (export --to torch)";
      break;
    default:
      break;
  }
  return "dovetail_torch.apply (own hooks)";
}

}  // namespace dovetail::exports
