#include <cstdlib>
#include <cstring>

#include "cc/base/arithmetic.h"
#include "cc/device/device.h"

namespace tfhvd {

Status Device::CopyScaled(void* to, const void* from, int64_t count, DType dtype, double factor) {
  const int64_t bytes = count * ItemSize(dtype);
  std::vector<char> copy(static_cast<size_t>(bytes));
  TFHVD_RETURN_IF_ERROR(CopyToHost(copy.data(), from, bytes));
  const void* const in = copy.data();
  ReduceRanks(copy.data(), &in, 1, count, dtype, {ReduceOp::kSum, factor, 1.0});
  return CopyFromHost(to, copy.data(), bytes);
}

namespace {

class HostDevice : public Device {
 public:
  DeviceKind kind() const override { return DeviceKind::kHost; }

  Status Scratch(int64_t bytes, char** out) override {
    if (bytes > capacity_) {
      constexpr int64_t kLine = 64;
      const int64_t rounded = (bytes + kLine - 1) / kLine * kLine;
      memory_.reset();
      capacity_ = 0;
      memory_.reset(static_cast<char*>(std::aligned_alloc(kLine, static_cast<size_t>(rounded))));
      if (memory_ == nullptr) {
        return Status::Unavailable("no memory for a fusion buffer of " + std::to_string(rounded) +
                                   " bytes. Lower TFHVD_FUSION_THRESHOLD.");
      }
      capacity_ = rounded;
    }
    *out = memory_.get();
    return Status::Ok();
  }

  Status CopyScaled(void* to, const void* from, int64_t count, DType dtype,
                    double factor) override {
    ReduceRanks(to, &from, 1, count, dtype, {ReduceOp::kSum, factor, 1.0});
    return Status::Ok();
  }

  Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status::Ok();
  }

 private:
  struct Free {
    void operator()(char* p) const { std::free(p); }
  };
  std::unique_ptr<char, Free> memory_;
  int64_t capacity_ = 0;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace tfhvd
