// Field words and round figures: three digits below 10 ms, one place above.
//
// SPDX-License-Identifier: Apache-2.0
#include "recordings/diagnose/words.h"

#include "base/count.h"
#include "base/decimal.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace dovetail::diagnose {
namespace {

std::string with_places(Duration time, const char* format) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), format, to_us(time) / 1e3);
  return text.data();
}
std::string ms(Duration time) {
  return with_places(time, std::abs(to_us(time)) < 1e4 ? "%.2f ms" : "%.1f ms");
}
std::string exact_ms(Duration time) { return with_places(time, "%.3f ms"); }

std::string percent(double share) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.0f %%", share * 100);
  return text.data();
}

std::string of_step(const Finding& finding) {
  return ms(finding.amount) + " of " + ms(finding.whole);
}

std::string late_sentence(const Finding& finding, const LateRank& worst) {
  std::string text = "stragglers: " + percent(finding.share()) + " of all collective time (" +
                     of_step(finding) + ", all ranks) is waiting for a late rank; most of it, " +
                     ms(worst.caused) + ", for rank " + std::to_string(worst.rank);
  const bool is_vowel = worst.mostly_in.find_first_of("aeiou") == 0;
  text += std::string(" (longest in a") + (is_vowel ? "n " : " ") + worst.mostly_in + ")";
  if (!worst.mostly_with.empty()) text += ", late with " + worst.mostly_with;
  return text;
}

std::string exposed_sentence(const Finding& finding, const Diagnosis& diagnosis) {
  std::string text = of_step(finding) + " is exposed communication";
  std::vector<std::size_t> order(kCauses);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, std::ranges::greater{}, [&](std::size_t c) { return finding.by[c]; });
  const char* separator = ": ";
  for (const std::size_t c : order) {
    if (finding.by[c] <= Duration{}) break;
    text += separator + in_words(static_cast<Cause>(c), diagnosis) + " " + ms(finding.by[c]);
    separator = ", ";
  }
  return text;
}

// "21 copies into 4 buckets (0.61 ms) and 21 out of them (0.40 ms) a step".
std::string copies_in_words(const DdpCopies& copies) {
  std::string text = copies.into.launches == 0
                         ? "no copies into its " + counted(copies.buckets, "bucket")
                         : std::to_string(copies.into.launches) + " copies into " +
                               counted(copies.buckets, "bucket") + " (" + ms(copies.into.time) +
                               ")";
  if (copies.out.launches == 0) return text + ", none out of them";
  return text + " and " + std::to_string(copies.out.launches) + " out of them (" +
         ms(copies.out.time) + ") a step";
}

std::string no_collective_sentence(const Diagnosis& diagnosis) {
  const imports::Unrecognised& seen = diagnosis.unrecognised;
  if (diagnosis.world_size == 1 && diagnosis.copies) {
    return "one rank, for which NCCL launches nothing in place; what DistributedDataParallel costs "
           "the GPU is " +
           copies_in_words(*diagnosis.copies);
  }
  if (diagnosis.world_size == 1) return "one rank, which sends nothing";
  if (seen.likely.empty()) {
    return "no collective recognised: no kernel of this trace has a name that is known of one";
  }
  std::string text = "no collective recognised; ";
  std::string patterns;
  const std::size_t shown = std::min<std::size_t>(seen.likely.size(), 4);
  std::vector<std::pair<std::string, std::int64_t>> kinds;
  for (std::size_t i = 0; i < shown; ++i) {
    const imports::LikelyCollectives& likely = seen.likely[i];
    const auto known =
        std::ranges::find(kinds, likely.what, [](const auto& kind) { return kind.first; });
    if (known == kinds.end()) {
      kinds.emplace_back(likely.what, likely.kernels);
    } else {
      known->second += likely.kernels;
    }
    patterns += " --collective-pattern " + likely.pattern;
  }
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    text +=
        (i == 0                  ? ""
         : i + 1 == kinds.size() ? " and "
                                 : ", ") +
        std::to_string(kinds[i].second) +
        (i == 0 ? kinds[i].second == 1 ? " kernel looks like " : " kernels look like " : " like ") +
        kinds[i].first;
  }
  return text + ":" + patterns;
}

std::string pipeline_in_words(const imports::Pipeline& pipeline) {
  std::string text = "pipeline of " + counted(static_cast<std::size_t>(pipeline.stages), "stage");
  if (pipeline.micro_batches > 0) {
    text += ", " + std::to_string(pipeline.micro_batches) +
            (pipeline.micro_batches == 1 ? " micro-batch" : " micro-batches");
  }
  if (pipeline.chunks > 1) text += ", " + std::to_string(pipeline.chunks) + " chunks a stage";
  return text;
}

