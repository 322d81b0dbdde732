// Reads what the machine is and what it did meanwhile from /proc, and decides with fixed limits
// whether figures that were measured then are valid.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/machine.h"

#include "base/error.h"

#include <unistd.h>
#include <ctime>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iomanip>
#include <map>
#include <sstream>
#include <system_error>
#include <thread>

namespace dovetail::exec {
namespace {

constexpr double kMostOutsideCpu = 0.05;
constexpr double kMostQueueWait = 0.01;
constexpr double kMostSteal = 0.01;
constexpr double kMostTaken = 0.02;
constexpr double kMostSpread = 0.05;
constexpr double kMostResidual = 0.02;
constexpr Bytes kLineFrom = kib(128);

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown processor";
}

Duration own_cpu_time() {
  timespec time{};
  if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

double fraction(Duration part, Duration whole) {
  if (whole <= Duration{}) return 0;
  return std::max(0.0, static_cast<double>(part.count()) / static_cast<double>(whole.count()));
}

void require_below(double value, double limit, std::string_view what, Verdict& verdict) {
  if (value < limit) return;
  std::ostringstream reason;
  reason << std::fixed << std::setprecision(1) << what << ' ' << 100 * value << " %, more than "
         << 100 * limit << " %";
  verdict.valid = false;
  verdict.reasons.push_back(reason.str());
}

}  // namespace

std::string MachineInfo::text() const {
  return host + ", " + cpu + ", " + std::to_string(cores) + (cores == 1 ? " core" : " cores");
}

MachineInfo this_machine() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) name[0] = '\0';
  return {.host = name.data(),
          .cpu = cpu_model(),
          .cores = static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()))};
}

