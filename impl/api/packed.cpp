// Converted weights: moe_packed_*.
#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/entry.h"
#include "api/load_flags.h"
#include "base/buffer.h"
#include "base/index.h"
#include "base/number_at.h"
#include "base/text.h"
#include "layouts/dequantize.h"
#include "layouts/families.h"
#include "scheme/roles.h"

namespace {

// Place of one of the model's experts in [E, ...].
Result<std::int64_t> local_index(const moe::io::Packed& packed, std::int64_t expert) {
  const auto& held = packed.info.experts;
  const auto it = std::find(held.begin(), held.end(), expert);
  if (it == held.end())
    return fail(Code::invalid_argument, "expert",
                cat("expert: ", expert, " is none of the ", held.size(), " experts held here"));
  return it - held.begin();
}

// A blob is also found by the role of its weights.
Result<const moe::io::NamedOutput*> find_output(const moe::io::Packed& packed, const char* role) {
  const auto weight = moe::role_from_name(role);
  const std::string_view blob = weight == moe::Role::w13_weight  ? "w13_packed"
                                : weight == moe::Role::w2_weight ? "w2_packed"
                                                                 : std::string_view();
  const moe::LayoutFamily* family = moe::layout_family(packed.info.layout.kind);
  const std::string_view part = family != nullptr ? family->parts.name_of(role) : std::string_view();
  for (const std::string_view name : {std::string_view(role), blob, part})
    for (const moe::io::NamedOutput& o : packed.outputs)
      if (o.name == name) return &o;
  if (!part.empty())
    return fail(Code::missing_weight, "role",
                cat("role: layout ", packed.info.layout_id, " has no ", part, " for this layer"));
  std::string known;
  for (const moe::io::NamedOutput& o : packed.outputs) known += (known.empty() ? "" : ", ") + o.name;
  return fail(
      Code::invalid_argument, "role",
      cat("role: no output ", moe::in_quotes(role), " in layout ", packed.info.layout_id, "; there are ", known));
}

// From the first to the last byte of an expert's part, or of what is shared.
size_t bytes_of_one(const moe::io::NamedOutput& o) {
  if (!o.own_strides.empty()) return o.expert_stride;
  return static_cast<size_t>(moe::tensor_nbytes(o.dtype, std::span(o.shape).subspan(o.shared ? 0 : 1)).value_or(0));
}

// The whole output [E, ...], experts at their stride.
TensorView view_of_output(const moe::io::Packed& packed, const moe::io::NamedOutput& o) {
  TensorView v;
  v.dtype = o.dtype;
  v.ndim = static_cast<int>(o.shape.size());
  std::copy(o.shape.begin(), o.shape.end(), v.shape.begin());
  const std::vector<std::int64_t> strides = o.strides();
  std::copy(strides.begin(), strides.end(), v.strides.begin());
  v.data = const_cast<std::byte*>(packed.payload.data()) + o.offset;
  const auto one = bytes_of_one(o);
  v.nbytes = o.shared ? one : o.shape[0] == 0 ? 0 : static_cast<size_t>(o.shape[0] - 1) * o.expert_stride + one;
  return v;
}

// Weights with the factors of their inputs in them, which is what the layer multiplies its input by.
Check effective_weights(const moe::io::Packed& p, std::int64_t local, moe::Which which, std::span<const float> factors,
                        const moe::TensorView& out) {
  const std::int64_t rows = out.shape[0], columns = out.shape[1], size = moe::dtype_bits(out.dtype) / 8;
  MOE_TRY(moe::Buffer plain, moe::Buffer::create(moe::usize(rows * columns * 4)));
  moe::TensorView view;
  view.dtype = moe::DType::f32;
  view.ndim = 2;
  view.shape = {rows, columns};
  view.strides = {columns, 1};
  view.data = plain.data();
  view.nbytes = plain.size();
  MOE_CHECK(moe::dequantize(p.info.layout, p.payload.data(), local, which, view));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c) {
      const float w = moe::load_float(moe::DType::f32, plain.data() + (r * columns + c) * 4);
      std::byte* to = out.data + (r * out.strides[0] + c * out.strides[1]) * size;
      moe::store_float(out.dtype, w * factors[moe::usize(c)], to);
    }
  return ok();
}

// What moe_packed_dequantize gives back of an expert.
struct DenseRole {
  moe::Role role;
  moe::Which which;
  bool bias;
};
constexpr DenseRole kDenseRoles[] = {{moe::Role::w13_weight, moe::Which::w13, false},
                                     {moe::Role::w2_weight, moe::Which::w2, false},
                                     {moe::Role::w13_bias, moe::Which::w13, true},
                                     {moe::Role::w2_bias, moe::Which::w2, true}};

Result<DenseRole> dense_role_of(const char* name, const moe::Layout& layout) {
  const auto role = moe::role_from_name(name);
  for (const DenseRole& row : kDenseRoles) {
    if (role != row.role) continue;
    if (!row.bias || layout.matrix(row.which).has_bias) return row;
    return fail(Code::invalid_argument, "role", cat("role: this layer has no biases, got ", moe::in_quotes(name)));
  }
  return fail(Code::invalid_argument, "role",
              "role: expected w13_weight, w2_weight, w13_bias or w2_bias, got " + moe::in_quotes(name));
}

moe_packed* packed_handle(moe::io::Packed packed) {
  return make_handle<moe_packed>(std::make_shared<const moe::io::Packed>(std::move(packed)));
}

}  // namespace

