// Shows how far long work is, on one changing line of a terminal or in lines of a log.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "cli/signals.h"
#include "cli/text.h"

namespace dovetail::cli {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kSilent = std::chrono::seconds(1);
constexpr Duration kBetweenInFiles = std::chrono::seconds(10);
constexpr Duration kBetween = std::chrono::milliseconds(200);
constexpr Duration kKnown =
    std::chrono::seconds(5);  // from then on an extrapolation means something
constexpr Duration kTooLong = std::chrono::hours(1);

}  // namespace

std::string about(Duration time) {
  const double seconds = to_us(time) / 1e6;
  if (seconds < 100) return fixed(std::max(1.0, seconds), 0) + " s";
  if (seconds < 6000) return fixed(seconds / 60, 0) + " min";
  return fixed(seconds / 3600, 1) + " h";
}

void require_patience(const std::string& command, Duration expected, bool yes) {
  if (yes || expected <= kTooLong) return;
  throw InputError(command + ": this would take about " + about(expected) +
                   " here; --yes does it all the same");
}

bool shows_progress() {
  const char* const given = std::getenv("DOVETAIL_PROGRESS");
  return given == nullptr || std::string_view(given) != "off";
}

Progress::Progress(std::string command, std::string unit, std::int64_t total, bool yes)
    : command_(std::move(command)),
      unit_(std::move(unit)),
      total_(total),
      yes_(yes),
      is_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(Clock::now()),
      shown_(start_) {}

Progress::~Progress() {
  if (has_line_) std::fputs("\r\x1b[K", stderr);
}

Duration Progress::elapsed() const { return Clock::now() - start_; }

Duration Progress::left() const {
  return items_ == 0 ? Duration{} : elapsed() / items_ * std::max<std::int64_t>(0, total_ - items_);
}

bool Progress::is_interrupted() const { return AsksBeforeEnding::is_asked(); }

void Progress::begin(const std::string& phase) {
  phase_ = phase;
  if (is_terminal_) return show();
  const Clock::time_point now = Clock::now();
  if (!shows_progress() || now - shown_ < kBetweenInFiles) return;
  shown_ = now;
  std::fprintf(stderr, "%s: %s (%lld of %lld %ss, %s so far)\n", command_.c_str(), phase.c_str(),
               static_cast<long long>(items_), static_cast<long long>(total_), unit_.c_str(),
               about(elapsed()).c_str());
}

bool Progress::done() {
  ++items_;
  if (elapsed() > kKnown) require_patience(command_, elapsed() + left(), yes_);
  if (is_terminal_) show();
  return !is_interrupted();
}

void Progress::show() {
  const Clock::time_point now = Clock::now();
  if (!shows_progress() || now - start_ < kSilent || now - shown_ < kBetween) return;
  shown_ = now;
  has_line_ = true;
  const std::string time = items_ == 0 ? "" : ", about " + about(left()) + " left";
  std::fprintf(stderr, "\r\x1b[K%s: %s: %lld of %lld %ss%s", command_.c_str(), phase_.c_str(),
               static_cast<long long>(items_), static_cast<long long>(total_), unit_.c_str(),
               time.c_str());
  std::fflush(stderr);
}

}  // namespace dovetail::cli
