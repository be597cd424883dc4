// TensorFlow's header of kernels that write XLA's computations, without the half of XLA that it
// includes for pointers to a client: that half is as long again to compile. For lowering.cc.
#pragma once

#include "tensorflow/core/framework/op_kernel.h"

// As if these headers had been included.
#define XLA_CLIENT_CLIENT_H_
#define XLA_CLIENT_LOCAL_CLIENT_H_

namespace xla {

class Client;
class LocalClient;

}  // namespace xla

#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
