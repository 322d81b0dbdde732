// A Cluster: everything we know about how fast one machine is, as a value and as a JSON file.
//
//   Cluster cluster = load_cluster("a100x8", data_dir);       // shipped; or a path to a file
//   Costs costs = costs_for(cluster, program);                // what the simulator reads
//   CollectiveTable table = collective_table(cluster, {Collective::AllReduce, 8});
//
// The file, schema "dovetail.cluster/1". Only the name must be there; what stands for
// an absent section is said at its field below. Units are in the keys; an unknown key is an error.
// A file with "of": "h100" is that shipped one with its own keys laid over it (JSON Merge Patch, RFC 7396): another network,
// another memory, nodes of four.
//
//   {"schema": "dovetail.cluster/1", "kind": "cluster", "name": "a100x8",
//    "origin": "...", "licence": "...", "date": "2023-09-11", "notes": {"compute": "..."},
//    "ranks": 8, "backend": "cuda",
//    "collectives": [{"collective": "all-reduce", "ranks": 8, "nodes": 1,
//                     "link": "nvlink",
//                     "points": [{"bytes": 32768, "isolated_us": 43.83}, ...]},
//                    {"collective": "all-gather", "ranks": 8, "nodes": 1,
//                     "alpha_us": 20, "beta_ns_per_byte": 0.004}],
//                                 tables of different systems say so: "origin": "..."
//                                 a table of two origins says which of its points were measured here:
//                                 "measured": {"from_bytes": 8388608, "to_bytes": 1073741824,
//                                              "prior": "a100x8"}
//    "topology": {"gpu": "hopper",           topology.h; links by name, from two levels to four
//                 "levels": {"nvlink": {"ranks": 8, "bytes_per_s": 3.5e11, "all_reduce_bytes_per_s": 4.7e11, "hop_us": 3.4},
//                            "network": {"ranks": 256, "bytes_per_s": 4.8e10, "hop_us": 26, "start_us": 0, "block_us": 0},
//                            "spine": {"bytes_per_s": 2.4e10, "hop_us": 28}}},
//    "compute": {"gemm": {"flop_per_s": {"f32": 1.56e14}, "efficiency": 0.5},
//                "memory_bytes_per_s": 2.039e12, "kernel_overhead_us": 1,
//                "memory_bytes": 84987084800},               of one device
//    "kernels": [{"dtype": "f32", "gemm": {"m": 64, "n": 256, "k": 784, "count": 1}, "us": 12.5},
//                {"dtype": "f32", "memory": {"bytes": 4816896, "flop": 0}, "us": 9.1}],
//    "unit_kernel": {"dtype": "f32", "gemm": {"m": 96, "n": 96, "k": 96, "count": 1}, "us": 10},
//    "copy": {"ns_per_byte": 0.001, "fixed_us": 1},              or "bytes_per_s"
//    "passes": {"accumulate": {"ns_per_byte": 0.0008, "fixed_us": 1}, ...},   kinds: passes.h
//    "skew": 0.01,
//    "host": {"kind": "async", "run_op_us": 6, "collective_us": 15, "event_us": 1.5,
//             "copy_us": 8, "launch_latency_us": 7, "launch_gap_us": 1},
//    "contention": {"compute_slowdown": 1.19, "collective_slowdown": 1, "collective_cpu_us": 0},
//    "network_shield_us": 26000,
//    "quality": {"valid": true, "why": [], "outside_cpu": 0.01, "figures": {}}}
//
// A collective's table holds for its number of ranks only: extrapolating over ranks is refused (but for
// send-recv, which does not depend on them). Where the cluster has a topology, a table holds for its ranks
// on its nodes; other groups are interpolated between two measured ones of the same shape, or modelled.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json_reader.h"
#include "base/units.h"
#include "base/words.h"
#include "models/costs/costs.h"
#include "models/costs/topology.h"
#include "models/costs/what_if.h"
#include "models/rates/collective_table.h"
#include "models/rates/op_model.h"
#include "models/rates/passes.h"
#include "schedule/program.h"
#include "schedule/schedule.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace dovetail::models {

using dovetail::to_string;

