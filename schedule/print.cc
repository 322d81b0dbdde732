// Prints Programs, Schedules and commands as aligned text, one line per thing.
//
// SPDX-License-Identifier: Apache-2.0
#include "schedule/print.h"

#include "base/table.h"
#include "schedule/visit.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dovetail::schedule {
namespace {

constexpr std::size_t kNamesShown = 2;

using Row = std::vector<std::string>;

// Rows of cells, which need not have as many of them each.
void print_rows(std::ostream& out, const std::vector<Row>& rows) {
  Table table;
  for (const Row& row : rows) {
    if (table.columns.size() < row.size())
      table.columns.resize(row.size(), {.key = "", .title = "", .align = Align::Left});
  }
  for (const Row& row : rows) {
    std::vector<Cell> cells(row.begin(), row.end());
    cells.resize(table.columns.size(), "");
    table.rows.push_back({std::move(cells), Tone::Plain});
  }
  print_whole(out, table, 2);
}

std::string name_list(const Program& program, std::string_view verb,
                      const std::vector<TensorId>& ids) {
  if (ids.empty()) return "";
  std::string text(verb);
  for (std::size_t i = 0; i < std::min(ids.size(), kNamesShown); ++i) {
    text += (i == 0 ? " " : ", ") + program.tensor(ids[i]).name;
  }
  if (ids.size() > kNamesShown) text += " +" + std::to_string(ids.size() - kNamesShown);
  return text;
}

std::string work_text(const Work& work) {
  return visit(
      work,
      [](const KernelsWork& several) {
        return std::to_string(several.kernels.size()) + " kernels";
      },
      [](const GemmWork& gemm) {
        const std::string count = gemm.count == 1 ? "" : " times " + std::to_string(gemm.count);
        return "gemm " + std::to_string(gemm.m) + "x" + std::to_string(gemm.n) + "x" +
               std::to_string(gemm.k) + count +
               (gemm.operands == Operands::Own ? ""
                                               : " of " + std::string(to_string(gemm.operands)));
      },
      [](const MemoryWork& memory) { return "memory " + to_string(memory.bytes); },
      [](const TimedWork& timed) {
        if (timed.by_rank.empty()) return std::string("timed");
        const auto [low, high] = std::ranges::minmax(timed.by_rank);
        return "timed " + dovetail::to_string(low) +
               (low == high ? "" : " to " + dovetail::to_string(high));
      },
      [](const CollectiveWork& message) {
        return std::string(to_string(message.kind)) + " " + to_string(message.bytes);
      });
}

// "0..7" for consecutive ranks, else "0,2,4"; long lists are cut.
std::string rank_text(const std::vector<Rank>& ranks) {
  if (ranks.empty()) return "none";
  const auto span = static_cast<std::size_t>(ranks.back().value - ranks.front().value) + 1;
  if (ranks.size() > 1 && span == ranks.size()) {
    return std::to_string(ranks.front().value) + ".." + std::to_string(ranks.back().value);
  }
  constexpr std::size_t kShown = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(ranks[i].value);
  }
  if (ranks.size() > kShown) text += " +" + std::to_string(ranks.size() - kShown);
  return text;
}

std::string bucket_text(BucketId id) { return "bucket " + std::to_string(id.value); }

// The decisions that concern the whole step, where they are not the usual ones.
std::string decisions_text(const Schedule& schedule) {
  const Schedule usual;
  std::string text;
  if (schedule.scale != usual.scale) text += "  scale " + std::string(to_string(schedule.scale));
  if (schedule.merge != usual.merge) {
    text += "  " + std::to_string(schedule.merge.micro_steps) + " micro-steps, " +
            std::string(to_string(schedule.merge.op)) + ", sync " +
            std::string(to_string(schedule.merge.sync)) + ", sums in " +
            std::string(to_string(schedule.merge.dtype));
  }
  if (schedule.parameters != usual.parameters) {
    text += "  parameters gathered " + std::string(to_string(schedule.parameters));
  }
  if (schedule.pipeline != usual.pipeline) {
    text += "  pipeline " + std::string(to_string(schedule.pipeline.kind)) + ", launches " +
            std::string(to_string(schedule.pipeline.alignment));
  }
  return text;
}

std::string gradient_count(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " gradient" : " gradients");
}

std::string placed_stream_text(const StreamChoice& stream) {
  return visit(
      stream, [](const InlineStream&) { return std::string("inline"); },
      [](const CommStream& comm) { return "on comm" + std::to_string(comm.index); });
}

// "3 gradients, 1 in part": how many lie in the bucket, and how many of them not as a whole.
std::string slice_count(const std::vector<Slice>& slices) {
  const auto parts = std::ranges::count_if(
      slices, [](const Slice& slice) { return slice != Slice(slice.tensor); });
  return gradient_count(slices.size()) +
         (parts == 0 ? "" : ", " + std::to_string(parts) + " in part");
}

std::string collective_text(const Program& program, const Bucket& bucket) {
  std::string text =
      std::string(to_string(reduces_by(bucket))) + " over " + program.group(bucket.group).name;
  if (bucket.sums_whole) text += ", of which a shard is used";
  if (bucket.replicas) text += ", replicas " + program.group(*bucket.replicas).name;
  if (bucket.max_ctas > 0) text += ", at most " + std::to_string(bucket.max_ctas) + " blocks";
  return text + " " + placed_stream_text(bucket.stream);
}

