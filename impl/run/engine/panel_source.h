// Weights that lie in another layout than the kernel's: panels are made when an item of work needs them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layouts/layout.h"

namespace moe::run {

class PanelSource {
 public:
  virtual ~PanelSource() = default;
  virtual const Layout& layout() const = 0;  // of the panels; no activation order
  // Memory of all bays.
  virtual std::uint64_t bytes() const = 0;
  // Takes a place for panels for this thread alone, and waits until one is free. Holders never wait, so one becomes
  // free.
  virtual int take_bay() const = 0;
  virtual void give_bay(int bay) const = 0;
  // Panels [first, first + count) of an expert's matrix in a bay, until it makes others; kCallPanels at most.
  virtual const std::byte* make(int bay, Which which, std::int64_t local, std::int64_t first,
                                std::int64_t count) const = 0;
};

// An item's bay; none without a source.
class PanelBay {
 public:
  explicit PanelBay(const PanelSource* source) : source_(source), bay_(source == nullptr ? 0 : source->take_bay()) {}
  PanelBay(const PanelBay&) = delete;
  PanelBay& operator=(const PanelBay&) = delete;
  ~PanelBay() {
    if (source_ != nullptr) source_->give_bay(bay_);
  }
  const std::byte* make(Which which, std::int64_t local, std::int64_t first, std::int64_t count) const {
    return source_->make(bay_, which, local, first, count);
  }

 private:
  const PanelSource* source_;
  int bay_;
};

}  // namespace moe::run
