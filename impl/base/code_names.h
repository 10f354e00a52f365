// The names of the codes in moe.h, for messages that tell a status.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace moe {

struct CodeName {
  Code code;
  const char* name;
};

constexpr CodeName kCodeNames[] = {
    {Code::ok, "MOE_OK"},
    {Code::invalid_argument, "MOE_ERR_INVALID_ARGUMENT"},
    {Code::invalid_config, "MOE_ERR_INVALID_CONFIG"},
    {Code::invalid_handle, "MOE_ERR_INVALID_HANDLE"},
    {Code::shape, "MOE_ERR_SHAPE"},
    {Code::dtype, "MOE_ERR_DTYPE"},
    {Code::missing_weight, "MOE_ERR_MISSING_WEIGHT"},
    {Code::unexpected_weight, "MOE_ERR_UNEXPECTED_WEIGHT"},
    {Code::no_backend, "MOE_ERR_NO_BACKEND"},
    {Code::unsupported, "MOE_ERR_UNSUPPORTED"},
    {Code::buffer_too_small, "MOE_ERR_BUFFER_TOO_SMALL"},
    {Code::out_of_memory, "MOE_ERR_OUT_OF_MEMORY"},
    {Code::io, "MOE_ERR_IO"},
    {Code::format, "MOE_ERR_FORMAT"},
    {Code::version, "MOE_ERR_VERSION"},
    {Code::cancelled, "MOE_ERR_CANCELLED"},
    {Code::comm, "MOE_ERR_COMM"},
    {Code::callback, "MOE_ERR_CALLBACK"},
    {Code::busy, "MOE_ERR_BUSY"},
    {Code::state, "MOE_ERR_STATE"},
    {Code::peer, "MOE_ERR_PEER"},
    {Code::config_mismatch, "MOE_ERR_CONFIG_MISMATCH"},
    {Code::comm_poisoned, "MOE_ERR_COMM_POISONED"},
    {Code::internal, "MOE_ERR_INTERNAL"},
};

// Any number: a status may come from a caller or another rank.
constexpr const char* name_of(std::int32_t code) {
  for (const CodeName& n : kCodeNames)
    if (static_cast<std::int32_t>(n.code) == code) return n.name;
  return "MOE_ERR_UNKNOWN";
}

}  // namespace moe
