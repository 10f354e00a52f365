// Adapter of moe_comm_ops (comm_ops.h). An error of the table becomes MOE_ERR_COMM with the table's as its cause.
#include "api/comm_ops.h"

#include <string>
#include <utility>

#include "api/guard.h"
#include "base/json.h"
#include "base/text.h"

namespace moe::api {
namespace {

constexpr std::int32_t kMostRanks = 65536;

struct EndOfTableError {
  void operator()(moe_error* e) const { moe_error_destroy(e); }
};
using TableError = std::unique_ptr<moe_error, EndOfTableError>;

Error failure_of(const char* what, moe_status status, const moe_error* error) {
  const std::string_view text = moe_error_message(error);
  json::Writer details;
  details.member("reason", "transport").key("cause");
  if (error != nullptr)
    details.value(json::Text{moe_error_details_json(error)});
  else
    details.begin_object().member("status", moe_status_name(status)).member("status_code", status).end_object();
  return fail(
      Code::comm, "comm",
      cat("comm: ", what, " failed with ", moe_status_name(status), " (", status, ")", text.empty() ? "" : ": ", text),
      details.take());
}

// call(&err) of the table.
template <class F>
Check ask(const char* what, F&& call) {
  moe_error* raw = nullptr;
  const moe_status status = call(&raw);
  if (status == MOE_OK && raw == nullptr) return ok();
  const TableError error(raw);
  return status == MOE_OK ? ok() : Check(failure_of(what, status, raw));
}

moe_comm_op* op_of(void* op) { return static_cast<moe_comm_op*>(op); }

class CallersTransport final : public Transport {
 public:
  CallersTransport(const moe_comm_ops& ops, HandedOver owner)
      : Transport(ops.rank, ops.size), ops_(ops), owner_(std::move(owner)) {}

  Check alltoallv(const Exchange& x, void*& op) override {
    moe_comm_op* started = nullptr;
    MOE_CHECK(ask("alltoallv_start", [&](moe_error** err) {
      return ops_.alltoallv_start(ops_.user, x.row_bytes, x.send, x.send_counts, x.send_displs, x.recv, x.recv_counts,
                                  x.recv_displs, &started, err);
    }));
    op = started;
    return ok();
  }
  Result<bool> test(void* op) override {
    std::int32_t done = 0;
    MOE_CHECK(ask("test", [&](moe_error** err) { return ops_.test(ops_.user, op_of(op), &done, err); }));
    return done != 0;
  }
  Result<bool> alltoall(std::uint64_t row_bytes, const std::byte* send, std::byte* recv, void*& op) override {
    if (ops_.alltoall_start == nullptr) return false;
    moe_comm_op* started = nullptr;
    MOE_CHECK(ask("alltoall_start", [&](moe_error** err) {
      return ops_.alltoall_start(ops_.user, row_bytes, send, recv, &started, err);
    }));
    op = started;
    return true;
  }
  Result<bool> allgatherv(const Exchange& x, void*& op) override {
    if (ops_.allgatherv_start == nullptr) return false;
    moe_comm_op* started = nullptr;
    MOE_CHECK(ask("allgatherv_start", [&](moe_error** err) {
      return ops_.allgatherv_start(ops_.user, x.row_bytes, x.send, x.send_counts[rank()], x.recv, x.recv_counts,
                                   x.recv_displs, &started, err);
    }));
    op = started;
    return true;
  }
  void pause(int microseconds) override {
    if (ops_.wait_hint == nullptr) return Transport::pause(microseconds);
    ops_.wait_hint(ops_.user, microseconds);
  }
  bool abort(int code) override {
    if (ops_.abort == nullptr) return false;
    ops_.abort(ops_.user, code);
    return true;
  }

 private:
  const moe_comm_ops ops_;
  HandedOver owner_;
};

}  // namespace

Check check_comm_ops(const moe_comm_ops& ops) {
  MOE_CHECK(callback_given(ops.alltoallv_start != nullptr, "alltoallv_start"));
  MOE_CHECK(callback_given(ops.test != nullptr, "test"));
  if (ops.reserved0 != 0)
    return fail(Code::invalid_argument, "ops", cat("ops: reserved0 must be 0, got ", ops.reserved0));
  if (ops.size < 1 || ops.size > kMostRanks)
    return fail(Code::invalid_argument, "size", cat("size: ", ops.size, ", expected 1 to ", kMostRanks));
  if (ops.rank >= 0 && ops.rank < ops.size) return ok();
  return fail(Code::invalid_argument, "rank", cat("rank: ", ops.rank, ", expected 0 to ", ops.size - 1));
}

std::unique_ptr<Transport> make_transport(const moe_comm_ops& ops, HandedOver owner) {
  return std::make_unique<CallersTransport>(ops, std::move(owner));
}

}  // namespace moe::api
