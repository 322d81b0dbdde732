// Binds the flags that several commands take, so that they have one name and one help text
// everywhere.
//
// SPDX-License-Identifier: Apache-2.0
#include "cli/common_flags.h"

namespace dovetail::cli {

CLI::Option& bind_output(CLI::App& command, std::string& output, const std::string& text) {
  return *command.add_option_function<std::string>(
      "-o,--output",
      [&output](const std::string& given) { output = given == "/dev/stdout" ? "-" : given; }, text);
}

void bind_document(CLI::App& command, DocumentOptions& document) {
  command.add_flag("--json", document.json, "the report as JSON, instead of text");
  command.add_flag("--csv", document.csv, "its table as CSV, instead of text");
  command.add_flag("--markdown", document.markdown, "its table as Markdown, instead of text");
  bind_output(
      command, document.output,
      "file for the same JSON (NAME.csv: CSV, NAME.md: Markdown), beside the text; - is --json");
}

void bind_product(CLI::App& command, const Product& product) {
  const std::string otherwise = product.otherwise;
  bind_output(command, product.output,
              product.what +
                  (" to write" + (otherwise.empty() ? "" : " (default: " + otherwise + ")")) +
                  "; - for standard output");
  command.add_flag(
      "--json", product.json,
      std::string("the ") + product.what + " on standard output, instead of the report");
}

void bind_detail(CLI::App& command, Detail& detail, const std::string& rows) {
  command.add_flag("--all", detail.all, rows + ", not only those that matter most");
  bind_notes(command, detail);
}

void bind_notes(CLI::App& command, Detail& detail) {
  command.add_flag("--notes", detail.notes, "every note in full");
}

void bind_page(CLI::App& command, PageOptions& page) {
  command.add_option("--html", page.file, "report to write: one HTML file that needs no network")
      ->check([](const std::string& file) {
        return file == "-" ? "--html: name the file to write, e.g. page.html" : "";
      });
}

}  // namespace dovetail::cli
