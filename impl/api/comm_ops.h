// The caller's moe_comm_ops as a transport of the room dist.
#pragma once

#include <moe/moe.h>

#include <memory>

#include "base/result.h"
#include "dist/transport.h"
#include "weights/weight_set.h"

namespace moe::api {

// Members that must be there, rank and size.
Check check_comm_ops(const moe_comm_ops& ops);
std::unique_ptr<Transport> make_transport(const moe_comm_ops& ops, HandedOver owner);

}  // namespace moe::api
