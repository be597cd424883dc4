// The calls of compiled functions on a GPU (cc/xla/calls.h), as XLA's runtime for GPUs makes them,
// on the fake for the driver and NCCL: frames are made by hand, for XLA on GPUs needs one.
// Built and run by tests/xla/test_gpu_calls.py, alone and as a job.
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/config.h"
#include "cc/process/pending_collectives.h"
#include "cc/process/process.h"
#include "cc/xla/calls.h"
#include "cc/xla/request_text.h"
#include "tests/core/gpu_rank.h"
#include "tests/core/testing.h"
#include "xla/ffi/api/ffi.h"

// What XLA's side of the interface is to a handler, as far as tfhvd's use it.
struct XLA_FFI_Error {
  std::string message;
};
struct XLA_FFI_ExecutionContext {
  void* stream;
};

namespace {

// By platform and name.
std::map<std::string, XLA_FFI_Handler*>& Handlers() {
  static std::map<std::string, XLA_FFI_Handler*> handlers;
  return handlers;
}

XLA_FFI_Error* Register(XLA_FFI_Handler_Register_Args* args) {
  const std::string platform(args->platform.ptr, args->platform.len);
  Handlers()[platform + " " + std::string(args->name.ptr, args->name.len)] = args->bundle.execute;
  return nullptr;
}
XLA_FFI_Error* Create(XLA_FFI_Error_Create_Args* args) { return new XLA_FFI_Error{args->message}; }
void GetMessage(XLA_FFI_Error_GetMessage_Args* args) {
  args->message = args->error->message.c_str();
}
void Destroy(XLA_FFI_Error_Destroy_Args* args) { delete args->error; }
XLA_FFI_Error* GetStream(XLA_FFI_Stream_Get_Args* args) {
  args->stream = args->ctx->stream;
  return nullptr;
}

}  // namespace

namespace xla::ffi {

const XLA_FFI_Api* GetXlaFfiApi();
const XLA_FFI_Api* GetXlaFfiApi() {
  static const XLA_FFI_Api api = [] {
    XLA_FFI_Api made = {};
    made.struct_size = XLA_FFI_Api_STRUCT_SIZE;
    made.api_version = {XLA_FFI_Api_Version_STRUCT_SIZE, nullptr, XLA_FFI_API_MAJOR,
                        XLA_FFI_API_MINOR};
    made.XLA_FFI_Handler_Register = Register;
    made.XLA_FFI_Error_Create = Create;
    made.XLA_FFI_Error_GetMessage = GetMessage;
    made.XLA_FFI_Error_Destroy = Destroy;
    made.XLA_FFI_Stream_Get = GetStream;
    return made;
  }();
  return &api;
}

}  // namespace xla::ffi

namespace tfhvd {
namespace testing {
namespace {

// One call: its operands and results, its attributes in the order of their names.
class Frame {
 public:
  Frame& Operand(void* data, XLA_FFI_DataType dtype, std::vector<int64_t> dimensions) {
    operands_.push_back({data, dtype, std::move(dimensions)});
    return *this;
  }
  Frame& Result(void* data, XLA_FFI_DataType dtype, std::vector<int64_t> dimensions) {
    results_.push_back({data, dtype, std::move(dimensions)});
    return *this;
  }
  Frame& Attribute(const std::string& name, const std::string& value) {
    texts_.push_back(std::make_unique<std::string>(value));
    spans_.push_back(std::make_unique<XLA_FFI_ByteSpan>(
        XLA_FFI_ByteSpan{texts_.back()->data(), texts_.back()->size()}));
    return Add(name, XLA_FFI_AttrType_STRING, spans_.back().get());
  }
  Frame& Attribute(const std::string& name, int64_t value, XLA_FFI_DataType dtype) {
    numbers_.push_back(std::make_unique<int64_t>(value));
    scalars_.push_back(
        std::make_unique<XLA_FFI_Scalar>(XLA_FFI_Scalar{dtype, numbers_.back().get()}));
    return Add(name, XLA_FFI_AttrType_SCALAR, scalars_.back().get());
  }

