// torch.compile: times for Inductor's scheduler, and module plans for its manual one.
//
// Two doors (torch 2.14 and 2.15, _inductor/fx_passes). overlap_scheduling takes
// aten_distributed_optimizations.custom_runtime_estimation(node, size), ms or None: the file has the
// machine's collective times by bytes, straight lines between the points, and leaves compute to Inductor.
// overlap_manual_scheduling.manual_overlap_bucketing takes lists of modules: a bucket each, and waits for
// a bucket before the next one is launched. Its rule for FSDP is a preset: the next module is gathered beside this
// one, in forward and in backward, and one reduce-scatter is under way.
//
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "frameworks/list.h"
#include "frameworks/modules.h"
#include "frameworks/python_text.h"
#include "frameworks/restriction.h"
#include "schedule/collective_traits.h"

namespace dovetail::frameworks {
namespace {

using schedule::Collective;

std::string inductor_table_text(const schedule::ProcessGroup& group, const Machine& machine) {
  std::string text = "RUNTIME_MS = {  # bytes: ms, alone on the link, over " +
                     std::to_string(group.size()) + " ranks\n";
  for (const Collective kind :
       {Collective::AllReduce, Collective::ReduceScatter, Collective::AllGather}) {
    text += "    " + python_quoted(schedule::traits_of(kind).torch) + ": [";
    for (std::int64_t bytes = 4 << 10; bytes <= std::int64_t{1} << 30; bytes *= 2) {
      const double ms = to_us(machine.collective(kind, group, Bytes(bytes))) / 1e3;
      text += (bytes > 4 << 10 ? ", (" : "(") + std::to_string(bytes) + ", " + shortest(ms) + ")";
    }
    text += "],\n";
  }
  return text + "}\n";
}

constexpr std::string_view kInductorFunctions = R"py(

def runtime_ms(kind, size_bytes):
    """Of one collective: straight lines between the points, beyond them the nearest rate."""
    points = RUNTIME_MS[kind]
    if size_bytes <= points[0][0]:
        return points[0][1]
    for (low, low_ms), (high, high_ms) in zip(points, points[1:]):
        if size_bytes <= high:
            return low_ms + (high_ms - low_ms) * (size_bytes - low) / (high - low)
    return points[-1][1] * size_bytes / points[-1][0]


def custom_runtime_estimation(node, override_size=None):
    """For torch._inductor.config.aten_distributed_optimizations; None leaves a node to Inductor."""
    space, _, name = str(node.target).partition(".")
    kind = next((kind for kind in RUNTIME_MS if name.startswith(kind)), None)
    if space != "_c10d_functional" or kind is None:
        return None
    if override_size is not None:
        return runtime_ms(kind, override_size)
    values = node.meta["val"]  # of coalesced ones a list
    size = sum(value.numel() * value.element_size() for value in (values if isinstance(values, (list, tuple)) else [values]))
    return runtime_ms(kind, size * WORLD_SIZE if kind == "reduce_scatter" else size)  # of its value, a shard, the input


def use():
    """Switches Inductor's overlap scheduler on, with these times."""
    import torch._inductor.config as config

    options = config.aten_distributed_optimizations
    options.enable_overlap_scheduling = True
    options.collective_bucketing = True
    options.compute_estimator = "analytical"  # "benchmark" prefers its cache on disk to the table
    options.custom_runtime_estimation = custom_runtime_estimation
    if hasattr(options, "pre_bucketing_fsdp_collectives"):
        options.pre_bucketing_fsdp_collectives = False  # joins gathers before it asks for times


def manual(graph_module):
    """The plan's buckets instead, as a pass over the joint graph."""
    from torch._inductor.fx_passes.overlap_manual_scheduling import manual_overlap_bucketing

    return manual_overlap_bucketing(graph_module, MODULE_BUCKET_PLANS, insert_overlap_deps=True)
)py";

void restrict_to_inductor(Restriction& left) {
  require_one_stage_and_group(left, "Inductor");
  give_up_the_usual(left, "Inductor");
  give_up_parts_of_modules(left, module_groups(left.program(), left.schedule()), "Inductor");
  left.give_up("several collectives in flight: module plans wait for one before the next",
               wait_for_the_previous);
}

Export write_inductor(Restriction& left, const Writing& writing) {
  Export result = left.result();
  result.notes = {
      "predicted is manual(), the module plans; what use() makes of the times is Inductor's own "
      "affair",
      "where custom_runtime_estimation returns None, small ops lose Inductor's roofline estimate"};
  const schedule::ProcessGroup& group = left.program().group(result.schedule.buckets.front().group);
  result.text = head(writing, result);
  result.text += "\nWORLD_SIZE = " + std::to_string(group.size()) + "\n" +
                 inductor_table_text(group, writing.machine) +
                 groups_text("MODULE_BUCKET_PLANS", module_groups(left.program(), result.schedule));
  result.text += kInductorFunctions;
  result.paste = "import FILE; FILE.use()  # or FILE.manual as a pass";
  return result;
}

}  // namespace

std::vector<Framework> inductor() {
  return {
      {.id = "inductor",
       .name = "Inductor",
       .presets =
           {{"inductor-manual",
             "fsdp:blocks=layer,forward=1,backward=1,mode=copy,wait=before-next-batch,batch=1"}},
       .title = "torch.compile (Inductor)",
       .writes = "a runtime table and module bucket plans",
       .names_parameters = true,
       .restrict_to = restrict_to_inductor,
       .write = write_inductor}};
}

}  // namespace dovetail::frameworks
