// FiniteLowering: how the ops of cc/tf/not_finite.cc are compiled.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/flow/finite_vote.h"
#include "cc/tf/attributes.h"
#include "cc/tf/types.h"
#include "cc/xla/calls.h"
#include "cc/xla/lowering.h"
#include "cc/xla/request_text.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelConstruction;
using tensorflow::XlaOpKernelContext;
using xla::XlaOp;

// Adds the op's inputs; returns how many there are.
absl::StatusOr<int> Inputs(XlaOpKernelContext* ctx, std::vector<XlaOp>* operands,
                           std::vector<xla::Shape>* shapes) {
  for (int i = 0; i < ctx->num_inputs(); ++i) {
    TF_ASSIGN_OR_RETURN(const xla::Shape shape, ctx->InputXlaShape(i));
    operands->push_back(ctx->Input(i));
    shapes->push_back(RowMajor(shape));
  }
  return ctx->num_inputs();
}

xla::Shape Row(xla::PrimitiveType type, int64_t values) {
  return xla::ShapeUtil::MakeShapeWithDescendingLayout(type, {values});
}

// Only on the host: on GPUs, operations of TensorFlow find the values.
class FindNotFiniteLowering : public Lowering {
 public:
  explicit FindNotFiniteLowering(OpKernelConstruction* ctx) : Lowering(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("numbers", &numbers_));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("most", &most_));
  }

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation*) const override {
    std::vector<XlaOp> operands;
    std::vector<xla::Shape> shapes;
    TF_ASSIGN_OR_RETURN(const int count, Inputs(ctx, &operands, &shapes));
    std::vector<xla::Shape> results = {Row(xla::S64, kFoundValues), Row(xla::F32, kVoteValues)};
    InPlace in_place;
    std::string numbers;
    std::string dtypes;
    for (int i = 1; i < count; ++i) {
      DType dtype;
      if (!ToDType(ctx->input_type(i), &dtype)) {
        return absl::InternalError("A gradient is of a type that cannot be looked at.");
      }
      const char* const comma = i == 1 ? "" : ", ";
      numbers += comma + std::to_string(numbers_[static_cast<size_t>(i - 1)]);
      dtypes += comma + std::to_string(static_cast<int>(dtype));
      in_place.emplace_back(results.size(), i);
      results.push_back(shapes[static_cast<size_t>(i)]);
    }
    const XlaOp call =
        Call(ctx->builder(), kFindCall, operands, shapes, results,
             "{numbers = array<i64: " + numbers + ">, dtypes = array<i64: " + dtypes +
                 ">, most = " + std::to_string(most_) + " : i64}",
             in_place);
    for (int i = 0; i < static_cast<int>(results.size()); ++i) {
      ctx->SetOutput(i, xla::GetTupleElement(call, i));
    }
    return absl::OkStatus();
  }

  std::vector<int64_t> numbers_;
  int64_t most_ = 0;
};

class NoteNotFiniteLowering : public Lowering {
 public:
  explicit NoteNotFiniteLowering(OpKernelConstruction* ctx) : Lowering(ctx) {
    OP_REQUIRES_OK(ctx, ReadGradients(ctx, &gradients_));
  }

 private:
  absl::Status Write(XlaOpKernelContext* ctx, Computation*) const override {
    std::vector<XlaOp> operands;
    std::vector<xla::Shape> shapes;
    TF_RETURN_IF_ERROR(Inputs(ctx, &operands, &shapes).status());
    Call(ctx->builder(), kNoteCall, operands, shapes, {Number()},
         "{gradients = \"" + ToText(gradients_) + "\"}", {});
    return absl::OkStatus();
  }

  SharedGradients gradients_;
};

TFHVD_REGISTER_LOWERING("TfhvdNoteNotFinite", NoteNotFiniteLowering);
REGISTER_KERNEL_BUILDER(Name("TfhvdFindNotFinite").Device(tensorflow::DEVICE_CPU_XLA_JIT),
                        FindNotFiniteLowering);

}  // namespace
}  // namespace tfhvd
