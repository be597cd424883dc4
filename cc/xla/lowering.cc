// How the ops of cc/tf are compiled: each becomes the calls of calls.h. The one file that includes
// XLA's compiler, which takes most of its time to compile.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/process/process.h"
#include "cc/tf/attributes.h"
#include "cc/tf/status.h"
#include "cc/tf/types.h"
#include "cc/xla/calls.h"
#include "cc/xla/computation.h"
#include "cc/xla/request_text.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// Writes the call that waits for `begun`; gives their results, in order.
absl::StatusOr<std::vector<XlaOp>> WriteDone(xla::XlaBuilder* builder, Computation* computation,
                                             const std::vector<Begun>& begun) {
  std::vector<XlaOp> operands;
  for (const Begun& one : begun) {
    operands.insert(operands.end(), one.results.begin(), one.results.end());
  }
  const size_t count = operands.size();
  for (const Begun& one : begun) operands.push_back(one.ticket);
  for (const Begun& one : begun) {
    operands.insert(operands.end(), one.kept.begin(), one.kept.end());
  }
  operands.insert(operands.end(), computation->before_next_done.begin(),
                  computation->before_next_done.end());
  std::vector<xla::Shape> shapes;
  for (XlaOp operand : operands) {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, builder->GetShape(operand));
    shapes.push_back(RowMajor(shape));
  }
  std::vector<xla::Shape> results(shapes.begin(), shapes.begin() + static_cast<ptrdiff_t>(count));
  results.push_back(Number());
  const std::string attributes = "{results = " + std::to_string(count) +
                                 " : i64, tickets = " + std::to_string(begun.size()) + " : i64}";
  const XlaOp call =
      Call(builder, kDoneCall, operands, shapes, results, attributes, Leading(count));
  computation->before_next_done = {xla::GetTupleElement(call, static_cast<int64_t>(count))};
  std::vector<XlaOp> finished;
  for (size_t i = 0; i < count; ++i) {
    finished.push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
  }
  return finished;
}

// The set's ranks, in order; and this rank's place among them.
absl::Status PlaceIn(int32_t process_set, int* size, int* place) {
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return ToAbsl(NotInitialized());
  const ProcessSetTable::Members members = engine->process_sets().Find(process_set);
  if (members == nullptr) {
    return absl::InvalidArgumentError("There is no process set " + std::to_string(process_set) +
                                      ": it was removed, or never made.");
  }
  const auto found = std::find(members->begin(), members->end(), engine->topology().rank);
  *size = static_cast<int>(members->size());
  *place = static_cast<int>(found - members->begin());
  if (found != members->end()) return absl::OkStatus();
  return absl::InvalidArgumentError("This rank is not in process set " +
                                    std::to_string(process_set) + ".");
}

bool IsInPlace(Collective kind) {
  return kind == Collective::kAllReduce || kind == Collective::kAdasum ||
         kind == Collective::kBroadcast;
}

