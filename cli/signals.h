// What Ctrl-C and SIGTERM do: end the program with a line, or, where long work has something to show, ask it to stop.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace dovetail::cli {

// From now on both end this program at once, with a line on standard error and 130 or 143, unless somebody has decided otherwise
// (nohup, a shell's background job).
void end_by_signals();

// How work is asked: by a flag that it looks at between items, or in its midst, too (base/interruption.h).
enum class Asks { BetweenItems, Anywhere };

// While it lives, a signal asks to stop instead of ending the program; the second one ends it. Within a program of somebody else
// that is Ctrl-C alone, and nothing where that program answers to it itself (Python, with this as a module).
class AsksBeforeEnding {
 public:
  explicit AsksBeforeEnding(Asks how);
  AsksBeforeEnding(const AsksBeforeEnding&) = delete;
  AsksBeforeEnding& operator=(const AsksBeforeEnding&) = delete;
  ~AsksBeforeEnding();
  // Of the last one that lived.
  [[nodiscard]] static bool is_asked();
  // What the program returns: 0, or 130 after Ctrl-C, 143 after SIGTERM.
  [[nodiscard]] static int exit_code();

 private:
  bool asks_ = false;   // false: nobody is asked
  bool takes_ = false;  // the handler is its own
};

}  // namespace dovetail::cli
