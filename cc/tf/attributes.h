// The attributes of the ops, as a Request: for the kernels and for their compilation (cc/xla).
//
// Attributes, read by every kernel that has them:
//   tensor_name      the collective's identity across ranks
//   anonymous        the user gave no name: several may be in flight and take their turns
//   process_set_id   which ranks take part
//   reduce_op        a ReduceOp
//   prescale_factor, postscale_factor   decimal text, so that a double arrives to the bit
//   root_rank        broadcast
//   origin           the line of the user's program that it comes from, for people
//   backward_pass, buckets   on a GPU (EntryExtras): of which reductions no result is used before
//                    all are submitted, and how many they are; "": this one stands alone
//   identities       1: the last input is an identity, and the attributes tensor_name and
//                    process_set_id say nothing. So it is where a program calls the op eagerly:
//                    TensorFlow keeps a kernel for ever for each value of an attribute.
//   deferred         for the compilation alone: a TfhvdDone follows, which waits for the result
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cc/flow/finite_vote.h"
#include "cc/flow/request.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// Fills everything but the tensors.
absl::Status ReadRequest(tensorflow::OpKernelConstruction* ctx, Collective kind, Request* request,
                         bool* anonymous);

// Reads an identity, "<process_set_id>/<tensor_name>".
absl::Status ReadIdentity(const std::string& identity, Key* key);

// Of TfhvdNoteNotFinite.
absl::Status ReadGradients(tensorflow::OpKernelConstruction* ctx, SharedGradients* gradients);

}  // namespace tfhvd
