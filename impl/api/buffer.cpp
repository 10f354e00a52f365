// Owned bytes and text: moe_buffer_*.
#include <bit>

#include "api/entry.h"
#include "base/text.h"

using moe::api::OwnedBytes;

moe_status moe_buffer_create(size_t size, size_t alignment, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"out", out}}));
    if (alignment != 0 && !std::has_single_bit(alignment))
      return fail(Code::invalid_argument, "alignment", cat("alignment: must be a power of two or 0, got ", alignment));
    constexpr size_t least = 64;
    MOE_TRY(moe::Buffer memory, moe::Buffer::create(size, alignment < least ? least : alignment));
    *out = make_handle<moe_buffer>(std::make_shared<OwnedBytes>(std::move(memory)));
    return ok();
  });
}

void* moe_buffer_data(const moe_buffer* buffer) {
  if (!is_live(buffer)) return nullptr;
  OwnedBytes& bytes = *buffer->object;
  if (auto* text = std::get_if<std::string>(&bytes)) return text->data();
  return std::get_if<moe::Buffer>(&bytes)->data();
}

size_t moe_buffer_size(const moe_buffer* buffer) {
  if (!is_live(buffer)) return 0;
  const OwnedBytes& bytes = *buffer->object;
  if (const auto* text = std::get_if<std::string>(&bytes)) return text->size();
  return std::get_if<moe::Buffer>(&bytes)->size();
}

void moe_buffer_destroy(moe_buffer* buffer) { end_handle(buffer); }
