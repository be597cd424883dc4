// TwoLevels: the ranks of a job on several hosts as two communicators, that of this rank's host and
// that of its lane (host_layout.h), with the staging buffers between them. The collectives of
// HierarchicalCommunicator use it.
//
// One thread: the communicator's.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/failpoints.h"
#include "cc/collectives/hierarchical/host_layout.h"
#include "cc/collectives/hierarchical/staging_buffers.h"
#include "cc/comm/communicator.h"

namespace tfhvd {

struct HierarchicalOptions {
  // The bytes that a lane carries in one call. The two levels work in parallel on several pieces.
  int64_t piece_bytes = 4 << 20;
  // Up to so many bytes, one lane carries everything.
  int64_t small_bytes = 16 << 10;
  // Whether sums of 16-bit floats stay float32 until those of all hosts are added.
  bool wide_floats = false;
  Failpoints failpoints = {};
};

class TwoLevels {
 public:
  using Sizes = std::vector<int64_t>;

  // Arguments as for HierarchicalCommunicator.
  TwoLevels(HostLayout layout, int rank, std::unique_ptr<Communicator> local,
            std::unique_ptr<Communicator> across, HierarchicalOptions options);
  ~TwoLevels();
  TwoLevels(const TwoLevels&) = delete;
  TwoLevels& operator=(const TwoLevels&) = delete;

  const HostLayout& layout() const { return layout_; }
  const HierarchicalOptions& options() const { return options_; }
  Communicator* local() const { return local_.get(); }    // all ranks of this host
  Communicator* across() const { return across_.get(); }  // this rank's lane; null: none

  int rank() const { return rank_; }
  int size() const { return layout_.size(); }
  int host() const { return host_; }
  int local_rank() const { return local_->rank(); }
  bool in_lane() const { return across_ != nullptr; }
  // Returns whether some ranks of this host use another rank's lane.
  bool crowded() const { return local_->size() > layout_.lanes; }
  // See Communicator.
  bool settled();

  // Begins a collective, which needs none of the buffers' contents.
  void BeginCall() { staging_->BeginCall(); }
  char* Get(StagingBuffers::Buffer buffer, int64_t bytes) { return staging_->Get(buffer, bytes); }
  // Does nothing if both are equal.
  static void Copy(void* to, const void* from, int64_t bytes);
  // Writes a block, and moves `*to` behind it.
  static void Pack(const char* block, int64_t bytes, char** to);

  // Divides `count` items into `lanes` parts, for which the local ranks are responsible.
  Sizes Divide(int64_t count, int lanes) const;
  // Returns how many items of each rank's block pass through a buffer at once.
  int64_t BlockPiece(int64_t item) const;
  // Returns, for every rank, the part of its `sizes` in a piece that begins at `done`.
  static Sizes PieceOf(const Sizes& sizes, int64_t done, int64_t most);
  // Returns the sum of `sizes` over the ranks of each host in one lane.
  Sizes ByHost(const Sizes& sizes, int lane) const;

 private:
  const HostLayout layout_;
  const int rank_;
  const int host_;
  const std::unique_ptr<Communicator> local_;
  const std::unique_ptr<Communicator> across_;
  const HierarchicalOptions options_;
  std::unique_ptr<StagingBuffers> staging_;
};

}  // namespace tfhvd