std::string pipeline_sentence(const Finding& finding, const Stages& stages) {
  std::string text = pipeline_in_words(stages.pipeline) + ": " + of_step(finding) +
                     " is its bubble, stages that wait for one another (mean of the ranks)";
  if (!stages.of_schedule) {
    return text + "; how many micro-batches a step has the trace does not tell";
  }
  const bool is_interleaved = stages.pipeline.chunks > 1;
  text += "; its schedule has (P-1)(F+B)" + std::string(is_interleaved ? "/v" : "") + " = " +
          std::to_string(stages.pipeline.stages - 1) + " x (" + ms(stages.forward) + " + " +
          ms(stages.backward) + ")" +
          (is_interleaved ? " / " + std::to_string(stages.pipeline.chunks) : "") + " = " +
          ms(*stages.of_schedule);
  if (finding.amount > *stages.of_schedule * 11 / 10) {
    text += "; the other " + ms(finding.amount - *stages.of_schedule) +
            " come of stages that are uneven or late";
  }
  return text;
}

// "at most 27.0 ms of 90.0 ms a step less with zero-bubble (ZB-H1), 13.5 ms with 16 micro-batches of half the size or vp=2".
std::string less_bubble(const Finding& finding, const Stages& stages) {
  if (!stages.of_schedule) return "no forecast: the trace does not tell its micro-batches";
  std::string text = "at most ";
  if (stages.zero_bubble) {
    text += ms(*stages.zero_bubble) + " of " + ms(finding.whole) +
            " a step less with a zero-bubble schedule (ZB-H1), ";
  }
  return text + ms(*stages.twice_the_micro_batches) + " with " +
         std::to_string(2 * stages.pipeline.micro_batches) +
         " micro-batches of half the size or with vp=" + std::to_string(2 * stages.pipeline.chunks);
}

std::string times(double value) { return fixed(value, 2) + " times"; }

std::string uneven_sentence(const Finding& finding, const Uneven& uneven) {
  std::string text = uneven.of_experts ? "uneven experts: " : "uneven work: ";
  const UnevenRank& most = uneven.ranks.front();
  const UnevenRank& least = uneven.ranks.back();
  if (uneven.is_always_the_same) {
    text += "rank " + std::to_string(most.rank) + " computes " + times(most.times) +
            " the mean of the ranks between collectives (" + ms(most.compute) +
            " a step; least rank " + std::to_string(least.rank) + ", " + times(least.times) + ")";
  } else {
    text += "another rank computes longest each time, and the others wait for it";
  }
  return text + "; with " + (uneven.of_experts ? "tokens" : "work") +
         " spread evenly the step would be " + ms(finding.amount) + " of " + ms(finding.whole) +
         " shorter";
}

// Waits that nothing demands, and what the step would be without them.
std::string serial_sentence(const Finding& finding, const Diagnosis& diagnosis) {
  const bool reductions = finding.kind == FindingKind::Serialised;
  std::string text =
      reductions && diagnosis.is_of_fsdp
          ? "backward waits for the reduction of the group before (FSDP2 has one in flight; from "
            "PyTorch 2.14 on set_reduce_scatter_max_input_buffers allows more), which nothing "
            "reads before the update, "
      : reductions
          ? "backward waits for reductions of buckets that nothing reads before the update, "
          : "gathers are started when compute needs them (no prefetch), ";
  text += ms(finding.amount) + " of the exposed time; " +
          (reductions ? "waited for at the update only" : "started one layer earlier") + ", ";
  if (finding.gain * 200 < finding.whole) {
    return text + "the step would be no shorter: the network is busy all that time";
  }
  return text + "the step would be " + ms(finding.whole - finding.gain) + " instead of " +
         ms(finding.whole);
}

std::string accumulation_sentence(const Finding& finding, const Diagnosis& diagnosis) {
  const imports::Accumulation& found = finding.accumulation;
  const bool all = found.reducing == found.passes;
  return (all ? std::string("every micro-step reduces all gradients: ")
              : std::to_string(found.reducing) + " micro-steps reduce all gradients: ") +
         std::to_string(found.passes) + " backward passes for one step of the optimizer; " +
         (diagnosis.is_of_fsdp ? "set_requires_gradient_sync(False) for all but the last"
                               : "wrap all but the last in no_sync()") +
         ", saves " + of_step(finding);
}

// What of a wait for the host is the profiler's own.
std::string of_recording(const Finding& finding, const Diagnosis& diagnosis) {
  const Gain& gain = finding.of_recording;
  if (gain.high * 50 < finding.whole) return "";
  if (diagnosis.unprofiled_step) {
    return " (in the trace: without the profiler a step takes " + ms(*diagnosis.unprofiled_step) +
           ", " + ms(gain.middle) + " less)";
  }
  return " (in the trace: recording it costs " + ms(gain.low) + " to " + ms(gain.high) +
         " of the step, an estimate)";
}

