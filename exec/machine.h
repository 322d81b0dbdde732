// The machine under a measurement: what it is, what else it did meanwhile, and whether the numbers
// may be believed.
//
//   const CpuTimes before = read_cpu_times();
//   ... measure ...
//   Conditions conditions = conditions_between(before, read_cpu_times());
//   Verdict verdict = validity_of(conditions);
//       valid, or {"other programs used 7.2 % of the processors, more than 5 %"}
//
// The limits come from measurements of two ranks on a shaped link: beyond them the step times of
// equal schedules differed by more than the schedules under comparison.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/units.h"
#include "exec/exchange.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dovetail::exec {

struct MachineInfo {
  std::string host;
  std::string cpu;  // "AMD EPYC 7763 64-Core Processor"
  std::int32_t cores = 1;
  // "HOST, CPU, N cores", as a Trace's provenance names a machine.
  [[nodiscard]] std::string text() const;
};
MachineInfo this_machine();

// Processor time since boot over all cores, and of this process.
struct CpuTimes {
  Duration total{};
  Duration programs{};  // user, nice and system; interrupts count for nobody
  Duration steal{};     // taken by the hypervisor
  Duration own{};       // of this process; sum it over the processes of the job on this host
};
CpuTimes read_cpu_times();
// The first line of /proc/stat, with `ticks` per second. Throws DeviceError when it is something
// else.
CpuTimes parse_proc_stat(std::string_view text, std::int64_t ticks);

// How long the threads of this process stood in run queues since they began (/proc/self/task/*/schedstat),
// all together; absent where this kernel does not tell.
std::optional<Duration> run_queue_wait();

// Shares of all processor time between 0 and 1. What was not looked at is absent.
//
// `queue_wait` is for ranks whose work is on a device: the threads that feed it waited for a core for so
// long, as a share of the time. It then takes the place of outside_cpu, which counts the whole host: on a
// machine shared with other tenants that says nothing about these ranks, which have enough cores or not.
struct Conditions {
  double outside_cpu = 0;
  double steal = 0;
  std::optional<double> spread{};        // (p90 - p10) / median of the step time
  std::optional<double> core_taken{};    // of the core of the rank that was disturbed most
  std::optional<double> queue_wait{};    // of the process that waited most
  std::optional<double> fit_residual{};  // of the link's line, relative, from 128 KiB up
};
Conditions conditions_between(const CpuTimes& before, const CpuTimes& after);
// The same for a job: `own` is summed over its processes on rank 0's host, however its ranks are
// spread over processes. Every rank gets rank 0's view.
Conditions conditions_of_job(const Exchange& exchange, const CpuTimes& before,
                             const CpuTimes& after);

// Of a job whose work is on devices: the same, with what the process that waited most for a core has
// waited since `before`, in `took`. Every rank gets the same.
struct DeviceJobStart {
  CpuTimes cpu = read_cpu_times();
  std::optional<Duration> queue_wait = run_queue_wait();
};
Conditions conditions_of_device_job(const Exchange& exchange, const DeviceJobStart& before,
                                    Duration took);

struct Verdict {
  bool valid = true;
  std::vector<std::string> reasons;  // why not, one sentence each
};
Verdict validity_of(const Conditions& conditions);

// Relative distance of the points (bytes, ns) from their least-squares line, the largest of them.
// Points below 128 KiB are left out; nothing when fewer than three remain.
struct SizedTime {
  Bytes bytes;
  Duration time{};
};
std::optional<double> line_residual(const std::vector<SizedTime>& points);

}  // namespace dovetail::exec
