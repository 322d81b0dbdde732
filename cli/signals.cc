// One handler for both ways; it writes, sets flags and ends the process, which is all that a handler may do.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/signals.h"

#include <unistd.h>
#include <csignal>

#include <cstdlib>
#include <string_view>

#include "base/interruption.h"

namespace dovetail::cli {
namespace {

enum State : int { EndsAtOnce, AsksBetweenItems, AsksAnywhere };
volatile std::sig_atomic_t signal_state = EndsAtOnce;
volatile std::sig_atomic_t signal_taken = 0;  // the signal

void say(std::string_view text) {
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
}

// Work looks many times a second; what does not, somewhere, is ended all the same.
constexpr unsigned kPatience = 5;  // seconds
volatile std::sig_atomic_t ends_late_work = 0;

extern "C" void end_late_work(int /*signal*/) {
  say("\ndovetail: interrupted\n");
  ::_exit(128 + signal_taken);
}

extern "C" void take_signal(int signal) {
  if (signal_state == EndsAtOnce || signal_taken != 0) {
    say("\ndovetail: interrupted\n");
    ::_exit(128 + signal);
  }
  signal_taken = signal;
  if (signal_state == AsksAnywhere && ends_late_work != 0) static_cast<void>(::alarm(kPatience));
  if (signal_state == AsksAnywhere) interrupts_work = true;
  say("\ndovetail: stopping; what was found so far follows (again: end at once)\n");
}

// The handler, in place of the system's; false where somebody has one already, or ignores the signal.
bool take(int signal) {
  struct sigaction now {};
  if (::sigaction(signal, nullptr, &now) != 0 || (now.sa_flags & SA_SIGINFO) != 0) return false;
  if (now.sa_handler != SIG_DFL) return false;
  static_cast<void>(std::signal(signal, take_signal));
  return true;
}

bool is_taken(int signal) {
  struct sigaction now {};
  return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == take_signal;
}

}  // namespace

void end_by_signals() {
  static_cast<void>(take(SIGINT));
  static_cast<void>(take(SIGTERM));
  static_cast<void>(std::signal(SIGALRM, end_late_work));
  ends_late_work = 1;
}

AsksBeforeEnding::AsksBeforeEnding(Asks how) {
  if (signal_state != EndsAtOnce) return;  // another thread's
  takes_ = take(SIGINT);
  asks_ = takes_ || is_taken(SIGINT) || is_taken(SIGTERM);
  if (!asks_) return;
  signal_taken = 0;
  signal_state = how == Asks::Anywhere ? AsksAnywhere : AsksBetweenItems;
}

AsksBeforeEnding::~AsksBeforeEnding() {
  if (!asks_) return;
  if (takes_) static_cast<void>(std::signal(SIGINT, SIG_DFL));
  interrupts_work = false;
  if (ends_late_work != 0) static_cast<void>(::alarm(0));
  signal_state = EndsAtOnce;
}

bool AsksBeforeEnding::is_asked() { return signal_taken != 0; }
int AsksBeforeEnding::exit_code() { return signal_taken == 0 ? 0 : 128 + signal_taken; }

}  // namespace dovetail::cli