std::string sentence(const Finding& finding, const Diagnosis& diagnosis) {
  switch (finding.kind) {
    case FindingKind::NoGpuWork:
      return no_work_sentence(diagnosis.unrecognised);
    case FindingKind::NotReplayed:
      return "the replay misses the recorded step: no change can be judged on this trace";
    case FindingKind::Pipeline:
      return pipeline_sentence(finding, *diagnosis.stages);
    case FindingKind::Uneven:
      return uneven_sentence(finding, *diagnosis.uneven);
    case FindingKind::Stragglers:
      return late_sentence(finding, diagnosis.late.front());
    case FindingKind::HostBound:
      return "host-bound: no " + std::string(diagnosis.is_of_fsdp ? "grouping" : "bucket size") +
             " will help; the GPU waits " + of_step(finding) + " for the host" +
             of_recording(finding, diagnosis) +
             ", and with a network that took no time the step would be " +
             ms(finding.without_network);
    case FindingKind::NoCollective:
      return no_collective_sentence(diagnosis);
    case FindingKind::Hidden:
      return "communication is hidden: with a network that took no time the step would be " +
             ms(finding.without_network) + " instead of " + ms(finding.whole);
    case FindingKind::Exposed:
      return exposed_sentence(finding, diagnosis);
    case FindingKind::Serialised:
    case FindingKind::NoPrefetch:
      return serial_sentence(finding, diagnosis);
    case FindingKind::Accumulation:
      return accumulation_sentence(finding, diagnosis);
    case FindingKind::WaitsForHost:
      break;
  }
  return "the GPU waits " + of_step(finding) + " for the host to launch work" +
         of_recording(finding, diagnosis);
}

// Sizes that follow each other stand as their ends.
std::string flat_range(const BucketAdvice& advice) {
  std::string text;
  const auto& alike = advice.alike;
  for (std::size_t i = 0; i < alike.size(); ++i) {
    const BucketSetting& first = advice.settings[alike[i]];
    std::size_t last = i;
    while (first.size && last + 1 < alike.size() && alike[last + 1] == alike[last] + 1 &&
           advice.settings[alike[last + 1]].size &&
           advice.settings[alike[last + 1]].in_flight == first.in_flight) {
      ++last;
    }
    text += (text.empty() ? "" : "; ") + short_setting(first);
    if (last > i) text += " to " + short_setting(advice.settings[alike[last]]);
    i = last;
  }
  return "flat range (within " + exact_ms(advice.tell) +
         " of the best, which cannot be told): " + text;
}

void add_torch_notes(const BucketSetting& setting, std::vector<AdviceLine>& lines) {
  if (setting.size) {
    lines.push_back(
        {"(torch 1.13 closes the first bucket at 1 MiB whatever the cap; from 2.x on only "
         "where no cap is given)"});
  }
  if (setting.is_list) lines.push_back({"(bucket_cap_mb_list: torch 2.11 or later)"});
}

// "worth trying: 3.1 % of the step (1.0 to 5.2); at the spread of the recorded steps 40 of each show it".
std::string worth_trying(const BucketAdvice& advice, const Gain& gain) {
  const auto share = [&](Duration time) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "%.1f", 100 * to_us(time) / to_us(advice.step));
    return std::string(text.data());
  };
  return "worth trying: " + share(gain.middle) + " % of the step (" + share(gain.low) + " to " +
         share(gain.high) + "); " +
         (advice.steps_to_see ? "at the spread of the recorded steps " +
                                    counted(*advice.steps_to_see, "step") + " of each show it"
                              : "record three steps and more to be told how many show it");
}

// What to do, and why not more.
void add_paste(const BucketAdvice& advice, std::vector<AdviceLine>& lines) {
  const BucketSetting* const setting = advised(advice);
  const bool is_torch = advice.framework->id == "torch";
  if (setting != nullptr && setting->gain.middle > advice.tell) {
    const bool is_certain = setting->gain.low > Duration{};
    if (!is_certain) {
      lines.push_back({"no bucket size is better for certain: every interval holds 0"});
    }
    lines.push_back({(is_certain ? "paste: " : "likeliest: ") + setting->line, true});
    lines.push_back({worth_trying(advice, setting->gain)});
    if (is_torch) add_torch_notes(*setting, lines);
    return;
  }
  if (setting == nullptr) {
    lines.push_back({"keep what you have" +
                     (advice.recorded.empty() ? std::string() : " (" + advice.recorded + ")") +
                     ": no bucket size is better by more than can be told"});
    return;
  }
  lines.push_back({"no setting of " + std::string(advice.framework->name) +
                   " is better than the recorded buckets by more than can be told"});
}

}  // namespace

std::string ranks_in_words(const JobTrace& job) {
  const std::string given = counted(job.ranks.size(), "rank");
  const std::optional<std::int64_t> world = job.world_size();
  return world ? given + " of " + std::to_string(*world) : given + "; world size unknown";
}

