// How a policy is typed and printed.
//
// One table holds every option: its key, the policies that take it, how it is read and how it is
// printed. Sizes are always printed, other options where they differ from the policy's default.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/json_reader.h"
#include "schedule/policies.h"
#include "schedule/policies/torch_version.h"
#include "schedule/policies/typed.h"

namespace dovetail::schedule {
namespace {

using Kind = PolicyKind;
using typed::exact_size;
using typed::fail;
using typed::number;
using typed::positive;
using typed::size;
using typed::small_number;
using typed::Typed;
using typed::word;

struct Known {
  std::string_view name;
  Kind kind;
  std::string_view purpose;
};
constexpr std::array<Known, 14> kPolicies = {{
    {"naive", Kind::Naive, "one collective per gradient on the compute stream: the reference"},
    {"no-overlap", Kind::NoOverlap, "one bucket, after backward"},
    {"no-overlap-per-tensor", Kind::NoOverlapPerTensor, "one bucket per gradient, after backward"},
    {"per-tensor", Kind::PerTensor, "one bucket per gradient, launched when ready"},
    {"one-bucket", Kind::OneBucket, "one bucket, launched when its last gradient is ready"},
    {"threshold", Kind::Threshold, "a bucket closes once its bytes reach the threshold"},
    {"torch-ddp", Kind::TorchDdp, "PyTorch DDP's buckets, copies and waits"},
    {"exact", Kind::Exact, "the grouping with the earliest last completion"},
    {"source-first-fit", Kind::SourceFirstFit, "the data-parallel pass of Paddle, rule by rule"},
    {"source-improved", Kind::SourceImproved, "the same without its limits; caps count bytes"},
    {"gradient-merge", Kind::GradientMerge, "k micro-steps before one update"},
    {"sharded", Kind::Sharded, "reduce-scatter, update of one shard per rank, all-gather"},
    {"fsdp", Kind::Fsdp, "ZeRO-3: parameters gathered block by block before each use"},
    {"pipeline", Kind::Pipeline, "stages, micro-batches in order, buckets within each stage"},
}};

// Another name for a policy with options of its own.
struct Preset {
  std::string_view name;
  Kind kind;
  std::string_view stands_for;
  void (*apply)(PolicySpec&);
};
constexpr std::array<Preset, 2> kPresets = {{
    {"paddle-pass", Kind::SourceFirstFit, "source-first-fit:elements=50331648", [](PolicySpec&) {}},
    {"apex-sharded", Kind::Sharded, "sharded:cap=100MiB,p=2,wait=before-next-batch",
     [](PolicySpec& spec) { spec.wait = WaitPoint::BeforeNextBatch; }},
}};

constexpr std::array kChoices = {Choice::Yes, Choice::No};
constexpr std::array kBlocks = {Blocks::Layer, Blocks::Size};
constexpr std::array kModes = {BucketMode::View, BucketMode::Copy};
constexpr std::array kWaits = {WaitPoint::FirstUse, WaitPoint::EndOfBackward,
                               WaitPoint::BeforeNextBatch};
constexpr std::array kScopes = {WaitScope::Event, WaitScope::WholeStream};
constexpr std::array kTails = {Tail::AfterBackward, Tail::LastGradient};
constexpr std::array kScales = {ScaleAt::Collective, ScaleAt::BeforeCollective,
                                ScaleAt::AfterCollective, ScaleAt::LossGradient,
                                ScaleAt::Optimizer};
constexpr std::array kSyncs = {SyncPoint::EveryMicroStep, SyncPoint::AfterLastMicroStep,
                               SyncPoint::LastMicroStep};
constexpr std::array kDTypes = {DType::F32, DType::F16, DType::BF16, DType::F64};
constexpr std::array kGathers = {ParameterSync::AfterUpdate, ParameterSync::NextForward};
constexpr std::array kOrders = {PipelineKind::Sequential, PipelineKind::OneFOneB,
                                PipelineKind::Interleaved};
constexpr std::array kAlignments = {LaunchAlignment::PerStage, LaunchAlignment::AcrossStages};

bool first_follows_cap(const Typed& typed) {
  const TorchVersion version = torch_version(typed.value);
  if (!version.problem.empty()) fail(typed, version.problem);
  return version.first_follows_cap;
}

bool is_one_of(Kind kind, std::initializer_list<Kind> kinds) {
  return std::ranges::find(kinds, kind) != kinds.end();
}
bool has_cap(Kind kind) {
  return is_one_of(kind, {Kind::TorchDdp, Kind::SourceFirstFit, Kind::SourceImproved,
                          Kind::GradientMerge, Kind::Sharded, Kind::Fsdp, Kind::Pipeline});
}
bool is_of_source(Kind kind) {
  return is_one_of(kind, {Kind::SourceFirstFit, Kind::SourceImproved});
}
bool may_not_overlap(Kind kind) {
  return is_of_source(kind) || is_one_of(kind, {Kind::GradientMerge, Kind::Sharded});
}
bool launches_in_batches(Kind kind) {
  return !is_one_of(
      kind, {Kind::Naive, Kind::NoOverlap, Kind::NoOverlapPerTensor, Kind::Fsdp, Kind::Pipeline});
}
bool any(Kind) { return true; }
bool is_fsdp(Kind kind) { return kind == Kind::Fsdp; }
bool is_pipeline(Kind kind) { return kind == Kind::Pipeline; }

struct Option {
  std::string_view key;
  bool (*of)(Kind);
  void (*read)(PolicySpec&, const Typed&);
  std::string (*print)(const PolicySpec&);  // empty: not set
  bool always = false;                      // printed even where it is the default
};

// When a bucket is full.
constexpr std::array<Option, 5> kGroupingOptions = {{
    {"threshold", [](Kind kind) { return kind == Kind::Threshold; },
     [](PolicySpec& spec, const Typed& typed) { spec.threshold = size(typed); },
     [](const PolicySpec& spec) { return exact_size(spec.threshold); }, true},
    {"cap", has_cap,
     [](PolicySpec& spec, const Typed& typed) {
       spec.threshold = size(typed);
       spec.elements = 0;
       if (spec.kind == Kind::Fsdp) spec.blocks = Blocks::Size;
     },
     [](const PolicySpec& spec) {
       const bool by_layer = spec.kind == Kind::Fsdp && spec.blocks == Blocks::Layer;
       return spec.elements > 0 || by_layer ? std::string() : exact_size(spec.threshold);
     },
     true},
    {"elements", [](Kind kind) { return kind == Kind::SourceFirstFit; },
     [](PolicySpec& spec, const Typed& typed) {
       spec.elements = number(typed, std::int64_t{1} << 44);
     },
     [](const PolicySpec& spec) {
       return spec.elements > 0 ? std::to_string(spec.elements) : std::string();
     },
     true},
    {"first", [](Kind kind) { return kind == Kind::TorchDdp; },
     [](PolicySpec& spec, const Typed& typed) { spec.first_bucket = size(typed); },
     [](const PolicySpec& spec) { return exact_size(spec.first_bucket); }, true},
    // What it stands for is known once cap and first are (apply_torch_version); it is never printed.
    {"torch", [](Kind kind) { return kind == Kind::TorchDdp; },
     [](PolicySpec&, const Typed& typed) { static_cast<void>(first_follows_cap(typed)); },
     [](const PolicySpec&) { return std::string(); }},
}};

// Micro-steps.
constexpr std::array<Option, 4> kMergeOptions = {{
    {"k", any,
     [](PolicySpec& spec, const Typed& typed) {
       spec.merge.micro_steps = small_number(typed, 1 << 16);
     },
     [](const PolicySpec& spec) { return std::to_string(spec.merge.micro_steps); }},
    {"sync", any,
     [](PolicySpec& spec, const Typed& typed) { spec.merge.sync = word(typed, kSyncs); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.merge.sync)); }},
    {"average", any,
     [](PolicySpec& spec, const Typed& typed) {
       spec.merge.op = word(typed, kChoices) == Choice::Yes ? ReduceOp::Average : ReduceOp::Sum;
     },
     [](const PolicySpec& spec) {
       return std::string(to_string(spec.merge.op == ReduceOp::Average ? Choice::Yes : Choice::No));
     }},
    {"sums", any,
     [](PolicySpec& spec, const Typed& typed) { spec.merge.dtype = word(typed, kDTypes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.merge.dtype)); }},
}};

