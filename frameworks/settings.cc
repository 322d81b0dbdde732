// Each framework says how its option is written and what a number in it means; which numbers are worth trying, and
// which buckets they make, is the same for all and stands here.
//
// SPDX-License-Identifier: Apache-2.0
#include "frameworks/settings.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace dovetail::frameworks {
namespace {

constexpr std::array<std::int64_t, 15> kMib = {1,  2,   4,   8,   16,  25,  32,  50,
                                               64, 100, 128, 200, 256, 512, 1024};

// One framework's option on one step's gradients.
class Option {
 public:
  Option(const SizeOption& option, const StepGradients& gradients)
      : option_(option), gradients_(gradients) {}

  // With this number in the option's unit, or without one.
  [[nodiscard]] BucketCandidate candidate(std::optional<std::int64_t> size, InFlight in_flight,
                                          Duration cycle) const {
    const schedule::BucketRule rule{option_.closes, option_.unit,
                                    option_.limits(size, gradients_.ranks)};
    BucketCandidate candidate;
    candidate.ends = ends_of(gradients_, rule, cycle);
    candidate.in_flight = in_flight;
    const std::int64_t in_unit = rule.limits.back();
    const Written written = option_.write({.number = in_unit,
                                           .is_set = size.has_value(),
                                           .bytes = bytes_of(in_unit),
                                           .buckets = candidate.ends.size(),
                                           .in_flight = in_flight,
                                           .cycle = cycle});
    candidate.setting = written.setting;
    candidate.line = written.line;
    if (size) candidate.size = in_unit / option_.written_in;
    candidate.is_default = !size;
    return candidate;
  }

  [[nodiscard]] std::int64_t in_unit(Bytes bytes) const {
    return option_.unit == schedule::CountedIn::Bytes
               ? bytes.count()
               : bytes.count() / std::max<std::int64_t>(1, gradients_.element.count());
  }

 private:
  [[nodiscard]] Bytes bytes_of(std::int64_t number) const {
    return option_.unit == schedule::CountedIn::Bytes ? Bytes(number) : gradients_.element * number;
  }

  const SizeOption& option_;
  const StepGradients& gradients_;
};

// Sizes from small to large, up to the first that makes one bucket of all. With a cycle none does: up to what
// is no smaller than everything, or than the default.
void add_sizes(const SizeOption& option, const StepGradients& gradients, InFlight in_flight,
               std::vector<BucketCandidate>& found) {
  const Option own(option, gradients);
  const Duration cycle = option.cycles.empty() ? Duration{} : option.cycles.front();
  const Bytes all = std::accumulate(gradients.bytes.begin(), gradients.bytes.end(), Bytes{});
  for (const std::int64_t cap : kMib) {
    const std::int64_t size = own.in_unit(mib(cap));
    const bool is_default =
        cycle > Duration{} && size >= option.limits(std::nullopt, gradients.ranks).back();
    if (is_default || (cycle > Duration{} && mib(cap) > all)) return;
    BucketCandidate candidate = own.candidate(size, in_flight, cycle);
    const bool is_last = cycle == Duration{} && candidate.ends.size() <= 1;
    // One bucket has nothing to wait for: where one in flight is the rule, more are no other setting.
    const bool is_new = in_flight == option.in_flight.front() || candidate.ends.size() > 1;
    if (is_new) found.push_back(std::move(candidate));
    if (is_last) return;
  }
}

// "2, 15, 12": how many gradients each bucket has; of many the first ones.
std::string counts_text(const std::vector<std::size_t>& ends) {
  constexpr std::size_t kMost = 40;
  std::string text;
  std::size_t from = 0;
  for (std::size_t e = 0; e < ends.size(); ++e) {
    if (e == kMost) return text + ", ...";
    text += (e == 0 ? "" : ", ") + std::to_string(ends[e] - from);
    from = ends[e];
  }
  return text;
}

}  // namespace

std::vector<BucketCandidate> bucket_candidates(const Framework& framework,
                                               const StepGradients& gradients) {
  const SizeOption& option = *framework.size;
  const Option own(option, gradients);
  std::vector<BucketCandidate> found;
  if (!option.limits(std::nullopt, gradients.ranks).empty()) {
    const Duration cycle = option.cycles.empty() ? Duration{} : option.cycles.front();
    found.push_back(own.candidate(std::nullopt, option.in_flight.front(), cycle));
  }
  for (const InFlight in_flight : option.in_flight) add_sizes(option, gradients, in_flight, found);
  for (const Duration cycle : option.cycles) {
    if (cycle == option.cycles.front()) continue;
    found.push_back(own.candidate(std::nullopt, option.in_flight.front(), cycle));
    found.back().is_default = false;
  }
  return found;
}

std::optional<BucketCandidate> list_candidate(const Framework& framework,
                                              const StepGradients& gradients,
                                              std::vector<std::size_t> ends,
                                              schedule::BucketMode mode) {
  if (framework.list == nullptr) return std::nullopt;
  std::vector<Bytes> sizes;
  std::size_t next = 0;
  for (const std::size_t end : ends) {
    sizes.emplace_back();
    for (; next < end; ++next) sizes.back() += gradients.bytes[next];
  }
  const Written written =
      framework.list(sizes,
                     "buckets of " + counts_text(ends) +
                         " parameters, in the order in which their gradients are ready",
                     mode);
  BucketCandidate candidate;
  candidate.setting = written.setting;
  candidate.line = written.line;
  candidate.ends = std::move(ends);
  candidate.is_list = true;
  return candidate;
}

std::vector<std::size_t> ends_of(const StepGradients& gradients, const schedule::BucketRule& rule,
                                 Duration cycle) {
  std::vector<schedule::GradientSize> sizes;
  std::vector<std::size_t> ends;
  std::size_t first = 0;  // of those that are ready within one cycle
  const auto close = [&](std::size_t end) {
    for (const std::size_t own : schedule::bucket_ends(sizes, rule)) ends.push_back(first + own);
    sizes.clear();
    first = end;
  };
  for (std::size_t i = 0; i < gradients.bytes.size(); ++i) {
    // What is ready at 0 goes at the end of the first cycle.
    const bool waited =
        cycle > Duration{} && i > 0 && gradients.ready[i] / cycle != gradients.ready[i - 1] / cycle;
    if (waited) close(i);
    sizes.push_back({gradients.bytes[i], gradients.bytes[i].count() /
                                             std::max<std::int64_t>(1, gradients.element.count())});
  }
  close(gradients.bytes.size());
  return ends;
}

}  // namespace dovetail::frameworks
