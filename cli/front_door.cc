// The tool as a function: a command line in, an exit code out.
//
//   0  done      2  the input is wrong      3  the machine failed, or values were wrong      70  dovetail is wrong
//   130  Ctrl-C      143  SIGTERM
//
// Binds flags to each subcommand's options, calls it, and turns errors into exit codes. The only place that
// catches exceptions of the program, but for those of a line that evaluate is asked. What it reads from the environment:
// cli/environment.h.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/front_door.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/interruption.h"
#include "cli/command_line.h"
#include "cli/command_text.h"
#include "cli/completion.h"
#include "cli/document.h"
#include "cli/environment.h"
#include "cli/export_flags.h"
#include "cli/fault.h"
#include "cli/import_flags.h"
#include "cli/machine_flags.h"
#include "cli/page.h"
#include "cli/report_flags.h"
#include "cli/show_flags.h"
#include "cli/signals.h"
#include "cli/simulate_flags.h"
#include "cli/tool_facts.h"
#include "cli/trace_flags.h"
#include "recordings/guess.h"

namespace dovetail::cli {
namespace {

// All options of all subcommands, alive while the parser writes to them.
struct AllOptions {
  SimulateOptions simulate;
  MachineOptions machine;
  ExportCommandOptions export_plan;
  ImportOptions imports;
  LookOptions look;
  DiagnoseOptions diagnose;
  ReportOptions report;
  std::vector<std::string> help_of;
  std::string shell;
  bool needs_data = true;  // of the command that was typed
  bool version_json = false;
};

constexpr const char* kExamples =
    "Examples:\n"
    "  dovetail explore --workload resnet50 --cluster a100x8\n"
    "  dovetail diagnose rank*.json.gz\n"
    "  dovetail plan --workload resnet50 --cluster a100x8 -o plan.json\n"
    "  dovetail export plan.json --to torch -o ddp_plan.py\n"
    "  dovetail show clusters\n\n"
    "dovetail help COMMAND lists options and more examples. Exit codes: 0 done,\n"
    "2 the input is wrong, 3 the machine failed or a value was wrong, 70 dovetail is.";

// The command that words name: "import", "kineto". Throws InputError.
const CLI::App& named_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* at = &app;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto subs = at->get_subcommands({});
    const auto found = std::ranges::find(subs, words[i], &CLI::App::get_name);
    if (found == subs.end()) {
      const std::vector<std::string> rest(words.begin() + static_cast<std::ptrdiff_t>(i),
                                          words.end());
      throw InputError("help: " + refusal(*at, rest, CLI::ParseError("unknown", 0)));
    }
    at = *found;
  }
  return *at;
}

std::string full_name(const std::vector<std::string>& words) {
  std::string name = "dovetail";
  for (const std::string& word : words) name += " " + word;
  return name;
}

void bind_texts(CLI::App& app, AllOptions& options, Action& action) {
  CLI::App& help = *app.add_subcommand("help", "what a command does, its options and examples");
  help.add_option("command", options.help_of, "the command; none: all of them");
  help.callback([&app, &options, &action] {
    action = [&app, &options](std::ostream& out) {
      const CLI::App& command = named_command(app, options.help_of);
      out << help_text(describe(command, full_name(options.help_of)), text_width());
      return 0;
    };
    options.needs_data = false;
  });
  CLI::App& version = *app.add_subcommand("version", "which dovetail this is");
  version.add_flag("--json", options.version_json, "the same as JSON");
  version.callback([&options, &action] {
    options.needs_data = false;
    action = [&options](std::ostream& out) {
      if (options.version_json) {
        out << with_tool("{\n \"schema\": \"dovetail.version/1\",\n \"kind\": \"version\"\n}\n");
      } else {
        out << "dovetail " << tool_text() << '\n';
      }
      return 0;
    };
  });
  CLI::App& completion =
      *app.add_subcommand("completion", "completions of a shell, or the manual page");
  completion.add_option("shell", options.shell, "bash, zsh, fish or man")->required();
  completion.footer(
      "Examples:\n"
      "  dovetail completion bash > ~/.local/share/bash-completion/completions/dovetail\n"
      "  dovetail completion zsh > ~/.zfunc/_dovetail\n"
      "  dovetail completion fish > ~/.config/fish/completions/dovetail.fish\n"
      "  dovetail completion man > ~/.local/share/man/man1/dovetail.1");
  completion.callback([&app, &options, &action] {
    action = [&app, &options](std::ostream& out) {
      out << completion_text(options.shell, describe(app, "dovetail"), data_dir());
      return 0;
    };
  });
}

