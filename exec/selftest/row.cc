// Makes a row of the self-test's report of a check: passed, failed or skipped, with its reason,
// also where the check threw.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/selftest/row.h"

#include <exception>
#include <iterator>

namespace dovetail::exec::selftest {

Row row_of(const Title& title, const std::function<Outcome()>& check) {
  Outcome outcome;
  try {
    outcome = check();
  } catch (const std::exception& error) {
    outcome = fail(error.what());
  }
  return {.part = title.part,
          .name = title.name,
          .verdict = outcome.verdict,
          .detail = std::move(outcome.detail)};
}

void append(std::vector<Row>& rows, std::vector<Row> more) {
  rows.insert(rows.end(), std::make_move_iterator(more.begin()),
              std::make_move_iterator(more.end()));
}

Counts count(const std::vector<Row>& rows) {
  Counts counts;
  for (const Row& row : rows) {
    switch (row.verdict) {
      case Verdict::Pass:
        ++counts.passed;
        break;
      case Verdict::Fail:
        ++counts.failed;
        break;
      case Verdict::Skipped:
        ++counts.skipped;
        break;
      case Verdict::Known:
        ++counts.known;
        break;
    }
  }
  return counts;
}

}  // namespace dovetail::exec::selftest