std::string no_work_sentence(const imports::Unrecognised& seen) {
  if (!seen.unread.foreign.empty()) {
    const auto& [what, events] = *std::ranges::max_element(
        seen.unread.foreign, {}, [](const auto& entry) { return entry.second; });
    return "no GPU work that can be read: the " + std::to_string(events) + " events of " + what +
           " are of a device whose profiler tells no kernels, launches and streams as CUDA's and "
           "ROCm's do";
  }
  if (seen.unread.without_time > 0) {
    return "no GPU work with a time: of " + std::to_string(seen.unread.without_time) +
           " pieces of it start or duration is no number";
  }
  if (seen.recorder == imports::Recorder::Jax) {
    return "JAX's profiler recorded the host alone (/host:CPU), and no GPU (/device:GPU:N): what "
           "JAX runs on processors "
           "or TPUs is not read; dovetail import hlo MODULE reads a compiled module of it";
  }
  if (seen.recorder == imports::Recorder::NcclPlugin) {
    return std::string(to_string(seen.recorder)) +
           " recorded collectives alone, and no compute that could hide them: record the step with "
           "torch.profiler (ProfilerActivity.CUDA); dovetail import nccl-inspector reads what "
           "NCCL's "
           "inspector measured";
  }
  if (seen.launches > 0) {
    return "no GPU work in the trace, though " + std::to_string(seen.launches) +
           " kernels were launched: the GPU's records are lost or were not asked for "
           "(ProfilerActivity.CUDA; no other profiler may hold the GPU)";
  }
  if (seen.unread.flows > 0) {
    return "no GPU work that can be read, though " + std::to_string(seen.unread.flows) +
           " flows (ac2g) lead from the host to a device's work: it is of no category that is "
           "known";
  }
  if (!seen.device_libraries.empty()) {
    const auto& [library, calls] = *seen.device_libraries.begin();
    return "no GPU work in the trace, though the host called " + std::to_string(calls) +
           " collectives of " + library +
           ": record with the device's activity, too (ProfilerActivity.CUDA)";
  }
  if (seen.cpu_collectives > 0) {
    return "no GPU work in the trace, and hardly an operator beside its " +
           std::to_string(seen.cpu_collectives) +
           " collectives of threads (Gloo): nothing tells what they overlap with; record with "
           "ProfilerActivity.CPU";
  }
  return "no GPU work in the trace, and no collective of Gloo, MPI or UCC: nothing to diagnose; "
         "record with CUDA activity";
}

std::string_view to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::NoGpuWork:
      return "no-gpu-work";
    case FindingKind::NotReplayed:
      return "not-replayed";
    case FindingKind::Pipeline:
      return "pipeline";
    case FindingKind::Uneven:
      return "uneven";
    case FindingKind::Stragglers:
      return "stragglers";
    case FindingKind::HostBound:
      return "host-bound";
    case FindingKind::NoCollective:
      return "no-collective";
    case FindingKind::Hidden:
      return "hidden";
    case FindingKind::Exposed:
      return "exposed";
    case FindingKind::Serialised:
      return "serialised";
    case FindingKind::NoPrefetch:
      return "no-prefetch";
    case FindingKind::Accumulation:
      return "accumulation";
    case FindingKind::WaitsForHost:
      break;
  }
  return "waits-for-host";
}

std::string_view to_string(Change change) {
  switch (change) {
    case Change::NoNetwork:
      return "a network that takes no time";
    case Change::NobodyLate:
      return "no rank late (collectives take their own time only)";
    case Change::NoBubble:
      return "no bubble (stages that wait for nobody)";
    case Change::WaitAtUpdate:
      return "reductions waited for at the update only";
    case Change::Prefetch:
      return "gathers started one layer earlier (prefetch)";
    case Change::KeepParameters:
      return "parameters kept from forward to backward (reshard_after_forward=False)";
    case Change::FusedOptimizer:
      return "an optimizer of one launch (fused=True)";
    case Change::NoRecording:
      return "nothing recorded (the profiler's own cost)";
    case Change::NoHost:
      break;
  }
  return "a host that takes no time";
}

std::string in_words(Change change, const Diagnosis& diagnosis) {
  std::string text(to_string(change));
  if (change != Change::NoHost) return text;
  const std::string graphs = diagnosis.is_of_rocm ? "HIP graphs" : "CUDA graphs";
  return text + (diagnosis.is_compiled
                     ? " (" + graphs + R"( around what is compiled: mode="reduce-overhead"))"
                     : " (" + graphs + ", compiled steps)");
}

std::string in_words(Cause cause, const Diagnosis& diagnosis) {
  if (cause == Cause::ClosedLate && diagnosis.is_of_fsdp) return "group closed late";
  return std::string(to_string(cause));
}

std::string of_which(const RankDiagnosis& rank, const ExposedCollective& collective) {
  if (!rank.sharding) {
    return collective.bucket >= 0 ? ", bucket " + std::to_string(collective.bucket) : "";
  }
  const std::int32_t group =
      rank.sharding->group_of[static_cast<std::size_t>(collective.collective)];
  if (group == kNone) return "";
  const std::string& name = rank.sharding->groups[static_cast<std::size_t>(group)].name;
  return name.empty() ? ", root group" : ", group " + name;
}