  // What the handler of this name says, "" where all is well.
  std::string Call(const char* name, void* stream) {
    XLA_FFI_ExecutionContext context{stream};
    std::vector<XLA_FFI_Buffer> in = Buffers(&operands_), out = Buffers(&results_);
    std::vector<void*> args, rets;
    for (XLA_FFI_Buffer& buffer : in) args.push_back(&buffer);
    for (XLA_FFI_Buffer& buffer : out) rets.push_back(&buffer);
    std::vector<XLA_FFI_ArgType> arg_types(args.size(), XLA_FFI_ArgType_BUFFER);
    std::vector<XLA_FFI_RetType> ret_types(rets.size(), XLA_FFI_RetType_BUFFER);
    XLA_FFI_CallFrame frame = {};
    frame.struct_size = XLA_FFI_CallFrame_STRUCT_SIZE;
    frame.api = xla::ffi::GetXlaFfiApi();
    frame.ctx = &context;
    frame.stage = XLA_FFI_ExecutionStage_EXECUTE;
    frame.args = {XLA_FFI_Args_STRUCT_SIZE, nullptr, static_cast<int64_t>(args.size()),
                  arg_types.data(), args.data()};
    frame.rets = {XLA_FFI_Rets_STRUCT_SIZE, nullptr, static_cast<int64_t>(rets.size()),
                  ret_types.data(), rets.data()};
    frame.attrs = {XLA_FFI_Attrs_STRUCT_SIZE,
                   nullptr,
                   static_cast<int64_t>(attributes_.size()),
                   types_.data(),
                   names_.data(),
                   attributes_.data()};
    XLA_FFI_Handler* const handler = Handlers()[std::string("CUDA ") + name];
    if (handler == nullptr) return std::string("no handler ") + name;
    const std::unique_ptr<XLA_FFI_Error> error(handler(&frame));
    return error == nullptr ? "" : error->message;
  }

 private:
  struct Data {
    void* data;
    XLA_FFI_DataType dtype;
    std::vector<int64_t> dimensions;
  };
  static std::vector<XLA_FFI_Buffer> Buffers(std::vector<Data>* all) {
    std::vector<XLA_FFI_Buffer> buffers;
    for (Data& one : *all) {
      buffers.push_back({XLA_FFI_Buffer_STRUCT_SIZE, nullptr, one.dtype, one.data,
                         static_cast<int64_t>(one.dimensions.size()), one.dimensions.data()});
    }
    return buffers;
  }
  Frame& Add(const std::string& name, XLA_FFI_AttrType type, void* attribute) {
    texts_.push_back(std::make_unique<std::string>(name));
    spans_.push_back(std::make_unique<XLA_FFI_ByteSpan>(
        XLA_FFI_ByteSpan{texts_.back()->data(), texts_.back()->size()}));
    names_.push_back(spans_.back().get());
    types_.push_back(type);
    attributes_.push_back(attribute);
    return *this;
  }

  std::vector<Data> operands_, results_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::vector<std::unique_ptr<XLA_FFI_ByteSpan>> spans_;
  std::vector<std::unique_ptr<int64_t>> numbers_;
  std::vector<std::unique_ptr<XLA_FFI_Scalar>> scalars_;
  std::vector<XLA_FFI_ByteSpan*> names_;
  std::vector<XLA_FFI_AttrType> types_;
  std::vector<void*> attributes_;
};

// The fake's.
std::string DriverFile() {
  Config config;
  std::vector<std::string> warnings;
  EXPECT_OK(ReadConfig(&config, &warnings));
  return config.cuda_library;
}

CudaDriver Driver() {
  CudaDriver driver;
  EXPECT_OK(LoadCudaDriver(DriverFile(), &driver));
  return driver;
}

const Topology& Place() {
  static const Topology topology = ProcessEngine()->topology();
  return topology;
}
float Ranks() { return static_cast<float>(Place().size); }

// A tensor as XLA hands it to a call.
struct Tensor {
  char* data;
  int64_t count;
};

Request RequestOf(Collective kind, const std::string& name, const std::vector<Tensor>& tensors) {
  Request request;
  request.kind = kind;
  request.key.name = name;
  for (const Tensor& tensor : tensors) {
    request.tensors.push_back({DType::kFloat32, {tensor.count}});
  }
  return request;
}

// A GPU with XLA's stream, and memory for an execution's numbers, which the host never looks into.
struct Execution {
  Execution()
      : gpu(Driver(), Place().local_rank),
        run(&gpu.driver, gpu.context, 8),
        token(&gpu.driver, gpu.context, 8) {}

