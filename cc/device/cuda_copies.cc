#include "cc/device/cuda_copies.h"

#include <algorithm>
#include <functional>

namespace tfhvd {
namespace {

constexpr char kPtx[] =
#include "cc/device/batched_copy.ptx.inc"
    ;

cuda::Pointer Address(const void* p) { return reinterpret_cast<uintptr_t>(p); }

}  // namespace

void CudaCopies::UnloadKernel() {
  if (module_ != nullptr) driver_.cuModuleUnload(module_);
  module_ = nullptr;
  kernel_ = nullptr;
}

Status CudaCopies::LoadKernel() {
  TFHVD_CUDA_CALL(driver_, cuModuleLoadData(&module_, kPtx));
  TFHVD_CUDA_CALL(driver_, cuModuleGetFunction(&kernel_, module_, "tfhvd_batched_copy"));
  return Status::Ok();
}

CudaCopies::Launch* CudaCopies::LaunchFor(DType from_type, DType to_type, double factor) {
  for (Launch& launch : launches_) {
    if (launch.from_type == from_type && launch.to_type == to_type && launch.factor == factor) {
      return &launch;
    }
  }
  launches_.push_back({from_type, to_type, factor, {}});
  return &launches_.back();
}

void CudaCopies::Add(void* to, const void* from, int64_t bytes) {
  if (bytes == 0) return;
  const char* const at = static_cast<const char*>(from);
  for (Pending& p : pending_) {
    const int64_t item = ItemSize(p.dtype);
    if (at < p.begin || at >= p.begin + p.count * item) continue;
    p.copied = true;
    return AddScaled(to, p.dtype, from, p.dtype, bytes / item, p.factor);
  }
  LaunchFor(DType::kUInt8, DType::kUInt8, 1.0)->segments.push_back({to, from, bytes});
}

void CudaCopies::Scale(void* data, int64_t count, DType dtype, double factor) {
  if (count > 0) pending_.push_back({static_cast<char*>(data), count, dtype, factor});
}

void CudaCopies::AddScaled(void* to, DType to_type, const void* from, DType from_type,
                           int64_t count, double factor) {
  if (count == 0) return;
  if (from_type == to_type && factor == 1.0) {  // also for types that the kernel does not know
    LaunchFor(DType::kUInt8, DType::kUInt8, 1.0)
        ->segments.push_back({to, from, count * ItemSize(to_type)});
    return;
  }
  LaunchFor(from_type, to_type, factor)->segments.push_back({to, from, count});
}

bool CudaCopies::ScaleAdded(const void* data, int64_t count, DType dtype, double factor) {
  if (factor == 1.0) return true;
  const char* const begin = static_cast<const char*>(data);
  const int64_t item = ItemSize(dtype);
  const auto within = [&](const BatchedCopyArgs::Segment& s) {
    return static_cast<const char*>(s.to) >= begin &&
           static_cast<const char*>(s.to) < begin + count * item;
  };
  std::vector<BatchedCopyArgs::Segment>& plain =
      LaunchFor(DType::kUInt8, DType::kUInt8, 1.0)->segments;
  const auto first = std::stable_partition(plain.begin(), plain.end(), std::not_fn(within));
  int64_t bytes = 0;
  for (auto s = first; s != plain.end(); ++s) bytes += s->count;
  if (bytes != count * item) return false;
  const std::vector<BatchedCopyArgs::Segment> added(first, plain.end());
  plain.erase(first, plain.end());
  for (const BatchedCopyArgs::Segment& s : added) {
    AddScaled(s.to, dtype, s.from, dtype, s.count / item, factor);
  }
  return true;
}

Status CudaCopies::Flush(cuda::Stream stream) {
  for (const Pending& p : pending_) {
    if (!p.copied) AddScaled(p.begin, p.dtype, p.begin, p.dtype, p.count, p.factor);
  }
  pending_.clear();
  std::vector<Launch> launches;
  launches.swap(launches_);
  for (const Launch& launch : launches) TFHVD_RETURN_IF_ERROR(Run(launch, stream));
  return Status::Ok();
}

Status CudaCopies::Run(const Launch& launch, cuda::Stream stream) {
  const std::vector<BatchedCopyArgs::Segment>& all = launch.segments;
  const bool plain = launch.from_type == launch.to_type && launch.factor == 1.0;
  // The driver is the fastest for a single copy.
  if (plain && (kernel_ == nullptr || all.size() == 1)) {
    for (const BatchedCopyArgs::Segment& s : all) {
      const size_t bytes = static_cast<size_t>(s.count * ItemSize(launch.to_type));
      TFHVD_CUDA_CALL(driver_, cuMemcpyDtoDAsync_v2(Address(s.to), Address(s.from), bytes, stream));
    }
    return Status::Ok();
  }
  for (size_t first = 0; first < all.size(); first += kBatchedCopySegments) {
    const size_t n = std::min<size_t>(kBatchedCopySegments, all.size() - first);
    TFHVD_RETURN_IF_ERROR(RunKernel(launch, first, n, stream));
  }
  return Status::Ok();
}

Status CudaCopies::RunKernel(const Launch& launch, size_t first, size_t n, cuda::Stream stream) {
  const int64_t widest = std::max(ItemSize(launch.from_type), ItemSize(launch.to_type));
  const int64_t block_items = kBatchedCopyBlockBytes / widest;
  BatchedCopyArgs args = {};
  args.segment_count = static_cast<int>(n);
  args.block_items = static_cast<int>(block_items);
  args.from_type = static_cast<int>(launch.from_type);
  args.to_type = static_cast<int>(launch.to_type);
  args.factor = launch.factor;
  int64_t blocks = 0;
  for (size_t i = 0; i < n; ++i) {
    args.segments[i] = launch.segments[first + i];
    args.first_block[i] = static_cast<unsigned>(blocks);
    blocks += (args.segments[i].count + block_items - 1) / block_items;
  }
  void* parameters[] = {&args};
  TFHVD_CUDA_CALL(
      driver_, cuLaunchKernel(kernel_, static_cast<unsigned>(blocks), 1, 1, kBatchedCopyThreads, 1,
                              1, 0, stream, parameters, nullptr));
  return Status::Ok();
}

}  // namespace tfhvd
