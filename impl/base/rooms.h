// A namespace for each room, and whose names a room may use as its own: those of the rooms that it may include
// (tests/include_levels.py compares). What base, scheme and layouts say is everybody's, and stands in moe itself.
#pragma once

namespace moe {

namespace config {}
namespace kernels {}
namespace vllm {
using namespace config;
}
namespace hf {
using namespace config;
}
namespace oracle {
using namespace config;
using namespace vllm;
using namespace kernels;
}  // namespace oracle
namespace convert {}
namespace io {}
namespace weights {
using namespace config;
using namespace io;
}  // namespace weights
namespace run {
using namespace config;
using namespace io;
using namespace kernels;
}  // namespace run
namespace dist {
using namespace config;
using namespace io;
using namespace kernels;
using namespace run;
}  // namespace dist
namespace bind {
using namespace config;
using namespace oracle;
using namespace convert;
using namespace kernels;
using namespace io;
using namespace weights;
using namespace run;
}  // namespace bind
namespace model {
using namespace config;
using namespace hf;
using namespace oracle;
using namespace convert;
using namespace kernels;
using namespace io;
using namespace weights;
using namespace run;
using namespace bind;
}  // namespace model
namespace api {
using namespace config;
using namespace vllm;
using namespace hf;
using namespace oracle;
using namespace convert;
using namespace kernels;
using namespace io;
using namespace weights;
using namespace run;
using namespace dist;
using namespace bind;
using namespace model;
}  // namespace api

}  // namespace moe
