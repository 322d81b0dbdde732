// What a policy is, in one value: its name and help, the options that it takes, their defaults, its rule.
//
// Each policy's file gives one, by the function NAME_policy() that list.h declares for it. What
// lists, reads, prints or applies policies asks these values (options.cc, policies.cc, `show`, `explore`).
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "policies/policies.h"
#include "policies/typed.h"

namespace dovetail::schedule {

struct PolicyOption {
  std::string_view key;
  void (*read)(PolicySpec&, const typed::Typed&);
  std::string (*print)(const PolicySpec&);  // empty: not set
  bool always = false;                      // printed even where it is the default
};

// The options of one policy as somebody typed them.
struct TypedOptions {
  std::string_view text;  // the whole policy, for messages
  std::vector<typed::Typed> options;

  [[nodiscard]] const typed::Typed* find(std::string_view key) const {
    for (const typed::Typed& option : options) {
      if (option.key == key) return &option;
    }
    return nullptr;
  }
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
};

struct PolicyDefinition {
  std::string_view name;
  std::string_view purpose;  // a few words
  // Options, printed in this order: `sizes`, those of micro-steps, of mode, wait and scope, `batches`,
  // scale, `others`. Those that all policies take are not listed.
  std::vector<PolicyOption> sizes = {};
  std::vector<PolicyOption> batches = {};
  std::vector<PolicyOption> others = {};
  void (*set_defaults)(PolicySpec&) = nullptr;
  // Completes what options decide together; throws InputError for those that contradict each other.
  void (*complete)(PolicySpec&, const TypedOptions&) = nullptr;
  // Null: it needs costs (search/planner.h).
  PolicyResult (*apply)(const Program&, const PolicySpec&) = nullptr;
  std::string_view groups_by = {};  // how it groups gradients, for `show`; empty: by the buckets
  bool merges = false;  // the options of micro-steps mean something with one micro-step too
};

const PolicyDefinition& definition_of(PolicyKind kind);
// Null where no policy has the name.
const PolicyDefinition* find_definition(std::string_view name);
std::vector<PolicyKind> all_policies();

// All options of a policy, in the order in which they are printed.
std::vector<PolicyOption> options_of(PolicyKind kind);

// Options that several policies take.
namespace options {
PolicyOption cap();
PolicyOption batch();
PolicyOption tail();
PolicyOption overlap();
PolicyOption max_streams();
PolicyOption replicas();
}  // namespace options

// For `complete` of policies whose updates are sharded.
void refuse_sums_of_whole_gradients(const PolicySpec& spec, const TypedOptions& typed);

#define DOVETAIL_POLICY(kind, function) PolicyDefinition function##_policy();
DOVETAIL_POLICIES(DOVETAIL_POLICY)
#undef DOVETAIL_POLICY

}  // namespace dovetail::schedule
