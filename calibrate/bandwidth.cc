// Finds the shipped clusters that are like this system, and divides bytes by times.
//
// SPDX-License-Identifier: Apache-2.0
#include "calibrate/bandwidth.h"

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/decimal.h"

namespace dovetail::calibrate {
namespace {

using exec::selftest::Row;
using schedule::Collective;

constexpr double kFault = 0.5;         // of a published bandwidth
constexpr Bytes kFromBytes = mib(16);  // below this latency decides, which depends on the host

// "a100" of "a100x8" and "a100x2_nv12"; "" of a name that is not of this form.
std::string family_of(std::string_view name) {
  const std::string_view machine = name.substr(0, name.find('_'));
  const std::size_t cross = machine.rfind('x');
  return cross == std::string_view::npos ? "" : std::string(machine.substr(0, cross));
}

bool names_family(const std::string& gpu, const std::string& family) {
  std::string lower = gpu;
  std::ranges::transform(lower, lower.begin(), [](unsigned char letter) {
    return static_cast<char>(std::tolower(letter));
  });
  const std::size_t at = lower.find(family);
  if (family.empty() || at == std::string::npos) return false;
  const std::size_t end = at + family.size();
  return end == lower.size() || std::isalnum(static_cast<unsigned char>(lower[end])) == 0;
}

}  // namespace

std::vector<models::Cluster> shipped_like(const GpuSystem& system, const std::string& data_dir) {
  std::vector<models::Cluster> alike;
  for (const std::string& name : models::cluster_names(data_dir)) {
    if (!names_family(system.gpu, family_of(name))) continue;
    models::Cluster cluster = models::load_cluster(name, data_dir);
    const bool fits = std::ranges::any_of(cluster.collectives, [&](const auto& series) {
      return series.collective == Collective::AllReduce && series.ranks == system.ranks &&
             series.nodes == system.hosts;
    });
    if (fits) alike.push_back(std::move(cluster));
  }
  return alike;
}

double bus_bandwidth(Bytes bytes, Duration time, std::int64_t ranks) {
  const auto n = static_cast<double>(ranks);
  const auto ns = static_cast<double>(std::max<std::int64_t>(1, time.count()));
  return 2 * (n - 1) / n * static_cast<double>(bytes.count()) / ns;
}

std::vector<Row> bandwidth_rows(std::span<const models::CollectivePoint> times,
                                const GpuSystem& system, std::span<const models::Cluster> shipped) {
  std::vector<Row> rows;
  for (const models::CollectivePoint& size : times) {
    if (system.gpu == "EMULATED") {  // its times mean nothing, but its values were checked
      rows.push_back({.part = "cuda",
                      .name = "all-reduce " + to_string(size.bytes) + ", " +
                              std::to_string(system.ranks) + " ranks",
                      .verdict = exec::selftest::Verdict::Skipped,
                      .detail = "the device is emulated: its times mean nothing"});
      continue;
    }
    const double here = bus_bandwidth(size.bytes, size.isolated, system.ranks);
    std::string words = fixed(to_us(size.isolated), 1) + " us, busbw " + fixed(here, 1) + " GB/s";
    bool is_slow = !shipped.empty() && size.bytes >= kFromBytes;
    for (const models::Cluster& cluster : shipped) {
      const models::CollectiveTable table =
          collective_table(cluster, {Collective::AllReduce, system.ranks});
      const double there = bus_bandwidth(size.bytes, table.time(size.bytes).isolated, system.ranks);
      words += "; " + cluster.name + ": " + fixed(there, 1);
      is_slow = is_slow && here < kFault * there;
    }
    if (is_slow) words += "; below half of what was published for such a system";
    rows.push_back(
        {.part = "cuda",
         .name =
             "all-reduce " + to_string(size.bytes) + ", " + std::to_string(system.ranks) + " ranks",
         .verdict = is_slow ? exec::selftest::Verdict::Fail : exec::selftest::Verdict::Pass,
         .detail = words});
  }
  return rows;
}

}  // namespace dovetail::calibrate