std::vector<std::string> sharding_lines(const Diagnosis& diagnosis) {
  if (diagnosis.ranks.empty() || !diagnosis.ranks.front().sharding) return {};
  const Sharding& sharding = *diagnosis.ranks.front().sharding;
  const auto again = std::ranges::count_if(
      sharding.groups, [](const ShardedGroup& group) { return group.backward > 0; });
  std::string text = "FSDP2: " + counted(sharding.groups.size(), "group");
  if (sharding.shards > 0)
    text += " over " + counted(static_cast<std::size_t>(sharding.shards), "rank");
  if (sharding.replicas != 1) {
    text += ", " + (sharding.replicas > 1 ? std::to_string(sharding.replicas) : "with") +
            " replicas (HSDP: an all-reduce follows each reduce-scatter)";
  }
  const std::int64_t to = sharding.resharded_to();
  const std::string again_how =
      to > 0 ? " gathered again for backward over " + std::to_string(to) +
                   " ranks (reshard_after_forward=" + std::to_string(to) + "), which frees "
             : " gathered again for backward (reshard_after_forward=True), which frees ";
  text += again == 0 ? "; none is gathered again for backward (reshard_after_forward=False)"
                     : "; " + std::to_string(again) + again_how +
                           dovetail::to_string(sharding.kept_without()) + " of a rank between";
  const auto ahead = [](const std::optional<std::int64_t>& groups) {
    return !groups ? std::string("not told")
           : *groups == 0
               ? std::string("by the group's own hook")
               : std::to_string(*groups) + (*groups == 1 ? " group" : " groups") + " ahead";
  };
  text += "; gathers are issued " + ahead(sharding.forward_ahead) + " in forward";
  if (again > 0) text += ", " + ahead(sharding.backward_ahead) + " in backward";
  return {text};
}

std::optional<ShardingAdvice> sharding_advice(const Diagnosis& diagnosis) {
  std::optional<ShardingAdvice> best;
  if (diagnosis.ranks.empty() || !diagnosis.ranks.front().sharding) return best;
  const std::string groups = std::to_string(diagnosis.ranks.front().sharding->groups.size());
  for (const auto& [change, line] :
       {std::pair(Change::KeepParameters,
                  std::string("fully_shard(block, reshard_after_forward=False)")),
        std::pair(Change::Prefetch,
                  std::string("block.set_modules_to_forward_prefetch([next_block])")),
        std::pair(Change::WaitAtUpdate, "model.set_reduce_scatter_max_input_buffers(" + groups +
                                            ")  # PyTorch 2.14 or later")}) {
    Gain gain{.middle = {}, .low = Duration::max(), .high = {}};
    for (const RankDiagnosis& rank : diagnosis.ranks) {
      const WhatIf* const found = rank.what_if(change);
      const Gain own = found == nullptr ? Gain{} : found->gain;
      gain.middle += own.middle / std::ssize(diagnosis.ranks);
      gain.low = std::min(gain.low, own.low);
      gain.high = std::max(gain.high, own.high);
    }
    if (gain.high <= Duration{}) continue;
    // What is one for certain before what may be none.
    const auto rank_of = [](const Gain& one) {
      return std::pair(one.low > Duration{}, one.middle);
    };
    if (best && rank_of(best->gain) >= rank_of(gain)) continue;
    best = {.change = change, .gain = gain, .line = line};
  }
  return best;
}

namespace {

// What DDP copies, and by which option it is less.
std::vector<std::string> ddp_lines(const Diagnosis& diagnosis) {
  if (!diagnosis.copies) return {};
  const DdpCopies& copies = *diagnosis.copies;
  std::vector<std::string> lines;
  if (copies.is_compiled_whole) {
    lines.push_back("all " + counted(copies.gradients, "gradient") +
                    " come at once, behind a backward that is compiled whole: no bucket hides "
                    "beside it; compile the model's blocks, or leave "
                    "torch._dynamo.config.optimize_ddp on");
  }
  if (copies.sent_element != copies.element_size) {
    lines.push_back("a communication hook of DDP sends gradients of " +
                    std::to_string(copies.element_size.count()) + " bytes an element as " +
                    std::to_string(copies.sent_element.count()) +
                    ": collectives are listed by what is sent, bucket_cap_mb and "
                    "bucket_cap_mb_list count the gradients");
  }
  const std::int64_t launches = copies.into.launches + copies.out.launches;
  const auto least = static_cast<std::int64_t>(copies.buckets) * (copies.out.launches > 0 ? 2 : 1);
  if (copies.is_batched) {
    lines.push_back("DDP has " + copies_in_words(copies) + ", batched (batched_grad_copy=True)");
  } else if (launches > 2 * least) {
    lines.push_back(
        "DDP has " + copies_in_words(copies) +
        "; batched_grad_copy=True (PyTorch 2.15) makes them one a bucket each way" +
        (copies.out.launches > 0 ? ", gradient_as_bucket_view=True leaves out the way back" : ""));
  }
  return lines;
}

}  // namespace

