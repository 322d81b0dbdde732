// Flags that several commands take, and how a command says what it does.
//
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <ostream>
#include <string>
#include <type_traits>

#include "cli/command_line.h"
#include "cli/document.h"
#include "cli/page.h"
#include "cli/text.h"

namespace dovetail::cli {

// --json, --csv, --markdown and -o of a command that reports.
void bind_document(CLI::App& command, DocumentOptions& document);

// -o and --json of a command that makes a file which others read; `what` names it: "cluster file".
struct Product {
  std::string& output;
  bool& json;
  const char* what;
  const char* otherwise;  // what happens without -o: "only print"; empty: said elsewhere
};
void bind_product(CLI::App& command, const Product& product);

// -o alone. The file /dev/stdout means -, which commands know: nothing else is printed then.
CLI::Option& bind_output(CLI::App& command, std::string& output, const std::string& text);

// --all and --notes; `rows` is what --all shows: "every row".
void bind_detail(CLI::App& command, Detail& detail, const std::string& rows);
// --notes alone.
void bind_notes(CLI::App& command, Detail& detail);

// --html
void bind_page(CLI::App& command, PageOptions& page);

// What the command does once the line is parsed: `run(options, out)`, whose result is the exit code
// (0 where it has none). `options` and `action` outlive the parser.
template <class Options, class Run>
void bind_action(CLI::App& command, const Options& options, Action& action, Run run) {
  command.callback([&options, &action, run] {
    action = [&options, run](std::ostream& out) {
      if constexpr (std::is_void_v<std::invoke_result_t<Run, const Options&, std::ostream&>>) {
        run(options, out);
        return 0;
      } else {
        return run(options, out);
      }
    };
  });
}

}  // namespace dovetail::cli
