// What a policy is, in one value: its name and help, what it decides, the options that it takes.
//
// Each policy's file gives one, by the function NAME_policy() that list.h declares for it. What lists,
// reads, prints or joins policies asks these values (options.cc, `show`, `explore`); what the decisions
// then do to a Program is written once, in policies.cc.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/policies/list.h"
#include "schedule/policies/policies.h"
#include "schedule/policies/typed.h"

namespace dovetail::schedule {

struct PolicyOption {
  std::string_view key;
  Decision part = Decision::Placement;  // the decision that it belongs to
  void (*read)(Decisions&, const typed::Typed&);
  std::string (*print)(const Decisions&);  // empty: not set
  bool always = false;                     // printed even where it is the default
  std::string_view also = {};              // another name, which is read and never printed

  [[nodiscard]] bool is(std::string_view name) const {
    return name == key || (!also.empty() && name == also);
  }
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

// How firmly a policy decides. Of two that decide the same thing the firmer one does; equals are refused.
enum class Firmness { Default, DefaultOfShards, Decided };

struct PolicyDefinition {
  std::string_view name;
  std::string_view purpose;  // a few words
  // Options, printed in this order: `sizes`, those of micro-steps, of mode, wait and scope, `batches`,
  // scale, `others`, streams. Those that all policies take are not listed.
  std::vector<PolicyOption> sizes = {};
  std::vector<PolicyOption> batches = {};
  std::vector<PolicyOption> others = {};
  // Fills what the policy decides; of an empty value.
  void (*decide)(Decisions&) = nullptr;
  // Its grouping and its rule of scaling; what else it decides is always Decided.
  Firmness grouping = Firmness::Decided;
  // Completes what options decide together; throws InputError for those that contradict each other.
  void (*complete)(Decisions&, const TypedOptions&) = nullptr;
  std::string_view groups_by = {};  // how it groups gradients, for `show`; empty: by the buckets
  bool merges = false;   // the options of micro-steps mean something with one micro-step too
  bool compared = true;  // by `explore`, where nobody named policies
};

std::span<const PolicyDefinition> all_policies();
// Null where no policy has the name.
const PolicyDefinition* find_definition(std::string_view name);

// All options of a policy, in the order in which they are printed.
std::vector<PolicyOption> options_of(const PolicyDefinition& policy);
// The one of this name, by whichever of its names.
std::optional<PolicyOption> option_of(const PolicyDefinition& policy, std::string_view name);

// The placement to change, made if it is not there yet.
BucketPlacement& placing(Decisions& decisions);

// Options that several policies take.
namespace options {
PolicyOption cap();  // in bytes, of a grouping that has one
PolicyOption batch();
PolicyOption tail();
PolicyOption overlap();
PolicyOption max_streams();
PolicyOption replicas();
}  // namespace options

#define DOVETAIL_POLICY(function) PolicyDefinition function##_policy();
DOVETAIL_POLICIES(DOVETAIL_POLICY)
#undef DOVETAIL_POLICY

}  // namespace dovetail::schedule
