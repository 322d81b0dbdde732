// JAX on XLA for GPUs: which gradients may be combined, and what their collectives cost.
//
// Grouping: the frontend attribute combiner_key (openxla/xla 40903, 2026): only collectives with equal
// keys are combined, whatever the thresholds say, so these are set above the largest bucket. A threshold of all-reduces and
// all-gathers counts whole messages, one of reduce-scatters the shard that comes out (scripts/checks/check_xla.py). Combined gradients are
// not copied together: one launch reduces each where it lies (xla backends/gpu/runtime/all_reduce_thunk.cc). Order and
// waits belong to XLA's latency-hiding scheduler; with costs (PGLE, a ProfiledInstructionsProto as text)
// it has the times that the plan was made with. Instructions are named by XLA, so the profile is written
// in two steps: compile once with --xla_dump_to, then pgle_profile() with the names of the dump.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "frameworks/list.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/policies/typed.h"
#include "schedule/sharding.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kXlaFunctions = R"py(

def mark(gradients, of=None):
    """The gradients with the keys of the plan; to be called inside the jitted step, before the reduction. They are {name: gradient},
    or a tree like the step's argument that JAX calls `of`: "weights" where the plan has "weights['out'][0]"."""
    import jax
    from jax.experimental.xla_metadata import set_xla_metadata

    if of is None:
        return {name: set_xla_metadata(value, combiner_key=COMBINER_KEY[name])
                for name, value in gradients.items()}
    return jax.tree_util.tree_map_with_path(
        lambda path, value: set_xla_metadata(value, combiner_key=COMBINER_KEY[of + jax.tree_util.keystr(path)]), gradients)


def collective_names(hlo_text):
    """{key: name} of what reduces each bucket in a dumped HLO module: the name by which the scheduler knows it."""
    import re

    names = {}
    for line in hlo_text.splitlines():
        found = re.match(r"\s*(?:ROOT )?%?([\w.-]+) = .* (all-reduce|reduce-scatter|fusion)(?:-start)?\(", line)
        key = re.search(r'combiner_key="([^"]*)"', line)
        # XLA's own kernels stand in a fusion of the kind __triton_collective, below the all-reduce that it holds.
        if found and key and (found[2] != "fusion" or "__triton_collective" in line):
            known = re.search(r'scheduling_name="([^"]*)"', line)
            names[key[1]] = known[1] if known else found[1]
    return names


def pgle_profile(names):
    """Text for --xla_gpu_pgle_profile_file_or_directory_path (end the file's name in .pbtxt)."""
    keys = [f"b{number}" for number in range(len(BUCKETS))]
    if missing := [key for key in keys if key not in names]:
        raise ValueError(f"no collective of {', '.join(missing)} in the module: were the keys applied?")
    return "".join(f'costs {{ name: "{names[key]}" cost_us: {cost_us} }}\n'
                   for key, (_, cost_us) in zip(keys, BUCKETS))
)py";

void restrict_to_xla(Restriction& left) {
  require_one_stage_and_group(left, "XLA");
  keep_parameters_whole(left, "data parallelism without sharded parameters",
                        schedule::ParameterSync::AfterUpdate);
  left.give_up("sharded updates: the step's sharding says whether weights are cut", all_reduce);
  give_up_the_usual(left, "XLA");
  left.give_up(
      "copies into buckets: XLA reduces gradients where they lie",
      [](schedule::Schedule& schedule) { use_mode(schedule, schedule::BucketMode::View); });
}

// For a step whose weights are cut; the largest bucket is met from its shard, rounded up.
std::string sharded_flags(const schedule::Program& program, const schedule::Schedule& schedule,
                          Bytes largest) {
  const std::int64_t ranks = program.group(schedule.buckets.front().group).size();
  const std::int64_t shard = (largest.count() + ranks - 1) / ranks;
  return " --xla_gpu_reduce_scatter_combine_threshold_bytes=" + std::to_string(shard) +
         " --xla_gpu_all_gather_combine_threshold_bytes=" + std::to_string(largest.count());
}