// Where a bucket lies, when it is launched and where it is waited for.
constexpr std::array<Option, 6> kPlaceOptions = {{
    {"mode", any, [](PolicySpec& spec, const Typed& typed) { spec.mode = word(typed, kModes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.mode)); }},
    {"wait", any, [](PolicySpec& spec, const Typed& typed) { spec.wait = word(typed, kWaits); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.wait)); }},
    {"scope", any, [](PolicySpec& spec, const Typed& typed) { spec.scope = word(typed, kScopes); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.scope)); }},
    {"batch", [](Kind kind) { return launches_in_batches(kind) && kind != Kind::Sharded; },
     [](PolicySpec& spec, const Typed& typed) { spec.batch = small_number(typed, 1 << 16); },
     [](const PolicySpec& spec) {
       return spec.batch > 0 ? std::to_string(spec.batch) : std::string();
     }},
    {"p", [](Kind kind) { return kind == Kind::Sharded; },
     [](PolicySpec& spec, const Typed& typed) { spec.batch = small_number(typed, 1 << 16); },
     [](const PolicySpec& spec) { return std::to_string(spec.batch); }, true},
    {"tail", launches_in_batches,
     [](PolicySpec& spec, const Typed& typed) { spec.tail = word(typed, kTails); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.tail)); }},
}};

