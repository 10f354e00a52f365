// Weights that lie in another layout than the kernel's: panels are made when an item of work needs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scheme/layout.h"

namespace moe {

class PanelSource {
 public:
  virtual ~PanelSource() = default;
  virtual const Layout& layout() const = 0;  // of the panels; no activation order
  // Memory of all rooms.
  virtual std::uint64_t bytes() const = 0;
  // A place for panels that nobody else has; waits for one. Holders wait for nothing, so one comes.
  virtual int take_room() const = 0;
  virtual void give_room(int room) const = 0;
  // Panels [first, first + count) of an expert's matrix in a room, until it makes others; kCallPanels at most.
  virtual const std::byte* make(int room, Matrix which, std::int64_t local, std::int64_t first,
                                std::int64_t count) const = 0;
};

// An item's room; none without a source.
class PanelRoom {
 public:
  explicit PanelRoom(const PanelSource* source) : source_(source), room_(source == nullptr ? 0 : source->take_room()) {}
  PanelRoom(const PanelRoom&) = delete;
  PanelRoom& operator=(const PanelRoom&) = delete;
  ~PanelRoom() {
    if (source_ != nullptr) source_->give_room(room_);
  }
  const std::byte* make(Matrix which, std::int64_t local, std::int64_t first, std::int64_t count) const {
    return source_->make(room_, which, local, first, count);
  }

 private:
  const PanelSource* source_;
  int room_;
};

}  // namespace moe
