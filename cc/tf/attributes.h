// Attributes: the attributes of the ops, as a Request: for the kernels and for their compilation
// (cc/xla).
//
// Every kernel reads those attributes that it has:
//   tensor_name      the collective's identity across ranks
//   anonymous        the user gave no name: several may be in flight, and match in order
//   process_set_id   the ranks that participate
//   reduce_op        a ReduceOp
//   prescale_factor, postscale_factor   decimal text, so that a double arrives to the bit
//   root_rank        broadcast
//   origin           the line of the user's program, for messages
//   backward_pass, buckets   on a GPU (EntryExtras): the reductions whose results are used only
//                    after all are submitted, and their number; "": this one is alone
//   identities       1: the last input is an identity, and the attributes tensor_name and
//                    process_set_id have no meaning. Used if a program calls the op eagerly:
//                    TensorFlow keeps a kernel for ever for each value of an attribute.
//   deferred         only for compilation: a TfhvdDone follows, which waits for the result
#pragma once

#include <string>

#include "absl/status/status.h"
#include "cc/flow/finite_vote.h"
#include "cc/flow/request.h"
#include "tensorflow/core/framework/op_kernel.h"

namespace tfhvd {

// Fills everything except the tensors.
absl::Status ReadRequest(tensorflow::OpKernelConstruction* ctx, Collective kind, Request* request,
                         bool* anonymous);

// Parses an identity, "<process_set_id>/<tensor_name>".
absl::Status ReadIdentity(const std::string& identity, Key* key);

// Reads the attributes of TfhvdNoteNotFinite.
absl::Status ReadGradients(tensorflow::OpKernelConstruction* ctx, SharedGradients* gradients);

}  // namespace tfhvd
