// The progress of a long call: a line that rewrites itself on a terminal, a line for each layer in a pipe.
#pragma once
#include <string>

#include "tool/session.h"

namespace moe_tool {

class Bar {
 public:
  Bar(const Session& session, std::string what);
  ~Bar();
  Bar(const Bar&) = delete;
  Bar& operator=(const Bar&) = delete;

  // A control for the call that is to be shown.
  moe_control* control() const { return control_.get(); }
  // Takes the line away.
  void clear();

  // Layers that were converted; the others were there already.
  std::int64_t layers_converted() const { return layers_converted_; }

 private:
  static moe_status reported(void* user, std::uint64_t done, std::uint64_t total);
  void show(const moe_progress& progress);
  std::string line(const moe_progress& progress, double seconds) const;

  const Session& session_;
  std::string what_;
  ControlHandle control_;
  Interrupt interrupt_;
  double start_ = 0;
  double last_shown_ = -1;
  std::int64_t last_converted_ = -1;
  std::int64_t last_line_ = -1;
  std::int64_t layers_converted_ = 0;
  std::uint64_t first_byte_ = 0;  // of the first layer that had to be converted
  bool visible_ = false;
};

}  // namespace moe_tool