std::string headline(const Diagnosis& diagnosis) {
  return sentence(diagnosis.findings.front(), diagnosis);
}

std::vector<std::string> sentences(const Diagnosis& diagnosis) {
  std::vector<std::string> lines;
  for (std::size_t i = 1; i < diagnosis.findings.size(); ++i) {
    lines.push_back(sentence(diagnosis.findings[i], diagnosis));
  }
  for (std::string& line : sharding_lines(diagnosis)) lines.push_back(std::move(line));
  for (std::string& line : ddp_lines(diagnosis)) lines.push_back(std::move(line));
  return lines;
}

namespace {

std::string three_digits(const Gain& gain) {
  return dovetail::to_string(gain.middle) + " (" + dovetail::to_string(gain.low) + " to " +
         dovetail::to_string(gain.high) + ")";
}

// What a host that takes no time gives where nothing is recorded: then it is late by so much less.
Gain unrecorded(const Gain& gain, const RankDiagnosis& rank) {
  const WhatIf* const recording = rank.what_if(Change::NoRecording);
  if (recording == nullptr) return gain;
  const auto without = [](Duration time, Duration cost) {
    return std::max(Duration{}, time - cost);
  };
  return {without(gain.middle, recording->gain.middle), without(gain.low, recording->gain.high),
          without(gain.high, recording->gain.low)};
}

const Finding* finding_of(const Diagnosis& diagnosis, FindingKind kind) {
  const auto finding = std::ranges::find(diagnosis.findings, kind, &Finding::kind);
  return finding == diagnosis.findings.end() ? nullptr : &*finding;
}

// "7 groups of FSDP2, gathered again for backward".
std::string grouping_in_words(const Sharding& sharding) {
  return counted(sharding.groups.size(), "group") + " of FSDP2" +
         (sharding.gathers_again() ? ", gathered again for backward" : ", gathered once");
}

// Of FSDP: in its own API, or why nothing is to be set.
void say_sharding(const Diagnosis& diagnosis, Brief& brief) {
  const std::string_view id = diagnosis.framework->id;
  if (id != "fsdp" && !id.starts_with("torch")) {
    brief.why_nothing = "the trace is a step of FSDP, and settings of " +
                        std::string(diagnosis.framework->name) +
                        " are judged on one of DistributedDataParallel";
    brief.gives = "no forecast of buckets";
    return;
  }
  const auto& sharding = diagnosis.ranks.front().sharding;
  if (!sharding) {
    brief.why_nothing =
        "FSDP communicates by groups of modules, and this trace does not tell them (FSDP2 "
        "annotates "
        "each)";
    brief.gives = "no forecast of groups";
    return;
  }
  const std::optional<ShardingAdvice> advice = sharding_advice(diagnosis);
  brief.why_nothing = "keep what you have (" + grouping_in_words(*sharding) + ")";
  if (!advice) {
    brief.gives =
        "nothing: neither keeping parameters nor prefetching nor more reductions in flight would "
        "end anything";
    return;
  }
  const Duration step = usual_step(diagnosis.ranks.front().recorded);
  std::string gives = "at most " + three_digits(advice->gain) + " of " + ms(step) +
                      " a step less: " + std::string(to_string(advice->change));
  if (advice->change == Change::KeepParameters) {
    gives += "; a rank keeps " + dovetail::to_string(sharding->kept_without()) +
             " more of parameters from forward to backward";
  }
  if (advice->is_told()) {
    brief.set = advice->line;
    brief.gives = gives;
  } else {
    brief.gives = "nothing that can be told: " + gives;
  }
}

// Of a trace without a bucket that could be another one.
void say_no_buckets(const Diagnosis& diagnosis, Brief& brief) {
  brief.why_nothing = diagnosis.ranks.front().forecast.why_none;
  brief.gives = "no forecast of buckets";
  if (diagnosis.unrecognised.recorder == imports::Recorder::Jax) {
    brief.why_nothing =
        std::string(to_string(diagnosis.unrecognised.recorder)) +
        " tells no sizes of collectives; dovetail import hlo MODULE has those of the "
        "compiled module, explore --framework xla its thresholds";
    return;
  }
  if (const Finding* const pipeline = finding_of(diagnosis, FindingKind::Pipeline)) {
    brief.gives = less_bubble(*pipeline, *diagnosis.stages);
    brief.why_nothing = "what the step waits for is the bubble of its " +
                        pipeline_in_words(diagnosis.stages->pipeline) + ", and no bucket";
    return;
  }
  if (const Finding* const uneven = finding_of(diagnosis, FindingKind::Uneven)) {
    const UnevenRank& most = diagnosis.uneven->ranks.front();
    const std::string grouping = diagnosis.is_of_fsdp ? "group of FSDP's" : "bucket";
    brief.why_nothing =
        diagnosis.uneven->is_always_the_same
            ? "rank " + std::to_string(most.rank) + " has " + times(most.times) +
                  " the work of the ranks' mean, and no " + grouping + " changes that"
            : "ranks have uneven work in turn, and no " + grouping + " changes that";
    brief.gives = std::string(diagnosis.uneven->of_experts ? "tokens" : "work") +
                  " spread evenly over the ranks: " + ms(uneven->amount) + " of " +
                  ms(uneven->whole) + " a step less";
    return;
  }
  const bool sends_nothing = finding_of(diagnosis, FindingKind::NoCollective) != nullptr &&
                             diagnosis.unrecognised.likely.empty();
  if (diagnosis.is_of_fsdp && !sends_nothing) return say_sharding(diagnosis, brief);
  if (!sends_nothing) return;
  if (diagnosis.has_whole_graphs) {
    brief.why_nothing =
        "CUDA graphs are in the recording as a whole, and what they send is not told (nsys profile "
        "--cuda-graph-trace=node)";
    return;
  }
  brief.why_nothing =
      diagnosis.world_size == 1
          ? "this job is one rank and sends nothing" +
                std::string(diagnosis.has_ddp
                                ? "; DistributedDataParallel around it costs its host" +
                                      (diagnosis.copies
                                           ? " and " + copies_in_words(*diagnosis.copies)
                                           : std::string(" and copies"))
                                : "")
          : "this job sends nothing (no collective is recognised)";
  const Finding* const waits = finding_of(diagnosis, FindingKind::WaitsForHost);
  brief.gives = waits == nullptr ? "nothing: there are no buckets"
                                 : "nothing: there are no buckets; the GPU waits " +
                                       of_step(*waits) + " a step for the host";
}

void say_buckets(const Diagnosis& diagnosis, Brief& brief) {
  if (!diagnosis.buckets) return say_no_buckets(diagnosis, brief);
  const BucketAdvice& advice = *diagnosis.buckets;
  brief.gives = search::in_words(advice.answer);
  if (advice.answer.is_told()) {
    brief.set = advice.settings[advice.best].line;
    return;
  }
  brief.why_nothing =
      "keep the buckets you have" + (advice.recorded.empty() ? "" : " (" + advice.recorded + ")");
  if (diagnosis.copies && diagnosis.copies->is_compiled_whole) {
    brief.why_nothing = "no bucket hides beside a backward that is compiled whole";
  }
  if (const Finding* const late = finding_of(diagnosis, FindingKind::Stragglers)) {
    brief.why_nothing = "rank " + std::to_string(diagnosis.late.front().rank) +
                        " is what the others wait for, " + percent(late->share()) +
                        " of all collective time: " + brief.why_nothing;
  }
  brief.gives = "nothing that can be told: " + brief.gives;
}

// A change that somebody can make, of the rank where it gives most; the profiler's own cost is none, and not in what a host gives.
struct LargestChange {
  const RankDiagnosis* rank = nullptr;
  Change change = Change::NoHost;
  Gain gain;
};

LargestChange largest_change(const Diagnosis& diagnosis) {
  LargestChange most;
  for (const RankDiagnosis& rank : diagnosis.ranks) {
    for (const WhatIf& what_if : rank.forecast.what_ifs) {
      if (what_if.change == Change::NoRecording) continue;
      const Gain gain =
          what_if.change == Change::NoHost ? unrecorded(what_if.gain, rank) : what_if.gain;
      if (most.rank != nullptr && gain.middle <= most.gain.middle) continue;
      most = {&rank, what_if.change, gain};
    }
  }
  return most;
}

// What the host does but wait.
Duration busy(const HostTime& host) { return host.step - host.part(HostPart::Waiting).time; }

std::string what_is_left(const Diagnosis& diagnosis) {
  const LargestChange most = largest_change(diagnosis);
  if (most.rank == nullptr) {
    return "not known: the replay is not the recorded step, so no change can be judged";
  }
  std::string text =
      "at most " + three_digits(most.gain) + " a step: " + in_words(most.change, diagnosis) +
      (diagnosis.ranks.size() > 1 ? ", rank " + std::to_string(most.rank->rank) : "");
  const Finding* const uneven = finding_of(diagnosis, FindingKind::Uneven);
  if (uneven != nullptr && most.change == Change::NobodyLate) {
    text += "; " + ms(uneven->amount) + " if the work were spread evenly";
  }
  if (host_would_bind(diagnosis)) {
    text += "; then its host's " + ms(busy(most.rank->host)) + " a step set the pace";
  }
  const WhatIf* const recording = most.rank->what_if(Change::NoRecording);
  if (most.change == Change::NoHost && recording != nullptr) {
    text += diagnosis.unprofiled_step
                ? "; the " + ms(recording->gain.middle) + " that recording cost are not in it"
                : "; what recording costs the host, " + ms(recording->gain.low) + " to " +
                      ms(recording->gain.high) + ", is not in it (--unprofiled-step says it)";
  }
  return text;
}

}  // namespace

