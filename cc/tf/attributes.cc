#include "cc/tf/attributes.h"

#include <string>

#include "absl/strings/numbers.h"

namespace tfhvd {
namespace {

using tensorflow::OpKernelConstruction;

absl::Status ReadFactor(OpKernelConstruction* ctx, const char* name, double* value) {
  std::string text;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name, &text));
  if (absl::SimpleAtod(text, value)) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " is not a number. Received: '" + text +
                                    "'. Expected: decimal text such as '0.5'.");
}

// Python's number of Adasum, an allreduce that is a separate collective.
constexpr int kAdasumOp = kNumReduceOps;

absl::Status ReadReduction(OpKernelConstruction* ctx, Request* request) {
  Reduction* reduction = &request->reduction;
  int op = 0;
  TF_RETURN_IF_ERROR(ctx->GetAttr("reduce_op", &op));
  const bool adasum = op == kAdasumOp && request->kind == Collective::kAllReduce;
  if (!adasum && (op < 0 || op >= kNumReduceOps)) {
    return absl::InvalidArgumentError(
        "reduce_op is not an operation. Received: " + std::to_string(op) + ". Expected: 0 to " +
        std::to_string(kNumReduceOps - 1) + ".");
  }
  if (adasum) request->kind = Collective::kAdasum;
  reduction->op = adasum ? ReduceOp::kSum : static_cast<ReduceOp>(op);
  TF_RETURN_IF_ERROR(ReadFactor(ctx, "prescale_factor", &reduction->prescale));
  return ReadFactor(ctx, "postscale_factor", &reduction->postscale);
}

}  // namespace

absl::Status ReadRequest(OpKernelConstruction* ctx, Collective kind, Request* request,
                         bool* anonymous) {
  request->kind = kind;
  TF_RETURN_IF_ERROR(ctx->GetAttr("tensor_name", &request->key.name));
  TF_RETURN_IF_ERROR(ctx->GetAttr("anonymous", anonymous));
  TF_RETURN_IF_ERROR(ctx->GetAttr("process_set_id", &request->key.process_set));
  TF_RETURN_IF_ERROR(ctx->GetAttr("origin", &request->origin));
  if (ctx->HasAttr("labels")) TF_RETURN_IF_ERROR(ctx->GetAttr("labels", &request->labels));
  if (ctx->HasAttr("reduce_op")) TF_RETURN_IF_ERROR(ReadReduction(ctx, request));
  if (ctx->HasAttr("root_rank")) TF_RETURN_IF_ERROR(ctx->GetAttr("root_rank", &request->root));
  return absl::OkStatus();
}

absl::Status ReadIdentity(const std::string& identity, Key* key) {
  const size_t slash = identity.find('/');
  if (slash == std::string::npos ||
      !absl::SimpleAtoi(identity.substr(0, slash), &key->process_set)) {
    return absl::InvalidArgumentError("The identity of a collective cannot be read. Received: '" +
                                      identity + "'. Expected: '<process set>/<name>'.");
  }
  key->name = identity.substr(slash + 1);
  return absl::OkStatus();
}

absl::Status ReadGradients(tensorflow::OpKernelConstruction* ctx, SharedGradients* gradients) {
  TF_RETURN_IF_ERROR(ctx->GetAttr("reductions", &gradients->reductions));
  TF_RETURN_IF_ERROR(ctx->GetAttr("labels", &gradients->labels));
  TF_RETURN_IF_ERROR(ctx->GetAttr("left_out", &gradients->left_out));
  TF_RETURN_IF_ERROR(ctx->GetAttr("sizes", &gradients->sizes));
  return ctx->GetAttr("process_set_id", &gradients->process_set);
}

}  // namespace tfhvd
