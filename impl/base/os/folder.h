// Folders: made, and held by one writer at a time.
#pragma once

#include <string>

#include "base/os/file.h"
#include "base/result.h"

namespace moe {

// Makes a folder unless it is there; its parent must be.
Check make_folder(const std::string& path);

// A lock of a folder among processes and threads (flock on a file in it, which stays): one holds it, another gets
// Code::busy. It ends with its holder, also when that is killed.
class FolderLock {
 public:
  static Result<FolderLock> take(const std::string& folder, const std::string& name);

 private:
  explicit FolderLock(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace moe
