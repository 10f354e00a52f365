// A model's layers converted into a folder that a checkpoint can be opened from (converted.md).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/control.h"
#include "base/platform.h"
#include "base/result.h"
#include "model/checkpoint.h"
#include "run/context/context.h"

namespace moe::model {

struct FolderOptions {
  const Platform* platform = nullptr;      // nullptr: the configs'
  std::string_view patch = {};             // of every config; ""
  std::span<const std::int64_t> layers{};  // empty: all that have experts
  bool allow_fallback = false;
  bool verify = false;  // files that are there are compared byte for byte with their hashes
};

// Whole layers or none: after a failure, a cancel or a kill the layers that were complete are there and stay. One
// packed layer at a time is in memory. busy: another writer has the folder; config_mismatch: it holds another source,
// cut, platform or layout.
Check convert_folder(const Checkpoint& checkpoint, const std::string& path, const FolderOptions& options,
                     const std::shared_ptr<Context>& context, Control* control);

}  // namespace moe::model