// Which backend executes plans on this machine.
enum class BackendKind { Cuda, Cpu };
constexpr auto words_of(BackendKind) { return words("cuda", "cpu"); }

// Of a table of two origins: sizes within were measured, all others are those of the cluster `prior`.
struct MeasuredRange {
  Bytes from, to;
  std::string prior;
  friend bool operator==(const MeasuredRange&, const MeasuredRange&) = default;
};

// One collective over one number of ranks.
struct CollectiveSeries {
  schedule::Collective collective = schedule::Collective::AllReduce;
  std::int64_t ranks = 1;
  // For people, unless the cluster has a topology. Absent: unknown, with a topology as few as can be.
  std::optional<std::int64_t> nodes{};
  std::variant<std::vector<CollectivePoint>, AlphaBeta> times;
  std::optional<MeasuredRange> measured{};  // absent: all of one origin
  std::string link = "link";  // which it loads: collectives in flight together share one of a name
  std::string origin =
      {};  // whose system, where a cluster's tables are of several; "": the cluster's own
  friend bool operator==(const CollectiveSeries&, const CollectiveSeries&) = default;
};

// How good the calibration was that wrote this file.
struct Quality {
  bool valid = true;
  std::vector<std::string> why{};           // reasons why not valid, one sentence each
  std::optional<double> outside_cpu{};      // processor share taken by other programs meanwhile
  std::optional<double> steal{};            // processor share taken by the hypervisor meanwhile
  std::optional<double> fit_residual{};     // largest relative residual of the collectives' fits
  std::map<std::string, double> figures{};  // anything else, units in the names
  friend bool operator==(const Quality&, const Quality&) = default;
};

struct Cluster {
  std::string name;
  std::string of;                            // only in files: what load_cluster lays them over
  std::string origin, licence, date;         // default ""
  std::map<std::string, std::string> notes;  // default none
  std::int64_t ranks = 1;                    // default: of the first collective, 1 if there is none
  BackendKind backend = BackendKind::Cuda;   // default cuda
  std::vector<CollectiveSeries> collectives;
  std::optional<Topology> topology;  // absent: only what was measured, whatever lies on which node
  // Absent: only measured kernels, passes and timed work have a time, and memory work where `copy`
  // is known: copy.fixed + copy.ns_per_byte * bytes / 2, since a copy of one byte moves two.
  std::optional<Roofline> compute;
  std::vector<MeasuredKernel> kernels;    // default none; wins over `compute`
  std::optional<UnitKernel> unit_kernel;  // absent: timed work cannot be executed here
  std::optional<CopyModel>
      copy;  // absent: as a pass over its bytes (memory_rates.h), or 0.8 of compute.memory
  std::map<PassKind, PassModel> passes;  // default none; for passes that are no measured kernel
  double skew = 0;                       // default 0; kernels and passes take 1 + skew their time
  HostModel host;                        // absent, or a key of it: default_host(backend)
  Contention contention;                 // default none
  // How long a collective goes on while the core of one of its ranks is away (sim/absences.h).
  Duration network_shield{};       // default 0
  std::optional<Quality> quality;  // absent: not written by a calibration
  WhatIf what_if = {};             // what costs_for changes; in no file
  friend bool operator==(const Cluster&, const Cluster&) = default;
};

// cuda: asynchronous, launch latency 7 us, gap 1, run_op 6, collective 15, event 1.5, copy 8;
// medians of public profiler traces. cpu: inline, all zero.
HostModel default_host(BackendKind backend);

// Reading and writing. InputError names file, place and expectation.
Cluster cluster_from_json(const JsonObject& root);
Cluster parse_cluster(const std::string& file_name, std::string_view text);
std::string cluster_to_json(const Cluster& cluster);  // parse_cluster gives the same value back
void save_cluster(const Cluster& cluster, const std::string& path);
nlohmann::ordered_json cluster_schema();  // the JSON Schema of such a file

// Whether a cluster of this name stands for machines of any number of nodes: it has a topology, and its name no number of
// ranks ("h100"; "h200x8" is one machine).
bool is_family(const Cluster& cluster);

// Whether ops are priced by peak rates and other people's measurements: no kernel was measured on this machine.
bool is_uncalibrated(const Cluster& cluster);

