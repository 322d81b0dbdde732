// What the collectives of a traced job took by themselves, by kind, ranks and size: tables as nccl-tests makes them, to be laid beside a
// machine's.
//
//   series[0].table            all-reduce over 2 ranks: 27 MiB in 18.9 ms, 28.1 MiB in 19.4 ms
//   series[0].is_in_a_node     whether a machine of one node may be laid beside it
//
// A size's time is the median of its collectives' own times (rank_set.h), of one rank an upper bound. Left out: barriers, kinds and
// sizes that are not known, messages, and a CPU's.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/clusters/cluster.h"
#include "recordings/diagnose/traced.h"

#include <vector>

namespace dovetail::diagnose {

struct MeasuredSeries {
  models::CollectiveSeries table;  // times: points, by size
  // Whether its ranks can be laid beside a machine of so many: all ranks of the job, or up to 8 that follow each other. Others may lie
  // on as many nodes.
  bool is_comparable = false;
  Duration time{};  // of all its collectives, waiting included, a step and rank
};

// Those with most time first.
std::vector<MeasuredSeries> measured_series(const JobTrace& job);

}  // namespace dovetail::diagnose
