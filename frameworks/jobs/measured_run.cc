// Looks for labels in each line, and reads the number behind them.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/jobs/measured_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <string>

#include "frameworks/jobs/megatron_log.h"

namespace dovetail::frameworks {
namespace {

constexpr std::string_view kIterationTime = "elapsed time per iteration (ms):", kTokens = "tps: ";

// The number behind the label: 5762 of "tps: 5,762"; nothing where there is none, or it is not above 0.
std::optional<double> number_behind(std::string_view line, std::string_view label) {
  const std::size_t at = line.find(label);
  if (at == std::string_view::npos) return std::nullopt;
  line.remove_prefix(at + label.size());
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  std::string digits(line.substr(0, line.find_first_not_of("0123456789.,eE+-")));
  std::erase(digits, ',');
  double value = 0;
  const auto end = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end.ec != std::errc() || !std::isfinite(value) || value <= 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> count_behind(std::string_view line, std::string_view label) {
  constexpr double kMost = 1e15;
  const std::optional<double> value = number_behind(line, label);
  if (!value || *value > kMost) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<Bytes> bytes_behind(std::string_view line, std::string_view label, Bytes unit) {
  constexpr double kMost = 1e9;  // units
  const std::optional<double> value = number_behind(line, label);
  if (!value || *value > kMost) return std::nullopt;
  return Bytes(std::llround(*value * static_cast<double>(unit.count())));
}

class RunReader {
 public:
  void take(std::string_view line) {
    if (line.find(kIterationTime) != std::string_view::npos) take_iteration(line);
    if (line.find(kTokens) != std::string_view::npos &&
        line.find("step:") != std::string_view::npos)
      take_titan(line);
    // Ranks write at once: several such reports may share a line.
    constexpr std::string_view kRank = "[Rank ";
    for (std::size_t at = line.find(kRank); at != std::string_view::npos;) {
      const std::size_t next = line.find(kRank, at + kRank.size());
      const std::string_view report =
          line.substr(at, next == std::string_view::npos ? next : next - at);
      if (report.find("memory (MB)") != std::string_view::npos) take_report(report, kRank);
      at = next;
    }
  }

  MeasuredRun run() {
    for (const auto& [iteration, step] : steps_) run_.steps.push_back(step);
    for (const auto& [rank, memory] : memory_) run_.memory.push_back(memory);
    return std::move(run_);
  }

 private:
  void take_iteration(std::string_view line) {
    const auto iteration = count_behind(line, "iteration ");
    const auto ms = number_behind(line, kIterationTime);
    if (!iteration || !ms) {
      ++run_.unread;
      return;
    }
    run_.by = LoggedBy::Megatron;
    steps_[*iteration] = {.iteration = *iteration,
                          .took = from_us(*ms * 1e3),
                          .tflop_per_s = number_behind(line, "per GPU (TFLOP/s/GPU):"),
                          .global_batch = count_behind(line, "global batch size:")};
  }

  void take_titan(std::string_view line) {
    const auto iteration = count_behind(line, "step:");
    const auto tokens = number_behind(line, kTokens);
    if (!iteration || !tokens) {
      ++run_.unread;
      return;
    }
    run_.by = LoggedBy::Torchtitan;
    steps_[*iteration] = {.iteration = *iteration,
                          .tokens_per_s = *tokens,
                          .tflop_per_s = number_behind(line, "tflops:")};
    hold(count_behind(line, "[rank").value_or(0), {}, bytes_behind(line, "memory:", gib(1)));
  }

  void take_report(std::string_view report, std::string_view label) {
    std::int64_t rank = 0;
    report.remove_prefix(label.size());
    if (std::from_chars(report.data(), report.data() + report.size(), rank).ec != std::errc())
      return;
    auto reserved = bytes_behind(report, "max reserved:", mib(1));
    if (!reserved) reserved = bytes_behind(report, "| reserved:", mib(1));
    hold(rank, bytes_behind(report, "max allocated:", mib(1)), reserved);
  }

  void hold(std::int64_t rank, std::optional<Bytes> allocated, std::optional<Bytes> reserved) {
    if (!allocated && !reserved) return;
    LoggedMemory& most = memory_[rank];
    most.rank = rank;
    most.allocated = std::max(most.allocated, allocated);  // nothing is less than any
    most.reserved = std::max(most.reserved, reserved);
  }

  MeasuredRun run_;
  std::map<std::int64_t, LoggedStep> steps_;
  std::map<std::int64_t, LoggedMemory> memory_;
};

}  // namespace

Duration LoggedStep::time(const jobs::Job& job) const {
  if (took) return *took;
  const double tokens = static_cast<double>(job.tokens()) / static_cast<double>(job.layout.world());
  return from_us(1e6 * tokens / tokens_per_s);
}

std::vector<LoggedStep> MeasuredRun::steady() const {
  const auto first = steps.begin() + static_cast<std::ptrdiff_t>(std::min(kWarmUp, steps.size()));
  return {first, steps.end()};
}

MeasuredRun measured_run(std::string_view text) {
  constexpr std::string_view kTitanBegins = "Starting job:";
  text = last_megatron_run(text);
  const std::size_t begins = text.rfind(kTitanBegins);
  if (begins != std::string_view::npos) text.remove_prefix(begins);
  RunReader reader;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    reader.take(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return reader.run();
}

}  // namespace dovetail::frameworks
