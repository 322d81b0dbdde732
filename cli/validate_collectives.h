// dovetail validate collectives: what tables of small worlds say of larger ones, beside what was measured there.
//
//   fitted to worlds of up to 64 ranks: nvlink 339 GB/s and 3.4 us a hop, network 23 GB/s a rank and 43 us a hop
//   predicted                            sizes  median  |median|   p95
//   all-reduce over 128 ranks on 32 nodes   30   +2.1 %    5.0 %  31 %
//   16 MiB to 256 MiB                       20   -8.0 %   12.9 %  60 %
//   all                                    150   -8.0 %   13.1 %  71 %
//
// A row of the first kind is a table that the fit did not see, one of the second all sizes of such tables in a range.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/document.h"

namespace dovetail::cli {

struct ValidateCollectivesOptions {
  std::vector<std::string> files;  // logs of nccl-tests
  std::int64_t fit_ranks = 64;
  std::optional<std::int64_t> node_ranks;  // absent: as the logs say
};

void validate_collectives(const ValidateCollectivesOptions& options,
                          const DocumentOptions& document, std::ostream& out);

}  // namespace dovetail::cli