// The rest.
constexpr std::array<Option, 7> kOtherOptions = {{
    {"scale", any, [](PolicySpec& spec, const Typed& typed) { spec.scale = word(typed, kScales); },
     [](const PolicySpec& spec) {
       return spec.scale ? std::string(to_string(*spec.scale)) : std::string();
     }},
    {"overlap", may_not_overlap,
     [](PolicySpec& spec, const Typed& typed) { spec.overlap = word(typed, kChoices); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.overlap)); }},
    {"fuse", [](Kind kind) { return kind == Kind::SourceFirstFit; },
     [](PolicySpec& spec, const Typed& typed) { spec.fuse = word(typed, kChoices); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.fuse)); }},
    {"sharding", [](Kind kind) { return kind == Kind::SourceFirstFit; },
     [](PolicySpec& spec, const Typed& typed) { spec.sharding = word(typed, kChoices); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.sharding)); }},
    {"max-streams", is_of_source,
     [](PolicySpec& spec, const Typed& typed) { spec.max_streams = small_number(typed, 64); },
     [](const PolicySpec& spec) { return std::to_string(spec.max_streams); }},
    {"gather", [](Kind kind) { return kind == Kind::Sharded; },
     [](PolicySpec& spec, const Typed& typed) { spec.gather = word(typed, kGathers); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.gather)); }},
    {"replicas", [](Kind kind) { return kind == Kind::Sharded || kind == Kind::Fsdp; },
     [](PolicySpec& spec, const Typed& typed) { spec.replicas = std::string(typed.value); },
     [](const PolicySpec& spec) { return spec.replicas; }},
}};

// Parameters that come and go. `prefetch` is both directions at once and printed as these.
constexpr std::array<Option, 8> kGatherOptions = {{
    {"blocks", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) { spec.blocks = word(typed, kBlocks); },
     [](const PolicySpec& spec) {
       return spec.blocks == Blocks::Layer ? std::string(to_string(spec.blocks)) : std::string();
     },
     true},
    {"prefetch", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) {
       spec.prefetch_forward = static_cast<std::int32_t>(number(typed, 1 << 16, 0));
       spec.prefetch_backward = spec.prefetch_forward;
     },
     [](const PolicySpec&) { return std::string(); }},
    {"forward", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) {
       spec.prefetch_forward = static_cast<std::int32_t>(number(typed, 1 << 16, 0));
     },
     [](const PolicySpec& spec) { return std::to_string(spec.prefetch_forward); }, true},
    {"backward", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) {
       spec.prefetch_backward = static_cast<std::int32_t>(number(typed, 1 << 16, 0));
     },
     [](const PolicySpec& spec) { return std::to_string(spec.prefetch_backward); }, true},
    {"memory", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) { spec.gathered.bytes = size(typed); },
     [](const PolicySpec& spec) {
       return spec.gathered.bytes > Bytes(0) ? exact_size(spec.gathered.bytes) : std::string();
     }},
    {"limit", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) {
       spec.gathered.buckets = small_number(typed, 1 << 16);
     },
     [](const PolicySpec& spec) { return positive(spec.gathered.buckets); }},
    {"reshard", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) { spec.reshard = word(typed, kChoices); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.reshard)); }},
    {"streams", is_fsdp,
     [](PolicySpec& spec, const Typed& typed) { spec.streams = small_number(typed, 2); },
     [](const PolicySpec& spec) { return std::to_string(spec.streams); }},
}};

constexpr std::array<Option, 4> kPipelineOptions = {{
    {"kind", is_pipeline,
     [](PolicySpec& spec, const Typed& typed) { spec.order = word(typed, kOrders); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.order)); }, true},
    {"stages", is_pipeline,
     [](PolicySpec& spec, const Typed& typed) { spec.stages = small_number(typed, 1 << 10); },
     [](const PolicySpec& spec) { return std::to_string(spec.stages); }, true},
    {"chunks", is_pipeline,
     [](PolicySpec& spec, const Typed& typed) { spec.chunks = small_number(typed, 1 << 10); },
     [](const PolicySpec& spec) { return std::to_string(spec.chunks); }},
    {"align", is_pipeline,
     [](PolicySpec& spec, const Typed& typed) { spec.alignment = word(typed, kAlignments); },
     [](const PolicySpec& spec) { return std::string(to_string(spec.alignment)); }},
}};