bool host_would_bind(const Diagnosis& diagnosis) {
  const LargestChange most = largest_change(diagnosis);
  if (most.rank == nullptr || most.change != Change::NoNetwork) return false;
  const Duration then = usual_step(most.rank->recorded) - most.gain.middle;
  return busy(most.rank->host) * 10 >= then * 9;
}

Brief brief(const Diagnosis& diagnosis) {
  Brief brief;
  if (diagnosis.findings.front().kind == FindingKind::NoGpuWork) return brief;
  say_buckets(diagnosis, brief);
  brief.left = what_is_left(diagnosis);
  return brief;
}

namespace {

// Without the key of 52 letters that torch.compile gives a graph: "CompiledFxGraph fx7iop6z7e".
std::string short_name(const std::string& name) {
  constexpr std::string_view kGraph = "CompiledFxGraph ";
  constexpr std::size_t kKey = 10;
  const std::size_t at = name.find(kGraph);
  if (at == std::string::npos) return name;
  return name.substr(at, kGraph.size() + kKey);
}

// What recording costs the host, and what the step would take without it.
std::string recording_line(const RankDiagnosis& rank, std::optional<Duration> unprofiled_step) {
  const WhatIf* const without = rank.what_if(Change::NoRecording);
  if (unprofiled_step) {
    const Duration recorded = usual_step(rank.recorded);
    return "without the profiler a step takes " + ms(*unprofiled_step) + ", with it " +
           ms(recorded) +
           (recorded > *unprofiled_step ? ": recording costs " + ms(recorded - *unprofiled_step)
                                        : ": recording costs nothing that can be seen");
  }
  const RecordingCost& cost = rank.recording;
  const auto us = [](Duration time) { return fixed(to_us(time), 1); };
  const auto priced = [&](double count, const char* what, const RecordingCost::Range& each) {
    return std::to_string(std::llround(count)) + what + us(each.low) + " to " + us(each.high) +
           " us";
  };
  std::string text =
      "recording costs it " + ms(cost.a_step().low) + " to " + ms(cost.a_step().high) +
      " (an estimate: " + priced(cost.operators, " operators at ", cost.of_operator) +
      (cost.calls > 0 ? ", " + priced(cost.calls, " calls at ", cost.of_call) : "") + ")";
  if (without == nullptr) return text;
  const Duration step = usual_step(rank.recorded);
  return text + ", and the step " + ms(without->gain.low) + " to " + ms(without->gain.high) +
         ": without the profiler it would take " + ms(step - without->gain.high) + " to " +
         ms(step - without->gain.low) + " (simulated; --unprofiled-step says it)";
}

}  // namespace

