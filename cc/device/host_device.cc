#include <cstring>
#include <new>

#include "cc/device/device.h"
#include "cc/memory/work_memory.h"
#include "cc/numeric/arithmetic.h"

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
  HostDevice() {
    static_assert(kReserved <= WorkMemory::kLittle, "it is never given back");
    if (scratch_.Get(kReserved) == nullptr) throw std::bad_alloc();  // as operator new does
  }

  DeviceKind kind() const override { return DeviceKind::kHost; }

  Status Scratch(int64_t bytes, char** out) override {
    scratch_.BeginUse();
    *out = scratch_.Get(bytes);
    if (*out == nullptr) {
      return Status::Unavailable("no memory for a fusion buffer of " + std::to_string(bytes) +
                                 " bytes. Lower TFHVD_FUSION_THRESHOLD.");
    }
    return Status::Ok();
  }

  Status CopyScaled(void* to, const void* from, int64_t count, DType dtype,
                    double factor) override {
    ReduceRanks(to, &from, 1, count, dtype, {ReduceOp::kSum, factor, 1.0});
    return Status::Ok();
  }

  Status Zero(void* to, int64_t bytes) override {
    if (bytes > 0) std::memset(to, 0, static_cast<size_t>(bytes));
    return Status::Ok();
  }

  Status Copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
    return Status::Ok();
  }

 private:
  WorkMemory scratch_;
};

}  // namespace

std::unique_ptr<Device> MakeHostDevice() { return std::make_unique<HostDevice>(); }

}  // namespace tfhvd
