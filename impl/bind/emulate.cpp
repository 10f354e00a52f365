// Weights of another engine's layout for the kernels of this host, in one of two ways: panel by panel when a call needs
// them, or repacked once, to run as fast as our own for the price of a second copy in memory. What backend, platform,
// policy or bytes they were made for does not matter; the numbers are what their layout says.
#include "bind/emulate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/index.h"
#include "base/json.h"
#include "base/tensor.h"
#include "base/text.h"
#include "bind/agree.h"
#include "layouts/p16/p16.h"
#include "layouts/repack.h"
#include "run/context/bays.h"
#include "run/engine/engine.h"

namespace moe::bind {
namespace {

// One of our int_wna16 layouts runs as it is.
bool is_ours(const Layout& l) { return l.kind == LayoutKind::p16_w4 || l.kind == LayoutKind::p16_w8; }

// A file's header may say other sizes than the config beside it; the engine relies on both. `layout`: one of ours.
Check check_sizes(const Layout& layout, const Config& c) {
  const Matrix &w13 = layout.w13, &w2 = layout.w2;
  const std::array found{std::int64_t{w13.halves}, w13.half_rows, w13.columns(), w2.half_rows, w2.columns()};
  const std::int64_t inter = c.intermediate_size_per_partition;
  const std::array expected{std::int64_t{is_gated(c.activation) ? 2 : 1}, inter, c.hidden_dim, c.hidden_dim, inter};
  if (found == expected) return ok();
  return fail(Code::config_mismatch, "layout",
              cat("packed: sizes of the layout (halves and rows of w13, its columns, rows and columns of w2): found ",
                  shape_text(found), ", the selection has ", shape_text(expected)),
              json::members("member", "layout"));
}

Result<std::shared_ptr<const Packed>> repack(const Packed& packed, const Layout& to,
                                             const std::shared_ptr<Context>& context) {
  PackedInfo info = packed.info;
  info.layout = to;
  info.layout_id = to.id();
  info.backend = "EMULATION";
  MOE_TRY(const std::uint64_t bytes, packed_block_bytes(info));
  auto buffer = std::make_shared<Buffer>();
  MOE_TRY(*buffer, Buffer::create(usize(bytes), kPackedAlignment, allocator_of(context.get()), context));
  const Parallel parallel = parallel_of(context.get());
  const std::span<std::byte> block = buffer->bytes();
  MOE_CHECK(repack_experts(packed.info.layout, packed.payload.data(), to,
                           block.subspan(packed_payload_offset(info), to.payload_bytes()), parallel));
  MOE_TRY(Packed sealed, seal_packed(info, block, parallel, "owned", buffer));
  return std::make_shared<const Packed>(std::move(sealed));
}

// Bays for as many items as run at once; calls at the same time share them.
class MadePanels final : public PanelSource {
 public:
  static Result<std::shared_ptr<const MadePanels>> create(std::shared_ptr<const Packed> packed, const Layout& to,
                                                          const std::shared_ptr<Context>& context) {
    const std::size_t count = usize(std::max(1, parallel_of(context.get()).num_threads));
    auto made = std::make_shared<MadePanels>(count);
    made->packed_ = std::move(packed);
    made->to_ = to;
    const std::size_t bytes = usize(kCallPanels) * std::max(P16{to.w13}.panel_bytes(), P16{to.w2}.panel_bytes());
    for (Bay& bay : made->bays_) {
      bay.rows = panel_rows_for(to);
      MOE_TRY(bay.bytes, Buffer::create(bytes, kPackedAlignment, allocator_of(context.get()), context));
    }
    return std::shared_ptr<const MadePanels>(std::move(made));
  }
  explicit MadePanels(std::size_t bays) : free_(bays), bays_(bays) {}
  const Layout& layout() const override { return to_; }
  std::uint64_t bytes() const override {
    std::uint64_t sum = 0;
    for (const Bay& bay : bays_) sum += bay.bytes.size() + bay.rows.bytes();
    return sum;
  }
  int take_bay() const override { return static_cast<int>(free_.take()); }
  void give_bay(int bay) const override { free_.give(usize(bay)); }
  const std::byte* make(int number, Which which, std::int64_t local, std::int64_t first,
                        std::int64_t count) const override {
    Bay& bay = at(bays_, number);
    repack_panels(packed_->info.layout, packed_->payload.data(), to_, which, local, first, count, bay.rows,
                  bay.bytes.data());
    return bay.bytes.data();
  }

 private:
  struct Bay {
    CanonicalRows rows;
    Buffer bytes;
  };
  std::shared_ptr<const Packed> packed_;
  Layout to_;
  mutable Bays free_;
  mutable std::vector<Bay> bays_;
};

// Weights in another engine's layout, brought into one of ours.
Check bring_here(const std::shared_ptr<const Packed>& packed, const Config& config,
                 const std::shared_ptr<Context>& context, Emulated& e) {
  const Layout& from = packed->info.layout;
  std::optional<Layout> to = repacked_layout(from);
  if (!to)
    return fail(
        Code::unsupported, "packed",
        cat("packed: layout ", packed->info.layout_id, " is none of int4 or int8 weights with 16-bit activations"));
  MOE_CHECK(check_sizes(*to, config));
  // As vLLM's classes of these names do. Lists of columns need the whole matrix.
  if (config.emulation_layout == EmulationLayout::on_the_fly && !to->w13.has_order) {
    MOE_TRY(e.panels, MadePanels::create(packed, *to, context));
    return ok();
  }
  auto weights = repack(*packed, *to, context);
  if (!weights && weights.error().code == Code::unsupported && to->w13.has_order) {
    to = repacked_layout(from, true);
    weights = repack(*packed, *to, context);
  }
  MOE_TRY(e.weights, std::move(weights));
  return ok();
}

}  // namespace

bool is_emulation(const Selection& s) {
  return s.platform.type == DeviceType::cpu && s.backend_name() == "EMULATION" && !s.kernel;
}

Result<Emulated> emulate(const std::shared_ptr<const Packed>& packed, const Selection& selection,
                         const std::shared_ptr<Context>& context, const Machine& machine) {
  MOE_CHECK(check_same_model(*packed, selection));
  const Config& config = *selection.config;
  Emulated e{.weights = packed};
  if (is_ours(packed->info.layout))
    MOE_CHECK(check_sizes(packed->info.layout, config));
  else
    MOE_CHECK(bring_here(packed, config, context, e));
  const Layout& layout = e.panels ? e.panels->layout() : e.weights->info.layout;
  e.kernel = kernel_here(config, layout, machine);
  if (e.kernel == nullptr)
    return fail(Code::unsupported, "packed",
                "packed: this host has no kernel that multiplies activations of in_dtype with layout " + layout.id());
  return e;
}

}  // namespace moe::bind
