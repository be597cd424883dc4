// Lowerings: how the collectives of cc/tf are compiled: each becomes the calls of calls.h.
#include "cc/xla/lowering.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
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
#include "xla/hlo/builder/xla_builder.h"
#include "xla/shape_util.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// Writes the call that waits for `begun`. Returns their results, in order, and then the values of
// `hand_on` unchanged, which become available after the collectives.
absl::StatusOr<std::vector<XlaOp>> WriteDone(xla::XlaBuilder* builder, Computation* computation,
                                             const std::vector<Begun>& begun,
                                             const std::vector<XlaOp>& hand_on = {}) {
  std::vector<XlaOp> operands;
  for (const Begun& one : begun) {
    operands.insert(operands.end(), one.results.begin(), one.results.end());
  }
  const size_t count = operands.size();
  for (const Begun& one : begun) operands.push_back(one.pending);
  const size_t handed = operands.size();
  operands.insert(operands.end(), hand_on.begin(), hand_on.end());
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
  InPlace in_place = Leading(count);
  for (size_t i = handed; i < handed + hand_on.size(); ++i) {
    in_place.emplace_back(results.size(), i);
    results.push_back(shapes[i]);
  }
  const std::string attributes = "{results = " + std::to_string(count) +
                                 " : i64, pending = " + std::to_string(begun.size()) + " : i64}";
  const XlaOp call = Call(builder, kDoneCall, operands, shapes, results, attributes, in_place);
  const XlaOp token = xla::GetTupleElement(call, static_cast<int64_t>(count));
  computation->before_next_done = {token};
  for (const Begun& one : begun) computation->names[one.name] = token;
  std::vector<XlaOp> finished;
  for (size_t i = 0; i < results.size(); ++i) {
    if (i != count) finished.push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
  }
  return finished;
}

void SetOutputs(XlaOpKernelContext* ctx, const std::vector<XlaOp>& values) {
  for (size_t i = 0; i < values.size(); ++i) ctx->SetOutput(static_cast<int>(i), values[i]);
}

// Returns the number of ranks in the set, and this rank's index among them.
absl::Status IndexIn(int32_t process_set, int* size, int* index) {
  const std::shared_ptr<Engine> engine = ProcessEngine();
  if (engine == nullptr) return ToAbsl(NotInitialized());
  if (const std::optional<Place> place = RehearsedPlace(); place.has_value() && process_set == 0) {
    *size = place->size;
    *index = place->rank;
    return absl::OkStatus();
  }
  const ProcessSetTable::Members members = engine->process_sets().Find(process_set);
  if (members == nullptr) return ToAbsl(engine->process_sets().WhyMissing(process_set));
  const auto found = std::find(members->begin(), members->end(), engine->topology().rank);
  *size = static_cast<int>(members->size());
  *index = static_cast<int>(found - members->begin());
  if (found != members->end()) return absl::OkStatus();
  return absl::InvalidArgumentError("This rank is not in process set " +
                                    std::to_string(process_set) + ".");
}

bool IsInPlace(Collective kind) {
  return kind == Collective::kAllReduce || kind == Collective::kAdasum ||
         kind == Collective::kBroadcast;
}

class CollectiveLowering : public Lowering {
 public:
  CollectiveLowering(OpKernelConstruction* ctx, Collective kind) : Lowering(ctx) {
    OP_REQUIRES_OK(ctx, ReadRequest(ctx, kind, &request_, &anonymous_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("deferred", &deferred_));
  }

 protected:
  absl::Status Write(XlaOpKernelContext* ctx, Computation* computation) const override {
    Begun begun;
    TF_RETURN_IF_ERROR(WriteStart(ctx, computation, &begun));
    computation->before_next_done.push_back(begun.pending);
    if (deferred_ && !begun.results.empty()) {
      SetOutputs(ctx, begun.results);
      computation->deferred.push_back(std::move(begun));
      return absl::OkStatus();
    }
    TF_ASSIGN_OR_RETURN(const std::vector<XlaOp> results,
                        WriteDone(ctx->builder(), computation, {begun}));
    SetOutputs(ctx, results);
    return absl::OkStatus();
  }

  Request request_;  // without tensors

 private:
  // The number of inputs that the collective transports; they come first.
  virtual int NumTensors(XlaOpKernelContext* ctx) const { return ctx->num_inputs(); }

  // Adds the parts of the request that are in further inputs.
  virtual absl::Status AddArguments(XlaOpKernelContext* /*ctx*/, Request* /*request*/) const {
    return absl::OkStatus();
  }

  absl::Status WriteStart(XlaOpKernelContext* ctx, Computation* computation, Begun* begun) const {
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
    operands.push_back(computation->run);
    shapes.push_back(Number());
    results.push_back(Number());
    TF_RETURN_IF_ERROR(AddArguments(ctx, &request));
    TF_RETURN_IF_ERROR(ComeAfter(ctx, computation, &operands, &shapes));
    const std::string attributes = "{request = \"" + ToText(request) +
                                   "\", anonymous = " + (anonymous_ ? "true" : "false") + "}";
    const XlaOp call = Call(ctx->builder(), kStartCall, operands, shapes, results, attributes,
                            Leading(in_place ? count : 0));
    for (size_t i = 0; i < count; ++i) {
      begun->results.push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
    }
    begun->pending = xla::GetTupleElement(call, static_cast<int64_t>(count));
    begun->name = NameIn(request_);
    if (!anonymous_) computation->names[begun->name] = std::nullopt;
    return absl::OkStatus();
  }

  // Makes the start wait for an earlier collective of its name, which must be over; and for the
  // last loop or branch, which may have contained one.
  absl::Status ComeAfter(XlaOpKernelContext* ctx, Computation* computation,
                         std::vector<XlaOp>* operands, std::vector<xla::Shape>* shapes) const {
    const auto last = computation->names.find(NameIn(request_));
    if (last != computation->names.end() && !anonymous_) {
      if (!last->second.has_value()) {
        return absl::InvalidArgumentError(
            std::string(CollectiveName(request_.kind)) + " '" + request_.key.name +
            "' of a compiled function begins while another collective of this name is under way. "
            "Give it a name of its own (name=...), or an input that depends on the other's "
            "result.");
      }
      operands->push_back(*last->second);
      shapes->push_back(Number());
    }
    if (!computation->last_region.valid()) return absl::OkStatus();
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->builder()->GetShape(computation->last_region));
    operands->push_back(computation->last_region);
    shapes->push_back(RowMajor(shape));
    return absl::OkStatus();
  }

