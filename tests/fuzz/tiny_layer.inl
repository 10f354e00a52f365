// TinyLayer of tiny.h.
#pragma once

namespace moe::fuzz {

inline TinyLayer::TinyLayer(Producer& p, const std::string& more) {
  constexpr std::array<std::int64_t, 8> kCounts = {1, 2, 3, 1, 1, 2, 1, 1};
  constexpr std::array<std::int64_t, 16> kSizes = {32, 64, 96, 128, 32, 32, 32, 32,  // small ones run often
                                                   32, 64, 32, 32,  32, 32, 64, 32};
  constexpr std::array<std::int64_t, 3> kGroups = {32, -1, 64};
  constexpr std::array kDtypes = {MOE_DTYPE_F32, MOE_DTYPE_BF16, MOE_DTYPE_F16};
  constexpr std::array<const char*, 4> kActivations = {"silu", "swigluoai_uninterleave", "swiglustep", "silu"};
  form = &p.pick(kForms);
  E = p.pick(kCounts);
  top_k = 1 + static_cast<std::int64_t>(p.below(static_cast<std::size_t>(E)));
  H = p.pick(kSizes);
  I = p.pick(kSizes);
  group = p.pick(kGroups);
  const bool mx = form->has_powers(), nv = form->starts_with("NV"), floats = form->scale_rows != 0;
  if (floats) group = nv ? 16 : mx || form->scale_rows == kBlock ? kBlock : -1;
  if (std::string(form->scheme) == "W8A8" || (group > 0 && (H % group != 0 || I % group != 0))) group = -1;
  const std::uint8_t flags = p.byte();
  const bool wna16 = *form->scheme == 0 && !floats;
  zeros = wna16 && (form->awq || (flags & 1) != 0);
  order = wna16 && !form->awq && group > 0 && (flags & 2) != 0;
  uneven = order && (flags & 64) != 0;
  bias = (flags & 4) != 0;
  silu = *kActivations[(flags >> 3) & 3] == 's' && kActivations[(flags >> 3) & 3][1] == 'i';
  dtype = p.pick(kDtypes);
  Noise noise(p.word());

  head_ = "{\"num_experts\":" + std::to_string(E) + ",\"top_k\":" + std::to_string(top_k) +
          ",\"hidden_dim\":" + std::to_string(H) + ",\"intermediate_size\":" + std::to_string(I) + ",\"in_dtype\":\"" +
          (dtype == MOE_DTYPE_F32    ? "float32"
           : dtype == MOE_DTYPE_BF16 ? "bfloat16"
                                     : "float16") +
          "\",\"activation\":\"" + kActivations[(flags >> 3) & 3] + "\",\"has_bias\":" + (bias ? "true" : "false");
  tail_ = ",\"quantization\":{";
  if (form->scale_rows == kBlock) {
    tail_ += R"("weights":{"num_bits":8,"type":"float","strategy":"block","block_structure":[32,32]})";
  } else if (!wna16) {
    tail_ += std::string("\"scheme\":\"") + form->scheme + "\"";
    if (std::string(form->scheme) == "W4A8") tail_ += ",\"group_size\":" + std::to_string(group);
  } else {
    tail_ += "\"weights\":{\"num_bits\":" + std::to_string(form->bits) +
             ",\"type\":\"int\",\"dynamic\":false,\"symmetric\":" + (zeros ? "false" : "true") +
             ",\"strategy\":" + (group < 0 ? "\"channel\"" : "\"group\",\"group_size\":" + std::to_string(group)) +
             (order ? ",\"actorder\":\"group\"" : "") + "},\"zero_point_convention\":\"as_stored\"";
  }
  tail_ += std::string(",\"format\":\"") + form->format + "\"}}";
  text = with(more);
  w13 = matrix(2, I, H, noise);
  w2 = matrix(1, H, I, noise);
}

inline Matrix TinyLayer::matrix(int halves, std::int64_t half_rows, std::int64_t k, Noise& noise) const {
  Matrix m;
  const std::int64_t n = m.n = halves * half_rows;
  m.k = k;
  m.groups = group < 0 ? 1 : k / group;
  m.scale_rows = form->scale_rows == -1 ? half_rows : form->scale_rows;
  m.bits = form->bits;
  const bool nv = form->starts_with("NV");  // scales from 1/2 to 4: Marlin drops those below 1/64
  if (nv) m.tensor_scale = halves == 2 ? 0x1p-7F : 0x1p-8F;
  const std::uint32_t range = 1U << form->bits;
  m.codes.resize(static_cast<std::size_t>(E * n * k));
  for (std::uint8_t& c : m.codes) c = static_cast<std::uint8_t>(noise.below(range));
  if (m.scale_rows != 0 && m.bits == 8)
    for (std::uint8_t& c : m.codes)
      if ((c & 0x7f) == 0x7f) c = 0x7e;  // not NaN
  for (std::int64_t i = 0; i < E * n * m.groups; ++i) {
    m.zeros.push_back(static_cast<std::uint8_t>(zeros ? noise.below(range) : range / 2));
    const float sign = m.scale_rows == 0 && noise.below(2) == 0 ? -1.0F : 1.0F;
    m.scales.push_back(sign * (nv ? 4.0F : 1.0F / static_cast<float>(range)) /
                       static_cast<float>(1U << noise.below(4)));
  }
  for (std::int64_t i = 0; m.scale_rows > 1 && i < E * n * m.groups; ++i) {
    const std::int64_t r = i / m.groups, first = r - r % m.scale_rows;
    m.scales[static_cast<std::size_t>(i)] = m.scales[static_cast<std::size_t>(first * m.groups + i % m.groups)];
  }
  for (std::int64_t i = 0; i < k; ++i) m.g_idx.push_back(static_cast<std::int32_t>(i / (k / m.groups)));
  for (std::size_t i = m.g_idx.size(); order && i > 1; --i)
    std::swap(m.g_idx[i - 1], m.g_idx[noise.below(static_cast<std::uint32_t>(i))]);
  for (std::int32_t& g : m.g_idx)
    if (uneven) g = static_cast<std::int32_t>(noise.below(static_cast<std::uint32_t>(m.groups)));
  for (std::int64_t i = 0; bias && i < E * n; ++i) m.bias.push_back(static_cast<float>(noise.below(16)) / 8.0F - 1.0F);
  return m;
}

inline bool TinyLayer::can_have(Fault fault) const {
  const bool codes = std::string(form->scheme) != "none";
  switch (fault) {
    case Fault::nan_scale:
      return codes;
    case Fault::negative_scale:
      return form->scale_rows != 0 && !form->has_powers();
    case Fault::big_code:
      return (form->scale_rows != 0 && form->bits == 8) ||
             (form->bits == 4 && std::string(form->format) == "int-quantized");
    case Fault::g_idx:
      return order;
    default:
      return true;
  }
}

inline Weights TinyLayer::weights(const moe_config* config, Fault fault, std::size_t where) const {
  Weights w = made<Weights>([&](auto** o, auto** e) { return moe_weights_create(config, o, e); });
  const bool first = where % 2 == 0;
  if (!set(w.get(), w13, "w13_", first ? fault : Fault::none)) return nullptr;
  if (!set(w.get(), w2, "w2_", first ? Fault::none : fault)) return nullptr;
  return w;
}

inline bool TinyLayer::set(moe_weights* weights, const Matrix& m, const std::string& prefix, Fault fault) const {
  for (StackedTensor& made : tensors(m, fault)) {
    auto* kept = new StackedTensor(std::move(made));
    const moe_tensor t = tensor(kept->dtype, kept->shape, kept->bytes.data());
    const auto release = [](void* user) { delete static_cast<StackedTensor*>(user); };
    const std::string role = prefix + kept->role;  // rule 11 of moe.h: `kept` is released whatever happens
    const bool faulty = kept->role == "weight" && (fault == Fault::shape || fault == Fault::dtype);
    if (moe_weights_set(weights, role.c_str(), &t, release, kept, nullptr) == MOE_OK) continue;
    MOE_REQUIRE(faulty);
    return false;
  }
  return true;
}

template <class T>
void StackedTensors::give(const char* role, moe_dtype dtype, std::vector<std::int64_t> shape,
                          const std::vector<T>& data) {
  const bool weight = std::string_view(role) == "weight";
  if (weight && fault == Fault::missing) return;
  if (weight && fault == Fault::shape) ++shape[1];
  if (weight && fault == Fault::dtype) dtype = MOE_DTYPE_F64;
  const auto* first = reinterpret_cast<const std::uint8_t*>(data.data());
  all.push_back({role, dtype, std::move(shape), std::vector<std::uint8_t>(first, first + data.size() * sizeof(T))});
}

inline std::vector<StackedTensor> TinyLayer::tensors(const Matrix& m, Fault fault) const {
  StackedTensors out{fault, {}};
  if (m.scale_rows != 0)
    give_floats(m, out);
  else if (std::string_view(form->format) == "none")
    out.give("weight", MOE_DTYPE_F32, {E, m.n, m.k}, m.values());
  else
    give_integers(m, out);
  if (bias) out.give("bias", MOE_DTYPE_F32, {E, m.n}, m.bias);
  return std::move(out.all);
}

inline void TinyLayer::give_floats(const Matrix& m, StackedTensors& out) const {
  if (m.bits == 4) {
    std::vector<std::uint8_t> pairs;
    for (std::size_t i = 0; i < m.codes.size(); i += 2)
      pairs.push_back(static_cast<std::uint8_t>(m.codes[i] | m.codes[i + 1] << 4));
    out.give("weight", MOE_DTYPE_U8, {E, m.n, m.k / 2}, pairs);
  } else {
    std::vector<std::uint8_t> codes = m.codes;
    if (out.fault == Fault::big_code) codes.back() = 0xff;
    out.give("weight", MOE_DTYPE_F8_E4M3FN, {E, m.n, m.k}, codes);
  }
  const std::int64_t rows = m.n / m.scale_rows, G = m.groups;
  std::vector<float> scales;
  for (std::int64_t r = 0; r < E * m.n; r += m.scale_rows)
    for (std::int64_t g = 0; g < G; ++g) scales.push_back(m.scales[static_cast<std::size_t>(r * G + g)]);
  if (out.fault == Fault::nan_scale) scales.back() = std::numeric_limits<float>::quiet_NaN();
  if (out.fault == Fault::negative_scale) scales.front() = -1;
  const bool nv = form->starts_with("NV"), each_half = !nv && rows > 1;
  std::vector<std::uint8_t> small;
  for (const float s : scales)
    small.push_back(static_cast<std::uint8_t>(nv              ? f32_to_small(kE4m3, s)
                                              : std::isnan(s) ? 255U
                                                              : static_cast<unsigned>(127 + std::ilogb(s))));
  if (form->has_powers()) {
    out.give("scale", MOE_DTYPE_U8, {E, rows, G}, small);
  } else if (nv) {
    out.give("scale", MOE_DTYPE_F8_E4M3FN, {E, rows, G}, small);
    out.give("scale_2", MOE_DTYPE_F32, {E}, std::vector<float>(static_cast<std::size_t>(E), m.tensor_scale));
  } else if (form->scale_rows == -1) {
    out.give("scale", MOE_DTYPE_F32, rows == 1 ? std::vector{E} : std::vector{E, rows}, scales);
  } else {
    out.give("scale", MOE_DTYPE_F32, {E, rows, G}, scales);
  }
  if (nv || std::string_view(form->scheme) == "FP8")  // of static activations, which some layouts hold
    out.give("input_scale", MOE_DTYPE_F32, each_half ? std::vector{E, rows} : std::vector{E},
             std::vector<float>(static_cast<std::size_t>(each_half ? E * rows : E), 0.5F));
}

inline void TinyLayer::give_integers(const Matrix& m, StackedTensors& out) const {
  const std::int64_t pf = 32 / form->bits, kw = m.k / pf, nw = m.n / pf, G = m.groups;
  const bool bytes = std::string_view(form->format) == "int-quantized";
  std::vector<std::uint32_t> words(static_cast<std::size_t>(E * m.n * kw)), zero(static_cast<std::size_t>(E * nw * G));
  std::vector<float> scales(static_cast<std::size_t>(E * m.n * G));
  const auto shift = [&](std::int64_t i) {
    constexpr std::array<std::int64_t, 8> kInterleaved = {0, 4, 1, 5, 2, 6, 3, 7};
    return form->bits * (form->awq ? kInterleaved[static_cast<std::size_t>(i % 8)] : i % pf);
  };
  const std::uint8_t* code = m.codes.data();
  for (std::int64_t e = 0; e < E; ++e)
    for (std::int64_t r = 0; r < m.n; ++r) {
      for (std::int64_t c = 0; !bytes && c < m.k; ++c) {
        const std::int64_t at = form->awq       ? (e * m.k + c) * nw + r / pf
                                : form->k_first ? (e * kw + c / pf) * m.n + r
                                                : (e * m.n + r) * kw + c / pf;
        words[static_cast<std::size_t>(at)] |= std::uint32_t{*code++} << shift(form->awq ? r : c);
      }
      for (std::int64_t g = 0; g < G; ++g) {
        const auto from = static_cast<std::size_t>((e * m.n + r) * G + g);
        scales[form->k_first ? static_cast<std::size_t>((e * G + g) * m.n + r) : from] = m.scales[from];
        const std::int64_t at = form->k_first ? (e * G + g) * nw + r / pf : (e * nw + r / pf) * G + g;
        zero[static_cast<std::size_t>(at)] |= std::uint32_t{m.zeros[from]} << shift(r);
      }
    }
  if (out.fault == Fault::nan_scale) scales.back() = std::numeric_limits<float>::quiet_NaN();
  if (bytes) {
    std::vector<std::int8_t> codes;
    for (const std::uint8_t c : m.codes) codes.push_back(static_cast<std::int8_t>(c - (1 << (form->bits - 1))));
    if (out.fault == Fault::big_code) codes.back() = 8;
    out.give("weight", MOE_DTYPE_I8, {E, m.n, m.k}, codes);
  } else {
    out.give("weight", MOE_DTYPE_I32,
             form->awq       ? std::vector{E, m.k, nw}
             : form->k_first ? std::vector{E, kw, m.n}
                             : std::vector{E, m.n, kw},
             words);
  }
  out.give("scale", MOE_DTYPE_F32, form->k_first ? std::vector{E, G, m.n} : std::vector{E, m.n, G}, scales);
  if (zeros) out.give("zero_point", MOE_DTYPE_I32, form->k_first ? std::vector{E, G, nw} : std::vector{E, nw, G}, zero);
  if (!order) return;
  std::vector<std::int32_t> g_idx;
  for (std::int64_t e = 0; e < E; ++e) g_idx.insert(g_idx.end(), m.g_idx.begin(), m.g_idx.end());
  if (out.fault == Fault::g_idx) g_idx.back() = static_cast<std::int32_t>(G);
  out.give("g_idx", MOE_DTYPE_I32, {E, m.k}, g_idx);
}

}  // namespace moe::fuzz
