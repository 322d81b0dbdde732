// The extension of the Python package: a command line in, what the tool prints out, within this process.
//
//   _core.answer(["show", "clusters", "--json"])        the text that the tool would print
//   _core.nearest_word("clustr", ["cluster", "path"])   what is meant, as the tool's own sentences have it
//   _core.Evaluator().answer('{"workload": ...}')       a line of `dovetail evaluate`, which keeps what it loaded
//
// No logic: python/dovetail/ makes the words and reads the documents. Other threads of Python run meanwhile, and several may
// ask at once. Input that is wrong becomes _core.InputError, a ValueError, with the tool's own sentence; what fails of the
// machine _core.DeviceError, a RuntimeError; a failed check _core.InternalError, a RuntimeError, with the words that led to it.
//
// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <sstream>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "cli/dovetail.h"

namespace nb = nanobind;

namespace {

std::string answer(const std::vector<std::string>& words) {
  std::ostringstream out;
  static_cast<void>(dovetail::answer(words, out));
  return out.str();
}

}  // namespace

NB_MODULE(_core, module) {
  module.doc() = "The dovetail tool within this process.";
  nb::exception<dovetail::InputError>(module, "InputError", PyExc_ValueError);
  nb::exception<dovetail::DeviceError>(module, "DeviceError", PyExc_RuntimeError);
  nb::exception<dovetail::CheckError>(module, "InternalError", PyExc_RuntimeError);
  module.def("answer", &answer, nb::arg("words"), nb::call_guard<nb::gil_scoped_release>(),
             "What the tool prints for these words, those behind `dovetail` on a command line. "
             "Raises InputError with the tool's sentence, DeviceError and InternalError.");
  module.def(
      "nearest_word",
      [](const std::string& word, const std::vector<std::string>& candidates) {
        return dovetail::nearest_word(word, candidates);
      },
      nb::arg("word"), nb::arg("candidates"),
      "What is meant by a word that is none of these; \"\" where nothing is near.");
  nb::class_<dovetail::Evaluator>(module, "Evaluator", "Answers lines as `dovetail evaluate` does.")
      .def(nb::init<>())
      .def("answer", &dovetail::Evaluator::answer, nb::arg("line"),
           nb::call_guard<nb::gil_scoped_release>(),
           "The answer to a JSON line, as JSON; {\"error\": ...} for one that is wrong.");
}
