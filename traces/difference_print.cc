// Prints a Difference as aligned text: the whole step, the compute stream, then what changed most.
//
// SPDX-License-Identifier: Apache-2.0
#include "traces/compare_text.h"
#include "traces/difference.h"

#include <algorithm>
#include <ostream>

namespace dovetail::traces {
namespace {

constexpr std::size_t kShown = 20;

std::optional<double> share(const Moved& each) {
  if (each.first == Duration{}) return std::nullopt;
  return static_cast<double>(each.change().count()) / static_cast<double>(each.first.count());
}

void print_times(std::ostream& out, const std::vector<Moved>& list, Milliseconds ms) {
  AlignedRows rows;
  rows.add({"", "first ms", "second ms", "change ms", "change"});
  for (const Moved& each : list) {
    rows.add({each.what, ms(each.first), ms(each.second), ms(each.change()), percent(share(each))});
  }
  rows.print(out);
}

// What did not change is left out; the count says that it is there.
void print_moved(std::ostream& out, const std::vector<Moved>& list, Milliseconds ms) {
  std::vector<Moved> changed = list;
  std::erase_if(changed, [](const Moved& each) {
    return each.change() == Duration{} && each.first_count == each.second_count;
  });
  if (changed.empty()) {
    out << "\nno op and no collective of " << list.size() << " kinds changed\n";
    return;
  }
  out << "\nwhat moved, largest first: " << std::min(kShown, changed.size()) << " of "
      << changed.size() << " that changed, of " << list.size() << " kinds of ops and collectives\n";
  if (changed.size() > kShown) changed.resize(kShown);
  AlignedRows rows;
  rows.add({"", "times", "first ms", "second ms", "change ms"});
  for (const Moved& each : changed) {
    rows.add({each.what,
              std::to_string(each.first_count) + ", " + std::to_string(each.second_count),
              each.first_count == 0 ? "-" : ms(each.first),
              each.second_count == 0 ? "-" : ms(each.second), ms(each.change())});
  }
  rows.print(out);
}

}  // namespace

void print(std::ostream& out, const Difference& difference) {
  const Milliseconds ms = milliseconds_of(
      std::max(difference.first.report.step_time, difference.second.report.step_time));
  print_side(out, "first ", difference.first, ms);
  print_side(out, "second", difference.second, ms);
  for (const std::string& note : difference.notes) out << "NOTE    " << note << '\n';
  out << "change = second - first\n\nthe step\n";
  print_times(out, difference.whole, ms);
  if (!difference.activities.empty()) {
    out << "\nby activity of the compute stream, whose lines sum to the step\n";
    print_times(out, difference.activities, ms);
  }
  print_moved(out, difference.moved, ms);
}

}  // namespace dovetail::traces
