#include "cc/collectives/staged_communicator.h"

#include <numeric>
#include <vector>

namespace tfhvd {
namespace {

int64_t Sum(const std::vector<int64_t>& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
}

class StagedCommunicator : public Communicator {
 public:
  StagedCommunicator(Device* device, Communicator* host) : device_(*device), host_(*host) {}

  const char* name() const override { return "host"; }
  int rank() const override { return host_.rank(); }
  int size() const override { return host_.size(); }

  Status AllReduce(const void* in, void* out, int64_t count, DType dtype,
                   const Reduction& reduction) override {
    const int64_t bytes = count * ItemSize(dtype);
    TFHVD_RETURN_IF_ERROR(Fetch(in, bytes));
    TFHVD_RETURN_IF_ERROR(host_.AllReduce(in_.data(), in_.data(), count, dtype, reduction));
    return device_.CopyFromHost(out, in_.data(), bytes);
  }

  Status AllGather(const void* in, void* out, const std::vector<int64_t>& bytes) override {
    TFHVD_RETURN_IF_ERROR(Fetch(in, bytes[static_cast<size_t>(rank())]));
    out_.resize(static_cast<size_t>(Sum(bytes)));
    TFHVD_RETURN_IF_ERROR(host_.AllGather(in_.data(), out_.data(), bytes));
    return Deliver(out);
  }

  Status Broadcast(void* buffer, int64_t bytes, int root) override {
    if (rank() == root) {
      TFHVD_RETURN_IF_ERROR(Fetch(buffer, bytes));
      return host_.Broadcast(in_.data(), bytes, root);
    }
    out_.resize(static_cast<size_t>(bytes));
    TFHVD_RETURN_IF_ERROR(host_.Broadcast(out_.data(), bytes, root));
    return Deliver(buffer);
  }

  Status ReduceScatter(const void* in, void* out, const std::vector<int64_t>& counts, DType dtype,
                       const Reduction& reduction) override {
    const int64_t item = ItemSize(dtype);
    TFHVD_RETURN_IF_ERROR(Fetch(in, Sum(counts) * item));
    out_.resize(static_cast<size_t>(counts[static_cast<size_t>(rank())] * item));
    TFHVD_RETURN_IF_ERROR(host_.ReduceScatter(in_.data(), out_.data(), counts, dtype, reduction));
    return Deliver(out);
  }

  Status AllToAll(const void* in, const std::vector<int64_t>& send_bytes, void* out,
                  const std::vector<int64_t>& recv_bytes) override {
    TFHVD_RETURN_IF_ERROR(Fetch(in, Sum(send_bytes)));
    out_.resize(static_cast<size_t>(Sum(recv_bytes)));
    TFHVD_RETURN_IF_ERROR(host_.AllToAll(in_.data(), send_bytes, out_.data(), recv_bytes));
    return Deliver(out);
  }

  Status Barrier() override {
    TFHVD_RETURN_IF_ERROR(device_.Drain());
    return host_.Barrier();
  }

  Status Poll() override { return host_.Poll(); }
  void Abort(const Status& why) override { host_.Abort(why); }
  bool settled() override { return host_.settled(); }

 private:
  Status Fetch(const void* from, int64_t bytes) {
    in_.resize(static_cast<size_t>(bytes));
    return device_.CopyToHost(in_.data(), from, bytes);
  }
  Status Deliver(void* to) {
    return device_.CopyFromHost(to, out_.data(), static_cast<int64_t>(out_.size()));
  }

  Device& device_;      // Not owned.
  Communicator& host_;  // Not owned.
  std::vector<char> in_;
  std::vector<char> out_;
};

}  // namespace

std::unique_ptr<Communicator> MakeStagedCommunicator(Device* device, Communicator* host) {
  return std::make_unique<StagedCommunicator>(device, host);
}

}  // namespace tfhvd