CpuTimes parse_proc_stat(std::string_view text, std::int64_t ticks) {
  std::istringstream in{std::string(text)};
  std::string word;
  // user nice system idle iowait irq softirq steal; guest time is part of user
  std::array<std::int64_t, 8> counts{};
  in >> word;
  for (std::int64_t& count : counts) in >> count;
  if (!in || word != "cpu" || ticks <= 0) {
    throw DeviceError("/proc/stat: expected \"cpu\" and eight counts");
  }
  const auto time = [ticks](std::int64_t count) {
    return Duration(count * (std::int64_t{1'000'000'000} / ticks));
  };
  CpuTimes times;
  for (const std::int64_t count : counts) times.total += time(count);
  times.programs = time(counts[0] + counts[1] + counts[2]);
  times.steal = time(counts[7]);
  return times;
}

CpuTimes read_cpu_times() {
  std::ifstream file("/proc/stat");
  std::string line;
  std::getline(file, line);
  CpuTimes times = parse_proc_stat(line, sysconf(_SC_CLK_TCK));
  times.own = own_cpu_time();
  return times;
}

Conditions conditions_between(const CpuTimes& before, const CpuTimes& after) {
  const Duration total = after.total - before.total;
  const Duration programs = after.programs - before.programs;
  const Duration own = after.own - before.own;
  Conditions conditions;
  conditions.outside_cpu = fraction(programs - own, total);
  conditions.steal = fraction(after.steal - before.steal, total);
  return conditions;
}

Conditions conditions_of_job(const Exchange& exchange, const CpuTimes& before,
                             const CpuTimes& after) {
  // Rank 0's reading of the host, and per process its own time; ranks may share a process.
  const Duration own = after.own - before.own;
  const auto host = static_cast<std::int64_t>(std::hash<std::string>{}(this_machine().host));
  const std::vector<std::int64_t> mine = {host,
                                          static_cast<std::int64_t>(getpid()),
                                          own.count(),
                                          (after.total - before.total).count(),
                                          (after.programs - before.programs).count(),
                                          (after.steal - before.steal).count()};
  const std::vector<std::vector<std::int64_t>> all = exec::share(exchange, mine);
  std::map<std::int64_t, std::int64_t> own_by_process;
  for (const std::vector<std::int64_t>& of_rank : all) {
    if (of_rank.at(0) == all[0].at(0)) own_by_process.emplace(of_rank.at(1), of_rank.at(2));
  }
  CpuTimes start;
  CpuTimes end;
  for (const auto& [process, ns] : own_by_process) end.own += Duration(ns);
  end.total = Duration(all[0].at(3));
  end.programs = Duration(all[0].at(4));
  end.steal = Duration(all[0].at(5));
  return conditions_between(start, end);
}

std::optional<Duration> run_queue_wait() {
  std::error_code none;
  Duration sum{};
  bool any = false;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(task.path() / "schedstat");
    std::int64_t ran = 0;
    std::int64_t waited = 0;
    if (!(file >> ran >> waited)) continue;  // it has just ended, or the kernel does not tell
    any = true;
    sum += Duration(waited);
  }
  return any ? std::optional(sum) : std::nullopt;
}

Conditions conditions_of_device_job(const Exchange& exchange, const DeviceJobStart& before,
                                    Duration took) {
  Conditions conditions = conditions_of_job(exchange, before.cpu, read_cpu_times());
  const std::optional<Duration> now = run_queue_wait();
  const bool is_known = now && before.queue_wait;
  // Threads that ended meanwhile took their count with them.
  const Duration mine = is_known ? std::max(Duration{}, *now - *before.queue_wait) : Duration(-1);
  Duration most{};
  for (const auto& of_rank : share(exchange, std::array{mine.count()})) {
    if (of_rank.front() < 0) return conditions;  // one rank does not know
    most = std::max(most, Duration(of_rank.front()));
  }
  conditions.queue_wait = fraction(most, took);
  return conditions;
}

Verdict validity_of(const Conditions& conditions) {
  Verdict verdict;
  if (conditions.queue_wait) {
    require_below(*conditions.queue_wait, kMostQueueWait,
                  "the threads that feed a device waited for a core for", verdict);
  } else {
    require_below(conditions.outside_cpu, kMostOutsideCpu,
                  "other programs used a share of the processors of", verdict);
  }
  require_below(conditions.steal, kMostSteal, "the hypervisor took a share of the processors of",
                verdict);
  if (conditions.core_taken) {
    require_below(*conditions.core_taken, kMostTaken, "the core of a rank was taken away for",
                  verdict);
  }
  if (conditions.spread) {
    require_below(*conditions.spread, kMostSpread,
                  "step times spread from the 10th to the 90th percentile by", verdict);
  }
  if (conditions.fit_residual) {
    require_below(*conditions.fit_residual, kMostResidual,
                  "the link departs from a straight line by", verdict);
  }
  return verdict;
}

std::optional<double> line_residual(const std::vector<SizedTime>& points) {
  std::vector<std::array<double, 2>> used;
  for (const SizedTime& point : points) {
    if (point.bytes < kLineFrom || point.time <= Duration{}) continue;
    used.push_back(
        {static_cast<double>(point.bytes.count()), static_cast<double>(point.time.count())});
  }
  if (used.size() < 3) return std::nullopt;
  // Relative least squares: each point weighs 1 / time^2, so that small sizes count as much.
  double w = 0;
  double wx = 0;
  double wy = 0;
  double wxx = 0;
  double wxy = 0;
  for (const auto& [x, y] : used) {
    const double weight = 1 / (y * y);
    w += weight;
    wx += weight * x;
    wy += weight * y;
    wxx += weight * x * x;
    wxy += weight * x * y;
  }
  const double slope = (w * wxy - wx * wy) / (w * wxx - wx * wx);
  const double offset = (wy - slope * wx) / w;
  double worst = 0;
  for (const auto& [x, y] : used) worst = std::max(worst, std::abs(offset + slope * x - y) / y);
  return worst;
}

}  // namespace dovetail::exec
