// TcpWorld: a job whose processes connect over TCP, without MPI. Their launcher gives the addresses
// where each process listens (TcpEndpoints).
#pragma once

#include <memory>

#include "cc/backends/tcp/tcp_mesh.h"
#include "cc/base/config.h"
#include "cc/base/status.h"
#include "cc/comm/world.h"

namespace tfhvd {

// Does not wait for the others: connections are made when first needed.
Status ConnectTcpWorld(const Config& config, const TcpEndpoints& endpoints,
                       std::unique_ptr<World>* world);

}  // namespace tfhvd