Export write_xla(Restriction& left, const Writing& writing) {
  Export result = left.result();
  result.notes = {
      "order and waits are the latency-hiding scheduler's: the prediction lets it wait where the "
      "plan does",
      "keys do not reach gradients through value tags: mark() tags the gradients themselves",
      "a profile run needs the latency-hiding scheduler and asynchronous collectives off"};
  Bytes largest;
  std::string buckets;
  std::string keys;
  for (std::size_t b = 0; b < result.schedule.buckets.size(); ++b) {
    const schedule::Bucket& bucket = result.schedule.buckets[b];
    const Bytes bytes = payload(left.program(), bucket);
    largest = std::max(largest, bytes);
    const Duration cost =
        writing.machine.collective(bucket.collective, left.program().group(bucket.group), bytes);
    buckets += "    (" + std::to_string(bytes.count()) + ", " + shortest(to_us(cost)) + "),\n";
    for (const std::string& name : parameter_names(left.program(), bucket)) {
      keys += "    " + python_quoted(name) + ": \"b" + std::to_string(b) + "\",\n";
    }
  }
  std::string flags =
      "--xla_gpu_enable_latency_hiding_scheduler=true "
      "--xla_gpu_all_reduce_combine_threshold_bytes=" +
      std::to_string(largest.count());
  if (schedule::is_sharded(writing.plan.schedule)) {
    flags += sharded_flags(left.program(), result.schedule, largest);
    result.notes.emplace_back(
        "where the step's sharding cuts weights, XLA reduce-scatters gradients with the same keys; "
        "its threshold counts the shard that comes out, that of all-gathers the whole");
  }
  result.text = head(writing, result);
  result.text += "\nXLA_FLAGS = " + python_quoted(flags) +
                 "\nBUCKETS = [  # bytes, us alone on the link\n" + buckets +
                 "]\nCOMBINER_KEY = {\n" + keys + "}\n";
  result.text += kXlaFunctions;
  result.paste = "XLA_FLAGS=\"" + flags + "\"; from FILE import mark; gradients = mark(gradients)";
  return result;
}

// XLA's own default counts seven bytes beyond 30 MiB: the loss is reduced with the first gradients.
constexpr std::int64_t kForScalars = 7;
constexpr std::int64_t kXlaUsual = (30 << 20) + kForScalars;

std::vector<std::int64_t> xla_limits(std::optional<std::int64_t> bytes, std::int64_t /*ranks*/) {
  return {bytes.value_or(kXlaUsual)};
}

Written xla_setting(const Chosen& chosen) {
  const std::int64_t number =
      chosen.number == kXlaUsual ? chosen.number : chosen.number + kForScalars;
  const std::string flag = "--xla_gpu_all_reduce_combine_threshold_bytes=" + std::to_string(number);
  return {flag, "XLA_FLAGS=\"" + flag + "\""};
}

Written xla_list_setting(std::span<const Bytes> /*sizes*/, const std::string& counts,
                         schedule::BucketMode /*mode*/) {
  return {"combiner_key",
          "set_xla_metadata(gradient, combiner_key=key)  # a key for each of " + counts};
}

std::string xla_policy(std::span<const Bytes> limits) {
  return "threshold:cap=" + schedule::typed::exact_size(limits.back()) + ",closes=from-last";
}

std::optional<Said> say_xla(const schedule::Policy& policy, const Gradients& /*gradients*/) {
  const schedule::BucketPlacement place = schedule::placement(policy);
  const bool is_run = place.wait == schedule::WaitPoint::FirstUse && place.batch == 0 &&
                      place.mode == schedule::BucketMode::View && groups_freely(policy);
  if (!is_run) return std::nullopt;
  const schedule::ByLimits* combined = limits_of(policy);
  const bool combines = combined != nullptr && combined->closes == schedule::Closes::FromLast;
  if (!combines) return Said{"JAX / XLA: combiner_key (export --to xla)", "", ToldBy::List};
  if (combined->cap.count() == kXlaUsual) return Said{"JAX / XLA's default", "", ToldBy::Default};
  const Written written = xla_setting({.number = combined->cap.count()});
  return Said{"JAX / XLA: " + written.setting, written.line};
}

}  // namespace

std::vector<Framework> xla() {
  constexpr std::string_view kDefault = "threshold:cap=31457287B,closes=from-last";
  return {
      {.id = "xla",
       .name = "XLA",
       .presets = {{"xla", kDefault}, {"jax", kDefault}},
       .size =
           SizeOption{
               .closes = schedule::Closes::FromLast, .limits = xla_limits, .write = xla_setting},
       .policy = xla_policy,
       .more = {"exact"},
       .says = say_xla,
       .list = xla_list_setting,
       .not_replayed =
           {"when a collective starts and is waited for is up to XLA's latency-hiding scheduler; "
            "a compiled step has none of the pauses of Python that this one has",
            "by its threshold XLA combines gradients in the order of the step's results, taken "
            "here to "
            "be the opposite of that in which they are ready: a combiner_key (export --to xla) "
            "says "
            "which"},
       .curve = "threshold:closes=from-last",
       .axis = "JAX / XLA: combine threshold",
       .title = "JAX on XLA for GPUs",
       .writes = "combiner keys of gradients and costs for PGLE",
       .names_parameters = true,
       .restrict_to = restrict_to_xla,
       .write = write_xla}};
}

}  // namespace dovetail::frameworks
