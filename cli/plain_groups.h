// Cuts lists of gradients' names out of a line of JSON. They are most of a line that evaluate is asked, and reading them as
// JSON values takes longer than pricing their buckets.
//
//   plain_groups_in(R"({"groups": [["a", "b"], ["c"]], "id": 1})")   // {{"a", "b"}, {"c"}} and {"groups": [], "id": 1}
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schedule/policies/named_groups.h"

namespace dovetail::cli {

// A line without the lists of its groups, and these. They look at the line.
struct PlainGroups {
  std::string rest;
  schedule::NamedGroups groups;
};

// Nothing where the line has no "groups", a name is other than printable ASCII without escapes, or a list is empty.
std::optional<PlainGroups> plain_groups_in(std::string_view line);

}  // namespace dovetail::cli
