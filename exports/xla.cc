// JAX on XLA for GPUs: which gradients may be combined, and what their collectives cost.
//
// Grouping: the frontend attribute combiner_key (openxla/xla 40903, 2026): only all-reduces with equal
// keys are combined, whatever the thresholds say, so these are set above the largest bucket. Order and
// waits belong to XLA's latency-hiding scheduler; with costs (PGLE, a ProfiledInstructionsProto as text)
// it has the times that the plan was made with. Instructions are named by XLA, so the profile is written
// in two steps: compile once with --xla_dump_to, then pgle_profile() with the names of the dump.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "exports/python_text.h"
#include "exports/restriction.h"
#include "exports/writers.h"

namespace dovetail::exports {
namespace {

constexpr std::string_view kFunctions = R"py(

def mark(gradients):
    """{name: gradient} with the keys of the plan; to be called inside the jitted step, before the reduction."""
    from jax.experimental.xla_metadata import set_xla_metadata

    return {name: set_xla_metadata(value, combiner_key=COMBINER_KEY[name])
            for name, value in gradients.items()}


def collective_names(hlo_text):
    """The names of the all-reduce starts in a dumped HLO module, in program order."""
    import re

    return re.findall(r"%?([\w.-]*all-reduce-start[\w.-]*) = ", hlo_text)


def pgle_profile(names):
    """Text for --xla_gpu_pgle_profile_file_or_directory_path (end the file's name in .pbtxt)."""
    if len(names) != len(BUCKETS):
        raise ValueError(f"{len(names)} all-reduces in the module, {len(BUCKETS)} buckets in the plan: "
                         "were the keys applied?")
    return "".join(f'costs {{ name: "{name}" cost_us: {cost_us} }}\n'
                   for name, (_, cost_us) in zip(names, BUCKETS))
)py";

}  // namespace

Export export_xla(const schedule::Plan& plan, const Machine& machine,
                  const ExportOptions& options) {
  require_no_pipeline(plan, "XLA");
  require_one_group(plan, "XLA");
  Restriction left(plan, machine);
  left.give_up("sharded updates: keys combine all-reduces", all_reduce);
  give_up_the_usual(left, "XLA");
  left.give_up("gradients as views of buckets: XLA copies", [](schedule::Schedule& schedule) {
    use_mode(schedule, schedule::BucketMode::Copy);
  });
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
    const Bytes bytes = payload(plan.program, bucket);
    largest = std::max(largest, bytes);
    const Duration cost =
        machine.collective(bucket.collective, plan.program.group(bucket.group), bytes);
    buckets += "    (" + std::to_string(bytes.count()) + ", " + shortest(to_us(cost)) + "),\n";
    for (const std::string& name : parameter_names(plan.program, bucket)) {
      keys += "    " + python_quoted(name) + ": \"b" + std::to_string(b) + "\",\n";
    }
  }
  const std::string flags =
      "--xla_gpu_enable_latency_hiding_scheduler=true "
      "--xla_gpu_all_reduce_combine_threshold_bytes=" +
      std::to_string(largest.count());
  result.text = head(Target::Xla, result, plan, options);
  result.text += "\nXLA_FLAGS = " + python_quoted(flags) +
                 "\nBUCKETS = [  # bytes, us alone on the link\n" + buckets +
                 "]\nCOMBINER_KEY = {\n" + keys + "}\n";
  result.text += kFunctions;
  result.paste = "XLA_FLAGS=\"" + flags + "\"; from FILE import mark; gradients = mark(gradients)";
  return result;
}

}  // namespace dovetail::exports
