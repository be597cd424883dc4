// The calls of compiled functions on a GPU (cc/xla/calls.h), as XLA's runtime for GPUs makes them,
// on the stand-in for the driver and NCCL: frames are made by hand, for XLA on GPUs needs one.
// Built and run by tests/xla/test_gpu_calls.py.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cc/base/config.h"
#include "cc/process/process.h"
#include "cc/process/tickets.h"
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

// A GPU with XLA's stream, and memory for an execution's numbers, which the host never looks into.
struct Execution {
  explicit Execution(const CudaDriver& driver)
      : gpu(driver, 0), run(&gpu.driver, gpu.context, 8), token(&gpu.driver, gpu.context, 8) {}

  std::string Begin() {
    return Frame().Result(run.data(), XLA_FFI_DataType_S64, {}).Call(kBeginCall, gpu.stream);
  }
  // A sum that is tripled, in place.
  std::string Start(const std::string& name, const GpuMemory& tensor, int64_t count,
                    const GpuMemory& ticket) {
    Request request;
    request.key.name = name;
    request.reduction = {ReduceOp::kSum, 1.0, 3.0};
    request.tensors.push_back({DType::kFloat32, {count}});
    return Frame()
        .Operand(tensor.data(), XLA_FFI_DataType_F32, {count})
        .Operand(run.data(), XLA_FFI_DataType_S64, {})
        .Result(tensor.data(), XLA_FFI_DataType_F32, {count})
        .Result(ticket.data(), XLA_FFI_DataType_S64, {})
        .Attribute("anonymous", 0, XLA_FFI_DataType_PRED)
        .Attribute("request", ToText(request))
        .Call(kStartCall, gpu.stream);
  }
  std::string Done(const GpuMemory& tensor, int64_t count, const GpuMemory& ticket) {
    return Frame()
        .Operand(tensor.data(), XLA_FFI_DataType_F32, {count})
        .Operand(ticket.data(), XLA_FFI_DataType_S64, {})
        .Result(tensor.data(), XLA_FFI_DataType_F32, {count})
        .Result(token.data(), XLA_FFI_DataType_S64, {})
        .Attribute("results", 1, XLA_FFI_DataType_S64)
        .Attribute("tickets", 1, XLA_FFI_DataType_S64)
        .Call(kDoneCall, gpu.stream);
  }
  void Write(const GpuMemory& to, const std::vector<float>& values) {
    const CudaScope scope(gpu.driver, gpu.context);
    EXPECT_EQ(gpu.driver.cuMemcpyHtoDAsync_v2(reinterpret_cast<uintptr_t>(to.data()), values.data(),
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

CudaDriver Driver() {
  Config config;
  std::vector<std::string> warnings;
  CudaDriver driver;
  EXPECT_OK(ReadConfig(&config, &warnings));
  EXPECT_OK(LoadCudaDriver(config.cuda_library, &driver));
  return driver;
}

// The stream does nothing more until `release` is set.
void HoldUntil(std::atomic<bool>* release, cuda::Stream stream) {
  Config config;
  std::vector<std::string> warnings;
  EXPECT_OK(ReadConfig(&config, &warnings));
  void* const library = dlopen(config.cuda_library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto launch = reinterpret_cast<int (*)(cuda::Stream, void (*)(void*), void*)>(
      dlsym(library, "cuLaunchHostFunc"));
  const auto hold = [](void* held) {
    while (!static_cast<std::atomic<bool>*>(held)->load()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  };
  EXPECT_EQ(launch(stream, hold, release), 0);
}

// Start and done return while the stream has not even come to the tensor; what the stream does
// after the done sees the result, of which there is so much that it takes a while.
TEST(TheStreamWaitsAndTheHostDoesNot) {
  Execution execution(Driver());
  constexpr int64_t kCount = 1 << 22;
  const GpuRank& gpu = execution.gpu;
  const GpuMemory tensor(&gpu.driver, gpu.context, kCount * 4);
  const GpuMemory ticket(&gpu.driver, gpu.context, 8);
  std::atomic<bool> release{false};
  HoldUntil(&release, gpu.stream);
  execution.Write(tensor, std::vector<float>(kCount, 2.0f));
  EXPECT_EQ(execution.Begin(), std::string());
  EXPECT_EQ(execution.Start("t", tensor, kCount, ticket), std::string());
  EXPECT_EQ(execution.Done(tensor, kCount, ticket), std::string());
  float last = 0.0f;
  execution.Read(tensor.data() + (kCount - 1) * 4, &last);
  EXPECT_EQ(last, 0.0f);  // nothing has happened yet
  release.store(true);
  execution.Synchronize();
  EXPECT_EQ(last, 6.0f);
  EXPECT_EQ(ProcessTickets().size(), size_t{0});
}

TEST(SeveralAreUnderWayAtOnceAndEndInAnyOrder) {
  Execution execution(Driver());
  const GpuRank& gpu = execution.gpu;
  const GpuMemory a(&gpu.driver, gpu.context, 4), b(&gpu.driver, gpu.context, 4);
  const GpuMemory of_a(&gpu.driver, gpu.context, 8), of_b(&gpu.driver, gpu.context, 8);
  for (int step = 1; step <= 20; ++step) {
    const float value = static_cast<float>(step);
    execution.Write(a, {value});
    execution.Write(b, {10 * value});
    EXPECT_EQ(execution.Begin(), std::string());
    EXPECT_EQ(execution.Start("a", a, 1, of_a), std::string());
    EXPECT_EQ(execution.Start("b", b, 1, of_b), std::string());
    EXPECT_EQ(execution.Done(b, 1, of_b), std::string());
    EXPECT_EQ(execution.Done(a, 1, of_a), std::string());
    float got_a = 0.0f, got_b = 0.0f;
    execution.Read(a.data(), &got_a);
    execution.Read(b.data(), &got_b);
    execution.Synchronize();
    EXPECT_EQ(got_a, 3 * value);
    EXPECT_EQ(got_b, 30 * value);
  }
}

TEST(WhatFailsIsSaidByTheDone) {
  Execution execution(Driver());
  const GpuRank& gpu = execution.gpu;
  const GpuMemory a(&gpu.driver, gpu.context, 4), ticket(&gpu.driver, gpu.context, 8);
  const GpuMemory never(&gpu.driver, gpu.context, 8);
  EXPECT_EQ(execution.Begin(), std::string());
  EXPECT_CONTAINS(execution.Done(a, 1, never), "malformed");
  execution.Write(a, {1.0f});
  EXPECT_EQ(execution.Start("a", a, 1, ticket), std::string());
  const GpuMemory moved(&gpu.driver, gpu.context, 4);
  EXPECT_CONTAINS(execution.Done(moved, 1, ticket), "XLA moved a tensor");
  execution.Synchronize();
  EXPECT_EQ(ProcessTickets().size(), size_t{0});
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
  const tfhvd::Status ended = tfhvd::ShutdownProcess("");
  return ended.ok() ? result : 1;
}