  std::unique_ptr<GpuMemory> Allocate(int64_t bytes) const {
    return std::make_unique<GpuMemory>(&gpu.driver, gpu.context, bytes);
  }
  std::string Begin() {
    return Frame().Result(run.data(), XLA_FFI_DataType_S64, {}).Call(kBeginCall, gpu.stream);
  }
  std::string Start(const Request& request, const std::vector<Tensor>& operands,
                    const std::vector<Tensor>& results, const GpuMemory& number) {
    Frame frame;
    for (const Tensor& t : operands) frame.Operand(t.data, XLA_FFI_DataType_F32, {t.count});
    frame.Operand(run.data(), XLA_FFI_DataType_S64, {});
    for (const Tensor& t : results) frame.Result(t.data, XLA_FFI_DataType_F32, {t.count});
    return frame.Result(number.data(), XLA_FFI_DataType_S64, {})
        .Attribute("anonymous", 0, XLA_FFI_DataType_PRED)
        .Attribute("request", ToText(request))
        .Call(kStartCall, gpu.stream);
  }
  // A sum that is tripled, in place.
  std::string StartSum(const std::string& name, const Tensor& tensor, const GpuMemory& number) {
    Request request = RequestOf(Collective::kAllReduce, name, {tensor});
    request.reduction = {ReduceOp::kSum, 1.0, 3.0};
    return Start(request, {tensor}, {tensor}, number);
  }
  // `rest`: what is handed on, in place.
  std::string Done(const std::vector<Tensor>& results, const std::vector<const GpuMemory*>& numbers,
                   const std::vector<Tensor>& rest = {}) {
    Frame frame;
    for (const Tensor& t : results) {
      frame.Operand(t.data, XLA_FFI_DataType_F32, {t.count});
      frame.Result(t.data, XLA_FFI_DataType_F32, {t.count});
    }
    for (const GpuMemory* t : numbers) frame.Operand(t->data(), XLA_FFI_DataType_S64, {});
    frame.Result(token.data(), XLA_FFI_DataType_S64, {});
    for (const Tensor& t : rest) {
      frame.Operand(t.data, XLA_FFI_DataType_F32, {t.count});
      frame.Result(t.data, XLA_FFI_DataType_F32, {t.count});
    }
    return frame.Attribute("pending", static_cast<int64_t>(numbers.size()), XLA_FFI_DataType_S64)
        .Attribute("results", static_cast<int64_t>(results.size()), XLA_FFI_DataType_S64)
        .Call(kDoneCall, gpu.stream);
  }
  void Write(char* to, const std::vector<float>& values) {
    const CudaScope scope(gpu.driver, gpu.context);
    EXPECT_EQ(gpu.driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(to), values.data(),
                                              values.size() * sizeof(float), gpu.stream),
              cuda::kSuccess);
  }
  // What XLA's stream finds there when it comes to it.
  void Read(const char* from, float* value) {
    const CudaScope scope(gpu.driver, gpu.context);
    EXPECT_EQ(gpu.driver.cuMemcpyDtoHAsync_v2(value, reinterpret_cast<uintptr_t>(from),
                                              sizeof *value, gpu.stream),
              cuda::kSuccess);
  }
  void Synchronize() {
    EXPECT_OK(gpu.device.AwaitStream(gpu.stream));
    float ignored = 0.0f;
    EXPECT_OK(gpu.device.CopyToHost(&ignored, run.data(), sizeof ignored));
  }

