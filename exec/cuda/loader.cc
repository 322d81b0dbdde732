// Finds and opens the CUDA module with dlopen, and tells a missing module, a missing library and a
// missing driver apart.
//
// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/loader.h"

#include "base/error.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace dovetail::exec::cuda {
namespace {

std::string last_dl_error() {
  const char* words = dlerror();
  return words == nullptr ? "unknown error" : words;
}

}  // namespace

ModulePlace module_place(const std::string& explicit_path) {
  ModulePlace place{.built = DOVETAIL_HAVE_CUDA != 0, .reason = DOVETAIL_CUDA_REASON, .path = {}};
  if (!explicit_path.empty()) {
    place.built = true;  // somebody else's build of it will do if its version is ours
    place.path = explicit_path;
    return place;
  }
  std::error_code none;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", none);
  place.path = (self.parent_path() / "libdovetail_cuda.so").string();
  const std::filesystem::path installed =
      self.parent_path().parent_path() / "lib" / "dovetail" / "libdovetail_cuda.so";
  if (!std::filesystem::exists(place.path, none) && std::filesystem::exists(installed, none)) {
    place.path = installed.string();
  }
  return place;
}

const Module& load_module(const ModulePlace& place) {
  if (!place.built) {
    throw DeviceError("the cuda backend is not part of this build: " + place.reason);
  }
  // Local: its copies of our own functions must not replace the tool's.
  void* library = dlopen(place.path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw DeviceError("the cuda module cannot be loaded: " + last_dl_error());
  }
  using Entry = const Module* (*)();
  // The only way from an object pointer to a function pointer that every compiler accepts.
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "dovetail_cuda_module"));
  if (entry == nullptr) {
    throw DeviceError("the cuda module cannot be loaded: " + last_dl_error());
  }
  const Module* module = entry();
  if (module->version != kModuleVersion) {
    throw DeviceError(place.path + " is of another build: interface version " +
                      std::to_string(module->version) + ", this tool has " +
                      std::to_string(kModuleVersion));
  }
  return *module;
}

void require_device(const Facts& facts) {
  if (facts.objection.empty()) return;
  throw DeviceError("the cuda backend finds no usable GPU: " + facts.objection);
}

}  // namespace dovetail::exec::cuda