std::vector<std::string> host_lines(const RankDiagnosis& rank,
                                    std::optional<Duration> unprofiled_step) {
  const HostTime& host = rank.host;
  std::vector<std::string> lines;
  std::string text = "the host's " + ms(host.step) + " a step: ";
  std::vector<std::size_t> order(kHostParts);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [&](std::size_t p) { return host.parts[p].time; });
  Duration python{};
  const char* separator = "";
  for (const std::size_t p : order) {
    const HostPartTime& part = host.parts[p];
    if (static_cast<HostPart>(p) != HostPart::Waiting) python += part.python;
    if (part.time * 200 < host.step) continue;
    text += separator + std::string(dovetail::to_string(static_cast<HostPart>(p))) + " " +
            ms(part.time);
    separator = ", ";
  }
  lines.push_back(text + "; in " + ms(python) +
                  " of it no operator runs (Python, and what is not recorded)");
  lines.push_back(recording_line(rank, unprofiled_step));
  const auto named = [](const NamedTime& time) {
    return short_name(time.name) + " " + ms(time.time) + " (" +
           std::to_string(std::llround(time.count)) + ")";
  };
  const auto list = [&](const char* title, const std::vector<NamedTime>& times) {
    std::string line = title;
    const char* comma = ": ";
    for (const NamedTime& time : times) {
      line += comma + named(time);
      comma = ", ";
    }
    if (!times.empty()) lines.push_back(line);
  };
  list("operators by their own time, and how often", host.operators);
  list("annotated", host.annotations);
  for (const HostPause& pause : host.pauses) {
    lines.push_back("pause of " + ms(pause.time) + " in " +
                    std::string(dovetail::to_string(pause.part)) +
                    (pause.after.empty() ? "" : ", after " + pause.after) +
                    (pause.before.empty() ? "" : ", before " + pause.before));
  }
  return lines;
}

std::vector<AdviceLine> advice_lines(const BucketAdvice& advice) {
  std::vector<AdviceLine> lines = {{flat_range(advice)}};
  add_paste(advice, lines);
  for (const GivenUp& given : advice.given_up) {
    lines.push_back({"given up: " + given.what + ": " + exact_ms(given.less) + " a step"});
  }
  for (const std::string_view missing : advice.framework->not_replayed) {
    lines.push_back({"not replayed: " + std::string(missing)});
  }
  return lines;
}

}  // namespace dovetail::diagnose