std::string launch_text(const Program& program, const LaunchPoint& launch) {
  return visit(
      launch, [](const LaunchWhenReady&) { return std::string("launch when ready"); },
      [](const LaunchAfterBackward&) { return std::string("launch after backward"); },
      [&](const LaunchAfterOp& after) { return "launch after " + program.op(after.op).name; },
      [&](const LaunchBeforeOp& before) {
        return "launch in front of " + program.op(before.op).name;
      },
      [](const LaunchInBatch& in) { return "launch with batch " + std::to_string(in.batch); });
}

std::string wait_text(const Bucket& bucket) {
  std::string what = bucket.scope == WaitScope::WholeStream ? "wait for whole stream" : "wait";
  switch (bucket.wait) {
    case WaitPoint::EndOfBackward:
      return what + " at end of backward";
    case WaitPoint::FirstUse:
      return what + " before first use";
    case WaitPoint::BeforeNextBatch:
      return what + " before the next batch";
    case WaitPoint::AtLaunch:
      return what + " at launch";
  }
  return what;
}

// The cells of one action: its verb, then what it is about.
Row action_cells(const ScheduledProgram& scheduled, const Action& action) {
  const Program& program = scheduled.program;
  return visit(
      action,
      [&](const RunOp& run) {
        return Row{"run", program.op(run.op).name};
      },
      [&](const Communicate& run) {
        if (run.op) return Row{"run", program.op(*run.op).name};
        return Row{std::string(to_string(run.kind)),
                   bucket_text(*run.bucket) + "  " + to_string(scheduled.bucket(*run.bucket).size) +
                       " over " + program.group(run.group).name};
      },
      [&](const Copy& copy) {
        Bytes bytes;
        for (const TensorId id : copy.gradients) bytes += program.tensor(id).bytes();
        return Row{copy.direction == CopyDirection::Pack ? "pack" : "unpack",
                   bucket_text(copy.bucket) + "  " + gradient_count(copy.gradients.size()) + "  " +
                       to_string(bytes)};
      },
      [](const RecordEvent& record) {
        return Row{"record", "e" + std::to_string(record.event.value)};
      },
      [](const WaitEvent& wait) {
        return Row{"wait", "e" + std::to_string(wait.event.value)};
      },
      [](const Scale& scale) {
        return Row{"scale", bucket_text(scale.bucket) + "  by " + to_string(scale.factor)};
      },
      [](const Release& release) {
        return Row{"release", bucket_text(release.bucket)};
      });
}

}  // namespace

void print_program(std::ostream& out, const Program& program) {
  out << "program " << program.name << "  world " << program.world_size << '\n';
  std::vector<Row> rows;
  for (const Op& op : program.ops) {
    rows.push_back({std::string(to_string(op.phase)), op.name, work_text(op.work),
                    name_list(program, "reads", op.reads),
                    name_list(program, "writes", op.writes)});
  }
  print_rows(out, rows);
  for (const Reduction& reduction : program.reductions) {
    out << "reduce " << program.tensor(reduction.gradient).name << ": " << to_string(reduction.op)
        << " over " << program.group(reduction.group).name << '\n';
  }
}

void print_schedule(std::ostream& out, const Program& program, const Schedule& schedule) {
  out << "schedule " << schedule.policy << decisions_text(schedule) << '\n';
  std::vector<Row> rows;
  for (const Bucket& bucket : schedule.buckets) {
    std::string padding;
    if (bucket.align_to > Bytes(1)) padding = "aligned to " + to_string(bucket.align_to);
    if (bucket.pad_to > Bytes(1) && bucket.pad_to != bucket.align_to) {
      padding += (padding.empty() ? "padded to " : ", padded to ") + to_string(bucket.pad_to);
    }
    rows.push_back({bucket_text(bucket.id), to_string(payload(program, bucket)),
                    slice_count(bucket.gradients), collective_text(program, bucket),
                    std::string(to_string(bucket.mode)), padding,
                    launch_text(program, bucket.launch), wait_text(bucket),
                    bucket.closed_by.empty() ? "" : "closed by " + bucket.closed_by});
  }
  print_rows(out, rows);
  rows.clear();
  for (const FrozenBlock& block : schedule.frozen) {
    Bytes bytes;
    for (const TensorId id : block.parameters) bytes += program.tensor(id).bytes();
    rows.push_back({"frozen block " + std::to_string(block.id.value), to_string(bytes),
                    name_list(program, "holds", block.parameters),
                    "sharded over " + program.group(block.group).name,
                    std::string(to_string(block.mode))});
  }
  print_rows(out, rows);
  rows.clear();
  for (const OpPlacement& placement : schedule.collectives) {
    rows.push_back({"collective", program.op(placement.op).name,
                    placed_stream_text(placement.stream), launch_text(program, placement.launch)});
  }
  print_rows(out, rows);
}

void print_commands(std::ostream& out, const ScheduledProgram& scheduled) {
  out << "commands of " << scheduled.program.name << "  " << scheduled.policy << "\nstreams";
  for (const Stream& stream : scheduled.streams) {
    out << (&stream == &scheduled.streams.front() ? " s" : "  s") << stream.id << ' '
        << stream.name;
  }
  out << '\n';
  for (const RankProgram& role : scheduled.roles) {
    out << (role.ranks.size() == 1 ? "rank " : "ranks ") << rank_text(role.ranks) << '\n';
    std::vector<Row> rows;
    for (const Command& command : role.commands) {
      Row row{"c" + std::to_string(command.id.value), "s" + std::to_string(command.stream.value)};
      std::ranges::move(action_cells(scheduled, command.action), std::back_inserter(row));
      rows.push_back(std::move(row));
    }
    print_rows(out, rows);
  }
}

}  // namespace dovetail::schedule