// A path (it has a slash or ends in .json), the name of a file in `data_dir` without ".json", or FAMILYxN:
// N ranks of a family, at most one node or whole nodes ("h100x64").
Cluster load_cluster(const std::string& name_or_path, const std::string& data_dir);
// Of files. Sorted; empty where the directory does not exist.
std::vector<std::string> cluster_names(const std::string& data_dir);
// For people to choose from: of a family NAMEx8 to NAMEx512.
std::vector<std::string> cluster_choices(const std::string& data_dir);
// Whether load_cluster finds it in `data_dir`.
bool is_shipped_cluster(const std::string& name, const std::string& data_dir);

// The measured table; where only its relatives were measured, derived from them:
//   all-reduce = reduce-scatter + all-gather, whichever is missing taken as equal to the other
//   reduce-scatter = all-gather, all-gather = reduce-scatter, either = half an all-reduce
// The others follow from the all-reduce T(B) over n ranks as far as it is a ring, i.e. 2 (n - 1)
// steps of a + b B / n (the standard ring formulas):
//   all-to-all     T(B) / 2                    n - 1 exchanges of B / n; B is one rank's input
//   broadcast      T(B n / (n - 1)) / 2        = (n - 1) a + b B: the ring, pipelined
//   send-recv      T(n B) / (2 (n - 1))        = a + b B: one step of the ring; where its two ranks
//                                              have no table, of the smallest group that has one
// With a topology, groups that have neither are interpolated between two measured worlds of one shape (all in one
// node, or equally many ranks on each node), linear in the logarithm of the ranks, else modelled (topology.h) and anchored to
// other worlds of that shape (collective_anchor.h).
// Sizes below a table's first one, on GPUs, take what NCCL's estimate says in proportion to that one, over the cluster's links or,
// without topology, over such as the table shows. Cut at 8 MiB, the shipped tables in a node are met below by 17 % in the median
// (40 at the 90th percentile), those over several nodes by 15 (61, RCCL's); taking the first size's time instead misses by 336 and 172
// (tests/models/small_messages_test.cc).
// Throws InputError, which names the ranks the cluster has tables for. key.nodes 0: as few as can be.
CollectiveTable collective_table(const Cluster& cluster, CollectiveKey key);

// The table, and what it rests on.
struct CollectivePrice {
  CollectiveTable time;
  std::vector<NamedLoad> loads;
  std::vector<const CollectiveSeries*> sources = {};  // measured ones that it is made from
  std::string assumption = {};                        // collective_assumption
  bool is_modelled = false;
};

// Absent where collective_table throws.
std::optional<CollectivePrice> collective_price(const Cluster& cluster, CollectiveKey key);

// How collective_table gets it, for reports: "" when measured, else e.g.
// "all-reduce over 16 ranks is taken as twice the all-gather".
std::string collective_assumption(const Cluster& cluster, CollectiveKey key);

// The rules by which ops are priced here in a job of `world` ranks. The skew that was seen on the machine's own ranks is
// that of the latest of so many, by order statistics of independent normal lateness (base/statistics.h).
OpModel op_model(const Cluster& cluster, std::int64_t world);

// Costs of a Program on this cluster, and of what lowering makes of it: ops by op_model, curves of
// every collective that its groups may be asked for. Throws InputError when an op has no duration
// here, or a group that owes a reduction or communicates in an op has no table.
Costs costs_for(const Cluster& cluster, const schedule::Program& program);

// Costs::collectives and Costs::links alone; throws as costs_for does.
struct CollectiveCosts {
  std::vector<CollectiveCost> costs;
  std::vector<std::string> links;
};
CollectiveCosts collective_costs(const Cluster& cluster, const schedule::Program& program);

// What a reader of a prediction must know, one sentence each: derived collectives, ops from the
// roofline, an assumed copy cost, a calibration that was not valid. `used`: the collectives in
// play.
std::vector<std::string> assumptions(const Cluster& cluster, const schedule::Program& program,
                                     const std::vector<schedule::Collective>& used = {
                                         schedule::Collective::AllReduce});

}  // namespace dovetail::models
