// A file that gets its name only when it is complete. It is written in the same folder under a temporary name, then
// renamed. If an error or a kill ends the writing before that, the old file is unchanged.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/os/file.h"
#include "base/result.h"

namespace moe {

class NewFile {
 public:
  // For a file, whose links are followed. What is there keeps its mode and access list, and its owner and group as far
  // as this process may give them. Anything but a regular file is refused before a file is made.
  static Result<NewFile> create(const FileName& file);
  NewFile(NewFile&&) noexcept = default;
  NewFile& operator=(NewFile&&) = delete;
  ~NewFile();  // nothing is left without commit()

  Check write(std::span<const std::byte> bytes);
  Check commit();  // on the disk first, then under its name

 private:
  NewFile(const std::string& path, Fd folder, std::string name)
      : path_(path), folder_(std::move(folder)), name_(std::move(name)) {}
  Check open_temporary(unsigned mode);
  void remove();  // what is not under its name

  std::string path_;       // as the caller said it, for messages
  Fd folder_;              // for its names only: needs no right to read (O_PATH)
  std::string name_;       // in the folder
  std::string temporary_;  // the same, until it is renamed
  Fd fd_;
};

}  // namespace moe
