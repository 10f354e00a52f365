// Folders: made, and held by one writer at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/os/file.h"
#include "base/result.h"

namespace moe {

// Makes a folder unless it is there; its parent must be.
Check make_folder(const std::string& path);

// A lock of a folder among processes and threads (flock on a file in it, which stays): one holds it, another gets
// Code::busy. It ends with its holder, also when that is killed, and not with a child of its holder.
//
// A file system that cannot be written has no writers and needs no lock.
class FolderLock {
 public:
  static Result<FolderLock> take(const Folder& folder, std::string_view name);
  FolderLock(FolderLock&&) noexcept = default;
  FolderLock& operator=(FolderLock&&) = delete;
  ~FolderLock();

  // An error where the folder or the lock's file was removed: another writer may then hold a lock of that name.
  Check still_there(const Folder& folder, std::string_view name) const;

 private:
  explicit FolderLock(Fd fd);
  Fd fd_;
  std::int64_t process_;  // that took it
};

}  // namespace moe
