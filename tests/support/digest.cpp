// Reading digests and comparing bytes with them. See digest.h.
#include "support/digest.h"
#include "support/rooms.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "support/sha256.h"

namespace moe::test {
namespace {

constexpr std::size_t kProbeBytes = 8;

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte b : bytes)
    for (const unsigned digit : {std::to_integer<unsigned>(b) >> 4, std::to_integer<unsigned>(b) & 15u})
      text += "0123456789abcdef"[digit];
  return text;
}

std::string sizes(std::size_t got, std::size_t want) {
  return std::to_string(got) + " bytes instead of " + std::to_string(want);
}

}  // namespace

Digest parse_digest(const std::string& text) {
  const auto expect = [&](bool good) {
    if (!good) throw std::runtime_error("not a digest: " + text);
  };
  Digest d;
  std::istringstream words(text);
  std::string dtype, shape, word;
  expect(static_cast<bool>(words >> dtype >> shape >> d.sha256));
  d.dtype = dtype_from_safetensors(dtype);
  std::istringstream numbers(shape);
  for (std::string n; std::getline(numbers, n, 'x');) d.shape.push_back(std::stoll(n));
  d.size = static_cast<std::size_t>(dtype_bits(d.dtype)) / 8;
  for (const std::int64_t n : d.shape) d.size *= static_cast<std::size_t>(n);
  expect(d.dtype != DType::invalid && d.sha256.size() == 64 && d.size >= kProbeBytes);
  while (words >> word) {
    const std::size_t at = word.find('=');
    expect(at != std::string::npos && word.size() == at + 1 + 2 * kProbeBytes);
    d.probes.push_back({std::stoull(word.substr(0, at)), word.substr(at + 1)});
    expect(d.probes.back().offset <= d.size - kProbeBytes);
  }
  expect(d.probes.size() > 1 && d.probes.front().offset == 0 && d.probes.back().offset == d.size - kProbeBytes);
  return d;
}

std::string difference(const Digest& want, std::span<const std::byte> got) {
  if (got.size() != want.size) return sizes(got.size(), want.size);
  std::string text;
  std::size_t number = 0, count = 0;
  for (const Digest::Probe& p : want.probes) {
    ++number;
    const std::string bytes = hex(got.subspan(p.offset, kProbeBytes));
    if (bytes == p.bytes) continue;
    if (count++ < 3)
      text += "probe " + std::to_string(number) + ": at byte " + std::to_string(p.offset) + " there is " + bytes +
              " instead of " + p.bytes + "; ";
  }
  const std::string hash = sha256(got);
  const std::string of = std::to_string(count) + " of " + std::to_string(want.probes.size()) + " probes differ";
  if (hash == want.sha256) return count == 0 ? "" : text + of + ", but not the SHA-256: the file's probes are wrong";
  if (count != 0) return text + of;
  return "all " + std::to_string(want.probes.size()) + " probes agree, but the SHA-256 is " + hash + " instead of " +
         want.sha256;
}

std::string difference(std::span<const std::byte> want, std::span<const std::byte> got) {
  if (got.size() != want.size()) return sizes(got.size(), want.size());
  const auto [a, b] = std::mismatch(got.begin(), got.end(), want.begin());
  if (a == got.end()) return "";
  const auto at = static_cast<std::size_t>(a - got.begin());
  const std::size_t count = std::min(kProbeBytes, got.size() - at);
  return "at byte " + std::to_string(at) + " there is " + hex(got.subspan(at, count)) + " instead of " +
         hex(want.subspan(at, count));
}

}  // namespace moe::test
