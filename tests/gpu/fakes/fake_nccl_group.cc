#include "tests/gpu/fakes/fake_nccl_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cc/base/backoff.h"

namespace fake {

Group::Group(std::string name, int rank, int size, bool reachable)
    : name_(std::move(name)), rank_(rank), size_(size) {
  if (!reachable) return;
  const int file = shm_open(name_.c_str(), O_CREAT | O_RDWR, 0600);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) {
    std::perror("the fake for NCCL has no shared memory");
    std::abort();
  }
  void* const at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (at == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(at);
  if (shared_->attached.fetch_add(1) + 1 == size_) shm_unlink(name_.c_str());
}

Group::~Group() {
  if (shared_ == nullptr) return;
  if (!complete()) shm_unlink(name_.c_str());
  munmap(shared_, sizeof(Shared));
}

std::string Group::last_error() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return last_error_;
}

void Group::Fail(int result, const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // What goes wrong after that follows from it: a rank that has given up is out of step.
  if (state_.load() != tfhvd::nccl::kSuccess) return;
  last_error_ = text;
  state_.store(result);
}

bool Group::Meet() {
  const unsigned long long all = ++barriers_ * static_cast<unsigned>(size_);
  shared_->arrivals.fetch_add(1);
  for (tfhvd::Backoff backoff; shared_->arrivals.load() < all; backoff.Pause()) {
    if (aborted_.load()) return false;
  }
  return !aborted_.load();
}

bool Group::Fits() const {
  const Header& first = header(0);
  for (int r = 0; r < size_; ++r) {
    const Header& h = header(r);
    if (std::strcmp(h.what, first.what) != 0 || h.count != first.count || h.type != first.type ||
        h.op != first.op || h.root != first.root || h.factor != first.factor) {
      return false;
    }
  }
  return true;
}

bool Group::Begin(const Header& mine) {
  // What was enqueued before the abort and has not begun leaves no trace at the others.
  if (aborted_.load()) return false;
  shared_->headers[rank_] = mine;
  if (!Meet()) return false;
  const bool fits = Fits();
  if (!fits) {
    std::string text = "the ranks issue different collectives:";
    for (int r = 0; r < size_; ++r) {
      text += " rank " + std::to_string(r) + ": " + header(r).what + " of " +
              std::to_string(header(r).count) + ";";
    }
    Fail(tfhvd::nccl::kInvalidUsage, text);
  }
  if (Meet() && !fits) Hang();
  return fits && !aborted_.load();
}

// As on a GPU, what goes wrong does not end until it is aborted.
void Group::Hang() {
  for (tfhvd::Backoff backoff; !aborted_.load();) backoff.Pause();
}

void Group::Transmit(std::vector<Transfer> transfers) {
  std::vector<size_t> done(transfers.size(), 0);
  tfhvd::Backoff backoff;
  for (bool open = true; open && !aborted_.load(); backoff.Pause()) {
    open = false;
    for (size_t i = 0; i < transfers.size(); ++i) {
      if (Progress(&transfers[i], &done[i])) backoff.Reset();
      open |= done[i] < transfers[i].bytes;
    }
  }
}

bool Group::Progress(Transfer* t, size_t* done) {
  if (*done == t->bytes) return false;
  Line& line = t->sends ? shared_->lines[rank_][t->peer] : shared_->lines[t->peer][rank_];
  const bool full = line.posted.load() > line.taken.load();
  if (full == t->sends) return false;
  if (t->sends) {
    line.total = t->bytes;
    line.bytes = std::min(kPieceBytes, t->bytes - *done);
    std::memcpy(line.piece, t->data + *done, line.bytes);
    *done += line.bytes;
    line.posted.fetch_add(1);
    return true;
  }
  if (line.total != t->bytes) {
    Fail(tfhvd::nccl::kInvalidUsage,
         "rank " + std::to_string(t->peer) + " sends " + std::to_string(line.total) +
             " bytes and rank " + std::to_string(rank_) + " expects " + std::to_string(t->bytes));
    Hang();
    return false;
  }
  std::memcpy(t->data + *done, line.piece, line.bytes);
  *done += line.bytes;
  line.taken.fetch_add(1);
  return true;
}

void Group::Exchange(const char* mine, size_t bytes, size_t longest,
                     const std::function<void(size_t, size_t)>& process) {
  for (size_t offset = 0; offset < longest; offset += kSlotBytes) {
    const size_t n = std::min(kSlotBytes, longest - offset);
    if (offset < bytes) {
      std::memcpy(shared_->slots[rank_], mine + offset, std::min(n, bytes - offset));
    }
    if (!Meet()) return;
    process(offset, n);
    if (!Meet()) return;
  }
}

}  // namespace fake
