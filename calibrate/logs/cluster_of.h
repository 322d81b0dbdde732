// From a log of collectives to a cluster file, alone or over what is already known of a machine.
//
//   ClusterResult result = cluster_of(log, {.name = "mine", .prior = models::load_cluster("a100x8", dir)});
//
// Over a prior: a measured table replaces the prior's points from its smallest to its largest size; the
// prior's points outside that range stay as they are, and so does everything else the prior holds. The
// cluster file says which range was measured and whose points the others are
// (models::CollectiveSeries::measured), and predictions repeat it. Points are not rescaled to meet at
// the seam: `seams` says how far apart the two are there.
//
// Without a prior: the collectives, the peaks of the GPU that the log names (gpus.h), and the host and
// contention that shipped clusters assume. The file's notes say so.
//
// Where the ranks of a node are told, the file gets a topology, fitted to its tables (models/clusters/topology_fit.h): other numbers of
// ranks then have a price, too.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "calibrate/logs/collective_log.h"
#include "models/clusters/cluster.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dovetail::imports {

struct ClusterOptions {
  std::string name{};    // of the new cluster; "": "imported", or the prior's name with "-measured"
  std::string origin{};  // who measured, or the files' names
  std::string gpu{};     // a name of gpus.h; "": as the log says
  std::optional<std::int64_t> node_ranks{};
  std::optional<models::Cluster> prior{};
};

struct ClusterResult {
  models::Cluster cluster;
  std::vector<std::string> ranges;   // "all-reduce over 8 ranks: 8 MiB to 1 GiB measured, ..."
  std::vector<std::string> seams;    // where measured and prior meet, how far apart they are
  std::vector<std::string> missing;  // what the cluster does not have, and how to get it
};

// Throws InputError where a table would have one size only, the GPU's name is none that is known, or there are fewer or more ranks on
// a node than told.
ClusterResult cluster_of(const CollectiveLog& log, const ClusterOptions& options);

}  // namespace dovetail::imports
