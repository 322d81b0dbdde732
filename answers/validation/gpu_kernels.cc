// Prices kernels one by one, and takes kinds of them out of a machine.
//
// SPDX-License-Identifier: Apache-2.0
#include "answers/validation/gpu_kernels.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <variant>

#include "answers/validation/table.h"
#include "base/error.h"
#include "base/json_reader.h"
#include "schedule/moved_bytes.h"

namespace dovetail::yardsticks {
namespace {

using schedule::Access;

std::string kind_of(const schedule::Kernel& kernel) {
  const auto* memory = std::get_if<schedule::MemoryWork>(&kernel);
  if (memory == nullptr) return "product";
  if (memory->attention) return memory->attention->backward ? "attention-backward" : "attention";
  const bool is_norm =
      memory->access == Access::RmsNorm || memory->access == Access::RmsNormBackward;
  return std::string(to_string(is_norm ? Access::Plain : memory->access));
}

// Of a bucket: FSDP's gradients put together, what was gathered split up, or anything copied.
std::pair<Access, models::CopyKind> copied(const schedule::ScheduledProgram& program,
                                           const schedule::Copy& copy) {
  const bool is_fsdp = std::ranges::any_of(program.buckets, [](const auto& bucket) {
    return bucket.residence == schedule::Residence::Shard;
  });
  if (!is_fsdp) return {Access::Plain, models::CopyKind::Any};
  if (copy.direction == schedule::CopyDirection::Pack)
    return {Access::Chunked, models::CopyKind::Chunk};
  // Alone nothing is split: PyTorch copies one tensor after the other.
  const bool is_alone = program.program.world_size == 1;
  return {is_alone ? Access::Plain : Access::Split, models::CopyKind::Split};
}

constexpr std::string_view kGridded = "products", kUnaligned = "unaligned",
                           kConvolutions = "convolutions", kAttention = "attention", kHost = "host";

}  // namespace

std::vector<KernelSum> kernel_sums(const std::string& folder) {
  std::vector<KernelSum> sums;
  for (const TableRow& row : read_table(folder + "/gpu_kernels_h100.csv")) {
    sums.push_back({.step = row.text("step"),
                    .kind = row.text("kind"),
                    .launches = row.number("launches"),
                    .time = from_us(row.number("ms") * 1e3),
                    .backwards = row.number("backwards"),
                    .updates = row.number("updates")});
  }
  return sums;
}

std::map<std::string, Duration> kernel_times(const schedule::ScheduledProgram& program,
                                             const models::Costs& costs, double backwards,
                                             double updates) {
  std::map<std::string, Duration> times;
  schedule::Phase phase = schedule::Phase::Forward;
  const auto add = [&](const std::string& kind, Duration time) {
    const double count = phase == schedule::Phase::Forward    ? 1
                         : phase == schedule::Phase::Backward ? backwards
                                                              : updates;
    times[kind] += from_us(to_us(time) * count);
  };
  for (const schedule::Command& command : program.roles.front().commands) {
    if (const auto* run = std::get_if<schedule::RunOp>(&command.action)) {
      schedule::Op one = program.program.op(run->op);
      phase = one.phase;
      for (const schedule::Kernel& kernel : schedule::kernels_of(one.work)) {
        std::visit([&one](const auto& work) { one.work = work; }, kernel);
        add(kind_of(kernel), costs.ops.model().price(one).by_class.front());
      }
    } else if (const auto* copy = std::get_if<schedule::Copy>(&command.action)) {
      const auto [access, kind] = copied(program, *copy);
      const Bytes bytes =
          schedule::moved_bytes(program.program, program.bucket(copy->bucket), *copy);
      add(std::string(to_string(access)), costs.copy(bytes, kind));
    }
  }
  return times;
}

std::vector<std::string> kinds_to_leave_out() {
  std::vector<std::string> kinds = {std::string(kGridded), std::string(kUnaligned),
                                    std::string(kConvolutions), std::string(kAttention),
                                    std::string(kHost)};
  for (const Access access : kAllOf<Access>) {
    if (access != Access::Any) kinds.emplace_back(to_string(access));
  }
  return kinds;
}

models::Cluster without(models::Cluster cluster, std::string_view kind) {
  DOVETAIL_CHECK(cluster.compute) << cluster.name;
  models::Roofline& gpu = *cluster.compute;
  if (kind == kHost) {
    for (Duration* const time :
         {&cluster.host.run_op, &cluster.host.collective, &cluster.host.event, &cluster.host.copy})
      *time = {};
    cluster.host.backward_op = cluster.host.update_op = Duration{};
  } else if (kind == kAttention) {
    gpu.attention = nullptr;
  } else if (kind == kUnaligned) {
    gpu.others = nullptr;
  } else if (kind == kConvolutions) {
    gpu.convolutions = nullptr;
  } else if (kind == kGridded) {
    gpu.products.clear();
  } else if (const auto access = word_to<Access>(kind); access && *access != Access::Any) {
    auto passes = std::make_shared<models::MemoryRates>(*gpu.passes);
    passes->forget(*access, std::nullopt);
    for (const schedule::DType dtype : kAllOf<schedule::DType>) passes->forget(*access, dtype);
    gpu.passes = std::move(passes);
  } else {
    const std::vector<std::string> known = kinds_to_leave_out();
    std::string list;
    for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
    const std::string near = nearest_word(kind, known);
    throw InputError(
        "--without " + std::string(kind) + ": " +
        (near.empty() ? "expected each, or one of " + list : "did you mean " + near + "?"));
  }
  return cluster;
}

}  // namespace dovetail::yardsticks
