// One line of a self-test: what was looked at, how it ended, and what was seen.
//
//   cpu   all-reduce over the ring   pass     1, 2, 3 and 4 ranks, 133088 elements, 0 wrong
//   cuda  devices                    skipped  the cuda backend finds no usable GPU: ...
//
// Skipped says that something is missing, and what; it is never a pass. Known is a fault of a library that is known,
// met as it is known, and avoided by the executor; it is neither a pass nor a failure. A self-test has to go on
// after a failure, so row_of() turns what a check throws into a failed row.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/words.h"

#include <functional>
#include <string>
#include <vector>

namespace dovetail::exec::selftest {

using dovetail::to_string;

enum class Verdict { Pass, Fail, Skipped, Known };
constexpr auto words_of(Verdict) { return words("pass", "FAIL", "skipped", "known"); }

struct Row {
  std::string part;  // "build", "machine", "cpu", "cuda"
  std::string name;
  Verdict verdict = Verdict::Pass;
  std::string detail;  // figures, or why it failed or was skipped
  friend bool operator==(const Row&, const Row&) = default;
};

// How a check ended.
struct Outcome {
  Verdict verdict = Verdict::Pass;
  std::string detail;
};
inline Outcome pass(std::string detail) { return {Verdict::Pass, std::move(detail)}; }
inline Outcome fail(std::string detail) { return {Verdict::Fail, std::move(detail)}; }
inline Outcome known(std::string fault) { return {Verdict::Known, std::move(fault)}; }
inline Outcome skipped(std::string why) { return {Verdict::Skipped, std::move(why)}; }

struct Title {
  std::string part;
  std::string name;
};
Row row_of(const Title& title, const std::function<Outcome()>& check);
void append(std::vector<Row>& rows, std::vector<Row> more);

struct Counts {
  int passed = 0, failed = 0, skipped = 0, known = 0;
};
Counts count(const std::vector<Row>& rows);

}  // namespace dovetail::exec::selftest