  static std::string NameIn(const Request& request) {
    return std::to_string(request.key.process_set) + "/" + request.key.name;
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

  // Changes an operand's shape to that of its result on this rank.
  absl::Status SetResultShape(const TensorSpec&, xla::Shape* shape) const {
    if (IsInPlace(request_.kind)) return absl::OkStatus();
    int size = 0;
    int index = 0;
    TF_RETURN_IF_ERROR(IndexIn(request_.key.process_set, &size, &index));
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
        shape->set_dimensions(0, RowsOfPart(rows, size, index));
        break;
      case Collective::kAllToAll:
        if (rows % size != 0) {
          return absl::InvalidArgumentError(
              "alltoall '" + request_.key.name +
              "' of a compiled function sends the same number of rows to each rank. Received: " +
              std::to_string(rows) + " rows for " + std::to_string(size) +
              " ranks. Expected: a number of rows that the number of ranks divides.");
        }
        break;
      default:
        break;
    }
    return absl::OkStatus();
  }

  bool anonymous_ = false;
  bool deferred_ = false;
};

template <Collective kKind>
class LoweringOf : public CollectiveLowering {
 public:
  explicit LoweringOf(OpKernelConstruction* ctx) : CollectiveLowering(ctx, kKind) {}
};

// The weight must follow from shapes only, as the number of samples in a batch does.
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

// Equal parts only: other sizes would be known only at run time.
class AlltoallLowering : public CollectiveLowering {
 public:
  explicit AlltoallLowering(OpKernelConstruction* ctx)
      : CollectiveLowering(ctx, Collective::kAllToAll) {}

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation* computation) const override {
    TF_ASSIGN_OR_RETURN(const xla::Shape rows, ctx->InputXlaShape(0));
    TF_ASSIGN_OR_RETURN(const xla::Shape splits, ctx->InputXlaShape(1));
    if (splits.dimensions(0) != 0) {
      return absl::InvalidArgumentError(
          "alltoall '" + request_.key.name +
          "' has splits in a function with jit_compile=True, where shapes are fixed. "
          "Leave out splits, or call it outside of the function.");
    }
    TF_RETURN_IF_ERROR(CollectiveLowering::Write(ctx, computation));
    int size = 0;
    int index = 0;
    TF_RETURN_IF_ERROR(IndexIn(request_.key.process_set, &size, &index));
    const auto each = static_cast<int32_t>(rows.dimensions(0) / size);
    ctx->SetOutput(1, xla::ConstantR1<int32_t>(ctx->builder(), size, each));
    return absl::OkStatus();
  }

  int NumTensors(XlaOpKernelContext*) const override { return 1; }
};

// TfhvdDone: see cc/tf/done.cc.
class DoneLowering : public Lowering {
 public:
  using Lowering::Lowering;

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation* computation) const override {
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
    SetOutputs(ctx, results);
    return absl::OkStatus();
  }
};

// TfhvdAfterCollectives: see cc/tf/ordering.cc. A done without collectives, which passes the value
// on in place.
class AfterCollectivesLowering : public Lowering {
 public:
  using Lowering::Lowering;

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation* computation) const override {
    TF_ASSIGN_OR_RETURN(const std::vector<XlaOp> same,
                        WriteDone(ctx->builder(), computation, {}, {ctx->Input(0)}));
    SetOutputs(ctx, same);
    return absl::OkStatus();
  }
};

// TfhvdBeforeCollectives: see cc/tf/ordering.cc.
class BeforeCollectivesLowering : public Lowering {
 public:
  using Lowering::Lowering;

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation* computation) const override {
    computation->last_region = ctx->Input(0);
    computation->before_next_done.push_back(ctx->Input(0));
    return absl::OkStatus();
  }
};

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
TFHVD_REGISTER_LOWERING("TfhvdAfterCollectives", AfterCollectivesLowering);
TFHVD_REGISTER_LOWERING("TfhvdBeforeCollectives", BeforeCollectivesLowering);

}  // namespace
}  // namespace tfhvd