moe_status moe_packed_data(const moe_packed* packed, const void** data, uint64_t* size, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(data);
    clear(size);
    MOE_CHECK(not_null({{"packed", packed}, {"data", data}, {"size", size}}));
    MOE_CHECK(check_handle(packed, "packed"));
    *data = packed->object->block.data();
    *size = packed->object->block.size();
    return ok();
  });
}

moe_status moe_packed_get(const moe_packed* packed, const char* role, int64_t expert, moe_tensor* out,
                          moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"packed", packed}, {"role", role}, {"out", out}}));
    MOE_CHECK(check_struct_size(out, "out"));
    MOE_CHECK(check_handle(packed, "packed"));
    const moe::io::Packed& p = *packed->object;
    MOE_TRY(const moe::io::NamedOutput* output, find_output(p, role));
    TensorView view = view_of_output(p, *output);
    if (expert != -1 && output->shared)
      return fail(Code::invalid_argument, "expert",
                  cat("expert: ", role, " is one tensor for all experts; expected -1, got ", expert));
    if (expert != -1) {
      MOE_TRY(const std::int64_t local, local_index(p, expert));
      view = moe::slice0(view, local);
      view.nbytes = bytes_of_one(*output);
    }
    write_struct(out, tensor_of(view));
    return ok();
  });
}

moe_status moe_packed_to_json(const moe_packed* packed, moe_buffer** out, moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"packed", packed}, {"out", out}}));
    MOE_CHECK(check_handle(packed, "packed"));
    *out = make_text(packed->object->to_json());
    return ok();
  });
}

moe_status moe_packed_dequantize(const moe_packed* packed, const char* role, int64_t expert, const moe_tensor* out,
                                 moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"packed", packed}, {"role", role}, {"out", out}}));
    moe::api::TensorParam param[] = {
        {.name = "out", .given = out, .dtypes = moe::api::kFloats, .ndim = 2, .letters = "[N, K]", .writable = true}};
    MOE_CHECK(moe::api::read_structs(param));
    MOE_CHECK(check_handle(packed, "packed"));
    const moe::io::Packed& p = *packed->object;
    MOE_TRY(const DenseRole wanted, dense_role_of(role, p.info.layout));
    const moe::Matrix& m = p.info.layout.matrix(wanted.which);
    param[0].ndim = wanted.bias ? 1 : 2;
    param[0].letters = wanted.bias ? "[N]" : "[N, K]";
    param[0].shape = {m.rows(), m.columns()};
    MOE_CHECK(moe::api::check_tensors(param));
    MOE_TRY(const std::int64_t local, local_index(p, expert));
    if (moe::api::overlaps(param[0].view, p.block.data(), p.block.size()))
      return fail(Code::invalid_argument, "out", "out: shares memory with the packed weights");
    const std::vector<float>& factors = moe::at(p.info.input_factors, wanted.which);
    if (!wanted.bias && !factors.empty()) return effective_weights(p, local, wanted.which, factors, param[0].view);
    const auto read = wanted.bias ? moe::read_biases : moe::dequantize;
    return read(p.info.layout, p.payload.data(), local, wanted.which, param[0].view);
  });
}

moe_status moe_packed_save(const moe_packed* packed, const char* path, uint64_t flags, moe_control* control,
                           moe_error** err) {
  return guard(err, [&]() -> Check {
    MOE_CHECK(not_null({{"packed", packed}, {"path", path}}));
    MOE_CHECK(check_handle(packed, "packed"));
    MOE_CHECK(check_optional(control, "control"));
    MOE_CHECK(known_flags(flags, 0));
    moe::begin_call(moe::api::control_of(control));
    MOE_CHECK(moe::report(moe::api::control_of(control), 0, 0));
    return moe::io::save_packed(*packed->object, path, moe::api::control_of(control));
  });
}

moe_status moe_packed_load(moe_context* ctx, const char* path, uint64_t flags, moe_control* control, moe_packed** out,
                           moe_error** err) {
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"path", path}, {"out", out}}));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(check_optional(control, "control"));
    MOE_CHECK(known_flags(flags, moe::api::kLoadFlags));
    moe::begin_call(moe::api::control_of(control));
    MOE_CHECK(moe::report(moe::api::control_of(control), 0, 0));
    const std::shared_ptr<moe::run::Context> context = object_of(ctx);
    MOE_TRY(moe::io::Packed packed,
            moe::io::load_packed(path, moe::api::load_flags(flags), moe::run::allocator_of(context.get()), context,
                                 moe::run::parallel_of(context.get()), moe::api::control_of(control)));
    *out = packed_handle(std::move(packed));
    return ok();
  });
}

moe_status moe_packed_load_memory(moe_context* ctx, const void* data, size_t size, uint64_t flags,
                                  moe_release_fn release, void* user, moe_packed** out, moe_error** err) {
  HandedOver owner(release, user);
  return guard(err, [&]() -> Check {
    clear(out);
    MOE_CHECK(not_null({{"data", data}, {"out", out}}));
    MOE_CHECK(check_optional(ctx, "ctx"));
    MOE_CHECK(known_flags(flags, moe::api::kLoadFlags));
    const auto keep = std::make_shared<HandedOver>();
    *keep = std::move(owner);
    MOE_TRY(moe::io::Packed packed,
            moe::io::open_packed({static_cast<const std::byte*>(data), size}, moe::api::load_flags(flags), "caller",
                                 keep, moe::run::parallel_of(object_of(ctx).get())));
    *out = packed_handle(std::move(packed));
    return ok();
  });
}

void moe_packed_destroy(moe_packed* packed) { end_handle(packed); }