template <class Visit>
void for_each_option(const Visit& visit) {
  for (const Option& option : kGroupingOptions) visit(option);
  for (const Option& option : kMergeOptions) visit(option);
  for (const Option& option : kPlaceOptions) visit(option);
  for (const Option& option : kOtherOptions) visit(option);
  for (const Option& option : kGatherOptions) visit(option);
  for (const Option& option : kPipelineOptions) visit(option);
}

void read_option(PolicySpec& spec, const Typed& typed) {
  const Option* found = nullptr;
  std::string known;
  std::string others;
  for_each_option([&](const Option& option) {
    if (option.of(spec.kind)) {
      known += (known.empty() ? "" : ", ") + std::string(option.key);
      if (option.key == typed.key) found = &option;
    } else if (option.key == typed.key) {
      for (const auto& entry : kPolicies) {
        if (!option.of(entry.kind)) continue;
        others += (others.empty() ? "" : ", ") + std::string(entry.name);
      }
    }
  });
  if (found != nullptr) return found->read(spec, typed);
  fail(typed.policy, "unknown option \"" + std::string(typed.key) + "\"; known: " + known +
                         (others.empty() ? "" : "; it is an option of " + others));
}

void check_pipeline(std::string_view text, const PolicySpec& spec) {
  if (spec.stages < 2) fail(text, "stages= must be at least 2: one stage is no pipeline (AS2)");
  const bool interleaved = spec.order == PipelineKind::Interleaved;
  if (interleaved && spec.chunks < 2) {
    fail(text, "kind=interleaved needs chunks= of at least 2: it interleaves them (AS9)");
  }
  if (!interleaved && spec.chunks > 1) {
    fail(text, "chunks= needs kind=interleaved: the other orders have one part per stage (AS9)");
  }
  if (!interleaved && spec.alignment == LaunchAlignment::AcrossStages) {
    fail(text, "align=across-stages needs kind=interleaved (AS10)");
  }
  if (spec.order != PipelineKind::Sequential && spec.merge.sync == SyncPoint::EveryMicroStep) {
    fail(text,
         "sync=every: in a pipeline gradients travel in the last micro-batch only (AS1, AS2); use "
         "sync=last");
  }
}

void check_combination(std::string_view text, const PolicySpec& spec,
                       const std::set<std::string_view>& seen) {
  if (seen.contains("cap") && seen.contains("elements")) {
    fail(text, "cap counts bytes and elements counts elements (P19): give one of them");
  }
  if (spec.wait == WaitPoint::BeforeNextBatch && spec.batch == 0) {
    fail(text, "wait=before-next-batch needs batch=: there are no batches to wait between (A13)");
  }
  if (seen.contains("tail") && spec.batch == 0) {
    fail(text, "tail= needs batch=: without batches nothing is left over (A11)");
  }
  if (seen.contains("cap") && seen.contains("blocks")) {
    fail(text, "cap closes a block by its size and blocks= by its layer: give one of them");
  }
  if (seen.contains("prefetch") && (seen.contains("forward") || seen.contains("backward"))) {
    fail(text, "prefetch= sets forward= and backward= at once: give one or the other");
  }
  const bool shards = is_one_of(spec.kind, {Kind::Sharded, Kind::Fsdp});
  if (shards && spec.merge.micro_steps > 1 && spec.merge.sync == SyncPoint::EveryMicroStep) {
    fail(text,
         "sync=every with sharded updates: each micro-step would add up whole gradients, of which "
         "a rank holds only its shard (A14, A19); use sync=last");
  }
  if (spec.merge.micro_steps == 1) {
    for (const std::string_view key : {"sync", "average", "sums"}) {
      if (!seen.contains(key) || spec.kind == Kind::GradientMerge) continue;
      fail(text, std::string(key) + "= needs k=: there is only one micro-step (GM1)");
    }
  }
  if (spec.wait == WaitPoint::BeforeNextBatch && spec.merge.micro_steps > 1 &&
      spec.merge.sync == SyncPoint::AfterLastMicroStep) {
    fail(text,
         "wait=before-next-batch with sync=after: nothing is launched before the end of backward "
         "(GM8, GM14); use sync=last");
  }
  if (spec.kind == Kind::Pipeline) check_pipeline(text, spec);
}

}  // namespace