class CollectiveLowering : public tensorflow::XlaOpKernel {
 public:
  CollectiveLowering(OpKernelConstruction* ctx, Collective kind) : XlaOpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ReadRequest(ctx, kind, &request_, &anonymous_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("deferred", &deferred_));
  }

  void Compile(XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Write(ctx)); }

 private:
  // The inputs that travel, which come first.
  virtual int NumTensors(XlaOpKernelContext* ctx) const { return ctx->num_inputs(); }

  // What of the request is in further inputs.
  virtual absl::Status AddArguments(XlaOpKernelContext* /*ctx*/, Request* /*request*/) const {
    return absl::OkStatus();
  }

  absl::Status Write(XlaOpKernelContext* ctx) const {
    Computation* computation = nullptr;
    TF_RETURN_IF_ERROR(ComputationOf(ctx, &computation));
    const tensorflow::core::ScopedUnref unref(computation);
    Begun begun;
    TF_RETURN_IF_ERROR(WriteStart(ctx, computation->run, &begun));
    computation->before_next_done.push_back(begun.ticket);
    if (deferred_ && !begun.results.empty()) {
      for (size_t i = 0; i < begun.results.size(); ++i) {
        ctx->SetOutput(static_cast<int>(i), begun.results[i]);
      }
      computation->deferred.push_back(std::move(begun));
      return absl::OkStatus();
    }
    TF_ASSIGN_OR_RETURN(const std::vector<XlaOp> results,
                        WriteDone(ctx->builder(), computation, {begun}));
    for (size_t i = 0; i < results.size(); ++i) ctx->SetOutput(static_cast<int>(i), results[i]);
    return absl::OkStatus();
  }

  absl::Status WriteStart(XlaOpKernelContext* ctx, XlaOp run, Begun* begun) const {
    Request request = request_;
    std::vector<XlaOp> operands;
    std::vector<xla::Shape> shapes, results;
    for (int i = 0; i < NumTensors(ctx); ++i) {
      TF_ASSIGN_OR_RETURN(xla::Shape shape, ctx->InputXlaShape(i));
      TensorSpec spec;
      TF_RETURN_IF_ERROR(ToSpec(ctx->input_type(i), shape, &spec));
      shape = RowMajor(shape);
      operands.push_back(ctx->Input(i));
      shapes.push_back(shape);
      TF_RETURN_IF_ERROR(SetResultShape(spec, &shape));
      results.push_back(shape);
      request.tensors.push_back(std::move(spec));
    }
    const bool in_place = IsInPlace(request.kind);
    const size_t count = operands.size();
    if (!in_place) begun->kept = operands;
    operands.push_back(run);
    shapes.push_back(Number());
    results.push_back(Number());
    TF_RETURN_IF_ERROR(AddArguments(ctx, &request));
    const std::string attributes = "{request = \"" + ToText(request) +
                                   "\", anonymous = " + (anonymous_ ? "true" : "false") + "}";
    const XlaOp call = Call(ctx->builder(), kStartCall, operands, shapes, results, attributes,
                            Leading(in_place ? count : 0));
    for (size_t i = 0; i < count; ++i) {
      begun->results.push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
    }
    begun->ticket = xla::GetTupleElement(call, static_cast<int64_t>(count));
    return absl::OkStatus();
  }

  absl::Status ToSpec(tensorflow::DataType dtype, const xla::Shape& shape, TensorSpec* spec) const {
    if (!ToDType(dtype, &spec->dtype)) {
      return absl::InvalidArgumentError("'" + request_.key.name +
                                        "': tfhvd has no collectives for the type " +
                                        tensorflow::DataTypeString(dtype));
    }
    if (shape.is_dynamic()) {
      return absl::InvalidArgumentError(
          "'" + request_.key.name +
          "' is a tensor whose shape is known only at run time. Received: " + shape.ToString() +
          ". Expected: a fixed shape, in a function with jit_compile=True.");
    }
    spec->shape.assign(shape.dimensions().begin(), shape.dimensions().end());
    return absl::OkStatus();
  }

  // Makes an operand's shape that of its result on this rank.
  absl::Status SetResultShape(const TensorSpec&, xla::Shape* shape) const {
    if (IsInPlace(request_.kind)) return absl::OkStatus();
    int size = 0;
    int place = 0;
    TF_RETURN_IF_ERROR(PlaceIn(request_.key.process_set, &size, &place));
    if (shape->dimensions().empty()) {
      return absl::InvalidArgumentError(
          "'" + request_.key.name + "': " + CollectiveName(request_.kind) +
          " works on rows. Received: a scalar. Expected: at least one dimension.");
    }
    const int64_t rows = shape->dimensions(0);
    switch (request_.kind) {
      case Collective::kAllGather:
        shape->set_dimensions(0, rows * size);
        break;
      case Collective::kReduceScatter:
        shape->set_dimensions(0, RowsOfPart(rows, size, place));
        break;
      case Collective::kAllToAll:
        if (rows % size != 0) {
          return absl::InvalidArgumentError(
              "alltoall '" + request_.key.name +
              "' sends as many rows to each rank. Received: " + std::to_string(rows) +
              " rows for " + std::to_string(size) + " ranks. Expected: a multiple.");
        }
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

 protected:
  Request request_;  // without tensors
  bool anonymous_ = false;
  bool deferred_ = false;
};

template <Collective kKind>
class LoweringOf : public CollectiveLowering {
 public:
  explicit LoweringOf(OpKernelConstruction* ctx) : CollectiveLowering(ctx, kKind) {}
};

// The weight must follow from shapes alone, as the number of samples in a batch does.
class WeightedAllreduceLowering : public CollectiveLowering {
 public:
  explicit WeightedAllreduceLowering(OpKernelConstruction* ctx)
      : CollectiveLowering(ctx, Collective::kAllReduce) {}

 private:
  int NumTensors(XlaOpKernelContext* ctx) const override { return ctx->num_inputs() - 1; }

  absl::Status AddArguments(XlaOpKernelContext* ctx, Request* request) const override {
    return ctx->ConstantInputAsIntScalar(ctx->num_inputs() - 1, &request->weight);
  }
};

// Equal parts only: their sizes would be known at run time alone.
class AlltoallLowering : public CollectiveLowering {
 public:
  explicit AlltoallLowering(OpKernelConstruction* ctx)
      : CollectiveLowering(ctx, Collective::kAllToAll) {}

  void Compile(XlaOpKernelContext* ctx) override {
    const absl::StatusOr<xla::Shape> rows = ctx->InputXlaShape(0);
    const absl::StatusOr<xla::Shape> splits = ctx->InputXlaShape(1);
    OP_REQUIRES_OK(ctx, rows.status());
    OP_REQUIRES_OK(ctx, splits.status());
    OP_REQUIRES(ctx, splits->dimensions(0) == 0,
                absl::InvalidArgumentError(
                    "alltoall '" + request_.key.name +
                    "' has splits in a function with jit_compile=True, where shapes are fixed. "
                    "Expected: splits=None, or a call outside of it."));
    CollectiveLowering::Compile(ctx);
    int size = 0;
    int place = 0;
    OP_REQUIRES_OK(ctx, PlaceIn(request_.key.process_set, &size, &place));
    const auto each = static_cast<int32_t>(rows->dimensions(0) / size);
    ctx->SetOutput(1, xla::ConstantR1<int32_t>(ctx->builder(), size, each));
  }

 private:
  int NumTensors(XlaOpKernelContext*) const override { return 1; }
};

// TfhvdDone: see cc/tf/done.cc.
class DoneLowering : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Write(ctx)); }

 private:
  static absl::Status Write(XlaOpKernelContext* ctx) {
    Computation* computation = nullptr;
    TF_RETURN_IF_ERROR(ComputationOf(ctx, &computation));
    const tensorflow::core::ScopedUnref unref(computation);
    std::vector<Begun> begun;
    for (int i = 0; i < ctx->num_inputs();) {
      Begun one;
      if (!computation->Take(ctx->Input(i), &one)) {
        return absl::InternalError("TfhvdDone has an input that no deferred collective made: " +
                                   std::to_string(i));
      }
      i += static_cast<int>(one.results.size());
      begun.push_back(std::move(one));
    }
    TF_ASSIGN_OR_RETURN(const std::vector<XlaOp> results,
                        WriteDone(ctx->builder(), computation, begun));
    for (size_t i = 0; i < results.size(); ++i) ctx->SetOutput(static_cast<int>(i), results[i]);
    return absl::OkStatus();
  }
};

