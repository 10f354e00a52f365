// Progress counters, and the failure of a progress callback. See control.h.
#include "base/control.h"

#include <algorithm>

#include "base/json.h"

namespace moe {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

void raise_to(std::atomic<std::uint64_t>& counter, std::uint64_t value) {
  std::uint64_t seen = counter.load(kRelaxed);
  while (seen < value && !counter.compare_exchange_weak(seen, value, kRelaxed)) {
  }
}

// done of total units, in bytes.
std::uint64_t share(std::uint64_t bytes, std::uint64_t done, std::uint64_t total) {
  if (total == 0) return 0;
  if (done >= total) return bytes;
  const double part = static_cast<double>(done) / static_cast<double>(total);
  return std::min(bytes, static_cast<std::uint64_t>(static_cast<double>(bytes) * part));
}

}  // namespace

Progress Control::state() const {
  Progress p;
  p.phase = phase_.load(std::memory_order_acquire);  // first: what begin_call and begin_phase stored before it
  p.unit = unit_.load(kRelaxed);
  p.done = done();
  p.total = total();
  p.layer = layer_.load(kRelaxed);
  p.layers_done = layers_done_.load(kRelaxed);
  p.layers_total = layers_total_.load(kRelaxed);
  p.bytes_done = bytes_done_.load(kRelaxed);
  p.bytes_total = std::max(p.bytes_done, bytes_total_.load(kRelaxed));
  return p;
}

void Control::begin_call(std::uint64_t bytes, std::int64_t layers) {
  phase_.store(Phase::none, kRelaxed);
  unit_.store(Unit::none, kRelaxed);
  layer_.store(-1, kRelaxed);
  layers_done_.store(0, kRelaxed);
  layers_total_.store(layers, kRelaxed);
  done_.store(0, kRelaxed);
  total_.store(0, kRelaxed);
  for (std::atomic<std::uint64_t>* counter : {&bytes_done_, &bytes_before_, &phase_bytes_}) counter->store(0, kRelaxed);
  bytes_total_.store(bytes, kRelaxed);
}

void Control::begin_phase(Phase phase, Unit unit, std::uint64_t bytes) {
  const std::uint64_t before = bytes_before_.load(kRelaxed) + phase_bytes_.load(kRelaxed);
  bytes_before_.store(before, kRelaxed);
  phase_bytes_.store(bytes, kRelaxed);
  raise_to(bytes_done_, before);
  raise_to(bytes_total_, before + bytes);
  done_.store(0, kRelaxed);
  total_.store(0, kRelaxed);
  unit_.store(unit, kRelaxed);
  phase_.store(phase, std::memory_order_release);
}

void Control::note(std::uint64_t done, std::uint64_t total) {
  count(done, total);
  raise_to(bytes_done_, bytes_before_.load(kRelaxed) + share(phase_bytes_.load(kRelaxed), done, total));
}

void Control::count(std::uint64_t done, std::uint64_t total) {
  done_.store(done, kRelaxed);
  total_.store(total, kRelaxed);
}

Check Control::ask(std::uint64_t done, std::uint64_t total) {
  if (cancelled()) return fail(Code::cancelled, "control", "control: the call was cancelled");
  if (progress_ == nullptr || total == 0) return ok();
  const std::int32_t s = progress_(user_, done, total);
  if (s == 0) return ok();
  cancel();
  if (s == static_cast<std::int32_t>(Code::cancelled))
    return fail(Code::cancelled, "control", "control: the progress callback cancelled the call");
  return callback_failed(s);
}

Check Control::report(std::uint64_t done, std::uint64_t total) {
  if (total != 0) note(done, total);
  return ask(done, total);
}

Check Control::report_callers(std::uint64_t done, std::uint64_t total) {
  if (total != 0) count(done, total);
  return ask(done, total);
}

Error Control::callback_failed(std::int32_t status) {
  const std::string cause = json::Writer().begin_object().member("status", status).end_object().take();
  return fail(Code::callback, "progress", cat("the progress callback failed with status ", status),
              json::members("cause", json::Text{cause}));
}

}  // namespace moe