void bind_all(CLI::App& app, AllOptions& options, Action& action) {
  app.set_help_flag("-h,--help", "this text");
  app.set_version_flag("-V,--version", "dovetail " + tool_text(), "version, commit, compiler");
  app.require_subcommand(1);
  app.formatter_fn([](const CLI::App* command, const std::string& name, CLI::AppFormatMode) {
    return help_text(describe(*command, name), text_width());
  });
  bind_simulate_commands(app, options.simulate, action);
  bind_machine_commands(app, options.machine, action);
  bind_export(app, data_dir(), options.export_plan, action);
  bind_import(app, data_dir(), options.imports, action);
  bind_show_commands(app, options.look, action);
  bind_diagnose(app, options.diagnose, action);
  bind_report(app, data_dir(), options.report, action);
  bind_texts(app, options, action);
  app.footer(kExamples);  // after all others, which would take it over
}

// `import FILE`, where the format of the file can be told, is `import FORMAT FILE`.
std::vector<std::string> with_format(std::vector<std::string> words) {
  if (words.size() < 2 || words.front() != "import" || words[1].starts_with('-')) return words;
  if (word_to<imports::Format>(words[1])) return words;
  const auto format = imports::guess_format_of_file(words[1]);
  if (format) words.insert(words.begin() + 1, std::string(to_string(*format)));
  return words;
}

// The words of a command line, those of the program's name aside.
std::vector<std::string> words_of(int argc, const char* const* argv) {
  return {argv + std::min(argc, 1), argv + argc};
}

// Throws what parsing and the command throw.
int parse_and_run(int argc, const char* const* argv, std::ostream& out) {
  CLI::App app("Predicts and measures how gradient communication hides behind backward.",
               "dovetail");
  AllOptions options;
  Action action;
  bind_all(app, options, action);
  const std::vector<std::string> words = words_of(argc, argv);
  if (words.empty()) {
    out << app.help();
    return 0;
  }
  try {
    std::vector<std::string> said = with_format(words);
    std::ranges::reverse(said);  // as CLI11 takes them
    app.parse(std::move(said));
  } catch (const CLI::Success& success) {
    return app.exit(success, out, out);
  } catch (const CLI::ParseError& error) {
    throw InputError(refusal(app, words, error));
  }
  for (PageOptions* const page :
       {&options.simulate.explore.page, &options.simulate.plan.page, &options.simulate.predict.page,
        &options.machine.run.page, &options.simulate.compare.page, &options.diagnose.page,
        &options.report.page}) {
    page->command = "dovetail " + typed(words);
  }
  if (options.needs_data) check_environment();
  return action(out);
}

// Their processes and threads end in ways of their own (exec/launch/monitor.h).
bool runs_ranks(const std::vector<std::string>& words) {
  constexpr std::array<std::string_view, 3> kCommands = {"run", "calibrate", "selftest"};
  return !words.empty() && std::ranges::find(kCommands, words.front()) != kCommands.end();
}

}  // namespace

int answer(int argc, char** argv) {
  if (!runs_ranks(words_of(argc, argv))) end_by_signals();
  try {
    const int code = parse_and_run(argc, argv, std::cout);
    std::cout.flush();
    if (!std::cout) throw InputError("standard output: cannot be written");
    return code;
  } catch (const Interrupted&) {
    std::cout.flush();
    std::fputs("dovetail: interrupted\n", stderr);
    return AsksBeforeEnding::exit_code();
  } catch (const InputError& error) {
    std::fprintf(stderr, "dovetail: %s\n", error.what());
    return 2;
  } catch (const DeviceError& error) {
    std::fprintf(stderr, "dovetail: %s\n", error.what());
    // A thread may be left behind in a library that hangs; destroying what it uses could crash.
    std::fflush(nullptr);
    std::_Exit(3);
  } catch (const std::exception& error) {  // a CheckError, or no memory
    std::cout.flush();
    std::fprintf(stderr, "dovetail: %s\ndovetail: %s: dovetail %s\n", error.what(), kFault,
                 typed(words_of(argc, argv)).c_str());
    std::fflush(nullptr);
    std::_Exit(kFaultCode);  // likewise
  }
}

int answer(const std::vector<std::string>& words, std::ostream& out) {
  std::vector<const char*> argv = {"dovetail"};
  for (const std::string& word : words) argv.push_back(word.c_str());
  argv.push_back(nullptr);
  try {
    return parse_and_run(static_cast<int>(words.size()) + 1, argv.data(), out);
  } catch (const Interrupted&) {
    return AsksBeforeEnding::exit_code();
  } catch (const CheckError& error) {
    throw CheckError(std::string(error.what()) + "; " + kFault + ": dovetail " + typed(words));
  }
}

}  // namespace dovetail::cli