// TfhvdTurn: see cc/tf/turn.cc. A done of nothing, which hands on the value in its place.
class TurnLowering : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* ctx) override { OP_REQUIRES_OK(ctx, Write(ctx)); }

 private:
  static absl::Status Write(XlaOpKernelContext* ctx) {
    Computation* computation = nullptr;
    TF_RETURN_IF_ERROR(ComputationOf(ctx, &computation));
    const tensorflow::core::ScopedUnref unref(computation);
    std::vector<XlaOp> operands = {ctx->Input(0)};
    operands.insert(operands.end(), computation->before_next_done.begin(),
                    computation->before_next_done.end());
    std::vector<xla::Shape> shapes;
    for (XlaOp operand : operands) {
      TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->builder()->GetShape(operand));
      shapes.push_back(RowMajor(shape));
    }
    const XlaOp call = Call(ctx->builder(), kDoneCall, operands, shapes, {Number(), shapes[0]},
                            "{results = 0 : i64, tickets = 0 : i64}", {{1, 0}});
    computation->before_next_done = {xla::GetTupleElement(call, 0)};
    ctx->SetOutput(0, xla::GetTupleElement(call, 1));
    return absl::OkStatus();
  }
};

// TfhvdSeen: see cc/tf/turn.cc.
class SeenLowering : public tensorflow::XlaOpKernel {
 public:
  using XlaOpKernel::XlaOpKernel;

  void Compile(XlaOpKernelContext* ctx) override {
    Computation* computation = nullptr;
    OP_REQUIRES_OK(ctx, ComputationOf(ctx, &computation));
    const tensorflow::core::ScopedUnref unref(computation);
    computation->before_next_done.push_back(ctx->Input(0));
  }
};

// Not REGISTER_XLA_OP: TensorFlow makes kernels of what is registered so when it makes its first
// device, and tfhvd's library is loaded later. This is what those kernels are.
#define TFHVD_REGISTER_LOWERING(name, lowering)                                         \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_CPU_XLA_JIT), lowering); \
  REGISTER_KERNEL_BUILDER(Name(name).Device(tensorflow::DEVICE_GPU_XLA_JIT), lowering)

TFHVD_REGISTER_LOWERING("TfhvdAllreduce", LoweringOf<Collective::kAllReduce>);
TFHVD_REGISTER_LOWERING("TfhvdGroupedAllreduce", LoweringOf<Collective::kAllReduce>);
TFHVD_REGISTER_LOWERING("TfhvdWeightedAllreduce", WeightedAllreduceLowering);
TFHVD_REGISTER_LOWERING("TfhvdAllgather", LoweringOf<Collective::kAllGather>);
TFHVD_REGISTER_LOWERING("TfhvdGroupedAllgather", LoweringOf<Collective::kAllGather>);
TFHVD_REGISTER_LOWERING("TfhvdReducescatter", LoweringOf<Collective::kReduceScatter>);
TFHVD_REGISTER_LOWERING("TfhvdGroupedReducescatter", LoweringOf<Collective::kReduceScatter>);
TFHVD_REGISTER_LOWERING("TfhvdAlltoall", AlltoallLowering);
TFHVD_REGISTER_LOWERING("TfhvdBroadcast", LoweringOf<Collective::kBroadcast>);
TFHVD_REGISTER_LOWERING("TfhvdBarrier", LoweringOf<Collective::kBarrier>);
TFHVD_REGISTER_LOWERING("TfhvdDone", DoneLowering);
TFHVD_REGISTER_LOWERING("TfhvdTurn", TurnLowering);
TFHVD_REGISTER_LOWERING("TfhvdSeen", SeenLowering);

}  // namespace
}  // namespace tfhvd
