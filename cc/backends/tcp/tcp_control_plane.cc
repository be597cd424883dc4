#include "cc/backends/tcp/tcp_control_plane.h"

#include <algorithm>
#include <utility>

namespace tfhvd {

TcpControlPlane::TcpControlPlane(TcpMesh* mesh, uint64_t context, uint32_t plane,
                                 std::vector<int> members, int rank)
    : mesh_(mesh), context_(context), plane_(plane), members_(std::move(members)), rank_(rank) {}

Status TcpControlPlane::Send(int to, std::string bytes) {
  backoff_.Reset();
  return mesh_->SendMessage({members_[static_cast<size_t>(to)], context_, plane_},
                            std::move(bytes));
}

// Returns earlier messages of a failed rank first: they may say why it failed.
Status TcpControlPlane::Receive(std::optional<Message>* message) {
  *message = mesh_->TakeMessage(context_, plane_);
  if (!message->has_value()) {
    mesh_->Progress(std::chrono::nanoseconds(0));
    *message = mesh_->TakeMessage(context_, plane_);
  }
  if (!message->has_value()) {
    for (const int member : members_) TFHVD_RETURN_IF_ERROR(mesh_->lost(member));
    return Status::Ok();
  }
  const auto from = std::find(members_.begin(), members_.end(), (*message)->from);
  (*message)->from = static_cast<int>(from - members_.begin());
  backoff_.Found();
  return Status::Ok();
}

bool TcpControlPlane::Flushed() {
  if (!mesh_->MessagesFlushed()) mesh_->Progress(std::chrono::nanoseconds(0));
  return mesh_->MessagesFlushed();
}

void TcpControlPlane::Wait(std::chrono::nanoseconds timeout, bool expecting) {
  if (mesh_->has_message(context_, plane_)) return;
  if (expecting && backoff_.next_sleep_ns() == 0) {
    backoff_.Pause();
    return mesh_->Progress(std::chrono::nanoseconds(0));
  }
  mesh_->Progress(timeout);
}

}  // namespace tfhvd
