// Writes the manual page in roff from the same texts as --help.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/completion.h"

namespace dovetail::cli {
namespace {

// Text as roff takes it: no line begins with a request, and a dash is a dash.
std::string roff(const std::string& text) {
  std::string result;
  bool at_start = true;
  for (const char c : text) {
    if (at_start && (c == '.' || c == '\'')) result += "\\&";
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
    at_start = c == '\n';
  }
  return result;
}

std::string verbatim(const std::string& text) {
  return text.empty() ? "" : ".PP\n.nf\n" + roff(text) + "\n.fi\n";
}

std::string option_rows(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    if (command.name != "dovetail" && !option.names.empty() && option.names.back() == "--help") {
      continue;
    }
    text += ".TP\n";
    std::string names;
    for (const std::string& name : option.names) {
      names += (names.empty() ? "" : ", ") + std::string("\\fB") + roff(name) + "\\fR";
    }
    if (!option.word.empty()) {
      names += (names.empty() ? "" : " ") + std::string("\\fI") + roff(option.word) + "\\fR";
    }
    if (option.repeats) names += " ...";
    text += names + "\n" + roff(option.about) + (option.required ? " (required)" : "") + "\n";
  }
  return text;
}

std::string section(const CommandText& command) {
  std::string text = ".SS " + roff(command.name) + "\n" + roff(command.about) + ".\n";
  text += option_rows(command) + verbatim(command.more);
  for (const CommandText& sub : command.commands) text += section(sub);
  return text;
}

constexpr const char* kEnd = R"(.SH "EXIT STATUS"
.TP
.B 0
done
.TP
.B 2
the input is wrong; one line on standard error says which file, place and expectation, and nothing was written
.TP
.B 3
the machine failed, a reduced value was wrong, or a self\-test failed
.SH ENVIRONMENT
.TP
.B DOVETAIL_DATA
folder with workloads/ and clusters/, instead of the installed one
.TP
.B DOVETAIL_CUDA_MODULE
the CUDA module, instead of the one beside the tool
.TP
.B DOVETAIL_STORE
HOST:PORT where rank 0 listens
.TP
.B DOVETAIL_HEARTBEAT_TIMEOUT
how long a rank may be silent before it counts as dead; default: 5s
.TP
.B COLUMNS
width of lines; default: that of the terminal, else 80
.TP
.B NO_COLOR
set to anything: no colours on a terminal
)";

}  // namespace

std::string man_page(const CommandText& tool) {
  std::string text =
      ".\\\" Written by `dovetail completion man`.\n"
      ".TH DOVETAIL 1 \"\" \"dovetail " DOVETAIL_VERSION
      "\" \"User Commands\"\n"
      ".SH NAME\ndovetail \\- overlap of gradient communication and computation, predicted and "
      "run\n"
      ".SH SYNOPSIS\n.B dovetail\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n" +
      roff(tool.about) + "\n" + option_rows(tool) + verbatim(tool.more) + ".SH COMMANDS\n";
  for (const CommandText& command : tool.commands) text += section(command);
  return text + kEnd;
}

}  // namespace dovetail::cli
