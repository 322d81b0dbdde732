// Prints a Difference as aligned text, the whole step, the compute stream, then what changed most,
// and writes it as JSON.
//
// SPDX-License-Identifier: Apache-2.0
#include "base/json.h"
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

Table times_table(const std::vector<Moved>& list, Milliseconds ms) {
  return table_of<Moved>(
      {{{"what", ""}, &Moved::what},
       {{"first_us", "first ms"}, [ms](const Moved& row) { return time_cell(row.first, ms); }},
       {{"second_us", "second ms"}, [ms](const Moved& row) { return time_cell(row.second, ms); }},
       {{"change_us", "change ms"}, [ms](const Moved& row) { return time_cell(row.change(), ms); }},
       {{"", "change"}, [](const Moved& row) { return percent(share(row)); }}},
      list);
}

// What is not there takes no time, which people read as "-".
Table moved_table(const std::vector<Moved>& list, Milliseconds ms) {
  const auto of = [ms](std::int64_t count, Duration time) {
    return count == 0 ? Cell(time).shown_as("-") : time_cell(time, ms);
  };
  return table_of<Moved>({{{"what", ""}, &Moved::what},
                          {{"kind"}, &Moved::kind},
                          {{"", "times"},
                           [](const Moved& row) {
                             return std::to_string(row.first_count) + ", " +
                                    std::to_string(row.second_count);
                           }},
                          {{"first_count"}, &Moved::first_count},
                          {{"second_count"}, &Moved::second_count},
                          {{"first_us", "first ms"},
                           [of](const Moved& row) { return of(row.first_count, row.first); }},
                          {{"second_us", "second ms"},
                           [of](const Moved& row) { return of(row.second_count, row.second); }},
                          {{"change_us", "change ms"},
                           [ms](const Moved& row) { return time_cell(row.change(), ms); }}},
                         list);
}

// Of the longer step, for both sides.
Milliseconds unit_of_both(const Difference& difference) {
  return milliseconds_of(
      std::max(difference.first.report.step_time, difference.second.report.step_time));
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
  print_whole(out, moved_table(changed, ms), 2);
}

}  // namespace

void print(std::ostream& out, const Difference& difference) {
  const Milliseconds ms = unit_of_both(difference);
  print_side(out, "first ", difference.first, ms);
  print_side(out, "second", difference.second, ms);
  for (const std::string& note : difference.notes) out << "NOTE    " << note << '\n';
  out << "change = second - first\n\nthe step\n";
  print_whole(out, times_table(difference.whole, ms), 2);
  if (!difference.activities.empty()) {
    out << "\nby activity of the compute stream, whose lines sum to the step\n";
    print_whole(out, times_table(difference.activities, ms), 2);
  }
  print_moved(out, difference.moved, ms);
}

Table rows_of(const Difference& difference) {
  return moved_table(difference.moved, unit_of_both(difference));
}

std::string to_json(const Difference& difference) {
  const Milliseconds ms = unit_of_both(difference);
  const nlohmann::ordered_json root = {
      {"schema", "dovetail.difference/1"},
      {"kind", "difference"},
      {"first", side_json(difference.first)},
      {"second", side_json(difference.second)},
      {"notes", difference.notes},
      {"whole", rows_json(times_table(difference.whole, ms))},
      {"activities", rows_json(times_table(difference.activities, ms))},
      {"rows", rows_json(rows_of(difference))}};
  // Names come from files; a byte that is no UTF-8 must not end the report.
  return root.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace dovetail::traces
