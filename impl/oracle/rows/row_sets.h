// What rows of several oracles accept alike.
#pragma once

#include <array>
#include <string_view>

#include "base/enum_set.h"
#include "scheme/scheme.h"

namespace moe::oracle {

// Everything but gated relu2 and swigluoai_uninterleave.
inline constexpr EnumSet<Activation> kNineActivations = {
    Activation::silu,        Activation::gelu,        Activation::gelu_tanh,   Activation::swigluoai,
    Activation::swiglustep,  Activation::silu_no_mul, Activation::gelu_no_mul, Activation::gelu_tanh_no_mul,
    Activation::relu2_no_mul};
inline constexpr EnumSet<Activation> kCutlassFp4Activations =
    kNineActivations.without({Activation::gelu_tanh, Activation::gelu_tanh_no_mul});
inline constexpr std::array<std::string_view, 3> kNvlinkAll2all = {"flashinfer_all2allv", "flashinfer_nvlink_two_sided",
                                                                   "flashinfer_nvlink_one_sided"};

}  // namespace moe::oracle