  GpuRank gpu;
  const GpuMemory run;
  const GpuMemory token;
};

TEST(EveryCallIsThereForGpus) {
  for (const char* name : {kBeginCall, kStartCall, kDoneCall, kNoteCall}) {
    EXPECT_TRUE(Handlers().count(std::string("CUDA ") + name) == 1);
  }
  EXPECT_EQ(Handlers().size(), size_t{9});  // and for the host, which has one more: kFindCall
}

// First of those that keep numbers: memory is used again, and so are the addresses of numbers.
TEST(ADoneOfANumberThatNobodyHasWritten) {
  Execution execution;
  const auto memory = execution.Allocate(8), never = execution.Allocate(8);
  EXPECT_EQ(execution.Begin(), std::string());
  EXPECT_CONTAINS(execution.Done({{memory->data(), 1}}, {never.get()}), "malformed");
}

// Start and done return while the stream has not even come to the tensor; what the stream does
// after the done sees the result, of which there is so much that it takes a while.
TEST(TheStreamWaitsAndTheHostDoesNot) {
  Execution execution;
  constexpr int64_t kCount = 1 << 22;
  const auto memory = execution.Allocate(kCount * 4), number = execution.Allocate(8);
  const Tensor tensor{memory->data(), kCount};
  std::atomic<bool> release{false};
  HoldUntil(&release, execution.gpu.stream, DriverFile());
  execution.Write(tensor.data, std::vector<float>(kCount, 2.0f));
  EXPECT_EQ(execution.Begin(), std::string());
  EXPECT_EQ(execution.StartSum("t", tensor, *number), std::string());
  EXPECT_EQ(execution.Done({tensor}, {number.get()}), std::string());
  float last = 0.0f;
  execution.Read(tensor.data + (kCount - 1) * 4, &last);
  EXPECT_EQ(last, 0.0f);  // nothing has happened yet
  release.store(true);
  execution.Synchronize();
  EXPECT_EQ(last, 6.0f * Ranks());
  EXPECT_EQ(ProcessPendingCollectives().size(), size_t{0});
}

TEST(SeveralAreUnderWayAtOnceAndEndInAnyOrder) {
  Execution execution;
  const auto memory = execution.Allocate(8);
  const auto of_a = execution.Allocate(8), of_b = execution.Allocate(8);
  const Tensor a{memory->data(), 1}, b{memory->data() + 4, 1};
  for (int step = 1; step <= 20; ++step) {
    const float value = static_cast<float>(step);
    execution.Write(a.data, {value, 10 * value});
    EXPECT_EQ(execution.Begin(), std::string());
    EXPECT_EQ(execution.StartSum("a", a, *of_a), std::string());
    EXPECT_EQ(execution.StartSum("b", b, *of_b), std::string());
    if (step % 2 == 0) {  // as the gradients of a step do
      EXPECT_EQ(execution.Done({a, b}, {of_a.get(), of_b.get()}), std::string());
    } else {
      EXPECT_EQ(execution.Done({b}, {of_b.get()}), std::string());
      EXPECT_EQ(execution.Done({a}, {of_a.get()}), std::string());
    }
    float got_a = 0.0f, got_b = 0.0f;
    execution.Read(a.data, &got_a);
    execution.Read(b.data, &got_b);
    execution.Synchronize();
    EXPECT_EQ(got_a, 3 * value * Ranks());
    EXPECT_EQ(got_b, 30 * value * Ranks());
  }
}

// An allgather, whose result lies elsewhere; a barrier, which has no tensor; and the done of
// nothing that comes after a loop.
TEST(WhatIsNotInPlace) {
  Execution execution;
  const auto memory = execution.Allocate(4), all = execution.Allocate(4 * Place().size);
  const auto number = execution.Allocate(8);
  const Tensor mine{memory->data(), 1}, gathered{all->data(), Place().size};
  execution.Write(mine.data, {static_cast<float>(Place().rank + 1)});
  EXPECT_EQ(execution.Begin(), std::string());
  const Request gather = RequestOf(Collective::kAllGather, "g", {mine});
  EXPECT_EQ(execution.Start(gather, {mine}, {gathered}, *number), std::string());
  EXPECT_EQ(execution.Done({gathered}, {number.get()}), std::string());
  float last = 0.0f;
  execution.Read(gathered.data + 4 * (Place().size - 1), &last);
  const Request barrier = RequestOf(Collective::kBarrier, "b", {});
  EXPECT_EQ(execution.Start(barrier, {}, {}, *number), std::string());
  EXPECT_EQ(execution.Done({}, {number.get()}), std::string());
  EXPECT_EQ(execution.Done({}, {}, {mine}), std::string());
  float untouched = 0.0f;
  execution.Read(mine.data, &untouched);
  execution.Synchronize();
  EXPECT_EQ(last, Ranks());
  EXPECT_EQ(untouched, static_cast<float>(Place().rank + 1));
}

TEST(WhatFailsIsSaidByTheDone) {
  Execution execution;
  const auto memory = execution.Allocate(8);
  const auto number = execution.Allocate(8);
  const Tensor a{memory->data(), 1}, moved{memory->data() + 4, 1};
  EXPECT_EQ(execution.Begin(), std::string());
  EXPECT_CONTAINS(execution.Start(RequestOf(Collective::kAllReduce, "a", {a}), {}, {}, *number),
                  "malformed");
  execution.Write(a.data, {1.0f});
  EXPECT_EQ(execution.StartSum("a", a, *number), std::string());
  EXPECT_CONTAINS(execution.Done({moved}, {number.get()}), "XLA moved a tensor");
  execution.Synchronize();
  EXPECT_EQ(ProcessPendingCollectives().size(), size_t{0});
}

}  // namespace
}  // namespace testing
}  // namespace tfhvd

int main(int argc, char** argv) {
  const tfhvd::Status status = tfhvd::InitProcess("");
  if (!status.ok()) {
    std::printf("%s\n", status.ToString().c_str());
    return 1;
  }
  const int result = tfhvd::testing::Registry::Get().Main(argc, argv);
  bool ended = false;
  ended = tfhvd::ShutdownProcess("").ok() && tfhvd::FinalizeProcess(&ended).ok() && ended;
  return ended ? result : 1;
}