std::string_view to_string(Blocks blocks) { return blocks == Blocks::Layer ? "layer" : "size"; }
std::string_view to_string(Choice choice) { return choice == Choice::Yes ? "yes" : "no"; }
std::string_view to_string(Tail tail) {
  return tail == Tail::AfterBackward ? "after-backward" : "last-gradient";
}

PolicySpec default_policy(PolicyKind kind) {
  PolicySpec spec{.kind = kind};
  if (kind == Kind::TorchDdp) {
    spec.mode = BucketMode::Copy;
    spec.wait = WaitPoint::EndOfBackward;
  } else if (kind == Kind::SourceFirstFit) {
    spec.elements = kSourceElements;
    spec.scope = WaitScope::WholeStream;
  } else if (kind == Kind::GradientMerge) {
    spec.merge.micro_steps = 4;
  } else if (kind == Kind::Sharded) {
    spec.threshold = mib(100);
    spec.mode = BucketMode::Copy;
    spec.batch = 2;
  } else if (kind == Kind::Pipeline) {
    spec.merge.micro_steps = 4;
    spec.stages = 2;
  }
  return spec;
}

std::string_view name(PolicyKind kind) {
  for (const auto& entry : kPolicies) {
    if (entry.kind == kind) return entry.name;
  }
  return "?";
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Known& entry : kPolicies) names.emplace_back(entry.name);
  return names;
}

std::vector<PolicyHelp> policy_help() {
  std::vector<PolicyHelp> help;
  for (const Known& entry : kPolicies) {
    PolicyHelp& row = help.emplace_back();
    row.name = entry.name;
    row.purpose = entry.purpose;
    row.defaults = to_string(default_policy(entry.kind));
    for_each_option([&](const Option& option) {
      if (option.of(entry.kind)) row.options.emplace_back(option.key);
    });
  }
  for (const Preset& preset : kPresets) {
    PolicyHelp& row = help.emplace_back();
    row.name = preset.name;
    row.purpose = "stands for " + std::string(preset.stands_for);
    row.defaults = preset.stands_for;
  }
  return help;
}

namespace {

// The policy or preset of this name, with its defaults.
PolicySpec named_policy(std::string_view text, std::string_view name) {
  for (const Known& known : kPolicies) {
    if (known.name == name) return default_policy(known.kind);
  }
  for (const Preset& preset : kPresets) {
    if (preset.name != name) continue;
    PolicySpec spec = default_policy(preset.kind);
    preset.apply(spec);
    return spec;
  }
  std::vector<std::string> names = policy_names();
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  const std::string near = nearest_word(name, names);
  std::string list;
  for (const std::string& candidate : names) list += (list.empty() ? "" : ", ") + candidate;
  fail(text,
       "unknown policy" + (near.empty() ? "; known: " + list : "; did you mean \"" + near + "\"?"));
}

}  // namespace

namespace {

// torch= decides about the first bucket unless first= does.
void apply_torch_version(PolicySpec& spec, const Typed& typed,
                         const std::set<std::string_view>& seen) {
  if (seen.contains("first") || !seen.contains("cap")) return;
  if (first_follows_cap(typed)) spec.first_bucket = spec.threshold;
}

}  // namespace

PolicySpec parse_policy(std::string_view text) {
  const std::size_t colon = text.find(':');
  PolicySpec spec = named_policy(text, text.substr(0, colon));
  std::string_view rest = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  if (colon != std::string_view::npos && rest.empty()) fail(text, "expected options after ':'");
  std::set<std::string_view> seen;
  std::optional<Typed> torch;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const std::string_view option = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
    const std::size_t equals = option.find('=');
    if (equals == std::string_view::npos) {
      fail(text, "expected key=value, found \"" + std::string(option) + "\"");
    }
    const std::string_view key = option.substr(0, equals);
    if (!seen.insert(key).second) fail(text, "option \"" + std::string(key) + "\" stands twice");
    const Typed typed = {text, key, option.substr(equals + 1)};
    read_option(spec, typed);
    if (key == "torch") torch = typed;
  }
  if (torch) apply_torch_version(spec, *torch, seen);
  check_combination(text, spec, seen);
  return spec;
}

std::string to_string(const PolicySpec& spec) {
  const PolicySpec usual = default_policy(spec.kind);
  std::string text;
  for_each_option([&](const Option& option) {
    if (!option.of(spec.kind)) return;
    const std::string value = option.print(spec);
    if (value.empty() || (!option.always && value == option.print(usual))) return;
    text += (text.empty() ? ":" : ",") + std::string(option.key) + "=" + value;
  });
  return std::string(name(spec.kind)) + text;
}

}  // namespace dovetail::schedule
