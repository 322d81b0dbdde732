// How long what travels takes by its size, alone and in a queue: the all-reduce over all ranks, and what
// else plans of these ranks may ask for.
//
// Several transfers of one size are launched together (probes.h): the first is alone, all of them are back to back.
// Where steps begin with a pause, one for itself is alone. A
// collective lasts from its last arrival to its last completion over the ranks, where they share a clock; else as long
// as on its last arrival, which waits for nobody: the shortest of its ranks' own durations.
//
// Sizes grow until the budget has no room for a next one; two are always measured.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/lab.h"
#include "calibrate/probes.h"
#include "models/clusters/cluster.h"
#include "models/rates/collective_table.h"
#include "models/rates/passes.h"

#include <cstdint>
#include <vector>

namespace dovetail::calibrate {

// All-reduces of all ranks. Sizes may be measured that differ from those asked for, by whole elements.
std::vector<models::CollectivePoint> measure_collectives(const Lab& lab);

// The all-reduce of so many bytes, and how long it takes in a queue.
models::CollectivePoint all_reduce_of(const Lab& lab, Bytes bytes);
Duration back_to_back(const Lab& lab, Bytes bytes);
TransferProbe probe_of(const Lab& lab, Bytes bytes, std::int64_t count);
// As many as the options allow of one size.
std::int64_t queue_of(const Lab& lab, Bytes bytes);

// What plans of these ranks may ask for besides the all-reduce of all: its halves; all-reduces and
// halves of every smaller group that divides the ranks (the replicas of a stage, of a tensor-parallel
// group), of ranks in a row as far as they fit on one host, else of ranks that are equally far apart;
// sends between two; and the all-to-alls and broadcasts of the workload's own ops. A reduce-scatter
// stands for its all-gather too. `hosts`: of every rank, equal numbers for ranks of one host.
struct WantedSeries {
  schedule::Collective kind = schedule::Collective::AllReduce;
  ProbeGroup group = {};
  std::int64_t ranks = 2;
  std::int64_t nodes = 1;
};
std::vector<WantedSeries> wanted_series(const schedule::Program& workload,
                                        const std::vector<std::int64_t>& hosts);

// Equal numbers for ranks that share a host, on every rank.
std::vector<std::int64_t> hosts_of(const exec::Exchange& exchange);

// The series of `wanted_series`, each with its part of the further budget, in a table of its own.
std::vector<models::CollectiveSeries> measure_further(const Lab& lab,
                                                      const schedule::Program& workload,
                                                      const std::vector<std::int64_t>& hosts);

// Packing a bucket, and multiplying one in place, between memory that caches hardly hold: a line over bytes.
models::CopyModel measure_copies(const Lab& lab);
models::PassModel measure_scales(const Lab& lab);

}  // namespace dovetail::calibrate
